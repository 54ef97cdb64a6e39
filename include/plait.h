/* SPDX-License-Identifier: Apache-2.0
 *
 * plait: train language models that do not fit one device, and know beforehand what it costs.
 *
 * This is the whole public interface; the command-line program uses nothing else. Chapters:
 * configuration, data, simulation, training, truth, measurement, generation, export, words.
 *
 * Conventions. Every function that can fail returns a code of enum plait_code, which is also the
 * program's exit code; plait_error() then gives one sentence: what was asked, what stands against
 * it, what to do. Strings given out as `char **` belong to the caller (plait_free). Functions are
 * not safe to call on one object from two threads; different objects are independent.
 *
 * Argument structs begin with `size`, set by the caller to sizeof, so that later versions can add
 * fields at the end; fields left zero have their documented default.
 */
#ifndef PLAIT_H
#define PLAIT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PLAIT_VERSION "0.1.0"

enum plait_code {
    PLAIT_OK = 0,
    PLAIT_CONFIG = 10,     /* usage or configuration */
    PLAIT_MISMATCH = 11,   /* ranks differ in program, configuration or data */
    PLAIT_DATA = 12,       /* token file missing, foreign or truncated */
    PLAIT_TOKEN = 13,      /* tokenizer or vocabulary does not fit */
    PLAIT_CHECKPOINT = 14, /* weights invalid */
    PLAIT_LAYOUT = 15,     /* weights cannot be loaded in this layout */
    PLAIT_LOCKED = 16,     /* run directory in use by another run */
    PLAIT_STORAGE = 17,    /* disk full, unwritable, I/O error */
    PLAIT_NONFINITE = 18,  /* loss or gradient norm is NaN or infinite */
    PLAIT_HANG = 20,       /* a peer did not answer in time */
    PLAIT_PEER = 21,       /* a peer is lost or has failed */
    PLAIT_MEMORY = 22,     /* host or device memory */
    PLAIT_INTERNAL = 70,   /* a mistake of plait itself */
    PLAIT_STOPPED = 75     /* asked to stop, and did: work is left */
};

/* Sentence about the last error of this thread; "" when there was none. */
const char *plait_error(void);
/* Where it came from: file and line of each level, for bug reports. */
const char *plait_error_trail(void);
/* For the error `code` of a process that would run ranks and is about to end: say(text), but of the
 * processes of a launch of MPI only in the lowest rank with the same words. PLAIT_OK: it has none,
 * says nothing and hears of the others'. As long as MPI has not run, this starts it and waits for
 * all of them, each of which must come here, or to plait_train or another call that runs ranks,
 * within 15 s; then text is said by whoever waits. Returns the code to end with: that of the lowest
 * rank with an error, on all. */
int plait_say(int code, const char *text, void (*say)(const char *text));
/* Not 0: this process does what a launch of MPI does once and without ranks, as printing a page: it
 * is rank 0, or nobody launched it. From the launcher's variables; MPI is not started. */
int plait_is_first(void);
void plait_free(void *p);

/* ---- Configuration ---------------------------------------------------------------------------
 * Defaults, then a YAML file, then key=value words. One table (plait_config_help prints it) makes
 * parser, help and checks. plait_config_check refuses everything that can be refused without a
 * device, in well under a second. */
struct plait_config;
int plait_config_new(struct plait_config **out);
void plait_config_free(struct plait_config *c);
int plait_config_read(struct plait_config *c, const char *path);
int plait_config_set(struct plait_config *c, const char *key_equals_value);
/* Value of a key as text. */
int plait_config_get(const struct plait_config *c, const char *key, char **out);
/* The whole configuration as YAML. */
int plait_config_print(const struct plait_config *c, char **out);
/* format "text" or "markdown": every key with type, default, range and meaning. */
int plait_config_help(const char *format, char **out);
/* The lines of that page for one word: a key, the keys of that name in any group, a group, or what
 * other programs call these. */
int plait_config_explain(const char *word, char **out);
/* The key that a word most likely meant, or NULL when none is near. */
const char *plait_config_nearest(const char *word);
/* How fast links and memory are. A text is "N", of all axes of the layout (tp, cp, ep, dp, pp),
 * "AXIS=N,AXIS=N", of these, or "N,AXIS=N", of these and of all others. What has no rate takes no
 * time; between ranks that differ on several axes the slowest of theirs holds. */
struct plait_rates {
    const char *latency;     /* a unit of time a message, or a collective */
    const char *bandwidth;   /* bytes that a rank sends in a unit of time */
    double memory_bandwidth; /* bytes that its memory reads and writes in one */
};
/* With these, in seconds, the two below say how long what a step starts between ranks takes. */
int plait_config_rates(struct plait_config *c, const struct plait_rates *r);
/* ranks 0: the product of the layout. *report: the start-up table (layout, stages, parameters,
 * memory per rank, predicted bubble); NULL if not wanted. */
