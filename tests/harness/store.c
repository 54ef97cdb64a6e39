/* SPDX-License-Identifier: Apache-2.0
 *
 * Four arenas from the device, each with room for what param_store_open takes from it: the moments
 * are two vectors, the others one.
 */
#include "store.h"

#include "test.h"

void store_rig_open(struct store_rig *r, enum dev_kind kind, enum dtype ct)
{
    CHECK_OK(dev_open(&(struct dev_args){.kind = kind, .ct = ct, .threads = 1}, &r->dev));
    int64_t each = arch_stage_elements(&r->arch, &r->split, &r->stage) * dtype_size(r->dev->at);
    for (int i = 0; i < 4; i++) {
        void *base;
        int64_t bytes = 2 * arena_round(each);
        CHECK_OK(r->dev->ops->alloc(r->dev, bytes, "an arena", &base));
        arena_over(&r->arena[i], base, bytes, "an arena");
    }
    struct param_arenas from = {&r->arena[0], &r->arena[1], &r->arena[2], &r->arena[3], NULL};
    struct param_place at = {.arch = &r->arch, .split = &r->split, .stage = &r->stage,
                             .tp_rank = r->tp_rank, .share = r->share,
                             .shares = r->shares};
    CHECK_OK(param_store_open(&r->store, r->dev, &at, &from, true));
}

void store_rig_close(struct store_rig *r)
{
    param_store_close(&r->store);
    for (int i = 0; i < 4; i++)
        r->dev->ops->free(r->dev, r->arena[i].base);
    dev_close(r->dev);
}
