/* SPDX-License-Identifier: Apache-2.0
 *
 * One option table makes the parser, the help, the checks of type and range, and the documentation.
 * A configuration is a C struct; a row says where in it a key lives. Sources, in order: defaults,
 * a YAML file (two levels: group, then key), key=value words of the command line.
 *
 * Errors name file and line (or the command-line word), key, value, rule, and the nearest legal
 * value or key. A key given twice in one file is an error. All errors are ERR_CONFIG.
 */
#ifndef PLAIT_BASE_CONF_H
#define PLAIT_BASE_CONF_H

#include "base/err.h"
#include "base/text.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum conf_type { CONF_INT, CONF_REAL, CONF_BOOL, CONF_WORD, CONF_STRING, CONF_NAMES, CONF_INTS };
enum { CONF_STRING_MAX = 4096, CONF_WORD_BITS = 8, CONF_WORD_MOST = 1 << 20 };

/* Of a WORD's int: which it is; the number behind it, 0: it takes none. */
static inline int conf_word_index(int word)
{
    return word & ((1 << CONF_WORD_BITS) - 1);
}
static inline int conf_word_number(int word)
{
    return word >> CONF_WORD_BITS;
}

/* Lists, of at most CONF_LIST_MAX elements, none of them empty: of names, the n texts one behind
 * the other, each with the 0 at its end, and of whole numbers. What is not used is zero. */
enum { CONF_LIST_MAX = 256, CONF_NAMES_BYTES = 4096 };
struct conf_names {
    int64_t n;
    char text[CONF_NAMES_BYTES];
};
struct conf_ints {
    int64_t n, v[CONF_LIST_MAX];
};
/* Element i < n, borrowed. */
const char *conf_name(const struct conf_names *list, int64_t i);

struct conf_row {
    const char *key; /* "model.layers" */
    enum conf_type type;
    size_t offset;       /* CONF_INT int64_t; REAL double; BOOL bool; WORD int (index into words);
                            STRING char[size] of the struct; NAMES, INTS conf_names, conf_ints */
    size_t size;         /* bytes of the field */
    const char *preset;  /* default, as text; "" for an empty string, [] for an empty list */
    double min, max;     /* INT, REAL, each of INTS: legal range, both ends included */
    const char *words;   /* WORD: "gpt|llama"; one that ends in :K takes a whole number, 1 to
                            CONF_WORD_MOST, in its place (conf_word_number) */
    const char *help;    /* one sentence, lower case, unit in brackets */
};

/* Words that are not a row's, though users know the thing by them. A letter's distance from a legal
 * word says nothing about these: gpu is nearer to cpu than to cuda. */
struct conf_hint {
    const char *key;   /* of a row of words */
    const char *words; /* "gpu|nvidia", in any case; none is legal */
    const char *means; /* the row's word for it, or NULL: it has none */
    const char *why;   /* then a clause about it; NULL otherwise */
};

/* Keys of other programs. Any group may stand before a name, and - is as good as _. */
struct conf_alias {
    const char *names; /* "learning_rate|max_lr"; none is the name of a row without its group. Of a
                          key and of a group in two rows */
    const char *means; /* the row's key, or the group for a group's name; NULL: no key does that */
    const char *how;   /* a clause: how its value differs, or what to do instead; NULL: none */
};

/* A key that there is no more, and that changed no number. Old configurations have it, since they
 * are written with all keys: it is passed over, with a warning unless its value asked for nothing.
 */
struct conf_retired {
    const char *key;
    const char *values; /* "false|no", that asked for nothing; NULL: any */
    const char *why;    /* a clause: what is done instead; NULL with any value */
};

struct conf_table {
    const struct conf_row *row;
    int n;
    size_t struct_size;
    size_t given; /* offset of a bool[n]: a file or word has set the row's key; 0: not kept */
    const struct conf_hint *hint; /* NULL: none */
    int hints;
    const struct conf_alias *alias; /* names NULL ends it; NULL: none */
    const struct conf_retired *retired; /* key NULL ends it; NULL: none */
};

/* All rows to their defaults. Local. */
enum err conf_defaults(const struct conf_table *t, void *conf);
/* Read a YAML file. Anchors, tags, multiple documents, and sequences but for lists are refused. */
enum err conf_read_file(const struct conf_table *t, void *conf, const char *path);
/* As conf_read_file from memory; `name` stands in messages. */
enum err conf_read_text(const struct conf_table *t, void *conf, const char *name, const char *text,
                        int64_t n);
/* "key=value" as given on a command line; of a list key=a,b or key=[a, b]. */
enum err conf_set(const struct conf_table *t, void *conf, const char *word);
/* The same of a word made of what another place says; `place` stands in messages. */
enum err conf_set_from(const struct conf_table *t, void *conf, const char *place, const char *word);
/* The value of one key as text, strings without quotes. Errors: ERR_CONFIG with the nearest key. */
enum err conf_get(const struct conf_table *t, const void *conf, const char *key, struct text *out);
/* The configuration as YAML that reads back to the same struct. */
void conf_print(const struct conf_table *t, const void *conf, struct text *out);
/* A help page: key, type, default, range, sentence; one group after another. */
void conf_help(const struct conf_table *t, struct text *out);
/* The same as a Markdown table (docs/configuration.md is made by it). */
void conf_markdown(const struct conf_table *t, struct text *out);
/* The rows that a word means, with a heading, as conf_help shows them but under their whole keys:
 * the key, the keys of that name in any group, or a group's. Another program's name for them is
 * answered with the rows of the one here, or with what to do instead. Errors: ERR_CONFIG when it
 * means none, with the nearest key. */
enum err conf_explain(const struct conf_table *t, const char *word, struct text *out);
/* The key that a word most likely meant, or NULL: the name in another group, another program's name
 * for it, or the nearest by its letters. */
const char *conf_nearest(const struct conf_table *t, const char *word);
/* Has a file or word set it, be it to its default? Of a key that there is, in a table that keeps
 * it. */
bool conf_given(const struct conf_table *t, const void *conf, const char *key);
/* Row by key or NULL. */
const struct conf_row *conf_find(const struct conf_table *t, const char *key);

#endif
