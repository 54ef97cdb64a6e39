/* SPDX-License-Identifier: Apache-2.0
 *
 * Layout and contents of the flat stores. Padding between parameters and the missing rows of a
 * short vocabulary shard are zeros, stay zeros under every update (their gradients are zero), and
 * never leave the rank but in the sums of gradients. The padding's gradients are the zeros of a new
 * arena and are never written; the missing rows belong to their parameter, and whoever writes its
 * gradient writes their zeros too.
 */
#include "param/param.h"

/* One copy of each parameter counts: of replicas the first tensor rank's and the first pipeline
 * replica's, of a tied pair the embedding's. */
bool param_counts(const struct model_param *p, const struct param_place *at)
{
    int tp = at->split->tp, r = at->tp_rank;
    if (p->tied_copy || at->copy)
        return false;
    if (p->slice == SLICE_NONE)
        return r == 0;
    if (p->slice == SLICE_KV && p->kv_heads < tp)
        return r % (tp / p->kv_heads) == 0;
    return true;
}

/* Has this rank only its share of the master weights? */
static bool share_apart(const struct param_store *s)
{
    return s->num_shards > 1 && s->master != s->w;
}

int param_slot(const struct param_store *s, int64_t own)
{
    int64_t slot = own / s->slot;
    ENSURE(slot >= 0 && slot < DEV_SNAPSHOT_SLOTS);
    return (int)slot;
}

enum err param_store_open(struct param_store *s, struct dev *dev, const struct param_place *at,
                          const struct param_memory *memory)
{
    enum { LEAST = 1 << 18 }; /* elements that are worth a slot */
    struct model_param spec[MODEL_PART_PARAMS];
    int64_t end = 0;
    enum err err;
    int parts = model_stage_parts(at->stage);
    *s = (struct param_store){.dev = dev, .ct = dtype_size(dev->ct), .at = dtype_size(dev->at),
                              .shard_rank = at->shard_rank,
                              .num_shards = at->num_shards > 1 ? at->num_shards : 1,
                              .w = memory->w, .master = memory->master, .grad = memory->grad,
                              .m = memory->m, .v = memory->v};
    s->master = s->master ? s->master : s->w;
    s->whole = s->grad && share_apart(s) ? s->grad : s->master;
    TRY(mem_new((int64_t)parts * MODEL_PART_PARAMS, sizeof *s->param, "the parameter registry",
                &s->param));
    TRY_OR(out_close, mem_new((int64_t)parts * MODEL_PART_PARAMS, sizeof *s->fresh,
                              "the parameter registry", &s->fresh));
    TRY_OR(out_close, mem_new(parts + 1, sizeof *s->part_first, "the parameter registry",
                              &s->part_first));
    for (int i = 0; i < parts; i++) {
        struct layer l = model_layer(at->model, at->stage->first + i);
        int n = model_layer_params(&l, model_stage_apart(at->stage), spec);
        s->part_first[i] = s->n;
        for (int j = 0; j < n; j++) {
            struct param *p = &s->param[s->n++];
            p->store = s;
            p->spec = spec[j];
            model_param_box(at->split, &spec[j], at->tp_rank, &p->box);
            p->offset = model_param_at(at->split, &spec[j], &end);
            p->count = end - p->offset;
            p->counted = param_counts(&spec[j], at);
        }
        s->part_first[i + 1] = s->n;
    }
    s->elements = model_sharded_elements(end, s->num_shards);
    int64_t own = num_max(s->elements / s->num_shards, 1);
    int64_t lines = num_ceil_div(num_ceil_div(own, DEV_SNAPSHOT_SLOTS), MODEL_PARAM_ALIGN);
    s->slot = dev->async ? num_max(lines * MODEL_PARAM_ALIGN, LEAST) : own;
    return ERR_OK;
out_close:
    param_store_close(s);
    return err;
}

void param_store_close(struct param_store *s)
{
    mem_free(s->param);
    mem_free(s->fresh);
    mem_free(s->part_first);
    mem_free(s->edge);
    *s = (struct param_store){0};
}

const struct param *param_find(const struct param_store *s, int part, enum param_id role)
{
    for (int i = s->part_first[part]; i < s->part_first[part + 1]; i++)
        if (s->param[i].spec.role == role)
            return &s->param[i];
    return NULL;
}

void *param_w(const struct param *p)
{
    return p ? p->store->w + p->offset * p->store->ct : NULL;
}

static bool *fresh_of(const struct param *p)
{
    return &p->store->fresh[p - p->store->param];
}

void *param_grad(const struct param *p)
{
    ENSURE(!p || !*fresh_of(p)); /* what its memory holds is of the step before */
    return p ? p->store->grad + p->offset * p->store->at : NULL;
}

enum dtype param_master_type(const struct param_store *s)
{
    return s->master == s->w ? s->dev->ct : s->dev->at;
}

void *param_master(const struct param *p)
{
    ENSURE(!p || p->store->whole);
    return p ? p->store->whole + p->offset * dtype_size(param_master_type(p->store)) : NULL;
}

/* ---- gradients ---- */

