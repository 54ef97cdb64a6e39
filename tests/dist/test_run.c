/* SPDX-License-Identifier: Apache-2.0
 *
 * Whole runs through the public interface: text to token file to weights to text, on several
 * layouts. Losses agree with the one-rank run, the weights on disk too, generation writes the same
 * text on any layout, and whatever is wrong with a run's surroundings is one error that leaves
 * nothing behind.
 */
#include "folder.h"

#include "base/fs.h"
#include "base/mem.h"
#include "ckpt/ckpt.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *text_file(void)
{
    static char path[FOLDER_PATH];
    folder_path("text.txt", path);
    if (fs_exists(path))
        return path;
    FILE *f = fopen(path, "w");
    for (int i = 0; f && i < 400; i++)
        fprintf(f, "%d braids of %d strands, and a strand of %d.\n", i, i * i % 17, i % 5);
    if (f)
        fclose(f);
    return path;
}

static const char *token_file(void)
{
    static char path[FOLDER_PATH];
    folder_prepare(text_file(), "tokens.bin");
    folder_tokens("valid.bin", "a braid of many strands, and one of a few strands\n", 49);
    folder_path("tokens.bin", path);
    return path;
}

static struct plait_config *config_of(const char *run, const char *const *set, int sets)
{
    static const char *const base[] = {
        "model.kind=llama", "model.layers=3", "model.hidden=32", "model.heads=4",
        "model.kv_heads=2", "model.ffn=64", "model.seq=16", "model.dropout=0.1", "train.steps=4",
        "train.batch=6", "train.valid_batches=3", "parallel.microbatch=2", "optim.lr=0.01",
        "optim.lr_min=0.001", "optim.warmup=1", "train.dtype=f32", "train.device=ref"};
    (void)token_file();
    struct plait_config *c = folder_config(run, "tokens.bin");
    folder_set_file(c, "data.valid", "valid.bin");
    folder_set(c, base, sizeof base / sizeof *base);
    folder_set(c, set, sets);
    return c;
}

static int train(const char *run, const char *const *set, int sets, struct folder_seen *seen)
{
    return folder_train(config_of(run, set, sets), seen);
}

/* ---- layouts ---- */

struct split { const char *set[6]; };

static const struct split splits[] = {
    {{"parallel.tp=2", NULL}},
    {{"parallel.pp=3", "parallel.schedule=1f1b", "parallel.microbatch=1", NULL}},
    {{"parallel.dp=2", "parallel.microbatch=2", NULL}},
    {{"parallel.dp=3", "parallel.zero=1", NULL}},
    {{"parallel.dp=2", "parallel.zero=1", "parallel.pp=3", "parallel.microbatch=1", NULL}},
    {{"parallel.dp=3", "parallel.zero=1", "parallel.pp=2", "parallel.schedule=chimera",
      "parallel.microbatch=1", NULL}},
    {{"parallel.tp=2", "parallel.sp=true", "parallel.pp=2", "parallel.schedule=gpipe", NULL}},
    {{"parallel.tp=4", "parallel.pp=2", "parallel.microbatch=4", NULL}},
    {{"parallel.tp=2", "parallel.pp=2", "parallel.dp=2", "parallel.microbatch=1", NULL}},
    {{"parallel.pp=2", "parallel.schedule=dualpipe", "parallel.microbatch=1", NULL}},
    {{"parallel.pp=2", "parallel.schedule=chimera", "parallel.dp=3", "parallel.tp=2",
      "parallel.microbatch=1", NULL}},
};
enum { SPLITS = sizeof splits / sizeof *splits };

static int set_count(const struct split *s)
{
    int n = 0;
    while (n < 6 && s->set[n])
        n++;
    return n;
}

static void compare_weights(const char *one, const char *other, double bound)
{
    struct safet_file a, b;
    char pa[FOLDER_PATH], pb[FOLDER_PATH];
    folder_path_in(one, "model.safetensors", pa);
    folder_path_in(other, "model.safetensors", pb);
    CHECK_OK(safet_open(&a, pa));
    CHECK_OK(safet_open(&b, pb));
    CHECK_INT(a.n, b.n);
    for (int i = 0; i < a.n && i < b.n; i++) {
        const struct safet_entry *e = &a.entry[i], *f = safet_find(b.entry, b.n, e->name);
        double far = 0;
        if (!CHECK(f && f->end - f->begin == e->end - e->begin))
            continue;
        for (int64_t at = 0; at < e->end - e->begin; at += 4) {
            float x, y;
            memcpy(&x, a.data + e->begin + at, 4);
            memcpy(&y, b.data + f->begin + at, 4);
            far = fmax(far, fabs((double)x - (double)y));
        }
        test_check(far <= bound, __FILE__, __LINE__, "%s and %s: %s differs by %g", one, other,
                   e->name, far);
    }
    safet_close(&a);
    safet_close(&b);
}