int plait_config_check(const struct plait_config *c, int ranks, char **report);
/* The same, and the whole plan as a JSON object, docs/plan.md: model, mesh, stages, program, memory
 * by kind, communication, decisions. */
int plait_config_plan(const struct plait_config *c, int ranks, char **json);

/* ---- Data --------------------------------------------------------------------------------- */
struct plait_prepare {
    size_t size;
    const char *const *text; /* paths, read in order */
    int texts;
    const char *out;         /* token file, written whole or not at all */
    const char *tokenizer;   /* "bytes" */
    void (*progress)(void *arg, int64_t done_bytes, int64_t all_bytes); /* optional */
    void *arg;
};
int plait_data_prepare(const struct plait_prepare *a, int64_t *tokens);
/* A token file of `tokens` ids drawn equally from a vocabulary, for measuring speed. */
int plait_data_random(const char *out, int64_t vocab, int64_t tokens, uint64_t seed);
/* A row file of `rows` rows of normal features around the centre of a class drawn equally. */
int plait_data_random_rows(const char *out, int64_t features, int64_t classes, int64_t rows,
                           uint64_t seed);

/* A table of numbers as text (CSV), a row a line with its label, or as such an array of NumPy
 * (.npy), into a row file. Pictures are
 * resized by bilinear interpolation with half-pixel centres (docs/data-format.md). */
struct plait_import {
    size_t size;
    const char *table; /* path */
    const char *out;   /* row file, written whole or not at all */
    int header;        /* the first line is passed over */
    int label_first;   /* the label is the first value of a line; else the last */
    int height, width; /* of the pictures that rows are; 0: they are none */
    int to_height, to_width; /* to which these are resized; 0: not */
    double scale;      /* features are multiplied by; 0: 1 */
    int64_t classes;   /* 0: one more than the largest label */
    void (*progress)(void *arg, int64_t done_bytes, int64_t all_bytes); /* optional */
    void *arg;
};
int plait_data_import(const struct plait_import *a, int64_t *rows);
/* What a token file or a row file holds, as readable lines: size, tokenizer, tokens and texts, or
 * rows, features and classes; hash. The file is read whole, each token or label held against what
 * the header says and all against the hash; a file that is damaged is an error (PLAIT_DATA,
 * PLAIT_TOKEN) and not a line. */
int plait_data_info(const char *path, char **out);

/* ---- Simulation --------------------------------------------------------------------------- */
struct plait_sim {
    size_t size;
    const char *schedule; /* a name of plait_schedule_name, or a file: "file:PATH", or a path
                             that ends in .csv or exists */
    int p, m, v;          /* ranks, microbatches, chunks a rank; v 0: the schedule's, mostly 1 */
    double tf, tb, ti, tw; /* tf 0: 1; tb 0: ti + tw; ti, tw 0: tf */
    const char *format;   /* "text", "lowered", "gantt", "json", "summary" (default) */
    int width;            /* columns for gantt, 0: one a time unit */
    int color;
    int slices;           /* seq1f1b: of each microbatch, along the tokens; times are a slice's */
    double tov;           /* of a forward and a backward that overlap; 0: tf + tb */
    int group;            /* interleaved: microbatches of a chunk in a row; 0: p */
    /* For schedules made for costs (zb-1p, zb-2p, zb-v), which look at tf, ti, tw and latency too:
     * most activations of a microbatch, zb-v of a chunk, that a rank may keep (0: the schedule's
     * own limit; an error with other schedules), and the part of one that stays from I to W (0: a
     * half). When all of these are 0, zb-v has its closed order. With compare the limit counts
     * activations of a rank's share. */
    double limit, keep;
    double bytes;         /* of a message */
    const char *scale;    /* factors of the stages' times, "1,1,1.5,1" */
    const char *costs;    /* a file with the times of each stage (docs/simulator.md) */
    const char *model;    /* a configuration: times in proportion to its FLOPs, tf that of an
                             average stage; message sizes and memory are its own, and what is left
                             out here (schedule, p, m, v) is as configured there */
    /* Files to write, whole or not at all; NULL: none. */
    const char *svg, *html;
    const char *perfetto; /* trace events */
    /* In place of a schedule: */
    const char *compare;  /* "a,b@2": several of them side by side, @v their chunks. Times are of a
                             rank's share of the model: of v chunks each takes 1/v */
    const char *table;    /* "a,b": bubbles over ranks to p (0: 32) and microbatches to m (0: 128)
                             for v chunks (0: 1, 2, 4 as far as the schedule has them) */
    int recompute;        /* not 0: keep a stage's input alone from a forward to its backward, and
                             run the forward once more before that (R); of a model: as it is
                             configured, or so */
    double tr;            /* time of that; 0: tf */
    const char *const *set; /* key=value words over the model's file, `sets` of them; what is given
                               above goes over both */
    int sets;
    /* Messages between stages go by the rates of axis pp, and occupy a link where it has a
     * bandwidth; those of other axes, and of memory, are for a model's collectives, norm and
     * update. */
    struct plait_rates rates;
};
/* Makes or reads the schedule, proves it, plays it. *out: what the format says. */
int plait_simulate(const struct plait_sim *a, char **out);
int plait_schedule_count(void);
const char *plait_schedule_name(int i);
const char *plait_schedule_doc(int i);
/* The schedule that a word most likely meant, misspelled or by another program's name; or NULL. */
const char *plait_schedule_nearest(const char *word);

