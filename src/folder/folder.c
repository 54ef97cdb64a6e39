/* SPDX-License-Identifier: Apache-2.0
 *
 * A name counts as taken when anything has it, a link that leads nowhere too. One thing does not
 * count: config.yaml that is this run's own configuration file and holds what would be written
 * there; it stays as it is. Opening devices takes its time, so the look is made again before the
 * first name; what comes behind that look is not replaced either (fs_create_new). When the start
 * fails, what it has made is removed, and nothing else.
 */
#include "folder/folder.h"

#include "base/fs_sys.h"
#include "base/log.h"
#include "ckpt/ckpt.h"
#include "data/data.h"
#include "folder/files.h"
#include "folder/init.h"

#include <errno.h>
#include <linux/magic.h>
#include <stdio.h>
#include <unistd.h>

/* ---- can it be made, or written to? ---- */

/* The file system of the kernel's own that the part is in, in which root may do anything and nobody
 * can make a file, or a folder is no folder: one in cgroup is a group of processes. NULL: it is in
 * none. That of devices looks like any other in memory, but is not that of the root. */
static const char *kernels(const char *path, const struct stat *st)
{
    static const struct { unsigned long type; const char *name; } own[] = {
        {PROC_SUPER_MAGIC, "proc"}, {SYSFS_MAGIC, "sysfs"}, {CGROUP_SUPER_MAGIC, "cgroup"},
        {CGROUP2_SUPER_MAGIC, "cgroup2"}, {DEVPTS_SUPER_MAGIC, "devpts"},
        {DEBUGFS_MAGIC, "debugfs"}, {TRACEFS_MAGIC, "tracefs"}, {SECURITYFS_MAGIC, "securityfs"},
        {BPF_FS_MAGIC, "bpf"}, {PSTOREFS_MAGIC, "pstore"}, {EFIVARFS_MAGIC, "efivarfs"},
        {BINFMTFS_MAGIC, "binfmt_misc"}, {SELINUX_MAGIC, "selinuxfs"},
        {HUGETLBFS_MAGIC, "hugetlbfs"}, {RDTGROUP_SUPER_MAGIC, "resctrl"},
        {NSFS_MAGIC, "nsfs"}, {0x62656570, "configfs"}, {0x65735543, "fusectl"},
        {0x19800202, "mqueue"}};
    struct stat dev, root;
    int64_t magic = fs_sys_magic(path);
    if (magic < 0)
        return NULL;
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if ((unsigned long)magic == own[i].type)
            return own[i].name;
    bool devices = fs_sys_stat("/dev", &dev) == 0 && fs_sys_stat("/", &root) == 0 &&
                   dev.st_dev != root.st_dev && st->st_dev == dev.st_dev;
    return devices ? "that of /dev" : NULL;
}

/* Of its path the nearest part that is there is asked; nothing is made or written. Errors:
 * ERR_STORAGE. */
static enum err check_dir(const char *dir)
{
    struct stat st, link = {.st_mode = 0}; /* of a part of which it cannot be said */
    char part[FS_PATH], why[FS_REASON];
    snprintf(part, sizeof part, "%s", dir);
    while (fs_sys_lstat(part, &link) != 0 && (errno == ENOENT || errno == ENOTDIR))
        folder_above(part);
    int code = fs_sys_stat(part, &st) == 0 ? 0 : errno;
    bool all = strcmp(dir, part) == 0;
    if (code && S_ISLNK(link.st_mode))
        FAIL(ERR_STORAGE, "run.dir %s cannot be made: %s is a link that leads nowhere; remove it, "
                          "or make what it names", dir, part);
    if (!code && !S_ISDIR(st.st_mode))
        FAIL(ERR_STORAGE, "run.dir %s cannot be made: %s is no folder, a file has that name; use "
                          "another", dir, part);
    const char *system = code ? NULL : kernels(part, &st);
    if (system)
        FAIL(ERR_STORAGE, "run.dir %s cannot be: %s is in a file system of the kernel (%s), which "
                          "keeps no files; name a folder on a disk", dir, part, system);
    if (!code && fs_sys_access(part, W_OK | X_OK) != 0)
        code = errno;
    if (code && all)
        FAIL(ERR_STORAGE, "run.dir %s cannot be written to: %s", dir, fs_reason(code, why));
    if (code)
        FAIL(ERR_STORAGE, "run.dir %s cannot be made in %s: %s", dir, part, fs_reason(code, why));
    if (all && fs_sys_access(part, R_OK) != 0) /* what a dead run left is looked for */
        FAIL(ERR_STORAGE, "run.dir %s cannot be read: %s", dir, fs_reason(errno, why));
    return ERR_OK;
}

