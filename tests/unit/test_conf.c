/* SPDX-License-Identifier: Apache-2.0
 *
 * The option table on a small table of its own: every type, every refusal, and hostile YAML. What
 * is refused must leave the configuration as it was.
 */
#include "base/conf.h"

#include "base/mem.h"
#include "test.h"

#include <stdlib.h>
#include <unistd.h>

struct sample {
    int64_t layers, seed;
    double rate;
    bool tied;
    int kind;
    char path[64];
    struct conf_names names;
    struct conf_ints widths;
};

static const struct conf_row rows[] = {
    {"model.kind", CONF_WORD, offsetof(struct sample, kind), 0, "gpt", 0, 0, "gpt|llama",
     "family of the model"},
    {"model.layers", CONF_INT, offsetof(struct sample, layers), 0, "2", 1, 1000, NULL, "blocks"},
    {"model.tied", CONF_BOOL, offsetof(struct sample, tied), 0, "false", 0, 0, NULL, "tied"},
    {"train.rate", CONF_REAL, offsetof(struct sample, rate), 0, "0.1", 0, 1, NULL, "rate"},
    {"train.seed", CONF_INT, offsetof(struct sample, seed), 0, "1", 0, 9007199254740992.0, NULL,
     "seed"},
    {"data.train", CONF_STRING, offsetof(struct sample, path), 64, "", 0, 0, NULL, "token file"},
    {"data.names", CONF_NAMES, offsetof(struct sample, names), 0, "[]", 0, 0, NULL, "some names"},
    {"data.widths", CONF_INTS, offsetof(struct sample, widths), 0, "[8, 4]", 1, 1000, NULL,
     "some widths"},
};
enum { ROWS = sizeof rows / sizeof *rows };
static const struct conf_hint hints[] = {
    {"model.kind", "l|meta", "llama", NULL},
    {"model.kind", "bert", NULL, "encoders are not served"},
};
static const struct conf_alias aliases[] = {
    {"n_layer|num-layers", "model.layers", NULL},
    {"warmth", "train.rate", "a rate, not degrees"},
    {"bf16.enabled", "model.kind", "gpt is enough"},
    {"bias", NULL, "there are none"},
    {"training", "train", NULL},
    {NULL, NULL, NULL},
};
static const struct conf_retired retired[] = {
    {"train.heat", "false|no", "rooms are cold"}, {"model.gone", NULL, NULL}, {NULL, NULL, NULL}};
static const struct conf_table table = {rows,    ROWS,   sizeof(struct sample), 0, hints, 2,
                                        aliases, retired};

static struct sample fresh(void)
{
    struct sample s;
    CHECK_OK(conf_defaults(&table, &s));
    return s;
}

static enum err read_into(struct sample *s, const char *text)
{
    return conf_read_text(&table, s, "run.yaml", text, (int64_t)strlen(text));
}

/* Refused with a message that has `part`, and nothing changed. */
static void refused(const char *text, int64_t n, const char *part)
{
    struct sample s = fresh(), before = s;
    CHECK_ERR(conf_read_text(&table, &s, "run.yaml", text, n), ERR_CONFIG, part);
    test_check(memcmp(&s, &before, sizeof s) == 0, __FILE__, __LINE__, "%s changed the struct",
               text);
}

static void defaults_are_the_presets(void)
{
    struct sample s = fresh();
    CHECK_INT(s.layers, 2);
    CHECK_INT(s.seed, 1);
    CHECK(s.rate == 0.1);
    CHECK(!s.tied);
    CHECK_INT(s.kind, 0);
    CHECK_STR(s.path, "");
    CHECK_INT(s.names.n, 0);
    CHECK(s.widths.n == 2 && s.widths.v[0] == 8 && s.widths.v[1] == 4);
}

static void file_overrides_defaults(void)
{
    struct sample s = fresh();
    CHECK_OK(read_into(&s, "# a comment\nmodel:\n  layers: 7\n  kind: 'llama'\n  tied: yes\n"
                           "train: {rate: 2.5e-1}\ndata:\n  train: \"a \\\"b\\\" \\\\ c\"\n"));
    CHECK_INT(s.layers, 7);
    CHECK_INT(s.kind, 1);
    CHECK(s.tied);
    CHECK(s.rate == 0.25);
    CHECK_STR(s.path, "a \"b\" \\ c");
    CHECK_INT(s.seed, 1);
}

