/* SPDX-License-Identifier: Apache-2.0
 *
 * A save has three parts. The copy is queued where the step ends, and the thread that writes it
 * waits for it: the step's own rank goes on at once. The thread needs no rank, device queue or
 * communicator of it, so it disturbs nothing. The end is a meeting of all ranks, a few small
 * messages to the one that writes the index, made where all of them know that all threads are done.
 *
 * A failing write is an error line and costs the save; what was saved before stays. It ends the run
 * where nothing would be left. A state that is not finite is never a checkpoint, and would not be
 * finite later: it ends the run.
 */
#include "train/checkpoint.h"

#include "base/log.h"
#include "base/thread.h"

#include <stdio.h>
#include <time.h>

enum { TAG = (1 << 20) + 1, /* above the pipeline's tags, and save.c's */
       LOOK_NS = 2000000,
       IDLE_HELPERS = 2 }; /* beside one thread: more only wait for the file (bench/README.md) */

/* ---- parameters as chunks ---- */

enum safet_type checkpoint_type(enum dtype at)
{
    return at == DT_F64 ? SAFET_F64 : SAFET_F32;
}

struct state_box checkpoint_box(const struct param *p, const struct state_box *local)
{
    struct state_box global = *local;
    for (int i = 0; i < 2; i++)
        global.at[i] += p->box.at[i];
    return global;
}

/* ---- what this rank writes ---- */

static void add_piece(struct checkpoint *c, const struct param_piece *piece, enum param_kind kind)
{
    struct state_box box[3];
    struct hf_place at;
    const char *p = param_snapshot_of(&c->snapshot, kind, piece);
    int n = state_boxes(piece->param->box.local[1], piece->from, piece->to, box);
    hf_place(&c->s->model, &piece->param->spec, &at);
    for (int i = 0; i < n; i++, c->chunks++) {
        struct state_chunk *to = &c->chunk[c->chunks];
        struct state_box global = checkpoint_box(piece->param, &box[i]);
        *to = (struct state_chunk){.kind = (enum state_kind)kind, .nd = at.nd,
                                   .box = state_place_box(&at, &global)};
        memcpy(to->tensor, at.tensor, sizeof at.tensor);
        memcpy(to->shape, at.shape, sizeof to->shape);
        c->source[c->chunks] = (struct state_source){.p = p, .transposed = at.transposed};
        p += state_box_elements(&box[i]) * dtype_size(c->s->types.at);
    }
}

enum err checkpoint_open(struct checkpoint *c, const struct rank *k, const char *run,
                         const struct fs_lock *lock)
{
    const struct setup *s = k->s;
    *c = (struct checkpoint){.rank = k, .s = s, .lock = lock, .run = run};
    /* Of a GPU's rank most processors are idle, but for one that queues its work, and who computes
     * on them is disturbed by one alone. */
    bool idle = options_device(s->o) == DEV_CUDA;
    c->helpers = idle ? (int)num_min(IDLE_HELPERS, k->threads - 1) : 1;
    enum err err;
    struct text yaml = {0};
    TRY_OR(out_close, param_duty_open(&c->duty, k->x->store, k->x->stages_here, k->coord[AXIS_DP],
                                      s->mesh.size[AXIS_DP]));
    TRY_OR(out_close, param_snapshot_open(&c->snapshot, &c->duty,
                                          s->memory[k->coord[AXIS_PP]].copy));
    int64_t most = num_max(1, (int64_t)PARAM_KINDS * 3 * c->duty.n);
    TRY_OR(out_close, mem_new(most, sizeof *c->chunk, "the chunks of a shard", &c->chunk));
    TRY_OR(out_close, mem_new(most, sizeof *c->source, "the chunks of a shard", &c->source));
    for (int kind = 0; kind < PARAM_KINDS; kind++)
        for (int i = 0; i < c->duty.n; i++)
            add_piece(c, &c->duty.piece[i], (enum param_kind)kind);
    struct options mine = *s->o;
    mine.model.vocab = s->model.vocab;
    conf_print(&options_table, &mine, &yaml);
    TRY_OR(out_close, text_done(&yaml, &c->config));
    return ERR_OK;
out_close:
    checkpoint_close(c);
    text_free(&yaml);
    return err;
}

static void join(struct checkpoint *c)
{
    if (c->runs)
        pthread_join(c->thread, NULL);
    c->runs = false;
}

