/* SPDX-License-Identifier: Apache-2.0
 *
 * The end of a step on the clock, by hand: sums beside the last backward, what of them is exposed,
 * ranks that meet, updates with the gathers of others beside them. And what the plan says that each
 * of these takes: bytes that a ring moves, bytes that memory reads and writes.
 */
#include "sim/sim.h"

#include "base/mem.h"
#include "config/options.h"
#include "setup/setup.h"
#include "test.h"

#include <string.h>

static void parse(const char *text, struct sched *out, struct sched_report *r)
{
    CHECK_OK(sched_parse("test", text, (int64_t)strlen(text), out));
    CHECK_OK(sched_check(out, r));
}

static void check_event(const struct sim_result *r, int64_t i, double start, double end)
{
    test_check(fabs(r->event[i].start - start) < 1e-12 && fabs(r->event[i].end - end) < 1e-12,
               __FILE__, __LINE__, "instruction %d: %g to %g, wanted %g to %g", (int)i,
               r->event[i].start, r->event[i].end, start, end);
}

static void holds(const struct text *t, const char *part, bool wanted)
{
    test_check(t->s && (strstr(t->s, part) != NULL) == wanted, __FILE__, __LINE__,
               "%s \"%s\" in: %s", wanted ? "no" : "a", part, t->s);
}

/* Lanes of a picture: the sums and gathers that the clock has, below their ranks; none without. */
static void lanes(const struct sched *s, const struct sim_result *r, const struct sim_cost *cost,
                  bool any)
{
    struct sim_picture p;
    struct text gantt = {0}, svg = {0}, page = {0};
    int64_t n = 0;
    CHECK_OK(sim_picture_make(s, r, cost, NULL, &p));
    CHECK_NEAR(p.chart.end, any ? r->step : r->makespan, 0);
    for (int rank = 0; rank < s->p; rank++)
        for (int64_t i = s->begin[rank]; i < s->begin[rank + 1]; i++) {
            int op = s->instr[i].op;
            if (!any || (op != SCHED_REDUCE && op != SCHED_GATHER))
                continue;
            const struct draw_comm *c = &p.comm[n++];
            CHECK(c->rank == rank && c->stage == s->instr[i].stage);
            CHECK(c->kind == (op == SCHED_REDUCE ? DRAW_SUM : DRAW_GATHER));
            CHECK(c->start == r->event[i].start && c->end == r->event[i].end);
        }
    CHECK_INT(p.chart.comms, n);
    struct draw_page all = {.title = "t", .time_unit = "", .memory_unit = "activations",
                            .chart = &p.chart, .charts = 1};
    CHECK_OK(draw_gantt(&all, 60, false, &gantt));
    CHECK_OK(draw_svg(&all, &svg));
    CHECK_OK(draw_html(&all, &page));
    holds(&gantt, "\n       |                      = ====    ########|\n", any);
    holds(&gantt, "\n       |                ========         #      |\n", any);
    holds(&gantt, ", = gradients are summed, # weights are gathered", any);
    holds(&svg, "gradients are summed of stage 1: 4 to 6", any);
    holds(&svg, "weights are gathered of stage 0: 8.875 to 9.875", any);
    holds(&page, "\"comm\":[[5.5,5.75,0,0,6,7,0,0,7.875,8.875,1,0,8.875,9.875,1,0],\n[4,6,0,1,",
          any);
    text_free(&gantt);
    text_free(&svg);
    text_free(&page);
    sim_picture_free(&p);
}

