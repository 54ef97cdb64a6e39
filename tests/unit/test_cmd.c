/* SPDX-License-Identifier: Apache-2.0
 *
 * The program from outside: exit codes, what goes to which stream, what usage errors say.
 */
#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "plait.h"
#include "program.h"
#include "test.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define DEMO PLAIT_SOURCE_DIR "/configs/demo.yaml"

static bool begins(const char *s, const char *with)
{
    return strncmp(s, with, strlen(with)) == 0;
}

static void usage_errors_end_with_10(void)
{
    static const struct { const char *word[8], *says; } bad[] = {
        {{"chek"}, "there is no verb \"chek\"; the nearest is check"},
        {{"plan"}, "there is no verb \"plan\"; the nearest is check; `plait help` lists them"},
        {{"simulate"}, "the nearest is sim"},
        {{"run"}, "the nearest is train"},
        {{"--verbose"}, "there is no verb \"--verbose\"; `plait help` lists them"},
        {{"help", "confg"}, "there is no help on \"confg\"; the nearest is config"},
        {{"help", "model.layrs"}, "no help on \"model.layrs\"; the nearest is model.layers"},
        {{"help", "nonesuch"}, "there is no help on \"nonesuch\"; `plait help` lists"},
        {{"help", "zb-v"}, "zb-v is a schedule; `plait help schedules` has them all"},
        {{"help", "zb_h1"}, "the nearest is the schedule zb-h1 of `plait help schedules`"},
        {{"help", "config", "schedules"}, "help explains one thing at a time"},
        {{"help", "info", "--markdown"}, "--markdown is for `plait help config` only"},
        {{"info", "x"}, "info takes no words"},
        {{"check"}, "no configuration is given"},
        {{"check", "--rank", "2"}, "there is no option --rank; the nearest is --ranks"},
        {{"check", "-q"}, "there is no option -q; usage: plait check"},
        {{"check", "-n"}, "--ranks needs a value N"},
        {{"check", "-n", "two"}, "--ranks is \"two\"; wanted is a whole number from 0 to 1048576"},
        {{"check", "-n-1"}, "--ranks is \"-1\""},
        {{"check", "--ranks=99999999999999999999"}, "--ranks is \"99999999999999999999\""},
        {{"check", "--yaml=1", "a=b"}, "--yaml takes no value"},
        {{"check", "--yaml", "--json", "a=b"}, "--yaml and --json exclude one another"},
        {{"check", "--", "--yaml"}, "cannot read --yaml"},
        {{"check", "/nonexistent.yaml"}, "plait: config: cannot read /nonexistent.yaml: no such"},
        {{"train", "/tmp"}, "plait: config: cannot read /tmp: it is a folder"},
        {{"check", "model.leyers=2"}, "there is no key model.leyers; the nearest is model.layers"},
        {{"check", "a=b", "words"}, "there is no key a"},
        {{"data", "prepear"}, "data has no part \"prepear\"; the nearest is prepare"},
        {{"data", "random", "--vocab=7"}, "data random needs -o FILE, and --vocab"},
        {{"data", "random", "-oa", "--vocab=7", "--tokens=7", "--rows=7"}, "needs -o FILE, and"},
        {{"data", "random", "-oa", "--features=7", "--classes=7"}, "--features, --classes and --r"},
        {{"data", "import"}, "data import takes one table, and 0 are given"},
        {{"data", "import", "a.csv"}, "data import needs -o FILE"},
        {{"data", "import", "a", "-ob", "--shape=8"}, "--shape is \"8\", wanted is a height and a"},
        {{"data", "import", "a", "-ob", "--shape=8x"}, "--shape is \"8x\""},
        {{"data", "import", "a", "-ob", "--resize=0x8"}, "--resize is \"0x8\""},
        {{"data", "import", "a", "-ob", "--resize=8x8x8"}, "--resize is \"8x8x8\""},
        {{"data", "import", "a", "-ob", "--labels=mid"}, "--labels is \"mid\", wanted is first or"},
        {{"data", "import", "a", "-ob", "--csv"}, "the table is a word without an option"},
        {{"data", "info"}, "data info takes one file, and 0 are given"},
        {{"data", "prepare", "a.txt"}, "data prepare needs -o FILE"},
        {{"data", "prepare", "-oa.tok"}, "data prepare needs a text file"},
        {{"train", "model.vocab=257"}, "data.train is empty"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct outcome o;
        program_run(&o, NULL, bad[i].word);
        test_check(o.code == PLAIT_CONFIG && begins(o.err, "plait: ") &&
                       strstr(o.err, bad[i].says) && o.out[0] == '\0',
                   __FILE__, __LINE__, "%s %s: %d, out \"%s\", err \"%s\"", bad[i].word[0],
                   bad[i].word[1] ? bad[i].word[1] : "", o.code, o.out, o.err);
        test_check(strchr(o.err, '\n') == strrchr(o.err, '\n'), __FILE__, __LINE__,
                   "more than a line: %s", o.err);
    }
}

static void help_explains_every_verb(void)
{
    struct outcome list, page, same;
    RUN(&list, "help");
    CHECK_INT(list.code, PLAIT_OK);
    CHECK_STR(list.err, "");
    int verbs = 0;
    for (const char *s = list.out; (s = strstr(s, "\n  plait ")) != NULL; s++) {
        char verb[32] = "", want[64];
        CHECK(sscanf(s, "\n  plait %31s", verb) == 1);
        RUN(&page, "help", verb);
        RUN(&same, verb, "--help");
        snprintf(want, sizeof want, "usage: plait %s", verb);
        test_check(page.code == PLAIT_OK && begins(page.out, want), __FILE__, __LINE__,
                   "help %s: %d %s", verb, page.code, page.out);
        CHECK_STR(same.out, page.out);
        RUN(&same, verb, "--xyzzyx");
        test_check(same.code == PLAIT_CONFIG && !strstr(same.err, "\\x") &&
                       strchr(same.err, '\n') == strrchr(same.err, '\n'), __FILE__, __LINE__,
                   "%s --xyzzyx: %d %s", verb, same.code, same.err);
        verbs++;
    }
    CHECK(verbs >= 4);
    RUN(&list, "help", "optim.schedule");
    CHECK_INT(list.code, PLAIT_OK);
    CHECK_STR(list.out,
              "  key                  type   default legal               meaning\n"
              "  optim.schedule       word   cosine  constant|linear|cosine|wsd  "
              "learning-rate schedule after the\n"
              "                                                                  warm-up; wsd: "
              "constant, then a\n"
              "                                                                  "
              "final linear decay\n");
    RUN(&list, "help", "schedule");
    CHECK(strstr(list.out, "  parallel.schedule  ") && strstr(list.out, "  optim.schedule  "));
    RUN(&list, "help", "schedules");
    CHECK(list.code == PLAIT_OK && strstr(list.out, "1f1b") != NULL);
    RUN(&list, "--version");
    CHECK_STR(list.out, "plait " PLAIT_VERSION "\n");
    RUN(&list, "info");
    CHECK(list.code == PLAIT_OK && strstr(list.out, "ref") != NULL);
}

/* No word at all: the list goes to standard error, since nothing was asked for. */
static void no_words_are_wrong_usage(void)
{
    struct outcome o;
    const char *none[] = {NULL};
    program_run(&o, NULL, none);
    CHECK_INT(o.code, PLAIT_CONFIG);
    CHECK_STR(o.out, "");
    CHECK(strstr(o.err, "plait check") != NULL);
}

static void check_answers_at_once(void)
{
    struct outcome o;
    double from = log_now();
    RUN(&o, "check", DEMO, "-n", "4");
    double took = log_now() - from;
    test_check(o.code == PLAIT_OK, __FILE__, __LINE__, "%d: %s", o.code, o.err);
    CHECK(strstr(o.out, "tp 2") != NULL && strstr(o.out, "predicted bubble") != NULL);
    CHECK(took < 1.0);
    RUN(&o, "check", DEMO, "-n", "6");
    CHECK_INT(o.code, PLAIT_CONFIG);
    CHECK(strstr(o.err, "ranks started: 6") != NULL);
    RUN(&o, "check", "data.train=/nonexistent.tok", "model.vocab=257");
    CHECK_INT(o.code, PLAIT_DATA);
}

/* What train takes check takes, and answers for: each option of train's page has its line in that
 * of check, and those that stand for a key change what is answered. */
static void check_takes_what_train_takes(void)
{
    static struct outcome train, check;
    int options = 0;
    RUN(&train, "train", "--help");
    RUN(&check, "check", "--help");
    for (const char *s = train.out; (s = strstr(s, "--")) != NULL; s++) {
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(s, " \n"), s);
        if (s[-1] != ' ') /* in the line of usage */
            continue;
        test_check(strstr(check.out, name) != NULL, __FILE__, __LINE__, "%s is none of check",
                   name);
        options++;
    }
    CHECK(options >= 4);
    RUN(&check, "check", DEMO, "--trace", "--canonical-accumulation", "--yaml");
    CHECK_INT(check.code, PLAIT_OK);
    CHECK(strstr(check.out, "trace: true") && strstr(check.out, "canonical_accumulation: true"));
    RUN(&check, "check", DEMO, "--canonical-accumulation", "model.tied=true",
        "parallel.schedule=zb-v");
    CHECK_INT(check.code, PLAIT_CONFIG);
    CHECK(strstr(check.err, "train.canonical_accumulation true with model.tied true"));
}

