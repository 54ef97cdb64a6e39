/* SPDX-License-Identifier: Apache-2.0
 *
 * The law of recompute: the second forward makes the bits of the first, so that loss, norm,
 * gradients and weights after two steps with dropout are those of the same schedule without it, for
 * every schedule of the registry, over tensor ranks with sequence parallelism, data ranks, ragged
 * microbatches, tied and untied heads, in all types. And it is for memory: less is planned, as much
 * as the sizes of gpipe's slots say, and what is planned is taken. So for whole stages, and for
 * segments of them that are recomputed each by itself.
 *
 * `make test` takes a part of the grid of p, m and v, `make grid` the whole.
 */
#include "layout.h"
#include "base/mem.h"
#include "plan/segments.h"
#include "sched/sched.h"
#include "test.h"

#include <stdlib.h>

static struct layout layout_of(enum model_kind kind, const char *schedule, struct sched_shape x)
{
    bool gpt = kind == MODEL_GPT;
    struct model a = {.kind = kind, .layers = x.v * x.p + 1, .hidden = 16, .heads = 2,
                      .kv_heads = gpt ? 2 : 1, .head_dim = 8, .ffn = 24, .vocab = 37, .seq = 8,
                      .tied = gpt, .dropout = 0.1, .norm_eps = 1e-5, .rope_theta = 10000,
                      .init_std = 0.2};
    return (struct layout){.model = a, .tp = 1, .pp = x.p, .dp = 1, .v = x.v, .group = x.group,
                           .schedule = schedule, .batch = x.m, .microbatch = 1, .dev = DEV_REF,
                           .ct = DT_F64, .steps = 2, .clip = 0.05};
}

/* Runs the layout without and with recompute; their bits must be the same. Bytes that the second
 * takes less. */
static int64_t law(struct layout l)
{
    struct layout_result plain = {0}, again = {0};
    const char *name = l.schedule ? l.schedule : "list";
    int m = (int)(l.batch / l.dp);
    int64_t saved = 0;
    int every = l.every;
    l.recompute = false;
    l.every = 0;
    enum err err = layout_run(&l, &plain);
    l.recompute = true;
    l.every = every;
    if (err == ERR_OK)
        err = layout_run(&l, &again);
    if (test_check(err == ERR_OK, __FILE__, __LINE__, "%s p %d v %d samples %d: %s", name, l.pp,
                   l.v, m, err_text())) {
        test_check(layout_same_bits(&plain, &again), __FILE__, __LINE__,
                   "%s p %d v %d tp %d samples %d every %d has other bits with recompute", name,
                   l.pp, l.v, l.tp, m, every);
        CHECK(memcmp(&plain.norm, &again.norm, sizeof plain.norm) == 0);
        CHECK_INT(again.replicas_differ, 0);
        CHECK_INT(plain.planned, plain.taken);
        CHECK_INT(again.planned, again.taken);
        saved = plain.planned - again.planned;
        CHECK(saved >= 0);
    }
    layout_result_free(&plain);
    layout_result_free(&again);
    return saved;
}

/* ---- the grid of shapes ---- */

static bool whole_grid(void)
{
    const char *wish = getenv("PLAIT_GRID");
    return wish && strcmp(wish, "whole") == 0;
}

static bool serves(const char *name, struct sched_shape shape)
{
    struct sched s;
    if (sched_make(name, &shape, NULL, &s) != ERR_OK)
        return false;
    sched_free(&s);
    return true;
}

/* All shapes of one kind, or one of each size. */
static int shapes_of(int kind)
{
    const char *name = sched_kind_at(kind)->name;
    int ran = 0;
    for (int p = 1; p <= 4; p++)
        for (int m = 1; m <= 3 * p; m++)
            for (int v = 1; v <= (whole_grid() ? 4 : 2); v++) {
                struct sched_shape shape = {p, m, v, 0};
                if (!whole_grid() && (kind + 2 * p + m) % 5 != 0)
                    continue;
                if (!serves(name, shape))
                    continue;
                law(layout_of(m % 2 ? MODEL_GPT : MODEL_LLAMA, name, shape));
                ran++;
            }
    return ran;
}

