/* SPDX-License-Identifier: Apache-2.0
 *
 * The feed-forward sublayer. gpt: up, GELU (tanh form), down. llama: gate and up in one GEMM,
 * silu(gate) * up (Shazeer 2020), down. The inner columns are cut over tensor ranks.
 */
#include "layer/stage.h"

static int64_t inner_cols(const struct model_dims *d)
{
    return d->gated ? 2 * d->f : d->f;
}

/* The first GEMM's weight: gate and up lie joined in llama. */
static enum param_id inner_role(const struct model_dims *d)
{
    return d->gated ? PARAM_GATE_W : PARAM_UP_W;
}

static enum err forward(const struct stage_call *c)
{
    const struct model_dims *d = &c->dims;
    const struct tp *tp = &c->s->tp;
    void *const *work = c->s->work->at;
    struct tensor h = stage_norm_output(c), mid, f;
    TRY(stage_norm(c, c->save[SAVE_H]));
    struct tp_linear in = {.w = stage_w(c, inner_role(d)), .bias = stage_w(c, PARAM_UP_B),
                           .full = work[WORK_FULL]};
    in.out = c->save[d->gated ? SAVE_PRE : SAVE_ACT];
    in.act = d->gated ? GEMM_NONE : GEMM_GELU;
    in.pre = d->gated ? NULL : c->save[SAVE_PRE];
    TRY(tp_column(tp, &h, &in, inner_cols(d), &mid));
    if (d->gated)
        TRY(dev_swiglu(c->s->dev, &(struct swiglu){c->save[SAVE_ACT], mid.p, d->n, d->f}));
    struct tensor act = {c->save[SAVE_ACT], d->n, d->f, PLACE_COLS};
    struct tp_buffers b = {work[WORK_PARTIAL], tp->sp ? work[WORK_DH] : work[WORK_PARTIAL]};
    TRY(tp_row(tp, &act, stage_w(c, PARAM_DOWN_W), d->c, &b, &f));
    return stage_residual(c, &f, PARAM_DOWN_B);
}

static struct stage_sub sub_of(const struct stage_call *c)
{
    const struct model_dims *d = &c->dims;
    return (struct stage_sub){.out = {PARAM_DOWN_W, PARAM_DOWN_B},
                              .in = {inner_role(d), PARAM_UP_B},
                              .mid = {c->save[SAVE_ACT], d->n, d->f, PLACE_COLS},
                              .dmid = {c->keep[KEEP_DMID], d->n, inner_cols(d), PLACE_COLS}};
}

/* As attention's. */
static enum err inner_grad(const struct stage_call *c, struct stage_again *a)
{
    const struct model_dims *d = &c->dims;
    struct tp_linear down = {.w = stage_w(c, PARAM_DOWN_W), .out = c->s->work->at[WORK_DMID]};
    if (!d->gated) {
        down.act = GEMM_DGELU;
        down.pre = c->save[SAVE_PRE];
        down.out = c->keep[KEEP_DMID];
    }
    TRY(stage_mid_grad(c, &down, d->f, a));
    if (!d->gated)
        return ERR_OK;
    return dev_swiglu_grad(c->s->dev, &(struct swiglu_grad){c->keep[KEEP_DMID], down.out,
                                                            c->save[SAVE_PRE], d->n, d->f});
}

const struct layer_kind layer_mlp = {"mlp", forward, stage_sub_input, stage_sub_weight,
                                      stage_sub_both, sub_of, inner_grad};