static void shared_updates(void)
{
    struct sched s;
    struct sched_report report = {0};
    struct sim_result r;
    parse("0F0,0SEND_F0,0RECV_B0,0.2B0,0.2REDUCE,0.1B0,0.1REDUCE,WAIT,0EMBED_REDUCE,NORM,0.1UPDATE,"
          "0.1GATHER,0.2UPDATE,0.2GATHER,WAIT\n"
          "1RECV_F0,1F0,1B0,1SEND_B0,1REDUCE,WAIT,1EMBED_REDUCE,NORM,1UPDATE,1GATHER,WAIT\n",
          &s, &report);
    const double each[] = {0, 0, 0, 0.75, 0.25, 0.25, 1, 0, 0.5, 0.125, 0.25, 1, 0.25, 1, 0,
                           0, 0, 0, 0,    2,    0,    0.5, 0.125, 0.5, 0.25, 0};
    struct sim_cost cost = {.tf = 1, .tb = 2, .each = each, .overlaps = true};
    CHECK_OK(sim_run(&s, &report, &cost, true, &r));
    check_event(&r, 3, 4, 5.5);
    check_event(&r, 4, 5.5, 5.75);
    check_event(&r, 5, 5.5, 6);
    check_event(&r, 6, 6, 7);
    check_event(&r, 7, 6, 7);      /* the sum of its first layers is exposed */
    check_event(&r, 19, 4, 6);
    check_event(&r, 20, 4, 6);
    check_event(&r, 8, 7, 7.5);    /* rank 1 came at 6 */
    check_event(&r, 21, 6, 7.5);
    check_event(&r, 9, 7.5, 7.625);
    check_event(&r, 10, 7.625, 7.875);
    check_event(&r, 11, 7.875, 8.875);
    check_event(&r, 12, 7.875, 8.125);
    check_event(&r, 13, 8.875, 9.875); /* behind the gather before it */
    check_event(&r, 14, 8.125, 9.875);
    check_event(&r, 25, 8.125, 8.375);
    CHECK_NEAR(r.makespan, 6, 1e-12);
    CHECK_NEAR(r.step, 9.875, 1e-12);
    CHECK_NEAR(r.sums[0], 3.25, 1e-12);
    CHECK_NEAR(r.sums[1], 2.25, 1e-12);
    CHECK_NEAR(r.exposed[0], 2.75, 1e-12);
    CHECK_NEAR(r.exposed[1], 2.25, 1e-12);
    CHECK_NEAR(r.meeting[0], 0.625, 1e-12);
    CHECK_NEAR(r.meeting[1], 1.625, 1e-12);
    CHECK_NEAR(r.updating[0], 0.5, 1e-12);
    lanes(&s, &r, &cost, true);
    sim_result_free(&r);
    cost.overlaps = false; /* all is done where it is waited for */
    CHECK_OK(sim_run(&s, &report, &cost, true, &r));
    check_event(&r, 5, 5.5, 6);
    check_event(&r, 4, 6, 6.25);
    check_event(&r, 6, 6.25, 7.25);
    check_event(&r, 7, 6, 7.25);
    check_event(&r, 9, 7.75, 7.875);
    check_event(&r, 12, 8.125, 8.375); /* behind the update before it */
    check_event(&r, 11, 8.375, 9.375);
    check_event(&r, 13, 9.375, 10.375);
    check_event(&r, 14, 8.375, 10.375);
    check_event(&r, 25, 8.375, 8.625);
    CHECK_NEAR(r.makespan, 6, 1e-12);
    CHECK_NEAR(r.step, 10.375, 1e-12);
    for (int rank = 0; rank < 2; rank++)
        CHECK_NEAR(r.exposed[rank], r.sums[rank], 1e-12);
    sim_result_free(&r);
    cost.each = NULL; /* instants, and segments equal */
    CHECK_OK(sim_run(&s, &report, &cost, true, &r));
    check_event(&r, 3, 4, 5);
    CHECK(r.step == 0 && r.sums[0] == 0 && r.meeting[1] == 0);
    lanes(&s, &r, &cost, false);
    sim_result_free(&r);
    sched_report_free(&report);
    sched_free(&s);
}

