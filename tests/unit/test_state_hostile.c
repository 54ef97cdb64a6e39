/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints that are damaged or lie: every rule of the index and of its shards broken in turn, by
 * edits of a good one. Each gives one clear error, ERR_CHECKPOINT, at the latest when the tensors
 * are read, and nothing of it is used.
 */
#include "saved.h"

#include "base/mem.h"
#include "base/text.h"
#include "ckpt/state_local.h"
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define DIR_NAME "state_hostile"
#define SHARD0 DIR_NAME "/rank-00000.safetensors"
#define SHARD1 DIR_NAME "/rank-00001.safetensors"

static struct saved good; /* what lies in DIR_NAME */
static char *good_text;

/* A fresh good checkpoint of two shards. */
static void begin(void)
{
    (void)unlink(SHARD0);
    (void)unlink(SHARD1);
    CHECK_OK(fs_make_dirs(DIR_NAME));
    saved_make(&good, MODEL_GPT, SAFET_F32);
    saved_cut(&good, 2, false);
    CHECK_OK(saved_write(&good, DIR_NAME, -1));
    good_text = saved_index(DIR_NAME);
}

static void end(void)
{
    mem_free(good_text);
    saved_free(&good);
}

static enum err read_all(const struct state_index *x)
{
    static float out[1 << 16];
    for (int i = 0; i < x->tensors * STATE_KINDS; i++) {
        const struct safet_entry *t = &x->tensor[i / STATE_KINDS];
        struct state_want w = {t->name, (enum state_kind)(i % STATE_KINDS),
                               {{0, 0}, {t->shape[0], t->shape[1]}}, false};
        TRY(state_read(x, &w, SAFET_F32, out));
    }
    return ERR_OK;
}

/* Opens and reads everything. */
static enum err use(void)
{
    struct state_index x;
    enum err err = state_index_open(&x, DIR_NAME);
    if (err != ERR_OK) {
        CHECK(!x.tensor && !x.inner);
        return err;
    }
    err = read_all(&x);
    state_index_close(&x);
    return err;
}

/* ---- edits of the index ---- */

/* Behind the value at p: the comma or bracket that ends it. */
static const char *value_end(const char *p)
{
    int depth = 0;
    for (bool quoted = false; *p; p++) {
        if (*p == '"' && p[-1] != '\\')
            quoted = !quoted;
        if (quoted)
            continue;
        if (depth == 0 && (*p == ',' || *p == '}' || *p == ']'))
            return p;
        depth += (*p == '[' || *p == '{') - (*p == ']' || *p == '}');
    }
    return p;
}

/* The good text with n bytes at p being `with`. */
static char *spliced(const char *p, int64_t n, const char *with)
{
    struct text t = {0};
    char *out = NULL;
    text_add(&t, "%.*s%s%s", (int)(p - good_text), good_text, with, p + n);
    CHECK_OK(text_done(&t, &out));
    return out;
}

static const char *value_of(const char *key)
{
    char quoted[64];
    snprintf(quoted, sizeof quoted, "\"%s\":", key);
    const char *p = strstr(good_text, quoted);
    return CHECK(p != NULL) ? p + strlen(quoted) : good_text;
}

static enum err use_text(const char *text)
{
    saved_put_index(DIR_NAME, text);
    return use();
}

/* The first value of a key becomes another. */
static enum err use_value(const char *key, const char *with)
{
    const char *p = value_of(key);
    char *text = spliced(p, value_end(p) - p, with);
    enum err err = use_text(text);
    mem_free(text);
    return err;
}

/* The first `what` becomes `with`. */
static enum err use_swap(const char *what, const char *with)
{
    const char *p = strstr(good_text, what);
    if (!CHECK(p != NULL))
        return ERR_OK;
    char *text = spliced(p, (int64_t)strlen(what), with);
    enum err err = use_text(text);
    mem_free(text);
    return err;
}

