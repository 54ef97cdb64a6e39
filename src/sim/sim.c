/* SPDX-License-Identifier: Apache-2.0
 *
 * The clock. The schedule's own machine (sched_walk) takes up the ranks; here each instruction gets
 * its times when it is taken up, because everything it waits for has been taken up before:
 *
 *     start of F, B, I = max(the rank is free, its input is there)
 *     end              = start + time of the instruction on this stage
 *     input is there   = end of the neighbour stage on the same rank,
 *                        or the moment of its SEND + latency from another one
 *
 * A pair is one instruction here: it starts when both inputs are there and delivers both results at
 * its end. Its halves, which follow in the list, are passed over.
 *
 * Sending and receiving take no time of the rank: messages move while it computes. What a real link
 * adds to that (bandwidth, two messages on one wire) is not in the model; latency is.
 *
 * There is no queue of events. Times need no sorting, since an instruction's time depends on its
 * inputs alone and not on the order in which ranks are looked at.
 */
#include "sim/sim.h"

#include "base/mem.h"

struct play {
    const struct sched *s;
    struct sim_result *r;
    const double *scale; /* borrowed; NULL: all 1 */
    bool pairs;          /* are there any? */
    double time[4];      /* of F, B, I, W */
    double latency;
    double overlap;   /* time of a pair as a share of its halves' apart */
    double *clock;    /* owned; [p] when the rank is free */
    double *ready[2]; /* owned; [stages * m] when the activation, the gradient for it is there;
                         negative: not yet known */
};

/* The stage whose F, B or I makes the input of this one; -1: none. */
static int input_stage(const struct sched *s, struct sched_instr in)
{
    if (in.op == SCHED_F || in.op == SCHED_RECV_F)
        return in.stage - 1;
    return in.stage + 1 < s->stages ? in.stage + 1 : -1;
}

/* Which of the two arrays an instruction reads or fills. */
static int kind_of(uint16_t op)
{
    return op == SCHED_F || op == SCHED_SEND_F || op == SCHED_RECV_F ? 0 : 1;
}

/* A result becomes the input of the stage it goes to. */
static void deliver(struct play *k, struct sched_instr in, double when)
{
    int to = kind_of(in.op) == 0 ? in.stage + 1 : in.stage - 1;
    k->ready[kind_of(in.op)][(int64_t)to * k->s->m + in.mb] = when;
}

/* Is the stage that gets this instruction's result on the same rank? */
static bool stays(const struct sched *s, struct sched_instr in)
{
    int to = kind_of(in.op) == 0 ? in.stage + 1 : in.stage - 1;
    return to >= 0 && to < s->stages &&
           sched_rank_of(s, to, in.mb) == sched_rank_of(s, in.stage, in.mb);
}

static double time_of(const struct play *k, struct sched_instr in)
{
    return k->time[in.op] * (k->scale ? k->scale[in.stage] : 1.0);
}

/* The rank works for `time` from when it is free and `from` is past. */
static struct sim_event work(struct play *k, int rank, double from, double time)
{
    double start = from > k->clock[rank] ? from : k->clock[rank];
    double end = start + time;
    if (k->r->first[rank] < 0)
        k->r->first[rank] = start;
    k->r->last[rank] = end;
    k->r->busy[rank] += time;
    k->r->actions++;
    k->clock[rank] = end;
    return (struct sim_event){start, end};
}

static void compute(struct play *k, int rank, int64_t i, double from)
{
    struct sched_instr in = k->s->instr[i];
    struct sim_event e = work(k, rank, from, time_of(k, in));
    if (in.op != SCHED_W && stays(k->s, in))
        deliver(k, in, e.end);
    if (k->r->event)
        k->r->event[i] = e;
}

static void compute_pair(struct play *k, int rank, int64_t i, double from)
{
    const struct sched_instr *in = &k->s->instr[i];
    struct sim_event e = work(k, rank, from, k->overlap * (time_of(k, in[1]) + time_of(k, in[2])));
    for (int half = 1; half <= 2; half++)
        if (stays(k->s, in[half]))
            deliver(k, in[half], e.end);
    for (int j = 0; j < 3 && k->r->event; j++)
        k->r->event[i + j] = e;
}

/* Sends last while the message is on its way, receives from the time the rank asks until it is
 * there; neither moves the rank's clock. The rest is an instant. */
static void other(struct play *k, int rank, int64_t i, double arrives)
{
    struct sched_instr in = k->s->instr[i];
    double now = k->clock[rank], end = now;
    if (in.op == SCHED_SEND_F || in.op == SCHED_SEND_B) {
        end = now + k->latency;
        deliver(k, in, end);
    } else if (arrives > now) {
        end = arrives;
    }
    if (k->r->event)
        k->r->event[i] = (struct sim_event){now, end};
}

/* When the input of this instruction is there; 0 when it has none. -1: it is not known yet, and the
 * rank to wait for is in *rank. */
static double arrival(const struct play *k, struct sched_instr in, int *rank)
{
    bool needs = in.op == SCHED_F || in.op == SCHED_B || in.op == SCHED_I ||
                 in.op == SCHED_RECV_F || in.op == SCHED_RECV_B;
    int from = needs ? input_stage(k->s, in) : -1;
    if (from < 0)
        return 0;
    double arrives = k->ready[kind_of(in.op)][(int64_t)in.stage * k->s->m + in.mb];
    if (arrives < 0)
        *rank = sched_rank_of(k->s, from, in.mb);
    return arrives;
}

