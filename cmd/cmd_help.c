/* SPDX-License-Identifier: Apache-2.0
 *
 * plait help: the list of verbs, a verb's page, the configuration keys, one of them, the schedules.
 * Keys and schedules come from the library's own tables.
 */
#include "cmd.h"

#include <stdio.h>
#include <string.h>

void cmd_help_page(FILE *to)
{
    fprintf(to, "plait %s: train language models over many ranks, and know beforehand what it "
                "costs\n\n", PLAIT_VERSION);
    for (int i = 0; i < cmd_verb_count(); i++)
        fprintf(to, "  plait %-9s %s\n", cmd_verb_at(i)->name, cmd_verb_at(i)->about);
    fputs("\n"
          "plait VERB --help      what a verb takes\n"
          "plait help config      every configuration key (--markdown: as docs/configuration.md)\n"
          "plait help KEY         one of them: type, default, legal values, meaning\n"
          "plait help schedules   the pipeline schedules\n",
          to);
}

static int help_config(bool markdown)
{
    char *text;
    int code = plait_config_help(markdown ? "markdown" : "text", &text);
    if (code != PLAIT_OK)
        return cmd_fail(code);
    fputs(text, stdout);
    plait_free(text);
    return PLAIT_OK;
}

static int help_schedules(void)
{
    for (int i = 0; i < plait_schedule_count(); i++)
        printf("%-12s %s\n", plait_schedule_name(i), plait_schedule_doc(i));
    return PLAIT_OK;
}

static const char *topic(int i)
{
    return i == 0 ? "config" : i == 1 ? "schedules" : cmd_verb_at(i - 2)->name;
}

static bool is_schedule(const char *word)
{
    for (int i = 0; i < plait_schedule_count(); i++)
        if (strcmp(plait_schedule_name(i), word) == 0)
            return true;
    return false;
}

static int help_key(const char *word)
{
    char *text;
    int code = plait_config_explain(word, &text);
    if (code == PLAIT_CONFIG) {
        if (is_schedule(word))
            return cmd_usage("%s is a schedule; `plait help schedules` has them all, a line each",
                             word);
        const char *near = cmd_nearest(word, cmd_verb_count() + 2, topic);
        const char *schedule = near ? NULL : plait_schedule_nearest(word);
        if (schedule)
            return cmd_usage("there is no help on \"%.40s\"; the nearest is the schedule %s of "
                             "`plait help schedules`", word, schedule);
        near = near ? near : cmd_verb_meant(word);
        near = near ? near : plait_config_nearest(word);
        return cmd_usage("there is no help on \"%.40s\"%s%s; `plait help` lists what there is",
                         word, near ? "; the nearest is " : "", near ? near : "");
    }
    if (code != PLAIT_OK)
        return cmd_fail(code);
    fputs(text, stdout);
    plait_free(text);
    return PLAIT_OK;
}

int cmd_help(int argc, char **argv)
{
    bool markdown = false;
    const struct cmd_option option[] = {
        {"markdown", 0, CMD_FLAG, &markdown, 0, 0, NULL, "with config: as a Markdown page"},
    };
    const struct cmd_page page = {
        .usage = "plait help [VERB | KEY | config | schedules] [--markdown]",
        .about = "Explain a verb, the configuration keys, one of them (with or without its\n"
                 "group, here or in another program), or the schedules.",
        .option = option,
        .options = 1,
    };
    int words, code;
    if (!cmd_parse(&page, argc, argv, &words, &code))
        return code;
    if (words == 0) {
        cmd_help_page(stdout);
        return PLAIT_OK;
    }
    if (words > 1)
        return cmd_usage("help explains one thing at a time, and %d were asked for", words);
    const char *word = argv[1];
    if (markdown && strcmp(word, "config") != 0)
        return cmd_usage("--markdown is for `plait help config` only");
    if (strcmp(word, "config") == 0)
        return help_config(markdown);
    if (strcmp(word, "schedules") == 0)
        return help_schedules();
    const struct cmd_verb *verb = cmd_verb_find(word);
    if (verb) {
        char name[16], ask[] = "--help", *args[] = {name, ask, NULL};
        snprintf(name, sizeof name, "%s", verb->name);
        return verb->run(2, args);
    }
    return help_key(word);
}
