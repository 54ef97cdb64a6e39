/* SPDX-License-Identifier: Apache-2.0
 *
 * The thread transport: results bit by bit against a serial oracle (comm_law.h), the order and
 * independence of messages, what starting and finishing may wait for, and every way of failing.
 */
#include "../dist/comm_law.h"

#include "base/log.h"
#include <stdatomic.h>

static void nap(double s)
{
    struct timespec t = {(time_t)s, (long)((s - floor(s)) * 1e9)};
    nanosleep(&t, NULL);
}

static enum err open_group(struct comm_world *w, int id, const int *ranks, int n,
                           struct comm_group **g)
{
    return comm_group_open(w, &(struct comm_group_args){.id = id, .ranks = ranks, .n = n}, g);
}

/* A group of all ranks. */
static enum err open_all(struct comm_world *w, struct comm_group **g)
{
    int ranks[LAW_RANKS];
    for (int i = 0; i < comm_size(w); i++)
        ranks[i] = i;
    TRY(open_group(w, 0, ranks, comm_size(w), g));
    return ERR_OK;
}

/* ---- results ---- */

static void results_of_every_size(void)
{
    for (int size = 1; size <= 8; size++) {
        struct law law = {.seed = test_random(), .ops = 150};
        CHECK_OK(comm_thread_run(size, 60, law_body, &law));
    }
}

static void results_under_delays(void)
{
    uint64_t seed = test_random();
    struct law plain = {.seed = seed, .ops = 400};
    struct law delayed = {.seed = seed, .ops = 400, .delays = true};
    CHECK_OK(comm_thread_run(8, 60, law_body, &plain));
    CHECK_OK(comm_thread_run(8, 60, law_body, &delayed));
    CHECK(plain.hash == delayed.hash && plain.hash != 0);
}

/* The oracle can tell orders apart: adding from the last member on gives other bits. */
static void order_shows(void)
{
    struct law law = {.seed = 1};
    struct law_run r = {.law = &law, .group[0] = {.ranks = {0, 1, 2, 3}, .n = 4}};
    struct law_flight f = {.dt = DT_F32};
    float forth[256], back[256];
    r.want = (char *)forth;
    for (int i = 0; i < 256; i++)
        law_reduce(&r, &f, i, i);
    r.want = (char *)back;
    for (int k = 0; k < 4; k++)
        r.group[0].ranks[k] = 3 - k;
    for (int i = 0; i < 256; i++)
        law_reduce(&r, &f, i, i);
    CHECK(memcmp(forth, back, sizeof forth) != 0);
}

/* bf16 is summed wide and rounded once: 256 + 1 + 1 + 1 is 259 -> 260 in bf16 (spacing 2), while
 * rounding after each addition stays at 256. A maximum with a NaN is NaN wherever it stands. */
static enum err special_body(void *arg, struct comm_world *w)
{
    struct comm_group *g;
    int me = comm_rank(w);
    (void)arg;
    TRY(open_all(w, &g));
    uint16_t b = bf16_from_f32(me == 0 ? 256.0f : 1.0f);
    TRY(comm_all_reduce(g, &b, 1, DT_BF16, COMM_SUM));
    CHECK_NEAR((double)bf16_to_f32(b), 260.0, 0);
    double d[4] = {0, 1, 2, 3};
    float s[4] = {0, 1, 2, 3};
    uint16_t h[4] = {0};
    d[me] = (double)NAN;
    s[me] = NAN;
    h[me] = bf16_from_f32(NAN);
    TRY(comm_all_reduce(g, d, 4, DT_F64, COMM_MAX));
    TRY(comm_all_reduce(g, s, 4, DT_F32, COMM_MAX));
    TRY(comm_all_reduce(g, h, 4, DT_BF16, COMM_MAX));
    for (int i = 0; i < 4; i++)
        CHECK(isnan(d[i]) && isnan(s[i]) && isnan(bf16_to_f32(h[i])));
    float f = me == 2 ? (float)INFINITY : -1.0f;
    TRY(comm_all_reduce(g, &f, 1, DT_F32, COMM_MAX));
    CHECK(isinf(f) && f > 0);
    comm_group_close(g);
    return ERR_OK;
}

