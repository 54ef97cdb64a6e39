/* SPDX-License-Identifier: Apache-2.0
 *
 * Members of a group that state different operations, and ends of a message that state different
 * lengths: each difference there can be is an error that names both, on the thread transport.
 */
#include "comm/comm.h"
#include "test.h"

static enum err mismatch_body(void *arg, struct comm_world *w)
{
    int how = *(const int *)arg;
    struct comm_group *g;
    struct comm_req r = {0};
    int me = comm_rank(w), ranks[3] = {0, 1, 2};
    static float x[3][64];
    if (how == 4 && me == 2) {
        ranks[0] = 1;
        ranks[1] = 0;
    }
    TRY(comm_group_open(w, &(struct comm_group_args){.id = 5, .ranks = ranks, .n = 3}, &g));
    enum err err = ERR_OK;
    bool odd = me == 2;
    if (how == 0)
        err = comm_all_reduce(g, x[me], odd ? 60 : 64, DT_F32, COMM_SUM);
    else if (how == 1)
        err = comm_all_reduce(g, x[me], 32, odd ? DT_BF16 : DT_F32, COMM_SUM);
    else if (how == 2)
        err = odd ? comm_barrier(g) : comm_broadcast(g, 1, x[me], 4);
    else if (how == 5)
        err = comm_all_reduce(g, x[me], 32, DT_F32, odd ? COMM_MAX : COMM_SUM);
    else if (how == 6)
        err = comm_broadcast(g, odd ? 1 : 0, x[me], 4);
    else if (how == 7) /* of as many elements of one type as the others state */
        err = odd ? comm_all_gather(g, x[me], x[me] + 48, 16, DT_F32)
                  : comm_all_reduce(g, x[me], 16, DT_F32, COMM_SUM);
    else if ((how == 3 || how == 8) && me < 2) {
        err = me == 0 ? comm_send_start(w, 1, 8, x[0], how == 3 ? 12 : 20, &r)
                      : comm_recv_start(w, 0, 8, x[1], 16, &r);
        if (err == ERR_OK)
            err = comm_finish(&r);
    }
    comm_group_close(g);
    return err;
}

static void mismatches_name_both(void)
{
    int how = 0;
    CHECK_ERR(comm_thread_run(3, 20, mismatch_body, &how), ERR_MISMATCH,
              "of 60 f32 elements on rank 2");
    CHECK(strstr(err_text(), "of 64 f32 elements on rank ") != NULL);
    how = 1;
    CHECK_ERR(comm_thread_run(3, 20, mismatch_body, &how), ERR_MISMATCH,
              "of 32 bf16 elements on rank 2");
    how = 2;
    CHECK_ERR(comm_thread_run(3, 20, mismatch_body, &how), ERR_MISMATCH, "barrier on rank 2");
    CHECK(strstr(err_text(), "broadcast of 4 bytes from member 1 on rank ") != NULL);
    how = 3;
    CHECK_ERR(comm_thread_run(3, 20, mismatch_body, &how), ERR_MISMATCH,
              "rank 0 sends 12 bytes with tag 8, but rank 1 receives 16");
    how = 4;
    CHECK_ERR(comm_thread_run(3, 20, mismatch_body, &how), ERR_MISMATCH, "opens group 5");
    how = 5;
    CHECK_ERR(comm_thread_run(3, 20, mismatch_body, &how), ERR_MISMATCH, "all_reduce (max) of 32");
    how = 6;
    CHECK_ERR(comm_thread_run(3, 20, mismatch_body, &how), ERR_MISMATCH, "from member 1 on rank 2");
    how = 7;
    CHECK_ERR(comm_thread_run(3, 20, mismatch_body, &how), ERR_MISMATCH,
              "all_gather of 16 f32 elements on rank 2");
    how = 8;
    CHECK_ERR(comm_thread_run(3, 20, mismatch_body, &how), ERR_MISMATCH,
              "rank 0 sends 20 bytes with tag 8, but rank 1 receives 16");
}

static const struct test_case cases[] = {{"mismatches_name_both", mismatches_name_both}};
TEST_MAIN(cases)
