/* SPDX-License-Identifier: Apache-2.0
 *
 * A step can be recorded because it is static: whatever the schedule, each step asks the device for
 * the same calls on the same memory, and all that differs is brought there from the host before.
 * That is proved here, call by call, for every schedule of the registry. Then a device that records
 * and replays on the host: the same bits as without, and the same bits when it cannot.
 */
#include "layout.h"
#include "sched/sched.h"
#include "tape.h"
#include "test.h"

enum { RANKS = 4, STEPS = 5 };

static struct tape tapes[RANKS];
static struct text lines[RANKS][STEPS + 1]; /* of the steps before the last */
static bool can_record, refuses;

static void opened(struct dev *dev, int rank)
{
    tapes[rank].refuses = refuses;
    tape_over(&tapes[rank], dev, can_record);
}

/* What was written since the step before is that one's. */
static void stepping(struct dev *dev, int rank, int64_t step)
{
    (void)dev;
    lines[rank][step - 1] = tapes[rank].text;
    tapes[rank].text = (struct text){0};
}

static void forget_lines(void)
{
    for (int r = 0; r < RANKS; r++) {
        tape_free(&tapes[r]);
        for (int i = 0; i <= STEPS; i++) {
            text_free(&lines[r][i]);
            lines[r][i] = (struct text){0};
        }
    }
}

static struct model model(enum model_kind kind, int64_t layers)
{
    return (struct model){.kind = kind, .layers = layers, .hidden = 8, .heads = 2,
                          .kv_heads = kind == MODEL_GPT ? 2 : 1, .head_dim = 4, .ffn = 12,
                          .vocab = 13, .seq = 5, .tied = kind == MODEL_GPT, .dropout = 0.2,
                          .norm_eps = 1e-5, .rope_theta = 10000, .init_std = 0.2};
}

static struct layout layout_of(const char *schedule, int pp, int v)
{
    return (struct layout){.model = model(MODEL_GPT, 8), .tp = 1, .pp = pp, .dp = 1, .v = v,
                           .schedule = schedule, .dev = DEV_REF, .ct = DT_F64, .steps = 4,
                           .clip = 0.1, .opened = opened, .stepping = stepping};
}

/* ---- a list makes the same calls in every step ---- */

static void check_static(struct layout *l, const char *what)
{
    struct layout_result r;
    char why[400];
    can_record = false;
    enum err err = layout_run(l, &r);
    test_check(err == ERR_OK, __FILE__, __LINE__, "%s, %s: %s", l->schedule, what, err_text());
    for (int rank = 0; rank < l->tp * l->pp * l->dp && err == ERR_OK; rank++) {
        CHECK(lines[rank][1].len > 1000);
        for (int step = 2; step < l->steps; step++)
            test_check(!tape_difference(&lines[rank][step - 1], &lines[rank][step], why), __FILE__,
                       __LINE__, "%s, pp %d, %lld samples, %s: rank %d, step %d and the next: %s",
                       l->schedule, l->pp, (long long)l->batch, what, rank, step - 1, why);
    }
    layout_result_free(&r);
    forget_lines();
}

/* Can it be made for this shape? */
static bool serves(const char *name, int pp, int m, int v)
{
    struct sched s;
    if (sched_make(name, &(struct sched_shape){pp, m, v, 0}, NULL, &s) != ERR_OK)
        return false;
    sched_free(&s);
    return true;
}

static void every_schedule(void)
{
    static const int batch[] = {4, 7, 8, 12};
    int ran = 0;
    for (int i = 0; i < sched_kind_count(); i++) {
        const char *name = sched_kind_at(i)->name;
        int before = ran;
        if (sched_kind_at(i)->make_sliced) /* it makes no list of whole microbatches */
            continue;
        for (int pp = 1; pp <= RANKS; pp *= 2)
            for (int v = 1; v <= 2; v++)
                for (int b = 0; b < 4; b++) {
                    struct layout l = layout_of(name, pp, v);
                    l.batch = batch[b];
                    l.microbatch = 1;
                    if (!serves(name, pp, batch[b], v))
                        continue;
                    check_static(&l, "plain");
                    ran++;
                }
        test_check(ran > before, __FILE__, __LINE__, "%s serves none of these shapes", name);
    }
    printf("     %d shapes of %d schedules\n", ran, sched_kind_count());
}

