/* SPDX-License-Identifier: Apache-2.0
 *
 * The clock. The schedule's own machine (sched_walk) takes up the ranks; here each instruction gets
 * its times when it is taken up, because everything it waits for has been taken up before:
 *
 *     start of F, B, I = max(the rank is free, its input is there)
 *     start of W, R    = the rank is free
 *     end              = start + time of the instruction on this stage + what of the collectives
 *                        inside it nothing hides
 *     input is there   = end of the neighbour stage on the same rank,
 *                        or arrival of its message from another one
 *     message leaves   = max(moment of its SEND, the link is free)
 *     message is there = leaves + bytes / bandwidth + latency, and fetch after it is asked for
 *
 * A pair is one instruction here: it starts when both inputs are there and delivers both results at
 * its end. Its halves, which follow in the list, are passed over.
 *
 * Sending and receiving take no time of the rank: messages move while it computes. A link belongs
 * to one sender, who runs its list in order, so that its messages queue in the order of their SENDs
 * and no other rank need be asked. What is not in the model: two links that share a wire.
 *
 * The idle time before an instruction is split in two: until its input was made (waiting, which a
 * better order could mend) and from then until the message was there (which a better network
 * could).
 *
 * There is no queue of events. Times need no sorting, since an instruction's time depends on its
 * inputs alone and not on the order in which ranks are looked at.
 */
#include "sim/sim.h"

#include "base/mem.h"
#include "base/num.h"

/* An input: when it was made and when it is there; negative: not yet known. */
struct input { double made, there; };

/* The way from one rank to another. */
struct link {
    int to, next; /* of this rank, 1 + its place; 0: none */
    double free;
};

struct play {
    const struct sched *s;
    struct sim_result *r;
    const struct sim_cost *cost; /* borrowed */
    double (*time)[SCHED_COMPUTE_OPS]; /* owned; [stages] of F, B, I, W, R */
    double overlap;              /* time of a pair as a share of its halves' apart */
    bool pairs;                  /* are there any? */
    double *clock;               /* owned; [p] when the rank is free */
    struct input *ready[2];      /* owned; [stages * m] the activation, the gradient for it */
    int *first_link;             /* owned; [p] 1 + a rank's first; 0: none */
    struct link *link;           /* owned; [instructions], of which there are: */
    int links;
    /* Where the end of the step has costs, else NULL: */
    double *engine;              /* owned; [p] when a rank's own sums and gathers are through */
    double *met[2];              /* owned; [replicas * stages] when a rank came to EMBED_REDUCE,
                                    REPLICA_REDUCE; < 0: it has not */
    int64_t *norm;               /* owned; [p] the rank's NORM; -1: it has not come to one */
};

static void note(struct play *k, int64_t i, double start, double end)
{
    if (k->r->event)
        k->r->event[i] = (struct sim_event){start, end};
}

/* The stage that this instruction's result goes to. */
static int next_stage(struct sched_instr in)
{
    return sim_way(in.op) == 0 ? in.stage + 1 : in.stage - 1;
}

static struct input *input_at(const struct play *k, int way, int stage, int mb)
{
    return &k->ready[way][(int64_t)stage * k->s->m + mb];
}

/* A result becomes the input of a stage on the same rank. */
static void deliver(struct play *k, struct sched_instr in, double made)
{
    const struct sched *s = k->s;
    int to = next_stage(in);
    if (to >= 0 && to < s->stages &&
        sched_rank_of(s, to, in.mb) == sched_rank_of(s, in.stage, in.mb))
        *input_at(k, sim_way(in.op), to, in.mb) = (struct input){made, made};
}

/* The rank works for `time` from when it is free and the input is there. */
static struct sim_event work(struct play *k, int rank, struct input from, double time)
{
    double now = k->clock[rank], start = fmax(from.there, now), end = start + time;
    if (start > now) {
        double until = fmin(fmax(from.made, now), start);
        k->r->waiting[rank] += until - now;
        k->r->message[rank] += start - until;
    }
    if (k->r->first[rank] < 0)
        k->r->first[rank] = start;
    k->r->last[rank] = end;
    k->r->busy[rank] += time;
    k->clock[rank] = end;
    return (struct sim_event){start, end};
}

