/* SPDX-License-Identifier: Apache-2.0
 *
 * For the chapter of simulation: one schedule, from its name to its result. What is played went
 * through the same lowering and the same proofs as what is trained.
 */
#ifndef PLAIT_STUDY_PLAY_H
#define PLAIT_STUDY_PLAY_H

#include "plait.h"
#include "setup/setup.h"
#include "sim/sim.h"

struct play_args {
    const struct plait_sim *sim; /* borrowed; costs, model */
    const char *schedule;        /* borrowed; name or file (play_path); NULL: the model's */
    int p, m, v;                 /* 0: the file's or the model's, v 1 */
    int group;                   /* of sched_shape */
    int slices;                  /* of sched_make_sliced; 0: none */
    double limit;                /* of sched_cost; with share in activations of a rank */
    bool share;  /* times are those of a rank's share of the model: of v chunks each takes 1/v, and
                    of k slices 1/k of that */
    bool events; /* keep them: for pictures */
    bool whole;  /* with what ends a step, where there is no model, too */
};

struct played {
    const struct sched *s;              /* points into what follows */
    const struct sched_report *report;
    struct sched made, lowered;
    struct sched_report own_report;
    struct setup setup;                 /* with a model: its schedule, cut, memory */
    struct options options;             /* which the setup borrows */
    struct caps caps;                   /* of the call */
    bool modelled;
    double *scale, *recompute;          /* owned; [stages] of F to W and of R, or NULL */
    double (*time)[SCHED_COMPUTE_OPS];  /* owned; [stages], or NULL */
    int64_t *bytes;                     /* owned; behind `memory` */
    double *ends;                       /* owned; [instructions], or NULL */
    struct sim_inside *inside;          /* owned; the same */
    struct sim_bytes memory;
    struct sim_cost cost;
    struct sim_result result;
};

/* ---- names (play_names.c) ---- */

/* Microbatches of stages that a command plays, all its schedules together: about 200 bytes and 2
 * to 4 microseconds each, so that nothing takes more than a gigabyte and some ten seconds; of zb-v
 * made for costs, about thrice as long. */
enum { PLAY_MAX_UNITS = 1 << 21 };
/* Does the shape, at v chunks, fit beside `before` such units? Errors: ERR_CONFIG. */
enum err play_fits(const struct play_args *a, int v, int64_t before);
/* The file that a word means: that of file:PATH; or else, where the word is no schedule's name, the
 * word itself if it ends in .csv or .txt, has a slash or is the name of a file. NULL: a name. */
const char *play_path(const char *word);
/* A schedule from a file, which says its own shape: p, m, v that are asked for must be that.
 * Errors: ERR_CONFIG. */
enum err play_read_file(const char *path, const struct play_args *a, struct sched *out);
/* A list of names separated by commas, each "name" or "name@v". */
struct play_list { char **name; int *v; int n; };
enum err play_list_make(const char *what, const char *words, struct play_list *out);
void play_list_free(struct play_list *l);
/* Of several schedules, one by name: the group and the limit go to those that know them. */
struct play_args play_one_of(const struct plait_sim *a, const char *schedule);

/* ---- one schedule ---- */

/* Errors: ERR_CONFIG; ERR_MEMORY. Released by play_free, also after an error. Local. */
enum err play_make(const struct play_args *a, struct played *out);
void play_free(struct played *x);
/* [p] most activations that ranks keep; where some are recomputed, of those kept in full. */
const int *play_peaks(const struct played *x);
/* Activations of a rank's share of the model that a rank keeps at most. */
double play_kept(const struct played *x);

/* Schedule, costs and bytes of a configured model (play_model.c). */
enum err play_model(const struct play_args *a, struct played *x);
/* Then, when actions have their times, what collectives inside them add. */
enum err play_inside(struct played *x);

/* ---- what is shown ---- */

/* Several schedules beside one another, with all that was asked for (play_many.c). */
enum err play_compare(const struct plait_sim *a, int format, struct text *out);
/* Bubbles over p and m (play_table.c). */
enum err play_table(const struct plait_sim *a, struct text *out);

/* The picture files that `a` asks for, each written whole or not at all (play_files.c). */
enum err play_files(const struct plait_sim *a, const struct played *x, int n);
bool play_wants_files(const struct plait_sim *a);
/* The same charts as text. */
enum err play_gantt(const struct plait_sim *a, const struct played *x, int n, struct text *out);

enum { PLAY_SUMMARY, PLAY_TEXT, PLAY_LOWERED, PLAY_GANTT, PLAY_JSON, PLAY_FORMATS };

#endif
