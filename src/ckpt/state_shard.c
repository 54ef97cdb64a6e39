/* SPDX-License-Identifier: Apache-2.0
 *
 * One rank's shard: a safetensors file of its chunks. Its header says of which step and run it is,
 * and the index has the header's hash: a shard of another save is told from a damaged one.
 *
 * Filled by several threads that all do the same: each takes the next chunk that nobody has, and
 * strip by strip turns it where the file has it the other way round, hashes it, looks whether all
 * is finite, and writes it at its place, out of a cache. The kernel has one writer of a file at a
 * time, so a save takes as long as a plain copy where the others' turning and hashing fits beside.
 */
#include "ckpt/state_local.h"

#include "base/mem.h"
#include "base/thread.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

enum err state_shard_create(struct state_shard *s, const struct state_save *save, const char *name,
                            const struct state_chunk *chunk, int n)
{
    enum dtype held = save->type == SAFET_F64 ? DT_F64 : DT_F32;
    char step[24], path[FS_PATH];
    const char *notes[] = {"plait", STATE_FORMAT, "step", step, "run", save->run, NULL};
    struct safet_entry *e = NULL;
    enum err err;
    *s = (struct state_shard){.type = save->type, .n = n,
                              .most = save->most > 0 ? save->most : dtype_most(held)};
    ENSURE(n >= 0 && strlen(name) < STATE_FILE && save->type <= SAFET_F32);
    memcpy(s->name, name, strlen(name) + 1);
    snprintf(step, sizeof step, "%" PRId64, save->step);
    TRY_OR(out, mem_new(n, sizeof *s->chunk, "the chunks of a shard", &s->chunk));
    if (n > 0)
        memcpy(s->chunk, chunk, (size_t)n * sizeof *chunk);
    TRY_OR(out, mem_new(n, sizeof *e, "the entries of a shard", &e));
    for (int i = 0; i < n; i++) {
        const struct state_chunk *c = &s->chunk[i];
        const char *why = state_chunk_fault(c);
        if (!why && !state_chunk_name(c, e[i].name))
            why = "its name is empty or too long";
        if (why)
            TRY_OR(out, err_set(ERR_INTERNAL, __FILE__, __LINE__,
                                "ckpt: chunk %d of %d, of tensor %.127s, cannot be written: %s", i,
                                n, c->tensor, why));
        e[i].type = s->type;
        e[i].nd = c->nd;
        memcpy(e[i].shape, c->box.n, sizeof c->box.n);
    }
    TRY_OR(out, safet_create(&s->file, fs_path(path, save->dir, name), false, e, n, notes));
    s->bytes = s->file.front + s->file.total;
out:
    mem_free(e);
    if (err != ERR_OK)
        state_shard_close(s);
    return err;
}

/* ---- what it is filled with ---- */

enum { STRIP = 256 << 10, /* bytes that are turned, hashed and written at once: in a cache */
       BLOCK = 16,        /* rows that are turned together (state_copy.c) */
       NONE = INT_MAX };  /* nothing has failed */

struct filling;
struct worker {
    struct filling *of;
    pthread_t thread;
    int chunk;      /* that it has */
    int64_t place;  /* where that begins in the data */
    uint8_t *strip; /* owned; numbers that are turned */
};
struct filling {
    struct state_shard *s;
    const struct state_source *from;
    const atomic_bool *given_up;
    struct fs_watch watch; /* of the thread that calls */
    pthread_mutex_t lock;
    int next;              /* the first chunk that nobody has, under the lock */
    int64_t place;         /* its first byte of the data, under the lock */
    atomic_int failed;     /* the first chunk that has; written under the lock */
    struct err_kept err;   /* its error, under the lock */
    struct worker worker[1 + STATE_HELPERS]; /* the first: the thread that calls */
};

static bool is_turned(const struct filling *f, int i)
{
    const struct state_box *b = &f->s->chunk[i].box;
    return f->from[i].transposed && b->n[0] > 1 && b->n[1] > 1;
}

