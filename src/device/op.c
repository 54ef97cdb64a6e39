/* SPDX-License-Identifier: Apache-2.0
 *
 * The rows of the operations. An operand stands in its row once, with its extents as the arguments
 * of the call give them: what a call must move, what the probe looks at and what a call is given to
 * be run alone follow from there, by walking its row.
 */
#include "device/op.h"

#include <stdio.h>

/* ---- operands ---- */

#define AT(member) offsetof(struct op, member)
/* moved: elements that a call reads, or writes. */
#define SOME(member, r, c, l, to, how, n)                                                          \
    .at = AT(member), .rows = (r), .cols = (c), .ld = (l), .moved = (n), .holds = (to),            \
    .access = (how)
#define AREA(r, c) ((double)(r) * (double)(c))
#define OPERAND(member, r, c, l, to, how) SOME(member, r, c, l, to, how, AREA(r, c))
/* Row-major, tight rows; flat vectors are one row. */
#define IN(member, r, c, to) OPERAND(member, r, c, 0, to, ACCESS_READ)
#define OUT(member, r, c, to) OPERAND(member, r, c, 0, to, ACCESS_WRITE)
#define SUM_IN(member, r, c, to) OPERAND(member, r, c, 0, to, ACCESS_ADD)
/* Rows that stand ld elements apart. */
#define IN_LD(member, r, c, l, to) OPERAND(member, r, c, l, to, ACCESS_READ)
#define OUT_LD(member, r, c, l, to) OPERAND(member, r, c, l, to, ACCESS_WRITE)
/* That may be missing. */
#define IN_IF(label, member, r, c, to) IN(member, r, c, to), .name = (label), .optional = true
#define OUT_IF(label, member, r, c, to) OUT(member, r, c, to), .name = (label), .optional = true

#define LIST(out, ...)                                                                             \
    const struct op_operand list_[] = {__VA_ARGS__};                                               \
    _Static_assert(sizeof list_ <= OP_OPERANDS * sizeof *list_, "raise OP_OPERANDS");              \
    memcpy((out), list_, sizeof list_);                                                            \
    return (int)(sizeof list_ / sizeof *list_)

static int gemm_operands(const struct op *op, struct op_operand *out)
{
    const struct gemm *g = &op->gemm;
    int64_t m = g->m, n = g->n, k = g->k;
    enum op_access how = g->accumulate ? ACCESS_ADD : ACCESS_WRITE;
    enum op_access pre = g->act == GEMM_DGELU ? ACCESS_READ : ACCESS_WRITE;
    LIST(out, {OPERAND(gemm.c, m, n, g->ldc, g->c_at ? HOLDS_AT : HOLDS_CT, how)},
         {IN_LD(gemm.a, g->trans_a ? k : m, g->trans_a ? m : k, g->lda, HOLDS_CT)},
         {IN_LD(gemm.b, g->trans_b ? n : k, g->trans_b ? k : n, g->ldb, HOLDS_CT)},
         {IN_IF("bias", gemm.bias, 1, n, HOLDS_CT)},
         {OPERAND(gemm.pre, g->act == GEMM_NONE ? 0 : m, n, 0, HOLDS_CT, pre)},
         {OPERAND(gemm.db, 1, m, 0, HOLDS_AT, how), .name = "bias_grad", .optional = true});
}

static int bias_grad_operands(const struct op *op, struct op_operand *out)
{
    const struct bias_grad *a = &op->bias_grad;
    LIST(out, {SUM_IN(bias_grad.db, 1, a->c, HOLDS_AT)}, {IN(bias_grad.dy, a->n, a->c, HOLDS_CT)});
}

static int norm_operands(const struct op *op, struct op_operand *out)
{
    const struct norm *a = &op->norm;
    LIST(out, {OUT(norm.y, a->n, a->c, HOLDS_CT)}, {OUT_IF("mean", norm.mean, 1, a->n, HOLDS_AT)},
         {OUT(norm.rstd, 1, a->n, HOLDS_POSITIVE)}, {IN(norm.x, a->n, a->c, HOLDS_CT)},
         {IN(norm.w, 1, a->c, HOLDS_CT)}, {IN_IF("bias", norm.b, 1, a->c, HOLDS_CT)});
}

