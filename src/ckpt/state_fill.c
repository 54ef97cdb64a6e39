/* SPDX-License-Identifier: Apache-2.0
 *
 * A shard's numbers on their way to its file. The thread that calls writes, in order, and is the
 * only one that calls the disk, so what fails and when is as if it were alone. Helpers do what has
 * to be done to the bytes, a few strips ahead of the writing: they hash the chunks, look whether
 * all numbers are finite, and turn those that the file has the other way round. So a save takes as
 * long as a plain copy does where they have processors of their own; where not, what is written was
 * read a moment ago, and comes from a cache. Both sides work for some strips before they wake the
 * other, which costs as much as one.
 */
#include "ckpt/state_local.h"

#include "base/mem.h"
#include "ckpt/xxh3.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { STRIP = 256 << 10, /* bytes that are turned, hashed or written at once */
       AHEAD = 8,         /* strips that a helper may be ahead of the writing: in a cache */
       FAR = 32 << 20,    /* bytes, where there are several: they have processors of their own, and
                             one alone would take longer than the writing */
       WAKE = AHEAD / 2,  /* strips that are made, or written, before the other side is woken */
       BLOCK = 16 };      /* rows that are turned together (state_copy.c) */

/* The first number of a helper's chunks that is not finite; chunk -1: none. */
struct lost { int chunk; int64_t at; double value; };

struct filling;
struct helper {
    struct filling *of;
    pthread_t thread;
    bool runs;
    int first;            /* chunks first, first + helpers, ... are its own */
    uint8_t *ring;        /* owned; `ahead` strips of turned numbers; NULL: it has none to turn */
    int64_t made, taken;  /* strips so far, under the lock */
    struct lost lost;
};
struct filling {
    struct state_shard *s;
    const struct state_source *from;
    int helpers;
    int64_t strip, ahead; /* bytes of a turned strip, at most; strips ahead of the writing */
    struct helper helper[STATE_HELPERS];
    pthread_mutex_t lock;
    pthread_cond_t moved; /* some made or taken */
    atomic_bool ended;    /* nothing more is written */
    atomic_bool lost;     /* a helper has found a number that is not finite */
};

static bool is_turned(const struct filling *f, int i)
{
    const struct state_box *b = &f->s->chunk[i].box;
    return f->from[i].transposed && b->n[0] > 1 && b->n[1] > 1;
}

static int64_t row_bytes(const struct filling *f, int i)
{
    return f->s->chunk[i].box.n[1] * safet_type_size(f->s->type);
}

static int64_t chunk_bytes(const struct filling *f, int i)
{
    return f->s->chunk[i].box.n[0] * row_bytes(f, i);
}

/* Of whole rows, where they are turned. */
static int64_t strip_bytes(const struct filling *f, int i)
{
    int64_t width = row_bytes(f, i), rows = STRIP / width / BLOCK * BLOCK;
    return is_turned(f, i) ? num_min(chunk_bytes(f, i), num_max(BLOCK, rows) * width) : STRIP;
}

/* ---- helpers ---- */

/* Is there room for one more strip? False: it is not wanted any more. */
static bool wait_room(struct helper *h)
{
    struct filling *f = h->of;
    pthread_mutex_lock(&f->lock);
    while (h->made - h->taken == f->ahead && !atomic_load(&f->ended))
        pthread_cond_wait(&f->moved, &f->lock);
    pthread_mutex_unlock(&f->lock);
    return !atomic_load(&f->ended);
}

static void made_one(struct helper *h, bool last)
{
    struct filling *f = h->of;
    pthread_mutex_lock(&f->lock);
    h->made++;
    if (last || h->made - h->taken >= WAKE)
        pthread_cond_broadcast(&f->moved);
    pthread_mutex_unlock(&f->lock);
}

