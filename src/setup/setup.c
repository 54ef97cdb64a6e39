/* SPDX-License-Identifier: Apache-2.0
 *
 * Each line takes what the lines above made and makes one thing: options -> model, mesh -> schedule
 * -> cut -> bubble -> decisions -> groups, memory.
 */
#include "setup/setup.h"

#include "comm/comm.h"
#include "exec/exec.h"
#include "sim/sim.h"
#include <stdio.h>

static enum err make_sched(struct setup *s, struct schedule *made)
{
    const struct options *o = s->o;
    struct sched compute = {0}, canonical;
    struct sched_report report = {0};
    struct sched_shape shape = schedule_shape(o);
    bool summed = segments_summed(&s->model, &s->split, s->mesh.size[AXIS_DP]);
    struct sched_lower_args la = {.step = s->training, .reduce = s->training && summed,
                                  .tied = s->training && s->model.tied,
                                  .shared = s->training && options_shards(o) > 1};
    if (s->training && made->list.p == 0)
        TRY(schedule_make(o, &shape, made));
    if (s->training && o->train.canonical_accumulation) {
        enum err err = sched_check(&made->list, &report); /* a file may say anything */
        err = err ? err : sched_canonical(&made->list, s->model.tied, &canonical);
        sched_report_free(&report);
        TRY(err);
        sched_free(&made->list);
        made->list = canonical;
    }
    if (s->training && o->train.recompute != OPTIONS_RECOMPUTE_NONE) {
        TRY(sched_recompute(&made->list, &compute));
    } else if (s->training) {
        compute = made->list;
        made->list = (struct sched){0};
    } else {
        const struct sched_shape one = {.p = shape.p, .m = 1, .v = shape.v};
        TRY(sched_make_forward(&one, NULL, &compute));
    }
    enum err err = sched_lower(&compute, &la, &s->sched);
    sched_free(&compute);
    TRY(err);
    return sched_check(&s->sched, &s->report);
}

/* Validation runs with the placement of training, forwards only, and uses its slots, of which it
 * may need more of a stage's. */
static enum err make_forward(struct setup *s)
{
    struct sched compute;
    struct sched_shape shape = {.p = s->sched.p, .m = s->sched.m, .v = s->sched.v};
    struct sched_report report = {0};
    if (!s->training || !s->o->data.valid[0])
        return ERR_OK;
    TRY(sched_make_forward(&shape, s->sched.place, &compute));
    enum err err = sched_lower(&compute, &(struct sched_lower_args){0}, &s->forward);
    sched_free(&compute);
    if (err == ERR_OK)
        err = sched_check(&s->forward, &report);
    for (int i = 0; err == ERR_OK && i < s->forward.stages; i++)
        s->report.stage_peak[i] = (int)num_max(s->report.stage_peak[i], report.stage_peak[i]);
    sched_report_free(&report);
    return err;
}

void setup_dev_args(const struct setup *s, enum dev_kind kind, struct dev_args *out)
{
    *out = (struct dev_args){.kind = kind,
                             .ct = s->types.ct,
                             .largest = &s->attn,
                             .deterministic = s->o->train.deterministic,
                             .cache = s->o->env.cache,
                             .graph = s->decided[DECIDED_GRAPH].value,
                             .attn_grad = (enum dev_attn_grad)s->decided[DECIDED_ATTENTION].value};
}

void setup_buffers(const struct setup *s, struct buffers_args *out)
{
    *out = (struct buffers_args){.model = &s->model, .split = s->split, .sched = &s->sched,
                                 .report = &s->report, .cut = s->cut, .samples = s->samples,
                                 .step_samples = s->step_samples, .types = s->types,
                                 .num_shards = (int)s->decided[DECIDED_ZERO].value,
                                 .training = s->training,
                                 .splits = sched_has(&s->sched, SCHED_I),
                                 .recompute = s->recompute ? s->segments : NULL};
}

/* Groups, traffic and memory of pipeline rank pp. far: the GPUs of its data or tensor ranks do not
 * reach each other, or are not to; stages_far: those of the stages. */
