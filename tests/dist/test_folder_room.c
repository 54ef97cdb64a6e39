/* SPDX-License-Identifier: Apache-2.0
 *
 * Room on the disk is asked before the first step: for the weights and all checkpoints that can be
 * there at once, to the byte, beside what is there and what goes.
 */
#include "folder.h"

#include "base/fs_sys.h"
#include "base/text.h"
#include "config/options.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const base_set[] = {
    "model.layers=2", "model.hidden=16", "model.heads=2", "model.seq=8", "train.steps=2",
    "train.batch=2", "train.threads=1", "parallel.pp=2"};

static int train(const char *run, const char *const *set)
{
    struct folder_seen seen;
    folder_tokens("tokens.bin", "a braid of many strands\n", 80);
    struct plait_config *c = folder_config(run, "tokens.bin");
    folder_set(c, base_set, sizeof base_set / sizeof *base_set);
    if (set)
        folder_set(c, set, 8);
    return folder_train(c, &seen);
}

static const struct fs_ops *under;
static int64_t space;

static int64_t little_space(const char *dir)
{
    (void)dir;
    return space;
}

/* Parameters of base_set's model. */
static int64_t params(void)
{
    struct options o;
    struct model a;
    CHECK_OK(conf_defaults(&options_table, &o));
    for (int i = 0; i < 4; i++)
        CHECK_OK(conf_set(&options_table, &o, base_set[i]));
    o.model.vocab = 257;
    options_arch(&o, &a);
    return model_params(&a);
}

struct room { const char *set[8]; int checkpoints, bytes; };

static const struct fs_ops *enter(struct fs_ops *ops)
{
    under = fs_ops;
    *ops = *fs_ops;
    ops->space = little_space;
    return ops;
}

/* A byte less than `need` is refused, with these words, and no less is enough. */
static void asks(const char *run, const char *const *set, double need, const char *says)
{
    struct fs_ops ops;
    fs_ops = enter(&ops);
    space = (int64_t)need - 1;
    int code = train(run, set);
    test_check(code == PLAIT_STORAGE && strstr(plait_error(), says), __FILE__, __LINE__,
               "%s, %s: %d: %s", run, set[0], code, plait_error());
    space++;
    code = train(run, set);
    test_check(code == 0, __FILE__, __LINE__, "%s, %s: %d: %s", run, set[0], code, plait_error());
    fs_ops = under;
}

static void says(int checkpoints, char out[96])
{
    snprintf(out, 96, checkpoints ? ": the weights and %d checkpoint%s at once take " :
             ": the weights take ", checkpoints, text_plural(checkpoints, "s"));
}

/* Any step may be saved: as many as stay and one, where there are so many steps. */
static void room_is_asked(void)
{
    static const struct room c[] = {
        {{"train.save_keep=0"}, 0, 0},
        {{"train.steps=1"}, 1, 12},
        {{"train.steps=1", "train.save_every=1"}, 1, 12},
        {{"train.steps=2"}, 2, 12},
        {{"train.save_every=1"}, 2, 12},
        {{"train.steps=3"}, 3, 12},
        {{"train.steps=9"}, 3, 12},
        {{"train.save_every=1", "train.steps=9"}, 3, 12},
        {{"train.save_every=5", "train.steps=9"}, 3, 12},
        {{"train.steps=9", "train.save_keep=1"}, 2, 12},
        {{"train.steps=9", "train.save_keep=4"}, 5, 12},
        {{"train.save_every=1", "train.steps=9", "train.device=ref"}, 3, 24},
        {{"train.dtype=bf16"}, 2, 12},
    };
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        char run[32], words[96];
        struct fs_ops ops;
        snprintf(run, sizeof run, "small%zu", i);
        says(c[i].checkpoints, words);
        fs_ops = enter(&ops);
        space = params() * (4 + c[i].checkpoints * c[i].bytes) - 1;
        CHECK_INT(train(run, c[i].set), PLAIT_STORAGE);
        fs_ops = under;
        CHECK_INT(folder_count(run, "."), 2); /* and no name but "." and ".." */
        asks(run, c[i].set, (double)params() * (4 + c[i].checkpoints * c[i].bytes), words);
    }
    struct fs_ops ops;
    fs_ops = enter(&ops);
    space = 0;
    CHECK_INT(train("nothing", (const char *const[]){"run.save=false", NULL}), 0);
    fs_ops = under;
}

/* The best one stands beside those that stay, and the one under way. */
static void room_of_the_best(void)
{
    char path[FOLDER_PATH], valid[FOLDER_PATH + 16], words[96];
    folder_path("tokens.bin", path);
    snprintf(valid, sizeof valid, "data.valid=%s", path);
    const char *const set[] = {"train.steps=9", "train.save_best=true", "train.valid_every=4",
                               valid, NULL};
    says(4, words);
    asks("best", set, (double)params() * (4 + 4 * 12), words);
}

/* ---- of who goes on ---- */

