/* SPDX-License-Identifier: Apache-2.0
 *
 * Exports of checkpoints: byte for byte the files that a run leaves, whatever layout it was on;
 * other types are rounded from these; in one file or in many, plait reads the folder as it reads
 * the run. What cannot be exported is said, and leaves nothing.
 */
#include "folder.h"

#include "base/fs.h"
#include "base/num.h"
#include "ckpt/ckpt.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { WORDS = 8, SAID = 512 };

static const char *const base_set[] = {
    "model.layers=4", "model.hidden=24", "model.heads=4", "model.seq=8", "train.batch=4",
    "train.threads=1", "train.steps=4", "optim.lr=0.01", "optim.schedule=constant",
    "train.save_every=2", "train.save_keep=9", "train.save_async=false", NULL};
static const char *const models[][4] = {
    {"model.kind=gpt"}, {"model.kind=gpt", "model.tied=false"}, {"model.kind=llama"},
    {"model.kind=llama", "model.tied=true", "model.kv_heads=2", "model.head_dim=10"}};
static const char *const layouts[][WORDS] = {
    {"parallel.pp=1"},
    {"parallel.tp=2", "parallel.pp=2"},
    {"parallel.dp=2", "parallel.zero=1"},
    {"parallel.pp=2", "parallel.schedule=zb-v"},
    {"parallel.pp=2", "parallel.schedule=chimera"},
    {"parallel.tp=2", "parallel.sp=true", "parallel.dp=2", "parallel.zero=1"},
    {"train.device=ref", "parallel.tp=2"}};
enum { MODELS = sizeof models / sizeof *models, LAYOUTS = sizeof layouts / sizeof *layouts };

static void train(const char *run, int model, int layout, const char *const *more)
{
    struct folder_seen seen;
    folder_tokens("text", "braids of strands ", 40);
    struct plait_config *c = folder_config(run, "text");
    folder_set(c, base_set, 99);
    folder_set(c, models[model], 4);
    folder_set(c, layouts[layout], WORDS);
    if (more)
        folder_set(c, more, WORDS);
    test_check(folder_train(c, &seen) == 0, __FILE__, __LINE__, "%s: %s", run, plait_error());
}

/* All of `how` but size, run and out; those are names in the folder. */
static int export(const char *run, const char *out, struct plait_export how)
{
    char from[FOLDER_PATH], to[FOLDER_PATH], *said;
    folder_path(run, from);
    folder_path(out, to);
    how.size = sizeof how;
    how.run = from;
    how.out = to;
    int code = plait_export(&how, &said);
    if (code == 0)
        plait_free(said);
    return code;
}

/* Is there nothing but these in the folder of the test? Names of temporaries begin with theirs. */
static bool nothing_beside(const char *name)
{
    char path[FOLDER_PATH], command[2 * FOLDER_PATH];
    folder_path("", path);
    snprintf(command, sizeof command, "[ -z \"$(find '%s' -name '*.tmp.*' -o -name '%s')\" ]", path,
             name);
    return system(command) == 0;
}

/* ---- the same bytes ---- */

static void of_the_last_checkpoint(void)
{
    for (int i = 0; i < MODELS * LAYOUTS; i++) {
        char what[48];
        snprintf(what, sizeof what, "model %d, layout %d", i % MODELS, i / MODELS);
        train("run", i % MODELS, i / MODELS, NULL);
        test_check(export("run", "out", (struct plait_export){0}) == 0, __FILE__, __LINE__,
                   "%s: %s", what, plait_error());
        test_check(folder_same_in("run", "out", "model.safetensors"), __FILE__, __LINE__,
                   "%s: other weights", what);
        test_check(folder_same_in("run", "out", "config.json"), __FILE__, __LINE__,
                   "%s: other config.json", what);
        CHECK_INT(folder_count("out", ".json"), 2);
        CHECK_INT(folder_count("out", "model"), 1);
        folder_remove("out");
        folder_remove("run");
    }
}

static void of_one_before(void)
{
    train("run", 1, 1, NULL);
    train("short", 1, 1, (const char *const[]){"train.steps=2", NULL});
    CHECK_INT(export("run", "out", (struct plait_export){.step = "2"}), 0);
    CHECK(folder_same_in("short", "out", "model.safetensors"));
    CHECK(!folder_same_in("run", "out", "model.safetensors"));
    folder_remove("run");
    folder_remove("short");
    folder_remove("out");
}

/* ---- types and files ---- */

static double rounded(double v, int type)
{
    return type == 0   ? v
           : type == 1 ? (double)bf16_to_f32(bf16_from_f32((float)v))
                       : (double)f16_to_f32(f16_from_f32((float)v));
}

