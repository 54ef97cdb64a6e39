/* SPDX-License-Identifier: Apache-2.0
 *
 * The law of test_law.c for schedules with several stages a rank in a loop, and for those that
 * split the backward: loss, norm and every gradient are those of one rank, over p 1 to 4, m 1 to
 * 3 p and v 1 to 4. `make test` takes a part of that grid, `make grid` the whole. Where the check's
 * order_hash says that weight gradients are added in the same order, the bits are the same.
 */
#include "base/num.h"
#include "layout.h"
#include "sched/sched.h"
#include "order.h"
#include "test.h"

#include <stdlib.h>

static struct layout layout_of(enum model_kind kind, const char *schedule, struct sched_shape x)
{
    bool gpt = kind == MODEL_GPT;
    struct model a = {.kind = kind, .layers = x.v * x.p + 1, .hidden = 16, .heads = 2,
                      .kv_heads = gpt ? 2 : 1, .head_dim = 8, .ffn = 24, .vocab = 37, .seq = 4,
                      .tied = gpt, .dropout = 0.1, .norm_eps = 1e-5, .rope_theta = 10000,
                      .init_std = 0.2};
    return (struct layout){.model = a, .tp = 1, .pp = x.p, .dp = 1, .v = x.v, .group = x.group,
                           .schedule = schedule, .batch = x.m, .microbatch = 1, .dev = DEV_REF,
                           .ct = DT_F64, .steps = 2, .clip = 0.05};
}

static void compare(const struct layout *l, const struct layout_result *want, double bound)
{
    struct layout_result got;
    const char *worst = "";
    char name[96];
    snprintf(name, sizeof name, "%s tp %d p %d dp %d m %lld v %d group %d", l->schedule, l->tp,
             l->pp, l->dp, (long long)num_ceil_div(l->batch / l->dp, l->microbatch), l->v,
             l->group);
    enum err err = layout_run(l, &got);
    if (test_check(err == ERR_OK, __FILE__, __LINE__, "%s: %s", name, err_text())) {
        double far = fmax(fabs(got.loss - want->loss) / fabs(want->loss),
                          fabs(got.norm - want->norm) / want->norm);
        far = fmax(far, layout_difference(want, &got, false, &worst));
        test_check(far <= bound, __FILE__, __LINE__, "%s: %g of 1 apart, worst %s", name, far,
                   worst);
        test_check(got.replicas_differ == 0 && got.planned == got.taken, __FILE__, __LINE__,
                   "%s: %d values of copies differ, %lld bytes planned, %lld taken", name,
                   got.replicas_differ, (long long)got.planned, (long long)got.taken);
        CHECK_INT(got.tokens, want->tokens);
    }
    layout_result_free(&got);
}

/* One rank on the same step is the judge. */
static void check(const struct layout *l, double bound)
{
    struct layout one = *l;
    struct layout_result want;
    one.tp = one.pp = one.dp = one.v = 1;
    one.group = 0;
    one.sp = false;
    one.schedule = "naive";
    one.dev = DEV_REF;
    one.ct = DT_F64;
    CHECK_OK(layout_run(&one, &want));
    compare(l, &want, bound);
    layout_result_free(&want);
}

/* ---- the grid ---- */

static bool whole_grid(void)
{
    const char *wish = getenv("PLAIT_GRID");
    return wish && strcmp(wish, "whole") == 0;
}

/* The part that every test run takes: the edges of m, both sides of multiples of p, v in turn. */
static bool is_in_part(int p, int m, int v)
{
    bool edge = m == 1 || m == p - 1 || m == p || m == p + 1 || m == 2 * p || m == 3 * p - 1;
    return edge && (p + m + v) % 3 == 0;
}

static void grid_of_m(const char *schedule, int p, int most_v)
{
    bool whole = whole_grid();
    for (int m = 1; m <= 3 * p; m++)
        for (int v = 1; v <= most_v; v++)
            for (int kind = MODEL_GPT; kind <= MODEL_LLAMA; kind++) {
                bool one = most_v == 1 || is_in_part(p, m, v);
                if (!whole && (!one || kind != (m % 2 ? MODEL_GPT : MODEL_LLAMA)))
                    continue;
                struct layout l = layout_of((enum model_kind)kind, schedule,
                                            (struct sched_shape){p, m, v, 0});
                check(&l, 1e-10);
            }
}

static void grid(const char *schedule, int most_v)
{
    for (int p = 1; p <= 4; p++)
        grid_of_m(schedule, p, most_v);
}

static void grid_interleaved(void) { grid("interleaved", 4); }
static void grid_looped_bfs(void) { grid("looped-bfs", 4); }
static void grid_zb_h1(void) { grid("zb-h1", 1); }
static void grid_zb_h2(void) { grid("zb-h2", 1); }

