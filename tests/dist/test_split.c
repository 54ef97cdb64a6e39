/* SPDX-License-Identifier: Apache-2.0
 *
 * The law for stages that parallel.split names: wherever stages begin, and whatever schedule places
 * them, the losses are those of one rank; with the names of the stages that are cut by cost the
 * weights are the same bytes.
 */
#include "folder.h"

#include <math.h>
#include <stdlib.h>

enum { STEPS = 3 };

static int train(const char *run, const char *kind, const char *words, struct folder_seen *seen)
{
    static const char *const small[] = {
        "model.layers=4", "model.hidden=16", "model.heads=2", "model.seq=8", "model.dropout=0.1",
        "train.device=ref", "train.batch=6", "train.steps=3", "train.threads=1", "optim.clip=0.5",
        "optim.lr=0.01", "model.init_std=0.2"};
    char word[256], key[32];
    int used;
    folder_tokens("text.bin", "threads of a braid, over and under; ", 30);
    struct plait_config *c = folder_config(run, "text.bin");
    folder_set(c, small, sizeof small / sizeof *small);
    folder_set_file(c, "data.valid", "text.bin");
    snprintf(key, sizeof key, "model.kind=%s", kind);
    folder_set(c, (const char *const[]){key}, 1);
    for (; sscanf(words, "%255s%n", word, &used) == 1; words += used)
        folder_set(c, (const char *const[]){word}, 1);
    return folder_train(c, seen);
}

static void any_split_is_one_rank(void)
{
    static const char *const words[] = {
        "parallel.pp=2 parallel.split=layers.1", "parallel.pp=2 parallel.split=layers.0.mlp",
        "parallel.pp=2 parallel.split=layers.3.mlp parallel.schedule=zb-h2",
        "parallel.pp=2 parallel.split=layers.3 parallel.schedule=gpipe parallel.dp=2",
        "parallel.pp=3 parallel.split=layers.0.mlp,layers.1.attn parallel.schedule=zb-h1",
        "parallel.pp=2 parallel.tp=2 parallel.sp=true parallel.split=layers.2.mlp",
        "parallel.pp=2 parallel.split=layers.1.mlp train.recompute=full",
        "parallel.pp=2 parallel.split=layers.1.mlp parallel.dp=2 parallel.zero=1",
        "parallel.pp=2 parallel.chunks=2 parallel.schedule=interleaved "
        "parallel.split=layers.0.mlp,layers.2,layers.3.mlp",
        "parallel.pp=2 parallel.chunks=4 parallel.schedule=looped-bfs parallel.split="
        "layers.0.mlp,layers.1,layers.1.mlp,layers.2,layers.2.mlp,layers.3,layers.3.mlp",
        "parallel.pp=2 parallel.schedule=zb-v parallel.split=layers.0.mlp,layers.1,layers.3.mlp",
        "parallel.pp=2 parallel.schedule=v-min parallel.split=layers.1,layers.2,layers.3",
        "parallel.pp=2 parallel.schedule=dualpipe parallel.split=layers.0.mlp",
        "parallel.pp=2 parallel.schedule=dualpipev parallel.split=layers.1.mlp,layers.2.mlp,"
        "layers.3",
        "parallel.pp=2 parallel.schedule=chimera parallel.split=layers.2.mlp",
        "parallel.pp=3 parallel.split=layers.0,head parallel.schedule=zb-h1",
        "parallel.pp=2 parallel.split=head parallel.tp=2 parallel.sp=true train.recompute=full",
        "parallel.pp=2 parallel.split=layers.0 parallel.dp=2 parallel.zero=1",
        "parallel.pp=2 parallel.schedule=zb-v parallel.split=layers.0,layers.2,head",
        "parallel.pp=2 parallel.schedule=dualpipev parallel.split=layers.0,layers.1.mlp,head",
        "parallel.pp=2 parallel.schedule=chimera parallel.split=head",
        "parallel.pp=2 parallel.chunks=2 parallel.schedule=interleaved "
        "parallel.split=layers.0,layers.3,head",
    };
    static const char *const kind[] = {"gpt", "llama"};
    for (int k = 0; k < 2; k++) {
        struct folder_seen want, got;
        CHECK_INT(train("one", kind[k], "", &want), 0);
        CHECK_INT(want.losses, STEPS);
        for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
            int code = train("many", kind[k], words[i], &got);
            test_check(code == 0 && got.losses == STEPS, __FILE__, __LINE__, "%s %s: %d: %s",
                       kind[k], words[i], code, plait_error());
            double far = fabs(got.valid - want.valid);
            for (int s = 0; s < STEPS; s++)
                far = fmax(far, fabs(got.loss[s] - want.loss[s]));
            test_check(far < 1e-10, __FILE__, __LINE__, "%s %s: losses are %g apart", kind[k],
                       words[i], far);
            folder_remove("many");
        }
        folder_remove("one");
    }
}

