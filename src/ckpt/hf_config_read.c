/* SPDX-License-Identifier: Apache-2.0
 *
 * config.json into model. The rule: a key that changes what the model computes is either understood
 * or refused; keys that do not (use_cache, task lists) are passed over (hf_config_keys.c), and keys
 * of which neither is known are told. Keys left out have the default that transformers gives them,
 * since files are written with that in mind.
 *
 * The file is small; it is bounded, its nesting is bounded, and cJSON may then have it whole. A key
 * that stands twice is refused: readers differ in which one counts.
 */
#include "ckpt/ckpt.h"

#include "base/mem.h"
#include "ckpt/ckpt_json.h"
#include "ckpt/hf_config_keys.h"
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

/* The name that a key of gpt2 has elsewhere, which transformers takes for it: the same value. */
static void check_alias(struct config *c, const char *alias, const char *key, int64_t value)
{
    int64_t other = get_int(c, alias, value);
    if (other != value)
        refuse(c, "has %s %lld and %s %lld, which are one to transformers; keep the right one", key,
               (long long)value, alias, (long long)other);
}

static void read_gpt(struct config *c, struct model *a)
{
    a->kind = MODEL_GPT;
    a->vocab = get_int(c, "vocab_size", 0);
    a->seq = get_int(c, "n_positions", 0);
    a->hidden = get_int(c, "n_embd", 0);
    a->layers = get_int(c, "n_layer", 0);
    a->heads = a->kv_heads = get_int(c, "n_head", 0);
    a->ffn = get_int(c, "n_inner", 4 * a->hidden);
    a->norm_eps = get_real(c, "layer_norm_epsilon", 1e-5);
    a->tied = get_bool(c, "tie_word_embeddings", true);
    a->rope_theta = 10000.0; /* not used by gpt */
    check_alias(c, "hidden_size", "n_embd", a->hidden);
    check_alias(c, "max_position_embeddings", "n_positions", a->seq);
    check_alias(c, "num_attention_heads", "n_head", a->heads);
    check_alias(c, "num_hidden_layers", "n_layer", a->layers);
    if (c->err == ERR_OK && a->hidden % a->heads != 0)
        refuse(c, "has n_embd %lld, which n_head %lld does not divide", (long long)a->hidden,
               (long long)a->heads);
    a->head_dim = c->err == ERR_OK ? a->hidden / a->heads : 0;
    /* Of three rates plait has one; they do not touch what a trained model computes. */
    a->dropout = get_real(c, "resid_pdrop", 0.1);
}

/* Angles that are not scaled: no other member than these says anything. */
static void check_rope(struct config *c, const char *name, const cJSON *object)
{
    const cJSON *x;
    need_word(c, object, "rope_type", "default");
    need_word(c, object, "type", "default");
    if (object && real_in(c, object, "partial_rotary_factor", 1.0) != 1.0)
        refuse(c, "has a partial_rotary_factor other than 1, plait turns all of a head");
    cJSON_ArrayForEach(x, object)
    {
        if (strcmp(x->string, "rope_type") != 0 && strcmp(x->string, "type") != 0 &&
            strcmp(x->string, "rope_theta") != 0 &&
            strcmp(x->string, "partial_rotary_factor") != 0 && !cJSON_IsNull(x))
            refuse(c, "has %.64s in %s, plait computes rotary positions that are not scaled only",
                   x->string, name);
    }
}

/* theta < 0: none was met yet. */
static void take_theta(struct config *c, const cJSON *object, const char *place, double *theta)
{
    double met = real_in(c, object, "rope_theta", -1.0);
    if (met < 0.0)
        return;
    if (*theta >= 0.0 && met != *theta)
        refuse(c, "has rope_theta %g and,%s, %g; keep the right one", *theta, place, met);
    *theta = met;
}

/* Rotary positions, in the old form, the new one, or both when they agree. */
static void read_rope(struct config *c, struct model *a)
{
    const cJSON *old = get(c, c->root, "rope_scaling"), *now = get(c, c->root, "rope_parameters");
    double theta = -1.0;
    if ((old && !cJSON_IsObject(old)) || (now && !cJSON_IsObject(now)))
        refuse(c, "has a rope_scaling or rope_parameters that is no object");
    check_rope(c, "rope_scaling", old);
    check_rope(c, "rope_parameters", now);
    take_theta(c, c->root, "", &theta);
    take_theta(c, old, " in rope_scaling", &theta);
    take_theta(c, now, " in rope_parameters", &theta);
    a->rope_theta = theta >= 0.0 ? theta : 10000.0;
}

