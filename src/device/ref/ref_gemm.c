/* SPDX-License-Identifier: Apache-2.0
 *
 * GEMMs, C = op(A) op(B). One loop nest serves all four transpositions: row i of C
 * gathers op(A)[i][p] times row p of op(B), p ascending, so the inner loop has stride one. To have
 * rows of op(B) when B is stored transposed, B is first written out in row order; that costs n k
 * moves against m n k multiplications. The sum of an element starts from C (or zero) and adds its
 * k terms in order, so an accumulated GEMM over two halves of k has the bits of the whole.
 *
 * GELU is the tanh form, 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) (Hendrycks & Gimpel
 * 2016), as GPT-2 has it.
 */
#include "device/ref/ref.h"

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

/* y (n) += a x (n) */
static void add_scaled(double *restrict y, double a, const double *restrict x, int64_t n)
{
    for (int64_t j = 0; j < n; j++)
        y[j] += a * x[j];
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
    TRY(ref_scratch(d, g->k * g->n, &copy));
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
        TRY(ref_bias_grad(d, &(struct bias_grad){g->db, a, g->k, g->m}));
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

enum err ref_bias_grad(struct dev *d, const struct bias_grad *a)
{
    (void)d;
    for (int64_t r = 0; r < a->n; r++)
        add_scaled(a->db, 1.0, (const double *)a->dy + r * a->c, a->c);
    return ERR_OK;
}
