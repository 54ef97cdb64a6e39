/* SPDX-License-Identifier: Apache-2.0
 *
 * What tensor ranks start in layers, as numbers: what parallel/tp.c and the layers' math do, to
 * which a run is held (exec/exec_guard.c). The stream enters a GEMM gathered and leaves it summed,
 * and so do gradients the other way; without sp it is whole everywhere, and only the sums remain.
 */
#include "model/model.h"

void model_say(struct model_said *to, enum traffic_kind k, struct traffic t, double beside,
               double shared)
{
    to->kind[k].messages += t.messages;
    to->kind[k].bytes += t.bytes;
    to->longest = num_max(to->longest, t.bytes);
    if (to->each)
        to->each(to->arg, k, t, beside, shared);
}

static int64_t stream_bytes(const struct model_dims *d)
{
    return d->n * d->c * d->ct;
}

void model_say_gather(const struct model_dims *d, double beside, struct model_said *to)
{
    if (d->sp)
        model_say(to, TRAFFIC_ALL_GATHER, (struct traffic){1, stream_bytes(d)}, beside, 0);
}

void model_say_sum(const struct model_dims *d, double beside, double shared, struct model_said *to)
{
    model_say(to, d->sp ? TRAFFIC_REDUCE_SCATTER : TRAFFIC_ALL_REDUCE,
              (struct traffic){1, stream_bytes(d)}, beside, shared);
}

int64_t model_sum_pieces(int64_t n, int tp, bool sp, int64_t rows)
{
    if (rows == 0 || tp == 1)
        return 0;
    int64_t pieces = (sp ? n / tp : n) / rows;
    return sp || pieces > 1 ? pieces : 0;
}

/* FLOPs of a GEMM of the stream with so many columns of this rank. */
static double gemm_flops(const struct model_dims *d, int64_t cols)
{
    return 2.0 * (double)d->n * (double)d->c * (double)cols;
}

/* The part of `flops` that the rank has left when the rows of one owner are made. */
static double of_others(const struct model_dims *d, double flops)
{
    return flops * (d->tp - 1) / d->tp;
}

/* The stream made whole before a GEMM of it: beside its own rows' part, or in chunks, each GEMM of
 * an owner's rows beside the chunks of the next ones. */
static void say_gathered(const struct model_dims *d, double flops, struct model_said *to)
{
    bool cut = d->rows > 0 && d->nl >= d->rows;
    double own = flops - of_others(d, flops);
    model_say_gather(d, !cut ? 0 : d->chunked ? of_others(d, flops) : own, to);
}

/* The sum of what a GEMM gives: in one, or piece by piece as it is made, each beside the next, the
 * last beside nothing. */
static void say_gemm(const struct model_dims *d, double flops, struct model_said *to)
{
    int64_t pieces = model_sum_pieces(d->n, d->tp, d->sp, d->rows), owners = d->sp ? d->tp : 1;
    if (pieces == 0 || (d->sp && d->chunked)) {
        model_say_sum(d, pieces == 0 ? 0 : of_others(d, flops), 0, to);
        return;
    }
    enum traffic_kind k = d->sp ? TRAFFIC_REDUCE : TRAFFIC_ALL_REDUCE;
    int64_t block = d->n / owners, rows = block - block * (pieces - 1) / pieces;
    struct traffic last = {1, rows * d->c * d->ct};
    struct traffic before = {pieces * owners - 1, stream_bytes(d) - last.bytes};
    model_say(to, k, before, flops * (double)(d->n - rows) / (double)d->n, 0);
    model_say(to, k, last, 0, 0);
}

/* Where both halves of a backward follow each other, the input is gathered again beside the GEMM of
 * its gradient and that of the last weights', and the gradient summed in one beside the latter and
 * that of the first: the sum, second on the links, has of the GEMM beside both what is left. */
void model_sublayer_said(const struct model_dims *d, struct model_columns cols, unsigned passes,
                         struct model_said *to)
{
    double in = gemm_flops(d, cols.in), out = gemm_flops(d, cols.out);
    bool both = (passes & SAID_INPUT) && (passes & SAID_WEIGHT) && d->rows > 0;
    if (passes & SAID_FORWARD) {
        say_gathered(d, in, to);
        say_gemm(d, out, to);
    }
    if (passes & SAID_INPUT) {
        say_gathered(d, out, to);
        if (!both)
            say_gemm(d, in, to);
    }
    if (passes & SAID_WEIGHT)
        model_say_gather(d, d->rows == 0 ? 0 : both ? in + out : out, to);
    if (both)
        model_say_sum(d, in + out, d->sp ? out : 0, to);
}

void model_said(const struct layer *l, const struct model_dims *d, unsigned passes,
                struct model_said *to)
{
    if (d->tp > 1 && l->type->said)
        l->type->said(d, passes, to);
}
