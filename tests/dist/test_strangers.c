/* SPDX-License-Identifier: Apache-2.0
 *
 * What somebody puts under one of a run's names while it starts or is under way stays as it is,
 * whatever it is: a start ends there and takes nothing of it away, and weights stay too, whole,
 * under the name that the run says.
 */
#include "folder.h"

#include "base/fs.h"
#include "ckpt/ckpt.h"

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

struct there { enum thing what; char path[FOLDER_PATH]; struct stat st; };

static void on_step(void *arg, const struct plait_step *s)
{
    struct there *t = arg;
    if (s->step != 1)
        return;
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
               __FILE__, __LINE__, "%s is %s: changed", t->path, thing_name[t->what]);
}

static void run_under(enum thing what)
{
    struct there t = {.what = what};
    char run[32];
    snprintf(run, sizeof run, "run%d", (int)what);
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
    for (int t = 0; t < THINGS; t++)
        run_under((enum thing)t);
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
        char path[FOLDER_PATH], name[16], command[2 * FOLDER_PATH];
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
        folder_path("here", path);
        snprintf(command, sizeof command, "cd '%s' && rm -rf ../here ../away", path);
        CHECK_INT(system(command), 0);
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
    static const char *const names[] = {"config.yaml", "config.json", "metrics.jsonl"};
    for (int i = 0; i < 3; i++)
        for (int t = 0; t < THINGS; t++)
            start_under(names[i], (enum thing)t);
}

static const struct test_case cases[] = {
    {"what_comes_in_a_start_stays", what_comes_in_a_start_stays},
    {"what_comes_meanwhile_stays", what_comes_meanwhile_stays},
    {"weights_are_put_in_no_other_run", weights_are_put_in_no_other_run},
};
TEST_MAIN(cases)
