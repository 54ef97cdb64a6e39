/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints on disk: the state of a run as one logical, global state, whatever the layout.
 *
 *     RUN/checkpoints/step-10/rank-00000.safetensors ... index.json
 *
 * Of each tensor of the model, in Hugging Face's names and orientation, there are three: weights
 * and the two moments. Each rank writes boxes of them (chunks) into a file of its own (shard); the
 * chunks of all ranks tile every tensor of every kind, no element twice and none missing. A
 * checkpoint is whole iff its index is there, which is written last. Nothing here knows of devices
 * or ranks; what is read may be hostile.
 */
#ifndef PLAIT_CKPT_STATE_H
#define PLAIT_CKPT_STATE_H

#include "ckpt/ckpt.h"

#include <stdatomic.h>

/* ---- boxes ---- */

enum state_kind { STATE_WEIGHT, STATE_M, STATE_V, STATE_KINDS };
extern const char *const state_kind_name[STATE_KINDS]; /* "weight", "exp_avg", "exp_avg_sq" */

/* Elements at[0] .. at[0] + n[0] - 1 of extent 0, and so on. With one extent at[1] is 0, n[1] 1. */
struct state_box { int64_t at[2], n[2]; };

/* Elements from .. to - 1 of a row-major array of `cols` columns as boxes of it, in their order: a
 * piece of a row, whole rows, a piece of a row. Each is dense in the array and they stand one
 * behind another. Returns how many, 0 (from == to) to 3. */
int state_boxes(int64_t cols, int64_t from, int64_t to, struct state_box out[3]);
/* A box of a parameter (global, as in model.h) in the tensor of its place. When place->transposed,
 * the box's rows are its columns there. */
struct state_box state_place_box(const struct hf_place *place, const struct state_box *b);

/* A box of one tensor of one kind: in a shard dense and row-major, in the tensor's orientation. */
struct state_chunk {
    char tensor[128];
    enum state_kind kind;
    int nd;           /* extents of the tensor, 1 or 2 */
    int64_t shape[2]; /* of the whole tensor; shape[1] is 1 when nd is 1 */
    struct state_box box;
    uint64_t hash;    /* xxh3-64 of its bytes; set when it is written or read */
};
int64_t state_box_elements(const struct state_box *b);

/* ---- names ---- */

enum { STATE_FILE = 32 };
/* "rank-00007.safetensors". */
void state_shard_name(int rank, char out[STATE_FILE]);
/* RUN/checkpoints/step-10 into buf, which is returned, as fs_path. */
const char *state_dir(char buf[FS_PATH], const char *run_dir, int64_t step);

/* ---- writing ---- */

/* What the shards and the index of one save have in common. Borrowed by who writes. */
struct state_save {
    const char *dir;      /* of the checkpoint; is there, see fs_make_dirs */
    int64_t step;         /* that is done: 0 .. 2^53 - 1 */
    const char *run;      /* names it, 1 to 63 bytes of UTF-8; shards of two runs do not mix */
    enum safet_type type; /* of all chunks: SAFET_F32, SAFET_F64 */
    double most;          /* larger weights are infinite in the type that the run computes with; 0:
                             it computes with `type` */
};

/* One shard while it is written. The thread that writes needs no rank, device or communicator, and
 * several shards may be written at once. */
struct state_shard {
    struct safet_writer file;
    char name[STATE_FILE];
    enum safet_type type;
    double most;               /* state_save.most */
    struct state_chunk *chunk; /* owned; [n], hashes set by state_shard_fill */
    int n;
    int64_t bytes;             /* of the file */
};
/* Starts shard `name` of the save, with the n >= 0 chunks (copied). Nothing is to be released when
 * it fails. Errors: ERR_INTERNAL: a chunk is empty, outside of its tensor, or there twice;
 * ERR_MEMORY; ERR_STORAGE. Local. */
enum err state_shard_create(struct state_shard *s, const struct state_save *save, const char *name,
                            const struct state_chunk *chunk, int n);
/* Where the numbers of a chunk are: dense and row-major; transposed: the other way round, (n[1],
 * n[0]), as a parameter holds them whose place is transposed. */
struct state_source { const void *p; bool transposed; };
enum { STATE_HELPERS = 8 };
/* All data of the shard: of chunk i from from[i]. This thread and so many others (0 to
 * STATE_HELPERS, of which each has a chunk to begin with) turn, hash, look whether all is finite,
 * and write; it is as fast as a plain copy where they have processors of their own. File calls of
 * all are told to this thread's watch. given_up (NULL: none): once it is true nothing more is
 * written. Errors, of the first chunk that has one, after which only state_shard_close may follow:
 * ERR_NONFINITE, naming its first such number; ERR_PEER: it was given up; ERR_STORAGE; ERR_MEMORY,
 * also where a thread cannot be started; ERR_INTERNAL: it is filled already. No room is kept on the
 * disk before: in memory files that would cost a tenth of the time, and a disk that is full costs
 * this shard alone. */
enum err state_shard_fill(struct state_shard *s, const struct state_source *from, int helpers,
                          const atomic_bool *given_up);
/* Behind the commit of the file (safet_commit): what the index says of this shard, as JSON, into a
 * new string (mem_free). It may travel to another rank. Errors: ERR_MEMORY. */
