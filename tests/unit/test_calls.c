/* SPDX-License-Identifier: Apache-2.0
 *
 * The rows of the operations (op.h), one by one: each has its words, its group and its class, and
 * all that it is asked with stands in its row; each is run alone as the call that it was noted as,
 * on operands large enough, and comes through a profile and over a tape as itself. What a new
 * operation lacks is found here, whether or not a model asks for it yet.
 */
#include "device/calls.h"

#include "base/mem.h"
#include "device/profile.h"
#include "tape.h"
#include "test.h"

enum { VOCAB = 1000 }; /* no extent is that */

/* A call with extents that differ, so that one in the place of another shows; rows are longer than
 * what stands in them. All operands are there, and apart. */
static struct op call_of(enum op_kind kind)
{
    struct op op = {.kind = kind};
    struct op_operand o[OP_OPERANDS];
    const struct op_row *row = &op_rows[kind];
    int64_t at = 0, n[OP_FIELDS];
    for (const struct op_field *f = row->field; f->name; f++, at++) {
        n[at] = f->kind == FIELD_STRIDE ? 64 + at : 3 + at;
        if (strcmp(f->name, "kv_heads") == 0)
            n[at] = n[at - 1] / 2;
        if (f->kind == FIELD_EXTENT || f->kind == FIELD_STRIDE || f->kind == FIELD_PLACE)
            memcpy((char *)&op + f->at, &n[at], sizeof *n);
    }
    if (kind == OP_RESIDUAL_NORM)
        op.residual_norm.norm.n = 3, op.residual_norm.norm.c = 4;
    if (kind == OP_GEMM)
        op.gemm.trans_a = op.gemm.c_at = true, op.gemm.lda = 0; /* as a bias gradient needs */
    if (kind == OP_XENT || kind == OP_XENT_GRAD)
        op.xent.dlogits = CALLS_APART;
    for (int i = row->operands(&op, o) - 1; i >= 0; i--)
        if (o[i].rows > 0)
            op_point(&op, &o[i], o[i].lies == LIES_MAYBE_OVER ? CALLS_APART : CALLS_THERE);
    return op;
}

static void check_same(const struct op *want, const struct calls_list *got, const char *where)
{
    char a[160], b[160] = "nothing";
    op_describe(want, a, sizeof a);
    if (got->n > 0)
        op_describe(&got->call[0].op, b, sizeof b);
    test_check(got->n == 1 && got->call[0].count == 1 && strcmp(a, b) == 0, __FILE__, __LINE__,
               "%s %s: %d calls came, the first %s", a, where, got->n, b);
}

/* It has operands; a call that has none is not run. */
static bool opened(struct dev *d, const struct op *op, struct calls_work *w)
{
    return test_check(calls_open(d, op, w) == ERR_OK, __FILE__, __LINE__, "%s: %s",
                      op_rows[op->kind].name, err_text());
}

static struct dev *open_device(enum dev_kind kind, enum dtype ct)
{
    struct dev *d = NULL;
    CHECK_OK(dev_open(&(struct dev_args){.kind = kind, .ct = ct, .threads = 2}, &d));
    return d;
}

/* Bytes between host and device are not noted. */
static bool is_noted(enum op_kind kind)
{
    return kind != OP_H2D && kind != OP_D2H && kind != OP_SNAPSHOT;
}

static void each_has_its_words(void)
{
#define NAME_OF(kind, ...) [kind] = #kind,
    static const char *const name[OPS] = {OP_LIST(NAME_OF)};
    for (int k = 0; k < OPS; k++) {
        const struct op_row *row = &op_rows[k];
        if (!test_check(row->name && row->operands, __FILE__, __LINE__, "%s has no row", name[k]))
            continue;
        test_check(row->category != CLASS_NONE && row->category < OP_CLASSES &&
                       op_class_name(row->category), __FILE__, __LINE__,
                   "%s is of class %d, which is none", row->name, (int)row->category);
        CHECK((row->group == NULL) == (k == OP_GEMM));
        CHECK(row->field[OP_FIELDS - 1].name == NULL); /* behind the last */
        for (int other = 0; other < k; other++)
            CHECK(strcmp(row->name, op_rows[other].name) != 0);
    }
}

