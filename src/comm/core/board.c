/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing and reading entries, and a wait that gets long.
 *
 * A wait of less than a moment costs a store. After that moment the rank writes down for whom it
 * waits, again at each close look, for members come one by one; who reads it follows from rank to
 * rank. Texts and sets may be torn, when they are read while they are written or their writer was
 * stopped amid writing, so nothing is concluded from one look: the same rank must be found twice.
 *
 * A rank that was stopped and goes on, or was not given a core, finds that its looks were far
 * apart: what it stood still does not count as waiting.
 */
#include "comm/core/board.h"

#include "base/log.h"
#include <string.h>

/* Seconds between close looks, at most; and looks so far apart are a standstill. */
static const double close_s = 0.2, still_s = 1;

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

void comm_alive(struct comm_world *w)
{
    atomic_store_explicit(&own(w)->moved, now_ns(), memory_order_release);
}

void comm_slow(struct comm_world *w)
{
    atomic_store(&own(w)->filed, now_ns());
    comm_alive(w);
}

void comm_place(struct comm_world *w, const char *text)
{
    put_text(own(w)->place, COMM_PLACE_WORDS, text);
    comm_alive(w);
}

void comm_board_ended(struct comm_world *w)
{
    atomic_store(&own(w)->doing, COMM_ENDED);
    comm_alive(w);
}

void comm_board_read(const struct comm_entry *e, struct comm_seen *out)
{
    int64_t now = now_ns();
    out->doing = (enum comm_doing)atomic_load(&e->doing);
    out->in_file = atomic_load(&e->file) > now;
    out->pid = atomic_load(&e->pid);
    out->quiet = fmax(0, 1e-9 * (double)(now - atomic_load(&e->moved)));
    out->waited = 1e-9 * (double)(now - atomic_load(&e->since));
    get_text(e->place, COMM_PLACE_WORDS, out->place);
    get_text(e->want, COMM_WANT_WORDS, out->want);
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

/* ---- a wait that gets long ---- */

static double period(const struct comm_world *w)
{
    return fmin(close_s, w->timeout_s / 8);
}

void comm_long_begin(struct comm_world *w, struct comm_long *l)
{
    double now = log_now();
    *l = (struct comm_long){.begin = now, .seen = now, .next = now + period(w)};
    comm_alive(w);
}

/* For whom: all who are missing; where none is, whoever of the others may be amid copying. */
static void show(struct comm_world *w, const struct comm_want *x, const struct comm_long *l)
{
    struct comm_entry *e = own(w);
    uint64_t waits[COMM_WAITS_WORDS] = {0};
    char text[COMM_WANT_TEXT];
    bool any = false;
    for (int i = 0; i < x->n; i++)
        any = any || x->missing(x, i);
    for (int i = 0; i < x->n; i++)
        if (x->ranks[i] != w->rank && (!any || x->missing(x, i)))
            waits[x->ranks[i] / 64] |= (uint64_t)1 << x->ranks[i] % 64;
    put_text(e->want, COMM_WANT_WORDS, x->text(x, text));
    for (int i = 0; i < COMM_WAITS_WORDS; i++)
        atomic_store_explicit(&e->waits[i], waits[i], memory_order_relaxed);
    atomic_store(&e->since, (int64_t)(l->begin * 1e9));
    atomic_store(&e->doing, COMM_WAITS);
}

enum err comm_long_look(struct comm_world *w, const struct comm_want *x, struct comm_long *l)
{
    double now = log_now();
    struct comm_verdict v;
    comm_alive(w);
    if (now - l->seen > still_s)
        l->begin += now - l->seen;
    l->seen = now;
    if (w->timeout_s <= 0 || now < l->next)
        return ERR_OK;
    l->next = now + period(w);
    show(w, x, l);
    if (now - l->begin < w->timeout_s)
        return ERR_OK;
    TRY(comm_blame(w, &v));
    if (v.kind == COMM_PATIENT || l->suspect != 1 + v.who) {
        l->suspect = v.kind == COMM_PATIENT ? 0 : 1 + v.who;
        return ERR_OK;
    }
    return comm_blame_fail(w, &v);
}

double comm_long_nap(const struct comm_world *w, const struct comm_long *l)
{
    return w->timeout_s > 0 ? fmax(0, l->next - log_now()) : -1;
}

void comm_long_end(struct comm_world *w)
{
    atomic_store(&own(w)->doing, COMM_BUSY);
    comm_alive(w);
}
