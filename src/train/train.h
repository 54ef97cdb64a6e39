/* SPDX-License-Identifier: Apache-2.0
 *
 * A training run on one rank: what the files of the run share.
 */
#ifndef PLAIT_TRAIN_TRAIN_H
#define PLAIT_TRAIN_TRAIN_H

#include "ckpt/weights.h"
#include "base/log.h"
#include "data/data.h"
#include "exec/exec.h"
#include "optim/optim.h"
#include "plait.h"
#include "train/checkpoint.h"
#include "train/rank.h"
#include "folder/folder.h"
#include "setup/setup.h"
#include "folder/trace.h"

#include <stdatomic.h>

/* What a run that was stopped came to: the first set by every rank of the process, the words by the
 * reporting one. */
struct train_outcome {
    atomic_bool stopped; /* work is left */
    char text[1024];
};

/* What all ranks of a process share, read only while they run but for the outcome. */
struct train_job {
    const struct setup *setup;
    const struct plait_train *call;
    struct data_set train, valid; /* valid.samples 0: none */
    struct weights *init;         /* borrowed: what the run begins with; NULL: drawn weights, or
                                     those of a checkpoint */
    const char *notes;            /* warnings of the checks, shown behind the start-up table */
    struct folder *folder;        /* borrowed; the reporting rank's */
    double began;                 /* log_now at the run's start */
    int saves;                    /* requests to save that came before it */
    struct train_outcome *outcome; /* borrowed */
    struct log_keep *log;         /* borrowed; log.txt, in the reporting rank's process */
};

enum { TRAIN_AHEAD = 2 }; /* results of steps that can be on their way; also events of the device */
/* Samples are read ahead by as many steps as may follow the one in which a rank asks to stop, so
 * that a file that fails takes no step that has begun. */
enum { TRAIN_READ = TRAIN_AHEAD + 1 };
enum { WARM_STEPS = 1 };  /* behind these, all that a step runs has run (comm_warmup_end) */
_Static_assert((int)TRAIN_AHEAD <= (int)EXEC_TRACED, "a step that is on its way keeps its events");
enum { TRAIN_TIMERS = TRAIN_AHEAD + 1 }; /* where they end, and where the first of them begins */

enum { METRICS_LINE = 512 }; /* ten fields of less than 50 bytes */
/* Lines behind one that could not be written, and that one: of the steps until the run ends. */
struct metrics_late {
    char s[2 * (TRAIN_AHEAD + 1) * METRICS_LINE];
    int n, first;  /* bytes; of the first line */
    int64_t begin; /* where that was to stand */
};

