/* SPDX-License-Identifier: Apache-2.0
 *
 * A line of which a part alone is on the disk, of metrics.jsonl and of log.txt: it goes, or ends
 * there, and no line that is written later stands behind it.
 */
#include "records.h"

#include "base/fs.h"
#include "base/text.h"

#include <errno.h>
#include <unistd.h>

/* The first n bytes of a line of that kind and step, as metrics.c writes it; returns all its
 * bytes. */
static int add_line(struct text *t, int step, bool valid, int n)
{
    char line[512];
    static const char *const form[] = {
        "{\"step\": %d, \"loss\": 2.5, \"grad_norm\": 1.5, \"lr\": 0.01, \"tokens\": 96, "
        "\"tokens_per_s\": 1.5, \"seconds\": 0.5, \"time\": 1.5, \"elapsed\": 2.5}\n",
        "{\"step\": %d, \"valid_loss\": 2.5, \"valid_tokens\": 32, \"time\": 1.5, "
        "\"elapsed\": 2.5}\n"};
    int all = snprintf(line, sizeof line, valid ? form[1] : form[0], step);
    text_add(t, "%.*s", n, line);
    return all;
}

static void put_metrics(const struct text *t)
{
    char path[FOLDER_PATH];
    folder_path_in("run", "metrics.jsonl", path);
    CHECK_OK(t->err);
    CHECK_OK(fs_put(path, t->s, t->len));
}

/* Goes on behind step 3: each step is in there once, and each line is one of JSON. lacks: the step
 * whose lines were spoilt; 0: none. */
static void check_goes_on(const char *what, int lacks)
{
    struct outcome o;
    train((const char *[]){"train.save_every=1", "train.valid_every=1", "run.resume=3", NULL}, 0,
          &o);
    test_check(o.code == 0, __FILE__, __LINE__, "%s: %d: %s", what, o.code, plait_error());
    struct lines is = count_lines();
    for (int s = 1; s <= STEPS; s++)
        test_check(is.step[s] == (s != lacks) && is.valid[s] == (s != lacks), __FILE__, __LINE__,
                   "%s: step %d has %d lines and %d of a validation", what, s, is.step[s],
                   is.valid[s]);
    char *all = folder_text("run", "metrics.jsonl");
    for (char *at = all, *end; (end = strchr(at, '\n')) != NULL; at = end + 1) {
        *end = '\0';
        cJSON *tree = cJSON_Parse(at);
        test_check(cJSON_IsObject(tree), __FILE__, __LINE__, "%s: %s", what, at);
        cJSON_Delete(tree);
    }
    CHECK_INT(folder_times("run", "log.txt", "metrics.jsonl lacks the lines of 1 of the steps"),
              lacks > 0);
    mem_free(all);
}

/* Behind the lines of three steps stands a part of a line, of each kind and of steps that are done
 * and to come; or one that another line was written behind, which spoils both. */
static void fragments_of_lines(void)
{
    struct outcome o;
    char what[64];
    train((const char *[]){"train.save_every=1", "train.valid_every=1", NULL}, 3, &o);
    CHECK_INT(o.code, PLAIT_STOPPED);
    char *good = folder_text("run", "metrics.jsonl");
    int64_t all_of_it = (int64_t)strlen(good), of_2 = strstr(good, "{\"step\": 2") - good;
    int64_t of_3 = strstr(good, "{\"step\": 3") - good;
    for (int kind = 0; kind < 6; kind++) {
        struct text t = {0}, none = {0};
        bool valid = kind % 2, glued = kind >= 4;
        int step = glued ? 2 : 3 + kind / 2, all = add_line(&none, step, valid, 0);
        int part = (int)test_range(1, all - 1);
        text_add(&t, "%.*s", (int)(glued ? of_2 : all_of_it), good);
        add_line(&t, step, valid, part);
        if (glued) { /* behind a part of a line of step 2 stands the other one of that step */
            add_line(&t, 2, !valid, 512);
            text_add(&t, "%s", good + of_3);
        }
        put_metrics(&t);
        snprintf(what, sizeof what, "kind %d, %d bytes of %d", kind, part, all);
        check_goes_on(what, glued ? 2 : 0);
        text_free(&t);
        text_free(&none);
        folder_remove("run");
        train((const char *[]){"train.save_every=1", "train.valid_every=1", NULL}, 3, &o);
    }
    mem_free(good);
    folder_remove("run");
}

