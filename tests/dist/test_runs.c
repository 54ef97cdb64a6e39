/* SPDX-License-Identifier: Apache-2.0
 *
 * plait runs: each state that a run can be in, and folders in which every name of a run is
 * something else, damaged or huge: what is wrong with one is said, and the next is listed.
 */
#include "folder.h"

#include "base/fs.h"

#include <cjson/cJSON.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char *listed; /* by the run that is under way */

static char *list(const char *dir, const char *format)
{
    char path[FOLDER_PATH], *text = NULL;
    folder_path(dir, path);
    int code = plait_runs(&(struct plait_runs){sizeof(struct plait_runs), path, format}, &text);
    test_check(code == 0, __FILE__, __LINE__, "%d: %s", code, plait_error());
    return text;
}

static void on_step(void *arg, const struct plait_step *s)
{
    if (s->step == 3)
        listed = list("runs", "json");
    if (arg && s->step == 3)
        plait_stop(1);
}

static int train(const char *run, const char *more, bool stops)
{
    char name[64];
    const char *const set[] = {"model.layers=2", "model.hidden=16", "model.heads=2",
                               "model.seq=8", "train.batch=4", "train.threads=1", "train.steps=6",
                               "train.save_every=2", "train.valid_every=2", more};
    snprintf(name, sizeof name, "runs/%s", run);
    folder_tokens("tokens.bin", "a braid of many strands, over and under\n", 40);
    struct plait_config *c = folder_config(name, "tokens.bin");
    folder_set_file(c, "data.valid", "tokens.bin");
    folder_set(c, set, sizeof set / sizeof *set);
    plait_free(listed);
    listed = NULL;
    int code = plait_train(c, &(struct plait_train){.size = sizeof(struct plait_train),
                                                    .on_step = on_step,
                                                    .arg = stops ? &listed : NULL});
    plait_stop(0);
    plait_config_free(c);
    return code;
}

static const cJSON *find(const cJSON *all, const char *run)
{
    const cJSON *r;
    cJSON_ArrayForEach(r, all)
        if (strcmp(cJSON_GetObjectItem(r, "run")->valuestring, run) == 0)
            return r;
    return NULL;
}

/* Is that run of that state, and has done so many steps? */
static void check_run(const cJSON *all, const char *run, const char *state, int least)
{
    const cJSON *r = find(all, run);
    const char *is = r ? cJSON_GetStringValue(cJSON_GetObjectItem(r, "state")) : NULL;
    const cJSON *step = r ? cJSON_GetObjectItem(r, "step") : NULL;
    test_check(is && strcmp(is, state) == 0, __FILE__, __LINE__, "%s is %s, wanted %s", run,
               is ? is : "not there", state);
    test_check(step && step->valueint >= least, __FILE__, __LINE__, "%s is at step %d", run,
               step ? step->valueint : -1);
}

static void put(const char *run, const char *name, const char *words)
{
    char path[FOLDER_PATH];
    folder_path_in(run, name, path);
    CHECK_OK(fs_put(path, words, (int64_t)strlen(words)));
}

static void states(void)
{
    CHECK_INT(train("done", "train.seed=1", false), 0);
    cJSON *all = cJSON_Parse(listed);
    check_run(all, "done", "running", 2);
    cJSON_Delete(all);
    CHECK_INT(train("stops", "train.seed=1", true), PLAIT_STOPPED);
    CHECK_INT(train("fails", "train.seed=1", false), 0);
    put("runs/fails", "run.json", "{\"format\": \"plait run 1\", \"starts\": [{\"start\": "
        "\"2026-01-02T03:04:05Z\", \"from\": 0, \"to\": 1, \"exit\": 18, \"words\": \"a\"}]}");
    CHECK_INT(train("dies", "train.seed=1", false), 0);
    put("runs/dies", "run.json", "{\"format\": \"plait run 1\", \"starts\": [{\"start\": "
        "\"2026-01-02T03:04:05Z\", \"from\": 0, \"to\": null, \"end\": null}]}");
    char *json = list("runs", "json"), *text = list("runs", "text");
    all = cJSON_Parse(json);
    CHECK(cJSON_GetArraySize(all) == 4);
    check_run(all, "done", "ended", 6);
    check_run(all, "stops", "stopped", 3);
    check_run(all, "fails", "failed", 1);
    check_run(all, "dies", "killed", 6);
    const cJSON *done = find(all, "done");
    CHECK(done && cJSON_GetObjectItem(done, "checkpoints")->valueint == 2 &&
          cJSON_GetObjectItem(done, "newest")->valueint == 6 &&
          cJSON_GetObjectItem(done, "bytes")->valuedouble > 1000 &&
          cJSON_GetObjectItem(done, "best_valid")->valuedouble > 0 &&
          cJSON_IsNull(cJSON_GetObjectItem(done, "wrong")));
    CHECK(strstr(text, "2026-01-02T03:04:05Z") && strstr(text, "6/6"));
    CHECK(strstr(text, "2 to step 6"));
    cJSON_Delete(all);
    plait_free(json);
    plait_free(text);
    text = list("runs/done", "text");
    CHECK(strstr(text, "\n.  ") && strstr(text, "ended")); /* the folder itself is one */
    plait_free(text);
    folder_remove("runs");
}

