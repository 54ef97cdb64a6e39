/* SPDX-License-Identifier: Apache-2.0
 *
 * Names and shapes as transformers has them, and config.json. The lists of names were taken from
 * the state of GPT2LMHeadModel and LlamaForCausalLM.
 */
#include "model/model.h"
#include "ckpt/weights.h"
#include "test.h"

#include "base/mem.h"
#include "base/text.h"
#include <fcntl.h>
#include <unistd.h>

#define DIR_NAME "hf"

static const struct model gpt = {.kind = MODEL_GPT,
                                 .layers = 2,
                                 .hidden = 8,
                                 .heads = 2,
                                 .kv_heads = 2,
                                 .head_dim = 4,
                                 .ffn = 20,
                                 .vocab = 257,
                                 .seq = 16,
                                 .tied = true,
                                 .dropout = 0.1,
                                 .norm_eps = 1e-5,
                                 .rope_theta = 10000.0,
                                 .init_std = 0.02};
static const struct model llama = {.kind = MODEL_LLAMA,
                                   .layers = 2,
                                   .hidden = 8,
                                   .heads = 4,
                                   .kv_heads = 2,
                                   .head_dim = 6,
                                   .ffn = 20,
                                   .vocab = 257,
                                   .seq = 16,
                                   .tied = false,
                                   .norm_eps = 1e-6,
                                   .rope_theta = 500000.0,
                                   .init_std = 0.02};

/* Parameter i of a whole model; false behind the last. */
static bool param_at(const struct model *a, int i, struct model_param *out)
{
    struct model_param *all;
    int n;
    CHECK_OK(model_param_list(a, &all, &n));
    bool there = i < n;
    if (there)
        *out = all[i];
    mem_free(all);
    return there;
}

struct tensor {
    const char *name;
    int nd;
    int64_t shape[2];
};

/* Every parameter lies in a tensor of the list, and together they fill each tensor once. */
static void check_names(const struct model *a, const struct tensor *want, int n)
{
    int64_t filled[64] = {0};
    struct model_param p;
    for (int i = 0; param_at(a, i, &p); i++) {
        struct hf_place h;
        hf_place(a, &p, &h);
        int k = 0;
        while (k < n && strcmp(want[k].name, h.tensor) != 0)
            k++;
        if (!test_check(k < n, __FILE__, __LINE__, "%s gives %s", p.name, h.tensor))
            continue;
        CHECK_INT(h.nd, want[k].nd);
        CHECK_INT(h.shape[0], want[k].shape[0]);
        CHECK_INT(h.shape[1], want[k].shape[1]);
        /* Fused parts come in order, each where the one before ends. */
        int64_t width = h.nd == 1 ? 1 : h.transposed ? h.shape[0] : h.shape[1];
        CHECK_INT(h.out0 * width, filled[k]);
        filled[k] += p.shape[0] * p.shape[1];
    }
    for (int k = 0; k < n; k++)
        test_check(filled[k] == want[k].shape[0] * want[k].shape[1], __FILE__, __LINE__,
                   "%s has %lld elements filled", want[k].name, (long long)filled[k]);
}

