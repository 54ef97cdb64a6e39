/* SPDX-License-Identifier: Apache-2.0
 *
 * The null device plays a model of any size without holding it. An allocation is a range of
 * addresses from a counter, never touched; a kernel is three additions to a count:
 *
 *   calls   one a kernel (memory calls are not kernels);
 *   flops   of products only, two for each multiplication with its addition, as model FLOPs are
 *           counted everywhere: 2 m n k for a product; causal attention by the pairs of query and
 *           key that see each other, 4 d a pair forwards (scores, values), 10 d backwards (scores
 *           again, and four gradients);
 *   bytes   what a kernel must move at least: each operand read or written once, both when it is
 *           added to. Copies and zeroing count here too.
 *
 * copy_out gives zeros, so that a host that reads a loss reads a number.
 */
#include "device/null/null.h"

#include "device/dev_plain.h"

#include "base/mem.h"
#include <stdio.h>

struct null_dev {
    struct dev dev;
    int64_t next; /* address of the next allocation */
    struct dev_counts counts;
};

enum { FIRST_ADDRESS = 1 << 20 }; /* above what could be taken for NULL and an offset */

/* One kernel that moves `ct` and `at` elements of these types, `extra` bytes of others. */
static enum err count(struct dev *d, double flops, double ct, double at, double extra)
{
    struct null_dev *n = d->impl;
    n->counts.calls++;
    n->counts.flops += flops;
    n->counts.bytes += ct * (double)dtype_size(d->ct) + at * (double)dtype_size(d->at) + extra;
    return ERR_OK;
}

static enum err moved(struct dev *d, double bytes)
{
    struct null_dev *n = d->impl;
    n->counts.bytes += bytes;
    return ERR_OK;
}

static double area(int64_t rows, int64_t columns)
{
    return (double)rows * (double)columns;
}

/* 1.0 for an optional operand that is there. */
static double present(const void *p)
{
    return p ? 1.0 : 0.0;
}

static void null_close(struct dev *d)
{
    mem_free(d->impl);
}

void null_describe_kind(char *buf, size_t n)
{
    snprintf(buf, n, "null: no memory and no math, counts FLOPs and bytes; any type");
}

static void null_describe(const struct dev *d, char *buf, size_t n)
{
    snprintf(buf, n, "null: no memory and no math, counts FLOPs and bytes as %s",
             dtype_name(d->ct));
}

static enum err null_alloc(struct dev *d, int64_t bytes, const char *name, void **out)
{
    struct null_dev *n = d->impl;
    int64_t end;
    if (!num_add(n->next, bytes == 0 ? 1 : bytes, &end) ||
        !num_round_up(end, ARENA_ALIGN, &end))
        FAIL(ERR_MEMORY, "memory: %lld bytes for %s on the null device, after %lld, are beyond 63 "
                         "bits", (long long)bytes, name, (long long)n->next);
    *out = (void *)(uintptr_t)n->next;
    n->next = end;
    return ERR_OK;
}

static void null_free(struct dev *d, void *p)
{
    (void)d;
    (void)p;
}

static enum err null_copy_in(struct dev *d, void *to, const void *host_from, int64_t bytes)
{
    (void)to;
    (void)host_from;
    return moved(d, (double)bytes);
}

static enum err null_copy_out(struct dev *d, void *host_to, const void *from, int64_t bytes)
{
    (void)from;
    if (bytes > 0)
        memset(host_to, 0, (size_t)bytes);
    return moved(d, (double)bytes);
}

static enum err null_copy(struct dev *d, void *to, const void *from, int64_t bytes)
{
    (void)to;
    (void)from;
    return moved(d, 2.0 * (double)bytes);
}

static enum err null_zero(struct dev *d, void *p, int64_t bytes)
{
    (void)p;
    return moved(d, (double)bytes);
}

static enum err null_sync(struct dev *d)
{
    (void)d;
    return ERR_OK;
}

static enum err null_gemm(struct dev *d, const struct gemm *g)
{
    double c = area(g->m, g->n) * (g->accumulate ? 2.0 : 1.0);
    double ct = area(g->m, g->k) + area(g->k, g->n) + present(g->bias) * (double)g->n;
    if (g->act != GEMM_NONE)
        ct += area(g->m, g->n);
    double at = (g->c_at ? c : 0.0) + present(g->db) * (g->accumulate ? 2.0 : 1.0) * (double)g->m;
    return count(d, 2.0 * area(g->m, g->n) * (double)g->k, ct + (g->c_at ? 0.0 : c), at, 0);
}

static enum err null_bias_grad(struct dev *d, void *db, const void *dy, int64_t n, int64_t c)
{
    (void)db;
    (void)dy;
    return count(d, 0, area(n, c), 2.0 * (double)c, 0);
}

