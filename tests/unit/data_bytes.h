/* SPDX-License-Identifier: Apache-2.0
 *
 * Bytes of a data file as docs/data-format.md says, written apart from what src/data writes.
 */
#ifndef PLAIT_TEST_DATA_BYTES_H
#define PLAIT_TEST_DATA_BYTES_H

#include "data/data_file.h"

static inline void put_le(uint8_t *to, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++)
        to[i] = (uint8_t)(v >> (8 * i));
}

/* The header's own hash, right again. */
static inline void put_sum(uint8_t *file)
{
    put_le(file + 120, data_hash(file, 120), 8);
}

#endif
