/* SPDX-License-Identifier: Apache-2.0
 *
 * Room on the disk, asked before hours of work end without it, and once it is known what the run
 * goes on from: for the weights, and for as many checkpoints as can stand there at once. That is
 * one more than stay, since an older one goes when a newer one is whole; each step may be saved,
 * for SIGUSR1 and a stop may come behind any. What is there already has its room, and what the
 * start removes gives it back.
 */
#include "folder/folder.h"

#include "base/mem.h"
#include "ckpt/state.h"

#include <stdio.h>

struct room {
    double one;    /* bytes of a checkpoint of this run */
    int64_t most;  /* checkpoints at once, one of them under way */
    int64_t saves; /* that the run can make */
    double *old;   /* owned; [olds]: bytes of those that stay for now, the newest first */
    int64_t olds;
    double freed;  /* bytes of what goes before the first step */
};

static double bytes_in(const char *dir)
{
    struct fs_folder d;
    double all = 0;
    (void)fs_folder_open(&d, dir);
    for (const char *name; (name = fs_folder_next(&d));) {
        struct stat st;
        char *path;
        if (fs_join(dir, name, &path) != ERR_OK)
            continue;
        if (fs_sys_lstat(path, &st) == 0)
            all += (double)st.st_size;
        mem_free(path);
    }
    fs_folder_close(&d);
    return all;
}

/* The checkpoints of a run's folder, by what becomes of them at the start. One that is set aside
 * stays, beside all that are counted. */
static enum err look(const struct folder *f, int64_t resumed, struct room *r)
{
    struct state_found *found;
    int n;
    TRY(state_list(f->o->run.dir, &found, &n));
    enum err err = mem_new(num_max(1, n), sizeof *r->old, "checkpoints", &r->old);
    for (int i = 0; i < n && err == ERR_OK; i++) {
        enum folder_fate fate = folder_fate(f->o, &found[i], resumed);
        char *dir;
        err = state_dir(f->o->run.dir, found[i].step, &dir);
        if (err == ERR_OK && fate == FOLDER_STAYS)
            r->old[r->olds++] = bytes_in(dir);
        else if (err == ERR_OK && fate == FOLDER_GOES)
            r->freed += bytes_in(dir);
        mem_free(dir);
    }
    mem_free(found);
    return err;
}

/* Bytes beside the old ones while save j is under way. */
static double bytes_at(const struct room *r, int64_t j)
{
    int64_t stay = j == 1 ? r->olds : num_max(0, r->most - j);
    double bytes = (double)j * r->one;
    for (int64_t i = stay; i < r->olds; i++)
        bytes -= r->old[i];
    return bytes;
}

/* The save that needs most: the first, behind which older ones may go; the last for which none has
 * gone; or one of those behind it, where older ones are smaller. 0: there is none. */
static int64_t largest(const struct room *r)
{
    int64_t last = num_min(r->saves, r->most), at = num_min(1, last);
    for (int64_t j = num_max(2, num_min(last, r->most - r->olds)); j <= last; j++)
        at = bytes_at(r, j) > bytes_at(r, at) ? j : at;
    return at;
}

static int64_t saves_of(const struct options *o, int64_t resumed)
{
    int64_t left = o->train.steps - resumed;
    bool saved = resumed == 0 || folder_means_own(o); /* there is nothing new where it begins */
    return options_checkpoints(o) ? num_max(left, !saved) : 0;
}

enum err folder_room(const struct folder *f, const struct model *a, int64_t resumed)
{
    const struct options *o = f->o;
    char need[32], have[32], what[64] = "the weights take", fewer[64] = "";
    int64_t left = o->run.save ? fs_sys_space(o->run.dir) : -1;
    double params = (double)model_params(a);
    struct room r = {.one = 3 * params * (double)dtype_size(options_types(o).at),
                     .most = o->train.save_keep + 1 + o->train.save_best,
                     .saves = saves_of(o, resumed)};
    if (left < 0)
        return ERR_OK;
    enum err err = f->goes_on ? look(f, resumed, &r) : ERR_OK;
    int64_t n = err == ERR_OK ? largest(&r) : 0;
    double bytes = 4 * params - r.freed + (n > 0 ? bytes_at(&r, n) : 0);
    mem_free(r.old);
    TRY(err);
    if (bytes <= (double)left)
        return ERR_OK;
    if (n > 0)
        snprintf(what, sizeof what, "the weights and %lld checkpoint%s at once take",
                 (long long)n, text_plural(n, "s"));
    if (n > 0)
        snprintf(fewer, sizeof fewer, "keep fewer checkpoints (train.save_keep, 0: none), ");
    FAIL(ERR_STORAGE, "run.dir %s: %s %s, and its file system has %s free; free some space, name "
                      "another folder, %sor keep nothing with run.save=false", o->run.dir, what,
         text_bytes((int64_t)fmin(bytes, 9e18), need), text_bytes(left, have), fewer);
}