static void test_gpt_names(void)
{
    static const struct tensor want[] = {
        {"transformer.wte.weight", 2, {257, 8}},
        {"transformer.wpe.weight", 2, {16, 8}},
        {"transformer.h.0.ln_1.weight", 1, {8, 1}},
        {"transformer.h.0.ln_1.bias", 1, {8, 1}},
        {"transformer.h.0.attn.c_attn.weight", 2, {8, 24}},
        {"transformer.h.0.attn.c_attn.bias", 1, {24, 1}},
        {"transformer.h.0.attn.c_proj.weight", 2, {8, 8}},
        {"transformer.h.0.attn.c_proj.bias", 1, {8, 1}},
        {"transformer.h.0.ln_2.weight", 1, {8, 1}},
        {"transformer.h.0.ln_2.bias", 1, {8, 1}},
        {"transformer.h.0.mlp.c_fc.weight", 2, {8, 20}},
        {"transformer.h.0.mlp.c_fc.bias", 1, {20, 1}},
        {"transformer.h.0.mlp.c_proj.weight", 2, {20, 8}},
        {"transformer.h.0.mlp.c_proj.bias", 1, {8, 1}},
        {"transformer.h.1.ln_1.weight", 1, {8, 1}},
        {"transformer.h.1.ln_1.bias", 1, {8, 1}},
        {"transformer.h.1.attn.c_attn.weight", 2, {8, 24}},
        {"transformer.h.1.attn.c_attn.bias", 1, {24, 1}},
        {"transformer.h.1.attn.c_proj.weight", 2, {8, 8}},
        {"transformer.h.1.attn.c_proj.bias", 1, {8, 1}},
        {"transformer.h.1.ln_2.weight", 1, {8, 1}},
        {"transformer.h.1.ln_2.bias", 1, {8, 1}},
        {"transformer.h.1.mlp.c_fc.weight", 2, {8, 20}},
        {"transformer.h.1.mlp.c_fc.bias", 1, {20, 1}},
        {"transformer.h.1.mlp.c_proj.weight", 2, {20, 8}},
        {"transformer.h.1.mlp.c_proj.bias", 1, {8, 1}},
        {"transformer.ln_f.weight", 1, {8, 1}},
        {"transformer.ln_f.bias", 1, {8, 1}},
        {"lm_head.weight", 2, {257, 8}},
    };
    struct model untied = gpt;
    untied.tied = false;
    int n = sizeof want / sizeof *want;
    check_names(&untied, want, n);
    check_names(&gpt, want, n - 1); /* tied: no head is saved */
}

static void test_llama_names(void)
{
    static const struct tensor want[] = {
        {"model.embed_tokens.weight", 2, {257, 8}},
        {"model.layers.0.self_attn.q_proj.weight", 2, {24, 8}},
        {"model.layers.0.self_attn.k_proj.weight", 2, {12, 8}},
        {"model.layers.0.self_attn.v_proj.weight", 2, {12, 8}},
        {"model.layers.0.self_attn.o_proj.weight", 2, {8, 24}},
        {"model.layers.0.mlp.gate_proj.weight", 2, {20, 8}},
        {"model.layers.0.mlp.up_proj.weight", 2, {20, 8}},
        {"model.layers.0.mlp.down_proj.weight", 2, {8, 20}},
        {"model.layers.0.input_layernorm.weight", 1, {8, 1}},
        {"model.layers.0.post_attention_layernorm.weight", 1, {8, 1}},
        {"model.layers.1.self_attn.q_proj.weight", 2, {24, 8}},
        {"model.layers.1.self_attn.k_proj.weight", 2, {12, 8}},
        {"model.layers.1.self_attn.v_proj.weight", 2, {12, 8}},
        {"model.layers.1.self_attn.o_proj.weight", 2, {8, 24}},
        {"model.layers.1.mlp.gate_proj.weight", 2, {20, 8}},
        {"model.layers.1.mlp.up_proj.weight", 2, {20, 8}},
        {"model.layers.1.mlp.down_proj.weight", 2, {8, 20}},
        {"model.layers.1.input_layernorm.weight", 1, {8, 1}},
        {"model.layers.1.post_attention_layernorm.weight", 1, {8, 1}},
        {"model.norm.weight", 1, {8, 1}},
        {"lm_head.weight", 2, {257, 8}},
    };
    struct model tied = llama;
    tied.tied = true;
    int n = sizeof want / sizeof *want;
    check_names(&llama, want, n);
    check_names(&tied, want, n - 1);
}

/* On a stage of its own a tied head has a copy; it is the embedding in the file. */
static void test_tied_copy(void)
{
    struct model_param p[MODEL_PART_PARAMS];
    struct hf_place h;
    struct layer head = model_layer(&gpt, model_layers(&gpt) - 1);
    int n = model_layer_params(&head, true, p);
    CHECK(p[n - 1].tied_copy);
    hf_place(&gpt, &p[n - 1], &h);
    CHECK_STR(h.tensor, "transformer.wte.weight");
    CHECK(!h.transposed && h.out0 == 0 && h.shape[0] == 257 && h.shape[1] == 8);
}

