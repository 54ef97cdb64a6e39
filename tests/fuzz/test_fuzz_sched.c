/* SPDX-License-Identifier: Apache-2.0
 *
 * Schedule text, fed with damage: whatever comes, the parser answers with an error or a schedule,
 * and what it accepts goes through print, lowering, check and clock. `make fuzz` runs a million
 * inputs under sanitizers, `make test` a few thousand (PLAIT_FUZZ=N). Inputs are reference lists
 * (golden/sched) and all schedules in small shapes (fuzz_seeds.h), damaged one to three times, in
 * bytes, numbers, cells, lines and placement: damage that knows cells gets past the parser in a
 * third of the inputs. The same seed (PLAIT_TEST_SEED) gives the same inputs everywhere. Held are:
 *
 *     a refusal is ERR_CONFIG with a message
 *     print and parse give the same schedule again
 *     what passes V1 to V4 can be lowered, as it is and with recomputes, and what was lowered
 *         passes every rule
 *     the clock gives finite times in which nobody is busy longer than the whole
 *     what follows a whole cell is refused
 */
#include "fuzz_seeds.h"

#include "base/num.h"
#include "sim/sim.h"
#include "test.h"

#include <stdlib.h>

enum { TEXT = 16384, INPUTS = 4000 };

/* `several`: of inputs from lists with several stage replicas a rank; `moved` of their proved ones
 * are placed otherwise than the list that they come from. */
static struct {
    int64_t inputs, read, proved, played, refused;
    struct { int64_t inputs, read, proved, moved; } several;
} count;

/* ---- damage ---- */

struct input {
    char text[TEXT];
    int64_t n;
};

/* Puts `n` bytes in place of those from `at` to `end`, if there is room. */
static void replace(struct input *x, int64_t at, int64_t end, const char *with, int64_t n)
{
    if (x->n - (end - at) + n > TEXT)
        return;
    memmove(x->text + at + n, x->text + end, (size_t)(x->n - end));
    memcpy(x->text + at, with, (size_t)n);
    x->n += n - (end - at);
}

/* Where the piece around a random place begins and ends, between bytes of `ends`. */
static void choose(const struct input *x, const char *ends, int64_t *at, int64_t *end)
{
    *at = *end = test_range(0, x->n);
    while (*at > 0 && !strchr(ends, x->text[*at - 1]))
        --*at;
    while (*end < x->n && !strchr(ends, x->text[*end]))
        ++*end;
}

static void damage_byte(struct input *x)
{
    static const char alphabet[] = "0123456789FBIW,\n\r SENDRCV_TIP\t-x\xff();OVMG";
    int64_t at = test_range(0, x->n), cut = test_range(0, 1);
    char c = alphabet[test_range(0, (int64_t)sizeof alphabet - 1)]; /* its NUL too */
    replace(x, at, num_min(x->n, at + cut), &c, test_range(0, 3) > 0);
}

/* A number becomes another: near the limits, or small and so perhaps valid. */
static void damage_number(struct input *x)
{
    static const char *const number[] = {
        "0", "1", "2", "3", "4", "00", "-1", "65534", "65535", "65536", "16383", "16384",
        "4095", "4096", "2147483647", "2147483648", "4294967296", "18446744073709551616",
        "99999999999999999999999999", "1e3", "0x1", "",
    };
    int64_t at = test_range(0, x->n), end;
    while (at < x->n && !(x->text[at] >= '0' && x->text[at] <= '9'))
        at++;
    for (end = at; end < x->n && x->text[end] >= '0' && x->text[end] <= '9';)
        end++;
    int most = (int)(sizeof number / sizeof *number) - 1;
    const char *with = number[test_range(0, test_range(0, 1) ? 4 : most)];
    replace(x, at, end, with, (int64_t)strlen(with));
}

