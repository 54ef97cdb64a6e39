/* SPDX-License-Identifier: Apache-2.0
 *
 * Which checkpoint of a run's folder a word means: the newest whole one, that of a step, or the
 * best, which the losses in the indexes say. What an index says may be hostile: one that cannot be
 * read is never the best.
 */
#include "run/folder.h"

#include "ckpt/state.h"

#include <stdio.h>

/* "step 10, step 20", the oldest first. */
static void list_steps(const struct state_found *found, int n, struct text *out)
{
    for (int i = n - 1; i >= 0; i--)
        if (found[i].whole)
            text_add(out, "%s%lld", out->len ? ", " : "", (long long)found[i].step);
}

static enum err no_such(const char *who, const char *dir, const char *word,
                        const struct state_found *found, int n)
{
    struct text steps = {0};
    list_steps(found, n, &steps);
    enum err err = steps.err;
    if (err == ERR_OK && strcmp(word, "best") == 0)
        err = err_set(ERR_CHECKPOINT, __FILE__, __LINE__,
                      "%s: none of the checkpoints in %s/checkpoints (%s) was saved behind a "
                      "validation; name a step, or train with train.save_best=true", who, dir,
                      steps.len ? steps.s : "none is there");
    else if (err == ERR_OK)
        err = err_set(ERR_CHECKPOINT, __FILE__, __LINE__,
                      "%s: %s/checkpoints has no whole checkpoint of step %s; it has those of: %s",
                      who, dir, word, steps.len ? steps.s : "none");
    text_free(&steps);
    return err;
}

/* Among the whole ones, by falling steps; -1: there is none. */
static int pick(const char *dir, const char *word, const struct state_found *found, int n)
{
    int64_t step = -1;
    double loss;
    if (strcmp(word, "best") == 0)
        state_best(dir, found, n, &step, &loss);
    else if (word[0])
        (void)text_to_int(word, &step);
    for (int i = 0; i < n; i++)
        if (found[i].whole && (!word[0] || found[i].step == step))
            return i;
    return -1;
}

/* long: who asks, where, for what, and both the folder and its step */
enum err folder_checkpoint(const char *who, const char *dir, const char *word, char **out,
                           int64_t *step)
{
    struct state_found *found;
    int n;
    *out = NULL;
    if (word[0] && strcmp(word, "best") != 0 && !folder_is_step(word, step))
        FAIL(ERR_CONFIG, "%s: \"%.40s\" is no step; give a whole number, or best", who, word);
    TRY(state_list(dir, &found, &n));
    int at = pick(dir, word, found, n);
    enum err err = ERR_OK;
    *step = at >= 0 ? found[at].step : -1;
    if (at >= 0)
        err = state_dir(dir, *step, out);
    else if (word[0])
        err = no_such(who, dir, word, found, n);
    mem_free(found);
    return err;
}
