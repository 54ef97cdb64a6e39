/* SPDX-License-Identifier: Apache-2.0
 *
 * Figures of the table that `plait check` and a run show before the first step, by hand. What is
 * reported of steps and validations is held against PyTorch's in test_oracle_runs.c.
 */
#include "folder.h"

/* What `check` says of these words, beside a token file. */
static char *report_of(const char *const *words, int n)
{
    char *report = NULL;
    folder_tokens("text.bin", "threads of a braid, over and under; ", 10);
    struct plait_config *c = folder_config("nowhere", "text.bin");
    folder_set(c, words, n);
    test_check(plait_config_check(c, 0, &report) == 0, __FILE__, __LINE__, "%s", plait_error());
    plait_config_free(c);
    return report;
}

static void says(const char *report, const char *part)
{
    test_check(report && strstr(report, part), __FILE__, __LINE__, "no \"%s\" in: %s", part,
               report ? report : "nothing");
}

/* A gpt of C 64, F 256, H 2, V 320, T 16 with two layers, tied, one sample at once, f32.
 *
 * Parameters: embedding (320 + 16) 64 = 21504; attention 2 64 + 4 (64 64 + 64) = 16768; mlp 2 64 +
 * 2 (256 64) + 256 + 64 = 33216; the head's norm 2 64. Together 121600, of 4 bytes; the optimizer
 * has two of them.
 *
 * Activations of one sample, in elements (a buffer takes 64 bytes or a multiple): attention x 1024,
 * mean 16, rstd 16, norm 1024, q k v 3072, output 1024, log-sum-exp 32: 24832 bytes; mlp x, mean,
 * rstd, norm, and twice 16 256: 41088; head x, mean, rstd, gradient: 8320. Two layers: 140160.
 *
 * Scratch: three streams of 4096 bytes, one of 16 256 4, 128 of attention's row sums, twice the
 * logits 16 320 4, four numbers a row 256: 70016; the shared set of backward a stream, 16 256 4 and
 * the gradients of a norm 512: 20992. Together 91008.
 *
 * Tables: tokens, targets, loss and step: 64 each; eleven sums and rates: 128. */
static void memory_by_hand(void)
{
    static const char *const words[] = {
        "model.layers=2", "model.hidden=64", "model.heads=2", "model.vocab=320", "model.seq=16",
        "train.batch=1", "train.device=cpu", "train.threads=1"};
    enum { WORDS = sizeof words / sizeof *words };
    char *report = report_of(words, WORDS);
    const int64_t params = 121600, library = 4 << 20;
    int64_t all = params * 16 + 140160 + 91008 + 320 + library;
    char total[64];
    snprintf(total, sizeof total, " %lld B ", (long long)all);
    says(report, "121.6K parameters, 2 layers");
    says(report, total);
    says(report, "weights 475.0 KiB, gradients 475.0 KiB, optimizer 950.0 KiB, activations 136.9 "
                 "KiB, scratch 88.9 KiB, data and tables 320 B, library 4.0 MiB)");
    plait_free(report);
    struct folder_seen seen; /* and a run takes as much */
    struct plait_config *c = folder_config("takes", "text.bin");
    folder_set(c, words, WORDS);
    folder_set(c, (const char *[]){"train.steps=1"}, 1);
    CHECK_INT(folder_train(c, &seen), 0);
    snprintf(total, sizeof total, " %lld B %11lld B ", (long long)all, (long long)all);
    says(seen.table, total);
    char path[FOLDER_PATH], text[4096] = "";
    folder_path_in("takes", "config.json", path); /* weights are written in f32 */
    FILE *f = fopen(path, "r");
    CHECK(f && fread(text, 1, sizeof text - 1, f) > 0 && fclose(f) == 0);
    says(text, "\"dtype\": \"float32\"");
}

