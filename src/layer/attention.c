/* SPDX-License-Identifier: Apache-2.0
 *
 * The attention sublayer: norm, q k v in one GEMM, rotary positions (llama), causal attention by
 * heads, output projection, residual. Heads are cut over tensor ranks; a rank's k and v are those
 * of its heads, and where there are fewer kv heads than ranks, neighbours hold the same ones.
 *
 * Shapes with h = H/tp, k = max(1, K/tp): qkv (n, (h+2k)D) holds q, then k, then v in each row;
 * rows of the fused weight lie in the same order, because the registry joins them.
 */
#include "layer/stage.h"

struct qkv {
    int64_t ld, k0, v0; /* row stride and first columns of k and v, elements */
};

static struct qkv qkv_of(const struct model_dims *d)
{
    return (struct qkv){(d->h + 2 * d->k) * d->d, d->h * d->d, (d->h + d->k) * d->d};
}

/* Rotate q and k in `qkv`, forward or back. They are neighbours, so it is one call over h + k
 * heads. */
static enum err rotate(const struct stage_call *c, void *qkv, bool inverse)
{
    const struct model_dims *d = &c->dims;
    if (!c->s->rope)
        return ERR_OK;
    return dev_rope(c->s->dev, &(struct rope){.x = qkv, .table = c->s->rope, .n = d->n, .t = d->t,
                                              .heads = d->h + d->k, .d = d->d, .ld = qkv_of(d).ld,
                                              .inverse = inverse});
}

static struct attn attn_of(const struct stage_call *c)
{
    const struct model_dims *d = &c->dims;
    struct qkv at = qkv_of(d);
    char *q = c->save[SAVE_QKV];
    return (struct attn){.o = c->save[SAVE_O], .lse = c->save[SAVE_LSE], .q = q,
                         .k = q + at.k0 * d->ct, .v = q + at.v0 * d->ct, .b = d->b, .tq = d->t,
                         .tk = d->t, .heads = d->h, .kv_heads = d->k, .d = d->d, .ldq = at.ld,
                         .ldk = at.ld, .ldv = at.ld, .ldo = d->h * d->d,
                         .scale = 1.0 / sqrt((double)d->d), .heads_total = c->p->layer.dims.heads,
                         .head0 = c->s->tp.rank * d->h, .drop = stage_drop(c, SITE_PROBS)};
}

static enum err forward(const struct stage_call *c)
{
    const struct model_dims *d = &c->dims;
    const struct tp *tp = &c->s->tp;
    void *const *work = c->s->work->at;
    struct tensor h = stage_norm_output(c), qkv, f;
    TRY(stage_norm(c, c->save[SAVE_H]));
    struct tp_linear in = {.w = stage_w(c, PARAM_Q_W), .bias = stage_w(c, PARAM_Q_B),
                           .out = c->save[SAVE_QKV], .full = work[WORK_FULL]};
    TRY(tp_column(tp, &h, &in, qkv_of(d).ld, &qkv));
    TRY(rotate(c, qkv.p, false));
    struct attn a = attn_of(c);
    TRY(dev_attn(c->s->dev, &a));
    struct tensor o = {c->save[SAVE_O], d->n, d->h * d->d, PLACE_COLS};
    struct tp_buffers b = {work[WORK_PARTIAL], tp->sp ? work[WORK_DH] : work[WORK_PARTIAL]};
    TRY(tp_row(tp, &o, stage_w(c, PARAM_O_W), d->c, &b, &f));
    return stage_residual(c, &f, PARAM_O_B);
}

static struct stage_sub sub_of(const struct stage_call *c)
{
    const struct model_dims *d = &c->dims;
    return (struct stage_sub){.out = {PARAM_O_W, PARAM_O_B}, .in = {PARAM_Q_W, PARAM_Q_B},
                              .mid = {c->save[SAVE_O], d->n, d->h * d->d, PLACE_COLS},
                              .dmid = {c->keep[KEEP_DMID], d->n, qkv_of(d).ld, PLACE_COLS}};
}

/* Gradients from the output's to those of q k v. `a`: the norm's output is to be on its way behind
 * them; NULL: it is not wanted yet. */
static enum err inner_grad(const struct stage_call *c, struct stage_again *a)
{
    const struct model_dims *d = &c->dims;
    void *const *work = c->s->work->at;
    struct qkv at = qkv_of(d);
    char *dqkv = c->keep[KEEP_DMID];
    struct tp_linear out = {.w = stage_w(c, PARAM_O_W), .out = work[WORK_DMID]};
    TRY(stage_mid_grad(c, &out, d->h * d->d, a));
    struct attn_grad g = {.f = attn_of(c), .do_ = out.out, .dq = dqkv, .dk = dqkv + at.k0 * d->ct,
                          .dv = dqkv + at.v0 * d->ct, .delta = work[WORK_DELTA]};
    TRY(dev_attn_grad(c->s->dev, &g));
    return rotate(c, dqkv, true);
}

const struct layer_kind layer_attn = {"attn", forward, stage_sub_input, stage_sub_weight,
                                       stage_sub_both, sub_of, inner_grad};
