/* SPDX-License-Identifier: Apache-2.0
 *
 * One walk over a rank's list counts its instructions, and each stage says what one of a kind
 * starts; a second goes through what ends the step, instruction by instruction.
 */
#include "plan/traffic.h"

#include "base/mem.h"
#include <string.h>

/* Instructions of a stage by their kind; [1]: of a microbatch that is short. */
struct counted { int64_t n[SCHED_OP_COUNT][2]; };

/* Elements of a stage's store. */
struct store {
    int parts, pieces;
    int64_t *begin, *end; /* [parts + 1], [parts] of its layers' parameters */
    int64_t *edge, *given; /* of a shared one [pieces + 1]; [pieces] not 0: of a piece is not here
                              what others own */
    int64_t named[2];     /* of the instruction's segment the first, and behind its last */
    int64_t elements, tied[2]; /* the tied matrix */
};

struct walk {
    const struct traffic_args *a;
    const struct model *model;
    const struct sched *s;
    int pp;
    int *held;            /* owned; [stages] index into stage, -1: on another rank */
    struct counted *stage; /* owned; [held] */
    int64_t *room;        /* owned; of a store's arrays */
    bool trains;
    int64_t at;           /* the instruction whose share is added */
    int64_t *end, ends;   /* owned; those that end the step */
    struct step_traffic *out;
};

static void add(struct walk *w, enum group_kind g, enum traffic_kind k, struct traffic t)
{
    if (w->a->group[g].members < 2)
        return;
    w->out->group[g][k].messages += t.messages;
    w->out->group[g][k].bytes += t.bytes;
}

/* Of an instruction that ends the step. */
static void add_one(struct walk *w, enum group_kind g, enum traffic_kind k, int64_t bytes)
{
    const struct traffic_ends *ends = w->a->ends;
    add(w, g, k, (struct traffic){1, bytes});
    if (ends && w->a->group[g].members > 1)
        ends->said(ends->arg, w->at, g, k, bytes);
}

static void moved(const struct walk *w, int64_t bytes)
{
    if (w->a->ends)
        w->a->ends->moved(w->a->ends->arg, w->at, bytes);
}

static int64_t samples_of(const struct traffic_args *a, bool is_short)
{
    return is_short ? a->step_samples % a->of.samples : a->of.samples;
}

/* ---- layers, and messages between stages ---- */

bool traffic_short(const struct traffic_args *a, struct sched_instr in)
{
    return (in.mb + 1) * a->of.samples > a->step_samples;
}

static unsigned passes_of(enum sched_op op)
{
    switch (op) {
    case SCHED_F:
    case SCHED_R: return SAID_FORWARD;
    case SCHED_B: return SAID_INPUT | SAID_WEIGHT;
    case SCHED_I: return SAID_INPUT;
    case SCHED_W: return SAID_WEIGHT;
    default: return 0;
    }
}

void traffic_layers(const struct traffic_args *a, const struct model_stage *of, enum sched_op op,
                    bool is_short, struct model_said *said)
{
    for (int64_t i = of->first; i < of->end; i++) {
        struct layer l = model_layer(a->of.model, i);
        struct model_dims d;
        model_dims(&l, &a->of.split, samples_of(a, is_short), &a->of.types, &d);
        d.rows = a->rows;
        d.chunked = a->chunked;
        if (op != SCHED_R || !l.type->loss)
            model_said(&l, &d, passes_of(op), said);
    }
}

/* Of a send of a stage: of its output, or of its input's gradient. */
static int64_t message_bytes(const struct traffic_args *a, int stage, enum sched_op op,
                             bool is_short)
{
    struct model_rank r = {a->of.model, a->of.split, samples_of(a, is_short), &a->of.types};
    return model_boundary_bytes(&r, a->of.cut[stage + (op == SCHED_SEND_F)].first);
}

int64_t traffic_message_bytes(const struct traffic_args *a, struct sched_instr in)
{
    return message_bytes(a, in.stage, (enum sched_op)in.op, traffic_short(a, in));
}

