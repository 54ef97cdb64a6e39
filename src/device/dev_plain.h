/* SPDX-License-Identifier: Apache-2.0
 *
 * Slots of the device table as a device that is not async fills them.
 */
#ifndef PLAIT_DEVICE_PLAIN_H
#define PLAIT_DEVICE_PLAIN_H

#include "device/device.h"

enum err dev_plain_host_alloc(struct dev *d, int64_t bytes, const char *name, void **out);
void dev_plain_host_free(struct dev *d, void *p);

enum err dev_plain_snapshot_synchronize(struct dev *d, bool *there);

/* Work is done at once: nothing to record or to put in order, nothing to wait for, no stream. */
enum err dev_plain_event(struct dev *d, int which);
enum err dev_plain_timer_alloc(struct dev *d, int64_t n, int64_t *first);
enum err dev_plain_timer_record(struct dev *d, int64_t which);
enum err dev_plain_timer_read(struct dev *d, int64_t which, double *seconds);
void *dev_plain_stream(struct dev *d);
enum err dev_plain_mem_info(struct dev *d, int64_t *free_bytes, int64_t *total);

#endif
