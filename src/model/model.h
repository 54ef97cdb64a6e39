/* SPDX-License-Identifier: Apache-2.0
 *
 * A model as numbers: parameters, FLOPs and bytes, exact, with no device. The doing half builds
 * its stores and buffers from these same tables, so what is predicted is what is allocated.
 *
 * Dimension letters, used in every shape comment of plait: B batch, T tokens, C channels (hidden),
 * H heads, K kv heads, D head dim, F ffn, V vocabulary, L layers; n = B*T rows. A local extent
 * takes a slash: (n/sp, C), (n, H*D/tp).
 *
 * A model is a list of layers, each of a type. All that is known of a type as numbers is its row
 * (struct layer_type, in a file layer_*.c or its model's); pipeline stages are runs of the list,
 * any runs.
 */
#ifndef PLAIT_MODEL_MODEL_H
#define PLAIT_MODEL_MODEL_H

#include "base/err.h"
#include "base/num.h"
#include "mesh/mesh.h"

enum model_kind {
    MODEL_GPT,   /* GPT-2: learned positions, LayerNorm, GELU (tanh form), biases */
    MODEL_LLAMA, /* Llama: RMSNorm, rotary positions (half-split), SwiGLU, grouped kv, no biases */
    MODEL_MLP,   /* a classifier of rows: linear layers with biases and ReLU between them */
    MODEL_KINDS
};

/* A kind of model: its list of layers, the models and the splits that can be, and what layers of
 * text models have. */
struct model;
struct model_split;
struct layer;
struct model_traits {
    const char *name; /* "gpt" */
    int64_t (*layers)(const struct model *a);
    struct layer (*layer)(const struct model *a, int64_t at);
    enum err (*check)(const struct model *a);
    enum err (*check_split)(const struct model *a, const struct model_split *s);
    const char *blocks; /* that stages are cut between, in messages: the key that counts them */
    bool text;        /* reads token ids and tells the next one; else rows of floats and a class */
    bool positions;   /* learned, added to the embedding; else rotary, in attention */
    bool bias;        /* of matrices, and a shift of norms */
    bool rms;         /* norms without a mean */
    bool gated;       /* SwiGLU: two matrices before the activation */
};
const struct model_traits *model_traits(enum model_kind kind);

/* Of mlp: layers are the linear ones, a width more than these; width[0] is that of the rows, the
 * last one, which is vocab, that of the classes, the largest hidden and ffn; seq is 1. Others have
 * none. */
enum { MODEL_WIDTHS = 32 };
struct model {
    enum model_kind kind;
    int64_t layers, hidden, heads, kv_heads, head_dim, ffn, vocab, seq;
    bool tied;         /* head weight is the token embedding */
    double dropout;    /* embedding, attention probabilities, sublayer outputs; 0..0.9 */
    double norm_eps, rope_theta, init_std;
    int64_t width[MODEL_WIDTHS];
};

/* The mlp of n widths; of more than MODEL_WIDTHS model_check says so. */
struct model model_of_widths(const int64_t *width, int64_t n);

/* How the tensor axis cuts the model. sp: the residual stream is sharded over rows (sequence
 * parallelism, Korthikanti et al. 2022), so norms, dropout and residuals work on n/tp rows. */
struct model_split { int tp; bool sp; };

/* Can this model exist, and can it be cut so? Errors: ERR_CONFIG naming key, value, rule and the
 * nearest legal values. Keys: model.*, parallel.tp, parallel.sp. */
enum err model_check(const struct model *a);
enum err model_check_split(const struct model *a, const struct model_split *s);

/* ---- Layers ------------------------------------------------------------------------------ */

/* Types of layers. */
enum layer_id {
    LAYER_EMBED, LAYER_ATTN, LAYER_MLP, LAYER_HEAD, LAYER_INPUT, LAYER_LINEAR, LAYER_RELU,
    LAYER_COUNT
};

