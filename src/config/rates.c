/* SPDX-License-Identifier: Apache-2.0
 *
 * What does not fit is shortened: the warm-up to the run, the decay to what the warm-up leaves. A
 * length that a checkpoint has brought may be shorter than train.steps asks for: then it was the
 * run before that was too short.
 */
#include "config/options.h"

#include "base/num.h"

struct lr rates_planned(const struct options *o)
{
    int64_t warmup = num_min(o->optim.warmup, o->train.steps);
    return (struct lr){(enum lr_kind)o->optim.schedule, o->optim.lr, o->optim.lr_min, warmup,
                       o->train.steps, num_min(o->optim.decay_steps, o->train.steps - warmup)};
}

void rates_warn(const struct options *o, const struct lr *lr, struct text *out)
{
    long long warmup = (long long)o->optim.warmup, decay = (long long)o->optim.decay_steps;
    long long steps = (long long)o->train.steps;
    struct lr planned = rates_planned(o);
    if (warmup > lr->warmup && lr->warmup == planned.warmup)
        text_add(out, "warning optim.warmup %lld is longer than train.steps %lld: ", warmup, steps);
    else if (warmup > lr->warmup)
        text_add(out, "warning optim.warmup %lld was longer than the run that goes on here: ",
                 warmup);
    if (warmup > lr->warmup)
        text_add(out, "the learning rate rises over %lld step%s\n", (long long)lr->warmup,
                 text_plural(lr->warmup, "s"));
    if (o->optim.schedule != OPTIONS_WSD || decay <= lr->decay)
        return;
    if (lr->decay == planned.decay)
        text_add(out, "warning optim.decay_steps %lld is more than optim.warmup %lld leaves of "
                      "train.steps %lld: ", decay, warmup, steps);
    else
        text_add(out, "warning optim.decay_steps %lld was more than optim.warmup %lld left of the "
                      "run that goes on here: ", decay, warmup);
    if (lr->decay > 0)
        text_add(out, "the learning rate decays over the last %lld\n", (long long)lr->decay);
    else
        text_add(out, "the learning rate does not decay\n");
}
