/* SPDX-License-Identifier: Apache-2.0
 *
 * What a device has without a way of its own: operations made of others, or of a few steps on
 * memory that the host shares with it; and the slots of the table where work is done at once.
 */
#ifndef PLAIT_DEVICE_PLAIN_H
#define PLAIT_DEVICE_PLAIN_H

#include "device/device.h"

/* What an operation is made of goes to the device itself: who stands around its operations sees the
 * whole, and not its parts. Errors: ERR_CONFIG: there is no such operation without a kernel. */
op_fn dev_plain_run;

enum err dev_plain_alloc(struct dev *d, int64_t bytes, const char *name, void **out);
void dev_plain_free(struct dev *d, void *p);
enum err dev_plain_mem_info(struct dev *d, int64_t *free_bytes, int64_t *total);
enum err dev_plain_sync(struct dev *d);
enum err dev_plain_event(struct dev *d, int which);
enum err dev_plain_snapshot_synchronize(struct dev *d, bool *there);
enum err dev_plain_timer_alloc(struct dev *d, int64_t n, int64_t *first);
enum err dev_plain_timer_record(struct dev *d, int64_t which);
enum err dev_plain_timer_read(struct dev *d, int64_t which, double *seconds);

/* Nothing waits, nothing is to be put in order, and time is the host's. */
#define DEV_PLAIN_SLOTS                                                                            \
    .host_alloc = dev_plain_alloc, .host_free = dev_plain_free, .mem_info = dev_plain_mem_info,    \
    .sync = dev_plain_sync, .snapshot_ready = dev_plain_event, .snapshot_join = dev_plain_event,   \
    .snapshot_synchronize = dev_plain_snapshot_synchronize, .event_record = dev_plain_event,       \
    .event_synchronize = dev_plain_event, .timer_alloc = dev_plain_timer_alloc,                    \
    .timer_record = dev_plain_timer_record, .timer_read = dev_plain_timer_read

#endif
