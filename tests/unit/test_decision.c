/* SPDX-License-Identifier: Apache-2.0
 *
 * What a plan decides: the number, why, whether the start-up table tells it, and that what is
 * opened goes by it.
 */

#include "exec/exec.h"
#include "setup/setup.h"
#include "test.h"

enum { WORDS = 5 };

struct row {
    const char *set[WORDS];
    enum decided which;
    int64_t value;
    bool told;
    const char *reason;
};

static const struct row rows[] = {
    {{NULL}, DECIDED_GRAPH, 0, false, "only train.device cuda queues its work"},
    {{"train.device=cuda"}, DECIDED_GRAPH, 1, true, "train.graph is auto"},
    {{"train.device=cuda", "train.graph=off"}, DECIDED_GRAPH, 0, true, "train.graph is off"},
    {{"train.device=cuda", "train.graph=on"}, DECIDED_GRAPH, 1, true, "train.graph is on"},
    {{NULL}, DECIDED_OVERLAP, 0, false, "parallel.tp is 1"},
    {{"parallel.tp=2"}, DECIDED_OVERLAP, 0, true, "auto is on only where"},
    {{"parallel.tp=2", "parallel.tp_overlap=on"}, DECIDED_OVERLAP, 2048, true, "overlap is on"},
    {{"parallel.tp=2", "train.device=cuda"}, DECIDED_OVERLAP, 2048, true, "is auto, and GPUs copy"},
    {{NULL}, DECIDED_MOVES, 0, false, "no two of them"},
    {{"parallel.dp=2", "train.device=cuda"}, DECIDED_MOVES, 1, true, "threads of one process"},
    {{"parallel.dp=2", "train.device=cuda", "train.transport=mpi"}, DECIDED_MOVES, 0, true,
     "train.transport is mpi"},
    {{"parallel.dp=2", "train.device=cuda", "train.share_gpus=true"}, DECIDED_MOVES, 1, true,
     "train.share_gpus is true"},
    {{"parallel.dp=2", "train.device=cuda", "train.share_gpus=true"}, DECIDED_GRAPH, 0, true,
     "train.share_gpus true has the hosts wait"},
    {{"parallel.dp=2"}, DECIDED_ZERO, 1, false, "parallel.zero is 0"},
    {{"parallel.dp=2", "parallel.zero=1"}, DECIDED_ZERO, 2, false, "parallel.zero is 1"},
    {{"parallel.zero=1"}, DECIDED_ZERO, 1, false, "parallel.dp is 1"},
    {{NULL}, DECIDED_CUT, 0, false, "one stage"},
    {{"parallel.pp=2"}, DECIDED_CUT, 0, true, "less than 1 %"},
    {{"parallel.pp=4", "model.layers=6", "model.vocab=16"}, DECIDED_CUT, 2, true, "1 % or more"},
    {{"parallel.pp=2", "parallel.split=[layers.1.mlp]"}, DECIDED_CUT, 1, true, "parallel.split"},
    {{"parallel.pp=2", "parallel.schedule=dualpipev"}, DECIDED_CUT, 0, true, "%"},
    {{"parallel.pp=2", "parallel.schedule=chimera"}, DECIDED_CUT, 0, true, "two ranks"},
    {{NULL}, DECIDED_RECOMPUTE, 0, false, "train.recompute is none"},
    {{"train.recompute=full", "parallel.pp=2"}, DECIDED_RECOMPUTE, 1, false, "recompute is full"},
    {{"train.recompute=full"}, DECIDED_RECOMPUTE, 0, true, "follows its forward at once"},
    {{"train.recompute=every:1"}, DECIDED_RECOMPUTE, 1, false, "is every so many blocks"},
    {{"train.recompute=sqrt"}, DECIDED_RECOMPUTE, 1, false, "train.recompute is sqrt"},
    {{"train.recompute=every:1000"}, DECIDED_RECOMPUTE, 0, true, "no stage has two segments"},
    {{NULL}, DECIDED_COPIES, 0, false, "at the end alone"},
    {{"run.save=false"}, DECIDED_COPIES, 0, false, "no checkpoint is saved"},
    {{"train.save_every=5"}, DECIDED_COPIES, 1, true, "train.save_async is true"},
    {{"train.save_every=5", "train.save_async=false"}, DECIDED_COPIES, 0, false,
     "train.save_async is false"},
    {{"train.device=cuda"}, DECIDED_COPIES, 1, true, "train.device is cuda"},
    {{"train.device=cuda"}, DECIDED_ATTENTION, DEV_GRAD_AUTO, false, "no other is asked for"},
};

