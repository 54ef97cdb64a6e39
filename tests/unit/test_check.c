/* SPDX-License-Identifier: Apache-2.0
 *
 * What run_check refuses, with which code and which words; what it lets pass although others would
 * not; what it reports; how long it takes.
 */
#include "illegal.h"

#include "base/fs.h"
#include "base/mem.h"
#include "comm/comm.h"
#include "device/device.h"
#include "plait.h"
#include <stdlib.h>
#include <time.h>

static struct options with(const char *const *words)
{
    struct options o;
    CHECK_OK(conf_defaults(&options_table, &o));
    CHECK_OK(conf_set(&options_table, &o, "model.vocab=257"));
    CHECK_OK(conf_set(&options_table, &o, "train.device=ref"));
    for (; *words; words++)
        CHECK_OK(conf_set(&options_table, &o, *words));
    return o;
}
#define WITH(...) with((const char *const[]){__VA_ARGS__, NULL})

/* "16 microbatches" and the like, told once is enough. */
static bool says_a_number_twice(const char *text)
{
    for (const char *at = text; (at = strstr(at, " microbatch")) != NULL; at++) {
        const char *from = at;
        char said[64];
        while (from > text && from[-1] >= '0' && from[-1] <= '9')
            from--;
        snprintf(said, sizeof said, "%.*s", (int)(at + strlen(" microbatch") - from), from);
        if (from < at && strstr(at, said))
            return true;
    }
    return false;
}

static void illegal_configurations_are_refused(void)
{
    illegal_files();
    for (int i = 0; i < ILLEGAL_COUNT; i++) {
        const struct illegal *c = &illegal[i];
        enum err err = illegal_run(c);
        const char *text = err_text();
        test_check(err == c->code && strstr(text, c->name) && strstr(text, c->value) &&
                       strstr(text, c->rule),
                   __FILE__, __LINE__, "%s: wanted %d, \"%s\", \"%s\", \"%s\"; got %d: %s", c->set,
                   (int)c->code, c->name, c->value, c->rule, (int)err, err == ERR_OK ? "" : text);
        const char *behind = strstr(text, ": ");
        size_t word = behind ? strspn(behind + 2, "abcdefghijklmnopqrstuvwxyz") : 0;
        test_check(word == 0 || strncmp(behind + 2 + word, ": ", 2) != 0, __FILE__, __LINE__,
                   "two openings: %s", text);
        test_check(err == ERR_OK || !says_a_number_twice(text), __FILE__, __LINE__, "twice: %s",
                   text);
        test_check(err == ERR_OK || (strcmp(text, "") != 0 && text[strlen(text) - 1] != '.'),
                   __FILE__, __LINE__, "form: %s", text);
    }
}

/* Each word in the messages that proposes a value must propose one that passes. */
static void proposed_values_are_legal(void)
{
    static const char *const repaired[][4] = {
        {"model.hidden=132", NULL},
        {"parallel.dp=3", "train.batch=9", NULL},
        {"parallel.dp=16", "train.batch=16", NULL},
        {"parallel.microbatch=3", "train.batch=131071", NULL},
        {"model.seq=126", "parallel.tp=2", "parallel.sp=true", NULL},
        {"optim.schedule=wsd", "optim.decay_steps=1", NULL},
        {"optim.schedule=wsd", "optim.decay_steps=100", NULL},
    };
    for (size_t i = 0; i < sizeof repaired / sizeof *repaired; i++) {
        struct options o = with(repaired[i]);
        CHECK_OK(run_check(&o, 0, CHECK_PLAN, NULL));
    }
    for (int tp = 1; tp <= 40; tp++) { /* the list that the refusal of tp 4 gives: 1 2 5 10 20 40 */
        char word[32];
        snprintf(word, sizeof word, "parallel.tp=%d", tp);
        struct options o = WITH("model.kind=llama", "model.heads=40", "model.hidden=320",
                                "model.kv_heads=10", "model.ffn=3200", word);
        bool listed = tp == 1 || tp == 2 || tp == 5 || tp == 10 || tp == 20 || tp == 40;
        test_check((run_check(&o, 0, CHECK_PLAN, NULL) == ERR_OK) == listed, __FILE__, __LINE__,
                   "tp %d", tp);
    }
}

