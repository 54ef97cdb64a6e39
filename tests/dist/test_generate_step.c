/* SPDX-License-Identifier: Apache-2.0
 *
 * Generation from checkpoints: whatever layout saved one and whatever layout reads it, the logits
 * are those of the weights that the run would have left behind that step, bit for bit.
 */
#include "folder.h"

#include "base/fs.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { WORDS = 8 };

static const char *const base_set[] = {
    "model.layers=4", "model.hidden=24", "model.heads=4", "model.seq=8", "train.batch=4",
    "train.threads=1", "optim.lr=0.01", "optim.schedule=constant", "train.save_keep=9",
    "train.save_async=false", NULL};
static const char *const models[][4] = {
    {"model.kind=gpt"}, {"model.kind=gpt", "model.tied=false"}, {"model.kind=llama"},
    {"model.kind=llama", "model.tied=true", "model.kv_heads=2", "model.norm_eps=1e-6"}};
static const char *const layouts[][WORDS] = {
    {"parallel.pp=1"},
    {"parallel.tp=2", "parallel.pp=2"},
    {"parallel.dp=2", "parallel.zero=1"},
    {"parallel.pp=2", "parallel.schedule=zb-v"},
    {"parallel.tp=2", "parallel.sp=true", "parallel.dp=2"}};
enum { MODELS = sizeof models / sizeof *models, LAYOUTS = sizeof layouts / sizeof *layouts };

static void train(const char *run, int model, int layout, int steps, const char *more)
{
    struct folder_seen seen;
    char word[32];
    folder_tokens("text", "braids of strands ", 40);
    struct plait_config *c = folder_config(run, "text");
    folder_set(c, base_set, 99);
    folder_set(c, models[model], 4);
    folder_set(c, layouts[layout], WORDS);
    snprintf(word, sizeof word, "train.steps=%d", steps);
    folder_set(c, (const char *const[]){word, more}, 2);
    test_check(folder_train(c, &seen) == 0, __FILE__, __LINE__, "%s: %s", run, plait_error());
}

/* Logits of some tokens into the file; on one rank, or on four. */
static int ranks = 1;
static int logits(const char *run, const char *step, const char *file)
{
    static const char *const few[] = {"parallel.tp=1", "parallel.pp=1", "parallel.sp=false",
                                      "parallel.schedule=1f1b"};
    static const char *const more[] = {"parallel.tp=2", "parallel.pp=2", "parallel.sp=false",
                                       "parallel.schedule=1f1b"};
    char path[FOLDER_PATH], out[FOLDER_PATH];
    folder_path(run, path);
    folder_path(file, out);
    return plait_generate(&(struct plait_generate){
        .size = sizeof(struct plait_generate), .run = path, .prompt = "braid", .tokens = 4,
        .ignore_eot = 1, .set = ranks == 1 ? few : more, .sets = 4, .logits = out, .step = step});
}

/* Names in the folder of a run; the one gets the other. */
static void move(const char *run, const char *from, const char *to)
{
    char a[FOLDER_PATH], b[FOLDER_PATH];
    folder_path_in(run, from, a);
    folder_path_in(run, to, b);
    CHECK(rename(a, b) == 0);
}

/* The newest is the end's, and so is model.safetensors; those before are of a shorter run. */
static void any_step_of_any_layout(void)
{
    for (int i = 0; i < MODELS * LAYOUTS; i++) {
        int model = i % MODELS, layout = i / MODELS;
        char what[32];
        ranks = i % 2 ? 1 : 4;
        snprintf(what, sizeof what, "model %d, layout %d", model, layout);
        train("run", model, layout, 6, "train.save_every=2");
        CHECK_INT(logits("run", NULL, "newest"), 0);
        CHECK_INT(logits("run", "4", "fourth"), 0);
        move("run", "checkpoints", "aside");
        CHECK_INT(logits("run", "", "end"), 0);
        test_check(folder_same("newest", "end"), __FILE__, __LINE__, "%s: newest", what);
        test_check(!folder_same("fourth", "end"), __FILE__, __LINE__, "%s: step 4 is 6", what);
        train("short", model, layout, 4, NULL);
        CHECK_INT(logits("short", NULL, "end"), 0);
        test_check(folder_same("fourth", "end"), __FILE__, __LINE__, "%s: step 4", what);
        folder_remove("run");
        folder_remove("short");
    }
    ranks = 1;
}

