/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives that are started and finished apart, other than all_reduce: what starting may wait
 * for, and every way of failing. Their results are the law's (comm_law.h), on every transport.
 */
#include "base/log.h"
#include "comm/comm.h"
#include "test.h"

#include <stdatomic.h>
#include <string.h>
#include <time.h>

enum { REDUCE, SCATTER, GATHER, KINDS };
enum { RANKS = 4, COUNT = 1000, HURRY_S = 1 };

static void nap(double s)
{
    struct timespec t = {(time_t)s, (long)((s - floor(s)) * 1e9)};
    nanosleep(&t, NULL);
}

static enum err open_all(struct comm_world *w, struct comm_group **g)
{
    int ranks[RANKS] = {0, 1, 2, 3};
    return comm_group_open(w, &(struct comm_group_args){.ranks = ranks, .n = comm_size(w)}, g);
}

/* Over COUNT elements at p in all, in place, with member 0 as root. */
static enum err start(struct comm_group *g, int kind, float *p, struct comm_req *r)
{
    int64_t part = COUNT / comm_group_size(g);
    float *own = p + part * comm_group_rank(g);
    if (kind == REDUCE)
        return comm_reduce_start(g, 0, p, p, COUNT, DT_F32, r);
    if (kind == SCATTER)
        return comm_reduce_scatter_start(g, own, p, part, DT_F32, r);
    return comm_all_gather_start(g, p, own, part, DT_F32, r);
}

/* ---- what waits for what ---- */

static atomic_int gate;

/* Rank 1 does nothing before rank 0 has started everything: a start that waited would hang. */
static enum err start_body(void *arg, struct comm_world *w)
{
    static float x[2][KINDS][COUNT];
    struct comm_req r[KINDS] = {{0}};
    struct comm_group *g;
    int me = comm_rank(w);
    (void)arg;
    TRY(open_all(w, &g));
    while (me == 1 && !atomic_load(&gate))
        nap(0.001);
    for (int kind = 0; kind < KINDS; kind++) {
        for (int i = 0; i < COUNT; i++)
            x[me][kind][i] = (float)(i + me);
        TRY(start(g, kind, x[me][kind], &r[kind]));
    }
    atomic_store(&gate, 1);
    TRY(comm_finish(&r[GATHER])); /* and with it those before */
    CHECK_NEAR(x[me][REDUCE][10], me == 0 ? 21 : 11, 0);
    CHECK_NEAR(x[me][SCATTER][10], me == 0 ? 21 : 11, 0);
    CHECK_NEAR(x[me][SCATTER][COUNT - 1], me == 1 ? 2 * COUNT - 1 : COUNT - 1, 0);
    CHECK_NEAR(x[me][GATHER][COUNT - 1], COUNT, 0);
    TRY(comm_finish(&r[REDUCE]));
    TRY(comm_finish(&r[SCATTER]));
    comm_group_close(g);
    return ERR_OK;
}

static void starting_never_waits(void)
{
    atomic_store(&gate, 0);
    CHECK_OK(comm_thread_run(2, 20, start_body, NULL));
}

/* ---- in chunks ---- */

/* All chunks of both, whose requests are finished in their order, a group of one too. */
static enum err chunks_body(void *arg, struct comm_world *w)
{
    struct comm_req r[2 * RANKS] = {{0}};
    float in[RANKS][3], all[RANKS][3], own[3];
    struct comm_group *g;
    int me = comm_rank(w), n = comm_size(w);
    (void)arg;
    TRY(open_all(w, &g));
    for (int i = 0; i < n; i++)
        for (int j = 0; j < 3; j++)
            in[i][j] = (float)(100 * me + 10 * i + j);
    for (int k = 1; k <= n; k++)
        TRY(comm_reduce_scatter_chunk_start(g, k, own, in, 3, DT_F32, &r[k - 1]));
    for (int k = 1; k <= n; k++)
        TRY(comm_finish(&r[k - 1]));
    CHECK_NEAR(own[2], 100 * n * (n - 1) / 2 + n * (10 * me + 2), 0);
    for (int k = 1; k <= (n > 1 ? n - 1 : 1); k++)
        TRY(comm_all_gather_chunk_start(g, k, all, own, 3, DT_F32, &r[k - 1]));
    for (int k = 1; k <= n; k++) {
        int got = (me + k) % n;
        TRY(comm_finish(&r[k - 1]));
        CHECK_NEAR(all[got][2], 100 * n * (n - 1) / 2 + n * (10 * got + 2), 0);
    }
    CHECK(comm_group_chunks(g, INT64_MAX)); /* nothing is staged here */
    comm_group_close(g);
    return ERR_OK;
}

