/* SPDX-License-Identifier: Apache-2.0
 *
 * plait compare: what a traced run took, beside what the simulator says.
 */
#include "cmd.h"

int cmd_compare(int argc, char **argv)
{
    struct plait_compare how = {.size = sizeof how, .skip = -1, .on_note = cmd_note};
    int json = 0;
    const struct cmd_option option[] = {
        {"skip", 0, CMD_LONG, &how.skip, 0, 1e9, "N",
         "steps at the start to leave out (2, or none of less than 4)"},
        {"json", 0, CMD_FLAG, &json, 0, 0, NULL, "print one JSON object"},
        {"svg", 0, CMD_TEXT, &how.svg, 0, 0, "FILE", "write a picture of both"},
        {"html", 0, CMD_TEXT, &how.html, 0, 0, "FILE", "write a page to explore"},
        {"perfetto", 0, CMD_TEXT, &how.perfetto, 0, 0, "FILE",
         "write trace events, for Perfetto or chrome://tracing"},
        {"costs", 0, CMD_TEXT, &how.costs, 0, 0, "FILE",
         "write the measured times of each stage, for plait sim --costs"},
        CMD_RATES_OPTIONS(how.rates),
    };
    const struct cmd_page page = {
        .usage = "plait compare RUN [--json] [--html FILE] ...",
        .about = "A run that was trained with --trace: how long each action took and waited, and\n"
                 "the same schedule played by the simulator with the measured times. What ends\n"
                 "the step is predicted from bytes, with rates in seconds.",
        CMD_OPTIONS(option),
        .more = "plait train configs/demo.yaml data.train=a.tok data.valid=b.tok --trace\n"
                "plait compare run --html step.html",
        .names = cmd_names_compare,
    };
    char *text = NULL;
    int words, code;
    if (!cmd_parse(&page, argc, argv, &words, &code))
        return code;
    if (words != 1)
        return cmd_usage("plait compare takes one run and %d words are given; "
                         "`plait compare --help` shows how", words);
    how.run = argv[1];
    how.format = json ? "json" : "text";
    code = cmd_answer(plait_compare(&how, &text), &text);
    if (code != PLAIT_OK)
        return code;
    cmd_wrote(how.svg, "a picture");
    cmd_wrote(how.html, "a page to explore in a browser");
    cmd_wrote(how.perfetto, "trace events, for ui.perfetto.dev or chrome://tracing");
    cmd_wrote(how.costs, "times of each stage, for plait sim --costs and parallel.costs");
    return PLAIT_OK;
}
