/* SPDX-License-Identifier: Apache-2.0
 *
 * What a transport takes of memory, known before it is there. Staging in host memory is ours and
 * exact. What NCCL takes of a GPU is its own affair; the figures are from cudaMemGetInfo around
 * each opening (PLAIT_LOG=debug prints them), NCCL 2.28 on two H200, rounded up: buffers of every
 * communicator, by the SMs it may take, and once in a process the kernels. Ranks that share a GPU
 * have no communicator, and a group's staging is most of what each takes.
 */
#include "comm/core/core.h"

int64_t comm_scratch_bytes(enum comm_kind k, int n, int64_t max_bytes)
{
    if (k == COMM_THREAD || n < 2)
        return 0;
    int64_t most = COMM_WINDOW_BYTES / (n - 1) / COMM_SLICE_ALIGN;
    int64_t bytes = num_max(0, num_min(max_bytes, (int64_t)n * COMM_WINDOW_BYTES));
    int64_t slice = num_ceil_div(num_ceil_div(bytes, n), COMM_SLICE_ALIGN);
    return (n - 1) * COMM_SLICE_ALIGN * num_max(1, num_min(slice, most));
}

enum { MIB = 1 << 20, KERNELS = 384 * MIB, FULL = 490 * MIB, OVERLAPPED = 250 * MIB,
       TINY = 32 * MIB, CHANNEL = 200 * MIB, P2P = 16 * MIB };

bool comm_would_copy(enum comm_kind k, int n)
{
    return k == COMM_THREAD && n <= COMM_COPIES_MEMBERS;
}

int64_t comm_device_bytes(enum comm_kind k, const struct comm_device_plan *p)
{
    if (p->shared)
        return (p->full + (p->window > 1) + (p->also_nccl > 1)) * (int64_t)COMM_COPIES_BYTES +
               (p->tiny + p->channels) * (int64_t)P2P;
    bool sums = !p->no_p2p && comm_would_copy(k, p->window);
    bool moves = !p->no_p2p && comm_would_copy(k, p->also_nccl);
    bool p2p = !p->stages_no_p2p && comm_would_copy(k, 2);
    int64_t lanes = p->full * (int64_t)FULL + p->tiny * (int64_t)TINY +
                    p->channels * (int64_t)(p2p ? P2P : CHANNEL);
    if (p->window > 1)
        lanes += sums ? (int64_t)COMM_COPIES_BYTES : (int64_t)FULL;
    if (p->also_nccl > 1)
        lanes += moves ? (int64_t)COMM_COPIES_BYTES + TINY
                       : (int64_t)(p->overlapped ? OVERLAPPED : FULL);
    return lanes > 0 ? KERNELS + lanes : 0;
}
