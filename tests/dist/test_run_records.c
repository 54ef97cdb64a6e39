/* SPDX-License-Identifier: Apache-2.0
 *
 * What a run leaves of itself in its folder over several starts: of each step each kind of line
 * once, what is said of lengths that a checkpoint has brought, run.json and log.txt.
 */
#include "records.h"
#include "saved.h"

#include "base/fs.h"
#include "folder/record.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- lines of metrics ---- */

/* A run that validates every `before` steps, and goes on behind step `at` with every `after`. */
static void go_on(int before, int at, int after)
{
    struct outcome o;
    char every[32], resume[32], next[32];
    snprintf(every, sizeof every, "train.valid_every=%d", before);
    snprintf(next, sizeof next, "train.valid_every=%d", after);
    snprintf(resume, sizeof resume, "run.resume=%d", at);
    train((const char *[]){"train.save_every=1", every, NULL}, STEPS - 1, &o);
    CHECK_INT(o.code, PLAIT_STOPPED);
    struct lines was = count_lines();
    train((const char *[]){"train.save_every=1", next, resume, NULL}, 0, &o);
    test_check(o.code == 0, __FILE__, __LINE__, "%d: %s", o.code, plait_error());
    struct lines is = count_lines();
    for (int s = 1; s <= STEPS; s++) {
        bool due = s >= at && (s == STEPS || (after > 0 && s % after == 0));
        int want = due || (s <= at && was.valid[s]);
        test_check(is.step[s] == 1 && is.valid[s] == want, __FILE__, __LINE__,
                   "every %d, then behind %d every %d: step %d has %d lines and %d of a "
                   "validation, wanted 1 and %d", before, at, after, s, is.step[s], is.valid[s],
                   want);
    }
    folder_remove("run");
}

static void each_kind_of_line_once(void)
{
    for (int before = 1; before <= 3; before++)
        for (int at = 1 + before % 2; at < STEPS; at += 2)
            go_on(before, at, (before + at) % 4);
}

/* ---- lengths ---- */

/* A warm-up that the first run cut stays as it was, and that is what is said. */
static void lengths_in_effect_are_said(void)
{
    static const struct { const char *steps, *said; } go[] = {
        {"train.steps=5", "optim.warmup 8 is longer than train.steps 5: "},
        {"train.steps=6", "optim.warmup 8 was longer than the run that goes on here: "},
        {"train.steps=12", "optim.warmup 8 was longer than the run that goes on here: "},
    };
    for (size_t i = 0; i < sizeof go / sizeof *go; i++) {
        struct outcome o;
        char said[160];
        train((const char *[]){"train.steps=5", "optim.warmup=8", "train.save_every=1", NULL}, 3,
              &o);
        CHECK_INT(o.code, PLAIT_STOPPED);
        train((const char *[]){go[i].steps, "optim.warmup=8", "run.resume=auto", NULL}, 0, &o);
        CHECK_INT(o.code, 0);
        snprintf(said, sizeof said, "warning %sthe learning rate rises over 5 steps\n", go[i].said);
        test_check(strstr(o.seen.table, said) != NULL, __FILE__, __LINE__, "%s is not in %s", said,
                   o.seen.table);
        CHECK(strstr(strstr(o.seen.table, "rises over") + 1, "rises over") == NULL);
        folder_remove("run");
    }
}

/* ---- what may not change ---- */

/* The index of a checkpoint has another hash of the tokenizer, or another data.valid is
 * given. */
static void data_is_compared(void)
{
    static const char *const resume[] = {"run.resume=3", "train.save_every=1", NULL};
    static const char *const insist[] = {"run.resume=3", "train.save_every=1",
                                         "run.resume_insist=true", NULL};
    for (int i = 0; i < 4; i++) {
        struct outcome o;
        char dir[FOLDER_PATH], other[FOLDER_PATH + 16];
        const char *key = i / 2 ? "run.resume: data.tokenizer is of hash " :
                                  "run.resume: data.valid is of hash ";
        train((const char *[]){"train.save_every=1", NULL}, 3, &o);
        CHECK_INT(o.code, PLAIT_STOPPED);
        folder_path_in("run", "checkpoints/step-3", dir);
        char *text = saved_index(dir);
        char *at = strstr(text, i / 2 ? "\"tokenizer_hash\":\"" : "\"valid_hash\":\"");
        if (CHECK(at != NULL)) {
            at = strchr(strchr(at, ':'), '"') + 3;
            *at = *at == '7' ? '8' : '7';
            saved_put_index(dir, text);
        }
        mem_free(text);
        train(i % 2 ? insist : resume, 0, &o);
        test_check(o.code == (i % 2 ? 0 : PLAIT_CONFIG) &&
                       (i % 2 || strstr(plait_error(), key) != NULL),
                   __FILE__, __LINE__, "%s: %d: %s", key, o.code, plait_error());
        folder_path("other.bin", dir);
        snprintf(other, sizeof other, "data.valid=%s", dir);
        if (i == 0) {
            train((const char *[]){"run.resume=2", other, NULL}, 0, &o);
            CHECK_INT(o.code, PLAIT_CONFIG);
            CHECK(strstr(plait_error(), key) != NULL);
            train((const char *[]){"run.resume=2", "data.valid=",
                                   "train.valid_batches=0", NULL}, 0, &o);
            test_check(o.code == 0, __FILE__, __LINE__, "%d: %s", o.code, plait_error());
        }
        folder_remove("run");
    }
}