/* What --yaml prints is a file that says the same again. */
static void yaml_reads_back(void)
{
    struct outcome a, b;
    RUN(&a, "check", DEMO, "train.seed=77", "--yaml");
    CHECK_INT(a.code, PLAIT_OK);
    CHECK(strstr(a.out, "seed: 77") != NULL);
    CHECK_OK(fs_put("again.yaml", a.out, (int64_t)strlen(a.out)));
    RUN(&b, "check", "again.yaml", "--yaml");
    CHECK_INT(b.code, PLAIT_OK);
    CHECK_STR(b.out, a.out);
}

/* Whichever allocation of a check fails, the program says so and ends with its code. */
static void every_failing_allocation_is_told(void)
{
    struct outcome o = {.code = -1};
    int k = 0;
    while (o.code != PLAIT_OK && k < 500) {
        char number[16];
        snprintf(number, sizeof number, "%d", ++k);
        setenv("PLAIT_FAIL_ALLOC", number, 1);
        RUN(&o, "check", PLAIT_SOURCE_DIR "/configs/demo.yaml");
        if (!test_check(o.code == PLAIT_OK ||
                            (o.code == PLAIT_MEMORY && begins(o.err, "plait: memory: ")),
                        __FILE__, __LINE__, "allocation %d: %d, %s", k, o.code, o.err))
            break;
    }
    unsetenv("PLAIT_FAIL_ALLOC");
    test_check(k > 10 && o.code == PLAIT_OK, __FILE__, __LINE__, "%d allocations", k);
}

