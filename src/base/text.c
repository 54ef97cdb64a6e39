/* SPDX-License-Identifier: Apache-2.0
 *
 * A growing string doubles its room, so a page of n bytes costs O(n). An error of memory stays in
 * the string and makes later appends do nothing; text_done hands it out once.
 *
 * Nearness of words is the optimal string alignment distance: insertions, deletions, replacements
 * and swaps of neighbours cost one each (Damerau, "A technique for computer detection and
 * correction of spelling errors", 1964). Three rows of the table are enough for swaps. Words
 * longer than WORD_MAX are nobody's typing slip and are near to nothing.
 */
#include "base/text.h"

#include "base/mem.h"
#include "base/num.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORD_MAX = 128 };

/* Room for `more` bytes and the terminator. */
static bool reserve(struct text *t, int64_t more)
{
    int64_t need;
    if (t->err != ERR_OK)
        return false;
    if (!num_add(t->len, more, &need) || !num_add(need, 1, &need)) {
        t->err = err_set(ERR_MEMORY, __FILE__, __LINE__, "memory: a text is longer than 64 bits");
        return false;
    }
    if (need <= t->cap)
        return true;
    int64_t cap = num_max(256, t->cap);
    while (cap < need)
        if (!num_mul(cap, 2, &cap))
            cap = need;
    t->err = mem_grow(t->cap, cap, 1, "a text", &t->s);
    if (t->err != ERR_OK)
        return false;
    t->cap = cap;
    return true;
}

void text_add(struct text *t, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    ENSURE(n >= 0);
    if (!reserve(t, n))
        return;
    va_start(ap, fmt);
    vsnprintf(t->s + t->len, (size_t)n + 1, fmt, ap);
    va_end(ap);
    t->len += n;
}

void text_add_char(struct text *t, char c, int64_t times)
{
    if (times <= 0 || !reserve(t, times))
        return;
    memset(t->s + t->len, c, (size_t)times);
    t->len += times;
    t->s[t->len] = '\0';
}

void text_add_printable(struct text *t, const char *s)
{
    int64_t most = 4 * (int64_t)strlen(s); /* each byte as \\xNN */
    if (!reserve(t, most))
        return;
    printable(s, t->s + t->len, (size_t)most + 1);
    t->len += (int64_t)strlen(t->s + t->len);
}

void text_add_json(struct text *t, const char *s)
{
    static const char named[] = "\"\\\n\t\r", name[] = "\"\\ntr";
    text_add_char(t, '"', 1);
    for (int n; *s; s += n) {
        unsigned char c = (unsigned char)*s;
        const char *escape = strchr(named, c);
        n = text_utf8((const uint8_t *)s, (int64_t)strnlen(s, 4));
        if (n <= 0)
            text_add(t, "\xef\xbf\xbd"), n = 1;
        else if (escape)
            text_add(t, "\\%c", name[escape - named]);
        else if (c < 0x20 || c == 0x7f)
            text_add(t, "\\u%04x", c);
        else
            text_add(t, "%.*s", n, s);
    }
    text_add_char(t, '"', 1);
}

enum err text_done(struct text *t, char **out)
{
    if (t->err == ERR_OK)
        reserve(t, 0); /* an empty text is a string too */
    enum err err = t->err;
    if (err == ERR_OK) {
        *out = t->s;
        t->s = NULL;
    }
    text_free(t);
    return err;
}

void text_free(struct text *t)
{
    mem_free(t->s);
    *t = (struct text){0};
}

#define ALNUM "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

