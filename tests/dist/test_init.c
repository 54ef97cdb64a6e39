/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs that begin with weights (model.init): folders that transformers saved, with the loss and the
 * norm that PyTorch has for them (loss.txt of tests/oracle/folders); a run's files and its
 * checkpoints, saved on another layout; each on several layouts, against one rank. What is not the
 * model's or the data's is refused by key, by check and train alike.
 */
#include "folder.h"
#include "layout.h"

#include "base/fs.h"
#include "base/mem.h"
#include "ckpt/weights.h"
#include "data/data_file.h"
#include "train/rank.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define ORACLE PLAIT_SOURCE_DIR "/tests/oracle/folders/"
enum { SEQ = 20, BATCH = 4, WORDS = 24, STEPS = 3, ROW = 1200 };

static const char *const folders[] = {"gpt-tied-f32", "gpt-untied-bf16", "gpt-shards-f16",
                                      "llama-tied-bf16", "llama-theta", "llama-shards-f16"};
enum { FOLDERS = sizeof folders / sizeof *folders };

/* ---- gradients, held against PyTorch and against one rank ---- */

struct expected { int32_t id[SEQ + 1]; double loss, norm; };

static void read_expected(const char *folder, struct expected *e)
{
    char path[FOLDER_PATH];
    int n = 0;
    snprintf(path, sizeof path, ORACLE "%s/loss.txt", folder);
    FILE *f = fopen(path, "r");
    while (f && n <= SEQ && fscanf(f, "%d", &e->id[n]) == 1)
        n++;
    CHECK(f && n == SEQ + 1 && fscanf(f, "%lf %lf", &e->loss, &e->norm) == 2 && fclose(f) == 0);
}

static struct weights weights; /* of the case; read by all ranks */
static struct model model;

static enum err fill(struct exec *x, int rank)
{
    struct setup s = {.model = model};
    struct rank k = {.s = &s, .me = rank, .x = x, .threads = 2};
    return load_stores(&k, &weights, false);
}

struct cut { int tp, pp, dp, zero; bool sp; const char *schedule; };
static const struct cut cuts[] = {
    {1, 1, 1, 0, false, "naive"}, {2, 1, 1, 0, false, "1f1b"},  {2, 2, 1, 0, true, "1f1b"},
    {1, 2, 1, 0, false, "gpipe"}, {1, 1, 2, 1, false, "1f1b"},  {4, 1, 1, 0, false, "1f1b"},
    {2, 1, 2, 1, true, "1f1b"},   {1, 2, 2, 1, false, "1f1b"},  {1, 2, 1, 0, false, "chimera"},
};
enum { CUTS = sizeof cuts / sizeof *cuts };

static void gradients_of(const char *folder)
{
    struct expected want;
    struct layout_result one, got;
    struct hf_config c;
    int32_t tokens[BATCH * SEQ], targets[BATCH * SEQ];
    char path[FOLDER_PATH];
    const char *worst = "";
    read_expected(folder, &want);
    snprintf(path, sizeof path, ORACLE "%s/config.json", folder);
    CHECK_OK(hf_config_read(path, &c));
    model = c.model;
    model.dropout = 0;
    snprintf(path, sizeof path, ORACLE "%s", folder);
    CHECK_OK(weights_open(&weights, path));
    for (int i = 0; i < BATCH * SEQ; i++) {
        tokens[i] = want.id[i % SEQ];
        targets[i] = want.id[i % SEQ + 1];
    }
    for (int i = 0; i < CUTS; i++) {
        const struct cut *k = &cuts[i];
        struct layout l = {.model = model, .tp = k->tp, .pp = k->pp, .dp = k->dp, .zero = k->zero,
                           .sp = k->sp, .schedule = k->schedule, .batch = BATCH, .microbatch = 1,
                           .dev = DEV_REF, .ct = DT_F64, .steps = 1, .filled = fill,
                           .tokens = tokens, .targets = targets};
        enum err err = layout_run(&l, i ? &got : &one);
        if (!test_check(err == ERR_OK, __FILE__, __LINE__, "%s, cut %d: %s", folder, i, err_text()))
            continue;
        if (i == 0) {
            test_check(fabs(one.loss - want.loss) <= 2e-6 * want.loss &&
                           fabs(one.norm - want.norm) <= 2e-6 * want.norm,
                       __FILE__, __LINE__, "%s: loss %.9g, norm %.9g; PyTorch has %.9g, %.9g",
                       folder, one.loss, one.norm, want.loss, want.norm);
            continue;
        }
        double far = layout_difference(&one, &got, false, &worst);
        test_check(fabs(got.loss - one.loss) <= 1e-12 * one.loss && far <= 1e-10, __FILE__,
                   __LINE__, "%s, cut %d: loss %.17g, not %.17g; gradient of %s differs by %g",
                   folder, i, got.loss, one.loss, worst, far);
        layout_result_free(&got);
    }
    layout_result_free(&one);
    weights_close(&weights);
}

