/* SPDX-License-Identifier: Apache-2.0
 *
 * A run on a GPU that is stopped and goes on where the machine remembers nothing of what it has
 * chosen: it measures nothing, for its checkpoint has the choices, and goes on to the bit. Without
 * the checkpoint's it would measure. Attention's gradient is our own, since cuDNN's adds in an
 * order of chance.
 */
#include "folder.h"
#include "gpus.h"

#include "base/fs.h"

#include <stdlib.h>
#include <sys/stat.h>

enum { STEPS = 10, WORDS = 32 };

/* Remembers in the folder `cache`. */
static int train(const char *run, const char *cache, const char *const *more, int64_t stop_behind,
                 struct folder_seen *seen)
{
    static const char *const set[] = {
        "train.device=cuda", "train.dtype=bf16", "model.layers=2", "model.hidden=256",
        "model.heads=4", "model.seq=128", "train.batch=8", "parallel.microbatch=4",
        "train.steps=10", "optim.lr=0.003", "train.save_every=3"};
    char path[FOLDER_PATH];
    folder_path(cache, path);
    CHECK(setenv("PLAIT_CACHE", path, 1) == 0 && setenv("PLAIT_ATTN_GRAD", "own", 1) == 0);
    folder_tokens("tokens.bin", "a braid of many strands, over and under\n", 600);
    struct plait_config *c = folder_config(run, "tokens.bin");
    folder_set(c, set, sizeof set / sizeof *set);
    folder_set(c, more, WORDS);
    return folder_train_until(c, stop_behind, seen);
}

static void layout(const char *const *words)
{
    const char *again[WORDS] = {"run.resume=auto"};
    struct folder_seen whole, o;
    for (int i = 0; words[i]; i++)
        again[i + 1] = words[i];
    CHECK_INT(train("judge", "cache", words, 0, &whole), 0);
    CHECK(folder_count("cache", "gemm-") == 1);
    CHECK_INT(train("run", "cache", words, 4, &o), PLAIT_STOPPED);
    int code = train("run", "empty", again, 0, &o);
    test_check(code == 0, __FILE__, __LINE__, "%s: %s", words[0], plait_error());
    CHECK(strstr(o.table, "behind step ") && !strstr(o.table, "are made anew"));
    CHECK_INT(folder_count("empty", "gemm-"), 0); /* nothing was measured, so nothing is kept */
    CHECK(o.losses > 0 && o.losses < STEPS);
    for (int i = 0; i < o.losses; i++)
        test_check(o.loss[i] == whole.loss[STEPS - o.losses + i], __FILE__, __LINE__,
                   "%s: loss %.17g, not %.17g", words[0], o.loss[i],
                   whole.loss[STEPS - o.losses + i]);
    static const char *const made[] = {"run", "judge", "cache", "empty"};
    CHECK(folder_same_in("run", "judge", "model.safetensors"));
    for (size_t i = 0; i < sizeof made / sizeof *made; i++)
        folder_remove(made[i]);
}

static void goes_on_without_the_cache(void)
{
    static const char *const words[][4] = {
        {"train.graph=auto"}, {"train.profile=true"}, {"parallel.dp=2", "parallel.zero=1"},
        {"parallel.pp=2"}, {"parallel.tp=2"}};
    int here = gpus_here(2);
    if (here == 0)
        test_skip("no GPU");
    for (int i = 0; here > 0 && i < (here > 1 ? 5 : 2); i++)
        layout(words[i]);
}

static const struct test_case cases[] = {{"goes on without the cache", goes_on_without_the_cache}};
TEST_MAIN(cases)
