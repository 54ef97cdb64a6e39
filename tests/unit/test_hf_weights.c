/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights in shards: indices that lie about names, files, sizes and tensors; every value of half
 * precision; tensors that no parameter reads.
 */
#include "ckpt/state_local.h"
#include "ckpt/weights.h"
#include "test.h"

#include "base/mem.h"
#include "base/text.h"
#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define DIR_NAME "hf_weights"
static const char index_path[] = DIR_NAME "/model.safetensors.index.json";

static void put(const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", DIR_NAME, name);
    CHECK_OK(fs_make_dirs(DIR_NAME));
    CHECK_OK(fs_put(path, text, (int64_t)strlen(text)));
}

/* A file of f32 tensors of two elements each, by name. */
static void put_shard(const char *name, const char *const *tensor)
{
    struct safet_entry e[8] = {0};
    struct safet_writer w;
    char path[512];
    int n = 0;
    snprintf(path, sizeof path, "%s/%s", DIR_NAME, name);
    for (; tensor[n]; n++) {
        e[n] = (struct safet_entry){.type = SAFET_F32, .nd = 1, .shape = {2}};
        snprintf(e[n].name, sizeof e[n].name, "%s", tensor[n]);
    }
    CHECK_OK(fs_make_dirs(DIR_NAME));
    CHECK_OK(safet_create(&w, path, false, e, n, NULL));
    for (int i = 0; i < n; i++)
        CHECK_OK(safet_write(&w, (float[]){(float)i, 1}, 8));
    CHECK_OK(safet_commit(&w));
}

static void put_shards(void)
{
    put_shard("m-1.safetensors", (const char *const[]){"a", "c", NULL});
    put_shard("m-2.safetensors", (const char *const[]){"b", NULL});
    (void)unlink(DIR_NAME "/model.safetensors");
    (void)unlink(index_path);
}

static enum err open_index(const char *text, struct hf_weights *w)
{
    put("model.safetensors.index.json", text);
    return hf_weights_open(w, DIR_NAME);
}

#define MAP(map) "{\"metadata\":{\"total_size\":24},\"weight_map\":{" map "}}"
#define GOOD "\"a\":\"m-1.safetensors\",\"b\":\"m-2.safetensors\",\"c\":\"m-1.safetensors\""

static void test_shards(void)
{
    struct hf_weights w;
    put_shards();
    CHECK_OK(open_index(MAP(GOOD), &w));
    CHECK_INT(w.files, 2);
    struct hf_tensor b = hf_weights_find(&w, "b"), c = hf_weights_find(&w, "c");
    CHECK(b.entry && c.entry && b.file != c.file);
    CHECK_STR(c.entry->name, "c");
    CHECK(!hf_weights_find(&w, "d").entry);
    uint64_t digest = hf_weights_digest(&w);
    hf_weights_close(&w);
    CHECK_OK(open_index("{\"weight_map\":{" GOOD "},\"x\":[{}]}", &w));
    CHECK(hf_weights_digest(&w) == digest);
    hf_weights_close(&w);
    put_shard("m-2.safetensors", (const char *const[]){"b2", NULL});
    put_shard("model.safetensors", (const char *const[]){"a", NULL});
    CHECK_ERR(hf_weights_open(&w, DIR_NAME), ERR_CHECKPOINT, "has both model.safetensors and");
    CHECK_INT(w.files, 0);
    CHECK(unlink(index_path) == 0);
    CHECK_OK(hf_weights_open(&w, DIR_NAME));
    CHECK_INT(w.files, 1);
    CHECK(hf_weights_digest(&w) != digest);
    hf_weights_close(&w);
}