/* A run with the words of `common` and of `split` gives the losses and weights of run `one`. */
static void same_run(const char *run, const char *one, const struct folder_seen *want,
                     const struct split *common, const struct split *split)
{
    struct folder_seen got;
    const char *set[12];
    int n = set_count(common), more = set_count(split);
    memcpy(set, common->set, (size_t)n * sizeof *set);
    memcpy(set + n, split->set, (size_t)more * sizeof *set);
    test_check(train(run, set, n + more, &got) == 0, __FILE__, __LINE__, "%s: %s", run,
               plait_error());
    CHECK_INT(got.losses, want->losses);
    for (int s = 0; s < want->losses; s++)
        CHECK_NEAR(got.loss[s], want->loss[s], 1e-9 * want->loss[s]);
    CHECK_NEAR(got.valid, want->valid, 1e-9 * want->valid);
    compare_weights(one, run, 1e-6);
}

static void layouts(void)
{
    struct folder_seen want;
    static const struct split tied = {{"model.tied=true"}};
    CHECK_INT(train("one", tied.set, 1, &want), 0);
    CHECK_INT(want.losses, 4);
    CHECK(want.loss[3] < want.loss[0] && isfinite(want.valid));
    CHECK(strstr(want.table, "predicted") && strstr(want.table, "allocated"));
    for (int i = 0; i < SPLITS; i++) {
        char run[32];
        snprintf(run, sizeof run, "split%d", i);
        same_run(run, "one", &want, &tied, &splits[i]);
    }
}

/* ---- text ---- */

struct written { char text[1024]; int n; };

static void on_text(void *arg, const char *bytes, int n)
{
    struct written *w = arg;
    for (int i = 0; i < n && w->n < 1023; i++)
        w->text[w->n++] = bytes[i];
}

static int generate(const char *run, const char *const *set, int sets, struct written *w)
{
    char path[FOLDER_PATH];
    folder_path(run, path);
    *w = (struct written){.n = 0};
    return plait_generate(&(struct plait_generate){
        .size = sizeof(struct plait_generate), .run = path, .prompt = "7 braids", .tokens = 40,
        .temperature = 0.7, .top_k = 20, .seed = 3, .set = set, .sets = sets, .on_text = on_text,
        .arg = w});
}

static void text(void)
{
    struct folder_seen seen;
    struct written want, got;
    static const char *const one[] = {"parallel.tp=1", "parallel.pp=1", "parallel.sp=false"};
    static const char *const two[] = {"parallel.tp=2", "parallel.pp=3", "parallel.sp=true"};
    CHECK_INT(train("text", NULL, 0, &seen), 0);
    CHECK_INT(generate("text", one, 3, &want), 0);
    CHECK_INT(want.n, 48);
    CHECK(strncmp(want.text, "7 braids", 8) == 0);
    CHECK_INT(generate("text", two, 3, &got), 0);
    CHECK_STR(got.text, want.text);
    CHECK_INT(generate("nowhere", NULL, 0, &got), PLAIT_CONFIG);
    static const char *const huge[] = {"model.hidden=16777216", "model.head_dim=65536",
                                       "model.ffn=16777216", "model.layers=10000"};
    CHECK_INT(generate("text", huge, 4, &got), PLAIT_CONFIG);
    CHECK(strstr(plait_error(), "bytes are counted up to"));
}

