/* SPDX-License-Identifier: Apache-2.0
 *
 * plait data: text into token files, tables into row files. The work is the library's; here are
 * arguments and a bar.
 */
#include "cmd.h"

#include <stdlib.h>
#include <string.h>

/* Of the parts that write a file. */
static struct cmd_option output_option(const char **out)
{
    return (struct cmd_option){"output", 'o', CMD_TEXT, out, 0, 0, "FILE", "the file to write"};
}

/* The end of a line that names the file. */
static int print_path(const char *path)
{
    char *shown;
    if (plait_word_shown(path, &shown) != PLAIT_OK)
        return cmd_fail(PLAIT_MEMORY);
    puts(shown);
    plait_free(shown);
    return PLAIT_OK;
}

static int data_prepare(int argc, char **argv)
{
    struct cmd_bar bar;
    struct plait_prepare call = {.size = sizeof call, .progress = cmd_bar_draw, .arg = &bar};
    const struct cmd_option option[] = {
        output_option(&call.out),
        {"tokenizer", 0, CMD_TEXT, &call.tokenizer, 0, 0, "NAME",
         "bytes (default): an id for each byte, 256 ends a text"},
    };
    const struct cmd_page page = {
        .usage = "plait data prepare TEXT... -o FILE [--tokenizer bytes]",
        .about = "Turn text files, in their order, into one token file for data.train or\n"
                 "data.valid. The file is written whole or not at all.",
        CMD_OPTIONS(option),
        .more = "example: plait data prepare book.txt -o book.tok",
        .names = cmd_names_prepare,
    };
    int64_t tokens;
    int words, code;
    if (!cmd_parse(&page, argc, argv, &words, &code))
        return code;
    if (words == 0)
        return cmd_usage("data prepare needs a text file; usage: %s", page.usage);
    if (!call.out)
        return cmd_usage("data prepare needs -o FILE, the token file to write");
    call.text = (const char *const *)argv + 1;
    call.texts = words;
    cmd_bar_open(&bar, "MB/s");
    code = plait_data_prepare(&call, &tokens);
    cmd_bar_clear(&bar);
    if (code != PLAIT_OK)
        return cmd_fail(code);
    printf("%lld tokens of %d %s in ", (long long)tokens, words, words == 1 ? "text" : "texts");
    return print_path(call.out);
}

/* "8x8" of an option; NULL: not given, and both are 0. Returns a code; when it fails, the message
 * has been said. */
static int read_shape(const char *option, const char *word, int *height, int *width)
{
    char *end;
    *height = *width = 0;
    if (!word)
        return PLAIT_OK;
    long h = strtol(word, &end, 10), w = *end == 'x' ? strtol(end + 1, &end, 10) : 0;
    bool whole = word[0] >= '0' && word[0] <= '9' && !*end && end[-1] != 'x';
    if (!whole || h < 1 || w < 1 || h > 1 << 24 || w > 1 << 24)
        return cmd_usage("--%s is \"%.40s\", wanted is a height and a width of 1 or more, as 8x8",
                         option, word);
    *height = (int)h;
    *width = (int)w;
    return PLAIT_OK;
}

static int data_import(int argc, char **argv)
{
    struct cmd_bar bar;
    struct plait_import call = {.size = sizeof call, .progress = cmd_bar_draw, .arg = &bar};
    const char *shape = NULL, *resize = NULL, *labels = "last";
    const struct cmd_option option[] = {
        output_option(&call.out),
        {"labels", 0, CMD_TEXT, &labels, 0, 0, "WHERE", "last (default) or first value of a line"},
        {"header", 0, CMD_FLAG, &call.header, 0, 0, NULL, "pass over the first line"},
        {"shape", 0, CMD_TEXT, &shape, 0, 0, "HxW", "rows are pictures of this height and width"},
        {"resize", 0, CMD_TEXT, &resize, 0, 0, "HxW",
         "make pictures so large: bilinear, half-pixel centres"},
        {"scale", 0, CMD_REAL, &call.scale, -1e30, 1e30, "X",
         "multiply features by it; 1 (default)"},
        {"classes", 0, CMD_LONG, &call.classes, 1, INT32_MAX, "N",
         "how many there are; default: one more than the largest label"},
    };
    const struct cmd_page page = {
        .usage = "plait data import TABLE -o FILE [--labels first|last] [--shape HxW] "
                 "[--resize HxW] ...",
        .about = "Turn a table of numbers as text (CSV: a row a line, values between commas, one\n"
                 "of them the label from 0 on), or an array of NumPy with such rows (.npy), into\n"
                 "a row file. The file is written whole or not at all.",
        CMD_OPTIONS(option),
        .more = "example: plait data import digits.csv -o digits.rows --shape 8x8 --resize 16x32",
        .names = cmd_names_import,
    };
    int64_t rows;
    int words, code;
    if (!cmd_parse(&page, argc, argv, &words, &code))
        return code;
    if (words != 1)
        return cmd_usage("data import takes one table, and %d are given", words);
    if (!call.out)
        return cmd_usage("data import needs -o FILE, the row file to write");
    code = read_shape("shape", shape, &call.height, &call.width);
    if (code == PLAIT_OK)
        code = read_shape("resize", resize, &call.to_height, &call.to_width);
    if (code != PLAIT_OK)
        return code;
    call.table = argv[1];
    call.label_first = strcmp(labels, "first") == 0;
    if (!call.label_first && strcmp(labels, "last") != 0)
        return cmd_usage("--labels is \"%.40s\", wanted is first or last", labels);
    cmd_bar_open(&bar, "MB/s");
    code = plait_data_import(&call, &rows);
    cmd_bar_clear(&bar);
    if (code != PLAIT_OK)
        return cmd_fail(code);
    printf("%lld row%s in ", (long long)rows, rows == 1 ? "" : "s");
    return print_path(call.out);
}

