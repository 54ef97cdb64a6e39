/* SPDX-License-Identifier: Apache-2.0
 *
 * A multilayer perceptron that tells a class: rows of floats, linear layers with ReLU between them,
 * and the last one with the softmax cross entropy, as one layer. Its layers are called input, fc1,
 * relu1, fc2, ..., and the last fcN, which is its head. Those before the head as numbers, too:
 * tensor ranks do not cut them.
 */
#include "model/model.h"

static int64_t gradient_work(const struct model_dims *d, enum model_work id)
{
    return id == WORK_D ? d->nl * d->c * d->ct : 0;
}

/* The input, for the weight's gradient, or for the sign that ReLU's asks for. */
static int64_t input_saved(const struct model_dims *d, enum model_save id)
{
    return id == SAVE_X ? d->nl * d->in * d->ct : 0;
}

static void linear_params(const struct layer *l, struct model_params *to)
{
    const struct layer_dims *d = &l->dims;
    model_put_matrix(to, PARAM_LINEAR_W, "weight", (int64_t[]){d->out, d->in}, SLICE_NONE);
    model_put(to, PARAM_LINEAR_B, "bias", d->out, 1);
}

static int64_t linear_kept(const struct model_dims *d, enum model_keep id)
{
    return id == KEEP_D_SUBLAYER ? d->nl * d->out * d->ct : 0;
}

static double linear_weights(const struct layer *l)
{
    return (double)l->dims.in * (double)l->dims.out;
}

/* The rows are made numbers of the compute type. Nobody wants the gradient of that, but a stage
 * behind it may send one. */
const struct layer_type layer_type_input = {
    .name = "input", .part = LAYER_INPUT, .work = gradient_work, .leaf = true};
const struct layer_type layer_type_linear = {
    .name = "linear", .part = LAYER_LINEAR, .params = linear_params, .saved = input_saved,
    .kept = linear_kept, .work = gradient_work, .weights = linear_weights};
/* The gradient of its output may become that of its input in place, so none is kept. */
const struct layer_type layer_type_relu = {
    .name = "relu", .part = LAYER_RELU, .saved = input_saved, .work = gradient_work};

struct model model_of_widths(const int64_t *width, int64_t n)
{
    struct model a = {.kind = MODEL_MLP, .layers = n - 1, .heads = 1, .kv_heads = 1, .head_dim = 1,
                      .seq = 1};
    for (int64_t i = 0; i < num_min(n, MODEL_WIDTHS); i++) {
        a.vocab = a.width[i] = width[i];
        a.hidden = a.ffn = num_max(a.hidden, width[i]);
    }
    return a;
}

static int64_t layers(const struct model *a)
{
    return 2 * a->layers;
}

static struct layer layer(const struct model *a, int64_t at)
{
    int64_t n = a->layers, k = (at + 1) / 2; /* which linear layer it is, or follows */
    struct layer_dims d = {.rows = 1, .bias = true};
    if (at == 0) {
        d.in = d.out = a->width[0];
        return (struct layer){.type = &layer_type_input, .at = at, .block = -1, .dims = d};
    }
    bool head = at == 2 * n - 1, linear = at % 2;
    d.in = a->width[linear ? k - 1 : k];
    d.out = head ? 0 : a->width[k];
    d.vocab = head ? a->width[n] : 0;
    /* He et al. 2015, for a ReLU behind it */
    d.init_std = sqrt((head ? 1.0 : 2.0) / (double)d.in);
    return (struct layer){.type = head     ? &layer_type_head
                                  : linear ? &layer_type_linear
                                           : &layer_type_relu,
                          .at = at, .block = k - 1, .stem = linear ? "fc" : "relu", .dims = d};
}

static enum err check(const struct model *a)
{
    bool fits = true;
    if (a->layers < 1 || a->layers >= MODEL_WIDTHS)
        FAIL(ERR_CONFIG, "model.widths lists %lld numbers, and model.kind mlp takes from 2 to %d, "
                         "as [512,1024,256,10]: those of a row, of each layer, and of the classes",
             (long long)a->layers + 1, MODEL_WIDTHS);
    for (int64_t i = 0; i <= a->layers; i++)
        TRY(model_check_range("one of model.widths", a->width[i], MODEL_MAX_EXTENT));
    for (int64_t i = 0; i < MODEL_WIDTHS; i++) {
        bool there = i <= a->layers;
        bool within = a->width[i] <= a->hidden && a->width[i] <= a->ffn;
        fits = fits && within && there == (a->width[i] > 0);
    }
    if (!fits || a->seq != 1 || a->heads != 1 || a->kv_heads != 1 || a->head_dim != 1 ||
        a->hidden > MODEL_MAX_EXTENT || a->ffn > MODEL_MAX_EXTENT ||
        a->vocab != a->width[a->layers])
        FAIL(ERR_CONFIG, "a model of kind mlp has its extents from model.widths, and others stand "
                         "beside them");
    return ERR_OK;
}

static enum err check_split(const struct model *a, const struct model_split *s)
{
    (void)a;
    if (s->tp != 1)
        FAIL(ERR_CONFIG, "parallel.tp is %d, and the layers of model.kind mlp are not cut over "
                         "tensor ranks; use 1, with parallel.dp or parallel.pp", s->tp);
    return ERR_OK;
}

const struct model_traits model_mlp = {.name = "mlp", .layers = layers, .layer = layer,
                                       .check = check, .check_split = check_split,
                                       .blocks = "the layers of model.widths:", .bias = true};
