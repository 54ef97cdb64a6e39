/* SPDX-License-Identifier: Apache-2.0
 *
 * Where a number stops being finite. While a probe is on, a device looks at what each of its
 * operations writes, and keeps the first that leaves an element that is not finite: with operands
 * that are (it made it), or with one that is not (it met it: a message or a sum of ranks brought
 * it, for what this device made before was looked at).
 */
#ifndef PLAIT_DEVICE_PROBE_H
#define PLAIT_DEVICE_PROBE_H

#include "device/device.h"

/* A matrix of a call; rows 0: it has none. */
struct probe_operand {
    const void *p;
    int64_t rows, cols, ld; /* ld: elements from row to row; 0: tight */
    enum dtype type;
    bool written;
};

/* An element that is not finite. */
struct probe_element { int64_t row, col, rows, cols; double value; };

struct probe {
    struct dev_hook hook;        /* first */
    void *host;                  /* owned: what is looked at, of a device with memory of its own */
    enum err (*goes_on)(void);   /* set behind probe_on: asked before each operation, which fails
                                    with its error; NULL: nobody is asked */
    int64_t calls;               /* of this kind until now; the caller may begin again at 0 */
    bool found;
    /* Of the call that was found: */
    bool met;
    enum op_kind kind;
    int part;                    /* dev.part at the time */
    int64_t call;                /* `calls` at the time */
    struct probe_element element;
    struct probe_operand operand[OP_OPERANDS];
    int operands;
};

/* On and off; between the two the device captures nothing and does not close. Operations that are
 * blind (op_row) are not looked at. Errors: ERR_MEMORY. */
enum err probe_on(struct dev *d, struct probe *p);
void probe_off(struct dev *d, struct probe *p);

/* Is an operand finite? *at: its first element that is not. Waits for the stream. Errors:
 * ERR_MEMORY. */
enum err probe_look(struct dev *d, const struct probe_operand *o, struct probe_element *at,
                    bool *finite);

#endif
