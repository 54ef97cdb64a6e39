/* SPDX-License-Identifier: Apache-2.0
 *
 * What a run took, and what the simulator says it should have taken.
 *
 * The cost of an action is the median of what it took, over microbatches, steps and replicas of the
 * pipeline: what the processor was taken away for now and then is no cost. Waiting for messages is
 * not part of it; an action's wait ends when its message is there, so where a rank did wait, the
 * time from the send to that moment is what the message took, if it waited when it was sent: GPUs
 * move a message only when both ends have come to it, and one that is fetched late is not slow.
 *
 * A step's bubble is 1 - work / (p x makespan), as the simulator counts it: work is all actions
 * without their waits, the makespan reaches from the first action's start to the last one's end.
 */
#include "study/compare.h"

#include "base/mem.h"
#include "config/schedule.h"
#include <stdlib.h>

enum { WARM_UP = 2 };

/* ---- walking over the trace ---- */

/* What pass k, a step of a pipeline, says of instruction i, which is rank r's. */
static const struct exec_event *event_of(const struct compare *c, int64_t k, int r, int64_t i)
{
    const struct sched *s = &c->s->sched;
    return &c->pass[k * s->p + r][i - s->begin[r]];
}

static double work_of(const struct exec_event *e)
{
    return fmax(0, e->end - e->start - e->waited);
}

/* From when the first action of a step could begin, which is *first, to the end of the last one. */
static double makespan_of(const struct compare *c, int64_t k, double *first)
{
    const struct sched *s = &c->s->sched;
    double last = -INFINITY;
    *first = INFINITY;
    for (int r = 0; r < s->p; r++) {
        for (int64_t i = s->begin[r]; i < s->begin[r + 1]; i++) {
            const struct exec_event *e = event_of(c, k, r, i);
            if (s->instr[i].op >= SCHED_COMPUTE_OPS)
                continue;
            *first = fmin(*first, e->start + e->waited);
            last = fmax(last, e->end);
        }
    }
    return last - *first;
}

/* ---- medians ---- */

/* Numbers gathered for medians: sorted by key, then value. */
struct sample { int64_t key; double value; };
struct samples { struct sample *of; int64_t n; };

static int by_key(const void *a, const void *b)
{
    const struct sample *x = a, *y = b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return x->value < y->value ? -1 : x->value > y->value;
}

static void sort(struct samples *s)
{
    if (s->n > 0)
        qsort(s->of, (size_t)s->n, sizeof *s->of, by_key);
}

/* Of the values of a key from *at on, which moves behind them; 0 where there are none. */
static double median(const struct samples *s, int64_t key, int64_t *at)
{
    int64_t from = *at;
    while (*at < s->n && s->of[*at].key == key)
        ++*at;
    int64_t n = *at - from;
    return n == 0 ? 0 : (s->of[from + (n - 1) / 2].value + s->of[from + n / 2].value) / 2;
}

/* The segments of a backward are one action. */
static enum err find_costs(struct compare *c)
{
    const struct sched *s = &c->s->sched;
    struct samples all = {0};
    int64_t at = 0;
    TRY(mem_new(c->passes * s->begin[s->p], sizeof *all.of, "measured times", &all.of));
    for (int64_t k = 0; k < c->passes; k++) {
        double work[SCHED_COMPUTE_OPS] = {0};
        for (int r = 0; r < s->p; r++)
            for (int64_t i = s->begin[r]; i < s->begin[r + 1]; i++) {
                struct sched_instr in = s->instr[i];
                if (in.op >= SCHED_COMPUTE_OPS)
                    continue;
                work[in.op] += work_of(event_of(c, k, r, i));
                if (!sched_ends_stage(in))
                    continue;
                all.of[all.n++] =
                    (struct sample){in.stage * COMPARE_KINDS + in.op, work[in.op]};
                work[in.op] = 0;
            }
    }
    sort(&all);
    for (int key = 0; key < s->stages * COMPARE_KINDS; key++)
        c->cost[key / COMPARE_KINDS][key % COMPARE_KINDS] = median(&all, key, &at);
    mem_free(all.of);
    return ERR_OK;
}

/* A message's place among those of a step: what it is, and for whom. */
static int64_t message(const struct sched *s, struct sched_instr in, bool consumer)
{
    bool gradient = in.op != SCHED_F && in.op != SCHED_SEND_F;
    int stage = consumer ? in.stage : gradient ? in.stage - 1 : in.stage + 1;
    return ((int64_t)stage * s->m + in.mb) * 2 + gradient;
}

