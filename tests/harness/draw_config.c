/* SPDX-License-Identifier: Apache-2.0
 *
 * What follows @ in a value is a file of the program's folder. The keys of one draw are few or
 * many; each takes a value of the first list mostly, of the second (illegal, or legal and extreme)
 * once in some ten.
 */
#include "draw_config.h"

#include "base/fs.h"
#include "config/options.h"
#include "sched/sched.h"
#include <unistd.h>

static const struct { const char *key, *common, *rare; } keys[] = {
    {"model.kind", "gpt|llama|llama", "bert|0"},
    {"model.layers", "1|2|3|4|5|6|8", "0|10000|1e1|64"},
    {"model.hidden", "16|24|32|48", "1|17|30|16777216"},
    {"model.heads", "1|2|4|4|8", "3|5|6|65536"},
    {"model.kv_heads", "0|1|2|4", "3|8|65536"},
    {"model.head_dim", "0|0|4|8|6", "1|3|5|256|65536"},
    {"model.ffn", "0|32|64|24|36", "1|33|16777216"},
    {"model.vocab", "0|0|37|41|257|300", "1|2|36|16777216"},
    {"model.seq", "4|8|8|12|16", "1|7|4096|16777216"},
    {"model.widths", "[]", "[4]|8,37|4,0|[4, 1024, 2]"},
    {"model.tied", "true|false", "maybe|1"},
    {"model.dropout", "0|0.1|0.3", "0.9|0.95|1e-400|-0"},
    {"model.norm_eps", "1e-5|1e-6|1e-2", "0|1|1e-12"},
    {"model.rope_theta", "10000|500000|1", "0|1e12"},
    {"model.init_std", "0.02|0.1|0.05", "0|1|10|11"},
    {"model.init", "", "nowhere"},
    {"parallel.tp", "1|2|2|4", "3|5|8|4096|0"},
    {"parallel.pp", "1|2|2|3|4", "5|8|4096|0"},
    {"parallel.dp", "1|2|2|3|4", "5|7|1048576"},
    {"parallel.zero", "0|1|1", "2|true"},
    {"parallel.sp", "false|true", "2"},
    {"parallel.tp_overlap", "auto|off|on", "yes"},
    {"parallel.tp_rows", "1|4|8|16|2048", "0|1073741824"},
    {"parallel.schedule",
     "naive|gpipe|1f1b|interleaved|looped-bfs|zb-h1|zb-h2|zb-1p|zb-2p|zb-v|v-half|v-min|1f1b-v|"
     "dualpipe|dualpipev|chimera",
     "seq1f1b|1fb1|file:@two.csv|file:@one.csv|file:@none.csv|file:@costs2.csv"},
    {"parallel.chunks", "0|1|2|2|3", "4|1024|1025"},
    {"parallel.split", "[]|[]|layers.1|layers.2|layers.1.mlp|layers.1,layers.2|"
                       "[layers.0.mlp, layers.1, layers.1.mlp]|layers.1,layers.2,layers.3",
     "head|layers.0|layers.99.attn|layers.2,layers.1|a,,b"},
    {"parallel.group", "0|2|3|4", "1|9|65535"},
    {"parallel.costs", "|@costs2.csv|@costs4.csv", "@none.csv|@two.csv"},
    {"parallel.memory_limit", "0|1|2|3.5|6", "0.5|1e6|-1"},
    {"parallel.microbatch", "1|2|3|4", "5|9|1048576|0"},
    {"train.steps", "1|2|3|3.0", "4294967295|0|1.5"},
    {"train.log_every", "0|1|2", "4294967296"},
    {"train.batch", "4|6|8|8|12", "1|5|7|16777216|131071"},
    {"train.seed", "1|7|9007199254740992", "9007199254740993|-1"},
    {"train.dtype", "f32|f32|bf16", "f64"},
    {"train.device", "ref|ref|cpu|null", "cuda|gpu"},
    {"train.transport", "thread|thread|mpi", "nccl"},
    {"train.share_gpus", "false", "true|2"},
    {"train.threads", "1|2|3|0", "1024|1025|4096"},
    {"train.valid_every", "0|1|2", "4294967295"},
    {"train.valid_batches", "0|1|3", "16777216"},
    {"train.hang_timeout", "60|0|600", "86401|-1"},
    {"train.profile", "false|true", "2"},
    {"train.save_every", "0|0|1|2", "4294967296|-1"},
    {"train.save_keep", "2|1|0", "-1"},
    {"train.save_best", "false|false|true", "2"},
    {"train.save_async", "true|false", "2"},
    {"train.time_limit", "0|1000", "-1"},
    {"train.trace", "false|true", "2"},
    {"train.recompute", "none|full|every:1|sqrt|every:2", "true|every:0|every:|every:1x"},
    {"train.graph", "auto|off", "on"},
    {"train.canonical_accumulation", "false|true", "2"},
    {"train.deterministic", "false|true", "2"},
    {"optim.lr", "1e-3|1e-2|3e-4", "0|1e-400|101"},
    {"optim.lr_min", "0|1e-4", "1|0.02|101"},
    {"optim.beta1", "0.9|0.8|0", "1|0.999999"},
    {"optim.beta2", "0.95|0.999|0.9", "1|0.999999999|0"},
    {"optim.eps", "1e-8|1e-6", "0|1"},
    {"optim.decay", "0.1|0|0.5", "101|100"},
    {"optim.clip", "1|0|0.1|100", "1e10|1e-3"},
    {"optim.warmup", "0|1|2", "3|4|4294967295"},
    {"optim.schedule", "cosine|constant|linear|wsd", "cos"},
    {"optim.decay_steps", "0|1|2", "3|4294967295"},
    {"optim.decay_keep", "false|true", "2"},
    {"data.train", "@37.tok|@37.tok|@257.tok", "|@none.tok|@short.tok|@two.csv"},
    {"data.valid", "@37.tok||@257.tok", "@none.tok|@two.csv"},
    {"data.tokenizer", "|random", "bytes|gpt2"},
    {"run.dir", "", ""},
    {"run.save", "false|true", "2"},
    {"run.resume", "|auto", "3|nowhere"},
    {"run.resume_insist", "false|true", "2"},
    {"run.io_timeout", "1800|0|0.5", "604801|-1"},
    {"run.takeover", "false|true", "2"},
};
enum { KEYS = sizeof keys / sizeof *keys };

