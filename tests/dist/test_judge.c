/* SPDX-License-Identifier: Apache-2.0
 *
 * What a run reads and reports, from its token file on, held against the executor that is handed
 * the same samples by hand (layout.h): the losses, norms, tokens and rates of each step, over the
 * end of an epoch; the loss of a validation over all samples of its file, whatever the batches; and
 * what each key that a run hands down changes.
 */
#include "folder.h"
#include "layout.h"

#include "base/mem.h"
#include "base/num.h"
#include "data/data.h"

#include <stdlib.h>

enum { SEQ = 8, VOCAB = 300, BATCH = 5, STEPS = 4, TRAIN_SAMPLES = 13, VALID_SAMPLES = 11 };

struct seen {
    int steps, valids, valid_step[STEPS];
    struct plait_step step[STEPS];
    double valid[STEPS], bits[STEPS];
};

static void on_step(void *arg, const struct plait_step *s)
{
    struct seen *seen = arg;
    if (CHECK(seen->steps < STEPS))
        seen->step[seen->steps++] = *s;
}

static void on_valid(void *arg, int64_t step, double loss, double bits)
{
    struct seen *seen = arg;
    if (!CHECK(seen->valids < STEPS))
        return;
    seen->valid_step[seen->valids] = (int)step;
    seen->valid[seen->valids] = loss;
    seen->bits[seen->valids++] = bits;
}

/* Letter i of the file number `file`, not periodic in the length of a sample. */
static int32_t letter(int file, int64_t i)
{
    return (int32_t)(97 + (i * i + 3 * i * file + i / 7) % 26);
}

/* A token file of `samples` samples and no token more. */
static const char *token_file(const char *name, int file, int64_t samples)
{
    char text[SEQ * 64] = "", path[FOLDER_PATH];
    folder_path(name, path);
    FILE *f = fopen(path, "r");
    if (f) {
        fclose(f);
        return name;
    }
    for (int64_t i = 0; i < samples * SEQ; i++) /* and the end of the text */
        text[i] = (char)letter(file, i);
    folder_tokens(name, text, 1);
    return name;
}

static int32_t token(int file, int64_t samples, int64_t i)
{
    return i == samples * SEQ ? 256 : letter(file, i);
}

static int train(const char *run, const char *const *words, int n, struct seen *seen)
{
    static const char *const base[] = {
        "model.layers=2", "model.hidden=16", "model.heads=2", "model.ffn=24", "model.vocab=300",
        "model.seq=8", "model.norm_eps=1e-3", "train.batch=5", "parallel.microbatch=2",
        "train.seed=77", "train.device=ref", "optim.lr=1e-3", "optim.schedule=constant",
        "optim.eps=1e-3", "optim.clip=0", "run.save=false", "train.steps=4"};
    struct plait_config *c = folder_config(run, token_file("train.tok", 1, TRAIN_SAMPLES));
    struct plait_train a = {.size = sizeof a, .on_step = on_step, .on_valid = on_valid,
                            .arg = seen};
    memset(seen, 0, sizeof *seen);
    folder_set(c, base, sizeof base / sizeof *base);
    folder_set(c, words, n);
    int code = plait_train(c, &a);
    test_check(code == PLAIT_OK, __FILE__, __LINE__, "%s: %d: %s", run, code, plait_error());
    plait_config_free(c);
    return code;
}

static bool ends(const char *name, const char *with)
{
    size_t n = strlen(name), m = strlen(with);
    return n >= m && strcmp(name + n - m, with) == 0;
}

/* What a run of seed 77 draws: scales are ones, shifts zeros, matrices normal, and those that add
 * to the residual stream narrower by the root of the number of their additions. */
static void drawn(const struct model_param *p, double *values)
{
    bool matrix = p->shape[1] > 1, out = ends(p->name, ".o.weight") || ends(p->name, "down.weight");
    double std = out ? 0.05 / sqrt(2 * 2) : 0.05;
    for (int64_t i = 0; i < p->shape[0] * p->shape[1]; i++)
        values[i] = matrix ? std * num_normal(77, num_hash(p->name), i)
                           : ends(p->name, "norm.weight");
}

static struct layout layout_of(enum model_kind kind, double dropout)
{
    struct layout l = {.tp = 1, .pp = 1, .dp = 1, .schedule = "1f1b", .batch = BATCH,
                       .microbatch = 2, .dev = DEV_REF, .ct = DT_F64, .threads = 1, .eps = 1e-3,
                       .whole_tokens = true, .weights = drawn};
    l.model = (struct model){.kind = kind, .layers = 2, .hidden = 16, .heads = 2, .kv_heads = 2,
                             .head_dim = 8, .ffn = 24, .vocab = VOCAB, .seq = SEQ, .tied = true,
                             .dropout = dropout, .norm_eps = 1e-3, .rope_theta = 500,
                             .init_std = 0.05};
    return l;
}

