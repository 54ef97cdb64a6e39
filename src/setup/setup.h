/* SPDX-License-Identifier: Apache-2.0
 *
 * From options to everything that is known before a device is touched: model, mesh, cut, schedule
 * lowered and checked, decisions, groups and memory of each pipeline rank, predicted bubble. Read
 * are parallel.schedule's and parallel.costs' files, where they are not handed in, and the number
 * of cores. `check`, `train` and `generate` start from the same struct.
 */
#ifndef PLAIT_SETUP_SETUP_H
#define PLAIT_SETUP_SETUP_H

#include "plan/buffers.h"
#include "plan/groups.h"
#include "config/options.h"
#include "config/schedule.h"
#include "plan/segments.h"
#include "plan/ends.h"

struct exec_args;

/* What a plan decides that no key says alone: a number that the run goes by, in words, and why.
 * Made in one place, and read by the plan, the run and its tables. */
enum decided {
    DECIDED_GRAPH,     /* 1: steps are replays of a recorded one */
    DECIDED_OVERLAP,   /* fewest rows of a piece of a GEMM, where tensor ranks communicate beside
                          their GEMMs; 0: they do not */
    DECIDED_MOVES,     /* 1: GPUs of one process move by copies */
    DECIDED_ZERO,      /* data ranks that share an update; 1: each makes all of it */
    DECIDED_CUT,       /* stages that begin within a layer */
    DECIDED_RECOMPUTE, /* 1: forwards are run again */
    DECIDED_COPIES,    /* 1: checkpoints are written from a copy of the state */
    DECIDED_ATTENTION, /* enum dev_attn_grad */
    DECISIONS
};

struct decision {
    int64_t value;
    bool told; /* the start-up table has a line for it */
    const char *words, *reason;
};

struct setup {
    const struct options *o; /* borrowed */
    const char *tokenizer;   /* borrowed: of the data, once that is open; NULL before */
    struct model model;
    struct model_split split;
    struct mesh mesh;
    struct sched sched;             /* owned; the training list, or a forward-only one */
    struct sched_report report;     /* owned */
    struct sched forward;           /* owned; of a whole step of validation, of two replicas by the
                                       first; empty: there is none */
    struct model_stage *cut;         /* owned; [stages] */
    struct segments *segments;       /* owned; [stages] */
    bool recompute;                 /* they are recomputed each by itself */
    struct memory *memory;      /* owned; [pp] */
    struct group (*groups)[GROUP_KINDS]; /* owned; [pp] */
    struct step_traffic *traffic; /* owned; [pp] */
    struct dtypes types;
    struct attn attn;               /* extents of the largest attention of a rank */
    int64_t step_samples, samples;  /* of a step on one data rank; of a microbatch */
    bool training;
    bool no_p2p, tp_no_p2p;         /* GPUs, and those of tensor ranks, do not reach each other: by
                                       setup_ask_gpus, before it false */
    struct decision decided[DECISIONS];
    double (*time)[SCHED_COMPUTE_OPS]; /* owned; [stages] of parallel.costs; NULL: none given */
    double bubble, length;          /* predicted fraction of idle time, and the step on that clock,
                                       from those times, or from FLOPs of the stages */
};

/* Bytes are counted exactly, in 64 bits; this bounds them from above, so that the exact counts that
 * follow cannot overflow. setup_make begins with it. Errors: ERR_CONFIG. Local. */
enum err setup_check_bytes(const struct options *o, const struct model *a);

/* vocab: the model's vocabulary when model.vocab is 0. training false: one sample, one microbatch,
 * forward only (generation). Errors: ERR_CONFIG. Released by setup_free, also after an error. */
enum err setup_make(const struct options *o, int64_t vocab, bool training, struct setup *out);
/* The same of training, with what has been made of its schedule (made->list.p 0: the times alone),
 * which the setup takes. */
enum err setup_make_with(const struct options *o, int64_t vocab, struct schedule *made,
                         struct setup *out);
void setup_free(struct setup *s);

/* (decision.c) */
const char *decision_name(enum decided which);
/* All decisions, of a setup whose mesh, schedule and cut are made. Pure. */
void decision_make(const struct setup *s, struct decision out[DECISIONS]);

/* parallel.split: the stages of training as its n names have them, as many as the layout has, into
 * out[n + 1]. They follow each other in the order of the pipeline, wherever the schedule places
 * them. Errors: ERR_CONFIG with the key, the name, and the nearest one. Local. */
enum err split_cut(const struct options *o, const struct model *a, struct model_stage *out);

