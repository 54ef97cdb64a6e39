/* SPDX-License-Identifier: Apache-2.0
 *
 * A folder that somebody names to be read. What is no folder, or not one of a run or a model, is
 * said as it is found there, with the folder that may be meant where one lies above, in it or
 * beside it.
 */
#include "folder/folder.h"

#include "base/fs_sys.h"
#include "base/mem.h"
#include <errno.h>
#include <string.h>

struct find {
    const char *who, *dir; /* borrowed; who reads it, what was named */
    bool models;           /* is a model's folder good, too? */
};

/* 0 or errno; a link that leads nowhere is there. */
static int look_in(const char *dir, const char *name)
{
    struct stat st;
    char *path;
    if (fs_join(dir, name, &path) != ERR_OK)
        return ENOMEM;
    int code = fs_sys_lstat(path, &st) == 0 ? 0 : errno;
    mem_free(path);
    return code;
}

static bool is_one(const struct find *f, const char *dir)
{
    return look_in(dir, "config.yaml") == 0 || (f->models && look_in(dir, "config.json") == 0);
}

/* ---- what may be meant ---- */

/* The path without its last part: "." for a name alone. */
static void cut_last(char *path)
{
    for (size_t n = strlen(path); n > 1 && path[n - 1] == '/'; n--)
        path[n - 1] = '\0';
    char *slash = strrchr(path, '/');
    while (slash > path && slash[-1] == '/')
        slash--;
    if (slash)
        slash[slash == path] = '\0';
    else
        memcpy(path, ".", 2); /* a path without a slash has a byte and its end */
}

static const char *only(const void *arg, int i)
{
    (void)i;
    return arg;
}

/* The first by name of the folders there that may be read; like: of those with a name like it
 * alone. NULL: none. (mem_free) */
static char *find_child(const struct find *f, const char *dir, const char *like)
{
    char *first = NULL, *child, *drop;
    struct fs_folder d;
    (void)fs_folder_open(&d, dir);
    for (const char *name; (name = fs_folder_next(&d));) {
        if (name[0] == '.' || (like && !text_nearest(like, 1, only, name)) ||
            fs_join(dir, name, &child) != ERR_OK)
            continue;
        bool better = (!first || strcmp(child, first) < 0) && is_one(f, child);
        drop = better ? first : child;
        first = better ? child : first;
        mem_free(drop);
    }
    fs_folder_close(&d);
    return first;
}

/* around: a folder that is there, what was named where `like` is NULL;
 * else that has the name `like`, or none, and is not in it. */
static void propose(const struct find *f, const char *around, const char *like, struct text *out)
{
    char *child = find_child(f, around, like), *above = NULL;
    const char *meant = child;
    if (!child && !is_one(f, around) && !like && mem_string(around, &above) == ERR_OK)
        cut_last(above);
    if (!child && is_one(f, above ? above : around))
        meant = above ? above : around;
    if (meant && strncmp(meant, "./", 2) == 0 && strncmp(f->dir, "./", 2) != 0)
        meant += 2;
    text_add(out, "; %s%s", meant ? "did you mean " : "name the folder of a run",
             meant ? meant : f->models ? " or a model" : "");
    mem_free(child);
    mem_free(above);
}

/* ---- what is there ---- */

/* There is no such folder; part: what of its path is there, by its lstat, and may be all. */
static void say_part(const struct find *f, char *part, const struct stat *link, struct text *out)
{
    const char *slash = strrchr(f->dir, '/');
    struct stat st;
    char why[FS_REASON];
    int code = fs_sys_stat(part, &st) == 0 ? 0 : errno;
    bool led = S_ISLNK(link->st_mode);
    if (led && code == ENOENT) {
        text_add(out, "%s is a link that leads nowhere; remove it, or make what it names", part);
    } else if (led && code == ELOOP) {
        text_add(out, "%s is a link that leads back to itself; remove it", part);
    } else if (code) {
        text_add(out, "%s cannot be read: %s", part, fs_reason(code, why));
    } else if (S_ISDIR(st.st_mode)) {
        text_add(out, "there is no folder %s", f->dir);
        propose(f, part, slash ? slash + 1 : f->dir, out);
    } else {
        text_add(out, "%s is a %s, not a folder", part,
                 S_ISREG(st.st_mode) ? "file" : "device, pipe or socket");
        cut_last(part);
        propose(f, part, "", out);
    }
}

/* The folder can be looked into, and has no file that would make it one. */
static void say_content(const struct find *f, struct fs_folder *d, struct text *out)
{
    if (!fs_folder_next(d))
        text_add(out, "%s is empty", f->dir);
    else if (look_in(f->dir, "config.json") == 0)
        text_add(out, "%s is the folder of a model, which has config.json, and no run's, which has "
                      "config.yaml", f->dir);
    else
        text_add(out, f->models ? "%s has neither config.yaml, as a run has, nor config.json, as "
                                  "transformers saves" : "%s has no config.yaml, as a run has",
                 f->dir);
    propose(f, f->dir, NULL, out);
}

/* The folder is there, without a file that would make it one. */
static void say_folder(const struct find *f, struct text *out)
{
    char why[FS_REASON];
    int code = look_in(f->dir, "config.yaml");
    struct fs_folder d = {.open = NULL};
    if (code == ENOENT && !fs_folder_open(&d, f->dir))
        code = errno;
    if (d.open)
        say_content(f, &d, out);
    else
        text_add(out, "%s cannot be read: %s", f->dir, fs_reason(code, why));
    fs_folder_close(&d);
}

enum err folder_find(const char *who, const char *dir, bool models)
{
    struct find f = {who, dir, models};
    struct stat st = {.st_mode = 0}, led;
    struct text what = {0};
    char *part;
    if (!dir || !dir[0])
        FAIL(ERR_CONFIG, "%s: no folder is named; name the folder of a run%s", who,
             models ? " or a model" : "");
    if (is_one(&f, dir))
        return ERR_OK;
    if (look_in(dir, "plait.lock") == 0)
        return folder_lacks(models ? ERR_CHECKPOINT : ERR_DATA, who, models ? "weights" : "trace",
                            dir, NULL);
    TRY(mem_string(dir, &part));
    while (fs_sys_lstat(part, &st) != 0 &&
           (errno == ENOENT || errno == ENOTDIR || errno == ELOOP))
        cut_last(part);
    if (strcmp(part, dir) == 0 && fs_sys_stat(part, &led) == 0 && S_ISDIR(led.st_mode))
        say_folder(&f, &what);
    else
        say_part(&f, part, &st, &what);
    enum err err = what.err;
    if (err == ERR_OK)
        err = err_set(ERR_CONFIG, __FILE__, __LINE__, "%s: %s", who, what.s);
    mem_free(part);
    text_free(&what);
    return err;
}
