/* SPDX-License-Identifier: Apache-2.0
 *
 * The one list of parameters. Reduction, clipping, optimizer, weights on disk and the memory plan
 * all derive from it, so nothing is listed twice. A part's parameters stand in storage order;
 * q, k, v (and gate, up) lie directly behind one another, so that one product serves them all.
 *
 * Output projections are drawn with std / sqrt(2 L), so that the residual stream's variance does
 * not grow with depth (Radford et al. 2019).
 */
#include "arch/arch.h"

#include "base/mem.h"
#include <stdio.h>

/* A part's parameters being listed. */
struct list {
    const struct arch *a;
    struct arch_param *out;
    int n;
    enum arch_part part;
    int64_t block;
};

static struct arch_param *put(struct list *l, enum arch_role role, const char *what, int64_t rows,
                              int64_t cols)
{
    static const char *const part_name[PART_COUNT] = {"embed", "attn", "mlp", "head"};
    struct arch_param *p = &l->out[l->n++];
    *p = (struct arch_param){.part = l->part, .role = role, .block = l->block,
                             .shape = {rows, cols}, .slice = SLICE_NONE};
    if (l->block >= 0)
        snprintf(p->name, sizeof p->name, "layers.%lld.%s.%s", (long long)l->block,
                 part_name[l->part], what);
    else
        snprintf(p->name, sizeof p->name, "%s.%s", part_name[l->part], what);
    return p;
}

/* A matrix (out, in): decays, drawn from a normal. */
static struct arch_param *put_matrix(struct list *l, enum arch_role role, const char *what,
                                     const int64_t shape[2], enum arch_slice slice)
{
    struct arch_param *p = put(l, role, what, shape[0], shape[1]);
    p->slice = slice;
    p->decay = true;
    p->init = INIT_NORMAL;
    p->std = l->a->init_std;
    return p;
}

static void put_norm(struct list *l)
{
    struct arch_param *w = put(l, ROLE_NORM_W, "norm.weight", l->a->hidden, 1);
    w->init = INIT_ONE;
    w->rows_partial = true;
    if (arch_traits(l->a->kind)->bias)
        put(l, ROLE_NORM_B, "norm.bias", l->a->hidden, 1)->rows_partial = true;
}

static void list_embed(struct list *l)
{
    const struct arch *a = l->a;
    put_matrix(l, ROLE_TOKENS, "tokens", (int64_t[]){a->vocab, a->hidden}, SLICE_VOCAB);
    if (arch_traits(a->kind)->positions)
        put_matrix(l, ROLE_POSITIONS, "positions", (int64_t[]){a->seq, a->hidden}, SLICE_NONE)
            ->rows_partial = true;
}

static void list_attn(struct list *l)
{
    const struct arch *a = l->a;
    int64_t q = a->heads * a->head_dim, kv = a->kv_heads * a->head_dim;
    bool bias = arch_traits(a->kind)->bias;
    put_norm(l);
    put_matrix(l, ROLE_Q_W, "q.weight", (int64_t[]){q, a->hidden}, SLICE_ROWS);
    put_matrix(l, ROLE_K_W, "k.weight", (int64_t[]){kv, a->hidden}, SLICE_KV)->joined = true;
    put_matrix(l, ROLE_V_W, "v.weight", (int64_t[]){kv, a->hidden}, SLICE_KV)->joined = true;
    if (bias) {
        put(l, ROLE_Q_B, "q.bias", q, 1)->slice = SLICE_ROWS;
        struct arch_param *k = put(l, ROLE_K_B, "k.bias", kv, 1);
        struct arch_param *v = put(l, ROLE_V_B, "v.bias", kv, 1);
        k->slice = v->slice = SLICE_KV;
        k->joined = v->joined = true;
    }
    put_matrix(l, ROLE_O_W, "o.weight", (int64_t[]){a->hidden, q}, SLICE_COLS)->std =
        a->init_std / sqrt(2.0 * (double)a->layers);
    if (bias)
        put(l, ROLE_O_B, "o.bias", a->hidden, 1);
}

static void list_mlp(struct list *l)
{
    const struct arch *a = l->a;
    const struct arch_traits *has = arch_traits(a->kind);
    put_norm(l);
    if (has->gated)
        put_matrix(l, ROLE_GATE_W, "gate.weight", (int64_t[]){a->ffn, a->hidden}, SLICE_ROWS);
    put_matrix(l, ROLE_UP_W, "up.weight", (int64_t[]){a->ffn, a->hidden}, SLICE_ROWS)->joined =
        has->gated;
    if (has->bias)
        put(l, ROLE_UP_B, "up.bias", a->ffn, 1)->slice = SLICE_ROWS;
    put_matrix(l, ROLE_DOWN_W, "down.weight", (int64_t[]){a->hidden, a->ffn}, SLICE_COLS)->std =
        a->init_std / sqrt(2.0 * (double)a->layers);
    if (has->bias)
        put(l, ROLE_DOWN_B, "down.bias", a->hidden, 1);
}

