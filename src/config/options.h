/* SPDX-License-Identifier: Apache-2.0
 *
 * Everything a user can set, as one struct and one table. A key is a row of options_table and a
 * field here; parser, help, type and range checks and docs/configuration.md follow from the row.
 * Conditions between keys are check_run's (check.h).
 *
 * Zero stands for "derive it" where a row's help says so; the functions below derive.
 */
#ifndef PLAIT_CONFIG_OPTIONS_H
#define PLAIT_CONFIG_OPTIONS_H

#include "model/model.h"
#include "base/conf.h"
#include "data/data.h"
#include "device/device.h"
#include "mesh/mesh.h"
#include "mesh/caps.h"
#include "optim/optim.h"

enum { OPTIONS_PATH_MAX = 1024, OPTIONS_KEYS = 96 /* rows, at most */ };

enum { ENV_PATH = 1024, ENV_SAID = 160 };

/* What the environment says of runs (docs/environment.md): read in env.c and nowhere else, and
 * handed on as a part of the options. All zero: nothing is set. */
struct env {
    bool no_copies;               /* PLAIT_COPIES: GPUs of one process go by NCCL, not by copies */
    enum dev_attn_grad attn_grad; /* PLAIT_ATTN_GRAD */
    char cache[ENV_PATH];         /* the folder in which devices keep what they chose; "": none */
    char copies_wrong[ENV_SAID], attn_grad_wrong[ENV_SAID], cache_wrong[ENV_SAID];
                                  /* the message for a word that is none; "": it is one */
};

/* Values of the word fields, in the order of their rows' words. model.kind is an model_kind,
 * train.transport a comm_kind. */
enum options_dtype { OPTIONS_F32, OPTIONS_BF16 };
enum options_device { OPTIONS_CPU, OPTIONS_REF, OPTIONS_NULL, OPTIONS_CUDA };
enum options_recompute { OPTIONS_RECOMPUTE_NONE, OPTIONS_RECOMPUTE_FULL, OPTIONS_RECOMPUTE_SQRT,
                         OPTIONS_RECOMPUTE_EVERY };
enum options_graph { OPTIONS_GRAPH_AUTO, OPTIONS_GRAPH_OFF, OPTIONS_GRAPH_ON };
/* Tensor ranks overlap communication with GEMMs; auto: where that was seen to be faster. */
enum options_tp_overlap { OPTIONS_TP_AUTO, OPTIONS_TP_OFF, OPTIONS_TP_ON };
enum options_decay { OPTIONS_CONSTANT, OPTIONS_LINEAR, OPTIONS_COSINE, OPTIONS_WSD };

/* The step that is recorded, the first behind one that has made every choice. */
enum { OPTIONS_RECORDED = 2 };

struct options {
    struct {
        int kind; /* enum model_kind */
        int64_t layers, hidden, heads, kv_heads, head_dim, ffn, vocab, seq;
        struct conf_ints widths; /* of mlp */
        bool tied;
        double dropout, norm_eps, rope_theta, init_std;
        char init[OPTIONS_PATH_MAX]; /* a folder with the weights to begin with; "": drawn */
    } model;
    struct {
        int64_t tp, pp, dp;
        int zero;                        /* 0, or 1: data ranks shard the optimizer */
        bool sp;
        int tp_overlap;                  /* enum options_tp_overlap */
        int64_t tp_rows;                 /* options_tp_rows */
        char schedule[OPTIONS_PATH_MAX]; /* a name of sched.h, or file:PATH */
        int64_t chunks;                  /* stages a pipeline rank; 0: see options_chunks */
        struct conf_names split;         /* layers at which stages begin (split.c); none: by cost */
        int64_t group;                   /* sched_shape.group; 0: the schedule's own */
        char costs[OPTIONS_PATH_MAX];    /* a file of times of the stages (costs.h); "": none */
        double memory_limit;             /* sched_cost.limit; 0: the schedule's own */
        int64_t microbatch;              /* samples */
    } parallel;
    struct {
        int64_t steps, batch; /* batch: samples a step over all ranks */
        int64_t seed;
        int dtype, device;    /* enum options_dtype, options_device */
        int transport;        /* enum comm_kind */
        bool share_gpus;      /* all ranks have the first GPU */
        int64_t threads;      /* a rank; 0: cores / ranks, at least 1 */
        int64_t valid_every, valid_batches;
        int64_t log_every;    /* steps between lines of progress that stay; 0: as time passes */
        double hang_timeout;  /* seconds */
        bool profile;         /* print where the time went */
        bool trace;           /* record what ran when */
        int recompute;        /* enum options_recompute */
        int graph;            /* enum options_graph: steps are replays of a recorded one */
        int64_t save_every, save_keep; /* steps between checkpoints, 0: at the end; how many stay,
                                          0: none is saved */
        bool save_best;              /* the best by validation stays, too */
        bool save_async;             /* written beside the steps */
        double time_limit;           /* seconds */
        bool canonical_accumulation; /* weight gradients in the order of the microbatches */
        bool deterministic;          /* dev_args.deterministic */
    } train;
    struct {
        double lr, lr_min, beta1, beta2, eps, decay, clip;
        int64_t warmup, decay_steps; /* steps */
        int schedule;                /* enum options_decay */
        bool decay_keep;             /* of a run that is resumed: its end as first planned */
    } optim;
    struct {
        char train[OPTIONS_PATH_MAX], valid[OPTIONS_PATH_MAX];
        char tokenizer[32];  /* of the token files; "": what data.train says */
    } data;
    struct {
        char dir[OPTIONS_PATH_MAX];
        bool save; /* checkpoints, and weights at the end */
        char resume[OPTIONS_PATH_MAX]; /* "": a new run; auto, a step, or a checkpoint's folder */
        bool resume_insist; /* also where data, tokenizer or seed are others */
        bool takeover; /* of a folder that another host's run took */
        double io_timeout;
    } run;
    bool given[OPTIONS_KEYS];      /* no key: which rows a file or word has set (conf_given) */
    struct caps caps;              /* no keys: how fast links and memory are, as far as the caller
                                      knows (links_read) */
    struct env env;                /* no keys: what the environment says (options_fresh) */
    char source[OPTIONS_PATH_MAX]; /* no key: the file that was read last, ""; what a run reads, it
                                      does not write over */
};

