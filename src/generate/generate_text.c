/* SPDX-License-Identifier: Apache-2.0
 *
 * Tokens are bytes, and a character may be cut between two of them. So bytes are held until they
 * are a character; whoever shows or stores what is given on sees valid UTF-8 at any moment.
 */
#include "generate/generate.h"

#include <string.h>

/* One more byte: it ends a character, goes on with one, or shows that there is none. */
static void add(struct generate_text *t, uint8_t byte)
{
    t->held[t->n++] = byte;
    int bytes = text_utf8(t->held, t->n);
    if (bytes < 0)
        return;
    bool begins = bytes == 0 && t->n > 1; /* the byte is not of what is held, and may begin anew */
    t->give(t->arg, bytes > 0 ? (const char *)t->held : "\xef\xbf\xbd", bytes > 0 ? bytes : 3);
    t->n = 0;
    if (begins)
        add(t, byte);
}

void generate_text_add(struct generate_text *t, const char *bytes, int n)
{
    if (t->raw && n > 0)
        t->give(t->arg, bytes, n);
    for (int i = 0; i < n && !t->raw; i++)
        add(t, (uint8_t)bytes[i]);
}
