/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages say where a thing is, and what to do: reasons of the system, characters that are not
 * seen, numbers and places of a config.json, lists of ids, folders where a file is wanted.
 */
#include "base/fs.h"
#include "base/text.h"
#include "ckpt/ckpt.h"
#include "program.h"
#include "test.h"

#include <errno.h>
#include <sys/stat.h>

static struct outcome said;

static void wants(const char *what, int code, const char *says)
{
    test_check(said.code == code && strstr(said.err, says), __FILE__, __LINE__,
               "%s: wanted %d \"%s\", got %d %s", what, code, says, said.code, said.err);
}

static void put(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    CHECK(f && fputs(text, f) >= 0 && fclose(f) == 0);
}

/* Whatever open, write, fsync, rename, link, mkdir, fallocate and stat are said to give. */
static void reasons_have_a_way_out(void)
{
    static const int codes[] = {
        EACCES, EBUSY, EDQUOT, EEXIST, EFBIG, EINVAL, EIO, EISDIR, ELOOP, EMFILE, EMLINK,
        ENAMETOOLONG, ENFILE, ENODEV, ENOENT, ENOMEM, ENOSPC, ENOSYS, ENOTDIR, ENXIO, EOPNOTSUPP,
        EPERM, EROFS, ESTALE, ETXTBSY, EXDEV, ETIMEDOUT, ENOTCONN, EHOSTDOWN};
    char why[FS_REASON], raw[FS_REASON];
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        const char *system = strerror_r(codes[i], raw, sizeof raw);
        fs_reason(codes[i], why);
        size_t n = strlen(system);
        test_check(strncmp(why + 1, system + 1, n - 1) == 0 && strncmp(why + n, "; ", 2) == 0 &&
                       strlen(why) > n + 10 && strlen(why) < FS_REASON - 1,
                   __FILE__, __LINE__, "%d: %s", codes[i], why);
    }
    CHECK(strstr(fs_reason(EFBIG, why), "ulimit -f") != NULL);
    CHECK(strstr(fs_reason(EMFILE, why), "ulimit -n") != NULL);
}

/* A limit that the shell set, met by the program. */
static void limits_are_named(void)
{
    static const char text[] = "ulimit -f 1; exec \"$0\" data random --vocab 257 --tokens 100000 "
                               "-o big.tok 2>&1";
    char command[512], line[512] = "";
    snprintf(command, sizeof command, "bash -c '%s' %s", text, PLAIT_PROGRAM);
    FILE *f = popen(command, "r");
    CHECK(f && fgets(line, sizeof line, f) && pclose(f) != 0);
    test_check(strstr(line, "file too large; raise the limit on files (ulimit -f)") != NULL,
               __FILE__, __LINE__, "%s", line);
}

static int put_point(uint32_t c, char *out)
{
    int n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (int i = n - 1; i > 0; i--, c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)(n == 1 ? c : (0xf0u << (4 - n) & 0xff) | c);
    return n;
}

/* A key with one of these in it looks like the key; a message shows the bytes. */
static void unseen_characters_are_shown(void)
{
    static const uint32_t points[] = {
        0xa0, 0xad, 0x34f, 0x61c, 0x115f, 0x1160, 0x1680, 0x17b4, 0x180b, 0x180e, 0x2000, 0x2003,
        0x2007, 0x2009, 0x200a, 0x200b, 0x200c, 0x200d, 0x200e, 0x2028, 0x202e, 0x202f, 0x205f,
        0x2060, 0x2061, 0x2064, 0x206f, 0x2800, 0x3000, 0x3164, 0xfe00, 0xfe0f, 0xfeff, 0xffa0,
        0x1d173, 0xe0001, 0xe0020, 0xe0100};
    static const uint32_t seen[] = {'a', ' ', 0xe9, 0x3b1, 0x4e2d, 0xac00, 0x1f600};
    char word[64], bytes[32], shown[96];
    for (size_t i = 0; i < sizeof points / sizeof *points; i++) {
        char one[4];
        int n = put_point(points[i], one);
        snprintf(word, sizeof word, "model.lay%.*sers=3", n, one);
        for (int k = 0; k < n; k++)
            snprintf(bytes + 4 * k, 8, "\\x%02x", (unsigned char)one[k]);
        snprintf(shown, sizeof shown, "there is no key model.lay%sers;", bytes);
        RUN(&said, "check", word);
        wants(bytes, 10, shown);
        CHECK(!printable_seen(points[i]));
    }
    for (size_t i = 0; i < sizeof seen / sizeof *seen; i++)
        CHECK(printable_seen(seen[i]) && printable_point(seen[i]));
    for (uint32_t c = 0; c < 0x110000; c++) /* what steers is not seen */
        if (printable_seen(c) && !printable_point(c))
            test_check(false, __FILE__, __LINE__, "%x", c);
}

/* ---- config.json ---- */

static const char llama[] = "\"model_type\": \"llama\", \"vocab_size\": 257, \"hidden_size\": 16, "
                            "\"intermediate_size\": 32, \"num_attention_heads\": 2";

static const char *read_error(const char *more)
{
    char text[512];
    struct hf_config c;
    snprintf(text, sizeof text, "{%s,\n\"num_hidden_layers\": 1,\n%s}", llama, more);
    put("config.json", text);
    enum err err = hf_config_read("config.json", &c);
    test_check(err == ERR_OK || err == ERR_CHECKPOINT, __FILE__, __LINE__, "%d", (int)err);
    return err == ERR_OK ? "it is read" : err_text();
}

