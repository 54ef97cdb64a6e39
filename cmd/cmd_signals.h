/* SPDX-License-Identifier: Apache-2.0
 *
 * What the program does when it is told to end.
 */
#ifndef PLAIT_CMD_SIGNALS_H
#define PLAIT_CMD_SIGNALS_H

/* For every verb: SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGXCPU end the program at once, with
 * 128 + their number and without leaving temporary files. A file that grows too large is an error
 * of the write. Called once, at the start. */
void cmd_signals_open(void);
/* From here on the first of them is a request to plait_train, and so are all SIGXCPU; SIGUSR1 asks
 * it to save and go on; and a reader of the output that goes away ends nothing. */
void cmd_signals_finish(void);
/* From here on nothing is left to save, and the first of them ends a search. */
void cmd_signals_search(void);

#endif
