/* SPDX-License-Identifier: Apache-2.0
 *
 * The simulation chapter of plait.h: make or read a schedule, lower it, prove it, play it, show it.
 * What is shown went through the same lowering and the same proofs as what is trained.
 */
#include "run/api.h"

#include "base/fs.h"
#include "base/mem.h"
#include "sim/sim.h"
#include <string.h>

/* About 130 bytes are needed for each (stage, microbatch); beyond this a laptop would swap. */
enum { SIM_MAX_UNITS = 1 << 26 };

static const char *const formats[] = {"summary", "text", "gantt", "json"};
enum { SUMMARY, TEXT, GANTT, JSON, FORMATS };

int plait_schedule_count(void)
{
    return sched_kind_count();
}

const char *plait_schedule_name(int i)
{
    return i >= 0 && i < sched_kind_count() ? sched_kind_at(i)->name : NULL;
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
    for (*out = 0; *out < FORMATS; ++*out)
        if (!name || strcmp(name, formats[*out]) == 0)
            return ERR_OK;
    const char *near = text_nearest(name, FORMATS, format_name, NULL);
    FAIL(ERR_CONFIG,
         "simulation: format \"%.64s\" is not known%s%s; use summary, text, gantt or json", name,
         near ? ", the nearest is " : "", near ? near : "");
}

/* A file says its own shape; one that was asked for as well must be that. */
static enum err check_asked(const char *what, int asked, int found)
{
    if (asked != 0 && asked != found)
        FAIL(ERR_CONFIG, "simulation: %s %d was asked for and the file has %s %d; leave %s out",
             what, asked, what, found, what);
    return ERR_OK;
}

static enum err read_schedule(const char *path, const struct plait_sim *a, struct sched *out)
{
    struct fs_map map;
    const char *slash = strrchr(path, '/');
    if (a->group != 0)
        FAIL(ERR_CONFIG, "simulation: group %d was asked for, and a file has its order already; "
                         "leave group out", a->group);
    enum err err = fs_map_open(&map, path, ERR_CONFIG);
    if (err != ERR_OK)
        return err_set(err, __FILE__, __LINE__, "simulation: %s", err_bare(err_text()));
    err = sched_parse(slash ? slash + 1 : path, (const char *)map.data, map.size, out);
    fs_map_close(&map);
    TRY(err);
    TRY_OR(out_free, check_asked("p", a->p, out->p));
    TRY_OR(out_free, check_asked("m", a->m, out->m));
    TRY_OR(out_free, check_asked("v", a->v, out->v));
    return ERR_OK;
out_free:
    sched_free(out);
    return err;
}

/* Does the word look like a file's name, or is there such a file? Schedules have no such names. */
static bool means_file(const char *word)
{
    size_t n = strlen(word);
    bool ends = n > 4 && (strcmp(word + n - 4, ".csv") == 0 || strcmp(word + n - 4, ".txt") == 0);
    return ends || strchr(word, '/') || fs_exists(word);
}

static struct sim_cost cost_of(const struct plait_sim *a)
{
    struct sim_cost c = {.tf = a->tf, .tb = a->tb, .ti = a->ti, .tw = a->tw, .latency = a->latency,
                         .tov = a->tov};
    c.tf = c.tf != 0 ? c.tf : 1;
    c.ti = c.ti != 0 ? c.ti : c.tf;
    c.tw = c.tw != 0 ? c.tw : c.tf;
    c.tb = c.tb != 0 ? c.tb : c.ti + c.tw;
    return c;
}

static enum err make_schedule(const struct plait_sim *a, struct sched *out)
{
    if (!a->schedule)
        FAIL(ERR_CONFIG,
             "simulation: no schedule is named; use one of plait sim --list or file:PATH");
    if (strncmp(a->schedule, "file:", 5) == 0)
        return read_schedule(a->schedule + 5, a, out);
    const struct sched_kind *kind = sched_kind_find(a->schedule);
    if (!kind && means_file(a->schedule))
        FAIL(ERR_CONFIG,
             "simulation: %.200s is not the name of a schedule; to play a file write file:%.200s",
             a->schedule, a->schedule);
    int chunks = kind && kind->chunks ? kind->chunks : 1;
    struct sched_shape shape = {.p = a->p, .m = a->m, .v = a->v ? a->v : chunks,
                                .group = a->group};
    int64_t units = (int64_t)shape.p * shape.m;
    if (shape.p > 0 && shape.m > 0 && shape.v > 0 && units > SIM_MAX_UNITS / shape.v)
        FAIL(ERR_CONFIG,
             "simulation: p %d x m %d x v %d is more than %d microbatches of stages; use "
             "smaller numbers",
             shape.p, shape.m, shape.v, SIM_MAX_UNITS);
    struct sim_cost t = cost_of(a);
    struct sched_cost cost = {.tf = t.tf, .ti = t.ti, .tw = t.tw, .tc = t.latency,
                              .keep = a->keep != 0 ? a->keep : 0.5, .limit = a->limit};
    return sched_make_for(a->schedule, &shape, &cost, out);
}

/* Released in any case by the caller. */
struct shown {
    struct sched made, lowered;
    struct sched_report report;
    struct sim_result result;
};

static enum err show(struct shown *x, const struct plait_sim *a, int format, struct text *out)
{
    struct sim_cost cost = cost_of(a);
    TRY(make_schedule(a, &x->made));
    struct sched *s = &x->made;
    if (!s->lowered) {
        TRY(sched_lower(s, &(struct sched_lower_args){0}, &x->lowered));
        s = &x->lowered;
    }
    TRY(sched_check(s, &x->report));
    TRY(sim_run(s, &x->report, &cost, format == GANTT || format == JSON, &x->result));
    if (format == TEXT)
        sched_print(&x->made, out);
    else if (format == GANTT)
        sim_gantt(s, &x->result, a->width, a->color != 0, out);
    else if (format == JSON)
        sim_json(s, &x->result, out);
    else
        sim_summary(s, &x->result, out);
    return ERR_OK;
}

int plait_simulate(const struct plait_sim *a, char **out)
{
    struct plait_sim args;
    struct shown x = {0};
    struct text page = {0};
    int format;
    TRY(api_take("plait_sim", a, &args, sizeof args));
    TRY(find_format(args.format, &format));
    if (args.width < 0)
        FAIL(ERR_CONFIG, "simulation: width %d is not a number of columns; use 0 or more",
             args.width);
    enum err err = show(&x, &args, format, &page);
    sched_free(&x.made);
    sched_free(&x.lowered);
    sched_report_free(&x.report);
    sim_result_free(&x.result);
    if (err == ERR_OK)
        err = text_done(&page, out);
    else
        text_free(&page);
    return err;
}
