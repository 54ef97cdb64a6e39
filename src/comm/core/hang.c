/* SPDX-License-Identifier: Apache-2.0
 *
 * Hang diagnosis: which rank holds up one that has waited too long. A breadth-first search follows
 * who waits for whom, by the entries; a rank that waits is not the cause while it looks whether its
 * wait is over. The chain ends at ranks that do not wait: one that computes, one in a file call,
 * one that is stopped. Of those the one that was quiet longest is the cause, if that is the timeout
 * or more. A chain without an end is a deadlock. A rank of another machine has no entry here: it is
 * named when no other rank is silent and none that was found still works.
 */
#include "comm/core/board.h"

#include "base/mem.h"
#include "base/text.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { LINKS_MAX = 6 }; /* of a chain in the message */

/* The search: ranks in the order of being found, and from whom. */
struct search {
    const struct comm_world *w;
    int *queue, *from; /* (n) owned; from: -1: not found */
    int found;
    double quiet;  /* of the quietest */
    double waited; /* the shortest wait in the chain */
    int quietest, far; /* -1: none */
    bool alive;        /* somebody who does not wait gave a heartbeat */
};

static bool waits_for(const struct comm_seen *s, int rank)
{
    return s->waits[rank / 64] >> rank % 64 & 1;
}

static void follow(struct search *f, int rank, const struct comm_seen *s)
{
    for (int k = 0; k < f->w->size; k++)
        if (waits_for(s, k) && f->from[k] < 0) {
            f->from[k] = rank;
            f->queue[f->found++] = k;
        }
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
        follow(f, rank, &s);
    } else if (!quiet) {
        f->alive = true;
    } else if (s.quiet > f->quiet) {
        f->quiet = s.quiet;
        f->quietest = rank;
    }
}

static enum err search_open(const struct comm_world *w, struct search *f)
{
    *f = (struct search){.w = w, .quietest = -1, .far = -1, .waited = INFINITY};
    TRY(mem_new(2 * w->size, sizeof *f->queue, "who waits for whom", &f->queue));
    f->from = f->queue + w->size;
    for (int i = 0; i < w->size; i++)
        f->from[i] = -1;
    return ERR_OK;
}

/* All who hold up this rank, in the order of finding. */
static enum err search(const struct comm_world *w, struct search *f)
{
    TRY(search_open(w, f));
    f->from[w->rank] = w->rank;
    f->queue[f->found++] = w->rank;
    for (int i = 0; i < f->found; i++)
        classify(f, f->queue[i]);
    return ERR_OK;
}

enum err comm_hang_find(const struct comm_world *w, struct comm_hang *out)
{
    struct search f;
    TRY(search(w, &f));
    *out = (struct comm_hang){.kind = COMM_HANG_NONE, .who = w->rank};
    if (f.quietest >= 0)
        *out = (struct comm_hang){COMM_HANG_SILENT, f.quietest};
    else if (f.alive)
        out->kind = COMM_HANG_NONE;
    else if (f.far >= 0)
        *out = (struct comm_hang){COMM_HANG_SILENT, f.far};
    else if (f.waited >= w->timeout_s)
        out->kind = COMM_HANG_DEADLOCK;
    mem_free(f.queue);
    return ERR_OK;
}

/* ---- the message ---- */

/* ", at 0B3 of step 7" */
static const char *location_text(const struct comm_seen *s, char buf[COMM_LOCATION_TEXT + 8])
{
    snprintf(buf, COMM_LOCATION_TEXT + 8, "%s%s", s->location[0] ? ", at " : "", s->location);
    return buf;
}

/* "rank 2 (process 4711 on node3)" */
static const char *rank_text(const struct comm_seen *s, int rank, char buf[128])
{
    char host[64] = "";
    if (s->pid > 0 && gethostname(host, sizeof host - 1) == 0)
        snprintf(buf, 128, "rank %d (process %d on %s)", rank, s->pid, host);
    else
        snprintf(buf, 128, "rank %d", rank);
    return buf;
}