void param_grads_reset(struct param_store *s)
{
    for (int i = 0; i < s->n; i++)
        s->fresh[i] = true;
    if (s->whole == s->grad)
        s->whole = NULL;
}

/* p and what lies joined to it. */
static const struct param *joined_end(const struct param *p)
{
    const struct param *end = p + 1;
    while (end < p->store->param + p->store->n && end->spec.joined)
        end++;
    return end;
}

bool param_grad_begin(const struct param *p, int64_t elements)
{
    const struct param *end = joined_end(p);
    bool fresh = *fresh_of(p);
    int64_t count = 0;
    for (const struct param *q = p; q < end; q++) {
        ENSURE(*fresh_of(q) == fresh);
        *fresh_of(q) = false;
        count += q->count;
    }
    ENSURE(count == elements);
    return !fresh;
}

enum err param_grads_begin(const struct param *p, const struct param *q,
                           const int64_t elements[2], bool *add)
{
    if (q && *fresh_of(p) != *fresh_of(q)) {
        TRY(param_grad_settle(p));
        TRY(param_grad_settle(q));
    }
    *add = param_grad_begin(p, elements[0]);
    if (q)
        (void)param_grad_begin(q, elements[1]);
    return ERR_OK;
}

enum err param_grad_settle(const struct param *p)
{
    struct dev *dev = p->store->dev;
    const struct param *end = joined_end(p);
    for (; p < end; p++) {
        if (!*fresh_of(p))
            continue;
        *fresh_of(p) = false;
        TRY(dev_zero(dev, param_grad(p), p->count * p->store->at));
    }
    return ERR_OK;
}

enum err param_grads_settle(const struct param_store *s)
{
    for (int i = 0; i < s->n; i++)
        TRY(param_grad_settle(&s->param[i]));
    return ERR_OK;
}

/* ---- shared updates ----
 * Sums of gradients start piece by piece while backward still runs, so each piece is shared out by
 * itself: it begins as near above a part's begin as the ranges' length allows, and rank i of n owns
 * the i-th n-th of it. Edges are multiples of n times MODEL_PARAM_ALIGN: all ranges of a piece are
 * equally long, as scattered sums and gathers want them, and begin where a device reads whole
 * lines. That also makes an owner's ranges fit together: of the pieces below edge e it has e / n
 * elements, so master weights and moments of the range behind it begin at e / n. */

enum err param_share_cut(struct param_store *s, const int *first, int n)
{
    ENSURE(s->num_shards > 1 && !s->edge && n > 0 && first[0] == 0);
    TRY(mem_new(n + 1, sizeof *s->edge, "the pieces of a store", &s->edge));
    for (int i = 1; i < n; i++) { /* the lowest with nothing above it of what lies below a part */
        const struct param *p = &s->param[s->part_first[first[i]]];
        s->edge[i] = model_sharded_elements(p->offset, s->num_shards);
    }
    s->edge[n] = s->elements;
    s->pieces = s->elements > 0 ? n : 0;
    return ERR_OK;
}

int param_share_pieces(const struct param_store *s)
{
    return s->edge ? s->pieces : 1;
}

struct param_range param_share_of(const struct param_store *s, int piece)
{
    if (!s->edge)
        return (struct param_range){0, s->elements, 0};
    int64_t each = (s->edge[piece + 1] - s->edge[piece]) / s->num_shards;
    int64_t begin = s->edge[piece] + s->shard_rank * each;
    return (struct param_range){begin, begin + each, s->edge[piece] / s->num_shards};
}

/* keep: from the memory of the gradients to the owner's; else back. */
static enum err move(const struct param_store *s, bool keep)
{
    struct dev *dev = s->dev;
    for (int i = 0; i < s->pieces; i++) {
        struct param_range r = param_share_of(s, i);
        char *own = s->master + r.own * s->at, *all = s->grad + r.begin * s->at;
        TRY(dev_copy(dev, keep ? own : all, keep ? all : own, (r.end - r.begin) * s->at));
    }
    return ERR_OK;
}

enum err param_shard_master(struct param_store *s)
{
    if (!share_apart(s))
        return ERR_OK;
    ENSURE(s->edge && s->whole == s->grad);
    s->whole = NULL;
    return move(s, true);
}

enum err param_unshard_master(struct param_store *s)
{
    if (!share_apart(s))
        return ERR_OK;
    ENSURE(s->edge && !s->whole);
    param_grads_reset(s);
    s->whole = s->grad;
    return move(s, false);
}

enum err param_read(const struct param *p, enum dtype to, void *out)
{
    struct dev *dev = p->store->dev;
    enum dtype dt = param_master_type(p->store);
    void *raw = out;
    if (dt != to)
        TRY(mem_new(p->count, (size_t)dtype_size(dt), p->spec.name, &raw));
    enum err err = dev_d2h(dev, raw, param_master(p), p->count * dtype_size(dt));
    if (err == ERR_OK)
        err = dev->ops->sync(dev);
    for (int64_t i = 0; i < p->count && dt != to && err == ERR_OK; i++)
        dtype_put(out, to, i, dtype_get(raw, dt, i));
    if (dt != to)
        mem_free(raw);
    return err;
}