static char *report_of(const struct options *o, enum check_for purpose)
{
    struct text t = {0};
    char *s = NULL;
    CHECK_OK(run_check(o, 0, purpose, &t));
    CHECK_OK(text_done(&t, &s));
    return s ? s : (char *)"";
}

static void unusual_layouts_are_legal(void)
{
    static const char *const legal[][6] = {
        {"model.layers=30", "parallel.pp=4", NULL},
        {"parallel.microbatch=3", NULL}, /* 3, 3, 2 */
        {"parallel.pp=4", "train.batch=1", NULL},
        {"model.kind=llama", "model.heads=32", "model.kv_heads=2", "parallel.tp=8", "model.ffn=512",
         NULL},
        {"model.vocab=50257", "parallel.tp=4", NULL},
        {"train.device=ref", NULL},
        {"train.device=null", "train.dtype=bf16", NULL},
        {"optim.lr=0", "optim.lr_min=0", NULL},
        {"train.valid_every=5", NULL},
        {"optim.post_validation=true", "parallel.pp=2", "parallel.zero=1", NULL}, /* idle */
    };
    for (size_t i = 0; i < sizeof legal / sizeof *legal; i++) {
        struct options o = with(legal[i]);
        CHECK_OK(run_check(&o, 0, CHECK_PLAN, NULL));
        CHECK_OK(run_check(&o, (int)options_ranks(&o), CHECK_PLAN, NULL));
    }
}

/* A course of the learning rate that does not fit the run is shortened and said, and one that fits
 * is not spoken of. */
static void courses_are_shortened_and_said(void)
{
    static const char *const rises[] = {"constant", "linear", "cosine", "wsd"};
    for (int i = 0; i < 4 * 5 * 4; i++) {
        int64_t steps = 10, warmup = 8 + i / 4 % 5, decay = i % 4; /* 8 to 12, 0 to 3 */
        bool wsd = i / 20 == 3;
        char course[48], rise[48], fall[48], said[128];
        if (wsd && decay == 0)
            continue;
        snprintf(course, sizeof course, "optim.schedule=%s", rises[i / 20]);
        snprintf(rise, sizeof rise, "optim.warmup=%d", (int)warmup);
        snprintf(fall, sizeof fall, "optim.decay_steps=%d", wsd ? (int)decay : 0);
        struct options o = WITH("train.steps=10", course, rise, fall, "data.train=");
        char *s = report_of(&o, CHECK_PLAN);
        snprintf(said, sizeof said, "warning optim.warmup %d is longer than train.steps 10: the "
                                    "learning rate rises over 10 steps\n", (int)warmup);
        CHECK_INT(strstr(s, said) != NULL, warmup > steps);
        CHECK_INT(strstr(s, "optim.warmup") != NULL,
                  warmup > steps || (wsd && decay > steps - warmup));
        int64_t left = warmup < steps ? steps - warmup : 0;
        snprintf(said, sizeof said, "over the last %d\n", (int)left);
        CHECK_INT(strstr(s, said) != NULL, wsd && left > 0 && decay > left);
        CHECK_INT(strstr(s, "does not decay") != NULL, wsd && left == 0);
        mem_free(s);
    }
}

static void report_says_what_will_run(void)
{
    illegal_files();
    struct options o = WITH("parallel.pp=2", "parallel.microbatch=3", "data.train=bytes.tok",
                            "data.valid=bytes.tok", "model.seq=16");
    char *s = report_of(&o, CHECK_PLAN);
    CHECK(strstr(s, "2 ranks: tp 1, pp 2, dp 1") != NULL);
    CHECK(strstr(s, "schedule 1f1b, predicted bubble") != NULL);
    CHECK(strstr(s, "machine 2 ranks of") != NULL);
    CHECK(strstr(s, "memory a rank") != NULL);
    CHECK(strstr(s, "data    bytes.tok: 1201 tokens, 75 samples") != NULL);
    CHECK(strstr(s, "valid   bytes.tok") != NULL);
    CHECK(strstr(s, "warning") == NULL);
    mem_free(s);
}

/* Bytes of pp 0 in the table. */
static double first_rank(const char *report)
{
    const char *said = strstr(report, "memory a rank");
    said = said ? strstr(said, "  pp 0 ") : NULL;
    return said ? strtod(said + strlen("  pp 0 "), NULL) : 0;
}

