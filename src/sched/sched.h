/* SPDX-License-Identifier: Apache-2.0
 *
 * The schedule: one score, two performers. A schedule is data: for each pipeline rank a list of
 * 8-byte instructions, total order within the rank. It is made by a generator (compute only),
 * lowered (sends, receives, reductions, optimizer step derived), checked, and only then simulated
 * or executed. Nothing about it is decided at run time.
 *
 *     sched_make | sched_parse  ->  [sched_canonical]  ->  [sched_recompute]  ->  sched_lower
 *         ->  [sched_segment]  ->  [sched_zero]  ->  sched_check  ->  sim_run | exec_run
 *
 * Rank here means pipeline coordinate 0..p-1; each data- or tensor-parallel replica runs the same.
 * Stages S = p * v in the global order of the layers; `place` says which rank holds each.
 *
 * A bidirectional schedule holds the parameters twice: `place` then has a second row, `way` says
 * which row each microbatch goes by, and a rank holds stages of both rows. The rows mirror one
 * another: the ranks come in pairs, and what a rank holds in one row its partner holds in the
 * other. A stage of a row is called a stage replica.
 */
#ifndef PLAIT_SCHED_SCHED_H
#define PLAIT_SCHED_SCHED_H

#include "base/err.h"
#include "base/text.h"
#include <stdint.h>

enum sched_op {
    SCHED_F, SCHED_B, SCHED_I, SCHED_W, /* forward; whole backward; its input and weight halves */
    SCHED_R, /* recompute: the forward of (stage, mb) once more, for its B or I. What its F saved is
                given back at the end of F then, and made again here */
    SCHED_SEND_F, SCHED_RECV_F, /* activation of `stage` (SEND: to stage+1, RECV: for stage) */
    SCHED_SEND_B, SCHED_RECV_B, /* gradient of the input of `stage` (SEND: made by stage, goes to
                                   stage-1; RECV: arrives for stage, made by stage+1) */
    SCHED_REDUCE, /* the sum of the gradients of `stage`, or of a segment of it, over the ranks that
                     hold the same is started */
    SCHED_EMBED_REDUCE, /* sum of the tied embedding's gradient over first and last stage: one on
                     each of their ranks, naming that stage, `peer` the other rank */
    SCHED_STEP,   /* the optimizer updates the weights of all this rank's stages */
    SCHED_OVERLAP_F_B, /* the next two instructions, an F and a B, are one action: it starts when
                     both inputs are there and gives both results at its end; stage and mb are the
                     F's */
    SCHED_REPLICA_REDUCE, /* sum of the gradients of `stage` over its two replicas: one on each of
                     their ranks, `peer` the other */
    SCHED_WAIT,   /* all sums and gathers that this rank has started are complete after this */
    SCHED_NORM,   /* loss, tokens and squared norm of the gradient are summed over all ranks */
    SCHED_UPDATE, /* the optimizer updates what this rank owns of the weights of `stage`, or of a
                     segment of it, where data ranks shard the optimizer */
    SCHED_GATHER, /* the gather of the whole weights of `stage`, or of a segment of it, from their
                     owners is started */
    SCHED_DROP,   /* the weights of `stage`, or of a segment of it, that others own are not needed
                     until they are gathered again */
    SCHED_OP_COUNT
};

/* Instructions that compute and take a rank's time: F, B, I, W, R. */
enum { SCHED_COMPUTE_OPS = SCHED_R + 1 };

/* 8 bytes. `seg` 0: all of the stage; else a segment of it, a run of its layers, counted from 1 at
 * its first layer (R, B, W, REDUCE, UPDATE, GATHER and DROP alone). `peer` is the other pipeline
 * rank of a send, receive, tied or merged sum, else the rank itself. mb is 0 where it means
 * nothing (REDUCE, EMBED_REDUCE, REPLICA_REDUCE, UPDATE, GATHER, DROP, and what names no stage),
 * and so is the stage of what names none: STEP, WAIT and NORM. */
struct sched_instr { uint8_t op, seg; uint16_t stage, mb, peer; };

