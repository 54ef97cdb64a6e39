/* SPDX-License-Identifier: Apache-2.0
 *
 * The simulation chapter of plait.h: one schedule played and shown, several compared, or a table of
 * many shapes.
 */
#include "api/api.h"

#include "folder/files.h"
#include "study/pictures.h"
#include "study/play.h"
#include <string.h>

static const char *const formats[PLAY_FORMATS] = {"summary", "text", "lowered", "gantt", "json"};

int plait_schedule_count(void)
{
    return sched_kind_count();
}

const char *plait_schedule_name(int i)
{
    return i >= 0 && i < sched_kind_count() ? sched_kind_at(i)->name : NULL;
}

const char *plait_schedule_nearest(const char *word)
{
    return sched_kind_meant(word);
}

const char *plait_schedule_doc(int i)
{
    return i >= 0 && i < sched_kind_count() ? sched_kind_at(i)->doc : NULL;
}

static const char *format_name(const void *arg, int i)
{
    (void)arg;
    return formats[i];
}

static enum err find_format(const char *name, int *out)
{
    for (*out = 0; *out < PLAY_FORMATS; ++*out)
        if (!name || strcmp(name, formats[*out]) == 0)
            return ERR_OK;
    const char *near = text_nearest(name, PLAY_FORMATS, format_name, NULL);
    FAIL(ERR_CONFIG,
         "simulation: format \"%.64s\" is not known%s%s; use summary, text, lowered, gantt or json",
         name, near ? ", the nearest is " : "", near ? near : "");
}

/* None of the files is one that is read. What a model's configuration names is known later
 * (play_model.c). */
static enum err check_read(const struct plait_sim *a, const char *const path[PICTURES_FILES])
{
    struct play_list list = {0};
    enum err err = a->compare ? play_list_make("compare", a->compare, &list) : ERR_OK;
    const char *schedule = a->schedule ? play_path(a->schedule) : NULL;
    const struct file_use in[] = {{"schedule", schedule}, {"costs", a->costs}, {"model", a->model}};
    for (int i = 0; i < PICTURES_FILES && err == ERR_OK; i++) {
        err = files_apart("simulation", path[i], in, 3);
        for (int k = 0; k < list.n && err == ERR_OK; k++)
            err = files_apart("simulation", path[i],
                              &(struct file_use){"schedule", play_path(list.name[k])}, 1);
    }
    play_list_free(&list);
    return err;
}

/* The picture files must be three, and the work one. */
static enum err check_together(const struct plait_sim *a)
{
    const char *const path[PICTURES_FILES] = {a->svg, a->html, a->perfetto};
    if ((a->schedule != NULL) + (a->compare != NULL) + (a->table != NULL) > 1)
        FAIL(ERR_CONFIG, "simulation: schedule, compare and table are three questions; ask one");
    if (a->sets != 0 && (!a->model || a->sets < 0))
        FAIL(ERR_CONFIG, "simulation: key=value words change a model's configuration, and there is "
                         "no model; give one (--model FILE), or leave them out");
    TRY(pictures_check("simulation: two pictures", path));
    TRY(check_read(a, path));
    if (a->width < 0)
        FAIL(ERR_CONFIG, "simulation: width %d is not a number of columns; use 0 or more",
             a->width);
    return ERR_OK;
}

static enum err show(struct played *x, const struct plait_sim *a, int format, struct text *out)
{
    struct play_args one = {.sim = a, .schedule = a->schedule, .p = a->p, .m = a->m, .v = a->v,
                            .group = a->group, .slices = a->slices,
                            .limit = a->limit};
    one.whole = format == PLAY_LOWERED;
    one.events = format == PLAY_GANTT || format == PLAY_JSON || play_wants_files(a);
    TRY(play_make(&one, x));
    if (play_wants_files(a))
        TRY(play_files(a, x, 1));
    if (format == PLAY_TEXT || format == PLAY_LOWERED)
        sched_print(x->modelled || format == PLAY_LOWERED ? x->s : &x->made, out);
    else if (format == PLAY_GANTT)
        sim_gantt(x->s, &x->result, a->width, a->color != 0, out);
    else if (format == PLAY_JSON)
        sim_json(x->s, &x->result, out);
    else
        sim_summary(x->s, &x->result, out);
    return ERR_OK;
}

static enum err answer(const struct plait_sim *a, int format, struct text *out)
{
    struct played x;
    if (a->compare)
        return play_compare(a, format, out);
    if (a->table && format != PLAY_SUMMARY)
        FAIL(ERR_CONFIG,
             "simulation: a table has no other format; leave text, lowered, gantt and json out");
    if (a->table)
        return play_table(a, out);
    enum err err = show(&x, a, format, out);
    play_free(&x);
    return err;
}

int plait_simulate(const struct plait_sim *a, char **out)
{
    struct plait_sim args;
    struct text page = {0};
    int format;
    TRY(api_take("plait_sim", a, &args, sizeof args));
    TRY(find_format(args.format, &format));
    TRY(check_together(&args));
    return api_give(answer(&args, format, &page), &page, out);
}
