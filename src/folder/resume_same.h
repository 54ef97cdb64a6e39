/* SPDX-License-Identifier: Apache-2.0
 *
 * Is a checkpoint one that this run can go on from? As its index says; for check and training.
 */
#ifndef PLAIT_FOLDER_RESUME_SAME_H
#define PLAIT_FOLDER_RESUME_SAME_H

#include "ckpt/state.h"
#include "config/options.h"

/* What the run is here; borrowed. tokenizer: of the data, NULL: they are not named, and nothing of
 * them is compared. Hashes of the tokens; 0: none, or not known. */
struct resume_here {
    const struct options *o;
    const struct model *model;
    const char *tokenizer;
    uint64_t train, valid;
};

/* The index of a checkpoint, and the configuration in it. step: what it has to be of; -1: of any.
 * Errors: as state_index_open, with ERR_CHECKPOINT for a configuration that cannot be read. x is
 * released by state_index_close, also after an error. Local. */
enum err resume_open(struct state_index *x, const char *dir, int64_t step, struct options *was);
/* What may not have changed: samples are counted by steps of a batch; data, tokenizer and seed one
 * may insist on. Errors: ERR_CONFIG, naming the key, where it is of another model or run. Local. */
enum err resume_same(const struct resume_here *here, const struct state_index *x,
                     const struct options *was);
/* Where n checkpoints of run.dir have been tried. Returns ERR_CHECKPOINT, or ERR_MEMORY. */
enum err resume_none_good(const struct options *o, int n);
/* What run.resume, which is set, would go on from, as words for people; or what training would
 * refuse, in its words. Errors: as resume_open, resume_same. Local; touches nothing. */
enum err resume_say(const struct resume_here *here, struct text *out);

#endif