/* Element i of a tensor of f32, bf16 or f16. */
static double number(const struct safet_file *f, const struct safet_entry *e, int64_t i)
{
    const uint8_t *p = f->data + e->begin + i * safet_type_size(e->type);
    float whole;
    uint16_t half;
    memcpy(&half, p, sizeof half);
    if (e->type != SAFET_F32)
        return e->type == SAFET_F16 ? (double)f16_to_f32(half) : (double)bf16_to_f32(half);
    memcpy(&whole, p, sizeof whole);
    return (double)whole;
}

/* Every number of the run's file, rounded; and no other tensor. */
static void check_values(const char *out, int type, const char *what)
{
    static const enum safet_type types[] = {SAFET_F32, SAFET_BF16, SAFET_F16};
    char a[FOLDER_PATH], b[FOLDER_PATH];
    struct safet_file want;
    struct hf_weights got;
    int n = 0, bad = 0;
    folder_path_in("run", "model.safetensors", a);
    folder_path(out, b);
    CHECK_OK(safet_open(&want, a));
    CHECK_OK(hf_weights_open(&got, b));
    for (int i = 0; i < got.files; i++)
        n += got.file[i].n;
    CHECK_INT(n, want.n);
    for (int i = 0; i < want.n; i++) {
        const struct safet_entry *e = &want.entry[i];
        struct hf_tensor t = hf_weights_find(&got, e->name);
        if (!test_check(t.entry && t.entry->type == types[type], __FILE__, __LINE__, "%s: no %s",
                        what, e->name))
            continue;
        for (int64_t k = 0; k < (e->end - e->begin) / 4; k++)
            bad += number(t.file, t.entry, k) != rounded(number(&want, e, k), type);
    }
    test_check(bad == 0, __FILE__, __LINE__, "%s: %d numbers differ", what, bad);
    hf_weights_close(&got);
    safet_close(&want);
}

/* A file holds as many bytes as it may, but where one tensor is larger. */
static void check_sizes(const char *out, int64_t most, const char *what)
{
    char dir[FOLDER_PATH];
    struct hf_weights w;
    int64_t before = 0;
    folder_path(out, dir);
    CHECK_OK(hf_weights_open(&w, dir));
    for (int i = 0; i < w.files; i++) {
        test_check(w.file[i].bytes <= most || w.file[i].n == 1, __FILE__, __LINE__,
                   "%s: %lld bytes of at most %lld", what, (long long)w.file[i].bytes,
                   (long long)most);
        test_check(i == 0 || before + w.file[i].bytes > most, __FILE__, __LINE__,
                   "%s: files %d and %d are one", what, i, i + 1);
        before = w.file[i].bytes;
    }
    hf_weights_close(&w);
}

static int ids(const char *folder, const char *file)
{
    char path[FOLDER_PATH], out[FOLDER_PATH];
    static const int32_t prompt[] = {98, 114, 97};
    folder_path(folder, path);
    folder_path(file, out);
    return plait_generate(&(struct plait_generate){
        .size = sizeof(struct plait_generate), .run = path, .tokens = 4, .ids = prompt,
        .id_count = 3, .ignore_eot = 1, .logits = out,
        .set = (const char *const[]){"parallel.pp=1", "parallel.tp=1", "parallel.sp=false",
                                     "parallel.schedule=1f1b"}, .sets = 4});
}

static void in_other_types_and_files(void)
{
    static const char *const dtype[] = {"f32", "bf16", "f16"};
    for (int model = 0; model < MODELS; model++) {
        train("run", model, 1, NULL);
        CHECK_INT(ids("run", "logits-run"), 0);
        for (int i = 0; i < 9; i++) {
            char what[64];
            int64_t most = i < 3 ? 0 : test_range(1, 60000);
            snprintf(what, sizeof what, "model %d, %s, %lld bytes", model, dtype[i % 3],
                     (long long)most);
            test_check(export("run", "out", (struct plait_export){.dtype = dtype[i % 3],
                                                                  .shard_bytes = most}) == 0,
                       __FILE__, __LINE__, "%s: %s", what, plait_error());
            check_values("out", i % 3, what);
            check_sizes("out", most ? most : 5000000000, what);
            CHECK_INT(ids("out", "logits-out"), 0);
            test_check(folder_same("logits-run", "logits-out") == (i % 3 == 0), __FILE__, __LINE__,
                       "%s: logits", what);
            folder_remove("out");
        }
        folder_remove("run");
    }
}

/* ---- what is refused ---- */

