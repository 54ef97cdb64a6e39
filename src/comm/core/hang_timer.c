/* SPDX-License-Identifier: Apache-2.0
 *
 * A wait that gets long. One of less than a moment costs a store. After that moment the rank writes
 * down for whom it waits, again at each close look, for members come one by one; who reads it
 * follows from rank to rank (core/hang.c), and the same rank must be found twice.
 *
 * A rank that was stopped and goes on, or was not given a core, finds that its looks were far
 * apart: what it stood still does not count as waiting.
 */
#include "comm/core/board.h"

#include "base/log.h"

/* Seconds between close looks, at most; and looks so far apart are a standstill. */
static const double close_s = 0.2, still_s = 1;

static double period(const struct comm_world *w)
{
    return fmin(close_s, w->timeout_s / 8);
}

void comm_hang_timer_start(struct comm_world *w, struct comm_hang_timer *t)
{
    double now = log_now();
    *t = (struct comm_hang_timer){.begin = now, .seen = now, .next = now + period(w)};
    comm_heartbeat(w);
}

enum err comm_hang_timer_check(struct comm_world *w, const struct comm_pending_op *x,
                               struct comm_hang_timer *t)
{
    double now = log_now();
    struct comm_hang h;
    comm_heartbeat(w);
    if (now - t->seen > still_s)
        t->begin += now - t->seen;
    t->seen = now;
    if (w->timeout_s <= 0 || now < t->next)
        return ERR_OK;
    t->next = now + period(w);
    comm_board_waits(w, x, t->begin);
    if (now - t->begin < w->timeout_s)
        return ERR_OK;
    TRY(comm_hang_find(w, &h));
    if (h.kind == COMM_HANG_NONE || t->suspect != 1 + h.who) {
        t->suspect = h.kind == COMM_HANG_NONE ? 0 : 1 + h.who;
        return ERR_OK;
    }
    return comm_hang_fail(w, &h);
}

double comm_hang_timer_nap(const struct comm_world *w, const struct comm_hang_timer *t)
{
    return w->timeout_s > 0 ? fmax(0, t->next - log_now()) : -1;
}

struct timespec comm_deadline(clockid_t clock, double seconds)
{
    struct timespec t;
    clock_gettime(clock, &t);
    int64_t ns = t.tv_nsec + (int64_t)((seconds - floor(seconds)) * 1e9);
    t.tv_sec += (time_t)floor(seconds) + (time_t)(ns / 1000000000);
    t.tv_nsec = (long)(ns % 1000000000);
    return t;
}
