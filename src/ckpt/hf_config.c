/* SPDX-License-Identifier: Apache-2.0
 *
 * config.json, written and read by one table of keys. Every key that changes a number is written,
 * also where plait has no choice (activation, biases), so that another default of a later
 * transformers cannot change the model. What is read and changes what the model computes is either
 * understood or refused; keys that do not (use_cache, task lists) are passed over
 * (hf_config_keys.c), and those of which neither is known are told. Keys left out have the default
 * that transformers gives them, since files are written with that in mind.
 */
#include "ckpt/ckpt.h"

#include "base/mem.h"
#include "ckpt/ckpt_json.h"
#include "ckpt/hf_config_keys.h"
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum { CONFIG_MAX = 1 << 20, CONFIG_DEPTH = 32 };

enum { GPT = 1 << MODEL_GPT, LLAMA = 1 << MODEL_LLAMA, MLP = 1 << MODEL_MLP, BOTH = GPT | LLAMA };
enum form {
    WHOLE, REAL, FLAG, /* a member of struct model, written and, but for preset ELSEWHERE, read */
    FIXED,             /* always written as this word of JSON, and judged when it is read */
    OTHER,             /* transformers' other name for a key: the same value */
    READ               /* by code of its own */
};
enum { ELSEWHERE = -1 };
#define AT(member) .at = offsetof(struct model, member)
#define OF(member) .of = offsetof(struct model, member)

/* In the order in which they are written. preset: where the key is left out, of whole numbers so
 * many times the member `of`, and 0: it may not be. */
static const struct key {
    int kinds;
    const char *key;
    enum form form;
    size_t at;
    double preset;
    const char *word;
    size_t of;
} keys[] = {
    {GPT, "architectures", FIXED, .word = "[\"GPT2LMHeadModel\"]"},
    {GPT, "model_type", FIXED, .word = "\"gpt2\""},
    {GPT, "vocab_size", WHOLE, AT(vocab)},
    {GPT, "n_positions", WHOLE, AT(seq)},
    {GPT, "n_embd", WHOLE, AT(hidden)},
    {GPT, "n_layer", WHOLE, AT(layers)},
    {GPT, "n_head", WHOLE, AT(heads)},
    {GPT, "n_inner", WHOLE, AT(ffn), 4, OF(hidden)},
    {GPT, "activation_function", FIXED, .word = "\"gelu_new\""},
    {GPT, "resid_pdrop", REAL, AT(dropout), 0.1}, /* of three rates plait has one */
    {GPT, "embd_pdrop", REAL, AT(dropout), ELSEWHERE},
    {GPT, "attn_pdrop", REAL, AT(dropout), ELSEWHERE},
    {GPT, "layer_norm_epsilon", REAL, AT(norm_eps), 1e-5},
    {GPT, "scale_attn_weights", FIXED, .word = "true"},
    {GPT, "scale_attn_by_inverse_layer_idx", FIXED, .word = "false"},
    {GPT, "reorder_and_upcast_attn", FIXED, .word = "false"},
    {GPT, "add_cross_attention", FIXED, .word = "false"},
    {GPT, "hidden_size", OTHER, AT(hidden), .word = "n_embd"},
    {GPT, "max_position_embeddings", OTHER, AT(seq), .word = "n_positions"},
    {GPT, "num_attention_heads", OTHER, AT(heads), .word = "n_head"},
    {GPT, "num_hidden_layers", OTHER, AT(layers), .word = "n_layer"},
    {LLAMA, "architectures", FIXED, .word = "[\"LlamaForCausalLM\"]"},
    {LLAMA, "model_type", FIXED, .word = "\"llama\""},
    {LLAMA, "vocab_size", WHOLE, AT(vocab)},
    {LLAMA, "max_position_embeddings", WHOLE, AT(seq), 2048},
    {LLAMA, "hidden_size", WHOLE, AT(hidden)},
    {LLAMA, "intermediate_size", WHOLE, AT(ffn)},
    {LLAMA, "num_hidden_layers", WHOLE, AT(layers)},
    {LLAMA, "num_attention_heads", WHOLE, AT(heads)},
    {LLAMA, "num_key_value_heads", WHOLE, AT(kv_heads), 1, OF(heads)},
    {LLAMA, "head_dim", WHOLE, AT(head_dim), ELSEWHERE},
    {LLAMA, "hidden_act", FIXED, .word = "\"silu\""},
    {LLAMA, "attention_bias", FIXED, .word = "false"},
    {LLAMA, "mlp_bias", FIXED, .word = "false"},
    {LLAMA, "attention_dropout", REAL, AT(dropout), 0},
    {LLAMA, "rms_norm_eps", REAL, AT(norm_eps), 1e-6},
    {LLAMA, "rope_theta", REAL, AT(rope_theta), ELSEWHERE},
    {.kinds = LLAMA, .key = "rope_scaling", .form = READ}, /* these two are written behind theta */
    {.kinds = LLAMA, .key = "rope_parameters", .form = READ},
    {LLAMA, "pretraining_tp", FIXED, .word = "1"},
    {BOTH, "initializer_range", REAL, AT(init_std), 0.02},
    {GPT, "tie_word_embeddings", FLAG, AT(tied), true},
    {LLAMA, "tie_word_embeddings", FLAG, AT(tied), false},
    {.kinds = BOTH, .key = "layer_types", .form = READ},
    {.kinds = BOTH, .key = "eos_token_id", .form = READ},
    {.kinds = MLP, .key = "widths", .form = READ},
};