static enum err plan_rank(struct setup *s, int pp, bool far, bool stages_far)
{
    const struct group *g = s->groups[pp];
    struct dev_args dev;
    setup_dev_args(s, options_device(s->o), &dev);
    dev.threads = options_threads(s->o, s->mesh.world);
    TRY(setup_plan_comm(s, pp));
    struct comm_device_plan p = {.window = g[GROUP_DP].members, .also_nccl = g[GROUP_TP].members,
                                 .overlapped = s->decided[DECIDED_OVERLAP].value > 0,
                                 .full = (g[GROUP_KV].members > 1) + (g[GROUP_EMBED].members > 1) +
                                         (g[GROUP_REPLICA].members > 1),
                                 .tiny = g[GROUP_SUMS].members > 1,
                                 .channels = groups_channels(&s->sched, pp, NULL),
                                 .no_p2p = far, .stages_no_p2p = stages_far,
                                 .shared = s->o->train.share_gpus};
    bool copied = s->decided[DECIDED_COPIES].value;
    struct memory_args a = {.library = dev_workspace_bytes(&dev), .scratch = groups_scratch(g),
                            .copiers = copied ? s->mesh.size[AXIS_DP] : 0};
    setup_buffers(s, &a.buffers);
    if (options_device(s->o) == DEV_CUDA)
        a.transport = comm_device_bytes((enum comm_kind)s->o->train.transport, &p);
    return memory_plan(&a, pp, &s->memory[pp]);
}

int64_t setup_shared_bytes(const struct setup *s)
{
    int64_t sum = 0;
    for (int pp = 0; pp < s->sched.p; pp++)
        sum += memory_total(&s->memory[pp]) * (s->mesh.world / s->sched.p);
    return sum;
}

/* Do the GPUs of the ranks beside those of pipeline rank pp on this axis reach each other? gpu:
 * room for all. */
static bool axis_reaches(const struct setup *s, int pp, enum axis axis,
                         bool (*reach)(const int *gpu, int n), int *gpu)
{
    const int *size = s->mesh.size;
    for (int tp = 0; tp < (axis == AXIS_TP ? 1 : size[AXIS_TP]); tp++)
        for (int dp = 0; dp < (axis == AXIS_DP ? 1 : size[AXIS_DP]); dp++) {
            int coord[AXIS_COUNT] = {[AXIS_TP] = tp, [AXIS_DP] = dp, [AXIS_PP] = pp};
            int n = mesh_group(&s->mesh, mesh_rank(&s->mesh, coord), 1u << axis, gpu);
            if (n > 1 && !reach(gpu, n))
                return false;
        }
    return true;
}

enum err setup_ask_gpus(struct setup *s, bool (*reach)(const int *gpu, int n))
{
    int *gpu, *far, p = s->sched.p;
    if (options_device(s->o) != DEV_CUDA || s->o->train.transport != COMM_THREAD ||
        s->o->env.no_copies || s->o->train.share_gpus)
        return ERR_OK;
    TRY(mem_new(s->mesh.world + p, sizeof *gpu, "the GPUs of ranks", &gpu));
    far = gpu + s->mesh.world; /* by pipeline rank */
    bool stages_far = !axis_reaches(s, 0, AXIS_PP, reach, gpu);
    s->tp_no_p2p = false;
    s->no_p2p = stages_far;
    for (int pp = 0; pp < p; pp++) {
        bool tp_far = !axis_reaches(s, pp, AXIS_TP, reach, gpu);
        far[pp] = tp_far || !axis_reaches(s, pp, AXIS_DP, reach, gpu);
        s->tp_no_p2p = s->tp_no_p2p || tp_far;
        s->no_p2p = s->no_p2p || far[pp];
    }
    decision_make(s, s->decided);
    enum err err = ERR_OK;
    for (int pp = 0; pp < p && err == ERR_OK; pp++)
        err = plan_rank(s, pp, far[pp], stages_far);
    mem_free(gpu);
    return err;
}

/* The step on the clock: its bubble and how long it takes. */
static enum err play(struct setup *s, struct sim_cost *cost)
{
    double *each;
    struct sim_result r;
    TRY(mem_new(s->sched.begin[s->sched.p], sizeof *each, "the simulation", &each));
    if (s->segments) {
        ends_shares(&s->model, &s->sched, s->cut, s->segments, each);
        cost->each = each;
    }
    enum err err = sim_run(&s->sched, &s->report, cost, false, &r);
    mem_free(each);
    TRY(err);
    s->bubble = r.bubble_fraction;
    s->length = r.makespan;
    sim_result_free(&r);
    return ERR_OK;
}

/* With stages that take time in proportion to their FLOPs, backward twice forward and a recompute
 * once. */
