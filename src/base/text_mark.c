/* SPDX-License-Identifier: Apache-2.0
 *
 * Byte order marks, by one rule for all texts that are read: that of UTF-8 says nothing, and a text
 * with one of another encoding is none that can be read. The mark of UTF-32 in little-endian order
 * begins with that of UTF-16.
 */
#include "base/text.h"

#include <string.h>

static bool begins(const char *text, int64_t n, const char *mark, int bytes)
{
    return n >= bytes && memcmp(text, mark, (size_t)bytes) == 0;
}

enum err text_begin(const char *name, enum err code, const char **text, int64_t *n)
{
    static const struct { const char *mark; int bytes; const char *of; } other[] = {
        {"\xff\xfe\0\0", 4, "UTF-32"}, {"\0\0\xfe\xff", 4, "UTF-32"},
        {"\xff\xfe", 2, "UTF-16"}, {"\xfe\xff", 2, "UTF-16"}};
    for (size_t i = 0; i < sizeof other / sizeof *other; i++)
        if (begins(*text, *n, other[i].mark, other[i].bytes))
            FAIL(code, "%s begins with the byte order mark of %s; save it as UTF-8", name,
                 other[i].of);
    if (begins(*text, *n, "\xef\xbb\xbf", 3)) {
        *text += 3;
        *n -= 3;
    }
    return ERR_OK;
}
