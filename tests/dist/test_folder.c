/* SPDX-License-Identifier: Apache-2.0
 *
 * The folder of a run belongs to that run. Every name that runs write, whatever stands there:
 * training refuses it and changes nothing, `check` notes it. Two runs in one folder: one ends well,
 * the other with the owner's name. What dead runs and failed starts leave does not stand in the
 * next one's way.
 */
#include "folder.h"

#include "base/fs.h"
#include "base/mem.h"
#include "folder/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *const base_set[] = {
    "model.layers=2", "model.hidden=16", "model.heads=2", "model.seq=8", "train.steps=2",
    "train.batch=2", "train.threads=1", "parallel.pp=2", "train.trace=true"};

static struct plait_config *config_of(const char *run, const char *const *set)
{
    folder_tokens("tokens.bin", "a braid of many strands\n", 80);
    struct plait_config *c = folder_config(run, "tokens.bin");
    folder_set(c, base_set, sizeof base_set / sizeof *base_set);
    if (set)
        folder_set(c, set, 100);
    return c;
}

static int train(const char *run, const char *const *set)
{
    struct folder_seen seen;
    return folder_train(config_of(run, set), &seen);
}

static void make_dir(const char *run, char path[FOLDER_PATH])
{
    folder_path(run, path);
    CHECK(mkdir(path, 0777) == 0);
}

static void put(const char *path, const char *words)
{
    FILE *f = fopen(path, "w");
    CHECK(f && fputs(words, f) >= 0 && fclose(f) == 0);
}

/* Names of a run's folder but "." and "..", -1 when it is none. */
static int entries(const char *run)
{
    char path[FOLDER_PATH];
    int n = -2;
    folder_path(run, path);
    DIR *d = opendir(path);
    for (; d && readdir(d); n++)
        continue;
    if (d)
        closedir(d);
    return d ? n : -1;
}

static bool holds(const char *run, const char *name)
{
    char path[FOLDER_PATH];
    struct stat st;
    folder_path_in(run, name, path);
    return lstat(path, &st) == 0;
}

/* ---- what stands there ---- */

enum thing { FILLED, EMPTY, FOLDER, PIPE, LINK, DANGLING, HARD_TOKENS, SOFT_TOKENS, TOKENS, CONFIG,
             THINGS };
static const char *const thing_name[THINGS] = {
    "a file", "an empty file", "a folder", "a pipe", "a link", "a link that leads nowhere",
    "a hard link to the tokens", "a link to the tokens", "the tokens", "the configuration"};

static void copy_tokens(const char *path)
{
    char tokens[FOLDER_PATH];
    struct fs_map m;
    folder_path("tokens.bin", tokens);
    CHECK_OK(fs_map_open(&m, tokens, ERR_DATA));
    CHECK_OK(fs_put(path, m.data, m.size));
    fs_map_close(&m);
}

static void put_thing(enum thing t, const char *path)
{
    char tokens[FOLDER_PATH], other[FOLDER_PATH];
    folder_path("tokens.bin", tokens);
    folder_path("other", other);
    switch (t) {
    case FILLED: put(path, "what somebody wrote\n"); break;
    case EMPTY: put(path, ""); break;
    case FOLDER: CHECK(mkdir(path, 0777) == 0); break;
    case PIPE: CHECK(mkfifo(path, 0666) == 0); break;
    case LINK: put(other, "not this run's\n"); CHECK(symlink(other, path) == 0); break;
    case DANGLING: CHECK(symlink("nowhere", path) == 0); break;
    case HARD_TOKENS: CHECK(link(tokens, path) == 0); break;
    case SOFT_TOKENS: CHECK(symlink(tokens, path) == 0); break;
    case TOKENS: copy_tokens(path); break;
    case CONFIG: put(path, "model:\n  layers: 2\n"); break;
    case THINGS: break;
    }
}

/* Size, inode and bytes of what a name is. */
struct state { struct stat st; uint64_t bytes; };

