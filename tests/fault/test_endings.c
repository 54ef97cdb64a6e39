/* SPDX-License-Identifier: Apache-2.0
 *
 * Files that fail under a run, whichever it is and whichever call: behind the first step the
 * weights of the step that is named are kept, bit by bit those of a run of so many steps; the first
 * error is said, with its code, and one that comes of it behind it; metrics and traces end with
 * whole lines and records; no temporary file and no lock stays. As threads and, in part, under
 * mpirun.
 */
#include "endings.h"

#include "folder/trace.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

enum { STEPS = 5 };

/* ---- what a run left ---- */

/* Steps in metrics.jsonl, which are 1, 2, ...; -1: a line is not whole. */
static int steps_in(const char *run)
{
    char path[FOLDER_PATH], line[1024];
    int steps = 0, step;
    folder_path_in(run, "metrics.jsonl", path);
    FILE *f = fopen(path, "r");
    while (f && steps >= 0 && fgets(line, sizeof line, f)) {
        bool whole = line[0] == '{' && strstr(line, "}\n");
        if (whole && strstr(line, "\"grad_norm\""))
            whole = sscanf(line, "{\"step\": %d,", &step) == 1 && step == ++steps;
        steps = whole ? steps : -1;
    }
    if (f)
        fclose(f);
    return steps;
}

/* Traces end with a whole record. */
static void check_traces(const char *run, const char *what)
{
    char dir[FOLDER_PATH], path[FOLDER_PATH + 32];
    folder_path(run, dir);
    for (int i = 0; i < RANKS; i++) {
        struct trace t;
        snprintf(path, sizeof path, "%s/trace/%d.trace", dir, i);
        if (!fs_exists(path))
            continue;
        bool read = trace_read(dir, i, &t) == ERR_OK;
        test_check(read && t.cut == 0, __FILE__, __LINE__, "%s: trace %d: %s, %lld bytes too many",
                   what, i, read ? "read" : err_text(), (long long)t.cut);
        trace_unread(&t);
    }
}

/* Weights of that step, as an undisturbed run of so many has them. */
static void check_weights(const char *path, int step, const char *what)
{
    char whole[32], words[64], said[SAID], theirs[FOLDER_PATH];
    snprintf(whole, sizeof whole, "whole%d", step);
    snprintf(words, sizeof words, "train.steps=%d", step);
    if (!folder_has(whole, "model.safetensors"))
        CHECK_INT(train(whole, "", "", words, said), 0);
    folder_path_in(whole, "model.safetensors", theirs);
    test_check(folder_same(path, theirs), __FILE__, __LINE__,
               "%s: weights are not those of step %d", what, step);
}

/* Weights that could not have their name lie under another, all of them. */
static void check_moved(const char *said, const char *what)
{
    char path[FOLDER_PATH] = "";
    const char *at = strstr(said, "it is whole in ");
    bool named = at && sscanf(at, "it is whole in %511[^,], move it", path) == 1;
    bool asked = strstr(what, "rename@model.safetensors") != NULL;
    test_check(named == asked, __FILE__, __LINE__, "%s: %s", what, said);
    if (!named)
        return;
    check_weights(path, STEPS, what);
    CHECK(unlink(path) == 0);
}

/* Everything that must be true behind a run of the file `file` failing. */
static void check_end(const char *run, const char *what, const char *file, int code,
                      const char *said)
{
    static const char named[] = "the weights of step ";
    const char *at = strstr(said, named);
    int step = 0, steps = steps_in(run), input = strstr("corpus check", file) != NULL;
    bool weights = strcmp(file, "model.safetensors") == 0;
    test_check(code == (input ? PLAIT_DATA : PLAIT_STORAGE), __FILE__, __LINE__, "%s: code %d: %s",
               what, code, said);
    test_check(strstr(said, "plait: ") && strstr(said, file), __FILE__, __LINE__, "%s: %s",
               what, said);
    CHECK(steps >= 0);
    check_traces(run, what);
    check_moved(said, what);
    test_check(folder_count(run, ".tmp.") == 0 && !folder_has(run, "plait.lock"), __FILE__,
               __LINE__, "%s: what was half done stays", what);
    if (at)
        (void)sscanf(at + sizeof named - 1, "%d", &step);
    bool kept = !weights && (at || steps > 0);
    test_check(folder_has(run, "model.safetensors") == kept || (weights && steps == STEPS),
               __FILE__, __LINE__, "%s: %d steps, weights %d: %s", what, steps,
               folder_has(run, "model.safetensors"), said);
    if (!kept)
        return;
    test_check(step >= steps, __FILE__, __LINE__, "%s: %d steps: %s", what, steps, said);
    char path[FOLDER_PATH];
    folder_path_in(run, "model.safetensors", path);
    check_weights(path, step, what);
}

