/* SPDX-License-Identifier: Apache-2.0
 *
 * Which gradients are partial is read from the registry, never listed again here. Parameters of
 * parts lie together in the store in the parts' order, so those of a sum are one range, and one
 * message.
 */
#include "parallel/dp.h"

enum err dp_open(struct dp *d, const struct dp_args *a)
{
    *d = (struct dp){.a = *a, .left = a->sums};
    TRY(mem_new(a->sums, sizeof *d->req, "gradient reductions", &d->req));
    if (a->store->num_shards == 1)
        return ERR_OK;
    TRY(mem_new(a->sums, sizeof *d->gather, "gathers of weights", &d->gather));
    TRY(mem_new(a->sums, sizeof *d->given, "gathers of weights", &d->given));
    ENSURE(a->group && comm_group_size(a->group) == a->store->num_shards);
    return param_share_cut(a->store, a->first, a->sums);
}

void dp_close(struct dp *d)
{
    mem_free(d->req);
    mem_free(d->gather);
    mem_free(d->given);
    *d = (struct dp){0};
}

/* r is to be started: the oldest in flight makes room, whichever stage's it is. */
static enum err take_flight(struct dp *d, struct comm_req *r)
{
    struct dp_flight *f = d->a.flight;
    struct comm_req **slot = &f->of[f->n++ % DP_IN_FLIGHT];
    if (*slot)
        TRY(comm_finish(*slot));
    *slot = r;
    return ERR_OK;
}

static enum err start_one(struct dp *d, int sum)
{
    const struct param_store *s = d->a.store;
    int end = sum + 1 < d->a.sums ? d->a.first[sum + 1] : d->a.parts;
    const struct param *a = s->param + s->part_first[d->a.first[sum]];
    const struct param *behind = s->param + s->part_first[end];
    struct param_range own = param_share_of(s, s->num_shards > 1 ? sum : 0);
    for (const struct param *p = a; p < behind; p++) {
        struct comm_group *over = NULL; /* tensor ranks that have summands */
        if (p->spec.rows_partial && d->a.tp->sp)
            over = d->a.tp->group;
        if (p->spec.slice == SLICE_KV && d->a.tp->kv)
            over = d->a.tp->kv;
        TRY(param_grad_settle(p));
        if (over)
            TRY(comm_all_reduce(over, param_grad(p), p->count, s->dev->at, COMM_SUM));
    }
    if (s->num_shards > 1 ? own.begin == own.end : !d->a.group || a == behind)
        return ERR_OK;
    struct comm_req *r = &d->req[d->started++];
    TRY(take_flight(d, r));
    if (s->num_shards > 1)
        return comm_reduce_scatter_start(d->a.group, s->grad + own.begin * s->at,
                                         s->grad + s->edge[sum] * s->at, own.end - own.begin,
                                         s->dev->at, r);
    const struct param *b = behind - 1;
    return comm_all_reduce_start(d->a.group, param_grad(a), b->offset + b->count - a->offset,
                                 s->dev->at, COMM_SUM, r);
}

enum err dp_start(struct dp *d, int from)
{
    while (d->left > 0 && d->a.first[d->left - 1] >= from)
        TRY(start_one(d, --d->left));
    return ERR_OK;
}

static bool has_some(const struct param_store *s, int piece, struct dp_range at)
{
    return s->edge[piece] < at.end && s->edge[piece + 1] > at.begin;
}

void dp_weights_give(struct dp *d, struct dp_range at)
{
    for (int i = 0; i < d->a.store->pieces; i++)
        d->given[i] = d->given[i] || has_some(d->a.store, i, at);
}

enum err dp_weights_start(struct dp *d, struct dp_range at)
{
    const struct param_store *s = d->a.store;
    for (int i = 0; i < s->pieces; i++) {
        struct param_range own = param_share_of(s, i);
        struct comm_req *r = &d->gather[i];
        if (!(d->given[i] && has_some(d->a.store, i, at)))
            continue;
        ENSURE(!r->world);
        d->given[i] = false;
        TRY(take_flight(d, r));
        TRY(comm_all_gather_start(d->a.group, s->w + s->edge[i] * s->ct, s->w + own.begin * s->ct,
                                  own.end - own.begin, s->dev->ct, r));
    }
    return ERR_OK;
}

enum err dp_weights_finish(struct dp *d, struct dp_range at)
{
    for (int i = 0; i < d->a.store->pieces; i++)
        if (has_some(d->a.store, i, at))
            TRY(comm_finish(&d->gather[i]));
    return ERR_OK;
}

enum err dp_finish(struct dp *d)
{
    ENSURE(d->left == 0 || d->left == d->a.sums);
    for (int i = 0; i < d->started; i++)
        TRY(comm_finish(&d->req[i]));
    TRY(dp_weights_finish(d, (struct dp_range){0, d->a.store->elements}));
    d->started = 0;
    d->left = d->a.sums;
    return ERR_OK;
}

enum err dp_gather(struct dp *d, int64_t first, int64_t end)
{
    const struct param_store *s = d->a.store;
    for (int i = 0; i < s->pieces; i++) {
        struct param_range own = param_share_of(s, i);
        if (s->edge[i + 1] > first && s->edge[i] < end && own.begin < own.end)
            TRY(comm_all_gather(d->a.group, s->grad + s->edge[i] * s->at,
                                s->grad + own.begin * s->at, own.end - own.begin, s->dev->at));
    }
    return ERR_OK;
}
