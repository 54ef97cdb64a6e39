/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of a run use of a rank: the samples of a step, the wish to stop, and errors that
 * wait until the weights are saved.
 */
#include "train/train.h"

#include "train/stop.h"

enum err train_samples(struct train_rank *r, const struct data_set *d, int64_t step, int64_t first,
                       int64_t n)
{
    int64_t at = step % TRAIN_READ * r->s->step_samples;
    for (int64_t i = 0; i < n; i++) {
        int32_t *input = r->inputs + (at + i) * d->inputs;
        int32_t *target = r->targets + (at + i) * d->targets;
        TRY(d == &r->job->valid ? data_sample_plain(d, first + i, input, target)
                                : data_sample(d, (uint64_t)r->s->o->train.seed, first + i, input,
                                              target));
    }
    return ERR_OK;
}

enum err train_read(struct train_rank *r, int64_t step)
{
    int64_t each = r->s->step_samples;
    int64_t first = (step - 1) * r->s->o->train.batch + r->rank.coord[AXIS_DP] * each;
    TRY(train_samples(r, &r->job->train, step, first, each));
    r->read = step;
    return ERR_OK;
}

struct exec_batch train_batch(const struct train_rank *r, int64_t step)
{
    const struct data_set *d = &r->job->train;
    int64_t n = r->s->step_samples, at = step % TRAIN_READ * n;
    return (struct exec_batch){.input = r->inputs + at * d->inputs,
                               .targets = r->targets + at * d->targets,
                               .samples = n, .t = r->s->model.seq,
                               .step = (uint32_t)step,
                               .row0 = r->rank.coord[AXIS_DP] * n * r->s->model.seq};
}

bool train_out_of_time(const struct train_rank *r)
{
    double limit = r->s->o->train.time_limit;
    return limit > 0 && r->rank.is_logger && log_now() - r->job->began > limit;
}

bool train_asks(const struct train_rank *r)
{
    return stop_asked() != 0 || r->lost.code != ERR_OK || train_out_of_time(r);
}

void train_deal_with(struct train_rank *r, const struct err_kept *first, bool says)
{
    if (says)
        stop_pending(first->text);
    comm_files_behind(r->rank.world, first);
}

enum err train_put_off(struct train_rank *r, enum err err)
{
    if (err != ERR_STORAGE && err != ERR_DATA && err != ERR_NONFINITE)
        return err;
    if (r->lost.code == ERR_OK) {
        err_keep(&r->lost, err);
        train_deal_with(r, &r->lost, true);
    } else if (err == ERR_NONFINITE)
        log_line(LOG_ERROR, "%s", err_text()); /* the other error is the run's */
    return ERR_OK;
}