void checkpoint_close(struct checkpoint *c)
{
    atomic_store(&c->given_up, true);
    join(c);
    folder_older_end(&c->older);
    param_snapshot_close(&c->snapshot);
    param_duty_close(&c->duty);
    mem_free(c->chunk);
    mem_free(c->source);
    mem_free(c->config);
    mem_free(c->text);
    *c = (struct checkpoint){.s = NULL};
}

/* ---- the thread ---- */

static struct state_save save_of(const struct checkpoint *c)
{
    return (struct state_save){.dir = c->dir, .step = c->step, .run = c->run,
                               .type = checkpoint_type(c->s->types.at),
                               .most = dtype_most(c->s->types.ct)};
}

/* A name in the run's folder, unless somebody has moved it away; "": the folder itself. */
static enum err flush_in_run(const struct checkpoint *c, const char *name)
{
    char path[FS_PATH];
    return fs_exists(fs_path(path, c->s->o->run.dir, name)) ? fs_flush(path) : ERR_OK;
}

/* Another run may have the folder's name by now, and what is in it. */
static enum err check_lock(const struct checkpoint *c)
{
    if (c->lock && !fs_lock_stands(c->lock))
        FAIL(ERR_STORAGE, "storage: run.dir %s was moved away, and no checkpoint is saved in what "
                          "has its name now", c->s->o->run.dir);
    return ERR_OK;
}

static enum err write_part(void *arg)
{
    struct checkpoint *c = arg;
    struct state_save save = save_of(c);
    struct state_shard shard = {.n = 0};
    char name[STATE_FILE];
    TRY(check_lock(c));
    state_shard_name(c->rank->me, name);
    TRY(fs_make_dirs(c->dir));
    TRY(state_shard_create(&shard, &save, name, c->chunk, c->chunks));
    enum err err = param_snapshot_wait(&c->snapshot);
    c->spent.copied += log_now() - c->began;
    folder_older_join(&c->older); /* so that there is room */
    double begin = log_now();
    if (err == ERR_OK)
        err = state_shard_fill(&shard, c->source, c->helpers, &c->given_up);
    if (err == ERR_OK)
        err = safet_commit(&shard.file);
    if (err == ERR_OK)
        err = state_shard_text(&shard, &c->text);
    c->spent.wrote += log_now() - begin;
    c->spent.bytes += shard.bytes;
    state_shard_close(&shard);
    /* The lines of the steps that are saved: going on from here does none of them again. */
    return err == ERR_OK && c->rank->is_logger ? flush_in_run(c, "metrics.jsonl") : err;
}

static void *write_beside(void *arg)
{
    struct checkpoint *c = arg;
    err_keep(&c->err, comm_files_alone(c->s->o->run.io_timeout, write_part, c));
    c->spent.longest = fmax(c->spent.longest, log_now() - c->began);
    atomic_store(&c->written, true);
    return NULL;
}

/* ---- beginning and ending ---- */

enum err checkpoint_copy(struct checkpoint *c, int64_t step)
{
    ENSURE(!c->runs); /* nobody reads the copy */
    c->began = log_now();
    c->copied = step;
    TRY(param_snapshot_start(&c->snapshot));
    c->spent.waited += log_now() - c->began;
    return ERR_OK;
}

/* That an earlier save failed the writer alone knows: it begins this one all the same, as the other
 * ranks do, for all of them end it together. */
enum err checkpoint_begin(struct checkpoint *c, const struct state_head *head)
{
    struct err_kept earlier = {.code = ERR_OK};
    if (c->step > 0 && c->rank->is_logger && !checkpoint_written(c) && !c->waited) {
        c->waited = true; /* once; it is seldom the only time */
        log_line(LOG_WARN, "the checkpoint of step %lld waits until that of step %lld is written; "
                 "save less often (train.save_every), or to a faster disk", (long long)head->step,
                 (long long)c->step);
    }
    if (c->step > 0)
        err_keep(&earlier, checkpoint_end(c));
    bool whole = earlier.code == ERR_OK || earlier.code == ERR_STORAGE;
    if (!whole || c->refused > 0)
        return err_again(&earlier);
    c->step = head->step;
    c->head = *head;
    c->err.code = ERR_OK;
    atomic_store(&c->written, false);
    state_dir(c->dir, c->s->o->run.dir, c->step);
    if (c->copied == c->step)
        c->began = log_now(); /* what is copied beside the step itself costs nobody anything */
    else
        TRY(checkpoint_copy(c, c->step));
    c->copied = 0;
    struct err_kept begun;
    err_keep(&begun, thread_start(&c->thread, write_beside, c, "write a checkpoint"));
    c->runs = begun.code == ERR_OK;
    if (!c->runs) {
        c->err = begun;
        atomic_store(&c->written, true); /* all ranks hear of it where they end the save */
    }
    if (!c->s->o->train.save_async || !c->s->decided[DECIDED_COPIES].value)
        TRY(checkpoint_end(c));
    return err_again(&earlier);
}

