/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists in the syntax of PyTorch's pipelining: what its schedules write (compute alone; lowered,
 * with sends and what is done to sharded weights) is read here, and what is written here is read by
 * its grammar, which stands below as a reader of its own: a stage, a name, digits; in parentheses
 * two of these; an empty cell is no action.
 */
#include "sched/sched.h"

#include "base/mem.h"
#include "base/num.h"
#include "plait.h"
#include "test.h"

#include <stdlib.h>
#include <unistd.h>

static enum err parse(const char *text, struct sched *out)
{
    return sched_parse("mine.csv", text, (int64_t)strlen(text), out);
}

static void check_print(const struct sched *s, const char *want)
{
    struct text t = {0};
    sched_print(s, &t);
    CHECK_STR(t.s, want);
    text_free(&t);
}

static void check_passed(const struct sched *s, const char *want)
{
    struct text t = {0};
    sched_passed_add(s, &t);
    CHECK_STR(t.s ? t.s : "", want);
    CHECK(sched_passed_any(s) == (want[0] != '\0'));
    text_free(&t);
}

/* Lists as PyTorch writes them, what is left of them, and what is said of the rest. */
static void lists_read(void)
{
    static const struct { const char *text, *left, *passed; } list[] = {
        {"0UNSHARD,0F0,0B0,0REDUCE_GRAD,0RESHARD\r\n1UNSHARD,1F0,1B0,1REDUCE_GRAD,1RESHARD\r\n",
         "0UNSHARD,0F0,0B0,0REDUCE_GRAD,0RESHARD\n1UNSHARD,1F0,1B0,1REDUCE_GRAD,1RESHARD\n", ""},
        {"0UNSHARD,0F0,0SEND_F0,0RECV_B0,0I0,0W0,0REDUCE_GRAD,0WAIT_REDUCE_GRAD\r\n"
         "1RECV_F0,1F0,1I0,1SEND_B0,1W0,1REDUCE_GRAD,1WAIT_REDUCE_GRAD\r\n",
         "0F0,0SEND_F0,0RECV_B0,0I0,0W0\n1RECV_F0,1F0,1I0,1SEND_B0,1W0\n",
         "1 UNSHARD, 2 REDUCE_GRAD, 2 WAIT_REDUCE_GRAD"},
        {"0F0,3F0,,3I0,3W0,,0B0,3REDUCE_GRAD\n1F0,2F0,2B0,1B0,,,,\n",
         "0F0,3F0,3I0,3W0,0B0,3REDUCE_GRAD\n1F0,2F0,2B0,1B0\n", ""},
        {"0F0,(0F1;0B0)OVERLAP_F_B,0B1,0RESHARD\n", "0F0,(0F1;0B0)OVERLAP_F_B,0B1,0RESHARD\n",
         ""},
        {"0F0,(0F1;0B0)OV,0B1\n", "0F0,(0F1;0B0)OVERLAP_F_B,0B1\n", ""},
        {" 0UNSHARD\t, 0UNSHARD3 ,0F0,0B0", "0UNSHARD,0UNSHARD,0F0,0B0\n", ""},
        {"0UNSHARD,0F0,0F1,0RESHARD\n", "0F0,0F1\n", "1 UNSHARD, 1 RESHARD"}, /* forward only */
        {"0F0,0B0,0REDUCE_GRAD,0WAIT_REDUCE_GRAD\n", "0F0,0B0,0REDUCE_GRAD\n",
         "1 WAIT_REDUCE_GRAD"},
        {"\xef\xbb\xbf" "0F0,0B0\r\n", "0F0,0B0\n", ""},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        struct sched s;
        CHECK_OK(parse(list[i].text, &s));
        check_print(&s, list[i].left);
        check_passed(&s, list[i].passed);
        sched_free(&s);
    }
}

