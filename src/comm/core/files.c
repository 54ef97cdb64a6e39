/* SPDX-License-Identifier: Apache-2.0
 *
 * File calls and hangs. A rank in a file call is not silent: its entry shows it (core/board.h), and
 * its peers wait on. The call has a limit of its own, for one that waits for a disk cannot be
 * interrupted: at the limit a thread of the process prints the file's name and ends the process. A
 * process that is stopped cannot do that, and is silent to its peers from then on.
 *
 * The ranks of a process are in one list, which one thread watches.
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
    struct comm_files *next;
    struct comm_world *world; /* borrowed; NULL: it is no rank, and nobody waits for it */
    struct fs_watch before;   /* the thread's, which counts again behind this one */
    double limit_s;           /* 0: none */
    pthread_mutex_t lock;     /* of those below */
    int calls;                /* under way; several, where threads do this one's work */
    const char *path;         /* theirs, borrowed; NULL: there is none */
    double since;             /* the first of them has begun, or another has ended */
    struct err_kept first;    /* code 0: none; what the rank deals with */
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    struct comm_files *first; /* guarded by lock */
    bool runs;                /* guarded by lock; the thread ends with the last rank */
} keeper = {.lock = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER};

static int64_t ns_of(double s)
{
    return (int64_t)(s * 1e9);
}

/* Calls are under way, for the limit from now on; or there are none. Under the lock. */
static void note(struct comm_files *f)
{
    double now = log_now();
    f->since = now;
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
    pthread_mutex_lock(&f->lock);
    f->path = path;
    if (f->calls++ == 0)
        note(f);
    pthread_mutex_unlock(&f->lock);
}

static void on_end(void *arg)
{
    struct comm_files *f = arg;
    pthread_mutex_lock(&f->lock);
    if (--f->calls == 0)
        f->path = NULL;
    note(f);
    pthread_mutex_unlock(&f->lock);
}

/* ---- the limit ---- */

/* The lock stays taken: the path must stay good, and the process ends. */
static void leave(const struct comm_files *f)
{
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

static void *watch(void *arg)
{
    (void)arg;
    pthread_mutex_lock(&keeper.lock);
    while (keeper.first) {
        double period = 1;
        for (struct comm_files *f = keeper.first; f; f = f->next) {
            pthread_mutex_lock(&f->lock);
            if (f->path && f->limit_s > 0 && log_now() - f->since > f->limit_s)
                leave(f);
            pthread_mutex_unlock(&f->lock);
            period = f->limit_s > 0 ? fmin(period, f->limit_s / 8) : period;
        }
        struct timespec until = comm_deadline(CLOCK_REALTIME, period);
        (void)pthread_cond_timedwait(&keeper.wake, &keeper.lock, &until);
    }
    keeper.runs = false;
    pthread_mutex_unlock(&keeper.lock);
    return NULL;
}

/* Under keeper.lock, with the list filled. */
static enum err start_watch(void)
{
    pthread_t thread;
    if (keeper.runs)
        return ERR_OK;
    TRY(thread_start(&thread, watch, NULL, "watch over file calls"));
    pthread_detach(thread);
    keeper.runs = true;
    return ERR_OK;
}

/* Puts *f, zero but for world and limit, into the list. */
static enum err begin(struct comm_files *f)
{
    if (pthread_mutex_init(&f->lock, NULL) != 0)
        FAIL(ERR_MEMORY, "comm: no lock for the file calls of a thread");
    pthread_mutex_lock(&keeper.lock);
    f->next = keeper.first;
    keeper.first = f;
    enum err err = start_watch();
    if (err != ERR_OK)
        keeper.first = f->next;
    pthread_mutex_unlock(&keeper.lock);
    if (err == ERR_OK)
        f->before = fs_watch_set(&(struct fs_watch){.begin = on_begin, .end = on_end, .arg = f});
    else
        pthread_mutex_destroy(&f->lock);
    return err;
}

static void end(struct comm_files *f)
{
    (void)fs_watch_set(&f->before);
    pthread_mutex_lock(&keeper.lock);
    struct comm_files **at = &keeper.first;
    while (*at != f)
        at = &(*at)->next;
    *at = f->next;
    pthread_cond_signal(&keeper.wake);
    pthread_mutex_unlock(&keeper.lock);
    pthread_mutex_destroy(&f->lock);
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
    pthread_mutex_lock(&f->lock);
    f->first = *first;
    pthread_mutex_unlock(&f->lock);
}

void comm_files_close(struct comm_world *w)
{
    if (w->files)
        end(w->files);
    mem_free(w->files);
    w->files = NULL;
}
