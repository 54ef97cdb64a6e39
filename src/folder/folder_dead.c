/* SPDX-License-Identifier: Apache-2.0
 *
 * What a run that died left in its folder, known by the lock that it left, and by nothing else.
 *
 * Half-written files have the dead owner's pid in their names (it alone writes such files, under
 * MPI too). What a start makes before its first step is in the lock before it is in the folder,
 * with hashes of the two descriptions, so that what somebody has put in its place since is not
 * taken for it; the metrics have to be empty, and traces of one step at most. Ranks that do not
 * report may begin their traces before that record is made.
 */
#include "folder/folder_dead.h"

#include "base/fs_sys.h"
#include "base/log.h"
#include "folder/files.h"
#include "folder/trace.h"

#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <xxhash.h>

static const char lock_name[] = "plait.lock", starts_form[] = "starts %016llx %016llx %016llx\n";

/* ---- the record of a start ---- */

static uint64_t hash_of(const char *p, int64_t n)
{
    return XXH3_64bits(p, (size_t)n) | 1; /* 0: no file was made */
}

unsigned long long folder_dead_hash(const struct text *t)
{
    return hash_of(t->s, t->len);
}

enum err folder_dead_record(const struct fs_lock *l, const struct text words[FOLDER_LOG], bool kept,
                            struct folder_start *out)
{
    char line[80];
    *out = (struct folder_start){.made = true,
                                 .yaml = kept ? 0 : folder_dead_hash(&words[FOLDER_YAML]),
                                 .json = folder_dead_hash(&words[FOLDER_JSON]),
                                 .record = folder_dead_hash(&words[FOLDER_RECORD]),
                                 .pid = (long)getpid()};
    int n = snprintf(line, sizeof line, starts_form, out->yaml, out->json, out->record);
    return fs_append(l->fd, l->path, line, n);
}

static struct folder_start read_record(const char *words)
{
    struct folder_start r = {.made = false};
    struct folder_owner w;
    const char *at = strstr(words, "\nstarts ");
    r.made = at && sscanf(at, "\nstarts %16llx %16llx %16llx", &r.yaml, &r.json, &r.record) == 3;
    r.pid = folder_read_owner(words, &w) ? w.pid : 0;
    return r;
}

/* ---- what of a folder is its ---- */

