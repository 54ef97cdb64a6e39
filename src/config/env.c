/* SPDX-License-Identifier: Apache-2.0
 *
 * A word that is none is no error here: who has no use for it is not bothered with it, and a
 * configuration is made before it is known who has.
 */
#include "config/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void env_read(struct env *out)
{
    static const char *const grads[] = {"auto", "hopper", "cudnn", "own"};
    static const struct { const char *name, *below; } places[] = {
        {"PLAIT_CACHE", ""}, {"XDG_CACHE_HOME", "/plait"}, {"HOME", "/.cache/plait"}};
    enum { GRADS = sizeof grads / sizeof *grads };
    const char *copies = getenv("PLAIT_COPIES"), *grad = getenv("PLAIT_ATTN_GRAD"), *cache = NULL;
    int way = 0;
    *out = (struct env){.no_copies = copies && strcmp(copies, "off") == 0};
    if (copies && !out->no_copies && strcmp(copies, "on") != 0)
        snprintf(out->copies_wrong, ENV_SAID, "PLAIT_COPIES is %.40s; use on or off", copies);
    while (grad && way < GRADS && strcmp(grad, grads[way]) != 0)
        way++;
    if (way < GRADS)
        out->attn_grad = (enum dev_attn_grad)way;
    else if (*grad)
        snprintf(out->attn_grad_wrong, ENV_SAID, "PLAIT_ATTN_GRAD %.40s is no way to take "
                 "attention's gradient; use auto, hopper, cudnn or own", grad);
    for (size_t i = 0; i < sizeof places / sizeof *places && !(cache && *cache); i++) {
        cache = getenv(places[i].name); /* the first that is set */
        if (cache && *cache &&
            snprintf(out->cache, ENV_PATH, "%s%s", cache, places[i].below) >= ENV_PATH)
            snprintf(out->cache_wrong, ENV_SAID, "%s has a path of %zu bytes, and %d are kept; set "
                     "PLAIT_CACHE to a shorter one", places[i].name, strlen(cache), ENV_PATH - 16);
    }
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
