/* SPDX-License-Identifier: Apache-2.0
 *
 * Device memory between two GPUs, against the same operations in host memory. The numbers are small
 * whole ones, so sums are exact in every type and order. Where there is one GPU, both ranks have
 * it, and what needs a replay is left out.
 */
#include "two_gpus.h"

enum { STARTS = 5, FULL = 20000 };
static const int64_t counts[] = {1, 2, 7, 255, 4096, 65537, MOST / RANKS};
enum { COUNTS = sizeof counts / sizeof *counts };

enum { ALL_REDUCE, ALL_REDUCE_MAX, REDUCE_SCATTER, ALL_GATHER, BROADCAST, KINDS };

static enum err operation(const struct side *s, struct comm_group *g, void *p, int kind,
                          int64_t count, enum dtype dt)
{
    char *own = (char *)p + s->me * count * dtype_size(dt);
    if (kind == ALL_REDUCE || kind == ALL_REDUCE_MAX)
        return comm_all_reduce(g, p, RANKS * count, dt, kind == ALL_REDUCE ? COMM_SUM : COMM_MAX);
    if (kind == REDUCE_SCATTER)
        return comm_reduce_scatter(g, own, p, count, dt);
    if (kind == ALL_GATHER)
        return comm_all_gather(g, p, own, count, dt);
    return comm_broadcast(g, 1, p, RANKS * count * dtype_size(dt));
}

/* Operations that are started and finished apart; a root's two sides lie apart. */
enum { S_REDUCE, S_REDUCE_SCATTER, S_ALL_GATHER, S_KINDS };

/* Of RANKS * count elements at p; a second buffer lies behind them. */
static enum err start(const struct side *s, struct comm_group *g, char *p, int kind, int64_t count,
                      enum dtype dt, struct comm_req *r)
{
    int64_t part = count * dtype_size(dt), root = count % RANKS, all = RANKS * count;
    char *behind = p + RANKS * part;
    if (kind == S_REDUCE)
        return comm_reduce_start(g, (int)root, s->me == root ? behind : NULL, p, all, dt, r);
    if (kind == S_REDUCE_SCATTER)
        return comm_reduce_scatter_start(g, behind, p, count, dt, r);
    return comm_all_gather_start(g, behind, p, count, dt, r);
}

/* The whole of both buffers: what must not be written is not. Two of a kind are on their way at
 * once. */
static enum err compare_started(const struct side *s, int kind, int64_t count, enum dtype dt)
{
    int64_t bytes = 2 * RANKS * count * dtype_size(dt);
    struct comm_req gpu[2] = {{0}}, host[2] = {{0}};
    fill(s, s->want, 4 * RANKS * count, dt);
    TRY(dev_h2d(s->dev, s->d, s->want, 2 * bytes));
    for (int i = 0; i < 2; i++) {
        TRY(start(s, s->gpu, (char *)s->d + i * bytes, kind, count, dt, &gpu[i]));
        TRY(start(s, s->host, (char *)s->want + i * bytes, kind, count, dt, &host[i]));
    }
    for (int i = 0; i < 2; i++) {
        TRY(comm_finish(&gpu[i]));
        TRY(comm_finish(&host[i]));
    }
    TRY(dev_d2h(s->dev, s->got, s->d, 2 * bytes));
    TRY(s->dev->ops->sync(s->dev));
    test_check(memcmp(s->got, s->want, (size_t)(2 * bytes)) == 0, __FILE__, __LINE__,
               "kind %d of %lld %s elements", kind, (long long)count, dtype_name(dt));
    return ERR_OK;
}

static enum err started_kinds_of(struct side *s)
{
    for (int kind = 0; kind < S_KINDS; kind++)
        for (int i = 0; i < COUNTS && 4 * RANKS * counts[i] <= MOST; i++)
            for (int dt = 0; dt < DT_COUNT; dt++)
                TRY(compare_started(s, kind, counts[i], (enum dtype)dt));
    return comm_barrier(s->gpu);
}

