/* SPDX-License-Identifier: Apache-2.0
 *
 * Schedules as text: the cells that other tools exchange as CSV, a line a rank.
 *
 *     0F0,0F1,,0B0,0B1          stage, instruction, microbatch; an empty cell is an idle slot
 *     1F0,1B0,1F1,1B1
 *
 * The text is read twice by one scanner: first to learn ranks, stages, microbatches and placement,
 * then to write the instructions. A number has no sign and no leading zero; a token ends where its
 * cell ends, so "1F0x" is an error and not 1F0.
 */
#include "sched/sched_build.h"

#include "base/mem.h"
#include <stdio.h>
#include <string.h>

enum { NOWHERE = 0xffff };

struct scanner {
    const char *name, *text;
    int64_t n, at, line_start; /* bytes */
    int line;                  /* 0-based: the rank */
};

/* What the first reading learns. */
struct found {
    int stages, mbs;
    int64_t cells; /* instructions of the current line */
    bool backward, lowered;
    uint16_t *place; /* owned; [SCHED_MAX_STAGES] */
};

static enum err refuse(const struct scanner *x, int64_t at, const char *why)
{
    char cell[25];
    int len = 0;
    while (at + len < x->n && len < 24 && x->text[at + len] != ',' && x->text[at + len] != '\n') {
        char c = x->text[at + len];
        cell[len++] = c >= ' ' && c <= '~' ? c : '?';
    }
    cell[len] = '\0';
    FAIL(ERR_CONFIG, "schedule %s, line %d, column %lld, \"%s\": %s", x->name, x->line + 1,
         (long long)(at - x->line_start + 1), cell, why);
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

static enum err read_number(struct scanner *x, int below, const char *what, int *out)
{
    int64_t start = x->at;
    int value = 0;
    char why[96];
    snprintf(why, sizeof why, "%s is not a number of 0 to %d without leading zeros", what,
             below - 1);
    while (is_digit(peek(x)) && value < below)
        value = 10 * value + (x->text[x->at++] - '0');
    int64_t digits = x->at - start;
    if (digits == 0 || value >= below || (digits > 1 && x->text[start] == '0'))
        return refuse(x, start, why);
    *out = value;
    return ERR_OK;
}

/* The longest name of capital letters and underscores must be one of an instruction. */
static enum err read_op(struct scanner *x, uint16_t *op)
{
    int64_t start = x->at;
    while ((peek(x) >= 'A' && peek(x) <= 'Z') || peek(x) == '_')
        x->at++;
    for (int i = 0; i < SCHED_OP_COUNT; i++) {
        const char *name = sched_op_name((enum sched_op)i);
        if ((int64_t)strlen(name) == x->at - start &&
            memcmp(name, x->text + start, strlen(name)) == 0) {
            *op = (uint16_t)i;
            return ERR_OK;
        }
    }
    return refuse(x, start,
                  "this is no instruction; use F, B, I, W, SEND_F, RECV_F, SEND_B, RECV_B, REDUCE, "
                  "TIED or STEP");
}

static enum err read_cell(struct scanner *x, struct sched_instr *in)
{
    int64_t start = x->at;
    int stage = 0, mb = 0;
    bool numbered = is_digit(peek(x));
    if (numbered)
        TRY(read_number(x, SCHED_MAX_STAGES, "the stage", &stage));
    TRY(read_op(x, &in->op));
    if (numbered == (in->op == SCHED_STEP))
        return refuse(x, start,
                      numbered ? "STEP names no stage" : "a stage must come first, as in 2F0");
    if (in->op < SCHED_REDUCE)
        TRY(read_number(x, SCHED_MAX_MB, "the microbatch", &mb));
    int64_t end = x->at;
    skip_blanks(x);
    if (peek(x) != ',' && !line_ends(x))
        return refuse(x, end, "this follows a whole cell; use a comma between cells");
    in->stage = (uint16_t)stage;
    in->mb = (uint16_t)mb;
    return ERR_OK;
}

static void learn(const struct scanner *x, struct found *f, struct sched_instr in)
{
    f->cells++;
    if (in.op > SCHED_W)
        f->lowered = true;
    if (in.op != SCHED_F && in.op != SCHED_SEND_F && in.op != SCHED_RECV_F)
        f->backward = true;
    if (in.op == SCHED_STEP)
        return;
    if (in.stage >= f->stages)
        f->stages = in.stage + 1;
    if (in.mb >= f->mbs)
        f->mbs = in.mb + 1;
    if (f->place[in.stage] == NOWHERE)
        f->place[in.stage] = (uint16_t)x->line;
}

/* One line into `f` (first reading) or `b` (second). */
static enum err read_line(struct scanner *x, struct found *f, struct sched_build *b)
{
    f->cells = 0;
    for (;;) {
        struct sched_instr in = {0};
        skip_blanks(x);
        if (peek(x) != ',' && !line_ends(x)) {
            TRY(read_cell(x, &in));
            learn(x, f, in);
            if (b)
                sched_build_add(b, (enum sched_op)in.op, in.stage, in.mb);
        }
        if (peek(x) != ',')
            break;
        x->at++;
    }
    if (f->cells == 0)
        return refuse(x, x->line_start, "the line is empty; every rank needs its instructions");
    x->at += peek(x) == '\r';
    return ERR_OK;
}

/* All lines; x->line is then their number. The last may end with or without a newline. */
static enum err read_all(struct scanner *x, struct found *f, struct sched_build *b)
{
    x->at = 0;
    for (x->line = 0; x->at < x->n || x->line == 0; x->line++) {
        x->line_start = x->at;
        if (x->line == SCHED_MAX_RANKS)
            return refuse(x, x->at, "there are more lines than ranks; use at most 4096");
        if (b)
            sched_build_rank(b);
        TRY(read_line(x, f, b));
        x->at++; /* the newline */
    }
    return ERR_OK;
}

static enum err check_found(const struct scanner *x, const struct found *f)
{
    for (int stage = 0; stage < f->stages; stage++)
        if (f->place[stage] == NOWHERE)
            FAIL(ERR_CONFIG,
                 "schedule %s: stage %d is on no line, stage %d is; name every stage from 0",
                 x->name, stage, f->stages - 1);
    if (f->stages == 0 || f->stages % x->line != 0)
        FAIL(ERR_CONFIG,
             "schedule %s: %d stages do not spread over %d lines, one a rank; use a multiple of %d "
             "stages",
             x->name, f->stages, x->line, x->line);
    return ERR_OK;
}

static enum err parse(struct scanner *x, struct found *f, struct sched *out)
{
    struct sched_build b;
    TRY(mem_new(SCHED_MAX_STAGES, sizeof *f->place, "schedule placement", &f->place));
    memset(f->place, 0xff, SCHED_MAX_STAGES * sizeof *f->place);
    TRY(read_all(x, f, NULL));
    TRY(check_found(x, f));
    sched_build_open(&b, x->name, &(struct sched_shape){x->line, f->mbs, f->stages / x->line});
    if (b.err == ERR_OK) {
        memcpy(b.s.place, f->place, (size_t)f->stages * sizeof *f->place);
        b.s.forward_only = !f->backward;
        b.s.lowered = f->lowered;
        enum err err = read_all(x, f, &b);
        ENSURE(err == ERR_OK); /* the first reading has seen every byte */
    }
    TRY(sched_build_done(&b, out));
    return ERR_OK;
}

enum err sched_parse(const char *name, const char *text, int64_t n, struct sched *out)
{
    struct scanner x = {.name = name, .text = text, .n = n};
    struct found f = {0};
    enum err err = parse(&x, &f, out);
    mem_free(f.place);
    return err;
}

void sched_print(const struct sched *s, struct text *out)
{
    char cell[32];
    for (int rank = 0; rank < s->p; rank++) {
        for (int64_t i = s->begin[rank]; i < s->begin[rank + 1]; i++)
            text_add(out, "%s%s", i > s->begin[rank] ? "," : "", sched_cell(&s->instr[i], cell));
        text_add_char(out, '\n', 1);
    }
}
