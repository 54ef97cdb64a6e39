/* SPDX-License-Identifier: Apache-2.0
 *
 * GEMMs by oneDNN's matmul primitive, for processors with AMX: what our own are measured against.
 * The walk is that of simd_gemm.h: C in pieces for the pool; in a piece, blocks of k; B of a block
 * brought into the library's layout once (a reorder) and used for all rows; f32 sums in C itself
 * or, where C is bf16, in scratch; the epilogue on each block of rows while the cache holds it, by
 * us, since oneDNN's fused ones cannot give the value before the activation as well. A plan holds
 * the primitives of one shape, made at its first call; the least recently used makes room.
 * Primitives run with one OpenMP thread, for the pool is ours, and so is their working memory, a
 * block for each thread. The C API changed in oneDNN 3; the first section is all that knows.
 */
#include "device/cpu/cpu_dnnl.h"

#include "base/mem.h"
#include <dlfcn.h>
#include <dnnl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define TRY_DNNL(call)                                                                             \
    do {                                                                                           \
        dnnl_status_t status_ = (call);                                                            \
        if (status_ != dnnl_success)                                                               \
            FAIL(ERR_INTERNAL, "cpu: oneDNN refused %s with status %d; run with f32 or report "    \
                               "this processor", #call, (int)status_);                             \
    } while (0)

/* ---- oneDNN 2 and 3 ---- */

/* How a matrix lies in memory. */
struct layout { dnnl_memory_desc_t md; }; /* in oneDNN 3 an owned handle */

#if DNNL_VERSION_MAJOR >= 3
static dnnl_status_t layout_strided(struct layout *l, const dnnl_dims_t dims, dnnl_data_type_t dt,
                                    const dnnl_dims_t strides)
{
    return dnnl_memory_desc_create_with_strides(&l->md, 2, dims, dt, strides);
}

static dnnl_status_t layout_any(struct layout *l, const dnnl_dims_t dims, dnnl_data_type_t dt)
{
    return dnnl_memory_desc_create_with_tag(&l->md, 2, dims, dt, dnnl_format_tag_any);
}

static dnnl_status_t layout_query(struct layout *l, const_dnnl_primitive_desc_t pd,
                                  dnnl_query_t what)
{
    return dnnl_memory_desc_clone(&l->md, dnnl_primitive_desc_query_md(pd, what, 0));
}

static int64_t layout_bytes(const struct layout *l)
{
    return (int64_t)dnnl_memory_desc_get_size(l->md);
}

static dnnl_status_t layout_memory(dnnl_memory_t *m, const struct layout *l, dnnl_engine_t engine,
                                   void *p)
{
    return dnnl_memory_create(m, l->md, engine, p);
}

static void layout_drop(struct layout *l)
{
    if (l->md)
        dnnl_memory_desc_destroy(l->md);
    l->md = NULL;
}

static dnnl_status_t matmul_desc(dnnl_primitive_desc_t *pd, dnnl_engine_t engine,
                                 const struct layout *abc[3], const_dnnl_primitive_attr_t attr)
{
    return dnnl_matmul_primitive_desc_create(pd, engine, abc[0]->md, abc[1]->md, NULL, abc[2]->md,
                                             attr);
}

static dnnl_status_t reorder_desc(dnnl_primitive_desc_t *pd, dnnl_engine_t engine,
                                  const struct layout *from_to[2],
                                  const_dnnl_primitive_attr_t attr)
{
    return dnnl_reorder_primitive_desc_create(pd, from_to[0]->md, engine, from_to[1]->md, engine,
                                              attr);
}

static dnnl_status_t append_sum(dnnl_post_ops_t ops)
{
    return dnnl_post_ops_append_sum(ops, 1.0f, 0, dnnl_data_type_undef);
}
#else
static dnnl_status_t layout_strided(struct layout *l, const dnnl_dims_t dims, dnnl_data_type_t dt,
                                    const dnnl_dims_t strides)
{
    return dnnl_memory_desc_init_by_strides(&l->md, 2, dims, dt, strides);
}

static dnnl_status_t layout_any(struct layout *l, const dnnl_dims_t dims, dnnl_data_type_t dt)
{
    return dnnl_memory_desc_init_by_tag(&l->md, 2, dims, dt, dnnl_format_tag_any);
}

static dnnl_status_t layout_query(struct layout *l, const_dnnl_primitive_desc_t pd,
                                  dnnl_query_t what)
{
    const dnnl_memory_desc_t *md = dnnl_primitive_desc_query_md(pd, what, 0);
    if (!md)
        return dnnl_invalid_arguments;
    l->md = *md;
    return dnnl_success;
}

static int64_t layout_bytes(const struct layout *l)
{
    return (int64_t)dnnl_memory_desc_get_size(&l->md);
}

static dnnl_status_t layout_memory(dnnl_memory_t *m, const struct layout *l, dnnl_engine_t engine,
                                   void *p)
{
    return dnnl_memory_create(m, &l->md, engine, p);
}

static void layout_drop(struct layout *l)
{
    (void)l;
}

static dnnl_status_t matmul_desc(dnnl_primitive_desc_t *pd, dnnl_engine_t engine,
                                 const struct layout *abc[3], const_dnnl_primitive_attr_t attr)
{
    dnnl_matmul_desc_t desc;
    dnnl_status_t status =
        dnnl_matmul_desc_init(&desc, &abc[0]->md, &abc[1]->md, NULL, &abc[2]->md);
    if (status != dnnl_success)
        return status;
    return dnnl_primitive_desc_create(pd, &desc, attr, engine, NULL);
}

static dnnl_status_t reorder_desc(dnnl_primitive_desc_t *pd, dnnl_engine_t engine,
                                  const struct layout *from_to[2],
                                  const_dnnl_primitive_attr_t attr)
{
    return dnnl_reorder_primitive_desc_create(pd, &from_to[0]->md, engine, &from_to[1]->md, engine,
                                              attr);
}

static dnnl_status_t append_sum(dnnl_post_ops_t ops)
{
    return dnnl_post_ops_append_sum(ops, 1.0f);
}
#endif

/* ---- plans ---- */

enum {
    ROWS = 192,          /* of C, in one primitive */
    COLS = 512,          /* at most; less where there are many threads */
    COLS_MIN = 128,
    DEPTH = 1024,        /* of k */
    GATHER = 3 * ROWS,   /* rows of C gathered in scratch when C is bf16 */
    PACKED = 1 << 19,    /* floats of scratch for a block of B in the library's layout: 2 MiB */
    PLANS = 64,
};
_Static_assert(PACKED + GATHER * COLS <= CPU_SCRATCH_FLOATS, "the blocks fit a thread's scratch");

/* What a shape is to the library. */
struct shape {
    int64_t m, n, k, lda, ldb, ldc; /* ldc of where sums are gathered */
    int64_t cols;
    bool trans_a, trans_b, accumulate, bf16;
};

/* One matmul or reorder: A to C, or B to B in the library's layout. */
struct step {
    dnnl_primitive_t run;
    struct layout from, to, work;
};

struct plan {
    struct shape shape;
    int64_t used;             /* tick of the last use; 0: empty */
    int64_t work_bytes;       /* largest working memory of a step */
    int64_t m[2], n[2], k[2]; /* whole and last extent; last 0: all are whole */
    struct step pack[2][2];   /* [n][k] */
    struct step matmul[2][2][2][2]; /* [m][n][k][added] */
};

struct cpu_dnnl {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    void (*set_threads)(int); /* of the calling thread, in oneDNN's OpenMP; NULL: has no threads */
    int (*get_threads)(void);
    int threads; /* of the pool */
    int64_t tick;
    char *work; /* owned; threads x work_bytes */
    int64_t work_bytes;
    struct plan plan[PLANS];
};

static void step_drop(struct step *s)
{
    if (s->run)
        dnnl_primitive_destroy(s->run);
    layout_drop(&s->from);
    layout_drop(&s->to);
    layout_drop(&s->work);
}

static void plan_drop(struct plan *p)
{
    for (int i = 0; i < 4; i++)
        step_drop(&p->pack[i / 2][i % 2]);
    for (int i = 0; i < 16; i++)
        step_drop(&p->matmul[i / 8][i / 4 % 2][i / 2 % 2][i % 2]);
    memset(p, 0, sizeof *p);
}

/* size[0] x size[1], as stored row by row with stride ld, or the transpose of what is stored. */
static dnnl_status_t stored(struct layout *l, const int64_t size[2], int64_t ld, bool trans,
                            dnnl_data_type_t dt)
{
    const dnnl_dims_t dims = {size[0], size[1]}, strides = {trans ? 1 : ld, trans ? ld : 1};
    return layout_strided(l, dims, dt, strides);
}

/* Working memory is the caller's; a GEMM may be added to what is there. */
static enum err attributes(dnnl_primitive_attr_t attr, bool added)
{
    dnnl_post_ops_t ops = NULL;
    TRY_DNNL(dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user));
    if (!added)
        return ERR_OK;
    TRY_DNNL(dnnl_post_ops_create(&ops));
    dnnl_status_t status = append_sum(ops);
    if (status == dnnl_success)
        status = dnnl_primitive_attr_set_post_ops(attr, ops);
    dnnl_post_ops_destroy(ops);
    TRY_DNNL(status);
    return ERR_OK;
}

