/* SPDX-License-Identifier: Apache-2.0
 *
 * How ranks that are threads wait: with a core for each they look again and again before they
 * sleep, and with one rank more than cores they go to sleep at once, for a rank that spins keeps
 * the awaited one from running. Elsewhere only the time of a step shows which of them was done;
 * here the looks are counted. And what happens between the last look and the sleep wakes, too: here
 * it is made to happen there.
 */
#include "comm/comm.h"

#include "base/thread.h"
#include "base/log.h"
#include "comm/host/thread.h"
#include "test.h"

/* What is waited for is there from the second look on. */
static bool at_second_look(const struct comm_pending_op *x)
{
    int *looks = x->a;
    return ++*looks >= 2;
}

static enum err wait_on_rank_0(void *arg, struct comm_world *w)
{
    struct comm_pending_op pending = {.a = arg};
    return comm_rank(w) == 0 ? comm_thread_wait(comm_thread_endpoint(w), &pending, at_second_look)
                             : ERR_OK;
}

/* A rank that spins sees at its second look what it waits for. One that goes to sleep has its
 * second look under the lock of its wakeup, and a third when it is up again. */
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

/* ---- what comes between the last look and the sleep ---- */

struct last_look {
    bool fails;        /* rank 1 does not end, it fails */
    atomic_bool go;    /* rank 1 may */
    atomic_bool awake; /* rank 0's wait is over */
    bool slept;        /* it had to be woken */
};

static void nap(int ms)
{
    nanosleep(&(struct timespec){0, ms * 1000000L}, NULL);
}

static void wait_for(const atomic_bool *flag, double seconds)
{
    double begin = log_now();
    while (!atomic_load(flag) && log_now() - begin < seconds)
        nap(1);
}

static bool never(const struct comm_pending_op *x)
{
    (void)x;
    return false;
}

/* Asked of rank 2, which has ended, when rank 1 has been looked at: now rank 1's time has come. */
static bool rank_1_goes_now(const struct comm_pending_op *x, int i)
{
    const struct comm_thread_endpoint *e = x->a;
    struct last_look *l = e->job->arg;
    if (i == 0)
        return true;
    atomic_store(&l->go, true);
    for (int n = 0;
         n < 5000 && !atomic_load(&e->job->endpoint[1].exited) &&
         !atomic_load(&e->job->failed); n++)
        nap(1);
    nap(20); /* it has been woken */
    return false;
}

/* Rank 3 wakes rank 0 when it sleeps on. */
static enum err last_look_body(void *arg, struct comm_world *w)
{
    struct last_look *l = arg;
    struct comm_thread_endpoint *e = comm_thread_endpoint(w);
    int ranks[] = {1, 2}, me = comm_rank(w);
    struct comm_pending_op pending = {.missing = rank_1_goes_now, .ranks = ranks, .n = 2, .a = e};
    if (me == 1) {
        wait_for(&l->go, 5);
        if (l->fails)
            FAIL(ERR_DATA, "no more");
    }
    if (me == 3) {
        wait_for(&l->awake, 5);
        l->slept = !atomic_load(&l->awake);
        comm_thread_wake(e->job, 0);
    }
    if (me != 0)
        return ERR_OK;
    wait_for(&e->job->endpoint[2].exited, 5);
    enum err err = comm_thread_wait(e, &pending, never);
    atomic_store(&l->awake, true);
    return err;
}

static void what_comes_after_the_last_look_wakes(void)
{
    struct last_look ends = {0}, fails = {.fails = true};
    CHECK_ERR(comm_thread_run(4, 0, last_look_body, &ends), ERR_PEER, "rank 1 has ended without");
    CHECK(!ends.slept);
    CHECK_ERR(comm_thread_run(4, 0, last_look_body, &fails), ERR_DATA, "rank 1: no more");
    CHECK(!fails.slept);
}

static const struct test_case cases[] = {
    {"looks_before_sleep", looks_before_sleep},
    {"what_comes_after_the_last_look_wakes", what_comes_after_the_last_look_wakes},
};
TEST_MAIN(cases)
