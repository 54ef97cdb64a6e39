/* SPDX-License-Identifier: Apache-2.0
 *
 * V9 reduction: every sum is started behind the weight gradients that it sums, of each stage once
 * for every segment, waited for before anything reads it, and continued by the other holders.
 */
#include "sched/sched_check.h"

#include "base/mem.h"

/* The sums of a rank's stages, segment by segment. */
struct sums {
    const struct sched_checker *c;
    int rank;
    struct sched_instr open; /* the weight gradients that are under way; seg 0: none are */
    int summing;     /* stages of the rank of whose sums some are started, and not all */
    int *made;       /* owned; [stages] microbatches whose weight gradients are all made */
    uint16_t *next;  /* owned; [stages] 1 + the segment that is summed next; 0: all are summed */
};

static enum err sum_segment(struct sums *k, int64_t i)
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
static enum err check_wait(const struct sums *k, int64_t i)
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

static enum err check_segments(const struct sched_checker *c)
{
    const struct sched *s = c->s;
    struct sums k = {.c = c};
    enum err err = ERR_OK;
    TRY_OR(out_free, mem_new(s->stages, sizeof *k.made, "schedule segments", &k.made));
    TRY_OR(out_free, mem_new(s->stages, sizeof *k.next, "schedule segments", &k.next));
    for (int stage = 0; stage < s->stages; stage++)
        k.next[stage] = (uint16_t)(s->segments[stage] + 1);
    for (k.rank = 0; k.rank < s->p; k.rank++, k.summing = 0)
        for (int64_t i = s->begin[k.rank]; i < s->begin[k.rank + 1]; i++) {
            struct sched_instr in = s->instr[i];
            if (in.op == SCHED_REDUCE)
                TRY_OR(out_free, sum_segment(&k, i));
            if (in.op == SCHED_WAIT)
                TRY_OR(out_free, check_wait(&k, i));
            if (!sched_makes_weights(in))
                continue;
            k.open = in;
            k.open.seg = in.seg == 1 ? 0 : in.seg;
            k.made[in.stage] += in.seg <= 1;
        }
    for (int stage = 0; stage < s->stages && err == ERR_OK; stage++)
        if (k.next[stage] != 0 && k.next[stage] != s->segments[stage] + 1)
            err = sched_broken(c, s->place[stage], s->begin[s->place[stage] + 1] - 1,
                               "segment %d of stage %d is not summed, those behind it are; add "
                               "%d.%dREDUCE", k.next[stage] - 1, stage, stage, k.next[stage] - 1);
out_free:
    mem_free(k.made);
    mem_free(k.next);
    return err;
}

static bool any_of(const uint32_t *at, int n)
{
    for (int i = 0; i < n; i++)
        if (at[i])
            return true;
    return false;
}

/* The sum of stage replica h at place `at` of its rank (from 1) must follow all its weight
 * gradients. */
static enum err check_summands(const struct sched_checker *c, int h, uint32_t at)
{
    const struct sched *s = c->s;
    int rank = s->place[h], stage = h % s->stages, added = 0, all = 0;
    for (int mb = 0; mb < s->m; mb++) {
        if (sched_stage_replica(s, stage, mb) != h)
            continue;
        all++;
        added += sched_check_wgrad(c, sched_unit(s, stage, mb)) < at;
    }
    if (added < all)
        return sched_broken(c, rank, s->begin[rank] + at - 1,
                            "only %d of %d weight gradients of stage %d are added before; move it "
                            "after the last",
                            added, all, stage);
    return ERR_OK;
}

/* The error of a sum, of which something reads at `reader` or the list ends with it (-1). */
static enum err broken_wait(const struct sched_checker *c, int rank, int64_t sum, int64_t reader)
{
    const struct sched *s = c->s;
    int64_t first = s->begin[rank], last = s->begin[rank + 1] - 1, wait = sum;
    while (wait <= last && s->instr[wait].op != SCHED_WAIT)
        wait++;
    if (wait <= last)
        return sched_broken(c, rank, reader,
                            "WAIT is at place %lld; move it before what reads the "
                            "sums",
                            (long long)(wait - first));
    for (wait = sum; wait >= first && s->instr[wait].op != SCHED_WAIT;)
        wait--;
    if (wait >= first)
        return sched_broken(c, rank, sum, "WAIT is at place %lld; move it behind every REDUCE",
                            (long long)(wait - first));
    return sched_broken(c, rank, last,
                        "sums are started here and nothing waits for them; add WAIT "
                        "behind the last REDUCE");
}

/* WAIT: where anything is summed, behind that and before what reads the sums. */
static enum err check_waits(const struct sched_checker *c)
{
    const struct sched *s = c->s;
    for (int rank = 0; rank < s->p; rank++) {
        int64_t sum = -1;
        for (int64_t i = s->begin[rank]; i < s->begin[rank + 1]; i++) {
            int op = s->instr[i].op;
            bool reads = op == SCHED_EMBED_REDUCE || op == SCHED_REPLICA_REDUCE ||
                         op == SCHED_NORM || op == SCHED_STEP || op == SCHED_UPDATE;
            if (sum >= 0 && reads)
                return broken_wait(c, rank, sum, i);
            sum = op == SCHED_REDUCE ? i : op == SCHED_WAIT ? -1 : sum;
        }
        if (sum >= 0)
            return broken_wait(c, rank, sum, -1);
    }
    return ERR_OK;
}