/* Is the line in the start-up table, whole? */
static bool has_line(const struct setup *s, enum decided which)
{
    const struct decision *d = &s->decided[which];
    struct text table = {0}, line = {0};
    text_add(&line, "\n%-7s %s: %s\n", decision_name(which), d->words, d->reason);
    setup_table(s, NULL, &table);
    bool has = strstr(table.s, line.s) != NULL;
    text_free(&table);
    text_free(&line);
    return has;
}

static void each_has_its_reason(void)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct options o;
        struct setup s;
        CHECK_OK(conf_defaults(&options_table, &o));
        CHECK_OK(conf_set(&options_table, &o, "train.batch=16"));
        for (int k = 0; k < WORDS && rows[i].set[k]; k++)
            CHECK_OK(conf_set(&options_table, &o, rows[i].set[k]));
        CHECK_OK(setup_make(&o, 257, true, &s));
        const struct decision *d = &s.decided[rows[i].which];
        test_check(d->value == rows[i].value && d->told == rows[i].told &&
                       strstr(d->reason, rows[i].reason) && has_line(&s, rows[i].which) == d->told,
                   __FILE__, __LINE__, "row %d, %s: %lld, %s, %s", (int)i,
                   decision_name(rows[i].which), (long long)d->value, d->words, d->reason);
        setup_free(&s);
    }
}

static bool none_reach(const int *gpu, int n)
{
    (void)gpu;
    return n < 2;
}

/* What GPUs are asked, and the environment, decide with it; arguments are what was decided. */
static void facts_that_come_later(void)
{
    struct options o;
    struct setup s;
    struct dev_args dev;
    struct exec_args x;
    CHECK_OK(conf_defaults(&options_table, &o));
    CHECK_OK(conf_set(&options_table, &o, "train.device=cuda"));
    CHECK_OK(conf_set(&options_table, &o, "parallel.tp=2"));
    o.env.attn_grad = DEV_GRAD_OWN;
    CHECK_OK(setup_make(&o, 257, true, &s));
    CHECK(s.decided[DECIDED_MOVES].value == 1 && s.decided[DECIDED_ATTENTION].told);
    setup_dev_args(&s, DEV_CUDA, &dev);
    CHECK(dev.attn_grad == DEV_GRAD_OWN && !dev.graph);
    CHECK_OK(setup_ask_gpus(&s, none_reach));
    CHECK_INT(s.decided[DECIDED_MOVES].value, 0);
    CHECK(strstr(s.decided[DECIDED_MOVES].reason, "do not reach") != NULL);
    CHECK(strstr(s.decided[DECIDED_OVERLAP].reason, "do not reach") != NULL);
    setup_exec_args(&s, 0, &x);
    CHECK_INT(x.tp_rows, 0);
    setup_free(&s);
    o.env.no_copies = true;
    CHECK_OK(setup_make(&o, 257, true, &s));
    CHECK_STR(s.decided[DECIDED_MOVES].reason, "PLAIT_COPIES is off");
    setup_free(&s);
}

static const struct test_case cases[] = {
    {"each_has_its_reason", each_has_its_reason}, {"facts_that_come_later", facts_that_come_later},
};
TEST_MAIN(cases)
