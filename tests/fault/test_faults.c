/* SPDX-License-Identifier: Apache-2.0
 *
 * What goes wrong inside a run: memory that is not to be had, at every allocation in turn; numbers
 * that stop being finite; ranks that were started differently. Each ends all ranks with its own
 * code, and leaves no weights behind. Runs that may break the process are made in a child.
 */
#include "folder.h"

#include "base/fs.h"
#include "comm/comm.h"
#include "train/rank.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* Tokens to train on, and the folder of runs emptied. */
static void prepare_run(void)
{
    static const char *const file[] = {"run/metrics.jsonl", "run/model.safetensors",
                                       "run/config.yaml", "run/config.json", "run/run.json",
                                       "run/log.txt"};
    folder_tokens("tokens.bin", "a braid of many strands\n", 80);
    for (size_t i = 0; i < sizeof file / sizeof *file; i++) {
        char path[FOLDER_PATH];
        folder_path(file[i], path);
        unlink(path);
    }
}

/* A small run; words after the common ones win. Returns the code of the run. */
static int train(const char *const *word, int words)
{
    struct plait_config *c;
    char path[FOLDER_PATH], set[600];
    static const char *const base[] = {
        "model.kind=llama", "model.layers=2", "model.hidden=16", "model.heads=2", "model.ffn=16",
        "model.seq=8", "train.steps=2", "train.batch=2", "parallel.microbatch=1", "train.dtype=f32",
        "optim.warmup=0", "parallel.pp=2", "train.hang_timeout=20", "train.save_keep=0"};
    int code = plait_config_new(&c);
    if (code)
        return code;
    for (size_t i = 0; i < sizeof base / sizeof *base && !code; i++)
        code = plait_config_set(c, base[i]);
    folder_path("tokens.bin", path);
    snprintf(set, sizeof set, "data.train=%s", path);
    code = code ? code : plait_config_set(c, set);
    folder_path("run", path);
    snprintf(set, sizeof set, "run.dir=%s", path);
    code = code ? code : plait_config_set(c, set);
    for (int i = 0; i < words && !code; i++)
        code = plait_config_set(c, word[i]);
    if (!code)
        code = plait_train(c, &(struct plait_train){.size = sizeof(struct plait_train)});
    plait_config_free(c);
    return code;
}

/* The same in a child process, with one more variable in its environment; -signal when it died. */
static int train_apart(const char *variable, const char *value)
{
    int status;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        setenv(variable, value, 1);
        alarm(60);
        _exit(train(NULL, 0));
    }
    if (child < 0 || waitpid(child, &status, 0) != child)
        return -1000;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static void allocations(void)
{
    char weights[FOLDER_PATH];
    int code = PLAIT_MEMORY, refused = 0;
    folder_path("run/model.safetensors", weights);
    for (int k = 1; code != 0 && k < 4000; k += k < 150 ? 1 : 7) {
        char value[16];
        prepare_run();
        snprintf(value, sizeof value, "%d", k);
        code = train_apart("PLAIT_FAIL_ALLOC", value);
        refused += code == PLAIT_MEMORY;
        if (!test_check(code == PLAIT_MEMORY || code == 0, __FILE__, __LINE__,
                        "allocation %d fails: code %d", k, code))
            return;
        if (code)
            CHECK(!fs_exists(weights));
    }
    CHECK_INT(code, 0);
    CHECK(refused > 100);
}

static void not_finite(void)
{
    static const char *const words[] = {"optim.lr=100",    "optim.lr_min=100", "train.steps=500",
                                        "model.kind=gpt",  "model.layers=8",   "parallel.tp=2",
                                        "train.device=cpu"};
    char weights[FOLDER_PATH];
    folder_path("run/model.safetensors", weights);
    prepare_run();
    CHECK_INT(train(words, 7), PLAIT_NONFINITE);
    CHECK(strstr(plait_error(), "step") && strstr(plait_error(), "optim.lr"));
    test_check(fs_exists(weights) && strstr(plait_error(), "the weights of step "), __FILE__,
               __LINE__, "%s", plait_error());
}

/* ---- ranks that differ ---- */

struct differing { struct options o[2]; uint64_t data[2]; };

static enum err greet(void *arg, struct comm_world *w)
{
    struct differing *d = arg;
    struct setup s;
    int me = comm_rank(w);
    enum err err = setup_make(&d->o[me], 257, true, &s);
    if (err == ERR_OK)
        err = rank_agree(&s, &(struct rank_read){.train = d->data[me]}, w);
    setup_free(&s);
    return err;
}

static void start_differing(struct differing *d)
{
    static const char *const words[] = {"model.layers=2", "model.hidden=16", "model.heads=2",
                                        "model.seq=8", "parallel.pp=2", "train.batch=4"};
    *d = (struct differing){.data = {7, 7}};
    for (int r = 0; r < 2; r++) {
        CHECK_OK(conf_defaults(&options_table, &d->o[r]));
        for (size_t i = 0; i < sizeof words / sizeof *words; i++)
            CHECK_OK(conf_set(&options_table, &d->o[r], words[i]));
    }
}

static void ranks_differ(void)
{
    struct differing d;
    start_differing(&d);
    snprintf(d.o[1].run.dir, sizeof d.o[1].run.dir, "elsewhere"); /* a path may differ */
    CHECK_OK(comm_thread_run(2, 20, greet, &d));
    d.o[1].optim.lr *= 2;
    CHECK_ERR(comm_thread_run(2, 20, greet, &d), ERR_MISMATCH, "configuration differs");
    start_differing(&d);
    d.data[1] = 8;
    CHECK_ERR(comm_thread_run(2, 20, greet, &d), ERR_MISMATCH, "data.train differs");
    start_differing(&d);
    snprintf(d.o[1].parallel.schedule, sizeof d.o[1].parallel.schedule, "naive");
    CHECK_ERR(comm_thread_run(2, 20, greet, &d), ERR_MISMATCH, "differs between rank 0 and rank 1");
    start_differing(&d);
    d.o[1].env.attn_grad = DEV_GRAD_OWN; /* of GPUs alone */
    CHECK_OK(comm_thread_run(2, 20, greet, &d));
    d.o[0].train.device = d.o[1].train.device = OPTIONS_CUDA;
    CHECK_ERR(comm_thread_run(2, 20, greet, &d), ERR_MISMATCH,
              "what the environment decides (PLAIT_ATTN_GRAD) differs");
}

static const struct test_case cases[] = {{"allocations", allocations},
                                         {"not_finite", not_finite},
                                         {"ranks_differ", ranks_differ}};
TEST_MAIN(cases)
