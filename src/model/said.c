/* SPDX-License-Identifier: Apache-2.0
 *
 * What tensor ranks start in layers, as numbers: what parallel/tp.c and the layers' math do, to
 * which a run is held (exec/exec_guard.c). The stream enters a GEMM gathered and leaves it summed,
 * and so do gradients the other way; without sp it is whole everywhere, and only the sums remain.
 */
#include "model/model.h"

void model_say(struct model_said *to, enum traffic_kind k, int64_t messages, int64_t bytes)
{
    to->kind[k].messages += messages;
    to->kind[k].bytes += bytes;
    to->longest = num_max(to->longest, bytes);
}

static int64_t stream_bytes(const struct model_dims *d)
{
    return d->n * d->c * d->ct;
}

void model_say_gather(const struct model_dims *d, struct model_said *to)
{
    if (d->sp)
        model_say(to, TRAFFIC_ALL_GATHER, 1, stream_bytes(d));
}

void model_say_sum(const struct model_dims *d, struct model_said *to)
{
    model_say(to, d->sp ? TRAFFIC_REDUCE_SCATTER : TRAFFIC_ALL_REDUCE, 1, stream_bytes(d));
}

int64_t model_sum_pieces(int64_t n, int tp, bool sp, int64_t rows)
{
    if (rows == 0 || tp == 1)
        return 0;
    int64_t pieces = (sp ? n / tp : n) / rows;
    return sp || pieces > 1 ? pieces : 0;
}

/* The sum of what a GEMM gives: in one, or piece by piece as it is made. */
static void say_gemm(const struct model_dims *d, struct model_said *to)
{
    int64_t pieces = model_sum_pieces(d->n, d->tp, d->sp, d->rows);
    if (pieces == 0 || (d->sp && d->chunked))
        model_say_sum(d, to);
    else if (d->sp)
        model_say(to, TRAFFIC_REDUCE, pieces * d->tp, stream_bytes(d));
    else
        model_say(to, TRAFFIC_ALL_REDUCE, pieces, stream_bytes(d));
}

/* Where both halves of a backward follow each other, the input's gradient is summed in one, beside
 * the weights' gradients. */
void model_sublayer_said(const struct model_dims *d, unsigned passes, struct model_said *to)
{
    if (passes & SAID_FORWARD) {
        model_say_gather(d, to);
        say_gemm(d, to);
    }
    if (passes & SAID_INPUT) {
        model_say_gather(d, to);
        if ((passes & SAID_WEIGHT) && d->rows > 0)
            model_say_sum(d, to);
        else
            say_gemm(d, to);
    }
    if (passes & SAID_WEIGHT)
        model_say_gather(d, to);
}

void model_said(const struct layer *l, const struct model_dims *d, unsigned passes,
                struct model_said *to)
{
    if (d->tp > 1 && l->type->said)
        l->type->said(d, passes, to);
}