static int norm_grad_operands(const struct op *op, struct op_operand *out)
{
    const struct norm_grad *a = &op->norm_grad;
    LIST(out, {OUT(norm_grad.dx, a->n, a->c, HOLDS_CT)}, {OUT(norm_grad.dw, 1, a->c, HOLDS_AT)},
         {OPERAND(norm_grad.db, 1, a->c, 0, HOLDS_AT, ACCESS_WRITE), .name = "bias",
          .optional = true, .lies = LIES_BEHIND},
         {IN_IF("plus", norm_grad.d, a->n, a->c, HOLDS_CT)},
         {IN(norm_grad.dy, a->n, a->c, HOLDS_CT)}, {IN(norm_grad.x, a->n, a->c, HOLDS_CT)},
         {IN(norm_grad.w, 1, a->c, HOLDS_CT)},
         {IN_IF("mean", norm_grad.mean, a->rms ? 0 : 1, a->n, HOLDS_AT)},
         {IN(norm_grad.rstd, 1, a->n, HOLDS_POSITIVE)});
}

static int attn_operands(const struct op *op, struct op_operand *out)
{
    const struct attn *a = &op->attn;
    int64_t n = a->b * a->tq, nk = a->b * a->tk, c = a->heads * a->d, ck = a->kv_heads * a->d;
    LIST(out, {OUT_LD(attn.o, n, c, a->ldo, HOLDS_CT)}, {OUT(attn.lse, n, a->heads, HOLDS_AT)},
         {IN_LD(attn.q, n, c, a->ldq, HOLDS_CT)},
         {OPERAND(attn.k, nk, ck, a->ldk, HOLDS_CT, ACCESS_READ), .lies = LIES_BESIDE},
         {OPERAND(attn.v, nk, ck, a->ldv, HOLDS_CT, ACCESS_READ), .lies = LIES_BESIDE});
}

static int attn_grad_operands(const struct op *op, struct op_operand *out)
{
    const struct attn *a = &op->attn_grad.f;
    int64_t n = a->b * a->tq, nk = a->b * a->tk, c = a->heads * a->d, ck = a->kv_heads * a->d;
    LIST(out, {OUT_LD(attn_grad.dq, n, c, a->ldq, HOLDS_CT)},
         {OPERAND(attn_grad.dk, nk, ck, a->ldk, HOLDS_CT, ACCESS_WRITE), .lies = LIES_BESIDE},
         {OPERAND(attn_grad.dv, nk, ck, a->ldv, HOLDS_CT, ACCESS_WRITE), .lies = LIES_BESIDE},
         {OPERAND(attn_grad.delta, n, a->heads, 0, HOLDS_AT, ACCESS_SCRATCH)},
         {IN_LD(attn_grad.do_, n, c, a->ldo, HOLDS_CT)},
         {IN_LD(attn_grad.f.o, n, c, a->ldo, HOLDS_CT)},
         {IN(attn_grad.f.lse, n, a->heads, HOLDS_AT)},
         {IN_LD(attn_grad.f.q, n, c, a->ldq, HOLDS_CT)},
         {OPERAND(attn_grad.f.k, nk, ck, a->ldk, HOLDS_CT, ACCESS_READ), .lies = LIES_BESIDE},
         {OPERAND(attn_grad.f.v, nk, ck, a->ldv, HOLDS_CT, ACCESS_READ), .lies = LIES_BESIDE});
}

static int rope_operands(const struct op *op, struct op_operand *out)
{
    const struct rope *a = &op->rope;
    LIST(out, {OPERAND(rope.x, a->n, a->heads * a->d, a->ld, HOLDS_CT, ACCESS_ADD)},
         {SOME(rope.table, a->pos0 + num_min(a->n, a->t), a->d, 0, HOLDS_AT, ACCESS_READ,
               AREA(num_min(a->n, a->t), a->d))});
}

