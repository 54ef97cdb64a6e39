/* SPDX-License-Identifier: Apache-2.0
 *
 * The calls of a step as a list: what was asked of a device, with which extents, how often. A null
 * device that also notes makes the list (calls_record.c), so it holds what the model asks for and
 * not what somebody thinks it asks for; another device then runs each of its calls alone on random
 * operands (calls_replay.c). Between the two a call is an operation and a few whole numbers.
 */
#ifndef PLAIT_DEVICE_CALLS_H
#define PLAIT_DEVICE_CALLS_H

#include "device/device.h"

enum calls_op {
    CALL_GEMM, CALL_BIAS_GRAD, CALL_NORM, CALL_NORM_GRAD, CALL_ATTN, CALL_ATTN_GRAD, CALL_ROPE,
    CALL_SWIGLU, CALL_SWIGLU_GRAD, CALL_RESIDUAL, CALL_RESIDUAL_NORM, CALL_DROPOUT, CALL_EMBED,
    CALL_EMBED_GRAD, CALL_POS_ADD, CALL_POS_GRAD, CALL_XENT, CALL_XENT_MAX, CALL_XENT_SUM,
    CALL_XENT_GRAD, CALL_ADAMW, CALL_SCALE, CALL_SUM, CALL_SUMSQ, CALL_CAST, CALL_ADD, CALL_COPY,
    CALL_ZERO, CALLS_OPS
};

/* What a call is for. Products of the head are those of the head's loss. NONE: nobody has said so;
 * no operation is that. */
enum calls_class {
    CLASS_NONE, CLASS_PRODUCT, CLASS_ATTENTION, CLASS_NORM, CLASS_ACTIVATION, CLASS_EMBED,
    CLASS_HEAD, CLASS_OPTIM, CLASS_MOVE, CALLS_CLASSES
};

enum { CALLS_SIZES = 11 };

/* One kind of call. size: extents and flags in the order of calls_size_name; the same operation
 * with the same sizes is the same call. flops, bytes: of one, as the null device counts. */
struct calls_call {
    enum calls_op op;
    enum calls_class class;
    int64_t size[CALLS_SIZES];
    double flops, bytes;
    int64_t count; /* in the step */
};

const char *calls_op_name(enum calls_op op);
/* What an operation is for where its extents say no more (a product of the head). */
enum calls_class calls_op_class(enum calls_op op);
const char *calls_class_name(enum calls_class c);
/* Name of a size, "m"; NULL behind the last one. */
const char *calls_size_name(enum calls_op op, int i);
/* "gemm m 64 n 32 k 16 +bias": extents that are not 0, flags by their names. Into buf. */
void calls_describe(const struct calls_call *c, char *buf, size_t n);

/* Flags of a product, bits of its "flags"; those of other operations in calls.c. */
enum { CALL_TRANS_A = 1, CALL_TRANS_B = 2, CALL_ACCUMULATE = 4, CALL_WIDE = 8, CALL_BIAS = 16,
       CALL_DB = 32, CALL_GELU = 64, CALL_DGELU = 128 };
/* Of norms and residuals: a mean is kept, a bias, rms, a gradient is added, x is there; dropout. Of
 * the cross entropy: a gradient is made, in the place of the logits. Of adamw: a master apart. */
enum { CALL_MEAN = 1, CALL_SHIFT = 2, CALL_RMS = 4, CALL_PLUS = 8, CALL_X = 16, CALL_DROP = 32,
       CALL_MADE = 64, CALL_IN_PLACE = 128, CALL_MASTER = 256, CALL_INVERSE = 512 };

/* ---- noting ---- */

/* A null device that notes, with the types of the device that is played for. A product with an
 * extent of `vocab` is the head's.
 * Errors: ERR_CONFIG, ERR_MEMORY. Closed by dev_close. */
enum err calls_record_open(const struct dtypes *types, int64_t vocab, struct dev **out);
/* Forget what was noted. */
void calls_record_reset(struct dev *d);
/* What was noted, in the order of first use; borrowed, valid until the next call of the device. A
 * call that could not be noted for want of memory has failed by itself. */
const struct calls_call *calls_recorded(const struct dev *d, int *n);

/* ---- running one of them ---- */

enum { CALLS_OPERANDS = 14 };

/* A call with operands of its own on a device. */
struct calls_work {
    struct dev *dev;              /* borrowed */
    struct calls_call call;       /* its flat extent cut to CALLS_FLAT_MAX */
    void *operand[CALLS_OPERANDS]; /* owned; device memory */
    int operands;
    int64_t bytes;                /* of all operands */
    union {
        struct gemm gemm;
        struct norm norm;
        struct norm_grad norm_grad;
        struct attn_grad attn;    /* forward: its f */
        struct rope rope;
        struct { struct residual residual; struct norm norm; } add;
        struct xent xent;
        struct adamw adamw;
        struct { void *to; const void *from, *third; } flat;
    } arg;
};

/* Flat vectors longer than this are run at this length; time is in proportion to it. */
enum { CALLS_FLAT_MAX = 1 << 26 };
/* Length that a flat call, one with a single extent, is run at over the one it was noted with; 1
 * for all others. */
double calls_part(const struct calls_call *c);

/* Operands of random numbers (normal; targets and tokens uniform) and what the call needs from
 * others that come before it (attention for its gradient, say). Errors: ERR_MEMORY and what the
 * device says; *w is then closed. */
enum err calls_open(struct dev *d, const struct calls_call *c, struct calls_work *w);
/* Queue the call once. */
enum err calls_run(struct calls_work *w);
void calls_close(struct calls_work *w);

#endif
