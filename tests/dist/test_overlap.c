/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensor ranks that overlap communication with GEMMs train to the same bits as those that do not:
 * with sp and without, on two and four ranks, with kv heads held twice, whole and split backward,
 * recompute, several microbatches of which the last is smaller, and pieces of every size: of a row,
 * so that more is on its way than requests are kept for, of sizes that do not divide the rows, and
 * none; and with sp by owner, in chunks. The GEMMs are counted: cut ones are more.
 */
#include "layout.h"
#include "test.h"

#include <stdatomic.h>

enum { BATCH = 5, SEQ = 16, MICROBATCH = 3 };

/* ---- counting GEMMs ---- */

static struct dev_ops counted;
static const struct dev_ops *plain;
static atomic_long gemms;

static enum err count_gemm(struct dev *d, const struct op *op)
{
    atomic_fetch_add(&gemms, op->kind == OP_GEMM);
    return plain->run(d, op);
}

/* All ranks have the same device, so the table is filled before they run. */
static void count_gemms(struct dev *dev, int rank)
{
    (void)rank;
    dev->ops = &counted;
}

static enum err prepare(enum dev_kind kind, enum dtype ct)
{
    struct dev *d;
    TRY(dev_open(&(struct dev_args){.kind = kind, .ct = ct, .threads = 1}, &d));
    plain = d->ops;
    counted = *plain;
    counted.run = count_gemm;
    dev_close(d);
    return ERR_OK;
}

/* ---- the law ---- */

static struct model model(enum model_kind kind)
{
    bool gpt = kind == MODEL_GPT;
    return (struct model){.kind = kind, .layers = 2, .hidden = 32, .heads = 4,
                          .kv_heads = gpt ? 4 : 2, .head_dim = 8, .ffn = 48, .vocab = 131,
                          .seq = SEQ, .tied = gpt, .dropout = gpt ? 0.1 : 0, .norm_eps = 1e-5,
                          .rope_theta = 10000, .init_std = 0.1};
}

/* Backward split, weight gradients late. */
static const char split[] = "0F0,0I0,0F1,0I1,0W0,0W1\n";

struct row { int tp; bool sp, split, recompute; };
static const struct row rows[] = {
    {2, false, false, false}, {2, true, false, false}, {4, false, false, false},
    {4, true, false, false},  {2, true, true, false},  {4, false, true, false},
    {2, true, false, true},
};
enum { ROWS = sizeof rows / sizeof *rows };

static struct layout layout_of(const struct row *r, enum model_kind kind)
{
    return (struct layout){.model = model(kind), .tp = r->tp, .pp = 1, .dp = 1, .sp = r->sp,
                           .schedule = r->split ? NULL : "1f1b", .text = r->split ? split : NULL,
                           .recompute = r->recompute, .batch = BATCH, .microbatch = MICROBATCH,
                           .steps = 2, .clip = 0.05, .opened = count_gemms};
}

/* Is a microbatch of the largest size cut into more pieces than one? */
static bool is_cut(const struct layout *l)
{
    int64_t n = MICROBATCH * SEQ;
    return l->sp ? n / l->tp >= l->tp_rows : n >= 2 * l->tp_rows;
}

static void compare(const struct row *r, struct layout *l, const struct layout_result *want,
                    long few)
{
    struct layout_result got;
    long before = atomic_load(&gemms);
    enum err err = layout_run(l, &got);
    if (test_check(err == ERR_OK, __FILE__, __LINE__, "tp %d%s: %s", r->tp, r->sp ? " sp" : "",
                   err_text())) {
        long made = atomic_load(&gemms) - before;
        test_check(layout_same_bits(want, &got) && got.replicas_differ == 0, __FILE__, __LINE__,
                   "%s tp %d%s%s%s, pieces of %lld rows%s: other bits",
                   l->model.kind == MODEL_GPT ? "gpt" : "llama", r->tp, r->sp ? " sp" : "",
                   r->split ? " split" : "", r->recompute ? " recompute" : "",
                   (long long)l->tp_rows, l->tp_chunked ? ", steps" : "");
        test_check(got.planned == got.taken, __FILE__, __LINE__, "bytes");
        test_check(is_cut(l) ? made > few : made == few, __FILE__, __LINE__,
                   "pieces of %lld rows: %ld GEMMs, %ld without", (long long)l->tp_rows, made,
                   few);
    }
    layout_result_free(&got);
}

static void same_bits(enum dev_kind dev, enum dtype ct)
{
    static const int64_t pieces[] = {1, 5, 12, 24, 1000};
    if (!dev_built(dev)) {
        test_skip("the device is not built in");
        return;
    }
    CHECK_OK(prepare(dev, ct));
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < ROWS; i++) {
            struct layout l = layout_of(&rows[i], k ? MODEL_LLAMA : MODEL_GPT);
            struct layout_result want;
            l.dev = dev;
            l.ct = ct;
            long before = atomic_load(&gemms);
            CHECK_OK(layout_run(&l, &want));
            long few = atomic_load(&gemms) - before;
            CHECK(few > 0);
            for (size_t j = 0; j < 2 * sizeof pieces / sizeof *pieces; j++) {
                l.tp_rows = pieces[j / 2];
                l.tp_chunked = j % 2;
                compare(&rows[i], &l, &want, few);
            }
            layout_result_free(&want);
        }
}

static void same_bits_ref(void) { same_bits(DEV_REF, DT_F64); }
static void same_bits_cpu_f32(void) { same_bits(DEV_CPU, DT_F32); }
static void same_bits_cpu_bf16(void) { same_bits(DEV_CPU, DT_BF16); }

/* Beside pipeline and data ranks. */
static void with_other_axes(void)
{
    static const struct { int pp, dp; bool sp; const char *schedule; } all[] = {
        {2, 1, true, "1f1b"}, {2, 1, false, "zb-h1"}, {1, 2, true, "gpipe"}, {2, 2, true, "1f1b"},
    };
    CHECK_OK(prepare(DEV_REF, DT_F64));
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct row r = {2, all[i].sp, false, false};
        struct layout l = layout_of(&r, MODEL_LLAMA);
        struct layout_result want, got;
        l.pp = all[i].pp;
        l.dp = all[i].dp;
        l.schedule = all[i].schedule;
        l.batch = 4;
        l.microbatch = 1;
        l.dev = DEV_REF;
        l.ct = DT_F64;
        CHECK_OK(layout_run(&l, &want));
        l.tp_rows = 3;
        l.tp_chunked = i % 2 == 0;
        CHECK_OK(layout_run(&l, &got));
        test_check(layout_same_bits(&want, &got), __FILE__, __LINE__, "pp %d dp %d: other bits",
                   l.pp, l.dp);
        layout_result_free(&want);
        layout_result_free(&got);
    }
}

static const struct test_case cases[] = {
    {"same_bits_ref", same_bits_ref},
    {"same_bits_cpu_f32", same_bits_cpu_f32},
    {"same_bits_cpu_bf16", same_bits_cpu_bf16},
    {"with_other_axes", with_other_axes},
};
TEST_MAIN(cases)
