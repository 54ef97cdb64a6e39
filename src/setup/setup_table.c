/* SPDX-License-Identifier: Apache-2.0
 *
 * The plan as the table at the start of a run, and of `plait check`.
 */
#include "setup/setup.h"

#include "sim/sim.h"
#include <stdio.h>

/* "mlp of layer 3, layers 4 to 7, attention of layer 8" */
static void add_blocks(const struct model *a, const struct model_stage *st, struct text *out)
{
    int64_t from = num_max(st->first, 1) - 1, to = num_min(st->end, model_layers(a) - 1) - 1;
    int64_t first = (from + 1) / 2, end = to / 2; /* whole layers */
    const char *between = "";
    if (from % 2) {
        text_add(out, "mlp of layer %lld", (long long)(from / 2));
        between = ", ";
    }
    if (first < end) {
        text_add(out, "%slayer%s %lld", between, text_plural(end - first, "s"), (long long)first);
        if (end - first > 1)
            text_add(out, " to %lld", (long long)(end - 1));
        between = ", ";
    }
    if (to % 2) {
        text_add(out, "%sattention of layer %lld", between, (long long)end);
        between = ", ";
    }
    if (model_stage_embed(st)) {
        text_add(out, "%sembedding", between);
        between = ", ";
    }
    if (model_stage_head(a, st))
        text_add(out, "%shead", between);
}

static void add_stages(const struct setup *s, struct text *out)
{
    char buf[32], name[MODEL_NAME_MAX];
    bool text = model_traits(s->model.kind)->text;
    for (int i = 0; i < s->sched.stages; i++) {
        const struct model_stage *st = &s->cut[i];
        text_add(out, "  stage %-3d pp %-3d ", i, s->sched.place[i]);
        if (s->sched.replicas > 1)
            text_add(out, "and pp %-3d ", s->sched.place[s->sched.stages + i]);
        if (text)
            add_blocks(&s->model, st, out);
        for (int64_t at = st->first; at < st->end && !text; at++) { /* "input, fc1, relu1" */
            struct layer l = model_layer(&s->model, at);
            text_add(out, "%s%s", at > st->first ? ", " : "", model_layer_name(&l, name));
        }
        text_add(out, ", %s parameters a rank\n",
                 text_count(model_stage_elements(&s->model, &s->split, st), buf));
    }
}

void setup_kinds(const struct memory *m, struct text *out)
{
    char buf[32];
    const char *between = "";
    for (int k = 0; k < MEMORY_KINDS; k++) {
        if (!m->bytes[k])
            continue;
        text_add(out, "%s %s %s", between, memory_name((enum memory_kind)k),
                 text_bytes(m->bytes[k], buf));
        between = ",";
    }
}

static void add_memory(const struct setup *s, const double *allocated, struct text *out)
{
    char buf[32];
    text_add(out, "memory a rank      predicted%s\n", allocated ? "     allocated" : "");
    for (int pp = 0; pp < s->sched.p; pp++) {
        int64_t total = memory_total(&s->memory[pp]), taken = 0;
        text_add(out, "  pp %-3d       %14lld B", pp, (long long)total);
        for (int r = 0; allocated && r < s->mesh.world; r++) {
            int coord[AXIS_COUNT];
            mesh_coord(&s->mesh, r, coord);
            if (coord[AXIS_PP] == pp && (int64_t)allocated[r] > taken)
                taken = (int64_t)allocated[r];
        }
        if (allocated)
            text_add(out, " %11lld B", (long long)taken);
        text_add(out, "  (%s:", text_bytes(total, buf));
        setup_kinds(&s->memory[pp], out);
        text_add(out, ")\n");
    }
    if (s->o->train.share_gpus && s->mesh.world > 1)
        text_add(out, "  all on one %14lld B  (%s)\n", (long long)setup_shared_bytes(s),
                 text_bytes(setup_shared_bytes(s), buf));
}

static void add_decision(const struct setup *s, enum decided which, struct text *out)
{
    const struct decision *d = &s->decided[which];
    if (d->told)
        text_add(out, "%-7s %s: %s\n", decision_name(which), d->words, d->reason);
}

