/* SPDX-License-Identifier: Apache-2.0
 *
 * What generation may draw and say. Vocabularies larger than the tokenizer's, on every number of
 * tensor ranks and with every way of drawing, give text and nothing else; ends of text end it;
 * whatever is wrong with weights, tokenizer, prompt or device is an error of its own.
 */
#include "folder.h"

#include "base/fs.h"
#include "base/mem.h"
#include "base/text.h"
#include "ckpt/ckpt.h"
#include "data/data.h"
#include "generate/generate.h"

#include <math.h>
#include <unistd.h>
#include <xxhash.h>

enum { SEEN = 4096 };
struct seen { char text[SEEN], note[SEEN]; int32_t id[SEEN]; int n, ids, notes, bad; };

static void on_text(void *arg, const char *bytes, int n)
{
    struct seen *s = arg;
    s->bad += n < 1 || text_utf8((const uint8_t *)bytes, n) != n;
    for (int i = 0; i < n && s->n < SEEN - 1; i++)
        s->text[s->n++] = bytes[i];
}

static void on_id(void *arg, int32_t id)
{
    struct seen *s = arg;
    if (s->ids < SEEN)
        s->id[s->ids++] = id;
}

static void on_note(void *arg, const char *note)
{
    struct seen *s = arg;
    s->notes++;
    snprintf(s->note, sizeof s->note, "%s", note);
}

/* A run of `vocab` ids and no step worth its name, with weights as drawn. */
static void make_run(const char *run, int64_t vocab, const char *const *set)
{
    struct folder_seen seen;
    char word[40];
    static const char *const small[] = {
        "model.layers=1", "model.hidden=12", "model.heads=6", "model.ffn=12", "model.seq=16",
        "model.init_std=1", "train.steps=1", "train.batch=1", "optim.lr=1e-9", "train.threads=1",
        "train.device=ref", "train.save_keep=0", NULL};
    folder_tokens("text", "braids of strands ", 4);
    struct plait_config *c = folder_config(run, "text");
    folder_set(c, small, 99);
    snprintf(word, sizeof word, "model.vocab=%lld", (long long)vocab);
    folder_set(c, (const char *const[]){word}, 1);
    folder_set(c, set, 99);
    test_check(folder_train(c, &seen) == 0, __FILE__, __LINE__, "%s: %s", run, plait_error());
}

static int generate(const char *run, struct plait_generate g, struct seen *seen)
{
    char path[FOLDER_PATH];
    folder_path(run, path);
    memset(seen, 0, sizeof *seen);
    g.size = sizeof g;
    g.run = path;
    g.on_text = on_text;
    g.on_id = on_id;
    g.on_note = on_note;
    g.arg = seen;
    return plait_generate(&g);
}

static void refused(const char *run, struct plait_generate g, int code, const char *part)
{
    struct seen seen;
    int got = generate(run, g, &seen);
    test_check(got == code && strstr(plait_error(), part), __FILE__, __LINE__,
               "%s: code %d, wanted %d with \"%s\": %s", run, got, code, part, plait_error());
}

/* ---- ids that are no text ---- */

/* The text of so many tokens: every one of them a byte or a shown end. */
static int tokens_of(const struct seen *s)
{
    int n = 0;
    for (int i = 0; i < s->n; n++)
        i += strncmp(s->text + i, "<|endoftext|>", 13) == 0 ? 13 : 1;
    return n;
}

static void draw_all(const char *run, const char *tp, bool whole)
{
    static const double heat[] = {0, 0.8, 5};
    static const int top[] = {0, 1, 40};
    const char *set[] = {tp};
    struct seen seen;
    for (int i = 0; i < 9; i++) {
        if (!whole && i != test_range(0, 8))
            continue;
        int code = generate(run, (struct plait_generate){
            .prompt = "b", .tokens = 12, .temperature = heat[i / 3], .top_k = top[i % 3],
            .seed = (uint64_t)test_range(0, 99), .set = set, .sets = 1, .raw = 1,
            .ignore_eot = 1}, &seen);
        test_check(code == 0 && tokens_of(&seen) == 13, __FILE__, __LINE__,
                   "%s %s, temperature %g, top_k %d: %d of 13 tokens are text: %s", run, tp,
                   heat[i / 3], top[i % 3], tokens_of(&seen), code ? plait_error() : "");
    }
}

