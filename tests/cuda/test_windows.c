/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums and gathers by copies between two GPUs, against the same in host memory; and what becomes of
 * them when a rank fails or stays away, or has no window. Where there is one, both ranks have it,
 * and what needs a replay is left out.
 */
#include "two_gpus.h"

/* Sums in a window: `n` elements from `at` on, `times` started apart; the host's bits. */
struct summed { int64_t at, n; enum dtype dt; int times; };

static enum err sum_in(struct side *s, struct comm_group *g, char *window, const struct summed *c)
{
    struct comm_req r[4] = {{0}};
    int64_t unit = dtype_size(c->dt), bytes = c->n * unit;
    char *want, *got;
    TRY(mem_new(c->times * bytes + 1, 1, "what should come", &want));
    TRY(mem_new(c->times * bytes + 1, 1, "what came", &got));
    fill(s, want, c->times * c->n, c->dt);
    TRY(dev_h2d(s->dev, window + c->at, want, c->times * bytes));
    for (int i = 0; i < c->times; i++)
        if (c->times == 1)
            TRY(comm_all_reduce(g, window + c->at, c->n, c->dt, COMM_SUM));
        else
            TRY(comm_all_reduce_start(g, window + c->at + i * bytes, c->n, c->dt, COMM_SUM, &r[i]));
    for (int i = 0; i < c->times; i++)
        TRY(comm_finish(&r[i]));
    TRY(comm_all_reduce(s->host, want, c->times * c->n, c->dt, COMM_SUM));
    TRY(dev_d2h(s->dev, got, window + c->at, c->times * bytes));
    TRY(s->dev->ops->sync(s->dev));
    CHECK(memcmp(got, want, (size_t)(c->times * bytes)) == 0);
    mem_free(want);
    mem_free(got);
    return ERR_OK;
}

enum { WINDOW = 200 << 20, BEFORE = 20000 }; /* about a second of zeroing */

/* A window, and a group to which it is named, or not. */
static enum err open_with(const struct side *s, bool also_nccl, bool named, char **window,
                          struct comm_group **g)
{
    int ranks[RANKS] = {0, 1};
    TRY(comm_window_take(s->w, WINDOW, "a window", (void **)window));
    CHECK(*window != NULL);
    struct comm_group_args a = {.id = 3, .ranks = ranks, .n = RANKS, .mem = COMM_DEVICE,
                                .window = named ? *window : NULL, .window_bytes = WINDOW,
                                .also_nccl = also_nccl};
    return comm_group_open(s->w, &a, g);
}

static enum err group_open(const struct side *s, bool also_nccl, char **window,
                           struct comm_group **g)
{
    return open_with(s, also_nccl, true, window, g);
}

static enum err window_open(const struct side *s, char **window, struct comm_group **g)
{
    return group_open(s, false, window, g);
}

static enum err windows_of(struct side *s)
{
    static const struct summed all[] = {
        {0, 1, DT_F32, 1},      {4, 3, DT_F32, 1},         {64, 4096, DT_F32, 3},
        {2, 77, DT_BF16, 1},    {0, 65536, DT_BF16, 2},    {12, 1000003, DT_F32, 4},
        {0, 16 << 20, DT_F32, 1}, {64, (45 << 20) + 5, DT_F32, 1}, {128, 20 << 20, DT_F32, 2},
    };
    struct comm_group *g;
    char *window;
    TRY(window_open(s, &window, &g));
    CHECK(comm_gpus_reach((const int[]){0, 1}, RANKS) == comm_group_copies(g)); /* as planned */
    CHECK(comm_gpus_reach((const int[]){0, 0}, RANKS)); /* itself */
    for (int again = 0; again < 2; again++) {
        for (size_t i = 0; i < sizeof all / sizeof *all; i++)
            TRY(sum_in(s, g, window, &all[i]));
        comm_warmup_end(s->w);  /* from here on the hosts do not wait */
    }
    TRY(s->dev->ops->sync(s->dev));
    TRY(comm_barrier(s->host));
    comm_group_close(g);
    return ERR_OK;
}

