/* SPDX-License-Identifier: Apache-2.0
 *
 * What GPUs this machine has, for `plait info`, and why it has none that can be used.
 * That two GPUs reach each other's memory with atomic operations is what tells NVLink from PCIe.
 */
#include "device/cuda/cuda.h"

#include "device/cuda/cuda_local.h"
#include <stdio.h>

const char *cuda_version_text(int v, char buf[16])
{
    snprintf(buf, 16, "%d.%d", v / 1000, v % 1000 / 10);
    return buf;
}

enum err cuda_count(int *out)
{
    char have[16], need[16];
    int driver = 0, runtime = 0;
    cudaError_t e = cudaGetDeviceCount(out);
    if (e == cudaSuccess && *out > 0)
        return ERR_OK;
    (void)cudaGetLastError();
    (void)cudaDriverGetVersion(&driver);
    (void)cudaRuntimeGetVersion(&runtime);
    cuda_version_text(driver, have);
    cuda_version_text(runtime, need);
    if (driver == 0)
        FAIL(ERR_CONFIG, "train.device cuda: this machine has no NVIDIA driver; use device cpu, or "
                         "a machine with a GPU");
    if (e == cudaErrorInsufficientDriver || driver / 1000 < runtime / 1000)
        FAIL(ERR_CONFIG, "train.device cuda: the driver knows CUDA %s and this program was built "
                         "with %s; update the driver, or build with the older toolkit", have, need);
    FAIL(ERR_CONFIG, "train.device cuda: this process sees no GPU (%s); use device cpu, or look at "
                     "CUDA_VISIBLE_DEVICES", cudaGetErrorString(e));
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
    snprintf(buf, n, "gpu %d: %.64s, %s, sm_%d%d, %d SMs, driver of CUDA %s", i, p.name,
             text_bytes((int64_t)p.totalGlobalMem, bytes), p.major, p.minor,
             p.multiProcessorCount, cuda_version_text(driver, of));
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
    if (cuda_count(&n) != ERR_OK)
        return;
    for (int i = 0; i < n; i++) {
        describe_gpu(i, line, sizeof line);
        text_add(out, "%s", line);
        for (int j = 0; j < n && n > 1; j++)
            text_add(out, "%s%s", j ? " " : "; links ", link_name(i, j));
        text_add(out, "\n");
    }
}