static void add_microbatches(struct walk *w, int stage, const struct counted *c)
{
    for (int i = 0; i < 2 * SCHED_OP_COUNT; i++) {
        enum sched_op op = (enum sched_op)(i / 2);
        bool is_short = i % 2;
        int64_t n = c->n[op][is_short];
        struct model_said said = {0};
        if (n > 0 && (op == SCHED_SEND_F || op == SCHED_SEND_B)) {
            w->out->sent.messages += n;
            w->out->sent.bytes += n * message_bytes(w->a, stage, op, is_short);
        }
        if (n == 0 || passes_of(op) == 0 || w->a->of.split.tp == 1)
            continue;
        traffic_layers(w->a, &w->a->of.cut[stage], op, is_short, &said);
        for (int k = 0; k < TRAFFIC_KINDS; k++)
            add(w, GROUP_TP, (enum traffic_kind)k,
                (struct traffic){n * said.kind[k].messages, n * said.kind[k].bytes});
    }
}

/* ---- once in a step ---- */

/* Lays out a stage's store, with the pieces of a shared one. */
static void open_store(struct walk *w, int stage, struct store *o)
{
    const struct model_stage *st = &w->a->of.cut[stage];
    const struct segments *g = &w->a->segments[stage];
    struct model_param p[MODEL_PART_PARAMS];
    int64_t end = 0, room = model_layers(w->model) + 1;
    *o = (struct store){.parts = model_stage_parts(st), .begin = w->room, .end = w->room + room,
                        .edge = w->room + 2 * room, .given = w->room + 3 * room};
    memset(o->given, 0, (size_t)room * sizeof *o->given);
    for (int i = 0; i < o->parts; i++) {
        struct layer l = model_layer(w->model, st->first + i);
        int n = model_layer_params(&l, model_stage_apart(st), p);
        o->begin[i] = -1;
        for (int j = 0; j < n; j++) {
            int64_t at = model_param_at(&w->a->of.split, &p[j], &end);
            o->begin[i] = j > 0 ? o->begin[i] : at;
            if (p[j].role == PARAM_TOKENS || p[j].tied_copy) {
                o->tied[0] = at;
                o->tied[1] = end;
            }
        }
        o->end[i] = end;
    }
    o->elements = model_sharded_elements(end, w->a->of.num_shards);
    o->begin[o->parts] = o->elements;
    for (int i = o->parts - 1; i >= 0; i--)
        if (o->begin[i] < 0) /* it has none */
            o->begin[i] = o->begin[i + 1];
    for (int i = 0; i < g->sums && w->a->of.num_shards > 1; i++) {
        o->edge[i] = model_sharded_elements(o->begin[g->sum[i]], w->a->of.num_shards);
        o->edge[i + 1] = o->elements;
    }
    o->pieces = w->a->of.num_shards > 1 && o->elements > 0 ? g->sums : 0;
}

/* Gradients of parts first .. end - 1 that tensor ranks have summands of: norms under sp, kv heads
 * that several hold. */
static void add_tensor_sums(struct walk *w, const struct model_stage *st, int first, int end)
{
    struct model_param p[MODEL_PART_PARAMS];
    for (int i = first; i < end; i++) {
        struct layer l = model_layer(w->model, st->first + i);
        int n = model_layer_params(&l, model_stage_apart(st), p);
        for (int j = 0; j < n; j++) {
            int64_t from = 0;
            (void)model_param_at(&w->a->of.split, &p[j], &from); /* `from`: what it takes */
            int64_t bytes = from * dtype_size(w->a->of.types.at);
            if (p[j].slice == SLICE_KV)
                add_one(w, GROUP_KV, TRAFFIC_ALL_REDUCE, bytes);
            else if (p[j].rows_partial && w->a->of.split.sp)
                add_one(w, GROUP_TP, TRAFFIC_ALL_REDUCE, bytes);
        }
    }
}

