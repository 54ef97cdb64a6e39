/* SPDX-License-Identifier: Apache-2.0
 *
 * Schedules as text: the cells that other tools exchange as CSV, a line a rank.
 *
 *     0F0,0F1,,0B0,0B1          stage, instruction, microbatch; an empty cell is an idle slot
 *     1F0,1B0,(1F1;1B0)OVERLAP_F_B   in parentheses two that are one action
 *     1.2B1,1.2REDUCE,1.1B1     behind the stage's point a segment of it
 *
 * Shape, placement and peers follow from the instructions: where a microbatch has its forward of
 * stage 0 tells its replica. A number has no sign and no leading zero; a token ends where its cell
 * ends, so "1F0x" is an error and not 1F0. These are PyTorch's cells; what its lists say about
 * sharded weights (1UNSHARD) is an instruction of compute-only lists, and else counted.
 */
#include "sched/sched_build.h"

#include "base/mem.h"
#include "base/num.h"
#include "base/text.h"
#include <stdio.h>
#include <string.h>

enum { NOWHERE = 0xffff, IN_TORCH = 1 /* peer of what is in torch's words, until all is read */ };

struct scanner {
    const char *name, *text;
    int64_t n, at, line_start; /* bytes */
    int line;                  /* 0-based: the rank */
};

/* What the lines say. */
struct found {
    struct sched_instr *instr; /* owned; [cap] */
    int64_t n, cap;
    int64_t *begin;    /* owned; [SCHED_MAX_RANKS + 1] */
    int stages, mbs;
    int sharded;       /* highest stage of an action in torch's words; -1: there is none */
    int64_t waits;     /* how many WAIT_REDUCE_GRAD */
    bool backward, lowered;
    uint8_t *segments; /* owned; [SCHED_MAX_STAGES] the highest that is named, or 1; 0: no stage */
};

enum { QUOTED = 25 };

/* What stands from `at` to the end of its cell, as a terminal may have it. */
static void quote(const struct scanner *x, int64_t at, char out[QUOTED])
{
    int len = 0;
    while (at + len < x->n && len < QUOTED - 1 && x->text[at + len] != ',' &&
           x->text[at + len] != '\n') {
        char c = x->text[at + len];
        out[len++] = c >= ' ' && c <= '~' ? c : '?';
    }
    out[len] = '\0';
}

/* `at` is where it is wrong: within a cell, or at one. */
static enum err refuse(const struct scanner *x, int64_t at, const char *why)
{
    char cell[QUOTED], wrong[QUOTED], place[64] = "";
    int64_t start = x->line_start;
    int number = 1;
    for (int64_t i = start; i < at; i++)
        if (x->text[i] == ',') {
            number++;
            start = i + 1;
        }
    while (start < at && (x->text[start] == ' ' || x->text[start] == '\t'))
        start++;
    quote(x, start, cell);
    quote(x, at, wrong);
    if (at > x->line_start || cell[0])
        snprintf(place, sizeof place, " (rank %d), cell %d, \"%s\"", x->line, number, cell);
    FAIL(ERR_CONFIG, "schedule %s, line %d%s, column %lld, \"%s\": %s", x->name, x->line + 1, place,
         (long long)(at - x->line_start + 1), wrong, why);
}