/* What a draw begins with: the defaults train for longer than a test may. */
static const char *const base[][2] = {
    {"model.layers", "4"}, {"model.hidden", "16"}, {"model.seq", "8"}, {"train.steps", "2"},
    {"train.batch", "8"}, {"train.device", "ref"}, {"train.threads", "1"}, {"run.save", "false"},
    {"data.train", "@37.tok"},
};
enum { BASE = sizeof base / sizeof *base };

void drawn_knows_every_key(void)
{
    for (int i = 0; i < options_table.n; i++) {
        int rows = 0;
        for (int k = 0; k < KEYS; k++)
            rows += strcmp(keys[k].key, options_table.row[i].key) == 0;
        test_check(rows == 1, __FILE__, __LINE__, "%s has %d rows here: give it one, with values",
                   options_table.row[i].key, rows);
    }
    CHECK_INT(KEYS, options_table.n);
}

/* Is `name` one of "a|b|c"? */
static bool has_word(const char *list, const char *name)
{
    size_t n = strlen(name);
    for (const char *s = list; s; s = strchr(s, '|')) {
        s += *s == '|';
        if (strncmp(s, name, n) == 0 && (s[n] == '|' || s[n] == '\0'))
            return true;
    }
    return false;
}

void drawn_knows_every_schedule(void)
{
    int row = 0;
    while (strcmp(keys[row].key, "parallel.schedule") != 0)
        row++;
    for (int i = 0; i < sched_kind_count(); i++) {
        const char *name = sched_kind_at(i)->name;
        test_check(has_word(keys[row].common, name) || has_word(keys[row].rare, name), __FILE__,
                   __LINE__, "schedule %s is no word of parallel.schedule here: add it", name);
    }
}

