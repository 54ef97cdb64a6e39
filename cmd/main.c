/* SPDX-License-Identifier: Apache-2.0
 *
 * The program: a table of verbs, the help on them, and the streams at start and end.
 *
 * What a verb prints to standard output counts only when it arrived there, so a full disk behind a
 * redirection is an error and not an empty file and exit code 0. A stream that was closed by
 * whoever started the program was not wanted, and is none.
 */
#include "cmd.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static int help_verb(int argc, char **argv);

/* ranks: every process of a launch of MPI takes part; else the first alone has the verb. */
static const struct verb {
    const char *name, *about;
    int (*run)(int argc, char **argv);
    bool ranks;
} verbs[] = {
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
    {"help", "explain a verb, the configuration keys or the schedules", help_verb, false},
};
enum { VERBS = sizeof verbs / sizeof *verbs };

/* What other programs call a verb. */
static const struct cmd_name verb_names[] = {
    {"plan|validate|verify|estimate", "check", NULL},
    {"simulate|simulator", "sim", NULL},
    {"run|fit|pretrain|finetune", "train", NULL},
    {"sample|chat|complete|inference|infer|serve", "generate", NULL},
    {"convert|save|to_hf|hf|convert_checkpoint|consolidate|merge", "export", NULL},
    {"tokenize|prepare|preprocess|dataset", "data", NULL},
    {"profile|benchmark", "bench", NULL},
    {"devices|version|env", "info", NULL},
    {"trace|diff", "compare", NULL},
    {NULL, NULL, NULL},
};

static const struct verb *verb_find(const char *name)
{
    for (int i = 0; i < VERBS; i++)
        if (strcmp(verbs[i].name, name) == 0)
            return &verbs[i];
    return NULL;
}

static const char *verb_name(int i)
{
    return verbs[i].name;
}

/* The name of the verb that a word may have meant, misspelled or in other programs; or NULL. */
static const char *verb_meant(const char *word)
{
    const struct cmd_name *other = cmd_name_find(verb_names, word);
    return other ? other->means : cmd_nearest(word, VERBS, verb_name);
}

/* ---- help ---- */

static void print_verbs(FILE *to)
{
    fprintf(to, "plait %s: train language models over many ranks, and know beforehand what it "
                "costs\n\n", PLAIT_VERSION);
    for (int i = 0; i < VERBS; i++)
        fprintf(to, "  plait %-9s %s\n", verbs[i].name, verbs[i].about);
    fputs("\n"
          "plait VERB --help      what a verb takes\n"
          "plait help config      every configuration key (--markdown: as docs/configuration.md)\n"
          "plait help KEY         one of them: type, default, legal values, meaning\n"
          "plait help schedules   the pipeline schedules\n",
          to);
}

static const char *topic(int i)
{
    return i == 0 ? "config" : i == 1 ? "schedules" : verbs[i - 2].name;
}

static int help_key(const char *word)
{
    char *text = NULL;
    int code = plait_config_explain(word, &text);
    if (code != PLAIT_CONFIG)
        return cmd_answer(code, &text);
    if (cmd_is_schedule(word))
        return cmd_usage("%s is a schedule; `plait help schedules` has them all, a line each",
                         word);
    const char *near = cmd_nearest(word, VERBS + 2, topic);
    const char *schedule = near ? NULL : plait_schedule_nearest(word);
    if (schedule)
        return cmd_usage("there is no help on \"%.40s\"; the nearest is the schedule %s of "
                         "`plait help schedules`", word, schedule);
    near = near ? near : verb_meant(word);
    near = near ? near : plait_config_nearest(word);
    return cmd_usage("there is no help on \"%.40s\"%s%s; `plait help` lists what there is", word,
                     near ? "; the nearest is " : "", near ? near : "");
}

static int help_verb(int argc, char **argv)
{
    int markdown = 0;
    const struct cmd_option option[] = {
        {"markdown", 0, CMD_FLAG, &markdown, 0, 0, NULL, "with config: as a Markdown page"},
    };
    const struct cmd_page page = {
        .usage = "plait help [VERB | KEY | config | schedules] [--markdown]",
        .about = "Explain a verb, the configuration keys, one of them (with or without its\n"
                 "group, here or in another program), or the schedules.",
        CMD_OPTIONS(option),
    };
    char *text = NULL;
    int words, code;
    if (!cmd_parse(&page, argc, argv, &words, &code))
        return code;
    if (words == 0) {
        print_verbs(stdout);
        return PLAIT_OK;
    }
    if (words > 1)
        return cmd_usage("help explains one thing at a time, and %d were asked for", words);
    const char *word = argv[1];
    if (markdown && strcmp(word, "config") != 0)
        return cmd_usage("--markdown is for `plait help config` only");
    if (strcmp(word, "config") == 0) {
        return cmd_answer(plait_config_help(markdown ? "markdown" : "text", &text), &text);
    }
    if (strcmp(word, "schedules") == 0)
        return cmd_schedules();
    const struct verb *verb = verb_find(word);
    if (verb) {
        char name[16], ask[] = "--help", *args[] = {name, ask, NULL};
        snprintf(name, sizeof name, "%s", verb->name);
        return verb->run(2, args);
    }
    return help_key(word);
}

/* ---- the program ---- */

static int run(int argc, char **argv)
{
    const char *word = argc < 2 ? "" : argv[1];
    bool help = strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
    bool version = strcmp(word, "--version") == 0;
    const struct verb *verb = verb_find(help ? "help" : word);
    bool once = argc < 2 || version || (verb && !verb->ranks);
    if (once && !plait_is_first())
        return PLAIT_OK;
    if (argc < 2) {
        print_verbs(stderr);
        return PLAIT_CONFIG;
    }
    if (version) {
        printf("plait %s\n", PLAIT_VERSION);
        return PLAIT_OK;
    }
    if (!once) /* one that is misspelled may run ranks, too */
        cmd_runs_ranks();
    if (verb)
        return verb->run(argc - 1, argv + 1);
    const char *near = verb_meant(word);
    return cmd_usage("there is no verb \"%.40s\"%s%s; `plait help` lists them", word,
                     near ? "; the nearest is " : "", near ? near : "");
}

/* Did all of standard output arrive? The code, or PLAIT_STORAGE where it was PLAIT_OK and something
 * is lost. */
static int end_streams(int code)
{
    errno = 0;
    bool lost = fflush(stdout) != 0 || ferror(stdout);
    if (!lost || code != PLAIT_OK)
        return code;
    if (errno)
        fprintf(stderr, "plait: standard output cannot be written: %s\n", strerror(errno));
    else
        fprintf(stderr, "plait: standard output could not be written, and a part of it is lost\n");
    return PLAIT_STORAGE;
}

int main(int argc, char **argv)
{
    int fd;
    /* Before anything else is opened: a stream that was closed becomes /dev/null, or the next file
     * opened would have its number and receive what is printed. */
    do
        fd = open("/dev/null", O_RDWR); /* the lowest number that is free */
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd > STDERR_FILENO)
        close(fd);
    cmd_signals_open();
    return end_streams(run(argc, argv));
}
