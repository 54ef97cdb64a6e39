/* SPDX-License-Identifier: Apache-2.0
 *
 * plait info: what this program and this machine have; the first thing to put into a bug report.
 */
#include "cmd.h"

int cmd_info(int argc, char **argv)
{
    const struct cmd_page page = {
        .usage = "plait info",
        .about = "Show version, processor, devices, transports and schedules of this program.",
    };
    char *text = NULL;
    int words, code;
    if (!cmd_parse(&page, argc, argv, &words, &code))
        return code;
    if (words > 0)
        return cmd_usage("info takes no words, and \"%.40s\" was given", argv[1]);
    return cmd_answer(plait_info(&text), &text);
}