/* Is byte `at` of the operation an operand's, a field's, or its kind's? */
static bool has_byte(const struct op *op, size_t at)
{
    static const size_t size[] = {[FIELD_FLAG] = sizeof(bool), [FIELD_ACT] = sizeof(enum gemm_act),
                                  [FIELD_DROP] = sizeof(struct drop),
                                  [FIELD_EXTENT] = 8, [FIELD_STRIDE] = 8, [FIELD_PLACE] = 8,
                                  [FIELD_REAL] = 8, [FIELD_RANGES] = sizeof(void *)};
    struct op_operand o[OP_OPERANDS];
    bool has = at < offsetof(struct op, gemm);
    for (int i = op_rows[op->kind].operands(op, o) - 1; i >= 0; i--)
        has = has || (at >= o[i].at && at < o[i].at + sizeof(void *));
    for (const struct op_field *f = op_rows[op->kind].field; f->name; f++)
        has = has || (at >= f->at && at < f->at + size[f->kind]);
    return has;
}

/* Whatever an operation is asked with stands in its row, but for what it shares a struct with
 * others for: the norm's extents behind a residual, which are the residual's, the slot of a copy
 * aside, the source of zeros. The rest of the bytes are gaps. */
static void each_is_all_in_its_row(void)
{
#define SIZE_OF(kind, member, type, ...) [kind] = sizeof(struct type),
    static const size_t size[OPS] = {OP_LIST(SIZE_OF)};
    enum { gap = 8 - sizeof(bool) };
    static const size_t less[OPS] = {[OP_NORM] = gap, [OP_NORM_GRAD] = gap, [OP_ROPE] = gap,
                                     [OP_RESIDUAL_NORM] = 2 * sizeof(int64_t) + gap,
                                     [OP_SNAPSHOT] = 8, [OP_ZERO] = sizeof(void *)};
    for (int k = 0; k < OPS; k++) {
        struct op op = call_of((enum op_kind)k);
        size_t left = 0;
        for (size_t i = 0; i < size[k]; i++)
            left += !has_byte(&op, offsetof(struct op, gemm) + i);
        test_check(left == less[k], __FILE__, __LINE__, "%zu bytes of %s stand in no row, not %zu",
                   left, op_rows[k].name, less[k]);
    }
}

/* Each once on d; what was noted is the call. */
static void each_noted(struct dev *d, struct calls_list *got, const char *how)
{
    for (int k = 0; k < OPS; k++) {
        struct op op = call_of((enum op_kind)k);
        struct calls_work w;
        if (!is_noted((enum op_kind)k) || !opened(d, &op, &w))
            continue;
        got->n = 0;
        CHECK_OK(dev_run(w.dev, &w.op));
        check_same(&op, got, how);
        calls_close(&w);
    }
}

/* The list is read when they that asked are gone. */
static void lists_point_to_no_caller(void)
{
    static const uint32_t step;
    static const struct dev_ranges some = {1, {1, 2}}, *const ranges = &some;
    struct dev *d = open_device(DEV_NULL, DT_F32);
    struct calls_list got;
    calls_record(&got, d, VOCAB);
    for (int k = 0; k < OPS; k++) {
        struct op op = call_of((enum op_kind)k);
        for (const struct op_field *f = op_rows[k].field; f->name; f++) {
            if (f->kind == FIELD_DROP)
                *(struct drop *)(void *)((char *)&op + f->at) =
                    (struct drop){.p = 0.1, .step = &step};
            if (f->kind == FIELD_RANGES)
                memcpy((char *)&op + f->at, &ranges, sizeof ranges);
        }
        got.n = 0;
        if (is_noted((enum op_kind)k))
            CHECK_OK(dev_run(d, &op));
        for (const struct op_field *f = op_rows[k].field; f->name && got.n > 0; f++) {
            const void *kept = (char *)&got.call[0].op + f->at;
            if (f->kind == FIELD_DROP)
                CHECK(((const struct drop *)kept)->p > 0 && !((const struct drop *)kept)->step);
            if (f->kind == FIELD_RANGES)
                CHECK(*(const struct dev_ranges *const *)kept == NULL);
        }
    }
    calls_free(&got, d);
    dev_close(d);
}

