/* SPDX-License-Identifier: Apache-2.0
 *
 * A word that is none is no error here: who has no use for it is not bothered with it, and a
 * configuration is made before it is known who has.
 */
#include "config/env.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void read_copies(struct env *e)
{
    const char *s = getenv("PLAIT_COPIES");
    e->no_copies = s && strcmp(s, "off") == 0;
    if (s && !e->no_copies && strcmp(s, "on") != 0)
        snprintf(e->copies_wrong, ENV_SAID, "PLAIT_COPIES is %.40s; use on or off", s);
}

static void read_attn_grad(struct env *e)
{
    static const char *const names[] = {"auto", "hopper", "cudnn", "own"};
    const char *s = getenv("PLAIT_ATTN_GRAD");
    for (int i = 0; s && i < (int)(sizeof names / sizeof *names); i++)
        if (strcmp(s, names[i]) == 0) {
            e->attn_grad = (enum dev_attn_grad)i;
            return;
        }
    if (s && *s)
        snprintf(e->attn_grad_wrong, ENV_SAID, "PLAIT_ATTN_GRAD %.40s is no way to take "
                 "attention's gradient; use auto, hopper, cudnn or own", s);
}

/* The first that is set. */
static void read_cache(struct env *e)
{
    static const struct { const char *name, *below; } places[] = {
        {"PLAIT_CACHE", ""}, {"XDG_CACHE_HOME", "/plait"}, {"HOME", "/.cache/plait"}};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        const char *s = getenv(places[i].name);
        if (!s || !*s)
            continue;
        if (snprintf(e->cache, ENV_PATH, "%s%s", s, places[i].below) >= ENV_PATH)
            snprintf(e->cache_wrong, ENV_SAID, "%s has a path of %zu bytes, and %d are kept; set "
                     "PLAIT_CACHE to a shorter one", places[i].name, strlen(s), ENV_PATH - 16);
        return;
    }
}

void env_read(struct env *out)
{
    *out = (struct env){.no_copies = false};
    read_copies(out);
    read_attn_grad(out);
    read_cache(out);
}

enum err env_check(const struct env *e, bool several)
{
    if (e->attn_grad_wrong[0])
        FAIL(ERR_CONFIG, "%s", e->attn_grad_wrong);
    if (e->cache_wrong[0])
        FAIL(ERR_CONFIG, "%s", e->cache_wrong);
    if (several && e->copies_wrong[0])
        FAIL(ERR_CONFIG, "%s", e->copies_wrong);
    return ERR_OK;
}
