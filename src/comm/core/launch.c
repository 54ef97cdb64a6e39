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

struct comm_launch comm_launch(void)
{
    static const char *const rank[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK",
                                       "SLURM_PROCID"};
    const char *tasks = getenv("PMIX_RANK") ? "SLURM_NTASKS" : "PMI_SIZE";
    const char *job = first_of("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "SLURM_JOB_ID");
    const char *step = getenv("SLURM_STEP_ID");
    struct comm_launch l = {.rank = -1, .local_rank = -1};
    (void)number_of(first_of("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", tasks), 1, &l.size);
    for (int i = 0; i < 4 && !number_of(getenv(rank[i]), 0, &l.rank); i++)
        continue;
    if (!number_of(getenv("OMPI_COMM_WORLD_LOCAL_RANK"), 0, &l.local_rank))
        (void)number_of(getenv("SLURM_LOCALID"), 0, &l.local_rank);
    (void)number_of(getenv("OMPI_COMM_WORLD_LOCAL_SIZE"), 1, &l.local_size);
    if (job)
        snprintf(l.job, sizeof l.job, "%.40s.%.12s", job, step ? step : "");
    return l;
}

int comm_mpi_launched_size(void)
{
    return comm_launch().size;
}

int comm_mpi_launched_here(void)
{
    return comm_launch().local_size;
}

bool comm_launch_first(void)
{
    struct comm_launch l = comm_launch();
    return l.size < 2 || l.rank <= 0;
}

int comm_local_rank(const struct comm_world *w)
{
    int local = comm_launch().local_rank;
    return w->kind == COMM_MPI && local >= 0 ? local : w->rank; /* threads: one machine */
}
