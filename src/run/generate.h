/* SPDX-License-Identifier: Apache-2.0
 *
 * Text from a run's weights.
 */
#ifndef PLAIT_RUN_GENERATE_H
#define PLAIT_RUN_GENERATE_H

#include "plait.h"
#include "run/options.h"

/* Write call->tokens tokens behind the prompt. The layout is o's with one data rank; dropout is
 * off. Errors: ERR_CONFIG, ERR_CHECKPOINT, ERR_TOKEN. */
enum err run_generate(const struct options *o, const struct plait_generate *call);

/* One token from logits (vocab): greedy at temperature 0, else a draw from the top_k (0: all) by
 * the uniform number `number` of how->seed. The same on every layout with the same logits. */
enum err generate_pick(const double *logits, int64_t vocab, const struct plait_generate *how,
                       int64_t number, int32_t *token);

#endif
