/* SPDX-License-Identifier: Apache-2.0
 *
 * A name counts as taken when anything has it, a link that leads nowhere too. One thing does not
 * count: config.yaml that is this run's own configuration file and holds what would be written
 * there; it stays as it is. The look is made while the folder is held, so what is found was there
 * before, and what is not found is this run's from then on: so it may be removed when the start
 * fails.
 */
#include "run/folder.h"

#include "base/log.h"
#include "ckpt/ckpt.h"
#include "data/data.h"
#include "run/files.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char lock_name[] = "plait.lock", config_name[] = "config.yaml",
                  metrics_name[] = "metrics.jsonl";

static const struct folder_name names[] = {
    {lock_name, FOLDER_ALWAYS},     {config_name, FOLDER_ALWAYS}, {"config.json", FOLDER_ALWAYS},
    {metrics_name, FOLDER_ALWAYS},  {"trace", FOLDER_TRACE},
    {"model.safetensors", FOLDER_SAVE},
};
enum { NAMES = sizeof names / sizeof *names };

int folder_names(void)
{
    return NAMES;
}

const struct folder_name *folder_name_at(int i)
{
    return &names[i];
}

static bool writes(const struct options *o, const struct folder_name *n)
{
    return n->when == FOLDER_ALWAYS || (n->when == FOLDER_SAVE && o->run.save) ||
           (n->when == FOLDER_TRACE && o->train.trace);
}

static bool is_there(const char *path, struct stat *st)
{
    return lstat(path, st) == 0;
}

/* ---- what a run reads ---- */

/* What a run reads there, or NULL. */
static const char *read_as(const struct options *o, const char *path)
{
    struct file_use in[FILES_OPTIONS];
    int n = files_of_options(o, in);
    for (int i = 0; i < n; i++)
        if (fs_same(in[i].path, path))
            return in[i].what;
    return NULL;
}

/* ---- the look ---- */

static enum err config_text(const struct options *o, int64_t vocab, const char *tokenizer,
                            struct text *out)
{
    struct options mine = *o;
    mine.model.vocab = vocab;
    snprintf(mine.data.tokenizer, sizeof mine.data.tokenizer, "%s", tokenizer);
    mine.run.takeover = false; /* is asked once */
    conf_print(&options_table, &mine, out);
    return out->err;
}

/* Is the file this run's configuration, and what it would write? */
static enum err is_kept(const struct options *o, const struct arch *a, const char *path, bool *kept)
{
    struct text words = {0};
    struct fs_map m = {0};
    struct data_set set;
    *kept = false;
    if (!o->source[0] || !o->data.train[0] || !fs_same(o->source, path))
        return ERR_OK;
    TRY(data_open(o->data.train, a->seq, a->vocab, false, &set));
    enum err err = config_text(o, a->vocab, set.tokenizer, &words);
    data_close(&set);
    if (err == ERR_OK && fs_map_open(&m, path, ERR_CONFIG) == ERR_OK)
        *kept = m.size == words.len && memcmp(m.data, words.s, (size_t)m.size) == 0;
    fs_map_close(&m);
    text_free(&words);
    return err;
}

/* "config.yaml (its configuration), metrics.jsonl" to out; *run: it has metrics of a run. */
static enum err list_taken(const struct options *o, const struct arch *a, struct text *out,
                           bool *kept, bool *run)
{
    struct stat st;
    *kept = *run = false;
    for (int i = 0; i < NAMES; i++) {
        char *path;
        if (names[i].name == lock_name || !writes(o, &names[i]))
            continue;
        TRY(fs_join(o->run.dir, names[i].name, &path));
        enum err err = ERR_OK;
        bool there = is_there(path, &st), spared = false;
        if (there && names[i].name == config_name) {
            err = is_kept(o, a, path, kept);
            spared = *kept;
        }
        if (err == ERR_OK && there && !spared) {
            const char *as = read_as(o, path);
            text_add(out, "%s%s", out->len ? ", " : "", names[i].name);
            if (as)
                text_add(out, " (its %s)", as);
            *run = *run || names[i].name == metrics_name;
        }
        mem_free(path);
        TRY(err);
    }
    return out->err;
}

/* ---- who holds it ---- */

bool folder_read_owner(const char *words, struct folder_owner *w)
{
    return sscanf(words, "plait run\nhost %64s\npid %ld\nsince %31s", w->host, &w->pid, w->since) ==
           3;
}

static void this_host(char host[65])
{
    if (gethostname(host, 64) != 0 || !host[0])
        snprintf(host, 65, "unknown");
    host[64] = '\0';
}

static void write_owner(char words[FS_LOCK_WORDS])
{
    char host[65] = "", since[32] = "";
    time_t now = time(NULL);
    struct tm t;
    this_host(host);
    if (gmtime_r(&now, &t))
        strftime(since, sizeof since, "%Y-%m-%dT%H:%M:%SZ", &t);
    snprintf(words, FS_LOCK_WORDS, "plait run\nhost %s\npid %ld\nsince %s\n", host, (long)getpid(),
             since);
}