static void add_model(const struct model *a, struct text *out)
{
    char buf[32];
    text_add(out, "model   %s, %s parameters, ", model_traits(a->kind)->name,
             text_count(model_params(a), buf));
    if (model_traits(a->kind)->text)
        text_add(out, "%lld layer%s, hidden %lld, heads %lld, vocabulary %lld\n",
                 (long long)a->layers, text_plural(a->layers, "s"), (long long)a->hidden,
                 (long long)a->heads, (long long)a->vocab);
    for (int64_t i = 0; i <= a->layers && !model_traits(a->kind)->text; i++)
        text_add(out, "%s%lld%s", i ? "-" : "widths ", (long long)a->width[i],
                 i == a->layers ? "\n" : "");
}

void setup_table(const struct setup *s, const double *allocated, struct text *out)
{
    static const char *const device[] = {[OPTIONS_CPU] = "cpu", [OPTIONS_REF] = "ref",
                                         [OPTIONS_NULL] = "null", [OPTIONS_CUDA] = "cuda"};
    const struct options *o = s->o;
    char tokens[48] = "", bubble[SIM_BUBBLE_MAX], buf[32];
    struct text recompute = {0};
    add_model(&s->model, out);
    text_add(out, "layout  %d rank%s: tp %d%s%s, pp %d, dp %d%s; %s on %s%s\n", s->mesh.world,
             text_plural(s->mesh.world, "s"), s->split.tp, s->split.sp ? " with sp" : "",
             s->decided[DECIDED_OVERLAP].value ? " overlapped" : "", s->sched.p,
             s->mesh.size[AXIS_DP],
             s->training && s->decided[DECIDED_ZERO].value > 1 ? " with zero 1" : "",
             dtype_name(s->types.ct), device[o->train.device],
             o->train.deterministic ? ", deterministic" : "");
    add_stages(s, out);
    if (sched_passed_any(&s->sched)) {
        text_add(out, "file    passed over: ");
        sched_passed_add(&s->sched, out);
        text_add(out, "\n");
    }
    if (model_traits(s->model.kind)->text)
        snprintf(tokens, sizeof tokens, " of %lld token%s", (long long)s->model.seq,
                 text_plural(s->model.seq, "s"));
    if (o->train.recompute != OPTIONS_RECOMPUTE_NONE) {
        text_add(&recompute, ", recompute ");
        (void)!conf_get(&options_table, o, "train.recompute", &recompute);
    } else if (sched_has(&s->sched, SCHED_R)) {
        text_add(&recompute, ", recompute as its file says");
    }
    out->err = out->err ? out->err : recompute.err;
    if (s->training)
        text_add(out,
                 "step    %lld sample%s%s, %d microbatch%s of %s%lld a data "
                 "rank, schedule %s%s%s, predicted bubble %s, stages %s%s\n",
                 (long long)o->train.batch, text_plural(o->train.batch, "s"), tokens, s->sched.m,
                 text_plural(s->sched.m, "es"), s->step_samples % s->samples ? "at most " : "",
                 (long long)s->samples, s->sched.name,
                 o->train.canonical_accumulation ? " with canonical accumulation" : "",
                 recompute.s ? recompute.s : "", sim_bubble_words(s->bubble, 1, bubble),
                 s->time ? "at the costs of " : "weighed by FLOPs",
                 s->time ? o->parallel.costs : "");
    for (int i = 0; i < DECISIONS; i++)
        if (i != DECIDED_COPIES)
            add_decision(s, (enum decided)i, out);
    add_memory(s, allocated, out);
    add_decision(s, DECIDED_COPIES, out); /* of the host's memory, beside that */
    for (int pp = 0; pp < s->sched.p && s->decided[DECIDED_COPIES].value; pp++)
        text_add(out, "  pp %-3d       %14lld B  (%s a rank)\n", pp, (long long)s->memory[pp].copy,
                 text_bytes(s->memory[pp].copy, buf));
    text_free(&recompute);
}
