/* SPDX-License-Identifier: Apache-2.0
 *
 * Transports: how ranks communicate. `thread`: ranks are threads of one process; `mpi`: processes
 * under mpirun or srun. Channels and groups are opened once, in a fixed order, before step 0.
 *
 * Numbers in host memory do not depend on the transport: a reduction adds in the order of the
 * members, 0 first, element by element, in the wide type (f64 for f64, f32 for f32 and bf16; bf16
 * is rounded once at the end). Every member receives the same bits.
 */
#ifndef PLAIT_COMM_COMM_H
#define PLAIT_COMM_COMM_H

/* Starting never waits for a peer (but comm_device_recv_start); finishing waits until the peers
 * have started theirs, and never for a peer's finish (a large message over MPI also needs its peer
 * to look in now and then). What is started on a group or channel finishes in the order of
 * starting; finishing a later operation of a group first is fine, and completes the earlier ones
 * with it. Buffers stay untouched between start and finish.
 *
 * When a rank has failed, every waiting call of its peers ends with ERR_PEER within a second or
 * two, and so it does when a rank has ended that must still take part. When a call has waited for
 * the world's timeout and a rank gave no heartbeat for as long, be it one that the call waits for
 * or one that those wait for, it ends with ERR_HANG: the message names that rank first, and where
 * it is, then who waits for whom. Ranks that all wait for each other are named as a deadlock.
 * Members that state different operations or counts get ERR_MISMATCH, naming both: always checked,
 * for members wait for each other anyway. After any of these the world has failed and every further
 * call ends with ERR_PEER. A rank that fails by itself while operations of its are unfinished calls
 * comm_abort before it gives their buffers back: peers may be reading them. */

#include "base/err.h"
#include "base/num.h"
#include "mesh/mesh.h"

struct comm_world;
struct comm_group;
struct comm_ops;    /* core/core.h */
struct comm_device; /* core/core.h */
struct comm_board;  /* core/board.h */
struct comm_files;  /* core/files.c */
struct dev;

enum comm_kind { COMM_THREAD, COMM_MPI };
enum comm_red { COMM_SUM, COMM_MAX };
/* The memory that an operation moves: the host's, or that of the rank's device. The two are one
 * where the device is not async (cpu, ref, null). */
enum comm_mem { COMM_HOST, COMM_DEVICE };

/* One started operation. Owned by the caller, who keeps it until comm_finish; zero it first.
 * comm_finish on a zeroed or finished one returns at once. */
struct comm_req {
    struct comm_world *world;    /* NULL: there is none */
    const struct comm_ops *ops;  /* of a message; NULL: `op` is a group */
    void *op;          /* transport's own */
    int64_t word[6];
};

bool comm_built(enum comm_kind k);
/* Is NCCL built in, for GPUs of several ranks? */
bool comm_nccl_built(void);
/* Is the NCCL library one that this program can use? Always, where it is not built in. Errors:
 * ERR_CONFIG. */
enum err comm_nccl_fits(void);

/* ---- world ---- */

/* thread: make a world of `size` ranks and run body(arg, world) on a thread for each; returns when
 * all have ended, with the first error by rank order that is not ERR_PEER (adopted into the calling
 * thread, the message naming the rank). timeout_s: hang timeout; 0: none. */
enum err comm_thread_run(int size, double timeout_s,
                         enum err (*body)(void *arg, struct comm_world *w), void *arg);
/* mpi: initialise (once in a process) and run body on this rank. Size and rank are the launcher's;
 * `what` (at most 31 bytes) names what all ranks run, and is the same on each: a launch in which it
 * is not, or in which a process only has comm_report_error, ends before body with ERR_MISMATCH.
 * Returns when all ranks have ended well. When a rank has failed, its process logs the message
 * (LOG_ERROR, once in the job) and ends the whole job with the error's code as exit code, so this
 * call returns an error only when the job has one rank or MPI could not start. Errors: ERR_CONFIG
 * when MPI is not built in. */
enum err comm_mpi_run(const char *what, double timeout_s,
                      enum err (*body)(void *arg, struct comm_world *w), void *arg);