/* Which layers are stored (in, out), and where q, k and v lie. */
static void test_conv1d(void)
{
    struct model_param p;
    struct hf_place h;
    int transposed = 0;
    for (int i = 0; param_at(&gpt, i, &p); i++) {
        hf_place(&gpt, &p, &h);
        transposed += h.transposed;
        bool linear = p.part != LAYER_EMBED && p.part != LAYER_HEAD && h.nd == 2;
        test_check(h.transposed == linear, __FILE__, __LINE__, "%s", p.name);
        int64_t row = p.role == PARAM_K_W || p.role == PARAM_K_B   ? 8
                      : p.role == PARAM_V_W || p.role == PARAM_V_B ? 16
                                                                 : 0;
        CHECK_INT(h.out0, row);
    }
    CHECK_INT(transposed, 2 * 6);
    for (int i = 0; param_at(&llama, i, &p); i++) {
        hf_place(&llama, &p, &h);
        CHECK(!h.transposed && h.out0 == 0);
    }
}

static void test_find(void)
{
    static const char header[] =
        "{\"wte.weight\":{\"dtype\":\"F32\",\"shape\":[257,8],\"data_offsets\":[0,8224]},"
        "\"transformer.wpe.weight\":{\"dtype\":\"F32\",\"shape\":[16,8],"
        "\"data_offsets\":[8224,8736]},"
        "\"lm_head.weight\":{\"dtype\":\"F32\",\"shape\":[8,257],\"data_offsets\":[8736,16960]},"
        "\"model.norm.weight\":{\"dtype\":\"I32\",\"shape\":[8],\"data_offsets\":[16960,16992]}}";
    uint8_t *p;
    struct safet_file f;
    struct weights_tensor e;
    int64_t n = (int64_t)sizeof header - 1;
    CHECK_OK(mem_new(8 + n + 16992, 1, "a test file", &p));
    p[0] = (uint8_t)n;
    p[1] = (uint8_t)(n >> 8);
    memcpy(p + 8, header, (size_t)n);
    CHECK_OK(safet_open_bytes(&f, "test", p, 8 + n + 16992));
    struct weights w = {.files = {&f, 1}};
    struct hf_place h = {.tensor = "transformer.wte.weight", .nd = 2, .shape = {257, 8}};
    CHECK_OK(weights_find(&w, &h, &e)); /* a file of the bare model has no prefix */
    CHECK_STR(e.name, "wte.weight");
    h = (struct hf_place){.tensor = "transformer.wpe.weight", .nd = 2, .shape = {16, 8}};
    CHECK_OK(weights_find(&w, &h, &e));
    CHECK_STR(e.name, "transformer.wpe.weight");
    h.shape[0] = 17;
    CHECK_ERR(weights_find(&w, &h, &e), ERR_CHECKPOINT, "has shape (16, 8), the model has (17, 8)");
    h = (struct hf_place){.tensor = "lm_head.weight", .nd = 2, .shape = {257, 8}};
    CHECK_ERR(weights_find(&w, &h, &e), ERR_CHECKPOINT, "(8, 257), the model has (257, 8)");
    h = (struct hf_place){.tensor = "model.norm.weight", .nd = 1, .shape = {8, 1}};
    CHECK_ERR(weights_find(&w, &h, &e), ERR_CHECKPOINT, "is of dtype I32");
    h.tensor[0] = 'x';
    CHECK_ERR(weights_find(&w, &h, &e), ERR_CHECKPOINT, "no tensor xodel.norm.weight among its 4");
    safet_close(&f);
    mem_free(p);
}

/* ---- config.json ---- */

