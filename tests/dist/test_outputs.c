/* SPDX-License-Identifier: Apache-2.0
 *
 * No command writes over what it reads: every output of every one is held against every input, by
 * the same path, another spelling of it, a link to it or to its folder, and a hard link. It is
 * refused with code 10, and the input keeps its bytes. Names that a model's folder does not have
 * yet are its own, too.
 */
#include "folder.h"

#include "base/fs.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum spelling { PLAIN, DOTS, SOFT, HARD, FOLDER, SPELLINGS };
static const char *const spelling_name[SPELLINGS] = {"itself", "./", "a link", "a hard link",
                                                     "a link to its folder"};

/* The k-th output of a command, `out`; false: it has fewer. */
typedef bool command(int k, const char *out, int *code);

static char shards[FOLDER_PATH], traced[FOLDER_PATH], config[FOLDER_PATH], tokens[FOLDER_PATH],
    text[FOLDER_PATH], order[FOLDER_PATH], costs[FOLDER_PATH];

static void put(const char *path, const char *words)
{
    CHECK_OK(fs_put(path, words, (int64_t)strlen(words)));
}

static bool prepare(int k, const char *out, int *code)
{
    const char *texts[] = {config, text};
    struct plait_prepare p = {sizeof p, texts, 2, out, "bytes", NULL, NULL};
    int64_t n;
    *code = k == 0 ? plait_data_prepare(&p, &n) : 0;
    return k == 0;
}

static bool simulate(struct plait_sim *a, int k, const char *out, int *code)
{
    char *page = NULL;
    a->size = sizeof *a;
    *(const char **[]){&a->svg, &a->html, &a->perfetto}[k < 3 ? k : 0] = out;
    *code = k < 3 ? plait_simulate(a, &page) : 0;
    plait_free(page);
    return k < 3;
}

static bool sim_files(int k, const char *out, int *code)
{
    return simulate(&(struct plait_sim){.schedule = order, .costs = costs}, k, out, code);
}

static bool sim_compare(int k, const char *out, int *code)
{
    char both[2 * FOLDER_PATH];
    snprintf(both, sizeof both, "1f1b,file:%s", order);
    return simulate(&(struct plait_sim){.compare = both, .p = 2, .m = 2}, k, out, code);
}

static bool sim_model(int k, const char *out, int *code)
{
    return simulate(&(struct plait_sim){.model = config}, k, out, code);
}

/* What the model's configuration names is its own, too, where the call has another in its place. */
static bool sim_models(int k, const char *out, int *code)
{
    return simulate(&(struct plait_sim){.model = config, .compare = "1f1b,gpipe"}, k, out, code);
}

static bool sim_other(int k, const char *out, int *code)
{
    return simulate(&(struct plait_sim){.model = config, .schedule = "gpipe"}, k, out, code);
}

static bool compare(int k, const char *out, int *code)
{
    struct plait_compare a = {.size = sizeof a, .run = traced};
    char *page = NULL;
    *(const char **[]){&a.svg, &a.html, &a.perfetto, &a.costs}[k < 4 ? k : 0] = out;
    *code = k < 4 ? plait_compare(&a, &page) : 0;
    plait_free(page);
    return k < 4;
}

static bool bench(int k, const char *out, int *code)
{
    struct plait_config *c;
    struct plait_bench b = {.size = sizeof b, .out = out, .ranks = 1, .seconds = 0.001};
    CHECK_INT(plait_config_new(&c), 0);
    CHECK_INT(plait_config_read(c, config), 0);
    *code = k == 0 ? plait_bench(c, &b) : 0;
    plait_config_free(c);
    return k == 0;
}

static bool generate(const char *run, int k, const char *out, int *code)
{
    int32_t id = 1;
    struct plait_generate g = {.size = sizeof g, .run = run, .tokens = 1, .ids = &id,
                               .id_count = 1, .logits = out};
    *code = k == 0 ? plait_generate(&g) : 0;
    return k == 0;
}

static bool text_run(int k, const char *out, int *code)
{
    return generate(traced, k, out, code);
}

static bool generate_shards(int k, const char *out, int *code)
{
    return generate(shards, k, out, code);
}