/* ---- writing ---- */

/* With a point or an exponent, since some readers take a number without for an integer; finite. */
static const char *real(double x, char buf[32])
{
    if (x == floor(x) && fabs(x) < 1e15)
        snprintf(buf, 32, "%.1f", x);
    else
        text_real(x, 1, buf);
    return buf;
}

enum err hf_config_text(const struct model *a, enum safet_type type, int32_t end, struct text *t)
{
    static const char *const word[] = {[SAFET_F32] = "float32", [SAFET_F16] = "float16",
                                       [SAFET_BF16] = "bfloat16"};
    const char *dtype = type <= SAFET_BF16 ? word[type] : NULL;
    char buf[32];
    char id[16] = "null"; /* of begin and end: the token that ends a text stands before one, too */
    ENSURE(dtype);
    if (a->kind == MODEL_MLP) { /* no model of transformers; for who reads the weights */
        text_add(t, "{\n  \"model_type\": \"mlp\",\n  \"widths\": [");
        for (int64_t i = 0; i <= a->layers; i++)
            text_add(t, "%s%lld", i > 0 ? ", " : "", (long long)a->width[i]);
        text_add(t, "],\n  \"hidden_act\": \"relu\",\n  \"dtype\": \"%s\"\n}\n", dtype);
        return t->err;
    }
    if (end >= 0)
        snprintf(id, sizeof id, "%d", end);
    text_add(t, "{\n");
    for (const struct key *k = keys; k < keys + sizeof keys / sizeof *keys; k++) {
        const void *p = (const char *)a + k->at;
        if (!(k->kinds & 1 << a->kind) || k->form > FIXED)
            continue;
        text_add(t, "  \"%s\": ", k->key);
        if (k->form == WHOLE)
            text_add(t, "%lld,\n", (long long)*(const int64_t *)p);
        else if (k->form == REAL)
            text_add(t, "%s,\n", real(*(const double *)p, buf));
        else if (k->form == FLAG)
            text_add(t, "%s,\n", *(const bool *)p ? "true" : "false");
        else
            text_add(t, "%s,\n", k->word);
        if (strcmp(k->key, "rope_theta") == 0)
            text_add(t, "  \"rope_scaling\": null,\n  \"rope_parameters\": {\"rope_type\": "
                        "\"default\", \"rope_theta\": %s},\n", real(a->rope_theta, buf));
    }
    text_add(t, "  \"bos_token_id\": %s,\n  \"eos_token_id\": %s,\n  \"use_cache\": true,\n"
                "  \"dtype\": \"%s\",\n  \"torch_dtype\": \"%s\"\n}\n", id, id, dtype, dtype);
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

/* ---- reading ---- */

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
        refuse(c, "has no key %s, which its model_type needs; take the config.json that belongs to "
                  "the weights", key);
    else if (x && (!ckpt_json_int(x, &v) || v < 1 || v > INT32_MAX))
        refuse(c, "has a %s that is no whole number from 1 to %d", key, INT32_MAX);
    return v;
}

