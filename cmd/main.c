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
    {"train", "train a model", cmd_train, true},
    {"check", "say what a configuration will do, or why it cannot run", cmd_check, true},
    {"data", "turn text or numbers into data files, and check them", cmd_data, false},
    {"sim", "play a pipeline schedule on a clock: time, idle share, memory, chart", cmd_sim,
     false},
    {"compare", "show what a traced run took, beside what the simulator says", cmd_compare, false},
    {"bench", "measure the device, the calls of a step, the links between ranks", cmd_bench, true},
    {"generate", "write text with the weights of a run", cmd_generate, true},
    {"export", "write the weights of a checkpoint as the folder that transformers reads",
     cmd_export, false},
    {"runs", "list the runs in a folder: state, steps, losses, checkpoints", cmd_runs, false},
    {"info", "show version, processor, devices and transports", cmd_info, false},
    {"help", "explain a verb, the configuration keys or the schedules", cmd_help, false},
};

/* What other programs call a verb. */
static const struct { const char *said, *meant; } names[] = {
    {"plan", "check"}, {"validate", "check"}, {"verify", "check"}, {"estimate", "check"},
    {"simulate", "sim"}, {"simulator", "sim"}, {"run", "train"}, {"fit", "train"},
    {"pretrain", "train"}, {"finetune", "train"}, {"sample", "generate"}, {"chat", "generate"},
    {"complete", "generate"}, {"inference", "generate"}, {"infer", "generate"},
    {"serve", "generate"},
    {"convert", "export"}, {"save", "export"}, {"to_hf", "export"}, {"hf", "export"},
    {"convert_checkpoint", "export"}, {"consolidate", "export"}, {"merge", "export"},
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

static int no_verb(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    cmd_help_page(stderr);
    return PLAIT_CONFIG;
}

static int version(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    printf("plait %s\n", PLAIT_VERSION);
    return PLAIT_OK;
}

/* NULL: nothing has that name. */
static const struct cmd_verb *asked_for(int argc, char **argv)
{
    static const struct cmd_verb none = {.run = no_verb}, number = {.run = version};
    if (argc < 2)
        return &none;
    if (strcmp(argv[1], "--version") == 0)
        return &number;
    bool help = strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0;
    return cmd_verb_find(help ? "help" : argv[1]);
}

static int run(int argc, char **argv)
{
    const struct cmd_verb *verb = asked_for(argc, argv);
    if (verb && !verb->ranks && !plait_is_first())
        return PLAIT_OK;
    if (!verb || verb->ranks) /* one that is misspelled may be, too */
        cmd_runs_ranks();
    if (verb)
        return verb->run(argc - 1, argv + 1);
    const char *near = cmd_verb_meant(argv[1]);
    return cmd_usage("there is no verb \"%.40s\"%s%s; `plait help` lists them", argv[1],
                     near ? "; the nearest is " : "", near ? near : "");
}

int main(int argc, char **argv)
{
    cmd_streams_open();
    cmd_signals_open();
    return cmd_streams_end(run(argc, argv));
}