/* What each reads: paths, or names in its folder. */
static const struct row {
    const char *name;
    command *of;
    const char *in[10];
    const char *folder;
} rows[] = {
    {"data prepare", prepare, {config, text}, NULL},
    {"sim of files", sim_files, {order, costs}, NULL},
    {"sim --compare", sim_compare, {order}, NULL},
    {"sim --model", sim_model, {config, tokens, order, costs}, NULL},
    {"sim --model --compare", sim_models, {config, tokens, order, costs}, NULL},
    {"sim gpipe --model", sim_other, {config, tokens, order, costs}, NULL},
    {"bench", bench, {config, tokens, order, costs}, NULL},
    {"compare", compare,
     {"config.yaml", "config.json", "metrics.jsonl", "model.safetensors", "trace/0.trace",
      "trace/1.trace", tokens}, traced},
    {"generate", text_run,
     {"config.yaml", "config.json", "metrics.jsonl", "model.safetensors", "trace/0.trace",
      "trace/1.trace", "tokenizer.json", tokens}, traced},
    {"generate of shards", generate_shards,
     {"config.json", "model.safetensors.index.json", "model-00001-of-00007.safetensors",
      "model-00007-of-00007.safetensors", "tokenizer.json", "tokenizer_config.json",
      "tokenizer.model", "vocab.json", "merges.txt"}, shards},
};

/* Once, by whichever case comes first. */
static void make_inputs(void)
{
    if (traced[0])
        return;
    char line[3 * FOLDER_PATH], path[FOLDER_PATH];
    const char *const set[] = {"model.layers=2", "model.hidden=16", "model.heads=2", "model.seq=8",
                               "train.steps=3", "train.batch=2", "train.threads=1",
                               "parallel.pp=2", "train.trace=true"};
    static const char *const more[] = {"tokenizer.json", "tokenizer_config.json",
                                       "tokenizer.model", "vocab.json", "merges.txt"};
    struct folder_seen seen;
    folder_tokens("t.tok", "a braid of many strands\n", 80);
    folder_path("t.tok", tokens);
    folder_path("t.tok.txt", text);
    folder_path("run", traced);
    folder_path("shards", shards);
    folder_path("order.csv", order);
    folder_path("costs.csv", costs);
    folder_path("c.yaml", config);
    struct plait_config *c = folder_config("run", "t.tok");
    folder_set(c, set, sizeof set / sizeof *set);
    test_check(folder_train(c, &seen) == 0, __FILE__, __LINE__, "%s", plait_error());
    snprintf(line, sizeof line, "cp -r '%s/tests/oracle/folders/gpt-shards-f16' '%s'",
             PLAIT_SOURCE_DIR, shards);
    CHECK_INT(system(line), 0);
    for (int i = 0; i < 5; i++) {
        snprintf(path, sizeof path, "%.400s/%s", shards, more[i]);
        put(path, "{}");
    }
    snprintf(path, sizeof path, "%.400s/tokenizer.json", traced);
    put(path, "{}");
    char *page;
    CHECK_INT(plait_simulate(&(struct plait_sim){.size = sizeof(struct plait_sim),
                                                 .schedule = "1f1b", .p = 2, .m = 2,
                                                 .format = "text"}, &page), 0);
    put(order, page);
    plait_free(page);
    put(costs, "stage,F,B\n0,1,2\n1,1,2\n");
    snprintf(line, sizeof line,
             "model: {layers: 2, hidden: 16, heads: 2, seq: 8}\ntrain: {batch: 2}\n"
             "data: {train: '%.400s'}\nparallel: {pp: 2, schedule: 'file:%.400s', costs: '%.400s'}"
             "\n", tokens, order, costs);
    put(config, line);
}

/* Another name of a path, in *out. */
static void spell(enum spelling how, const char *path, char out[FOLDER_PATH])
{
    const char *slash = strrchr(path, '/');
    char link_name[FOLDER_PATH], dir[FOLDER_PATH];
    switch (how) {
    case PLAIN: snprintf(out, FOLDER_PATH, "%s", path); break;
    case DOTS: snprintf(out, FOLDER_PATH, "%.*s/./%s", (int)(slash - path), path, slash + 1); break;
    case SOFT: folder_path("soft", out); CHECK(symlink(path, out) == 0); break;
    case HARD: folder_path("hard", out); CHECK(link(path, out) == 0); break;
    case FOLDER:
        folder_path("there", link_name);
        snprintf(dir, sizeof dir, "%.*s", (int)(slash - path), path);
        CHECK(symlink(dir, link_name) == 0);
        snprintf(out, FOLDER_PATH, "%.400s/%s", link_name, slash + 1);
        break;
    case SPELLINGS: break;
    }
}

static uint64_t bytes_of(const char *path)
{
    struct fs_map m;
    uint64_t sum = 1;
    CHECK_OK(fs_map_open(&m, path, ERR_DATA));
    for (int64_t i = 0; i < m.size; i++)
        sum = sum * 1099511628211u + m.data[i];
    fs_map_close(&m);
    return sum;
}