/* Text becomes a file that check accepts; what is refused leaves none. */
static void data_prepare_makes_a_file(void)
{
    struct outcome o;
    struct fs_file f;
    static const char text[] = "text.txt", token[] = "text.tok", key[] = "data.train=text.tok";
    CHECK_OK(fs_create(&f, text));
    for (int i = 0; i < 5000; i++)
        CHECK_OK(fs_write(&f, "words ", 6));
    CHECK_OK(fs_commit(&f));
    RUN(&o, "data", "prepare", text, "-o", text);
    CHECK_INT(o.code, PLAIT_CONFIG);
    CHECK(strstr(o.err, "is the same file as text") != NULL);
    RUN(&o, "data", "prepare", text, "-o", token, "--tokenizer", "gpt2");
    CHECK_INT(o.code, PLAIT_TOKEN);
    RUN(&o, "data", "prepare", text, "/nonexistent.txt", "-o", token);
    CHECK_INT(o.code, PLAIT_DATA);
    CHECK(begins(o.err, "plait: data: cannot read /nonexistent.txt: no such file"));
    CHECK(!fs_exists(token));
    RUN(&o, "data", "prepare", text, text, "-o", token);
    CHECK_INT(o.code, PLAIT_OK);
    CHECK(begins(o.out, "60002 tokens of 2 texts in "));
    CHECK_STR(o.err, ""); /* the bar is for terminals */
    RUN(&o, "data", "info", token);
    CHECK_INT(o.code, PLAIT_OK);
    CHECK(strstr(o.out, "tokenizer   bytes, vocabulary 257\n") != NULL);
    CHECK(strstr(o.out, "(60002) of 2 bytes\ntexts       2\nhash        xxh3-64 ") != NULL);
    RUN(&o, "data", "info", text);
    CHECK_INT(o.code, PLAIT_DATA);
    CHECK(strstr(o.err, "so it is no token file") != NULL);
    RUN(&o, "check", DEMO, key, "train.valid_every=0", "train.valid_batches=0");
    test_check(o.code == PLAIT_OK, __FILE__, __LINE__, "%d: %s", o.code, o.err);
}

