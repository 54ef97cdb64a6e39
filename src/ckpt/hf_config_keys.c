/* SPDX-License-Identifier: Apache-2.0
 *
 * The keys that transformers writes for gpt2 and llama, in versions 2 to 5, and those by which
 * relatives of these models differ from them. A relative's configuration may carry model_type llama
 * and code of its own, so what such a key would change is refused here, although transformers'
 * own llama would pass it over.
 */
#include "ckpt/hf_config_keys.h"

#include <stddef.h>
#include <string.h>

enum { GPT = 1 << ARCH_GPT, LLAMA = 1 << ARCH_LLAMA, BOTH = GPT | LLAMA };

/* Read by hf_config_read.c, spaces between. */
static const char *const read_keys[] = {
    [ARCH_GPT] = " model_type vocab_size n_positions n_embd n_layer n_head n_inner "
                 "layer_norm_epsilon tie_word_embeddings resid_pdrop embd_pdrop attn_pdrop "
                 "initializer_range eos_token_id hidden_size max_position_embeddings "
                 "num_attention_heads num_hidden_layers ",
    [ARCH_LLAMA] = " model_type vocab_size max_position_embeddings hidden_size intermediate_size "
                   "num_hidden_layers num_attention_heads num_key_value_heads head_dim "
                   "rms_norm_eps tie_word_embeddings attention_dropout initializer_range "
                   "eos_token_id rope_theta rope_scaling rope_parameters layer_types ",
};

/* Legal only with these values, in JSON, | between; "null": with none. */
static const struct { int kinds; const char *key, *legal; } neutral[] = {
    {GPT, "activation_function", "\"gelu_new\"|\"gelu_pytorch_tanh\""},
    {GPT, "scale_attn_weights", "true"},
    {GPT, "scale_attn_by_inverse_layer_idx", "false"},
    {GPT, "reorder_and_upcast_attn", "false"},
    {GPT, "position_embedding_type", "\"absolute\""},
    {GPT, "bias", "true"},
    {LLAMA, "hidden_act", "\"silu\"|\"swish\""},
    {LLAMA, "attention_bias", "false"},
    {LLAMA, "mlp_bias", "false"},
    {LLAMA, "bias", "false"},
    {LLAMA, "use_bias", "false"},
    {LLAMA, "qkv_bias", "false"},
    {LLAMA, "attention_out_bias", "false"},
    {LLAMA, "partial_rotary_factor", "1"},
    {LLAMA, "rotary_pct", "1"},
    {LLAMA, "rope_interleave", "false"},
    {LLAMA, "rope_interleaved", "false"},
    {LLAMA, "no_rope_layers", "[]"},
    {LLAMA, "no_rope_layer_interval", "0"},
    {LLAMA, "position_embedding_type", "\"rope\""},
    {BOTH, "add_cross_attention", "false"},
    {BOTH, "is_encoder_decoder", "false"},
    {BOTH, "tie_encoder_decoder", "false"},
    {BOTH, "cross_attention_hidden_size", "null"},
    {BOTH, "pruned_heads", "{}"},
    {BOTH, "auto_map", "null"},
    {BOTH, "quantization_config", "null"},
    {BOTH, "compression_config", "null"},
    {BOTH, "sliding_window", "null"},
    {BOTH, "use_sliding_window", "false"},
    {BOTH, "attention_chunk_size", "null"},
    {BOTH, "clip_qkv", "null"},
    {BOTH, "qk_norm", "false"},
    {BOTH, "use_qk_norm", "false"},
    {BOTH, "qk_layernorm", "false"},
    {BOTH, "attn_output_gate", "false"},
    {BOTH, "final_logit_softcapping", "null"},
    {BOTH, "attn_logit_softcapping", "null"},
    {BOTH, "logit_softcap", "null"},
    {BOTH, "query_pre_attn_scalar", "null"},
    {BOTH, "attention_multiplier", "null"},
    {BOTH, "embedding_multiplier", "1"},
    {BOTH, "residual_multiplier", "1"},
    {BOTH, "logits_scaling", "1"},
    {BOTH, "logit_scale", "1"},
    {BOTH, "scale_embedding", "false"},
    {BOTH, "use_alibi", "false"},
    {BOTH, "alibi", "false"},
    {BOTH, "use_parallel_residual", "false"},
    {BOTH, "parallel_attn", "false"},
    {BOTH, "num_experts", "0"},
    {BOTH, "num_local_experts", "0"},
    {BOTH, "n_routed_experts", "0"},
};

/* Names, sizes and types; how the model is trained, run, or asked for text. */
static const char harmless[] =
    " architectures transformers_version torch_dtype dtype use_cache bos_token_id pad_token_id "
    "sep_token_id decoder_start_token_id task_specific_params return_dict output_hidden_states "
    "output_attentions id2label label2id num_labels problem_type finetuning_task prefix "
    "tokenizer_class torchscript use_bfloat16 chunk_size_feed_forward is_decoder tf_legacy_loss "
    "max_length min_length do_sample early_stopping num_beams num_beam_groups diversity_penalty "
    "temperature top_k top_p typical_p repetition_penalty length_penalty no_repeat_ngram_size "
    "encoder_no_repeat_ngram_size bad_words_ids num_return_sequences output_scores "
    "return_dict_in_generate forced_bos_token_id forced_eos_token_id remove_invalid_values "
    "exponential_decay_length_penalty suppress_tokens begin_suppress_tokens attn_implementation "
    "gradient_checkpointing pretraining_tp n_ctx summary_type summary_use_proj summary_activation "
    "summary_proj_to_labels summary_first_dropout max_window_layers max_sequence_length "
    "model_max_length unk_token_id unsloth_version unsloth_fixed name_or_path ";

static bool in_list(const char *list, const char *key)
{
    size_t n = strlen(key);
    for (const char *p = list; n > 0 && (p = strstr(p, key)) != NULL; p++)
        if (p[-1] == ' ' && p[n] == ' ')
            return true;
    return false;
}

/* Is it one of the values? */
static bool is_one_of(const cJSON *value, const char *legal)
{
    for (const char *p = legal; *p;) {
        size_t n = strcspn(p, "|");
        cJSON *one = cJSON_ParseWithLength(p, n);
        bool same = cJSON_Compare(value, one, true);
        cJSON_Delete(one);
        if (same)
            return true;
        p += n + (p[n] == '|');
    }
    return false;
}

const char *hf_key_legal(enum arch_kind kind, const cJSON *member)
{
    for (size_t i = 0; i < sizeof neutral / sizeof *neutral; i++)
        if ((neutral[i].kinds & 1 << kind) && strcmp(neutral[i].key, member->string) == 0)
            return cJSON_IsNull(member) || is_one_of(member, neutral[i].legal) ? NULL
                                                                               : neutral[i].legal;
    return NULL;
}

bool hf_key_known(enum arch_kind kind, const char *key)
{
    for (size_t i = 0; i < sizeof neutral / sizeof *neutral; i++)
        if ((neutral[i].kinds & 1 << kind) && strcmp(neutral[i].key, key) == 0)
            return true;
    return key[0] == '_' || in_list(harmless, key) || in_list(read_keys[kind], key);
}
