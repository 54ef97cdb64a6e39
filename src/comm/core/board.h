/* SPDX-License-Identifier: Apache-2.0
 *
 * What ranks know of each other without a message: each has an entry that it alone writes and that
 * its peers read when a wait gets long: where the rank is, for whom it waits, whether a call of the
 * file system holds it, and its last heartbeat. The entries lie in the memory of the ranks that are
 * threads, or in memory that processes of one machine share; a rank that is stopped, or busy, or
 * has exited cannot answer, but its entry can still be read.
 */
#ifndef PLAIT_COMM_BOARD_H
#define PLAIT_COMM_BOARD_H

#include "comm/core/core.h"
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

enum {
    COMM_LOCATION_TEXT = 48,
    COMM_LOCATION_WORDS = COMM_LOCATION_TEXT / 8,
    COMM_PENDING_WORDS = COMM_PENDING_TEXT / 8,
    COMM_WAITS_WORDS = COMM_RANKS_MAX / 64,
};

enum comm_doing { COMM_BUSY, COMM_WAITS, COMM_ENDED, COMM_DEAD };

/* Times are nanoseconds of the machine's monotonic clock. */
struct comm_entry {
    atomic_int pid;   /* of a process; 0: a thread */
    atomic_int doing; /* enum comm_doing */
    atomic_int_fast64_t heartbeat; /* when the last one was */
    atomic_int_fast64_t since; /* COMM_WAITS: when the wait began */
    atomic_int_fast64_t file;  /* until when the file call under way excuses; 0: there is none */
    atomic_int_fast64_t filed; /* when the last one ended */
    atomic_uint_fast64_t location[COMM_LOCATION_WORDS];
    atomic_uint_fast64_t pending[COMM_PENDING_WORDS]; /* COMM_WAITS: for what */
    atomic_uint_fast64_t waits[COMM_WAITS_WORDS]; /* COMM_WAITS: for whom, a bit a rank */
};

struct comm_board {
    int n;
    struct comm_entry **of; /* (n) owned, the entries borrowed; NULL: of another machine */
};

/* An entry as it was read. */
struct comm_seen {
    enum comm_doing doing;
    bool in_file;
    int pid;
    double quiet;  /* seconds since the last heartbeat */
    double waited; /* COMM_WAITS */
    char location[COMM_LOCATION_TEXT], pending[COMM_PENDING_TEXT];
    uint64_t waits[COMM_WAITS_WORDS];
};
void comm_board_read(const struct comm_entry *e, struct comm_seen *out);

/* This rank does not wait any more. */
void comm_board_waits_end(struct comm_world *w);

/* This rank has ended well. */
void comm_board_ended(struct comm_world *w);
/* Has a rank of the world been in a file call within the last timeout? */
bool comm_board_files(const struct comm_world *w);

/* Of one wait. Zeroed by comm_hang_timer_start, which also gives a heartbeat. */
struct comm_hang_timer {
    double begin; /* of the wait; later by what the rank itself stood still */
    double seen;  /* the last look */
    double next;  /* when to look closely */
    int suspect;  /* 1 + who held it up at the last close look; 0: nobody */
};
void comm_hang_timer_start(struct comm_world *w, struct comm_hang_timer *t);
/* A look at a wait that has not ended. Errors: ERR_HANG, when it has lasted for the world's timeout
 * and a rank that it is for, or that those wait for, has given no heartbeat for as long; the
 * message names that one first and then the chain. A rank in a file call is alive.
 * The world has not failed yet. */
enum err comm_hang_timer_check(struct comm_world *w, const struct comm_pending_op *x,
                               struct comm_hang_timer *t);
/* Seconds until the next close look; negative: none comes. */
double comm_hang_timer_nap(const struct comm_world *w, const struct comm_hang_timer *t);
/* So many seconds from now. */
struct timespec comm_deadline(clockid_t clock, double seconds);

/* ---- core/files.c: what this process may not be in for too long ---- */

/* Owned by the caller, who keeps it from begin to end. */
struct comm_time_limit {
    struct comm_time_limit *next;
    double period;  /* seconds between looks at it, at most */
    void (*late)(struct comm_time_limit *l); /* at its end; ends the process */
    pthread_mutex_t lock; /* of what follows, and around `late` */
    double end;     /* by log_now; INFINITY: there is none now */
};
/* From here on a thread of the process, one for all limits, looks at it. Errors: ERR_MEMORY. */
enum err comm_time_limit_begin(struct comm_time_limit *l);
void comm_time_limit_end(struct comm_time_limit *l);

#endif