/* Whoever comes first waits for all at the norm. */
static void all_meet_at_the_norm(void)
{
    struct sched s;
    struct sched_report report = {0};
    struct sim_result r;
    parse("0F0,0SEND_F0,0RECV_B0,0B0,NORM,STEP\n1RECV_F0,1F0,1B0,1SEND_B0,NORM,STEP\n", &s,
          &report);
    const double each[] = {0, 0, 0, 0, 0.5, 0.25, 0, 0, 0, 0, 0.5, 0.25};
    CHECK_OK(sim_run(&s, &report, &(struct sim_cost){.tf = 1, .tb = 2, .each = each}, true, &r));
    check_event(&r, 4, 6, 6.5);
    check_event(&r, 10, 4, 6.5);
    CHECK_NEAR(r.meeting[1], 2.5, 1e-12);
    CHECK_NEAR(r.step, 6.75, 1e-12);
    sim_result_free(&r);
    sched_report_free(&report);
    sched_free(&s);
}

/* The two replicas of a stage are summed when the later of their ranks has come. */
static void replicas_meet(void)
{
    struct sched made, s;
    struct sched_report report = {0};
    struct sim_result r;
    double each[256] = {0};
    CHECK_OK(sched_make("chimera", &(struct sched_shape){2, 2, 1, 0}, NULL, &made));
    CHECK_OK(sched_lower(&made, &(struct sched_lower_args){.step = true}, &s));
    CHECK_OK(sched_check(&s, &report));
    CHECK(s.begin[2] < 256);
    for (int64_t i = 0; i < s.begin[2]; i++)
        each[i] = s.instr[i].op == SCHED_REPLICA_REDUCE ? 0.5 : 0;
    const double scale[] = {1, 3};
    struct sim_cost cost = {.tf = 1, .tb = 2, .stage_scale = scale, .each = each};
    CHECK_OK(sim_run(&s, &report, &cost, true, &r));
    double end[2] = {0};
    for (int rank = 0; rank < 2; rank++) {
        end[rank] = r.event[s.begin[rank + 1] - 1].end;
        CHECK_NEAR(r.last[rank] + r.meeting[rank], r.step, 1e-12);
    }
    CHECK_NEAR(end[0], end[1], 0);
    CHECK_NEAR(r.step, r.makespan + 2 * 0.5, 1e-12);
    sim_result_free(&r);
    sched_report_free(&report);
    sched_free(&made);
    sched_free(&s);
}

/* ---- what each takes ---- */

static void setup_of(struct options *o, const char *const *words, struct setup *s)
{
    CHECK_OK(conf_defaults(&options_table, o));
    CHECK_OK(conf_set(&options_table, o, "train.batch=32"));
    for (int i = 0; words[i]; i++)
        CHECK_OK(conf_set(&options_table, o, words[i]));
    CHECK_OK(setup_make(o, 257, true, s));
}

/* The same on all axes. */
static struct caps link_caps(double latency, double bandwidth)
{
    struct caps c = {.memory = 0};
    for (int i = 0; i < AXIS_COUNT; i++)
        c.axis[i] = (struct caps_link){latency, bandwidth};
    return c;
}

/* Time of all instructions of a kind on a pipeline rank. */
static double time_of(const struct setup *s, const double *each, int pp, enum sched_op op)
{
    double sum = 0;
    for (int64_t i = s->sched.begin[pp]; i < s->sched.begin[pp + 1]; i++)
        sum += s->sched.instr[i].op == op ? each[i] : 0;
    return sum;
}

/* Elements of a rank's stages, by the buffers' own count. */
static double elements_of(const struct setup *s, int pp)
{
    return (double)s->memory[pp].bytes[MEMORY_GRADS] / (double)dtype_size(s->types.at);
}

