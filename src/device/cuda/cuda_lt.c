/* SPDX-License-Identifier: Apache-2.0
 *
 * cuBLASLt described. The library's matrices are column-major: a row-major C (m, n) is a
 * column-major C^T (n, m), so it is asked for C^T = op(B)^T op(A)^T, its A being our B and the
 * other way round; a bias lies along its rows, and sums over k of our op(A) are those of its B
 * (BGRADB). bf16 or f32 operands, sums in f32 (no tf32). Its GELU is the tanh form.
 *
 * Only algorithms are asked for that add the parts of a split sum in a fixed order and in f32: none
 * that reduces in place or in the type of C. Descriptors are filled in anew for each GEMM, on
 * the stack: that is a few dozen stores, and nothing can be stale.
 *
 * Workspace: the library has the first part (at most 64 MiB), f32 strips and measured sums lie
 * behind it, sums over k in the last bytes. cuda_bias_grad has the beginning, when the library is
 * done with it.
 */
#include "device/cuda/cuda_lt.h"

#include "base/mem.h"
#include <stdio.h>

enum {
    PIECE = 256, /* bytes, of the workspace's parts */
    LIBRARY_BYTES = 64 << 20
};

enum err cuda_lt_failed(int line, const char *what, cublasStatus_t s)
{
    enum err code = s == CUBLAS_STATUS_ALLOC_FAILED ? ERR_MEMORY : ERR_INTERNAL;
    return err_set(code, __FILE__, line, "cuda: %s: %s", what, cublasLtGetStatusString(s));
}

/* ---- opening ---- */

void cuda_lt_close(struct cuda *c)
{
    struct cuda_lt *lt = c->lt;
    if (!lt)
        return;
    cuda_event_drop(lt->from);
    cuda_event_drop(lt->to);
    if (lt->handle)
        (void)cublasLtDestroy(lt->handle);
    cuda_algos_close(lt->algos);
    mem_free(lt);
    c->lt = NULL;
}

static enum err open_parts(struct cuda *c)
{
    struct cudaDeviceProp p;
    LT_TRY(cublasLtCreate(&c->lt->handle));
    CUDA_TRY(cudaEventCreate(&c->lt->from));
    CUDA_TRY(cudaEventCreate(&c->lt->to));
    if (c->deterministic)
        return ERR_OK;
    CUDA_TRY(cudaGetDeviceProperties(&p, c->index));
    snprintf(c->lt->gpu, sizeof c->lt->gpu, "%s", p.name);
    return cuda_algos_open(c->cache, c->lt->gpu, (int64_t)cublasLtGetVersion(), &c->lt->algos);
}

enum err cuda_lt_fits(void)
{
    size_t version = cublasLtGetVersion();
    if (version / 10000 != CUBLAS_VER_MAJOR)
        FAIL(ERR_CONFIG, "train.device cuda: this program was built for cuBLASLt %d.%d.%d and "
                         "finds version %zu; install version %d, or build anew", CUBLAS_VER_MAJOR,
             CUBLAS_VER_MINOR, CUBLAS_VER_PATCH, version, CUBLAS_VER_MAJOR);
    return ERR_OK;
}

enum err cuda_lt_open(struct cuda *c)
{
    if (c->lt)
        return ERR_OK;
    TRY(mem_new(1, sizeof *c->lt, "cuBLASLt's choices", &c->lt));
    enum err err = open_parts(c);
    if (err != ERR_OK)
        cuda_lt_close(c);
    return err;
}

/* ---- the workspace's parts ---- */

int64_t cuda_lt_bytes(const struct cuda *c)
{
    return num_min(LIBRARY_BYTES, c->work_bytes / 4) / PIECE * PIECE;
}

/* Bytes at the end for m sums over k. */
static int64_t db_bytes(int64_t m)
{
    return num_ceil_div(m * 4, PIECE) * PIECE;
}

/* Does the workspace hold m sums over k behind what cuda_bias_grad needs for itself? */
bool cuda_lt_db_fits(const struct cuda *c, int64_t m)
{
    return m <= c->work_bytes / 16;
}

