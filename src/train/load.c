/* SPDX-License-Identifier: Apache-2.0
 *
 * Files into any layout. Each tensor that the model needs must be there in the model's shape; a
 * parameter that no tensor fills is an error, never left as it was, and so is a number that is none
 * in the type that the weights are held in.
 */
#include "train/load.h"

#include "base/mem.h"
#include "train/checkpoint.h"

#include <math.h>

/* How many of n numbers of the device's type `at` are finite as `type`, from the first on. */
static int64_t finite_as(enum dtype type, const struct dev *dev, const void *values, int64_t n)
{
    double most = dtype_most(type);
    return dev->at == DT_F64 ? num_within_f64(values, n, most)
                             : num_within_f32(values, n, (float)most);
}

/* `values` are of a box of p, which is global. */
static enum err check_finite(const struct param *p, const struct weights_tensor *t,
                             const struct state_box *b, const void *values)
{
    const struct hf_place *at = t->place;
    const struct dev *dev = p->store->dev;
    int64_t n = state_box_elements(b), cols = at->nd == 2 ? at->shape[1] : 1;
    int64_t i = finite_as(dev->ct, dev, values, n);
    if (i == n)
        return ERR_OK;
    double v = dev->at == DT_F64 ? ((const double *)values)[i] : (double)((const float *)values)[i];
    int64_t r = at->out0 + b->at[0] + i / b->n[1], c = b->at[1] + i % b->n[1];
    FAIL(ERR_CHECKPOINT, "ckpt: element %lld of tensor %s of %s is %g, which is no number in %s; "
                         "the weights are damaged or of a run that diverged, use others",
         (long long)(at->transposed ? c * cols + r : r * cols + c), t->name, t->path,
         num_unsigned_nan(v), dtype_name(dev->ct));
}

/* One that is infinite stays so, and its weight would be updated no more. */
static enum err check_moments(const struct param *p, const struct state_want *want,
                              const char *dir, const void *values)
{
    const struct dev *dev = p->store->dev;
    int64_t n = state_box_elements(&want->box);
    if (finite_as(dev->at, dev, values, n) < n)
        FAIL(ERR_CHECKPOINT, "ckpt: %s of tensor %s in %s is not finite; the run diverged, use an "
                             "earlier checkpoint", state_kind_name(want->kind), want->tensor, dir);
    return ERR_OK;
}

static enum err read_box(const struct load *l, const struct load_range *g,
                         const struct state_box *local, void *values)
{
    const struct param *p = g->held.param;
    struct state_box box = checkpoint_box(p, local);
    enum safet_type type = checkpoint_type(p->store->dev->at);
    if (g->kind == PARAM_WEIGHT) {
        struct weights_tensor tensor;
        TRY(weights_find(l->from, &g->place, &tensor));
        TRY(weights_read(&tensor, &box, type, values));
        return check_finite(p, &tensor, &box, values);
    }
    struct state_want want = {.tensor = g->place.tensor, .kind = checkpoint_kind(g->kind),
                              .box = state_place_box(&g->place, &box),
                              .transposed = g->place.transposed};
    TRY(state_read(&l->from->state, &want, type, values));
    return check_moments(p, &want, l->from->state.dir, values);
}

enum err load_read(const struct load *l, const struct load_range *g, int64_t from, int64_t to,
                   void *values)
{
    const struct param *p = g->held.param;
    struct state_box box[3];
    char *out = values;
    int n = state_boxes(p->box.local[1], from, to, box);
    for (int i = 0; i < n; i++) {
        TRY(read_box(l, g, &box[i], out));
        out += state_box_elements(&box[i]) * p->store->at;
    }
    return ERR_OK;
}

enum err load_weights(const struct load *l, struct exec *x)
{
    const struct param_store **store;
    int n = exec_stage_count(x);
    TRY(mem_new(n, sizeof *store, "the stores of a rank", (void *)&store));
    for (int i = 0; i < n; i++)
        store[i] = &exec_stage_at(x, i)->params;
    enum err err = load_stores(l, store, n, false);
    mem_free(store);
    return err;
}