/* ---- what stands against a run ---- */

/* A sentence, and what to do; code ERR_OK: nothing does. */
struct conflict {
    enum err code;
    struct text what; /* owned */
    const char *way;  /* NULL: what stands there is a run */
};

/* The folder by its lock. */
static enum folder_life judge_lock(const struct options *o, const struct fs_lock_found *found,
                                   struct conflict *c)
{
    struct folder_owner w;
    char who[FOLDER_OWNER], host[65];
    enum folder_life life = folder_life(found, &w);
    folder_owner_words(&w, who);
    folder_host(host);
    if (life == FOLDER_LIVES) {
        c->code = ERR_LOCKED;
        if (w.pid)
            text_add(&c->what, "run.dir %s is in use by %s", o->run.dir, who);
        else
            text_add(&c->what, "run.dir %s is in use by another run (%s)", o->run.dir,
                     folder_name[FOLDER_LOCK]);
        c->way = "name another folder, or wait for its end";
    } else if (life == FOLDER_FOREIGN) {
        c->code = ERR_CONFIG;
        text_add(&c->what, "run.dir %s has %s already, which no run made", o->run.dir,
                 folder_name[FOLDER_LOCK]);
        c->way = "name another folder, or move it away";
    } else if (life == FOLDER_UNSEEN && !o->run.takeover) {
        c->code = ERR_LOCKED;
        text_add(&c->what, "run.dir %s was taken by %s, and from host %s it cannot be seen whether "
                           "that lives", o->run.dir, who, host);
        c->way = "if it does not, take the folder over with run.takeover=true";
    }
    return life;
}

static enum err config_text(const struct options *o, int64_t vocab, const char *tokenizer,
                            struct text *out)
{
    struct options mine = *o;
    if (model_traits(o->model.kind)->text) {
        mine.model.vocab = vocab;
        snprintf(mine.data.tokenizer, sizeof mine.data.tokenizer, "%s", tokenizer);
    }
    mine.run.takeover = mine.run.resume_insist = false; /* are asked once */
    mine.run.resume[0] = '\0';
    conf_print(&options_table, &mine, out);
    return out->err;
}

/* Is the file this run's configuration, and what it would write? */
static enum err is_kept(const struct options *o, const struct model *a, const char *path,
                        bool *kept)
{
    struct text words = {0};
    struct fs_map m = {0};
    struct data_set set;
    if (!o->source[0] || !o->data.train[0] || !fs_same(o->source, path))
        return ERR_OK;
    struct data_want want;
    options_want(a, &want);
    TRY(data_open(o->data.train, &want, false, &set));
    enum err err = config_text(o, a->vocab, set.tokenizer, &words);
    data_close(&set);
    if (err == ERR_OK && fs_map_open(&m, path, ERR_CONFIG) == ERR_OK)
        *kept = m.size == words.len && memcmp(m.data, words.s, (size_t)m.size) == 0;
    fs_map_close(&m);
    text_free(&words);
    return err;
}

/* The names that the run would write: "config.yaml (its configuration), metrics.jsonl". What the
 * next start removes of a dead one is no conflict. begins: traces are none either, other ranks may
 * have begun theirs. *kept: config.yaml is this run's own and stays. */
static enum err judge_names(const struct options *o, const struct model *a,
                            const struct folder_start *dead, bool begins, bool *kept,
                            struct conflict *c)
{
    bool left[FOLDER_FILES], run = false;
    struct text list = {0};
    char path[FS_PATH];
    *kept = false;
    start_left(dead, o->run.dir, left);
    for (enum folder_file i = FOLDER_YAML; i < FOLDER_FILES; i++) {
        if (!folder_writes(o, i) || (begins && i == FOLDER_TRACE) ||
            !fs_named(folder_file(path, o->run.dir, i)))
            continue;
        if (i == FOLDER_YAML)
            TRY(is_kept(o, a, path, kept));
        if (left[i] || (i == FOLDER_YAML && *kept))
            continue;
        const char *as = files_read_as(o, path);
        text_add(&list, "%s%s", list.len ? ", " : "", folder_name[i]);
        if (as)
            text_add(&list, " (its %s)", as);
        run = run || i == FOLDER_METRICS;
    }
    if (list.len > 0) {
        c->code = ERR_CONFIG;
        text_add(&c->what, run ? "run.dir %s holds a run already (%s)"
                               : "run.dir %s has %s already, which a run would write over",
                 o->run.dir, list.s);
        c->way = run ? NULL : "name another folder, or move that away";
    }
    enum err err = list.err != ERR_OK ? list.err : c->what.err;
    text_free(&list);
    return err;
}