/* Of a group with also_nccl: some go by copies; some, too small or of another kind, by NCCL. */
enum kind { SUM, MAX, SCATTER, GATHER, TO_ROOT, TO_ALL, SCATTER_CHUNKS, GATHER_CHUNKS,
            SCATTER_INSIDE, GATHER_INSIDE, GATHER_CHUNKS_INSIDE }; /* the short side in the long */
struct one { enum kind kind; int64_t count; enum dtype dt; int root; };
static const struct one several[] = {
    {SUM, 3, DT_F32, 0},           {SUM, 300001, DT_BF16, 0},   {GATHER, 7, DT_BF16, 0},
    {MAX, 1001, DT_F32, 0},        {SCATTER, 1, DT_BF16, 0},    {SCATTER, 2 << 20, DT_BF16, 0},
    {TO_ROOT, 100003, DT_BF16, 0}, {TO_ROOT, 9, DT_BF16, 1},    {SCATTER, 12345, DT_F32, 0},
    {GATHER, 3 << 20, DT_BF16, 0}, {TO_ROOT, 1 << 20, DT_F32, 1}, {GATHER, 5, DT_I32, 0},
    {TO_ROOT, 1 << 20, DT_F32, 0}, {SUM, 1 << 20, DT_F32, 0},   {GATHER, 0, DT_F32, 0},
    {SCATTER_CHUNKS, 1 << 20, DT_BF16, 0}, {GATHER_CHUNKS, 77777, DT_BF16, 0},
    {SCATTER_CHUNKS, 3, DT_F32, 0}, {SCATTER, 999, DT_F32, 0},   {GATHER_CHUNKS, 1, DT_I32, 0},
    {GATHER, 64, DT_F32, 0},       {SCATTER_CHUNKS, 0, DT_F32, 0},
    {SCATTER_INSIDE, 2 << 20, DT_F32, 0}, {GATHER_INSIDE, 3 << 20, DT_BF16, 0},
    {GATHER_INSIDE, 64, DT_F32, 0}, {GATHER_CHUNKS_INSIDE, 4097, DT_BF16, 0},
    {SCATTER_INSIDE, 64, DT_F32, 0}, {GATHER, 1000, DT_BF16, 0}, {TO_ALL, 1 << 20, DT_F32, 0},
    {TO_ALL, 3, DT_BF16, 0},         {SUM, 1 << 19, DT_F32, 0},  {TO_ALL, 0, DT_I32, 0},
};
enum { SEVERAL = sizeof several / sizeof *several };

/* The chunks before the last finished at once; the last is r's, or finished, too. */
static enum err do_steps(struct comm_group *g, const struct one *o, char *in, char *out,
                         struct comm_req *r)
{
    int n = comm_group_size(g), chunks = o->kind == SCATTER_CHUNKS ? n : n - 1;
    struct comm_req own[RANKS] = {{0}};
    for (int k = 1; k <= chunks; k++) {
        struct comm_req *at = k == chunks && r ? r : &own[k - 1];
        TRY(o->kind == SCATTER_CHUNKS
                ? comm_reduce_scatter_chunk_start(g, k, out, in, o->count, o->dt, at)
                : comm_all_gather_chunk_start(g, k, out, in, o->count, o->dt, at));
    }
    for (int k = 0; k < RANKS; k++)
        TRY(comm_finish(&own[k]));
    return ERR_OK;
}

/* Started with `r`, or without it done at once. A sum to a root is always started, what goes to all
 * is done at once. */
