/* SPDX-License-Identifier: Apache-2.0
 *
 * A thread inherits the mask of signals that its maker has in that moment. Processors are counted
 * by the affinity mask, not the machine's number of them: a container, taskset or mpirun may have
 * given this process only some. A mask that cannot be read (more processors than a cpu_set_t has
 * bits) counts as one, so that nobody spins on a processor that is another's.
 */
#include "base/thread.h"

#include <sched.h>
#include <signal.h>
#include <string.h>

enum err thread_start(pthread_t *out, void *(*body)(void *arg), void *arg, const char *what)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(out, NULL, body, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc != 0)
        FAIL(ERR_MEMORY, "no thread to %s: %s", what, strerror(rc));
    return ERR_OK;
}

static int cores_of(pid_t process)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(process, sizeof set, &set) != 0)
        return 1;
    int n = CPU_COUNT(&set);
    return n > 0 ? n : 1;
}

int cores_usable(void)
{
    return cores_of(0);
}

int cores_of_machine(void)
{
    int all = cores_of(1), mine = cores_of(0);
    return all > mine ? all : mine;
}
