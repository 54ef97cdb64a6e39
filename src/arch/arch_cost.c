/* SPDX-License-Identifier: Apache-2.0
 *
 * FLOPs of a part, and the cut of the layers into stages by them.
 *
 * The blocks of a model are alike, so the best contiguous cut is found greedily: every stage begins
 * with one block and what it must carry (embed, head); each further block goes to the stage that
 * stays cheapest. For equal items this minimises the costliest stage, and ties go to the earlier
 * stage, because a later stage also waits longer for its first input.
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
    case PART_MLP: return (a->kind == ARCH_LLAMA ? 3 : 2) * c * f;
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

enum err arch_cut(const struct arch *a, int stages, struct arch_stage *out)
{
    if (stages < 1 || stages > a->layers)
        FAIL(ERR_CONFIG, "parallel.pp x parallel.chunks makes %d stages of model.layers %lld; "
                         "every stage needs a layer, so use at most %lld stage%s",
             stages, (long long)a->layers, (long long)a->layers, text_plural(a->layers, "s"));
    double block = arch_part_flops(a, PART_ATTN, a->seq, a->seq) +
                   arch_part_flops(a, PART_MLP, a->seq, a->seq);
    double head = arch_part_flops(a, PART_HEAD, a->seq, a->seq);
    for (int i = 0; i < stages; i++)
        out[i] = (struct arch_stage){.blocks = 1, .embed = i == 0, .head = i == stages - 1};
    for (int64_t left = a->layers - stages; left > 0; left--) {
        int best = 0;
        double least = INFINITY;
        for (int i = 0; i < stages; i++) {
            double cost = (double)out[i].blocks * block + (out[i].head ? head : 0);
            if (cost < least) {
                least = cost;
                best = i;
            }
        }
        out[best].blocks++;
    }
    for (int i = 1; i < stages; i++)
        out[i].first = out[i - 1].first + out[i - 1].blocks;
    return ERR_OK;
}
