/* SPDX-License-Identifier: Apache-2.0
 *
 * A null device that notes what it is asked for. Each slot writes the call down as whole numbers,
 * hands it to the null device behind it, and takes that one's count. Calls are found again by
 * comparing numbers: a step has a few dozen kinds of call, whatever the number of its layers.
 *
 * copy_in and copy_out go past: on a device with memory of its own they move a few bytes between
 * host and device, which is no kernel.
 */
#include "device/calls.h"

#include "base/mem.h"
#include "device/dev_plain.h"
#include "device/null/null.h"

struct recorder {
    struct dev dev;
    struct dev *null;         /* owned */
    int64_t vocab;
    struct calls_call *call;  /* owned; [n] */
    int n, room;
};

static struct recorder *recorder_of(const struct dev *d)
{
    return d->impl;
}

static enum calls_class class_of(const struct recorder *r, enum calls_op op, const int64_t *size)
{
    if (op == CALL_GEMM && (size[0] == r->vocab || size[1] == r->vocab || size[2] == r->vocab))
        return CLASS_HEAD;
    return calls_op_class(op);
}

static enum err find(struct recorder *r, enum calls_op op, const int64_t *size,
                     struct calls_call **out)
{
    for (int i = 0; i < r->n; i++)
        if (r->call[i].op == op && memcmp(r->call[i].size, size, sizeof r->call[i].size) == 0) {
            *out = &r->call[i];
            return ERR_OK;
        }
    if (r->n == r->room) {
        int room = r->room ? 2 * r->room : 32;
        TRY(mem_grow(r->room, room, sizeof *r->call, "the list of calls", &r->call));
        r->room = room;
    }
    *out = &r->call[r->n++];
    **out = (struct calls_call){.op = op, .class = class_of(r, op, size)};
    memcpy((*out)->size, size, sizeof (*out)->size);
    return ERR_OK;
}

/* The null device has been asked with the result `asked`: note the call. size: CALLS_SIZES. */
static enum err note(struct dev *d, enum calls_op op, const int64_t *size, enum err asked)
{
    struct recorder *r = recorder_of(d);
    struct calls_call *c;
    struct dev_counts counts;
    TRY(asked);
    dev_null_counts(r->null, &counts);
    null_reset(r->null);
    TRY(find(r, op, size, &c));
    c->flops = counts.flops;
    c->bytes = counts.bytes;
    c->count++;
    return ERR_OK;
}

#define SIZES(...) ((const int64_t[CALLS_SIZES]){__VA_ARGS__})

/* `bit` when the optional operand is there. */
static int64_t with(const void *p, int64_t bit)
{
    return p ? bit : 0;
}

static int64_t when(bool yes, int64_t bit)
{
    return yes ? bit : 0;
}

static int64_t or_tight(int64_t ld, int64_t tight)
{
    return ld ? ld : tight;
}

static enum err note_gemm(struct dev *d, const struct gemm *g)
{
    struct dev *null = recorder_of(d)->null;
    int64_t flags = when(g->trans_a, CALL_TRANS_A) | when(g->trans_b, CALL_TRANS_B) |
                    when(g->accumulate, CALL_ACCUMULATE) | when(g->c_at, CALL_WIDE) |
                    with(g->bias, CALL_BIAS) | with(g->db, CALL_DB) |
                    when(g->act == GEMM_GELU, CALL_GELU) | when(g->act == GEMM_DGELU, CALL_DGELU);
    return note(d, CALL_GEMM,
                SIZES(g->m, g->n, g->k, or_tight(g->lda, g->trans_a ? g->m : g->k),
                      or_tight(g->ldb, g->trans_b ? g->k : g->n), or_tight(g->ldc, g->n), flags),
                null->ops->gemm(null, g));
}

static enum err note_bias_grad(struct dev *d, void *db, const void *dy, int64_t n, int64_t c)
{
    struct dev *null = recorder_of(d)->null;
    return note(d, CALL_BIAS_GRAD, SIZES(n, c), null->ops->bias_grad(null, db, dy, n, c));
}

static int64_t norm_flags(const struct norm *a)
{
    return with(a->mean, CALL_MEAN) | with(a->b, CALL_SHIFT) | when(a->rms, CALL_RMS);
}

