/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory plan against the machine whose memory all ranks share: what the machine and the
 * process's control groups (cgroup 1 and 2) allow, a warning where the plan is above it, and a
 * refusal where it is so far above that no machine that grows can hold it.
 */
#ifndef PLAIT_SETUP_HOST_H
#define PLAIT_SETUP_HOST_H

#include "setup/setup.h"

struct host {
    int64_t memory; /* of the machine; 0: not known */
    int64_t swap;
    int64_t limit; /* the lowest of the control groups' limits; INT64_MAX: none */
};

/* root: "", or a folder that has proc/ and sys/. */
void host_ask(const char *root, struct host *out);

/* Do the ranks of this machine fit? Else a sentence about it into out. Of processes each is held
 * against the machine alone. Pure. Errors: ERR_MEMORY, where they cannot. */
enum err host_holds(const struct setup *s, const struct host *h, struct text *out);

/* The same of this machine, and the sentence is a warning; with a report a line of that, as is what
 * would be an error. Errors: as host_holds. */
enum err host_check(const struct setup *s, struct text *report);

#endif
