/* SPDX-License-Identifier: Apache-2.0
 *
 * Which gradients are partial is read from the registry, never listed again here. A bucket is a
 * part: its parameters lie together in the store, so a part is one message.
 */
#include "parallel/dp.h"

#include "base/mem.h"

enum err dp_open(struct dp *d, struct comm_group *group, const struct tp *tp,
                 struct param_store *store, int parts)
{
    *d = (struct dp){.group = group, .tp = tp, .store = store, .parts = parts};
    return mem_new(parts, sizeof *d->req, "gradient reductions", &d->req);
}

void dp_close(struct dp *d)
{
    mem_free(d->req);
    *d = (struct dp){0};
}

static enum err sum_over_tp(struct dp *d, const struct param *p)
{
    struct comm_group *over = NULL;
    if (p->spec.rows_partial && d->tp->sp)
        over = d->tp->group;
    if (p->spec.slice == SLICE_KV && d->tp->kv)
        over = d->tp->kv;
    if (!over)
        return ERR_OK;
    return comm_all_reduce(over, param_grad(p), p->count, d->store->dev->at, COMM_SUM);
}

static enum err finish_one(struct dp *d)
{
    return comm_finish(&d->req[d->finished++]);
}

enum err dp_part_done(struct dp *d, int part)
{
    int first = d->store->part_first[part], end = d->store->part_first[part + 1];
    for (int i = first; i < end; i++) {
        TRY(param_grad_settle(&d->store->param[i]));
        TRY(sum_over_tp(d, &d->store->param[i]));
    }
    if (!d->group || first == end)
        return ERR_OK;
    if (d->started - d->finished == DP_IN_FLIGHT)
        TRY(finish_one(d));
    const struct param *a = &d->store->param[first], *b = &d->store->param[end - 1];
    struct comm_req *r = &d->req[d->started++];
    *r = (struct comm_req){0};
    return comm_all_reduce_start(d->group, param_grad(a), b->offset + b->count - a->offset,
                                 d->store->dev->at, COMM_SUM, r);
}

enum err dp_finish(struct dp *d)
{
    while (d->finished < d->started)
        TRY(finish_one(d));
    d->started = d->finished = 0;
    return ERR_OK;
}
