/* SPDX-License-Identifier: Apache-2.0
 *
 * A comparison as the user asks for it: the run's configuration read, its schedule made again, the
 * page said, pictures drawn with the measured step above the simulated one, on one scale of time.
 */
#include "study/compare.h"

#include "base/fs.h"
#include "base/mem.h"
#include "folder/files.h"
#include "folder/folder.h"
#include "study/pictures.h"
#include "config/options.h"
#include "config/schedule.h"
#include "sim/sim.h"
#include <stdio.h>
#include <string.h>

enum { MEASURED, SIMULATED, CHARTS };

static enum err write_files(const struct compare *c, const struct compare_words *w,
                            const struct plait_compare *a, const char *const path[PICTURES_FILES])
{
    static const char *const title[CHARTS] = {"measured", "simulated with the measured costs"};
    const struct sim_result *r[CHARTS] = {&c->seen, &c->sim};
    struct sim_picture made[CHARTS] = {{.span = NULL}};
    struct draw_chart chart[CHARTS];
    char facts[CHARTS][160], bubble[SIM_BUBBLE_MAX];
    struct text costs = {0};
    struct draw_page page = {.title = w->title, .time_unit = "ms", .memory_unit = "activations",
                             .seconds = 1e-3, .chart = chart, .charts = CHARTS,
                             .table = w->table, .tables = COMPARE_TABLES, .above = 1,
                             .pictured = true, .summary = (const char *const *)w->line,
                             .summaries = w->lines};
    enum err err = ERR_OK;
    for (int i = 0; i < CHARTS && err == ERR_OK; i++) {
        err = sim_picture_make(&c->s->sched, r[i], &c->used, &(struct sim_bytes){.scale = 1e3},
                               &made[i]);
        snprintf(facts[i], sizeof facts[i], "%.2f ms, bubble %s",
                 1e3 * (i == MEASURED ? c->makespan : r[i]->makespan),
                 sim_bubble_words(r[i]->bubble_fraction, 1, bubble));
        chart[i] = made[i].chart;
        chart[i].title = title[i];
        chart[i].facts = facts[i];
    }
    if (err == ERR_OK && a->costs)
        compare_costs(c, &costs);
    if (err == ERR_OK)
        err = pictures_put(&page, path, &costs);
    text_free(&costs);
    for (int i = 0; i < CHARTS; i++)
        sim_picture_free(&made[i]);
    return err;
}

static enum err read_config(const char *run, struct options *o)
{
    TRY(folder_find("compare", run, false));
    TRY(options_read_run(run, o));
    if (o->train.trace)
        return ERR_OK;
    char trace[FS_PATH];
    bool before = fs_named(folder_file(trace, run, FOLDER_TRACE));
    FAIL(ERR_CONFIG, before ? "compare: the last start of %.200s was not traced, and its trace/ is "
                              "of one before; go on with train.trace=true (--trace)"
                            : "compare: %.200s was not traced; train with train.trace=true "
                              "(--trace)", run);
}

/* The list is made of these files again, as they are now: what does not fit the run is theirs. */
static enum err made_of(const struct options *o, enum err err)
{
    struct file_use in[] = {{"parallel.schedule", schedule_path(o->parallel.schedule)},
                            {"parallel.costs", o->parallel.costs[0] ? o->parallel.costs : NULL}};
    for (int i = 0; i < 2 && err == ERR_CONFIG; i++)
        if (in[i].path && !fs_exists(in[i].path))
            return err_set(err, __FILE__, __LINE__, "compare: the run's schedule is made again, "
                           "and %s file %.200s is gone%s; bring it back as it was, or trace the "
                           "run again", in[i].what, in[i].path, in[i].path[0] == '/' ? "" :
                           " (its path counts from the folder in which plait is started)");
    if (err != ERR_CONFIG || (!in[0].path && !in[1].path))
        return err;
    const char *path = in[0].path ? in[0].path : in[1].path, *said = err_text();
    return err_set(err, __FILE__, __LINE__, "compare: the run's schedule is made again, and %.200s "
                   "has changed since: %.*s; bring it back as it was, or trace the run again", path,
                   (int)strcspn(said, ";"), said);
}

enum err compare_run(const struct plait_compare *a, struct text *out)
{
    struct options o;
    struct setup s = {0};
    struct compare c = {0};
    struct compare_words w = {0};
    struct text note = {0};
    const char *const path[PICTURES_FILES] = {a->svg, a->html, a->perfetto, a->costs};
    if (a->skip < -1)
        FAIL(ERR_CONFIG, "compare: skip %lld is not a number of steps; use 0 or more",
             (long long)a->skip);
    if (a->format && strcmp(a->format, "text") != 0 && strcmp(a->format, "json") != 0)
        FAIL(ERR_CONFIG, "compare: format \"%.64s\" is not known; use text or json", a->format);
    TRY(pictures_check("compare: two results", path));
    TRY(read_config(a->run, &o));
    for (int i = 0; i < PICTURES_FILES; i++)
        TRY(files_apart_folder("compare", path[i], a->run, &o));
    const struct plait_rates *r = &a->rates;
    TRY(links_read("compare", r->latency, r->bandwidth, r->memory_bandwidth, &o.caps));
    enum err err = setup_make(&o, o.model.vocab, true, &s);
    err = err == ERR_OK ? compare_open(&s, a->run, a->skip, &c) : made_of(&o, err);
    if (err == ERR_OK)
        err = compare_words_make(&c, a->run, &w);
    if (err == ERR_OK)
        err = write_files(&c, &w, a, path);
    if (err == ERR_OK && a->costs && a->on_note) {
        compare_costs_note(&c, &note); /* what of them was not measured */
        if (note.err == ERR_OK && note.len > 0)
            a->on_note(a->arg, note.s);
        err = note.err;
    }
    if (err == ERR_OK && a->format && strcmp(a->format, "json") == 0)
        compare_json(&c, out);
    else if (err == ERR_OK)
        compare_text(&c, &w, out);
    text_free(&note);
    compare_words_free(&w);
    compare_close(&c);
    setup_free(&s);
    return err == ERR_OK ? out->err : err;
}