/* A strip of a turned chunk, into the ring. */
static const uint8_t *turn(struct helper *h, int i, int64_t at, int64_t bytes)
{
    struct filling *f = h->of;
    const struct state_box *b = &f->s->chunk[i].box;
    int64_t width = row_bytes(f, i), n[2] = {bytes / width, b->n[1]};
    uint8_t *strip = h->ring + h->made % f->ahead * f->strip;
    struct state_span to = {strip, f->s->type, {n[1], 1}};
    struct state_span from = {(uint8_t *)(uintptr_t)f->from[i].p + at / b->n[1], f->s->type,
                              {1, b->n[0]}};
    state_copy(&to, &from, n);
    return strip;
}

/* Bytes of chunk i from `at` on, in the file's order: are the numbers finite? */
static void look(struct helper *h, int i, int64_t at, const void *p, int64_t bytes)
{
    const struct state_shard *s = h->of->s;
    bool wide = s->type == SAFET_F64;
    int64_t size = safet_type_size(s->type), n = bytes / size;
    double most = dtype_most(wide ? DT_F64 : DT_F32);
    if (s->chunk[i].kind == STATE_WEIGHT)
        most = s->most;
    int64_t good = wide ? num_within_f64(p, n, most) : num_within_f32(p, n, (float)most);
    if (good == n || h->lost.chunk >= 0)
        return;
    h->lost = (struct lost){i, at / size + good, wide ? ((const double *)p)[good]
                                                      : (double)((const float *)p)[good]};
    atomic_store(&h->of->lost, true);
}

static void hash_chunk(struct helper *h, int i, XXH3_state_t *hash)
{
    struct filling *f = h->of;
    const uint8_t *p = f->from[i].p;
    int64_t bytes = chunk_bytes(f, i), strip = strip_bytes(f, i);
    for (int64_t at = 0; at < bytes && wait_room(h); at += strip) {
        int64_t n = num_min(strip, bytes - at);
        const uint8_t *made = is_turned(f, i) ? turn(h, i, at, n) : p + at;
        XXH3_64bits_update(hash, made, (size_t)n);
        look(h, i, at, made, n);
        made_one(h, at + n == bytes);
    }
}

static void *help(void *arg)
{
    struct helper *h = arg;
    struct filling *f = h->of;
    XXH3_state_t hash;
    for (int i = h->first; i < f->s->n && !atomic_load(&f->ended); i += f->helpers) {
        XXH3_64bits_reset(&hash);
        hash_chunk(h, i, &hash);
        f->s->chunk[i].hash = XXH3_64bits_digest(&hash);
    }
    return NULL;
}

static enum err start(struct helper *h)
{
    struct filling *f = h->of;
    bool turns = false;
    for (int i = h->first; i < f->s->n; i += f->helpers)
        turns = turns || is_turned(f, i);
    if (turns)
        TRY(mem_new(f->ahead * f->strip, 1, "strips of a shard", &h->ring));
    int rc = pthread_create(&h->thread, NULL, help, h);
    h->runs = rc == 0;
    if (rc != 0)
        FAIL(ERR_MEMORY, "ckpt: no thread to hash a checkpoint: %s", strerror(rc));
    return ERR_OK;
}

/* ---- the writer ---- */

/* The next strip of a helper is there. */
static void wait_made(struct helper *h)
{
    struct filling *f = h->of;
    pthread_mutex_lock(&f->lock);
    while (h->made == h->taken)
        pthread_cond_wait(&f->moved, &f->lock);
    pthread_mutex_unlock(&f->lock);
}

static void took_one(struct helper *h)
{
    struct filling *f = h->of;
    pthread_mutex_lock(&f->lock);
    h->taken++;
    if (h->made - h->taken <= f->ahead - WAKE)
        pthread_cond_broadcast(&f->moved);
    pthread_mutex_unlock(&f->lock);
}

