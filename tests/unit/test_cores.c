/* SPDX-License-Identifier: Apache-2.0
 *
 * The processors to use are those of the affinity mask, not those of the machine.
 */
#include "base/thread.h"
#include "test.h"

#include <sched.h>

static void counts_the_affinity_mask(void)
{
    cpu_set_t all, one;
    int first = 0;
    CPU_ZERO(&one);
    if (!CHECK(sched_getaffinity(0, sizeof all, &all) == 0))
        return;
    CHECK_INT(cores_usable(), CPU_COUNT(&all));
    while (!CPU_ISSET(first, &all))
        first++;
    CPU_SET(first, &one);
    CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
    CHECK_INT(cores_usable(), 1);
    CHECK(sched_setaffinity(0, sizeof all, &all) == 0);
    CHECK_INT(cores_usable(), CPU_COUNT(&all));
}

static const struct test_case cases[] = {{"counts_the_affinity_mask", counts_the_affinity_mask}};
TEST_MAIN(cases)