static void only_text_is_drawn(void)
{
    static const char *const tp[] = {"parallel.tp=1", "parallel.tp=2", "parallel.tp=3"};
    for (int64_t vocab = 257; vocab <= 300; vocab++) {
        char run[32];
        snprintf(run, sizeof run, "vocab%lld", (long long)vocab);
        make_run(run, vocab, (const char *const[]){"model.tied=true", NULL});
        for (int i = 0; i < 3; i++)
            draw_all(run, tp[i], vocab == 257 || vocab == 258 || vocab == 300);
    }
    make_run("large", 50257, (const char *const[]){"model.tied=true", NULL});
    for (int i = 0; i < 3; i++)
        draw_all("large", tp[i], i == 1);
}

/* Of candidates that are told apart by nothing else, each legal one is drawn and no other; those
 * that are not legal do not take a place among the top k. */
static void illegal_ids_take_no_place(void)
{
    enum { V = 40 };
    double logits[V];
    bool legal[V];
    for (int round = 0; round < 300; round++) {
        int best = -1, legals = 0;
        for (int i = 0; i < V; i++) {
            logits[i] = test_real(-3, 3);
            legal[i] = test_random() % 3 == 0;
            legals += legal[i];
            if (legal[i] && (best < 0 || logits[i] > logits[best]))
                best = i;
        }
        if (!legals)
            continue;
        struct generate_how how = {round % 2 ? test_real(0.1, 9) : 0, 1 + round % 3 / 2,
                                   (uint64_t)round, legal};
        int32_t token = -1;
        CHECK_OK(generate_pick(logits, V, &how, round, &token));
        CHECK(token >= 0 && token < V && legal[token]);
        if (how.top_k == 1 || how.temperature == 0)
            CHECK_INT(token, best);
        logits[test_range(0, V - 1)] = round % 2 ? NAN : -INFINITY;
        CHECK_ERR(generate_pick(logits, V, &how, round, &token), ERR_NONFINITE, "the logit of id");
    }
}

/* ---- where a text begins and ends ---- */

/* The weights of a run with one tensor's elements replaced (first .. first + n - 1). */
static void poke(const char *run, const char *tensor, int64_t first, int64_t n, float value)
{
    char path[FOLDER_PATH];
    struct safet_file f;
    folder_path_in(run, "model.safetensors", path);
    CHECK_OK(safet_open(&f, path));
    const struct safet_entry *e = safet_find(f.entry, f.n, tensor);
    int64_t at = e ? f.data - f.map.data + e->begin + 4 * first : -1;
    safet_close(&f);
    if (!CHECK(at >= 0))
        return;
    FILE *file = fopen(path, "r+b");
    CHECK(file && fseek(file, (long)at, SEEK_SET) == 0);
    for (int64_t i = 0; file && i < n; i++)
        CHECK(fwrite(&value, sizeof value, 1, file) == 1);
    if (file)
        CHECK(fclose(file) == 0);
}

/* A model whose likeliest token is always `id`: the final norm gives ones, and the row of id has
 * the largest sum. */
static void always(const char *run, int64_t id)
{
    make_run(run, 260, (const char *const[]){"model.tied=false", "model.init_std=0.02", NULL});
    poke(run, "transformer.ln_f.weight", 0, 12, 0);
    poke(run, "transformer.ln_f.bias", 0, 12, 1);
    poke(run, "lm_head.weight", 12 * id, 12, 3);
}