/* The same model on two stages: the first has the embedding, layer 0 and the attention of layer 1,
 * 21504 + 16768 + 33216 + 16768 = 88256; the last the other mlp, its norm and a copy of the token
 * matrix, 33216 + 128 + 320 64 = 53824.
 *
 * Cut in two by tp, matrices and what is added to their cut outputs are halved; norms, positions
 * and biases of whole outputs are not. Embedding 320 32 + 1024 = 11264; attention 2 64 + 4 64 32 +
 * 64 and the biases of q, k and v, 96, which take 128: 8512; mlp 2 64 + 2 128 64 + 128 + 64 =
 * 16704. First 11264 + 8512 + 16704 + 8512 = 44992, last 16704 + 128 + 160 64 = 27072. */
static void parameters_of_stages_by_hand(void)
{
    const char *words[] = {
        "model.layers=2", "model.hidden=64", "model.heads=2", "model.vocab=320", "model.seq=16",
        "train.batch=2", "train.device=cpu", "train.threads=1", "parallel.pp=2", "parallel.tp=1"};
    enum { WORDS = sizeof words / sizeof *words };
    static const char *const want[2][2] = {
        {"layer 0, attention of layer 1, embedding, 88.3K parameters a rank\n",
         "mlp of layer 1, head, 53.8K parameters a rank\n"},
        {"layer 0, attention of layer 1, embedding, 45.0K parameters a rank\n",
         "mlp of layer 1, head, 27.1K parameters a rank\n"}};
    for (int tp = 1; tp <= 2; tp++) {
        words[WORDS - 1] = tp == 1 ? "parallel.tp=1" : "parallel.tp=2";
        char *report = report_of(words, WORDS);
        says(report, want[tp - 1][0]);
        says(report, want[tp - 1][1]);
        plait_free(report);
    }
}

/* 1f1b on four ranks whose stages cost the same: (p - 1) / (m + p - 1) of the step, (p - 1) / m
 * over ideal time. */
static void bubble_by_hand(void)
{
    char path[FOLDER_PATH];
    const char *words[] = {"model.layers=4", "model.hidden=64", "model.heads=2", "model.vocab=320",
                           "model.seq=16", "train.batch=8", "parallel.pp=4", NULL};
    folder_path("costs.csv", path);
    FILE *f = fopen(path, "w");
    if (CHECK(f != NULL)) {
        fputs("stage,F,B,I,W\n0,1,2,1,1\n1,1,2,1,1\n2,1,2,1,1\n3,1,2,1,1\n", f);
        fclose(f);
    }
    for (int m = 8; m >= 4; m /= 2) { /* 3/11 and 3/8; 3/7 and 3/4 */
        char costs[FOLDER_PATH + 32];
        snprintf(costs, sizeof costs, "parallel.costs=%s", path);
        words[5] = m == 8 ? "train.batch=8" : "train.batch=4";
        words[7] = costs;
        char *report = report_of(words, 8);
        says(report, m == 8 ? "predicted bubble 27.3 % of the step (37.5 % over ideal time)"
                            : "predicted bubble 42.9 % of the step (75.0 % over ideal time)");
        says(report, m == 8 ? "8 microbatches of 1" : "4 microbatches of 1");
        plait_free(report);
    }
}

/* Of 360 bytes and the end of their text 22 samples of 16 tokens and the next one; 50 steps of 3
 * are 6.82 times those. */
static void data_by_hand(void)
{
    static const char *const words[] = {"model.layers=1", "model.hidden=8", "model.heads=2",
                                        "model.seq=16", "train.batch=3", "train.steps=50"};
    char *report = report_of(words, sizeof words / sizeof *words);
    says(report, "361 tokens, 22 samples; 50 steps, epochs 6.82");
    plait_free(report);
}

static const struct test_case cases[] = {{"data_by_hand", data_by_hand},
                                         {"memory_by_hand", memory_by_hand},
                                         {"parameters_of_stages_by_hand",
                                          parameters_of_stages_by_hand},
                                         {"bubble_by_hand", bubble_by_hand}};
TEST_MAIN(cases)
