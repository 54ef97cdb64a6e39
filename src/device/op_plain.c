/* SPDX-License-Identifier: Apache-2.0
 *
 * What an operation is made of goes to the device itself: who stands around its operations sees the
 * whole, and not its parts.
 */
#include "device/op_plain.h"

#include "device/device.h"

enum err op_plain(struct dev *d, const struct op *op)
{
#define PLAIN(kind, member, type, call, plain) [kind] = plain,
    static op_fn *const plain[OPS] = {OP_COMPOSITES(PLAIN) OP_MOVES(PLAIN)
                                      [OP_ZERO] = op_plain_zero};
#undef PLAIN
    if (!plain[op->kind])
        FAIL(ERR_CONFIG, "device: %s has no %s", d->ops->name, op_rows[op->kind].name);
    return plain[op->kind](d, op);
}

enum err op_plain_residual_norm(struct dev *d, const struct op *op)
{
    const struct residual *a = &op->residual_norm.residual;
    const struct norm *b = &op->residual_norm.norm;
    ENSURE(a->y == b->x && a->n == b->n && a->c == b->c);
    TRY(d->ops->run(d, &(struct op){.kind = OP_RESIDUAL, .residual = *a}));
    return d->ops->run(d, &(struct op){.kind = OP_NORM, .norm = *b});
}

enum err op_plain_xent(struct dev *d, const struct op *op)
{
    static const enum op_kind part[] = {OP_XENT_MAX, OP_XENT_SUM, OP_XENT_GRAD};
    struct op one = *op;
    for (int i = 0; i < 3; i++) {
        one.kind = part[i];
        TRY(d->ops->run(d, &one));
    }
    return ERR_OK;
}

double op_plain_factor(const double *sums, double clip)
{
    double tokens = sums[SUMS_TOKENS] > 0 ? sums[SUMS_TOKENS] : 1.0;
    double norm = sqrt(sums[SUMS_SQUARES]) / tokens;
    if (!isfinite(sums[SUMS_LOSS]) || !isfinite(norm))
        return NAN;
    return (clip > 0 && norm > clip ? clip / norm : 1.0) / tokens;
}

enum err op_plain_scale(struct dev *d, const struct op *op)
{
    double *scalars = op->scale.step_scalars;
    (void)d;
    scalars[SCALAR_SCALE] =
        scalars[SCALAR_LOST] != 0 ? NAN : op_plain_factor(op->scale.sums, op->scale.clip);
    if (isnan(scalars[SCALAR_SCALE]))
        scalars[SCALAR_LOST] = 1;
    return ERR_OK;
}

enum err op_plain_copy(struct dev *d, const struct op *op)
{
    (void)d;
    if (op->copy.n > 0)
        memmove(op->copy.to, op->copy.from, (size_t)op->copy.n);
    return ERR_OK;
}

enum err op_plain_zero(struct dev *d, const struct op *op)
{
    (void)d;
    if (op->zero.n > 0)
        memset(op->zero.to, 0, (size_t)op->zero.n);
    return ERR_OK;
}

enum err op_plain_snapshot(struct dev *d, const struct op *op)
{
    const struct snapshot *a = &op->snapshot;
    return d->ops->run(d, &(struct op){.kind = OP_D2H, .d2h = {a->to, a->from, a->n}});
}