/* What is no JSON is quoted with its line. */
static void no_json_has_a_place(void)
{
    static const struct { const char *more, *says; } c[] = {
        {"\"rms_norm_eps\": NaN", "line 3 has \"NaN\""},
        {"\"rms_norm_eps\":\nInfinity", "line 4 has \"Infinity\""},
        {"\"rope_theta\": -Infinity", "line 3 has \"-Infinity\""},
        {"\"a\": [1,\n\n nan]", "line 5 has \"nan\""},
        {"\"a\": {\"b\": {\"c\": inf}}", "line 3 has \"inf\""},
        {"\"a\": tru", "line 3 has \"tru\""}, {"\"a\": None", "line 3 has \"None\""},
        {"\"a\": True", "line 3 has \"True\""}, {"\"a\": 'x'", "line 3 has \"'x'\""},
        {"\"a\": [1,]", "line 3 has nothing where a value is expected"},
    };
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        const char *text = read_error(c[i].more);
        test_check(strstr(text, "config.json is no JSON: ") && strstr(text, c[i].says), __FILE__,
                   __LINE__, "%s: %s", c[i].more, text);
    }
}

/* Of the places that a theta may stand in no two differ, and 0 is a number as others. */
static void thetas_agree(void)
{
    static const char *const member[] = {"", "\"rope_theta\": 0", "\"rope_theta\": 5000",
                                         "\"rope_theta\": 10000"};
    for (int k = 0; k < 64; k++) {
        int a = k % 4, b = k / 4 % 4, c = k / 16;
        char more[256];
        snprintf(more, sizeof more, "%s%s\"rope_scaling\": {%s}, \"rope_parameters\": {%s}",
                 member[a], a ? ", " : "", member[b], member[c]);
        bool same = (!a || !b || a == b) && (!a || !c || a == c) && (!b || !c || b == c);
        const char *text = read_error(more);
        test_check(same ? strcmp(text, "it is read") == 0 : strstr(text, "has rope_theta ") != NULL,
                   __FILE__, __LINE__, "%s: %s", more, text);
    }
}

/* A number beyond the range of a key is of the file, under the file's name for it. */
static void numbers_are_of_the_file(void)
{
    static const char *const key[] = {"rms_norm_eps", "rope_theta", "initializer_range",
                                      "max_position_embeddings", "head_dim"};
    static const char *const value[] = {"0", "1e17", "1e17", "2147483647", "2147483647"};
    char text[512];
    CHECK(mkdir("model", 0777) == 0);
    put("model/model.safetensors", "");
    for (size_t i = 0; i < sizeof key / sizeof *key; i++) {
        snprintf(text, sizeof text, "{%s, \"num_hidden_layers\": 1, \"%s\": %s}", llama, key[i],
                 value[i]);
        put("model/config.json", text);
        RUN(&said, "generate", "model", "--ids", "1");
        wants(key[i], 14, "model/config.json ");
        test_check(!strstr(said.err, "command line"), __FILE__, __LINE__, "%s", said.err);
        if (i < 3)
            wants(key[i], 14, key[i]);
    }
    snprintf(text, sizeof text, "{%s, \"num_hidden_layers\": 1, \"rope_theta\": 0}", llama);
    put("model/config.json", text);
    RUN(&said, "generate", "model", "--ids", "1");
    wants("theta 0", 14, "its rope_theta: model.rope_theta 0 is outside 1 to ");
}

/* ---- words of a command ---- */

static void ids_have_commas_between_them(void)
{
    static const char *const bad[] = {"1,,2", "1,2,", ",1", ",", "1 2", "1, 2 3", "1;2", "1,a",
                                      "-1", "1,2 ,", "1.5", "0x1", "2147483648", "1, ,2", "+1"};
    static const char *const good[] = {"1", "1,2", "1, 2", " 1 , 2 ", "007,2147483647"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        RUN(&said, "generate", "nowhere", "--ids", bad[i]);
        wants(bad[i], 10, "--ids ");
    }
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        RUN(&said, "generate", "nowhere", "--ids", good[i]);
        wants(good[i], 10, "there is no folder nowhere");
    }
}

static void a_folder_is_no_configuration(void)
{
    static const char *const verb[] = {"check", "train", "bench"};
    CHECK(mkdir("run", 0777) == 0 && mkdir("hf", 0777) == 0 && mkdir("bare", 0777) == 0);
    put("run/config.yaml", "");
    put("hf/config.json", "{}");
    for (size_t i = 0; i < sizeof verb / sizeof *verb; i++) {
        RUN(&said, verb[i], "run");
        wants(verb[i], 10, "run is the folder of a run; did you mean run/config.yaml\n");
        RUN(&said, verb[i], "run/");
        wants(verb[i], 10, "did you mean run/config.yaml\n");
        RUN(&said, verb[i], "hf");
        wants(verb[i], 10, "hf is the folder of a model, which `plait generate` reads");
        RUN(&said, verb[i], "bare");
        wants(verb[i], 10, "it is a folder, not a regular file");
    }
}

static const struct test_case cases[] = {
    {"reasons_have_a_way_out", reasons_have_a_way_out},
    {"limits_are_named", limits_are_named},
    {"unseen_characters_are_shown", unseen_characters_are_shown},
    {"no_json_has_a_place", no_json_has_a_place},
    {"thetas_agree", thetas_agree},
    {"numbers_are_of_the_file", numbers_are_of_the_file},
    {"ids_have_commas_between_them", ids_have_commas_between_them},
    {"a_folder_is_no_configuration", a_folder_is_no_configuration},
};
TEST_MAIN(cases)