/* The error of a conflict, if it is one, or that of looking for it, which is released. */
static enum err refuse(const struct options *o, enum err err, struct conflict *c)
{
    const char *dir = o->run.dir, *way = c->way, *named = "";
    err = err != ERR_OK ? err : c->what.err;
    if (err == ERR_OK && c->code != ERR_OK) {
        if (!way && folder_has_checkpoint(dir))
            way = "go on there with run.resume=auto, name another folder, or remove that one";
        else if (!way && init_reads(dir))
            named = dir;
        if (!way)
            way = named[0] ? "it has no checkpoint to go on from, and weights that a run in "
                             "another folder can begin with by model.init="
                           : "it has no checkpoint to go on from, so name another folder, or "
                             "remove that one";
        err = err_set(c->code, __FILE__, __LINE__, "%s; %s%s", c->what.s, way, named);
    }
    text_free(&c->what);
    return err;
}

enum err folder_note(const struct options *o, const struct model *a, struct text *out)
{
    struct fs_lock_found found;
    struct folder_owner w;
    struct conflict c = {.code = ERR_OK};
    enum err err = ERR_OK;
    char path[FS_PATH];
    bool kept;
    if (!o->run.dir[0])
        return ERR_OK;
    if (check_dir(o->run.dir) == ERR_STORAGE) {
        text_add(out, "%s", err_text());
        return out->err;
    }
    fs_lock_look(folder_file(path, o->run.dir, FOLDER_LOCK), &found);
    enum folder_life life = judge_lock(o, &found, &c);
    if (c.code == ERR_OK && !folder_goes_on(o)) {
        struct folder_start dead = start_read(&found);
        err = judge_names(o, a, &dead, false, &kept, &c);
    }
    if (c.code != ERR_OK && c.what.s)
        text_add(out, "%s", c.what.s);
    if (c.code != ERR_OK && life == FOLDER_DIED && folder_life(&found, &w) == life)
        text_add(out, "; the run of pid %ld, since %s, died there", w.pid, w.since);
    err = err != ERR_OK ? err : c.what.err != ERR_OK ? c.what.err : out->err;
    text_free(&c.what);
    return err;
}

/* ---- taking ---- */

/* A lock that nobody is seen to hold: may it be taken over? What a dead run has left goes under its
 * own lock: a start that dies meanwhile leaves that to the next. */
static enum err take_over(void *arg, const struct fs_lock_found *found)
{
    struct folder *f = arg;
    struct conflict c = {.code = ERR_OK};
    struct folder_owner w;
    char who[FOLDER_OWNER];
    (void)judge_lock(f->o, found, &c);
    TRY(refuse(f->o, ERR_OK, &c));
    (void)folder_life(found, &w);
    log_line(LOG_WARN, "run.dir %s: %s, died there", f->o->run.dir, folder_owner_words(&w, who));
    f->dead = start_read(found);
    return start_sweep(&f->dead, f->o);
}

static enum err check_names(struct folder *f, const struct model *a, bool begins)
{
    struct conflict c = {.code = ERR_OK};
    char trace[FS_PATH];
    f->goes_on = f->goes_on || (!begins && folder_goes_on(f->o));
    if (!f->goes_on)
        return refuse(f->o, judge_names(f->o, a, &f->dead, begins, &f->kept, &c), &c);
    if (begins || !f->o->train.trace ||
        !fs_named(folder_file(trace, f->o->run.dir, FOLDER_TRACE)))
        return ERR_OK;
    TRY(folder_move_aside(trace, trace, 1, f->aside)); /* traces are of one start */
    log_line(LOG_WARN, "run.dir %s: the traces of a start before this one make room, as %s",
             f->o->run.dir, f->aside);
    return ERR_OK;
}

