/* SPDX-License-Identifier: Apache-2.0
 *
 * The launcher: what it tells by the environment, and what its processes tell each other.
 *
 * A process that refuses its configuration knows nothing of its peers, who may say the same. Each
 * asks for the name of what it has to say; whoever gets it speaks, and stays until as many others
 * as the launcher started here have asked, two seconds at most, for its end would free the name.
 *
 * MPI_Init waits for every process that was launched, also for one that will never call it, and
 * MPI_Finalize for one that is stopped. So a thread keeps the time.
 */
#include "comm/comm_launch.h"

#include "base/err.h"
#include "base/log.h"
#include "base/num.h"
#include "base/text.h"
#include "comm/comm_ops.h"
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

enum { SPEAKER_S = 2, NAMES_MAX = 8 };

/* ---- the environment ---- */

static bool number_of(const char *name, int64_t least, int *out)
{
    const char *word = getenv(name);
    int64_t n;
    if (!word || !text_to_int(word, &n) || n < least || n > INT_MAX)
        return false;
    *out = (int)n;
    return true;
}

int comm_mpi_launched_size(void)
{
    int n;
    /* Open MPI's mpirun, other process managers, and srun when it speaks PMIx to its tasks. */
    if (getenv("OMPI_COMM_WORLD_SIZE"))
        return number_of("OMPI_COMM_WORLD_SIZE", 1, &n) ? n : 0;
    if (getenv("PMI_SIZE"))
        return number_of("PMI_SIZE", 1, &n) ? n : 0;
    return getenv("PMIX_RANK") && number_of("SLURM_NTASKS", 1, &n) ? n : 0;
}

int comm_local_rank(const struct comm_world *w)
{
    int n;
    /* Threads are all of one machine; Open MPI's mpirun and srun tell their processes. */
    bool told = w->ops->kind == COMM_MPI && (number_of("OMPI_COMM_WORLD_LOCAL_RANK", 0, &n) ||
                                             number_of("SLURM_LOCALID", 0, &n));
    return told ? n : w->rank;
}

static bool rank_of(int *out)
{
    return number_of("OMPI_COMM_WORLD_RANK", 0, out) || number_of("PMIX_RANK", 0, out) ||
           number_of("PMI_RANK", 0, out) || number_of("SLURM_PROCID", 0, out);
}

/* Processes of the launch on this machine; where that is not told, all of them. */
static int local_size(void)
{
    int n;
    return number_of("OMPI_COMM_WORLD_LOCAL_SIZE", 1, &n) ? n : comm_mpi_launched_size();
}

/* ---- names ---- */

/* The address of `what` of this launch. False: nobody says which launch it is. */
static bool address_of(const char *what, struct sockaddr_un *at, socklen_t *size)
{
    const char *job = getenv("PMIX_NAMESPACE");
    job = job ? job : getenv("OMPI_MCA_ess_base_jobid");
    job = job ? job : getenv("SLURM_JOB_ID");
    const char *step = getenv("SLURM_STEP_ID");
    if (!job || comm_mpi_launched_size() < 2)
        return false;
    *at = (struct sockaddr_un){.sun_family = AF_UNIX}; /* a path that begins with 0 is a name */
    int n = snprintf(at->sun_path + 1, sizeof at->sun_path - 1, "plait.%ld.%.40s.%.12s.%s",
                     (long)getuid(), job, step ? step : "", what);
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
    /* Whoever has it hears that one more has asked. */
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

int comm_launch_come(void)
{
    char name[32];
    int rank;
    bool taken;
    if (!rank_of(&rank))
        return -1;
    rank_name(rank, name);
    return take_name(name, &taken);
}

const char *comm_launch_absent(char *buf, size_t size)
{
    int n = comm_mpi_launched_size(), named = 0, more = 0, local;
    size_t used = 0;
    buf[0] = '\0';
    for (int r = 0; r < n && number_of("OMPI_COMM_WORLD_LOCAL_SIZE", n, &local); r++) {
        char name[32];
        rank_name(r, name);
        if (is_taken(name))
            continue;
        if (named == NAMES_MAX) {
            more++;
            continue;
        }
        int k = snprintf(buf + used, size - used, "%s%d", named++ ? ", " : "", r);
        used += k > 0 ? (size_t)k : 0;
    }
    if (more)
        snprintf(buf + used, size - used, " and %d more", more);
    return buf;
}

/* Until `others` have asked for the name that fd holds, or a second is over. */
static void await_others(int fd, int others)
{
    double end = log_now() + SPEAKER_S;
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

void comm_say(const char *text, void (*say)(const char *text))
{
    char name[32];
    bool taken;
    snprintf(name, sizeof name, "says %016llx",
             (unsigned long long)XXH3_64bits(text, strlen(text)));
    int fd = take_name(name, &taken);
    if (taken)
        return;
    say(text);
    if (fd >= 0)
        await_others(fd, local_size() - 1);
    /* The descriptor, and with it the name, ends with the process. */
}

/* ---- the limit ---- */

static struct {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool runs, done;
    double limit_s;
    const char *what;
} keeper = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void say_late(const char *text)
{
    log_line(LOG_ERROR, "%s", text);
}

static void too_late(void)
{
    char absent[128], text[512];
    comm_launch_absent(absent, sizeof absent);
    snprintf(text, sizeof text, "comm: %s has waited %g s for the launcher's other processes%s%s; "
             "each of them must be plait, with train.transport mpi, and run; look at it, or raise "
             "train.hang_timeout", keeper.what, keeper.limit_s,
             absent[0] ? ", of which these have not come: rank " : "", absent);
    comm_say(text, say_late);
    err_leave(ERR_HANG);
}

static void *keep_time(void *arg)
{
    struct timespec end;
    (void)arg;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += (time_t)ceil(keeper.limit_s);
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

void comm_launch_limit(double limit_s, const char *what)
{
    pthread_condattr_t attr;
    sigset_t all, before;
    if (limit_s <= 0 || comm_mpi_launched_size() < 2 || pthread_condattr_init(&attr) != 0)
        return;
    keeper.limit_s = fmax(limit_s, COMM_LAUNCH_S);
    keeper.what = what;
    keeper.done = false;
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&keeper.wake, &attr);
    pthread_condattr_destroy(&attr);
    sigfillset(&all); /* signals are for the program's own threads */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    keeper.runs = pthread_create(&keeper.thread, NULL, keep_time, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!keeper.runs)
        log_line(LOG_WARN, "comm: no thread to keep the time of %s", what);
}

void comm_launch_done(void)
{
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