extern const struct conf_table options_table;
/* Of it, keys by their names elsewhere, and those that plait had once. (options_alias.c) */
extern const struct conf_alias options_alias[];     /* names NULL ends it */
extern const struct conf_retired options_retired[]; /* key NULL ends it */

/* The defaults, in the environment there is. Errors: ERR_INTERNAL. Local. */
enum err options_fresh(struct options *out);

/* The model, zeros derived: kv_heads, head_dim, ffn. vocab is as configured, and so may be 0:
 * check_vocab (check.h) finds it. Local. */
void options_arch(const struct options *o, struct model *out);
/* What it reads. Local. */
void options_want(const struct model *a, struct data_want *out);
/* How the tensor axis cuts it. Local. */
void options_split(const struct options *o, struct model_split *out);
/* Sizes of the mesh axes, to be given to mesh_make. Local. */
void options_axes(const struct options *o, int size[AXIS_COUNT]);
/* Ranks that the layout needs: tp x pp x dp. Local. */
int64_t options_ranks(const struct options *o);
/* Data ranks that shard the optimizer; 1: each makes all of them. */
int64_t options_shards(const struct options *o);
/* Fewest rows of a piece of a GEMM that tensor ranks split to overlap communication; 0: they do
 * not. auto: where they communicate by copies between GPUs, which leave the SMs to the GEMMs.
 * no_p2p: GPUs of tensor ranks were asked and do not reach each other. Local. */
int64_t options_tp_rows(const struct options *o, bool no_p2p);
/* The GPU of a machine's rank `local` (comm_local_rank). Local. */
int options_gpu(const struct options *o, int local);
/* Samples a step on one data-parallel rank: batch / dp (check_run proves that it is whole). */
int64_t options_samples(const struct options *o);
/* Stages of a pipeline rank: as set, or as many as the schedule needs. */
int64_t options_chunks(const struct options *o);
/* Microbatches a step on one data-parallel rank; the last may be short. Local. */
int64_t options_microbatches(const struct options *o);
/* Why no step is recorded; NULL: the second one is, and it and the others are replays of that. Each
 * reason names its key. Local. */
const char *options_unrecorded(const struct options *o);
/* Why a key does nothing whatever its value, as long as other keys are as they are; NULL: it does
 * something, or check_run refuses what does not. Local. */
const char *options_idle(const struct options *o, const char *key);
/* Does the run save checkpoints? Local. */
bool options_checkpoints(const struct options *o);
/* The configured device, and what it works in: f64 on ref, else train.dtype and f32. Local. */
enum dev_kind options_device(const struct options *o);
struct dtypes options_types(const struct options *o);
/* Compute threads of one rank of a run of `ranks`. Local. */
int options_threads(const struct options *o, int ranks);

/* The message of a lower layer, with the key that brought it there in place of the layer's name.
 * What is not the user's to mend in that key passes unchanged. Returns err. Local. */
enum err options_under_key(enum err err, const char *key);

/* A refusal in which {key} stands for a key and its value, as "{train.batch} is odd". Returns
 * ERR_CONFIG. Errors: ERR_MEMORY. Local. */
enum err options_refuse(const struct options *o, const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
#define REFUSE(o, ...) return options_refuse((o), __FILE__, __LINE__, __VA_ARGS__)

/* Behind each change by a user: the folder's name without slashes at its end. Local. */
void options_tidy(struct options *o);
/* The configuration of a run: run/config.yaml over the defaults. Errors: ERR_CONFIG. Local. */
enum err options_read_run(const char *run, struct options *o);

void env_read(struct env *out);
/* The words that runs on GPUs look at, those of copies where there are several ranks. Errors:
 * ERR_CONFIG for one that is none. */
enum err env_check(const struct env *e, bool several);

/* The course of a new run's learning rate: the lengths of warm-up and decay that the configuration
 * comes to. One that goes on keeps those of its checkpoint. (rates.c) */
struct lr rates_planned(const struct options *o);
/* A course that the run is too short for, with the lengths in effect; a line each. */
void rates_warn(const struct options *o, const struct lr *in_effect, struct text *out);

/* How fast links and memory are, as the user says it. latency, bandwidth: "N", of all axes;
 * "AXIS=N,AXIS=N" of these; or "N,AXIS=N" of these and of all others; NULL or an axis without one:
 * 0. area: what messages begin with. Errors: ERR_CONFIG. */
enum err links_read(const char *area, const char *latency, const char *bandwidth, double memory,
                    struct caps *out);

#endif
