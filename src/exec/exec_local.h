/* SPDX-License-Identifier: Apache-2.0
 *
 * What the executor's files share: slots of stages, the send ring, the rank's groups.
 */
#ifndef PLAIT_EXEC_LOCAL_H
#define PLAIT_EXEC_LOCAL_H

#include "exec/exec.h"

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
    int *slot_of, *keep_of;  /* owned; [m] index or EXEC_NO_SLOT */
    bool *again;             /* owned; [m] the training list recomputes it */
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
    struct exec_window data_window; /* gradients, and weights where data ranks share the updates */
    struct exec_window stream_window; /* activations, scratch, communication */
    bool guards;              /* arenas have them, and what is not in use is NaN */
    struct comm_group *group[GROUP_KINDS]; /* owned; NULL: the rank is alone */
    struct dp_flight flight;               /* of data ranks' group */
    struct optim optim;
    struct param_store **store; /* owned; [stages_here] */
    struct exec_stage *stage; /* owned; [stages_here] */
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

/* ---- exec.c ---- */

/* A list is about to run on a batch. What the choice of slots depends on is as before any other
 * run, so that a list always makes the same calls, with the same buffers. */
void exec_begin(struct exec *x, const struct sched *s, const struct exec_batch *b,
                const struct exec_hooks *hooks);
/* The batch to the device, and no loss yet. */
enum err exec_feed(struct exec *x, const struct exec_batch *b);
/* All instructions of x->sched, until every send is over. */
enum err exec_perform(struct exec *x);
/* What hooks->step says, to the device. */
enum err exec_step_set(struct exec *x, const struct exec_hooks *hooks);

/* ---- exec_slots.c ---- */

/* Microbatch mb of the batch under way, full or the rest. */
struct stage_mb exec_mb_of(const struct exec *x, int mb);
/* World rank of a pipeline rank. */
int exec_world_rank(const struct exec *x, int pp);
/* Every wait for a message goes through here: the host's, or that of the device's stream. */
enum err exec_await(struct exec *x, struct comm_req *r);
/* Does microbatch mb meet stage `id` on this rank? The stage of an instruction; of one that names
 * no microbatch; and the parts that it is for. */
bool exec_is_here(const struct exec *x, int id, int mb);
struct exec_stage *exec_stage_of(struct exec *x, int id, int mb);
struct exec_stage *exec_stage_held(struct exec *x, int id);
struct stage_range exec_parts_of(const struct exec *x, const struct exec_stage *e,
                                 struct sched_instr in);
/* The slot of microbatch mb. */
struct exec_slot *exec_slot_of(struct exec_stage *e, int mb);
/* A slot for it, and back; a save set lent to that slot, and back; *k = a keep set that is free,
 * which stays free. Errors: ERR_INTERNAL where the check counted too few. */
enum err exec_slot_take(struct exec *x, struct exec_stage *e, int mb);
void exec_slot_give(struct exec_stage *e, int mb);
enum err exec_saves_take(const struct exec *x, struct exec_stage *e, int mb);
void exec_saves_give(struct exec_stage *e, int mb);
enum err exec_keep_find(const struct exec *x, const struct exec_stage *e, int *k);

/* exec_trace.c: takes the timers, when asked for. A run of list s begins. Instruction i of the list
 * begins: it takes the place of the one under way, which is given back to end with. A wait begins
 * and ends. All but the first do nothing where nothing is traced. */
enum err exec_trace_open(struct exec *x);
void exec_trace_close(struct exec *x);
void exec_trace_run(struct exec *x);
enum err exec_trace_begin(struct exec *x, int64_t *outer);
enum err exec_trace_end(struct exec *x, int64_t outer);
enum err exec_trace_wait(struct exec *x);
enum err exec_trace_waited(struct exec *x);

/* exec_record.c: the recording, if there is one, and what the world knows of it. */
void exec_forget(struct exec *x);

/* exec_guard.c: are there to be guards? What was written behind a buffer: ERR_INTERNAL. A run
 * begins, whose traffic is counted. The rest do nothing without guards: a slot, a save set, a keep
 * set before they are used; scratch between instructions; what others own of some weights. */
bool exec_guarded(const struct exec_args *a);
enum err exec_guard_check(const struct exec *x);
void exec_count_run(struct exec *x);
void exec_poison_saves(const struct exec *x, const struct exec_stage *e, void *(*save)[SAVE_COUNT]);
void exec_poison_keep(const struct exec *x, const struct exec_stage *e,
                      const struct stage_keep *keep);
void exec_poison_scratch(const struct exec *x);
void exec_poison_weights(const struct exec *x, const struct param_store *s, struct dp_range at);

#endif
