/* SPDX-License-Identifier: Apache-2.0
 *
 * The page of played schedules: a chart and a table of ranks for each, and one table of all.
 */
#include "study/play.h"

#include "base/mem.h"
#include "study/pictures.h"
#include <stdio.h>

enum { SUMMARY = 3 };

/* A page and what it points to. */
struct picture {
    const struct played *x; /* borrowed; [n] */
    int n;
    struct sim_picture *made; /* owned; [n] */
    struct draw_chart *chart; /* owned; [n] */
    struct draw_table *table; /* owned; [n + 1] */
    struct pictures_cells cells; /* owned; of all tables */
    char title[112];
    int tables;
    struct text summary[SUMMARY]; /* of several */
    const char *line[SUMMARY];    /* borrowed; the same */
};

enum { RANK_COLUMNS = 9, ALL_COLUMNS = 9 };

bool play_wants_files(const struct plait_sim *a)
{
    return a->svg || a->html || a->perfetto;
}

/* The figures of each rank, as the summary has them; the last column is for models. */
static void add_rank_table(struct picture *p, int i)
{
    static const char *const name[RANK_COLUMNS] = {
        "rank",   "busy",    "waiting for work", "waiting for messages", "idle",
        "idle %", "sending", "activations",      "memory at most"};
    const struct sim_result *r = &p->x[i].result;
    int columns = p->x[i].modelled ? RANK_COLUMNS : RANK_COLUMNS - 1;
    struct draw_table *t = &p->table[p->tables++];
    *t = pictures_table(&p->cells, p->made[i].title, columns, name);
    t->rows += r->p;
    for (int rank = 0; rank < r->p; rank++) {
        const struct draw_curve *m = &p->chart[i].memory[rank];
        double idle = r->makespan - r->busy[rank], most = 0;
        for (int64_t k = 0; k < m->n; k++)
            most = m->point[k].value > most ? m->point[k].value : most;
        pictures_numbers(&p->cells, "%.0f %.6g %.6g %.6g %.6g %.2f %.6g %.0f",
                         (double[]){rank, r->busy[rank], r->waiting[rank], r->message[rank], idle,
                                    r->makespan > 0 ? 100 * idle / r->makespan : 0,
                                    r->sending[rank], play_peaks(&p->x[i])[rank]});
        if (p->x[i].modelled)
            pictures_bytes(&p->cells, most);
    }
}

/* All schedules, a line each. */
static void add_table(struct picture *p)
{
    static const char *const name[ALL_COLUMNS] = {
        "schedule", "chunks", "replicas", "makespan", "cost", "bubble %", "bubble over ideal %",
        "bubble rate %", "activations"};
    struct draw_table *t = &p->table[p->tables++];
    *t = pictures_table(&p->cells, "Schedules", ALL_COLUMNS, name);
    t->rows += p->n;
    for (int i = 0; i < p->n; i++) {
        const struct sched *s = p->x[i].s;
        const struct sim_result *r = &p->x[i].result;
        pictures_word(&p->cells, s->name);
        pictures_numbers(&p->cells, "%.0f %.0f %.6g %.6g %.2f %.2f %.2f %.4g",
                         (double[]){s->v, s->replicas, r->makespan, r->cost,
                                    100 * r->bubble_fraction,
                                    100 * sim_over_ideal(r->bubble_fraction), 100 * r->bubble_rate,
                                    play_kept(&p->x[i])});
    }
}

static double makespan_of(const struct played *x)
{
    return x->result.makespan;
}

/* The schedules that have least of what `of` says, all that tie, into names. Returns one. */
static int least(const struct picture *p, double (*of)(const struct played *x), struct text *names)
{
    int best = 0, ties = 0;
    for (int i = 1; i < p->n; i++)
        best = of(&p->x[i]) < of(&p->x[best]) ? i : best;
    double limit = of(&p->x[best]) * (1 + 1e-9); /* sums in another order */
    for (int i = 0; i < p->n; i++)
        if (of(&p->x[i]) <= limit)
            text_add(names, "%s%s", ties++ ? "; " : "", p->made[i].title);
    return best;
}

