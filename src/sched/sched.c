/* SPDX-License-Identifier: Apache-2.0
 *
 * What all schedules share: names of instructions, who holds what.
 */
#include "sched/sched_build.h"

#include "base/mem.h"
#include <stdio.h>

const char *sched_op_name(enum sched_op op)
{
    static const char *const name[SCHED_OP_COUNT] = {
        "F", "B", "I", "W", "R", "SEND_F", "RECV_F", "SEND_B", "RECV_B", "REDUCE", "EMBED_REDUCE",
        "STEP", "OVERLAP_F_B", "REPLICA_REDUCE", "WAIT", "NORM", "UPDATE", "GATHER", "DROP",
    };
    return name[op];
}

const char *sched_cell(const struct sched_instr *in, char buf[SCHED_CELL])
{
    const char *name = in->op < SCHED_OP_COUNT ? sched_op_name((enum sched_op)in->op) : "?";
    char seg[8] = "";
    if (in->seg > 0)
        snprintf(seg, sizeof seg, ".%d", in->seg);
    if (!sched_op_names_stage(in->op))
        snprintf(buf, SCHED_CELL, "%s", name);
    else if (!sched_op_names_microbatch(in->op))
        snprintf(buf, SCHED_CELL, "%d%s%s", in->stage, seg, name);
    else
        snprintf(buf, SCHED_CELL, "%d%s%s%d", in->stage, seg, name, in->mb);
    return buf;
}

const char *sched_cell_at(const struct sched *s, int64_t i, char buf[SCHED_CELL])
{
    char half[2][SCHED_CELL];
    if (!s->lowered && sched_op_shards(s->instr[i].op)) {
        snprintf(buf, SCHED_CELL, "%d%s", s->instr[i].stage,
                 sched_passed_name(sched_shards_name(s->instr[i].op)));
        return buf;
    }
    if (s->instr[i].op != SCHED_OVERLAP_F_B || i + 2 >= s->begin[s->p])
        return sched_cell(&s->instr[i], buf);
    snprintf(buf, SCHED_CELL, "(%.30s;%.30s)OVERLAP_F_B", sched_cell(&s->instr[i + 1], half[0]),
             sched_cell(&s->instr[i + 2], half[1]));
    return buf;
}

const char *sched_passed_name(enum sched_passed op)
{
    static const char *const name[SCHED_PASSED_OPS] = {"UNSHARD", "RESHARD", "REDUCE_GRAD",
                                                       "WAIT_REDUCE_GRAD"};
    return name[op];
}

bool sched_passed_any(const struct sched *s)
{
    for (int i = 0; i < SCHED_PASSED_OPS; i++)
        if (s->passed[i] > 0)
            return true;
    return false;
}

void sched_passed_add(const struct sched *s, struct text *out)
{
    bool first = true;
    for (int i = 0; i < SCHED_PASSED_OPS; i++) {
        if (s->passed[i] == 0)
            continue;
        text_add(out, "%s%lld %s", first ? "" : ", ", (long long)s->passed[i],
                 sched_passed_name((enum sched_passed)i));
        first = false;
    }
}

int sched_stage_replica_on(const struct sched *s, int stage, int rank)
{
    for (int h = stage; h < s->replicas * s->stages; h += s->stages)
        if (s->place[h] == rank)
            return h;
    return -1;
}

int sched_peer(const struct sched *s, struct sched_instr in, int own)
{
    int stage = in.stage, last = s->stages - 1;
    switch (in.op) {
    case SCHED_SEND_F:
    case SCHED_RECV_B:
        return stage < last ? sched_rank_of(s, stage + 1, in.mb) : own;
    case SCHED_RECV_F:
    case SCHED_SEND_B:
        return stage > 0 ? sched_rank_of(s, stage - 1, in.mb) : own;
    case SCHED_EMBED_REDUCE:
        return s->place[stage == 0 ? last : 0];
    case SCHED_REPLICA_REDUCE:
        return s->place[s->place[stage] == own ? (s->replicas - 1) * s->stages + stage : stage];
    default:
        return own;
    }
}

int sched_microbatches(const struct sched *s, int replica)
{
    int n = 0;
    for (int mb = 0; mb < s->m; mb++)
        n += s->way[mb] == replica;
    return n;
}

int sched_stage_replicas_on(const struct sched *s, int rank)
{
    int n = 0;
    for (int h = 0; h < s->replicas * s->stages; h++)
        n += s->place[h] == rank;
    return n;
}

bool sched_has(const struct sched *s, enum sched_op op)
{
    for (int64_t i = 0; i < s->begin[s->p]; i++)
        if (s->instr[i].op == op)
            return true;
    return false;
}

bool sched_ends_meet(const struct sched *s)
{
    for (int h = s->stages - 1; h < s->replicas * s->stages; h += s->stages)
        if (sched_stage_replica_on(s, 0, s->place[h]) < 0)
            return false;
    return true;
}

void sched_free(struct sched *s)
{
    mem_free(s->place);
    mem_free(s->way);
    mem_free(s->segments);
    mem_free(s->begin);
    mem_free(s->instr);
    *s = (struct sched){0};
}
