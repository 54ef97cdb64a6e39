/* SPDX-License-Identifier: Apache-2.0
 *
 * What the transports cost: latency of small operations and throughput of large ones.
 *
 *     build/bench/bench_comm [RANKS]                          threads, 2 ranks
 *     mpirun -n 2 --oversubscribe build/bench/bench_comm      processes
 *
 * Latencies are means over many in a row. Throughput is that of the median repetition: bytes of
 * one rank's buffer a second ("algorithm"), and for all_reduce times 2 (n - 1) / n, what each rank
 * must at least move ("bus").
 */
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "comm/comm.h"
#include <stdio.h>
#include <stdlib.h>

enum { LARGE = 16 << 20, REPEATS = 15, SMALL_REPEATS = 2000, RANKS_MAX = 64 };

struct bench {
    struct comm_world *w;
    struct comm_group *all;
    char *buffer; /* LARGE bytes */
};

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Median seconds of an operation. */
static enum err large(struct bench *b, enum err (*op)(struct bench *b), double *out)
{
    double t[REPEATS];
    TRY(op(b));
    for (int i = 0; i < REPEATS; i++) {
        TRY(comm_barrier(b->all));
        double begin = log_now();
        TRY(op(b));
        TRY(comm_barrier(b->all));
        t[i] = log_now() - begin;
    }
    qsort(t, REPEATS, sizeof *t, compare);
    *out = t[REPEATS / 2];
    return ERR_OK;
}

/* Mean seconds of an operation. */
static enum err small(struct bench *b, enum err (*op)(struct bench *b), double *out)
{
    TRY(op(b));
    TRY(comm_barrier(b->all));
    double begin = log_now();
    for (int i = 0; i < SMALL_REPEATS; i++)
        TRY(op(b));
    *out = (log_now() - begin) / SMALL_REPEATS;
    return ERR_OK;
}

static enum err sum_small(struct bench *b)
{
    return comm_all_reduce(b->all, b->buffer, 1, DT_F64, COMM_SUM);
}

static enum err sum_f32(struct bench *b)
{
    return comm_all_reduce(b->all, b->buffer, LARGE / 4, DT_F32, COMM_SUM);
}

static enum err sum_bf16(struct bench *b)
{
    return comm_all_reduce(b->all, b->buffer, LARGE / 2, DT_BF16, COMM_SUM);
}

static enum err barrier(struct bench *b)
{
    return comm_barrier(b->all);
}

/* Rank 0 to rank 1 and back; the others only take part in barriers. */
static enum err bounce(struct bench *b, int64_t bytes)
{
    int me = comm_rank(b->w);
    struct comm_req r = {0}, s = {0};
    if (me > 1)
        return ERR_OK;
    if (me == 1) {
        TRY(comm_recv_start(b->w, 0, 1, b->buffer, bytes, &r));
        TRY(comm_finish(&r));
    }
    TRY(comm_send_start(b->w, 1 - me, 1, b->buffer, bytes, &s));
    TRY(comm_finish(&s));
    if (me == 0) {
        TRY(comm_recv_start(b->w, 1, 1, b->buffer, bytes, &r));
        TRY(comm_finish(&r));
    }
    return ERR_OK;
}

static enum err bounce_small(struct bench *b)
{
    return bounce(b, 8);
}

static enum err bounce_large(struct bench *b)
{
    return bounce(b, LARGE);
}

static enum err measure(struct bench *b)
{
    int n = comm_size(b->w);
    double t[6], bus = 2.0 * (n - 1) / n, mb = LARGE / 1e6;
    TRY(small(b, sum_small, &t[0]));
    TRY(small(b, barrier, &t[1]));
    TRY(small(b, bounce_small, &t[2]));
    TRY(large(b, sum_f32, &t[3]));
    TRY(large(b, sum_bf16, &t[4]));
    TRY(large(b, bounce_large, &t[5]));
    if (comm_rank(b->w) != 0)
        return ERR_OK;
    printf("%s, %d ranks\n", comm_kind(b->w) == COMM_MPI ? "mpi" : "thread", n);
    printf("  all_reduce 8 B        %9.2f us\n", t[0] * 1e6);
    printf("  barrier               %9.2f us\n", t[1] * 1e6);
    printf("  message 8 B, one way  %9.2f us\n", t[2] * 0.5e6);
    printf("  all_reduce f32 16 MiB %9.2f ms  %8.2f GB/s algorithm  %8.2f GB/s bus\n", t[3] * 1e3,
           mb / t[3] / 1e3, mb / t[3] * bus / 1e3);
    printf("  all_reduce bf16 16 MiB%9.2f ms  %8.2f GB/s algorithm  %8.2f GB/s bus\n", t[4] * 1e3,
           mb / t[4] / 1e3, mb / t[4] * bus / 1e3);
    printf("  message 16 MiB        %9.2f ms  %8.2f GB/s\n", t[5] * 0.5e3, mb / t[5] * 2 / 1e3);
    return ERR_OK;
}

static enum err body(void *arg, struct comm_world *w)
{
    struct bench b = {.w = w};
    int ranks[RANKS_MAX], n = comm_size(w);
    (void)arg;
    if (n < 2 || n > RANKS_MAX)
        FAIL(ERR_CONFIG, "bench: %d ranks; legal are 2..%d", n, RANKS_MAX);
    for (int i = 0; i < n; i++)
        ranks[i] = i;
    struct comm_group_args a = {.ranks = ranks, .n = n};
    a.max_bytes = LARGE;
    TRY(comm_group_open(w, &a, &b.all));
    TRY(mem_new(LARGE, 1, "the buffer", &b.buffer));
    enum err err = measure(&b);
    if (err != ERR_OK)
        comm_abort(w, err);
    mem_free(b.buffer);
    comm_group_close(b.all);
    return err;
}

int main(int argc, char **argv)
{
    int64_t ranks = 2;
    if (argc > 2 || (argc == 2 && !text_to_int(argv[1], &ranks))) {
        fprintf(stderr, "usage: bench_comm [RANKS]\n");
        return ERR_CONFIG;
    }
    enum err err = comm_mpi_launched_size() > 0 ? comm_mpi_run("bench_comm", 60, body, NULL)
                                                : comm_thread_run((int)ranks, 60, body, NULL);
    if (err != ERR_OK)
        fprintf(stderr, "bench_comm: %s\n", err_text());
    return (int)err;
}