/* The first value of a key, and what is said of it. */
static const struct { const char *key, *with, *say; } bad_value[] = {
    {"format", "\"plait checkpoint 2\"", "has the format"},
    {"format", "1", "has the format"},
    {"state", "[]", "no object"},
    {"state", "{}", "has no \"step\""},
    {"model", "3", "no object"},
    {"model", "{\"a\":1}", "has \"a\""},
    {"tensors", "[]", "no object"},
    {"tensors", "{}", "names 0 tensors"},
    {"shards", "{}", "no list"},
    {"shards", "[]", "has no chunks"},
    {"shards", "[1]", "no object"},
    {"shards", "[{}]", "has no \"file\""},
    {"step", "12345678", "is of step"},
    {"step", "\"1\"", "not a whole number"},
    {"run", "\"another\"", "is of run"},
    {"run", "\"a\\u0007\"", "not a short word"},
    {"run", "1", "not a short word"},
    {"run", "\"rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr" "rrrrrrrrrrrrrrrrrrrrrrrrrrrrrrrr\"",
     "not a short word"},
    {"dtype", "\"F64\"", "another shape or dtype"},
    {"dtype", "\"BF16\"", "not F32 or F64"},
    {"dtype", "0", "not F32 or F64"},
    {"config", "null", "not a text"},
    {"config", "\"\\u0000\"", "NUL"},
    {"config", "\"\\ud800\"", "not a text"},
    {"config", "\"\xff\"", "no UTF-8"},
    {"seed", "-1", "not a whole number"},
    {"seed", "18446744073709551616", "not a whole number"},
    {"seed", "1.0", "not a whole number"},
    {"data_hash", "\"0123456789abcde\"", "not a hash"},
    {"data_hash", "\"0123456789abcdeF\"", "not a hash"},
    {"loss", "NaN", "not a number"},
    {"loss", "1e999", "not a number"},
    {"loss", "0x10", "not a number"},
    {"loss", "\"1\"", "not a number"},
    {"loss", "1 2", "comma between"},
    {"world", "0", "not a whole number"},
    {"world", "1048577", "not a whole number"},
    {"kind", "\"bert\"", "not gpt, llama or mlp"},
    {"kind", "\"llama\"", "it is damaged"},
    {"tied", "1", "not true or false"},
    {"norm_eps", "-1", "not a number"},
    {"rope_theta", "Infinity", "not a number"},
    {"dropout", "1", "a model that cannot be"},
    {"layers", "10000", "has other ones"},
    {"layers", "10001", "a model that cannot be"},
    {"layers", "0", "a model that cannot be"},
    {"heads", "5", "it is damaged"},
    {"transformer.wte.weight", "[1,1]", "is of shape [1,1]"},
    {"transformer.wte.weight", "[1]", "is of shape [1]"},
    {"transformer.ln_f.bias", "[1]", "is of shape [1]"},
    {"transformer.wte.weight", "7", "is of shape 7"},
    {"transformer.wte.weight", "[[1],1]", "nested too deep"},
    {"file", "\"\"", "only files of the folder itself"},
    {"file", "1", "name that is not 1"},
    {"file", "\".\"", "only files of the folder itself"},
    {"file", "\"..\"", "only files of the folder itself"},
    {"file", "\"../x\"", "only files of the folder itself"},
    {"file", "\"/etc/passwd\"", "only files of the folder itself"},
    {"file", "\"rank 0\"", "only files of the folder itself"},
    {"file", "\"a\\\\b\"", "only files of the folder itself"},
    {"file", "\"\xc3\xa9\"", "only files of the folder itself"},
    {"file", "\"a\\u0000\"", "NUL"},
    {"file", "\"rank-00001.safetensors\"", "twice"},
    {"file", "\"rank-00007.safetensors\"", "rank-00007.safetensors"},
    {"file", "\"rank-000000000000000.safetensors\"", "name that is not 1 to 31"},
    {"file", "\"index.json\"", "index.json"},
    {"bytes", "1", "says that rank-00000.safetensors has 1 bytes"},
    {"bytes", "-1", "not a whole number"},
    {"bytes", "9007199254740992", "not a whole number"},
    {"hash", "\"0000000000000000\"", "has the hash"},
    {"hash", "0", "not 16 hexadecimal digits"},
    {"chunks", "[]", "which has"},
    {"chunks", "{}", "no list"},
    {"chunks", "[[]]", "no list of 5"},
    {"chunks", "[1]", "no list"},
    {"chunks", "[[1,2,3,4,5]]", "whose tensor is not"},
    {"chunks", "[[\"x\",2,3,4,5]]", "chunk of tensor x, which its model has not"},
    {"chunks", "[[\"transformer.wte.weight\",\"weight\",[0,0],[1,1],\"0123456789abcdef\",6]]",
     "no list of 5"},
};

