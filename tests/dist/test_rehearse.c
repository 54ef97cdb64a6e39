/* SPDX-License-Identifier: Apache-2.0
 *
 * A rehearsal leaves no trace: steps behind one have the same bits as steps without, for every way
 * a stage is run. And nothing that forwards and backwards ask of their device is new behind it: a
 * call with the same extents, strides and ways was made before, whatever the schedule, also where
 * a head and an embedding of one rank share their matrix from stage to stage. A new one is loaded
 * or measured on a GPU, which waits for its streams, also for one that waits for a peer.
 */
#include "layout.h"

#include "sched/sched.h"
#include "tape.h"
#include "test.h"

static const struct row {
    const char *schedule;
    int tp, pp, dp, v;
    bool sp, recompute;
    int64_t microbatch;
} rows[] = {
    {"naive", 1, 1, 1, 1, false, false, 6},      {"1f1b", 1, 1, 1, 1, false, false, 4},
    {"1f1b", 1, 2, 1, 1, false, false, 4},       {"gpipe", 1, 2, 1, 1, false, true, 1},
    {"interleaved", 1, 2, 1, 2, false, false, 1}, {"zb-h1", 1, 2, 1, 1, false, false, 4},
    {"zb-v", 1, 2, 1, 2, false, false, 1},       {"dualpipev", 1, 2, 1, 2, false, false, 1},
    {"chimera", 1, 2, 1, 1, false, false, 1},    {"1f1b", 2, 1, 1, 1, true, true, 4},
    {"1f1b", 2, 2, 1, 1, false, false, 2},       {"zb-h1", 1, 1, 2, 1, false, false, 2},
};

static void behind_one(struct layout *l)
{
    struct layout_result plain, rehearsed;
    l->rehearsed = false;
    CHECK_OK(layout_run(l, &plain));
    l->rehearsed = true;
    CHECK_OK(layout_run(l, &rehearsed));
    test_check(layout_same_bits(&plain, &rehearsed), __FILE__, __LINE__,
               "%s tp %d pp %d dp %d zero %d: other bits behind a rehearsal", l->schedule, l->tp,
               l->pp, l->dp, l->zero);
    layout_result_free(&plain);
    layout_result_free(&rehearsed);
}

static void same_bits(enum model_kind kind, enum dev_kind dev, enum dtype ct)
{
    struct model a = {.kind = kind, .layers = 4, .hidden = 24, .heads = 4,
                      .kv_heads = kind == MODEL_LLAMA ? 2 : 4, .head_dim = 6, .ffn = 40,
                      .vocab = 37, .seq = 8, .tied = kind == MODEL_GPT,
                      .dropout = 0.1, .norm_eps = 1e-5,
                      .rope_theta = 10000, .init_std = 0.08};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct row *r = &rows[i];
        struct layout l = {.model = a, .tp = r->tp, .pp = r->pp, .dp = r->dp, .v = r->v,
                           .sp = r->sp,
                           .recompute = r->recompute, .schedule = r->schedule, .batch = 6,
                           .microbatch = r->microbatch, .dev = dev, .ct = ct, .threads = 1,
                           .steps = 2, .clip = 0.05};
        for (l.zero = 0; l.zero <= (l.dp > 1); l.zero++)
            behind_one(&l);
    }
}

static void gpt_ref(void) { same_bits(MODEL_GPT, DEV_REF, DT_F64); }
static void llama_ref(void) { same_bits(MODEL_LLAMA, DEV_REF, DT_F64); }
static void gpt_bf16(void) { same_bits(MODEL_GPT, DEV_CPU, DT_BF16); }

/* ---- what a step asks for was asked for before ---- */

enum { RANKS = 4 };
static struct tape tapes[RANKS];
static struct text before[RANKS], first[RANKS]; /* step 1; and step 1 itself */

static void opened(struct dev *dev, int rank)
{
    tape_over(&tapes[rank], dev, false);
}

static void stepping(struct dev *dev, int rank, int64_t step)
{
    (void)dev;
    if (step > 2)
        return;
    *(step == 1 ? &before[rank] : &first[rank]) = tapes[rank].text;
    tapes[rank].text = (struct text){0};
}

/* The line at `at`, its addresses as p, into out; where the next one begins. */
static const char *without_addresses(const char *at, char out[512])
{
    int used = 0;
    out[0] = '\0';
    while (*at && *at != '\n' && used < 480) { /* a GEMM's are shorter */
        size_t word = num_min((int64_t)strcspn(at, " \n"), 30);
        bool address = strncmp(at, "0x", 2) == 0;
        used += snprintf(out + used, (size_t)(512 - used), "%.*s ", address ? 1 : (int)word,
                         address ? "p" : at);
        at += word + (at[word] == ' ');
    }
    at += strcspn(at, "\n");
    return at + (*at == '\n');
}