static void test_lies(void)
{
    static const struct { const char *text, *say; } bad[] = {
        {"", "no object"},
        {"[]", "no object"},
        {"{}", "has no weight_map"},
        {"{\"weight_map\":{}}", "names no tensor"},
        {"{\"weight_map\":[]}", "weight_map"},
        {"{\"weight_map\":3}", "weight_map"},
        {"{\"weight_map\":{\"a\":1}}", "file's name in weight_map"},
        {"{\"weight_map\":{\"a\":null}}", "file's name in weight_map"},
        {"{\"weight_map\":{\"\":\"m-1.safetensors\"}}", "tensor's name in weight_map"},
        {"{\"weight_map\":{\"a\\n\":\"m-1.safetensors\"}}", "tensor's name in weight_map"},
        {"{\"weight_map\":{\"a\":\"m\\u0000\"}}", "NUL"},
        {"{\"weight_map\":{" GOOD "},\"weight_map\":{" GOOD "}}", "weight_map twice"},
        {"{\"metadata\":{},\"metadata\":{},\"weight_map\":{" GOOD "}}", "metadata twice"},
        {"{\"metadata\":{\"total_size\":-1},\"weight_map\":{" GOOD "}}", "no count of bytes"},
        {"{\"metadata\":{\"total_size\":\"24\"},\"weight_map\":{" GOOD "}}", "no count of bytes"},
        {"{\"metadata\":{\"total_size\":25},\"weight_map\":{" GOOD "}}",
         "total_size 25, its 2 files hold 24 bytes"},
        {"{\"metadata\":{\"total_size\":9007199254740993},\"weight_map\":{" GOOD "}}", "no count"},
        {MAP("\"a\":\"../hf_weights/m-1.safetensors\""), "only files of the folder itself"},
        {MAP("\"a\":\"/etc/passwd\""), "only files of the folder itself"},
        {MAP("\"a\":\"..\""), "only files of the folder itself"},
        {MAP("\"a\":\".\""), "only files of the folder itself"},
        {MAP("\"a\":\"\""), "file's name in weight_map"},
        {MAP("\"a\":\"m 1.safetensors\""), "only files of the folder itself"},
        {MAP("\"a\":\"m\\\\1\""), "only files of the folder itself"},
        {MAP("\"a\":\"link.safetensors\""), "symbolic link"},
        {MAP("\"a\":\"fifo\""), "not a regular file"},
        {MAP("\"a\":\"folder\""), "a folder"},
        {MAP("\"a\":\"none.safetensors\""), "none.safetensors"},
        {MAP("\"a\":\"text.safetensors\""), "text.safetensors"},
        {MAP(GOOD ",\"d\":\"m-1.safetensors\""), "tensor d is missing in"},
        {MAP("\"a\":\"m-1.safetensors\",\"b\":\"m-2.safetensors\""), "has tensor c, which"},
        {MAP("\"a\":\"m-1.safetensors\",\"b\":\"m-1.safetensors\",\"c\":\"m-1.safetensors\""),
         "tensor b is missing in"},
        {MAP(GOOD ",\"a\":\"m-2.safetensors\""), "names tensor a twice, in"},
        {MAP(GOOD ",\"a\":\"m-3.safetensors\""), "names tensor a twice, in"},
    };
    struct hf_weights w;
    put_shards();
    put("text.safetensors", "no weights at all");
    (void)unlink(DIR_NAME "/link.safetensors");
    CHECK(symlink("m-1.safetensors", DIR_NAME "/link.safetensors") == 0);
    (void)unlink(DIR_NAME "/fifo");
    CHECK(mkfifo(DIR_NAME "/fifo", 0600) == 0);
    CHECK_OK(fs_make_dirs(DIR_NAME "/folder"));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_ERR(open_index(bad[i].text, &w), ERR_CHECKPOINT, bad[i].say);
    /* The same tensor in two shards, of which the index names one. */
    put_shard("m-2.safetensors", (const char *const[]){"a", "b", NULL});
    CHECK_ERR(open_index(MAP(GOOD), &w), ERR_CHECKPOINT, "has tensor a, which");
}

/* An index cut anywhere, damaged, of many tensors, nested deep: an error or a set that fits. */
/* A mark of the byte order is passed over, and every refusal is a sentence. */
static void test_marks(void)
{
    static const struct { const char *text, *say; } bad[] = {
        {"\xef\xbb\xbf[]", "index.json has no object at byte 3; it is"},
        {"[]", "index.json has no object at byte 0; it is"},
        {"{\"a\\q\":1}", "index.json has an unknown escape in a string at byte 4; it is"},
        {"{\"a\":1 \"b\":2}", "index.json has no comma between two members at byte 7; it is"},
        {"{", "index.json has no key where one is expected at byte 1; it is"},
        {"\xff\xfe{", "index.json begins with the byte order mark of UTF-16; save it as UTF-8"},
        {"\xfe\xff{", "index.json begins with the byte order mark of UTF-16; save it as UTF-8"},
        {"{\"\xff\"", "index.json has no UTF-8 at byte 2; it is"},
    };
    struct hf_weights w;
    put_shards();
    CHECK_OK(open_index("\xef\xbb\xbf" MAP(GOOD), &w));
    CHECK_INT(w.files, 2);
    hf_weights_close(&w);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_ERR(open_index(bad[i].text, &w), ERR_CHECKPOINT, bad[i].say);
}

