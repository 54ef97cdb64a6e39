/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing schedules: the list grows by doubling, ranks are closed in order, peers come from the
 * placement table, so that no generator computes a neighbour. And channels of a placement.
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
    b->err = mem_new(b->s.stages, sizeof *b->s.place, "schedule placement", &b->s.place);
    if (b->err == ERR_OK)
        b->err = mem_new(b->s.m, sizeof *b->s.way, "schedule placement", &b->s.way);
    if (b->err == ERR_OK)
        b->err = mem_new(b->s.stages, sizeof *b->s.segments, "schedule placement", &b->s.segments);
    if (b->err == ERR_OK)
        b->err = mem_new(b->s.p + 1, sizeof *b->s.begin, "schedule ranks", &b->s.begin);
    for (int stage = 0; b->err == ERR_OK && stage < b->s.stages; stage++) {
        b->s.place[stage] = (uint16_t)(stage % shape->p);
        b->s.segments[stage] = 1;
    }
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

void sched_build_line(struct sched_build *b, int warm, int late)
{
    int m = b->s.m;
    sched_build_rank(b);
    for (int mb = 0; mb < num_min(warm, m); mb++)
        sched_build_add(b, SCHED_F, b->rank, mb);
    for (int mb = 0; mb < m; mb++) {
        if (warm + mb < m)
            sched_build_add(b, SCHED_F, b->rank, warm + mb);
        sched_build_add(b, late < 0 ? SCHED_B : SCHED_I, b->rank, mb);
        if (late >= 0 && mb >= late)
            sched_build_add(b, SCHED_W, b->rank, mb - late);
    }
    for (int mb = (int)num_max(0, m - late); late > 0 && mb < m; mb++)
        sched_build_add(b, SCHED_W, b->rank, mb);
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

/* ---- channels ----
 * Two stage boundaries share one when they join the same two ranks in the same direction with the
 * same kind of message. The kind is in the key: activations and gradients of two ranks that are
 * both each other's next and previous (p = 2 with v > 1) are then never taken for one another. */

/* The neighbour of a stage in the row `place`. */
static int neighbour(const struct sched *s, const uint16_t *place, int kind, int stage)
{
    int to = kind == 0 ? stage + 1 : stage - 1;
    return to < 0 || to >= s->stages || place[to] == place[stage] ? -1 : to;
}

int sched_sent_to(const struct sched *s, int kind, int stage, int mb)
{
    return neighbour(s, s->place + sched_stage_replica(s, 0, mb), kind, stage);
}

enum err sched_channels_make(const struct sched *s, struct sched_channels *out)
{
    struct channel { int kind, from, next; } *channel; /* those to one rank are a list */
    int *head, stage_replicas = s->replicas * s->stages;     /* [p] 1 + the first to this rank */
    enum err err = ERR_OK;
    *out = (struct sched_channels){0};
    TRY(mem_new(s->p, sizeof *head, "channels", &head));
    TRY_OR(out_head, mem_new(2 * stage_replicas, sizeof *channel, "channels", &channel));
    TRY_OR(out_channel, mem_new(2 * stage_replicas, sizeof *out->of, "channels", &out->of));
    for (int i = 0; i < 2 * stage_replicas; i++)
        out->of[i] = -1;
    for (int kind = 0; kind < 2; kind++)
        for (int h = 0; h < stage_replicas; h++) {
            const uint16_t *place = s->place + h / s->stages * s->stages;
            int to = neighbour(s, place, kind, h % s->stages), from = s->place[h];
            if (to < 0)
                continue;
            int *first = &head[place[to]], c = *first - 1;
            while (c >= 0 && (channel[c].kind != kind || channel[c].from != from))
                c = channel[c].next - 1;
            if (c < 0) {
                c = out->n++;
                channel[c] = (struct channel){kind, from, *first};
                *first = out->n;
            }
            out->of[kind * stage_replicas + h - h % s->stages + to] = c;
        }
out_channel:
    mem_free(channel);
out_head:
    mem_free(head);
    return err;
}

void sched_channels_free(struct sched_channels *c)
{
    mem_free(c->of);
    *c = (struct sched_channels){0};
}
