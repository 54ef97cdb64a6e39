/* SPDX-License-Identifier: Apache-2.0
 *
 * Walks over the instructions of a played schedule.
 *
 * Spans: the compute instructions with their times, and before each the time that the rank stood
 * still although its input was made already: a message was on its way.
 *
 * Messages: the SENDs, with the spans that made and that needed them; they occupy their link until
 * `latency` before their arrival, and for bytes / bandwidth.
 *
 * Lanes: REDUCE and GATHER, where they were played with their times; then the picture ends with the
 * step.
 *
 * Memory: the ledger of rule V8 laid out in time. An activation lives from the start of its F to
 * the end of its B or W; in bytes its slot is taken when the message for it is asked for, and what
 * lies between I and W counts too. What is recomputed is kept in full while its F runs and from the
 * start of its R on; where there is such a thing, activations kept in full are counted. Forward
 * only, it ends when its result has left.
 */
#include "sim/sim.h"

#include "base/mem.h"
#include "base/num.h"
#include <math.h>
#include <stdio.h>

/* What is known of a (stage, mb), forward [0] and backward [1]: 1 + index, 0 for none. Of one that
 * is cut the first segment uses its input, and the last makes its result. */
struct unit {
    int64_t used[2], made[2], send[2];
    bool again; /* it is recomputed */
};

struct maker {
    const struct sched *s;
    const struct sim_result *r;
    const struct sim_cost *cost;
    const struct sim_bytes *bytes; /* may be NULL */
    bool in_bytes;                 /* else activations, which count so much each: */
    double activation, scale;      /* of time */
    bool again;                    /* some are recomputed: those kept in full count */
    struct sim_picture *p;
    struct unit *unit; /* owned; [stages * m] */
    int64_t points;
};

static bool computes(struct sched_instr in)
{
    return in.op < SCHED_COMPUTE_OPS;
}

static bool sums(struct sched_instr in)
{
    return in.op == SCHED_REDUCE || in.op == SCHED_GATHER;
}

static struct unit *unit_of(const struct maker *k, int stage, int mb)
{
    return &k->unit[(int64_t)stage * k->s->m + mb];
}

/* From when the message with this instruction's input was sent until it was there; {-1, -1}: the
 * input, if any, was made by the rank itself. */
static struct sim_event carried(const struct maker *k, struct sched_instr in)
{
    int from = sim_way(in.op) == 0 ? in.stage - 1 : in.stage + 1;
    if (in.op >= SCHED_W || from < 0 || from >= k->s->stages)
        return (struct sim_event){-1, -1};
    int64_t send = unit_of(k, from, in.mb)->send[sim_way(in.op)];
    return send ? k->r->event[send - 1] : (struct sim_event){-1, -1};
}

static struct draw_span *add_span(struct maker *k, int rank, struct sched_instr in,
                                  struct sim_event e)
{
    struct draw_span *s = &k->p->span[k->p->chart.spans++];
    *s = (struct draw_span){.start = k->scale * e.start, .end = k->scale * e.end, .rank = rank,
                            .stage = in.stage, .mb = in.mb, .replica = k->s->way[in.mb],
                            .chunk = (uint8_t)num_min(in.stage / k->s->p, UINT8_MAX)};
    return s;
}

static void add_spans(struct maker *k)
{
    static const uint8_t kind[] = {DRAW_F, DRAW_B, DRAW_I, DRAW_W, DRAW_R};
    for (int rank = 0; rank < k->s->p; rank++) {
        double clock = 0; /* the rank is free from then on */
        int halves = 0; /* of a pair, still to come */
        for (int64_t i = k->s->begin[rank]; i < k->s->begin[rank + 1]; i++) {
            const struct sched_instr *in = &k->s->instr[i];
            bool pair = in->op == SCHED_OVERLAP_F_B;
            struct sim_event m = {-1, -1}, e = k->r->event[i];
            if (pair) {
                struct sim_event f = carried(k, in[1]), b = carried(k, in[2]);
                m = f.end > b.end ? f : b;
                halves = 2;
            } else if (computes(*in) && halves == 0) {
                m = carried(k, *in);
            }
            if (m.start >= 0 && fmax(m.start, clock) < e.start)
                add_span(k, rank, *in, (struct sim_event){fmax(m.start, clock), e.start})->kind =
                    DRAW_MESSAGE;
            if (!computes(*in))
                continue;
            halves -= halves > 0;
            add_span(k, rank, *in, e)->kind = kind[in->op];
            struct unit *unit = unit_of(k, in->stage, in->mb);
            if (in->op < SCHED_W && sched_ends_stage(*in))
                unit->made[sim_way(in->op)] = k->p->chart.spans;
            if (in->op < SCHED_W && sched_begins_stage(k->s, *in))
                unit->used[sim_way(in->op)] = k->p->chart.spans;
            clock = e.end;
        }
    }
}

