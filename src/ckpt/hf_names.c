/* SPDX-License-Identifier: Apache-2.0
 *
 * Where plait's parameters lie in Hugging Face's files.
 *
 * llama has one tensor for each parameter, (out, in) as here. gpt2 is older: its linear layers are
 * `Conv1D` with weights (in, out), and q, k, v are one of them:
 *
 *     c_attn.weight (C, 3C):   columns 0..C-1 q, C..2C-1 k, 2C..3C-1 v;   c_attn.bias (3C) alike
 *
 * so a parameter is named by tensor, whether it is transposed, and its first output row. wte, wpe
 * and lm_head are embeddings and a plain linear layer: not transposed.
 *
 * GPT2LMHeadModel saves its body under "transformer." and, when the head is tied, no head at all;
 * an untied head is "lm_head.weight" beside the body. These names load into both GPT2LMHeadModel
 * and GPT2Model. The published gpt2 files come from the bare GPT2Model and lack the prefix, which
 * hf_find allows for.
 */
#include "ckpt/ckpt.h"

#include <stdio.h>
#include <string.h>

/* Name of a role; within its block when the part is attn or mlp, else whole. */
struct hf_name {
    enum arch_part part;
    enum arch_role role;
    const char *name;
};

static const struct hf_name gpt_names[] = {
    {PART_EMBED, ROLE_TOKENS, "transformer.wte.weight"},
    {PART_EMBED, ROLE_POSITIONS, "transformer.wpe.weight"},
    {PART_ATTN, ROLE_NORM_W, "ln_1.weight"},
    {PART_ATTN, ROLE_NORM_B, "ln_1.bias"},
    {PART_ATTN, ROLE_Q_W, "attn.c_attn.weight"},
    {PART_ATTN, ROLE_K_W, "attn.c_attn.weight"},
    {PART_ATTN, ROLE_V_W, "attn.c_attn.weight"},
    {PART_ATTN, ROLE_Q_B, "attn.c_attn.bias"},
    {PART_ATTN, ROLE_K_B, "attn.c_attn.bias"},
    {PART_ATTN, ROLE_V_B, "attn.c_attn.bias"},
    {PART_ATTN, ROLE_O_W, "attn.c_proj.weight"},
    {PART_ATTN, ROLE_O_B, "attn.c_proj.bias"},
    {PART_MLP, ROLE_NORM_W, "ln_2.weight"},
    {PART_MLP, ROLE_NORM_B, "ln_2.bias"},
    {PART_MLP, ROLE_UP_W, "mlp.c_fc.weight"},
    {PART_MLP, ROLE_UP_B, "mlp.c_fc.bias"},
    {PART_MLP, ROLE_DOWN_W, "mlp.c_proj.weight"},
    {PART_MLP, ROLE_DOWN_B, "mlp.c_proj.bias"},
    {PART_HEAD, ROLE_NORM_W, "transformer.ln_f.weight"},
    {PART_HEAD, ROLE_NORM_B, "transformer.ln_f.bias"},
    {PART_HEAD, ROLE_HEAD_W, "lm_head.weight"},
};

static const struct hf_name llama_names[] = {
    {PART_EMBED, ROLE_TOKENS, "model.embed_tokens.weight"},
    {PART_ATTN, ROLE_NORM_W, "input_layernorm.weight"},
    {PART_ATTN, ROLE_Q_W, "self_attn.q_proj.weight"},
    {PART_ATTN, ROLE_K_W, "self_attn.k_proj.weight"},
    {PART_ATTN, ROLE_V_W, "self_attn.v_proj.weight"},
    {PART_ATTN, ROLE_O_W, "self_attn.o_proj.weight"},
    {PART_MLP, ROLE_NORM_W, "post_attention_layernorm.weight"},
    {PART_MLP, ROLE_GATE_W, "mlp.gate_proj.weight"},
    {PART_MLP, ROLE_UP_W, "mlp.up_proj.weight"},
    {PART_MLP, ROLE_DOWN_W, "mlp.down_proj.weight"},
    {PART_HEAD, ROLE_NORM_W, "model.norm.weight"},
    {PART_HEAD, ROLE_HEAD_W, "lm_head.weight"},
};

static const char *name_of(enum arch_kind kind, enum arch_part part, enum arch_role role)
{
    const struct hf_name *t = kind == ARCH_GPT ? gpt_names : llama_names;
    size_t n = kind == ARCH_GPT ? sizeof gpt_names / sizeof *gpt_names
                                : sizeof llama_names / sizeof *llama_names;
    size_t i = 0;
    while (i < n && (t[i].part != part || t[i].role != role))
        i++;
    ENSURE(i < n); /* arch.h lists no other role for this kind */
    return t[i].name;
}

/* Rows of c_attn before this role's. */
static int64_t fused_row(const struct arch *a, enum arch_role role)
{
    int64_t q = a->heads * a->head_dim, kv = a->kv_heads * a->head_dim;
    if (role == ROLE_K_W || role == ROLE_K_B)
        return q;
    return role == ROLE_V_W || role == ROLE_V_B ? q + kv : 0;
}

static bool is_fused(enum arch_role role)
{
    return role >= ROLE_Q_W && role <= ROLE_V_B;
}

