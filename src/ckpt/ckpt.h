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
    int nd;
    int64_t shape[4];
    int64_t begin, end; /* bytes relative to the data */
};

/* ---- writing: all entries are known first, then the data come in the order of the entries ---- */
struct safet_writer {
    struct fs_file file;
    int64_t written, total;
};
/* Fills begin/end of the entries (tightly, in order). metadata: {"format":"pt"} is added. */
enum err safet_create(struct safet_writer *w, const char *path, struct safet_entry *e, int n);
enum err safet_write(struct safet_writer *w, const void *p, int64_t bytes);
enum err safet_commit(struct safet_writer *w); /* ERR_INTERNAL when bytes are missing */
void safet_abandon(struct safet_writer *w);

/* ---- reading: everything is checked before an entry is given out ---- */
struct safet_file {
    struct fs_map map; /* owned */
    struct safet_entry *entry; /* owned */
    int n;
    const uint8_t *data;
    char path[1024];
};
/* Errors: ERR_CHECKPOINT naming file, what was expected and what was found. */
enum err safet_open(struct safet_file *f, const char *path);
void safet_close(struct safet_file *f);
const struct safet_entry *safet_find(const struct safet_file *f, const char *name);

/* ---- names: plait's parameters <-> Hugging Face's tensors ---- */

/* How one parameter of arch.h lies in the files: tensor name, and for GPT-2's fused and transposed
 * Conv1D weights where in it. rows/cols: the parameter's global shape (out, in) or (n, 1). */
struct hf_place {
    char tensor[128];
    int nd;
    int64_t shape[2];   /* of the tensor in the file */
    bool transposed;    /* the file holds (in, out) */
    int64_t out0;       /* first output row of this parameter within the tensor (q, k, v in c_attn) */
};
void hf_place(const struct arch *a, const struct arch_param *p, struct hf_place *out);

/* config.json as Hugging Face writes it for gpt2 and llama. dtype: "bfloat16" or "float32". */
enum err hf_config_write(const struct arch *a, const char *dtype, const char *path);
/* Reads model_type gpt2 or llama into arch. Errors: ERR_CHECKPOINT. */
enum err hf_config_read(const char *path, struct arch *out);

#endif
