/* SPDX-License-Identifier: Apache-2.0
 *
 * Keys of config.json by which relatives of gpt2 and llama differ from them: one that changes the
 * numbers is refused by its name unless its value switches nothing on, whether a table has it or
 * its name alone tells; what changes no number passes. The keys were taken from the configurations
 * of causal models of transformers 4.57 and 5.24, and of folders that are published beside it.
 */
#include "ckpt/ckpt.h"
#include "test.h"

#include <stdio.h>
#include <string.h>

static const char *const base[] = {
    "{\"model_type\":\"llama\",\"hidden_size\":8,\"intermediate_size\":12,\"num_hidden_layers\":1,"
    "\"num_attention_heads\":2,\"vocab_size\":9",
    "{\"model_type\":\"gpt2\",\"n_embd\":8,\"n_layer\":1,\"n_head\":2,\"n_positions\":4,"
    "\"vocab_size\":9",
    "{\"model_type\":\"mlp\",\"widths\":[3,2]",
    "{\"model_type\":\"mlp\"",
};

static enum err read_with(int kind, const char *key, const char *value, struct hf_config *out)
{
    FILE *f = fopen("config.json", "w");
    CHECK(f && fprintf(f, "%s,\"%s\":%s}", base[kind], key, value) > 0 && fclose(f) == 0);
    return hf_config_read("config.json", out);
}

/* A key with a value that changes nothing, or NULL, and | between them some that do. */
struct key { const char *key, *off, *on; };

/* The model's own tables, and relatives that say no to what both have. */
static const struct key tabled[] = {
    {"is_causal", "true", "false|0|\"no\""},
    {"causal", "true", "false"},
    {"is_encoder_decoder", "false", "true"},
    {"pre_norm", "true", "false"},
    {"do_layer_norm_before", "true", "false"},
    {"use_final_norm", "true", "false"},
    {"norm_elementwise_affine", "true", "false"},
    {"layer_norm_elementwise_affine", "true", "false"},
    {"auto_map", NULL, "{\"AutoModel\":\"x.Y\"}"},
    {"norm_type", NULL, "\"batchnorm\"|\"dyt\"|3"},
    {"hidden_activation", NULL, "\"relu2\"|\"gelu\"|\"\""},
    {"position_embedding_type", NULL, "\"alibi\"|\"relative_key\""},
};

