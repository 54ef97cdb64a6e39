/* SPDX-License-Identifier: Apache-2.0
 *
 * Entries of ranks (core/board.h), and hang diagnosis by them. An entry may be torn, when it is
 * read while it is written, so nothing is concluded from one look.
 *
 * Which rank holds up one that has waited too long? A breadth-first search follows who waits for
 * whom; a rank that waits is not the cause while it looks whether its wait is over. The chain ends
 * at ranks that do not wait (one that computes, is in a file call, is stopped): the one that was
 * quiet longest is the cause, if that is the timeout or more. A chain without an end is a deadlock.
 * A rank of another machine has no entry here: it is named when no other rank is silent and none
 * that was found still works.
 */
#include "comm/core/board.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

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

/* This rank waits, since then, for all who are missing; where none is, whoever of the others may be
 * amid copying. */
static void begin_waits(struct comm_world *w, const struct comm_pending_op *x, double since)
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

/* ---- who holds up whom ---- */

enum { LINKS_MAX = 6 }; /* of a chain in the message */

enum hang_kind {
    HANG_NONE,     /* someone gave a heartbeat not long ago */
    HANG_SILENT,   /* rank `who` gives none */
    HANG_DEADLOCK, /* all wait for each other; rank `who` is one of them */
};

/* The search for who holds up this rank: ranks in the order of being found, and from whom. */
struct search {
    const struct comm_world *w;
    int *queue, *from; /* (n) owned; from: -1: not found */
    int found;
    double quiet;  /* of the quietest */
    double waited; /* the shortest wait in the chain */
    int quietest, far; /* -1: none */
    bool alive;        /* somebody who does not wait gave a heartbeat */
    enum hang_kind kind;
    int who;
};

static bool waits_for(const struct comm_seen *s, int rank)
{
    return s->waits[rank / 64] >> rank % 64 & 1;
}

/* One that was found: is it held up itself, or does it hold up others? */
static void classify(struct search *f, int rank)
{
    const struct comm_entry *e = f->w->board->of[rank];
    struct comm_seen s;
    if (!e) {
        f->far = f->far < 0 ? rank : f->far;
        return;
    }
    comm_board_read(e, &s);
    bool quiet = !s.in_file && s.doing != COMM_ENDED && s.quiet >= f->w->timeout_s;
    if (s.doing == COMM_WAITS && !quiet && !s.in_file) {
        f->waited = fmin(f->waited, s.waited);
        for (int k = 0; k < f->w->size; k++)
            if (waits_for(&s, k) && f->from[k] < 0) {
                f->from[k] = rank;
                f->queue[f->found++] = k;
            }
    } else if (!quiet) {
        f->alive = true;
    } else if (s.quiet > f->quiet) {
        f->quiet = s.quiet;
        f->quietest = rank;
    }
}

/* This rank waits and has that in its entry. Errors: ERR_MEMORY. */
static enum err search(const struct comm_world *w, struct search *f)
{
    *f = (struct search){.w = w, .quietest = -1, .far = -1, .waited = INFINITY, .who = w->rank};
    TRY(mem_new(2 * w->size, sizeof *f->queue, "who waits for whom", &f->queue));
    f->from = f->queue + w->size;
    for (int i = 0; i < w->size; i++)
        f->from[i] = -1;
    f->from[w->rank] = w->rank;
    f->queue[f->found++] = w->rank;
    for (int i = 0; i < f->found; i++)
        classify(f, f->queue[i]);
    int silent = f->quietest >= 0 ? f->quietest : f->alive ? -1 : f->far;
    if (silent >= 0) {
        f->kind = HANG_SILENT;
        f->who = silent;
    } else if (!f->alive && f->waited >= w->timeout_s) {
        f->kind = HANG_DEADLOCK;
    }
    return ERR_OK;
}

/* ---- the message ---- */

/* ", at 0B3 of step 7" */
static const char *location_text(const struct comm_seen *s, char buf[COMM_LOCATION_TEXT + 8])
{
    snprintf(buf, COMM_LOCATION_TEXT + 8, "%s%s", s->location[0] ? ", at " : "", s->location);
    return buf;
}

/* "; rank 1 waits for it, for 60 s: the receive of ..., at 1F2 of step 7": rank `rank` for `next`
 * and whoever else. */
