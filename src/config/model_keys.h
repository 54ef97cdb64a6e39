/* SPDX-License-Identifier: Apache-2.0
 *
 * The keys of a model as fields of struct model, with their names in transformers' config.json.
 */
#ifndef PLAIT_CONFIG_MODEL_KEYS_H
#define PLAIT_CONFIG_MODEL_KEYS_H

#include "model/model.h"
#include <stddef.h>

struct model_key {
    const char *key, *gpt, *llama; /* key without its group; NULL: not of this kind */
    size_t at;                     /* in struct model */
    enum { MODEL_WHOLE, MODEL_REAL, MODEL_SWITCH, MODEL_LIST } type; /* WIDTHS: mlp's alone */
};
/* All but model.kind, which says which name is whose. */
enum { MODEL_KEYS = 14 };
extern const struct model_key model_keys[MODEL_KEYS];
/* Its name in config.json of that kind, or NULL. */
const char *model_key_theirs(const struct model_key *k, enum model_kind kind);
/* Its value as a word of a configuration. */
enum { MODEL_VALUE = 12 * MODEL_WIDTHS };
const char *model_key_value(const struct model_key *k, const struct model *a,
                            char buf[MODEL_VALUE]);
/* The first key of their kind in which b is another model than a, and both values; NULL: none.
 * theirs: of those alone that config.json has. A vocab 0 of a's is whatever b's is. */
const struct model_key *model_keys_differ(const struct model *a, const struct model *b, bool theirs,
                                          char of_a[MODEL_VALUE], char of_b[MODEL_VALUE]);

#endif
