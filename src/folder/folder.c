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
#include "base/mem.h"
#include "ckpt/ckpt.h"
#include "data/data.h"
#include "folder/files.h"
#include "folder/folder_dead.h"
#include "folder/init.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

static const char lock_name[] = "plait.lock", config_name[] = "config.yaml",
                  json_name[] = "config.json", metrics_name[] = "metrics.jsonl",
                  record_name[] = "run.json", log_name[] = "log.txt", trace_name[] = "trace";
static const char *const made_name[FOLDER_MADE] = {config_name, json_name, record_name, log_name,
                                                   metrics_name};

static const struct folder_name names[] = {
    {lock_name, FOLDER_ALWAYS},     {config_name, FOLDER_ALWAYS}, {json_name, FOLDER_ALWAYS},
    {record_name, FOLDER_ALWAYS},   {log_name, FOLDER_ALWAYS},
    {metrics_name, FOLDER_ALWAYS},  {trace_name, FOLDER_TRACE},
    {"model.safetensors", FOLDER_SAVE}, {"checkpoints", FOLDER_CHECKPOINTS},
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
           (n->when == FOLDER_CHECKPOINTS && options_checkpoints(o)) ||
           (n->when == FOLDER_TRACE && o->train.trace);
}

static bool is_there(const char *path, struct stat *st)
{
    return fs_sys_lstat(path, st) == 0;
}

/* ---- the look ---- */

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
    *kept = false;
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

struct taken {
    struct text list; /* "config.yaml (its configuration), metrics.jsonl" */
    bool kept;        /* config.yaml is this run's own and stays */
    bool run;         /* there are metrics of a run */
};

/* dead: words of the lock of a run that died there, "": of none. What it left that the next start
 * removes is no conflict. begins: traces are none either, other ranks may have begun theirs. */