/* Under an MPI launcher? Size it gave (from its environment), else 0. No MPI call is made. */
int comm_mpi_launched_size(void);
/* Processes of the launch on this machine, from its environment, too; 0: unknown. */
int comm_mpi_launched_here(void);
/* Does this process do what the processes of a launch do alike and once: is it rank 0, or is there
 * no launcher? From the environment; one that does not know its rank does it. */
bool comm_launch_first(void);
/* For a process that would run ranks and is about to end with an error: print(text), once in a
 * launch of MPI, by the lowest rank that has it. code ERR_OK: it has none, and only learns the
 * others'. Before a world is there, processes learn each other's errors by starting MPI; where it
 * has run they have, and text is printed at once. Returns the code to end with, the same on all. */
enum err comm_report_error(enum err code, const char *text, void (*print)(const char *text));

/* What a rank knows of its world, for this folder alone; others read it by the functions below. */
struct comm_world {
    const struct comm_ops *ops;
    enum comm_kind kind;
    int rank, size;
    struct comm_board *board; /* the transport's, borrowed: what peers read of each other */
    struct comm_files *files; /* owned; NULL: its file calls have no watch (core/files.c) */
    double timeout_s;    /* of one wait; 0: none */
    int64_t unfinished;  /* requests started and not finished */
    double spent;        /* seconds in calls that start or finish one */
    struct traffic sent; /* messages started */
    void *impl;          /* the transport's endpoint of this rank, borrowed */
    struct dev *dev;     /* attached, borrowed; NULL: none that is async */
    bool copies;         /* between GPUs of one process, where they can */
    bool warm;           /* comm_warmup_end was called */
    int64_t device_taken; /* bytes of it that `device` has taken */
    struct comm_device *device; /* owned; NULL: device memory goes as the host's */
    void (*graph_destroy)(void *arg); /* of a captured graph; NULL: there is none */
    void *graph_arg;           /* borrowed */
};

static inline int comm_rank(const struct comm_world *w) { return w->rank; }
static inline int comm_size(const struct comm_world *w) { return w->size; }
static inline enum comm_kind comm_kind(const struct comm_world *w) { return w->kind; }
/* The rank's index among the ranks of its machine, from 0, which is that of its GPU. Under a
 * launcher that does not give it (Open MPI's mpirun and srun do), the rank. */
int comm_local_rank(const struct comm_world *w);
/* Seconds that this rank has been in calls that start or finish messages and collectives: waiting,
 * copying and adding, which cannot be separated where a peer copies for both. Local. */
static inline double comm_spent(const struct comm_world *w) { return w->spent; }
/* Messages that this rank has sent, and what they carried (mesh.h). Local. */
static inline struct traffic comm_sent(const struct comm_world *w) { return w->sent; }
/* Where this rank is from here on, for messages of peers that wait for it ("2F5 of step 7", at most
 * 47 bytes); also a heartbeat, which a rank gives in every call of this folder, too. Local. */
void comm_set_location(struct comm_world *w, const char *text);
/* This rank is about to be slow: for the next hang timeout no wait for its GPU counts as a hang, as
 * during file calls. Local. */
void comm_slow(struct comm_world *w);
/* From here to comm_files_close peers know of this thread's file calls (fs_watch_set): a rank in
 * one is not silent. A call that has not returned after limit_s (0: none) ends the process with
 * ERR_STORAGE and the file's name; where it does not, peers find the rank silent a hang timeout
 * later. Of several threads with this watch (fs_watch_get) one call does that once the others make
 * no more: until then their calls return. Both local. Errors: ERR_MEMORY. */
enum err comm_files_open(struct comm_world *w, double limit_s);
/* The limit for this thread's file calls while it is no rank: in body(arg), except where a rank's
 * own watch stands. Returns body's code. Errors: ERR_MEMORY. */
enum err comm_files_alone(double limit_s, enum err (*body)(void *arg), void *arg);
void comm_files_close(struct comm_world *w);
/* This rank handles an error: a file call that does not return is reported behind it, with the
 * error's code. *first is copied. Local. */
void comm_files_behind(struct comm_world *w, const struct err_kept *first);
/* This rank has failed: peers that wait on it must end. Local. When it returns, no peer reads or
 * writes this rank's buffers any more (a peer amid copying is waited for: well under 1 ms). */
void comm_abort(struct comm_world *w, enum err code);