struct train_rank {
    struct rank rank;           /* owned */
    const struct train_job *job;
    const struct setup *s;
    int metrics;                /* file descriptor on the reporting rank, else -1 */
    struct trace_log trace; /* fd -1: no trace */
    struct metrics_late late; /* n > 0: metrics are written no further, whole up to there */
    bool trace_broken; /* the same of the trace */
    struct safet_writer weights; /* on the reporting rank, begun before the first step */
    struct lr lr;               /* the run's learning rates */
    int64_t resumed;            /* the step that it goes on behind; 0: a new run */
    char run[64];               /* its name in checkpoints */
    int64_t loaded;             /* bytes of its state that this rank has read, in load_s seconds */
    double load_s;
    char origin[OPTIONS_PATH_MAX + 440]; /* what run.resume came to, for people; "": nothing */
    struct checkpoint ckpt;     /* s NULL: none are saved */
    struct choices choices;     /* for them */
    bool opened;                /* the files of the run are */
    double loss;                /* of the last good step */
    bool all_written;           /* all ranks' parts of the save under way are */
    struct optim_result result; /* of the last step that was judged */
    int64_t step;               /* 1-based, the one under way */
    bool records;               /* steps are to be replays */
    int64_t replayed;           /* steps that were */
    int64_t queued, taken;      /* the last step whose optimizer is queued; whose result is known */
    double *landed;             /* owned, host memory of the device: TRAIN_AHEAD times SUMS_COUNT */
    int64_t timer;              /* the first of TRAIN_TIMERS, in turn: where a step ends */
    int64_t traced;             /* the last step whose events are written */
    int32_t *inputs, *targets;  /* owned; host; of TRAIN_READ times a step's share of samples, in
                                   turn; inputs are tokens, or features (float) */
    int64_t read;               /* the last step whose samples are there */
    struct sched last_round;    /* owned; of a validation's ragged round, empty where this rank has
                                   none */
    int64_t within, begun[2];   /* of the step whose number this is, forwards and backwards of the
                                   last stage that have begun; the reporting rank's */
    double took, seconds;       /* the last step; since the first step began */
    double slowest;             /* step so far */
    double valid_loss;          /* of the last validation; NaN before */
    int64_t valid_tokens;       /* that it is the mean over */
    int64_t validated;          /* the last step behind which one was made */
    int64_t bad_round;          /* of a validation that is not finite, from 0; -1: none is */
    bool save;                  /* all ranks know that one was asked to save behind this step */
    int heard;                  /* requests to save that have been answered */
    bool stop;                  /* all ranks know that no step follows: one was asked to stop */
    struct err_kept lost;       /* the first error that was put off (train_put_off) */
    struct err_kept told;       /* how the run ends, where another rank says it */
    double logged;              /* log_now of the last step's line in log.txt */
};

/* Make the list of a validation's ragged round, and rehearse its rounds, when there is a file for
 * it. Errors: ERR_MEMORY. Local. (valid.c) */
enum err train_valid_open(struct train_rank *r);
/* Mean loss a token over the validation file, and of how many, into r->valid_loss and valid_tokens.
 * r->stop: it was cut short, by a request to stop or a file that could not be read, and there is
 * none. Errors: ERR_NONFINITE, on all ranks. Collective over the world. (valid.c) */
enum err train_validate(struct train_rank *r);

/* Round i: how many samples this rank has of it, and their loss where it counts tokens. Collective
 * over the world; a rank that has no sample of it does nothing. (valid.c) */
enum err train_valid_round(struct train_rank *r, int64_t i, const struct exec_hooks *hooks,
                           int64_t *n, double *loss);

/* Samples first .. first + n - 1 of d into r->inputs and r->targets, at the place of a step; those
 * of this rank for a step; the batch that these are. Local. (train_rank.c) */
enum err train_samples(struct train_rank *r, const struct data_set *d, int64_t step, int64_t first,
                       int64_t n);
enum err train_read(struct train_rank *r, int64_t step);
struct exec_batch train_batch(const struct train_rank *r, int64_t step);
/* Does this rank ask all to stop behind the step under way: was the process told to, has the run
 * taken as long as it may, or has this rank an error that it has put off? Local. (train_rank.c) */
bool train_asks(const struct train_rank *r);
bool train_out_of_time(const struct train_rank *r);
/* An error of a file (ERR_STORAGE, ERR_DATA) that the weights can do without, or of a state that is
 * no checkpoint (ERR_NONFINITE), waits until they are saved: keeps it, if it is the first, and says
 * ERR_OK. Other errors are passed on. Local. (train_rank.c) */
enum err train_put_off(struct train_rank *r, enum err err);
/* From here on this rank deals with an error: should the process end before that is done, it is
 * said. `says`: also by a signal's end, once in the job. Local. (train_rank.c) */
void train_deal_with(struct train_rank *r, const struct err_kept *first, bool says);

/* The step behind the last good one, or the validation's r->bad_round, is not finite, and the
 * weights are: where the first such number comes from, as a half sentence. Gradients are undefined
 * afterwards. Collective over the world. (nonfinite.c) */
enum err train_locate(struct train_rank *r, struct text *out);
/* Are all weights finite? If not, "NAME is not finite: inf on rank ...". Collective over the world.
 * (nonfinite.c) */
