/* SPDX-License-Identifier: Apache-2.0
 *
 * Files into any layout. What a rank holds is a list of ranges, which readers (threads) take one by
 * one. Where the host can write the device's memory they put the numbers in their place; else strip
 * by strip into a buffer of their own, from which the rank's thread, who alone calls the device,
 * copies them. So a buffer is a strip, and no more of a matrix is in the host's memory.
 *
 * A parameter that no tensor fills is an error, never left as it was, and so is a number that is
 * none in the type that the weights are held in.
 */
#include "train/rank.h"

#include "base/thread.h"
#include "train/checkpoint.h"

#include <pthread.h>
#include <stdio.h>

enum { READERS = 8, STRIP = 1 << 21, /* elements on their way; more where a row has more */
       FILE_NAME = OPTIONS_PATH_MAX + 64 };

/* A range of one parameter and kind that the rank holds. */
struct range { struct hf_place place; struct param_piece held; enum param_kind kind; };

/* ---- what a file has ---- */

/* How many of n numbers of the device's type `at` are finite as `type`, from the first on. */
static int64_t finite_as(enum dtype type, const struct dev *dev, const void *values, int64_t n)
{
    double most = dtype_most(type);
    return dev->at == DT_F64 ? num_within_f64(values, n, most)
                             : num_within_f32(values, n, (float)most);
}

/* `values` are of a box of p, which is global. */
static enum err check_finite(const struct param *p, const struct weights_tensor *t,
                             const struct state_box *b, const void *values)
{
    const struct hf_place *at = t->place;
    const struct dev *dev = p->store->dev;
    int64_t n = state_box_elements(b), cols = at->shape[1];
    int64_t i = finite_as(dev->ct, dev, values, n);
    if (i == n)
        return ERR_OK;
    double v = dev->at == DT_F64 ? ((const double *)values)[i] : (double)((const float *)values)[i];
    int64_t r = at->out0 + b->at[0] + i / b->n[1], c = b->at[1] + i % b->n[1];
    FAIL(ERR_CHECKPOINT, "ckpt: element %lld of tensor %s of %s is %g, which is no number in %s; "
                         "the weights are damaged or of a run that diverged, use others",
         (long long)(at->transposed ? c * cols + r : r * cols + c), t->name, t->path,
         num_unsigned_nan(v), dtype_name(dev->ct));
}

/* A box of what the rank holds into `values` of type dev.at. */
static enum err read_box(const struct weights *from, const struct range *g,
                         const struct state_box *local, void *values)
{
    const struct param *p = g->held.param;
    const struct dev *dev = p->store->dev;
    struct state_box box = checkpoint_box(p, local);
    enum safet_type type = checkpoint_type(dev->at);
    if (g->kind == PARAM_WEIGHT) {
        struct weights_tensor tensor;
        TRY(weights_find(from, &g->place, &tensor));
        TRY(weights_read(&tensor, &box, type, values));
        return check_finite(p, &tensor, &box, values);
    }
    struct state_want want = {.tensor = g->place.tensor, .kind = (enum state_kind)g->kind,
                              .box = state_place_box(&g->place, &box),
                              .transposed = g->place.transposed};
    TRY(state_read(&from->state, &want, type, values));
    /* One that is infinite stays so, and its weight would be updated no more. */
    int64_t n = state_box_elements(&want.box);
    if (finite_as(dev->at, dev, values, n) < n)
        FAIL(ERR_CHECKPOINT, "ckpt: %s of tensor %s in %s is not finite; the run diverged, use an "
                             "earlier checkpoint", state_kind_name[want.kind], want.tensor,
             from->state.dir);
    return ERR_OK;
}

/* ---- the team ---- */

struct team;
struct reader {
    struct team *of;
    pthread_t thread;
    void *buffer;       /* owned; NULL where it is not needed */
    int64_t room;       /* its bytes */
    int range;          /* that is under way */
    int64_t from, to;   /* elements of it that are read */
    void *values;       /* where they are */
    bool full;          /* they are to be taken; under the lock */
    char file[FILE_NAME]; /* that it waits for; "": none; under the lock */
    int64_t call;       /* the how manieth of the team that is; under the lock */
    struct err_kept err;
};
struct team {
    const struct rank *k;
    const struct weights *from;
    struct range *range; /* owned; [n] */
    int n, next;              /* next: nobody reads it yet */
    struct reader reader[READERS];
    int readers, at_work;     /* at_work: under the lock */
    pthread_mutex_t lock;
    pthread_cond_t moved;
    bool ended;               /* nothing more is to be read */
    int64_t begun, done;      /* file calls of the readers, under the lock */
    char waits[FILE_NAME];    /* the file that the rank's thread says it waits for */
};