static int swiglu_operands(const struct op *op, struct op_operand *out)
{
    const struct swiglu *a = &op->swiglu;
    LIST(out, {OUT(swiglu.out, a->n, a->f, HOLDS_CT)}, {IN(swiglu.gu, a->n, 2 * a->f, HOLDS_CT)});
}

static int swiglu_grad_operands(const struct op *op, struct op_operand *out)
{
    const struct swiglu_grad *a = &op->swiglu_grad;
    LIST(out, {OUT(swiglu_grad.dgu, a->n, 2 * a->f, HOLDS_CT)},
         {IN(swiglu_grad.dout, a->n, a->f, HOLDS_CT)},
         {IN(swiglu_grad.gu, a->n, 2 * a->f, HOLDS_CT)});
}

static int relu_operands(const struct op *op, struct op_operand *out)
{
    const struct relu *a = &op->relu;
    LIST(out, {OUT(relu.y, 1, a->n, HOLDS_CT)}, {IN(relu.x, 1, a->n, HOLDS_CT)});
}

static int relu_grad_operands(const struct op *op, struct op_operand *out)
{
    const struct relu_grad *a = &op->relu_grad;
    LIST(out, {OUT(relu_grad.dx, 1, a->n, HOLDS_CT)}, {IN(relu_grad.dy, 1, a->n, HOLDS_CT)},
         {IN(relu_grad.x, 1, a->n, HOLDS_CT)});
}

static int residual_operands(const struct op *op, struct op_operand *out)
{
    const struct residual *a = &op->residual;
    LIST(out, {OUT(residual.y, a->n, a->c, HOLDS_CT)},
         {IN_IF("x", residual.x, a->n, a->c, HOLDS_CT)},
         {IN(residual.f, a->n, a->c, HOLDS_CT)}, {IN_IF("plus", residual.bias, 1, a->c, HOLDS_CT)});
}

/* The norm's input is at hand, and not read again. */
static int residual_norm_operands(const struct op *op, struct op_operand *out)
{
    const struct residual *a = &op->residual_norm.residual;
    const struct norm *b = &op->residual_norm.norm;
    LIST(out, {OUT(residual_norm.residual.y, a->n, a->c, HOLDS_CT)},
         {SOME(residual_norm.norm.x, b->n, b->c, 0, HOLDS_CT, ACCESS_SCRATCH, 0),
          .lies = LIES_OVER},
         {OUT(residual_norm.norm.y, b->n, b->c, HOLDS_CT)},
         {OUT_IF("mean", residual_norm.norm.mean, 1, b->n, HOLDS_AT)},
         {OUT(residual_norm.norm.rstd, 1, b->n, HOLDS_POSITIVE)},
         {IN_IF("x", residual_norm.residual.x, a->n, a->c, HOLDS_CT)},
         {IN(residual_norm.residual.f, a->n, a->c, HOLDS_CT)},
         {IN_IF("plus", residual_norm.residual.bias, 1, a->c, HOLDS_CT)},
         {IN(residual_norm.norm.w, 1, b->c, HOLDS_CT)},
         {IN_IF("bias", residual_norm.norm.b, 1, b->c, HOLDS_CT)});
}

static int dropout_operands(const struct op *op, struct op_operand *out)
{
    const struct dropout *a = &op->dropout;
    LIST(out, {OUT(dropout.dx, a->n, a->c, HOLDS_CT)}, {IN(dropout.dy, a->n, a->c, HOLDS_CT)});
}

static int embed_operands(const struct op *op, struct op_operand *out)
{
    const struct embed *a = &op->embed;
    LIST(out, {OUT(embed.out, a->n, a->c, HOLDS_CT)},
         {SOME(embed.w, a->rows, a->c, 0, HOLDS_CT, ACCESS_READ, AREA(a->n, a->c))},
         {IN(embed.token, 1, a->n, HOLDS_IDS), .id0 = a->v0, .ids = a->rows});
}

static int embed_grad_operands(const struct op *op, struct op_operand *out)
{
    const struct embed_grad *a = &op->embed_grad;
    LIST(out, {SOME(embed_grad.dw, a->rows, a->c, 0, HOLDS_AT, ACCESS_ADD, AREA(a->n, a->c))},
         {IN(embed_grad.dy, a->n, a->c, HOLDS_CT)},
         {IN(embed_grad.token, 1, a->n, HOLDS_IDS), .id0 = a->v0, .ids = a->rows});
}

