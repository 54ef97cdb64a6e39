/* SPDX-License-Identifier: Apache-2.0
 *
 * What users are told who want to go on: check refuses what training refuses, in its words; a word
 * that means no checkpoint, or one that is damaged, is answered with those that there are.
 */
#include "left.h"
#include "saved.h"

#include "base/mem.h"

#include <fcntl.h>
#include <unistd.h>

enum { WORDS = 24 };

static const char *const base_set[] = {
    "model.layers=2", "model.hidden=16", "model.heads=2", "model.seq=8", "train.batch=4",
    "train.threads=1", "train.steps=6", "optim.warmup=2", "train.save_every=3"};

static struct plait_config *config(const char *run, const char *const *more)
{
    folder_tokens("tokens.bin", "a braid of many strands, over and under\n", 60);
    struct plait_config *c = folder_config(run, "tokens.bin");
    folder_set(c, base_set, sizeof base_set / sizeof *base_set);
    folder_set(c, more, WORDS);
    return c;
}

static int train(const char *run, const char *const *more)
{
    struct folder_seen seen;
    return folder_train(config(run, more), &seen);
}

/* What `plait check` says of the same words: its report (mem_free), NULL: an error. */
static char *check(const char *run, const char *const *more, int *code)
{
    char *report = NULL;
    struct plait_config *c = config(run, more);
    *code = plait_config_check(c, 0, &report);
    plait_config_free(c);
    return *code == 0 ? report : NULL;
}

static void flip(const char *file, off_t at)
{
    unsigned char byte = 0;
    char path[FOLDER_PATH];
    folder_path(file, path);
    int fd = open(path, O_RDWR);
    CHECK(fd >= 0 && pread(fd, &byte, 1, at) == 1);
    byte ^= 0x10;
    CHECK(pwrite(fd, &byte, 1, at) == 1 && close(fd) == 0);
}

/* Where the first chunk of a shard begins: of weights. */
static off_t data_of(const char *file)
{
    unsigned char n[8];
    char path[FOLDER_PATH];
    folder_path(file, path);
    int fd = open(path, O_RDONLY);
    CHECK(fd >= 0 && read(fd, n, sizeof n) == sizeof n && close(fd) == 0);
    return 8 + n[0] + 256 * n[1] + 65536 * n[2];
}

/* Training refuses, and check does in the same words; of several ranks the first says them. */
static void both_refuse(const char *resume, const char *other, int code, const char *said)
{
    char word[FOLDER_PATH] = "", *second;
    snprintf(word, sizeof word, "%s", other ? other : "");
    second = strchr(word, ' ');
    if (second)
        *second++ = '\0';
    const char *const more[] = {resume, other ? word : NULL, second, NULL};
    char words[2048];
    int checked, trained = train("run", more);
    snprintf(words, sizeof words, "%s", plait_error());
    test_check(trained == code && strstr(words, said), __FILE__, __LINE__, "%s %s: %d: %s", resume,
               other ? other : "", trained, words);
    CHECK(check("run", more, &checked) == NULL);
    test_check(checked == trained && strstr(words, plait_error()), __FILE__, __LINE__,
               "%s: train says \"%s\", check %d \"%s\"", resume, words, checked, plait_error());
}

static void check_refuses_alike(void)
{
    static const char *const other[] = {"model.layers=3", "model.kind=llama", "train.batch=2",
                                        "train.seed=2", "train.steps=5"};
    CHECK_INT(train("run", (const char *[]){NULL}), 0);
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
        char key[48];
        snprintf(key, sizeof key, "run.resume: %.*s is ", (int)strcspn(other[i], "="), other[i]);
        both_refuse("run.resume=auto", other[i], PLAIT_CONFIG, key);
        both_refuse("run.resume=6", other[i], PLAIT_CONFIG, key);
    }
    both_refuse("run.resume=auto", "train.steps=5 parallel.dp=2", PLAIT_CONFIG, "train.steps is 5");
    folder_tokens("others.bin", "another braid, of fewer\n", 90);
    struct plait_config *c = config("run", (const char *[]){"run.resume=auto", NULL});
    folder_set_file(c, "data.train", "others.bin");
    CHECK_INT(plait_config_check(c, 0, NULL), PLAIT_CONFIG);
    CHECK(strstr(plait_error(), "run.resume: data.train is of hash ") != NULL);
    CHECK_INT(plait_config_set(c, "run.resume_insist=true"), 0);
    CHECK_INT(plait_config_check(c, 0, NULL), 0);
    plait_config_free(c);
    folder_remove("run");
}

