/* SPDX-License-Identifier: Apache-2.0
 *
 * Saves that do not end well: a run that is killed at a file call of a save, that has a file call
 * fail once or from then on, or that is ended by a signal at any moment, and then goes on with
 * run.resume=auto. It ends with the numbers and the weights of one that was never stopped, has each
 * step once, and leaves nothing half written. A save that fails is an error line, and the end of
 * the run only where no checkpoint is left. PLAIT_SAVES=1: every call instead of some of them.
 */
#include "endings.h"

#include "base/mem.h"

#include <signal.h>

enum { STEPS = 12 };

static const char small[] =
    "model.layers=2 model.hidden=16 model.heads=2 model.seq=16 model.dropout=0.1 train.batch=4 "
    "train.threads=1 train.steps=12 optim.lr=0.01 optim.warmup=2 "
    "train.dtype=f32 train.hang_timeout=60 train.valid_every=5 train.valid_batches=1";

static const char *const layouts[] = {"parallel.dp=2 parallel.zero=1", "parallel.pp=2",
                                      "parallel.tp=2"};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

/* How it saves; drawn anew for each run that is to fail. */
static const struct way { const char *words; int every, keep, best; } ways[] = {
    {"train.save_every=3", 3, 2, 0},
    {"train.save_every=1 train.save_keep=1", 1, 1, 0},
    {"train.save_every=2 train.save_async=false", 2, 2, 0},
    {"train.save_every=3 train.save_best=true", 3, 2, 1},
};
static const struct way *way = ways;

static void draw_way(void)
{
    way = &ways[test_range(0, sizeof ways / sizeof *ways - 1)];
}

static bool all_of_them(void)
{
    return getenv("PLAIT_SAVES") != NULL;
}

/* ---- a run ---- */

/* In a folder as it is. */
static int go(const char *run, const char *launcher, const char *fault, const char *words,
              char said[SAID])
{
    char all[COMMAND];
    snprintf(all, sizeof all, "%s %s %s", small, way->words, words);
    return start(run, launcher, fault, all, said);
}

/* ---- what it left ---- */

static void check_whole(const char *run, const char *judge, const char *what)
{
    test_check(left_same_numbers(run, judge, STEPS), __FILE__, __LINE__, "%s: other numbers",
               what);
    test_check(folder_same_in(run, judge, "model.safetensors"), __FILE__, __LINE__,
               "%s: other weights", what);
    test_check(!left_half_written(run), __FILE__, __LINE__, "%s: something half written stays",
               what);
}

/* Ended by its first save, with weights, which are not begun over. */
static bool weights_alone(const char *run)
{
    struct state_found *found;
    char path[FOLDER_PATH];
    int n, whole = 0;
    folder_path(run, path);
    CHECK_OK(state_list(path, false, &found, &n));
    for (int i = 0; i < n; i++)
        whole += found[i].whole;
    mem_free(found);
    return whole == 0 && folder_has(run, "model.safetensors");
}

static int gone_on; /* runs that something happened to */

/* It goes on to its end. */
static void check_goes_on(const char *run, const char *launcher, const char *judge,
                          const char *words, const char *what)
{
    char said[SAID], again[COMMAND];
    bool alone = weights_alone(run);
    gone_on++;
    snprintf(again, sizeof again, "%s run.resume=auto", words);
    int code = go(run, launcher, "", again, said);
    if (alone) {
        test_check(code == 10 && strstr(said, "model.safetensors"), __FILE__, __LINE__,
                   "%s: code %d: %s", what, code, said);
        return;
    }
    test_check(code == 0, __FILE__, __LINE__, "%s: then code %d: %s", what, code, said);
    test_check(lines_with("the checkpoint before it is tried") == 0, __FILE__, __LINE__,
               "%s: damaged: %s", what, said);
    check_whole(run, judge, what);
    /* one more: killed as the oldest went, behind the last step */
    int n = left_checkpoints(run, what);
    bool some = n >= way->keep && n <= way->keep + way->best + 1;
    test_check(some || (n > 0 && strstr(what, "unlink@")), __FILE__, __LINE__, "%s: %d checkpoints",
               what, n);
}

static void say_sum(void)
{
    printf("%d runs went on\n", gone_on);
    gone_on = 0;
}

/* The run of that layout that nothing happens to. */
static const char *judge_of(const char *launcher, const char *words)
{
    static char name[LAYOUTS + 1][16];
    char said[SAID];
    int i = 0;
    while (i < LAYOUTS && strcmp(words, layouts[i]) != 0)
        i++;
    snprintf(name[i], sizeof name[i], "judge%d", i);
    if (!folder_has(name[i], "model.safetensors"))
        test_check(go(name[i], launcher, "", words, said) == 0, __FILE__, __LINE__, "%s", said);
    return name[i];
}

