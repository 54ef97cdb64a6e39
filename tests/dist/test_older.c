/* SPDX-License-Identifier: Apache-2.0
 *
 * Older checkpoints go beside the steps that follow, once the newer one's index is there; what
 * cannot be removed is a warning; and a folder that has taken the run's place loses nothing.
 */
#include "folder.h"

#include "base/fs_sys.h"
#include "base/mem.h"
#include "ckpt/state.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { STEPS = 10, WAIT_MS = 20000 };
enum fault { SLOW, REFUSED, MOVED };

static const char *const layouts[][4] = {
    {"parallel.pp=1"}, {"parallel.dp=2", "parallel.zero=1"}, {"parallel.tp=2", "parallel.pp=2"}};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

static const struct fs_ops *under;
static enum fault fault;
static atomic_int step, waited, early; /* calls that steps did not wait for, that came too soon */

static bool has(const char *run, const char *file)
{
    char path[FOLDER_PATH];
    folder_path_in(run, file, path);
    return access(path, F_OK) == 0;
}

/* The index of step 4 goes when that of step 8 is there, while steps 9 and 10 run. */
static int unlink_older(const char *path)
{
    if (!strstr(path, "/step-4/"))
        return under->unlink(path);
    errno = EACCES;
    if (fault == REFUSED)
        return -1;
    if (!has("run", "checkpoints/step-8/index.json"))
        atomic_fetch_add(&early, 1);
    for (int i = 0; i < WAIT_MS && atomic_load(&step) < STEPS; i++)
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    if (atomic_load(&step) == STEPS)
        atomic_fetch_add(&waited, 1);
    return under->unlink(path);
}

/* Once the index of step 8 is there the folder is moved away, and another has its name. */
static int rename_and_move(const char *from, const char *to)
{
    char run[FOLDER_PATH], moved[FOLDER_PATH], copy[5 * FOLDER_PATH];
    int rc = under->rename(from, to);
    if (fault != MOVED || !strstr(to, "/step-8/index.json"))
        return rc;
    folder_path("run", run);
    folder_path("moved", moved);
    snprintf(copy, sizeof copy, "mv '%s' '%s' && cp -r '%s' '%s'", run, moved, moved, run);
    CHECK_INT(system(copy), 0);
    return rc;
}

static void on_step(void *arg, const struct plait_step *s)
{
    (void)arg;
    atomic_store(&step, (int)s->step);
}

static int train(const char *const *set)
{
    struct fs_ops ops = *fs_ops;
    folder_tokens("tokens", "a braid of many strands, over and under\n", 60);
    struct plait_config *c = folder_config("run", "tokens");
    folder_set(c, (const char *const[]){
        "model.layers=4", "model.hidden=16", "model.heads=2", "model.seq=8", "train.batch=4",
        "train.threads=1", "train.steps=10", "train.save_every=4", "train.save_keep=1",
        "train.save_async=false"}, 10);
    folder_set(c, set, 4);
    atomic_store(&step, 0);
    atomic_store(&waited, 0);
    atomic_store(&early, 0);
    under = fs_ops;
    ops.unlink = unlink_older;
    ops.rename = rename_and_move;
    fs_ops = &ops;
    int code = plait_train(c, &(struct plait_train){.size = sizeof(struct plait_train),
                                                    .on_step = on_step});
    fs_ops = under;
    plait_config_free(c);
    return code;
}

static int checkpoints(const char *run)
{
    struct state_found *found;
    char path[FOLDER_PATH];
    int n;
    folder_path(run, path);
    CHECK_OK(state_list(path, false, &found, &n));
    mem_free(found);
    return n;
}

static void beside_the_steps(void)
{
    fault = SLOW;
    for (int i = 0; i < LAYOUTS; i++) {
        CHECK_INT(train(layouts[i]), 0);
        CHECK_INT(atomic_load(&early), 0);
        CHECK(atomic_load(&waited) > 1); /* the index and a shard at least */
        CHECK_INT(checkpoints("run"), 1);
        folder_remove("run");
    }
}

static void cannot_be_removed(void)
{
    fault = REFUSED;
    for (int i = 0; i < LAYOUTS; i++) {
        CHECK_INT(train(layouts[i]), 0);
        CHECK_INT(checkpoints("run"), 2);
        CHECK(folder_times("run", "log.txt", "cannot remove index.json of ") == 2);
        folder_remove("run");
    }
}

static void another_has_the_place(void)
{
    fault = MOVED;
    CHECK_INT(train(layouts[0]), PLAIT_STORAGE);
    CHECK_INT(checkpoints("run"), 2);
    CHECK_INT(checkpoints("moved"), 2);
    folder_remove("run");
    folder_remove("moved");
}

static const struct test_case cases[] = {
    {"beside the steps", beside_the_steps},
    {"cannot be removed", cannot_be_removed},
    {"another has the place", another_has_the_place},
};
TEST_MAIN(cases)