/* ---- the device ---- */

/* For the whole process, before ranks and devices are there: variables that the driver and NCCL
 * read, where nobody has set them. */
void comm_environment(void);
/* Device memory of an async device (device.h) goes by NCCL from here on: groups of COMM_DEVICE
 * that are opened, and channels. Does nothing for other devices. Collective over the world. Errors:
 * ERR_CONFIG when there are several ranks and NCCL is not built in.
 *
 * Then, for device memory: the host waits for nothing but to open, and in comm_device_recv_start;
 * finished means that what is queued on the device from then on sees the result. NCCL adds in an
 * order of its own, the ring's: every member gets the same bits, and so does every run of the same
 * layout on the same machine, unless NCCL_ALGO says otherwise; f32 is summed in f32 and bf16
 * pairwise in f32, rounded at each hop. A maximum may lose a NaN. Members that state different
 * operations get no error: they hang, or get the wrong bytes. A hang is found by a thread of its
 * own, which names it. copies: GPUs of one process may move by copies what they can.
 *
 * Ranks that are threads may all have one GPU, at most as many as move by copies (comm_would_copy):
 * then all goes by copies, in the order of the host's transports, and NCCL is not there. Finishing
 * waits as in host memory, members that state different operations get ERR_MISMATCH, and no graph
 * may be captured. For tests. */
enum err comm_attach(struct comm_world *w, struct dev *d, bool copies);
/* While the device captures a graph (device.h), what is started in its memory is captured with its
 * own work and not done. The members of a group or channel capture the same operations, and launch
 * them as often and in the same order with what else they do. Communicators cannot end before a
 * graph that has operations of them: comm_abort calls graph_destroy(arg), once. NULL: the graph is
 * destroyed. Local. */
void comm_graph_captured(struct comm_world *w, void (*graph_destroy)(void *arg), void *arg);
/* A graph was launched as step number `step`, and one is known to take `seconds`: it hangs when it
 * takes longer than these and the world's timeout. Local. */
enum err comm_graph_launched(struct comm_world *w, int64_t step, double seconds);
/* All that a step runs has run once on this rank's device. Until then hosts wait for each other
 * before each operation by copies and for its end: what runs first is loaded and measured,
 * which may wait for the whole device, and must not wait for a peer that waits likewise. Local. */
void comm_warmup_end(struct comm_world *w);
/* Zeroed device memory that GPUs of the other ranks may read: for a group's window. The
 * transport's, until comm_detach. NULL in *out where the device's own is as good. Local. Errors:
 * ERR_MEMORY, ERR_INTERNAL when COMM_WINDOWS were taken. */
enum { COMM_WINDOWS = 2 };
enum err comm_window_take(struct comm_world *w, int64_t bytes, const char *name, void **out);
/* Before the device closes and behind the closing of groups; nothing is queued on the device from
 * then on. Collective over the world, but where a rank has failed local. */
enum err comm_detach(struct comm_world *w);

/* ---- point to point: messages of one (from, to, tag) keep their order ---- */
enum err comm_send_start(struct comm_world *w, int to, int tag, const void *p, int64_t bytes,
                         struct comm_req *r);
enum err comm_recv_start(struct comm_world *w, int from, int tag, void *p, int64_t bytes,
                         struct comm_req *r);
enum err comm_finish(struct comm_req *r);

/* Messages in device memory go by channels. One has one direction and keeps the order of starting
 * whatever the tags, so both ends must start its messages in the same order. Between two ranks
 * there may be COMM_LANES in each direction, which do not wait for each other. */
enum { COMM_LANES = 2 };
struct comm_channel { int from, to, lane; };
/* Collective over the world: each rank names the channels that it is an end of, once each, in any
 * order. */
enum err comm_channels_open(struct comm_world *w, const struct comm_channel *c, int n);
struct comm_device_msg {
    int peer, lane, tag;
    void *p; /* device; read by a send, written by a receive; borrowed until finish */
    int64_t bytes;
};
enum err comm_device_send_start(struct comm_world *w, const struct comm_device_msg *m,
                                struct comm_req *r);
/* Between GPUs of one process, where ranks share none, it waits until the peer's host has started
 * the send, if that lies in a window. So both may send and then receive, not receive and then
 * send. */
