/* SPDX-License-Identifier: Apache-2.0
 *
 * config.json: what transformers needs to build the model before it loads the weights.
 *
 * Every key that changes a number is written, also where plait has no choice (activation, biases,
 * attention scale), so that another default of a later transformers cannot change the model. The
 * token that ends a text stands before one, too, so it is that of begin and end.
 */
#include "ckpt/ckpt.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A decimal that reads back as x, short, and with a point or an exponent, since some readers take a
 * number without for an integer; finite x. */
static const char *real(double x, char buf[32])
{
    if (x == floor(x) && fabs(x) < 1e15) {
        snprintf(buf, 32, "%.1f", x);
        return buf;
    }
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(buf, 32, "%.*g", digits, x);
        if (strtod(buf, NULL) == x)
            break;
    }
    return buf;
}

static void add_int(struct text *t, const char *key, int64_t value)
{
    text_add(t, "  \"%s\": %lld,\n", key, (long long)value);
}

static void add_real(struct text *t, const char *key, double value)
{
    char buf[32];
    text_add(t, "  \"%s\": %s,\n", key, real(value, buf));
}

/* A value that is JSON already. */
static void add_word(struct text *t, const char *key, const char *value)
{
    text_add(t, "  \"%s\": %s,\n", key, value);
}

static void add_gpt(struct text *t, const struct model *a)
{
    add_word(t, "architectures", "[\"GPT2LMHeadModel\"]");
    add_word(t, "model_type", "\"gpt2\"");
    add_int(t, "vocab_size", a->vocab);
    add_int(t, "n_positions", a->seq);
    add_int(t, "n_embd", a->hidden);
    add_int(t, "n_layer", a->layers);
    add_int(t, "n_head", a->heads);
    add_int(t, "n_inner", a->ffn);
    add_word(t, "activation_function", "\"gelu_new\"");
    add_real(t, "resid_pdrop", a->dropout);
    add_real(t, "embd_pdrop", a->dropout);
    add_real(t, "attn_pdrop", a->dropout);
    add_real(t, "layer_norm_epsilon", a->norm_eps);
    add_word(t, "scale_attn_weights", "true");
    add_word(t, "scale_attn_by_inverse_layer_idx", "false");
    add_word(t, "reorder_and_upcast_attn", "false");
    add_word(t, "add_cross_attention", "false");
}

static void add_llama(struct text *t, const struct model *a)
{
    char theta[32];
    add_word(t, "architectures", "[\"LlamaForCausalLM\"]");
    add_word(t, "model_type", "\"llama\"");
    add_int(t, "vocab_size", a->vocab);
    add_int(t, "max_position_embeddings", a->seq);
    add_int(t, "hidden_size", a->hidden);
    add_int(t, "intermediate_size", a->ffn);
    add_int(t, "num_hidden_layers", a->layers);
    add_int(t, "num_attention_heads", a->heads);
    add_int(t, "num_key_value_heads", a->kv_heads);
    add_int(t, "head_dim", a->head_dim);
    add_word(t, "hidden_act", "\"silu\"");
    add_word(t, "attention_bias", "false");
    add_word(t, "mlp_bias", "false");
    add_real(t, "attention_dropout", a->dropout);
    add_real(t, "rms_norm_eps", a->norm_eps);
    add_real(t, "rope_theta", a->rope_theta);
    add_word(t, "rope_scaling", "null");
    text_add(t, "  \"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": %s},\n",
             real(a->rope_theta, theta));
    add_word(t, "pretraining_tp", "1");
}

/* No model of transformers; for who reads the weights. */
static void add_mlp(struct text *t, const struct model *a, const char *dtype)
{
    add_word(t, "model_type", "\"mlp\"");
    text_add(t, "  \"widths\": [");
    for (int64_t i = 0; i <= a->layers; i++)
        text_add(t, "%s%lld", i > 0 ? ", " : "", (long long)a->width[i]);
    text_add(t, "],\n  \"hidden_act\": \"relu\",\n  \"dtype\": \"%s\"\n}\n", dtype);
}

/* Of begin and end; null where the tokenizer is not known. */
static void add_ends(struct text *t, int32_t end)
{
    char id[16] = "null";
    if (end >= 0)
        snprintf(id, sizeof id, "%d", end);
    add_word(t, "bos_token_id", id);
    add_word(t, "eos_token_id", id);
}

enum err hf_config_text(const struct model *a, enum safet_type type, int32_t end, struct text *t)
{
    static const char *const word[] = {[SAFET_F32] = "float32", [SAFET_F16] = "float16",
                                       [SAFET_BF16] = "bfloat16"};
    const char *dtype = type <= SAFET_BF16 ? word[type] : NULL;
    ENSURE(dtype);
    text_add(t, "{\n");
    if (a->kind == MODEL_MLP) {
        add_mlp(t, a, dtype);
        return t->err;
    }
    if (a->kind == MODEL_GPT)
        add_gpt(t, a);
    else
        add_llama(t, a);
    add_real(t, "initializer_range", a->init_std);
    add_word(t, "tie_word_embeddings", a->tied ? "true" : "false");
    add_ends(t, end);
    add_word(t, "use_cache", "true");
    text_add(t, "  \"dtype\": \"%s\",\n  \"torch_dtype\": \"%s\"\n}\n", dtype, dtype);
    return t->err;
}

enum err hf_generation_text(int32_t end, struct text *t)
{
    text_add(t, "{\n  \"_from_model_config\": true%s\n", end < 0 ? "" : ",");
    if (end >= 0)
        text_add(t, "  \"bos_token_id\": %d,\n  \"eos_token_id\": %d\n", end, end);
    text_add(t, "}\n");
    return t->err;
}
