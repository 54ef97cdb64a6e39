/* SPDX-License-Identifier: Apache-2.0
 *
 * The start and the end of MPI in a process, what processes agree on at its start, and the limit of
 * both.
 */
#ifndef PLAIT_COMM_MPI_START_H
#define PLAIT_COMM_MPI_START_H

#include "base/err.h"

/* Start MPI, if nobody has, and learn whether each process of the launch could and is about to run
 * `what`. Within limit_s (comm_mpi_limit), until comm_mpi_limit_end. Collective over the launch, in
 * which processes that have an error, or run nothing, take part by comm_mpi_report_error. Errors:
 * the code of a process that has one; ERR_MISMATCH, with who runs something else. */
enum err comm_mpi_start(const char *what, double limit_s);

/* comm_report_error. */
enum err comm_mpi_report_error(enum err code, const char *text, void (*print)(const char *text));

/* Run while this process is in calls of MPI that wait for all others and know no limit; until
 * comm_mpi_limit_end peers on the same machine can see that it has come to them. When
 * comm_mpi_limit_end is not called within `limit_s` (at least COMM_MPI_START_S; 0: none), the
 * process prints `text` and ends with `code`. text NULL: that `what` does not end and which ranks
 * have not come, and ERR_HANG. Texts are borrowed. */
enum { COMM_MPI_START_S = 15 };
struct comm_mpi_late {
    const char *what, *text;
    void (*print)(const char *text);
    enum err code;
};
void comm_mpi_limit(double limit_s, const struct comm_mpi_late *late);
void comm_mpi_limit_end(void);

#endif