/* What a layer is made of; a type reads what concerns it. */
struct layer_dims {
    int64_t in, out;          /* columns of its input and output; 0: it has none */
    int64_t rows;             /* of a sample: T */
    int64_t heads, kv_heads, head_dim, ffn, vocab;
    bool bias, rms, gated;    /* as in model_traits */
    bool norm;                /* of the head: a norm before its matrix */
    bool positions;           /* learned, in the embed; else rotary, in attn */
    bool tied;                /* the head's matrix is that of the embed */
    double dropout, norm_eps, rope_theta, init_std, out_std; /* out_std: of output projections */
};

struct layer_type;
struct layer {
    const struct layer_type *type;
    int64_t at, block;        /* place in the model; of those that repeat, from 0, -1: an end */
    const char *stem;         /* of its name, "fc" of fc3; NULL: the name is of its type */
    struct layer_dims dims;
};

/* The list, from 0. A name is what the layer's parameters begin with: "layers.3.attn", "head",
 * "fc3" of block 2. */
int64_t model_layers(const struct model *a);
struct layer model_layer(const struct model *a, int64_t at);
bool model_rotary(const struct model *a); /* is there attention with rotary positions? */
int64_t model_floats(const struct model *a); /* of a row that the model reads; 0: it reads an id */
enum { MODEL_NAME_MAX = 40 };
const char *model_layer_name(const struct layer *l, char buf[MODEL_NAME_MAX]);

/* A stage: any run of layers, [first, end). embed_beside: the embed stands in another stage of the
 * same rank (a V placement), so that a tied head needs no copy of it. */
struct model_stage { int64_t first, end; bool embed_beside; };
int model_stage_parts(const struct model_stage *st); /* how many layers */
bool model_stage_has(const struct model_stage *st, int64_t layer);
/* Does it begin with the model's first layer, end with its last, which makes the loss? */
bool model_stage_embed(const struct model_stage *st);
bool model_stage_head(const struct model *a, const struct model_stage *st);
/* Is the embed on another rank than this stage? */
bool model_stage_apart(const struct model_stage *st);

/* ---- Parameters -------------------------------------------------------------------------- */

/* What a parameter is to its layer; index of the layer's parameter table. */
enum param_id {
    PARAM_TOKENS, PARAM_POSITIONS,                                           /* embed */
    PARAM_NORM_W, PARAM_NORM_B,                                              /* attn, mlp, head */
    PARAM_Q_W, PARAM_K_W, PARAM_V_W, PARAM_Q_B, PARAM_K_B, PARAM_V_B,            /* attn */
    PARAM_O_W, PARAM_O_B,
    PARAM_GATE_W, PARAM_UP_W, PARAM_UP_B, PARAM_DOWN_W, PARAM_DOWN_B,           /* mlp */
    PARAM_HEAD_W, PARAM_HEAD_B,                                              /* head */
    PARAM_LINEAR_W, PARAM_LINEAR_B,                                          /* linear */
    PARAM_COUNT
};

enum model_slice {
    SLICE_NONE,  /* replicated over tp */
    SLICE_ROWS,  /* dim 0 in tp equal parts (column-parallel linear: weights are (out, in)) */
    SLICE_COLS,  /* dim 1 in tp equal parts (row-parallel linear) */
    SLICE_KV,    /* dim 0 by kv heads; when kv_heads < tp, tp / kv_heads neighbours hold the same */
    SLICE_VOCAB, /* dim 0 in tp parts of ceil(V / tp) rows; the last ones may be short or empty,
                    the missing rows exist locally as zeros and are never visible outside */
};

enum model_init { INIT_ZERO, INIT_ONE, INIT_NORMAL };