static enum err note_norm(struct dev *d, const struct norm *a)
{
    struct dev *null = recorder_of(d)->null;
    return note(d, CALL_NORM, SIZES(a->n, a->c, norm_flags(a)), null->ops->norm(null, a));
}

static enum err note_norm_grad(struct dev *d, const struct norm_grad *a)
{
    struct dev *null = recorder_of(d)->null;
    int64_t flags = with(a->mean, CALL_MEAN) | with(a->db, CALL_SHIFT) | when(a->rms, CALL_RMS) |
                    with(a->d, CALL_PLUS);
    return note(d, CALL_NORM_GRAD, SIZES(a->n, a->c, flags), null->ops->norm_grad(null, a));
}

/* long: one line */
static enum err note_attention(struct dev *d, enum calls_op op, const struct attn *a,
                               enum err asked)
{
    return note(d, op, SIZES(a->b, a->tq, a->tk, a->heads, a->kv_heads, a->d, a->ldq, a->ldk,
                             a->ldv, a->ldo, when(a->drop.p > 0, CALL_DROP)), asked);
}

static enum err note_attn(struct dev *d, const struct attn *a)
{
    struct dev *null = recorder_of(d)->null;
    return note_attention(d, CALL_ATTN, a, null->ops->attn(null, a));
}

static enum err note_attn_grad(struct dev *d, const struct attn_grad *a)
{
    struct dev *null = recorder_of(d)->null;
    return note_attention(d, CALL_ATTN_GRAD, &a->f, null->ops->attn_grad(null, a));
}

static enum err note_rope(struct dev *d, const struct rope *a)
{
    struct dev *null = recorder_of(d)->null;
    return note(d, CALL_ROPE, SIZES(a->n, a->t, a->heads, a->d, a->ld,
                                    when(a->inverse, CALL_INVERSE)), null->ops->rope(null, a));
}

static enum err note_swiglu(struct dev *d, void *out, const void *gu, int64_t n, int64_t f)
{
    struct dev *null = recorder_of(d)->null;
    return note(d, CALL_SWIGLU, SIZES(n, f), null->ops->swiglu(null, out, gu, n, f));
}

static enum err note_swiglu_grad(struct dev *d, void *dgu, const void *dout, const void *gu,
                                 int64_t n, int64_t f)
{
    struct dev *null = recorder_of(d)->null;
    return note(d, CALL_SWIGLU_GRAD, SIZES(n, f),
                null->ops->swiglu_grad(null, dgu, dout, gu, n, f));
}

static int64_t residual_flags(const struct residual *a)
{
    return with(a->x, CALL_X) | with(a->bias, CALL_PLUS) | when(a->drop.p > 0, CALL_DROP);
}

static enum err note_residual(struct dev *d, const struct residual *a)
{
    struct dev *null = recorder_of(d)->null;
    return note(d, CALL_RESIDUAL, SIZES(a->n, a->c, residual_flags(a)),
                null->ops->residual(null, a));
}

static enum err note_residual_norm(struct dev *d, const struct residual *a, const struct norm *b)
{
    struct dev *null = recorder_of(d)->null;
    return note(d, CALL_RESIDUAL_NORM, SIZES(a->n, a->c, residual_flags(a) | norm_flags(b)),
                null->ops->residual_norm(null, a, b));
}

static enum err note_dropout(struct dev *d, void *dx, const void *dy, int64_t n, int64_t c,
                             const struct drop *drop)
{
    struct dev *null = recorder_of(d)->null;
    return note(d, CALL_DROPOUT, SIZES(n, c, when(drop->p > 0, CALL_DROP)),
                null->ops->dropout(null, dx, dy, n, c, drop));
}

static enum err note_embed(struct dev *d, void *out, const void *w, const int32_t *token,
                           int64_t n, int64_t c, int64_t v0, int64_t rows)
{
    struct dev *null = recorder_of(d)->null;
    return note(d, CALL_EMBED, SIZES(n, c, rows),
                null->ops->embed(null, out, w, token, n, c, v0, rows));
}