static enum err compare(const struct side *s, int kind, int64_t count, enum dtype dt)
{
    int64_t bytes = RANKS * count * dtype_size(dt), part = bytes / RANKS;
    fill(s, s->want, RANKS * count, dt);
    TRY(dev_h2d(s->dev, s->d, s->want, bytes));
    TRY(operation(s, s->gpu, s->d, kind, count, dt));
    TRY(operation(s, s->host, s->want, kind, count, dt));
    TRY(dev_d2h(s->dev, s->got, s->d, bytes));
    TRY(s->dev->ops->sync(s->dev));
    int64_t from = kind == REDUCE_SCATTER ? s->me * part : 0;
    CHECK(memcmp((char *)s->got + from, (char *)s->want + from,
                 (size_t)(kind == REDUCE_SCATTER ? part : bytes)) == 0);
    return ERR_OK;
}

/* What is not received stays as it was. */
static enum err compare_exchange(const struct side *s, int64_t count, enum dtype dt)
{
    int64_t bytes = RANKS * count * dtype_size(dt);
    char *d = s->d, *want = s->want;
    fill(s, want, 2 * RANKS * count, dt);
    TRY(dev_h2d(s->dev, d, want, 2 * bytes));
    TRY(exchange(s->gpu, d + bytes, d, count, dt));
    TRY(exchange(s->host, want + bytes, want, count, dt));
    TRY(dev_d2h(s->dev, s->got, d, 2 * bytes));
    TRY(s->dev->ops->sync(s->dev));
    test_check(memcmp(s->got, want, (size_t)(2 * bytes)) == 0, __FILE__, __LINE__,
               "all_to_all of %lld %s elements", (long long)count, dtype_name(dt));
    return ERR_OK;
}

static enum err collectives_of(struct side *s)
{
    for (int i = 0; i < COUNTS && 2 * RANKS * counts[i] <= MOST; i++)
        for (int dt = 0; dt < DT_COUNT; dt++)
            TRY(compare_exchange(s, counts[i], (enum dtype)dt));
    for (int kind = 0; kind < KINDS; kind++)
        for (int i = 0; i < COUNTS; i++)
            for (int dt = 0; dt < DT_COUNT; dt++)
                TRY(compare(s, kind, counts[i], (enum dtype)dt));
    return comm_barrier(s->gpu);
}

/* Several on their way at once, finished in the order of starting or by the last alone. */
static enum err started_of(struct side *s)
{
    enum { PART = MOST / STARTS };
    for (int how = 0; how < 2; how++) {
        struct comm_req r[STARTS] = {{0}};
        float *d = s->d, *want = s->want;
        fill(s, want, MOST, DT_F32);
        TRY(dev_h2d(s->dev, d, want, MOST * (int64_t)sizeof(float)));
        for (int i = 0; i < STARTS; i++)
            TRY(comm_all_reduce_start(s->gpu, d + i * PART, PART, DT_F32, COMM_SUM, &r[i]));
        for (int i = 0; i < STARTS; i++)
            TRY(comm_finish(&r[how ? STARTS - 1 - i : i]));
        TRY(comm_all_reduce(s->host, want, STARTS * PART, DT_F32, COMM_SUM));
        TRY(dev_d2h(s->dev, s->got, d, MOST * (int64_t)sizeof(float)));
        TRY(s->dev->ops->sync(s->dev));
        CHECK(memcmp(s->got, want, (size_t)(STARTS * PART) * sizeof(float)) == 0);
    }
    return ERR_OK;
}

