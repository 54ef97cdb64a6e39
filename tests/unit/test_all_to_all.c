/* SPDX-License-Identifier: Apache-2.0
 *
 * A part from each member to each (comm_all_to_all) on the thread transport: random counts, zero
 * ones among them, against what the counts say; calls that are refused; members that state
 * different counts, fail, or do not come. mpi_comm.sh has the same over MPI.
 */
#include "comm/comm.h"

#include "base/log.h"
#include "base/mem.h"
#include "test.h"
#include <stdatomic.h>
#include <time.h>

enum { RANKS = 5, MOST = 50000, HURRY_S = 5 };

static void nap(double s)
{
    struct timespec t = {(time_t)s, (long)((s - floor(s)) * 1e9)};
    nanosleep(&t, NULL);
}

static enum err open_all(struct comm_world *w, struct comm_group **g)
{
    static const int ranks[RANKS] = {0, 1, 2, 3, 4};
    return comm_group_open(w, &(struct comm_group_args){.ranks = ranks, .n = comm_size(w)}, g);
}

/* One member's side. */
struct side {
    int64_t recv[2][RANKS], send[2][RANKS]; /* counts, places */
    int32_t *in, *out; /* (RANKS * MOST) owned */
};

static struct comm_to_all args_of(const struct side *s)
{
    return (struct comm_to_all){.out = s->out, .in = s->in, .recv = {s->recv[0], s->recv[1]},
                                .send = {s->send[0], s->send[1]}, .dt = DT_I32};
}

/* Elements that member i sends member j in a round: often none, and now and then many blocks. */
static int64_t count_of(int round, int i, int j)
{
    uint32_t z = (uint32_t)(round * 7919 + i * 131 + j * 17) * 2654435761u;
    z ^= z >> 15;
    z *= 2246822519u;
    z ^= z >> 13;
    return z % 4 == 0 ? 0 : z % 4 == 1 ? z / 4 % 9 : z % 64 == 2 ? MOST - z / 64 % 9 : z / 4 % 700;
}

/* Element k of that. */
static int32_t value_of(int round, int i, int j, int64_t k)
{
    return (int32_t)((uint32_t)(round * 31 + i * RANKS + j) * 0x9E3779B9u + (uint32_t)k * 7);
}

/* Parts lie one behind the other, those that are sent from the last on, with an element of
 * nobody's before each. */
static void lay(struct side *s, int round, int me, int n)
{
    int64_t in = 1, out = 1;
    for (int i = 0; i < n; i++) {
        int to = n - 1 - i;
        s->send[0][to] = count_of(round, me, to);
        s->send[1][to] = in;
        for (int64_t k = 0; k < s->send[0][to]; k++)
            s->in[in + k] = value_of(round, me, to, k);
        in += s->send[0][to] + 1;
        s->recv[0][i] = count_of(round, i, me);
        s->recv[1][i] = out;
        out += s->recv[0][i] + 1;
    }
    for (int64_t k = 0; k < out; k++)
        s->out[k] = -1;
}

static int64_t count_bad(const struct side *s, int round, int me, int n)
{
    int64_t bad = 0;
    for (int i = 0; i < n; i++) {
        const int32_t *part = s->out + s->recv[1][i];
        bad += part[-1] != -1 || part[s->recv[0][i]] == value_of(round, i, me, s->recv[0][i]);
        for (int64_t k = 0; k < s->recv[0][i]; k++)
            bad += part[k] != value_of(round, i, me, k);
    }
    return bad;
}

static enum err rounds_body(void *arg, struct comm_world *w)
{
    const int *rounds = arg;
    struct side s = {.in = NULL};
    struct comm_group *g;
    int me = comm_rank(w), n = comm_size(w);
    int64_t bad = 0;
    TRY(open_all(w, &g));
    TRY(mem_new(RANKS * (MOST + 2), sizeof *s.in, "a test's parts", &s.in));
    TRY(mem_new(RANKS * (MOST + 2), sizeof *s.out, "a test's parts", &s.out));
    enum err err = ERR_OK;
    for (int round = 0; round < *rounds && err == ERR_OK; round++) {
        lay(&s, round, me, n);
        struct comm_to_all a = args_of(&s);
        err = comm_all_to_all(g, &a);
        bad += count_bad(&s, round, me, n);
        if (err == ERR_OK && round % 3 == 0) /* others between keep their order */
            err = comm_barrier(g);
    }
    if (err != ERR_OK)
        comm_abort(w, err);
    mem_free(s.in);
    mem_free(s.out);
    comm_group_close(g);
    if (err == ERR_OK && bad > 0)
        FAIL(ERR_INTERNAL, "%lld elements are wrong on rank %d of %d", (long long)bad, me, n);
    return err;
}