static void refused(const char *out, struct plait_export how, int code, const char *part)
{
    int got = export("run", out, how);
    test_check(got == code && strstr(plait_error(), part), __FILE__, __LINE__,
               "%s: code %d, wanted %d with \"%s\": %s", out, got, code, part, plait_error());
}

static void make(const char *name, bool folder)
{
    char path[FOLDER_PATH];
    folder_path(name, path);
    if (folder)
        CHECK(mkdir(path, 0777) == 0);
    else
        CHECK_OK(fs_put(path, "x", 1));
}

static void places(void)
{
    static const struct plait_export any = {0};
    char path[FOLDER_PATH];
    train("run", 0, 0, NULL);
    make("file", false);
    refused("file", any, PLAIT_STORAGE, "a file has that name");
    refused("file/out", any, PLAIT_STORAGE, "not a directory");
    refused("nowhere/out", any, PLAIT_STORAGE, "no such file or directory");
    refused("run", any, PLAIT_STORAGE, "is not empty");
    make("full", true);
    make("full/x", false);
    refused("full", any, PLAIT_STORAGE, "is not empty");
    CHECK_INT(folder_count("full", "x"), 1);
    folder_path("link", path);
    CHECK(symlink("full", path) == 0);
    refused("link", any, PLAIT_STORAGE, "a link has that name");
    CHECK(nothing_beside("out"));
    make("empty", true);
    CHECK_INT(export("run", "empty/", any), 0);
    CHECK_INT(folder_count("empty", ".json"), 2);
    folder_remove("empty");
    folder_remove("full");
    folder_remove("run");
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

/* Behind the header, in weights: moments stand behind these. */
static void flip_weight(const char *name)
{
    char path[FOLDER_PATH];
    struct stat st;
    folder_path_in("run", name, path);
    CHECK(stat(path, &st) == 0);
    flip(name, st.st_size - st.st_size / 3);
}

static void what_is_wrong_is_said(void)
{
    train("run", 0, 0, NULL);
    refused("out", (struct plait_export){.step = "3"}, PLAIT_CHECKPOINT, "of: 2, 4");
    refused("out", (struct plait_export){.step = "x"}, PLAIT_CONFIG, "is no step");
    refused("out", (struct plait_export){.step = "best"}, PLAIT_CHECKPOINT, "(2, 4)");
    refused("out", (struct plait_export){.dtype = "f8"}, PLAIT_CONFIG, "use f32, bf16 or f16");
    refused("out", (struct plait_export){.shard_bytes = -1}, PLAIT_CONFIG, "use 1 or more");
    CHECK_INT(export("run/checkpoints", "out", (struct plait_export){0}), PLAIT_CONFIG);
    flip_weight("checkpoints/step-4/rank-00000.safetensors");
    refused("out", (struct plait_export){0}, PLAIT_CHECKPOINT, "rank-00000.safetensors");
    flip("checkpoints/step-2/index.json", 60);
    refused("out", (struct plait_export){.step = "2"}, PLAIT_CHECKPOINT, "step-2/index.json");
    CHECK(nothing_beside("out"));
    folder_remove("run/checkpoints");
    refused("out", (struct plait_export){0}, PLAIT_CHECKPOINT, "as they are");
    folder_remove("run/model.safetensors");
    refused("out", (struct plait_export){0}, PLAIT_CHECKPOINT, "has no checkpoint");
    CHECK(nothing_beside("out"));
    folder_remove("run");
}

/* Numbers that f16 has not are no silent infinities. */
static void beyond_a_type(void)
{
    train("run", 0, 0, (const char *const[]){"optim.lr=100", "optim.decay=100", "model.init_std=10",
                                               "train.steps=1", "train.save_every=1", NULL});
    refused("out", (struct plait_export){.dtype = "f16"}, PLAIT_CHECKPOINT, "no number in f16");
    CHECK(nothing_beside("out"));
    CHECK_INT(export("run", "out", (struct plait_export){.dtype = "bf16"}), 0);
    folder_remove("out");
    folder_remove("run");
}

static void stops_when_asked(void)
{
    train("run", 0, 0, NULL);
    plait_stop(2);
    refused("out", (struct plait_export){0}, PLAIT_STOPPED, "stopped by SIGINT");
    plait_stop(0);
    CHECK(nothing_beside("out"));
    folder_remove("run");
}

static const struct test_case cases[] = {
    {"of the last checkpoint", of_the_last_checkpoint},
    {"of one before", of_one_before},
    {"in other types and files", in_other_types_and_files},
    {"places", places},
    {"what is wrong is said", what_is_wrong_is_said},
    {"beyond a type", beyond_a_type},
    {"stops when asked", stops_when_asked},
};
TEST_MAIN(cases)
