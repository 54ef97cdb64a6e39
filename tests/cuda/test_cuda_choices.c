/* SPDX-License-Identifier: Apache-2.0
 *
 * A run on a GPU that is stopped and goes on where the machine remembers nothing of what it has
 * chosen: it measures nothing, for its checkpoint has the choices, and goes on to the bit. Without
 * the checkpoint's it would measure. What the library no longer proposes goes into no checkpoint,
 * and where a checkpoint's choices cannot be followed that is said. Attention's gradient is our
 * own, since cuDNN's adds in an order of chance.
 */
#include "folder.h"
#include "gpus.h"

#include "base/fs_sys.h"
#include "base/mem.h"
#include "base/num.h"
#include "saved.h"

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

/* ---- what a checkpoint has ---- */

static void checkpoint_of(const char *run, int step, char path[FOLDER_PATH])
{
    char name[64];
    snprintf(name, sizeof name, "checkpoints/step-%d", step);
    folder_path_in(run, name, path);
}

/* The choices of the newest checkpoint of a run of all steps (mem_free). */
static char *choices_of(const char *run)
{
    char dir[FOLDER_PATH], *s = NULL;
    struct state_index x;
    checkpoint_of(run, STEPS, dir);
    CHECK_OK(state_index_open(&x, dir));
    CHECK_OK(mem_string(x.head.notes, &s));
    state_index_close(&x);
    return s;
}

