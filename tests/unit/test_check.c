/* SPDX-License-Identifier: Apache-2.0
 *
 * What check_run refuses, with which code and which words; what it lets pass although others would
 * not; how long it takes. What it reports: test_check_report.c.
 */
#include "illegal.h"

#include "base/fs.h"
#include "base/mem.h"
#include "comm/comm.h"
#include "device/device.h"
#include "plait.h"
#include "check/rules.h"
#include <stdlib.h>
#include <time.h>

/* "16 microbatches" and the like, told once is enough. */
static bool says_a_number_twice(const char *text)
{
    for (const char *at = text; (at = strstr(at, " microbatch")) != NULL; at++) {
        const char *from = at;
        char said[64];
        while (from > text && from[-1] >= '0' && from[-1] <= '9')
            from--;
        snprintf(said, sizeof said, "%.*s", (int)(at + strlen(" microbatch") - from), from);
        if (from < at && strstr(at, said))
            return true;
    }
    return false;
}

static void illegal_configurations_are_refused(void)
{
    illegal_files();
    for (int i = 0; i < ILLEGAL_COUNT; i++) {
        const struct illegal *c = &illegal[i];
        enum err err = illegal_run(c);
        const char *text = err_text();
        test_check(err == c->code && strstr(text, c->name) && strstr(text, c->value) &&
                       strstr(text, c->rule),
                   __FILE__, __LINE__, "%s: wanted %d, \"%s\", \"%s\", \"%s\"; got %d: %s", c->set,
                   (int)c->code, c->name, c->value, c->rule, (int)err, err == ERR_OK ? "" : text);
        const char *behind = strstr(text, ": ");
        size_t word = behind ? strspn(behind + 2, "abcdefghijklmnopqrstuvwxyz") : 0;
        test_check(word == 0 || strncmp(behind + 2 + word, ": ", 2) != 0, __FILE__, __LINE__,
                   "two openings: %s", text);
        test_check(err == ERR_OK || !says_a_number_twice(text), __FILE__, __LINE__, "twice: %s",
                   text);
        test_check(err == ERR_OK || (strcmp(text, "") != 0 && text[strlen(text) - 1] != '.'),
                   __FILE__, __LINE__, "form: %s", text);
    }
}

/* A layout is tried out before there is a file: what is wrong with it is said before that the
 * vocabulary is not known, whatever it is. */
static void no_vocabulary_is_said_last(void)
{
    int tried = 0;
    illegal_files();
    for (int i = 0; i < ILLEGAL_COUNT; i++) {
        struct illegal c = illegal[i];
        char words[600];
        if (c.purpose == CHECK_TRAIN || strstr(c.set, "vocab") || strstr(c.set, "data.train"))
            continue;
        snprintf(words, sizeof words, "model.vocab=0 %s", c.set);
        c.set = words;
        enum err err = illegal_run(&c);
        test_check(err == c.code && strncmp(err_text(), "model.vocab is 0", 16) != 0, __FILE__,
                   __LINE__, "%s: code %d, %s", words, err, err_text());
        tried++;
    }
    CHECK(tried > 80);
    CHECK_ERR(illegal_run(&(struct illegal){.set = "model.vocab=0 parallel.tp=2"}), ERR_CONFIG,
              "model.vocab is 0, which takes the vocabulary of data.train");
}

/* Each word in the messages that proposes a value must propose one that passes. */
static void proposed_values_are_legal(void)
{
    static const char *const repaired[][4] = {
        {"model.hidden=132", NULL},
        {"parallel.dp=3", "train.batch=9", NULL},
        {"parallel.dp=16", "train.batch=16", NULL},
        {"parallel.microbatch=3", "train.batch=131071", NULL},
        {"model.seq=126", "parallel.tp=2", "parallel.sp=true", NULL},
        {"optim.schedule=wsd", "optim.decay_steps=1", NULL},
        {"optim.schedule=wsd", "optim.decay_steps=100", NULL},
    };
    for (size_t i = 0; i < sizeof repaired / sizeof *repaired; i++) {
        struct options o = with(repaired[i]);
        CHECK_OK(check_run(&o, 0, CHECK_PLAN, NULL, NULL));
    }
    for (int tp = 1; tp <= 40; tp++) { /* the list that the refusal of tp 4 gives: 1 2 5 10 20 40 */
        char word[32];
        snprintf(word, sizeof word, "parallel.tp=%d", tp);
        struct options o = WITH("model.kind=llama", "model.heads=40", "model.hidden=320",
                                "model.kv_heads=10", "model.ffn=3200", word);
        bool listed = tp == 1 || tp == 2 || tp == 5 || tp == 10 || tp == 20 || tp == 40;
        enum err err = check_run(&o, 0, CHECK_PLAN, NULL, NULL);
        test_check((err == ERR_OK) == listed, __FILE__, __LINE__,
                   "tp %d", tp);
    }
}

