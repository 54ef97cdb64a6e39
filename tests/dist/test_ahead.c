/* SPDX-License-Identifier: Apache-2.0
 *
 * Steps that go ahead of the norm give the bits of steps that wait: loss, gradients and weights
 * after several steps of which some are clipped, on every schedule with one replica, with tensor,
 * sequence and data ranks beside, tied or not, and with unequal tokens. Every step goes ahead here,
 * so every clipped one is taken back, and the forwards made with its weights are dropped in flight.
 */
#include "layout.h"
#include "sched/sched.h"
#include "test.h"

enum { RANKS = 4, MICROBATCHES = 5, STEPS = 6 };

static struct layout layout_of(const char *schedule, int v)
{
    struct model a = {.kind = MODEL_LLAMA, .layers = 8, .hidden = 16, .heads = 4, .kv_heads = 2,
                      .head_dim = 4, .ffn = 24, .vocab = 37, .seq = 8, .dropout = 0.1,
                      .norm_eps = 1e-5, .rope_theta = 10000, .init_std = 0.2};
    return (struct layout){.model = a, .tp = 1, .pp = RANKS, .dp = 1, .v = v, .schedule = schedule,
                           .batch = MICROBATCHES, .microbatch = 1, .dev = DEV_REF, .ct = DT_F64,
                           .steps = STEPS, .clip = 8};
}

/* How often steps went ahead and were done again over all comparisons. */
struct tally { int64_t went, undone; int ran; };

static void compare(const struct layout *waits, struct tally *t)
{
    struct layout ahead = *waits;
    struct layout_result a = {0}, b = {0};
    ahead.ahead = true;
    enum err first = layout_run(waits, &a), second = layout_run(&ahead, &b);
    if (test_check(first == ERR_OK && second == ERR_OK, __FILE__, __LINE__, "%s: %s",
                   waits->schedule, err_text())) {
        test_check(layout_same_bits(&a, &b), __FILE__, __LINE__,
                   "%s v %d tp %d dp %d has other bits when steps go ahead", waits->schedule,
                   waits->v, waits->tp, waits->dp);
        CHECK_INT(b.planned, b.taken);
        CHECK_INT(b.replicas_differ, 0);
        CHECK_INT(a.went, 0);
        t->went += b.went;
        t->undone += b.undone;
        t->ran++;
    }
    layout_result_free(&a);
    layout_result_free(&b);
}

static void every_schedule(void)
{
    struct tally t = {0};
    for (int k = 0; k < sched_kind_count(); k++) {
        for (int v = 1; v <= 2; v++) {
            struct layout l = layout_of(sched_kind_at(k)->name, v);
            struct sched s;
            struct sched_shape shape = {RANKS, MICROBATCHES, v, 0};
            if (sched_make(l.schedule, &shape, &s) != ERR_OK)
                continue;
            bool serves = s.replicas == 1 && s.slices == 1;
            sched_free(&s);
            if (serves)
                compare(&l, &t);
        }
    }
    CHECK(t.ran >= 14);
    CHECK_INT(t.went, STEPS * t.ran);
    CHECK(t.undone > 0 && t.undone < t.went);
}

static void beside_other_ranks(void)
{
    struct tally t = {0};
    struct layout l = layout_of("zb-h2", 1);
    l.pp = l.tp = l.dp = 2;
    l.sp = true;
    l.batch = 6;
    compare(&l, &t);
    l.model.tied = true;
    l.schedule = "zb-2p";
    compare(&l, &t);
    l.schedule = "zb-v";
    l.v = 2;
    l.tp = 1;
    l.sp = false;
    compare(&l, &t);
    CHECK(t.undone > 0 && t.undone < t.went);
}

static void other_devices(void)
{
    static const enum dtype types[] = {DT_F32, DT_BF16};
    struct tally t = {0};
    for (int i = 0; dev_built(DEV_CPU) && i < 2; i++) {
        struct layout l = layout_of("zb-h2", 1);
        l.dev = DEV_CPU;
        l.ct = types[i];
        l.threads = 1;
        compare(&l, &t);
    }
    CHECK(!dev_built(DEV_CPU) || (t.undone > 0 && t.undone < t.went));
}

/* One rank, and no step ahead until enough were within the limit; then some are, some are not. */
static void trust_is_earned(void)
{
    struct layout l = layout_of("1f1b", 1);
    struct layout_result r = {0};
    l.pp = 1;
    l.ahead = true;
    l.steps = 12;
    l.trust = 2;
    CHECK_OK(layout_run(&l, &r));
    CHECK(r.went > 0 && r.went < 10);
    layout_result_free(&r);
    l.clip = 1e-3; /* every step is clipped */
    l.trust = 1;
    CHECK_OK(layout_run(&l, &r));
    CHECK_INT(r.went, 0);
    layout_result_free(&r);
    l.clip = 0; /* none is */
    l.trust = 3;
    CHECK_OK(layout_run(&l, &r));
    CHECK_INT(r.went, 9);
    CHECK_INT(r.undone, 0);
    layout_result_free(&r);
}

static void broken(const struct model_param *p, double *values)
{
    for (int64_t i = 0; i < p->shape[0] * p->shape[1]; i++)
        values[i] = i ? values[i] : NAN;
}

/* A loss that is not finite ends the run at its own step, on all ranks. */
static void no_number(void)
{
    struct layout l = layout_of("zb-h2", 1);
    struct layout_result r = {0};
    l.weights = broken;
    l.ahead = true;
    CHECK_ERR(layout_run(&l, &r), ERR_NONFINITE, "step 1 has loss");
    layout_result_free(&r);
    l.steps = 1; /* seen by the proof after the last step alone */
    CHECK_ERR(layout_run(&l, &r), ERR_NONFINITE, "step 1 has loss");
    layout_result_free(&r);
}

/* How many ranks ask to stop, and how many have written their part of a checkpoint, is known to all
 * of them with each step's result, however it was taken. */
static void what_ranks_say(void)
{
    for (int way = 0; way < 6; way++) {
        struct layout l = layout_of("zb-h2", 1);
        struct layout_result r = {0};
        l.pp = way < 3 ? 2 : 1;
        l.tp = l.dp = 2;
        l.ahead = way % 3 == 1;
        l.zero = way % 3 == 2;
        l.batch = 6;
        l.stop = (unsigned[]){0, 2, 5}[way % 3];
        l.saved = (unsigned[]){0xf, 0xb, 0}[(way + way / 3) % 3];
        CHECK_OK(layout_run(&l, &r));
        test_check(r.misheard == 0, __FILE__, __LINE__, "way %d: %d misheard", way, r.misheard);
        layout_result_free(&r);
    }
}

static const struct test_case cases[] = {
    {"what_ranks_say", what_ranks_say},
    {"every_schedule", every_schedule},
    {"beside_other_ranks", beside_other_ranks},
    {"other_devices", other_devices},
    {"trust_is_earned", trust_is_earned},
    {"no_number", no_number},
};
TEST_MAIN(cases)
