/* SPDX-License-Identifier: Apache-2.0
 *
 * A YAML file through libyaml's event parser into the option table. The language accepted is a
 * small part of YAML: one document, a mapping of groups, each a mapping of keys to scalars, or to
 * sequences of scalars where the key's value is a list.
 *
 *     stream-start document-start
 *       mapping-start { group mapping-start { key value } mapping-end } mapping-end
 *     document-end stream-end
 *
 * The events are matched against this line as they come, and the first one that does not fit ends
 * the reading; so nothing nests, no alias is ever followed, and a hostile file costs no more than
 * its length. The length is bounded too, since a configuration is a page, not a megabyte.
 *
 * No object is built: each scalar goes to conf_assign with the line it stands on. Quoting does not
 * change the meaning of a value, the row's type decides it; so `kind: "gpt"` is `kind: gpt`.
 */
#include "base/conf_local.h"

#include "base/fs.h"
#include "base/mem.h"
#include <stdio.h>
#include <string.h>
#include <yaml.h>

enum { YAML_MAX_BYTES = 1 << 20 };

struct reader {
    const struct conf_table *t;
    void *conf;       /* borrowed: the copy that is filled */
    const char *name; /* borrowed: of the file, for messages */
    const char *text; /* borrowed */
    int64_t n;
    bool *seen;       /* owned; [2 n]: keys given, then groups given (at their first row) */
    bool list;        /* a sequence may come next */
    yaml_parser_t parser;
    yaml_event_t event;
    char place[CONF_PLACE_MAX];
};

static const char *place(struct reader *r, int64_t line)
{
    snprintf(r->place, sizeof r->place, "%.400s:%lld", r->name, (long long)line);
    return r->place;
}

static const char *here(struct reader *r)
{
    return place(r, (int64_t)r->event.start_mark.line + 1);
}

/* The parser's own complaint, with the line. Its reader, which decodes UTF-8, counts bytes, all
 * else counts lines. */
static enum err refuse_syntax(struct reader *r)
{
    const yaml_parser_t *p = &r->parser;
    bool undecoded = p->error == YAML_READER_ERROR;
    int64_t line = undecoded ? 1 : (int64_t)p->problem_mark.line + 1, i = 0;
    if (p->error == YAML_MEMORY_ERROR)
        FAIL(ERR_MEMORY, "memory: none left to read %s", r->name);
    if (undecoded)
        for (; i < (int64_t)p->problem_offset && i < r->n; i++)
            line += r->text[i] == '\n';
    else
        for (int64_t left = line; i < r->n && left > 1; i++)
            left -= r->text[i] == '\n';
    while (i < r->n && r->text[i] == ' ')
        i++;
    bool tab = !undecoded && i < r->n && r->text[i] == '\t'; /* the line begins with one */
    FAIL(ERR_CONFIG, "%s: not YAML: %s%s%s", place(r, line), p->problem ? p->problem : "unreadable",
         undecoded ? "; write plain UTF-8 text" : "", tab ? " (a tab); indent with spaces" : "");
}

/* The next event; what YAML has and configurations do not is refused here, once for all places. */
static enum err next(struct reader *r)
{
    yaml_event_delete(&r->event);
    if (!yaml_parser_parse(&r->parser, &r->event))
        return refuse_syntax(r);
    const yaml_event_t *e = &r->event;
    bool node = e->type == YAML_SCALAR_EVENT || e->type == YAML_MAPPING_START_EVENT ||
                e->type == YAML_SEQUENCE_START_EVENT; /* all begin with anchor and tag */
    if (e->type == YAML_ALIAS_EVENT || (node && e->data.scalar.anchor))
        FAIL(ERR_CONFIG, "%s: anchors (&) and aliases (*) are not read; write the value out, or "
                         "put it in quotes if it begins so", here(r));
    if (node && e->data.scalar.tag)
        FAIL(ERR_CONFIG, "%s: tags (!) are not read; write the plain value, or put it in quotes if "
                         "it begins so", here(r));
    if (e->type == YAML_SEQUENCE_START_EVENT && !r->list)
        FAIL(ERR_CONFIG, "%s: lists are not read here; write one value, or groups of keys",
             here(r));
    return ERR_OK;
}

/* A scalar's bytes, in the event until the next one. */
static enum err scalar(struct reader *r, const char **out)
{
    const char *s = (const char *)r->event.data.scalar.value;
    if (strlen(s) != r->event.data.scalar.length)
        FAIL(ERR_CONFIG, "%s: the text holds a NUL; write plain text", here(r));
    *out = s;
    return ERR_OK;
}