/* ---- waiting for a disk ---- */

/* A reader's file calls, which nobody watches, are its rank's: the rank's thread says them. */
static void on_begin(void *arg, const char *path)
{
    struct reader *d = arg;
    pthread_mutex_lock(&d->of->lock);
    snprintf(d->file, sizeof d->file, "%s", path);
    d->call = d->of->begun++;
    pthread_cond_broadcast(&d->of->moved);
    pthread_mutex_unlock(&d->of->lock);
}

static void on_end(void *arg)
{
    struct reader *d = arg;
    pthread_mutex_lock(&d->of->lock);
    d->file[0] = '\0';
    d->of->done++;
    pthread_cond_broadcast(&d->of->moved);
    pthread_mutex_unlock(&d->of->lock);
}

/* The file of the call that has lasted the longest. Under the lock. */
static const char *oldest_file(const struct team *t)
{
    const struct reader *oldest = NULL;
    for (int i = 0; i < t->readers; i++)
        if (t->reader[i].file[0] && (!oldest || t->reader[i].call < oldest->call))
            oldest = &t->reader[i];
    return oldest ? oldest->file : "the files of the weights";
}

static void say_wait(struct team *t)
{
    snprintf(t->waits, sizeof t->waits, "%s", oldest_file(t));
    fs_call_begin(t->waits);
}

/* Until something has moved. Under the lock, between say_wait and fs_call_end: to peers and to
 * run.io_timeout it is a new call where the readers have got on with theirs. */
static void wait_readers(struct team *t)
{
    int64_t done = t->done;
    pthread_cond_wait(&t->moved, &t->lock);
    if (t->done == done && strcmp(t->waits, oldest_file(t)) == 0)
        return;
    fs_call_end();
    say_wait(t);
}

/* ---- readers ---- */

/* Reads a range and hands it over, strip by strip, until the rank's thread wants no more. */
static enum err read_range(struct reader *d)
{
    struct team *t = d->of;
    const struct range *g = &t->range[d->range];
    const struct param *p = g->held.param;
    struct state_box box[3];
    int64_t cols = p->box.local[1], step = num_max(1, STRIP / cols) * cols, count;
    void *place = param_state_at(p, g->kind, g->held.from, g->held.to);
    step = place ? g->held.to - g->held.from : step;
    bool wanted = true;
    for (int64_t at = g->held.from; at < g->held.to && wanted; at += count) {
        count = num_min(step, g->held.to - at);
        int64_t bytes = count * p->store->at;
        if (!place && bytes > d->room) {
            mem_free(d->buffer);
            d->buffer = NULL;
            d->room = 0;
            TRY(mem_new(bytes, 1, p->spec.name, &d->buffer));
            d->room = bytes;
        }
        d->values = place ? place : d->buffer;
        d->from = at;
        d->to = at + count;
        char *out = d->values;
        for (int i = 0, n = state_boxes(cols, d->from, d->to, box); i < n; i++) {
            TRY(read_box(t->from, g, &box[i], out));
            out += state_box_elements(&box[i]) * p->store->at;
        }
        pthread_mutex_lock(&t->lock);
        d->full = true;
        pthread_cond_broadcast(&t->moved);
        while (d->full && !t->ended)
            pthread_cond_wait(&t->moved, &t->lock);
        wanted = !d->full;
        pthread_mutex_unlock(&t->lock);
    }
    return ERR_OK;
}

