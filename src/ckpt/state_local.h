/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of state.h share: names of chunks, copies between layouts, the test of tiling, the
 * scalars as JSON, and the index as it lies in memory.
 */
#ifndef PLAIT_CKPT_STATE_LOCAL_H
#define PLAIT_CKPT_STATE_LOCAL_H

#include "base/text.h"
#include "ckpt/ckpt_json.h"
#include "ckpt/state.h"

#include <pthread.h>
#include <stdatomic.h>
/* XXH3 by the widest vectors that the processor has, where the library can choose among them at run
 * time (that of Debian on x86-64 does); elsewhere by what it was compiled for. The hashes are the
 * same. */
#define XXH_STATIC_LINKING_ONLY /* the state's size, for one on the stack */
#ifdef PLAIT_XXH_DISPATCH
#include <xxh_x86dispatch.h>
#else
#include <xxhash.h>
#endif

#define STATE_INDEX "index.json"
#define STATE_FORMAT "plait checkpoint 1"
#define STATE_WHOLE_MAX (((int64_t)1 << 53) - 1) /* of whole numbers */
enum {
    STATE_TEXT_MAX = 1 << 24,  /* bytes of the configuration, of the notes */
    STATE_INDEX_MAX = 1 << 28, /* bytes of an index */
    STATE_CHUNKS_MAX = 1 << 24,
    STATE_DEPTH = 8, /* of brackets */
    STATE_FILES_MAX = 1 << 20
};

/* ---- chunks (state_box.c) ---- */

/* What both have; false: nothing. */
bool state_meet(const struct state_box *a, const struct state_box *b, struct state_box *out);

/* Why this can be no chunk, or NULL. */
const char *state_chunk_fault(const struct state_chunk *c);
/* Its name in a shard: NAME when it is the whole tensor, else NAME[r0:r1,c0:c1], moments with their
 * kind in front. False: longer than safetensors takes here. */
bool state_chunk_name(const struct state_chunk *c, char out[128]);

/* ---- copies (state_copy.c) ---- */

/* Elements that stand step[0] (rows) and step[1] (columns) apart. A copy's source is of one of the
 * four types that are read, its goal of f32 or f64. */
struct state_span { uint8_t *p; enum safet_type type; int64_t step[2]; };
/* n[0] rows of n[1] columns, rounded where `to` has the narrower type. */
void state_copy(const struct state_span *to, const struct state_span *from, const int64_t n[2]);
/* A box of a tensor, dense and row-major. */
struct state_part { struct state_box box; enum safet_type type; const uint8_t *data; };
/* What `rows` of the part has of the wanted box, to where that has it. */
void state_take(const struct state_want *w, enum safet_type type, void *out,
                const struct state_part *from, const struct state_box *rows);

/* ---- tiling (state_index_read.c) ---- */

struct state_corner { int64_t at[2]; };
enum state_tiling { STATE_TILES, STATE_TOO_MUCH, STATE_TOO_LITTLE, STATE_MISFIT };
/* Do the boxes of n pieces cover the tensor, each element once? They are non-empty and lie in it,
 * and its elements can be counted. corner: [4 n], of which the first is for STATE_MISFIT where they
 * do not fit; *elements: how many they have, counted up to the first that is too much. */
struct state_piece;
enum state_tiling state_tile(const int64_t shape[2], const struct state_piece *piece, int n,
                             struct state_corner *corner, int64_t *elements);

/* ---- scalars (state_head.c) ---- */

/* "state": {...}, "model": {...} */
void state_head_add(const struct state_head *head, struct text *out);
/* The two values of them; `path` is for messages. Texts of head are owned by the caller, also when
 * it fails. *digest: of all of them but valid_loss, which may come later. Errors: ERR_CHECKPOINT
 * naming the key; ERR_MEMORY. */
enum err state_head_read(const char *path, struct ckpt_json_text state, struct ckpt_json_text model,
                         struct state_head *head, uint64_t *digest);
/* The n members of an object by their names, each at most once and no other; the first `must` are
 * there, and s of others may be NULL. Errors: ERR_CHECKPOINT. */
enum err state_members(const char *path, struct ckpt_json_text object, const char *const *name,
                       int n, int must, struct ckpt_json_text *out);
/* Values of JSON as the walk gives them, without memory. A whole number is of digits alone, from 0
 * to `most`; a hash is 16 hexadecimal digits in quotes. False: it is none. */
bool state_take_int(struct ckpt_json_text t, int64_t most, int64_t *out);
bool state_take_hash(struct ckpt_json_text t, uint64_t *out);

/* ---- the index in memory ---- */

struct state_piece {
    int group;           /* tensor * STATE_KINDS + kind */
    int file;
    struct state_box box;
    uint64_t hash;
    int64_t reach;       /* the last row, + 1, of this and those before it in its group */
    const uint8_t *data; /* borrowed; NULL until its file is mapped */
    atomic_bool proved;  /* the hash was right */
};
struct state_file {
    char name[STATE_FILE];
    int64_t bytes;
    uint64_t header;
    int first, n;          /* its pieces: of_file[first] .. */
    struct safet_file map; /* owned; open when data != NULL */
};
struct state_reading {
    struct state_file *file;   /* owned; [files] */
    int files;
    struct state_piece *piece; /* owned; [pieces], by group, row, column */
    int pieces;
    int *group;                /* owned; [tensors * STATE_KINDS + 1]: where each begins */
    int *of_file;              /* owned; [pieces]: by file */
    pthread_mutex_t lock;      /* of file[].map and piece[].data */
};
enum { STATE_SEAL = 29 }; /* bytes: ,\n"hash":"0123456789abcdef"}\n */
/* Ends the text of an index, whose last member but one is there, with the hash of it. */
void state_seal(struct text *t);
/* The members of an index: each once and no other, behind its hash. (state_index_read.c) Errors:
 * ERR_CHECKPOINT, also for a byte order mark, which no save writes. */
enum { STATE_IN_FORMAT, STATE_IN_STATE, STATE_IN_MODEL, STATE_IN_TENSORS, STATE_IN_SHARDS,
       STATE_IN_HASH, STATE_MEMBERS };
enum err state_index_split(const struct state_index *x, const struct fs_map *m,
                           struct ckpt_json_text out[STATE_MEMBERS]);
/* All of an index but the files: x->path is set, the rest zero. Its hash is looked at first. Who
 * calls closes x in any case. (state_index_read.c) Errors: ERR_CHECKPOINT, ERR_MEMORY. */
enum err state_index_parse(struct state_index *x, const struct fs_map *m);
/* Chunk of a piece. */
struct state_chunk state_chunk_of(const struct state_index *x, const struct state_piece *p);

#endif