static void an_end_ends(void)
{
    struct seen seen;
    always("ends", 256);
    CHECK_INT(generate("ends", (struct plait_generate){.prompt = "abc", .tokens = 9}, &seen), 0);
    CHECK_STR(seen.text, "abc");
    CHECK_INT(generate("ends", (struct plait_generate){.prompt = "abc", .tokens = 2,
                                                       .ignore_eot = 1}, &seen), 0);
    CHECK_STR(seen.text, "abc<|endoftext|><|endoftext|>");
    /* As ids the end is told, and it ends, too. */
    int32_t ids[] = {97, 98};
    CHECK_INT(generate("ends", (struct plait_generate){.ids = ids, .id_count = 2, .tokens = 9},
                       &seen), 0);
    CHECK(seen.ids == 3 && seen.id[0] == 97 && seen.id[1] == 98 && seen.id[2] == 256);
    CHECK_INT(seen.n, 0);
    CHECK_INT(generate("ends", (struct plait_generate){.ids = ids, .id_count = 2, .tokens = 3,
                                                       .ignore_eot = 1}, &seen), 0);
    CHECK(seen.ids == 5 && seen.id[4] == 256);
    /* In ids, what no text has can be drawn. */
    always("beyond", 259);
    CHECK_INT(generate("beyond", (struct plait_generate){.ids = ids, .id_count = 1, .tokens = 2},
                       &seen), 0);
    CHECK(seen.ids == 3 && seen.id[1] == 259 && seen.id[2] == 259);
}

/* Without a prompt the model sees an end of text: the same ids as behind that id, and it is not
 * shown. */
static void no_prompt_begins_behind_an_end(void)
{
    struct seen text, ids;
    int32_t end = 256;
    make_run("begin", 257, (const char *const[]){"model.tied=false", NULL});
    for (int i = 0; i < 2; i++) {
        CHECK_INT(generate("begin", (struct plait_generate){.prompt = i ? "" : NULL, .tokens = 6,
                                                            .raw = 1}, &text), 0);
        CHECK_INT(generate("begin", (struct plait_generate){.ids = &end, .id_count = 1,
                                                            .tokens = 6}, &ids), 0);
        CHECK(text.n > 0 && ids.ids >= text.n + 1);
        for (int k = 0; k < text.n; k++)
            CHECK_INT((uint8_t)text.text[k], ids.id[k + 1]);
    }
}

static void a_long_prompt_is_said(void)
{
    struct seen seen;
    make_run("long", 257, (const char *const[]){"model.tied=false", NULL});
    CHECK_INT(generate("long", (struct plait_generate){.prompt = "0123456789abcdef", .tokens = 1,
                                                       .raw = 1}, &seen), 0);
    CHECK_INT(seen.notes, 0);
    CHECK_INT(generate("long", (struct plait_generate){.prompt = "0123456789abcdefg", .tokens = 1,
                                                       .raw = 1}, &seen), 0);
    CHECK_INT(seen.notes, 1);
    CHECK(strstr(seen.note, "17 tokens and model.seq is 16: the first 1 is not seen"));
}

/* ---- characters ---- */

/* Any bytes in any pieces: what is given on is whole characters, a valid text comes as it was, and
 * of other bytes nothing but U+FFFD is made. */
static void characters_are_whole(void)
{
    static const char *const piece[] = {"a", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\n",
                                        "\x80", "\xc3", "\xe2\x82", "\xf0\x9f", "\xff", "\xed\xa0"};
    for (int round = 0; round < 2000; round++) {
        struct seen seen = {0};
        struct generate_text t = {.give = on_text, .arg = &seen};
        char made[64], bytes[8];
        int n = 0, valid = round % 2;
        for (int k = 0; k < 8; k++)
            n += snprintf(made + n, 8, "%s", piece[test_range(0, valid ? 4 : 10)]);
        for (int i = 0, part; i < n; i += part) {
            part = (int)test_range(1, n - i < 3 ? n - i : 3);
            memcpy(bytes, made + i, (size_t)part);
            generate_text_add(&t, bytes, part);
        }
        CHECK_INT(seen.bad, 0);
        CHECK(t.n < 4);
        if (valid)
            CHECK(t.n == 0 && seen.n == n && memcmp(seen.text, made, (size_t)n) == 0);
    }
    struct seen seen = {0};
    struct generate_text t = {.give = on_text, .arg = &seen};
    generate_text_add(&t, "x\xe2\x82y\xe2\x82\xac\xff\xf0\x9f", 10);
    CHECK_STR(seen.text, "x\xef\xbf\xbdy\xe2\x82\xac\xef\xbf\xbd");
    CHECK_INT(t.n, 2);
}

