/* SPDX-License-Identifier: Apache-2.0
 *
 * Each operation as the formula of its definition, in plain loops.
 *
 * Loops run over rows outside and along rows inside, so that compilers can use vectors without
 * reordering a sum. Sums over rows (weight gradients) start from what is there and add one row
 * after another: a batch taken in two parts gives the same bits as in one.
 */
#include "device/ref/ref.h"

#include "base/mem.h"

/* Room for n doubles, borrowed from the device until the next call; contents are undefined. It
 * grows and is kept. Errors: ERR_MEMORY. */
static enum err scratch_of(struct dev *d, int64_t n, double **out)
{
    struct ref_dev *r = d->impl;
    if (n > r->scratch_n) {
        double *p;
        TRY(mem_new(n, sizeof *p, "scratch of the ref device", &p));
        mem_free(r->scratch);
        r->scratch = p;
        r->scratch_n = n;
    }
    *out = r->scratch;
    return ERR_OK;
}

/* What dropout multiplies element `index` by: 0 or 1/(1-p). */
static double drop_factor(const struct drop *drop, int64_t index)
{
    if (drop->p == 0)
        return 1.0;
    bool kept = num_drop_kept(drop->seed, drop->stream, drop->step ? *drop->step : 0, index,
                              num_drop_threshold(drop->p));
    return kept ? 1.0 / (1.0 - drop->p) : 0.0;
}

/* y (n) += a x (n) */
static void add_scaled(double *restrict y, double a, const double *restrict x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        y[i] += a * x[i];
}

/* ---- GEMMs ----
 * C = op(A) op(B). One loop nest serves all four transpositions: row i of C gathers op(A)[i][p]
 * times row p of op(B), p ascending, so the inner loop has stride one. To have rows of op(B) when B
 * is stored transposed, B is first written out in row order; that costs n k moves against m n k
 * multiplications. The sum of an element starts from C (or zero) and adds its k terms in order, so
 * an accumulated GEMM over two halves of k has the bits of the whole.
 *
 * GELU is the tanh form, 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) (Hendrycks & Gimpel
 * 2016), as GPT-2 has it. */

static const double GELU_A = 0.79788456080286535588; /* sqrt(2/pi) */
static const double GELU_B = 0.044715;

static double gelu(double x)
{
    return 0.5 * x * (1.0 + tanh(GELU_A * (x + GELU_B * x * x * x)));
}

static double gelu_slope(double x)
{
    double t = tanh(GELU_A * (x + GELU_B * x * x * x));
    return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * GELU_A * (1.0 + 3.0 * GELU_B * x * x);
}

/* op(B) in row order: B itself, or a copy in scratch; *ld is its row stride. */
static enum err rows_of_b(struct dev *d, const struct gemm *g, const double **out, int64_t *ld)
{
    const double *b = g->b;
    double *copy;
    if (!g->trans_b) {
        *out = b;
        *ld = g->ldb ? g->ldb : g->n;
        return ERR_OK;
    }
    int64_t ldb = g->ldb ? g->ldb : g->k;
    TRY(scratch_of(d, g->k * g->n, &copy));
    for (int64_t p = 0; p < g->k; p++)
        for (int64_t j = 0; j < g->n; j++)
            copy[p * g->n + j] = b[j * ldb + p];
    *out = copy;
    *ld = g->n;
    return ERR_OK;
}

/* Bias and activation of one row of C; `pre` is the same row of g->pre or NULL. */
static void finish_row(const struct gemm *g, double *c, double *pre)
{
    const double *bias = g->bias;
    for (int64_t j = 0; j < g->n; j++) {
        double x = bias ? c[j] + bias[j] : c[j];
        switch (g->act) {
        case GEMM_NONE:
            c[j] = x;
            break;
        case GEMM_GELU:
            pre[j] = x;
            c[j] = gelu(x);
            break;
        case GEMM_DGELU:
            c[j] = x * gelu_slope(pre[j]);
            break;
        }
    }
}

enum err ref_gemm(struct dev *d, const struct gemm *g)
{
    const double *a = g->a, *b = NULL;
    int64_t lda = g->lda ? g->lda : (g->trans_a ? g->m : g->k);
    int64_t ldc = g->ldc ? g->ldc : g->n, ldb = 0;
    ENSURE(!g->accumulate || g->c_at);
    ENSURE(!g->db || (g->trans_a && lda == g->m));
    if (g->db && !g->accumulate)
        memset(g->db, 0, (size_t)g->m * sizeof(double));
    if (g->db)
        ref_bias_grad(&(struct bias_grad){g->db, a, g->k, g->m});
    if (g->m == 0 || g->n == 0)
        return ERR_OK;
    TRY(rows_of_b(d, g, &b, &ldb));
    for (int64_t i = 0; i < g->m; i++) {
        double *c = (double *)g->c + i * ldc;
        if (!g->accumulate)
            for (int64_t j = 0; j < g->n; j++)
                c[j] = 0;
        for (int64_t p = 0; p < g->k; p++)
            add_scaled(c, g->trans_a ? a[p * lda + i] : a[i * lda + p], b + p * ldb, g->n);
        finish_row(g, c, g->act == GEMM_NONE ? NULL : (double *)g->pre + i * g->n);
    }
    return ERR_OK;
}

