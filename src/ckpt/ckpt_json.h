/* SPDX-License-Identifier: Apache-2.0
 *
 * JSON of files from outside, one member at a time. cJSON builds a tree of about 100 bytes a value,
 * which a hostile header of 100 MB could turn into gigabytes; so objects are walked here, without
 * recursion and without memory, and cJSON gets one small member after another.
 */
#ifndef PLAIT_CKPT_CKPT_JSON_H
#define PLAIT_CKPT_CKPT_JSON_H

#include "base/fs.h"

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdint.h>

/* A piece of JSON text, not terminated. */
struct ckpt_json_text {
    const char *s;
    int64_t n; /* bytes */
};

/* A walk over the members of one object, or the items of one list, that is the whole of a text,
 * spaces behind it allowed. Set the first three, leave the rest zero. */
struct ckpt_json {
    struct ckpt_json_text of; /* borrowed */
    int depth_max;            /* nesting allowed within a value */
    bool list;
    int64_t at;               /* bytes */
    struct ckpt_json_text key, value; /* key with its quotes, of a list none */
    const char *why;          /* what is wrong at byte `at`; NULL: nothing so far */
};
/* The next member or item; false: there is none, or something is wrong. Strings are checked
 * (escapes, control characters, no NUL), brackets are counted; whether a bracketed value is JSON
 * within is left to ckpt_json_parse. */
bool ckpt_json_next(struct ckpt_json *w);

/* How many of the n bytes are UTF-8 (text_utf8): n when all are, else where the first bad character
 * begins. */
int64_t ckpt_json_utf8(const uint8_t *s, int64_t n);

/* The text of a file, behind the mark of a byte order if it has one. Errors: ERR_CHECKPOINT for
 * what is no UTF-8. */
enum err ckpt_json_text(const char *path, const struct fs_map *m, struct ckpt_json_text *out);

/* Tree of one value that ckpt_json_next gave; NULL when it is not JSON or there is no memory.
 * Released by cJSON_Delete. */
cJSON *ckpt_json_parse(struct ckpt_json_text t);

/* Is it a string of at most size - 1 bytes without control characters? */
bool ckpt_json_plain(const cJSON *v, int64_t size);
/* The characters of such a string that a walk gave, in little memory; false: it is none. */
bool ckpt_json_word(struct ckpt_json_text t, char *out, int64_t size);
/* Is it this word, in quotes and without escapes? And these very characters? */
bool ckpt_json_is(struct ckpt_json_text t, const char *word);
bool ckpt_json_same(struct ckpt_json_text t, const char *s);

/* A text that stands twice among n, the first of which is at `first` and the others `stride` bytes
 * apart; NULL: none. Errors: ERR_MEMORY. */
enum err ckpt_json_twice(const char *first, int n, size_t stride, const char **out);

/* The characters of a string (mem_free); NULL: it is none. Errors: ERR_MEMORY. */
enum err ckpt_json_string(struct ckpt_json_text t, char **out);

/* A number that is a whole one below 2^53 and not below 0 (what a double holds exactly). */
bool ckpt_json_int(const cJSON *v, int64_t *out);

#endif
