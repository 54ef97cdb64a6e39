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
#include "run/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static struct plait_config *config_of(const char *run, const char *const *set)
{
    static const char *const base[] = {
        "model.layers=2", "model.hidden=16", "model.heads=2", "model.seq=8", "train.steps=2",
        "train.batch=2", "train.threads=1", "parallel.pp=2", "train.trace=true"};
    folder_tokens("tokens.bin", "a braid of many strands\n", 80);
    struct plait_config *c = folder_config(run, "tokens.bin");
    folder_set(c, base, sizeof base / sizeof *base);
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

static void refuse(const struct folder_name *name, enum thing t)
{
    struct folder_seen seen;
    struct state before, after;
    char run[64], dir[FOLDER_PATH], path[FOLDER_PATH], said[64], *report = NULL;
    snprintf(run, sizeof run, "%s-%d", name->name, (int)t);
    make_dir(run, dir);
    folder_path_in(run, name->name, path);
    put_thing(t, path);
    look(path, &before);
    struct plait_config *c = config_with(t, run, path);
    int checked = plait_config_check(c, 0, &report);
    snprintf(said, sizeof said, "%s%s", name->name, t == TOKENS || t == HARD_TOKENS ||
             t == SOFT_TOKENS ? " (its data.train)" : t == CONFIG ? " (its configuration)" : "");
    if (strcmp(name->name, "plait.lock") == 0)
        said[strlen(name->name)] = '\0';
    test_check(checked == 0 && strstr(report, "\nnote    run.dir ") && strstr(report, said),
               __FILE__, __LINE__, "%s is %s: check says %d, %s", name->name, thing_name[t],
               checked, report ? report : plait_error());
    plait_free(report);
    int code = folder_train(c, &seen);
    test_check(code == PLAIT_CONFIG && strstr(plait_error(), said), __FILE__, __LINE__,
               "%s is %s: %d, %s", name->name, thing_name[t], code, plait_error());
    look(path, &after);
    test_check(before.st.st_ino == after.st.st_ino && before.st.st_size == after.st.st_size &&
                   before.st.st_mode == after.st.st_mode && before.bytes == after.bytes,
               __FILE__, __LINE__, "%s is %s: changed", name->name, thing_name[t]);
    CHECK_INT(entries(run), 1); /* nothing else was written */
}

static void what_stands_there_stays(void)
{
    CHECK(folder_names() >= 6);
    for (int i = 0; i < folder_names(); i++)
        for (int t = 0; t < THINGS; t++)
            refuse(folder_name_at(i), (enum thing)t);
}

/* What this run does not write is nobody's business. */
static void other_names_are_free(void)
{
    char path[FOLDER_PATH], other[FOLDER_PATH];
    const char *const plain[] = {"run.save=false", "train.trace=false", NULL};
    make_dir("free", path);
    for (int i = 0; i < folder_names(); i++) {
        const struct folder_name *n = folder_name_at(i);
        folder_path_in("free", n->name, other);
        if (n->when != FOLDER_ALWAYS)
            put(other, "kept\n");
    }
    folder_path_in("free", "config.yaml.bak", other);
    put(other, "kept\n");
    folder_path_in("free", "model.safetensors.tmp.old", other);
    put(other, "kept\n");
    test_check(train("free", plain) == 0, __FILE__, __LINE__, "%s", plait_error());
    CHECK_INT(entries("free"), 7);
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

static void folders_that_are_none(void)
{
    char path[FOLDER_PATH], word[FOLDER_PATH + 16];
    const char *const set[] = {word, NULL};
    folder_path("file", path);
    put(path, "");
    CHECK_INT(train("file", NULL), PLAIT_STORAGE);
    CHECK(strstr(plait_error(), "a file has that name") != NULL);
    CHECK_INT(train("file/run", NULL), PLAIT_STORAGE);
    folder_path("astray", path);
    CHECK(symlink("nowhere", path) == 0);
    CHECK_INT(train("astray", NULL), PLAIT_STORAGE);
    CHECK(strstr(plait_error(), "leads nowhere") != NULL);
    struct plait_config *c = config_of("astray", NULL);
    char *report = NULL;
    CHECK_INT(plait_config_check(c, 0, &report), 0);
    CHECK(report && strstr(report, "/astray is no folder"));
    plait_free(report);
    plait_config_free(c);
    folder_path("slashes", path);
    snprintf(word, sizeof word, "run.dir=%s//", path);
    CHECK_INT(train("x", set), 0);
    CHECK(holds("slashes", "model.safetensors"));
}

/* ---- two runs ---- */

static pid_t start(const char *run, const char *const *set)
{
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        alarm(60);
        _exit(train(run, set));
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

static void wait_for(const char *run, const char *name)
{
    for (int i = 0; i < 20000 && !holds(run, name); i++)
        usleep(1000);
    CHECK(holds(run, name));
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
/* NEEDSWORK: under AddressSanitizer a forked child that trained without an exec stood still once
 * in a dozen pairs; whether that is the sanitizer's fork is not known. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { FORKS = 0 };
#else
enum { FORKS = 1 };
#endif

static void of_two_runs_one_is_refused(void)
{
    if (!FORKS) {
        test_skip("a forked child that trains may stand still under a sanitizer");
        return;
    }
    const char *const set[] = {"train.steps=40", "train.trace=true", NULL};
    for (int i = 0; i < 6; i++) {
        char run[32];
        snprintf(run, sizeof run, "pair%d", i);
        pid_t a = start(run, set), b = start(run, set);
        int first = end_of(a), second = end_of(b);
        int won = first == 0 ? second : first;
        test_check((first == 0) != (second == 0) && (won == PLAIT_LOCKED || won == PLAIT_CONFIG),
                   __FILE__, __LINE__, "pair %d: %d and %d", i, first, second);
        CHECK_INT(whole_lines(run), 40);
        CHECK_INT(entries(run), 5);
    }
}

static void the_owner_is_named(void)
{
    char pid[32];
    const char *const set[] = {"train.steps=1000000", NULL};
    const char *const over[] = {"run.takeover=true", NULL};
    pid_t child = start("held", set);
    wait_for("held", "metrics.jsonl");
    snprintf(pid, sizeof pid, "pid %ld on host ", (long)child);
    CHECK_INT(train("held", NULL), PLAIT_LOCKED);
    CHECK(strstr(plait_error(), pid) && strstr(plait_error(), "since 2"));
    CHECK_INT(train("held", over), PLAIT_LOCKED); /* it lives */
    struct plait_config *c = config_of("held", NULL);
    char *report = NULL;
    CHECK_INT(plait_config_check(c, 0, &report), 0);
    CHECK(report && strstr(report, "is in use by the run of pid") && strstr(report, pid));
    plait_free(report);
    plait_config_free(c);
    CHECK(kill(child, SIGKILL) == 0);
    CHECK_INT(end_of(child), -SIGKILL);
    CHECK(holds("held", "plait.lock"));
    CHECK_INT(train("held", NULL), PLAIT_CONFIG); /* its metrics are there */
    CHECK(!holds("held", "plait.lock"));
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
    test_check(train("far", over) == 0, __FILE__, __LINE__, "%s", plait_error());
    CHECK(!holds("far", "plait.lock") && holds("far", "model.safetensors"));
    folder_path_in("far", "config.yaml", path);
    struct fs_map m;
    CHECK_OK(fs_map_open(&m, path, ERR_CONFIG));
    CHECK(memmem(m.data, (size_t)m.size, "takeover: false", 15) != NULL);
    fs_map_close(&m);
}

/* ---- what dead runs and failed starts leave ---- */

static void half_written_files_of_the_dead_go(void)
{
    char path[FOLDER_PATH], name[80];
    char host[65] = "";
    make_dir("dead", path);
    for (int i = 0; i < folder_names(); i++) {
        snprintf(name, sizeof name, "%s.tmp.999999999.%d", folder_name_at(i)->name, i);
        folder_path_in("dead", name, path);
        put(path, "half a li");
    }
    CHECK(gethostname(host, 64) == 0);
    snprintf(name, sizeof name, "plait run\nhost %.20s\npid 7\nsince 2026-01-02T03:04:05Z\n", host);
    folder_path_in("dead", "plait.lock", path);
    put(path, name);
    test_check(train("dead", NULL) == 0, __FILE__, __LINE__, "%s", plait_error());
    CHECK_INT(entries("dead"), 5);
}

/* A start that fails, at every writing call in turn: what it made is gone, and the next run is
 * whole. */
static const struct fs_ops *under;
static long fail_at, calls;

static int64_t failing_write(int fd, const void *p, int64_t n)
{
    if (++calls >= fail_at) {
        errno = ENOSPC;
        return calls == fail_at && n > 1 ? under->write(fd, p, n / 2) : -1;
    }
    return under->write(fd, p, n);
}

static void a_failed_start_leaves_nothing(void)
{
    struct fs_ops ops = *fs_ops;
    const char *const one[] = {"parallel.pp=1", "run.save=false", NULL};
    int code = PLAIT_STORAGE;
    CHECK_INT(train("before", one), 0);
    under = fs_ops;
    ops.write = failing_write;
    for (fail_at = 1; code != 0 && fail_at < 100; fail_at++) {
        calls = 0;
        fs_ops = &ops;
        code = train("begun", one);
        fs_ops = under;
        if (code == 0)
            break;
        CHECK_INT(code, PLAIT_STORAGE);
        int steps = whole_lines("begun");
        test_check(steps > 0 || entries("begun") == 0, __FILE__, __LINE__, "call %ld: %d left",
                   fail_at, entries("begun"));
        char path[FOLDER_PATH], command[FOLDER_PATH + 16];
        folder_path("begun", path);
        snprintf(command, sizeof command, "rm -rf '%s'", path);
        if (steps > 0)
            CHECK_INT(system(command), 0);
    }
    CHECK(fail_at > 5);
    CHECK_INT(whole_lines("begun"), 2);
    CHECK_INT(entries("begun"), 4);
}

static int64_t little_space(const char *dir)
{
    (void)dir;
    return 10000;
}

static void room_for_the_weights_is_asked(void)
{
    struct fs_ops ops = *fs_ops;
    const char *const unsaved[] = {"run.save=false", NULL};
    under = fs_ops;
    ops.space = little_space;
    fs_ops = &ops;
    CHECK_INT(train("small", NULL), PLAIT_STORAGE);
    CHECK(strstr(plait_error(), "the weights take ") && strstr(plait_error(), " has 9.8 KiB free"));
    CHECK_INT(entries("small"), 0);
    CHECK_INT(train("small", unsaved), 0);
    fs_ops = under;
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
    {"a_failed_start_leaves_nothing", a_failed_start_leaves_nothing},
    {"room_for_the_weights_is_asked", room_for_the_weights_is_asked},
};
FOLDER_MAIN(cases)