static double bubble_of(const char *report)
{
    const char *said = strstr(report, "predicted bubble ");
    return said ? strtod(said + strlen("predicted bubble "), NULL) : 0;
}

static void recompute_is_reported(void)
{
    struct options o = WITH("parallel.pp=2", "parallel.schedule=gpipe");
    char *plain = report_of(&o, CHECK_PLAN);
    o = WITH("parallel.pp=2", "parallel.schedule=gpipe", "train.recompute=full");
    char *full = report_of(&o, CHECK_PLAN);
    CHECK(strstr(plain, "recompute") == NULL);
    CHECK(strstr(full, "schedule gpipe, recompute full, predicted bubble") != NULL);
    CHECK(first_rank(full) > 0 && first_rank(full) < first_rank(plain));
    /* recomputes are work, and the last rank's are in the open: less of the step is idle */
    CHECK(bubble_of(full) > 0 && bubble_of(full) < bubble_of(plain) - 2);
    mem_free(plain);
    mem_free(full);
}

/* A list with recomputes of its own: two microbatches of four, one of which is recomputed. */
static void recompute_of_a_file_is_reported(void)
{
    static const char list[] = "0F0,0F1,0R0,0B0,0B1\n";
    illegal_files();
    CHECK_OK(fs_put("redo.csv", list, (int64_t)strlen(list)));
    struct options o = WITH("parallel.schedule=file:redo.csv", "parallel.microbatch=4");
    char *s = report_of(&o, CHECK_PLAN);
    CHECK(strstr(s, "schedule redo.csv, recompute as its file says, predicted bubble 0.0") != NULL);
    mem_free(s);
    o = WITH("parallel.schedule=file:redo.csv", "parallel.microbatch=4", "train.recompute=full");
    s = report_of(&o, CHECK_PLAN);
    CHECK(strstr(s, "schedule redo.csv, recompute full") != NULL);
    mem_free(s);
}

/* What a list of PyTorch says of sharded weights, and both bubbles: of the step, which with equal
 * stages would be (p - 1) / (m + p - 1), and over ideal time, share / (1 - share). */
static void file_of_another_system_is_reported(void)
{
    static const char list[] = "0UNSHARD,0F0,0F1,0B0,0B1,0REDUCE_GRAD,0RESHARD\r\n"
                               "1UNSHARD,1F0,1B0,1F1,1B1,1REDUCE_GRAD,1RESHARD\r\n";
    illegal_files();
    CHECK_OK(fs_put("torch.csv", list, (int64_t)strlen(list)));
    struct options o = WITH("parallel.schedule=file:torch.csv", "parallel.pp=2",
                            "parallel.microbatch=4");
    char *s = report_of(&o, CHECK_PLAN);
    CHECK(strstr(s, "\nfile    passed over: 2 UNSHARD, 2 RESHARD, 2 REDUCE_GRAD\n") != NULL);
    const char *over = strstr(s, " % of the step (");
    double share = bubble_of(s) / 100, ideal = over ? strtod(over + 16, NULL) / 100 : 0;
    CHECK(share > 0.2 && over && strstr(over, " % over ideal time), stages weighed by FLOPs"));
    CHECK_NEAR(ideal, share / (1 - share), 0.003);
    mem_free(s);
}

static void few_microbatches_are_warned_of(void)
{
    /* 1f1b, p 4, m 2, F 1 and B 2: the bubble is (p - 1) / (m + p - 1) = 60 % when stages cost the
     * same. The head makes the last stage dearer, which idles the others more. */
    struct options o = WITH("parallel.pp=4", "train.batch=2");
    char *s = report_of(&o, CHECK_PLAN);
    const char *said = strstr(s, "busy, predicted bubble ");
    double bubble = said ? strtod(said + strlen("busy, predicted bubble "), NULL) : 0;
    test_check(bubble > 60 && bubble < 75, __FILE__, __LINE__, "bubble in: %s", s);
    CHECK(strstr(s, "2 microbatches cannot keep parallel.pp 4 ranks busy") != NULL);
    CHECK(strstr(s, "train.batch 4 or more can make enough") != NULL);
    mem_free(s);
    o = WITH("parallel.pp=4", "parallel.microbatch=8");
    s = report_of(&o, CHECK_PLAN);
    CHECK(strstr(s, "parallel.microbatch 2 makes 4 of them") != NULL);
    mem_free(s);
}

