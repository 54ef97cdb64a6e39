/* SPDX-License-Identifier: Apache-2.0
 *
 * XXH3 by the widest vectors that the processor has, where the library can choose among them at run
 * time (that of Debian on x86-64 does); elsewhere by what it was compiled for. The hashes are the
 * same.
 */
#ifndef PLAIT_CKPT_XXH3_H
#define PLAIT_CKPT_XXH3_H

#define XXH_STATIC_LINKING_ONLY /* the state's size, for one on the stack */
#ifdef PLAIT_XXH_DISPATCH
#include <xxh_x86dispatch.h>
#else
#include <xxhash.h>
#endif

#endif
