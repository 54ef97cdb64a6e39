/* SPDX-License-Identifier: Apache-2.0
 *
 * Handlers only set a word of the library (plait_stop), or remove temporary files and end the
 * process. SIGHUP that was ignored at the start stays so: that is how nohup asks. SIGXCPU comes
 * again every second until the hard limit, so a second one is no wish of anybody's. Interrupted
 * calls are restarted; waits of ranks look at the clock by themselves.
 */
#include "cmd.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

static const int ends[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGXCPU};

static atomic_bool finishes; /* the verb ends well by itself when it is asked to */
static atomic_int asked;
static atomic_bool seen;     /* somebody reads standard error */

static atomic_bool searches; /* all is saved, and it looks for what is not finite */

static void say(const char *words, size_t n)
{
    if (atomic_load(&seen))
        (void)!write(STDERR_FILENO, words, n);
}

static void on_signal(int n)
{
    static const char stops[] =
        "\nplait: stops behind this step and saves; a second signal ends it at once\n";
    static const char ends_search[] =
        "\nplait: ends the search; a second signal ends the process at once\n";
    int kept = errno;
    bool first = atomic_fetch_add(&asked, 1) == 0;
    if (!atomic_load(&finishes) || !(first || n == SIGXCPU)) {
        plait_abandon();
        _exit(128 + n);
    }
    plait_stop(n);
    if (first && atomic_load(&searches))
        say(ends_search, sizeof ends_search - 1);
    else if (first)
        say(stops, sizeof stops - 1);
    errno = kept;
}

static void on_save(int n)
{
    (void)n;
    plait_save();
}

static void handle(int n, void (*how)(int))
{
    struct sigaction a = {.sa_handler = how, .sa_flags = SA_RESTART}, was;
    bool ignored = sigaction(n, NULL, &was) == 0 && was.sa_handler == SIG_IGN;
    sigemptyset(&a.sa_mask);
    if (n != SIGHUP || !ignored)
        (void)sigaction(n, &a, NULL); /* these numbers can all be handled */
}

void cmd_signals_open(void)
{
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        handle(ends[i], on_signal);
    handle(SIGXFSZ, SIG_IGN);
}

void cmd_signals_search(void)
{
    atomic_store(&searches, true);
}

void cmd_signals_finish(void)
{
    atomic_store(&seen, isatty(STDERR_FILENO) == 1);
    atomic_store(&finishes, true);
    handle(SIGUSR1, on_save);
    handle(SIGPIPE, SIG_IGN);
}
