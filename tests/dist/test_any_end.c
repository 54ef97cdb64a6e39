/* SPDX-License-Identifier: Apache-2.0
 *
 * Whatever the end of a run, with no key set for it: a signal, the time that is up, a file that
 * fails, a loss that is not finite, all steps done. A checkpoint is there, and the run that goes on
 * from it has the numbers and the weights, to the bit, of the one that never ended so. Where no
 * checkpoints are wanted none is there.
 */
#include "folder.h"

#include "base/fs_sys.h"
#include "base/mem.h"
#include "ckpt/state.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

enum { STEPS = 12, WORDS = 24, WARMUP = 3 };

static const char *const base_set[] = {
    "model.layers=4", "model.hidden=24", "model.heads=4", "model.seq=8", "model.dropout=0.1",
    "train.batch=8", "train.threads=1", "train.steps=12", "optim.lr=0.01", "optim.warmup=3",
    "optim.clip=0.5", "optim.schedule=constant"};

static const struct layout { const char *name, *set[WORDS]; } layouts[] = {
    {"one rank", {"parallel.pp=1"}},
    {"pp 4, zb-h1", {"parallel.pp=4", "parallel.schedule=zb-h1"}},
    {"tp 2, dp 2, zero 1", {"parallel.tp=2", "parallel.dp=2", "parallel.zero=1"}},
    {"pp 2 both ways", {"parallel.pp=2", "parallel.schedule=chimera"}},
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

/* Behind step `at` the caller asks for a save so many times, takes so many seconds, or asks for the
 * stop. */
struct run { int64_t at; int saves; double nap; struct folder_seen seen; };

static void on_step(void *arg, const struct plait_step *s)
{
    struct run *r = arg;
    struct timespec nap = {(time_t)r->nap, (long)((r->nap - floor(r->nap)) * 1e9)};
    folder_on_step(&r->seen, s);
    for (int i = 0; i < r->saves && s->step == r->at; i++)
        plait_save();
    if (s->step == r->at && r->saves > 0)
        return;
    if (s->step == r->at && r->nap > 0)
        nanosleep(&nap, NULL);
    else if (s->step == r->at)
        plait_stop(1);
}

static void on_start(void *arg, const char *table)
{
    struct run *r = arg;
    snprintf(r->seen.table, sizeof r->seen.table, "%s", table);
}

static int train(const char *folder, const struct layout *l, const char *const *more, struct run *r)
{
    folder_tokens("tokens.bin", "a braid of many strands, over and under\n", 60);
    struct plait_config *c = folder_config(folder, "tokens.bin");
    folder_set(c, base_set, sizeof base_set / sizeof *base_set);
    folder_set(c, l->set, WORDS);
    folder_set(c, more, WORDS);
    r->seen.losses = 0;
    int code = plait_train(c, &(struct plait_train){.size = sizeof(struct plait_train),
                                                    .on_step = on_step, .on_start = on_start,
                                                    .arg = r});
    plait_stop(0);
    plait_config_free(c);
    return code;
}

/* ---- what runs left ---- */

static bool shell(const char *form, const char *a, const char *b)
{
    char from[FOLDER_PATH], to[FOLDER_PATH], command[12 * FOLDER_PATH];
    folder_path(a, from);
    folder_path(b, to);
    snprintf(command, sizeof command, "a='%s' b='%s'; %s", from, to, form);
    return system(command) == 0;
}

/* Lines of metrics without their times. */
static bool same_lines(const char *run, const char *judge)
{
    return shell("n() { sed 's/, \"tokens\".*//' \"$1/metrics.jsonl\"; }; "
                 "[ \"$(n \"$a\" | wc -l)\" = 12 ] && [ \"$(n \"$a\")\" = \"$(n \"$b\")\" ]", run,
                 judge);
}

/* The newest checkpoint's step; 0: none is whole. *n: how many are there. */
static int64_t newest(const char *run, int *n)
{
    struct state_found *found;
    char path[FOLDER_PATH];
    folder_path(run, path);
    CHECK_OK(state_list(path, false, &found, n));
    int64_t step = *n > 0 && found[0].whole ? found[0].step : 0;
    mem_free(found);
    return step;
}

/* ---- the ends ---- */

enum ending { BY_SIGNAL, BY_TIME, BY_FULL_DISK, BY_STEPS, ENDINGS };

static const struct fs_ops *under;
static int64_t unwritten; /* the line of this step fails */

static int64_t write_line(int fd, const void *p, int64_t n, int64_t at)
{
    char line[32];
    int length = snprintf(line, sizeof line, "{\"step\": %lld,", (long long)unwritten);
    bool full = n > length && memcmp(p, line, (size_t)length) == 0;
    errno = ENOSPC;
    return full ? -1 : under->write(fd, p, n, at);
}

/* Ends behind step `at`, or one of the next two, in folder "run". limit: seconds of a run by time,
 * which a slow machine may take before its first step: then it has longer. */
static int end_by(enum ending by, const struct layout *l, int64_t at, double limit)
{
    char word[48] = "optim.schedule=constant";
    struct fs_ops ops = *fs_ops;
    struct run r = {.at = by == BY_SIGNAL || by == BY_TIME ? at : 0,
                    .nap = by == BY_TIME ? limit : 0};
    if (by == BY_TIME)
        snprintf(word, sizeof word, "train.time_limit=%g", limit);
    if (by == BY_STEPS)
        snprintf(word, sizeof word, "train.steps=%lld", (long long)at);
    under = fs_ops;
    ops.write = write_line;
    unwritten = by == BY_FULL_DISK ? at : -1;
    fs_ops = &ops;
    int code = train("run", l, (const char *[]){word, NULL}, &r);
    fs_ops = under;
    if (by != BY_TIME || !strstr(plait_error(), "before the first step") || limit > 60)
        return code;
    folder_remove("run");
    return end_by(by, l, at, 2 * limit);
}

static void check_end(enum ending by, int code, int64_t at, const char *what)
{
    static const int codes[] = {PLAIT_STOPPED, PLAIT_STOPPED, PLAIT_STORAGE, PLAIT_OK};
    static const char *const says[] = {"stopped by ", "stopped by train.time_limit",
                                       "no space left", ""};
    int n;
    int64_t step = newest("run", &n);
    test_check(code == codes[by] && (!code || strstr(plait_error(), says[by])), __FILE__, __LINE__,
               "%s: %d: %s", what, code, plait_error());
    CHECK(code != PLAIT_STOPPED || strstr(plait_error(), "run.resume=auto goes on"));
    test_check(n == 1 && step >= (by == BY_TIME ? 1 : at) && step <= at + 2, __FILE__, __LINE__,
               "%s: %d checkpoints, step %lld", what, n, (long long)step);
}

static void goes_on_to_the_bit(void)
{
    static const char *const none[] = {NULL}, *const on[] = {"run.resume=auto", NULL};
    struct run r = {.at = 0};
    for (int i = 0; i < LAYOUTS; i++) {
        CHECK_INT(train("judge", &layouts[i], none, &r), 0);
        for (enum ending by = 0; by < ENDINGS; by++) {
            /* the warm-up of a run that is shorter is its length, and stays so */
            int64_t at = test_range(by == BY_STEPS ? WARMUP : 1, STEPS - 4);
            char what[96];
            snprintf(what, sizeof what, "%s, end %d behind step %d", layouts[i].name, (int)by,
                     (int)at);
            check_end(by, end_by(by, &layouts[i], at, 0.4), at, what);
            int code = train("run", &layouts[i], on, &r), n;
            test_check(code == 0, __FILE__, __LINE__, "%s: %d: %s", what, code, plait_error());
            CHECK_INT(newest("run", &n), STEPS);
            /* a full disk took the lines of steps that are not done again */
            test_check(by == BY_FULL_DISK || same_lines("run", "judge"), __FILE__, __LINE__,
                       "%s: other numbers", what);
            test_check(folder_same_in("run", "judge", "model.safetensors"), __FILE__, __LINE__,
                       "%s: other weights", what);
            folder_remove("run");
        }
        folder_remove("judge");
    }
}

/* Of a step that is not finite nothing is kept, and of those before it the state. */
static void behind_what_is_not_finite(void)
{
    static const char *const set[] = {"optim.lr=100", "optim.clip=0", "train.steps=500", NULL};
    struct run r = {.at = 0};
    char named[64];
    int n;
    CHECK_INT(train("run", &layouts[2], set, &r), PLAIT_NONFINITE);
    snprintf(named, sizeof named, "; the weights of step %lld are in",
             (long long)newest("run", &n));
    test_check(strstr(plait_error(), named) != NULL, __FILE__, __LINE__, "%s", plait_error());
    folder_remove("run");
}

/* All is done: it says so, ends well, and leaves what there is. */
static void nothing_left_to_do(void)
{
    static const char *const none[] = {NULL}, *const on[] = {"run.resume=auto", NULL};
    struct run r = {.at = 0};
    for (int i = 0; i < LAYOUTS; i++) {
        CHECK_INT(train("run", &layouts[i], none, &r), 0);
        CHECK(shell("cp -r \"$a\" \"$b\"", "run", "kept"));
        CHECK_INT(train("run", &layouts[i], on, &r), 0);
        CHECK_INT(r.seen.losses, 0);
        CHECK(strstr(r.seen.table, "; all its 12 steps are done") != NULL);
        /* but for the start itself */
        CHECK(shell("diff -r -x run.json -x log.txt \"$a\" \"$b\"", "run", "kept"));
        folder_remove("run");
        folder_remove("kept");
    }
}

/* train.save_keep=0 leaves weights, run.save=false nothing. */
static void switched_off(void)
{
    static const char *const off[] = {"train.save_keep=0", "run.save=false"};
    for (int i = 0; i < 2; i++)
        for (int64_t at = 0; at < 6; at += 3) {
            struct run r = {.at = at};
            int code = train("run", &layouts[2], (const char *[]){off[i], NULL}, &r);
            CHECK_INT(code, at ? PLAIT_STOPPED : 0);
            CHECK(!code || !strstr(plait_error(), "run.resume"));
            CHECK(!folder_has("run", "checkpoints"));
            CHECK(folder_has("run", "model.safetensors") == (i == 0));
            folder_remove("run");
        }
}

/* ---- a request to save ---- */

/* One checkpoint however often it is asked for within a step, of a step behind it; the run goes on
 * as if nobody had asked, and so does one that goes on from there. */
static void saves_and_goes_on(void)
{
    static const char *const none[] = {NULL};
    struct run r = {.at = 0};
    for (int i = 0; i < LAYOUTS; i++) {
        int64_t at = test_range(1, STEPS - 4);
        CHECK_INT(train("judge", &layouts[i], none, &r), 0);
        for (int times = 1; times < 3; times++) {
            struct run asks = {.at = at, .saves = times};
            struct state_found *found;
            char path[FOLDER_PATH], word[48];
            int n;
            CHECK_INT(train("run", &layouts[i], none, &asks), 0);
            CHECK(same_lines("run", "judge"));
            CHECK(folder_same_in("run", "judge", "model.safetensors"));
            folder_path("run", path);
            CHECK_OK(state_list(path, false, &found, &n));
            test_check(n == 2 && found[0].step == STEPS && found[1].whole &&
                           found[1].step > at && found[1].step <= at + 2, __FILE__, __LINE__,
                       "%s: %d checkpoints, asked behind step %d", layouts[i].name, n, (int)at);
            snprintf(word, sizeof word, "run.resume=%lld", n == 2 ? (long long)found[1].step : 0);
            mem_free(found);
            CHECK_INT(train("run", &layouts[i], (const char *[]){word, NULL}, &r), 0);
            CHECK(same_lines("run", "judge"));
            CHECK(folder_same_in("run", "judge", "model.safetensors"));
            folder_remove("run");
        }
        folder_remove("judge");
    }
}

/* Where nothing is saved the request is answered with that, and ends nothing. */
static void asked_where_nothing_is_saved(void)
{
    static const char *const off[] = {"train.save_keep=0", "run.save=false"};
    for (int i = 0; i < 2; i++) {
        struct run asks = {.at = 3, .saves = 1};
        CHECK_INT(train("run", &layouts[0], (const char *[]){off[i], NULL}, &asks), 0);
        CHECK_INT(asks.seen.losses, STEPS);
        CHECK(!folder_has("run", "checkpoints"));
        folder_remove("run");
    }
}

/* Behind the last step nothing goes on, and the line does not say so. */
static void asked_behind_the_last_step(void)
{
    static const char *const set[] = {"train.save_keep=2", "train.save_keep=0"};
    for (int i = 0; i < 2; i++) {
        struct run asks = {.at = STEPS - 1, .saves = 1};
        CHECK_INT(train("run", &layouts[0], (const char *[]){set[i], NULL}, &asks), 0);
        const char *says = i ? "no checkpoint is saved, since train.save_keep is 0; it is the last "
                               "step" : "behind step 12, as was asked; it is the last step";
        CHECK_INT(folder_times("run", "log.txt", says), 1);
        CHECK_INT(folder_times("run", "log.txt", "goes on"), 0);
        folder_remove("run");
    }
}

/* SIGUSR1 to mpirun, which hands it on, or to one rank alone: a checkpoint, and further steps. */
static void asked_by_a_signal(void)
{
    static const char *const to[] = {"$p", "$(pgrep -P $p | head -1)", "$(pgrep -P $p | tail -1)"};
    char tokens[FOLDER_PATH], form[4096];
    if (!folder_mpirun())
        return;
    folder_tokens("tokens.bin", "a braid of many strands, over and under\n", 60);
    folder_path("tokens.bin", tokens);
    for (int i = 0; i < 3; i++) {
        snprintf(form, sizeof form,
                 "until_is() { n=0; until eval \"$1\"; do sleep 0.02; n=$((n + 1)); "
                 "[ $n -lt 3000 ] || return 1; done; }; lines() { cat \"$a/metrics.jsonl\" "
                 "2>/dev/null | wc -l; }; "
                 "mpirun --oversubscribe -n 2 '%s' train train.transport=mpi run.dir=\"$a\" "
                 "data.train='%s' model.layers=2 model.hidden=16 model.heads=2 model.seq=8 "
                 "train.batch=4 train.threads=1 parallel.dp=2 train.steps=100000000 >/dev/null "
                 "2>&1 & "
                 "p=$!; until_is '[ $(lines) -gt 3 ]' && kill -USR1 %s && "
                 "until_is 'ls \"$a\"/checkpoints/*/index.json >/dev/null 2>&1' && l=$(lines) && "
                 "until_is '[ $(lines) -gt $((l + 3)) ]'; good=$?; "
                 "kill -TERM $(pgrep -P $p | head -1); wait $p; "
                 "[ $? = 75 ] && [ $good = 0 ]", PLAIT_PROGRAM, tokens, to[i]);
        test_check(shell(form, "run", "run"), __FILE__, __LINE__, "to %s", to[i]);
        folder_remove("run");
    }
}

static const struct test_case cases[] = {
    {"saves and goes on", saves_and_goes_on},
    {"asked where nothing is saved", asked_where_nothing_is_saved},
    {"asked behind the last step", asked_behind_the_last_step},
    {"asked by a signal", asked_by_a_signal},
    {"goes on to the bit", goes_on_to_the_bit},
    {"behind what is not finite", behind_what_is_not_finite},
    {"nothing left to do", nothing_left_to_do},
    {"switched off", switched_off},
};
TEST_MAIN(cases)
