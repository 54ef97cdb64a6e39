/* SPDX-License-Identifier: Apache-2.0
 *
 * Validation: the samples of the file in order, dealt to the data ranks as a training batch is,
 * with forward-only lists. The mean is over tokens, not over batches, and the last round may be
 * ragged: a data rank with nothing left sits it out (its whole pipeline does). A rank's rounds are
 * whole ones, by the plan's list, and at most one that is not, by the first part of that; it is
 * made, checked and rehearsed before the first step, and validating takes no memory.
 */
#include "train/train.h"

#include <float.h>

static int64_t rounds_of(const struct train_rank *r)
{
    int64_t rounds = num_ceil_div(r->job->valid.samples, r->s->o->train.batch);
    int64_t asked = r->s->o->train.valid_batches;
    return asked > 0 ? num_min(rounds, asked) : rounds;
}

/* This rank's first sample of a round, and how many it has. */
static int64_t samples_of(const struct train_rank *r, int64_t round, int64_t *first)
{
    *first = round * r->s->o->train.batch + r->rank.coord[AXIS_DP] * r->s->step_samples;
    return num_max(0, num_min(r->s->step_samples, r->job->valid.samples - *first));
}

/* n samples, at the place of the step that is done. */
static struct exec_batch batch_of(const struct train_rank *r, int64_t n)
{
    struct exec_batch b = train_batch(r, r->step);
    return (struct exec_batch){.input = b.input, .targets = b.targets, .samples = n, .t = b.t};
}

enum err train_valid_open(struct train_rank *r)
{
    int64_t first, share = r->s->step_samples;
    if (!r->job->valid.samples)
        return ERR_OK;
    int64_t rest = samples_of(r, rounds_of(r) - 1, &first);
    struct exec_batch whole = batch_of(r, share), ragged = batch_of(r, rest);
    if (r->rank.dev->async && samples_of(r, 0, &first) == share)
        TRY(exec_rehearse_forward(r->rank.x, &whole));
    if (rest == 0 || rest == share)
        return ERR_OK;
    TRY(setup_forward(r->s, (int)num_ceil_div(rest, r->s->samples), &r->last_round));
    return r->rank.dev->async ? exec_rehearse_forward(r->rank.x, &ragged) : ERR_OK;
}

enum err train_valid_round(struct train_rank *r, int64_t i, const struct exec_hooks *hooks,
                           int64_t *n, double *loss)
{
    int64_t first;
    *n = samples_of(r, i, &first);
    *loss = 0;
    if (*n == 0)
        return ERR_OK;
    struct exec_batch b = batch_of(r, *n);
    TRY(train_put_off(r, train_samples(r, &r->job->valid, r->step, first, *n))); /* peers wait */
    TRY(exec_run(r->rank.x, *n == r->s->step_samples ? &r->s->forward : &r->last_round, &b, hooks));
    if (!r->rank.counts_tokens)
        return ERR_OK;
    double *landed = r->landed + TRAIN_AHEAD * SUMS_COUNT; /* a snapshot may be on its way */
    TRY(exec_loss(r->rank.x, landed));
    *loss = *landed;
    return ERR_OK;
}

enum err train_validate(struct train_rank *r)
{
    double sums[3] = {0, 0, 0}, stops = 0, loss;
    struct comm_req asks = {0};
    int64_t n, bad = -1, rounds = rounds_of(r);
    for (int64_t i = 0; i < rounds && !r->stop; i++) {
        TRY(train_valid_round(r, i, NULL, &n, &loss));
        sums[0] += loss;
        sums[1] += r->rank.counts_tokens ? (double)(n * r->job->valid.targets) : 0;
        if (bad < 0 && !isfinite(loss))
            bad = i;
        /* How many ranks were asked to stop before the round ahead of this one ended: none waits
         * for those that are one round behind. */
        TRY(comm_finish(&asks));
        r->stop = stops > 0;
        stops = train_asks(r);
        if (r->rank.all && !r->stop && i + 1 < rounds)
            TRY(comm_all_reduce_start(r->rank.all, &stops, 1, DT_F64, COMM_SUM, &asks));
    }
    if (r->stop)
        return ERR_OK;
    sums[2] = r->lost.code != ERR_OK;
    TRY(comm_all_reduce(r->rank.all, sums, 3, DT_F64, COMM_SUM));
    r->stop = sums[2] > 0;
    if (r->stop)
        return ERR_OK;
    r->valid_loss = sums[0] / sums[1];
    r->valid_tokens = (int64_t)sums[1];
    if (isfinite(r->valid_loss))
        return ERR_OK;
    double least = bad < 0 ? -DBL_MAX : -(double)bad; /* as all ranks know */
    TRY(comm_all_reduce(r->rank.all, &least, 1, DT_F64, COMM_MAX));
    r->bad_round = least == -DBL_MAX ? rounds - 1 : (int64_t)-least;
    FAIL(ERR_NONFINITE, "the validation behind step %lld has loss %g, first in its batch %lld of "
                        "%lld", (long long)r->step, num_unsigned_nan(r->valid_loss),
         (long long)r->bad_round + 1, (long long)rounds);
}
