/* SPDX-License-Identifier: Apache-2.0
 *
 * cuBLASLt as cuda_gemm.c sees it: GEMMs are described, algorithms proposed and run.
 */
#ifndef PLAIT_DEVICE_CUDA_LT_H
#define PLAIT_DEVICE_CUDA_LT_H

#include "device/cuda/cuda_algo.h"
#include "device/cuda/cuda_local.h"
#include <cublasLt.h>

enum {
    LT_CANDIDATES = 16,
    LT_KNOWN = 512,   /* shapes in memory; the oldest gives way */
    LT_ALIGN_MAX = 16 /* bytes; no algorithm asks for more */
};

/* The values stand in files: do not change them. */
enum lt_way { WAY_APART = 0, WAY_LIBRARY = 1, WAY_LIBRARY_DB = 2 };

struct lt_known {
    struct cuda_algo_key key;
    enum lt_way way;
    cublasLtMatmulAlgo_t algo; /* unless apart */
};

struct cuda_lt {
    cublasLtHandle_t handle;
    cudaEvent_t from, to;      /* of a measurement */
    struct cuda_algos *algos;  /* owned; NULL in deterministic mode */
    char gpu[256];             /* its name; asked for once, for the driver takes its time */
    int64_t count;             /* of GEMMs made known, ever */
    struct lt_known known[LT_KNOWN]; /* a ring */
};

/* A GEMM on its way to the library. */
struct lt_call {
    struct cuda *c;
    struct gemm g; /* strides filled in */
    struct cuda_algo_key key;
    cublasLtMatmulDescOpaque_t op; /* as cuda_lt_describe() left them */
    cublasLtMatrixLayoutOpaque_t a, b, out;
};

/* FAIL with the library's words. */
enum err cuda_lt_failed(int line, const char *what, cublasStatus_t s);
#define LT_TRY(call)                                                                               \
    do {                                                                                           \
        cublasStatus_t lt_err_ = (call);                                                           \
        if (lt_err_ != CUBLAS_STATUS_SUCCESS)                                                      \
            return cuda_lt_failed(__LINE__, #call, lt_err_);                                       \
    } while (0)

/* At the first GEMM. Errors: ERR_CONFIG when the library is not the one built with. */
enum err cuda_lt_open(struct cuda *c);

/* The workspace's parts, in this order: bytes of the library; f32 numbers for strips and measured
 * sums, as many as lie before the end or before the m sums over k there; those. */
int64_t cuda_lt_bytes(const struct cuda *c);
int64_t cuda_lt_room(const struct cuda *c, int64_t m);
float *cuda_lt_room_at(const struct cuda *c);
bool cuda_lt_db_fits(const struct cuda *c, int64_t m);
void *cuda_lt_db_room(const struct cuda *c, int64_t m);
void *cuda_lt_db_at(const struct lt_call *k);

/* Largest power of two up to LT_ALIGN_MAX that divides the address and the bytes of a row. */
uint32_t cuda_lt_align(const void *p, int64_t ld, int64_t size);
/* Bytes of an element of A and B; of C. */
int64_t cuda_lt_element(const struct lt_call *k);
int64_t cuda_lt_element_c(const struct lt_call *k);

/* Ready the call for being multiplied in this way. Errors: ERR_INTERNAL. */
enum err cuda_lt_describe(struct lt_call *k, enum lt_way way);
/* What the library proposes for `way`, the likeliest first; none where it has nothing. Leaves the
 * call described for that way. Errors: ERR_INTERNAL. */
enum err cuda_lt_propose(struct lt_call *k, enum lt_way way,
                         cublasLtMatmulAlgo_t list[LT_CANDIDATES], int *count);
/* The GEMM as described, its sum to `out` (C, or a place of the same form). */
cublasStatus_t cuda_lt_multiply(struct lt_call *k, const cublasLtMatmulAlgo_t *algo, void *out);
/* The numbers that name an algorithm in a file. Errors: ERR_INTERNAL. */
enum err cuda_lt_settings(const cublasLtMatmulAlgo_t *algo, int64_t out[CUDA_ALGO_SETTINGS]);

#endif
