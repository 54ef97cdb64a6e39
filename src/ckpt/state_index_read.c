/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading an index, which may be hostile: a text in, a table of chunks out, or one clear error.
 *
 * Its last member is a hash of all bytes before it, so a bit that the disk has turned is found
 * wherever it is; who means harm makes that, too, so all rules come behind it. It is walked member
 * by member in memory of its own size (ckpt_json.h). Which tensors there have
 * to be follows from the model, whose table is made only when the index names as many tensors, so
 * that a number cannot ask for memory. Sorts bring the chunks together by tensor and kind, where
 * each group has to tile its tensor, and the files by name: none may be twice.
 */
#include "ckpt/state_local.h"

#include "base/mem.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHARD_MEMBERS = 4 };
static const char *const member[STATE_MEMBERS] = {"format", "state", "model", "tensors", "shards",
                                                   "hash"};
static const char *const shard_member[SHARD_MEMBERS] = {"file", "bytes", "hash", "chunks"};

static enum err bad(const struct state_index *x, const char *why)
{
    FAIL(ERR_CHECKPOINT, "ckpt: %s has %s; it is damaged or no index of a checkpoint", x->path,
         why);
}

/* ---- the hash ---- */

static void seal_of(const void *s, int64_t n, char out[STATE_SEAL + 1])
{
    snprintf(out, STATE_SEAL + 1, ",\n\"hash\":\"%016" PRIx64 "\"}\n", XXH3_64bits(s, (size_t)n));
}

void state_seal(struct text *t)
{
    char seal[STATE_SEAL + 1];
    if (t->err != ERR_OK)
        return;
    seal_of(t->s, t->len, seal);
    text_add(t, "%s", seal);
}

enum err state_index_split(const struct state_index *x, const struct fs_map *m,
                           struct ckpt_json_text out[STATE_MEMBERS])
{
    struct ckpt_json_text all;
    char want[STATE_SEAL + 1];
    if (m->size < STATE_SEAL)
        FAIL(ERR_CHECKPOINT, "ckpt: %s has %" PRId64 " bytes, an index has more; it is cut or no "
                             "index of a checkpoint", x->path, m->size);
    const char *end = (const char *)m->data + m->size - STATE_SEAL;
    seal_of(m->data, m->size - STATE_SEAL, want);
    if (memcmp(end, want, 10) != 0 || memcmp(end + 26, want + 26, 3) != 0)
        FAIL(ERR_CHECKPOINT, "ckpt: %s does not end with the hash of what stands before; it is "
                             "cut, damaged or no index of a checkpoint", x->path);
    if (memcmp(end, want, STATE_SEAL) != 0)
        FAIL(ERR_CHECKPOINT, "ckpt: %s has the hash %.16s, it says %.16s; it is damaged", x->path,
             want + 10, end + 10);
    TRY(ckpt_json_text(x->path, m, &all));
    if (all.n != m->size)
        return bad(x, "a byte order mark at its begin");
    return state_members(x->path, all, member, STATE_MEMBERS, STATE_MEMBERS, out);
}

/* ---- tensors ---- */

/* One or two whole numbers. */
static bool take_pair(struct ckpt_json_text t, int nd, int64_t out[2])
{
    struct ckpt_json w = {.of = t, .depth_max = 1, .list = true};
    for (int i = 0; i < nd; i++)
        if (!ckpt_json_next(&w) || !state_take_int(w.value, STATE_WHOLE_MAX, &out[i]))
            return false;
    return !ckpt_json_next(&w) && !w.why;
}

/* seen: of the model's tensors, which were named; NULL: they are only counted. */
static enum err walk_tensors(const struct state_index *x, struct ckpt_json_text all, bool *seen,
                             int *n)
{
    struct ckpt_json w = {.of = all, .depth_max = 1};
    for (*n = 0; ckpt_json_next(&w);) {
        char name[128];
        int64_t shape[2] = {0, 1};
        if (++*n > SAFET_TENSORS_MAX)
            return bad(x, "more tensors than a model can have");
        if (!seen)
            continue;
        if (!ckpt_json_word(w.key, name, sizeof name))
            return bad(x, "a tensor's name that is not 1 to 127 bytes of text");
        const struct safet_entry *t = safet_find(x->tensor, x->tensors, name);
        if (!t || seen[t - x->tensor])
            FAIL(ERR_CHECKPOINT, "ckpt: %s has tensor %s, which %s; it is damaged", x->path, name,
                 t ? "is there twice" : "its model has not");
        seen[t - x->tensor] = true;
        if (!take_pair(w.value, t->nd, shape) || shape[0] != t->shape[0] ||
            shape[1] != t->shape[1])
            FAIL(ERR_CHECKPOINT, "ckpt: %s says that tensor %s is of shape %.*s, its model has (%"
                                 PRId64 ", %" PRId64 "); it is damaged", x->path, name,
                 (int)num_min(w.value.n, 40), w.value.s, t->shape[0], t->shape[1]);
    }
    return w.why ? bad(x, w.why) : ERR_OK;
}

