/* SPDX-License-Identifier: Apache-2.0
 *
 * Learning rates at the corners and in the middle of each curve. The optimizer's step itself is
 * held against one by hand in tests/dist/test_edges.c.
 */
#include "optim/optim.h"
#include "test.h"

static void curves(void)
{
    struct lr l = {.peak = 3, .least = 1, .warmup = 4, .steps = 23, .decay = 7};
    for (int kind = LR_CONSTANT; kind <= LR_WSD; kind++) {
        l.kind = (enum lr_kind)kind;
        CHECK_NEAR(lr_at(&l, 1), 0.75, 1e-15);
        CHECK_NEAR(lr_at(&l, 4), 3, 1e-15);
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
    CHECK_NEAR(lr_at(&l, 17), 2.75, 1e-15);
    CHECK_NEAR(lr_at(&l, 23), 1.25, 1e-15);
}

/* With the defaults, a least of 0 and no warm-up: every step moves, none at the peak of the one
 * before, and the steps go down evenly around the middle. */
static void no_step_is_wasted(void)
{
    for (int kind = LR_LINEAR; kind <= LR_WSD; kind++)
        for (int64_t n = 1; n <= 20; n++) {
            struct lr l = {.kind = (enum lr_kind)kind, .peak = 2, .steps = n, .decay = n};
            for (int64_t step = 1; step <= n; step++) {
                double lr = lr_at(&l, step), before = step > 1 ? lr_at(&l, step - 1) : l.peak;
                CHECK(lr > 0 && lr < before);
                CHECK_NEAR(lr + lr_at(&l, n + 1 - step), l.peak, 1e-14);
            }
        }
}

/* No warm-up, and a warm-up that is the whole run. */
static void ends(void)
{
    struct lr l = {.kind = LR_COSINE, .peak = 2, .steps = 1};
    CHECK_NEAR(lr_at(&l, 1), 1, 1e-15);
    l.kind = LR_CONSTANT;
    CHECK_NEAR(lr_at(&l, 1), 2, 1e-15);
    l = (struct lr){.kind = LR_LINEAR, .peak = 2, .warmup = 5, .steps = 5};
    CHECK_NEAR(lr_at(&l, 5), 2, 1e-15);
}

static const struct test_case cases[] = {{"curves", curves}, {"ends", ends},
                                         {"no_step_is_wasted", no_step_is_wasted}};
TEST_MAIN(cases)