static enum err do_one(struct comm_group *g, const struct one *o, char *in, char *out,
                       struct comm_req *r)
{
    int64_t n = o->count;
    enum comm_red red = o->kind == MAX ? COMM_MAX : COMM_SUM;
    char *mine = in + comm_group_rank(g) * n * dtype_size(o->dt);
    switch (o->kind) {
    case SCATTER_INSIDE:
        return do_one(g, &(struct one){SCATTER, n, o->dt, 0}, in, mine, r);
    case GATHER_INSIDE:
        return do_one(g, &(struct one){GATHER, n, o->dt, 0}, mine, in, r);
    case GATHER_CHUNKS_INSIDE:
        return do_steps(g, o, mine, in, r);
    case SUM:
    case MAX:
        return r ? comm_all_reduce_start(g, in, n, o->dt, red, r)
                 : comm_all_reduce(g, in, n, o->dt, red);
    case SCATTER:
        return r ? comm_reduce_scatter_start(g, out, in, n, o->dt, r)
                 : comm_reduce_scatter(g, out, in, n, o->dt);
    case GATHER:
        return r ? comm_all_gather_start(g, out, in, n, o->dt, r)
                 : comm_all_gather(g, out, in, n, o->dt);
    case TO_ROOT:
        return r ? comm_reduce_start(g, o->root, comm_group_rank(g) == o->root ? out : NULL, in, n,
                                     o->dt, r) : ERR_OK;
    case TO_ALL:
        return exchange(g, out, in, n, o->dt);
    case SCATTER_CHUNKS:
    case GATHER_CHUNKS:
        return do_steps(g, o, in, out, r);
    }
    return ERR_OK;
}

/* All of them behind each other, `in` and `out` one behind the other in `p`. */
static enum err do_several(struct comm_group *g, char *p, bool apart)
{
    struct comm_req r[SEVERAL] = {{0}};
    for (int i = 0; i < SEVERAL; i++) {
        int64_t side = RANKS * (several[i].count * dtype_size(several[i].dt) + 256) / 256 * 256;
        TRY(do_one(g, &several[i], p, p + side, apart ? &r[i] : NULL));
        p += 2 * side;
    }
    for (int i = 0; i < SEVERAL; i++)
        TRY(comm_finish(&r[i]));
    return ERR_OK;
}

static void fill_several(const struct side *s, char *p)
{
    for (int i = 0; i < SEVERAL; i++) {
        int64_t side = RANKS * (several[i].count * dtype_size(several[i].dt) + 256) / 256 * 256;
        fill(s, p, RANKS * several[i].count, several[i].dt);
        p += 2 * side;
    }
}

/* A replay is of a step: number 7. */
enum how { AT_ONCE, STARTED, REPLAYED };

static enum err do_how(struct side *s, struct comm_group *g, char *window, enum how how)
{
    if (how != REPLAYED)
        return do_several(g, window, how == STARTED);
    TRY(s->dev->ops->graph_launch(s->dev, s->r));
    return comm_graph_launched(s->w, 7, 0);
}

/* With all of the window: what must not be written is not. */
static enum err compare_several(struct side *s, struct comm_group *g, char *window, enum how how)
{
    char *want, *got;
    TRY(mem_new(WINDOW, 1, "what should come", &want));
    TRY(mem_new(WINDOW, 1, "what came", &got));
    fill_several(s, want);
    TRY(dev_h2d(s->dev, window, want, WINDOW));
    TRY(do_how(s, g, window, how));
    TRY(do_several(s->host, want, how != AT_ONCE));
    TRY(dev_d2h(s->dev, got, window, WINDOW));
    TRY(s->dev->ops->sync(s->dev));
    CHECK(memcmp(got, want, WINDOW) == 0);
    mem_free(want);
    mem_free(got);
    return ERR_OK;
}

static enum err mixed_of(struct side *s)
{
    struct comm_group *g;
    char *window;
    TRY(group_open(s, true, &window, &g));
    CHECK(comm_group_copies(g) == comm_gpus_reach((const int[]){0, 1}, RANKS));
    for (int again = 0; again < 4; again++) {
        TRY(compare_several(s, g, window, again % 2 ? AT_ONCE : STARTED));
        if (again == 1)
            comm_warmup_end(s->w);
    }
    TRY(s->dev->ops->sync(s->dev));
    TRY(comm_barrier(s->host));
    comm_group_close(g);
    return ERR_OK;
}