/* What is compared, the shortest step, the least memory. */
static enum err add_summary(struct picture *p)
{
    const struct played *x = p->x;
    struct text *line = p->summary;
    int m = x[0].s->m / x[0].s->slices;
    char bubble[SIM_BUBBLE_MAX];
    text_add(&line[0], "%d schedules on %d rank%s with %d microbatch%s; times and activations of a "
             "rank's share of the model", p->n, x[0].s->p, text_plural(x[0].s->p, "s"), m,
             text_plural(m, "es"));
    text_add(&line[1], "shortest step: ");
    const struct sim_result *quick = &x[least(p, makespan_of, &line[1])].result;
    text_add(&line[1], ", makespan %.6g, bubble %s", quick->makespan,
             sim_bubble_words(quick->bubble_fraction, 2, bubble));
    text_add(&line[2], "fewest activations: ");
    int small = least(p, play_kept, &line[2]);
    text_add(&line[2], ", at most %.4g on a rank", play_kept(&x[small]));
    for (int i = 0; i < SUMMARY; i++) {
        TRY(line[i].err);
        p->line[i] = line[i].s;
    }
    return ERR_OK;
}

static enum err make_picture(struct picture *p)
{
    int64_t cells = (p->n + 1) * ALL_COLUMNS;
    for (int i = 0; i < p->n; i++)
        cells += (int64_t)(p->x[i].s->p + 1) * RANK_COLUMNS;
    TRY(mem_new(p->n, sizeof *p->made, "pictures", &p->made));
    TRY(mem_new(p->n, sizeof *p->chart, "pictures", &p->chart));
    TRY(mem_new(p->n + 1, sizeof *p->table, "pictures", &p->table));
    TRY(pictures_cells_new(cells, &p->cells));
    if (p->n > 1)
        add_table(p);
    for (int i = 0; i < p->n; i++) {
        const struct played *x = &p->x[i];
        TRY(sim_picture_make(x->s, &x->result, &x->cost, &x->memory, &p->made[i]));
        p->chart[i] = p->made[i].chart;
        add_rank_table(p, i);
    }
    if (p->n == 1)
        snprintf(p->title, sizeof p->title, "plait: %s", p->made[0].title);
    else
        snprintf(p->title, sizeof p->title, "plait: %d schedules compared", p->n);
    return p->n > 1 ? add_summary(p) : ERR_OK;
}

static void free_picture(struct picture *p)
{
    for (int i = 0; p->made && i < p->n; i++)
        sim_picture_free(&p->made[i]);
    mem_free(p->made);
    mem_free(p->chart);
    mem_free(p->table);
    pictures_cells_free(&p->cells);
    for (int i = 0; i < SUMMARY; i++)
        text_free(&p->summary[i]);
}

enum err play_files(const struct plait_sim *a, const struct played *x, int n)
{
    struct picture p = {.x = x, .n = n};
    const char *const path[PICTURES_FILES] = {a->svg, a->html, a->perfetto};
    enum err err = make_picture(&p);
    struct draw_page page = {.title = p.title, .time_unit = "", .seconds = 1e-3,
                             .memory_unit = x[0].modelled ? "bytes" : "activations",
                             .chart = p.chart, .charts = n, .table = p.table, .tables = p.tables,
                             .above = n > 1 ? 1 : 0, .summary = p.line,
                             .summaries = n > 1 ? SUMMARY : 0};
    if (err == ERR_OK)
        err = pictures_put(&page, path, NULL);
    free_picture(&p);
    return err;
}

enum err play_gantt(const struct plait_sim *a, const struct played *x, int n, struct text *out)
{
    struct picture p = {.x = x, .n = n};
    enum err err = make_picture(&p);
    struct draw_page page = {.time_unit = "", .chart = p.chart, .charts = n};
    if (err == ERR_OK)
        err = draw_gantt(&page, a->width, a->color != 0, out);
    free_picture(&p);
    return err;
}