static void list_head(struct list *l, bool apart)
{
    const struct arch *a = l->a;
    put_norm(l);
    if (a->tied && !apart)
        return; /* the rank's own embedding serves */
    struct arch_param *w = put_matrix(l, ROLE_HEAD_W, "weight",
                                      (int64_t[]){a->vocab, a->hidden}, SLICE_VOCAB);
    if (a->tied) {
        snprintf(w->name, sizeof w->name, "embed.tokens");
        w->tied_copy = true;
    }
}

int arch_part_params(const struct arch *a, enum arch_part part, int64_t block, bool apart,
                     struct arch_param out[ARCH_PART_PARAMS])
{
    struct list l = {.a = a, .out = out, .part = part, .block = block};
    switch (part) {
    case PART_EMBED: list_embed(&l); break;
    case PART_ATTN: list_attn(&l); break;
    case PART_MLP: list_mlp(&l); break;
    case PART_HEAD: list_head(&l, apart); break;
    case PART_COUNT: break;
    }
    ENSURE(l.n <= ARCH_PART_PARAMS);
    return l.n;
}

enum err arch_model_params(const struct arch *a, struct arch_param **out, int *n)
{
    struct arch_param *p;
    int64_t layers = arch_layers(a);
    int made = 0;
    TRY(mem_new(layers * ARCH_PART_PARAMS, sizeof *p, "the list of parameters", &p));
    for (int64_t i = 0; i < layers; i++) {
        int64_t block;
        enum arch_part part = arch_layer(a, i, &block);
        made += arch_part_params(a, part, block, false, p + made);
    }
    *out = p;
    *n = made;
    return ERR_OK;
}

void arch_param_box(const struct arch *a, const struct arch_split *s, const struct arch_param *p,
                    int tp_rank, struct arch_box *out)
{
    *out = (struct arch_box){.local = {p->shape[0], p->shape[1]},
                             .real = {p->shape[0], p->shape[1]}};
    int dim = p->slice == SLICE_COLS;
    int64_t whole = p->shape[dim], each = whole / s->tp, at = each * tp_rank;
    if (p->slice == SLICE_NONE)
        return;
    if (p->slice == SLICE_KV && a->kv_heads < s->tp) {
        each = whole / a->kv_heads;
        at = each * ((int64_t)tp_rank * a->kv_heads / s->tp);
    }
    out->local[dim] = out->real[dim] = each;
    out->at[dim] = at;
    if (p->slice == SLICE_VOCAB) {
        each = num_ceil_div(whole, s->tp);
        out->at[0] = num_min(each * tp_rank, whole);
        out->local[0] = each;
        out->real[0] = num_min(each, whole - out->at[0]);
    }
}

/* copies: those of tied matrices, too. */
static int64_t stage_elements(const struct arch *a, const struct arch_split *s,
                              const struct arch_stage *st, bool copies)
{
    struct arch_param p[ARCH_PART_PARAMS];
    int64_t total = 0;
    for (int i = 0; i < arch_stage_parts(st); i++) {
        int64_t block;
        enum arch_part part = arch_stage_part(a, st, i, &block);
        int n = arch_part_params(a, part, block, arch_stage_apart(st), p);
        for (int j = 0; j < n; j++) {
            struct arch_box box;
            if (p[j].tied_copy && !copies)
                continue;
            arch_param_box(a, s, &p[j], 0, &box);
            if (!p[j].joined)
                total = num_ceil_div(total, ARCH_PARAM_ALIGN) * ARCH_PARAM_ALIGN;
            total += box.local[0] * box.local[1];
        }
    }
    return num_ceil_div(total, ARCH_PARAM_ALIGN) * ARCH_PARAM_ALIGN;
}

int64_t arch_stage_elements(const struct arch *a, const struct arch_split *s,
                            const struct arch_stage *st)
{
    return stage_elements(a, s, st, true);
}

int64_t arch_saved_elements(const struct arch *a, const struct arch_split *s,
                            const struct arch_stage *st, int ranks)
{
    int64_t share = arch_shared_elements(stage_elements(a, s, st, true), ranks) / ranks;
    return num_min(share, stage_elements(a, s, st, false));
}

int64_t arch_shared_elements(int64_t n, int shares)
{
    return num_ceil_div(n, (int64_t)ARCH_PARAM_ALIGN * shares) * ARCH_PARAM_ALIGN * shares;
}

static int64_t part_elements(const struct arch *a, enum arch_part part, int64_t block)
{
    struct arch_param p[ARCH_PART_PARAMS];
    int64_t total = 0;
    int n = arch_part_params(a, part, block, false, p);
    for (int j = 0; j < n; j++)
        total += p[j].shape[0] * p[j].shape[1];
    return total;
}

int64_t arch_params(const struct arch *a)
{
    return part_elements(a, PART_EMBED, -1) + part_elements(a, PART_HEAD, -1) +
           a->layers * (part_elements(a, PART_ATTN, 0) + part_elements(a, PART_MLP, 0));
}