static void write_text(const char *name, const char *s, int64_t n)
{
    char path[FOLDER_PATH];
    struct fs_file f;
    folder_path(name, path);
    CHECK_OK(fs_create(&f, path));
    CHECK_OK(fs_write(&f, s, n));
    CHECK_OK(fs_commit(&f));
}

void drawn_files(void)
{
    static const char costs4[] = "stage,F,B,I,W\n0,1,2,1,1\n1,1,3,2,1\n2,1,2,1,1\n3,2,4,2,2\n";
    static const struct { const char *name; int vocab, tokens; } file[] = {
        {"37.tok", 37, 400}, {"257.tok", 257, 400}, {"short.tok", 37, 3}};
    char path[FOLDER_PATH];
    for (int i = 0; i < 3; i++) {
        folder_path(file[i].name, path);
        CHECK_INT(plait_data_random(path, file[i].vocab, file[i].tokens, 5), 0);
    }
    write_text("costs4.csv", costs4, sizeof costs4 - 1);
    write_text("costs2.csv", costs4, 34);
    for (int p = 1; p <= 2; p++) {
        struct sched s;
        struct text t = {0};
        CHECK_OK(sched_make("zb-h1", &(struct sched_shape){.p = p, .m = 4, .v = 1}, NULL, &s));
        sched_print(&s, &t);
        write_text(p == 1 ? "one.csv" : "two.csv", t.s, t.len);
        text_free(&t);
        sched_free(&s);
    }
}

const char *drawn_value(const struct drawn *d, const char *key)
{
    size_t n = strlen(key);
    for (int i = d->words - 1; i >= 0; i--)
        if (strncmp(d->word[i], key, n) == 0 && d->word[i][n] == '=')
            return d->word[i] + n + 1;
    return NULL;
}

/* One word a key. */
void drawn_set(struct drawn *d, const char *key, const char *value)
{
    char path[FOLDER_PATH];
    const char *at = strchr(value, '@'), *now = drawn_value(d, key);
    int i = d->words;
    for (int k = 0; now && k < d->words; k++)
        if (now > d->word[k] && now < d->word[k] + DRAWN_WORD)
            i = k;
    if (at)
        folder_path(at + 1, path);
    snprintf(d->word[i], DRAWN_WORD, "%s=%.*s%s", key, (int)(at ? at - value : DRAWN_WORD), value,
             at ? path : "");
    d->words += i == d->words;
}

/* One of "a|b||c". */
static void pick(const char *list, char out[64])
{
    int n = 1;
    for (const char *s = list; *s; s++)
        n += *s == '|';
    for (int64_t k = test_range(0, n - 1); k > 0; k--)
        list = strchr(list, '|') + 1;
    snprintf(out, 64, "%.*s", (int)strcspn(list, "|"), list);
}

static void draw_key(int k, bool wild, struct drawn *out)
{
    char value[64];
    pick(wild ? keys[k].rare : keys[k].common, value);
    if (strcmp(keys[k].key, "run.dir") != 0 || wild) /* each draw has its own */
        drawn_set(out, keys[k].key, value);
}

static bool is(const struct drawn *d, const char *key, const char *list)
{
    const char *value = drawn_value(d, key);
    return value && has_word(list, value);
}

static void draw_of(struct drawn *d, const char *key, const char *list)
{
    char value[64];
    pick(list, value);
    drawn_set(d, key, value);
}

/* Layouts are drawn more often than keys by chance give them, and what waits for another key gets
 * it or goes: so most of such draws are trained. */
