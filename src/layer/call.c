/* SPDX-License-Identifier: Apache-2.0
 *
 * What a layer asks of its call: its weights and gradients, and what is dropped.
 */
#include "layer/stage.h"

bool stage_has_head(const struct stage *s)
{
    return model_stage_head(s->model, &s->span);
}

struct stage_call stage_call_of(const struct stage *s, const struct stage_mb *mb, int part)
{
    const struct stage_part *p = &s->part[part];
    struct stage_call c = {.s = s, .p = p, .mb = mb, .dims = p->dims};
    struct model_dims *d = &c.dims;
    ENSURE(mb->samples * mb->t <= d->n);
    d->b = mb->samples;
    d->t = mb->t;
    d->n = d->b * d->t;
    d->nl = s->tp.sp ? d->n / s->tp.size : d->n;
    return c;
}

const void *stage_w(const struct stage_call *c, enum param_id r)
{
    return param_w(c->p->role[r]);
}

enum err stage_grad(const struct stage_call *c, enum param_id r, void **out)
{
    TRY(param_grad_settle(c->p->role[r]));
    *out = param_grad(c->p->role[r]);
    return ERR_OK;
}

enum err stage_weight_grad(const struct stage_call *c, const enum param_id r[2],
                           const struct tensor *dy, const struct tensor *x)
{
    return tp_weight_grad(&c->s->tp, dy, x, c->p->role[r[0]], c->p->role[r[1]]);
}

struct drop stage_drop(const struct stage_call *c, int site)
{
    const int types = 4; /* that may drop; masks of all runs depend on it */
    const struct stage *s = c->s;
    const struct layer *l = &c->p->layer;
    int64_t block = l->block < 0 ? s->model->layers : l->block;
    struct drop d = {.p = c->mb->training ? l->dims.dropout : 0, .seed = s->seed,
                     .step = c->mb->step, .row0 = c->mb->row0};
    d.stream = (uint32_t)((block * types + (int)l->type->part) * SITE_COUNT + site);
    if (site == SITE_OUTPUT && s->tp.sp)
        d.row0 += s->tp.rank * c->dims.nl;
    return d;
}
