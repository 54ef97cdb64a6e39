/* SPDX-License-Identifier: Apache-2.0
 *
 * The second performer of the schedule: interprets the lowered, checked list of this rank on a
 * device and a transport. Nothing is decided here that the list does not say. All memory is taken
 * in exec_open from arenas of exactly the planned sizes.
 */
#ifndef PLAIT_EXEC_EXEC_H
#define PLAIT_EXEC_EXEC_H

#include "model/model.h"
#include "comm/comm.h"
#include "mesh/mesh.h"
#include "optim/optim.h"
#include "layer/stage.h"
#include "parallel/dp.h"
#include "plan/buffers.h"
#include "plan/groups.h"
#include "plan/segments.h"
#include "plan/traffic.h"
#include "sched/sched.h"

struct exec;

/* When an instruction of the training list ran, in seconds of log_now: of its time, `waited` was
 * spent on messages that had not come or not gone. What tensor ranks wait for each other in the
 * middle of an instruction counts as its work. All of it is the device's time: where it is
 * async, from when its stream came to the instruction until it was through it. */
struct exec_event { double start, end, waited; };

struct exec_args {
    struct buffers_args of; /* the plan of its buffers, with the training schedule */
    const struct mesh *mesh;
    const struct segments *segments;   /* [stages] */
    struct dev *dev;
    struct comm_world *world;
    uint64_t seed;
    struct optim_rule optim;
    bool trace;                        /* keep exec_events */
    bool guards;                       /* in memory of the host, as debug builds always: guards
                                          behind each buffer, NaN in those that are not in use */
    int64_t tp_rows;                   /* struct tp's rows */
    bool tp_chunked;                   /* struct tp's steps, also where nothing goes by copies */
    const struct group *groups;        /* [GROUP_KINDS] of this rank's pipeline coordinate */
    const struct step_traffic *traffic; /* planned for this rank (exec_count_check); NULL: none */
    const int64_t *plan;               /* [MEMORY_KINDS] bytes of this rank (plan/buffers.h) */
};

/* Collective over the world; same arguments on all ranks but the device. All pointers are borrowed
 * and outlive the executor. Weights are undefined until exec_init or exec_stage stores are written.
 * Errors: ERR_CONFIG when the world has not the mesh's ranks; ERR_INTERNAL when the plan's bytes
 * are not what the layout takes. */
enum err exec_open(const struct exec_args *a, struct exec **out);
void exec_close(struct exec *x);

/* Draw the initial weights, with so many host threads; weights may be written then, too, until
 * exec_weights_keep, which comes before the first run that is of training. Both local. */
enum err exec_init(struct exec *x, uint64_t seed, int threads);
enum err exec_weights_keep(struct exec *x);
/* Between steps: all master weights can be read on this rank; gradients are undefined where data
 * ranks shard the optimizer. Collective over data ranks. */
enum err exec_weights_gather(struct exec *x);
/* Behind a step: gradients, too, of which such ranks have sums only where they own them. Collective
 * over data ranks. */
enum err exec_grads_gather(struct exec *x);

/* What a rank feeds: host arrays, copied in. */
struct exec_batch {
    const void *input;               /* (samples, t) of this rank: int32_t ids, or rows of floats */
    const int32_t *targets;          /* (samples, t): ids or classes; NULL: no loss */
    int64_t samples, t;
    int64_t row0;                    /* global row of the first, within the step's batch */
    uint32_t step;
};

struct exec_hooks {
    /* At NORM, or before a replay: what this rank says of the step. NULL: the list is run without
     * its step. */
    void (*step)(void *arg, struct optim_step *out);
    enum err (*logits)(void *arg, const struct stage *s, const struct stage_mb *mb,
                       const struct stage_slot *slot); /* after the head's forward; NULL: none */
    void (*begins)(void *arg, struct sched_instr in); /* before each instruction; NULL: none */
    void *arg;
};

/* Each stage here forwards and backwards once, of every size of microbatch, with whatever lies in
 * its buffers and without messages between stages; afterwards gradients are undefined and the
 * device has nothing queued. Weights are not touched. Collective over tensor ranks. Before the
 * first exec_run, on an async device. */
enum err exec_rehearse(struct exec *x, const struct exec_batch *b);
/* The same of validation, whose rounds have as many samples as b: forwards, without dropout. */
enum err exec_rehearse_forward(struct exec *x, const struct exec_batch *b);

/* Run a list: the training schedule, or a forward-only one with the same placement (of two replicas
 * the first alone will do). After ERR_NONFINITE of hooks->check, which all ranks have, another may
 * run. Collective over the world. */
enum err exec_run(struct exec *x, const struct sched *s, const struct exec_batch *b,
                  const struct exec_hooks *hooks);
/* With guards, behind a run of the training list that was a whole step: what it started with other
 * ranks is what was planned, else ERR_INTERNAL. Local. */
enum err exec_count_check(struct exec *x);
/* Record the training list for batches of these extents: its calls are noted by the device and not
 * done. It must have run before, so that whatever is chosen or opened at a first call is there. The
 * hooks are called now, but for `step`. *done false: some rank's device could not make a recording
 * of it, which this rank logs if it is the one; all is as before, but that gradients are settled.
 * Collective over the world. */
enum err exec_record(struct exec *x, const struct exec_batch *b, const struct exec_hooks *hooks,
                     bool *done);
