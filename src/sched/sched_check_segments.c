/* SPDX-License-Identifier: Apache-2.0
 *
 * What V3 and V9 say of segments: a backward that is cut has all of its segments in a row, those of
 * the last layers first, and nothing but REDUCEs and its own Rs between them, so that every other
 * rule may take its last segment for the whole; and of each stage that is summed every segment is,
 * once, behind the weight gradients that it sums.
 */
#include "sched/sched_check.h"

#include "base/mem.h"

/* The backward that is under way: its segment before, seg 0: none is. */
struct segments {
    const struct sched_checker *c;
    int rank;
    struct sched_instr open;
    int summing;     /* stages of the rank of whose sums some are started, and not all */
    int *made;       /* owned; [stages] microbatches whose weight gradients are all made */
    uint16_t *next;  /* owned; [stages] 1 + the segment that is summed next; 0: all are summed */
};

static bool makes_weights(struct sched_instr in)
{
    return in.op == SCHED_B || in.op == SCHED_W;
}

/* A segment of a backward: the first of it, or the one that follows. */
static enum err take_segment(struct segments *k, int64_t i)
{
    const struct sched *s = k->c->s;
    struct sched_instr in = s->instr[i], open = k->open;
    bool same = open.op == in.op && open.stage == in.stage && open.mb == in.mb;
    int want = open.seg == 0 ? s->segments[in.stage] : open.seg - 1;
    if (open.seg != 0 && !same)
        return sched_broken(k->c, k->rank, i, "segment %d of %d%s%d before it is not done; put the "
                                              "segments of a backward in a row", open.seg - 1,
                            open.stage, sched_op_name((enum sched_op)open.op), open.mb);
    if (in.seg != want)
        return sched_broken(k->c, k->rank, i, "of the %d segments of stage %d the next is %d; give "
                                              "all, from the last to 1", s->segments[in.stage],
                            in.stage, want);
    k->open = in;
    if (in.seg == 1)
        k->open.seg = 0;
    return ERR_OK;
}

/* A segment is done again for its backward alone, which follows at once. */
static enum err take_redo(struct segments *k, int64_t i)
{
    const struct sched *s = k->c->s;
    struct sched_instr in = s->instr[i], next = {0};
    if (i + 1 < s->begin[k->rank + 1])
        next = s->instr[i + 1];
    if (next.op != SCHED_B || next.stage != in.stage || next.mb != in.mb || next.seg != in.seg)
        return sched_broken(k->c, k->rank, i,
                            "what a segment does again is for its backward alone; put %d.%dB%d "
                            "right behind it", in.stage, in.seg, in.mb);
    return ERR_OK;
}

static enum err take(struct segments *k, int64_t i)
{
    const struct sched *s = k->c->s;
    struct sched_instr in = s->instr[i];
    bool beside = sched_op_moves_weights(in.op) || in.op == SCHED_REDUCE;
    bool may = makes_weights(in) || in.op == SCHED_R || beside;
    if (in.seg != 0 && (s->replicas > 1 || !may))
        return sched_broken(k->c, k->rank, i,
                            s->replicas > 1
                                ? "with two replicas stages stay whole; leave the segment out"
                                : "only R, B, W, REDUCE, UPDATE, GATHER and DROP may be of a "
                                  "segment; leave it out");
    if (in.seg != 0 && in.op == SCHED_R)
        return take_redo(k, i);
    if (in.seg != 0 && !beside)
        return take_segment(k, i);
    if (k->open.seg != 0 && !beside)
        return sched_broken(k->c, k->rank, i, "segment %d of %d%s%d before it is not done; put the "
                                              "segments of a backward in a row", k->open.seg - 1,
                            k->open.stage, sched_op_name((enum sched_op)k->open.op), k->open.mb);
    return ERR_OK;
}

/* A stage that is done again by segments is so for all microbatches: it keeps less of each. */
static enum err check_redone(const struct sched_checker *c)
{
    const struct sched *s = c->s;
    int64_t *n;
    enum err err = ERR_OK;
    TRY(mem_new(s->stages, sizeof *n, "schedule segments", &n));
    for (int64_t i = 0; i < s->begin[s->p]; i++)
        n[s->instr[i].stage] += s->instr[i].op == SCHED_R && s->instr[i].seg != 0;
    for (int stage = 0; stage < s->stages && err == ERR_OK; stage++) {
        int rank = s->place[stage];
        if (n[stage] != 0 && n[stage] != (int64_t)s->m * s->segments[stage])
            err = sched_broken(c, rank, s->begin[rank + 1] - 1,
                               "%lld of %lld segments of stage %d are done again; do all, or none",
                               (long long)n[stage], (long long)s->m * s->segments[stage], stage);
    }
    mem_free(n);
    return err;
}