static void each_by_hand(void)
{
    static const char *const zero[] = {"parallel.pp=2", "parallel.dp=4", "parallel.zero=1",
                                       "train.dtype=bf16", NULL};
    static const char *const whole[] = {"parallel.pp=2", "parallel.dp=4", "train.dtype=f32", NULL};
    const struct caps caps[3] = {link_caps(0, 1e6), {.memory = 1e6}, link_caps(1, 0)};
    for (int shared = 0; shared < 2; shared++) {
        struct options o;
        struct setup s;
        double *each[3] = {NULL};
        setup_of(&o, shared ? zero : whole, &s);
        for (int k = 0; k < 3; k++) {
            o.caps = caps[k];
            CHECK_OK(setup_ends(&s, &each[k]));
        }
        for (int pp = 0; pp < 2; pp++) {
            double n = elements_of(&s, pp), summed = shared ? n * 4 * 3 / 4 : 2 * n * 4 * 3 / 4;
            /* what lies between parameters is summed where it is shared out alone */
            CHECK_NEAR(time_of(&s, each[0], pp, SCHED_REDUCE), summed / 1e6, 0.02 * summed / 1e6);
            CHECK_NEAR(time_of(&s, each[0], pp, SCHED_GATHER),
                       shared ? n * 2 * 3 / 4 / 1e6 : 0, 1e-9);
            CHECK_NEAR(time_of(&s, each[0], pp, SCHED_NORM), 2 * 5 * 8 * 7.0 / 8 / 1e6, 1e-12);
            CHECK_NEAR(time_of(&s, each[1], pp, SCHED_NORM), n * 4 / 4 / 1e6, 1e-6);
            CHECK_NEAR(time_of(&s, each[1], pp, SCHED_STEP), shared ? 0 : n * 28 / 1e6, 1e-9);
            CHECK_NEAR(time_of(&s, each[1], pp, SCHED_UPDATE), shared ? n / 4 * 30 / 1e6 : 0, 1e-9);
            CHECK_NEAR(time_of(&s, each[2], pp, SCHED_NORM), 1, 0);
            CHECK_NEAR(time_of(&s, each[2], pp, SCHED_REDUCE),
                       s.segments[pp].sums, 0); /* a stage a rank here */
            CHECK_NEAR(time_of(&s, each[2], pp, SCHED_EMBED_REDUCE), shared ? 2 : 1, 0);
        }
        for (int k = 0; k < 3; k++)
            mem_free(each[k]);
        setup_free(&s);
    }
}

/* Shares of segments add up to their stages. */
static void segments_share(void)
{
    static const char *const words[] = {"parallel.pp=2", "parallel.dp=2", "model.kind=llama",
                                        "train.recompute=every:1", NULL};
    struct options o;
    struct setup s;
    double *each = NULL;
    setup_of(&o, words, &s);
    o.caps = link_caps(1, 0);
    CHECK_OK(setup_ends(&s, &each));
    for (int pp = 0; pp < 2; pp++) {
        CHECK(s.segments[pp].n > 1);
        CHECK_NEAR(time_of(&s, each, pp, SCHED_B), s.sched.m, 1e-9);
        CHECK_NEAR(time_of(&s, each, pp, SCHED_R), s.sched.m, 1e-9);
        CHECK_NEAR(time_of(&s, each, pp, SCHED_F), 0, 0);
    }
    mem_free(each);
    setup_free(&s);
}

/* An embedding has no FLOPs: its segment takes no time of the backward. */
static void segments_differ(void)
{
    static const char *const words[] = {"parallel.dp=2", NULL};
    struct options o;
    struct setup s;
    double *each = NULL;
    setup_of(&o, words, &s);
    o.caps = link_caps(1, 0);
    CHECK_OK(setup_ends(&s, &each));
    for (int64_t i = 0; i < s.sched.begin[1]; i++)
        if (s.sched.instr[i].op == SCHED_B && s.sched.instr[i].seg > 0)
            CHECK((each[i] == 0) == (s.sched.instr[i].seg == 1));
    mem_free(each);
    setup_free(&s);
}

/* Each boundary has its own message, of a short microbatch a shorter one; a size given holds for
 * all. */
