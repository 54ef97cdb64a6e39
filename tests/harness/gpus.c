/* SPDX-License-Identifier: Apache-2.0
 *
 * Only opening a GPU says whether it can be used: libraries may be missing where it is listed.
 */
#include "gpus.h"

#include "device/device.h"

int gpus_here(int most)
{
    int n = 0;
    for (; n < most && dev_built(DEV_CUDA); n++) {
        struct dev_args a = {.kind = DEV_CUDA, .ct = DT_F32, .threads = 1, .index = n};
        struct dev *d;
        if (dev_open(&a, &d) != ERR_OK)
            break;
        dev_close(d);
    }
    return n;
}
