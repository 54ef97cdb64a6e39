/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank that falls silent at a moment drawn at random, on layouts and schedules drawn at random:
 * whoever finds out first, the run ends with 20, and the rank that the message names first is that
 * one, and none of those that wait for it or for others that do. Each run is a process of its own,
 * several at a time, for they mostly sleep. PLAIT_STOPS=N makes so many of them (`make stops`).
 * tests/fault/stops.sh does the same to processes under mpirun.
 */
#include "layout.h"
#include "test.h"

#include "base/text.h"
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { AT_ONCE = 4, STOPS = 8, CALLS = 60 };
enum outcome { NAMED, WRONG, NOBODY_WAITED };
static const double timeout_s = 0.6;

static int silent_rank;
static const struct dev_ops *real;
static struct dev_ops silent;
static _Thread_local int left; /* calls before this rank falls silent; 0: it does not */
static int silent_call;

static void count(void)
{
    if (left > 0 && --left == 0)
        nanosleep(&(struct timespec){2, 0}, NULL);
}

static enum err run_op(struct dev *d, const struct op *op)
{
    static const bool counts[OPS] = {[OP_GEMM] = true, [OP_NORM] = true, [OP_NORM_GRAD] = true,
                                     [OP_ADAMW] = true, [OP_SUMSQ] = true};
    if (counts[op->kind])
        count();
    return real->run(d, op);
}

static void opened(struct dev *d, int rank)
{
    left = rank == silent_rank ? silent_call : 0;
    d->ops = &silent;
}

static struct layout draw(void)
{
    static const struct { const char *name; int v; } schedule[] = {
        {"gpipe", 1}, {"1f1b", 1}, {"zb-h1", 1}, {"zb-v", 2}, {"interleaved", 2}, {"dualpipe", 1},
    };
    int k = (int)test_range(0, sizeof schedule / sizeof *schedule - 1);
    struct model a = {.kind = test_range(0, 1) ? MODEL_GPT : MODEL_LLAMA, .layers = 4, .hidden = 16,
                      .heads = 2, .kv_heads = 2, .head_dim = 8, .ffn = 16, .vocab = 17, .seq = 4,
                      .tied = test_range(0, 1), .norm_eps = 1e-5, .rope_theta = 10000,
                      .init_std = 0.1};
    struct layout l = {.model = a, .pp = 2, .v = schedule[k].v, .schedule = schedule[k].name,
                       .batch = 8, .microbatch = 1, .dev = DEV_REF, .ct = DT_F64, .steps = 2,
                       .clip = 1, .opened = opened, .timeout_s = timeout_s};
    l.tp = (int)test_range(1, 2);
    l.dp = l.tp == 2 ? 1 : (int)test_range(1, 2);
    l.sp = l.tp == 2 && test_range(0, 1);
    l.zero = l.dp == 2 && test_range(0, 1);
    return l;
}

/* In the child. */
static enum outcome run_one(const struct layout *l)
{
    struct layout_result r;
    char want[64];
    alarm(60);
    enum err err = layout_run(l, &r);
    snprintf(want, sizeof want, "rank %d does not answer: ", silent_rank);
    if (err == ERR_OK)
        return NOBODY_WAITED;
    if (err == ERR_HANG && strncmp(err_text(), want, strlen(want)) == 0)
        return NAMED;
    printf("%s, tp %d, pp %d, dp %d: rank %d fell silent at call %d, and it ended with %d: %s\n",
           l->schedule, l->tp, l->pp, l->dp, silent_rank, silent_call, (int)err, err_text());
    return WRONG;
}

static pid_t start(void)
{
    struct layout l = draw();
    silent_rank = (int)test_range(0, l.tp * l.pp * l.dp - 1);
    silent_call = (int)test_range(1, CALLS);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        enum outcome o = run_one(&l);
        fflush(NULL);
        _exit((int)o);
    }
    return child;
}

static int stops(void)
{
    const char *wish = getenv("PLAIT_STOPS");
    int64_t n = STOPS;
    CHECK(!wish || (text_to_int(wish, &n) && n > 0));
    return (int)n;
}

static void the_silent_one_is_named(void)
{
    struct dev *d;
    CHECK_OK(dev_open(&(struct dev_args){.kind = DEV_REF, .ct = DT_F64, .threads = 1}, &d));
    real = d->ops;
    silent = *real;
    silent.run = run_op;
    int n = stops(), of[3] = {0}, started = 0, ended = 0;
    for (; ended < n; ended++) {
        int status;
        for (; started < n && started - ended < AT_ONCE; started++)
            CHECK(start() > 0);
        if (wait(&status) < 0)
            break;
        of[WIFEXITED(status) && WEXITSTATUS(status) < 3 ? WEXITSTATUS(status) : WRONG]++;
    }
    dev_close(d);
    if (getenv("PLAIT_STOPS"))
        printf("%d stops: %d named right, %d wrong, in %d nobody waited\n", n, of[NAMED], of[WRONG],
               of[NOBODY_WAITED]);
    CHECK_INT(ended, n);
    CHECK(of[WRONG] * 20 <= of[NAMED]);
    CHECK(of[NAMED] * 4 >= n * 3);
}

static const struct test_case cases[] = {{"the_silent_one_is_named", the_silent_one_is_named}};
TEST_MAIN(cases)
