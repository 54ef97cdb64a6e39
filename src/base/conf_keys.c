/* SPDX-License-Identifier: Apache-2.0
 *
 * Which key or group is meant: by its own name, by that of another program, in another group, or by
 * its letters.
 */
#include "base/conf_local.h"

#include "base/log.h"
#include <ctype.h>
#include <stdio.h>
#include <string.h>

const struct conf_row *conf_find(const struct conf_table *t, const char *key)
{
    for (int i = 0; i < t->n; i++)
        if (strcmp(t->row[i].key, key) == 0)
            return &t->row[i];
    return NULL;
}

const struct conf_retired *conf_retired_find(const struct conf_table *t, const char *key)
{
    for (const struct conf_retired *r = t->retired; r && r->key; r++)
        if (strcmp(r->key, key) == 0)
            return r;
    return NULL;
}

int conf_group(const char *key)
{
    const char *dot = strchr(key, '.');
    return dot ? (int)(dot - key) : 0;
}

bool conf_is_one_of(const char *words, const char *value)
{
    size_t n = strlen(value);
    for (; words; words = strchr(words, '|')) {
        words += *words == '|';
        if (strcspn(words, "|") != n)
            continue;
        size_t i = 0;
        while (i < n && (tolower((unsigned char)words[i]) == tolower((unsigned char)value[i]) ||
                         (strchr("-_", words[i]) && strchr("-_", value[i]))))
            i++;
        if (i == n)
            return true;
    }
    return false;
}

enum err conf_pass_over(const struct conf_retired *r, const char *place, const char *value)
{
    if (!value)
        FAIL(ERR_CONFIG, "%s: %s is no more, and had one value; leave the key out", place, r->key);
    if (r->values && !conf_is_one_of(r->values, value))
        log_line(LOG_WARN, "%s: %s is no more: %s", place, r->key, r->why);
    return ERR_OK;
}

bool conf_alias_is_group(const struct conf_alias *a)
{
    return a->means && !strchr(a->means, '.');
}

static const struct conf_alias *find_alias(const struct conf_table *t, const char *name, bool group)
{
    for (const struct conf_alias *a = t->alias; a && a->names; a++)
        if (conf_alias_is_group(a) == group && conf_is_one_of(a->names, name))
            return a;
    return NULL;
}

/* Is the part at the end only how a thing is said to be on, or which one it is? */
static bool says_which(const char *part)
{
    return conf_is_one_of("enable|enabled|name|type|mode|kind|params|config|use", part);
}

/* Part of a key "c.b.a", counted from its end: a is 0; false beyond its first. */
static bool part_at(const char *key, int back, char out[CONF_PLACE_MAX])
{
    const char *end = key + strlen(key), *from = end;
    for (int i = 0; i <= back; i++) {
        if (i > 0 && from == key)
            return false;
        end = i > 0 ? from - 1 : from;
        from = end;
        while (from > key && from[-1] != '.')
            from--;
    }
    snprintf(out, CONF_PLACE_MAX, "%.*s", (int)(end - from), from);
    return true;
}

/* Of a name that is more than a key's last part: "bf16.enabled", whatever stands in front. */
static const struct conf_alias *alias_with_group(const struct conf_table *t, const char *word)
{
    const struct conf_alias *a = NULL;
    for (const char *dot; !a && (dot = strchr(word, '.')); word = dot + 1)
        a = find_alias(t, word, false);
    return a;
}

const struct conf_alias *conf_alias_of(const struct conf_table *t, const char *word, bool group)
{
    char part[CONF_PLACE_MAX];
    const struct conf_alias *a = group ? NULL : alias_with_group(t, word);
    for (int back = 0; !a && part_at(word, back, part); back++) {
        a = find_alias(t, part, group);
        if (!says_which(part)) /* "float8.enable" is float8 */
            break;
    }
    return a;
}

/* The key of that name, "lr" of "optimizer.params.lr", in whatever group; first in the one that the
 * word's own means here. */
static const char *same_name(const struct conf_table *t, const char *word)
{
    char name[CONF_PLACE_MAX], group[CONF_PLACE_MAX];
    const char *found = NULL;
    snprintf(group, sizeof group, "%.*s", conf_group(word), word);
    const struct conf_alias *of = find_alias(t, group, true);
    const char *here = of ? of->means : group;
    part_at(word, 0, name);
    for (int i = 0; i < t->n; i++) {
        const char *key = t->row[i].key;
        size_t n = (size_t)conf_group(key);
        bool its = strlen(here) == n && strncmp(here, key, n) == 0;
        if (strcmp(key + n + 1, name) == 0 && (its || !found))
            found = key;
    }
    return found;
}

/* What a word most likely means; alias: the row that says so, or NULL. */
static const char *find_meant(const struct conf_table *t, const char *word,
                              const struct conf_alias **alias)
{
    char name[CONF_PLACE_MAX];
    struct text_near near = {0};
    const char *key = NULL;
    part_at(word, 0, name);
    *alias = alias_with_group(t, word); /* "optim.kind" is no model's */
    if (!*alias && says_which(name))
        *alias = conf_alias_of(t, word, false);
    if (!*alias) /* the right name in the wrong group is nearer than any misspelling */
        key = same_name(t, word);
    if (!key && !*alias)
        *alias = conf_alias_of(t, word, false);
    for (int i = 0; i < t->n && !key && !*alias; i++)
        text_near(&near, word, t->row[i].key);
    key = key ? key : near.found;
    for (int back = 1; !key && !*alias && part_at(word, back, name); back++)
        *alias = find_alias(t, name, false); /* of the innermost group around it */
    return *alias ? (*alias)->means : key;
}

const char *conf_nearest(const struct conf_table *t, const char *word)
{
    const struct conf_alias *alias;
    return find_meant(t, word, &alias);
}

enum err conf_unknown(const struct conf_table *t, const char *place, const char *key)
{
    const struct conf_alias *alias;
    const char *near = find_meant(t, key, &alias);
    if (alias)
        FAIL(ERR_CONFIG, "%s: there is no key %.100s; %s%s%s%s", place, key,
             near ? "did you mean " : "", near ? near : "", near && alias->how ? ": " : "",
             alias->how ? alias->how : "");
    if (near)
        FAIL(ERR_CONFIG, "%s: there is no key %.100s; the nearest is %s", place, key, near);
    FAIL(ERR_CONFIG, "%s: there is no key %.100s; `plait help config` lists them", place, key);
}

int conf_group_row(const struct conf_table *t, const char *group)
{
    size_t n = strlen(group);
    for (int i = 0; i < t->n; i++)
        if ((size_t)conf_group(t->row[i].key) == n && strncmp(t->row[i].key, group, n) == 0)
            return i;
    return -1;
}

const char *conf_nearest_group(const struct conf_table *t, const char *group,
                               char out[CONF_PLACE_MAX])
{
    char name[CONF_PLACE_MAX];
    struct text_near near = {0};
    for (int i = 0; i < t->n; i++) {
        snprintf(name, sizeof name, "%.*s", conf_group(t->row[i].key), t->row[i].key);
        text_near(&near, group, name);
        if (near.found == name)
            near.found = memcpy(out, name, sizeof name);
    }
    return near.found;
}
