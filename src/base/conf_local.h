/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of conf share; nobody else includes it.
 */
#ifndef PLAIT_BASE_CONF_LOCAL_H
#define PLAIT_BASE_CONF_LOCAL_H

#include "base/conf.h"

enum { CONF_PLACE_MAX = 512 };

/* Set one row from text. `place` says where the text stands ("run.yaml:3", "command line") and
 * opens the message. Errors: ERR_CONFIG, and then `conf` is as before. */
enum err conf_assign(const struct conf_table *t, const struct conf_row *row, void *conf,
                     const char *place, const char *value);

/* A key that there is no more, or NULL. */
const struct conf_retired *conf_retired_find(const struct conf_table *t, const char *key);
/* Pass it over. Errors: ERR_CONFIG for value NULL: no single one. */
enum err conf_pass_over(const struct conf_retired *r, const char *place, const char *value);

/* No row has this key: the error, with the nearest key. */
enum err conf_unknown(const struct conf_table *t, const char *place, const char *key);

/* What another program's name for a key, or for a group, stands for, or NULL. It may be both. */
const struct conf_alias *conf_alias_of(const struct conf_table *t, const char *word, bool group);
bool conf_alias_is_group(const struct conf_alias *a);

/* Is value one of "on|1|y", in any case, - as good as _? */
bool conf_is_one_of(const char *words, const char *value);
/* The first row of a group, or -1, and the name of the nearest one, into out, or NULL. */
int conf_group_row(const struct conf_table *t, const char *group);
const char *conf_nearest_group(const struct conf_table *t, const char *group,
                               char out[CONF_PLACE_MAX]);

/* Length of the group of a key: of "model" in "model.layers"; 0 when there is no dot. */
int conf_group(const char *key);

/* The value of a row as text that conf_assign reads back to the same; strings without quotes. */
void conf_value(const struct conf_row *row, const void *conf, struct text *out);

/* In double quotes, as YAML and lists have it. */
void conf_quoted(const char *s, struct text *out);

/* A bound of a row of numbers as text. */
enum { CONF_BOUND = 32 };
void conf_bound(const struct conf_row *row, double v, char buf[CONF_BOUND]);

#endif