/* A table becomes a row file, pictures resized, that data info describes. */
static void data_import_makes_a_file(void)
{
    struct outcome o;
    CHECK_OK(fs_put("t.csv", "label,a,b\n3,1,2\n0,3,4\n", 22));
    RUN(&o, "data", "import", "t.csv", "-o", "t.rows");
    CHECK_INT(o.code, PLAIT_DATA);
    CHECK(strstr(o.err, "pass over a line of names with --header") && !fs_exists("t.rows"));
    RUN(&o, "data", "import", "t.csv", "-o", "t.rows", "--header", "--labels", "first", "--shape",
        "1x2", "--resize", "2x4", "--scale", "0.5", "--classes", "7");
    CHECK_INT(o.code, PLAIT_OK);
    CHECK_STR(o.out, "2 rows in t.rows\n");
    CHECK_STR(o.err, "");
    RUN(&o, "data", "info", "t.rows");
    CHECK_INT(o.code, PLAIT_OK);
    CHECK(strstr(o.out, "rows        2 (2) of 8 features, 2 x 4, and a label of 7 classes\n"
                        "hash        xxh3-64 ") && strstr(o.out, "agrees with the rows\n"));
    RUN(&o, "data", "random", "--features", "3", "--classes", "1", "--rows", "1", "-o", "r.rows");
    CHECK_STR(o.out, "1 random row of 3 features and 1 class in r.rows\n");
    RUN(&o, "data", "info", "r.rows");
    CHECK(strstr(o.out, "rows        1 (1) of 3 features, and a label of 1 class\n") != NULL);
}

/* Is each word behind a lone 1 in the singular? */
static void check_singular(const char *what, const char *text)
{
    static const char *const many[] = {"ranks", "threads", "cores", "steps", "samples", "tokens",
                                       "layers", "microbatches", "chunks", "stages", "bytes",
                                       "texts", "epochs", "processes"};
    for (size_t i = 0; i < sizeof many / sizeof *many; i++)
        for (const char *s = text; (s = strstr(s, many[i])) != NULL; s++)
            test_check(s - text < 2 || s[-1] != ' ' || s[-2] != '1' ||
                           (s - text > 2 && s[-3] >= '0' && s[-3] <= '9'),
                       __FILE__, __LINE__, "%s: \"1 %s\" in: %s", what, many[i], text);
}