/* Replays of all of them, and the same unrecorded between. */
static enum err mixed_recorded_of(struct side *s)
{
    struct comm_group *g;
    char *window;
    TRY(group_open(s, true, &window, &g));
    TRY(compare_several(s, g, window, STARTED));
    comm_warmup_end(s->w);
    TRY(s->dev->ops->graph_begin(s->dev));
    TRY(do_several(g, window, true));
    TRY(s->dev->ops->graph_end(s->dev, &s->r));
    comm_graph_captured(s->w, forget, s);
    TRY(comm_barrier(s->host));
    for (int again = 0; again < 3; again++) {
        TRY(compare_several(s, g, window, REPLAYED));
        TRY(compare_several(s, g, window, again == 1 ? STARTED : REPLAYED));
    }
    TRY(comm_barrier(s->host));
    comm_group_close(g);
    return ERR_OK;
}

/* One rank got no window: both go by NCCL, all the same; of one GPU all memory can be read. */
static enum err half_window_of(struct side *s)
{
    struct comm_group *g;
    char *window;
    TRY(open_with(s, true, s->me == 0, &window, &g));
    CHECK(comm_group_copies(g) == (gpus == 1));
    TRY(compare_several(s, g, window, STARTED));
    TRY(comm_barrier(s->host));
    comm_group_close(g);
    return ERR_OK;
}

/* The root waits in a copy, the other fails. */
static enum err mixed_abort_of(struct side *s)
{
    struct comm_group *g;
    struct comm_req r = {0};
    char *window;
    TRY(group_open(s, true, &window, &g));
    comm_warmup_end(s->w);
    TRY(comm_barrier(s->gpu));
    if (s->me == 1)
        return stumble(s);
    double begin = log_now();
    TRY(comm_reduce_start(g, 0, window, window, MOST, DT_F32, &r));
    enum err err = comm_finish(&r);
    if (err == ERR_OK)
        err = comm_all_reduce(g, window, 8, DT_F32, COMM_MAX); /* and behind it NCCL */
    if (err == ERR_OK)
        err = s->dev->ops->sync(s->dev);
    CHECK(err == ERR_PEER);
    CHECK(log_now() - begin < ABORT_S);
    return err;
}

/* ---- messages ---- */

/* Elements of f32 of the messages of a lane, in order. */
static const int64_t message[] = {1, 77, 1 << 20, 0, 5 << 20, 4097};
enum { MESSAGES = sizeof message / sizeof *message, LANES = 2 };

static enum err post_open(const struct side *s, char **window)
{
    int other = 1 - s->me;
    struct comm_channel way[] = {{s->me, other, 0}, {other, s->me, 0}, {other, s->me, 1},
                                 {s->me, other, 1}};
    TRY(comm_window_take(s->w, WINDOW, "a window", (void **)window));
    CHECK(*window != NULL);
    return comm_channels_open(s->w, way, 2 * LANES);
}

/* All of both lanes, from the window's first half; or to its second. */
static enum err post_all(struct side *s, char *at, bool sends, struct comm_req *r)
{
    for (int lane = 0; lane < LANES; lane++)
        for (int i = 0; i < MESSAGES; i++) {
            int64_t bytes = message[i] * (int64_t)sizeof(float);
            struct comm_device_msg m = {1 - s->me, lane, 7, at, bytes};
            TRY(sends ? comm_device_send_start(s->w, &m, r)
                      : comm_device_recv_start(s->w, &m, r));
            at += bytes;
            r++;
        }
    return ERR_OK;
}

/* Both send all before either receives. */
static enum err post_both_ways(struct side *s)
{
    struct comm_req out[LANES * MESSAGES] = {{0}}, in[LANES * MESSAGES] = {{0}};
    TRY(post_all(s, s->window, true, out));
    TRY(post_all(s, s->window + WINDOW / 2, false, in));
    for (int i = 0; i < LANES * MESSAGES; i++)
        TRY(comm_finish(&in[i]));
    for (int i = 0; i < LANES * MESSAGES; i++)
        TRY(comm_finish(&out[i]));
    return ERR_OK;
}

