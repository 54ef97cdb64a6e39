/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls are found again by comparing what their rows list: a step has a few dozen kinds of call,
 * whatever the number of its layers.
 *
 * The operands that one is run on hold random numbers, because a device that multiplies zeros takes
 * less power and runs faster than in training; a block of them is made on the host and doubled on
 * the device until an operand is full. Its length is a prime, so that rows of the usual widths
 * differ from each other. Operands lie to each other as models have them (op_lies).
 */
#include "device/calls.h"

#include "base/mem.h"
#include <math.h>

/* ---- noting ---- */

/* The operation as the list keeps it, longer than what the caller's pointers point to. */
static void strip(const struct op *op, struct op *out)
{
    struct op_operand o[OP_OPERANDS];
    int n = op_rows[op->kind].operands(op, o);
    *out = *op;
    for (int i = 0; i < n; i++) {
        bool apart = o[i].lies == LIES_MAYBE_OVER && !op_is_over(op, o, i);
        void *there = apart ? CALLS_APART : CALLS_THERE;
        op_point(out, &o[i], op_pointer(op, &o[i]) ? there : NULL);
    }
    for (const struct op_field *f = op_rows[op->kind].field; f->name; f++) {
        void *p = (char *)out + f->at;
        if (f->kind == FIELD_DROP)
            *(struct drop *)p = (struct drop){.p = ((struct drop *)p)->p};
        if (f->kind == FIELD_RANGES)
            memcpy(p, &(const struct dev_ranges *){NULL}, sizeof(void *));
    }
}

static bool same(const struct op *a, const struct op *b)
{
    struct op_operand o[OP_OPERANDS];
    bool same = a->kind == b->kind;
    for (const struct op_field *f = op_rows[a->kind].field; same && f->name; f++)
        same = f->kind == FIELD_PLACE || f->kind == FIELD_REAL || f->kind == FIELD_RANGES ||
               op_get(a, f) == op_get(b, f);
    for (int n = same ? op_rows[a->kind].operands(a, o) : 0; same && n > 0; n--)
        same = op_pointer(a, &o[n - 1]) == op_pointer(b, &o[n - 1]);
    return same;
}

/* A few bytes between host and device are no kernel. */
static enum err noted(struct dev_hook *h, struct dev *d, const struct op *op)
{
    struct calls_list *l = (struct calls_list *)h;
    const struct gemm *g = &op->gemm;
    struct op stripped;
    TRY(dev_next(h->next, d, op));
    if (op->kind == OP_H2D || op->kind == OP_D2H || op->kind == OP_SNAPSHOT)
        return ERR_OK;
    strip(op, &stripped);
    for (int i = 0; i < l->n; i++)
        if (same(&l->call[i].op, &stripped)) {
            l->call[i].count++;
            return ERR_OK;
        }
    if (l->n == l->room) {
        int room = l->room ? 2 * l->room : 32;
        TRY(mem_grow(l->room, room, sizeof *l->call, "the list of calls", &l->call));
        l->room = room;
    }
    bool head = op->kind == OP_GEMM && (g->m == l->vocab || g->n == l->vocab || g->k == l->vocab);
    l->call[l->n++] = (struct calls_call){stripped, head ? CLASS_HEAD : op_rows[op->kind].category,
                                          op_flops(op), op_bytes(op, &d->types), 1};
    return ERR_OK;
}

void calls_record(struct calls_list *l, struct dev *d, int64_t vocab)
{
    *l = (struct calls_list){.hook.around = noted, .vocab = vocab};
    dev_hook_put(d, &l->hook);
}

void calls_free(struct calls_list *l, struct dev *d)
{
    if (d)
        dev_hook_take(d, &l->hook);
    mem_free(l->call);
    *l = (struct calls_list){.n = 0};
}

/* ---- running one of them ---- */

enum { BLOCK = 65521, SEED = 1 };

/* Fills an operand of `bytes` at p: numbers of a block, again and again. */
static enum err fill(struct calls_work *w, const struct op_operand *o, char *p, int64_t bytes)
{
    static const double scalars[SCALAR_COUNT] = {[SCALAR_LR] = 1e-4, [SCALAR_BIAS1] = 0.1,
                                                 [SCALAR_BIAS2] = 0.05, [SCALAR_SCALE] = 1e-3};
    struct op_operand as = *o;
    char *host;
    if (o->holds == HOLDS_BYTES)
        as.holds = HOLDS_AT;
    int64_t each = op_element(&as, &w->dev->types), block = num_min(bytes / each, BLOCK);
    int64_t ids = num_max(o->ids, 1);
    enum dtype dt = op_type(&as, &w->dev->types);
    if (block == 0)
        return ERR_OK;
    TRY(mem_new(block, (size_t)each, "random numbers", &host));
    for (int64_t i = 0; i < block; i++) {
        double x = num_normal(SEED, as.holds, i);
        int64_t id = (int64_t)(num_uniform(SEED, as.holds, i) * (double)ids);
        if (as.holds == HOLDS_IDS)
            ((int32_t *)(void *)host)[i] = (int32_t)(o->id0 + num_min(id, ids - 1));
        else if (as.holds == HOLDS_SCALARS)
            dtype_put(host, dt, i, scalars[i]);
        else if (as.holds == HOLDS_SUMS || as.holds == HOLDS_F64)
            dtype_put(host, dt, i, 1);
        else
            dtype_put(host, dt, i, as.holds == HOLDS_POSITIVE ? fabs(x) + 0.1 : x);
    }
    enum err err = dev_h2d(w->dev, p, host, block * each);
    mem_free(host);
    for (int64_t have = block * each; err == ERR_OK && have < bytes; have *= 2)
        err = dev_copy(w->dev, p + have, p, num_min(have, bytes - have));
    return err;
}

