/* SPDX-License-Identifier: Apache-2.0
 *
 * A device that writes down what it is asked. Each call is a line with all its numbers and
 * addresses, so two runs of a list can be compared; what the host alone knows of a call (where a
 * copy comes from or goes to on the host) is no part of it. While it captures a graph, it keeps the
 * calls instead of doing them, and does them at each launch: a device with graphs, without a GPU.
 * It replays no messages, for those of other ranks come from the host.
 */
#ifndef PLAIT_TEST_TAPE_H
#define PLAIT_TEST_TAPE_H

#include "base/text.h"
#include "device/device.h"

struct tape {
    struct dev_hook hook;
    const struct dev_ops *real;
    struct dev_ops ops;
    struct text text;            /* owned; a line a call since tape_begin */
    bool capturing;
    int64_t wrong; /* calls that have no place in a graph, or were made in one */
    int64_t replays;
    bool refuses; /* graph_end fails */
};

/* Puts the tape in front of a device that this thread uses and no other. The tape outlives it. */
void tape_over(struct tape *t, struct dev *d, bool can_record);
void tape_off(struct tape *t, struct dev *d);
/* Forgets the lines so far. */
void tape_begin(struct tape *t);
void tape_free(struct tape *t);
/* Is the line at `line` what forward and backward ask for, GEMMs among it? Is it of such an
 * operation? */
bool tape_is_of_layers(const char *line);
bool tape_is(const char *line, enum op_kind kind);
/* The first line in which two texts differ, as messages want it, into buf; NULL: they are equal. */
const char *tape_difference(const struct text *a, const struct text *b, char buf[400]);

#endif