/* A wait that was over at once says nothing of how long the message took. */
#define WAITED 20e-6

/* Of a message: its send's start; when it was waited for, and how long. Else NAN. */
struct ends { double sent, from, waited; };

/* The ends of a step's messages: [n], by message(). */
static void gather_messages(const struct compare *c, int64_t k, struct ends *out, int64_t n)
{
    const struct sched *s = &c->s->sched;
    for (int64_t i = 0; i < n; i++)
        out[i] = (struct ends){NAN, NAN, NAN};
    for (int r = 0; r < s->p; r++)
        for (int64_t i = s->begin[r]; i < s->begin[r + 1]; i++) {
            const struct exec_event *e = event_of(c, k, r, i);
            struct sched_instr in = s->instr[i];
            if (in.op == SCHED_SEND_F || in.op == SCHED_SEND_B) {
                out[message(s, in, false)].sent = e->start;
            } else if (in.op < SCHED_W && sched_begins_stage(s, in)) {
                out[message(s, in, true)].from = e->start;
                out[message(s, in, true)].waited = e->waited;
            }
        }
}

/* How long messages took. Latency: of those that were waited for when they were sent. Fetch: of
 * those that lay ready, which is those that had been sent that long before. Where none was waited
 * for when it was sent, a fetch is all that is known. */
static enum err find_messages(struct compare *c)
{
    enum { LATENCY, FETCH, KINDS };
    double *const out[KINDS] = {&c->latency, &c->fetch};
    int64_t n = (int64_t)c->s->sched.stages * c->s->sched.m * 2, found[KINDS] = {0};
    struct samples all = {0};
    struct ends *m = NULL;
    enum err err = mem_new(c->passes * n, sizeof *all.of, "the messages of all steps", &all.of);
    if (err == ERR_OK)
        err = mem_new(n, sizeof *m, "the messages of a step", &m);
    for (int kind = LATENCY; kind < KINDS && err == ERR_OK; kind++) {
        all.n = 0;
        for (int64_t k = 0; k < c->passes; k++) {
            gather_messages(c, k, m, n);
            for (int64_t i = 0; i < n; i++) {
                double lay = m[i].from - m[i].sent; /* NAN: there was no such message */
                if (kind == LATENCY && lay <= 0 && m[i].waited > WAITED) /* of clocks that differ */
                    all.of[all.n++].value = fmax(0, m[i].waited + lay);
                else if (kind == FETCH && lay > 0 && lay >= c->latency)
                    all.of[all.n++].value = fmax(0, m[i].waited);
            }
        }
        sort(&all);
        *out[kind] = median(&all, 0, &found[kind]);
    }
    if (found[LATENCY] == 0)
        c->latency = c->fetch;
    mem_free(all.of);
    mem_free(m);
    return err;
}

/* ---- what was measured ---- */

/* Adds one instruction to what its rank has done. */
static void count(struct compare_rank *r, struct sched_instr in, const struct exec_event *e)
{
    double work = work_of(e);
    if (in.op == SCHED_OVERLAP_F_B)
        return; /* its halves are counted */
    bool sends = in.op == SCHED_SEND_F || in.op == SCHED_SEND_B;
    bool receives = in.op == SCHED_RECV_F || in.op == SCHED_RECV_B;
    if (in.op < SCHED_COMPUTE_OPS) {
        r->busy[in.op] += work;
        r->count[in.op] += sched_ends_stage(in);
    } else {
        *(sends || receives ? &r->sending : &r->ending) += work;
        r->end[in.op] += e->end - e->start;
        r->ends[in.op]++;
    }
    r->waiting += e->waited;
}

static enum err measure(struct compare *c)
{
    enum { MAKESPAN, BUBBLE };
    const struct sched *s = &c->s->sched;
    struct samples all = {0};
    int64_t at = 0;
    TRY(mem_new(2 * c->passes, sizeof *all.of, "measured steps", &all.of));
    for (int64_t k = 0; k < c->passes; k++) {
        double first, length = makespan_of(c, k, &first), work = 0;
        for (int r = 0; r < s->p; r++)
            for (int64_t i = s->begin[r]; i < s->begin[r + 1]; i++) {
                const struct exec_event *e = event_of(c, k, r, i);
                count(&c->measured[r], s->instr[i], e);
                if (s->instr[i].op < SCHED_COMPUTE_OPS)
                    work += work_of(e);
            }
        all.of[all.n++] = (struct sample){MAKESPAN, length};
        all.of[all.n++] = (struct sample){BUBBLE, length > 0 ? 1 - work / (s->p * length) : 0};
    }
    sort(&all);
    c->makespan = median(&all, MAKESPAN, &at);
    c->bubble = median(&all, BUBBLE, &at);
    mem_free(all.of);
    for (int r = 0; r < s->p; r++) {
        struct compare_rank *m = &c->measured[r];
        double *others[] = {&m->waiting, &m->sending, &m->ending};
        for (int k = 0; k < 3; k++)
            *others[k] /= (double)c->passes;
        for (int k = 0; k < COMPARE_KINDS; k++) {
            m->busy[k] /= (double)c->passes;
            m->count[k] /= c->passes;
        }
        for (int op = 0; op < SCHED_OP_COUNT; op++) {
            m->end[op] /= (double)c->passes;
            m->ends[op] /= c->passes;
        }
    }
    return ERR_OK;
}

