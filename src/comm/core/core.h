/* SPDX-License-Identifier: Apache-2.0
 *
 * What the transports share: the table that each of them fills, the objects behind the opaque
 * names of comm.h, and the arithmetic of a reduction. Only files of this folder include it.
 *
 * Nothing here or below includes or calls a transport: those stand above and are reached by their
 * tables alone. core/request.c checks arguments and answers groups of one by itself, so a transport
 * sees n >= 2, checked sizes and known ranks.
 */
#ifndef PLAIT_COMM_OPS_H
#define PLAIT_COMM_OPS_H

#include "comm/comm.h"

enum comm_limit {
    COMM_RANKS_MAX = 4096,
    COMM_GROUP_IDS = 32768, /* they are MPI tags too: as many as the standard promises */
    COMM_UNFINISHED_MAX = 64, /* started and not finished, in one group */
    /* mpi: a reduction stages one slice of each other member; all slices fit the window. */
    COMM_WINDOW_BYTES = 4 << 20,
    COMM_SLICE_ALIGN = 64, /* bytes */
    COMM_COPIES_BYTES = 64 << 20, /* most staging of sums by copies */
    COMM_COPIES_MEMBERS = 8,  /* most members of such a group */
    COMM_FEW_BYTES = 256,     /* a group of such operations need not have much of a GPU */
};

enum comm_coll_kind {
    COMM_ALL_REDUCE,
    COMM_REDUCE_SCATTER,
    COMM_ALL_GATHER,
    COMM_ALL_TO_ALL,
    COMM_REDUCE,
    COMM_BROADCAST,
    COMM_BARRIER,
};

/* One collective as one member states it. Members must agree on all but the pointers. Broadcast
 * counts bytes (its dt is not read); barrier has count 0. */
struct comm_coll {
    enum comm_coll_kind kind;
    enum dtype dt;
    enum comm_red red;
    int root;       /* member; reduce and broadcast only */
    int chunk;      /* of a reduce_scatter or all_gather (comm.h); 0: the whole */
    int64_t count;  /* elements as in comm.h; all_to_all: all that this member receives */
    int64_t unit;   /* bytes of one element, 1 for broadcast; set by core/request.c */
    void *out;      /* borrowed from the caller until finish; reduce: looked at on the root only */
    const void *in; /* borrowed from the caller until finish */
    struct comm_parts recv, send; /* all_to_all only; borrowed as these */
};

/* One message as one side states it: src is set for a send, dst for a receive. */
enum { COMM_HOST_LANE = -1 };
struct comm_msg {
    int from, to, tag;
    int lane; /* of device memory; COMM_HOST_LANE: goes by the transport of the host's */
    int64_t bytes;
    const void *src; /* borrowed from the caller until finish */
    void *dst;       /* borrowed from the caller until finish */
};

/* A transport: of host memory, or of an async device's, where what is started is put in order with
 * the device's stream, and finished means that whatever is queued from then on sees the result.
 * When a slot fails, the peers know it, so that none waits on. */
struct comm_ops {
    /* Start a message; may fill r->op and r->word. */
    enum err (*msg_start)(struct comm_world *w, const struct comm_msg *m, struct comm_req *r);
    enum err (*msg_finish)(struct comm_world *w, struct comm_req *r);
    /* Start operation g->started of the group. now: finished in one, by a device; nothing else of
     * the group is unfinished. */
    enum err (*coll_start)(struct comm_group *g, const struct comm_coll *c, bool now);
    /* Complete operation g->finished of the group. */
    enum err (*coll_finish)(struct comm_group *g);
    enum err (*group_open)(struct comm_group *g, int64_t scratch); /* sets g->impl */
    void (*group_close)(struct comm_group *g); /* NULL: it ends with the transport */
    /* Of a device: the host's world knows already. Calls w->graph_destroy when no peer is waited
     * for any more. */
    void (*abort)(struct comm_world *w, enum err code);

    /* The host's only. Has a rank failed, as far as is known here? Waits for nothing; from any
     * thread. */
    bool (*failed)(struct comm_world *w);
    /* FAIL with ERR_PEER when one has, naming what this rank was about. */
    enum err (*check)(struct comm_world *w, const char *what);
    /* May this rank report why it ends the job? One of a machine's ranks; from any thread. NULL:
     * whoever ends the process. */
    bool (*may_report)(struct comm_world *w);

    /* A device's only. */
    enum err (*channel_open)(struct comm_world *w, const struct comm_channel *c);
    bool (*coll_chunks)(const struct comm_group *g, const struct comm_coll *c); /* in chunks? */
    enum err (*window_take)(struct comm_world *w, int64_t bytes, const char *name, void **out);
    enum err (*graph_launched)(struct comm_world *w, int64_t step, double seconds);
    enum err (*close)(struct comm_world *w); /* all unfinished or failed; sets nothing */
};
struct comm_device {
    const struct comm_ops *ops;
    struct comm_world *world; /* borrowed */
};

