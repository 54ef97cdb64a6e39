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
#include "sim/sim_local.h"

#include "base/mem.h"
#include "base/num.h"

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
static void deliver(struct sim_play *k, struct sched_instr in, double made, double there)
{
    int to = kind_of(in.op) == 0 ? in.stage + 1 : in.stage - 1;
    k->ready[kind_of(in.op)][(int64_t)to * k->s->m + in.mb] = (struct sim_input){made, there};
}

/* Is the stage that gets this instruction's result on the same rank? */
static bool stays(const struct sched *s, struct sched_instr in)
{
    int to = kind_of(in.op) == 0 ? in.stage + 1 : in.stage - 1;
    return to >= 0 && to < s->stages &&
           sched_rank_of(s, to, in.mb) == sched_rank_of(s, in.stage, in.mb);
}

static void count_idle(struct sim_play *k, int rank, double start, double made)
{
    double now = k->clock[rank];
    if (start <= now)
        return;
    double until = made < now ? now : made < start ? made : start;
    k->r->waiting[rank] += until - now;
    k->r->message[rank] += start - until;
}

/* The rank works for `time` from when it is free and the input is there. */
static struct sim_event work(struct sim_play *k, int rank, struct sim_input from, double time)
{
    double start = from.there > k->clock[rank] ? from.there : k->clock[rank];
    double end = start + time;
    count_idle(k, rank, start, from.made);
    if (k->r->first[rank] < 0)
        k->r->first[rank] = start;
    k->r->last[rank] = end;
    k->r->busy[rank] += time;
    k->clock[rank] = end;
    return (struct sim_event){start, end};
}

/* What the collectives inside an action add to its time. */
static double exposed(struct sim_play *k, int rank, int64_t i)
{
    if (!k->cost->inside)
        return 0;
    k->r->inside[rank] += k->cost->inside[i].all;
    k->r->inside_exposed[rank] += k->cost->inside[i].exposed;
    return k->cost->inside[i].exposed;
}

static void compute(struct sim_play *k, int rank, int64_t i, struct sim_input from)
{
    struct sched_instr in = k->s->instr[i];
    double even = 1.0 / k->s->segments[in.stage];
    double share = in.seg == 0 ? 1 : k->cost->each ? k->cost->each[i] : even;
    struct sim_event e = work(k, rank, from,
                              share * k->time[in.stage][in.op] + exposed(k, rank, i));
    k->r->actions += sched_ends_stage(in);
    if (in.op < SCHED_W && sched_ends_stage(in) && stays(k->s, in))
        deliver(k, in, e.end, e.end);
    if (k->r->event)
        k->r->event[i] = e;
}

static void compute_pair(struct sim_play *k, int rank, int64_t i, struct sim_input from)
{
    const struct sched_instr *in = &k->s->instr[i];
    double apart = k->time[in[1].stage][in[1].op] + k->time[in[2].stage][in[2].op];
    double said = exposed(k, rank, i + 1) + exposed(k, rank, i + 2);
    struct sim_event e = work(k, rank, from, k->overlap * apart + said);
    k->r->actions++;
    for (int half = 1; half <= 2; half++)
        if (stays(k->s, in[half]))
            deliver(k, in[half], e.end, e.end);
    for (int j = 0; j < 3 && k->r->event; j++)
        k->r->event[i + j] = e;
}

double sim_wire(const struct sim_cost *c, int64_t i)
{
    if (c->bytes == 0)
        return c->each ? c->each[i] : 0;
    return c->bandwidth > 0 ? c->bytes / c->bandwidth : 0;
}

/* A rank sends to few others, so its links are a short list. */
static struct sim_link *find_link(struct sim_play *k, int from, int to)
{
    int at = k->first_link[from];
    while (k->link[at].to != to)
        at = k->link[at].next;
    return &k->link[at];
}

static void send(struct sim_play *k, int rank, int64_t i)
{
    struct sched_instr in = k->s->instr[i];
    double wire = sim_wire(k->cost, i), now = k->clock[rank], end = now + wire;
    if (wire > 0) {
        struct sim_link *l = find_link(k, rank, in.peer);
        end = (l->free > now ? l->free : now) + wire;
        l->free = end;
        k->r->sending[rank] += wire;
    }
    end += k->cost->latency;
    deliver(k, in, now, end);
    if (k->r->event)
        k->r->event[i] = (struct sim_event){now, end};
}

/* Sends last until the message is there, receives from the time the rank asks until then; neither
 * moves the rank's clock. The rest is an instant. */
static void other(struct sim_play *k, int rank, int64_t i, double arrives)
{
    double now = k->clock[rank];
    if (k->r->event)
        k->r->event[i] = (struct sim_event){now, arrives > now ? arrives : now};
}

/* A message is there when it has come, and has been fetched by the rank that asks for it now. */
static void fetch(struct sim_play *k, struct sched_instr in, int rank, struct sim_input *m)
{
    double fetched = k->clock[rank] + k->cost->fetch;
    if (fetched <= m->there)
        return;
    m->there = fetched;
    k->ready[kind_of(in.op)][(int64_t)in.stage * k->s->m + in.mb].there = fetched;
}

