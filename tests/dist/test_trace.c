/* SPDX-License-Identifier: Apache-2.0
 *
 * Traces of runs: every instruction of every step is there, in the order of the list, no message is
 * used before it was sent, and damaged files are refused.
 */
#include "folder.h"

#include "base/log.h"
#include "base/mem.h"
#include "folder/trace.h"

#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { STEPS = 3 };

/* A small run of `name`; words end with NULL. */
static void train(const char *name, const char *const *words)
{
    static const char *const base[] = {
        "model.kind=llama", "model.layers=4", "model.hidden=32", "model.heads=4", "model.ffn=64",
        "model.seq=16", "train.batch=8", "parallel.microbatch=1", "train.threads=1",
        "train.steps=3"};
    struct folder_seen seen;
    folder_prepare(PLAIT_SOURCE_DIR "/README.md", "tokens");
    struct plait_config *c = folder_config(name, "tokens");
    folder_set(c, base, sizeof base / sizeof *base);
    folder_set(c, words, INT_MAX);
    test_check(folder_train(c, &seen) == 0, __FILE__, __LINE__, "%s: %s", name, plait_error());
}

/* Instructions follow one another; a pair (which a later one ends with) contains its halves. */
static void check_order(const struct exec_event *e, int64_t n)
{
    double end = e[0].start;
    for (int64_t i = 0; i < n; i++) {
        bool half = i > 0 && e[i].end <= e[i - 1].end;
        bool second = i > 1 && e[i].end <= e[i - 2].end;
        CHECK(e[i].end >= e[i].start);
        CHECK(e[i].waited >= 0 && e[i].waited <= e[i].end - e[i].start);
        CHECK(half || second || e[i].start >= end);
        end = fmax(end, e[i].end);
    }
}

static void whole(const char *name, int ranks, const char *const *words)
{
    char path[FOLDER_PATH];
    train(name, words);
    folder_path(name, path);
    double last = 0;
    for (int rank = 0; rank < ranks; rank++) {
        struct trace t;
        CHECK_OK(trace_read(path, rank, &t));
        CHECK_INT(t.steps, STEPS);
        CHECK_INT(t.cut, 0);
        CHECK_INT(t.head.world, ranks);
        CHECK(t.head.instrs > 16); /* F and B of eight microbatches */
        for (int64_t i = 0; i < t.steps; i++) {
            int64_t step;
            const struct exec_event *e = trace_events(&t, i, &step);
            CHECK_INT(step, i + 1);
            check_order(e, t.head.instrs);
            CHECK(i == 0 || e[0].start >= last);
            last = e[t.head.instrs - 1].end;
        }
        trace_unread(&t);
    }
}

static void every_instruction(void)
{
    whole("pp", 2, (const char *[]){"parallel.pp=2", "train.trace=true", NULL});
    whole("pairs", 2, (const char *[]){"parallel.pp=2", "parallel.schedule=dualpipe",
                                       "train.trace=true", NULL});
    whole("all", 8, (const char *[]){"parallel.pp=2", "parallel.tp=2", "parallel.dp=2",
                                     "train.batch=16", "train.trace=true", NULL});
}

static int compares(const char *run)
{
    char *out = NULL;
    int code = plait_compare(&(struct plait_compare){.size = sizeof(struct plait_compare),
                                                     .run = run, .skip = -1}, &out);
    plait_free(out);
    return code;
}

/* Heads have the rank's coordinates, tp the fastest, then dp, then pp; and compare refuses one that
 * says another. */
