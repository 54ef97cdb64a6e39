/* SPDX-License-Identifier: Apache-2.0
 *
 * config.json into arch. The rule: a key that changes what the model computes is either understood
 * or refused; keys that do not (use_cache, task lists) are passed over. Keys left out have the
 * default that transformers gives them, since files are written with that in mind.
 *
 * The file is small; it is bounded, its nesting is bounded, and cJSON may then have it whole. A key
 * that stands twice is refused: readers differ in which one counts.
 */
#include "ckpt/ckpt.h"

#include "base/mem.h"
#include "ckpt/ckpt_json.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { CONFIG_MAX = 1 << 20, CONFIG_DEPTH = 32 };

/* The file while it is read. The first error stays in err, later reads do nothing. */
struct config {
    const char *path;
    const cJSON *root;
    enum err err;
};

static void refuse(struct config *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void refuse(struct config *c, const char *fmt, ...)
{
    char made[1024];
    va_list ap;
    if (c->err != ERR_OK)
        return;
    va_start(ap, fmt);
    vsnprintf(made, sizeof made, fmt, ap);
    va_end(ap);
    c->err = err_set(ERR_CHECKPOINT, __FILE__, __LINE__, "ckpt: %s %s", c->path, made);
}

/* Member of an object; NULL when it is missing or null. */
static const cJSON *get(struct config *c, const cJSON *object, const char *key)
{
    const cJSON *found = NULL, *x;
    cJSON_ArrayForEach(x, object)
    {
        if (!x->string || strcmp(x->string, key) != 0)
            continue;
        if (found)
            refuse(c, "has the key %s twice; keep one", key);
        found = x;
    }
    return found && !cJSON_IsNull(found) ? found : NULL;
}

/* A whole number from 1 to 2^31 - 1; `preset` when missing, and 0 means that it must not be. */
static int64_t get_int(struct config *c, const char *key, int64_t preset)
{
    int64_t v = preset;
    const cJSON *x = get(c, c->root, key);
    if (!x && preset == 0)
        refuse(c,
               "has no key %s, which its model_type needs; take the config.json that "
               "belongs to the weights",
               key);
    else if (x && (!ckpt_json_int(x, &v) || v < 1 || v > INT32_MAX))
        refuse(c, "has a %s that is no whole number from 1 to %d", key, INT32_MAX);
    return v;
}

static double real_in(struct config *c, const cJSON *object, const char *key, double preset)
{
    const cJSON *x = get(c, object, key);
    if (!x)
        return preset;
    if (!cJSON_IsNumber(x) || !(x->valuedouble >= 0.0 && x->valuedouble <= 1e18))
        refuse(c, "has a %s that is no number from 0 to 1e18", key);
    return x->valuedouble;
}

static double get_real(struct config *c, const char *key, double preset)
{
    return real_in(c, c->root, key, preset);
}

static bool get_bool(struct config *c, const char *key, bool preset)
{
    const cJSON *x = get(c, c->root, key);
    if (x && !cJSON_IsBool(x))
        refuse(c, "has a %s that is neither true nor false", key);
    return x ? cJSON_IsTrue(x) : preset;
}

/* A switch that plait has in one position only. */
static void need_bool(struct config *c, const char *key, bool need)
{
    if (get_bool(c, key, need) != need)
        refuse(c, "says %s %s, plait computes models with %s only", key, need ? "false" : "true",
               need ? "true" : "false");
}

/* A word out of "a|b", the first when missing. */
static void need_word(struct config *c, const cJSON *object, const char *key, const char *legal)
{
    const cJSON *x = get(c, object, key);
    if (!x)
        return;
    const char *s = cJSON_IsString(x) ? x->valuestring : "something that is no text";
    size_t n = strlen(s);
    for (const char *p = legal; *p;) {
        size_t word = strcspn(p, "|");
        if (cJSON_IsString(x) && word == n && memcmp(p, s, n) == 0)
            return;
        p += word + (p[word] == '|');
    }
    refuse(c, "says %s %.64s, plait computes %s only", key, s, legal);
}

static void read_gpt(struct config *c, struct arch *a)
{
    a->kind = ARCH_GPT;
    a->vocab = get_int(c, "vocab_size", 0);
    a->seq = get_int(c, "n_positions", 0);
    a->hidden = get_int(c, "n_embd", 0);
    a->layers = get_int(c, "n_layer", 0);
    a->heads = a->kv_heads = get_int(c, "n_head", 0);
    a->ffn = get_int(c, "n_inner", 4 * a->hidden);
    a->norm_eps = get_real(c, "layer_norm_epsilon", 1e-5);
    a->tied = get_bool(c, "tie_word_embeddings", true);
    a->rope_theta = 10000.0; /* not used by gpt */
    need_word(c, c->root, "activation_function", "gelu_new|gelu_pytorch_tanh");
    need_bool(c, "scale_attn_weights", true);
    need_bool(c, "scale_attn_by_inverse_layer_idx", false);
    need_bool(c, "add_cross_attention", false);
    if (c->err == ERR_OK && a->hidden % a->heads != 0)
        refuse(c, "has n_embd %lld, which n_head %lld does not divide", (long long)a->hidden,
               (long long)a->heads);
    a->head_dim = c->err == ERR_OK ? a->hidden / a->heads : 0;
    a->dropout = get_real(c, "resid_pdrop", 0.1);
    double embed = get_real(c, "embd_pdrop", 0.1), attn = get_real(c, "attn_pdrop", 0.1);
    if (embed != a->dropout || attn != a->dropout)
        refuse(c,
               "has resid_pdrop %g, embd_pdrop %g, attn_pdrop %g, plait has one dropout "
               "for all; make them equal",
               a->dropout, embed, attn);
}

/* Rotary positions, in the old form, the new one, or both when they agree. */
static void read_rope(struct config *c, struct arch *a)
{
    const cJSON *old = get(c, c->root, "rope_scaling"), *now = get(c, c->root, "rope_parameters");
    double theta = get_real(c, "rope_theta", 0.0), newer = 0.0;
    if ((old && !cJSON_IsObject(old)) || (now && !cJSON_IsObject(now)))
        refuse(c, "has a rope_scaling or rope_parameters that is no object");
    if (old) {
        need_word(c, old, "rope_type", "default");
        need_word(c, old, "type", "default");
    }
    if (now) {
        need_word(c, now, "rope_type", "default");
        newer = real_in(c, now, "rope_theta", 0.0);
        if (real_in(c, now, "partial_rotary_factor", 1.0) != 1.0)
            refuse(c, "has a partial_rotary_factor other than 1, plait turns all of a head");
    }
    if (theta > 0.0 && newer > 0.0 && theta != newer)
        refuse(c, "has rope_theta %g and, in rope_parameters, %g; keep the right one", theta,
               newer);
    a->rope_theta = newer > 0.0 ? newer : theta > 0.0 ? theta : 10000.0;
}

static void read_llama(struct config *c, struct arch *a)
{
    a->kind = ARCH_LLAMA;
    a->vocab = get_int(c, "vocab_size", 0);
    a->seq = get_int(c, "max_position_embeddings", 2048);
    a->hidden = get_int(c, "hidden_size", 0);
    a->ffn = get_int(c, "intermediate_size", 0);
    a->layers = get_int(c, "num_hidden_layers", 0);
    a->heads = get_int(c, "num_attention_heads", 0);
    a->kv_heads = get_int(c, "num_key_value_heads", a->heads);
    a->norm_eps = get_real(c, "rms_norm_eps", 1e-6);
    a->tied = get_bool(c, "tie_word_embeddings", false);
    a->dropout = get_real(c, "attention_dropout", 0.0);
    need_word(c, c->root, "hidden_act", "silu");
    need_bool(c, "attention_bias", false);
    need_bool(c, "mlp_bias", false);
    read_rope(c, a);
    if (c->err != ERR_OK)
        return;
    if (!get(c, c->root, "head_dim") && a->hidden % a->heads != 0)
        refuse(c,
               "has no head_dim and hidden_size %lld, which num_attention_heads %lld does "
               "not divide",
               (long long)a->hidden, (long long)a->heads);
    else
        a->head_dim = get_int(c, "head_dim", num_max(a->hidden / a->heads, 1));
}

static enum err read_root(struct config *c, struct arch *out)
{
    struct arch a = {0};
    const cJSON *type = get(c, c->root, "model_type");
    const char *name = type && cJSON_IsString(type) ? type->valuestring : "";
    if (strcmp(name, "gpt2") == 0)
        read_gpt(c, &a);
    else if (strcmp(name, "llama") == 0)
        read_llama(c, &a);
    else
        refuse(c, "has model_type \"%.64s\", plait reads gpt2 and llama", name);
    a.init_std = get_real(c, "initializer_range", 0.02);
    TRY(c->err);
    if (arch_check(&a) != ERR_OK)
        FAIL(ERR_CHECKPOINT, "ckpt: %s describes a model that plait cannot build: %s", c->path,
             err_text());
    *out = a;
    return ERR_OK;
}

/* Well-formed as far as the walk sees, so that cJSON's recursion is bounded. */
static enum err check_text(const char *path, const struct fs_map *m)
{
    struct ckpt_json w = {.s = (const char *)m->data, .n = m->size, .depth_max = CONFIG_DEPTH};
    struct ckpt_json_text key, value;
    enum ckpt_json_step step;
    if (m->size > CONFIG_MAX)
        FAIL(ERR_CHECKPOINT, "ckpt: %s has %lld bytes, a config.json has at most %d", path,
             (long long)m->size, CONFIG_MAX);
    int64_t good = ckpt_json_utf8(m->data, m->size);
    if (good < m->size)
        FAIL(ERR_CHECKPOINT, "ckpt: %s has no UTF-8 at byte %lld", path, (long long)good);
    while ((step = ckpt_json_next(&w, &key, &value)) == CKPT_JSON_MEMBER)
        ;
    if (step == CKPT_JSON_BAD)
        FAIL(ERR_CHECKPOINT, "ckpt: %s has %s at byte %lld; it is no config.json", path, w.why,
             (long long)w.at);
    return ERR_OK;
}

enum err hf_config_read(const char *path, struct arch *out)
{
    struct fs_map m;
    char *copy;
    enum err err;
    TRY(fs_map_open(&m, path, ERR_CHECKPOINT));
    TRY_OR(out_map, check_text(path, &m));
    TRY_OR(out_map, mem_new(m.size + 1, 1, "a config.json", &copy)); /* cJSON likes a NUL behind */
    memcpy(copy, m.data, (size_t)m.size);
    cJSON *root = cJSON_Parse(copy);
    struct config c = {.path = path, .root = root};
    if (!root)
        refuse(&c, "is no JSON");
    err = root ? read_root(&c, out) : c.err;
    cJSON_Delete(root);
    mem_free(copy);
out_map:
    fs_map_close(&m);
    return err;
}