/* The samples of all steps in the order of training: tokens and what follows each. */
static void samples_of_training(int32_t *tokens, int32_t *targets)
{
    for (int64_t k = 0; k < STEPS * BATCH; k++) {
        int64_t s = data_permute(77, k / TRAIN_SAMPLES, TRAIN_SAMPLES, k % TRAIN_SAMPLES);
        for (int64_t t = 0; t < SEQ; t++) {
            tokens[k * SEQ + t] = token(1, TRAIN_SAMPLES, s * SEQ + t);
            targets[k * SEQ + t] = token(1, TRAIN_SAMPLES, s * SEQ + t + 1);
        }
    }
}

/* Each step of the run with these words is that of the layout. Returns the last one's loss. */
static double held(const char *run, const char *const *words, const struct layout *like)
{
    static int32_t tokens[STEPS * BATCH * SEQ], targets[STEPS * BATCH * SEQ];
    const char *word[16] = {like->model.kind == MODEL_GPT ? "model.kind=gpt" : "model.kind=llama",
                            "model.init_std=0.05", "model.rope_theta=500"};
    struct seen seen;
    double last = NAN;
    int n = 3;
    for (; *words; words++)
        word[n++] = *words;
    samples_of_training(tokens, targets);
    if (train(run, word, n, &seen) != PLAIT_OK)
        return last;
    CHECK_INT(seen.steps, STEPS);
    for (int step = 1; step <= STEPS; step++) {
        struct layout l = *like;
        struct layout_result r;
        const struct plait_step *got = &seen.step[step - 1];
        l.tokens = tokens;
        l.targets = targets;
        l.steps = step;
        CHECK_OK(layout_run(&l, &r));
        test_check(fabs(got->loss - r.loss) < 1e-12 && fabs(got->grad_norm - r.norm) < 1e-12,
                   __FILE__, __LINE__, "%s: step %d has loss %.15g and norm %.15g, by hand %.15g "
                   "and %.15g", run, step, got->loss, got->grad_norm, r.loss, r.norm);
        CHECK_INT(got->step, step);
        CHECK_INT(got->steps, STEPS);
        CHECK_INT(got->tokens, step * BATCH * SEQ);
        CHECK_NEAR(got->lr, l.rate ? l.rate(step) : 1e-3, 1e-18);
        CHECK_NEAR(got->tokens_per_s * got->seconds, BATCH * SEQ, 1e-6);
        last = r.loss;
        layout_result_free(&r);
    }
    return last;
}

static void steps_are_of_the_samples(void)
{
    for (int kind = MODEL_GPT; kind <= MODEL_LLAMA; kind++)
        for (int drops = 0; drops < 2; drops++) {
            struct layout l = layout_of((enum model_kind)kind, drops ? 0.2 : 0);
            char run[32];
            snprintf(run, sizeof run, "samples-%d-%d", kind, drops);
            held(run, (const char *[]){drops ? "model.dropout=0.2" : "model.dropout=0", NULL}, &l);
        }
}

/* ---- keys ---- */

static double falling(int64_t step)
{
    return 1e-3 + (1e-4 - 1e-3) * (double)(step - 1) / STEPS;
}

static double cosine(int64_t step)
{
    return 1e-4 + 0.5 * (1e-3 - 1e-4) * (1 + cos(acos(-1.0) * (double)(step - 1) / STEPS));
}

static double warmed(int64_t step)
{
    return 1e-3 * (double)num_min(step, 3) / 3;
}

static double stable(int64_t step)
{
    return step == 1 ? 1e-3 : 1e-3 * (1 - (double)(step - 2) / 3);
}

static double larger(int64_t step)
{
    (void)step;
    return 0.02;
}

/* A key of a run reaches the optimizer or the model: the steps are those of the executor that was
 * handed the value, and they are not those without it. */
