/* SPDX-License-Identifier: Apache-2.0
 *
 * When stages end within a layer: with one stage a rank alike for every schedule, with several only
 * where the step is shorter by it; and an answer in time where there are many.
 */
#include "config/options.h"
#include "setup/setup.h"
#include "test.h"

#include <stdio.h>

struct shape { int64_t layers, vocab, pp, chunks, batch; const char *schedule; };

static void options_of(const struct shape *k, struct options *o)
{
    CHECK_OK(conf_defaults(&options_table, o));
    o->model.kind = MODEL_LLAMA;
    o->model.layers = k->layers;
    o->model.vocab = k->vocab;
    o->model.hidden = 1024;
    o->model.heads = o->model.kv_heads = 8;
    o->model.ffn = 3584;
    o->model.seq = 512;
    o->model.tied = false;
    o->parallel.pp = k->pp;
    o->parallel.chunks = k->chunks;
    o->parallel.microbatch = 1;
    o->train.batch = k->batch;
    snprintf(o->parallel.schedule, sizeof o->parallel.schedule, "%s", k->schedule);
}

static bool has_halves(const struct setup *s)
{
    bool found = false;
    for (int i = 0; i < s->sched.stages; i++)
        found = found || (i > 0 && s->cut[i].first % 2 == 0); /* at an mlp */
    return found;
}

/* What a schedule of one stage a rank makes of 5 layers on 4 ranks. */
static void one_cut_for_all(void)
{
    static const char *const names[] = {"1f1b", "gpipe", "zb-h1", "zb-1p", "naive"};
    struct model_stage first[4];
    for (int i = 0; i < 5; i++) {
        struct options o;
        struct setup s;
        options_of(&(struct shape){5, 257, 4, 0, 8, names[i]}, &o);
        CHECK_OK(setup_make(&o, 257, true, &s));
        CHECK(has_halves(&s));
        for (int k = 0; k < 4; k++) {
            if (i == 0)
                first[k] = s.cut[k];
            CHECK(first[k].first == s.cut[k].first && first[k].end == s.cut[k].end);
        }
        setup_free(&s);
    }
}

/* Even ranks of uneven stages took 42.8 % for 31.6. */
static void no_longer_step(void)
{
    struct options o;
    struct setup s;
    options_of(&(struct shape){20, 256000, 2, 3, 2, "interleaved"}, &o);
    CHECK_OK(setup_make(&o, 256000, true, &s));
    CHECK(!has_halves(&s));
    setup_free(&s);
    options_of(&(struct shape){32, 20000, 4, 0, 16, "zb-v"}, &o);
    CHECK_OK(setup_make(&o, 20000, true, &s));
    CHECK(has_halves(&s)); /* where it is shorter */
    setup_free(&s);
}

static const struct test_case cases[] = {{"one cut for all schedules", one_cut_for_all},
                                         {"no longer step", no_longer_step}};
TEST_MAIN(cases)
