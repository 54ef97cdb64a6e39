/* SPDX-License-Identifier: Apache-2.0
 *
 * Schedules: generators, lowering, and every rule of the check by a schedule that breaks it.
 */
#include "sched/sched.h"

#include "base/mem.h"
#include "base/num.h"
#include "broken.h"
#include "order.h"

static const struct sched_lower_args no_ends = {0};
static const struct sched_lower_args all_ends = {.reduce = true, .tied = true, .step = true};

static void check_text(const struct sched *s, const char *want)
{
    struct text t = {0};
    char *got;
    sched_print(s, &t);
    CHECK_OK(text_done(&t, &got));
    CHECK_STR(got, want);
    mem_free(got);
}

/* Makes, lowers and checks; both are the caller's. */
static bool prepare(const char *name, struct sched_shape shape, struct sched *s,
                    struct sched_report *r)
{
    struct sched made;
    if (!CHECK(sched_make(name, &shape, NULL, &made) == ERR_OK))
        return false;
    enum err err = sched_lower(&made, &all_ends, s);
    sched_free(&made);
    if (!test_check(err == ERR_OK, __FILE__, __LINE__, "%s p %d m %d: %s", name, shape.p, shape.m,
                    err_text()))
        return false;
    err = sched_check(s, r);
    return test_check(err == ERR_OK, __FILE__, __LINE__, "%s p %d m %d: %s", name, shape.p, shape.m,
                      err_text());
}

static void orders(void)
{
    static const struct {
        const char *name;
        struct sched_shape shape;
        const char *text;
    } want[] = {
        {"naive", {2, 2, 1, 0}, "0F0,0B0,0F1,0B1\n1F0,1B0,1F1,1B1\n"},
        {"gpipe", {2, 2, 1, 0}, "0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n"},
        {"1f1b", {1, 2, 1, 0}, "0F0,0B0,0F1,0B1\n"},
        {"1f1b", {3, 1, 1, 0}, "0F0,0B0\n1F0,1B0\n2F0,2B0\n"},
        {"1f1b", {3, 2, 1, 0}, "0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n2F0,2B0,2F1,2B1\n"},
        {"1f1b", {2, 3, 1, 0}, "0F0,0F1,0B0,0F2,0B1,0B2\n1F0,1B0,1F1,1B1,1F2,1B2\n"},
        /* the last group has one microbatch of two: F and B of the other are left out */
        {"interleaved", {2, 3, 2, 0},
         "0F0,0F1,2F0,2F1,0F2,2B0,2B1,2F2,0B0,0B1,2B2,0B2\n"
         "1F0,1F1,3F0,3B0,3F1,3B1,1F2,1B0,1B1,3F2,3B2,1B2\n"},
        {"interleaved", {2, 3, 2, 3}, /* one group of three */
         "0F0,0F1,0F2,2F0,2F1,2F2,2B0,2B1,2B2,0B0,0B1,0B2\n"
         "1F0,1F1,1F2,3F0,3B0,3F1,3B1,3F2,3B2,1B0,1B1,1B2\n"},
        {"interleaved", {1, 2, 2, 0}, "0F0,1F0,1B0,0F1,0B0,1F1,1B1,0B1\n"},
        {"interleaved", {3, 1, 2, 0}, "0F0,3F0,3B0,0B0\n1F0,4F0,4B0,1B0\n2F0,5F0,5B0,2B0\n"},
        {"looped-bfs", {2, 2, 2, 0},
         "0F0,0F1,2F0,2F1,2B1,2B0,0B1,0B0\n1F0,1F1,3F0,3F1,3B1,3B0,1B1,1B0\n"},
        {"zb-h1", {2, 1, 1, 0}, "0F0,0I0,0W0\n1F0,1I0,1W0\n"},
        {"zb-h1", {2, 3, 1, 0},
         "0F0,0F1,0I0,0W0,0F2,0I1,0W1,0I2,0W2\n1F0,1I0,1F1,1I1,1W0,1F2,1I2,1W1,1W2\n"},
        {"zb-h2", {2, 1, 1, 0}, "0F0,0I0,0W0\n1F0,1I0,1W0\n"},
        {"zb-h2", {2, 4, 1, 0},
         "0F0,0F1,0F2,0I0,0W0,0F3,0I1,0W1,0I2,0W2,0I3,0W3\n"
         "1F0,1I0,1F1,1I1,1F2,1I2,1W0,1F3,1I3,1W1,1W2,1W3\n"},
    };
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        struct sched s;
        CHECK_OK(sched_make(want[i].name, &want[i].shape, NULL, &s));
        CHECK_STR(s.name, want[i].name);
        check_text(&s, want[i].text);
        sched_free(&s);
    }
}

