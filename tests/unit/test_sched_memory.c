/* SPDX-License-Identifier: Apache-2.0
 *
 * Making, rewriting, proving and reading lists, with each allocation failing in turn.
 */
#include "sched/sched.h"

#include "test.h"

static const struct sched_lower_args no_ends = {0};
static const struct sched_lower_args all_ends = {.reduce = true, .tied = true, .step = true};

/* A pass over the list in *s, which becomes what it writes. */
static enum err replace(struct sched *s, enum err made, struct sched *by)
{
    sched_free(s);
    *s = made == ERR_OK ? *by : (struct sched){0};
    return made;
}

/* Everything that writes a list of one kind. */
static enum err all_passes(const struct sched_kind *kind, struct sched *s, struct text *t)
{
    static const uint8_t segments[8] = {2, 1, 2, 1, 2, 1, 2, 1};
    static const struct sched_cost cost = {1, 1, 1, 0.1, 0.5, 0, NULL};
    const struct sched_shape shape = {4, 5, kind->chunks ? kind->chunks : 1, 0};
    struct sched_report report;
    struct sched out;
    TRY(kind->make_sliced ? sched_make_sliced(kind->name, &shape, 1, s)
                          : sched_make(kind->name, &shape, kind->make_for ? &cost : NULL, s));
    TRY(replace(s, sched_canonical(s, false, &out), &out));
    TRY(replace(s, sched_recompute(s, &out), &out));
    TRY(replace(s, sched_lower(s, &all_ends, &out), &out));
    TRY(replace(s, sched_segment(s, segments, false, &out), &out));
    TRY(replace(s, sched_zero(s, &out), &out));
    enum err err = sched_check(s, &report);
    sched_report_free(&report);
    TRY(err);
    sched_print(s, t);
    TRY(t->err);
    return replace(s, sched_parse("again", t->s, (int64_t)strlen(t->s), &out), &out);
}

static int run_passes(void *kind)
{
    struct sched s = {0};
    struct text t = {0};
    enum err err = all_passes(kind, &s, &t);
    sched_free(&s);
    text_free(&t);
    return (int)err;
}

static int run_forward(void *arg)
{
    const struct sched_shape shape = {3, 4, 2, 0};
    struct sched s = {0}, out;
    (void)arg;
    enum err err = sched_make_forward(&shape, NULL, &s);
    if (err == ERR_OK)
        err = replace(&s, sched_lower(&s, &no_ends, &out), &out);
    if (err == ERR_OK)
        err = replace(&s, sched_first(&s, 2, &out), &out);
    sched_free(&s);
    return (int)err;
}

static void check_memory(const char *name, int (*run)(void *), void *arg)
{
    int code = ERR_MEMORY, k = 0;
    while (code == ERR_MEMORY && k < 1000)
        code = test_without_memory(++k, run, arg);
    test_check(code == ERR_OK && k > 10, __FILE__, __LINE__, "%s: allocation %d: code %d", name, k,
               code);
}

/* Whichever allocation fails: that is the error, and no list that lacks something. */
static void memory_is_refused(void)
{
    for (int i = 0; i < sched_kind_count(); i++) {
        struct sched_kind kind = *sched_kind_at(i);
        check_memory(kind.name, run_passes, &kind);
    }
    check_memory("forward", run_forward, NULL);
}

static const struct test_case cases[] = {
    {"memory_is_refused", memory_is_refused},
};
TEST_MAIN(cases)