/* A rule may leave what to do to the trying: where values were found for "; use", some are found
 * behind the same words without it. What says something else to do keeps it. */
static void rules_need_propose_nothing(void)
{
    char said[4096];
    int bare = 0;
    illegal_files();
    for (int i = 0; i < ILLEGAL_COUNT; i++) {
        const struct illegal *c = &illegal[i];
        struct check_facts f = {.purpose = c->purpose};
        struct options o;
        enum err err = illegal_options(c, &o);
        bool word = err != ERR_OK;
        if (!word)
            err = check_rules(&o, c->ranks, &f);
        check_free(&f);
        if (word || err == ERR_OK)
            continue; /* refused as a word, or by a start */
        snprintf(said, sizeof said, "%s", err_text());
        char *use = strstr(said, "; use ");
        CHECK_INT(advice_give(&o, c->ranks, &f, err), err);
        if (!use || strcmp(err_text(), said) == 0)
            continue; /* a path has no nearest value */
        *use = '\0';
        err = err_set(err, __FILE__, __LINE__, "%s", said);
        CHECK_INT(advice_give(&o, c->ranks, &f, err), err);
        size_t n = strlen(said);
        test_check(strncmp(err_text(), said, n) == 0 && strncmp(err_text() + n, "; use ", 6) == 0,
                   __FILE__, __LINE__, "%s: no value behind it: %s", c->set, err_text());
        bare++;
        err = err_set(err, __FILE__, __LINE__, "%s; name a file", said);
        CHECK_INT(advice_give(&o, c->ranks, &f, err), err);
        test_check(strcmp(err_text() + n, "; name a file") == 0, __FILE__, __LINE__, "%s: %s",
                   c->set, err_text());
    }
    CHECK(bare > 20);
}

static void unusual_layouts_are_legal(void)
{
    static const char *const legal[][6] = {
        {"model.layers=30", "parallel.pp=4", NULL},
        {"parallel.microbatch=3", NULL}, /* 3, 3, 2 */
        {"parallel.pp=4", "train.batch=1", NULL},
        {"model.kind=llama", "model.heads=32", "model.kv_heads=2", "parallel.tp=8", "model.ffn=512",
         NULL},
        {"model.vocab=50257", "parallel.tp=4", NULL},
        {"train.device=ref", NULL},
        {"train.device=null", "train.dtype=bf16", NULL},
        {"optim.lr=0", "optim.lr_min=0", NULL},
        {"train.valid_every=5", NULL},
        {"optim.post_validation=true", "optim.trust_after=3", NULL}, /* of older configurations */
    };
    for (size_t i = 0; i < sizeof legal / sizeof *legal; i++) {
        struct options o = with(legal[i]);
        CHECK_OK(check_run(&o, 0, CHECK_PLAN, NULL, NULL));
        CHECK_OK(check_run(&o, (int)options_ranks(&o), CHECK_PLAN, NULL, NULL));
    }
}

/* What a plan of GPUs or their opening reads of the environment is held against its words before
 * either, for every purpose; other devices, and one rank, have no use for it. */
static void slips_of_the_environment_are_refused(void)
{
    static const struct { const char *name, *value, *set[3], *says; } c[] = {
        {"PLAIT_COPIES", "foo", {"train.device=cuda", "parallel.pp=2"}, "PLAIT_COPIES is foo; use"},
        {"PLAIT_COPIES", "foo", {"train.device=cuda", "parallel.tp=2"}, "PLAIT_COPIES is foo; use"},
        {"PLAIT_COPIES", "Off", {"train.device=cuda", "parallel.dp=2"}, "PLAIT_COPIES is Off; use"},
        {"PLAIT_COPIES", "off", {"train.device=cuda", "parallel.dp=2"}, NULL},
        {"PLAIT_COPIES", "foo", {"train.device=cuda"}, NULL},
        {"PLAIT_COPIES", "foo", {"parallel.dp=2"}, NULL},
        {"PLAIT_ATTN_GRAD", "foo", {"train.device=cuda"}, "PLAIT_ATTN_GRAD foo is no way"},
        {"PLAIT_ATTN_GRAD", "own", {"train.device=cuda"}, NULL},
        {"PLAIT_ATTN_GRAD", "foo", {"parallel.dp=2"}, NULL},
    };
    if (!dev_built(DEV_CUDA) || !comm_nccl_built()) {
        test_skip("this program has no CUDA or no NCCL");
        return;
    }
    illegal_files();
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        for (int purpose = 0; purpose < 2; purpose++) {
            struct options o = WITH("data.train=bytes.tok");
            for (int k = 0; k < 3 && c[i].set[k]; k++)
                CHECK_OK(conf_set(&options_table, &o, c[i].set[k]));
            setenv(c[i].name, c[i].value, 1);
            env_read(&o.env);
            unsetenv(c[i].name);
            enum err err = check_run(&o, 0, purpose ? CHECK_TRAIN : CHECK_PLAN, NULL, NULL);
            test_check(c[i].says ? err == ERR_CONFIG && strstr(err_text(), c[i].says)
                                 : err == ERR_OK,
                       __FILE__, __LINE__, "row %d: %d %s", (int)i, (int)err,
                       err == ERR_OK ? "" : err_text());
        }
    }
}