static void heads(void)
{
    static const uint32_t want[8][3] = {{0, 0, 0}, {0, 1, 0}, {0, 0, 1}, {0, 1, 1},
                                        {1, 0, 0}, {1, 1, 0}, {1, 0, 1}, {1, 1, 1}};
    char run[FOLDER_PATH], path[FOLDER_PATH];
    train("heads", (const char *[]){"parallel.pp=2", "parallel.tp=2", "parallel.dp=2",
                                    "train.batch=16", "train.trace=true", NULL});
    folder_path("heads", run);
    for (int rank = 0; rank < 8; rank++) {
        struct trace t;
        CHECK_OK(trace_read(run, rank, &t));
        const struct trace_head *h = &t.head;
        test_check(h->rank == (uint32_t)rank && h->world == 8 && h->pp == want[rank][0] &&
                       h->tp == want[rank][1] && h->dp == want[rank][2],
                   __FILE__, __LINE__, "rank %d: rank %u of %u, pp %u, tp %u, dp %u", rank,
                   h->rank, h->world, h->pp, h->tp, h->dp);
        trace_unread(&t);
    }
    CHECK_INT(compares(run), 0);
    folder_path_in("heads", "trace/5.trace", path);
    for (long at = 20; at < 32; at += 4) { /* of pp, tp and dp */
        FILE *f = fopen(path, "r+b");
        int was = -1;
        CHECK(f && fseek(f, at, SEEK_SET) == 0 && (was = fgetc(f)) >= 0 &&
              fseek(f, at, SEEK_SET) == 0 && fputc(1 - was, f) >= 0 && fflush(f) == 0);
        CHECK_INT(compares(run), ERR_DATA);
        CHECK(strstr(plait_error(), "that of rank 5 is not of the schedule") != NULL);
        CHECK(f && fseek(f, at, SEEK_SET) == 0 && fputc(was, f) >= 0 && fclose(f) == 0);
    }
    CHECK_INT(compares(run), 0);
}

/* gpipe on two ranks: instruction 2 i of rank 0 is F i and the next its send; rank 1 cannot end the
 * wait for it before that. */
static void causes_come_first(void)
{
    char path[FOLDER_PATH];
    struct trace t[2];
    double waited = 0;
    train("gpipe", (const char *[]){"parallel.pp=2", "parallel.schedule=gpipe",
                                    "train.trace=true", NULL});
    folder_path("gpipe", path);
    for (int rank = 0; rank < 2; rank++)
        CHECK_OK(trace_read(path, rank, &t[rank]));
    for (int64_t i = 0; i < STEPS; i++) {
        int64_t step;
        const struct exec_event *a = trace_events(&t[0], i, &step);
        const struct exec_event *b = trace_events(&t[1], i, &step);
        for (int mb = 0; mb < 8; mb++)
            CHECK(b[2 * mb + 1].end >= a[2 * mb + 1].start);
        for (int mb = 0; mb < 8; mb++)
            waited += b[2 * mb + 1].waited;
    }
    CHECK(waited > 0); /* rank 1 begins with a wait */
    trace_unread(&t[0]);
    trace_unread(&t[1]);
}

/* ---- how long steps took ---- */

struct times { double at[STEPS], tokens; int n; };

static void on_step(void *arg, const struct plait_step *s)
{
    struct times *t = arg;
    CHECK(t->n < STEPS && s->seconds > 0);
    CHECK_NEAR(s->tokens_per_s * s->seconds, t->tokens, 1e-6 * t->tokens);
    t->at[t->n++] = s->seconds;
}

/* A step takes at least from its first instruction's start to its last one's end, and all steps
 * together no longer than the whole run. */
static void seconds(void)
{
    const char *const words[] = {
        "model.kind=gpt", "model.layers=4", "model.hidden=32", "model.heads=4", "model.seq=16",
        "train.batch=8", "train.threads=1", "train.steps=3", "parallel.pp=2", "train.trace=true",
        "optim.warmup=1", "parallel.schedule=zb-h2", "train.valid_every=2",
        "optim.clip=1000"};
    char path[FOLDER_PATH];
    struct times t = {.tokens = 8 * 16};
    struct trace trace;
    double sum = 0, begin = log_now();
    folder_prepare(PLAIT_SOURCE_DIR "/README.md", "tokens");
    struct plait_config *c = folder_config("waits", "tokens");
    folder_set(c, words, sizeof words / sizeof *words);
    folder_set_file(c, "data.valid", "tokens");
    CHECK_INT(plait_train(c, &(struct plait_train){.size = sizeof(struct plait_train),
                                                   .on_step = on_step, .arg = &t}), 0);
    plait_config_free(c);
    double whole = log_now() - begin;
    folder_path("waits", path);
    CHECK_OK(trace_read(path, 1, &trace)); /* the rank that reports */
    CHECK_INT(t.n, STEPS);
    CHECK_INT(trace.steps, STEPS);
    for (int i = 0; i < t.n; i++) {
        int64_t step;
        const struct exec_event *e = trace_events(&trace, i, &step);
        double span = e[trace.head.instrs - 1].end - e[0].start;
        test_check(t.at[i] >= span, __FILE__, __LINE__, "step %d: %g s, its instructions %g s",
                   i + 1, t.at[i], span);
        sum += t.at[i];
    }
    CHECK(sum < whole);
    trace_unread(&trace);
}

