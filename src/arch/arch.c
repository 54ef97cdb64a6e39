/* SPDX-License-Identifier: Apache-2.0
 *
 * Which models exist, and how the tensor axis may cut them. Every refusal names the key, its value,
 * the rule, and the legal values nearest to it, so that the next try succeeds. The rules are the
 * ones that the layers need and no stricter: kv heads may be fewer than tensor ranks, a vocabulary
 * may have any size.
 */
#include "arch/arch.h"

#include "base/text.h"
#include <stdio.h>

/* Extents above this are typing errors; below it no product of four extents and a size overflows
 * without num_mul seeing it. */
enum { ARCH_MAX_EXTENT = 1 << 24, ARCH_MAX_LAYERS = 10000 };

static enum err check_range(const char *key, int64_t value, int64_t max)
{
    if (value < 1 || value > max)
        FAIL(ERR_CONFIG, "%s is %lld; it has to be from 1 to %lld", key, (long long)value,
             (long long)max);
    return ERR_OK;
}

static enum err check_gpt(const struct arch *a)
{
    if (a->kv_heads != a->heads)
        FAIL(ERR_CONFIG, "model.kv_heads is %lld, but gpt has one key head for each of "
                         "model.heads %lld; use %lld, or model.kind llama",
             (long long)a->kv_heads, (long long)a->heads, (long long)a->heads);
    if (a->heads * a->head_dim != a->hidden)
        FAIL(ERR_CONFIG, "model.heads %lld times model.head_dim %lld is %lld, but gpt needs "
                         "model.hidden, %lld; use head_dim hidden / heads",
             (long long)a->heads, (long long)a->head_dim, (long long)(a->heads * a->head_dim),
             (long long)a->hidden);
    return ERR_OK;
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

enum err arch_check(const struct arch *a)
{
    TRY(check_range("model.layers", a->layers, ARCH_MAX_LAYERS));
    TRY(check_range("model.hidden", a->hidden, ARCH_MAX_EXTENT));
    TRY(check_range("model.heads", a->heads, 65536));
    TRY(check_range("model.kv_heads", a->kv_heads, 65536));
    TRY(check_range("model.head_dim", a->head_dim, 65536));
    TRY(check_range("model.ffn", a->ffn, ARCH_MAX_EXTENT));
    TRY(check_range("model.vocab", a->vocab, ARCH_MAX_EXTENT));
    TRY(check_range("model.seq", a->seq, ARCH_MAX_EXTENT));
    if (a->heads % a->kv_heads) {
        char legal[256];
        list_divisors(a->heads, a->kv_heads, legal, sizeof legal);
        FAIL(ERR_CONFIG, "model.kv_heads %lld does not divide model.heads %lld; use %s",
             (long long)a->kv_heads, (long long)a->heads, legal);
    }
    if (a->kind == ARCH_GPT)
        TRY(check_gpt(a));
    if (!arch_traits(a->kind)->positions && a->head_dim % 2)
        FAIL(ERR_CONFIG, "model.head_dim is %lld, but rotary positions turn pairs; use an even "
                         "number, %lld or %lld",
             (long long)a->head_dim, (long long)a->head_dim - 1, (long long)a->head_dim + 1);
    if (!(a->dropout >= 0.0 && a->dropout <= 0.9))
        FAIL(ERR_CONFIG, "model.dropout is %g; it has to be from 0 to 0.9", a->dropout);
    return ERR_OK;
}

/* Legal tensor sizes for these heads and this ffn, with and without repeated kv heads. */
static void list_tp(const struct arch *a, char *buf, size_t size)
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

enum err arch_check_split(const struct arch *a, const struct arch_split *s)
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

/* ---- kinds ---- */

const struct arch_traits *arch_traits(enum arch_kind kind)
{
    static const struct arch_traits traits[ARCH_KINDS] = {
        [ARCH_GPT] = {.name = "gpt", .positions = true, .bias = true},
        [ARCH_LLAMA] = {.name = "llama", .rms = true, .gated = true},
    };
    return &traits[kind];
}

/* ---- layers and stages ---- */

int64_t arch_layers(const struct arch *a)
{
    return 2 * a->layers + 2;
}

/* Output projections are drawn with std / sqrt(2 L), so that the residual stream's variance does
 * not grow with depth (Radford et al. 2019). */
struct layer arch_layer(const struct arch *a, int64_t at)
{
    const struct arch_traits *has = arch_traits(a->kind);
    bool first = at == 0, last = at == arch_layers(a) - 1;
    ENSURE(at >= 0 && at < arch_layers(a));
    return (struct layer){
        .type = first    ? &layer_type_embed
                : last   ? &layer_type_head
                : at % 2 ? &layer_type_attn
                         : &layer_type_mlp,
        .at = at, .block = first || last ? -1 : (at - 1) / 2,
        .dims = {.in = first ? 0 : a->hidden, .out = last ? 0 : a->hidden, .rows = a->seq,
                 .heads = a->heads, .kv_heads = a->kv_heads, .head_dim = a->head_dim, .ffn = a->ffn,
                 .vocab = a->vocab, .bias = has->bias, .rms = has->rms, .gated = has->gated,
                 .positions = has->positions, .tied = a->tied, .dropout = a->dropout,
                 .norm_eps = a->norm_eps, .rope_theta = a->rope_theta, .init_std = a->init_std,
                 .out_std = a->init_std / sqrt(2.0 * (double)a->layers)}};
}

bool arch_rotary(const struct arch *a)
{
    bool found = false;
    for (int64_t i = 0; i < arch_layers(a) && !found; i++) {
        struct layer l = arch_layer(a, i);
        found = l.type == &layer_type_attn && !l.dims.positions;
    }
    return found;
}

int arch_stage_parts(const struct arch_stage *st)
{
    return (int)(st->end - st->first);
}

bool arch_stage_has(const struct arch_stage *st, int64_t layer)
{
    return layer >= st->first && layer < st->end;
}

bool arch_stage_embed(const struct arch_stage *st)
{
    return st->first == 0;
}

bool arch_stage_head(const struct arch *a, const struct arch_stage *st)
{
    return st->end == arch_layers(a);
}

bool arch_stage_apart(const struct arch_stage *st)
{
    return !arch_stage_embed(st) && !st->embed_beside;
}
