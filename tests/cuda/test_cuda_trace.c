/* SPDX-License-Identifier: Apache-2.0
 *
 * Times on GPUs: timers against the host's clock, traces and step times of runs that the host is
 * ahead of, what tracing costs, and the bubble that is measured against the one that is simulated.
 * Runs where this process sees a GPU; pipelines where it sees as many as they have ranks.
 */
#include "folder.h"
#include "gpus.h"

#include "base/log.h"
#include "base/mem.h"
#include "device/device.h"
#include "folder/trace.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <time.h>

enum { STEPS = 12, FIRST = 4, SIDE = 2048, GPUS_MAX = 4 };
/* How far a timer may be from the host's reading: the comparison of the clocks, and the time that a
 * queue of nothing takes to be looked at. */
#define OFF_S 50e-6

static struct dev *open_gpu(int index)
{
    struct dev_args a = {.kind = DEV_CUDA, .ct = DT_BF16, .threads = 1, .index = index};
    struct dev *d;
    return dev_built(DEV_CUDA) && dev_open(&a, &d) == ERR_OK ? d : NULL;
}

static int gpus(void)
{
    int n = gpus_here(GPUS_MAX);
    if (n == 0)
        test_skip("no GPU");
    return n;
}

static void rest(double seconds)
{
    struct timespec t = {(time_t)seconds, (long)(1e9 * (seconds - floor(seconds)))};
    nanosleep(&t, NULL);
}

/* ---- timers ---- */

/* Timers on an idle GPU lie between the host's readings around them, for seconds on end and on
 * every GPU: so those of several GPUs are on one clock. */
static void timers_and_the_host(void)
{
    int n = gpus();
    for (int i = 0; i < n; i++) {
        struct dev *d = open_gpu(i);
        int64_t first;
        double early = 0, late = 0;
        if (!CHECK(d != NULL))
            return;
        CHECK_OK(d->ops->timer_alloc(d, 2, &first));
        for (int k = 0; k < 60; k++) {
            double got, begin = log_now();
            CHECK_OK(d->ops->timer_record(d, first + k % 2));
            CHECK_OK(d->ops->sync(d));
            double end = log_now();
            CHECK_OK(d->ops->timer_read(d, first + k % 2, &got));
            early = fmax(early, begin - got);
            late = fmax(late, got - end);
            rest(k < 40 ? 0.001 : 0.1);
        }
        printf("     GPU %d: timers at most %.1f us early, %.1f us late\n", i, 1e6 * early,
               1e6 * late);
        CHECK(early < OFF_S && late < OFF_S);
        dev_close(d);
    }
}

/* Work that the host is ahead of: timers are in order, and the time between the first and the last
 * is the host's, also across comparisons of the clocks. */
static void timers_of_work(void)
{
    enum { CALLS = 400 };
    int64_t bytes = (int64_t)SIDE * SIDE * 2, first;
    struct dev *d;
    void *m[3];
    if (gpus() == 0)
        return;
    d = open_gpu(0);
    for (int i = 0; i < 3; i++)
        CHECK_OK(d->ops->alloc(d, bytes, "a matrix", &m[i]));
    struct gemm g = {.c = m[0], .a = m[1], .b = m[2], .m = SIDE, .n = SIDE, .k = SIDE};
    CHECK_OK(d->ops->timer_alloc(d, CALLS + 1, &first));
    CHECK_OK(dev_gemm(d, &g)); /* chooses its way */
    for (int round = 0; round < 3; round++) {
        double last, from, to;
        CHECK_OK(d->ops->sync(d));
        double begin = log_now();
        CHECK_OK(d->ops->timer_record(d, first));
        for (int i = 1; i <= CALLS; i++) {
            CHECK_OK(dev_gemm(d, &g));
            CHECK_OK(d->ops->timer_record(d, first + i));
        }
        double queued = log_now() - begin;
        CHECK_OK(d->ops->sync(d));
        double host = log_now() - begin;
        CHECK_OK(d->ops->timer_read(d, first, &from));
        last = from;
        for (int i = 1; i <= CALLS; i++) {
            double at, least = 1.0 * SIDE * SIDE * SIDE * 2 / 2e15; /* at two petaflops */
            if (i % 100 == 0)
                rest(0.15);
            CHECK_OK(d->ops->timer_read(d, first + i, &at));
            CHECK(at - last > least - OFF_S / 2);
            last = at;
        }
        CHECK_OK(d->ops->timer_read(d, first + CALLS, &to));
        printf("     %d GEMMs: host %.3f ms, GPU %.3f ms, queued in %.3f ms\n", CALLS,
               1e3 * host, 1e3 * (to - from), 1e3 * queued);
        CHECK(to - from < host + OFF_S && to - from > 0.9 * host - OFF_S);
        rest(0.2);
    }
    for (int i = 0; i < 3; i++)
        d->ops->free(d, m[i]);
    dev_close(d);
}