static void keys_are_handed_down(void)
{
    const struct layout gpt = layout_of(MODEL_GPT, 0);
    struct { const char *words[3]; struct layout l; } key[] = {
        {{"optim.beta1=0.5"}, gpt},           {{"optim.beta2=0.5"}, gpt},
        {{"optim.decay=5"}, gpt},             {{"optim.eps=0.1"}, gpt},
        {{"optim.clip=0.3"}, gpt},            {{"optim.lr=0.02"}, gpt},
        {{"optim.schedule=linear", "optim.lr_min=1e-4"}, gpt},
        {{"optim.schedule=cosine", "optim.lr_min=1e-4"}, gpt},
        {{"optim.warmup=3"}, gpt},            {{"optim.schedule=wsd", "optim.decay_steps=3"}, gpt},
        {{"model.norm_eps=0.3"}, gpt},        {{"model.tied=false"}, gpt},
    };
    enum { KEYS = sizeof key / sizeof *key };
    key[0].l.beta1 = key[1].l.beta2 = 0.5;
    key[2].l.decay = 5;
    key[3].l.eps = 0.1;
    key[4].l.clip = 0.3;
    key[5].l.rate = larger;
    key[6].l.rate = falling;
    key[7].l.rate = cosine;
    key[8].l.rate = warmed;
    key[9].l.rate = stable;
    key[10].l.model.norm_eps = 0.3;
    key[11].l.model.tied = false;
    double plain = held("keys-plain", (const char *[]){NULL}, &gpt);
    for (int i = 0; i < KEYS; i++)
        test_check(fabs(held(key[i].words[0], key[i].words, &key[i].l) - plain) > 1e-9, __FILE__,
                   __LINE__, "%s: the loss does not show it", key[i].words[0]);
}

/* ---- validation ---- */

/* Mean loss of the first n samples of the file, of weights as they are drawn. */
static double loss_of_first(int64_t n)
{
    static int32_t tokens[VALID_SAMPLES * SEQ], targets[VALID_SAMPLES * SEQ];
    struct layout l = layout_of(MODEL_GPT, 0);
    struct layout_result r;
    for (int64_t i = 0; i < n * SEQ; i++) {
        tokens[i] = token(2, VALID_SAMPLES, i);
        targets[i] = token(2, VALID_SAMPLES, i + 1);
    }
    l.tokens = tokens;
    l.targets = targets;
    l.batch = n;
    l.steps = 1;
    CHECK_OK(layout_run(&l, &r));
    double loss = r.loss;
    layout_result_free(&r);
    return loss;
}

/* Of `dp` data ranks; batches 0: the whole file. */
static void validated(int64_t batch, int dp, int64_t batches)
{
    char run[64], word[4][48];
    struct seen seen;
    snprintf(run, sizeof run, "valid-%d-%d-%d", (int)batch, dp, (int)batches);
    snprintf(word[0], sizeof word[0], "train.batch=%d", (int)batch);
    snprintf(word[1], sizeof word[1], "train.valid_batches=%d", (int)batches);
    snprintf(word[2], sizeof word[2], "parallel.dp=%d", dp);
    snprintf(word[3], sizeof word[3], "parallel.microbatch=%d", (int)num_min(2, batch / dp));
    const char *words[] = {"optim.lr=0", "model.init_std=0.05", word[0], word[1], word[2], word[3],
                           "train.valid_every=3", NULL};
    char valid[FOLDER_PATH], key[FOLDER_PATH + 16];
    folder_path(token_file("valid.tok", 2, VALID_SAMPLES), valid);
    snprintf(key, sizeof key, "data.valid=%s", valid);
    words[7] = key;
    if (train(run, words, 8, &seen) != PLAIT_OK)
        return;
    int64_t n = batches ? num_min(batches * batch, VALID_SAMPLES) : VALID_SAMPLES;
    double want = loss_of_first(n);
    CHECK_INT(seen.valids, 2); /* behind step 3, and at the end */
    CHECK_INT(seen.valid_step[0], 3);
    CHECK_INT(seen.valid_step[1], STEPS);
    for (int i = 0; i < seen.valids; i++) {
        test_check(fabs(seen.valid[i] - want) < 1e-12, __FILE__, __LINE__,
                   "%s: validation is %.15g, of %d samples by hand %.15g", run, seen.valid[i],
                   (int)n, want);
        CHECK_NEAR(seen.bits[i], want / 0.69314718055994530942, 1e-12);
    }
}

static void validation_is_of_all_samples(void)
{
    for (int64_t batch = 1; batch <= 12; batch++)
        validated(batch, 1, 0);
    validated(4, 1, 1);
    validated(4, 1, 2);
    validated(4, 1, 3);
    validated(4, 2, 0);
    validated(6, 3, 0);
    validated(4, 2, 2);
}

static const struct test_case cases[] = {
    {"steps are of the samples", steps_are_of_the_samples},
    {"keys are handed down", keys_are_handed_down},
    {"validation is of all samples", validation_is_of_all_samples},
};
TEST_MAIN(cases)