static int pos_add_operands(const struct op *op, struct op_operand *out)
{
    const struct pos_add *a = &op->pos_add;
    LIST(out, {SUM_IN(pos_add.x, a->n, a->c, HOLDS_CT)},
         {SOME(pos_add.w, a->t, a->c, 0, HOLDS_CT, ACCESS_READ, AREA(num_min(a->n, a->t), a->c))});
}

static int pos_grad_operands(const struct op *op, struct op_operand *out)
{
    const struct pos_grad *a = &op->pos_grad;
    LIST(out, {SOME(pos_grad.dw, a->t, a->c, 0, HOLDS_AT, ACCESS_ADD,
                    AREA(num_min(a->n, a->t), a->c))},
         {IN(pos_grad.dy, a->n, a->c, HOLDS_CT)});
}

/* Of the four rows of numbers that a cross entropy keeps each step has some. Of no columns the
 * maximum is minus infinity, which nobody is to find. */
static int xent_operands(const struct op *op, struct op_operand *out)
{
    static const struct { enum op_access max, sum, loss; bool logits; } kept[OPS] = {
        [OP_XENT_MAX] = {.max = ACCESS_WRITE, .logits = true},
        [OP_XENT_SUM] = {.max = ACCESS_READ, .sum = ACCESS_WRITE, .logits = true},
        [OP_XENT_GRAD] = {.max = ACCESS_READ, .sum = ACCESS_READ, .loss = ACCESS_WRITE},
        [OP_XENT] = {ACCESS_SCRATCH, ACCESS_SCRATCH, ACCESS_WRITE, .logits = true}};
    const struct xent *x = &op->xent;
    enum op_access max = kept[op->kind].max, sum = kept[op->kind].sum, loss = kept[op->kind].loss;
    enum op_access scratch = x->v > 0 || max != ACCESS_WRITE ? max : ACCESS_SCRATCH;
    bool made = loss && x->dlogits, reads = kept[op->kind].logits || made;
    LIST(out, {OPERAND(xent.logits, reads ? x->n : 0, x->v, x->ld, HOLDS_LOGITS, ACCESS_READ)},
         {OPERAND(xent.dlogits, made ? x->n : 0, x->ld, 0, HOLDS_CT, ACCESS_WRITE),
          .name = "gradient", .optional = true, .lies = LIES_MAYBE_OVER},
         {OPERAND(xent.max, max ? 1 : 0, x->n, 0, HOLDS_POSITIVE, scratch)},
         {OPERAND(xent.sum, sum ? 1 : 0, x->n, 0, HOLDS_POSITIVE, sum)},
         {OPERAND(xent.target_logit, sum ? 1 : 0, x->n, 0, HOLDS_POSITIVE, sum),
          .lies = LIES_BEHIND},
         {OPERAND(xent.loss, loss ? 1 : 0, x->n, 0, HOLDS_AT, loss)},
         {OPERAND(xent.target, sum ? 1 : 0, x->n, 0, HOLDS_IDS, ACCESS_READ), .id0 = x->v0,
          .ids = x->v});
}

/* The weights in ct are only written where the master is apart. */
static int adamw_operands(const struct op *op, struct op_operand *out)
{
    const struct adamw *a = &op->adamw;
    LIST(out, {OPERAND(adamw.w, 1, a->n, 0, HOLDS_CT, a->master ? ACCESS_WRITE : ACCESS_ADD)},
         {OPERAND(adamw.master, 1, a->n, 0, HOLDS_AT, ACCESS_ADD), .name = "master",
          .optional = true},
         {SUM_IN(adamw.m, 1, a->n, HOLDS_AT)}, {SUM_IN(adamw.v, 1, a->n, HOLDS_POSITIVE)},
         {IN(adamw.grad, 1, a->n, HOLDS_AT)},
         {IN(adamw.step_scalars, 1, SCALAR_COUNT, HOLDS_SCALARS)});
}