/* Sum k of a stage over data ranks; of a shared store to the owners. */
static void add_gradient_sum(struct walk *w, int stage, const struct store *o, int k)
{
    const struct segments *g = &w->a->segments[stage];
    int64_t at = dtype_size(w->a->of.types.at);
    int end = k + 1 < g->sums ? g->sum[k + 1] : o->parts;
    int64_t n = w->a->of.num_shards > 1 ? o->edge[k + 1] - o->edge[k]
                                    : o->end[end - 1] - o->begin[g->sum[k]];
    add_tensor_sums(w, &w->a->of.cut[stage], g->sum[k], end);
    if (n > 0)
        add_one(w, GROUP_DP, w->a->of.num_shards > 1 ? TRAFFIC_REDUCE_SCATTER : TRAFFIC_ALL_REDUCE,
                n * at);
}

/* AdamW reads gradients, moments and master weights, and writes all but the first, and the weights
 * that are computed with. */
static void update(struct walk *w, int64_t elements)
{
    int64_t at = dtype_size(w->a->of.types.at), ct = dtype_size(w->a->of.types.ct);
    moved(w, elements * (7 * at + (w->a->of.types.at != w->a->of.types.ct) * ct));
}

/* What an instruction does for piece k of a stage: as the executor has it (exec/exec.c). */
static void add_piece(struct walk *w, struct sched_instr in, struct store *o, int k)
{
    int64_t n = o->edge[k + 1] - o->edge[k];
    bool begins = o->edge[k] >= o->named[0] && o->edge[k] < o->named[1];
    bool some = o->edge[k] < o->named[1] && o->edge[k + 1] > o->named[0];
    if (in.op == SCHED_UPDATE && begins)
        update(w, n / w->a->of.num_shards);
    if (in.op == SCHED_GATHER && some && o->given[k])
        add_one(w, GROUP_DP, TRAFFIC_ALL_GATHER, n * dtype_size(w->a->of.types.ct));
    if ((in.op == SCHED_UPDATE && begins) || (in.op == SCHED_DROP && some))
        o->given[k] = 1;
    if (in.op == SCHED_GATHER && some)
        o->given[k] = 0;
}

/* What the program has for a stage at the end of the step. */
static void add_ends(struct walk *w, int stage, struct store *o)
{
    const struct sched *s = w->s;
    const struct segments *g = &w->a->segments[stage];
    int64_t at = dtype_size(w->a->of.types.at);
    for (int64_t i = 0; i < w->ends; i++) {
        struct sched_instr in = s->instr[w->at = w->end[i]];
        if (in.op == SCHED_STEP)
            update(w, o->elements);
        if (in.op == SCHED_NORM) /* data ranks share the squares */
            moved(w, o->elements * at / w->a->group[GROUP_DP].members);
        if (!sched_op_names_stage(in.op) || in.stage != stage)
            continue;
        int first, end;
        segments_range(g, o->parts, in.seg, &first, &end);
        o->named[0] = o->begin[first];
        o->named[1] = o->begin[end];
        for (int k = 0; k < g->sums; k++)
            if (in.op == SCHED_REDUCE && g->sum[k] >= first && g->sum[k] < end)
                add_gradient_sum(w, stage, o, k);
        for (int k = 0; k < o->pieces; k++)
            add_piece(w, in, o, k);
        /* Of a shared store the owners have their ranges of the tied matrix first. */
        for (int k = 0; k < o->pieces && in.op == SCHED_EMBED_REDUCE; k++)
            if (o->edge[k + 1] > o->tied[0] && o->edge[k] < o->tied[1])
                add_one(w, GROUP_DP, TRAFFIC_ALL_GATHER, (o->edge[k + 1] - o->edge[k]) * at);
        if (in.op == SCHED_EMBED_REDUCE)
            add_one(w, GROUP_EMBED, TRAFFIC_ALL_REDUCE, (o->tied[1] - o->tied[0]) * at);
        if (in.op == SCHED_REPLICA_REDUCE)
            add_one(w, GROUP_REPLICA, TRAFFIC_ALL_REDUCE, o->elements * at);
    }
}

