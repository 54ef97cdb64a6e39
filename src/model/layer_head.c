/* SPDX-License-Identifier: Apache-2.0
 *
 * The head as numbers: a norm and the output matrix, or that with a bias; the loss. Loss and
 * gradient of the logits are made in one pass over rows, a chunk at a time, so that no (n, V)
 * matrix has to live until the backward; saved is the gradient of what the matrix reads.
 */
#include "model/model.h"

#include <stdio.h>

static void params(const struct layer *l, struct model_params *to)
{
    const struct layer_dims *d = &l->dims;
    if (d->norm)
        model_put_norm(to);
    if (d->tied && !to->apart)
        return; /* the rank's own embedding serves */
    struct model_param *w = model_put_matrix(to, PARAM_HEAD_W, "weight",
                                             (int64_t[]){d->vocab, d->in}, SLICE_VOCAB);
    if (d->tied) {
        snprintf(w->name, sizeof w->name, "embed.tokens");
        w->tied_copy = true;
    }
    if (!d->norm)
        model_put(to, PARAM_HEAD_B, "bias", d->vocab, 1)->slice = SLICE_VOCAB;
}

static int64_t saved(const struct model_dims *d, enum model_save id)
{
    if (id == SAVE_DH)
        return d->nl * d->c * d->ct;
    return d->norm || id == SAVE_X ? model_norm_saved(d, id) : 0;
}

static int64_t kept(const struct model_dims *d, enum model_keep id)
{
    return d->norm ? model_norm_kept(d, id) : 0;
}

static int64_t work(const struct model_dims *d, enum model_work id)
{
    switch (id) {
    case WORK_LOGITS: return d->chunk * d->v * d->logits;
    case WORK_DLOGITS: return d->logits == d->at ? d->chunk * d->v * d->ct : 0;
    case WORK_ROW: return 4 * d->n * d->at;
    default: return model_stream_work(d, id);
    }
}

static double weights(const struct layer *l)
{
    return (double)l->dims.in * (double)l->dims.vocab;
}

/* A row's maximum, then its sum and its target's logit, are agreed a chunk at a time; the gradient
 * of what the matrix reads is summed as a whole, or a chunk's beside the weight's gradient of that
 * chunk, with sp to the owners. */
static void said(const struct model_dims *d, unsigned passes, struct model_said *to)
{
    if (!(passes & SAID_FORWARD))
        return;
    model_say_gather(d, 0, to);
    for (int64_t row = 0, end; row < d->n; row = end) {
        end = num_min(row + d->chunk, d->n);
        int64_t n = end - row, owners = d->sp ? (end - 1) / d->nl - row / d->nl + 1 : 1;
        model_say(to, TRAFFIC_ALL_REDUCE_MAX, (struct traffic){1, n * d->at}, 0, 0);
        model_say(to, TRAFFIC_ALL_REDUCE, (struct traffic){1, 2 * n * d->at}, 0, 0);
        if (d->rows > 0)
            model_say(to, d->sp ? TRAFFIC_REDUCE : TRAFFIC_ALL_REDUCE,
                      (struct traffic){owners, n * d->c * d->ct},
                      2.0 * (double)n * (double)d->c * (double)d->v, 0);
    }
    if (d->rows == 0)
        model_say_sum(d, 0, 0, to);
}

const struct layer_type layer_type_head = {
    .name = "head", .part = LAYER_HEAD, .params = params, .saved = saved, .kept = kept,
    .work = work, .weights = weights, .said = said, .loss = true,
    .stays = 1u << SAVE_MEAN | 1u << SAVE_RSTD | 1u << SAVE_DH};