static void damage_name(struct input *x)
{
    static const char *const name[] = {
        "F", "B", "I", "W", "SEND_F", "RECV_F", "SEND_B", "RECV_B", "REDUCE", "TIED",
        "EMBED_REDUCE", "STEP", "OV", "MERGE", "WAIT", "NORM", "UPDATE", "GATHER", "DROP",
        ".2DROP", ".1GATHER", ".2B", ".1REDUCE", "REPLICA_REDUCE", "OVERLAP_F_B", ")OV", "(", ")",
        ";", "UNSHARD", "RESHARD", "REDUCE_GRAD", "FSDP", "f", "",
    };
    int64_t at = test_range(0, x->n), end;
    while (at < x->n && !((x->text[at] >= 'A' && x->text[at] <= 'Z') || x->text[at] == '_'))
        at++;
    for (end = at; end < x->n && ((x->text[end] >= 'A' && x->text[end] <= 'Z') ||
                                  x->text[end] == '_');)
        end++;
    const char *with = name[test_range(0, (int64_t)(sizeof name / sizeof *name) - 1)];
    replace(x, at, end, with, (int64_t)strlen(with));
}

/* A cell (or a line, by `ends`) is written over, removed, doubled or set before another. */
static void damage_piece(struct input *x, const char *ends)
{
    char piece[TEXT];
    int64_t at, end, to, last;
    choose(x, ends, &at, &end);
    int64_t n = end - at, kind = test_range(0, 3);
    memcpy(piece, x->text + at, (size_t)n);
    if (kind == 0) { /* with what ends it */
        replace(x, at, num_min(x->n, end + 1), "", 0);
        return;
    }
    choose(x, ends, &to, &last);
    if (kind == 1) {
        replace(x, to, last, piece, n);
        return;
    }
    if (kind == 2 && end < x->n) { /* moved: removed here and put there */
        replace(x, at, end + 1, "", 0);
        choose(x, ends, &to, &last);
    }
    replace(x, to, to, ends, 1);
    replace(x, to, to, piece, n);
}

/* "0F1,1B0" becomes "(0F1;1B0)OVERLAP_F_B", or a pair its two halves. */
static void damage_pair(struct input *x)
{
    int64_t at, end, next;
    choose(x, ",\n", &at, &end);
    if (end > at && x->text[at] == '(') {
        const char *half = memchr(x->text + at, ';', (size_t)(end - at));
        const char *close = memchr(x->text + at, ')', (size_t)(end - at));
        if (!half || !close || close < half)
            return;
        int64_t middle = half - x->text;
        replace(x, close - x->text, end, "", 0);
        replace(x, middle, middle + 1, ",", 1);
        replace(x, at, at + 1, "", 0);
        return;
    }
    for (next = end + 1; next < x->n && x->text[next] != ',' && x->text[next] != '\n';)
        next++;
    if (next > x->n || x->text[end] != ',')
        return;
    replace(x, next, next, ")OV", 3);
    replace(x, end, end + 1, ";", 1);
    replace(x, at, at, "(", 1);
}

/* Two ranks change places: all that one does, the other does. */
static void damage_ranks(struct input *x)
{
    char first[TEXT], last[TEXT];
    int64_t at, end, to, stop;
    choose(x, "\n", &at, &end);
    choose(x, "\n", &to, &stop);
    if (at >= to)
        return;
    memcpy(first, x->text + at, (size_t)(end - at));
    memcpy(last, x->text + to, (size_t)(stop - to));
    replace(x, to, stop, first, end - at); /* the later first: places before it stand */
    replace(x, at, end, last, stop - to);
}

/* The number that begins a cell, of a pair's halves too, or -1. */
static int stage_at(const struct input *x, int64_t at)
{
    char before = at > 0 ? x->text[at - 1] : '\n';
    int64_t stage = -1;
    if (!strchr(",\n(;", before))
        return -1;
    for (; at < x->n && x->text[at] >= '0' && x->text[at] <= '9' && stage < SCHED_MAX_STAGES; at++)
        stage = num_max(stage, 0) * 10 + (x->text[at] - '0');
    return (int)stage;
}

/* Two stages change their names, in the whole list or in one line: ranks change a stage between
 * them, or one stage comes to lie on two. */
