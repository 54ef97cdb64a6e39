/* SPDX-License-Identifier: Apache-2.0
 *
 * Before step 0 every rank proves that it is in the same run: same program, configuration, schedule
 * and data. Under mpirun each process reads its own files, and a stale copy on one host is among
 * the commonest causes of a run that trains on wrong data in silence.
 */
#ifndef PLAIT_TRAIN_HANDSHAKE_H
#define PLAIT_TRAIN_HANDSHAKE_H

#include "comm/comm.h"
#include "setup/setup.h"

/* Hashes of what the ranks read, 0 where there is none: token files; the prompt with the options of
 * generation; weights. */
struct handshake { uint64_t train, valid, prompt, weights; };

/* Comes before any other group is opened, for these have the layout's shape already. Errors:
 * ERR_MISMATCH naming what differs and on which ranks, on every rank. Collective over the world. */
enum err handshake(const struct setup *s, const struct handshake *read, struct comm_world *world);

#endif