static void link_text(const struct comm_world *w, int rank, int next, struct text *t)
{
    struct comm_seen s;
    struct comm_names who = {.text = ""};
    char location[COMM_LOCATION_TEXT + 8];
    comm_board_read(w->board->of[rank], &s);
    for (int k = 0; k < w->size; k++)
        if (waits_for(&s, k))
            comm_names_add(&who, k);
    comm_names_end(&who);
    text_add(t, "; rank %d waits for rank %s, for %.3g s, in %s%s", rank,
             s.doing == COMM_WAITS && waits_for(&s, next) ? who.text : "", s.waited, s.pending,
             location_text(&s, location));
}

static void silent_text(const struct search *f, struct text *t)
{
    char host[64] = "", location[COMM_LOCATION_TEXT + 8];
    const struct comm_world *w = f->w;
    struct comm_seen s = {0};
    int links = 0;
    if (w->board->of[f->who]) {
        comm_board_read(w->board->of[f->who], &s);
        text_add(t, "rank %d", f->who);
        if (s.pid > 0 && gethostname(host, sizeof host - 1) == 0)
            text_add(t, " (process %d on %s)", s.pid, host);
        text_add(t, " does not answer: it gave no sign of life for %.3g s%s", s.quiet,
                 location_text(&s, location));
        if (s.doing == COMM_WAITS)
            text_add(t, ", where it was stopped while it waited in %s", s.pending);
    } else {
        text_add(t, "rank %d, on another machine, does not answer", f->who);
    }
    /* From the cause back to this rank. */
    for (int r = f->who; f->from[r] >= 0 && f->from[r] != r; r = f->from[r])
        if (links++ < LINKS_MAX)
            link_text(w, f->from[r], r, t);
    if (links > LINKS_MAX)
        text_add(t, "; and so on, over %d more rank%s to rank %d", links - LINKS_MAX,
                 text_plural(links - LINKS_MAX, "s"), w->rank);
}

/* For whom a rank waits first; the world's size: for nobody. */
static int first_wait(const struct comm_world *w, int rank)
{
    struct comm_seen s;
    int k = 0;
    comm_board_read(w->board->of[rank], &s);
    while (k < w->size && !waits_for(&s, k))
        k++;
    return k;
}

static void deadlock_text(const struct search *f, struct text *t)
{
    const struct comm_world *w = f->w;
    struct text links = {0};
    int first = f->who, n = 0;
    /* Along first waits until a rank comes twice: that one is on a cycle. */
    for (int steps = 0; steps < w->size; steps++) {
        int next = first_wait(w, first);
        if (next == w->size || !w->board->of[next])
            break;
        first = next;
    }
    text_add(t, "ranks");
    int rank = first;
    do {
        int next = first_wait(w, rank);
        text_add(t, "%s %d", n ? "," : "", rank);
        if (n++ < LINKS_MAX)
            link_text(w, rank, next, &links);
        rank = next;
    } while (rank < w->size && w->board->of[rank] && rank != first && n < w->size);
    text_add(t, " wait for each other, a deadlock%s", links.s ? links.s : "");
    text_free(&links);
}

static enum err fail(const struct search *f)
{
    struct text t = {0};
    if (f->kind == HANG_DEADLOCK)
        deadlock_text(f, &t);
    else
        silent_text(f, &t);
    enum err err = t.err;
    if (err == ERR_OK)
        err = err_set(ERR_HANG, __FILE__, __LINE__, "comm: %s; look where %s, or raise the hang "
                      "timeout of %g s", t.s, f->kind == HANG_DEADLOCK ? "they are" : "it is",
                      f->w->timeout_s);
    text_free(&t);
    return err;
}

/* ---- a wait that gets long ----
 * One of less than a moment costs a store. After that moment the rank writes down for whom it
 * waits, again at each close look, for members come one by one; the same rank must be found twice.
 * A rank that was stopped and goes on, or was not given a core, finds that its looks were far
 * apart: what it stood still does not count as waiting. */

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
    struct search f;
    comm_heartbeat(w);
    if (now - t->seen > still_s)
        t->begin += now - t->seen;
    t->seen = now;
    if (w->timeout_s <= 0 || now < t->next)
        return ERR_OK;
    t->next = now + period(w);
    begin_waits(w, x, t->begin);
    if (now - t->begin < w->timeout_s)
        return ERR_OK;
    TRY(search(w, &f));
    int suspect = f.kind == HANG_NONE ? 0 : 1 + f.who;
    enum err err = suspect && t->suspect == suspect ? fail(&f) : ERR_OK;
    t->suspect = suspect;
    mem_free(f.queue);
    return err;
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