/* The weights of a run once more, as elements of another type. */
static void rewrite(const char *run, enum safet_type type)
{
    struct safet_file f;
    struct safet_writer w = {0};
    char path[FOLDER_PATH];
    uint8_t *p;
    folder_path_in(run, "model.safetensors", path);
    CHECK_OK(safet_open(&f, path));
    int64_t unit = safet_type_size(type);
    struct safet_entry *e;
    CHECK_OK(mem_new(f.n, sizeof *e, "entries", &e));
    memcpy(e, f.entry, (size_t)f.n * sizeof *e);
    for (int i = 0; i < f.n; i++)
        e[i].type = type;
    CHECK_OK(safet_create(&w, path, false, e, f.n, NULL));
    for (int i = 0; i < f.n; i++) {
        const struct safet_entry *from = &f.entry[i];
        int64_t n = (from->end - from->begin) / safet_type_size(from->type);
        CHECK_OK(mem_new(n, (size_t)unit, "a tensor", &p));
        for (int64_t j = 0; j < n; j++) {
            float x;
            uint16_t h;
            const uint8_t *at = f.data + from->begin;
            memcpy(&x, at + (from->type == SAFET_F32 ? 4 * j : 0), 4);
            memcpy(&h, at + (from->type == SAFET_BF16 ? 2 * j : 0), 2);
            if (from->type == SAFET_BF16)
                x = bf16_to_f32(h);
            h = bf16_from_f32(x);
            double d = (double)x;
            const void *from_wide = type == SAFET_F64 ? (void *)&d : (void *)&x;
            memcpy(p + unit * j, type == SAFET_BF16 ? (void *)&h : from_wide, (size_t)unit);
        }
        CHECK_OK(safet_write(&w, p, n * unit));
        mem_free(p);
    }
    CHECK_OK(safet_commit(&w));
    safet_close(&f);
    mem_free(e);
}

/* ---- several stages a rank, backwards in halves ---- */

/* More microbatches than a rank has slots of a stage, the last of them smaller, and a last round of
 * validation that is smaller still. */
static const struct split schedules[] = {
    {{"parallel.schedule=interleaved", "parallel.pp=2", "parallel.chunks=2"}},
    {{"parallel.schedule=interleaved", "parallel.pp=2", "parallel.chunks=3", "parallel.group=5"}},
    {{"parallel.schedule=interleaved", "parallel.pp=1", "parallel.chunks=4"}},
    {{"parallel.schedule=interleaved", "parallel.pp=3", "parallel.chunks=2", "parallel.dp=2"}},
    {{"parallel.schedule=looped-bfs", "parallel.pp=2", "parallel.chunks=3"}},
    {{"parallel.schedule=looped-bfs", "parallel.pp=2", "parallel.chunks=2", "parallel.tp=2",
      "parallel.sp=true"}},
    {{"parallel.schedule=zb-h1", "parallel.pp=3"}},
    {{"parallel.schedule=zb-h2", "parallel.pp=4", "parallel.dp=2"}},
    {{"parallel.schedule=zb-2p", "parallel.pp=3"}},
    {{"parallel.schedule=zb-v", "parallel.pp=2"}}, /* chunks 2 of itself */
    {{"parallel.schedule=v-min", "parallel.pp=2", "parallel.chunks=2", "parallel.dp=2"}},
    {{"parallel.schedule=1f1b-v", "parallel.pp=3"}},
};

static void chunks(void)
{
    struct folder_seen want;
    struct written of_one, of_two;
    static const struct split common = {{"model.layers=6", "train.batch=22", "train.steps=2",
                                         "train.valid_batches=0", "model.tied=true",
                                         "model.hidden=16"}};
    static const char *const one[] = {"parallel.pp=1", "parallel.chunks=1"};
    static const char *const two[] = {"parallel.pp=2", "parallel.chunks=2"};
    CHECK_INT(train("whole", common.set, set_count(&common), &want), 0);
    for (size_t i = 0; i < sizeof schedules / sizeof *schedules; i++) {
        char run[32];
        snprintf(run, sizeof run, "chunks%d", (int)i);
        same_run(run, "whole", &want, &common, &schedules[i]);
    }
    CHECK_INT(generate("chunks0", one, 2, &of_one), 0);
    CHECK_INT(generate("chunks0", two, 2, &of_two), 0);
    CHECK_INT(of_one.n, 48);
    CHECK_STR(of_two.text, of_one.text);
}

/* Weights of every served type are read: bf16, and the same in f32 and f64, write one text. */
static void types(void)
{
    struct folder_seen seen;
    struct written bf16, wide;
    static const char *const steep[] = {"model.init_std=0.5", "model.kind=gpt", "model.kv_heads=0",
                                        "model.ffn=0"};
    CHECK_INT(train("types", steep, 4, &seen), 0);
    rewrite("types", SAFET_BF16);
    CHECK_INT(generate("types", NULL, 0, &bf16), 0);
    rewrite("types", SAFET_F32);
    CHECK_INT(generate("types", NULL, 0, &wide), 0);
    CHECK_STR(wide.text, bf16.text);
    rewrite("types", SAFET_F64);
    CHECK_INT(generate("types", NULL, 0, &wide), 0);
    CHECK_STR(wide.text, bf16.text);
}

