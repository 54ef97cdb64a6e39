/* SPDX-License-Identifier: Apache-2.0
 *
 * Text, or ids, from the weights of a folder; and the weights as a folder that transformers reads.
 */
#ifndef PLAIT_GENERATE_GENERATE_H
#define PLAIT_GENERATE_GENERATE_H

#include "base/text.h"
#include "plait.h"
#include "folder/model_folder.h"

/* Write call->tokens tokens behind the prompt. The layout is that of the folder's options with one
 * data rank; dropout is off. Errors: ERR_CONFIG, ERR_CHECKPOINT, ERR_TOKEN; ERR_NONFINITE for
 * logits. */
enum err generate_run(const struct model_folder *folder, const struct plait_generate *call);

/* Writes the folder of a checkpoint's weights, whole or not at all; *page gets a line of what it
 * is. Errors: ERR_CONFIG, ERR_CHECKPOINT, ERR_STORAGE, ERR_MEMORY; ERR_STOPPED after plait_stop.
 * Local. (export.c) */
enum err export_run(const struct plait_export *call, struct text *page);

/* ---- drawing (generate_draw.c) ---- */

struct generate_how {
    double temperature; /* 0: greedy */
    int64_t top_k;      /* 0: all */
    uint64_t seed;
    const bool *legal;  /* (vocab) ids that may be drawn, one at least; NULL: all */
};
/* One token from logits (vocab): the likeliest at temperature 0, else a draw from the top_k legal
 * ones by the uniform number `number` of how->seed. The same on every layout with the same logits.
 * Errors: ERR_NONFINITE when a logit is none; ERR_MEMORY. */
enum err generate_pick(const double *logits, int64_t vocab, const struct generate_how *how,
                       int64_t number, int32_t *token);

/* ---- bytes to characters (generate.c) ---- */

/* Gives bytes on in whole UTF-8 characters; what begins none becomes U+FFFD, one for each run of
 * bytes that could still have become one. raw: as they come. */
struct generate_text {
    void (*give)(void *arg, const char *bytes, int n);
    void *arg;
    bool raw;
    uint8_t held[4]; /* the beginning of a character */
    int n;
};
void generate_text_add(struct generate_text *t, const char *bytes, int n);

#endif
