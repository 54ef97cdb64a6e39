/* SPDX-License-Identifier: Apache-2.0
 *
 * Figures of `plait bench` by hand: what calls of known lengths make of a step, what a link
 * carries, and the ceilings of a device whose calls take a time that is given.
 */
#include "study/bench.h"
#include "program.h"
#include "test.h"

#include <unistd.h>

static void keep_line(void *arg, const char *line)
{
    text_add(arg, "%s\n", line);
}

static void says(const struct text *page, const char *part)
{
    test_check(page->s && strstr(page->s, part), __FILE__, __LINE__, "no \"%s\" in: %s", part,
               page->s ? page->s : "nothing");
}

/* At 1 TFLOP/s and 1 GB/s a GEMM of 4 GFLOP and 2 MB has a floor of 4 ms, and one of 1 MFLOP and
 * 5 MB one of 5 ms: three and two of them have 12 and 10, and take 24 and 25. */
static void a_step_by_hand(void)
{
    struct text page = {0};
    struct options o;
    CHECK_OK(conf_defaults(&options_table, &o));
    struct plait_bench a = {.on_line = keep_line, .arg = &page};
    struct bench_call call[] = {
        {{.class = CLASS_GEMM, .count = 3, .flops = 4e9, .bytes = 2e6}, 0.008},
        {{.class = CLASS_OPTIM, .count = 2, .flops = 1e6, .bytes = 5e6}, 0.0125}};
    struct bench b = {.o = &o, .a = &a, .gemm = 1e12, .copy = 1e9, .call = call, .calls = 2,
                      .tokens = 1000};
    char line[2][128];
    CHECK_NEAR(bench_floor(&b, &call[0].call), 4e-3, 1e-15);
    CHECK_NEAR(bench_floor(&b, &call[1].call), 5e-3, 1e-15);
    bench_report_classes(&b);
    snprintf(line[0], sizeof line[0], "%-20s        0.012        0.006      12.00      24.00   "
             "49.0 %%     50.0 %%\n", op_class_name(CLASS_GEMM));
    snprintf(line[1], sizeof line[1], "%-20s        0.000        0.010      10.00      25.00   "
             "51.0 %%     40.0 %%\n", op_class_name(CLASS_OPTIM));
    says(&page, line[0]);
    says(&page, line[1]);
    says(&page, "all                         0.012        0.016      22.00      49.00  100.0 %     "
                "44.9 %\n");
    says(&page, "step of 1000 tokens on one rank; ceilings 1.00 TFLOP/s, 1.0 GB/s\n");
    says(&page, "floor 45455 tokens/s\n");
    says(&page, "calls one behind the other 20408 tokens/s\n");
    CHECK_OK(conf_set(&options_table, &o, "model.kind=mlp"));
    CHECK_OK(conf_set(&options_table, &o, "model.widths=8,6,4"));
    CHECK_OK(conf_set(&options_table, &o, "parallel.pp=2"));
    bench_report_classes(&b);
    says(&page, "step of 1000 rows on one rank; ceilings 1.00 TFLOP/s, 1.0 GB/s\n"
                "parallel.pp 2 is passed over: this rank has all 2 layers\n");
    says(&page, "floor 45455 rows/s\n");
    text_free(&page);
}

/* Each of four ranks must send three quarters of a buffer that is gathered or scattered, or of
 * which each gets a part, and both to sum it. */
static void links_by_hand(void)
{
    struct bench b = {.ranks = 4};
    const struct bench_point p = {8000, 2};
    CHECK_NEAR(bench_bus(&b, LINK_ALL_REDUCE, &p), 6000, 1e-9);
    CHECK_NEAR(bench_bus(&b, LINK_ALL_GATHER, &p), 3000, 1e-9);
    CHECK_NEAR(bench_bus(&b, LINK_REDUCE_SCATTER, &p), 3000, 1e-9);
    CHECK_NEAR(bench_bus(&b, LINK_ALL_TO_ALL, &p), 3000, 1e-9);
    CHECK_NEAR(bench_bus(&b, LINK_SEND, &p), 4000, 1e-9);
}

enum { MS = 30 }; /* that a call takes */

static bool copies_are_slow;
static const struct dev_ops *real;

static enum err slow_run(struct dev *d, const struct op *op)
{
    if (op->kind != OP_GEMM && (op->kind != OP_COPY || !copies_are_slow))
        return real->run(d, op);
    usleep(MS * 1000);
    return ERR_OK;
}

/* Of a call of 3 GFLOP and 0.6 GB, at 1 TFLOP/s and 100 GB/s: its bytes take 6 ms, and its FLOPs
 * half of that. */