static void *read_ranges(void *arg)
{
    struct reader *d = arg;
    struct team *t = d->of;
    (void)fs_watch_set(&(struct fs_watch){.begin = on_begin, .end = on_end, .arg = d});
    pthread_mutex_lock(&t->lock);
    while (d->err.code == ERR_OK && !t->ended && t->next < t->n) {
        d->range = t->next++;
        pthread_mutex_unlock(&t->lock);
        err_keep(&d->err, read_range(d));
        pthread_mutex_lock(&t->lock);
    }
    t->ended = t->ended || d->err.code != ERR_OK;
    t->at_work--;
    pthread_cond_broadcast(&t->moved);
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

/* ---- the rank ---- */

/* A reader that has something; NULL: none will. It may take as long as a disk. */
static struct reader *wait_full(struct team *t)
{
    struct reader *found = NULL;
    pthread_mutex_lock(&t->lock);
    say_wait(t);
    for (;;) {
        for (int i = 0; i < t->readers && !found && !t->ended; i++)
            found = t->reader[i].full ? &t->reader[i] : NULL;
        if (found || t->at_work == 0 || t->ended)
            break;
        wait_readers(t);
    }
    fs_call_end();
    pthread_mutex_unlock(&t->lock);
    return found;
}

/* Starts the readers, and takes all that they read. */
static enum err run(struct team *t, int readers)
{
    struct reader *d;
    while (t->readers < readers) {
        d = &t->reader[t->readers];
        d->of = t;
        TRY(thread_start(&d->thread, read_ranges, d, "read weights"));
        pthread_mutex_lock(&t->lock); /* it may have ended by now */
        t->readers++;
        t->at_work++;
        pthread_mutex_unlock(&t->lock);
    }
    while ((d = wait_full(t)) != NULL) {
        const struct range *g = &t->range[d->range];
        TRY(param_state_write(g->held.param, g->kind, d->from, d->values, d->to - d->from));
        pthread_mutex_lock(&t->lock);
        d->full = false;
        pthread_cond_broadcast(&t->moved);
        pthread_mutex_unlock(&t->lock);
    }
    return ERR_OK;
}

/* The error of the first range of the list that has one, whichever was met first: those before it
 * were all begun. */
static enum err end(struct team *t, enum err err)
{
    struct err_kept mine;
    const struct reader *first = NULL;
    err_keep(&mine, err);
    pthread_mutex_lock(&t->lock);
    t->ended = t->ended || err != ERR_OK;
    pthread_cond_broadcast(&t->moved);
    say_wait(t); /* each ends with what it reads */
    while (t->at_work > 0)
        wait_readers(t);
    fs_call_end();
    pthread_mutex_unlock(&t->lock);
    for (int i = 0; i < t->readers; i++) {
        const struct reader *d = &t->reader[i];
        pthread_join(d->thread, NULL);
        mem_free(d->buffer);
        if (d->err.code != ERR_OK && (!first || d->range < first->range))
            first = d;
    }
    return err_again(first && mine.code == ERR_OK ? &first->err : &mine);
}

static enum err list_ranges(struct team *t, int kinds)
{
    const struct exec *x = t->k->x;
    int64_t most = 1;
    for (int i = 0; i < x->stages_here; i++)
        most += (int64_t)x->store[i]->n * (1 + (kinds - 1) * param_share_pieces(x->store[i]));
    TRY(mem_new(most, sizeof *t->range, "what a rank reads", &t->range));
    for (int i = 0; i < x->stages_here; i++)
        for (int j = 0; j < x->store[i]->n; j++) {
            int pieces = param_share_pieces(x->store[i]);
            const struct param *p = &x->store[i]->param[j];
            struct hf_place place;
            struct weights_tensor found;
            hf_place(&t->k->s->model, &p->spec, &place);
            TRY(weights_find(t->from, &place, &found));
            for (enum param_kind kind = 0; (int)kind < kinds; kind++)
                for (int k = 0; k < (kind == PARAM_WEIGHT ? 1 : pieces); k++) {
                    t->range[t->n] = (struct range){.place = place, .kind = kind};
                    t->n += param_held(p, kind, k, &t->range[t->n].held);
                }
        }
    return ERR_OK;
}

enum err load_stores(const struct rank *k, const struct weights *from, bool moments)
{
    struct team *t;
    TRY(mem_new(1, sizeof *t, "the readers of weights", &t));
    *t = (struct team){.k = k, .from = from, .lock = PTHREAD_MUTEX_INITIALIZER,
                       .moved = PTHREAD_COND_INITIALIZER};
    enum err err = list_ranges(t, moments ? PARAM_KINDS : PARAM_WEIGHT + 1);
    if (err == ERR_OK)
        err = end(t, run(t, (int)num_min(READERS, num_max(1, k->threads))));
    mem_free(t->range);
    mem_free(t);
    return err;
}