static int scale_operands(const struct op *op, struct op_operand *out)
{
    (void)op;
    LIST(out, {SOME(scale.step_scalars, 1, SCALAR_COUNT, 0, HOLDS_SCALARS, ACCESS_WRITE, 1)},
         {IN(scale.sums, 1, SUMS_COUNT, HOLDS_SUMS)});
}

static int sum_operands(const struct op *op, struct op_operand *out)
{
    LIST(out, {SUM_IN(sum.out, 1, 1, HOLDS_F64)}, {IN(sum.x, 1, op->sum.n, HOLDS_AT)});
}

/* As far as its last range goes. */
static int sumsq_operands(const struct op *op, struct op_operand *out)
{
    const struct dev_ranges *of = op->sumsq.of;
    int64_t end = of && of->n > 0 ? of->bound[2 * of->n - 1] : 0;
    LIST(out, {SUM_IN(sumsq.out, 1, 1, HOLDS_F64)},
         {SOME(sumsq.x, 1, end, 0, HOLDS_AT, ACCESS_READ, (double)op->sumsq.n), .ranges = of});
}

static int cast_operands(const struct op *op, struct op_operand *out)
{
    LIST(out, {OUT(cast.to, 1, op->cast.n, HOLDS_CT)}, {IN(cast.from, 1, op->cast.n, HOLDS_AT)});
}

static int add_operands(const struct op *op, struct op_operand *out)
{
    LIST(out, {SUM_IN(add.to, 1, op->add.n, HOLDS_AT)}, {IN(add.from, 1, op->add.n, HOLDS_AT)});
}

/* Of a copy, to the host or from it, too. */
static int copy_operands(const struct op *op, struct op_operand *out)
{
    LIST(out,
         {OUT(copy.to, 1, op->copy.n, HOLDS_BYTES),
          .host = op->kind == OP_D2H || op->kind == OP_SNAPSHOT},
         {IN(copy.from, 1, op->copy.n, HOLDS_BYTES), .host = op->kind == OP_H2D});
}

_Static_assert(AT(snapshot.to) == AT(copy.to) && AT(snapshot.from) == AT(copy.from) &&
                   AT(snapshot.n) == AT(copy.n),
               "a snapshot begins as a copy does");

static int zero_operands(const struct op *op, struct op_operand *out)
{
    LIST(out, {OUT(zero.to, 1, op->zero.n, HOLDS_BYTES)});
}

/* ---- FLOPs ---- */

/* Multiplications and additions of one element of a head, over all pairs of a query and a key that
 * see each other. */
static double pair_flops(const struct attn *a)
{
    double first = (double)(a->tk - a->tq + 1), last = (double)a->tk;
    return 2.0 * (double)a->d * (double)a->b * (double)a->heads * (double)a->tq * (first + last) /
           2.0;
}

double op_flops(const struct op *op)
{
    switch (op->kind) {
    case OP_GEMM:
        return 2.0 * (double)op->gemm.m * (double)op->gemm.n * (double)op->gemm.k;
    case OP_ATTN:
        return 2.0 * pair_flops(&op->attn);
    case OP_ATTN_GRAD:
        return 5.0 * pair_flops(&op->attn_grad.f);
    default:
        return 0;
    }
}

/* ---- the rows ---- */

#define FIELD(of, member, as) {#member, AT(of.member), as}
#define EXTENT(of, member) FIELD(of, member, FIELD_EXTENT)
#define STRIDE(of, member) FIELD(of, member, FIELD_STRIDE)
#define FLAG(of, member) FIELD(of, member, FIELD_FLAG)
#define PLACE(of, member) FIELD(of, member, FIELD_PLACE)
#define REAL(of, member) FIELD(of, member, FIELD_REAL)
#define DROP(of) {"dropout", AT(of.drop), FIELD_DROP}
#define ATTN(of)                                                                                 \
    EXTENT(of, b), EXTENT(of, tq), EXTENT(of, tk), EXTENT(of, heads), EXTENT(of, kv_heads),      \
    EXTENT(of, d), STRIDE(of, ldq), STRIDE(of, ldk), STRIDE(of, ldv), STRIDE(of, ldo), DROP(of), \
    REAL(of, scale), PLACE(of, heads_total), PLACE(of, head0)
