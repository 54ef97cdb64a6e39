/* SPDX-License-Identifier: Apache-2.0
 *
 * The command line: one file for each verb, one parser of arguments for all. Verbs use the library
 * through plait.h only. Results go to standard output, messages to standard error as
 * `plait: <message>`. A verb returns the exit code of the program, a value of enum plait_code;
 * wrong usage is PLAIT_CONFIG.
 */
#ifndef PLAIT_CMD_H
#define PLAIT_CMD_H

#include "plait.h"
#include <stdbool.h>
#include <stdio.h>

/* ---- verbs; argv[0] is the verb itself. That of help stands with their table in main.c ---- */

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

/* ---- arguments ---- */

/* What out points to is as plait.h has it, so that most options go right into its structs. */
enum cmd_type {
    CMD_FLAG, /* no value; out is int *, which becomes 1 */
    CMD_INT,  /* out is int *, range min..max */
    CMD_LONG, /* out is int64_t *, range min..max */
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

/* An option by the names that other programs have for it. */
struct cmd_name {
    const char *names; /* "max_tokens|n_predict", without dashes, _ for - */
    const char *means; /* the option (or key=value), as it is to be written; NULL: none does that */
    const char *how;   /* a clause: how its value differs, or what to do instead; NULL: none */
};
/* Each ends with names NULL. run: train, check and bench. (cmd_names.c) */
extern const struct cmd_name cmd_names_generate[], cmd_names_run[], cmd_names_sim[],
    cmd_names_compare[], cmd_names_export[], cmd_names_prepare[], cmd_names_import[],
    cmd_names_random[];
/* The row that has the name, or NULL; list NULL: none. */
const struct cmd_name *cmd_name_find(const struct cmd_name *list, const char *word);

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

#define CMD_OPTIONS(list) .option = (list), .options = sizeof(list) / sizeof *(list)

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

/* The end of a call of plait.h that answers with text: prints it, and frees it; or as cmd_fail.
 * Returns code. */
int cmd_answer(int code, char **text);
/* Say `plait: wrote <path>, <what>`, on standard error, for the answer may be read by a program.
 * path NULL: nothing was asked for. */
void cmd_wrote(const char *path, const char *what);
/* Say `plait: note: <note>` there: an on_note of plait.h. */
void cmd_note(void *arg, const char *note);

/* Options that stand for a key, of the verbs that train and that say what training will do. */
struct cmd_keys { int trace, canonical; };
#define CMD_KEYS_OPTIONS(keys)                                                                     \
    {"trace", 0, CMD_FLAG, &(keys).trace, 0, 0, NULL,                                              \
     "record when each action ran; `plait compare RUN` shows it"},                                 \
    {"canonical-accumulation", 0, CMD_FLAG, &(keys).canonical, 0, 0, NULL,                         \
     "add weight gradients in the order of the microbatches: the bits of any schedule"}

/* Options that say how fast links and memory are, of the verbs that make time of a plan: into a
 * struct plait_rates. */
#define CMD_RATES_OPTIONS(rates)                                                                   \
    {"latency", 0, CMD_TEXT, &(rates).latency, 0, 0, "T",                                          \
     "time of a message, or a collective (0), or of axes: tp=T,dp=T"},                             \
    {"tc", 0, CMD_TEXT, &(rates).latency, 0, 0, "T", "--latency by its older name"},               \
    {"bandwidth", 0, CMD_TEXT, &(rates).bandwidth, 0, 0, "N",                                      \
     "bytes a unit of time that a rank sends (no time), or N,tp=N"},                               \
    {"memory-bandwidth", 0, CMD_REAL, &(rates).memory_bandwidth, 1e-12, 1e18, "N",                 \
     "bytes that its memory moves in one, in norm and update (no time)"}

/* Defaults, then the file argv[1] (none when that is a key=value word already), then the other
 * words up to argv[words] as key=value, then the keys (NULL: none). On success *out is released by
 * plait_config_free. Returns a code; when it fails, the message has been said. */
int cmd_config(int words, char **argv, const struct cmd_keys *keys, struct plait_config **out);

/* The nearest of n names, or NULL. */
const char *cmd_nearest(const char *word, int n, const char *(*name)(int i));

/* The schedules, a line each. Returns PLAIT_OK. */
int cmd_schedules(void);
bool cmd_is_schedule(const char *word);

/* ---- progress on standard error ----
 * Of a training run, and a bar of other work that is counted. On a terminal a run has one line,
 * redrawn in place, with a bar; with train.log_every also plain lines that stay. Elsewhere: plain
 * lines of the first and last step, and of every log_every-th, or, when that is 0, at most one in
 * two seconds. In a step that takes seconds, the microbatch it is at. */

/* Some steps in a row and what they took. */
struct cmd_pace { int64_t steps; double seconds; };
enum { CMD_PACES = 20 };

struct cmd_progress {
    int fd;                /* where it goes */
    double (*clock)(void); /* monotonic seconds */
    bool terminal, color;
    int64_t log_every;
    bool drawn;            /* a bar stands on the current line */
    double shown;          /* when it was last drawn; 0: not yet */
    struct plait_step last; /* the last step that was done; step 0: none */
    struct cmd_pace pace[CMD_PACES]; /* the newest last; `paces` of them */
    int paces;
    int64_t under_way;     /* the step whose microbatches come in, */
    double began;          /* and when its first one did */
};

/* Standard error, and what TERM and NO_COLOR say of it. */
void cmd_progress_open(struct cmd_progress *p, int64_t log_every);
/* Callbacks of plait.h; arg: a cmd_progress. bits_per_byte is shown when it is positive. */
void cmd_progress_step(void *arg, const struct plait_step *s);
void cmd_progress_microbatch(void *arg, const struct plait_microbatch *m);
void cmd_progress_valid(void *arg, int64_t step, double loss, double bits_per_byte);
/* Take the bar away, so that other text can be written. Idempotent. */
void cmd_progress_clear(struct cmd_progress *p);

/* How much of something is done, its rate, and what is left at that rate: a bar, only on a
 * terminal, drawn at most ten times a second. */
struct cmd_bar {
    bool terminal, drawn;
    double start, shown; /* monotonic seconds */
    const char *unit;    /* of the rate, in millions of what is done; borrowed */
};
void cmd_bar_open(struct cmd_bar *b, const char *unit);
/* A callback of plait.h: so much is done; arg: a cmd_bar. */
void cmd_bar_draw(void *arg, int64_t done, int64_t all);
/* Take the bar away. Idempotent. */
void cmd_bar_clear(struct cmd_bar *b);

/* Columns of the terminal that a descriptor is; unknown: it is none. */
int cmd_columns(int fd, int unknown);

/* ---- signals ---- */

/* For every verb: SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGXCPU end the program at once, with
 * 128 + their number and without leaving temporary files. A file that grows too large is an error
 * of the write. Called once, at the start. */
void cmd_signals_open(void);
/* From here on the first of them is a request to plait_train, and so are all SIGXCPU; SIGUSR1 asks
 * it to save and go on; and a reader of the output that goes away ends nothing. */
void cmd_signals_finish(void);
/* From here on nothing is left to save, and the first of them ends a search. */
void cmd_signals_search(void);

#endif
