/* SPDX-License-Identifier: Apache-2.0
 *
 * One training step of a small model on any layout, and what came of it in global coordinates:
 * loss, the gradient of every parameter, the weights after the step. The law of the project is
 * tested by comparing two of these.
 */
#ifndef PLAIT_TEST_LAYOUT_H
#define PLAIT_TEST_LAYOUT_H

#include "model/model.h"
#include "comm/comm.h"
#include "device/device.h"

struct exec;
struct sched;
struct step_traffic;

struct layout {
    struct model model;
    int tp, pp, dp, v, group; /* group: sched_shape.group */
    int zero;                 /* data ranks shard the optimizer */
    bool sp, canonical;       /* canonical: the list goes through sched_canonical */
    int64_t tp_rows;          /* exec_args.tp_rows */
    bool tp_chunked;          /* exec_args.tp_chunked */
    bool recompute;           /* it goes through sched_recompute, then */
    int every;                /* and is cut in segments of so many blocks (segments_args), each of
                                 which is recomputed by itself; 0: not */
    int64_t sum_bytes;        /* segments_args.bytes */
    bool halves;              /* each stage but the last leaves its last mlp to the next */
    const int64_t *first;     /* [stages - 1] layers at which the stages behind the first begin;
                                 NULL: by cost */
    const char *schedule;     /* a name, or NULL with `text` */
    const char *text;         /* a compute-only list, for schedules without a generator */
    int64_t batch, microbatch; /* samples: of the step, of a microbatch */
    enum dev_kind dev;
    bool shares_gpu;          /* the ranks' device is the first one; else each has its own */
    enum dtype ct;
    bool deterministic;       /* dev_args.deterministic */
    int threads;
    double timeout_s;         /* of a hang; 0: a minute */
    int steps;                /* optimizer steps; gradients are those of the last */
    int done;                 /* of these, steps that another run has made: the first is done + 1 */
    double clip, eps;         /* eps of Adam; 0: 1e-8. A large one keeps weights from showing the
                                 rounding of gradients that are zero */
    double beta1, beta2, decay; /* of AdamW; 0: 0.9, 0.95, 0.1 */
    double (*rate)(int64_t step); /* learning rate; NULL: 1e-3 */
    bool whole_tokens;        /* no target is left out; else some are, unevenly */
    void (*weights)(const struct model_param *p, double *values); /* replaces the drawn weights */
    enum err (*filled)(struct exec *x, int rank); /* the weights are there, and not yet kept: a test
                                                     may write others, and moments. NULL: none */
    void (*planned)(struct step_traffic *t, int rank); /* a rank's traffic is planned: a test may
                                                          look, or write other. NULL: none */
    void (*opened)(struct dev *dev, int rank); /* a rank's device is open: a test may replace its
                                                  functions. NULL: none */
    enum err (*program)(struct sched *s); /* the program is made: a test may write another, which
                                             is proved and run. NULL: none */
    bool trace;               /* exec_args.trace */
    bool rehearsed;           /* exec_rehearse comes before the first step */
    enum err (*ran)(struct exec *x, int rank); /* behind each step. NULL: none */
    void (*stepping)(struct dev *dev, int rank, int64_t step); /* before each step; NULL: none */
    int recorded;             /* this step is recorded, where the device can; it and those behind it
                                 are replays. 0: none */
    unsigned stop, saved;     /* optim_step's, bits of the world's ranks, in every step */
    const int32_t *tokens, *targets; /* (batch, seq); NULL: made from a formula, as rows of floats
                                        always are */
};

struct layout_param {
    struct model_param spec;
    double *grad, *weight;  /* owned; global extents */
    int64_t count;
};

enum { LAYOUT_COPIES = 16 };
struct layout_result {
    double loss, norm;      /* of the last step */
    int64_t tokens;
    struct layout_param *param; /* owned */
    int params;
    int replicas_differ;    /* replicated parameters whose copies are not the same bits */
    int64_t planned, taken; /* bytes of all ranks */
    int64_t copy[LAYOUT_COPIES]; /* of each rank: bytes planned for a copy of what it saves; there
                                    before the first step */
    int misheard;           /* ranks and steps that did not learn how many say stop and saved */
    int64_t replayed;       /* steps that were replays, on the first rank */
};

/* What the formula gives: number i of the row of a sample, its class. */
float layout_row(int64_t sample, int64_t i);
int32_t layout_class(const struct layout *l, int64_t sample);

/* Run on the thread transport. Errors: whatever the run gives. */
enum err layout_run(const struct layout *l, struct layout_result *out);
void layout_result_free(struct layout_result *r);

/* Largest difference of gradients (or weights), relative to each parameter's largest value; the
 * name of the worst parameter into `worst`. The gradient of a key bias, which is rounding alone, is
 * held against its weight's. */
double layout_difference(const struct layout_result *a, const struct layout_result *b, bool weights,
                         const char **worst);
/* Are loss, gradients and weights the same bits? */
bool layout_same_bits(const struct layout_result *a, const struct layout_result *b);

#endif