static enum err list_taken(const struct options *o, const struct model *a, const char *dead,
                           bool begins, struct taken *t)
{
    struct stat st;
    *t = (struct taken){.kept = false};
    for (int i = 0; i < NAMES; i++) {
        char *path;
        if (names[i].name == lock_name || !writes(o, &names[i]) ||
            (begins && names[i].when == FOLDER_TRACE))
            continue;
        TRY(fs_join(o->run.dir, names[i].name, &path));
        enum err err = ERR_OK;
        bool there = is_there(path, &st), spared = false;
        if (there && names[i].name == config_name) {
            err = is_kept(o, a, path, &t->kept);
            spared = t->kept;
        }
        spared = spared || (there && folder_dead_name(o, dead, names[i].name));
        if (err == ERR_OK && there && !spared) {
            const char *as = files_read_as(o, path);
            text_add(&t->list, "%s%s", t->list.len ? ", " : "", names[i].name);
            if (as)
                text_add(&t->list, " (its %s)", as);
            t->run = t->run || names[i].name == metrics_name;
        }
        mem_free(path);
        TRY(err);
    }
    return t->list.err;
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

bool folder_is_here(const struct folder_owner *w)
{
    char host[65];
    this_host(host);
    return strcmp(w->host, host) == 0;
}

enum folder_life folder_life(const struct fs_lock_found *found, struct folder_owner *out)
{
    *out = (struct folder_owner){.pid = 0};
    bool known = folder_read_owner(found->words, out);
    if (found->state == FS_LOCK_NONE)
        return FOLDER_FREE;
    if (found->state != FS_LOCK_LEFT)
        return FOLDER_LIVES;
    if (!known)
        return FOLDER_FOREIGN;
    return folder_is_here(out) && !found->blind ? FOLDER_DIED : FOLDER_UNSEEN;
}

static void write_owner(char words[FS_LOCK_WORDS])
{
    char host[65] = "", since[LOG_TIME];
    this_host(host);
    log_time(since);
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
    enum folder_life life = folder_life(found, &w);
    if (life == FOLDER_FOREIGN)
        FAIL(ERR_CONFIG, "run.dir %s has %s already, which no run made; name another folder, or "
                         "move it away", o->run.dir, lock_name);
    if (life == FOLDER_UNSEEN && !o->run.takeover)
        FAIL(ERR_LOCKED, "run.dir %s was taken by the run of pid %ld on host %s, since %s, and "
                         "from host %s it cannot be seen whether that lives; if it does not, take "
                         "the folder over with run.takeover=true", o->run.dir, w.pid, w.host,
             w.since, host);
    log_line(LOG_WARN, "run.dir %s: the run of pid %ld on host %s, since %s, died there",
             o->run.dir, w.pid, w.host, w.since);
    return ERR_OK;
}

static enum err sweep(void *arg, const char *words)
{
    struct folder *f = arg;
    f->swept = true;
    return folder_dead_sweep(f->o, words);
}

/* What a dead run has left goes under its own lock: a start that dies meanwhile leaves that to the
 * next. */
static enum err take_lock(struct folder *f, const char *path)
{
    struct fs_lock_over over = {sweep, f};
    struct fs_lock_found found;
    char words[FS_LOCK_WORDS];
    write_owner(words);
    TRY(fs_lock_take(&f->lock, path, words, NULL, &found));
    if (found.state == FS_LOCK_LEFT) {
        fs_lock_leave(&f->lock);
        TRY(check_left(f->o, &found));
        TRY(fs_lock_take(&f->lock, path, words, &over, &found));
    }
    if (found.state != FS_LOCK_TAKEN)
        return in_use(f->o->run.dir, found.words);
    f->taken = true;
    memcpy(f->dead, found.words, sizeof f->dead);
    return f->swept ? ERR_OK : folder_dead_sweep(f->o, f->dead);
}

/* ---- taking and leaving ---- */

/* Traces are of one start: those of the one before make room. */
static enum err move_traces(struct folder *f)
{
    char *trace;
    if (!f->o->train.trace)
        return ERR_OK;
    TRY(fs_join(f->o->run.dir, trace_name, &trace));
    enum err err = fs_named(trace) ? folder_move_aside(trace, trace, 1, &f->aside) : ERR_OK;
    if (err == ERR_OK && f->aside)
        log_line(LOG_WARN, "run.dir %s: the traces of a start before this one make room, as %s",
                 f->o->run.dir, f->aside);
    mem_free(trace);
    return err;
}

/* A start that has traced no step leaves those of before where they were. */
static void move_back(const struct folder *f)
{
    char *trace;
    if (!f->aside || fs_join(f->o->run.dir, trace_name, &trace) != ERR_OK)
        return;
    if (!fs_named(trace) && fs_sys_rename(f->aside, trace) == 0)
        log_line(LOG_WARN, "run.dir %s: %s is trace again, since this start traced no step",
                 f->o->run.dir, f->aside);
    mem_free(trace);
}

/* How one can go further where a run's folder is. */
static void say_further(const char *dir, struct text *out)
{
    if (folder_has_checkpoint(dir))
        text_add(out, "go on there with run.resume=auto, name another folder, or remove that one");
    else if (init_reads(dir))
        text_add(out, "it has no checkpoint to go on from, and weights that a run in another "
                      "folder can begin with by model.init=%s", dir);
    else
        text_add(out, "it has no checkpoint to go on from, so name another folder, or remove that "
                      "one");
}

static enum err refuse_run(const char *dir, const char *list)
{
    struct text further = {0};
    say_further(dir, &further);
    enum err err = further.err;
    if (err == ERR_OK)
        err = err_set(ERR_CONFIG, __FILE__, __LINE__, "run.dir %s holds a run already (%s); %s",
                      dir, list, further.s);
    text_free(&further);
    return err;
}

static enum err check_names(struct folder *f, const struct model *a, bool begins)
{
    struct taken t;
    f->goes_on = f->goes_on || (!begins && folder_goes_on(f->o));
    if (f->goes_on)
        return begins ? ERR_OK : move_traces(f);
    enum err err = list_taken(f->o, a, f->dead, begins, &t);
    const char *dir = f->o->run.dir;
    f->kept = t.kept;
    if (err == ERR_OK && t.list.len > 0 && t.run)
        err = refuse_run(dir, t.list.s);
    else if (err == ERR_OK && t.list.len > 0)
        err = err_set(ERR_CONFIG, __FILE__, __LINE__, "run.dir %s has %s already, which a run "
                      "would write over; name another folder, or move that away", dir, t.list.s);
    text_free(&t.list);
    return err;
}

enum err folder_take(struct folder *f, const struct options *o, const struct model *a)
{
    char *path;
    *f = (struct folder){.o = o, .lock = {.fd = -1}, .log = -1};
    TRY(folder_check_dir(o->run.dir));
    TRY(fs_make_dirs(o->run.dir));
    TRY(fs_join(o->run.dir, lock_name, &path));
    enum err err = take_lock(f, path);
    mem_free(path);
    if (err == ERR_OK)
        err = check_names(f, a, false);
    if (err != ERR_OK) {
        err_trail(__FILE__, __LINE__);
        folder_leave(f);
    }
    return err;
}

static enum err put(struct folder *f, enum folder_made name, const char *path,
                    const struct text *t)
{
    struct fs_file file;
    TRY(f->goes_on ? fs_create(&file, path) : fs_create_new(&file, path));
    enum err err = fs_write(&file, t->s, t->len);
    if (err == ERR_OK)
        err = fs_commit(&file);
    fs_abandon(&file);
    f->made[name] = file.placed && !f->goes_on;
    return err;
}

/* The start's files that are appended to. */
static enum err open_lines(const struct folder *f, const char *path, int *fd)
{
    return f->goes_on ? fs_log_open(path, fd) : fs_log_make(path, fd);
}

/* A run without a log is as good, but for what somebody has put under its name in a start. */
static enum err open_log(struct folder *f, const char *path)
{
    TRY(mem_string(path, &f->log_path));
    enum err err = open_lines(f, path, &f->log);
    if (err == ERR_STORAGE && (f->goes_on || !fs_named(path))) {
        log_line(LOG_WARN, "run.dir %s: what the run says is not kept: %s", f->o->run.dir,
                 err_bare(err_text()));
        f->log = -1;
        return ERR_OK;
    }
    f->made[FOLDER_LOG] = err == ERR_OK && !f->goes_on;
    return err;
}

/* words: of the descriptions, in the order of their names. */
static enum err make_file(struct folder *f, enum folder_made i, const char *path,
                          const struct text *words, int *metrics)
{
    if (i < FOLDER_LOG)
        return put(f, i, path, words);
    if (i == FOLDER_LOG)
        return open_log(f, path);
    TRY(open_lines(f, path, metrics));
    f->made[i] = !f->goes_on;
    return ERR_OK;
}

/* The descriptions, which the lock knows before they are there, the log and the metrics. */
static enum err make_files(struct folder *f, const struct text words[FOLDER_LOG], int *metrics)
{
    TRY(folder_dead_record(&f->lock, words, f->kept, &f->start));
    for (int i = f->kept; i < FOLDER_MADE; i++) {
        char *path;
        TRY(fs_join(f->o->run.dir, made_name[i], &path));
        enum err err = make_file(f, (enum folder_made)i, path, &words[i], metrics);
        if (f->made[FOLDER_METRICS])
            (void)fs_sys_fstat(*metrics, path, &f->metrics);
        mem_free(path);
        TRY(err);
    }
    return ERR_OK;
}

/* The starts before this one; a record that cannot be read is kept, and ends no start. */
static enum err read_record(struct folder *f)
{
    char *to = NULL;
    TRY(fs_join(f->o->run.dir, record_name, &f->record_path));
    if (!f->goes_on || !fs_named(f->record_path))
        return ERR_OK;
    enum err err = record_read(f->record_path, &f->record);
    if (err != ERR_DATA)
        return err;
    struct err_kept bad;
    err_keep(&bad, err);
    TRY(folder_set_aside(f->record_path, &to));
    log_line(LOG_WARN, "run.dir %s: the starts before this one cannot be read, and are kept as %s: "
                       "%s", f->o->run.dir, to, bad.text);
    mem_free(to);
    return ERR_OK;
}

static enum err make_words(struct folder *f, const struct setup *s, int64_t resumed,
                           struct text *facts, struct text words[FOLDER_LOG])
{
    TRY(config_text(f->o, s->model.vocab, s->tokenizer, &words[FOLDER_YAML]));
    TRY(hf_config_text(&s->model, SAFET_F32, tokenizer_end(s->tokenizer), &words[FOLDER_JSON]));
    TRY(read_record(f));
    TRY(text_done(facts, &f->record.facts));
    TRY(record_begin(&f->record, resumed));
    record_text(&f->record, &words[FOLDER_RECORD]);
    return words[FOLDER_RECORD].err;
}

enum err folder_begin(struct folder *f, const struct setup *s, int64_t resumed, struct text *facts,
                      int *metrics)
{
    struct text words[FOLDER_LOG] = {{0}};
    ENSURE(f->taken);
    TRY(folder_room(f, &s->model, resumed));
    TRY(check_names(f, &s->model, true)); /* opening devices takes its time, and so may disks */
    f->begun = true;
    enum err err = make_words(f, s, resumed, facts, words);
    if (err == ERR_OK && f->goes_on)
        err = folder_cut(f->o, resumed, &f->validated);
    if (err == ERR_OK)
        err = make_files(f, words, metrics);
    for (int i = 0; i < FOLDER_LOG; i++)
        text_free(&words[i]);
    return err;
}

/* Where the start comes to nothing it goes, and is to be known by what it wrote last. What somebody
 * has put in its place, or written into it, stays. */
static enum err end_record(struct folder *f, enum err code, const char *words)
{
    struct text t = {0};
    TRY(record_end(&f->record, f->done, code, words));
    record_text(&f->record, &t);
    enum err err = t.err;
    if (err == ERR_OK)
        err = fs_put(f->record_path, t.s, t.len);
    if (err == ERR_OK)
        f->start.record = folder_dead_hash(&t);
    text_free(&t);
    return err;
}

void folder_end(struct folder *f, enum err code, const char *words)
{
    bool its = f->record.n > 0 && fs_lock_stands(&f->lock) &&
               folder_dead_made(&f->start, record_name, f->record_path);
    if (its && end_record(f, code, words) != ERR_OK)
        log_line(LOG_WARN, "run.dir %s: run.json does not say how the run ended: %s", f->o->run.dir,
                 err_bare(err_text()));
}

/* No line of metrics? What somebody has put there, or moved away, may have been of steps. */
static bool is_unwritten(const struct folder *f, const char *path)
{
    struct stat st;
    return !f->made[FOLDER_METRICS] ||
           (is_there(path, &st) && st.st_dev == f->metrics.st_dev &&
            st.st_ino == f->metrics.st_ino && folder_dead_made(&f->start, metrics_name, path));
}

/* Did the run come to nothing: no line of metrics, no trace, no weights? */
static bool is_empty(const struct folder *f, char *path[NAMES])
{
    for (int i = 0; i < NAMES; i++) {
        struct stat st;
        if (names[i].name == metrics_name && !is_unwritten(f, path[i]))
            return false;
        if (names[i].when == FOLDER_ALWAYS || !writes(f->o, &names[i]) || !is_there(path[i], &st))
            continue;
        if (names[i].when != FOLDER_TRACE || folder_dead_traced(path[i]))
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
    bool empty = known && is_empty(f, path);
    for (int i = 0; empty && i < NAMES; i++)
        for (int k = 0; k < FOLDER_MADE; k++)
            if (f->made[k] && names[i].name == made_name[k] &&
                (k != FOLDER_LOG || fs_is_named(f->log, path[i])) &&
                folder_dead_made(&f->start, made_name[k], path[i]))
                (void)fs_sys_unlink(path[i]);
    for (int i = 0; i < NAMES; i++)
        mem_free(path[i]);
}

void folder_leave(struct folder *f)
{
    struct err_kept first;
    err_keep(&first, ERR_OK);
    bool stands = f->taken && fs_lock_stands(&f->lock); /* else the folder was moved away */
    if (stands && f->begun)
        remove_start(f);
    if (stands)
        move_back(f);
    if (f->taken && !f->begun && f->dead[0]) /* it was looked at, and is as dead as before */
        fs_lock_leave_words(&f->lock, f->dead);
    else if (f->o)
        fs_lock_leave(&f->lock);
    if (f->o && f->log >= 0 && fs_log_close(f->log, log_name) != ERR_OK)
        log_line(LOG_WARN, "%s", err_bare(err_text()));
    record_free(&f->record);
    mem_free(f->record_path);
    mem_free(f->log_path);
    mem_free(f->aside);
    *f = (struct folder){.lock = {.fd = -1}};
    (void)!err_again(&first);
}

/* ---- before a run ---- */

static void note_taken(const struct options *o, const struct fs_lock_found *found,
                       const struct taken *t, struct text *out)
{
    struct folder_owner w;
    enum folder_life life = folder_life(found, &w);
    const char *dir = o->run.dir;
    if (life == FOLDER_LIVES && w.pid)
        text_add(out, "run.dir %s is in use by the run of pid %ld on host %s, since %s", dir,
                 w.pid, w.host, w.since);
    else if (life == FOLDER_FOREIGN)
        text_add(out, "run.dir %s has %s already, which no run made", dir, lock_name);
    else if (life == FOLDER_UNSEEN)
        text_add(out, "run.dir %s was taken by the run of pid %ld on host %s, since %s, of which "
                      "it cannot be seen here whether it lives (run.takeover)", dir, w.pid, w.host,
                 w.since);
    else if (t->list.len > 0)
        text_add(out, t->run ? "run.dir %s holds a run already (%s)"
                             : "run.dir %s has %s already, which a run would write over",
                 dir, t->list.s);
    if (life == FOLDER_DIED && t->list.len > 0)
        text_add(out, "; the run of pid %ld, since %s, died there", w.pid, w.since);
}

enum err folder_note(const struct options *o, const struct model *a, struct text *out)
{
    struct fs_lock_found found;
    struct taken t;
    char *path;
    if (!o->run.dir[0])
        return ERR_OK;
    if (folder_check_dir(o->run.dir) == ERR_STORAGE) {
        text_add(out, "%s", err_text());
        return out->err;
    }
    TRY(fs_join(o->run.dir, lock_name, &path));
    fs_lock_look(path, &found);
    mem_free(path);
    enum err err = list_taken(o, a, found.state == FS_LOCK_LEFT ? found.words : "", false, &t);
    if (err == ERR_OK && folder_goes_on(o))
        text_free(&t.list);
    if (err == ERR_OK)
        note_taken(o, &found, &t, out);
    text_free(&t.list);
    return err == ERR_OK ? out->err : err;
}
