/* SPDX-License-Identifier: Apache-2.0
 *
 * Room on the disk, asked before hours of work end without it: for the weights, and for as many
 * checkpoints as will stand there at once, which is one more than stay, since an older one goes
 * when a newer one is whole. Those that a run goes on with have their room already.
 */
#include "run/folder.h"

#include "ckpt/state.h"

#include <stdio.h>

/* Checkpoints that are whole in run.dir, and whether one is of the last step. */
static int64_t saved_before(const struct options *o, bool *last)
{
    struct state_found *found;
    int n, whole = 0;

    if (state_list(o->run.dir, &found, &n) != ERR_OK)
        return 0;
    for (int i = 0; i < n; i++) {
        whole += found[i].whole;
        *last = *last || (found[i].whole && found[i].step == o->train.steps);
    }
    mem_free(found);
    return whole;
}

/* Checkpoints for which there has to be room yet. */
static int64_t checkpoints(const struct options *o)
{
    int64_t steps = o->train.steps, every = o->train.save_every;
    int64_t saves = every > 0 ? num_ceil_div(steps, every) : 1;
    bool last = false;
    if (!options_checkpoints(o))
        return 0;
    if (o->train.save_best) /* at most one a validation more */
        saves += steps / num_max(1, o->train.valid_every);
    int64_t there = folder_goes_on(o) ? saved_before(o, &last) : 0;
    int64_t most = num_max(1, o->train.save_keep + 1 - there) + o->train.save_best;
    return last ? 0 : num_min(saves, most);
}

enum err folder_room(const struct options *o, const struct arch *a)
{
    char need[32], have[32], what[64] = "the weights take", fewer[64] = "";
    int64_t n = checkpoints(o), left = o->run.save ? fs_sys_space(o->run.dir) : -1;
    int64_t at = dtype_size(options_types(o).at);
    double bytes = (double)arch_params(a) * (4 + 3 * (double)at * (double)n);
    if (left < 0 || bytes <= (double)left)
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
