/* SPDX-License-Identifier: Apache-2.0
 *
 * Candidates, buffers and comparison. Buffers are compared whole, gaps between strided rows
 * included: what a kernel must leave alone is checked by its being there still.
 */
#include "parity.h"

#include "base/mem.h"
#include <stdarg.h>

struct candidate {
    const char *label;
    enum dev_kind kind;
    enum dtype ct;
    bool fast; /* not deterministic: what is done again may have other last bits */
};

/* ref itself is one: what aliases, repeats or splits on side 1 and 2 is plain on side 0. */
static const struct candidate candidates[] = {
    {"ref f64", DEV_REF, DT_F64, false},
    {"cpu f32", DEV_CPU, DT_F32, false},
    {"cpu bf16", DEV_CPU, DT_BF16, false},
    {"cuda f32", DEV_CUDA, DT_F32, false},
    {"cuda bf16", DEV_CUDA, DT_BF16, false},
    {"cuda bf16 fast", DEV_CUDA, DT_BF16, true},
};
enum { CANDIDATES = sizeof candidates / sizeof *candidates, THREADS = 2 };

/* NULL when it is not built in or has not the type. Other errors fail the case. */
static struct dev *try_open(const struct candidate *c, enum dev_attn_grad way)
{
    struct dev *d = NULL;
    if (!dev_built(c->kind))
        return NULL;
    struct dev_args args = {.kind = c->kind, .ct = c->ct, .threads = THREADS,
                            .deterministic = !c->fast, .attn_grad = way};
    enum err err = dev_open(&args, &d);
    if (err == ERR_OK)
        return d;
    if (err != ERR_CONFIG)
        CHECK_OK(err);
    return NULL;
}

static void release(struct parity *p)
{
    for (int i = 0; i < p->bufs; i++)
        for (int s = 0; s < PARITY_SIDES; s++)
            p->dev[s]->ops->free(p->dev[s], p->buf[i].on[s]);
    p->bufs = 0;
}

/* False where there is no such device here. */
static bool run_on(const struct candidate *c, enum dev_attn_grad way, const char *name,
                   void (*kernel)(struct parity *p))
{
    struct dev *d = try_open(c, way), *ref = NULL;
    if (!d)
        return false;
    struct dev_args args = {.kind = DEV_REF, .ct = DT_F64, .threads = 1};
    CHECK_OK(dev_open(&args, &ref));
    struct parity p = {.label = c->label, .fast = c->fast, .dev = {ref, d, d},
                       .calc = d->at == DT_F64 ? 1e-13 : 4e-6};
    p.inner = d->ct == DT_BF16 ? 0x1p-8 : p.calc;
    kernel(&p);
    release(&p);
    printf("     %s on %s: worst error %.2g of its bound\n", name, p.label, p.worst);
    dev_close(d);
    dev_close(ref);
    return true;
}

void parity_each(const char *name, void (*kernel)(struct parity *p))
{
    for (int i = 0; i < CANDIDATES; i++)
        run_on(&candidates[i], DEV_GRAD_AUTO, name, kernel);
}

int parity_each_gpu(enum dev_attn_grad way, const char *name, void (*kernel)(struct parity *p))
{
    int ran = 0;
    for (int i = 0; i < CANDIDATES; i++)
        if (candidates[i].kind == DEV_CUDA)
            ran += run_on(&candidates[i], way, name, kernel);
    return ran;
}

void parity_devices(void)
{
    char missing[200] = "not built in, or no such unit here:";
    bool all = true;
    for (int i = 0; i < CANDIDATES; i++) {
        struct dev *d = try_open(&candidates[i], DEV_GRAD_AUTO);
        size_t used = strlen(missing);
        if (!d)
            snprintf(missing + used, sizeof missing - used, "%s %s", all ? "" : ",",
                     candidates[i].label);
        all = all && d;
        dev_close(d);
    }
    if (!all)
        test_skip(missing);
}

void parity_problem(struct parity *p, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(p->what, sizeof p->what, fmt, ap);
    va_end(ap);
    release(p);
}

double *parity_doubles(int64_t n)
{
    double *x = NULL;
    ENSURE(mem_new(n, sizeof *x, "test values", &x) == ERR_OK);
    return x;
}