/* Both send before either receives, on both lanes. */
static enum err messages_of(struct side *s)
{
    int other = 1 - s->me;
    struct comm_channel way[] = {{s->me, other, 0}, {other, s->me, 0}, {other, s->me, 1},
                                 {s->me, other, 1}};
    int64_t n = MOST / 4, bytes = n * (int64_t)sizeof(double);
    double *d = s->d, *want = s->want;
    struct comm_req out[2] = {{0}}, in[2] = {{0}};
    struct side peer = {.me = other};
    TRY(comm_channels_open(s->w, way, 4));
    fill(s, want, 2 * n, DT_F64);
    TRY(dev_h2d(s->dev, d, want, 2 * bytes));
    for (int lane = 0; lane < 2; lane++) {
        struct comm_device_msg m = {other, lane, lane, d + lane * n, bytes};
        TRY(comm_device_send_start(s->w, &m, &out[lane]));
    }
    for (int lane = 1; lane >= 0; lane--) {
        struct comm_device_msg m = {other, lane, lane, d + (2 + lane) * n, bytes};
        TRY(comm_device_recv_start(s->w, &m, &in[lane]));
    }
    for (int lane = 0; lane < 2; lane++) {
        TRY(comm_finish(&out[lane]));
        TRY(comm_finish(&in[lane]));
    }
    fill(&peer, want, 2 * n, DT_F64);
    TRY(dev_d2h(s->dev, s->got, d + 2 * n, 2 * bytes));
    TRY(s->dev->ops->sync(s->dev));
    CHECK(memcmp(s->got, want, (size_t)(2 * bytes)) == 0);
    return ERR_OK;
}

/* Rank 0 queues a sum to which rank 1 never comes, and waits. */
static enum err abort_of(struct side *s)
{
    TRY(comm_barrier(s->gpu));
    if (s->me == 1)
        return stumble(s);
    double begin = log_now();
    TRY(comm_all_reduce(s->gpu, s->d, MOST, DT_F32, COMM_SUM));
    enum err err = s->dev->ops->sync(s->dev);
    CHECK(err == ERR_PEER);
    CHECK(log_now() - begin < ABORT_S);
    return err;
}

/* A started sum at its root, where the other member never comes. (Of another member it might be
 * over: what that one sends fits into NCCL's buffers.) */
static enum err abort_split_of(struct side *s)
{
    struct comm_req r = {0};
    TRY(comm_barrier(s->gpu));
    if (s->me == 1)
        return stumble(s);
    double begin = log_now();
    TRY(comm_reduce_start(s->gpu, 0, s->d, s->d, MOST, DT_F32, &r));
    enum err err = comm_finish(&r);
    if (err == ERR_OK)
        err = s->dev->ops->sync(s->dev);
    CHECK(err == ERR_PEER);
    CHECK(log_now() - begin < ABORT_S);
    return err;
}

/* The same, but rank 0 queues so much behind the sum that the driver takes no more: it waits there,
 * where nobody asks for peers, and the watchdog must wake it. Or, of many sums, in NCCL. */
static enum err full_of(struct side *s, bool sums)
{
    enum err err = ERR_OK;
    TRY(comm_barrier(s->gpu));
    if (s->me == 1)
        return stumble(s);
    double begin = log_now();
    TRY(comm_all_reduce(s->gpu, s->d, MOST, DT_F32, COMM_SUM));
    for (int i = 0; i < FULL && err == ERR_OK; i++)
        err = sums ? comm_all_reduce(s->gpu, s->d, 1, DT_F32, COMM_SUM) : dev_zero(s->dev, s->d, 4);
    if (err == ERR_OK)
        err = s->dev->ops->sync(s->dev);
    CHECK(err == ERR_PEER);
    CHECK(log_now() - begin < ABORT_S);
    return err;
}

static enum err full_of_work(struct side *s)
{
    return full_of(s, false);
}

static enum err full_of_sums(struct side *s)
{
    return full_of(s, true);
}

/* The same, but rank 1 only stays away. */
static enum err hang_of(struct side *s)
{
    TRY(comm_barrier(s->gpu));
    if (s->me == 0) {
        TRY(comm_all_reduce(s->gpu, s->d, MOST, DT_F32, COMM_SUM));
        TRY(s->dev->ops->sync(s->dev));
    } else {
        nanosleep(&(struct timespec){2 * HANG_S, 0}, NULL);
    }
    return comm_barrier(s->host);
}