static enum err note_embed_grad(struct dev *d, void *dw, const void *dy, const int32_t *token,
                                int64_t n, int64_t c, int64_t v0, int64_t rows)
{
    struct dev *null = recorder_of(d)->null;
    return note(d, CALL_EMBED_GRAD, SIZES(n, c, rows),
                null->ops->embed_grad(null, dw, dy, token, n, c, v0, rows));
}

static enum err note_pos_add(struct dev *d, void *x, const void *w, int64_t n, int64_t c,
                             int64_t t, int64_t row0)
{
    struct dev *null = recorder_of(d)->null;
    return note(d, CALL_POS_ADD, SIZES(n, c, t), null->ops->pos_add(null, x, w, n, c, t, row0));
}

static enum err note_pos_grad(struct dev *d, void *dw, const void *dy, int64_t n, int64_t c,
                              int64_t t, int64_t row0)
{
    struct dev *null = recorder_of(d)->null;
    return note(d, CALL_POS_GRAD, SIZES(n, c, t),
                null->ops->pos_grad(null, dw, dy, n, c, t, row0));
}

static enum err note_cross(struct dev *d, enum calls_op op, const struct xent *x, enum err asked)
{
    int64_t flags = with(x->dlogits, CALL_MADE) |
                    when(x->dlogits && x->dlogits == x->logits, CALL_IN_PLACE);
    return note(d, op, SIZES(x->n, x->v, x->ld, flags), asked);
}

static enum err note_xent(struct dev *d, const struct xent *x)
{
    struct dev *null = recorder_of(d)->null;
    return note_cross(d, CALL_XENT, x, null->ops->xent(null, x));
}

static enum err note_xent_max(struct dev *d, const struct xent *x)
{
    struct dev *null = recorder_of(d)->null;
    return note_cross(d, CALL_XENT_MAX, x, null->ops->xent_max(null, x));
}

static enum err note_xent_sum(struct dev *d, const struct xent *x)
{
    struct dev *null = recorder_of(d)->null;
    return note_cross(d, CALL_XENT_SUM, x, null->ops->xent_sum(null, x));
}

static enum err note_xent_grad(struct dev *d, const struct xent *x)
{
    struct dev *null = recorder_of(d)->null;
    return note_cross(d, CALL_XENT_GRAD, x, null->ops->xent_grad(null, x));
}

static enum err note_adamw(struct dev *d, const struct adamw *a)
{
    struct dev *null = recorder_of(d)->null;
    return note(d, CALL_ADAMW, SIZES(a->n, with(a->master, CALL_MASTER)),
                null->ops->adamw(null, a));
}

static enum err note_scale(struct dev *d, double *now, const double *sums, double clip)
{
    struct dev *null = recorder_of(d)->null;
    return note(d, CALL_SCALE, SIZES(0), null->ops->scale(null, now, sums, clip));
}

static enum err note_sum(struct dev *d, double *out, const void *x, int64_t n)
{
    struct dev *null = recorder_of(d)->null;
    return note(d, CALL_SUM, SIZES(n), null->ops->sum(null, out, x, n));
}

static enum err note_sumsq(struct dev *d, double *out, const void *x, const struct dev_parts *of)
{
    struct dev *null = recorder_of(d)->null;
    return note(d, CALL_SUMSQ, SIZES(dev_parts_count(of)), null->ops->sumsq(null, out, x, of));
}

static enum err note_cast(struct dev *d, void *to, const void *from, int64_t n)
{
    struct dev *null = recorder_of(d)->null;
    return note(d, CALL_CAST, SIZES(n), null->ops->cast(null, to, from, n));
}

static enum err note_add(struct dev *d, void *to, const void *from, int64_t n)
{
    struct dev *null = recorder_of(d)->null;
    return note(d, CALL_ADD, SIZES(n), null->ops->add(null, to, from, n));
}

static enum err note_copy(struct dev *d, void *to, const void *from, int64_t bytes)
{
    struct dev *null = recorder_of(d)->null;
    return note(d, CALL_COPY, SIZES(bytes), null->ops->copy(null, to, from, bytes));
}

static enum err note_zero(struct dev *d, void *p, int64_t bytes)
{
    struct dev *null = recorder_of(d)->null;
    return note(d, CALL_ZERO, SIZES(bytes), null->ops->zero(null, p, bytes));
}

/* ---- calls that are no kernels ---- */

