/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs of a perceptron from a file of rows: whatever layout, and wherever stages begin, the losses
 * are those of one rank; a run goes on on another layout, and others begin with its weights.
 */
#include "folder.h"

#include "base/err.h"
#include <math.h>

enum { STEPS = 3 };

static int train(const char *run, const char *words, struct folder_seen *seen)
{
    static const char *const small[] = {
        "model.kind=mlp", "model.widths=12,20,9,7,5", "train.device=ref", "train.batch=6",
        "train.steps=3", "train.threads=1", "optim.clip=0.5", "optim.lr=0.01"};
    char word[256], path[FOLDER_PATH];
    int used;
    folder_path("rows", path);
    if (!folder_has("", "rows"))
        CHECK_INT(plait_data_random_rows(path, 12, 5, 40, 3), 0);
    struct plait_config *c = folder_config(run, "rows");
    folder_set(c, small, sizeof small / sizeof *small);
    folder_set_file(c, "data.valid", "rows");
    for (; sscanf(words, "%255s%n", word, &used) == 1; words += used)
        folder_set(c, (const char *const[]){word}, 1);
    return folder_train(c, seen);
}

static double apart(const struct folder_seen *a, const struct folder_seen *b)
{
    double far = fabs(a->valid - b->valid);
    for (int s = 0; s < STEPS; s++)
        far = fmax(far, fabs(a->loss[s] - b->loss[s]));
    return far;
}

static void any_layout_is_one_rank(void)
{
    static const char *const words[] = {
        "parallel.pp=2", "parallel.pp=4", "parallel.pp=2 parallel.split=fc2",
        "parallel.pp=2 parallel.split=relu1 parallel.schedule=zb-h1 parallel.microbatch=2",
        "parallel.pp=3 parallel.split=fc1,fc4 parallel.dp=2 parallel.zero=1",
        "parallel.dp=3 parallel.zero=1", "parallel.dp=2 train.recompute=full",
        "parallel.pp=2 parallel.schedule=zb-v parallel.split=fc2,relu2,fc4",
        "parallel.pp=2 parallel.chunks=2 parallel.schedule=interleaved",
        "parallel.pp=2 parallel.schedule=dualpipe parallel.split=relu3",
    };
    struct folder_seen want, got;
    CHECK_INT(train("one", "", &want), 0);
    CHECK_INT(want.losses, STEPS);
    CHECK(want.loss[2] < want.loss[0]);
    CHECK(strstr(want.table, "mlp, 559 parameters, widths 12-20-9-7-5") != NULL);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        int code = train("many", words[i], &got);
        test_check(code == 0 && got.losses == STEPS, __FILE__, __LINE__, "%s: %d: %s", words[i],
                   code, plait_error());
        test_check(apart(&want, &got) < 1e-10, __FILE__, __LINE__, "%s: losses are %g apart",
                   words[i], apart(&want, &got));
        folder_remove("many");
    }
    CHECK_INT(train("wider", "model.widths=12,21,9,7,5", &got), 0);
    CHECK(strstr(got.table, "widths 12-21-9-7-5") && fabs(got.loss[0] - want.loss[0]) > 1e-6);
}

/* The table names layers; a stage begins where it is told to. */
static void stages_by_name(void)
{
    struct folder_seen seen;
    CHECK_INT(train("named", "parallel.pp=2 parallel.split=relu1", &seen), 0);
    CHECK(strstr(seen.table, "stage 0   pp 0   input, fc1, ") != NULL);
    CHECK(strstr(seen.table, "stage 1   pp 1   relu1, fc2, relu2, fc3, relu3, fc4, ") != NULL);
    CHECK_INT(train("no", "parallel.pp=2 parallel.split=fc9", &seen), PLAIT_CONFIG);
    CHECK(strstr(plait_error(), "\"fc9\"") && strstr(plait_error(), "nearest is fc"));
    CHECK(strstr(plait_error(), "it has input to fc4, as") != NULL);
    CHECK_INT(train("no", "parallel.pp=2 parallel.split=input", &seen), PLAIT_CONFIG);
    CHECK(strstr(plait_error(), "names \"input\" behind \"input\"") != NULL);
}

static void goes_on_elsewhere(void)
{
    struct folder_seen want, got;
    CHECK_INT(train("whole", "optim.schedule=constant", &want), 0);
    CHECK_INT(train("half", "optim.schedule=constant train.steps=2 parallel.pp=2", &got), 0);
    CHECK_INT(train("half", "optim.schedule=constant parallel.dp=2 parallel.zero=1 "
                            "run.resume=auto", &got), 0);
    CHECK_INT(got.losses, 1);
    CHECK_NEAR(got.loss[0], want.loss[2], 1e-6); /* the state is saved in f32 */
    CHECK_INT(train("half", "model.widths=12,20,9,8,5 train.steps=4 run.resume=auto", &got),
              PLAIT_CONFIG);
    CHECK(strstr(plait_error(), "model.widths is [12, 20, 9, 7, 5] in the checkpoint") &&
          strstr(plait_error(), "and [12, 20, 9, 8, 5] here"));
    CHECK_INT(train("half", "model.widths=12,20,5 train.steps=4 run.resume=auto", &got),
              PLAIT_CONFIG);
    CHECK(strstr(plait_error(), "and [12, 20, 5] here") != NULL);
}

