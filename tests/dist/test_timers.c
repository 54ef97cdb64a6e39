/* SPDX-License-Identifier: Apache-2.0
 *
 * What the executor notes of a step, on a device whose clock is scripted: a GEMM takes WORK, a
 * timer 1, all else nothing. So it is known to the tick what each event must say: that an
 * instruction's time is its GEMMs', that a wait contains no work, that nothing lies between two
 * instructions, and that the events of a step are still there when the next one has been queued.
 */
#include "layout.h"

#include "base/mem.h"
#include "exec/exec_local.h"
#include "sched/sched.h"
#include "test.h"

enum { STEPS = 3, WORK = 1000, STAMPS_MAX = 1 << 14 };

static const struct dev_ops *real;
static struct dev_ops scripted;
/* Of a rank, which is a thread. */
static _Thread_local int64_t now, taken, at[STAMPS_MAX];
static _Thread_local struct exec_event *before; /* of the step before */
static _Thread_local int64_t steps;
static _Thread_local double segments; /* work of those of a backward until now */

static enum err run_op(struct dev *d, const struct op *op)
{
    now += op->kind == OP_GEMM ? WORK : 0;
    return real->run(d, op);
}

static enum err timer_alloc(struct dev *d, int64_t n, int64_t *first)
{
    (void)d;
    *first = taken;
    taken += n;
    ENSURE(taken <= STAMPS_MAX);
    return ERR_OK;
}

static enum err timer_record(struct dev *d, int64_t which)
{
    (void)d;
    ENSURE(which >= 0 && which < taken);
    at[which] = ++now;
    return ERR_OK;
}

static enum err timer_read(struct dev *d, int64_t which, double *seconds)
{
    (void)d;
    ENSURE(which >= 0 && which < taken && at[which] > 0);
    *seconds = (double)at[which];
    return ERR_OK;
}

static void opened(struct dev *d, int rank)
{
    (void)rank;
    now = taken = steps = 0;
    d->ops = &scripted;
}

/* Whether a message comes for it from another rank: the activation, or the gradient of what it gave
 * out. */
static bool has_message(const struct exec *x, struct sched_instr in)
{
    bool back = in.op == SCHED_B || in.op == SCHED_I;
    int other = back ? in.stage + 1 : in.stage - 1;
    if ((in.op != SCHED_F && !back) || other < 0 || other == x->sched->stages)
        return false;
    return x->here[sched_stage_replica(x->sched, other, in.mb)] < 0;
}

/* What instruction i says, its halves left out when it is a pair. GEMMs of the same instruction
 * of a stage are as many for each microbatch, of one that is cut those of all its segments. */
static void check_one(const struct exec *x, const struct exec_event *e, int64_t i, double *usual)
{
    struct sched_instr in = x->sched->instr[x->sched->begin[x->coord[AXIS_PP]] + i];
    double took = e[i].end - e[i].start, waited = e[i].waited;
    double work = took - 2 * waited - 1; /* behind the timers */
    bool pair = in.op == SCHED_OVERLAP_F_B;
    bool right = waited >= (has_message(x, in) && sched_begins_stage(x->sched, in)) &&
                 waited <= (pair ? 4 : 2);
    if (in.op < SCHED_COMPUTE_OPS) {
        double *u = &usual[in.stage * SCHED_COMPUTE_OPS + in.op];
        segments = (in.seg == 0 || sched_begins_stage(x->sched, in) ? 0 : segments) + work;
        right = right && (work > 0 || in.seg != 0) && fmod(work, WORK) == 0 &&
                (*u == 0 || *u == segments || !sched_ends_stage(in));
        if (sched_ends_stage(in))
            *u = segments;
    } else {
        right = right && (pair || work == 0);
    }
    if (in.op == SCHED_W || in.op == SCHED_R)
        right = right && waited == 0;
    test_check(right, __FILE__, __LINE__, "%s: %s of stage %d, microbatch %d: %g ticks, waits: %g",
               x->sched->name, sched_op_name((enum sched_op)in.op), in.stage, in.mb, took, waited);
}

/* A pair's halves stand behind it and fill it. */
static void check_pair(const struct exec *x, const struct exec_event *e)
{
    test_check(e[1].start == e[0].start + 1 && e[2].start == e[1].end + 1 &&
                   e[0].end == e[2].end + 1 && e[0].waited == e[1].waited + e[2].waited,
               __FILE__, __LINE__, "%s: a pair of %g..%g, halves %g..%g and %g..%g",
               x->sched->name, e[0].start, e[0].end, e[1].start, e[1].end, e[2].start, e[2].end);
}

