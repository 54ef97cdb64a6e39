/* SPDX-License-Identifier: Apache-2.0
 *
 * The index of a checkpoint: written last, opened first.
 *
 * Before it is put in place it is read back with all its rules, so a save whose chunks would not
 * tile the model never becomes a checkpoint. When it is opened, the files that it names must be
 * there and of the size it says; what is in them is looked at when it is used (state_read.c).
 */
#include "ckpt/state_local.h"

#include "base/mem.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- writing ---- */

/* Would it be read again? */
static enum err try_text(const struct state_save *save, const struct text *t, const char *path)
{
    struct state_index x = {0};
    struct err_kept kept;
    if (t->len > STATE_INDEX_MAX)
        FAIL(ERR_INTERNAL, "ckpt: the index of step %" PRId64 " has %" PRId64 " bytes, at most %d "
                           "are read; save from fewer ranks", save->step, t->len, STATE_INDEX_MAX);
    TRY(mem_string(path, &x.path));
    err_keep(&kept, state_index_parse(&x, &(struct fs_map){(const uint8_t *)t->s, t->len}));
    state_index_close(&x);
    if (kept.code == ERR_CHECKPOINT)
        FAIL(ERR_INTERNAL, "ckpt: the checkpoint of step %" PRId64 " is not put in place, since it "
                           "would be refused: %s", save->step, err_bare(kept.text));
    return err_again(&kept);
}

enum err state_index_write(const struct state_save *save, const struct state_head *head,
                           const char *const *text, int n)
{
    struct state_head full = *head;
    struct safet_entry *tensor;
    struct text t = {0};
    char path[FS_PATH], up[FS_PATH];
    int tensors;
    enum err err;
    ENSURE(strlen(save->run) < sizeof full.run);
    full.step = save->step;
    full.type = save->type;
    memcpy(full.run, save->run, strlen(save->run) + 1);
    fs_path(path, save->dir, STATE_INDEX);
    TRY(hf_sorted_entries(&full.model, &tensor, &tensors));
    text_add(&t, "{\"format\":\"" STATE_FORMAT "\",\n");
    state_head_add(&full, &t);
    text_add(&t, ",\n\"tensors\":{");
    for (int i = 0; i < tensors; i++) {
        text_add(&t, "%s\n", i ? "," : "");
        text_add_json(&t, tensor[i].name);
        text_add(&t, tensor[i].nd == 2 ? ":[%" PRId64 ",%" PRId64 "]" : ":[%" PRId64 "]",
                 tensor[i].shape[0], tensor[i].shape[1]);
    }
    mem_free(tensor);
    text_add(&t, "},\n\"shards\":[");
    for (int i = 0; i < n; i++)
        text_add(&t, "%s\n%s", i ? "," : "", text[i]);
    text_add(&t, "]");
    state_seal(&t);
    TRY_OR(out, t.err);
    TRY_OR(out, try_text(save, &t, path));
    /* The folder itself stays behind a power cut, wherever its parents are new. */
    TRY_OR(out, fs_sync_dir(fs_path(up, save->dir, "..")));
    TRY_OR(out, fs_sync_dir(fs_path(up, save->dir, "../..")));
    TRY_OR(out, fs_put(path, t.s, t.len));
out:
    text_free(&t);
    return err;
}

/* ---- opening ---- */

enum err state_index_open(struct state_index *x, const char *dir)
{
    struct fs_map m = {0};
    enum err err;
    *x = (struct state_index){0};
    TRY_OR(out, mem_string(dir, &x->dir));
    TRY_OR(out, fs_join(dir, STATE_INDEX, &x->path));
    TRY_OR(out, fs_map_open_in(&m, dir, STATE_INDEX, ERR_CHECKPOINT));
    if (m.size > STATE_INDEX_MAX)
        TRY_OR(out, err_set(ERR_CHECKPOINT, __FILE__, __LINE__,
                            "ckpt: %s has %" PRId64 " bytes, at most %d are read; it is damaged",
                            x->path, m.size, STATE_INDEX_MAX));
    TRY_OR(out, state_index_parse(x, &m));
    for (int i = 0; i < x->inner->files; i++) { /* regular, in the folder itself, of their size */
        const struct state_file *f = &x->inner->file[i];
        fs_map_close(&m);
        TRY_OR(out, fs_map_open_in(&m, dir, f->name, ERR_CHECKPOINT));
        if (m.size != f->bytes)
            TRY_OR(out, err_set(ERR_CHECKPOINT, __FILE__, __LINE__,
                                "ckpt: %s says that %s has %" PRId64 " bytes, it has %" PRId64
                                "; it is cut or of another save", x->path, f->name, f->bytes,
                                m.size));
    }
out:
    fs_map_close(&m);
    if (err != ERR_OK)
        state_index_close(x);
    return err;
}

void state_index_close(struct state_index *x)
{
    struct state_reading *r = x->inner;
    for (int i = 0; r && i < r->files; i++)
        safet_close(&r->file[i].map);
    if (r) {
        mem_free(r->file);
        mem_free(r->piece);
        mem_free(r->group);
        mem_free(r->of_file);
    }
    mem_free(r);
    mem_free(x->tensor);
    mem_free((void *)(uintptr_t)x->head.config);
    mem_free((void *)(uintptr_t)x->head.notes);
    mem_free(x->dir);
    mem_free(x->path);
    *x = (struct state_index){0};
}

uint64_t state_index_digest(const struct state_index *x)
{
    uint64_t sum = x->digest;
    for (int i = 0; i < x->inner->pieces; i++) {
        const struct state_piece *p = &x->inner->piece[i];
        sum = XXH3_64bits_withSeed(&p->box, sizeof p->box, sum ^ (uint64_t)p->group);
        sum = XXH3_64bits_withSeed(&p->hash, sizeof p->hash, sum);
    }
    return sum;
}

/* ---- a loss that comes later ---- */

enum err state_index_validated(const char *dir, double loss)
{
    struct state_index x;
    struct ckpt_json_text v[STATE_MEMBERS];
    const struct ckpt_json_text *tensors = &v[STATE_IN_TENSORS], *shards = &v[STATE_IN_SHARDS];
    struct fs_map m = {0};
    struct text t = {0};
    TRY(state_index_open(&x, dir));
    const struct state_save save = {.dir = x.dir, .step = x.head.step};
    enum err err = ERR_OK;
    if (!isnan(x.head.valid_loss))
        goto out;
    TRY_OR(out, fs_map_open_in(&m, dir, STATE_INDEX, ERR_CHECKPOINT));
    TRY_OR(out, state_index_split(&x, &m, v));
    x.head.valid_loss = loss;
    text_add(&t, "{\"format\":\"" STATE_FORMAT "\",\n");
    state_head_add(&x.head, &t); /* tensors and shards stay, in whatever order they stood */
    text_add(&t, ",\n\"tensors\":%.*s,\n\"shards\":%.*s", (int)tensors->n, tensors->s,
             (int)shards->n, shards->s);
    state_seal(&t);
    TRY_OR(out, t.err);
    TRY_OR(out, try_text(&save, &t, x.path));
    TRY_OR(out, fs_put(x.path, t.s, t.len));
out:
    fs_map_close(&m);
    text_free(&t);
    state_index_close(&x);
    return err;
}