/* What `plait sim --model` says of a run's configuration, and what check predicts of it. */
static void simulated_as_trained(void)
{
    static const char *const run[] = {"cost", "named", "other"};
    char *said[3], *report = NULL, path[FOLDER_PATH];
    for (int i = 0; i < 3; i++) {
        struct plait_config *c;
        folder_path_in(run[i], "config.yaml", path);
        CHECK_INT(plait_simulate(&(struct plait_sim){.size = sizeof(struct plait_sim),
                                                     .model = path}, &said[i]), 0);
        CHECK_INT(plait_config_new(&c), 0);
        CHECK_INT(plait_config_read(c, path), 0);
        CHECK_INT(plait_config_check(c, 0, &report), 0);
        const char *ours = strstr(said[i], "\nbubble "), *its = strstr(report, "predicted bubble ");
        CHECK(ours && its);
        if (ours && its)
            CHECK_NEAR(strtod(ours + 8, NULL), strtod(its + 17, NULL), 0.051);
        plait_free(report);
        plait_config_free(c);
    }
    CHECK_STR(said[0], said[1]);
    CHECK(strcmp(said[0], said[2]) != 0);
    for (int i = 0; i < 3; i++)
        plait_free(said[i]);
}

/* The table says which the stages are; where they are those of the cut by cost, so are the bits. */
static void the_same_stages_by_name(void)
{
    struct folder_seen cost, named, other;
    CHECK_INT(train("cost", "gpt", "parallel.pp=2", &cost), 0);
    CHECK_INT(train("named", "gpt", "parallel.pp=2 parallel.split=layers.2.mlp", &named), 0);
    CHECK_INT(train("other", "gpt", "parallel.pp=2 parallel.split=layers.1.mlp", &other), 0);
    CHECK(strstr(cost.table, "stage 1   pp 1   mlp of layer 2, layer 3, head") != NULL);
    CHECK(strstr(named.table, "stage 1   pp 1   mlp of layer 2, layer 3, head") != NULL);
    CHECK(strstr(other.table, "stage 0   pp 0   layer 0, attention of layer 1, emb") != NULL);
    CHECK(strstr(other.table, "stage 1   pp 1   mlp of layer 1, layers 2 to 3, head") != NULL);
    CHECK(folder_same_in("cost", "named", "model.safetensors"));
    CHECK(folder_times("named", "config.yaml", "split: [layers.2.mlp]") == 1);
    simulated_as_trained();
}

/* A run goes on from a checkpoint of other stages: the state knows none. */
static void other_stages_go_on(void)
{
    struct folder_seen want, got;
    CHECK_INT(train("whole", "llama", "optim.schedule=constant", &want), 0);
    CHECK_INT(train("half", "llama", "parallel.pp=2 parallel.split=layers.1 train.steps=2 "
                                     "optim.schedule=constant", &got), 0);
    CHECK_INT(train("half", "llama", "parallel.pp=3 parallel.split=[layers.0.mlp,layers.3] "
                                     "optim.schedule=constant run.resume=auto", &got), 0);
    CHECK_INT(got.losses, 1);
    CHECK(fabs(got.loss[0] - want.loss[2]) < 1e-6); /* the state is saved in f32 */
}

static const struct test_case cases[] = {
    {"any_split_is_one_rank", any_split_is_one_rank},
    {"the_same_stages_by_name", the_same_stages_by_name},
    {"other_stages_go_on", other_stages_go_on},
};
TEST_MAIN(cases)
