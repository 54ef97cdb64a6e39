/* SPDX-License-Identifier: Apache-2.0
 *
 * The variables of Open MPI's mpirun, of other process managers (PMI), and of srun, whose number of
 * tasks counts where its tasks get PMIx.
 */
#include "comm/core/core.h"

#include "base/text.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

static bool number_of(const char *word, int64_t least, int *out)
{
    int64_t n;
    if (!word || !text_to_int(word, &n) || n < least || n > INT_MAX)
        return false;
    *out = (int)n;
    return true;
}

static const char *first_of(const char *a, const char *b, const char *c)
{
    const char *word = getenv(a);
    word = word ? word : getenv(b);
    return word ? word : getenv(c);
}

void comm_launch_read(struct comm_launch *out)
{
    static const char *const rank[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK",
                                       "SLURM_PROCID"};
    const char *tasks = getenv("PMIX_RANK") ? "SLURM_NTASKS" : "PMI_SIZE";
    const char *job = first_of("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "SLURM_JOB_ID");
    const char *step = getenv("SLURM_STEP_ID");
    *out = (struct comm_launch){.rank = -1, .local_rank = -1};
    (void)number_of(first_of("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", tasks), 1, &out->size);
    for (int i = 0; i < 4 && !number_of(getenv(rank[i]), 0, &out->rank); i++)
        continue;
    if (!number_of(getenv("OMPI_COMM_WORLD_LOCAL_RANK"), 0, &out->local_rank))
        (void)number_of(getenv("SLURM_LOCALID"), 0, &out->local_rank);
    (void)number_of(getenv("OMPI_COMM_WORLD_LOCAL_SIZE"), 1, &out->local_size);
    if (job)
        snprintf(out->job, sizeof out->job, "%.40s.%.12s", job, step ? step : "");
}

int comm_mpi_launched_size(void)
{
    struct comm_launch l;
    comm_launch_read(&l);
    return l.size;
}

int comm_mpi_launched_here(void)
{
    struct comm_launch l;
    comm_launch_read(&l);
    return l.local_size;
}

bool comm_launch_first(void)
{
    struct comm_launch l;
    comm_launch_read(&l);
    return l.size < 2 || l.rank <= 0;
}

int comm_local_rank(const struct comm_world *w)
{
    struct comm_launch l;
    comm_launch_read(&l);
    /* Threads are all of one machine. */
    return w->ops->kind == COMM_MPI && l.local_rank >= 0 ? l.local_rank : w->rank;
}