struct model_param {
    char name[64];      /* global and layout-free: "layers.3.attn.q.weight" */
    enum layer_id part; /* type of its layer */
    enum param_id role;
    int64_t layer, block; /* its layer's place in the model and block; of a tied copy, the head's */
    int64_t shape[2];   /* global; (out, in) for matrices, (n, 1) for vectors */
    enum model_slice slice;
    int64_t kv_heads;   /* of SLICE_KV */
    bool decay;         /* weight decay: matrices only */
    bool joined;        /* stored directly behind the one before it, so that one GEMM serves both
                           (q k v; gate up) */
    bool tied_copy;     /* the head's copy of the embedding on another stage: drawn, updated and
                           reduced as PARAM_TOKENS, counted once */
    bool rows_partial;  /* under sp its gradient is a sum over local rows only: add over tp */
    enum model_init init;
    double std;
};

enum { MODEL_PART_PARAMS = 12 };

/* Parameters of one layer in storage order; returns how many. `apart`: it stands on another rank
 * than the embed (matters when tied: a copy exists there). */
int model_layer_params(const struct layer *l, bool apart,
                       struct model_param out[MODEL_PART_PARAMS]);

/* Local box of a parameter on tensor rank `tp_rank`: rows [at[0], at[0]+real[0]) of the global dim
 * 0 and so on; `local` is the stored extent (>= real for a padded vocabulary). */
struct model_box { int64_t local[2], real[2], at[2]; };
void model_param_box(const struct model_split *s, const struct model_param *p, int tp_rank,
                     struct model_box *out);

/* Elements that each parameter starts at a multiple of (joined ones excepted). */
enum { MODEL_PARAM_ALIGN = 64 };

/* All parameters of the model in the order of its layers, a tied head's copy left out, into *out
 * (mem_free) and their number into *n. Errors: ERR_MEMORY. */
enum err model_param_list(const struct model *a, struct model_param **out, int *n);

/* The element at which a parameter begins in a store that has *end elements so far, and then ends
 * with it. */
int64_t model_param_at(const struct model_split *s, const struct model_param *p, int64_t *end);

/* Elements of a stage's parameter store on one rank, padding included. */
int64_t model_stage_elements(const struct model *a, const struct model_split *s,
                             const struct model_stage *st);
/* Where the parameters of each of its layers begin in that store, [layers], and at [layers] where
 * the last ends. One without begins where the next one does. */
void model_stage_begins(const struct model *a, const struct model_split *s,
                        const struct model_stage *st, int64_t *begin);
/* Elements that one of so many data ranks saves of a stage at most. A copy of a tied matrix is
 * saved where the embedding is. */
int64_t model_saved_elements(const struct model *a, const struct model_split *s,
                             const struct model_stage *st, int ranks);
/* n elements and what is added so that so many ranks have equal shares of them, each a multiple of
 * MODEL_PARAM_ALIGN. */
int64_t model_sharded_elements(int64_t n, int num_shards);
/* Parameters of the whole model, tied counted once, nothing padded. */
int64_t model_params(const struct model *a);

/* Cut the layers into `stages` contiguous stages so that the costliest is cheapest, embed and head
 * counted (head: 6 V C FLOPs a token); ties give the earlier stages more. Every stage has a block.
 * rank: [stages] ranks of the stages; with it the costliest rank is made cheapest, and among its
 * stages the costliest; NULL: each stage by itself. out[stages]. Errors: ERR_CONFIG when stages >
 * layers; ERR_MEMORY. */
enum err model_cut(const struct model *a, int stages, const uint16_t *rank,
                   struct model_stage *out);
/* Make such a cut finer, between the attn and the mlp of a block (partition_improve). With rank
 * NULL it stays as it was where the costliest stage would not be `worth` a share less than before.
 * *finer: it was made so. Errors: ERR_MEMORY. */
enum err model_cut_finer(const struct model *a, int stages, const uint16_t *rank, double worth,
                         struct model_stage *cut, bool *finer);

/* ---- FLOPs ------------------------------------------------------------------------------- */

/* Forward FLOPs of a layer for n rows of sequences of t tokens; causal attention counts half. */
double model_layer_flops(const struct layer *l, int64_t n, int64_t t);
/* The same of a stage for one sample; a head makes its gradients in the forward, and all of it
 * counts here. once_more: of the layers that a recompute runs. */
