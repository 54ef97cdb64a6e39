/* SPDX-License-Identifier: Apache-2.0
 *
 * plait check: what will this configuration do, or what stands against it? Needs no device, no data
 * beyond the headers of the token files, and well under a second.
 */
#include "cmd.h"

int cmd_check(int argc, char **argv)
{
    int ranks = 0, yaml = 0, json = 0;
    struct cmd_keys keys = {0, 0};
    struct plait_rates rates = {0};
    const struct cmd_option option[] = {
        {"ranks", 'n', CMD_INT, &ranks, 0, 1 << 20, "N",
         "ranks that will be started; 0 (default): as many as the layout needs"},
        {"yaml", 0, CMD_FLAG, &yaml, 0, 0, NULL,
         "print the whole configuration, defaults included, as a file"},
        {"json", 0, CMD_FLAG, &json, 0, 0, NULL,
         "print the whole plan for a program, as JSON (docs/plan.md)"},
        CMD_KEYS_OPTIONS(keys),
        CMD_RATES_OPTIONS(rates),
    };
    const struct cmd_page page = {
        .usage = "plait check FILE [KEY=VALUE ...] [-n RANKS] [--yaml | --json] ...",
        .about = "Say what a configuration will do: layout, stages, memory of each rank, messages\n"
                 "and bytes between ranks, predicted bubble. Or say why it cannot run: key,\n"
                 "value, rule, nearest legal values. It takes what `plait train` takes, and looks\n"
                 "at no GPU: compare the bytes of a rank with what yours has. With rates, in\n"
                 "seconds, it says how long the messages of a step take, one after the other.",
        CMD_OPTIONS(option),
        .more = "example: plait check configs/demo.yaml parallel.pp=3\n"
                "`plait help config` lists the keys.",
        .names = cmd_names_run,
        .keys = true,
    };
    struct plait_config *config;
    char *text = NULL;
    int words, code;
    if (!cmd_parse(&page, argc, argv, &words, &code))
        return code;
    if (yaml && json)
        return cmd_usage("--yaml and --json exclude one another; use one of them");
    code = cmd_config(words, argv, &keys, &config);
    if (code != PLAIT_OK)
        return code;
    code = plait_config_rates(config, &rates);
    if (code == PLAIT_OK)
        code = json ? plait_config_plan(config, ranks, &text)
                    : plait_config_check(config, ranks, yaml ? NULL : &text);
    if (code == PLAIT_OK && yaml)
        code = plait_config_print(config, &text);
    plait_config_free(config);
    if (code != PLAIT_OK)
        return cmd_fail(code);
    code = cmd_fine(); /* of all: files may differ from machine to machine */
    if (code == PLAIT_OK && plait_is_first())
        fputs(text, stdout);
    plait_free(text);
    return code;
}
