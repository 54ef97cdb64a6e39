/* SPDX-License-Identifier: Apache-2.0
 *
 * plait runs: what runs a folder has, and what came of them.
 */
#include "cmd.h"

int cmd_runs(int argc, char **argv)
{
    int json = 0;
    const struct cmd_option option[] = {
        {"json", 0, CMD_FLAG, &json, 0, 0, NULL, "a list of objects, for programs"},
    };
    const struct cmd_page page = {
        .usage = "plait runs [DIR] [--json]",
        .about = "List DIR (the current folder) if it is a run's, and the runs in it: state,\n"
                 "steps, last loss, best validation, checkpoints, and when the last start ended\n"
                 "or began. What is wrong with one is said below the table.",
        CMD_OPTIONS(option),
        .more = "example: plait runs runs\ndocs/run-folder.md has the states.",
    };
    char *text = NULL;
    int words, code;
    if (!cmd_parse(&page, argc, argv, &words, &code))
        return code;
    if (words > 1)
        return cmd_usage("runs takes one folder, and %d words were given", words);
    struct plait_runs how = {.size = sizeof how, .dir = words ? argv[1] : ".",
                             .format = json ? "json" : "text"};
    return cmd_answer(plait_runs(&how, &text), &text);
}
