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

#include "base/mem.h"
#include <stdio.h>
#include <string.h>

/* Name of a role; within its block when the part is attn or mlp, else whole. */
struct hf_name {
    enum model_part part;
    enum model_role role;
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

static const char *name_of(enum model_kind kind, enum model_part part, enum model_role role)
{
    const struct hf_name *t = kind == MODEL_GPT ? gpt_names : llama_names;
    size_t n = kind == MODEL_GPT ? sizeof gpt_names / sizeof *gpt_names
                                 : sizeof llama_names / sizeof *llama_names;
    size_t i = 0;
    while (i < n && (t[i].part != part || t[i].role != role))
        i++;
    ENSURE(i < n); /* model.h lists no other role for this kind */
    return t[i].name;
}

/* Rows of c_attn before this role's. */
static int64_t fused_row(const struct model *a, enum model_role role)
{
    int64_t q = a->heads * a->head_dim, kv = a->kv_heads * a->head_dim;
    if (role == ROLE_K_W || role == ROLE_K_B)
        return q;
    return role == ROLE_V_W || role == ROLE_V_B ? q + kv : 0;
}

static bool is_fused(enum model_role role)
{
    return role >= ROLE_Q_W && role <= ROLE_V_B;
}

static bool is_vector(enum model_role role)
{
    static const bool vector[ROLE_COUNT] = {
        [ROLE_NORM_W] = true, [ROLE_NORM_B] = true, [ROLE_Q_B] = true,  [ROLE_K_B] = true,
        [ROLE_V_B] = true,    [ROLE_O_B] = true,    [ROLE_UP_B] = true, [ROLE_DOWN_B] = true,
        [ROLE_HEAD_B] = true, [ROLE_LINEAR_B] = true};
    return vector[role];
}

void hf_place(const struct model *a, const struct model_param *p, struct hf_place *out)
{
    enum model_part part = p->tied_copy ? PART_EMBED : p->part;
    enum model_role role = p->tied_copy ? ROLE_TOKENS : p->role;
    struct hf_place h = {.nd = is_vector(role) ? 1 : 2, .shape = {p->shape[0], p->shape[1]}};
    if (a->kind == MODEL_MLP) { /* of which transformers knows none: PyTorch's names */
        snprintf(h.tensor, sizeof h.tensor, "%s", p->name);
        *out = h;
        return;
    }
    const char *name = name_of(a->kind, part, role);
    if (part == PART_ATTN || part == PART_MLP)
        snprintf(h.tensor, sizeof h.tensor, "%s.%lld.%s",
                 a->kind == MODEL_GPT ? "transformer.h" : "model.layers", (long long)p->block,
                 name);
    else
        snprintf(h.tensor, sizeof h.tensor, "%s", name);
    if (a->kind == MODEL_GPT && is_fused(role)) {
        h.out0 = fused_row(a, role);
        h.shape[0] = (a->heads + 2 * a->kv_heads) * a->head_dim;
    }
    h.transposed = a->kind == MODEL_GPT && h.nd == 2 && (part == PART_ATTN || part == PART_MLP);
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

/* By either name. */
static struct hf_tensor lookup(const struct hf_weights *w, const struct hf_place *place)
{
    struct hf_tensor t = hf_weights_find(w, place->tensor);
    const char *dot = strchr(place->tensor, '.');
    size_t n = dot ? (size_t)(dot + 1 - place->tensor) : 0;
    bool prefix = (n == 12 && memcmp(place->tensor, "transformer.", n) == 0) ||
                  (n == 6 && memcmp(place->tensor, "model.", n) == 0);
    return t.entry || !prefix ? t : hf_weights_find(w, place->tensor + n);
}

static struct hf_tensor lookup_role(const struct hf_weights *w, const struct model *a,
                                    const struct model_param *p)
{
    struct hf_place at;
    hf_place(a, p, &at);
    return lookup(w, &at);
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

/* What a model of this kind makes itself and some versions of transformers saved. */
static bool is_made(const struct model *a, const char *name)
{
    if (a->kind == MODEL_GPT)
        return ends_with(name, ".attn.bias") || ends_with(name, ".attn.masked_bias");
    return ends_with(name, ".rotary_emb.inv_freq");
}

/* A tied model's output matrix has to be its embedding. */
static enum err check_tied(const struct hf_weights *w, const struct model *a,
                           struct hf_tensor head)
{
    struct hf_tensor tokens = lookup_role(
        w, a, &(struct model_param){.part = PART_EMBED, .role = ROLE_TOKENS, .block = -1});
    if (!tokens.entry)
        return ERR_OK;
    int64_t bytes = tokens.entry->end - tokens.entry->begin;
    bool same = head.entry->type == tokens.entry->type &&
                head.entry->end - head.entry->begin == bytes;
    if (!same || memcmp(head.file->data + head.entry->begin,
                        tokens.file->data + tokens.entry->begin, (size_t)bytes) != 0)
        FAIL(ERR_CHECKPOINT,
             "ckpt: %s of %s is not the embedding, which model.tied true would use in its place; "
             "set model.tied=false", head.entry->name, head.file->path);
    return ERR_OK;
}

/* Marks the tensors that the model reads: used[i][j] for entry j of file i. */
static enum err mark_used(const struct hf_weights *w, const struct model *a, bool *const *used)
{
    struct model_param *param;
    int n;
    TRY(model_param_list(a, &param, &n));
    for (int i = 0; i < n; i++) {
        struct hf_tensor t = lookup_role(w, a, &param[i]);
        if (t.entry)
            used[t.file - w->file][t.entry - t.file->entry] = true;
    }
    mem_free(param);
    return ERR_OK;
}

static enum err check_unused(const struct hf_weights *w, const struct model *a, bool *const *used)
{
    TRY(mark_used(w, a, used));
    for (int i = 0; i < w->files; i++)
        for (int j = 0; j < w->file[i].n; j++) {
            struct hf_tensor t = {&w->file[i], &w->file[i].entry[j]};
            if (used[i][j] || is_made(a, t.entry->name))
                continue;
            if (a->tied && strcmp(t.entry->name, "lm_head.weight") == 0)
                TRY(check_tied(w, a, t));
            else
                FAIL(ERR_CHECKPOINT,
                     "ckpt: %s has tensor %s, which the model, of %lld layers, would not read; "
                     "use weights of this model, or set model.* to those of the weights",
                     t.file->path, t.entry->name, (long long)a->layers);
        }
    return ERR_OK;
}

enum err hf_check_rest(const struct hf_weights *w, const struct model *a)
{
    bool **used, *all;
    int64_t n = 0, at = 0;
    for (int i = 0; i < w->files; i++)
        n += w->file[i].n;
    TRY(mem_new(n, sizeof *all, "the tensors that are read", &all));
    enum err err = mem_new(w->files, sizeof *used, "the tensors that are read", &used);
    if (err == ERR_OK) {
        for (int i = 0; i < w->files; at += w->file[i++].n)
            used[i] = all + at;
        err = check_unused(w, a, used);
        mem_free(used);
    }
    mem_free(all);
    return err;
}

enum err hf_find(const struct hf_weights *w, const struct hf_place *place, struct hf_tensor *out)
{
    struct hf_tensor t = lookup(w, place);
    const struct safet_entry *e = t.entry;
    char want[96], found[96];
    int n = 0;
    for (int i = 0; i < w->files; i++)
        n += w->file[i].n;
    if (!e)
        FAIL(ERR_CHECKPOINT,
             "ckpt: %s has no tensor %s among its %d; use weights of this "
             "model, or set model.* to those of the weights",
             w->file[0].path, place->tensor, n);
    bool same = e->nd == place->nd;
    for (int i = 0; i < place->nd && same; i++)
        same = e->shape[i] == place->shape[i];
    if (!same)
        FAIL(ERR_CHECKPOINT,
             "ckpt: tensor %s of %s has shape %s, the model has %s; use weights of "
             "this model, or set model.* to those of the weights",
             e->name, t.file->path, shape_text(e->nd, e->shape, found),
             shape_text(place->nd, place->shape, want));
    if (e->type > SAFET_BF16)
        FAIL(ERR_CHECKPOINT,
             "ckpt: tensor %s of %s is of dtype %s; weights are F64, F32, F16 or BF16", e->name,
             t.file->path, safet_type_name(e->type));
    *out = t;
    return ERR_OK;
}