static inline bool sched_op_names_stage(int op)
{
    return op != SCHED_STEP && op != SCHED_WAIT && op != SCHED_NORM;
}
/* F, B, I, W, R and their messages. */
static inline bool sched_op_names_microbatch(int op)
{
    return op < SCHED_REDUCE || op == SCHED_OVERLAP_F_B;
}
/* UPDATE, GATHER, DROP: of the weights of a stage. */
static inline bool sched_op_moves_weights(int op)
{
    return op == SCHED_UPDATE || op == SCHED_GATHER || op == SCHED_DROP;
}
/* REDUCE, GATHER, DROP: what a compute-only list may say about the shards of a stage. */
static inline bool sched_op_shards(int op)
{
    return op == SCHED_REDUCE || op == SCHED_GATHER || op == SCHED_DROP;
}
/* Does it end what it does for its stage, of which the last segment is the first layers'? */
static inline bool sched_ends_stage(struct sched_instr in)
{
    return in.seg <= 1;
}

enum { SCHED_MAX_RANKS = 4096, SCHED_MAX_STAGES = 16384, SCHED_MAX_MB = 65535,
       SCHED_MAX_REPLICAS = 2, SCHED_MAX_SEGMENTS = 255 };

/* Actions of torch's lists about sharded weights. The first three are GATHER, DROP and REDUCE of a
 * whole stage; what a program has no use for is counted, and passed over. */
enum sched_passed {
    SCHED_UNSHARD, SCHED_RESHARD, SCHED_REDUCE_GRAD, SCHED_WAIT_REDUCE_GRAD, SCHED_PASSED_OPS
};

struct sched {
    char name[32];
    int p, m, v, stages; /* stages == p * v */
    int slices;          /* of a microbatch; 1: whole. With more, m and each instruction's mb count
                            units: mb * slices + slice */
    int replicas;        /* of the parameters: 1, or 2 when microbatches go both ways */
    bool forward_only;   /* evaluation: only F; no B is demanded */
    bool lowered, checked;
    int64_t passed[SCHED_PASSED_OPS]; /* how many of each the text had, and this list has not */
    uint16_t *place; /* owned; [replicas * stages] -> rank */
    uint8_t *way;    /* owned; [m] -> replica that the microbatch goes by */
    uint8_t *segments; /* owned; [stages] in which a stage's last weight gradients are made, or 1 */
    int64_t *begin;  /* owned; [p + 1]: instructions of rank r are begin[r]..begin[r+1]-1 */
    struct sched_instr *instr; /* owned; [begin[p]] */
};

/* Index of the stage replica at which microbatch mb meets a stage: 0 .. replicas * stages - 1. */
static inline int sched_stage_replica(const struct sched *s, int stage, int mb)
{
    return s->way[mb] * s->stages + stage;
}
/* Its rank. */
static inline int sched_rank_of(const struct sched *s, int stage, int mb)
{
    return s->place[sched_stage_replica(s, stage, mb)];
}
/* Does it begin what it does for its stage, of which the first segment is the last layers'? */
static inline bool sched_begins_stage(const struct sched *s, struct sched_instr in)
{
    return in.seg == 0 || in.seg == s->segments[in.stage];
}
/* The stage replica of a stage on a rank, which no two replicas of it share; -1: none there. */
int sched_stage_replica_on(const struct sched *s, int stage, int rank);
/* Microbatches that go by a replica. */
int sched_microbatches(const struct sched *s, int replica);
/* Holdings of a rank. */
int sched_stage_replicas_on(const struct sched *s, int rank);
/* Is there an instruction of this kind? Linear in instructions. */
bool sched_has(const struct sched *s, enum sched_op op);
/* Does every head stand on the rank of an embedding, so that no copy is needed to tie them? */
bool sched_ends_meet(const struct sched *s);

/* group: microbatches that a chunk runs in a row before the rank's next chunk has its turn, for the
 * schedules that know groups (interleaved); 0: the schedule's own, and the only value elsewhere. */
struct sched_shape { int p, m, v, group; };

/* What a schedule may be made for, where its generator looks at costs (zb-1p, zb-2p, zb-v). Times
 * of one stage and of a message between ranks, any unit; what is kept in activations of a
 * microbatch in a stage. */
struct sched_cost {
    double tf, ti, tw, tc;
    double keep;  /* part of an activation that stays from I to W, 0 to 1 */
    double limit; /* most that a rank may keep, 1 or more, zb-v 2; 0: the schedule's own limit */
    /* borrowed; (optional) times of F, B, I, W, R of each stage, which then stand in place of tf,
     * ti, tw */
    const double (*stage)[SCHED_COMPUTE_OPS];
};
/* Time of F, I or W in a stage. */
static inline double sched_cost_time(const struct sched_cost *c, enum sched_op op, int stage)
{
    if (c->stage)
        return c->stage[stage][op];
    return op == SCHED_F ? c->tf : op == SCHED_I ? c->ti : c->tw;
}