static void damage_stages(struct input *x)
{
    char name[16];
    int most = 0;
    int64_t from = 0, end = x->n;
    for (int64_t i = 0; i < x->n; i++)
        most = (int)num_max(most, stage_at(x, i));
    int a = (int)test_range(0, most), b = (int)test_range(0, most);
    if (test_range(0, 3) == 0)
        choose(x, "\n", &from, &end);
    for (int64_t i = from; i < end && i < x->n; i++) {
        int stage = stage_at(x, i);
        if (stage < 0 || (stage != a && stage != b))
            continue;
        int was = snprintf(name, sizeof name, "%d", stage);
        int is = snprintf(name, sizeof name, "%d", stage == a ? b : a);
        replace(x, i, i + was, name, is);
        end += is - was;
    }
}

/* The lines of two lists mixed, or one cut off. */
static void damage_whole(struct input *x)
{
    const struct seed *other = &seed[test_range(0, seeds - 1)];
    int64_t at, end, from = test_range(0, other->n);
    choose(x, "\n", &at, &end);
    if (test_range(0, 1))
        x->n = test_range(0, x->n);
    else
        replace(x, at, x->n, other->text + from, other->n - from);
}

static void damage(struct input *x)
{
    switch (test_range(0, 20)) {
    case 0: case 1: damage_byte(x); break;
    case 2: case 3: damage_number(x); break;
    case 4: case 5: damage_name(x); break;
    case 6: damage_whole(x); break;
    case 7: damage_piece(x, "\n"); break;
    case 8: case 9: case 10: damage_pair(x); break;
    case 11: case 12: case 13: case 14: damage_ranks(x); break;
    case 15: damage_stages(x); break;
    default: damage_piece(x, ",\n"); break;
    }
}

/* ---- what is held ---- */

static void check_refused(enum err err)
{
    CHECK_INT(err, ERR_CONFIG);
    CHECK(err_text()[0] != '\0');
}

/* A lowered list without messages and steps reads as one that is not lowered. */
static bool looks_lowered(const struct sched *s)
{
    for (int op = SCHED_SEND_F; s->lowered && op < SCHED_OP_COUNT; op++)
        if (op != SCHED_OVERLAP_F_B && sched_has(s, (enum sched_op)op))
            return true;
    return false;
}

static bool same(const struct sched *a, const struct sched *b)
{
    size_t stage_replicas = (size_t)a->replicas * (size_t)a->stages;
    return a->p == b->p && a->m == b->m && a->v == b->v && a->replicas == b->replicas &&
           looks_lowered(a) == b->lowered && a->forward_only == b->forward_only &&
           memcmp(a->begin, b->begin, (size_t)(a->p + 1) * sizeof *a->begin) == 0 &&
           memcmp(a->place, b->place, stage_replicas * sizeof *a->place) == 0 &&
           memcmp(a->way, b->way, (size_t)a->m * sizeof *a->way) == 0 &&
           memcmp(a->instr, b->instr, (size_t)a->begin[a->p] * sizeof *a->instr) == 0;
}

/* Text of what was read is read as the same. */
static void check_again(const struct sched *s)
{
    struct text t = {0};
    struct sched again;
    sched_print(s, &t);
    enum err err = sched_parse("fuzz", t.s, t.len, &again);
    CHECK_OK(err);
    if (err == ERR_OK) {
        CHECK(same(s, &again));
        sched_free(&again);
    }
    text_free(&t);
}

static double any_time(void)
{
    static const double edge[] = {0, 1e-12, 1, 1e12, 1e100};
    return test_range(0, 3) ? test_real(0, 4) : edge[test_range(0, 4)];
}