static void check_same(const struct model *a, const struct model *b)
{
    CHECK_INT(b->kind, a->kind);
    CHECK_INT(b->layers, a->layers);
    CHECK_INT(b->hidden, a->hidden);
    CHECK_INT(b->heads, a->heads);
    CHECK_INT(b->kv_heads, a->kv_heads);
    CHECK_INT(b->head_dim, a->head_dim);
    CHECK_INT(b->ffn, a->ffn);
    CHECK_INT(b->vocab, a->vocab);
    CHECK_INT(b->seq, a->seq);
    CHECK_INT(b->tied, a->tied);
    CHECK_NEAR(b->dropout, a->dropout, 0.0);
    CHECK_NEAR(b->norm_eps, a->norm_eps, 0.0);
    CHECK_NEAR(b->init_std, a->init_std, 0.0);
    if (a->kind == MODEL_LLAMA)
        CHECK_NEAR(b->rope_theta, a->rope_theta, 0.0);
}

static void test_config_round_trip(void)
{
    const char *path = DIR_NAME "/config.json";
    CHECK_OK(fs_make_dirs(DIR_NAME));
    for (int round = 0; round < 24; round++) {
        struct model a = round % 2 ? gpt : llama;
        struct hf_config c;
        int32_t end = round % 4 ? (int32_t)test_range(0, INT32_MAX) : -1;
        a.layers = test_range(1, 200);
        a.kv_heads = test_range(1, 16);
        a.heads = a.kind == MODEL_GPT ? a.kv_heads : a.kv_heads * test_range(1, 8);
        a.head_dim = 2 * test_range(1, 64);
        a.hidden = a.kind == MODEL_GPT ? a.heads * a.head_dim : test_range(1, 20000);
        a.ffn = test_range(1, 60000);
        a.vocab = test_range(1, 200000);
        a.seq = test_range(1, 200000);
        a.tied = test_random() % 2;
        a.dropout = test_real(0.0, 0.9);
        a.norm_eps = test_real(1e-9, 1e-3);
        a.rope_theta = test_real(100.0, 1e7);
        a.init_std = test_real(0.001, 0.1);
        struct text t = {0};
        CHECK_OK(hf_config_text(&a, round % 3 ? SAFET_F32 : SAFET_BF16, end, &t));
        CHECK_OK(fs_put(path, t.s, t.len));
        text_free(&t);
        CHECK_OK(hf_config_read(path, &c));
        check_same(&a, &c.model);
        CHECK_STR(c.unknown, "");
        CHECK_INT(c.ends, end >= 0);
        CHECK(end < 0 || c.end[0] == end);
    }
}

static enum err read_config(const char *text, struct hf_config *out)
{
    static const char path[] = DIR_NAME "/text.json";
    const size_t n = strlen(text);
    CHECK_OK(fs_make_dirs(DIR_NAME));
    /* In place: cutting a file to nothing first costs a flush on some file systems. */
    int fd = open(path, O_WRONLY | O_CREAT, 0666);
    CHECK(fd >= 0 && pwrite(fd, text, n, 0) == (ssize_t)n && ftruncate(fd, (off_t)n) == 0);
    if (fd >= 0)
        close(fd);
    return hf_config_read(path, out);
}

static enum err read_text(const char *text, struct model *out)
{
    struct hf_config c;
    enum err err = read_config(text, &c);
    *out = (struct model){.layers = -7}; /* written on success only */
    if (err == ERR_OK)
        *out = c.model;
    return err;
}

