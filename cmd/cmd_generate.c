/* SPDX-License-Identifier: Apache-2.0
 *
 * plait generate: text from the weights of a run, written as it comes.
 */
#include "cmd.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct writing {
    bool wrote; /* under MPI one process of the job writes */
    bool plain; /* control bytes as they are */
};

/* A young model of bytes writes anything; a terminal is spared control bytes, a file is not. */
static void write_text(void *arg, const char *bytes, int n)
{
    struct writing *w = arg;
    w->wrote = true;
    for (int i = 0; i < n; i++) {
        unsigned char c = (unsigned char)bytes[i];
        bool control = (c < ' ' && c != '\n' && c != '\t') || c == 127;
        putchar(control && !w->plain ? '?' : c);
    }
    fflush(stdout);
}

int cmd_generate(int argc, char **argv)
{
    int64_t ranks = 0, tokens = 200, top_k = 0, seed = 1;
    double temperature = 0.8;
    bool raw = false;
    const char *prompt = "";
    const struct cmd_option option[] = {
        {"prompt", 0, CMD_TEXT, &prompt, 0, 0, "TEXT", "what the text begins with"},
        {"tokens", 0, CMD_INT, &tokens, 1, 1 << 24, "N", "tokens to write (200)"},
        {"temperature", 0, CMD_REAL, &temperature, 0, 100, "X",
         "below 1 safer, above 1 wilder; 0: always the likeliest (0.8)"},
        {"top-k", 0, CMD_INT, &top_k, 0, 1 << 24, "K",
         "draw from the K likeliest; 0: from all (0)"},
        {"seed", 0, CMD_INT, &seed, 0, 9e15, "N", "of the draws (1)"},
        {"ranks", 'n', CMD_INT, &ranks, 0, 1 << 20, "N",
         "ranks to run on; 0 (default): as many as tp x pp of the run's layout"},
        {"raw", 0, CMD_FLAG, &raw, 0, 0, NULL,
         "control bytes as they are, also where mpirun lends a terminal"},
    };
    const struct cmd_page page = {
        .usage = "plait generate RUN [--prompt TEXT] [KEY=VALUE ...] [-n RANKS] [--tokens N]\n"
                 "               [--temperature X] [--top-k K] [--seed N] [--raw]",
        .about = "Write text with the weights of a run, on the run's tensor and pipeline ranks or\n"
                 "others. The text depends on the weights and the seed; another layout changes no\n"
                 "more than the rounding of its number type.",
        .option = option,
        .options = 7,
        .more = "example: plait generate runs/demo --prompt \"In the beginning\" --top-k 40\n"
                "         plait generate runs/demo parallel.tp=1 parallel.pp=1 --temperature 0",
    };
    struct writing writing = {0};
    int words, code;
    if (!cmd_parse(&page, argc, argv, &words, &code))
        return code;
    if (words < 1 || strchr(argv[1], '='))
        return cmd_usage("generate needs the folder of a run; see plait generate --help");
    const struct plait_generate g = {
        .size = sizeof g, .run = argv[1], .prompt = prompt, .ranks = (int)ranks, .tokens = tokens,
        .temperature = temperature, .top_k = (int)top_k, .seed = (uint64_t)seed,
        .set = (const char *const *)(argv + 2), .sets = words - 1, .on_text = write_text,
        .arg = &writing};
    writing.plain = raw || !isatty(STDOUT_FILENO);
    code = plait_generate(&g);
    if (code != PLAIT_OK)
        return cmd_fail(code);
    if (writing.wrote)
        putchar('\n');
    return PLAIT_OK;
}
