/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the time goes: a hook around a device's operations that times each by the host's clock.
 * FLOPs and bytes are those of the operations' rows (op.h), so the rates in the table count work
 * the way they do. On an async device each call is waited for, so nothing overlaps and a step
 * takes longer than without.
 *
 * Time that is no call of the device is told apart as far as it can be from here: the start-up,
 * from the opening of the device to the first step; communication, by the clock of comm's own
 * calls; and what remains of the steps, which is the host's. A call before the first step or behind
 * the last one (weights being drawn, weights being saved) is in no row.
 */
#include "device/profile.h"

#include "base/log.h"
#include "base/mem.h"

#include <string.h>

/* GEMMs are told apart by what they are for: weights stored (out, in) make a forward GEMM
 * (trans_b), an input gradient (neither) or a weight gradient (trans_a). */
enum { FORWARD = OPS, INPUT_GRAD, WEIGHT_GRAD, LINES };
static const char *const gemm_name[] = {"GEMM, forward", "GEMM, input gradient",
                                        "GEMM, weight gradient"};

struct line {
    double seconds, flops, bytes;
    int64_t calls;
};

struct dev_profile {
    struct dev_hook hook;       /* first: a hook of this kind is a profile */
    struct dev *dev;            /* borrowed */
    double opened, first, last; /* clock at the opening, the first step, the end of the last */
    double comm_s;              /* seconds of communication in the steps */
    bool running;               /* between the first step and the end of the last */
    struct line line[LINES];    /* by operation; GEMMs behind them */
};

static enum err timed(struct dev_hook *h, struct dev *d, const struct op *op)
{
    struct dev_profile *p = (struct dev_profile *)h;
    int at = op->kind != OP_GEMM ? (int)op->kind
             : op->gemm.trans_a  ? WEIGHT_GRAD
             : op->gemm.trans_b  ? FORWARD
                                 : INPUT_GRAD;
    struct line *line = &p->line[at];
    double begin = log_now();
    enum err err = dev_next(h->next, d, op);
    if (err == ERR_OK && d->async)
        err = d->ops->sync(d);
    if (!p->running)
        return err;
    line->seconds += log_now() - begin;
    line->flops += op_flops(op);
    line->bytes += op_bytes(op, &d->types);
    line->calls++;
    return err;
}

enum err dev_profile_open(struct dev *d, double opened, struct dev_profile **out)
{
    struct dev_profile *p;
    TRY(mem_new(1, sizeof *p, "a profile", &p));
    p->hook.around = timed;
    p->dev = d;
    p->opened = opened;
    dev_hook_put(d, &p->hook);
    *out = p;
    return ERR_OK;
}

void dev_profile_close(struct dev_profile *p)
{
    if (p)
        dev_hook_take(p->dev, &p->hook);
    mem_free(p);
}

void dev_profile_begin(struct dev_profile *p, double comm_s)
{
    if (!p)
        return;
    p->first = log_now();
    p->comm_s = -comm_s;
    p->running = true;
}

void dev_profile_end(struct dev_profile *p, double comm_s)
{
    if (!p)
        return;
    p->last = log_now();
    p->comm_s += comm_s;
    p->running = false;
}

/* ---- the table ---- */

static const char *name_of(int line)
{
    return line >= OPS ? gemm_name[line - OPS] : op_rows[line].group;
}

/* The sum of all lines of that name, of which it has to be the first; false: it is not. */
static bool sum_of(const struct dev_profile *p, int line, struct line *sum)
{
    const char *name = name_of(line);
    *sum = (struct line){0};
    for (int i = 0; i < LINES && name; i++) {
        const struct line *l = &p->line[i];
        if (!name_of(i) || strcmp(name_of(i), name) != 0)
            continue;
        if (i < line)
            return false;
        *sum = (struct line){sum->seconds + l->seconds, sum->flops + l->flops,
                             sum->bytes + l->bytes, sum->calls + l->calls};
    }
    return name != NULL;
}

static void add_part(struct text *out, const char *name, double seconds, double span)
{
    text_add(out, "%-26s %9.3f %5.1f %%\n", name, seconds, 100 * seconds / span);
}

void dev_profile_table(const struct dev_profile *p, struct text *out)
{
    double span = p->last - p->first, in = 0;
    text_add(out, "%-26s %9s %7s %10s %10s %9s\n", "operation", "seconds", "share", "calls",
             "GFLOP/s", "GB/s");
    for (int k = 0; k < LINES; k++) {
        int i = k < LINES - OPS ? OPS + k : k - (LINES - OPS); /* GEMMs first */
        struct line sum;
        if (!sum_of(p, i, &sum))
            continue;
        double s = sum.seconds;
        in += s;
        if (sum.calls > 0)
            text_add(out, "%-26s %9.3f %5.1f %% %10lld %10.1f %9.1f\n", name_of(i), s,
                     100 * s / span, (long long)sum.calls, s > 0 ? sum.flops / s * 1e-9 : 0,
                     s > 0 ? sum.bytes / s * 1e-9 : 0);
    }
    add_part(out, "communication, waiting", p->comm_s, span);
    add_part(out, "host, the rest", span - in - p->comm_s, span);
    add_part(out, "steps and validation", span, span);
    text_add(out, "%-26s %9.3f\n", "start-up before them", p->first - p->opened);
    text_add(out, "(communication: in calls that send, receive or reduce, where waiting for a "
                  "peer, copying\nand adding are not told apart; host: reading samples, writing "
                  "metrics, callbacks, the\ncounting for this table; start-up: from opening the "
                  "device to the first step)\n");
}