/* What the collectives inside an action add to its time. */
static double exposed(struct play *k, int rank, int64_t i)
{
    if (!k->cost->inside)
        return 0;
    k->r->inside[rank] += k->cost->inside[i].all;
    k->r->inside_exposed[rank] += k->cost->inside[i].exposed;
    return k->cost->inside[i].exposed;
}

static void compute(struct play *k, int rank, int64_t i, struct input from)
{
    struct sched_instr in = k->s->instr[i];
    double even = 1.0 / k->s->segments[in.stage];
    double share = in.seg == 0 ? 1 : k->cost->each ? k->cost->each[i] : even;
    struct sim_event e = work(k, rank, from,
                              share * k->time[in.stage][in.op] + exposed(k, rank, i));
    k->r->actions += sched_ends_stage(in);
    if (in.op < SCHED_W && sched_ends_stage(in))
        deliver(k, in, e.end);
    note(k, i, e.start, e.end);
}

static void compute_pair(struct play *k, int rank, int64_t i, struct input from)
{
    const struct sched_instr *in = &k->s->instr[i];
    double apart = k->time[in[1].stage][in[1].op] + k->time[in[2].stage][in[2].op];
    double said = exposed(k, rank, i + 1) + exposed(k, rank, i + 2);
    struct sim_event e = work(k, rank, from, k->overlap * apart + said);
    k->r->actions++;
    for (int j = 0; j < 3; j++) {
        if (j > 0)
            deliver(k, in[j], e.end);
        note(k, i + j, e.start, e.end);
    }
}

double sim_wire(const struct sim_cost *c, int64_t i)
{
    if (c->bytes == 0)
        return c->each ? c->each[i] : 0;
    return c->bandwidth > 0 ? c->bytes / c->bandwidth : 0;
}

static void send(struct play *k, int rank, int64_t i)
{
    struct sched_instr in = k->s->instr[i];
    double wire = sim_wire(k->cost, i), now = k->clock[rank], end = now + wire;
    if (wire > 0) { /* a rank sends to few others, so its links are a short list */
        int at = k->first_link[rank];
        while (at > 0 && k->link[at - 1].to != in.peer)
            at = k->link[at - 1].next;
        if (at == 0) {
            k->link[k->links++] = (struct link){.to = in.peer, .next = k->first_link[rank]};
            at = k->first_link[rank] = k->links;
        }
        struct link *l = &k->link[at - 1];
        end = (l->free > now ? l->free : now) + wire;
        l->free = end;
        k->r->sending[rank] += wire;
    }
    end += k->cost->latency;
    *input_at(k, sim_way(in.op), next_stage(in), in.mb) = (struct input){now, end};
    note(k, i, now, end);
}

/* The input of this instruction; at 0 when it has none. False: it is not known yet, and the rank to
 * wait for is in *rank. */
static bool arrival(const struct play *k, struct sched_instr in, struct input *out, int *rank)
{
    bool needs = in.op < SCHED_W || in.op == SCHED_RECV_F || in.op == SCHED_RECV_B;
    int way = sim_way(in.op), from = way == 0 ? in.stage - 1 : in.stage + 1;
    *out = (struct input){0, 0};
    if (!needs || from < 0 || from == k->s->stages)
        return true;
    *out = *input_at(k, way, in.stage, in.mb);
    if (out->there < 0)
        *rank = sched_rank_of(k->s, from, in.mb);
    return out->there >= 0;
}

/* Is this the F or the B behind an OVERLAP_F_B? */
static bool in_pair(const struct sched *s, int rank, int64_t i)
{
    int64_t first = s->begin[rank];
    return (i > first && s->instr[i - 1].op == SCHED_OVERLAP_F_B) ||
           (i > first + 1 && s->instr[i - 2].op == SCHED_OVERLAP_F_B);
}

/* ---- the end of a step ----
 * A rank has an engine of its own for sums and gathers, which takes them in their order and
 * computes nothing; what the engine still has to do when a rank comes to WAIT is the part of it
 * that is not hidden. Where nothing overlaps, it begins there. All ranks meet at NORM, behind which
 * nothing waits for a message: so it is played when the lists before it are. */