/* ---- run.json and log.txt ---- */

static int logged(const char *word)
{
    return folder_times("run", "log.txt", word);
}

/* A run that is stopped, killed, resumed and done: each start is in run.json with its end, and
 * log.txt has the lines of all. */
static void starts_and_ends_are_kept(void)
{
    static const char *const first[] = {"train.save_every=1", "train.log_every=1", NULL};
    static const char *const next[] = {"train.save_every=1", "train.log_every=1",
                                       "run.resume=auto", NULL};
    struct outcome o;
    struct record r;
    char path[FOLDER_PATH];
#ifdef __SANITIZE_THREAD__
    test_skip("a fork behind threads, under ThreadSanitizer");
    return;
#endif
    train(first, 2, &o);
    CHECK_INT(o.code, PLAIT_STOPPED);
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) { /* is killed when it has begun, in its first step */
        (void)alarm(60);
        train((const char *[]){"train.steps=1000000", "train.save_every=1000000",
                               "run.resume=auto", NULL}, 0, &o);
        _exit(0);
    }
    for (int i = 0; i < 3000 && logged("Z run of pid ") < 2; i++)
        usleep(10000);
    CHECK(pid > 0 && kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid);
    train(next, 0, &o);
    test_check(o.code == 0, __FILE__, __LINE__, "%d: %s", o.code, plait_error());
    folder_path_in("run", "run.json", path);
    CHECK_OK(record_read(path, &r));
    if (CHECK(r.n == 3)) {
        CHECK(r.start[0].from == 0 && r.start[0].to >= 2 && r.start[0].code == PLAIT_STOPPED);
        CHECK(r.start[0].words && strstr(r.start[0].words, "stopped by ") && r.start[0].end[0]);
        CHECK(r.start[1].from == r.start[0].to && r.start[1].to == -1 && r.start[1].code == -1);
        CHECK(!r.start[1].words && !r.start[1].end[0]);
        CHECK(r.start[2].to == STEPS && r.start[2].code == 0 && !r.start[2].words);
    }
    record_free(&r);
    char *json = folder_text("run", "run.json");
    CHECK_INT(logged("Z run of pid "), 3);
    CHECK_INT(logged("ended with code 75 behind step "), 1);
    CHECK_INT(logged("Z ended behind step 6\n"), 1);
    CHECK_INT(logged(", died there\n"), 1);
    CHECK(logged("Z step 6/6  loss ") == 1 && logged("valid at step 6: loss ") == 1);
    CHECK(logged("\033") == 0 && logged("\r") == 0);
    cJSON *tree = cJSON_Parse(json);
    CHECK(tree && cJSON_GetObjectItem(tree, "version") && cJSON_GetObjectItem(tree, "host") &&
          cJSON_IsArray(cJSON_GetObjectItem(tree, "devices")));
    cJSON_Delete(tree);
    mem_free(json);
    folder_remove("run");
}

static const struct fs_ops *under;
static int refused;

/* A log that takes no more is a warning, and the run ends well. */
static int64_t write_but_log(int fd, const void *p, int64_t n, int64_t at)
{
    char link[64], name[FOLDER_PATH];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, name, sizeof name - 1);
    name[length > 0 ? length : 0] = '\0';
    if (!strstr(name, "log.txt"))
        return under->write(fd, p, n, at);
    refused++;
    errno = ENOSPC;
    return -1;
}

static void a_log_that_takes_no_more(void)
{
    struct outcome o;
    struct fs_ops ops = *fs_ops;
    ops.write = write_but_log;
    refused = 0;
    under = fs_ops;
    fs_ops = &ops;
    train((const char *[]){"train.log_every=1", NULL}, 0, &o);
    fs_ops = under;
    test_check(o.code == 0, __FILE__, __LINE__, "%d: %s", o.code, plait_error());
    CHECK_INT(refused, 1);
    CHECK(folder_times("run", "run.json", "\"exit\": 0") > 0);
    folder_remove("run");
}

