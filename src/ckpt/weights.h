/* SPDX-License-Identifier: Apache-2.0
 *
 * The weights of a model as tensors of which boxes are read, wherever they stand: in the files of a
 * folder (ckpt.h) or in a checkpoint (state.h). Who loads them need not know which.
 */
#ifndef PLAIT_CKPT_WEIGHTS_H
#define PLAIT_CKPT_WEIGHTS_H

#include "ckpt/state.h"

struct weights {
    struct hf_weights files;  /* of a folder; of a checkpoint empty */
    struct state_index state; /* of a checkpoint; else all zero */
};
/* Of a folder with a checkpoint's index the checkpoint, else the files. Errors: ERR_CHECKPOINT,
 * ERR_MEMORY. Local; released by weights_close, nothing when it fails. */
enum err weights_open(struct weights *w, const char *dir);
void weights_close(struct weights *w); /* idempotent, also of one that is all zero */

/* Whose ids they know: the tokenizer's name, and its hash as 16 hexadecimal digits; "" where they
 * say nothing. Errors: ERR_CHECKPOINT. */
struct weights_tokenizer { char name[SAFET_NOTE], hash[SAFET_NOTE]; };
enum err weights_tokenizer(const struct weights *w, struct weights_tokenizer *out);
/* Whoever reads another copy finds another. */
uint64_t weights_digest(const struct weights *w);
/* Is every tensor one of the model's? Passed over are what the model would make itself (masks of
 * GPT-2's attention, rotary frequencies) and, of files, a tied output matrix that is the embedding.
 * Errors: ERR_CHECKPOINT naming one that is none of these; ERR_MEMORY. Local. */
enum err weights_check_rest(const struct weights *w, const struct model *a);

/* The tensor of a place. Files of the bare GPT2Model and LlamaModel have the names without
 * "transformer." and "model."; both are found. Name and path are for messages. */
struct weights_tensor {
    const struct weights *from;   /* borrowed */
    const struct hf_place *place; /* borrowed */
    struct hf_tensor found;       /* file NULL: of a checkpoint */
    const char *name, *path;      /* borrowed */
};
/* Errors: ERR_CHECKPOINT: there is none, or of another shape, or of a type whose values are not
 * read. */
enum err weights_find(const struct weights *w, const struct hf_place *place,
                      struct weights_tensor *out);
/* Does the model find each of its tensors, in its shape, and is no other there? Nothing of the data
 * is read. Errors: those of weights_find and weights_check_rest. Local. */
enum err weights_check(const struct weights *w, const struct model *a);
/* A box of the parameter that has the place (global, as in model.h) into `out` of type SAFET_F32 or
 * SAFET_F64, row-major. Any thread, several at once. Errors: ERR_CHECKPOINT, ERR_MEMORY. */
enum err weights_read(const struct weights_tensor *t, const struct state_box *box,
                      enum safet_type type, void *out);

#endif
