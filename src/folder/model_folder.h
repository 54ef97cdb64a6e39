/* SPDX-License-Identifier: Apache-2.0
 *
 * A folder that holds a model: a run of plait (config.yaml, weights, config.json), or what
 * transformers saved (config.json, weights).
 */
#ifndef PLAIT_FOLDER_MODEL_FOLDER_H
#define PLAIT_FOLDER_MODEL_FOLDER_H

#include "ckpt/weights.h"
#include "config/options.h"

struct model_folder {
    const char *dir;       /* borrowed */
    struct options options;
    struct model model;      /* as the folder has it; zeros of options derived */
    bool foreign;          /* config.json alone */
    int32_t end[HF_ENDS];  /* ids that end a text, of a foreign one */
    int ends;
    char unknown[256];     /* keys of config.json that say something nobody knows; "" */
};

/* What the folder says, defaults elsewhere. Where config.yaml and config.json both stand they have
 * to agree on the model. Errors: ERR_CONFIG without either, or for config.yaml; ERR_CHECKPOINT for
 * config.json, or naming a key that they disagree on, with both values. Local. */
enum err model_folder_open(struct model_folder *f, const char *dir);

/* Are there any weights? Told before anything is made of the rest. Errors: ERR_CONFIG, where the
 * run was to leave none; ERR_CHECKPOINT, with what is there instead. Local. */
enum err model_folder_filled(const struct model_folder *f);
/* Its weights: of a run the checkpoint that `step` names (folder_checkpoint), "" the newest, or
 * where it has none the files; of others the files. A checkpoint has to be of the folder's model.
 * Errors: ERR_CONFIG: a step of what is no run, or of a run that saved nothing; ERR_CHECKPOINT;
 * ERR_MEMORY. Local; released by weights_close. */
enum err model_folder_weights(const struct model_folder *f, const char *step, struct weights *out);

/* The tokenizer of its ids, from the weights and data.tokenizer, and whether plait's own of that
 * name is the one. Errors: ERR_TOKEN: none is named, two are, it is unknown, or has another hash;
 * ERR_CHECKPOINT. Local. */
enum err model_folder_tokenizer(const struct model_folder *f, const struct weights *w,
                                char out[SAFET_NOTE]);

#endif
