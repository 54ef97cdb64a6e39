/* SPDX-License-Identifier: Apache-2.0
 *
 * The roof of the folder: the one file that knows which transports there are, and the error
 * where one is not built in. Ranks as threads (host/thread.c) are always there.
 */
#include "comm/comm.h"

#include "comm/core/core.h"
#include "device/device.h"
#include <stdlib.h>

/* NULL: not built in. */
static const struct {
    const struct comm_processes *processes;
    const struct comm_gpus *gpus;
} transports = {
#ifdef PLAIT_HAVE_MPI
    .processes = &comm_mpi_transport,
#else
    .processes = NULL,
#endif
#ifdef PLAIT_HAVE_NCCL
    .gpus = &comm_gpu_transport,
#else
    .gpus = NULL,
#endif
};

bool comm_built(enum comm_kind k)
{
    return k == COMM_THREAD || (k == COMM_MPI && transports.processes);
}

bool comm_nccl_built(void)
{
    return transports.gpus;
}

enum err comm_nccl_fits(void)
{
    return transports.gpus ? transports.gpus->fits() : ERR_OK;
}

bool comm_gpus_reach(const int *gpu, int n)
{
    return !transports.gpus || transports.gpus->reach(gpu, n);
}

enum err comm_mpi_run(const char *what, double timeout_s,
                      enum err (*body)(void *arg, struct comm_world *w), void *arg)
{
    if (!transports.processes)
        FAIL(ERR_CONFIG, "comm: transport mpi is not built in; build where Open MPI is found, or "
                         "use thread");
    return transports.processes->run(what, timeout_s, body, arg);
}

enum err comm_report_error(enum err code, const char *text, void (*print)(const char *text))
{
    if (transports.processes)
        return transports.processes->report_error(code, text, print);
    if (code != ERR_OK)
        print(text);
    return code;
}

void comm_environment(void)
{
    /* Streams that wait for peers must not share a hardware queue with each other. */
    (void)setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    /* One algorithm: it connects once, and adds in the same order in every run. */
    (void)setenv("NCCL_ALGO", "Ring", 0);
    /* Registering the buffers of captured operations would have ranks wait for each other while
     * they capture, each in its own order. */
    (void)setenv("NCCL_GRAPH_REGISTER", "0", 0);
}

enum err comm_attach(struct comm_world *w, struct dev *d, bool copies)
{
    if (!d->async)
        return ERR_OK;
    w->copies = copies;
    if (w->size > 1 && !transports.gpus)
        FAIL(ERR_CONFIG, "comm: %d ranks on GPUs need NCCL, which is not built in; build plait "
                         "where nccl.h and libnccl are installed, or use one rank", w->size);
    if (w->size > 1)
        TRY(transports.gpus->open(w, d));
    w->dev = d;
    return ERR_OK;
}
