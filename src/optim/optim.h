/* SPDX-License-Identifier: Apache-2.0
 *
 * AdamW (Loshchilov and Hutter 2019) over the stores of a rank, global-norm clipping, learning
 * rates.
 *
 * Losses and gradients arrive as sums over tokens. Here, and only here, they are divided: by the
 * number of tokens of the whole step over all data ranks. One all-reduce of a few doubles agrees
 * loss, count and squared norm on all ranks; each parameter enters the norm once, whatever the
 * number of ranks that hold it.
 */
#ifndef PLAIT_OPTIM_OPTIM_H
#define PLAIT_OPTIM_OPTIM_H

#include "comm/comm.h"
#include "device/device.h"
#include "param/param.h"

enum lr_kind { LR_CONSTANT, LR_LINEAR, LR_COSINE, LR_WSD };

struct lr {
    enum lr_kind kind;
    double peak, least;
    int64_t warmup, steps; /* steps of linear warm-up; steps of the whole run */
    int64_t decay;         /* wsd: steps of the final linear decay */
};
/* Learning rate of step 1, 2, ... `steps`. Step s of a warm-up of w has peak s / w; behind it the
 * curve goes down from the peak, which step w + 1 has, towards `least`, which the step after the
 * last would have (wsd: constant, then linear over the last `decay` steps). A warm-up that is
 * longer than the run takes the whole run, a decay longer than what is left all that is left. */
double lr_at(const struct lr *l, int64_t step);

struct optim_rule {
    double beta1, beta2, eps, decay, clip;
}; /* clip 0: none */

struct optim {
    struct optim_rule rule;
    struct dev *dev;
    struct comm_group *world;              /* device memory, all ranks; NULL: one rank */
    struct param_store *const *store;      /* borrowed; [stores] */
    int stores;
    double *sums, *step_scalars;           /* device (SUMS_COUNT), (SCALAR_COUNT); scratch */
    int replica, replicas;                 /* data rank, data ranks: each squares its share */
};

struct optim_result {
    double loss, grad_norm; /* a token; of the mean gradient, before clipping */
    int64_t tokens;         /* that counted in this step, over all ranks */
    int stop, save;         /* ranks that ask to stop behind it; for a checkpoint */
    int saved;              /* ranks that say so: optim_step.saved */
};

/* One step, number `step` (1-based), with learning rate lr. tokens: that this rank counts, 0 on
 * ranks that count none. stop: this rank asks to stop, save: for a checkpoint; saved: its part of
 * the checkpoint under way is written. Of these all ranks learn how many say so, with the sums, and
 * nothing else comes of it. */
struct optim_step {
    int64_t step;
    double lr;
    int64_t tokens;
    bool stop, save, saved;
};
/* A step in calls that queue their work; the host waits for none. optim_ready brings what the host
 * knows of the step to the device: number, rate, tokens. The calls behind it name none of that, so
 * that they can be recorded once and replayed. optim_norm adds up loss (device; NULL: none), tokens
 * and squared norm, over the world: collective. optim_update then updates what this rank owns of a
 * piece of a store, 0 the whole where updates are not shared; when loss or norm are not finite
 * nothing changes. optim_land brings what optim_judge wants to `landed`, host memory of the device
 * (SUMS_COUNT). */
enum err optim_ready(const struct optim *o, const struct optim_step *s);
enum err optim_norm(const struct optim *o, const double *loss);
enum err optim_update(const struct optim *o, const struct param_store *s, int piece);
enum err optim_land(const struct optim *o, double *landed);
/* What the sums of all ranks mean. Errors: ERR_NONFINITE. */
enum err optim_judge(const struct optim_step *s, const double sums[SUMS_COUNT],
                     struct optim_result *out);
/* This rank's sums alone, waiting. Local. */
enum err optim_sums(const struct optim *o, const struct optim_step *s, const double *loss,
                    double sums[SUMS_COUNT]);

#endif