static const struct fs_ops *under;
static int cuts, halves;

static int64_t write_half(int fd, const void *p, int64_t n, int64_t at)
{
    char link[64], name[FOLDER_PATH];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, name, sizeof name - 1);
    name[length > 0 ? length : 0] = '\0';
    bool lines = strstr(name, "metrics.jsonl") != NULL; /* by one thread; others write, too */
    if (!lines || halves > 1 || (halves == 0 && !memmem(p, (size_t)n, "{\"step\": 4", 10)))
        return under->write(fd, p, n, at);
    if (halves++ == 0)
        return under->write(fd, p, n / 2, at);
    errno = ENOSPC;
    return -1;
}

/* As often as `cuts` says. */
static int cut_not(int fd, int64_t n)
{
    if (cuts-- <= 0)
        return ftruncate(fd, (off_t)n);
    errno = EIO;
    return -1;
}

/* A disk takes a part of a line and cannot give it back: lines that come late, before the run is
 * saved, are not written behind it. */
static void late_lines_behind_a_fragment(void)
{
    under = fs_ops;
    for (int fail = 0; fail < 3; fail++) {
        struct fs_ops ops = *fs_ops;
        struct outcome o;
        ops.write = write_half;
        ops.cut = cut_not;
        cuts = fail;
        halves = 0;
        fs_ops = &ops;
        train((const char *[]){"train.save_every=1", "train.valid_every=1", NULL}, 0, &o);
        fs_ops = under;
        test_check(o.code == PLAIT_STORAGE && halves == 2, __FILE__, __LINE__, "%d: %s", o.code,
                   plait_error());
        struct lines is = {{0}, {0}};
        if (fail < 2)
            is = count_lines();
        CHECK(fail == 2 || (is.step[3] == 1 && is.step[4] == 1));
        train((const char *[]){"train.save_every=1", "train.valid_every=1", "run.resume=auto",
                               NULL}, 0, &o);
        test_check(o.code == 0, __FILE__, __LINE__, "%d: %s", o.code, plait_error());
        is = count_lines();
        for (int s = 1; s <= STEPS; s++)
            test_check(is.step[s] == 1 || (fail == 2 && (s == 4 || s == 5)), __FILE__, __LINE__,
                       "cut fails %d times: step %d has %d lines", fail, s, is.step[s]);
        CHECK_INT(folder_times("run", "log.txt", "metrics.jsonl lacks the lines of "), fail == 2);
        folder_remove("run");
    }
}

/* A log whose last line was cut goes on in a new line. */
static void a_log_that_was_cut(void)
{
    struct outcome o;
    char path[FOLDER_PATH];
    train((const char *[]){"train.save_every=1", NULL}, 2, &o);
    folder_path_in("run", "log.txt", path);
    FILE *f = fopen(path, "a");
    CHECK(f && fputs("2026-01-02T03:04:05Z st", f) >= 0 && fclose(f) == 0);
    train((const char *[]){"train.save_every=1", "run.resume=auto", NULL}, 0, &o);
    CHECK_INT(o.code, 0);
    CHECK_INT(folder_times("run", "log.txt", "Z st\n20"), 1);
    folder_remove("run");
}

static const struct test_case cases[] = {
    {"fragments of lines", fragments_of_lines},
    {"late lines behind a fragment", late_lines_behind_a_fragment},
    {"a log that was cut", a_log_that_was_cut},
};
TEST_MAIN(cases)
