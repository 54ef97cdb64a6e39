/* SPDX-License-Identifier: Apache-2.0
 *
 * The MPI transport, run by mpi_comm.sh under mpirun. Not a test program by itself:
 *
 *     mpi_comm law SEED OPS [THREADS]   the random program of comm_law.h; prints the hash of all
 *                                       results; with THREADS on that many threads instead of MPI
 *     mpi_comm wide MB                  messages, gathers and broadcasts of MB MiB
 *     mpi_comm fail HOW                 one way of failing; the script checks how the job ends
 *
 * The exit code is that of the error.
 */
#include "comm_law.h"

#include "base/fs.h"
#include "base/text.h"
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>

static void nap(double s)
{
    struct timespec t = {(time_t)s, (long)((s - floor(s)) * 1e9)};
    nanosleep(&t, NULL);
}

static enum err open_all(struct comm_world *w, int64_t bytes, struct comm_group **g)
{
    int ranks[LAW_RANKS];
    for (int i = 0; i < comm_size(w); i++)
        ranks[i] = i;
    struct comm_group_args a = {.ranks = ranks, .n = comm_size(w)};
    a.max_bytes = bytes;
    TRY(comm_group_open(w, &a, g));
    return ERR_OK;
}

/* ---- wide: beyond one block, one piece and one window ---- */

static void number(uint32_t *p, int64_t words, uint32_t from)
{
    for (int64_t i = 0; i < words; i++)
        p[i] = from + (uint32_t)i;
}

static enum err numbered(const uint32_t *p, int64_t words, uint32_t from, const char *what)
{
    for (int64_t i = 0; i < words; i++)
        if (p[i] != from + (uint32_t)i)
            FAIL(ERR_INTERNAL, "wide: word %lld of a %s is %u, wanted %u", (long long)i, what, p[i],
                 from + (uint32_t)i);
    return ERR_OK;
}

static enum err wide_round(struct comm_world *w, struct comm_group *g, uint32_t *buffer[2],
                           int64_t words)
{
    int me = comm_rank(w), size = comm_size(w);
    int next = (me + 1) % size, last = (me + size - 1) % size;
    struct comm_req send = {0}, recv = {0};
    number(buffer[0], words, (uint32_t)me * 77);
    TRY(comm_recv_start(w, last, 2, buffer[1], words * 4 + 4, &recv));
    TRY(comm_send_start(w, next, 2, buffer[0], words * 4 + 4, &send));
    TRY(comm_finish(&recv));
    TRY(comm_finish(&send));
    TRY(numbered(buffer[1], words, (uint32_t)last * 77, "message"));
    TRY(comm_all_gather(g, buffer[1], buffer[0], words, DT_I32));
    for (int i = 0; i < size; i++)
        TRY(numbered(buffer[1] + i * words, words, (uint32_t)i * 77, "gather"));
    int64_t take[2][LAW_RANKS], give[2][LAW_RANKS];
    for (int i = 0; i < size; i++) { /* all of it to the next, one word to the one before */
        give[0][i] = i == next ? words : i == last;
        give[1][i] = i == last ? 7 : 0;
        take[0][i] = i == last ? words : i == next;
        take[1][i] = i == next ? words : 0;
    }
    struct comm_to_all a = {.out = buffer[1], .in = buffer[0], .recv = {take[0], take[1]},
                            .send = {give[0], give[1]}, .dt = DT_I32};
    TRY(comm_all_to_all(g, &a));
    TRY(numbered(buffer[1], words, (uint32_t)last * 77, "part of an all_to_all"));
    TRY(numbered(buffer[1] + words, 1, (uint32_t)next * 77 + 7, "short part of one"));
    TRY(comm_broadcast(g, size - 1, buffer[0], words * 4));
    TRY(numbered(buffer[0], words, (uint32_t)(size - 1) * 77, "broadcast"));
    return ERR_OK;
}

/* The launcher runs all on this machine, and tells each process its place. */
static enum err check_place(const struct comm_world *w)
{
    if (comm_local_rank(w) != comm_rank(w))
        FAIL(ERR_INTERNAL, "rank %d has place %d", comm_rank(w), comm_local_rank(w));
    setenv("OMPI_COMM_WORLD_LOCAL_RANK", "5", 1);
    if (comm_local_rank(w) != 5)
        FAIL(ERR_INTERNAL, "place 5 of rank %d is not heard", comm_rank(w));
    return ERR_OK;
}

static enum err wide_body(void *arg, struct comm_world *w)
{
    int64_t words = *(const int64_t *)arg << 18;
    uint32_t *buffer[2];
    struct comm_group *g;
    TRY(check_place(w));
    TRY(open_all(w, 0, &g));
    TRY(mem_new(words + 1, 4, "test buffer", &buffer[0]));
    TRY(mem_new(words * comm_size(w) + 1, 4, "test buffer", &buffer[1]));
    enum err err = wide_round(w, g, buffer, words);
    if (err != ERR_OK)
        return err; /* the job ends */
    mem_free(buffer[0]);
    mem_free(buffer[1]);
    comm_group_close(g);
    return ERR_OK;
}

/* ---- fail ---- */

static enum err message(struct comm_world *w, int64_t send_bytes, int64_t recv_bytes)
{
    static char x[64];
    struct comm_req r = {0};
    if (comm_rank(w) == 0)
        TRY(comm_recv_start(w, 1, 4, x, recv_bytes, &r));
    if (comm_rank(w) == 1)
        TRY(comm_send_start(w, 0, 4, x, send_bytes, &r));
    TRY(comm_finish(&r));
    return ERR_OK;
}