static int open_but_log(const char *path, int flags, unsigned mode)
{
    if (!strstr(path, "log.txt") || !(flags & (O_WRONLY | O_RDWR)))
        return open(path, flags, mode);
    refused++;
    errno = EACCES;
    return -1;
}

/* Nor does one that cannot be opened end a start, be it the first, or one that goes on where
 * something else has its name. */
static void a_log_that_cannot_be_opened(void)
{
    struct outcome o;
    struct fs_ops ops = *fs_ops;
    char path[FOLDER_PATH];
    ops.open = open_but_log;
    refused = 0;
    under = fs_ops;
    fs_ops = &ops;
    train((const char *[]){"train.save_every=1", NULL}, 2, &o);
    fs_ops = under;
    test_check(o.code == PLAIT_STOPPED && refused == 1, __FILE__, __LINE__, "%d: %s", o.code,
               plait_error());
    CHECK(!folder_has("run", "log.txt") && !folder_has("run", "plait.lock"));
    folder_path_in("run", "log.txt", path);
    CHECK(mkdir(path, 0700) == 0);
    train((const char *[]){"train.save_every=1", "run.resume=auto", NULL}, 0, &o);
    test_check(o.code == 0, __FILE__, __LINE__, "%d: %s", o.code, plait_error());
    CHECK(folder_times("run", "run.json", "\"exit\": 0") == 2);
    folder_remove("run");
}

/* Not flushed. */
static void put(const char *path, const char *p, int64_t n)
{
    FILE *f = fopen(path, "w");
    CHECK(f && fwrite(p, 1, (size_t)n, f) == (size_t)n && fclose(f) == 0);
}

/* What has been read can be written, and is the same when it is read again, and text of UTF-8. */
static void write_again(const char *path, struct record *r)
{
    struct record again;
    struct text t = {0};
    CHECK_OK(mem_string("\"version\": \"0\",\n", &r->facts));
    record_text(r, &t);
    CHECK_OK(t.err);
    CHECK(t.len <= RECORD_MAX);
    put(path, t.s, t.len);
    for (int64_t at = 0, n; at < t.len; at += n) {
        n = text_utf8((const uint8_t *)t.s + at, t.len - at);
        if (!CHECK(n > 0))
            break;
    }
    CHECK_OK(record_read(path, &again));
    CHECK(again.n == r->n && again.left_out == r->left_out);
    for (int i = 0; i < r->n && i < again.n; i++) {
        struct text a = {0}, b = {0}; /* what was no UTF-8 is no longer what it was */
        text_add_json(&a, r->start[i].words ? r->start[i].words : "");
        text_add_json(&b, again.start[i].words ? again.start[i].words : "");
        CHECK(strncmp(a.s, b.s, RECORD_WORDS / 2) == 0);
        CHECK(again.start[i].code == r->start[i].code && again.start[i].to == r->start[i].to);
        text_free(&a);
        text_free(&b);
    }
    record_free(&again);
    text_free(&t);
}

/* The record of so many starts that were stopped, each with these words, as JSON. */
static void put_starts(const char *path, int starts, const char *words)
{
    struct text t = {0};
    text_add(&t, "{\"format\": \"plait run 1\", \"host\": \"\xff\", \"later\": {}, \"starts\": [");
    for (int i = 0; i < starts; i++)
        text_add(&t, "%s{\"start\": \"2026-01-02T03:04:05Z\", \"end\": \"2026-01-02T03:04:06Z\", "
                     "\"from\": %d, \"to\": %d, \"exit\": 75, \"words\": \"%s\", \"more\": 1}",
                 i ? "," : "", i, i + 1, words);
    text_add(&t, "]}");
    CHECK_OK(t.err);
    put(path, t.s, t.len);
    text_free(&t);
}

/* Words that are long or no UTF-8, and starts without number: a start goes on with them, its end is
 * written, and there is room for the next. */