double model_flops(const struct model *a, const struct model_stage *st, bool once_more);

/* Doubles that the optimizer has in device memory: a step's sums, rates, factor and tokens. */
enum { MODEL_STEP_DOUBLES = 13 };

/* ---- Bytes ------------------------------------------------------------------------------- */

/* Local extents of one microbatch in one layer on one rank. */
struct model_dims {
    int64_t b, t, n, nl;      /* samples, tokens, rows b*t, rows of the stream (n or n/tp) */
    int64_t in, out, c;       /* columns of input and output, all of them; of the wider one */
    int64_t h, k, d, f, v;    /* local: heads, kv heads, head dim, ffn, vocab */
    int64_t chunk;           /* rows of logits at once in the head */
    int64_t ct, at, logits;  /* bytes of the compute, the accumulation and the logits' type */
    int tp;
    bool sp;
    int64_t rows;            /* fewest of a piece of a GEMM that is cut so that tensor ranks
                                communicate during the next; 0: none is (parallel/tp.h) */
    bool chunked;            /* with rows and sp: they do so in chunks */
    bool gated;              /* SwiGLU: two GEMMs before the activation */
    bool norm, rms;          /* norms without a mean */
};
void model_dims(const struct layer *l, const struct model_split *s, int64_t samples,
                const struct dtypes *types, struct model_dims *out);

/* Saved by the forward of a part for its backward: lives from F to B (or W), in a slot or in a save
 * set (model_save_stays). */