static void grid(void)
{
    for (int kind = 0; kind < sched_kind_count(); kind++) {
        int ran = shapes_of(kind);
        test_check(ran > 0 || strcmp(sched_kind_at(kind)->name, "seq1f1b") == 0, __FILE__, __LINE__,
                   "%s ran in no shape", sched_kind_at(kind)->name);
    }
}

/* ---- beside the other axes ---- */

struct row {
    const char *schedule;
    int p, v;
};

static const struct row rows[] = {
    {"gpipe", 2, 1}, {"1f1b", 4, 1}, {"interleaved", 2, 2}, {"zb-h1", 3, 1},
    {"zb-v", 2, 2}, {"dualpipe", 2, 1}, {"dualpipev", 2, 2}, {"chimera", 4, 1},
};

/* Tensor ranks and sequence parallelism, microbatches of 2 samples and a last one of 1. */
static void beside_tensor_ranks(enum dev_kind dev, enum dtype ct)
{
    if (!dev_built(dev)) {
        test_skip("the device is not built in");
        return;
    }
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int kind = MODEL_GPT; kind <= MODEL_LLAMA; kind++)
            for (int tied = 0; tied <= 1; tied++) {
                struct sched_shape shape = {rows[i].p, 6, rows[i].v, 0};
                struct layout l = layout_of((enum model_kind)kind, rows[i].schedule, shape);
                l.model.tied = tied;
                l.tp = 2;
                l.sp = (i + (size_t)kind) % 3 != 0;
                l.batch = 11;
                l.microbatch = 2;
                l.dev = dev;
                l.ct = ct;
                int64_t saved = law(l);
                test_check(saved > 0, __FILE__, __LINE__, "%s p %d: nothing is saved",
                           l.schedule, l.pp);
            }
}

static void tensor_ranks_ref(void) { beside_tensor_ranks(DEV_REF, DT_F64); }
static void tensor_ranks_f32(void) { beside_tensor_ranks(DEV_CPU, DT_F32); }
static void tensor_ranks_bf16(void) { beside_tensor_ranks(DEV_CPU, DT_BF16); }

static void data_ranks(void)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct sched_shape shape = {rows[i].p, 5, rows[i].v, 0};
        struct layout l = layout_of(i % 2 ? MODEL_GPT : MODEL_LLAMA, rows[i].schedule, shape);
        l.dp = 2;
        l.batch = 10;
        law(l);
    }
}

/* Behind the pass that splits and moves backwards: looped-bfs goes backward in reverse. */
static void with_canonical_order(void)
{
    struct layout_result one = {0}, got = {0};
    struct layout l = layout_of(MODEL_LLAMA, "looped-bfs", (struct sched_shape){2, 5, 2, 0});
    l.canonical = true;
    l.clip = 0;
    law(l);
    l.recompute = true;
    CHECK_OK(layout_run(&l, &got));
    l.pp = l.v = 1;
    l.recompute = l.canonical = false;
    l.schedule = "1f1b";
    CHECK_OK(layout_run(&l, &one));
    CHECK(layout_same_bits(&one, &got));
    layout_result_free(&one);
    layout_result_free(&got);
}

/* Lists may carry their own: early, late, of some microbatches, behind another's. */
static void own_lists(void)
{
    static const char *const texts[] = {
        "0F0,0F1,0R1,0R0,0B0,0F2,0B1,0R2,0B2\n1F0,1B0,1F1,1R1,1B1,1F2,1B2\n",
        ("0F0,0F1,0F2,0R0,0I0,0R2,0R1,0W0,0I1,0I2,0W1,0W2\n"
         "1F0,1F1,1F2,1I0,1R1,1I1,1I2,1W0,1W1,1W2\n"),
        "0F0,0F1,0R0,(0F2;0B0)OV,0R1,0B1,0B2\n1F0,1F1,1R0,1B0,(1F2;1B1)OV,1R2,1B2\n",
    };
    struct layout l = layout_of(MODEL_GPT, NULL, (struct sched_shape){2, 3, 1, 0});
    struct layout_result want, got;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        l.text = NULL;
        l.schedule = "gpipe";
        CHECK_OK(layout_run(&l, &want));
        l.schedule = NULL;
        l.text = texts[i];
        law(l);
        CHECK_OK(layout_run(&l, &got));
        CHECK(layout_same_bits(&want, &got));
        CHECK_INT(got.planned, got.taken);
        layout_result_free(&want);
        layout_result_free(&got);
    }
}