/* Ranks that share a GPU state different sums, and different counts. */
static enum err other_sum_of(struct side *s)
{
    TRY(comm_all_reduce(s->gpu, s->d, MOST, DT_F32, s->me == 0 ? COMM_SUM : COMM_MAX));
    return s->dev->ops->sync(s->dev);
}

static enum err other_count_of(struct side *s)
{
    struct comm_req r = {0};
    TRY(comm_reduce_start(s->gpu, 0, s->d, s->d, MOST, DT_F32, &r));
    TRY(comm_finish(&r));
    TRY(comm_reduce_start(s->gpu, 0, s->d, s->d, s->me == 0 ? MOST : MOST / 2, DT_F32, &r));
    TRY(comm_finish(&r));
    return s->dev->ops->sync(s->dev);
}

/* ---- recorded ---- */

enum { SHARE = MOST / 8, REPLAYS = 4, STEP = 7 };

/* A sum at once, two that are started apart, and a message each way, which comes behind them. */
static enum err mixed(struct side *s)
{
    float *d = s->d;
    struct comm_req sum[2] = {{0}}, out = {0}, in = {0};
    int64_t bytes = SHARE * (int64_t)sizeof *d;
    struct comm_device_msg send = {1 - s->me, 0, 0, d + 3 * SHARE, bytes};
    struct comm_device_msg take = {1 - s->me, 0, 0, d + 4 * SHARE, bytes};
    TRY(comm_device_recv_start(s->w, &take, &in));
    TRY(comm_all_reduce(s->gpu, d, SHARE, DT_F32, COMM_SUM));
    for (int i = 0; i < 2; i++)
        TRY(comm_all_reduce_start(s->gpu, d + (1 + i) * SHARE, SHARE, DT_F32, COMM_SUM, &sum[i]));
    TRY(comm_device_send_start(s->w, &send, &out));
    for (int i = 0; i < 2; i++)
        TRY(comm_finish(&sum[i]));
    TRY(comm_finish(&in));
    return comm_finish(&out);
}

/* What mixed() makes of numbers of this time. */
static enum err compare_mixed(struct side *s, int64_t time, enum err (*way)(struct side *s))
{
    float *want = s->want;
    struct side peer = {.me = 1 - s->me};
    int64_t bytes = 5 * SHARE * (int64_t)sizeof *want;
    fill(s, want, 5 * SHARE + time, DT_F32); /* the count is part of the numbers */
    TRY(dev_h2d(s->dev, s->d, want, bytes));
    TRY(way(s));
    TRY(dev_d2h(s->dev, s->got, s->d, bytes));
    TRY(s->dev->ops->sync(s->dev));
    TRY(comm_all_reduce(s->host, want, 3 * SHARE, DT_F32, COMM_SUM));
    CHECK(memcmp(s->got, want, (size_t)(4 * SHARE) * sizeof *want) == 0);
    fill(&peer, want, 5 * SHARE + time, DT_F32);
    CHECK(memcmp((float *)s->got + 4 * SHARE, want + 3 * SHARE,
                 (size_t)SHARE * sizeof *want) == 0);
    return ERR_OK;
}

static enum err record_mixed(struct side *s)
{
    int other = 1 - s->me;
    struct comm_channel way[] = {{s->me, other, 0}, {other, s->me, 0}};
    TRY(comm_channels_open(s->w, way, 2));
    TRY(compare_mixed(s, 0, mixed));
    TRY(s->dev->ops->graph_begin(s->dev));
    TRY(mixed(s));
    TRY(s->dev->ops->graph_end(s->dev, &s->r));
    comm_graph_captured(s->w, forget, s);
    return comm_barrier(s->gpu);
}

static enum err replay(struct side *s)
{
    TRY(s->dev->ops->graph_launch(s->dev, s->r));
    return comm_graph_launched(s->w, STEP, 0);
}