static void launchers_are_told_apart(void)
{
    illegal_files();
    struct options o = WITH("data.train=bytes.tok");
    setenv("OMPI_COMM_WORLD_SIZE", "4", 1);
    CHECK_ERR(check_run(&o, 0, CHECK_TRAIN, NULL, NULL), ERR_CONFIG,
              "a launcher started 4 processes, and with train.transport thread");
    unsetenv("OMPI_COMM_WORLD_SIZE");
    CHECK_OK(check_run(&o, 0, CHECK_TRAIN, NULL, NULL));
    if (dev_built(DEV_CUDA) && !comm_nccl_built()) {
        struct options gpus = WITH("data.train=bytes.tok", "train.device=cuda", "parallel.pp=2");
        CHECK_ERR(check_run(&gpus, 0, CHECK_PLAN, NULL, NULL), ERR_CONFIG,
                  "with 2 ranks needs NCCL");
    }
    o = WITH("data.train=bytes.tok", "train.transport=mpi", "parallel.pp=2");
    if (!comm_built(COMM_MPI)) {
        CHECK_ERR(check_run(&o, 0, CHECK_PLAN, NULL, NULL), ERR_CONFIG,
                  "train.transport mpi is not built into this program");
        return;
    }
    CHECK_ERR(check_run(&o, 0, CHECK_TRAIN, NULL, NULL), ERR_CONFIG, "start with mpirun -n 2");
    setenv("OMPI_COMM_WORLD_SIZE", "3", 1);
    CHECK_ERR(check_run(&o, 0, CHECK_TRAIN, NULL, NULL), ERR_CONFIG, "ranks started: 3");
    setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
    CHECK_OK(check_run(&o, 0, CHECK_TRAIN, NULL, NULL));
    unsetenv("OMPI_COMM_WORLD_SIZE");
}

static void checking_writes_nothing(void)
{
    illegal_files();
    struct options o = WITH("data.train=bytes.tok");
    CHECK_OK(check_run(&o, 0, CHECK_PLAN, NULL, NULL));
    CHECK(!fs_exists("run"));
    CHECK_OK(check_run(&o, 0, CHECK_TRAIN, NULL, NULL));
    CHECK(!fs_exists("run"));
}

static void vocabulary_of_the_file(void)
{
    int64_t vocab = 0;
    illegal_files();
    struct options o = WITH("model.vocab=0", "data.train=bytes.tok");
    CHECK_OK(check_vocab(&o, &vocab));
    CHECK_INT(vocab, 257);
    CHECK_OK(check_run(&o, 0, CHECK_PLAN, NULL, NULL));
    o.model.vocab = 300;
    CHECK_OK(check_vocab(&o, &vocab));
    CHECK_INT(vocab, 300);
}

/* Seconds of processor time, which other programs on the machine do not lengthen. */
static double worked(void)
{
    return (double)clock() / CLOCKS_PER_SEC;
}

/* The largest layouts that the table lets through must be answered in under a second too; built
 * with a sanitizer, programs run several times as long. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define QUICK 6.0
#else
#define QUICK 1.0
#endif

static void answers_are_quick(void)
{
    static const char *const large[][6] = {
        {"model.layers=10000", "parallel.pp=2048", "train.batch=65535", NULL},
        {"model.layers=10000", "parallel.pp=512", "train.batch=65535", NULL},
        {"model.layers=10000", "parallel.pp=4096", "train.batch=4095", NULL},
        {"model.layers=10000", "parallel.pp=4096", "train.batch=200", NULL},
        {"model.layers=10000", "parallel.pp=4096", "train.batch=32", NULL},
        {"model.layers=10000", "parallel.pp=2048", "train.batch=200", "parallel.schedule=v-half",
         NULL},
        {"model.layers=10000", "parallel.pp=4096", "train.batch=100", "parallel.schedule=zb-2p",
         NULL},
    };
    for (size_t i = 0; i < sizeof large / sizeof *large; i++) {
        struct options o = with(large[i]);
        double from = worked();
        mem_free(report_of(&o, CHECK_PLAN));
        double took = worked() - from;
        test_check(took < QUICK, __FILE__, __LINE__, "case %zu took %.2f s", i, took);
    }
}

/* Whole numbers at the ends of their ranges, in random company: refused or not, no sum or product
 * may overflow (the sanitizer looks) and the answer must come. Half of the rounds leave the layout
 * alone, so that they get past the conditions between keys. */