/* On the clock: times are numbers, and no rank works longer than all do. */
static void play(const struct sched *s, const struct sched_report *r)
{
    struct sim_cost c = {.tf = any_time(), .tb = any_time(), .ti = any_time(), .tw = any_time(),
                         .tr = any_time(), .latency = any_time(), .bytes = 1};
    struct sim_result x;
    c.bandwidth = test_range(0, 1) ? test_real(0.1, 4) : 0;
    c.tov = test_range(0, 1) ? test_real(0.1, 4) : 0;
    double *each;
    CHECK_OK(mem_new(s->begin[s->p], sizeof *each, "times of the end", &each));
    for (int64_t i = 0; i < s->begin[s->p]; i++)
        each[i] = any_time();
    c.each = test_range(0, 1) ? each : NULL;
    CHECK_OK(sim_run(s, r, &c, true, &x));
    for (int64_t i = 0; i < s->begin[s->p]; i++)
        CHECK(x.event[i].end >= x.event[i].start);
    CHECK(isfinite(x.step) && (c.each ? x.step >= x.makespan : x.step == 0));
    mem_free(each);
    CHECK(isfinite(x.makespan) && x.cost <= x.makespan && x.bubble_fraction >= -1e-9 &&
          x.bubble_fraction <= 1 && x.actions > 0);
    for (int rank = 0; rank < s->p; rank++)
        CHECK(x.busy[rank] <= x.makespan * (1 + 1e-9) && x.waiting[rank] >= 0 &&
              x.message[rank] >= 0 && x.peak[rank] <= (int64_t)s->stages * s->m &&
              x.full_peak[rank] <= x.peak[rank]);
    sim_result_free(&x);
    count.played++;
}

/* Lowered and to the clock; it is refused exactly when the list is not proved. */
static void lower(const struct sched *s, bool proved)
{
    struct sched low;
    struct sched_report r;
    struct sched_lower_args a = {.step = test_range(0, 1) && !s->forward_only};
    a.reduce = a.step && test_range(0, 1);
    enum err err = sched_lower(s, &a, &low);
    CHECK((err == ERR_OK) == proved);
    if (err != ERR_OK)
        return;
    CHECK_OK(sched_check(&low, &r));
    check_again(&low);
    if (low.checked)
        play(&low, &r);
    sched_report_free(&r);
    sched_free(&low);
}

/* From the check of what was read to the clock, as it is and with recomputes. */
static void go_on(struct sched *s, const struct placement *from)
{
    struct sched again;
    struct sched_report r;
    enum err err = sched_check(s, &r);
    count.proved += err == ERR_OK;
    if (from && is_several(from)) {
        count.several.proved += err == ERR_OK;
        count.several.moved += err == ERR_OK && !is_placed_on(s, from);
    }
    if (err != ERR_OK)
        check_refused(err);
    else if (s->lowered)
        play(s, &r);
    if (!s->lowered)
        lower(s, err == ERR_OK);
    if (!s->lowered && !s->forward_only) {
        enum err made = sched_recompute(s, &again);
        CHECK((made == ERR_OK) == (err == ERR_OK));
        if (made == ERR_OK) {
            lower(&again, true);
            sched_free(&again);
        }
    }
    sched_report_free(&r);
}

/* One input, from a block of exactly its size, so that a byte read behind it is seen. from: the
 * placement of the list that it was, or NULL. */
static bool survive(const char *text, int64_t n, const struct placement *from)
{
    struct sched s;
    char *copy = NULL;
    CHECK_OK(mem_new(n > 0 ? n : 1, 1, "an input", &copy));
    memcpy(copy, text, (size_t)n);
    bool several = from && is_several(from);
    count.inputs++;
    count.several.inputs += several;
    enum err err = sched_parse("fuzz", copy, n, &s);
    mem_free(copy);
    if (err != ERR_OK) {
        check_refused(err);
        count.refused++;
        return false;
    }
    count.read++;
    count.several.read += several;
    check_again(&s);
    go_on(&s, from);
    sched_free(&s);
    return true;
}

/* ---- cases ---- */

static int64_t inputs_wanted(void)
{
    const char *wish = getenv("PLAIT_FUZZ");
    int64_t n = INPUTS;
    if (wish && (!text_to_int(wish, &n) || n < 1)) {
        test_check(false, __FILE__, __LINE__, "PLAIT_FUZZ is %s; use 1 or more inputs", wish);
        n = 1;
    }
    return n;
}