static void test_values(void)
{
    begin();
    for (size_t i = 0; i < sizeof bad_value / sizeof *bad_value; i++) {
        enum err err = use_value(bad_value[i].key, bad_value[i].with);
        test_check(err == ERR_CHECKPOINT && strstr(err_text(), bad_value[i].say), __FILE__,
                   __LINE__, "%s: %s gave %d: %s", bad_value[i].key, bad_value[i].with, (int)err,
                   err_text());
    }
    CHECK_OK(use_text(good_text));
    end();
}

/* Numbers at and beyond every limit, words where numbers belong, in every place of a number. */
static void test_numbers(void)
{
    static const char *const value[] = {
        "-1", "-0", "2147483647", "2147483648", "4294967296", "9007199254740991",
        "9007199254740992", "9223372036854775807", "9223372036854775808", "18446744073709551615",
        "18446744073709551616", "99999999999999999999999999999999999999999", "1e3", "1e400",
        "1.5", "01", "+1", "NaN", "nan", "-Infinity", "null", "true", "\"1\"", "[1]", "{}", "", " ",
        "0x1"};
    static const char *const key[] = {
        "layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab", "seq", "bytes"};
    begin();
    for (size_t i = 0; i < sizeof value / sizeof *value; i++) {
        for (size_t k = 0; k < sizeof key / sizeof *key; k++)
            if (!CHECK(use_value(key[k], value[i]) == ERR_CHECKPOINT))
                printf("    %s: %s\n", key[k], value[i]);
        for (int place = 0; place < 4; place++) { /* of a chunk: at, at, n, n */
            const char *p = strchr(strchr(value_of("chunks"), '['), '[');
            p = strstr(p, "\"transformer.h.0.attn.c_attn.weight\"");
            for (int bracket = -1; p && bracket < place / 2; bracket++)
                p = strchr(p + 1, '[');
            if (p && place % 2)
                p = strchr(p, ',');
            if (!CHECK(p != NULL))
                continue;
            char *text = spliced(p + 1, value_end(p + 1) - p - 1, value[i]);
            if (!CHECK(use_text(text) == ERR_CHECKPOINT))
                printf("    place %d: %s\n", place, value[i]);
            mem_free(text);
        }
    }
    end();
}