static void look(const char *path, struct state *out)
{
    struct fs_map m;
    *out = (struct state){.bytes = 0};
    CHECK(lstat(path, &out->st) == 0);
    if (fs_map_open(&m, path, ERR_DATA) != ERR_OK)
        return;
    for (int64_t i = 0; i < m.size; i++)
        out->bytes = out->bytes * 1099511628211u + m.data[i];
    fs_map_close(&m);
}

static struct plait_config *config_with(enum thing t, const char *run, const char *path)
{
    struct plait_config *c = config_of(run, NULL);
    char word[FOLDER_PATH + 64];
    const char *words[] = {word};
    snprintf(word, sizeof word, "data.train=%s", path);
    if (t == TOKENS)
        folder_set(c, words, 1);
    if (t == CONFIG)
        CHECK_INT(plait_config_read(c, path), 0);
    return c;
}

static void refuse(const char *name, enum thing t)
{
    struct folder_seen seen;
    struct state before, after;
    char run[64], dir[FOLDER_PATH], path[FOLDER_PATH], said[64], *report = NULL;
    snprintf(run, sizeof run, "%s-%d", name, (int)t);
    make_dir(run, dir);
    folder_path_in(run, name, path);
    put_thing(t, path);
    look(path, &before);
    struct plait_config *c = config_with(t, run, path);
    int checked = plait_config_check(c, 0, &report);
    snprintf(said, sizeof said, "%s%s", name, t == TOKENS || t == HARD_TOKENS ||
             t == SOFT_TOKENS ? " (its data.train)" : t == CONFIG ? " (its configuration)" : "");
    if (strcmp(name, "plait.lock") == 0)
        said[strlen(name)] = '\0';
    test_check(checked == 0 && strstr(report, "\nnote    run.dir ") && strstr(report, said),
               __FILE__, __LINE__, "%s is %s: check says %d, %s", name, thing_name[t],
               checked, report ? report : plait_error());
    plait_free(report);
    int code = folder_train(c, &seen);
    test_check(code == PLAIT_CONFIG && strstr(plait_error(), said), __FILE__, __LINE__,
               "%s is %s: %d, %s", name, thing_name[t], code, plait_error());
    look(path, &after);
    test_check(before.st.st_ino == after.st.st_ino && before.st.st_size == after.st.st_size &&
                   before.st.st_mode == after.st.st_mode && before.bytes == after.bytes,
               __FILE__, __LINE__, "%s is %s: changed", name, thing_name[t]);
    CHECK_INT(entries(run), 1); /* nothing else was written */
}

static void what_stands_there_stays(void)
{
    for (int i = 0; i < FOLDER_FILES; i++)
        for (int t = 0; t < THINGS; t++)
            refuse(folder_name[i], (enum thing)t);
}

/* What this run does not write is nobody's business. */
static void other_names_are_free(void)
{
    char path[FOLDER_PATH], other[FOLDER_PATH];
    const char *const plain[] = {"run.save=false", "train.trace=false", NULL};
    make_dir("free", path);
    for (int i = FOLDER_TRACE; i < FOLDER_FILES; i++) {
        folder_path_in("free", folder_name[i], other);
        put(other, "kept\n");
    }
    folder_path_in("free", "config.yaml.bak", other);
    put(other, "kept\n");
    folder_path_in("free", "model.safetensors.tmp.old", other);
    put(other, "kept\n");
    test_check(train("free", plain) == 0, __FILE__, __LINE__, "%s", plait_error());
    CHECK_INT(entries("free"), 10);
}

/* Its own configuration, when that already holds what would be written. */
static void an_equal_configuration_stays(void)
{
    char path[FOLDER_PATH], *yaml;
    struct folder_seen seen;
    struct state before, after;
    const char *const vocab[] = {"model.vocab=257", "data.tokenizer=bytes", NULL};
    make_dir("equal", path);
    folder_path_in("equal", "config.yaml", path);
    struct plait_config *c = config_of("equal", vocab);
    CHECK_INT(plait_config_print(c, &yaml), 0);
    put(path, yaml);
    look(path, &before);
    CHECK_INT(plait_config_read(c, path), 0);
    test_check(folder_train(c, &seen) == 0, __FILE__, __LINE__, "%s", plait_error());
    look(path, &after);
    CHECK(before.st.st_ino == after.st.st_ino && before.bytes == after.bytes);
    CHECK_INT(train("equal", vocab), PLAIT_CONFIG);
    plait_free(yaml);
}

