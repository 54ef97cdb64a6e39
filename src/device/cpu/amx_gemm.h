/* SPDX-License-Identifier: Apache-2.0
 *
 * GEMMs of bf16 on AMX tiles. The walk is that of simd_gemm.h (Goto & van de Geijn 2008) with
 * other sizes, because the tiles multiply so fast that the caches and the memory feeding them
 * decide:
 *
 *     piece of C                 of one thread
 *       one operand is held:     its part of the piece, KO of k: packed once, 1.5 MiB, stays in the
 *                                second cache
 *       the other one flows:     32 rows or columns x KI of k: packed for each sweep, 32 KiB, stays
 *                                in the first
 *         sweep                  32 x 32 of C at a time, in four tiles, along what is held
 *
 * Either operand may be held; the cheaper one is. While a sweep runs, the lines of the next block
 * that flows, and of C, are asked for: packing what is held waits for memory, what flows does not.
 * C is gathered in f32 in scratch, filled up to whole tiles, so that no edge is met inside; when
 * the last of k is added, the valid part goes through gemm_finish (C as it was, bias, activation,
 * rounding) while the cache holds it. Where all of k is packed at once, which is so up to K_WHOLE,
 * only what one block of the flow gives is gathered.
 *
 * Each element of C is summed along k in one order that depends on k alone: the bits depend neither
 * on the number of threads nor on the rows and columns beside it.
 */
#ifndef PLAIT_DEVICE_CPU_AMX_GEMM_H
#define PLAIT_DEVICE_CPU_AMX_GEMM_H

#include "device/cpu/amx_block.h"

enum {
    AMX_KI = 512,               /* of k, in a sweep */
    AMX_KO = 512,               /* of k, held where k is not whole */
    AMX_K_WHOLE = 1024,         /* k up to here is held at once */
    AMX_HELD = 1024,            /* rows or columns held, at most; where k is not whole: */
    AMX_HELD_PART = 384,
    AMX_HELD_HALVES = 1024 * 768, /* bf16 of what is held */
    AMX_C_FLOATS = 768 * 384,   /* of C gathered */
    AMX_FLOW_FLOATS = AMX_SIDE * AMX_KI / 2,
    /* What packing an element costs, in multiply-adds: with and without waiting for memory; and
     * what writing a byte of C costs more in columns of 32. */
    AMX_HOLD_COST = 120,
    AMX_FLOW_COST = 40,
    AMX_STRIP_COST = 55,
};
_Static_assert(AMX_FLOW_FLOATS + AMX_HELD_HALVES / 2 + AMX_C_FLOATS <= CPU_SCRATCH_FLOATS,
               "the blocks fit a thread's scratch");
_Static_assert(AMX_SIDE * AMX_HELD <= AMX_C_FLOATS, "what a block of the flow gives fits");

/* The task: pieces of `w`, rows of them or columns of them flowing. */
struct amx_params {
    struct cpu_gemm *w;
    void (*finish)(const struct cpu_gemm *w, struct cpu_target from, const int64_t i[2],
                   const int64_t j[2]);
    bool hold_a; /* B flows; else B is held and A flows */
};

/* Memory that will be needed: rows of `bytes`, `ld` bytes apart. `p` moves on as they are asked
 * for: `at` of this row's bytes are done, `portion` lines are asked for at a time. */
struct amx_lines {
    const char *p;
    int64_t rows, bytes, ld, at, portion;
};
enum { LINE = 64 };

/* Rows i and k of an operand. */
static struct amx_lines amx_operand_lines(const struct amx_operand *x, const int64_t i[2],
                                          const int64_t k[2])
{
    int64_t ni = i[1] - i[0], nk = k[1] - k[0];
    const uint16_t *p = x->p + (x->along ? k[0] * x->ld + i[0] : i[0] * x->ld + k[0]);
    return (struct amx_lines){.p = (const char *)p, .rows = x->along ? nk : ni,
                              .bytes = 2 * (x->along ? ni : nk), .ld = 2 * x->ld};
}

/* Asks for the next portion, into the second cache; to be read, or read and written. */
static inline __attribute__((always_inline)) void amx_ask(struct amx_lines *x, bool to_write)
{
    for (int64_t n = x->portion; n > 0 && x->rows > 0; n--) {
        if (to_write)
            __builtin_prefetch(x->p + x->at, 1, 2);
        else
            __builtin_prefetch(x->p + x->at, 0, 2);
        x->at += LINE;
        if (x->at >= x->bytes) {
            x->p += x->ld;
            x->rows--;
            x->at = 0;
        }
    }
}

/* ---- the walk ---- */

/* A piece of C at work: what it covers of both operands, and the block of k that is held. */
struct amx_piece {
    const struct amx_params *params;
    struct amx_operand held, flow;
    int64_t h[2], f[2], k[2]; /* of C along what is held, along the flow; of k */
    int64_t ki;               /* of k, in a sweep */
    int64_t wide;             /* what is held, filled up */
    int64_t ld;               /* of gathered C */
    char *panel, *block;      /* packed: what is held, what flows */
    float *gathered;          /* C */
};

