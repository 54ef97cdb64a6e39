/* SPDX-License-Identifier: Apache-2.0
 *
 * What somebody puts under one of a run's names while it starts or is under way stays as it is,
 * whatever it is: a start ends there and takes nothing of it away, and weights stay too, whole,
 * under the name that the run says.
 */
#include "folder.h"

#include "base/fs.h"
#include "ckpt/ckpt.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum thing { FILLED, EMPTY, FOLDER, PIPE, DANGLING, SOFT_TOKENS, HARD_TOKENS, THINGS };
static const char *const thing_name[THINGS] = {
    "a file", "an empty file", "a folder", "a pipe", "a link that leads nowhere",
    "a link to the tokens", "a hard link to the tokens"};

static void put(enum thing t, const char *path)
{
    char tokens[FOLDER_PATH];
    folder_path("tokens", tokens);
    switch (t) {
    case FILLED: CHECK_OK(fs_put(path, "what somebody wrote\n", 20)); break;
    case EMPTY: CHECK_OK(fs_put(path, "", 0)); break;
    case FOLDER: CHECK(mkdir(path, 0777) == 0); break;
    case PIPE: CHECK(mkfifo(path, 0666) == 0); break;
    case DANGLING: CHECK(symlink("nowhere", path) == 0); break;
    case SOFT_TOKENS: CHECK(symlink(tokens, path) == 0); break;
    case HARD_TOKENS: CHECK(link(tokens, path) == 0); break;
    case THINGS: break;
    }
}

struct there { enum thing what; bool roomless; char path[FOLDER_PATH]; struct stat st; };

static void on_step(void *arg, const struct plait_step *s)
{
    struct there *t = arg;
    char run[FOLDER_PATH], command[2 * FOLDER_PATH];
    if (s->step != 1)
        return;
    snprintf(run, sizeof run, "%.*s", (int)(strrchr(t->path, '/') - t->path), t->path);
    snprintf(command, sizeof command, "rm '%s'/*.tmp.*", run);
    CHECK(!t->roomless || system(command) == 0);
    put(t->what, t->path);
    CHECK(lstat(t->path, &t->st) == 0);
}

static void check_weights(const char *what)
{
    char path[FOLDER_PATH] = "";
    const char *at = strstr(plait_error(), "it is whole in ");
    struct safet_file f = {0};
    bool named = at && sscanf(at, "it is whole in %511[^,], move it", path) == 1;
    test_check(named && strstr(path, "model.safetensors.tmp.") && safet_open(&f, path) == ERR_OK,
               __FILE__, __LINE__, "%s: %s", what, plait_error());
    safet_close(&f);
}

static struct plait_config *config(const char *run)
{
    static const char *const words[] = {
        "model.layers=2", "model.hidden=16", "model.heads=2", "model.seq=8", "train.steps=2",
        "train.batch=2", "train.threads=1", "parallel.pp=2"};
    folder_tokens("tokens", "a braid of many strands\n", 80);
    struct plait_config *c = folder_config(run, "tokens");
    folder_set(c, words, sizeof words / sizeof *words);
    return c;
}

static void check_same(const struct there *t)
{
    struct stat now;
    test_check(lstat(t->path, &now) == 0 && now.st_ino == t->st.st_ino &&
                   now.st_mode == t->st.st_mode && now.st_size == t->st.st_size,
               __FILE__, __LINE__, "%s is %s: changed", t->path,
               t->what < THINGS ? thing_name[t->what] : "written to");
}

/* roomless: the file that keeps the weights' room is removed. */
static void run_under(enum thing what, bool roomless)
{
    struct there t = {.what = what, .roomless = roomless};
    char run[32];
    snprintf(run, sizeof run, "run%d-%d", (int)what, roomless);
    folder_path_in(run, "model.safetensors", t.path);
    struct plait_config *c = config(run);
    int code = plait_train(c, &(struct plait_train){.size = sizeof(struct plait_train),
                                                    .on_step = on_step, .arg = &t});
    test_check(code == PLAIT_STORAGE && strstr(plait_error(), "file exists"), __FILE__, __LINE__,
               "%s: %d, %s", thing_name[what], code, plait_error());
    check_weights(thing_name[what]);
    check_same(&t);
    plait_config_free(c);
}