/* ---- locks ---- */

static void put_lock(const char *run, const char *host, const char *since)
{
    char words[256], own[65] = "";
    CHECK(gethostname(own, sizeof own - 1) == 0);
    snprintf(words, sizeof words, "plait run\nhost %s\npid 999999999\nsince %s\n",
             host ? host : own, since);
    put(run, "plait.lock", words);
}

/* A lock that nobody is seen to hold, and a run.json of a start: what is true of the run. */
static void locks_that_are_left(void)
{
    static const struct { const char *host, *since, *exit, *state; } row[] = {
        {"elsewhere", "2026-01-02T03:04:04Z", "null", "not ended"},
        {"elsewhere", "2026-01-02T03:04:04Z", "75", "stopped"}, /* it could not remove its lock */
        {"elsewhere", "2026-01-02T03:04:05Z", "0", "ended"},
        {"elsewhere", "2026-01-02T03:04:06Z", "75", "not ended"}, /* that was the start before */
        {NULL, "2026-01-02T03:04:04Z", "null", "killed"},
        {NULL, "2026-01-02T03:04:06Z", "75", "killed"},
    };
    char record[512];
    CHECK_INT(train("locked", "train.seed=1", false), 0);
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        snprintf(record, sizeof record, "{\"format\": \"plait run 1\", \"starts\": [{\"start\": "
                 "\"2026-01-02T03:04:05Z\", \"from\": 0, \"to\": null, \"exit\": %s}]}",
                 row[i].exit);
        put("runs/locked", "run.json", record);
        put_lock("runs/locked", row[i].host, row[i].since);
        char *json = list("runs", "json"), *text = list("runs", "text");
        cJSON *all = cJSON_Parse(json);
        check_run(all, "locked", row[i].state, 6);
        const char *host = cJSON_GetStringValue(cJSON_GetObjectItem(find(all, "locked"), "host"));
        test_check(host && (!row[i].host || strcmp(host, row[i].host) == 0), __FILE__, __LINE__,
                   "row %d: %s", (int)i, json);
        bool unseen = strcmp(row[i].state, "not ended") == 0;
        test_check(unseen == (strstr(text, "  not ended, on elsewhere  ") != NULL) &&
                       !strstr(text, "locked: "), __FILE__, __LINE__, "row %d: %s", (int)i, text);
        cJSON_Delete(all);
        plait_free(json);
        plait_free(text);
    }
    put("runs/locked", "plait.lock", "a note of somebody's\n");
    put("runs/locked", "run.json", "{\"format\": \"plait run 1\", \"starts\": [{\"start\": "
        "\"2026-01-02T03:04:05Z\", \"from\": 0, \"to\": null, \"end\": null}]}");
    char *text = list("runs", "text");
    CHECK(strstr(text, "  ?  ") && strstr(text, "plait.lock cannot be read, or no run made it"));
    plait_free(text);
    folder_remove("runs");
}