static void every_axis(void)
{
    static const struct {
        int tp, pp, dp;
        bool sp, recompute, canonical;
        int64_t tp_rows;
    } rows[] = {
        {2, 1, 1, false, false, false, 0}, {2, 2, 1, true, true, false, 0},
        {1, 2, 2, false, false, false, 0}, {2, 1, 2, true, false, false, 0},
        {1, 4, 1, false, true, false, 0},  {1, 4, 1, false, false, true, 0},
        {2, 1, 1, false, false, false, 5}, {2, 2, 1, true, false, false, 5},
    };
    for (int kind = MODEL_GPT; kind <= MODEL_LLAMA; kind++)
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            struct layout l = layout_of("1f1b", rows[i].pp, 1);
            l.model = model((enum model_kind)kind, 4);
            l.model.seq = 6;
            l.tp = rows[i].tp;
            l.dp = rows[i].dp;
            l.sp = rows[i].sp;
            l.recompute = rows[i].recompute;
            l.canonical = rows[i].canonical;
            l.tp_rows = rows[i].tp_rows;
            l.batch = 6 * l.dp;
            l.microbatch = 4; /* the last one is short */
            for (l.zero = 0; l.zero <= (l.dp > 1); l.zero++)
                check_static(&l, kind == MODEL_GPT ? "gpt" : "llama");
        }
}

/* ---- and is the same when it is replayed ---- */

static void check_replays(struct layout *l, const char *what)
{
    struct layout_result want, got;
    l->steps = STEPS;
    l->stepping = NULL;
    can_record = true;
    CHECK_OK(layout_run(l, &want));
    CHECK_INT(tapes[0].replays, 0);
    forget_lines();
    l->recorded = 2;
    CHECK_OK(layout_run(l, &got));
    CHECK_INT(got.replayed, refuses ? 0 : STEPS - 1);
    CHECK_INT(tapes[0].replays, got.replayed);
    CHECK_INT(tapes[0].wrong, 0);
    test_check(layout_same_bits(&want, &got), __FILE__, __LINE__, "%s, %s: other bits", l->schedule,
               what);
    layout_result_free(&want);
    layout_result_free(&got);
    forget_lines();
}

static void replays(void)
{
    static const struct { enum dev_kind dev; enum dtype ct; } on[] = {
        {DEV_REF, DT_F64}, {DEV_CPU, DT_F32}, {DEV_CPU, DT_BF16},
    };
    static const char *const names[] = {"naive", "1f1b", "gpipe", "zb-h1"};
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 4; k++)
            for (int kind = MODEL_GPT; kind <= MODEL_LLAMA; kind++) {
                struct layout l = layout_of(names[k], 1, 1);
                l.model = model((enum model_kind)kind, 2);
                l.dev = on[i].dev;
                l.ct = on[i].ct;
                l.batch = 5;
                l.microbatch = 2;
                l.recompute = k == 1;
                check_replays(&l, dtype_name(l.ct));
            }
}

/* A device that does not get its recording goes on without. */
static void refused(void)
{
    struct layout l = layout_of("1f1b", 1, 1);
    l.model = model(MODEL_GPT, 2);
    l.batch = 4;
    l.microbatch = 1;
    refuses = true;
    check_replays(&l, "refused");
    refuses = false;
}

/* The same samples in two steps have two losses only by their masks: with an eps that keeps weights
 * where they are, but for their decay. */
static double second_loss(double dropout, int steps, int recorded)
{
    enum { SAMPLES = 3, SEQ = 5 };
    int32_t tokens[2 * SAMPLES * SEQ], targets[2 * SAMPLES * SEQ];
    struct layout l = layout_of("1f1b", 1, 1);
    struct layout_result r;
    for (int i = 0; i < 2 * SAMPLES * SEQ; i++) {
        tokens[i] = i % (SAMPLES * SEQ) % 7;
        targets[i] = i % (SAMPLES * SEQ) % 5;
    }
    l.model = model(MODEL_GPT, 2);
    l.model.dropout = dropout;
    l.batch = SAMPLES;
    l.microbatch = 1;
    l.tokens = tokens;
    l.targets = targets;
    l.steps = steps;
    l.eps = 1e20;
    l.stepping = NULL;
    l.recorded = recorded;
    can_record = true;
    CHECK_OK(layout_run(&l, &r));
    double loss = r.loss;
    layout_result_free(&r);
    forget_lines();
    return loss;
}

static void masks_of_a_step(void)
{
    CHECK(fabs(second_loss(0, 1, 0) - second_loss(0, 2, 0)) < 1e-3);
    CHECK(fabs(second_loss(0.3, 1, 0) - second_loss(0.3, 2, 0)) > 1e-2);
    CHECK(fabs(second_loss(0.3, 1, 0) - second_loss(0.3, 2, 1)) > 1e-2); /* by replays alone */
}

static const struct test_case cases[] = {
    {"every schedule is static", every_schedule},
    {"every axis is static", every_axis},
    {"a replay has the bits of a step", replays},
    {"without room for a recording", refused},
    {"each step draws its own masks", masks_of_a_step},
};
TEST_MAIN(cases)