/* check notes with code 0 what train refuses, in the same words. */
static void both_refuse(const char *run, const char *part)
{
    char word[FOLDER_PATH + 16], note[FOLDER_PATH * 4], *report = NULL;
    const char *const set[] = {word, NULL};
    snprintf(word, sizeof word, "run.dir=%s", run);
    const char *const *words = run[0] == '/' ? set : NULL;
    CHECK_INT(train(run, words), PLAIT_STORAGE);
    snprintf(note, sizeof note, "\nnote    %s: training refuses it\n", plait_error());
    CHECK(strstr(note, part) != NULL);
    struct plait_config *c = config_of(run, words);
    CHECK_INT(plait_config_check(c, 0, &report), 0);
    test_check(report && strstr(report, note), __FILE__, __LINE__, "%s: check says %s", note,
               report ? report : plait_error());
    plait_free(report);
    plait_config_free(c);
}

static void folders_that_are_none(void)
{
    char path[FOLDER_PATH], word[FOLDER_PATH + 16], name[300] = "";
    const char *const set[] = {word, NULL};
    folder_path("file", path);
    put(path, "");
    CHECK_INT(train("file", NULL), PLAIT_STORAGE);
    folder_path("astray", path);
    CHECK(symlink("nowhere", path) == 0);
    folder_path("circle", path);
    CHECK(symlink("circle", path) == 0);
    make_dir("unwritable", path);
    CHECK(chmod(path, 0555) == 0);
    both_refuse("file", "a file has that name");
    both_refuse("file/run", "a file has that name");
    both_refuse("file/a/b//c/", "a file has that name");
    both_refuse("astray", "leads nowhere");
    both_refuse("astray/run", "leads nowhere");
    both_refuse("astray/a/run", "leads nowhere");
    both_refuse("circle", "leads nowhere");
    both_refuse("circle/a/run", "too many levels");
    both_refuse(memset(name, 'n', sizeof name - 1), "name too long");
    both_refuse("/proc/x", "of the kernel (proc)");
    both_refuse("/proc/a/b", "of the kernel (proc)");
    both_refuse("/sys/x", "of the kernel (sysfs)");
    both_refuse("/dev/null/x", "a file has that name");
    if (geteuid() != 0) {
        both_refuse("unwritable", "permission denied");
        both_refuse("unwritable/a/b", "permission denied");
    }
    folder_path("slashes", path);
    snprintf(word, sizeof word, "run.dir=%s//", path);
    CHECK_INT(train("x", set), 0);
    CHECK(holds("slashes", "model.safetensors"));
}

/* ---- two runs ---- */

/* The program, by an exec: threads and locks of this process are none of its. fail: a word of
 * PLAIT_FAIL_FS, or NULL. */
static pid_t start(const char *run, const char *const *set, const char *fail)
{
    char program[] = PLAIT_PROGRAM, verb[] = "train", word[32][FOLDER_PATH + 64];
    char *argv[36] = {program, verb}, path[FOLDER_PATH];
    int n = 0;
    folder_tokens("tokens.bin", "a braid of many strands\n", 80);
    folder_path("tokens.bin", path);
    snprintf(word[n++], sizeof word[0], "data.train=%s", path);
    folder_path(run, path);
    snprintf(word[n++], sizeof word[0], "run.dir=%s", path);
    for (size_t i = 0; i < sizeof base_set / sizeof *base_set; i++)
        snprintf(word[n++], sizeof word[0], "%s", base_set[i]);
    for (; set && *set; set++)
        snprintf(word[n++], sizeof word[0], "%s", *set);
    for (int i = 0; i < n; i++)
        argv[2 + i] = word[i];
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        alarm(60);
        int null = open("/dev/null", O_RDWR);
        if (null < 0 || dup2(null, STDOUT_FILENO) < 0 || dup2(null, STDERR_FILENO) < 0 ||
            (fail && setenv("PLAIT_FAIL_FS", fail, 1) != 0))
            _exit(126);
        execv(program, argv);
        _exit(127);
    }
    CHECK(child > 0);
    return child;
}