/* One generator: one file, one line in the registry. */
struct sched_kind {
    const char *name, *doc;
    int chunks; /* a rank, where none are asked for; 0: 1. The only number that is let through to
                   make, unless it loops */
    enum err (*make)(const struct sched_shape *shape, struct sched *out);
    int limit; /* times p: activations of a rank, where a search is given no other limit */
    bool loops;  /* any number of chunks; gains by several, and one is no better than without */
    bool groups; /* has a use for sched_shape.group; else only 0 is let through to make */
    /* (optional) default: make, whatever the cost; one of the two is there. cost NULL: make, or
     * where there is none tf, ti, tw 1, tc 0, keep 1/2, the schedule's own limit. */
    enum err (*make_for)(const struct sched_shape *shape, const struct sched_cost *cost,
                         struct sched *out);
    /* (optional) default: it does not cut microbatches. Then make refuses */
    enum err (*make_sliced)(const struct sched_shape *shape, int slices, struct sched *out);
};
int sched_kind_count(void);
const struct sched_kind *sched_kind_at(int i);
/* The kind of this name, or NULL. */
const struct sched_kind *sched_kind_find(const char *name);
/* Has the kind of this name, if it is one, fewer chunks a rank than it gains by? */
bool sched_lacks_chunks(const char *name, int p, int v);
/* The kind that a name which is none of them means, by its letters or in another program; NULL. */
const char *sched_kind_meant(const char *name);
/* "; did you mean zb-v", with how it differs, or what to do instead; nothing when none is near. */
void sched_kind_meant_add(const char *name, struct text *out);

/* Compute-only schedule by name, for given costs; NULL: for none. Errors: ERR_CONFIG (unknown name
 * with the nearest; a shape that the schedule truly cannot serve, with nearest legal values; costs
 * that are none; a limit where the order has no room for one). Released by sched_free. */
enum err sched_make(const char *name, const struct sched_shape *shape,
                    const struct sched_cost *cost, struct sched *out);
/* Forward passes only (evaluation, generation; sched_forward.c). place: [p * v] the rank of each
 * stage, copied; NULL: stage s on rank s % p. Each stage takes its microbatches in order, and of
 * two stages a rank runs the later one first, so few activations wait. Errors: ERR_CONFIG. */
enum err sched_make_forward(const struct sched_shape *shape, const uint16_t *place,
                            struct sched *out);
/* A forward-only list with microbatches m and later left out: it runs in the buffers that the whole
 * list runs in. Lowered if `s` is, to be checked again. Errors: ERR_MEMORY. */
enum err sched_first(const struct sched *s, int m, struct sched *out);
/* The same of microbatches that are cut into slices along the tokens, by schedules that can.
 * Errors: ERR_CONFIG. */
enum err sched_make_sliced(const char *name, const struct sched_shape *shape, int slices,
                           struct sched *out);
void sched_free(struct sched *s);

/* Text form: one line a rank, cells separated by commas, cell = <stage><F|B|I|W|R><mb>, or for a
 * pair (<stage>F<mb>;<stage>B<mb>)OVERLAP_F_B; empty cells are idle slots and are skipped. Lowered
 * schedules print in the same form: 0SEND_F3, 2REDUCE, 0EMBED_REDUCE, 1REPLICA_REDUCE, WAIT, NORM,
 * STEP; segment 3 of stage 2 is 2.3: 2.3B7, 2.3REDUCE. Cells of F, B, I, W, sends, receives and
 * pairs are those of PyTorch's pipelining (torch.distributed.pipelining). */
void sched_print(const struct sched *s, struct text *out);
/* Strict parser of both forms: what follows a valid token is refused, with line and column. p is
 * the number of lines, m and stages come from the cells; a stage stands on the first rank with a
 * forward of it. Microbatches whose forward of stage 0 stands on another rank than that of
 * microbatch 0 go by a second replica. Older names are read, too: TIED, MERGE, OV. Text without
 * any B, I, W is forward only; text with a send or the like is lowered already. Actions of enum
 * sched_passed, as in 1UNSHARD, are instructions of a list that is neither (sched_lower says what
 * becomes of them), else counted in out->passed. What the text says is not proved here:
 * sched_check does. Errors: ERR_CONFIG. */
