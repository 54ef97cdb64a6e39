/* SPDX-License-Identifier: Apache-2.0
 *
 * A folder that somebody names to be read. What is no folder, or not one of a run or a model, is
 * said as it is found there, with the folder that may be meant where one lies above, in it or
 * beside it. Why something that a run leaves is missing, only the lock says, while the run lives or
 * when it died, and the lines of metrics.jsonl, which say how far it came.
 */
#include "folder/folder.h"

#include "base/fs_sys.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- what a run has not left ---- */

enum err folder_lacks(enum err code, const char *who, const char *what, const char *dir,
                      const struct options *o)
{
    struct text why = {0};
    struct fs_lock_found found;
    struct folder_owner w;
    struct fs_map m = {0};
    char path[FS_PATH], owner[FOLDER_OWNER], done[80] = "before the end of its first step";
    fs_lock_look(folder_file(path, dir, FOLDER_LOCK), &found);
    enum folder_life life = folder_life(&found, &w);
    const char *run = w.pid ? folder_owner_words(&w, owner) : "its run", *comma = w.pid ? "," : "";
    bool is = fs_map_open(&m, folder_file(path, dir, FOLDER_METRICS), ERR_CHECKPOINT) == ERR_OK;
    const char *at = (const char *)m.data, *end = at + m.size;
    int64_t step = is ? 0 : -1; /* the last that a whole line of metrics is of */
    for (struct metrics_line l; is && metrics_next(&at, end, &l);)
        step = l.step > 0 ? l.step : step;
    fs_map_close(&m);
    if (step > 0 && o)
        snprintf(done, sizeof done, "behind step %lld of %lld", (long long)step,
                 (long long)o->train.steps);
    else if (step > 0)
        snprintf(done, sizeof done, "behind step %lld", (long long)step);
    if (life == FOLDER_LIVES)
        text_add(&why, "%s%s is under way there, %s%s", run, comma, done,
                 o ? ", and saves them at its end" : "; wait for its end");
    else if (life == FOLDER_UNSEEN)
        text_add(&why, "%s%s is under way %s, or died there, which cannot be seen from this host; "
                       "wait for its end, or use another run", run, comma, done);
    else if (life != FOLDER_FREE)
        text_add(&why, "%s%s died %s; use another run", run, comma, done);
    else if (step < 0)
        text_add(&why, "and no metrics.jsonl of a run either; name the folder that the run wrote");
    else if (!o || step < o->train.steps)
        text_add(&why, "its run ended %s and saved none: an error or a second signal ended it; use "
                       "another run", done);
    else
        text_add(&why, "its run did all %lld steps; saving failed, or they have been moved away; "
                       "use another run", (long long)step);
    enum err err = why.err;
    if (err == ERR_OK)
        err = err_set(code, __FILE__, __LINE__, "%s: %s has no %s: %s", who, dir, what, why.s);
    text_free(&why);
    return err;
}

/* ---- what may be meant ---- */

struct find {
    const char *who, *dir; /* borrowed; who reads it, what was named */
    bool models;           /* is a model's folder good, too? */
};

static bool has(const char *dir, enum folder_file i)
{
    char path[FS_PATH];
    return fs_named(folder_file(path, dir, i));
}

static bool is_one(const struct find *f, const char *dir)
{
    return has(dir, FOLDER_YAML) || (f->models && has(dir, FOLDER_JSON));
}

/* The first by name of the folders there that may be read; like: of those with a name like it
 * alone. False: none. */
static bool find_child(const struct find *f, const char *dir, const char *like, char out[FS_PATH])
{
    char child[FS_PATH];
    bool found = false;
    struct fs_folder d;
    (void)fs_folder_open(&d, dir);
    for (const char *name; (name = fs_folder_next(&d));) {
        struct text_near near = {0};
        if (like)
            text_near(&near, like, name);
        if (name[0] == '.' || (like && !near.found) || !is_one(f, fs_path(child, dir, name)) ||
            (found && strcmp(child, out) >= 0))
            continue;
        found = true;
        memcpy(out, child, sizeof child);
    }
    fs_folder_close(&d);
    return found;
}

/* around: a folder that is there, what was named where `like` is NULL;
 * else that has the name `like`, or none, and is not in it. */
static void propose(const struct find *f, const char *around, const char *like, struct text *out)
{
    char near[FS_PATH];
    const char *meant = near;
    if (!find_child(f, around, like, near)) {
        snprintf(near, sizeof near, "%s", around);
        if (!is_one(f, around) && !like)
            folder_above(near);
        meant = is_one(f, near) ? near : NULL;
    }
    if (meant && strncmp(meant, "./", 2) == 0 && strncmp(f->dir, "./", 2) != 0)
        meant += 2;
    text_add(out, "; %s%s", meant ? "did you mean " : "name the folder of a run",
             meant ? meant : f->models ? " or a model" : "");
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
        folder_above(part);
        propose(f, part, "", out);
    }
}

/* The folder is there, without a file that would make it one. */
static void say_folder(const struct find *f, struct text *out)
{
    char why[FS_REASON], path[FS_PATH];
    struct stat st;
    struct fs_folder d = {.open = NULL};
    int code = fs_sys_lstat(folder_file(path, f->dir, FOLDER_YAML), &st) == 0 ? 0 : errno;
    if (code == ENOENT && !fs_folder_open(&d, f->dir))
        code = errno;
    if (!d.open)
        text_add(out, "%s cannot be read: %s", f->dir, fs_reason(code, why));
    else if (!fs_folder_next(&d))
        text_add(out, "%s is empty", f->dir);
    else if (has(f->dir, FOLDER_JSON))
        text_add(out, "%s is the folder of a model, which has config.json, and no run's, which has "
                      "config.yaml", f->dir);
    else
        text_add(out, f->models ? "%s has neither config.yaml, as a run has, nor config.json, as "
                                  "transformers saves" : "%s has no config.yaml, as a run has",
                 f->dir);
    if (d.open)
        propose(f, f->dir, NULL, out);
    fs_folder_close(&d);
}

enum err folder_find(const char *who, const char *dir, bool models)
{
    struct find f = {who, dir, models};
    struct stat st = {.st_mode = 0}, led;
    struct text what = {0};
    char part[FS_PATH];
    if (!dir || !dir[0])
        FAIL(ERR_CONFIG, "%s: no folder is named; name the folder of a run%s", who,
             models ? " or a model" : "");
    if (is_one(&f, dir))
        return ERR_OK;
    if (has(dir, FOLDER_LOCK))
        return folder_lacks(models ? ERR_CHECKPOINT : ERR_DATA, who, models ? "weights" : "trace",
                            dir, NULL);
    snprintf(part, sizeof part, "%s", dir);
    while (fs_sys_lstat(part, &st) != 0 &&
           (errno == ENOENT || errno == ENOTDIR || errno == ELOOP))
        folder_above(part);
    if (strcmp(part, dir) == 0 && fs_sys_stat(part, &led) == 0 && S_ISDIR(led.st_mode))
        say_folder(&f, &what);
    else
        say_part(&f, part, &st, &what);
    enum err err = what.err;
    if (err == ERR_OK)
        err = err_set(ERR_CONFIG, __FILE__, __LINE__, "%s: %s", who, what.s);
    text_free(&what);
    return err;
}