static void gradients(void)
{
    for (int i = 0; i < FOLDERS; i++)
        gradients_of(folders[i]);
}

/* ---- runs ---- */

/* A token file of ids of `vocab`, under a tokenizer's name. */
static void put_tokens(const char *name, const char *tokenizer, int64_t vocab, int n)
{
    char path[FOLDER_PATH];
    uint8_t bytes[DATA_HEADER + 2 * 4096];
    struct data_set h = {.token_bytes = 2, .vocab = vocab, .count = n};
    for (int i = 0; i < n; i++) {
        int64_t id = (7 * i * i + 3 * i + i / 9) % vocab;
        bytes[DATA_HEADER + 2 * i] = (uint8_t)id;
        bytes[DATA_HEADER + 2 * i + 1] = (uint8_t)(id >> 8);
    }
    snprintf(h.tokenizer, sizeof h.tokenizer, "%s", tokenizer);
    h.hash = data_hash(bytes + DATA_HEADER, 2 * n);
    data_header_put(&h, bytes);
    folder_path(name, path);
    CHECK_OK(fs_put(path, bytes, DATA_HEADER + 2 * n));
}

struct seen { struct folder_seen run; double norm[STEPS]; int n; int64_t stop_behind; };

static void on_step(void *arg, const struct plait_step *s)
{
    struct seen *seen = arg;
    folder_on_step(&seen->run, s);
    if (seen->n < STEPS)
        seen->norm[seen->n++] = s->grad_norm;
    if (s->step == seen->stop_behind)
        plait_stop(1);
}

static void on_start(void *arg, const char *table)
{
    struct seen *seen = arg;
    snprintf(seen->run.table, sizeof seen->run.table, "%s", table);
}

static const char *const always[] = {"model.seq=20", "train.batch=4", "train.threads=1",
                                     "train.steps=3", "optim.lr=0.01", "train.save_every=0"};

static struct plait_config *config(const char *run, const char *init, const char *const *more)
{
    char word[FOLDER_PATH + 16];
    struct plait_config *c = folder_config(run, "tokens.bin");
    folder_set(c, always, sizeof always / sizeof *always);
    snprintf(word, sizeof word, "model.init=%s", init);
    folder_set(c, (const char *[]){word, NULL}, 2);
    if (more)
        folder_set(c, more, WORDS);
    return c;
}

static int train(struct plait_config *c, struct seen *seen)
{
    int64_t stop = seen->stop_behind;
    *seen = (struct seen){.stop_behind = stop};
    int code = plait_train(c, &(struct plait_train){.size = sizeof(struct plait_train),
                                                    .on_step = on_step, .on_start = on_start,
                                                    .arg = seen});
    plait_stop(0);
    plait_config_free(c);
    return code;
}

static void copy(const char *from, const char *to)
{
    char a[FOLDER_PATH], b[FOLDER_PATH], command[3 * FOLDER_PATH];
    folder_path(from, a);
    folder_path(to, b);
    snprintf(command, sizeof command, "cp -r '%s' '%s'", a, b);
    CHECK(system(command) == 0);
}

