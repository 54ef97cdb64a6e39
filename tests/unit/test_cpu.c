/* SPDX-License-Identifier: Apache-2.0
 *
 * What the cpu device promises beyond parity with ref: the same bits for any number of threads and
 * for both ways through the gradient of attention; pools that share a machine; refusals.
 */
#include "device/cpu/cpu.h"

#include "base/mem.h"
#include "test.h"
#include <pthread.h>

static struct dev *open_dev(enum dtype ct, int threads)
{
    struct dev *d = NULL;
    CHECK_OK(cpu_open(&(struct dev_args){.kind = DEV_CPU, .ct = ct, .threads = threads}, &d));
    return d;
}

/* n random numbers of ct, or of f32. */
static void *random_vector(int64_t n, bool bf16)
{
    void *p;
    CHECK_OK(mem_new(n, bf16 ? 2 : 4, "a test vector", &p));
    for (int64_t i = 0; i < n; i++) {
        float x = (float)test_real(-1, 1);
        if (bf16)
            ((uint16_t *)p)[i] = bf16_from_f32(x);
        else
            ((float *)p)[i] = x;
    }
    return p;
}

static void *copy_of(const void *p, int64_t bytes)
{
    void *to;
    CHECK_OK(mem_new(bytes, 1, "a copy", &to));
    memcpy(to, p, (size_t)bytes);
    return to;
}

/* The bits of a GEMM on one and on three threads, and of its rows in two calls. */
static void gemms_of(enum dtype ct, bool trans, bool c_at, bool accumulate)
{
    enum { M = 211, N = 797, K = 401 };
    bool bf16 = ct == DT_BF16;
    int64_t size = bf16 ? 2 : 4, c_bytes = (int64_t)M * N * (bf16 && !c_at ? 2 : 4);
    void *a = random_vector(M * K, bf16), *b = random_vector(K * N, bf16);
    void *bias = random_vector(N, bf16), *c[3];
    c[0] = random_vector(M * N, bf16 && !c_at);
    c[1] = copy_of(c[0], c_bytes);
    c[2] = copy_of(c[0], c_bytes);
    struct gemm g = {.a = a, .b = b, .bias = bias, .m = M, .n = N, .k = K, .trans_a = trans,
                     .trans_b = !trans, .accumulate = accumulate, .c_at = c_at};
    for (int i = 0; i < 2; i++) {
        struct dev *d = open_dev(ct, i ? 3 : 1);
        g.c = c[i];
        CHECK_OK(dev_gemm(d, &g));
        dev_close(d);
    }
    CHECK(memcmp(c[0], c[1], (size_t)c_bytes) == 0);
    if (!trans) { /* rows 0..99 and the rest */
        struct dev *d = open_dev(ct, 2);
        g.c = c[2];
        g.m = 100;
        CHECK_OK(dev_gemm(d, &g));
        g.c = (char *)c[2] + 100 * (c_bytes / M);
        g.a = (char *)a + 100 * K * size;
        g.m = M - 100;
        CHECK_OK(dev_gemm(d, &g));
        CHECK(memcmp(c[0], c[2], (size_t)c_bytes) == 0);
        dev_close(d);
    }
    void *all[] = {a, b, bias, c[0], c[1], c[2]};
    for (int i = 0; i < 6; i++)
        mem_free(all[i]);
}

static void gemms_same_bits(void)
{
    for (int i = 0; i < 12; i++)
        gemms_of(i & 1 ? DT_BF16 : DT_F32, i & 2, i >= 4, i >= 8);
}

