/* SPDX-License-Identifier: Apache-2.0
 *
 * GEMMs by cuBLASLt (cuda_lt.c says how it is asked): with bias, activation or their gradients in
 * its epilogue, or apart, a GEMM without epilogue and then kernels of our own (cuda_epilogue.cu),
 * where the library has nothing for these types, extents and addresses; where not even the bare
 * GEMM is served, our own. The first GEMM of a shape takes the choice of algorithm from the file of
 * choices (cuda_algo.h), else it measures what the library proposes and adds the fastest to it. In
 * deterministic mode, and while a graph is captured, the library's first holds. Why so, and what it
 * means for bits: docs/design/gemm-choices.md.
 */
#include "device/cuda/cuda_lt.h"

#include "base/log.h"
#include "device/cuda/cuda_epilogue.h"
#include <stdio.h>

enum {
    REPEATS = 3,    /* of a measured GEMM, behind one to warm up */
    LARGE = 1 << 30 /* multiplications of a GEMM that should not go apart */
};

/* ---- choices ---- */

/* The proposal that a choice names, if there is one. */
static enum err recognise(struct lt_call *k, const struct cuda_algo_choice *choice,
                          struct lt_known *out, bool *found)
{
    cublasLtMatmulAlgo_t list[LT_CANDIDATES];
    int64_t settings[CUDA_ALGO_SETTINGS];
    int n;
    *found = false;
    if (choice->way != WAY_LIBRARY && choice->way != WAY_LIBRARY_DB)
        return ERR_OK;
    if (choice->way == WAY_LIBRARY_DB && !cuda_lt_db_fits(k->c, k->g.m))
        return ERR_OK;
    TRY(cuda_lt_propose(k, (enum lt_way)choice->way, list, &n));
    for (int i = 0; i < n && !*found; i++) {
        TRY(cuda_lt_settings(&list[i], settings));
        if (memcmp(settings, choice->settings, sizeof settings) != 0)
            continue;
        *found = true;
        out->way = (enum lt_way)choice->way;
        out->algo = list[i];
    }
    return ERR_OK;
}

/* ---- measuring ---- */

/* Where measured GEMMs may put their sum; NULL when there is no room. */
static void *measured_out(const struct lt_call *k)
{
    int64_t need = (k->g.m - 1) * k->g.ldc + k->g.n;
    if (!k->g.accumulate)
        return k->g.c;
    return need <= cuda_lt_room(k->c, k->g.db ? k->g.m : 0) ? cuda_lt_room_at(k->c) : NULL;
}

/* Microseconds of what `algo` does, or of cuda_bias_grad when it is NULL; below 0 where the library
 * does not run it after all. */
static enum err measure(struct lt_call *k, const cublasLtMatmulAlgo_t *algo, double *us)
{
    struct cuda *c = k->c;
    const struct gemm *g = &k->g;
    float ms;
    *us = -1;
    for (int i = 0; i <= REPEATS; i++) {
        if (i == 1)
            CUDA_TRY(cudaEventRecord(c->lt->from, c->stream));
        if (!algo) {
            TRY(cuda_bias_sums(c, cuda_lt_db_room(c, g->m), g->a, g->k, g->m, false));
        } else if (cuda_lt_multiply(k, algo, measured_out(k)) != CUBLAS_STATUS_SUCCESS) {
            (void)cudaGetLastError(); /* it is no one's any more */
            return ERR_OK;
        }
    }
    CUDA_TRY(cudaEventRecord(c->lt->to, c->stream));
    CUDA_TRY(cudaEventSynchronize(c->lt->to));
    CUDA_TRY(cudaEventElapsedTime(&ms, c->lt->from, c->lt->to));
    *us = (double)ms * 1e3 / REPEATS;
    return ERR_OK;
}

/* The fastest proposal for `way`, if it beats *best; `more` microseconds are added to each. */
static enum err measure_way(struct lt_call *k, enum lt_way way, double more, struct lt_known *out,
                            double *best)
{
    cublasLtMatmulAlgo_t list[LT_CANDIDATES];
    double us;
    int n;
    TRY(cuda_lt_propose(k, way, list, &n));
    for (int i = 0; i < n; i++) {
        TRY(measure(k, &list[i], &us));
        if (us < 0 || us + more >= *best)
            continue;
        *best = us + more;
        out->way = way;
        out->algo = list[i];
    }
    return ERR_OK;
}

/* *best stays infinite where the library ran nothing. */
static enum err measure_all(struct lt_call *k, struct lt_known *out, double *best)
{
    double db = 0;
    bool two_ways = k->g.db && cuda_lt_db_fits(k->c, k->g.m);
    *best = INFINITY;
    /* Peers are waited for here, where dev.sync watches over them, and not in a measurement. */
    TRY(k->c->dev.ops->sync(&k->c->dev));
    if (two_ways)
        TRY(measure(k, NULL, &db));
    TRY(measure_way(k, WAY_LIBRARY, db, out, best));
    if (two_ways)
        TRY(measure_way(k, WAY_LIBRARY_DB, 0, out, best));
    return ERR_OK;
}

