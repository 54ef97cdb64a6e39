/* SPDX-License-Identifier: Apache-2.0
 *
 * Layers have the names that their parameters begin with: embed, layers.3.attn, layers.3.mlp, head;
 * layers.3 is the first of its block. A stage begins at each that parallel.split has, the first one
 * at the first layer. Names stand in the model's order, so they are found in one walk over it.
 */
#include "setup/setup.h"

#include <stdio.h>
#include <string.h>

enum { NAME = MODEL_NAME_MAX };

static void name_of(const struct model *a, int64_t at, char out[NAME])
{
    struct layer l = model_layer(a, at);
    model_layer_name(&l, out);
}

static bool is_named(const struct model *a, int64_t layer, const char *name)
{
    char its[NAME], before[NAME] = "";
    size_t n = strlen(name);
    name_of(a, layer, its);
    if (layer > 0)
        name_of(a, layer - 1, before);
    bool first = strncmp(its, name, n) == 0 && its[n] == '.' && strncmp(before, its, n + 1) != 0;
    return strcmp(its, name) == 0 || (first && strncmp(name, "layers.", 7) == 0);
}

/* The first layer from `from` on of that name; model_layers: there is none. */
static int64_t find(const struct model *a, int64_t from, const char *name)
{
    while (from < model_layers(a) && !is_named(a, from, name))
        from++;
    return from;
}

/* The last block's for one beyond it, else the nearest by its letters. */
static void find_nearest(const struct model *a, const char *name, char out[NAME])
{
    char its[NAME];
    struct text_near near = {0};
    int64_t n = model_layers(a);
    size_t digits = strncmp(name, "layers.", 7) == 0 ? strspn(name + 7, "0123456789") : 0;
    if (digits > 0) {
        snprintf(out, NAME, "layers.%lld%.8s", (long long)a->layers - 1, name + 7 + digits);
        if (find(a, 0, out) < n)
            return;
    }
    name_of(a, n - 2, out);
    for (int64_t i = 0; i < n; i++) {
        name_of(a, i, its);
        text_near(&near, name, its);
        if (near.found == its)
            near.found = memcpy(out, its, NAME);
    }
}

static enum err refuse_unknown(const struct model *a, const char *name)
{
    char near[NAME], first[NAME], last[NAME], has[2 * NAME + 40];
    find_nearest(a, name, near);
    name_of(a, 0, first);
    name_of(a, model_layers(a) - 1, last);
    snprintf(has, sizeof has, "%s to %s, as `plait check` lists them", first, last);
    if (model_traits(a->kind)->text)
        snprintf(has, sizeof has, "layers.0 to layers.%lld, each of them .attn and .mlp",
                 (long long)a->layers - 1);
    FAIL(ERR_CONFIG, "parallel.split names \"%.60s\", and the model has no such layer: it has %s, "
                     "and the nearest is %s; use a name of the model, or [], which cuts by cost",
         name, has, near);
}

enum err split_cut(const struct options *o, const struct model *a, struct model_stage *out)
{
    const struct conf_names *split = &o->parallel.split;
    int64_t stages = o->parallel.pp * options_chunks(o), end = model_layers(a);
    char before[NAME];
    if (split->n != stages - 1)
        REFUSE(o, "parallel.split has %lld name%s, and {parallel.pp} x parallel.chunks %lld makes "
                  "%lld stage%s: that takes %lld, one for each behind the first; use as many, or "
                  "[], which cuts by cost", (long long)split->n, text_plural(split->n, "s"),
               (long long)options_chunks(o), (long long)stages, text_plural(stages, "s"),
               (long long)stages - 1);
    out[0].first = 0;
    name_of(a, 0, before);
    for (int i = 0; i < split->n; i++) {
        const char *name = conf_name(split, i);
        int64_t at = find(a, out[i].first + 1, name);
        if (at == end && find(a, 0, name) == end)
            return refuse_unknown(a, name);
        if (at == end)
            FAIL(ERR_CONFIG, "parallel.split names \"%.60s\" behind \"%.60s\", and stages begin in "
                             "the model's order, each at a layer of its own; use names in that "
                             "order, or [], which cuts by cost", name,
                 i > 0 ? conf_name(split, i - 1) : before);
        out[i].end = out[i + 1].first = at;
    }
    out[split->n].end = end;
    return ERR_OK;
}