static void not_generated(const char *run, const char *const *set, int sets, int code,
                          const char *part)
{
    struct written w;
    int got = generate(run, set, sets, &w);
    test_check(got == code && strstr(plait_error(), part) != NULL && w.n == 0, __FILE__, __LINE__,
               "%s: code %d, wanted %d with \"%s\": %s", run, got, code, part, plait_error());
}

/* Weights that fit a part of a larger model, and launchers that do not fit the layout. */
static void text_refused(void)
{
    struct folder_seen seen;
    static const char *const untied[] = {"model.tied=false"}, *const tied[] = {"model.tied=true"};
    static const char *const fewer[] = {"model.layers=2"}, *const more[] = {"model.layers=4"},
        *const by[] = {"train.transport=thread", "parallel.tp=2", "train.transport=mpi"};
    CHECK_INT(train("untied", untied, 1, &seen), 0);
    not_generated("untied", fewer, 1, PLAIT_CHECKPOINT, "model.layers.2.input_layernorm.weight");
    not_generated("untied", more, 1, PLAIT_CHECKPOINT, "model.layers.3.input_layernorm.weight");
    not_generated("untied", tied, 1, PLAIT_CHECKPOINT, "lm_head.weight");
    setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
    not_generated("untied", by, 1, PLAIT_CONFIG, "a launcher started 2 processes");
    setenv("OMPI_COMM_WORLD_SIZE", "3", 1);
    not_generated("untied", by + 1, 2, PLAIT_CONFIG, "ranks started: 3");
    unsetenv("OMPI_COMM_WORLD_SIZE");
    not_generated("untied", by + 1, 2, PLAIT_CONFIG, "mpirun -n 2");
}

/* ---- what is wrong with the surroundings ---- */

static bool holds(const char *run, const char *file)
{
    char path[FOLDER_PATH];
    folder_path_in(run, file, path);
    return fs_exists(path);
}

static void refused(const char *run, const char *word, int code, const char *part)
{
    struct folder_seen seen;
    int got = train(run, &word, 1, &seen);
    test_check(got == code && strstr(plait_error(), part) != NULL, __FILE__, __LINE__,
               "%s: code %d, wanted %d with \"%s\": %s", word, got, code, part, plait_error());
    test_check(!holds(run, "model.safetensors"), __FILE__, __LINE__, "%s: weights exist", word);
    CHECK_INT(seen.losses, 0);
}

/* Training, and the check before it in the same words. */
static void a_folder_takes_one_run(void)
{
    struct folder_seen seen;
    char *report = NULL;
    static const char *const split[] = {"parallel.pp=3"};
    CHECK_INT(train("twice", NULL, 0, &seen), 0);
    CHECK_INT(train("twice", split, 1, &seen), PLAIT_CONFIG);
    CHECK(strstr(plait_error(), "/twice holds a run already") != NULL);
    struct plait_config *c = config_of("twice", NULL, 0);
    CHECK_INT(plait_config_check(c, 0, &report), 0);
    CHECK(report && strstr(report, "/twice holds a run already"));
    plait_free(report);
    plait_config_free(c);
}

static void refusals(void)
{
    char word[FOLDER_PATH + 64], cut[FOLDER_PATH], foreign[FOLDER_PATH + 64];
    refused("bad", "data.train=/nowhere/tokens.bin", PLAIT_DATA, "/nowhere/tokens.bin");
    refused("bad", "run.dir=/proc/nowhere/run", PLAIT_STORAGE, "/proc/nowhere");
    refused("bad", "parallel.tp=3", PLAIT_CONFIG, "parallel.tp");
    folder_path("cut.bin", cut);
    FILE *from = fopen(token_file(), "rb"), *to = fopen(cut, "wb");
    char bytes[1000];
    CHECK(from && to && fread(bytes, 1, sizeof bytes, from) == sizeof bytes &&
          fwrite(bytes, 1, sizeof bytes, to) == sizeof bytes);
    fclose(from);
    fclose(to);
    snprintf(word, sizeof word, "data.train=%s", cut);
    refused("bad", word, PLAIT_DATA, "cut.bin");
    snprintf(foreign, sizeof foreign, "data.train=%s", text_file());
    refused("bad", foreign, PLAIT_DATA, "text.txt");
    refused("bad", "model.vocab=100", PLAIT_TOKEN, "100");
    a_folder_takes_one_run();
}