static void weights_in_and_out(void)
{
    struct folder_seen want, got;
    char *said, run[FOLDER_PATH], out[FOLDER_PATH], init[FOLDER_PATH + 16];
    CHECK_INT(train("first", "", &want), 0);
    folder_path("first", run);
    folder_path("out", out);
    CHECK_INT(plait_export(&(struct plait_export){.size = sizeof(struct plait_export), .run = run,
                                                  .out = out}, &said), 0);
    plait_free(said);
    CHECK(folder_has("out", "config.json") && !folder_has("out", "generation_config.json"));
    snprintf(init, sizeof init, "model.init=%s", run);
    CHECK_INT(train("next", init, &want), 0);
    snprintf(init, sizeof init, "model.init=%s", out);
    CHECK_INT(train("other", init, &got), 0);
    CHECK(apart(&want, &got) < 1e-6); /* a checkpoint of ref is in f64, weights are in f32 */
    CHECK_INT(plait_generate(&(struct plait_generate){.size = sizeof(struct plait_generate),
                                                      .run = run, .prompt = "a", .tokens = 1}),
              PLAIT_CONFIG);
    CHECK(strstr(plait_error(), "tells classes") != NULL);
}

/* What is of text alone is said nowhere: whose ids weights know, a vocabulary, a tokenizer. */
static void nothing_of_text(void)
{
    struct folder_seen seen;
    char run[FOLDER_PATH], yaml[FOLDER_PATH], word[FOLDER_PATH + 16], *report = NULL;
    CHECK_INT(train("rows_only", "", &seen), 0);
    folder_path("rows_only", run);
    folder_path_in("rows_only", "config.yaml", yaml);
    struct plait_config *c = folder_config("rows_next", "rows");
    CHECK_INT(plait_config_read(c, yaml), 0);
    snprintf(word, sizeof word, "model.init=%s", run);
    folder_set(c, (const char *const[]){word}, 1);
    folder_set_file(c, "run.dir", "rows_next");
    CHECK_INT(plait_config_check(c, 0, &report), 0);
    CHECK(strstr(report, "behind step 3") && !strstr(report, "ids") && !strstr(report, "warning"));
    plait_free(report);
    folder_set(c, (const char *const[]){"data.tokenizer=bytes"}, 1);
    CHECK_INT(plait_config_check(c, 0, &report), 0);
    CHECK(strstr(report, "data.tokenizer bytes has no effect") != NULL);
    plait_free(report);
    plait_config_free(c);
    CHECK_INT(plait_config_new(&c), 0);
    folder_set(c, (const char *const[]){"model.kind=mlp", "model.widths=12,5"}, 2);
    CHECK_INT(folder_train(c, &seen), PLAIT_CONFIG);
    CHECK(strstr(plait_error(), "needs a row file; make one with `plait data import TABLE -o"));
}

/* Each layer has its own widths: one that is large makes no others so. */
static void large_layers(void)
{
    char words[32 * 10 + 16] = "model.widths=16777216";
    for (int large = 1; large >= 0; large--) {
        struct plait_config *c;
        CHECK_INT(plait_config_new(&c), 0);
        for (int i = 1, n = 21; i < 32; i++)
            n += snprintf(words + n, sizeof words - (size_t)n, large ? ",16777216" : ",1");
        folder_set(c, (const char *const[]){"model.kind=mlp", words}, 2);
        CHECK_INT(plait_config_check(c, 0, NULL), large ? PLAIT_CONFIG : 0);
        if (large)
            CHECK(strncmp(plait_error(), "model.widths and parallel.microbatch 1 may take", 47) ==
                  0);
        plait_config_free(c);
    }
}

/* Rows of another model, and tokens. */
static void other_data(void)
{
    char path[FOLDER_PATH];
    struct folder_seen seen;
    folder_tokens("text.bin", "no rows, ", 30);
    folder_path("text.bin", path);
    CHECK_INT(train("widths", "model.widths=11,5", &seen), PLAIT_DATA);
    CHECK(strstr(plait_error(), "12 features") && strstr(plait_error(), "11"));
    CHECK_INT(train("classes", "model.widths=12,4", &seen), PLAIT_TOKEN);
    CHECK(strstr(plait_error(), "5 classes") != NULL);
    struct plait_config *c = folder_config("tokens", "text.bin");
    folder_set(c, (const char *const[]){"model.kind=mlp", "model.widths=12,5"}, 2);
    CHECK_INT(folder_train(c, &seen), PLAIT_DATA);
    c = folder_config("rows_of_text", "rows");
    CHECK_INT(folder_train(c, &seen), PLAIT_DATA);
}

static const struct test_case cases[] = {
    {"any_layout_is_one_rank", any_layout_is_one_rank},
    {"stages_by_name", stages_by_name},
    {"goes_on_elsewhere", goes_on_elsewhere},
    {"weights_in_and_out", weights_in_and_out},
    {"nothing_of_text", nothing_of_text},
    {"large_layers", large_layers},
    {"other_data", other_data},
};
TEST_MAIN(cases)
