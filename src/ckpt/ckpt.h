/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights on disk: safetensors with the names of Hugging Face, and config.json beside them.
 * One logical, global state; each tensor is written whole, in the model's global shape.
 */
#ifndef PLAIT_CKPT_CKPT_H
#define PLAIT_CKPT_CKPT_H

#include "model/model.h"
#include "base/err.h"
#include "base/fs.h"
#include "base/text.h"
#include <stdbool.h>
#include <stdint.h>

/* Element types of the format. Tensors of all of them may stand in a file; values of the first
 * four can be read as numbers. */
enum safet_type {
    SAFET_F64, SAFET_F32, SAFET_F16, SAFET_BF16,
    SAFET_I64, SAFET_U64, SAFET_I32, SAFET_U32, SAFET_I16, SAFET_U16, SAFET_I8, SAFET_U8,
    SAFET_BOOL, SAFET_F8_E4M3, SAFET_F8_E5M2,
    SAFET_TYPES
};
int64_t safet_type_size(enum safet_type type); /* bytes */
const char *safet_type_name(enum safet_type type); /* as the header has it: "BF16" */

/* A tensor of a safetensors file. */
struct safet_entry {
    char name[128];
    enum safet_type type;
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
    atomic_int_fast64_t written; /* bytes of the data */
    int64_t total;
    int64_t front;          /* bytes before them */
    uint64_t header_hash;   /* xxh3-64 of the JSON, spaces included */
};
/* Starts the file, fresh: one that replaces nothing, whatever has its name now or later
 * (fs_create_new), and writes its header; fills begin/end of the entries (tightly, in order). Names
 * have to differ; wider types have to come first, or sizes such that every tensor begins at a
 * multiple of its element (readers map files and want that). notes: key, value, key, value, ...,
 * NULL, which become __metadata__ behind "format": "pt", which transformers asks for; NULL: none.
 * Nothing is to be released when it fails. The file is seen under its name from safet_commit on.
 * Errors: ERR_INTERNAL entries that break a rule; ERR_MEMORY; ERR_STORAGE. Local. */
enum err safet_create(struct safet_writer *w, const char *path, bool fresh, struct safet_entry *e,
                      int n, const char *const *notes);
/* The disk keeps room for all of the file (fs_keep_room). Errors: ERR_STORAGE, after which only
 * safet_abandon may follow. */
enum err safet_keep_room(struct safet_writer *w);
/* The next bytes of the data, in pieces of any size. Errors: ERR_INTERNAL when there are more than
 * the entries take; ERR_STORAGE, after which only safet_abandon may follow. */
enum err safet_write(struct safet_writer *w, const void *p, int64_t bytes);
/* Bytes of the data from `at` on, in place of safet_write: any thread, several at once, each byte
 * once. Errors: ERR_INTERNAL: they are not of the data; ERR_STORAGE, after which only safet_abandon
 * may follow, when all are back. */
enum err safet_write_at(struct safet_writer *w, int64_t at, const void *p, int64_t bytes);
/* Errors: ERR_INTERNAL when bytes are missing; ERR_STORAGE. The file is then not there, unless
 * file.placed says so. */
enum err safet_commit(struct safet_writer *w);
/* Idempotent; also of a writer that is all zero, or that safet_create failed to make. */
void safet_abandon(struct safet_writer *w);

/* ---- reading: everything is checked before an entry is given out ---- */
struct safet_file {
    struct fs_map map;         /* owned; empty after safet_open_bytes */
    struct safet_entry *entry; /* owned; sorted by name */
    int n;
    const char *header;  /* borrowed from map */
    int64_t header_bytes;
    const uint8_t *data; /* borrowed from map; a tensor of a foreign file may stand unaligned */
    int64_t bytes;       /* of the data */
    char path[1024];
};
/* All rules of the format hold when it returns ERR_OK: every entry has a known type and at most 4
 * extents, its bytes are its shape's, and the tensors cover the data without overlap or hole.
 * Memory is that of the entries, time is linear. Tensors are not read.
 * Errors: ERR_CHECKPOINT naming file, what was expected and what was found; ERR_MEMORY. Local. */
enum err safet_open(struct safet_file *f, const char *path);
/* The same of a file that another names (fs_map_open_in). */
enum err safet_open_in(struct safet_file *f, const char *dir, const char *name);
/* The same of a file that lies in memory and stays there until safet_close; `name` stands in
 * messages. */
