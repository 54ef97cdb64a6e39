/* SPDX-License-Identifier: Apache-2.0
 *
 * Which gradients are partial is read from the registry, never listed again here. Parameters of
 * parts lie together in the store in the parts' order, and backward completes the last part first;
 * so a bucket, one message, is a range that grows downwards until it is worth a message: at once on
 * the host's memory; on GPUs when it is so long that what a message costs besides its bytes does
 * not count. NCCL's sums take multiprocessors from products that were cut to fill all of them, and
 * one that misses a few runs twice as long: few long sums disturb fewer products than many short
 * ones. Sums by copies disturb little, and the sooner they begin, the less is left behind backward.
 *
 * The pieces of a store whose updates are shared are as long, but known beforehand. Behind the
 * optimizer each is a gather, too, and those are waited for: where a bucket may have to wait, a
 * store has SHARED_PIECES at most.
 */
#include "parallel/dp.h"

#include "base/mem.h"

enum { SHARED_PIECES = 24 };

static int64_t bucket_bytes(const struct dp *d)
{
    if (!d->store->dev->queues || !d->group)
        return 0;
    return comm_group_copies(d->group) ? DP_BUCKET_COPIES : DP_BUCKET_NCCL;
}

enum err dp_open(struct dp *d, struct comm_group *group, const struct tp *tp,
                 struct param_store *store, int parts)
{
    *d = (struct dp){.group = group, .tp = tp, .store = store, .parts = parts};
    d->least = bucket_bytes(d) / store->at;
    TRY(mem_new(parts, sizeof *d->req, "gradient reductions", &d->req));
    if (store->shares == 1)
        return ERR_OK;
    ENSURE(group && comm_group_size(group) == store->shares);
    if (d->least > 0)
        d->least = num_max(d->least, store->elements / SHARED_PIECES);
    TRY(param_share_cut(store, d->least));
    d->above = store->pieces;
    return ERR_OK;
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

static enum err next_request(struct dp *d, struct comm_req **out)
{
    if (d->started - d->finished == DP_IN_FLIGHT)
        TRY(finish_one(d));
    *out = &d->req[d->started++];
    **out = (struct comm_req){0};
    return ERR_OK;
}

/* The sum of the parameters that wait, if they are enough or all there are. */
static enum err start_bucket(struct dp *d, bool all)
{
    const struct param *a = &d->store->param[d->first], *b = &d->store->param[d->end - 1];
    int64_t count = b->offset + b->count - a->offset;
    struct comm_req *r;
    if (count < d->least && !all)
        return ERR_OK;
    TRY(next_request(d, &r));
    d->waiting = false;
    return comm_all_reduce_start(d->group, param_grad(a), count, d->store->dev->at, COMM_SUM, r);
}

static enum err start_piece(struct dp *d, int piece)
{
    const struct param_store *s = d->store;
    struct param_range own = param_share_of(s, piece);
    struct comm_req *r;
    TRY(next_request(d, &r));
    return comm_reduce_scatter_start(d->group, s->grad + own.begin * s->at,
                                     s->grad + s->edge[piece] * s->at, own.end - own.begin,
                                     s->dev->at, r);
}

/* The pieces of a shared store that end above what is not complete. */
static enum err start_above(struct dp *d, int part)
{
    const struct param_store *s = d->store;
    int first = s->part_first[part]; /* a part may have none, the last one, too */
    int64_t low = part == 0 ? 0 : first < s->n ? s->param[first].offset : s->elements;
    while (d->above > 0 && s->edge[d->above - 1] >= low)
        TRY(start_piece(d, --d->above));
    return ERR_OK;
}

enum err dp_part_done(struct dp *d, int part)
{
    int first = d->store->part_first[part], end = d->store->part_first[part + 1];
    for (int i = first; i < end; i++) {
        TRY(param_grad_settle(&d->store->param[i]));
        TRY(sum_over_tp(d, &d->store->param[i]));
    }
    if (d->store->shares > 1)
        return start_above(d, part);
    if (first < end) {
        d->end = d->waiting ? d->end : end;
        d->first = first;
        d->waiting = true;
    }
    return d->group && d->waiting ? start_bucket(d, part == 0) : ERR_OK;
}

enum err dp_finish(struct dp *d)
{
    ENSURE(!d->group || !d->waiting);
    ENSURE(d->store->shares == 1 || d->above == 0);
    while (d->finished < d->started)
        TRY(finish_one(d));
    d->started = d->finished = 0;
    d->above = d->store->pieces;
    return ERR_OK;
}

enum err dp_gather(struct dp *d, int64_t first, int64_t end)
{
    const struct param_store *s = d->store;
    for (int i = 0; i < s->pieces; i++) {
        struct param_range own = param_share_of(s, i);
        if (s->edge[i + 1] > first && s->edge[i] < end)
            TRY(comm_all_gather(d->group, s->grad + s->edge[i] * s->at,
                                s->grad + own.begin * s->at, own.end - own.begin, s->dev->at));
    }
    return ERR_OK;
}