/* ---- every call ---- */

static const char *const calls[] = {"mkdir", "open", "write", "half", "fsync", "close",
                                    "rename", "unlink"};
enum { CALLS = sizeof calls / sizeof *calls };

/* The next call that is tried. */
static int next(int n)
{
    return n + (all_of_them() ? 1 : (int)test_range(1, 2 * n + 2));
}

/* Is the layout tried with that call? One of them is, or all. */
static bool is_drawn(int layout, int call)
{
    return all_of_them() || (layout + call) % LAYOUTS == 0;
}

static void killed_at_a_call(void)
{
    for (int i = 0; i < LAYOUTS; i++)
        for (int k = 0; k < CALLS; k++) {
            int code = -1;
            if (strcmp(calls[k], "half") == 0 || !is_drawn(i, k))
                continue;
            for (int n = (int)test_range(1, 3); code != 0 && n < 10000; n = next(n)) {
                char fault[64], what[256], said[SAID];
                snprintf(fault, sizeof fault, "%s@checkpoints:%d:KILL", calls[k], n);
                draw_way();
                snprintf(what, sizeof what, "%s %s, %s", layouts[i], way->words, fault);
                folder_remove("run");
                code = go("run", "", fault, layouts[i], said);
                test_check(code == 0 || code == 128 + SIGKILL, __FILE__, __LINE__,
                           "%s: code %d: %s", what, code, said);
                if (code != 0)
                    check_goes_on("run", "", judge_of("", layouts[i]), layouts[i], what);
            }
            CHECK_INT(code, 0);
        }
    say_sum();
}

/* Only the first save's failing may end the run: behind it there always is one. */
static void check_failed(const char *judge, const char *what, bool once, int code,
                         const char *said)
{
    char begins[64];
    int lost = lines_with("could not be saved: ");
    snprintf(begins, sizeof begins, "the checkpoint of step %d could not be saved: ", way->every);
    bool first = lines_with(begins) > 0;
    test_check(code == (first ? PLAIT_STORAGE : 0), __FILE__, __LINE__, "%s: code %d: %s", what,
               code, said);
    test_check(lost == lines_with("plait: error: ") && (!once || lost <= 1), __FILE__, __LINE__,
               "%s: %d lines: %s", what, lost, said);
    test_check(lines_with("; the one before stays") == lost || first, __FILE__, __LINE__, "%s: %s",
               what, said);
    if (code == 0)
        check_whole("run", judge, what);
}

static void a_call_that_fails(void)
{
    static const char *const codes[] = {"ENOSPC", "EIO", "EDQUOT", "EFBIG"};
    for (int i = 0; i < LAYOUTS; i++)
        for (int k = 0; k < CALLS; k++) {
            const char *judge = judge_of("", layouts[i]);
            int failed = is_drawn(i, k) ? -1 : 0;
            for (int n = (int)test_range(1, 3); failed != 0 && n < 10000; n = next(n)) {
                char fault[64], what[256], said[SAID];
                bool half = strcmp(calls[k], "half") == 0, once = !half && test_range(0, 1);
                snprintf(fault, sizeof fault, "%s@checkpoints:%d%s:%s", calls[k], n,
                         once || half ? "" : "+", codes[test_range(0, 3)]);
                draw_way();
                snprintf(what, sizeof what, "%s %s, %s", layouts[i], way->words, fault);
                folder_remove("run");
                int code = go("run", "", fault, layouts[i], said);
                failed = lines_with("plait: error: ") + lines_with("plait: warn: ") -
                         lines_with(" waits until that of step ");
                check_failed(judge, what, once, code, said);
                check_goes_on("run", "", judge, layouts[i], what);
                if (strcmp(calls[k], "close") == 0 || strcmp(calls[k], "open") == 0)
                    failed = n < 60; /* of reading back, and of folders: not all of them matter */
            }
            CHECK_INT(failed, 0);
        }
    say_sum();
}

/* ---- at any moment ---- */

/* The signal after some thousandths of a second. */
static const char *killer(const char *signal, char out[256])
{
    snprintf(out, 256, "sh -c '\"$@\" & p=$!; sleep 0.%03d; kill -%s $p 2>/dev/null; wait $p' sh",
             (int)test_range(5, 140), signal);
    return out;
}

static void again_and_again(const char *signal, const char *words, int most)
{
    char said[SAID], launcher[256], what[512], again[COMMAND];
    int code = -1;
    snprintf(again, sizeof again, "%s run.resume=auto", words);
    draw_way();
    folder_remove("run");
    for (int i = 0; i < most && code != 0; i++) {
        code = go("run", killer(signal, launcher), "", again, said);
        snprintf(what, sizeof what, "%s, %s", words, launcher);
        test_check(code == 0 || code == PLAIT_STOPPED || code > 128, __FILE__, __LINE__,
                   "%s: code %d: %s", what, code, said);
        test_check(lines_with("the checkpoint before it is tried") == 0, __FILE__, __LINE__,
                   "%s: %s", what, said);
    }
    check_goes_on("run", "", judge_of("", words), words, what);
}

