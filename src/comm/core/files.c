/* SPDX-License-Identifier: Apache-2.0
 *
 * File calls and hangs. A rank in a file call is not silent: its entry shows it (core/board.h), and
 * its peers wait on. The call has a limit of its own, for one that waits for a disk cannot be
 * interrupted: at the limit a thread of the process prints the file's name and ends the process. A
 * process that is stopped cannot do that, and is silent to its peers from then on.
 *
 * All limits of a process are in one list, which one thread watches.
 */
#include "comm/comm.h"

#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "base/thread.h"
#include "comm/core/board.h"
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

/* A thread of this process whose file calls have a watch; a rank's is owned by its world. */
struct comm_files {
    struct comm_time_limit limit;  /* first; its lock is that of those below `limit_s` */
    struct comm_world *world; /* borrowed; NULL: it is no rank, and nobody waits for it */
    struct fs_watch before;   /* the thread's, which counts again behind this one */
    double limit_s;           /* 0: none */
    int calls;                /* under way; several, where threads do this one's work */
    const char *path;         /* theirs, borrowed; NULL: there is none */
    double since;             /* the first of them has begun, or another has ended */
    struct err_kept first;    /* code 0: none; what the rank deals with */
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    struct comm_time_limit *first; /* guarded by lock */
    bool runs;                /* guarded by lock; the thread ends with the last limit */
} keeper = {.lock = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER};

/* ---- limits ---- */

static void *watch(void *arg)
{
    (void)arg;
    pthread_mutex_lock(&keeper.lock);
    while (keeper.first) {
        double period = 1;
        for (struct comm_time_limit *l = keeper.first; l; l = l->next) {
            pthread_mutex_lock(&l->lock);
            if (log_now() > l->end)
                l->late(l);
            pthread_mutex_unlock(&l->lock);
            period = fmin(period, l->period);
        }
        struct timespec until = comm_deadline(CLOCK_REALTIME, period);
        (void)pthread_cond_timedwait(&keeper.wake, &keeper.lock, &until);
    }
    keeper.runs = false;
    pthread_mutex_unlock(&keeper.lock);
    return NULL;
}

enum err comm_time_limit_begin(struct comm_time_limit *l)
{
    pthread_t thread;
    enum err err = ERR_OK;
    if (pthread_mutex_init(&l->lock, NULL) != 0)
        FAIL(ERR_MEMORY, "comm: no lock for a time limit");
    pthread_mutex_lock(&keeper.lock);
    l->next = keeper.first;
    keeper.first = l;
    if (!keeper.runs) {
        err = thread_start(&thread, watch, NULL, "watch over time limits");
        keeper.runs = err == ERR_OK;
        if (keeper.runs)
            pthread_detach(thread);
        else
            keeper.first = l->next;
    }
    pthread_mutex_unlock(&keeper.lock);
    if (err != ERR_OK)
        pthread_mutex_destroy(&l->lock);
    return err;
}

void comm_time_limit_end(struct comm_time_limit *l)
{
    pthread_mutex_lock(&keeper.lock);
    struct comm_time_limit **at = &keeper.first;
    while (*at != l)
        at = &(*at)->next;
    *at = l->next;
    pthread_cond_signal(&keeper.wake);
    pthread_mutex_unlock(&keeper.lock);
    pthread_mutex_destroy(&l->lock);
}

/* ---- file calls ---- */

static int64_t ns_of(double s)
{
    return (int64_t)(s * 1e9);
}

/* Calls are under way, for the limit from now on; or there are none. Under the lock. */
static void note(struct comm_files *f)
{
    double now = log_now();
    f->since = now;
    f->limit.end = f->calls > 0 && f->limit_s > 0 ? now + f->limit_s : INFINITY;
    if (!f->world)
        return;
    struct comm_entry *e = f->world->board->of[f->world->rank];
    comm_heartbeat(f->world); /* first: never neither in a call nor lately alive */
    int64_t until = f->limit_s > 0 ? ns_of(now + f->limit_s + f->world->timeout_s) : INT64_MAX;
    if (f->calls == 0)
        atomic_store(&e->filed, ns_of(now));
    atomic_store(&e->file, f->calls > 0 ? until : 0);
}

static void on_begin(void *arg, const char *path)
{
    struct comm_files *f = arg;
    pthread_mutex_lock(&f->limit.lock);
    f->path = path;
    if (f->calls++ == 0)
        note(f);
    pthread_mutex_unlock(&f->limit.lock);
}

static void on_end(void *arg)
{
    struct comm_files *f = arg;
    pthread_mutex_lock(&f->limit.lock);
    if (--f->calls == 0)
        f->path = NULL;
    note(f);
    pthread_mutex_unlock(&f->limit.lock);
}

/* The lock stays taken: the path must stay good, and the process ends. */
static void leave(struct comm_time_limit *l)
{
    const struct comm_files *f = (const struct comm_files *)l;
    char text[COMM_RANK_TEXT], line[COMM_RANK_TEXT], took[32];
    bool behind = f->first.code != ERR_OK;
    snprintf(text, sizeof text, "%.1400s%s%.300s: a call of the file system has not returned for "
             "%s; look at the disk, or raise run.io_timeout (%g s; 0: wait for ever)",
             f->first.text, behind ? "; then " : "storage: ", f->path,
             text_seconds(log_now() - f->since, took), f->limit_s);
    if (!f->world) {
        log_line(LOG_ERROR, "%s", text);
    } else if (!f->world->ops->may_report || f->world->ops->may_report(f->world)) {
        log_set_rank(-1); /* the message names it */
        log_line(LOG_ERROR, "%s", comm_rank_error(f->world, text, line));
    }
    err_leave(behind ? f->first.code : ERR_STORAGE);
}

/* *f is zero but for world and limit_s. */
static enum err begin(struct comm_files *f)
{
    double period = f->limit_s > 0 ? f->limit_s / 8 : 1;
    f->limit = (struct comm_time_limit){.period = period, .late = leave, .end = INFINITY};
    TRY(comm_time_limit_begin(&f->limit));
    f->before = fs_watch_set(&(struct fs_watch){.begin = on_begin, .end = on_end, .arg = f});
    return ERR_OK;
}

static void end(struct comm_files *f)
{
    (void)fs_watch_set(&f->before);
    comm_time_limit_end(&f->limit);
}

enum err comm_files_alone(double limit_s, enum err (*body)(void *arg), void *arg)
{
    struct comm_files f = {.limit_s = limit_s};
    TRY(begin(&f));
    enum err err = body(arg);
    end(&f);
    return err;
}

enum err comm_files_open(struct comm_world *w, double limit_s)
{
    struct comm_files *f;
    TRY(mem_new(1, sizeof *f, "a rank's file calls", &f));
    f->world = w;
    f->limit_s = limit_s;
    enum err err = begin(f);
    if (err == ERR_OK)
        w->files = f;
    else
        mem_free(f);
    return err;
}

void comm_files_behind(struct comm_world *w, const struct err_kept *first)
{
    struct comm_files *f = w->files;
    if (!f)
        return;
    pthread_mutex_lock(&f->limit.lock);
    f->first = *first;
    pthread_mutex_unlock(&f->limit.lock);
}

void comm_files_close(struct comm_world *w)
{
    if (w->files)
        end(w->files);
    mem_free(w->files);
    w->files = NULL;
}