static void walk(struct walk *w)
{
    const struct sched *s = w->s;
    int n = 0;
    for (int stage = 0; stage < s->stages; stage++)
        w->held[stage] = sched_stage_replica_on(s, stage, w->pp) >= 0 ? n++ : -1;
    for (int64_t i = s->begin[w->pp]; i < s->begin[w->pp + 1]; i++) {
        struct sched_instr in = s->instr[i];
        bool is_short = traffic_short(w->a, in);
        w->at = i;
        if (in.op == SCHED_NORM)
            add_one(w, GROUP_SUMS, TRAFFIC_ALL_REDUCE,
                    GROUP_SUMS_DOUBLES * (int64_t)sizeof(double));
        w->trains = w->trains || in.op == SCHED_NORM;
        if (in.op >= SCHED_REDUCE && in.op != SCHED_OVERLAP_F_B)
            w->end[w->ends++] = i;
        if (sched_op_names_stage(in.op) && sched_ends_stage(in))
            w->stage[w->held[in.stage]].n[in.op][is_short]++;
    }
    for (int stage = 0; stage < s->stages; stage++) {
        struct store o;
        if (w->held[stage] < 0)
            continue;
        add_microbatches(w, stage, &w->stage[w->held[stage]]);
        if (!w->trains)
            continue;
        open_store(w, stage, &o);
        add_ends(w, stage, &o);
    }
}

enum err traffic_plan(const struct traffic_args *a, int pp, struct step_traffic *out)
{
    const struct sched *s = a->of.sched;
    struct walk w = {.a = a, .model = a->of.model, .s = s, .pp = pp, .out = out};
    static const char what[] = "the traffic of a step";
    int held = sched_stage_replicas_on(s, pp);
    enum err err = ERR_OK;
    *out = (struct step_traffic){0};
    TRY_OR(out, mem_new(s->stages, sizeof *w.held, what, &w.held));
    TRY_OR(out, mem_new(s->begin[pp + 1] - s->begin[pp], sizeof *w.end, what, &w.end));
    TRY_OR(out, mem_new(held, sizeof *w.stage, what, &w.stage));
    TRY_OR(out, mem_new(4 * (model_layers(w.model) + 1), sizeof *w.room, what, &w.room));
    walk(&w);
out:
    mem_free(w.held);
    mem_free(w.end);
    mem_free(w.stage);
    mem_free(w.room);
    return err;
}

/* ---- by axis ---- */

static int axis_of(const struct group *g)
{
    for (int i = 0; i < AXIS_COUNT; i++)
        if (g->axes == 1u << i)
            return i;
    return TRAFFIC_WORLD;
}

void traffic_by_axis(const struct step_traffic *s, const struct group g[GROUP_KINDS],
                     struct axis_traffic *out)
{
    *out = (struct axis_traffic){0};
    for (int i = 0; i < GROUP_KINDS; i++)
        for (int k = 0; k < TRAFFIC_KINDS; k++) {
            struct traffic *to = &out->kind[axis_of(&g[i])][k];
            to->messages += s->group[i][k].messages;
            to->bytes += s->group[i][k].bytes;
        }
    out->kind[AXIS_PP][TRAFFIC_SEND] = s->sent;
}

void traffic_times(const struct step_traffic *s, const struct group g[GROUP_KINDS],
                   const struct caps *c, const struct mesh *m,
                   double time[TRAFFIC_AXES][TRAFFIC_KINDS])
{
    memset(time, 0, TRAFFIC_AXES * sizeof *time);
    for (int i = 0; i < GROUP_KINDS; i++) {
        struct caps_link l = caps_across(c, m, g[i].axes);
        for (int k = 0; k < TRAFFIC_KINDS; k++)
            time[axis_of(&g[i])][k] +=
                caps_time(&l, (enum traffic_kind)k, g[i].members, s->group[i][k]);
    }
    time[AXIS_PP][TRAFFIC_SEND] = caps_time(&c->axis[AXIS_PP], TRAFFIC_SEND, 2, s->sent);
}

const char *traffic_axis_name(int axis)
{
    return axis == TRAFFIC_WORLD ? "world" : mesh_axis_name((enum axis)axis);
}

int64_t traffic_bytes(const struct axis_traffic *t)
{
    int64_t all = 0;
    for (int i = 0; i < TRAFFIC_AXES; i++)
        for (int k = 0; k < TRAFFIC_KINDS; k++)
            all += t->kind[i][k].bytes;
    return all;
}
