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

struct ref_dev {
    struct dev dev;
    double *scratch; /* owned; it grows and is kept */
    int64_t scratch_n;
};

/* ref_add(a), and so on; of those that need scratch ref_gemm(d, a). Errors: ERR_MEMORY. */
#define REF_KERNEL(kind, member, type, call, ref) void ref(const struct type *a);
#define REF_SCRATCH(kind, member, type, call, ref) \
    enum err ref(struct dev *d, const struct type *a);
OP_MATRIX_KERNELS(REF_SCRATCH)
OP_ROW_KERNELS(REF_KERNEL)
OP_FLAT_KERNELS(REF_KERNEL)
#undef REF_SCRATCH
#undef REF_KERNEL

#endif