static int64_t chunk_bytes(const struct filling *f, int i)
{
    return state_box_elements(&f->s->chunk[i].box) * safet_type_size(f->s->type);
}

/* Of whole rows, where they are turned. */
static int64_t strip_bytes(const struct filling *f, int i)
{
    int64_t all = chunk_bytes(f, i), width = all / f->s->chunk[i].box.n[0];
    int64_t rows = num_max(BLOCK, STRIP / width / BLOCK * BLOCK);
    return is_turned(f, i) ? num_min(all, rows * width) : STRIP;
}

/* ---- a chunk ---- */

/* Bytes of chunk i from `at` on, in the file's order: are the numbers finite? */
static enum err look(const struct filling *f, int i, int64_t at, const void *p, int64_t bytes)
{
    const struct state_shard *s = f->s;
    const struct state_chunk *c = &s->chunk[i];
    bool wide = s->type == SAFET_F64;
    int64_t size = safet_type_size(s->type), n = bytes / size;
    double most = dtype_most(wide ? DT_F64 : DT_F32);
    char place[64];
    if (c->kind == STATE_WEIGHT)
        most = s->most;
    int64_t good = wide ? num_within_f64(p, n, most) : num_within_f32(p, n, (float)most);
    if (good == n)
        return ERR_OK;
    double value = wide ? ((const double *)p)[good] : (double)((const float *)p)[good];
    int64_t lost = at / size + good, row = c->box.at[0] + lost / c->box.n[1];
    snprintf(place, sizeof place, c->nd == 2 ? "[%" PRId64 ", %" PRId64 : "[%" PRId64, row,
             c->box.at[1] + lost % c->box.n[1]);
    FAIL(ERR_NONFINITE, "ckpt: %s%s%s is %g at %s]%s", c->kind ? state_kind_name[c->kind] : "",
         c->kind ? "." : "", c->tensor, num_unsigned_nan(value), place,
         isfinite(value) ? ", which is infinite in the type that the run computes with" : "");
}

static enum err put_strip(struct worker *w, int64_t at, int64_t bytes, XXH3_state_t *hash)
{
    struct filling *f = w->of;
    int i = w->chunk;
    if (f->given_up && atomic_load(f->given_up))
        FAIL(ERR_PEER, "ckpt: shard %s is given up, since the run has failed", f->s->name);
    const struct state_box *b = &f->s->chunk[i].box;
    const uint8_t *p = (const uint8_t *)f->from[i].p + at;
    if (is_turned(f, i)) {
        int64_t n[2] = {bytes / safet_type_size(f->s->type) / b->n[1], b->n[1]};
        uint8_t *from = (uint8_t *)(uintptr_t)f->from[i].p + at / b->n[1];
        p = w->strip;
        state_copy(&(struct state_span){w->strip, f->s->type, {n[1], 1}},
                   &(struct state_span){from, f->s->type, {1, b->n[0]}}, n);
    }
    XXH3_64bits_update(hash, p, (size_t)bytes);
    TRY(look(f, i, at, p, bytes));
    if (atomic_load(&f->failed) == NONE)
        TRY(safet_write_at(&f->s->file, w->place + at, p, bytes));
    return ERR_OK;
}

static enum err put_chunk(struct worker *w)
{
    struct filling *f = w->of;
    int64_t bytes = chunk_bytes(f, w->chunk), strip = strip_bytes(f, w->chunk);
    XXH3_state_t hash;
    XXH3_64bits_reset(&hash);
    for (int64_t at = 0; at < bytes && w->chunk < atomic_load(&f->failed); at += strip)
        TRY(put_strip(w, at, num_min(strip, bytes - at), &hash));
    f->s->chunk[w->chunk].hash = XXH3_64bits_digest(&hash);
    return ERR_OK;
}

/* ---- all of them ---- */

/* Behind a failure nothing more is written and no chunk begun; those in front of it, which are all
 * begun, are looked at to their end, so that the error is the first chunk's. */
static void fail(struct filling *f, int chunk, enum err err)
{
    pthread_mutex_lock(&f->lock);
    if (chunk < atomic_load(&f->failed)) {
        atomic_store(&f->failed, chunk);
        err_keep(&f->err, err);
    }
    pthread_mutex_unlock(&f->lock);
}

