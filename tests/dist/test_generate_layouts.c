/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights of a run on any layout are generated from on one rank, with the two words that
 * docs/generation.md names and no others: what else the run's configuration says of ranks waits, or
 * does not count.
 */
#include "folder.h"

#include "base/fs.h"
#include "base/mem.h"
#include "base/text.h"

enum { SEEN = 512 };
struct seen { char text[SEEN]; int n; };

static void on_text(void *arg, const char *bytes, int n)
{
    struct seen *s = arg;
    for (int i = 0; i < n && s->n < SEEN - 1; i++)
        s->text[s->n++] = bytes[i];
}

static int generate(const char *run, const char *const *set, int sets, struct seen *seen)
{
    char path[FOLDER_PATH];
    folder_path(run, path);
    memset(seen, 0, sizeof *seen);
    return plait_generate(&(struct plait_generate){
        .size = sizeof(struct plait_generate), .run = path, .prompt = "7 braids", .tokens = 12,
        .temperature = 0.8, .seed = 5, .ignore_eot = 1, .set = set, .sets = sets,
        .on_text = on_text, .arg = seen});
}

static void make_run(const char *run, const char *const *set)
{
    struct folder_seen seen;
    folder_tokens("text", "braids of strands ", 40);
    struct plait_config *c = folder_config(run, "text");
    folder_set(c, (const char *const[]){
        "model.layers=4", "model.hidden=16", "model.heads=4", "model.seq=16", "model.vocab=257",
        "model.init_std=1", "train.steps=1", "train.batch=8", "train.device=ref",
        "train.threads=1", NULL}, 99);
    folder_set(c, set, 99);
    test_check(folder_train(c, &seen) == 0, __FILE__, __LINE__, "%s: %s", run, plait_error());
}

static const char *const one[] = {"parallel.tp=1", "parallel.pp=1"};

static void any_run_on_one_rank(void)
{
    static const char *const layout[][6] = {
        {"parallel.tp=2", "parallel.sp=true", "parallel.pp=2"},
        {"parallel.tp=4", "parallel.sp=true", "parallel.tp_overlap=on", "parallel.tp_rows=4"},
        {"parallel.pp=2", "parallel.schedule=zb-v"},
        {"parallel.pp=2", "parallel.schedule=dualpipe", "train.recompute=full"},
        {"parallel.pp=2", "parallel.schedule=interleaved", "parallel.chunks=2",
         "parallel.group=3"},
        {"parallel.pp=2", "parallel.schedule=zb-1p", "parallel.memory_limit=2"},
        {"parallel.pp=4", "parallel.schedule=1f1b", "train.canonical_accumulation=true"},
        {"parallel.dp=2", "parallel.zero=1", "parallel.tp=2", "parallel.sp=true"},
    };
    struct seen own, alone;
    for (size_t i = 0; i < sizeof layout / sizeof *layout; i++) {
        char run[32];
        snprintf(run, sizeof run, "layout%d", (int)i);
        make_run(run, layout[i]);
        CHECK_INT(generate(run, NULL, 0, &own), 0);
        int code = generate(run, one, 2, &alone);
        test_check(code == 0 && alone.n > 8 && strcmp(own.text, alone.text) == 0, __FILE__,
                   __LINE__, "%s %s: code %d %s", layout[i][0], layout[i][1], code,
                   code ? plait_error() : alone.text);
    }
}

/* config.yaml of a run, with one word for another. */
static void edit(const char *run, const char *from, const char *to)
{
    char path[FOLDER_PATH], *said;
    struct fs_map map;
    struct text t = {0};
    folder_path_in(run, "config.yaml", path);
    CHECK_OK(fs_map_open(&map, path, ERR_CONFIG));
    text_add(&t, "%.*s", (int)map.size, (const char *)map.data);
    fs_map_close(&map);
    CHECK_OK(text_done(&t, &said));
    char *at = strstr(said, from);
    if (test_check(at != NULL, __FILE__, __LINE__, "no %s in %s", from, said)) {
        text_add(&t, "%.*s%s%s", (int)(at - said), said, to, at + strlen(from));
        CHECK_OK(fs_put(path, t.s, t.len));
    }
    text_free(&t);
    mem_free(said);
}

/* A run of processes is generated from by threads where there is no launcher. */
static void the_transport_of_the_run_does_not_count(void)
{
    struct seen threads, alone;
    make_run("processes", (const char *const[]){"parallel.tp=2", "parallel.pp=2", NULL});
    CHECK_INT(generate("processes", NULL, 0, &threads), 0);
    edit("processes", "transport: thread", "transport: mpi");
    for (int sets = 0; sets < 3; sets++) {
        int code = generate("processes", one, sets, &alone);
        test_check(code == 0 && strcmp(threads.text, alone.text) == 0, __FILE__, __LINE__,
                   "%d words: code %d %s", sets, code, code ? plait_error() : alone.text);
    }
}

static const struct test_case cases[] = {
    {"any_run_on_one_rank", any_run_on_one_rank},
    {"the_transport_of_the_run_does_not_count", the_transport_of_the_run_does_not_count},
};
TEST_MAIN(cases)
