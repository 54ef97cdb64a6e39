/* SPDX-License-Identifier: Apache-2.0
 *
 * What the ranks of a run have saved of its parameters, put together in global coordinates.
 */
#ifndef PLAIT_TEST_KEPT_H
#define PLAIT_TEST_KEPT_H

#include "param/param_state.h"

#include <pthread.h>

struct kept {
    struct model_param *spec; /* owned */
    int n;
    double **value;          /* owned; [n * PARAM_KINDS] owned */
    uint8_t **times;         /* owned; so many ranks have saved it */
    pthread_mutex_t lock;
};

void kept_open(struct kept *k, const struct model *a);
void kept_free(struct kept *k);
/* All of a rank's snapshot; from any thread. */
void kept_add(struct kept *k, const struct param_snapshot *s);
/* Checks that each element of each kind was saved once; that two hold the same bits. */
void kept_check_tiled(const struct kept *k, const char *what);
void kept_check_same(const struct kept *a, const struct kept *b, const char *what);

int64_t kept_count(const struct kept *k, int i); /* elements of parameter i */
/* Where p's numbers of a kind stand in value and times. */
int kept_index(const struct kept *k, const struct param *p, enum param_kind kind);
/* Element e of p's local box among all of the parameter. */
int64_t kept_place(const struct param *p, int64_t e);
double kept_number(const void *from, enum dtype type, int64_t i);

#endif
