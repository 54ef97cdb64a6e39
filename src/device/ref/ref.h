/* SPDX-License-Identifier: Apache-2.0
 *
 * The reference device, shared inside its folder: the kernels that fill its table, and the little
 * they have in common. What each kernel does is said in device/device.h. ct and at are both
 * double, so every operand that is not a token id is a `double *`.
 */
#ifndef PLAIT_DEVICE_REF_H
#define PLAIT_DEVICE_REF_H

#include "device/device.h"

/* Errors: ERR_CONFIG when ct is not f64; ERR_MEMORY. */
enum err ref_open(const struct dev_args *a, struct dev **out);
void ref_describe_kind(char *buf, size_t n);

/* Room for n doubles, borrowed from the device until the next call of ref_scratch; contents are
 * undefined. It grows and is kept. Errors: ERR_MEMORY. */
enum err ref_scratch(struct dev *d, int64_t n, double **out);

/* What dropout multiplies element `index` by: 0 or 1/(1-p). */
double ref_drop_factor(const struct drop *drop, int64_t index);

/* ref_gemm.c */
enum err ref_gemm(struct dev *d, const struct gemm *g);
enum err ref_bias_grad(struct dev *d, void *db, const void *dy, int64_t n, int64_t c);
/* ref_norm.c */
enum err ref_norm(struct dev *d, const struct norm *a);
enum err ref_norm_grad(struct dev *d, const struct norm_grad *a);
/* ref_attn.c */
enum err ref_attn(struct dev *d, const struct attn *a);
enum err ref_attn_grad(struct dev *d, const struct attn_grad *a);
/* ref_act.c */
enum err ref_rope(struct dev *d, const struct rope *a);
enum err ref_swiglu(struct dev *d, void *out, const void *gu, int64_t n, int64_t f);
enum err ref_swiglu_grad(struct dev *d, void *dgu, const void *dout, const void *gu, int64_t n,
                         int64_t f);
enum err ref_residual(struct dev *d, const struct residual *a);
enum err ref_dropout(struct dev *d, void *dx, const void *dy, int64_t n, int64_t c,
                     const struct drop *drop);
/* ref_vocab.c */
enum err ref_embed(struct dev *d, void *out, const void *w, const int32_t *token, int64_t n,
                   int64_t c, int64_t v0, int64_t rows);
enum err ref_embed_grad(struct dev *d, void *dw, const void *dy, const int32_t *token, int64_t n,
                        int64_t c, int64_t v0, int64_t rows);
enum err ref_pos_add(struct dev *d, void *x, const void *w, int64_t n, int64_t c, int64_t t,
                     int64_t row0);
enum err ref_pos_grad(struct dev *d, void *dw, const void *dy, int64_t n, int64_t c, int64_t t,
                      int64_t row0);
/* ref_xent.c */
enum err ref_xent_max(struct dev *d, const struct xent *x);
enum err ref_xent_sum(struct dev *d, const struct xent *x);
enum err ref_xent_grad(struct dev *d, const struct xent *x);
/* ref_flat.c */
enum err ref_adamw(struct dev *d, const struct adamw *a);
enum err ref_sum(struct dev *d, double *out, const void *x, int64_t n);
enum err ref_sumsq(struct dev *d, double *out, const void *x, const struct dev_parts *of);
enum err ref_cast(struct dev *d, void *to, const void *from, int64_t n);
enum err ref_add(struct dev *d, void *to, const void *from, int64_t n);

#endif