static void at_any_moment(void)
{
    int rounds = all_of_them() ? 20 : 2;
    for (int i = 0; i < LAYOUTS * rounds; i++) {
        again_and_again("KILL", layouts[i % LAYOUTS], 3);
        again_and_again("TERM", layouts[i % LAYOUTS], 3);
    }
    say_sum();
}

/* ---- told to stop ---- */

static int64_t stop_at;

static void on_step(void *arg, const struct plait_step *s)
{
    (void)arg;
    if (s->step == stop_at)
        plait_stop(SIGTERM);
}

/* In this process; words: key=value, a blank between two. */
static int train_here(const char *words, const char *more)
{
    char all[COMMAND], *save = NULL;
    struct plait_train call = {.size = sizeof call, .on_step = on_step};
    tokens();
    struct plait_config *c = folder_config("run", "corpus");
    folder_set_file(c, "data.valid", "check");
    snprintf(all, sizeof all, "%s %s %s %s", small, way->words, words, more);
    for (char *word = strtok_r(all, " ", &save); word; word = strtok_r(NULL, " ", &save))
        folder_set(c, (const char *const[]){word}, 1);
    int code = plait_train(c, &call);
    plait_config_free(c);
    plait_stop(0);
    return code;
}

/* Behind each step; and, what goes on, before it has done one. */
static void told_to_stop(void)
{
    for (int i = 0; i < LAYOUTS; i++)
        for (stop_at = 1; stop_at < STEPS; stop_at += all_of_them() ? 1 : 2) {
            char what[256];
            draw_way();
            snprintf(what, sizeof what, "%s %s, stopped at step %d", layouts[i], way->words,
                     (int)stop_at);
            folder_remove("run");
            int code = train_here(layouts[i], "");
            test_check(code == PLAIT_STOPPED || stop_at >= STEPS - 2, __FILE__, __LINE__,
                       "%s: code %d: %s", what, code, plait_error());
            plait_stop(SIGTERM);
            code = train_here(layouts[i], "run.resume=auto");
            test_check(code == PLAIT_STOPPED || stop_at >= STEPS - 2, __FILE__, __LINE__,
                       "%s, and at once again: code %d: %s", what, code, plait_error());
            check_goes_on("run", "", judge_of("", layouts[i]), layouts[i], what);
        }
    say_sum();
}

/* Fewer steps than are done: nothing is touched. */
static void fewer_steps(void)
{
    way = ways;
    folder_remove("run");
    stop_at = 0;
    CHECK_INT(train_here(layouts[0], ""), 0);
    CHECK_INT(train_here(layouts[0], "train.steps=9 run.resume=auto"), PLAIT_CONFIG);
    test_check(strstr(plait_error(), "train.steps is 9, and ") != NULL, __FILE__, __LINE__, "%s",
               plait_error());
    check_whole("run", judge_of("", layouts[0]), "fewer steps");
    CHECK_INT(train_here(layouts[0], "train.steps=9 run.resume=9"), 0);
    CHECK_INT(left_checkpoints("run", "fewer steps"), 1);
}

/* ---- processes ---- */

static void under_mpirun(void)
{
    static const char mpi[] = "mpirun -n 2 --oversubscribe", words[] =
        "parallel.dp=2 parallel.zero=1 train.transport=mpi";
    static const char *const faults[] = {
        "write@rank-00001:3:KILL", "rename@index:2:KILL", "fsync@rank-00000:1:KILL",
        "write@rank-00001:2+:ENOSPC", "rename@rank-00001:1:EIO"};
    char said[SAID];
    if (!folder_mpirun())
        return;
    for (int i = 0; i < 5; i += all_of_them() ? 1 : 2) {
        way = ways; /* the faults are counted so */
        folder_remove("run");
        int code = go("run", mpi, faults[i], words, said);
        test_check(i == 3 || code != 0, __FILE__, __LINE__, "%s: code %d: %s", faults[i], code,
                   said);
        check_goes_on("run", mpi, judge_of(mpi, words), words, faults[i]);
    }
    say_sum();
}

static const struct test_case cases[] = {
    {"killed at a call", killed_at_a_call},
    {"a call that fails", a_call_that_fails},
    {"at any moment", at_any_moment},
    {"told to stop", told_to_stop},
    {"fewer steps", fewer_steps},
    {"under mpirun", under_mpirun},
};
TEST_MAIN(cases)
