/* SPDX-License-Identifier: Apache-2.0
 *
 * The last member of an index is a hash of all bytes before it. It is looked at before anything is
 * read, so a bit that the disk or the wire has turned is found wherever it is, also in a text or a
 * number that would do as another one. It does not stand against who means harm: all rules of
 * reading come behind it.
 */
#include "ckpt/state_local.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

static void seal_of(const void *s, int64_t n, char out[STATE_SEAL + 1])
{
    snprintf(out, STATE_SEAL + 1, ",\n\"hash\":\"%016" PRIx64 "\"}\n", XXH3_64bits(s, (size_t)n));
}

void state_seal(struct text *t)
{
    char seal[STATE_SEAL + 1];
    if (t->err != ERR_OK)
        return;
    seal_of(t->s, t->len, seal);
    text_add(t, "%s", seal);
}

enum err state_seal_check(const char *path, const struct fs_map *m)
{
    char want[STATE_SEAL + 1];
    if (m->size < STATE_SEAL)
        FAIL(ERR_CHECKPOINT, "ckpt: %s has %" PRId64 " bytes, an index has more; it is cut or no "
                             "index of a checkpoint", path, m->size);
    const char *end = (const char *)m->data + m->size - STATE_SEAL;
    seal_of(m->data, m->size - STATE_SEAL, want);
    if (memcmp(end, want, STATE_SEAL) == 0)
        return ERR_OK;
    if (memcmp(end, want, 10) != 0 || memcmp(end + 26, want + 26, 3) != 0)
        FAIL(ERR_CHECKPOINT, "ckpt: %s does not end with the hash of what stands before; it is "
                             "cut, damaged or no index of a checkpoint", path);
    FAIL(ERR_CHECKPOINT, "ckpt: %s has the hash %.16s, it says %.16s; it is damaged", path,
         want + 10, end + 10);
}
