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

#include "base/mem.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- strings ---- */

static enum err check_clean(const struct conf_row *row, const char *place, const char *s)
{
    uint32_t c;
    for (int n; *s; s += n) {
        n = printable_utf8(s, &c);
        if (n == 0 || !printable_point(c))
            FAIL(ERR_CONFIG, "%s: %s holds control characters or is not UTF-8; write plain text",
                 place, row->key);
    }
    return ERR_OK;
}

/* ---- text to value ---- */
/* The fewest digits that read back to v. */
static void shortest(double v, char buf[CONF_BOUND])
{
    text_real(v, 1, buf);
    if (strchr(buf, 'e') && fabs(v) < 1e6 && v == floor(v))
        snprintf(buf, CONF_BOUND, "%.0f", v); /* 100, not 1e+02 */
}

static bool is_whole(const struct conf_row *row)
{
    return row->type == CONF_INT || row->type == CONF_INTS;
}

void conf_bound(const struct conf_row *row, double v, char buf[CONF_BOUND])
{
    if (is_whole(row))
        snprintf(buf, CONF_BOUND, "%lld", (long long)v);
    else
        shortest(v, buf);
}

/* Of 64 bits, whole or real. */
static enum err assign_number(const struct conf_row *row, char *field, const char *place,
                              const char *value)
{
    char min[CONF_BOUND], max[CONF_BOUND], text[CONF_BOUND];
    const char *kind = is_whole(row) ? "whole number" : "number", *near = NULL;
    int64_t whole = 0;
    double real = 0;
    enum text_number n =
        is_whole(row) ? text_read_int(value, &whole) : text_read_real(value, &real);
    conf_bound(row, row->min, min);
    conf_bound(row, row->max, max);
    if (n == TEXT_TOO_LARGE || n == TEXT_TOO_SMALL)
        near = n == TEXT_TOO_LARGE && value[0] != '-' ? max : min;
    if (n != TEXT_NUMBER)
        FAIL(ERR_CONFIG, "%s: %s is \"%.40s\"%s, wanted is a %s from %s to %s%s%s", place, row->key,
             value, text_number_fault(n), kind, min, max,
             near ? "; the nearest legal value is " : "", near ? near : "");
    /* (double)whole may be rounded */
    if (is_whole(row) ? whole < (int64_t)row->min : real < row->min)
        near = min;
    if (is_whole(row) ? whole > (int64_t)row->max : real > row->max)
        near = max;
    if (is_whole(row)) {
        snprintf(text, sizeof text, "%lld", (long long)whole);
        value = text;
    }
    if (near)
        FAIL(ERR_CONFIG, "%s: %s %.40s is outside %s to %s; the nearest legal value is %s", place,
             row->key, value, min, max, near);
    memcpy(field, is_whole(row) ? (const void *)&whole : &real, sizeof whole);
    return ERR_OK;
}