/* The primitive of `pd`, whose working memory is noted; pd is given back. */
static enum err step_make(struct plan *p, struct step *s, dnnl_primitive_desc_t pd)
{
    dnnl_status_t status = layout_query(&s->work, pd, dnnl_query_scratchpad_md);
    if (status == dnnl_success)
        status = dnnl_primitive_create(&s->run, pd);
    dnnl_primitive_desc_destroy(pd);
    TRY_DNNL(status);
    p->work_bytes = num_max(p->work_bytes, layout_bytes(&s->work));
    return ERR_OK;
}

/* The GEMM [i[0]][i[1]][i[2]][i[3]] of a plan. The first one of a block of B chooses the layout
 * in which that block is packed; the others are made for it. */
static enum err matmul_make(struct cpu_dnnl *x, struct plan *p, const int i[4])
{
    const struct shape *h = &p->shape;
    int64_t m = p->m[i[0]], n = p->n[i[1]], k = p->k[i[2]];
    dnnl_data_type_t dt = h->bf16 ? dnnl_bf16 : dnnl_f32;
    struct step *s = &p->matmul[i[0]][i[1]][i[2]][i[3]], *pack = &p->pack[i[1]][i[2]];
    struct layout any;
    dnnl_primitive_attr_t attr;
    dnnl_primitive_desc_t pd;
    bool first = !pack->run;
    memset(&any, 0, sizeof any);
    TRY_DNNL(stored(&s->from, (int64_t[2]){m, k}, h->lda, h->trans_a, dt));
    TRY_DNNL(stored(&s->to, (int64_t[2]){m, n}, h->ldc, false, dnnl_f32));
    TRY_DNNL(layout_any(&any, (dnnl_dims_t){k, n}, dt));
    TRY_DNNL(dnnl_primitive_attr_create(&attr));
    enum err err = attributes(attr, i[3] != 0);
    const struct layout *abc[3] = {&s->from, first ? &any : &pack->to, &s->to};
    dnnl_status_t status =
        err == ERR_OK ? matmul_desc(&pd, x->engine, abc, attr) : dnnl_success;
    dnnl_primitive_attr_destroy(attr);
    layout_drop(&any);
    TRY(err);
    TRY_DNNL(status);
    if (first)
        status = layout_query(&pack->to, pd, dnnl_query_weights_md);
    TRY(step_make(p, s, pd));
    TRY_DNNL(status);
    return ERR_OK;
}

