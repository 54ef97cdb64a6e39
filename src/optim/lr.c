/* SPDX-License-Identifier: Apache-2.0
 *
 * Learning-rate curves: linear warm-up, then constant, linear, cosine (Loshchilov and Hutter 2017)
 * or WSD: warm-up, stable, decay (Hu et al. 2024).
 */
#include "optim/optim.h"

double lr_at(const struct lr *l, int64_t step)
{
    if (step <= l->warmup)
        return l->peak * (double)step / (double)l->warmup;
    int64_t from = l->kind == LR_WSD ? num_max(l->warmup, l->steps - l->decay) : l->warmup;
    double part = l->steps > from ? (double)(step - from) / (double)(l->steps - from) : 1.0;
    part = part < 0 ? 0 : part > 1 ? 1 : part;
    switch (l->kind) {
    case LR_COSINE: return l->least + 0.5 * (l->peak - l->least) * (1 + cos(acos(-1.0) * part));
    case LR_LINEAR:
    case LR_WSD: return l->peak + (l->least - l->peak) * part;
    case LR_CONSTANT: break;
    }
    return l->peak;
}
