/* SPDX-License-Identifier: Apache-2.0
 *
 * Final weights as one safetensors file in global shapes. All ranks walk the same list of tensors;
 * owners send their boxes, the writer (the first copy of the head: the reporting rank) puts each
 * tensor together and writes it, so that no rank ever holds the model. The file appears whole or
 * not at all. A writer whose disk fails still takes what is sent to it, so that all ranks come to
 * the end and know of it.
 *
 * The file is begun before the first step, with room on the disk for all of it: whatever fills the
 * disk while the run goes on (its own metrics and traces, too), the weights find theirs.
 */
#include "train/train.h"

#include <stdio.h>

enum { SAVE_TAG = 1 << 20, /* above the pipeline's tags */
       TILE = 32 };        /* rows and columns of a box that are placed at once */

/* The walk: one parameter of the model, where it lies in its file tensor, who holds it. */
struct saver {
    const struct setup *s;
    const struct rank *rank;   /* the one that reports writes */
    struct model_param *param; /* owned; all parameters of the model, tied once */
    int params;
    struct safet_entry *entry; /* owned; file tensors, each of one or several neighbours in param */
    int entries;
    struct safet_writer *file;  /* borrowed; the writer's */
    const struct fs_lock *lock; /* borrowed; the writer's, of run.dir */
    bool strange;               /* run.dir is another run's by now */
    struct save_lost *unsaved;  /* borrowed */
};

/* This rank's parameter of that name. */
static const struct param *own(const struct saver *v, const struct model_param *p)
{
    struct param_store *const *store = v->rank->x->store;
    for (int i = 0; i < v->rank->x->stages_here; i++)
        for (int j = 0; j < store[i]->n; j++) {
            const struct param *mine = &store[i]->param[j];
            if (strcmp(mine->spec.name, p->name) == 0 && !mine->spec.tied_copy)
                return mine;
        }
    return NULL;
}

/* What a file keeps transposed goes tile by tile, so that its cache lines are filled while they are
 * near. */
static void place_box(const struct hf_place *at, const struct model_box *b, const float *box,
                      float *tensor)
{
    int64_t cols = at->shape[1], rows = b->real[0], n = b->real[1];
    float *to = at->transposed ? tensor + b->at[1] * cols + at->out0 + b->at[0]
                               : tensor + (at->out0 + b->at[0]) * cols + b->at[1];
    for (int64_t i = 0; i < rows && !at->transposed; i++)
        memcpy(to + i * cols, box + i * b->local[1], (size_t)n * sizeof *to);
    for (int64_t r = 0; r < rows && at->transposed; r += TILE)
        for (int64_t c = 0; c < n; c += TILE)
            for (int64_t j = c; j < num_min(c + TILE, n); j++)
                for (int64_t i = r; i < num_min(r + TILE, rows); i++)
                    to[j * cols + i] = box[i * b->local[1] + j];
}

/* Move one rank's box of a parameter to the writer, which places it. */
static enum err move_box(struct saver *v, const struct model_param *p, int tp_rank, float *tensor)
{
    const struct setup *s = v->s;
    int stage = 0, coord[AXIS_COUNT] = {0};
    /* The tied head's copy is never asked for, and of two replicas the first is written. */
    while (stage < s->sched.stages - 1 && !model_stage_has(&s->cut[stage], p->layer))
        stage++;
    struct param_place place = {&s->model, &s->split, &s->cut[stage], tp_rank, false, 0, 1};
    struct comm_req req = {0};
    struct hf_place at;
    struct model_box box;
    float *values;
    if (!param_counts(p, &place))
        return ERR_OK;
    coord[AXIS_TP] = tp_rank;
    coord[AXIS_PP] = s->sched.place[stage];
    int owner = mesh_rank(&s->mesh, coord), me = v->rank->me;
    if (me != owner && me != v->rank->logger)
        return ERR_OK;
    model_param_box(&s->split, p, tp_rank, &box);
    int64_t n = box.local[0] * box.local[1];
    TRY(mem_new(n, sizeof *values, p->name, &values));
    const struct param *mine = me == owner ? own(v, p) : NULL;
    ENSURE(me != owner || (mine && mine->count == n));
    enum err err = mine ? param_read(mine, DT_F32, values) : ERR_OK;
    if (err == ERR_OK && me != v->rank->logger)
        err = comm_send_start(v->rank->world, v->rank->logger, SAVE_TAG, values, n * 4, &req);
    if (err == ERR_OK && me != owner)
        err = comm_recv_start(v->rank->world, owner, SAVE_TAG, values, n * 4, &req);
    if (err == ERR_OK)
        err = comm_finish(&req);
    if (err == ERR_OK && me == v->rank->logger) {
        hf_place(&s->model, p, &at);
        place_box(&at, &box, values, tensor);
    }
    mem_free(values);
    return err;
}

