/* SPDX-License-Identifier: Apache-2.0
 *
 * Files that a command writes beside its answer: pictures of one page, and a text that goes with
 * them; and the cells of a page's tables.
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

/* Cells, made one behind the other. */
enum { PICTURES_CELL = 32 };
struct pictures_cells {
    const char **at;               /* owned; [n] */
    char (*word)[PICTURES_CELL];   /* owned; [n] what cells that are numbers point to */
    int64_t n;
};
/* Room for `most` of them. Errors: ERR_MEMORY. Released by pictures_cells_free, after an error
 * too. */
enum err pictures_cells_new(int64_t most, struct pictures_cells *c);
void pictures_cells_free(struct pictures_cells *c);
/* word: borrowed. */
void pictures_word(struct pictures_cells *c, const char *word);
/* Numbers, one for each of the formats, which spaces separate; one that is not finite is a dash. */
void pictures_numbers(struct pictures_cells *c, const char *formats, const double *value);
void pictures_bytes(struct pictures_cells *c, double value);
/* A table of the cells that come next; its first row, the names of the columns, is made here. */
struct draw_table pictures_table(struct pictures_cells *c, const char *title, int columns,
                                 const char *const *name);

#endif
