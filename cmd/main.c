/* SPDX-License-Identifier: Apache-2.0
 *
 * The program: a table of verbs.
 */
#include "cmd.h"
#include "cmd_signals.h"
#include "cmd_streams.h"

#include <stdio.h>
#include <string.h>

static const struct cmd_verb verbs[] = {
    {"train", "train a model", cmd_train},
    {"check", "say what a configuration will do, or why it cannot run", cmd_check},
    {"data", "turn text into token files, and check them", cmd_data},
    {"sim", "play a pipeline schedule on a clock: time, idle share, memory, chart", cmd_sim},
    {"compare", "show what a traced run took, beside what the simulator says", cmd_compare},
    {"bench", "measure the device, the calls of a step, the links between ranks", cmd_bench},
    {"generate", "write text with the weights of a run", cmd_generate},
    {"info", "show version, processor, devices and transports", cmd_info},
    {"help", "explain a verb, the configuration keys or the schedules", cmd_help},
};

/* What other programs call a verb. */
static const struct { const char *said, *meant; } names[] = {
    {"plan", "check"}, {"validate", "check"}, {"verify", "check"}, {"estimate", "check"},
    {"simulate", "sim"}, {"simulator", "sim"}, {"run", "train"}, {"fit", "train"},
    {"pretrain", "train"}, {"finetune", "train"}, {"sample", "generate"}, {"chat", "generate"},
    {"complete", "generate"}, {"inference", "generate"}, {"infer", "generate"},
    {"serve", "generate"},
    {"tokenize", "data"}, {"prepare", "data"}, {"preprocess", "data"}, {"dataset", "data"},
    {"profile", "bench"}, {"benchmark", "bench"}, {"devices", "info"}, {"version", "info"},
    {"env", "info"}, {"trace", "compare"}, {"diff", "compare"},
};

int cmd_verb_count(void)
{
    return (int)(sizeof verbs / sizeof *verbs);
}

const struct cmd_verb *cmd_verb_at(int i)
{
    return &verbs[i];
}

const struct cmd_verb *cmd_verb_find(const char *name)
{
    for (int i = 0; i < cmd_verb_count(); i++)
        if (strcmp(verbs[i].name, name) == 0)
            return &verbs[i];
    return NULL;
}

static const char *verb_name(int i)
{
    return verbs[i].name;
}

const char *cmd_verb_meant(const char *word)
{
    for (int i = 0; i < (int)(sizeof names / sizeof *names); i++)
        if (strcmp(names[i].said, word) == 0)
            return names[i].meant;
    return cmd_nearest(word, cmd_verb_count(), verb_name);
}

static int run(int argc, char **argv)
{
    if (argc < 2) {
        cmd_help_page(stderr);
        return PLAIT_CONFIG;
    }
    const char *word = argv[1];
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)
        word = "help";
    if (strcmp(word, "--version") == 0) {
        printf("plait %s\n", PLAIT_VERSION);
        return PLAIT_OK;
    }
    const struct cmd_verb *verb = cmd_verb_find(word);
    if (verb)
        return verb->run(argc - 1, argv + 1);
    const char *near = cmd_verb_meant(word);
    cmd_runs_ranks(); /* the verb that was meant may */
    return cmd_usage("there is no verb \"%.40s\"%s%s; `plait help` lists them", word,
                     near ? "; the nearest is " : "", near ? near : "");
}

int main(int argc, char **argv)
{
    cmd_streams_open();
    cmd_signals_open();
    return cmd_streams_end(run(argc, argv));
}
