/* SPDX-License-Identifier: Apache-2.0
 *
 * Exports that do not end well: each file call of one fails once, or it is killed there, or told to
 * end. The folder is then whole or not there; what fails is said and leaves nothing beside it, and
 * the next export to the same place goes well.
 */
#include "endings.h"

#include "base/fs.h"

#include <signal.h>
#include <sys/stat.h>

static const char small[] =
    "model.layers=2 model.hidden=16 model.heads=2 model.seq=8 train.batch=2 train.steps=2 "
    "train.threads=1 train.save_every=2 train.save_async=false";

/* Exports go to to/out. */
static void forget(void)
{
    char path[FOLDER_PATH];
    folder_remove("to");
    folder_path("to", path);
    CHECK(mkdir(path, 0700) == 0);
}

static void make_run(void)
{
    char command[COMMAND], dir[FOLDER_PATH], corpus[FOLDER_PATH], said[SAID];
    if (folder_has("run", "model.safetensors"))
        return;
    tokens();
    folder_path("run", dir);
    folder_path("corpus", corpus);
    snprintf(command, sizeof command, "'%s' train run.dir='%s' data.train='%s' %s", PLAIT_PROGRAM,
             dir, corpus, small);
    test_check(shell(command, said) == 0, __FILE__, __LINE__, "%s", said);
}

static const char *shards = "0.00001"; /* --shard-size: some files */

/* The program, in several files. launcher: words before it; fault: of PLAIT_FAIL_FS, or "". */
static int export(const char *launcher, const char *fault, char said[SAID])
{
    char command[COMMAND], dir[FOLDER_PATH], out[FOLDER_PATH];
    folder_path("run", dir);
    folder_path("to/out", out);
    snprintf(command, sizeof command,
             "PLAIT_FAIL_FS='%s'; [ -z '%s' ] || export PLAIT_FAIL_FS; %s '%s' export '%s' -o '%s' "
             "--shard-size %s", fault, fault, launcher, PLAIT_PROGRAM, dir, out, shards);
    return shell(command, said);
}

/* As the first one, which nothing happened to. */
static bool whole(void)
{
    char a[FOLDER_PATH], b[FOLDER_PATH], command[3 * FOLDER_PATH];
    folder_path("good", a);
    folder_path("to/out", b);
    snprintf(command, sizeof command, "diff -r '%s' '%s' >&2", a, b);
    return system(command) == 0;
}

static bool there(const char *what)
{
    char path[FOLDER_PATH];
    folder_path("to/out", path);
    bool is = fs_exists(path);
    test_check(!is || whole(), __FILE__, __LINE__, "%s: it is not whole", what);
    return is;
}

/* Temporaries beside its place. */
static int beside(void)
{
    return folder_count("to", "out.tmp.");
}

static void make_good(void)
{
    char said[SAID], a[FOLDER_PATH], b[FOLDER_PATH];
    make_run();
    folder_path("to/out", a);
    folder_path("good", b);
    if (fs_exists(b))
        return;
    forget();
    test_check(export("", "", said) == 0, __FILE__, __LINE__, "%s", said);
    CHECK(rename(a, b) == 0);
}

static void goes_well_then(const char *what)
{
    char said[SAID];
    forget();
    int code = export("", "", said);
    test_check(code == 0 && there(what), __FILE__, __LINE__, "%s: then %d: %s", what, code, said);
}

