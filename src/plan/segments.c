/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums from the last layer down, as backward completes them: one is closed when it is long enough.
 * Behind the optimizer each of shared updates is a gather, too, and those are waited for: so a
 * stage has SHARED_MOST of them where they are long at all.
 */
#include "plan/segments.h"

#include "base/mem.h"
#include "base/num.h"
#include <math.h>
#include <string.h>

enum { SHARED_MOST = 24 };

/* Of `every` blocks each, from the first layer up; what is over, with the head, is the last. */
static void fill_every(const struct segments_args *a, const struct model_stage *st,
                       struct segments *s)
{
    int blocks = 0, every = a->every, n = 0; /* blocks: of the stage, a part of one for one */
    int64_t before = -1;
    for (int64_t i = st->first; i < st->end; i++) {
        int64_t block = model_layer(a->model, i).block;
        blocks += block >= 0 && block != before;
        before = block;
    }
    before = -1;
    if (every == SEGMENTS_SQRT)
        every = (int)num_max(1, (int64_t)(sqrt((double)blocks) + 0.5));
    every = (int)num_max(every, num_ceil_div(blocks, SCHED_MAX_SEGMENTS));
    s->first[s->n++] = 0;
    for (int64_t i = st->first; i < st->end; i++) {
        int64_t block = model_layer(a->model, i).block;
        if (block >= 0 && block != before && n++ > 0 && (n - 1) % every == 0)
            s->first[s->n++] = (int)(i - st->first);
        before = block;
    }
}

static void fill_sums(const struct segments_args *a, const struct model_stage *st,
                      const int64_t *begin, struct segments *s)
{
    int parts = model_stage_parts(st);
    int64_t top = model_sharded_elements(begin[parts], a->num_shards);
    int64_t least = a->bytes / a->element; /* elements of a sum from which it is closed */
    if (a->num_shards > 1 && least > 0)
        least = num_max(least, top / SHARED_MOST);
    if (parts > SCHED_MAX_SEGMENTS)
        least = num_max(least, top / (SCHED_MAX_SEGMENTS - 1) + 1);
    for (int part = parts - 1; part >= 0; part--) { /* from above: sum[0] is the last one's */
        int64_t place = model_sharded_elements(begin[part], a->num_shards);
        if (place < top && (top - place >= least || part == 0)) {
            s->sum[s->sums++] = part;
            top = place;
        }
    }
    for (int i = 0; i < s->sums / 2; i++) {
        int first = s->sum[i];
        s->sum[i] = s->sum[s->sums - 1 - i];
        s->sum[s->sums - 1 - i] = first;
    }
    s->sums = (int)num_max(s->sums, 1);
    s->sum[0] = 0; /* layers below without parameters */
}

static enum err make_one(const struct segments_args *a, const struct model_stage *st,
                         struct segments *out)
{
    int64_t *begin;
    int parts = model_stage_parts(st);
    TRY(mem_new(parts, sizeof *out->first, "a stage's segments", &out->first));
    TRY(mem_new(parts, sizeof *out->sum, "a stage's segments", &out->sum));
    TRY(mem_new(parts + 1, sizeof *begin, "a stage's layers", &begin));
    model_stage_begins(a->model, &a->split, st, begin);
    fill_sums(a, st, begin, out);
    mem_free(begin);
    if (a->every != 0) {
        fill_every(a, st, out);
        return ERR_OK;
    }
    out->n = out->sums;
    memcpy(out->first, out->sum, (size_t)out->n * sizeof *out->first);
    return ERR_OK;
}

enum err segments_make(const struct segments_args *a, const struct model_stage *cut, int stages,
                       struct segments **out)
{
    enum err err = mem_new(stages, sizeof **out, "the segments", out);
    for (int i = 0; i < stages && err == ERR_OK; i++)
        err = make_one(a, &cut[i], &(*out)[i]);
    return err;
}

void segments_free(struct segments *s, int stages)
{
    for (int i = 0; s && i < stages; i++) {
        mem_free(s[i].first);
        mem_free(s[i].sum);
    }
    mem_free(s);
}

bool segments_summed(const struct model *a, const struct model_split *split, int dp)
{
    return dp > 1 || (split->tp > 1 && (split->sp || a->kv_heads < split->tp));
}

void segments_range(const struct segments *s, int layers, int seg, int *first, int *end)
{
    *first = seg > 0 ? s->first[seg - 1] : 0;
    *end = seg > 0 && seg < s->n ? s->first[seg] : layers;
}

bool segments_begin(const struct segments *s, int layer)
{
    bool first = layer == 0;
    for (int i = 1; s && i < s->n && !first; i++)
        first = s->first[i] == layer;
    return first;
}

/* What a layer is in its segment: its block, counted from the segment's first, its type, and how
 * many of that type come before it in the block. */
struct seat { int block, nth, layer; const struct layer_type *type; };

enum err segments_lenders(const struct segments *s, const struct model *a,
                          const struct model_stage *st, int *lender)
{
    struct seat *seat, *first; /* of all layers; of those that lend */
    int parts = model_stage_parts(st), n = 0, from = 0, block = -1;
    int64_t before = -1;
    TRY(mem_new(2 * parts, sizeof *seat, "the layers of segments", &seat));
    first = seat + parts;
    for (int i = 0; i < parts; i++) {
        struct layer l = model_layer(a, st->first + i);
        bool begins = segments_begin(s, i);
        block = begins ? -1 : block;
        from = begins ? i : from;
        block += l.block >= 0 && (begins || l.block != before);
        seat[i] = (struct seat){.block = l.block < 0 ? -1 : block, .layer = i, .type = l.type};
        for (int j = i - 1; j >= from && seat[j].block == block; j--)
            seat[i].nth += seat[j].type == l.type;
        before = l.block;
        int k = 0;
        while (k < n && (seat[i].block < 0 || first[k].block != seat[i].block ||
                         first[k].nth != seat[i].nth || first[k].type != seat[i].type))
            k++;
        if (k == n)
            first[n++] = seat[i];
        lender[i] = first[k].layer;
    }
    mem_free(seat);
    return ERR_OK;
}

enum err segments_cut(const struct segments *s, bool recompute, bool shared, struct sched *list,
                      struct sched_report *report)
{
    struct sched cut, zero;
    struct sched_report proved = {0};
    uint8_t *n;
    TRY(mem_new(list->stages, sizeof *n, "the segments", &n));
    for (int i = 0; i < list->stages; i++)
        n[i] = (uint8_t)s[i].n;
    enum err err = sched_segment(list, n, recompute, &cut);
    mem_free(n);
    TRY(err);
    sched_free(list);
    *list = cut;
    if (shared) {
        TRY(sched_zero(list, &zero));
        sched_free(list);
        *list = zero;
    }
    err = sched_check(list, &proved);
    report->hash = proved.hash;
    for (int i = 0; err == ERR_OK && recompute && i < list->p; i++)
        report->full_peak[i] = proved.full_peak[i];
    for (int h = 0; err == ERR_OK && recompute && h < list->replicas * list->stages; h++)
        report->save_peak[h] = proved.save_peak[h];
    sched_report_free(&proved);
    return err;
}