static enum err pack_make(struct cpu_dnnl *x, struct plan *p, int n, int k)
{
    const struct shape *h = &p->shape;
    struct step *s = &p->pack[n][k];
    dnnl_primitive_attr_t attr;
    dnnl_primitive_desc_t pd;
    TRY_DNNL(stored(&s->from, (int64_t[2]){p->k[k], p->n[n]}, h->ldb, h->trans_b,
                    h->bf16 ? dnnl_bf16 : dnnl_f32));
    if (layout_bytes(&s->to) > PACKED * (int64_t)sizeof(float))
        FAIL(ERR_INTERNAL, "cpu: oneDNN packs %lld x %lld of B into %lld bytes and %lld are kept "
                           "for it", (long long)p->k[k], (long long)p->n[n],
             (long long)layout_bytes(&s->to), (long long)PACKED * 4);
    TRY_DNNL(dnnl_primitive_attr_create(&attr));
    enum err err = attributes(attr, false);
    const struct layout *from_to[2] = {&s->from, &s->to};
    dnnl_status_t status =
        err == ERR_OK ? reorder_desc(&pd, x->engine, from_to, attr) : dnnl_success;
    dnnl_primitive_attr_destroy(attr);
    TRY(err);
    TRY_DNNL(status);
    TRY(step_make(p, s, pd));
    return ERR_OK;
}

