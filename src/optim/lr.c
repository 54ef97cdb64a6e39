/* SPDX-License-Identifier: Apache-2.0
 *
 * Learning-rate curves: linear warm-up, then constant, linear, cosine (Loshchilov and Hutter 2017)
 * or WSD: warm-up, stable, decay (Hu et al. 2024).
 *
 * Where the ends lie. A decay of n steps cuts the way from peak to least in n + 1 parts and takes
 * the n points between them: the peak belongs to the step before, the least to the one after the
 * run, so no step repeats the peak and none is spent at a rate of zero. torchtitan does the same.
 * llm.c and Megatron-LM cut it in n parts and take the first n points, so that their first step of
 * the decay still has the peak; their last one, too, is above the least.
 */
#include "optim/optim.h"

double lr_at(const struct lr *l, int64_t step)
{
    if (step <= l->warmup)
        return l->peak * (double)step / (double)l->warmup;
    int64_t from = l->kind == LR_WSD ? num_max(l->warmup, l->steps - l->decay) : l->warmup;
    double part = (double)num_max(0, step - from) / (double)(l->steps - from + 1);
    switch (l->kind) {
    case LR_COSINE: return l->least + 0.5 * (l->peak - l->least) * (1 + cos(acos(-1.0) * part));
    case LR_LINEAR:
    case LR_WSD: return l->peak + (l->least - l->peak) * part;
    case LR_CONSTANT: break;
    }
    return l->peak;
}