/* The keys of published files; what they leave out has transformers' default. */
static void test_config_published(void)
{
    struct model a;
    CHECK_OK(read_text("{\"activation_function\": \"gelu_new\", \"architectures\": "
                       "[\"GPT2LMHeadModel\"], \"attn_pdrop\": 0.1, \"bos_token_id\": 50256, "
                       "\"embd_pdrop\": 0.1, \"initializer_range\": 0.02, "
                       "\"layer_norm_epsilon\": 1e-05, \"model_type\": \"gpt2\", \"n_ctx\": 1024, "
                       "\"n_embd\": 768, \"n_head\": 12, \"n_layer\": 12, \"n_positions\": 1024, "
                       "\"resid_pdrop\": 0.1, \"task_specific_params\": {\"text-generation\": "
                       "{\"do_sample\": true, \"max_length\": 50}}, \"vocab_size\": 50257}",
                       &a));
    check_same(&(struct model){.kind = MODEL_GPT,
                               .layers = 12,
                               .hidden = 768,
                               .heads = 12,
                               .kv_heads = 12,
                               .head_dim = 64,
                               .ffn = 3072,
                               .vocab = 50257,
                               .seq = 1024,
                               .tied = true,
                               .dropout = 0.1,
                               .norm_eps = 1e-5,
                               .init_std = 0.02},
               &a);
    CHECK_INT(model_params(&a), 124439808);
    CHECK_OK(read_text("{\"model_type\":\"llama\",\"hidden_size\":2048,\"intermediate_size\":5632,"
                       "\"num_hidden_layers\":22,\"num_attention_heads\":32,"
                       "\"num_key_value_heads\":4,\"vocab_size\":32000,\"rms_norm_eps\":1e-05,"
                       "\"max_position_embeddings\":2048,\"rope_scaling\":null}",
                       &a));
    check_same(&(struct model){.kind = MODEL_LLAMA,
                               .layers = 22,
                               .hidden = 2048,
                               .heads = 32,
                               .kv_heads = 4,
                               .head_dim = 64,
                               .ffn = 5632,
                               .vocab = 32000,
                               .seq = 2048,
                               .norm_eps = 1e-5,
                               .rope_theta = 10000.0,
                               .init_std = 0.02},
               &a);
    CHECK_INT(model_params(&a), 1100048384);
}

#define LLAMA                                                                                      \
    "{\"model_type\":\"llama\",\"hidden_size\":8,\"intermediate_size\":16,"                        \
    "\"num_hidden_layers\":1,\"num_attention_heads\":2,\"vocab_size\":9"
#define GPT                                                                                        \
    "{\"model_type\":\"gpt2\",\"n_embd\":8,\"n_layer\":1,\"n_head\":2,\"n_positions\":4,"          \
    "\"vocab_size\":9"

/* The two forms of rotary positions, alone and together. */
static void test_config_rope(void)
{
    struct model a;
    CHECK_OK(read_text(LLAMA "}", &a));
    CHECK_NEAR(a.rope_theta, 10000.0, 0.0);
    CHECK_OK(read_text(LLAMA ",\"rope_theta\":5e5}", &a));
    CHECK_NEAR(a.rope_theta, 5e5, 0.0);
    CHECK_OK(
        read_text(LLAMA ",\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":7}}", &a));
    CHECK_NEAR(a.rope_theta, 7.0, 0.0);
    CHECK_OK(read_text(LLAMA ",\"rope_scaling\":{\"type\":\"default\"},\"rope_theta\":7.0,"
                             "\"rope_parameters\":{\"rope_theta\":7}}", &a));
    CHECK_NEAR(a.rope_theta, 7.0, 0.0);
    CHECK_ERR(read_text(LLAMA ",\"rope_theta\":8,\"rope_parameters\":{\"rope_theta\":7}}", &a),
              ERR_CHECKPOINT, "rope_theta 8 and, in rope_parameters, 7");
    CHECK_ERR(read_text(LLAMA ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8.0}}", &a),
              ERR_CHECKPOINT, "rope_type llama3");
    CHECK_ERR(read_text(LLAMA ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2.0}}", &a),
              ERR_CHECKPOINT, "type linear");
    CHECK_ERR(read_text(LLAMA ",\"rope_parameters\":{\"rope_type\":\"yarn\"}}", &a), ERR_CHECKPOINT,
              "yarn");
    CHECK_ERR(read_text(LLAMA ",\"rope_parameters\":{\"partial_rotary_factor\":0.5}}", &a),
              ERR_CHECKPOINT, "partial_rotary_factor");
    CHECK_ERR(read_text(LLAMA ",\"rope_scaling\":[1]}", &a), ERR_CHECKPOINT, "no object");
    CHECK_ERR(read_text(LLAMA ",\"rope_parameters\":[{}]}", &a), ERR_CHECKPOINT, "no object");
}