/* A run of 6 steps of a model with an odd vocabulary, with a checkpoint behind the last, in f32:
 * its numbers are the same in all that it leaves. */
static void make_source(const char *kind, const char *tied)
{
    char first[64], second[64];
    struct seen seen = {.n = 0};
    put_tokens("tokens.bin", "bytes", 257, 1500);
    folder_remove("source");
    struct plait_config *c = folder_config("source", "tokens.bin");
    snprintf(first, sizeof first, "model.kind=%s", kind);
    snprintf(second, sizeof second, "model.tied=%s", tied);
    folder_set(c, always, sizeof always / sizeof *always);
    folder_set(c, (const char *[]){first, second, "model.layers=4", "model.hidden=24",
                                   "model.heads=4", "model.norm_eps=2e-4", "train.steps=6",
                                   "train.save_every=6", "parallel.tp=2", "parallel.dp=2",
                                   "parallel.zero=1", "optim.lr=0.02", "model.dropout=0.1", NULL},
               WORDS);
    test_check(train(c, &seen) == 0, __FILE__, __LINE__, "%s", plait_error());
    /* what a folder of transformers' has */
    char path[FOLDER_PATH], from[FOLDER_PATH];
    folder_remove("foreign");
    folder_path("foreign", path);
    CHECK(mkdir(path, 0777) == 0);
    static const char *const file[] = {"config.json", "model.safetensors"};
    for (int i = 0; i < 2; i++) {
        struct fs_map m;
        folder_path_in("source", file[i], from);
        folder_path_in("foreign", file[i], path);
        CHECK_OK(fs_map_open(&m, from, ERR_DATA));
        CHECK_OK(fs_put(path, m.data, m.size));
        fs_map_close(&m);
    }
}