/* ---- Training -----------------------------------------------------------------------------
 * Runs the configuration on its transport: with "thread" this call starts all ranks as threads;
 * with "mpi" it is called by every process of the job. Callbacks come from the reporting rank's
 * thread only (the last stage's first rank; under MPI, in that process). */
struct plait_step {
    int64_t step, steps; /* 1-based number of the step just done */
    double loss;         /* nats a token, mean over the step's tokens */
    double grad_norm, lr;
    int64_t tokens;      /* trained so far; of model.kind mlp rows */
    double tokens_per_s, seconds; /* of this step, by the device's clock */
    double seconds_left;          /* of the run, by the mean of its steps so far */
    int rows;                     /* not 0: "tokens" are rows */
};
/* Where a step is: the forward, or backward, of a microbatch begins on the reporting rank's last
 * stage, the microbatch-th of `microbatches` there. */
struct plait_microbatch {
    int64_t step, steps;
    int64_t microbatch, microbatches; /* 1-based */
    int backward;
};
struct plait_train {
    size_t size;
    int ranks; /* 0: the product of the layout */
    void (*on_start)(void *arg, const char *table);
    void (*on_step)(void *arg, const struct plait_step *s);
    void (*on_valid)(void *arg, int64_t step, double loss, double bits_per_byte);
    void (*on_done)(void *arg, const char *summary);
    void *arg;
    /* Twice a microbatch, within a step. An async device (cuda) is behind it, and replays of a
     * recorded step do not call it. */
    void (*on_microbatch)(void *arg, const struct plait_microbatch *m);
    /* A step or validation was not finite, and the search for where begins, as `what` says. It
     * takes as long as two steps and more; plait_stop ends it. */
    void (*on_search)(void *arg, const char *what);
};
/* When it was asked to stop (plait_stop) it ends with PLAIT_STOPPED, the state of the last step
 * saved as at the end; with PLAIT_OK when all work was done. Under MPI the reporting rank's process
 * alone has the sentence, the others have "". */
int plait_train(const struct plait_config *c, const struct plait_train *a);
/* Asks the runs of this process to stop: each finishes the step under way on all its ranks, also
 * when one process of a job was asked alone, saves a checkpoint and its weights, and ends. A run
 * that has made no step ends without; a validation is cut short, and so is a search for what is not
 * finite, which ends with PLAIT_NONFINITE all the same. why: a signal's number, which messages
 * name, or any other number above 0. It holds for runs to come, too, until it is withdrawn by 0.
 * Safe in a signal handler and from any thread. */
void plait_stop(int why);
/* Asks the run of this process to save a checkpoint behind the step under way, on all its ranks,
 * and to go on, also when one process of a job was asked alone. Several requests within a step are
 * one. Where no checkpoints are saved (train.save_keep 0, run.save false) it says so and goes on.
 * Safe in a signal handler and from any thread. */
void plait_save(void);
/* Removes the temporary files that this process is writing, and says on standard error what a run
 * there is dealing with, if that is an error. Safe in a signal handler; the process must end behind
 * it, by _exit. */
void plait_abandon(void);

/* ---- Truth -------------------------------------------------------------------------------- *
 * A run that was trained with train.trace, beside the simulator: the schedule that ran, played with
 * the costs that were measured. */
struct plait_compare {
    size_t size;
    const char *run;    /* its folder: config.yaml and trace/ */
    const char *format; /* "text" (default) or "json" */
    int64_t skip;       /* steps at the start to leave out; -1: two, or none of less than four */
    /* Files to write, whole or not at all; NULL: none. costs: measured times of each stage in
     * milliseconds, in the form of plait_sim.costs. */
    const char *svg, *html, *perfetto, *costs;
    void (*on_note)(void *arg, const char *note); /* what of costs was not measured */
    void *arg;
    struct plait_rates rates; /* in seconds: what ends the step is predicted; none: it is not */
};
int plait_compare(const struct plait_compare *a, char **out);