static void test_config_refusals(void)
{
    static const struct {
        const char *text, *say;
    } bad[] = {
        {"", "no object"},
        {"[]", "no object"},
        {"{}", "model_type \"\""},
        {"{\"model_type\":3}", "model_type \"\""},
        {"{\"model_type\":\"qwen2\"}", "model_type \"qwen2\", plait reads gpt2 and llama, and mlp"},
        {"{\"model_type\":\"llama\"}", "no key vocab_size"},
        {LLAMA, "has no comma"},
        {LLAMA ",\"hidden_size\":8}", "hidden_size twice"},
        {LLAMA ",\"hidden_act\":\"gelu\"}",
         "hidden_act \"gelu\", plait computes \"silu\"|\"swish\" only"},
        {LLAMA ",\"hidden_act\":1}", "hidden_act 1,"},
        {LLAMA ",\"attention_bias\":true}", "attention_bias true"},
        {LLAMA ",\"mlp_bias\":true}", "mlp_bias true"},
        {LLAMA ",\"mlp_bias\":0}", "mlp_bias 0, plait computes false only"},
        {LLAMA ",\"head_dim\":3}", "rotary positions"},
        {LLAMA ",\"head_dim\":0}", "head_dim"},
        {LLAMA ",\"num_key_value_heads\":3}", "does not divide"},
        {LLAMA ",\"num_key_value_heads\":-2}", "num_key_value_heads"},
        {LLAMA ",\"num_key_value_heads\":1.5}", "num_key_value_heads"},
        {LLAMA ",\"num_key_value_heads\":\"2\"}", "num_key_value_heads"},
        {LLAMA ",\"max_position_embeddings\":4294967297}", "max_position_embeddings"},
        {LLAMA ",\"max_position_embeddings\":1e300}", "max_position_embeddings"},
        {LLAMA ",\"max_position_embeddings\":18446744073709551617}", "max_position_embeddings"},
        {LLAMA ",\"max_position_embeddings\":2147483647}", "model.seq is 2147483647"},
        {LLAMA ",\"rms_norm_eps\":-1}", "rms_norm_eps"},
        {LLAMA ",\"rms_norm_eps\":\"x\"}", "rms_norm_eps"},
        {LLAMA ",\"initializer_range\":1e400}", "initializer_range"},
        {LLAMA ",\"x\":nonsense}", "no JSON"},
        {LLAMA ",\"x\":\"\xff\"}", "no UTF-8"},
        {GPT ",\"activation_function\":\"relu\"}", "activation_function \"relu\""},
        {GPT ",\"scale_attn_weights\":false}", "scale_attn_weights false"},
        {GPT ",\"scale_attn_by_inverse_layer_idx\":true}", "by_inverse_layer_idx true"},
        {GPT ",\"add_cross_attention\":true}", "add_cross_attention true"},
        {GPT ",\"n_head\":2}", "n_head twice"},
        {"{\"model_type\":\"gpt2\",\"n_embd\":9,\"n_layer\":1,\"n_head\":2,\"n_positions\":4,"
         "\"vocab_size\":9}",
         "n_embd 9, which n_head 2 does not divide"},
        {"{\"model_type\":\"gpt2\",\"n_embd\":8,\"n_layer\":1,\"n_head\":0,\"n_positions\":4,"
         "\"vocab_size\":9}",
         "n_head"},
    };
    struct model a;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_ERR(read_text(bad[i].text, &a), ERR_CHECKPOINT, bad[i].say);
    CHECK_INT(a.layers, -7);
    CHECK_OK(read_text(LLAMA ",\"head_dim\":null,\"num_key_value_heads\":null}", &a));
    CHECK_INT(a.kv_heads, 2);
    CHECK_INT(a.head_dim, 4);
    CHECK_OK(read_text(GPT ",\"n_inner\":null}", &a));
    CHECK_INT(a.ffn, 32);
}

