/* SPDX-License-Identifier: Apache-2.0
 *
 * What the ranks' devices have chosen by measuring (dev_choices), for the checkpoints of a run: all
 * different ones, gathered when a save begins.
 */
#ifndef PLAIT_TRAIN_CHOICES_H
#define PLAIT_TRAIN_CHOICES_H

#include "comm/comm.h"
#include "device/device.h"

struct choices {
    double *mark;  /* owned; [ranks]: of what each had, 0: nothing */
    char *text[2]; /* owned; the last one, and the one before, which a save under way may have */
    int now;
};
/* all: the world, host memory; NULL: one rank. Errors: ERR_MEMORY, the device's, the transport's.
 * Collective over all. Released by choices_close, also after an error. */
enum err choices_gather(struct choices *c, struct dev *dev, struct comm_group *all);
/* Have all ranks' devices taken what they were given (dev_choose)? *taken: of this rank, then of
 * all. Errors: the transport's. Collective over all. */
enum err choices_agree(struct comm_group *all, bool *taken);
/* "" where nothing is chosen so. Valid until the second gathering from now on. */
const char *choices_text(const struct choices *c);
void choices_close(struct choices *c);

#endif