/* ---- Measurement ----------------------------------------------------------------------------
 * Ceilings of the configured device, each kind of call of a step of the configured model with its
 * share of its ceiling, and what the links between ranks carry. */
struct plait_bench {
    size_t size;
    int ranks;            /* of the links; 0: the product of the layout; 1: no links */
    const char *out;      /* a file for planning (docs/cluster-profile.md), whole or not at all;
                             NULL: none */
    double seconds;       /* to spend on a figure; 0: 0.2 */
    int64_t largest;      /* bytes of the links' last point, 1024 or more; 0: 256 MiB */
    double product, copy; /* FLOP/s, bytes/s: count the step against these, measure nothing */
    void (*on_line)(void *arg, const char *line); /* each line as soon as it is known */
    void *arg;
};
int plait_bench(const struct plait_config *c, const struct plait_bench *a);

/* ---- Generation --------------------------------------------------------------------------- */
struct plait_generate {
    size_t size;
    const char *run;    /* a run's folder, whose newest checkpoint is read, or where it has none
                           model.safetensors; or one that transformers saved (gpt2, llama) */
    const char *prompt; /* text; NULL or "": the text begins as behind the end of another */
    int ranks;          /* 0: the product of the layout in the run's configuration */
    int64_t tokens;     /* to write; 0: 200 */
    double temperature; /* 0: greedy */
    int top_k;          /* 0: all */
    uint64_t seed;
    const char *const *set; /* key=value words over the run's configuration */
    int sets;
    /* The prompt and what is written behind it: whole UTF-8 characters, U+FFFD where there is
     * none. It ends early where the model ends the text. */
    void (*on_text)(void *arg, const char *bytes, int n);
    void *arg;
    int raw;            /* not 0: bytes as they are, a token's at once */
    int ignore_eot;     /* not 0: go on behind an end of text, which is shown as <|endoftext|> */
    /* Ids in place of text; no tokenizer is needed. NULL: text. on_id has those of the prompt, then
     * each that is drawn, an end of text among them. */
    const int32_t *ids;
    int64_t id_count;
    void (*on_id)(void *arg, int32_t id);
    const char *logits; /* file to write, whole or not at all: a line for each token that is drawn,
                           the logits of all ids; NULL: none */
    void (*on_note)(void *arg, const char *note); /* what a person should know; once a job */
    const char *step;   /* the checkpoint of this step, or "best"; NULL or "": the newest */
};
int plait_generate(const struct plait_generate *a);

/* ---- Export --------------------------------------------------------------------------------- */
/* The weights of a checkpoint as the folder that transformers reads: model.safetensors, or several
 * files and their index, config.json, generation_config.json. Needs no device and no ranks. */
struct plait_export {
    size_t size;
    const char *run;     /* a run's folder */
    const char *step;    /* the checkpoint of this step, or "best"; NULL or "": the newest */
    const char *out;     /* the folder to write, whole or not at all: nothing has the name but an
                            empty folder */
    const char *dtype;   /* "f32" (default), "bf16", "f16" */
    int64_t shard_bytes; /* of tensors in a file at most, but where one is larger; 0: 5 GB */
    void (*progress)(void *arg, int64_t done, int64_t all); /* parameters; optional */
    void *arg;
};
/* *out: a line that says what was written. */
int plait_export(const struct plait_export *a, char **out);

/* ---- Runs ----------------------------------------------------------------------------------- */
struct plait_runs {
    size_t size;
    const char *dir;    /* a run's folder, or one that has such */
    const char *format; /* "text" (default): a table, below it what is wrong with a run; "json" */
};
/* The runs in a folder, one level deep, and itself: whether each runs, ended (0), was stopped (75),
 * failed (another code), was killed, or has not ended on a host from which this one cannot see
 * whether it lives; how far it came; its checkpoints. *out: as the format says.
 * What is wrong with one run's files is said of it, and is no error. */
int plait_runs(const struct plait_runs *a, char **out);

/* ---- Words ------------------------------------------------------------------------------------
 * What a command line needs beside the above, as the configuration has it. */
/* A number, read as it is or not at all (PLAIT_CONFIG): decimal, the whole word, 1e3 is whole. */
int plait_word_int(const char *word, int64_t *out);
int plait_word_real(const char *word, double *out);
/* Text from outside (a path, a word) as a terminal may have it: bytes that steer it, and those that
 * are no UTF-8, are \xNN. */
int plait_word_shown(const char *word, char **out);

/* ---- Information --------------------------------------------------------------------------- */
/* Version, what was built in, processor, MPI, devices: readable lines. */
int plait_info(char **out);

#ifdef __cplusplus
}
#endif
#endif
