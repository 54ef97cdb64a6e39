/* SPDX-License-Identifier: Apache-2.0
 *
 * What a verb prints to standard output counts only when it arrived there, so a full disk behind a
 * redirection is an error and not an empty file and exit code 0. A stream that was closed by
 * whoever started the program was not wanted, and is none.
 */
#include "cmd_streams.h"

#include "cmd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void cmd_streams_open(void)
{
    int fd;
    do
        fd = open("/dev/null", O_RDWR); /* the lowest number that is free */
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd > STDERR_FILENO)
        close(fd);
}

int cmd_streams_end(int code)
{
    errno = 0;
    bool lost = fflush(stdout) != 0 || ferror(stdout);
    if (!lost || code != PLAIT_OK)
        return code;
    if (errno)
        fprintf(stderr, "plait: standard output cannot be written: %s\n", strerror(errno));
    else
        fprintf(stderr, "plait: standard output could not be written, and a part of it is lost\n");
    return PLAIT_STORAGE;
}