/* A list from a file is trained like the schedule that wrote it: the same losses and weights. */
static void schedule_from_file(void)
{
    static const char list[] = PLAIT_SOURCE_DIR "/tests/golden/sched/1f1b-p2-m4.csv";
    char word[FOLDER_PATH + 64], nowhere[] = "parallel.schedule=file:/nowhere/a.csv";
    struct folder_seen named, filed;
    snprintf(word, sizeof word, "parallel.schedule=file:%s", list);
    const char *by_name[] = {"parallel.pp=2", "train.batch=8", "parallel.schedule=1f1b"};
    const char *by_file[] = {"parallel.pp=2", "train.batch=8", word};
    CHECK_INT(train("by_name", by_name, 3, &named), 0);
    test_check(train("by_file", by_file, 3, &filed) == 0, __FILE__, __LINE__, "%s", plait_error());
    CHECK(named.losses > 0 && named.losses == filed.losses &&
          memcmp(named.loss, filed.loss, (size_t)named.losses * sizeof *named.loss) == 0);
    CHECK(named.valid == filed.valid);
    compare_weights("by_name", "by_file", 0);
    const struct { const char *set[2]; const char *says; } bad[] = {
        {{"train.batch=6", "parallel.pp=2"}, "use train.batch 7"},
        {{"train.batch=8", "parallel.pp=1"}, "use parallel.pp 2"},
        {{"parallel.chunks=2", "parallel.pp=2"}, "use parallel.chunks 1"},
        {{"parallel.group=3", "parallel.pp=2"}, "use parallel.group 0"},
    };
    for (int i = 0; i < 4; i++) {
        const char *set[] = {"model.layers=4", "train.batch=8", bad[i].set[0], bad[i].set[1], word};
        CHECK_INT(train("bad", set, 5, &filed), PLAIT_CONFIG);
        test_check(strstr(plait_error(), bad[i].says) != NULL, __FILE__, __LINE__, "%s",
                   plait_error());
    }
    by_file[2] = nowhere;
    CHECK_INT(train("bad", by_file, 3, &filed), PLAIT_CONFIG);
    CHECK(strstr(plait_error(), "parallel.schedule: cannot read /nowhere/a.csv"));
}

static int files_in(const char *run)
{
    char path[FOLDER_PATH], command[700];
    int n = -1;
    folder_path(run, path);
    snprintf(command, sizeof command, "ls -A '%s' 2>/dev/null | wc -l", path);
    FILE *f = popen(command, "r");
    n = f && fscanf(f, "%d", &n) == 1 ? n : -1;
    if (f)
        pclose(f);
    return n;
}

/* Another program cuts the file `arg` of a run after its first step. */
static void on_step_cut(void *arg, const struct plait_step *s)
{
    if (s->step == 1)
        CHECK(truncate(arg, 1000) == 0);
}

/* A run's metrics.jsonl has lines, and whole ones. */
static void check_lines(const char *run)
{
    struct fs_map m;
    char path[FOLDER_PATH];
    folder_path_in(run, "metrics.jsonl", path);
    enum err err = fs_map_open(&m, path, ERR_DATA);
    CHECK_OK(err);
    if (err != ERR_OK)
        return;
    CHECK(m.size > 0 && m.data[m.size - 1] == '\n');
    fs_map_close(&m);
}

/* A token file that is cut under a run is one error on every layout: no signal, nothing half
 * written, and weights. */
static void data_cut_under_a_run(void)
{
    static const char *const layout[][2] = {
        {"parallel.pp=1", "data.train"}, {"parallel.pp=2", "data.train"},
        {"parallel.dp=2", "data.train"}, {"parallel.dp=2", "data.valid"}};
    char copy[FOLDER_PATH], command[1200], word[FOLDER_PATH + 64];
    folder_path("copy.bin", copy);
    for (int i = 0; i < 4; i++) {
        char run[16];
        snprintf(run, sizeof run, "cut%d", i);
        snprintf(command, sizeof command, "cp '%s' '%s'", token_file(), copy);
        CHECK(system(command) == 0);
        snprintf(word, sizeof word, "%s=%s", layout[i][1], copy);
        const char *set[] = {layout[i][0], word, "train.valid_batches=0"};
        struct plait_config *c = config_of(run, set, 3);
        struct plait_train call = {sizeof call, .on_step = on_step_cut, .arg = copy};
        CHECK_INT(plait_train(c, &call), PLAIT_DATA);
        const char *s = strstr(plait_error(), "copy.bin: it had ");
        test_check(s && strstr(s, "; the weights of "), __FILE__, __LINE__, "%s", plait_error());
        plait_config_free(c);
        check_lines(run);
        CHECK_INT(files_in(run), 7); /* two descriptions, run, log, metrics, weights, checkpoints */
    }
}