/* Calls of forward and backward, a line each, without addresses. */
static void calls_of(const struct text *lines, struct text *out)
{
    char line[512];
    text_add(out, "\n");
    for (const char *at = lines->s; at && *at;) {
        bool call = tape_is_of_layers(at);
        at = without_addresses(at, line);
        if (call)
            text_add(out, "%s\n", line);
    }
}

/* Is each line of `some` one of `all`? */
static bool all_seen(const struct text *some, const struct text *all, char missing[520])
{
    for (const char *at = some->s + 1; *at; at += strcspn(at, "\n") + 1) {
        snprintf(missing, 520, "\n%.*s\n", (int)strcspn(at, "\n"), at);
        if (!strstr(all->s, missing))
            return false;
    }
    return true;
}

static void check_rank(const struct layout *l, int rank)
{
    struct text done = {0}, asked = {0};
    char missing[520] = "";
    calls_of(&before[rank], &done);
    calls_of(&first[rank], &asked);
    CHECK(asked.len > 100);
    test_check(all_seen(&asked, &done, missing), __FILE__, __LINE__,
               "%s, pp %d, batch %lld, rank %d: new in step 1:%s", l->schedule, l->pp,
               (long long)l->batch, rank, missing);
    text_free(&done);
    text_free(&asked);
    text_free(&before[rank]);
    text_free(&first[rank]);
    before[rank] = first[rank] = (struct text){0};
    tape_free(&tapes[rank]);
}

/* shape: pp, v, microbatches, the last of them short. */
static void check_seen(const char *schedule, const int shape[3], int64_t tp_rows)
{
    struct layout_result r;
    struct sched s;
    int pp = shape[0], v = shape[1], m = shape[2], tp = tp_rows ? 2 : 1;
    struct layout l = {.tp = tp, .pp = pp, .dp = 1, .v = v, .schedule = schedule,
                       .tp_rows = tp_rows, .batch = 2 * m - 1, .microbatch = 2, .dev = DEV_REF,
                       .ct = DT_F64, .steps = 2, .clip = 0.1, .opened = opened,
                       .stepping = stepping, .rehearsed = true};
    l.model = (struct model){.kind = MODEL_GPT, .layers = 8, .hidden = 8, .heads = 2, .kv_heads = 2,
                             .head_dim = 4, .ffn = 12, .vocab = 13, .seq = 6, .norm_eps = 1e-5,
                             .init_std = 0.2, .tied = true};
    if (sched_make(schedule, &(struct sched_shape){pp, m, v, 0}, NULL, &s) != ERR_OK)
        return;
    sched_free(&s);
    CHECK_OK(layout_run(&l, &r));
    for (int rank = 0; rank < tp * pp; rank++)
        check_rank(&l, rank);
    layout_result_free(&r);
}

static void nothing_new_in_a_step(void)
{
    static const int shapes[][3] = {{1, 1, 1}, {1, 1, 4}, {2, 1, 4},
                                    {2, 2, 4}, {4, 1, 8}, {4, 2, 8}};
    for (int i = 0; i < sched_kind_count(); i++) {
        if (sched_kind_at(i)->make_sliced)
            continue;
        for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++)
            check_seen(sched_kind_at(i)->name, shapes[k], 0);
        check_seen(sched_kind_at(i)->name, shapes[2], 5);
    }
}

/* Validation has no dropout, so its attention is another's on a GPU: it is rehearsed, too. */
static void validation_is_rehearsed(void)
{
    struct layout_result r;
    struct layout l = {.tp = 1, .pp = 2, .dp = 1, .v = 2, .schedule = "zb-v", .batch = 4,
                       .microbatch = 1, .dev = DEV_REF, .ct = DT_F64, .steps = 1, .clip = 0.1,
                       .opened = opened, .stepping = stepping, .rehearsed = true};
    l.model = (struct model){.kind = MODEL_GPT, .layers = 4, .hidden = 8, .heads = 2, .kv_heads = 2,
                             .head_dim = 4, .ffn = 12, .vocab = 13, .seq = 6, .norm_eps = 1e-5,
                             .init_std = 0.2, .dropout = 0.1};
    CHECK_OK(layout_run(&l, &r));
    for (int rank = 0; rank < 2; rank++) {
        int dropped = 0, whole = 0;
        for (const char *at = before[rank].s; at && *at; at += strcspn(at, "\n") + 1) {
            const char *none = strstr(at, " dropout 0 "), *end = at + strcspn(at, "\n");
            if (tape_is(at, OP_ATTN))
                ++*(none && none < end ? &whole : &dropped);
        }
        CHECK(dropped > 0);
        CHECK_INT(whole, 2); /* layers here, each once */
        text_free(&before[rank]);
        before[rank] = (struct text){0};
        tape_free(&tapes[rank]);
    }
    layout_result_free(&r);
}

static const struct test_case cases[] = {
    {"gpt, ref", gpt_ref}, {"llama, ref", llama_ref}, {"gpt, cpu bf16", gpt_bf16},
    {"nothing is new in a step", nothing_new_in_a_step},
    {"validation is rehearsed", validation_is_rehearsed}};
TEST_MAIN(cases)