static void rounding_and_nan(void)
{
    CHECK_OK(comm_thread_run(4, 20, special_body, NULL));
}

/* ---- what waits for what ---- */

static atomic_int gate;

static void pass_gate(void)
{
    while (!atomic_load(&gate))
        nap(0.001);
}

/* Rank 1 does nothing before rank 0 has started everything: a start that waited would hang. */
static enum err start_body(void *arg, struct comm_world *w)
{
    struct comm_group *g;
    struct comm_req sum = {0}, send = {0}, recv = {0};
    static double got[2][1000], put[2][1000];
    double x[3] = {1, 2, 3};
    int me = comm_rank(w);
    (void)arg;
    TRY(open_all(w, &g));
    if (me == 1)
        pass_gate();
    put[me][999] = me + 7;
    TRY(comm_all_reduce_start(g, x, 3, DT_F64, COMM_SUM, &sum));
    TRY(comm_send_start(w, 1 - me, 5, put[me], sizeof put[me], &send));
    TRY(comm_recv_start(w, 1 - me, 5, got[me], sizeof got[me], &recv));
    atomic_store(&gate, 1);
    TRY(comm_finish(&recv));
    TRY(comm_finish(&send));
    TRY(comm_finish(&sum));
    TRY(comm_finish(&sum)); /* a finished one returns at once */
    CHECK_NEAR(got[me][999], 8 - me, 0);
    CHECK_NEAR(x[2], 6, 0);
    comm_group_close(g);
    return ERR_OK;
}

static void starting_never_waits(void)
{
    atomic_store(&gate, 0);
    CHECK_OK(comm_thread_run(2, 20, start_body, NULL));
}

/* A receiver that computes between start and finish does not hold its sender; nor does a member
 * of an all_reduce hold the others. */
static enum err independent_body(void *arg, struct comm_world *w)
{
    struct comm_group *g;
    struct comm_req a = {0}, b = {0};
    static float x[2][300000];
    int me = comm_rank(w), note = 41 + me;
    (void)arg;
    TRY(open_all(w, &g));
    TRY(comm_all_reduce_start(g, x[me], 300000, DT_F32, COMM_SUM, &a));
    TRY(me == 0 ? comm_send_start(w, 1, 0, &note, sizeof note, &b)
                : comm_recv_start(w, 0, 0, &note, sizeof note, &b));
    if (me == 1)
        pass_gate();
    TRY(comm_finish(&b));
    TRY(comm_finish(&a));
    CHECK_INT(note, 41);
    atomic_store(&gate, 1);
    comm_group_close(g);
    return ERR_OK;
}

static void finishing_needs_only_starts(void)
{
    atomic_store(&gate, 0);
    CHECK_OK(comm_thread_run(2, 20, independent_body, NULL));
}

/* ---- order ---- */

enum { MESSAGES = 300, TAGS = 5 };

/* Rank 0 interleaves the tags; rank 1 takes them tag by tag. Both send at once. */
static enum err order_body(void *arg, struct comm_world *w)
{
    static struct comm_req send[2][MESSAGES * TAGS], recv[2][MESSAGES * TAGS];
    static int out[2][MESSAGES * TAGS], in[2][MESSAGES * TAGS];
    int me = comm_rank(w), peer = 1 - me;
    (void)arg;
    for (int k = 0; k < MESSAGES * TAGS; k++) {
        int tag = me == 0 ? k % TAGS : k / MESSAGES;
        out[me][k] = tag * MESSAGES + (me == 0 ? k / TAGS : k % MESSAGES);
        TRY(comm_send_start(w, peer, tag, &out[me][k], sizeof(int), &send[me][k]));
        TRY(comm_recv_start(w, peer, tag, &in[me][k], sizeof(int), &recv[me][k]));
    }
    for (int k = MESSAGES * TAGS - 1; k >= 0; k--) {
        TRY(comm_finish(&recv[me][k]));
        TRY(comm_finish(&send[me][k]));
        CHECK_INT(in[me][k], out[me][k]);
    }
    return ERR_OK;
}

