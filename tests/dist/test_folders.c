/* SPDX-License-Identifier: Apache-2.0
 *
 * Folders that transformers saved (tests/oracle/folders, made by hf_judge.py), on several layouts:
 * the ids and the logits that transformers has for them, and damaged copies of them.
 */
#include "folder.h"

#include "base/fs.h"
#include "base/mem.h"
#include "folder/model_folder.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#define ORACLE PLAIT_SOURCE_DIR "/tests/oracle/folders/"
enum { IDS = 32, ROWS = 8, WIDE = 128 };

static const char *const folders[] = {"gpt-tied-f32", "gpt-untied-bf16", "gpt-shards-f16",
                                      "llama-tied-bf16", "llama-theta", "llama-shards-f16"};
enum { FOLDERS = sizeof folders / sizeof *folders };

/* What transformers says of a folder. */
struct expected { int32_t prompt[IDS], ids[IDS]; double row[ROWS][WIDE]; int prompts, n, rows, v; };

/* The whole numbers or reals of one line; how many. */
static int read_line(FILE *f, double *out, int most)
{
    int n = 0;
    for (int c = ' '; f && c != '\n' && c != EOF && n < most;) {
        n += fscanf(f, "%lf", &out[n]) == 1;
        c = fgetc(f);
    }
    return n;
}

static void read_logits(FILE *f, struct expected *e)
{
    for (e->rows = 0; e->rows < ROWS; e->rows++) {
        int n = read_line(f, e->row[e->rows], WIDE);
        if (n == 0)
            break;
        e->v = n;
    }
}

static void read_expected(const char *folder, struct expected *e)
{
    char path[FOLDER_PATH];
    double line[IDS];
    snprintf(path, sizeof path, ORACLE "%s/expected.txt", folder);
    FILE *f = fopen(path, "r");
    *e = (struct expected){.prompts = read_line(f, line, IDS)};
    for (int i = 0; i < e->prompts; i++)
        e->prompt[i] = (int32_t)line[i];
    e->n = read_line(f, line, IDS);
    for (int i = 0; i < e->n; i++)
        e->ids[i] = (int32_t)line[i];
    read_logits(f, e);
    CHECK(f && fclose(f) == 0);
    test_check(e->rows > 3 && e->n == e->prompts + e->rows, __FILE__, __LINE__, "%s", path);
}

struct got { int32_t id[IDS]; int n, notes; };

static void on_id(void *arg, int32_t id)
{
    struct got *g = arg;
    if (g->n < IDS)
        g->id[g->n++] = id;
}

static void on_count(void *arg, int32_t id)
{
    *(int *)arg += id >= 0;
}

static void on_note(void *arg, const char *note)
{
    struct got *g = arg;
    g->notes += note[0] != '\0';
}

static int generate(const char *path, const struct expected *e, const char *const *set,
                    const char *logits, struct got *got)
{
    int sets = 0;
    while (set && set[sets])
        sets++;
    *got = (struct got){.n = 0};
    return plait_generate(&(struct plait_generate){
        .size = sizeof(struct plait_generate), .run = path, .tokens = e->rows, .set = set,
        .sets = sets, .ids = e->prompt, .id_count = e->prompts, .ignore_eot = 1, .on_id = on_id,
        .on_note = on_note, .arg = got, .logits = logits});
}

static void compare(const char *folder, const char *const *set, double bound)
{
    struct expected want, mine = {0};
    struct got got;
    char path[FOLDER_PATH], logits[FOLDER_PATH];
    double most = 0, far = 0;
    read_expected(folder, &want);
    snprintf(path, sizeof path, ORACLE "%s", folder);
    folder_path("logits", logits);
    int code = generate(path, &want, set, logits, &got);
    test_check(code == 0 && got.notes == 0, __FILE__, __LINE__, "%s: %s", folder, plait_error());
    FILE *f = fopen(logits, "r");
    read_logits(f, &mine);
    CHECK(f && fclose(f) == 0);
    CHECK_INT(mine.rows, want.rows);
    CHECK_INT(mine.v, want.v);
    for (int i = 0; i < want.rows; i++)
        for (int j = 0; j < want.v; j++) {
            most = fmax(most, fabs(want.row[i][j]));
            far = fmax(far, fabs(want.row[i][j] - mine.row[i][j]));
        }
    test_check(far <= bound * most, __FILE__, __LINE__, "%s %s %s: logits differ by %g of %g",
               folder, set[0], set[1], far, most);
    test_check(got.n == want.n && memcmp(got.id, want.ids, (size_t)want.n * 4) == 0, __FILE__,
               __LINE__, "%s %s %s: other ids", folder, set[0], set[1]);
}

