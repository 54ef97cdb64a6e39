/* SPDX-License-Identifier: Apache-2.0
 *
 * Why something that a run leaves is missing: a run leaves no word of how it ended but the lock,
 * while it lives or when it died, and the lines of metrics.jsonl, which say how far it came.
 */
#include "folder/folder.h"

#include "base/mem.h"
#include "folder/metrics_read.h"

#include <stdio.h>

/* The last step that a whole line of metrics is of; 0: none; -1: there is no file. */
static int64_t last_step(const char *path)
{
    struct fs_map m;
    int64_t step = 0;
    if (fs_map_open(&m, path, ERR_CHECKPOINT) != ERR_OK)
        return -1;
    const char *at = (const char *)m.data, *end = at + m.size;
    for (struct metrics_line l; metrics_next(&at, end, &l);)
        step = l.step > 0 ? l.step : step;
    fs_map_close(&m);
    return step;
}

static void say_owner(const struct folder_owner *w, struct text *out)
{
    if (w->pid)
        text_add(out, "the run of pid %ld on host %s, since %s, ", w->pid, w->host, w->since);
    else
        text_add(out, "its run ");
}

static void say_why(const struct options *o, const struct fs_lock_found *found, int64_t step,
                    struct text *out)
{
    struct folder_owner w;
    enum folder_life life = folder_life(found, &w);
    char done[80] = "before the end of its first step";
    if (step > 0 && o)
        snprintf(done, sizeof done, "behind step %lld of %lld", (long long)step,
                 (long long)o->train.steps);
    else if (step > 0)
        snprintf(done, sizeof done, "behind step %lld", (long long)step);
    if (life == FOLDER_LIVES) {
        say_owner(&w, out);
        text_add(out, "is under way there, %s%s", done,
                 o ? ", and saves them at its end" : "; wait for its end");
    } else if (life == FOLDER_UNSEEN) {
        say_owner(&w, out);
        text_add(out, "is under way %s, or died there, which cannot be seen from this host; wait "
                      "for its end, or use another run", done);
    } else if (life != FOLDER_FREE) {
        say_owner(&w, out);
        text_add(out, "died %s; use another run", done);
    } else if (step < 0) {
        text_add(out, "and no metrics.jsonl of a run either; name the folder that the run wrote");
    } else if (!o || step < o->train.steps) {
        text_add(out, "its run ended %s and saved none: an error or a second signal ended it; use "
                      "another run", done);
    } else {
        text_add(out, "its run did all %lld steps; saving failed, or they have been moved away; "
                      "use another run", (long long)step);
    }
}

enum err folder_lacks(enum err code, const char *who, const char *what, const char *dir,
                      const struct options *o)
{
    struct text why = {0};
    struct fs_lock_found found;
    char *lock = NULL, *metrics = NULL;
    enum err err = fs_join(dir, "plait.lock", &lock);
    if (err == ERR_OK)
        err = fs_join(dir, "metrics.jsonl", &metrics);
    if (err == ERR_OK) {
        fs_lock_look(lock, &found);
        say_why(o, &found, last_step(metrics), &why);
        err = why.err;
    }
    if (err == ERR_OK)
        err = err_set(code, __FILE__, __LINE__, "%s: %s has no %s: %s", who, dir, what, why.s);
    mem_free(lock);
    mem_free(metrics);
    text_free(&why);
    return err;
}
