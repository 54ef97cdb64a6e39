/* SPDX-License-Identifier: Apache-2.0
 *
 * Tables of bubbles: for a schedule, and each number of chunks that it can have, ranks downwards
 * and microbatches across, in powers of two up to those asked for: as a share of the step, then
 * over ideal time. Every cell is a schedule made, proved and played; no formula is used. A shape
 * that the schedule refuses is a dash, and the first such refusal stands below.
 */
#include "study/play.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { RANKS = 32, MICROBATCHES = 128, STEPS_MAX = 20, REFUSAL_MAX = 512 };

/* The powers of two below `most`, and `most`. */
static int powers(int from, int most, int out[STEPS_MAX])
{
    int n = 0;
    for (int i = from; i < most && n < STEPS_MAX - 1; i *= 2)
        out[n++] = i;
    out[n++] = most;
    return n;
}

struct table {
    const struct plait_sim *sim;
    const char *name;
    int v, p[STEPS_MAX], m[STEPS_MAX], rows, columns;
    double bubble[STEPS_MAX][STEPS_MAX]; /* [rows][columns] share of the step; < 0: a dash */
    int played; /* cells that are no dash */
    char refusal[REFUSAL_MAX];
};

static enum err play_cells(struct table *t)
{
    t->played = 0;
    t->refusal[0] = '\0';
    for (int r = 0; r < t->rows; r++) {
        for (int c = 0; c < t->columns; c++) {
            struct played x;
            struct play_args a = play_one_of(t->sim, t->name);
            a.p = t->p[r];
            a.m = t->m[c];
            a.v = t->v;
            enum err err = play_make(&a, &x);
            t->bubble[r][c] = err == ERR_OK ? fmax(0, x.result.bubble_fraction) : -1;
            t->played += err == ERR_OK;
            play_free(&x);
            if (err == ERR_CONFIG && t->refusal[0] == '\0')
                snprintf(t->refusal, sizeof t->refusal, "%s", err_text());
            if (err != ERR_OK && err != ERR_CONFIG)
                return err;
        }
    }
    return ERR_OK;
}

static void add_cells(const struct table *t, bool over_ideal, struct text *out)
{
    text_add(out, "bubble of %s", t->name);
    if (t->v > 1)
        text_add(out, ", %d chunks a rank", t->v);
    text_add(out, ", %% %s\n%6s", over_ideal ? "over ideal time" : "of the step", "p \\ m");
    for (int c = 0; c < t->columns; c++)
        text_add(out, " %7d", t->m[c]);
    text_add(out, "\n");
    for (int r = 0; r < t->rows; r++) {
        text_add(out, "%6d", t->p[r]);
        for (int c = 0; c < t->columns; c++) {
            double share = t->bubble[r][c];
            if (share < 0)
                text_add(out, " %7s", "-");
            else
                text_add(out, " %7.2f", 100 * (over_ideal ? sim_over_ideal(share) : share));
        }
        text_add(out, "\n");
    }
    if (t->refusal[0])
        text_add(out, "     -: %s\n", t->refusal);
    text_add(out, "\n");
}

/* Tables of one schedule: for the chunks asked for or that it needs, or for 1, 2 and 4 as far as it
 * has them. */
static enum err add_tables(struct table *t, int v, struct text *out)
{
    const struct sched_kind *kind = sched_kind_find(t->name);
    int played = 0;
    if (v == 0 && kind)
        v = kind->chunks;
    for (t->v = v ? v : 1; t->v <= (v ? v : 4); t->v *= 2) {
        TRY(play_cells(t));
        if (t->played > 0) {
            add_cells(t, false, out);
            add_cells(t, true, out);
        }
        played += t->played;
    }
    if (played == 0)
        return err_set(ERR_CONFIG, __FILE__, __LINE__, "%s", t->refusal);
    return ERR_OK;
}

enum err play_table(const struct plait_sim *a, struct text *out)
{
    struct table t = {.sim = a};
    struct play_list l;
    int64_t ranks = 0, microbatches = 0, chunks = 0; /* of all cells together */
    if (a->scale || a->costs || a->model || play_wants_files(a))
        FAIL(ERR_CONFIG, "simulation: a table is of many shapes; leave scale, costs, model, svg, "
                         "html and perfetto out");
    t.rows = powers(2, a->p ? a->p : RANKS, t.p);
    t.columns = powers(1, a->m ? a->m : MICROBATCHES, t.m);
    for (int r = 0; r < t.rows; r++)
        ranks += t.p[r];
    for (int c = 0; c < t.columns; c++)
        microbatches += t.m[c];
    enum err err = play_list_make("table", a->table, &l);
    for (int i = 0; i < l.n; i++) { /* those it will have; 1, 2 and 4 where none are given */
        const struct sched_kind *kind = sched_kind_find(l.name[i]);
        int own = l.v[i] ? l.v[i] : a->v ? a->v : kind ? kind->chunks : 0;
        chunks += own ? own : 1 + 2 + 4;
    }
    if (err == ERR_OK && ranks * microbatches > PLAY_MAX_UNITS / chunks)
        err = err_set(ERR_CONFIG, __FILE__, __LINE__, "simulation: a table of %d schedule%s up to "
                      "p %d and m %d plays %lld microbatches of stages, and at most %d are played; "
                      "use a smaller p or m, or fewer schedules", l.n, text_plural(l.n, "s"),
                      t.p[t.rows - 1], t.m[t.columns - 1],
                      (long long)(ranks * microbatches * chunks), PLAY_MAX_UNITS);
    for (int i = 0; i < l.n && err == ERR_OK; i++) {
        t.name = l.name[i];
        if (play_path(t.name))
            err = err_set(ERR_CONFIG, __FILE__, __LINE__, "simulation: a table is of schedules by "
                          "name, and %.200s is a file of one shape", t.name);
        else
            err = add_tables(&t, l.v[i] ? l.v[i] : a->v, out);
    }
    play_list_free(&l);
    return err;
}