static void parts_of_every_size(void)
{
    int rounds = 400;
    for (int n = 1; n <= RANKS; n++)
        CHECK_OK(comm_thread_run(n, 20, rounds_body, &rounds));
}

/* ---- what members state ---- */

enum { FEWER, TYPE, KIND, EMPTY };

static enum err mismatch_body(void *arg, struct comm_world *w)
{
    static int32_t x[3][9], y[3][9];
    const int *how = arg;
    int me = comm_rank(w);
    bool odd = me == 2;
    struct comm_group *g;
    int64_t at[] = {0, 3, 6}, recv[] = {3, 3, 3}, send[] = {3, 3, 3};
    if (odd && *how == FEWER)
        send[1] = 2;
    if (odd && *how == EMPTY)
        recv[0] = 0;
    struct comm_to_all a = {.out = y[me], .in = x[me], .recv = {recv, at}, .send = {send, at}};
    a.dt = odd && *how == TYPE ? DT_F32 : DT_I32;
    TRY(open_all(w, &g));
    enum err err = odd && *how == KIND ? comm_all_gather(g, y[me], x[me], 3, DT_I32)
                                       : comm_all_to_all(g, &a);
    comm_group_close(g);
    return err;
}

static void mismatches_name_both(void)
{
    static const char *const what[] = {"rank 2 sends 2 elements to rank 1, but rank 1 receives 3",
                                       "all_to_all of 9 f32 elements on rank 2",
                                       "all_gather of 3 i32 elements on rank 2",
                                       "rank 0 sends 3 elements to rank 2, but rank 2 receives 0"};
    for (int how = FEWER; how <= EMPTY; how++)
        CHECK_ERR(comm_thread_run(3, 20, mismatch_body, &how), ERR_MISMATCH, what[how]);
}

static enum err misuse_body(void *arg, struct comm_world *w)
{
    int32_t x[16] = {0};
    struct comm_group *g;
    int me = comm_rank(w);
    (void)arg;
    TRY(open_all(w, &g));
    int64_t at[] = {0, 2}, two[] = {2, 2}, less[] = {2, -1}, far[] = {0, INT64_MAX / 4};
    int64_t own[] = {me == 0, me == 1};
    struct comm_to_all a = {.out = x + 8, .in = x, .recv = {two, at}, .send = {two, at}}, b = a;
    a.dt = DT_COUNT;
    CHECK_ERR(comm_all_to_all(g, &a), ERR_INTERNAL, "element type");
    a.dt = b.dt = DT_I32;
    a.send.count = less;
    CHECK_ERR(comm_all_to_all(g, &a), ERR_INTERNAL, "negative or beyond");
    a = b;
    a.recv.at = far;
    CHECK_ERR(comm_all_to_all(g, &a), ERR_INTERNAL, "negative or beyond");
    a = b;
    a.out = x + 3;
    CHECK_ERR(comm_all_to_all(g, &a), ERR_INTERNAL, "input and output overlap");
    a = b;
    a.send.count = own;
    CHECK_ERR(comm_all_to_all(g, &a), ERR_MISMATCH, "1 element to rank ");
    TRY(comm_all_to_all(g, &b));
    comm_group_close(g);
    return ERR_OK;
}

static void misuse_is_refused(void)
{
    CHECK_OK(comm_thread_run(2, 20, misuse_body, NULL));
}

/* ---- failing ---- */

enum { FAILS, ENDS, ABORTS, LATE };

struct scene {
    int bad, how;     /* the rank that does not come, and why */
    atomic_int peers; /* ranks whose wait ended with ERR_PEER */
};

