/* SPDX-License-Identifier: Apache-2.0
 *
 * What is not finite does not vanish. Every operation of every device is given operands in which
 * one element is an infinity or a NaN, in turn each operand and each kind of them, and some element
 * of its results must not be finite either: a device that hides it trains on with a healthy loss.
 * And a row of finite values whose sum of squares overflows is no healthy row.
 *
 * Exceptions, each with its reason, are flags of an operand (enum except). Counts and rates, which
 * the host makes, are no operands here, nor is what an operation does not read by its contract.
 */
#include "base/mem.h"
#include "device/cpu/cpu_impl.h"
#include "nonfinite.h"

/* ---- the property ---- */

static int64_t strange_on(const struct call *c, int side)
{
    int64_t strange = 0;
    for (int i = 0; i < c->outs; i++) {
        double *x = parity_doubles(c->out[i]->n);
        parity_get(c->p, c->out[i], side, x);
        for (int64_t j = 0; j < c->out[i]->n; j++)
            strange += !isfinite(x[j]);
        mem_free(x);
    }
    return strange;
}

/* Runs on a side with results of zeros. */
static void run_on(const struct call *c, int side)
{
    for (int i = 0; i < c->outs; i++) {
        double *zero = parity_doubles(c->out[i]->n);
        parity_set(c->p, c->out[i], zero);
        mem_free(zero);
    }
    c->run(c, side);
}

static double nan_of(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return (double)f;
}

static void poison(struct call *c, struct operand *o, double value)
{
    int64_t where = test_range(0, (o->buf->n - 1) / o->step) * o->step;
    double keep = o->was[where];
    if (o->except == CHOOSES || (o->except == NO_MINUS && value == -INFINITY) ||
        (o->except == NO_PLUS && value > 0))
        return;
    o->was[where] = value;
    parity_set(c->p, o->buf, o->was);
    run_on(c, 1);
    bool shown = strange_on(c, 1) > 0;
    if (!shown && o->except == AS_REF) {
        run_on(c, 0);
        shown = strange_on(c, 0) == 0;
    }
    test_check(shown, __FILE__, __LINE__, "%s: %s: %g as element %d of %s leaves no trace",
               c->p->label, c->p->what, value, (int)where, o->name);
    o->was[where] = keep;
    parity_set(c->p, o->buf, o->was);
}

static void one_call(struct parity *p, void (*make)(struct call *c, int i), int i)
{
    const double values[] = {INFINITY, -INFINITY, nan_of(0xffc00000), nan_of(0x7fffffff)};
    struct call c = {.p = p};
    make(&c, i);
    for (int k = 0; k < c.ins; k++) {
        c.in[k].was = parity_doubles(c.in[k].buf->n);
        parity_get(p, c.in[k].buf, 1, c.in[k].was);
    }
    run_on(&c, 1);
    test_check(strange_on(&c, 1) == 0, __FILE__, __LINE__, "%s: %s: healthy operands, and %d "
               "elements are not finite", p->label, p->what, (int)strange_on(&c, 1));
    for (int k = 0; k < c.ins; k++)
        for (size_t v = 0; v < sizeof values / sizeof *values; v++)
            poison(&c, &c.in[k], values[v]);
    for (int k = 0; k < c.ins; k++)
        mem_free(c.in[k].was);
}

/* The cpu device with each set of vector instructions that this processor has. */
static void each_way(struct parity *p, void (*what)(struct parity *p, const char *way))
{
    if (p->dev[1]->kind != DEV_CPU) {
        what(p, "");
        return;
    }
    struct cpu *cpu = cpu_of(p->dev[1]);
    const struct cpu_simd *best = cpu->simd;
    what(p, best->name);
    if (!cpu->tiles) {
#if defined(__x86_64__)
        cpu->simd = &cpu_simd_v3;
        if (best == &cpu_simd_v4)
            what(p, cpu->simd->name);
#endif
        cpu->simd = &cpu_simd_base;
        if (best != &cpu_simd_base)
            what(p, cpu->simd->name);
    }
    cpu->simd = best;
}

static bool asked[OPS];

static enum err note(struct dev_hook *h, struct dev *d, const struct op *op)
{
    asked[op->kind] = true;
    return dev_next(h->next, d, op);
}

static void every_operation(struct parity *p, const char *way)
{
    struct dev_hook hook = {.around = note};
    dev_hook_put(p->dev[1], &hook);
    for (size_t o = 0; o < sizeof operations / sizeof *operations; o++)
        for (int i = 0; i < operations[o].variants; i++) {
            parity_problem(p, "%s, variant %d %s", operations[o].name, i, way);
            one_call(p, operations[o].make, i);
        }
    dev_hook_take(p->dev[1], &hook);
}

static void traces(struct parity *p)
{
    each_way(p, every_operation);
}

/* ---- overflow ---- */

static void check_row(struct call *c, const struct parity_buf *b, int64_t row, bool healthy)
{
    int64_t each = b->n / c->n, finite = 0;
    double *x = parity_doubles(b->n);
    parity_get(c->p, b, 1, x);
    for (int64_t i = 0; i < each; i++)
        finite += isfinite(x[row * each + i]);
    test_check(finite == (healthy ? each : 0), __FILE__, __LINE__,
               "%s: %s: %d of %d elements of row %d are finite", c->p->label, c->p->what,
               (int)finite, (int)each, (int)row);
    mem_free(x);
}

/* Of a row in the middle the squares overflow, and not the values nor, as their signs alternate,
 * the sum: the row is NaN, its neighbours are healthy; so the gradient of it with these statistics.
 * */
static void overflow(struct parity *p, const char *way)
{
    for (int i = 0; i < 12; i++) {
        struct call c = {.p = p}, g = {.p = p};
        parity_problem(p, "overflow in a norm, variant %d %s", i, way);
        norm_make(&c, i);
        double *x = parity_doubles(c.n * c.c), far = p->dev[1]->at == DT_F64 ? 1e170 : 1e20;
        parity_get(p, c.in[0].buf, 1, x);
        for (int64_t j = 0; j < c.c; j++)
            x[c.c + j] = j % 2 ? far : -far;
        parity_set(p, c.in[0].buf, x);
        run_on(&c, 1);
        norm_grad_make(&g, i % 6);
        parity_get(p, c.out[1], 1, x);
        parity_set(p, g.in[4].buf, x);
        run_on(&g, 1);
        for (int64_t r = 0; r < c.n; r++) {
            check_row(&c, c.out[0], r, r != 1);
            check_row(&c, c.out[1], r, r != 1);
            check_row(&g, g.out[0], r, r != 1);
        }
        CHECK(strange_on(&g, 1) >= 2 * c.c); /* the row of dx, all of dw */
        mem_free(x);
    }
}

static void overflows(struct parity *p)
{
    each_way(p, overflow);
}

static void case_traces(void)
{
    parity_each("what is not finite", traces);
    for (int k = 0; k < OPS; k++)
        test_check(asked[k] || op_rows[k].blind, __FILE__, __LINE__, "%s is not in nonfinite.h",
                   op_rows[k].name);
}

static void case_overflow(void)
{
    parity_each("overflow in a norm", overflows);
}

static const struct test_case cases[] = {
    {"devices", parity_devices},
    {"what is not finite leaves a trace in every operation", case_traces},
    {"a row whose squares overflow is NaN", case_overflow},
};
TEST_MAIN(cases)
