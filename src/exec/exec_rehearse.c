/* SPDX-License-Identifier: Apache-2.0
 *
 * The rehearsal. What a device runs for the first time it may have to load, build or measure, and
 * the host then waits for all that was queued, a receive among it whose message a peer sends behind
 * such a wait of its own. So before step 1 each stage runs by itself, without neighbours, in the
 * ways that a step may ask for: in halves and whole, with the gradients of weights written and
 * added to, and with a short microbatch.
 */
#include "exec/exec_local.h"

/* The last: as validation does it, without dropout and the gradient of the logits. */
enum backward { HALVES, WHOLE, NONE };

static enum err rehearse_one(struct exec *x, struct exec_stage *e, int mb, enum backward how)
{
    struct stage_mb s = exec_mb_of(x, mb);
    int k;
    s.training = how != NONE;
    TRY(exec_slot_take(x, e, mb));
    TRY(exec_saves_take(x, e, mb));
    struct stage_slot *slot = &exec_slot_of(e, mb)->slot;
    TRY(stage_forward(&e->stage, &s, slot, NULL));
    if (how != NONE) {
        TRY(exec_keep_find(x, e, &k));
        struct stage_back b = {.mb = &s, .slot = slot, .keep = &e->keep[k].keep,
                               .dx = e->id > 0 && x->rings > 0 ? x->ring[0] : NULL,
                               .parts = {0, e->stage.parts}};
        /* Into a slot of the stage before, if it is here, or where messages leave from, which is as
         * wide as what goes to other ranks. */
        for (int i = 0; i < x->stages_here; i++)
            if (x->stage[i].id == e->id - 1)
                b.dx = x->stage[i].slot[0].slot.out;
        TRY(stage_forward(&e->stage, &s, slot, &b.parts));
        TRY(stage_backward(&e->stage, &b, how == WHOLE ? STAGE_WHOLE : STAGE_INPUT));
        if (how == HALVES)
            TRY(stage_backward(&e->stage, &b, STAGE_WEIGHT));
    }
    exec_saves_give(e, mb);
    exec_slot_give(e, mb);
    return ERR_OK;
}

/* All stages here, those of the last layers first. */
static enum err rehearse_each(struct exec *x, int mb, enum backward how)
{
    for (int id = x->sched->stages - 1; id >= 0; id--)
        for (int i = 0; i < x->stages_here; i++)
            if (x->stage[i].id == id)
                TRY(rehearse_one(x, &x->stage[i], mb, how));
    return ERR_OK;
}

/* In the ways first .. last, with the first microbatch, and with the last one if that is short
 * besides. Weight gradients are written the first time and added to the second: other GEMMs. So it
 * is in a step, where a head comes before the embedding here that shares its matrix. */
static enum err rehearse(struct exec *x, const struct exec_batch *b, enum backward first,
                         enum backward last)
{
    int64_t full = x->a.of.samples;
    bool rest = b->samples > full && b->samples % full;
    exec_begin(x, x->a.of.sched, b, NULL);
    TRY(exec_feed(x, b));
    for (int size = 0; size <= rest; size++)
        for (enum backward how = first; how <= last; how++) {
            int mb = size ? (int)(b->samples / full) : 0;
            if (how != NONE) {
                exec_zero_grads(x);
                TRY(rehearse_each(x, mb, how));
            }
            TRY(rehearse_each(x, mb, how));
        }
    x->batch = NULL;
    return x->a.dev->ops->sync(x->a.dev);
}

/* A list with halves may have whole backwards, too. */
enum err exec_rehearse(struct exec *x, const struct exec_batch *b)
{
    return rehearse(x, b, x->a.of.splits ? HALVES : WHOLE, WHOLE);
}

enum err exec_rehearse_forward(struct exec *x, const struct exec_batch *b)
{
    return rehearse(x, b, NONE, NONE);
}
