/* SPDX-License-Identifier: Apache-2.0
 *
 * The option table as YAML, as a help page and as Markdown. All three walk the rows in order and
 * open a new group when the part before the dot changes; so a group's rows stand together in the
 * table.
 */
#include "base/conf_local.h"

#include <string.h>

enum { HELP_WIDTH = 100 };

/* Does row i open a group? */
static bool opens_group(const struct conf_table *t, int i)
{
    const char *key = t->row[i].key;
    int n = conf_group(key);
    return i == 0 || conf_group(t->row[i - 1].key) != n ||
           strncmp(t->row[i - 1].key, key, (size_t)n) != 0;
}

/* Key without its group. */
static const char *tail(const struct conf_row *row)
{
    return row->key + conf_group(row->key) + 1;
}

void conf_print(const struct conf_table *t, const void *conf, struct text *out)
{
    for (int i = 0; i < t->n; i++) {
        const struct conf_row *row = &t->row[i];
        if (opens_group(t, i))
            text_add(out, "%.*s:\n", conf_group(row->key), row->key);
        text_add(out, "  %s: ", tail(row));
        if (row->type == CONF_STRING)
            conf_quoted((const char *)conf + row->offset, out);
        else
            conf_value(row, conf, out);
        text_add_char(out, '\n', 1);
    }
}

static void add_range(const struct conf_row *row, const char *between, struct text *out)
{
    if (row->type == CONF_BOOL) {
        text_add(out, "true%sfalse", between);
    } else if (row->type == CONF_STRING) {
        text_add(out, "text");
    } else if (row->type == CONF_NAMES) {
        text_add(out, "names");
    } else if (row->type == CONF_WORD) {
        for (const char *s = row->words; *s; s++)
            text_add(out, "%s", *s == '|' ? between : (char[2]){*s, '\0'});
    } else {
        char min[CONF_BOUND], max[CONF_BOUND];
        conf_bound(row, row->min, min);
        conf_bound(row, row->max, max);
        text_add(out, "%s%s to %s", row->type == CONF_INTS ? "each " : "", min, max);
    }
}

static const char *type_name(const struct conf_row *row)
{
    static const char *const name[] = {"whole", "real", "bool", "word", "text", "list", "list"};
    return name[row->type];
}

static const char *preset(const struct conf_row *row)
{
    return row->preset[0] ? row->preset : "\"\"";
}

/* Pad the line that began at `from` with spaces up to `column`, with two at least. */
static void pad(struct text *out, int64_t from, int64_t column)
{
    int64_t n = column - (out->len - from);
    text_add_char(out, ' ', n < 2 ? 2 : n);
}

/* The sentence, continued below itself where it would pass the right margin. */
static void add_wrapped(struct text *out, int64_t from, const char *sentence)
{
    int64_t column = out->len - from;
    for (const char *s = sentence; *s;) {
        size_t n = strcspn(s, " ");
        if (out->len - from + 1 + (int64_t)n > HELP_WIDTH && out->len - from > column) {
            text_add_char(out, '\n', 1);
            from = out->len;
            text_add_char(out, ' ', column);
        }
        text_add(out, "%s%.*s", out->len - from > column ? " " : "", (int)n, s);
        s += n + strspn(s + n, " ");
    }
    text_add_char(out, '\n', 1);
}

/* One row under the name it is to have; columns begin `shift` further to the right. */
static void add_row(const struct conf_row *row, const char *name, int64_t shift, struct text *out)
{
    int64_t from = out->len;
    text_add(out, "  %s", name);
    pad(out, from, 17 + shift);
    text_add(out, "%s", type_name(row));
    pad(out, from, 24 + shift);
    text_add(out, "%s", preset(row));
    pad(out, from, 32 + shift);
    add_range(row, "|", out);
    pad(out, from, 52 + shift);
    add_wrapped(out, from, row->help);
}

/* The rows that a word means: whole key, key without its group, or group. Returns how many. */
static int add_rows(const struct conf_table *t, const char *word, struct text *out)
{
    int found = 0;
    for (const struct conf_row *row = t->row; row < t->row + t->n; row++) {
        size_t group = (size_t)conf_group(row->key);
        if (strcmp(word, row->key) != 0 && strcmp(word, tail(row)) != 0 &&
            (strlen(word) != group || strncmp(word, row->key, group) != 0))
            continue;
        if (found++ == 0)
            text_add(out, "  %-21s%-7s%-8s%-20s%s\n", "key", "type", "default", "legal", "meaning");
        add_row(row, row->key, 6, out);
    }
    return found;
}

static void add_alias(const struct conf_table *t, const char *word, const struct conf_alias *a,
                      struct text *out)
{
    if (a->means)
        text_add(out, "%s is %s here", word, a->means);
    else
        text_add(out, "there is no key %s", word);
    text_add(out, "%s%s\n", a->how ? ": " : "", a->how ? a->how : "");
    if (a->means)
        add_rows(t, a->means, out);
}

enum err conf_explain(const struct conf_table *t, const char *word, struct text *out)
{
    if (add_rows(t, word, out) > 0)
        return ERR_OK;
    const struct conf_alias *key = conf_alias_of(t, word, false);
    const struct conf_alias *group = conf_alias_of(t, word, true);
    if (!key && !group)
        return conf_unknown(t, "config", word);
    if (key)
        add_alias(t, word, key, out);
    if (group)
        add_alias(t, word, group, out);
    return ERR_OK;
}

void conf_help(const struct conf_table *t, struct text *out)
{
    for (int i = 0; i < t->n; i++) {
        const struct conf_row *row = &t->row[i];
        if (opens_group(t, i))
            text_add(out, "%s%.*s\n", i ? "\n" : "", conf_group(row->key), row->key);
        add_row(row, tail(row), 0, out);
    }
}

void conf_markdown(const struct conf_table *t, struct text *out)
{
    for (int i = 0; i < t->n; i++) {
        const struct conf_row *row = &t->row[i];
        if (opens_group(t, i))
            text_add(out, "%s## %.*s\n\n| key | type | default | range | meaning |\n"
                          "|---|---|---|---|---|\n", i ? "\n" : "", conf_group(row->key), row->key);
        text_add(out, "| `%s` | %s | `%s` | ", row->key, type_name(row), preset(row));
        add_range(row, ", ", out);
        text_add(out, " | %s |\n", row->help);
    }
}