static void test_damage(void)
{
    static const char good[] = MAP(GOOD);
    struct hf_weights w;
    char text[sizeof good];
    struct text many = {0};
    char *s;
    put_shards();
    for (size_t n = 0; n < sizeof good - 1; n++) {
        memcpy(text, good, n);
        text[n] = '\0';
        CHECK_ERR(open_index(text, &w), ERR_CHECKPOINT, "index.json");
    }
    for (int round = 0; round < 400; round++) {
        memcpy(text, good, sizeof good);
        for (int64_t k = test_range(1, 2); k-- > 0;)
            text[test_range(0, (int64_t)sizeof good - 2)] =
                "{}[]\",:0123456789-./abcm\\u"[test_range(0, 25)];
        enum err err = open_index(text, &w);
        CHECK(err == ERR_OK || err == ERR_CHECKPOINT);
        hf_weights_close(&w);
    }
    text_add(&many, "{\"weight_map\":{");
    for (int i = 0; i < 100000; i++)
        text_add(&many, "%s\"t%d\":\"m-%d.safetensors\"", i ? "," : "", i, i % 3);
    text_add(&many, "}}");
    CHECK_OK(text_done(&many, &s));
    CHECK_ERR(open_index(s, &w), ERR_CHECKPOINT, "m-0.safetensors");
    mem_free(s);
    text_add(&many, "{\"x\":");
    text_add_char(&many, '[', 100000);
    CHECK_OK(text_done(&many, &s));
    CHECK_ERR(open_index(s, &w), ERR_CHECKPOINT, "nested too deep");
    mem_free(s);
}

/* All 65,536, by the definition: (-1)^s * 2^(e - 15) * (1 + f / 1024), or 2^-14 * f / 1024. */
static void test_half(void)
{
    static const char header[] =
        "{\"h\":{\"dtype\":\"F16\",\"shape\":[65536],\"data_offsets\":[0,131072]}}";
    static double value[65536];
    struct safet_file f;
    uint8_t *p;
    int64_t n = (int64_t)sizeof header - 1;
    CHECK_OK(mem_new(8 + n + 131072, 1, "a test file", &p));
    p[0] = (uint8_t)n;
    memcpy(p + 8, header, (size_t)n);
    for (int i = 0; i < 65536; i++) {
        p[8 + n + 2 * i] = (uint8_t)i;
        p[8 + n + 2 * i + 1] = (uint8_t)(i >> 8);
    }
    CHECK_OK(safet_open_bytes(&f, "test", p, 8 + n + 131072));
    state_copy(&(struct state_span){(uint8_t *)value, SAFET_F64, {1, 1}},
               &(struct state_span){p + 8 + n, SAFET_F16, {1, 1}}, (int64_t[2]){1, 65536});
    for (int i = 0; i < 65536; i++) {
        double got = value[i], fraction = i % 1024 / 1024.0;
        int e = i / 1024 % 32;
        double want = e == 31  ? (i % 1024 ? NAN : INFINITY)
                      : e == 0 ? ldexp(fraction, -14)
                               : ldexp(1 + fraction, e - 15);
        want = i >= 32768 ? -want : want;
        test_check(isnan(want) ? isnan(got) : got == want && signbit(got) == signbit(want),
                   __FILE__, __LINE__, "%04x is %g, wanted %g", (unsigned)i, got, want);
    }
    safet_close(&f);
    mem_free(p);
}

/* ---- tensors that nothing reads ---- */

static const struct model gpt = {.kind = MODEL_GPT, .layers = 1, .hidden = 2, .heads = 1,
                                 .kv_heads = 1, .head_dim = 2, .ffn = 2, .vocab = 2, .seq = 2,
                                 .tied = true, .norm_eps = 1e-5, .init_std = 0.02};