/* One of everything: a rank, a step, a sample, a layer. */
static void one_is_no_plural(void)
{
    struct outcome o;
    const char *data = "data.train=one.tok", *run = "run.dir=run";
    CHECK_OK(fs_put("one", "ab", 2));
    RUN(&o, "data", "prepare", "one", "-o", "one.tok");
    CHECK(o.code == 0 && strstr(o.out, "3 tokens of 1 text in "));
    RUN(&o, "check", data, run, "model.layers=1", "model.seq=2", "train.batch=1", "train.steps=1",
        "train.threads=1");
    CHECK(o.code == 0 && strstr(o.out, "1 layer, "));
    CHECK(strstr(o.out, "1 sample of 2 tokens, 1 microbatch of 1 a data rank") != NULL);
    CHECK(strstr(o.out, "3 tokens, 1 sample; 1 step, epochs 1\n") != NULL);
    CHECK(strstr(o.out, " layer 0, embedding") != NULL);
    check_singular("check", o.out);
    RUN(&o, "train", data, run, "model.layers=1", "model.hidden=8", "model.seq=2", "train.batch=1",
        "train.steps=1", "train.threads=1");
    CHECK(o.code == 0 && strstr(o.out, "1 step in ") != NULL);
    check_singular("train", o.out);
    check_singular("train", o.err);
    run = "run.dir=ordered";
    RUN(&o, "train", data, run, "model.layers=1", "model.hidden=8", "model.seq=2", "train.batch=1",
        "train.steps=1", "train.threads=1", "model.tied=false", "--canonical-accumulation");
    CHECK(o.code == 0 && strstr(o.out, "schedule 1f1b with canonical accumulation, ") != NULL);
    RUN(&o, "check", data, "model.seq=3", "parallel.microbatch=1", "train.batch=2",
        "parallel.dp=2", "parallel.microbatch=2");
    check_singular("microbatch", o.err);
    RUN(&o, "sim", "gpipe", "-p1", "-m1");
    CHECK(begins(o.out, "schedule  gpipe: 1 rank, 1 microbatch, 1 chunk a rank\n"));
    RUN(&o, "info");
    check_singular("info", o.out);
}

static void lost_output_is_an_error(void)
{
    struct outcome o;
    const char *words[] = {"info", NULL};
    if (access("/dev/full", W_OK) != 0) {
        test_skip("there is no /dev/full");
        return;
    }
    program_run(&o, "/dev/full", words);
    CHECK_INT(o.code, PLAIT_STORAGE);
    CHECK(strstr(o.err, "standard output cannot be written") != NULL);
}