#define XENT EXTENT(xent, n), EXTENT(xent, v), STRIDE(xent, ld), PLACE(xent, v0)
#define BYTES(of) {"bytes", AT(of.n), FIELD_EXTENT}

#define G_ACT "gated activation"
#define G_RELU "relu"
#define G_RESIDUAL "residual, dropout"
#define G_EMBED "embedding"
#define G_XENT "cross entropy"
#define G_SUMS "sums of squares"
#define G_MOVE "copy, zero, cast"

const struct op_row op_rows[OPS] = {
    [OP_GEMM] = {"gemm", CLASS_GEMM, NULL, gemm_operands,
                 .field = {EXTENT(gemm, m), EXTENT(gemm, n), EXTENT(gemm, k), STRIDE(gemm, lda),
                  STRIDE(gemm, ldb), STRIDE(gemm, ldc), FLAG(gemm, trans_a), FLAG(gemm, trans_b),
                  FLAG(gemm, accumulate), {"wide", AT(gemm.c_at), FIELD_FLAG},
                  FIELD(gemm, act, FIELD_ACT)}},
    [OP_ATTN] = {"attn", CLASS_ATTENTION, "attention", attn_operands, .field = {ATTN(attn)}},
    [OP_ATTN_GRAD] = {"attn_grad", CLASS_ATTENTION, "attention gradient", attn_grad_operands,
                      .field = {ATTN(attn_grad.f)}},
    [OP_NORM] = {"norm", CLASS_NORM, "norm", norm_operands,
                 .field = {EXTENT(norm, n), EXTENT(norm, c), FLAG(norm, rms), REAL(norm, eps)}},
    [OP_NORM_GRAD] = {"norm_grad", CLASS_NORM, "norm gradient", norm_grad_operands,
                      .field = {EXTENT(norm_grad, n), EXTENT(norm_grad, c), FLAG(norm_grad, rms)}},
    [OP_ROPE] = {"rope", CLASS_ACTIVATION, "rotary", rope_operands,
                 .field = {EXTENT(rope, n), EXTENT(rope, t), EXTENT(rope, heads), EXTENT(rope, d),
                  STRIDE(rope, ld), FLAG(rope, inverse), PLACE(rope, pos0)}},
    [OP_SWIGLU] = {"swiglu", CLASS_ACTIVATION, G_ACT, swiglu_operands,
                   .field = {EXTENT(swiglu, n), EXTENT(swiglu, f)}},
    [OP_SWIGLU_GRAD] = {"swiglu_grad", CLASS_ACTIVATION, G_ACT, swiglu_grad_operands,
                        .field = {EXTENT(swiglu_grad, n), EXTENT(swiglu_grad, f)}},
    [OP_RELU] = {"relu", CLASS_ACTIVATION, G_RELU, relu_operands, .field = {EXTENT(relu, n)}},
    [OP_RELU_GRAD] = {"relu_grad", CLASS_ACTIVATION, G_RELU, relu_grad_operands,
                      .field = {EXTENT(relu_grad, n)}},
    [OP_BIAS_GRAD] = {"bias_grad", CLASS_GEMM, "bias gradient", bias_grad_operands,
                      .field = {EXTENT(bias_grad, n), EXTENT(bias_grad, c)}},
    [OP_RESIDUAL] = {"residual", CLASS_NORM, G_RESIDUAL, residual_operands,
                     .field = {EXTENT(residual, n), EXTENT(residual, c), DROP(residual)}},
    [OP_RESIDUAL_NORM] = {"residual_norm", CLASS_NORM, "norm", residual_norm_operands,
                          .field = {EXTENT(residual_norm.residual, n),
                           EXTENT(residual_norm.residual, c), FLAG(residual_norm.norm, rms),
                           DROP(residual_norm.residual), REAL(residual_norm.norm, eps)}},
    [OP_DROPOUT] = {"dropout", CLASS_NORM, G_RESIDUAL, dropout_operands,
                    .field = {EXTENT(dropout, n), EXTENT(dropout, c), DROP(dropout)}},
    [OP_EMBED] = {"embed", CLASS_EMBED, G_EMBED, embed_operands,
                  .field = {EXTENT(embed, n), EXTENT(embed, c), EXTENT(embed, rows),
                   PLACE(embed, v0)}},
    [OP_EMBED_GRAD] = {"embed_grad", CLASS_EMBED, G_EMBED, embed_grad_operands,
                       .field = {EXTENT(embed_grad, n), EXTENT(embed_grad, c),
                        EXTENT(embed_grad, rows), PLACE(embed_grad, v0)}},
    [OP_POS_ADD] = {"pos_add", CLASS_EMBED, G_EMBED, pos_add_operands,
                    .field = {EXTENT(pos_add, n), EXTENT(pos_add, c), EXTENT(pos_add, t),
                     PLACE(pos_add, row0)}},
    [OP_POS_GRAD] = {"pos_grad", CLASS_EMBED, G_EMBED, pos_grad_operands,
                     .field = {EXTENT(pos_grad, n), EXTENT(pos_grad, c), EXTENT(pos_grad, t),
                      PLACE(pos_grad, row0)}},
    [OP_XENT] = {"xent", CLASS_HEAD, G_XENT, xent_operands, .field = {XENT}},
    [OP_XENT_MAX] = {"xent_max", CLASS_HEAD, G_XENT, xent_operands, .field = {XENT}},
    [OP_XENT_SUM] = {"xent_sum", CLASS_HEAD, G_XENT, xent_operands, .field = {XENT}},
    [OP_XENT_GRAD] = {"xent_grad", CLASS_HEAD, G_XENT, xent_operands, .field = {XENT}},
    [OP_ADAMW] = {"adamw", CLASS_OPTIM, "adamw", adamw_operands,
                  {EXTENT(adamw, n), REAL(adamw, beta1), REAL(adamw, beta2), REAL(adamw, eps),
                   REAL(adamw, decay), FIELD(adamw, decays, FIELD_RANGES)}, .blind = true},
    [OP_SCALE] = {"scale", CLASS_OPTIM, G_SUMS, scale_operands, {REAL(scale, clip)}, .blind = true},
    [OP_SUM] = {"sum", CLASS_HEAD, G_SUMS, sum_operands, .field = {EXTENT(sum, n)}},
    [OP_SUMSQ] = {"sumsq", CLASS_OPTIM, G_SUMS, sumsq_operands,
                  .field = {EXTENT(sumsq, n), FIELD(sumsq, of, FIELD_RANGES)}},
    [OP_CAST] = {"cast", CLASS_MOVE, G_MOVE, cast_operands, .field = {EXTENT(cast, n)}},
    [OP_ADD] = {"add", CLASS_MOVE, G_MOVE, add_operands, .field = {EXTENT(add, n)}},
    [OP_COPY] = {"copy", CLASS_MOVE, G_MOVE, copy_operands, {BYTES(copy)}, .blind = true},
    [OP_ZERO] = {"zero", CLASS_MOVE, G_MOVE, zero_operands, {BYTES(zero)}, .blind = true},
    [OP_H2D] = {"h2d", CLASS_MOVE, G_MOVE, copy_operands, {BYTES(h2d)}, .blind = true},
    [OP_D2H] = {"d2h", CLASS_MOVE, G_MOVE, copy_operands, {BYTES(d2h)}, .blind = true},
    [OP_SNAPSHOT] = {"snapshot", CLASS_MOVE, G_MOVE, copy_operands,
                     {BYTES(snapshot)}, .blind = true},
};

