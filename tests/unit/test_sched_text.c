/* SPDX-License-Identifier: Apache-2.0
 *
 * Schedules as text: what is read and what is refused, random damage, and random valid schedules
 * (any placement, any order that obeys the data) through lowering and check.
 */
#include "sched/sched.h"

#include "base/mem.h"
#include "base/num.h"
#include "test.h"

static const struct sched_lower_args no_ends = {0};
static const struct sched_lower_args all_ends = {.reduce = true, .tied = true, .step = true};

static enum err parse(const char *text, struct sched *out)
{
    return sched_parse("test", text, (int64_t)strlen(text), out);
}

static void check_text(const struct sched *s, const char *want)
{
    struct text t = {0};
    char *got;
    sched_print(s, &t);
    CHECK_OK(text_done(&t, &got));
    CHECK_STR(got, want);
    mem_free(got);
}

static void text_refused(void)
{
    static const struct {
        const char *text, *part;
    } bad[] = {
        {"", "line 1, column 1, \"\": the line is empty"},
        {"\n", "the line is empty"},
        {"0F0,0B0\n\n1F0,1B0\n", "line 2, column 1"},
        {",,,\n", "the line is empty"},
        {"0F0garbage,0B0\n", "line 1 (rank 0), cell 1, \"0F0garbage\", column 4, \"garbage\": this "
                             "follows a whole cell"},
        {"0F0 0B0\n", "column 4, \" 0B0\": this follows"},
        {"0F0,0BACKWARD0\n", "column 6, \"BACKWARD0\": this is no instruction"},
        {"0F0,0B\n", "column 7, \"\": the microbatch is not a number"},
        {"0F0,F1\n", "column 5, \"F1\": a stage must come first"},
        {"0F0,0B0,0STEP\n", "this names no stage"},
        {"0F00,0B0\n", "\"00\": the microbatch is not a number of 0 to 65534"},
        {"00F0,0B0\n", "the stage is not a number"},
        {"16384F0\n", "the stage is not a number of 0 to 16383"},
        {"0F65535\n", "the microbatch is not a number of 0 to 65534"},
        {"0F99999999999999999999\n", "the microbatch is not a number"},
        {"0F-1\n", "\"-1\": the microbatch"},
        {"-1F0\n", "\"-1F0\": this is no instruction"},
        {"0f0\n", "\"f0\": instructions are in capital letters, as in 0F1"},
        {"0PV_CHECK_SEND\n", "docs/simulator.md has the rest"},
        {"0F0,0B0\n1F0, 1X0,1B0\n", "line 2 (rank 1), cell 2, \"1X0\", column 7, \"X0\": this is "
                                    "no instruction; a cell is a stage, one of F (forward), B"},
        {"0F0,(0F1;0Q0)OVERLAP_F_B\n", "cell 2, \"(0F1;0Q0)OVERLAP_F_B\", column 11, \"Q0)OV"},
        {"rank,seq\n0F0,0B0\n", "the first line is rank 0's, and none has names of columns"},
        {"\"0F0\",\"0B0\"\n", "cells have no quotes; write 0F0,0B0"},
        {"0F0;0B0\n", "\";0B0\": this follows a whole cell; use a comma between cells"},
        {"0F0\r0B0\n", "this follows a whole cell"},
        {"0F0,0B0\n2F0,2B0\n", "stage 1 is on no line"},
        {"0F0,0B0\n1F0,1B0,2F0,2B0\n", "3 stages cannot be spread over 2 lines"},
        {"NORM,STEP\n", "no line names a stage; name every stage from 0"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct sched s;
        CHECK_ERR(parse(bad[i].text, &s), ERR_CONFIG, bad[i].part);
    }
    struct sched s;
    CHECK_ERR(sched_parse("nul", "0F0\0,0B0", 8, &s), ERR_CONFIG, "column 4, \"?\"");
}

static void text_accepted(void)
{
    static const struct {
        const char *text, *again;
    } good[] = {
        {"0F0,0B0", "0F0,0B0\n"},
        {"0F0,0B0\r\n1F0,1B0\r\n", "0F0,0B0\n1F0,1B0\n"},
        {",0F0,,0B0,\n1F0,1B0,,\n", "0F0,0B0\n1F0,1B0\n"},
        {" 0F0 ,\t0B0 \n", "0F0,0B0\n"},
        {"0F0,1F0,1I0,1W0,0B0\n", "0F0,1F0,1I0,1W0,0B0\n"},
        /* names of before */
        {"0F0,0B0,WAIT,0TIED\n1F0,1B0,WAIT,1TIED,NORM", "0F0,0B0,WAIT,0EMBED_REDUCE\n"
                                                        "1F0,1B0,WAIT,1EMBED_REDUCE,NORM\n"},
        {"0F0,1F1,0MERGE\n1F0,0F1,1MERGE", "0F0,1F1,0REPLICA_REDUCE\n1F0,0F1,1REPLICA_REDUCE\n"},
        {"0F0,(0F1;0B0)OV,0B1", "0F0,(0F1;0B0)OVERLAP_F_B,0B1\n"},
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct sched s;
        CHECK_OK(parse(good[i].text, &s));
        check_text(&s, good[i].again);
        sched_free(&s);
    }
    struct sched s;
    CHECK_OK(parse("0F0,0F1\n1F0,1F1\n", &s));
    CHECK(s.forward_only && !s.lowered && s.m == 2 && s.v == 1);
    sched_free(&s);
    CHECK_OK(parse("1F0,2F0,2B0,1B0\n0F0,3F0,3B0,0B0\n", &s)); /* placement is what the text says */
    CHECK(s.place[0] == 1 && s.place[1] == 0 && s.place[2] == 0 && s.place[3] == 1 && s.v == 2);
    sched_free(&s);
}

/* Whatever text comes: an error, or a schedule that survives the whole way and its own print.
 * True when it could be read. */
static bool survive(const char *text, int64_t n)
{
    struct sched s, low, again;
    struct sched_report r;
    if (sched_parse("fuzz", text, n, &s) != ERR_OK)
        return false;
    struct text print = {0};
    sched_print(&s, &print);
    CHECK_OK(sched_parse("fuzz", print.s, print.len, &again));
    CHECK(again.begin[again.p] == s.begin[s.p] && again.lowered == s.lowered);
    text_free(&print);
    sched_free(&again);
    enum err checked = sched_check(&s, &r);
    sched_report_free(&r);
    if (!s.lowered && sched_lower(&s, &no_ends, &low) == ERR_OK) {
        CHECK_OK(checked);
        CHECK_OK(sched_check(&low, &r));
        sched_report_free(&r);
        sched_free(&low);
    }
    sched_free(&s);
    return true;
}

/* One random damage to a text of *len bytes; there is room for one more. */
static void damage(char *text, int64_t *len)
{
    static const char alphabet[] = "0123456789FBIW,\n\r SENDRCV_TIP\t-x\xff();OVMG";
    int64_t at = test_range(0, *len - 1), cut = num_min(test_range(1, 4), *len - at);
    char c = alphabet[test_range(0, (int64_t)sizeof alphabet - 2)];
    switch (test_range(0, 3)) {
    case 0: /* replace */
        text[at] = c;
        break;
    case 1: /* insert */
        memmove(text + at + 1, text + at, (size_t)(*len - at));
        text[at] = c;
        ++*len;
        break;
    case 2: /* remove a few, not all */
        if (cut == *len)
            break;
        memmove(text + at, text + at + cut, (size_t)(*len - at - cut));
        *len -= cut;
        break;
    default: /* swap two bytes */
        c = text[at];
        text[at] = text[*len - 1 - at];
        text[*len - 1 - at] = c;
    }
}

static void fuzz(void)
{
    static const char *const seed[] = {
        "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n",
        "0F0,3F0,3I0,3W0,0I0,0W0\n1F0,2F0,2B0,1I0,1W0\n",
        ("0F0,0SEND_F0,0RECV_B0,0.2B0,0.2REDUCE,0.1B0,0.1REDUCE,WAIT,0EMBED_REDUCE,NORM,STEP\n"
         "1RECV_F0,1F0,1B0,1SEND_B0,1REDUCE,WAIT,1EMBED_REDUCE,NORM,STEP\n"),
        "0F0,1F2,0F1,1B2,(1F3;0B0)OV,1B3,0B1\n0F2,1F0,0F3,1B0,(1F1;0B2)OV,1B1,0B3\n",
        ("0F0,0SEND_F0,1RECV_F1,1F1,1B1,1SEND_B1,0RECV_B0,0B0,0REDUCE,1REDUCE,WAIT,0REPLICA_REDUCE,"
         "1REPLICA_REDUCE,NORM,STEP\n"
         "0F1,0SEND_F1,1RECV_F0,1F0,1B0,1SEND_B0,0RECV_B1,0B1,0REDUCE,1REDUCE,WAIT,0REPLICA_REDUCE,"
         "1REPLICA_REDUCE,NORM,STEP\n"),
    };
    int read = 0;
    for (int n = 0; n < 120000; n++) {
        char text[256];
        int64_t len = (int64_t)strlen(seed[n % 5]);
        memcpy(text, seed[n % 5], (size_t)len);
        for (int64_t k = test_range(1, 4); k > 0; k--)
            damage(text, &len);
        read += survive(text, len);
    }
    CHECK(read > 1000 && read < 110000); /* both sides of the parser were visited */
}

/* ---- random valid schedules: random placement, random topological order ---- */

enum { MAX_P = 5, MAX_STAGES = 12, MAX_M = 5 };

struct world {
    int p, stages, m;
    int place[MAX_STAGES];
    bool split[MAX_STAGES][MAX_M];
    bool done[3][MAX_STAGES][MAX_M]; /* F, B or I, W (with B set as well) */
};

static struct world random_world(void)
{
    struct world w = {.p = (int)test_range(1, MAX_P), .m = (int)test_range(1, MAX_M)};
    int v = (int)test_range(1, MAX_STAGES / w.p);
    w.stages = w.p * v;
    for (int s = 0; s < w.stages; s++)
        w.place[s] = s < w.p ? s : (int)test_range(0, w.p - 1); /* every rank holds one */
    for (int s = w.stages - 1; s > 0; s--) {
        int other = (int)test_range(0, s), keep = w.place[s];
        w.place[s] = w.place[other];
        w.place[other] = keep;
    }
    for (int s = 0; s < w.stages; s++)
        for (int mb = 0; mb < w.m; mb++)
            w.split[s][mb] = test_range(0, 1);
    return w;
}

static bool may_run(const struct world *w, int kind, int s, int mb)
{
    if (w->done[kind][s][mb])
        return false;
    if (kind == 0)
        return s == 0 || w->done[0][s - 1][mb];
    if (kind == 1)
        return w->done[0][s][mb] && (s == w->stages - 1 || w->done[1][s + 1][mb]);
    return w->done[1][s][mb];
}

/* Runs the whole world in a random order that obeys the data, writing each rank's list. */
static void random_text(struct world *w, struct text line[MAX_P])
{
    for (int left = 3 * w->stages * w->m; left > 0;) {
        int kind = (int)test_range(0, 2), s = (int)test_range(0, w->stages - 1);
        int mb = (int)test_range(0, w->m - 1);
        if (!may_run(w, kind, s, mb))
            continue;
        bool split = w->split[s][mb];
        w->done[kind][s][mb] = true;
        left--;
        if (kind == 1 && !split) {
            w->done[2][s][mb] = true;
            left--;
        }
        text_add(&line[w->place[s]], "%s%d%c%d", line[w->place[s]].len ? "," : "", s,
                 kind == 0   ? 'F'
                 : kind == 2 ? 'W'
                 : split     ? 'I'
                             : 'B',
                 mb);
    }
}

/* An own, slow machine with real queues: receives must find their message at the head. */
struct queues {
    uint16_t message[MAX_P][MAX_P][2][MAX_STAGES * MAX_M][2]; /* from, to, kind: using stage, mb */
    int head[MAX_P][MAX_P][2], tail[MAX_P][MAX_P][2];
};

/* False: a receive that must wait. */
static bool run_instr(struct queues *q, int rank, struct sched_instr in)
{
    int kind = in.op == SCHED_SEND_B || in.op == SCHED_RECV_B;
    if (in.op == SCHED_SEND_F || in.op == SCHED_SEND_B) {
        uint16_t *m = q->message[rank][in.peer][kind][q->tail[rank][in.peer][kind]++];
        m[0] = (uint16_t)(kind ? in.stage - 1 : in.stage + 1);
        m[1] = in.mb;
    } else if (in.op == SCHED_RECV_F || in.op == SCHED_RECV_B) {
        int *head = &q->head[in.peer][rank][kind];
        if (*head == q->tail[in.peer][rank][kind])
            return false;
        uint16_t *m = q->message[in.peer][rank][kind][(*head)++];
        CHECK(m[0] == in.stage && m[1] == in.mb);
    }
    return true;
}

static void run_with_queues(const struct sched *s)
{
    static struct queues q;
    int64_t at[MAX_P];
    memset(&q, 0, sizeof q);
    for (int r = 0; r < s->p; r++)
        at[r] = s->begin[r];
    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < s->p; r++)
            for (; at[r] < s->begin[r + 1] && run_instr(&q, r, s->instr[at[r]]); at[r]++)
                moved = true;
    }
    for (int r = 0; r < s->p; r++)
        CHECK_INT(at[r], s->begin[r + 1]);
    CHECK(memcmp(q.head, q.tail, sizeof q.head) == 0);
}

static void random_schedules(void)
{
    for (int n = 0; n < 1500; n++) {
        struct world w = random_world();
        struct text line[MAX_P] = {{0}}, all = {0};
        random_text(&w, line);
        for (int r = 0; r < w.p; r++) {
            text_add(&all, "%s\n", line[r].s);
            text_free(&line[r]);
        }
        struct sched s, low;
        struct sched_report r = {0};
        CHECK_OK(parse(all.s, &s));
        for (int stage = 0; stage < w.stages; stage++)
            CHECK_INT(s.place[stage], w.place[stage]);
        CHECK_OK(sched_lower(&s, &all_ends, &low));
        if (!test_check(sched_check(&low, &r) == ERR_OK, __FILE__, __LINE__, "%s\n%s", all.s,
                        err_text())) {
            text_free(&all);
            return;
        }
        run_with_queues(&low);
        sched_report_free(&r);
        sched_free(&low);
        sched_free(&s);
        text_free(&all);
    }
}

static const struct test_case cases[] = {
    {"text_refused", text_refused},
    {"text_accepted", text_accepted},
    {"fuzz", fuzz},
    {"random_schedules", random_schedules},
};
TEST_MAIN(cases)
