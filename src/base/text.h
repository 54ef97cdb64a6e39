/* SPDX-License-Identifier: Apache-2.0
 *
 * Growing strings, nearest words, and numbers as people read them.
 */
#ifndef PLAIT_BASE_TEXT_H
#define PLAIT_BASE_TEXT_H

#include "base/err.h"
#include <stddef.h>
#include <stdint.h>

/* A growing string. Appending never fails at the call: out of memory is kept in `err` and given by
 * text_done, so that a page of output needs one check. */
struct text {
    char *s; /* owned; always terminated once something was appended */
    int64_t len, cap;
    enum err err;
};
void text_add(struct text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void text_add_char(struct text *t, char c, int64_t times);
/* Append text from outside as a terminal may have it (printable.h). */
void text_add_printable(struct text *t, const char *s);
/* Append `s` as a JSON string with its quotes: control characters escaped, what is no UTF-8 as
 * U+FFFD. */
void text_add_json(struct text *t, const char *s);
/* Give the string to the caller (mem_free), leave `t` empty. Errors: ERR_MEMORY. */
enum err text_done(struct text *t, char **out);
void text_free(struct text *t);

/* The candidate nearest to `word` by edit distance (insert, delete, replace, swap of neighbours; A
 * is a) within max(2, length / 3) that shares a letter with it; else the longest that it contains
 * (three letters or digits and more, signs passed over: Schedule1F1B has 1f1b in it); or NULL.
 * `get(i)` gives candidate i of n; of equally near ones the first is taken. */
const char *text_nearest(const char *word, int n, const char *(*get)(const void *arg, int i),
                         const void *arg);

/* "1.5 GiB", "812 B": into buf, which is returned. */
const char *text_bytes(int64_t bytes, char buf[32]);
/* "124.4M", "1.5B", "512": counts. */
const char *text_count(int64_t n, char buf[32]);
/* "2 m 05 s", "3.2 s", "1 h 12 m": seconds. */
const char *text_seconds(double s, char buf[32]);

/* A real in the fewest significant digits, `digits` at least, that read back as the same number: up
 * to 17, of which one that is not finite takes all. */
const char *text_real(double v, int digits, char buf[32]);
/* A real as JSON has it, with all its digits (15 to 17 significant ones, as many as read back as
 * the same number); null where it is not finite. */
const char *text_json_real(double v, char buf[32]);

/* The ending of a word for n of its things: "" for one, else `ending` ("s", "es"). */
const char *text_plural(int64_t n, const char *ending);

/* Bytes of the UTF-8 character at s, of which n > 0 bytes are there, as RFC 3629 has it (nothing
 * overlong, no surrogates, nothing above U+10FFFF): 1 to 4; 0 when they begin none; -1 when they
 * are the beginning of one that needs more. (printable.c) */
int text_utf8(const uint8_t *s, int64_t n);

/* Passes over the byte order mark of a text in UTF-8, which editors put there. `name` is in the
 * message. Errors: `code`, where the mark is one of UTF-16 or UTF-32. */
enum err text_begin(const char *name, enum err code, const char **text, int64_t *n);

/* Strict numbers (text_number.c): the whole string must be one, and the number is read as it is or
 * not at all. A whole number may have a point and an exponent (1e3); a real is finite, and is 0
 * only where 0 is written. */
enum text_number { TEXT_NUMBER, TEXT_NO_NUMBER, TEXT_NOT_WHOLE, TEXT_TOO_LARGE, TEXT_TOO_SMALL };
enum text_number text_read_int(const char *s, int64_t *out);
enum text_number text_read_real(const char *s, double *out);
/* A clause for a message that quotes the number, ", which is not whole"; "" when it is none. */
const char *text_number_fault(enum text_number n);
bool text_to_int(const char *s, int64_t *out);
bool text_to_double(const char *s, double *out);

#endif
