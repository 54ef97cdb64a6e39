/* SPDX-License-Identifier: Apache-2.0
 *
 * Slots of the device table as a device without queues and without fused kernels fills them: made
 * of other slots, or of a few operations of the host on memory that it shares with the device.
 */
#ifndef PLAIT_DEVICE_PLAIN_H
#define PLAIT_DEVICE_PLAIN_H

#include "device/device.h"

enum err dev_plain_host_alloc(struct dev *d, int64_t bytes, const char *name, void **out);
void dev_plain_host_free(struct dev *d, void *p);

/* Copies aside are made at once, by the device's copy_out. */
enum err dev_plain_aside(struct dev *d, int slot, void *host_to, const void *from, int64_t bytes);
enum err dev_plain_aside_reach(struct dev *d, bool *there);

/* Work is done at once: nothing to mark or to put in order, nothing to wait for, no queue. */
enum err dev_plain_mark(struct dev *d, int which);
enum err dev_plain_stamps(struct dev *d, int64_t n, int64_t *first);
enum err dev_plain_stamp(struct dev *d, int64_t which);
enum err dev_plain_stamped(struct dev *d, int64_t which, double *seconds);
void *dev_plain_queue(struct dev *d);
enum err dev_plain_room(struct dev *d, int64_t *left, int64_t *all);

enum err dev_plain_residual_norm(struct dev *d, const struct residual *a, const struct norm *b);
enum err dev_plain_xent(struct dev *d, const struct xent *x);
/* What `scale` writes: see device.h. Pure. */
double dev_plain_factor(const double *sums, double clip);
enum err dev_plain_scale(struct dev *d, double *now, const double *sums, double clip);

#endif
