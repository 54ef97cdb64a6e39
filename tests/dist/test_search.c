/* SPDX-License-Identifier: Apache-2.0
 *
 * The search for what is not finite is said when it begins, and ends at once when the run is asked
 * to stop: the loss or norm gives the code, and the weights are there, but no place.
 */
#include "folder.h"

#include "base/fs.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>

static const char *const base[] = {
    "model.layers=4", "model.hidden=16", "model.heads=2", "model.seq=16", "train.batch=4",
    "parallel.microbatch=1", "train.threads=1", "train.steps=50", "optim.lr=100", "optim.clip=0"};
enum { BASE = sizeof base / sizeof *base, WORDS = 4 };

enum when { NEVER, BEFORE, AT_ITS_BEGIN };

struct seen { enum when when; int searches; char what[256]; };

static void on_step(void *arg, const struct plait_step *s)
{
    const struct seen *seen = arg;
    if (seen->when == BEFORE && s->step == 1) /* the second is not finite */
        plait_stop(SIGINT);
}

static void on_search(void *arg, const char *what)
{
    struct seen *seen = arg;
    seen->searches++;
    snprintf(seen->what, sizeof seen->what, "%s", what);
    if (seen->when == AT_ITS_BEGIN)
        plait_stop(SIGTERM);
}

static int train(const char *const *set, struct seen *seen)
{
    folder_remove("run");
    folder_tokens("tokens", "a strand over a strand under another strand; ", 100);
    struct plait_config *c = folder_config("run", "tokens");
    folder_set(c, base, BASE);
    folder_set(c, set, WORDS);
    folder_set_file(c, "data.valid", "tokens");
    int code = plait_train(c, &(struct plait_train){.size = sizeof(struct plait_train),
                                                    .on_step = on_step, .on_search = on_search,
                                                    .arg = seen});
    plait_config_free(c);
    plait_stop(0);
    return code;
}

static const char *const layouts[][WORDS] = {
    {"parallel.pp=1"},
    {"parallel.tp=2"},
    {"parallel.pp=2", "parallel.schedule=zb-h1"},
    {"parallel.pp=2", "parallel.dp=2"},
    {"parallel.pp=4", "train.recompute=full"},
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

static void a_request_ends_it(void)
{
    for (int i = 0; i < LAYOUTS; i++) {
        struct seen told = {.when = AT_ITS_BEGIN}, found = {.when = NEVER};
        int code = train(layouts[i], &told);
        const char *said = plait_error();
        test_check(code == PLAIT_NONFINITE && told.searches == 1 &&
                       strstr(told.what, " is not finite: it is run once more to find where") &&
                       strstr(said, "; where it comes from cannot be said: the search was ended by "
                                    "SIGTERM; the weights of step ") &&
                       !strstr(said, "the first number"), __FILE__, __LINE__,
                   "layout %d: code %d, %d searches (%s): %s", i, code, told.searches, told.what,
                   said);
        CHECK(folder_has("run", "model.safetensors") && folder_count("run", ".tmp.") == 0);
        code = train(layouts[i], &found);
        test_check(code == PLAIT_NONFINITE && found.searches == 1 &&
                       strstr(plait_error(), "; the first number that is not finite is on "),
                   __FILE__, __LINE__, "layout %d: code %d: %s", i, code, plait_error());
        CHECK_STR(found.what, told.what);
    }
}

static void a_request_before_it(void)
{
    for (int i = 0; i < LAYOUTS; i++) {
        struct seen seen = {.when = BEFORE};
        int code = train(layouts[i], &seen);
        test_check(code == PLAIT_NONFINITE && strstr(plait_error(), "ended by SIGINT"), __FILE__,
                   __LINE__, "layout %d: code %d: %s", i, code, plait_error());
    }
}

/* The program's line is seen when the search begins, and a signal then ends it. */
static void a_signal_ends_it(void)
{
    char command[6 * FOLDER_PATH], tokens[FOLDER_PATH], log[FOLDER_PATH], run[FOLDER_PATH];
    struct fs_map m = {0};
    folder_tokens("tokens", "a strand over a strand under another strand; ", 100);
    folder_path("tokens", tokens);
    folder_path("log", log);
    folder_path("signal", run);
    snprintf(command, sizeof command,
             "'%s' train run.dir='%s' data.train='%s' model.layers=6 model.hidden=256 "
             "model.heads=4 model.seq=64 train.batch=40 parallel.microbatch=1 train.threads=1 "
             "train.steps=50 optim.lr=100 optim.clip=0 >'%s' 2>&1 & p=$!; "
             "while kill -0 $p && ! grep -q 'run once more to find where; a signal ends' '%s'; do "
             "sleep 0.01; done; kill -TERM $p; wait $p", PLAIT_PROGRAM, run, tokens, log, log);
    int status = system(command), code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    CHECK_INT(code, PLAIT_NONFINITE);
    CHECK_OK(fs_map_open(&m, log, ERR_DATA));
    test_check(m.size > 0 && memmem(m.data, (size_t)m.size, "ended by SIGTERM", 16), __FILE__,
               __LINE__, "%.*s", (int)m.size, (const char *)m.data);
    fs_map_close(&m);
}

static const struct test_case cases[] = {
    {"a_request_ends_it", a_request_ends_it},
    {"a_request_before_it", a_request_before_it},
    {"a_signal_ends_it", a_signal_ends_it},
};
TEST_MAIN(cases)
