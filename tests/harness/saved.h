/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints for tests of their readers: a small model of known values, cut over ranks as layouts
 * cut it (boxes of parameters over tp, flat ranges of them over dp) or at random, and written.
 */
#ifndef PLAIT_TEST_SAVED_H
#define PLAIT_TEST_SAVED_H

#include "ckpt/state.h"
#include "test.h"

enum { SAVED_TENSORS = 64, SAVED_CHUNKS = 4096, SAVED_RANKS = 8,
       SAVED_BYTES = 1 << 22 };

struct saved {
    struct state_head head;
    struct model_param *param; /* owned; [params]: of the model */
    struct hf_place *place;   /* owned; [params] */
    int params;
    struct safet_entry tensor[SAVED_TENSORS];
    int tensors;
    double *value[STATE_KINDS][SAVED_TENSORS]; /* owned; in the tensor's orientation */
    struct state_chunk *chunk; /* owned; [chunks] */
    int chunks, ranks;
    struct { int param, rank; struct state_box at; } *from; /* owned; [chunks]: where of a parameter
                                  a chunk comes from; param -1: a box of the tensor itself */
};

/* A model of that kind and its values, representable in `type`, by the runner's random numbers. */
void saved_make(struct saved *s, enum model_kind kind, enum safet_type type);
/* Who writes what: like_layout: tp parts of parameters, flat ranges of them; else random boxes. */
void saved_cut(struct saved *s, int ranks, bool like_layout);
/* All shards, then the index, into a folder that is there. Ends at the first error, having given
 * all back. drop: a chunk that nobody writes, -1: none. */
enum err saved_write(const struct saved *s, const char *dir, int drop);
/* Reads `boxes` random boxes of each kind and compares; with all 0, every tensor as a whole. */
void saved_check(const struct saved *s, const char *dir, int boxes);
void saved_free(struct saved *s);

/* The index of a checkpoint as text (mem_free); and back as it is, or with the right hash. */
char *saved_index(const char *dir);
void saved_put_raw(const char *dir, const char *text);
void saved_put_index(const char *dir, const char *text);
/* The n bytes of an index, which may be damaged, with the right hash at the end (mem_free), and how
 * many they then are. */
char *saved_sealed(const char *s, int64_t n, int64_t *sealed);

#endif