static enum err past_alloc(struct dev *d, int64_t bytes, const char *name, void **out)
{
    struct dev *null = recorder_of(d)->null;
    return null->ops->alloc(null, bytes, name, out);
}

static void past_free(struct dev *d, void *p)
{
    struct dev *null = recorder_of(d)->null;
    null->ops->free(null, p);
}

/* What was moved is not counted with the next kernel. */
static enum err past_copy_in(struct dev *d, void *to, const void *host_from, int64_t bytes)
{
    struct dev *null = recorder_of(d)->null;
    TRY(null->ops->copy_in(null, to, host_from, bytes));
    null_reset(null);
    return ERR_OK;
}

static enum err past_copy_out(struct dev *d, void *host_to, const void *from, int64_t bytes)
{
    struct dev *null = recorder_of(d)->null;
    TRY(null->ops->copy_out(null, host_to, from, bytes));
    null_reset(null);
    return ERR_OK;
}

static enum err past_sync(struct dev *d)
{
    struct dev *null = recorder_of(d)->null;
    return null->ops->sync(null);
}

static void recorder_describe(const struct dev *d, char *buf, size_t n)
{
    const struct dev *null = recorder_of(d)->null;
    null->ops->describe(null, buf, n);
}

static void recorder_close(struct dev *d)
{
    struct recorder *r = recorder_of(d);
    dev_close(r->null);
    mem_free(r->call);
    mem_free(r);
}

static const struct dev_ops recorder_ops = {
    .name = "recorder",
    .close = recorder_close,
    .describe = recorder_describe,
    .alloc = past_alloc,
    .free = past_free,
    .host_alloc = dev_plain_host_alloc,
    .host_free = dev_plain_host_free,
    .copy_in = past_copy_in,
    .copy_out = past_copy_out,
    .copy = note_copy,
    .zero = note_zero,
    .sync = past_sync,
    .aside = dev_plain_aside,
    .aside_ready = dev_plain_mark,
    .aside_join = dev_plain_mark,
    .aside_reach = dev_plain_aside_reach,
    .mark = dev_plain_mark,
    .reach = dev_plain_mark,
    .stamps = dev_plain_stamps,
    .stamp = dev_plain_stamp,
    .stamped = dev_plain_stamped,
    .queue = dev_plain_queue,
    .room = dev_plain_room,
    .gemm = note_gemm,
    .bias_grad = note_bias_grad,
    .norm = note_norm,
    .norm_grad = note_norm_grad,
    .attn = note_attn,
    .attn_grad = note_attn_grad,
    .rope = note_rope,
    .swiglu = note_swiglu,
    .swiglu_grad = note_swiglu_grad,
    .residual = note_residual,
    .residual_norm = note_residual_norm,
    .dropout = note_dropout,
    .embed = note_embed,
    .embed_grad = note_embed_grad,
    .pos_add = note_pos_add,
    .pos_grad = note_pos_grad,
    .xent = note_xent,
    .xent_max = note_xent_max,
    .xent_sum = note_xent_sum,
    .xent_grad = note_xent_grad,
    .adamw = note_adamw,
    .scale = note_scale,
    .sum = note_sum,
    .sumsq = note_sumsq,
    .cast = note_cast,
    .add = note_add,
};

enum err calls_record_open(const struct dtypes *types, int64_t vocab, struct dev **out)
{
    struct recorder *r;
    enum err err;
    TRY(mem_new(1, sizeof *r, "the recorder of calls", &r));
    struct dev_args a = {.kind = DEV_NULL, .ct = types->ct, .threads = 1};
    TRY_OR(out_free, dev_open(&a, &r->null));
    r->null->types = *types;
    r->dev = *r->null;
    r->dev.ops = &recorder_ops;
    r->dev.impl = r;
    r->vocab = vocab;
    *out = &r->dev;
    return ERR_OK;
out_free:
    mem_free(r);
    return err;
}

void calls_record_reset(struct dev *d)
{
    ENSURE(d->ops == &recorder_ops);
    recorder_of(d)->n = 0;
}

const struct calls_call *calls_recorded(const struct dev *d, int *n)
{
    ENSURE(d->ops == &recorder_ops);
    *n = recorder_of(d)->n;
    return recorder_of(d)->call;
}