/* ---- what stands above: transports as the roof file lists them (transports.c) ---- */
struct comm_processes { /* comm_mpi_run and comm_report_error */
    enum err (*run)(const char *what, double timeout_s,
                    enum err (*body)(void *arg, struct comm_world *w), void *arg);
    enum err (*report_error)(enum err code, const char *text, void (*print)(const char *text));
};
struct comm_gpus {
    enum err (*fits)(void);               /* comm_nccl_fits */
    bool (*reach)(const int *gpu, int n); /* comm_gpus_reach */
    enum err (*open)(struct comm_world *w, struct dev *d); /* sets w->device; w->size > 1 */
};
extern const struct comm_processes comm_mpi_transport;
extern const struct comm_gpus comm_gpu_transport;

/* ---- requests (core/request.c) ---- */

/* Checks and starts a message. */
enum err comm_msg_start(struct comm_world *w, const struct comm_msg *m, struct comm_req *r);
/* Checks, starts and finishes an operation; answers a group of one. */
enum err comm_coll_run(struct comm_group *g, struct comm_coll *c);

/* FAIL with ERR_INTERNAL where a rank that ends well has unfinished operations. */
enum err comm_check_finished(const struct comm_world *w);

/* ---- operations in messages (core/describe.c) ---- */

enum { COMM_PENDING_TEXT = 160 };
/* "all_reduce" and so on. */
const char *comm_coll_name(enum comm_coll_kind k);

/* Do two members state the same operation? */
bool comm_coll_same(const struct comm_coll *a, const struct comm_coll *b);
/* "all_reduce(sum) of 12 f32 elements", into buf, which is returned. */
const char *comm_coll_text(const struct comm_coll *c, char buf[96]);
/* FAIL with ERR_MISMATCH: operation number `seq` of group g differs between the ranks a and b. */
enum err comm_coll_mismatch(const struct comm_group *g, int64_t seq, const int rank[2],
                            const struct comm_coll c[2]);
/* FAIL with ERR_MISMATCH: of an all_to_all rank `from` sends other elements than `to` receives. */
struct comm_pair { int from, to; int64_t sends, receives; };
enum err comm_pair_mismatch(const struct comm_group *g, int64_t seq, const struct comm_pair *p);

/* The operation that a rank waits for: a message; a collective, number seq of its group; or,
 * without both, the end of the run. All is borrowed for the wait. */
struct comm_pending_op {
    /* Is ranks[i] still to come? */
    bool (*missing)(const struct comm_pending_op *x, int i);
    const int *ranks; /* (n) those concerned */
    int n;
    const struct comm_msg *msg;
    const struct comm_group *group;
    const struct comm_coll *coll;
    int64_t seq;
    void *a;          /* the transport's own */
};
/* "the receive of ...", "..., operation 7 of group 3", into buf, which is returned. */
const char *comm_pending_text(const struct comm_pending_op *x, char buf[COMM_PENDING_TEXT]);
/* This rank is alive. (core/hang.c) */
void comm_heartbeat(struct comm_world *w);
/* FAIL with ERR_PEER: ranks[i] has ended without coming. */
enum err comm_peer_exited(const struct comm_pending_op *x, const struct comm_world *w, int i);
/* "the send of 12 bytes to rank 3, tag 4", into buf, which is returned. */
const char *comm_msg_text(const struct comm_msg *m, char buf[COMM_PENDING_TEXT]);
/* A list of ranks for a message: "1", "1, 4 and 3 more". Begins as zeros. */
enum { COMM_NAMES = 8 };
struct comm_names { char text[128]; size_t used; int named, more; };
void comm_names_add(struct comm_names *n, int rank);
void comm_names_end(struct comm_names *n);
/* The message of a failed rank as the job's: the rank in place of the folder's name, unless it
 * begins with a rank already or there is one rank only. Into buf, which is returned. */
enum { COMM_RANK_TEXT = 2048 + 32 };
const char *comm_rank_error(const struct comm_world *w, const char *text, char buf[COMM_RANK_TEXT]);

/* ---- what a launcher gives a process in its environment (core/launch.c), and nothing else ---- */
struct comm_launch {
    int size;       /* processes of the launch; 0: there is no launcher of MPI */
    int rank;       /* -1: unknown */
    int local_rank; /* its index on its machine; -1: unknown */
    int local_size; /* processes on this machine; 0: unknown */
    char job[64];   /* names the launch on this machine; "": unknown */
};

struct comm_launch comm_launch(void); /* local; nothing is kept */

/* ---- arithmetic of a reduction ----
 * Set the accumulator to the first member's elements, add the others' in member order, take the
 * result. Every transport reduces through these, so results do not depend on the transport. */
enum { COMM_ACCUM_BYTES = 4096 };
struct comm_accum {
    union {
        double f64[COMM_ACCUM_BYTES / 8];
        float f32[COMM_ACCUM_BYTES / 4]; /* f32 and bf16 */
        int32_t i32[COMM_ACCUM_BYTES / 4];
    } wide;
    uint16_t bf16[COMM_ACCUM_BYTES / 4]; /* the rounded result */
};
/* Elements that one holds. */
int64_t comm_accum_elements(enum dtype dt);
void comm_accum_set(struct comm_accum *t, const void *x, int64_t count, enum dtype dt);
/* A maximum with a NaN is NaN. */
void comm_accum_add(struct comm_accum *t, enum comm_red red, const void *x, int64_t count,
                    enum dtype dt);
/* The result as `count` elements of dt; lies in the accumulator. */
const void *comm_accum_result(struct comm_accum *t, int64_t count, enum dtype dt);

#endif
