/* SPDX-License-Identifier: Apache-2.0
 *
 * The keys that transformers writes for gpt2 and llama, in versions 2 to 5, and those by which
 * relatives of these models differ from them. A relative's configuration may carry model_type llama
 * and code of its own, so what such a key would change is refused here, although transformers'
 * own llama would pass it over. No table has all relatives: a key that none of the tables has is
 * judged by the stems in its name, and where one tells of the model, only a value that switches it
 * off is passed.
 */
#include "ckpt/hf_config_keys.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum { GPT = 1 << MODEL_GPT, LLAMA = 1 << MODEL_LLAMA, MLP = 1 << MODEL_MLP, BOTH = GPT | LLAMA };

/* Keys that are legal only with these values, in JSON, | between; "null": with none. */
static const struct { int kinds; const char *legal, *list; } neutral[] = {
    {GPT, "true", " scale_attn_weights bias use_bias qkv_bias attention_bias attention_out_bias "
                  "mlp_bias norm_bias layer_norm_bias "},
    {GPT, "false", " scale_attn_by_inverse_layer_idx reorder_and_upcast_attn "},
    {GPT, "0", " rotary_pct partial_rotary_factor "},
    {GPT, "\"absolute\"", " position_embedding_type "},
    {GPT, "\"layernorm\"|\"layer_norm\"", " norm_type "},
    {GPT, "\"gelu_new\"|\"gelu_pytorch_tanh\"",
     " activation_function hidden_act hidden_activation "},
    {LLAMA, "true", " no_bias use_rms_norm use_glu gated_mlp use_gated_mlp use_rope "
                    "use_rotary_embedding "},
    {LLAMA, "false", " attention_bias mlp_bias "},
    {LLAMA, "1", " rope_pct partial_rotary_factor rotary_pct "},
    {LLAMA, "\"rope\"", " position_embedding_type "},
    {LLAMA, "\"rmsnorm\"|\"rms_norm\"", " norm_type "},
    {LLAMA, "\"silu\"|\"swish\"", " hidden_act hidden_activation activation_function "},
    {MLP, "\"relu\"", " hidden_act "},
    {MLP, "true", " bias "},
    {BOTH, "true", " is_causal causal pre_norm do_layer_norm_before normalize_before "
                   "use_final_norm elementwise_affine norm_elementwise_affine "
                   "layer_norm_elementwise_affine "},
    {BOTH, "false", " is_encoder_decoder tie_encoder_decoder "},
    {BOTH, "null", " auto_map "},
};

/* What tells of the model's numbers in the name of a key, beyond the tables. */
static const char stems[] =
    "_eps _gate act_fn activation adapter alibi altup attention attn bias bidirection block_type "
    "causal chunk clamp clip compress conv1d conv_ cross_layer delta emb epsilon expert factor ffn "
    "gate_ gated gating gelu glu hash_ hc_ head_dim hidden_act hyper interleav kv latent laurel "
    "layer_type linear logit loop lora low_rank mamba mask mixer mixture mlp moe multiplier mup_ "
    "ngram nope norm parallel pct per_layer pos_ position prefix_lm prun qk quant query recurr "
    "relative relu resid rope rotary route rwkv scale scaling share sharing shift silu sink "
    "skip_connection skip_layer sliding softcap soft_cap softmax spars ssm stride swa swish theta "
    "tie_ tied top_k topk type_vocab window xpos zero_center";
static const char bounds[] = "cap chunk clamp clip _eps epsilon query softmax theta window";
static const char factors[] = "factor multiplier pct scale scaling";
/* And what tells that it does not: how a model is trained, laid out or run. */
static const char harmless_stems[] =
    "drop loss _token_id tokenizer implementation flash sdpa fused cache dtype jitter checkpoint "
    "classifier summary grad optim learning_rate warmup init_std _plan tensor_parallel "
    "sequence_parallel model_parallel context_parallel pipeline_parallel data_parallel "
    "expert_parallel";

/* Names, sizes and types; how the model is trained, run, or asked for text. */
static const char harmless[] =
    " architectures model_type transformers_version torch_dtype dtype use_cache bos_token_id "
    "pad_token_id sep_token_id decoder_start_token_id task_specific_params return_dict "
    "output_hidden_states output_attentions id2label label2id num_labels problem_type "
    "finetuning_task prefix tokenizer_class torchscript use_bfloat16 chunk_size_feed_forward "
    "is_decoder tf_legacy_loss max_length min_length do_sample early_stopping num_beams "
    "num_beam_groups diversity_penalty temperature top_k top_p typical_p repetition_penalty "
    "length_penalty no_repeat_ngram_size encoder_no_repeat_ngram_size bad_words_ids "
    "num_return_sequences output_scores return_dict_in_generate forced_bos_token_id "
    "forced_eos_token_id remove_invalid_values exponential_decay_length_penalty suppress_tokens "
    "begin_suppress_tokens attn_implementation gradient_checkpointing pretraining_tp n_ctx "
    "summary_type summary_use_proj summary_activation summary_proj_to_labels "
    "summary_first_dropout max_window_layers max_sequence_length model_max_length unk_token_id "
    "unsloth_version unsloth_fixed name_or_path output_past use_return_dict output_router_logits "
    "num_logits_to_keep n_positions max_seq_len max_position max_seq_length seq_length "
    "attention_softmax_in_fp32 residual_in_fp32 scale_attention_softmax_in_fp32 "
    "transformers.js_config ";

static bool in_list(const char *list, const char *key)
{
    size_t n = strchr(key, ' ') ? 0 : strlen(key); /* a list begins with a space */
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

/* One of the words of the list lies in the key. */
static bool has_word(const char *key, const char *list)
{
    char word[32];
    for (const char *p = list; sscanf(p, " %31s", word) == 1; p = strstr(p, word) + strlen(word))
        if (strstr(key, word))
            return true;
    return false;
}

/* The number with which a key of such a name switches nothing on: 1 of a factor, 0 of a count, none
 * of a bound or of what stands for the scale of attention (1 there is another than 1/sqrt(d)). */
static bool is_off(const cJSON *member)
{
    const char *key = member->string;
    bool bound = has_word(key, bounds), factor = has_word(key, factors);
    double x = member->valuedouble;
    if (cJSON_IsNumber(member))
        return !bound && (factor ? x == 1.0 && !has_word(key, "attn attention") : x == 0.0);
    if (cJSON_IsString(member))
        return member->valuestring[0] == '\0' || strcmp(member->valuestring, "none") == 0;
    return cJSON_IsNull(member) || cJSON_IsFalse(member) ||
           ((cJSON_IsArray(member) || cJSON_IsObject(member)) && !member->child);
}

enum hf_key hf_key_judge(enum model_kind kind, const cJSON *member, const char **legal)
{
    const char *key = member->string;
    *legal = NULL;
    for (size_t i = 0; i < sizeof neutral / sizeof *neutral; i++) {
        if (!(neutral[i].kinds & 1 << kind) || !in_list(neutral[i].list, key))
            continue;
        *legal = neutral[i].legal;
        return cJSON_IsNull(member) || is_one_of(member, *legal) ? HF_KEY_PASS : HF_KEY_REFUSE;
    }
    if (key[0] == '_' || in_list(harmless, key) || cJSON_IsNull(member))
        return HF_KEY_PASS;
    bool tells = has_word(key, stems) && !has_word(key, harmless_stems) &&
                 strncmp(key, "init", 4) != 0;
    if (!tells) /* of what a model computes */
        return HF_KEY_UNKNOWN;
    return is_off(member) ? HF_KEY_PASS : HF_KEY_REFUSE;
}
