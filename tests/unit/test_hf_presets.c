/* SPDX-License-Identifier: Apache-2.0
 *
 * A config.json, key by key. What one leaves out has the value that GPT2Config and LlamaConfig of
 * transformers give it, as their pages list them; one that is written stands here by hand.
 */
#include "ckpt/ckpt.h"
#include "test.h"

#include "base/fs.h"

static struct hf_config read_text(const char *json)
{
    static const char path[] = "read.json";
    struct hf_config c = {0};
    CHECK_OK(fs_put(path, json, (int64_t)strlen(json)));
    CHECK_OK(hf_config_read(path, &c));
    return c;
}

static void gpt(void)
{
    struct hf_config c = read_text("{\"model_type\": \"gpt2\", \"vocab_size\": 100, "
                                   "\"n_positions\": 32, \"n_embd\": 48, \"n_layer\": 3, "
                                   "\"n_head\": 6}");
    CHECK_INT(c.model.kind, MODEL_GPT);
    CHECK_INT(c.model.ffn, 192);
    CHECK_INT(c.model.head_dim, 8);
    CHECK_INT(c.model.kv_heads, 6);
    CHECK(c.model.tied);
    CHECK_NEAR(c.model.norm_eps, 1e-5, 0);
    CHECK_NEAR(c.model.init_std, 0.02, 0);
    CHECK_NEAR(c.model.dropout, 0.1, 0);
    CHECK_INT(c.ends, 0);
}

static void llama(void)
{
    struct hf_config c = read_text("{\"model_type\": \"llama\", \"vocab_size\": 100, "
                                   "\"hidden_size\": 48, \"intermediate_size\": 80, "
                                   "\"num_hidden_layers\": 3, \"num_attention_heads\": 6}");
    CHECK_INT(c.model.kind, MODEL_LLAMA);
    CHECK_INT(c.model.seq, 2048);
    CHECK_INT(c.model.kv_heads, 6);
    CHECK_INT(c.model.head_dim, 8);
    CHECK(!c.model.tied);
    CHECK_NEAR(c.model.norm_eps, 1e-6, 0);
    CHECK_NEAR(c.model.rope_theta, 10000, 0);
    CHECK_NEAR(c.model.init_std, 0.02, 0);
    CHECK_NEAR(c.model.dropout, 0, 0);
    CHECK_INT(c.ends, 0);
}

/* The whole text that is written of a model. */
static void written(const struct model *a, enum safet_type type, int32_t end, const char *want)
{
    static const char path[] = "written.json";
    char got[4096] = "";
    struct text t = {0};
    CHECK_OK(hf_config_text(a, type, end, &t));
    CHECK_OK(fs_put(path, t.s, t.len));
    text_free(&t);
    FILE *f = fopen(path, "r");
    CHECK(f && fread(got, 1, sizeof got - 1, f) > 0 && fclose(f) == 0);
    CHECK_STR(got, want);
}

static void written_gpt(void)
{
    const struct model a = {.kind = MODEL_GPT, .layers = 3, .hidden = 48, .heads = 6, .kv_heads = 6,
                            .head_dim = 8, .ffn = 100, .vocab = 257, .seq = 32, .tied = true,
                            .dropout = 0.25, .norm_eps = 3e-6, .rope_theta = 10000,
                            .init_std = 0.03};
    written(&a, SAFET_F32, 256,
            "{\n  \"architectures\": [\"GPT2LMHeadModel\"],\n  \"model_type\": \"gpt2\",\n"
            "  \"vocab_size\": 257,\n  \"n_positions\": 32,\n  \"n_embd\": 48,\n"
            "  \"n_layer\": 3,\n  \"n_head\": 6,\n  \"n_inner\": 100,\n"
            "  \"activation_function\": \"gelu_new\",\n  \"resid_pdrop\": 0.25,\n"
            "  \"embd_pdrop\": 0.25,\n  \"attn_pdrop\": 0.25,\n"
            "  \"layer_norm_epsilon\": 3e-06,\n  \"scale_attn_weights\": true,\n"
            "  \"scale_attn_by_inverse_layer_idx\": false,\n"
            "  \"reorder_and_upcast_attn\": false,\n  \"add_cross_attention\": false,\n"
            "  \"initializer_range\": 0.03,\n  \"tie_word_embeddings\": true,\n"
            "  \"bos_token_id\": 256,\n  \"eos_token_id\": 256,\n  \"use_cache\": true,\n"
            "  \"dtype\": \"float32\",\n  \"torch_dtype\": \"float32\"\n}\n");
}

static void written_llama(void)
{
    const struct model a = {.kind = MODEL_LLAMA, .layers = 3, .hidden = 48, .heads = 6,
                            .kv_heads = 2,
                            .head_dim = 10, .ffn = 100, .vocab = 260, .seq = 32, .dropout = 0.5,
                            .norm_eps = 3e-6, .rope_theta = 500000, .init_std = 0.03};
    written(&a, SAFET_BF16, -1,
            "{\n  \"architectures\": [\"LlamaForCausalLM\"],\n  \"model_type\": \"llama\",\n"
            "  \"vocab_size\": 260,\n  \"max_position_embeddings\": 32,\n"
            "  \"hidden_size\": 48,\n  \"intermediate_size\": 100,\n"
            "  \"num_hidden_layers\": 3,\n  \"num_attention_heads\": 6,\n"
            "  \"num_key_value_heads\": 2,\n  \"head_dim\": 10,\n  \"hidden_act\": \"silu\",\n"
            "  \"attention_bias\": false,\n  \"mlp_bias\": false,\n"
            "  \"attention_dropout\": 0.5,\n  \"rms_norm_eps\": 3e-06,\n"
            "  \"rope_theta\": 500000.0,\n  \"rope_scaling\": null,\n"
            "  \"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 500000.0},\n"
            "  \"pretraining_tp\": 1,\n  \"initializer_range\": 0.03,\n"
            "  \"tie_word_embeddings\": false,\n  \"bos_token_id\": null,\n"
            "  \"eos_token_id\": null,\n  \"use_cache\": true,\n"
            "  \"dtype\": \"bfloat16\",\n  \"torch_dtype\": \"bfloat16\"\n}\n");
}

static const struct test_case cases[] = {{"gpt", gpt}, {"llama", llama},
                                         {"written gpt", written_gpt},
                                         {"written llama", written_llama}};
TEST_MAIN(cases)
