/* SPDX-License-Identifier: Apache-2.0
 *
 * A line begins with its step and its loss, in the words of metrics.c; these alone are read. It is
 * one object without others in it: a fragment with another line behind it is none.
 */
#include "folder/metrics_read.h"

#include "base/num.h"
#include "base/text.h"

#include <stdio.h>
#include <string.h>

/* Is that word next? Then it is passed. */
static bool pass(const char **at, const char *end, const char *word)
{
    int64_t n = (int64_t)strlen(word);
    bool is = end - *at >= n && memcmp(*at, word, (size_t)n) == 0;
    *at += is ? n : 0;
    return is;
}

/* What stands up to the next comma, or bracket. */
static bool pass_word(const char **at, const char *end, char out[40])
{
    const char *from = *at;
    while (*at < end && **at != ',' && **at != '}')
        (*at)++;
    bool good = *at < end && *at - from < 40;
    snprintf(out, 40, "%.*s", good ? (int)(*at - from) : 0, from);
    return good;
}

static void read_line(struct metrics_line *l)
{
    const char *at = l->at, *end = l->at + l->n;
    char step[40], loss[40];
    l->step = -1;
    l->loss = NAN;
    if (l->n < 2 || end[-1] != '}' || memchr(at + 1, '{', (size_t)l->n - 1) ||
        memchr(at, '\0', (size_t)l->n) || !pass(&at, end, "{\"step\": ") ||
        !pass_word(&at, end, step) || !text_to_int(step, &l->step) || l->step < 1) {
        l->step = -1;
        return;
    }
    l->valid = pass(&at, end, ", \"valid_loss\": ");
    if ((l->valid || pass(&at, end, ", \"loss\": ")) && pass_word(&at, end, loss) &&
        !text_to_double(loss, &l->loss))
        l->loss = NAN;
}

bool metrics_next(const char **at, const char *end, struct metrics_line *out)
{
    const char *next = *at < end ? memchr(*at, '\n', (size_t)(end - *at)) : NULL;
    if (!next)
        return false;
    *out = (struct metrics_line){.at = *at, .n = next - *at};
    read_line(out);
    *at = next + 1;
    return true;
}