static void messages_keep_their_order(void)
{
    CHECK_OK(comm_thread_run(2, 20, order_body, NULL));
}

enum { FLIGHT = 64, ROUNDS = 1000 };

/* One rank is always as far ahead as it may be, the other finishes each at once: the ring of
 * slots goes round many times. Then 64 are finished from the last to the first. */
static enum err flight_body(void *arg, struct comm_world *w)
{
    static struct comm_req req[2][FLIGHT];
    static int32_t x[2][FLIGHT];
    struct comm_group *g;
    struct comm_req none = {0};
    int me = comm_rank(w), lag = me == 0 ? FLIGHT : 1;
    (void)arg;
    TRY(open_all(w, &g));
    for (int k = 0; k < ROUNDS + lag; k++) {
        if (k >= lag) {
            TRY(comm_finish(&req[me][(k - lag) % FLIGHT]));
            CHECK_INT(x[me][(k - lag) % FLIGHT], 2 * (k - lag) + 1);
        }
        x[me][k % FLIGHT] = k + me;
        if (k < ROUNDS)
            TRY(comm_all_reduce_start(g, &x[me][k % FLIGHT], 1, DT_I32, COMM_SUM,
                                      &req[me][k % FLIGHT]));
    }
    for (int k = 0; k < FLIGHT; k++) {
        x[me][k] = k;
        TRY(comm_all_reduce_start(g, &x[me][k], 1, DT_I32, COMM_SUM, &req[me][k]));
    }
    CHECK_ERR(comm_all_reduce_start(g, &lag, 1, DT_I32, COMM_SUM, &none), ERR_INTERNAL,
              "64 unfinished operations");
    for (int k = FLIGHT - 1; k >= 0; k--) {
        TRY(comm_finish(&req[me][k]));
        CHECK_INT(x[me][k], 2 * k);
    }
    comm_group_close(g);
    return ERR_OK;
}

static void many_in_flight(void)
{
    CHECK_OK(comm_thread_run(2, 20, flight_body, NULL));
}

/* ---- failing ---- */

struct scene {
    int bad;          /* the rank that misbehaves */
    int how;          /* what it does, by the case */
    int want;         /* 0: all_reduce, 1: receive, 2: send, 3: barrier */
    atomic_int peers; /* ranks whose wait ended with ERR_PEER */
    double late;      /* seconds that others are waited for; 0: until they have given up */
    atomic_int ended; /* ranks whose wait has ended */
};

static enum err wait_in(struct comm_world *w, struct comm_group *g, const struct scene *s)
{
    static char x[LAW_RANKS][4000];
    struct comm_req r = {0};
    char *p = x[comm_rank(w)];
    if (s->want == 0)
        return comm_all_reduce(g, p, 1000, DT_F32, COMM_SUM);
    if (s->want == 3)
        return comm_barrier(g);
    if (s->want == 1)
        TRY(comm_recv_start(w, s->bad, 3, p, 4000, &r));
    else
        TRY(comm_send_start(w, s->bad, 3, p, 4000, &r));
    return comm_finish(&r);
}

static enum err fail_body(void *arg, struct comm_world *w)
{
    struct scene *s = arg;
    struct comm_group *g;
    TRY(open_all(w, &g));
    if (comm_rank(w) == s->bad) {
        nap(0.03);
        comm_group_close(g);
        if (s->how == 0)
            FAIL(ERR_DATA, "data: shard 7 is short");
        if (s->how == 1)
            return ERR_OK;
        comm_abort(w, ERR_STORAGE);
        nap(0.05);
        FAIL(ERR_STORAGE, "store: no room");
    }
    enum err err = wait_in(w, g, s);
    if (err == ERR_PEER)
        atomic_fetch_add(&s->peers, 1);
    comm_group_close(g);
    return err;
}

