/* SPDX-License-Identifier: Apache-2.0
 *
 * Programs that drop weights and gather them again, segment by segment, where data ranks share the
 * updates: whoever computes waits for the gathers it needs, and the bits are those of the program
 * that keeps all. What is dropped is NaN until then, so that none could be used unseen; and the
 * gathers are counted against the plan, as in every layout here.
 */
#include "layout.h"

#include "sched/sched.h"

#include "test.h"

#include <stdio.h>
#include <string.h>

enum way { AT_THE_START, BEFORE_EACH_BACKWARD, BEHIND_EACH_SUM, WAYS, ALONE = WAYS };
static const char *const way_name[] = {"at the start", "before each backward", "behind each sum",
                                       "segments alone"};

/* The program that is being written. */
static struct writer {
    enum way way;
    bool begun[64], away[4][8]; /* away: of stage and segment */
    int drops, segments;
} writer;

/* "0.2B7": the stage with its segment is its first `*named` bytes. False: it names no stage. */
static bool read_cell(const char *cell, int *stage, int *named, char op[16])
{
    int seg;
    if (sscanf(cell, "%d.%d%n", stage, &seg, named) != 2 && sscanf(cell, "%d%n", stage, named) != 1)
        return false;
    return sscanf(cell + *named, "%15[A-Z_]", op) == 1;
}

/* What is about to compute, with one segment or all, is gathered, and all else given up. */
static void add_alone(const char *cell, const char *op, struct text *out)
{
    int stage, seg = 0;
    bool forward = strcmp(op, "F") == 0;
    if (sscanf(cell, "%d.%d", &stage, &seg) < 1 || (!forward && strcmp(op, "R") != 0))
        return; /* right behind R stands its backward */
    for (int other = 1; other <= writer.segments; other++) {
        bool needed = forward || other == seg, *away = &writer.away[stage][other];
        if (needed == *away)
            text_add(out, "%d.%d%s,", stage, other, needed ? "GATHER" : "DROP");
        writer.drops += !needed && !*away;
        *away = !needed;
    }
}

static void add_cell(const char *cell, struct text *out)
{
    int stage, named;
    char op[16];
    bool names = read_cell(cell, &stage, &named, op), drop = false;
    if (names && writer.way == AT_THE_START && strcmp(op, "F") == 0) {
        drop = !writer.begun[stage];
        writer.begun[stage] = true;
        for (named = 0; cell[named] >= '0' && cell[named] <= '9';) /* all of the stage */
            named++;
    }
    if (names && writer.way == BEFORE_EACH_BACKWARD)
        drop = strcmp(op, "B") == 0 || strcmp(op, "I") == 0;
    if (names && writer.way == ALONE)
        add_alone(cell, op, out);
    if (drop)
        text_add(out, "%.*sDROP,%.*sGATHER,", named, cell, named, cell);
    text_add(out, "%s", cell);
    if (names && writer.way == BEHIND_EACH_SUM && strcmp(op, "REDUCE") == 0) {
        text_add(out, ",%.*sDROP", named, cell); /* the update leaves it to the gather behind it */
        drop = true;
    }
    writer.drops += drop;
}

static enum err rewrite(struct sched *s)
{
    struct text was = {0}, is = {0};
    char *line, *cell, *lines, *cells;
    struct sched made;
    memset(writer.begun, 0, sizeof writer.begun);
    memset(writer.away, 0, sizeof writer.away);
    sched_print(s, &was);
    for (line = strtok_r(was.s, "\n", &lines); line; line = strtok_r(NULL, "\n", &lines)) {
        bool first = true;
        for (cell = strtok_r(line, ",", &cells); cell; cell = strtok_r(NULL, ",", &cells)) {
            text_add(&is, "%s", first ? "" : ",");
            add_cell(cell, &is);
            first = false;
        }
        text_add(&is, "\n");
    }
    enum err err = is.err == ERR_OK ? sched_parse(s->name, is.s, is.len, &made) : is.err;
    text_free(&was);
    text_free(&is);
    if (err != ERR_OK)
        return err;
    sched_free(s);
    *s = made;
    return ERR_OK;
}

static struct layout layout_of(const char *schedule, int pp, int v, int dp, bool tied)
{
    return (struct layout){
        .model = {.kind = tied ? MODEL_GPT : MODEL_LLAMA, .layers = 4, .hidden = 12, .heads = 4,
                  .kv_heads = tied ? 4 : 2, .head_dim = tied ? 3 : 4, .ffn = 20, .vocab = 37,
                  .seq = 6, .tied = tied, .norm_eps = 1e-5, .rope_theta = 1e4, .init_std = 0.05},
        .tp = 1, .pp = pp, .dp = dp, .v = v, .schedule = schedule, .batch = 6 * dp,
        .microbatch = 2, .steps = 3, .zero = 1, .dev = DEV_REF, .ct = DT_F64, .threads = 1};
}

static void compare(struct layout l, enum way way)
{
    int segments = l.every > 0 ? (int)l.model.layers / l.pp / l.v / l.every : 0;
    struct layout_result want = {0}, got = {0};
    char what[96];
    snprintf(what, sizeof what, "%s, pp %d, dp %d, %s", l.schedule, l.pp, l.dp, way_name[way]);
    CHECK_OK(layout_run(&l, &want));
    l.program = rewrite;
    writer = (struct writer){.way = way, .segments = segments};
    enum err err = layout_run(&l, &got);
    test_check(err == ERR_OK && writer.drops > 0, __FILE__, __LINE__, "%s: %s", what, err_text());
    test_check(layout_same_bits(&want, &got), __FILE__, __LINE__, "%s: other bits", what);
    layout_result_free(&want);
    layout_result_free(&got);
}