static void lists_refused(void)
{
    static const struct { const char *text, *part; } bad[] = {
        {"UNSHARD,0F0,0B0\n", "this is no instruction; a cell is a stage, one of F"},
        {"0F0,0UNSHARDED,0B0\n", "this is no instruction"},
        {"0F0,0UNSHARD x,0B0\n", "this follows a whole cell"},
        {"0F0,0RESHARD0x,0B0\n", "this follows a whole cell"},
        {"0F0,00UNSHARD,0B0\n", "the stage is not a number"},
        {"0F0,16384RESHARD,0B0\n", "the stage is not a number of 0 to 16383"},
        {"0F0,0RESHARD65535,0B0\n", "the microbatch is not a number"},
        {"0F0,4UNSHARD,0B0\n", "stage 4 is sharded or reduced and computes on no line"},
        {"0F0,(0UNSHARD;0B0)OVERLAP_F_B\n", "this is no instruction"},
        {"0F0,0B0\n1UNSHARD,1RESHARD\n", "line 2 (rank 1), cell 1"},
        {"0unshard,0F0,0B0\n", "instructions are in capital letters"},
        {"rank,seq,action,start,end\n", "none has names of columns"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct sched s;
        CHECK_ERR(parse(bad[i].text, &s), ERR_CONFIG, bad[i].part);
    }
}

/* ---- PyTorch's grammar ---- */

/* Digits at *at into *out; false: there are none. */
static bool digits(const char **at, int *out)
{
    char *end;
    if (**at < '0' || **at > '9')
        return false;
    *out = (int)strtol(*at, &end, 10);
    *at = end;
    return true;
}

/* One action without parentheses; its name must be one of PyTorch's. */
static bool action(const char **at, struct sched_instr *out)
{
    static const struct { const char *name; int op; } known[] = {
        {"F", SCHED_F}, {"B", SCHED_B}, {"I", SCHED_I}, {"W", SCHED_W}, {"SEND_F", SCHED_SEND_F},
        {"RECV_F", SCHED_RECV_F}, {"SEND_B", SCHED_SEND_B}, {"RECV_B", SCHED_RECV_B},
        {"UNSHARD", SCHED_GATHER}, {"RESHARD", SCHED_DROP}, {"REDUCE_GRAD", SCHED_REDUCE},
    };
    int stage, mb;
    if (!digits(at, &stage))
        return false;
    size_t n = strcspn(*at, "0123456789,;)\n");
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strlen(known[i].name) != n || strncmp(known[i].name, *at, n) != 0)
            continue;
        *at += n;
        *out = (struct sched_instr){.op = (uint8_t)known[i].op, .stage = (uint16_t)stage};
        if (sched_op_shards(known[i].op))
            return true; /* no microbatch follows */
        return digits(at, &mb) && (out->mb = (uint16_t)mb, true);
    }
    return false;
}

/* The whole text against the list that it was written from. */
static bool torch_reads(const char *at, const struct sched *s)
{
    for (int rank = 0; rank < s->p; rank++) {
        for (int64_t i = s->begin[rank]; i < s->begin[rank + 1]; i++) {
            struct sched_instr in[2];
            bool pair = *at == '(';
            at += pair;
            if (!action(&at, &in[0]) || (pair && (*at++ != ';' || !action(&at, &in[1]))))
                return false;
            if (pair && strncmp(at, ")OVERLAP_F_B", 12) != 0)
                return false;
            at += pair ? 12 : 0;
            for (int k = 0; k <= pair; k++) {
                const struct sched_instr *want = &s->instr[i + pair + k];
                if (want->op != in[k].op || want->stage != in[k].stage || want->mb != in[k].mb)
                    return false;
            }
            i += pair ? 2 : 0;
            if (*at++ != (i + 1 < s->begin[rank + 1] ? ',' : '\n'))
                return false;
        }
    }
    return *at == '\0';
}

/* The list with what PyTorch adds to it, in random places: empty cells, blanks, line ends, and
 * count[] actions of sharded weights. */
static void decorate(const struct sched *s, const char *plain, int64_t count[SCHED_PASSED_OPS],
                     struct text *out)
{
    memset(count, 0, SCHED_PASSED_OPS * sizeof *count);
    for (const char *at = plain; *at;) {
        size_t n = strcspn(at, ",\n");
        while (test_range(0, 3) == 0) {
            int op = (int)test_range(0, SCHED_PASSED_OPS - 1);
            count[op]++;
            text_add(out, "%d%s,", (int)test_range(0, s->stages - 1),
                     sched_passed_name((enum sched_passed)op));
        }
        text_add(out, "%s%s%.*s%s", test_range(0, 5) ? "" : ",", test_range(0, 5) ? "" : " ",
                 (int)n, at, test_range(0, 5) ? "" : " ");
        at += n;
        text_add(out, "%s", *at == ',' ? "," : test_range(0, 1) ? "\r\n" : "\n");
        at++;
    }
}