/* Columns from row to row. */
static int64_t stride(const struct op_operand *o)
{
    return o->ld ? o->ld : o->cols;
}

/* Bytes of an operand with all that stands between its rows. */
static enum err bytes_of(const struct calls_work *w, const struct op_operand *o, int64_t *out)
{
    int64_t n;
    if (!num_mul(o->rows, stride(o), &n) || !num_mul(n, op_element(o, &w->dev->types), out))
        FAIL(ERR_MEMORY, "bench: an operand of %lld x %lld elements is beyond 63 bits",
             (long long)o->rows, (long long)stride(o));
    return ERR_OK;
}

/* Memory for operand i and those behind it, directly; owned by w. */
static enum err take(struct calls_work *w, const struct op_operand *o, int i, int n, void **out)
{
    int64_t bytes, all = 0, end = 0;
    do {
        TRY(bytes_of(w, &o[i], &bytes));
        if (!num_add(all, bytes, &all))
            FAIL(ERR_MEMORY, "bench: operands are beyond 63 bits");
    } while (++i < n && o[i].lies == LIES_BEHIND && op_pointer(&w->op, &o[i]));
    ENSURE(w->blocks < OP_OPERANDS && num_add(w->bytes, all, &end));
    TRY(w->dev->ops->alloc(w->dev, num_max(all, 1), "an operand", out));
    w->memory[w->blocks++] = *out;
    w->bytes = end;
    return ERR_OK;
}

/* Where operand i lies when that follows from the one before it, or NULL. cols: of the operands
 * that share its rows. */
static void *place(const struct calls_work *w, const struct op_operand *o, int i, int64_t *cols)
{
    const struct op_operand *at = &o[i], *before = i > 0 ? &o[i - 1] : NULL;
    char *p = before ? op_pointer(&w->op, before) : NULL;
    int64_t each = op_element(at, &w->dev->types);
    bool beside = p && at->lies == LIES_BESIDE && at->rows == before->rows &&
                  at->ld == before->ld && *cols + at->cols <= stride(at);
    bool maybe = at->lies == LIES_MAYBE_OVER && op_pointer(&w->op, at) == CALLS_THERE;
    if (at->lies == LIES_OVER || maybe)
        return p;
    if (p && at->lies == LIES_BEHIND)
        return p + before->rows * stride(before) * each;
    if (!beside) {
        *cols = at->cols;
        return NULL;
    }
    *cols += at->cols;
    return p + before->cols * each;
}

static enum err take_operands(struct calls_work *w)
{
    struct op_operand o[OP_OPERANDS];
    int n = op_rows[w->op.kind].operands(&w->op, o);
    int64_t cols = 0, bytes;
    for (int i = 0; i < n; i++) {
        void *p = NULL;
        ENSURE(!o[i].host);
        if (op_pointer(&w->op, &o[i]) && o[i].rows > 0)
            p = place(w, o, i, &cols);
        bool own = op_pointer(&w->op, &o[i]) && o[i].rows > 0 && !p;
        if (own)
            TRY(take(w, o, i, n, &p));
        op_point(&w->op, &o[i], p);
        TRY(bytes_of(w, &o[i], &bytes));
        if (own || (p && o[i].lies == LIES_BEHIND))
            TRY(fill(w, &o[i], p, bytes));
    }
    return ERR_OK;
}

/* The one extent of an operation that has no other and no stride. */
static const struct op_field *flat_extent(const struct op *op)
{
    const struct op_field *found = NULL;
    for (const struct op_field *f = op_rows[op->kind].field; f->name; f++) {
        if (f->kind == FIELD_STRIDE || (f->kind == FIELD_EXTENT && found))
            return NULL;
        if (f->kind == FIELD_EXTENT)
            found = f;
    }
    return found;
}

double calls_part(const struct op *op)
{
    const struct op_field *f = flat_extent(op);
    if (!f || op_get(op, f) <= CALLS_FLAT_MAX)
        return 1;
    return (double)CALLS_FLAT_MAX / (double)op_get(op, f);
}

/* All of a vector with ranges decays: as of a store, in which matrices are nearly all. */
enum err calls_open(struct dev *d, const struct op *op, struct calls_work *w)
{
    *w = (struct calls_work){.dev = d, .op = *op};
    const struct op_field *extent = flat_extent(op);
    const struct dev_ranges *all = &w->all;
    int64_t n = extent ? num_min(op_get(op, extent), CALLS_FLAT_MAX) : 0;
    if (extent)
        memcpy((char *)&w->op + extent->at, &n, sizeof n);
    w->all = (struct dev_ranges){1, {0, n}};
    for (const struct op_field *f = op_rows[op->kind].field; f->name; f++)
        if (f->kind == FIELD_RANGES)
            memcpy((char *)&w->op + f->at, &all, sizeof all);
    enum err err = take_operands(w);
    if (err == ERR_OK && op->kind == OP_ATTN_GRAD)
        err = dev_attn(d, &w->op.attn_grad.f);
    if (err == ERR_OK)
        err = d->ops->sync(d);
    if (err != ERR_OK)
        calls_close(w);
    return err;
}

void calls_close(struct calls_work *w)
{
    for (int i = 0; i < w->blocks; i++)
        w->dev->ops->free(w->dev, w->memory[i]);
    w->blocks = 0;
}
