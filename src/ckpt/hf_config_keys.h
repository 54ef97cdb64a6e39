/* SPDX-License-Identifier: Apache-2.0
 *
 * What is known of config.json's keys beyond those that are read: which would change what the model
 * computes, and which do not.
 */
#ifndef PLAIT_CKPT_HF_CONFIG_KEYS_H
#define PLAIT_CKPT_HF_CONFIG_KEYS_H

#include "model/model.h"
#include <cjson/cJSON.h>

enum hf_key {
    HF_KEY_PASS,    /* without effect on the numbers, or with plait's value */
    HF_KEY_REFUSE,  /* changes what the model computes */
    HF_KEY_UNKNOWN, /* nothing is known of it */
};

/* *legal: the values with which the model computes what plait computes ("false", "null|1"), NULL
 * where the key is judged by its name alone. null always passes. */
enum hf_key hf_key_judge(enum model_kind kind, const cJSON *member, const char **legal);

#endif
