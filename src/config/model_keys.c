/* SPDX-License-Identifier: Apache-2.0
 *
 * One table for all who hold two descriptions of a model against each other, or make one of the
 * other.
 */
#include "config/model_keys.h"

#include "base/text.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define FIELD(name) offsetof(struct model, name)
const struct model_key model_keys[MODEL_KEYS] = {
    {"layers", "n_layer", "num_hidden_layers", FIELD(layers), MODEL_WHOLE},
    {"hidden", "n_embd", "hidden_size", FIELD(hidden), MODEL_WHOLE},
    {"heads", "n_head", "num_attention_heads", FIELD(heads), MODEL_WHOLE},
    {"kv_heads", NULL, "num_key_value_heads", FIELD(kv_heads), MODEL_WHOLE},
    {"head_dim", NULL, "head_dim", FIELD(head_dim), MODEL_WHOLE},
    {"ffn", "n_inner", "intermediate_size", FIELD(ffn), MODEL_WHOLE},
    {"vocab", "vocab_size", "vocab_size", FIELD(vocab), MODEL_WHOLE},
    {"seq", "n_positions", "max_position_embeddings", FIELD(seq), MODEL_WHOLE},
    {"tied", "tie_word_embeddings", "tie_word_embeddings", FIELD(tied), MODEL_SWITCH},
    {"dropout", "resid_pdrop", "attention_dropout", FIELD(dropout), MODEL_REAL},
    {"norm_eps", "layer_norm_epsilon", "rms_norm_eps", FIELD(norm_eps), MODEL_REAL},
    {"rope_theta", NULL, "rope_theta", FIELD(rope_theta), MODEL_REAL},
    {"init_std", "initializer_range", "initializer_range", FIELD(init_std), MODEL_REAL},
    {"widths", NULL, NULL, FIELD(width), MODEL_LIST},
};

const char *model_key_theirs(const struct model_key *k, enum model_kind kind)
{
    if (kind == MODEL_MLP)
        return k->type == MODEL_LIST ? k->key : NULL;
    return kind == MODEL_GPT ? k->gpt : k->llama;
}

const char *model_key_value(const struct model_key *k, const struct model *a, char buf[MODEL_VALUE])
{
    const char *at = (const char *)a + k->at;
    int64_t whole;
    double real;
    bool on;
    switch (k->type) {
    case MODEL_WHOLE:
        memcpy(&whole, at, sizeof whole);
        snprintf(buf, MODEL_VALUE, "%" PRId64, whole);
        break;
    case MODEL_REAL:
        memcpy(&real, at, sizeof real);
        text_real(real, 1, buf);
        break;
    case MODEL_SWITCH:
        memcpy(&on, at, sizeof on);
        snprintf(buf, MODEL_VALUE, "%s", on ? "true" : "false");
        break;
    case MODEL_LIST:
        snprintf(buf, MODEL_VALUE, "[]");
        for (int64_t i = 0, used = 0; a->kind == MODEL_MLP && i <= a->layers; i++)
            used += snprintf(buf + used, (size_t)(MODEL_VALUE - used), "%s%lld%s", i ? ", " : "[",
                             (long long)a->width[i], i == a->layers ? "]" : "");
        break;
    }
    return buf;
}

const struct model_key *model_keys_differ(const struct model *a, const struct model *b, bool theirs,
                                          char of_a[MODEL_VALUE], char of_b[MODEL_VALUE])
{
    for (const struct model_key *k = model_keys; k < model_keys + MODEL_KEYS; k++) {
        bool open = k->at == FIELD(vocab) && a->vocab == 0;
        if (open || model_traits(a->kind)->text == (k->type == MODEL_LIST) ||
            (theirs && !model_key_theirs(k, a->kind)))
            continue;
        if (strcmp(model_key_value(k, a, of_a), model_key_value(k, b, of_b)) != 0)
            return k;
    }
    return NULL;
}
