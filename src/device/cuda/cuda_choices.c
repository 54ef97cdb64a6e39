/* SPDX-License-Identifier: Apache-2.0
 *
 * What a run has chosen by measuring, for its checkpoints, and back. GEMMs and attention of
 * cuDNN remember their choices in one table (cuda_algo.h), whose file is the machine's; a
 * checkpoint has those that the run used, so that it goes on with the same kernels where that file
 * is another.
 */
#include "device/cuda/cuda_lt.h"

/* Versions of the libraries that choose. */
static void ask_versions(int64_t version[2])
{
    version[0] = (int64_t)cublasLtGetVersion();
    version[1] = cuda_dnn_version();
}

enum err cuda_choices(struct dev *d, struct text *out)
{
    const struct cuda_lt *lt = cuda_of(d)->lt;
    int64_t version[2];
    ask_versions(version);
    if (lt && lt->algos)
        cuda_algos_print(lt->algos, lt->gpu, version, out);
    return out->err;
}

enum err cuda_choose(struct dev *d, const char *choices, bool *taken)
{
    struct cuda *c = cuda_of(d);
    int64_t version[2];
    ask_versions(version);
    TRY(cuda_lt_open(c));
    *taken = c->lt->algos ? cuda_algos_take(c->lt->algos, c->lt->gpu, version, choices) > 0
                          : !choices[0]; /* deterministic, where nothing is measured */
    return ERR_OK;
}
