/* SPDX-License-Identifier: Apache-2.0
 *
 * A dead run is known by the lock that it left, and by nothing else. What a start makes before its
 * first step is in the lock before it is in the folder, with hashes of the descriptions; the log
 * has to begin with its pid, the metrics have to be empty, and traces of one step at most: ranks
 * that do not report may begin theirs before that record is made. Half-written files have the dead
 * owner's pid in their names (it alone writes such files, under MPI too).
 */
#include "folder/folder.h"

#include "base/fs_sys.h"
#include "base/log.h"
#include "folder/files.h"
#include "folder/record.h"
#include "folder/trace.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>
#include <xxhash.h>

/* ---- the record of a start ---- */

unsigned long long start_hash(const void *p, int64_t n)
{
    return XXH3_64bits(p, (size_t)n) | 1; /* 0: no file was made */
}

enum err start_write(const struct fs_lock *l, const struct text words[FOLDER_LOG], bool kept,
                     struct folder_start *out)
{
    char line[80];
    *out = (struct folder_start){.pid = (long)getpid(), .made = true};
    for (enum folder_file i = kept ? FOLDER_JSON : FOLDER_YAML; i < FOLDER_LOG; i++)
        out->hash[i] = start_hash(words[i].s, words[i].len);
    int n = snprintf(line, sizeof line, "starts %016llx %016llx %016llx\n", out->hash[FOLDER_YAML],
                     out->hash[FOLDER_JSON], out->hash[FOLDER_RECORD]);
    return fs_append(l->fd, l->path, line, n);
}

struct folder_start start_read(const struct fs_lock_found *found)
{
    struct folder_start s = {.pid = 0};
    struct folder_owner w;
    const char *at = strstr(found->words, "\nstarts ");
    enum folder_life life = folder_life(found, &w);
    if (life != FOLDER_DIED && life != FOLDER_UNSEEN)
        return s;
    s.pid = w.pid;
    s.made = at && sscanf(at, "\nstarts %16llx %16llx %16llx", &s.hash[FOLDER_YAML],
                          &s.hash[FOLDER_JSON], &s.hash[FOLDER_RECORD]) == 3;
    return s;
}

/* ---- what of a folder is its ---- */

/* Lines of a log alone, each behind its date, and the first of them of that start; or none yet. */
static bool is_log(const struct fs_map *m, long pid)
{
    char first[64];
    int n = snprintf(first, sizeof first, FOLDER_LOG_BEGINS, pid);
    const char *at = (const char *)m->data, *end = at + m->size, *next = at;
    bool its = m->size == 0 ||
               (m->size > LOG_TIME + n && memcmp(at + LOG_TIME, first, (size_t)n) == 0);
    for (; its && at < end; at = next + 1) {
        next = memchr(at, '\n', (size_t)(end - at));
        its = next && next - at > LOG_TIME && at[LOG_TIME - 1] == ' ' && at[LOG_TIME - 2] == 'Z' &&
              strspn(at, "0123456789-T:") == LOG_TIME - 2;
    }
    return its;
}

/* Of a file of a rank's trace: it has no step, one at most, or more; or it is none. One that goes
 * meanwhile has none. */
enum steps { NO_STEP, ONE_STEP, MORE_STEPS, NO_TRACE };
static enum steps steps_of(const char *path)
{
    struct trace_head head = {.instrs = 0};
    struct stat st;
    struct fs_map m;
    bool file = fs_sys_lstat(path, &st) == 0 && S_ISREG(st.st_mode);
    if (!file || fs_map_open(&m, path, ERR_DATA) != ERR_OK)
        return fs_named(path) ? NO_TRACE : NO_STEP;
    int64_t body = m.size - (int64_t)sizeof head;
    bool whole = body >= 0 && memcmp(m.data, "plaittrc", 8) == 0, empty = m.size == 0;
    if (whole)
        memcpy(&head, m.data, sizeof head);
    fs_map_close(&m);
    if (!whole)
        return empty ? NO_STEP : NO_TRACE;
    int64_t record = (1 + 3 * num_min(head.instrs, INT32_MAX)) * (int64_t)sizeof(double);
    return body == 0 ? NO_STEP : body <= record ? ONE_STEP : MORE_STEPS;
}

/* What the files of a folder of traces have, as bits 1 << steps. drop: those of a step at most go,
 * and it, where nothing else is in it. */