static void messages_by_hand(void)
{
    static const char *const words[] = {
        "model.kind=mlp", "model.widths=[512, 1024, 256, 10]", "model.vocab=10", "parallel.pp=3",
        "parallel.split=[fc2, fc3]", "parallel.microbatch=5", "train.batch=8", "train.dtype=f32",
        NULL};
    static const int wide[] = {1024, 256}; /* behind stages 0 and 1 */
    struct options o;
    struct setup s;
    struct sim_result r;
    double *each = NULL;
    int seen = 0;
    setup_of(&o, words, &s);
    o.caps.axis[AXIS_PP] = (struct caps_link){0.25, 1000};
    CHECK_OK(setup_ends(&s, &each));
    struct sim_cost cost = {.tf = 100, .tb = 200, .latency = 0.25, .bandwidth = 1000, .each = each};
    CHECK_OK(sim_run(&s.sched, &s.report, &cost, true, &r));
    for (int64_t i = 0; i < s.sched.begin[3]; i++) {
        struct sched_instr in = s.sched.instr[i];
        if (in.op != SCHED_SEND_F && in.op != SCHED_SEND_B)
            continue;
        double bytes = (in.mb == 0 ? 5 : 3) * 4 * wide[in.stage - (in.op == SCHED_SEND_B)];
        CHECK_NEAR(each[i], bytes / 1000, 1e-12);
        check_event(&r, i, r.event[i].start, r.event[i].start + bytes / 1000 + 0.25);
        seen++;
    }
    CHECK_INT(seen, 8);
    CHECK_NEAR(r.sending[0], 8 * 4 * 1024 / 1000.0, 1e-9);
    sim_result_free(&r);
    cost.bytes = 2000;
    CHECK_OK(sim_run(&s.sched, &s.report, &cost, true, &r));
    CHECK_NEAR(r.sending[0], 2 * 2, 1e-12);
    sim_result_free(&r);
    mem_free(each);
    setup_free(&s);
}

/* ---- collectives inside actions ---- */

/* They lengthen the action, and are told apart from it; a pair has those of both its halves. */
static void actions_last_longer(void)
{
    struct sched s;
    struct sched_report report = {0};
    struct sim_result r;
    parse("0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n", &s, &report);
    const struct sim_inside inside[] = {{0.5, 0.25}, {0, 0}, {0, 0}, {1, 0},
                                        {0, 0},      {2, 2}, {3, 1}};
    const struct sim_inside none[8] = {{0, 0}};
    struct sim_inside each[8] = {{0, 0}};
    memcpy(each, inside, sizeof inside);
    struct sim_cost cost = {.tf = 1, .tb = 2, .inside = each};
    CHECK_OK(sim_run(&s, &report, &cost, true, &r));
    check_event(&r, 0, 0, 1.25);
    check_event(&r, 5, 1.25, 4.25);
    check_event(&r, 6, 4.25, 7.25);
    check_event(&r, 3, 7.25, 9.25);
    CHECK_NEAR(r.busy[1], 6, 1e-12);
    CHECK_NEAR(r.inside[0], 1.5, 1e-12);
    CHECK_NEAR(r.inside_exposed[0], 0.25, 1e-12);
    CHECK_NEAR(r.inside[1], 5, 1e-12);
    CHECK_NEAR(r.inside_exposed[1], 3, 1e-12);
    sim_result_free(&r);
    each[3] = (struct sim_inside){1, 1.5};
    CHECK_ERR(sim_run(&s, &report, &cost, true, &r), ERR_CONFIG, "of which 1.5 is exposed");
    cost.inside = none;
    CHECK_OK(sim_run(&s, &report, &cost, true, &r));
    CHECK_NEAR(r.makespan, 6, 1e-12);
    sim_result_free(&r);
    sched_report_free(&report);
    sched_free(&s);
    parse("0F0,0F1,(0F2;0B0)OVERLAP_F_B,0B1,0B2,NORM,STEP\n", &s, &report);
    const struct sim_inside pair[] = {{0, 0}, {0, 0}, {0, 0}, {1, 0.5}, {1, 0.25},
                                      {0, 0}, {0, 0}, {0, 0}, {0, 0}};
    cost = (struct sim_cost){.tf = 1, .tb = 2, .tov = 2.5, .inside = pair};
    CHECK_OK(sim_run(&s, &report, &cost, true, &r));
    check_event(&r, 2, 2, 5.25);
    CHECK_NEAR(r.inside[0], 2, 1e-12);
    sim_result_free(&r);
    sched_report_free(&report);
    sched_free(&s);
}

