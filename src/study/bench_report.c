/* SPDX-License-Identifier: Apache-2.0
 *
 * The tables of `plait bench`: the step by classes of calls, and the curves of the links.
 */
#include "study/bench.h"

#include "base/text.h"

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
    if (options_shares(b->o) > 1)
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
    bench_say(b, "%-10s %18s %18s %18s %18s %18s", "bytes", bench_link_name(LINK_ALL_REDUCE),
              bench_link_name(LINK_ALL_GATHER), bench_link_name(LINK_REDUCE_SCATTER),
              bench_link_name(LINK_ALL_TO_ALL), bench_link_name(LINK_SEND));
    for (int i = 0; i < b->points[0]; i++) {
        struct text line = {0};
        for (int l = 0; l < BENCH_LINKS; l++)
            text_add(&line, " %10.1f %7.2f", b->curve[l][i].seconds * 1e6,
                     bench_bus(b, (enum bench_link)l, &b->curve[l][i]) * 1e-9);
        if (line.err == ERR_OK)
            bench_say(b, "%-10s%s", text_bytes(b->curve[0][i].bytes, size), line.s);
        text_free(&line);
    }
}
