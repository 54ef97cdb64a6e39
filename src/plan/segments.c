/* SPDX-License-Identifier: Apache-2.0
 *
 * From the last layer down, as backward completes them: a segment is closed when it is long enough.
 * Behind the optimizer each segment of shared updates is a gather, too, and those are waited for:
 * so a stage has SHARED_MOST of them where they are long at all.
 */
#include "plan/segments.h"

#include "base/mem.h"
#include "base/num.h"

enum { SHARED_MOST = 24 };

/* Elements of a segment from which it is closed. */
static int64_t least_of(const struct segments_args *a, const struct model_stage *st, int64_t all)
{
    int64_t least = a->bytes / a->element;
    if (a->shares > 1 && least > 0)
        least = num_max(least, all / SHARED_MOST);
    if (model_stage_parts(st) > SCHED_MAX_SEGMENTS)
        least = num_max(least, all / (SCHED_MAX_SEGMENTS - 1) + 1);
    return least;
}

static void fill(const struct segments_args *a, const struct model_stage *st, const int64_t *begin,
                 struct segments *s)
{
    int parts = model_stage_parts(st);
    int64_t top = model_shared_elements(begin[parts], a->shares);
    int64_t least = least_of(a, st, top);
    for (int part = parts - 1; part >= 0; part--) { /* from above: first[0] is the last one's */
        int64_t place = model_shared_elements(begin[part], a->shares);
        if (place < top && (top - place >= least || part == 0)) {
            s->first[s->n++] = part;
            top = place;
        }
    }
    for (int i = 0; i < s->n / 2; i++) {
        int first = s->first[i];
        s->first[i] = s->first[s->n - 1 - i];
        s->first[s->n - 1 - i] = first;
    }
    s->n = (int)num_max(s->n, 1);
    s->first[0] = 0; /* layers below without parameters */
}

static enum err make_one(const struct segments_args *a, const struct model_stage *st,
                         struct segments *out)
{
    int64_t *begin;
    int parts = model_stage_parts(st);
    TRY(mem_new(parts, sizeof *out->first, "a stage's segments", &out->first));
    TRY(mem_new(parts + 1, sizeof *begin, "a stage's layers", &begin));
    model_stage_begins(a->model, &a->split, st, begin);
    fill(a, st, begin, out);
    mem_free(begin);
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
    for (int i = 0; s && i < stages; i++)
        mem_free(s[i].first);
    mem_free(s);
}

bool segments_summed(const struct model *a, const struct model_split *split, int dp)
{
    return dp > 1 || (split->tp > 1 && (split->sp || a->kv_heads < split->tp));
}

enum err segments_cut(const struct segments *s, struct sched *list, struct sched_report *report)
{
    struct sched cut;
    struct sched_report proved = {0};
    uint8_t *n;
    TRY(mem_new(list->stages, sizeof *n, "the segments", &n));
    for (int i = 0; i < list->stages; i++)
        n[i] = (uint8_t)s[i].n;
    enum err err = sched_segment(list, n, &cut);
    mem_free(n);
    TRY(err);
    sched_free(list);
    *list = cut;
    err = sched_check(list, &proved);
    report->hash = proved.hash;
    sched_report_free(&proved);
    return err;
}