/* By the stems in their names. */
static const struct key relatives[] = {
    {"activation_sparsity_pattern", "[]", "[0.95]"},
    {"add_bias_linear", "false", "true"},
    {"adapter_rank", "0", "8"},
    {"alibi", "false", "true"},
    {"alibi_bias_max", "0", "8"},
    {"altup_num_inputs", "0", "4"},
    {"apply_residual_connection_post_layernorm", "false", "true"},
    {"attention_chunk_size", NULL, "8192|0"},
    {"attention_in_multiplier", NULL, "0.5|1"},
    {"attention_k_eq_v", "false", "true"},
    {"attention_logit_cap", NULL, "50|0"},
    {"attention_multiplier", NULL, "0.0078125|1|0"},
    {"attention_sinks", "false", "true|4"},
    {"attention_value_scale", NULL, "0.6"},
    {"attention_window_size", NULL, "128"},
    {"attn_logit_softcapping", NULL, "50.0|0"},
    {"attn_temperature_tuning", "false", "true|4"},
    {"clip_qkv", NULL, "8|0"},
    {"compress_rates", "{}", "{\"a\":4}"},
    {"conv_bias", "false", "true"},
    {"cross_layer_sharing", "false", "true"},
    {"emb_scale", "1", "12|0"},
    {"embed_scale", "1.0", "5.6"},
    {"embedding_multiplier", "1", "12|0"},
    {"expert_layer_period", "0", "2"},
    {"final_logit_softcapping", NULL, "30.0"},
    {"gate_soft_cap", NULL, "7"},
    {"gated_norm_rank", "0", "4"},
    {"global_rope_theta", NULL, "1000000"},
    {"hc_mult", "0", "4"},
    {"hyper_connection_streams", "0", "4"},
    {"index_topk", "0", "2048"},
    {"interleave_moe_layer_step", "0", "1"},
    {"interleaved", "false", "true"},
    {"key_multiplier", "1", "0.4"},
    {"kv_lora_rank", "0", "512"},
    {"kv_sharing_modes", "[]", "[\"a\"]"},
    {"laurel_rank", "0", "64"},
    {"learned_pos_emb", "false", "true"},
    {"linear_num_key_heads", "0", "16"},
    {"lm_head_bias", "false", "true"},
    {"lm_head_multiplier", "1", "0.04"},
    {"local_rope_theta", NULL, "10000"},
    {"logit_scale", "1", "0.0625|0"},
    {"logits_scaling", "1", "8|0"},
    {"logits_soft_cap", NULL, "30"},
    {"loop_num_passes", "0", "2"},
    {"mamba_d_state", "0", "128"},
    {"mlp_gate_softcap", NULL, "5"},
    {"moe_topk", "0", "2"},
    {"multi_query", "false", "true"},
    {"mup_enabled", "false", "true"},
    {"new_norm_of_mine", "false", "true|0.5|\"x\"|[1]|{\"a\":1}"},
    {"ngram_size", "0", "3"},
    {"no_rope_layer_interval", "0", "4"},
    {"no_rope_layers", "[]", "[1,0]"},
    {"nope_layer_interval", "0", "4"},
    {"norm_topk_prob", "false", "true"},
    {"num_experts", "0", "8"},
    {"num_experts_per_tok", "0", "2"},
    {"num_kv_shared_layers", "0", "2"},
    {"num_ln_in_parallel_attn", "0", "2"},
    {"parallel_attn", "false", "true"},
    {"parallel_residual", "false", "true"},
    {"per_layer_config", "{}", "{\"0\":{}}"},
    {"prefix_lm", "false", "true"},
    {"pruned_heads", "{}", "{\"0\":[1]}"},
    {"qk_layernorm", "false", "true"},
    {"qk_norm", "false", "true"},
    {"quantization", "{}", "{\"bits\":4}"},
    {"quantization_config", "{}", "{\"bits\":4}"},
    {"query_pre_attn_scalar", NULL, "256|0"},
    {"relative_max_distance", "0", "128"},
    {"rescale_embeddings", "false", "true"},
    {"residual_multiplier", "1", "0.22"},
    {"residual_scale", "1.0", "0.7"},
    {"rope_interleave", "false", "true"},
    {"rope_local_base_freq", "0", "10000"},
    {"rotary_dim", "0", "64"},
    {"router_scaling_factor", "1", "2.5"},
    {"scale_depth", "1", "1.4"},
    {"scale_embeddings", "false", "true"},
    {"shared_expert_intermediate_size", "0", "32"},
    {"sinusoidal_pos_embds", "false", "true"},
    {"sliding_window", NULL, "4096|0"},
    {"sliding_window_pattern", NULL, "6"},
    {"softmax_scale", NULL, "0.1|1"},
    {"ssm_multipliers", "[]", "[0.5,1]"},
    {"swiglu_limit", "0", "7.0"},
    {"token_shift", "false", "true"},
    {"use_attention_gate", "false", "true"},
    {"use_bidirectional_attention", "false", "true|\"all\""},
    {"use_parallel_residual", "false", "true"},
    {"use_post_norm", "false", "true"},
    {"use_qk_norm", "false", "true"},
    {"use_sandwich_norm", "false", "true"},
    {"use_sliding_window", "false", "true"},
    {"v_head_dim", "0", "64"},
    {"zero_centered_gamma", "false", "true"},
};

static void check_key(const struct key *k)
{
    struct hf_config c;
    char value[64];
    for (int kind = 0; kind < 2; kind++) {
        CHECK_OK(read_with(kind, k->key, "null", &c));
        CHECK_STR(c.unknown, "");
        CHECK_OK(read_with(kind, k->key, k->off ? k->off : "null", &c));
        CHECK_STR(c.unknown, "");
        for (const char *p = k->on; *p; p += strcspn(p, "|") + (strchr(p, '|') != NULL)) {
            snprintf(value, sizeof value, "%.*s", (int)strcspn(p, "|"), p);
            CHECK_ERR(read_with(kind, k->key, value, &c), ERR_CHECKPOINT, k->key);
        }
    }
}

static void test_tabled(void)
{
    for (size_t i = 0; i < sizeof tabled / sizeof *tabled; i++)
        check_key(&tabled[i]);
}

static void test_relatives(void)
{
    for (size_t i = 0; i < sizeof relatives / sizeof *relatives; i++)
        check_key(&relatives[i]);
}

/* A stem anywhere in a name that nobody has: the rule, not a table. */
static void test_drawn(void)
{
    static const char *const stems[] = {"norm", "scale", "attention", "rope", "expert", "window"};
    struct hf_config c;
    char key[64], way[3];
    for (int round = 0; round < 60; round++) {
        for (int i = 0; i < 2; i++)
            way[i] = (char)('f' + test_range(0, 1) * 18); /* f or x */
        way[2] = '\0';
        snprintf(key, sizeof key, "%s_%s_%c", way, stems[round % 6], (char)('j' + round % 7));
        int kind = (int)test_range(0, 1);
        CHECK_ERR(read_with(kind, key, "true", &c), ERR_CHECKPOINT, key);
        CHECK_ERR(read_with(kind, key, "2.5", &c), ERR_CHECKPOINT, key);
        CHECK_OK(read_with(kind, key, "false", &c));
    }
}

