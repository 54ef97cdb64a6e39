/* SPDX-License-Identifier: Apache-2.0
 *
 * GEMMs and attention of bf16 on AMX tiles; see amx_gemm.h, amx_attn.h and amx_attn_grad.h.
 */
#ifndef PLAIT_DEVICE_CPU_CPU_AMX_H
#define PLAIT_DEVICE_CPU_CPU_AMX_H

#include "device/cpu/cpu_impl.h"

/* Does this processor have tiles of bf16 (and AVX-512 with conversion to it, as all that have
 * tiles), and does the kernel lend them? Asks once a process, which
 * is what Linux wants before the first use. Local; any thread. */
bool cpu_amx_has(void);

/* The GEMM of `w` (its rows, cols and across are set here), on the device's pool. k > 0. */
void cpu_amx_gemm(struct cpu *p, struct cpu_gemm *w);

/* Attention, on the device's pool. */
void cpu_amx_attn(struct cpu *p, const struct attn *a);
/* Its gradient; delta is there. */
void cpu_amx_attn_grad(struct cpu *p, const struct attn_grad *g);

#endif