static void wrong_words_of_sim(void)
{
    static struct outcome o;
    static const struct { const char *word[9], *says; } bad[] = {
        {{"sim"}, "no schedule is named"},
        {{"sim", "1f1b"}, "1f1b needs the number of ranks"},
        {{"sim", "1f1b", "-p", "4"}, "1f1b needs the number of microbatches"},
        {{"sim", "1f1", "-p", "4", "-m", "8"}, "the nearest is 1f1b"},
        {{"sim", "1f1b", "-p4", "-m8", "-v", "2"}, "use -v 1"},
        {{"sim", "1f1b", "-p", "4x", "-m", "8"}, "\"4x\""},
        {{"sim", "1f1b", "-p", "4", "-m", "0"}, "from 1 to 65535"},
        {{"sim", "1f1b", "-p4", "-m8", "--tw", "0"}, "--tw is \"0\""},
        {{"sim", "1f1b", "-p4", "-m8", "--text", "--json"}, "exclude one another"},
        {{"sim", "1f1b", "-p4", "-m8", "--color", "red"}, "wanted is auto, always or never"},
        {{"sim", "--compare", "1f1b,gpipe"}, "--compare needs the number of ranks"},
        {{"sim", "--compare", "1f1b", "--table", "1f1b"}, "are four questions; ask one"},
        {{"sim", "1f1b", "--table", "1f1b"}, "are four questions; ask one"},
        {{"sim", "1f1b", "-p4", "-m8", "--bytes", "8"}, "add bandwidth (--bandwidth)"},
        {{"sim", "1f1b", "-p2", "-m8", "--scale", "1"}, "scale has 1 factor, and"},
        {{"sim", "1f1b", "-p2", "-m8", "--costs"}, "--costs needs a value FILE"},
        {{"sim", "1f1b", "-p2", "-m2", "--svg", "a", "--html", "a"}, "would be the one file a"},
        {{"sim", "--table", "1f1b", "--json"}, "a table has no other format"},
        {{"sim", "1f1b", "gpipe", "-p4", "-m8"}, "one schedule at a time"},
        {{"sim", "--list", "gpipe"}, "--list takes no schedule"},
        {{"sim", "zebra"}, "schedule \"zebra\" is not known"},
        {{"sim", "none.csv"}, "cannot read none.csv: no such file"},
        {{"sim", "none.txt", "-p4", "-m8"}, "cannot read none.txt: no such file"},
        {{"sim", "./none"}, "cannot read ./none: no such file"},
        {{"sim", "none", "-p4", "-m8"}, "schedule \"none\" is not known"},
        {{"sim", "1f1b", "-p4", "-m8", "parallel.tp=2"}, "parallel.tp=2 changes a configuration, "
                                                         "and there is none"},
        {{"sim", "--model", DEMO, "parallel.schedul=gpipe"}, "is parallel.schedule"},
        {{"sim", "--model", DEMO, "1f1b", "parallel.pp=2", "gpipe"}, "`plait sim --compare "
                                                                     "1f1b,gpipe`"},
        {{"sim", "file:a=b.csv"}, "cannot read a=b.csv: no such file"},
        {{"sim", "file:/nonexistent"}, "plait: simulation: cannot read /nonexistent: no such file"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        program_run(&o, NULL, bad[i].word);
        CHECK_INT(o.code, PLAIT_CONFIG);
        CHECK_STR(o.out, "");
        test_check(begins(o.err, "plait: ") && strstr(o.err, bad[i].says), __FILE__, __LINE__,
                   "wanted \"%s\", got: %s", bad[i].says, o.err);
    }
}

static void sim_plays_schedules(void)
{
    static struct outcome o;
    RUN(&o, "sim", "--list");
    CHECK(o.code == 0 && begins(o.out, "naive ") && strstr(o.out, "\n1f1b "));
    RUN(&o, "sim", "1f1b", "-p", "4", "-m", "8");
    CHECK(o.code == 0 && strstr(o.out, "makespan  33\n"));
    RUN(&o, "sim", "1f1b", "-p4", "-m8", "--tf=2", "--tb", "1", "--tc", "0.5");
    CHECK(o.code == 0 && strstr(o.out, "makespan  41\n")); /* 33, and 16 latencies */
    RUN(&o, "sim", "gpipe", "-p2", "-m2", "--text");
    CHECK_STR(o.out, "0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n");
    RUN(&o, "sim", "gpipe", "-p2", "-m2", "--gantt", "--width", "0");
    CHECK(begins(o.out, "rank 0 |01...B0B1|\n")); /* not a terminal: no colour */
    RUN(&o, "sim", "gpipe", "-p2", "-m2", "--gantt", "--color", "always");
    CHECK(strstr(o.out, "\x1b[30;42m") != NULL);
    RUN(&o, "sim", "gpipe", "-p2", "-m2", "--json");
    CHECK(o.code == 0 && strstr(o.out, "\"bubble_fraction\": 0.3333333333333333"));
    CHECK_STR(o.err, "");
}

/* A model's keys are set as check sets them, wherever the words stand; options go over them. */
static void sim_sets_keys(void)
{
    static struct outcome o;
    static const struct { const char *word[10], *says; } c[] = {
        {{"sim", "--model", DEMO, "parallel.pp=3"}, ": 3 ranks, "},
        {{"sim", "parallel.pp=3", "gpipe", "--model", DEMO}, "gpipe: 3 ranks, "},
        {{"sim", "gpipe", "parallel.pp=3", "--model", DEMO, "-m2"}, "gpipe: 3 ranks, 2 micro"},
        {{"sim", "parallel.pp=3", "--model", DEMO, "parallel.pp=2", "gpipe"}, "gpipe: 2 ranks, "},
        {{"sim", "--model", DEMO, "parallel.pp=3", "-p2"}, ": 2 ranks, "},
        {{"sim", "--model", DEMO, "--compare", "1f1b,gpipe", "parallel.pp=3"}, "3 ranks, "},
    };
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        program_run(&o, NULL, c[i].word);
        test_check(o.code == 0 && strstr(o.out, c[i].says), __FILE__, __LINE__,
                   "row %d, wanted \"%s\": %s%s", (int)i, c[i].says, o.out, o.err);
    }
}