/* ---- the same, simulated ---- */

static enum err simulate(struct compare *c)
{
    const struct sched *s = &c->s->sched;
    c->rated = caps_any(&c->s->o->caps);
    TRY(setup_ends(c->s, &c->each));
    for (int64_t i = 0; i < s->begin[s->p]; i++) /* the latency measured is all of a message's */
        if (s->instr[i].op == SCHED_SEND_F || s->instr[i].op == SCHED_SEND_B)
            c->each[i] = 0;
    c->used = (struct sim_cost){.stage_time = (const double(*)[COMPARE_KINDS])c->cost,
                                .latency = c->latency,
                                .fetch = c->fetch,
                                .each = c->each,
                                .overlaps = setup_caps(c->s).overlaps};
    TRY(sim_run(s, &c->s->report, &c->used, true, &c->sim));
    for (int r = 0; r < s->p; r++) {
        struct compare_rank *m = &c->simulated[r];
        for (int64_t i = s->begin[r]; i < s->begin[r + 1]; i++) {
            if (s->instr[i].op >= SCHED_COMPUTE_OPS)
                m->end[s->instr[i].op] += c->sim.event[i].end - c->sim.event[i].start;
            if (s->instr[i].op >= SCHED_COMPUTE_OPS || !sched_ends_stage(s->instr[i]))
                continue;
            m->busy[s->instr[i].op] += c->cost[s->instr[i].stage][s->instr[i].op];
            m->count[s->instr[i].op]++;
        }
        m->waiting = c->sim.waiting[r] + c->sim.message[r];
    }
    return ERR_OK;
}

/* ---- the step that is shown ---- */

/* The step nearest to the median, as if it had been simulated: times from its first action on. */
static enum err show_one(struct compare *c)
{
    const struct sched *s = &c->s->sched;
    double first = 0, from;
    int64_t nearest = 0;
    c->seen = (struct sim_result){.p = s->p, .makespan = INFINITY, .bubble_fraction = c->bubble,
                                  .peak = c->s->report.peak,
                                  .full_peak = c->s->report.full_peak};
    TRY(mem_new(s->begin[s->p], sizeof *c->seen.event, "the step shown", &c->seen.event));
    for (int64_t k = 0; k < c->passes; k++) {
        double length = makespan_of(c, k, &from);
        if (fabs(length - c->makespan) >= fabs(c->seen.makespan - c->makespan))
            continue;
        c->seen.makespan = length;
        first = from;
        nearest = k;
    }
    for (int r = 0; r < s->p; r++) {
        for (int64_t i = s->begin[r]; i < s->begin[r + 1]; i++) {
            const struct exec_event *e = event_of(c, nearest, r, i);
            struct sim_event *to = &c->seen.event[i];
            *to = (struct sim_event){e->start + e->waited - first, e->end - first};
            if (s->instr[i].op == SCHED_SEND_F || s->instr[i].op == SCHED_SEND_B)
                to->end = to->start + c->latency;
        }
    }
    return ERR_OK;
}

/* ---- reading ---- */

/* The trace is one of this schedule and this rank of it. */
static enum err check_trace(const struct compare *c, int rank)
{
    const struct setup *s = c->s;
    const struct trace_head *h = &c->trace[rank].head;
    int coord[AXIS_COUNT];
    mesh_coord(&s->mesh, rank, coord);
    int64_t instrs = s->sched.begin[coord[AXIS_PP] + 1] - s->sched.begin[coord[AXIS_PP]];
    if (h->hash == s->report.hash && h->world == (uint32_t)s->mesh.world && h->instrs == instrs &&
        h->pp == (uint32_t)coord[AXIS_PP] && h->tp == (uint32_t)coord[AXIS_TP] &&
        h->dp == (uint32_t)coord[AXIS_DP])
        return ERR_OK;
    const char *file = schedule_path(s->o->parallel.schedule);
    file = !file && s->time ? s->o->parallel.costs : file;
    FAIL(ERR_DATA, "trace: that of rank %d is not of the schedule that config.yaml gives (%s, %d "
                   "rank%s, %d microbatch%s)%s%.200s%s trace the run again with this plait", rank,
         s->sched.name, s->mesh.world, text_plural(s->mesh.world, "s"), s->sched.m,
         text_plural(s->sched.m, "es"), file ? " with " : "", file ? file : "",
         file ? " as it is now: bring the file back as it was then, or" : ";");
}

