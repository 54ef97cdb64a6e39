/* SPDX-License-Identifier: Apache-2.0
 *
 * The affinity mask, not the number of processors of the machine: a container, taskset or mpirun
 * may have given this process only some of them. A mask that cannot be read (more processors than
 * a cpu_set_t has bits) counts as one, so that nobody spins on a processor that is another's.
 */
#include "base/cores.h"

#include <sched.h>

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
