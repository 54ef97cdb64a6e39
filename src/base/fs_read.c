/* SPDX-License-Identifier: Apache-2.0
 *
 * Files that are read: regular ones alone, whole as a map or in pieces by calls.
 */
#include "base/fs_sys.h"

#include "base/mem.h"
#include "base/num.h"
#include "base/text.h"
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

enum { CALL_MAX = 1 << 30 };

/* Who speaks when a file cannot be read: whatever it was to be read for. */
static const char *reader(enum err code)
{
    return code == ERR_CONFIG ? "config" : code == ERR_CHECKPOINT ? "ckpt" : "data";
}

/* Opens a regular file of *size bytes. */
static enum err open_regular(const char *path, int flags, enum err code, int *fd, int64_t *size)
{
    char why[FS_REASON];
    struct stat st;
    int opened = fs_sys_open(path, O_RDONLY | O_NONBLOCK | flags);
    if (opened < 0 && errno == ELOOP && flags)
        FAIL(code, "%s: cannot read %s: it is a symbolic link, which a name out of a file may not "
                   "be; put the file itself there", reader(code), path);
    int missing = errno;
    if (opened < 0 && fs_leads_nowhere(path))
        FAIL(code, "%s: cannot read %s: it is a link that leads nowhere; remove it, or make what "
                   "it names", reader(code), path);
    if (opened < 0)
        FAIL(code, "%s: cannot read %s: %s", reader(code), path, fs_reason(missing, why));
    bool known = fs_sys_fstat(opened, path, &st) == 0;
    int failed = errno;
    if (known && S_ISREG(st.st_mode)) {
        *fd = opened;
        *size = (int64_t)st.st_size;
        return ERR_OK;
    }
    (void)fs_sys_close(opened, path);
    if (!known)
        FAIL(code, "%s: cannot read %s: %s", reader(code), path, fs_reason(failed, why));
    FAIL(code, "%s: cannot read %s: it is %s, not a regular file", reader(code), path,
         S_ISDIR(st.st_mode) ? "a folder" : "a device, pipe or socket");
}

static enum err map_open(struct fs_map *m, const char *path, int flags, enum err code)
{
    char why[FS_REASON];
    void *p = NULL;
    int fd;
    int64_t size;
    TRY(open_regular(path, flags, code, &fd, &size));
    if (size > 0)
        p = fs_sys_map(fd, path, size);
    int failed = errno;
    (void)fs_sys_close(fd, path);
    if (p == MAP_FAILED)
        FAIL(code, "%s: cannot read %s: %s", reader(code), path, fs_reason(failed, why));
    *m = (struct fs_map){.data = p, .size = size};
    return ERR_OK;
}

enum err fs_map_open(struct fs_map *m, const char *path, enum err code)
{
    return map_open(m, path, 0, code);
}

enum err fs_map_open_in(struct fs_map *m, const char *dir, const char *name, enum err code)
{
    static const char legal[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    char path[FS_PATH];
    size_t n = strspn(name, legal);
    if (n == 0 || name[n] || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        FAIL(code, "%s: a file named in %s has a name that is empty, . or .., or not of a-z A-Z "
                   "0-9 . _ - alone; only files of the folder itself are read", reader(code), dir);
    return map_open(m, fs_path(path, dir, name), O_NOFOLLOW, code);
}

void fs_map_close(struct fs_map *m)
{
    if (m->data)
        munmap((void *)(uintptr_t)m->data, (size_t)m->size);
    *m = (struct fs_map){0};
}

enum err fs_reader_open(struct fs_reader *r, const char *path, enum err code)
{
    struct fs_reader made = {.open = true, .code = code};
    TRY(mem_string(path, &made.path));
    enum err err = open_regular(path, 0, code, &made.fd, &made.size);
    if (err == ERR_OK)
        *r = made;
    else
        mem_free(made.path);
    return err;
}

enum err fs_reader_get(const struct fs_reader *r, int64_t at, int64_t n, void *p)
{
    char why[FS_REASON], *to = p;
    ENSURE(r->open && at >= 0 && n >= 0);
    while (n > 0) {
        int64_t got = fs_sys_pread(r->fd, r->path, to, num_min(n, CALL_MAX), at);
        if (got < 0)
            FAIL(r->code, "%s: cannot read %s: %s", reader(r->code), r->path,
                 fs_reason(errno, why));
        if (got == 0)
            FAIL(r->code,
                 "%s: cannot read byte %lld of %s: it had %lld byte%s when it was opened and ends "
                 "before that now; put it back whole and start again", reader(r->code),
                 (long long)at, r->path, (long long)r->size, text_plural(r->size, "s"));
        to += got;
        at += got;
        n -= got;
    }
    return ERR_OK;
}

void fs_reader_close(struct fs_reader *r)
{
    if (r->open)
        (void)fs_sys_close(r->fd, r->path);
    mem_free(r->path);
    *r = (struct fs_reader){0};
}