/* Beside the rank's work, behind what its engine has. */
static void start(struct play *k, int rank, int64_t i)
{
    double *engine = &k->engine[rank], now = k->clock[rank];
    double begin = *engine > now ? *engine : now;
    *engine = begin + k->cost->each[i];
    k->r->sums[rank] += k->cost->each[i];
    note(k, i, begin, *engine);
}

static void wait(struct play *k, int rank, int64_t i)
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

/* Two ranks sum as one when both have come. */
static int meet(struct play *k, int rank, int64_t i)
{
    struct sched_instr in = k->s->instr[i];
    bool replicas = in.op == SCHED_REPLICA_REDUCE;
    double *met = k->met[replicas], now = k->clock[rank];
    int own = replicas ? sched_stage_replica_on(k->s, in.stage, rank) : in.stage;
    int other = replicas ? sched_stage_replica_on(k->s, in.stage, in.peer)
                         : in.stage == 0 ? k->s->stages - 1 : 0;
    met[own] = now;
    if (met[other] < 0)
        return in.peer;
    k->clock[rank] = (met[other] > now ? met[other] : now) + k->cost->each[i];
    k->r->meeting[rank] += k->clock[rank] - now;
    note(k, i, now, k->clock[rank]);
    return -1;
}

/* Takes up an instruction that is no action and no message, where such have costs. -1: it has its
 * times; else the rank it waits for. */
static int take_end(struct play *k, int rank, int64_t i)
{
    int op = k->s->instr[i].op;
    if (k->norm[rank] >= 0)
        return -1;
    if (op == SCHED_EMBED_REDUCE || op == SCHED_REPLICA_REDUCE)
        return meet(k, rank, i);
    if (op == SCHED_NORM)
        k->norm[rank] = i;
    else if (op == SCHED_WAIT)
        wait(k, rank, i);
    else if (op != SCHED_REDUCE && op != SCHED_GATHER)
        note(k, i, k->clock[rank], k->clock[rank]);
    else if (k->cost->overlaps)
        start(k, rank, i);
    return -1;
}

/* Behind the lists: NORM, at which all meet, and what follows it on a rank. */
static void finish(struct play *k, int rank, double all)
{
    int64_t norm = k->norm[rank];
    note(k, norm, k->clock[rank], all + k->cost->each[norm]);
    k->r->meeting[rank] += all + k->cost->each[norm] - k->clock[rank];
    k->clock[rank] = all + k->cost->each[norm];
    for (int64_t i = norm + 1; i < k->s->begin[rank + 1]; i++) {
        int op = k->s->instr[i].op;
        if (op == SCHED_WAIT) {
            wait(k, rank, i);
        } else if (op != SCHED_GATHER) { /* the rank itself works on it */
            double now = k->clock[rank];
            k->clock[rank] = now + k->cost->each[i];
            k->r->updating[rank] += k->cost->each[i];
            note(k, i, now, k->clock[rank]);
        } else if (k->cost->overlaps) {
            start(k, rank, i);
        }
    }
}

/* ---- all ---- */

static int step(void *arg, int rank, int64_t i)
{
    struct play *k = arg;
    const struct sched_instr *in = &k->s->instr[i];
    struct input input, other;
    double now = k->clock[rank];
    int wait = -1;
    if (in->op == SCHED_OVERLAP_F_B) {
        if (!arrival(k, in[1], &input, &wait) || !arrival(k, in[2], &other, &wait))
            return wait;
        compute_pair(k, rank, i, input.there > other.there ? input : other);
        return -1;
    }
    if (k->pairs && in->op <= SCHED_B && in_pair(k->s, rank, i))
        return -1;
    if (!arrival(k, *in, &input, &wait))
        return wait;
    if (k->cost->fetch > 0 && (in->op == SCHED_RECV_F || in->op == SCHED_RECV_B)) {
        double fetched = k->clock[rank] + k->cost->fetch; /* by the rank that asks for it now */
        input.there = fmax(input.there, fetched);
        input_at(k, sim_way(in->op), in->stage, in->mb)->there = input.there;
    }
    if (in->op < SCHED_COMPUTE_OPS)
        compute(k, rank, i, input);
    else if (in->op == SCHED_SEND_F || in->op == SCHED_SEND_B)
        send(k, rank, i);
    else if (k->cost->each && in->op >= SCHED_REDUCE)
        return take_end(k, rank, i);
    else /* a receive lasts until the message is there, and does not move the rank's clock */
        note(k, i, now, fmax(now, input.there));
    return -1;
}

