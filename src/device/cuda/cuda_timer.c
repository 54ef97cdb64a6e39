/* SPDX-License-Identifier: Apache-2.0
 *
 * Timers: timed events of the device's stream, told on the host's clock.
 *
 * An event holds the GPU's clock, and the runtime gives no more than the time between two events,
 * in a float of milliseconds. So now and then the two clocks are compared: an event is recorded on
 * a stream where nothing else is queued, and the host looks until it is over. The GPU's clock stood
 * at it half way between, to within half of the time that took (Cristian 1989); the quickest of a
 * few tries is believed, and is off by a few microseconds at most, much the same on each GPU of a
 * machine.
 *
 *     GPU's clock   ---before--------- e ------------last---
 *     host's clock  ---before--------- ? ------------last---
 *
 * A timer's time lies on the straight line through the last two comparisons, so neither clock's
 * drift adds up, however long the run; it is measured from the nearer of the two, where the float
 * is exact to a microsecond for eight seconds either way. What is compared is not in the stream's
 * way: no work waits for it, and it costs the host a hundred microseconds at most ten times a
 * second.
 */
#include "device/cuda/cuda_local.h"

#include "base/log.h"
#include "base/mem.h"

enum { TRIES = 8 };
#define COMPARE_S 0.1 /* a comparison is good for so long */
#define RATE_S 0.05   /* two that lie nearer to each other say nothing of how fast the clocks go */

/* The GPU's clock stood at `event` when the host's stood at `host`, to within half of `took`. */
struct anchor {
    cudaEvent_t event; /* owned */
    double host, took;
};

struct cuda_clock {
    cudaEvent_t *timer; /* owned; [timers] */
    int64_t timers;
    cudaStream_t stream; /* owned; of comparisons alone */
    struct anchor before, last, spare;
    double apart;       /* the GPU's seconds from before to last; 0: too near to each other */
    double rate;        /* of the host's seconds to the GPU's */
};

/* The GPU's seconds from a to b, below 0 where b is the earlier one. Both are over. The runtime
 * does not say what it gives for two events in the wrong order, so they are asked about in the
 * other order too when the first answer is not above 0. */
static enum err seconds_between(cudaEvent_t a, cudaEvent_t b, double *out)
{
    float ms, back = 0;
    CUDA_TRY(cudaEventElapsedTime(&ms, a, b));
    if (!(ms > 0))
        CUDA_TRY(cudaEventElapsedTime(&back, b, a));
    *out = 1e-3 * (double)(ms > 0 ? ms : -back);
    return ERR_OK;
}

static void exchange(struct anchor *a, struct anchor *b)
{
    struct anchor t = *a;
    *a = *b;
    *b = t;
}

/* The quickest try becomes `last`, and what was last `before`. */
static enum err compare_clocks(struct cuda_clock *k)
{
    exchange(&k->before, &k->last);
    k->last.took = INFINITY;
    for (int i = 0; i < TRIES; i++) {
        cudaError_t e = cudaErrorNotReady;
        double begin = log_now();
        CUDA_TRY(cudaEventRecord(k->spare.event, k->stream));
        while (e == cudaErrorNotReady)
            e = cudaEventQuery(k->spare.event);
        k->spare.took = log_now() - begin;
        k->spare.host = begin + k->spare.took / 2;
        CUDA_TRY(e);
        (void)cudaGetLastError(); /* "not ready" would pass for the error of a later launch */
        if (k->spare.took < k->last.took)
            exchange(&k->spare, &k->last);
    }
    k->apart = 0;
    k->rate = 1;
    double host = k->last.host - k->before.host;
    if (k->before.took == 0 || host < RATE_S)
        return ERR_OK;
    TRY(seconds_between(k->before.event, k->last.event, &k->apart));
    k->rate = host / k->apart;
    return ERR_OK;
}

enum err cuda_clock_open(struct cuda *c)
{
    TRY(mem_new(1, sizeof *c->clock, "the GPU's clock", &c->clock));
    CUDA_TRY(cudaStreamCreateWithFlags(&c->clock->stream, cudaStreamNonBlocking));
    TRY(cuda_event_new(&c->clock->before.event, cudaEventDefault));
    TRY(cuda_event_new(&c->clock->last.event, cudaEventDefault));
    TRY(cuda_event_new(&c->clock->spare.event, cudaEventDefault));
    return compare_clocks(c->clock);
}

void cuda_clock_close(struct cuda *c)
{
    struct cuda_clock *k = c->clock;
    if (!k)
        return;
    cuda_event_drop(k->before.event);
    cuda_event_drop(k->last.event);
    cuda_event_drop(k->spare.event);
    for (int64_t i = 0; i < k->timers; i++)
        cuda_event_drop(k->timer[i]);
    if (k->stream)
        (void)cudaStreamDestroy(k->stream);
    mem_free(k->timer);
    mem_free(k);
    c->clock = NULL;
}

enum err cuda_timer_alloc(struct dev *d, int64_t n, int64_t *first)
{
    struct cuda_clock *k = cuda_of(d)->clock;
    int64_t begin = k->timers, end = begin + n;
    TRY(mem_grow(begin, end, sizeof *k->timer, "timers", &k->timer));
    for (; k->timers < end; k->timers++)
        TRY(cuda_event_new(&k->timer[k->timers], cudaEventDefault));
    *first = begin;
    return ERR_OK;
}

enum err cuda_timer_record(struct dev *d, int64_t which)
{
    const struct cuda *c = cuda_of(d);
    ENSURE(which >= 0 && which < c->clock->timers);
    CUDA_TRY(cudaEventRecord(c->clock->timer[which], c->stream));
    return ERR_OK;
}

enum err cuda_timer_read(struct dev *d, int64_t which, double *seconds)
{
    struct cuda_clock *k = cuda_of(d)->clock;
    double since = 0;
    ENSURE(which >= 0 && which < k->timers);
    if (log_now() - k->last.host > COMPARE_S)
        TRY(compare_clocks(k));
    const struct anchor *a = &k->last;
    TRY(seconds_between(a->event, k->timer[which], &since));
    if (-since > k->apart / 2 && k->apart > 0) {
        a = &k->before;
        TRY(seconds_between(a->event, k->timer[which], &since));
    }
    *seconds = a->host + since * k->rate;
    return ERR_OK;
}