static enum err fail_body(void *arg, struct comm_world *w)
{
    static int32_t x[RANKS][RANKS], y[RANKS][RANKS];
    struct scene *s = arg;
    int me = comm_rank(w);
    int64_t at[] = {0, 1, 2, 3, 4}, one[] = {1, 1, 1, 1, 1};
    struct comm_to_all a = {.out = y[me], .in = x[me], .recv = {one, at}, .send = {one, at}};
    struct comm_group *g;
    TRY(open_all(w, &g));
    if (me == s->bad && s->how != LATE) {
        nap(0.03);
        comm_group_close(g);
        if (s->how == ENDS)
            return ERR_OK;
        if (s->how == ABORTS)
            comm_abort(w, ERR_DATA);
        FAIL(ERR_DATA, "data: shard 7 is short");
    }
    if (me == s->bad)
        nap(0.6);
    a.dt = DT_I32;
    enum err err = comm_all_to_all(g, &a);
    if (err == ERR_PEER)
        atomic_fetch_add(&s->peers, 1);
    comm_group_close(g);
    return err;
}

static void a_failing_rank_ends_all_waits(void)
{
    for (int how = FAILS; how <= ABORTS; how++) {
        struct scene s = {.bad = how == ENDS ? 0 : 2, .how = how};
        double begin = log_now();
        CHECK_ERR(comm_thread_run(RANKS, 30, fail_body, &s), how == ENDS ? ERR_PEER : ERR_DATA,
                  how == ENDS ? "rank " : "rank 2: shard 7 is short");
        CHECK_INT(s.peers, RANKS - 1);
        CHECK(log_now() - begin < HURRY_S);
    }
    struct scene late = {.bad = 1, .how = LATE};
    CHECK_ERR(comm_thread_run(RANKS, 0.2, fail_body, &late), ERR_HANG,
              " s, in all_to_all of 5 i32 elements, operation 0 of group 0");
    CHECK(strncmp(err_text(), "rank 1 does not answer: ", 24) == 0);
}

/* A rank fails while others are amid parts of each other's: each gives its buffers and its counts
 * back at once, and peers that read them must have left. Found by the address sanitizer and by
 * crashes. */
static enum err swap_once(struct comm_group *g, int n)
{
    struct side *s;
    TRY(mem_new(1, sizeof *s, "a test's side", &s));
    TRY(mem_new(RANKS * MOST, sizeof *s->in, "a test's parts", &s->in));
    TRY(mem_new(RANKS * MOST, sizeof *s->out, "a test's parts", &s->out));
    for (int i = 0; i < n; i++) {
        s->send[0][i] = s->recv[0][i] = MOST;
        s->send[1][i] = s->recv[1][i] = i * MOST;
    }
    struct comm_to_all a = args_of(s);
    enum err err = comm_all_to_all(g, &a);
    mem_free(s->in);
    mem_free(s->out);
    mem_free(s);
    return err;
}

static enum err give_back_body(void *arg, struct comm_world *w)
{
    static const int ranks[] = {0, 1, 2};
    const int *round = arg;
    struct comm_group *g;
    if (comm_rank(w) == 3) {
        nap(0.002 + 0.0003 * *round);
        FAIL(ERR_DATA, "data: wrong");
    }
    TRY(comm_group_open(w, &(struct comm_group_args){.ranks = ranks, .n = 3}, &g));
    enum err err = ERR_OK;
    while (err == ERR_OK)
        err = swap_once(g, 3);
    comm_group_close(g);
    return err;
}

static void failing_ranks_free_their_buffers(void)
{
    for (int round = 0; round < 16; round++)
        CHECK_ERR(comm_thread_run(4, 20, give_back_body, &round), ERR_DATA, "wrong");
}

static const struct test_case cases[] = {
    {"parts_of_every_size", parts_of_every_size}, {"mismatches_name_both", mismatches_name_both},
    {"misuse_is_refused", misuse_is_refused},
    {"a_failing_rank_ends_all_waits", a_failing_rank_ends_all_waits},
    {"failing_ranks_free_their_buffers", failing_ranks_free_their_buffers},
};
TEST_MAIN(cases)