/* The numbers that a gpt has not, or that are counted of its data. */
static void another_llama(void)
{
    static const char *const key[] = {"model.kv_heads", "model.head_dim", "model.vocab",
                                      "model.rope_theta", "model.norm_eps"};
    static const char *const value[] = {"1", "6", "300", "500", "1e-6"};
    CHECK_INT(train("run", (const char *[]){"model.kind=llama", NULL}), 0);
    for (size_t i = 0; i < sizeof key / sizeof *key; i++) {
        char words[80], said[80];
        snprintf(words, sizeof words, "model.kind=llama %s=%s", key[i], value[i]);
        snprintf(said, sizeof said, "run.resume: %s is ", key[i]);
        both_refuse("run.resume=auto", words, PLAIT_CONFIG, said);
    }
    folder_remove("run");
}

/* What check says that a run would go on from. */
static void check_says(const char *resume, const char *said)
{
    int code;
    char *report = check("run", (const char *[]){resume, NULL}, &code);
    test_check(report && strstr(report, said), __FILE__, __LINE__, "%s: %d: %s", resume, code,
               report ? report : plait_error());
    mem_free(report);
}

/* Check goes on from what training does, and says so where there is nothing. */
static void check_looks(void)
{
    check_says("run.resume=auto", "\nresume  there is no checkpoint in ");
    CHECK_INT(train("run", (const char *[]){NULL}), 0);
    check_says("run.resume=auto", "\nresume  behind step 6, from ");
    check_says("run.resume=3", "\nresume  behind step 3, from ");
    flip("run/checkpoints/step-6/index.json", 60);
    check_says("run.resume=auto", "behind step 3, from ");
    flip("run/checkpoints/step-3/index.json", 60);
    both_refuse("run.resume=auto", NULL, PLAIT_CHECKPOINT, "none of the 2 checkpoints in ");
    folder_remove("run");
}

/* ---- words that mean none ---- */

/* A step that is not there, and words: with what there is. */
static void words_that_mean_none(void)
{
    char path[FOLDER_PATH], word[FOLDER_PATH + 32];
    CHECK_INT(train("run", (const char *[]){NULL}), 0);
    both_refuse("run.resume=7", NULL, PLAIT_CHECKPOINT,
                "/checkpoints has no whole checkpoint of step 7; it has those of: 3, 6");
    both_refuse("run.resume=latest", NULL, PLAIT_CONFIG, "neither auto, best, a step nor a ");
    both_refuse("run.resume=true", NULL, PLAIT_CONFIG, "has those of the steps: 3, 6");
    folder_path("run", path);
    snprintf(word, sizeof word, "run.resume=%s", path);
    both_refuse(word, NULL, PLAIT_CONFIG, "/checkpoints/step-N with N of: 3, 6 (or go on there");
    folder_path("run/checkpoints/step-9", path);
    snprintf(word, sizeof word, "run.resume=%s/", path);
    both_refuse(word, NULL, PLAIT_CHECKPOINT, "checkpoints has those of the steps: 3, 6");
    folder_remove("run");
    both_refuse("run.resume=7", NULL, PLAIT_CHECKPOINT, "it has those of: none");
    folder_remove("run");
}

/* ---- damage ---- */

static void says(const char *what, int code, const char *said)
{
    test_check(code == PLAIT_CHECKPOINT && strstr(plait_error(), said), __FILE__, __LINE__,
               "%s: %d: %s", what, code, plait_error());
}

/* Whoever reads a damaged one names the others: its data, its index. */
static void all_name_the_others(void)
{
    static const char others[] = "/checkpoints has others, of the steps: 3";
    static const char *const file[] = {"run/checkpoints/step-6/rank-00000.safetensors",
                                       "run/checkpoints/step-6/index.json"};
    char run[FOLDER_PATH], out[FOLDER_PATH], init[FOLDER_PATH + 32];
    char *page;
    CHECK_INT(train("run", (const char *[]){NULL}), 0);
    folder_path("run", run);
    folder_path("out", out);
    for (int i = 0; i < 2; i++) {
        flip(file[i], i == 0 ? data_of(file[i]) : 60);
        says("resume", train("run", (const char *[]){"run.resume=6", NULL}), others);
        says("export", plait_export(&(struct plait_export){.size = sizeof(struct plait_export),
                                                           .run = run, .out = out}, &page), others);
        says("generate", plait_generate(&(struct plait_generate){
                             .size = sizeof(struct plait_generate), .run = run, .prompt = "a",
                             .tokens = 1}), others);
        snprintf(init, sizeof init, "model.init=%s", run);
        says("model.init", train("new", (const char *[]){init, NULL}), others);
        snprintf(init, sizeof init, "model.init=%s/checkpoints/step-6", run);
        says("model.init", train("new", (const char *[]){init, NULL}), others);
    }
    folder_remove("run/checkpoints/step-3");
    says("resume", train("run", (const char *[]){"run.resume=6", NULL}),
         "/checkpoints has no other");
    folder_remove("run");
    folder_remove("new");
}