bool checkpoint_written(const struct checkpoint *c)
{
    return c->step > 0 && atomic_load(&c->written);
}

/* One rank's part: of its error what a message needs, and the text of its shard. */
struct part {
    struct err_kept err;
    int64_t bytes; /* of the text, its end included */
};

static enum err move(struct checkpoint *c, int other, bool send, void *p, int64_t bytes)
{
    struct comm_req req = {0};
    if (send)
        TRY(comm_send_start(c->rank->world, other, TAG, p, bytes, &req));
    else
        TRY(comm_recv_start(c->rank->world, other, TAG, p, bytes, &req));
    return comm_finish(&req);
}

static void note_best(struct checkpoint *c, int64_t step, double loss)
{
    if (c->best.step == 0 ? !isnan(loss) : loss < c->best.loss)
        c->best = (struct checkpoint_best){step, loss};
}

static enum err write_index(struct checkpoint *c, const char *const *text)
{
    struct state_save save = save_of(c);
    c->head.config = c->config;
    for (int i = 0; i < comm_size(c->rank->world); i++) {
        char name[STATE_FILE], path[FS_PATH];
        state_shard_name(i, name);
        if (!fs_exists(fs_path(path, c->dir, name)))
            FAIL(ERR_STORAGE, "ckpt: the shard of rank %d is not in %s; run.dir has to be one "
                              "folder that all ranks share", i, c->dir);
    }
    TRY(flush_in_run(c, "checkpoints")); /* the folders' names; older checkpoints go behind that */
    TRY(flush_in_run(c, ""));
    TRY(state_index_write(&save, &c->head, text, comm_size(c->rank->world)));
    note_best(c, c->step, c->head.valid_loss);
    return ERR_OK;
}

/* The writer has all parts; *first: the first error of any. */
static void place_index(struct checkpoint *c, const char *const *text, struct err_kept *first)
{
    if (first->code == ERR_OK)
        err_keep(first, check_lock(c));
    bool own = !c->lock || fs_lock_stands(c->lock); /* else nothing there is this run's */
    if (first->code == ERR_OK)
        err_keep(first, write_index(c, text));
    if (first->code == ERR_OK) {
        c->spent.saves++;
        c->whole = c->step;
        return;
    }
    if (!own) {
        first->code = ERR_STORAGE; /* as its folder is gone, whatever else there was */
        return;
    }
    (void)state_remove(c->dir); /* what saves leave over goes with a later one, too */
    bool left = folder_has_checkpoint(c->s->o->run.dir), finite = first->code != ERR_NONFINITE;
    const char *stays = left ? "; the one before stays" : "";
    if (finite) {
        log_line(LOG_ERROR, "the checkpoint of step %lld could not be saved: %s%s",
                 (long long)c->step, err_bare(first->text), stays);
        first->code = left ? ERR_OK : ERR_STORAGE;
        return;
    }
    c->refused = c->step;
    err_keep(first, err_set(ERR_NONFINITE, __FILE__, __LINE__, "the state of step %lld is not "
                            "finite, and no checkpoint of it is saved: %s%s; lower optim.lr%s",
                            (long long)c->step, err_bare(first->text), stays,
                            c->s->o->optim.clip > 0 ? "" : " or set optim.clip 1"));
}

static enum err gather(struct checkpoint *c, struct err_kept *first)
{
    int n = comm_size(c->rank->world);
    char **text;
    enum err err = ERR_OK;
    TRY(mem_new(n, sizeof *text, "the texts of the shards", (void *)&text));
    *first = c->err;
    for (int i = 0; i < n; i++)
        if (i != c->rank->logger) {
            struct part its = {.bytes = 0};
            TRY_OR(out_text, move(c, i, false, &its, sizeof its));
            bool counts = first->code == ERR_OK || its.err.code == ERR_NONFINITE;
            if (its.err.code != ERR_OK && first->code != ERR_NONFINITE && counts)
                err_keep(first, err_set(its.err.code, __FILE__, __LINE__, "rank %d: %s", i,
                                        err_bare(its.err.text)));
            if (its.bytes == 0)
                continue;
            TRY_OR(out_text, mem_new(its.bytes, 1, "the text of a shard", &text[i]));
            TRY_OR(out_text, move(c, i, false, text[i], its.bytes));
        }
    text[c->rank->logger] = c->text;
    place_index(c, (const char *const *)text, first);
    text[c->rank->logger] = NULL;
out_text:
    for (int i = 0; i < n; i++)
        mem_free(text[i]);
    mem_free(text);
    return err;
}