/* transformers makes its rotary angles and norms in f32, which bounds what ref can agree to. */
static void numbers_are_those_of_transformers(void)
{
    static const char *const layouts[][5] = {
        {"train.device=ref", "parallel.tp=1", NULL},
        {"train.device=ref", "parallel.tp=2", "parallel.sp=true", "parallel.pp=2", NULL},
        {"train.device=ref", "parallel.pp=2", NULL},
        {"train.device=cpu", "parallel.tp=2", "train.threads=1", NULL},
        {"train.device=cpu", "parallel.pp=2", "parallel.tp=4", "train.threads=1", NULL},
    };
    for (int i = 0; i < FOLDERS; i++)
        for (size_t k = 0; k < sizeof layouts / sizeof *layouts; k++)
            compare(folders[i], layouts[k], k < 3 ? 2e-6 : 2e-5);
}

/* The first row of logits behind these ids, in all their digits; how many ids were written. */
static int logits_behind(const char *folder, const char *const *set, const int32_t *ids, int n,
                         char row[WIDE * 32])
{
    char path[FOLDER_PATH], logits[FOLDER_PATH];
    struct got got = {.n = 0};
    snprintf(path, sizeof path, ORACLE "%s", folder);
    folder_path("row", logits);
    struct plait_generate a = {
        .size = sizeof a, .run = path, .set = set, .sets = 1, .ids = ids, .id_count = n,
        .tokens = 1, .ignore_eot = 1, .on_id = on_id, .arg = &got, .logits = logits};
    CHECK_INT(plait_generate(&a), 0);
    FILE *f = fopen(logits, "r");
    CHECK(f && fgets(row, WIDE * 32, f) && fclose(f) == 0);
    return got.n;
}

/* Most digits of a number in a line. */
static int digits_of(const char *row)
{
    int most = 0, n = 0;
    for (; *row; row++) {
        n = *row == ' ' ? 0 : n + (*row >= '0' && *row <= '9');
        most = n > most ? n : most;
    }
    return most;
}

/* What is longer than a model sees begins with the last it sees: the whole of that. */
static void the_window_is_the_last_of_the_text(void)
{
    enum { SEQ = 20, MORE = 5 };
    static char row[3][WIDE * 32];
    const char *ref = "train.device=ref", *cpu = "train.device=cpu";
    int32_t ids[SEQ + MORE];
    for (int i = 0; i < SEQ + MORE; i++)
        ids[i] = (i * i + 5 * i) % 60;
    for (int i = 0; i < FOLDERS; i++) {
        CHECK_INT(logits_behind(folders[i], &ref, ids, SEQ + MORE, row[0]), SEQ + MORE + 1);
        logits_behind(folders[i], &ref, ids + MORE, SEQ, row[1]);
        logits_behind(folders[i], &ref, ids + MORE + 1, SEQ - 1, row[2]);
        CHECK(strcmp(row[0], row[1]) == 0);
        CHECK(strcmp(row[0], row[2]) != 0);
        test_check(digits_of(row[0]) >= 17, __FILE__, __LINE__, "%s: %.60s", folders[i], row[0]);
    }
    logits_behind(folders[0], &cpu, ids, SEQ, row[0]);
    CHECK(digits_of(row[0]) >= 9 && digits_of(row[0]) < 15); /* zeros in front count */
}

