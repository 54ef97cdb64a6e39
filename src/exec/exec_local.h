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
    struct comm_req sent, recv_f, recv_b; /* of out; of the input; of out's gradient */
    bool used;
    int set;                              /* the save set that is lent to it, or EXEC_NO_SLOT */
};

struct exec_saves {
    struct stage_saves saves;
    bool used;
};

struct exec_keep {
    struct stage_keep keep;
    bool used;
};

/* A stage with its slots: a holding of the schedule. */
struct exec_stage {
    struct stage stage;
    int id;                  /* 0 .. stages - 1 */
    int holding;             /* 0 .. replicas * stages - 1 */
    struct exec_slot *slot;  /* owned; [slots] */
    int slots, slot_next;    /* where the search for a free one begins */
    struct exec_saves *saves; /* owned; [save_sets] */
    int save_sets;
    struct exec_keep *keep;  /* owned; [keeps] when the schedule splits backward, else none */
    int keeps;
    int *slot_of, *keep_of;  /* owned; [m] index or EXEC_NO_SLOT */
    struct stage_keep shared; /* without a split backward: the rank's one set */
    struct dp dp;
    int left;                /* weight gradients still to come in this step */
    bool summed;             /* with two replicas: the parts' own sums are under way */
};

struct exec {
    struct exec_args a;
    struct mesh mesh;
    int coord[AXIS_COUNT];
    struct arena weights, master, grads, optim, activations, work, comm, data;
    struct comm_group *world, *tp, *kv, *dp, *tied, *merge;
    struct exec_stage *stage; /* owned; [stages_here] */
    int stages_here, mb_max;
    int *here;                /* owned; [replicas * stages] index into stage or -1 */
    struct stage_work scratch;
    bool splits;              /* the schedule has I and W */
    void **ring;              /* owned; [rings] gradients on their way to the stage before */
    struct comm_req *ring_sent; /* owned; [rings] */
    int rings, ring_next;
    int32_t *tokens, *targets; /* device (share, T) */
    double *loss, *scalar;     /* device */
    void *rope;                /* device */

    /* the run in progress */
    const struct sched *sched;
    const struct exec_batch *batch;
    const struct exec_hooks *hooks;
    int64_t at;                /* instruction index */

    struct exec_event *event;  /* owned; [instructions of the rank]; NULL: not asked for */
    double waited;             /* seconds, in the instruction under way */
};

/* exec_groups.c */
enum err exec_groups_open(struct exec *x);
void exec_groups_close(struct exec *x);

#endif