/* Every layer looks at all tokens before it. */
static void read_layer_types(struct config *c)
{
    const cJSON *types = get(c, c->root, "layer_types"), *x;
    cJSON_ArrayForEach(x, types)
    {
        if (!cJSON_IsString(x) || strcmp(x->valuestring, "full_attention") != 0)
            refuse(c, "says layer_types %.64s, plait computes full_attention only",
                   cJSON_IsString(x) ? x->valuestring : "that are no text");
    }
}

static void read_llama(struct config *c, struct model *a)
{
    a->kind = MODEL_LLAMA;
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

/* What plait writes of an mlp (hf_config.c); transformers knows none. */
static void read_mlp(struct config *c, struct model *a)
{
    const cJSON *list = get(c, c->root, "widths"), *x;
    int64_t width[MODEL_WIDTHS] = {0}, n = 0;
    if (!cJSON_IsArray(list))
        refuse(c, "has no list widths, which its model_type needs");
    cJSON_ArrayForEach(x, list)
    {
        if (n == MODEL_WIDTHS || !ckpt_json_int(x, &width[n]))
            refuse(c, "has widths that are no whole numbers, at most %d of them", MODEL_WIDTHS);
        n += n < MODEL_WIDTHS;
    }
    *a = model_of_widths(width, n);
}

/* One id, a list of them, or none. */
static void read_ends(struct config *c, struct hf_config *out)
{
    const cJSON *end = get(c, c->root, "eos_token_id");
    const cJSON *x = cJSON_IsArray(end) ? end->child : end;
    for (; x; x = cJSON_IsArray(end) ? x->next : NULL) {
        int64_t id;
        if (!ckpt_json_int(x, &id) || id > INT32_MAX || out->ends == HF_ENDS) {
            refuse(c, "has an eos_token_id that is neither an id nor a list of at most %d",
                   HF_ENDS);
            return;
        }
        out->end[out->ends++] = (int32_t)id;
    }
}

static void refuse_key(struct config *c, const cJSON *member, const char *legal)
{
    char *value = cJSON_PrintUnformatted(member);
    if (legal)
        refuse(c, "says %.64s %.64s, plait computes %s only", member->string, value ? value : "?",
               strcmp(legal, "null") == 0 ? "models without it" : legal);
    else
        refuse(c, "says %.64s %.64s, a key by whose name it changes what the model computes, and "
                  "that plait does not have; where the model was made without it, take it out",
               member->string, value ? value : "?");
    cJSON_free(value);
}

/* Keys with another value than plait computes; then those that nobody knows. */
static void check_keys(struct config *c, enum model_kind kind, struct hf_config *out)
{
    const cJSON *x;
    size_t used = 0;
    int more = 0;
    cJSON_ArrayForEach(x, c->root)
    {
        const char *legal;
        enum hf_key what = hf_key_judge(kind, x, &legal);
        if (what == HF_KEY_REFUSE)
            refuse_key(c, x, legal);
        if (what != HF_KEY_UNKNOWN)
            continue;
        if (used + strlen(x->string) + 32 < sizeof out->unknown)
            used += (size_t)snprintf(out->unknown + used, sizeof out->unknown - used, "%s%s",
                                     used ? ", " : "", x->string);
        else
            more++;
    }
    if (more)
        snprintf(out->unknown + used, sizeof out->unknown - used, "%s%d more", used ? ", " : "",
                 more);
    for (char *p = out->unknown; *p; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            *p = '?';
}

static enum err read_root(struct config *c, struct hf_config *out)
{
    struct hf_config made = {0};
    struct model *a = &made.model;
    const cJSON *type = get(c, c->root, "model_type");
    const char *name = type && cJSON_IsString(type) ? type->valuestring : "";
    if (strcmp(name, "gpt2") == 0)
        read_gpt(c, a);
    else if (strcmp(name, "llama") == 0)
        read_llama(c, a);
    else if (strcmp(name, "mlp") == 0)
        read_mlp(c, a);
    else
        refuse(c, "has model_type \"%.64s\", plait reads gpt2 and llama, and mlp of its own", name);
    if (model_traits(a->kind)->text) {
        a->init_std = get_real(c, "initializer_range", 0.02);
        read_layer_types(c);
        read_ends(c, &made);
    }
    if (c->err == ERR_OK)
        check_keys(c, a->kind, &made);
    TRY(c->err);
    if (model_check(a) != ERR_OK)
        FAIL(ERR_CHECKPOINT, "ckpt: %s describes a model that plait cannot build: %s", c->path,
             err_text());
    *out = made;
    return ERR_OK;
}

/* Well-formed as far as the walk sees, so that cJSON's recursion is bounded. */
static enum err check_text(const char *path, const struct fs_map *m, struct ckpt_json_text *out)
{
    struct ckpt_json_text key, value;
    enum ckpt_json_step step;
    if (m->size > CONFIG_MAX)
        FAIL(ERR_CHECKPOINT, "ckpt: %s has %lld bytes, a config.json has at most %d", path,
             (long long)m->size, CONFIG_MAX);
    TRY(ckpt_json_text(path, m, out));
    struct ckpt_json w = {.s = out->s, .n = out->n, .depth_max = CONFIG_DEPTH};
    while ((step = ckpt_json_next(&w, &key, &value)) == CKPT_JSON_MEMBER)
        ;
    if (step == CKPT_JSON_BAD)
        FAIL(ERR_CHECKPOINT, "ckpt: %s has %s at byte %lld; it is no config.json", path, w.why,
             (long long)(m->size - w.n + w.at));
    return ERR_OK;
}

/* Nothing from `at` on in the text is a value. Python writes NaN and Infinity, which JSON does not
 * have. */
static enum err no_json(const char *path, const char *text, const char *at)
{
    int line = 1, n = (int)strcspn(at, ",]} \t\r\n");
    const char *quote = n ? "\"" : "";
    for (const char *s = text; s < at; s++)
        line += *s == '\n';
    FAIL(ERR_CHECKPOINT, "ckpt: %s is no JSON: line %d has %s%.*s%s; put a value of JSON there",
         path, line, n ? quote : "nothing where a value is expected", n < 40 ? n : 40, at, quote);
}

/* The tree of a file (cJSON_Delete). */
static enum err read_tree(const char *path, cJSON **out)
{
    struct fs_map m;
    struct ckpt_json_text text;
    const char *end = NULL;
    char *copy;
    enum err err;
    TRY(fs_map_open(&m, path, ERR_CHECKPOINT));
    TRY_OR(out_map, check_text(path, &m, &text));
    TRY_OR(out_map, mem_new(text.n + 1, 1, "a config.json", &copy)); /* cJSON likes a NUL behind */
    memcpy(copy, text.s, (size_t)text.n);
    *out = cJSON_ParseWithLengthOpts(copy, (size_t)text.n + 1, &end, 0);
    if (!*out)
        err = no_json(path, copy, end);
    mem_free(copy);
out_map:
    fs_map_close(&m);
    return err;
}

enum err hf_config_read(const char *path, struct hf_config *out)
{
    cJSON *root;
    TRY(read_tree(path, &root));
    struct config c = {.path = path, .root = root};
    enum err err = read_root(&c, out);
    cJSON_Delete(root);
    return err;
}

bool hf_tokenizer_class(const char *path, char out[SAFET_NOTE])
{
    cJSON *root;
    if (!fs_exists(path) || read_tree(path, &root) != ERR_OK)
        return false;
    const cJSON *x = cJSON_GetObjectItemCaseSensitive(root, "tokenizer_class");
    const char *s = cJSON_IsString(x) ? x->valuestring : "";
    size_t n = strlen(s);
    bool plain = n > 0 && n < SAFET_NOTE;
    for (size_t i = 0; plain && i < n; i++)
        plain = (unsigned char)s[i] >= 0x20 && s[i] != 0x7f;
    if (plain)
        memcpy(out, s, n + 1);
    cJSON_Delete(root);
    return plain;
}
