/* SPDX-License-Identifier: Apache-2.0
 *
 * In which order a list adds weight gradients.
 */
#ifndef PLAIT_TEST_ORDER_H
#define PLAIT_TEST_ORDER_H

#include "sched/sched.h"

/* Equal hashes promise equal bits, where the forwards of the last stage, which make the head's
 * gradient, have one order too, and where no tied head stands on the rank of its embedding, for
 * both add to one sum. Of a list that is proved. */
uint64_t order_hash(const struct sched *s);

#endif