enum err comm_device_recv_start(struct comm_world *w, const struct comm_device_msg *m,
                                struct comm_req *r);

/* ---- groups ---- */

struct comm_group_args {
    int id;           /* unique per set within the world, 0..32767 */
    const int *ranks; /* (n) */
    int n;
    int64_t max_bytes; /* of its largest operation, for staging (comm_scratch_bytes); larger ones
                          go in more pieces, and groups of a few words take little of a GPU */
    enum comm_mem mem; /* what all its operations move */
    bool overlapped;  /* they overlap the device's own work, and leave it most of a GPU */
    /* COMM_DEVICE: what its operations read lies in here, at the same offset on each member; GPUs
     * of one process then move it by copies (gpu/coll.c). From comm_window_take, which keeps it;
     * NULL, or other memory of the device, where that gave none, and the group uses NCCL.
     * window_bytes: the same on all members, with and without a window; 0: nothing is promised. */
    void *window;
    int64_t window_bytes;
    bool also_nccl;   /* some read elsewhere, or are of a kind that copies do not do; else all are
                         sums (all_reduce, f32 or bf16) */
};
struct comm_group {
    struct comm_world *world; /* borrowed from the transport */
    int id, n, me;            /* me: this rank's index among the members */
    int *ranks;               /* (n) owned */
    int64_t started, finished; /* operations so far; finished <= started */
    struct traffic counted[TRAFFIC_KINDS]; /* of them */
    int chunk;                /* started last of one that goes in chunks, not the last; 0: none */
    int chunk_of;             /* that one's kind */
    const struct comm_ops *ops; /* of the transport that it goes by */
    void *impl;               /* owned by the transport; NULL when n is 1 */
    bool device;              /* device memory of the device that is attached */
    bool tiny;                /* its largest operation is a few words */
    bool overlapped;          /* its operations overlap the device's own work */
    void *window;             /* device, borrowed: where operations read; NULL: anywhere */
    int64_t window_bytes;     /* the same on all members */
    bool also_nccl;           /* not all of them do */
    struct comm_group *host;  /* owned; the same members in host memory */
    bool copies;              /* its lane moves by copies what lies in the window */
};

/* Collective over the members, who give the same ranks in the same order, id and max_bytes. Scratch
 * is allocated here and never again. n == 1 is fine and costs nothing. */
enum err comm_group_open(struct comm_world *w, const struct comm_group_args *a,
                         struct comm_group **out);
void comm_group_close(struct comm_group *g);
static inline int comm_group_rank(const struct comm_group *g) { return g->me; }
static inline int comm_group_size(const struct comm_group *g) { return g->n; }
/* What this rank has started in it, but for barriers: [TRAFFIC_KINDS], borrowed. A collective that
 * goes in chunks counts as one. Local. */
static inline const struct traffic *comm_group_counted(const struct comm_group *g)
{
    return g->counted;
}
/* Does it move by copies between GPUs? */
static inline bool comm_group_copies(const struct comm_group *g) { return g->copies; }

/* Staging that `max_bytes`-sized operations need in a group of n: pure, so that the memory plan can
 * ask beforehand. thread: 0. mpi: bounded by a window, larger operations go in pieces. */
int64_t comm_scratch_bytes(enum comm_kind k, int n, int64_t max_bytes);

/* Do groups of n ranks of such a transport move by copies between their GPUs what lies in their
 * windows, where the GPUs reach each other (comm_gpus_reach) and may (comm_attach)? Pure. */
bool comm_would_copy(enum comm_kind k, int n);

/* Can these GPUs of this process (indices, n of them) read each other's memory, and open some of
 * theirs to each other? Only then do they move by copies. True of GPUs that cannot be asked:
 * opening them gives the error. No GPU is opened here; the driver is, behind comm_environment.
 * Local. */
bool comm_gpus_reach(const int *gpu, int n);

/* What a rank will open in device memory: the members of its group with a window of sums and of
 * that with also_nccl (1: it has none), how many groups of other kinds (comm_group_args), and how
 * many channels. overlapped: of the one with also_nccl; no_p2p: the windows' GPUs do not reach each
 * other (comm_gpus_reach), or may not (comm_attach), so NCCL does all; stages_no_p2p: nor do those
 * of channels; shared: all ranks have one GPU. */
