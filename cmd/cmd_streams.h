/* SPDX-License-Identifier: Apache-2.0
 *
 * The three standard streams, at the start and the end of the program.
 */
#ifndef PLAIT_CMD_STREAMS_H
#define PLAIT_CMD_STREAMS_H

/* Before anything else is opened: a stream that was closed becomes /dev/null, or the next file
 * opened would have its number and receive what is printed. */
void cmd_streams_open(void);
/* Did all of standard output arrive? Returns the code, or PLAIT_STORAGE where it was PLAIT_OK and
 * something is lost, which has been said. */
int cmd_streams_end(int code);

#endif