enum err safet_open_bytes(struct safet_file *f, const char *name, const void *p, int64_t size);
void safet_close(struct safet_file *f);
/* Among n entries that are sorted by name; NULL: there is none. */
const struct safet_entry *safet_find(const struct safet_entry *e, int n, const char *name);
void safet_sort(struct safet_entry *e, int n); /* by name */
/* What __metadata__ says under `key` into out; "" where it says nothing. Errors: ERR_CHECKPOINT
 * when that is longer than SAFET_NOTE - 1 bytes, has a control character or is no JSON. */
enum { SAFET_NOTE = 128 };
enum err safet_note(const struct safet_file *f, const char *key, char out[SAFET_NOTE]);

/* ---- the weights of a folder ---- */

/* Keys of __metadata__ of weights that plait writes: the tokenizer's name, and where plait knows
 * the tokenizer its hash (tokenizer_hash, 16 hexadecimal digits). */
#define HF_TOKENIZER "plait.tokenizer"
#define HF_TOKENIZER_HASH "plait.tokenizer_hash"

/* model.safetensors, or the shards that model.safetensors.index.json names. */
struct hf_weights {
    struct safet_file *file; /* owned; [files] */
    int files;
};
/* Is either form there? */
bool hf_weights_exist(const char *dir);
/* Both forms in one folder are refused, and so is whatever the index and the shards do not agree
 * in: a tensor that is named twice, missing, in another shard or in none, a name of a shard that
 * fs_map_open_in refuses, a sum of bytes that is not total_size. The index is walked once.
 * Errors: ERR_CHECKPOINT, ERR_MEMORY. Local. */
enum err hf_weights_open(struct hf_weights *w, const char *dir);
void hf_weights_close(struct hf_weights *w); /* idempotent */
/* What the weights say of themselves (safet_note); shards have to say the same. */
enum err hf_weights_note(const struct hf_weights *w, const char *key, char out[SAFET_NOTE]);
/* Of all headers and of 64 places of each tensor: whoever reads another copy finds another. */
uint64_t hf_weights_digest(const struct hf_weights *w);

/* A tensor of them; entry NULL: none. */
struct hf_tensor { const struct safet_file *file; const struct safet_entry *entry; };
struct hf_tensor hf_weights_find(const struct hf_weights *w, const char *name);

/* ---- names: plait's parameters <-> Hugging Face's tensors ---- */

/* How one parameter of model.h lies in the files: tensor name, and for GPT-2's fused and transposed
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
void hf_place(const struct model *a, const struct model_param *p, struct hf_place *out);
/* The tensors of a model's files, in the order in which they are written, all of one type, into
 * *out (mem_free); begin and end are left to safet_create. Parameters of one tensor are neighbours
 * in model_param_list. Errors: ERR_MEMORY. */
enum err hf_entries(const struct model *a, enum safet_type type, struct safet_entry **out, int *n);
/* The same by name, for safet_find. */
enum err hf_sorted_entries(const struct model *a, struct safet_entry **out, int *n);
/* What weights say of whose ids they know, as notes of safet_create; hash 0: it is not known. */
struct hf_notes { const char *word[5]; char hash[17]; };
void hf_notes(const char *tokenizer, uint64_t hash, struct hf_notes *out);

/* config.json as Hugging Face writes it for gpt2 and llama. type: of the weights, SAFET_F32,
 * SAFET_F16 or SAFET_BF16. end: the id that ends a text, -1: not known.
 * Rotary positions are written in both forms: rope_theta with rope_scaling, and rope_parameters
 * (transformers 5). llama knows dropout of attention only: attention_dropout holds model's.
 * Errors: ERR_MEMORY. Local. */
enum err hf_config_text(const struct model *a, enum safet_type type, int32_t end,
                        struct text *out);
/* generation_config.json: what transformers would make of config.json. Errors: ERR_MEMORY. */
enum err hf_generation_text(int32_t end, struct text *out);
/* Reads a config.json of model_type gpt2 or llama. What plait does not compute (scaled rotary
 * positions, biases in llama, other activations) is refused by key, keys left out have
 * transformers' default. Errors: ERR_CHECKPOINT, ERR_MEMORY. Local. */
enum { HF_ENDS = 8 };
struct hf_config {
    struct model model;
    int32_t end[HF_ENDS]; /* ids that end a text (eos_token_id) */
    int ends;
    char unknown[256];    /* keys that are passed over and not known to be harmless: "a, b"; "" */
};
enum err hf_config_read(const char *path, struct hf_config *out);
/* The tokenizer_class that a tokenizer_config.json names; false: none, or it cannot be read. */
bool hf_tokenizer_class(const char *path, char out[SAFET_NOTE]);

#endif