static void empty_files_are_legal(void)
{
    static const char *const text[] = {"", "\n", "# nothing\n", "---\n", "model:\n", "{}\n"};
    for (size_t i = 0; i < sizeof text / sizeof *text; i++) {
        struct sample s = fresh(), before = s;
        CHECK_OK(read_into(&s, text[i]));
        CHECK(memcmp(&s, &before, sizeof s) == 0);
    }
}

static void values_are_checked(void)
{
    static const struct { const char *text, *part; } bad[] = {
        {"model:\n  layers: 0\n", "run.yaml:2: model.layers 0 is outside 1 to 1000; the nearest "
                                  "legal value is 1"},
        {"model:\n\n  layers: 1001\n", "run.yaml:3: model.layers 1001 is outside 1 to 1000; the "
                                       "nearest legal value is 1000"},
        {"model:\n  layers: 99999999999999999999\n", "1 to 1000; the nearest legal value is 1000"},
        {"model:\n  layers: -9223372036854775809\n", "1000; the nearest legal value is 1"},
        {"model:\n  layers: 9223372036854775807\n", "is outside 1 to 1000"},
        {"model:\n  layers: 4.5\n", "\"4.5\", which is not whole, wanted is a whole number"},
        {"model:\n  layers: 1e-1\n", "\"1e-1\", which is not whole, wanted is a whole number"},
        {"model:\n  layers: 1e400\n", "\"1e400\", which is larger than any number kept here, wan"},
        {"model:\n  layers: 1e4\n", "layers 10000 is outside 1 to 1000"},
        {"model:\n  layers: 0x10\n", "wanted is a whole number"},
        {"model:\n  layers: 1_0\n", "wanted is a whole number"},
        {"model:\n  layers: 1k\n", "wanted is a whole number"},
        {"model:\n  layers: \" 4\"\n", "wanted is a whole number"},
        {"model:\n  layers:\n", "model.layers has no value"},
        {"model:\n  layers: ~\n", "model.layers is null"},
        {"model:\n  kind: lama\n", "wanted is one of gpt|llama; the nearest is llama"},
        {"model:\n  kind: zzz\n", "wanted is one of gpt|llama"},
        {"model:\n  tied: maybe\n", "model.tied is \"maybe\", wanted is true or false"},
        {"train:\n  rate: .inf\n", "wanted is a number from 0 to 1"},
        {"train:\n  rate: nan\n", "wanted is a number from 0 to 1"},
        {"train:\n  rate: 1e400\n", "which is larger than any number kept here, wanted is a number "
                                    "from 0 to 1; the nearest legal value is 1"},
        {"train:\n  rate: 0x1p-2\n", "wanted is a number from 0 to 1"},
        {"train:\n  rate: 1.5\n", "train.rate 1.5 is outside 0 to 1; the nearest legal value is 1"},
        {"train:\n  rate: 1e-400\n", "too small to be kept, wanted is a number from 0 to 1; the "
                                     "nearest legal value is 0"},
        {"train:\n  rate: 0,5\n", "wanted is a number from 0 to 1"},
        {"train:\n  rate: \" 0.5\"\n", "wanted is a number from 0 to 1"},
        {"train:\n  rate: 1e\n", "wanted is a number from 0 to 1"},
        {"train:\n  seed: -1\n", "is outside 0 to 9007199254740992"},
        {"train:\n  seed: 9007199254740993\n", "seed 9007199254740993 is outside 0 to "
                                               "9007199254740992"},
        {"data:\n  train: \"a\\u202eb\"\n", "data.train holds control characters"},
        {"data:\n  train: \"a\\x01b\"\n", "data.train holds control characters"},
        {"data:\n  train: \"a\\0b\"\n", "holds a NUL"},
        {"data:\n  train: |\n    two\n    lines\n", "data.train holds control characters"},
        {"data:\n  train: 0123456789012345678901234567890123456789012345678901234567890123\n",
         "has 64 bytes; at most 63 are kept"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        refused(bad[i].text, (int64_t)strlen(bad[i].text), bad[i].part);
}

/* A hint goes before distance, in any case, for its key alone and for whole words. */
static void other_words_are_understood(void)
{
    static const struct { const char *word, *part; } bad[] = {
        {"model.kind=L", "\"L\", wanted is one of gpt|llama; the nearest is llama"},
        {"model.kind=Meta", "wanted is one of gpt|llama; the nearest is llama"},
        {"model.kind=albert", "wanted is one of gpt|llama"},
        {"model.kind=BERT", "wanted is one of gpt|llama; encoders are not served"},
        {"model.kind=GPT", "wanted is one of gpt|llama; the nearest is gpt"},
        {"model.kind=l|meta", "wanted is one of gpt|llama"},
        {"model.tied=on", "\"on\", wanted is true or false; the nearest is true"},
        {"model.tied=1", "the nearest is true"},
        {"model.tied=TRUE", "the nearest is true"},
        {"model.tied=Yes", "the nearest is true"},
        {"model.tied=ture", "the nearest is true"},
        {"model.tied=off", "the nearest is false"},
        {"model.tied=0", "the nearest is false"},
        {"model.tied=False", "the nearest is false"},
        {"model.tied=N", "the nearest is false"},
        {"model.layers=l", "wanted is a whole number"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct sample s = fresh();
        CHECK_ERR(conf_set(&table, &s, bad[i].word), ERR_CONFIG, bad[i].part);
    }
    struct sample s = fresh();
    CHECK(conf_set(&table, &s, "model.kind=albert") == ERR_CONFIG && !strstr(err_text(), "; "));
    CHECK(conf_set(&table, &s, "model.kind=l|meta") == ERR_CONFIG && !strstr(err_text(), "; "));
    CHECK(conf_set(&table, &s, "model.tied=2") == ERR_CONFIG && !strstr(err_text(), "nearest"));
    refused("model:\n  kind: Bert\n", 19, "run.yaml:2: model.kind is \"Bert\", wanted is one of "
            "gpt|llama; encoders are not served");
}

static void keys_are_checked(void)
{
    static const struct { const char *text, *part; } bad[] = {
        {"model:\n  layer: 2\n", "run.yaml:2: there is no key model.layer; the nearest is "
                                 "model.layers"},
        {"model:\n  rate: 2\n", "there is no key model.rate; the nearest is train.rate"},
        {"model:\n  zebra: 2\n", "there is no key model.zebra; `plait help config` lists them"},
        {"modell:\n  layers: 2\n", "there is no group modell; the nearest is model"},
        {"zebra:\n  layers: 2\n", "there is no group zebra; `plait help config`"},
        {"layers: 2\n", "there is no key layers; the nearest is model.layers"},
        {"model.layers: 2\n", "write model.layers as two levels: model, and below it, indented, "
                              "layers"},
        {"model: 2\n", "run.yaml:1: model is a group; its keys stand below it"},
        {"model:\n  layers: 2\n  layers: 2\n", "run.yaml:3: key model.layers is given twice"},
        {"model:\n  layers: 2\nmodel:\n  tied: yes\n", "run.yaml:3: group model is given twice"},
        {"model:\n  layers:\n    deep: 2\n", "files have two levels"},
        {"model:\n  ? {a: b}\n  : 2\n", "a key of model is not plain text"},
        {"? {a: b}\n: 2\n", "a group's name is not plain text"},
        {"n_layer: 2\n", "run.yaml:1: there is no key n_layer; did you mean model.layers"},
        {"bias: false\n", "there is no key bias; there are none"},
        {"training:\n  rate: 1\n", "there is no group training; did you mean train"},
        {"model:\n  Num_Layers: 2\n", "no key model.Num_Layers; did you mean model.layers"},
        {"train:\n  warmth: 2\n", "did you mean train.rate: a rate, not degrees"},
        {"train:\n  enabled: 2\n", "there is no key train.enabled; `plait help config`"},
        {"model:\n  \"a\\e[2J\": 2\n", "there is no key model.a\\x1b[2J; `plait"},
        {"\"\\u202e\": 2\n", "there is no key \\xe2\\x80\\xae; `plait"},
        {"just words\n", "the file is not made of groups of keys"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        refused(bad[i].text, (int64_t)strlen(bad[i].text), bad[i].part);
}

/* What a mark of the byte order stands before reads as without it. */
static void byte_order_marks(void)
{
    static const char text[] = "\xef\xbb\xbfmodel:\n  layers: 7\n";
    struct sample s = fresh();
    CHECK_OK(read_into(&s, text));
    CHECK_INT(s.layers, 7);
    CHECK_OK(read_into(&s, "\xef\xbb\xbf"));
    refused("\xef\xbb\xbfmodel:\n\tlayers: 7\n", 21, "run.yaml:2: not YAML");
    refused("\xff\xfem\0o\0", 6, "begins with the byte order mark of UTF-16; save it as UTF-8");
    refused("\xfe\xff\0m", 4, "begins with the byte order mark of UTF-16; save it as UTF-8");
}

static void hostile_yaml_is_refused(void)
{
    static const struct { const char *text, *part; } bad[] = {
        {"model:\n\tlayers: 2\n", "run.yaml:2: not YAML: found character that cannot start any "
                                  "token (a tab); indent with spaces"},
        {"# \xc3\xa9\xc3\xa9\xc3\xa9\nmodel:\n\tlayers: 2\n", "run.yaml:3: not YAML"},
        {"model: &a\n  layers: 2\n", "anchors (&) and aliases (*) are not read"},
        {"model:\n  layers: &a 2\n", "anchors (&) and aliases (*) are not read"},
        {"model: *a\n", "anchors (&) and aliases (*) are not read"},
        {"a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\nmodel: *c\n", "there is no group a"},
        {"model:\n  layers: !!int 2\n", "tags (!) are not read"},
        {"model: !secret\n  layers: 2\n", "tags (!) are not read"},
        {"model:\n  layers: [2]\n", "run.yaml:2: lists are not read here"},
        {"data:\n  names: &a [b]\n", "anchors (&) and aliases (*) are not read"},
        {"data:\n  names: [&a b, *a]\n", "anchors (&) and aliases (*) are not read"},
        {"data:\n  names: !!seq [b]\n", "tags (!) are not read"},
        {"data:\n  names: [!!str b]\n", "tags (!) are not read"},
        {"data:\n  names: [a, [b]]\n", "lists are not read here"},
        {"data:\n  names:\n    - a\n    - - b\n", "run.yaml:4: lists are not read here"},
        {"data:\n  names: [a, {b: c}]\n", "an element of data.names is a group of keys here"},
        {"data:\n  names: [a: b]\n", "an element of data.names is a group of keys here"},
        {"data:\n  names: [a, b\n", "not YAML"},
        {"data: [a]\n", "lists are not read here"},
        {"data:\n  ? [a]\n  : b\n", "lists are not read here"},
        {"- model\n", "lists are not read"},
        {"model:\n  layers: 2\n---\nmodel:\n  layers: 3\n", "a second document begins"},
        {"model:\n  layers: \"2\n", "not YAML"},
        {"model: {layers: 2\n", "not YAML"},
        {"model:\n  layers: 2\n bad\n", "not YAML"},
        {"%TAG ! tag:x,2000:\n---\nmodel: !y\n  layers: 2\n", "tags (!) are not read"},
        {"%YAML 9.9\n---\nmodel:\n  layers: 2\n", "not YAML"},
        {"model:\n  layers: \xff\xfe\n", "run.yaml:2: not YAML"},
        {"model:\n  layers: 2\x01\n", "run.yaml:2: not YAML"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        refused(bad[i].text, (int64_t)strlen(bad[i].text), bad[i].part);
    refused("model:\n  layers: 2\0 3\n", 22, "run.yaml:2: not YAML: control characters");
}

/* A megabyte of brackets must cost no more than reading them, and no stack. */
static void deep_nesting_is_cheap(void)
{
    enum { N = 1000000 };
    char *s;
    CHECK_OK(mem_new(N + 1, 1, "a hostile file", &s));
    static const char opening[] = {'[', '{', '-', '"', '&', '\n', ' ', '?'};
    for (size_t i = 0; i < sizeof opening; i++) {
        struct sample c = fresh();
        memset(s, opening[i], N);
        enum err err = conf_read_text(&table, &c, "deep.yaml", s, N);
        CHECK(err == ERR_CONFIG || ((opening[i] == '\n' || opening[i] == ' ') && err == ERR_OK));
    }
    mem_free(s);
    refused("", (1 << 20) + 1, "at most 1048576 are read");
}

static void command_line_words(void)
{
    struct sample s = fresh();
    CHECK_OK(conf_set(&table, &s, "model.layers=12"));
    CHECK_OK(conf_set(&table, &s, "data.train=a=b"));
    CHECK_INT(s.layers, 12);
    CHECK_STR(s.path, "a=b");
    CHECK_OK(conf_set(&table, &s, "data.train="));
    CHECK_STR(s.path, "");
    CHECK_ERR(conf_set(&table, &s, "model.layers"), ERR_CONFIG, "is not of the form key=value");
    CHECK_ERR(conf_set(&table, &s, "=3"), ERR_CONFIG, "is not of the form key=value");
    CHECK_ERR(conf_set(&table, &s, "model.layers="), ERR_CONFIG, "has no value");
    CHECK_ERR(conf_set(&table, &s, "layers=3"), ERR_CONFIG,
              "command line: there is no key layers; the nearest is model.layers");
    CHECK_ERR(conf_set(&table, &s, "train.rte=1"), ERR_CONFIG, "the nearest is train.rate");
    CHECK_ERR(conf_set(&table, &s, "data.train=a\tb"), ERR_CONFIG, "holds control characters");
    CHECK_ERR(conf_set(&table, &s, "data.train=\xc0\xaf"), ERR_CONFIG, "is not UTF-8");
    CHECK_INT(s.layers, 12);
}

/* The elements as "a|b|", and none empty. */
static void names_are(const struct sample *s, const char *want)
{
    char all[CONF_NAMES_BYTES + 1] = "";
    for (int64_t i = 0; i < s->names.n; i++)
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s|", conf_name(&s->names, i));
    CHECK_STR(all, want);
}

/* In a word and in a file, where a value that is no sequence is such a word. */
static void lists_are_read(void)
{
    static const struct { const char *value, *want; } word[] = {
        {"[]", ""}, {" [ ] ", ""}, {"a", "a|"}, {"a,b", "a|b|"}, {"[a, b]", "a|b|"},
        {"[ layers.3 ,layers.4.mlp]", "layers.3|layers.4.mlp|"}, {"a b, c", "a b|c|"},
        {"\"a,b\",c", "a,b|c|"}, {"'a,b', \"c]\"", "a,b|c]|"},
        {"\"it's\",'say \"x\"'", "it's|say \"x\"|"},
        {"\"a\\\"b\\\\\"", "a\"b\\|"},
        {"[\" a \"]", " a |"}, {"a\\b", "a\\b|"}, {"null,~", "null|~|"},
    };
    static const struct { const char *text, *want; } file[] = {
        {"data:\n  names: [a, b]\n", "a|b|"}, {"data:\n  names: []\n", ""},
        {"data:\n  names:\n    - a\n    - \"b,c\"\n  widths: [3]\n", "a|b,c|"},
        {"data:\n  names:\n  - a\n  - b\n", "a|b|"},
        {"data: {names: [a, 'b]', \"c'd\"]}\n", "a|b]|c'd|"},
        {"data:\n  names: a, b\n", "a|b|"}, {"data:\n  names: a\n", "a|"},
        {"data:\n  names: [\"null\", '~',]\n", "null|~|"},
        {"data:\n  names: [a b, c\\d]\n", "a b|c\\d|"},
    };
    for (size_t i = 0; i < sizeof word / sizeof *word; i++) {
        struct sample s = fresh();
        char text[128];
        snprintf(text, sizeof text, "data.names=%s", word[i].value);
        CHECK_OK(conf_set(&table, &s, text));
        names_are(&s, word[i].want);
    }
    for (size_t i = 0; i < sizeof file / sizeof *file; i++) {
        struct sample s = fresh();
        CHECK_OK(read_into(&s, file[i].text));
        names_are(&s, file[i].want);
    }
    struct sample s = fresh();
    CHECK_OK(conf_set(&table, &s, "data.widths=512, 1e3,\"10\""));
    CHECK(s.widths.n == 3 && s.widths.v[0] == 512 && s.widths.v[1] == 1000 && s.widths.v[2] == 10);
    CHECK_OK(read_into(&s, "data:\n  widths:\n    - 7\n"));
    CHECK(s.widths.n == 1 && s.widths.v[0] == 7 && s.widths.v[1] == 0);
}

static void lists_are_checked(void)
{
    static const struct { const char *word, *part; } bad[] = {
        {"data.names=", "data.names has no value; give one or leave the key out (its default is "
                        "[])"},
        {"data.names=a,,b", "\"a,,b\", where element 2 is empty; write a list as [a, b]"},
        {"data.names=a,", "element 2 is empty"}, {"data.names=,", "element 1 is empty"},
        {"data.names=[,]", "element 1 is empty"}, {"data.names=\"\"", "element 1 is empty"},
        {"data.names=[a", "[ is not closed"}, {"data.names=[", "element 1 is empty"},
        {"data.names=a]", "a bracket or quote stands within an element"},
        {"data.names=[a]]", "something follows"}, {"data.names=[a],b", "something follows"},
        {"data.names=\"a\"b", "something follows"}, {"data.names=\"a", "a quote is not closed"},
        {"data.names='a\\'", "a quote is not closed"},
        {"data.names=\"a\\", "a quote is not closed"},
        {"data.names=[['it''s]", "a bracket or quote stands within an element"},
        {"data.names=a\tb", "data.names (element 1) holds control characters"},
        {"data.names=a,\xc0\xaf", "data.names (element 2) holds control characters"},
        {"data.widths=4,0", "data.widths (element 2) 0 is outside 1 to 1000; the nearest legal "
                            "value is 1"},
        {"data.widths=[1001]", "command line: data.widths (element 1) 1001 is outside"},
        {"data.widths=4.5", "data.widths (element 1) is \"4.5\", which is not whole, wanted is a"},
        {"data.widths=a,b", "wanted is a whole number from 1 to 1000"},
        {"data.width=1", "the nearest is data.widths"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct sample s = fresh(), before = s;
        CHECK_ERR(conf_set(&table, &s, bad[i].word), ERR_CONFIG, bad[i].part);
        CHECK(memcmp(&s, &before, sizeof s) == 0);
    }
    static const struct { const char *text, *part; } file[] = {
        {"model:\n  layers: 2\ndata:\n  widths:\n    - 3\n    - 2000\n",
         "run.yaml:5: data.widths (element 2) 2000 is outside"},
        {"data:\n  names: [a, ~]\n", "run.yaml:2: an element of data.names is null"},
        {"data:\n  names:\n    - a\n    -\n", "element 2 is empty"},
        {"data:\n  names: [a, \"\"]\n", "element 2 is empty"},
        {"data:\n  names:\n", "data.names has no value"},
        {"data:\n  names: {a: b}\n", "data.names is a group of keys here"},
        {"data:\n  names: [\"a\\0b\"]\n", "holds a NUL"},
        {"data:\n  names: [a]\n  names: [b]\n", "key data.names is given twice"},
    };
    for (size_t i = 0; i < sizeof file / sizeof *file; i++)
        refused(file[i].text, (int64_t)strlen(file[i].text), file[i].part);
}

/* As many and as long as are kept, and one more. */
static void lists_have_limits(void)
{
    enum { LONG = 3 * CONF_NAMES_BYTES };
    static char word[LONG], text[LONG];
    for (int n = CONF_LIST_MAX; n <= CONF_LIST_MAX + 1; n++) {
        struct sample s = fresh(), before = s;
        snprintf(word, sizeof word, "data.names=x");
        for (int i = 1; i < n; i++)
            snprintf(word + strlen(word), sizeof word - strlen(word), ",x");
        enum err err = conf_set(&table, &s, word);
        CHECK(n <= CONF_LIST_MAX ? err == ERR_OK && s.names.n == n : err == ERR_CONFIG);
        CHECK(err == ERR_OK || strstr(err_text(), "more than 256 elements"));
        CHECK(err == ERR_OK || memcmp(&s, &before, sizeof s) == 0);
    }
    for (int bytes = CONF_NAMES_BYTES - 1; bytes <= CONF_NAMES_BYTES; bytes++)
        for (int quoted = 0; quoted <= 1; quoted++)
            for (int two = 0; two <= 1; two++) {
                struct sample s = fresh();
                memset(text, 'y', sizeof text);
                snprintf(word, sizeof word, "data.names=%s%.*s%s%s", quoted ? "'" : "",
                         bytes - 2 * two, text, quoted ? "'" : "", two ? ",z" : "");
                enum err err = conf_set(&table, &s, word);
                CHECK(bytes < CONF_NAMES_BYTES ? err == ERR_OK && s.names.n == 1 + two
                                               : err == ERR_CONFIG);
                CHECK(err == ERR_OK || strstr(err_text(), "at most so many are kept"));
            }
    struct sample s = fresh();
    snprintf(word, sizeof word, "data.widths=1");
    for (int i = 0; i < CONF_LIST_MAX; i++)
        snprintf(word + strlen(word), sizeof word - strlen(word), ",1");
    CHECK_ERR(conf_set(&table, &s, word), ERR_CONFIG, "more than 256 elements");
}

/* Pieces in any order: a list that is taken is printed so that it reads back, in a word and in a
 * file, and one that is refused changes nothing. */
static void drawn_lists(void)
{
    static const char *const piece[] = {"a", "layers.3", ",", ", ", "[", "]", "\"", "'", "\\", " ",
                                        "\xc3\xa9", "null", "~", "#", ": ", "-", "&x", "\x01"};
    int taken = 0;
    for (int i = 0; i < 20000; i++) {
        struct sample s = fresh(), before = s, back = fresh();
        struct text value = {0}, yaml = {0};
        char word[256] = "data.names=";
        for (size_t n = strlen(word); n < 200 && test_range(0, 7) > 0; n = strlen(word))
            snprintf(word + n, sizeof word - n, "%s",
                     piece[test_range(0, (int64_t)(sizeof piece / sizeof *piece) - 1)]);
        if (conf_set(&table, &s, word) != ERR_OK) {
            CHECK(memcmp(&s, &before, sizeof s) == 0);
            continue;
        }
        taken++;
        CHECK_OK(conf_get(&table, &s, "data.names", &value));
        conf_print(&table, &s, &yaml);
        CHECK_OK(read_into(&back, yaml.s));
        test_check(memcmp(&s, &back, sizeof s) == 0, __FILE__, __LINE__, "%s: %s", word, yaml.s);
        back = fresh();
        text_free(&yaml);
        text_add(&yaml, "data.names=%s", value.s);
        CHECK_OK(conf_set(&table, &back, yaml.s));
        test_check(memcmp(&s, &back, sizeof s) == 0, __FILE__, __LINE__, "%s: %s", word, yaml.s);
        text_free(&value);
        text_free(&yaml);
    }
    CHECK(taken > 2000);
}

static void random_sample(struct sample *s)
{
    static const char *const piece[] = {"a", "\"", "\\", "'", ": ", " #", "\xc3\xa9", "{", "&x",
                                        "\xf0\x9f\xa7\xb6", "-", "~", " "};
    char word[64] = "";
    for (size_t n = 0; n < 40 && test_range(0, 9) > 0; n = strlen(word))
        snprintf(word + n, sizeof word - n, "%s",
                 piece[test_range(0, (int64_t)(sizeof piece / sizeof *piece) - 1)]);
    for (size_t n = 0; word[n]; n++) /* what stands for a home folder is refused */
        if (word[n] == '~' && (n == 0 || word[n - 1] == ':'))
            word[n] = 'a';
    memset(s, 0, sizeof *s);
    memcpy(s->path, word, sizeof word);
    s->layers = test_range(1, 1000);
    s->seed = test_range(0, (int64_t)1 << 53);
    s->rate = test_real(0, 1) * pow(10, -(double)test_range(0, 30));
    s->tied = test_range(0, 1) == 1;
    s->kind = (int)test_range(0, 1);
}

static void printed_reads_back_equal(void)
{
    for (int i = 0; i < 500; i++) {
        struct sample s, back = fresh();
        struct text t = {0};
        char *yaml;
        random_sample(&s);
        conf_print(&table, &s, &t);
        CHECK_OK(text_done(&t, &yaml));
        CHECK_OK(read_into(&back, yaml));
        if (!test_check(back.layers == s.layers && back.seed == s.seed && back.rate == s.rate &&
                            back.tied == s.tied && back.kind == s.kind &&
                            strcmp(back.path, s.path) == 0,
                        __FILE__, __LINE__, "does not read back:\n%s", yaml))
            i = 500;
        mem_free(yaml);
    }
}

static void help_names_every_key(void)
{
    struct text t = {0};
    char *page;
    conf_help(&table, &t);
    CHECK_OK(text_done(&t, &page));
    for (int i = 0; i < table.n; i++) {
        CHECK(strstr(page, rows[i].help) != NULL);
        CHECK(strstr(page, strchr(rows[i].key, '.') + 1) != NULL);
    }
    CHECK(strstr(page, "each 1 to 1000") && strstr(page, "names               some names"));
    CHECK(strstr(page, "1 to 1000") != NULL && strstr(page, "gpt|llama") != NULL);
    mem_free(page);
    conf_markdown(&table, &t);
    CHECK_OK(text_done(&t, &page));
    CHECK(strstr(page, "| `train.rate` | real | `0.1` | 0 to 1 | rate |\n") != NULL);
    mem_free(page);
}

static void files_that_are_not(void)
{
    struct sample s = fresh();
    CHECK_ERR(conf_read_file(&table, &s, "/nonexistent/run.yaml"), ERR_CONFIG,
              "cannot read /nonexistent/run.yaml: no such file or directory; check the path");
    CHECK_ERR(conf_read_file(&table, &s, "/tmp"), ERR_CONFIG, "it is a folder");
    CHECK_ERR(conf_read_file(&table, &s, "/dev/null"), ERR_CONFIG, "it is a device");
}

/* First of the cases, since the failing allocation is counted from the start of the process. */
static void every_failing_allocation_is_clean(void)
{
    static const char yaml[] = "model:\n  layers: 7\n";
    static const char *const nth[] = {"1", "3"}; /* the copy; in the second call, the keys seen */
    struct sample s = fresh(), before = s;
    for (int k = 0; k < 2; k++) {
        setenv("PLAIT_FAIL_ALLOC", nth[k], 1);
        enum err err = conf_read_text(&table, &s, "run.yaml", yaml, (int64_t)strlen(yaml));
        unsetenv("PLAIT_FAIL_ALLOC");
        CHECK_INT(err, ERR_MEMORY);
        CHECK(memcmp(&s, &before, sizeof s) == 0);
    }
}

/* They changed no number: whatever they say is passed over, but it must be one value. */
static void keys_of_old_are_passed_over(void)
{
    static const char *const good[] = {
        "train:\n  heat: no\n", "train: {rate: 0.1, heat: true}\n", "model:\n  gone: 7\n",
        "model: {gone: ~}\n"};
    struct sample s = fresh(), before = s;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        CHECK_OK(read_into(&s, good[i]));
    refused("train: {heat: {a: 1}}\n", 22, "train.heat is no more, and had one value; leave");
    refused("model: {gone: [1, 2]}\n", 22, "lists are not read here");
    CHECK_OK(conf_set(&table, &s, "train.heat=true"));
    CHECK_OK(conf_set(&table, &s, "model.gone="));
    CHECK(memcmp(&s, &before, sizeof s) == 0);
}

static const struct test_case cases[] = {
    {"every_failing_allocation_is_clean", every_failing_allocation_is_clean},
    {"defaults_are_the_presets", defaults_are_the_presets},
    {"file_overrides_defaults", file_overrides_defaults},
    {"empty_files_are_legal", empty_files_are_legal},
    {"values_are_checked", values_are_checked},
    {"other_words_are_understood", other_words_are_understood},
    {"keys_are_checked", keys_are_checked},
    {"keys_of_old_are_passed_over", keys_of_old_are_passed_over},
    {"byte_order_marks", byte_order_marks},
    {"hostile_yaml_is_refused", hostile_yaml_is_refused},
    {"deep_nesting_is_cheap", deep_nesting_is_cheap},
    {"command_line_words", command_line_words},
    {"lists_are_read", lists_are_read},
    {"lists_are_checked", lists_are_checked},
    {"lists_have_limits", lists_have_limits},
    {"drawn_lists", drawn_lists},
    {"printed_reads_back_equal", printed_reads_back_equal},
    {"help_names_every_key", help_names_every_key},
    {"files_that_are_not", files_that_are_not},
};
TEST_MAIN(cases)
