/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the time goes: a device that stands in front of another and times each call by the host's
 * clock, operation by operation. FLOPs and bytes come from a null device that is asked the same
 * things, so the rates in the table count work the way the null device documents. On a device with
 * a queue each call is waited for, so nothing overlaps and a step takes longer than without.
 *
 * Time that is no call of the device is told apart as far as it can be from here: the start-up,
 * from the opening of the device to the first step; communication, by the clock of comm's own
 * calls; and what remains of the steps, which is the host's. A call before the first step or
 * behind the last one (weights being drawn, weights being saved) is in no row.
 *
 * Products are told apart by what they are for: weights stored (out, in) make a forward product
 * (trans_b), an input gradient (neither) or a weight gradient (trans_a).
 */
#include "device/device.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "device/null/null.h"

enum row {
    PROFILE_FORWARD, PROFILE_INPUT_GRAD, PROFILE_WEIGHT_GRAD, PROFILE_ATTN, PROFILE_ATTN_GRAD,
    PROFILE_NORM, PROFILE_NORM_GRAD, PROFILE_ROPE, PROFILE_ACT, PROFILE_BIAS_GRAD,
    PROFILE_RESIDUAL, PROFILE_EMBED, PROFILE_XENT, PROFILE_ADAMW, PROFILE_NORMS, PROFILE_MOVE,
    PROFILE_ROWS
};
static const char *const row_name[PROFILE_ROWS] = {
    "product, forward", "product, input gradient", "product, weight gradient", "attention",
    "attention gradient", "norm", "norm gradient", "rotary", "gated activation", "bias gradient",
    "residual, dropout", "embedding", "cross entropy", "adamw", "sums of squares",
    "copy, zero, cast"};

struct profile {
    struct dev dev;
    struct dev *inner, *counter; /* owned */
    double begin;                /* of the call under way */
    double opened, first, last;  /* clock at the opening, the first step, the end of the last */
    double comm_s;               /* seconds of communication in the steps */
    bool running;                /* between the first step and the end of the last */
    double seconds[PROFILE_ROWS], flops[PROFILE_ROWS], bytes[PROFILE_ROWS];
    int64_t calls[PROFILE_ROWS];
};

static struct profile *profile_of(struct dev *d)
{
    struct profile *p = d->impl;
    p->begin = log_now();
    return p;
}

/* The device within, watched by who watches the one in front. */
static struct dev *inner_of(struct dev *d)
{
    struct profile *p = d->impl;
    dev_watch(p->inner, d->watch, d->watch_arg);
    return p->inner;
}

/* The call has ended with `err`; what it queued is waited for. */
static enum err record(struct profile *p, enum row row, enum err err)
{
    if (err == ERR_OK && p->inner->queues)
        err = inner_of(&p->dev)->ops->sync(p->inner);
    if (p->running) {
        p->seconds[row] += log_now() - p->begin;
        p->calls[row]++;
    }
    return err;
}

/* What the null device counted since the last time, into the row. */
static enum err tally(struct profile *p, enum row row, enum err counted)
{
    struct dev_counts now;
    dev_null_counts(p->counter, &now);
    if (p->running) {
        p->flops[row] += now.flops;
        p->bytes[row] += now.bytes;
    }
    null_reset(p->counter);
    return counted;
}

static enum err timed_gemm(struct dev *d, const struct gemm *g)
{
    struct profile *p = profile_of(d);
    enum row row = g->trans_a ? PROFILE_WEIGHT_GRAD : g->trans_b ? PROFILE_FORWARD
                                                                 : PROFILE_INPUT_GRAD;
    TRY(record(p, row, p->inner->ops->gemm(p->inner, g)));
    return tally(p, row, p->counter->ops->gemm(p->counter, g));
}

static enum err timed_bias_grad(struct dev *d, void *db, const void *dy, int64_t n, int64_t c)
{
    struct profile *p = profile_of(d);
    TRY(record(p, PROFILE_BIAS_GRAD, p->inner->ops->bias_grad(p->inner, db, dy, n, c)));
    return tally(p, PROFILE_BIAS_GRAD, p->counter->ops->bias_grad(p->counter, db, dy, n, c));
}

static enum err timed_norm(struct dev *d, const struct norm *a)
{
    struct profile *p = profile_of(d);
    TRY(record(p, PROFILE_NORM, p->inner->ops->norm(p->inner, a)));
    return tally(p, PROFILE_NORM, p->counter->ops->norm(p->counter, a));
}

