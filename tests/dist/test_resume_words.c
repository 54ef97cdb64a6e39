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

/* Training refuses, and check does in the same words. */
static void both_refuse(const char *resume, const char *other, int code, const char *said)
{
    const char *const more[] = {resume, other, NULL};
    char words[2048];
    int checked, trained = train("run", more);
    snprintf(words, sizeof words, "%s", plait_error());
    test_check(trained == code && strstr(words, said), __FILE__, __LINE__, "%s %s: %d: %s", resume,
               other ? other : "", trained, words);
    CHECK(check("run", more, &checked) == NULL);
    test_check(checked == trained && strcmp(plait_error(), words) == 0, __FILE__, __LINE__,
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
    folder_tokens("others.bin", "another braid, of fewer\n", 90);
    struct plait_config *c = config("run", (const char *[]){"run.resume=auto", NULL});
    folder_set_file(c, "data.train", "others.bin");
    CHECK_INT(plait_config_check(c, 0, NULL), PLAIT_CONFIG);
    CHECK(strstr(plait_error(), "run.resume: data.train is of hash ") != NULL);
    plait_config_free(c);
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

static const struct test_case cases[] = {
    {"check refuses alike", check_refuses_alike},
    {"check looks", check_looks},
};
TEST_MAIN(cases)