static void what_comes_meanwhile_stays(void)
{
    for (int t = 0; t < 2 * THINGS; t++)
        run_under((enum thing)(t / 2), t % 2 == 1);
}

/* ---- another run in a folder of that name ---- */

static void on_step_another(void *arg, const struct plait_step *s)
{
    char run[FOLDER_PATH], away[FOLDER_PATH], path[FOLDER_PATH];
    if (s->step != 1)
        return;
    folder_path("here", run);
    folder_path("away", away);
    folder_path_in("here", arg, path);
    CHECK(rename(run, away) == 0 && mkdir(run, 0777) == 0);
    CHECK_OK(fs_put(path, "another run's\n", 14));
}

static void weights_are_put_in_no_other_run(void)
{
    static const char *const theirs[] = {"config.yaml", "plait.lock"};
    for (int i = 0; i < 2; i++) {
        char path[FOLDER_PATH], name[16];
        snprintf(name, sizeof name, "%s", theirs[i]);
        struct plait_config *c = config("here");
        int code = plait_train(c, &(struct plait_train){.size = sizeof(struct plait_train),
                                                        .on_step = on_step_another, .arg = name});
        test_check(code == PLAIT_STORAGE && strstr(plait_error(), "is of another run"), __FILE__,
                   __LINE__, "%s: %d, %s", name, code, plait_error());
        check_weights(name);
        folder_path_in("here", "model.safetensors", path);
        CHECK(!fs_exists(path));
        folder_path_in("here", name, path);
        CHECK(fs_exists(path));
        plait_config_free(c);
        folder_remove("here");
        folder_remove("away");
    }
}

/* ---- while it starts ---- */

static struct there coming;
static const struct fs_ops *under;

/* Asked once by a start, behind its look at the names. */
static int64_t space_and_more(const char *dir)
{
    put(coming.what, coming.path);
    CHECK(lstat(coming.path, &coming.st) == 0);
    return under->space(dir);
}

static void start_under(const char *name, enum thing what)
{
    struct fs_ops ops = *fs_ops;
    struct folder_seen seen;
    char run[32], dir[FOLDER_PATH];
    static int runs;
    snprintf(run, sizeof run, "start%d", runs++);
    coming.what = what;
    folder_path_in(run, name, coming.path);
    struct plait_config *c = config(run);
    under = fs_ops;
    ops.space = space_and_more;
    fs_ops = &ops;
    int code = folder_train(c, &seen);
    fs_ops = under;
    test_check(code == PLAIT_CONFIG && strstr(plait_error(), name), __FILE__, __LINE__,
               "%s is %s: %d, %s", name, thing_name[what], code, plait_error());
    check_same(&coming);
    CHECK(unlink(coming.path) == 0 || rmdir(coming.path) == 0);
    folder_path(run, dir);
    test_check(rmdir(dir) == 0, __FILE__, __LINE__, "%s is %s: the start left something", name,
               thing_name[what]);
}

static void what_comes_in_a_start_stays(void)
{
    static const char *const names[] = {"config.yaml", "config.json", "metrics.jsonl",
                                        "run.json", "log.txt"};
    for (int i = 0; i < 5; i++)
        for (int t = 0; t < THINGS; t++)
            start_under(names[i], (enum thing)t);
}

/* ---- under the names that a start has made, which then fails ---- */

/* Room for the weights is asked for when the two descriptions and the metrics are there. */
static int keep_none(int fd, int64_t n)
{
    (void)fd;
    (void)n;
    if (coming.what == THINGS) {
        int log = open(coming.path, O_WRONLY | O_APPEND);
        CHECK(log >= 0 && write(log, "# mine", 6) == 6 && close(log) == 0);
    } else {
        CHECK(unlink(coming.path) == 0);
        put(coming.what, coming.path);
    }
    CHECK(lstat(coming.path, &coming.st) == 0);
    errno = ENOSPC;
    return -1;
}