static bool is_time(double t)
{
    return t >= 0 && t <= 1e100;
}

static enum err check_cost(const struct sched *s, const struct sim_cost *c)
{
    const struct { const char *name; double value; } cost[] = {
        {"tf", c->tf}, {"tb", c->tb}, {"ti", c->ti}, {"tw", c->tw}, {"tr", c->tr},
        {"latency", c->latency}, {"tov", c->tov}};
    const double *const scale[] = {c->stage_scale, c->recompute_scale};
    for (int i = 0; i < 7; i++)
        if (!is_time(cost[i].value))
            FAIL(ERR_CONFIG, "simulation: %s %g is not a time; use 0 to 1e100", cost[i].name,
                 cost[i].value);
    if (!is_time(c->bandwidth) || !is_time(c->bytes))
        FAIL(ERR_CONFIG, "simulation: messages of %g bytes at %g bytes a unit of time cannot be; "
                         "use 0 to 1e100", c->bytes, c->bandwidth);
    for (int stage = 0; c->stage_time && stage < s->stages; stage++)
        for (int op = 0; op < SCHED_COMPUTE_OPS; op++)
            if (!is_time(c->stage_time[stage][op]))
                FAIL(ERR_CONFIG, "simulation: %g is not a time of %s on stage %d; use 0 to 1e100",
                     c->stage_time[stage][op], sched_op_name((enum sched_op)op), stage);
    for (int64_t i = 0; c->each && i < s->begin[s->p]; i++)
        if (!is_time(c->each[i]))
            FAIL(ERR_CONFIG, "simulation: %g is not a time of %s; use 0 to 1e100", c->each[i],
                 sched_op_name((enum sched_op)s->instr[i].op));
    for (int64_t i = 0; c->inside && i < s->begin[s->p]; i++)
        if (!(is_time(c->inside[i].all) && is_time(c->inside[i].exposed) &&
              c->inside[i].exposed <= c->inside[i].all))
            FAIL(ERR_CONFIG, "simulation: collectives of %g, of which %g is exposed, are no times "
                             "inside an action; use 0 to 1e100", c->inside[i].all,
                 c->inside[i].exposed);
    for (int k = 0; k < 2; k++)
        for (int stage = 0; scale[k] && stage < s->stages; stage++)
            if (!is_time(scale[k][stage]))
                FAIL(ERR_CONFIG, "simulation: scale %g of stage %d is not a factor; use 0 to "
                                 "1e100", scale[k][stage], stage);
    return ERR_OK;
}

void sim_times(const struct sched *s, const struct sim_cost *c, double (*time)[SCHED_COMPUTE_OPS])
{
    const double uniform[SCHED_COMPUTE_OPS] = {c->tf, c->tb, c->ti, c->tw, c->tr};
    for (int stage = 0; stage < s->stages; stage++) {
        for (int op = 0; op < SCHED_COMPUTE_OPS; op++) {
            bool again = op == SCHED_R && c->recompute_scale;
            const double *by = again ? c->recompute_scale : c->stage_scale;
            double scaled = uniform[op] * (by ? by[stage] : 1);
            time[stage][op] = c->stage_time ? c->stage_time[stage][op] : scaled;
        }
    }
}