/* Schedules made for several chunks say so where there is one, and what would make two; others,
 * and one rank, do not. */
static void one_chunk_of_several_is_warned_of(void)
{
    static const struct { const char *set[3], *says; } c[] = {
        {{"parallel.schedule=interleaved"}, "interleaved gains by several chunks a rank, and "
                                            "parallel.chunks 0 makes one; parallel.chunks=2 makes "
                                            "two\n"},
        {{"parallel.schedule=looped-bfs"}, "looped-bfs gains by several chunks a rank, and"},
        {{"parallel.schedule=interleaved", "parallel.chunks=1"}, "parallel.chunks 1 makes one; "},
        {{"parallel.schedule=interleaved", "model.layers=3"}, "needs model.layers 4 or more\n"},
        {{"parallel.schedule=interleaved", "parallel.chunks=2"}, NULL},
        {{"parallel.schedule=interleaved", "parallel.pp=1"}, NULL},
        {{"parallel.schedule=1f1b"}, NULL},
        {{"parallel.schedule=zb-v"}, NULL},
    };
    illegal_files();
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        for (int purpose = 0; purpose < 2; purpose++) {
            struct options o = WITH("data.train=bytes.tok", "parallel.pp=2");
            for (int k = 0; k < 3 && c[i].set[k]; k++)
                CHECK_OK(conf_set(&options_table, &o, c[i].set[k]));
            char *s = report_of(&o, purpose ? CHECK_TRAIN : CHECK_PLAN);
            const char *said = strstr(s, "warning parallel.schedule ");
            test_check(c[i].says ? said && strstr(said, c[i].says) : !said, __FILE__, __LINE__,
                       "row %d: %s", (int)i, s);
            mem_free(s);
        }
    }
}

/* A rank on a GPU has one for itself, and threads have them on one machine. */
static void gpus_are_counted(void)
{
    static const struct { const char *set[3], *says; } c[] = {
        {{"train.device=cuda"}, "transport thread; needs 1 GPU\n"},
        {{"train.device=cuda", "parallel.pp=2", "parallel.dp=2"},
         "transport thread; needs 4 GPUs of one machine\n"},
        {{"train.device=cuda", "parallel.pp=2", "train.transport=mpi"},
         "transport mpi; needs 2 GPUs\n"},
        {{"train.device=cpu", "parallel.pp=2"}, "transport thread\n"},
    };
    if (!dev_built(DEV_CUDA) || !comm_nccl_built() || !comm_built(COMM_MPI)) {
        test_skip("this program has no CUDA, no NCCL or no MPI");
        return;
    }
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        struct options o = WITH("model.vocab=257");
        for (int k = 0; k < 3 && c[i].set[k]; k++)
            CHECK_OK(conf_set(&options_table, &o, c[i].set[k]));
        char *s = report_of(&o, CHECK_PLAN);
        test_check(strstr(s, c[i].says) != NULL, __FILE__, __LINE__, "row %d: %s", (int)i, s);
        mem_free(s);
    }
}

/* A vocabulary much larger than the file's 257 is told before a run, one that is rounded up not. */
static void large_vocabularies_are_warned_of(void)
{
    static const struct { const char *set; bool warned; } c[] = {
        {"model.vocab=0", false}, {"model.vocab=257", false}, {"model.vocab=320", false},
        {"model.vocab=384", false}, {"model.vocab=512", true}, {"model.vocab=50257", true},
    };
    illegal_files();
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        for (int purpose = 0; purpose < 2; purpose++) {
            struct options o = WITH("data.train=bytes.tok", c[i].set);
            char *s = report_of(&o, purpose ? CHECK_TRAIN : CHECK_PLAN);
            const char *said = strstr(s, "data.train was made with 257 ids: the others are never");
            test_check((said != NULL) == c[i].warned, __FILE__, __LINE__, "%s: %s", c[i].set, s);
            mem_free(s);
        }
    }
}