/* Each allocation of a list fails once: that is said, and no list is short of what it lacked. */
static void memory_that_is_not_there(void)
{
    char command[4 * FOLDER_PATH], path[FOLDER_PATH];
    int code = PLAIT_MEMORY, k = 0;
    CHECK_INT(train("a", "train.seed=1", false), 0);
    CHECK_INT(train("b", "train.seed=1", false), 0);
    put("runs/b", "run.json", "{");
    folder_path("", path);
    snprintf(command, sizeof command, "cd '%s' && '%s' runs runs >good", path, PLAIT_PROGRAM);
    CHECK_INT(system(command), 0);
    for (; code == PLAIT_MEMORY && k < 2000; k++) {
        snprintf(command, sizeof command, "cd '%s' && PLAIT_FAIL_ALLOC=%d '%s' runs runs >out "
                 "2>/dev/null", path, k + 1, PLAIT_PROGRAM);
        int status = system(command);
        code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    }
    test_check(code == 0 && k > 20 && folder_same("out", "good"), __FILE__, __LINE__,
               "allocation %d: %d", k, code);
    folder_remove("runs");
}

/* ---- hostile folders ---- */

enum thing { PIPE, DANGLING, LOOP, FOLDER, EMPTY, ZEROS, HUGE_FILE, NOISE, THINGS };

static void put_thing(enum thing what, const char *path)
{
    char noise[4096];
    int fd;
    switch (what) {
    case PIPE: CHECK(mkfifo(path, 0600) == 0); return;
    case DANGLING: CHECK(symlink("nowhere", path) == 0); return;
    case LOOP: CHECK(symlink(path, path) == 0); return;
    case FOLDER: CHECK(mkdir(path, 0700) == 0); return;
    default: break;
    }
    CHECK((fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600)) >= 0);
    for (size_t i = 0; i < sizeof noise; i++)
        noise[i] = (char)(what == ZEROS ? 0 : test_range(0, 255));
    if (what == HUGE_FILE)
        CHECK(ftruncate(fd, (off_t)1 << 40) == 0);
    else if (what != EMPTY)
        CHECK(write(fd, noise, sizeof noise) == (ssize_t)sizeof noise);
    CHECK(close(fd) == 0);
}

static void hostile_folders(void)
{
    static const char *const name[] = {"run.json", "metrics.jsonl", "config.yaml", "plait.lock",
                                       "log.txt", "checkpoints", "checkpoints/step-9"};
    CHECK_INT(train("good", "train.seed=1", false), 0);
    CHECK_INT(train("hurt", "train.seed=1", false), 0);
    (void)alarm(120); /* nothing is waited for */
    for (size_t i = 0; i < sizeof name / sizeof *name; i++)
        for (int what = 0; what < THINGS; what++) {
            char path[FOLDER_PATH], command[3 * FOLDER_PATH];
            folder_path_in("runs/hurt", name[i], path);
            snprintf(command, sizeof command, "mv '%s' '%s.kept' 2>/dev/null", path, path);
            bool was = system(command) == 0;
            put_thing((enum thing)what, path);
            char *json = list("runs", "json"), *text = list("runs", "text");
            cJSON *all = cJSON_Parse(json);
            test_check(cJSON_GetArraySize(all) == 2, __FILE__, __LINE__, "%s", json);
            check_run(all, "good", "ended", 6);
            const cJSON *hurt = find(all, "hurt");
            CHECK(hurt != NULL);
            test_check(i >= 3 || (hurt && cJSON_IsString(cJSON_GetObjectItem(hurt, "wrong")) &&
                                  strstr(text, "\nhurt: ")) || (i == 1 && what >= EMPTY) ||
                           (i == 2 && what == EMPTY),
                       __FILE__, __LINE__, "%s, thing %d: %s", name[i], what, json);
            cJSON_Delete(all);
            plait_free(json);
            plait_free(text);
            folder_remove(path);
            snprintf(command, sizeof command, "mv '%s.kept' '%s'", path, path);
            CHECK(!was || system(command) == 0);
        }
    (void)alarm(0);
    folder_remove("runs");
}

static void what_is_no_folder(void)
{
    char *text;
    struct plait_runs a = {sizeof a, "nowhere", NULL};
    CHECK_INT(plait_runs(&a, &text), PLAIT_CONFIG);
    a = (struct plait_runs){sizeof a, ".", "xml"};
    CHECK_INT(plait_runs(&a, &text), PLAIT_CONFIG);
    CHECK(mkdir("empty", 0700) == 0);
    text = list("empty", "text");
    CHECK(strstr(text, "no run in "));
    plait_free(text);
}

static const struct test_case cases[] = {
    {"states", states},
    {"locks that are left", locks_that_are_left},
    {"memory that is not there", memory_that_is_not_there},
    {"hostile folders", hostile_folders},
    {"what is no folder", what_is_no_folder},
};
TEST_MAIN(cases)