static char peek(const struct scanner *x)
{
    return x->at < x->n ? x->text[x->at] : '\n';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool line_ends(const struct scanner *x)
{
    return peek(x) == '\n' ||
           (peek(x) == '\r' && (x->at + 1 == x->n || x->text[x->at + 1] == '\n'));
}

static void skip_blanks(struct scanner *x)
{
    while (x->at < x->n && (peek(x) == ' ' || peek(x) == '\t'))
        x->at++;
}

static enum err read_number(struct scanner *x, int least, int below, const char *what, int *out)
{
    int64_t start = x->at;
    int value = 0;
    char why[96];
    snprintf(why, sizeof why, "%s is not a number of %d to %d without leading zeros", what, least,
             below - 1);
    while (is_digit(peek(x)) && value < below)
        value = 10 * value + (x->text[x->at++] - '0');
    int64_t digits = x->at - start;
    if (digits == 0 || value < least || value >= below || (digits > 1 && x->text[start] == '0'))
        return refuse(x, start, why);
    *out = value;
    return ERR_OK;
}

/* Why what begins here is no instruction, and which there are. */
static const char *not_read(const struct scanner *x, int64_t at)
{
    char c = at < x->n ? x->text[at] : ' ';
    if (c == '"' || c == '\'')
        return "cells have no quotes; write 0F0,0B0";
    bool small = c >= 'a' && c <= 'z';
    if (small && x->line == 0 && at == x->line_start)
        return "the first line is rank 0's, and none has names of columns; a cell is as 0F1";
    if (small)
        return "instructions are in capital letters, as in 0F1";
    return "this is no instruction; a cell is a stage, one of F (forward), B (backward), I and W "
           "(its halves for the input and the weights) or R (recompute), and a microbatch, as in "
           "0F1; a pair as in (0F1;1B0)OVERLAP_F_B; or empty. docs/simulator.md has the rest "
           "(SEND_F, RECV_F, UNSHARD, STEP, ...)";
}

/* The longest name of capital letters and underscores must be one of an instruction, or what it was
 * called in texts of before, or torch's word for it. */
static enum err read_op(struct scanner *x, struct sched_instr *in)
{
    static const struct { const char *name; enum sched_op op; int torch; } other[] = {
        {"TIED", SCHED_EMBED_REDUCE, 0}, {"MERGE", SCHED_REPLICA_REDUCE, 0},
        {"OV", SCHED_OVERLAP_F_B, 0}, {"UNSHARD", SCHED_GATHER, IN_TORCH},
        {"RESHARD", SCHED_DROP, IN_TORCH}, {"REDUCE_GRAD", SCHED_REDUCE, IN_TORCH},
        {"WAIT_REDUCE_GRAD", SCHED_OP_COUNT, IN_TORCH}};
    enum { OTHERS = sizeof other / sizeof *other };
    int64_t start = x->at;
    while (x->at < x->n &&
           ((x->text[x->at] >= 'A' && x->text[x->at] <= 'Z') || x->text[x->at] == '_'))
        x->at++;
    for (int i = 0; i < SCHED_OP_COUNT + OTHERS; i++) {
        bool own = i < SCHED_OP_COUNT;
        int k = own ? 0 : i - SCHED_OP_COUNT;
        const char *name = own ? sched_op_name((enum sched_op)i) : other[k].name;
        if ((int64_t)strlen(name) != x->at - start ||
            memcmp(name, x->text + start, strlen(name)) != 0)
            continue;
        in->op = (uint8_t)(own ? i : (int)other[k].op);
        in->peer = (uint16_t)(own ? 0 : other[k].torch);
        return ERR_OK;
    }
    return refuse(x, start, not_read(x, start));
}

/* The text here, passed over. */
static bool take(struct scanner *x, const char *word)
{
    int64_t n = (int64_t)strlen(word);
    if (x->n - x->at < n || memcmp(x->text + x->at, word, (size_t)n) != 0)
        return false;
    x->at += n;
    return true;
}

/* torch: it may be in torch's words, behind which a microbatch may follow, and says nothing. */
static enum err read_instr(struct scanner *x, bool torch, struct sched_instr *in)
{
    int64_t start = x->at;
    int stage = 0, seg = 0, mb = 0;
    bool numbered = is_digit(peek(x));
    if (numbered)
        TRY(read_number(x, 0, SCHED_MAX_STAGES, "the stage", &stage));
    if (numbered && take(x, "."))
        TRY(read_number(x, 1, SCHED_MAX_SEGMENTS + 1, "the segment", &seg));
    int64_t name = x->at;
    TRY(read_op(x, in));
    bool sharded = in->peer == IN_TORCH;
    if (sharded && !(torch && numbered && seg == 0))
        return refuse(x, name, not_read(x, name));
    if (numbered != sched_op_names_stage(in->op))
        return refuse(x, start,
                      numbered ? "this names no stage; leave the number out, as in STEP"
                               : "a stage must come first, as in 2F0");
    if (in->op == SCHED_OVERLAP_F_B)
        return refuse(x, start, "OVERLAP_F_B ends a pair, as in (0F1;1B0)OVERLAP_F_B");
    if (sharded ? is_digit(peek(x)) : sched_op_names_microbatch(in->op))
        TRY(read_number(x, 0, SCHED_MAX_MB, "the microbatch", &mb));
    in->stage = (uint16_t)stage;
    in->seg = (uint8_t)seg;
    in->mb = (uint16_t)(sharded ? 0 : mb);
    return ERR_OK;
}

/* "(F;B)OVERLAP_F_B" as three instructions. */
static enum err read_pair(struct scanner *x, struct sched_instr in[3])
{
    int64_t start = x->at++;
    TRY(read_instr(x, false, &in[1]));
    bool whole = take(x, ";");
    if (whole)
        TRY(read_instr(x, false, &in[2]));
    if (!whole || !(take(x, ")OVERLAP_F_B") || take(x, ")OV")) || in[1].op != SCHED_F ||
        in[2].op != SCHED_B)
        return refuse(x, start, "a pair is a forward and a backward, as in (0F1;1B0)OVERLAP_F_B");
    in[0] = (struct sched_instr){.op = SCHED_OVERLAP_F_B, .stage = in[1].stage, .mb = in[1].mb};
    return ERR_OK;
}

static enum err learn(struct found *f, struct sched_instr in)
{
    bool torch = in.peer == IN_TORCH;
    if (torch)
        f->sharded = (int)num_max(f->sharded, in.stage);
    f->waits += in.op == SCHED_OP_COUNT;
    if (in.op == SCHED_OP_COUNT)
        return ERR_OK;
    if (f->n == f->cap) {
        int64_t cap = num_max(1024, 2 * f->cap);
        TRY(mem_grow(f->cap, cap, sizeof *f->instr, "schedule instructions", &f->instr));
        f->cap = cap;
    }
    f->instr[f->n++] = in;
    if (torch)
        return ERR_OK;
    if (in.op >= SCHED_COMPUTE_OPS && in.op != SCHED_OVERLAP_F_B)
        f->lowered = true;
    if (in.op != SCHED_F && in.op != SCHED_SEND_F && in.op != SCHED_RECV_F)
        f->backward = true;
    if (!sched_op_names_stage(in.op))
        return ERR_OK;
    f->stages = (int)num_max(f->stages, in.stage + 1);
    f->mbs = (int)num_max(f->mbs, in.mb + 1);
    f->segments[in.stage] = (uint8_t)num_max(f->segments[in.stage], num_max(in.seg, 1));
    return ERR_OK;
}

static enum err read_line(struct scanner *x, struct found *f)
{
    bool any = false;
    for (;;) {
        struct sched_instr in[3] = {{0}};
        skip_blanks(x);
        if (peek(x) != ',' && !line_ends(x)) {
            bool pair = peek(x) == '(';
            TRY(pair ? read_pair(x, in) : read_instr(x, true, in));
            int64_t end = x->at;
            skip_blanks(x);
            if (peek(x) != ',' && !line_ends(x))
                return refuse(x, end, "this follows a whole cell; use a comma between cells");
            for (int i = 0; i < (pair ? 3 : 1); i++)
                TRY(learn(f, in[i]));
            any = any || in->peer != IN_TORCH;
        }
        if (peek(x) != ',')
            break;
        x->at++;
    }
    if (!any)
        return refuse(x, x->line_start, "the line is empty; every rank needs its instructions");
    x->at += peek(x) == '\r';
    return ERR_OK;
}

static enum err check_found(const struct scanner *x, const struct found *f)
{
    for (int stage = 0; stage < f->stages; stage++)
        if (f->segments[stage] == 0)
            FAIL(ERR_CONFIG,
                 "schedule %s: stage %d is on no line, stage %d is; name every stage from 0",
                 x->name, stage, f->stages - 1);
    if (f->stages == 0)
        FAIL(ERR_CONFIG, "schedule %s: no line names a stage; name every stage from 0", x->name);
    if (f->sharded >= f->stages)
        FAIL(ERR_CONFIG,
             "schedule %s: stage %d is sharded or reduced and computes on no line; the stages that "
             "compute are 0 to %d",
             x->name, f->sharded, f->stages - 1);
    if (f->stages % x->line != 0)
        FAIL(ERR_CONFIG,
             "schedule %s: %d stage%s cannot be spread over %d lines, one a rank; use a "
             "multiple of %d stages",
             x->name, f->stages, text_plural(f->stages, "s"), x->line, x->line);
    return ERR_OK;
}

/* A second replica when stage 0 stands on a second rank. */
static enum err find_ways(struct sched_build *b)
{
    uint16_t *home; /* [m] rank of the first forward of stage 0 */
    int first = NOWHERE; /* home of the first microbatch that has one */
    TRY(b->err);
    TRY(mem_new(b->s.m, sizeof *home, "schedule placement", &home));
    memset(home, 0xff, (size_t)b->s.m * sizeof *home);
    for (int rank = 0; rank < b->s.p; rank++)
        for (int64_t i = b->s.begin[rank]; i < b->s.begin[rank + 1]; i++) {
            struct sched_instr in = b->s.instr[i];
            if (in.stage == 0 && in.op == SCHED_F && home[in.mb] == NOWHERE)
                home[in.mb] = (uint16_t)rank;
        }
    for (int mb = 0; mb < b->s.m; mb++) {
        first = first == NOWHERE ? home[mb] : first;
        if (home[mb] == NOWHERE || home[mb] == first)
            continue;
        sched_build_replicas(b, 2);
        if (b->err == ERR_OK)
            b->s.way[mb] = 1;
    }
    mem_free(home);
    return b->err;
}

/* Placement from the instructions: a stage replica stands on the first rank with a forward of it,
 * or without one anything else of it. */
static enum err find_places(const struct scanner *x, struct sched *s)
{
    int stage_replicas = s->replicas * s->stages;
    for (int h = 0; h < stage_replicas; h++)
        s->place[h] = NOWHERE;
    for (int forwards = 0; forwards < 2; forwards++)
        for (int rank = s->p - 1; rank >= 0; rank--) /* the first one's word is the last */
            for (int64_t i = s->begin[rank]; i < s->begin[rank + 1]; i++)
                if (s->instr[i].op < (forwards ? SCHED_F + 1 : SCHED_REDUCE))
                    s->place[sched_stage_replica(s, s->instr[i].stage, s->instr[i].mb)] =
                        (uint16_t)rank;
    for (int h = 0; h < stage_replicas; h++)
        if (s->place[h] == NOWHERE)
            FAIL(ERR_CONFIG,
                 "schedule %s: stage %d computes on no line%s; name every stage from 0",
                 x->name, h % s->stages,
                 h < s->stages ? "" : " for the microbatches of the second replica");
    return ERR_OK;
}

/* All of a schedule from its instructions, which it takes over. */
static enum err build(const struct scanner *x, struct found *f, struct sched_build *b)
{
    struct sched *s = &b->s;
    TRY(b->err);
    s->forward_only = !f->backward;
    s->lowered = f->lowered;
    s->passed[SCHED_WAIT_REDUCE_GRAD] = f->waits;
    memcpy(s->segments, f->segments, (size_t)s->stages);
    s->instr = f->instr;
    f->instr = NULL;
    for (int rank = 0; rank < s->p; rank++) {
        s->begin[rank] = b->n;
        for (int64_t i = f->begin[rank]; i < f->begin[rank + 1]; i++)
            if (s->instr[i].peer == IN_TORCH && (s->lowered || s->forward_only))
                s->passed[sched_shards_name(s->instr[i].op)]++;
            else
                s->instr[b->n++] = s->instr[i];
    }
    s->begin[s->p] = b->n;
    TRY(find_ways(b));
    TRY(find_places(x, s));
    for (int rank = 0; rank < s->p; rank++)
        for (int64_t i = s->begin[rank]; i < s->begin[rank + 1]; i++)
            s->instr[i].peer = (uint16_t)sched_peer(s, s->instr[i], rank);
    return ERR_OK;
}

static enum err parse(struct scanner *x, struct found *f, struct sched *out)
{
    struct sched_build b;
    TRY(mem_new(SCHED_MAX_RANKS + 1, sizeof *f->begin, "schedule ranks", &f->begin));
    TRY(mem_new(SCHED_MAX_STAGES, sizeof *f->segments, "schedule placement", &f->segments));
    for (; x->at < x->n || x->line == 0; x->line++) { /* then x->line is their number */
        x->line_start = x->at;
        if (x->line == SCHED_MAX_RANKS)
            return refuse(x, x->at, "there are more lines than ranks; use at most 4096");
        TRY(read_line(x, f));
        x->at++; /* the newline; the last line may end without */
        f->begin[x->line + 1] = f->n;
    }
    TRY(check_found(x, f));
    sched_build_open(&b, x->name,
                     &(struct sched_shape){x->line, f->mbs, f->stages / x->line, 0});
    b.err = build(x, f, &b);
    b.rank = x->line - 1;
    return sched_build_done(&b, out);
}

enum err sched_parse(const char *name, const char *text, int64_t n, struct sched *out)
{
    char shown[sizeof out->name]; /* in charts and tables, too */
    printable(name, shown, sizeof shown);
    TRY(text_begin(shown, ERR_CONFIG, &text, &n));
    struct scanner x = {.name = shown, .text = text, .n = n};
    struct found f = {.sharded = -1};
    enum err err = parse(&x, &f, out);
    mem_free(f.instr);
    mem_free(f.begin);
    mem_free(f.segments);
    return err;
}

void sched_print(const struct sched *s, struct text *out)
{
    char cell[SCHED_CELL];
    for (int rank = 0; rank < s->p; rank++) {
        for (int64_t i = s->begin[rank]; i < s->begin[rank + 1]; i++) {
            text_add(out, "%s%s", i > s->begin[rank] ? "," : "", sched_cell_at(s, i, cell));
            i += s->instr[i].op == SCHED_OVERLAP_F_B ? 2 : 0;
        }
        text_add_char(out, '\n', 1);
    }
}
