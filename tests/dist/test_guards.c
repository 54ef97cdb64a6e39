/* SPDX-License-Identifier: Apache-2.0
 *
 * A buffer that plan and executor make too small alike: a kernel writes behind it. Kernels are made
 * to write some bytes more here, which is the same to a buffer, and the run has to name it and say
 * by how much. And buffers that are not in use hold NaN.
 */
#include "layout.h"
#include "test.h"

#include <stdatomic.h>

#if defined(__clang__) || __GNUC__ >= 8
#define UNSEEN __attribute__((no_sanitize("address"))) /* or the sanitizer would stop it at once */
#else
#define UNSEEN
#endif

enum plant { NONE, MEAN, RSTD, NORMED, LSE, ATTENTION, MOMENT };

static const struct dev_ops *real;
static struct dev_ops ops;
static enum plant chosen;
static int64_t over; /* bytes */
static atomic_int calls, clean; /* of the norm; of these, whose output was not NaN */

/* Behind n doubles at p, if this is what is chosen. */
static UNSEEN void write_more(enum plant what, void *p, int64_t n)
{
    volatile char *end = (char *)p + 8 * n;
    for (int64_t i = 0; chosen == what && i < over; i++)
        end[i] = 0x55;
}

static void spill(const struct op *op)
{
    const struct norm *a = &op->norm;
    const struct attn *b = &op->attn;
    if (op->kind == OP_NORM) {
        if (a->mean)
            write_more(MEAN, a->mean, a->n);
        write_more(RSTD, a->rstd, a->n);
        write_more(NORMED, a->y, a->n * a->c);
    } else if (op->kind == OP_ATTN) {
        write_more(LSE, b->lse, b->b * b->tq * b->heads);
        write_more(ATTENTION, b->o, b->b * b->tq * b->ldo);
    } else if (op->kind == OP_ADAMW) {
        write_more(MOMENT, op->adamw.v, op->adamw.n);
    }
}

static enum err run_op(struct dev *d, const struct op *op)
{
    if (op->kind == OP_NORM) {
        atomic_fetch_add(&calls, 1);
        if (!isnan(((const double *)op->norm.y)[0]))
            atomic_fetch_add(&clean, 1);
    }
    TRY(real->run(d, op));
    spill(op);
    return ERR_OK;
}

static void opened(struct dev *dev, int rank)
{
    (void)rank;
    dev->ops = &ops;
}

static enum err run(enum plant what, int64_t bytes)
{
    struct layout l = {.model = {.kind = MODEL_GPT, .layers = 2, .hidden = 12, .heads = 3,
                                 .kv_heads = 3, .head_dim = 4, .ffn = 20, .vocab = 19, .seq = 5,
                                 .tied = true, .dropout = 0.1, .norm_eps = 1e-5, .init_std = 0.1},
                       .tp = 1, .pp = 1, .dp = 1, .schedule = "1f1b", .batch = 4, .microbatch = 2,
                       .dev = DEV_REF, .ct = DT_F64, .steps = 2, .opened = opened};
    struct layout_result r;
    struct dev *dev;
    CHECK_OK(dev_open(&(struct dev_args){.kind = DEV_REF, .ct = DT_F64, .threads = 1}, &dev));
    real = dev->ops;
    ops = *real;
    dev_close(dev);
    ops.run = run_op;
    chosen = what;
    over = bytes;
    enum err err = layout_run(&l, &r);
    layout_result_free(&r);
    return err;
}

static void too_small_is_named(void)
{
    static const struct { enum plant what; const char *says; } of[] = {
        {MEAN, "activations: %lld bytes were written behind the 80 of \"saved mean\""},
        {RSTD, "activations: %lld bytes were written behind the 80 of \"saved rstd\""},
        {NORMED, "activations: %lld bytes were written behind the 960 of \"saved norm\""},
        {LSE, "activations: %lld bytes were written behind the 240 of \"saved log-sum-exp\""},
        {ATTENTION, "activations: %lld bytes were written behind the 960 of \"saved attention\""},
        {MOMENT, "optimizer state: %lld bytes were written behind the"},
    };
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        for (int64_t bytes = 1; bytes <= 33; bytes += 16) {
            char says[128];
            snprintf(says, sizeof says, of[i].says, (long long)bytes);
            CHECK_ERR(run(of[i].what, bytes), ERR_INTERNAL, says);
        }
    CHECK_OK(run(NONE, 0));
}

/* Before its norm is made, a buffer of it is NaN, in each microbatch of each step. */
static void what_is_not_used_is_nan(void)
{
    atomic_store(&calls, 0);
    atomic_store(&clean, 0);
    CHECK_OK(run(NONE, 0));
    CHECK(atomic_load(&calls) >= 8);
    CHECK_INT(atomic_load(&clean), 0);
}

static const struct test_case cases[] = {{"too_small_is_named", too_small_is_named},
                                         {"what_is_not_used_is_nan", what_is_not_used_is_nan}};
TEST_MAIN(cases)