/* ---- memory ---- */

/* gpipe keeps m save sets of a stage without recompute and one with it: it saves m - 1 of each. The
 * bytes of a set by hand, for gpt in f64: of an attention the norm's output, q k v, the attention's
 * output and a log-sum-exp a head; of an mlp the norm's output and twice the inner rows; of both
 * the norm's mean and rstd; the stream between two parts, which is the second's input. */
static void bytes_of_gpipe(void)
{
    enum { M = 8, LAYERS = 4, N = 8, C = 16, F = 24, H = 2, EIGHT = 8 };
    struct layout l = layout_of(MODEL_GPT, "gpipe", (struct sched_shape){2, M, 1, 0});
    l.model.layers = LAYERS;
    l.steps = 1;
    int64_t stream = arena_round(N * C * EIGHT), row = arena_round(N * EIGHT);
    int64_t attn = 2 * row + stream + arena_round(N * 3 * C * EIGHT) + stream +
                   arena_round(N * H * EIGHT);
    int64_t mlp = 2 * row + stream + 2 * arena_round(N * F * EIGHT);
    /* two blocks a stage: the input of the first part of stage 1 stays, that of stage 0 is the
     * embedding's output and does not, and so does not the input of the head */
    int64_t parts = LAYERS * (attn + mlp), inputs = (4 + 4) * stream;
    CHECK_INT(law(l), (M - 1) * (parts + inputs));
}

/* ---- by segments ---- */

/* Segments of one block, two, the root of a stage's, and more than it has; with a stage that is
 * less than a segment, half blocks, tensor ranks, data ranks with and without shared updates. */
static void by_segments(enum dev_kind dev, enum dtype ct)
{
    static const struct row whole[] = {
        {"1f1b", 1, 1}, {"gpipe", 2, 1}, {"1f1b", 2, 1}, {"interleaved", 2, 2},
        {"looped-bfs", 1, 2},
    };
    static const int every[] = {1, 2, SEGMENTS_SQRT, 9};
    if (!dev_built(dev)) {
        test_skip("the device is not built in");
        return;
    }
    for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
        for (int k = 0; k < 4; k++) {
            struct sched_shape shape = {whole[i].p, 5, whole[i].v, 0};
            struct layout l = layout_of((i + (size_t)k) % 2 ? MODEL_LLAMA : MODEL_GPT,
                                        whole[i].schedule, shape);
            l.model.layers = 3 * whole[i].p * whole[i].v + 1;
            l.every = every[k];
            l.tp = k % 2 ? 2 : 1;
            l.sp = k == 3;
            l.dp = k == 2 ? 2 : 1;
            l.zero = k == 2 && i % 2;
            l.batch = 11 * l.dp;
            l.microbatch = 2;
            l.halves = i == 2 && k == 1;
            l.dev = dev;
            l.ct = ct;
            int64_t saved = law(l);
            test_check(saved > 0 || every[k] == 9, __FILE__, __LINE__,
                       "%s p %d every %d: nothing is saved", l.schedule, l.pp, every[k]);
        }
}

static void segments_ref(void) { by_segments(DEV_REF, DT_F64); }
static void segments_f32(void) { by_segments(DEV_CPU, DT_F32); }
static void segments_bf16(void) { by_segments(DEV_CPU, DT_BF16); }

/* What is kept of an attention and of an mlp without their inputs, and of a stream, for gpt in f64:
 * as in bytes_of_gpipe. */