/* what THINGS: the file itself is written to. */
static void fail_under(const char *name, enum thing what)
{
    static const char *const names[] = {"config.yaml", "config.json", "metrics.jsonl",
                                        "run.json", "log.txt"};
    struct fs_ops ops = *fs_ops;
    struct folder_seen seen;
    char run[32], dir[FOLDER_PATH];
    bool lines = strcmp(name, "metrics.jsonl") == 0; /* may be of steps: all stays */
    snprintf(run, sizeof run, "fails-%d-%.10s", (int)what, name);
    coming.what = what;
    folder_path_in(run, name, coming.path);
    struct plait_config *c = config(run);
    under = fs_ops;
    ops.keep = keep_none;
    fs_ops = &ops;
    int code = folder_train(c, &seen);
    fs_ops = under;
    test_check(code == PLAIT_STORAGE && strstr(plait_error(), "no space left"), __FILE__, __LINE__,
               "%s, %d: %d, %s", name, (int)what, code, plait_error());
    check_same(&coming);
    for (int i = 0; i < 5; i++)
        test_check(folder_has(run, names[i]) == (lines || strcmp(names[i], name) == 0) ||
                       strcmp(names[i], name) == 0, __FILE__, __LINE__, "%s, %d: %s", name,
                   (int)what, names[i]);
    CHECK(!folder_has(run, "plait.lock") && folder_count(run, ".tmp.") == 0);
    folder_path(run, dir);
    CHECK(lines || unlink(coming.path) == 0 || rmdir(coming.path) == 0);
    test_check(lines || rmdir(dir) == 0, __FILE__, __LINE__, "%s, %d: the start left something",
               name, (int)what);
}

static void what_comes_before_a_start_fails_stays(void)
{
    static const char *const names[] = {"config.yaml", "config.json", "metrics.jsonl",
                                        "run.json", "log.txt"};
    for (int i = 0; i < 5; i++)
        for (int t = 0; t <= THINGS - (i == 4); t++) /* the run itself adds lines to its log */
            fail_under(names[i], (enum thing)t);
}

/* ---- between the last look and the name ---- */

enum way { RENAMES, LINKS, LOOKS, WAYS }; /* what the file system knows */
static const char *const way_name[WAYS] = {"renames", "links", "looks"};
static enum way way;
static atomic_bool came; /* ranks are threads */

static void come(const char *path)
{
    if (strcmp(path, coming.path) != 0 || atomic_exchange(&came, true))
        return;
    put(coming.what, coming.path);
    CHECK(lstat(coming.path, &coming.st) == 0);
}

static int open_late(const char *path, int flags, unsigned mode)
{
    if (flags & O_EXCL)
        come(path);
    return under->open(path, flags, mode);
}

static int rename_late(const char *from, const char *to)
{
    come(to);
    errno = coming.what % 2 ? EINVAL : ENOSYS;
    return way == RENAMES ? under->rename_new(from, to) : -1;
}

static int link_late(const char *from, const char *to)
{
    errno = coming.what % 2 ? EPERM : EOPNOTSUPP;
    return way == LINKS ? under->link(from, to) : -1;
}

/* what THINGS: nothing comes. */
static int train_late(const char *run, const char *name, enum thing what)
{
    struct fs_ops ops = *fs_ops;
    struct folder_seen seen;
    folder_path_in(run, name, coming.path);
    coming.what = what;
    came = what == THINGS;
    struct plait_config *c = config(run);
    CHECK_INT(plait_config_set(c, "train.trace=true"), PLAIT_OK);
    under = fs_ops;
    ops.open = open_late;
    ops.rename_new = rename_late;
    ops.link = link_late;
    fs_ops = &ops;
    int code = folder_train(c, &seen);
    fs_ops = under;
    return code;
}

static void come_late(const char *name, enum thing what)
{
    char run[64], dir[FOLDER_PATH], said[FOLDER_PATH];
    bool weights = strcmp(name, "model.safetensors") == 0;
    snprintf(run, sizeof run, "%s-%s-%d", way_name[way], strncmp(name, "tr", 2) ? name : "trace",
             (int)what);
    int code = train_late(run, name, what);
    snprintf(said, sizeof said, "%s is %s, %s", name, thing_name[what], way_name[way]);
    test_check(code == PLAIT_STORAGE && strstr(plait_error(), name) &&
                   strstr(plait_error(), "file exists"), __FILE__, __LINE__, "%s: %d, %s", said,
               code, plait_error());
    check_same(&coming);
    if (weights) {
        check_weights(said);
        return;
    }
    CHECK(unlink(coming.path) == 0 || rmdir(coming.path) == 0);
    folder_path_in(run, "trace", dir);
    (void)rmdir(dir);
    folder_path(run, dir);
    test_check(rmdir(dir) == 0, __FILE__, __LINE__, "%s: the start left something", said);
}