static void an_unfinished_character_is_held_back(void)
{
    struct seen seen;
    always("half", 0xc3);
    CHECK_INT(generate("half", (struct plait_generate){.prompt = "a", .tokens = 1}, &seen), 0);
    CHECK_STR(seen.text, "a");
    CHECK(strstr(seen.note, "1 byte is not shown"));
    CHECK_INT(generate("half", (struct plait_generate){.prompt = "a", .tokens = 3, .raw = 1},
                       &seen), 0);
    CHECK_STR(seen.text, "a\xc3\xc3\xc3");
    CHECK_INT(seen.notes, 0);
}

/* ---- what is refused ---- */

/* Every tensor with a number that is none: the message names it, on every layout. */
static void weights_are_finite(void)
{
    static const float none[] = {NAN, INFINITY, -INFINITY, 3e38f};
    static const char *const bf16[] = {"parallel.tp=2", "train.dtype=bf16", "train.device=cpu"};
    char path[FOLDER_PATH];
    struct safet_file f;
    make_run("finite", 257, (const char *const[]){"model.tied=false", NULL});
    folder_path_in("finite", "model.safetensors", path);
    CHECK_OK(safet_open(&f, path));
    for (int i = 0; i < f.n; i++) {
        const struct safet_entry *e = &f.entry[i];
        float was;
        int64_t n = (e->end - e->begin) / 4, at = test_range(0, n - 1);
        memcpy(&was, f.data + e->begin + 4 * at, sizeof was);
        poke("finite", e->name, at, 1, none[i % 3]);
        refused("finite", (struct plait_generate){.prompt = "a", .tokens = 1, .set = bf16,
                                                  .sets = i % 2 ? 3 : 1},
                PLAIT_CHECKPOINT, e->name);
        poke("finite", e->name, at, 1, 3.4e38f); /* no number in bf16 */
        refused("finite", (struct plait_generate){.prompt = "a", .tokens = 1, .set = bf16,
                                                  .sets = 3}, PLAIT_CHECKPOINT, "in bf16");
        poke("finite", e->name, at, 1, was);
    }
    safet_close(&f);
    static const char *const cpu[] = {"train.device=cpu"};
    poke("finite", "transformer.ln_f.weight", 0, 12, none[3]);
    poke("finite", "lm_head.weight", 0, 12 * 257, none[3]);
    refused("finite", (struct plait_generate){.prompt = "a", .tokens = 1, .set = cpu, .sets = 1},
            PLAIT_NONFINITE, "the logit of id");
}

/* A file of tokens that another program's tokenizer made. */
static void foreign_tokens(const char *name, const char *tokenizer)
{
    char from[FOLDER_PATH], path[FOLDER_PATH];
    folder_tokens("text", "braids of strands ", 4);
    folder_path("text", from);
    folder_path(name, path);
    struct fs_map m;
    CHECK_OK(fs_map_open(&m, from, ERR_DATA));
    uint8_t *p;
    CHECK_OK(mem_new(m.size, 1, "a test file", &p));
    memcpy(p, m.data, (size_t)m.size);
    memset(p + 40, 0, 32);
    memcpy(p + 40, tokenizer, strlen(tokenizer));
    uint64_t sum = XXH3_64bits(p, 120);
    for (int i = 0; i < 8; i++)
        p[120 + i] = (uint8_t)(sum >> (8 * i));
    CHECK_OK(fs_put(path, p, m.size));
    fs_map_close(&m);
    mem_free(p);
}