static enum err null_norm(struct dev *d, const struct norm *a)
{
    return count(d, 0, 2.0 * area(a->n, a->c) + (1.0 + present(a->b)) * (double)a->c,
                 (1.0 + present(a->mean)) * (double)a->n, 0);
}

static enum err null_norm_grad(struct dev *d, const struct norm_grad *a)
{
    return count(d, 0, (3.0 + present(a->d)) * area(a->n, a->c) + (double)a->c,
                 (1.0 + present(a->db)) * (double)a->c +
                     (1.0 + present(a->mean)) * (double)a->n, 0);
}

/* Pairs of query and key that see each other, over all sequences and heads. */
static double pairs(const struct attn *a)
{
    double first = (double)(a->tk - a->tq + 1), last = (double)a->tk;
    return area(a->b, a->heads) * (double)a->tq * (first + last) / 2.0;
}

static double query_elements(const struct attn *a)
{
    return area(a->b, a->tq) * area(a->heads, a->d);
}

static double key_elements(const struct attn *a)
{
    return area(a->b, a->tk) * area(a->kv_heads, a->d);
}

static enum err null_attn(struct dev *d, const struct attn *a)
{
    return count(d, 4.0 * (double)a->d * pairs(a),
                 2.0 * query_elements(a) /* q o */ + 2.0 * key_elements(a) /* k v */,
                 area(a->b, a->tq) * (double)a->heads, 0);
}

static enum err null_attn_grad(struct dev *d, const struct attn_grad *g)
{
    const struct attn *a = &g->f;
    return count(d, 10.0 * (double)a->d * pairs(a),
                 4.0 * query_elements(a) /* q o do dq */ + 4.0 * key_elements(a) /* k v dk dv */,
                 2.0 * area(a->b, a->tq) * (double)a->heads /* lse delta */, 0);
}

static enum err null_rope(struct dev *d, const struct rope *a)
{
    return count(d, 0, 2.0 * (double)a->n * area(a->heads, a->d),
                 area(num_min(a->n, a->t), a->d), 0);
}

static enum err null_swiglu(struct dev *d, void *out, const void *gu, int64_t n, int64_t f)
{
    (void)out;
    (void)gu;
    return count(d, 0, 3.0 * area(n, f), 0, 0);
}

static enum err null_swiglu_grad(struct dev *d, void *dgu, const void *dout, const void *gu,
                                 int64_t n, int64_t f)
{
    (void)dgu;
    (void)dout;
    (void)gu;
    return count(d, 0, 5.0 * area(n, f), 0, 0);
}

static double residual_elements(const struct residual *a)
{
    return (2.0 + present(a->x)) * area(a->n, a->c) + present(a->bias) * (double)a->c;
}

static enum err null_residual(struct dev *d, const struct residual *a)
{
    return count(d, 0, residual_elements(a), 0, 0);
}

/* The norm's input is at hand: it is not read again. */
static enum err null_residual_norm(struct dev *d, const struct residual *a, const struct norm *b)
{
    return count(d, 0, residual_elements(a) + area(b->n, b->c) +
                           (1.0 + present(b->b)) * (double)b->c,
                 (1.0 + present(b->mean)) * (double)b->n, 0);
}

static enum err null_dropout(struct dev *d, void *dx, const void *dy, int64_t n, int64_t c,
                             const struct drop *drop)
{
    (void)dx;
    (void)dy;
    (void)drop;
    return count(d, 0, 2.0 * area(n, c), 0, 0);
}

static enum err null_embed(struct dev *d, void *out, const void *w, const int32_t *token,
                           int64_t n, int64_t c, int64_t v0, int64_t rows)
{
    (void)out;
    (void)w;
    (void)token;
    (void)v0;
    (void)rows;
    return count(d, 0, 2.0 * area(n, c), 0, 4.0 * (double)n);
}

static enum err null_embed_grad(struct dev *d, void *dw, const void *dy, const int32_t *token,
                                int64_t n, int64_t c, int64_t v0, int64_t rows)
{
    (void)dw;
    (void)dy;
    (void)token;
    (void)v0;
    (void)rows;
    return count(d, 0, area(n, c), 2.0 * area(n, c), 4.0 * (double)n);
}

static enum err null_pos_add(struct dev *d, void *x, const void *w, int64_t n, int64_t c,
                             int64_t t, int64_t row0)
{
    (void)x;
    (void)w;
    (void)row0;
    return count(d, 0, 2.0 * area(n, c) + area(num_min(n, t), c), 0, 0);
}

static enum err null_pos_grad(struct dev *d, void *dw, const void *dy, int64_t n, int64_t c,
                              int64_t t, int64_t row0)
{
    (void)dw;
    (void)dy;
    (void)row0;
    return count(d, 0, area(n, c), 2.0 * area(num_min(n, t), c), 0);
}

/* Bytes of an element of the logits, in elements of at. */
static double logits_share(const struct dev *d)
{
    return (double)dtype_size(d->logits) / (double)dtype_size(d->at);
}