/* What changes no number, with and without a note. */
static void test_harmless(void)
{
    static const char *const passed[] = {
        "use_cache", "is_decoder", "pretraining_tp", "initializer_factor", "embd_init_std",
        "hidden_dropout", "ffn_dropout_rate", "layerdrop", "router_aux_loss_coef", "mask_token_id",
        "image_token_id", "attn_implementation", "use_flash_attention", "fused_norm", "max_seq_len",
        "kv_cache_dtype", "base_model_tp_plan", "tensor_parallel_size", "max_grad_norm",
        "gradient_clipping", "classifier_activation", "residual_in_fp32", "transformers.js_config",
        "output_past", "_attn_implementation", "output_router_logits", "num_logits_to_keep",
    }, *const told[] = {"my_key", "warmup_steps", "converted_from", "commit_sha", "created_by",
                        "is_llama_config", "license", "num_nextn_predict_layers",
                        " architectures", "use_cache bos_token_id"}; /* spaces end no word */
    struct hf_config c;
    for (int kind = 0; kind < 2; kind++) {
        for (size_t i = 0; i < sizeof passed / sizeof *passed; i++)
            CHECK_OK(read_with(kind, passed[i], "3", &c));
        for (size_t i = 0; i < sizeof told / sizeof *told; i++) {
            CHECK_OK(read_with(kind, told[i], "\"x\"", &c));
            CHECK_STR(c.unknown, told[i]);
        }
    }
}

/* What one family has the other's relatives do not: their neutral values differ. */
static void test_families(void)
{
    static const struct { const char *key, *llama, *gpt; } by[] = {
        {"norm_type", "\"rmsnorm\"", "\"layernorm\""}, {"norm_bias", "false", "true"},
        {"hidden_activation", "\"silu\"", "\"gelu_new\""}, {"bias", "false", "true"},
        {"attention_bias", "false", "true"}, {"qkv_bias", "false", "true"},
        {"mlp_bias", "false", "true"}, {"rotary_pct", "1", "0"},
        {"no_bias", "true", "false"}, {"position_embedding_type", "\"rope\"", "\"absolute\""},
    };
    struct hf_config c;
    for (size_t i = 0; i < sizeof by / sizeof *by; i++) {
        CHECK_OK(read_with(0, by[i].key, by[i].llama, &c));
        CHECK_OK(read_with(1, by[i].key, by[i].gpt, &c));
        CHECK_ERR(read_with(0, by[i].key, by[i].gpt, &c), ERR_CHECKPOINT, by[i].key);
        CHECK_ERR(read_with(1, by[i].key, by[i].llama, &c), ERR_CHECKPOINT, by[i].key);
        CHECK_OK(read_with(0, "layer_types", "[\"full_attention\"]", &c));
        CHECK_ERR(read_with(1, "layer_types", "[\"sliding_attention\"]", &c), ERR_CHECKPOINT,
                  "full_attention only");
    }
}

/* No relative of these, but what is said of them is judged as well. */
static void test_mlp(void)
{
    struct hf_config c;
    CHECK_OK(read_with(2, "hidden_act", "\"relu\"", &c));
    CHECK_ERR(read_with(2, "hidden_act", "\"gelu\"", &c), ERR_CHECKPOINT, "\"relu\" only");
    CHECK_OK(read_with(2, "bias", "true", &c));
    CHECK_ERR(read_with(2, "bias", "false", &c), ERR_CHECKPOINT, "bias false");
    CHECK_ERR(read_with(2, "batch_norm", "true", &c), ERR_CHECKPOINT, "batch_norm true");
    CHECK_OK(read_with(2, "dtype", "\"float32\"", &c));
    CHECK_STR(c.unknown, "");
    CHECK_OK(read_with(2, "colour", "\"red\"", &c));
    CHECK_STR(c.unknown, "colour");
    CHECK_OK(read_with(3, "widths", "[3,2]", &c));
    CHECK_ERR(read_with(3, "widths", "{\"a\":3,\"b\":2}", &c), ERR_CHECKPOINT, "no list widths");
    CHECK_ERR(read_with(3, "widths", "\"3,2\"", &c), ERR_CHECKPOINT, "no list widths");
    CHECK_ERR(read_with(3, "dtype", "\"float32\"", &c), ERR_CHECKPOINT, "no list widths");
}

static const struct test_case cases[] = {
    {"keys of the tables", test_tabled},
    {"keys of relatives", test_relatives},
    {"drawn names", test_drawn},
    {"keys without effect", test_harmless},
    {"keys by family", test_families},
    {"keys of an mlp", test_mlp},
};
TEST_MAIN(cases)
