/* SPDX-License-Identifier: Apache-2.0
 *
 * A pipeline stage on one rank: its parts (embed, attn, mlp, head), its parameters, its slots. The
 * backward is written by hand and split in two, so that a schedule may put weight gradients where
 * it has room; there is no tape, and every byte is known before the first step.
 *
 * A slot and a save set hold what one microbatch leaves between its forward and its backward:
 * the slot its input, output and what the head makes, the set all that could be made again from
 * these (model_save_stays). A keep set holds what backward_input leaves for backward_weight: one
 * shared set when the two follow each other, one for each live microbatch when the schedule splits
 * them.
 *
 * All functions that run a part are collective over the tensor group.
 */
#ifndef PLAIT_LAYER_STAGE_H
#define PLAIT_LAYER_STAGE_H

#include "model/model.h"
#include "base/mem.h"
#include "parallel/tp.h"
#include "param/param.h"

struct stage;

/* One microbatch as a stage sees it. Rows are (sample, token); global row = (global sample) * T + t
 * counts over the step's whole batch, and keys dropout. */
struct stage_mb {
    const void *input;               /* device memory: ids (n), or rows (n, model_floats) at */
    const int32_t *targets;          /* device memory (n): ids or classes; -1: does not count */
    int64_t samples, t;              /* n = samples * t */
    int64_t row0;                    /* global row of the first row */
    const uint32_t *step;            /* device (1): number of the step, keys dropout */
    bool training;                   /* dropout on, gradients made */
};

/* Pointers into the run's activations; sizes by the types of layers. */
struct stage_slot {
    void *(*save)[SAVE_COUNT]; /* borrowed; [parts]; those of a save set while it is lent, else
                                  NULL */
    void *out;                 /* for the next stage; its gradient comes back here; NULL: none */
};
struct stage_keep {
    void *(*keep)[KEEP_COUNT]; /* borrowed; [parts] */
    bool per_slot;             /* each part has its own; else the parts share one */
};

/* Scratch of the rank, shared by its stages (one part runs at a time), and where backward is not
 * split the keep set that all their parts share. */
struct stage_work { void *at[WORK_COUNT], *keep[KEEP_COUNT]; };

/* A layer kind. c is the call: everything a part needs. */
struct stage_call;
struct stage_again;
struct stage_sub;
struct layer_kind {
    const char *name;
    enum err (*forward)(const struct stage_call *c);
    enum err (*backward_input)(const struct stage_call *c);
    enum err (*backward_weight)(const struct stage_call *c);
    /* Both, with communication overlapped (tp.rows is set); the same bits. NULL: one after the
     * other. */
    enum err (*backward)(const struct stage_call *c);
    /* Of a sublayer: its two GEMMs; gradients from its output's to dmid, with the norm's output on
     * its way behind them (a NULL: it is not wanted yet). */
    struct stage_sub (*sub)(const struct stage_call *c);
    enum err (*inner)(const struct stage_call *c, struct stage_again *a);
};
extern const struct layer_kind layer_embed, layer_attn, layer_mlp, layer_head, layer_input,
    layer_linear, layer_relu;

struct stage_part {
    const struct layer_kind *kind;
    struct layer layer;
    struct model_dims dims;                /* of a full microbatch */
    const struct param *role[PARAM_COUNT]; /* NULL when the part has none */
    bool grad_kept;                       /* see gradient_at (stage.c) */
    bool begins;                          /* the stage, or a segment that is recomputed by itself */
};

struct stage {
    const struct model *model;        /* borrowed */
    struct model_split split;
    struct model_stage span;
    int64_t samples;                /* of a full microbatch */
    bool aliases_dy;                /* see stage_call */
    struct dev *dev;                /* borrowed */
    struct tp tp;
    struct param_store params;
    struct stage_part *part;        /* owned; [parts] */
    int parts;
    const struct stage_work *work;  /* borrowed from the executor */
    const void *rope;               /* device, borrowed: (T, D) table, NULL for gpt */
    double *loss;                   /* device, borrowed: sum of losses, added to; head only */
    uint64_t seed;                  /* of dropout */
};

struct stage_call {
    const struct stage *s;
    const struct stage_part *p;
    const struct stage_mb *mb;
    struct model_dims dims;          /* of this microbatch: the last one may have fewer samples */
    void **save, **keep;
    void *y;                        /* forward: (nl, C) output; NULL for the head */
    const struct stage_call *next;  /* forward: the sublayer behind this one, whose norm is made
                                       beside y; NULL: it makes its own */
    bool normed;                    /* the part before has made this one's norm */
    void *dy, *dx;                  /* backward: (nl, C) gradient of output and of input; dx NULL:
                                       nobody wants it */
    void *d_sublayer;               /* backward: where the gradient of the sublayer's output stays
                                       for backward_weight */
    bool aliases_dy;                /* d_sublayer does: nothing lies between the two gradients */
};

struct stage_args {
    struct param_memory memory; /* of its parameters */
    bool copy;              /* a second replica: its parameters are counted in the first */
    int shard_rank, num_shards; /* param_place */
    const struct param *tokens; /* borrowed: the embedding in another stage of this rank, or NULL */
    const int *recompute;   /* borrowed; [num_recomputed] first parts of segments that are
                               recomputed each by itself, rising from 0; NULL: none are */
    int num_recomputed;
};

