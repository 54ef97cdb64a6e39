/* SPDX-License-Identifier: Apache-2.0
 *
 * The operations of the device: each makes the arguments of a task, says what an item is and how
 * many there are, and lets the pool run it. A grain is the number of items worth a hand-out: small
 * enough to balance, large enough that the counter is not what is measured.
 */
#include "device/cpu/cpu_amx.h"
#include "device/cpu/cpu_impl.h"

#include <string.h>

enum { GRAIN_ELEMENTS = 16384 }; /* elements of a hand-out of the kernels that stream memory */

/* size: rows, and elements of each. */
static void run_rows(struct cpu *p, cpu_task_fn *fn, const void *arg, const int64_t size[2])
{
    cpu_pool_run(p->pool, fn, arg, size[0], num_max(1, GRAIN_ELEMENTS / num_max(1, size[1])));
}

/* Groups of columns, as many as the threads allow: each hand-out walks all rows. */
static void run_columns(struct cpu *p, cpu_task_fn *fn, const void *arg, int64_t c)
{
    int64_t groups = num_ceil_div(c, CPU_COLS);
    cpu_pool_run(p->pool, fn, arg, groups, num_ceil_div(groups, p->dev.threads));
}

/* Runs of a flat vector of n elements. */
static void run_flat(struct cpu *p, cpu_task_fn *fn, const void *arg, int64_t n)
{
    cpu_pool_run(p->pool, fn, arg, num_ceil_div(n, CPU_RUN), GRAIN_ELEMENTS / CPU_RUN);
}

void cpu_bias_grad(struct cpu *p, const struct bias_grad *a)
{
    struct cpu_rows w = {.y = a->db, .f = a->dy, .n = a->n, .c = a->c, .bf16 = p->bf16};
    run_columns(p, p->simd->bias_grad, &w, a->c);
}

void cpu_norm(struct cpu *p, const struct norm *a)
{
    struct cpu_norm w = {*a, p->bf16};
    run_rows(p, p->simd->norm, &w, (int64_t[2]){a->n, a->c});
}

/* The sums over rows come first: dx may be x, and then x is gone. */
void cpu_norm_grad(struct cpu *p, const struct norm_grad *a)
{
    struct cpu_norm_grad w = {*a, p->bf16};
    memset(a->dw, 0, (size_t)(a->c * dtype_size(p->dev.at)));
    if (a->db)
        memset(a->db, 0, (size_t)(a->c * dtype_size(p->dev.at)));
    run_columns(p, p->simd->norm_sums, &w, a->c);
    run_rows(p, p->simd->norm_grad, &w, (int64_t[2]){a->n, a->c});
}

void cpu_attn(struct cpu *p, const struct attn *a)
{
    struct cpu_attn w = {*a, p->bf16};
    if (p->tiles) {
        cpu_amx_attn(p, a);
        return;
    }
    int64_t tiles = num_ceil_div(a->tq, p->simd->attn_queries);
    cpu_pool_run(p->pool, p->simd->attn, &w, a->b * a->heads * tiles, 1);
}

/* Whole kv heads where there are enough of them for the threads and dq fits the scratch; else by
 * tiles, which gives the same bits (simd_attn.h). */
void cpu_attn_grad(struct cpu *p, const struct attn_grad *g)
{
    const struct attn *a = &g->f;
    struct cpu_attn_grad w = {*g, p->bf16};
    int64_t wide = num_ceil_div(a->d, p->simd->gemm_cols) * p->simd->gemm_cols;
    int64_t threads = p->dev.threads, heads = a->b * a->kv_heads;
    int64_t group = a->heads / a->kv_heads;
    run_rows(p, p->simd->attn_delta, &w, (int64_t[2]){a->b * a->tq, a->heads * a->d});
    if (p->tiles) {
        cpu_amx_attn_grad(p, g);
        return;
    }
    if (group * a->tq * wide <= CPU_DQ_FLOATS && (threads == 1 || heads >= 2 * threads)) {
        cpu_pool_run(p->pool, p->simd->attn_grad, &w, heads, 1);
        return;
    }
    int64_t keys = num_ceil_div(a->tk, p->simd->attn_keys);
    int64_t queries = num_ceil_div(a->tq, p->simd->attn_queries);
    cpu_pool_run(p->pool, p->simd->attn_grad_keys, &w, heads * keys, 1);
    cpu_pool_run(p->pool, p->simd->attn_grad_queries, &w, a->b * a->heads * queries, 1);
}

void cpu_rope(struct cpu *p, const struct rope *a)
{
    struct cpu_rope w = {*a, p->bf16};
    run_rows(p, p->simd->rope, &w, (int64_t[2]){a->n, a->heads * a->d});
}

void cpu_swiglu(struct cpu *p, const struct swiglu *a)
{
    struct cpu_swiglu w = {.out = a->out, .gu = a->gu, .n = a->n, .f = a->f, .bf16 = p->bf16};
    run_rows(p, p->simd->swiglu, &w, (int64_t[2]){a->n, 2 * a->f});
}

void cpu_swiglu_grad(struct cpu *p, const struct swiglu_grad *a)
{
    struct cpu_swiglu w = {.out = a->dgu, .dout = a->dout, .gu = a->gu, .n = a->n, .f = a->f,
                           .bf16 = p->bf16};
    run_rows(p, p->simd->swiglu_grad, &w, (int64_t[2]){a->n, 2 * a->f});
}

