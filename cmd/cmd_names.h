/* SPDX-License-Identifier: Apache-2.0
 *
 * Options by the names that other programs have for them.
 */
#ifndef PLAIT_CMD_NAMES_H
#define PLAIT_CMD_NAMES_H

#include <stdbool.h>

struct cmd_name {
    const char *names; /* "max_tokens|n_predict", without dashes, _ for - */
    const char *means; /* the option (or key=value), as it is to be written; NULL: none does that */
    const char *how;   /* a clause: how its value differs, or what to do instead; NULL: none */
};

/* Each ends with names NULL. run: train, check and bench. */
extern const struct cmd_name cmd_names_generate[], cmd_names_run[], cmd_names_sim[],
    cmd_names_compare[], cmd_names_export[], cmd_names_prepare[], cmd_names_import[],
    cmd_names_random[];

/* The row that has the name, or NULL; list NULL: none. */
const struct cmd_name *cmd_name_find(const struct cmd_name *list, const char *word);

#endif