static void check_events(const struct exec *x, const struct exec_event *e)
{
    const struct sched_instr *list = &x->sched->instr[x->sched->begin[x->coord[AXIS_PP]]];
    double usual[64] = {0}, end = e[0].start - 1;
    ENSURE(x->sched->stages * SCHED_COMPUTE_OPS <= 64);
    for (int64_t i = 0; i < exec_instrs(x); i++) {
        check_one(x, e, i, usual);
        test_check(e[i].start == end + 1, __FILE__, __LINE__,
                   "%s: instruction %lld begins at %g, and the one before it ended at %g",
                   x->sched->name, (long long)i, e[i].start, end);
        end = e[i].end;
        if (list[i].op == SCHED_OVERLAP_F_B) {
            check_pair(x, &e[i]);
            for (int half = 0; half < 2; half++)
                check_one(x, e, ++i, usual);
        }
    }
}

static enum err ran(struct exec *x, int rank)
{
    const struct exec_event *e;
    size_t bytes = (size_t)exec_instrs(x) * sizeof *e;
    (void)rank;
    if (++steps > 1) {
        TRY(exec_events(x, 1, &e));
        CHECK(memcmp(e, before, bytes) == 0);
    } else {
        TRY(mem_new(exec_instrs(x), sizeof *before, "the step before", &before));
    }
    TRY(exec_events(x, 0, &e));
    CHECK(steps == 1 || e[0].start > before[exec_instrs(x) - 1].end);
    check_events(x, e);
    memcpy(before, e, bytes);
    if (steps == STEPS)
        mem_free(before);
    return ERR_OK;
}

static struct layout layout_of(const char *schedule, int pp, int v)
{
    struct model a = {.kind = MODEL_GPT, .layers = 8, .hidden = 16, .heads = 2, .kv_heads = 2,
                      .head_dim = 8, .ffn = 16, .vocab = 17, .seq = 4, .norm_eps = 1e-5,
                      .init_std = 0.1};
    return (struct layout){.model = a, .tp = 1, .pp = pp, .dp = 1, .v = v, .schedule = schedule,
                           .batch = 6, .microbatch = 1, .dev = DEV_REF, .ct = DT_F64,
                           .steps = STEPS, .clip = 1, .trace = true, .opened = opened, .ran = ran};
}

static void run(const struct layout *l, struct layout_result *r)
{
    enum err err = layout_run(l, r);
    test_check(err == ERR_OK, __FILE__, __LINE__, "%s pp %d v %d: %s", l->schedule, l->pp, l->v,
               err_text());
    layout_result_free(r);
}

static void every_schedule(void)
{
    int runs = 0;
    for (int k = 0; k < sched_kind_count(); k++)
        for (int pp = 1; pp <= 4; pp *= 2)
            for (int v = 1; v <= 2; v++) {
                struct layout l = layout_of(sched_kind_at(k)->name, pp, v);
                struct layout_result r;
                struct sched s;
                struct sched_shape shape = {pp, 6, v, 0};
                if (sched_make(l.schedule, &shape, NULL, &s) != ERR_OK)
                    continue;
                bool serves = s.slices == 1;
                sched_free(&s);
                if (!serves)
                    continue;
                run(&l, &r);
                l.recompute = true;
                run(&l, &r);
                runs++;
            }
    CHECK(runs >= 40);
}

static void beside_other_ranks(void)
{
    struct layout l = layout_of("1f1b", 2, 1);
    struct layout_result r;
    l.tp = l.dp = 2;
    l.sp = true;
    run(&l, &r);
    l.trace = false;
    l.ran = NULL;
    run(&l, &r); /* room for none was taken, so a timer would stop the program */
}

static const struct test_case cases[] = {
    {"every schedule", every_schedule},
    {"beside other ranks", beside_other_ranks},
};

int main(int argc, char **argv)
{
    struct dev *d;
    if (dev_open(&(struct dev_args){.kind = DEV_REF, .ct = DT_F64, .threads = 1}, &d) != ERR_OK)
        return 1;
    real = d->ops;
    scripted = *real;
    scripted.run = run_op;
    scripted.timer_alloc = timer_alloc;
    scripted.timer_record = timer_record;
    scripted.timer_read = timer_read;
    int code = test_main(argc, argv, cases, (int)(sizeof cases / sizeof *cases));
    dev_close(d);
    return code;
}