/* What the writer knows everybody does; and who ends earlier ends what its peers do. */
static enum err share(struct checkpoint *c)
{
    enum { BEST, LOSS, WHOLE, REFUSED, ALL };
    double told[ALL] = {0};
    if (!c->rank->all)
        return ERR_OK;
    if (c->rank->is_logger) {
        told[BEST] = (double)c->best.step;
        told[LOSS] = c->best.loss;
        told[WHOLE] = (double)c->whole;
        told[REFUSED] = (double)c->refused;
    }
    TRY(comm_all_reduce(c->rank->all, told, ALL, DT_F64, COMM_SUM));
    c->best = (struct checkpoint_best){(int64_t)told[BEST], told[LOSS]};
    c->whole = (int64_t)told[WHOLE];
    c->refused = (int64_t)told[REFUSED];
    return ERR_OK;
}

enum err checkpoint_make_room(struct checkpoint *c)
{
    folder_older_end(&c->older);
    return comm_barrier(c->rank->all);
}

enum err checkpoint_end(struct checkpoint *c)
{
    struct err_kept first = {.code = ERR_OK};
    double begin = log_now();
    /* Until the threads of all ranks are done. Nobody is silent meanwhile, on whatever machine. */
    for (double left = 1; left > 0;) {
        left = !atomic_load(&c->written);
        TRY(comm_all_reduce(c->rank->all, &left, 1, DT_F64, COMM_SUM));
        if (left > 0)
            nanosleep(&(struct timespec){0, LOOK_NS}, NULL);
    }
    join(c);
    if (c->rank->is_logger) {
        TRY(gather(c, &first));
    } else {
        struct part mine = {.err = c->err};
        mine.bytes = c->err.code == ERR_OK ? (int64_t)strlen(c->text) + 1 : 0;
        TRY(move(c, c->rank->logger, true, &mine, sizeof mine));
        if (mine.bytes > 0)
            TRY(move(c, c->rank->logger, true, c->text, mine.bytes));
    }
    TRY(share(c));
    c->spent.waited += log_now() - begin;
    c->ended = c->step;
    c->step = 0;
    mem_free(c->text);
    c->text = NULL;
    if (c->rank->is_logger && c->whole == c->ended)
        folder_older_start(&c->older, c->s->o, c->lock, c->ended,
                           c->s->o->train.save_best ? c->best.step : 0);
    return err_again(&first);
}

void checkpoint_report(const struct checkpoint *c, struct text *out)
{
    const struct checkpoint_spent *x = &c->spent;
    double n = (double)x->saves;
    char each[32];
    if (x->saves == 0)
        return;
    text_add(out, "saves: %lld, of %s each, copied in %.1f ms, written at %.2f GB/s, the longest "
                  "in %.2f s; the steps stood still for %.2f s\n", (long long)x->saves,
             text_bytes((int64_t)((double)x->bytes / n), each), 1e3 * x->copied / n,
             (double)x->bytes / fmax(x->wrote, 1e-9) / 1e9, x->longest, x->waited);
}

/* ---- the best by validation ---- */

bool checkpoint_would_be_best(const struct checkpoint *c, double loss)
{
    bool beside = c->step == 0 || isnan(c->head.valid_loss) || loss < c->head.valid_loss;
    return beside && (c->best.step == 0 || loss < c->best.loss);
}

enum err checkpoint_find_best(struct checkpoint *c, int64_t last)
{
    struct state_found *found;
    int n, first = 0;
    if (!c->rank->is_logger)
        return share(c);
    TRY(state_list(c->s->o->run.dir, true, &found, &n));
    while (first < n && found[first].step > last) /* these go before the first step */
        first++;
    (void)state_best(c->s->o->run.dir, found + first, n - first, &c->best.step, &c->best.loss);
    mem_free(found);
    return share(c);
}

enum err checkpoint_validated(struct checkpoint *c, int64_t step, double loss)
{
    char dir[FS_PATH];
    if (!c->rank->is_logger)
        return share(c);
    if (state_index_validated(state_dir(dir, c->s->o->run.dir, step), loss) == ERR_OK)
        note_best(c, step, loss);
    else
        log_line(LOG_WARN, "the checkpoint of step %lld is not known by the loss of its "
                           "validation: %s", (long long)step, err_bare(err_text()));
    return share(c);
}