/* The frame of the JSON. */
static void test_json(void)
{
    static const struct { const char *what, *with, *say; } bad[] = {
        {"{\"format\"", "[\"format\"", "no object"},
        {"{\"format\"", "\xef\xbb\xbf{\"format\"", "byte order mark"},
        {"{\"format\"", "\xff\xfe{\"format\"", "UTF-16"},
        {"\"format\"", "\"former\"", "has \"former\""},
        {"\"state\":", "\"state\":{},\"state\":", "has \"state\""},
        {"\"step\":", "\"step\":1,\"step\":", "has \"step\""},
        {"\"file\":", "\"file\":\"a\",\"file\":", "has \"file\""},
        {"\"file\":", "\"fill\":", "has \"fill\""},
        {"\"layers\":", "\"layer\":", "has \"layer\""},
        {"\"step\":", "\"steq\":", "has \"steq\""},
        {"\"transformer.wpe.weight\":", "\"transformer.xpe.weight\":", "its model has not"},
        {"\"transformer.wpe.weight\":", "\"transformer.wpe\\nweight\":", "name that is not 1"},
        {"\"weight\",", "\"bias\",", "not of a kind"},
        {"\"weight\",", "\"exp_avg\",", "which has"},
        {"\"tensors\":{", "\"tensors\":{,", "no key"},
        {"\"shards\":[", "\"shards\":[,", "no value"},
        {"]}]", "]}]}", "something behind"},
        {"\"shards\":", "\"hash\":1,\"shards\":", "has \"hash\""},
        {"\"format\":", "\"format\"=", "no colon"},
    };
    begin();
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        enum err err = use_swap(bad[i].what, bad[i].with);
        test_check(err == ERR_CHECKPOINT && strstr(err_text(), bad[i].say), __FILE__, __LINE__,
                   "%s -> %s gave %d: %s", bad[i].what, bad[i].with, (int)err, err_text());
    }
    const char *wpe = strstr(good_text, "\"transformer.wpe.weight\":");
    const char *wte = strstr(good_text, "\"transformer.wte.weight\":");
    char member[128], *twice;
    if (!CHECK(wpe && wte))
        return;
    snprintf(member, sizeof member, "%.*s", (int)(value_end(wte) - wte), wte);
    twice = spliced(wpe, value_end(wpe) - wpe, member);
    CHECK_ERR(use_text(twice), ERR_CHECKPOINT, "is there twice");
    mem_free(twice);
    for (size_t n = 0; n + 29 < strlen(good_text); n += 1 + strlen(good_text) / 300) {
        char *cut = spliced(good_text + n, (int64_t)strlen(good_text + n), "");
        CHECK(use_text(cut) == ERR_CHECKPOINT);
        mem_free(cut);
    }
    struct text deep = {0};
    text_add(&deep, "{\"format\":");
    text_add_char(&deep, '[', 1000000);
    CHECK_ERR(use_text(deep.s), ERR_CHECKPOINT, "nested too deep");
    text_free(&deep);
    end();
}

/* The loss of a validation goes into what can be read, in whatever form it is written, and is an
 * error of the file elsewhere. */
static void test_validated(void)
{
    struct state_index x;
    struct text t = {0};
    begin();
    CHECK_OK(state_index_validated(DIR_NAME, 2.5));
    char *plain = saved_index(DIR_NAME);
    const char *shards = strstr(good_text, ",\n\"shards\":");
    const char *hash = strstr(good_text, ",\n\"hash\"");
    if (!CHECK(shards && hash))
        return;
    text_add(&t, "{ %.*s, %.*s%s", (int)(hash - shards - 2), shards + 2,
             (int)(shards - good_text - 1), good_text + 1, hash); /* its shards come first */
    CHECK_OK(use_text(t.s));
    CHECK_OK(state_index_validated(DIR_NAME, 2.5));
    char *changed = saved_index(DIR_NAME);
    CHECK_STR(changed, plain);
    CHECK_OK(use());
    CHECK_OK(state_index_validated(DIR_NAME, 1.5)); /* what is there stays */
    CHECK_OK(state_index_open(&x, DIR_NAME));
    CHECK(x.head.valid_loss == 2.5);
    state_index_close(&x);
    char *marked = spliced(good_text, 0, "\xef\xbb\xbf");
    saved_put_index(DIR_NAME, marked);
    CHECK_ERR(state_index_validated(DIR_NAME, 2.5), ERR_CHECKPOINT, "byte order mark");
    mem_free(marked);
    mem_free(changed);
    mem_free(plain);
    text_free(&t);
    end();
}

/* ---- the files ---- */

static void copy_file(const char *from, const char *to)
{
    struct fs_map m;
    CHECK_OK(fs_map_open(&m, from, ERR_CHECKPOINT));
    CHECK_OK(fs_put(to, m.data, m.size));
    fs_map_close(&m);
}

