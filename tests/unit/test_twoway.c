/* SPDX-License-Identifier: Apache-2.0
 *
 * Schedules whose microbatches meet a rank twice: the generators' shapes, bubbles and peaks; and
 * the clock against the definition, for random schedules with replicas and pairs. test_replicas.c
 * has rules and text.
 */
#include "sched/sched.h"

#include "base/mem.h"
#include "base/num.h"
#include "sim/sim.h"
#include "test.h"
#include "timed.h"

static const struct sched_lower_args all_ends = {.reduce = true, .tied = true, .step = true};
static const struct sim_cost unit = {.tf = 1, .tb = 2, .ti = 1, .tw = 1, .tov = 3};

static enum err parse(const char *text, struct sched *out)
{
    return sched_parse("test", text, (int64_t)strlen(text), out);
}

static bool make(const char *name, int p, int m, const struct sim_cost *cost, struct timed *k)
{
    struct sched from;
    struct sched_shape shape = {.p = p, .m = m, .v = strcmp(name, "dualpipev") == 0 ? 2 : 1};
    *k = (struct timed){0};
    return CHECK(sched_make(name, &shape, NULL, &from) == ERR_OK) &&
           timed_play(&from, &all_ends, cost, k);
}

/* ---- generators ---- */

static const char *const names[] = {"dualpipe", "chimera"};

/* Activations kept on a rank, when there are microbatches enough to keep. */
static int kept(const char *name, int p, int rank)
{
    int q = (int)num_min(rank, p - 1 - rank);
    return strcmp(name, "dualpipe") == 0 ? p + 1 : p / 2 + 1 + q;
}

static void check_shape(const char *name, int p, int m)
{
    struct timed k;
    bool full = m % 2 == 0 && m >= 2 * p;
    if (make(name, p, m, &unit, &k)) {
        CHECK(k.s.replicas == 2 && k.s.stages == p && sched_ends_meet(&k.s));
        CHECK_INT(sched_microbatches(&k.s, 0), m - m / 2);
        for (int rank = 0; rank < p; rank++) {
            int want = kept(name, p, rank), peak = k.report.peak[rank];
            CHECK(k.s.place[rank] == rank && k.s.place[p + rank] == p - 1 - rank);
            test_check(full ? peak == want : peak <= want, __FILE__, __LINE__,
                       "%s p %d m %d: rank %d keeps %d of %d", name, p, m, rank, peak, want);
        }
    }
    timed_free(&k);
}

static void grid(void)
{
    for (int n = 0; n < 2; n++)
        for (int p = 2; p <= 16; p += 2)
            for (int m = 1; m <= 3 * p; m++)
                check_shape(names[n], p, m);
}

/* One pipeline that turns at the last rank; any number of ranks. */
static void grid_of_v(void)
{
    for (int p = 1; p <= 8; p++) {
        for (int m = 1; m <= 3 * p; m++) {
            struct timed k;
            if (make("dualpipev", p, m, &unit, &k)) {
                CHECK(k.s.replicas == 1 && k.s.stages == 2 * p && sched_ends_meet(&k.s));
                for (int rank = 0; rank < p; rank++) {
                    int peak = k.report.peak[rank], most = 2 * p + 1;
                    CHECK(k.s.place[rank] == rank && k.s.place[2 * p - 1 - rank] == rank);
                    CHECK(m < 2 * p ? peak <= most : peak == most);
                }
            }
            timed_free(&k);
        }
    }
}

static void shapes_refused(void)
{
    struct sched s;
    CHECK_ERR(sched_make("dualpipev", &(struct sched_shape){.p = 4, .m = 8, .v = 1}, NULL, &s),
              ERR_CONFIG, "v 1, but it runs two chunks a rank; use v 2");
    for (int n = 0; n < 2; n++) {
        CHECK_ERR(sched_make(names[n], &(struct sched_shape){.p = 1, .m = 4, .v = 1}, NULL, &s),
                  ERR_CONFIG, "an even number of ranks; use p 2");
        CHECK_ERR(sched_make(names[n], &(struct sched_shape){.p = 5, .m = 9, .v = 1}, NULL, &s),
                  ERR_CONFIG, "p 5, but microbatches go both ways over an even number of ranks; "
                              "use p 4 or 6");
        CHECK_ERR(sched_make(names[n], &(struct sched_shape){.p = 4, .m = 8, .v = 2}, NULL, &s),
                  ERR_CONFIG, "use v 1");
    }
}

