/* SPDX-License-Identifier: Apache-2.0
 *
 * How ranks that are threads wait: with a core for each they look again and again before they
 * sleep, and with one rank more than cores they go to sleep at once, for a rank that spins keeps
 * the awaited one from running. Elsewhere only the time of a step shows which of them was done;
 * here the looks are counted.
 */
#include "comm/comm.h"

#include "base/cores.h"
#include "comm/host/thread.h"
#include "test.h"

/* What is waited for is there from the second look on. */
static bool at_second_look(const struct comm_want *x)
{
    int *looks = x->a;
    return ++*looks >= 2;
}

static enum err wait_on_rank_0(void *arg, struct comm_world *w)
{
    struct comm_want want = {.a = arg};
    return comm_rank(w) == 0 ? comm_thread_wait(comm_thread_seat(w), &want, at_second_look)
                             : ERR_OK;
}

/* A rank that spins sees at its second look what it waits for. One that goes to sleep has its
 * second look under the lock of the bell, and a third when it is up again. */
static void looks_before_sleep(void)
{
    int cores = cores_usable(), looks = 0;
    CHECK_OK(comm_thread_run(1, 20, wait_on_rank_0, &looks));
    CHECK_INT(looks, 2);
    looks = 0;
    CHECK_OK(comm_thread_run(cores, 20, wait_on_rank_0, &looks));
    CHECK_INT(looks, 2);
    looks = 0;
    CHECK_OK(comm_thread_run(cores + 1, 20, wait_on_rank_0, &looks));
    CHECK_INT(looks, 3);
}

static const struct test_case cases[] = {{"looks_before_sleep", looks_before_sleep}};
TEST_MAIN(cases)
