/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank's duty is found once, as pieces of parameters for who writes files and as runs for who
 * copies: pieces that lie in the store behind one another, with at most alignment between them, are
 * one run, so that a stage is a few long copies for each kind and not hundreds of short ones. What
 * lies between two pieces of a run is copied along and read by nobody.
 *
 * In a snapshot each run begins where a device writes whole lines. None begins further from the
 * beginning than it does in the rank's ranges, which are whole lines: so model_saved_elements are
 * enough, which knows these alone.
 */
#include "param/param_state.h"

struct param_run {
    const struct param_store *store; /* borrowed */
    int64_t begin, own, n;           /* param_range's, and how many */
    int64_t at;                      /* in each kind of a snapshot */
};

/* Elements of p that are no padding: its first rows. */
static int64_t real_elements(const struct param *p)
{
    ENSURE(p->box.real[1] == p->box.local[1]);
    return p->box.real[0] * p->box.local[1];
}

/* Those of them in a range of the store. False: none. */
static bool piece_in(const struct param *p, const struct param_range *r, struct param_piece *out)
{
    *out = (struct param_piece){.param = p, .from = num_max(r->begin - p->offset, 0),
                                .to = num_min(r->end - p->offset, real_elements(p))};
    return out->from < out->to;
}

/* ---- the duty ---- */

/* One more piece, of range r: behind the last run's end or in a run of its own. */
static void add_piece(struct param_duty *d, const struct param_range *r, struct param_piece piece)
{
    const struct param *p = piece.param;
    int64_t begin = p->offset + piece.from, end = p->offset + piece.to;
    struct param_run *run = d->runs > 0 ? &d->run[d->runs - 1] : NULL;
    bool joins = run && run->store == p->store &&
                 begin - (run->begin + run->n) < MODEL_PARAM_ALIGN; /* ranges lie further apart */
    if (!joins) {
        run = &d->run[d->runs++];
        *run = (struct param_run){.store = p->store, .begin = begin,
                                  .own = r->own + begin - r->begin,
                                  .at = num_ceil_div(d->elements, MODEL_PARAM_ALIGN) *
                                        MODEL_PARAM_ALIGN};
    }
    run->n = end - run->begin;
    piece.at = run->at + begin - run->begin;
    d->piece[d->n++] = piece;
    d->elements = run->at + run->n;
}

enum err param_duty_open(struct param_duty *d, struct param_store *const *store, int stores,
                         int rank, int ranks)
{
    int64_t most = 0; /* a parameter gives at most one piece more than edges fall into it */
    struct param_piece piece;
    enum err err;
    for (int i = 0; i < stores; i++)
        most += store[i]->n + param_share_pieces(store[i]);
    *d = (struct param_duty){.dev = stores > 0 ? store[0]->dev : NULL};
    TRY(mem_new(most, sizeof *d->piece, "what a rank saves", &d->piece));
    TRY_OR(out_close, mem_new(most, sizeof *d->run, "what a rank saves", &d->run));
    for (int i = 0; i < stores; i++)
        for (int j = 0; j < param_share_pieces(store[i]); j++) {
            const struct param_store *s = store[i];
            struct param_range r = param_share_of(s, j);
            ENSURE(s->num_shards == 1 ||
                   (s->edge && s->shard_rank == rank && s->num_shards == ranks));
            if (s->num_shards == 1) { /* all of it, of which each takes an equal part */
                int64_t lines = s->elements / MODEL_PARAM_ALIGN;
                r.begin = r.own = lines * rank / ranks * MODEL_PARAM_ALIGN;
                r.end = lines * (rank + 1) / ranks * MODEL_PARAM_ALIGN;
            }
            for (int k = 0; k < s->n; k++)
                if (s->param[k].counted && piece_in(&s->param[k], &r, &piece))
                    add_piece(d, &r, piece);
        }
    return ERR_OK;
out_close:
    param_duty_close(d);
    return err;
}

void param_duty_close(struct param_duty *d)
{
    mem_free(d->piece);
    mem_free(d->run);
    *d = (struct param_duty){0};
}

/* ---- snapshots ---- */

/* Can the host read and write what is in the device's memory? */
static bool is_host(const struct dev *dev)
{
    return dev->kind == DEV_CPU || dev->kind == DEV_REF;
}

enum err param_snapshot_open(struct param_snapshot *s, const struct param_duty *d, int64_t bytes)
{
    int64_t need = PARAM_KINDS * d->elements * dtype_size(d->dev->at);
    *s = (struct param_snapshot){.duty = d};
    if (bytes == 0 && is_host(d->dev))
        return ERR_OK;
    if (bytes < need)
        FAIL(ERR_INTERNAL, "a snapshot of the parameters takes %lld bytes, planned are %lld",
             (long long)need, (long long)bytes);
    for (int slot = 0; slot < DEV_SNAPSHOT_SLOTS; slot++) /* who filled the stores said nothing */
        TRY(d->dev->ops->snapshot_ready(d->dev, slot));
    return d->dev->ops->host_alloc(d->dev, bytes, "a snapshot of the parameters",
                                   (void **)&s->host);
}

