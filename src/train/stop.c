/* SPDX-License-Identifier: Apache-2.0
 *
 * A word that a signal handler may set. Ranks look at it once a step, when they bring the step's
 * numbers to the device, and tell each other with the sums that they add up anyway (optim.h); so
 * all of them stop behind the same step, whichever of them was told, and a step costs no more.
 */
#include "train/stop.h"

#include "base/fs.h"
#include "base/num.h"
#include "plait.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

static atomic_int asked, saves;
_Static_assert(ATOMIC_INT_LOCK_FREE == 2, "a handler may set it");

void plait_stop(int why)
{
    atomic_store(&asked, why > 0 ? why : 0);
}

void plait_save(void)
{
    atomic_fetch_add(&saves, 1);
}

int stop_saves(void)
{
    return atomic_load(&saves);
}

/* A line that a handler may write. */
static struct { atomic_int state; int n; char line[2048]; } pending;
enum { NONE, TAKEN, THERE };

void stop_pending(const char *error)
{
    int was = NONE;
    if (!error) {
        atomic_store(&pending.state, NONE);
    } else if (atomic_compare_exchange_strong(&pending.state, &was, TAKEN)) {
        pending.n = snprintf(pending.line, sizeof pending.line - 1, "\nplait: %s", error);
        pending.n = (int)num_min(pending.n, (int64_t)sizeof pending.line - 2);
        pending.line[pending.n++] = '\n';
        atomic_store(&pending.state, THERE);
    }
}

void plait_abandon(void)
{
    fs_abandon_all();
    if (atomic_load(&pending.state) == THERE)
        (void)!write(STDERR_FILENO, pending.line, (size_t)pending.n);
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
