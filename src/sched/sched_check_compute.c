/* SPDX-License-Identifier: Apache-2.0
 *
 * Rules about computing: V1 coverage, V2 placement, V3 order, V4 cycle.
 *
 * The coverage scan also notes where each instruction stands (sched_checker.at), which every later
 * rule reads. It counts (stage, mb) pairs, never totals: a doubled forward must not make up for a
 * missing one.
 */
#include "sched/sched_check.h"

#include "base/mem.h"

/* Is the instruction one that this schedule may hold at all? */
static enum err note_fields(struct sched_checker *c, int rank, int64_t i)
{
    const struct sched *s = c->s;
    const struct sched_instr *in = &s->instr[i];
    if (in->op >= SCHED_OP_COUNT)
        return sched_broken(c, rank, i, "instruction code %d is unknown; use 0 to %d", in->op,
                            SCHED_OP_COUNT - 1);
    if (in->stage >= s->stages || in->mb >= s->m || in->peer >= s->p)
        return sched_broken(c, rank, i,
                            "stage %d, microbatch %d, peer %d are outside %d stage%s, %d "
                            "microbatch%s, %d rank%s; use smaller numbers",
                            in->stage, in->mb, in->peer, s->stages, text_plural(s->stages, "s"),
                            s->m, text_plural(s->m, "es"), s->p, text_plural(s->p, "s"));
    bool forward = in->op == SCHED_F || in->op == SCHED_SEND_F || in->op == SCHED_RECV_F;
    if (s->forward_only && !forward)
        return sched_broken(c, rank, i, "the schedule is forward only; remove it");
    if (!s->lowered && in->op >= SCHED_COMPUTE_OPS && in->op != SCHED_OVERLAP_F_B &&
        !sched_op_shards(in->op))
        return sched_broken(c, rank, i, "the schedule is compute only; remove it");
    if (!s->lowered && in->seg != 0)
        return sched_broken(c, rank, i, "the schedule is compute only; leave the segment out");
    if (s->replicas == 1 && in->op == SCHED_REPLICA_REDUCE)
        return sched_broken(c, rank, i, "the parameters have one replica; remove it");
    if (s->replicas > 1 && in->op == SCHED_EMBED_REDUCE)
        return sched_broken(c, rank, i,
                            "with two replicas both ends stand on one rank and share one "
                            "embedding; remove it");
    return ERR_OK;
}

/* Where in the table an instruction is noted; NULL for EMBED_REDUCE of an inner stage. What stands
 * on a wrong rank is noted with the first replica, and refused by V2. */
static uint32_t *slot_of(struct sched_checker *c, int rank, const struct sched_instr *in)
{
    int held = sched_stage_replica_on(c->s, in->stage, rank);
    switch (in->op) {
    case SCHED_REDUCE:
        return &c->reduce[held < 0 ? in->stage : held];
    case SCHED_REPLICA_REDUCE:
        return &c->merge[held < 0 ? in->stage : held];
    case SCHED_STEP:
        return &c->step[rank];
    case SCHED_NORM:
        return &c->norm[rank];
    case SCHED_EMBED_REDUCE:
        if (in->stage != 0 && in->stage != c->s->stages - 1)
            return NULL;
        return &c->tied[in->stage != 0];
    default:
        return &c->at[in->op][sched_unit(c->s, in->stage, in->mb)];
    }
}

/* One (stage, mb): a forward, and a whole backward or both halves. What is missing stands nowhere;
 * the error names the last instruction of the rank whose list lacks it. */