/* With two replicas an embedding may also get the gradients of a head on its rank that belongs to
 * the other one, so a sum of stage 0 follows what the rank computes of the last stage too. */
static enum err check_shared(const struct sched_checker *c, int h, uint32_t at)
{
    const struct sched *s = c->s;
    int head = h % s->stages == 0 ? sched_stage_replica_on(s, s->stages - 1, s->place[h]) : -1;
    return head < 0 ? ERR_OK : check_summands(c, head, at);
}

/* REPLICA_REDUCE: on all stage replicas when there are two replicas that are stepped or any is
 * summed, each after its summands and its REDUCE. */
static enum err check_merges(const struct sched_checker *c)
{
    const struct sched *s = c->s;
    int n = s->replicas == 1 ? 0 : s->replicas * s->stages;
    for (int h = 0; h < n; h++)
        if (c->reduce[h])
            TRY(check_shared(c, h, c->reduce[h]));
    if (!any_of(c->merge, n) && !any_of(c->norm, s->p) && !any_of(c->step, s->p))
        return ERR_OK;
    for (int h = 0; h < n; h++) {
        int rank = s->place[h], stage = h % s->stages;
        int64_t i = s->begin[rank] + c->merge[h] - 1;
        struct sched_instr in = {.op = SCHED_REPLICA_REDUCE, .stage = (uint16_t)stage};
        int peer = sched_peer(s, in, rank);
        if (!c->merge[h])
            return sched_broken(c, rank, s->begin[rank + 1] - 1,
                                "the replicas of stage %d must be summed, but there is no "
                                "%dREPLICA_REDUCE; add it", stage, stage);
        if (s->instr[i].peer != peer)
            return sched_broken(c, rank, i, "its peer is rank %d, the other replica is on rank %d; "
                                            "use that", s->instr[i].peer, peer);
        if (c->reduce[h] > c->merge[h])
            return sched_broken(c, rank, i, "stage %d is reduced later, at place %u; move it after",
                                stage, c->reduce[h] - 1);
        TRY(check_summands(c, h, c->merge[h]));
        TRY(check_shared(c, h, c->merge[h]));
    }
    return ERR_OK;
}

/* EMBED_REDUCE: both or none, on two ranks, each after the sum it continues. */
static enum err check_tied(const struct sched_checker *c)
{
    const struct sched *s = c->s;
    int holder[2] = {0, s->stages - 1};
    for (int k = 0; k < 2; k++) {
        int stage = holder[k], rank = s->place[stage], other = s->place[holder[1 - k]];
        int64_t i = s->begin[rank] + c->tied[k] - 1;
        if (!c->tied[k])
            continue;
        if (rank == other)
            return sched_broken(c, rank, i, "first and last stage stand on one rank; remove it");
        if (s->instr[i].peer != other)
            return sched_broken(c, rank, i,
                                "its peer is rank %d, the other holder is rank %d; use that",
                                s->instr[i].peer, other);
        if (!c->tied[1 - k])
            return sched_broken(c, rank, i, "rank %d has no %dEMBED_REDUCE; add it", other,
                                holder[1 - k]);
        if (c->reduce[stage] > c->tied[k])
            return sched_broken(c, rank, i,
                                "stage %d is reduced later, at place %u; move it after",
                                stage, c->reduce[stage] - 1);
        for (int mb = 0; mb < s->m; mb++) {
            uint32_t made = sched_check_wgrad(c, sched_unit(s, stage, mb));
            if (made > c->tied[k])
                return sched_broken(c, rank, i,
                                    "the weight gradient of microbatch %d is added later, at place "
                                    "%u; move it after", mb, made - 1);
        }
    }
    return ERR_OK;
}

enum err sched_check_reduction(struct sched_checker *c)
{
    const struct sched *s = c->s;
    int stage_replicas = s->replicas * s->stages;
    /* REDUCE: on all stage replicas or none, each after its summands. The lowering adds those that
     * a compute-only list has not. */
    for (int h = 0; any_of(c->reduce, stage_replicas) && h < stage_replicas; h++) {
        int rank = s->place[h];
        if (!c->reduce[h] && s->lowered)
            return sched_broken(c, rank, s->begin[rank + 1] - 1,
                                "other stages are reduced, but there is no %dREDUCE; add it",
                                h % s->stages);
        if (s->replicas > 1 && c->reduce[h])
            TRY(check_summands(c, h, c->reduce[h]));
    }
    if (s->replicas == 1)
        TRY(check_segments(c));
    if (s->lowered)
        TRY(check_waits(c));
    TRY(check_merges(c));
    return check_tied(c);
}
