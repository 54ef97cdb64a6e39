/* SPDX-License-Identifier: Apache-2.0
 *
 * The end of a step on the clock. A rank has an engine of its own for sums and gathers, which takes
 * them in their order and computes nothing; what the engine still has to do when a rank comes to
 * WAIT is the part of it that is not hidden. Where nothing overlaps, it begins there. All ranks meet at NORM, behind which nothing waits for
 * a message: so it is played when the lists before it are.
 */
#include "sim/sim_local.h"

#include "base/mem.h"

enum err sim_end_open(struct sim_play *k)
{
    int stage_replicas = k->s->replicas * k->s->stages;
    TRY(mem_new(k->s->p, sizeof *k->engine, "simulation", &k->engine));
    TRY(mem_new(k->s->p, sizeof *k->norm, "simulation", &k->norm));
    for (int i = 0; i < 2; i++) {
        TRY(mem_new(stage_replicas, sizeof *k->met[i], "simulation", &k->met[i]));
        for (int h = 0; h < stage_replicas; h++)
            k->met[i][h] = -1;
    }
    for (int rank = 0; rank < k->s->p; rank++)
        k->norm[rank] = -1;
    return ERR_OK;
}

void sim_end_close(struct sim_play *k)
{
    mem_free(k->engine);
    mem_free(k->norm);
    mem_free(k->met[0]);
    mem_free(k->met[1]);
}

static void note(struct sim_play *k, int64_t i, double start, double end)
{
    if (k->r->event)
        k->r->event[i] = (struct sim_event){start, end};
}

/* Beside the rank's work, behind what its engine has. */
static void start(struct sim_play *k, int rank, int64_t i)
{
    double *engine = &k->engine[rank], now = k->clock[rank];
    double begin = *engine > now ? *engine : now;
    *engine = begin + k->cost->each[i];
    k->r->sums[rank] += k->cost->each[i];
    note(k, i, begin, *engine);
}

static void wait(struct sim_play *k, int rank, int64_t i)
{
    const struct sched *s = k->s;
    double now = k->clock[rank];
    int64_t j = i;
    while (!k->cost->overlaps && j > s->begin[rank] && s->instr[j - 1].op != SCHED_WAIT)
        j--;
    for (; j < i; j++)
        if (s->instr[j].op == SCHED_REDUCE || s->instr[j].op == SCHED_GATHER)
            start(k, rank, j);
    if (k->engine[rank] > now)
        k->clock[rank] = k->engine[rank];
    k->r->exposed[rank] += k->clock[rank] - now;
    note(k, i, now, k->clock[rank]);
}

/* The rank itself works on it. */
static void work(struct sim_play *k, int rank, int64_t i)
{
    double now = k->clock[rank];
    k->clock[rank] = now + k->cost->each[i];
    k->r->updating[rank] += k->cost->each[i];
    note(k, i, now, k->clock[rank]);
}

/* Two ranks sum as one when both have come. */
static int meet(struct sim_play *k, int rank, int64_t i)
{
    struct sched_instr in = k->s->instr[i];
    double *met = k->met[in.op == SCHED_REPLICA_REDUCE], now = k->clock[rank];
    int other = in.op == SCHED_REPLICA_REDUCE ? sched_stage_replica_on(k->s, in.stage, in.peer)
                                     : in.stage == 0 ? k->s->stages - 1 : 0;
    bool replicas = in.op == SCHED_REPLICA_REDUCE;
    int own = replicas ? sched_stage_replica_on(k->s, in.stage, rank) : in.stage;
    met[own] = now;
    if (met[other] < 0)
        return in.peer;
    k->clock[rank] = (met[other] > now ? met[other] : now) + k->cost->each[i];
    k->r->meeting[rank] += k->clock[rank] - now;
    note(k, i, now, k->clock[rank]);
    return -1;
}

int sim_end_take(struct sim_play *k, int rank, int64_t i)
{
    if (k->norm[rank] >= 0)
        return -1;
    switch (k->s->instr[i].op) {
    case SCHED_NORM: k->norm[rank] = i; return -1;
    case SCHED_EMBED_REDUCE:
    case SCHED_REPLICA_REDUCE: return meet(k, rank, i);
    case SCHED_WAIT: wait(k, rank, i); return -1;
    case SCHED_REDUCE:
    case SCHED_GATHER:
        if (k->cost->overlaps)
            start(k, rank, i);
        return -1;
    default: note(k, i, k->clock[rank], k->clock[rank]); return -1;
    }
}

static void finish(struct sim_play *k, int rank, double all)
{
    int64_t norm = k->norm[rank];
    note(k, norm, k->clock[rank], all + k->cost->each[norm]);
    k->r->meeting[rank] += all + k->cost->each[norm] - k->clock[rank];
    k->clock[rank] = all + k->cost->each[norm];
    for (int64_t i = norm + 1; i < k->s->begin[rank + 1]; i++) {
        int op = k->s->instr[i].op;
        if (op == SCHED_GATHER && k->cost->overlaps)
            start(k, rank, i);
        else if (op == SCHED_WAIT)
            wait(k, rank, i);
        else if (op != SCHED_GATHER)
            work(k, rank, i);
    }
}

void sim_end_finish(struct sim_play *k)
{
    double all = 0;
    bool steps = true;
    for (int rank = 0; rank < k->s->p; rank++) {
        all = k->clock[rank] > all ? k->clock[rank] : all;
        steps = steps && k->norm[rank] >= 0;
    }
    for (int rank = 0; steps && rank < k->s->p; rank++)
        finish(k, rank, all);
    for (int rank = 0; rank < k->s->p; rank++)
        k->r->step = k->clock[rank] > k->r->step ? k->clock[rank] : k->r->step;
}