static int steps_in(const char *dir, bool drop)
{
    struct fs_folder d;
    char path[FS_PATH];
    int all = fs_folder_open(&d, dir) ? 0 : 1 << NO_TRACE;
    for (const char *name; (name = fs_folder_next(&d));) {
        size_t digits = strspn(name, "0123456789");
        bool named = digits > 0 && strcmp(name + digits, ".trace") == 0;
        enum steps steps = steps_of(fs_path(path, dir, name));
        all |= 1 << steps | (named ? 0 : 1 << NO_TRACE);
        if (drop && named && steps <= ONE_STEP)
            (void)fs_sys_unlink(path);
    }
    fs_folder_close(&d);
    if (drop)
        (void)fs_sys_rmdir(dir);
    return all;
}

bool start_traced(const char *dir)
{
    return steps_in(dir, false) & (1 << ONE_STEP | 1 << MORE_STEPS);
}

bool start_made(const struct folder_start *s, enum folder_file i, const char *path)
{
    struct stat st;
    struct fs_map m;
    if (i == FOLDER_TRACE)
        return fs_sys_lstat(path, &st) == 0 && S_ISDIR(st.st_mode) &&
               !(steps_in(path, false) & (1 << MORE_STEPS | 1 << NO_TRACE));
    if (!s->made || i > FOLDER_METRICS || fs_sys_lstat(path, &st) != 0 || !S_ISREG(st.st_mode) ||
        st.st_size > RECORD_MAX || fs_map_open(&m, path, ERR_CONFIG) != ERR_OK)
        return false;
    bool its = i == FOLDER_METRICS ? m.size == 0
               : i == FOLDER_LOG   ? is_log(&m, s->pid)
                                   : start_hash(m.data, m.size) == s->hash[i];
    fs_map_close(&m);
    return its;
}

void start_left(const struct folder_start *s, const char *dir, bool left[FOLDER_FILES])
{
    char path[FS_PATH];
    bool all = s->pid != 0;
    for (enum folder_file i = FOLDER_YAML; all && i < FOLDER_FILES; i++) {
        bool there = fs_named(folder_file(path, dir, i));
        left[i] = there && start_made(s, i, path);
        all = !there || left[i] || (i == FOLDER_YAML && s->made && s->hash[i] == 0);
    }
    left[FOLDER_LOCK] = false;
    if (!all)
        memset(left, 0, FOLDER_FILES * sizeof *left);
}

/* ---- half-written files ---- */

static void sweep_one(const struct options *o, const char *entry, long dead)
{
    struct fs_lock_found found;
    struct folder_owner w;
    struct stat st;
    char path[FS_PATH];
    long pid = 0;
    enum folder_file i = FOLDER_LOCK;
    while (i < FOLDER_FILES && (pid = fs_temp_pid(entry, folder_name[i])) == 0)
        i++;
    if (pid == 0)
        return;
    fs_path(path, o->run.dir, entry);
    bool its = pid == dead;
    if (i == FOLDER_LOCK) { /* that its owner died over before it had the name: its words say who */
        fs_lock_look(path, &found);
        its = folder_life(&found, &w) == FOLDER_DIED && w.pid == pid && kill((pid_t)pid, 0) != 0;
    }
    bool left = its && fs_sys_lstat(path, &st) == 0 && S_ISREG(st.st_mode) &&
                !files_read_as(o, path);
    if (left && fs_sys_unlink(path) == 0)
        log_line(LOG_WARN, "run.dir %s: removed %s, which a run that died left half written",
                 o->run.dir, entry);
    else if (!its && i != FOLDER_LOCK)
        log_line(LOG_WARN, "run.dir %s: %s has the name of a half-written file, but is of no run "
                           "that is known to have died there; it stays", o->run.dir, entry);
}

enum err start_sweep(const struct folder_start *s, const struct options *o)
{
    char why[FS_REASON], path[FS_PATH];
    bool left[FOLDER_FILES];
    struct text gone = {0};
    struct fs_folder d;
    if (!fs_folder_open(&d, o->run.dir))
        FAIL(ERR_STORAGE, "storage: cannot read the folder %s: %s", o->run.dir,
             fs_reason(errno, why));
    for (const char *name; (name = fs_folder_next(&d));)
        sweep_one(o, name, s->pid);
    fs_folder_close(&d);
    start_left(s, o->run.dir, left); /* all are judged before the first goes */
    for (enum folder_file i = 0; i < FOLDER_FILES; i++) {
        folder_file(path, o->run.dir, i);
        if (left[i] && i == FOLDER_TRACE)
            (void)steps_in(path, true);
        if (left[i] && (i == FOLDER_TRACE ? !fs_named(path) : fs_sys_unlink(path) == 0))
            text_add(&gone, "%s%s", gone.len ? ", " : "", folder_name[i]);
    }
    if (gone.len > 0)
        log_line(LOG_WARN, "run.dir %s: removed %s, which a start that died before the end of its "
                           "first step left", o->run.dir, gone.s);
    enum err err = gone.err;
    text_free(&gone);
    return err;
}
