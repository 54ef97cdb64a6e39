/* SPDX-License-Identifier: Apache-2.0
 *
 * Which checkpoint of a run's folder a word means: the newest whole one, that of a step, or the
 * best, which the losses in the indexes say. What an index says may be hostile: one that cannot be
 * read is never the best.
 */
#include "folder/folder.h"

#include "base/mem.h"
#include "ckpt/state.h"

#include <stdio.h>

/* "10, 20", the oldest first, without `but`. */
static void list_steps(const struct state_found *found, int n, int64_t but, struct text *out)
{
    for (int i = n - 1; i >= 0; i--)
        if (found[i].whole && found[i].step != but)
            text_add(out, "%s%lld", out->len ? ", " : "", (long long)found[i].step);
}

static enum err no_such(const char *who, const char *dir, const char *word,
                        const struct state_found *found, int n)
{
    struct text steps = {0};
    list_steps(found, n, -1, &steps);
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

/* ---- what else there is ---- */

/* N of .../step-N; -1: it has no such name. */
static int64_t step_of(const char *checkpoint)
{
    const char *slash = strrchr(checkpoint, '/'), *name = slash ? slash + 1 : checkpoint;
    int64_t step = -1;
    return strncmp(name, "step-", 5) == 0 && folder_is_step(name + 5, &step) ? step : -1;
}

/* Steps of a run's whole checkpoints but one; an error of the folder is none. */
static void steps_of(const char *run, int64_t but, struct text *out)
{
    struct state_found *found;
    int n;
    if (state_list(run, &found, &n) != ERR_OK)
        return;
    list_steps(found, n, but, out);
    mem_free(found);
}

enum err folder_others(enum err err, const char *checkpoint)
{
    char run[OPTIONS_PATH_MAX];
    struct err_kept kept;
    struct text steps = {0};
    if (err != ERR_CHECKPOINT || !checkpoint || !folder_run_of(checkpoint, run))
        return err;
    err_keep(&kept, err);
    steps_of(run, step_of(checkpoint), &steps);
    err = steps.err;
    if (err == ERR_OK && steps.len > 0)
        err = err_set(ERR_CHECKPOINT, __FILE__, __LINE__,
                      "%s; %s/checkpoints has others, of the steps: %s", kept.text, run, steps.s);
    else if (err == ERR_OK)
        err = err_set(ERR_CHECKPOINT, __FILE__, __LINE__, "%s; %s/checkpoints has no other",
                      kept.text, run);
    text_free(&steps);
    return err;
}

enum err folder_no_checkpoint(const struct options *o)
{
    const char *word = o->run.resume;
    char run[OPTIONS_PATH_MAX];
    bool named = folder_run_of(word, run), runs = !named && folder_has_checkpoint(word);
    struct text steps = {0};
    steps_of(named ? run : runs ? word : o->run.dir, -1, &steps);
    enum err err = steps.err;
    const char *there = steps.len ? steps.s : "none";
    if (err == ERR_OK && named)
        err = err_set(ERR_CHECKPOINT, __FILE__, __LINE__, "run.resume: %s is no whole checkpoint; "
                      "%s/checkpoints has those of the steps: %s", word, run, there);
    else if (err == ERR_OK && runs)
        err = err_set(ERR_CONFIG, __FILE__, __LINE__, "run.resume is %s, the folder of a run; name "
                      "one of its checkpoints, %s/checkpoints/step-N with N of: %s (or go on there "
                      "with run.dir=%s and run.resume=auto)", word, word, there, word);
    else if (err == ERR_OK)
        err = err_set(ERR_CONFIG, __FILE__, __LINE__, "run.resume is \"%s\", which is neither "
                      "auto, best, a step nor a checkpoint's folder; give auto for the newest in "
                      "%s/checkpoints, which has those of the steps: %s", word, o->run.dir, there);
    text_free(&steps);
    return err;
}