static enum err in_use(const char *dir, const char *words)
{
    struct folder_owner w;
    if (!folder_read_owner(words, &w))
        FAIL(ERR_LOCKED, "run.dir %s is in use by another run (%s); name another folder, or wait "
                         "for its end", dir, lock_name);
    FAIL(ERR_LOCKED, "run.dir %s is in use by the run of pid %ld on host %s, since %s; name "
                     "another folder, or wait for its end", dir, w.pid, w.host, w.since);
}

/* A lock that nobody is seen to hold: may it be taken over? */
static enum err check_left(const struct options *o, const struct fs_lock_found *found)
{
    struct folder_owner w;
    char host[65];
    this_host(host);
    if (!folder_read_owner(found->words, &w))
        FAIL(ERR_CONFIG, "run.dir %s has %s already, which no run made; name another folder, or "
                         "move it away", o->run.dir, lock_name);
    if ((found->blind || strcmp(w.host, host) != 0) && !o->run.takeover)
        FAIL(ERR_LOCKED, "run.dir %s was taken by the run of pid %ld on host %s, since %s, and "
                         "from host %s it cannot be seen whether that lives; if it does not, take "
                         "the folder over with run.takeover=true", o->run.dir, w.pid, w.host,
             w.since, host);
    log_line(LOG_WARN, "run.dir %s: the run of pid %ld on host %s, since %s, died there",
             o->run.dir, w.pid, w.host, w.since);
    return ERR_OK;
}

static enum err take_lock(struct folder *f, const char *path)
{
    struct fs_lock_found found;
    char words[FS_LOCK_WORDS];
    write_owner(words);
    TRY(fs_lock_take(&f->lock, path, words, false, &found));
    if (found.state == FS_LOCK_LEFT) {
        fs_lock_leave(&f->lock);
        TRY(check_left(f->o, &found));
        TRY(fs_lock_take(&f->lock, path, words, true, &found));
    }
    if (found.state != FS_LOCK_TAKEN)
        return in_use(f->o->run.dir, found.words);
    f->taken = true;
    return ERR_OK;
}

/* ---- what a dead run left ---- */

/* The pid of a temporary file of one of the names, or 0. */
static long temporary_of(const char *entry, const char **name)
{
    for (int i = 0; i < NAMES; i++) {
        size_t n = strlen(names[i].name);
        char *end;
        if (strncmp(entry, names[i].name, n) != 0 || strncmp(entry + n, ".tmp.", 5) != 0 ||
            !isdigit((unsigned char)entry[n + 5]))
            continue;
        long pid = strtol(entry + n + 5, &end, 10);
        if (*end != '.' || !isdigit((unsigned char)end[1]))
            continue;
        *name = names[i].name;
        for (end++; isdigit((unsigned char)*end); end++)
            continue;
        return *end ? 0 : pid;
    }
    return 0;
}

static enum err sweep_one(const struct folder *f, const char *entry)
{
    struct stat st;
    char *path;
    const char *name;
    long pid = temporary_of(entry, &name);
    if (pid <= 0 || (name == lock_name && kill((pid_t)pid, 0) == 0)) /* of one that will be told */
        return ERR_OK;
    TRY(fs_join(f->o->run.dir, entry, &path));
    bool left = is_there(path, &st) && S_ISREG(st.st_mode) && !read_as(f->o, path);
    if (left && fs_ops->unlink(path) == 0)
        log_line(LOG_WARN, "run.dir %s: removed %s, which a run that died left half written",
                 f->o->run.dir, entry);
    mem_free(path);
    return ERR_OK;
}

static enum err sweep(const struct folder *f)
{
    char why[FS_REASON];
    enum err err = ERR_OK;
    DIR *d = opendir(f->o->run.dir);
    if (!d)
        FAIL(ERR_STORAGE, "storage: cannot read the folder %s: %s", f->o->run.dir,
             fs_reason(errno, why));
    for (struct dirent *e; err == ERR_OK && (e = readdir(d));)
        err = sweep_one(f, e->d_name);
    closedir(d);
    return err;
}

/* ---- taking and leaving ---- */

/* Room for the weights, asked before hours of work end without it. */
static enum err check_room(const struct options *o, const struct arch *a)
{
    char need[32], have[32];
    int64_t bytes = 4 * arch_params(a), left = o->run.save ? fs_ops->space(o->run.dir) : -1;
    if (left < 0)
        return ERR_OK;
    if (bytes > left)
        FAIL(ERR_STORAGE, "run.dir %s: the weights take %s, and its file system has %s free; free "
                          "some space, name another folder, or keep none with run.save=false",
             o->run.dir, text_bytes(bytes, need), text_bytes(left, have));
    return ERR_OK;
}