static enum err assign_bool(const struct conf_row *row, char *field, const char *place,
                            const char *value)
{
    bool yes = strcmp(value, "true") == 0 || strcmp(value, "yes") == 0;
    bool no = strcmp(value, "false") == 0 || strcmp(value, "no") == 0;
    if (!yes && !no) { /* what is meant by it? */
        struct text_near near = {0};
        text_near(&near, value, "false");
        text_near(&near, value, "true");
        if (conf_is_one_of("on|1|yes|y|t|enable|enabled", value))
            near.found = "true";
        else if (conf_is_one_of("off|0|no|n|f|none|disable|disabled", value))
            near.found = "false";
        FAIL(ERR_CONFIG, "%s: %s is \"%.40s\", wanted is true or false%s%s", place, row->key, value,
             near.found ? "; the nearest is " : "", near.found ? near.found : "");
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

/* Of a word that takes a number, "every:K", the bytes before it; 0: it takes none. */
static size_t stem_of(const char *word)
{
    size_t n = strlen(word);
    return n > 2 && strcmp(word + n - 2, ":K") == 0 ? n - 1 : 0;
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
    char word[16][64], legal[64];
    struct text_near near = {0};
    int words = 0;
    for (; words < 16 && word_at(row->words, words, word[words]); words++) {
        size_t stem = stem_of(word[words]);
        int64_t k = 0;
        bool counted = stem > 0 && strncmp(word[words], value, stem) == 0 &&
                       text_to_int(value + stem, &k) && k >= 1 && k <= CONF_WORD_MOST;
        if (counted || (stem == 0 && strcmp(word[words], value) == 0)) {
            int index = words | (int)k << CONF_WORD_BITS;
            memcpy(field, &index, sizeof index);
            return ERR_OK;
        }
        text_near(&near, value, word[words]);
    }
    for (const struct conf_hint *h = t->hint; h < t->hint + t->hints; h++) {
        if (strcmp(h->key, row->key) != 0 || !conf_is_one_of(h->words, value))
            continue;
        if (h->why)
            FAIL(ERR_CONFIG, "%s: %s is \"%.40s\", wanted is one of %s; %s", place, row->key, value,
                 row->words, h->why);
        near.found = h->means;
        break;
    }
    for (int i = 0; i < words; i++)
        near.found = numbered(word[i], near.found, value, legal);
    FAIL(ERR_CONFIG, "%s: %s is \"%.40s\", wanted is one of %s%s%s", place, row->key, value,
         row->words, near.found ? "; the nearest is " : "", near.found ? near.found : "");
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
    TRY(check_clean(row, place, value));
    memset(field, 0, row->size);
    memcpy(field, value, n);
    return ERR_OK;
}

/* ---- lists ----
 *
 * The text is that of a command line's word, `a, b` or `[a, b]`; an element with a comma, bracket,
 * quote or blank at an end stands in quotes, single or double, in which \\ takes the next character
 * as it is. What is printed is YAML, too. */

struct list_text {
    const struct conf_row *row;
    const char *place, *value;
    const char *at; /* what follows the elements read */
    int64_t n;      /* of elements, with the one at hand */
    char element[CONF_NAMES_BYTES];
};

static enum err bad_form(const struct list_text *l, const char *what)
{
    FAIL(ERR_CONFIG, "%s: %s is \"%.40s\", where %s; write a list as [a, b], and an element with a "
                     "comma, a bracket or a quote in quotes",
         l->place, l->row->key, l->value, what);
}

static void skip_blanks(struct list_text *l)
{
    l->at += strspn(l->at, " ");
}

static enum err too_long(const struct list_text *l)
{
    FAIL(ERR_CONFIG, "%s: %s has elements of more than %d bytes together, and at most so many are "
                     "kept; use fewer or shorter ones", l->place, l->row->key,
         CONF_NAMES_BYTES - (int)l->n);
}

static enum err read_element(struct list_text *l, bool bracket)
{
    char what[48];
    size_t n = 0;
    skip_blanks(l);
    l->n++;
    if (*l->at == '"' || *l->at == '\'') {
        char quote = *l->at++;
        for (; *l->at != quote; l->at++) {
            l->at += *l->at == '\\';
            if (!*l->at)
                return bad_form(l, "a quote is not closed");
            if (n + 1 == sizeof l->element)
                return too_long(l);
            l->element[n++] = *l->at;
        }
        l->at++;
    } else {
        n = strcspn(l->at, bracket ? ",]" : ",");
        if (strcspn(l->at, "[]\"'") < n)
            return bad_form(l, "a bracket or quote stands within an element");
        if (n >= sizeof l->element)
            return too_long(l);
        memcpy(l->element, l->at, n);
        l->at += n;
        while (n > 0 && l->element[n - 1] == ' ')
            n--;
    }
    l->element[n] = '\0';
    snprintf(what, sizeof what, "element %lld is empty", (long long)l->n);
    if (!l->element[0])
        return bad_form(l, what);
    if (l->n > CONF_LIST_MAX)
        FAIL(ERR_CONFIG, "%s: %s has more than %d elements, and at most so many are kept; use "
                         "fewer", l->place, l->row->key, CONF_LIST_MAX);
    skip_blanks(l);
    return ERR_OK;
}

static enum err assign_list(const struct conf_row *row, char *field, const char *place,
                            const char *value)
{
    struct list_text l = {.row = row, .place = place, .value = value, .at = value};
    struct conf_names names = {.n = 0};
    struct conf_ints ints = {.n = 0};
    char name[CONF_PLACE_MAX];
    struct conf_row one = *row; /* an element as a row */
    size_t bytes = 0;
    one.key = name;
    skip_blanks(&l);
    bool bracket = *l.at == '[';
    l.at += bracket;
    skip_blanks(&l);
    bool more = !bracket || *l.at != ']';
    while (more) {
        TRY(read_element(&l, bracket));
        snprintf(name, sizeof name, "%.200s (element %lld)", row->key, (long long)l.n);
        size_t n = strlen(l.element) + 1;
        if (row->type == CONF_INTS) {
            TRY(assign_number(&one, (char *)&ints.v[l.n - 1], place, l.element));
        } else {
            TRY(check_clean(&one, place, l.element));
            if (bytes + n > sizeof names.text)
                return too_long(&l);
            memcpy(names.text + bytes, l.element, n);
            bytes += n;
        }
        names.n = ints.n = l.n;
        more = *l.at == ',';
        l.at += more;
    }
    if (bracket && !*l.at)
        return bad_form(&l, "[ is not closed");
    l.at += bracket && *l.at == ']';
    skip_blanks(&l);
    if (*l.at)
        return bad_form(&l, "something follows a quote or a bracket that is closed");
    if (row->type == CONF_NAMES)
        memcpy(field, &names, sizeof names);
    else
        memcpy(field, &ints, sizeof ints);
    return ERR_OK;
}

/* ---- a row ---- */

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

enum err conf_assign(const struct conf_table *t, const struct conf_row *row, void *conf,
                     const char *place, const char *value)
{
    char *field = (char *)conf + row->offset;
    if (!*value && row->type != CONF_STRING)
        FAIL(ERR_CONFIG, "%s: %s has no value; give one or leave the key out (its default is %s)",
             place, row->key, row->preset);
    if (row->type == CONF_BOOL)
        TRY(assign_bool(row, field, place, value));
    else if (row->type == CONF_WORD)
        TRY(assign_word(t, row, field, place, value));
    else if (row->type == CONF_STRING)
        TRY(assign_string(row, field, place, value));
    else if (row->type == CONF_NAMES || row->type == CONF_INTS)
        TRY(assign_list(row, field, place, value));
    else
        TRY(assign_number(row, field, place, value));
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

const char *conf_name(const struct conf_names *list, int64_t i)
{
    const char *s = list->text;
    ENSURE(i >= 0 && i < list->n);
    while (i-- > 0)
        s += strlen(s) + 1;
    return s;
}

void conf_quoted(const char *s, struct text *out)
{
    text_add_char(out, '"', 1);
    for (; *s; s++)
        text_add(out, *s == '"' || *s == '\\' ? "\\%c" : "%c", *s);
    text_add_char(out, '"', 1);
}

static void list_value(const struct conf_row *row, const char *field, struct text *out)
{
    struct conf_names names;
    struct conf_ints ints;
    bool words = row->type == CONF_NAMES;
    /* What stands for itself in YAML and in a word without quotes. */
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._/";
    memcpy(words ? (void *)&names : (void *)&ints, field, words ? sizeof names : sizeof ints);
    text_add(out, "[");
    for (int64_t i = 0; i < (words ? names.n : ints.n); i++) {
        text_add(out, "%s", i ? ", " : "");
        const char *s = words ? conf_name(&names, i) : NULL;
        if (!words)
            text_add(out, "%lld", (long long)ints.v[i]);
        else if (s[strspn(s, plain)] || strcmp(s, "null") == 0)
            conf_quoted(s, out);
        else
            text_add(out, "%s", s);
    }
    text_add(out, "]");
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
        shortest(real, word);
        text_add(out, "%s", word);
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
        list_value(row, field, out);
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