/* DualPipe: (p / 2 - 1)(tov + tb - 3 tw) idle on the ranks that wait longest; with other times than
 * the unit ones others may wait less. Latency costs 9 and 23 hops more for (4, 8) and (8, 16). */
static void dualpipe_bubble(void)
{
    struct sim_cost cost = unit;
    struct timed k;
    for (int p = 2; p <= 16; p += 2) {
        for (int m = 2 * p; m <= 4 * p; m += 2) {
            cost.tov = 3;
            if (make("dualpipe", p, m, &cost, &k))
                for (int rank = 0; rank < p; rank++)
                    CHECK(k.r.makespan - k.r.busy[rank] == (p / 2 - 1) * (3 + 2 - 3));
            timed_free(&k);
            cost.tov = 2.5;
            double most = 0;
            if (make("dualpipe", p, m, &cost, &k))
                for (int rank = 0; rank < p; rank++)
                    most = fmax(most, k.r.makespan - k.r.busy[rank]);
            CHECK(most == (p / 2 - 1) * (2.5 + 2 - 3));
            timed_free(&k);
        }
    }
    cost = unit;
    cost.latency = 0.0625;
    if (make("dualpipe", 4, 8, &cost, &k))
        CHECK(k.r.makespan == 26 + 9 * cost.latency);
    timed_free(&k);
    if (make("dualpipe", 8, 16, &cost, &k))
        CHECK(k.r.makespan == 54 + 23 * cost.latency);
    timed_free(&k);
}

/* DualPipeV: (p - 1)(tov + tb - 3 tw) in times of a chunk. */
static void dualpipev_bubble(void)
{
    struct sim_cost cost = unit;
    struct timed k;
    for (int p = 1; p <= 8; p++) {
        for (int m = 2 * p; m <= 4 * p; m++) {
            double most[2] = {0, 0};
            for (int n = 0; n < 2; n++) {
                cost.tov = n ? 2.5 : 3;
                if (make("dualpipev", p, m, &cost, &k))
                    for (int rank = 0; rank < p; rank++)
                        most[n] = fmax(most[n], k.r.makespan - k.r.busy[rank]);
                timed_free(&k);
            }
            CHECK(most[0] == (p - 1) * 2 && most[1] == (p - 1) * 1.5);
        }
    }
    cost = unit;
    cost.latency = 0.0625;
    if (make("dualpipev", 4, 8, &cost, &k))
        CHECK(k.r.makespan == 54 + 16 * cost.latency);
    timed_free(&k);
    if (make("dualpipev", 8, 16, &cost, &k))
        CHECK(k.r.makespan == 110 + 40 * cost.latency);
    timed_free(&k);
    if (make("dualpipev", 4, 10, &unit, &k))
        CHECK(k.r.makespan == 66 && k.report.peak[0] == 9);
    timed_free(&k);
}

/* Chimera where forward and backward take a slot each: p - 2 slots are idle however many units
 * stand one behind the other, a rate of (p - 2) / (2 m + p - 2). */
static void chimera_slots(void)
{
    struct sim_cost slot = {.tf = 1, .tb = 1, .ti = 0.5, .tw = 0.5};
    struct timed k;
    for (int p = 2; p <= 16; p += 2) {
        for (int m = p; m <= 4 * p; m += p) {
            if (make("chimera", p, m, &slot, &k)) {
                CHECK(k.r.makespan == 2 * m + p - 2);
                CHECK_NEAR(k.r.bubble_fraction, (p - 2) / (double)(2 * m + p - 2), 1e-15);
            }
            timed_free(&k);
        }
    }
}

/* ---- random schedules ---- */

enum { P_MAX = 6, STAGES_MAX = 12, M_MAX = 5 };

struct world {
    int p, stages, m, replicas;
    int place[2][STAGES_MAX], way[M_MAX];
    bool done[2][STAGES_MAX][M_MAX]; /* F, B */
};

