/* SPDX-License-Identifier: Apache-2.0
 *
 * A run that ends with 18 says where the first number that is not finite was made. A device of one
 * rank is made to write one in a chosen operation, layer, microbatch and run of a list, and the
 * message must name exactly this place, on layouts of every kind; and what numbers do by themselves
 * when a rate is too high. The program is linked so that dev_open comes through here.
 */
#include "folder.h"

#include "base/fs.h"
#include "device/device.h"

#include <limits.h>

enum kind { FORWARD_GEMM, WEIGHT_GEMM, ATTN, ATTN_GRAD, UPDATE, KINDS };
enum { EVERY_RANK = -1, RANKS = 8 };

/* The nth call of a kind in a part (of its stage) of a rank, in the run of a list numbered `from`,
 * from 1, and those up to `to`, writes `value`. */
static struct fault {
    int rank, part, nth, from, to;
    enum kind kind;
    double value;
} fault;

/* A device under test: its own functions, and what it has been asked in the run under way. */
static struct fake {
    struct dev_ops ops;
    const struct dev_ops *own;
    int rank, run, calls[KINDS];
} fake[RANKS];

enum err __real_dev_open(const struct dev_args *a, struct dev **out);
enum err __wrap_dev_open(const struct dev_args *a, struct dev **out);

/* A call of this kind has been made; first: of its result. */
static void strike(struct fake *f, const struct dev *d, enum kind k, void *first, enum dtype t)
{
    if (fault.kind != k || (d->part != fault.part && k != UPDATE))
        return;
    bool here = fault.rank == EVERY_RANK || fault.rank == f->rank;
    bool now = f->calls[k]++ == fault.nth && f->run >= fault.from && f->run <= fault.to;
    if (!here || !now)
        return;
    if (t == DT_F64)
        ((double *)first)[0] = fault.value;
    else if (t == DT_F32)
        ((float *)first)[0] = (float)fault.value;
    else
        ((uint16_t *)first)[0] = bf16_from_f32((float)fault.value);
}

/* A run of a list begins with its loss, one double, as zero. */
static void begin_run(struct fake *f, const struct op *op)
{
    if (op->kind == OP_ZERO && op->zero.n == (int64_t)sizeof(double)) {
        f->run++;
        memset(f->calls, 0, sizeof f->calls);
    }
}

static _Thread_local struct fake *mine; /* a rank has a thread: its device */

static enum err fake_run(struct dev *d, const struct op *op)
{
    const struct gemm *g = &op->gemm;
    begin_run(mine, op);
    TRY(mine->own->run(d, op));
    if (op->kind == OP_GEMM && (g->trans_a || g->trans_b))
        strike(mine, d, g->trans_a ? WEIGHT_GEMM : FORWARD_GEMM, g->c, g->c_at ? d->at : d->ct);
    else if (op->kind == OP_ATTN)
        strike(mine, d, ATTN, op->attn.o, d->ct);
    else if (op->kind == OP_ATTN_GRAD)
        strike(mine, d, ATTN_GRAD, op->attn_grad.dk, d->ct);
    else if (op->kind == OP_ADAMW)
        strike(mine, d, UPDATE, op->adamw.w, d->ct);
    return ERR_OK;
}

enum err __wrap_dev_open(const struct dev_args *a, struct dev **out)
{
    TRY(__real_dev_open(a, out));
    if (a->index < 0 || a->index >= RANKS || a->kind == DEV_NULL)
        return ERR_OK;
    mine = &fake[a->index];
    *mine = (struct fake){.ops = *(*out)->ops, .own = (*out)->ops, .rank = a->index};
    mine->ops.run = fake_run;
    (*out)->ops = &mine->ops;
    return ERR_OK;
}

/* Runs that are made with these words; returns the code. */
static int train(const char *run, const char *const *words)
{
    struct folder_seen seen;
    folder_tokens("braid", "a braid of many strands\n", 80);
    struct plait_config *c = folder_config(run, "braid");
    folder_set(c, (const char *const[]){
        "model.layers=4", "model.hidden=64", "model.heads=2", "model.seq=8", "train.steps=4",
        "train.batch=6", "parallel.microbatch=1", "optim.warmup=0", "optim.schedule=constant",
        "train.hang_timeout=60"}, 10);
    folder_set(c, words, INT_MAX);
    return folder_train(c, &seen);
}

static void expect(const char *what, int code, const char *const *want)
{
    CHECK_INT(code, PLAIT_NONFINITE);
    for (int i = 0; want[i]; i++)
        test_check(strstr(plait_error(), want[i]), __FILE__, __LINE__, "%s: no \"%s\" in \"%s\"",
                   what, want[i], plait_error());
}