static void a_failing_rank_ends_all_waits(void)
{
    for (int want = 0; want < 4; want++) {
        struct scene s = {.bad = 2, .how = 0, .want = want};
        double t = log_now();
        CHECK_ERR(comm_thread_run(4, 30, fail_body, &s), ERR_DATA,
                  "rank 2: shard 7 is short");
        CHECK_INT(s.peers, 3);
        CHECK(log_now() - t < 1.0);
        struct scene a = {.bad = 0, .how = 2, .want = want};
        CHECK_ERR(comm_thread_run(4, 0, fail_body, &a), ERR_STORAGE, "rank 0: no room");
        CHECK_INT(a.peers, 3);
    }
}

static enum err short_body(void *arg, struct comm_world *w)
{
    (void)arg;
    if (comm_rank(w) == comm_size(w) - 1)
        FAIL(ERR_DATA, "data: shard 7 is short");
    return ERR_OK;
}

static enum err lone_body(void *arg, struct comm_world *w)
{
    (void)arg;
    if (comm_rank(w) == 0)
        return ERR_OK;
    FAIL(ERR_HANG, "comm: rank %d has waited", comm_rank(w));
}

/* The rank stands in place of the area, once, and not where there is one only. */
static void a_message_has_one_opening(void)
{
    CHECK_ERR(comm_thread_run(2, 0, short_body, NULL), ERR_DATA, "");
    CHECK_STR(err_text(), "rank 1: shard 7 is short");
    CHECK_ERR(comm_thread_run(1, 0, short_body, NULL), ERR_DATA, "");
    CHECK_STR(err_text(), "data: shard 7 is short");
    CHECK_ERR(comm_thread_run(2, 0, lone_body, NULL), ERR_HANG, "");
    CHECK_STR(err_text(), "rank 1 has waited");
    CHECK_STR(err_bare("no area: here"), "no area: here");
    CHECK_STR(err_bare("data.train: here"), "data.train: here");
}

enum { LATE_MS = 50 };

/* Rank 1 comes late; its peer's time in communication is the wait, its own is not. */
static enum err late_body(void *arg, struct comm_world *w)
{
    int ranks[] = {0, 1};
    struct comm_group *g;
    double *spent = arg;
    TRY(open_group(w, 0, ranks, 2, &g));
    double before = comm_spent(w);
    if (comm_rank(w) == 1)
        nap(LATE_MS / 1000.0);
    enum err err = comm_barrier(g);
    spent[comm_rank(w)] = comm_spent(w) - before;
    comm_group_close(g);
    return err;
}

static void waiting_is_timed(void)
{
    double spent[2] = {0};
    CHECK_OK(comm_thread_run(2, 0, late_body, spent));
    CHECK(spent[0] > 0.8 * LATE_MS / 1000.0);
    CHECK(spent[1] < spent[0] && spent[1] > 0);
}

static void an_early_end_ends_waits(void)
{
    for (int want = 0; want < 4; want++) {
        struct scene s = {.bad = 1, .how = 1, .want = want};
        CHECK_ERR(comm_thread_run(3, 0, fail_body, &s), ERR_PEER, "rank ");
        CHECK_INT(s.peers, 2);
    }
}

static enum err early_body(void *arg, struct comm_world *w)
{
    int x = 0;
    struct comm_req r = {0};
    (void)arg;
    if (comm_rank(w) == 1)
        return ERR_OK;
    TRY(comm_recv_start(w, 1, 9, &x, sizeof x, &r));
    TRY(comm_finish(&r));
    return ERR_OK;
}

static void an_early_end_is_named(void)
{
    CHECK_ERR(comm_thread_run(2, 0, early_body, NULL), ERR_PEER,
              "rank 1 has ended without taking part in the receive of 4 bytes from rank 1, tag 9");
}

/* Ranks 1 and 3 are somewhere else. */
static enum err hang_body(void *arg, struct comm_world *w)
{
    struct scene *s = arg;
    struct comm_group *g;
    TRY(open_all(w, &g));
    double begin = log_now(), most = s->late > 0 ? s->late : 60;
    while (comm_rank(w) % 2 == 1 && s->ended == 0 && log_now() - begin < most)
        nap(0.01);
    enum err err = wait_in(w, g, s);
    atomic_fetch_add(&s->ended, 1);
    comm_group_close(g);
    return err;
}