/* Messages on their links, and where `lanes` sums and gathers, whose times are known then. */
static void add_messages(struct maker *k, bool lanes)
{
    struct draw_chart *c = &k->p->chart;
    for (int rank = 0; rank < k->s->p; rank++)
        for (int64_t i = k->s->begin[rank]; i < k->s->begin[rank + 1]; i++) {
            struct sched_instr in = k->s->instr[i];
            struct sim_event e = k->r->event[i];
            int way = sim_way(in.op), to = way == 0 ? in.stage + 1 : in.stage - 1;
            if (lanes && sums(in) && e.end > e.start)
                k->p->comm[c->comms++] = (struct draw_comm){
                    .start = k->scale * e.start, .end = k->scale * e.end, .rank = rank,
                    .stage = in.stage,
                    .kind = in.op == SCHED_REDUCE ? DRAW_SUM : DRAW_GATHER};
            if (in.op != SCHED_SEND_F && in.op != SCHED_SEND_B)
                continue;
            double wire = sim_wire(k->cost, i), end = e.end - k->cost->latency;
            k->p->message[c->messages++] = (struct draw_message){
                .start = k->scale * (end - wire), .end = k->scale * end, .from = rank,
                .to = in.peer, .stage = in.stage, .mb = in.mb, .back = way == 1,
                .cause = unit_of(k, in.stage, in.mb)->made[way] - 1,
                .use = unit_of(k, to, in.mb)->used[way] - 1};
        }
    if (c->comms > 0)
        c->end = fmax(c->end, k->scale * k->r->step);
}

/* ---- memory ---- */

struct ledger {
    double time, value;
    struct draw_curve *curve;
};

/* The value changes by `by` at `time`; changes at one moment are one point. */
static void change(struct maker *k, struct ledger *l, double time, double by)
{
    struct draw_point *last = l->curve->n ? &k->p->point[k->points - 1] : NULL;
    if (by == 0)
        return;
    time *= k->scale;
    l->value += by;
    if (last && last->time == time) {
        last->value = l->value;
        return;
    }
    k->p->point[k->points++] = (struct draw_point){time, l->value};
    l->curve->n++;
}

/* Does the stage before this F's stand on the same rank? */
static bool local(const struct maker *k, struct sched_instr in)
{
    return in.stage > 0 && sched_rank_of(k->s, in.stage - 1, in.mb) ==
                               sched_rank_of(k->s, in.stage, in.mb);
}

static double slot_of(const struct maker *k, int stage)
{
    return k->in_bytes ? (double)k->bytes->slot[stage] : k->again ? 0 : k->activation;
}

static void account(struct maker *k, struct ledger *l, struct sched_instr in, struct sim_event e)
{
    if (in.op == SCHED_R ? !sched_begins_stage(k->s, in) : !sched_ends_stage(in))
        return;
    bool ends = k->s->forward_only;
    double slot = 0, save = 0, keep = 0;
    if (sched_op_names_microbatch(in.op)) {
        slot = slot_of(k, in.stage);
        save = k->in_bytes ? (double)k->bytes->save[in.stage] : k->again ? k->activation : 0;
        keep = k->in_bytes ? (double)k->bytes->keep[in.stage] : 0;
    }
    if (in.op == SCHED_RECV_F && k->in_bytes) {
        change(k, l, e.start, slot);
    } else if (in.op == SCHED_F) {
        if (!k->in_bytes || in.stage == 0 || local(k, in)) /* else it was received */
            change(k, l, e.start, slot);
        change(k, l, e.start, save);
        if (ends || unit_of(k, in.stage, in.mb)->again)
            change(k, l, e.end, -save);
        if (ends && local(k, in))
            change(k, l, e.end, -slot_of(k, in.stage - 1));
        if (ends && in.stage == k->s->stages - 1)
            change(k, l, e.end, -slot);
    } else if (in.op == SCHED_SEND_F && ends) {
        change(k, l, e.start, -slot);
    } else if (in.op == SCHED_R) {
        change(k, l, e.start, save);
    } else if (in.op == SCHED_I) {
        change(k, l, e.start, keep);
    } else if (in.op == SCHED_B) {
        change(k, l, e.end, -slot - save);
    } else if (in.op == SCHED_W) {
        change(k, l, e.end, -slot - save - keep);
    }
}

