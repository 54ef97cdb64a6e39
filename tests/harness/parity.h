/* SPDX-License-Identifier: Apache-2.0
 *
 * Parity: the same random problem on ref and on a candidate device, results compared with a bound.
 *
 * A problem has three sides. Side 0 is ref, in double. Sides 1 and 2 are the candidate: side 2
 * repeats the call, or makes it in two parts by rows where the kernel works by rows, and must give
 * the bits of side 1. A buffer exists once a side, with the same contents; its values are rounded
 * to the candidate's type first, so ref sees what the candidate sees.
 *
 * The bound of an element is rounding |want| + abs. rounding is that of the result's type: one
 * rounding to nearest in bf16 (2^-8), two in f32 (2^-23), four in f64. abs is given by the test: an
 * error of arithmetic (`calc` or `inner`) times the natural scale of the result, which is the size
 * of the terms that were added.
 */
#ifndef PLAIT_TEST_PARITY_H
#define PLAIT_TEST_PARITY_H

#include "base/num.h"
#include "device/device.h"
#include "test.h"

enum { PARITY_SIDES = 3, PARITY_BUFS = 24 };
enum parity_type { PARITY_CT, PARITY_AT, PARITY_LOGITS, PARITY_TOKEN /* int32 */, PARITY_DOUBLE };

struct parity_buf {
    enum parity_type type;
    int64_t n;
    void *on[PARITY_SIDES]; /* owned, memory of that side's device */
};

struct parity {
    const char *label;              /* "cpu bf16" */
    bool fast;                      /* bits of what is done again are not compared */
    struct dev *dev[PARITY_SIDES];  /* [1] and [2] are one device */
    double calc;                    /* error of arithmetic in at: 1e-13 in f64, 4e-6 in f32 */
    double inner;                   /* where a kernel may round inner values to ct: 2^-8 in bf16 */
    struct parity_buf buf[PARITY_BUFS];
    int bufs;
    char what[200];                 /* the problem, for messages */
    double worst;                   /* largest error met, as a part of its bound */
};

/* Runs `kernel` on every candidate that is built in, and prints how near it came to the bounds. */
void parity_each(const char *name, void (*kernel)(struct parity *p));
/* The same on GPUs that take attention's gradient this way, which bears on them alone. On how many
 * candidates. */
int parity_each_gpu(enum dev_attn_grad way, const char *name, void (*kernel)(struct parity *p));
/* A case that is skipped, with their names, when some candidates are not built in. */
void parity_devices(void);

/* Begins a problem: releases the buffers of the one before. */
void parity_problem(struct parity *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* A buffer of n elements (n may be 0): zero; or uniform in lo..hi. */
struct parity_buf *parity_zero(struct parity *p, enum parity_type type, int64_t n);
struct parity_buf *parity_fill(struct parity *p, enum parity_type type, int64_t n, double lo,
                               double hi);
/* Contents of a buffer: the same on all sides, rounded to its type; and back, from one side. */
void parity_set(struct parity *p, struct parity_buf *b, const double *values);
/* All of b is NaN: it is to be written, and what it held must leave no trace. */
void parity_unread(struct parity *p, struct parity_buf *b);
void parity_get(struct parity *p, const struct parity_buf *b, int side, double *values);
void parity_set_tokens(struct parity *p, struct parity_buf *b, const int32_t *tokens);
/* The number of a step, as struct drop wants it: (1), on each side. */
struct parity_buf *parity_step(struct parity *p, uint32_t step);
/* Copies what ref has found to all sides: an output becomes an input. */
void parity_agree(struct parity *p, struct parity_buf *b);

/* Address of element `offset`; NULL for a NULL buffer. */
void *parity_at(const struct parity *p, const struct parity_buf *b, int side, int64_t offset);
/* Largest magnitude on ref. */
double parity_largest(struct parity *p, const struct parity_buf *b);

/* Compares sides 0 and 1 with the bound above, and 1 and 2 bit by bit. */
void parity_check(struct parity *p, const struct parity_buf *b, double abs);
/* The same with an `abs` for each element. */
void parity_check_each(struct parity *p, const struct parity_buf *b, const double *abs);
/* Not even a rounding: the result must be ref's value in the type of the buffer. */
void parity_check_same(struct parity *p, const struct parity_buf *b);

/* Fresh host doubles (mem_free); stops the program when there are none. */
double *parity_doubles(int64_t n);

#endif