static void chunks_are_the_whole(void)
{
    for (int n = 1; n <= RANKS; n++)
        CHECK_OK(comm_thread_run(n, 20, chunks_body, NULL));
}

/* ---- failing ---- */

enum { FAILS, ENDS, ABORTS, LATE };

struct scene {
    int kind, bad, how; /* the operation; the rank that does not come, and why */
    atomic_int peers;   /* ranks whose wait ended with ERR_PEER */
};

static enum err fail_body(void *arg, struct comm_world *w)
{
    static float x[RANKS][COUNT];
    struct scene *s = arg;
    struct comm_req r = {0};
    struct comm_group *g;
    TRY(open_all(w, &g));
    if (comm_rank(w) == s->bad && s->how != LATE) {
        nap(0.03);
        comm_group_close(g);
        if (s->how == ENDS)
            return ERR_OK;
        if (s->how == ABORTS)
            comm_abort(w, ERR_DATA);
        FAIL(ERR_DATA, "data: shard 7 is short");
    }
    if (comm_rank(w) == s->bad)
        nap(0.6);
    enum err err = start(g, s->kind, x[comm_rank(w)], &r);
    if (err == ERR_OK)
        err = comm_finish(&r);
    if (err == ERR_PEER)
        atomic_fetch_add(&s->peers, 1);
    comm_group_close(g);
    return err;
}

static void a_failing_rank_ends_all_waits(void)
{
    for (int kind = 0; kind < KINDS; kind++)
        for (int how = FAILS; how <= ABORTS; how++) {
            struct scene s = {.kind = kind, .bad = how == ENDS ? 0 : 2, .how = how};
            double begin = log_now();
            CHECK_ERR(comm_thread_run(RANKS, 30, fail_body, &s), how == ENDS ? ERR_PEER : ERR_DATA,
                      how == ENDS ? "rank " : "rank 2: shard 7 is short");
            CHECK_INT(s.peers, RANKS - 1);
            CHECK(log_now() - begin < HURRY_S);
        }
}

static void a_hang_names_the_missing(void)
{
    static const char *const what[KINDS] = {"reduce of 1000 f32 elements to member 0",
                                            "reduce_scatter of 250 f32 elements",
                                            "all_gather of 250 f32 elements"};
    for (int kind = 0; kind < KINDS; kind++) {
        struct scene s = {.kind = kind, .bad = 1, .how = LATE};
        char text[160];
        snprintf(text, sizeof text, " s, in %s, operation 0 of group 0", what[kind]);
        CHECK_ERR(comm_thread_run(RANKS, 0.2, fail_body, &s), ERR_HANG, text);
        CHECK(strncmp(err_text(), "rank 1 does not answer: ", 24) == 0);
    }
}

enum { ROOTS, COUNTS, WAYS };

static enum err mismatch_body(void *arg, struct comm_world *w)
{
    static float x[RANKS][COUNT];
    const int *how = arg;
    int me = comm_rank(w);
    bool odd = me == 2;
    struct comm_req r = {0};
    struct comm_group *g;
    TRY(open_all(w, &g));
    enum err err = *how == ROOTS
                       ? comm_reduce_start(g, odd, x[me], x[me], 64, DT_F32, &r)
                   : *how == COUNTS
                       ? comm_reduce_start(g, 1, x[me], x[me], odd ? 60 : 64, DT_F32, &r)
                       : start(g, odd ? SCATTER : GATHER, x[me], &r);
    if (err == ERR_OK)
        err = comm_finish(&r);
    comm_group_close(g);
    return err;
}

static void mismatches_name_both(void)
{
    static const char *const odd[] = {"reduce of 64 f32 elements to member 1 on rank 2",
                                      "reduce of 60 f32 elements to member 1 on rank 2",
                                      "reduce_scatter of 333 f32 elements on rank 2"};
    static const char *const even[] = {"reduce of 64 f32 elements to member 0 on rank ",
                                       "reduce of 64 f32 elements to member 1 on rank ",
                                       "all_gather of 333 f32 elements on rank "};
    for (int how = ROOTS; how <= WAYS; how++) {
        CHECK_ERR(comm_thread_run(3, 20, mismatch_body, &how), ERR_MISMATCH, odd[how]);
        CHECK(strstr(err_text(), even[how]) != NULL);
    }
}