/* Of the first action of a kind on a pipeline rank. */
static struct sim_inside inside_of(const struct setup *s, const struct sim_inside *each, int pp,
                                   enum sched_op op)
{
    int64_t i = s->sched.begin[pp];
    while (s->sched.instr[i].op != op)
        i++;
    return each[i];
}

enum { TENSORS = 4, SAMPLES = 2, TOKENS = 128, WIDE = 256, INNER = 1024, BLOCKS = 2 };
#define TENSOR_WORDS "parallel.tp=4", "parallel.microbatch=2", "model.layers=4", "model.seq=128", \
    "model.hidden=256", "model.heads=4", "model.ffn=1024", "train.dtype=f32"

/* Without overlap all of it is exposed: of an all-reduce a ring moves 2 (n - 1) / n of the stream,
 * of a gather or a reduce-scatter half of that. */
static void inside_by_hand(void)
{
    static const char *const whole[] = {TENSOR_WORDS, "parallel.pp=2", NULL};
    static const char *const rows[] = {TENSOR_WORDS, "parallel.pp=2", "parallel.sp=true", NULL};
    double stream = SAMPLES * TOKENS * WIDE * 4, sum = stream * 2 * 3 / 4, part = sum / 2;
    double row = SAMPLES * TOKENS * 4, losses = (row + 2 * row) * 2 * 3 / 4;
    for (int sp = 0; sp < 2; sp++) {
        struct options o;
        struct setup s;
        struct sim_inside *each = NULL;
        double time[2][SCHED_COMPUTE_OPS] = {{1, 2, 1, 1, 1}, {1, 2, 1, 1, 1}};
        setup_of(&o, sp ? rows : whole, &s);
        o.caps = link_caps(0, 1e6);
        CHECK(s.cut[0].end - s.cut[0].first == 1 + 2 * BLOCKS);
        CHECK_OK(setup_inside(&s, (const double(*)[SCHED_COMPUTE_OPS])time, &each));
        double sums = 2 * BLOCKS, gathers = sp ? sums : 0; /* of the forward's sublayers */
        const double wanted[2][2] = {
            {sp ? (1 + sums + gathers) * part : (1 + sums) * sum,
             sp ? (3 * sums + 1) * part : sums * sum},
            {(sp ? (2 + sums + gathers) * part : (1 + sums) * sum) + losses,
             sp ? 3 * sums * part : sums * sum}};
        for (int pp = 0; pp < 2; pp++)
            for (int back = 0; back < 2; back++) {
                struct sim_inside i = inside_of(&s, each, pp, back ? SCHED_B : SCHED_F);
                CHECK_NEAR(i.all, wanted[pp][back] / 1e6, 1e-9);
                CHECK_NEAR(i.exposed, i.all, 0);
            }
        mem_free(each);
        setup_free(&s);
    }
}

/* Times of a stage's actions by which a FLOP of a rank takes so long. */
static void times_of(const struct setup *s, double a_flop, double time[1][SCHED_COMPUTE_OPS])
{
    double forward = model_flops(&s->model, &s->cut[0], false) * SAMPLES / TENSORS * a_flop;
    memcpy(time[0], (double[]){forward, 2 * forward, forward, forward, forward}, sizeof time[0]);
}

/* Overlapped, a collective is exposed as far as it is longer than the GEMMs beside it; of a GEMM
 * that is cut, the last piece's sum is beside nothing. */