enum model_save {
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
enum model_keep {
    KEEP_D_SUBLAYER, /* (n, C) gradient of the sublayer's output, gathered; embed: (nl, C) */
    KEEP_DMID, /* attn: (n, (H+2K)D/tp) dqkv; mlp: (n, F/tp or 2F/tp) d of the pre-activation */
    KEEP_DNORM, /* all but embed: (2, C) gradients of the norm's scale and shift, this microbatch's
                   alone, in the accumulation type; llama: (1, C) */
    KEEP_COUNT
};
/* Scratch of a rank, shared by all its parts. */
enum model_work {
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

/* Pieces that the sum over tp ranks of a GEMM of n rows is cut into, with sp each owner's rows; 0:
 * it is not cut. rows: of a piece, at least; 0: none is. */
int64_t model_sum_pieces(int64_t n, int tp, bool sp, int64_t rows);

/* What tensor ranks start in a layer for a microbatch, and the longest of it. Backward whole is
 * INPUT | WEIGHT; a recompute is a forward, of all layers but the loss's. */
enum model_said_in { SAID_FORWARD = 1, SAID_INPUT = 2, SAID_WEIGHT = 4 };
struct model_said {
    struct traffic kind[TRAFFIC_KINDS];
    int64_t longest;
    /* Told each as it is added, and the FLOPs of the rank's GEMMs beside these, one behind another,
     * the first `shared` also beside what was told before; NULL: nobody asks. */
    void (*each)(void *arg, enum traffic_kind k, struct traffic t, double beside, double shared);
    void *arg;
};

/* A type of layers as numbers; NULL: it has none. Bytes are not yet rounded to the arena's
 * alignment. Its math has the same name (model/). */
struct model_params { /* a layer's list, being written */
    const struct layer *layer;
    struct model_param *out;
    int n;
    bool apart; /* on another rank than the embed */
};
struct layer_type {
    const char *name;
    enum layer_id part;
    void (*params)(const struct layer *l, struct model_params *to);
    int64_t (*saved)(const struct model_dims *d, enum model_save id);
    int64_t (*kept)(const struct model_dims *d, enum model_keep id);
    int64_t (*work)(const struct model_dims *d, enum model_work id);
    double (*weights)(const struct layer *l); /* that GEMMs read for each row */
    double (*scores)(const struct layer *l);  /* columns of attention's two GEMMs over keys */
    void (*said)(const struct model_dims *d, unsigned passes, struct model_said *to); /* of tensor
                                                ranks, of which there are several; adds to it */
    unsigned stays;           /* bits of saves that a recompute does not make again, SAVE_X aside */
    bool sublayer;            /* x + f(norm(x)): its norm can be made with the residual before it */
    bool loss;                /* its forward adds to the loss and makes its gradients: runs once */
    bool leaf;                /* nobody wants the gradient of its output */
};
extern const struct layer_type layer_type_embed, layer_type_attn, layer_type_mlp, layer_type_head,
    layer_type_input, layer_type_linear, layer_type_relu;
extern const struct model_traits model_gpt, model_llama, model_mlp;
/* key is value; it has to be from 1 to max. */
enum err model_check_range(const char *key, int64_t value, int64_t max);
/* Extents above this are typing errors; below it no product of four extents and a size overflows
 * without num_mul seeing it. */
enum { MODEL_MAX_EXTENT = 1 << 24, MODEL_MAX_LAYERS = 10000 };

int64_t model_saved(const struct layer *l, const struct model_dims *d, enum model_save id);
int64_t model_kept(const struct layer *l, const struct model_dims *d, enum model_keep id);
/* What tensor ranks start in training, added to. */
void model_said(const struct layer *l, const struct model_dims *d, unsigned passes,
                struct model_said *to);

/* ---- for the types ---- */
struct model_param *model_put(struct model_params *to, enum param_id role, const char *what,
                              int64_t rows, int64_t cols);
/* A matrix (out, in): decays, drawn from a normal. */
struct model_param *model_put_matrix(struct model_params *to, enum param_id role,
                                     const char *what, const int64_t shape[2],
                                     enum model_slice slice);
void model_put_norm(struct model_params *to);
/* What every sublayer has: of a norm; of its stream the scratch. */
int64_t model_norm_saved(const struct model_dims *d, enum model_save id);
int64_t model_norm_kept(const struct model_dims *d, enum model_keep id);
int64_t model_stream_work(const struct model_dims *d, enum model_work id);
/* What tensor ranks start, beside GEMMs of so many FLOPs: collectives, so many bytes together; the
 * stream made whole, which it is without sp; the sum of what they have of it; all of a sublayer
 * whose GEMMs have so many columns (the first one's outputs, the last one's inputs). */
void model_say(struct model_said *to, enum traffic_kind k, struct traffic t, double beside,
               double shared);
void model_say_gather(const struct model_dims *d, double beside, struct model_said *to);
void model_say_sum(const struct model_dims *d, double beside, double shared, struct model_said *to);
struct model_columns { int64_t in, out; };
void model_sublayer_said(const struct model_dims *d, struct model_columns cols, unsigned passes,
                         struct model_said *to);

/* ---- a stage's buffers ---- */

/* What of a layer of a stage lies in the slot, from before the forward to the backward; else in a
 * save set, which can be given back in between, since running the layers forward again makes the
 * same once more. What stays is the stage's input, and what the forward of the loss leaves. */
bool model_save_stays(const struct layer *l, bool first, enum model_save id);

/* Bytes of what the model reads at one position, as the device holds it: an id, or a row. */
int64_t model_input_bytes(const struct model *a, const struct dtypes *types);

/* What a rank is cut by, for the bytes of its stages. */
struct model_rank {
    const struct model *model;
    struct model_split split;
    int64_t samples;          /* of a full microbatch */
    const struct dtypes *types;
};
/* Bytes of the boundary before a layer: (nl, C) of what it reads, 0 before the first and behind the
 * last. */
int64_t model_boundary_bytes(const struct model_rank *r, int64_t layer);
/* The longest collective of tensor ranks in all the model, where none is cut; elements of a tied
 * matrix on this rank. */
int64_t model_said_bytes(const struct model_rank *r);
int64_t model_tied_elements(const struct model_rank *r);

#endif