/* What is planned anew for GPUs as they are: where those of data ranks, or of tensor ranks, do not
 * reach each other, NCCL does what copies would, and takes more memory; and where it is those of
 * tensor ranks, parallel.tp_overlap auto is off. reach answers for n GPUs, as
 * comm_gpus_reach; a rank's GPU has its number, as for threads of one process. Processes and other
 * devices have no copies, and nothing is asked. Errors: ERR_MEMORY. Local. */
enum err setup_ask_gpus(struct setup *s, bool (*reach)(const int *gpu, int n));

/* The first m microbatches of s->forward, checked. Released by sched_free. */
enum err setup_forward(const struct setup *s, int m, struct sched *out);

/* Arguments of dev_open; threads and index are set by the caller. They borrow from s. */
void setup_dev_args(const struct setup *s, enum dev_kind kind, struct dev_args *out);

/* Which layers' gradients are summed as one, and a training list that does so. Cut and decisions
 * are made. Errors: ERR_MEMORY. */
enum err setup_plan_segments(struct setup *s);
/* Of pipeline rank pp what it has to do with others: groups, traffic. The decisions are made.
 * Errors: ERR_MEMORY. (setup_comm.c) */
enum err setup_plan_comm(struct setup *s, int pp);

/* The options' rates, and what ranks of such a run can. */
struct caps setup_caps(const struct setup *s);
/* What ends a step takes, by the options' caps, of each instruction of the program: sim_cost.each.
 * *each is owned by the caller, after an error too. Errors: ERR_MEMORY. (setup_comm.c) */
enum err setup_ends(const struct setup *s, double **each);
/* The same of collectives inside actions, which take time[stages] without: for sim_cost.inside. */
enum err setup_inside(const struct setup *s, const double (*time)[SCHED_COMPUTE_OPS],
                      struct sim_inside **inside);

/* What the list of a rank's buffers is made from. It borrows from s. */
void setup_buffers(const struct setup *s, struct buffers_args *out);

/* Arguments of exec_open for a rank; pp its pipeline coordinate. dev and world are set by the
 * caller. */
void setup_exec_args(const struct setup *s, int pp, struct exec_args *out);

/* What all ranks take together, of the GPU that they share. Pure. */
int64_t setup_shared_bytes(const struct setup *s);

/* " weights 1.2 GiB, gradients 2.4 GiB": what a memory plan is for. */
void setup_kinds(const struct memory *m, struct text *out);

/* The start-up table: layout, stages, parameters, memory, bubble. allocated: bytes taken by each
 * rank of the world as doubles, NULL before anything is allocated. */
void setup_table(const struct setup *s, const double *allocated, struct text *out);
/* What a step starts between ranks, by axis and kind, on the rank that has the most of it; nothing
 * for one rank. (setup_comm.c) */
void setup_traffic_table(const struct setup *s, struct text *out);

/* ---- the memory plan against the machine ----
 * A device that has memory of its own must have room before step 0, and at the end what it used is
 * printed beside the plan. (room.c) */

/* Does what `rank` will take of its device fit the `left` bytes of `all` that are free when the
 * device is open, and so has what it takes for itself? all 0: it is no question. Pure. Errors:
 * ERR_MEMORY, with what needs what. */
enum err room_check(const struct setup *s, int rank, int64_t left, int64_t all);

/* A line for each rank: bytes planned, and used[rank], what is gone of its device's since it was
 * opened, its own included, or of a shared one what it counted. */
void room_table(const struct setup *s, const double *used, struct text *out);

/* Of devices that share the host's memory: what the machine and the process's control groups
 * (cgroup 1 and 2) allow, a warning where the plan is above it, and a refusal where it is so far
 * above that no machine that grows can hold it. (host.c) */
struct host {
    int64_t memory; /* of the machine; 0: not known */
    int64_t swap;
    int64_t limit; /* the lowest of the control groups' limits; INT64_MAX: none */
};

/* root: "", or a folder that has proc/ and sys/. */
void host_ask(const char *root, struct host *out);

/* Do the ranks of this machine fit? Else a sentence about it into out. Of processes each is held
 * against the machine alone. Pure. Errors: ERR_MEMORY, where they cannot. */
enum err host_holds(const struct setup *s, const struct host *h, struct text *out);

/* The same of this machine, and the sentence is a warning; with a report a line of that, as is what
 * would be an error. Errors: as host_holds. */
enum err host_check(const struct setup *s, struct text *report);

#endif