static void overlapped_by_hand(void)
{
    static const char *const words[] = {TENSOR_WORDS, "parallel.tp_overlap=on",
                                        "parallel.tp_rows=64", "train.device=cuda", NULL};
    double sum = SAMPLES * TOKENS * WIDE * 4 * 2 * 3 / 4 / 1e6; /* of the stream */
    double row = SAMPLES * TOKENS * 4, losses = (row + 2 * row) * 2 * 3 / 4 / 1e6;
    double attn = 2.0 * SAMPLES * TOKENS * WIDE * 4 * WIDE / TENSORS; /* q k v, and o */
    double mlp = 2.0 * SAMPLES * TOKENS * WIDE * 2 * INNER / TENSORS;
    int blocks = 2 * BLOCKS, pieces = SAMPLES * TOKENS / 64;
    struct options o;
    struct setup s;
    double time[1][SCHED_COMPUTE_OPS];
    struct sim_inside *each;
    setup_of(&o, words, &s);
    o.caps = link_caps(0, 1e6);
    const double a_flop[] = {1, 0, 0.75 * sum / mlp};
    for (int i = 0; i < 3; i++) {
        times_of(&s, a_flop[i], time);
        CHECK_OK(setup_inside(&s, (const double(*)[SCHED_COMPUTE_OPS])time, &each));
        struct sim_inside f = inside_of(&s, each, 0, SCHED_F), b = inside_of(&s, each, 0, SCHED_B);
        CHECK_NEAR(f.all, (2 + 2 * blocks) * sum + losses, 1e-9);
        CHECK_NEAR(b.all, 2 * blocks * sum, 1e-9);
        if (i == 0) { /* slow: the embedding's sum, last pieces, what the loss agrees on */
            CHECK_NEAR(f.exposed, (1 + 2.0 * blocks / pieces) * sum + losses, 1e-9);
            CHECK_NEAR(b.exposed, 0, 0);
        } else if (i == 1) {
            CHECK_NEAR(f.exposed, f.all, 1e-9);
            CHECK_NEAR(b.exposed, b.all, 1e-9);
        } else { /* the weights' GEMMs of an mlp take three quarters of a sum */
            double left = 0.25 * sum + sum - attn * a_flop[i];
            CHECK_NEAR(b.exposed, blocks * left, 1e-9);
        }
        mem_free(each);
    }
    setup_free(&s);
}

/* With sp, where a backward's halves follow each other, the second gather and the gradient's sum
 * are on their way one behind the other beside three GEMMs of a sublayer: that of its input's
 * gradient, the second, beside which are both, and the third. */
static void gather_and_sum_by_hand(void)
{
    static const char *const words[] = {TENSOR_WORDS, "parallel.tp_overlap=on", "parallel.sp=true",
                                        "parallel.tp_rows=64", "train.device=cuda", NULL};
    int blocks = 2 * BLOCKS;
    double part = SAMPLES * TOKENS * WIDE * 4 * 3 / 4 / 1e6; /* a gather, or a sum */
    double wide = 2.0 * SAMPLES * TOKENS * WIDE * WIDE / TENSORS; /* o; q k v are three, up four */
    const struct { double a_part, attn, mlp; } row[] = {
        /* how many `wide` a part takes; exposed then of the gradient's first gather in chunks, of
         * which three quarters of o or down hide some; of the second gather; of the sum */
        {0.5, 0, 0},
        {2, 2 - 0.75, 0},
        {3.5, 3.5 - 0.75 + 0 + (3.5 + 3.5 - 7), 3.5 - 3},
        {7.2, 7.2 - 0.75 + (7.2 - 4) + (7.2 - 3), 7.2 - 3 + 0 + (7.2 + 7.2 - 12)},
        {10, 10 - 0.75 + (10 - 4) + (10 - 3), 10 - 3 + (10 - 8) + (10 - 4)},
    };
    for (int i = 0; i < 5; i++) {
        struct options o;
        struct setup s;
        double time[1][SCHED_COMPUTE_OPS];
        struct sim_inside *each;
        setup_of(&o, words, &s);
        o.caps = link_caps(0, 1e6);
        times_of(&s, part / row[i].a_part / wide, time);
        CHECK(setup_caps(&s).overlaps);
        CHECK_OK(setup_inside(&s, (const double(*)[SCHED_COMPUTE_OPS])time, &each));
        struct sim_inside b = inside_of(&s, each, 0, SCHED_B);
        CHECK_NEAR(b.all, (3 * 2 * blocks + 1) * part, 1e-9);
        CHECK_NEAR(b.exposed, blocks * (row[i].attn + row[i].mlp) * part / row[i].a_part + part,
                   1e-9); /* and the embedding's gather */
        mem_free(each);
        setup_free(&s);
    }
}