void cpu_relu_grad(struct cpu *p, const struct relu_grad *a)
{
    struct cpu_relu w = {*a, p->bf16};
    run_flat(p, p->simd->relu, &w, a->n);
}

/* Its gradient where dy is x. */
void cpu_relu(struct cpu *p, const struct relu *a)
{
    cpu_relu_grad(p, &(struct relu_grad){a->y, a->x, a->x, a->n});
}

void cpu_residual(struct cpu *p, const struct residual *a)
{
    struct cpu_rows w = {.y = a->y, .x = a->x, .f = a->f, .bias = a->bias, .n = a->n, .c = a->c,
                         .bf16 = p->bf16};
    if (a->drop.p > 0.0)
        w.drop = a->drop;
    run_rows(p, p->simd->residual, &w, (int64_t[2]){a->n, a->c});
}

void cpu_dropout(struct cpu *p, const struct dropout *a)
{
    cpu_residual(
        p, &(struct residual){.y = a->dx, .f = a->dy, .n = a->n, .c = a->c, .drop = a->drop});
}

void cpu_embed(struct cpu *p, const struct embed *a)
{
    struct cpu_table t = {.to = a->out, .from = a->w, .token = a->token, .n = a->n, .c = a->c,
                          .v0 = a->v0, .rows = a->rows, .bf16 = p->bf16};
    run_rows(p, p->simd->embed, &t, (int64_t[2]){a->n, a->c});
}

void cpu_embed_grad(struct cpu *p, const struct embed_grad *a)
{
    struct cpu_table t = {.to = a->dw, .from = a->dy, .token = a->token, .n = a->n, .c = a->c,
                          .v0 = a->v0, .rows = a->rows, .bf16 = p->bf16};
    run_columns(p, p->simd->embed_grad, &t, a->c);
}

void cpu_pos_add(struct cpu *p, const struct pos_add *a)
{
    struct cpu_table w = {.to = a->x, .from = a->w, .n = a->n, .c = a->c, .rows = a->t,
                          .row0 = a->row0, .bf16 = p->bf16};
    run_rows(p, p->simd->pos_add, &w, (int64_t[2]){a->n, a->c});
}

void cpu_pos_grad(struct cpu *p, const struct pos_grad *a)
{
    struct cpu_table w = {.to = a->dw, .from = a->dy, .n = a->n, .c = a->c, .rows = a->t,
                          .row0 = a->row0, .bf16 = p->bf16};
    run_columns(p, p->simd->pos_grad, &w, a->c);
}

void cpu_xent_max(struct cpu *p, const struct xent *x)
{
    struct cpu_xent w = {*x, p->bf16};
    run_rows(p, p->simd->xent_max, &w, (int64_t[2]){x->n, x->v});
}

void cpu_xent_sum(struct cpu *p, const struct xent *x)
{
    struct cpu_xent w = {*x, p->bf16};
    run_rows(p, p->simd->xent_sum, &w, (int64_t[2]){x->n, x->v});
}

void cpu_xent_grad(struct cpu *p, const struct xent *x)
{
    struct cpu_xent w = {*x, p->bf16};
    run_rows(p, p->simd->xent_grad, &w, (int64_t[2]){x->n, x->v});
}

void cpu_adamw(struct cpu *p, const struct adamw *a)
{
    struct cpu_adamw w = {*a, p->bf16};
    if (!isfinite(a->step_scalars[SCALAR_SCALE]))
        return;
    run_flat(p, p->simd->adamw, &w, a->n);
}

/* A fixed number of pieces, whose sums are added in order: no dependence on threads. */
static void sum_pieces(struct cpu *p, cpu_task_fn *fn, struct cpu_flat *w, double *out)
{
    w->piece = num_max(CPU_RUN, num_ceil_div(w->n, CPU_PARTIALS));
    w->partial = p->partial;
    int64_t pieces = num_ceil_div(w->n, w->piece);
    cpu_pool_run(p->pool, fn, w, pieces, num_max(1, GRAIN_ELEMENTS / w->piece));
    double sum = 0.0;
    for (int64_t i = 0; i < pieces; i++)
        sum += p->partial[i];
    *out += sum;
}

void cpu_sum(struct cpu *p, const struct sum *a)
{
    struct cpu_flat w = {.from = a->x, .n = a->n};
    sum_pieces(p, p->simd->sum, &w, a->out);
}

void cpu_sumsq(struct cpu *p, const struct sumsq *a)
{
    for (int i = 0; i < a->of->n; i++) {
        int64_t begin = a->of->bound[2 * i];
        struct cpu_flat w = {.from = (const float *)a->x + begin,
                             .n = a->of->bound[2 * i + 1] - begin};
        sum_pieces(p, p->simd->sumsq, &w, a->out);
    }
}

void cpu_cast(struct cpu *p, const struct flat *a)
{
    struct cpu_flat w = {.to = a->to, .from = a->from, .n = a->n, .piece = CPU_RUN,
                         .bf16 = p->bf16};
    run_flat(p, p->simd->cast, &w, a->n);
}

void cpu_add(struct cpu *p, const struct flat *a)
{
    struct cpu_flat w = {.to = a->to, .from = a->from, .n = a->n, .piece = CPU_RUN};
    run_flat(p, p->simd->add, &w, a->n);
}
