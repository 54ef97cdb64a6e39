/* SPDX-License-Identifier: Apache-2.0
 *
 * Every text that plait reads, as other editors and systems write it: with a UTF-8 byte order mark,
 * with lines that end in CR LF, without the end of the last one, it is read as it was; in UTF-16 or
 * UTF-32 it is refused by a message that names the mark.
 */
#include "base/fs.h"
#include "program.h"
#include "test.h"

#include <sys/stat.h>
#include <unistd.h>

enum { TEXT = 4096, WORDS = 12 };

#define SHARDS PLAIT_SOURCE_DIR "/tests/oracle/folders/gpt-shards-f16/"

static const char yaml[] = "model:\n  layers: 2\n  hidden: 16\n  heads: 2\n  vocab: 257\n"
                           "  seq: 16\ntrain:\n  batch: 2\nparallel:\n  pp: 2\n";
static const char list[] = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n";
static const char torch[] = "0UNSHARD,0F0,0F1,0B0,0B1,0REDUCE_GRAD,0RESHARD\n"
                            "1UNSHARD,1F0,1B0,1F1,1B1,1REDUCE_GRAD,1RESHARD\n";
static const char costs[] = "stage,F,B,I,W\n0,1,2,1,1\n1,3,,2,3\n";

/* What is read, by a command that reads it. */
static const struct input {
    const char *name, *file, *text; /* text NULL: that of the folder of shards */
    int code;                       /* of a refusal */
    const char *words[WORDS];
    bool bytes; /* its bytes are the result */
} inputs[] = {
    {"a configuration", "m.yaml", yaml, 10, {"check", "m.yaml"}, false},
    {"a configuration of the simulator", "m.yaml", yaml, 10,
     {"sim", "1f1b", "-p", "2", "-m", "2", "--model", "m.yaml"}, false},
    {"the configuration of a run", "run/config.yaml", yaml, 10,
     {"generate", "run", "--prompt", "a"}, false},
    {"the configuration of a traced run", "run/config.yaml", yaml, 10, {"compare", "run"}, false},
    {"a list of orders", "list.csv", list, 10, {"sim", "list.csv"}, false},
    {"a list to train by", "list.csv", list, 10,
     {"check", "plain.yaml", "parallel.schedule=file:list.csv"}, false},
    {"a list of torch's", "torch.csv", torch, 10, {"sim", "torch.csv"}, false},
    {"costs of the simulator", "costs.csv", costs, 10,
     {"sim", "1f1b", "-p", "2", "-m", "2", "--costs", "costs.csv"}, false},
    {"costs of a run", "costs.csv", costs, 10, {"check", "plain.yaml", "parallel.costs=costs.csv"},
     false},
    {"Hugging Face's configuration", "hf/config.json", NULL, 14,
     {"generate", "hf", "--ids", "1,2", "--tokens", "2", "--temperature", "0"}, false},
    {"Hugging Face's index of shards", "hf/model.safetensors.index.json", NULL, 14,
     {"generate", "hf", "--ids", "1,2", "--tokens", "2", "--temperature", "0"}, false},
    {"a text to train on", "text.txt", "over\nand under\n", 12,
     {"data", "prepare", "text.txt", "-o", "text.tok"}, true},
};
enum { INPUTS = sizeof inputs / sizeof *inputs };

static void put(const char *file, const char *text, int64_t n)
{
    FILE *f = fopen(file, "wb");
    CHECK(f && (n == 0 || fwrite(text, (size_t)n, 1, f) == 1) && fclose(f) == 0);
}

/* The file of shards as it stands in the sources, into another or into memory. */
static int64_t original(const char *file, const char *to, char out[TEXT])
{
    struct fs_map m;
    char path[1024];
    snprintf(path, sizeof path, SHARDS "%s", file);
    CHECK_OK(fs_map_open(&m, path, ERR_DATA));
    int64_t n = m.size;
    if (to)
        put(to, (const char *)m.data, n);
    else if (CHECK(n <= TEXT))
        memcpy(out, m.data, (size_t)n);
    fs_map_close(&m);
    return n;
}

static int64_t text_of(const struct input *in, char out[TEXT])
{
    if (!in->text)
        return original(strchr(in->file, '/') + 1, NULL, out);
    memcpy(out, in->text, strlen(in->text));
    return (int64_t)strlen(in->text);
}

static void lay_out(void)
{
    static bool done;
    char name[64];
    if (done)
        return;
    done = true;
    CHECK(mkdir("run", 0700) == 0 && mkdir("hf", 0700) == 0);
    put("plain.yaml", yaml, (int64_t)strlen(yaml));
    original("config.json", "hf/config.json", NULL);
    original("model.safetensors.index.json", "hf/model.safetensors.index.json", NULL);
    for (int i = 1; i <= 7; i++) {
        snprintf(name, sizeof name, "hf/model-%05d-of-00007.safetensors", i);
        original(name + 3, name, NULL);
    }
}

/* What the command says of these bytes; the file is as it was afterwards. */
static void reads(const struct input *in, const char *bytes, int64_t n, struct outcome *o)
{
    char text[TEXT];
    put(in->file, bytes, n);
    unlink("text.tok");
    program_run(o, NULL, in->words);
    put(in->file, text, text_of(in, text));
}

