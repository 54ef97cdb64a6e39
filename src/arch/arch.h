/* SPDX-License-Identifier: Apache-2.0
 *
 * A model as numbers: parameters, FLOPs and bytes, exact, with no device. The doing half builds
 * its stores and buffers from these same tables, so what is predicted is what is allocated.
 *
 * Dimension letters, used in every shape comment of plait: B batch, T tokens, C channels (hidden),
 * H heads, K kv heads, D head dim, F ffn, V vocabulary, L layers; n = B*T rows. A local extent
 * takes a slash: (n/sp, C), (n, H*D/tp).
 *
 * A model is a row of layers: one embed, then attn and mlp for each of L blocks, then one head.
 * Pipeline stages are contiguous runs of them.
 */
#ifndef PLAIT_ARCH_ARCH_H
#define PLAIT_ARCH_ARCH_H

#include "base/err.h"
#include "base/num.h"

enum arch_kind {
    ARCH_GPT,   /* GPT-2: learned positions, LayerNorm, GELU (tanh form), biases */
    ARCH_LLAMA, /* Llama: RMSNorm, rotary positions (half-split), SwiGLU, grouped kv, no biases */
    ARCH_KINDS
};

/* What the layers of a kind have. */
struct arch_traits {
    const char *name; /* "gpt" */
    bool positions;   /* learned, added to the embedding; else rotary, in attention */
    bool bias;        /* of matrices, and a shift of norms */
    bool rms;         /* norms without a mean */
    bool gated;       /* SwiGLU: two matrices before the activation */
};
const struct arch_traits *arch_traits(enum arch_kind kind);

struct arch {
    enum arch_kind kind;
    int64_t layers, hidden, heads, kv_heads, head_dim, ffn, vocab, seq;
    bool tied;         /* head weight is the token embedding */
    double dropout;    /* embedding, attention probabilities, sublayer outputs; 0..0.9 */
    double norm_eps, rope_theta, init_std;
};

/* How the tensor axis cuts the model. sp: the residual stream is sharded over rows (sequence
 * parallelism, Korthikanti et al. 2022), so norms, dropout and residuals work on n/tp rows. */
struct arch_split { int tp; bool sp; };

/* Can this model exist, and can it be cut so? Errors: ERR_CONFIG naming key, value, rule and the
 * nearest legal values. Keys: model.*, parallel.tp, parallel.sp. */
enum err arch_check(const struct arch *a);
enum err arch_check_split(const struct arch *a, const struct arch_split *s);

/* ---- Parameters -------------------------------------------------------------------------- */

enum arch_part { PART_EMBED, PART_ATTN, PART_MLP, PART_HEAD, PART_COUNT };

/* What a parameter is to its part; index of the part's parameter table. */
enum arch_role {
    ROLE_TOKENS, ROLE_POSITIONS,                                           /* embed */
    ROLE_NORM_W, ROLE_NORM_B,                                              /* attn, mlp, head */
    ROLE_Q_W, ROLE_K_W, ROLE_V_W, ROLE_Q_B, ROLE_K_B, ROLE_V_B,            /* attn */
    ROLE_O_W, ROLE_O_B,
    ROLE_GATE_W, ROLE_UP_W, ROLE_UP_B, ROLE_DOWN_W, ROLE_DOWN_B,           /* mlp */
    ROLE_HEAD_W,                                                           /* head */
    ROLE_COUNT
};

enum arch_slice {
    SLICE_NONE,  /* replicated over tp */
    SLICE_ROWS,  /* dim 0 in tp equal parts (column-parallel linear: weights are (out, in)) */
    SLICE_COLS,  /* dim 1 in tp equal parts (row-parallel linear) */
    SLICE_KV,    /* dim 0 by kv heads; when kv_heads < tp, tp / kv_heads neighbours hold the same */
    SLICE_VOCAB, /* dim 0 in tp parts of ceil(V / tp) rows; the last ones may be short or empty,
                    the missing rows exist locally as zeros and are never visible outside */
};

enum arch_init { INIT_ZERO, INIT_ONE, INIT_NORMAL };

struct arch_param {
    char name[64];      /* global and layout-free: "layers.3.attn.q.weight" */
    enum arch_part part;
    enum arch_role role;
    int64_t block;      /* 0..L-1; -1 for embed and head */
    int64_t shape[2];   /* global; (out, in) for matrices, (n, 1) for vectors */
    enum arch_slice slice;
    bool decay;         /* weight decay: matrices only */
    bool joined;        /* stored directly behind the one before it, so that one product serves both
                           (q k v; gate up) */
    bool tied_copy;     /* the head's copy of the embedding on another stage: drawn, updated and
                           reduced as ROLE_TOKENS, counted once */
    bool rows_partial;  /* under sp its gradient is a sum over local rows only: add over tp */
    enum arch_init init;
    double std;
};

