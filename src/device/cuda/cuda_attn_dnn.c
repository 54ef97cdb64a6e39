/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention by cuDNN: a plan a shape, built at its first call and kept until the device closes.
 *
 * Which plan. The library names a few engines for a graph. The first call of a shape runs each of
 * them on the call's own operands, once to warm up and once against the clock, and keeps the
 * fastest: outputs are written anew by each, inputs are not touched. The host waits for that, once
 * a shape, and the choice is remembered with those of GEMMs (cuda_algo.h), by its place among as
 * many and its workspace. Nothing is measured while the stream is captured, nor by a deterministic
 * device, whose choice must not hang on a clock: both take the library's first.
 *
 * Workspace, backwards: log-sum-exps by head, dq in f32 (b heads tq d) while it is added up, then
 * what the library asks for. cuda_attn_work_bytes (cuda_attn.c) is the sum beforehand; here it
 * meets the library's word.
 *
 * A shape that no engine takes, or not in the workspace there is, is remembered as such, said once
 * in the log, and left to our own kernels.
 */
#include "device/cuda/cuda_local.h"

#include <stdio.h>

#ifdef PLAIT_HAVE_CUDNN
#include "base/log.h"
#include "base/mem.h"
#include "device/cuda/cuda_dnn.h"
#include "device/cuda/cuda_lt.h"
#include <math.h>
#include <string.h>

/* cuDNN before this one wanted sums of dq cleared by the caller. */
enum { OLDEST = 90600, WORK_ALIGN = 256, KEY = 11 };

struct entry {
    int64_t key[KEY];
    struct dnn_plan plan; /* plan.plan NULL: not for cuDNN */
};

struct cuda_dnn {
    cudnnHandle_t handle;
    cudaEvent_t from, to;  /* around a measured run */
    int major;             /* compute capability */
    struct entry *entry;   /* owned */
    int64_t entries;
};

/* Numbers that the graphs read from the host while a plan is being launched. */
struct numbers {
    float scale, masked, one;
    int32_t tq, tk;
};

static enum err refused(const char *what, cudnnStatus_t s)
{
    FAIL(ERR_INTERNAL, "cuda: cuDNN %zu could not %s: %s", cudnnGetVersion(), what,
         cudnnGetErrorString(s));
}

enum err cuda_dnn_fits(void)
{
    size_t is = cudnnGetVersion();
    if (is / 10000 != CUDNN_MAJOR || is < OLDEST)
        FAIL(ERR_CONFIG, "train.device cuda: this program was built for cuDNN %d.%d.%d and finds "
                         "version %zu; install a cuDNN %d of at least 9.6, or build without it",
             CUDNN_MAJOR, CUDNN_MINOR, CUDNN_PATCHLEVEL, is, CUDNN_MAJOR);
    return ERR_OK;
}

static enum err open_parts(struct cuda *c, struct cuda_dnn *n)
{
    cudnnStatus_t s = cudnnCreate(&n->handle);
    if (s != CUDNN_STATUS_SUCCESS)
        return refused("open", s);
    s = cudnnSetStream(n->handle, c->stream);
    if (s != CUDNN_STATUS_SUCCESS)
        return refused("take the stream", s);
    CUDA_TRY(cudaEventCreate(&n->from));
    CUDA_TRY(cudaEventCreate(&n->to));
    CUDA_TRY(cudaDeviceGetAttribute(&n->major, cudaDevAttrComputeCapabilityMajor, c->index));
    return ERR_OK;
}

enum err cuda_dnn_open(struct cuda *c)
{
    TRY(mem_new(1, sizeof *c->dnn, "cudnn", &c->dnn));
    enum err err = open_parts(c, c->dnn);
    if (err != ERR_OK)
        cuda_dnn_close(c);
    return err;
}

