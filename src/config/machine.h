/* SPDX-License-Identifier: Apache-2.0
 *
 * What this machine is: asked of the processor and the kernel, never guessed.
 */
#ifndef PLAIT_CONFIG_MACHINE_H
#define PLAIT_CONFIG_MACHINE_H

#include "base/text.h"

/* The processor's own name, or its architecture when it has none. Local. */
void machine_processor(struct text *out);
/* Instruction sets that matter to the engine: "avx2 yes, avx512 no, avx512-bf16 no, amx-bf16 no".
 * "yes" means that the processor has it and the kernel saves its registers. Local. */
void machine_features(struct text *out);

#endif