static enum err post_compare(struct side *s, int64_t time, enum err (*way)(struct side *s))
{
    struct side peer = {.me = 1 - s->me};
    int64_t n = 0;
    float *want, *got;
    for (int i = 0; i < MESSAGES; i++)
        n += LANES * message[i];
    int64_t bytes = n * (int64_t)sizeof(float);
    TRY(mem_new(n + time, sizeof *want, "what should come", &want));
    TRY(mem_new(n, sizeof *got, "what came", &got));
    fill(s, want, n + time, DT_F32); /* the count is part of the numbers */
    TRY(dev_h2d(s->dev, s->window, want, bytes));
    TRY(dev_zero(s->dev, s->window + WINDOW / 2, bytes));
    TRY(way(s));
    TRY(dev_d2h(s->dev, got, s->window + WINDOW / 2, bytes));
    TRY(s->dev->ops->sync(s->dev));
    fill(&peer, want, n + time, DT_F32);
    CHECK(memcmp(got, want, (size_t)bytes) == 0);
    mem_free(want);
    mem_free(got);
    return ERR_OK;
}

static enum err post_replay(struct side *s)
{
    TRY(s->dev->ops->graph_launch(s->dev, s->r));
    return comm_graph_launched(s->w, 7, 0);
}

/* Queued call by call, and as replays of a recording, and by turns; of one GPU call by call. */
static enum err post_of(struct side *s)
{
    TRY(post_open(s, &s->window));
    for (int64_t time = 1; time <= 3; time++)
        TRY(post_compare(s, time, post_both_ways));
    comm_warmup_end(s->w);
    if (gpus < RANKS)
        return comm_barrier(s->host);
    TRY(s->dev->ops->graph_begin(s->dev));
    TRY(post_both_ways(s));
    TRY(s->dev->ops->graph_end(s->dev, &s->r));
    comm_graph_captured(s->w, forget, s);
    for (int64_t time = 4; time <= 9; time++)
        TRY(post_compare(s, time, time % 3 ? post_replay : post_both_ways));
    return comm_barrier(s->host);
}

/* Rank 0 sends what nobody fetches, or waits for what nobody sends. */
static enum err post_abort(struct side *s, bool sends)
{
    struct comm_req r = {0};
    TRY(post_open(s, &s->window));
    TRY(comm_barrier(s->host));
    if (s->me == 1)
        return stumble(s);
    double begin = log_now();
    struct comm_device_msg m = {1, 0, 7, s->window, 4096};
    enum err err = sends ? comm_device_send_start(s->w, &m, &r)
                         : comm_device_recv_start(s->w, &m, &r);
    if (err == ERR_OK)
        err = comm_finish(&r);
    if (err == ERR_OK)
        err = s->dev->ops->sync(s->dev);
    CHECK(err == ERR_PEER);
    CHECK(log_now() - begin < ABORT_S);
    return err;
}

static enum err post_abort_send(struct side *s)
{
    return post_abort(s, true);
}

static enum err post_abort_recv(struct side *s)
{
    return post_abort(s, false);
}

static enum err post_hang_of(struct side *s)
{
    struct comm_req r = {0};
    struct comm_device_msg m = {1, 0, 7, s->window, 4096};
    TRY(post_open(s, &s->window));
    m.p = s->window;
    TRY(comm_barrier(s->host));
    if (s->me == 0) {
        TRY(comm_device_recv_start(s->w, &m, &r));
        TRY(comm_finish(&r));
    } else {
        nanosleep(&(struct timespec){2 * HANG_S, 0}, NULL);
    }
    return comm_barrier(s->host);
}

/* A window past its first sums, both ranks there. */
static enum err window_begin(const struct side *s, char **window, struct comm_group **g)
{
    TRY(window_open(s, window, g));
    comm_warmup_end(s->w);
    return comm_barrier(s->gpu);
}

/* A sum of n elements behind `before` passes of zeroing, to which the peer never comes: it fails.
 * The rank's end gives back what it took. */
