/* SPDX-License-Identifier: Apache-2.0
 *
 * FLOPs of a part, and the cut of the layers into stages by them.
 *
 * The blocks of a model are alike, so the best contiguous cut is found greedily: every stage begins
 * with one block and what it must carry (embed, head); each further block goes to the stage that
 * stays cheapest. For equal items this minimises the costliest stage, and ties go to the earlier
 * stage, because a later stage also waits longer for its first input. With the ranks of the stages
 * known, the same is done to ranks, and within a rank to its stages.
 */
#include "arch/arch.h"

#include "base/mem.h"
#include "base/text.h"

/* Weights that a part's products read for each row. */
static double part_weights(const struct arch *a, enum arch_part part)
{
    double c = (double)a->hidden, hd = (double)(a->heads * a->head_dim);
    double kd = (double)(a->kv_heads * a->head_dim), f = (double)a->ffn;
    switch (part) {
    case PART_ATTN: return c * (hd + 2 * kd) + hd * c;
    case PART_MLP: return (arch_traits(a->kind)->gated ? 3 : 2) * c * f;
    case PART_HEAD: return c * (double)a->vocab;
    default: return 0;
    }
}

double arch_part_flops(const struct arch *a, enum arch_part part, int64_t n, int64_t t)
{
    double flops = 2.0 * (double)n * part_weights(a, part);
    if (part == PART_ATTN) /* scores and values, 2 FLOPs each, half of the keys on average */
        flops += 2.0 * (double)n * (double)t * (double)(a->heads * a->head_dim);
    return flops;
}

double arch_train_flops_per_token(const struct arch *a)
{
    double layer = part_weights(a, PART_ATTN) + part_weights(a, PART_MLP);
    double l = (double)a->layers;
    return 6.0 * (l * layer + part_weights(a, PART_HEAD)) +
           12.0 * l * (double)(a->heads * a->head_dim) * (double)a->seq;
}

/* What stages cost, for the cut. */
struct cut {
    int stages;
    const uint16_t *rank; /* of each stage; NULL: each is its own */
    double *alone, *total; /* owned; [stages] cost of a stage; of all stages of a rank */
};

static int rank_of(const struct cut *c, int stage)
{
    return c->rank ? c->rank[stage] : stage;
}

static void charge(struct cut *c, int stage, double cost)
{
    c->alone[stage] += cost;
    c->total[rank_of(c, stage)] += cost;
}

/* The stage that a block more hurts least. */
static int cheapest(const struct cut *c)
{
    int best = 0;
    for (int i = 1; i < c->stages; i++) {
        double here = c->total[rank_of(c, i)], least = c->total[rank_of(c, best)];
        if (here < least || (here == least && c->alone[i] < c->alone[best]))
            best = i;
    }
    return best;
}

/* Blocks are counted in `end` until all are dealt. */
static void share_out(const struct arch *a, struct cut *c, struct arch_stage *out)
{
    double block = arch_part_flops(a, PART_ATTN, a->seq, a->seq) +
                   arch_part_flops(a, PART_MLP, a->seq, a->seq);
    for (int i = 0; i < c->stages; i++) {
        out[i] = (struct arch_stage){.end = 2};
        charge(c, i, block);
    }
    charge(c, c->stages - 1, arch_part_flops(a, PART_HEAD, a->seq, a->seq));
    for (int64_t left = a->layers - c->stages; left > 0; left--) {
        int i = cheapest(c);
        out[i].end += 2;
        charge(c, i, block);
    }
    out[0].end++;             /* the embed */
    out[c->stages - 1].end++; /* the head */
    for (int i = 1; i < c->stages; i++) {
        out[i].first = out[i - 1].end;
        out[i].end += out[i].first;
    }
}

enum err arch_cut(const struct arch *a, int stages, const uint16_t *rank, struct arch_stage *out)
{
    struct cut c = {.stages = stages, .rank = rank};
    if (stages < 1 || stages > a->layers)
        FAIL(ERR_CONFIG, "parallel.pp x parallel.chunks makes %d stages of model.layers %lld; "
                         "every stage needs a layer, so use at most %lld stage%s",
             stages, (long long)a->layers, (long long)a->layers, text_plural(a->layers, "s"));
    for (int i = 0; rank && i < stages; i++)
        ENSURE(rank[i] < stages);
    enum err err = mem_new(stages, sizeof *c.alone, "the cut", &c.alone);
    if (err == ERR_OK)
        err = mem_new(stages, sizeof *c.total, "the cut", &c.total);
    if (err == ERR_OK)
        share_out(a, &c, out);
    mem_free(c.alone);
    mem_free(c.total);
    return err;
}