static void tame(struct drawn *d)
{
    static const char layout[][20] = {"parallel.tp", "parallel.pp", "parallel.dp",
                                      "parallel.microbatch", "parallel.schedule"};
    for (int i = 0; i < 5; i++)
        for (int k = 0; k < KEYS && test_range(0, 1); k++)
            if (strcmp(keys[k].key, layout[i]) == 0)
                draw_key(k, false, d);
    if (test_range(0, 14) == 0)
        drawn_set(d, "train.transport", "mpi");
    if (test_range(0, 2) == 0) {
        drawn_set(d, "train.device", "cpu");
        draw_of(d, "train.threads", "1|2|3|0");
    }
    for (int i = 0; i < d->words; i++)
        if (strstr(d->word[i], "decay_steps=") && !strstr(d->word[i], "=0"))
            drawn_set(d, "optim.schedule", "wsd");
    if (is(d, "optim.schedule", "wsd"))
        draw_of(d, "optim.decay_steps", "1|2");
    if (is(d, "optim.schedule", "constant"))
        drawn_set(d, "optim.lr_min", "0");
    const char *schedule = drawn_value(d, "parallel.schedule");
    const struct sched_kind *kind = schedule ? sched_kind_find(schedule) : NULL;
    if (!kind || !kind->groups)
        drawn_set(d, "parallel.group", "0");
    if (!kind || !kind->loops)
        drawn_set(d, "parallel.chunks", "0");
    if (!kind || !kind->make_for)
        drawn_set(d, "parallel.memory_limit", "0");
    if (is(d, "parallel.schedule", "dualpipe|chimera|dualpipev"))
        draw_of(d, "parallel.pp", "2|4");
    if (is(d, "parallel.pp", "2") && is(d, "parallel.schedule", "1f1b|zb-h1|zb-1p|zb-2p|gpipe"))
        draw_of(d, "parallel.costs", "|@costs2.csv");
    else
        drawn_set(d, "parallel.costs", "");
    if (!is(d, "model.kind", "llama"))
        for (int i = 0; i < 2; i++)
            drawn_set(d, i ? "model.kv_heads" : "model.head_dim", "0");
    else if (is(d, "model.head_dim", "0"))
        draw_of(d, "model.hidden", "16|32");
    if (is(d, "train.valid_every", "1|2") || is(d, "train.valid_batches", "1|3"))
        drawn_set(d, "data.valid", "@37.tok");
    if (is(d, "train.canonical_accumulation", "true"))
        drawn_set(d, "model.tied", "false");
    if (is(d, "train.device", "ref"))
        drawn_set(d, "train.dtype", "f32");
    if (is(d, "train.device", "null"))
        draw_of(d, "train.device", "cpu|ref");
    d->ranks = 0;
}

void drawn_make(int which, const char *run, struct drawn *out)
{
    char at[80];
    int most = (int)test_range(2, 16), wild = (int)test_range(0, 2); /* 0: nothing rare */
    *out = (struct drawn){.words = 0};
    for (int i = 0; i < BASE; i++)
        drawn_set(out, base[i][0], base[i][1]);
    snprintf(at, sizeof at, "@%s", run);
    drawn_set(out, "run.dir", at);
    for (int i = 0; i < most; i++)
        draw_key((int)test_range(0, KEYS - 1), wild > 0 && test_range(0, 11) == 0, out);
    draw_key(which % KEYS, wild > 1, out);
    if (test_range(0, 9) == 0)
        out->ranks = (int)test_range(1, 8);
    if (wild == 0 || test_range(0, 2) == 0)
        tame(out);
}

int drawn_config(const struct drawn *d, struct plait_config **out)
{
    CHECK_INT(plait_config_new(out), 0);
    for (int i = 0; i < d->words; i++) {
        int code = plait_config_set(*out, d->word[i]);
        if (code != 0) {
            plait_config_free(*out);
            *out = NULL;
            return code;
        }
    }
    return 0;
}

void drawn_print(const struct drawn *d, struct text *out)
{
    for (int i = 0; i < d->words; i++) {
        bool plain = strspn(d->word[i], "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                        "0123456789._-=/:+") == strlen(d->word[i]);
        text_add(out, plain ? " %s" : " '%s'", d->word[i]);
    }
    if (d->ranks > 0)
        text_add(out, " -n %d", d->ranks);
}