/* Enough heads for whole heads on one thread, too few for eight: both ways of attn_grad. */
static void attention_of(enum dtype ct)
{
    enum { B = 1, T = 150, HEADS = 4, KV = 2, D = 24, ROWS = B * T };
    bool bf16 = ct == DT_BF16;
    int64_t size = bf16 ? 2 : 4, wide = HEADS * D, narrow = KV * D;
    void *q = random_vector(ROWS * wide, bf16), *k = random_vector(ROWS * narrow, bf16);
    void *v = random_vector(ROWS * narrow, bf16), *do_ = random_vector(ROWS * wide, bf16);
    void *out[2][6];
    int64_t bytes[6] = {ROWS * wide * size, ROWS * HEADS * 4, ROWS * wide * size,
                        ROWS * narrow * size, ROWS * narrow * size, ROWS * HEADS * 4};
    for (int i = 0; i < 2; i++) {
        struct dev *d = open_dev(ct, i ? 8 : 1);
        for (int j = 0; j < 6; j++)
            CHECK_OK(mem_new(bytes[j], 1, "a result", &out[i][j]));
        struct attn a = {.o = out[i][0], .lse = out[i][1], .q = q, .k = k, .v = v, .b = B, .tq = T,
                         .tk = T, .heads = HEADS, .kv_heads = KV, .d = D, .ldq = wide,
                         .ldk = narrow, .ldv = narrow, .ldo = wide, .scale = 0.2,
                         .heads_total = HEADS, .drop = {.p = 0.2, .seed = 5, .stream = 7}};
        CHECK_OK(dev_attn(d, &a));
        struct attn_grad g = {.f = a, .do_ = do_, .dq = out[i][2], .dk = out[i][3],
                              .dv = out[i][4], .delta = out[i][5]};
        CHECK_OK(dev_attn_grad(d, &g));
        dev_close(d);
    }
    for (int j = 0; j < 6; j++) {
        test_check(memcmp(out[0][j], out[1][j], (size_t)bytes[j]) == 0, __FILE__, __LINE__,
                   "result %d of %s attention differs between 1 and 8 threads", j, dtype_name(ct));
        mem_free(out[0][j]);
        mem_free(out[1][j]);
    }
    mem_free(q);
    mem_free(k);
    mem_free(v);
    mem_free(do_);
}

static void attention_same_bits(void)
{
    attention_of(DT_F32);
    attention_of(DT_BF16);
}

/* A rank: many small sums on a pool of its own. */
static void *rank(void *arg)
{
    struct dev *d = open_dev(DT_F32, 3);
    float *x = arg;
    for (int i = 0; i < 200; i++) {
        double sum = 0.0;
        CHECK_OK(dev_sum(d, &(struct sum){&sum, x, 100000}));
        CHECK_NEAR(sum, 100000.0, 0.0);
    }
    dev_close(d);
    return NULL;
}

static void pools_share_a_machine(void)
{
    enum { RANKS = 6 };
    pthread_t thread[RANKS];
    float *x;
    CHECK_OK(mem_new(100000, sizeof *x, "ones", &x));
    for (int i = 0; i < 100000; i++)
        x[i] = 1.0f;
    for (int i = 0; i < RANKS; i++)
        CHECK(pthread_create(&thread[i], NULL, rank, x) == 0);
    for (int i = 0; i < RANKS; i++)
        pthread_join(thread[i], NULL);
    mem_free(x);
}

static void refusals(void)
{
    struct dev *d = NULL;
    struct dev_args args = {.kind = DEV_CPU, .ct = DT_F64, .threads = 1};
    CHECK_ERR(cpu_open(&args, &d), ERR_CONFIG, "f32 and bf16");
    args = (struct dev_args){.kind = DEV_CPU, .ct = DT_F32, .threads = 4000};
    CHECK_ERR(dev_open(&args, &d), ERR_CONFIG, "4000 threads; use 1 to 1024");
    d = open_dev(DT_F32, 1);
    CHECK_ERR(
        dev_attn(d, &(struct attn){.b = 1, .tq = 1, .tk = 1, .heads = 1, .kv_heads = 1, .d = 512}),
        ERR_CONFIG, "at most 256");
    dev_close(d);
}

static const struct test_case cases[] = {
    {"GEMMs: the same bits on any threads, in one call or two", gemms_same_bits},
    {"attention: the same bits both ways", attention_same_bits},
    {"pools share a machine", pools_share_a_machine},
    {"refusals", refusals},
};
TEST_MAIN(cases)