/* ---- choosing ---- */

static void make_key(struct lt_call *k)
{
    const struct gemm *g = &k->g;
    int64_t flags = 0, align = 0;
    const bool bit[] = {k->c->bf16,      g->c_at,         g->trans_a,
                        g->trans_b,      g->accumulate,   g->bias != NULL,
                        g->db != NULL,   g->act == GEMM_GELU, g->act == GEMM_DGELU};
    const uint32_t of[] = {cuda_lt_align(g->a, g->lda, cuda_lt_element(k)),
                           cuda_lt_align(g->b, g->ldb, cuda_lt_element(k)),
                           cuda_lt_align(g->c, g->ldc, cuda_lt_element_c(k)),
                           g->bias ? cuda_lt_align(g->bias, 0, 1) : LT_ALIGN_MAX,
                           g->act != GEMM_NONE ? cuda_lt_align(g->pre, 0, 1) : LT_ALIGN_MAX};
    for (size_t i = 0; i < sizeof bit / sizeof *bit; i++)
        flags |= (int64_t)bit[i] << i;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        align *= 10;
        for (uint32_t power = of[i]; power > 1; power /= 2)
            align++;
    }
    k->key = (struct cuda_algo_key){g->m, g->n, g->k, g->lda, g->ldb, g->ldc, flags, align};
}

static struct lt_known *find(struct cuda_lt *lt, const struct cuda_algo_key *key)
{
    for (int64_t i = 0; i < num_min(lt->count, LT_KNOWN); i++)
        if (memcmp(&lt->known[i].key, key, sizeof *key) == 0)
            return &lt->known[i];
    return NULL;
}

static void say(const struct lt_call *k, const struct lt_known *w, const char *whence, double us)
{
    static const char *const name[] = {"apart", "library", "library with bias gradient"};
    const struct gemm *g = &k->g;
    double terms = (double)g->m * (double)g->n * (double)g->k;
    enum log_level level = w->way != WAY_APART ? LOG_DEBUG : terms < LARGE ? LOG_INFO : LOG_WARN;
    char time[32] = "";
    if (us > 0 && us < 1e12)
        snprintf(time, sizeof time, ", %.1f us", us);
    log_line(level, "cuda: GEMM %lld x %lld x %lld, flags %lld, align %lld: %s, %s%s",
             (long long)g->m,
             (long long)g->n, (long long)g->k, (long long)k->key.flags, (long long)k->key.align,
             name[w->way], whence, time);
}

/* The library's first proposal; apart when it has none. */
static enum err take_first(struct lt_call *k, struct lt_known *out)
{
    cublasLtMatmulAlgo_t list[LT_CANDIDATES];
    int n;
    TRY(cuda_lt_propose(k, WAY_LIBRARY, list, &n));
    if (n > 0) {
        out->way = WAY_LIBRARY;
        out->algo = list[0];
    }
    return ERR_OK;
}

/* A GEMM that accumulates and cannot be measured takes what was chosen without accumulation. */
static enum err take_sibling(struct lt_call *k, struct lt_known *out)
{
    struct cuda_algo_choice choice = {.way = WAY_LIBRARY};
    struct lt_call plain = *k;
    bool found = false;
    plain.g.accumulate = false;
    make_key(&plain);
    const struct lt_known *w = find(k->c->lt, &plain.key);
    if (w && w->way != WAY_APART) {
        choice.way = w->way;
        TRY(cuda_lt_settings(&w->algo, choice.settings));
        TRY(recognise(k, &choice, out, &found));
    }
    return found ? ERR_OK : take_first(k, out);
}

/* Measure, offer, and take what holds from then on. */
static enum err take_fastest(struct lt_call *k, struct lt_known *out, double *us)
{
    struct cuda_algo_choice mine, held;
    bool found;
    TRY(measure_all(k, out, us));
    if (out->way == WAY_APART)
        return ERR_OK;
    mine = (struct cuda_algo_choice){.way = out->way, .us = *us};
    TRY(cuda_lt_settings(&out->algo, mine.settings));
    cuda_algos_offer(k->c->lt->algos, &k->key, &mine, &held);
    TRY(recognise(k, &held, out, &found));
    cuda_algos_use(k->c->lt->algos, &k->key, found ? &held : &mine);
    return ERR_OK;
}