/* The table of the model's tensors, which are those that the index names. */
static enum err read_tensors(struct state_index *x, struct ckpt_json_text t)
{
    bool *seen;
    int n;
    TRY(walk_tensors(x, t, NULL, &n));
    if (x->head.model.layers <= n)
        TRY(hf_sorted_entries(&x->head.model, &x->tensor, &x->tensors));
    if (x->tensors == 0 || x->tensors != n)
        FAIL(ERR_CHECKPOINT, "ckpt: %s names %d tensor%s, its model of %" PRId64 " layers has "
                             "other ones; it is damaged", x->path, n, text_plural(n, "s"),
             x->head.model.layers);
    TRY(mem_new(n, sizeof *seen, "the tensors that are named", &seen));
    enum err err = walk_tensors(x, t, seen, &n);
    mem_free(seen);
    return err;
}

/* ---- shards ---- */

struct state_chunk state_chunk_of(const struct state_index *x, const struct state_piece *p)
{
    const struct safet_entry *t = &x->tensor[p->group / STATE_KINDS];
    struct state_chunk c = {.kind = (enum state_kind)(p->group % STATE_KINDS), .nd = t->nd,
                            .shape = {t->shape[0], t->shape[1]}, .box = p->box, .hash = p->hash};
    memcpy(c.tensor, t->name, sizeof t->name);
    return c;
}

/* ["name", "kind", [rows, columns], [rows, columns], "hash"] */
static enum err read_chunk(const struct state_index *x, struct ckpt_json_text t,
                           struct state_piece *p)
{
    struct ckpt_json w = {.of = t, .depth_max = 2, .list = true};
    struct ckpt_json_text v[6];
    char name[128], kind[16];
    for (int i = 0; i < 6; i++) {
        if (ckpt_json_next(&w) != (i < 5) || w.why)
            return bad(x, "a chunk that is no list of 5");
        v[i] = w.value;
    }
    if (!ckpt_json_word(v[0], name, sizeof name))
        return bad(x, "a chunk whose tensor is not 1 to 127 bytes of text");
    const struct safet_entry *tensor = safet_find(x->tensor, x->tensors, name);
    if (!tensor)
        FAIL(ERR_CHECKPOINT, "ckpt: %s has a chunk of tensor %s, which its model has not; it is "
                             "damaged", x->path, name);
    int k = 0;
    while (k < STATE_KINDS && !(ckpt_json_word(v[1], kind, sizeof kind) &&
                                strcmp(kind, state_kind_name[k]) == 0))
        k++;
    p->group = (int)(tensor - x->tensor) * STATE_KINDS + k;
    p->box = (struct state_box){{0, 0}, {0, 1}};
    if (k == STATE_KINDS || !take_pair(v[2], tensor->nd, p->box.at) ||
        !take_pair(v[3], tensor->nd, p->box.n) || !state_take_hash(v[4], &p->hash))
        FAIL(ERR_CHECKPOINT, "ckpt: %s has a chunk of tensor %s that is not of a kind, two lists "
                             "of whole numbers and a hash: %.*s; it is damaged", x->path, name,
             (int)num_min(t.n, 120), t.s);
    struct state_chunk c = state_chunk_of(x, p);
    const char *why = state_chunk_fault(&c);
    if (why)
        FAIL(ERR_CHECKPOINT, "ckpt: %s has a chunk of tensor %s at (%" PRId64 ", %" PRId64 ") of (%"
                             PRId64 ", %" PRId64 ") elements: %s; it is damaged", x->path, name,
             p->box.at[0], p->box.at[1], p->box.n[0], p->box.n[1], why);
    return ERR_OK;
}

