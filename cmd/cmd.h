/* SPDX-License-Identifier: Apache-2.0
 *
 * The command line: one file for each verb, one parser of arguments for all. Verbs use the library
 * through plait.h only. Results go to standard output, messages to standard error as
 * `plait: <message>`. A verb returns the exit code of the program, a value of enum plait_code;
 * wrong usage is PLAIT_CONFIG.
 */
#ifndef PLAIT_CMD_H
#define PLAIT_CMD_H

#include "cmd_names.h"
#include "plait.h"
#include <stdbool.h>
#include <stdio.h>

/* ---- verbs; argv[0] is the verb itself ---- */

int cmd_train(int argc, char **argv);
int cmd_check(int argc, char **argv);
int cmd_sim(int argc, char **argv);
int cmd_data(int argc, char **argv);
int cmd_compare(int argc, char **argv);
int cmd_generate(int argc, char **argv);
int cmd_export(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_runs(int argc, char **argv);
int cmd_info(int argc, char **argv);
int cmd_help(int argc, char **argv);

struct cmd_verb {
    const char *name, *about; /* about: one line for `plait help` */
    int (*run)(int argc, char **argv);
    bool ranks; /* every process of a launch of MPI takes part; else the first alone has the verb */
};
int cmd_verb_count(void);
const struct cmd_verb *cmd_verb_at(int i);
/* The verb of this name, or NULL. */
const struct cmd_verb *cmd_verb_find(const char *name);
/* The name of the verb that a word may have meant, misspelled or in other programs; or NULL. */
const char *cmd_verb_meant(const char *word);

/* The list of verbs. */
void cmd_help_page(FILE *to);

/* ---- arguments ---- */

enum cmd_type {
    CMD_FLAG, /* no value; out is bool * */
    CMD_INT,  /* out is int64_t *, range min..max */
    CMD_REAL, /* out is double *, range min..max */
    CMD_TEXT, /* out is const char **, borrowed from argv */
};

struct cmd_option {
    const char *name; /* "ranks" for --ranks N or --ranks=N */
    char letter;      /* 'n' for -n N or -nN; 0: none */
    enum cmd_type type;
    void *out; /* untouched when the option is not given */
    double min, max;
    const char *value; /* shown in help: "N"; NULL for a flag */
    const char *help;  /* one sentence, lower case */
};

/* What a verb takes: makes both the parser and the page of `plait VERB --help`. */
struct cmd_page {
    const char *usage; /* "plait check FILE [KEY=VALUE ...] [--ranks N]" */
    const char *about; /* one paragraph */
    const struct cmd_option *option;
    int options;
    const char *more; /* closing paragraph (examples), or NULL */
    const struct cmd_name *names; /* what other programs call the options, or NULL */
    bool keys;                    /* takes KEY=VALUE words */
};

/* Read argv[1..]: options may stand anywhere, `--` ends them, a lone `-` is a word. The other words
 * are moved to argv[1..*words] in their order. False: the verb ends with *code (help was asked for
 * and printed, or the usage is wrong and was said so). */
bool cmd_parse(const struct cmd_page *page, int argc, char **argv, int *words, int *code);

/* From here on errors are those of a process that would run ranks: under MPI said once. */
void cmd_runs_ranks(void);
/* Say `plait: <plait_error()>` and return code; of processes that run ranks, the job's. */
int cmd_fail(int code);
/* The end of a verb that went well: PLAIT_OK, or of processes that run ranks the job's code. */
int cmd_fine(void);
/* Say `plait: <message>` and return PLAIT_CONFIG, or as cmd_fail. */
int cmd_usage(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Say `plait: wrote <path>, <what>`, on standard error, for the answer may be read by a program.
 * path NULL: nothing was asked for. */
void cmd_wrote(const char *path, const char *what);
/* Say `plait: note: <note>` there: an on_note of plait.h. */
void cmd_note(void *arg, const char *note);

/* Defaults, then the file argv[1] (none when that is a key=value word already), then the other
 * words up to argv[words] as key=value. On success *out is released by plait_config_free. Returns a
 * code; when it fails, the message has been said. */
int cmd_config(int words, char **argv, struct plait_config **out);

/* Options that stand for a key, of the verbs that train and that say what training will do. */
struct cmd_keys { bool trace, canonical; };
enum { CMD_KEYS = 2 };
void cmd_keys_options(struct cmd_keys *k, struct cmd_option out[CMD_KEYS]);
/* Sets those that were given. Returns a code; when it fails, the message has been said. */
int cmd_keys_set(const struct cmd_keys *k, struct plait_config *c);

/* The nearest of n names, or NULL. */
const char *cmd_nearest(const char *word, int n, const char *(*name)(int i));

#endif
