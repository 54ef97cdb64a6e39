/* SPDX-License-Identifier: Apache-2.0
 *
 * GPUs that a test may use.
 */
#ifndef PLAIT_TEST_GPUS_H
#define PLAIT_TEST_GPUS_H

/* How many of the first `most` GPUs can be opened, one after the other until one cannot, whose
 * error is then err_text's; 0 where the device is not built in. Each is closed again. */
int gpus_here(int most);

#endif
