/* SPDX-License-Identifier: Apache-2.0
 *
 * Files that a command writes beside its answer: pictures of one page, and a text that goes with
 * them.
 */
#ifndef PLAIT_STUDY_PICTURES_H
#define PLAIT_STUDY_PICTURES_H

#include "base/text.h"
#include "draw/draw.h"

/* Places in an array of paths, NULL where no such file is asked for. */
enum { PICTURES_SVG, PICTURES_HTML, PICTURES_TRACE, PICTURES_TEXT, PICTURES_FILES };

/* No two of the paths are one file, under whatever names. what: who asks, and for what, as in
 * "simulation: two pictures". Errors: ERR_CONFIG. */
enum err pictures_check(const char *what, const char *const path[PICTURES_FILES]);

/* Draws the page in each form that has a path, and writes what was drawn. text: made by the caller,
 * for its own path; NULL where there is none. All are made before the first is written, and each is
 * written whole or not at all. Errors: those of drawing; ERR_STORAGE. Local. */
enum err pictures_put(const struct draw_page *page, const char *const path[PICTURES_FILES],
                      const struct text *text);

#endif
