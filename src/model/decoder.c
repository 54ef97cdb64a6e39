/* SPDX-License-Identifier: Apache-2.0
 *
 * The decoders, gpt and llama: one embed, then attn and mlp for each of L blocks, then one head.
 * Which of them exist, and how the tensor axis may cut them: every refusal names the key, its
 * value, the rule, and the legal values nearest to it, so that the next try succeeds. The rules are
 * the ones that the layers need and no stricter: kv heads may be fewer than tensor ranks, a
 * vocabulary may have any size.
 */
#include "model/model.h"

#include "base/text.h"
#include <stdio.h>

static const struct model_traits *traits(const struct model *a)
{
    return a->kind == MODEL_LLAMA ? &model_llama : &model_gpt;
}

/* "1, 2, 4" : divisors of n, at most the 12 nearest to `near`. */
static void list_divisors(int64_t n, int64_t near, char *buf, size_t size)
{
    int64_t found[64];
    int count = 0;
    for (int64_t i = 1; i <= n && count < 64; i++)
        if (n % i == 0)
            found[count++] = i;
    int from = 0;
    while (count - from > 12 && found[from + 6] < near)
        from++;
    size_t used = 0;
    buf[0] = '\0';
    for (int i = from; i < count && i < from + 12 && used + 24 < size; i++)
        used += (size_t)snprintf(buf + used, size - used, "%s%lld", i > from ? ", " : "",
                                 (long long)found[i]);
}

static enum err check(const struct model *a)
{
    TRY(model_check_range("model.layers", a->layers, MODEL_MAX_LAYERS));
    TRY(model_check_range("model.hidden", a->hidden, MODEL_MAX_EXTENT));
    TRY(model_check_range("model.heads", a->heads, 65536));
    TRY(model_check_range("model.kv_heads", a->kv_heads, 65536));
    TRY(model_check_range("model.head_dim", a->head_dim, 65536));
    TRY(model_check_range("model.ffn", a->ffn, MODEL_MAX_EXTENT));
    TRY(model_check_range("model.vocab", a->vocab, MODEL_MAX_EXTENT));
    TRY(model_check_range("model.seq", a->seq, MODEL_MAX_EXTENT));
    if (a->heads % a->kv_heads) {
        char legal[256];
        list_divisors(a->heads, a->kv_heads, legal, sizeof legal);
        FAIL(ERR_CONFIG, "model.kv_heads %lld does not divide model.heads %lld; use %s",
             (long long)a->kv_heads, (long long)a->heads, legal);
    }
    if (a->kind == MODEL_GPT && a->kv_heads != a->heads)
        FAIL(ERR_CONFIG, "model.kv_heads is %lld, but gpt has one key head for each of "
                         "model.heads %lld; use %lld, or model.kind llama",
             (long long)a->kv_heads, (long long)a->heads, (long long)a->heads);
    if (a->kind == MODEL_GPT && a->heads * a->head_dim != a->hidden)
        FAIL(ERR_CONFIG, "model.heads %lld times model.head_dim %lld is %lld, but gpt needs "
                         "model.hidden, %lld; use head_dim hidden / heads",
             (long long)a->heads, (long long)a->head_dim, (long long)(a->heads * a->head_dim),
             (long long)a->hidden);
    if (!traits(a)->positions && a->head_dim % 2)
        FAIL(ERR_CONFIG, "model.head_dim is %lld, but rotary positions turn pairs; use an even "
                         "number, %lld or %lld",
             (long long)a->head_dim, (long long)a->head_dim - 1, (long long)a->head_dim + 1);
    if (!(a->dropout >= 0.0 && a->dropout <= 0.9))
        FAIL(ERR_CONFIG, "model.dropout is %g; it has to be from 0 to 0.9", a->dropout);
    return ERR_OK;
}

