/* SPDX-License-Identifier: Apache-2.0
 *
 * Validation: the samples of the file in order, dealt to the data ranks as a training batch is,
 * with forward-only lists. The mean is over tokens, not over batches, and the last round may be
 * ragged: a data rank with nothing left sits it out (its whole pipeline does).
 */
#include "run/train.h"

/* Samples first .. first + n - 1 into the rank's host arrays. */
static void read_plain(struct train_rank *r, int64_t first, int64_t n)
{
    int64_t t = r->s->arch.seq;
    for (int64_t i = 0; i < n; i++) {
        data_sample_plain(&r->job->valid, first + i, r->sample);
        memcpy(r->tokens + i * t, r->sample, (size_t)t * sizeof *r->tokens);
        memcpy(r->targets + i * t, r->sample + 1, (size_t)t * sizeof *r->targets);
    }
}

/* Losses and tokens of n samples of this rank, added to sums. */
static enum err round_of(struct train_rank *r, int64_t n, double sums[2])
{
    struct sched list;
    double loss;
    struct exec_batch b = {.tokens = r->tokens, .targets = r->targets, .samples = n,
                           .t = r->s->arch.seq};
    TRY(setup_forward(r->s, (int)num_ceil_div(n, r->s->samples), &list));
    enum err err = exec_run(r->x, &list, &b, NULL);
    sched_free(&list);
    TRY(err);
    if (!r->speaks)
        return ERR_OK;
    TRY(exec_loss(r->x, &loss));
    sums[0] += loss;
    sums[1] += (double)(n * r->s->arch.seq);
    return ERR_OK;
}

enum err train_validate(struct train_rank *r, double *loss)
{
    int64_t batch = r->s->o->train.batch, rounds = num_ceil_div(r->job->valid.samples, batch);
    double sums[2] = {0, 0};
    if (r->s->o->train.valid_batches > 0)
        rounds = num_min(rounds, r->s->o->train.valid_batches);
    for (int64_t i = 0; i < rounds; i++) {
        int64_t first = i * batch + r->coord[AXIS_DP] * r->s->share;
        int64_t n = num_min(r->s->share, r->job->valid.samples - first);
        if (n <= 0)
            continue;
        read_plain(r, first, n);
        TRY(round_of(r, n, sums));
    }
    if (exec_world_group(r->x))
        TRY(comm_all_reduce(exec_world_group(r->x), sums, 2, DT_F64, COMM_SUM));
    *loss = sums[0] / sums[1];
    return ERR_OK;
}
