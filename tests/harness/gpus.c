/* SPDX-License-Identifier: Apache-2.0
 *
 * Only opening a GPU says whether it can be used: libraries may be missing where it is listed. One
 * that is there and does not open, since others have its memory, say, is no machine without it.
 */
#include "gpus.h"

#include "device/device.h"
#include "test.h"

int gpus_here(int most)
{
    int n = 0;
    for (; n < most && dev_built(DEV_CUDA); n++) {
        struct dev_args a = {.kind = DEV_CUDA, .ct = DT_F32, .threads = 1, .index = n};
        struct dev *d;
        enum err err = dev_open(&a, &d);
        if (err != ERR_OK) {
            test_check(err == ERR_CONFIG, __FILE__, __LINE__, "GPU %d is there and does not open: "
                                                              "%s", n, err_text());
            break;
        }
        dev_close(d);
    }
    return n;
}
