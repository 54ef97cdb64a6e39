/* SPDX-License-Identifier: Apache-2.0
 *
 * Values of the option table: text to struct field and back. Each source (preset, file, command
 * line) ends in conf_assign, so a value has one parser, one range check and one voice, whatever
 * brought it. A source is applied to a copy of the struct and copied back when all of it is good:
 * a refused file leaves the configuration as it was.
 *
 * Strings are UTF-8 of printable points, so without control characters and the separators that YAML
 * takes for line ends: what passes here can be shown, printed as YAML and read back byte for byte.
 */
#include "base/conf_local.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/printable.h"
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
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

/* Is value one of "on|1|y", in any case, - as good as _? */
static bool is_one_of(const char *words, const char *value)
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
    if (r->values && !is_one_of(r->values, value))
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
        if (conf_alias_is_group(a) == group && is_one_of(a->names, name))
            return a;
    return NULL;
}

/* Is the part at the end only how a thing is said to be on, or which one it is? */
static bool says_which(const char *part)
{
    return is_one_of("enable|enabled|name|type|mode|kind|params|config|use", part);
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

/* The alias of the innermost group around a key: "activation_checkpointing" of what it has. */
static const struct conf_alias *alias_around(const struct conf_table *t, const char *word)
{
    char part[CONF_PLACE_MAX];
    const struct conf_alias *a = NULL;
    for (int back = 1; !a && part_at(word, back, part); back++)
        a = find_alias(t, part, false);
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

static const char *row_key(const void *arg, int i)
{
    const struct conf_table *t = arg;
    return t->row[i].key;
}

/* What a word most likely means; alias: the row that says so, or NULL. */
static const char *find_meant(const struct conf_table *t, const char *word,
                              const struct conf_alias **alias)
{
    char name[CONF_PLACE_MAX];
    const char *key = NULL;
    part_at(word, 0, name);
    *alias = alias_with_group(t, word); /* "optim.kind" is no model's */
    if (!*alias && says_which(name))
        *alias = conf_alias_of(t, word, false);
    if (!*alias) /* the right name in the wrong group is nearer than any misspelling */
        key = same_name(t, word);
    if (!key && !*alias)
        *alias = conf_alias_of(t, word, false);
    if (!key && !*alias)
        key = text_nearest(word, t->n, row_key, t);
    if (!key && !*alias)
        *alias = alias_around(t, word);
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

/* ---- strings ---- */

bool conf_is_clean(const char *s)
{
    uint32_t c;
    for (int n; *s; s += n) {
        n = printable_utf8(s, &c);
        if (n == 0 || !printable_point(c))
            return false;
    }
    return true;
}

/* ---- text to value ---- */

enum { REAL_TEXT = 40 };

/* The fewest digits that read back to v. */
static void shortest(double v, char buf[REAL_TEXT])
{
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(buf, REAL_TEXT, "%.*g", digits, v);
        if (strtod(buf, NULL) == v)
            break;
    }
    if (strchr(buf, 'e') && fabs(v) < 1e6 && v == floor(v))
        snprintf(buf, REAL_TEXT, "%.0f", v); /* 100, not 1e+02 */
}

enum err conf_assign_int(const struct conf_row *row, char *field, const char *place,
                         const char *value)
{
    int64_t v, min = (int64_t)row->min, max = (int64_t)row->max; /* (double)v may be rounded */
    enum text_number n = text_read_int(value, &v);
    if (n == TEXT_TOO_LARGE)
        FAIL(ERR_CONFIG, "%s: %s is \"%.40s\"%s, wanted is a whole number from %lld to %lld; "
                         "the nearest legal value is %lld", place, row->key, value,
             text_number_fault(n), (long long)min, (long long)max,
             (long long)(value[0] == '-' ? min : max));
    if (n != TEXT_NUMBER)
        FAIL(ERR_CONFIG, "%s: %s is \"%.40s\"%s, wanted is a whole number from %lld to %lld", place,
             row->key, value, text_number_fault(n), (long long)min, (long long)max);
    if (v < min || v > max)
        FAIL(ERR_CONFIG, "%s: %s %lld is outside %lld to %lld; the nearest legal value is %lld",
             place, row->key, (long long)v, (long long)min, (long long)max,
             (long long)(v < min ? min : max));
    memcpy(field, &v, sizeof v);
    return ERR_OK;
}

static enum err assign_real(const struct conf_row *row, char *field, const char *place,
                            const char *value)
{
    double v;
    char min[REAL_TEXT], max[REAL_TEXT];
    enum text_number n = text_read_real(value, &v);
    shortest(row->min, min);
    shortest(row->max, max);
    if (n == TEXT_TOO_LARGE || n == TEXT_TOO_SMALL)
        FAIL(ERR_CONFIG, "%s: %s is \"%.40s\"%s, wanted is a number from %s to %s; the "
                         "nearest legal value is %s", place, row->key, value,
             text_number_fault(n), min, max,
             n == TEXT_TOO_LARGE && value[0] != '-' ? max : min);
    if (n != TEXT_NUMBER)
        FAIL(ERR_CONFIG, "%s: %s is \"%.40s\"%s, wanted is a number from %s to %s", place, row->key,
             value, text_number_fault(n), min, max);
    if (v < row->min || v > row->max)
        FAIL(ERR_CONFIG, "%s: %s %.40s is outside %s to %s; the nearest legal value is %s", place,
             row->key, value, min, max, v < row->min ? min : max);
    memcpy(field, &v, sizeof v);
    return ERR_OK;
}

static const char *bool_word(const void *arg, int i)
{
    (void)arg;
    return i ? "true" : "false";
}

/* What someone who wrote this meant, or NULL. */
static const char *bool_meant(const char *value)
{
    if (is_one_of("on|1|yes|y|t|enable|enabled", value))
        return "true";
    if (is_one_of("off|0|no|n|f|none|disable|disabled", value))
        return "false";
    return text_nearest(value, 2, bool_word, NULL);
}

static enum err assign_bool(const struct conf_row *row, char *field, const char *place,
                            const char *value)
{
    bool yes = strcmp(value, "true") == 0 || strcmp(value, "yes") == 0;
    bool no = strcmp(value, "false") == 0 || strcmp(value, "no") == 0;
    if (!yes && !no) {
        const char *near = bool_meant(value);
        FAIL(ERR_CONFIG, "%s: %s is \"%.40s\", wanted is true or false%s%s", place, row->key, value,
             near ? "; the nearest is " : "", near ? near : "");
    }
    memcpy(field, &yes, sizeof yes);
    return ERR_OK;
}

/* Word i of "gpt|llama" into buf; false beyond the last. */
static bool word_at(const char *words, int i, char buf[64])
{
    for (; i > 0 && words; i--) {
        words = strchr(words, '|');
        words = words ? words + 1 : NULL;
    }
    if (!words)
        return false;
    snprintf(buf, 64, "%.*s", (int)strcspn(words, "|"), words);
    return true;
}

struct word_list { char word[16][64]; int n; };

static const char *listed_word(const void *arg, int i)
{
    const struct word_list *list = arg;
    return list->word[i];
}

static const struct conf_hint *hint_of(const struct conf_table *t, const char *key,
                                       const char *value)
{
    for (int i = 0; i < t->hints; i++)
        if (strcmp(t->hint[i].key, key) == 0 && is_one_of(t->hint[i].words, value))
            return &t->hint[i];
    return NULL;
}

/* Of a word that takes a number, "every:K", the bytes before it; 0: it takes none. */
static size_t stem_of(const char *word)
{
    size_t n = strlen(word);
    return n > 2 && strcmp(word + n - 2, ":K") == 0 ? n - 1 : 0;
}

/* Is it this word? Then its number, 0 where it takes none. */
static bool is_word(const char *word, const char *value, int *number)
{
    size_t stem = stem_of(word);
    int64_t k = 0;
    bool is = stem == 0 ? strcmp(word, value) == 0
                        : strncmp(word, value, stem) == 0 && text_to_int(value + stem, &k) &&
                              k >= 1 && k <= CONF_WORD_MOST;
    *number = is ? (int)k : 0;
    return is;
}

/* The word with the nearest legal number, if it takes one and is near or begins value; or near. */
static const char *numbered(const char *word, const char *near, const char *value, char legal[64])
{
    size_t stem = stem_of(word);
    int64_t k = 0;
    bool begins = stem > 0 && strncmp(word, value, stem) == 0;
    if (!begins && !(stem > 0 && near && strcmp(near, word) == 0))
        return near;
    size_t digits = begins ? strspn(value + stem, "0123456789") : 0;
    bool over = digits > 0 && value[stem + digits] == '\0' &&
                (!text_to_int(value + stem, &k) || k > CONF_WORD_MOST);
    snprintf(legal, 64, "%.*s%d", (int)stem, word, over ? CONF_WORD_MOST : 1);
    return legal;
}

static enum err assign_word(const struct conf_table *t, const struct conf_row *row, char *field,
                            const char *place, const char *value)
{
    struct word_list list = {.n = 0};
    while (list.n < 16 && word_at(row->words, list.n, list.word[list.n])) {
        int number;
        if (is_word(list.word[list.n], value, &number)) {
            int word = list.n | number << CONF_WORD_BITS;
            memcpy(field, &word, sizeof word);
            return ERR_OK;
        }
        list.n++;
    }
    const struct conf_hint *hint = hint_of(t, row->key, value);
    if (hint && hint->why)
        FAIL(ERR_CONFIG, "%s: %s is \"%.40s\", wanted is one of %s; %s", place, row->key, value,
             row->words, hint->why);
    const char *near = hint ? hint->means : text_nearest(value, list.n, listed_word, &list);
    char legal[64];
    for (int i = 0; i < list.n; i++)
        near = numbered(list.word[i], near, value, legal);
    FAIL(ERR_CONFIG, "%s: %s is \"%.40s\", wanted is one of %s%s%s", place, row->key, value,
         row->words, near ? "; the nearest is " : "", near ? near : "");
}

static enum err assign_string(const struct conf_row *row, char *field, const char *place,
                              const char *value)
{
    size_t n = strlen(value);
    if (n >= row->size)
        FAIL(ERR_CONFIG, "%s: %s has %zu bytes; at most %zu are kept", place, row->key, n,
             row->size - 1);
    const char *colon = strchr(value, ':'); /* file:~/mine.csv */
    if (value[0] == '~' || (colon && colon[1] == '~'))
        FAIL(ERR_CONFIG, "%s: %s is \"%.200s\", and only a shell makes a home folder of ~; write "
                         "the whole path, or ./~ for a file of that name", place, row->key, value);
    if (!conf_is_clean(value))
        FAIL(ERR_CONFIG, "%s: %s holds control characters or is not UTF-8; write plain text", place,
             row->key);
    memset(field, 0, row->size);
    memcpy(field, value, n);
    return ERR_OK;
}

static bool *given_of(const struct conf_table *t, void *conf)
{
    return (bool *)((char *)conf + t->given);
}

bool conf_given(const struct conf_table *t, const void *conf, const char *key)
{
    const struct conf_row *row = conf_find(t, key);
    ENSURE(row && t->given > 0);
    return ((const bool *)((const char *)conf + t->given))[row - t->row];
}

static enum err assign(const struct conf_table *t, const struct conf_row *row, char *field,
                       const char *place, const char *value)
{
    if (!*value && row->type != CONF_STRING)
        FAIL(ERR_CONFIG, "%s: %s has no value; give one or leave the key out (its default is %s)",
             place, row->key, row->preset);
    switch (row->type) {
    case CONF_INT:
        return conf_assign_int(row, field, place, value);
    case CONF_REAL:
        return assign_real(row, field, place, value);
    case CONF_BOOL:
        return assign_bool(row, field, place, value);
    case CONF_WORD:
        return assign_word(t, row, field, place, value);
    case CONF_STRING:
        return assign_string(row, field, place, value);
    case CONF_NAMES:
    case CONF_INTS:
        return conf_assign_list(row, field, place, value);
    }
    FAIL(ERR_INTERNAL, "config: %s has a type that conf.c does not know", row->key);
}

enum err conf_assign(const struct conf_table *t, const struct conf_row *row, void *conf,
                     const char *place, const char *value)
{
    TRY(assign(t, row, (char *)conf + row->offset, place, value));
    if (t->given > 0)
        given_of(t, conf)[row - t->row] = true;
    return ERR_OK;
}

enum err conf_defaults(const struct conf_table *t, void *conf)
{
    memset(conf, 0, t->struct_size);
    for (int i = 0; i < t->n; i++)
        TRY(conf_assign(t, &t->row[i], conf, "config: default", t->row[i].preset));
    if (t->given > 0)
        memset(given_of(t, conf), 0, (size_t)t->n * sizeof(bool));
    return ERR_OK;
}

enum err conf_set_from(const struct conf_table *t, void *conf, const char *place, const char *word)
{
    const char *equals = strchr(word, '=');
    char key[CONF_PLACE_MAX];
    if (!equals || equals == word || equals - word >= (int)sizeof key)
        FAIL(ERR_CONFIG, "%s: \"%.60s\" is not of the form key=value, as in model.layers=12", place,
             word);
    snprintf(key, sizeof key, "%.*s", (int)(equals - word), word);
    const struct conf_row *row = conf_find(t, key);
    const struct conf_retired *was = conf_retired_find(t, key);
    if (!row && was)
        return conf_pass_over(was, place, equals + 1);
    if (!row)
        return conf_unknown(t, place, key);
    return conf_assign(t, row, conf, place, equals + 1);
}

enum err conf_set(const struct conf_table *t, void *conf, const char *word)
{
    return conf_set_from(t, conf, "command line", word);
}

/* ---- value to text ---- */

void conf_real(double v, struct text *out)
{
    char buf[REAL_TEXT];
    shortest(v, buf);
    text_add(out, "%s", buf);
}

void conf_value(const struct conf_row *row, const void *conf, struct text *out)
{
    const char *field = (const char *)conf + row->offset;
    int64_t whole;
    double real;
    bool yes;
    int index;
    char word[64] = "";
    switch (row->type) {
    case CONF_INT:
        memcpy(&whole, field, sizeof whole);
        text_add(out, "%lld", (long long)whole);
        break;
    case CONF_REAL:
        memcpy(&real, field, sizeof real);
        conf_real(real, out);
        break;
    case CONF_BOOL:
        memcpy(&yes, field, sizeof yes);
        text_add(out, "%s", yes ? "true" : "false");
        break;
    case CONF_WORD:
        memcpy(&index, field, sizeof index);
        word_at(row->words, conf_word_index(index), word);
        if (conf_word_number(index))
            text_add(out, "%.*s%d", (int)stem_of(word), word, conf_word_number(index));
        else
            text_add(out, "%s", word);
        break;
    case CONF_STRING:
        text_add(out, "%s", field);
        break;
    case CONF_NAMES:
    case CONF_INTS:
        conf_list_value(row, field, out);
        break;
    }
}

enum err conf_get(const struct conf_table *t, const void *conf, const char *key, struct text *out)
{
    const struct conf_row *row = conf_find(t, key);
    if (!row)
        return conf_unknown(t, "config", key);
    conf_value(row, conf, out);
    return ERR_OK;
}