#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* ---- a chosen place ---- */

static void places(void)
{
    static const struct {
        const char *words[6];
        struct fault fault;
        const char *want[3];
    } c[] = {
        {{"train.dtype=f32"}, {0, 3, 2, 2, 99, ATTN, NAN},
         {"rank 0 (", "the forward of microbatch 2, stage 0, layer 1, attn: attn gives nan"}},
        {{"train.device=ref", "parallel.pp=2"}, {1, 2, 4, 2, 99, ATTN, INFINITY},
         {"rank 1 (", "the forward of microbatch 4, stage 1, layer 3, attn: attn gives inf"}},
        {{"train.dtype=bf16", "parallel.pp=2"}, {0, 1, 5, 3, 99, ATTN_GRAD, NAN},
         {"step 3", "rank 0 (",
          "the backward of microbatch 5, stage 0, layer 0, attn: attn_grad"}},
        {{"parallel.pp=4", "parallel.schedule=gpipe"}, {2, 1, 3, 1, 99, FORWARD_GEMM, NAN},
         {"step 1", "rank 2 (",
          "the forward of microbatch 1, stage 2, layer 2, mlp: gemm with layers.2.mlp."}},
        {{"parallel.pp=2", "parallel.schedule=zb-h1"}, {0, 4, 2, 2, 99, WEIGHT_GEMM, NAN},
         {"rank 0 (", "the backward of the weights of microbatch 1, stage 0, layer 1, mlp: gemm "
                      "for the gradient of layers.1.mlp."}},
        {{"parallel.dp=2", "parallel.zero=1"}, {1, 5, 1, 2, 99, ATTN, NAN},
         {"rank 1 (pp 0, tp 0, dp 1)", "the forward of microbatch 1, stage 0, layer 2, attn"}},
        {{"parallel.tp=2", "parallel.sp=true", "model.kind=llama"}, {1, 1, 3, 2, 99, ATTN, NAN},
         {"rank 1 (pp 0, tp 1, dp 0)", "the forward of microbatch 3, stage 0, layer 0, attn"}},
        {{"parallel.tp=2", "parallel.pp=2", "train.recompute=full"}, {3, 0, 2, 2, 99, ATTN_GRAD,
                                                                      NAN},
         {"rank 3 (", "the backward of microbatch 2, stage 1, layer 2, attn: attn_grad"}},
        {{"parallel.pp=2", "parallel.schedule=1f1b", "train.profile=true"},
         {1, 2, 0, 2, 99, ATTN_GRAD, NAN},
         {"the backward of microbatch 0, stage 1, layer 3, attn"}},
        {{"parallel.tp=2"}, {EVERY_RANK, 1, 1, 2, 99, FORWARD_GEMM, 3e38},
         {"the forward of microbatch 0, stage 0, layer 0, attn: what ", "residual_norm reads",
          "holds inf at [0, 0]"}},
    };
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        char run[32];
        snprintf(run, sizeof run, "place_%zu", i);
        fault = c[i].fault;
        const char *want[4] = {c[i].want[0], c[i].want[1], c[i].want[2], NULL};
        expect(run, train(run, c[i].words), want);
    }
    fault.to = 0;
}

/* Of several in one step the earliest is named, though another rank comes to its own sooner. */
static void every_rank(void)
{
    fault = (struct fault){EVERY_RANK, 1, 1, 2, 99, ATTN, NAN};
    expect("all ranks of a pipeline", train("each", WORDS("parallel.pp=4")),
           WORDS("rank 0 (", "the forward of microbatch 1, stage 0, layer 0, attn"));
    fault.to = 0;
}

static void not_again(void)
{
    fault = (struct fault){0, 1, 1, 2, 2, ATTN, NAN};
    expect("once", train("once", WORDS("parallel.pp=2")),
           WORDS("step 2", "cannot be repeated", "the weights of step 1 are in"));
    fault.to = 0;
}

/* ---- validation ---- */

/* Runs of lists: step 1, then a batch of 6 samples each. */
static void validation(void)
{
    char valid[FOLDER_PATH + 16], path[FOLDER_PATH];
    folder_tokens("braid", "a braid of many strands\n", 80);
    folder_path("braid", path);
    snprintf(valid, sizeof valid, "data.valid=%s", path);
    fault = (struct fault){1, 0, 2, 3, 99, ATTN, NAN};
    expect("validation", train("valid", WORDS(valid, "train.valid_every=1", "train.valid_batches=3",
                                               "parallel.pp=2")),
           WORDS("the validation behind step 1 has loss nan, first in its batch 2 of 3",
                 "rank 1 (", "the forward of microbatch 2, stage 1, layer 2, attn: attn gives nan",
                 "the weights of step 1 are in"));
    fault.to = 0;
}