static bool has_hash(const char *path, uint64_t hash)
{
    struct fs_map m;
    struct stat st;
    if (fs_sys_lstat(path, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size > RECORD_MAX ||
        fs_map_open(&m, path, ERR_CONFIG) != ERR_OK)
        return false;
    bool same = hash_of((const char *)m.data, m.size) == hash;
    fs_map_close(&m);
    return same;
}

static bool is_empty(const char *path)
{
    struct stat st;
    return fs_sys_lstat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_size == 0;
}

/* Lines of a log alone, each behind its date, and the first of them of that start; or none yet. */
static bool is_log(const char *path, long pid)
{
    struct fs_map m;
    struct stat st;
    char first[64];
    if (fs_sys_lstat(path, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size > RECORD_MAX ||
        fs_map_open(&m, path, ERR_CONFIG) != ERR_OK)
        return false;
    int n = snprintf(first, sizeof first, FOLDER_LOG_BEGINS, pid);
    const char *at = (const char *)m.data, *end = at + m.size, *next = at;
    bool its = m.size == 0 ||
               (m.size > LOG_TIME + n && memcmp(at + LOG_TIME, first, (size_t)n) == 0);
    for (; its && at < end; at = next + 1) {
        next = memchr(at, '\n', (size_t)(end - at));
        its = next && next - at > LOG_TIME && at[LOG_TIME - 1] == ' ' && at[LOG_TIME - 2] == 'Z' &&
              strspn(at, "0123456789-T:") == LOG_TIME - 2;
    }
    fs_map_close(&m);
    return its;
}

/* N.trace of a step at most: ranks that do not report may have written the first. One that goes
 * meanwhile counts as well. */
static bool is_start(const char *path, const char *name)
{
    struct trace_head head = {.instrs = 0};
    struct stat st;
    struct fs_map m;
    size_t digits = strspn(name, "0123456789");
    if (digits == 0 || strcmp(name + digits, ".trace") != 0)
        return false;
    if (fs_sys_lstat(path, &st) != 0)
        return errno == ENOENT;
    if (!S_ISREG(st.st_mode))
        return false;
    if (fs_map_open(&m, path, ERR_DATA) != ERR_OK)
        return fs_sys_lstat(path, &st) != 0 && errno == ENOENT;
    bool whole = m.size >= (int64_t)sizeof head;
    if (whole)
        memcpy(&head, m.data, sizeof head);
    int64_t record = (1 + 3 * num_min(head.instrs, INT32_MAX)) * (int64_t)sizeof(double);
    bool start = m.size == 0 || (whole && memcmp(head.magic, "plaittrc", 8) == 0 &&
                                 m.size - (int64_t)sizeof head <= record);
    fs_map_close(&m);
    return start;
}

/* Has the folder such traces and nothing else? drop: remove them and it. */
static bool only_starts(const char *dir, bool drop)
{
    struct stat st;
    struct fs_folder d = {.open = NULL};
    bool all = fs_sys_lstat(dir, &st) == 0 && S_ISDIR(st.st_mode) && fs_folder_open(&d, dir);
    for (const char *name; all && (name = fs_folder_next(&d));) {
        char *path;
        all = fs_join(dir, name, &path) == ERR_OK;
        if (!all)
            break;
        all = is_start(path, name);
        if (all && drop)
            (void)fs_sys_unlink(path);
        mem_free(path);
    }
    fs_folder_close(&d);
    if (all && drop)
        (void)fs_sys_rmdir(dir);
    return all;
}

static bool has_step(const char *path)
{
    struct trace_head head = {.instrs = 0};
    struct stat st;
    struct fs_map m;
    if (fs_sys_lstat(path, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size <= (off_t)sizeof head ||
        fs_map_open(&m, path, ERR_DATA) != ERR_OK)
        return false;
    bool trace = m.size > (int64_t)sizeof head && memcmp(m.data, "plaittrc", 8) == 0;
    fs_map_close(&m);
    return trace;
}

bool folder_dead_traced(const char *dir)
{
    bool found = false;
    struct fs_folder d;
    (void)fs_folder_open(&d, dir);
    for (const char *name; !found && (name = fs_folder_next(&d));) {
        char *path;
        if (fs_join(dir, name, &path) != ERR_OK)
            break;
        found = has_step(path);
        mem_free(path);
    }
    fs_folder_close(&d);
    return found;
}

bool folder_dead_made(const struct folder_start *r, const char *name, const char *path)
{
    if (strcmp(name, "config.yaml") == 0)
        return r->made && has_hash(path, r->yaml);
    if (strcmp(name, "config.json") == 0)
        return r->made && has_hash(path, r->json);
    if (strcmp(name, "run.json") == 0)
        return r->made && has_hash(path, r->record);
    if (strcmp(name, "log.txt") == 0)
        return r->made && is_log(path, r->pid);
    if (strcmp(name, "metrics.jsonl") == 0)
        return r->made && is_empty(path);
    return strcmp(name, "trace") == 0 && only_starts(path, false);
}

/* Each of its names is gone, or as its start left it. */
bool folder_dead_start(const struct options *o, const char *words)
{
    struct folder_start r = read_record(words);
    bool all = words[0] != '\0';
    for (int i = 0; all && i < folder_names(); i++) {
        const char *name = folder_name_at(i)->name;
        struct stat st;
        char *path;
        if (strcmp(name, lock_name) == 0)
            continue;
        if (fs_join(o->run.dir, name, &path) != ERR_OK)
            return false;
        bool there = fs_sys_lstat(path, &st) == 0;
        bool kept = r.made && r.yaml == 0 && strcmp(name, "config.yaml") == 0;
        all = !there || kept || folder_dead_made(&r, name, path);
        mem_free(path);
    }
    return all;
}

bool folder_dead_name(const struct options *o, const char *words, const char *name)
{
    struct folder_start r = read_record(words);
    char *path;
    if (!folder_dead_start(o, words) || fs_join(o->run.dir, name, &path) != ERR_OK)
        return false;
    bool left = folder_dead_made(&r, name, path);
    mem_free(path);
    return left;
}

static enum err drop_start(const struct options *o, const char *words)
{
    bool names[16];
    struct text gone = {0};
    for (int i = 0; i < folder_names(); i++) /* all are judged before the first goes */
        names[i] = folder_dead_name(o, words, folder_name_at(i)->name);
    for (int i = 0; i < folder_names(); i++) {
        char *path;
        if (!names[i])
            continue;
        TRY(fs_join(o->run.dir, folder_name_at(i)->name, &path));
        if (fs_sys_unlink(path) == 0 || only_starts(path, true))
            text_add(&gone, "%s%s", gone.len ? ", " : "", folder_name_at(i)->name);
        mem_free(path);
    }
    if (gone.len > 0)
        log_line(LOG_WARN, "run.dir %s: removed %s, which a start that died before the end of its "
                           "first step left", o->run.dir, gone.s);
    enum err err = gone.err;
    text_free(&gone);
    return err;
}

/* ---- half-written files ---- */

/* The pid of a temporary file of one of the names, or 0. */
static long temporary_of(const char *entry, const char **name)
{
    for (int i = 0; i < folder_names(); i++) {
        size_t n = strlen(folder_name_at(i)->name);
        char *end;
        if (strncmp(entry, folder_name_at(i)->name, n) != 0 ||
            strncmp(entry + n, ".tmp.", 5) != 0 || !isdigit((unsigned char)entry[n + 5]))
            continue;
        long pid = strtol(entry + n + 5, &end, 10);
        if (*end != '.' || !isdigit((unsigned char)end[1]))
            continue;
        *name = folder_name_at(i)->name;
        for (end++; isdigit((unsigned char)*end); end++)
            continue;
        return *end ? 0 : pid;
    }
    return 0;
}

/* A lock that its owner died over before it had the name: its words say who that was. */
static bool was_lock_of(const char *path, long pid)
{
    struct fs_lock_found found;
    struct folder_owner w;
    fs_lock_look(path, &found);
    return found.state == FS_LOCK_LEFT && folder_read_owner(found.words, &w) && w.pid == pid &&
           folder_is_here(&w) && kill((pid_t)pid, 0) != 0;
}

static enum err sweep_one(const struct options *o, const char *entry, long dead)
{
    struct stat st;
    char *path;
    const char *name;
    long pid = temporary_of(entry, &name);
    if (pid <= 0)
        return ERR_OK;
    TRY(fs_join(o->run.dir, entry, &path));
    bool lock = strcmp(name, lock_name) == 0;
    bool its = lock ? was_lock_of(path, pid) : pid == dead;
    bool left = its && fs_sys_lstat(path, &st) == 0 && S_ISREG(st.st_mode) &&
                !files_read_as(o, path);
    if (left && fs_sys_unlink(path) == 0)
        log_line(LOG_WARN, "run.dir %s: removed %s, which a run that died left half written",
                 o->run.dir, entry);
    else if (!its && !lock)
        log_line(LOG_WARN, "run.dir %s: %s has the name of a half-written file, but is of no run "
                           "that is known to have died there; it stays", o->run.dir, entry);
    mem_free(path);
    return ERR_OK;
}

enum err folder_dead_sweep(const struct options *o, const char *words)
{
    char why[FS_REASON];
    struct folder_owner w = {.pid = 0};
    struct fs_folder d;
    enum err err = ERR_OK;
    if (!folder_read_owner(words, &w))
        w.pid = 0;
    if (!fs_folder_open(&d, o->run.dir))
        FAIL(ERR_STORAGE, "storage: cannot read the folder %s: %s", o->run.dir,
             fs_reason(errno, why));
    for (const char *name; err == ERR_OK && (name = fs_folder_next(&d));)
        err = sweep_one(o, name, w.pid);
    fs_folder_close(&d);
    return err == ERR_OK && w.pid ? drop_start(o, words) : err;
}