static void none_unless_asked(void)
{
    char path[FOLDER_PATH];
    struct trace t;
    train("plain", (const char *[]){"parallel.pp=2", NULL});
    folder_path("plain/trace", path);
    CHECK(!fs_exists(path));
    folder_path("plain", path);
    CHECK_ERR(trace_read(path, 0, &t), ERR_DATA, "0.trace");
    trace_unread(&t);
}

/* ---- damage ---- */

static void write_bytes(const char *path, const uint8_t *p, int64_t n)
{
    FILE *f = fopen(path, "wb");
    CHECK(f && fwrite(p, 1, (size_t)n, f) == (size_t)n && fclose(f) == 0);
}

/* A sound trace in memory (mem_free), its file's name in `path`. */
static uint8_t *sound(const char *name, char path[FOLDER_PATH], int64_t *n)
{
    struct fs_map m;
    uint8_t *p;
    train(name, (const char *[]){"parallel.pp=2", "train.trace=true", NULL});
    folder_path_in(name, "trace/0.trace", path);
    CHECK_OK(fs_map_open(&m, path, ERR_DATA));
    *n = m.size;
    CHECK_OK(mem_new(m.size, 1, "a trace", &p));
    memcpy(p, m.data, (size_t)m.size);
    fs_map_close(&m);
    return p;
}

static void damage(void)
{
    char path[FOLDER_PATH], run[FOLDER_PATH];
    int64_t n;
    uint8_t *p = sound("damage", path, &n);
    struct trace t;
    folder_path("damage", run);
    for (int64_t at = 0; at < 24; at++) { /* magic, version, rank, world's high bytes */
        if (at >= 16 && at < 24)
            continue;
        p[at] ^= 0x40;
        write_bytes(path, p, n);
        CHECK_ERR(trace_read(run, 0, &t), ERR_DATA, at < 8 ? "not a trace" : "");
        trace_unread(&t);
        p[at] ^= 0x40;
    }
    for (int64_t size = 0; size < n; size += 1 + size / 7) { /* a run that ended in the middle */
        write_bytes(path, p, size);
        enum err err = trace_read(run, 0, &t);
        CHECK(size < 64 ? err == ERR_DATA : err == ERR_OK && t.steps < STEPS);
        trace_unread(&t);
    }
    const double bad[] = {NAN, INFINITY, -1.0, 1e300};
    for (int i = 0; i < 4; i++) { /* the end of the first event */
        write_bytes(path, p, n);
        FILE *f = fopen(path, "r+b");
        CHECK(f && fseek(f, 64 + 16, SEEK_SET) == 0 && fwrite(&bad[i], 8, 1, f) == 1 &&
              fclose(f) == 0);
        CHECK_ERR(trace_read(run, 0, &t), ERR_DATA, "damaged at record 0, instruction 0");
        trace_unread(&t);
    }
    mem_free(p);
}

/* Whatever the bytes are, reading ends in an answer and what it gives can be walked. */
static void fuzz(void)
{
    char path[FOLDER_PATH], run[FOLDER_PATH];
    int64_t n;
    uint8_t *p = sound("fuzz", path, &n), *q;
    CHECK_OK(mem_new(n, 1, "a trace", &q));
    folder_path("fuzz", run);
    for (int round = 0; round < 500; round++) {
        struct trace t;
        memcpy(q, p, (size_t)n);
        for (int i = 0; i < 1 + round % 4; i++)
            q[test_range(0, round % 2 ? 63 : (int)n - 1)] = (uint8_t)test_range(0, 255);
        write_bytes(path, q, test_range(0, (int)n));
        if (trace_read(run, 0, &t) == ERR_OK)
            for (int64_t i = 0; i < t.steps; i++) {
                int64_t step;
                const struct exec_event *e = trace_events(&t, i, &step);
                CHECK(step >= 1 && (t.head.instrs == 0 || e[t.head.instrs - 1].end < 1e16));
            }
        trace_unread(&t);
    }
    mem_free(p);
    mem_free(q);
}