/* Calls of whatever kind, in their order; a fault that nothing reaches is behind the last. */
static void each_call_fails_once(void)
{
    static const char *const codes[] = {"EIO", "ENOSPC", "EACCES"};
    int failed = 0, n = 0, good = 0;
    make_good();
    for (n = 1; good < 12 && n < 1000; n++) {
        char fault[64], said[SAID];
        snprintf(fault, sizeof fault, "%d:%s", n, codes[n % 3]);
        forget();
        int code = export("", fault, said);
        good = code == 0 ? good + 1 : 0;
        failed += code != 0;
        bool is = there(fault);
        test_check(code == 0 ? is : code == PLAIT_STORAGE || code == PLAIT_CHECKPOINT ||
                                        code == PLAIT_CONFIG,
                   __FILE__, __LINE__, "%s: code %d: %s", fault, code, said);
        /* the last calls are of the place, where the folder may be there already */
        test_check(code == 0 || !is || strstr(said, "cannot flush the folder"), __FILE__, __LINE__,
                   "%s: it is there: %s", fault, said);
        test_check(beside() == 0, __FILE__, __LINE__, "%s: something stays beside: %s", fault,
                   said);
    }
    test_check(failed > 40 && n < 1000, __FILE__, __LINE__, "%d of %d calls failed", failed, n);
    goes_well_then("each call");
}

static void killed_at_each_call(void)
{
    int killed = 0, told = 0, code = -1, n = 1;
    make_good();
    for (; code != 0 && n < 1000; n += (int)test_range(1, 4)) {
        char fault[64], said[SAID];
        snprintf(fault, sizeof fault, "%d:KILL", n);
        forget();
        code = export("", fault, said);
        killed += code == 128 + SIGKILL || code == 1000 + SIGKILL;
        test_check(code == 0 || code == 128 + SIGKILL || code == 1000 + SIGKILL, __FILE__, __LINE__,
                   "%s: code %d: %s", fault, code, said);
        bool is = there(fault);
        for (int left = beside(); left > 0 && !is && told < 8; left = 0) {
            int then = export("", "", said);
            test_check(then == 0 && there(fault) && strstr(said, "/out.tmp.") &&
                           strstr(said, " is a half-written ") && beside() == left,
                       __FILE__, __LINE__, "%s: then %d: %s", fault, then, said);
            told++;
        }
    }
    test_check(killed > 10 && told == 8 && n < 1000, __FILE__, __LINE__, "%d of %d kills, %d told",
               killed, n, told);
    goes_well_then("kills");
}

/* A signal's end takes what it has written with it. */
static void told_to_end(void)
{
    char launcher[256], said[SAID];
    make_good();
    for (int i = 0; i < 12; i++) {
        forget();
        snprintf(launcher, sizeof launcher,
                 "sh -c '\"$@\" & p=$!; sleep 0.%03d; kill -TERM $p 2>/dev/null; wait $p' sh",
                 (int)test_range(1, 30));
        int code = export(launcher, "", said);
        bool is = there("SIGTERM");
        test_check(code == 0 ? is : code == 128 + SIGTERM, __FILE__, __LINE__, "code %d: %s", code,
                   said);
        test_check(beside() == 0, __FILE__, __LINE__, "something stays beside");
    }
    goes_well_then("SIGTERM");
}

/* The same at calls of an export of many files. */
static void told_to_end_at_each_call(void)
{
    int told = 0, code = -1;
    make_good();
    shards = "0.000001";
    for (int n = 1; code != 0 && n < 1000; n += (int)test_range(2, 6)) {
        char fault[64], said[SAID];
        snprintf(fault, sizeof fault, "%d:TERM", n);
        forget();
        code = export("", fault, said);
        told += code == 128 + SIGTERM;
        test_check(code == 0 || code == 128 + SIGTERM, __FILE__, __LINE__, "%s: code %d: %s", fault,
                   code, said);
        test_check(beside() == 0, __FILE__, __LINE__, "%s: something stays beside", fault);
    }
    test_check(code == 0 && told > 30, __FILE__, __LINE__, "%d calls", told);
    CHECK(folder_count("to/out", "model-000") > 16);
    shards = "0.00001";
}

static const struct test_case cases[] = {
    {"each call fails once", each_call_fails_once},
    {"killed at each call", killed_at_each_call},
    {"told to end", told_to_end},
    {"told to end at each call", told_to_end_at_each_call},
};
TEST_MAIN(cases)