struct kept { int64_t attn, mlp, stream; };

static struct kept kept_by_hand(void)
{
    enum { N = 8, C = 16, F = 24, H = 2, EIGHT = 8 };
    int64_t stream = arena_round(N * C * EIGHT), row = arena_round(N * EIGHT);
    return (struct kept){
        .attn = 2 * row + stream + arena_round(N * 3 * C * EIGHT) + stream +
                arena_round(N * H * EIGHT),
        .mlp = 2 * row + stream + 2 * arena_round(N * F * EIGHT), .stream = stream};
}

/* One rank, one microbatch, four blocks, a block a segment. All was kept of four blocks, with the
 * inputs of all parts but the embedding; now that of one, with the inputs of its attention (the
 * first segment's begins behind the embedding), of its mlp and of the head, and the inputs of three
 * segments. */
static void bytes_of_segments(void)
{
    enum { LAYERS = 4 };
    struct layout l = layout_of(MODEL_GPT, "1f1b", (struct sched_shape){1, 1, 1, 0});
    l.model.layers = LAYERS;
    l.steps = 1;
    l.every = 1;
    struct kept k = kept_by_hand();
    int64_t before = LAYERS * (k.attn + k.mlp) + (2 * LAYERS + 1) * k.stream;
    CHECK_INT(law(l), before - (k.attn + k.mlp + 3 * k.stream) - (LAYERS - 1) * k.stream);
}

/* Stages that meet within a block: [embed a0 m0 a1] and [m1 a2 m2 a3 m3 head]. Of the first one
 * attention less is kept, and as many inputs: of three parts two in the set and its second
 * segment's. Of the second one attention and two mlps less, and of the inputs of five parts those
 * of an mlp and the head in the set, and two segments'. */
static void bytes_of_half_blocks(void)
{
    struct layout l = layout_of(MODEL_GPT, "1f1b", (struct sched_shape){2, 1, 1, 0});
    l.model.layers = 4;
    l.halves = true;
    l.steps = 1;
    l.every = 1;
    struct kept k = kept_by_hand();
    CHECK_INT(law(l), 2 * k.attn + 2 * k.mlp + k.stream);
}

static void refused(const char *schedule, int v, const char *part)
{
    struct layout l = layout_of(MODEL_GPT, schedule, (struct sched_shape){2, 4, v, 0});
    struct layout_result r;
    l.every = 1;
    CHECK_ERR(layout_run(&l, &r), ERR_CONFIG, part);
    layout_result_free(&r);
}

static void whole_backwards_alone(void)
{
    refused("zb-h1", 1, "schedule zb-h1: recompute by segments is asked for, and its backwards "
                        "are in halves");
    refused("chimera", 1, "halves of pairs, or go both ways");
}

/* A list without recompute takes what it took before there was one. */
static void nothing_for_one_microbatch(void)
{
    CHECK_INT(law(layout_of(MODEL_LLAMA, "1f1b", (struct sched_shape){1, 1, 1, 0})), 0);
    CHECK_INT(law(layout_of(MODEL_LLAMA, "1f1b", (struct sched_shape){1, 6, 1, 0})), 0);
}

static const struct test_case cases[] = {
    {"grid", grid},
    {"tensor_ranks_ref", tensor_ranks_ref},
    {"tensor_ranks_f32", tensor_ranks_f32},
    {"tensor_ranks_bf16", tensor_ranks_bf16},
    {"data_ranks", data_ranks},
    {"with_canonical_order", with_canonical_order},
    {"own_lists", own_lists},
    {"bytes_of_gpipe", bytes_of_gpipe},
    {"segments_ref", segments_ref},
    {"segments_f32", segments_f32},
    {"segments_bf16", segments_bf16},
    {"bytes_of_segments", bytes_of_segments},
    {"bytes_of_half_blocks", bytes_of_half_blocks},
    {"whole_backwards_alone", whole_backwards_alone},
    {"nothing_for_one_microbatch", nothing_for_one_microbatch},
};
TEST_MAIN(cases)
