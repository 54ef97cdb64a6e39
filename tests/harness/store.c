/* SPDX-License-Identifier: Apache-2.0
 *
 * A store over memory of the device.
 */
#include "store.h"

#include "test.h"

void store_rig_open(struct store_rig *r, enum dev_kind kind, enum dtype ct)
{
    CHECK_OK(dev_open(&(struct dev_args){.kind = kind, .ct = ct, .threads = 1}, &r->dev));
    int64_t elements = model_stage_elements(&r->model, &r->split, &r->stage);
    elements = model_sharded_elements(elements, r->num_shards > 1 ? r->num_shards : 1);
    for (int i = 0; i < 5; i++)
        CHECK_OK(r->dev->ops->alloc(r->dev, elements * dtype_size(r->dev->at), "a store",
                                    &r->memory[i]));
    struct param_memory memory = {.w = r->memory[0], .grad = r->memory[2], .m = r->memory[3],
                                  .v = r->memory[4]};
    if (r->dev->ct != r->dev->at)
        memory.master = r->memory[1];
    struct param_place at = {.model = &r->model, .split = &r->split, .stage = &r->stage,
                             .tp_rank = r->tp_rank, .shard_rank = r->shard_rank,
                             .num_shards = r->num_shards};
    CHECK_OK(param_store_open(&r->store, r->dev, &at, &memory));
}

void store_rig_close(struct store_rig *r)
{
    param_store_close(&r->store);
    for (int i = 0; i < 5; i++)
        r->dev->ops->free(r->dev, r->memory[i]);
    dev_close(r->dev);
}

enum err store_read_grad(const struct param *p, double *out)
{
    struct dev *dev = p->store->dev;
    void *raw;
    TRY(param_grad_settle(p));
    TRY(mem_new(p->count, (size_t)p->store->at, p->spec.name, &raw));
    enum err err = dev_d2h(dev, raw, param_grad(p), p->count * p->store->at);
    if (err == ERR_OK)
        err = dev->ops->sync(dev);
    for (int64_t i = 0; i < p->count && err == ERR_OK; i++)
        out[i] = dtype_get(raw, dev->at, i);
    mem_free(raw);
    return err;
}

void store_rig_segments(const struct store_rig *r, int64_t least, struct segments **out)
{
    int64_t most = INT64_MAX / r->store.at;
    struct segments_args a = {.model = &r->model, .split = r->split,
                              .bytes = num_min(least, most) * r->store.at,
                              .element = r->store.at, .num_shards = r->store.num_shards};
    CHECK_OK(segments_make(&a, &r->stage, 1, out));
}