/* Is this the F or the B behind an OV? */
static bool in_pair(const struct sched *s, int rank, int64_t i)
{
    int64_t first = s->begin[rank];
    return (i > first && s->instr[i - 1].op == SCHED_OV) ||
           (i > first + 1 && s->instr[i - 2].op == SCHED_OV);
}

static int step_pair(struct play *k, int rank, int64_t i)
{
    int wait = -1;
    double f = arrival(k, k->s->instr[i + 1], &wait);
    double b = wait < 0 ? arrival(k, k->s->instr[i + 2], &wait) : 0;
    if (wait < 0)
        compute_pair(k, rank, i, f > b ? f : b);
    return wait;
}

static int step(void *arg, int rank, int64_t i)
{
    struct play *k = arg;
    struct sched_instr in = k->s->instr[i];
    int wait = -1;
    if (in.op == SCHED_OV)
        return step_pair(k, rank, i);
    if (k->pairs && in.op <= SCHED_B && in_pair(k->s, rank, i))
        return -1;
    double arrives = arrival(k, in, &wait);
    if (wait >= 0)
        return wait;
    if (in.op <= SCHED_W)
        compute(k, rank, i, arrives);
    else
        other(k, rank, i, arrives);
    return -1;
}

static enum err check_cost(const struct sched *s, const struct sim_cost *c)
{
    const struct {
        const char *name;
        double value;
    } cost[] = {
        {"tf", c->tf}, {"tb", c->tb},           {"ti", c->ti},
        {"tw", c->tw}, {"latency", c->latency}, {"tov", c->tov},
    };
    for (int i = 0; i < 6; i++)
        if (!(cost[i].value >= 0 && cost[i].value <= 1e100))
            FAIL(ERR_CONFIG, "simulation: %s %g is not a time; use 0 to 1e100", cost[i].name,
                 cost[i].value);
    for (int stage = 0; c->stage_scale && stage < s->stages; stage++)
        if (!(c->stage_scale[stage] >= 0 && c->stage_scale[stage] <= 1e100))
            FAIL(ERR_CONFIG, "simulation: scale %g of stage %d is not a factor; use 0 to 1e100",
                 c->stage_scale[stage], stage);
    return ERR_OK;
}

static enum err prepare(struct play *k, const struct sched_report *report, bool keep_events)
{
    const struct sched *s = k->s;
    struct sim_result *r = k->r;
    int64_t units = (int64_t)s->stages * s->m;
    r->p = s->p;
    TRY(mem_new(s->p, sizeof *r->busy, "simulation", &r->busy));
    TRY(mem_new(s->p, sizeof *r->first, "simulation", &r->first));
    TRY(mem_new(s->p, sizeof *r->last, "simulation", &r->last));
    TRY(mem_new(s->p, sizeof *r->peak, "simulation", &r->peak));
    TRY(mem_new(s->p, sizeof *k->clock, "simulation", &k->clock));
    if (keep_events)
        TRY(mem_new(s->begin[s->p], sizeof *r->event, "simulation events", &r->event));
    for (int kind = 0; kind < 2; kind++) {
        TRY(mem_new(units, sizeof *k->ready[kind], "simulation", &k->ready[kind]));
        for (int64_t i = 0; i < units; i++)
            k->ready[kind][i] = -1;
    }
    for (int rank = 0; rank < s->p; rank++) {
        r->first[rank] = -1;
        r->peak[rank] = report->peak[rank];
    }
    return ERR_OK;
}

static void add_up(struct sim_result *r)
{
    double busy = 0;
    for (int rank = 0; rank < r->p; rank++) {
        double span = r->last[rank] - r->first[rank];
        busy += r->busy[rank];
        if (r->last[rank] > r->makespan)
            r->makespan = r->last[rank];
        if (span > r->cost)
            r->cost = span;
    }
    r->bubble_fraction = r->makespan > 0 ? 1 - busy / (r->p * r->makespan) : 0;
}

static enum err play(struct play *k, const struct sched_report *report, bool keep_events)
{
    struct sched_walk walk = {0};
    TRY(prepare(k, report, keep_events));
    enum err err = sched_walk_open(&walk, k->s);
    walk.step = step;
    walk.arg = k;
    if (err == ERR_OK) {
        bool ended = sched_walk_run(&walk);
        ENSURE(ended); /* rule V7 */
        add_up(k->r);
    }
    sched_walk_close(&walk);
    return err;
}

enum err sim_run(const struct sched *s, const struct sched_report *r, const struct sim_cost *c,
                 bool keep_events, struct sim_result *out)
{
    struct sim_result result = {0};
    if (!s->lowered || !s->checked)
        FAIL(ERR_INTERNAL, "simulation: schedule %s is not %s", s->name,
             s->lowered ? "checked" : "lowered");
    TRY(check_cost(s, c));
    struct play k = {
        .s = s,
        .r = &result,
        .scale = c->stage_scale,
        .time = {c->tf, c->tb, c->ti, c->tw},
        .latency = c->latency,
        .overlap = c->tov > 0 && c->tf + c->tb > 0 ? c->tov / (c->tf + c->tb) : 1,
        .pairs = sched_has(s, SCHED_OV),
    };
    enum err err = play(&k, r, keep_events);
    mem_free(k.clock);
    mem_free(k.ready[0]);
    mem_free(k.ready[1]);
    if (err == ERR_OK)
        *out = result;
    else
        sim_result_free(&result);
    return err;
}

void sim_result_free(struct sim_result *r)
{
    mem_free(r->busy);
    mem_free(r->first);
    mem_free(r->last);
    mem_free(r->peak);
    mem_free(r->event);
    *r = (struct sim_result){0};
}