void cuda_dnn_close(struct cuda *c)
{
    struct cuda_dnn *n = c->dnn;
    if (!n)
        return;
    for (int64_t i = 0; i < n->entries; i++)
        dnn_plan_close(&n->entry[i].plan);
    cuda_event_drop(n->from);
    cuda_event_drop(n->to);
    if (n->handle)
        cudnnDestroy(n->handle);
    mem_free(n->entry);
    mem_free(n);
    c->dnn = NULL;
}

static int64_t round_up(int64_t bytes)
{
    return (bytes + WORK_ALIGN - 1) / WORK_ALIGN * WORK_ALIGN;
}

/* Bytes of a gradient's log-sum-exps, which come first in the workspace; and with them of all that
 * comes before the library's own. */
static int64_t lse_bytes(const struct attn *a)
{
    return round_up(a->b * a->heads * a->tq * 4);
}

static int64_t sum_bytes(const struct cuda *c, const struct attn *a, bool grad)
{
    int64_t dq = c->deterministic ? 0 : round_up(a->b * a->heads * a->tq * a->d * 4);
    return grad ? lse_bytes(a) + dq : 0;
}

static bool aligned(const void *p)
{
    return (uintptr_t)p % 16 == 0;
}

/* What the graphs describe, and the engines are known to get right. cuDNN's blocks are of up to 128
 * rows; with lengths between, its backward is known to make NaN of the empty part of a block where
 * log-sum-exps are far below zero (NVIDIA/cudnn-frontend, issues 160 and 1072), so lengths are
 * multiples of 128. */
static bool takes(const struct cuda_dnn *n, const struct attn_grad *g, bool grad)
{
    const struct attn *a = &g->f;
    bool fits = a->drop.p == 0 && a->d % 8 == 0 && a->d <= (n->major == 9 ? 256 : 128) &&
                a->tq % 128 == 0 && a->tk % 128 == 0 && a->tk <= INT32_MAX;
    bool strides = a->ldq % 8 == 0 && a->ldk % 8 == 0 && a->ldv % 8 == 0 && a->ldo % 8 == 0;
    bool places = aligned(a->q) && aligned(a->k) && aligned(a->v) && aligned(a->o) &&
                  aligned(a->lse);
    if (grad)
        places = places && aligned(g->do_) && aligned(g->dq) && aligned(g->dk) && aligned(g->dv) &&
                 aligned(g->delta);
    return fits && strides && places;
}

static void add(struct dnn_operands *o, int64_t id, const void *at)
{
    ENSURE(o->n < DNN_OPERANDS);
    o->id[o->n] = id;
    o->at[o->n++] = (void *)at;
}

/* A backward's operands; a forward's are the first of them. */
static struct dnn_operands operands(const struct cuda *c, const struct attn_grad *g, bool grad,
                                    struct numbers *x)
{
    const struct attn *a = &g->f;
    struct dnn_operands o = {.work = (char *)c->work + sum_bytes(c, a, grad)};
    *x = (struct numbers){(float)a->scale, -INFINITY, 1, (int32_t)a->tq, (int32_t)a->tk};
    add(&o, ATTN_Q, a->q);
    add(&o, ATTN_K, a->k);
    add(&o, ATTN_V, a->v);
    add(&o, ATTN_O, a->o);
    add(&o, ATTN_LSE, grad ? c->work : a->lse);
    add(&o, ATTN_SCALE, &x->scale);
    add(&o, ATTN_MASKED, &x->masked);
    if (a->tq != a->tk) {
        add(&o, ATTN_TQ, &x->tq);
        add(&o, ATTN_TK, &x->tk);
    }
    if (!grad)
        return o;
    add(&o, ATTN_ONE, &x->one);
    add(&o, ATTN_DO, g->do_);
    add(&o, ATTN_DQ, g->dq);
    add(&o, ATTN_DK, g->dk);
    add(&o, ATTN_DV, g->dv);
    add(&o, ATTN_DELTA, g->delta);
    if (!c->deterministic)
        add(&o, ATTN_SUM_DQ, (char *)c->work + lse_bytes(a));
    return o;
}

