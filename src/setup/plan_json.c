/* SPDX-License-Identifier: Apache-2.0
 *
 * The plan as one JSON object, all of it, for programs: docs/plan.md says what each member is.
 * What pipeline ranks have differently is a list by pipeline rank; ranks that differ on other axes
 * alone have the same.
 */
#include "setup/plan_json.h"

#include "base/mem.h"
#include "setup/setup.h"
#include <string.h>

/* Before item i of a list with an item a line. */
static void begin(int64_t i, struct text *out)
{
    text_add(out, i > 0 ? ",\n    " : "\n    ");
}

static void add_model(const struct setup *s, struct text *out)
{
    const struct model *a = &s->model;
    const struct { const char *key; int64_t value; } number[] = {
        {"layers", a->layers}, {"hidden", a->hidden}, {"heads", a->heads},
        {"kv_heads", a->kv_heads}, {"head_dim", a->head_dim}, {"ffn", a->ffn},
        {"vocab", a->vocab}, {"seq", a->seq}, {"parameters", model_params(a)}};
    text_add(out, "  \"model\": {\"kind\": \"%s\"", model_traits(a->kind)->name);
    for (size_t i = 0; i < sizeof number / sizeof *number; i++)
        text_add(out, ", \"%s\": %lld", number[i].key, (long long)number[i].value);
    for (int i = 0; i < MODEL_WIDTHS && a->width[i] > 0; i++)
        text_add(out, "%s%lld", i ? ", " : ", \"widths\": [", (long long)a->width[i]);
    text_add(out, "%s, \"tied\": %s},\n", a->width[0] > 0 ? "]" : "",
             a->tied ? "true" : "false");
}

static void add_run(const struct setup *s, struct text *out)
{
    char bubble[32];
    text_add(out, "  \"mesh\": {\"ranks\": %d", s->mesh.world);
    for (int i = 0; i < AXIS_COUNT; i++)
        text_add(out, ", \"%s\": %d", mesh_axis_name((enum axis)i), s->mesh.size[i]);
    text_add(out, ", \"sp\": %s},\n  \"compute\": \"%s\",\n  \"accumulate\": \"%s\",\n",
             s->split.sp ? "true" : "false", dtype_name(s->types.ct), dtype_name(s->types.at));
    text_add(out, "  \"step\": {\"samples\": %lld, \"microbatch\": %lld, \"microbatches\": %d, "
                  "\"schedule\": ", (long long)s->o->train.batch, (long long)s->samples,
             s->sched.m);
    text_add_json(out, s->sched.name);
    text_add(out, ", \"hash\": \"%016llx\", \"bubble\": %s},\n",
             (unsigned long long)s->report.hash, text_json_real(s->bubble, bubble));
}

static void add_numbers(const char *key, const int *value, int n, struct text *out)
{
    text_add(out, "\"%s\": [", key);
    for (int i = 0; i < n; i++)
        text_add(out, "%s%d", i ? ", " : "", value[i]);
    text_add(out, "], ");
}

static void add_stages(const struct setup *s, struct text *out)
{
    char name[MODEL_NAME_MAX];
    text_add(out, "  \"stages\": [");
    for (int i = 0; i < s->sched.stages; i++) {
        const struct model_stage *st = &s->cut[i];
        begin(i, out);
        text_add(out, "{\"stage\": %d, \"pp\": [%d", i, s->sched.place[i]);
        if (s->sched.replicas > 1)
            text_add(out, ", %d", s->sched.place[s->sched.stages + i]);
        text_add(out, "], \"parameters\": %lld, \"activations\": %d, ",
                 (long long)model_stage_elements(&s->model, &s->split, st),
                 s->report.stage_peak[i]);
        add_numbers("segments", s->segments[i].first, s->sched.segments[i], out);
        add_numbers("sums", s->segments[i].sum,
                    s->mesh.size[AXIS_DP] > 1 ? s->segments[i].sums : 0, out);
        text_add(out, "\"layers\": [");
        for (int64_t at = st->first; at < st->end; at++) {
            struct layer l = model_layer(&s->model, at);
            text_add(out, "%s\"%s\"", at > st->first ? ", " : "", model_layer_name(&l, name));
        }
        text_add(out, "]}");
    }
    text_add(out, "],\n");
}

/* The lines of the text form, a string each. */
static void add_program(const struct setup *s, struct text *out)
{
    struct text lines = {0};
    sched_print(&s->sched, &lines);
    text_add(out, "  \"program\": [");
    char *line = lines.s;
    for (int pp = 0; line && pp < s->sched.p; pp++) {
        char *end = strchr(line, '\n');
        *end = '\0';
        begin(pp, out);
        text_add_json(out, line);
        line = end + 1;
    }
    text_add(out, "],\n");
    out->err = out->err ? out->err : lines.err;
    text_free(&lines);
}

static void add_memory(const struct setup *s, struct text *out)
{
    text_add(out, "  \"memory\": [");
    for (int pp = 0; pp < s->sched.p; pp++) {
        const struct memory *m = &s->memory[pp];
        begin(pp, out);
        text_add(out, "{\"pp\": %d, \"total\": %lld, \"copy\": %lld, \"kinds\": {", pp,
                 (long long)memory_total(m), (long long)m->copy);
        for (int k = 0; k < MEMORY_KINDS; k++)
            text_add(out, "%s\"%s\": %lld", k ? ", " : "", memory_name((enum memory_kind)k),
                     (long long)m->bytes[k]);
        text_add(out, "}}");
    }
    text_add(out, "],\n");
}

struct listed { const struct setup *s; struct text *out; const char *between; };

