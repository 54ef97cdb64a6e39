/* SPDX-License-Identifier: Apache-2.0
 *
 * Text from outside (files, keys, values, paths, headers) on its way to a terminal. A byte that
 * moves the cursor, turns the direction of writing, is not seen or is no UTF-8 is shown as \xNN, so
 * that what a file holds cannot pass for what plait says, nor one key for another. err_set and
 * log_line do this to each message; tables and charts, whose lines end on purpose, ask for it word
 * by word (text_add_printable).
 */
#ifndef PLAIT_BASE_PRINTABLE_H
#define PLAIT_BASE_PRINTABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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