enum { ARCH_PART_PARAMS = 12 };

/* Parameters of one part in storage order; returns how many. `apart`: the head stands on another
 * rank than the embed (matters when tied: a copy exists there). */
int arch_part_params(const struct arch *a, enum arch_part part, int64_t block, bool apart,
                     struct arch_param out[ARCH_PART_PARAMS]);

/* Local box of a parameter on tensor rank `tp_rank`: rows [at[0], at[0]+real[0]) of the global dim
 * 0 and so on; `local` is the stored extent (>= real for a padded vocabulary). */
struct arch_box { int64_t local[2], real[2], at[2]; };
void arch_param_box(const struct arch *a, const struct arch_split *s, const struct arch_param *p,
                    int tp_rank, struct arch_box *out);

/* Elements that each parameter starts at a multiple of (joined ones excepted). */
enum { ARCH_PARAM_ALIGN = 64 };

/* The layers of a model in their order, from 0: the embed, then attn and mlp of each block, then
 * the head. How many, and what stands at `layer` (block: -1 for embed and head), and the other way
 * round. */
int64_t arch_layers(const struct arch *a);
enum arch_part arch_layer(const struct arch *a, int64_t layer, int64_t *block);
int64_t arch_layer_of(const struct arch *a, enum arch_part part, int64_t block);

/* A stage: any run of layers, [first, end). embed_beside: the embed stands in another stage of the
 * same rank (a V placement), so that a tied head needs no copy of it. */
struct arch_stage { int64_t first, end; bool embed_beside; };
int arch_stage_parts(const struct arch_stage *st); /* how many layers */
/* Layer i of a stage. */
enum arch_part arch_stage_part(const struct arch *a, const struct arch_stage *st, int i,
                               int64_t *block);
bool arch_stage_has(const struct arch_stage *st, int64_t layer);
/* Does it begin with the embed, end with the head? */
bool arch_stage_embed(const struct arch_stage *st);
bool arch_stage_head(const struct arch *a, const struct arch_stage *st);
/* Is the embed on another rank than this stage? */
bool arch_stage_apart(const struct arch_stage *st);

/* All parameters of the model in the order of its parts, a tied head's copy left out, into *out
 * (mem_free) and their number into *n. Errors: ERR_MEMORY. */
enum err arch_model_params(const struct arch *a, struct arch_param **out, int *n);

/* Elements of a stage's parameter store on one rank, padding included. */
int64_t arch_stage_elements(const struct arch *a, const struct arch_split *s,
                            const struct arch_stage *st);
/* Elements that one of so many data ranks saves of a stage at most. A copy of a tied matrix is
 * saved where the embedding is. */
int64_t arch_saved_elements(const struct arch *a, const struct arch_split *s,
                            const struct arch_stage *st, int ranks);
/* n elements and what is added so that so many ranks have equal shares of them, each a multiple of
 * ARCH_PARAM_ALIGN. */
int64_t arch_shared_elements(int64_t n, int shares);
/* Parameters of the whole model, tied counted once, nothing padded. */
int64_t arch_params(const struct arch *a);

/* Cut the layers into `stages` contiguous stages so that the costliest is cheapest, embed and head
 * counted (head: 6 V C FLOPs a token); ties give the earlier stages more. Every stage has a block.
 * rank: [stages] ranks of the stages; with it the costliest rank is made cheapest, and among its
 * stages the costliest; NULL: each stage by itself. out[stages]. Errors: ERR_CONFIG when stages >
 * layers. */
enum err arch_cut(const struct arch *a, int stages, const uint16_t *rank, struct arch_stage *out);
/* Make such a cut finer, between the attn and the mlp of a block: bounds of stages move by one of
 * them, or two bounds do, as long as costs of ranks (rank NULL: stages) come nearer to each other.
 * Not the best of all cuts, and never a worse one; with rank NULL it has the least costliest stage
 * that there is, and where that is not `worth` a share less than before the cut stays as it was.
 * *finer: it was made so. Errors: ERR_MEMORY. */
/* long: a cut, what a finer one must be worth, and whether it is */
enum err arch_cut_finer(const struct arch *a, int stages, const uint16_t *rank, double worth,
                        struct arch_stage *cut, bool *finer);

/* ---- FLOPs ------------------------------------------------------------------------------- */

/* Forward FLOPs of one part for n rows of sequences of t tokens; causal attention counts half. */
double arch_part_flops(const struct arch *a, enum arch_part part, int64_t n, int64_t t);
/* Training FLOPs of one token: 6 x matmul parameters + attention in full, 12 L H D T (the
 * convention of published MFU figures). */
double arch_train_flops_per_token(const struct arch *a);