static void add_memory(struct maker *k)
{
    for (int rank = 0; rank < k->s->p; rank++) {
        struct ledger l = {.curve = &k->p->memory[rank]};
        l.value = k->in_bytes ? (double)k->bytes->fixed[rank] : 0;
        k->p->point[k->points++] = (struct draw_point){0, l.value};
        *l.curve = (struct draw_curve){&k->p->point[k->points - 1], 1};
        for (int64_t i = k->s->begin[rank]; i < k->s->begin[rank + 1]; i++)
            account(k, &l, k->s->instr[i], k->r->event[i]);
    }
}

/* ---- all ---- */

static void add_words(struct maker *k)
{
    const struct sched *s = k->s;
    struct sim_picture *p = k->p;
    char chunks[16] = "", bubble[SIM_BUBBLE_MAX];
    const int *peak = k->again ? k->r->full_peak : k->r->peak;
    int peaks = 0;
    struct text passed = {0};
    for (int rank = 0; rank < s->p; rank++)
        peaks = (int)num_max(peaks, peak[rank]);
    double most = k->activation * peaks;
    if (s->v > 1)
        snprintf(chunks, sizeof chunks, ", v %d", s->v);
    snprintf(p->title, sizeof p->title, "%s%s, p %d, m %d%s", s->name,
             k->again ? " with recompute" : "", s->p, s->m / s->slices, chunks);
    if (sched_passed_any(s)) {
        text_add(&passed, "; passed over: ");
        sched_passed_add(s, &passed);
    }
    snprintf(p->facts, sizeof p->facts,
             "makespan %.6g, bubble %s, at most %.4g activation%s on a rank%s%s", k->r->makespan,
             sim_bubble_words(k->r->bubble_fraction, 2, bubble), most, most == 1 ? "" : "s",
             k->again ? " in full" : "", passed.s ? passed.s : "");
    text_free(&passed);
}

static enum err make(struct maker *k)
{
    const struct sched *s = k->s;
    struct sim_picture *p = k->p;
    int64_t spans = 0, sends = 0, comms = 0; /* the most there can be */
    TRY(mem_new((int64_t)s->stages * s->m, sizeof *k->unit, "a picture", &k->unit));
    for (int64_t i = 0; i < s->begin[s->p]; i++) {
        struct sched_instr in = s->instr[i];
        spans += computes(in) ? 2 : 0;
        comms += sums(in);
        if (in.op == SCHED_R)
            unit_of(k, in.stage, in.mb)->again = k->again = true;
        if (in.op != SCHED_SEND_F && in.op != SCHED_SEND_B)
            continue;
        unit_of(k, in.stage, in.mb)->send[sim_way(in.op)] = i + 1;
        sends++;
    }
    TRY(mem_new(spans, sizeof *p->span, "a picture's spans", &p->span));
    TRY(mem_new(sends, sizeof *p->message, "a picture's messages", &p->message));
    TRY(mem_new(comms, sizeof *p->comm, "a picture's sums", &p->comm));
    TRY(mem_new(s->p, sizeof *p->memory, "a picture's memory", &p->memory));
    TRY(mem_new(s->p + 2 * s->begin[s->p], sizeof *p->point, "a picture's memory", &p->point));
    p->chart = (struct draw_chart){.title = p->title, .facts = p->facts, .ranks = s->p,
                                   .chunks = s->v, .end = k->scale * k->r->makespan,
                                   .stages = s->v > 1,
                                   .span = p->span, .memory = p->memory, .message = p->message,
                                   .comm = p->comm};
    add_spans(k);
    add_messages(k, k->r->sums);
    add_memory(k);
    add_words(k);
    return ERR_OK;
}

enum err sim_picture_make(const struct sched *s, const struct sim_result *r,
                          const struct sim_cost *cost, const struct sim_bytes *bytes,
                          struct sim_picture *out)
{
    *out = (struct sim_picture){0};
    struct maker k = {.s = s, .r = r, .cost = cost, .bytes = bytes, .p = out, .activation = 1,
                      .scale = bytes && bytes->scale > 0 ? bytes->scale : 1};
    if (bytes && bytes->activation > 0)
        k.activation = bytes->activation;
    k.in_bytes = bytes && bytes->fixed;
    ENSURE(r->event != NULL);
    enum err err = make(&k);
    mem_free(k.unit);
    return err;
}

void sim_picture_free(struct sim_picture *p)
{
    mem_free(p->span);
    mem_free(p->message);
    mem_free(p->comm);
    mem_free(p->memory);
    mem_free(p->point);
    *p = (struct sim_picture){0};
}
