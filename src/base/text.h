/* SPDX-License-Identifier: Apache-2.0
 *
 * Growing strings, nearest words, and numbers as people read them.
 */
#ifndef PLAIT_BASE_TEXT_H
#define PLAIT_BASE_TEXT_H

#include "base/err.h"
#include <stdbool.h>
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
/* Append text from outside as a terminal may have it (below). */
void text_add_printable(struct text *t, const char *s);
/* Append `s` as a JSON string with its quotes: control characters escaped, what is no UTF-8 as
 * U+FFFD. */
void text_add_json(struct text *t, const char *s);
/* Give the string to the caller (mem_free), leave `t` empty. Errors: ERR_MEMORY. */
enum err text_done(struct text *t, char **out);
void text_free(struct text *t);

/* Of the candidates that were looked at, one after the other, the nearest to a word by edit
 * distance (insert, delete, replace, swap of neighbours; A is a) within max(2, length / 3) that
 * shares a letter with it; else the longest that it contains (three letters or digits and more,
 * signs passed over: Schedule1F1B has 1f1b in it); or NULL. Of equally near ones the first is
 * taken. Begins all zero. */
struct text_near {
    const char *found; /* borrowed */
    int score, letters; /* 1 + its distance, 0: none is so near; letters that the word contains */
};
void text_near(struct text_near *best, const char *word, const char *candidate);

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

/* ---- text from outside (printable.c) ----
 * What files, keys, values, paths and headers hold, on its way to a terminal. A byte that moves the
 * cursor, turns the direction of writing, is not seen or is no UTF-8 is shown as \xNN, so that what
 * a file holds cannot pass for what plait says, nor one key for another. err_set and log_line do
 * this to each message; tables and charts, whose lines end on purpose, ask for it word by word
 * (text_add_printable). */

/* Bytes of the UTF-8 character at s, of which n > 0 bytes are there, as RFC 3629 has it (nothing
 * overlong, no surrogates, nothing above U+10FFFF): 1 to 4; 0 when they begin none; -1 when they
 * are the beginning of one that needs more. */
int text_utf8(const uint8_t *s, int64_t n);
/* Bytes of the well-formed UTF-8 sequence at s, and its code point; 0: there is none. */
int printable_utf8(const char *s, uint32_t *point);
/* Is the code point shown by itself? Not controls, ends of lines and paragraphs, marks of
 * direction, byte order marks and what is no character. */
bool printable_point(uint32_t c);
/* Is it seen, too? Not what has no width, nor blanks that look like a space and are none. */
bool printable_seen(uint32_t c);
/* s into buf of n bytes (at least 1), cut where it is full. */
void printable(const char *s, char *buf, size_t n);

#endif