/* A run that was killed has no weights but those. */
static void without_weights(void)
{
    char path[FOLDER_PATH];
    train("run", 0, 0, 4, "train.save_every=2");
    CHECK_INT(logits("run", NULL, "before"), 0);
    folder_path_in("run", "model.safetensors", path);
    CHECK(unlink(path) == 0);
    CHECK_INT(logits("run", NULL, "after"), 0);
    CHECK(folder_same("before", "after"));
    folder_remove("run");
}

/* ---- what is refused ---- */

static void refused(const char *step, int code, const char *part)
{
    int got = logits("run", step, "none");
    test_check(got == code && strstr(plait_error(), part), __FILE__, __LINE__,
               "step %s: code %d, wanted %d with \"%s\": %s", step ? step : "", got, code, part,
               plait_error());
}

static void flip(const char *name, off_t from_end)
{
    char path[FOLDER_PATH];
    struct stat st;
    unsigned char byte = 0;
    folder_path_in("run", name, path);
    FILE *f = fopen(path, "r+b");
    CHECK(f && stat(path, &st) == 0 && fseeko(f, st.st_size - from_end, SEEK_SET) == 0);
    CHECK(f && fread(&byte, 1, 1, f) == 1 && fseeko(f, st.st_size - from_end, SEEK_SET) == 0);
    byte ^= 0x10;
    CHECK(f && fwrite(&byte, 1, 1, f) == 1 && fclose(f) == 0);
}

static void what_is_wrong_is_said(void)
{
    char a[FOLDER_PATH], b[FOLDER_PATH], command[3 * FOLDER_PATH];
    train("run", 0, 0, 6, "train.save_every=2");
    refused("3", PLAIT_CHECKPOINT, "no whole checkpoint of step 3; it has those of: 2, 4, 6");
    refused("best", PLAIT_CHECKPOINT, "(2, 4, 6)");
    refused("newest", PLAIT_CONFIG, "\"newest\" is no step");
    refused("-2", PLAIT_CONFIG, "\"-2\" is no step");
    train("other", 1, 0, 2, "train.save_every=2");
    folder_path_in("other", "checkpoints/step-2", a);
    folder_path_in("run", "checkpoints/step-8", b);
    snprintf(command, sizeof command, "cp -r '%s' '%s'", a, b);
    CHECK(system(command) == 0);
    refused(NULL, PLAIT_CHECKPOINT, "model.tied");
    flip("checkpoints/step-6/rank-00000.safetensors", 9000);
    CHECK_INT(logits("run", "4", "none"), 0);
    flip("checkpoints/step-4/index.json", 30);
    refused("4", PLAIT_CHECKPOINT, "step-4/index.json");
    folder_path_in("run", "checkpoints/step-6/index.json", b);
    CHECK(unlink(b) == 0);
    refused("6", PLAIT_CHECKPOINT, "it has those of: 2, 4, 8");
    folder_remove("run");
    folder_remove("other");
}

/* No answer is written over what a checkpoint has. */
static void no_file_of_a_checkpoint_is_written(void)
{
    train("run", 0, 0, 2, "train.save_every=2");
    CHECK_INT(logits("run", NULL, "run/checkpoints/step-2/index.json"), PLAIT_CONFIG);
    CHECK_INT(logits("run", NULL, "run/checkpoints/step-2/rank-00000.safetensors"), PLAIT_CONFIG);
    CHECK_INT(logits("run", NULL, "good"), 0);
    folder_remove("run");
}

static const struct test_case cases[] = {
    {"any step of any layout", any_step_of_any_layout},
    {"without weights", without_weights},
    {"what is wrong is said", what_is_wrong_is_said},
    {"no file of a checkpoint is written", no_file_of_a_checkpoint_is_written},
};
TEST_MAIN(cases)