/* File calls that write, counted; number `fail_at` fails as on a full disk. */
static const struct fs_ops *system_ops;
static atomic_long write_calls;
static long fail_at;

static bool full(void)
{
    errno = ENOSPC;
    return atomic_fetch_add(&write_calls, 1) + 1 == fail_at;
}

static int full_open(const char *path, int flags, unsigned mode)
{
    bool writes = (flags & O_ACCMODE) != O_RDONLY;
    return writes && full() ? -1 : system_ops->open(path, flags, mode);
}

static int64_t full_write(int fd, const void *p, int64_t n, int64_t at)
{
    return full() ? -1 : system_ops->write(fd, p, n, at);
}

static int full_fsync(int fd)
{
    return full() ? -1 : system_ops->fsync(fd);
}

static int full_rename(const char *from, const char *to)
{
    return full() ? -1 : system_ops->rename(from, to);
}

/* The k-th writing call of a run fails, for all k: PLAIT_STORAGE on every rank, or a run without
 * its log; the weights are there whole or not at all, and no temporary file stays behind. */
static void disk_full(void)
{
    struct fs_ops ops = *fs_ops;
    const char *layout[] = {"parallel.pp=2", "train.steps=2", "train.save_keep=0"};
    int failed = 0;
    system_ops = fs_ops;
    ops.open = full_open;
    ops.write = full_write;
    ops.fsync = full_fsync;
    ops.rename = ops.rename_new = full_rename;
    (void)token_file(); /* before calls are counted */
    fs_ops = &ops;
    for (fail_at = 1; fail_at == 1 || atomic_load(&write_calls) >= fail_at - 1; fail_at++) {
        struct folder_seen seen;
        char run[32], path[FOLDER_PATH];
        struct safet_file f;
        atomic_store(&write_calls, 0);
        snprintf(run, sizeof run, "full%ld", fail_at);
        int code = train(run, layout, 3, &seen);
        failed += code != 0;
        test_check(code == 0 || code == PLAIT_STORAGE, __FILE__, __LINE__, "call %ld: code %d: %s",
                   fail_at, code, plait_error());
        folder_path_in(run, "model.safetensors", path);
        if (fs_exists(path)) {
            CHECK_OK(safet_open(&f, path));
            safet_close(&f);
        }
        test_check(files_in(run) <= 6, __FILE__, __LINE__, "call %ld: files stay behind", fail_at);
    }
    fs_ops = system_ops;
    CHECK(failed > 10);
}

/* From the end of the second step to the end of the validation behind it no allocation succeeds.
 * One rank, so that no other thread reads the environment meanwhile. */
static void on_step_before(void *arg, const struct plait_step *s)
{
    folder_on_step(arg, s);
    if (s->step == 2)
        setenv("PLAIT_FAIL_ALLOC", "1", 1);
}

static void on_valid_after(void *arg, int64_t step, double loss, double bits)
{
    unsetenv("PLAIT_FAIL_ALLOC");
    folder_on_valid(arg, step, loss, bits);
}

static void validation_takes_no_memory(void)
{
    struct folder_seen seen = {.valid = NAN};
    static const char *const set[] = {"train.valid_every=2", "train.valid_batches=0",
                                      "train.threads=1", "train.steps=2"};
    struct plait_config *c = config_of("still", set, 4);
    int code = plait_train(c, &(struct plait_train){
        .size = sizeof(struct plait_train), .on_step = on_step_before, .on_valid = on_valid_after,
        .arg = &seen});
    unsetenv("PLAIT_FAIL_ALLOC");
    plait_config_free(c);
    test_check(code == 0 && isfinite(seen.valid), __FILE__, __LINE__, "code %d, valid %g: %s", code,
               seen.valid, plait_error());
}

static const struct test_case cases[] = {
    {"validation_takes_no_memory", validation_takes_no_memory},
    {"layouts", layouts}, {"chunks", chunks}, {"text", text}, {"types", types},
    {"text_refused", text_refused}, {"refusals", refusals},
    {"schedule_from_file", schedule_from_file}, {"data_cut_under_a_run", data_cut_under_a_run},
    {"disk_full", disk_full}};
TEST_MAIN(cases)
