/* SPDX-License-Identifier: Apache-2.0
 *
 * What has been written is to be on the disk, by whomever it was written: on Linux fsync flushes
 * the file, whichever descriptor it is called with.
 */
#include "base/fs.h"

#include <errno.h>
#include <fcntl.h>

/* File systems that cannot flush a folder say EINVAL; there is nothing more to be done on them. */
static int flush(const char *path)
{
    int fd, done;
    do
        fd = fs_ops->open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC, 0);
    while (fd < 0 && errno == EINTR);
    if (fd < 0)
        return -1;
    do
        done = fs_ops->fsync(fd);
    while (done < 0 && errno == EINTR);
    int code = errno;
    (void)fs_ops->close(fd);
    errno = code;
    return done != 0 && code != EINVAL ? -1 : 0;
}

enum err fs_flush(const char *path)
{
    char why[FS_REASON];
    fs_call_begin(path);
    int done = flush(path), code = errno;
    fs_call_end();
    if (done != 0)
        FAIL(ERR_STORAGE, "storage: cannot flush %s: %s", path, fs_reason(code, why));
    return ERR_OK;
}