static void extreme_values_are_answered(void)
{
    int passed = 0;
    for (int round = 0; round < 240; round++) {
        struct options o = WITH("train.device=null", "model.kind=llama");
        for (int i = 0; i < options_table.n; i++) {
            const struct conf_row *row = &options_table.row[i];
            bool sizes = strncmp(row->key, "model.", 6) == 0 ||
                         strcmp(row->key, "train.batch") == 0;
            if (row->type != CONF_INT || (round % 2 && !sizes) || test_range(0, 2) > 0)
                continue;
            int64_t lo = (int64_t)row->min, hi = (int64_t)row->max;
            const int64_t pick[] = {lo, lo + 1, hi, hi - 1, lo + (hi - lo) / 2};
            memcpy((char *)&o + row->offset, &pick[test_range(0, 4)], sizeof *pick);
        }
        if (o.parallel.microbatch < num_ceil_div(o.train.batch, 1000) && round % 2)
            o.parallel.microbatch = o.train.batch;
        struct text t = {0};
        enum err err = check_run(&o, 0, CHECK_PLAN, &t, NULL);
        test_check(err == ERR_OK || err == ERR_CONFIG, __FILE__, __LINE__, "%d: %s", (int)err,
                   err_text());
        passed += err == ERR_OK;
        text_free(&t);
    }
    test_check(passed > 10, __FILE__, __LINE__, "only %d passed the conditions", passed);
}

/* The page that a call gave must hold the words; it is released. */
static void page_has(int code, char **page, const char *words)
{
    CHECK_INT(code, PLAIT_OK);
    test_check(*page && strstr(*page, words), __FILE__, __LINE__, "no \"%s\" in:\n%s", words,
               *page ? *page : "nothing");
    plait_free(*page);
    *page = NULL;
}

/* The public face: codes, strings, defaults. */
static void api_of_configurations(void)
{
    struct plait_config *c = NULL;
    char *s = NULL;
    CHECK_INT(plait_config_new(&c), PLAIT_OK);
    CHECK_INT(plait_config_set(c, "model.layers=7"), PLAIT_OK);
    CHECK_INT(plait_config_set(c, "train.device=ref"), PLAIT_OK);
    page_has(plait_config_get(c, "model.layers", &s), &s, "7");
    CHECK_INT(plait_config_get(c, "model.leyers", &s), PLAIT_CONFIG);
    CHECK(strstr(plait_error(), "the nearest is model.layers") != NULL);
    CHECK(plait_error_trail()[0] != '\0');
    CHECK_INT(plait_config_check(c, 0, NULL), PLAIT_CONFIG); /* no vocabulary */
    CHECK_INT(plait_config_set(c, "model.vocab=257"), PLAIT_OK);
    CHECK_INT(plait_config_check(c, -1, NULL), PLAIT_CONFIG);
    page_has(plait_config_check(c, 0, &s), &s, "7 layers");
    page_has(plait_config_print(c, &s), &s, "model:\n  kind: gpt\n  layers: 7\n");
    CHECK_INT(plait_config_read(c, "/nonexistent.yaml"), PLAIT_CONFIG);
    CHECK_INT(plait_config_help("html", &s), PLAIT_CONFIG);
    plait_config_free(c);
    page_has(plait_info(&s), &s, PLAIT_VERSION);
    page_has(plait_info(&s), &s, "1f1b");
    page_has(plait_info(&s), &s, "ref");
}

static const struct test_case cases[] = {
    {"illegal_configurations_are_refused", illegal_configurations_are_refused},
    {"no_vocabulary_is_said_last", no_vocabulary_is_said_last},
    {"proposed_values_are_legal", proposed_values_are_legal},
    {"rules_need_propose_nothing", rules_need_propose_nothing},
    {"unusual_layouts_are_legal", unusual_layouts_are_legal},
    {"slips_of_the_environment_are_refused", slips_of_the_environment_are_refused},
    {"launchers_are_told_apart", launchers_are_told_apart},
    {"checking_writes_nothing", checking_writes_nothing},
    {"vocabulary_of_the_file", vocabulary_of_the_file},
    {"answers_are_quick", answers_are_quick},
    {"extreme_values_are_answered", extreme_values_are_answered},
    {"api_of_configurations", api_of_configurations},
};
TEST_MAIN(cases)