static enum err add_buffer(void *arg, const struct buffer *b)
{
    struct listed *l = arg;
    const struct setup *s = l->s;
    char name[MODEL_NAME_MAX];
    text_add(l->out, "%s\n      {\"name\": \"%s\", \"kind\": \"%s\", \"bytes\": %lld, "
                     "\"count\": %d", l->between, b->name, memory_name(b->kind),
             (long long)b->bytes, b->count);
    if (b->stage_replica >= 0)
        text_add(l->out, ", \"stage\": %d", b->stage_replica % s->sched.stages);
    if (b->what == BUFFER_SLOT || b->what == BUFFER_SAVE || b->what == BUFFER_KEEP) {
        int64_t at = s->cut[b->stage_replica % s->sched.stages].first + b->layer;
        struct layer of = model_layer(&s->model, at);
        text_add(l->out, ", \"layer\": \"%s\"", model_layer_name(&of, name));
    }
    text_add(l->out, "}");
    l->between = ",";
    return ERR_OK;
}

static enum err add_buffers(const struct setup *s, struct text *out)
{
    struct buffers_args a;
    setup_buffers(s, &a);
    text_add(out, "  \"buffers\": [");
    for (int pp = 0; pp < s->sched.p; pp++) {
        struct listed l = {s, out, ""};
        begin(pp, out);
        text_add(out, "{\"pp\": %d, \"buffers\": [", pp);
        TRY(buffers_each(&a, pp, add_buffer, &l));
        text_add(out, "]}");
    }
    text_add(out, "],\n");
    return ERR_OK;
}

/* Those that pipeline rank pp has. */
static void add_groups(const struct setup *s, int pp, struct text *out)
{
    const char *between = "";
    text_add(out, "{\"pp\": %d, \"groups\": [", pp);
    for (int k = 0; k < GROUP_KINDS; k++) {
        const struct group *g = &s->groups[pp][k];
        const char *comma = "";
        if (g->members < 2)
            continue;
        text_add(out, "%s\n      {\"group\": \"%s\", \"members\": %d, \"axes\": [", between,
                 groups_name(g->kind), g->members);
        for (int i = 0; i < AXIS_COUNT; i++)
            if (g->axes >> i & 1) {
                text_add(out, "%s\"%s\"", comma, mesh_axis_name((enum axis)i));
                comma = ", ";
            }
        text_add(out, "], \"memory\": \"%s\", \"max_bytes\": %lld, \"scratch\": %lld, "
                      "\"overlaps\": %s}", g->host ? "host" : "device", (long long)g->max_bytes,
                 (long long)g->scratch, g->overlapped ? "true" : "false");
        between = ",";
    }
    text_add(out, "],");
}

static enum err add_channels(const struct setup *s, int pp, struct text *out)
{
    struct group_channel *c;
    int n = groups_channels(&s->sched, pp, NULL);
    TRY(mem_new(n, sizeof *c, "channels", &c));
    groups_channels(&s->sched, pp, c);
    text_add(out, "\n     \"channels\": [");
    for (int i = 0; i < n; i++)
        text_add(out, "%s{\"%s\": %d, \"of\": \"%s\"}", i ? ", " : "", c[i].sends ? "to" : "from",
                 c[i].peer, c[i].lane ? "gradients" : "activations");
    text_add(out, "],");
    mem_free(c);
    return ERR_OK;
}

static void add_traffic(const struct setup *s, int pp, struct text *out)
{
    struct axis_traffic t;
    double time[TRAFFIC_AXES][TRAFFIC_KINDS];
    char word[32];
    const char *between = "";
    traffic_times(&s->traffic[pp], s->groups[pp], &s->o->caps, &s->mesh, time);
    traffic_by_axis(&s->traffic[pp], s->groups[pp], &t);
    text_add(out, "\n     \"traffic\": [");
    for (int i = 0; i < TRAFFIC_AXES; i++)
        for (int k = 0; k < TRAFFIC_KINDS; k++) {
            const struct traffic *of = &t.kind[i][k];
            if (of->messages == 0)
                continue;
            text_add(out, "%s\n      {\"axis\": \"%s\", \"kind\": \"%s\", \"messages\": %lld, "
                          "\"bytes\": %lld", between, traffic_axis_name(i),
                     mesh_traffic_name((enum traffic_kind)k), (long long)of->messages,
                     (long long)of->bytes);
            if (caps_any_link(&s->o->caps))
                text_add(out, ", \"seconds\": %s", text_json_real(time[i][k], word));
            text_add(out, "}");
            between = ",";
        }
    text_add(out, "]}");
}

enum err plan_json(const struct setup *s, struct text *out)
{
    text_add(out, "{\n  \"plait_plan\": 1,\n");
    add_model(s, out);
    add_run(s, out);
    add_stages(s, out);
    add_program(s, out);
    add_memory(s, out);
    TRY(add_buffers(s, out));
    text_add(out, "  \"communication\": [");
    for (int pp = 0; pp < s->sched.p; pp++) {
        begin(pp, out);
        add_groups(s, pp, out);
        TRY(add_channels(s, pp, out));
        add_traffic(s, pp, out);
    }
    text_add(out, "],\n  \"decisions\": [");
    for (int i = 0; i < DECISIONS; i++) {
        const struct decision *d = &s->decided[i];
        begin(i, out);
        text_add(out, "{\"name\": \"%s\", \"value\": %lld, \"words\": \"%s\", \"reason\": ",
                 decision_name((enum decided)i), (long long)d->value, d->words);
        text_add_json(out, d->reason);
        text_add(out, "}");
    }
    text_add(out, "]\n}\n");
    return out->err;
}