/* The tokenizer stays with the weights, and with the configuration. */
static void the_tokenizer_stays(void)
{
    struct seen seen;
    int32_t ids[] = {1};
    char path[FOLDER_PATH], note[SAFET_NOTE], hash[32];
    struct safet_file f;
    foreign_tokens("foreign", "gpt2-bpe");
    struct folder_seen trained;
    static const char *const words[] = {"model.layers=1", "model.hidden=8", "model.heads=2",
                                        "model.seq=8", "train.steps=1", "train.batch=1",
                                        "train.save_keep=0", NULL};
    struct plait_config *c = folder_config("other", "foreign");
    folder_set(c, words, 99);
    CHECK_INT(folder_train(c, &trained), 0);
    refused("other", (struct plait_generate){.prompt = "a"}, PLAIT_TOKEN, "tokenizer gpt2-bpe");
    CHECK_INT(generate("other", (struct plait_generate){.ids = ids, .id_count = 1, .tokens = 3},
                       &seen), 0);
    CHECK_INT(seen.ids, 4);
    static const char *const as_bytes[] = {"data.tokenizer=bytes"};
    refused("other", (struct plait_generate){.prompt = "a", .set = as_bytes, .sets = 1},
            PLAIT_TOKEN, "of tokenizer gpt2-bpe, and data.tokenizer is bytes");
    make_run("kept", 257, (const char *const[]){"model.tied=true", NULL});
    folder_path_in("kept", "model.safetensors", path);
    CHECK_OK(safet_open(&f, path));
    CHECK_OK(safet_note(&f, "plait.tokenizer", note));
    CHECK_STR(note, "bytes");
    CHECK_OK(safet_note(&f, "plait.tokenizer_hash", note));
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)tokenizer_hash("bytes"));
    CHECK_STR(note, hash);
    CHECK_OK(safet_note(&f, "none", note));
    CHECK_STR(note, "");
    safet_close(&f);
    static const char *const wrong[] = {"data.tokenizer=words"};
    refused("kept", (struct plait_generate){.prompt = "a", .set = wrong, .sets = 1}, PLAIT_TOKEN,
            "data.tokenizer is words");
    /* A run of bytes is not trained on other ids under that name. */
    c = folder_config("mixed", "foreign");
    folder_set(c, words, 99);
    folder_set(c, as_bytes, 1);
    CHECK_INT(folder_train(c, &trained), PLAIT_TOKEN);
    CHECK(strstr(plait_error(), "data.tokenizer is bytes and data.train was made by tokenizer "
                                "gpt2-bpe"));
}

/* ---- folders ---- */

static void put_in(const char *run, const char *name, const char *text)
{
    char path[FOLDER_PATH];
    folder_path_in(run, name, path);
    CHECK_OK(fs_put(path, text, (int64_t)strlen(text)));
}

static void remove_in(const char *run, const char *name)
{
    char path[FOLDER_PATH];
    folder_path_in(run, name, path);
    CHECK(unlink(path) == 0);
}

/* The run's config.json with one piece replaced by another of its length. */
static void edit_json(const char *run, const char *from, const char *to)
{
    char path[FOLDER_PATH], text[4096] = "";
    folder_path_in(run, "config.json", path);
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f)
        fclose(f);
    char *at = n > 0 ? strstr(text, from) : NULL;
    if (!test_check(at && strlen(from) == strlen(to), __FILE__, __LINE__, "no %s", from))
        return;
    memcpy(at, to, strlen(to));
    put_in(run, "config.json", text);
}

/* The head of the run's weights with every piece replaced by another of its length. */
static void edit_header(const char *run, const char *from, const char *to)
{
    char path[FOLDER_PATH], text[8192];
    int found = 0;
    folder_path_in(run, "model.safetensors", path);
    FILE *f = fopen(path, "r+b");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    text[n] = '\0';
    for (char *at = text + 8; n > 8 && (at = strstr(at, from)) != NULL; at += strlen(to), found++)
        memcpy(at, to, strlen(to));
    CHECK(found > 0 && strlen(from) == strlen(to));
    CHECK(f && fseek(f, 0, SEEK_SET) == 0 && fwrite(text, 1, n, f) == n && fclose(f) == 0);
}