static void a_hang_names_the_missing(void)
{
    struct scene s = {.want = 0};
    CHECK_ERR(comm_thread_run(4, 0.2, hang_body, &s), ERR_HANG,
              "waits for rank 1, 3, for 0.");
    CHECK(strstr(err_text(), " does not answer: ") &&
          strstr(err_text(), " s, in all_reduce of 1000 f32 elements, operation 0 of group 0; "));
    s = (struct scene){.want = 1, .bad = 1};
    CHECK_ERR(comm_thread_run(2, 0.2, hang_body, &s), ERR_HANG,
              "rank 1 does not answer: ");
    CHECK(strstr(err_text(), "rank 0 waits for rank 1, ") &&
          strstr(err_text(), " s, in the receive of 4000 bytes from rank 1, tag 3"));
}

/* A wait within the timeout is none of its business. */
static void slow_is_not_hanging(void)
{
    struct scene s = {.want = 0, .late = 0.6};
    CHECK_OK(comm_thread_run(4, 20, hang_body, &s));
}

/* A failing rank gives its buffers back at once; peers that are amid them must have left. Found
 * by the address sanitizer and by crashes. */
static enum err give_back_body(void *arg, struct comm_world *w)
{
    enum { COUNT = 1 << 19 };
    struct comm_group *g;
    struct comm_req r = {0}, m = {0};
    float *x;
    int me = comm_rank(w), next = (me + 1) % 4;
    const int *round = arg;
    TRY(open_all(w, &g));
    TRY(mem_new(COUNT, 4, "test buffer", &x));
    enum err err = comm_all_reduce_start(g, x, COUNT, DT_F32, COMM_SUM, &r);
    if (err == ERR_OK)
        err = comm_send_start(w, next, 0, x, 8, &m);
    if (me == *round % 4) {
        nap(0.0005 * (*round / 4));
        comm_abort(w, ERR_DATA);
        err = err_set(ERR_DATA, __FILE__, __LINE__, "data: wrong");
    }
    if (err == ERR_OK)
        err = comm_finish(&r);
    if (err == ERR_OK)
        err = comm_barrier(g);
    mem_free(x);
    comm_group_close(g);
    return err;
}

static void failing_ranks_free_their_buffers(void)
{
    for (int round = 0; round < 16; round++)
        CHECK_ERR(comm_thread_run(4, 20, give_back_body, &round), ERR_DATA, "wrong");
}

/* ---- misuse ---- */

static enum err unfinished_body(void *arg, struct comm_world *w)
{
    static int x;
    struct comm_req r = {0};
    (void)arg;
    if (comm_rank(w) == 0)
        TRY(comm_send_start(w, 1, 0, &x, sizeof x, &r));
    return ERR_OK;
}

