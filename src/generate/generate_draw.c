/* SPDX-License-Identifier: Apache-2.0
 *
 * A token from logits. The candidates are sorted, equal ones by id, so that every rank that has the
 * logits draws the same.
 */
#include "generate/generate.h"

#include "base/mem.h"
#include <stdlib.h>

struct candidate { double logit; int32_t id; };

static int by_logit(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    if (x->logit != y->logit)
        return x->logit < y->logit ? 1 : -1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* Token from candidates in order: softmax at the temperature over the first k, cut at a uniform. */
static int32_t draw(const struct candidate *c, int64_t k, double temperature, double u)
{
    double sum = 0, run = 0;
    for (int64_t i = 0; i < k; i++)
        sum += exp((c[i].logit - c[0].logit) / temperature);
    for (int64_t i = 0; i < k; i++) {
        run += exp((c[i].logit - c[0].logit) / temperature);
        if (run >= u * sum)
            return c[i].id;
    }
    return c[k - 1].id;
}

enum err generate_pick(const double *logits, int64_t vocab, const struct generate_how *how,
                       int64_t number, int32_t *token)
{
    struct candidate *c;
    int64_t n = 0;
    for (int64_t i = 0; i < vocab; i++)
        if (!isfinite(logits[i]))
            FAIL(ERR_NONFINITE,
                 "generate: at token %lld the logit of id %lld is %s; the weights are finite, but "
                 "the model overflows with them: they are of a run that diverged, or want "
                 "another train.dtype", (long long)number, (long long)i,
                 isnan(logits[i]) ? "nan" : "infinite");
    TRY(mem_new(vocab, sizeof *c, "candidates", &c));
    for (int64_t i = 0; i < vocab; i++)
        if (!how->legal || how->legal[i])
            c[n++] = (struct candidate){logits[i], (int32_t)i};
    ENSURE(n > 0);
    qsort(c, (size_t)n, sizeof *c, by_logit);
    int64_t k = how->top_k > 0 ? num_min(how->top_k, n) : n;
    double u = num_uniform(how->seed, num_hash("generate"), number);
    *token = how->temperature > 0 ? draw(c, k, how->temperature, u) : c[0].id;
    mem_free(c);
    return ERR_OK;
}