static enum err read_shard(const struct state_index *x, struct ckpt_json_text t)
{
    struct ckpt_json_text v[SHARD_MEMBERS];
    struct state_reading *r = x->inner;
    TRY(state_members(x->path, t, shard_member, SHARD_MEMBERS, SHARD_MEMBERS, v));
    if (r->files == STATE_FILES_MAX)
        return bad(x, "more than 2^20 shards");
    TRY(mem_more(r->files, sizeof *r->file, "the shards of a checkpoint", &r->file));
    struct state_file *f = &r->file[r->files++];
    if (!ckpt_json_word(v[0], f->name, sizeof f->name))
        return bad(x, "a file's name that is not 1 to 31 bytes of text");
    if (!state_take_int(v[1], STATE_WHOLE_MAX, &f->bytes))
        FAIL(ERR_CHECKPOINT, "ckpt: %s says that %s has %.*s bytes, which is not a whole number "
                             "from 0 to 2^53 - 1; it is damaged", x->path, f->name,
             (int)num_min(v[1].n, 40), v[1].s);
    if (!state_take_hash(v[2], &f->header))
        FAIL(ERR_CHECKPOINT, "ckpt: %s has for %s a hash that is not 16 hexadecimal digits; it is "
                             "damaged", x->path, f->name);
    struct ckpt_json w = {.of = v[3], .depth_max = 3, .list = true};
    f->first = r->pieces;
    while (ckpt_json_next(&w)) {
        if (r->pieces == STATE_CHUNKS_MAX)
            return bad(x, "more than 2^24 chunks");
        TRY(mem_more(r->pieces, sizeof *r->piece, "the chunks of a checkpoint", &r->piece));
        r->piece[r->pieces].file = r->files - 1;
        TRY(read_chunk(x, w.value, &r->piece[r->pieces++]));
    }
    f->n = r->pieces - f->first;
    return w.why ? bad(x, w.why) : ERR_OK;
}

/* ---- tiling ----
 *
 * Do boxes tile a rectangle? Let f count, for each element, the boxes that cover it. The corners
 * determine f: it is their signed sum over both axes. If modulo 2 they cancel but for the four
 * corners of the rectangle, f is odd at each element of it, hence at least 1; if the boxes have as
 * many elements as the rectangle, it is 1. So two tests are exact, and take a sort of corners. */

static int by_place(const void *pa, const void *pb)
{
    const struct state_corner *a = pa, *b = pb;
    int i = a->at[0] == b->at[0];
    return (a->at[i] > b->at[i]) - (a->at[i] < b->at[i]);
}

enum state_tiling state_tile(const int64_t shape[2], const struct state_piece *piece, int n,
                             struct state_corner *corner, int64_t *elements)
{
    int64_t sum = 0, all = shape[0] * shape[1];
    for (int i = 0; i < n; i++) {
        const struct state_box *b = &piece[i].box;
        sum += state_box_elements(b); /* at most twice what can be counted of elements */
        if (sum > all)
            break;
        for (int j = 0; j < 4; j++)
            corner[4 * i + j] = (struct state_corner){
                {b->at[0] + (j / 2) * b->n[0], b->at[1] + (j % 2) * b->n[1]}};
    }
    *elements = sum;
    if (sum != all)
        return sum > all ? STATE_TOO_MUCH : STATE_TOO_LITTLE;
    int odd = 0; /* corners that stand an odd number of times, sorted, to the front */
    qsort(corner, 4 * (size_t)n, sizeof *corner, by_place);
    for (int i = 0, next; i < 4 * n; i = next) {
        for (next = i + 1; next < 4 * n && by_place(&corner[i], &corner[next]) == 0;)
            next++;
        if ((next - i) % 2)
            corner[odd++] = corner[i];
    }
    for (int j = 0; j < 4; j++) {
        struct state_corner want = {{(j / 2) * shape[0], (j % 2) * shape[1]}};
        if (j < odd && by_place(&corner[j], &want) == 0)
            continue;
        if (j < odd) /* the first of both that the other has not */
            corner[0] = by_place(&corner[j], &want) < 0 ? corner[j] : want;
        else
            corner[0] = want;
        return STATE_MISFIT;
    }
    return STATE_TILES; /* none comes behind the last corner */
}

static int by_group(const void *pa, const void *pb)
{
    const struct state_piece *a = pa, *b = pb;
    if (a->group != b->group)
        return a->group < b->group ? -1 : 1;
    int i = a->box.at[0] == b->box.at[0];
    return (a->box.at[i] > b->box.at[i]) - (a->box.at[i] < b->box.at[i]);
}

