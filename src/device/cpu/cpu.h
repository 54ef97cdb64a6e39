/* SPDX-License-Identifier: Apache-2.0
 *
 * The cpu device: f32 (ct f32, at f32) and bf16 (ct bf16, at f32) on the host's processor, with a
 * pool of threads of its own for each device.
 *
 * Results do not depend on the number of threads: work is cut into pieces by shape alone, and each
 * element is computed by one thread in one fixed order.
 */
#ifndef PLAIT_DEVICE_CPU_CPU_H
#define PLAIT_DEVICE_CPU_CPU_H

#include "device/device.h"

/* Open with `threads` workers (the calling thread is one of them). All scratch is taken here; no
 * kernel allocates. bf16 is multiplied, in attention too, on AMX tiles where the processor has
 * them, else on vectors of f32. Errors: ERR_CONFIG for a type other than f32 and bf16, ERR_MEMORY.
 * Local. */
enum err cpu_open(const struct dev_args *a, struct dev **out);

/* One line on what this machine's processor gives: "cpu: avx2, f32 and bf16 ...". Local. */
void cpu_describe_kind(char *buf, size_t n);

/* Bytes of scratch that cpu_open takes for its threads, as dev_workspace_bytes. Pure. */
int64_t cpu_workspace_bytes(const struct dev_args *a);

#endif