/* Any placement, or one and its mirror; stage 0 tells the replicas apart. */
static struct world random_world(void)
{
    struct world w = {.m = (int)test_range(2, M_MAX), .replicas = (int)test_range(1, 2)};
    w.p = w.replicas * (int)test_range(1, P_MAX / 2);
    w.stages = w.p * (int)test_range(1, STAGES_MAX / P_MAX);
    for (int s = 0; s < w.stages; s++)
        w.place[0][s] = s < w.p ? s : (int)test_range(0, w.p - 1);
    for (int s = w.stages - 1; s > 0; s--) {
        int other = (int)test_range(0, s), keep = w.place[0][s];
        w.place[0][s] = w.place[0][other];
        w.place[0][other] = keep;
    }
    for (int s = 0; s < w.stages; s++)
        w.place[1][s] = w.p - 1 - w.place[0][s];
    for (int mb = 1; w.replicas == 2 && mb < w.m; mb++)
        w.way[mb] = mb == w.m - 1 ? 1 : (int)test_range(0, 1); /* both are gone */
    return w;
}

static bool may_run(const struct world *w, int kind, int s, int mb)
{
    if (w->done[kind][s][mb])
        return false;
    if (kind == 0)
        return s == 0 || w->done[0][s - 1][mb];
    return w->done[0][s][mb] && (s == w->stages - 1 || w->done[1][s + 1][mb]);
}

/* A backward on the same rank that may run beside a forward just chosen; false: none is found. */
static bool find_partner(const struct world *w, int s, int mb, int *s2, int *mb2)
{
    for (int tries = 0; tries < 20; tries++) {
        *s2 = (int)test_range(0, w->stages - 1);
        *mb2 = (int)test_range(0, w->m - 1);
        if (may_run(w, 1, *s2, *mb2) && w->place[w->way[*mb2]][*s2] == w->place[w->way[mb]][s])
            return true;
    }
    return false;
}

static void random_text(struct world *w, struct text line[P_MAX])
{
    for (int left = 2 * w->stages * w->m; left > 0;) {
        int kind = (int)test_range(0, 1), s = (int)test_range(0, w->stages - 1), s2, mb2;
        int mb = (int)test_range(0, w->m - 1), rank = w->place[w->way[mb]][s];
        if (!may_run(w, kind, s, mb))
            continue;
        text_add(&line[rank], line[rank].len ? "," : "");
        if (kind == 0 && test_range(0, 1) && find_partner(w, s, mb, &s2, &mb2)) {
            text_add(&line[rank], "(%dF%d;%dB%d)OV", s, mb, s2, mb2);
            w->done[1][s2][mb2] = true;
            left--;
        } else {
            text_add(&line[rank], "%d%c%d", s, "FB"[kind], mb);
        }
        w->done[kind][s][mb] = true;
        left--;
    }
}

/* Times by the definition alone, until nothing changes. An action is an instruction or a pair. */
struct clock { double f[STAGES_MAX][M_MAX], d[STAGES_MAX][M_MAX]; /* ends */ };

static double input_of(const struct sched *s, const struct clock *c, struct sched_instr in,
                       double latency)
{
    int from = in.op == SCHED_F ? in.stage - 1 : in.stage + 1;
    if (from < 0 || from == s->stages)
        return 0;
    double end = in.op == SCHED_F ? c->f[from][in.mb] : c->d[from][in.mb];
    return end + (sched_rank_of(s, from, in.mb) != sched_rank_of(s, in.stage, in.mb) ? latency : 0);
}

static bool relax(const struct sched *s, const struct sim_cost *cost, struct clock *c)
{
    bool changed = false;
    for (int rank = 0; rank < s->p; rank++) {
        double now = 0;
        for (int64_t i = s->begin[rank]; i < s->begin[rank + 1]; i++) {
            bool pair = s->instr[i].op == SCHED_OVERLAP_F_B;
            int from = pair ? 1 : 0, to = pair ? 2 : 0;
            if (!pair && s->instr[i].op > SCHED_B)
                continue;
            for (int j = from; j <= to; j++)
                now = fmax(now, input_of(s, c, s->instr[i + j], cost->latency));
            now += pair ? cost->tov : s->instr[i].op == SCHED_F ? cost->tf : cost->tb;
            for (int j = from; j <= to; j++) {
                struct sched_instr in = s->instr[i + j];
                double *end = in.op == SCHED_F ? &c->f[in.stage][in.mb] : &c->d[in.stage][in.mb];
                changed |= *end != now;
                *end = now;
            }
            i += pair ? 2 : 0;
        }
    }
    return changed;
}