void *cuda_lt_db_room(const struct cuda *c, int64_t m)
{
    return (char *)c->work + c->work_bytes / PIECE * PIECE - db_bytes(m);
}

/* Where the library puts the sums over k, which it only writes. */
void *cuda_lt_db_at(const struct lt_call *k)
{
    bool there = !k->g.accumulate && cuda_lt_align(k->g.db, 0, 1) >= LT_ALIGN_MAX;
    return there ? k->g.db : cuda_lt_db_room(k->c, k->g.m);
}

/* f32 numbers that fit between the library's part and that of m sums. */
int64_t cuda_lt_room(const struct cuda *c, int64_t m)
{
    int64_t bytes = c->work_bytes / PIECE * PIECE - cuda_lt_bytes(c) - db_bytes(m);
    return num_max(bytes, 0) / 4;
}

float *cuda_lt_room_at(const struct cuda *c)
{
    return (float *)((char *)c->work + cuda_lt_bytes(c));
}

/* ---- what the library is told ---- */

static cudaDataType_t type_of(bool bf16)
{
    return bf16 ? CUDA_R_16BF : CUDA_R_32F;
}

uint32_t cuda_lt_align(const void *p, int64_t ld, int64_t size)
{
    uint64_t bits = (uint64_t)(uintptr_t)p | (uint64_t)(ld * size) | LT_ALIGN_MAX;
    return (uint32_t)(bits & (~bits + 1));
}

int64_t cuda_lt_element(const struct lt_call *k)
{
    return k->c->bf16 ? 2 : 4;
}

int64_t cuda_lt_element_c(const struct lt_call *k)
{
    return k->c->bf16 && !k->g.c_at ? 2 : 4;
}

/* Does the library work an epilogue as device.h says? Its kernels for operands that are not aligned
 * round a bf16 GEMM before the bias is added (seen with 13.1 on an H200), and the slope of GELU
 * in f32 is within 2e-5 only. */
static bool rounds_once(const struct lt_call *k)
{
    const struct gemm *g = &k->g;
    if (!g->bias && g->act == GEMM_NONE)
        return true;
    if (!k->c->bf16)
        return g->act == GEMM_NONE;
    return cuda_lt_align(g->a, g->lda, 2) == LT_ALIGN_MAX &&
           cuda_lt_align(g->b, g->ldb, 2) == LT_ALIGN_MAX &&
           cuda_lt_align(g->c, g->ldc, cuda_lt_element_c(k)) == LT_ALIGN_MAX;
}

/* Can the library have this epilogue at all? Its documentation wants rows of GELU's input to be
 * multiples of 8; bias together with GELU's gradient or with sums over k is none of its forms. */
static bool has_form(const struct lt_call *k, enum lt_way way)
{
    const struct gemm *g = &k->g;
    if (!rounds_once(k))
        return false;
    if (g->act != GEMM_NONE && (g->n % 8 != 0 || cuda_lt_align(g->pre, 0, 1) < LT_ALIGN_MAX))
        return false;
    if (g->act == GEMM_DGELU && g->bias)
        return false;
    return way != WAY_LIBRARY_DB || (g->db && !g->bias && g->act == GEMM_NONE);
}