static enum err timed_norm_grad(struct dev *d, const struct norm_grad *a)
{
    struct profile *p = profile_of(d);
    TRY(record(p, PROFILE_NORM_GRAD, p->inner->ops->norm_grad(p->inner, a)));
    return tally(p, PROFILE_NORM_GRAD, p->counter->ops->norm_grad(p->counter, a));
}

static enum err timed_attn(struct dev *d, const struct attn *a)
{
    struct profile *p = profile_of(d);
    TRY(record(p, PROFILE_ATTN, p->inner->ops->attn(p->inner, a)));
    return tally(p, PROFILE_ATTN, p->counter->ops->attn(p->counter, a));
}

static enum err timed_attn_grad(struct dev *d, const struct attn_grad *a)
{
    struct profile *p = profile_of(d);
    TRY(record(p, PROFILE_ATTN_GRAD, p->inner->ops->attn_grad(p->inner, a)));
    return tally(p, PROFILE_ATTN_GRAD, p->counter->ops->attn_grad(p->counter, a));
}

static enum err timed_rope(struct dev *d, const struct rope *a)
{
    struct profile *p = profile_of(d);
    TRY(record(p, PROFILE_ROPE, p->inner->ops->rope(p->inner, a)));
    return tally(p, PROFILE_ROPE, p->counter->ops->rope(p->counter, a));
}

static enum err timed_swiglu(struct dev *d, void *out, const void *gu, int64_t n, int64_t f)
{
    struct profile *p = profile_of(d);
    TRY(record(p, PROFILE_ACT, p->inner->ops->swiglu(p->inner, out, gu, n, f)));
    return tally(p, PROFILE_ACT, p->counter->ops->swiglu(p->counter, out, gu, n, f));
}

static enum err timed_swiglu_grad(struct dev *d, void *dgu, const void *dout, const void *gu,
                                  int64_t n, int64_t f)
{
    struct profile *p = profile_of(d);
    TRY(record(p, PROFILE_ACT, p->inner->ops->swiglu_grad(p->inner, dgu, dout, gu, n, f)));
    return tally(p, PROFILE_ACT, p->counter->ops->swiglu_grad(p->counter, dgu, dout, gu, n, f));
}

static enum err timed_residual(struct dev *d, const struct residual *a)
{
    struct profile *p = profile_of(d);
    TRY(record(p, PROFILE_RESIDUAL, p->inner->ops->residual(p->inner, a)));
    return tally(p, PROFILE_RESIDUAL, p->counter->ops->residual(p->counter, a));
}

static enum err timed_residual_norm(struct dev *d, const struct residual *a, const struct norm *b)
{
    struct profile *p = profile_of(d);
    TRY(record(p, PROFILE_NORM, p->inner->ops->residual_norm(p->inner, a, b)));
    return tally(p, PROFILE_NORM, p->counter->ops->residual_norm(p->counter, a, b));
}

static enum err timed_dropout(struct dev *d, void *dx, const void *dy, int64_t n, int64_t c,
                              const struct drop *drop)
{
    struct profile *p = profile_of(d);
    TRY(record(p, PROFILE_RESIDUAL, p->inner->ops->dropout(p->inner, dx, dy, n, c, drop)));
    return tally(p, PROFILE_RESIDUAL, p->counter->ops->dropout(p->counter, dx, dy, n, c, drop));
}

static enum err timed_embed(struct dev *d, void *out, const void *w, const int32_t *token,
                            int64_t n, int64_t c, int64_t v0, int64_t rows)
{
    struct profile *p = profile_of(d);
    TRY(record(p, PROFILE_EMBED, p->inner->ops->embed(p->inner, out, w, token, n, c, v0, rows)));
    return tally(p, PROFILE_EMBED, p->counter->ops->embed(p->counter, out, w, token, n, c, v0,
        rows));
}

static enum err timed_embed_grad(struct dev *d, void *dw, const void *dy, const int32_t *token,
                                 int64_t n, int64_t c, int64_t v0, int64_t rows)
{
    struct profile *p = profile_of(d);
    TRY(record(p, PROFILE_EMBED, p->inner->ops->embed_grad(p->inner, dw, dy, token, n, c, v0,
        rows)));
    return tally(p, PROFILE_EMBED, p->counter->ops->embed_grad(p->counter, dw, dy, token, n, c, v0,
        rows));
}