enum err train_weights_finite(const struct train_rank *r, bool *finite, struct text *out);

/* Goes on from the checkpoint that run.resume means: weights (before exec_weights_keep) and
 * moments, the numbers of steps, rates. Also where there is none: r->lr is set. Errors: ERR_CONFIG
 * where it is of another model or run; ERR_CHECKPOINT. Collective over the world. (resume.c) */
enum err train_resume(struct train_rank *r);
/* Where checkpoints are saved (train.save_keep): takes what they need; and whether one is due
 * behind the step under way (train.save_every). (train_save.c) */
enum err train_save_open(struct train_rank *r);
bool train_save_due(const struct train_rank *r);
/* Behind a step: ends a save that all ranks have written, begins one that is due. What fails waits,
 * as train_put_off. Collective over the world. (train_save.c) */
enum err train_save_step(struct train_rank *r);
/* The state of the last step, whole on the disk; finite: its weights are, else there is none, and
 * what is under way is ended. As train_save_step. (train_save.c) */
enum err train_save_last(struct train_rank *r, bool finite);
/* The table before the first step, and what the ranks' memory is; r->stop: a rank was asked to stop
 * until now. Collective over the world. (report.c) */
enum err train_report_start(struct train_rank *r);
/* The step that r->result is of; r->took is how long it took. Local. (report.c) */
enum err train_report_step(struct train_rank *r, int64_t step);
/* Tells where a step is: exec_hooks.begins of the reporting rank, arg a train_rank. (report.c) */
void train_report_within(void *arg, struct sched_instr in);
/* The validation behind the step under way. Local. (report.c) */
enum err train_report_valid(struct train_rank *r);
/* The summary behind the last step. Collective over the world. (report.c) */
enum err train_report_end(struct train_rank *r);
/* "weights in runs/a/model.safetensors", or why there are none. Local. (report.c) */
void train_say_weights(const struct train_rank *r, struct text *page);
/* Behind the steps, which ended with `err`: saves the weights, also those of before a step that is
 * not finite, closes metrics and trace, and reports. Returns what the run comes to on this rank: of
 * an error that one rank has put off that rank says it, with what became of the weights, and the
 * others say ERR_OK. A run that was stopped says so in the outcome. Collective over the world.
 * (train_end.c) */
enum err train_end(struct train_rank *r, enum err err);
/* Closes metrics and trace, and gives up weights that are not saved. Idempotent. Errors:
 * ERR_STORAGE. Local. (train_end.c) */
enum err train_close_files(struct train_rank *r);

/* Of run.json: members on program, machine, layout and data. Local. (report.c) */
void train_record_facts(const struct train_rank *r, struct text *out);
/* How the run ended, into log.txt and run.json; the thread's error stays. (report.c) */
void train_record_end(const struct train_job *job, enum err code);

/* Lines of metrics that could not be written, once more, so that what is saved behind their steps
 * has them. Local. (report.c) */
void train_metrics_again(struct train_rank *r);

/* The run: checks, data, ranks, steps, weights. Called once in each process. (train.c) */
enum err train_run(const struct options *o, const struct plait_train *call);

/* The file of the weights before the first step, on the reporting rank: the disk keeps room for all
 * of it. Given up by safet_abandon. Errors: ERR_STORAGE, ERR_MEMORY. Local. (save.c) */
enum err save_begin(const struct setup *s, struct safet_writer *file);
struct save_lost {
    struct err_kept why; /* the error of the file */
    bool placed;         /* it has its name all the same, but a power cut may lose it */
};
/* Weights in the names of Hugging Face into that file, which then has its name,
 * run.dir/model.safetensors, if run.dir is still this run's: by its lock, which the reporting rank
 * has as it has the file. *unsaved: on all ranks; other errors are returned. Collective over the
 * world. (save.c) */
enum err save_weights(const struct rank *k, struct safet_writer *file, const struct fs_lock *lock,
                      struct save_lost *unsaved);

#endif