/* Lowered, checked forward lists; what each stage needs in slots goes to `slots`. */
static void check_forward(struct sched_shape shape, const uint16_t *place, const char *want,
                          int *slots)
{
    struct sched s, low = {0};
    struct sched_report r = {0};
    CHECK_OK(sched_make_forward(&shape, place, &s));
    CHECK(s.forward_only);
    if (want)
        check_text(&s, want);
    CHECK_ERR(sched_lower(&s, &all_ends, &low), ERR_INTERNAL, "no gradients");
    CHECK_OK(sched_lower(&s, &no_ends, &low));
    enum err err = sched_check(&low, &r);
    test_check(err == ERR_OK, __FILE__, __LINE__, "p %d m %d v %d: %s", shape.p, shape.m, shape.v,
               err_text());
    for (int stage = 0; stage < s.stages; stage++)
        slots[stage] = r.stage_peak[stage];
    for (int stage = 0; stage < s.stages; stage++)
        CHECK_INT(r.save_peak[stage], 1); /* nothing is saved for a backward */
    sched_report_free(&r);
    sched_free(&low);
    sched_free(&s);
}

static void forward_order(void)
{
    int slots[4];
    check_forward((struct sched_shape){2, 3, 2, 0}, NULL,
                  "0F0,0F1,2F0,2F1,0F2,2F2\n1F0,1F1,3F0,3F1,1F2,3F2\n", slots);
    for (int stage = 0; stage < 4; stage++)
        CHECK_INT(slots[stage], 1); /* each activation leaves at once, and its receiver is there */
    /* a V: the last rank has two stages of each microbatch to run, so the first waits for it */
    check_forward((struct sched_shape){2, 4, 2, 0}, (const uint16_t[]){0, 1, 1, 0},
                  "0F0,0F1,0F2,3F0,0F3,3F1,3F2,3F3\n1F0,2F0,1F1,2F1,1F2,2F2,1F3,2F3\n", slots);
    CHECK_INT(slots[0], 2);
    CHECK_INT(slots[1], 1);
}

/* On one rank a microbatch goes through all stages before the next begins. */
static void forward_on_one_rank(void)
{
    int slots[3];
    check_forward((struct sched_shape){1, 2, 3, 0}, NULL, "0F0,1F0,2F0,0F1,1F1,2F1\n", slots);
    for (int stage = 0; stage < 3; stage++)
        CHECK_INT(slots[stage], 1);
}

/* With a loop and with a V: few slots whatever m is. With placements that nobody would choose the
 * list is right too, and may need more. */
static void forward_slots(void)
{
    for (int n = 0; n < 300; n++) {
        int p = (int)test_range(1, 6), v = (int)test_range(1, 4), slots[24], fewer[24];
        uint16_t place[24];
        for (int stage = 0; stage < p * v; stage++) {
            int turn = stage / p, at = stage % p;
            place[stage] = (uint16_t)(n % 3 == 0 && turn % 2 ? p - 1 - at : at);
        }
        for (int stage = p * v - 1; n % 3 == 1 && stage > 0; stage--) {
            int other = (int)test_range(0, stage);
            uint16_t x = place[stage];
            place[stage] = place[other];
            place[other] = x;
        }
        check_forward((struct sched_shape){p, 3 * p + 40, v, 0}, place, NULL, slots);
        check_forward((struct sched_shape){p, (int)test_range(1, 3 * p), v, 0}, place, NULL, fewer);
        for (int stage = 0; stage < p * v; stage++)
            test_check(n % 3 == 1 || (slots[stage] <= 3 && fewer[stage] <= slots[stage]), __FILE__,
                       __LINE__, "p %d v %d: stage %d has %d slots, with fewer microbatches %d", p,
                       v, stage, slots[stage], fewer[stage]);
    }
}

