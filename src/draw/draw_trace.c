/* SPDX-License-Identifier: Apache-2.0
 *
 * Trace events, the JSON that Perfetto and chrome://tracing open (Google, "Trace event format").
 * A process a rank (charts after one another), in it a track for the rank's work and one for each
 * link it sends on, a counter for its memory, and an arrow from the action that made a message to
 * the one that waited for it. Slices of a track must nest: two actions of an overlapped pair lie on
 * tracks of their own.
 *
 * Times are microseconds there; a bare unit of time is shown as the page says (usually 1 ms).
 */
#include "draw/draw_layout.h"

#include "base/mem.h"
#include <stdio.h>

struct trace {
    const struct draw_page *p;   /* borrowed */
    const struct draw_chart *c;  /* borrowed; being written */
    const struct draw_layout *l; /* of c */
    int base;                    /* process number of its rank 0 */
    int64_t arrows;              /* written so far: their ids */
    int *named; /* owned; [ranks] 1 + the last sender whose link to this rank has its name */
    bool first;
    struct text *out;
};

enum { TRACK_WORK = 1, TRACK_PAIR = 2, TRACK_LINKS = 16 }; /* numbers of tracks in a process */

static double micros(const struct trace *t, double time)
{
    return time * t->p->seconds * 1e6;
}

/* Begins an event: everything but its name's value and what follows it. */
static void begin(struct trace *t, const char *phase, int rank, int track)
{
    text_add(t->out, "%s{\"ph\":\"%s\",\"pid\":%d,\"tid\":%d", t->first ? "\n" : ",\n", phase,
             t->base + rank, track);
    t->first = false;
}

static void add_name_of(struct trace *t, const char *what, int rank, int track, const char *name)
{
    begin(t, "M", rank, track);
    text_add(t->out, ",\"name\":\"%s\",\"args\":{\"name\":", what);
    draw_add_json(t->out, name);
    text_add(t->out, "}}");
}

static void add_process(struct trace *t, int rank)
{
    struct text name = {0};
    bool pairs = false;
    text_add(&name, "%s rank %d", t->c->title, rank);
    if (name.err == ERR_OK)
        add_name_of(t, "process_name", rank, 0, name.s);
    else
        t->out->err = name.err;
    text_free(&name);
    begin(t, "M", rank, 0);
    text_add(t->out, ",\"name\":\"process_sort_index\",\"args\":{\"sort_index\":%d}}",
             t->base + rank);
    add_name_of(t, "thread_name", rank, TRACK_WORK, "work");
    for (int64_t i = t->l->begin[rank]; i < t->l->begin[rank + 1]; i++)
        pairs = pairs || t->l->lane[i] == DRAW_LOWER;
    if (pairs)
        add_name_of(t, "thread_name", rank, TRACK_PAIR, "work, second of a pair");
}

static int track_of(const struct trace *t, int64_t i)
{
    return t->l->lane[i] == DRAW_LOWER ? TRACK_PAIR : TRACK_WORK;
}

static void add_message(struct trace *t, const struct draw_message *m)
{
    if (m->end > m->start) {
        if (t->named[m->to] != m->from + 1) {
            char name[48];
            snprintf(name, sizeof name, "sending to rank %d", m->to);
            add_name_of(t, "thread_name", m->from, TRACK_LINKS + m->to, name);
            t->named[m->to] = m->from + 1;
        }
        begin(t, "X", m->from, TRACK_LINKS + m->to);
        text_add(t->out,
                 ",\"name\":\"%d%c%d to rank %d\",\"cat\":\"message\",\"ts\":%.15g,"
                 "\"dur\":%.15g}",
                 m->stage, m->back ? 'B' : 'F', m->mb, m->to, micros(t, m->start),
                 micros(t, m->end - m->start));
    }
    if (m->cause < 0 || m->use < 0)
        return;
    const struct draw_span *a = &t->c->span[m->cause], *b = &t->c->span[m->use];
    const char *kind = m->back ? "gradient" : "activation";
    double leaves = a->end - (a->end - a->start) / 1024; /* within the slice it starts from */
    begin(t, "s", a->rank, track_of(t, m->cause));
    text_add(t->out, ",\"name\":\"%s\",\"cat\":\"message\",\"id\":%lld,\"ts\":%.15g}", kind,
             (long long)t->arrows, micros(t, leaves));
    begin(t, "f", b->rank, track_of(t, m->use));
    text_add(t->out, ",\"name\":\"%s\",\"cat\":\"message\",\"id\":%lld,\"bp\":\"e\",\"ts\":%.15g}",
             kind, (long long)t->arrows++, micros(t, b->start));
}

static enum err add_chart(struct trace *t, const struct draw_layout *l)
{
    t->l = l;
    t->c = l->c;
    TRY(mem_new(t->c->ranks, sizeof *t->named, "a trace's links", &t->named));
    for (int rank = 0; rank < t->c->ranks; rank++) {
        add_process(t, rank);
        for (int64_t i = t->l->begin[rank]; i < t->l->begin[rank + 1]; i++) {
            const struct draw_span *s = &t->c->span[i];
            char label[DRAW_LABEL_MAX];
            begin(t, "X", rank, track_of(t, i));
            text_add(t->out, ",\"name\":");
            draw_add_json(t->out, draw_label(t->c, s, label));
            text_add(t->out, ",\"cat\":\"%s\",\"ts\":%.15g,\"dur\":%.15g", draw_kind_name(s->kind),
                     micros(t, s->start), micros(t, s->end - s->start));
            if (s->kind < DRAW_MESSAGE)
                text_add(t->out, ",\"args\":{\"stage\":%d,\"microbatch\":%d}", s->stage, s->mb);
            text_add(t->out, "}");
        }
        for (int64_t i = 0; t->c->memory && i < t->c->memory[rank].n; i++) {
            const struct draw_point *m = &t->c->memory[rank].point[i];
            begin(t, "C", rank, 0);
            text_add(t->out, ",\"name\":\"memory\",\"ts\":%.15g,\"args\":{", micros(t, m->time));
            draw_add_json(t->out, t->p->memory_unit);
            text_add(t->out, ":%.15g}}", m->value);
        }
    }
    for (int64_t i = 0; i < t->c->messages; i++)
        add_message(t, &t->c->message[i]);
    mem_free(t->named);
    t->base += t->c->ranks;
    return ERR_OK;
}

enum err draw_trace(const struct draw_page *p, struct text *out)
{
    struct trace t = {.p = p, .first = true, .base = 1, .out = out};
    struct draw_layouts all;
    enum err err = ERR_OK;
    TRY_OR(out_free, draw_layouts_open(&all, p, DRAW_TRACE_MAX,
                                       "a trace holds; use fewer ranks or microbatches"));
    text_add(out, "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"title\":");
    draw_add_json(out, p->title);
    for (int i = 0; i < p->charts; i++) {
        text_add(out, ",\"facts %d\":", i);
        draw_add_json(out, p->chart[i].facts ? p->chart[i].facts : "");
    }
    text_add(out, "},\"traceEvents\":[");
    for (int i = 0; i < all.charts; i++)
        TRY_OR(out_free, add_chart(&t, &all.of[i]));
    text_add(out, "\n]}\n");
out_free:
    draw_layouts_close(&all);
    return err;
}