/* Rows i and columns j of C that block f of the flow gives. */
static void amx_of_c(const struct amx_piece *p, const int64_t f[2], int64_t i[2], int64_t j[2])
{
    memcpy(p->params->hold_a ? i : j, p->h, sizeof p->h);
    memcpy(p->params->hold_a ? j : i, f, sizeof p->f);
}

/* What comes after the sweep of f and k: the next block of the flow. */
static struct amx_lines amx_next(const struct amx_piece *p, const int64_t f[2], const int64_t k[2])
{
    int64_t next_f[2] = {f[0], f[1]};
    int64_t next_k[2] = {k[1], num_min(k[1] + p->ki, p->k[1])};
    if (k[1] == p->k[1]) {
        next_f[0] = f[1];
        next_f[1] = num_min(f[1] + AMX_SIDE, p->f[1]);
        next_k[0] = p->k[0];
        next_k[1] = num_min(p->k[0] + p->ki, p->k[1]);
    }
    return amx_operand_lines(&p->flow, next_f, next_k);
}

/* Where the results of f go in the end. */
static struct amx_lines amx_goal(const struct amx_piece *p, const int64_t f[2])
{
    const struct cpu_gemm *w = p->params->w;
    int64_t i[2], j[2], size = w->bf16_c ? 2 : 4;
    amx_of_c(p, f, i, j);
    return (struct amx_lines){.p = (const char *)w->g->c + (i[0] * w->ldc + j[0]) * size,
                              .rows = i[1] - i[0], .bytes = (j[1] - j[0]) * size,
                              .ld = w->ldc * size};
}

static int64_t amx_portion(const struct amx_lines *x, int64_t parts)
{
    return num_ceil_div(x->rows * num_ceil_div(x->bytes, LINE), parts);
}

/* The sweep of block f of the flow, over the k that begins at `at`, along all that is held. */
static void amx_sweep(const struct amx_piece *p, const int64_t f[2], int64_t at,
                      struct cpu_target to)
{
    bool hold_a = p->params->hold_a, last;
    int64_t k[2] = {at, num_min(at + p->ki, p->k[1])}, steps = num_ceil_div(k[1] - k[0], TILE_K);
    int64_t along = hold_a ? AMX_SIDE * to.ld : AMX_SIDE;
    struct amx_lines next = amx_next(p, f, k), goal = amx_goal(p, f);
    const char *held = p->panel + (k[0] - p->k[0]) * p->wide * 2;
    last = k[1] == p->params->w->g->k;
    next.portion = amx_portion(&next, p->wide / AMX_SIDE);
    goal.portion = last ? amx_portion(&goal, p->wide / AMX_SIDE) : 0;
    amx_pack(p->block, &p->flow, f, k, hold_a);
    for (int64_t h = 0; h < p->wide; h += AMX_SIDE, held += steps * AMX_STEP_BYTES) {
        amx_ask(&next, false);
        amx_ask(&goal, true);
        amx_step(steps, hold_a ? held : p->block, hold_a ? p->block : held, to);
        to.c += along;
    }
}

/* What is held, of [k[0], k[1]): sweep by sweep of k, each as amx_pack leaves it. */
static void amx_hold(const struct amx_piece *p)
{
    char *to = p->panel;
    for (int64_t k = p->k[0]; k < p->k[1]; k += p->ki) {
        int64_t part[2] = {k, num_min(k + p->ki, p->k[1])};
        amx_pack(to, &p->held, p->h, part, !p->params->hold_a);
        to += num_ceil_div(part[1] - part[0], TILE_K) * TILE_K * p->wide * 2;
    }
}

/* What was C is added to the sums gathered for rows i and columns j. */
static void amx_accumulate(const struct cpu_gemm *w, struct cpu_target from, const int64_t i[2],
                           const int64_t j[2])
{
    for (int64_t r = i[0]; r < i[1]; r++, from.c += from.ld) {
        const float *c = (const float *)w->g->c + r * w->ldc + j[0];
        for (int64_t q = 0; q < j[1] - j[0]; q++)
            from.c[q] += c[q];
    }
}

/* Block f of the flow (at most 32) over the k that is held; finished where it is the last. */
static void amx_flow(const struct amx_piece *p, const int64_t f[2], float *c)
{
    const struct cpu_gemm *w = p->params->w;
    struct cpu_target to = {c, p->ld, false};
    int64_t i[2], j[2];
    for (int64_t k = p->k[0]; k < p->k[1]; k += p->ki) {
        to.add = k > 0;
        amx_sweep(p, f, k, to);
    }
    if (p->k[1] < w->g->k)
        return;
    amx_of_c(p, f, i, j);
    if (w->g->accumulate)
        amx_accumulate(w, to, i, j);
    p->params->finish(w, to, i, j);
}

static int64_t amx_block_of_k(int64_t k)
{
    return k <= AMX_K_WHOLE ? num_ceil_div(k, TILE_K) * TILE_K : AMX_KO;
}