static enum err play_flops(struct setup *s)
{
    double *scale;
    int stages = s->sched.stages;
    TRY(mem_new(2 * stages, sizeof *scale, "the simulation", &scale));
    for (int i = 0; i < stages; i++) {
        scale[i] = model_flops(&s->model, &s->cut[i], false);
        scale[stages + i] = model_flops(&s->model, &s->cut[i], true);
    }
    struct sim_cost cost = {.tf = 1, .tb = 2, .ti = 1, .tw = 1, .tr = 1, .stage_scale = scale,
                            .recompute_scale = scale + stages};
    enum err err = play(s, &cost);
    mem_free(scale);
    return err;
}

/* Half layers come into question where they have so much less of the costliest rank or step. */
static const double FINER_WORTH = 0.01;

/* `other` for the cut there is, which it then holds. */
static void exchange(struct setup *s, struct model_stage **other)
{
    struct model_stage *before = s->cut;
    s->cut = *other;
    *other = before;
}

/* `other` for the cut, if the step is shorter with it, by a share of its length. */
static enum err take_shorter(struct setup *s, struct model_stage **other, double share)
{
    double bubble = s->bubble, length = s->length;
    exchange(s, other);
    enum err err = play_flops(s);
    if (err == ERR_OK && s->length < length * (1 - share))
        return ERR_OK;
    exchange(s, other);
    s->bubble = bubble;
    s->length = length;
    return err;
}

/* Where ranks have several stages, the costliest stage may be made cheap or the costliest rank, and
 * that finer. What counts is the step, which uneven stages of even ranks may make longer. Of ranks
 * with one the costliest must have less: this asks for no schedule, so that all of them have the
 * same stages, and with these the same bits and measured times. With two replicas a stage has two
 * ranks, and is cut between layers. */
static enum err make_cut(struct setup *s)
{
    struct model_stage *other;
    int stages = s->sched.stages;
    bool named = s->training && s->o->parallel.split.n > 0, finer = false;
    bool several = s->sched.v > 1 && s->sched.replicas == 1;
    const uint16_t *place = several ? s->sched.place : NULL;
    enum err err;
    TRY(mem_new(stages, sizeof *s->cut, "the cut", &s->cut));
    TRY(named ? split_cut(s->o, &s->model, s->cut)
              : model_cut(&s->model, stages, NULL, s->cut));
    if (!s->training)
        return ERR_OK;
    if (named)
        return play_flops(s);
    TRY(mem_new(stages, sizeof *other, "the cut", &other));
    if (several) {
        TRY_OR(out_other, play_flops(s));
        TRY_OR(out_other, model_cut(&s->model, stages, place, other));
        TRY_OR(out_other, take_shorter(s, &other, 0));
    }
    memcpy(other, s->cut, (size_t)stages * sizeof *other);
    if (s->sched.replicas == 1)
        TRY_OR(out_other, model_cut_finer(&s->model, stages, place, FINER_WORTH, other, &finer));
    if (finer && !several)
        exchange(s, &other);
    TRY_OR(out_other, several ? take_shorter(s, &other, FINER_WORTH) : play_flops(s));
out_other:
    mem_free(other);
    return err;
}

enum err setup_check_bytes(const struct options *o, const struct model *a)
{
    bool text = model_traits(a->kind)->text;
    double rows = (double)o->parallel.microbatch * (double)a->seq;
    double heads = (double)(a->heads + 2 * a->kv_heads) * (double)a->head_dim;
    double c = (double)a->hidden, v = (double)a->vocab;
    double weights = 2 * v * c + (double)a->seq * c, live = 4 * v + 8 * c;
    char model[256] = "model.widths";
    for (int64_t i = 0; i < a->layers; i++) {
        double f = (double)(text ? a->ffn : a->width[i + 1]);
        c = text ? c : (double)a->width[i];
        weights += 2 * c * heads + 3 * c * f + 8 * (c + heads + f);
        live += 8 * c + 4 * heads + 8 * f + 4 * (double)a->heads;
    }
    double bytes = 48 * weights + 8 * rows * live * (double)options_microbatches(o);
    if (text)
        snprintf(model, sizeof model, "model.layers %lld, model.hidden %lld, model.heads %lld, "
                 "model.head_dim %lld, model.ffn %lld, model.vocab %lld, model.seq %lld",
                 (long long)a->layers, (long long)a->hidden, (long long)a->heads,
                 (long long)a->head_dim, (long long)a->ffn, (long long)a->vocab, (long long)a->seq);
    if (bytes > 0x1p60)
        FAIL(ERR_CONFIG, "%s and parallel.microbatch %lld may take %.2g bytes, and bytes are "
                         "counted up to %.2g; use smaller ones", model,
             (long long)o->parallel.microbatch, bytes, 0x1p60);
    return ERR_OK;
}

