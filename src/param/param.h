/* SPDX-License-Identifier: Apache-2.0
 *
 * The parameter registry of a stage on one rank: what model.h lists, with storage. Five flat stores
 * (weights ct, master at, gradients at, two optimizer moments at) share one element layout, so a
 * parameter is one offset. Reduction, clipping, optimizer and weights on disk walk this registry.
 *
 * A step begins with gradients of zero, and nobody writes these zeros: each gradient is marked
 * fresh, which says that it is zero whatever its memory holds. A GEMM that is the first to add
 * writes instead of adding, so that no pass over memory makes the zeros; whoever cannot write
 * all of a gradient has it settled first, and so has whoever reads one that nobody has added to.
 *
 * Data ranks may share a store's updates (ZeRO stage 1: Rajbhandari et al. 2020): it is cut in
 * pieces, and of each every rank owns an equal range, of which alone it holds master weights and
 * moments, in the order of the pieces.
 */
#ifndef PLAIT_PARAM_PARAM_H
#define PLAIT_PARAM_PARAM_H

#include "model/model.h"
#include "base/mem.h"
#include "device/device.h"

struct param_store;
struct param {
    const struct param_store *store; /* borrowed: the store it lies in */
    struct model_param spec;
    struct model_box box;
    int64_t offset, count; /* elements in the stores */
    bool counted;          /* this rank counts it in the global norm and writes it to disk */
};

struct param_store {
    struct dev *dev;          /* borrowed */
    struct param *param;      /* owned */
    int n;
    int64_t elements;         /* a multiple of num_shards * MODEL_PARAM_ALIGN */
    int shard_rank, num_shards; /* of the ranks that shard the optimizer; num_shards 1: none */
    int64_t *edge;            /* owned; [pieces + 1], from 0 to elements; NULL before the cut */
    int pieces;
    char *w, *master, *grad, *m, *v; /* device memory, borrowed from the run's arenas; master is w
                                        when ct == at */
    char *whole;              /* where every rank's master weights stand together: master, or where
                                 it is shared the memory of the gradients; NULL: nowhere now */
    bool *fresh;              /* owned; [n]: this gradient is zero, whatever its memory holds */
    int *part_first;          /* owned; [parts + 1]: parameters of part i */
    int64_t slot;             /* elements of a slot: see param_slot */
    int64_t ct, at;           /* bytes of an element */
};

/* Its memory, of the device, borrowed: elements of a store by their types; master weights and
 * moments of this rank's range alone where updates are shared. grad NULL: weights alone
 * (generation); master NULL: the weights are their own. */
struct param_memory {
    char *w, *master, *grad, *m, *v;
};
struct param_place { const struct model *model; const struct model_split *split;
                     const struct model_stage *stage; int tp_rank;
                     bool copy; /* a second pipeline replica: counts nothing */
                     int shard_rank, num_shards; /* param_store's; 0 or 1 shards: whole */ };

/* Does this rank's copy of a parameter count? Of copies on several ranks exactly one does. */
bool param_counts(const struct model_param *p, const struct param_place *at);

/* Lay it out over the memory; weights undefined until param_init. Errors: ERR_MEMORY. */
enum err param_store_open(struct param_store *s, struct dev *dev, const struct param_place *at,
                          const struct param_memory *memory);
void param_store_close(struct param_store *s);

/* Draw the weights: element i of a parameter is num_normal(seed, hash(name), global index) * std,
 * rounded to the accumulation type, then to ct: the same on every layout, and from any number of
 * host threads, of which there is at least the caller. Errors: ERR_MEMORY (also when a thread
 * cannot be made), the device's. Local. (param_init.c) */
enum err param_init(struct param_store *s, uint64_t seed, int threads);

/* The slot of snapshots (dev_snapshot) that element `own` of the moments, and of the master
 * weights where they are shared, belongs to. Whoever writes them behind the opening of a snapshot
 * joins it before and makes it ready again. Stores of a rank use the same ones. */
int param_slot(const struct param_store *s, int64_t own);

/* The parameter with this role in part `part` (index within the stage), or NULL. */
const struct param *param_find(const struct param_store *s, int part, enum param_id role);

/* Type of the master weights: without a store of their own they are the weights. */
enum dtype param_master_type(const struct param_store *s);
/* Device addresses; NULL for p NULL. A gradient's is to be had once it is begun or settled, a
 * master weight's where all of them stand together. */
void *param_w(const struct param *p);
void *param_grad(const struct param *p);
void *param_master(const struct param *p);

/* ---- shared updates ---- */

/* Cut the store, where it is shared, in pieces, one for each of n runs of its layers, of which
 * first[n] are the first ones. Errors: ERR_MEMORY. */
enum err param_share_cut(struct param_store *s, const int *first, int n);
/* Which elements this rank updates of a piece: begin .. end - 1 of weights and gradients, from
 * `own` on of master weights and moments. Not shared: all are the one piece. */
struct param_range { int64_t begin, end, own; };
int param_share_pieces(const struct param_store *s);
struct param_range param_share_of(const struct param_store *s, int piece);
/* The master weights, drawn or written as a whole, go to where each rank keeps its own: once,
 * behind param_init and what is written over it. Local. */
enum err param_shard_master(struct param_store *s);
/* The other way: this rank's own to their places in the memory of the gradients, which are zero
 * from here on; they are whole when the ranks have gathered that memory, and until the next
 * param_grads_reset. Local. */
enum err param_unshard_master(struct param_store *s);

/* All gradients of the store are zero from here on: each is marked fresh. */
void param_grads_reset(struct param_store *s);
/* The gradients of p and of what lies joined to it, `elements` in all, are about to be written or
 * added to as one. True: add. False: they were fresh, and all of them must be written. */
bool param_grad_begin(const struct param *p, int64_t elements);
/* The same for two that one call writes or adds to, so that both are in the same state: where they
 * are not, the fresh ones are settled. q NULL: p alone. */
enum err param_grads_begin(const struct param *p, const struct param *q,
                           const int64_t elements[2], bool *add);
/* The same gradients, where still fresh, become zeros in memory; and all of a store's. */
enum err param_grad_settle(const struct param *p);
enum err param_grads_settle(const struct param_store *s);

/* The local box of a parameter out of the device's master weights, rounded to `to`: local extents,
 * row-major. Padding rows are zero. */
enum err param_read(const struct param *p, enum dtype to, void *out);

#endif
