/* SPDX-License-Identifier: Apache-2.0
 *
 * The checkpoints of a run, which are folders, and their end. The index goes first, and that is on
 * the disk before anything else goes: one that is half removed is none.
 */
#include "ckpt/state_local.h"

#include "base/fs_sys.h"
#include "base/mem.h"
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *state_dir(char buf[FS_PATH], const char *run_dir, int64_t step)
{
    snprintf(buf, FS_PATH, "%s/checkpoints/step-%" PRId64, run_dir, step);
    return buf;
}

static int by_step(const void *pa, const void *pb)
{
    const struct state_found *a = pa, *b = pb;
    return (a->step < b->step) - (a->step > b->step);
}

bool state_exists(const char *dir)
{
    struct stat st;
    char path[FS_PATH];
    fs_path(path, dir, STATE_INDEX);
    return fs_sys_lstat(path, &st) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

enum err state_list(const char *run_dir, bool whole, struct state_found **out, int *n)
{
    char why[FS_REASON], dir[FS_PATH], path[FS_PATH];
    struct state_found *found = NULL;
    struct stat st;
    struct fs_folder d;
    int count = 0;
    enum err err = ERR_OK;
    if (!fs_folder_open(&d, fs_path(dir, run_dir, "checkpoints")) && errno != ENOENT)
        FAIL(ERR_CHECKPOINT, "ckpt: the checkpoints in %s cannot be read: %s", dir,
             fs_reason(errno, why));
    for (const char *name; err == ERR_OK && (name = fs_folder_next(&d));) {
        struct ckpt_json_text digits = {name + 5, (int64_t)strlen(name) - 5};
        struct state_found f;
        /* A folder, and no link: what that leads to is not the run's to remove. */
        if (strncmp(name, "step-", 5) != 0 || !state_take_int(digits, STATE_WHOLE_MAX, &f.step) ||
            fs_sys_lstat(fs_path(path, dir, name), &st) != 0 || !S_ISDIR(st.st_mode))
            continue;
        f.whole = state_exists(path);
        if (whole && !f.whole)
            continue;
        err = mem_more(count, sizeof *found, "the checkpoints of a run", &found);
        if (err == ERR_OK)
            found[count++] = f;
    }
    fs_folder_close(&d);
    if (err == ERR_OK && !found)
        err = mem_new(0, sizeof *found, "the checkpoints of a run", &found);
    if (err == ERR_OK) {
        qsort(found, (size_t)count, sizeof *found, by_step);
        *out = found;
        *n = count;
    } else {
        mem_free(found);
    }
    return err;
}

bool state_best(const char *run_dir, const struct state_found *found, int n, int64_t *step,
                double *loss)
{
    struct err_kept none;
    bool any = false;
    err_keep(&none, ERR_OK);
    for (int i = n - 1; i >= 0; i--) { /* the earliest first */
        struct state_index x = {.dir = NULL};
        char dir[FS_PATH];
        if (state_index_open(&x, state_dir(dir, run_dir, found[i].step)) == ERR_OK &&
            x.head.step == found[i].step && !isnan(x.head.valid_loss) &&
            !(any && x.head.valid_loss >= *loss)) {
            any = true;
            *step = found[i].step;
            *loss = x.head.valid_loss;
        }
        state_index_close(&x);
    }
    (void)!err_again(&none);
    return any;
}

/* ---- the end of one ---- */

static enum err remove_file(const char *dir, const char *name)
{
    char why[FS_REASON], path[FS_PATH];
    if (fs_sys_unlink(fs_path(path, dir, name)) != 0 && errno != ENOENT)
        FAIL(ERR_STORAGE, "storage: cannot remove %s of %s: %s", name, dir, fs_reason(errno, why));
    return ERR_OK;
}

/* A shard, an index, or a temporary of either. */
static bool is_ours(const char *name)
{
    size_t n = strlen(STATE_INDEX), rank = strspn(name, "rank-0123456789");
    static const char ending[] = ".safetensors";
    const char *end = name + rank + sizeof ending - 1;
    if (strncmp(name, STATE_INDEX, n) == 0)
        end = name + n;
    else if (strncmp(name, "rank-", 5) != 0 || strncmp(name + rank, ending, sizeof ending - 1) != 0)
        return false;
    return *end == '\0' || strncmp(end, ".tmp.", 5) == 0;
}

static enum err remove_checkpoint(const char *dir)
{
    char why[FS_REASON];
    struct fs_folder d;
    if (!fs_exists(dir))
        return ERR_OK;
    TRY(remove_file(dir, STATE_INDEX));
    TRY(fs_sync_dir(dir));
    if (!fs_folder_open(&d, dir))
        FAIL(ERR_STORAGE, "storage: cannot read %s: %s", dir, fs_reason(errno, why));
    enum err err = ERR_OK;
    for (const char *name; err == ERR_OK && (name = fs_folder_next(&d));)
        if (is_ours(name))
            err = remove_file(dir, name);
    fs_folder_close(&d);
    if (err == ERR_OK && fs_sys_rmdir(dir) != 0 && errno != ENOENT && errno != ENOTEMPTY &&
        errno != EEXIST)
        FAIL(ERR_STORAGE, "storage: cannot remove %s: %s", dir, fs_reason(errno, why));
    return err;
}

enum err state_remove(const char *dir)
{
    fs_call_begin(dir); /* who waits for a disk is not hung */
    enum err err = remove_checkpoint(dir);
    fs_call_end();
    return err;
}
