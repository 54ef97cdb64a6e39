/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing and reading entries. Texts and sets may be torn, when they are read while they are
 * written or their writer was stopped amid writing, so nothing is concluded from one look
 * (core/hang.c).
 */
#include "comm/core/board.h"

#include "base/log.h"
#include <string.h>

static int64_t now_ns(void)
{
    return (int64_t)(log_now() * 1e9);
}

static struct comm_entry *own(const struct comm_world *w)
{
    return w->board->of[w->rank];
}

static void put_text(atomic_uint_fast64_t *to, int words, const char *text)
{
    size_t left = strlen(text);
    for (int i = 0; i < words; i++) {
        uint64_t word = 0;
        size_t n = left < sizeof word ? left : sizeof word;
        memcpy(&word, text, n);
        text += n;
        left -= n;
        atomic_store_explicit(&to[i], word, memory_order_relaxed);
    }
}

static void get_text(const atomic_uint_fast64_t *from, int words, char *text)
{
    for (int i = 0; i < words; i++) {
        uint64_t word = atomic_load_explicit(&from[i], memory_order_relaxed);
        memcpy(text + (size_t)i * sizeof word, &word, sizeof word);
    }
    text[(size_t)words * sizeof(uint64_t) - 1] = '\0';
}

void comm_heartbeat(struct comm_world *w)
{
    atomic_store_explicit(&own(w)->heartbeat, now_ns(), memory_order_release);
}

void comm_slow(struct comm_world *w)
{
    atomic_store(&own(w)->filed, now_ns());
    comm_heartbeat(w);
}

void comm_set_location(struct comm_world *w, const char *text)
{
    put_text(own(w)->location, COMM_LOCATION_WORDS, text);
    comm_heartbeat(w);
}

void comm_board_ended(struct comm_world *w)
{
    atomic_store(&own(w)->doing, COMM_ENDED);
    comm_heartbeat(w);
}

void comm_board_read(const struct comm_entry *e, struct comm_seen *out)
{
    int64_t now = now_ns();
    out->doing = (enum comm_doing)atomic_load(&e->doing);
    out->in_file = atomic_load(&e->file) > now;
    out->pid = atomic_load(&e->pid);
    out->quiet = fmax(0, 1e-9 * (double)(now - atomic_load(&e->heartbeat)));
    out->waited = 1e-9 * (double)(now - atomic_load(&e->since));
    get_text(e->location, COMM_LOCATION_WORDS, out->location);
    get_text(e->pending, COMM_PENDING_WORDS, out->pending);
    for (int i = 0; i < COMM_WAITS_WORDS; i++)
        out->waits[i] = atomic_load_explicit(&e->waits[i], memory_order_relaxed);
}

bool comm_board_files(const struct comm_world *w)
{
    int64_t now = now_ns();
    for (int i = 0; i < w->board->n; i++) {
        const struct comm_entry *e = w->board->of[i];
        if (e && (atomic_load(&e->file) > now ||
                  1e-9 * (double)(now - atomic_load(&e->filed)) < w->timeout_s))
            return true;
    }
    return false;
}

void comm_board_waits(struct comm_world *w, const struct comm_pending_op *x, double since)
{
    struct comm_entry *e = own(w);
    uint64_t waits[COMM_WAITS_WORDS] = {0};
    char text[COMM_PENDING_TEXT];
    bool any = false;
    for (int i = 0; i < x->n; i++)
        any = any || x->missing(x, i);
    for (int i = 0; i < x->n; i++)
        if (x->ranks[i] != w->rank && (!any || x->missing(x, i)))
            waits[x->ranks[i] / 64] |= (uint64_t)1 << x->ranks[i] % 64;
    put_text(e->pending, COMM_PENDING_WORDS, comm_pending_text(x, text));
    for (int i = 0; i < COMM_WAITS_WORDS; i++)
        atomic_store_explicit(&e->waits[i], waits[i], memory_order_relaxed);
    atomic_store(&e->since, (int64_t)(since * 1e9));
    atomic_store(&e->doing, COMM_WAITS);
}

void comm_board_waits_end(struct comm_world *w)
{
    atomic_store(&own(w)->doing, COMM_BUSY);
    comm_heartbeat(w);
}
