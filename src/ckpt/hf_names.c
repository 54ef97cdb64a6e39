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
 * weights.c allows for.
 */
#include "ckpt/ckpt.h"

#include "base/mem.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Names of a role, of gpt and llama; within its block when the part is attn or mlp, else whole. */
static const struct hf_name {
    enum layer_id part;
    enum param_id role;
    const char *gpt, *llama;
} names[] = {
    {LAYER_EMBED, PARAM_TOKENS, "transformer.wte.weight", "model.embed_tokens.weight"},
    {LAYER_EMBED, PARAM_POSITIONS, "transformer.wpe.weight", NULL},
    {LAYER_ATTN, PARAM_NORM_W, "ln_1.weight", "input_layernorm.weight"},
    {LAYER_ATTN, PARAM_NORM_B, "ln_1.bias", NULL},
    {LAYER_ATTN, PARAM_Q_W, "attn.c_attn.weight", "self_attn.q_proj.weight"},
    {LAYER_ATTN, PARAM_K_W, "attn.c_attn.weight", "self_attn.k_proj.weight"},
    {LAYER_ATTN, PARAM_V_W, "attn.c_attn.weight", "self_attn.v_proj.weight"},
    {LAYER_ATTN, PARAM_Q_B, "attn.c_attn.bias", NULL},
    {LAYER_ATTN, PARAM_K_B, "attn.c_attn.bias", NULL},
    {LAYER_ATTN, PARAM_V_B, "attn.c_attn.bias", NULL},
    {LAYER_ATTN, PARAM_O_W, "attn.c_proj.weight", "self_attn.o_proj.weight"},
    {LAYER_ATTN, PARAM_O_B, "attn.c_proj.bias", NULL},
    {LAYER_MLP, PARAM_NORM_W, "ln_2.weight", "post_attention_layernorm.weight"},
    {LAYER_MLP, PARAM_NORM_B, "ln_2.bias", NULL},
    {LAYER_MLP, PARAM_GATE_W, NULL, "mlp.gate_proj.weight"},
    {LAYER_MLP, PARAM_UP_W, "mlp.c_fc.weight", "mlp.up_proj.weight"},
    {LAYER_MLP, PARAM_UP_B, "mlp.c_fc.bias", NULL},
    {LAYER_MLP, PARAM_DOWN_W, "mlp.c_proj.weight", "mlp.down_proj.weight"},
    {LAYER_MLP, PARAM_DOWN_B, "mlp.c_proj.bias", NULL},
    {LAYER_HEAD, PARAM_NORM_W, "transformer.ln_f.weight", "model.norm.weight"},
    {LAYER_HEAD, PARAM_NORM_B, "transformer.ln_f.bias", NULL},
    {LAYER_HEAD, PARAM_HEAD_W, "lm_head.weight", "lm_head.weight"},
};

static const bool is_vector[PARAM_COUNT] = {
    [PARAM_NORM_W] = true, [PARAM_NORM_B] = true, [PARAM_Q_B] = true,  [PARAM_K_B] = true,
    [PARAM_V_B] = true,    [PARAM_O_B] = true,    [PARAM_UP_B] = true, [PARAM_DOWN_B] = true,
    [PARAM_HEAD_B] = true, [PARAM_LINEAR_B] = true};

void hf_place(const struct model *a, const struct model_param *p, struct hf_place *out)
{
    enum layer_id part = p->tied_copy ? LAYER_EMBED : p->part;
    enum param_id role = p->tied_copy ? PARAM_TOKENS : p->role;
    struct hf_place h = {.nd = is_vector[role] ? 1 : 2, .shape = {p->shape[0], p->shape[1]}};
    if (a->kind == MODEL_MLP) { /* of which transformers knows none: PyTorch's names */
        snprintf(h.tensor, sizeof h.tensor, "%s", p->name);
        *out = h;
        return;
    }
    bool gpt = a->kind == MODEL_GPT, block = part == LAYER_ATTN || part == LAYER_MLP;
    const struct hf_name *t = names, *end = names + sizeof names / sizeof *names;
    while (t < end && (t->part != part || t->role != role))
        t++;
    const char *name = t == end ? NULL : gpt ? t->gpt : t->llama;
    ENSURE(name); /* model.h lists no other role for this kind */
    if (block)
        snprintf(h.tensor, sizeof h.tensor, "%s.%" PRId64 ".%s",
                 gpt ? "transformer.h" : "model.layers", p->block, name);
    else
        snprintf(h.tensor, sizeof h.tensor, "%s", name);
    if (gpt && role >= PARAM_Q_W && role <= PARAM_V_B) { /* one tensor of q, k and v */
        int64_t q = a->heads * a->head_dim, kv = a->kv_heads * a->head_dim;
        h.out0 = role == PARAM_V_W || role == PARAM_V_B ? q + kv : 0;
        if (role == PARAM_K_W || role == PARAM_K_B)
            h.out0 = q;
        h.shape[0] = q + 2 * kv;
    }
    h.transposed = gpt && h.nd == 2 && block;
    if (h.transposed) {
        int64_t rows = h.shape[0];
        h.shape[0] = h.shape[1];
        h.shape[1] = rows;
    }
    *out = h;
}

enum err hf_entries(const struct model *a, enum safet_type type, struct safet_entry **out, int *n)
{
    struct model_param *param;
    struct safet_entry *entry = NULL;
    int params, made = 0;
    TRY(model_param_list(a, &param, &params));
    enum err err = mem_new(params, sizeof *entry, "the list of weights", &entry);
    for (int i = 0; i < params && err == ERR_OK; i++) {
        struct hf_place at;
        hf_place(a, &param[i], &at);
        if (made > 0 && strcmp(entry[made - 1].name, at.tensor) == 0)
            continue;
        struct safet_entry *e = &entry[made++];
        *e = (struct safet_entry){.type = type, .nd = at.nd, .shape = {at.shape[0], at.shape[1]}};
        memcpy(e->name, at.tensor, sizeof at.tensor);
    }
    mem_free(param);
    *out = entry;
    *n = made;
    return err;
}

enum err hf_sorted_entries(const struct model *a, struct safet_entry **out, int *n)
{
    TRY(hf_entries(a, SAFET_F32, out, n));
    safet_sort(*out, *n);
    return ERR_OK;
}

void hf_notes(const char *tokenizer, uint64_t hash, struct hf_notes *out)
{
    *out = (struct hf_notes){.word = {HF_TOKENIZER, tokenizer}};
    snprintf(out->hash, sizeof out->hash, "%016" PRIx64, hash);
    if (hash)
        out->word[2] = HF_TOKENIZER_HASH, out->word[3] = out->hash;
}
