/* SPDX-License-Identifier: Apache-2.0
 *
 * Fork and join. The caller posts a task, works on it itself, closes it, and waits for those
 * threads that had joined it. A thread that wakes after the task was closed never joined, so the
 * caller does not wait for it: when many ranks share few cores, a late wake costs nothing but the
 * help that did not come. Items are handed out by one atomic counter.
 *
 * Waiting spins for about a millisecond and then sleeps on a condition variable: between the
 * kernels of a step threads stay awake, because a thread that sleeps is woken late, or on the
 * processor of the one that woke it, and is then missed by the next task. A spin whose length
 * follows success does not do: once short it never meets anything again. With more threads than
 * processors there is no spin at all.
 *
 * Every thread that runs a task flushes denormals (they cost five times and more on some
 * processors); the caller's floating-point state is put back when the task is done.
 */
#include "device/cpu/cpu_pool.h"

#include "base/thread.h"
#include "base/mem.h"
#include "base/num.h"
#include <pthread.h>
#include <stdatomic.h>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

enum { SPIN = 1 << 15 }; /* pauses; half a millisecond to two */

struct worker {
    struct cpu_pool *pool; /* borrowed */
    pthread_t thread;
    float *scratch; /* borrowed from the pool */
};

struct cpu_pool {
    int threads;            /* with the caller */
    int started;            /* workers whose thread exists */
    struct worker *worker;  /* owned; threads - 1 */
    char *scratch;          /* owned; threads x scratch_bytes */
    int64_t scratch_bytes;
    int spin;               /* pauses before sleeping */
    pthread_mutex_t lock;   /* over task, open, quit; `posted` and `joined` change under it */
    pthread_cond_t posting, leaving;
    atomic_uint posted;     /* tasks posted so far */
    atomic_int joined;      /* threads at work on the present task, the caller not counted */
    bool open, quit;
    cpu_task_fn *fn;
    const void *arg;
    int64_t n, grain;
    atomic_llong next;      /* first item not yet handed out */
};

static inline void relax(void)
{
#if defined(__SSE2__)
    _mm_pause();
#endif
}

/* Flush denormals to zero, on input and output; returns the state before. */
static unsigned flush_denormals(void)
{
#if defined(__SSE2__)
    unsigned before = _mm_getcsr();
    _mm_setcsr(before | 0x8040u);
    return before;
#else
    return 0;
#endif
}

static void restore_denormals(unsigned state)
{
#if defined(__SSE2__)
    _mm_setcsr(state);
#else
    (void)state;
#endif
}

static void work(struct cpu_pool *p, float *scratch)
{
    for (;;) {
        int64_t first = (int64_t)atomic_fetch_add(&p->next, (long long)p->grain);
        if (first >= p->n)
            return;
        p->fn(p->arg, first, num_min(first + p->grain, p->n), scratch);
    }
}

static void *worker_main(void *arg)
{
    struct worker *w = arg;
    struct cpu_pool *p = w->pool;
    unsigned seen = 0;
    (void)flush_denormals();
    for (;;) {
        for (int i = 0; i < p->spin; i++) {
            if (atomic_load_explicit(&p->posted, memory_order_acquire) != seen)
                break;
            relax();
        }
        pthread_mutex_lock(&p->lock);
        while (atomic_load(&p->posted) == seen && !p->quit)
            pthread_cond_wait(&p->posting, &p->lock);
        if (p->quit)
            break;
        seen = atomic_load(&p->posted);
        if (!p->open) {
            pthread_mutex_unlock(&p->lock);
            continue;
        }
        atomic_fetch_add(&p->joined, 1);
        pthread_mutex_unlock(&p->lock);
        work(p, w->scratch);
        pthread_mutex_lock(&p->lock);
        if (atomic_fetch_sub(&p->joined, 1) == 1)
            pthread_cond_signal(&p->leaving);
        pthread_mutex_unlock(&p->lock);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

void cpu_pool_run(struct cpu_pool *p, cpu_task_fn *fn, const void *arg, int64_t n, int64_t grain)
{
    if (n <= 0)
        return;
    unsigned state = flush_denormals();
    if (p->threads == 1 || n <= grain) {
        for (int64_t i = 0; i < n; i += grain)
            fn(arg, i, num_min(i + grain, n), (float *)p->scratch);
        restore_denormals(state);
        return;
    }
    pthread_mutex_lock(&p->lock);
    p->fn = fn;
    p->arg = arg;
    p->n = n;
    p->grain = grain;
    atomic_store(&p->next, 0);
    p->open = true;
    atomic_fetch_add(&p->posted, 1);
    int64_t helpers = num_min(num_ceil_div(n, grain), p->threads) - 1;
    if (helpers == p->threads - 1)
        pthread_cond_broadcast(&p->posting);
    else
        for (int64_t i = 0; i < helpers; i++)
            pthread_cond_signal(&p->posting);
    pthread_mutex_unlock(&p->lock);
    work(p, (float *)p->scratch);
    /* It is closed, and over when no thread works on it. */
    pthread_mutex_lock(&p->lock);
    p->open = false;
    pthread_mutex_unlock(&p->lock);
    for (int i = 0; i < p->spin && atomic_load_explicit(&p->joined, memory_order_acquire); i++)
        relax();
    pthread_mutex_lock(&p->lock);
    while (atomic_load(&p->joined) > 0)
        pthread_cond_wait(&p->leaving, &p->lock);
    pthread_mutex_unlock(&p->lock);
    restore_denormals(state);
}

static enum err start(struct cpu_pool *p)
{
    for (int i = 0; i < p->threads - 1; i++) {
        struct worker *w = &p->worker[i];
        w->pool = p;
        w->scratch = (float *)(p->scratch + (i + 1) * p->scratch_bytes);
        if (pthread_create(&w->thread, NULL, worker_main, w) != 0)
            FAIL(ERR_MEMORY, "cpu: thread %d of %d cannot be started; use fewer threads a rank",
                 i + 2, p->threads);
        p->started = i + 1;
    }
    return ERR_OK;
}

enum err cpu_pool_open(int threads, int64_t scratch, struct cpu_pool **out)
{
    struct cpu_pool *p = NULL;
    enum err err;
    TRY(mem_new(1, sizeof *p, "the cpu thread pool", &p));
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->posting, NULL);
    pthread_cond_init(&p->leaving, NULL);
    p->threads = threads;
    p->scratch_bytes = arena_round(scratch);
    p->spin = threads <= cores_usable() ? SPIN : 0;
    TRY_OR(out_close, mem_new(threads, (size_t)p->scratch_bytes, "cpu scratch", &p->scratch));
    TRY_OR(out_close, mem_new(threads - 1, sizeof *p->worker, "cpu threads", &p->worker));
    TRY_OR(out_close, start(p));
    *out = p;
    return ERR_OK;
out_close:
    cpu_pool_close(p);
    return err;
}

void cpu_pool_close(struct cpu_pool *p)
{
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    p->quit = true;
    pthread_cond_broadcast(&p->posting);
    pthread_mutex_unlock(&p->lock);
    for (int i = 0; i < p->started; i++)
        pthread_join(p->worker[i].thread, NULL);
    pthread_cond_destroy(&p->leaving);
    pthread_cond_destroy(&p->posting);
    pthread_mutex_destroy(&p->lock);
    mem_free(p->worker);
    mem_free(p->scratch);
    mem_free(p);
}
