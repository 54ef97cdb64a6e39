/* SPDX-License-Identifier: Apache-2.0
 *
 * What every device has, whatever its kind, and what plain.h says. The kinds themselves stand above
 * (device.c).
 */
#include "device/plain.h"

#include "base/log.h"
#include "base/mem.h"

/* ---- every device ---- */

/* Logits of a cuda device in bf16 stay in bf16: they are written once, and their gradient over
 * them. Its GEMMs want many rows at once. */
struct dtypes dev_types(enum dev_kind k, enum dtype ct)
{
    struct dtypes t = {.ct = ct, .at = ct == DT_F64 ? DT_F64 : DT_F32, .chunk = 256 << 20};
    t.logits = t.at;
    if (k == DEV_CUDA) {
        t.logits = ct;
        t.chunk = 1 << 30;
    }
    return t;
}

void dev_hook_put(struct dev *d, struct dev_hook *h)
{
    h->next = d->hook;
    d->hook = h;
}

void dev_hook_take(struct dev *d, struct dev_hook *h)
{
    struct dev_hook **at = &d->hook;
    while (*at && *at != h)
        at = &(*at)->next;
    if (*at)
        *at = h->next;
}

void dev_watch(struct dev *d, enum err (*check)(void *arg), void *arg)
{
    d->watch = check;
    d->watch_arg = arg;
}

enum err dev_waited(const struct dev *d)
{
    return d->watch ? d->watch(d->watch_arg) : ERR_OK;
}

enum err dev_choices(struct dev *d, struct text *out)
{
    return d->ops->choices ? d->ops->choices(d, out) : ERR_OK;
}

enum err dev_choose(struct dev *d, const char *choices, bool *taken)
{
    *taken = true;
    return d->ops->choose ? d->ops->choose(d, choices, taken) : ERR_OK;
}

void dev_close(struct dev *d)
{
    if (!d)
        return;
    double *timer = d->timer;
    d->ops->close(d);
    mem_free(timer);
}

/* ---- operations ---- */

static enum err plain_residual_norm(struct dev *d, const struct op *op)
{
    const struct residual *a = &op->residual_norm.residual;
    const struct norm *b = &op->residual_norm.norm;
    ENSURE(a->y == b->x && a->n == b->n && a->c == b->c);
    TRY(d->ops->run(d, &(struct op){.kind = OP_RESIDUAL, .residual = *a}));
    return d->ops->run(d, &(struct op){.kind = OP_NORM, .norm = *b});
}

static enum err plain_xent(struct dev *d, const struct op *op)
{
    static const enum op_kind part[] = {OP_XENT_MAX, OP_XENT_SUM, OP_XENT_GRAD};
    struct op one = *op;
    for (int i = 0; i < 3; i++) {
        one.kind = part[i];
        TRY(d->ops->run(d, &one));
    }
    return ERR_OK;
}

static enum err plain_scale(struct dev *d, const struct op *op)
{
    double *scalars = op->scale.step_scalars, clip = op->scale.clip;
    const double *sums = op->scale.sums;
    double tokens = sums[SUMS_TOKENS] > 0 ? sums[SUMS_TOKENS] : 1.0;
    double norm = sqrt(sums[SUMS_SQUARES]) / tokens;
    (void)d;
    if (!isfinite(sums[SUMS_LOSS]) || !isfinite(norm))
        scalars[SCALAR_LOST] = 1;
    scalars[SCALAR_SCALE] =
        scalars[SCALAR_LOST] != 0 ? NAN : (clip > 0 && norm > clip ? clip / norm : 1.0) / tokens;
    return ERR_OK;
}

static enum err plain_copy(struct dev *d, const struct op *op)
{
    (void)d;
    if (op->copy.n > 0)
        memmove(op->copy.to, op->copy.from, (size_t)op->copy.n);
    return ERR_OK;
}

static enum err plain_zero(struct dev *d, const struct op *op)
{
    (void)d;
    if (op->zero.n > 0)
        memset(op->zero.to, 0, (size_t)op->zero.n);
    return ERR_OK;
}

static enum err plain_snapshot(struct dev *d, const struct op *op)
{
    const struct snapshot *a = &op->snapshot;
    return d->ops->run(d, &(struct op){.kind = OP_D2H, .d2h = {a->to, a->from, a->n}});
}

enum err dev_plain_run(struct dev *d, const struct op *op)
{
#define PLAIN(kind, member, type, call, plain) [kind] = plain,
    static op_fn *const plain[OPS] = {OP_COMPOSITES(PLAIN) OP_MOVES(PLAIN)[OP_ZERO] = plain_zero};
#undef PLAIN
    if (!plain[op->kind])
        FAIL(ERR_CONFIG, "device: %s has no %s", d->ops->name, op_rows[op->kind].name);
    return plain[op->kind](d, op);
}

/* ---- slots of the table ---- */

enum err dev_plain_alloc(struct dev *d, int64_t bytes, const char *name, void **out)
{
    (void)d;
    TRY(mem_new(bytes, 1, name, out));
    return ERR_OK;
}

void dev_plain_free(struct dev *d, void *p)
{
    (void)d;
    mem_free(p);
}

enum err dev_plain_mem_info(struct dev *d, int64_t *free_bytes, int64_t *total)
{
    (void)d;
    *free_bytes = *total = 0;
    return ERR_OK;
}

enum err dev_plain_sync(struct dev *d)
{
    (void)d;
    return ERR_OK;
}

enum err dev_plain_event(struct dev *d, int which)
{
    (void)d;
    (void)which;
    return ERR_OK;
}

enum err dev_plain_snapshot_synchronize(struct dev *d, bool *there)
{
    (void)d;
    if (there)
        *there = true;
    return ERR_OK;
}

enum err dev_plain_timer_alloc(struct dev *d, int64_t n, int64_t *first)
{
    TRY(mem_grow(d->timers, d->timers + n, sizeof *d->timer, "timers", &d->timer));
    *first = d->timers;
    d->timers += n;
    return ERR_OK;
}

enum err dev_plain_timer_record(struct dev *d, int64_t which)
{
    ENSURE(which >= 0 && which < d->timers);
    d->timer[which] = log_now();
    return ERR_OK;
}

enum err dev_plain_timer_read(struct dev *d, int64_t which, double *seconds)
{
    ENSURE(which >= 0 && which < d->timers);
    *seconds = d->timer[which];
    return ERR_OK;
}
