/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights from files or a checkpoint into any layout: every rank reads its own boxes. Each tensor
 * that the model needs must be there in the model's shape; a parameter that no tensor fills is an
 * error, never left as it was, and so is a number that is none in the type that the weights are
 * held in.
 */
#include "run/train.h"

/* As the device will hold it. */
static double held(const struct dev *dev, double v)
{
    if (dev->ct == DT_F64)
        return v;
    return dev->ct == DT_BF16 ? (double)bf16_to_f32(bf16_from_f32((float)v)) : (double)(float)v;
}

/* The number of the element in its tensor, for messages. */
static enum err check_finite(const struct param *p, const struct weights_tensor *t,
                             const double *values)
{
    const struct hf_place *at = t->place;
    int64_t n = p->box.real[1], cols = at->nd == 2 ? at->shape[1] : 1;
    for (int64_t i = 0; i < p->box.real[0] * n; i++) {
        if (isfinite(held(p->store->dev, values[i])))
            continue;
        int64_t r = at->out0 + p->box.at[0] + i / n, c = p->box.at[1] + i % n;
        int64_t k = at->transposed ? c * cols + r : r * cols + c;
        FAIL(ERR_CHECKPOINT, "ckpt: element %lld of tensor %s of %s is %g, which is no number in "
                             "%s; the weights are damaged or of a run that diverged, use others",
             (long long)k, t->name, t->path, isnan(values[i]) ? NAN : values[i],
             dtype_name(p->store->dev->ct));
    }
    return ERR_OK;
}

static enum err load_param(const struct setup *s, const struct weights *w, const struct param *p)
{
    struct hf_place at;
    struct weights_tensor t;
    double *values;
    const struct state_box box = {{p->box.at[0], p->box.at[1]}, {p->box.real[0], p->box.real[1]}};
    hf_place(&s->arch, &p->spec, &at);
    TRY(weights_find(w, &at, &t));
    ENSURE(p->box.real[1] == p->box.local[1]); /* rows alone are filled up */
    TRY(mem_new(p->count, sizeof *values, p->spec.name, &values));
    enum err err = weights_read(&t, &box, values);
    if (err == ERR_OK)
        err = check_finite(p, &t, values);
    if (err == ERR_OK)
        err = param_write(p, values);
    mem_free(values);
    return err;
}

enum err load_weights(const struct setup *s, struct exec *x, const struct weights *w)
{
    for (int i = 0; i < exec_stage_count(x); i++) {
        const struct param_store *store = &exec_stage_at(x, i)->params;
        for (int j = 0; j < store->n; j++)
            TRY(load_param(s, w, &store->param[j]));
    }
    return ERR_OK;
}