enum err sched_parse(const char *name, const char *text, int64_t n, struct sched *out);

/* The same computing with the weight gradients of every stage added in the order of the
 * microbatches (sched_canonical.c): lists with the same stages, microbatches and replicas then
 * train to the same bits. What comes early waits, whole backwards are split where they must be, and
 * the check counts what that keeps. Errors: those of V1 to V4; ERR_CONFIG when forwards of the last
 * stage are out of order, or ends that stand on one rank are tied, for then the order of forwards
 * counts too; ERR_INTERNAL: lowered already. */
enum err sched_canonical(const struct sched *s, bool tied, struct sched *out);

/* The same computing with as little as can be kept from a forward to its backward
 * (sched_recompute.c): an R in front of every B or I that does not directly follow its F. Units
 * that have an R already keep it. Errors: those of V1 to V4; ERR_CONFIG for a list with messages,
 * with forward passes only, or of slices, which need what those before them keep. */
enum err sched_recompute(const struct sched *s, struct sched *out);

struct sched_lower_args {
    bool reduce; /* data parallel: add REDUCE after the last B or W of each stage */
    bool tied;   /* first and last stage share the embedding: add EMBED_REDUCE on the two ranks */
    bool shared; /* data ranks shard the optimizer: keep GATHER and DROP */
    bool step;   /* add NORM and STEP at the end */
};
/* Adds communication: a SEND right after its producer, the RECV right before its consumer, or
 * earlier where the channel (from, to, kind) would otherwise lose the sender's order (rules V5,
 * V6). Both stand outside of a pair. The RECV of what follows an R comes before that R, which
 * needs no message and runs while that one is on its way. REDUCE follows the last B or W of its
 * stage; WAIT, EMBED_REDUCE, NORM and STEP end the list. tied has no effect when one rank holds
 * both stages. With two replicas each rank ends in the REDUCEs of what it holds, WAIT, its
 * REPLICA_REDUCEs, by stage, NORM and STEP: REPLICA_REDUCE when there is a STEP.
 *
 * What the list says about shards stays where it is, if there are any: a REDUCE with `reduce`, in
 * place of the one that would be added, and of one replica; GATHER and DROP with `shared`, but
 * for a GATHER of what is whole, as all is at the begin, and for a stage's last DROP: the update
 * itself drops what others own, and a GATHER stands behind it. What has no use is counted in
 * out->passed. A schedule that breaks V1 to V4, or of these V9 and V13, is refused as sched_check
 * does. Errors: ERR_CONFIG, also when two replicas have tied ends on different ranks; ERR_INTERNAL:
 * lowered already, or reductions asked of a forward-only one. */
enum err sched_lower(const struct sched *s, const struct sched_lower_args *a, struct sched *out);

/* A lowered list with the last B or W of each stage, and its REDUCE, cut in so many segments,
 * [stages] of 1 to SCHED_MAX_SEGMENTS (sched_segment.c): sums start while the rest of that backward
 * still computes. Whole stay stages that are not summed, and those of two replicas. recompute:
 * every backward of a stage with several is cut, and each segment has its R right before it. To be
 * checked again. Errors: ERR_MEMORY; ERR_CONFIG for recompute of a list whose backwards are not all
 * whole; ERR_INTERNAL for a list that is not lowered or is cut already. */
enum err sched_segment(const struct sched *s, const uint8_t *segments, bool recompute,
                       struct sched *out);
/* A lowered list whose data ranks shard the optimizer (sched_zero.c): UPDATE and GATHER of each
 * segment in place of STEP, then WAIT. The whole list where it does not step. To be checked again.
 * Errors: ERR_MEMORY; ERR_INTERNAL for a list that is not lowered. */
enum err sched_zero(const struct sched *s, struct sched *out);
/* What the backwards of a list are, if recompute would refuse it; NULL: it would not. */
const char *sched_not_whole(const struct sched *s);