/* What a plan is wanted for. Borrowed. */
struct ask {
    const struct attn *attn;
    bool grad;
    struct dnn_operands *operands;
};

/* Milliseconds of one run behind another; infinite when the plan does not run. */
static enum err measure(struct cuda *c, const struct dnn_plan *p, struct dnn_operands *o,
                        float *out)
{
    struct cuda_dnn *n = c->dnn;
    *out = INFINITY;
    if (dnn_run(n->handle, p, o) != CUDNN_STATUS_SUCCESS)
        return ERR_OK;
    CUDA_TRY(cudaEventRecord(n->from, c->stream));
    if (dnn_run(n->handle, p, o) != CUDNN_STATUS_SUCCESS)
        return ERR_OK;
    CUDA_TRY(cudaEventRecord(n->to, c->stream));
    CUDA_TRY(cudaEventSynchronize(n->to));
    CUDA_TRY(cudaEventElapsedTime(out, n->from, n->to));
    return ERR_OK;
}

/* flags of a key that no GEMM has. */
enum { ATTENTION = 1 << 20 };

static struct cuda_algo_choice choice_of(const struct dnn_answer *from, int which, double us)
{
    return (struct cuda_algo_choice){
        .way = which + 1, .us = us,
        .settings = {from->count, from->plan[which].work / 1024 & INT32_MAX}};
}

/* Is that the choice among these? */
static bool recognised(const struct dnn_answer *from, const struct cuda_algo_choice *held,
                       int *best)
{
    if (!held || held->way > from->count)
        return false;
    struct cuda_algo_choice same = choice_of(from, (int)held->way - 1, 0);
    if (memcmp(same.settings, held->settings, sizeof same.settings) != 0)
        return false;
    *best = (int)held->way - 1;
    return true;
}

static enum err choose(struct cuda *c, const struct dnn_answer *from, const struct ask *of,
                       int *best)
{
    enum cudaStreamCaptureStatus capture;
    struct cuda_algos *algos = c->lt ? c->lt->algos : NULL; /* a GEMM comes first */
    const struct attn *a = of->attn;
    struct cuda_algo_key key = {a->b, a->tq, a->tk, a->heads, a->kv_heads, a->d,
                                ATTENTION + of->grad, (int64_t)cudnnGetVersion()};
    struct dnn_operands *o = of->operands;
    float least = INFINITY;
    *best = 0;
    const struct cuda_algo_choice *known = algos ? cuda_algos_find(algos, &key) : NULL;
    if (recognised(from, known, best)) {
        cuda_algos_use(algos, &key, known);
        return ERR_OK;
    }
    CUDA_TRY(cudaStreamIsCapturing(c->stream, &capture));
    if (from->count < 2 || c->deterministic || capture != cudaStreamCaptureStatusNone)
        return ERR_OK;
    for (int i = 0; i < from->count; i++) {
        float ms;
        TRY(measure(c, &from->plan[i], o, &ms));
        log_line(LOG_DEBUG, "cuda: attention plan %d of %d: %.3f ms, workspace %lld bytes", i + 1,
                 from->count, (double)ms, (long long)from->plan[i].work);
        if (ms < least) {
            least = ms;
            *best = i;
        }
    }
    if (algos && least < INFINITY) {
        struct cuda_algo_choice held, mine = choice_of(from, *best, (double)least * 1e3);
        cuda_algos_offer(algos, &key, &mine, &held);
        bool found = recognised(from, &held, best);
        cuda_algos_use(algos, &key, found ? &held : &mine);
    }
    return ERR_OK;
}

static void say_refused(const struct cuda *c, const struct attn *a, bool grad, int64_t least)
{
    char why[120] = "no engine takes it";
    if (least >= 0)
        snprintf(why, sizeof why, "it needs a workspace of %lld bytes and there are %lld",
                 (long long)(least + sum_bytes(c, a, grad)), (long long)c->work_bytes);
    log_line(LOG_WARN,
             "cuda: cuDNN does not serve attention%s of %lld x %lld queries, %lld keys, %lld and "
             "%lld heads of %lld: %s; own kernels do",
             grad ? "'s gradient" : "", (long long)a->b, (long long)a->tq, (long long)a->tk,
             (long long)a->heads, (long long)a->kv_heads, (long long)a->d, why);
}