/* ---- every file, every call ---- */

static void fail_one(const char *file, const char *call, const char *code)
{
    int got = -1;
    for (int n = 1; n < 2000 && got != 0; n += n < 4 ? 1 : n) {
        char fault[128], what[160], said[SAID], words[64];
        snprintf(fault, sizeof fault, "%s@%s:%d:%s", call, file, n, code);
        snprintf(what, sizeof what, "PLAIT_FAIL_FS=%s", fault);
        snprintf(words, sizeof words, "train.steps=%d train.trace=true", STEPS);
        got = train("run", "", fault, words, said);
        test_check(got != 0 || n > 1, __FILE__, __LINE__, "%s: code 0", what);
        if (got != 0)
            check_end("run", what, file, got, said);
    }
    test_check(got == 0, __FILE__, __LINE__, "%s@%s: always %d", call, file, got);
}

/* Names, and what is done with them. */
static void every_file_every_call(void)
{
    static const struct { const char *file, *calls; } files[] = {
        {"metrics.jsonl", "open write half close"},
        {"0.trace", "open write half close"},
        {"1.trace", "open write half close"},
        {"config.yaml", "open write fsync close rename"},
        {"config.json", "write half fsync rename"},
        {"model.safetensors", "open keep write half fsync close rename"},
        {"corpus", "pread"},
        {"check", "pread"},
    };
    static const char *const codes[] = {"ENOSPC", "EFBIG", "EIO", "EDQUOT"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char calls[64], *save = NULL;
        snprintf(calls, sizeof calls, "%s", files[i].calls);
        for (char *c = strtok_r(calls, " ", &save); c; c = strtok_r(NULL, " ", &save))
            fail_one(files[i].file, c, codes[test_range(0, 3)]);
    }
}

/* ---- one error behind another ---- */

/* All that was begun in vain is gone, and what is there is whole; weights that cannot have their
 * name stay. */
static void check_rest(const char *run, const char *what, bool whole)
{
    CHECK(steps_in(run) >= 0);
    check_traces(run, what);
    test_check(!folder_has(run, "model.safetensors") && folder_count(run, ".tmp.") == whole &&
                   !folder_has(run, "plait.lock"), __FILE__, __LINE__,
               "%s: weights, or half of them", what);
}

/* From one write on nothing can be written, the weights neither. */
static void a_disk_that_is_full_for_all(void)
{
    int both = 0, code = -1;
    for (int n = 1; n < 100 && code != 0; n++) {
        char fault[64], said[SAID];
        snprintf(fault, sizeof fault, "write@/run/:%d+:ENOSPC", n);
        code = train("run", "", fault, "train.steps=5 train.trace=true", said);
        if (code == 0)
            break;
        const char *second = strstr(said, "; and the weights of step ");
        test_check(code == PLAIT_STORAGE && strstr(said, "no space left"), __FILE__, __LINE__,
                   "%s: code %d: %s", fault, code, said);
        const char *end = second ? second : said;
        char first[SAID];
        snprintf(first, sizeof first, "%.*s", (int)(end - said), said);
        test_check(!second || ((strstr(first, "metrics.jsonl") || strstr(first, ".trace")) &&
                               strstr(second, "model.safetensors")), __FILE__, __LINE__, "%s: %s",
                   fault, said);
        test_check(second || steps_in("run") == 0 || steps_in("run") == 5, __FILE__, __LINE__,
                   "%s: %s", fault, said);
        check_rest("run", fault, false);
        both += second != NULL;
    }
    CHECK(code == 0 && both > 5);
}

static void not_finite_and_not_saved(void)
{
    char said[SAID];
    static const char words[] = "optim.lr=100 optim.clip=0 train.steps=50";
    static const char *const calls[] = {"write", "fsync", "close", "rename"};
    for (int i = 0; i < 4; i++) {
        char fault[64];
        snprintf(fault, sizeof fault, "%s@model.safetensors:1:EIO", calls[i]);
        int code = train("run", "", fault, words, said);
        const char *first = strstr(said, " has loss ");
        const char *second = strstr(said, "could not be saved");
        test_check(code == PLAIT_NONFINITE && first && second && first < second &&
                       strstr(second, "input/output error"), __FILE__, __LINE__, "%s: code %d: %s",
                   fault, code, said);
        check_rest("run", fault, i == 3);
    }
    int code = train("run", "", "half@metrics.jsonl:1:EIO", words, said); /* both at once */
    const char *first = strstr(said, "metrics.jsonl"), *second = strstr(said, "; then step ");
    test_check(code == PLAIT_STORAGE && first && second && first < second &&
                   strstr(second, "; the weights of step 1 are in "), __FILE__, __LINE__,
               "code %d: %s", code, said);
}

