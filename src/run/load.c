/* SPDX-License-Identifier: Apache-2.0
 *
 * Files into any layout. Each tensor that the model needs must be there in the model's shape; a
 * parameter that no tensor fills is an error, never left as it was, and so is a number that is none
 * in the type that the weights are held in.
 */
#include "run/load.h"

#include "base/mem.h"
#include "run/checkpoint.h"

#include <math.h>

enum { STRIP = 1 << 21 }; /* elements on their way; more where a row has more */

/* As the device will hold it. */
static bool is_held(const struct dev *dev, double v)
{
    if (dev->ct == DT_F64)
        return isfinite(v);
    return isfinite(dev->ct == DT_BF16 ? bf16_to_f32(bf16_from_f32((float)v)) : (float)v);
}

/* `values` are of a box of p, which is global. */
static enum err check_finite(const struct param *p, const struct weights_tensor *t,
                             const struct state_box *b, const void *values)
{
    const struct hf_place *at = t->place;
    const struct dev *dev = p->store->dev;
    int64_t n = state_box_elements(b), cols = at->nd == 2 ? at->shape[1] : 1, i = 0;
    double v = 0;
    for (; i < n; i++) {
        v = dev->at == DT_F64 ? ((const double *)values)[i] : (double)((const float *)values)[i];
        if (!is_held(dev, v))
            break;
    }
    if (i == n)
        return ERR_OK;
    int64_t r = at->out0 + b->at[0] + i / b->n[1], c = b->at[1] + i % b->n[1];
    FAIL(ERR_CHECKPOINT, "ckpt: element %lld of tensor %s of %s is %g, which is no number in %s; "
                         "the weights are damaged or of a run that diverged, use others",
         (long long)(at->transposed ? c * cols + r : r * cols + c), t->name, t->path,
         isnan(v) ? NAN : v, dtype_name(dev->ct));
}

/* Where the numbers of a parameter come from, and of what kind they are. */
struct source {
    struct hf_place place;
    struct weights_tensor tensor; /* of weights */
    enum param_kind kind;
};

static enum err read_box(const struct load *l, const struct source *from, const struct param *p,
                         const struct state_box *local, void *values)
{
    struct state_box box = *local;
    enum safet_type type = checkpoint_type(p->store->dev->at);
    for (int i = 0; i < 2; i++)
        box.at[i] += p->box.at[i];
    if (from->kind == PARAM_WEIGHT) {
        TRY(weights_read(&from->tensor, &box, type, values));
        return check_finite(p, &from->tensor, &box, values);
    }
    struct state_want want = {.tensor = from->place.tensor, .kind = checkpoint_kind(from->kind),
                              .box = state_place_box(&from->place, &box),
                              .transposed = from->place.transposed};
    return state_read(&l->from->state, &want, type, values);
}

/* Elements from .. to - 1 of p's local box, which `values` has room for. */
static enum err load_strip(const struct load *l, const struct source *from,
                           const struct param_piece *strip, void *values)
{
    const struct param *p = strip->param;
    struct state_box box[3];
    int64_t at = strip->from;
    int n = state_boxes(p->box.local[1], strip->from, strip->to, box);
    for (int i = 0; i < n; i++) {
        int64_t count = state_box_elements(&box[i]);
        TRY(read_box(l, from, p, &box[i], values));
        TRY(param_state_write(p, from->kind, at, values, count));
        at += count;
    }
    return ERR_OK;
}

static enum err load_range(const struct load *l, const struct source *from,
                           const struct param_piece *held)
{
    int64_t cols = held->param->box.local[1], step = num_max(1, STRIP / cols) * cols;
    enum err err = ERR_OK;
    void *values;
    TRY(mem_new(num_min(step, held->to - held->from), (size_t)held->param->store->at,
                held->param->spec.name, &values));
    for (int64_t at = held->from; at < held->to && err == ERR_OK;) {
        struct param_piece strip = {held->param, at, num_min(at + step, held->to), 0};
        err = load_strip(l, from, &strip, values);
        at = strip.to;
    }
    mem_free(values);
    return err;
}

static enum err load_param(const struct load *l, const struct param *p, bool moments)
{
    struct source from = {.kind = PARAM_WEIGHT};
    hf_place(l->arch, &p->spec, &from.place);
    TRY(weights_find(l->from, &from.place, &from.tensor));
    for (; from.kind < (moments ? PARAM_KINDS : PARAM_WEIGHT + 1); from.kind++) {
        int pieces = from.kind == PARAM_WEIGHT ? 1 : param_share_pieces(p->store);
        for (int i = 0; i < pieces; i++) {
            struct param_piece held;
            if (param_held(p, from.kind, i, &held))
                TRY(load_range(l, &from, &held));
        }
    }
    return ERR_OK;
}

enum err load_store(const struct load *l, const struct param_store *store, bool moments)
{
    for (int i = 0; i < store->n; i++)
        TRY(load_param(l, &store->param[i], moments));
    return ERR_OK;
}

enum err load_weights(const struct load *l, struct exec *x)
{
    for (int i = 0; i < exec_stage_count(x); i++)
        TRY(load_store(l, &exec_stage_at(x, i)->params, false));
    return ERR_OK;
}