const char *op_class_name(enum op_class c)
{
    static const char *const name[OP_CLASSES] = {
        [CLASS_NONE] = "no class", [CLASS_GEMM] = "GEMMs", [CLASS_ATTENTION] = "attention",
        [CLASS_NORM] = "norm, residual", [CLASS_ACTIVATION] = "activation, rotary",
        [CLASS_EMBED] = "embedding", [CLASS_HEAD] = "head and loss", [CLASS_OPTIM] = "optimizer",
        [CLASS_MOVE] = "copy, zero"};
    return name[c];
}

/* ---- walking a row: no operation is known by name from here on ---- */

void *op_pointer(const struct op *op, const struct op_operand *o)
{
    void *p;
    memcpy(&p, (const char *)op + o->at, sizeof p);
    return p;
}

void op_point(struct op *op, const struct op_operand *o, const void *p)
{
    memcpy((char *)op + o->at, &p, sizeof p);
}

enum dtype op_type(const struct op_operand *o, const struct dtypes *types)
{
    switch (o->holds) {
    case HOLDS_CT:
        return types->ct;
    case HOLDS_LOGITS:
        return types->logits;
    case HOLDS_SCALARS:
    case HOLDS_SUMS:
    case HOLDS_F64:
        return DT_F64;
    default:
        return types->at;
    }
}