/* Stages a rank that the grid below tries; 0: a schedule with a grid in its family's own test. */
static int chunks_of(const char *name)
{
    static const struct {
        const char *name;
        int v;
    } of[] = {{"naive", 1}, {"gpipe", 1}, {"1f1b", 1}, {"interleaved", 4}, {"looped-bfs", 4},
              {"zb-h1", 1}, {"zb-h2", 1}, {"zb-1p", 0}, {"zb-2p", 0}, {"zb-v", 0}, {"v-half", 0},
              {"v-min", 0}, {"1f1b-v", 0}, {"dualpipe", 0}, {"dualpipev", 0}, {"chimera", 0},
              {"seq1f1b", 0}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        if (strcmp(of[i].name, name) == 0)
            return of[i].v;
    test_check(false, __FILE__, __LINE__, "schedule %s has no row here: say its chunks, or 0 and "
               "write its grid", name);
    return 0;
}

static void refuse(const char *name, struct sched_shape shape, const char *part)
{
    struct sched s;
    enum err err = sched_make(name, &shape, NULL, &s);
    test_check(err == ERR_CONFIG && strstr(err_text(), part), __FILE__, __LINE__,
               "%s p %d m %d v %d group %d: wanted \"%s\", got %d: %s", name, shape.p, shape.m,
               shape.v, shape.group, part, (int)err, err_text());
}

/* Leaving out microbatches of a lowered list leaves a list that is right. */
static void first_of_forward(void)
{
    struct sched s, low, part;
    struct sched_report r = {0};
    CHECK_OK(sched_make_forward(&(struct sched_shape){2, 3, 2, 0}, NULL, &s));
    CHECK_OK(sched_lower(&s, &no_ends, &low));
    CHECK_OK(sched_first(&low, 1, &part));
    check_text(&part, "0F0,0SEND_F0,2RECV_F0,2F0,2SEND_F0\n1RECV_F0,1F0,1SEND_F0,3RECV_F0,3F0\n");
    CHECK(part.forward_only && part.lowered && !part.checked && part.m == 1);
    CHECK_OK(sched_check(&part, &r));
    sched_report_free(&r);
    sched_free(&part);
    sched_free(&low);
    sched_free(&s);
}

static void shapes_refused(void)
{
    for (int i = 0; i < sched_kind_count(); i++) {
        const struct sched_kind *kind = sched_kind_at(i);
        if (chunks_of(kind->name) == 1)
            refuse(kind->name, (struct sched_shape){4, 8, 2, 0}, "use v 1");
        if (!kind->groups)
            refuse(kind->name, (struct sched_shape){4, 8, 1, 4}, "use group 0");
        refuse(kind->name, (struct sched_shape){0, 8, 1, 0}, "p 0");
        refuse(kind->name, (struct sched_shape){4097, 8, 1, 0}, "1 to 4096");
        refuse(kind->name, (struct sched_shape){4, 0, 1, 0}, "m 0");
        refuse(kind->name, (struct sched_shape){4, 65536, 1, 0}, "65535");
        refuse(kind->name, (struct sched_shape){4, 4, 0, 0}, "1 to 4096");
        refuse(kind->name, (struct sched_shape){4, 4, -1, 0}, "v -1");
        refuse(kind->name, (struct sched_shape){4, 4, 1, -1}, "group -1");
        refuse(kind->name, (struct sched_shape){4, 4, 1, 65536}, "group 65536");
    }
    refuse("interleaved", (struct sched_shape){4, 8, 2, 3}, "use group 4 or more");
    refuse("interleaved", (struct sched_shape){4, 8, 2, 9}, "use group 8 or less");
    refuse("interleaved", (struct sched_shape){4, 2, 2, 2}, "use group 4 or more");
    refuse("1f1", (struct sched_shape){4, 8, 1, 0}, "nearest is 1f1b");
    refuse("zzzzzzzz", (struct sched_shape){4, 8, 1, 0}, "naive, gpipe, 1f1b");
}

/* Activations that a schedule keeps on a rank. */
static int kept(const char *name, const struct sched_shape *x, int rank)
{
    int group = x->group ? x->group : x->p, all = x->m * x->v;
    if (strcmp(name, "naive") == 0)
        return 1;
    if (strcmp(name, "gpipe") == 0 || strcmp(name, "looped-bfs") == 0)
        return all;
    if (strcmp(name, "1f1b") == 0)
        return (int)num_min(x->p - rank, x->m);
    if (strcmp(name, "zb-h1") == 0)
        return (int)num_min(x->p, x->m);
    if (strcmp(name, "zb-h2") == 0)
        return (int)num_min(2 * x->p - 1, x->m);
    /* interleaved, at most: a short last group may keep less */
    return (int)num_min(2 * (x->p - 1 - rank) + (x->v - 1) * group + 1, all);
}

/* Sets of gradients kept between I and W. */
static int kept_grads(const char *name, int rank, int m)
{
    if (strcmp(name, "zb-h1") == 0)
        return (int)num_min(rank + 1, m);
    return strcmp(name, "zb-h2") == 0 ? (int)num_min(2 * rank + 1, m) : 1;
}

static void check_peaks(const char *name, const struct sched_shape *x, const struct sched *s,
                        const struct sched_report *r)
{
    int group = x->group ? x->group : x->p, rest = x->m % group;
    bool least = strcmp(name, "interleaved") == 0 && rest > 0 && rest < x->p;
    for (int rank = 0; rank < x->p; rank++) {
        int want = kept(name, x, rank), slots = 0;
        for (int stage = rank; stage < s->stages; stage += x->p)
            slots += r->stage_peak[stage];
        test_check(least ? r->peak[rank] <= want : r->peak[rank] == want, __FILE__, __LINE__,
                   "%s p %d m %d v %d group %d: rank %d keeps %d, wanted %d", name, x->p, x->m,
                   x->v, x->group, rank, r->peak[rank], want);
        CHECK(x->v == 1 ? slots == r->peak[rank] : slots >= r->peak[rank]);
        CHECK_INT(r->grad_peak[rank], kept_grads(name, rank, x->m));
    }
    int64_t run = strcmp(name, "looped-bfs") == 0 ? x->m : num_max(3, group);
    CHECK(r->ring >= 2 && r->ring <= (x->v == 1 ? 2 : num_max(2, run)));
}

static void check_shape(const char *name, struct sched_shape shape)
{
    struct sched s = {0};
    struct sched_report r = {0};
    if (prepare(name, shape, &s, &r))
        check_peaks(name, &shape, &s, &r);
    CHECK(s.checked);
    sched_report_free(&r);
    sched_free(&s);
}

/* Others have their grids in test_twoway.c, test_auto.c and test_vshape.c. */
static void grid(void)
{
    for (int kind = 0; kind < sched_kind_count(); kind++) {
        const struct sched_kind *k = sched_kind_at(kind);
        for (int p = 1; p <= 8; p++)
            for (int m = 1; m <= 3 * p; m++)
                for (int v = 1; v <= chunks_of(k->name); v++) {
                    check_shape(k->name, (struct sched_shape){p, m, v, 0});
                    for (int group = p; k->groups && group <= m; group += (int)test_range(1, p))
                        check_shape(k->name, (struct sched_shape){p, m, v, group});
                }
    }
}

/* A ring of two stops this list in its drain, so the check must count more: every B of a chunk
 * leaves before the receiver asks for the first. */
static void ring_is_counted(void)
{
    struct sched s = {0};
    struct sched_report r = {0};
    CHECK(prepare("looped-bfs", (struct sched_shape){2, 8, 2, 0}, &s, &r));
    CHECK_INT(r.ring, 7);
    sched_report_free(&r);
    sched_free(&s);
    CHECK(prepare("1f1b", (struct sched_shape){4, 8, 1, 0}, &s, &r));
    CHECK_INT(r.ring, 2);
    sched_report_free(&r);
    sched_free(&s);
}

static void lowered_text(void)
{
    struct sched s, low, again;
    CHECK_OK(sched_make("1f1b", &(struct sched_shape){2, 2, 1, 0}, NULL, &s));
    CHECK_OK(sched_lower(&s, &all_ends, &low));
    const char *want =
        "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1,0REDUCE,WAIT,0EMBED_REDUCE,NORM,STEP\n"
        "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1,1REDUCE,WAIT,1EMBED_REDUCE,NORM,"
        "STEP\n";
    check_text(&low, want);
    CHECK_INT(low.instr[1].peer, 1);
    CHECK_OK(parse(want, &again));
    CHECK(again.lowered && !again.forward_only);
    CHECK_INT(again.begin[2], low.begin[2]);
    CHECK(memcmp(again.instr, low.instr, (size_t)low.begin[2] * sizeof *low.instr) == 0);
    CHECK_ERR(sched_lower(&low, &no_ends, &s), ERR_INTERNAL, "lowered already");
    sched_free(&again);
    sched_free(&low);
    sched_free(&s);
}

static void lower_text(const char *from, const struct sched_lower_args *args, const char *want)
{
    struct sched s, low;
    struct sched_report r = {0};
    CHECK_OK(parse(from, &s));
    CHECK_OK(sched_lower(&s, args, &low));
    check_text(&low, want);
    CHECK_OK(sched_check(&low, &r));
    sched_report_free(&r);
    sched_free(&low);
    sched_free(&s);
}

/* A receiver that uses messages in another order than they are sent in takes them in the sender's.
 */
static void receives_moved_forward(void)
{
    lower_text("0F0,0F1,0B1,0B0\n1F1,1F0,1B1,1B0\n", &no_ends,
               "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B1,0B1,0RECV_B0,0B0\n"
               "1RECV_F0,1RECV_F1,1F1,1F0,1B1,1SEND_B1,1B0,1SEND_B0\n");
}

/* A slot is needed from the receive on, room for what the forward saves from the forward on. */
static void slots_count_from_the_receive(void)
{
    struct sched s, low;
    struct sched_report r;
    CHECK_OK(parse("0F0,0F1,0B1,0B0\n1F1,1B1,1F0,1B0\n", &s));
    CHECK_OK(sched_lower(&s, &no_ends, &low));
    CHECK_OK(sched_check(&low, &r));
    CHECK_INT(r.peak[1], 1);
    CHECK_INT(r.stage_peak[1], 2);
    CHECK_INT(r.save_peak[1], 1);
    CHECK_INT(r.save_peak[0], 2);
    sched_report_free(&r);
    sched_free(&low);
    sched_free(&s);
}

/* Stages 1 and 2 stand on one rank: nothing is sent between them. Backward in halves: the gradient
 * leaves with I, the sum is complete with W. Stage 0 and 3 share a rank: no tied sum. */
static void local_stages_and_halves(void)
{
    lower_text("0F0,3F0,3I0,3W0,0I0,0W0\n1F0,2F0,2B0,1I0,1W0\n", &all_ends,
               "0F0,0SEND_F0,3RECV_F0,3F0,3I0,3SEND_B0,3W0,3REDUCE,0RECV_B0,0I0,0W0,0REDUCE,WAIT,"
               "NORM,STEP\n"
               "1RECV_F0,1F0,2F0,2SEND_F0,2RECV_B0,2B0,2REDUCE,1I0,1SEND_B0,1W0,1REDUCE,WAIT,"
               "NORM,STEP\n");
}

/* A schedule for each rule that it breaks, and what the error must say. */
static const struct broken broken[] = {
    {SCHED_RULE_COVERAGE, "0F0,0F0,0B0\n", "rank 0, place 1, 0F0: it comes a second time"},
    {SCHED_RULE_COVERAGE, "0F0,0B0,0F1\n", "rank 0, place 2, 0F1: the list ends without 0B1"},
    {SCHED_RULE_COVERAGE, "0F0,0B0,0B1\n", "without 0F1"},
    {SCHED_RULE_COVERAGE, "0F0,0B0,0I0\n", "rank 0, place 1, 0B0: there is 0I0 too"},
    {SCHED_RULE_COVERAGE, "0F0,0I0,0F1,0B1\n", "without 0W0, but has its other half"},
    {SCHED_RULE_COVERAGE, "16383F65534,16383B65534\n", "name every stage"},
    {SCHED_RULE_COVERAGE, "0F60000,0B60000\n", "need 60001 forwards"},
    {SCHED_RULE_COVERAGE, "0F0,0B0,NORM,STEP,NORM,STEP\n", "a second time"},
    {SCHED_RULE_PLACEMENT, "0F0,0F1,0B1\n1F0,1B0,1F1,1B1,0B0\n",
     "rank 1, place 4, 0B0: stage 0 stands on rank 0"},
    {SCHED_RULE_ORDER, "0B0,0F0\n", "rank 0, place 0, 0B0: its forward 0F0 comes later"},
    {SCHED_RULE_ORDER, "0F0,0W0,0I0\n", "rank 0, place 1, 0W0: 0I0, which it follows"},
    {SCHED_RULE_CYCLE, "0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n",
     "0B0 of rank 0 (place 1) waits for 1B0 of rank 1, 1F1 of rank 1 (place 0) waits for 0F1 of "
     "rank 0"},
    {SCHED_RULE_CYCLE, "1F0,0F0,1B0,0B0\n", "over 1 rank: 1F0 of rank 0 (place 0) waits for 0F0"},
    {SCHED_RULE_PAIRING, "0F0,0SEND_F0,0RECV_B0,0B0\n1F0,1B0,1SEND_B0\n",
     "rank 1, place 0, 1F0: its input comes from rank 0, but there is no 1RECV_F0"},
    {SCHED_RULE_PAIRING, "0F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n",
     "rank 0, place 0, 0F0: rank 1 needs its result, but there is no 0SEND_F0"},
    {SCHED_RULE_PAIRING, "0SEND_F0,0F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n",
     "rank 0, place 0, 0SEND_F0: what it sends is made later"},
    {SCHED_RULE_PAIRING, "0F0,0SEND_F0,0B0,0RECV_B0\n1RECV_F0,1F0,1B0,1SEND_B0\n",
     "rank 0, place 3, 0RECV_B0: it is used before"},
    {SCHED_RULE_PAIRING, "0F0,0SEND_F0,1F0,1B0,0B0\n", "is on no other rank; remove it"},
    {SCHED_RULE_PAIRING, "0F0,0SEND_B0,0B0\n", "is on no other rank; remove it"},
    {SCHED_RULE_CHANNEL,
     "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
     "1RECV_F1,1RECV_F0,1F0,1F1,1B0,1SEND_B0,1B1,1SEND_B1\n",
     "rank 1, place 0, 1RECV_F1: it is receive 0 of the channel from rank 0, which sends it as "
     "message 1"},
    {SCHED_RULE_DEADLOCK, "0F0,0RECV_B0,0SEND_F0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n",
     "over 2 ranks: 0RECV_B0 of rank 0 (place 1) waits for 1SEND_B0 of rank 1, 1RECV_F0 of rank 1 "
     "(place 0) waits for 0SEND_F0 of rank 0"},
    {SCHED_RULE_DEADLOCK, /* rank 1 owes rank 0 a gradient, and waits for it in the tied sum */
     "0F0,0SEND_F0,0RECV_B0,0B0,0EMBED_REDUCE\n1RECV_F0,1F0,1B0,1EMBED_REDUCE,1SEND_B0\n",
     "waits for 0EMBED_REDUCE"},
    {SCHED_RULE_REDUCTION, "0F0,0B0,0REDUCE,0F1,0B1\n",
     "rank 0, place 2, 0REDUCE: only 1 of 2 weight gradients of stage 0"},
    {SCHED_RULE_REDUCTION, "0F0,0I0,0REDUCE,0W0\n", "only 0 of 1 weight gradients"},
    {SCHED_RULE_REDUCTION, "0F0,1F0,1B0,1REDUCE,0B0\n", "there is no 0REDUCE"},
    {SCHED_RULE_REDUCTION, "0F0,0SEND_F0,0RECV_B0,0B0,0EMBED_REDUCE\n1RECV_F0,1F0,1B0,1SEND_B0\n",
     "rank 1 has no 1EMBED_REDUCE"},
    {SCHED_RULE_REDUCTION,
     "0F0,0SEND_F0,0RECV_B0,0B0,0EMBED_REDUCE,0REDUCE,WAIT\n1RECV_F0,1F0,1B0,1SEND_B0,1REDUCE,"
     "WAIT,1EMBED_REDUCE\n",
     "0EMBED_REDUCE: stage 0 is reduced later, at place 5; move it after"},
    {SCHED_RULE_REDUCTION, "0F0,0SEND_F0,0RECV_B0,0EMBED_REDUCE,0B0\n1RECV_F0,1F0,1B0,1SEND_B0,"
                           "1EMBED_REDUCE\n",
     "the weight gradient of microbatch 0 is added later, at place 4"},
    {SCHED_RULE_REDUCTION, "0F0,0B0,0EMBED_REDUCE\n", "stand on one rank"},
};

static void rules_broken(void)
{
    check_broken(broken, sizeof broken / sizeof *broken);
}

/* The lowering refuses what the check of computing refuses, with the same words. */
static void lowering_refuses(void)
{
    struct sched s, low;
    CHECK_OK(parse("0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n", &s));
    CHECK_ERR(sched_lower(&s, &no_ends, &low), ERR_CONFIG, "V4 (cycle)");
    sched_free(&s);
    CHECK_OK(parse("0F0,0F0,0B0\n", &s));
    CHECK_ERR(sched_lower(&s, &no_ends, &low), ERR_CONFIG, "V1 (coverage)");
    sched_free(&s);
    CHECK_OK(parse("0F1\n", &s));
    CHECK_ERR(sched_lower(&s, &no_ends, &low), ERR_CONFIG,
              "1 stage x 2 microbatches need 2 forwards, and there is 1 instruction in all");
    sched_free(&s);
}

/* What only a program can write, not the text. */
static void fields_refused(void)
{
    static const struct {
        struct sched_instr in;
        const char *part;
    } bad[] = {
        {{SCHED_OP_COUNT, 0, 0, 0, 0}, "instruction code"},
        {{SCHED_F, 0, 2, 0, 0}, "stage 2"},
        {{SCHED_F, 0, 0, 9, 0}, "microbatch 9"},
        {{SCHED_F, 0, 0, 0, 7}, "peer 7"},
        {{SCHED_SEND_F, 0, 0, 0, 1}, "compute only"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct sched s;
        struct sched_report r;
        CHECK_OK(sched_make("gpipe", &(struct sched_shape){2, 2, 1, 0}, NULL, &s));
        s.instr[0] = bad[i].in;
        CHECK_ERR(sched_check(&s, &r), ERR_CONFIG, bad[i].part);
        sched_report_free(&r);
        sched_free(&s);
    }
    struct sched s = {0}, low;
    struct sched_report r = {0};
    if (!prepare("gpipe", (struct sched_shape){3, 1, 1, 0}, &s, &r))
        return;
    sched_report_free(&r);
    low = s;
    low.instr[1].peer = 2; /* 0SEND_F0 */
    CHECK_ERR(sched_check(&low, &r), ERR_CONFIG, "its peer is rank 2");
    sched_report_free(&r);
    sched_free(&low);
}

static uint64_t hash_of(const char *text, uint64_t *order)
{
    struct sched s;
    struct sched_report r;
    CHECK_OK(parse(text, &s));
    CHECK_OK(sched_check(&s, &r));
    uint64_t hash = r.hash;
    *order = order_hash(&s);
    sched_report_free(&r);
    sched_free(&s);
    return hash;
}

static void hashes(void)
{
    uint64_t order[5];
    uint64_t a = hash_of("0F0,0F1,0B0,0B1\n", &order[0]);
    uint64_t b = hash_of("0F0,0F1,0B0,0B1", &order[1]);
    uint64_t c = hash_of("0F0,0B0,0F1,0B1\n", &order[2]);
    uint64_t d = hash_of("0F0,0F1,0B1,0B0\n", &order[3]);
    uint64_t e = hash_of("0F0,0F1,0I1,0I0,0W0,0W1\n", &order[4]);
    CHECK(a == b && a != c && a != d && c != d && a != e);
    CHECK(order[0] == order[1] && order[0] == order[2] && order[0] != order[3]);
    CHECK(order[0] == order[4]); /* the order of W counts, not that of I */
}

static const struct test_case cases[] = {
    {"orders", orders},
    {"forward_order", forward_order},
    {"forward_on_one_rank", forward_on_one_rank},
    {"forward_slots", forward_slots},
    {"first_of_forward", first_of_forward},
    {"shapes_refused", shapes_refused},
    {"grid", grid},
    {"ring_is_counted", ring_is_counted},
    {"lowered_text", lowered_text},
    {"receives_moved_forward", receives_moved_forward},
    {"slots_count_from_the_receive", slots_count_from_the_receive},
    {"local_stages_and_halves", local_stages_and_halves},
    {"rules_broken", rules_broken},
    {"lowering_refuses", lowering_refuses},
    {"fields_refused", fields_refused},
    {"hashes", hashes},
};
TEST_MAIN(cases)