/* Each key that was set and waits for another is said once, with its value; defaults are not. */
static void idle_keys_are_warned_of(void)
{
    static const char *const c[][2] = {
        {"parallel.tp_overlap=on", "warning parallel.tp_overlap on has no effect: parallel.tp"},
        {"parallel.tp_rows=64", "warning parallel.tp_rows 64 has no effect: parallel.tp"},
        {"train.deterministic=true", "warning train.deterministic true has no effect: only runs"},
        {"train.hang_timeout=5", "warning train.hang_timeout 5 has no effect: one rank"},
        {"optim.trust_after=3", "warning optim.trust_after 3 has no effect: optim.post_valid"},
        {"model.rope_theta=5e5", "warning model.rope_theta 500000 has no effect: model.kind gpt"},
    };
    illegal_files();
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        struct options o = WITH("data.train=bytes.tok", c[i][0]);
        for (int purpose = 0; purpose < 2; purpose++) {
            char *s = report_of(&o, purpose ? CHECK_TRAIN : CHECK_PLAN);
            const char *said = strstr(s, c[i][1]), *first = strstr(s, "has no effect");
            test_check(said && first && !strstr(first + 1, "has no effect"), __FILE__, __LINE__,
                       "%s: %s", c[i][0], s);
            mem_free(s);
        }
    }
    struct options o = WITH("parallel.tp=2", "parallel.tp_overlap=on", "parallel.tp_rows=64",
                            "train.hang_timeout=5");
    char *s = report_of(&o, CHECK_PLAN);
    CHECK(strstr(s, "no effect") == NULL);
    mem_free(s);
}

/* What a plan of GPUs or their opening reads of the environment is held against its words before
 * either, for every purpose; other devices, and one rank, have no use for it. */
static void slips_of_the_environment_are_refused(void)
{
    static const struct { const char *name, *value, *set[3], *says; } c[] = {
        {"PLAIT_COPIES", "foo", {"train.device=cuda", "parallel.pp=2"}, "PLAIT_COPIES is foo; use"},
        {"PLAIT_COPIES", "foo", {"train.device=cuda", "parallel.tp=2"}, "PLAIT_COPIES is foo; use"},
        {"PLAIT_COPIES", "Off", {"train.device=cuda", "parallel.dp=2"}, "PLAIT_COPIES is Off; use"},
        {"PLAIT_COPIES", "off", {"train.device=cuda", "parallel.dp=2"}, NULL},
        {"PLAIT_COPIES", "foo", {"train.device=cuda"}, NULL},
        {"PLAIT_COPIES", "foo", {"parallel.dp=2"}, NULL},
        {"PLAIT_ATTN_GRAD", "foo", {"train.device=cuda"}, "PLAIT_ATTN_GRAD foo is no way"},
        {"PLAIT_ATTN_GRAD", "own", {"train.device=cuda"}, NULL},
        {"PLAIT_ATTN_GRAD", "foo", {"parallel.dp=2"}, NULL},
    };
    if (!dev_built(DEV_CUDA) || !comm_nccl_built()) {
        test_skip("this program has no CUDA or no NCCL");
        return;
    }
    illegal_files();
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        for (int purpose = 0; purpose < 2; purpose++) {
            struct options o = WITH("data.train=bytes.tok");
            for (int k = 0; k < 3 && c[i].set[k]; k++)
                CHECK_OK(conf_set(&options_table, &o, c[i].set[k]));
            setenv(c[i].name, c[i].value, 1);
            enum err err = run_check(&o, 0, purpose ? CHECK_TRAIN : CHECK_PLAN, NULL);
            unsetenv(c[i].name);
            test_check(c[i].says ? err == ERR_CONFIG && strstr(err_text(), c[i].says)
                                 : err == ERR_OK,
                       __FILE__, __LINE__, "row %d: %d %s", (int)i, (int)err,
                       err == ERR_OK ? "" : err_text());
        }
    }
}

