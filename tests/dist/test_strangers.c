/* SPDX-License-Identifier: Apache-2.0
 *
 * What somebody puts under the name of the weights while a run is under way stays as it is,
 * whatever it is; the weights stay too, whole, under the name that the run says.
 */
#include "folder.h"

#include "base/fs.h"
#include "ckpt/ckpt.h"

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

static void run_under(enum thing what)
{
    static const char *const words[] = {
        "model.layers=2", "model.hidden=16", "model.heads=2", "model.seq=8", "train.steps=2",
        "train.batch=2", "train.threads=1", "parallel.pp=2"};
    struct there t = {.what = what};
    struct stat after;
    char run[32];
    snprintf(run, sizeof run, "run%d", (int)what);
    folder_path_in(run, "model.safetensors", t.path);
    folder_tokens("tokens", "a braid of many strands\n", 80);
    struct plait_config *c = folder_config(run, "tokens");
    folder_set(c, words, sizeof words / sizeof *words);
    int code = plait_train(c, &(struct plait_train){.size = sizeof(struct plait_train),
                                                    .on_step = on_step, .arg = &t});
    test_check(code == PLAIT_STORAGE && strstr(plait_error(), "file exists"), __FILE__, __LINE__,
               "%s: %d, %s", thing_name[what], code, plait_error());
    check_weights(thing_name[what]);
    test_check(lstat(t.path, &after) == 0 && after.st_ino == t.st.st_ino &&
                   after.st_mode == t.st.st_mode && after.st_size == t.st.st_size,
               __FILE__, __LINE__, "%s: changed", thing_name[what]);
    plait_config_free(c);
}

static void what_comes_meanwhile_stays(void)
{
    for (int t = 0; t < THINGS; t++)
        run_under((enum thing)t);
}

static const struct test_case cases[] = {
    {"what_comes_meanwhile_stays", what_comes_meanwhile_stays},
};
FOLDER_MAIN(cases)