static enum err cover(const struct sched_checker *c, int stage, int mb)
{
    int64_t unit = sched_unit(c->s, stage, mb);
    int rank = sched_rank_of(c->s, stage, mb);
    bool f = c->at[SCHED_F][unit], b = c->at[SCHED_B][unit];
    bool in = c->at[SCHED_I][unit], w = c->at[SCHED_W][unit];
    int64_t last = c->s->begin[rank + 1] - 1;
    if (!f)
        return sched_broken(c, rank, last, "the list ends without %dF%d; add it", stage, mb);
    if (c->s->forward_only || (b && !in && !w) || (!b && in && w))
        return ERR_OK;
    if (!b && !in && !w)
        return sched_broken(c, rank, last,
                            "the list ends without %dB%d; add it, or %dI%d and %dW%d",
                            stage, mb, stage, mb, stage, mb);
    if (b)
        return sched_broken(c, rank, c->s->begin[rank] + c->at[SCHED_B][unit] - 1,
                            "there is %d%s%d too; use the whole backward or its two halves",
                            stage, in ? "I" : "W", mb);
    return sched_broken(c, rank, last,
                        "the list ends without %d%s%d, but has its other half; add it",
                        stage, in ? "W" : "I", mb);
}

enum err sched_check_coverage(struct sched_checker *c)
{
    const struct sched *s = c->s;
    for (int rank = 0; rank < s->p; rank++)
        for (int64_t i = s->begin[rank]; i < s->begin[rank + 1]; i++) {
            const struct sched_instr *in = &s->instr[i];
            TRY(note_fields(c, rank, i));
            if (in->op == SCHED_OVERLAP_F_B || !sched_ends_stage(*in))
                continue; /* its halves are noted, or its last segment */
            if (sched_op_moves_weights(in->op) || in->op == SCHED_WAIT)
                continue; /* V9, V10 and V13 look at them */
            uint32_t *slot = slot_of(c, rank, in);
            if (!slot)
                return sched_broken(c, rank, i,
                                    "only the first and the last stage are tied; use stage 0 or %d",
                                    s->stages - 1);
            if (*slot)
                return sched_broken(c, rank, i, "it comes a second time; keep one");
            *slot = (uint32_t)(i - s->begin[rank] + 1);
        }
    for (int stage = 0; stage < s->stages; stage++)
        for (int mb = 0; mb < s->m; mb++)
            TRY(cover(c, stage, mb));
    return ERR_OK;
}

/* The second replica stands on the first's partner ranks. */
static enum err check_mirror(const struct sched_checker *c)
{
    const struct sched *s = c->s;
    enum err err = ERR_OK;
    int *partner; /* [p] 1 + that rank */
    TRY(mem_new(s->p, sizeof *partner, "schedule check", &partner));
    for (int stage = 0; stage < s->stages && err == ERR_OK; stage++) {
        int a = s->place[stage], b = s->place[s->stages + stage];
        if (a == b)
            err = sched_broken(c, a, s->begin[a],
                               "both replicas of stage %d stand on this rank; put them on two",
                               stage);
        else if ((partner[a] && partner[a] != b + 1) || (partner[b] && partner[b] != a + 1))
            err = sched_broken(c, a, s->begin[a],
                               "the replicas of stage %d stand on ranks %d and %d, those of other "
                               "stages there on other ranks; let the ranks come in pairs",
                               stage, a, b);
        partner[a] = b + 1;
        partner[b] = a + 1;
    }
    mem_free(partner);
    return err;
}

enum err sched_check_placement(struct sched_checker *c)
{
    const struct sched *s = c->s;
    if (s->replicas > 1)
        TRY(check_mirror(c));
    for (int rank = 0; rank < s->p; rank++) {
        for (int64_t i = s->begin[rank]; i < s->begin[rank + 1]; i++) {
            struct sched_instr in = s->instr[i];
            bool whole = !sched_op_names_microbatch(in.op) && in.op != SCHED_EMBED_REDUCE;
            int home = sched_rank_of(s, in.stage, in.mb);
            if (!sched_op_names_stage(in.op) || home == rank ||
                (whole && sched_stage_replica_on(s, in.stage, rank) >= 0))
                continue;
            return sched_broken(c, rank, i, "stage %d stands on rank %d%s; move it there", in.stage,
                                home, s->replicas > 1 ? " for this microbatch" : "");
        }
    }
    return ERR_OK;
}

/* A backward that is cut has all of its segments in a row, those of the last layers first, and
 * nothing but REDUCEs and its own Rs between them, so that every other rule may take its last
 * segment for the whole. */

