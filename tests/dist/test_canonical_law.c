/* SPDX-License-Identifier: Apache-2.0
 *
 * The same bits from every schedule of the registry: with canonical accumulation all that cut the
 * model into the same stages must give one rank's loss, gradients and weights to the last bit, on
 * the reference device, in f32 and in bf16. Without it some do not, or this would prove nothing.
 *
 * Two things are sums of their own, and therefore classes of their own: two replicas, whose halves
 * are added last; and tied ends on two ranks, whose halves are, too. Tied ends on one rank are
 * refused. Nothing is clipped: the norm is a sum over ranks, in which placement shows.
 */
#include "layout.h"
#include "sched/sched.h"
#include "test.h"

enum { RANKS = 4, MICROBATCHES = 7 };

enum class { ONE_SUM, TWO_REPLICAS, ENDS_APART, CLASSES };

static struct layout layout_of(const char *schedule, int v, bool tied)
{
    struct model a = {.kind = MODEL_GPT, .layers = 8, .hidden = 16, .heads = 2, .kv_heads = 2,
                      .head_dim = 8, .ffn = 24, .vocab = 37, .seq = 8, .tied = tied, .dropout = 0.1,
                      .norm_eps = 1e-5, .rope_theta = 10000, .init_std = 0.2};
    return (struct layout){.model = a, .tp = 1, .pp = RANKS, .dp = 1, .v = v, .schedule = schedule,
                           .batch = MICROBATCHES, .microbatch = 1, .dev = DEV_REF, .ct = DT_F64,
                           .steps = 2};
}

struct tally {
    struct layout_result first[CLASSES]; /* of each class, ONE_SUM: of one rank */
    bool known[CLASSES];
    int ran, differ;
};

/* Runs kind k if it serves the shape, and counts it if it differs from the first of its class. */
static void run_kind(int k, const struct layout *shape, struct tally *t)
{
    struct layout l = *shape;
    struct layout_result got = {0};
    struct sched s;
    l.schedule = sched_kind_at(k)->name;
    if (sched_make(l.schedule, &(struct sched_shape){RANKS, MICROBATCHES, l.v, 0}, NULL, &s) !=
        ERR_OK)
        return;
    enum class class = s.replicas > 1 ? TWO_REPLICAS : l.model.tied ? ENDS_APART : ONE_SUM;
    bool refused = l.model.tied && sched_ends_meet(&s);
    sched_free(&s);
    if (refused) {
        l.canonical = true;
        CHECK_ERR(layout_run(&l, &got), ERR_CONFIG, "untie them");
        layout_result_free(&got);
        return;
    }
    enum err err = layout_run(&l, &got);
    if (!test_check(err == ERR_OK, __FILE__, __LINE__, "%s: %s", l.schedule, err_text()))
        return;
    t->ran++;
    CHECK_INT(got.planned, got.taken);
    CHECK_INT(got.replicas_differ, 0);
    if (!t->known[class]) {
        t->first[class] = got;
        t->known[class] = true;
        return;
    }
    bool same = layout_same_bits(&t->first[class], &got);
    t->differ += !same;
    if (l.canonical)
        test_check(same, __FILE__, __LINE__, "%s v %d%s has bits of its own", l.schedule, l.v,
                   l.model.tied ? " tied" : "");
    layout_result_free(&got);
}

static void run_all(const struct layout *shape, struct tally *t)
{
    struct layout one = *shape;
    one.pp = one.v = 1;
    one.schedule = "1f1b";
    *t = (struct tally){0};
    one.canonical = one.canonical && !one.model.tied;
    CHECK_OK(layout_run(&one, &t->first[ONE_SUM]));
    t->known[ONE_SUM] = true;
    for (int k = 0; k < sched_kind_count(); k++)
        run_kind(k, shape, t);
    for (int class = 0; class < CLASSES; class++)
        layout_result_free(&t->first[class]);
}

static void law(enum dev_kind dev, enum dtype ct)
{
    struct tally canonical, plain;
    if (!dev_built(dev)) {
        test_skip("the device is not built in");
        return;
    }
    for (int v = 1; v <= 2; v++)
        for (int tied = 0; tied <= 1; tied++) {
            struct layout l = layout_of(NULL, v, tied);
            l.dev = dev;
            l.ct = ct;
            l.canonical = true;
            run_all(&l, &canonical);
            CHECK(canonical.ran >= (v == 2 && tied ? 2 : 7) && canonical.differ == 0);
            l.canonical = false;
            run_all(&l, &plain);
            CHECK(plain.ran == canonical.ran && plain.differ > 0);
        }
}

static void law_ref(void) { law(DEV_REF, DT_F64); }
static void law_f32(void) { law(DEV_CPU, DT_F32); }
static void law_bf16(void) { law(DEV_CPU, DT_BF16); }

/* Sums over data ranks start in the last weight gradient of a stage, which is another one now. */
static void beside_data_ranks(void)
{
    static const char *const names[] = {"interleaved", "looped-bfs", "zb-v", "1f1b-v"};
    struct layout_result first = {0}, other = {0};
    for (int i = 0; i < 4; i++) {
        struct layout l = layout_of(names[i], 2, false);
        l.batch = 2 * MICROBATCHES;
        l.dp = 2;
        l.canonical = true;
        CHECK_OK(layout_run(&l, i ? &other : &first));
        if (i)
            test_check(layout_same_bits(&first, &other), __FILE__, __LINE__,
                       "%s does not give the bits of %s", names[i], names[0]);
        if (i)
            layout_result_free(&other);
    }
    layout_result_free(&first);
}

static const struct test_case cases[] = {
    {"law_ref", law_ref},
    {"law_f32", law_f32},
    {"law_bf16", law_bf16},
    {"beside_data_ranks", beside_data_ranks},
};
TEST_MAIN(cases)