static void what_comes_in_the_last_moment_stays(void)
{
    static const char *const names[] = {"config.yaml", "config.json", "model.safetensors",
                                        "metrics.jsonl", "trace/0.trace", "trace/1.trace"};
    for (way = RENAMES; way < WAYS; way++)
        for (int i = 0; i < (way == RENAMES ? 6 : 3); i++)
            for (int t = 0; t < THINGS; t++)
                come_late(names[i], (enum thing)t);
}

/* Where there is no such rename, and no link either, runs are whole. */
static void file_systems_that_know_less(void)
{
    for (way = RENAMES; way < WAYS; way++) {
        char run[32];
        snprintf(run, sizeof run, "less%d", (int)way);
        int code = train_late(run, "", THINGS);
        test_check(code == 0 && folder_has(run, "model.safetensors") &&
                       folder_has(run, "config.yaml") && folder_count(run, ".tmp.") == 0, __FILE__,
                   __LINE__, "%s: %d, %s", way_name[way], code, plait_error());
    }
}

/* ---- a folder that cannot be flushed ---- */

static int flushes, flush_fails;

static int fsync_of_folder(int fd)
{
    struct stat st;
    if (fstat(fd, &st) != 0 || !S_ISDIR(st.st_mode) || ++flushes != flush_fails)
        return under->fsync(fd);
    errno = EIO;
    return -1;
}

static int train_unflushed(const char *run, int fails, const char *const *words)
{
    struct fs_ops ops = *fs_ops;
    struct folder_seen seen;
    struct plait_config *c = config(run);
    folder_set(c, words, 4);
    flushes = 0;
    flush_fails = fails;
    under = fs_ops;
    ops.fsync = fsync_of_folder;
    fs_ops = &ops;
    int code = folder_train(c, &seen);
    fs_ops = under;
    return code;
}

/* The weights are there, and who reads the message knows that they may not last; the
 * descriptions of a start go with it. */
static void a_folder_that_cannot_be_flushed(void)
{
    static const char *const well[4] = {"train.save_keep=0"};
    static const char *const ill[4] = {"train.save_keep=0", "optim.lr=100", "optim.clip=0",
                                       "train.steps=50"};
    char path[FOLDER_PATH], dir[FOLDER_PATH];
    for (int n = 1; n <= 4; n++) {
        char run[32];
        snprintf(run, sizeof run, "unflushed%d", n);
        int code = train_unflushed(run, n, well);
        test_check(code == PLAIT_STORAGE && strstr(plait_error(), "is whole and in place, but its "
                   "folder cannot be flushed, so a power cut may still lose it: input/output"),
                   __FILE__, __LINE__, "flush %d: %d, %s", n, code, plait_error());
        folder_path(run, dir);
        folder_path_in(run, "model.safetensors", path);
        test_check(n == 4 ? strstr(plait_error(), path) != NULL : rmdir(dir) == 0, __FILE__,
                   __LINE__, "flush %d: %s", n, plait_error());
        struct safet_file f = {0};
        test_check(n < 4 || safet_open(&f, path) == ERR_OK, __FILE__, __LINE__, "flush %d", n);
        safet_close(&f);
        CHECK(n < 4 || folder_count(run, ".tmp.") == 0);
    }
    int code = train_unflushed("lost", 4, ill);
    test_check(code == PLAIT_NONFINITE && strstr(plait_error(), "; and of the weights of step ") &&
                   strstr(plait_error(), "model.safetensors is whole and in place"), __FILE__,
               __LINE__, "%d, %s", code, plait_error());
}

static const struct test_case cases[] = {
    {"what_comes_in_the_last_moment_stays", what_comes_in_the_last_moment_stays},
    {"file_systems_that_know_less", file_systems_that_know_less},
    {"a_folder_that_cannot_be_flushed", a_folder_that_cannot_be_flushed},
    {"what_comes_in_a_start_stays", what_comes_in_a_start_stays},
    {"what_comes_before_a_start_fails_stays", what_comes_before_a_start_fails_stays},
    {"what_comes_meanwhile_stays", what_comes_meanwhile_stays},
    {"weights_are_put_in_no_other_run", weights_are_put_in_no_other_run},
};
TEST_MAIN(cases)
