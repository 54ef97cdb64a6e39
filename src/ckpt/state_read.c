/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading boxes by intersection. The chunks that have a part of a box are found among those of its
 * tensor and kind, which are sorted by row. A shard is mapped when something of it is first wanted,
 * and then every name, type and shape in it has to be what the index says. The first time that a
 * chunk is used its bytes go through the hash strip by strip while they are copied, so they come
 * from memory once; afterwards only what is wanted of it is touched.
 */
#include "ckpt/state_local.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { STRIP = 256 << 10, /* bytes that are hashed and then copied: they stay in a cache */
       TURNED = 16,       /* rows at least: where they are turned, a line of memory */
       CALL = 64 };       /* strips that are one call of the file to who watches it */

/* ---- shards ---- */

/* It is of the step and the run that the index is of, and has its chunks. */
static enum err check_shard(const struct state_index *x, struct state_file *f,
                            const struct safet_file *map)
{
    static const char *const key[3] = {"plait", "step", "run"};
    struct state_reading *r = x->inner;
    uint64_t header = XXH3_64bits(map->header, (size_t)map->header_bytes);
    char step[24], got[SAFET_NOTE];
    const char *want[3] = {STATE_FORMAT, step, x->head.run};
    snprintf(step, sizeof step, "%" PRId64, x->head.step);
    for (int i = 0; i < 3; i++) {
        TRY(safet_note(map, key[i], got));
        if (strcmp(got, want[i]) != 0)
            FAIL(ERR_CHECKPOINT, "ckpt: %s is of %s \"%s\", where %s is of \"%s\"; it is "
                                 "damaged or of another save", map->path, key[i], got, x->path,
                 want[i]);
    }
    if (map->n != f->n)
        FAIL(ERR_CHECKPOINT, "ckpt: %s has %d chunks, %s says %d; it is damaged or of another save",
             map->path, map->n, x->path, f->n);
    if (header != f->header)
        FAIL(ERR_CHECKPOINT, "ckpt: the header of %s has the hash %016" PRIx64 ", %s says %016"
                             PRIx64 "; it is damaged or of another save", map->path, header,
             x->path, f->header);
    for (int i = 0; i < f->n; i++) {
        struct state_piece *p = &r->piece[r->of_file[f->first + i]];
        struct state_chunk c = state_chunk_of(x, p);
        char name[128];
        bool named = state_chunk_name(&c, name);
        const struct safet_entry *e = named ? safet_find(map->entry, map->n, name) : NULL;
        if (!e)
            FAIL(ERR_CHECKPOINT, "ckpt: %s has no chunk %s, where %s has it; it is damaged or of "
                                 "another save", map->path, name, x->path);
        bool same = e->type == x->head.type && e->nd == c.nd;
        for (int d = 0; same && d < c.nd; d++)
            same = e->shape[d] == c.box.n[d];
        if (!same)
            FAIL(ERR_CHECKPOINT, "ckpt: chunk %s of %s is of another shape or dtype than %s says; "
                                 "the file is damaged or of another save", name, map->path,
                 x->path);
        p->data = map->data + e->begin;
    }
    return ERR_OK;
}

/* The shard of a piece is mapped and is what the index says. */
static enum err need(const struct state_index *x, const struct state_piece *p)
{
    struct state_reading *r = x->inner;
    struct state_file *f = &r->file[p->file];
    struct safet_file map;
    enum err err = ERR_OK;
    pthread_mutex_lock(&r->lock);
    if (!f->map.data) {
        TRY_OR(out, safet_open_in(&map, x->dir, f->name));
        err = check_shard(x, f, &map);
        if (err == ERR_OK)
            f->map = map;
        else
            safet_close(&map);
    }
out:
    pthread_mutex_unlock(&r->lock);
    return err;
}

/* ---- boxes ---- */

/* All of a piece goes through the hash, and what is wanted of it into the box. */
static enum err take_first(const struct state_index *x, const struct state_piece *p,
                           const struct state_want *want, enum safet_type type, void *out)
{
    XXH3_state_t hash;
    const struct state_box *b = &p->box;
    const struct state_part part = {*b, x->head.type, p->data};
    const char *path = x->inner->file[p->file].map.path;
    int64_t width = b->n[1] * safet_type_size(x->head.type), rows = num_max(1, STRIP / width);
    rows = want->transposed ? num_max(TURNED, rows / TURNED * TURNED) : rows;
    XXH3_64bits_reset(&hash);
    fs_call_begin(path);
    for (int64_t r = 0; r < b->n[0]; r += rows) {
        if (r > 0 && r / rows % CALL == 0) {
            fs_call_end();
            fs_call_begin(path);
        }
        struct state_box strip = {{b->at[0] + r, b->at[1]}, {num_min(rows, b->n[0] - r), b->n[1]}};
        XXH3_64bits_update(&hash, p->data + r * width, (size_t)(strip.n[0] * width));
        state_take(want, type, out, &part, &strip);
    }
    fs_call_end();
    uint64_t got = XXH3_64bits_digest(&hash);
    char name[128];
    struct state_chunk c = state_chunk_of(x, p);
    if (got != p->hash && state_chunk_name(&c, name))
        FAIL(ERR_CHECKPOINT, "ckpt: chunk %s of %s has the hash %016" PRIx64 ", %s says %016" PRIx64
                             "; the file is damaged", name, path, got, x->path, p->hash);
    return ERR_OK;
}

/* The first piece of a group that reaches below `row`. */
static int first_below(const struct state_reading *r, int group, int64_t row)
{
    int low = r->group[group], high = r->group[group + 1];
    while (low < high) {
        int mid = low + (high - low) / 2;
        if (r->piece[mid].reach > row)
            high = mid;
        else
            low = mid + 1;
    }
    return low;
}

enum err state_read(const struct state_index *x, const struct state_want *want,
                    enum safet_type type, void *out)
{
    struct state_reading *r = x->inner;
    const struct safet_entry *t = safet_find(x->tensor, x->tensors, want->tensor);
    const struct state_box *b = &want->box;
    bool inside = t != NULL && want->kind < STATE_KINDS && type <= SAFET_F32;
    for (int i = 0; inside && i < 2; i++)
        inside = b->at[i] >= 0 && b->n[i] >= 0 && b->at[i] <= t->shape[i] &&
                 b->n[i] <= t->shape[i] - b->at[i];
    if (!inside)
        FAIL(ERR_INTERNAL, "ckpt: (%" PRId64 ", %" PRId64 ") elements at (%" PRId64 ", %" PRId64
                           ") of tensor %s are wanted, which %s has not", b->n[0], b->n[1],
             b->at[0], b->at[1], want->tensor, x->path);
    int group = (int)(t - x->tensor) * STATE_KINDS + (int)want->kind;
    for (int i = first_below(r, group, b->at[0]);
         i < r->group[group + 1] && r->piece[i].box.at[0] < b->at[0] + b->n[0]; i++) {
        struct state_piece *p = &r->piece[i];
        struct state_box both;
        if (!state_meet(&p->box, b, &both))
            continue;
        TRY(need(x, p)); /* a map waits for the disk in what follows */
        if (!atomic_load_explicit(&p->proved, memory_order_relaxed)) {
            TRY(take_first(x, p, want, type, out));
            atomic_store_explicit(&p->proved, true, memory_order_relaxed);
            continue;
        }
        fs_call_begin(r->file[p->file].map.path);
        state_take(want, type, out, &(struct state_part){p->box, x->head.type, p->data}, &p->box);
        fs_call_end();
    }
    return ERR_OK;
}