/* A timer that is read while the GPU works, its clock being compared then, is what it is when read
 * on an idle GPU. */
static void timers_read_amid_work(void)
{
    int64_t bytes = (int64_t)SIDE * SIDE * 2, first;
    double amid, later, worst = 0;
    struct dev *d;
    void *m[3];
    if (gpus() == 0)
        return;
    d = open_gpu(0);
    for (int i = 0; i < 3; i++)
        CHECK_OK(d->ops->alloc(d, bytes, "a matrix", &m[i]));
    struct gemm g = {.c = m[0], .a = m[1], .b = m[2], .m = SIDE, .n = SIDE, .k = SIDE};
    CHECK_OK(d->ops->timer_alloc(d, 1, &first));
    CHECK_OK(dev_gemm(d, &g));
    for (int round = 0; round < 5; round++) {
        CHECK_OK(d->ops->sync(d));
        rest(0.2);
        CHECK_OK(d->ops->timer_record(d, first));
        CHECK_OK(d->ops->event_record(d, 0));
        for (int i = 0; i < 5000; i++)
            CHECK_OK(dev_gemm(d, &g));
        CHECK_OK(d->ops->event_record(d, 1));
        CHECK_OK(d->ops->event_synchronize(d, 0));
        CHECK_OK(d->ops->timer_read(d, first, &amid));
        CHECK_OK(d->ops->event_synchronize(d, 1));
        rest(0.2);
        CHECK_OK(d->ops->timer_read(d, first, &later));
        worst = fmax(worst, fabs(amid - later));
    }
    printf("     read amid work and later: at most %.1f us apart\n", 1e6 * worst);
    CHECK(worst < OFF_S);
    for (int i = 0; i < 3; i++)
        d->ops->free(d, m[i]);
    dev_close(d);
}

/* ---- runs ---- */

struct run { double seconds[STEPS], whole; int n; };

static void on_step(void *arg, const struct plait_step *s)
{
    struct run *r = arg;
    r->seconds[r->n++] = s->seconds;
}