static enum err read_all(struct compare *c, const char *dir)
{
    int world = c->s->mesh.world;
    c->steps = INT64_MAX;
    for (int rank = 0; rank < world; rank++) {
        char path[FS_PATH];
        if (!fs_named(trace_path(path, dir, rank)))
            FAIL(ERR_DATA, "compare: run %s has no trace of rank %d, trace/%d.trace (one for each "
                           "of its %d rank%s); bring it back, or train in another folder with "
                           "train.trace=true, which writes them", dir, rank, rank, world,
                 text_plural(world, "s"));
        TRY(trace_read(dir, rank, &c->trace[rank]));
        TRY(check_trace(c, rank));
        c->steps = num_min(c->steps, c->trace[rank].steps);
        c->cut += c->trace[rank].cut;
    }
    for (int rank = 0; rank < world; rank++) {
        for (int64_t i = 0; i < c->steps; i++) {
            int64_t step, first;
            (void)trace_events(&c->trace[rank], i, &step);
            (void)trace_events(&c->trace[0], i, &first);
            if (step != first)
                FAIL(ERR_DATA, "trace: record %lld is of step %lld on rank 0 and of step %lld on "
                               "rank %d; trace the run again", (long long)i, (long long)first,
                     (long long)step, rank);
        }
    }
    return ERR_OK;
}

const enum sched_op compare_end[COMPARE_ENDS] = {
    SCHED_REDUCE, SCHED_WAIT, SCHED_REPLICA_REDUCE, SCHED_EMBED_REDUCE, SCHED_NORM, SCHED_STEP,
    SCHED_UPDATE, SCHED_GATHER};

enum err compare_open(const struct setup *s, const char *dir, int64_t skip, struct compare *c)
{
    *c = (struct compare){.s = s};
    TRY(mem_new(s->mesh.world, sizeof *c->trace, "the traces", &c->trace));
    TRY(mem_new(s->sched.stages, sizeof *c->cost, "measured costs", &c->cost));
    TRY(mem_new(s->sched.p, sizeof *c->measured, "measured times", &c->measured));
    TRY(mem_new(s->sched.p, sizeof *c->simulated, "simulated times", &c->simulated));
    TRY(read_all(c, dir));
    c->first = skip >= 0 ? skip : c->steps >= 2 * WARM_UP ? WARM_UP : 0;
    if (c->first >= c->steps)
        FAIL(ERR_DATA, "trace: %lld step%s there and %lld to be left out; leave out fewer",
             (long long)c->steps, c->steps == 1 ? " is" : "s are", (long long)c->first);
    /* Each step that is looked at, of each pipeline of the mesh. */
    TRY(mem_new((c->steps - c->first) * s->mesh.world, sizeof *c->pass, "the steps' traces",
                &c->pass));
    for (int rank = 0; rank < s->mesh.world; rank++) {
        int coord[AXIS_COUNT];
        mesh_coord(&s->mesh, rank, coord);
        if (coord[AXIS_PP] != 0)
            continue;
        for (int64_t i = c->first; i < c->steps; i++, c->passes++)
            for (int pp = 0; pp < s->sched.p; pp++) {
                int64_t step;
                coord[AXIS_PP] = pp;
                c->pass[c->passes * s->sched.p + pp] =
                    trace_events(&c->trace[mesh_rank(&s->mesh, coord)], i, &step);
            }
    }
    TRY(find_costs(c));
    TRY(find_messages(c));
    TRY(measure(c));
    TRY(simulate(c));
    return show_one(c);
}

void compare_close(struct compare *c)
{
    for (int rank = 0; c->trace && rank < c->s->mesh.world; rank++)
        trace_unread(&c->trace[rank]);
    mem_free(c->trace);
    mem_free(c->pass);
    mem_free(c->cost);
    mem_free(c->measured);
    mem_free(c->simulated);
    mem_free(c->each);
    sim_result_free(&c->sim);
    sim_result_free(&c->seen);
    *c = (struct compare){0};
}