static enum err prepare(struct play *k, const struct sched_report *report, bool keep_events)
{
    const struct sched *s = k->s;
    struct sim_result *r = k->r;
    int64_t units = (int64_t)s->stages * s->m, instrs = s->begin[s->p];
    double **by_rank[] = {&r->busy, &r->first, &r->last, &r->waiting, &r->message, &r->sending,
                          &r->sums, &r->exposed, &r->meeting, &r->updating, &r->inside,
                          &r->inside_exposed};
    *r = (struct sim_result){.p = s->p, .peak = report->peak, .full_peak = report->full_peak};
    TRY(mem_new((int64_t)s->p * 12, sizeof *r->busy, "simulation", &r->busy));
    for (int i = 0; i < 12; i++)
        *by_rank[i] = r->busy + (int64_t)i * s->p;
    if (keep_events)
        TRY(mem_new(instrs, sizeof *r->event, "simulation events", &r->event));
    TRY(mem_new(s->p, sizeof *k->clock, "simulation", &k->clock));
    for (int way = 0; way < 2; way++) {
        TRY(mem_new(units, sizeof *k->ready[way], "simulation", &k->ready[way]));
        for (int64_t i = 0; i < units; i++)
            k->ready[way][i].there = -1;
    }
    for (int rank = 0; rank < s->p; rank++)
        r->first[rank] = -1;
    TRY(mem_new(s->stages, sizeof *k->time, "simulation", &k->time));
    sim_times(s, k->cost, k->time);
    if (k->cost->each || sim_wire(k->cost, 0) > 0) { /* messages may occupy links */
        TRY(mem_new(s->p, sizeof *k->first_link, "simulation links", &k->first_link));
        TRY(mem_new(instrs, sizeof *k->link, "simulation links", &k->link));
    }
    if (!k->cost->each)
        return ERR_OK;
    TRY(mem_new(s->p, sizeof *k->engine, "simulation", &k->engine));
    TRY(mem_new(s->p, sizeof *k->norm, "simulation", &k->norm));
    for (int rank = 0; rank < s->p; rank++)
        k->norm[rank] = -1;
    for (int i = 0; i < 2; i++) {
        TRY(mem_new(s->replicas * s->stages, sizeof *k->met[i], "simulation", &k->met[i]));
        for (int h = 0; h < s->replicas * s->stages; h++)
            k->met[i][h] = -1;
    }
    return ERR_OK;
}

/* What follows when all lists have ended. */
static void add_up(struct play *k)
{
    struct sim_result *r = k->r;
    double busy = 0, all = 0;
    bool steps = k->cost->each;
    for (int rank = 0; rank < r->p; rank++) {
        busy += r->busy[rank];
        r->makespan = fmax(r->makespan, r->last[rank]);
        r->cost = fmax(r->cost, r->last[rank] - r->first[rank]);
        all = k->clock[rank] > all ? k->clock[rank] : all;
        steps = steps && k->norm[rank] >= 0;
    }
    r->bubble_fraction = r->makespan > 0 ? 1 - busy / (r->p * r->makespan) : 0;
    r->bubble_rate = r->cost > 0 ? 1 - busy / (r->p * r->cost) : 0;
    for (int rank = 0; k->cost->each && rank < r->p; rank++) {
        if (steps)
            finish(k, rank, all);
        r->step = fmax(r->step, k->clock[rank]);
    }
}

enum err sim_run(const struct sched *s, const struct sched_report *r, const struct sim_cost *c,
                 bool keep_events, struct sim_result *out)
{
    struct sim_result result;
    struct play k = {.s = s, .r = &result, .cost = c, .pairs = sched_has(s, SCHED_OVERLAP_F_B),
                     .overlap = c->tov > 0 && c->tf + c->tb > 0 ? c->tov / (c->tf + c->tb) : 1};
    struct sched_walk walk = {0};
    if (!s->lowered || !s->checked)
        FAIL(ERR_INTERNAL, "simulation: schedule %s is not %s", s->name,
             s->lowered ? "checked" : "lowered");
    TRY(check_cost(s, c));
    enum err err = prepare(&k, r, keep_events);
    if (err == ERR_OK)
        err = sched_walk_open(&walk, s);
    walk.step = step;
    walk.arg = &k;
    if (err == ERR_OK) {
        bool ended = sched_walk_run(&walk);
        ENSURE(ended); /* rule V7 */
        add_up(&k);
    }
    sched_walk_close(&walk);
    void *const owned[] = {k.time, k.first_link, k.link, k.clock, k.ready[0], k.ready[1], k.engine,
                           k.norm, k.met[0], k.met[1]};
    for (int i = 0; i < 10; i++)
        mem_free(owned[i]);
    if (err == ERR_OK)
        *out = result;
    else
        sim_result_free(&result);
    return err;
}

void sim_result_free(struct sim_result *r)
{
    mem_free(r->busy);
    mem_free(r->event);
    *r = (struct sim_result){0};
}