/* corner: four times the pieces of the largest group. */
static enum err check_group(const struct state_index *x, int g, struct state_corner *corner)
{
    const struct state_reading *r = x->inner;
    const struct safet_entry *t = &x->tensor[g / STATE_KINDS];
    const char *kind = state_kind_name[g % STATE_KINDS];
    int n = r->group[g + 1] - r->group[g];
    int64_t got;
    switch (state_tile(t->shape, &r->piece[r->group[g]], n, corner, &got)) {
    case STATE_TILES: return ERR_OK;
    case STATE_TOO_MUCH:
        FAIL(ERR_CHECKPOINT, "ckpt: %s has chunks of %s, %s, that overlap: they have more than its "
                             "%" PRId64 " elements; it is damaged", x->path, t->name, kind,
             t->shape[0] * t->shape[1]);
    case STATE_TOO_LITTLE:
        FAIL(ERR_CHECKPOINT, "ckpt: %s has chunks of %" PRId64 " elements of %s, %s, which has %"
                             PRId64 "; a shard is missing in it or it is damaged", x->path, got,
             t->name, kind, t->shape[0] * t->shape[1]);
    case STATE_MISFIT:
        FAIL(ERR_CHECKPOINT, "ckpt: %s has chunks of %s, %s, that overlap and leave a hole: they "
                             "do not fit at row %" PRId64 ", column %" PRId64 "; it is damaged",
             x->path, t->name, kind, corner[0].at[0], corner[0].at[1]);
    }
    return ERR_OK;
}

/* Sorted: where each group begins and how far down its pieces reach, and the pieces of each file.
 * Then each group has to tile its tensor. */
static enum err order(struct state_index *x)
{
    struct state_reading *r = x->inner;
    int groups = x->tensors * STATE_KINDS, most = 1, g = 0;
    struct state_corner *corner;
    enum err err = ERR_OK;
    TRY(mem_new(groups + 1, sizeof *r->group, "the chunks by tensor", &r->group));
    TRY(mem_new(r->pieces, sizeof *r->of_file, "the chunks by file", &r->of_file));
    for (int i = 0; i < r->files; i++)
        r->file[i].n = 0; /* counted again */
    qsort(r->piece, (size_t)r->pieces, sizeof *r->piece, by_group);
    for (int i = 0; i < r->pieces; i++) {
        struct state_piece *p = &r->piece[i];
        while (g <= p->group)
            r->group[g++] = i;
        int64_t end = p->box.at[0] + p->box.n[0];
        p->reach = i > r->group[p->group] ? num_max(end, p[-1].reach) : end;
        struct state_file *f = &r->file[p->file];
        r->of_file[f->first + f->n++] = i;
        most = (int)num_max(most, i + 1 - r->group[p->group]);
    }
    while (g <= groups)
        r->group[g++] = r->pieces;
    TRY(mem_new(4 * (int64_t)most, sizeof *corner, "the corners of chunks", &corner));
    for (g = 0; g < groups && err == ERR_OK; g++)
        err = check_group(x, g, corner);
    mem_free(corner);
    return err;
}

enum err state_index_parse(struct state_index *x, const struct fs_map *m)
{
    struct ckpt_json_text v[STATE_MEMBERS];
    const char *twice;
    char format[32];
    TRY(mem_new(1, sizeof *x->inner, "the index of a checkpoint", &x->inner));
    x->inner->lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    TRY(state_index_split(x, m, v));
    const struct ckpt_json_text *f = &v[STATE_IN_FORMAT];
    if (!ckpt_json_word(*f, format, sizeof format) || strcmp(format, STATE_FORMAT) != 0)
        FAIL(ERR_CHECKPOINT, "ckpt: %s has the format %.*s, this plait reads \"" STATE_FORMAT "\"; "
                             "it is of another plait or damaged", x->path,
             (int)num_min(f->n, 40), f->s);
    TRY(state_head_read(x->path, v[STATE_IN_STATE], v[STATE_IN_MODEL], &x->head, &x->digest));
    TRY(read_tensors(x, v[STATE_IN_TENSORS]));
    struct ckpt_json w = {.of = v[STATE_IN_SHARDS], .depth_max = STATE_DEPTH - 1, .list = true};
    while (ckpt_json_next(&w))
        TRY(read_shard(x, w.value));
    const struct state_reading *r = x->inner;
    if (w.why || r->pieces == 0)
        return bad(x, w.why ? w.why : "no chunks");
    TRY(ckpt_json_twice(r->file->name, r->files, sizeof *r->file, &twice));
    if (twice)
        FAIL(ERR_CHECKPOINT, "ckpt: %s names the file %s twice; it is damaged", x->path, twice);
    return order(x);
}