static double get_real(struct config *c, const cJSON *object, const char *key, double preset)
{
    const cJSON *x = get(c, object, key);
    if (!x)
        return preset;
    if (!cJSON_IsNumber(x) || !(x->valuedouble >= 0.0 && x->valuedouble <= 1e18))
        refuse(c, "has a %s that is no number from 0 to 1e18", key);
    return x->valuedouble;
}

static void need_word(struct config *c, const cJSON *x, const char *key, const char *legal)
{
    const char *s = cJSON_IsString(x) ? x->valuestring : "something that is no text";
    if (x && strcmp(s, legal) != 0)
        refuse(c, "says %s %.64s, plait computes %s only", key, s, legal);
}

/* The members that have a key of their own. */
static void read_keys(struct config *c, struct model *a)
{
    for (const struct key *k = keys; k < keys + sizeof keys / sizeof *keys; k++) {
        void *p = (char *)a + k->at;
        const void *of = (const char *)a + k->of;
        if (!(k->kinds & 1 << a->kind) || k->preset == ELSEWHERE)
            continue;
        if (k->form == WHOLE) {
            int64_t times = k->of ? *(const int64_t *)of : 1;
            *(int64_t *)p = get_int(c, k->key, (int64_t)k->preset * times);
        } else if (k->form == REAL) {
            *(double *)p = get_real(c, c->root, k->key, k->preset);
        } else if (k->form == FLAG) {
            const cJSON *x = get(c, c->root, k->key);
            if (x && !cJSON_IsBool(x))
                refuse(c, "has a %s that is neither true nor false", k->key);
            *(bool *)p = x ? cJSON_IsTrue(x) : k->preset > 0;
        } else if (k->form == OTHER) {
            int64_t value = *(int64_t *)p, other = get_int(c, k->key, value);
            if (other != value)
                refuse(c, "has %s %lld and %s %lld, which are one to transformers; keep the right "
                          "one", k->word, (long long)value, k->key, (long long)other);
        }
    }
}

/* Angles that are not scaled: no other member than these says anything. */
static void check_rope(struct config *c, const char *name, const cJSON *object)
{
    const cJSON *x;
    need_word(c, get(c, object, "rope_type"), "rope_type", "default");
    need_word(c, get(c, object, "type"), "type", "default");
    if (object && get_real(c, object, "partial_rotary_factor", 1.0) != 1.0)
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
    double met = get_real(c, object, "rope_theta", -1.0);
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
    if (c->err != ERR_OK)
        return;
    check_rope(c, "rope_scaling", old);
    check_rope(c, "rope_parameters", now);
    take_theta(c, c->root, "", &theta);
    take_theta(c, old, " in rope_scaling", &theta);
    take_theta(c, now, " in rope_parameters", &theta);
    a->rope_theta = theta >= 0.0 ? theta : 10000.0;
}

/* What plait writes of an mlp. */
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