static const struct key { const char *key, *good, *bad; } both[] = {
    {"add_cross_attention", "false", "true"},
    {"is_encoder_decoder", "false", "true"},
    {"pruned_heads", "{}", "{\"0\":[1]}"},
    {"auto_map", "null", "{\"AutoModel\":\"x.Y\"}"},
    {"quantization_config", "null", "{\"bits\":4}"},
    {"sliding_window", "null", "128"},
    {"use_sliding_window", "false", "true"},
    {"final_logit_softcapping", "null", "30.0"},
    {"attn_logit_softcapping", "null", "50.0"},
    {"logits_scaling", "1.0", "8"},
    {"logit_scale", "1", "0.0625"},
    {"embedding_multiplier", "1.0", "12"},
    {"residual_multiplier", "1", "0.22"},
    {"attention_multiplier", "null", "0.015"},
    {"qk_norm", "false", "true"},
    {"clip_qkv", "null", "8"},
    {"num_local_experts", "0", "8"},
}, of_llama[] = {
    {"hidden_act", "\"silu\"", "\"gelu\""},
    {"hidden_act", "\"swish\"", "\"relu\""},
    {"attention_bias", "false", "true"},
    {"mlp_bias", "false", "true"},
    {"partial_rotary_factor", "1.0", "0.5"},
    {"rope_scaling", "{\"rope_type\":\"default\"}", "{\"factor\":4.0}"},
    {"rope_parameters", "{\"rope_theta\":10000.0}", "{\"factor\":4.0}"},
    {"layer_types", "[\"full_attention\"]", "[\"sliding_attention\"]"},
    {"no_rope_layers", "[]", "[1,0]"},
}, of_gpt[] = {
    {"activation_function", "\"gelu_new\"", "\"gelu\""},
    {"activation_function", "\"gelu_pytorch_tanh\"", "\"relu\""},
    {"scale_attn_weights", "true", "false"},
    {"scale_attn_by_inverse_layer_idx", "false", "true"},
    {"reorder_and_upcast_attn", "false", "true"},
    {"hidden_size", "8", "16"},
    {"num_attention_heads", "2", "4"},
    {"num_hidden_layers", "1", "2"},
    {"max_position_embeddings", "4", "8"},
};

/* Every key that would change the numbers: null and plait's value pass, others are refused. */
static void test_config_keys(void)
{
    static const char *const base[] = {LLAMA, GPT};
    struct hf_config c;
    char text[512];
    for (int kind = 0; kind < 2; kind++) {
        const struct key *own = kind ? of_gpt : of_llama;
        int owns = kind ? sizeof of_gpt / sizeof *own : sizeof of_llama / sizeof *own;
        for (int i = 0; i < owns + (int)(sizeof both / sizeof *both); i++) {
            const struct key *k = i < owns ? &own[i] : &both[i - owns];
            for (int good = 0; good < 2; good++) {
                snprintf(text, sizeof text, "%s,\"%s\":%s}", base[kind], k->key,
                         good ? k->good : "null");
                CHECK_OK(read_config(text, &c));
                CHECK_STR(c.unknown, "");
            }
            snprintf(text, sizeof text, "%s,\"%s\":%s}", base[kind], k->key, k->bad);
            CHECK_ERR(read_config(text, &c), ERR_CHECKPOINT, k->key);
        }
    }
}

