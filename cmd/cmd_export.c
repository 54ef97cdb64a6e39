/* SPDX-License-Identifier: Apache-2.0
 *
 * plait export: the weights of a checkpoint as the folder that transformers reads.
 */
#include "cmd.h"

int cmd_export(int argc, char **argv)
{
    struct plait_export how = {.size = sizeof how, .dtype = "f32", .progress = cmd_bar_draw};
    double shard = 5;
    const struct cmd_option option[] = {
        {"output", 'o', CMD_TEXT, &how.out, 0, 0, "DIR", "the folder to write"},
        {"dtype", 0, CMD_TEXT, &how.dtype, 0, 0, "f32|bf16|f16", "type of the numbers (f32)"},
        {"shard-size", 0, CMD_REAL, &shard, 1e-6, 1e6, "GB",
         "10^9 bytes of tensors in a file at most, but where one is larger (5)"},
    };
    const struct cmd_page page = {
        .usage = "plait export RUN [STEP|best] -o DIR [--dtype f32|bf16|f16] [--shard-size GB]",
        .about =
            "Write the weights of a run's checkpoint, the newest whole one, that of STEP or the\n"
            "best by validation, as the folder that transformers reads. It needs no device and\n"
            "little memory. DIR must not be there, or be empty; it appears whole or not at all.",
        CMD_OPTIONS(option),
        .more = "example: plait export runs/demo -o demo-hf\n"
                "         plait export runs/demo best -o demo-best --dtype bf16\n"
                "         transformers.AutoModelForCausalLM.from_pretrained(\"demo-hf\")\n"
                "docs/export.md has the rest.",
        .names = cmd_names_export,
    };
    struct cmd_bar bar;
    char *said = NULL;
    int words, code;
    if (!cmd_parse(&page, argc, argv, &words, &code))
        return code;
    if (words < 1 || words > 2)
        return cmd_usage("export takes the folder of a run, and a step or best, and %d words are "
                         "given; usage: %s", words, page.usage);
    if (!how.out)
        return cmd_usage("export needs -o DIR, the folder to write");
    cmd_bar_open(&bar, "M parameters/s");
    how.run = argv[1];
    how.step = words == 2 ? argv[2] : NULL;
    how.shard_bytes = (int64_t)(shard * 1e9);
    how.arg = &bar;
    code = plait_export(&how, &said);
    cmd_bar_clear(&bar);
    return cmd_answer(code, &said);
}