static enum err timed_pos_add(struct dev *d, void *x, const void *w, int64_t n, int64_t c,
                              int64_t t, int64_t row0)
{
    struct profile *p = profile_of(d);
    TRY(record(p, PROFILE_EMBED, p->inner->ops->pos_add(p->inner, x, w, n, c, t, row0)));
    return tally(p, PROFILE_EMBED, p->counter->ops->pos_add(p->counter, x, w, n, c, t, row0));
}

static enum err timed_pos_grad(struct dev *d, void *dw, const void *dy, int64_t n, int64_t c,
                               int64_t t, int64_t row0)
{
    struct profile *p = profile_of(d);
    TRY(record(p, PROFILE_EMBED, p->inner->ops->pos_grad(p->inner, dw, dy, n, c, t, row0)));
    return tally(p, PROFILE_EMBED, p->counter->ops->pos_grad(p->counter, dw, dy, n, c, t, row0));
}

static enum err timed_xent_max(struct dev *d, const struct xent *a)
{
    struct profile *p = profile_of(d);
    TRY(record(p, PROFILE_XENT, p->inner->ops->xent_max(p->inner, a)));
    return tally(p, PROFILE_XENT, p->counter->ops->xent_max(p->counter, a));
}

static enum err timed_xent_sum(struct dev *d, const struct xent *a)
{
    struct profile *p = profile_of(d);
    TRY(record(p, PROFILE_XENT, p->inner->ops->xent_sum(p->inner, a)));
    return tally(p, PROFILE_XENT, p->counter->ops->xent_sum(p->counter, a));
}

static enum err timed_xent_grad(struct dev *d, const struct xent *a)
{
    struct profile *p = profile_of(d);
    TRY(record(p, PROFILE_XENT, p->inner->ops->xent_grad(p->inner, a)));
    return tally(p, PROFILE_XENT, p->counter->ops->xent_grad(p->counter, a));
}

static enum err timed_xent(struct dev *d, const struct xent *a)
{
    struct profile *p = profile_of(d);
    TRY(record(p, PROFILE_XENT, p->inner->ops->xent(p->inner, a)));
    return tally(p, PROFILE_XENT, p->counter->ops->xent(p->counter, a));
}

static enum err timed_scale(struct dev *d, double *now, const double *sums, double clip)
{
    struct profile *p = profile_of(d);
    TRY(record(p, PROFILE_NORMS, p->inner->ops->scale(p->inner, now, sums, clip)));
    return tally(p, PROFILE_NORMS, p->counter->ops->scale(p->counter, now, sums, clip));
}

static enum err timed_adamw(struct dev *d, const struct adamw *a)
{
    struct profile *p = profile_of(d);
    TRY(record(p, PROFILE_ADAMW, p->inner->ops->adamw(p->inner, a)));
    return tally(p, PROFILE_ADAMW, p->counter->ops->adamw(p->counter, a));
}

static enum err timed_sum(struct dev *d, double *out, const void *x, int64_t n)
{
    struct profile *p = profile_of(d);
    TRY(record(p, PROFILE_NORMS, p->inner->ops->sum(p->inner, out, x, n)));
    return tally(p, PROFILE_NORMS, p->counter->ops->sum(p->counter, out, x, n));
}

static enum err timed_sumsq(struct dev *d, double *out, const void *x, const struct dev_parts *of)
{
    struct profile *p = profile_of(d);
    TRY(record(p, PROFILE_NORMS, p->inner->ops->sumsq(p->inner, out, x, of)));
    return tally(p, PROFILE_NORMS, p->counter->ops->sumsq(p->counter, out, x, of));
}

static enum err timed_cast(struct dev *d, void *to, const void *from, int64_t n)
{
    struct profile *p = profile_of(d);
    TRY(record(p, PROFILE_MOVE, p->inner->ops->cast(p->inner, to, from, n)));
    return tally(p, PROFILE_MOVE, p->counter->ops->cast(p->counter, to, from, n));
}

static enum err timed_add(struct dev *d, void *to, const void *from, int64_t n)
{
    struct profile *p = profile_of(d);
    TRY(record(p, PROFILE_MOVE, p->inner->ops->add(p->inner, to, from, n)));
    return tally(p, PROFILE_MOVE, p->counter->ops->add(p->counter, to, from, n));
}

