/* SPDX-License-Identifier: Apache-2.0
 *
 * The cuda device: one GPU. bf16 or f32 operands, f32 sums, statistics, gradients and master
 * weights. All work of a device goes to one stream, in order; the host does not wait for it.
 */
#ifndef PLAIT_DEVICE_CUDA_H
#define PLAIT_DEVICE_CUDA_H

#include "device/device.h"

/* Errors: ERR_CONFIG when there is no such GPU, driver or library do not fit, or the type is none
 * of the two; ERR_MEMORY when there is no room for the libraries' workspace. */
enum err cuda_open(const struct dev_args *a, struct dev **out);
void cuda_describe_kind(char *buf, size_t n);

/* A line for each GPU, with its links to the others; none without a GPU. (cuda_info.c) */
void cuda_describe_all(struct text *out);
/* Workspace: what attention of a->largest needs, and no less than GEMMs do well with. Pure. */
int64_t cuda_workspace_bytes(const struct dev_args *a);

#endif