static void extents(int64_t to[2], int64_t n, int64_t most)
{
    to[0] = num_min(n, most);
    to[1] = n > most ? n % most : 0;
}

/* All steps that the walk over this shape will meet. */
static enum err plan_make(struct cpu_dnnl *x, struct plan *p)
{
    const struct shape *h = &p->shape;
    extents(p->m, h->m, ROWS);
    extents(p->n, h->n, h->cols);
    extents(p->k, h->k, DEPTH);
    for (int n = 0; n < 2 && p->n[n]; n++) {
        for (int k = 0; k < 2 && p->k[k]; k++) {
            for (int i = 0; i < 4; i++) {
                const int at[4] = {i / 2, n, k, i % 2};
                bool met = at[3] ? h->accumulate || h->k > DEPTH : !h->accumulate;
                if (!met || p->m[at[0]] == 0)
                    continue;
                TRY(matmul_make(x, p, at));
                if (!p->pack[n][k].run)
                    TRY(pack_make(x, p, n, k));
            }
        }
    }
    return ERR_OK;
}

static bool same_shape(const struct shape *a, const struct shape *b)
{
    return a->m == b->m && a->n == b->n && a->k == b->k && a->lda == b->lda && a->ldb == b->ldb &&
           a->ldc == b->ldc && a->cols == b->cols && a->trans_a == b->trans_a &&
           a->trans_b == b->trans_b && a->accumulate == b->accumulate && a->bf16 == b->bf16;
}

/* The plan of a shape: kept, or made in the place of the one not used for longest. */
static enum err plan_get(struct cpu_dnnl *x, const struct shape *h, struct plan **out)
{
    struct plan *oldest = &x->plan[0];
    x->tick++;
    for (int i = 0; i < PLANS; i++) {
        struct plan *p = &x->plan[i];
        if (p->used && same_shape(&p->shape, h)) {
            p->used = x->tick;
            *out = p;
            return ERR_OK;
        }
        if (p->used < oldest->used)
            oldest = p;
    }
    plan_drop(oldest);
    oldest->shape = *h;
    enum err err = plan_make(x, oldest);
    if (err == ERR_OK && oldest->work_bytes > x->work_bytes) {
        int64_t bytes = arena_round(oldest->work_bytes);
        char *work;
        err = mem_new(x->threads, (size_t)bytes, "oneDNN's working memory", &work);
        if (err == ERR_OK) {
            mem_free(x->work);
            x->work = work;
            x->work_bytes = bytes;
        }
    }
    if (err != ERR_OK) {
        plan_drop(oldest);
        return err;
    }
    oldest->used = x->tick;
    *out = oldest;
    return ERR_OK;
}

/* ---- the walk ---- */

struct params {
    struct cpu *p;
    const struct cpu_gemm *w;
    const struct plan *plan;
    atomic_int *status; /* the first dnnl_status_t that was not success */
};

/* One primitive on four places: its input, its second input (NULL: a reorder), its output, its
 * working memory. */
struct places { const void *from; void *packed, *to, *work; };

static dnnl_status_t step_run(const struct cpu_dnnl *x, const struct step *s,
                              const struct layout *packed, const struct places *at)
{
    dnnl_memory_t mem[4] = {NULL};
    dnnl_exec_arg_t args[4];
    int n = 0;
    const struct { int arg; const struct layout *l; void *p; } want[4] = {
        {packed ? DNNL_ARG_SRC : DNNL_ARG_FROM, &s->from, (void *)(uintptr_t)at->from},
        {packed ? DNNL_ARG_DST : DNNL_ARG_TO, &s->to, at->to},
        {DNNL_ARG_SCRATCHPAD, &s->work, at->work},
        {DNNL_ARG_WEIGHTS, packed, at->packed},
    };
    dnnl_status_t status = dnnl_success;
    for (int i = 0; i < (packed ? 4 : 3) && status == dnnl_success; i++) {
        status = layout_memory(&mem[n], want[i].l, x->engine, want[i].p);
        args[n] = (dnnl_exec_arg_t){want[i].arg, mem[n]};
        n += status == dnnl_success;
    }
    if (status == dnnl_success)
        status = dnnl_primitive_execute(s->run, x->stream, n, args);
    for (int i = 0; i < n; i++)
        dnnl_memory_destroy(mem[i]);
    return status;
}

