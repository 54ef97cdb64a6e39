/* SPDX-License-Identifier: Apache-2.0
 *
 * The weights of a checkpoint as the folder that transformers reads.
 */
#ifndef PLAIT_GENERATE_EXPORT_H
#define PLAIT_GENERATE_EXPORT_H

#include "base/text.h"
#include "plait.h"

/* Writes the folder, whole or not at all; *page gets a line of what it is. Errors: ERR_CONFIG,
 * ERR_CHECKPOINT, ERR_STORAGE, ERR_MEMORY; ERR_STOPPED after plait_stop. Local. */
enum err export_run(const struct plait_export *call, struct text *page);

#endif