/* Keys with another value than plait computes; then those that nobody knows. */
static void check_keys(struct config *c, enum model_kind kind, struct hf_config *out)
{
    const cJSON *x;
    size_t used = 0;
    int more = 0;
    cJSON_ArrayForEach(x, c->root)
    {
        const char *legal = NULL;
        bool is_read = false; /* and not judged by its value */
        for (const struct key *k = keys; k < keys + sizeof keys / sizeof *keys; k++)
            is_read = is_read || ((k->kinds & 1 << kind) && k->form != FIXED &&
                                  strcmp(k->key, x->string) == 0);
        enum hf_key what = is_read ? HF_KEY_PASS : hf_key_judge(kind, x, &legal);
        char *value = what == HF_KEY_REFUSE ? cJSON_PrintUnformatted(x) : NULL;
        if (what == HF_KEY_REFUSE && legal)
            refuse(c, "says %.64s %.64s, plait computes %s only", x->string, value ? value : "?",
                   strcmp(legal, "null") == 0 ? "models without it" : legal);
        else if (what == HF_KEY_REFUSE)
            refuse(c, "says %.64s %.64s, a key by whose name it changes what the model computes, "
                      "and that plait does not have; where the model was made without it, take it "
                      "out", x->string, value ? value : "?");
        cJSON_free(value);
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
    const cJSON *type = get(c, c->root, "model_type"), *x;
    const char *name = type && cJSON_IsString(type) ? type->valuestring : "";
    a->kind = strcmp(name, "gpt2") == 0 ? MODEL_GPT : strcmp(name, "llama") == 0 ? MODEL_LLAMA
                                                                                 : MODEL_MLP;
    if (a->kind == MODEL_MLP && strcmp(name, "mlp") != 0)
        refuse(c, "has model_type \"%.64s\", plait reads gpt2 and llama, and mlp of its own", name);
    read_keys(c, a);
    if (a->kind == MODEL_MLP) {
        read_mlp(c, a);
    } else {
        bool gpt = a->kind == MODEL_GPT, given = !gpt && get(c, c->root, "head_dim");
        a->kv_heads = gpt ? a->heads : a->kv_heads;
        a->rope_theta = 10000.0; /* not used by gpt */
        if (!gpt)
            read_rope(c, a);
        TRY(c->err); /* heads are above 0 */
        if (given || a->hidden % a->heads == 0)
            a->head_dim = given ? get_int(c, "head_dim", 1) : a->hidden / a->heads;
        else
            refuse(c, gpt ? "has n_embd %lld, which n_head %lld does not divide"
                          : "has no head_dim and hidden_size %lld, which num_attention_heads %lld "
                            "does not divide", (long long)a->hidden, (long long)a->heads);
        cJSON_ArrayForEach(x, get(c, c->root, "layer_types"))
        {
            need_word(c, x, "layer_types", "full_attention"); /* each looks at all before it */
        }
        const cJSON *end = get(c, c->root, "eos_token_id"); /* an id, a list of them, or none */
        for (x = cJSON_IsArray(end) ? end->child : end; x;
             x = cJSON_IsArray(end) ? x->next : NULL) {
            int64_t id = 0;
            if (!ckpt_json_int(x, &id) || id > INT32_MAX || made.ends == HF_ENDS)
                refuse(c, "has an eos_token_id that is neither an id nor a list of at most %d",
                       HF_ENDS);
            TRY(c->err);
            made.end[made.ends++] = (int32_t)id;
        }
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

/* The tree of a file (cJSON_Delete). */
static enum err read_tree(const char *path, cJSON **out)
{
    struct ckpt_json w = {.depth_max = CONFIG_DEPTH};
    struct ckpt_json_text *text = &w.of;
    struct fs_map m;
    const char *end = NULL;
    char *copy;
    enum err err;
    TRY(fs_map_open(&m, path, ERR_CHECKPOINT));
    if (m.size > CONFIG_MAX)
        TRY_OR(out_map, err_set(ERR_CHECKPOINT, __FILE__, __LINE__,
                                "ckpt: %s has %lld bytes, a config.json has at most %d", path,
                                (long long)m.size, CONFIG_MAX));
    TRY_OR(out_map, ckpt_json_text(path, &m, text));
    while (ckpt_json_next(&w)) /* well-formed so far, cJSON's recursion is bounded */
        continue;
    if (w.why)
        TRY_OR(out_map, err_set(ERR_CHECKPOINT, __FILE__, __LINE__,
                                "ckpt: %s has %s at byte %lld; it is no config.json", path, w.why,
                                (long long)(m.size - text->n + w.at)));
    TRY_OR(out_map, mem_new(text->n + 1, 1, "a config.json", &copy)); /* with a NUL behind */
    memcpy(copy, text->s, (size_t)text->n);
    *out = cJSON_ParseWithLengthOpts(copy, (size_t)text->n + 1, &end, 0);
    if (!*out) { /* Python writes NaN and Infinity, which JSON does not have */
        int line = 1, n = (int)strcspn(end, ",]} \t\r\n");
        const char *quote = n ? "\"" : "";
        for (const char *s = copy; s < end; s++)
            line += *s == '\n';
        err = err_set(ERR_CHECKPOINT, __FILE__, __LINE__, "ckpt: %s is no JSON: line %d has "
                      "%s%.*s%s; put a value of JSON there", path, line,
                      n ? quote : "nothing where a value is expected", n < 40 ? n : 40, end, quote);
    }
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
    bool plain = ckpt_json_plain(x, SAFET_NOTE) && x->valuestring[0];
    if (plain)
        snprintf(out, SAFET_NOTE, "%s", x->valuestring);
    cJSON_Delete(root);
    return plain;
}
