/* SPDX-License-Identifier: Apache-2.0
 *
 * Everything that can be refused without a device is refused here, in well under a second and
 * before any rank starts: conditions between keys, the layout, the schedule's shape, the files.
 * Each message names keys, values, the rule, and the legal values nearest to what was asked.
 */
#ifndef PLAIT_CHECK_CHECK_H
#define PLAIT_CHECK_CHECK_H

#include "setup/setup.h"

enum check_for {
    CHECK_PLAN,  /* can this layout exist? Data may still be unnamed; what stands in run.dir is
                    reported and no error */
    CHECK_TRAIN, /* and can it start here and now: data and folder named, launcher fits. What stands
                    in run.dir is looked at when it is taken (folder.h) */
};

/* ranks: how many were or will be started; 0: as many as the layout needs. `plan` (NULL: none is
 * asked for) is released by setup_free, also after an error. `report` (NULL: none) receives
 * readable lines: for CHECK_PLAN the start-up table (setup.h), which training prints itself once
 * memory is allocated; then machine, data, and warnings about what is legal but hardly meant.
 * Nothing is appended on failure, and nothing is written.
 * Errors: ERR_CONFIG; ERR_DATA, ERR_TOKEN for token files. Local. */
enum err check_run(const struct options *o, int ranks, enum check_for purpose, struct text *report,
                   struct setup *plan);

/* Does the way the program was started fit the transport, for the layout's tp x pp x dp ranks?
 * Under a launcher *ranks becomes what it started. Errors: ERR_CONFIG. Local. */
enum err check_launch(const struct options *o, int *ranks);

/* The vocabulary of the model: model.vocab, or when that is 0 the one of the file data.train.
 * Errors: ERR_CONFIG when there is neither; ERR_DATA. Local. */
enum err check_vocab(const struct options *o, int64_t *vocab);

#endif
