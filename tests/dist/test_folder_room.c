/* SPDX-License-Identifier: Apache-2.0
 *
 * Room on the disk is asked before the first step: for the weights and all checkpoints that will be
 * there at once, to the byte.
 */
#include "folder.h"

#include "base/fs_sys.h"
#include "base/text.h"
#include "run/options.h"

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
    struct arch a;
    CHECK_OK(conf_defaults(&options_table, &o));
    for (int i = 0; i < 4; i++)
        CHECK_OK(conf_set(&options_table, &o, base_set[i]));
    o.model.vocab = 257;
    options_arch(&o, &a);
    return arch_params(&a);
}

/* A byte less than the weights and the checkpoints that are there at once take, and no less. */
static void room_is_asked(void)
{
    static const struct { const char *set[8]; int checkpoints, bytes; } c[] = {
        {{"train.save_keep=0"}, 0, 0},
        {{"train.save_keep=2"}, 1, 12},
        {{"train.save_every=1"}, 2, 12},
        {{"train.save_every=1", "train.steps=9"}, 3, 12},
        {{"train.save_every=4", "train.steps=9"}, 3, 12},
        {{"train.save_every=5", "train.steps=9"}, 2, 12},
        {{"train.save_every=2", "train.steps=9", "train.save_keep=1"}, 2, 12},
        {{"train.save_every=1", "train.steps=9", "train.device=ref"}, 3, 24},
        {{"train.dtype=bf16"}, 1, 12},
    };
    struct fs_ops ops = *fs_ops;
    under = fs_ops;
    ops.space = little_space;
    fs_ops = &ops;
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        char run[32], says[96];
        snprintf(run, sizeof run, "small%zu", i);
        snprintf(says, sizeof says, c[i].checkpoints ? ": the weights and %d checkpoint%s at once "
                 "take " : ": the weights take ", c[i].checkpoints,
                 text_plural(c[i].checkpoints, "s"));
        space = params() * (4 + c[i].checkpoints * c[i].bytes) - 1;
        int code = train(run, c[i].set);
        test_check(code == PLAIT_STORAGE && strstr(plait_error(), says), __FILE__, __LINE__,
                   "%s: %d: %s", run, code, plait_error());
        CHECK_INT(folder_count(run, "."), 2); /* and no name but "." and ".." */
        space++;
        CHECK_INT(train(run, c[i].set), 0);
    }
    space = 0;
    CHECK_INT(train("nothing", (const char *const[]){"run.save=false", NULL}), 0);
    fs_ops = under;
}

/* A run that goes on has the room of its checkpoints already: of one more, or of none. */
static void room_is_asked_of_who_goes_on(void)
{
    const char *more[] = {"run.resume=auto", "train.steps=4", NULL};
    struct fs_ops ops = *fs_ops;
    under = fs_ops;
    ops.space = little_space;
    CHECK_INT(train("on", NULL), 0);
    fs_ops = &ops;
    space = params() * (4 + 12) - 1;
    CHECK_INT(train("on", more), PLAIT_STORAGE);
    space++;
    CHECK_INT(train("on", more), 0);
    space = params() * 4;
    CHECK_INT(train("on", more), 0);
    fs_ops = under;
}

static const struct test_case cases[] = {
    {"room_is_asked", room_is_asked},
    {"room_is_asked_of_who_goes_on", room_is_asked_of_who_goes_on},
};
TEST_MAIN(cases)
