/* SPDX-License-Identifier: Apache-2.0
 *
 * Causal attention, one query row and head at a time, its probabilities in one row of scratch:
 *     s_j = scale q . k_j        p_j = exp(s_j - lse)        o = sum_j m_j p_j v_j
 * where m_j is 0 or 1/(1-p) under dropout and 1 without. Backwards, with delta = do . o:
 *     dv_j += m_j p_j do        ds_j = p_j (m_j do . v_j - delta)
 *     dq = scale sum_j ds_j k_j        dk_j += scale ds_j q
 * The heads of a group add to the dk and dv of the one kv head they share (Ainslie et al. 2023).
 */
#include "device/ref/ref.h"

/* Query row `row` of head `head`: what it sees and where its keys begin. */
struct view {
    int64_t row, head;
    int64_t first; /* row of key 0 of its sequence in k and v */
    int64_t seen;  /* keys 0..seen-1 are visible */
    int64_t kv;    /* kv head */
};

static struct view view_of(const struct attn *a, int64_t row, int64_t head)
{
    return (struct view){.row = row,
                         .head = head,
                         .first = row / a->tq * a->tk,
                         .seen = a->tk - a->tq + row % a->tq + 1,
                         .kv = head / (a->heads / a->kv_heads)};
}

/* Element offset of (row, head) in a matrix of row stride ld. */
static int64_t at(const struct attn *a, int64_t ld, int64_t row, int64_t head)
{
    return row * ld + head * a->d;
}

static double dot(const double *x, const double *y, int64_t n)
{
    double s = 0;
    for (int64_t i = 0; i < n; i++)
        s += x[i] * y[i];
    return s;
}

static void add_scaled(double *restrict y, double a, const double *restrict x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] += a * x[i];
}

static void scores(const struct attn *a, struct view w, double *s)
{
    const double *q = (const double *)a->q + at(a, a->ldq, w.row, w.head);
    for (int64_t j = 0; j < w.seen; j++)
        s[j] = a->scale * dot(q, (const double *)a->k + at(a, a->ldk, w.first + j, w.kv), a->d);
}

/* log sum_j exp(s_j), with the maximum taken out first. */
static double log_sum_exp(const double *s, int64_t n)
{
    double max = s[0], sum = 0;
    for (int64_t j = 1; j < n; j++)
        max = s[j] > max ? s[j] : max;
    for (int64_t j = 0; j < n; j++)
        sum += exp(s[j] - max);
    return max + log(sum);
}

/* m_j of key j. */
static double factor(const struct attn *a, struct view w, int64_t j)
{
    int64_t row = a->drop.row0 + w.row;
    if (a->drop.p == 0)
        return 1.0;
    return ref_drop_factor(&a->drop, (row * a->heads_total + a->head0 + w.head) * a->tk + j);
}

static void attend(const struct attn *a, struct view w, double *s)
{
    double *o = (double *)a->o + at(a, a->ldo, w.row, w.head);
    scores(a, w, s);
    double lse = log_sum_exp(s, w.seen);
    for (int64_t i = 0; i < a->d; i++)
        o[i] = 0;
    for (int64_t j = 0; j < w.seen; j++)
        add_scaled(o, factor(a, w, j) * exp(s[j] - lse),
                   (const double *)a->v + at(a, a->ldv, w.first + j, w.kv), a->d);
    ((double *)a->lse)[w.row * a->heads + w.head] = lse;
}

enum err ref_attn(struct dev *d, const struct attn *a)
{
    double *s;
    TRY(ref_scratch(d, a->tk, &s));
    for (int64_t row = 0; row < a->b * a->tq; row++)
        for (int64_t head = 0; head < a->heads; head++)
            attend(a, view_of(a, row, head), s);
    return ERR_OK;
}

static void attend_grad(const struct attn_grad *g, struct view w, double *s)
{
    const struct attn *a = &g->f;
    const double *q = (const double *)a->q + at(a, a->ldq, w.row, w.head);
    const double *o = (const double *)a->o + at(a, a->ldo, w.row, w.head);
    const double *do_ = (const double *)g->do_ + at(a, a->ldo, w.row, w.head);
    double *dq = (double *)g->dq + at(a, a->ldq, w.row, w.head);
    double lse = ((const double *)a->lse)[w.row * a->heads + w.head];
    double delta = dot(do_, o, a->d);
    ((double *)g->delta)[w.row * a->heads + w.head] = delta;
    scores(a, w, s);
    for (int64_t j = 0; j < w.seen; j++) {
        int64_t at_k = at(a, a->ldk, w.first + j, w.kv), at_v = at(a, a->ldv, w.first + j, w.kv);
        double p = exp(s[j] - lse), m = factor(a, w, j);
        double ds = p * (m * dot(do_, (const double *)a->v + at_v, a->d) - delta);
        add_scaled((double *)g->dv + at_v, m * p, do_, a->d);
        add_scaled((double *)g->dk + at_k, a->scale * ds, q, a->d);
        add_scaled(dq, a->scale * ds, (const double *)a->k + at_k, a->d);
    }
}

/* Zero the (rows, width) part of a matrix of row stride ld. */
static void clear(void *x, int64_t rows, int64_t ld, int64_t width)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < width; i++)
            ((double *)x)[r * ld + i] = 0;
}

enum err ref_attn_grad(struct dev *d, const struct attn_grad *g)
{
    const struct attn *a = &g->f;
    double *s;
    TRY(ref_scratch(d, a->tk, &s));
    clear(g->dq, a->b * a->tq, a->ldq, a->heads * a->d);
    clear(g->dk, a->b * a->tk, a->ldk, a->kv_heads * a->d);
    clear(g->dv, a->b * a->tk, a->ldv, a->kv_heads * a->d);
    for (int64_t row = 0; row < a->b * a->tq; row++)
        for (int64_t head = 0; head < a->heads; head++)
            attend_grad(g, view_of(a, row, head), s);
    return ERR_OK;
}