/* Bytes of a checkpoint's files. */
static double bytes_of(const char *run, int step)
{
    char name[64], path[FOLDER_PATH];
    struct stat st;
    double all = 0;
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, i < 2 ? "checkpoints/step-%d/rank-%05d.safetensors" :
                 "checkpoints/step-%d/index.json", step, i);
        folder_path_in(run, name, path);
        all += stat(path, &st) == 0 ? (double)st.st_size : 0;
    }
    CHECK(all > 0);
    return all;
}

/* A run that has saved both its steps. */
static void left(const char *run)
{
    CHECK_INT(train(run, (const char *const[]){"train.save_every=1", NULL}), 0);
}

static void goes_on(const char *run, const char *const *set, double need, int checkpoints)
{
    char words[96];
    says(checkpoints, words);
    asks(run, set, need, words);
}

/* What is there already has its room. */
static void room_is_asked_of_who_goes_on(void)
{
    const double one = 12 * (double)params(), weights = 4 * (double)params();
    const char *set[8] = {"run.resume=auto", "train.steps=9", NULL};
    left("two"); /* a third beside them, whose place then is free */
    goes_on("two", set, weights + one, 1);
    CHECK_INT(train("one", NULL), 0);
    goes_on("one", set, weights + 2 * one, 2);
    CHECK_INT(train("next", NULL), 0);
    set[1] = "train.steps=3";
    goes_on("next", set, weights + one, 1); /* one step is left */
    goes_on("next", set, weights, 0);       /* none is */
    CHECK_INT(train("fewer", (const char *const[]){"train.save_every=1", "train.steps=4",
                                                   "train.save_keep=4", NULL}), 0);
    set[1] = "train.steps=9";
    set[2] = "train.save_keep=1"; /* all four stand there until the first one is saved */
    goes_on("fewer", set, weights + one, 1);
    set[2] = "train.save_keep=0";
    left("none");
    goes_on("none", set, weights, 0);
}

/* A last checkpoint that is damaged is not one that the run goes on from: it saves anew, and the
 * damaged one stands aside. */
static void room_beside_a_damaged_one(void)
{
    const double one = 12 * (double)params(), weights = 4 * (double)params();
    const char *set[8] = {"run.resume=auto", NULL};
    char path[FOLDER_PATH];
    left("bad");
    folder_path_in("bad", "checkpoints/step-2/rank-00000.safetensors", path);
    int fd = open(path, O_RDWR);
    char byte = 0;
    off_t at = lseek(fd, 0, SEEK_END) - 5;
    CHECK(fd >= 0 && pread(fd, &byte, 1, at) == 1);
    byte ^= 8;
    CHECK(pwrite(fd, &byte, 1, at) == 1 && close(fd) == 0);
    goes_on("bad", set, weights + one, 1); /* step 2 once more */
    CHECK(folder_has("bad", "checkpoints/step-2/index.json"));
}

/* What the start removes gives its room back: later steps, and a save that did not end. */
static void room_that_is_given_back(void)
{
    const double one = 12 * (double)params(), weights = 4 * (double)params();
    const char *set[8] = {"run.resume=1", "train.steps=9", NULL};
    char path[FOLDER_PATH];
    left("back");
    double freed = bytes_of("back", 2);
    goes_on("back", set, weights + 2 * one - freed, 2);
    CHECK_INT(train("cut", (const char *const[]){"train.save_every=1", "train.steps=3",
                                                 "train.save_keep=3", NULL}), 0);
    folder_path_in("cut", "checkpoints/step-3/index.json", path);
    CHECK(unlink(path) == 0);
    freed = bytes_of("cut", 3);
    set[0] = "run.resume=auto";
    goes_on("cut", set, weights + one - freed, 1);
}

/* Numbers of f64 go in the place of those of f32: three new ones where two old ones were. And of
 * another folder nothing is there. */
static void room_of_other_sizes(void)
{
    const double weights = 4 * (double)params();
    char path[FOLDER_PATH], resume[FOLDER_PATH + 16];
    const char *set[8] = {"run.resume=auto", "train.steps=9", "train.device=ref", NULL};
    left("wide");
    double old = bytes_of("wide", 1) + bytes_of("wide", 2);
    goes_on("wide", set, weights + 3 * 24 * (double)params() - old, 3);
    left("from");
    folder_path_in("from", "checkpoints/step-2", path);
    snprintf(resume, sizeof resume, "run.resume=%s", path);
    set[0] = resume;
    set[1] = "train.steps=3";
    set[2] = NULL;
    goes_on("to", set, weights + 12 * (double)params(), 1);
    set[1] = NULL; /* all steps are done there; the end is saved here */
    goes_on("to2", set, weights + 12 * (double)params(), 1);
}

static const struct test_case cases[] = {
    {"room is asked", room_is_asked},
    {"room of the best", room_of_the_best},
    {"room is asked of who goes on", room_is_asked_of_who_goes_on},
    {"room beside a damaged one", room_beside_a_damaged_one},
    {"room that is given back", room_that_is_given_back},
    {"room of other sizes", room_of_other_sizes},
};
TEST_MAIN(cases)