static const char *const layouts[][WORDS] = {
    {"parallel.tp=1"},
    {"parallel.tp=2"},
    {"parallel.tp=2", "parallel.sp=true", "parallel.pp=2"},
    {"parallel.pp=2", "parallel.schedule=interleaved", "parallel.chunks=2"},
    {"parallel.dp=2", "parallel.zero=1"},
    {"parallel.dp=4"},
    {"parallel.pp=2", "parallel.schedule=zb-v", "parallel.dp=2", "parallel.zero=1"},
    {"parallel.tp=4"},
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

static bool near(double a, double b, double bound)
{
    return fabs(a - b) <= bound * fmax(fabs(a), fabs(b));
}

static void check_near(const struct seen *a, const struct seen *b, double bound, const char *what)
{
    int steps = bound > 1e-9 ? 1 : STEPS; /* Adam makes a step of the rounding of a gradient */
    CHECK_INT(a->n, STEPS);
    for (int i = 0; i < steps && a->n == STEPS; i++)
        test_check(near(a->run.loss[i], b->run.loss[i], bound) &&
                       near(a->norm[i], b->norm[i], bound),
                   __FILE__, __LINE__, "%s: step %d has loss %.17g, norm %.17g, not %.17g, %.17g",
                   what, i + 1, a->run.loss[i], a->norm[i], b->run.loss[i], b->norm[i]);
}

/* One start: from a source, on a layout and a device. */
static void begin(const char *source, const char *const *layout, const char *device,
                  struct seen *out)
{
    char from[FOLDER_PATH];
    folder_path(source, from);
    struct plait_config *c = config("run", from, layout);
    folder_set(c, (const char *[]){device, NULL}, 2);
    *out = (struct seen){.n = 0};
    int code = train(c, out);
    test_check(code == 0, __FILE__, __LINE__, "%s, %s: %s", source, layout[0], plait_error());
    CHECK(strstr(out->run.table, "init    ") != NULL);
    folder_remove("run");
}

/* Files and checkpoint have the same numbers, moments are not taken, and any layout reads them. */
/* The first loss of a run of make_source's model that begins with drawn weights. */
static double drawn_loss(const char *kind, const char *tied)
{
    char first[64], second[64];
    struct seen drawn = {.n = 0};
    snprintf(first, sizeof first, "model.kind=%s", kind);
    snprintf(second, sizeof second, "model.tied=%s", tied);
    struct plait_config *c = config("run", "", (const char *[]){
        first, second, "model.layers=4", "model.hidden=24", "model.heads=4", "model.norm_eps=2e-4",
        "train.device=ref", NULL});
    CHECK_INT(train(c, &drawn), 0);
    folder_remove("run");
    return drawn.run.loss[0];
}

static void sources(void)
{
    static const char *const kind[][2] = {{"gpt", "true"}, {"llama", "false"}};
    static const char *const source[] = {"foreign", "source", "source/checkpoints/step-6"};
    for (int k = 0; k < 2; k++) {
        struct seen judge, got;
        make_source(kind[k][0], kind[k][1]);
        begin("foreign", layouts[0], "train.device=ref", &judge);
        CHECK(fabs(judge.run.loss[0] - drawn_loss(kind[k][0], kind[k][1])) > 1e-4);
        for (int i = k; i < LAYOUTS; i += 1 + k) {
            char what[128];
            int s = i % 3;
            snprintf(what, sizeof what, "%s from %s, %s", kind[k][0], source[s], layouts[i][0]);
            begin(source[s], layouts[i], "train.device=ref", &got);
            check_near(&got, &judge, 1e-10, what);
            begin(source[(s + 1) % 3], layouts[i], "train.device=cpu", &got);
            check_near(&got, &judge, 2e-5, what);
        }
        begin("source", layouts[2], "train.dtype=bf16", &got);
        check_near(&got, &judge, 3e-2, "bf16");
    }
}

/* ---- keys ---- */

/* check and train say the same; its code. */
static int refused(struct plait_config *c, char message[ROW])
{
    struct seen seen = {.n = 0};
    char *report = NULL;
    int code = plait_config_check(c, 0, &report);
    snprintf(message, ROW, "%s", plait_error());
    plait_free(report);
    int same = train(c, &seen);
    test_check(code == same && strcmp(message, plait_error()) == 0, __FILE__, __LINE__,
               "check: %d: %s; train: %d: %s", code, message, same, plait_error());
    CHECK_INT(seen.n, 0);
    return code;
}

static void other_models(void)
{
    static const char *const other[][3] = {
        {"model.kind=llama", "model.kind gpt where llama is given"},
        {"model.layers=5", "model.layers 4 where 5 is given"},
        {"model.hidden=32", "model.hidden 24 where 32 is given"},
        {"model.heads=2", "model.heads 4 where 2 is given"},
        {"model.kv_heads=2", "model.kv_heads 4 where 2 is given"},
        {"model.head_dim=3", "model.head_dim 6 where 3 is given"},
        {"model.ffn=97", "model.ffn 96 where 97 is given"},
        {"model.vocab=300", "model.vocab 257 where 300 is given"},
        {"model.seq=21", "model.seq 20 where 21 is given"},
        {"model.tied=false", "model.tied true where false is given"},
        {"model.norm_eps=1e-5", "model.norm_eps 0.0002 where 1e-05 is given"}, /* the default */
    };
    static const char *const source[] = {"foreign", "source", "source/checkpoints/step-6"};
    char from[FOLDER_PATH], message[ROW];
    make_source("gpt", "true");
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
        folder_path(source[i % 3], from);
        struct plait_config *c = config("run", from, (const char *[]){other[i][0], NULL});
        int code = refused(c, message);
        test_check(code == PLAIT_CONFIG && strstr(message, "model.init: ") &&
                       strstr(message, other[i][1]),
                   __FILE__, __LINE__, "%s: %d: %s", other[i][0], code, message);
    }
}

static void check_key(struct plait_config *c, const char *key, const char *want)
{
    char word[64], *page = NULL;
    snprintf(word, sizeof word, "  %s: %s\n", key, want);
    CHECK_INT(plait_config_print(c, &page), 0);
    test_check(page && strstr(page, word), __FILE__, __LINE__, "no %s in %s", word, page);
    plait_free(page);
}

