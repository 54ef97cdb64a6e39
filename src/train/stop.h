/* SPDX-License-Identifier: Apache-2.0
 *
 * The request to stop (plait_stop): who asked, and what messages call it.
 */
#ifndef PLAIT_TRAIN_STOP_H
#define PLAIT_TRAIN_STOP_H

/* What plait_stop was told last; 0: nothing. */
int stop_asked(void);
/* How often plait_save was called. */
int stop_saves(void);
/* "SIGTERM" of a signal's number; "a request" of any other. */
const char *stop_name(int why);
/* The error that the run deals with, which plait_abandon says; the first one counts. NULL: none. */
void stop_pending(const char *error);

#endif