/* Run the recorded list with another batch; of the hooks `step` alone is called. The host does not
 * wait. seconds: what a step takes as far as is known, before which none counts as hung. Collective
 * over the world. */
enum err exec_replay(struct exec *x, const struct exec_batch *b, const struct exec_hooks *hooks,
                     double seconds);
/* Behind a run without its step: this rank's sums alone (SUMS_COUNT), waiting. Local. */
enum err exec_own_sums(struct exec *x, const struct optim_step *s, double *sums);
/* Sum of the losses of this rank's head in the run just done; 0 on ranks without a head. With two
 * replicas two pipeline ranks have one. */
enum err exec_loss(struct exec *x, double *sum);

/* All gradients are zero from here on (param_grads_reset: no memory is touched). */
void exec_zero_grads(struct exec *x);
/* Bytes taken from the device. */
int64_t exec_bytes(const struct exec *x);
/* Instructions of this rank's training list. */
int64_t exec_instrs(const struct exec *x);
/* When each of them ran, [exec_instrs], good until the next call: in the last run of the training
 * list, or `ago` < EXEC_TRACED runs before it, so that the next step can be queued before this one
 * is looked at. The device must be through that run. Only with exec_args.trace. */
enum { EXEC_TRACED = 2 };
enum err exec_events(struct exec *x, int ago, const struct exec_event **out);

/* ---- what it is: others read its stages, stores, groups, and whether there is a graph ---- */

enum { EXEC_NO_SLOT = -1 };

struct exec_slot {
    struct stage_slot slot;
    void *in, *out;                       /* its own buffers: of the input, of slot.out */
    struct comm_req sent, recv_f, recv_b; /* of out; of the input; of out's gradient */
    bool used;
    int set;                              /* the save set that is lent to it, or EXEC_NO_SLOT */
};

struct exec_saves {
    void *(*save)[SAVE_COUNT];
    bool used;
};

struct exec_keep {
    struct stage_keep keep;
    bool used;
};

/* What a microbatch has of a stage: indices, or EXEC_NO_SLOT; the training list recomputes it. */
struct exec_mb { int slot, keep; bool again; };

/* A stage with its slots: a stage replica of the schedule. */
struct exec_stage {
    struct stage stage;
    struct param_memory memory; /* of its parameters */
    int id;                  /* 0 .. stages - 1 */
    int stage_replica;             /* 0 .. replicas * stages - 1 */
    void **pointer;          /* owned; of all slots and sets, which point into it */
    struct exec_slot *slot;  /* owned; [slots] */
    int slots, slot_next;    /* where the search for a free one begins */
    struct exec_saves *saves; /* owned; [save_sets] */
    int save_sets;
    struct exec_keep *keep; /* owned; [keeps]; unless the schedule splits backward one, whose
                               buffers are the rank's scratch */
    int keeps;
    struct exec_mb *mb;      /* owned; [m] */
    struct dp dp;
    const struct segments *segments; /* of the plan */
};

/* When instructions ran (exec_trace.c). */
struct exec_trace {
    int64_t first;            /* the device's timer number 0 of these */
    int64_t runs;             /* of the training list */
    int64_t at;               /* the instruction under way, from 0, or -1 */
    uint8_t *waits;           /* owned; [EXEC_TRACED][instructions] of each, in that run */
    struct exec_event *event; /* owned; [instructions]; NULL: not asked for */
};

/* Of the transport; base NULL: each arena of it is the device's own. */
struct exec_window {
    void *base;
    int64_t bytes;
};

struct exec {
    struct exec_args a;
    struct mesh mesh;
    int coord[AXIS_COUNT];
    struct arena arena[MEMORY_KINDS];
    void *taken[MEMORY_KINDS];      /* owned: an arena's memory; NULL: it is the transport's */
    struct exec_window data_window; /* gradients; weights, too, where updates are sharded */
    struct exec_window stream_window; /* activations, scratch, communication */
    bool guards;              /* arenas have them, and what is not in use is NaN */
    struct comm_group *group[GROUP_KINDS]; /* owned; NULL: the rank is alone */
    struct dp_flight flight;               /* of data ranks' group */
    struct optim optim;
    struct param_store **store; /* owned; [stages_here] */
    struct exec_stage *stage; /* owned; [stages_here], by their number in the pipeline */
    int stages_here;
    int *here;                /* owned; [replicas * stages] index into stage or -1 */
    struct stage_work scratch;
    bool cut;                 /* a backward is between two of its segments */
    void **ring;              /* owned; [rings] gradients on their way to the stage before */
    struct comm_req *ring_sent; /* owned; [rings] */
    int rings, ring_next;
    char *input;               /* device (share, T): ids, or rows of the accumulation type */
    int32_t *targets;          /* device (share, T) */
    int64_t input_bytes;       /* of one position of `input` */
    double *wide;              /* owned, of the host: a batch of rows, where that type is f64 */
    double *loss, *scalars;    /* device */
    uint32_t *step;            /* device: number of the step under way */
    void *rope;                /* device */

    /* the run in progress */
    const struct sched *sched;
    const struct exec_batch *batch;
    const struct exec_hooks *hooks;
    int64_t at;                /* instruction index */

    bool records;                    /* a list is being recorded */
    struct dev_graph *graph;         /* owned; NULL: none. Of the training list, for batches of */
    struct exec_batch recorded;      /* these extents (its arrays are no one's) */

    struct exec_trace trace;
    struct step_traffic counted; /* before this run */
    bool counts;                 /* its traffic is one that is planned */
};

#endif