static enum err choose(struct lt_call *k, struct lt_known *out)
{
    struct cuda_lt *lt = k->c->lt;
    enum cudaStreamCaptureStatus state;
    const struct cuda_algo_choice *held = lt->algos ? cuda_algos_find(lt->algos, &k->key) : NULL;
    bool found = false;
    double us = 0;
    *out = (struct lt_known){.key = k->key, .way = WAY_APART};
    if (held)
        TRY(recognise(k, held, out, &found));
    if (found) {
        cuda_algos_use(lt->algos, &k->key, held);
        say(k, out, "as remembered", held->us);
        return ERR_OK;
    }
    CUDA_TRY(cudaStreamIsCapturing(k->c->stream, &state));
    if (!lt->algos || state != cudaStreamCaptureStatusNone) {
        TRY(take_first(k, out));
        say(k, out, "the first proposed", 0);
    } else if (!measured_out(k)) {
        TRY(take_sibling(k, out));
        say(k, out, "as without accumulation", 0);
    } else {
        TRY(take_fastest(k, out, &us));
        say(k, out, "measured", us);
    }
    return ERR_OK;
}

/* ---- GEMMs ---- */

static enum err bias_grad(struct lt_call *k)
{
    const struct gemm *g = &k->g;
    return g->db ? cuda_bias_sums(k->c, g->db, g->a, g->k, g->m, !g->accumulate) : ERR_OK;
}

static enum err by_library(struct lt_call *k, const struct lt_known *w)
{
    TRY(cuda_lt_describe(k, w->way));
    LT_TRY(cuda_lt_multiply(k, &w->algo, k->g.c));
    if (w->way != WAY_LIBRARY_DB)
        return bias_grad(k);
    void *db = cuda_lt_db_at(k);
    if (k->g.accumulate)
        return cuda_add(&k->c->dev, &(struct flat){k->g.db, db, k->g.m});
    return cuda_copy(&k->c->dev, &(struct flat){k->g.db, db, k->g.m * (int64_t)sizeof(float)});
}

/* What of `g` is a GEMM and nothing else, with its sums in f32 at c. */
static struct gemm bare(const struct gemm *g, void *c, int64_t ldc)
{
    struct gemm b = *g;
    b.c = c;
    b.ldc = ldc;
    b.c_at = true;
    b.bias = NULL;
    b.pre = b.db = NULL;
    b.act = GEMM_NONE;
    return b;
}

/* C is bf16: strips of rows through f32. */
static enum err in_strips(struct lt_call *k)
{
    const struct gemm *g = &k->g;
    int64_t rows = num_min(cuda_lt_room(k->c, 0) / g->n, g->m);
    if (rows == 0)
        FAIL(ERR_INTERNAL, "cuda: a row of %lld columns does not fit in a workspace of %lld bytes",
             (long long)g->n, (long long)k->c->work_bytes);
    for (int64_t i = 0; i < g->m; i += rows) {
        struct gemm b = bare(g, cuda_lt_room_at(k->c), g->n);
        struct cuda_epilogue e = {g, b.c, g->n, i, num_min(rows, g->m - i)};
        b.m = e.rows;
        b.a = (const char *)g->a + i * (g->trans_a ? 1 : g->lda) * cuda_lt_element(k);
        TRY(cuda_gemm(&k->c->dev, &b));
        TRY(cuda_epilogue(k->c, &e));
    }
    return ERR_OK;
}

static enum err apart(struct lt_call *k)
{
    const struct gemm *g = &k->g;
    bool plain = !g->bias && g->act == GEMM_NONE;
    if (cuda_lt_element_c(k) == 2) {
        TRY(in_strips(k));
    } else if (plain && !g->db) {
        TRY(cuda_gemm_own(k->c, g));
    } else {
        struct gemm b = bare(g, g->c, g->ldc);
        TRY(cuda_gemm(&k->c->dev, &b));
        if (!plain)
            TRY(cuda_epilogue(k->c, &(struct cuda_epilogue){g, g->c, g->ldc, 0, g->m}));
    }
    return bias_grad(k);
}

enum err cuda_gemm(struct dev *d, const struct gemm *g)
{
    struct lt_call k = {.c = cuda_of(d), .g = *g};
    ENSURE(!g->accumulate || g->c_at);
    k.g.lda = g->lda ? g->lda : g->trans_a ? g->m : g->k;
    k.g.ldb = g->ldb ? g->ldb : g->trans_b ? g->k : g->n;
    k.g.ldc = g->ldc ? g->ldc : g->n;
    ENSURE(!g->db || (g->trans_a && k.g.lda == g->m));
    if (g->m == 0 || g->n == 0)
        return bias_grad(&k);
    if (g->k == 0) { /* zeros */
        TRY(bias_grad(&k));
        return cuda_epilogue(k.c, &(struct cuda_epilogue){&k.g, g->accumulate ? g->c : NULL,
                                                          k.g.ldc, 0, g->m});
    }
    TRY(cuda_lt_open(k.c));
    make_key(&k);
    struct lt_known *w = find(k.c->lt, &k.key);
    if (!w) {
        struct lt_known made;
        TRY(choose(&k, &made));
        w = &k.c->lt->known[k.c->lt->count++ % LT_KNOWN];
        *w = made;
    }
    return w->way == WAY_APART ? apart(&k) : by_library(&k, w);
}
