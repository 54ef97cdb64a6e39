/* SPDX-License-Identifier: Apache-2.0
 *
 * What the environment says of runs (docs/environment.md): read here and nowhere else, and handed
 * on as a part of the options.
 */
#ifndef PLAIT_CONFIG_ENV_H
#define PLAIT_CONFIG_ENV_H

#include "device/device.h"

enum { ENV_PATH = 1024, ENV_SAID = 160 };

/* All zero: nothing is set. */
struct env {
    bool no_copies;               /* PLAIT_COPIES: GPUs of one process go by NCCL, not by copies */
    enum dev_attn_grad attn_grad; /* PLAIT_ATTN_GRAD */
    char cache[ENV_PATH];         /* the folder in which devices keep what they chose; "": none */
    char copies_wrong[ENV_SAID], attn_grad_wrong[ENV_SAID], cache_wrong[ENV_SAID];
                                  /* the message for a word that is none; "": it is one */
};

void env_read(struct env *out);
/* The words that runs on GPUs look at, those of copies where there are several ranks. Errors:
 * ERR_CONFIG for one that is none. */
enum err env_check(const struct env *e, bool several);

#endif