struct comm_device_plan {
    int window, also_nccl, full, tiny, channels;
    bool overlapped, no_p2p, stages_no_p2p, shared;
};
/* Bytes of its GPU that a rank's transport takes for that, about: an estimate from above. Pure. */
int64_t comm_device_bytes(enum comm_kind k, const struct comm_device_plan *p);
/* Bytes that it has taken, by the GPU's own count. */
static inline int64_t comm_device_taken(const struct comm_world *w) { return w->device_taken; }

/* In place over `count` elements. g NULL, here, of a broadcast and of a barrier: one rank, and
 * nothing is to be done. */
enum err comm_all_reduce(struct comm_group *g, void *p, int64_t count, enum dtype dt,
                         enum comm_red op);
/* The same, started and finished apart. */
enum err comm_all_reduce_start(struct comm_group *g, void *p, int64_t count, enum dtype dt,
                               enum comm_red op, struct comm_req *r);
/* in: size * count elements; out: this member's count elements, summed. out may be inside in only
 * at this member's own part. */
enum err comm_reduce_scatter(struct comm_group *g, void *out, const void *in, int64_t count,
                             enum dtype dt);
/* out: size * count elements in member order; in: count. in may be this member's part of out. */
enum err comm_all_gather(struct comm_group *g, void *out, const void *in, int64_t count,
                         enum dtype dt);
/* A part of a buffer for each member: `count[i]` elements, from element at[i] on. */
struct comm_parts { const int64_t *count, *at; }; /* (size) borrowed till the operation is over */
struct comm_to_all {
    void *out;
    const void *in;
    struct comm_parts recv, send; /* of out, by its sender; of in, by its receiver */
    enum dtype dt;
};
/* Each member sends a part of `in` to each member, itself among them. Counts may all differ, and be
 * 0; of two members one receives what the other sends, else it is ERR_MISMATCH. Nothing of `out`
 * overlaps. Device memory that moves by copies: the hosts exchange where parts lie at the
 * start, which waits for the others'. By NCCL: the first one connects, and waits so; members
 * that state different counts get no error. */
enum err comm_all_to_all(struct comm_group *g, const struct comm_to_all *a);
enum err comm_broadcast(struct comm_group *g, int root, void *p, int64_t bytes);
enum err comm_barrier(struct comm_group *g);

/* Started and finished apart; with comm_all_reduce_start at most 64 unfinished ones in a group. */
enum err comm_reduce_scatter_start(struct comm_group *g, void *out, const void *in, int64_t count,
                                   enum dtype dt, struct comm_req *r);
enum err comm_all_gather_start(struct comm_group *g, void *out, const void *in, int64_t count,
                               enum dtype dt, struct comm_req *r);
/* comm_reduce_scatter in chunks k = 1 .. n, so that a summand can leave while the next is made: at
 * chunk k, of `in`, that of member (me + k) % n is complete, at the last, k = n, this member's own;
 * the sum is there when the last is finished. All chunks of one name the same buffers and start in
 * their order, with nothing else of the group between them. Where they do not move by copies, the
 * last does all. The bits are those of comm_reduce_scatter. */
enum err comm_reduce_scatter_chunk_start(struct comm_group *g, int chunk, void *out, const void *in,
                                         int64_t count, enum dtype dt, struct comm_req *r);
/* comm_all_gather in chunks k = 1 .. n - 1: when chunk k is finished, what the members me + 1 ..
 * me + k (% n) gave is there, and with the last all. The same rules; where they do not move by
 * copies, the first does all. */
enum err comm_all_gather_chunk_start(struct comm_group *g, int chunk, void *out, const void *in,
                                     int64_t count, enum dtype dt, struct comm_req *r);
/* Can a sum in chunks have so many bytes a member? */
bool comm_group_chunks(const struct comm_group *g, int64_t bytes);
/* The sum over the members' `in`, count elements, into the root's out, which may be its `in`; the
 * others' out is not looked at. The bits are those of comm_reduce_scatter. */
enum err comm_reduce_start(struct comm_group *g, int root, void *out, const void *in, int64_t count,
                           enum dtype dt, struct comm_req *r);

#endif