/* Words of one run behind those of all; NULL ends them. */
static void train(const char *name, const char *const *words, struct run *r)
{
    static const char *const base[] = {
        "train.device=cuda", "train.dtype=bf16", "model.kind=llama", "model.layers=8",
        "model.hidden=2048", "model.heads=16", "model.ffn=5632", "model.seq=1024",
        "train.batch=16", "parallel.microbatch=1", "train.steps=12", "optim.warmup=1",
        "run.save=false"};
    *r = (struct run){.n = 0};
    folder_tokens("tokens", "times on GPUs are told on one clock, which is the host's.\n", 4000);
    struct plait_config *c = folder_config(name, "tokens");
    folder_set(c, base, sizeof base / sizeof *base);
    folder_set(c, words, 64);
    double begin = log_now();
    int code = plait_train(c, &(struct plait_train){.size = sizeof(struct plait_train),
                                                    .on_step = on_step, .arg = r});
    r->whole = log_now() - begin;
    test_check(code == 0 && r->n == STEPS, __FILE__, __LINE__, "%s: %s", name, plait_error());
    plait_config_free(c);
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_step(const struct run *r)
{
    double s[STEPS - FIRST];
    memcpy(s, r->seconds + FIRST, sizeof s);
    qsort(s, STEPS - FIRST, sizeof *s, by_size);
    return s[(STEPS - FIRST) / 2];
}

/* One GPU has no bubble: instructions follow each other, and fill the step. */
static void one_gpu(void)
{
    char path[FOLDER_PATH];
    struct run r;
    struct trace t;
    if (gpus() == 0)
        return;
    train("one", (const char *[]){"parallel.chunks=2", "parallel.schedule=interleaved",
                                  "train.trace=true", NULL}, &r);
    folder_path("one", path);
    CHECK_OK(trace_read(path, 0, &t));
    CHECK_INT(t.steps, STEPS);
    for (int64_t i = 0; i < t.steps && i < r.n; i++) {
        int64_t step;
        const struct exec_event *e = trace_events(&t, i, &step);
        double work = 0, end = e[0].start;
        for (int64_t k = 0; k < t.head.instrs; k++) {
            CHECK(e[k].start > end - 10e-6 && e[k].end >= e[k].start && e[k].waited == 0);
            work += e[k].end - e[k].start;
            end = e[k].end;
        }
        printf("     step %d: %.3f ms, its instructions %.3f ms\n", (int)step, 1e3 * r.seconds[i],
               1e3 * work);
        CHECK(work < r.seconds[i] + OFF_S);
        CHECK(i < FIRST || work > 0.97 * r.seconds[i]);
    }
    trace_unread(&t);
}

/* The last step is over when it is reported: it cannot read faster than the others; and all steps
 * are within the run. */
static void first_and_last(void)
{
    struct run r;
    double sum = 0;
    if (gpus() == 0)
        return;
    train("steps", (const char *[]){"parallel.schedule=1f1b", NULL}, &r);
    for (int i = 0; i < r.n; i++) {
        sum += r.seconds[i];
        CHECK(r.seconds[i] > 0.8 * median_step(&r));
        CHECK(i < FIRST || r.seconds[i] < 1.25 * median_step(&r));
    }
    printf("     first %.3f ms, median %.3f ms, last %.3f ms, all %.3f s of %.3f s\n",
           1e3 * r.seconds[0], 1e3 * median_step(&r), 1e3 * r.seconds[STEPS - 1], sum, r.whole);
    CHECK(sum < r.whole);
}

/* Of a step that is queued call by call in both. A wait for each instruction would cost far more
 * than the bound; that it costs nothing is for who reads the figure. */
static void tracing_costs_nothing(void)
{
    struct run plain, traced;
    if (gpus() == 0)
        return;
    train("plain", (const char *[]){"parallel.schedule=1f1b", "train.graph=off", NULL}, &plain);
    train("traced", (const char *[]){"parallel.schedule=1f1b", "train.trace=true", NULL}, &traced);
    double ratio = median_step(&traced) / median_step(&plain);
    printf("     a step takes %.3f ms, traced %.3f ms: %.4f of it\n", 1e3 * median_step(&plain),
           1e3 * median_step(&traced), ratio);
    CHECK(ratio < 1.1);
}

/* ---- pipelines ---- */

static double number(const cJSON *page, const char *name)
{
    const cJSON *at = cJSON_GetObjectItem(page, name);
    return at ? at->valuedouble : NAN;
}

static void bubble_of(const char *schedule, int pp)
{
    char name[64], path[FOLDER_PATH], *text = NULL, words[2][64];
    struct run r;
    snprintf(name, sizeof name, "%s-%d", schedule, pp);
    snprintf(words[0], sizeof words[0], "parallel.pp=%d", pp);
    snprintf(words[1], sizeof words[1], "parallel.schedule=%s", schedule);
    train(name, (const char *[]){words[0], words[1], "train.trace=true", NULL}, &r);
    folder_path(name, path);
    struct plait_compare how = {.size = sizeof how, .run = path, .skip = FIRST, .format = "json"};
    if (!CHECK(plait_compare(&how, &text) == 0))
        return;
    cJSON *page = cJSON_Parse(text);
    double measured = number(page, "bubble_measured");
    double simulated = number(page, "bubble_simulated");
    printf("     %s on %d GPUs: bubble %.2f %%, simulated %.2f %%, predicted %.2f %%; first to "
           "last %.3f ms, simulated %.3f ms, a step %.3f ms; a message %.1f us, fetched in %.1f "
           "us\n", schedule, pp, 100 * measured, 100 * simulated,
           100 * number(page, "bubble_predicted"), 1e3 * number(page, "makespan_measured"),
           1e3 * number(page, "makespan_simulated"), 1e3 * median_step(&r),
           1e6 * number(page, "latency"), 1e6 * number(page, "fetch"));
    CHECK(fabs(measured - simulated) < 0.03);
    CHECK(number(page, "makespan_measured") < 1.05 * median_step(&r));
    cJSON_Delete(page);
    plait_free(text);
}

static void bubbles(void)
{
    static const char *const names[] = {"gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"};
    int here = gpus();
    if (here == 1)
        test_skip("two GPUs are needed");
    for (int pp = 2; pp <= here; pp *= 2)
        for (int i = 0; i < 5; i++)
            bubble_of(names[i], pp);
}

static const struct test_case cases[] = {
    {"timers and the host's clock", timers_and_the_host},
    {"timers of work", timers_of_work},
    {"timers read amid work", timers_read_amid_work},
    {"instructions on one GPU", one_gpu},
    {"the first step and the last", first_and_last},
    {"tracing costs nothing", tracing_costs_nothing},
    {"bubbles, measured and simulated", bubbles},
};
TEST_MAIN(cases)