static enum err check_names(struct folder *f, const struct arch *a)
{
    struct text taken = {0};
    bool run;
    enum err err = list_taken(f->o, a, &taken, &f->kept, &run);
    const char *dir = f->o->run.dir;
    if (err == ERR_OK && taken.len > 0 && run)
        err = err_set(ERR_CONFIG, __FILE__, __LINE__, "run.dir %s holds a run already (%s); name "
                      "another folder, or remove that one", dir, taken.s);
    else if (err == ERR_OK && taken.len > 0)
        err = err_set(ERR_CONFIG, __FILE__, __LINE__, "run.dir %s has %s already, which a run "
                      "would write over; name another folder, or move that away", dir, taken.s);
    text_free(&taken);
    return err;
}

enum err folder_take(struct folder *f, const struct options *o, const struct arch *a)
{
    char *path;
    *f = (struct folder){.o = o, .lock = {.fd = -1}};
    TRY(fs_make_dirs(o->run.dir));
    TRY(fs_join(o->run.dir, lock_name, &path));
    enum err err = take_lock(f, path);
    mem_free(path);
    if (err == ERR_OK)
        err = sweep(f);
    if (err == ERR_OK)
        err = check_names(f, a);
    if (err == ERR_OK)
        err = check_room(o, a);
    if (err != ERR_OK) {
        err_trail(__FILE__, __LINE__);
        folder_leave(f);
    }
    return err;
}

static enum err put_config(const struct folder *f, const struct setup *s)
{
    struct text words = {0};
    char *path = NULL;
    if (f->kept)
        return ERR_OK;
    enum err err = config_text(f->o, s->arch.vocab, s->tokenizer, &words);
    if (err == ERR_OK)
        err = fs_join(f->o->run.dir, config_name, &path);
    if (err == ERR_OK)
        err = fs_put(path, words.s, words.len);
    mem_free(path);
    text_free(&words);
    return err;
}

enum err folder_begin(struct folder *f, const struct setup *s, int *metrics)
{
    char *path;
    ENSURE(f->taken);
    f->begun = true;
    TRY(put_config(f, s));
    TRY(fs_join(f->o->run.dir, "config.json", &path));
    enum err err = hf_config_write(&s->arch, "float32", tokenizer_end(s->tokenizer), path);
    mem_free(path);
    TRY(err);
    TRY(fs_join(f->o->run.dir, metrics_name, &path));
    err = fs_log_make(path, metrics);
    mem_free(path);
    return err;
}

/* Did the run come to nothing: no line of metrics, no trace, no weights? */
static bool is_empty(const struct folder *f, char *path[NAMES])
{
    for (int i = 0; i < NAMES; i++) {
        struct stat st;
        if (names[i].name == lock_name || !writes(f->o, &names[i]) || !is_there(path[i], &st))
            continue;
        if (names[i].when != FOLDER_ALWAYS || (names[i].name == metrics_name && st.st_size > 0))
            return false;
    }
    return true;
}

static void remove_start(const struct folder *f)
{
    char *path[NAMES] = {NULL};
    bool known = true;
    for (int i = 0; i < NAMES; i++)
        known = known && fs_join(f->o->run.dir, names[i].name, &path[i]) == ERR_OK;
    if (known && is_empty(f, path))
        for (int i = 0; i < NAMES; i++)
            if (names[i].when == FOLDER_ALWAYS && names[i].name != lock_name &&
                !(f->kept && names[i].name == config_name))
                (void)fs_ops->unlink(path[i]);
    for (int i = 0; i < NAMES; i++)
        mem_free(path[i]);
}

void folder_leave(struct folder *f)
{
    struct err_kept first;
    err_keep(&first, ERR_OK);
    if (f->taken && f->begun)
        remove_start(f);
    if (f->o)
        fs_lock_leave(&f->lock);
    *f = (struct folder){.lock = {.fd = -1}};
    (void)!err_again(&first);
}

/* ---- before a run ---- */

enum err folder_note(const struct options *o, const struct arch *a, struct text *out)
{
    struct text taken = {0};
    struct fs_lock_found found;
    struct stat st;
    struct folder_owner w;
    bool kept, run;
    char *path;
    if (!o->run.dir[0] || (!is_there(o->run.dir, &st) && errno != ENOTDIR))
        return ERR_OK;
    if (stat(o->run.dir, &st) != 0 || !S_ISDIR(st.st_mode)) {
        text_add(out, "run.dir %s is no folder", o->run.dir);
        return out->err;
    }
    TRY(fs_join(o->run.dir, lock_name, &path));
    fs_lock_look(path, &found);
    mem_free(path);
    enum err err = list_taken(o, a, &taken, &kept, &run);
    if (found.state == FS_LOCK_HELD && folder_read_owner(found.words, &w))
        text_add(out, "run.dir %s is in use by the run of pid %ld on host %s, since %s", o->run.dir,
                 w.pid, w.host, w.since);
    else if (found.state == FS_LOCK_LEFT && !folder_read_owner(found.words, &w))
        text_add(out, "run.dir %s has %s already, which no run made", o->run.dir, lock_name);
    else if (taken.len > 0)
        text_add(out, run ? "run.dir %s holds a run already (%s)"
                          : "run.dir %s has %s already, which a run would write over",
                 o->run.dir, taken.s);
    text_free(&taken);
    return err == ERR_OK ? out->err : err;
}