/* made: of training; takes what it holds, but for the list, which may stay. */
static enum err make(const struct options *o, int64_t vocab, struct schedule *made, struct setup *s)
{
    int axes[AXIS_COUNT];
    bool training = made != NULL;
    *s = (struct setup){.o = o, .training = training, .samples = 1, .step_samples = 1};
    options_arch(o, &s->model);
    if (s->model.vocab == 0)
        s->model.vocab = vocab;
    options_split(o, &s->split);
    options_axes(o, axes);
    s->types = options_types(o);
    if (training) {
        s->samples = o->parallel.microbatch;
        s->step_samples = options_samples(o);
    }
    TRY(model_check(&s->model));
    TRY(model_check_split(&s->model, &s->split));
    TRY(setup_check_bytes(o, &s->model));
    TRY(mesh_make(axes, &s->mesh));
    if (training && !made->time)
        TRY(schedule_costs(o, made));
    TRY(make_sched(s, made));
    if (training) {
        s->time = made->time;
        made->time = NULL;
    }
    /* Costs that were measured are those of the cut. */
    struct sim_cost measured = {.stage_time = (const double(*)[SCHED_COMPUTE_OPS])s->time};
    TRY(make_forward(s));
    TRY(make_cut(s));
    buffers_place(&s->sched, s->cut);
    for (int64_t i = 0; i < model_layers(&s->model) && !s->attn.heads; i++) {
        struct model_dims d; /* of a whole microbatch on one rank */
        struct layer l = model_layer(&s->model, i);
        model_dims(&l, &s->split, s->samples, &s->types, &d);
        if (l.type == &layer_type_attn)
            s->attn = (struct attn){.b = d.b, .tq = d.t, .tk = d.t, .heads = d.h, .kv_heads = d.k,
                                    .d = d.d, .drop.p = l.dims.dropout};
    }
    TRY(setup_plan_segments(s));
    decision_make(s, s->decided);
    if (s->time)
        TRY(play(s, &measured));
    else if (s->recompute)
        TRY(play_flops(s)); /* the cut's had no segments */
    TRY(mem_new(s->sched.p, sizeof *s->memory, "the memory plan", &s->memory));
    TRY(mem_new(s->sched.p, sizeof *s->groups, "the plan's groups", &s->groups));
    TRY(mem_new(s->sched.p, sizeof *s->traffic, "the plan's traffic", &s->traffic));
    for (int pp = 0; pp < s->sched.p; pp++)
        TRY(plan_rank(s, pp, o->env.no_copies, o->env.no_copies));
    return ERR_OK;
}

enum err setup_make_with(const struct options *o, int64_t vocab, struct schedule *made,
                         struct setup *out)
{
    enum err err = make(o, vocab, made, out);
    schedule_free(made);
    return err;
}

enum err setup_make(const struct options *o, int64_t vocab, bool training, struct setup *out)
{
    struct schedule made = {0};
    return training ? setup_make_with(o, vocab, &made, out) : make(o, vocab, NULL, out);
}

void setup_free(struct setup *s)
{
    segments_free(s->segments, s->sched.stages);
    sched_free(&s->sched);
    sched_report_free(&s->report);
    sched_free(&s->forward);
    mem_free(s->cut);
    mem_free(s->memory);
    mem_free(s->groups);
    mem_free(s->traffic);
    mem_free(s->time);
    *s = (struct setup){0};
}

enum err setup_forward(const struct setup *s, int m, struct sched *out)
{
    struct sched_report report = {0};
    TRY(sched_first(&s->forward, m, out));
    enum err err = sched_check(out, &report);
    sched_report_free(&report);
    return err;
}

void setup_exec_args(const struct setup *s, int pp, struct exec_args *out)
{
    *out = (struct exec_args){.mesh = &s->mesh,
                              .segments = s->segments,
                              .seed = (uint64_t)s->o->train.seed,
                              .optim = {.beta1 = s->o->optim.beta1,
                                        .beta2 = s->o->optim.beta2,
                                        .eps = s->o->optim.eps,
                                        .decay = s->o->optim.decay,
                                        .clip = s->o->optim.clip},
                              .tp_rows = s->decided[DECIDED_OVERLAP].value,
                              .groups = s->groups[pp],
                              .traffic = &s->traffic[pp],
                              .plan = s->memory[pp].bytes};
    setup_buffers(s, &out->of);
}