void param_snapshot_close(struct param_snapshot *s)
{
    if (s->host) {
        (void)param_snapshot_wait(s);
        s->duty->dev->ops->host_free(s->duty->dev, s->host);
    }
    *s = (struct param_snapshot){0};
}

/* Where a run stands on the device. */
static const char *run_on_device(const struct param_run *run, enum param_kind kind)
{
    const struct param_store *s = run->store;
    if (kind == PARAM_WEIGHT)
        return s->master + (s->master == s->w ? run->begin : run->own) * s->at;
    return (kind == PARAM_M ? s->m : s->v) + run->own * s->at;
}

enum err param_snapshot_start(const struct param_snapshot *s)
{
    const struct param_duty *d = s->duty;
    int64_t at = dtype_size(d->dev->at);
    for (int slot = 0; s->host && slot < DEV_SNAPSHOT_SLOTS; slot++)
        for (enum param_kind kind = 0; kind < PARAM_KINDS; kind++)
            for (const struct param_run *run = d->run; run < d->run + d->runs; run++) {
                int64_t each = run->store->slot; /* what of the run lies in the slot */
                int64_t begin = num_max(slot * each - run->own, 0);
                int64_t end = num_min((slot + 1) * each - run->own, run->n);
                struct snapshot part = {s->host + (kind * d->elements + run->at + begin) * at,
                                        run_on_device(run, kind) + begin * at, (end - begin) * at,
                                        slot};
                if (begin < end)
                    TRY(dev_snapshot(d->dev, &part));
            }
    return ERR_OK;
}

enum err param_snapshot_wait(const struct param_snapshot *s)
{
    return s->duty->dev->ops->snapshot_synchronize(s->duty->dev, NULL);
}

const void *param_snapshot_of(const struct param_snapshot *s, enum param_kind kind,
                              const struct param_piece *piece)
{
    const struct param_duty *d = s->duty;
    int64_t at = dtype_size(d->dev->at);
    if (s->host)
        return s->host + (kind * d->elements + piece->at) * at;
    const struct param_run *run = d->run;
    while (piece->at >= run->at + run->n)
        run++;
    return run_on_device(run, kind) + (piece->at - run->at) * at;
}

/* ---- the way back ---- */

bool param_held(const struct param *p, enum param_kind kind, int piece, struct param_piece *out)
{
    struct param_range r = {0, p->store->elements, 0};
    if (kind == PARAM_WEIGHT && piece > 0)
        return false;
    if (kind != PARAM_WEIGHT)
        r = param_share_of(p->store, piece);
    return piece_in(p, &r, out);
}

/* On the device, as numbers of type dev.at; NULL: they are not all held. */
static char *held_at(const struct param *p, enum param_kind kind, int64_t from, int64_t to)
{
    const struct param_store *s = p->store;
    if (kind == PARAM_WEIGHT)
        return (char *)param_master(p) + from * s->at;
    for (int i = 0; i < param_share_pieces(s); i++) {
        struct param_range r = param_share_of(s, i);
        if (p->offset + from >= r.begin && p->offset + to <= r.end)
            return (kind == PARAM_M ? s->m : s->v) + (r.own + p->offset + from - r.begin) * s->at;
    }
    return NULL;
}

void *param_state_at(const struct param *p, enum param_kind kind, int64_t from, int64_t to)
{
    const struct dev *dev = p->store->dev;
    if (!is_host(dev) || (kind == PARAM_WEIGHT && param_master_type(p->store) != dev->at))
        return NULL;
    return held_at(p, kind, from, to);
}

enum err param_state_write(const struct param *p, enum param_kind kind, int64_t from,
                           const void *values, int64_t n)
{
    const struct param_store *s = p->store;
    uint16_t *bf16;
    ENSURE(from >= 0 && n >= 0 && from + n <= real_elements(p));
    if (kind == PARAM_WEIGHT && param_master_type(s) != s->dev->at) {
        /* A store for generation has no master weights: they are rounded on their way. */
        ENSURE(s->dev->at == DT_F32 && s->dev->ct == DT_BF16);
        TRY(mem_new(n, sizeof *bf16, p->spec.name, &bf16));
        for (int64_t i = 0; i < n; i++)
            bf16[i] = bf16_from_f32(((const float *)values)[i]);
        enum err err = dev_h2d(s->dev, s->w + (p->offset + from) * s->ct, bf16, n * s->ct);
        mem_free(bf16);
        return err;
    }
    char *to = held_at(p, kind, from, from + n);
    if (!to)
        FAIL(ERR_INTERNAL, "%s: elements %lld to %lld of moments are not all held by this rank",
             p->spec.name, (long long)from, (long long)(from + n - 1));
    if (to != values)
        TRY(dev_h2d(s->dev, to, values, n * s->at));
    if (kind != PARAM_WEIGHT || s->master == s->w)
        return ERR_OK;
    return dev_cast(s->dev, (char *)param_w(p) + from * s->ct, to, n);
}
