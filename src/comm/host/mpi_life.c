/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared memory of the ranks of a machine, and a watch over their processes. The launcher ends a
 * job of which a process was killed, but does not report where that stood, and others (srun without
 * --kill-on-bad-exit) do not end it at all. The kernel wakes whoever polls a descriptor of a
 * process (pidfd) when that ends: a thread polls those of all peers, and the first one to wake
 * reports who has died and where. The rank's own thread finds it at its next look and ends the job.
 * Numbers of processes mean nothing in another name space (a container for each rank): such peers
 * are not watched.
 */
#include "comm/host/mpi.h"

#include "base/fs_sys.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

struct comm_mpi_shared {
    atomic_int reporter; /* 1 + the rank that reports why the job ends; 0: nobody yet */
    struct comm_entry entry[];
};

bool comm_mpi_life_is_reporter(struct comm_mpi_life *l)
{
    int none = 0;
    return !l->shared ||
           atomic_compare_exchange_strong(&l->shared->reporter, &none, 1 + l->world->rank);
}

/* ---- the watch ---- */

/* A process has ended: was it to? */
static void ended(struct comm_mpi_life *l, int i)
{
    struct comm_seen s;
    int rank = l->rank[i], none = 0;
    char host[64] = "";
    close(l->poll[i].fd);
    l->poll[i].fd = -1;
    comm_board_read(l->board.of[rank], &s);
    if (s.doing == COMM_ENDED)
        return;
    if (comm_mpi_life_is_reporter(l)) {
        (void)gethostname(host, sizeof host - 1);
        log_set_rank(-1); /* the message names it */
        log_line(LOG_ERROR, "rank %d (process %d on %s) has died%s%s, by a signal or without a "
                            "message; the launcher or the system's log says which; rank %d ends "
                            "the job", rank, s.pid, host, s.location[0] ? " at " : "", s.location,
                 l->world->rank);
        atomic_store(&l->reported, true);
    }
    atomic_compare_exchange_strong(&l->died, &none, 1 + rank);
}

static void *watch(void *arg)
{
    struct comm_mpi_life *l = arg;
    for (;;) {
        if (poll(l->poll, (nfds_t)l->hosts + 1, -1) < 0 && errno != EINTR)
            return NULL;
        if (l->poll[l->hosts].revents)
            return NULL;
        for (int i = 0; i < l->hosts; i++)
            if (l->poll[i].fd >= 0 && l->poll[i].revents)
                ended(l, i);
    }
}

/* Descriptors of the peers' processes, as far as there are some, and the thread. */
static enum err watch_open(struct comm_mpi_life *l)
{
    int end[2];
    TRY(mem_new(l->hosts + 1, sizeof *l->poll, "who is watched", &l->poll));
    for (int i = 0; i < l->hosts; i++) {
        bool other = l->rank[i] != l->world->rank;
        int pid = other ? atomic_load(&l->board.of[l->rank[i]]->pid) : 0;
        l->poll[i].fd = pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
        l->poll[i].events = POLLIN;
    }
    if (pipe(end) != 0)
        FAIL(ERR_MEMORY, "comm: no pipe to end the watch over peers: %s", strerror(errno));
    l->poll[l->hosts] = (struct pollfd){.fd = end[0], .events = POLLIN};
    l->stop = end[1];
    enum err err = thread_start(&l->watch, watch, l, "watch over peers");
    if (err != ERR_OK) {
        close(l->stop);
        l->stop = -1;
    }
    return err;
}

/* ---- the memory ---- */

enum err comm_mpi_life_open(struct comm_mpi_life *l, struct comm_world *w)
{
    struct stat st = {0};
    MPI_Aint size;
    void *own;
    int me, unit;
    l->world = w;
    l->stop = -1;
    l->board.n = w->size;
    TRY(mem_new(w->size, sizeof *l->board.of, "the ranks of a world", &l->board.of));
    TRY_MPI(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, w->rank, MPI_INFO_NULL,
                                &l->host));
    TRY_MPI(MPI_Comm_set_errhandler(l->host, MPI_ERRORS_RETURN));
    TRY_MPI(MPI_Comm_size(l->host, &l->hosts));
    TRY(mem_new(l->hosts, sizeof *l->rank, "the ranks of a machine", &l->rank));
    TRY_MPI(MPI_Allgather(&w->rank, 1, MPI_INT, l->rank, 1, MPI_INT, l->host));
    int64_t bytes = (int64_t)sizeof *l->shared + l->hosts * (int64_t)sizeof *l->shared->entry;
    TRY_MPI(MPI_Comm_rank(l->host, &me));
    TRY_MPI(MPI_Win_allocate_shared(me == 0 ? (MPI_Aint)bytes : 0, 1, MPI_INFO_NULL, l->host, &own,
                                    &l->memory));
    TRY_MPI(MPI_Win_shared_query(l->memory, 0, &size, &unit, &l->shared));
    if (me == 0)
        memset((void *)l->shared, 0, (size_t)bytes);
    TRY_MPI(MPI_Barrier(l->host));
    for (int i = 0; i < l->hosts; i++)
        l->board.of[l->rank[i]] = &l->shared->entry[i];
    w->board = &l->board;
    comm_heartbeat(w);
    /* This process's number, 0 in another name space than that of the machine's first rank. */
    bool known = fs_sys_stat("/proc/self/ns/pid", &st) == 0;
    uint64_t mine = known ? (uint64_t)st.st_ino : 0, first = mine;
    TRY_MPI(MPI_Bcast(&first, 1, MPI_UINT64_T, 0, l->host));
    atomic_store(&l->board.of[w->rank]->pid, known && first == mine ? (int)getpid() : 0);
    TRY_MPI(MPI_Barrier(l->host));
    return watch_open(l);
}

void comm_mpi_life_close(struct comm_mpi_life *l)
{
    if (l->stop >= 0) {
        close(l->stop); /* the watch sees its end of the pipe end */
        pthread_join(l->watch, NULL);
    }
    for (int i = 0; l->poll && i <= l->hosts; i++)
        if (l->poll[i].fd >= 0)
            close(l->poll[i].fd);
    mem_free(l->poll);
    if (l->shared)
        MPI_Win_free(&l->memory);
    if (l->hosts)
        MPI_Comm_free(&l->host);
    mem_free(l->rank);
    mem_free(l->board.of);
    *l = (struct comm_mpi_life){.stop = -1};
}
