/* SPDX-License-Identifier: Apache-2.0
 *
 * GEMMs by oneDNN; see cpu_gemm_dnnl.c. Without oneDNN there are no definitions behind this
 * face, and PLAIT_HAVE_ONEDNN is not defined.
 */
#ifndef PLAIT_DEVICE_CPU_CPU_DNNL_H
#define PLAIT_DEVICE_CPU_CPU_DNNL_H

#include "device/cpu/cpu_impl.h"

/* Has this processor GEMMs of bf16 that are worth it (AMX), and does oneDNN use them? Local. */
bool cpu_dnnl_has_bf16(void);
/* "oneDNN 2.6.3" */
void cpu_dnnl_name(char *buf, size_t n);

/* Errors: ERR_INTERNAL when oneDNN or its thread control fails. Local. */
enum err cpu_dnnl_open(int threads, struct cpu_dnnl **out);
void cpu_dnnl_close(struct cpu_dnnl *x); /* NULL is fine */
int64_t cpu_dnnl_bytes(const struct cpu_dnnl *x);

/* The GEMM of `w` (its rows, cols and across are set here), on the device's pool. The first call
 * of a shape makes its primitives. Errors: ERR_INTERNAL. */
enum err cpu_dnnl_gemm(struct cpu *p, struct cpu_gemm *w);

#endif