static void on_step_stop(void *arg, const struct plait_step *s)
{
    (void)arg;
    if (s->step == 2)
        plait_stop(SIGTERM);
}

static void stopped_and_not_saved(void)
{
    static const char *const set[] = {"model.layers=2", "model.hidden=16", "model.heads=2",
                                      "model.seq=16", "train.batch=4", "parallel.pp=2",
                                      "train.steps=100", "train.threads=1", "train.save_keep=0"};
    struct plait_train call = {.size = sizeof call, .on_step = on_step_stop};
    tokens();
    struct plait_config *c = folder_config("stopped", "corpus");
    folder_set(c, set, sizeof set / sizeof *set);
    setenv("PLAIT_FAIL_FS", "fsync@model.safetensors:1+:EIO", 1);
    int code = plait_train(c, &call);
    unsetenv("PLAIT_FAIL_FS");
    plait_stop(0);
    plait_config_free(c);
    const char *first = strstr(plait_error(), "stopped by SIGTERM behind step 3 of 100; ");
    test_check(code == PLAIT_STORAGE && first && strstr(first, "model.safetensors"), __FILE__,
               __LINE__, "code %d: %s", code, plait_error());
    check_rest("stopped", "stopped", false);
}

/* A run whose second line of metrics fails, and its K-th allocation. */
static int without_memory(int k, char said[SAID])
{
    char launcher[64];
    snprintf(launcher, sizeof launcher, "PLAIT_FAIL_ALLOC=%d", k);
    return train("run", launcher, "write@metrics.jsonl:2+:ENOSPC", "train.steps=5 train.trace=true",
                 said);
}

/* Every allocation behind that one in turn. */
static void a_full_disk_and_no_memory(void)
{
    char said[SAID];
    int before = 1, behind = 4096, kept = 0, lost = 0;
    while (behind - before > 1) { /* the first allocation that the run comes to with a line */
        int k = (before + behind) / 2;
        (void)without_memory(k, said);
        *(steps_in("run") > 0 ? &behind : &before) = k;
    }
    for (int k = behind; k < behind + 400 && kept < 3; k += 1 + (k - behind) / 8) {
        int code = without_memory(k, said);
        const char *first = strstr(said, "cannot append to metrics.jsonl: no space left");
        const char *second = first ? strstr(first, " are not to be had") : NULL;
        test_check(code == PLAIT_STORAGE && first, __FILE__, __LINE__, "allocation %d: code %d: %s",
                   k, code, said); /* before it, warnings alone */
        bool there = folder_has("run", "model.safetensors");
        test_check(there || second, __FILE__, __LINE__, "allocation %d: %s", k, said);
        CHECK(steps_in("run") > 0 && folder_count("run", ".tmp.") == 0 &&
              !folder_has("run", "plait.lock"));
        kept += there;
        lost += !there;
    }
    CHECK(kept > 0 && lost > 0);
}

/* From one call on nothing works any more, closing and removing neither. */
static void no_call_works_any_more(void)
{
    int code = -1;
    for (int n = 1; n < 3000 && code != 0; n += (int)test_range(1, n < 100 ? 8 : 60)) {
        char fault[64], said[SAID];
        snprintf(fault, sizeof fault, "%d+:EIO", n);
        code = train("run", "", fault, "train.steps=5 train.trace=true", said);
        bool known = code == PLAIT_STORAGE || code == PLAIT_DATA || code == PLAIT_CONFIG;
        test_check(code == 0 || (known && strstr(said, "input/output error")), __FILE__, __LINE__,
                   "%s: code %d: %s", fault, code, said);
        CHECK(steps_in("run") >= 0);
    }
    CHECK_INT(code, 0);
}

/* A lock that stays is no error of the run, and is said. */
static void a_lock_that_stays(void)
{
    char said[SAID];
    int code = train("run", "", "unlink@plait.lock:1+:EIO", "train.steps=3", said);
    test_check(code == 0 && strstr(said, "plait.lock cannot be removed, so the next run there ") &&
                   folder_has("run", "model.safetensors"), __FILE__, __LINE__, "code %d: %s", code,
               said);
}