enum err state_shard_text(const struct state_shard *s, char **out);
/* Releases; a shard that is not committed goes. Idempotent, also of one that is all zero. */
void state_shard_close(struct state_shard *s);

/* The scalars of a run. Texts are UTF-8; borrowed from the caller when written, owned by the index
 * when read; NULL is written as "". */
struct state_head {
    int64_t step;
    char run[64];               /* state_save.run */
    enum safet_type type;       /* SAFET_F32, SAFET_F64 */
    struct model model;           /* of the model; says which tensors there are */
    const char *config;         /* the whole configuration, YAML, at most 16 MiB */
    const char *notes;          /* what else the run wants to find again, at most 16 MiB */
    uint64_t seed;
    uint64_t data_hash, valid_hash; /* of the tokens; 0: none */
    char tokenizer[128];
    uint64_t tokenizer_hash;    /* 0: not known */
    int64_t warmup, decay, steps; /* lengths in effect, steps */
    int64_t within;               /* of no meaning any more, 0; older readers insist on it */
    double loss;                /* of the step */
    double valid_loss;          /* of a validation behind it; NaN: none was made */
    int world;                  /* ranks that saved; >= 1 */
    char layout[128];           /* a word for people: "tp 2, pp 2, dp 1" */
};
/* index.json, from the texts of n >= 1 shards; whole or not there. Behind it the checkpoint is, and
 * stays behind a power cut: dir's parent and that one's are flushed, too. step, run and type of
 * head are those of save. The shards are not looked at, but what is said of them and of head is
 * held against all rules of reading first. Errors: ERR_INTERNAL: it would be refused; ERR_MEMORY;
 * ERR_STORAGE. Local. */
enum err state_index_write(const struct state_save *save, const struct state_head *head,
                           const char *const *text, int n);

/* The index of a whole checkpoint once more, with the loss of a validation that was made behind its
 * step later than the save. What it has already stays. Errors: ERR_CHECKPOINT, ERR_MEMORY,
 * ERR_STORAGE; the index is then as it was. Local. */
enum err state_index_validated(const char *dir, double loss);

/* ---- reading ---- */

struct state_index {
    struct state_head head;      /* texts owned */
    uint64_t digest;             /* of what it says there, but for valid_loss */
    struct safet_entry *tensor;  /* owned; [tensors], by name: those of head.model */
    int tensors;
    char *dir;                   /* owned */
    char *path;                  /* owned; of index.json, for messages */
    struct state_reading *inner; /* owned (state_index.c) */
};
/* Everything that the index says holds when it returns ERR_OK: numbers are in range, the tensors
 * are those of head.model, the chunks tile each in every kind, and the files that it names are
 * there in the folder itself, regular and of the size it says. The data are not read. Time is that
 * of a sort, memory that of the index. Errors: ERR_CHECKPOINT naming file, what was expected and
 * what was found; also when there is no index; ERR_MEMORY. Local. */
enum err state_index_open(struct state_index *x, const char *dir);
void state_index_close(struct state_index *x); /* idempotent, also of one that is all zero */
/* Of all that it says but valid_loss, which may come later: of the scalars and of the data, their
 * hashes among that. Of another checkpoint it is another. */
uint64_t state_index_digest(const struct state_index *x);

/* What is read: a box of a tensor. */
struct state_want {
    const char *tensor; /* Hugging Face's name, hf_place.tensor */
    enum state_kind kind;
    struct state_box box; /* in the tensor's orientation */
    bool transposed;      /* out holds it the other way round, (n[1], n[0]) */
};
/* The box into `out`, dense and row-major, of `type` SAFET_F32 or SAFET_F64, rounded where the
 * checkpoint has the other. Shards that have a part of it are mapped and stay so until the index is
 * closed; each is held against the index when it is mapped, and each chunk against its hash the
 * first time that anything of it is read. Any thread, several at once. An empty box reads nothing.
 * Errors: ERR_CHECKPOINT naming file, tensor, what was expected and what was found: out is then
 * undefined; ERR_INTERNAL: no such tensor, or the box is not in it; ERR_MEMORY. */
enum err state_read(const struct state_index *x, const struct state_want *want,
                    enum safet_type type, void *out);

/* ---- the checkpoints of a run ---- */

/* Has the folder the index of a checkpoint? Yes, too, where it cannot be seen whether it has (a
 * disk that fails, a link that leads nowhere): who opens it is told why. (state_list.c) */
bool state_exists(const char *dir);
/* whole: state_exists. One that is not is left over of a save that did not end. */
struct state_found { int64_t step; bool whole; };
/* Those of RUN/checkpoints, or the whole ones alone, by falling steps, into *out (mem_free); no
 * such folder: none. Names other than step-N are passed over. Errors: ERR_CHECKPOINT: the folder
 * cannot be read; ERR_MEMORY. Local. */
enum err state_list(const char *run_dir, bool whole, struct state_found **out, int *n);
/* Of n whole ones that with the lowest valid_loss in its index, the earliest of equals, into *step
 * and *loss; false: none has one. What cannot be read is passed over. Local. */
bool state_best(const char *run_dir, const struct state_found *found, int n, int64_t *step,
                double *loss);
/* Removes a checkpoint, whole or not: first the index, then shards and what saves leave over, then
 * the folder, where nothing else is in it. Not there: nothing to do. Errors: ERR_STORAGE. Local. */
enum err state_remove(const char *dir);

#endif