static enum err once(struct reader *r, int64_t slot, const char *what, const char *name)
{
    if (r->seen[slot])
        FAIL(ERR_CONFIG, "%s: %s %s is given twice in this file; keep one", here(r), what, name);
    r->seen[slot] = true;
    return ERR_OK;
}

/* Is the scalar at hand YAML's word for no value? */
static bool is_null(const struct reader *r, const char *s)
{
    return r->event.data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
           (strcmp(s, "~") == 0 || strcmp(s, "null") == 0);
}

/* The elements of a sequence as the text of a list, each in quotes; the event is at its start. */
static enum err read_elements(struct reader *r, const char *key, struct text *out)
{
    text_add(out, "[");
    for (const char *s;;) {
        TRY(next(r));
        if (r->event.type == YAML_SEQUENCE_END_EVENT)
            break;
        if (r->event.type != YAML_SCALAR_EVENT)
            FAIL(ERR_CONFIG, "%s: an element of %s is a group of keys here; write a list as [a, b]",
                 here(r), key);
        TRY(scalar(r, &s));
        if (is_null(r, s))
            FAIL(ERR_CONFIG, "%s: an element of %s is null; leave it out, or write it in quotes if "
                             "that is its name", here(r), key);
        text_add(out, "%s", out->len > 1 ? ", " : "");
        conf_quoted(s, out);
    }
    text_add(out, "]");
    return out->err;
}

/* key: value, with the event at the key. */
static enum err read_key(struct reader *r, const char *group)
{
    const char *s;
    char key[CONF_PLACE_MAX];
    if (r->event.type != YAML_SCALAR_EVENT)
        FAIL(ERR_CONFIG, "%s: a key of %s is not plain text; write `key: value`", here(r), group);
    TRY(scalar(r, &s));
    snprintf(key, sizeof key, "%s.%.200s", group, s);
    const struct conf_row *row = conf_find(r->t, key);
    const struct conf_retired *was = conf_retired_find(r->t, key);
    if (!row && !was)
        return conf_unknown(r->t, here(r), key);
    if (!row) {
        TRY(next(r));
        if (r->event.type != YAML_SCALAR_EVENT)
            return conf_pass_over(was, here(r), NULL);
        TRY(scalar(r, &s));
        return conf_pass_over(was, here(r), s);
    }
    TRY(once(r, row - r->t->row, "key", key));
    r->list = row->type == CONF_NAMES || row->type == CONF_INTS;
    enum err err = next(r);
    r->list = false;
    TRY(err);
    if (r->event.type == YAML_SEQUENCE_START_EVENT) {
        struct text list = {0};
        int64_t line = (int64_t)r->event.start_mark.line + 1;
        err = read_elements(r, key, &list);
        err = err ? err : conf_assign(r->t, row, r->conf, place(r, line), list.s);
        text_free(&list);
        return err;
    }
    if (r->event.type != YAML_SCALAR_EVENT)
        FAIL(ERR_CONFIG, "%s: %s is a group of keys here, wanted is one value; files have two "
                         "levels, group and key", here(r), key);
    TRY(scalar(r, &s));
    bool word = row->type == CONF_WORD && strcmp(s, "null") == 0; /* a device has this name */
    if (is_null(r, s) && !word)
        FAIL(ERR_CONFIG, "%s: %s is null; leave the key out for its default, or write \"\" for an "
                         "empty text", here(r), key);
    return conf_assign(r->t, row, r->conf, here(r), s);
}

/* A name at the left margin on that line, with the event behind it: of one value it is a key's. */
static enum err unknown_group(struct reader *r, const char *group, int64_t line)
{
    char name[CONF_PLACE_MAX];
    const struct conf_row *row = conf_find(r->t, group);
    bool key = r->event.type == YAML_SCALAR_EVENT && r->event.data.scalar.length > 0;
    if (row) /* "model.layers: 2" at the top */
        FAIL(ERR_CONFIG, "%s: write %s as two levels: %.*s, and below it, indented, %s",
             place(r, line), group, conf_group(group), group, group + conf_group(group) + 1);
    for (int i = 0; i < r->t->n; i++) /* "layers: 2" at the top */
        key = key || strcmp(r->t->row[i].key + conf_group(r->t->row[i].key) + 1, group) == 0;
    const struct conf_alias *alias = key ? NULL : conf_alias_of(r->t, group, true);
    if (key || (!alias && conf_alias_of(r->t, group, false)))
        return conf_unknown(r->t, place(r, line), group);
    if (alias)
        FAIL(ERR_CONFIG, "%s: there is no group %.100s; did you mean %s", place(r, line), group,
             alias->means);
    const char *near = conf_nearest_group(r->t, group, name);
    if (near)
        FAIL(ERR_CONFIG, "%s: there is no group %.100s; the nearest is %s", place(r, line), group,
             near);
    FAIL(ERR_CONFIG, "%s: there is no group %.100s; `plait help config` lists groups and keys",
         place(r, line), group);
}