static void damaged(void)
{
    struct input *x = NULL;
    int64_t wanted = inputs_wanted();
    make_seeds(PLAIT_SOURCE_DIR "/tests/golden/sched/*-p*.csv");
    CHECK_OK(mem_new(1, sizeof *x, "an input", &x));
    memset(&count, 0, sizeof count);
    for (int64_t k = 0; k < wanted && x; k++) {
        const struct seed *from = &seed[test_range(0, seeds - 1)];
        memcpy(x->text, from->text, (size_t)from->n);
        x->n = from->n;
        for (int64_t times = test_range(1, 3); times > 0; times--)
            damage(x);
        survive(x->text, x->n, &from->on);
        if (k % 100000 == 99999) {
            printf("%lld inputs\n", (long long)k + 1);
            fflush(stdout);
        }
    }
    printf("%lld inputs from %d lists: %lld accepted, %lld refused; of the accepted %lld proved, "
           "%lld played\n",
           (long long)count.inputs, seeds, (long long)count.read, (long long)count.refused,
           (long long)count.proved, (long long)count.played);
    printf("%lld of them from lists with several stages or replicas a rank: %lld accepted, %lld "
           "proved, %lld of these in a placement of their own\n",
           (long long)count.several.inputs, (long long)count.several.read,
           (long long)count.several.proved, (long long)count.several.moved);
    if (wanted >= 1000) /* every stage of the way was reached */
        CHECK(count.read > wanted / 10 && count.refused > wanted / 10 &&
              count.proved > wanted / 100 && count.played >= count.proved &&
              count.several.moved > wanted / 250);
    mem_free(x);
    free_seeds();
}

/* What follows a whole cell is refused, whichever cell of whichever list it is. */
static void followed(void)
{
    static const char after[] = "x-_;()+.\"'#\xff\x01?/FBSov";
    struct input *x = NULL;
    make_seeds(PLAIT_SOURCE_DIR "/tests/golden/sched/*-p*.csv");
    CHECK_OK(mem_new(1, sizeof *x, "an input", &x));
    for (int k = 0; k < seeds && x; k++)
        for (size_t c = 0; c < sizeof after; c++) { /* NUL too */
            int64_t at, end;
            memcpy(x->text, seed[k].text, (size_t)seed[k].n);
            x->n = seed[k].n;
            do
                choose(x, ",\n", &at, &end);
            while (at == end);
            replace(x, end, end, &after[c], 1);
            CHECK(!survive(x->text, x->n, NULL));
        }
    mem_free(x);
    free_seeds();
}

/* Numbers at the limits: read or refused, and never much memory or time for little text. */
static void limits(void)
{
    static const struct {
        const char *cell;
        int lines;
        bool read;
    } row[] = {
        {"0F0,0B0", 1, true},  {"0F65534,0B65534", 1, true},  {"0F65535", 1, false},
        {"16383F0", 1, false}, {"0F0", 4096, false},          {"0F0", 4097, false},
        {"0F65534", 2, false}, {"(0F65534;0B0)OV", 1, true},  {"(16384F0;0B0)OV", 1, false},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct text t = {0};
        for (int k = 0; k < row[i].lines; k++)
            text_add(&t, "%s\n", row[i].cell);
        CHECK_INT(survive(t.s, t.len, NULL), row[i].read);
        text_free(&t);
    }
    struct text t = {0}; /* most ranks and stages; many of one rank; most microbatches */
    for (int k = 0; k < SCHED_MAX_RANKS; k++)
        for (int j = 0; j < 4; j++)
            text_add(&t, "%dF0%c", k + j * SCHED_MAX_RANKS, j < 3 ? ',' : '\n');
    CHECK(survive(t.s, t.len, NULL));
    text_free(&t);
    for (int k = 0; k < 2048; k++)
        text_add(&t, "%s%dF0", k ? "," : "", k);
    CHECK(survive(t.s, t.len, NULL));
    text_free(&t);
    for (int k = 0; k < SCHED_MAX_MB; k++)
        text_add(&t, "%s0F%d,0B%d", k ? "," : "", k, k);
    CHECK(survive(t.s, t.len, NULL));
    text_free(&t);
}

static const struct test_case cases[] = {
    {"limits", limits},
    {"followed", followed},
    {"damaged", damaged},
};
TEST_MAIN(cases)