/* Groups of every size. */
static void groups(void)
{
    int most_p = whole_grid() ? 4 : 3, most_v = whole_grid() ? 4 : 2;
    for (int p = 2; p <= most_p; p++)
        for (int m = whole_grid() ? p : 7; m <= (whole_grid() ? 3 * p : 7); m++)
            for (int v = 2; v <= most_v; v++)
                for (int group = p; group <= m; group++) {
                    struct layout l = layout_of(MODEL_LLAMA, "interleaved",
                                                (struct sched_shape){p, m, v, group});
                    check(&l, 1e-10);
                }
}

/* ---- beside the other axes ---- */

static void beside_other_axes(void)
{
    static const struct {
        const char *schedule;
        int tp, p, dp, v;
        bool sp, tied;
    } row[] = {
        {"interleaved", 2, 2, 1, 2, true, true},  {"interleaved", 1, 2, 2, 3, false, true},
        {"interleaved", 2, 2, 2, 2, false, false}, {"looped-bfs", 2, 2, 1, 2, true, false},
        {"looped-bfs", 1, 3, 2, 2, false, true},  {"zb-h1", 2, 2, 1, 1, true, true},
        {"zb-h1", 1, 4, 2, 1, false, true},       {"zb-h2", 2, 3, 1, 1, false, false},
        {"zb-h2", 1, 2, 2, 1, false, true},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        for (int kind = MODEL_GPT; kind <= MODEL_LLAMA; kind++)
            for (int cpu = 0; cpu <= dev_built(DEV_CPU); cpu++) {
                struct sched_shape shape = {row[i].p, 5, row[i].v, 0};
                struct layout l = layout_of((enum model_kind)kind, row[i].schedule, shape);
                l.model.tied = row[i].tied;
                l.tp = row[i].tp;
                l.sp = row[i].sp;
                l.dp = row[i].dp;
                l.batch = row[i].dp * 9; /* microbatches of 2, the last of 1 */
                l.microbatch = 2;
                l.steps = 1;
                if (cpu) {
                    l.dev = DEV_CPU;
                    l.ct = DT_F32;
                }
                check(&l, cpu ? 1e-5 : 1e-10);
            }
}

/* ---- equal orders, equal bits ---- */

static uint64_t order_of(const char *schedule, struct sched_shape shape)
{
    struct sched s = {0};
    struct sched_report r = {0};
    CHECK_OK(sched_make(schedule, &shape, NULL, &s));
    CHECK_OK(sched_check(&s, &r));
    uint64_t order = order_hash(&s);
    sched_report_free(&r);
    sched_free(&s);
    return order;
}

struct ordered { const char *schedule; int group; bool same; };

/* The first is the measure of the others: those that are said to have its order have its bits. */
static void check_bits(const struct ordered *row, int n, int v, enum dev_kind dev, enum dtype ct)
{
    struct layout_result first = {0}, other;
    uint64_t order = order_of(row[0].schedule, (struct sched_shape){3, 7, v, row[0].group});
    for (int i = 0; i < n; i++) {
        struct sched_shape shape = {3, 7, v, row[i].group};
        struct layout l = layout_of(MODEL_GPT, row[i].schedule, shape);
        l.dev = dev;
        l.ct = ct;
        CHECK((order_of(row[i].schedule, shape) == order) == row[i].same);
        CHECK_OK(layout_run(&l, i ? &other : &first));
        if (i && row[i].same)
            test_check(layout_same_bits(&first, &other), __FILE__, __LINE__,
                       "%s group %d does not give the bits of %s", row[i].schedule, row[i].group,
                       row[0].schedule);
        if (i)
            layout_result_free(&other);
    }
    layout_result_free(&first);
}

static void same_bits(enum dev_kind dev, enum dtype ct)
{
    static const struct ordered one[] = {{"naive", 0, true}, {"1f1b", 0, true}, {"zb-h1", 0, true},
                                         {"zb-h2", 0, true}, {"interleaved", 0, true},
                                         {"looped-bfs", 0, false}};
    static const struct ordered two[] = {{"interleaved", 0, true}, {"interleaved", 5, true},
                                         {"interleaved", 7, true}, {"looped-bfs", 0, false}};
    if (!dev_built(dev)) {
        test_skip("the device is not built in");
        return;
    }
    check_bits(one, sizeof one / sizeof *one, 1, dev, ct);
    check_bits(two, sizeof two / sizeof *two, 2, dev, ct);
}

static void same_bits_ref(void) { same_bits(DEV_REF, DT_F64); }
static void same_bits_cpu_f32(void) { same_bits(DEV_CPU, DT_F32); }
static void same_bits_cpu_bf16(void) { same_bits(DEV_CPU, DT_BF16); }

static const struct test_case cases[] = {
    {"grid_interleaved", grid_interleaved},
    {"grid_looped_bfs", grid_looped_bfs},
    {"grid_zb_h1", grid_zb_h1},
    {"grid_zb_h2", grid_zb_h2},
    {"groups", groups},
    {"beside_other_axes", beside_other_axes},
    {"same_bits_ref", same_bits_ref},
    {"same_bits_cpu_f32", same_bits_cpu_f32},
    {"same_bits_cpu_bf16", same_bits_cpu_bf16},
};
TEST_MAIN(cases)