/* All parameters of one file tensor; *next is the first parameter not of it. */
static enum err move_tensor(struct saver *v, const struct safet_entry *e, int *next)
{
    bool writes = v->rank->is_logger;
    int64_t n = e->shape[0] * e->shape[1];
    float *tensor = NULL;
    enum err err = ERR_OK;
    if (writes)
        TRY(mem_new(n, sizeof *tensor, e->name, &tensor));
    for (; *next < v->params; (*next)++) {
        struct hf_place at;
        hf_place(&v->s->model, &v->param[*next], &at);
        if (strcmp(at.tensor, e->name) != 0)
            break;
        for (int t = 0; t < v->s->split.tp && err == ERR_OK; t++)
            err = move_box(v, &v->param[*next], t, tensor);
    }
    if (err == ERR_OK && writes && v->unsaved->why.code == ERR_OK)
        err_keep(&v->unsaved->why, safet_write(v->file, tensor, n * 4));
    mem_free(tensor);
    return err;
}

/* What the weights say of themselves: whose ids they know. */
static enum err create_file(struct saver *v)
{
    const char *name = v->s->tokenizer;
    struct hf_notes notes;
    char path[FS_PATH];
    hf_notes(name, tokenizer_hash(name), &notes);
    fs_path(path, v->s->o->run.dir, "model.safetensors");
    /* Then what stands there is that of before the stop. */
    bool goes_on = v->s->o->run.resume[0] && folder_means_own(v->s->o);
    TRY(safet_create(v->file, path, !goes_on, v->entry, v->entries, notes.word));
    v->file->file.dear = true;
    return safet_keep_room(v->file);
}

enum err save_begin(const struct setup *s, struct safet_writer *file)
{
    struct saver v = {.s = s, .file = file};
    TRY(hf_entries(&s->model, SAFET_F32, &v.entry, &v.entries));
    enum err err = create_file(&v);
    mem_free(v.entry);
    return err;
}

/* The file that was begun; where somebody has removed it, or its folder, another. */
static enum err find_file(struct saver *v)
{
    static const char *const name[] = {"plait.lock", "config.yaml"};
    if (fs_is_there(&v->file->file))
        return ERR_OK;
    safet_abandon(v->file);
    TRY(fs_make_dirs(v->s->o->run.dir));
    for (int i = 0; i < 2 && !fs_lock_stands(v->lock); i++) { /* of a later run */
        char path[FS_PATH];
        v->strange = v->strange || fs_exists(fs_path(path, v->s->o->run.dir, name[i]));
    }
    return create_file(v);
}

enum err save_weights(const struct rank *k, struct safet_writer *file, const struct fs_lock *lock,
                      struct save_lost *unsaved)
{
    struct saver v = {.s = k->s, .rank = k, .file = file, .lock = lock, .unsaved = unsaved};
    unsaved->why.code = ERR_OK;
    bool writes = k->is_logger;
    enum err err;
    TRY(exec_weights_gather(k->x));
    TRY_OR(out_list, model_param_list(&k->s->model, &v.param, &v.params));
    TRY_OR(out_list, hf_entries(&k->s->model, SAFET_F32, &v.entry, &v.entries));
    if (writes)
        err_keep(&unsaved->why, find_file(&v));
    for (int i = 0, next = 0; i < v.entries; i++)
        TRY_OR(out_list, move_tensor(&v, &v.entry[i], &next));
    if (writes && unsaved->why.code == ERR_OK)
        err_keep(&unsaved->why, v.strange ? fs_leave(&file->file, "run.dir was moved away, and "
                                                     "what has its name now is of another run")
                                          : safet_commit(file));
    unsaved->placed = writes && file->file.placed;
    err = comm_broadcast(k->all, k->logger, unsaved, (int64_t)sizeof *unsaved);
out_list:
    mem_free(v.param);
    mem_free(v.entry);
    return err;
}