static int end_of(pid_t child)
{
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* Lines of metrics, each a whole one with the number behind that of the line before. */
static int whole_lines(const char *run)
{
    char path[FOLDER_PATH], line[4096];
    long long step = 0, was = 0;
    folder_path_in(run, "metrics.jsonl", path);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f)) {
        if (!strstr(line, "\"loss\""))
            continue;
        CHECK(sscanf(line, "{\"step\": %lld,", &step) == 1 && step == was + 1);
        CHECK(line[strlen(line) - 1] == '\n');
        was = step;
    }
    if (f)
        fclose(f);
    return (int)was;
}

/* Started at one moment, again and again. */
static void of_two_runs_one_is_refused(void)
{
    const char *const set[] = {"train.steps=40", "train.trace=true", NULL};
    for (int i = 0; i < 6; i++) {
        char run[32];
        snprintf(run, sizeof run, "pair%d", i);
        pid_t a = start(run, set, NULL), b = start(run, set, NULL);
        int first = end_of(a), second = end_of(b);
        int won = first == 0 ? second : first;
        test_check((first == 0) != (second == 0) && (won == PLAIT_LOCKED || won == PLAIT_CONFIG),
                   __FILE__, __LINE__, "pair %d: %d and %d", i, first, second);
        CHECK_INT(whole_lines(run), 40);
        CHECK_INT(entries(run), 8);
    }
}

/* Does check say these words? */
static bool noted(const char *run, const char *const *set, const char *words)
{
    char *report = NULL;
    struct plait_config *c = config_of(run, set);
    CHECK_INT(plait_config_check(c, 0, &report), 0);
    bool said = report && strstr(report, words);
    plait_free(report);
    plait_config_free(c);
    return said;
}

static void the_owner_is_named(void)
{
    char pid[32], record[32];
    const char *const set[] = {"train.steps=1000000", NULL};
    const char *const over[] = {"run.takeover=true", NULL};
    pid_t child = start("held", set, NULL);
    for (int i = 0; i < 20000 && whole_lines("held") == 0; i++)
        usleep(1000);
    snprintf(pid, sizeof pid, "pid %ld on host ", (long)child);
    snprintf(record, sizeof record, "\npid %ld\n", (long)child);
    CHECK_INT(train("held", NULL), PLAIT_LOCKED);
    CHECK(strstr(plait_error(), pid) && strstr(plait_error(), "since 2"));
    CHECK_INT(train("held", over), PLAIT_LOCKED); /* it lives */
    CHECK(noted("held", NULL, "is in use by the run of pid") && noted("held", NULL, pid));
    CHECK(kill(child, SIGKILL) == 0);
    CHECK_INT(end_of(child), -SIGKILL);
    CHECK(holds("held", "plait.lock"));
    for (int i = 0; i < 2; i++) { /* its metrics are there, and that it died is not forgotten */
        CHECK_INT(train("held", NULL), PLAIT_CONFIG);
        CHECK(strstr(plait_error(), "holds a run already") && holds("held", "plait.lock"));
        CHECK(folder_times("held", "plait.lock", record));
    }
}

/* Of a run on a host whose processes cannot be asked. */
static void another_hosts_lock(void)
{
    char path[FOLDER_PATH];
    const char *const over[] = {"run.takeover=true", NULL};
    make_dir("far", path);
    folder_path_in("far", "plait.lock", path);
    put(path, "plait run\nhost elsewhere.example\npid 77\nsince 2026-01-02T03:04:05Z\n");
    CHECK_INT(train("far", NULL), PLAIT_LOCKED);
    CHECK(strstr(plait_error(), "pid 77 on host elsewhere.example, since 2026-01-02T03:04:05Z") &&
          strstr(plait_error(), "run.takeover=true"));
    CHECK_INT(entries("far"), 1);
    CHECK(noted("far", NULL, "elsewhere.example, since 2026-01-02T03:04:05Z, and from host "));
    CHECK(!noted("far", over, "\nnote    run.dir ")); /* nothing stands against it */
    test_check(train("far", over) == 0, __FILE__, __LINE__, "%s", plait_error());
    CHECK(!holds("far", "plait.lock") && holds("far", "model.safetensors"));
    folder_path_in("far", "config.yaml", path);
    struct fs_map m;
    CHECK_OK(fs_map_open(&m, path, ERR_CONFIG));
    CHECK(memmem(m.data, (size_t)m.size, "takeover: false", 15) != NULL);
    fs_map_close(&m);
}

