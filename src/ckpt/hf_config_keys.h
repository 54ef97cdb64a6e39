/* SPDX-License-Identifier: Apache-2.0
 *
 * What is known of config.json's keys beyond those that are read: which would change what the model
 * computes, and which do not.
 */
#ifndef PLAIT_CKPT_HF_CONFIG_KEYS_H
#define PLAIT_CKPT_HF_CONFIG_KEYS_H

#include "arch/arch.h"
#include <cjson/cJSON.h>

/* The values with which the model computes what plait computes ("false", "null|1"), when this
 * member has another; NULL: it may stand. null always may. */
const char *hf_key_legal(enum arch_kind kind, const cJSON *member);
/* Is the key read, judged by hf_key_legal, or without effect on the model's numbers? */
bool hf_key_known(enum arch_kind kind, const char *key);

#endif
