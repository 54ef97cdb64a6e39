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

/* Items of the partitioner: each begins at a layer. */
struct items {
    int64_t n;
    double *cost;   /* owned; [n] */
    int64_t *first; /* owned; [n + 1] */
};

static void items_close(struct items *it)
{
    mem_free(it->cost);
    mem_free(it->first);
}

/* Blocks, or layers; what stands before the first block or behind the last belongs to it. */
static enum err items_open(const struct model *a, bool blocks, struct items *it)
{
    int64_t layers = model_layers(a);
    struct layer before = {.block = -1};
    *it = (struct items){0};
    TRY(mem_new(layers, sizeof *it->cost, "the cut", &it->cost));
    enum err err = mem_new(layers + 1, sizeof *it->first, "the cut", &it->first);
    for (int64_t i = 0; i < layers && err == ERR_OK; i++) {
        struct layer l = model_layer(a, i);
        bool inside = before.block >= 0 && l.block >= 0;
        if (i == 0 || (inside && (!blocks || l.block != before.block)))
            it->first[it->n++] = i;
        it->cost[it->n - 1] += model_layer_flops(&l, l.dims.rows, l.dims.rows);
        before = l;
    }
    if (err == ERR_OK)
        it->first[it->n] = layers;
    else
        items_close(it);
    return err;
}

static void write_cut(const struct items *it, int stages, const int64_t *at,
                      struct model_stage *cut)
{
    for (int i = 0; i < stages; i++)
        cut[i] = (struct model_stage){it->first[at[i]], it->first[at[i + 1]], false};
}

/* Bounds of stages as items; all of them are bounds of items. */
static void read_cut(const struct items *it, int stages, const struct model_stage *cut, int64_t *at)
{
    at[0] = 0;
    for (int i = 0; i < stages; i++)
        for (at[i + 1] = at[i]; it->first[at[i + 1]] < cut[i].end;)
            at[i + 1]++;
}

enum err model_cut(const struct model *a, int stages, const uint16_t *rank, struct model_stage *out)
{
    struct items it;
    int64_t *at = NULL;
    double most[2];
    if (stages < 1 || stages > a->layers)
        FAIL(ERR_CONFIG, "parallel.pp x parallel.chunks makes %d stages of %s %lld; "
                         "every stage needs a layer, so use at most %lld stage%s",
             stages, model_traits(a->kind)->blocks, (long long)a->layers, (long long)a->layers,
             text_plural(a->layers, "s"));
    TRY(items_open(a, true, &it));
    enum err err = mem_new(stages + 1, sizeof *at, "the cut", &at);
    for (int i = 0; err == ERR_OK && i <= stages; i++)
        at[i] = i * it.n / stages; /* the partitioner wants some cut */
    if (err == ERR_OK)
        err = partition_improve(&(struct partition){it.cost, it.n, stages, rank}, at, most);
    if (err == ERR_OK)
        write_cut(&it, stages, at, out);
    mem_free(at);
    items_close(&it);
    return err;
}

enum err model_cut_finer(const struct model *a, int stages, const uint16_t *rank, double worth,
                         struct model_stage *cut, bool *finer)
{
    struct items it;
    int64_t *at = NULL;
    TRY(items_open(a, false, &it));
    struct partition p = {it.cost, it.n, stages, rank};
    enum err err = mem_new(stages + 1, sizeof *at, "the cut", &at);
    if (err == ERR_OK) {
        double most[2] = {0};
        read_cut(&it, stages, cut, at);
        err = partition_improve(&p, at, most);
        *finer = rank || most[1] <= most[0] * (1 - worth);
    }
    if (err == ERR_OK && *finer)
        write_cut(&it, stages, at, cut);
    mem_free(at);
    items_close(&it);
    return err;
}
