/* SPDX-License-Identifier: Apache-2.0
 *
 * Numbers are kept as doubles, which hold those of both types exactly. Each element counts how many
 * ranks have saved it.
 */
#include "kept.h"

#include "base/mem.h"
#include "test.h"

int64_t kept_count(const struct kept *k, int i)
{
    return k->spec[i].shape[0] * k->spec[i].shape[1];
}

void kept_open(struct kept *k, const struct model *a)
{
    *k = (struct kept){0};
    CHECK_OK(model_param_list(a, &k->spec, &k->n));
    CHECK_OK(mem_new(k->n * PARAM_KINDS, sizeof *k->value, "values", &k->value));
    CHECK_OK(mem_new(k->n * PARAM_KINDS, sizeof *k->times, "counts", &k->times));
    for (int i = 0; i < k->n * PARAM_KINDS; i++) {
        int64_t count = kept_count(k, i / PARAM_KINDS);
        CHECK_OK(mem_new(count, sizeof **k->value, "values", &k->value[i]));
        CHECK_OK(mem_new(count, 1, "counts", &k->times[i]));
    }
    pthread_mutex_init(&k->lock, NULL);
}

void kept_free(struct kept *k)
{
    for (int i = 0; i < k->n * PARAM_KINDS; i++) {
        mem_free(k->value[i]);
        mem_free(k->times[i]);
    }
    mem_free(k->value);
    mem_free(k->times);
    mem_free(k->spec);
    pthread_mutex_destroy(&k->lock);
}

int kept_index(const struct kept *k, const struct param *p, enum param_kind kind)
{
    for (int i = 0; i < k->n; i++)
        if (strcmp(k->spec[i].name, p->spec.name) == 0)
            return i * (int)PARAM_KINDS + (int)kind;
    test_check(false, __FILE__, __LINE__, "%s is no parameter of the model", p->spec.name);
    return 0;
}

int64_t kept_place(const struct param *p, int64_t e)
{
    int64_t row = e / p->box.local[1], col = e % p->box.local[1];
    return (p->box.at[0] + row) * p->spec.shape[1] + p->box.at[1] + col;
}

double kept_number(const void *from, enum dtype type, int64_t i)
{
    return type == DT_F64 ? ((const double *)from)[i] : (double)((const float *)from)[i];
}

void kept_add(struct kept *k, const struct param_snapshot *s)
{
    const struct param_duty *d = s->duty;
    pthread_mutex_lock(&k->lock);
    for (int i = 0; i < d->n; i++)
        for (enum param_kind kind = 0; kind < PARAM_KINDS; kind++) {
            const struct param_piece *p = &d->piece[i];
            const void *from = param_snapshot_of(s, kind, p);
            int at = kept_index(k, p->param, kind);
            for (int64_t e = p->from; e < p->to; e++) {
                int64_t g = kept_place(p->param, e);
                k->value[at][g] = kept_number(from, d->dev->at, e - p->from);
                k->times[at][g]++;
            }
        }
    pthread_mutex_unlock(&k->lock);
}

void kept_check_tiled(const struct kept *k, const char *what)
{
    for (int i = 0; i < k->n * PARAM_KINDS; i++) {
        int64_t other = 0, count = kept_count(k, i / PARAM_KINDS);
        for (int64_t e = 0; e < count; e++)
            other += k->times[i][e] != 1;
        test_check(other == 0, __FILE__, __LINE__, "%s: %lld of %lld elements of %s, kind %d, are "
                   "saved by no rank or by several", what, (long long)other, (long long)count,
                   k->spec[i / PARAM_KINDS].name, i % PARAM_KINDS);
    }
}

void kept_check_same(const struct kept *a, const struct kept *b, const char *what)
{
    for (int i = 0; i < a->n * PARAM_KINDS; i++) {
        size_t bytes = (size_t)kept_count(a, i / PARAM_KINDS) * sizeof **a->value;
        test_check(memcmp(a->value[i], b->value[i], bytes) == 0, __FILE__, __LINE__,
                   "%s: %s, kind %d, is not the same", what, a->spec[i / PARAM_KINDS].name,
                   i % PARAM_KINDS);
    }
}
