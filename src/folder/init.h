/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights that a run begins with instead of drawn ones (model.init): those of a run's folder, of a
 * checkpoint, or of what transformers saved.
 */
#ifndef PLAIT_FOLDER_INIT_H
#define PLAIT_FOLDER_INIT_H

#include "ckpt/weights.h"
#include "config/options.h"

/* Does a run begin with them? False: model.init is empty, or run.resume means a checkpoint that is
 * there, which has all that the run is. Local. */
bool init_begins(const struct options *o);
/* Could a run begin with the weights of that folder, as far as can be seen without the data? */
bool init_reads(const char *dir);
/* Keys of the model that nobody has given become those of the weights, or of the checkpoint that a
 * run goes on from. Those that say nothing of the weights stay the configuration's: dropout,
 * init_std, and where positions are rotary seq. Without model.init nothing is done. Errors:
 * ERR_CONFIG, also for keys that were given otherwise, with both values; ERR_CHECKPOINT;
 * ERR_MEMORY. Local. */
enum err init_take(struct options *o);
/* The weights, held against the model and the tokenizer of the data ("": not known yet). The data
 * of the tensors are not read. Errors: as init_take; ERR_TOKEN: they know another tokenizer's ids.
 * Local; released by weights_close, nothing when it fails. */
enum err init_open(const struct options *o, const struct model *a, const char *tokenizer,
                   struct weights *out);
/* What a run begins with, as a half sentence; nothing without model.init. Errors: as init_take.
 * Local. */
enum err init_say(const struct options *o, struct text *out);

#endif