enum err folder_take(struct folder *f, const struct options *o, const struct model *a)
{
    struct fs_lock_over over = {take_over, f};
    struct conflict c = {.code = ERR_OK};
    char words[FS_LOCK_WORDS], path[FS_PATH], host[65], since[LOG_TIME];
    enum err err;
    *f = (struct folder){.o = o, .lock = {.fd = -1}, .log = -1};
    TRY(check_dir(o->run.dir));
    TRY(fs_make_dirs(o->run.dir));
    folder_host(host);
    log_time(since);
    snprintf(words, sizeof words, "plait run\nhost %s\npid %ld\nsince %s\n", host, (long)getpid(),
             since);
    folder_file(path, o->run.dir, FOLDER_LOCK);
    TRY_OR(out_leave, fs_lock_take(&f->lock, path, words, &over, &f->found));
    f->taken = f->found.state == FS_LOCK_TAKEN;
    if (!f->taken && f->dead.pid)
        f->found.state = FS_LOCK_HELD; /* another run was quicker */
    if (!f->taken)
        (void)judge_lock(o, &f->found, &c);
    TRY_OR(out_leave, refuse(o, ERR_OK, &c));
    if (!f->dead.pid)
        TRY_OR(out_leave, start_sweep(&f->dead, o));
    TRY_OR(out_leave, check_names(f, a, false));
    return ERR_OK;
out_leave:
    folder_leave(f);
    return err;
}

/* ---- what a start makes ---- */

/* A file that is appended to. A run without a log is as good, but for what somebody has put under
 * its name in a start. */
static enum err open_lines(struct folder *f, enum folder_file i, const char *path, int *fd)
{
    enum err err = f->goes_on ? fs_log_open(path, fd) : fs_log_make(path, fd);
    if (i == FOLDER_LOG && err == ERR_STORAGE && (f->goes_on || !fs_named(path))) {
        log_line(LOG_WARN, "run.dir %s: what the run says is not kept: %s", f->o->run.dir,
                 err_bare(err_text()));
        *fd = -1;
        return ERR_OK;
    }
    f->made[i] = err == ERR_OK && !f->goes_on;
    return err;
}

/* The descriptions, which the lock knows before they are there, the log and the metrics. */
static enum err make_files(struct folder *f, const struct text words[FOLDER_LOG], int *metrics)
{
    struct fs_file file;
    char path[FS_PATH];
    TRY(start_write(&f->lock, words, f->kept, &f->start));
    for (enum folder_file i = f->kept ? FOLDER_JSON : FOLDER_YAML; i < FOLDER_LOG; i++) {
        folder_file(path, f->o->run.dir, i);
        TRY(f->goes_on ? fs_create(&file, path) : fs_create_new(&file, path));
        enum err err = fs_write(&file, words[i].s, words[i].len);
        if (err == ERR_OK)
            err = fs_commit(&file);
        fs_abandon(&file);
        f->made[i] = file.placed && !f->goes_on;
        TRY(err);
    }
    TRY(open_lines(f, FOLDER_LOG, folder_file(f->log_path, f->o->run.dir, FOLDER_LOG), &f->log));
    TRY(open_lines(f, FOLDER_METRICS, folder_file(path, f->o->run.dir, FOLDER_METRICS), metrics));
    if (f->made[FOLDER_METRICS])
        (void)fs_sys_fstat(*metrics, path, &f->metrics);
    return ERR_OK;
}

/* The starts before this one; a record that cannot be read is kept, and ends no start. */
static enum err read_record(struct folder *f)
{
    char path[FS_PATH], to[FS_PATH];
    folder_file(path, f->o->run.dir, FOLDER_RECORD);
    if (!f->goes_on || !fs_named(path))
        return ERR_OK;
    enum err err = record_read(path, &f->record);
    if (err != ERR_DATA)
        return err;
    struct err_kept bad;
    err_keep(&bad, err);
    TRY(folder_set_aside(path, to));
    log_line(LOG_WARN, "run.dir %s: the starts before this one cannot be read, and are kept as %s: "
                       "%s", f->o->run.dir, to, bad.text);
    return ERR_OK;
}

