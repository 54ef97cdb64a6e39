/* SPDX-License-Identifier: Apache-2.0
 *
 * The operations of calls.h, one by one: each has its words and its class, each is run alone as the
 * call that it was noted as, on operands large enough, and each goes through a device in front of
 * another as itself. The device behind is the one that notes, so what came through is read there.
 * What a new operation lacks is found here, whether or not a model asks for it yet.
 */
#include "device/calls.h"

#include "tape.h"
#include "test.h"

enum { VOCAB = 1000 }; /* no extent is that */

static const struct dtypes types = {.ct = DT_F32, .at = DT_F32, .logits = DT_F32, .chunk = 1 << 20};

/* A call with extents that differ, so that one in the place of another shows; rows are longer than
 * what stands in them. */
static struct calls_call call_of(enum calls_op op)
{
    struct calls_call c = {.op = op};
    for (int i = 0; calls_size_name(op, i); i++) {
        const char *name = calls_size_name(op, i);
        c.size[i] = strncmp(name, "ld", 2) == 0 ? 64 + i : 3 + i;
        if (strcmp(name, "kv_heads") == 0)
            c.size[i] = c.size[i - 1] / 2;
        if (strcmp(name, "flags") == 0) /* a norm without a mean is an rms norm */
            c.size[i] = op == CALL_NORM_GRAD ? CALL_MEAN : 0;
    }
    return c;
}

/* The recorder has noted this call and no other. */
static void check_noted(struct dev *recorder, const struct calls_call *want, const char *where)
{
    int n;
    const struct calls_call *got = calls_recorded(recorder, &n);
    test_check(n == 1 && got->op == want->op && got->count == 1 &&
                   memcmp(got->size, want->size, sizeof got->size) == 0,
               __FILE__, __LINE__, "%s %s: %d calls came, the first %s",
               calls_op_name(want->op), where, n, n ? calls_op_name(got->op) : "none");
}

/* It has operands; a call that has none is not run. */
static bool opened(struct dev *d, const struct calls_call *c, struct calls_work *w)
{
    return test_check(calls_open(d, c, w) == ERR_OK, __FILE__, __LINE__, "%s: %s",
                      calls_op_name(c->op), err_text());
}

static struct dev *open_recorder(void)
{
    struct dev *d = NULL;
    CHECK_OK(calls_record_open(&types, VOCAB, &d));
    return d;
}

/* Slots of kernels, from gemm to add, and the two of memory that are queued as kernels are. */
static void each_slot_has_an_operation(void)
{
    size_t first = offsetof(struct dev_ops, gemm), last = offsetof(struct dev_ops, add);
    CHECK_INT((last - first) / sizeof(void *) + 1 + 2, CALLS_OPS);
    CHECK_INT(last + sizeof(void *), sizeof(struct dev_ops)); /* a kernel behind it counts, too */
}

static void each_has_its_words(void)
{
    for (int op = 0; op < CALLS_OPS; op++) {
        const char *name = calls_op_name((enum calls_op)op);
        enum calls_class class = calls_op_class((enum calls_op)op);
        if (!test_check(name != NULL, __FILE__, __LINE__, "operation %d has no row", op))
            continue;
        test_check(class != CLASS_NONE && class < CALLS_CLASSES && calls_class_name(class),
                   __FILE__, __LINE__, "%s is of class %d, which is none", name, (int)class);
        for (int other = 0; other < op; other++) {
            const char *before = calls_op_name((enum calls_op)other);
            CHECK(!before || strcmp(name, before) != 0);
        }
    }
}

/* Each once on d; what the recorder behind it noted is the call. */
static void each_noted(struct dev *recorder, struct dev *d, const char *how)
{
    for (int op = 0; op < CALLS_OPS; op++) {
        struct calls_call c = call_of((enum calls_op)op);
        struct calls_work w;
        if (!opened(d, &c, &w))
            continue;
        calls_record_reset(recorder);
        CHECK_OK(calls_run(&w));
        check_noted(recorder, &c, how);
        calls_close(&w);
    }
}

static void each_runs_as_itself(void)
{
    struct dev *d = open_recorder();
    each_noted(d, d, "run alone");
    dev_close(d);
}

/* A sanitizer sees operands that are too small. */
static void each_runs_on(enum dev_kind kind, enum dtype ct)
{
    struct dev *d;
    CHECK_OK(dev_open(&(struct dev_args){.kind = kind, .ct = ct, .threads = 2}, &d));
    for (int op = 0; op < CALLS_OPS; op++) {
        struct calls_call c = call_of((enum calls_op)op);
        struct calls_work w;
        if (!opened(d, &c, &w))
            continue;
        CHECK_OK(calls_run(&w));
        CHECK_OK(d->ops->sync(d));
        calls_close(&w);
    }
    dev_close(d);
}

static void each_runs_on_the_host(void)
{
    each_runs_on(DEV_REF, DT_F64);
    each_runs_on(DEV_CPU, DT_F32);
    each_runs_on(DEV_CPU, DT_BF16);
}

static void each_goes_through_a_profile(void)
{
    struct dev *recorder = open_recorder(), *d;
    CHECK_OK(dev_profile_open(recorder, 0, &d));
    each_noted(recorder, d, "through a profile");
    dev_close(d);
}

/* Once at once, once recorded and replayed; the recorder is asked with the tape taken off. */
static void over_a_tape(struct dev *d, struct tape *tape, const struct calls_call *c)
{
    const struct dev_ops *with = d->ops;
    struct dev_recording *recording;
    struct calls_work w;
    if (!opened(d, c, &w))
        return;
    for (int again = 0; again < 2; again++) {
        d->ops = tape->real;
        calls_record_reset(d);
        d->ops = with;
        if (again)
            CHECK_OK(d->ops->record_begin(d));
        CHECK_OK(calls_run(&w));
        if (again) {
            CHECK_OK(d->ops->record_end(d, &recording));
            CHECK_OK(d->ops->replay(d, recording));
            d->ops->forget(d, recording);
        }
        d->ops = tape->real;
        check_noted(d, c, again ? "replayed by a tape" : "over a tape");
        d->ops = with;
    }
    calls_close(&w);
}

static void each_goes_over_a_tape(void)
{
    struct dev *d = open_recorder();
    struct tape tape = {0};
    tape_over(&tape, d, true);
    for (int op = 0; op < CALLS_OPS; op++) {
        struct calls_call c = call_of((enum calls_op)op);
        over_a_tape(d, &tape, &c);
    }
    CHECK_INT(tape.wrong, 0);
    dev_close(d);
    tape_free(&tape);
}

static const struct test_case cases[] = {
    {"each slot has an operation", each_slot_has_an_operation},
    {"each has its words", each_has_its_words},
    {"each runs as itself", each_runs_as_itself},
    {"each runs on the host", each_runs_on_the_host},
    {"each goes through a profile", each_goes_through_a_profile},
    {"each goes over a tape", each_goes_over_a_tape},
};
TEST_MAIN(cases)