/* config.yaml and config.json that say two things of the model: the key, with both values. */
static void descriptions_agree(void)
{
    static const struct { const char *kind, *from, *to, *say; } odd[] = {
        {"model.kind=gpt", "\"n_layer\": 1", "\"n_layer\": 2",
         "model.layers 1 and config.json n_layer 2"},
        {"model.kind=gpt", "\"n_inner\": 12", "\"n_inner\": 13", "model.ffn 12 and config.json n_"},
        {"model.kind=gpt", "\"layer_norm_epsilon\": 1e-05", "\"layer_norm_epsilon\": 1e-06",
         "model.norm_eps 1e-05 and config.json layer_norm_epsilon 1e-06"},
        {"model.kind=gpt", "embeddings\": true", "embeddings\":false",
         "model.tied true and config.json tie_word_embeddings false"},
        {"model.kind=llama", "\"rope_theta\": 10000.0,", "\"rope_theta\": 20000.0,",
         "rope_theta 20000 and, in rope_parameters, 10000"},
        {"model.kind=llama", "\"num_key_value_heads\": 6", "\"num_key_value_heads\": 3",
         "model.kv_heads 6 and config.json num_key_value_heads 3"},
        {"model.kind=llama", "\"vocab_size\": 257", "\"vocab_size\": 258",
         "model.vocab 257 and config.json vocab_size 258"},
        {"model.kind=llama", "\"llama\"", "\"mamba\"", "model_type \"mamba\""},
    };
    struct seen seen;
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        char run[32];
        snprintf(run, sizeof run, "odd%d", (int)i);
        make_run(run, 257, (const char *const[]){"model.tied=true", odd[i].kind, NULL});
        CHECK_INT(generate(run, (struct plait_generate){.prompt = "a", .tokens = 1}, &seen), 0);
        edit_json(run, odd[i].from, odd[i].to);
        refused(run, (struct plait_generate){.prompt = "a", .tokens = 1}, PLAIT_CHECKPOINT,
                odd[i].say);
    }
}

/* A run without its config.yaml is what transformers would have saved, but for its tokenizer. */
static void a_folder_of_transformers(void)
{
    struct seen run, alone;
    int32_t ids[] = {3, 1, 4};
    for (int kind = 0; kind < 2; kind++) {
        const char *name = kind ? "llama_alone" : "gpt_alone";
        make_run(name, 257, (const char *const[]){"model.tied=false",
                                                  kind ? "model.kind=llama" : "model.kind=gpt",
                                                  "model.norm_eps=1e-6", NULL});
        const struct plait_generate g = {.ids = ids, .id_count = 3, .tokens = 20, .ignore_eot = 1};
        static const char *const ref[] = {"train.device=ref", "parallel.tp=2"};
        CHECK_INT(generate(name, g, &run), 0);
        remove_in(name, "config.yaml");
        struct plait_generate h = g;
        h.set = ref;
        h.sets = 2;
        CHECK_INT(generate(name, h, &alone), 0);
        CHECK(run.ids == 23 && alone.ids == 23);
        CHECK(memcmp(run.id, alone.id, sizeof run.id) == 0);
    }
    /* The weights say bytes, so there is text; others do not, and then the tokenizer is named. */
    CHECK_INT(generate("gpt_alone", (struct plait_generate){.prompt = "a", .tokens = 1}, &run), 0);
    edit_header("gpt_alone", "plait.tok", "other.key");
    refused("gpt_alone", (struct plait_generate){.prompt = "a"}, PLAIT_TOKEN, "none found in");
    put_in("gpt_alone", "tokenizer.json", "{}");
    refused("gpt_alone", (struct plait_generate){.prompt = "a"}, PLAIT_TOKEN,
            "the tokenizer of tokenizer.json");
    put_in("gpt_alone", "tokenizer_config.json", "{\"tokenizer_class\": \"GPT2Tokenizer\"}");
    refused("gpt_alone", (struct plait_generate){.prompt = "a"}, PLAIT_TOKEN,
            "has the tokenizer GPT2Tokenizer");
    remove_in("gpt_alone", "config.json");
    refused("gpt_alone", (struct plait_generate){.prompt = "a"}, PLAIT_CONFIG,
            "has neither config.yaml");
}

/* The name is plait's, the table behind it another. */
static void the_hash_is_compared(void)
{
    char hash[32], other[32];
    make_run("hashed", 257, (const char *const[]){"model.tied=true", NULL});
    snprintf(hash, sizeof hash, "%016llx", (unsigned long long)tokenizer_hash("bytes"));
    snprintf(other, sizeof other, "%016llx", (unsigned long long)tokenizer_hash("bytes") ^ 1);
    edit_header("hashed", hash, other);
    refused("hashed", (struct plait_generate){.prompt = "a"}, PLAIT_TOKEN, other);
    edit_header("hashed", "\"bytes\"", "\"Bytes\"");
    refused("hashed", (struct plait_generate){.prompt = "a"}, PLAIT_TOKEN,
            "of tokenizer Bytes, and data.tokenizer is bytes");
    edit_header("hashed", "\"Bytes\"", "\"by\\ns\"");
    refused("hashed", (struct plait_generate){.prompt = "a"}, PLAIT_CHECKPOINT,
            "has a plait.tokenizer that is");
}

