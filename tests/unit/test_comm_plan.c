/* SPDX-License-Identifier: Apache-2.0
 *
 * What the memory plan counts for a transport on a GPU.
 */
#include "comm/comm.h"

#include "test.h"

/* None opened, none taken; sums by copies take less than NCCL's, serve threads of one process
 * alone, no more than eight, and GPUs that reach each other. */
static void what_a_gpu_is_asked_for(void)
{
    struct comm_device_plan none = {.window = 1}, p = {.window = 2, .tiny = 1};
    CHECK_INT(comm_device_bytes(COMM_THREAD, &none), 0);
    CHECK_INT(comm_device_bytes(COMM_MPI, &none), 0);
    int64_t copies = comm_device_bytes(COMM_THREAD, &p), nccl = comm_device_bytes(COMM_MPI, &p);
    CHECK(copies > 0 && copies < nccl);
    p.window = 8;
    CHECK_INT(comm_device_bytes(COMM_THREAD, &p), copies);
    p.no_p2p = true;
    CHECK_INT(comm_device_bytes(COMM_THREAD, &p), nccl);
    CHECK_INT(comm_device_bytes(COMM_MPI, &p), nccl);
    p.no_p2p = false;
    p.window = 9;
    CHECK_INT(comm_device_bytes(COMM_THREAD, &p), nccl);
}

/* Channels of threads take little memory, but where GPUs do not reach each other as much as those
 * of processes. */
static void channels(void)
{
    struct comm_device_plan p = {.window = 1, .tiny = 1}, more = p;
    more.channels = 2;
    int64_t none = comm_device_bytes(COMM_MPI, &p), some = comm_device_bytes(COMM_THREAD, &more);
    CHECK(some > none && some - none < (comm_device_bytes(COMM_MPI, &more) - none) / 4);
    more.no_p2p = true;
    CHECK_INT(comm_device_bytes(COMM_THREAD, &more), some);
    more.stages_no_p2p = true;
    CHECK_INT(comm_device_bytes(COMM_THREAD, &more), comm_device_bytes(COMM_MPI, &more));
}

/* Tensor ranks of one process move by copies, and keep a small communicator for the rest. */
static void tensor_ranks(void)
{
    struct comm_device_plan p = {.window = 1, .also_nccl = 2};
    int64_t copies = comm_device_bytes(COMM_THREAD, &p), nccl = comm_device_bytes(COMM_MPI, &p);
    CHECK(copies > 0 && copies < nccl);
    p.overlapped = true;
    CHECK_INT(comm_device_bytes(COMM_THREAD, &p), copies);
    CHECK(comm_device_bytes(COMM_MPI, &p) < nccl);
    p.overlapped = false;
    p.no_p2p = true;
    CHECK_INT(comm_device_bytes(COMM_THREAD, &p), nccl);
    p.no_p2p = false;
    p.also_nccl = 9;
    CHECK_INT(comm_device_bytes(COMM_THREAD, &p), nccl);
}

/* Ranks of one GPU have staging for each group, and nothing of NCCL. */
static void one_gpu(void)
{
    struct comm_device_plan p = {.window = 1, .shared = true};
    CHECK_INT(comm_device_bytes(COMM_THREAD, &p), 0);
    p.window = p.also_nccl = 2;
    int64_t two = comm_device_bytes(COMM_THREAD, &p);
    p.full = 2;
    CHECK_INT(comm_device_bytes(COMM_THREAD, &p), 2 * two);
    p.tiny = 1;
    p.channels = 4;
    int64_t all = comm_device_bytes(COMM_THREAD, &p);
    CHECK(all > 2 * two);
    p.shared = false;
    CHECK(comm_device_bytes(COMM_THREAD, &p) > all);
}

/* Threads' GPUs do, up to eight; the plan of memory agrees. */
static void who_copies(void)
{
    static const struct { enum comm_kind k; int n; bool would; } c[] = {
        {COMM_THREAD, 2, true}, {COMM_THREAD, 8, true}, {COMM_THREAD, 9, false},
        {COMM_MPI, 2, false},
    };
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        struct comm_device_plan p = {.window = 1, .also_nccl = c[i].n};
        bool would = comm_would_copy(c[i].k, c[i].n);
        int64_t bytes = comm_device_bytes(c[i].k, &p);
        p.no_p2p = true;
        bool less = bytes < comm_device_bytes(c[i].k, &p);
        test_check(would == c[i].would && less == would, __FILE__, __LINE__, "row %d", (int)i);
    }
}

/* One GPU has nobody to reach; of numbers beyond those of any machine nothing is known. */
static void gpus_that_cannot_be_asked(void)
{
    CHECK(comm_gpus_reach((const int[]){0}, 1));
    CHECK(comm_gpus_reach((const int[]){0, 100000}, 2));
}

static const struct test_case cases[] = {
    {"what_a_gpu_is_asked_for", what_a_gpu_is_asked_for},
    {"channels", channels}, {"tensor_ranks", tensor_ranks},
    {"one_gpu", one_gpu}, {"who_copies", who_copies},
    {"gpus_that_cannot_be_asked", gpus_that_cannot_be_asked},
};
TEST_MAIN(cases)
