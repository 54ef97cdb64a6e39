/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights from safetensors files into any layout: every rank reads its own boxes of the mapped
 * files. Each tensor that the model needs must be there in the model's shape; a parameter that no
 * tensor fills is an error, never left as it was, and so is a number that is none in the type that
 * the weights are held in.
 */
#include "run/train.h"

/* As the device will hold it. */
static double held(const struct dev *dev, double v)
{
    if (dev->ct == DT_F64)
        return v;
    return dev->ct == DT_BF16 ? (double)bf16_to_f32(bf16_from_f32((float)v)) : (double)(float)v;
}

static enum err load_param(const struct setup *s, const struct hf_weights *w, const struct param *p)
{
    struct hf_place at;
    struct hf_tensor t;
    double *values;
    enum err err = ERR_OK;
    hf_place(&s->arch, &p->spec, &at);
    TRY(hf_find(w, &at, &t));
    TRY(mem_new(p->count, sizeof *values, p->spec.name, &values));
    fs_call_begin(t.file->path);
    int64_t cols = at.nd == 2 ? at.shape[1] : 1;
    for (int64_t i = 0; i < p->box.real[0] && err == ERR_OK; i++)
        for (int64_t j = 0; j < p->box.real[1] && err == ERR_OK; j++) {
            int64_t r = at.out0 + p->box.at[0] + i, c = p->box.at[1] + j;
            int64_t k = at.transposed ? c * cols + r : r * cols + c;
            double v = safet_element(t.file, t.entry, k);
            values[i * p->box.local[1] + j] = v;
            if (!isfinite(held(p->store->dev, v)))
                err = err_set(ERR_CHECKPOINT, __FILE__, __LINE__,
                              "ckpt: element %lld of tensor %s of %s is %g, which is no number in "
                              "%s; the weights are damaged or of a run that diverged, use others",
                              (long long)k, t.entry->name, t.file->path, isnan(v) ? NAN : v,
                              dtype_name(p->store->dev->ct));
        }
    fs_call_end();
    if (err == ERR_OK)
        err = param_write(p, values);
    mem_free(values);
    return err;
}

enum err load_weights(const struct setup *s, struct exec *x, const struct hf_weights *w)
{
    for (int i = 0; i < exec_stage_count(x); i++) {
        const struct param_store *store = &exec_stage_at(x, i)->params;
        for (int j = 0; j < store->n; j++)
            TRY(load_param(s, w, &store->param[j]));
    }
    return ERR_OK;
}
