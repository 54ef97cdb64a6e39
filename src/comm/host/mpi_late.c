/* SPDX-License-Identifier: Apache-2.0
 *
 * A limit for MPI_Init, which waits for every process that was launched, also for one that will
 * never call it, and for MPI_Finalize, which waits for one that is stopped: a thread keeps the
 * time.
 *
 * Processes of a launch on one machine know of each other by names of the kernel's abstract
 * sockets, which end with the process that holds them and leave no file: one for each that is in
 * calls with a limit, and one for what is reported when the time is over. Whoever gets the latter
 * prints it, and stays until all that have come have asked for it, two seconds at most; the others
 * wait until its end has the launcher end them.
 */
#include "comm/host/mpi_start.h"

#include "base/err.h"
#include "base/log.h"
#include "base/num.h"
#include "base/thread.h"
#include "comm/core/board.h"
#include "comm/core/launch.h"
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

enum { REPORTER_S = 2 };

/* ---- names ---- */

/* The address of `what` of this launch. False: which launch it is is not known. */
static bool address_of(const char *what, struct sockaddr_un *at, socklen_t *size)
{
    struct comm_launch l;
    comm_launch_read(&l);
    if (!l.job[0] || l.size < 2)
        return false;
    *at = (struct sockaddr_un){.sun_family = AF_UNIX}; /* a path that begins with 0 is a name */
    int n = snprintf(at->sun_path + 1, sizeof at->sun_path - 1, "plait.%ld.%s.%s",
                     (long)getuid(), l.job, what);
    *size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
                        num_min(n, (int)sizeof at->sun_path - 2));
    return n > 0;
}

/* A socket that holds the name, or -1 and *taken when another does. */
static int take_name(const char *what, bool *taken)
{
    struct sockaddr_un at;
    socklen_t size;
    *taken = false;
    if (!address_of(what, &at, &size))
        return -1;
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (const struct sockaddr *)&at, size) == 0)
        return fd;
    *taken = true;
    /* The holder learns that one more has asked. */
    (void)sendto(fd, "", 1, MSG_DONTWAIT, (const struct sockaddr *)&at, size);
    close(fd);
    return -1;
}

static bool is_taken(const char *what)
{
    struct sockaddr_un at;
    socklen_t size;
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool there = fd >= 0 && address_of(what, &at, &size) &&
                 connect(fd, (const struct sockaddr *)&at, size) == 0;
    if (fd >= 0)
        close(fd);
    return there;
}

static void rank_name(int rank, char buf[32])
{
    snprintf(buf, 32, "rank %d", rank);
}

/* The name of this process while it is in the calls, or -1. */
static int come(const struct comm_launch *l)
{
    char name[32];
    bool taken;
    if (l->rank < 0)
        return -1;
    rank_name(l->rank, name);
    return take_name(name, &taken);
}

/* The ranks that have not come; none when all have, or when the launcher does not put all of its
 * processes on this machine. */
static void absent(struct comm_names *n)
{
    struct comm_launch l;
    comm_launch_read(&l);
    for (int r = 0; r < l.size && l.local_size == l.size; r++) {
        char name[32];
        rank_name(r, name);
        if (!is_taken(name))
            comm_names_add(n, r);
    }
    comm_names_end(n);
}

/* Until `others` have asked for the name that fd holds, or the time is over. */
static void await_others(int fd, int others)
{
    double end = log_now() + REPORTER_S;
    while (others-- > 0) {
        double left = end - log_now();
        char c;
        if (left <= 0)
            return;
        struct timeval t = {(time_t)left, (suseconds_t)((left - floor(left)) * 1e6)};
        if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t) != 0 || recv(fd, &c, 1, 0) < 0)
            return;
    }
}

/* Among those with the same text. */
static void print_once(const char *text, void (*print)(const char *text))
{
    char name[32];
    bool taken;
    struct comm_launch l;
    snprintf(name, sizeof name, "reports %016llx",
             (unsigned long long)XXH3_64bits(text, strlen(text)));
    int fd = take_name(name, &taken);
    if (taken) {
        nanosleep(&(struct timespec){2 * REPORTER_S, 0}, NULL);
        return;
    }
    comm_launch_read(&l);
    print(text);
    if (fd >= 0)
        await_others(fd, (l.local_size > 0 ? l.local_size : l.size) - 1);
    /* The descriptor, and with it the name, ends with the process. */
}

/* ---- the limit ---- */

static struct {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool runs, done;
    double limit_s;
    struct comm_mpi_late late;
    int come; /* a socket that has the process's name, or -1 */
} keeper = {.lock = PTHREAD_MUTEX_INITIALIZER, .come = -1};

static void log_late(const char *text)
{
    log_line(LOG_ERROR, "%s", text);
}

static void too_late(void)
{
    const struct comm_mpi_late *l = &keeper.late;
    struct comm_names away = {.text = ""};
    char text[512];
    if (l->text) {
        print_once(l->text, l->print);
        err_leave(l->code);
    }
    absent(&away);
    snprintf(text, sizeof text, "comm: %s has waited %g s for the launcher's other processes%s%s; "
             "each of them must be plait, with train.transport mpi, and run; look at it, or raise "
             "train.hang_timeout", l->what, keeper.limit_s,
             away.named ? ", of which these have not come: rank " : "", away.text);
    print_once(text, log_late);
    err_leave(ERR_HANG);
}

static void *keep_time(void *arg)
{
    struct timespec end = comm_deadline(CLOCK_MONOTONIC, ceil(keeper.limit_s));
    (void)arg;
    pthread_mutex_lock(&keeper.lock);
    int rc = 0;
    while (!keeper.done && rc == 0)
        rc = pthread_cond_timedwait(&keeper.wake, &keeper.lock, &end);
    bool late = !keeper.done;
    pthread_mutex_unlock(&keeper.lock);
    if (late)
        too_late();
    return NULL;
}

void comm_mpi_limit(double limit_s, const struct comm_mpi_late *late)
{
    pthread_condattr_t attr;
    struct comm_launch l;
    comm_launch_read(&l);
    keeper.come = come(&l);
    if (limit_s <= 0 || l.size < 2 || pthread_condattr_init(&attr) != 0)
        return;
    keeper.limit_s = fmax(limit_s, COMM_MPI_START_S);
    keeper.late = *late;
    keeper.done = false;
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&keeper.wake, &attr);
    pthread_condattr_destroy(&attr);
    keeper.runs = thread_start(&keeper.thread, keep_time, NULL,
                               "keep the time of MPI's start or end") == ERR_OK;
    if (!keeper.runs)
        log_line(LOG_WARN, "%s", err_text());
}

void comm_mpi_limit_end(void)
{
    if (keeper.come >= 0)
        close(keeper.come);
    keeper.come = -1;
    if (!keeper.runs)
        return;
    pthread_mutex_lock(&keeper.lock);
    keeper.done = true;
    pthread_cond_signal(&keeper.wake);
    pthread_mutex_unlock(&keeper.lock);
    pthread_join(keeper.thread, NULL);
    pthread_cond_destroy(&keeper.wake);
    keeper.runs = false;
}