/* An operand in the place of another makes another call, which says so and is run so. */
static void in_place_is_another_call(void)
{
    struct dev *d = open_device(DEV_NULL, DT_F32);
    struct calls_list got;
    double row[4];
    calls_record(&got, d, VOCAB);
    for (int in_place = 0; in_place < 2; in_place++) {
        struct xent x = {.logits = &row[0], .n = 1, .v = 1, .ld = 1, .max = &row[1],
                         .sum = &row[1], .target_logit = &row[1], .loss = &row[1],
                         .dlogits = &row[in_place ? 0 : 2]};
        CHECK_OK(dev_xent(d, &x));
    }
    CHECK_INT(got.n, 2);
    for (int i = 0; i < got.n; i++) {
        struct calls_work w;
        char name[160];
        op_describe(&got.call[i].op, name, sizeof name);
        CHECK((strstr(name, "in_place") != NULL) == (i == 1));
        if (opened(d, &got.call[i].op, &w))
            CHECK((w.op.xent.logits == w.op.xent.dlogits) == (i == 1));
        calls_close(&w);
    }
    calls_free(&got, d);
    dev_close(d);
}

/* Ids are rows that are here, wherever the first of them stands in the whole. */
static void ids_are_of_rows_that_are_here(void)
{
    static const enum op_kind with[] = {OP_EMBED, OP_EMBED_GRAD, OP_XENT, OP_XENT_SUM};
    struct dev *d = open_device(DEV_REF, DT_F64);
    for (size_t k = 0; k < sizeof with / sizeof *with; k++) {
        struct op op = call_of(with[k]);
        bool rows = with[k] == OP_EMBED || with[k] == OP_EMBED_GRAD;
        struct calls_work w;
        if (!opened(d, &op, &w))
            continue;
        /* the same places in both structs of rows */
        const int32_t *id = with[k] == OP_EMBED        ? w.op.embed.token
                            : with[k] == OP_EMBED_GRAD ? w.op.embed_grad.token
                                                       : w.op.xent.target;
        int64_t n = rows ? op.embed.n : op.xent.n, v0 = rows ? op.embed.v0 : op.xent.v0;
        int64_t here = rows ? op.embed.rows : op.xent.v;
        CHECK(v0 > 0 && n > 1);
        for (int64_t i = 0; i < n; i++)
            CHECK(id[i] >= v0 && id[i] < v0 + here);
        calls_close(&w);
    }
    dev_close(d);
}

/* Of an operand that lies behind another and is missing no memory is taken. */
static void what_is_missing_takes_no_memory(void)
{
    struct dev *d = open_device(DEV_NULL, DT_F32);
    struct op op = call_of(OP_NORM_GRAD);
    struct calls_work with, without;
    int64_t shift = op.norm_grad.c * (int64_t)sizeof(float);
    CHECK(opened(d, &op, &with));
    op.norm_grad.db = NULL;
    CHECK(opened(d, &op, &without));
    CHECK_INT(with.bytes - without.bytes, shift);
    calls_close(&with);
    calls_close(&without);
    dev_close(d);
}

static void each_runs_as_itself(void)
{
    struct dev *d = open_device(DEV_NULL, DT_F32);
    struct calls_list got;
    calls_record(&got, d, VOCAB);
    each_noted(d, &got, "run alone");
    calls_free(&got, d);
    dev_close(d);
}