static void launchers_are_told_apart(void)
{
    illegal_files();
    struct options o = WITH("data.train=bytes.tok");
    setenv("OMPI_COMM_WORLD_SIZE", "4", 1);
    CHECK_ERR(run_check(&o, 0, CHECK_TRAIN, NULL), ERR_CONFIG,
              "a launcher started 4 processes, and with train.transport thread");
    unsetenv("OMPI_COMM_WORLD_SIZE");
    CHECK_OK(run_check(&o, 0, CHECK_TRAIN, NULL));
    if (dev_built(DEV_CUDA) && !comm_nccl_built()) {
        struct options gpus = WITH("data.train=bytes.tok", "train.device=cuda", "parallel.pp=2");
        CHECK_ERR(run_check(&gpus, 0, CHECK_PLAN, NULL), ERR_CONFIG, "with 2 ranks needs NCCL");
    }
    o = WITH("data.train=bytes.tok", "train.transport=mpi", "parallel.pp=2");
    if (!comm_built(COMM_MPI)) {
        CHECK_ERR(run_check(&o, 0, CHECK_PLAN, NULL), ERR_CONFIG,
                  "train.transport mpi is not built into this program");
        return;
    }
    CHECK_ERR(run_check(&o, 0, CHECK_TRAIN, NULL), ERR_CONFIG, "start with mpirun -n 2");
    setenv("OMPI_COMM_WORLD_SIZE", "3", 1);
    CHECK_ERR(run_check(&o, 0, CHECK_TRAIN, NULL), ERR_CONFIG, "ranks started: 3");
    setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
    CHECK_OK(run_check(&o, 0, CHECK_TRAIN, NULL));
    unsetenv("OMPI_COMM_WORLD_SIZE");
}

static void checking_writes_nothing(void)
{
    illegal_files();
    struct options o = WITH("data.train=bytes.tok");
    CHECK_OK(run_check(&o, 0, CHECK_PLAN, NULL));
    CHECK(!fs_exists("run"));
    CHECK_OK(run_check(&o, 0, CHECK_TRAIN, NULL));
    CHECK(!fs_exists("run"));
}

static void vocabulary_of_the_file(void)
{
    int64_t vocab = 0;
    illegal_files();
    struct options o = WITH("model.vocab=0", "data.train=bytes.tok");
    CHECK_OK(check_vocab(&o, &vocab));
    CHECK_INT(vocab, 257);
    CHECK_OK(run_check(&o, 0, CHECK_PLAN, NULL));
    o.model.vocab = 300;
    CHECK_OK(check_vocab(&o, &vocab));
    CHECK_INT(vocab, 300);
}

/* Seconds of processor time, which other programs on the machine do not lengthen. */
static double worked(void)
{
    return (double)clock() / CLOCKS_PER_SEC;
}

/* The largest layouts that the table lets through must be answered in under a second too; built
 * with a sanitizer, programs run several times as long. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define QUICK 6.0
#else
#define QUICK 1.0
#endif

static void answers_are_quick(void)
{
    static const char *const large[][6] = {
        {"model.layers=10000", "parallel.pp=2048", "train.batch=65535", NULL},
        {"model.layers=10000", "parallel.pp=512", "train.batch=65535", NULL},
        {"model.layers=10000", "parallel.pp=4096", "train.batch=4095", NULL},
        {"model.layers=10000", "parallel.pp=4096", "train.batch=200", NULL},
        {"model.layers=10000", "parallel.pp=4096", "train.batch=32", NULL},
        {"model.layers=10000", "parallel.pp=2048", "train.batch=200", "parallel.schedule=v-half",
         NULL},
        {"model.layers=10000", "parallel.pp=4096", "train.batch=100", "parallel.schedule=zb-2p",
         NULL},
    };
    for (size_t i = 0; i < sizeof large / sizeof *large; i++) {
        struct options o = with(large[i]);
        double from = worked();
        mem_free(report_of(&o, CHECK_PLAN));
        double took = worked() - from;
        test_check(took < QUICK, __FILE__, __LINE__, "case %zu took %.2f s", i, took);
    }
}

/* Whole numbers at the ends of their ranges, in random company: refused or not, no sum or product
 * may overflow (the sanitizer looks) and the answer must come. Half of the rounds leave the layout
 * alone, so that they get past the conditions between keys. */