static enum dtype type_on(const struct parity *p, const struct parity_buf *b, int side)
{
    switch (b->type) {
    case PARITY_CT:
        return p->dev[side]->ct;
    case PARITY_AT:
        return p->dev[side]->at;
    case PARITY_LOGITS:
        return p->dev[side]->logits;
    case PARITY_TOKEN:
        return DT_I32;
    case PARITY_DOUBLE:
        break;
    }
    return DT_F64;
}

struct parity_buf *parity_zero(struct parity *p, enum parity_type type, int64_t n)
{
    ENSURE(p->bufs < PARITY_BUFS);
    struct parity_buf *b = &p->buf[p->bufs++];
    *b = (struct parity_buf){.type = type, .n = n};
    for (int s = 0; s < PARITY_SIDES; s++) {
        struct dev *d = p->dev[s];
        CHECK_OK(d->ops->alloc(d, n * dtype_size(type_on(p, b, s)), "a test buffer", &b->on[s]));
    }
    return b;
}

struct parity_buf *parity_fill(struct parity *p, enum parity_type type, int64_t n, double lo,
                               double hi)
{
    struct parity_buf *b = parity_zero(p, type, n);
    double *x = parity_doubles(n);
    for (int64_t i = 0; i < n; i++)
        x[i] = test_real(lo, hi);
    parity_set(p, b, x);
    mem_free(x);
    return b;
}

/* Writes value i of x as `type`; reads it back. */
static void store(enum dtype type, void *x, int64_t i, double value)
{
    switch (type) {
    case DT_F64:
        ((double *)x)[i] = value;
        break;
    case DT_F32:
        ((float *)x)[i] = (float)value;
        break;
    case DT_BF16:
        ((uint16_t *)x)[i] = bf16_from_f32((float)value);
        break;
    default:
        ENSURE(false);
    }
}

static double load(enum dtype type, const void *x, int64_t i)
{
    switch (type) {
    case DT_F64:
        return ((const double *)x)[i];
    case DT_F32:
        return ((const float *)x)[i];
    case DT_BF16:
        return bf16_to_f32(((const uint16_t *)x)[i]);
    default:
        ENSURE(false);
    }
    return 0;
}

static void copy_to(struct parity *p, const struct parity_buf *b, int side, const double *values)
{
    struct dev *d = p->dev[side];
    enum dtype type = type_on(p, b, side);
    double *raw = parity_doubles(b->n); /* as wide as any type */
    for (int64_t i = 0; i < b->n; i++)
        store(type, raw, i, values[i]);
    CHECK_OK(dev_h2d(d, b->on[side], raw, b->n * dtype_size(type)));
    CHECK_OK(d->ops->sync(d));
    mem_free(raw);
}

void parity_set(struct parity *p, struct parity_buf *b, const double *values)
{
    double *rounded = parity_doubles(b->n);
    enum dtype type = type_on(p, b, 1);
    for (int64_t i = 0; i < b->n; i++) {
        double one;
        store(type, &one, 0, values[i]);
        rounded[i] = load(type, &one, 0);
    }
    for (int s = 0; s < PARITY_SIDES; s++)
        copy_to(p, b, s, rounded);
    mem_free(rounded);
}

void parity_get(struct parity *p, const struct parity_buf *b, int side, double *values)
{
    struct dev *d = p->dev[side];
    enum dtype type = type_on(p, b, side);
    double *raw = parity_doubles(b->n);
    CHECK_OK(d->ops->sync(d));
    CHECK_OK(dev_d2h(d, raw, b->on[side], b->n * dtype_size(type)));
    CHECK_OK(d->ops->sync(d));
    for (int64_t i = 0; i < b->n; i++)
        values[i] = load(type, raw, i);
    mem_free(raw);
}

void parity_set_tokens(struct parity *p, struct parity_buf *b, const int32_t *tokens)
{
    for (int s = 0; s < PARITY_SIDES; s++) {
        struct dev *d = p->dev[s];
        CHECK_OK(dev_h2d(d, b->on[s], tokens, b->n * (int64_t)sizeof *tokens));
        CHECK_OK(d->ops->sync(d));
    }
}

struct parity_buf *parity_step(struct parity *p, uint32_t step)
{
    struct parity_buf *b = parity_zero(p, PARITY_TOKEN, 1);
    parity_set_tokens(p, b, &(int32_t){(int32_t)step});
    return b;
}