/* 200 tokens where no number is asked for. */
static void two_hundred_by_itself(void)
{
    int all = 0;
    struct plait_generate a = {
        .size = sizeof a, .run = ORACLE "gpt-tied-f32", .ids = (int32_t[]){1, 2}, .id_count = 2,
        .ignore_eot = 1, .on_id = on_count, .arg = &all};
    CHECK_INT(plait_generate(&a), 0);
    CHECK_INT(all, 202);
}

/* ---- damage ---- */

static void copy_file(const char *folder, const char *name, const char *to)
{
    char path[FOLDER_PATH], out[FOLDER_PATH];
    struct fs_map m;
    snprintf(path, sizeof path, ORACLE "%s/%s", folder, name);
    folder_path_in(to, name, out);
    CHECK_OK(fs_map_open(&m, path, ERR_DATA));
    CHECK_OK(fs_put(out, m.data, m.size));
    fs_map_close(&m);
}

static int shards_of(const char *folder)
{
    char path[FOLDER_PATH];
    for (int n = 2; n < 100; n++) {
        snprintf(path, sizeof path, ORACLE "%s/model-00001-of-%05d.safetensors", folder, n);
        if (fs_exists(path))
            return n;
    }
    return 0;
}

enum damage { GONE, CUT, ANOTHER, DAMAGES };

/* In the copy, shard i of n damaged: its name is in the message. */
static void damage_shard(const char *folder, int i, int n, enum damage how)
{
    char name[64], from[FOLDER_PATH], path[FOLDER_PATH], run[FOLDER_PATH];
    struct expected want;
    struct got got;
    struct fs_map m;
    snprintf(name, sizeof name, "model-%05d-of-%05d.safetensors", i, n);
    snprintf(from, sizeof from, ORACLE "%s/model-%05d-of-%05d.safetensors", folder,
             how == ANOTHER ? i % n + 1 : i, n);
    folder_path("shards", run);
    folder_path_in("shards", name, path);
    read_expected(folder, &want);
    CHECK_OK(fs_map_open(&m, from, ERR_DATA));
    CHECK(unlink(path) == 0);
    if (how != GONE)
        CHECK_OK(fs_put(path, m.data, how == CUT ? m.size - 1 : m.size));
    fs_map_close(&m);
    int code = generate(run, &want, NULL, NULL, &got);
    test_check(code == PLAIT_CHECKPOINT && strstr(plait_error(), name), __FILE__, __LINE__,
               "%s, %d: code %d: %s", name, (int)how, code, plait_error());
    copy_file(folder, name, "shards");
    CHECK_INT(generate(run, &want, NULL, NULL, &got), 0);
}

/* Every shard gone, cut by a byte, or another's. */
static void shards_are_held_against_the_index(void)
{
    static const char folder[] = "gpt-shards-f16";
    char name[64], run[FOLDER_PATH];
    int n = shards_of(folder);
    CHECK(n > 2);
    folder_path("shards", run);
    CHECK_OK(fs_make_dirs(run));
    copy_file(folder, "config.json", "shards");
    copy_file(folder, "model.safetensors.index.json", "shards");
    for (int i = 1; i <= n; i++) {
        snprintf(name, sizeof name, "model-%05d-of-%05d.safetensors", i, n);
        copy_file(folder, name, "shards");
    }
    for (int i = 1; i <= n; i++)
        for (int how = 0; how < DAMAGES; how++)
            damage_shard(folder, i, n, (enum damage)how);
}

static int open_call(void *arg)
{
    struct model_folder f;
    (void)arg;
    return (int)model_folder_open(&f, ORACLE "gpt-tied-f32");
}

static void no_memory(void)
{
    int without = 0;
    for (int k = 1; k < 12; k++)
        without += test_without_memory(k, open_call, NULL) == ERR_MEMORY;
    CHECK(without >= 1);
}

static const struct test_case cases[] = {
    {"numbers are those of transformers", numbers_are_those_of_transformers},
    {"the window is the last of the text", the_window_is_the_last_of_the_text},
    {"two hundred by itself", two_hundred_by_itself},
    {"shards are held against the index", shards_are_held_against_the_index},
    {"no memory", no_memory},
};
TEST_MAIN(cases)