static void refuse(const struct row *row, int k, const char *path, enum spelling how)
{
    char out[FOLDER_PATH];
    struct stat before, after;
    int code;
    spell(how, path, out);
    uint64_t was = bytes_of(path);
    CHECK(lstat(out, &before) == 0);
    (void)row->of(k, out, &code);
    test_check(code == PLAIT_CONFIG && strstr(plait_error(), " is the same file as "), __FILE__,
               __LINE__, "%s, output %d, %s by %s: %d, %s", row->name, k, path,
               spelling_name[how], code, code ? plait_error() : "");
    test_check(lstat(out, &after) == 0 && before.st_ino == after.st_ino && bytes_of(path) == was,
               __FILE__, __LINE__, "%s, output %d: %s is changed", row->name, k, path);
    if (how == FOLDER)
        folder_path("there", out);
    if (how == SOFT || how == HARD || how == FOLDER)
        CHECK(unlink(out) == 0);
}

static void no_output_is_an_input(void)
{
    make_inputs();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct row *row = &rows[i];
        char path[FOLDER_PATH];
        int code;
        for (int k = 0; row->of(k, NULL, &code); k++)
            for (int j = 0; j < 10 && row->in[j]; j++)
                for (int how = 0; how < SPELLINGS; how++) {
                    if (row->folder && row->in[j][0] != '/')
                        snprintf(path, sizeof path, "%.400s/%s", row->folder, row->in[j]);
                    else
                        snprintf(path, sizeof path, "%s", row->in[j]);
                    refuse(row, k, path, (enum spelling)how);
                }
    }
}

/* What nothing has yet would be read as the model's the next time. */
static void names_of_a_model_are_kept_free(void)
{
    char out[FOLDER_PATH];
    int code;
    make_inputs();
    snprintf(out, sizeof out, "%.400s/model.safetensors.index.json", traced);
    (void)text_run(0, out, &code);
    CHECK_INT(code, PLAIT_CONFIG);
    snprintf(out, sizeof out, "%.400s/./model.safetensors", shards);
    (void)generate_shards(0, out, &code);
    CHECK_INT(code, PLAIT_CONFIG);
    CHECK(!fs_exists(out));
}

/* Each output's name is looked at before any work: these words are those of the look. */
static void a_name_that_takes_no_file_is_refused_first(void)
{
    static const struct { const char *name; int code; const char *said; } bad[] = {
        {"", PLAIT_CONFIG, "an output has an empty name"},
        {"nodir/x", PLAIT_STORAGE, "there is no folder "},
        {"nodir/", PLAIT_STORAGE, "there is no folder "},
        {"c.yaml/x", PLAIT_STORAGE, " is no folder; name another output"},
        {"c.yaml/x/y", PLAIT_STORAGE, " is no folder; name another output"},
        {"shards", PLAIT_STORAGE, "it is a folder; give the name of a file"},
        {"pipe", PLAIT_STORAGE, "it is a device, pipe or socket"},
        {"/proc/none/x", PLAIT_STORAGE, "there is no folder /proc/none"},
    };
    char out[FOLDER_PATH];
    int code;
    make_inputs();
    folder_path("pipe", out);
    CHECK(mkfifo(out, 0666) == 0);
    for (size_t i = 1; i < sizeof rows / sizeof *rows; i++) /* data says it in its own words */
        for (int k = 0; rows[i].of(k, NULL, &code); k++)
            for (size_t b = 0; b < sizeof bad / sizeof *bad; b++) {
                folder_path(bad[b].name, out);
                if (!bad[b].name[0] || bad[b].name[0] == '/')
                    snprintf(out, sizeof out, "%s", bad[b].name);
                (void)rows[i].of(k, out, &code);
                test_check(code == bad[b].code && strstr(plait_error(), bad[b].said), __FILE__,
                           __LINE__, "%s, output %d, \"%s\": %d, %s", rows[i].name, k,
                           bad[b].name, code, code ? plait_error() : "");
            }
}

/* Anything else is free, in the folder too, and again. */
static void other_outputs_are_written(void)
{
    char out[FOLDER_PATH];
    int code;
    make_inputs();
    snprintf(out, sizeof out, "%.400s/logits.txt", shards);
    for (int i = 0; i < 2; i++) {
        (void)generate_shards(0, out, &code);
        test_check(code == 0, __FILE__, __LINE__, "%s", plait_error());
        CHECK(fs_exists(out));
    }
}

static const struct test_case cases[] = {
    {"no_output_is_an_input", no_output_is_an_input},
    {"names_of_a_model_are_kept_free", names_of_a_model_are_kept_free},
    {"other_outputs_are_written", other_outputs_are_written},
    {"a_name_that_takes_no_file_is_refused_first", a_name_that_takes_no_file_is_refused_first},
};
TEST_MAIN(cases)
