/* SPDX-License-Identifier: Apache-2.0
 *
 * Points that steer are refused by a table of ranges: C0 and C1 controls, the separators that end a
 * line, the marks that turn the direction of writing (Boucher and Anderson, "Trojan Source", 2021),
 * annotations, tags, and what Unicode says is no character. What is not seen has a table of its
 * own: it may stand in a path, and is shown as bytes in messages.
 */
#include "base/text.h"

#include <stdio.h>
#include <string.h>

int text_utf8(const uint8_t *s, int64_t n)
{
    uint8_t c = s[0];
    int length = c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
    if (length == 1)
        return 1;
    if (c < 0xc2 || c > 0xf4)
        return 0;
    /* The second byte excludes overlong forms, surrogates and what is above U+10FFFF. */
    uint8_t low = c == 0xe0 ? 0xa0 : c == 0xf0 ? 0x90 : 0x80;
    uint8_t high = c == 0xed ? 0x9f : c == 0xf4 ? 0x8f : 0xbf;
    for (int i = 1; i < length && i < n; i++, low = 0x80, high = 0xbf)
        if (s[i] < low || s[i] > high)
            return 0;
    return n < length ? -1 : length;
}

int printable_utf8(const char *text, uint32_t *point)
{
    const unsigned char *s = (const unsigned char *)text;
    int n = text_utf8(s, (int64_t)strnlen(text, 4));
    if (n < 1)
        return 0;
    *point = n == 1 ? s[0] : s[0] & (0x7fu >> n);
    for (int i = 1; i < n; i++)
        *point = *point << 6 | (s[i] & 0x3fu);
    return n;
}

static bool within(uint32_t c, const uint32_t (*range)[2], size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (c >= range[i][0] && c <= range[i][1])
            return true;
    return false;
}

bool printable_point(uint32_t c)
{
    static const uint32_t steering[][2] = {
        {0, 0x1f}, {0x7f, 0x9f}, {0x61c, 0x61c}, {0x200e, 0x200f}, {0x2028, 0x202e},
        {0x2060, 0x206f}, {0xfeff, 0xfeff}, {0xfff9, 0xfffb}, {0xe0000, 0xe007f},
    };
    if ((c & 0xfffe) == 0xfffe) /* no character, in each plane */
        return false;
    return !within(c, steering, sizeof steering / sizeof *steering);
}

bool printable_seen(uint32_t c)
{
    static const uint32_t unseen[][2] = {
        {0xa0, 0xa0}, {0xad, 0xad}, {0x34f, 0x34f}, {0x115f, 0x1160}, {0x1680, 0x1680},
        {0x17b4, 0x17b5}, {0x180b, 0x180f}, {0x2000, 0x200d}, {0x202f, 0x202f}, {0x205f, 0x205f},
        {0x2800, 0x2800}, {0x3000, 0x3000}, {0x3164, 0x3164}, {0xfe00, 0xfe0f}, {0xffa0, 0xffa0},
        {0x1d173, 0x1d17a}, {0xe0100, 0xe01ef},
    };
    return printable_point(c) && !within(c, unseen, sizeof unseen / sizeof *unseen);
}

void printable(const char *s, char *buf, size_t n)
{
    size_t used = 0;
    uint32_t c;
    while (*s) {
        int len = printable_utf8(s, &c);
        bool shown = len > 0 && printable_seen(c);
        int bytes = len > 0 ? len : 1;
        if (used + (size_t)(shown ? bytes : 4 * bytes) >= n)
            break;
        for (int i = 0; i < bytes; i++)
            used += (size_t)snprintf(buf + used, n - used, shown ? "%c" : "\\x%02x",
                                     (unsigned char)s[i]);
        s += bytes;
    }
    buf[used] = '\0';
}