static void layout(const char *const *words)
{
    const char *again[WORDS] = {"run.resume=auto"};
    struct folder_seen whole, o;
    for (int i = 0; words[i]; i++)
        again[i + 1] = words[i];
    CHECK_INT(train("judge", "cache", words, 0, &whole), 0);
    CHECK(folder_count("cache", "gemm-") == 1);
    /* a step that is saved for its number: its copies begin beside it */
    CHECK_INT(train("run", "cache", words, 6, &o), PLAIT_STOPPED);
    int code = train("run", "empty", again, 0, &o);
    test_check(code == 0, __FILE__, __LINE__, "%s: %s", words[0], plait_error());
    CHECK(strstr(o.table, "behind step ") && !strstr(o.table, "are made anew"));
    CHECK_INT(folder_count("empty", "gemm-"), 0); /* nothing was measured, so nothing is kept */
    CHECK(o.losses > 0 && o.losses < STEPS);
    for (int i = 0; i < o.losses; i++)
        test_check(o.loss[i] == whole.loss[STEPS - o.losses + i], __FILE__, __LINE__,
                   "%s: loss %.17g, not %.17g", words[0], o.loss[i],
                   whole.loss[STEPS - o.losses + i]);
    char *was = choices_of("judge"), *now = choices_of("run");
    CHECK(strstr(was, "algo1 ") != NULL);
    CHECK_STR(now, was); /* equal runs have equal choices, and the same text of them */
    mem_free(was);
    mem_free(now);
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

/* ---- what cannot be followed ---- */

enum { NEVER = 7654321 }; /* the first setting of no algorithm */

/* Lines of choices, each with that setting instead, and a right hash (mem_free). */
static char *made_stale(const char *lines, int *n)
{
    struct text out = {0};
    char *s = NULL;
    *n = 0;
    for (const char *p = lines + strspn(lines, "\n"); *p; p += strspn(p, "\n")) {
        char line[1024] = "", first[512] = "", rest[512] = "";
        size_t len = strcspn(p, "\n");
        int at = 0, skip = 0;
        snprintf(line, sizeof line, "%.*s", (int)len, p);
        p += len;
        char *check = strrchr(line, ' ');
        if (strncmp(line, "algo1 ", 6) != 0 || !check) {
            text_add(&out, "%s\n", line);
            continue;
        }
        *check = '\0';
        for (int word = 0; word < 10; word++) /* the mark, the key, the way */
            at += (int)strcspn(line + at, " ") + 1;
        skip = (int)strcspn(line + at, " ");
        snprintf(first, sizeof first, "%.*s%d", at, line, NEVER);
        snprintf(rest, sizeof rest, "%s", line + at + skip);
        snprintf(line, sizeof line, "%s%s", first, rest);
        text_add(&out, "%s %016llx\n", line, (unsigned long long)num_hash(line));
        ++*n;
    }
    CHECK_OK(text_done(&out, &s));
    return s;
}

/* The one file of a folder of choices. */
static void file_of(const char *cache, char path[FOLDER_PATH])
{
    char folder[FOLDER_PATH];
    struct fs_folder d;
    folder_path(cache, folder);
    CHECK(fs_folder_open(&d, folder));
    const char *name = fs_folder_next(&d);
    CHECK(name && strncmp(name, "gemm-", 5) == 0);
    folder_path_in(cache, name ? name : "", path);
    fs_folder_close(&d);
}

static bool has_stale(const char *choices)
{
    char word[32];
    snprintf(word, sizeof word, " %d ", NEVER);
    return strstr(choices, word) != NULL;
}

/* Makes the choices of a file stale. */
static void spoil(const char *cache)
{
    struct fs_map m;
    char path[FOLDER_PATH], *lines = NULL, *stale;
    int n;
    file_of(cache, path);
    CHECK_OK(fs_map_open(&m, path, ERR_DATA));
    CHECK_OK(mem_new(m.size + 1, 1, "choices", &lines));
    memcpy(lines, m.data, (size_t)m.size);
    fs_map_close(&m);
    stale = made_stale(lines, &n);
    CHECK(n > 0);
    CHECK_OK(fs_put(path, stale, (int64_t)strlen(stale)));
    mem_free(lines);
    mem_free(stale);
}

/* A file whose choices are no proposals any more: what is done instead is what checkpoints have,
 * from which a run goes on to the bit. */
static void a_stale_file(void)
{
    static const char *const none[] = {NULL}, *const again[] = {"run.resume=auto", NULL};
    struct folder_seen whole, o;
    char dir[FOLDER_PATH];
    if (gpus_here(1) == 0) {
        test_skip("no GPU");
        return;
    }
    CHECK_INT(train("first", "cache", none, 0, &o), 0);
    spoil("cache");
    CHECK_INT(train("judge", "cache", none, 0, &whole), 0);
    char *choices = choices_of("judge");
    CHECK(strstr(choices, "algo1 ") && !has_stale(choices));
    mem_free(choices);
    checkpoint_of("judge", STEPS, dir); /* back to the one before */
    CHECK_OK(state_remove(dir));
    CHECK_INT(train("judge", "empty", again, 0, &o), 0);
    CHECK(o.losses > 0 && o.losses < STEPS && !strstr(o.table, "last bits may differ"));
    CHECK_INT(folder_count("empty", "gemm-"), 0);
    for (int i = 0; i < o.losses; i++)
        CHECK(o.loss[i] == whole.loss[STEPS - o.losses + i]);
    choices = choices_of("judge");
    CHECK(!has_stale(choices));
    mem_free(choices);
}

/* Saved with `was` and gone on with `now`: this is said. */
static void said(const char *was, const char *now, const char *word)
{
    const char *first[] = {was, "train.steps=4", NULL};
    const char *then[] = {now, "run.resume=auto", NULL};
    struct folder_seen o;
    CHECK_INT(train("told", "told-cache", first, 0, &o), 0);
    CHECK_INT(train("told", "told-cache", then, 0, &o), 0);
    test_check(strstr(o.table, word) != NULL, __FILE__, __LINE__, "%s, then %s: %s", was, now,
               o.table);
    folder_remove("told");
}

static void what_cannot_be_followed_is_said(void)
{
    static const char anew[] = "are made anew: last bits may differ",
                      none[] = "train.deterministic takes none of its choices of GEMM and "
                               "attention algorithms: last bits may differ",
                      device[] = "with another train.device: last bits may differ";
    if (gpus_here(1) == 0) {
        test_skip("no GPU");
        return;
    }
    said("train.deterministic=true", "train.deterministic=false", anew);
    said("train.deterministic=false", "train.deterministic=true", none);
    said("train.device=cpu", "train.device=cuda", device);
    said("train.device=cuda", "train.device=cpu", device);
}

static const struct test_case cases[] = {
    {"goes on without the cache", goes_on_without_the_cache},
    {"a stale file", a_stale_file},
    {"what cannot be followed is said", what_cannot_be_followed_is_said}};
TEST_MAIN(cases)
