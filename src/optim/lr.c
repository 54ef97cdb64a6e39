/* SPDX-License-Identifier: Apache-2.0
 *
 * Learning-rate curves: linear warm-up, then constant, linear, cosine (Loshchilov and Hutter 2017)
 * or WSD: warm-up, stable, decay (Hu et al. 2024).
 *
 * A decay of n steps cuts the way from peak to least in n parts and takes the first n points: its
 * first step has the peak, and the step after the run would have the least, so that none is spent
 * at a rate of zero. PyTorch's schedulers, llm.c and Megatron-LM do the same.
 */
#include "optim/optim.h"

double lr_at(const struct lr *l, int64_t step)
{
    int64_t warmup = num_min(l->warmup, l->steps);
    int64_t from = l->kind == LR_WSD ? num_max(warmup, l->steps - l->decay) : warmup;
    if (step <= warmup)
        return l->peak * (double)step / (double)warmup;
    if (step <= from || l->kind == LR_CONSTANT)
        return l->peak;
    double part = fmin(1, (double)(step - from - 1) / (double)(l->steps - from));
    if (l->kind == LR_COSINE)
        part = 0.5 * (1 - cos(acos(-1.0) * part));
    return l->peak + (l->least - l->peak) * part;
}