/* Takes out of a compute-only list what it says about shards, and counts that, too. */
static void undecorate(struct sched *s)
{
    int64_t n = 0, begin = 0;
    for (int rank = 0; rank < s->p; rank++) {
        int64_t end = s->begin[rank + 1];
        for (int64_t i = begin; i < end; i++) {
            int op = s->instr[i].op;
            if (s->lowered || !sched_op_shards(op))
                s->instr[n++] = s->instr[i];
            else
                s->passed[op == SCHED_GATHER ? SCHED_UNSHARD
                          : op == SCHED_DROP ? SCHED_RESHARD : SCHED_REDUCE_GRAD]++;
        }
        begin = end;
        s->begin[rank + 1] = n;
    }
}

static void check_trip(const struct sched *s)
{
    struct text plain = {0}, torch = {0}, printed = {0};
    struct sched again;
    int64_t count[SCHED_PASSED_OPS];
    sched_print(s, &plain);
    CHECK(torch_reads(plain.s, s));
    decorate(s, plain.s, count, &torch);
    CHECK_OK(sched_parse("again", torch.s, torch.len, &again));
    sched_print(&again, &printed);
    CHECK(torch_reads(printed.s, &again));
    undecorate(&again);
    CHECK(again.p == s->p && again.m == s->m && again.v == s->v);
    CHECK(again.replicas == s->replicas || s->m == 1); /* one microbatch goes one way */
    CHECK(again.lowered == s->lowered || s->p == 1);   /* one rank has no messages */
    CHECK(memcmp(again.begin, s->begin, (size_t)(s->p + 1) * sizeof *s->begin) == 0);
    CHECK(memcmp(again.instr, s->instr, (size_t)s->begin[s->p] * sizeof *s->instr) == 0);
    CHECK(memcmp(again.passed, count, sizeof count) == 0);
    sched_free(&again);
    text_free(&plain);
    text_free(&torch);
    text_free(&printed);
}

/* Every schedule, compute alone and lowered. */
static void round_trip(void)
{
    int made = 0;
    for (int k = 0; k < sched_kind_count(); k++) {
        const struct sched_kind *kind = sched_kind_at(k);
        for (int n = 0; n < 40; n++) {
            int v = kind->chunks ? kind->chunks : (int)test_range(1, 4);
            struct sched_shape shape = {(int)test_range(1, 8), (int)test_range(1, 24), v, 0};
            int slices = kind->make_sliced ? (int)test_range(1, 4) : 0;
            struct sched s, low;
            enum err err = slices ? sched_make_sliced(kind->name, &shape, slices, &s)
                                  : sched_make(kind->name, &shape, NULL, &s);
            if (err != ERR_OK)
                continue;
            check_trip(&s);
            if (slices <= 1) {
                CHECK_OK(sched_lower(&s, &(struct sched_lower_args){0}, &low));
                check_trip(&low);
                sched_free(&low);
            }
            sched_free(&s);
            made++;
        }
        test_check(made > 3 * (k + 1), __FILE__, __LINE__, "%s: no shape was made", kind->name);
    }
}

/* ---- through the passes ---- */

enum { REDUCED = 1, SHARED = 2, RECOMPUTED = 4, CANONICAL = 8, SEGMENTED = 16 };

/* `s` is what the pass has made of it, if it was run. */
static void replace(struct sched *s, enum err err, struct sched *made)
{
    CHECK_OK(err);
    if (err == ERR_OK) {
        sched_free(s);
        *s = *made;
    }
}

