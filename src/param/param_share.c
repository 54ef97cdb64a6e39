/* SPDX-License-Identifier: Apache-2.0
 *
 * A store whose updates data ranks share. Sums of gradients start piece by piece while backward
 * still runs, so each piece is shared out by itself: it begins as near above a part's begin as the
 * ranges' length allows, and rank i of n owns the i-th n-th of it. Edges are multiples of n times
 * MODEL_PARAM_ALIGN: all ranges of a piece are equally long, as scattered sums and gathers want
 * them, and begin where a device reads whole lines. That also makes an owner's ranges fit together:
 * of the pieces below edge e it has e / n elements, so master weights and moments of the range
 * behind it begin at e / n.
 *
 * All master weights stand together only in the memory of the gradients, before the first step and
 * when weights are written to disk.
 */
#include "param/param_local.h"

/* The lowest edge with nothing above it of what lies below part `part`. */
static int64_t edge_above(const struct param_store *s, int part)
{
    return model_shared_elements(s->param[s->part_first[part]].offset, s->shares);
}

enum err param_share_cut(struct param_store *s, const int *first, int n)
{
    ENSURE(s->shares > 1 && !s->edge && n > 0 && first[0] == 0);
    TRY(mem_new(n + 1, sizeof *s->edge, "the pieces of a store", &s->edge));
    for (int i = 1; i < n; i++)
        s->edge[i] = edge_above(s, first[i]);
    s->edge[n] = s->elements;
    s->pieces = s->elements > 0 ? n : 0;
    return ERR_OK;
}

int param_share_pieces(const struct param_store *s)
{
    return s->edge ? s->pieces : 1;
}

struct param_range param_share_of(const struct param_store *s, int piece)
{
    if (!s->edge)
        return (struct param_range){0, s->elements, 0};
    int64_t each = (s->edge[piece + 1] - s->edge[piece]) / s->shares;
    int64_t begin = s->edge[piece] + s->share * each;
    return (struct param_range){begin, begin + each, s->edge[piece] / s->shares};
}

/* keep: from the memory of the gradients to the owner's; else back. */
static enum err move(const struct param_store *s, bool keep)
{
    struct dev *dev = s->dev;
    for (int i = 0; i < s->pieces; i++) {
        struct param_range r = param_share_of(s, i);
        char *own = s->master + r.own * s->at, *all = s->grad + r.begin * s->at;
        TRY(dev_copy(dev, keep ? own : all, keep ? all : own, (r.end - r.begin) * s->at));
    }
    return ERR_OK;
}

enum err param_share_keep(struct param_store *s)
{
    if (!param_share_apart(s))
        return ERR_OK;
    ENSURE(s->edge && s->whole == s->grad);
    s->whole = NULL;
    return move(s, true);
}

enum err param_share_lay(struct param_store *s)
{
    if (!param_share_apart(s))
        return ERR_OK;
    ENSURE(s->edge && !s->whole);
    param_grads_reset(s);
    s->whole = s->grad;
    return move(s, false);
}