static void check_clock(const struct timed *k, const struct sim_cost *cost)
{
    struct clock c = {0};
    double last = 0;
    while (relax(&k->s, cost, &c))
        continue;
    for (int64_t i = 0; i < k->s.begin[k->s.p]; i++) {
        struct sched_instr in = k->s.instr[i];
        if (in.op > SCHED_B)
            continue;
        double end = in.op == SCHED_F ? c.f[in.stage][in.mb] : c.d[in.stage][in.mb];
        CHECK_NEAR(k->r.event[i].end, end, 1e-12);
        last = fmax(last, end);
    }
    CHECK_NEAR(k->r.makespan, last, 1e-12);
}

static void random_schedules(void)
{
    struct sim_cost cost = {.tf = 1.25, .tb = 2.5, .tov = 3.125, .latency = 0.3125};
    for (int n = 0; n < 1500; n++) {
        struct world w = random_world();
        struct text line[P_MAX] = {{0}}, all = {0};
        struct sched s;
        struct timed k;
        random_text(&w, line);
        for (int r = 0; r < w.p; r++) {
            text_add(&all, "%s\n", line[r].s);
            text_free(&line[r]);
        }
        CHECK_OK(parse(all.s, &s));
        CHECK_INT(s.replicas, w.replicas);
        for (int h = 0; h < w.replicas * w.stages; h++)
            CHECK_INT(s.place[h], w.place[h / w.stages][h % w.stages]);
        struct sched_lower_args ends = {.step = true}; /* a tied end may be impossible */
        if (test_check(timed_play(&s, &ends, &cost, &k), __FILE__, __LINE__, "%s", all.s))
            check_clock(&k, &cost);
        timed_free(&k);
        text_free(&all);
    }
}

static void gantt_of_pairs(void)
{
#define NARROW "too narrow for numbers, which need 33 columns: --width 33, or use --html\n"
#define FACTS                                                                                      \
    "makespan 12, bubble 0.00 % of the step (0.00 % over ideal time), at most 3 activations on "  \
    "a rank\n"
    struct sched s;
    struct timed k;
    struct text t = {0};
    CHECK_OK(parse("0F0,1F2,0F1,1B2,(1F3;0B0)OV,1B3,0B1\n0F2,1F0,0F3,1B0,(1F1;0B2)OV,1B1,0B3\n",
                   &s));
    if (timed_play(&s, &all_ends, &unit, &k)) {
        timed_gantt(&k.s, &k.r, 60, false, &t);
        text_add(&t, "\n");
        timed_gantt(&k.s, &k.r, 20, false, &t);
        text_add(&t, "\n");
        timed_gantt(&k.s, &k.r, 0, false, &t);
        CHECK_STR(t.s, "rank 0 |F0 F2 F1 B2    F3&B0    B3    B1    |\n"
                       "rank 1 |F2 F0 F3 B0    F1&B2    B1    B3    |\n"
                       "time 0 to 12, 0.3333 a column; F forward, B backward, F&B both at once, . "
                       "idle\n" FACTS "\n"
                       "rank 0 |FFFBB&&BBBB|\n"
                       "rank 1 |FFFBB&&BBBB|\n"
                       "time 0 to 12, 1.091 a column; F forward, B backward, F&B both at once, . "
                       "idle\n" NARROW FACTS "\n"
                       "rank 0 |FFFB &  B B |\n"
                       "rank 1 |FFFB &  B B |\n"
                       "time 0 to 12, 1 a column; F forward, B backward, F&B both at once, . idle"
                       "\n" NARROW FACTS);
#undef NARROW
#undef FACTS
        CHECK_INT(k.r.actions, 14);
    }
    text_free(&t);
    timed_free(&k);
}

static const struct test_case cases[] = {
    {"grid", grid},
    {"grid_of_v", grid_of_v},
    {"shapes_refused", shapes_refused},
    {"dualpipe_bubble", dualpipe_bubble},
    {"dualpipev_bubble", dualpipev_bubble},
    {"chimera_slots", chimera_slots},
    {"random_schedules", random_schedules},
    {"gantt_of_pairs", gantt_of_pairs},
};
TEST_MAIN(cases)