static enum err timed_copy_in(struct dev *d, void *to, const void *from, int64_t n)
{
    struct profile *p = profile_of(d);
    TRY(record(p, PROFILE_MOVE, p->inner->ops->copy_in(p->inner, to, from, n)));
    return tally(p, PROFILE_MOVE, p->counter->ops->copy_in(p->counter, to, from, n));
}

static enum err timed_copy_out(struct dev *d, void *to, const void *from, int64_t n)
{
    struct profile *p = profile_of(d);
    return record(p, PROFILE_MOVE, p->inner->ops->copy_out(p->inner, to, from, n));
}

static enum err timed_aside(struct dev *d, int slot, void *to, const void *from, int64_t n)
{
    struct profile *p = profile_of(d);
    return record(p, PROFILE_MOVE, p->inner->ops->aside(p->inner, slot, to, from, n));
}

static enum err timed_copy(struct dev *d, void *to, const void *from, int64_t n)
{
    struct profile *p = profile_of(d);
    TRY(record(p, PROFILE_MOVE, p->inner->ops->copy(p->inner, to, from, n)));
    return tally(p, PROFILE_MOVE, p->counter->ops->copy(p->counter, to, from, n));
}

static enum err timed_zero(struct dev *d, void *at, int64_t n)
{
    struct profile *p = profile_of(d);
    TRY(record(p, PROFILE_MOVE, p->inner->ops->zero(p->inner, at, n)));
    return tally(p, PROFILE_MOVE, p->counter->ops->zero(p->counter, at, n));
}

/* ---- calls that are not work ---- */

static enum err inner_alloc(struct dev *d, int64_t bytes, const char *name, void **out)
{
    struct profile *p = d->impl;
    return p->inner->ops->alloc(p->inner, bytes, name, out);
}

static void inner_free(struct dev *d, void *at)
{
    struct profile *p = d->impl;
    p->inner->ops->free(p->inner, at);
}

static enum err inner_host_alloc(struct dev *d, int64_t bytes, const char *name, void **out)
{
    struct profile *p = d->impl;
    return p->inner->ops->host_alloc(p->inner, bytes, name, out);
}

static void inner_host_free(struct dev *d, void *at)
{
    struct profile *p = d->impl;
    p->inner->ops->host_free(p->inner, at);
}

static enum err inner_sync(struct dev *d)
{
    struct dev *inner = inner_of(d);
    return inner->ops->sync(inner);
}

static enum err inner_aside_ready(struct dev *d, int slot)
{
    struct profile *p = d->impl;
    return p->inner->ops->aside_ready(p->inner, slot);
}

static enum err inner_aside_join(struct dev *d, int slot)
{
    struct profile *p = d->impl;
    return p->inner->ops->aside_join(p->inner, slot);
}

static enum err inner_aside_reach(struct dev *d, bool *there)
{
    struct profile *p = d->impl;
    return p->inner->ops->aside_reach(p->inner, there);
}

static enum err inner_choices(struct dev *d, struct text *out)
{
    struct profile *p = d->impl;
    return dev_choices(p->inner, out);
}

static enum err inner_choose(struct dev *d, const char *choices, bool *taken)
{
    struct profile *p = d->impl;
    return dev_choose(p->inner, choices, taken);
}

static enum err inner_mark(struct dev *d, int which)
{
    struct profile *p = d->impl;
    return p->inner->ops->mark(p->inner, which);
}

static enum err inner_reach(struct dev *d, int which)
{
    struct dev *inner = inner_of(d);
    return inner->ops->reach(inner, which);
}

static enum err inner_stamps(struct dev *d, int64_t n, int64_t *first)
{
    struct profile *p = d->impl;
    return p->inner->ops->stamps(p->inner, n, first);
}

static enum err inner_stamp(struct dev *d, int64_t which)
{
    struct profile *p = d->impl;
    return p->inner->ops->stamp(p->inner, which);
}

static enum err inner_stamped(struct dev *d, int64_t which, double *seconds)
{
    struct profile *p = d->impl;
    return p->inner->ops->stamped(p->inner, which, seconds);
}

static void *inner_queue(struct dev *d)
{
    struct profile *p = d->impl;
    return p->inner->ops->queue(p->inner);
}

static enum err inner_room(struct dev *d, int64_t *left, int64_t *all)
{
    struct profile *p = d->impl;
    return p->inner->ops->room(p->inner, left, all);
}

