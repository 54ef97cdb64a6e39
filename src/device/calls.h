/* SPDX-License-Identifier: Apache-2.0
 *
 * The calls of a step as a list: what was asked of a device, with which extents, how often. A hook
 * around a null device makes the list, so it holds what the model asks for and not what somebody
 * thinks it asks for; another device then runs each of its calls alone on random operands. In the
 * list an operation's pointers say no more than whether an operand is there.
 */
#ifndef PLAIT_DEVICE_CALLS_H
#define PLAIT_DEVICE_CALLS_H

#include "device/device.h"

/* One kind of call. The same operation with the same fields (op_row.field) and operands is the same
 * call. */
struct calls_call {
    struct op op;        /* pointers: those below; seeds, steps, ranges of vectors are not kept */
    enum op_class class; /* a GEMM of the head is the head's */
    double flops, bytes; /* of one (op_flops, op_bytes) */
    int64_t count;       /* in the step */
};
/* Of an operand that is there; of one that may be in the place of the operand before it, and is
 * not. Not to be read. */
#define CALLS_THERE ((void *)1)
#define CALLS_APART ((void *)2)

/* ---- noting ---- */

struct calls_list {
    struct dev_hook hook;    /* first */
    struct calls_call *call; /* owned; [n], in the order of first use */
    int n, room;
    int64_t vocab;
};

/* Notes what d is asked for until calls_free, which comes before d is closed; what moves bytes
 * between host and device goes past. A GEMM with an extent of `vocab` is the head's. A call that
 * could not be noted for want of memory has failed by itself. */
void calls_record(struct calls_list *l, struct dev *d, int64_t vocab);
void calls_free(struct calls_list *l, struct dev *d);

/* ---- running one of them ---- */

/* A call with operands of its own on a device: dev_run(w->dev, &w->op) queues it once. */
struct calls_work {
    struct dev *dev; /* borrowed */
    struct op op;
    struct dev_ranges all;     /* of one over ranges of a vector: all of it */
    void *memory[OP_OPERANDS]; /* owned; device memory */
    int blocks;                /* of it */
    int64_t bytes;             /* of all operands */
};

/* Flat vectors longer than this are run at this length; time is in proportion to it. */
enum { CALLS_FLAT_MAX = 1 << 26 };
/* Length that a flat call, one with a single extent, is run at over the one it was noted with; 1
 * for all others. */
double calls_part(const struct op *op);

/* Operands of random numbers (normal; targets and tokens uniform), attn_grad with the outputs of
 * attn. Not of an operation that the list lets past: all operands are the device's. Errors:
 * ERR_MEMORY and what the device says; *w is then closed. */
enum err calls_open(struct dev *d, const struct op *op, struct calls_work *w);
void calls_close(struct calls_work *w);

#endif