static enum err misuse_body(void *arg, struct comm_world *w)
{
    struct comm_group *g, *one;
    struct comm_req r = {0};
    double x[8] = {1, 2, 3, 4, 5, 6, 7, 8}, y[2];
    int me = comm_rank(w), twice[2] = {1, 1}, other = 1 - me, far = 2;
    (void)arg;
    CHECK_ERR(open_group(w, 0, twice, 2, &g), ERR_INTERNAL, "rank 1 twice");
    CHECK_ERR(open_group(w, 0, &other, 1, &g), ERR_INTERNAL, "without being a member");
    CHECK_ERR(open_group(w, 0, &far, 1, &g), ERR_INTERNAL, "names rank 2");
    CHECK_ERR(open_group(w, 32768, &me, 1, &g), ERR_INTERNAL, "outside 0..32767");
    CHECK_ERR(comm_send_start(w, me, 0, x, 8, &r), ERR_INTERNAL, "not a peer");
    CHECK_ERR(comm_recv_start(w, other, -1, x, 8, &r), ERR_INTERNAL, "negative");
    struct comm_channel way[] = {{me, other, 1}, {me, me, 0}, {other, 2, 0}, {other, me, 2}};
    TRY(comm_channels_open(w, way, 1));
    for (int i = 1; i < 4; i++)
        CHECK_ERR(comm_channels_open(w, way + i, 1), ERR_INTERNAL, "one end of it");
    TRY(open_all(w, &g));
    CHECK_ERR(comm_reduce_scatter(g, x + 1, x, 2, DT_F64), ERR_INTERNAL, "overlap");
    CHECK_ERR(comm_all_gather(g, x, x + 2 * other, 2, DT_F64), ERR_INTERNAL, "overlap");
    CHECK_ERR(comm_all_reduce(g, x, -1, DT_F64, COMM_SUM), ERR_INTERNAL, "negative");
    CHECK_ERR(comm_all_gather(g, x, y, INT64_MAX / 8, DT_F64), ERR_INTERNAL, "beyond 64 bits");
    CHECK_ERR(comm_broadcast(g, 2, x, 8), ERR_INTERNAL, "member 2 in a group of 2");
    TRY(open_group(w, 1 + me, &me, 1, &one));
    TRY(comm_reduce_scatter(one, y, x, 2, DT_F64));
    CHECK_NEAR(y[1], 2, 0);
    TRY(comm_all_reduce_start(one, y, 2, DT_F64, COMM_SUM, &r));
    TRY(comm_finish(&r));
    TRY(comm_barrier(g));
    comm_group_close(one);
    comm_group_close(g);
    /* The id is free again. */
    TRY(open_all(w, &g));
    TRY(comm_barrier(g));
    comm_group_close(g);
    return ERR_OK;
}

static void misuse_is_refused(void)
{
    CHECK_OK(comm_thread_run(2, 20, misuse_body, NULL));
    CHECK_ERR(comm_thread_run(2, 20, unfinished_body, NULL), ERR_INTERNAL,
              "1 unfinished operation");
    CHECK_ERR(comm_thread_run(0, 20, misuse_body, NULL), ERR_CONFIG, "legal are 1..4096");
}

static void scratch_is_bounded(void)
{
    CHECK_INT(comm_scratch_bytes(COMM_THREAD, 8, 1 << 30), 0);
    CHECK_INT(comm_scratch_bytes(COMM_MPI, 1, 1 << 30), 0);
    CHECK_INT(comm_scratch_bytes(COMM_MPI, 2, 0), 64);
    CHECK_INT(comm_scratch_bytes(COMM_MPI, 4, 4096), 3 * 1024);
    for (int n = 2; n <= 4096; n++) {
        int64_t most = comm_scratch_bytes(COMM_MPI, n, INT64_MAX);
        if (most > 4 << 20 || most % (n - 1) || most / (n - 1) % 64 || most <= 0)
            CHECK_INT(most, -1);
    }
}

static const struct test_case cases[] = {
    {"results_of_every_size", results_of_every_size},
    {"results_under_delays", results_under_delays},
    {"order_shows", order_shows},
    {"rounding_and_nan", rounding_and_nan},
    {"starting_never_waits", starting_never_waits},
    {"finishing_needs_only_starts", finishing_needs_only_starts},
    {"messages_keep_their_order", messages_keep_their_order},
    {"many_in_flight", many_in_flight},
    {"a_failing_rank_ends_all_waits", a_failing_rank_ends_all_waits},
    {"a_message_has_one_opening", a_message_has_one_opening},
    {"waiting_is_timed", waiting_is_timed},
    {"an_early_end_ends_waits", an_early_end_ends_waits},
    {"an_early_end_is_named", an_early_end_is_named},
    {"a_hang_names_the_missing", a_hang_names_the_missing},
    {"slow_is_not_hanging", slow_is_not_hanging},
    {"failing_ranks_free_their_buffers", failing_ranks_free_their_buffers},
    {"misuse_is_refused", misuse_is_refused},
    {"scratch_is_bounded", scratch_is_bounded},
};
TEST_MAIN(cases)