void ref_bias_grad(const struct bias_grad *a)
{
    for (int64_t r = 0; r < a->n; r++)
        add_scaled(a->db, 1.0, (const double *)a->dy + r * a->c, a->c);
}

/* ---- attention ----
 * Causal, one query row and head at a time, its probabilities in one row of scratch:
 *     s_j = scale q . k_j        p_j = exp(s_j - lse)        o = sum_j m_j p_j v_j
 * where m_j is 0 or 1/(1-p) under dropout and 1 without. Backwards, with delta = do . o:
 *     dv_j += m_j p_j do        ds_j = p_j (m_j do . v_j - delta)
 *     dq = scale sum_j ds_j k_j        dk_j += scale ds_j q
 * The heads of a group add to the dk and dv of the one kv head they share (Ainslie et al. 2023). */

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
    return drop_factor(&a->drop, (row * a->heads_total + a->head0 + w.head) * a->tk + j);
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
    TRY(scratch_of(d, a->tk, &s));
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
    TRY(scratch_of(d, a->tk, &s));
    clear(g->dq, a->b * a->tq, a->ldq, a->heads * a->d);
    clear(g->dk, a->b * a->tk, a->ldk, a->kv_heads * a->d);
    clear(g->dv, a->b * a->tk, a->ldv, a->kv_heads * a->d);
    for (int64_t row = 0; row < a->b * a->tq; row++)
        for (int64_t head = 0; head < a->heads; head++)
            attend_grad(g, view_of(a, row, head), s);
    return ERR_OK;
}

/* ---- norms ----
 * LayerNorm (Ba, Kiros & Hinton 2016) and RMSNorm (Zhang & Sennrich 2019), row by row. With
 * xhat = (x - mean) rstd and g = dy w, the gradient is
 *     dx = d + rstd (g - avg(g) - xhat avg(g xhat))
 * where RMSNorm has no mean and so no avg(g). */

void ref_norm(const struct norm *a)
{
    const double *w = a->w, *b = a->b;
    double *means = a->mean, *rstds = a->rstd;
    for (int64_t r = 0; r < a->n; r++) {
        const double *x = (const double *)a->x + r * a->c;
        double *y = (double *)a->y + r * a->c;
        double mean = 0, var = 0;
        if (!a->rms) {
            for (int64_t i = 0; i < a->c; i++)
                mean += x[i];
            mean /= (double)a->c;
        }
        for (int64_t i = 0; i < a->c; i++)
            var += (x[i] - mean) * (x[i] - mean);
        double rstd = isfinite(var) ? 1.0 / sqrt(var / (double)a->c + a->eps) : NAN;
        for (int64_t i = 0; i < a->c; i++)
            y[i] = (x[i] - mean) * rstd * w[i] + (b ? b[i] : 0.0);
        if (means)
            means[r] = mean;
        rstds[r] = rstd;
    }
}

void ref_norm_grad(const struct norm_grad *a)
{
    const double *w = a->w, *means = a->mean, *rstds = a->rstd;
    double *dw = a->dw, *db = a->db;
    for (int64_t i = 0; i < a->c; i++)
        dw[i] = 0;
    for (int64_t i = 0; db && i < a->c; i++)
        db[i] = 0;
    for (int64_t r = 0; r < a->n; r++) {
        const double *x = (const double *)a->x + r * a->c;
        const double *dy = (const double *)a->dy + r * a->c;
        const double *add = a->d ? (const double *)a->d + r * a->c : NULL;
        double *dx = (double *)a->dx + r * a->c;
        double mean = a->rms ? 0.0 : means[r], rstd = rstds[r];
        double avg_g = 0, avg_gx = 0;
        for (int64_t i = 0; i < a->c; i++) {
            double xhat = (x[i] - mean) * rstd, g = dy[i] * w[i];
            avg_g += g;
            avg_gx += g * xhat;
            dw[i] += dy[i] * xhat;
            if (db)
                db[i] += dy[i];
        }
        avg_g = a->rms ? 0.0 : avg_g / (double)a->c;
        avg_gx /= (double)a->c;
        for (int64_t i = 0; i < a->c; i++) { /* dx may be d or x: read, then write */
            double xhat = (x[i] - mean) * rstd, g = dy[i] * w[i];
            dx[i] = (add ? add[i] : 0.0) + rstd * (g - avg_g - xhat * avg_gx);
        }
    }
}