enum err sched_check_segments(const struct sched_checker *c)
{
    const struct sched *s = c->s;
    for (int rank = 0; rank < s->p; rank++) {
        struct segments k = {.c = c, .rank = rank};
        for (int64_t i = s->begin[rank]; i < s->begin[rank + 1]; i++)
            TRY(take(&k, i));
        if (k.open.seg != 0)
            return sched_broken(c, rank, s->begin[rank + 1] - 1,
                                "the list ends without segment %d of %d%s%d; add it",
                                k.open.seg - 1, k.open.stage,
                                sched_op_name((enum sched_op)k.open.op), k.open.mb);
    }
    return check_redone(c);
}

/* ---- sums ---- */

static enum err sum_segment(struct segments *k, int64_t i)
{
    const struct sched *s = k->c->s;
    struct sched_instr in = s->instr[i];
    int segments = s->segments[in.stage], want = k->next[in.stage] - 1;
    int rest = sched_microbatches(s, 0) - k->made[in.stage];
    bool under_way = rest == 1 && k->open.stage == in.stage && k->open.seg != 0 &&
                     k->open.seg <= in.seg;
    if (want < 0)
        return sched_broken(k->c, k->rank, i, "all of stage %d is summed already; remove it",
                            in.stage);
    if (in.seg == 0 ? want != segments : in.seg != want)
        return sched_broken(k->c, k->rank, i,
                            "of the %d segments of stage %d the next to be summed is %d; sum each "
                            "once, from the last to 1", segments, in.stage, want);
    if (rest > 0 && !under_way)
        return sched_broken(k->c, k->rank, i,
                            "only %d of %d weight gradients of stage %d are added before; move it "
                            "after the last", k->made[in.stage], sched_microbatches(s, 0),
                            in.stage);
    k->summing += want == segments && in.seg > 1; /* the first of several */
    k->summing -= want < segments && in.seg == 1; /* the last */
    k->next[in.stage] = in.seg <= 1 ? 0 : in.seg;
    return ERR_OK;
}

/* All of a stage's sums are waited for at once. */
static enum err check_wait(const struct segments *k, int64_t i)
{
    const struct sched *s = k->c->s;
    int stage = 0;
    if (k->summing == 0)
        return ERR_OK;
    while (s->place[stage] != k->rank || k->next[stage] == 0 ||
           k->next[stage] == s->segments[stage] + 1)
        stage++;
    return sched_broken(k->c, k->rank, i,
                        "some sums of stage %d are started, and not all; put "
                        "%d.1REDUCE before it",
                        stage, stage);
}

static enum err sum_rank(struct segments *k)
{
    const struct sched *s = k->c->s;
    k->summing = 0;
    for (int64_t i = s->begin[k->rank]; i < s->begin[k->rank + 1]; i++) {
        struct sched_instr in = s->instr[i];
        if (in.op == SCHED_REDUCE)
            TRY(sum_segment(k, i));
        if (in.op == SCHED_WAIT)
            TRY(check_wait(k, i));
        if (!makes_weights(in))
            continue;
        k->open = in;
        if (in.seg <= 1) {
            k->open.seg = 0;
            k->made[in.stage]++;
        }
    }
    return ERR_OK;
}

static enum err sum_ranks(struct segments *k)
{
    const struct sched *s = k->c->s;
    TRY(mem_new(s->stages, sizeof *k->made, "schedule segments", &k->made));
    TRY(mem_new(s->stages, sizeof *k->next, "schedule segments", &k->next));
    for (int stage = 0; stage < s->stages; stage++)
        k->next[stage] = (uint16_t)(s->segments[stage] + 1);
    for (k->rank = 0; k->rank < s->p; k->rank++)
        TRY(sum_rank(k));
    for (int stage = 0; stage < s->stages; stage++) {
        int rank = s->place[stage];
        if (k->next[stage] != 0 && k->next[stage] != s->segments[stage] + 1)
            return sched_broken(k->c, rank, s->begin[rank + 1] - 1,
                                "segment %d of stage %d is not summed, those behind it are; add "
                                "%d.%dREDUCE", k->next[stage] - 1, stage, stage,
                                k->next[stage] - 1);
    }
    return ERR_OK;
}

enum err sched_check_segment_sums(const struct sched_checker *c)
{
    struct segments k = {.c = c};
    if (c->s->replicas > 1)
        return ERR_OK; /* whole stages, which the caller looks at */
    enum err err = sum_ranks(&k);
    mem_free(k.made);
    mem_free(k.next);
    return err;
}