static enum err write_chunk(struct filling *f, int i)
{
    struct helper *h = &f->helper[i % f->helpers];
    const uint8_t *p = f->from[i].p;
    int64_t bytes = chunk_bytes(f, i), strip = strip_bytes(f, i);
    for (int64_t at = 0; at < bytes; at += strip) {
        wait_made(h);
        TRY(safet_write(&f->s->file, is_turned(f, i) ? h->ring + h->taken % f->ahead * f->strip
                                                     : p + at, num_min(strip, bytes - at)));
        took_one(h);
    }
    return ERR_OK;
}

static enum err write_all(struct filling *f, const atomic_bool *given_up)
{
    for (int i = 0; i < f->s->n; i++) {
        if (given_up && atomic_load(given_up))
            FAIL(ERR_PEER, "ckpt: shard %s is given up, since the run has failed", f->s->name);
        if (atomic_load(&f->lost))
            break;
        TRY(write_chunk(f, i));
    }
    return ERR_OK;
}

/* Helpers are through, or stop where they are. */
static void join(struct filling *f, bool at_once)
{
    pthread_mutex_lock(&f->lock);
    atomic_store(&f->ended, at_once);
    pthread_cond_broadcast(&f->moved);
    pthread_mutex_unlock(&f->lock);
    for (int k = 0; k < f->helpers; k++) {
        if (f->helper[k].runs)
            pthread_join(f->helper[k].thread, NULL);
        mem_free(f->helper[k].ring);
    }
}

/* "exp_avg.transformer.wte.weight is inf at [3, 7]", of the first chunk with such a number. */
static enum err say_lost(const struct filling *f)
{
    const struct lost *first = NULL;
    for (int k = 0; k < f->helpers; k++) {
        const struct lost *one = &f->helper[k].lost;
        if (one->chunk >= 0 && (!first || one->chunk < first->chunk))
            first = one;
    }
    const struct state_chunk *c = &f->s->chunk[first->chunk];
    int64_t row = c->box.at[0] + first->at / c->box.n[1];
    int64_t col = c->box.at[1] + first->at % c->box.n[1];
    char at[64];
    snprintf(at, sizeof at, "[%" PRId64, row);
    if (c->nd == 2)
        snprintf(at, sizeof at, "[%" PRId64 ", %" PRId64, row, col);
    FAIL(ERR_NONFINITE, "ckpt: %s%s%s is %g at %s]%s", c->kind ? state_kind_name(c->kind) : "",
         c->kind ? "." : "", c->tensor, num_unsigned_nan(first->value), at,
         isfinite(first->value) ? ", which is infinite in the type that the run computes with"
                                : "");
}

enum err state_shard_fill(struct state_shard *s, const struct state_source *from, int helpers,
                          const atomic_bool *given_up)
{
    struct filling f = {.s = s, .from = from, .lock = PTHREAD_MUTEX_INITIALIZER,
                        .moved = PTHREAD_COND_INITIALIZER};
    enum err err = ERR_OK;
    if (s->file.written > 0)
        FAIL(ERR_INTERNAL, "ckpt: shard %s is filled twice", s->name);
    f.helpers = (int)num_max(1, num_min(num_min(helpers, STATE_HELPERS), s->n));
    for (int i = 0; i < s->n; i++)
        if (is_turned(&f, i))
            f.strip = num_max(f.strip, strip_bytes(&f, i));
    f.ahead = f.helpers > 1 ? num_max(AHEAD, FAR / num_max(f.strip, STRIP)) : AHEAD;
    for (int k = 0; k < f.helpers; k++)
        f.helper[k].lost.chunk = -1;
    for (int k = 0; k < f.helpers && err == ERR_OK; k++) {
        f.helper[k].of = &f;
        f.helper[k].first = k;
        err = start(&f.helper[k]);
    }
    if (err == ERR_OK)
        err = write_all(&f, given_up);
    join(&f, err != ERR_OK || atomic_load(&f.lost));
    return atomic_load(&f.lost) ? say_lost(&f) : err;
}