/* What is left out is the folder's, but for what says nothing of its weights. */
static void left_out(void)
{
    char from[FOLDER_PATH];
    make_source("llama", "false");
    folder_path("foreign", from);
    struct plait_config *c = config("run", from, (const char *[]){"model.seq=7", "model.ffn=0",
                                                                  NULL});
    check_key(c, "layers", "4");
    check_key(c, "hidden", "24");
    check_key(c, "ffn", "64");
    check_key(c, "vocab", "257");
    check_key(c, "norm_eps", "0.0002");
    check_key(c, "seq", "7");
    check_key(c, "dropout", "0");
    plait_config_free(c);
    c = config("run", from, (const char *[]){"model.dropout=0.3", "model.init_std=1",
                                             "model.rope_theta=10000", "model.norm_eps=0.00020",
                                             NULL}); /* the last two in other words */
    struct seen seen = {.n = 0};
    CHECK_INT(train(c, &seen), 0);
    CHECK_INT(seen.n, STEPS);
    CHECK(strstr(seen.run.table, "model.init_std 1 has no effect") != NULL);
    folder_remove("run");
}

static void flip(const char *path, const char *behind, int more)
{
    struct fs_map m;
    CHECK_OK(fs_map_open(&m, path, ERR_DATA));
    const char *at = behind ? memmem(m.data, (size_t)m.size, behind, strlen(behind)) : NULL;
    int64_t i = behind ? (at ? at - (const char *)m.data : 0) + more : m.size - more;
    uint8_t byte = m.data[i];
    fs_map_close(&m);
    byte = byte == '1' ? '2' : '1';
    int fd = open(path, O_RDWR);
    CHECK(fd >= 0 && pwrite(fd, &byte, 1, (off_t)i) == 1 && close(fd) == 0);
}

static void tokenizers(void)
{
    static const char *const source[] = {"foreign", "source", "source/checkpoints/step-6"};
    char from[FOLDER_PATH], path[FOLDER_PATH], message[ROW];
    struct seen seen = {.n = 0};
    make_source("gpt", "true");
    put_tokens("tokens.bin", "other", 257, 1500);
    for (int i = 0; i < 3; i++) {
        folder_path(source[i], from);
        CHECK_INT(refused(config("run", from, NULL), message), PLAIT_TOKEN);
        CHECK(strstr(message, "know the ids of tokenizer bytes, and the data have those of other"));
    }
    CHECK_INT(train(config("run", ORACLE "gpt-tied-f32", (const char *[]){NULL}), &seen),
              PLAIT_TOKEN); /* ids beyond its vocabulary */
    put_tokens("tokens.bin", "bytes", 257, 1500);
    folder_path("foreign", from);
    folder_path_in("foreign", "model.safetensors", path);
    flip(path, "\"plait.tokenizer_hash\":\"", 24);
    CHECK_INT(refused(config("run", from, NULL), message), PLAIT_TOKEN);
    CHECK(strstr(message, "are of a tokenizer bytes with hash") != NULL);
}

/* ---- going on ---- */

/* A stop and a resume later the folder may be gone, and the bits are those of no stop. */
static void goes_on_without_it(void)
{
    static const char *const saved[] = {"train.steps=8", "train.save_every=3", "run.resume=auto",
                                        "parallel.tp=2", NULL};
    struct seen whole = {.n = 0}, seen = {.stop_behind = 4};
    char from[FOLDER_PATH];
    make_source("gpt", "false");
    folder_path("foreign", from);
    CHECK_INT(train(config("judge", from, saved), &whole), 0);
    CHECK(strstr(whole.run.table, "foreign/model.safetensors") != NULL);
    CHECK_INT(train(config("run", from, saved), &seen), PLAIT_STOPPED);
    folder_remove("foreign");
    seen.stop_behind = 0;
    int code = train(config("run", from, saved), &seen);
    test_check(code == 0, __FILE__, __LINE__, "%s", plait_error());
    CHECK(strstr(seen.run.table, "is not read again") != NULL);
    CHECK(seen.run.losses > 0 && seen.run.losses < 8);
    for (int i = 0; i < seen.run.losses; i++)
        CHECK(seen.run.loss[i] == whole.run.loss[8 - seen.run.losses + i]);
    CHECK(folder_same_in("run", "judge", "model.safetensors"));
    folder_remove("run");
    CHECK_INT(train(config("run", from, saved), &seen), PLAIT_CONFIG); /* now it is needed */
    folder_remove("run");
    folder_remove("judge");
}

