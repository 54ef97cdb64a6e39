/* SPDX-License-Identifier: Apache-2.0
 *
 * The simulation chapter of plait.h: one schedule played and shown, several compared, or a table of
 * many shapes.
 */
#include "api/api.h"

#include "folder/files.h"
#include "study/pictures.h"
#include "study/play.h"

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

/* The questions must be one, and the files apart: three of pictures, and those that are read. What
 * a model's configuration names is known later (play_model.c). */
static enum err check_together(const struct plait_sim *a)
{
    const char *const path[PICTURES_FILES] = {a->svg, a->html, a->perfetto};
    const char *schedule = a->schedule ? play_path(a->schedule) : NULL;
    const struct file_use in[] = {{"schedule", schedule}, {"costs", a->costs}, {"model", a->model}};
    struct play_list list = {0};
    if ((a->schedule != NULL) + (a->compare != NULL) + (a->table != NULL) > 1)
        FAIL(ERR_CONFIG, "simulation: schedule, compare and table are three questions; ask one");
    if (a->sets != 0 && (!a->model || a->sets < 0))
        FAIL(ERR_CONFIG, "simulation: key=value words change a model's configuration, and there is "
                         "no model; give one (--model FILE), or leave them out");
    TRY(pictures_check("simulation: two pictures", path));
    enum err err = a->compare ? play_list_make("compare", a->compare, &list) : ERR_OK;
    for (int i = 0; i < PICTURES_FILES && err == ERR_OK; i++) {
        err = files_apart("simulation", path[i], in, 3);
        for (int k = 0; k < list.n && err == ERR_OK; k++)
            err = files_apart("simulation", path[i],
                              &(struct file_use){"schedule", play_path(list.name[k])}, 1);
    }
    play_list_free(&list);
    if (err == ERR_OK && a->width < 0)
        FAIL(ERR_CONFIG, "simulation: width %d is not a number of columns; use 0 or more",
             a->width);
    return err;
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
        return play_gantt(a, x, 1, out);
    else if (format == PLAY_JSON)
        sim_json(x->s, &x->result, out);
    else
        sim_summary(x->s, &x->result, out);
    return ERR_OK;
}

int plait_simulate(const struct plait_sim *a, char **out)
{
    struct plait_sim args;
    struct played x;
    struct text page = {0};
    struct text_near near = {0};
    int format = 0;
    TRY(api_take("plait_sim", a, &args, sizeof args));
    for (; format < PLAY_FORMATS && args.format && strcmp(args.format, formats[format]) != 0;
         format++)
        text_near(&near, args.format, formats[format]);
    if (format == PLAY_FORMATS)
        FAIL(ERR_CONFIG, "simulation: format \"%.64s\" is not known%s%s; use summary, text, "
                         "lowered, gantt or json",
             args.format, near.found ? ", the nearest is " : "", near.found ? near.found : "");
    TRY(check_together(&args));
    if (args.table && format != PLAY_SUMMARY)
        FAIL(ERR_CONFIG,
             "simulation: a table has no other format; leave text, lowered, gantt and json out");
    if (args.compare)
        return api_give(play_compare(&args, format, &page), &page, out);
    if (args.table)
        return api_give(play_table(&args, &page), &page, out);
    enum err err = show(&x, &args, format, &page);
    play_free(&x);
    return api_give(err, &page, out);
}
