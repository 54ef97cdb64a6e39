/* SPDX-License-Identifier: Apache-2.0
 *
 * The one reader of numbers. A number is decimal digits with at most one point, a sign and an
 * exponent: hexadecimal, "inf", "nan", spaces, underscores and suffixes are none. A whole number is
 * one whose value is whole, however it is written (1e3, 2.50e2), and is read in integers, so that
 * no digit is lost; a real is the double nearest to it. What no int64_t or double holds (overflow,
 * or a number that is not 0 and would be read as 0) is refused and not bent to fit.
 */
#include "base/text.h"

#include "base/num.h"
#include <locale.h>
#include <math.h>
#include <stdlib.h>

enum { EXPONENT_MAX = 100000 }; /* of no double and no int64_t, with as many digits as a word has */

struct decimal {
    bool minus;
    const char *digit, *end; /* digits, with the point among them */
    int64_t exponent;        /* written one, within EXPONENT_MAX */
};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool split(const char *s, struct decimal *out)
{
    struct decimal d = {.minus = *s == '-'};
    int digits = 0, points = 0;
    s += *s == '-' || *s == '+';
    d.digit = s;
    for (; is_digit(*s) || (*s == '.' && points == 0); s++) {
        points += *s == '.';
        digits += *s != '.';
    }
    d.end = s;
    if (digits > 0 && (*s == 'e' || *s == 'E')) {
        s++;
        int64_t sign = *s == '-' ? -1 : 1;
        s += *s == '-' || *s == '+';
        if (!is_digit(*s))
            return false;
        for (; is_digit(*s); s++)
            d.exponent = num_min(EXPONENT_MAX, 10 * d.exponent + (*s - '0'));
        d.exponent *= sign;
    }
    *out = d;
    return digits > 0 && *s == '\0';
}

/* Is any digit other than 0? */
static bool is_nonzero(const struct decimal *d)
{
    for (const char *s = d->digit; s < d->end; s++)
        if (*s >= '1' && *s <= '9')
            return true;
    return false;
}

/* The first of the zeros that end the digits, and what power of ten the one before it has. */
static const char *last_digit(const struct decimal *d, int64_t *power)
{
    const char *point = d->end, *last = d->end;
    for (const char *s = d->digit; s < d->end; s++)
        point = *s == '.' ? s : point;
    while (last > d->digit && (last[-1] == '0' || last[-1] == '.'))
        last--;
    *power = d->exponent + (point - last) + (last > point ? 1 : 0);
    return last;
}

/* The magnitude grows downwards from 0, where int64_t reaches one further. */
static bool append(int64_t *v, int digit)
{
    if (*v < INT64_MIN / 10 || 10 * *v < INT64_MIN + digit)
        return false;
    *v = 10 * *v - digit;
    return true;
}

enum text_number text_read_int(const char *s, int64_t *out)
{
    struct decimal d;
    int64_t power, v = 0;
    if (!split(s, &d))
        return TEXT_NO_NUMBER;
    const char *last = last_digit(&d, &power);
    if (is_nonzero(&d)) {
        if (power < 0)
            return TEXT_NOT_WHOLE;
        for (const char *at = d.digit; at < last; at++)
            if (*at != '.' && !append(&v, *at - '0'))
                return TEXT_TOO_LARGE;
        for (; power > 0; power--)
            if (!append(&v, 0))
                return TEXT_TOO_LARGE;
        if (!d.minus && v == INT64_MIN)
            return TEXT_TOO_LARGE;
    }
    *out = d.minus ? v : -v;
    return TEXT_NUMBER;
}

enum text_number text_read_real(const char *s, double *out)
{
    struct decimal d;
    if (!split(s, &d))
        return TEXT_NO_NUMBER;
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0); /* a program may have set another */
    double v = c ? strtod_l(s, NULL, c) : strtod(s, NULL);
    if (c)
        freelocale(c);
    if (!isfinite(v))
        return TEXT_TOO_LARGE;
    if (v == 0 && is_nonzero(&d))
        return TEXT_TOO_SMALL;
    *out = v;
    return TEXT_NUMBER;
}

const char *text_number_fault(enum text_number n)
{
    static const char *const fault[] = {
        [TEXT_NUMBER] = "", [TEXT_NO_NUMBER] = "",
        [TEXT_NOT_WHOLE] = ", which is not whole",
        [TEXT_TOO_LARGE] = ", which is larger than any number kept here",
        [TEXT_TOO_SMALL] = ", which is not 0 and too small to be kept",
    };
    return fault[n];
}

bool text_to_int(const char *s, int64_t *out)
{
    return text_read_int(s, out) == TEXT_NUMBER;
}

bool text_to_double(const char *s, double *out)
{
    return text_read_real(s, out) == TEXT_NUMBER;
}
