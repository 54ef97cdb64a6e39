/* SPDX-License-Identifier: Apache-2.0
 *
 * One message and one trail per thread. The message is formatted where the error is first known
 * and is never reformatted on its way up, so that it is said once and in one voice. Whatever text
 * from outside it quotes is made printable here, once for all messages.
 */
#include "base/err.h"

#include "base/text.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static _Thread_local char text[ERR_TEXT];
static _Thread_local char trail[ERR_TRAIL];

enum err err_set(enum err code, const char *file, int line, const char *fmt, ...)
{
    char made[ERR_TEXT]; /* the arguments may point into `text` */
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(made, sizeof made, fmt, ap);
    va_end(ap);
    printable(made, text, sizeof text);
    trail[0] = '\0';
    err_trail(file, line);
    return code;
}

void err_trail(const char *file, int line)
{
    size_t used = strlen(trail);
    const char *base = strrchr(file, '/');
    base = base ? base + 1 : file;
    if (used + strlen(base) + 16 < ERR_TRAIL)
        snprintf(trail + used, ERR_TRAIL - used, "%s%s:%d", used ? " < " : "", base, line);
}

const char *err_text(void)
{
    return text;
}

const char *err_bare(const char *from)
{
    size_t n = strspn(from, "abcdefghijklmnopqrstuvwxyz");
    return n > 0 && strncmp(from + n, ": ", 2) == 0 ? from + n + 2 : from;
}

const char *err_trace(void)
{
    return trail;
}

enum err err_adopt(enum err code, const char *from)
{
    char kept[ERR_TEXT];
    snprintf(kept, sizeof kept, "%s", from); /* `from` may be `text` */
    printable(kept, text, sizeof text);
    trail[0] = '\0';
    return code;
}

void err_keep(struct err_kept *k, enum err code)
{
    k->code = code;
    memcpy(k->text, text, sizeof text);
    memcpy(k->trail, trail, sizeof trail);
}

enum err err_again(const struct err_kept *k)
{
    memcpy(text, k->text, sizeof text);
    memcpy(trail, k->trail, sizeof trail);
    return k->code;
}

void err_bug(const char *file, int line, const char *what)
{
    fprintf(stderr, "plait: bug at %s:%d: %s does not hold\n", file, line, what);
    abort();
}

void err_leave(enum err code)
{
    _exit((int)code);
}
