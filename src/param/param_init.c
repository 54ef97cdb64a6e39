/* SPDX-License-Identifier: Apache-2.0
 *
 * The first weights: the master weights are drawn, what is computed with is cast from them on the
 * device. A billion of normals take one thread half a minute. Each is a pure function of seed, name
 * and index: a parameter is drawn in pieces, a piece by all threads in equal slices, and no cut
 * changes a bit.
 *
 * A device takes copies from its rank's thread alone, which copies a piece out of one of two host
 * buffers while threads draw the next into the other. These live for one piece: making one costs
 * little beside a slice. The pool of the cpu device flushes denormals: a tiny std would not give
 * the same bits there.
 */
#include "param/param.h"

#include <pthread.h>

enum { PIECE = 2 << 20, /* elements that are copied at once */
       SLICE = 32 << 10, /* elements that are worth a thread: a millisecond */
       RUN = 1024 };     /* elements that are doubles at once */

struct slice {
    const struct param *p; /* borrowed */
    uint64_t seed, stream;
    enum dtype dt;
    char *out;             /* borrowed: where its elements go */
    int64_t first, n;      /* elements of the local box */
    pthread_t thread;
};

struct drawer {
    struct param_store *s; /* borrowed */
    uint64_t seed;
    int threads, started;  /* started: threads at work on the piece under way */
    struct slice *slice;   /* owned; [threads] */
    char *buffer[2];       /* owned; each of a piece in the master's type */
    int which;             /* the buffer of the next piece */
    const char *drawn;     /* the piece that is to be copied: borrowed from buffer; NULL: none */
    char *to;              /* and where to, device memory */
    int64_t bytes;
};

/* Elements [row][col] .. [row][col + n - 1] of the local box; rows and columns that only fill up
 * are zeros. */
static void draw_run(const struct slice *s, int64_t row, int64_t col, int64_t n, double *x)
{
    const struct model_box *b = &s->p->box;
    const struct model_param *spec = &s->p->spec;
    int64_t real = row < b->real[0] ? num_max(0, num_min(n, b->real[1] - col)) : 0;
    if (spec->init == INIT_NORMAL)
        num_normals(s->seed, s->stream, (b->at[0] + row) * spec->shape[1] + b->at[1] + col, real,
                    x);
    for (int64_t i = 0; i < real; i++)
        x[i] = spec->init == INIT_NORMAL ? x[i] * spec->std : spec->init == INIT_ONE ? 1.0 : 0.0;
    for (int64_t i = real; i < n; i++)
        x[i] = 0;
}

static void *draw_slice(void *arg)
{
    const struct slice *s = arg;
    int64_t cols = s->p->box.local[1], n;
    enum dtype dt = s->dt;
    double x[RUN];
    for (int64_t done = 0; done < s->n; done += n) {
        int64_t row = (s->first + done) / cols, col = (s->first + done) % cols;
        n = num_min(num_min(s->n - done, cols - col), RUN);
        draw_run(s, row, col, n, x);
        for (int64_t i = 0; i < n; i++)
            dtype_put(s->out, dt, done + i, x[i]);
    }
    return NULL;
}

/* Have elements first .. first + n - 1 of p drawn into the next buffer: on return by threads that
 * are at work, or done. */
static enum err start(struct drawer *d, const struct param *p, int64_t first, int64_t n)
{
    int slices = (int)num_min(d->threads, num_ceil_div(n, SLICE));
    int64_t share = num_ceil_div(n, slices);
    enum dtype dt = param_master_type(d->s);
    uint64_t stream = num_hash(p->spec.name);
    for (int i = 0; i < slices; i++) {
        int64_t at = num_min(i * share, n);
        struct slice *s = &d->slice[i];
        *s = (struct slice){.p = p, .seed = d->seed, .stream = stream, .dt = dt,
                            .out = d->buffer[d->which] + at * dtype_size(dt), .first = first + at,
                            .n = num_min(share, n - at)};
        if (slices == 1)
            draw_slice(s);
        else if (pthread_create(&s->thread, NULL, draw_slice, s) == 0)
            d->started = i + 1;
        else
            FAIL(ERR_MEMORY, "tensor: thread %d of %d that draw the weights cannot be started; "
                 "set train.threads to fewer", i + 1, slices);
    }
    return ERR_OK;
}

static enum err copy_drawn(struct drawer *d)
{
    struct dev *dev = d->s->dev;
    return d->drawn ? dev_h2d(dev, d->to, d->drawn, d->bytes) : ERR_OK;
}

/* Draws a piece, and copies the one before meanwhile. */
static enum err piece(struct drawer *d, const struct param *p, int64_t first, int64_t n)
{
    int64_t size = dtype_size(param_master_type(d->s));
    enum err err = start(d, p, first, n);
    if (err == ERR_OK)
        err = copy_drawn(d);
    while (d->started > 0)
        pthread_join(d->slice[--d->started].thread, NULL);
    d->drawn = d->buffer[d->which];
    d->to = (char *)param_master(p) + first * size;
    d->bytes = n * size;
    d->which = !d->which;
    return err;
}

enum err param_init(struct param_store *s, uint64_t seed, int threads)
{
    struct drawer d = {.s = s, .seed = seed, .threads = threads};
    int64_t most = 0;
    enum err err;
    ENSURE(threads >= 1);
    for (int i = 0; i < s->n; i++)
        most = num_max(most, num_min(PIECE, s->param[i].count));
    size_t bytes = (size_t)(most * dtype_size(param_master_type(s)));
    TRY(mem_new(threads, sizeof *d.slice, "the threads that draw the weights", &d.slice));
    TRY_OR(out_free, mem_new(2, bytes, "weights on their way to the device", &d.buffer[0]));
    d.buffer[1] = d.buffer[0] + bytes;
    for (int i = 0; i < s->n; i++)
        for (int64_t at = 0; at < s->param[i].count; at += PIECE)
            TRY_OR(out_free, piece(&d, &s->param[i], at, num_min(PIECE, s->param[i].count - at)));
    TRY_OR(out_free, copy_drawn(&d));
    if (s->master != s->w) /* rounded twice, as the optimizer does; the padding is zeros in both */
        TRY_OR(out_free, dev_cast(s->dev, s->w, s->whole, s->elements));
    TRY_OR(out_free, s->dev->ops->sync(s->dev));
out_free:
    mem_free(d.buffer[0]);
    mem_free(d.slice);
    return err;
}
