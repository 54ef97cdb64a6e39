/* SPDX-License-Identifier: Apache-2.0
 *
 * Bytes of every buffer of a microbatch, from shapes alone. The stage (src/model/) takes its
 * buffers in the order and sizes of these tables and nowhere else, which is why the plan's bytes
 * and the allocated bytes are the same number.
 *
 * What is saved and why: the norm's input and statistics (its gradient), its output (the weight
 * gradient of the product behind it), q k v and the attention output with its log-sum-exp (the
 * attention gradient recomputes the scores: Dao et al. 2022), the activation's input and output.
 * The head saves the gradient of its norm's output: loss and gradient of the logits are made in one
 * pass over rows, a chunk at a time, so that no (n, V) matrix has to live until the backward.
 */
#include "arch/arch.h"
#include "base/mem.h"

/* Least rows of a chunk of logits. Tests build this file once more with chunks of that many, so
 * that the head of a small model is cut too. */
#ifdef ARCH_CHUNK_ROWS
#define ARCH_CHUNK_BYTES(types) 1
#else
#define ARCH_CHUNK_ROWS 64
#define ARCH_CHUNK_BYTES(types) ((types)->chunk)
#endif

void arch_dims(const struct arch *a, const struct arch_split *s, int64_t samples,
               const struct dtypes *types, struct arch_dims *out)
{
    int64_t n = samples * a->seq;
    struct arch_dims d = {.b = samples, .t = a->seq, .n = n, .nl = s->sp ? n / s->tp : n};
    d.c = a->hidden;
    d.h = a->heads / s->tp;
    d.k = a->kv_heads >= s->tp ? a->kv_heads / s->tp : 1;
    d.d = a->head_dim;
    d.f = a->ffn / s->tp;
    d.v = num_ceil_div(a->vocab, s->tp);
    d.ct = dtype_size(types->ct);
    d.at = dtype_size(types->at);
    d.logits = dtype_size(types->logits);
    d.gated = arch_traits(a->kind)->gated;
    d.chunk = num_min(n, num_max(ARCH_CHUNK_ROWS, ARCH_CHUNK_BYTES(types) / (d.v * d.logits)));
    *out = d;
}

static int64_t qkv_cols(const struct arch_dims *d)
{
    return (d->h + 2 * d->k) * d->d;
}

static int64_t pre_cols(const struct arch_dims *d)
{
    return d->gated ? 2 * d->f : d->f;
}

static int64_t attn_save(const struct arch_dims *d, enum arch_save id)
{
    switch (id) {
    case SAVE_QKV: return d->n * qkv_cols(d) * d->ct;
    case SAVE_O: return d->n * d->h * d->d * d->ct;
    case SAVE_LSE: return d->n * d->h * d->at;
    default: return 0;
    }
}

int64_t arch_save_bytes(const struct arch_dims *d, enum arch_part part, enum arch_save id)
{
    if (part == PART_EMBED)
        return 0;
    switch (id) {
    case SAVE_X: return d->nl * d->c * d->ct;
    case SAVE_MEAN: return d->gated ? 0 : d->nl * d->at;
    case SAVE_RSTD: return d->nl * d->at;
    case SAVE_H: return part == PART_HEAD ? 0 : d->nl * d->c * d->ct;
    case SAVE_PRE: return part == PART_MLP ? d->n * pre_cols(d) * d->ct : 0;
    case SAVE_ACT: return part == PART_MLP ? d->n * d->f * d->ct : 0;
    case SAVE_DH: return part == PART_HEAD ? d->nl * d->c * d->ct : 0;
    default: return part == PART_ATTN ? attn_save(d, id) : 0;
    }
}

int64_t arch_keep_bytes(const struct arch_dims *d, enum arch_part part, enum arch_keep id)
{
    if (part == PART_EMBED)
        return id == KEEP_DF ? d->nl * d->c * d->ct : 0;
    if (id == KEEP_DNORM)
        return (d->gated ? 1 : 2) * d->c * d->at;
    if (part == PART_HEAD)
        return 0;
    if (id == KEEP_DF)
        return d->n * d->c * d->ct;
    return d->n * (part == PART_ATTN ? qkv_cols(d) : pre_cols(d)) * d->ct;
}

int64_t arch_work_bytes(const struct arch_dims *d, const struct arch_split *s, bool head,
                        enum arch_work id)
{
    switch (id) {
    case WORK_FULL: return s->sp ? d->n * d->c * d->ct : 0;
    case WORK_PARTIAL: return d->n * d->c * d->ct;
    case WORK_D:
    case WORK_DH: return d->nl * d->c * d->ct;
    case WORK_DMID: return d->n * num_max(d->h * d->d, d->f) * d->ct;
    case WORK_DELTA: return d->n * d->h * d->at;
    case WORK_LOGITS: return head ? d->chunk * d->v * d->logits : 0;
    case WORK_DLOGITS: return head && d->logits == d->at ? d->chunk * d->v * d->ct : 0;
    case WORK_ROW: return head ? 4 * d->n * d->at : 0;
    case WORK_COUNT: break;
    }
    return 0;
}

bool arch_save_stays(const struct arch *a, const struct arch_stage *st, int part, enum arch_save id)
{
    bool head = arch_stage_head(a, st) && part == arch_stage_parts(st) - 1;
    if (id == SAVE_X)
        return part == 0;
    return head && (id == SAVE_MEAN || id == SAVE_RSTD || id == SAVE_DH);
}

/* Saves of a stage: those that stay in a slot, or the others. */
static int64_t saved_bytes(const struct arch *a, const struct arch_dims *d,
                           const struct arch_stage *st, bool stay)
{
    int64_t total = 0, block;
    for (int i = 0; i < arch_stage_parts(st); i++)
        for (int id = 0; id < SAVE_COUNT; id++)
            if (arch_save_stays(a, st, i, (enum arch_save)id) == stay)
                total += arena_round(
                    arch_save_bytes(d, arch_stage_part(a, st, i, &block), (enum arch_save)id));
    return total;
}

int64_t arch_slot_bytes(const struct arch *a, const struct arch_dims *d,
                        const struct arch_stage *st)
{
    int64_t out = arch_stage_head(a, st) ? 0 : arena_round(d->nl * d->c * d->ct);
    return saved_bytes(a, d, st, true) + out;
}

int64_t arch_save_set_bytes(const struct arch *a, const struct arch_dims *d,
                            const struct arch_stage *st)
{
    return saved_bytes(a, d, st, false);
}

int64_t arch_keep_set_bytes(const struct arch *a, const struct arch_dims *d,
                            const struct arch_stage *st, bool per_slot)
{
    int64_t total = 0, block;
    if (!per_slot) {
        for (int id = 0; id < KEEP_COUNT; id++)
            total += arena_round(num_max(arch_keep_bytes(d, PART_ATTN, (enum arch_keep)id),
                                         arch_keep_bytes(d, PART_MLP, (enum arch_keep)id)));
        return total;
    }
    for (int i = 0; i < arch_stage_parts(st); i++)
        for (int id = 0; id < KEEP_COUNT; id++)
            total += arena_round(
                arch_keep_bytes(d, arch_stage_part(a, st, i, &block), (enum arch_keep)id));
    return total;
}

int64_t arch_work_set_bytes(const struct arch_dims *d, const struct arch_split *s, bool head)
{
    int64_t total = 0;
    for (int id = 0; id < WORK_COUNT; id++)
        total += arena_round(arch_work_bytes(d, s, head, (enum arch_work)id));
    return total;
}