static int data_info(int argc, char **argv)
{
    const struct cmd_page page = {
        .usage = "plait data info FILE",
        .about = "Say what a token file or a row file holds, after reading it whole: every token\n"
                 "is held against the vocabulary, every label against the classes, and all of\n"
                 "them against the hash.",
    };
    char *text = NULL;
    int words, code;
    if (!cmd_parse(&page, argc, argv, &words, &code))
        return code;
    if (words != 1)
        return cmd_usage("data info takes one file, and %d are given", words);
    return cmd_answer(plait_data_info(argv[1], &text), &text);
}

static int data_random(int argc, char **argv)
{
    const char *out = NULL;
    int64_t vocab = 0, tokens = 0, features = 0, classes = 0, rows = 0, seed = 1;
    const struct cmd_option option[] = {
        output_option(&out),
        {"vocab", 0, CMD_LONG, &vocab, 1, INT32_MAX, "N", "ids to draw from, 0 to N - 1"},
        {"tokens", 0, CMD_LONG, &tokens, 1, 1e12, "N", "how many to draw"},
        {"features", 0, CMD_LONG, &features, 1, 1 << 24, "N", "of a row, each normal"},
        {"classes", 0, CMD_LONG, &classes, 1, INT32_MAX, "N", "of rows, each with its centre"},
        {"rows", 0, CMD_LONG, &rows, 1, 1e12, "N", "how many to draw"},
        {"seed", 0, CMD_LONG, &seed, 0, 1e15, "N", "of the numbers; 1 (default)"},
    };
    const struct cmd_page page = {
        .usage = "plait data random -o FILE --vocab N --tokens N [--seed N], or\n"
                 "       plait data random -o FILE --features N --classes N --rows N [--seed N]",
        .about = "Write a token file of random ids, each equally often: data to measure speed\n"
                 "with; or a row file of random rows around a centre for each class, which can be\n"
                 "told apart in part. The file is written whole or not at all.",
        CMD_OPTIONS(option),
        .more = "example: plait data random --vocab 50257 --tokens 1000000 -o random.tok",
        .names = cmd_names_random,
    };
    int words, code;
    if (!cmd_parse(&page, argc, argv, &words, &code))
        return code;
    if (words > 0)
        return cmd_usage("data random takes no words, and \"%.40s\" was given", argv[1]);
    bool of_tokens = vocab && tokens, of_rows = features && classes && rows;
    if (!out || (of_tokens && (features || classes || rows)) ||
        (of_rows && (vocab || tokens)) || of_tokens == of_rows)
        return cmd_usage("data random needs -o FILE, and --vocab and --tokens, or --features, "
                         "--classes and --rows");
    code = of_tokens ? plait_data_random(out, vocab, tokens, (uint64_t)seed)
                     : plait_data_random_rows(out, features, classes, rows, (uint64_t)seed);
    if (code != PLAIT_OK)
        return cmd_fail(code);
    if (of_tokens)
        printf("%lld random tokens of %lld ids in ", (long long)tokens, (long long)vocab);
    else
        printf("%lld random row%s of %lld feature%s and %lld class%s in ", (long long)rows,
               rows == 1 ? "" : "s", (long long)features, features == 1 ? "" : "s",
               (long long)classes, classes == 1 ? "" : "es");
    return print_path(out);
}

static const struct { const char *name, *about; int (*run)(int argc, char **argv); } parts[] = {
    {"prepare", "turn text files into a token file", data_prepare},
    {"import", "turn a table of numbers into a row file", data_import},
    {"random", "write a token file or a row file drawn by a seed", data_random},
    {"info", "say what such a file holds, and check it", data_info},
};
enum { PARTS = sizeof parts / sizeof *parts };

static const char *part_name(int i)
{
    return parts[i].name;
}

static void print_parts(FILE *to)
{
    fputs("usage: plait data PART ...\n\nToken files and row files.\n\n", to);
    for (int i = 0; i < PARTS; i++)
        fprintf(to, "  %-10s %s\n", parts[i].name, parts[i].about);
    fputs("\n`plait data PART --help` explains a part.\n", to);
}

int cmd_data(int argc, char **argv)
{
    if (argc < 2) {
        print_parts(stderr);
        return PLAIT_CONFIG;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        print_parts(stdout);
        return PLAIT_OK;
    }
    for (int i = 0; i < PARTS; i++)
        if (strcmp(argv[1], parts[i].name) == 0)
            return parts[i].run(argc - 1, argv + 1);
    const char *near = cmd_nearest(argv[1], PARTS, part_name);
    return cmd_usage("data has no part \"%.40s\"%s%s; `plait data --help` lists them", argv[1],
                     near ? "; the nearest is " : "", near ? near : "");
}