/* Of two signals the second ends the run at once, with the error that it was dealing with. */
static void a_second_signal_says_the_first_error(void)
{
    char dir[FOLDER_PATH], twice[2 * FOLDER_PATH], log[FOLDER_PATH], said[SAID];
    folder_path("run", dir);
    folder_path("log", log);
    snprintf(twice, sizeof twice,
             "sh -c '\"$@\" & p=$!; i=0; until grep -q \"step 1/5  loss\" \"%s\" || "
             "[ $i -ge 3000 ]; do sleep 0.01; i=$((i + 1)); done; kill -TERM $p; kill -INT $p; "
             "wait $p' sh", log);
    int code = train("run", twice, "write@metrics.jsonl:1:ENOSPC",
                     "train.steps=5 model.hidden=256 model.layers=4 model.seq=128 train.batch=16 "
                     "parallel.microbatch=4", said);
    test_check((code == 128 + SIGINT || code == 128 + SIGTERM) &&
                   strstr(said, "cannot append to metrics.jsonl: no space left") &&
                   folder_count("run", ".tmp.") == 0, __FILE__, __LINE__, "code %d: %s", code,
               said);
}

static void on_step_move(void *arg, const struct plait_step *s)
{
    char from[FOLDER_PATH], to[FOLDER_PATH];
    if (s->step != 2)
        return;
    folder_path("moved", from);
    folder_path("away", to);
    if (arg)
        folder_path_in("moved", arg, from);
    CHECK(arg ? remove(from) == 0 : rename(from, to) == 0);
}

/* The room of the weights is removed under the run; its folder is moved away. */
static void what_was_begun_is_gone(void)
{
    static const char *const set[] = {"model.layers=2", "model.hidden=16", "model.heads=2",
                                      "model.seq=16", "train.batch=4", "train.steps=4",
                                      "train.threads=1", "train.save_keep=0"};
    char name[64];
    snprintf(name, sizeof name, "model.safetensors.tmp.%ld.0", (long)getpid());
    tokens();
    for (int whole = 0; whole < 2; whole++) {
        struct plait_train call = {.size = sizeof call, .on_step = on_step_move,
                                   .arg = whole ? NULL : name};
        struct plait_config *c = folder_config("moved", "corpus");
        folder_set(c, set, sizeof set / sizeof *set);
        int code = plait_train(c, &call);
        plait_config_free(c);
        test_check(code == 0 && folder_has("moved", "model.safetensors"), __FILE__, __LINE__,
                   "code %d: %s", code, plait_error());
        folder_remove("moved");
    }
}

/* ---- real limits ---- */

/* Of 60 KiB: the weights fit, traces and metrics do not. */
static void files_that_may_not_grow(void)
{
    char said[SAID];
    static const char traced[] = "train.valid_every=0 train.steps=1000 train.trace=true";
    int code = train("run", "ulimit -f 120;", "", traced, said);
    test_check(strstr(said, "file too large") != NULL, __FILE__, __LINE__, "%s", said);
    check_end("run", "ulimit", ".trace", code, said);
    code = train("run", "ulimit -f 120;", "", "train.valid_every=0 train.steps=1000", said);
    check_end("run", "ulimit", "metrics.jsonl", code, said);
    code = train("run", "ulimit -f 40;", "", "train.valid_every=0 train.steps=1000", said);
    test_check(code == PLAIT_STORAGE && strstr(said, "cannot keep the ") &&
                   strstr(said, "model.safetensors takes: file too large"), __FILE__, __LINE__,
               "code %d: %s", code, said);
    CHECK_INT(folder_count("run", "m"), 0);
}

/* A file system of 256 KiB of its own, which metrics and traces fill. */
static void a_small_disk(void)
{
    char small[FOLDER_PATH], copied[FOLDER_PATH], own[4 * FOLDER_PATH], said[SAID];
    folder_path("small", small);
    folder_path("copied", copied);
    CHECK(mkdir(small, 0777) == 0 && mkdir(copied, 0777) == 0);
    snprintf(own, sizeof own,
             "unshare -m sh -c 'mount -t tmpfs -o size=256k plait-test \"%s\" || exit 77; \"$@\"; "
             "code=$?; cp -r \"%s\"/. \"%s\"; exit $code' sh", small, small, copied);
    char probe[4 * FOLDER_PATH + 8];
    snprintf(probe, sizeof probe, "%s true", own);
    if (shell(probe, said) != 0) {
        test_skip("no file system can be mounted here");
        return;
    }
    for (int traced = 0; traced < 2; traced++) {
        char words[80];
        snprintf(words, sizeof words, "train.valid_every=0 train.steps=3000 train.trace=%s",
                 traced ? "true" : "false");
        int code = train("small/run", own, "", words, said);
        test_check(strstr(said, "no space left on device") != NULL, __FILE__, __LINE__, "%s", said);
        check_end("copied/run", "a small disk", strstr(said, ".trace") ? ".trace" : "metrics.jsonl",
                  code, said);
        CHECK(steps_in("copied/run") > 20);
    }
}

