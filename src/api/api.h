/* SPDX-License-Identifier: Apache-2.0
 *
 * What the implementations of the chapters of plait.h share.
 */
#ifndef PLAIT_API_API_H
#define PLAIT_API_API_H

#include "base/text.h"
#include "config/options.h"
#include "plait.h"

struct plait_config { struct options options; };

/* A caller's argument struct (its first member is its size) into this library's of `have` bytes;
 * what an older caller does not know stays zero. Errors: ERR_CONFIG for a size that cannot be.
 * Local. */
enum err api_take(const char *name, const void *given, void *mine, size_t have);
/* The end of a call with text: gives the page away, or loses it. Returns the code. */
int api_give(enum err err, struct text *page, char **out);

#endif