static void records_that_have_grown(void)
{
    static const char *const letters[] = {"a", "\xc3\xa4", "\xff", "\\u0001", "\\ud800"};
    struct text words[5] = {{0}};
    struct outcome o;
    struct record r;
    char path[FOLDER_PATH];
    folder_path_in("run", "run.json", path);
    for (int i = 0; i < 5; i++) {
        for (int k = 0; k < 4000 + i; k++)
            text_add(&words[i], "%s%s", k < i ? "-" : "", letters[i]);
        for (int starts = 1; starts < 1000; starts += 699) {
            int more = 0;
            train((const char *[]){"train.save_every=1", NULL}, 2, &o);
            CHECK_INT(o.code, PLAIT_STOPPED);
            put_starts(path, starts, words[i].s);
            if (starts * words[i].len > RECORD_MAX) {
                CHECK_ERR(record_read(path, &r), ERR_DATA, "run.json");
                folder_remove("run");
                continue;
            }
            for (; more < 2; more++) { /* the first does what is left to do */
                train((const char *[]){"train.save_every=1", "run.resume=auto", NULL}, 0, &o);
                test_check(o.code == 0, __FILE__, __LINE__, "%s: %d", plait_error(), o.code);
            }
            CHECK_OK(record_read(path, &r));
            test_check(r.n + r.left_out == starts + more && r.n > 1, __FILE__, __LINE__,
                       "letter %d: %d starts and %lld left out, of %d", i, r.n,
                       (long long)r.left_out, starts + more);
            CHECK(r.start[r.n - 1].code == 0 && r.start[r.n - 1].end[0]);
            CHECK(r.start[0].from == 0 && strlen(r.start[0].words) < RECORD_WORDS);
            CHECK(i != 1 || strstr(r.start[0].words, "\xa4 ... (cut)"));
            CHECK((r.left_out > 0) == (starts > 1 && i < 4)); /* the last one's have no words */
            write_again(path, &r);
            record_free(&r);
            folder_remove("run");
        }
        text_free(&words[i]);
    }
}

/* run.json that is damaged is a warning; it is kept, and the run goes on with this start alone. */
static void damaged_records_are_refused(void)
{
    static const char *const bad[] = {
        "", "{}", "[]", "{\"format\": \"plait run 1\"}",
        "{\"format\": \"plait run 2\", \"starts\": []}",
        "{\"format\": \"plait run 1\", \"starts\": []}",
        "{\"format\": \"plait run 1\", \"starts\": [1]}",
        "{\"format\": \"plait run 1\", \"starts\": [{\"start\": \"x\"}]}",
        "{\"format\": \"plait run 1\", \"starts\": [{\"from\": -1}]}", "\xff", "\xff\xfe{}",
        ("{\"format\": \"plait run 1\", \"starts_left_out\": -1, \"starts\": [{\"start\": "
         "\"2026-01-02T03:04:05Z\"}]}"),
        "{\"starts\": [[[[[[[[[[["};
    struct outcome o;
    struct record r;
    char path[FOLDER_PATH];
    train((const char *[]){"train.save_every=1", NULL}, 2, &o);
    folder_path_in("run", "run.json", path);
    char *good = folder_text("run", "run.json");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_OK(fs_put(path, bad[i], (int64_t)strlen(bad[i])));
        CHECK_ERR(record_read(path, &r), ERR_DATA, "run.json");
    }
    for (int64_t i = 0, n = (int64_t)strlen(good); i < 400; i++) {
        int64_t at = test_range(0, n - 1);
        char was = good[at];
        good[at] = (char)test_range(1, 255);
        put(path, good, test_range(0, 3) ? n : at);
        enum err err = record_read(path, &r);
        CHECK(err == ERR_OK || err == ERR_DATA);
        if (err == ERR_OK)
            write_again(path, &r);
        record_free(&r);
        good[at] = was;
    }
    CHECK_OK(fs_put(path, "{", 1));
    train((const char *[]){"train.save_every=1", "run.resume=auto", NULL}, 0, &o);
    CHECK_INT(o.code, 0);
    CHECK_OK(record_read(path, &r));
    CHECK(r.n == 1 && r.start[0].from >= 2);
    CHECK_INT(folder_count("run", "run.json.bad."), 1); /* with all that it had */
    CHECK_OK(fs_put(path, "{{", 2));
    train((const char *[]){"train.save_every=1", "run.resume=auto", NULL}, 0, &o);
    CHECK_INT(o.code, 0);
    CHECK_INT(folder_count("run", "run.json.bad."), 2); /* by the same pid: none is written over */
    record_free(&r);
    mem_free(good);
    folder_remove("run");
}

static const struct test_case cases[] = {
    {"each kind of line once", each_kind_of_line_once},
    {"lengths in effect are said", lengths_in_effect_are_said},
    {"data is compared", data_is_compared},
    {"starts and ends are kept", starts_and_ends_are_kept},
    {"a log that takes no more", a_log_that_takes_no_more},
    {"a log that cannot be opened", a_log_that_cannot_be_opened},
    {"records that have grown", records_that_have_grown},
    {"damaged records are refused", damaged_records_are_refused},
};
TEST_MAIN(cases)