/* group: { ... }, with the event at the group's name. */
static enum err read_group(struct reader *r)
{
    const char *s;
    char group[128];
    if (r->event.type != YAML_SCALAR_EVENT)
        FAIL(ERR_CONFIG, "%s: a group's name is not plain text", here(r));
    TRY(scalar(r, &s));
    int row = conf_group_row(r->t, s);
    int64_t line = (int64_t)r->event.start_mark.line + 1;
    snprintf(group, sizeof group, "%.*s", (int)sizeof group - 1, s);
    if (row >= 0)
        TRY(once(r, r->t->n + row, "group", group));
    enum err err = next(r);
    if (row < 0)
        return unknown_group(r, group, line);
    TRY(err);
    if (r->event.type == YAML_SCALAR_EVENT && r->event.data.scalar.length == 0)
        return ERR_OK; /* a group with all its keys commented out */
    if (r->event.type != YAML_MAPPING_START_EVENT)
        FAIL(ERR_CONFIG, "%s: %s is a group; its keys stand below it, indented", here(r), group);
    for (;;) {
        TRY(next(r));
        if (r->event.type == YAML_MAPPING_END_EVENT)
            return ERR_OK;
        TRY(read_key(r, group));
    }
}

static enum err read_stream(struct reader *r)
{
    TRY(next(r));
    ENSURE(r->event.type == YAML_STREAM_START_EVENT);
    TRY(next(r));
    if (r->event.type == YAML_STREAM_END_EVENT)
        return ERR_OK; /* empty, or nothing but comments */
    TRY(next(r));
    bool empty = r->event.type == YAML_SCALAR_EVENT && r->event.data.scalar.length == 0;
    if (!empty && r->event.type != YAML_MAPPING_START_EVENT)
        FAIL(ERR_CONFIG, "%s: the file is not made of groups of keys; `plait help config` shows "
                         "its form", here(r));
    while (!empty) {
        TRY(next(r));
        if (r->event.type == YAML_MAPPING_END_EVENT)
            break;
        TRY(read_group(r));
    }
    TRY(next(r)); /* document end */
    TRY(next(r));
    if (r->event.type != YAML_STREAM_END_EVENT)
        FAIL(ERR_CONFIG, "%s: a second document begins; a file has one", here(r));
    return ERR_OK;
}

enum err conf_read_text(const struct conf_table *t, void *conf, const char *name, const char *text,
                        int64_t n)
{
    struct reader r = {.t = t, .name = name, .text = text, .n = n};
    enum err err = ERR_OK;
    if (n > YAML_MAX_BYTES)
        FAIL(ERR_CONFIG, "%s: %lld bytes are too many for a configuration; at most %d are read",
             name, (long long)n, YAML_MAX_BYTES);
    TRY(text_begin(name, ERR_CONFIG, &r.text, &r.n)); /* libyaml is told the encoding */
    TRY_OR(out_memory, mem_new((int64_t)t->struct_size, 1, "a configuration", &r.conf));
    TRY_OR(out_memory, mem_new(2 * (int64_t)t->n, sizeof *r.seen, "the keys of a file", &r.seen));
    memcpy(r.conf, conf, t->struct_size);
    if (!yaml_parser_initialize(&r.parser)) {
        err = err_set(ERR_MEMORY, __FILE__, __LINE__, "memory: none left to read %s", name);
        goto out_memory;
    }
    yaml_parser_set_encoding(&r.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)r.text, (size_t)r.n);
    TRY_OR(out_parser, read_stream(&r));
    memcpy(conf, r.conf, t->struct_size);
out_parser:
    yaml_event_delete(&r.event);
    yaml_parser_delete(&r.parser);
out_memory:
    mem_free(r.seen);
    mem_free(r.conf);
    return err;
}

enum err conf_read_file(const struct conf_table *t, void *conf, const char *path)
{
    struct fs_map map;
    TRY(fs_map_open(&map, path, ERR_CONFIG));
    enum err err = conf_read_text(t, conf, path, map.data ? (const char *)map.data : "", map.size);
    fs_map_close(&map);
    return err;
}