static enum err take(const struct sched_checker *c, int rank, int64_t i, struct sched_instr *open)
{
    const struct sched *s = c->s;
    struct sched_instr in = s->instr[i], next = {0};
    bool same = in.seg != 0 && open->op == in.op && open->stage == in.stage && open->mb == in.mb;
    bool beside = sched_op_moves_weights(in.op) || in.op == SCHED_REDUCE;
    bool may = sched_makes_weights(in) || in.op == SCHED_R || beside;
    if (in.seg != 0 && (s->replicas > 1 || !may))
        return sched_broken(c, rank, i,
                            s->replicas > 1
                                ? "with two replicas stages stay whole; leave the segment out"
                                : "only R, B, W, REDUCE, UPDATE, GATHER and DROP may be of a "
                                  "segment; leave it out");
    if (in.seg != 0 && in.op == SCHED_R) { /* for its backward alone, which follows at once */
        if (i + 1 < s->begin[rank + 1])
            next = s->instr[i + 1];
        if (next.op == SCHED_B && next.stage == in.stage && next.mb == in.mb && next.seg == in.seg)
            return ERR_OK;
        return sched_broken(c, rank, i,
                            "what a segment does again is for its backward alone; put %d.%dB%d "
                            "right behind it", in.stage, in.seg, in.mb);
    }
    if (open->seg != 0 && !beside && !same)
        return sched_broken(c, rank, i, "segment %d of %d%s%d before it is not done; put the "
                                        "segments of a backward in a row", open->seg - 1,
                            open->stage, sched_op_name((enum sched_op)open->op), open->mb);
    if (in.seg == 0 || beside)
        return ERR_OK;
    int want = open->seg == 0 ? s->segments[in.stage] : open->seg - 1;
    if (in.seg != want)
        return sched_broken(c, rank, i, "of the %d segments of stage %d the next is %d; give "
                                        "all, from the last to 1", s->segments[in.stage],
                            in.stage, want);
    *open = in;
    if (in.seg == 1)
        open->seg = 0;
    return ERR_OK;
}

static enum err check_segments(const struct sched_checker *c)
{
    const struct sched *s = c->s;
    enum err err = ERR_OK;
    int64_t *again; /* [stages] segments that are done again */
    for (int rank = 0; rank < s->p; rank++) {
        struct sched_instr open = {0}; /* the segment before of the backward under way; seg 0: none
                                          is */
        for (int64_t i = s->begin[rank]; i < s->begin[rank + 1]; i++)
            TRY(take(c, rank, i, &open));
        if (open.seg != 0)
            return sched_broken(c, rank, s->begin[rank + 1] - 1,
                                "the list ends without segment %d of %d%s%d; add it", open.seg - 1,
                                open.stage, sched_op_name((enum sched_op)open.op), open.mb);
    }
    TRY(mem_new(s->stages, sizeof *again, "schedule segments", &again));
    for (int64_t i = 0; i < s->begin[s->p]; i++)
        again[s->instr[i].stage] += s->instr[i].op == SCHED_R && s->instr[i].seg != 0;
    /* A stage is done again by segments for all microbatches: it keeps less of each. */
    for (int stage = 0; stage < s->stages && err == ERR_OK; stage++) {
        int64_t n = again[stage], all = (int64_t)s->m * s->segments[stage];
        if (n != 0 && n != all)
            err = sched_broken(c, s->place[stage], s->begin[s->place[stage] + 1] - 1,
                               "%lld of %lld segments of stage %d are done again; do all, or none",
                               (long long)n, (long long)all, stage);
    }
    mem_free(again);
    return err;
}

/* A pair is an F and a B of which neither needs the other. */
static enum err check_pairs(const struct sched_checker *c)
{
    const struct sched *s = c->s;
    for (int rank = 0; rank < s->p; rank++) {
        for (int64_t i = s->begin[rank]; i < s->begin[rank + 1]; i++) {
            const struct sched_instr *in = &s->instr[i];
            if (in->op != SCHED_OVERLAP_F_B)
                continue;
            if (i + 2 >= s->begin[rank + 1] || in[1].op != SCHED_F || in[2].op != SCHED_B ||
                in->stage != in[1].stage || in->mb != in[1].mb || in[2].seg != 0)
                return sched_broken(c, rank, i,
                                    "a pair is a forward and a whole backward right behind its "
                                    "OV; write both, as in (0F1;1B0)OV");
            if (in[1].stage == in[2].stage && in[1].mb == in[2].mb)
                return sched_broken(c, rank, i,
                                    "the backward needs the forward of its own pair; write them "
                                    "apart");
        }
    }
    return ERR_OK;
}