/* ---- elements and pairs of elements ----
 * Rotary positions, SwiGLU (Shazeer 2020), ReLU, residual addition with bias and dropout. */

void ref_rope(const struct rope *a)
{
    int64_t half = a->d / 2;
    for (int64_t r = 0; r < a->n; r++) {
        const double *cosine = (const double *)a->table + (a->pos0 + r % a->t) * a->d;
        const double *sine = cosine + half;
        for (int64_t h = 0; h < a->heads; h++) {
            double *x = (double *)a->x + r * a->ld + h * a->d;
            for (int64_t i = 0; i < half; i++) {
                double s = a->inverse ? -sine[i] : sine[i];
                double x0 = x[i], x1 = x[i + half];
                x[i] = x0 * cosine[i] - x1 * s;
                x[i + half] = x1 * cosine[i] + x0 * s;
            }
        }
    }
}

static double sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

void ref_swiglu(const struct swiglu *a)
{
    for (int64_t r = 0; r < a->n; r++) {
        const double *gate = (const double *)a->gu + r * 2 * a->f, *up = gate + a->f;
        double *y = (double *)a->out + r * a->f;
        for (int64_t i = 0; i < a->f; i++)
            y[i] = gate[i] * sigmoid(gate[i]) * up[i];
    }
}

void ref_swiglu_grad(const struct swiglu_grad *a)
{
    for (int64_t r = 0; r < a->n; r++) {
        const double *gate = (const double *)a->gu + r * 2 * a->f, *up = gate + a->f;
        const double *dy = (const double *)a->dout + r * a->f;
        double *dgate = (double *)a->dgu + r * 2 * a->f, *dup = dgate + a->f;
        for (int64_t i = 0; i < a->f; i++) {
            double s = sigmoid(gate[i]);
            dgate[i] = dy[i] * up[i] * s * (1.0 + gate[i] * (1.0 - s));
            dup[i] = dy[i] * gate[i] * s;
        }
    }
}

void ref_relu(const struct relu *a)
{
    const double *x = a->x;
    double *y = a->y;
    for (int64_t i = 0; i < a->n; i++)
        y[i] = x[i] <= 0 ? 0 : x[i];
}

void ref_relu_grad(const struct relu_grad *a)
{
    const double *dy = a->dy, *x = a->x;
    double *dx = a->dx;
    for (int64_t i = 0; i < a->n; i++)
        dx[i] = x[i] <= 0 ? 0 : dy[i];
}

void ref_residual(const struct residual *a)
{
    const double *x = a->x, *f = a->f, *bias = a->bias;
    for (int64_t r = 0; r < a->n; r++) {
        for (int64_t i = 0; i < a->c; i++) {
            int64_t at = r * a->c + i;
            double add = f[at] + (bias ? bias[i] : 0.0);
            if (a->drop.p != 0)
                add *= drop_factor(&a->drop, (a->drop.row0 + r) * a->c + i);
            ((double *)a->y)[at] = (x ? x[at] : 0.0) + add;
        }
    }
}

void ref_dropout(const struct dropout *a)
{
    for (int64_t r = 0; r < a->n; r++) {
        for (int64_t i = 0; i < a->c; i++) {
            int64_t at = r * a->c + i;
            double factor = drop_factor(&a->drop, (a->drop.row0 + r) * a->c + i);
            ((double *)a->dx)[at] = ((const double *)a->dy)[at] * factor;
        }
    }
}

/* ---- rows by token and by position ----
 * A shard of the vocabulary holds the tokens v0 .. v0 + rows - 1; other tokens are some other
 * rank's and give zeros here, so that the sum over ranks is the whole table's row. */

void ref_embed(const struct embed *a)
{
    for (int64_t r = 0; r < a->n; r++) {
        int64_t local = a->token[r] - a->v0;
        bool here = local >= 0 && local < a->rows;
        for (int64_t i = 0; i < a->c; i++)
            ((double *)a->out)[r * a->c + i] =
                here ? ((const double *)a->w)[local * a->c + i] : 0.0;
    }
}

void ref_embed_grad(const struct embed_grad *a)
{
    for (int64_t r = 0; r < a->n; r++) {
        int64_t local = a->token[r] - a->v0;
        if (local >= 0 && local < a->rows)
            add_scaled((double *)a->dw + local * a->c, 1.0, (const double *)a->dy + r * a->c,
                       a->c);
    }
}

void ref_pos_add(const struct pos_add *a)
{
    for (int64_t r = 0; r < a->n; r++)
        add_scaled((double *)a->x + r * a->c, 1.0,
                   (const double *)a->w + (a->row0 + r) % a->t * a->c, a->c);
}

