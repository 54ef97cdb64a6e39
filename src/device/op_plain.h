/* SPDX-License-Identifier: Apache-2.0
 *
 * Operations that no device need have a way of its own for: made of others, or of a few steps on
 * memory that the host shares with the device.
 */
#ifndef PLAIT_DEVICE_OP_PLAIN_H
#define PLAIT_DEVICE_OP_PLAIN_H

#include "device/op.h"

/* By one of those below. Errors: ERR_CONFIG: the device has no such operation. */
op_fn op_plain;

op_fn op_plain_residual_norm, op_plain_xent;        /* one kernel where that gains something */
op_fn op_plain_scale, op_plain_copy, op_plain_zero; /* on the host's memory */
op_fn op_plain_snapshot;                            /* at once, by the device's d2h */

/* What `scale` writes. Pure. */
double op_plain_factor(const double *sums, double clip);

#endif