/* Harmless keys pass, unknown ones are told; ends of text are one id or several. */
static void test_config_passed_over(void)
{
    static const char *const base[] = {LLAMA, GPT};
    struct hf_config c;
    char text[512];
    for (int kind = 0; kind < 2; kind++) {
        snprintf(text, sizeof text,
                 "%s,\"use_cache\":false,\"_name_or_path\":\"x\",\"top_k\":50,\"my_key\":1,"
                 "\"other\\n\":[],\"third\":null}", base[kind]);
        CHECK_OK(read_config(text, &c));
        CHECK_STR(c.unknown, "my_key, other?");
        snprintf(text, sizeof text, "%s,\"eos_token_id\":[3,5]}", base[kind]);
        CHECK_OK(read_config(text, &c));
        CHECK(c.ends == 2 && c.end[0] == 3 && c.end[1] == 5);
        snprintf(text, sizeof text, "%s,\"eos_token_id\":[3,[5]]}", base[kind]);
        CHECK_ERR(read_config(text, &c), ERR_CHECKPOINT, "eos_token_id");
        snprintf(text, sizeof text, "%s,\"eos_token_id\":[1,2,3,4,5,6,7,8,9]}", base[kind]);
        CHECK_ERR(read_config(text, &c), ERR_CHECKPOINT, "at most 8");
    }
}

/* Cut at every byte, nested deep, and mutated at random. */
/* Editors put a mark of the byte order in front. */
static void test_config_marks(void)
{
    struct hf_config plain, marked;
    CHECK_OK(read_config(LLAMA "}", &plain));
    CHECK_OK(read_config("\xef\xbb\xbf" LLAMA "}", &marked));
    check_same(&plain.model, &marked.model);
    CHECK_ERR(read_config("\xff\xfe" LLAMA "}", &marked), ERR_CHECKPOINT,
              "mark of UTF-16; save it as");
    CHECK_ERR(read_config("\xef\xbb\xbf[]", &marked), ERR_CHECKPOINT, "no object at byte 3; it is");
}

static void test_config_hostile(void)
{
    static const char good[] = LLAMA ",\"rope_parameters\":{\"rope_theta\":7},\"x\":[[1,{}]]}";
    char text[sizeof good];
    struct model a;
    struct text deep = {0};
    char *s;
    CHECK_OK(read_text(good, &a));
    for (size_t n = 0; n < sizeof good - 1; n++) {
        memcpy(text, good, n);
        text[n] = '\0';
        CHECK_ERR(read_text(text, &a), ERR_CHECKPOINT, "text.json");
    }
    text_add(&deep, "{\"x\":");
    text_add_char(&deep, '[', 900000);
    CHECK_OK(text_done(&deep, &s));
    CHECK_ERR(read_text(s, &a), ERR_CHECKPOINT, "nested too deep");
    mem_free(s);
    text_add(&deep, "{\"x\":\"");
    text_add_char(&deep, 'x', 1 << 20);
    text_add(&deep, "\"}");
    CHECK_OK(text_done(&deep, &s));
    CHECK_ERR(read_text(s, &a), ERR_CHECKPOINT, "at most 1048576");
    mem_free(s);
    for (int round = 0; round < 5000; round++) {
        memcpy(text, good, sizeof good);
        for (int64_t k = test_range(1, 3); k-- > 0;)
            text[test_range(0, (int64_t)sizeof good - 2)] =
                "{}[]\",:0123456789-.eE\\untrfalse "[test_range(0, 31)];
        enum err err = read_text(text, &a);
        CHECK(err == ERR_OK || err == ERR_CHECKPOINT);
        if (err == ERR_OK)
            CHECK_OK(model_check(&a));
    }
}

static const struct test_case cases[] = {
    {"names of gpt", test_gpt_names},
    {"names of llama", test_llama_names},
    {"a tied copy is the embedding", test_tied_copy},
    {"transposed and fused weights", test_conv1d},
    {"find a tensor", test_find},
    {"config comes back", test_config_round_trip},
    {"published configs", test_config_published},
    {"rotary positions in both forms", test_config_rope},
    {"config refusals", test_config_refusals},
    {"keys that change numbers", test_config_keys},
    {"keys that are passed over", test_config_passed_over},
    {"byte order marks", test_config_marks},
    {"hostile configs", test_config_hostile},
};
TEST_MAIN(cases)
