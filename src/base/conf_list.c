/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists of the option table: text to field and back. The text is that of a command line's word,
 * `a, b` or `[a, b]`; an element with a comma, bracket, quote or blank at an end stands in quotes,
 * single or double, in which \ takes the next character as it is. What is printed is YAML, too.
 */
#include "base/conf_local.h"

#include <stdio.h>
#include <string.h>

struct list_text {
    const struct conf_row *row;
    const char *place, *value;
    const char *at; /* what follows the elements read */
    int64_t n;      /* of elements, with the one at hand */
    char element[CONF_NAMES_BYTES];
};

static enum err bad_form(const struct list_text *l, const char *what)
{
    FAIL(ERR_CONFIG,
         "%s: %s is \"%.40s\", where %s; write a list as [a, b], and an element with a "
         "comma, a bracket or a quote in quotes",
         l->place, l->row->key, l->value, what);
}

static void skip_blanks(struct list_text *l)
{
    l->at += strspn(l->at, " ");
}

static enum err too_long(const struct list_text *l)
{
    FAIL(ERR_CONFIG,
         "%s: %s has elements of more than %d bytes together, and at most so many are "
         "kept; use fewer or shorter ones",
         l->place, l->row->key, CONF_NAMES_BYTES - (int)l->n);
}

/* An element in quotes, with `at` behind the first of them. */
static enum err read_quoted(struct list_text *l, char quote)
{
    size_t n = 0;
    for (; *l->at != quote; l->at++) {
        l->at += *l->at == '\\';
        if (!*l->at)
            return bad_form(l, "a quote is not closed");
        if (n + 1 == sizeof l->element)
            return too_long(l);
        l->element[n++] = *l->at;
    }
    l->at++;
    l->element[n] = '\0';
    return ERR_OK;
}

static enum err read_plain(struct list_text *l, bool bracket)
{
    size_t n = strcspn(l->at, bracket ? ",]" : ","), bad = strcspn(l->at, "[]\"'");
    if (bad < n)
        return bad_form(l, "a bracket or quote stands within an element");
    if (n >= sizeof l->element)
        return too_long(l);
    memcpy(l->element, l->at, n);
    l->at += n;
    while (n > 0 && l->element[n - 1] == ' ')
        n--;
    l->element[n] = '\0';
    return ERR_OK;
}

static enum err read_element(struct list_text *l, bool bracket)
{
    char what[48];
    skip_blanks(l);
    l->n++;
    if (*l->at == '"' || *l->at == '\'')
        TRY(read_quoted(l, *l->at++));
    else
        TRY(read_plain(l, bracket));
    snprintf(what, sizeof what, "element %lld is empty", (long long)l->n);
    if (!l->element[0])
        return bad_form(l, what);
    if (l->n > CONF_LIST_MAX)
        FAIL(ERR_CONFIG,
             "%s: %s has more than %d elements, and at most so many are kept; use "
             "fewer",
             l->place, l->row->key, CONF_LIST_MAX);
    skip_blanks(l);
    return ERR_OK;
}

static enum err add_name(const struct list_text *l, struct conf_names *to, size_t *bytes)
{
    size_t n = strlen(l->element) + 1;
    if (!conf_is_clean(l->element))
        FAIL(ERR_CONFIG,
             "%s: %s (element %lld) holds control characters or is not UTF-8; write "
             "plain text",
             l->place, l->row->key, (long long)l->n);
    if (*bytes + n > sizeof to->text)
        return too_long(l);
    memcpy(to->text + *bytes, l->element, n);
    *bytes += n;
    to->n = l->n;
    return ERR_OK;
}

static enum err add_int(const struct list_text *l, struct conf_ints *to)
{
    char name[CONF_PLACE_MAX];
    struct conf_row one = *l->row;
    snprintf(name, sizeof name, "%.200s (element %lld)", one.key, (long long)l->n);
    one.key = name;
    TRY(conf_assign_int(&one, (char *)&to->v[l->n - 1], l->place, l->element));
    to->n = l->n;
    return ERR_OK;
}

enum err conf_assign_list(const struct conf_row *row, char *field, const char *place,
                          const char *value)
{
    struct list_text l = {.row = row, .place = place, .value = value, .at = value};
    struct conf_names names = {.n = 0};
    struct conf_ints ints = {.n = 0};
    size_t bytes = 0;
    skip_blanks(&l);
    bool bracket = *l.at == '[';
    l.at += bracket;
    skip_blanks(&l);
    bool more = !bracket || *l.at != ']';
    while (more) {
        TRY(read_element(&l, bracket));
        TRY(row->type == CONF_NAMES ? add_name(&l, &names, &bytes) : add_int(&l, &ints));
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

/* May it stand in YAML and in a word without quotes, for itself? */
static bool is_plain(const char *s)
{
    static const char legal[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._/";
    return s[strspn(s, legal)] == '\0' && strcmp(s, "null") != 0;
}

void conf_list_value(const struct conf_row *row, const char *field, struct text *out)
{
    struct conf_names names;
    struct conf_ints ints;
    bool words = row->type == CONF_NAMES;
    memcpy(words ? (void *)&names : (void *)&ints, field, words ? sizeof names : sizeof ints);
    text_add(out, "[");
    for (int64_t i = 0; i < (words ? names.n : ints.n); i++) {
        text_add(out, "%s", i ? ", " : "");
        if (!words)
            text_add(out, "%lld", (long long)ints.v[i]);
        else if (is_plain(conf_name(&names, i)))
            text_add(out, "%s", conf_name(&names, i));
        else
            conf_quoted(conf_name(&names, i), out);
    }
    text_add(out, "]");
}