/* In host memory nothing is hidden: ranks move and add themselves. */
static void hosts_hide_nothing(void)
{
    static const char *const words[] = {TENSOR_WORDS, "parallel.tp_overlap=on", "parallel.sp=true",
                                        "parallel.tp_rows=64", "train.device=cpu", NULL};
    struct options o;
    struct setup s;
    double time[1][SCHED_COMPUTE_OPS];
    struct sim_inside *each;
    setup_of(&o, words, &s);
    o.caps = link_caps(0, 1e6);
    times_of(&s, 1, time);
    CHECK(!setup_caps(&s).overlaps);
    CHECK_OK(setup_inside(&s, (const double(*)[SCHED_COMPUTE_OPS])time, &each));
    for (int op = SCHED_F; op <= SCHED_B; op++) {
        struct sim_inside of = inside_of(&s, each, 0, op);
        CHECK(of.all > 0 && of.exposed == of.all);
    }
    mem_free(each);
    setup_free(&s);
}

/* Segments of a backward, and its halves, have together what it has; a recompute the forward's
 * without the loss. */
static void inside_adds_up(void)
{
    static const char *const whole[] = {TENSOR_WORDS, "train.recompute=full", "parallel.pp=2",
                                        NULL};
    static const char *const cut[] = {TENSOR_WORDS, "train.recompute=every:1", "parallel.pp=2",
                                      NULL};
    double of[2][SCHED_COMPUTE_OPS] = {{0}};
    for (int k = 0; k < 2; k++) {
        struct options o;
        struct setup s;
        struct sim_inside *each;
        const double time[2][SCHED_COMPUTE_OPS] = {{0}};
        setup_of(&o, k ? cut : whole, &s);
        o.caps = link_caps(1, 0);
        CHECK_OK(setup_inside(&s, time, &each));
        for (int64_t i = s.sched.begin[0]; i < s.sched.begin[1]; i++)
            if (s.sched.instr[i].op < SCHED_COMPUTE_OPS && s.sched.instr[i].mb == 0)
                of[k][s.sched.instr[i].op] += each[i].all;
        mem_free(each);
        setup_free(&s);
    }
    CHECK_NEAR(of[0][SCHED_F], 1 + 2 * BLOCKS, 0);
    CHECK_NEAR(of[0][SCHED_R], 1 + 2 * BLOCKS, 0);
    CHECK_NEAR(of[0][SCHED_B], 2 * BLOCKS, 0);
    CHECK(memcmp(of[0], of[1], sizeof of[0]) == 0);
}

static void costs_are_checked(void)
{
    struct sched s;
    struct sched_report report = {0};
    struct sim_result r;
    parse("0F0,0B0,NORM,STEP\n", &s, &report);
    static const double bad[] = {-1, NAN, INFINITY, 2e100};
    for (int i = 0; i < 4; i++) {
        const double each[] = {0, 0, 0, bad[i]};
        CHECK_ERR(sim_run(&s, &report, &(struct sim_cost){.tf = 1, .each = each}, false, &r),
                  ERR_CONFIG, "is not a time of STEP; use 0 to 1e100");
    }
    sched_report_free(&report);
    sched_free(&s);
}

static const struct test_case cases[] = {
    {"shared_updates", shared_updates}, {"all_meet_at_the_norm", all_meet_at_the_norm},
    {"replicas_meet", replicas_meet},
    {"each_by_hand", each_by_hand}, {"segments_share", segments_share},
    {"segments_differ", segments_differ}, {"messages_by_hand", messages_by_hand},
    {"actions_last_longer", actions_last_longer},
    {"inside_by_hand", inside_by_hand}, {"overlapped_by_hand", overlapped_by_hand},
    {"gather_and_sum_by_hand", gather_and_sum_by_hand}, {"hosts_hide_nothing", hosts_hide_nothing},
    {"inside_adds_up", inside_adds_up}, {"costs_are_checked", costs_are_checked},
};
TEST_MAIN(cases)