/* Plans for a shape; the best into e->plan, the others closed. */
static enum err build(struct cuda *c, const struct attn *a, bool grad, struct dnn_operands *o,
                      struct entry *e)
{
    struct dnn_graph g = {0};
    struct dnn_answer found = {0};
    int64_t most = c->work_bytes - sum_bytes(c, a, grad);
    struct dnn_ask ask = {.most = most, .deterministic = c->deterministic,
                          .wanted = c->deterministic ? 1 : DNN_CANDIDATES};
    struct dnn_target target = {.handle = c->dnn->handle};
    int best = 0;
    if (grad)
        dnn_attn_grad(&g, a, c->deterministic);
    else
        dnn_attn(&g, a);
    enum err err = dnn_plans(&g, &target, &ask, &found);
    dnn_graph_close(&g);
    if (err == ERR_OK && found.count == 0)
        say_refused(c, a, grad, found.least);
    if (err == ERR_OK && found.count > 0)
        err = choose(c, &found, &(struct ask){a, grad, o}, &best);
    for (int i = 0; i < found.count; i++) {
        if (err == ERR_OK && i == best)
            e->plan = found.plan[i];
        else
            dnn_plan_close(&found.plan[i]);
    }
    TRY(err);
    return ERR_OK;
}

/* The plan of a shape, built when it is new. */
static enum err plan_for(struct cuda *c, const struct attn *a, bool grad, struct dnn_operands *o,
                         struct dnn_plan *out)
{
    struct cuda_dnn *n = c->dnn;
    struct entry e = {{grad, a->b, a->tq, a->tk, a->heads, a->kv_heads, a->d, a->ldq, a->ldk,
                       a->ldv, a->ldo}, {0}};
    for (int64_t i = 0; i < n->entries; i++) {
        if (memcmp(n->entry[i].key, e.key, sizeof e.key) == 0) {
            *out = n->entry[i].plan;
            return ERR_OK;
        }
    }
    TRY(mem_grow(n->entries, n->entries + 1, sizeof *n->entry, "cudnn plans", &n->entry));
    TRY(build(c, a, grad, o, &e));
    n->entry[n->entries++] = e;
    *out = e.plan;
    return ERR_OK;
}

enum err cuda_dnn_attn(struct cuda *c, const struct attn_grad *g, bool grad, bool *done)
{
    struct numbers x;
    struct dnn_plan p;
    *done = false;
    if (!takes(c->dnn, g, grad))
        return ERR_OK;
    struct dnn_operands o = operands(c, g, grad, &x);
    if (grad && sum_bytes(c, &g->f, grad) <= c->work_bytes)
        TRY(cuda_attn_lse(c, c->work, &g->f));
    TRY(plan_for(c, &g->f, grad, &o, &p));
    if (!p.plan)
        return ERR_OK;
    cudnnStatus_t s = dnn_run(c->dnn->handle, &p, &o);
    if (s != CUDNN_STATUS_SUCCESS)
        return refused(grad ? "run attention's gradient" : "run attention", s);
    *done = true;
    return ERR_OK;
}

int64_t cuda_dnn_version(void)
{
    return (int64_t)cudnnGetVersion();
}
#else

enum err cuda_dnn_fits(void)
{
    return ERR_OK;
}

enum err cuda_dnn_open(struct cuda *c)
{
    (void)c;
    return ERR_OK;
}

void cuda_dnn_close(struct cuda *c)
{
    (void)c;
}

enum err cuda_dnn_attn(struct cuda *c, const struct attn_grad *g, bool grad, bool *done)
{
    (void)c;
    (void)g;
    (void)grad;
    *done = false;
    return ERR_OK;
}

int64_t cuda_dnn_version(void)
{
    return 0;
}
#endif