/* ---- what dead runs and failed starts leave ---- */

static void put_temporaries(const char *run, long pid)
{
    char path[FOLDER_PATH], name[80];
    for (int i = 1; i < FOLDER_FILES; i++) {
        snprintf(name, sizeof name, "%s.tmp.%ld.%d", folder_name[i], pid, i);
        folder_path_in(run, name, path);
        put(path, "half a li");
    }
}

static void put_lock(const char *run, const char *name, long pid)
{
    char path[FOLDER_PATH], host[65] = "", words[128];
    CHECK(gethostname(host, 64) == 0);
    snprintf(words, sizeof words, "plait run\nhost %s\npid %ld\nsince 2026-01-02T03:04:05Z\n", host,
             pid);
    folder_path_in(run, name, path);
    put(path, words);
}

/* Those with the pid of the run that died there, and no others. */
static void half_written_files_of_the_dead_go(void)
{
    enum { DEAD = 999999998, OTHER = 999999997 };
    char path[FOLDER_PATH];
    make_dir("dead", path);
    put_temporaries("dead", DEAD);
    put_temporaries("dead", OTHER);
    put_lock("dead", "plait.lock", DEAD);
    put_lock("dead", "plait.lock.tmp.999999997.1", OTHER); /* died before it had the name */
    put_lock("dead", "plait.lock.tmp.999999996.1", OTHER); /* somebody else's */
    test_check(train("dead", NULL) == 0, __FILE__, __LINE__, "%s", plait_error());
    CHECK_INT(entries("dead"), 8 + (FOLDER_FILES - 1) + 1);
    CHECK(holds("dead", "model.safetensors.tmp.999999997.7"));
    make_dir("none-dead", path);
    put_temporaries("none-dead", OTHER);
    folder_path_in("none-dead", "model.safetensors.tmp.1.2", path);
    put(path, "what somebody wrote");
    test_check(train("none-dead", NULL) == 0, __FILE__, __LINE__, "%s", plait_error());
    CHECK_INT(entries("none-dead"), 8 + (FOLDER_FILES - 1) + 1);
}

/* Entries but empty locks that nobody had the name for yet. */
static int entries_but_locks(const char *run)
{
    char path[FOLDER_PATH], command[FOLDER_PATH + 96];
    folder_path(run, path);
    snprintf(command, sizeof command, "find '%s' -name 'plait.lock.tmp.*' -empty -delete", path);
    CHECK_INT(system(command), 0);
    return entries(run);
}

/* A start that is killed at every call on files in turn: before the first step is over the next run
 * goes through and is whole; behind it the dead run stays, and is remembered. */
static void a_killed_start_blocks_nothing(void)
{
    int code = -SIGKILL, starts = 0, runs = 0;
    for (int n = 1; code == -SIGKILL && n < 400; n++) {
        char run[32], fail[32], *report = NULL;
        snprintf(run, sizeof run, "killed%d", n);
        snprintf(fail, sizeof fail, "%d:KILL", n);
        code = end_of(start(run, NULL, fail));
        if (code != -SIGKILL)
            break;
        bool stepped = whole_lines(run) > 0, died = holds(run, "plait.lock");
        struct plait_config *c = config_of(run, NULL);
        CHECK_INT(plait_config_check(c, 0, &report), 0);
        test_check(stepped == (report && strstr(report, "\nnote    run.dir ") != NULL), __FILE__,
                   __LINE__, "call %d, %d lines: check says %s", n, stepped, report);
        plait_free(report);
        plait_config_free(c);
        int next = train(run, NULL);
        test_check(next == (stepped ? PLAIT_CONFIG : 0), __FILE__, __LINE__,
                   "call %d, %d lines: the next run ends with %d, %s", n, stepped, next,
                   plait_error());
        CHECK_INT(holds(run, "plait.lock"), stepped && died);
        if (!stepped)
            CHECK_INT(entries_but_locks(run), 8);
        starts += !stepped;
        runs += stepped;
    }
    CHECK_INT(code, 0);
    test_check(starts > 10 && runs > 3, __FILE__, __LINE__, "%d starts, %d runs", starts, runs);
}