static char small(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

/* Edit distance of two words of at most WORD_MAX bytes, in any case. */
static int distance(const char *a, int n, const char *b, int m)
{
    int row[3][WORD_MAX + 1];
    for (int j = 0; j <= m; j++)
        row[0][j] = j;
    for (int i = 1; i <= n; i++) {
        const int *above2 = row[(i + 1) % 3], *above = row[(i - 1) % 3];
        int *here = row[i % 3];
        here[0] = i;
        for (int j = 1; j <= m; j++) {
            int best = above[j - 1] + (small(a[i - 1]) != small(b[j - 1]));
            best = above[j] + 1 < best ? above[j] + 1 : best;
            best = here[j - 1] + 1 < best ? here[j - 1] + 1 : best;
            bool swap = i > 1 && j > 1 && small(a[i - 1]) == small(b[j - 2]) &&
                        small(a[i - 2]) == small(b[j - 1]);
            if (swap && above2[j - 2] + 1 < best)
                best = above2[j - 2] + 1;
            here[j] = best;
        }
    }
    return row[n % 3][m];
}

/* How many letters and digits of `part` there are, if they stand within those of `word` in one
 * piece, in any case; else 0. Signs between are passed over, as in Schedule_ZBV of zb-v. */
static int within(const char *word, const char *part)
{
    for (; *word; word++) {
        const char *a = word, *b = part;
        int same = 0;
        for (;;) {
            a += strcspn(a, ALNUM);
            b += strcspn(b, ALNUM);
            if (!*b)
                return same;
            if (small(*a) != small(*b))
                break;
            same++;
            a++;
            b++;
        }
    }
    return 0;
}

void text_near(struct text_near *best, const char *word, const char *candidate)
{
    int64_t n = (int64_t)strlen(word), m = (int64_t)strlen(candidate);
    if (n == 0 || n > WORD_MAX)
        return;
    /* Of equals the first stays. */
    int64_t limit = best->score ? best->score - 2 : num_max(2, n / 3);
    int d = m <= WORD_MAX ? distance(word, (int)n, candidate, (int)m) : WORD_MAX;
    int letters = best->score ? 0 : within(word, candidate);
    if (d <= limit && d < num_max(n, m)) /* no letter in common is no nearness */
        *best = (struct text_near){candidate, d + 1, 0};
    else if (letters > num_max(2, best->letters))
        *best = (struct text_near){candidate, 0, letters};
}

const char *text_plural(int64_t n, const char *ending)
{
    return n == 1 ? "" : ending;
}

const char *text_bytes(int64_t bytes, char buf[32])
{
    static const char *const unit[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double v = (double)bytes;
    int u = -1;
    while (fabs(v) >= 1023.95 && u < 5) { /* so that nothing prints as 1024.0 */
        v /= 1024.0;
        u++;
    }
    if (u < 0)
        snprintf(buf, 32, "%lld B", (long long)bytes);
    else
        snprintf(buf, 32, "%.1f %s", v, unit[u]);
    return buf;
}

const char *text_count(int64_t n, char buf[32])
{
    static const char unit[] = {'K', 'M', 'B', 'T'};
    double v = (double)n;
    int u = -1;
    if (n > -10000 && n < 10000) {
        snprintf(buf, 32, "%lld", (long long)n);
        return buf;
    }
    while (fabs(v) >= 999.95 && u < 3) {
        v /= 1000.0;
        u++;
    }
    snprintf(buf, 32, "%.1f%c", v, unit[u]);
    return buf;
}

const char *text_seconds(double s, char buf[32])
{
    if (!(s >= 0) || s > 1e9) {
        snprintf(buf, 32, "?");
    } else if (s < 0.9995) {
        snprintf(buf, 32, "%.0f ms", s * 1e3);
    } else if (s < 59.95) {
        snprintf(buf, 32, "%.1f s", s);
    } else {
        int64_t whole = (int64_t)(s + 0.5);
        if (whole < 3600)
            snprintf(buf, 32, "%lld m %02lld s", (long long)(whole / 60), (long long)(whole % 60));
        else
            snprintf(buf, 32, "%lld h %02lld m", (long long)(whole / 3600),
                     (long long)(whole / 60 % 60));
    }
    return buf;
}

const char *text_real(double v, int digits, char buf[32])
{
    for (; digits <= 17; digits++) {
        snprintf(buf, 32, "%.*g", digits, v);
        if (strtod(buf, NULL) == v)
            break;
    }
    return buf;
}

const char *text_json_real(double v, char buf[32])
{
    return isfinite(v) ? text_real(v, 15, buf) : "null";
}

/* The mark of UTF-8 says nothing, and a text with one of another encoding is none that can be read.
 * That of UTF-32 in little-endian order begins with that of UTF-16. */
enum err text_begin(const char *name, enum err code, const char **text, int64_t *n)
{
    static const struct { const char *mark; int bytes; const char *of; } other[] = {
        {"\xff\xfe\0\0", 4, "UTF-32"}, {"\0\0\xfe\xff", 4, "UTF-32"},
        {"\xff\xfe", 2, "UTF-16"}, {"\xfe\xff", 2, "UTF-16"}};
    for (size_t i = 0; i < sizeof other / sizeof *other; i++)
        if (*n >= other[i].bytes && memcmp(*text, other[i].mark, (size_t)other[i].bytes) == 0)
            FAIL(code, "%s begins with the byte order mark of %s; save it as UTF-8", name,
                 other[i].of);
    if (*n >= 3 && memcmp(*text, "\xef\xbb\xbf", 3) == 0) {
        *text += 3;
        *n -= 3;
    }
    return ERR_OK;
}
