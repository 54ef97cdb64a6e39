/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights on disk: safetensors with the names of Hugging Face, and config.json beside them.
 * One logical, global state; each tensor is written whole, in the model's global shape.
 */
#ifndef PLAIT_CKPT_CKPT_H
#define PLAIT_CKPT_CKPT_H

#include "arch/arch.h"
#include "base/err.h"
#include "base/fs.h"
#include <stdbool.h>
#include <stdint.h>

/* A tensor of a safetensors file. */
struct safet_entry {
    char name[128];
    enum dtype dt; /* F64, F32, BF16, I32 are served; others are refused by name */
    int nd;        /* 0..4; 0 is one number */
    int64_t shape[4];
    int64_t begin, end; /* bytes relative to the data */
};

/* Limits, of files read and of files written. */
enum {
    SAFET_HEADER_MAX = 100000000, /* bytes of JSON: the format's own limit */
    SAFET_TENSORS_MAX = 1 << 20
};

/* ---- writing: all entries are known first, then the data come in the order of the entries ---- */
struct safet_writer {
    struct fs_file file;
    int64_t written, total;
};
/* Starts the file and writes its header; fills begin/end of the entries (tightly, in order). Names
 * have to differ; wider types have to come first, or sizes such that every tensor begins at a
 * multiple of its element (readers map files and want that). {"__metadata__":{"format":"pt"}} is
 * added, which transformers asks for. Nothing is to be released when it fails. The file is seen
 * under its name from safet_commit on.
 * Errors: ERR_INTERNAL entries that break a rule; ERR_MEMORY; ERR_STORAGE. Local. */
enum err safet_create(struct safet_writer *w, const char *path, struct safet_entry *e, int n);
/* The next bytes of the data, in pieces of any size. Errors: ERR_INTERNAL when there are more than
 * the entries take; ERR_STORAGE, after which only safet_abandon may follow. */
enum err safet_write(struct safet_writer *w, const void *p, int64_t bytes);
/* Errors: ERR_INTERNAL when bytes are missing; ERR_STORAGE. The file is then not there. */
enum err safet_commit(struct safet_writer *w);
/* Idempotent; also of a writer that is all zero, or that safet_create failed to make. */
void safet_abandon(struct safet_writer *w);

/* ---- reading: everything is checked before an entry is given out ---- */
struct safet_file {
    struct fs_map map;         /* owned; empty after safet_open_bytes */
    struct safet_entry *entry; /* owned; sorted by name */
    int n;
    const uint8_t *data; /* borrowed from map; a tensor of a foreign file may stand unaligned */
    int64_t bytes;       /* of the data */
    char path[1024];
};
/* All rules of the format hold when it returns ERR_OK: every entry has a served type and at most 4
 * extents, its bytes are its shape's, and the tensors cover the data without overlap or hole.
 * Memory is that of the entries, time is linear. Tensors are not read.
 * Errors: ERR_CHECKPOINT naming file, what was expected and what was found; ERR_MEMORY. Local. */
enum err safet_open(struct safet_file *f, const char *path);
/* The same for a file that lies in memory and stays there until safet_close; `name` stands in
 * messages. */
enum err safet_open_bytes(struct safet_file *f, const char *name, const void *p, int64_t size);
void safet_close(struct safet_file *f);
/* By name, or NULL. */
const struct safet_entry *safet_find(const struct safet_file *f, const char *name);

/* ---- names: plait's parameters <-> Hugging Face's tensors ---- */

/* How one parameter of arch.h lies in the files: tensor name, and for GPT-2's fused and transposed
 * Conv1D weights where in it. The parameter's global shape is (out, in), or (n, 1) for a vector;
 * element (o, i) of it is element (out0 + o, i) of the tensor, (i, out0 + o) when transposed, and
 * out0 + o when the tensor has one extent. */
struct hf_place {
    char tensor[128];
    int nd;
    int64_t shape[2];   /* of the tensor in the file; shape[1] is 1 when nd is 1 */
    bool transposed;    /* the file holds (in, out) */
    int64_t out0;       /* first output row of this parameter within the tensor (q, k, v) */
};
/* gpt: the names that GPT2LMHeadModel saves, "transformer.h.0.ln_1.weight"; llama: those of
 * LlamaForCausalLM. A tied copy of the embedding has the embedding's place. */
void hf_place(const struct arch *a, const struct arch_param *p, struct hf_place *out);
/* The entry of a place, its shape checked. Files of the bare GPT2Model have the names without
 * "transformer."; both are found. Errors: ERR_CHECKPOINT: no such tensor, or of another shape, or
 * of integers. */
enum err hf_find(const struct safet_file *f, const struct hf_place *place,
                 const struct safet_entry **out);

/* Would the model leave weights of the file unread: a layer after its last, or, when it is tied, an
 * output matrix that is not the embedding? Errors: ERR_CHECKPOINT. Local. */
enum err hf_check_rest(const struct safet_file *f, const struct arch *a);

/* config.json as Hugging Face writes it for gpt2 and llama. dtype: "bfloat16" or "float32".
 * Rotary positions are written in both forms: rope_theta with rope_scaling, and rope_parameters
 * (transformers 5). llama knows dropout of attention only: attention_dropout holds arch's.
 * Errors: ERR_STORAGE, ERR_MEMORY. Local. */
enum err hf_config_write(const struct arch *a, const char *dtype, const char *path);
/* Reads model_type gpt2 or llama into arch; what plait does not compute (scaled rotary positions,
 * biases in llama, other activations) is refused by key. Keys left out have transformers' default.
 * Errors: ERR_CHECKPOINT, ERR_MEMORY. Local. */
enum err hf_config_read(const char *path, struct arch *out);

#endif
