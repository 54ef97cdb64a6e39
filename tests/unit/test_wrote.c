/* SPDX-License-Identifier: Apache-2.0
 *
 * Every verb that writes a file says so when it is done, by its path, on standard error; what it
 * answers on standard output is as without.
 */
#include "folder.h"
#include "program.h"

#include <unistd.h>

static struct outcome with, without;

/* The file is there, is named, and the answer has nothing of it. */
static void is_said(const char *const *words, int n, const char *option, const char *file)
{
    const char *ask[20] = {NULL};
    char path[FOLDER_PATH], line[FOLDER_PATH + 32];
    folder_path(file, path);
    memcpy(ask, words, (size_t)n * sizeof *ask);
    program_run(&without, NULL, ask);
    test_check(without.code == 0 && !strstr(without.err, "wrote"), __FILE__, __LINE__, "%s: %d %s",
               words[0], without.code, without.err);
    ask[n] = option;
    ask[n + 1] = path;
    program_run(&with, NULL, ask);
    snprintf(line, sizeof line, "plait: wrote %s, ", path);
    test_check(with.code == 0 && strstr(with.err, line), __FILE__, __LINE__, "%s %s: %d %s",
               words[0], option, with.code, with.err);
    CHECK(access(path, F_OK) == 0);
    if (strcmp(words[0], "bench") != 0) /* which measures */
        CHECK_STR(with.out, without.out);
}

static void what_is_written_is_said(void)
{
    char run[FOLDER_PATH], tokens[FOLDER_PATH], dir[FOLDER_PATH + 16], data[FOLDER_PATH + 16];
    folder_path("run", run);
    folder_path("a.tok", tokens);
    CHECK_INT(plait_data_random(tokens, 11, 400, 1), 0);
    snprintf(dir, sizeof dir, "run.dir=%s", run);
    snprintf(data, sizeof data, "data.train=%s", tokens);
    RUN(&with, "train", dir, data, "model.layers=2", "model.hidden=8", "model.heads=1",
        "model.seq=4", "train.steps=3", "train.batch=2", "train.device=ref", "parallel.pp=2",
        "--trace");
    test_check(with.code == 0, __FILE__, __LINE__, "train: %s", with.err);
    const char *sim[] = {"sim", "1f1b", "-p2", "-m2"};
    const char *json[] = {"sim", "1f1b", "-p2", "-m2", "--json"};
    const char *side[] = {"sim", "--compare", "1f1b,gpipe", "-p2", "-m2"};
    const char *compare[] = {"compare", run};
    const char *ids[] = {"generate", run, "--ids", "1,2", "--tokens", "2"};
    const char *bench[] = {"bench", "model.vocab=11", "model.layers=1", "model.hidden=8",
                           "model.heads=1", "model.seq=4", "train.batch=1", "train.device=ref",
                           "--seconds", "0.0001", "--largest", "1024"};
    is_said(sim, 4, "--html", "a.html");
    is_said(sim, 4, "--svg", "a.svg");
    is_said(sim, 4, "--perfetto", "a.json");
    is_said(json, 5, "--html", "b.html");
    is_said(side, 5, "--html", "c.html");
    is_said(compare, 2, "--html", "d.html");
    is_said(compare, 2, "--svg", "d.svg");
    is_said(compare, 2, "--perfetto", "d.json");
    is_said(compare, 2, "--costs", "d.csv");
    is_said(ids, 6, "--logits", "e.txt");
    is_said(bench, 12, "--out", "f.json");
}

static const struct test_case cases[] = {
    {"what_is_written_is_said", what_is_written_is_said},
};
TEST_MAIN(cases)