static bool is_vector(enum arch_role role)
{
    static const bool vector[ROLE_COUNT] = {
        [ROLE_NORM_W] = true, [ROLE_NORM_B] = true, [ROLE_Q_B] = true,  [ROLE_K_B] = true,
        [ROLE_V_B] = true,    [ROLE_O_B] = true,    [ROLE_UP_B] = true, [ROLE_DOWN_B] = true};
    return vector[role];
}

void hf_place(const struct arch *a, const struct arch_param *p, struct hf_place *out)
{
    enum arch_part part = p->tied_copy ? PART_EMBED : p->part;
    enum arch_role role = p->tied_copy ? ROLE_TOKENS : p->role;
    const char *name = name_of(a->kind, part, role);
    struct hf_place h = {.nd = is_vector(role) ? 1 : 2, .shape = {p->shape[0], p->shape[1]}};
    if (part == PART_ATTN || part == PART_MLP)
        snprintf(h.tensor, sizeof h.tensor, "%s.%lld.%s",
                 a->kind == ARCH_GPT ? "transformer.h" : "model.layers", (long long)p->block, name);
    else
        snprintf(h.tensor, sizeof h.tensor, "%s", name);
    if (a->kind == ARCH_GPT && is_fused(role)) {
        h.out0 = fused_row(a, role);
        h.shape[0] = (a->heads + 2 * a->kv_heads) * a->head_dim;
    }
    h.transposed = a->kind == ARCH_GPT && h.nd == 2 && (part == PART_ATTN || part == PART_MLP);
    if (h.transposed) {
        int64_t rows = h.shape[0];
        h.shape[0] = h.shape[1];
        h.shape[1] = rows;
    }
    *out = h;
}

/* "(768, 2304)" of a shape. */
static const char *shape_text(int nd, const int64_t *shape, char buf[96])
{
    size_t used = (size_t)snprintf(buf, 96, "(");
    for (int i = 0; i < nd; i++)
        used +=
            (size_t)snprintf(buf + used, 96 - used, "%s%lld", i ? ", " : "", (long long)shape[i]);
    snprintf(buf + used, 96 - used, ")");
    return buf;
}

/* By either name; NULL: none. */
static const struct safet_entry *lookup(const struct safet_file *f, const struct hf_place *place)
{
    static const char prefix[] = "transformer.";
    const struct safet_entry *e = safet_find(f, place->tensor);
    if (!e && strncmp(place->tensor, prefix, sizeof prefix - 1) == 0)
        e = safet_find(f, place->tensor + sizeof prefix - 1);
    return e;
}

static const struct safet_entry *lookup_role(const struct safet_file *f, const struct arch *a,
                                             const struct arch_param *p)
{
    struct hf_place at;
    hf_place(a, p, &at);
    return lookup(f, &at);
}

enum err hf_check_rest(const struct safet_file *f, const struct arch *a)
{
    const struct safet_entry *next = lookup_role(
        f, a, &(struct arch_param){.part = PART_ATTN, .role = ROLE_NORM_W, .block = a->layers});
    const struct safet_entry *head = lookup_role(
        f, a, &(struct arch_param){.part = PART_HEAD, .role = ROLE_HEAD_W, .block = -1});
    const struct safet_entry *tokens = lookup_role(
        f, a, &(struct arch_param){.part = PART_EMBED, .role = ROLE_TOKENS, .block = -1});
    if (next)
        FAIL(ERR_CHECKPOINT,
             "ckpt: %s has %s, a layer after the last of model.layers %lld; use weights of this "
             "model, or set model.layers to that of the weights",
             f->path, next->name, (long long)a->layers);
    if (!a->tied || !head || !tokens)
        return ERR_OK;
    int64_t bytes = tokens->end - tokens->begin;
    bool same = head->dt == tokens->dt && head->end - head->begin == bytes;
    if (!same || memcmp(f->data + head->begin, f->data + tokens->begin, (size_t)bytes) != 0)
        FAIL(ERR_CHECKPOINT,
             "ckpt: %s of %s is not the embedding, which model.tied true would use in its place; "
             "set model.tied=false", head->name, f->path);
    return ERR_OK;
}

enum err hf_find(const struct safet_file *f, const struct hf_place *place,
                 const struct safet_entry **out)
{
    const struct safet_entry *e = lookup(f, place);
    char want[96], found[96];
    if (!e)
        FAIL(ERR_CHECKPOINT,
             "ckpt: %s has no tensor %s among its %d; use weights of this "
             "model, or set model.* to those of the weights",
             f->path, place->tensor, f->n);
    bool same = e->nd == place->nd;
    for (int i = 0; i < place->nd && same; i++)
        same = e->shape[i] == place->shape[i];
    if (!same)
        FAIL(ERR_CHECKPOINT,
             "ckpt: tensor %s of %s has shape %s, the model has %s; use weights of "
             "this model, or set model.* to those of the weights",
             e->name, f->path, shape_text(e->nd, e->shape, found),
             shape_text(place->nd, place->shape, want));
    if (e->dt == DT_I32)
        FAIL(ERR_CHECKPOINT, "ckpt: tensor %s of %s holds integers; weights are F64, F32 or BF16",
             e->name, f->path);
    *out = e;
    return ERR_OK;
}