/* Each line end as `end`; the last one as `last`. */
static int64_t ended(const char *text, int64_t n, const char *end, const char *last, char *out)
{
    char *to = out;
    for (int64_t i = 0; i < n; i++) {
        const char *with = i == n - 1 ? last : end;
        if (text[i] != '\n') {
            *to++ = text[i];
            continue;
        }
        memcpy(to, with, strlen(with));
        to += strlen(with);
    }
    return to - out;
}

static void same(const struct input *in, const char *how, const struct outcome *want,
                 const struct outcome *got)
{
    test_check(got->code == want->code && strcmp(got->out, want->out) == 0 &&
                   strcmp(got->err, want->err) == 0,
               __FILE__, __LINE__, "%s %s: %d for %d, says\n%s%s\nfor\n%s%s", in->name, how,
               got->code, want->code, got->out, got->err, want->out, want->err);
}

#define MARK "\xef\xbb\xbf"

static void other_line_ends(void)
{
    static const struct { const char *how, *mark, *end, *last; } forms[] = {
        {"with a mark", MARK, "\n", "\n"},
        {"with CR LF", "", "\r\n", "\r\n"},
        {"with a mark and CR LF", MARK, "\r\n", "\r\n"},
        {"without its last line end", "", "\n", ""},
        {"with CR LF and without the last", MARK, "\r\n", ""}};
    static struct outcome want, got;
    lay_out();
    for (int i = 0; i < INPUTS; i++) {
        char text[TEXT], form[2 * TEXT + 8];
        int64_t n = text_of(&inputs[i], text);
        reads(&inputs[i], text, n, &want);
        if (strncmp(inputs[i].file, "run/", 4) != 0) /* which has neither weights nor traces */
            test_check(want.code == 0, __FILE__, __LINE__, "%s: %s", inputs[i].name, want.err);
        for (size_t k = 0; k < sizeof forms / sizeof *forms; k++) {
            size_t mark = strlen(forms[k].mark);
            if (inputs[i].bytes && k > 0)
                continue;
            memcpy(form, forms[k].mark, mark);
            int64_t m = ended(text, n, forms[k].end, forms[k].last, form + mark);
            reads(&inputs[i], form, (int64_t)mark + m, &got);
            same(&inputs[i], forms[k].how, &want, &got);
        }
    }
}

/* A character is 2 or 4 bytes; the mark is one, too. */
static int64_t widen(const char *text, int64_t n, int size, bool big, char *out)
{
    memset(out, 0, (size_t)(size * (n + 1)));
    out[big ? size - 2 : 1] = (char)0xfe;
    out[big ? size - 1 : 0] = (char)0xff;
    for (int64_t i = 0; i < n; i++)
        out[size * (i + 1) + (big ? size - 1 : 0)] = text[i];
    return size * (n + 1);
}

static void other_encodings(void)
{
    static struct outcome got;
    lay_out();
    for (int i = 0; i < INPUTS; i++)
        for (int size = 2; size <= 4; size += 2)
            for (int big = 0; big < 2; big++) {
                char text[TEXT], wide[4 * (TEXT + 1)], says[64];
                int64_t n = text_of(&inputs[i], text);
                reads(&inputs[i], wide, widen(text, n, size, big, wide), &got);
                snprintf(says, sizeof says, " begins with the byte order mark of UTF-%d; save it "
                         "as UTF-8", 8 * size);
                const char *at = strstr(got.err, says);
                test_check(got.code == inputs[i].code && at && !strstr(at + 1, says) && !got.out[0],
                           __FILE__, __LINE__, "%s in UTF-%d, %s: %d, %s%s", inputs[i].name,
                           8 * size, big ? "big" : "little", got.code, got.out, got.err);
            }
}

/* A mark and nothing behind it is an empty file; and half a mark is none. */
static void nothing_but_a_mark(void)
{
    static struct outcome want, got;
    lay_out();
    for (int i = 0; i < INPUTS; i++) {
        reads(&inputs[i], "", 0, &want);
        reads(&inputs[i], MARK, 3, &got);
        if (inputs[i].bytes)
            test_check(want.code == got.code && strstr(want.err, "is empty (0 bytes)") &&
                           strstr(got.err, "is empty (3 bytes)"),
                       __FILE__, __LINE__, "%s: %s%s", inputs[i].name, want.err, got.err);
        else if (inputs[i].text)
            same(&inputs[i], "of a mark alone", &want, &got);
        else /* which says the byte where it looked */
            test_check(want.code == got.code, __FILE__, __LINE__, "%s: %d, %s", inputs[i].name,
                       got.code, got.err);
        reads(&inputs[i], "\xef\xbb", 2, &got);
        test_check(got.code == (inputs[i].bytes ? 0 : inputs[i].code), __FILE__, __LINE__,
                   "%s of half a mark: %d, %s", inputs[i].name, got.code, got.err);
    }
}

static const struct test_case cases[] = {{"other line ends", other_line_ends},
                                         {"other encodings", other_encodings},
                                         {"nothing but a mark", nothing_but_a_mark}};
TEST_MAIN(cases)
