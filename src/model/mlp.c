/* SPDX-License-Identifier: Apache-2.0
 *
 * The feed-forward sublayer. gpt: up, GELU (tanh form), down. llama: gate and up in one product,
 * silu(gate) * up (Shazeer 2020), down. The inner columns are cut over tensor ranks.
 */
#include "model/stage.h"

static int64_t inner_cols(const struct arch_dims *d)
{
    return d->gated ? 2 * d->f : d->f;
}

/* The first product's weight: gate and up lie joined in llama. */
static enum arch_role inner_role(const struct arch_dims *d)
{
    return d->gated ? ROLE_GATE_W : ROLE_UP_W;
}

static enum err forward(const struct stage_call *c)
{
    const struct arch_dims *d = &c->dims;
    const struct tp *tp = &c->s->tp;
    void *const *work = c->s->work->at;
    struct tensor h, mid, f;
    TRY(stage_norm(c, c->save[SAVE_H]));
    TRY(stage_norm_output(c, &h));
    struct tp_linear in = {.w = stage_w(c, inner_role(d)), .bias = stage_w(c, ROLE_UP_B)};
    if (d->gated) {
        in.out = c->save[SAVE_PRE];
        TRY(tp_column(tp, &h, &in, inner_cols(d), &mid));
        TRY(c->s->dev->ops->swiglu(c->s->dev, c->save[SAVE_ACT], mid.p, d->n, d->f));
    } else {
        in.act = GEMM_GELU;
        in.pre = c->save[SAVE_PRE];
        in.out = c->save[SAVE_ACT];
        TRY(tp_column(tp, &h, &in, inner_cols(d), &mid));
    }
    struct tensor act = {c->save[SAVE_ACT], d->n, d->f, PLACE_COLS};
    struct tp_buffers b = {work[WORK_PARTIAL], tp->sp ? work[WORK_DH] : work[WORK_PARTIAL]};
    TRY(tp_row(tp, &act, stage_w(c, ROLE_DOWN_W), d->c, &b, &f));
    return stage_residual(c, &f, ROLE_DOWN_B, SITE_OUTPUT);
}

static enum err backward_input(const struct stage_call *c)
{
    const struct arch_dims *d = &c->dims;
    const struct tp *tp = &c->s->tp;
    void *const *work = c->s->work->at;
    struct tensor df, dact, dh;
    TRY(stage_residual_grad(c, SITE_OUTPUT, &df));
    struct tp_linear down = {.w = stage_w(c, ROLE_DOWN_W)};
    if (d->gated) {
        down.out = work[WORK_DMID];
        TRY(tp_row_grad(tp, &df, &down, d->f, &dact));
        TRY(c->s->dev->ops->swiglu_grad(c->s->dev, c->keep[KEEP_DMID], dact.p, c->save[SAVE_PRE],
                                        d->n, d->f));
    } else {
        down.act = GEMM_DGELU;
        down.pre = c->save[SAVE_PRE];
        down.out = c->keep[KEEP_DMID];
        TRY(tp_row_grad(tp, &df, &down, d->f, &dact));
    }
    struct tensor dmid = {c->keep[KEEP_DMID], d->n, inner_cols(d), PLACE_COLS};
    struct tp_buffers b = {work[WORK_PARTIAL], work[WORK_DH]};
    TRY(tp_column_grad(tp, &dmid, stage_w(c, inner_role(d)), d->c, &b, &dh));
    return stage_norm_grad(c, c->d_in, &dh);
}

static enum err backward_weight(const struct stage_call *c)
{
    const struct arch_dims *d = &c->dims;
    const enum arch_role down[] = {ROLE_DOWN_W, ROLE_DOWN_B}, in[] = {inner_role(d), ROLE_UP_B};
    struct tensor h, df = stage_kept_df(c);
    struct tensor act = {c->save[SAVE_ACT], d->n, d->f, PLACE_COLS};
    struct tensor dmid = {c->keep[KEEP_DMID], d->n, inner_cols(d), PLACE_COLS};
    TRY(stage_norm_weight(c));
    TRY(stage_weight_grad(c, down, &df, &act));
    TRY(stage_norm_output(c, &h));
    return stage_weight_grad(c, in, &dmid, &h);
}

const struct layer_kind layer_mlp = {"mlp", forward, backward_input, backward_weight};
