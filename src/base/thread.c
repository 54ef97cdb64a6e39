/* SPDX-License-Identifier: Apache-2.0
 *
 * A thread inherits the mask of signals that its maker has in that moment.
 */
#include "base/thread.h"

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