/* The shard is something else. */
static void test_places(void)
{
    static const char index[] = DIR_NAME "/index.json";
    begin();
    copy_file(SHARD0, DIR_NAME "/kept");
    CHECK(unlink(SHARD0) == 0);
    CHECK_ERR(use(), ERR_CHECKPOINT, "rank-00000.safetensors");
    CHECK(symlink("kept", SHARD0) == 0);
    CHECK_ERR(use(), ERR_CHECKPOINT, "symbolic link");
    CHECK(unlink(SHARD0) == 0 && mkfifo(SHARD0, 0600) == 0);
    CHECK_ERR(use(), ERR_CHECKPOINT, "not a regular file");
    CHECK(unlink(SHARD0) == 0 && mkdir(SHARD0, 0700) == 0);
    CHECK_ERR(use(), ERR_CHECKPOINT, "a folder");
    CHECK(rmdir(SHARD0) == 0 && link(DIR_NAME "/kept", SHARD0) == 0);
    CHECK_OK(use());
    CHECK(rename(index, DIR_NAME "/index.kept") == 0);
    CHECK_ERR(use(), ERR_CHECKPOINT, "index.json");
    CHECK(symlink("index.kept", index) == 0);
    CHECK_ERR(use(), ERR_CHECKPOINT, "symbolic link");
    CHECK(unlink(index) == 0 && mkfifo(index, 0600) == 0);
    CHECK_ERR(use(), ERR_CHECKPOINT, "not a regular file");
    CHECK(unlink(index) == 0 && mkdir(index, 0700) == 0);
    CHECK_ERR(use(), ERR_CHECKPOINT, "a folder");
    CHECK(rmdir(index) == 0);
    saved_put_raw(DIR_NAME, "");
    CHECK_ERR(use(), ERR_CHECKPOINT, "index.json has 0 bytes");
    saved_put_raw(DIR_NAME, "{\"format\":\"plait checkpoint 1\",\"step\":10}");
    CHECK_ERR(use(), ERR_CHECKPOINT, "index.json does not end with the hash");
    CHECK_ERR(use_text(""), ERR_CHECKPOINT, "no object");
    CHECK(truncate(index, STATE_INDEX_MAX + (int64_t)1) == 0);
    CHECK_ERR(use(), ERR_CHECKPOINT, "at most");
    CHECK(unlink(index) == 0 && unlink(DIR_NAME "/index.kept") == 0);
    end();
}

/* Shards of another save, and of this one in other places. */
static void test_mixed(void)
{
    static const char other[] = DIR_NAME "/other";
    char *kept = NULL;
    begin();
    CHECK(rename(SHARD0, DIR_NAME "/kept") == 0 && rename(SHARD1, SHARD0) == 0);
    CHECK(rename(DIR_NAME "/kept", SHARD1) == 0);
    CHECK_ERR(use(), ERR_CHECKPOINT, "rank-0000"); /* sizes */
    struct text swapped = {0};
    const char *p = strstr(good_text, "rank-00000"), *q = strstr(good_text, "rank-00001");
    if (CHECK(p && q))
        text_add(&swapped, "%.*srank-00001%.*srank-00000%s", (int)(p - good_text), good_text,
                 (int)(q - p - 10), p + 10, q + 10);
    CHECK_OK(text_done(&swapped, &kept));
    CHECK_OK(use_text(kept)); /* names of files mean nothing */
    mem_free(kept);
    struct { const char *run, *say; int64_t step; double value; } as[] = {
        {good.head.run, "is of step", good.head.step + 1, 0},
        {"another", "is of run", good.head.step, 0},
        {good.head.run, "has the hash", good.head.step, 1},
    };
    for (int i = 0; i < 3; i++) {
        struct state_head head = good.head;
        double *v = good.value[STATE_M][0], was = v[0];
        CHECK_OK(saved_write(&good, DIR_NAME, -1));
        snprintf(good.head.run, sizeof good.head.run, "%s", as[i].run);
        good.head.step = as[i].step;
        v[0] += as[i].value;
        CHECK_OK(fs_make_dirs(other));
        CHECK_OK(saved_write(&good, other, -1));
        for (int r = 0; r < 2; r++)
            copy_file(r ? DIR_NAME "/other/rank-00001.safetensors"
                        : DIR_NAME "/other/rank-00000.safetensors", r ? SHARD1 : SHARD0);
        enum err err = use();
        if (err == ERR_CHECKPOINT && strstr(err_text(), " bytes, it has ")) /* 9 became 10 */
            as[i].say = "bytes";
        test_check(err == ERR_CHECKPOINT && strstr(err_text(), as[i].say), __FILE__, __LINE__,
                   "mix %d gave %d: %s", i, (int)err, err_text());
        good.head = head;
        v[0] = was;
    }
    end();
}

