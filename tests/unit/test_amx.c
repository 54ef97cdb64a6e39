/* SPDX-License-Identifier: Apache-2.0
 *
 * The walk over AMX tiles, on any processor: amx_gemm.h with tiles in plain C against sums in
 * double. Sizes stand around every block: a tile, a sweep, a packed block of k, a piece. Where the
 * processor has tiles, the parity tests judge the real ones.
 */
#define AMX_EMULATED
#include "device/cpu/amx_gemm.h"

#include "base/mem.h"
#include "test.h"

#include <math.h>
#include <string.h>

static uint16_t *halves_of(int64_t n)
{
    uint16_t *p;
    CHECK_OK(mem_new(n, sizeof *p, "bf16", &p));
    for (int64_t i = 0; i < n; i++)
        p[i] = bf16_from_f32((float)test_range(-64, 64) / 64.0f);
    return p;
}

/* Stands for the device's: f32 only, no activation. */
static void finish(const struct cpu_gemm *w, struct cpu_target from, const int64_t i[2],
                   const int64_t j[2])
{
    for (int64_t r = i[0]; r < i[1]; r++)
        for (int64_t c = j[0]; c < j[1]; c++)
            ((float *)w->g->c)[r * w->ldc + c] = from.c[(r - i[0]) * from.ld + c - j[0]];
}

static double want(const struct cpu_gemm *w, int64_t i, int64_t j)
{
    const struct gemm *g = w->g;
    const uint16_t *a = g->a, *b = g->b;
    double sum = 0;
    for (int64_t k = 0; k < g->k; k++)
        sum += (double)bf16_to_f32(a[g->trans_a ? k * w->lda + i : i * w->lda + k]) *
               (double)bf16_to_f32(b[g->trans_b ? j * w->ldb + k : k * w->ldb + j]);
    return sum;
}

static int held[2]; /* GEMMs with B, with A held */

/* Runs `w`, cut for `threads`; every element of C and what lies between its rows is looked at. */
static void solve(struct cpu_gemm *w, int threads, float *scratch)
{
    const struct gemm *g = w->g;
    float *c = g->c;
    struct amx_params params = {.w = w, .finish = finish};
    double worst = 0;
    for (int64_t i = 0; i < g->m * w->ldc; i++)
        c[i] = g->accumulate || i % w->ldc >= g->n ? (float)(i % 7) : NAN;
    amx_cut(&params, threads);
    held[params.hold_a]++;
    int64_t pieces = num_ceil_div(g->m, w->rows) * w->across;
    CHECK(threads == 1 || pieces <= 4 * threads || w->rows * w->cols >= AMX_SIDE * AMX_SIDE);
    for (int64_t i = pieces - 1; i >= 0; i--)
        amx_pieces(&params, i, i + 1, scratch);
    for (int64_t i = 0; i < g->m; i++) {
        for (int64_t j = 0; j < w->ldc; j++) {
            double was = (double)((i * w->ldc + j) % 7), got = (double)c[i * w->ldc + j];
            double x = j >= g->n ? was : (g->accumulate ? was : 0) + want(w, i, j);
            worst = isnan(got) ? INFINITY : fmax(worst, fabs(got - x));
        }
    }
    test_check(worst <= 1e-5 * sqrt((double)g->k), __FILE__, __LINE__,
               "m %d n %d k %d trans %d %d accumulate %d threads %d: off by %g", (int)g->m,
               (int)g->n, (int)g->k, g->trans_a, g->trans_b, g->accumulate, threads, worst);
}

static void gemms(const int64_t size[3], int forms)
{
    float *scratch, *c;
    CHECK_OK(mem_new(CPU_SCRATCH_FLOATS, sizeof *scratch, "scratch", &scratch));
    memset(scratch, 0xff, CPU_SCRATCH_FLOATS * sizeof *scratch); /* NaN: unwritten places show */
    for (int form = 0; form < forms; form++) {
        struct gemm g = {.m = size[0], .n = size[1], .k = size[2], .trans_a = form & 1,
                         .trans_b = form & 2, .accumulate = form & 4, .c_at = true};
        struct cpu_gemm w = {.g = &g, .bf16 = true};
        w.lda = (g.trans_a ? g.m : g.k) + test_range(0, 3);
        w.ldb = (g.trans_b ? g.k : g.n) + test_range(0, 3);
        w.ldc = g.n + test_range(0, 3);
        uint16_t *a = halves_of((g.trans_a ? g.k : g.m) * w.lda);
        uint16_t *b = halves_of((g.trans_b ? g.n : g.k) * w.ldb);
        CHECK_OK(mem_new(g.m * w.ldc, sizeof *c, "c", &c));
        g.a = a;
        g.b = b;
        g.c = c;
        solve(&w, form % 3 + 1, scratch);
        mem_free(a);
        mem_free(b);
        mem_free(c);
    }
    mem_free(scratch);
}

static void small(void)
{
    for (int i = 0; i < 30; i++)
        gemms((int64_t[3]){test_range(1, 100), test_range(1, 100), test_range(1, 100)}, 8);
}

static void around_blocks(void)
{
    static const int64_t sizes[][3] = {
        {32, 32, 32}, {33, 31, 1}, {40, 70, 513}, {33, 40, 1024}, {35, 36, 1025}, {5, 400, 1600},
        {3, 1030, 40}, {800, 33, 1100}, {40, 1200, 33}, {36, 500, 1100}, {900, 70, 40},
    };
    for (int i = 0; i < 11; i++)
        gemms(sizes[i], i < 5 ? 8 : 4);
    CHECK(held[0] > 8 && held[1] > 8); /* both ways were met */
}

static const struct test_case cases[] = {
    {"small GEMMs", small},
    {"sizes around the blocks", around_blocks},
};
TEST_MAIN(cases)
