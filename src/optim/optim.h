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
#include "tensor/param.h"

enum lr_kind { LR_CONSTANT, LR_LINEAR, LR_COSINE, LR_WSD };

struct lr {
    enum lr_kind kind;
    double peak, least;
    int64_t warmup, steps; /* steps of linear warm-up; steps of the whole run */
    int64_t decay;         /* wsd: steps of the final linear decay */
};
/* Learning rate of step 1, 2, ...: linear warm-up to the peak over `warmup` steps, then the curve
 * down towards `least`, which the step after the last would have (wsd: constant, then linear over
 * the last `decay` steps). step is at most `steps`. */
double lr_at(const struct lr *l, int64_t step);

struct optim {
    double beta1, beta2, eps, decay, clip; /* clip 0: none */
    struct dev *dev;
    struct comm_group *world;              /* NULL: one rank */
    struct param_store *const *store;      /* borrowed; [stores] */
    int stores;
    double *scalar;                        /* device double, scratch */
    bool first_replica;                    /* data rank 0: its gradients enter the norm */
};

struct optim_result {
    double loss, grad_norm; /* a token; of the mean gradient, before clipping */
    int64_t tokens;         /* that counted in this step, over all ranks */
};

/* One step, number `step` (1-based), with learning rate lr. loss_sum and tokens: this rank's share,
 * 0 on ranks that do not speak for a loss. A loss or norm that is not finite: ERR_NONFINITE on all
 * ranks, nothing updated. Collective over the world. */
struct optim_step { int64_t step; double lr, loss_sum; int64_t tokens; };
enum err optim_run(const struct optim *o, const struct optim_step *s, struct optim_result *out);

#endif