static void extreme_values_are_answered(void)
{
    int passed = 0;
    for (int round = 0; round < 240; round++) {
        struct options o = WITH("train.device=null", "model.kind=llama");
        for (int i = 0; i < options_table.n; i++) {
            const struct conf_row *row = &options_table.row[i];
            bool sizes = strncmp(row->key, "model.", 6) == 0 ||
                         strcmp(row->key, "train.batch") == 0;
            if (row->type != CONF_INT || (round % 2 && !sizes) || test_range(0, 2) > 0)
                continue;
            int64_t lo = (int64_t)row->min, hi = (int64_t)row->max;
            const int64_t pick[] = {lo, lo + 1, hi, hi - 1, lo + (hi - lo) / 2};
            memcpy((char *)&o + row->offset, &pick[test_range(0, 4)], sizeof *pick);
        }
        if (o.parallel.microbatch < num_ceil_div(o.train.batch, 1000) && round % 2)
            o.parallel.microbatch = o.train.batch;
        struct text t = {0};
        enum err err = run_check(&o, 0, CHECK_PLAN, &t);
        test_check(err == ERR_OK || err == ERR_CONFIG, __FILE__, __LINE__, "%d: %s", (int)err,
                   err_text());
        passed += err == ERR_OK;
        text_free(&t);
    }
    test_check(passed > 10, __FILE__, __LINE__, "only %d passed the conditions", passed);
}

/* The page that a call gave must hold the words; it is released. */
static void page_has(int code, char **page, const char *words)
{
    CHECK_INT(code, PLAIT_OK);
    test_check(*page && strstr(*page, words), __FILE__, __LINE__, "no \"%s\" in:\n%s", words,
               *page ? *page : "nothing");
    plait_free(*page);
    *page = NULL;
}

/* The public face: codes, strings, defaults. */
static void api_of_configurations(void)
{
    struct plait_config *c = NULL;
    char *s = NULL;
    CHECK_INT(plait_config_new(&c), PLAIT_OK);
    CHECK_INT(plait_config_set(c, "model.layers=7"), PLAIT_OK);
    CHECK_INT(plait_config_set(c, "train.device=ref"), PLAIT_OK);
    page_has(plait_config_get(c, "model.layers", &s), &s, "7");
    CHECK_INT(plait_config_get(c, "model.leyers", &s), PLAIT_CONFIG);
    CHECK(strstr(plait_error(), "the nearest is model.layers") != NULL);
    CHECK(plait_error_trail()[0] != '\0');
    CHECK_INT(plait_config_check(c, 0, NULL), PLAIT_CONFIG); /* no vocabulary */
    CHECK_INT(plait_config_set(c, "model.vocab=257"), PLAIT_OK);
    CHECK_INT(plait_config_check(c, -1, NULL), PLAIT_CONFIG);
    page_has(plait_config_check(c, 0, &s), &s, "7 layers");
    page_has(plait_config_print(c, &s), &s, "model:\n  kind: gpt\n  layers: 7\n");
    CHECK_INT(plait_config_read(c, "/nonexistent.yaml"), PLAIT_CONFIG);
    CHECK_INT(plait_config_help("html", &s), PLAIT_CONFIG);
    plait_config_free(c);
    page_has(plait_info(&s), &s, PLAIT_VERSION);
    page_has(plait_info(&s), &s, "1f1b");
    page_has(plait_info(&s), &s, "ref");
}

static const struct test_case cases[] = {
    {"illegal_configurations_are_refused", illegal_configurations_are_refused},
    {"proposed_values_are_legal", proposed_values_are_legal},
    {"unusual_layouts_are_legal", unusual_layouts_are_legal},
    {"courses of the learning rate are shortened and said", courses_are_shortened_and_said},
    {"report_says_what_will_run", report_says_what_will_run},
    {"recompute_is_reported", recompute_is_reported},
    {"recompute_of_a_file_is_reported", recompute_of_a_file_is_reported},
    {"file_of_another_system_is_reported", file_of_another_system_is_reported},
    {"few_microbatches_are_warned_of", few_microbatches_are_warned_of},
    {"one_chunk_of_several_is_warned_of", one_chunk_of_several_is_warned_of},
    {"gpus_are_counted", gpus_are_counted},
    {"large_vocabularies_are_warned_of", large_vocabularies_are_warned_of},
    {"idle_keys_are_warned_of", idle_keys_are_warned_of},
    {"slips_of_the_environment_are_refused", slips_of_the_environment_are_refused},
    {"launchers_are_told_apart", launchers_are_told_apart},
    {"checking_writes_nothing", checking_writes_nothing},
    {"vocabulary_of_the_file", vocabulary_of_the_file},
    {"answers_are_quick", answers_are_quick},
    {"extreme_values_are_answered", extreme_values_are_answered},
    {"api_of_configurations", api_of_configurations},
};
TEST_MAIN(cases)
