/* SPDX-License-Identifier: Apache-2.0
 *
 * A word that a signal handler may set. Ranks look at it once a step, when they bring the step's
 * numbers to the device, and tell each other with the sums that they add up anyway (optim.h); so
 * all of them stop behind the same step, whichever of them was told, and a step costs no more.
 */
#include "run/stop.h"

#include "base/fs.h"
#include "plait.h"

#include <signal.h>
#include <stdatomic.h>

static atomic_int asked;
_Static_assert(ATOMIC_INT_LOCK_FREE == 2, "a handler may set it");

void plait_stop(int why)
{
    atomic_store(&asked, why > 0 ? why : 0);
}

void plait_abandon(void)
{
    fs_abandon_all();
}

int stop_asked(void)
{
    return atomic_load(&asked);
}

const char *stop_name(int why)
{
    static const struct { int number; const char *name; } known[] = {
        {SIGINT, "SIGINT"}, {SIGTERM, "SIGTERM"}, {SIGHUP, "SIGHUP"}, {SIGUSR1, "SIGUSR1"},
        {SIGUSR2, "SIGUSR2"}, {SIGXCPU, "SIGXCPU"}, {SIGQUIT, "SIGQUIT"}, {SIGALRM, "SIGALRM"},
    };
    for (int i = 0; i < (int)(sizeof known / sizeof *known); i++)
        if (known[i].number == why)
            return known[i].name;
    return "a request";
}