/* Legal tensor sizes for these heads and this ffn, with and without repeated kv heads. */
static void list_tp(const struct model *a, char *buf, size_t size)
{
    size_t used = 0;
    buf[0] = '\0';
    for (int replicated = 0; replicated < 2; replicated++) {
        bool first = true;
        for (int64_t tp = 1; tp <= a->heads; tp++) {
            if (a->heads % tp || a->ffn % tp || used + 64 > size)
                continue;
            if (replicated ? (a->kv_heads % tp == 0 || tp % a->kv_heads) : a->kv_heads % tp != 0)
                continue;
            const char *before = !first ? ", " : replicated ? "; with kv heads repeated " : "";
            used += (size_t)snprintf(buf + used, size - used, "%s%lld", before, (long long)tp);
            first = false;
        }
    }
}

static enum err check_split(const struct model *a, const struct model_split *s)
{
    char legal[512];
    list_tp(a, legal, sizeof legal);
    if (s->tp < 1)
        FAIL(ERR_CONFIG, "parallel.tp is %d; it has to be at least 1", s->tp);
    if (a->heads % s->tp)
        FAIL(ERR_CONFIG, "parallel.tp %d does not divide model.heads %lld; legal tp: %s", s->tp,
             (long long)a->heads, legal);
    if (a->kv_heads % s->tp && s->tp % a->kv_heads)
        FAIL(ERR_CONFIG, "parallel.tp %d is neither a divisor nor a multiple of model.kv_heads "
                         "%lld; legal tp: %s", s->tp, (long long)a->kv_heads, legal);
    if (a->ffn % s->tp)
        FAIL(ERR_CONFIG, "parallel.tp %d does not divide model.ffn %lld; legal tp: %s", s->tp,
             (long long)a->ffn, legal);
    if (s->tp > a->vocab)
        FAIL(ERR_CONFIG, "parallel.tp %d is more than model.vocab %lld has rows; legal tp: %s",
             s->tp, (long long)a->vocab, legal);
    if (s->sp && a->seq % s->tp)
        FAIL(ERR_CONFIG, "model.seq %lld is not a multiple of parallel.tp %d, which parallel.sp "
                         "needs; use seq %lld or %lld",
             (long long)a->seq, s->tp, (long long)(a->seq / s->tp * s->tp),
             (long long)(num_ceil_div(a->seq, s->tp) * s->tp));
    return ERR_OK;
}

static int64_t layers(const struct model *a)
{
    return 2 * a->layers + 2;
}

/* Output projections are drawn with std / sqrt(2 L), so that the residual stream's variance does
 * not grow with depth (Radford et al. 2019). */
static struct layer layer(const struct model *a, int64_t at)
{
    const struct model_traits *has = traits(a);
    bool first = at == 0, last = at == layers(a) - 1;
    return (struct layer){
        .type = first    ? &layer_type_embed
                : last   ? &layer_type_head
                : at % 2 ? &layer_type_attn
                         : &layer_type_mlp,
        .at = at, .block = first || last ? -1 : (at - 1) / 2,
        .dims = {.in = first ? 0 : a->hidden, .out = last ? 0 : a->hidden, .rows = a->seq,
                 .heads = a->heads, .kv_heads = a->kv_heads, .head_dim = a->head_dim, .ffn = a->ffn,
                 .vocab = a->vocab, .norm = true, .bias = has->bias, .rms = has->rms,
                 .gated = has->gated, .positions = has->positions, .tied = a->tied,
                 .dropout = a->dropout, .norm_eps = a->norm_eps, .rope_theta = a->rope_theta,
                 .init_std = a->init_std, .out_std = a->init_std / sqrt(2.0 * (double)a->layers)}};
}

const struct model_traits model_gpt = {
    .name = "gpt", .layers = layers, .layer = layer, .check = check, .check_split = check_split,
    .blocks = "model.layers", .text = true, .positions = true, .bias = true};
const struct model_traits model_llama = {
    .name = "llama", .layers = layers, .layer = layer, .check = check, .check_split = check_split,
    .blocks = "model.layers", .text = true, .rms = true, .gated = true};