/* Doubles that the optimizer has in device memory: a step's sums, rates, factor and tokens. */
enum { ARCH_STEP_DOUBLES = 13 };

/* ---- Bytes ------------------------------------------------------------------------------- */

/* Local extents of one microbatch on one rank. */
struct arch_dims {
    int64_t b, t, n, nl;      /* samples, tokens, rows b*t, rows of the stream (n or n/tp) */
    int64_t c, h, k, d, f, v; /* local: channels (all), heads, kv heads, head dim, ffn, vocab */
    int64_t chunk;           /* rows of logits at once in the head */
    int64_t ct, at, logits;  /* bytes of the compute, the accumulation and the logits' type */
    bool gated;              /* SwiGLU: two products before the activation */
};
void arch_dims(const struct arch *a, const struct arch_split *s, int64_t samples,
               const struct dtypes *types, struct arch_dims *out);

/* Saved by the forward of a part for its backward: lives from F to B (or W), in a slot or in a save
 * set (arch_save_stays). */
enum arch_save {
    SAVE_X,              /* (nl, C) input of the part: the residual stream */
    SAVE_MEAN, SAVE_RSTD, /* (nl) of the norm */
    SAVE_H,              /* (nl, C) output of the norm */
    SAVE_QKV,            /* (n, (H+2K)D/tp) after rotary */
    SAVE_O,              /* (n, HD/tp) attention output */
    SAVE_LSE,            /* (n, H/tp) log-sum-exp of the scores */
    SAVE_PRE,            /* (n, F/tp), gated (n, 2F/tp): before the activation */
    SAVE_ACT,            /* (n, F/tp) after the activation */
    SAVE_DH,             /* (nl, C) gradient of the head's norm output, made by the forward */
    SAVE_COUNT
};
/* Kept from backward_input to backward_weight. With a whole B one shared set serves all parts. */
enum arch_keep {
    KEEP_DF,   /* (n, C) gradient of the sublayer's output, gathered; embed: (nl, C) */
    KEEP_DMID, /* attn: (n, (H+2K)D/tp) dqkv; mlp: (n, F/tp or 2F/tp) d of the pre-activation */
    KEEP_DNORM, /* all but embed: (2, C) gradients of the norm's scale and shift, this microbatch's
                   alone, in the accumulation type; llama: (1, C) */
    KEEP_COUNT
};
/* Scratch of a rank, shared by all its parts. */
enum arch_work {
    WORK_FULL,    /* (n, C) gathered rows; only with sp */
    WORK_PARTIAL, /* (n, C) partial sums before their reduction */
    WORK_D,       /* (nl, C) gradient stream */
    WORK_DH,      /* (nl, C) gradient of a norm's output */
    WORK_DMID,    /* (n, max(HD, F)/tp) gradient of attention output or of the activation */
    WORK_DELTA,   /* (n, H/tp) row sums in the attention's backward */
    WORK_LOGITS,  /* (chunk, V/tp) in the logits' type */
    WORK_DLOGITS, /* (chunk, V/tp) in the compute type; none where it takes the logits' place */
    WORK_ROW,     /* (4, n) in the accumulation type: max, sum, target logit, loss */
    WORK_COUNT
};
/* Bytes of one buffer, 0 when the part has none; not yet rounded to the arena's alignment. */
int64_t arch_save_bytes(const struct arch_dims *d, enum arch_part part, enum arch_save id);
int64_t arch_keep_bytes(const struct arch_dims *d, enum arch_part part, enum arch_keep id);
int64_t arch_work_bytes(const struct arch_dims *d, const struct arch_split *s, bool head,
                        enum arch_work id);

/* Where a save of part `part` of a stage lies: true, in the slot, from before the forward to the
 * backward; false, in a save set, which can be given back in between, since running the parts
 * forward again makes the same once more. What stays is the stage's input, and what the head's
 * forward leaves, for that one also adds the loss and must not run twice. */
bool arch_save_stays(const struct arch *a, const struct arch_stage *st, int part,
                     enum arch_save id);

/* Bytes of one slot of a stage (the saves that stay, plus the output buffer when the stage is not
 * the last), of one save set (all others), of one keep set (per_slot: I and W apart; else the
 * shared set), of the scratch. */
int64_t arch_slot_bytes(const struct arch *a, const struct arch_dims *d,
                        const struct arch_stage *st);
int64_t arch_save_set_bytes(const struct arch *a, const struct arch_dims *d,
                            const struct arch_stage *st);
int64_t arch_keep_set_bytes(const struct arch *a, const struct arch_dims *d,
                            const struct arch_stage *st, bool per_slot);
int64_t arch_work_set_bytes(const struct arch_dims *d, const struct arch_split *s, bool head);

#endif