/* ---- misuse ---- */

static enum err misuse_body(void *arg, struct comm_world *w)
{
    struct comm_group *g, *one;
    struct comm_req r = {0};
    double x[8] = {1, 2, 3, 4, 5, 6, 7, 8}, y[2] = {0};
    int me = comm_rank(w);
    (void)arg;
    TRY(open_all(w, &g));
    CHECK_ERR(comm_reduce_start(g, 2, x, x, 1, DT_F64, &r), ERR_INTERNAL,
              "reduce to member 2 in a group of 2");
    CHECK_ERR(comm_reduce_start(g, -1, x, x, 1, DT_F64, &r), ERR_INTERNAL, "member -1");
    CHECK_ERR(comm_reduce_start(g, me, x + 1, x, 2, DT_F64, &r), ERR_INTERNAL, "overlap");
    CHECK_ERR(comm_reduce_start(g, 0, x, x, -1, DT_F64, &r), ERR_INTERNAL, "negative");
    CHECK_ERR(comm_reduce_scatter_start(g, x + 1, x, 2, DT_F64, &r), ERR_INTERNAL, "overlap");
    CHECK_ERR(comm_reduce_scatter_chunk_start(g, 0, y, x, 1, DT_F64, &r), ERR_INTERNAL, "1 to 2");
    CHECK_ERR(comm_reduce_scatter_chunk_start(g, 3, y, x, 1, DT_F64, &r), ERR_INTERNAL,
              "chunk 3 in a");
    CHECK_ERR(comm_all_gather_chunk_start(g, 2, x, y, 1, DT_F64, &r), ERR_INTERNAL, "1 to 1");
    CHECK_ERR(comm_reduce_scatter_chunk_start(g, 2, y, x, 1, DT_F64, &r), ERR_INTERNAL,
              "chunk 0 of none");
    CHECK_ERR(comm_reduce_scatter_chunk_start(g, 1, y, x, INT64_MAX / 8, DT_F64, &r), ERR_INTERNAL,
              "64 bits");
    TRY(comm_reduce_scatter_chunk_start(g, 1, y, x, 1, DT_F64, &r));
    CHECK_ERR(comm_barrier(g), ERR_INTERNAL, "barrier in group 0 between chunks 1 and 2");
    CHECK_ERR(comm_all_gather_chunk_start(g, 1, x, y, 1, DT_F64, &r), ERR_INTERNAL,
              "behind chunk 1 of");
    TRY(comm_reduce_scatter_chunk_start(g, 2, y, x, 1, DT_F64, &r));
    TRY(comm_finish(&r));
    CHECK_ERR(comm_reduce_scatter_chunk_start(g, 1, y, x, 1, DT_COUNT, &r), ERR_INTERNAL,
              "element type");
    TRY(comm_barrier(g));
    TRY(comm_all_gather_start(g, x, y, 1, DT_F64, &r));
    CHECK_ERR(comm_reduce_scatter_chunk_start(g, 1, y, x, 1, DT_F64, &r), ERR_INTERNAL,
              "unfinished");
    TRY(comm_finish(&r));
    for (int i = 0; i < 8; i++)
        x[i] = i + 1;
    TRY(comm_group_open(w, &(struct comm_group_args){.id = 1 + me, .ranks = &me, .n = 1}, &one));
    TRY(comm_reduce_start(one, 0, y, x + 2, 2, DT_F64, &r));
    TRY(comm_finish(&r));
    CHECK_NEAR(y[1], 4, 0);
    TRY(comm_all_gather_start(one, y, x + 4, 2, DT_F64, &r));
    TRY(comm_finish(&r));
    CHECK_NEAR(y[1], 6, 0);
    comm_group_close(one);
    comm_group_close(g);
    return ERR_OK;
}

static void misuse_is_refused(void)
{
    CHECK_OK(comm_thread_run(2, 20, misuse_body, NULL));
}

static const struct test_case cases[] = {
    {"starting_never_waits", starting_never_waits},
    {"chunks_are_the_whole", chunks_are_the_whole},
    {"a_failing_rank_ends_all_waits", a_failing_rank_ends_all_waits},
    {"a_hang_names_the_missing", a_hang_names_the_missing},
    {"mismatches_name_both", mismatches_name_both},
    {"misuse_is_refused", misuse_is_refused},
};
TEST_MAIN(cases)