/* Bytes of all operands that have memory of their own; rows may share theirs. */
static int64_t bytes_apart(const struct op *op, const struct dtypes *types)
{
    struct op_operand o[OP_OPERANDS];
    int64_t bytes = 0;
    for (int i = op_rows[op->kind].operands(op, o) - 1; i >= 0; i--) {
        bool own = o[i].lies == LIES_APART || o[i].lies == LIES_BEHIND ||
                   o[i].lies == LIES_MAYBE_OVER;
        if (own && op_pointer(op, &o[i]))
            bytes += o[i].rows * (o[i].ld ? o[i].ld : o[i].cols) * op_element(&o[i], types);
    }
    return bytes;
}

/* A sanitizer sees operands that are too small. */
static void each_runs_on(enum dev_kind kind, enum dtype ct)
{
    struct dev *d = open_device(kind, ct);
    for (int k = 0; k < OPS; k++) {
        struct op op = call_of((enum op_kind)k);
        struct calls_work w;
        if (!is_noted((enum op_kind)k) || !opened(d, &op, &w))
            continue;
        test_check(dev_run(w.dev, &w.op) == ERR_OK, __FILE__, __LINE__, "%s: %s", op_rows[k].name,
                   err_text());
        test_check(w.bytes >= bytes_apart(&w.op, &d->types), __FILE__, __LINE__,
                   "%s has %lld bytes for its operands", op_rows[k].name, (long long)w.bytes);
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
    struct dev *d = open_device(DEV_NULL, DT_F32);
    struct calls_list got;
    struct dev_profile *p;
    calls_record(&got, d, VOCAB);
    CHECK_OK(dev_profile_open(d, 0, &p));
    each_noted(d, &got, "through a profile");
    dev_profile_close(p);
    calls_free(&got, d);
    dev_close(d);
}

/* Once at once, once captured and launched: the same line. Only one of the same extents is. */
static void over_a_tape(struct dev *d, struct tape *tape, const struct op *op)
{
    struct dev_graph *graph;
    struct calls_work w;
    if (!opened(d, op, &w))
        return;
    tape_begin(tape);
    CHECK_OK(dev_run(w.dev, &w.op));
    CHECK(tape->text.s && tape_is(tape->text.s, op->kind));
    char *line = tape->text.s;
    tape->text = (struct text){0};
    CHECK_OK(d->ops->graph_begin(d));
    CHECK_OK(dev_run(w.dev, &w.op));
    CHECK_OK(d->ops->graph_end(d, &graph));
    CHECK(tape->text.s && strcmp(line, tape->text.s) == 0);
    tape_begin(tape);
    CHECK_OK(d->ops->graph_launch(d, graph));
    CHECK(tape->text.s && strcmp(line, tape->text.s) == 0);
    d->ops->graph_destroy(d, graph);
    mem_free(line);
    calls_close(&w);
}

static void each_goes_over_a_tape(void)
{
    struct dev *d = open_device(DEV_NULL, DT_F32);
    struct tape tape = {0};
    tape_over(&tape, d, true);
    for (int k = 0; k < OPS; k++) {
        struct op op = call_of((enum op_kind)k);
        if (is_noted((enum op_kind)k))
            over_a_tape(d, &tape, &op);
    }
    CHECK_INT(tape.wrong, 0);
    tape_off(&tape, d);
    dev_close(d);
    tape_free(&tape);
}

static const struct test_case cases[] = {
    {"each has its words", each_has_its_words},
    {"each is all in its row", each_is_all_in_its_row},
    {"each runs as itself", each_runs_as_itself},
    {"lists point to no caller", lists_point_to_no_caller},
    {"in place is another call", in_place_is_another_call},
    {"ids are of rows that are here", ids_are_of_rows_that_are_here},
    {"what is missing takes no memory", what_is_missing_takes_no_memory},
    {"each runs on the host", each_runs_on_the_host},
    {"each goes through a profile", each_goes_through_a_profile},
    {"each goes over a tape", each_goes_over_a_tape},
};
TEST_MAIN(cases)