/* Until there is no chunk left, or none is wanted any more. */
static void work(struct worker *w)
{
    struct filling *f = w->of;
    for (bool has = true; has;) {
        pthread_mutex_lock(&f->lock);
        has = f->next < f->s->n && atomic_load(&f->failed) == NONE;
        if (has) {
            w->chunk = f->next++;
            w->place = f->place;
            f->place += chunk_bytes(f, w->chunk);
        }
        pthread_mutex_unlock(&f->lock);
        enum err err = has ? put_chunk(w) : ERR_OK;
        if (err != ERR_OK)
            fail(f, w->chunk, err);
    }
}

/* Whoever waits for this thread waits for its helpers' file calls. */
static void *help(void *arg)
{
    struct worker *w = arg;
    (void)fs_watch_set(&w->of->watch);
    work(w);
    return NULL;
}

/* By this thread and helpers, which end with it. */
static enum err fill(struct filling *f, int helpers)
{
    int begun = 0;
    int64_t most = STRIP;
    for (int i = 0; i < f->s->n; i++)
        most = num_max(most, strip_bytes(f, i));
    for (int k = 0; k <= helpers; k++) {
        f->worker[k].of = f;
        TRY(mem_new(most, 1, "a strip of a shard", &f->worker[k].strip));
    }
    for (int k = 1; k <= helpers && begun == k - 1; k++) {
        struct worker *w = &f->worker[k];
        enum err err = thread_start(&w->thread, help, w, "write a checkpoint");
        if (err == ERR_OK)
            begun = k;
        else
            fail(f, -1, err);
    }
    work(&f->worker[0]);
    for (int k = 1; k <= begun; k++)
        pthread_join(f->worker[k].thread, NULL);
    return atomic_load(&f->failed) == NONE ? ERR_OK : err_again(&f->err);
}

enum err state_shard_fill(struct state_shard *s, const struct state_source *from, int helpers,
                          const atomic_bool *given_up)
{
    struct filling *f;
    if (atomic_load(&s->file.written) > 0)
        FAIL(ERR_INTERNAL, "ckpt: shard %s is filled twice", s->name);
    TRY(mem_new(1, sizeof *f, "the threads that fill a shard", &f));
    *f = (struct filling){.s = s, .from = from, .given_up = given_up, .watch = fs_watch_get(),
                          .lock = PTHREAD_MUTEX_INITIALIZER, .failed = NONE};
    enum err err = fill(f, (int)num_max(0, num_min(num_min(helpers, STATE_HELPERS), s->n - 1)));
    for (int k = 0; k <= STATE_HELPERS; k++)
        mem_free(f->worker[k].strip);
    mem_free(f);
    return err;
}

/* ---- the end ---- */

enum err state_shard_text(const struct state_shard *s, char **out)
{
    struct text t = {0};
    text_add(&t, "{\"file\":\"%s\",\"bytes\":%" PRId64 ",\"hash\":\"%016" PRIx64 "\",\"chunks\":[",
             s->name, s->bytes, s->file.header_hash);
    for (int i = 0; i < s->n; i++) {
        const struct state_chunk *c = &s->chunk[i];
        text_add(&t, "%s\n[", i ? "," : "");
        text_add_json(&t, c->tensor);
        text_add(&t, ",\"%s\",", state_kind_name[c->kind]);
        for (int j = 0; j < 2; j++) {
            const int64_t *v = j ? c->box.n : c->box.at;
            text_add(&t, c->nd == 2 ? "[%" PRId64 ",%" PRId64 "]," : "[%" PRId64 "],", v[0], v[1]);
        }
        text_add(&t, "\"%016" PRIx64 "\"]", c->hash);
    }
    text_add(&t, "]}");
    return text_done(&t, out);
}

void state_shard_close(struct state_shard *s)
{
    safet_abandon(&s->file);
    mem_free(s->chunk);
    *s = (struct state_shard){0};
}