static void flip(const char *path, int64_t at, int bit)
{
    uint8_t c = 0;
    int fd = open(path, O_RDWR);
    CHECK(fd >= 0 && pread(fd, &c, 1, at) == 1);
    c ^= (uint8_t)(1 << bit);
    CHECK(pwrite(fd, &c, 1, at) == 1);
    CHECK(close(fd) == 0);
}

/* Each bit of the index, and each cut of it. */
static void test_index_bits(void)
{
    begin();
    int64_t size = (int64_t)strlen(good_text);
    for (int64_t i = 0; i < 9 * size; i++) {
        struct state_index x = {0};
        int64_t at = i / 9, bit = i % 9; /* bit 8: what is from here on is missing */
        struct fs_map m = {(const uint8_t *)good_text, bit < 8 ? size : at};
        char was = good_text[at];
        good_text[at] = (char)(was ^ (bit < 8 ? 1 << bit : 0));
        CHECK_OK(mem_string(DIR_NAME "/index.json", &x.path));
        enum err err = state_index_parse(&x, &m);
        test_check(err == ERR_CHECKPOINT && strstr(err_text(), DIR_NAME "/index.json"), __FILE__,
                   __LINE__, "byte %lld, bit %lld gave %d: %s", (long long)at, (long long)bit,
                   (int)err, err_text());
        state_index_close(&x);
        good_text[at] = was;
    }
    saved_put_raw(DIR_NAME, good_text);
    CHECK_OK(use());
    flip(DIR_NAME "/index.json", strstr(good_text, "\"data_hash\"") - good_text + 15, 0);
    CHECK_ERR(use(), ERR_CHECKPOINT, "index.json has the hash");
    end();
}

/* One bit of a shard, in each place of the header (which has gaps of its own) and of the data. */
static void test_bits(void)
{
    begin();
    for (int f = 0; f < 2; f++) {
        const char *path = f ? SHARD1 : SHARD0;
        struct stat st;
        CHECK(stat(path, &st) == 0);
        int64_t size = st.st_size;
        for (int64_t at = 0; at < size; at += at < 300 ? 1 : 1 + size / 500) {
            int bit = (int)test_range(0, 7);
            flip(path, at, bit);
            enum err err = use();
            test_check(err == ERR_CHECKPOINT && strstr(err_text(), path), __FILE__, __LINE__,
                       "byte %lld, bit %d of %s gave %d: %s", (long long)at, bit, path, (int)err,
                       err_text());
            flip(path, at, bit);
        }
        for (int64_t cut = 1; cut < size; cut += 1 + size / 100) {
            copy_file(path, DIR_NAME "/kept");
            CHECK(truncate(path, size - cut) == 0);
            CHECK_ERR(use(), ERR_CHECKPOINT, "it is cut or of another save");
            CHECK(rename(DIR_NAME "/kept", path) == 0);
        }
        CHECK(truncate(path, size + 1) == 0);
        CHECK_ERR(use(), ERR_CHECKPOINT, "it is cut or of another save");
        CHECK(truncate(path, size) == 0);
    }
    CHECK_OK(use());
    end();
}

/* Each chunk's hash, box or place in the index is another's: one is found wrong, by name. */
static void test_chunks(void)
{
    begin();
    const char *p = value_of("chunks");
    for (int i = 0; i < 60 && (p = strstr(p, "\n[\"")); p++) {
        const char *stop = value_end(p + 1), *hash = stop - 19;
        char *text = spliced(hash, 18, "\"0123456789abcdef\"");
        CHECK_ERR(use_text(text), ERR_CHECKPOINT, "says 0123456789abcdef; the file is damaged");
        mem_free(text);
        bool last = *stop != ',';
        text = spliced(p + 1, stop - p - 1 + !last, "");
        if (!last)
            CHECK_ERR(use_text(text), ERR_CHECKPOINT, "which has");
        mem_free(text);
        char twice[512];
        snprintf(twice, sizeof twice, "%.*s,", (int)(stop - p - 1), p + 1);
        text = spliced(p + 1, 0, twice);
        CHECK_ERR(use_text(text), ERR_CHECKPOINT, "overlap");
        mem_free(text);
        i++;
    }
    end();
}

