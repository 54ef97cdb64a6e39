/* SPDX-License-Identifier: Apache-2.0
 *
 * A traced run beside the simulator: the schedule that ran is played again with the costs that
 * were measured. Three parts: reading and counting (compare.c), saying what that comes to
 * (compare_report.c), pictures and files (compare_files.c).
 */
#ifndef PLAIT_STUDY_COMPARE_H
#define PLAIT_STUDY_COMPARE_H

#include "draw/draw.h"
#include "plait.h"
#include "setup/setup.h"
#include "folder/trace.h"
#include "sim/sim.h"
#include "study/pictures.h"

enum { COMPARE_KINDS = SCHED_COMPUTE_OPS }; /* F, B, I, W, R */

/* Of one pipeline rank in a step: seconds of each kind, of waiting for messages, of sending, of
 * what ends the step, that by instruction, too; actions of each kind, and instructions. */
struct compare_rank {
    double busy[COMPARE_KINDS], waiting, sending, ending, end[SCHED_OP_COUNT];
    int64_t count[COMPARE_KINDS], ends[SCHED_OP_COUNT];
};

struct compare {
    const struct setup *s;   /* borrowed */
    struct trace *trace;     /* owned; [world] */
    int64_t steps, first;    /* that all ranks have; index of the first that is looked at */
    const struct exec_event **pass; /* owned; [passes][p] a step of a pipeline: the events of its
                                ranks, in the order of their instructions */
    int64_t passes;
    int64_t cut;             /* bytes of records that were not whole */
    double (*cost)[COMPARE_KINDS]; /* owned; [stages] median seconds of an action */
    double latency;          /* median seconds that a message is on its way */
    double fetch;            /* and that are waited for one that was sent before */
    double makespan, bubble; /* medians over steps and pipelines */
    struct sim_cost used;    /* those costs, for the simulator */
    double *each;            /* owned; sim_cost.each */
    bool rated;              /* what ends the step is predicted */
    struct sim_result sim;   /* what it says */
    struct sim_result seen;  /* a measured step near the median in the same form: events only */
    struct compare_rank *measured, *simulated; /* owned; [p] means a step */
};

/* skip: records at the start that are left out, < 0: two, or none where there are not twice as
 * many. What ends the step is predicted where the options' caps are known. Errors:
 * ERR_DATA for traces that are missing, damaged, or of another schedule than the configuration
 * gives. Released by compare_close, after an error too. */
enum err compare_open(const struct setup *s, const char *dir, int64_t skip, struct compare *out);
void compare_close(struct compare *c);
/* The instructions that end a step, in their order there. */
enum { COMPARE_ENDS = 8 };
extern const enum sched_op compare_end[COMPARE_ENDS];

/* What is said of a comparison: lines of summary, and two tables of words, the step (medians) and
 * the actions of ranks (means). Made for text and pages alike. */
enum { COMPARE_LINES = 6 };
enum { COMPARE_STEP, COMPARE_ACTIONS, COMPARE_TABLES };
struct compare_words {
    char *title;               /* owned; of a page: the run and its schedule */
    char *line[COMPARE_LINES]; /* owned */
    int lines;
    struct pictures_cells cells; /* owned; of both tables */
    struct draw_table table[COMPARE_TABLES];
};
/* run: as it was named. Errors: ERR_MEMORY. Released by compare_words_free, after an error too. */
enum err compare_words_make(const struct compare *c, const char *run, struct compare_words *out);
void compare_words_free(struct compare_words *w);

/* A page of these; one JSON object; the costs as a file for `plait sim --costs`, in
 * milliseconds. */
void compare_text(const struct compare *c, const struct compare_words *w, struct text *out);
void compare_json(const struct compare *c, struct text *out);
void compare_costs(const struct compare *c, struct text *out);
/* Which of the costs were not measured, and how they are taken; nothing when all were. */
void compare_costs_note(const struct compare *c, struct text *out);

/* The chapter "truth" of plait.h. */
enum err compare_run(const struct plait_compare *a, struct text *out);

#endif