enum err folder_begin(struct folder *f, const struct setup *s, int64_t resumed, struct text *facts,
                      int *metrics)
{
    struct text words[FOLDER_LOG] = {{0}}, *json = &words[FOLDER_JSON];
    enum err err;
    ENSURE(f->taken);
    TRY(folder_room(f->o, &s->model, f->goes_on, resumed));
    TRY(check_names(f, &s->model, true)); /* opening devices takes its time, and so may disks */
    f->begun = true;
    TRY_OR(out, config_text(f->o, s->model.vocab, s->tokenizer, &words[FOLDER_YAML]));
    TRY_OR(out, hf_config_text(&s->model, SAFET_F32, tokenizer_end(s->tokenizer), json));
    TRY_OR(out, read_record(f));
    TRY_OR(out, text_done(facts, &f->record.facts));
    TRY_OR(out, record_begin(&f->record, resumed));
    record_text(&f->record, &words[FOLDER_RECORD]);
    TRY_OR(out, words[FOLDER_RECORD].err);
    if (f->goes_on)
        TRY_OR(out, folder_cut(f->o, resumed, &f->validated));
    TRY_OR(out, make_files(f, words, metrics));
out:
    for (int i = 0; i < FOLDER_LOG; i++)
        text_free(&words[i]);
    return err;
}

/* ---- its end ---- */

/* What somebody has put in run.json's place, or written into it, stays. Where the start comes to
 * nothing it goes, and is to be known by what was written last. */
void folder_end(struct folder *f, enum err code, const char *words)
{
    struct text t = {0};
    char path[FS_PATH];
    folder_file(path, f->o->run.dir, FOLDER_RECORD);
    if (f->record.n == 0 || !fs_lock_stands(&f->lock) ||
        !start_made(&f->start, FOLDER_RECORD, path))
        return;
    enum err err = record_end(&f->record, f->done, code, words);
    if (err == ERR_OK)
        record_text(&f->record, &t);
    err = err != ERR_OK ? err : t.err;
    if (err == ERR_OK)
        err = fs_put(path, t.s, t.len);
    if (err == ERR_OK)
        f->start.hash[FOLDER_RECORD] = start_hash(t.s, t.len);
    else
        log_line(LOG_WARN, "run.dir %s: run.json does not say how the run ended: %s", f->o->run.dir,
                 err_bare(err_text()));
    text_free(&t);
}

/* Did the run come to nothing: no line of metrics, no trace, no weights? Metrics that somebody has
 * put there, or moved away, may have been of steps. */
static bool is_empty(const struct folder *f)
{
    struct stat st;
    char path[FS_PATH];
    folder_file(path, f->o->run.dir, FOLDER_METRICS);
    if (f->made[FOLDER_METRICS] &&
        (fs_sys_lstat(path, &st) != 0 || st.st_dev != f->metrics.st_dev ||
         st.st_ino != f->metrics.st_ino || !start_made(&f->start, FOLDER_METRICS, path)))
        return false;
    for (enum folder_file i = FOLDER_TRACE; i < FOLDER_FILES; i++)
        if (folder_writes(f->o, i) &&
            fs_named(folder_file(path, f->o->run.dir, i)) &&
            (i != FOLDER_TRACE || start_traced(path)))
            return false;
    return true;
}

void folder_leave(struct folder *f)
{
    struct err_kept first;
    char path[FS_PATH];
    err_keep(&first, ERR_OK);
    bool stands = f->taken && fs_lock_stands(&f->lock); /* else the folder was moved away */
    bool empty = stands && f->begun && is_empty(f);
    for (enum folder_file i = FOLDER_YAML; empty && i <= FOLDER_METRICS; i++) {
        folder_file(path, f->o->run.dir, i);
        if (f->made[i] && (i != FOLDER_LOG || fs_is_named(f->log, path)) &&
            start_made(&f->start, i, path))
            (void)fs_sys_unlink(path);
    }
    /* A start that has traced no step leaves those of before where they were. */
    if (stands && f->aside[0] && !fs_named(folder_file(path, f->o->run.dir, FOLDER_TRACE)) &&
        fs_sys_rename(f->aside, path) == 0)
        log_line(LOG_WARN, "run.dir %s: %s is trace again, since this start traced no step",
                 f->o->run.dir, f->aside);
    if (f->taken && !f->begun && f->dead.pid) /* it was looked at, and is as dead as before */
        fs_lock_leave_words(&f->lock, f->found.words);
    else if (f->o)
        fs_lock_leave(&f->lock);
    if (f->o && f->log >= 0 && fs_log_close(f->log, folder_name[FOLDER_LOG]) != ERR_OK)
        log_line(LOG_WARN, "%s", err_bare(err_text()));
    record_free(&f->record);
    *f = (struct folder){.lock = {.fd = -1}};
    (void)!err_again(&first);
}