void ref_pos_grad(const struct pos_grad *a)
{
    for (int64_t r = 0; r < a->n; r++)
        add_scaled((double *)a->dw + (a->row0 + r) % a->t * a->c, 1.0,
                   (const double *)a->dy + r * a->c, a->c);
}

/* ---- cross entropy ----
 * Over a vocabulary that may be split by columns. Between the steps the ranks take the maximum of
 * `max` and add up `sum` and `target_logit`; what the last step reads is therefore the whole row's,
 * while its columns are this shard's. A row without a target is skipped by the last step alone, so
 * that the sums in between need no case. */

/* Column of row r's target in this shard, or -1. */
static int64_t target_column(const struct xent *x, int64_t r)
{
    int64_t column = x->target[r] - x->v0;
    return x->target[r] >= 0 && column >= 0 && column < x->v ? column : -1;
}

void ref_xent_max(const struct xent *x)
{
    for (int64_t r = 0; r < x->n; r++) {
        const double *logit = (const double *)x->logits + r * x->ld;
        double max = -INFINITY;
        for (int64_t j = 0; j < x->v; j++)
            max = logit[j] > max ? logit[j] : max;
        ((double *)x->max)[r] = max;
    }
}

void ref_xent_sum(const struct xent *x)
{
    for (int64_t r = 0; r < x->n; r++) {
        const double *logit = (const double *)x->logits + r * x->ld;
        double max = ((const double *)x->max)[r], sum = 0;
        int64_t target = target_column(x, r);
        for (int64_t j = 0; j < x->v; j++)
            sum += exp(logit[j] - max);
        ((double *)x->sum)[r] = sum;
        ((double *)x->target_logit)[r] = target < 0 ? 0.0 : logit[target];
    }
}

void ref_xent_grad(const struct xent *x)
{
    const double *max = x->max, *sum = x->sum, *target_logit = x->target_logit;
    for (int64_t r = 0; r < x->n; r++) {
        bool counts = x->target[r] >= 0;
        ((double *)x->loss)[r] = counts ? log(sum[r]) + max[r] - target_logit[r] : 0.0;
        if (!x->dlogits)
            continue;
        double *dlogit = (double *)x->dlogits + r * x->ld;
        for (int64_t j = 0; j < x->ld; j++)
            dlogit[j] = 0;
        const double *logit = (const double *)x->logits + r * x->ld;
        int64_t target = target_column(x, r);
        for (int64_t j = 0; j < x->v && counts; j++) /* softmax minus one at the target */
            dlogit[j] = exp(logit[j] - max[r]) / sum[r] - (j == target ? 1.0 : 0.0);
    }
}

/* ---- flat vectors ----
 * AdamW (Loshchilov & Hutter 2019), sums, conversion, addition. Sums add in order of the index. */

void ref_adamw(const struct adamw *a)
{
    double *w = a->master ? a->master : a->w, *m = a->m, *v = a->v;
    const double *grad = a->grad, *scalars = a->step_scalars;
    const double lr = scalars[SCALAR_LR], scale = scalars[SCALAR_SCALE];
    int bound = 0; /* bounds at or below i: an odd number inside a range */
    if (!isfinite(scale))
        return;
    for (int64_t i = 0; i < a->n; i++) {
        while (bound < 2 * a->decays->n && a->decays->bound[bound] <= i)
            bound++;
        double decay = bound & 1 ? a->decay : 0;
        double g = grad[i] * scale;
        m[i] = a->beta1 * m[i] + (1.0 - a->beta1) * g;
        v[i] = a->beta2 * v[i] + (1.0 - a->beta2) * g * g;
        double root = sqrt(v[i] / scalars[SCALAR_BIAS2]) + a->eps;
        double step = (m[i] / scalars[SCALAR_BIAS1]) / root;
        w[i] -= lr * (step + decay * w[i]);
        ((double *)a->w)[i] = w[i];
    }
}

void ref_sum(const struct sum *a)
{
    for (int64_t i = 0; i < a->n; i++)
        *a->out += ((const double *)a->x)[i];
}

void ref_sumsq(const struct sumsq *a)
{
    for (int p = 0; p < a->of->n; p++)
        for (int64_t i = a->of->bound[2 * p]; i < a->of->bound[2 * p + 1]; i++)
            *a->out += ((const double *)a->x)[i] * ((const double *)a->x)[i];
}

void ref_cast(const struct flat *a)
{
    for (int64_t i = 0; i < a->n; i++)
        ((double *)a->to)[i] = ((const double *)a->from)[i];
}

void ref_add(const struct flat *a)
{
    for (int64_t i = 0; i < a->n; i++)
        ((double *)a->to)[i] += ((const double *)a->from)[i];
}
