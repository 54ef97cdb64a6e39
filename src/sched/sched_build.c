/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing schedules: the list grows by doubling, ranks are closed in order, peers come from the
 * placement table, so that no generator computes a neighbour.
 */
#include "sched/sched_build.h"

#include "base/mem.h"
#include "base/num.h"
#include <stdio.h>
#include <string.h>

enum err sched_shape_check(const char *name, const struct sched_shape *shape)
{
    if (shape->p < 1 || shape->p > SCHED_MAX_RANKS)
        FAIL(ERR_CONFIG, "schedule %s: p %d is not a number of pipeline ranks; use 1 to %d", name,
             shape->p, SCHED_MAX_RANKS);
    if (shape->m < 1 || shape->m > SCHED_MAX_MB)
        FAIL(ERR_CONFIG, "schedule %s: m %d is not a number of microbatches; use 1 to %d", name,
             shape->m, SCHED_MAX_MB);
    int most = SCHED_MAX_STAGES / shape->p;
    if (shape->v < 1 || shape->v > most)
        FAIL(ERR_CONFIG,
             "schedule %s: v %d chunks on each of %d rank%s; use 1 to %d, for at most %d stages",
             name, shape->v, shape->p, text_plural(shape->p, "s"), most, SCHED_MAX_STAGES);
    if (shape->group < 0 || shape->group > SCHED_MAX_MB)
        FAIL(ERR_CONFIG,
             "schedule %s: group %d is not a number of microbatches; use 1 to %d, or 0 for the "
             "schedule's own", name, shape->group, SCHED_MAX_MB);
    return ERR_OK;
}

enum err sched_shape_even(const char *name, const struct sched_shape *shape)
{
    if (shape->p == 1)
        FAIL(ERR_CONFIG, "schedule %s: p 1, but microbatches go both ways over an even number of "
                         "ranks; use p 2", name);
    if (shape->p % 2 != 0)
        FAIL(ERR_CONFIG, "schedule %s: p %d, but microbatches go both ways over an even number of "
                         "ranks; use p %d or %d", name, shape->p, shape->p - 1, shape->p + 1);
    return ERR_OK;
}

static enum err make_tables(struct sched_build *b, const struct sched_shape *shape)
{
    TRY(mem_new(b->s.stages, sizeof *b->s.place, "schedule placement", &b->s.place));
    TRY(mem_new(b->s.m, sizeof *b->s.way, "schedule placement", &b->s.way));
    TRY(mem_new(b->s.stages, sizeof *b->s.segments, "schedule placement", &b->s.segments));
    TRY(mem_new(b->s.p + 1, sizeof *b->s.begin, "schedule ranks", &b->s.begin));
    for (int stage = 0; stage < b->s.stages; stage++) {
        b->s.place[stage] = (uint16_t)(stage % shape->p);
        b->s.segments[stage] = 1;
    }
    return ERR_OK;
}

void sched_build_open(struct sched_build *b, const char *name, const struct sched_shape *shape)
{
    *b = (struct sched_build){.rank = -1};
    snprintf(b->s.name, sizeof b->s.name, "%s", name);
    b->s.p = shape->p;
    b->s.m = shape->m;
    b->s.v = shape->v;
    b->s.stages = shape->p * shape->v;
    b->s.replicas = 1;
    b->s.slices = 1;
    b->err = make_tables(b, shape);
}

void sched_build_replicas(struct sched_build *b, int replicas)
{
    int64_t stages = b->s.stages;
    if (b->err == ERR_OK)
        b->err = mem_grow(b->s.replicas * stages, replicas * stages, sizeof *b->s.place,
                          "schedule placement", &b->s.place);
    if (b->err == ERR_OK)
        b->s.replicas = replicas;
}

void sched_build_zigzag(struct sched_build *b)
{
    int p = b->s.p;
    for (int stage = 0; b->err == ERR_OK && stage < b->s.stages; stage++)
        b->s.place[stage] = (uint16_t)(stage / p % 2 == 0 ? stage % p : p - 1 - stage % p);
}

void sched_build_from(struct sched_build *b, const struct sched *from)
{
    sched_build_open(b, from->name, &(struct sched_shape){from->p, from->m, from->v, 0});
    sched_build_replicas(b, from->replicas);
    if (b->err != ERR_OK)
        return;
    b->s.slices = from->slices;
    b->s.forward_only = from->forward_only;
    b->s.lowered = from->lowered;
    memcpy(b->s.passed, from->passed, sizeof b->s.passed);
    memcpy(b->s.place, from->place,
           (size_t)(from->replicas * from->stages) * sizeof *from->place);
    memcpy(b->s.way, from->way, (size_t)from->m);
    memcpy(b->s.segments, from->segments, (size_t)from->stages);
}

void sched_build_mirror(struct sched_build *b)
{
    int stages = b->s.stages, m = b->s.m;
    sched_build_replicas(b, 2);
    if (b->err != ERR_OK)
        return;
    for (int stage = 0; stage < stages; stage++)
        b->s.place[stages + stage] = (uint16_t)(b->s.p - 1 - b->s.place[stage]);
    for (int mb = m - m / 2; mb < m; mb++)
        b->s.way[mb] = 1;
}

void sched_build_rank(struct sched_build *b)
{
    b->rank++;
    if (b->err == ERR_OK)
        b->s.begin[b->rank] = b->n;
}

void sched_build_copy(struct sched_build *b, struct sched_instr in)
{
    if (b->err != ERR_OK)
        return;
    if (b->n == b->cap) {
        int64_t cap = num_max(1024, 2 * b->cap);
        b->err = mem_grow(b->cap, cap, sizeof *b->s.instr, "schedule instructions", &b->s.instr);
        if (b->err != ERR_OK)
            return;
        b->cap = cap;
    }
    in.peer = (uint16_t)sched_peer(&b->s, in, b->rank);
    b->s.instr[b->n++] = in;
}

void sched_build_add(struct sched_build *b, enum sched_op op, int stage, int mb)
{
    sched_build_copy(b, (struct sched_instr){.op = (uint8_t)op, .stage = (uint16_t)stage,
                                             .mb = (uint16_t)mb});
}

enum err sched_build_done(struct sched_build *b, struct sched *out)
{
    if (b->err != ERR_OK) {
        sched_free(&b->s);
        return b->err;
    }
    ENSURE(b->rank == b->s.p - 1);
    b->s.begin[b->s.p] = b->n;
    *out = b->s;
    return ERR_OK;
}
