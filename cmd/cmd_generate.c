/* SPDX-License-Identifier: Apache-2.0
 *
 * plait generate: text, or ids, from the weights of a folder, written as they come.
 */
#include "cmd.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct writing {
    bool wrote; /* under MPI one process of the job writes */
    bool plain; /* control bytes as they are */
};

/* A young model of bytes writes anything; a terminal is spared control characters, a file is not.
 * Bytes come in whole characters: those of two bytes from U+0080 to U+009F are control, too. */
static void write_text(void *arg, const char *bytes, int n)
{
    struct writing *w = arg;
    const unsigned char *c = (const unsigned char *)bytes;
    bool control = n == 1 ? (*c < ' ' && *c != '\n' && *c != '\t') || *c == 127
                          : n == 2 && c[0] == 0xc2 && c[1] < 0xa0;
    w->wrote = true;
    if (control && !w->plain)
        putchar('?');
    else
        fwrite(bytes, 1, (size_t)n, stdout);
    fflush(stdout);
}

static void write_id(void *arg, int32_t id)
{
    struct writing *w = arg;
    printf("%s%d", w->wrote ? "," : "", id);
    w->wrote = true;
    fflush(stdout);
}

enum { IDS_MAX = 1 << 16 }; /* more do not fit one word of a command line */

/* "1,2,3", also "1, 2, 3". Returns a code: some word is no id, or there are too many. */
static int read_ids(const char *list, int32_t *ids, int64_t *count)
{
    const char *p = list + strspn(list, " ");
    for (bool more = *p != '\0'; more;) {
        size_t n = strcspn(p, ","), digits = strspn(p, "0123456789");
        int64_t id = digits ? 0 : (int64_t)INT32_MAX + 1;
        if (*count == IDS_MAX)
            return cmd_usage("--ids has more than %d ids; give the last of them", IDS_MAX);
        for (size_t i = 0; i < digits && id <= INT32_MAX; i++)
            id = id * 10 + (p[i] - '0');
        if (n == 0)
            return cmd_usage("--ids has no number in place %lld of its list; write N,N,...",
                             (long long)*count + 1);
        if (id > INT32_MAX || digits + strspn(p + digits, " ") != n)
            return cmd_usage("--ids wants whole numbers from 0 to %d with commas between them, and "
                             "has \"%.*s\"", INT32_MAX, (int)(n < 40 ? n : 40), p);
        ids[(*count)++] = (int32_t)id;
        more = p[n] == ',';
        p += n + more;
        p += strspn(p, " ");
    }
    return PLAIT_OK;
}

/* The folder, then words that set keys. One that sets none is the beginning of a text, as some
 * programs take it. */
static int look_at_words(int words, char **argv)
{
    if (words < 1 || strchr(argv[1], '='))
        return cmd_usage("generate needs the folder of a run as its first word, as in "
                         "`plait generate run --prompt TEXT`");
    for (int i = 2; i <= words; i++) {
        const char *word = argv[i];
        size_t n = strspn(word, "abcdefghijklmnopqrstuvwxyz_0123456789.");
        if (n == 0 || word[n] != '=')
            return cmd_usage("\"%.40s\" is no KEY=VALUE; a prompt stands behind --prompt, in "
                             "quotes, as in `plait generate %.200s --prompt \"%.40s\"`", word,
                             argv[1], word);
    }
    return PLAIT_OK;
}

static const char usage[] =
    "plait generate FOLDER [--prompt TEXT | --ids N,N,...] [KEY=VALUE ...] [-n RANKS]\n"
    "               [--step N|best] [--tokens N] [--temperature X] [--top-k K] [--seed N]\n"
    "               [--ignore-eot] [--raw] [--logits FILE]";
static const char about[] =
    "Write text with the weights of a run, on the run's tensor and pipeline ranks or\n"
    "others. The text depends on the weights and the seed; another layout changes no\n"
    "more than the rounding of its number type. It ends where the model ends it. With\n"
    "ids, FOLDER may also be one that transformers saved (gpt2 or llama).";
static const char more[] =
    "example: plait generate runs/demo --prompt \"In the beginning\" --top-k 40\n"
    "         plait generate runs/demo parallel.tp=1 parallel.pp=1 --temperature 0\n"
    "         plait generate gpt2 --ids 464,2068 --tokens 20 --temperature 0\n"
    "docs/generation.md has the rest.";

int cmd_generate(int argc, char **argv)
{
    static int32_t ids[IDS_MAX];
    struct writing writing = {0};
    struct plait_generate g = {.size = sizeof g, .tokens = 200, .temperature = 0.8,
                               .on_text = write_text, .on_id = write_id, .on_note = cmd_note,
                               .arg = &writing};
    int64_t seed = 1;
    const char *list = NULL;
    const struct cmd_option option[] = {
        {"prompt", 0, CMD_TEXT, &g.prompt, 0, 0, "TEXT", "what the text begins with"},
        {"ids", 0, CMD_TEXT, &list, 0, 0, "N,N,...",
         "a prompt of token ids; what is written is one line of ids, those of the prompt first"},
        {"step", 0, CMD_TEXT, &g.step, 0, 0, "N|best",
         "of a run: read the checkpoint of step N, or the best by validation (the newest)"},
        {"tokens", 0, CMD_LONG, &g.tokens, 1, 1 << 24, "N", "tokens to write at most (200)"},
        {"temperature", 0, CMD_REAL, &g.temperature, 0, 100, "X",
         "below 1 safer, above 1 wilder; 0: always the likeliest (0.8)"},
        {"top-k", 0, CMD_INT, &g.top_k, 0, 1 << 24, "K",
         "draw from the K likeliest; 0: from all (0)"},
        {"seed", 0, CMD_LONG, &seed, 0, 9e15, "N", "of the draws (1)"},
        {"ignore-eot", 0, CMD_FLAG, &g.ignore_eot, 0, 0, NULL,
         "go on behind an end of text, shown as <|endoftext|>"},
        {"ranks", 'n', CMD_INT, &g.ranks, 0, 1 << 20, "N",
         "ranks to run on; 0 (default): as many as tp x pp of the run's layout"},
        {"raw", 0, CMD_FLAG, &g.raw, 0, 0, NULL,
         "bytes as they are: control bytes on a terminal, bytes that are no UTF-8"},
        {"logits", 0, CMD_TEXT, &g.logits, 0, 0, "FILE",
         "write the logits of all ids to FILE, a line for each token that is drawn"},
    };
    const struct cmd_page page = {.usage = usage, .about = about, CMD_OPTIONS(option),
                                  .more = more, .names = cmd_names_generate, .keys = true};
    int words, code;
    if (!cmd_parse(&page, argc, argv, &words, &code))
        return code;
    code = look_at_words(words, argv);
    if (code != PLAIT_OK)
        return code;
    if (list && g.prompt && g.prompt[0])
        return cmd_usage("--prompt and --ids are both a prompt; give one");
    g.run = argv[1];
    g.set = (const char *const *)(argv + 2);
    g.sets = words - 1;
    g.seed = (uint64_t)seed;
    g.ids = list ? ids : NULL;
    code = list ? read_ids(list, ids, &g.id_count) : PLAIT_OK;
    if (code != PLAIT_OK)
        return code;
    writing.plain = g.raw || !isatty(STDOUT_FILENO);
    code = plait_generate(&g);
    if (code != PLAIT_OK)
        return cmd_fail(code);
    if (writing.wrote) {
        putchar('\n');
        cmd_wrote(g.logits, "the logits of each token that was drawn");
    }
    return PLAIT_OK;
}