static void the_same_bits(void)
{
    static const struct { const char *schedule; int pp, v, dp; } of[] = {
        {"1f1b", 1, 1, 2}, {"1f1b", 2, 1, 3}, {"interleaved", 2, 2, 2}, {"zb-h1", 2, 1, 2},
        {"dualpipe", 2, 1, 2}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        for (int way = 0; way < WAYS; way++) {
            struct layout l = layout_of(of[i].schedule, of[i].pp, of[i].v, of[i].dp, i % 2);
            compare(l, (enum way)way);
            l.dev = DEV_CPU;
            l.ct = DT_BF16;
            if (dev_built(DEV_CPU))
                compare(l, (enum way)way);
        }
}

/* A head on the rank of the embedding whose matrix it has waits for that one's gather, too. */
static void tied_on_one_rank(void)
{
    compare(layout_of("1f1b", 1, 1, 2, true), AT_THE_START);
    compare(layout_of("zb-v", 2, 2, 2, true), AT_THE_START);
    compare(layout_of("zb-v", 2, 2, 2, true), BEFORE_EACH_BACKWARD);
}

/* Sums of gradients may be of several segments, or of layers of two: what a segment's DROP gives up
 * and its GATHER brings back is its own all the same. */
static void segments_are_not_sums(void)
{
    static const int64_t sums[] = {0, 6000, 12000, 1 << 20};
    for (int i = 0; i < 4; i++)
        for (int dp = 2; dp <= 3; dp++) {
            struct layout l = layout_of("1f1b", 2, 1, dp, false);
            l.model.layers = 6;
            l.every = 1;
            l.sum_bytes = sums[i];
            compare(l, ALONE);
        }
}

/* PyTorch's lists, which say when a stage's weights are gathered and dropped and its gradients
 * summed. */
static int said[SCHED_OP_COUNT];

static enum err count_said(struct sched *s)
{
    for (int64_t i = 0; i < s->begin[s->p]; i++)
        said[s->instr[i].op]++;
    return ERR_OK;
}

/* cells: without what is in capital letters alone behind its stage. */
static void leave_out(const char *text, char *out)
{
    static const char *const words[] = {"UNSHARD", "RESHARD", "REDUCE_GRAD"};
    while (*text) {
        size_t n = strcspn(text, ",\n");
        bool plain = true;
        for (int i = 0; i < 3; i++)
            plain = plain && strncmp(text + 1, words[i], strlen(words[i])) != 0;
        if (plain) {
            memcpy(out, text, n);
            out += n;
            *out++ = text[n];
        } else if (text[n] == '\n') {
            out[-1] = '\n';
        }
        text += n + 1;
    }
    *out = '\0';
}

static void lists_of_pytorch(void)
{
    static const struct { int v; const char *text; } list[] = {
        {1, "0UNSHARD,0F0,0F1,0F2,0RESHARD,0UNSHARD,0B0,0B1,0B2,0REDUCE_GRAD,0RESHARD\n"
            "1UNSHARD,1F0,1B0,1F1,1RESHARD,1UNSHARD,1B1,1F2,1B2,1REDUCE_GRAD,1RESHARD\n"},
        {2, "0UNSHARD,2UNSHARD,0F0,0F1,0F2,0RESHARD,2F0,2F1,2F2,2B0,2B1,2B2,2RESHARD,0UNSHARD,0B0,"
            "2REDUCE_GRAD,0B1,0B2,0REDUCE_GRAD,0RESHARD\n"
            "1UNSHARD,1F0,1F1,1F2,3UNSHARD,1RESHARD,3F0,3F1,3F2,3B0,3B1,3B2,3REDUCE_GRAD,1UNSHARD,"
            "1B0,1B1,1B2,1REDUCE_GRAD,1RESHARD,3RESHARD\n"},
    };
    for (int i = 0; i < 2; i++)
        for (int way = 0; way < 5; way++) { /* shared; canonical; recomputed; in segments; not */
            char plain[512];
            struct layout_result want = {0}, got = {0};
            struct layout l = layout_of(NULL, 2, list[i].v, 2, false);
            l.canonical = way == 1;
            l.recompute = way == 2;
            l.every = way == 3;
            l.zero = way != 4;
            leave_out(list[i].text, plain);
            l.text = plain;
            CHECK_OK(layout_run(&l, &want));
            l.text = list[i].text;
            l.program = count_said;
            memset(said, 0, sizeof said);
            CHECK_OK(layout_run(&l, &got));
            test_check(layout_same_bits(&want, &got), __FILE__, __LINE__, "%s%d", plain, way);
            CHECK(said[SCHED_DROP] == (way != 4 ? 2 : 0)); /* the last of a stage is the update's */
            CHECK(said[SCHED_REDUCE] > 0 &&
                  said[SCHED_GATHER] == (way != 4 ? said[SCHED_UPDATE] + 2 : 0));
            layout_result_free(&want);
            layout_result_free(&got);
        }
}

static const struct test_case cases[] = {
    {"lists_of_pytorch", lists_of_pytorch},
    {"segments_are_not_sums", segments_are_not_sums},
    {"the_same_bits", the_same_bits},
    {"tied_on_one_rank", tied_on_one_rank},
};
TEST_MAIN(cases)