/* ---- asked for weights that are not there ---- */

static void generate(const char *run, const char *why)
{
    char command[COMMAND], dir[FOLDER_PATH], said[SAID];
    folder_path(run, dir);
    snprintf(command, sizeof command, "'%s' generate '%s' --prompt a", PLAIT_PROGRAM, dir);
    int code = shell(command, said);
    test_check(code == PLAIT_CHECKPOINT && strstr(said, "/run has no weights: ") &&
                   strstr(said, why), __FILE__, __LINE__, "wanted %s: code %d: %s", why, code,
               said);
}

static void generate_says_why_there_are_none(void)
{
    char said[SAID];
    CHECK_INT(train("run", "", "fsync@model.safetensors:1:EIO", "train.steps=3", said),
              PLAIT_STORAGE);
    generate("run", "its run did all 3 steps; saving failed, or");
    CHECK_INT(train("run", "", "write@/run/:9+:ENOSPC", "train.steps=9", said), PLAIT_STORAGE);
    test_check(strstr(said, "could not be saved") && steps_in("run") > 0, __FILE__, __LINE__, "%s",
               said);
    char why[80];
    snprintf(why, sizeof why, "its run ended behind step %d of 9 and saved none", steps_in("run"));
    generate("run", why);
    char path[FOLDER_PATH];
    folder_path_in("run", "metrics.jsonl", path);
    CHECK(unlink(path) == 0);
    generate("run", "no metrics.jsonl of a run either");
}

/* A launcher that has the run killed once it has metrics, and asked for its weights before. */
static void of_a_run_that_lives_and_one_that_died(void)
{
    char dir[FOLDER_PATH], killer[4 * FOLDER_PATH], said[SAID];
    folder_path("run", dir);
    snprintf(killer, sizeof killer,
             "sh -c '\"$@\" 2>/dev/null & p=$!; i=0; while ! [ -s \"%s/metrics.jsonl\" ] && "
             "[ $i -lt 3000 ]; do sleep 0.01; i=$((i + 1)); done; \"%s\" generate \"%s\" "
             "--prompt a; kill -9 $p; wait $p' sh", dir, PLAIT_PROGRAM, dir);
    (void)train("run", killer, "", "train.steps=1000000", said);
    const char *owner = strstr(said, "/run has no weights: the run of pid ");
    test_check(owner && strstr(owner, " is under way there, behind step ") &&
                   strstr(owner, " of 1000000, and saves them at its end"), __FILE__, __LINE__,
               "%s", said);
    generate("run", " died behind step ");
}

/* ---- as processes ---- */

static void under_mpirun(void)
{
    static const struct { const char *file, *fault; } runs[] = {
        {"metrics.jsonl", "half@metrics.jsonl:2:ENOSPC"},
        {"metrics.jsonl", "half@metrics.jsonl:5:EFBIG"},
        {"0.trace", "half@0.trace:3:ENOSPC"},
        {"check", "pread@check:9:EIO"},
        {"model.safetensors", "fsync@model.safetensors:1:EIO"},
    };
    if (!folder_mpirun())
        return;
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        char said[SAID], words[64];
        snprintf(words, sizeof words, "train.steps=%d train.trace=true train.transport=mpi", STEPS);
        int code = train("run", "mpirun -n 2 --oversubscribe", runs[i].fault, words, said);
        check_end("run", runs[i].fault, runs[i].file, code, said);
    }
}

static const struct test_case cases[] = {
    {"every file, every call", every_file_every_call},
    {"a disk that is full for all", a_disk_that_is_full_for_all},
    {"not finite and not saved", not_finite_and_not_saved},
    {"stopped and not saved", stopped_and_not_saved},
    {"a full disk and no memory", a_full_disk_and_no_memory},
    {"no call works any more", no_call_works_any_more},
    {"what was begun is gone", what_was_begun_is_gone},
    {"a lock that stays", a_lock_that_stays},
    {"a second signal says the first error", a_second_signal_says_the_first_error},
    {"files that may not grow", files_that_may_not_grow},
    {"a small disk", a_small_disk},
    {"generate says why there are none", generate_says_why_there_are_none},
    {"of a run that lives and one that died", of_a_run_that_lives_and_one_that_died},
    {"under mpirun", under_mpirun},
};
TEST_MAIN(cases)
