/* SPDX-License-Identifier: Apache-2.0
 *
 * Configurations drawn at random, of a model that trains in milliseconds: for each key of the
 * option table values that mostly go together, and some that are refused or at an end of the range.
 * A key without a row here fails drawn_knows_every_key.
 */
#ifndef PLAIT_TEST_DRAW_CONFIG_H
#define PLAIT_TEST_DRAW_CONFIG_H

#include "base/conf.h"
#include "folder.h"

enum { DRAWN_WORDS = 80, DRAWN_WORD = FOLDER_PATH + 64 };

struct drawn {
    char word[DRAWN_WORDS][DRAWN_WORD]; /* key=value */
    int words;
    int ranks; /* to start; 0: as many as the layout needs */
};

/* Token files, schedules and costs that values name, in the program's folder. */
void drawn_files(void);
/* Draw `which`: the key of this number (round the table) is always among those set. run: the
 * folder that run.dir names, where it is not drawn. */
void drawn_make(int which, const char *run, struct drawn *out);
/* Is there a row for each key, and a key for each row? Checks. */
void drawn_knows_every_key(void);
/* Is each schedule drawn? Checks. */
void drawn_knows_every_schedule(void);

/* The value of a key, its last word's; NULL: it is not set. */
const char *drawn_value(const struct drawn *d, const char *key);
void drawn_set(struct drawn *d, const char *key, const char *value);
/* The configuration; its error, if a word is refused (*out is NULL then). */
int drawn_config(const struct drawn *d, struct plait_config **out);
/* " key=value key=value" in single quotes where it is needed, to be pasted. */
void drawn_print(const struct drawn *d, struct text *out);

#endif
