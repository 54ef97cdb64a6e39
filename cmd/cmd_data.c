/* SPDX-License-Identifier: Apache-2.0
 *
 * plait data: text into token files. The work is the library's; here are arguments and a bar.
 */
#include "cmd.h"
#include "cmd_bar.h"

#include <stdio.h>
#include <string.h>

/* Of the parts that write a token file. */
static struct cmd_option output_option(const char **out)
{
    return (struct cmd_option){"output", 'o', CMD_TEXT, out, 0, 0, "FILE",
                               "the token file to write"};
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
    const char *out = NULL, *tokenizer = "bytes";
    const struct cmd_option option[] = {
        output_option(&out),
        {"tokenizer", 0, CMD_TEXT, &tokenizer, 0, 0, "NAME",
         "bytes (default): an id for each byte, 256 ends a text"},
    };
    const struct cmd_page page = {
        .usage = "plait data prepare TEXT... -o FILE [--tokenizer bytes]",
        .about = "Turn text files, in their order, into one token file for data.train or\n"
                 "data.valid. The file is written whole or not at all.",
        .option = option,
        .options = 2,
        .more = "example: plait data prepare book.txt -o book.tok",
        .names = cmd_names_prepare,
    };
    int words, code;
    if (!cmd_parse(&page, argc, argv, &words, &code))
        return code;
    if (words == 0)
        return cmd_usage("data prepare needs a text file; usage: %s", page.usage);
    if (!out)
        return cmd_usage("data prepare needs -o FILE, the token file to write");
    struct cmd_bar bar;
    cmd_bar_open(&bar, "MB/s", 1e-6);
    struct plait_prepare call = {.size = sizeof call,
                                 .text = (const char *const *)argv + 1,
                                 .texts = words,
                                 .out = out,
                                 .tokenizer = tokenizer,
                                 .progress = cmd_bar_draw,
                                 .arg = &bar};
    int64_t tokens;
    code = plait_data_prepare(&call, &tokens);
    cmd_bar_clear(&bar);
    if (code != PLAIT_OK)
        return cmd_fail(code);
    printf("%lld tokens of %d %s in ", (long long)tokens, words, words == 1 ? "text" : "texts");
    return print_path(out);
}

static int data_info(int argc, char **argv)
{
    const struct cmd_page page = {
        .usage = "plait data info FILE",
        .about = "Say what a token file holds, after reading it whole: every token is held\n"
                 "against the vocabulary, and all of them against the hash.",
    };
    char *text;
    int words, code;
    if (!cmd_parse(&page, argc, argv, &words, &code))
        return code;
    if (words != 1)
        return cmd_usage("data info takes one file, and %d are given", words);
    code = plait_data_info(argv[1], &text);
    if (code != PLAIT_OK)
        return cmd_fail(code);
    fputs(text, stdout);
    plait_free(text);
    return PLAIT_OK;
}

static int data_random(int argc, char **argv)
{
    const char *out = NULL;
    int64_t vocab = 0, tokens = 0, seed = 1;
    const struct cmd_option option[] = {
        output_option(&out),
        {"vocab", 0, CMD_INT, &vocab, 1, INT32_MAX, "N", "ids to draw from, 0 to N - 1"},
        {"tokens", 0, CMD_INT, &tokens, 1, 1e12, "N", "how many to draw"},
        {"seed", 0, CMD_INT, &seed, 0, 1e15, "N", "of the numbers; 1 (default)"},
    };
    const struct cmd_page page = {
        .usage = "plait data random --vocab N --tokens N -o FILE [--seed N]",
        .about = "Write a token file of random ids, each equally often: data to measure speed\n"
                 "with. The file is written whole or not at all.",
        .option = option,
        .options = 4,
        .more = "example: plait data random --vocab 50257 --tokens 1000000 -o random.tok",
        .names = cmd_names_random,
    };
    int words, code;
    if (!cmd_parse(&page, argc, argv, &words, &code))
        return code;
    if (words > 0)
        return cmd_usage("data random takes no words, and \"%.40s\" was given", argv[1]);
    if (!out || !vocab || !tokens)
        return cmd_usage("data random needs --vocab, --tokens and -o FILE");
    code = plait_data_random(out, vocab, tokens, (uint64_t)seed);
    if (code != PLAIT_OK)
        return cmd_fail(code);
    printf("%lld random tokens of %lld ids in ", (long long)tokens, (long long)vocab);
    return print_path(out);
}

static const struct cmd_verb parts[] = {
    {"prepare", "turn text files into a token file", data_prepare, false},
    {"random", "write a token file of random ids, to measure speed with", data_random, false},
    {"info", "say what a token file holds, and check it", data_info, false},
};
enum { PARTS = sizeof parts / sizeof *parts };

static const char *part_name(int i)
{
    return parts[i].name;
}

static void print_parts(FILE *to)
{
    fputs("usage: plait data PART ...\n\nToken files.\n\n", to);
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