static void check_call(struct dev *d, const struct plait_bench *a)
{
    const struct gemm g = {.m = 512, .n = 512, .k = 512, .c = CALLS_THERE, .a = CALLS_THERE,
                           .b = CALLS_THERE};
    struct bench_call call = {.call = {.op = {.kind = OP_GEMM, .gemm = g}, .count = 3,
                                       .flops = 3e9, .bytes = 6e8}};
    struct bench b = {.a = a, .gemm = 1e12, .copy = 1e11, .call = &call, .calls = 1};
    struct text *page = a->arg;
    double us, tflops, gbytes, ceiling;
    long long times;
    CHECK_OK(bench_kernels(&b, d));
    says(page, " times         us   TFLOP/s      GB/s  ceiling\n");
    const char *row = strchr(page->s + 1, '\n');
    if (CHECK(row && strlen(row) > 66 && sscanf(row + 66, "%lld %lf %lf %lf %lf", &times, &us,
                                                &tflops, &gbytes, &ceiling) == 5)) {
        CHECK_INT(times, 3);
        CHECK_NEAR(us, 1e6 * call.seconds, 0.06);
        CHECK_NEAR(tflops, 3e-3 / call.seconds, 0.006);
        CHECK_NEAR(gbytes, 0.6 / call.seconds, 0.06);
        CHECK_NEAR(ceiling, 100 * 6e-3 / call.seconds, 0.06);
    }
}

/* A GEMM of n cubed is 2 n^3 FLOPs, a copy reads and writes. A sleep is never shorter than was
 * asked for; one that is nearly twice as long as that is tried again. */
static void ceilings_by_hand(void)
{
    struct dev *d;
    struct text page = {0};
    char line[2][96];
    struct plait_bench a = {.seconds = 1e-3, .on_line = keep_line, .arg = &page};
    const double s = MS * 1e-3, gemm = 2.0 * 512 * 512 * 512 / s;
    const double copy = 2.0 * CALLS_FLAT_MAX / s;
    struct bench b = {.gemm = 0};
    CHECK_OK(dev_open(&(struct dev_args){.kind = DEV_CPU, .ct = DT_F32, .threads = 1}, &d));
    real = d->ops;
    struct dev_ops slow = *real;
    slow.run = slow_run;
    copies_are_slow = true;
    d->ops = &slow;
    for (int i = 0; i < 5 && !(b.gemm > 0.6 * gemm && b.copy > 0.6 * copy); i++) {
        b = (struct bench){.a = &a};
        CHECK_OK(bench_ceilings(&b, d));
    }
    CHECK_INT(b.gemm_side, 512);
    CHECK(b.gemm > 0.6 * gemm && b.gemm <= gemm);
    CHECK(b.copy > 0.6 * copy && b.copy <= copy);
    snprintf(line[0], sizeof line[0], "\nGEMMs     %.2f TFLOP/s, 512 cubed, ", b.gemm * 1e-12);
    snprintf(line[1], sizeof line[1], "\ncopy      %.1f GB/s, read and written, ", b.copy * 1e-9);
    says(&page, line[0]);
    says(&page, line[1]);
    text_free(&page);
    copies_are_slow = false; /* what fills operands takes its own time */
    check_call(d, &a);
    text_free(&page);
    d->ops = real;
    dev_close(d);
}

/* Ceilings are given in TFLOP/s and GB/s, and each moves the floor. */
static void units_of_given_ceilings(void)
{
    static const struct { const char *gemm, *copy, *says; } of[] = {
        {"790", "4300", "; ceilings 790.00 TFLOP/s, 4300.0 GB/s\n"},
        {"0.25", "12.5", "; ceilings 0.25 TFLOP/s, 12.5 GB/s\n"}};
    static struct outcome r;
    for (int i = 0; i < 2; i++) {
        RUN(&r, "bench", "model.vocab=300", "model.layers=1", "model.hidden=8", "model.heads=2",
            "model.seq=16", "--gemm", of[i].gemm, "--copy", of[i].copy);
        test_check(r.code == 0 && strstr(r.out, of[i].says), __FILE__, __LINE__,
                   "code %d, no \"%s\" in: %s%s", r.code, of[i].says, r.out, r.err);
    }
}

static const struct test_case cases[] = {{"units_of_given_ceilings", units_of_given_ceilings},
                                         {"a_step_by_hand", a_step_by_hand},
                                         {"links_by_hand", links_by_hand},
                                         {"ceilings_by_hand", ceilings_by_hand}};
TEST_MAIN(cases)