/* The piece whose extents are set. */
static void amx_piece(struct amx_piece *p)
{
    int64_t all = p->params->w->g->k, block = amx_block_of_k(all);
    bool whole = block >= all, hold_a = p->params->hold_a;
    p->wide = amx_filled(p->h[1] - p->h[0]);
    p->ld = !hold_a ? p->wide : whole ? AMX_SIDE : amx_filled(p->f[1] - p->f[0]);
    p->ki = num_ceil_div(block, num_ceil_div(block, AMX_KI) * TILE_K) * TILE_K;
    for (int64_t k = 0; k < all; k += block) {
        p->k[0] = k;
        p->k[1] = num_min(k + block, all);
        amx_hold(p);
        for (int64_t at = p->f[0]; at < p->f[1]; at += AMX_SIDE) {
            const int64_t f[2] = {at, num_min(at + AMX_SIDE, p->f[1])};
            int64_t from = whole ? 0 : at - p->f[0];
            amx_flow(p, f, p->gathered + (hold_a ? from : from * p->ld));
        }
    }
}

/* cpu_task_fn over struct amx_params: pieces of w->rows x w->cols, row by row of pieces. */
static inline void amx_pieces(const void *arg, int64_t first, int64_t last, float *scratch)
{
    const struct amx_params *params = arg;
    const struct cpu_gemm *w = params->w;
    struct amx_operand a = {w->g->a, w->lda, w->g->trans_a}, b = {w->g->b, w->ldb, !w->g->trans_b};
    struct amx_piece p = {.params = params, .held = params->hold_a ? a : b,
                          .flow = params->hold_a ? b : a,
                          .block = (char *)scratch,
                          .panel = (char *)(scratch + AMX_FLOW_FLOATS),
                          .gathered = scratch + AMX_FLOW_FLOATS + AMX_HELD_HALVES / 2};
    tiles_open();
    for (int64_t item = first; item < last; item++) {
        int64_t i = item / w->across * w->rows, j = item % w->across * w->cols;
        int64_t *rows = params->hold_a ? p.h : p.f, *cols = params->hold_a ? p.f : p.h;
        rows[0] = i;
        rows[1] = num_min(i + w->rows, w->g->m);
        cols[0] = j;
        cols[1] = num_min(j + w->cols, w->g->n);
        amx_piece(&p);
    }
    tiles_close();
}

/* ---- cutting ---- */

/* A cut: so many pieces along what is held, and along the flow. */
struct amx_cut { int64_t held, flow; double cost; bool hold_a; };

/* Time of a cut, in multiply-adds of one thread: all threads take as long as the one with the most
 * pieces; each piece packs its operands. */
static double amx_cost(const struct cpu_gemm *w, int64_t threads, const struct amx_cut *cut)
{
    const struct gemm *g = w->g;
    double h = (double)(cut->hold_a ? g->m : g->n), f = (double)(cut->hold_a ? g->n : g->m);
    double k = (double)g->k, pieces = (double)(cut->held * cut->flow);
    double packed = AMX_HOLD_COST * (double)cut->flow * h * k +
                    AMX_FLOW_COST * (double)cut->held * f * k;
    double strips = cut->hold_a ? AMX_STRIP_COST * h * f * (w->bf16_c ? 2 : 4) : 0;
    double rounds = (double)num_ceil_div(cut->held * cut->flow, threads);
    return (h * f * k + packed + strips) * rounds / pieces;
}

/* The cheapest cut with this operand held whose pieces fit the blocks, if cheaper than `best`. */
static void amx_try(const struct cpu_gemm *w, int64_t threads, bool hold_a, struct amx_cut *best)
{
    const struct gemm *g = w->g;
    int64_t block = amx_block_of_k(g->k), h = hold_a ? g->m : g->n, f = hold_a ? g->n : g->m;
    int64_t held = num_min(AMX_HELD_HALVES / block / AMX_SIDE * AMX_SIDE, AMX_HELD), flow = f;
    if (block < g->k) {
        held = num_min(amx_filled(h), AMX_HELD_PART);
        flow = AMX_C_FLOATS / held / AMX_SIDE * AMX_SIDE;
    }
    struct amx_cut from = {num_ceil_div(h, held), num_ceil_div(f, flow), 0, hold_a};
    for (struct amx_cut c = from; c.held < from.held + 4 * threads; c.held++) {
        for (c.flow = from.flow; c.flow == from.flow || c.held * c.flow <= 4 * threads; c.flow++) {
            c.cost = amx_cost(w, threads, &c);
            if (best->held == 0 || c.cost < best->cost)
                *best = c;
        }
    }
}

/* Which operand is held, and w->rows, cols and across: the cheapest way. */
static inline void amx_cut(struct amx_params *params, int64_t threads)
{
    struct cpu_gemm *w = params->w;
    const struct gemm *g = w->g;
    struct amx_cut best = {0};
    amx_try(w, threads, false, &best);
    amx_try(w, threads, true, &best);
    params->hold_a = best.hold_a;
    w->rows = amx_filled(num_ceil_div(g->m, best.hold_a ? best.held : best.flow));
    w->cols = amx_filled(num_ceil_div(g->n, best.hold_a ? best.flow : best.held));
    w->across = num_ceil_div(g->n, w->cols);
}

#endif