/* ---- what cannot be begun with ---- */

/* A number of the first shard that is of a weight, for moments are not read. */
static void flip_weight(const char *checkpoint)
{
    char path[FOLDER_PATH];
    struct safet_file f;
    int i = 0;
    folder_path_in(checkpoint, "rank-00000.safetensors", path);
    CHECK_OK(safet_open(&f, path));
    while (i < f.n - 1 && strncmp(f.entry[i].name, "exp_avg", 7) == 0)
        i++;
    CHECK(strncmp(f.entry[i].name, "exp_avg", 7) != 0);
    int at = (int)(f.map.size - (f.data - f.map.data + f.entry[i].begin));
    safet_close(&f);
    flip(path, NULL, at);
}

static void damaged(void)
{
    char from[FOLDER_PATH], path[FOLDER_PATH], message[ROW];
    struct seen seen = {.n = 0};
    struct stat st;
    make_source("gpt", "true");
    copy("foreign", "other");
    folder_path("other", from);
    folder_path_in("other", "model.safetensors", path);
    CHECK(stat(path, &st) == 0 && truncate(path, st.st_size - 1) == 0);
    CHECK_INT(refused(config("run", from, NULL), message), PLAIT_CHECKPOINT);
    CHECK(strstr(message, "model.init: ") && strstr(message, "model.safetensors"));
    CHECK(unlink(path) == 0);
    CHECK_INT(refused(config("run", from, NULL), message), PLAIT_CHECKPOINT);
    folder_remove("other");
    copy("foreign", "other");
    flip(path, NULL, 1); /* the top byte of the last number: still one */
    CHECK_INT(train(config("run", from, NULL), &seen), 0);
    folder_remove("run");
    CHECK(stat(path, &st) == 0);
    int fd = open(path, O_RDWR);
    CHECK(fd >= 0 && pwrite(fd, "\xff\xff\xff\xff", 4, st.st_size - 4) == 4 && close(fd) == 0);
    CHECK_INT(train(config("run", from, NULL), &seen), PLAIT_CHECKPOINT);
    CHECK(strstr(plait_error(), "is nan, which is no number") != NULL);
    CHECK_INT(refused(config("run", from, (const char *[]){"train.device=null", NULL}), message),
              PLAIT_CONFIG);
    CHECK(strstr(message, "train.device is null") != NULL);
    folder_path("nowhere", from);
    CHECK_INT(refused(config("run", from, NULL), message), PLAIT_CONFIG);
    folder_remove("other");
    folder_path("source", from);
    flip_weight("source/checkpoints/step-6");
    for (int i = 0; i < LAYOUTS; i += 2) {
        CHECK_INT(train(config("run", from, layouts[i]), &seen), PLAIT_CHECKPOINT);
        CHECK(strstr(plait_error(), "rank-00000.safetensors") != NULL);
        CHECK_INT(seen.n, 0);
        folder_remove("run");
    }
    folder_path_in("source", "checkpoints/step-6/index.json", path);
    flip(path, "\"step\"", 8);
    CHECK_INT(refused(config("run", from, NULL), message), PLAIT_CHECKPOINT);
    CHECK(strstr(message, "model.init: ") != NULL);
}

static const struct test_case cases[] = {
    {"gradients", gradients},
    {"sources", sources},
    {"other models", other_models},
    {"left out", left_out},
    {"tokenizers", tokenizers},
    {"goes on without it", goes_on_without_it},
    {"damaged", damaged},
};
TEST_MAIN(cases)