static const struct model llama = {.kind = MODEL_LLAMA, .layers = 1, .hidden = 2, .heads = 1,
                                   .kv_heads = 1, .head_dim = 2, .ffn = 2, .vocab = 2, .seq = 2,
                                   .tied = true, .norm_eps = 1e-5, .rope_theta = 1e4,
                                   .init_std = 0.02};

static float more_begins = 5; /* the first element of that one; 5: as the embedding's */

/* A file of a model's tensors, of 2 elements each, without prefix, and one more. */
static enum err check_with(const struct model *a, const char *more, bool prefix)
{
    struct model_param *param;
    const char *names[40];
    struct hf_place place[39];
    struct hf_weights w;
    int n, count = 0;
    CHECK_OK(model_param_list(a, &param, &n));
    for (int i = 0; i < n; i++) {
        hf_place(a, &param[i], &place[count]);
        const char *name = place[count].tensor;
        names[count] = prefix ? name : strchr(name, '.') + 1;
        count += count == 0 || strcmp(names[count - 1], names[count]) != 0;
    }
    names[count++] = more;
    names[count] = NULL;
    mem_free(param);
    struct safet_entry e[40] = {0};
    struct safet_writer out;
    for (int i = 0; i < count; i++) {
        e[i] = (struct safet_entry){.type = SAFET_F32, .nd = 1, .shape = {2}};
        snprintf(e[i].name, sizeof e[i].name, "%s", names[i]);
    }
    (void)unlink(index_path);
    CHECK_OK(fs_make_dirs(DIR_NAME));
    CHECK_OK(safet_create(&out, DIR_NAME "/model.safetensors", false, e, count, NULL));
    for (int i = 0; i < count; i++)
        CHECK_OK(safet_write(&out, (float[]){i == 0 ? 5 : i == count - 1 ? more_begins : 6, 7}, 8));
    CHECK_OK(safet_commit(&out));
    CHECK_OK(hf_weights_open(&w, DIR_NAME));
    enum err err = weights_check_rest(&(struct weights){.files = w}, a);
    hf_weights_close(&w);
    return err;
}

static void test_rest(void)
{
    static const struct { const struct model *a; const char *more; bool good; } cases[] = {
        {&gpt, "h.0.attn.bias", true},
        {&gpt, "transformer.h.0.attn.masked_bias", true},
        {&gpt, "lm_head.weight", true}, /* the embedding's bytes */
        {&gpt, "h.1.ln_1.weight", false},
        {&gpt, "h.0.attn.rotary_emb.inv_freq", false},
        {&gpt, "score.weight", false},
        {&llama, "model.layers.0.self_attn.rotary_emb.inv_freq", true},
        {&llama, "lm_head.weight", true},
        {&llama, "model.layers.0.self_attn.q_proj.bias", false},
        {&llama, "model.layers.0.self_attn.q_norm.weight", false},
        {&llama, "model.layers.1.input_layernorm.weight", false},
        {&llama, "model.layers.0.self_attn.attn.bias", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int prefix = 0; prefix < 2; prefix++) {
            enum err err = check_with(cases[i].a, cases[i].more, prefix);
            test_check(err == (cases[i].good ? ERR_OK : ERR_CHECKPOINT), __FILE__, __LINE__,
                       "%s: %d %s", cases[i].more, (int)err, err_text());
            if (!cases[i].good)
                CHECK(strstr(err_text(), cases[i].more) != NULL);
        }
    /* One tensor under both names: the second is read by nobody. */
    CHECK_ERR(check_with(&gpt, "wte.weight", true), ERR_CHECKPOINT, "has tensor wte.weight");
    more_begins = 8;
    CHECK_ERR(check_with(&gpt, "lm_head.weight", true), ERR_CHECKPOINT, "is not the embedding");
    CHECK_ERR(check_with(&llama, "lm_head.weight", false), ERR_CHECKPOINT, "is not the embedding");
    more_begins = 5;
    struct model untied = gpt;
    untied.tied = false;
    CHECK_OK(check_with(&untied, "h.0.attn.bias", true));
}

static const struct test_case cases[] = {
    {"marks", test_marks},
    {"shards", test_shards},
    {"an index that lies", test_lies},
    {"a damaged index", test_damage},
    {"half precision", test_half},
    {"tensors that nothing reads", test_rest},
};
TEST_MAIN(cases)