void parity_agree(struct parity *p, struct parity_buf *b)
{
    double *x = parity_doubles(b->n);
    parity_get(p, b, 0, x);
    parity_set(p, b, x);
    mem_free(x);
}

void parity_unread(struct parity *p, struct parity_buf *b)
{
    double *x = parity_doubles(b->n);
    for (int64_t i = 0; i < b->n; i++)
        x[i] = NAN;
    parity_set(p, b, x);
    mem_free(x);
}

void *parity_at(const struct parity *p, const struct parity_buf *b, int side, int64_t offset)
{
    if (!b)
        return NULL;
    return (char *)b->on[side] + offset * dtype_size(type_on(p, b, side));
}

double parity_largest(struct parity *p, const struct parity_buf *b)
{
    double *x = parity_doubles(b->n), most = 0;
    parity_get(p, b, 0, x);
    for (int64_t i = 0; i < b->n; i++)
        most = fmax(most, fabs(x[i]));
    mem_free(x);
    return most;
}

static double rounding(enum dtype type)
{
    return type == DT_BF16 ? 0x1p-8 : type == DT_F32 ? 0x1p-23 : 0x1p-51;
}

/* Element of the first difference in value, or -1. NaN is equal to NaN. */
static int64_t first_difference(const double *x, const double *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!(x[i] == y[i] && signbit(x[i]) == signbit(y[i])) && !(isnan(x[i]) && isnan(y[i])))
            return i;
    return -1;
}

static void check_repeat(struct parity *p, const struct parity_buf *b, const double *got)
{
    if (p->fast)
        return;
    double *again = parity_doubles(b->n);
    parity_get(p, b, 2, again);
    int64_t i = first_difference(got, again, b->n);
    test_check(i < 0, __FILE__, __LINE__,
               "%s: %s: element %lld is %.17g, and %.17g when done again or by parts", p->label,
               p->what, (long long)i, i < 0 ? 0 : got[i], i < 0 ? 0 : again[i]);
    mem_free(again);
}

/* `abs` holds one bound for each element, or one for all when `each` is false. */
static void compare(struct parity *p, const struct parity_buf *b, const double *abs, bool each)
{
    double *want = parity_doubles(b->n), *got = parity_doubles(b->n);
    double relative = rounding(type_on(p, b, 1)), worst = 0;
    int64_t where = 0;
    parity_get(p, b, 0, want);
    parity_get(p, b, 1, got);
    for (int64_t i = 0; i < b->n; i++) {
        double bound = relative * fabs(want[i]) + abs[each ? i : 0];
        double e = got[i] == want[i] ? 0 : fabs(got[i] - want[i]) / bound;
        if (!(e <= worst)) { /* NaN counts as worse */
            worst = isnan(e) ? INFINITY : e;
            where = i;
        }
    }
    test_check(worst <= 1, __FILE__, __LINE__,
               "%s: %s: buffer %d element %lld is %.9g, wanted %.9g: %.3g of the bound", p->label,
               p->what, (int)(b - p->buf), (long long)where, b->n ? got[where] : 0,
               b->n ? want[where] : 0, worst);
    p->worst = fmax(p->worst, worst);
    check_repeat(p, b, got);
    mem_free(want);
    mem_free(got);
}

void parity_check(struct parity *p, const struct parity_buf *b, double abs)
{
    compare(p, b, &abs, false);
}

void parity_check_each(struct parity *p, const struct parity_buf *b, const double *abs)
{
    compare(p, b, abs, true);
}

void parity_check_same(struct parity *p, const struct parity_buf *b)
{
    double *want = parity_doubles(b->n), *got = parity_doubles(b->n);
    enum dtype type = type_on(p, b, 1);
    parity_get(p, b, 0, want);
    parity_get(p, b, 1, got);
    for (int64_t i = 0; i < b->n; i++) {
        double one;
        store(type, &one, 0, want[i]);
        want[i] = load(type, &one, 0);
    }
    int64_t i = first_difference(want, got, b->n);
    test_check(i < 0, __FILE__, __LINE__, "%s: %s: buffer %d element %lld is %.17g, wanted %.17g",
               p->label, p->what, (int)(b - p->buf), (long long)i, i < 0 ? 0 : got[i],
               i < 0 ? 0 : want[i]);
    check_repeat(p, b, got);
    mem_free(want);
    mem_free(got);
}