/* What was put in place of what a dead start left is not taken for it. */
static void what_was_put_there_since_stays(void)
{
    static const char *const name[] = {"config.yaml", "config.json", "metrics.jsonl", "run.json",
                                       "log.txt", "model.safetensors", "trace/notes"};
    for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
        char run[32], path[FOLDER_PATH];
        snprintf(run, sizeof run, "since%d", (int)i);
        CHECK_INT(end_of(start(run, NULL, "keep@model.safe:1:KILL")), -SIGKILL);
        CHECK(holds(run, "config.yaml") && holds(run, "metrics.jsonl"));
        folder_path_in(run, "trace", path);
        CHECK_OK(fs_make_dirs(path));
        folder_path_in(run, name[i], path);
        put(path, "mine\n");
        CHECK_INT(train(run, NULL), PLAIT_CONFIG);
        CHECK(folder_times(run, name[i], "mine\n"));
    }
}

/* A start that fails, at every writing call in turn: what it made is gone, and the next run is
 * whole. */
static const struct fs_ops *under;
static long fail_at, calls;

static int64_t failing_write(int fd, const void *p, int64_t n, int64_t at)
{
    if (++calls >= fail_at) {
        errno = ENOSPC;
        return calls == fail_at && n > 1 ? under->write(fd, p, n / 2, at) : -1;
    }
    return under->write(fd, p, n, at);
}

static void a_failed_start_leaves_nothing(void)
{
    struct fs_ops ops = *fs_ops;
    const char *const one[] = {"parallel.pp=1", "run.save=false", NULL};
    int code = PLAIT_STORAGE;
    CHECK_INT(train("before", one), 0);
    int logged = folder_times("before", "log.txt", "\n");
    under = fs_ops;
    ops.write = failing_write;
    for (fail_at = 1; fail_at < 100; fail_at++) {
        calls = 0;
        fs_ops = &ops;
        code = train("begun", one);
        fs_ops = under;
        if (calls < fail_at)
            break;
        bool told = folder_times("begun", "log.txt", "\n") == logged &&
                    folder_times("begun", "run.json", "\"exit\": 0") > 0;
        test_check(code == PLAIT_STORAGE || (code == 0 && !told), __FILE__, __LINE__,
                   "call %ld: %d", fail_at, code); /* that the log or the end is lost is no error */
        int steps = whole_lines("begun");
        test_check(steps > 0 || entries("begun") == 0, __FILE__, __LINE__, "call %ld: %d left",
                   fail_at, entries("begun"));
        if (steps > 0)
            folder_remove("begun");
    }
    CHECK(fail_at > 5);
    CHECK_INT(whole_lines("begun"), 2);
    CHECK_INT(entries("begun"), 6);
}

static const struct test_case cases[] = {
    {"what_stands_there_stays", what_stands_there_stays},
    {"other_names_are_free", other_names_are_free},
    {"an_equal_configuration_stays", an_equal_configuration_stays},
    {"folders_that_are_none", folders_that_are_none},
    {"of_two_runs_one_is_refused", of_two_runs_one_is_refused},
    {"the_owner_is_named", the_owner_is_named},
    {"another_hosts_lock", another_hosts_lock},
    {"half_written_files_of_the_dead_go", half_written_files_of_the_dead_go},
    {"a_killed_start_blocks_nothing", a_killed_start_blocks_nothing},
    {"what_was_put_there_since_stays", what_was_put_there_since_stays},
    {"a_failed_start_leaves_nothing", a_failed_start_leaves_nothing},
};
TEST_MAIN(cases)