/* Rows [i[0], i[1]) and columns [j[0], j[1]) of C; these columns are one block of B. */
static dnnl_status_t piece(const struct params *params, const int64_t i[2], const int64_t j[2],
                           float *scratch)
{
    const struct cpu_gemm *w = params->w;
    const struct gemm *g = w->g;
    const struct plan *plan = params->plan;
    const struct cpu_dnnl *x = params->p->dnnl;
    struct places at = {.packed = scratch,
                        .work = x->work + cpu_pool_index(params->p->pool, scratch) * x->work_bytes};
    int64_t size = w->bf16 ? 2 : 4, n = j[1] - j[0] != plan->n[0];
    bool finish = w->bf16_c || g->bias || g->act != GEMM_NONE;
    for (int64_t k = 0; k < g->k; k += DEPTH) {
        int64_t ki = num_min(DEPTH, g->k - k) != plan->k[0];
        bool add = k > 0 || plan->shape.accumulate;
        const struct step *pack = &plan->pack[n][ki];
        struct places b = {.to = scratch, .work = at.work};
        b.from = (const char *)g->b + (g->trans_b ? j[0] * w->ldb + k : k * w->ldb + j[0]) * size;
        dnnl_status_t status = step_run(x, pack, NULL, &b);
        for (int64_t r = i[0]; r < i[1] && status == dnnl_success; r += ROWS) {
            int64_t rows[2] = {r, num_min(r + ROWS, i[1])}, m = rows[1] - r != plan->m[0];
            struct cpu_target to = {(float *)g->c + r * w->ldc + j[0], w->ldc, add};
            if (w->bf16_c)
                to = (struct cpu_target){scratch + PACKED + (r - i[0]) * COLS, COLS, add};
            at.from = (const char *)g->a + (g->trans_a ? k * w->lda + r : r * w->lda + k) * size;
            at.to = to.c;
            status = step_run(x, &plan->matmul[m][n][ki][add], &pack->to, &at);
            if (finish && k + DEPTH >= g->k && status == dnnl_success)
                params->p->simd->gemm_finish(w, to, rows, j);
        }
        if (status != dnnl_success)
            return status;
    }
    return dnnl_success;
}

static void pieces(const void *arg, int64_t first, int64_t last, float *scratch)
{
    const struct params *params = arg;
    const struct cpu_gemm *w = params->w;
    if (params->p->dnnl->set_threads)
        params->p->dnnl->set_threads(1);
    for (int64_t item = first; item < last; item++) {
        int64_t i[2] = {item / w->across * w->rows, 0}, j[2] = {item % w->across * w->cols, 0};
        int none = dnnl_success;
        i[1] = num_min(i[0] + w->rows, w->g->m);
        j[1] = num_min(j[0] + w->cols, w->g->n);
        dnnl_status_t status = piece(params, i, j, scratch);
        if (status != dnnl_success)
            atomic_compare_exchange_strong(params->status, &none, (int)status);
    }
}

/* Pieces: a block of columns each, and as many blocks of rows as leave two pieces a thread. */
static void cut(struct cpu_gemm *w, int64_t threads)
{
    const struct gemm *g = w->g;
    int64_t want = threads == 1 ? 1 : 2 * threads, blocks = num_ceil_div(g->m, ROWS);
    w->cols = COLS;
    while (blocks * num_ceil_div(g->n, w->cols) < want && w->cols > COLS_MIN)
        w->cols /= 2;
    w->across = num_ceil_div(g->n, w->cols);
    int64_t down = num_max(1, num_min(blocks, num_ceil_div(want, w->across)));
    w->rows = num_ceil_div(blocks, down) * ROWS;
    if (w->bf16_c)
        w->rows = num_min(w->rows, GATHER);
}