/* A line of logits for each token, the largest at the id that is drawn. */
static void logits_are_written(void)
{
    struct seen seen;
    int32_t ids[] = {5};
    char path[FOLDER_PATH];
    static const char *const two[] = {"parallel.tp=2"};
    folder_path("logits.txt", path);
    make_run("lines", 259, (const char *const[]){"model.tied=false", NULL});
    CHECK_INT(generate("lines", (struct plait_generate){.ids = ids, .id_count = 1, .tokens = 7,
                                                        .ignore_eot = 1, .logits = path,
                                                        .set = two, .sets = 1}, &seen), 0);
    FILE *f = fopen(path, "r");
    for (int line = 0; f && line < 7; line++) {
        int best = -1;
        double most = -INFINITY, v;
        for (int i = 0; i < 259; i++) {
            CHECK(fscanf(f, "%lf", &v) == 1);
            best = v > most ? i : best;
            most = fmax(v, most);
        }
        CHECK_INT(seen.id[line + 1], best);
    }
    CHECK(f && fgetc(f) == '\n' && fgetc(f) == EOF && fclose(f) == 0);
    folder_path("none/logits.txt", path);
    refused("lines", (struct plait_generate){.prompt = "a", .logits = path}, PLAIT_STORAGE,
            "none/logits.txt");
}

static void what_cannot_be_asked(void)
{
    static const char *const null[] = {"train.device=null"};
    int32_t ids[] = {0, 256, 257}, below = -1;
    make_run("asked", 257, (const char *const[]){"model.tied=true", NULL});
    refused("asked", (struct plait_generate){.prompt = "a", .set = null, .sets = 1}, PLAIT_CONFIG,
            "train.device null computes nothing");
    refused("asked", (struct plait_generate){.prompt = "a", .tokens = -1}, PLAIT_CONFIG, "tokens");
    refused("asked", (struct plait_generate){.prompt = "a", .top_k = -1}, PLAIT_CONFIG, "top_k -1");
    refused("asked", (struct plait_generate){.prompt = "a", .temperature = -1}, PLAIT_CONFIG,
            "temperature -1");
    refused("asked", (struct plait_generate){.prompt = "a", .temperature = NAN}, PLAIT_CONFIG,
            "temperature");
    refused("asked", (struct plait_generate){.prompt = "a", .temperature = INFINITY}, PLAIT_CONFIG,
            "temperature");
    refused("asked", (struct plait_generate){.ids = ids, .id_count = 3}, PLAIT_TOKEN,
            "id 3 of the prompt is 257, the model has ids 0 to 256");
    refused("asked", (struct plait_generate){.ids = &below, .id_count = 1}, PLAIT_TOKEN, "is -1");
    refused("asked", (struct plait_generate){.ids = ids}, PLAIT_CONFIG, "none is given");
    refused("asked", (struct plait_generate){.ids = ids, .id_count = 1, .prompt = "a"},
            PLAIT_CONFIG, "give one");
}

static const struct test_case cases[] = {
    {"only text is drawn", only_text_is_drawn},
    {"illegal ids take no place", illegal_ids_take_no_place},
    {"an end ends", an_end_ends},
    {"no prompt begins behind an end", no_prompt_begins_behind_an_end},
    {"a long prompt is said", a_long_prompt_is_said},
    {"characters are whole", characters_are_whole},
    {"an unfinished character is held back", an_unfinished_character_is_held_back},
    {"weights are finite", weights_are_finite},
    {"the tokenizer stays", the_tokenizer_stays},
    {"descriptions agree", descriptions_agree},
    {"a folder of transformers", a_folder_of_transformers},
    {"the hash is compared", the_hash_is_compared},
    {"logits are written", logits_are_written},
    {"what cannot be asked", what_cannot_be_asked},
};
TEST_MAIN(cases)