/* The input of this instruction; at 0 when it has none. False: it is not known yet, and the rank to
 * wait for is in *rank. */
static bool arrival(const struct sim_play *k, struct sched_instr in, struct sim_input *out,
                    int *rank)
{
    bool needs = in.op == SCHED_F || in.op == SCHED_B || in.op == SCHED_I ||
                 in.op == SCHED_RECV_F || in.op == SCHED_RECV_B;
    int from = needs ? input_stage(k->s, in) : -1;
    *out = (struct sim_input){0, 0};
    if (from < 0)
        return true;
    *out = k->ready[kind_of(in.op)][(int64_t)in.stage * k->s->m + in.mb];
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

static int step_pair(struct sim_play *k, int rank, int64_t i)
{
    int wait = -1;
    struct sim_input f, b;
    if (!arrival(k, k->s->instr[i + 1], &f, &wait) || !arrival(k, k->s->instr[i + 2], &b, &wait))
        return wait;
    compute_pair(k, rank, i, f.there > b.there ? f : b);
    return -1;
}

static int step(void *arg, int rank, int64_t i)
{
    struct sim_play *k = arg;
    struct sched_instr in = k->s->instr[i];
    struct sim_input input;
    int wait = -1;
    if (in.op == SCHED_OVERLAP_F_B)
        return step_pair(k, rank, i);
    if (k->pairs && in.op <= SCHED_B && in_pair(k->s, rank, i))
        return -1;
    if (!arrival(k, in, &input, &wait))
        return wait;
    if (k->cost->fetch > 0 && (in.op == SCHED_RECV_F || in.op == SCHED_RECV_B))
        fetch(k, in, rank, &input);
    if (in.op < SCHED_COMPUTE_OPS)
        compute(k, rank, i, input);
    else if (in.op == SCHED_SEND_F || in.op == SCHED_SEND_B)
        send(k, rank, i);
    else if (k->cost->each && in.op >= SCHED_REDUCE)
        return sim_end_take(k, rank, i);
    else
        other(k, rank, i, input.there);
    return -1;
}

static enum err check_cost(const struct sched *s, const struct sim_cost *c)
{
    const struct {
        const char *name;
        double value;
    } cost[] = {
        {"tf", c->tf}, {"tb", c->tb}, {"ti", c->ti}, {"tw", c->tw}, {"tr", c->tr},
        {"latency", c->latency}, {"tov", c->tov},
    };
    for (int i = 0; i < 7; i++)
        if (!(cost[i].value >= 0 && cost[i].value <= 1e100))
            FAIL(ERR_CONFIG, "simulation: %s %g is not a time; use 0 to 1e100", cost[i].name,
                 cost[i].value);
    if (!(c->bandwidth >= 0 && c->bandwidth <= 1e100 && c->bytes >= 0 && c->bytes <= 1e100))
        FAIL(
            ERR_CONFIG,
            "simulation: messages of %g bytes at %g bytes a unit of time cannot be; use 0 to 1e100",
            c->bytes, c->bandwidth);
    for (int stage = 0; c->stage_time && stage < s->stages; stage++)
        for (int op = 0; op < SCHED_COMPUTE_OPS; op++)
            if (!(c->stage_time[stage][op] >= 0 && c->stage_time[stage][op] <= 1e100))
                FAIL(ERR_CONFIG, "simulation: %g is not a time of %s on stage %d; use 0 to 1e100",
                     c->stage_time[stage][op], sched_op_name((enum sched_op)op), stage);
    for (int64_t i = 0; c->each && i < s->begin[s->p]; i++)
        if (!(c->each[i] >= 0 && c->each[i] <= 1e100))
            FAIL(ERR_CONFIG, "simulation: %g is not a time of %s; use 0 to 1e100", c->each[i],
                 sched_op_name((enum sched_op)s->instr[i].op));
    for (int64_t i = 0; c->inside && i < s->begin[s->p]; i++)
        if (!(c->inside[i].exposed >= 0 && c->inside[i].exposed <= c->inside[i].all &&
              c->inside[i].all <= 1e100))
            FAIL(ERR_CONFIG, "simulation: collectives of %g, of which %g is exposed, are no times "
                             "inside an action; use 0 to 1e100", c->inside[i].all,
                 c->inside[i].exposed);
    const double *const scale[] = {c->stage_scale, c->redo_scale};
    for (int k = 0; k < 2; k++)
        for (int stage = 0; scale[k] && stage < s->stages; stage++)
            if (!(scale[k][stage] >= 0 && scale[k][stage] <= 1e100))
                FAIL(ERR_CONFIG,
                     "simulation: scale %g of stage %d is not a factor; use 0 to 1e100",
                     scale[k][stage], stage);
    return ERR_OK;
}

void sim_times(const struct sched *s, const struct sim_cost *c, double (*time)[SCHED_COMPUTE_OPS])
{
    const double uniform[SCHED_COMPUTE_OPS] = {c->tf, c->tb, c->ti, c->tw, c->tr};
    for (int stage = 0; stage < s->stages; stage++) {
        for (int op = 0; op < SCHED_COMPUTE_OPS; op++) {
            const double *by = op == SCHED_R && c->redo_scale ? c->redo_scale : c->stage_scale;
            double scaled = uniform[op] * (by ? by[stage] : 1);
            time[stage][op] = c->stage_time ? c->stage_time[stage][op] : scaled;
        }
    }
}

static enum err add_link(struct sim_play *k, int from, int to)
{
    int at = k->first_link[from];
    while (at >= 0 && k->link[at].to != to)
        at = k->link[at].next;
    if (at >= 0)
        return ERR_OK;
    if (k->links == k->link_cap) {
        int64_t cap = num_max(64, 2 * k->link_cap);
        TRY(mem_grow(k->link_cap, cap, sizeof *k->link, "simulation links", &k->link));
        k->link_cap = cap;
    }
    k->link[k->links] = (struct sim_link){.to = to, .next = k->first_link[from]};
    k->first_link[from] = (int)k->links++;
    return ERR_OK;
}

/* The links that messages take, when they occupy any. */
static enum err make_links(struct sim_play *k)
{
    const struct sched *s = k->s;
    if (!k->cost->each && sim_wire(k->cost, 0) == 0)
        return ERR_OK;
    TRY(mem_new(s->p, sizeof *k->first_link, "simulation links", &k->first_link));
    for (int rank = 0; rank < s->p; rank++) {
        k->first_link[rank] = -1;
        for (int64_t i = s->begin[rank]; i < s->begin[rank + 1]; i++)
            if (s->instr[i].op == SCHED_SEND_F || s->instr[i].op == SCHED_SEND_B)
                TRY(add_link(k, rank, s->instr[i].peer));
    }
    return ERR_OK;
}

static enum err prepare(struct sim_play *k, const struct sched_report *report, bool keep_events)
{
    const struct sched *s = k->s;
    struct sim_result *r = k->r;
    int64_t units = (int64_t)s->stages * s->m;
    double **by_rank[] = {&r->busy,    &r->first,   &r->last,  &r->waiting,
                          &r->message, &r->sending, &r->sums,    &r->exposed,
                          &r->meeting, &r->updating, &r->inside, &r->inside_exposed,
                          &k->clock};
    r->p = s->p;
    for (size_t i = 0; i < sizeof by_rank / sizeof *by_rank; i++)
        TRY(mem_new(s->p, sizeof **by_rank[i], "simulation", by_rank[i]));
    TRY(mem_new(s->p, sizeof *r->peak, "simulation", &r->peak));
    TRY(mem_new(s->p, sizeof *r->full_peak, "simulation", &r->full_peak));
    if (keep_events)
        TRY(mem_new(s->begin[s->p], sizeof *r->event, "simulation events", &r->event));
    for (int kind = 0; kind < 2; kind++) {
        TRY(mem_new(units, sizeof *k->ready[kind], "simulation", &k->ready[kind]));
        for (int64_t i = 0; i < units; i++)
            k->ready[kind][i].there = -1;
    }
    for (int rank = 0; rank < s->p; rank++) {
        r->first[rank] = -1;
        r->peak[rank] = report->peak[rank];
        r->full_peak[rank] = report->full_peak[rank];
    }
    TRY(mem_new(s->stages, sizeof *k->time, "simulation", &k->time));
    sim_times(s, k->cost, k->time);
    if (k->cost->each)
        TRY(sim_end_open(k));
    return make_links(k);
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
    r->bubble_rate = r->cost > 0 ? 1 - busy / (r->p * r->cost) : 0;
}

static enum err play(struct sim_play *k, const struct sched_report *report, bool keep_events)
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
        if (k->cost->each)
            sim_end_finish(k);
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
    struct sim_play k = {
        .s = s,
        .r = &result,
        .cost = c,
        .overlap = c->tov > 0 && c->tf + c->tb > 0 ? c->tov / (c->tf + c->tb) : 1,
        .pairs = sched_has(s, SCHED_OVERLAP_F_B),
    };
    enum err err = play(&k, r, keep_events);
    mem_free(k.time);
    mem_free(k.first_link);
    mem_free(k.link);
    mem_free(k.clock);
    mem_free(k.ready[0]);
    mem_free(k.ready[1]);
    sim_end_close(&k);
    if (err == ERR_OK)
        *out = result;
    else
        sim_result_free(&result);
    return err;
}

void sim_result_free(struct sim_result *r)
{
    mem_free(r->busy);
    mem_free(r->inside);
    mem_free(r->inside_exposed);
    mem_free(r->first);
    mem_free(r->last);
    mem_free(r->waiting);
    mem_free(r->message);
    mem_free(r->sending);
    mem_free(r->sums);
    mem_free(r->exposed);
    mem_free(r->meeting);
    mem_free(r->updating);
    mem_free(r->peak);
    mem_free(r->full_peak);
    mem_free(r->event);
    *r = (struct sim_result){0};
}
