/* SPDX-License-Identifier: Apache-2.0
 *
 * What `plait bench` says: the step by classes of calls, the curves of the links, and the profile
 * of a machine as a file for planning: JSON, its members as docs/cluster-profile.md lists them.
 * Numbers there have all their digits, so that what is read is what was measured.
 */
#include "study/bench.h"

#include "base/fs.h"
#include "base/text.h"
#include <stdarg.h>
#include <stdio.h>

enum { VERSION = 2 }; /* of the profile */

void bench_say(const struct bench *b, const char *fmt, ...)
{
    char line[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    if (b->a->on_line)
        b->a->on_line(b->a->arg, line);
}

double bench_floor(const struct bench *b, const struct calls_call *c)
{
    return fmax(c->flops / b->gemm, c->bytes / b->copy);
}

const char *bench_link_name(enum bench_link l)
{
    static const char *const name[BENCH_LINKS] = {"all_reduce", "all_gather", "reduce_scatter",
                                                  "all_to_all", "send"};
    return name[l];
}

double bench_bus(const struct bench *b, enum bench_link l, const struct bench_point *p)
{
    double n = b->ranks, part = l == LINK_SEND ? 1 : (n - 1) / n * (l == LINK_ALL_REDUCE ? 2 : 1);
    return part * (double)p->bytes / p->seconds;
}

/* ---- tables ---- */

struct totals {
    double flops, bytes, floor, seconds;
};

static void add(const struct bench *b, const struct bench_call *k, struct totals *to)
{
    double n = (double)k->call.count;
    to->flops += n * k->call.flops;
    to->bytes += n * k->call.bytes;
    to->floor += n * bench_floor(b, &k->call);
    to->seconds += n * k->seconds;
}

static void say_sum(const struct bench *b, const char *name, const struct totals *s,
                    const struct totals *all)
{
    if (all->seconds > 0)
        bench_say(b, "%-20s %12.3f %12.3f %10.2f %10.2f %6.1f %% %8.1f %%", name, s->flops * 1e-12,
                  s->bytes * 1e-9, s->floor * 1e3, s->seconds * 1e3,
                  100 * s->seconds / all->seconds,
                  s->seconds > 0 ? 100 * s->floor / s->seconds : 0);
    else
        bench_say(b, "%-20s %12.3f %12.3f %10.2f %6.1f %%", name, s->flops * 1e-12,
                  s->bytes * 1e-9, s->floor * 1e3, 100 * s->floor / all->floor);
}

void bench_report_classes(const struct bench *b)
{
    struct totals of[OP_CLASSES] = {{0}}, all = {0};
    struct model a;
    options_arch(b->o, &a);
    const char *unit = model_traits(a.kind)->text ? "tokens" : "rows";
    for (int i = 0; i < b->calls; i++) {
        add(b, &b->call[i], &of[b->call[i].call.class]);
        add(b, &b->call[i], &all);
    }
    bench_say(b, "\nstep of %lld %s on one rank; ceilings %.2f TFLOP/s, %.1f GB/s",
              (long long)b->tokens, unit, b->gemm * 1e-12, b->copy * 1e-9);
    if (b->o->parallel.tp > 1)
        bench_say(b, "parallel.tp %lld is passed over: this rank has whole tensors",
                  (long long)b->o->parallel.tp);
    if (b->o->parallel.pp > 1)
        bench_say(b, "parallel.pp %lld is passed over: this rank has all %lld layers",
                  (long long)b->o->parallel.pp, (long long)a.layers);
    if (options_shards(b->o) > 1)
        bench_say(b, "parallel.zero %d is passed over: this rank updates all of its weights",
                  b->o->parallel.zero);
    if (all.seconds > 0)
        bench_say(b, "%-20s %12s %12s %10s %10s %8s %10s", "class", "TFLOP", "GB", "floor ms",
                  "ms", "share", "of ceiling");
    else
        bench_say(b, "%-20s %12s %12s %10s %8s", "class", "TFLOP", "GB", "floor ms", "share");
    for (int c = 0; c < OP_CLASSES; c++)
        if (of[c].bytes > 0)
            say_sum(b, op_class_name((enum op_class)c), &of[c], &all);
    say_sum(b, "all", &all, &all);
    bench_say(b, "floor %.0f %s/s%s", (double)b->tokens / all.floor, unit,
              all.seconds > 0 ? "" : "; nothing was measured");
    if (all.seconds > 0)
        bench_say(b, "calls one behind the other %.0f %s/s",
                  (double)b->tokens / all.seconds, unit);
}

void bench_report_links(const struct bench *b)
{
    char size[32];
    bench_say(b, "\nlinks of %d ranks, us and GB/s on the bus (of collectives: what each rank must "
                 "send)", b->ranks);
    for (int i = -1; i < b->points[0]; i++) { /* names, then points */
        struct text line = {0};
        text_add(&line, "%-10s", i < 0 ? "bytes" : text_bytes(b->curve[0][i].bytes, size));
        for (int l = 0; l < BENCH_LINKS; l++) {
            const struct bench_point *p = &b->curve[l][i < 0 ? 0 : i];
            if (i < 0)
                text_add(&line, " %18s", bench_link_name((enum bench_link)l));
            else
                text_add(&line, " %10.1f %7.2f", p->seconds * 1e6,
                         bench_bus(b, (enum bench_link)l, p) * 1e-9);
        }
        if (line.err == ERR_OK)
            bench_say(b, "%s", line.s);
        text_free(&line);
    }
}

/* ---- the profile ---- */

enum err bench_profile(const struct bench *b, const char *path)
{
    struct text t = {0};
    text_add(&t, "{\n  \"plait_profile\": %d,\n  \"device\": {\"name\": ", VERSION);
    text_add_json(&t, b->device);
    text_add(&t, ", \"dtype\": \"%s\"},\n", dtype_name(b->types.ct));
    text_add(&t, "  \"product\": {\"flops_per_s\": %.17g, \"side\": %lld},\n", b->gemm,
             (long long)b->gemm_side);
    text_add(&t, "  \"copy\": {\"bytes_per_s\": %.17g, \"bytes\": %lld},\n", b->copy,
             (long long)b->copy_bytes);
    text_add(&t, "  \"step_tokens\": %lld,\n  \"calls\": [", (long long)b->tokens);
    for (int i = 0; i < b->calls; i++) {
        const struct calls_call *c = &b->call[i].call;
        const struct op_row *row = &op_rows[c->op.kind];
        const char *flag[OP_FLAGS], *between = "";
        int flags = op_flags(&c->op, flag);
        text_add(&t, "%s\n    {\"op\": \"%s\", \"class\": \"%s\", \"sizes\": {", i ? "," : "",
                 row->name, op_class_name(c->class));
        for (const struct op_field *f = row->field; f->name; f++) {
            if (f->kind != FIELD_EXTENT && f->kind != FIELD_STRIDE)
                continue;
            text_add(&t, "%s\"%s\": %lld", between, f->name, (long long)op_get(&c->op, f));
            between = ", ";
        }
        text_add(&t, "}, \"flags\": [");
        for (int k = 0; k < flags; k++)
            text_add(&t, "%s\"%s\"", k ? ", " : "", flag[k]);
        text_add(&t, "], \"count\": %lld, \"flops\": %.17g, \"bytes\": %.17g, \"seconds\": %.17g}",
                 (long long)c->count, c->flops, c->bytes, b->call[i].seconds);
    }
    text_add(&t, "%s],\n  \"links\": [", b->calls ? "\n  " : "");
    bool links = b->points[0] > 0; /* of one all were measured */
    for (int l = 0; links && l < BENCH_LINKS; l++) {
        text_add(&t, "%s\n    {\"op\": \"%s\", \"ranks\": %d, \"points\": [", l ? "," : "",
                 bench_link_name((enum bench_link)l), b->ranks);
        for (int i = 0; i < b->points[l]; i++)
            text_add(&t, "%s[%lld, %.17g]", i ? ", " : "", (long long)b->curve[l][i].bytes,
                     b->curve[l][i].seconds);
        text_add(&t, "]}");
    }
    text_add(&t, "%s]\n}\n", links ? "\n  " : "");
    enum err err = t.err;
    if (err == ERR_OK)
        err = fs_put(path, t.s, t.len);
    text_free(&t);
    return err;
}
