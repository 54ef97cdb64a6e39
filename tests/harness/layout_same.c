/* SPDX-License-Identifier: Apache-2.0
 *
 * How far apart the gradients or weights of two layouts are, and whether they are the same bits.
 */
#include "layout.h"

#include <math.h>
#include <string.h>

static double largest(const double *x, int64_t n)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++)
        most = fmax(most, fabs(x[i]));
    return most;
}

/* Values of a parameter that say how large its summands are. A key bias has gradient zero in exact
 * arithmetic, since softmax does not see a shift; what it shows is the rounding of what its weight
 * sums. */
static double scale_of(const struct layout_result *r, int i, bool weights)
{
    int from = i;
    if (r->param[i].spec.role == PARAM_K_B && !weights)
        while (r->param[from].spec.role != PARAM_K_W)
            from--;
    const struct layout_param *p = &r->param[from];
    return largest(weights ? p->weight : p->grad, p->count);
}

double layout_difference(const struct layout_result *a, const struct layout_result *b, bool weights,
                         const char **worst)
{
    double most = 0;
    for (int i = 0; i < a->params; i++) {
        const double *x = weights ? a->param[i].weight : a->param[i].grad;
        const double *y = weights ? b->param[i].weight : b->param[i].grad;
        double scale = scale_of(a, i, weights), far = 0;
        for (int64_t j = 0; j < a->param[i].count; j++)
            far = fmax(far, isfinite(y[j]) ? fabs(x[j] - y[j]) : INFINITY);
        far = scale > 0 ? far / scale : far;
        if (far > most || i == 0) {
            most = far;
            *worst = a->param[i].spec.name;
        }
    }
    return most;
}

bool layout_same_bits(const struct layout_result *a, const struct layout_result *b)
{
    if (memcmp(&a->loss, &b->loss, sizeof a->loss) != 0)
        return false;
    for (int i = 0; i < a->params; i++) {
        size_t bytes = (size_t)a->param[i].count * sizeof(double);
        if (memcmp(a->param[i].grad, b->param[i].grad, bytes) != 0 ||
            memcmp(a->param[i].weight, b->param[i].weight, bytes) != 0)
            return false;
    }
    return true;
}
