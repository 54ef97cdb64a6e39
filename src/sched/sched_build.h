/* SPDX-License-Identifier: Apache-2.0
 *
 * For sched/ alone: how generators, the parser and the lowering write a schedule, and which
 * messages share a channel.
 *
 * A build is filled rank after rank; like struct text it keeps its first error, so that a
 * generator is only its loops:
 *
 *     struct sched_build b;
 *     sched_build_open(&b, "gpipe", shape);
 *     for (rank...) {
 *         sched_build_rank(&b);
 *         sched_build_add(&b, SCHED_F, stage, mb);
 *     }
 *     return sched_build_done(&b, out);
 */
#ifndef PLAIT_SCHED_SCHED_BUILD_H
#define PLAIT_SCHED_SCHED_BUILD_H

#include "sched/sched.h"

struct sched_build {
    struct sched s; /* what is made so far */
    int rank;       /* being written; -1 before the first sched_build_rank */
    int64_t n, cap; /* instructions written and room for them */
    enum err err;   /* the first one; everything after it is ignored */
};

/* Starts a compute-only schedule. Stages stand in a loop (stage s on rank s % p) until the caller
 * writes another table into b->s.place. The shape must have passed sched_shape_check. */
void sched_build_open(struct sched_build *b, const char *name, const struct sched_shape *shape);
/* Lets the stages turn at the ends: ranks 0 .. p - 1, then p - 1 .. 0, and so on. A V for v 2. */
void sched_build_zigzag(struct sched_build *b);
/* Room for that many replicas; rows of b->s.place that are new are all rank 0. */
void sched_build_replicas(struct sched_build *b, int replicas);
/* Makes the schedule bidirectional: a second replica that mirrors the first (its stage on rank p -
 * 1 - r), by which the last m / 2 microbatches go. Called after b->s.place is as it shall be. */
void sched_build_mirror(struct sched_build *b);
/* Starts another list of the same: all of a schedule but its instructions. */
void sched_build_from(struct sched_build *b, const struct sched *from);
/* Turns to the next rank; called exactly p times. */
void sched_build_rank(struct sched_build *b);
/* Appends to the list of the current rank, the peer filled in from the placement table. */
void sched_build_add(struct sched_build *b, enum sched_op op, int stage, int mb);
/* The same of an instruction as it is, its peer apart. */
void sched_build_copy(struct sched_build *b, struct sched_instr in);
/* The list of the next rank, whose one stage has its number: `warm` forwards, then a forward and a
 * backward in turn, then the backwards that are left. late: the backwards are in halves, and a W
 * follows so many microbatches behind its I; -1: they are whole. */
void sched_build_line(struct sched_build *b, int warm, int late);
/* Gives the schedule out, or the first error with everything released. */
enum err sched_build_done(struct sched_build *b, struct sched *out);

/* The registry's generators, one a file. */
extern const struct sched_kind sched_naive, sched_gpipe, sched_1f1b;
extern const struct sched_kind sched_interleaved, sched_looped_bfs, sched_zb_h1, sched_zb_h2;
extern const struct sched_kind sched_dualpipe, sched_dualpipev, sched_chimera, sched_seq1f1b;
extern const struct sched_kind sched_zb_1p, sched_zb_2p;
extern const struct sched_kind sched_zb_v, sched_v_half, sched_v_min, sched_1f1b_v;

/* p, m, v within the limits of the IR. `name` stands in the message. Errors: ERR_CONFIG. */
enum err sched_shape_check(const char *name, const struct sched_shape *shape);
/* For schedules whose two directions meet between two ranks: p is even. Errors: ERR_CONFIG. */
enum err sched_shape_even(const char *name, const struct sched_shape *shape);

/* Rank on the other side of a send, receive, tied or merged sum on rank `own`; `own` for what has
 * none. */
int sched_peer(const struct sched *s, struct sched_instr in, int own);
/* Instruction i as the text form writes it: a pair is "(0F3;3B5)OVERLAP_F_B", from its OVERLAP_F_B
 * on; in a compute-only list a GATHER is "0UNSHARD". */
const char *sched_cell_at(const struct sched *s, int64_t i, char buf[SCHED_CELL]);

/* ---- which messages share a channel ----
 * A channel is (from, to, kind), kind the activations (0) or the gradients (1). The messages for
 * stage replica h of kind k all go by channel of[k replicas stages + h]; -1 when the neighbour
 * stage is on the same rank or there is none. */