enum sched_rule { /* one error each, naming rank, place in its list, instruction */
    SCHED_RULE_COVERAGE = 1,  /* V1 every (stage, mb) exactly one F and one B or {I, W}, and at
                                 most one R */
    SCHED_RULE_PLACEMENT,     /* V2 on the rank that the placement table says; replicas mirror */
    SCHED_RULE_ORDER,         /* V3 F before R before B or I, I before W; pairs whole and
                                 independent; slices of a microbatch forward in order, backward in
                                 reverse; segments of a backward in a row, the last layers' first */
    SCHED_RULE_CYCLE,         /* V4 program order and data edges have no cycle; it is printed */
    SCHED_RULE_PAIRING,       /* V5 one SEND and one RECV per edge between ranks, else none */
    SCHED_RULE_CHANNEL,       /* V6 sends and receives of one channel in the same order */
    SCHED_RULE_DEADLOCK,      /* V7 ends on an abstract machine with unbounded sends */
    SCHED_RULE_LEDGER,        /* V8 live activations never negative, zero at the end */
    SCHED_RULE_REDUCTION,     /* V9 REDUCE, REPLICA_REDUCE after the last B or W by count, and once
                                 for all of a stage; WAIT after the REDUCEs and before EMBED_REDUCE,
                                 REPLICA_REDUCE, NORM */
    SCHED_RULE_STEP,          /* V10 all ranks step or none: NORM after all else, then STEP, or an
                                 UPDATE of each segment */
    SCHED_RULE_WEIGHTS = 13,  /* V13 weights that are dropped, or of which only the owners have the
                                 update, are gathered before they are used, and at the end */
};
struct sched_report {
    enum sched_rule rule; /* the rule that failed, 0 when all hold */
    int *peak;            /* owned; [p] most (stage, mb) activations alive at once per rank */
    int *full_peak;       /* owned; [p] of these, most at once with all that their forward saves:
                             with an R, while F runs and from R on */
    int *stage_peak;      /* owned; [replicas * stages] slots: the same per stage replica, but from
                             RECV_F on, since what is received needs its slot already. Forward
                             only: and until the receiver has taken it, see ring */
    int *save_peak;       /* owned; [replicas * stages] most (stage, mb) at once of which all that a
                             forward saves is kept: from F on, to the B or W. With an R: while F
                             runs, and from R on. Forward only: while F runs */
    int *grad_peak;       /* owned; [replicas * stages] most (stage, mb) between I and W at once, a
                             B included while it runs */
    int ring;             /* lowered: buffers a rank needs for gradients that leave it, used in
                             turn, 2 at least: when F, I, W take 1 and B takes 2, none is needed
                             again before its receiver has asked, so the lists end with so few */
    uint64_t hash;        /* of the whole program, its name aside; equal on all ranks before step 0
                             (V14) */
};
/* Proves the rules; on success s->checked is set. A compute-only schedule is held to V1 to V4 and
 * V8, and to V9 and V13 in what it says about shards. Errors: ERR_CONFIG for a schedule that breaks
 * a rule (it may come from a file), with out->rule set. `out` is written in any case and released
 * by sched_report_free. */
enum err sched_check(struct sched *s, struct sched_report *out);
void sched_report_free(struct sched_report *r);

/* The machine on which schedules are proved and simulated (sched_walk.c). Every rank runs its list
 * in order: step(arg, rank, i) either runs instruction i and returns -1, or returns the rank whose
 * progress it waits for, and is asked again when that rank has moved. */
struct sched_walk {
    const struct sched *s; /* borrowed */
    int (*step)(void *arg, int rank, int64_t i);
    void *arg;
    int64_t *at; /* owned; [p] next instruction of each rank */
    int *next;   /* owned; [p] list of the ranks that wait for the same one */
    int *head;   /* owned; [p] first rank that waits for this one, -1: none */
    int *ready;  /* owned; [p] stack of ranks that may move */
};
/* The caller then sets step and arg. Errors: ERR_MEMORY; closing is right after one too. */
enum err sched_walk_open(struct sched_walk *w, const struct sched *s);
/* True when all lists ended. Else w->at shows where each rank stands. */
bool sched_walk_run(struct sched_walk *w);
void sched_walk_close(struct sched_walk *w);

const char *sched_op_name(enum sched_op op); /* "F", "SEND_F" */
/* Instruction as text, "3SEND_F12" or "STEP", into buf, which is returned. */
enum { SCHED_CELL = 80 };
const char *sched_cell(const struct sched_instr *in, char buf[SCHED_CELL]);
const char *sched_passed_name(enum sched_passed op); /* "UNSHARD" */
/* "8 UNSHARD, 8 RESHARD"; nothing where none were passed over. */
void sched_passed_add(const struct sched *s, struct text *out);
/* Were any? */
bool sched_passed_any(const struct sched *s);

#endif