static cublasLtEpilogue_t epilogue_of(const struct gemm *g, enum lt_way way)
{
    if (way == WAY_LIBRARY_DB)
        return CUBLASLT_EPILOGUE_BGRADB;
    if (g->act == GEMM_DGELU)
        return CUBLASLT_EPILOGUE_DGELU;
    if (g->act == GEMM_GELU)
        return g->bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
    return g->bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

static enum err describe_epilogue(struct lt_call *k, enum lt_way way)
{
    const struct gemm *g = &k->g;
    cublasLtEpilogue_t epilogue = epilogue_of(g, way);
    const void *vector = way == WAY_LIBRARY_DB ? cuda_lt_db_at(k) : g->bias;
    int32_t compute = (int32_t)type_of(k->c->bf16);
    int32_t type = way == WAY_LIBRARY_DB ? (int32_t)CUDA_R_32F : compute;
    LT_TRY(cublasLtMatmulDescSetAttribute(&k->op, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                                          sizeof epilogue));
    if (vector) {
        LT_TRY(cublasLtMatmulDescSetAttribute(&k->op, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &vector,
                                              sizeof vector));
        LT_TRY(cublasLtMatmulDescSetAttribute(&k->op, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type,
                                              sizeof type));
    }
    if (g->act == GEMM_NONE)
        return ERR_OK;
    LT_TRY(cublasLtMatmulDescSetAttribute(&k->op, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER,
                                          &g->pre, sizeof g->pre));
    LT_TRY(cublasLtMatmulDescSetAttribute(&k->op, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &g->n,
                                          sizeof g->n));
    LT_TRY(cublasLtMatmulDescSetAttribute(&k->op, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE,
                                          &compute, sizeof compute));
    return ERR_OK;
}

/* A stored matrix of `rows` rows, as the library sees it: `cols` is its number of rows. */
static enum err describe_matrix(cublasLtMatrixLayoutOpaque_t *l, bool bf16, int64_t rows,
                                int64_t cols, int64_t ld)
{
    LT_TRY(cublasLtMatrixLayoutInit(l, type_of(bf16), (uint64_t)cols, (uint64_t)rows, ld));
    return ERR_OK;
}

enum err cuda_lt_describe(struct lt_call *k, enum lt_way way)
{
    const struct gemm *g = &k->g;
    bool bf16 = k->c->bf16;
    cublasOperation_t op_a = g->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N; /* the library's A is B */
    cublasOperation_t op_b = g->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    LT_TRY(cublasLtMatmulDescInit(&k->op, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    LT_TRY(cublasLtMatmulDescSetAttribute(&k->op, CUBLASLT_MATMUL_DESC_TRANSA, &op_a,
                                          sizeof op_a));
    LT_TRY(cublasLtMatmulDescSetAttribute(&k->op, CUBLASLT_MATMUL_DESC_TRANSB, &op_b,
                                          sizeof op_b));
    TRY(describe_epilogue(k, way));
    TRY(describe_matrix(&k->a, bf16, g->trans_b ? g->n : g->k, g->trans_b ? g->k : g->n, g->ldb));
    TRY(describe_matrix(&k->b, bf16, g->trans_a ? g->k : g->m, g->trans_a ? g->m : g->k, g->lda));
    return describe_matrix(&k->out, bf16 && !g->c_at, g->m, g->n, g->ldc);
}

static enum err prefer(struct lt_call *k, cublasLtMatmulPreferenceOpaque_t *p)
{
    uint64_t bytes = (uint64_t)cuda_lt_bytes(k->c);
    uint32_t fixed = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    uint32_t align[4] = {cuda_lt_align(k->g.b, k->g.ldb, cuda_lt_element(k)),
                         cuda_lt_align(k->g.a, k->g.lda, cuda_lt_element(k)),
                         cuda_lt_align(k->g.c, k->g.ldc, cuda_lt_element_c(k))};
    align[3] = align[2];
    LT_TRY(cublasLtMatmulPreferenceInit(p));
    LT_TRY(cublasLtMatmulPreferenceSetAttribute(p, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                &bytes, sizeof bytes));
    LT_TRY(cublasLtMatmulPreferenceSetAttribute(p, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                &fixed, sizeof fixed));
    for (int i = 0; i < 4; i++)
        LT_TRY(cublasLtMatmulPreferenceSetAttribute(
            p, (cublasLtMatmulPreferenceAttributes_t)(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES +
                                                      i), &align[i], sizeof align[i]));
    return ERR_OK;
}

enum err cuda_lt_propose(struct lt_call *k, enum lt_way way,
                         cublasLtMatmulAlgo_t list[LT_CANDIDATES], int *count)
{
    cublasLtMatmulHeuristicResult_t found[LT_CANDIDATES];
    cublasLtMatmulPreferenceOpaque_t p;
    int n = 0;
    *count = 0;
    if (!has_form(k, way))
        return ERR_OK;
    TRY(cuda_lt_describe(k, way));
    TRY(prefer(k, &p));
    cublasStatus_t s = cublasLtMatmulAlgoGetHeuristic(k->c->lt->handle, &k->op, &k->a, &k->b,
                                                      &k->out, &k->out, &p, LT_CANDIDATES, found,
                                                      &n);
    if (s == CUBLAS_STATUS_NOT_SUPPORTED || s == CUBLAS_STATUS_INVALID_VALUE)
        return ERR_OK;
    LT_TRY(s);
    for (int i = 0; i < n; i++)
        if (found[i].state == CUBLAS_STATUS_SUCCESS)
            list[(*count)++] = found[i].algo;
    return ERR_OK;
}

cublasStatus_t cuda_lt_multiply(struct lt_call *k, const cublasLtMatmulAlgo_t *algo, void *out)
{
    const float one = 1, beta = k->g.accumulate ? 1 : 0;
    return cublasLtMatmul(k->c->lt->handle, &k->op, &one, k->g.b, &k->a, k->g.a, &k->b, &beta,
                          k->g.c, &k->out, out, &k->out, algo, k->c->work,
                          (size_t)cuda_lt_bytes(k->c), k->c->stream);
}

/* ---- names of algorithms ---- */

enum err cuda_lt_settings(const cublasLtMatmulAlgo_t *algo, int64_t out[CUDA_ALGO_SETTINGS])
{
    static const struct { cublasLtMatmulAlgoConfigAttributes_t what; size_t bytes; } part[] = {
        {CUBLASLT_ALGO_CONFIG_ID, 4},
        {CUBLASLT_ALGO_CONFIG_TILE_ID, 4},
        {CUBLASLT_ALGO_CONFIG_SPLITK_NUM, 4},
        {CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, 4},
        {CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, 4},
        {CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, 4},
        {CUBLASLT_ALGO_CONFIG_STAGES_ID, 4},
        {CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, 2},
        {CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, 2},
    };
    _Static_assert(sizeof part / sizeof *part == CUDA_ALGO_SETTINGS, "as many as a file has");
    for (int i = 0; i < CUDA_ALGO_SETTINGS; i++) {
        uint32_t wide = 0;
        uint16_t narrow = 0;
        void *at = part[i].bytes == 4 ? (void *)&wide : (void *)&narrow;
        size_t written;
        LT_TRY(cublasLtMatmulAlgoConfigGetAttribute(algo, part[i].what, at, part[i].bytes,
                                                    &written));
        out[i] = ((int64_t)wide + narrow) & INT32_MAX;
    }
    return ERR_OK;
}

/* ---- choices for checkpoints ----
 * GEMMs and attention of cuDNN remember their choices in one table (cuda_algo.h), whose file is
 * the machine's; a checkpoint has those that the run used, so that it goes on with the same kernels
 * where that file is another. */

/* Versions of the libraries that choose. */
static void ask_versions(int64_t version[2])
{
    version[0] = (int64_t)cublasLtGetVersion();
    version[1] = cuda_dnn_version();
}

enum err cuda_choices(struct dev *d, struct text *out)
{
    const struct cuda_lt *lt = cuda_of(d)->lt;
    int64_t version[2];
    ask_versions(version);
    if (lt && lt->algos)
        cuda_algos_print(lt->algos, lt->gpu, version, out);
    return out->err;
}

enum err cuda_choose(struct dev *d, const char *choices, bool *taken)
{
    struct cuda *c = cuda_of(d);
    int64_t version[2];
    ask_versions(version);
    TRY(cuda_lt_open(c));
    *taken = c->lt->algos ? cuda_algos_take(c->lt->algos, c->lt->gpu, version, choices) > 0
                          : !choices[0]; /* deterministic, where nothing is measured */
    return ERR_OK;
}