int64_t op_element(const struct op_operand *o, const struct dtypes *types)
{
    if (o->holds == HOLDS_BYTES)
        return 1;
    return o->holds == HOLDS_IDS ? (int64_t)sizeof(int32_t) : dtype_size(op_type(o, types));
}

int64_t op_get(const struct op *op, const struct op_field *f)
{
    const void *p = (const char *)op + f->at;
    switch (f->kind) {
    case FIELD_FLAG:
        return *(const bool *)p;
    case FIELD_ACT:
        return *(const enum gemm_act *)p;
    case FIELD_DROP:
        return ((const struct drop *)p)->p > 0;
    case FIELD_EXTENT:
    case FIELD_STRIDE:
    case FIELD_PLACE:
        return *(const int64_t *)p;
    case FIELD_REAL:
    case FIELD_RANGES:
        break;
    }
    err_bug(__FILE__, __LINE__, "a field is no whole number");
}

double op_bytes(const struct op *op, const struct dtypes *types)
{
    struct op_operand o[OP_OPERANDS];
    double bytes = 0;
    int n = op_rows[op->kind].operands(op, o);
    for (int i = 0; i < n; i++) {
        if ((o[i].optional && !op_pointer(op, &o[i])) || o[i].host)
            continue;
        double each = o[i].moved * (double)op_element(&o[i], types);
        bytes += o[i].access == ACCESS_ADD ? 2 * each : each;
    }
    return bytes;
}

int op_flags(const struct op *op, const char *flag[OP_FLAGS])
{
    static const char *const act[] = {[GEMM_GELU] = "gelu", [GEMM_DGELU] = "gelu_grad"};
    struct op_operand o[OP_OPERANDS];
    const struct op_row *row = &op_rows[op->kind];
    int n = row->operands(op, o), flags = 0;
    for (const struct op_field *f = row->field; f->name; f++) {
        bool may = f->kind == FIELD_FLAG || f->kind == FIELD_DROP || f->kind == FIELD_ACT;
        if (may && op_get(op, f) != 0)
            flag[flags++] = f->kind == FIELD_ACT ? act[op_get(op, f)] : f->name;
    }
    for (int i = 0; i < n; i++) {
        if (o[i].optional && o[i].name && op_pointer(op, &o[i]))
            flag[flags++] = o[i].name;
        if (op_is_over(op, o, i))
            flag[flags++] = "in_place";
    }
    return flags;
}

bool op_is_over(const struct op *op, const struct op_operand *o, int i)
{
    const void *p = op_pointer(op, &o[i]);
    return o[i].lies == LIES_MAYBE_OVER && p && p == op_pointer(op, &o[i - 1]);
}

void op_describe(const struct op *op, char *buf, size_t n)
{
    const char *flag[OP_FLAGS];
    const struct op_row *row = &op_rows[op->kind];
    size_t used = (size_t)snprintf(buf, n, "%s", row->name);
    int flags = op_flags(op, flag);
    for (const struct op_field *f = row->field; f->name && used < n; f++)
        if (f->kind == FIELD_EXTENT && op_get(op, f) != 0)
            used += (size_t)snprintf(buf + used, n - used, " %s %lld", f->name,
                                     (long long)op_get(op, f));
    for (int i = 0; i < flags && used < n; i++)
        used += (size_t)snprintf(buf + used, n - used, " +%s", flag[i]);
}
