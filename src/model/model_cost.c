/* SPDX-License-Identifier: Apache-2.0
 *
 * FLOPs of a layer, and the cut of the layers into stages by them: between blocks, or finer,
 * between any two layers. What stands before the blocks or behind them belongs to the first or the
 * last item of the partitioner.
 */
#include "model/model.h"

#include "model/partition.h"
#include "base/mem.h"
#include "base/text.h"

double model_layer_flops(const struct layer *l, int64_t n, int64_t t)
{
    double flops = l->type->weights ? 2.0 * (double)n * l->type->weights(l) : 0;
    if (l->type->scores) /* scores and values, 2 FLOPs each, half of the keys on average */
        flops += 2.0 * (double)n * (double)t * l->type->scores(l);
    return flops;
}

double model_flops(const struct model *a, const struct model_stage *st, bool once_more)
{
    double flops = 0;
    for (int64_t i = st->first; i < st->end; i++) {
        struct layer l = model_layer(a, i);
        if (!once_more || !l.type->loss)
            flops += model_layer_flops(&l, l.dims.rows, l.dims.rows);
    }
    return flops;
}

/* What is dealt to stages: blocks, or any layers; what stands before the first block or behind the
 * last belongs to it. Of blocks any cut is a beginning, of layers the one that there is, which is
 * then made finer where that is worth it. */
static enum err cut_by(const struct model *a, bool blocks, int stages, const uint16_t *rank,
                       double worth, struct model_stage *cut, bool *made)
{
    struct partition p = {.stages = stages, .rank = rank};
    struct layer before = {.block = -1};
    int64_t layers = model_layers(a), *first = NULL, *at = NULL; /* layer of an item; the cut */
    double *cost = NULL, most[2] = {0};
    enum err err;
    TRY_OR(out, mem_new(layers, sizeof *cost, "the cut", &cost));
    TRY_OR(out, mem_new(layers + 1, sizeof *first, "the cut", &first));
    TRY_OR(out, mem_new(stages + 1, sizeof *at, "the cut", &at));
    for (int64_t i = 0; i < layers; i++) {
        struct layer l = model_layer(a, i);
        bool inside = before.block >= 0 && l.block >= 0;
        if (i == 0 || (inside && (!blocks || l.block != before.block)))
            first[p.items++] = i;
        cost[p.items - 1] += model_layer_flops(&l, l.dims.rows, l.dims.rows);
        before = l;
    }
    first[p.items] = layers;
    p.cost = cost;
    for (int i = 0; i < stages; i++) {
        at[i + 1] = blocks ? (i + 1) * p.items / stages : at[i];
        while (!blocks && first[at[i + 1]] < cut[i].end)
            at[i + 1]++;
    }
    TRY_OR(out, partition_improve(&p, at, most));
    *made = blocks || rank || most[1] <= most[0] * (1 - worth);
    for (int i = 0; i < stages && *made; i++)
        cut[i] = (struct model_stage){first[at[i]], first[at[i + 1]], false};
out:
    mem_free(at);
    mem_free(first);
    mem_free(cost);
    return err;
}

enum err model_cut(const struct model *a, int stages, const uint16_t *rank, struct model_stage *out)
{
    bool made;
    if (stages < 1 || stages > a->layers)
        FAIL(ERR_CONFIG, "parallel.pp x parallel.chunks makes %d stages of %s %lld; "
                         "every stage needs a layer, so use at most %lld stage%s",
             stages, model_traits(a->kind)->blocks, (long long)a->layers, (long long)a->layers,
             text_plural(a->layers, "s"));
    return cut_by(a, true, stages, rank, 0, out, &made);
}

enum err model_cut_finer(const struct model *a, int stages, const uint16_t *rank, double worth,
                         struct model_stage *cut, bool *finer)
{
    return cut_by(a, false, stages, rank, worth, cut, finer);
}
