/* SPDX-License-Identifier: Apache-2.0
 *
 * What a stream of the child says is read from an unlinked file.
 */
#include "program.h"

#include "test.h"
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* A stream of the child goes to an unlinked file, so that no pipe can fill up. */
static int capture_file(void)
{
    char name[] = "stream.XXXXXX";
    int fd = mkstemp(name);
    CHECK(fd >= 0 && unlink(name) == 0);
    return fd;
}

static void read_back(int fd, char buf[PROGRAM_CAPTURE])
{
    ssize_t n = pread(fd, buf, PROGRAM_CAPTURE - 1, 0);
    buf[n > 0 ? n : 0] = '\0';
    close(fd);
}

void program_run(struct outcome *o, const char *out, const char *const *words)
{
    char *argv[24] = {0}, program[] = PLAIT_PROGRAM;
    int fd_out = out ? open(out, O_WRONLY) : capture_file(), fd_err = capture_file(), status = 0;
    argv[0] = program;
    for (int i = 0; words[i] && i < 22; i++)
        argv[i + 1] = (char *)(uintptr_t)words[i];
    pid_t child = fork();
    if (child == 0) {
        dup2(fd_out, STDOUT_FILENO);
        dup2(fd_err, STDERR_FILENO);
        execv(program, argv);
        _exit(127);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    o->code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    o->out[0] = '\0';
    if (out)
        close(fd_out);
    else
        read_back(fd_out, o->out);
    read_back(fd_err, o->err);
}