/* ---- weights ---- */

static bool same_weights(const char *a, const char *b)
{
    struct fs_map m[2];
    char path[FOLDER_PATH];
    folder_path_in(a, "model.safetensors", path);
    CHECK_OK(fs_map_open(&m[0], path, ERR_DATA));
    folder_path_in(b, "model.safetensors", path);
    CHECK_OK(fs_map_open(&m[1], path, ERR_DATA));
    bool same = m[0].size == m[1].size && memcmp(m[0].data, m[1].data, (size_t)m[0].size) == 0;
    fs_map_close(&m[0]);
    fs_map_close(&m[1]);
    return same;
}

/* The weights that are kept are those of the step before, to the bit, also behind the last step;
 * and the place is named by them. Rank 1 of zb-v has two stages, in turn. */
static void weights_of_the_step_before(void)
{
    static const char *const schedule[] = {"parallel.schedule=1f1b", "parallel.schedule=zb-h2",
                                           "parallel.schedule=zb-v"};
    static const char *const type[] = {"train.dtype=f32", "train.dtype=bf16"};
    for (int i = 0; i < 6; i++) {
        char good[32], bad[32];
        const char *s = schedule[i / 2], *t = type[i % 2];
        snprintf(good, sizeof good, "good_%d", i);
        snprintf(bad, sizeof bad, "bad_%d", i);
        fault.to = 0;
        CHECK_INT(train(good, WORDS("parallel.pp=2", s, t, "train.steps=2", "optim.clip=0")), 0);
        for (int late = 0; late < 2; late++) {
            fault = (struct fault){1, 0, 3, 3, 99, ATTN_GRAD, NAN};
            bad[0] = late ? 'B' : 'b';
            expect(s,
                   train(bad, WORDS("parallel.pp=2", s, t, "optim.clip=0",
                                    late ? "train.steps=3" : "train.steps=5")),
                   WORDS("step 3 has loss", "rank 1 (",
                         i < 4 ? "the backward of microbatch 3" : "the backward of microbatch 1",
                         "attn: attn_grad gives nan", "the weights of step 2 are in"));
            CHECK(same_weights(good, bad));
        }
    }
    fault.to = 0;
}

/* ---- by themselves ---- */

static void overflow(void)
{
    static const char *const words[][2] = {
        {"train.device=ref", "parallel.pp=1"}, {"train.dtype=f32", "parallel.pp=1"},
        {"train.dtype=bf16", "parallel.pp=2"}, {"train.dtype=f32", "parallel.tp=2"}};
    for (int i = 0; i < 4; i++) {
        char run[32];
        snprintf(run, sizeof run, "far_%d", i);
        expect(run, train(run, WORDS("optim.lr=100", "optim.decay=100", "optim.lr_min=0",
                                     "train.steps=100", words[i][0], words[i][1])),
               WORDS("the first number that is not finite is on rank ", " from finite operands",
                     "the weights of step "));
    }
}

/* An update that leaves what is not finite: the next step names the weight, and behind the last one
 * the run's end does. */
static void weights(void)
{
    for (int last = 0; last < 2; last++)
        for (int dp = 1; dp < 3; dp++) {
            char run[32], data[32];
            snprintf(run, sizeof run, "weights_%d_%d", last, dp);
            snprintf(data, sizeof data, "parallel.dp=%d", dp);
            fault = (struct fault){dp, 0, 0, 2, 2, UPDATE, INFINITY};
            expect(run, train(run, WORDS("parallel.pp=2", data, dp > 1 ? "parallel.zero=1"
                                                                         : "parallel.zero=0",
                                         last ? "train.steps=2" : "train.steps=4")),
                   WORDS(last ? "step 2 left weights that are not finite"
                              : "already the weights that step 2 left are not: ",
                         ".weight is not finite: inf on rank ",
                         "these weights are not saved; there is no checkpoint to go on from"));
        }
    fault.to = 0;
}

static const struct test_case cases[] = {
    {"weights", weights},
    {"places", places}, {"every rank", every_rank}, {"not again", not_again},
    {"validation", validation}, {"the step before", weights_of_the_step_before},
    {"overflow", overflow}};
TEST_MAIN(cases)
