/* SPDX-License-Identifier: Apache-2.0
 *
 * What the links between ranks carry: collectives over all ranks and a message from rank 0 to rank
 * 1, each over buffers of 1 KiB to 256 MiB in device memory, the way those of a run's tensor ranks
 * go: what is sent lies in a window, where GPUs have one. A point is the median of several batches,
 * between barriers, of operations one behind the other; a message goes there and back and counts
 * half. Rank 0 keeps the times.
 */
#include "study/bench.h"

#include "base/log.h"
#include "train/rank.h"

enum { LEAST = 1 << 10, LARGEST = 1 << 28, BATCHES = 5, OPS_MAX = 100, RANKS_MAX = 1024 };

struct link {
    struct bench *b;
    struct rank rank;
    struct comm_group *all;
    char *to, *from;  /* device, LARGEST bytes */
    char *window;     /* from, where that is the transport's */
};

/* There and back between ranks 0 and 1; the others have nothing to do. */
static enum err bounce(struct link *k, int64_t bytes)
{
    int me = comm_rank(k->rank.world);
    for (int turn = 0; turn < 2 && me < 2; turn++) {
        struct comm_req r = {0};
        struct comm_device_msg m = {.peer = 1 - me, .tag = 1, .bytes = bytes,
                                    .p = me == turn ? k->from : k->to};
        TRY(me == turn ? comm_device_send_start(k->rank.world, &m, &r)
                       : comm_device_recv_start(k->rank.world, &m, &r));
        TRY(comm_finish(&r));
    }
    return ERR_OK;
}

/* bytes: of the whole buffer, of which a gather gives and a scatter takes a part, and a part goes
 * to each and comes from each. */
static enum err operate(struct link *k, enum bench_link l, int64_t bytes)
{
    int64_t count[RANKS_MAX], at[RANKS_MAX];
    enum dtype ct = k->rank.dev->ct;
    int64_t n = bytes / dtype_size(ct), part = n / comm_size(k->rank.world);
    struct comm_to_all a = {.out = k->to, .in = k->from, .recv = {count, at}, .send = {count, at},
                            .dt = ct};
    for (int i = 0; l == LINK_ALL_TO_ALL && i < comm_size(k->rank.world); i++) {
        count[i] = part;
        at[i] = i * part;
    }
    switch (l) {
    case LINK_ALL_REDUCE: return comm_all_reduce(k->all, k->from, n, ct, COMM_SUM);
    case LINK_ALL_GATHER: return comm_all_gather(k->all, k->to, k->from, part, ct);
    case LINK_REDUCE_SCATTER: return comm_reduce_scatter(k->all, k->to, k->from, part, ct);
    case LINK_ALL_TO_ALL: return comm_all_to_all(k->all, &a);
    default: return bounce(k, bytes);
    }
}

static enum err batch(struct link *k, enum bench_link l, int64_t bytes, int n, double *out)
{
    TRY(k->rank.dev->ops->sync(k->rank.dev));
    TRY(comm_barrier(k->all));
    double begin = log_now();
    for (int i = 0; i < n; i++)
        TRY(operate(k, l, bytes));
    TRY(k->rank.dev->ops->sync(k->rank.dev));
    TRY(comm_barrier(k->all));
    *out = (log_now() - begin) / n / (l == LINK_SEND ? 2 : 1);
    return ERR_OK;
}

/* All ranks do as many operations as rank 0 finds that its budget holds. */
static enum err point(struct link *k, enum bench_link l, int64_t bytes, double *out)
{
    double t[BATCHES];
    int64_t n;
    TRY(batch(k, l, bytes, 1, &t[0]));
    TRY(batch(k, l, bytes, 1, &t[0]));
    n = num_min(OPS_MAX, 1 + (int64_t)(bench_budget(k->b) / BATCHES / (t[0] + 1e-9)));
    double agreed = (double)n, *shared;
    TRY(k->rank.dev->ops->alloc(k->rank.dev, (int64_t)sizeof agreed, "a count", (void **)&shared));
    enum err err = dev_h2d(k->rank.dev, shared, &agreed, (int64_t)sizeof agreed);
    if (err == ERR_OK)
        err = comm_broadcast(k->all, 0, shared, (int64_t)sizeof agreed);
    if (err == ERR_OK)
        err = dev_d2h(k->rank.dev, &agreed, shared, (int64_t)sizeof agreed);
    if (err == ERR_OK)
        err = k->rank.dev->ops->sync(k->rank.dev);
    k->rank.dev->ops->free(k->rank.dev, shared);
    TRY(err);
    for (int i = 0; i < BATCHES; i++)
        TRY(batch(k, l, bytes, (int)agreed, &t[i]));
    *out = bench_median(t, BATCHES);
    return ERR_OK;
}

static enum err measure(struct link *k)
{
    struct bench *b = k->b;
    int64_t largest = b->a->largest > 0 ? b->a->largest : LARGEST;
    for (int l = 0; l < BENCH_LINKS; l++) {
        int i = 0;
        for (int64_t bytes = LEAST; bytes <= largest && i < BENCH_POINTS; bytes *= 4, i++) {
            double seconds;
            TRY(point(k, (enum bench_link)l, bytes, &seconds));
            if (comm_rank(k->rank.world) != 0)
                continue;
            b->curve[l][i] = (struct bench_point){bytes, seconds};
            b->points[l] = i + 1;
        }
    }
    return ERR_OK;
}

static enum err open_link(struct link *k)
{
    int ranks[RANKS_MAX], n = comm_size(k->rank.world);
    const struct comm_channel ways[] = {{0, 1, 0}, {1, 0, 0}};
    struct comm_group_args a = {.ranks = ranks, .n = n, .mem = COMM_DEVICE};
    if (n > RANKS_MAX)
        FAIL(ERR_CONFIG, "bench: %d ranks; at most %d are measured", n, RANKS_MAX);
    for (int i = 0; i < n; i++)
        ranks[i] = i;
    struct dev_args device = {.kind = options_device(k->b->o), .ct = k->b->types.ct,
                              .cache = k->b->o->env.cache};
    TRY(rank_open_device(&k->rank, k->b->o, &device));
    struct dev *dev = k->rank.dev;
    TRY(dev->ops->alloc(dev, LARGEST, "a buffer", (void **)&k->to));
    TRY(comm_window_take(k->rank.world, LARGEST, "a buffer", (void **)&k->window));
    k->from = k->window;
    if (!k->window)
        TRY(dev->ops->alloc(dev, LARGEST, "a buffer", (void **)&k->from));
    a.window = k->window;
    a.window_bytes = LARGEST;
    a.also_nccl = true;
    a.max_bytes = LARGEST;
    TRY(comm_group_open(k->rank.world, &a, &k->all));
    return comm_channels_open(k->rank.world, ways, comm_rank(k->rank.world) < 2 ? 2 : 0);
}

static void release(void *arg)
{
    struct link *k = arg;
    struct dev *dev = k->rank.dev;
    if (k->all)
        comm_group_close(k->all);
    if (k->to)
        dev->ops->free(dev, k->to);
    if (k->from && !k->window)
        dev->ops->free(dev, k->from);
}

enum err bench_links(void *bench, struct comm_world *w)
{
    struct link k = {.b = bench, .rank = {.world = w}};
    enum err err = open_link(&k);
    if (err == ERR_OK)
        err = measure(&k);
    return rank_close(&k.rank, err, release, &k);
}