static enum err abort_behind(struct side *s, int before, int64_t n)
{
    struct comm_group *g;
    char *window;
    enum err err = ERR_OK;
    TRY(window_begin(s, &window, &g));
    if (s->me == 1)
        return stumble(s);
    double begin = log_now();
    for (int i = 0; i < before && err == ERR_OK; i++)
        err = dev_zero(s->dev, window, WINDOW);
    if (err == ERR_OK)
        err = comm_all_reduce(g, window, n, DT_F32, COMM_SUM);
    if (err == ERR_OK)
        err = s->dev->ops->sync(s->dev);
    CHECK(err == ERR_PEER);
    CHECK(log_now() - begin < ABORT_S);
    return err;
}

static enum err window_abort_of(struct side *s)
{
    return abort_behind(s, 0, MOST);
}

/* Of several pieces, and late: whoever frees this rank must do so for longer than one wait. */
static enum err window_late_of(struct side *s)
{
    return abort_behind(s, BEFORE, WINDOW / 4);
}

static enum err window_hang_of(struct side *s)
{
    struct comm_group *g;
    char *window;
    TRY(window_begin(s, &window, &g));
    if (s->me == 0) {
        TRY(comm_all_reduce(g, window, MOST, DT_F32, COMM_SUM));
        TRY(s->dev->ops->sync(s->dev));
    } else {
        nanosleep(&(struct timespec){2 * HANG_S, 0}, NULL);
    }
    return comm_barrier(s->host);
}

static void windows(void)
{
    if (two_ranks())
        CHECK_OK(run(windows_of, 60));
}

static void a_mixed_window(void)
{
    if (two_ranks())
        CHECK_OK(run(mixed_of, 60));
}

static void a_recorded_mixed_window(void)
{
    if (two_gpus())
        CHECK_OK(run(mixed_recorded_of, 60));
}

static void one_has_no_window(void)
{
    if (two_ranks())
        CHECK_OK(run(half_window_of, 60));
}

static void one_fails_in_a_mixed_window(void)
{
    if (two_ranks())
        CHECK_ERR(run(mixed_abort_of, 60), ERR_STORAGE, "stumbles");
}

static void messages(void)
{
    if (two_ranks())
        CHECK_OK(run(post_of, 60));
}

static void nobody_fetches(void)
{
    if (two_ranks())
        CHECK_ERR(run(post_abort_send, 60), ERR_STORAGE, "stumbles");
}

static void nobody_sends(void)
{
    if (two_ranks())
        CHECK_ERR(run(post_abort_recv, 60), ERR_STORAGE, "stumbles");
}

static void the_sender_stays_away(void)
{
    if (two_ranks())
        CHECK_ERR(run(post_hang_of, HANG_S), ERR_HANG,
                  gpus > 1 ? "for rank 1 to begin" : "from rank 1, tag 7 on its GPU");
}

static void one_fails_in_a_window(void)
{
    if (two_ranks())
        CHECK_ERR(run(window_abort_of, 60), ERR_STORAGE, "stumbles");
}

static void one_fails_before_many_pieces(void)
{
    if (two_ranks())
        CHECK_ERR(run(window_late_of, 60), ERR_STORAGE, "stumbles");
}

static void one_stays_away_from_a_window(void)
{
    if (two_ranks())
        CHECK_ERR(run(window_hang_of, HANG_S), ERR_HANG, "on its GPU");
}

static const struct test_case cases[] = {
    {"windows", windows}, {"a_mixed_window", a_mixed_window},
    {"a_recorded_mixed_window", a_recorded_mixed_window}, {"one_has_no_window", one_has_no_window},
    {"messages", messages}, {"nobody_fetches", nobody_fetches}, {"nobody_sends", nobody_sends},
    {"the_sender_stays_away", the_sender_stays_away},
    {"one_fails_in_a_mixed_window", one_fails_in_a_mixed_window},
    {"one_fails_in_a_window", one_fails_in_a_window},
    {"one_fails_before_many_pieces", one_fails_before_many_pieces},
    {"one_stays_away_from_a_window", one_stays_away_from_a_window},
};
TEST_MAIN(cases)
