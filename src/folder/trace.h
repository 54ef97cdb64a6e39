/* SPDX-License-Identifier: Apache-2.0
 *
 * What ran when: one file a rank in RUN/trace, written while the run goes on, a record after each
 * step. A record holds times alone; what the instructions were is in the schedule, which follows
 * from RUN/config.yaml, and whose hash is in the file's head.
 *
 *     head     64 bytes, struct trace_head
 *     record   the step as a double, then start, end, waited for each instruction of the rank
 *
 * All numbers are little-endian, times are seconds on the clock of world rank 0. A run that ended
 * in the middle leaves at most one record that is not whole; it is left out when the file is read.
 */
#ifndef PLAIT_FOLDER_TRACE_H
#define PLAIT_FOLDER_TRACE_H

#include "base/fs.h"
#include "exec/exec.h"

struct trace_head {
    char magic[8];     /* "plaittrc" */
    uint32_t version;  /* 1 */
    uint32_t rank, world;
    uint32_t pp, tp, dp; /* coordinates of the rank */
    uint64_t hash;     /* of the schedule */
    int64_t instrs;    /* of the rank's list, in a record */
    double clock;      /* added to the rank's own clock it gives that of rank 0 */
    uint64_t zero;
};

/* ---- while training: a file of this rank ---- */
struct trace_log {
    int fd;
    int64_t steps; /* written */
    double clock;
    double *record; /* owned; [1 + 3 * instrs] */
    char path[FS_PATH];
};

/* Collective over the world: clocks are compared. Makes dir/trace and the file in it, which must
 * not be there. The log may be closed after an error too; closed before its first step, the file is
 * removed. Errors: ERR_STORAGE; of the transport. */
enum err trace_open(struct comm_world *world, const struct exec *x, const struct trace_head *head,
                    const char *dir, struct trace_log *out);
/* A step, `ago` runs before the last one (exec_events). Local. Errors: ERR_STORAGE; of the
 * device. */
enum err trace_step(struct trace_log *t, struct exec *x, int64_t step, int ago);
/* Errors: ERR_STORAGE (fs_log_close); it is closed then, too. */
enum err trace_close(struct trace_log *t);

/* The file of a rank, dir/trace/RANK.trace, into buf, which is returned, as fs_path. */
const char *trace_path(char buf[FS_PATH], const char *dir, int rank);

/* ---- afterwards ---- */
struct trace {
    struct trace_head head;
    struct fs_map map;
    int64_t steps;  /* whole records */
    int64_t cut;    /* bytes of a last record that is not whole */
};
/* dir/trace's file of a rank, every number looked at. Errors: ERR_DATA: missing, foreign, of
 * another version, damaged. Released by trace_unread, after an error too. */
enum err trace_read(const char *dir, int rank, struct trace *out);
/* Events of the i-th record, [head.instrs]; its step. */
const struct exec_event *trace_events(const struct trace *t, int64_t i, int64_t *step);
void trace_unread(struct trace *t);

#endif
