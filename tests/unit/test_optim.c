/* SPDX-License-Identifier: Apache-2.0
 *
 * Learning rates at the corners and in the middle of each curve. The optimizer's step itself is
 * held against one by hand in tests/dist/test_edges.c.
 */
#include "optim/optim.h"
#include "test.h"

static void curves(void)
{
    struct lr l = {.peak = 3, .least = 1, .warmup = 4, .steps = 24, .decay = 8};
    for (int kind = LR_CONSTANT; kind <= LR_WSD; kind++) {
        l.kind = (enum lr_kind)kind;
        CHECK_NEAR(lr_at(&l, 1), 0.75, 1e-15);
        CHECK_NEAR(lr_at(&l, 4), 3, 1e-15);
        CHECK_NEAR(lr_at(&l, 24), kind == LR_CONSTANT ? 3 : 1, 1e-15);
    }
    l.kind = LR_CONSTANT;
    CHECK_NEAR(lr_at(&l, 14), 3, 1e-15);
    l.kind = LR_LINEAR;
    CHECK_NEAR(lr_at(&l, 9), 2.5, 1e-15);
    CHECK_NEAR(lr_at(&l, 14), 2, 1e-15);
    l.kind = LR_COSINE;
    CHECK_NEAR(lr_at(&l, 9), 2 + sqrt(0.5), 1e-15);
    CHECK_NEAR(lr_at(&l, 14), 2, 1e-15);
    l.kind = LR_WSD;
    CHECK_NEAR(lr_at(&l, 16), 3, 1e-15);
    CHECK_NEAR(lr_at(&l, 20), 2, 1e-15);
}

/* No warm-up, and a warm-up that is the whole run. */
static void ends(void)
{
    struct lr l = {.kind = LR_COSINE, .peak = 2, .steps = 1};
    CHECK_NEAR(lr_at(&l, 1), 0, 1e-15);
    l.kind = LR_CONSTANT;
    CHECK_NEAR(lr_at(&l, 1), 2, 1e-15);
    l = (struct lr){.kind = LR_LINEAR, .peak = 2, .warmup = 5, .steps = 5};
    CHECK_NEAR(lr_at(&l, 5), 2, 1e-15);
}

static const struct test_case cases[] = {{"curves", curves}, {"ends", ends}};
TEST_MAIN(cases)