enum err sched_check_order(struct sched_checker *c)
{
    const struct sched *s = c->s;
    TRY(check_segments(c));
    if (s->forward_only)
        return ERR_OK;
    TRY(check_pairs(c));
    /* Two slices of a microbatch that follow each other: forward `unit - 1` first, backward
     * `unit`. */
    for (int stage = 0; s->slices > 1 && stage < s->stages; stage++)
        for (int mb = 0; mb < s->m; mb++) {
            int64_t unit = sched_unit(s, stage, mb);
            int rank = sched_rank_of(s, stage, mb);
            if (mb % s->slices != 0 && c->at[SCHED_F][unit] < c->at[SCHED_F][unit - 1])
                return sched_broken(c, rank, s->begin[rank] + c->at[SCHED_F][unit] - 1,
                                    "it needs the keys and values of the slice before it, %dF%d; "
                                    "move it behind", stage, mb - 1);
            if (mb % s->slices != 0 && sched_check_dgrad(c, unit) > sched_check_dgrad(c, unit - 1))
                return sched_broken(c, rank, s->begin[rank] + sched_check_dgrad(c, unit - 1) - 1,
                                    "it needs the gradients of its keys and values from the slice "
                                    "behind it, %dB%d; move it behind", stage, mb);
        }
    for (int stage = 0; stage < s->stages; stage++) {
        for (int mb = 0; mb < s->m; mb++) {
            int64_t unit = sched_unit(s, stage, mb);
            int rank = sched_rank_of(s, stage, mb);
            uint32_t f = c->at[SCHED_F][unit], d = sched_check_dgrad(c, unit);
            uint32_t w = c->at[SCHED_W][unit], r = c->at[SCHED_R][unit];
            if (f > d)
                return sched_broken(c, rank, s->begin[rank] + d - 1,
                                    "its forward %dF%d comes later, at place %u; move it before",
                                    stage, mb, f - 1);
            if (r && f > r)
                return sched_broken(c, rank, s->begin[rank] + r - 1,
                                    "the forward %dF%d that it does again comes later, at place "
                                    "%u; move it before",
                                    stage, mb, f - 1);
            if (r > d)
                return sched_broken(c, rank, s->begin[rank] + r - 1,
                                    "the backward that needs what it makes came before, at place "
                                    "%u; move it before that",
                                    d - 1);
            if (w && d > w)
                return sched_broken(c, rank, s->begin[rank] + w - 1,
                                    "%dI%d, which it follows, comes later, at place %u; move it "
                                    "before",
                                    stage, mb, d - 1);
        }
    }
    return ERR_OK;
}

/* Data edges between stages; those within a stage are rule V3. */
static bool data_need(const struct sched_checker *c, const struct sched_instr *in,
                      struct sched_need *out)
{
    const struct sched *s = c->s;
    int from = in->op < SCHED_COMPUTE_OPS ? sched_input_of(s, *in) : -1, op = SCHED_F;
    if (from < 0)
        return false;
    int64_t unit = sched_unit(s, from, in->mb);
    if (in->op != SCHED_F)
        op = c->at[SCHED_B][unit] ? SCHED_B : SCHED_I;
    out->rank = sched_rank_of(s, from, in->mb);
    out->count = c->at[op][unit];
    out->on = (struct sched_instr){.op = (uint8_t)op, .stage = (uint16_t)from, .mb = in->mb,
                                   .peer = (uint16_t)out->rank};
    return true;
}

enum err sched_check_cycle(struct sched_checker *c)
{
    return sched_check_walk(c, data_need, "the data go in a circle");
}