/* The ranks that it waits for. */
static void waits_text(const struct comm_seen *s, int size, struct comm_names *n)
{
    for (int k = 0; k < size; k++)
        if (waits_for(s, k))
            comm_names_add(n, k);
    comm_names_end(n);
}

/* "; rank 1 waits for it, for 60 s: the receive of ..., at 1F2 of step 7": rank `rank` for `next`
 * and whoever else. */
static void link_text(const struct comm_world *w, int rank, int next, struct text *t)
{
    struct comm_seen s;
    struct comm_names who = {.text = ""};
    char location[COMM_LOCATION_TEXT + 8];
    comm_board_read(w->board->of[rank], &s);
    waits_text(&s, w->size, &who);
    text_add(t, "; rank %d waits for rank %s, for %.3g s, in %s%s", rank,
             s.doing == COMM_WAITS && waits_for(&s, next) ? who.text : "", s.waited, s.pending,
             location_text(&s, location));
}

/* From the cause back to this rank. */
static enum err chain_text(const struct comm_world *w, int who, struct text *t)
{
    struct search f;
    int links = 0;
    TRY(search(w, &f));
    for (int r = who; f.from[r] >= 0 && f.from[r] != r; r = f.from[r])
        if (links++ < LINKS_MAX)
            link_text(w, f.from[r], r, t);
    if (links > LINKS_MAX)
        text_add(t, "; and so on, over %d more rank%s to rank %d", links - LINKS_MAX,
                 text_plural(links - LINKS_MAX, "s"), w->rank);
    mem_free(f.queue);
    return t->err;
}

static enum err silent_text(const struct comm_world *w, int who, struct text *t)
{
    char name[128], location[COMM_LOCATION_TEXT + 8];
    struct comm_seen s = {0};
    const struct comm_entry *e = w->board->of[who];
    if (!e) {
        text_add(t, "rank %d, on another machine, does not answer", who);
        return chain_text(w, who, t);
    }
    comm_board_read(e, &s);
    text_add(t, "%s does not answer: it gave no sign of life for %.3g s%s",
             rank_text(&s, who, name), s.quiet, location_text(&s, location));
    if (s.doing == COMM_WAITS)
        text_add(t, ", where it was stopped while it waited in %s", s.pending);
    return chain_text(w, who, t);
}

/* From `from` along first waits until a rank comes twice: that one is on a cycle. */
static int on_cycle(const struct comm_world *w, int from)
{
    for (int steps = 0; steps < w->size; steps++) {
        struct comm_seen s;
        int k = 0;
        comm_board_read(w->board->of[from], &s);
        while (k < w->size && !waits_for(&s, k))
            k++;
        if (k == w->size || !w->board->of[k])
            return from;
        from = k;
    }
    return from;
}

static void deadlock_text(const struct comm_world *w, int who, struct text *t)
{
    int first = on_cycle(w, who), rank = first, n = 0;
    struct text links = {0};
    struct comm_seen s;
    text_add(t, "ranks");
    do {
        int k = 0;
        comm_board_read(w->board->of[rank], &s);
        while (k < w->size && !waits_for(&s, k))
            k++;
        text_add(t, "%s %d", n ? "," : "", rank);
        if (n++ < LINKS_MAX)
            link_text(w, rank, k, &links);
        rank = k;
    } while (rank < w->size && w->board->of[rank] && rank != first && n < w->size);
    text_add(t, " wait for each other, a deadlock%s", links.s ? links.s : "");
    text_free(&links);
}

enum err comm_hang_fail(const struct comm_world *w, const struct comm_hang *h)
{
    struct text t = {0};
    enum err err = ERR_OK;
    if (h->kind == COMM_HANG_DEADLOCK)
        deadlock_text(w, h->who, &t);
    else
        err = silent_text(w, h->who, &t);
    if (err == ERR_OK)
        err = t.err;
    if (err == ERR_OK)
        err = err_set(ERR_HANG, __FILE__, __LINE__, "comm: %s; look where %s, or raise the hang "
                      "timeout of %g s", t.s, h->kind == COMM_HANG_DEADLOCK ? "they are" : "it is",
                      w->timeout_s);
    text_free(&t);
    return err;
}