/* A trace without a step goes with its start, but not what has its name by then. */
static void a_strangers_trace_stays(void)
{
    static const char *const whose[] = {"own", "strangers"};
    for (int i = 0; i < 2; i++) {
        char path[FOLDER_PATH], trace[FOLDER_PATH], folder[FOLDER_PATH];
        struct trace_log t = {.fd = -1};
        snprintf(folder, sizeof folder, "%s", whose[i]);
        folder_path(folder, path);
        snprintf(trace, sizeof trace, "%.400s/0.trace", path);
        CHECK_OK(fs_make_dirs(path));
        CHECK_OK(fs_log_make(trace, &t.fd));
        snprintf(t.path, sizeof t.path, "%s", trace);
        if (i == 1)
            CHECK_OK(fs_put(trace, "mine", 4));
        CHECK_OK(trace_close(&t));
        CHECK(fs_exists(trace) == (i == 1) && fs_exists(path) == (i == 1));
    }
}

/* ---- over several starts ---- */

/* Is the trace there, of that step and those behind it? */
static void check_steps(const char *folder, int64_t first, int64_t steps)
{
    char path[FOLDER_PATH], link[FOLDER_PATH], name[64];
    struct trace t;
    int64_t step = -1;
    folder_path("one", path);
    folder_path_in("one", "trace", link);
    snprintf(name, sizeof name, "../goes-on/%s", folder); /* trace_read wants this name */
    CHECK(mkdir(path, 0700) == 0 && symlink(name, link) == 0);
    CHECK_OK(trace_read(path, 0, &t));
    if (t.steps > 0)
        (void)trace_events(&t, 0, &step);
    test_check(t.steps == steps && step == first, __FILE__, __LINE__, "%s has %lld steps from %lld",
               folder, (long long)t.steps, (long long)step);
    trace_unread(&t);
    folder_remove("one");
}

static int compare(const char *run)
{
    char path[FOLDER_PATH], *text = NULL;
    folder_path(run, path);
    int code = plait_compare(&(struct plait_compare){.size = sizeof(struct plait_compare),
                                                     .run = path, .skip = 0}, &text);
    plait_free(text);
    return code;
}

/* Each start's trace stays, whatever its layout; one that traces no step changes nothing. */
static void each_start_has_its_traces(void)
{
#define TRACED "train.trace=true", "train.save_every=1", "run.resume=auto"
    train("goes-on", (const char *[]){TRACED, "train.steps=2", "parallel.pp=2", NULL});
    train("goes-on", (const char *[]){TRACED, "train.steps=5", NULL});
    check_steps("trace", 3, 3);
    check_steps("trace.1", 1, 2);
    CHECK(folder_has("goes-on", "trace.1/1.trace") && !folder_has("goes-on", "trace/1.trace"));
    train("goes-on", (const char *[]){TRACED, "train.steps=5", NULL}); /* all is done */
    check_steps("trace", 3, 3);
    CHECK(!folder_has("goes-on", "trace.2"));
    test_check(compare("goes-on") == 0, __FILE__, __LINE__, "%s", plait_error());
    train("goes-on", (const char *[]){TRACED, "train.steps=6", NULL});
    check_steps("trace", 6, 1);
    check_steps("trace.2", 3, 3);
    check_steps("trace.1", 1, 2);
    train("goes-on", (const char *[]){TRACED, "train.steps=7", "train.trace=false", NULL});
    check_steps("trace", 6, 1);
    CHECK_INT(compare("goes-on"), PLAIT_CONFIG);
    CHECK(strstr(plait_error(), "was not traced, and its trace/ is of one before") != NULL);
    folder_remove("goes-on");
}

static const struct test_case cases[] = {
    {"each start has its traces", each_start_has_its_traces},
    {"a_strangers_trace_stays", a_strangers_trace_stays},
    {"every instruction of every step", every_instruction},
    {"heads", heads},
    {"causes come first", causes_come_first},
    {"seconds of steps", seconds},
    {"no trace unless asked for", none_unless_asked},
    {"damaged files are refused", damage},
    {"any bytes", fuzz},
};
TEST_MAIN(cases)
