/* SPDX-License-Identifier: Apache-2.0
 *
 * A sample of tokens as the T + 1 that the file has: inputs and targets say the same.
 */
#ifndef PLAIT_TEST_DATA_SAMPLE_H
#define PLAIT_TEST_DATA_SAMPLE_H

#include "data/data.h"
#include "test.h"

#include <string.h>

enum { SAMPLE_MOST = 1 << 16 };

/* Both halves of a sample into out[T + 1]; seed NULL: sample `index` in the file's order. */
static inline enum err sample_of(const struct data_set *d, const uint64_t *seed, int64_t index,
                                 int32_t *out)
{
    static int32_t target[SAMPLE_MOST];
    CHECK(d->inputs == d->targets && d->targets <= SAMPLE_MOST);
    TRY(seed ? data_sample(d, *seed, index, out, target)
             : data_sample_plain(d, index, out, target));
    CHECK(memcmp(out + 1, target, (size_t)(d->targets - 1) * sizeof *out) == 0);
    out[d->targets] = target[d->targets - 1];
    return ERR_OK;
}

static inline enum err sample_plain(const struct data_set *d, int64_t s, int32_t *out)
{
    return sample_of(d, NULL, s, out);
}

static inline enum err open_tokens(const char *path, int64_t seq, int64_t vocab, bool check,
                                   struct data_set *out)
{
    return data_open(path, &(struct data_want){.seq = seq, .vocab = vocab}, check, out);
}

#endif