static void inner_describe(const struct dev *d, char *buf, size_t n)
{
    const struct profile *p = d->impl;
    p->inner->ops->describe(p->inner, buf, n);
}

static void profile_close(struct dev *d)
{
    struct profile *p = d->impl;
    dev_close(p->inner);
    dev_close(p->counter);
    mem_free(p);
}

static const struct dev_ops profile_ops = {
    .name = "profile",
    .close = profile_close,
    .describe = inner_describe,
    .alloc = inner_alloc,
    .free = inner_free,
    .host_alloc = inner_host_alloc,
    .host_free = inner_host_free,
    .sync = inner_sync,
    .aside = timed_aside,
    .aside_ready = inner_aside_ready,
    .aside_join = inner_aside_join,
    .aside_reach = inner_aside_reach,
    .choices = inner_choices,
    .choose = inner_choose,
    .mark = inner_mark,
    .reach = inner_reach,
    .stamps = inner_stamps,
    .stamp = inner_stamp,
    .stamped = inner_stamped,
    .queue = inner_queue,
    .room = inner_room,
    .gemm = timed_gemm,
    .bias_grad = timed_bias_grad,
    .norm = timed_norm,
    .norm_grad = timed_norm_grad,
    .attn = timed_attn,
    .attn_grad = timed_attn_grad,
    .rope = timed_rope,
    .swiglu = timed_swiglu,
    .swiglu_grad = timed_swiglu_grad,
    .residual = timed_residual,
    .residual_norm = timed_residual_norm,
    .dropout = timed_dropout,
    .embed = timed_embed,
    .embed_grad = timed_embed_grad,
    .pos_add = timed_pos_add,
    .pos_grad = timed_pos_grad,
    .xent_max = timed_xent_max,
    .xent_sum = timed_xent_sum,
    .xent_grad = timed_xent_grad,
    .xent = timed_xent,
    .adamw = timed_adamw,
    .scale = timed_scale,
    .sum = timed_sum,
    .sumsq = timed_sumsq,
    .cast = timed_cast,
    .add = timed_add,
    .copy_in = timed_copy_in,
    .copy_out = timed_copy_out,
    .copy = timed_copy,
    .zero = timed_zero,
};

enum err dev_profile_open(struct dev *inner, double opened, struct dev **out)
{
    struct profile *p;
    enum err err;
    TRY(mem_new(1, sizeof *p, "a profile", &p));
    struct dev_args a = {.kind = DEV_NULL, .ct = inner->ct, .threads = 1};
    TRY_OR(out_free, dev_open(&a, &p->counter));
    p->dev = *inner;
    p->dev.ops = &profile_ops;
    p->dev.impl = p;
    p->dev.stamp = NULL; /* those are within */
    p->inner = inner;
    p->opened = opened;
    *out = &p->dev;
    return ERR_OK;
out_free:
    mem_free(p);
    return err;
}

void dev_profile_begin(struct dev *d, double comm_s)
{
    struct profile *p = d->impl;
    if (d->ops != &profile_ops)
        return;
    p->first = log_now();
    p->comm_s = -comm_s;
    p->running = true;
}

void dev_profile_end(struct dev *d, double comm_s)
{
    struct profile *p = d->impl;
    if (d->ops != &profile_ops)
        return;
    p->last = log_now();
    p->comm_s += comm_s;
    p->running = false;
}

static void add_part(struct text *out, const char *name, double seconds, double span)
{
    text_add(out, "%-26s %9.3f %5.1f %%\n", name, seconds, 100 * seconds / span);
}

void dev_profile_table(const struct dev *d, struct text *out)
{
    const struct profile *p = d->impl;
    double span = p->last - p->first, in = 0;
    if (d->ops != &profile_ops)
        return;
    text_add(out, "%-26s %9s %7s %10s %10s %9s\n", "operation", "seconds", "share", "calls",
             "GFLOP/s", "GB/s");
    for (int i = 0; i < PROFILE_ROWS; i++) {
        double s = p->seconds[i];
        in += s;
        if (p->calls[i] == 0)
            continue;
        text_add(out, "%-26s %9.3f %5.1f %% %10lld %10.1f %9.1f\n", row_name[i], s,
                 100 * s / span, (long long)p->calls[i], s > 0 ? p->flops[i] / s * 1e-9 : 0,
                 s > 0 ? p->bytes[i] / s * 1e-9 : 0);
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
