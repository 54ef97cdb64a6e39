/* SPDX-License-Identifier: Apache-2.0
 *
 * What is to be played, as the command line names it: a schedule by name or by file, or a list of
 * several; and whether so much is played at all.
 */
#include "study/play.h"

#include "base/fs.h"
#include "base/mem.h"
#include "config/schedule.h"
#include <string.h>

enum { NAMES_MAX = 64 };

enum err play_fits(const struct play_args *a, int v, int64_t before)
{
    int64_t parts = (int64_t)v * (a->slices > 0 ? a->slices : 1);
    if (a->p < 1 || a->m < 1 || v < 1)
        return ERR_OK; /* the schedule says what is wrong */
    int64_t room = (PLAY_MAX_UNITS - before) / parts;
    if ((int64_t)a->p * a->m > room)
        FAIL(ERR_CONFIG, "simulation: p %d x m %d x v %d x slices %d%s is more than %d "
                         "microbatches of stages; use m %lld or less", a->p, a->m, v,
             a->slices > 0 ? a->slices : 1, before > 0 ? " and the schedules before it" : "",
             PLAY_MAX_UNITS, (long long)(room / a->p));
    return ERR_OK;
}

enum err play_read_file(const char *path, const struct play_args *a, struct sched *out)
{
    if (a->group != 0)
        FAIL(ERR_CONFIG, "simulation: group %d was asked for, and a file has its order already; "
                         "leave group out", a->group);
    if (a->slices != 0)
        FAIL(ERR_CONFIG, "simulation: slices %d was asked for, and a file has its units already; "
                         "leave slices out", a->slices);
    if (path[0] == '~') /* a list of names is no word of a shell's */
        FAIL(ERR_CONFIG, "simulation: the schedule %.200s: only a shell makes a home folder of ~; "
                         "write the whole path, or ./~ for a file of that name", path);
    const char *dot = strrchr(path, '.');
    enum err err = schedule_read(path, out);
    if (err != ERR_OK && dot && (strcmp(dot, ".yaml") == 0 || strcmp(dot, ".yml") == 0))
        return err_set(err, __FILE__, __LINE__, "simulation: %s; a configuration is named with "
                       "--model %.200s", err_bare(err_text()), path);
    if (err != ERR_OK)
        return err_set(err, __FILE__, __LINE__, "simulation: %s", err_bare(err_text()));
    const struct { const char *what; int asked, found; } shape[] = {
        {"p", a->p, out->p}, {"m", a->m, out->m}, {"v", a->v, out->v}};
    for (int i = 0; i < 3; i++) /* a file says its own shape; one that was asked for must be that */
        if (shape[i].asked != 0 && shape[i].asked != shape[i].found) {
            sched_free(out);
            FAIL(ERR_CONFIG, "simulation: %s %d was asked for and the file has %s %d; leave %s out",
                 shape[i].what, shape[i].asked, shape[i].what, shape[i].found, shape[i].what);
        }
    return ERR_OK;
}

const char *play_path(const char *word)
{
    size_t n = strlen(word);
    if (schedule_path(word))
        return schedule_path(word);
    bool ends = n > 4 && (strcmp(word + n - 4, ".csv") == 0 || strcmp(word + n - 4, ".txt") == 0);
    return !sched_kind_find(word) && (ends || strchr(word, '/') || fs_exists(word)) ? word : NULL;
}

/* ---- lists ---- */

/* "name" or "name@v": a string of its own, cut at the @; v, or 0. */
static enum err add_name(const char *what, const char *from, int64_t length, struct play_list *l)
{
    char *word;
    int *v = &l->v[l->n];
    int64_t n;
    if (l->n == NAMES_MAX)
        FAIL(ERR_CONFIG, "simulation: %s has more than %d names; use fewer", what, NAMES_MAX);
    TRY(mem_new(length + 1, 1, "a name", &word));
    l->name[l->n++] = memcpy(word, from, (size_t)length);
    char *at = strrchr(word, '@');
    if (word[0] == '\0' || at == word)
        FAIL(ERR_CONFIG, "simulation: %s has an empty name in its list; write NAME,NAME", what);
    if (!at || play_path(word))
        return ERR_OK;
    if (!text_to_int(at + 1, &n) || n < 1 || n > SCHED_MAX_STAGES)
        FAIL(ERR_CONFIG, "simulation: \"%.80s\" does not say how many chunks a rank has; write "
                         "NAME@V, V from 1 to %d", word, SCHED_MAX_STAGES);
    *v = (int)n;
    *at = '\0';
    return ERR_OK;
}

enum err play_list_make(const char *what, const char *words, struct play_list *out)
{
    *out = (struct play_list){0};
    TRY(mem_new(NAMES_MAX, sizeof *out->name, "names", &out->name));
    TRY(mem_new(NAMES_MAX, sizeof *out->v, "names", &out->v));
    for (const char *at = words;; at++) {
        const char *end = strchr(at, ',');
        TRY(add_name(what, at, end ? end - at : (int64_t)strlen(at), out));
        if (!end)
            return ERR_OK;
        at = end;
    }
}

void play_list_free(struct play_list *l)
{
    for (int i = 0; i < l->n; i++)
        mem_free(l->name[i]);
    mem_free(l->name);
    mem_free(l->v);
    *l = (struct play_list){0};
}

struct play_args play_one_of(const struct plait_sim *a, const char *schedule)
{
    const struct sched_kind *kind = sched_kind_find(schedule);
    return (struct play_args){.sim = a, .schedule = schedule, .share = true,
                              .group = kind && kind->groups ? a->group : 0,
                              .slices = kind && kind->make_sliced ? a->slices : 0,
                              .limit = kind && kind->make_for ? a->limit : 0};
}