static void sim_compares_and_draws(void)
{
    static struct outcome o;
    RUN(&o, "sim", "--compare", "gpipe,1f1b", "-p2", "-m2");
    CHECK(o.code == 0 && strstr(o.out, "\n1f1b "));
    RUN(&o, "sim", "--table", "gpipe", "-p2", "-m2");
    CHECK(o.code == 0 && strstr(o.out, "     2   50.00   33.33\n"));
    RUN(&o, "sim", "gpipe", "-p2", "-m2", "--svg", "/nonexistent/a.svg");
    CHECK_INT(o.code, PLAIT_STORAGE);
    CHECK_STR(o.out, "");
    CHECK(strstr(o.err, "/nonexistent/a.svg") != NULL);
}

/* Words of a verb reach the library: another seed, other tokens, and the same those of its call. */
static void options_are_handed_on(void)
{
    static struct outcome o;
    const char *mine = "mine.tok", *its = "its.tok";
    struct fs_map a, b;
    for (int seed = 1; seed <= 2; seed++) {
        RUN(&o, "data", "random", "--vocab", "300", "--tokens", "500", "--seed",
            seed == 1 ? "1" : "2", "-o", mine);
        CHECK_INT(o.code, 0);
        CHECK_INT(plait_data_random(its, 300, 500, (uint64_t)seed), 0);
        CHECK_OK(fs_map_open(&a, mine, ERR_DATA));
        CHECK_OK(fs_map_open(&b, its, ERR_DATA));
        CHECK(a.size == b.size && memcmp(a.data, b.data, (size_t)a.size) == 0);
        fs_map_close(&a);
        fs_map_close(&b);
    }
#define MODEL PLAIT_SOURCE_DIR "/tests/oracle/folders/gpt-tied-f32"
#define DRAW(...) RUN(&o, "generate", MODEL, "--ids", "1,2,3", "--tokens", "12", __VA_ARGS__)
    static char greedy[sizeof o.out], drawn[sizeof o.out];
    DRAW("--temperature", "0");
    CHECK_INT(o.code, 0);
    snprintf(greedy, sizeof greedy, "%s", o.out);
    DRAW("--temperature", "50", "--top-k", "1");
    CHECK_STR(o.out, greedy);
    DRAW("--temperature", "50", "--seed", "3");
    snprintf(drawn, sizeof drawn, "%s", o.out);
    CHECK(strcmp(drawn, greedy) != 0);
    DRAW("--temperature", "50", "--seed", "4");
    CHECK(strcmp(o.out, drawn) != 0);
#undef DRAW
#undef MODEL
}

static const struct test_case cases[] = {
    {"options are handed on", options_are_handed_on},
    {"usage_errors_end_with_10", usage_errors_end_with_10},
    {"wrong_words_of_sim", wrong_words_of_sim},
    {"sim_plays_schedules", sim_plays_schedules},
    {"sim_sets_keys", sim_sets_keys},
    {"sim_compares_and_draws", sim_compares_and_draws},
    {"help_explains_every_verb", help_explains_every_verb},
    {"no_words_are_wrong_usage", no_words_are_wrong_usage},
    {"check_answers_at_once", check_answers_at_once},
    {"check_takes_what_train_takes", check_takes_what_train_takes},
    {"yaml_reads_back", yaml_reads_back},
    {"every_failing_allocation_is_told", every_failing_allocation_is_told},
    {"data_prepare_makes_a_file", data_prepare_makes_a_file},
    {"data_import_makes_a_file", data_import_makes_a_file},
    {"one_is_no_plural", one_is_no_plural},
    {"lost_output_is_an_error", lost_output_is_an_error},
};
TEST_MAIN(cases)