enum { FLIGHT = 600, FLIGHT_BYTES = 2048 }; /* messages that MPI sends at once */

/* Rank 1 hears that rank 0 has failed while messages from rank 2 are on their way, which its buffer
 * does not outlive. */
static enum err gone(struct comm_world *w, struct comm_group *g)
{
    static struct comm_req r[FLIGHT];
    static char x[FLIGHT_BYTES];
    char *into = mmap(NULL, FLIGHT * FLIGHT_BYTES, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (into == MAP_FAILED)
        FAIL(ERR_MEMORY, "no memory to receive to");
    if (comm_rank(w) == 0) {
        nap(0.7);
        comm_abort(w, ERR_DATA);
        nap(2);
        FAIL(ERR_DATA, "data: shard 7 is short");
    }
    if (comm_rank(w) == 2)
        nap(0.3); /* until all receives stand */
    for (int i = 0; i < FLIGHT && comm_rank(w) == 2; i++)
        TRY(comm_send_start(w, 1, 3, x, sizeof x, &r[i]));
    for (int i = 0; i < FLIGHT && comm_rank(w) == 1; i++)
        TRY(comm_recv_start(w, 2, 3, into + i * FLIGHT_BYTES, FLIGHT_BYTES, &r[i]));
    if (comm_rank(w) == 1)
        nap(1);
    enum err err = comm_barrier(g);
    munmap(into, FLIGHT * FLIGHT_BYTES);
    return err;
}

/* Three elements from and to each; rank 1 sends rank 2 one of them less. */
static enum err parts(struct comm_world *w, struct comm_group *g)
{
    static int32_t x[9], y[9];
    int64_t at[] = {0, 3, 6}, take[] = {3, 3, 3}, give[] = {3, 3, comm_rank(w) == 1 ? 2 : 3};
    struct comm_to_all a = {.out = y, .in = x, .recv = {take, at}, .send = {give, at},
                            .dt = DT_I32};
    return comm_all_to_all(g, &a);
}

/* What rank 1 does while the others sum; the names are the script's. */
static enum err misbehave(struct comm_world *w, struct comm_group *g, const char *how)
{
    static float x[100];
    struct comm_req r = {0};
    if (strcmp(how, "data") == 0 || strcmp(how, "busy") == 0) {
        nap(0.1);
        FAIL(ERR_DATA, "data: shard 7 is short");
    }
    if (strcmp(how, "abort") == 0) {
        comm_abort(w, ERR_STORAGE);
        nap(1);
        FAIL(ERR_STORAGE, "store: no room");
    }
    if (strcmp(how, "hang") == 0)
        nap(60);
    if (strcmp(how, "stopped") == 0) {
        TRY(comm_files_open(w, 1));
        fs_call_begin("run/metrics.jsonl");
        raise(SIGSTOP);
    }
    if (strcmp(how, "count") == 0)
        return comm_all_reduce(g, x, 99, DT_F32, COMM_SUM);
    if (strcmp(how, "kind") == 0)
        return comm_barrier(g);
    if (strcmp(how, "left") == 0)
        return comm_send_start(w, 0, 0, x, 4, &r);
    if (strcmp(how, "root") == 0) {
        TRY(comm_reduce_start(g, 1, x, x, 100, DT_F32, &r));
        return comm_finish(&r);
    }
    return ERR_OK; /* early, unmet */
}

static enum err fail_body(void *arg, struct comm_world *w)
{
    const char *how = arg;
    static float x[100];
    struct comm_group *g;
    TRY(open_all(w, 400, &g));
    if (strcmp(how, "gone") == 0)
        return gone(w, g);
    if (strcmp(how, "parts") == 0 || (strcmp(how, "parted") == 0 && comm_rank(w) != 1))
        return parts(w, g);
    if (strcmp(how, "long") == 0)
        return message(w, 64, 8);
    if (strcmp(how, "short") == 0)
        return message(w, 1, 64);
    if (comm_rank(w) == 1)
        return misbehave(w, g, how);
    if (strcmp(how, "busy") == 0)
        nap(60);
    if (strcmp(how, "left") == 0)
        return ERR_OK;
    if (strcmp(how, "root") == 0 || strcmp(how, "unmet") == 0) {
        struct comm_req r = {0};
        TRY(comm_reduce_start(g, 0, x, x, 100, DT_F32, &r));
        return comm_finish(&r);
    }
    return comm_all_reduce(g, x, 100, DT_F32, COMM_SUM);
}

int main(int argc, char **argv)
{
    enum err err = ERR_CONFIG;
    int64_t value[3] = {0}; /* the arguments after the word, as far as they are numbers */
    for (int i = 2; i < argc && i < 5; i++)
        if (!text_to_int(argv[i], &value[i - 2]))
            value[i - 2] = 0;
    if (argc >= 4 && strcmp(argv[1], "law") == 0) {
        struct law law = {.seed = (uint64_t)value[0], .ops = (int)value[1]};
        err = argc == 5 ? comm_thread_run((int)value[2], 60, law_body, &law)
                        : comm_mpi_run("mpi_comm", 60, law_body, &law);
        if (law.hash)
            printf("hash %016llx\n", (unsigned long long)law.hash);
    } else if (argc == 3 && strcmp(argv[1], "wide") == 0) {
        err = comm_mpi_run("mpi_comm", 60, wide_body, &value[0]);
    } else if (argc == 3 && strcmp(argv[1], "fail") == 0) {
        err = comm_mpi_run("mpi_comm", 1, fail_body, argv[2]);
    }
    if (err != ERR_OK)
        fprintf(stderr, "mpi_comm: %d: %s\n", (int)err, err_text());
    return (int)err;
}