/* ---- size ---- */

static void add_many(struct text *t, int tensor_rows, int n)
{
    for (int i = 0; i < n; i++)
        text_add(t, "%s\n[\"transformer.wte.weight\",\"weight\",[%d,0],[%d,4],"
                    "\"0123456789abcdef\"]", i ? "," : "", i * (tensor_rows / n), tensor_rows / n);
}

/* An index of n chunks of the embedding and one of each other tensor; the seconds of the processor
 * that it takes to refuse its one shard, which is not there. */
static double seconds_of(int n)
{
    struct model a = {.kind = MODEL_GPT, .layers = 1, .hidden = 4, .heads = 2, .kv_heads = 2,
                      .head_dim = 2, .ffn = 4, .vocab = 1 << 20, .seq = 4, .tied = true};
    struct state_head head = {.model = a, .type = SAFET_F32, .world = 1, .run = "r"};
    struct text t = {0};
    struct safet_entry *tensor;
    struct timespec from, to;
    struct state_index x;
    int tensors;
    CHECK_OK(hf_sorted_entries(&a, &tensor, &tensors));
    text_add(&t, "{\"format\":\"" STATE_FORMAT "\",");
    state_head_add(&head, &t);
    for (int i = 0; i < tensors; i++)
        text_add(&t, tensor[i].nd == 2 ? "%s\"%s\":[%lld,%lld]" : "%s\"%s\":[%lld]",
                 i ? "," : ",\"tensors\":{", tensor[i].name, (long long)tensor[i].shape[0],
                 (long long)tensor[i].shape[1]);
    text_add(&t, "},\"shards\":[{\"file\":\"none\",\"bytes\":1,\"hash\":\"0123456789abcdef\","
                 "\"chunks\":[");
    add_many(&t, 1 << 20, n);
    for (int i = 0; i < tensors * STATE_KINDS; i++) {
        const struct safet_entry *s = &tensor[i / STATE_KINDS];
        const char *kind = state_kind_name[i % STATE_KINDS];
        if (i % STATE_KINDS == 0 && strcmp(s->name, "transformer.wte.weight") == 0)
            continue;
        text_add(&t, s->nd == 2 ? ",[\"%s\",\"%s\",[0,0],[%lld,%lld],\"0123456789abcdef\"]"
                                : ",[\"%s\",\"%s\",[0],[%lld],\"0123456789abcdef\"]",
                 s->name, kind, (long long)s->shape[0], (long long)s->shape[1]);
    }
    text_add(&t, "]}]");
    CHECK_OK(fs_make_dirs(DIR_NAME "/many"));
    saved_put_index(DIR_NAME "/many", t.s);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
    CHECK_ERR(state_index_open(&x, DIR_NAME "/many"), ERR_CHECKPOINT, "many/none");
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
    text_free(&t);
    mem_free(tensor);
    return (double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec);
}

/* 2^17 chunks take below a second, and eight times as many hardly more than eight times that. */
static void test_many(void)
{
    double few = seconds_of(1 << 14), many = seconds_of(1 << 17);
    printf("     2^17 chunks: %.3f s, 2^14: %.3f s\n", many, few);
    CHECK(many < 1 || many < 20 * few); /* sanitizers take longer */
}

static const struct test_case cases[] = {
    {"values", test_values}, {"numbers", test_numbers}, {"json", test_json},
    {"places", test_places}, {"mixed", test_mixed},     {"bits", test_bits},
    {"chunks", test_chunks}, {"index_bits", test_index_bits},
    {"many", test_many},     {"validated", test_validated},
};
TEST_MAIN(cases)
