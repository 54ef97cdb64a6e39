/* SPDX-License-Identifier: Apache-2.0
 *
 * plait bench: ceilings, calls of a model's step, links. Lines are printed as they are measured.
 */
#include "cmd.h"

/* Under MPI one process of the job has lines. */
static void print_line(void *arg, const char *line)
{
    bool *said = arg;
    *said = true;
    puts(line);
    fflush(stdout);
}

int cmd_bench(int argc, char **argv)
{
    bool said = false;
    struct plait_bench a = {.size = sizeof a, .on_line = print_line, .arg = &said};
    const struct cmd_option option[] = {
        {"ranks", 'n', CMD_INT, &a.ranks, 0, 1024, "N",
         "ranks for the links; 0 (default): those of the layout"},
        {"out", 'o', CMD_TEXT, &a.out, 0, 0, "FILE", "write what was measured, for planning"},
        {"seconds", 0, CMD_REAL, &a.seconds, 1e-4, 60, "S", "to spend on a figure (default 0.2)"},
        {"largest", 0, CMD_LONG, &a.largest, 1024, 1 << 28, "BYTES",
         "buffer of the links' last point (default 268435456)"},
        {"gemm", 0, CMD_REAL, &a.product, 1e-6, 1e9, "TFLOP/S",
         "count only, against this ceiling of GEMMs"},
        {"product", 0, CMD_REAL, &a.product, 1e-6, 1e9, "TFLOP/S", "--gemm by its older name"},
        {"copy", 0, CMD_REAL, &a.copy, 1e-6, 1e9, "GB/S", "and this of copies, read and written"},
    };
    const struct cmd_page page = {
        .usage = "plait bench [FILE] [KEY=VALUE ...] [-n RANKS] [--out FILE] [--seconds S]",
        .about = "Measure the device: its best GEMM and copy, each kind of call of the\n"
                 "configured model's step with its share of its ceiling, the step's floor;\n"
                 "and with two ranks or more what the links between them carry.",
        CMD_OPTIONS(option),
        .more = "examples: plait bench configs/gpt2-124m.yaml train.device=cuda\n"
                "          plait bench configs/demo.yaml -n 2 --out machine.json\n"
                "          plait bench configs/gpt2-124m.yaml train.device=cuda \\\n"
                "              --gemm 790 --copy 4300",
        .names = cmd_names_run,
        .keys = true,
    };
    struct plait_config *config;
    int words, code;
    if (!cmd_parse(&page, argc, argv, &words, &code))
        return code;
    code = cmd_config(words, argv, NULL, &config);
    if (code != PLAIT_OK)
        return code;
    a.product *= 1e12;
    a.copy *= 1e9;
    code = plait_bench(config, &a);
    plait_config_free(config);
    if (code == PLAIT_OK && said)
        cmd_wrote(a.out, "what was measured");
    return code == PLAIT_OK ? cmd_fine() : cmd_fail(code);
}