struct sched_channels {
    int *of; /* owned; [2 * replicas * stages] */
    int n;   /* channels */
};
/* Of what computes, sends or receives. */
static inline int sched_kind_of(uint16_t op)
{
    return op == SCHED_F || op == SCHED_SEND_F || op == SCHED_RECV_F ? 0 : 1;
}
enum err sched_channels_make(const struct sched *s, struct sched_channels *out);
void sched_channels_free(struct sched_channels *c);
/* Channel of the message of kind `kind` for (stage, mb), -1: none. */
static inline int sched_channel_of(const struct sched *s, const struct sched_channels *c, int kind,
                                   struct sched_instr in)
{
    return c->of[kind * s->replicas * s->stages + sched_stage_replica(s, in.stage, in.mb)];
}
/* Stage whose message of kind `kind` the instruction of `stage` sends for microbatch mb: its
 * neighbour, or -1. */
int sched_sent_to(const struct sched *s, int kind, int stage, int mb);

/* What torch's lists call one of sched_op_shards. */
static inline enum sched_passed sched_shards_name(int op)
{
    return op == SCHED_GATHER ? SCHED_UNSHARD : op == SCHED_DROP ? SCHED_RESHARD
                                                                 : SCHED_REDUCE_GRAD;
}

/* All rules of compute-only lists but V8: what the lowering builds on. Errors: ERR_CONFIG, naming
 * the rule. */
enum err sched_check_compute(const struct sched *s);

/* ---- sched_twoway.c: the order of one rank of dualpipe.c and dualpipev.c ---- */

struct sched_twoway_side {
    int stage;        /* here */
    int first, count; /* its microbatches */
};
struct sched_twoway {
    int h, q;                         /* q of 0 .. h - 1: hops from the input of the near stage */
    struct sched_twoway_side side[2]; /* near, far */
};
/* Appends the list of the rank that b is at. */
void sched_twoway_write(struct sched_build *b, const struct sched_twoway *t);

/* ---- sched_vblock.c: v_half.c, v_min.c and 1f1b_v.c, which repeat one block; and what passes are
 * called there and in sched_search.c ----
 * Two chunks a rank in a V. A block says in which slot each rank runs microbatch 0 through its
 * first chunk and, on the way back, its second; microbatch k follows 6 k slots later. A forward
 * takes a slot; the backward either two as a whole (F, f, b, B fill the period of six), or one for
 * its input half, and then W goes where the block leaves slots free. */

/* What a rank runs, in the order in which a microbatch meets it. */
enum {
    VBLOCK_F0, VBLOCK_F1, /* forward of the first and of the second chunk */
    VBLOCK_B1, VBLOCK_B0, /* backward (whole, or I) of the second and of the first chunk */
    VBLOCK_PASSES,
    VBLOCK_W1 = VBLOCK_PASSES, VBLOCK_W0,
    VBLOCK_KINDS,
    VBLOCK_PERIOD = 6
};

/* Of the second chunk? */
static inline bool sched_vblock_second(int kind)
{
    return kind == VBLOCK_F1 || kind == VBLOCK_B1 || kind == VBLOCK_W1;
}
static inline int sched_vblock_stage(int p, int rank, int kind)
{
    return sched_vblock_second(kind) ? 2 * p - 1 - rank : rank;
}
/* Backward in halves. */
static inline enum sched_op sched_vblock_op(int kind)
{
    return kind <= VBLOCK_F1 ? SCHED_F : kind < VBLOCK_PASSES ? SCHED_I : SCHED_W;
}

struct vblock {
    const char *name;
    const struct sched_shape *shape;
    bool whole;                 /* B, not I and W */
    int (*at)[VBLOCK_PASSES];   /* owned; [p] slots of microbatch 0, no two of a rank alike
                                   modulo the period; every pass after what it needs */
};

/* Room for the block of a shape, of two chunks a rank. Errors: ERR_MEMORY. */
enum err sched_vblock_open(struct vblock *b, const char *name, const struct sched_shape *shape);
/* Writes the schedule of a filled block and releases the block, after an error too. */
enum err sched_vblock_make(struct vblock *b, struct sched *out);


/* ---- sched_search.c: zb_1p.c, zb_2p.c and zb_v.c, an order searched for given costs ----
 * The list, backward in halves, whose longest rank is shortest among those that the search knows,
 * on one chunk a rank or on two in a V. cost NULL: that of sched_kind.make_for. first: of two
 * chunks, a list of the shape within a limit of 2 p; the result when none is shorter. Errors:
 * ERR_CONFIG for a cost that is none; ERR_MEMORY. */
enum err sched_search(const struct sched_kind *kind, const struct sched_shape *shape,
                      const struct sched_cost *cost, const struct sched *first,
                      struct sched *out);

#endif
