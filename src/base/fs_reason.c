/* SPDX-License-Identifier: Apache-2.0
 *
 * What the system says of a call that failed, and what its user may do then.
 */
#include "base/fs.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

const char *fs_reason(int code, char buf[FS_REASON])
{
    static const struct { int code; const char *way; } ways[] = {
        {ENOSPC, "free some space or use another folder"},
        {EDQUOT, "free some space or use another folder"},
        {EACCES, "check the permissions"}, {EPERM, "check the permissions"},
        {EROFS, "mount it for writing or use another folder"}, {ENOENT, "check the path"},
        {ENOTDIR, "a part of the path is a file; name another"},
        {EISDIR, "name a file"}, {EEXIST, "use another name"},
        {ELOOP, "a link in the path leads back to itself; remove it"},
        {ENAMETOOLONG, "use a shorter one"},
        {EFBIG, "raise the limit on files (ulimit -f) or use another file system"},
        {EMFILE, "raise the limit on open files (ulimit -n)"},
        {ENFILE, "the machine has its most open files; close some programs"},
        {EIO, "the disk or the way to it fails; use another folder"},
        {ESTALE, "the server no longer knows it; mount it again"},
        {ENOTCONN, "mount it again"}, {EHOSTDOWN, "wait for the server or use another folder"},
        {ETIMEDOUT, "wait for the server or use another folder"},
        {ENXIO, "name a regular file"}, {ENODEV, "name a regular file"},
        {EBUSY, "end what uses it or use another name"},
        {ETXTBSY, "end the program that runs from it"},
        {EINVAL, "this file system may not know the call; use another"},
        {EOPNOTSUPP, "this file system does not know the call; use another"},
        {ENOSYS, "this system does not know the call; use another file system"},
        {EXDEV, "use a folder on one file system"}, {EMLINK, "use another folder"},
        {ENOMEM, "end other programs or use a machine with more memory"}};
    char made[96];
    const char *s = code == 0 ? "the system gives no reason" : strerror_r(code, made, sizeof made);
    const char *way = NULL;
    for (size_t i = 0; i < sizeof ways / sizeof *ways && !way; i++)
        way = ways[i].code == code ? ways[i].way : NULL;
    snprintf(buf, FS_REASON, "%s%s%s", s, way ? "; " : "", way ? way : "");
    if (buf[0] >= 'A' && buf[0] <= 'Z')
        buf[0] = (char)(buf[0] - 'A' + 'a');
    return buf;
}