/* A byte of a shard's header may be of damage or of another save. */
static void a_header(void)
{
    CHECK_INT(train("run", (const char *[]){NULL}), 0);
    flip("run/checkpoints/step-6/rank-00000.safetensors", 24);
    says("resume", train("run", (const char *[]){"run.resume=6", NULL}), "");
    CHECK(strstr(plait_error(), "damaged") != NULL && !strstr(plait_error(), "copy them again"));
    folder_remove("run");
}

/* Where no checkpoint is good the weights may be, and what the message says of them works. */
static void weights_are_left(void)
{
    char run[FOLDER_PATH], init[FOLDER_PATH + 16];
    CHECK_INT(train("run", (const char *[]){NULL}), 0);
    flip("run/checkpoints/step-6/index.json", 60);
    flip("run/checkpoints/step-3/index.json", 60);
    both_refuse("run.resume=auto", NULL, PLAIT_CHECKPOINT, "/model.safetensors can be read; move ");
    folder_path("run", run);
    snprintf(init, sizeof init, "model.init=%s", run);
    CHECK(strstr(plait_error(), init) != NULL);
    folder_remove("run/model.safetensors");
    both_refuse("run.resume=auto", NULL, PLAIT_CHECKPOINT, "begin a new run in another folder");
    folder_remove("run");
}

/* ---- a folder that holds a run ---- */

static void a_folder_that_holds_a_run(void)
{
    char run[FOLDER_PATH], init[FOLDER_PATH + 16];
    CHECK_INT(train("run", (const char *[]){NULL}), 0);
    CHECK_INT(train("run", (const char *[]){NULL}), PLAIT_CONFIG);
    CHECK(strstr(plait_error(), "; go on there with run.resume=auto, name another ") != NULL);
    folder_remove("run/checkpoints");
    folder_path("run", run);
    snprintf(init, sizeof init, "model.init=%s", run);
    CHECK_INT(train("run", (const char *[]){"run.resume=auto", NULL}), PLAIT_CONFIG);
    CHECK(strstr(plait_error(), "it has no checkpoint to go on from") != NULL);
    CHECK(strstr(plait_error(), init) != NULL);
    CHECK_INT(train("new", (const char *[]){init, NULL}), 0); /* as it says */
    folder_remove("run/model.safetensors");
    CHECK_INT(train("run", (const char *[]){NULL}), PLAIT_CONFIG);
    CHECK(!strstr(plait_error(), "model.init") && strstr(plait_error(), "name another folder"));
    folder_remove("run");
    folder_remove("new");
}

/* ---- what is said of the rest ---- */

static void what_is_cut(void)
{
    struct folder_seen seen;
    CHECK_INT(train("run", (const char *[]){NULL}), 0);
    CHECK_INT(train("run", (const char *[]){"run.resume=3", NULL}), 0);
    CHECK_INT(folder_times("run", "log.txt", "the lines of 3 steps behind step 3 are cut"), 1);
    const char *const longer[] = {"run.resume=auto", "train.steps=8", "optim.decay_keep=true",
                                  NULL};
    CHECK_INT(folder_train(config("run", longer), &seen), 0);
    test_check(strstr(seen.table, "decay has ended at step 6: all steps left have optim.lr_min"),
               __FILE__, __LINE__, "%s", seen.table);
    folder_remove("run");
}

static const struct test_case cases[] = {
    {"check refuses alike", check_refuses_alike},
    {"another llama", another_llama},
    {"check looks", check_looks},
    {"words that mean none", words_that_mean_none},
    {"all name the others", all_name_the_others},
    {"a header", a_header},
    {"weights are left", weights_are_left},
    {"a folder that holds a run", a_folder_that_holds_a_run},
    {"what is cut", what_is_cut},
};
TEST_MAIN(cases)