/* What the list says about shards stays where it stands, once; what has no use is counted. */
static void shards_are_carried(void)
{
    static const char once[] = "0UNSHARD,0F0,0F1,0B0,0B1,0REDUCE_GRAD,0RESHARD\n";
    static const char twice[] = "0UNSHARD,0F0,0F1,0RESHARD,0UNSHARD,0B0,0B1,0RESHARD\n";
    static const char late[] = "0F0,1F0,1B0,0B0,1REDUCE_GRAD,0REDUCE_GRAD\n";
    static const struct { const char *text; int way; const char *want, *passed; } list[] = {
        {once, 0, "0F0,0F1,0B0,0B1,NORM,STEP\n", "1 UNSHARD, 1 RESHARD, 1 REDUCE_GRAD"},
        {once, REDUCED, "0F0,0F1,0B0,0B1,0REDUCE,WAIT,NORM,STEP\n", "1 UNSHARD, 1 RESHARD"},
        {once, REDUCED | SHARED,
         "0F0,0F1,0B0,0B1,0REDUCE,WAIT,NORM,0UPDATE,0GATHER,WAIT\n", ""},
        {once, REDUCED | SHARED | SEGMENTED,
         "0F0,0F1,0B0,0.2B1,0.2REDUCE,0.1B1,0.1REDUCE,WAIT,NORM,0.1UPDATE,0.1GATHER,"
         "0.2UPDATE,0.2GATHER,WAIT\n", ""},
        {twice, REDUCED | SHARED,
         "0F0,0F1,0DROP,0GATHER,0B0,0B1,0REDUCE,WAIT,NORM,0UPDATE,0GATHER,WAIT\n", ""},
        {twice, REDUCED | SHARED | RECOMPUTED,
         "0F0,0F1,0DROP,0GATHER,0R0,0B0,0R1,0B1,0REDUCE,WAIT,NORM,0UPDATE,0GATHER,WAIT\n",
         ""},
        {"0F0,0RESHARD,0UNSHARD,0B0\n", RECOMPUTED, /* directly behind its forward */
         "0F0,0B0,NORM,STEP\n", "1 UNSHARD, 1 RESHARD"},
        {"0UNSHARD,0F0,0F1,0B1,0RESHARD,0UNSHARD,0B0,0REDUCE_GRAD,0RESHARD\n",
         REDUCED | SHARED | CANONICAL,
         "0F0,0F1,0I1,0DROP,0GATHER,0B0,0W1,0REDUCE,WAIT,NORM,0UPDATE,0GATHER,WAIT\n", ""},
        {late, REDUCED, "0F0,1F0,1B0,0B0,1REDUCE,0REDUCE,WAIT,NORM,STEP\n", ""},
        {late, REDUCED | SEGMENTED,
         "0F0,1F0,1.2B0,1.1B0,0.2B0,0.2REDUCE,0.1B0,0.1REDUCE,1REDUCE,WAIT,NORM,STEP\n", ""},
        {"0F0,1F0,1B0,1REDUCE_GRAD,0B0\n", REDUCED | SEGMENTED, /* the other one is added */
         "0F0,1F0,1.2B0,1.2REDUCE,1.1B0,1.1REDUCE,0.2B0,0.2REDUCE,0.1B0,0.1REDUCE,WAIT,NORM,"
         "STEP\n", ""},
        {"0UNSHARD,0UNSHARD,0F0,0UNSHARD,0B0,0RESHARD\n", REDUCED | SHARED, /* what is whole */
         "0F0,0B0,0REDUCE,WAIT,NORM,0UPDATE,0GATHER,WAIT\n", ""},
        {"0UNSHARD,0F0,0B0,0REDUCE_GRAD,0RESHARD\n1UNSHARD,1F0,1B0,1RESHARD\n", REDUCED | SHARED,
         "0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE,WAIT,NORM,0UPDATE,0GATHER,WAIT\n"
         "1RECV_F0,1F0,1B0,1SEND_B0,1REDUCE,WAIT,NORM,1UPDATE,1GATHER,WAIT\n", ""},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        struct sched s, made;
        struct sched_report r;
        int way = list[i].way;
        CHECK_OK(parse(list[i].text, &s));
        if (way & CANONICAL)
            replace(&s, sched_canonical(&s, false, &made), &made);
        if (way & RECOMPUTED)
            replace(&s, sched_recompute(&s, &made), &made);
        struct sched_lower_args a = {.reduce = way & REDUCED, .step = true, .shared = way & SHARED};
        replace(&s, sched_lower(&s, &a, &made), &made);
        if (way & SEGMENTED)
            replace(&s, sched_segment(&s, (const uint8_t[]){2, 2}, false, &made), &made);
        if (way & SHARED)
            replace(&s, sched_zero(&s, &made), &made);
        check_print(&s, list[i].want);
        check_passed(&s, list[i].passed);
        CHECK_OK(sched_check(&s, &r));
        sched_report_free(&r);
        sched_free(&s);
    }
}

