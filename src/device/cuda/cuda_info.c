/* SPDX-License-Identifier: Apache-2.0
 *
 * What GPUs this machine has, for `plait info`. Why there is none is said by cuda_describe_kind.
 * That two GPUs reach each other's memory with atomic operations is what tells NVLink from PCIe.
 */
#include "device/cuda/cuda.h"

#include <cuda_runtime_api.h>
#include <stdio.h>

/* "13.0" of 13000. */
static const char *version(int v, char buf[16])
{
    snprintf(buf, 16, "%d.%d", v / 1000, v % 1000 / 10);
    return buf;
}

/* "gpu 0: NVIDIA H200, 139.8 GiB, sm_90, ...". */
static void describe_gpu(int i, char *buf, size_t n)
{
    struct cudaDeviceProp p;
    int driver = 0;
    char of[16], bytes[32];
    cudaError_t e = cudaGetDeviceProperties(&p, i);
    if (e == cudaSuccess)
        e = cudaDriverGetVersion(&driver);
    if (e != cudaSuccess) {
        (void)cudaGetLastError();
        snprintf(buf, n, "gpu %d: cannot be asked: %s", i, cudaGetErrorString(e));
        return;
    }
    snprintf(buf, n, "gpu %d: %.64s, %s, sm_%d%d, %d multiprocessors, driver of CUDA %s", i, p.name,
             text_bytes((int64_t)p.totalGlobalMem, bytes), p.major, p.minor,
             p.multiProcessorCount, version(driver, of));
}

static int attribute(enum cudaDeviceP2PAttr which, int from, int to)
{
    int value = 0;
    if (cudaDeviceGetP2PAttribute(&value, which, from, to) != cudaSuccess) {
        (void)cudaGetLastError();
        return 0;
    }
    return value;
}

/* The link from one GPU to another. */
static const char *link_name(int from, int to)
{
    if (from == to)
        return "-";
    if (!attribute(cudaDevP2PAttrAccessSupported, from, to))
        return "host";
    return attribute(cudaDevP2PAttrNativeAtomicSupported, from, to) ? "NVLink" : "PCIe";
}

void cuda_describe_all(struct text *out)
{
    int n = 0;
    char line[256];
    if (cudaGetDeviceCount(&n) != cudaSuccess) {
        (void)cudaGetLastError(); /* it is not kept for the next call */
        return;
    }
    for (int i = 0; i < n; i++) {
        describe_gpu(i, line, sizeof line);
        text_add(out, "%s", line);
        for (int j = 0; j < n && n > 1; j++)
            text_add(out, "%s%s", j ? " " : "; links ", link_name(i, j));
        text_add(out, "\n");
    }
}