bool stage_has_head(const struct stage *s);

/* *s: zero but for what is borrowed, split, span, samples, tp and seed. Errors: those of
 * param_store_open. Released by stage_close. */
enum err stage_open(struct stage *s, const struct stage_args *a);
void stage_close(struct stage *s);

/* Lend a slot the buffers of a save set, of which those are NULL that stay in slots, and which it
 * needs while parts run forward or backward. NULL: take them back. */
void stage_lend(const struct stage *s, struct stage_slot *slot, void *(*set)[SAVE_COUNT]);
/* The keep set that all parts share, in the rank's scratch. */
void stage_keep_share(const struct stage *s, struct stage_keep *k);

/* Parts first .. end - 1: all, or a segment. */
struct stage_range { int first, end; };

/* Forward of all parts; the input is in slot->save[0][SAVE_X], or the model's. Head: adds to the
 * loss; when training it also makes the gradient of the logits and of the head's weight (head.c).
 * again: of these parts once more, but the head's, whose forward has left what it must in the slot:
 * the same bits, dropout included, into the set that is lent to the slot. slot->out is not touched,
 * for the gradient may be arriving there. */
enum err stage_forward(const struct stage *s, const struct stage_mb *mb,
                       const struct stage_slot *slot, const struct stage_range *again);

struct stage_back {
    const struct stage_mb *mb;
    const struct stage_slot *slot;
    const struct stage_keep *keep;
    void *dx;                /* (nl, C) receives the input's gradient; unused with the embed, and
                                where the first part is not done */
    struct stage_range parts; /* those behind it were done before, and scratch and keep set are as
                                 they left them */
};
/* Whole backward (B), or a half of it (I, of all parts, W). The output's gradient is in slot->out
 * (head: none). */
enum stage_half { STAGE_WHOLE, STAGE_INPUT, STAGE_WEIGHT };
enum err stage_backward(const struct stage *s, const struct stage_back *b, enum stage_half half);

/* Logits of one row of the last forward of a stage with the head: row `row` of the microbatch, this
 * rank's vocabulary columns, (V/tp) in the accumulation type, into device memory `out`.
 * slot: the slot of that forward. Collective over tp when sp is on. */
enum err head_row_logits(const struct stage *s, const struct stage_mb *mb,
                         const struct stage_slot *slot, int64_t row, void *out);

/* ---- for the layer kinds ---- */

/* The call of a part for a microbatch, its extents filled in; buffers are the caller's to set. */
struct stage_call stage_call_of(const struct stage *s, const struct stage_mb *mb, int part);

/* Weight of a role; NULL when the part lacks it. */
const void *stage_w(const struct stage_call *c, enum param_id r);
/* Gradient of a role that the part has, and of what lies joined to it, to be added to. */
enum err stage_grad(const struct stage_call *c, enum param_id r, void **out);
/* Gradients of a GEMM's weight, r[0], and of its bias, r[1], where the part has one, and of what
 * lies joined to them: += dy^T x, and the sum of the rows of dy. */
enum err stage_weight_grad(const struct stage_call *c, const enum param_id r[2],
                           const struct tensor *dy, const struct tensor *x);

/* Norm of the part's input into `h`, statistics into the slot (all kinds but embed). */
enum err stage_norm(const struct stage_call *c, void *h);
/* dx = d (NULL: zero) + gradient through the norm of dh. The gradients of the norm's own
 * parameters are kept in KEEP_DNORM; stage_norm_weight adds them, so that every gradient of a block
 * is added in the order of backward_weight. */
enum err stage_norm_grad(const struct stage_call *c, const void *d, const struct tensor *dh);
enum err stage_norm_weight(const struct stage_call *c);
/* End of a sublayer: y = x + drop(f + bias), f the reduced GEMM. */
enum err stage_residual(const struct stage_call *c, const struct tensor *f, enum param_id bias);
/* The norm's output as the stream lies. */
struct tensor stage_norm_output(const struct stage_call *c);

/* The two GEMMs of attention and mlp as their gradients see them: the first makes of h what dmid
 * is the gradient of, the last takes mid to f. */
struct stage_sub {
    enum param_id out[2], in[2]; /* weight and bias of the last GEMM, of the first */
    struct tensor mid, dmid;
};
/* The norm's output made whole for the weight gradient of the first GEMM. */
struct stage_again {
    struct tensor h;
    struct tp_wait wait;
};
/* Of the input of the last GEMM, by l's weight, act and pre, into l->out (n, cols); with `a` the
 * norm's output is on its way behind it. */
enum err stage_mid_grad(const struct stage_call *c, struct tp_linear *l, int64_t cols,
                        struct stage_again *a);
/* The backward of both, in halves and whole; they call the kind's sub and inner. */
enum err stage_sub_input(const struct stage_call *c);
enum err stage_sub_weight(const struct stage_call *c);
enum err stage_sub_both(const struct stage_call *c);
/* Dropout of a site of this part: rows of the stream, of probabilities all of the microbatch. */
enum { SITE_PROBS, SITE_OUTPUT, SITE_COUNT };
struct drop stage_drop(const struct stage_call *c, int site);

#endif