/* Replays, and the same operations unrecorded between them. */
static enum err recorded_of(struct side *s)
{
    TRY(record_mixed(s));
    for (int64_t time = 1; time <= REPLAYS; time++) {
        TRY(compare_mixed(s, time, replay));
        TRY(compare_mixed(s, 10 * time, time % 2 ? mixed : replay));
    }
    return ERR_OK;
}

/* Rank 0 replays alone. */
static enum err recorded_abort_of(struct side *s)
{
    TRY(record_mixed(s));
    if (s->me == 1)
        return stumble(s);
    double begin = log_now();
    TRY(replay(s));
    TRY(replay(s));
    enum err err = s->dev->ops->sync(s->dev);
    CHECK(err == ERR_PEER);
    CHECK(log_now() - begin < ABORT_S);
    return err;
}

static enum err recorded_hang_of(struct side *s)
{
    TRY(record_mixed(s));
    if (s->me == 0) {
        TRY(replay(s));
        TRY(s->dev->ops->sync(s->dev));
    } else {
        nanosleep(&(struct timespec){2 * HANG_S, 0}, NULL);
    }
    return comm_barrier(s->host);
}

static void collectives(void)
{
    if (two_ranks())
        CHECK_OK(run(collectives_of, 60));
}

static void started_apart(void)
{
    if (two_ranks())
        CHECK_OK(run(started_of, 60));
}

static void kinds_started_apart(void)
{
    if (two_ranks())
        CHECK_OK(run(started_kinds_of, 60));
}

static void one_fails_a_started_sum(void)
{
    if (two_ranks())
        CHECK_ERR(run(abort_split_of, 60), ERR_STORAGE, "stumbles");
}

static void both_ways(void)
{
    if (two_ranks())
        CHECK_OK(run(messages_of, 60));
}

static void one_fails(void)
{
    if (two_ranks())
        CHECK_ERR(run(abort_of, 60), ERR_STORAGE, "stumbles");
}

static void one_fails_behind_much(void)
{
    if (two_ranks())
        CHECK_ERR(run(full_of_work, 60), ERR_STORAGE, "stumbles");
}

static void one_fails_behind_sums(void)
{
    if (two_ranks())
        CHECK_ERR(run(full_of_sums, 60), ERR_STORAGE, "stumbles");
}

static void one_stays_away(void)
{
    if (two_ranks())
        CHECK_ERR(run(hang_of, HANG_S), ERR_HANG, "on its GPU");
}

/* Of ranks that share a GPU alone: their hosts wait, and compare. */
static void sharing_ranks_are_compared(void)
{
    if (!two_ranks() || gpus != 1)
        return;
    CHECK_ERR(run(other_sum_of, 60), ERR_MISMATCH, "all_reduce (max)");
    CHECK_ERR(run(other_count_of, 60), ERR_MISMATCH, "which starts reduce and has ");
}

static void recorded(void)
{
    if (two_gpus())
        CHECK_OK(run(recorded_of, 60));
}

static void one_fails_in_a_replay(void)
{
    if (two_gpus())
        CHECK_ERR(run(recorded_abort_of, 60), ERR_STORAGE, "stumbles");
}

static void one_stays_away_in_a_replay(void)
{
    if (two_gpus())
        CHECK_ERR(run(recorded_hang_of, HANG_S), ERR_HANG, "the CUDA graph of step 7");
}

static const struct test_case cases[] = {
    {"collectives", collectives}, {"started_apart", started_apart},
    {"kinds_started_apart", kinds_started_apart}, {"both_ways", both_ways},
    {"one_fails", one_fails}, {"one_fails_a_started_sum", one_fails_a_started_sum},
    {"one_fails_behind_much", one_fails_behind_much}, {"one_stays_away", one_stays_away},
    {"sharing_ranks_are_compared", sharing_ranks_are_compared},
    {"recorded", recorded}, {"one_fails_in_a_replay", one_fails_in_a_replay},
    {"one_stays_away_in_a_replay", one_stays_away_in_a_replay},
    {"one_fails_behind_sums", one_fails_behind_sums}, /* last: it leaves a GPU of no more use */
};
TEST_MAIN(cases)