static enum err null_xent(struct dev *d, const struct xent *x)
{
    return count(d, 0, present(x->dlogits) * area(x->n, x->ld),
                 logits_share(d) * area(x->n, x->v) + 4.0 * (double)x->n /* max sum hit loss */,
                 4.0 * (double)x->n);
}

static enum err null_scale(struct dev *d, double *now, const double *sums, double clip)
{
    (void)now;
    (void)sums;
    (void)clip;
    return moved(d, (SUMS_COUNT + 1) * (double)sizeof *now);
}

static enum err null_xent_max(struct dev *d, const struct xent *x)
{
    return count(d, 0, 0, logits_share(d) * area(x->n, x->v) + (double)x->n, 0);
}

static enum err null_xent_sum(struct dev *d, const struct xent *x)
{
    return count(d, 0, 0, logits_share(d) * area(x->n, x->v) + 3.0 * (double)x->n /* max sum hit */,
                 4.0 * (double)x->n);
}

static enum err null_xent_grad(struct dev *d, const struct xent *x)
{
    double made = present(x->dlogits);
    return count(d, 0, made * area(x->n, x->ld),
                 made * logits_share(d) * area(x->n, x->v) +
                     4.0 * (double)x->n /* max sum hit loss */,
                 4.0 * (double)x->n);
}

static enum err null_adamw(struct dev *d, const struct adamw *a)
{
    double n = (double)a->n;
    if (a->master) /* the copy in ct is only written */
        return count(d, 0, n, 7.0 * n /* grad; m v master twice */, 0);
    return count(d, 0, 2.0 * n, 5.0 * n, 0);
}

static enum err null_sum(struct dev *d, double *out, const void *x, int64_t n)
{
    (void)out;
    (void)x;
    return count(d, 0, 0, (double)n, 2.0 * (double)sizeof *out);
}

static enum err null_sumsq(struct dev *d, double *out, const void *x, const struct dev_parts *of)
{
    return null_sum(d, out, x, dev_parts_count(of));
}

static enum err null_cast(struct dev *d, void *to, const void *from, int64_t n)
{
    (void)to;
    (void)from;
    return count(d, 0, (double)n, (double)n, 0);
}

static enum err null_add(struct dev *d, void *to, const void *from, int64_t n)
{
    (void)to;
    (void)from;
    return count(d, 0, 0, 3.0 * (double)n, 0);
}

static const struct dev_ops null_ops = {
    .name = "null",
    .close = null_close,
    .describe = null_describe,
    .alloc = null_alloc,
    .free = null_free,
    .host_alloc = dev_plain_host_alloc,
    .host_free = dev_plain_host_free,
    .copy_in = null_copy_in,
    .copy_out = null_copy_out,
    .copy = null_copy,
    .zero = null_zero,
    .sync = null_sync,
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
    .gemm = null_gemm,
    .bias_grad = null_bias_grad,
    .norm = null_norm,
    .norm_grad = null_norm_grad,
    .attn = null_attn,
    .attn_grad = null_attn_grad,
    .rope = null_rope,
    .swiglu = null_swiglu,
    .swiglu_grad = null_swiglu_grad,
    .residual = null_residual,
    .residual_norm = null_residual_norm,
    .dropout = null_dropout,
    .embed = null_embed,
    .embed_grad = null_embed_grad,
    .pos_add = null_pos_add,
    .pos_grad = null_pos_grad,
    .xent_max = null_xent_max,
    .xent_sum = null_xent_sum,
    .xent_grad = null_xent_grad,
    .xent = null_xent,
    .adamw = null_adamw,
    .scale = null_scale,
    .sum = null_sum,
    .sumsq = null_sumsq,
    .cast = null_cast,
    .add = null_add,
};

enum err null_open(const struct dev_args *a, struct dev **out)
{
    struct null_dev *n;
    if (a->ct != DT_F64 && a->ct != DT_F32 && a->ct != DT_BF16)
        FAIL(ERR_CONFIG, "device: null was asked to compute in %s; use f64, f32 or bf16",
             dtype_name(a->ct));
    TRY(mem_new(1, sizeof *n, "the null device", &n));
    n->next = FIRST_ADDRESS;
    n->dev = (struct dev){.ops = &null_ops,
                          .kind = DEV_NULL,
                          .types = dev_types(DEV_NULL, a->ct),
                          .threads = a->threads,
                          .impl = n};
    *out = &n->dev;
    return ERR_OK;
}

void dev_null_counts(const struct dev *d, struct dev_counts *out)
{
    ENSURE(d->kind == DEV_NULL);
    *out = ((const struct null_dev *)d->impl)->counts;
}

void null_reset(struct dev *d)
{
    struct null_dev *n = d->impl;
    n->counts = (struct dev_counts){0};
}