/* Both the check of such a list and its lowering refuse what breaks a rule. */
static void shards_refused(void)
{
    static const struct { const char *text, *part; } bad[] = {
        {"0F0,0F1,0B0,0REDUCE_GRAD,0B1\n",
         "breaks V9 (reduction) at rank 0, place 3, 0REDUCE_GRAD: only 1 of 2 weight gradients"},
        {"0F0,0B0,0REDUCE_GRAD,0REDUCE_GRAD\n", "breaks V1 (coverage) at rank 0, place 3"},
        {"0F0,0B0,1UNSHARD\n1F0,1B0\n", "breaks V2 (placement) at rank 0, place 2, 1UNSHARD"},
        {"0RESHARD,0F0,0B0\n", "breaks V13 (weights) at rank 0, place 1, 0F0: it computes with "
         "weights of stage 0 that are not whole here; put 0UNSHARD before it"},
        {"0F0,0RESHARD,0RESHARD,0UNSHARD,0B0\n", "others' weights are not here; remove it"},
        {"0F0,0RESHARD,0UNSHARD,0RESHARD,0UNSHARD,0B0\n", "nothing has used the weights"},
        {"0F0,0RESHARD,0UNSHARD,0UNSHARD,0B0\n", "they are being gathered already; remove it"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct sched s, low;
        struct sched_report r;
        CHECK_OK(parse(bad[i].text, &s));
        CHECK_ERR(sched_check(&s, &r), ERR_CONFIG, bad[i].part);
        sched_report_free(&r);
        CHECK_ERR(sched_lower(&s, &(struct sched_lower_args){.reduce = true, .shared = true}, &low),
                  ERR_CONFIG, bad[i].part);
        sched_free(&s);
    }
}

/* ---- the verb ---- */

/* The answer to a question, or its refusal. */
static void ask(struct plait_sim a, const char *part)
{
    char *page = NULL;
    a.size = sizeof a;
    bool said = plait_simulate(&a, &page) == PLAIT_OK;
    const char *text = said ? page : plait_error();
    test_check(strstr(text, part) != NULL, __FILE__, __LINE__, "wanted \"%s\" in:\n%s", part, text);
    plait_free(page);
}

static void write_file(const char *name, const char *text)
{
    FILE *f = fopen(name, "w");
    if (CHECK(f != NULL)) {
        fputs(text, f);
        fclose(f);
    }
}

/* In every answer of the verb, by every way to name the file. */
static void files_are_played(void)
{
    static const char list[] = "0UNSHARD,0F0,0F1,0B0,0B1,0RESHARD\n"
                               "1UNSHARD,1F0,1B0,1F1,1B1,1RESHARD\n";
    static const char *const name[] = {"mine.csv", "./mine.csv", "file:mine.csv", "list",
                                       "1f1b.csv", "a@2.csv"};
    for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
        write_file(name[i] + (strncmp(name[i], "file:", 5) == 0 ? 5 : 0), list);
        ask((struct plait_sim){.schedule = name[i]}, "passed over 2 UNSHARD, 2 RESHARD\n");
        ask((struct plait_sim){.schedule = name[i], .format = "json"},
            "\"passed_over\": {\"UNSHARD\": 2, \"RESHARD\": 2}");
        ask((struct plait_sim){.schedule = name[i], .format = "gantt", .width = 80},
            "passed over: 2 UNSHARD, 2 RESHARD");
        ask((struct plait_sim){.schedule = name[i], .format = "text"},
            "0UNSHARD,0F0,0F1,0B0,0B1,0RESHARD\n1U");
        ask((struct plait_sim){.compare = name[i]}, "passed over 2 UNSHARD, 2 RESHARD\n");
        ask((struct plait_sim){.table = name[i]}, "a file of one shape");
    }
    ask((struct plait_sim){.compare = "1f1b,mine.csv@1", .p = 2, .m = 2}, "mine.csv");
    ask((struct plait_sim){.schedule = "none.csv"}, "cannot read none.csv: no such file");
    ask((struct plait_sim){.schedule = "1f1", .p = 2, .m = 2}, "the nearest is 1f1b");
    write_file("1f1b", "0F0,0B0\n"); /* a name is a name, whatever lies there */
    ask((struct plait_sim){.schedule = "1f1b", .p = 2, .m = 3}, "2 ranks, 3 microbatches");
    write_file("run.yaml", "train:\n  steps: 3\n");
    ask((struct plait_sim){.schedule = "run.yaml"},
        "a configuration is named with --model run.yaml");
}

static const struct test_case cases[] = {
    {"lists_read", lists_read},
    {"lists_refused", lists_refused},
    {"round_trip", round_trip},
    {"shards_are_carried", shards_are_carried},
    {"shards_refused", shards_refused},
    {"files_are_played", files_are_played},
};
TEST_MAIN(cases)
