/* SPDX-License-Identifier: Apache-2.0
 *
 * A CUDA driver to try refusals with, where there is none or another: libcuda.so.1 with the version
 * of STUB_DRIVER, whose start ends with the driver's error STUB_START (0: success). It can do
 * nothing else, so nothing gets further than the count of GPUs.
 */
#include <stdlib.h>

#define SHOWN __attribute__((visibility("default")))

static int from(const char *name)
{
    const char *value = getenv(name);
    return value ? (int)strtol(value, NULL, 10) : 0;
}

SHOWN int cuDriverGetVersion(int *version);
SHOWN int cuInit(unsigned flags);

int cuDriverGetVersion(int *version)
{
    *version = from("STUB_DRIVER");
    return 0;
}

int cuInit(unsigned flags)
{
    (void)flags;
    return from("STUB_START");
}