enum err cpu_dnnl_gemm(struct cpu *p, struct cpu_gemm *w)
{
    struct cpu_dnnl *x = p->dnnl;
    const struct gemm *g = w->g;
    struct plan *plan = NULL;
    atomic_int status = dnnl_success;
    cut(w, x->threads);
    struct shape shape = {
        .m = g->m, .n = g->n, .k = g->k, .lda = w->lda, .ldb = w->ldb,
        .ldc = w->bf16_c ? COLS : w->ldc, .cols = w->cols, .trans_a = g->trans_a,
        .trans_b = g->trans_b, .accumulate = g->accumulate && !w->bf16_c, .bf16 = w->bf16,
    };
    int threads = x->get_threads ? x->get_threads() : 1;
    if (x->set_threads)
        x->set_threads(1);
    enum err err = plan_get(x, &shape, &plan);
    if (err == ERR_OK) {
        struct params params = {.p = p, .w = w, .plan = plan, .status = &status};
        cpu_pool_run(p->pool, pieces, &params, num_ceil_div(g->m, w->rows) * w->across, 1);
    }
    if (x->set_threads)
        x->set_threads(threads);
    TRY(err);
    TRY_DNNL((dnnl_status_t)status);
    return ERR_OK;
}

/* ---- opening ---- */

bool cpu_dnnl_has_bf16(void)
{
    int isa = (int)dnnl_get_effective_cpu_isa(), amx = (int)dnnl_cpu_isa_avx512_core_amx;
    return (isa & amx) == amx;
}

void cpu_dnnl_name(char *buf, size_t n)
{
    const dnnl_version_t *v = dnnl_version();
    snprintf(buf, n, "oneDNN %d.%d.%d", v->major, v->minor, v->patch);
}

/* The OpenMP library that oneDNN was linked with, whichever it is, is asked for by name: this
 * program itself is not built with OpenMP. */
static enum err find_threads(struct cpu_dnnl *x)
{
    if (dnnl_version()->cpu_runtime == DNNL_RUNTIME_SEQ)
        return ERR_OK;
    void *set = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
    void *get = dlsym(RTLD_DEFAULT, "omp_get_max_threads");
    if (dnnl_version()->cpu_runtime != DNNL_RUNTIME_OMP || !set || !get)
        FAIL(ERR_INTERNAL, "cpu: this oneDNN has a thread runtime (%u) whose threads cannot be "
                           "held to one; use a build with OpenMP or without threads",
             dnnl_version()->cpu_runtime);
    memcpy(&x->set_threads, &set, sizeof set);
    memcpy(&x->get_threads, &get, sizeof get);
    return ERR_OK;
}

enum err cpu_dnnl_open(int threads, struct cpu_dnnl **out)
{
    struct cpu_dnnl *x;
    enum err err;
    TRY(mem_new(1, sizeof *x, "oneDNN's plans", &x));
    x->threads = threads;
    x->work_bytes = ARENA_ALIGN;
    TRY_OR(out_close, mem_new(threads, ARENA_ALIGN, "oneDNN's working memory", &x->work));
    TRY_OR(out_close, find_threads(x));
    if (dnnl_engine_create(&x->engine, dnnl_cpu, 0) != dnnl_success ||
        dnnl_stream_create(&x->stream, x->engine, dnnl_stream_default_flags) != dnnl_success) {
        err = err_set(ERR_INTERNAL, __FILE__, __LINE__, "cpu: oneDNN gives no engine for this "
                                                        "processor; build without oneDNN");
        goto out_close;
    }
    *out = x;
    return ERR_OK;
out_close:
    cpu_dnnl_close(x);
    return err;
}

void cpu_dnnl_close(struct cpu_dnnl *x)
{
    if (!x)
        return;
    for (int i = 0; i < PLANS; i++)
        plan_drop(&x->plan[i]);
    if (x->stream)
        dnnl_stream_destroy(x->stream);
    if (x->engine)
        dnnl_engine_destroy(x->engine);
    mem_free(x->work);
    mem_free(x);
}

int64_t cpu_dnnl_bytes(const struct cpu_dnnl *x)
{
    return x->threads * x->work_bytes;
}
