/* SPDX-License-Identifier: Apache-2.0
 *
 * Two ranks, threads of this process, each with a GPU, or both with the only one, a buffer there,
 * and groups of both in its memory and the host's; and what tests of failing share.
 */
#ifndef PLAIT_TEST_TWO_GPUS_H
#define PLAIT_TEST_TWO_GPUS_H

#include "comm/comm.h"

#include "base/log.h"
#include "base/mem.h"
#include "device/device.h"
#include "gpus.h"
#include "test.h"
#include <string.h>
#include <time.h>

enum { RANKS = 2, MOST = (3 << 20) + 5, ABORT_S = 5, HANG_S = 3 };

struct side {
    struct comm_world *w;
    struct dev *dev;
    struct comm_group *gpu, *host;
    void *d, *got, *want; /* (MOST) f64: device, host, host */
    struct dev_graph *r;  /* owned; NULL: none */
    char *window;            /* the transport's, of a test that took one */
    int me;
};

/* How many there are: 1 is shared by both ranks. */
static int gpus;

/* A GPU that cannot be opened is a machine without it only at the first case: behind that, it is
 * what a failed rank has left of it. */
static inline bool two_ranks(void)
{
    comm_environment();
    int here = gpus_here(RANKS);
    if (here < gpus)
        test_check(false, __FILE__, __LINE__, "GPU %d does not open again: %s", here, err_text());
    else if (here == 0)
        test_skip("no GPU");
    gpus = here > gpus ? here : gpus;
    return here > 0 && here == gpus;
}

/* For what ranks of one GPU cannot do. */
static inline bool two_gpus(void)
{
    bool ranks = two_ranks();
    if (ranks && gpus < RANKS)
        test_skip("two GPUs are needed");
    return ranks && gpus == RANKS;
}

static inline enum err side_open(struct side *s)
{
    int ranks[RANKS] = {0, 1};
    int64_t bytes = MOST * (int64_t)sizeof(double);
    TRY(dev_open(&(struct dev_args){.kind = DEV_CUDA, .ct = DT_F32, .threads = 1,
                                    .index = gpus > 1 ? s->me : 0}, &s->dev));
    TRY(comm_attach(s->w, s->dev, true));
    TRY(s->dev->ops->alloc(s->dev, bytes, "the buffer", &s->d));
    TRY(mem_new(bytes, 1, "what came", &s->got));
    TRY(mem_new(bytes, 1, "what should come", &s->want));
    struct comm_group_args a = {.id = 1, .ranks = ranks, .n = RANKS, .mem = COMM_DEVICE};
    TRY(comm_group_open(s->w, &a, &s->gpu));
    a.id = 2;
    a.mem = COMM_HOST;
    return comm_group_open(s->w, &a, &s->host);
}

static inline void forget(void *arg)
{
    struct side *s = arg;
    if (s->r)
        s->dev->ops->graph_destroy(s->dev, s->r);
    s->r = NULL;
}

static inline enum err side_close(struct side *s, enum err err)
{
    if (err != ERR_OK)
        comm_abort(s->w, err);
    forget(s);
    comm_group_close(s->gpu);
    comm_group_close(s->host);
    enum err last = comm_detach(s->w);
    if (s->dev && s->d)
        s->dev->ops->free(s->dev, s->d);
    dev_close(s->dev);
    mem_free(s->got);
    mem_free(s->want);
    return err == ERR_OK ? last : err;
}

static inline enum err with_side(struct comm_world *w, enum err (*body)(struct side *s))
{
    struct side s = {.w = w, .me = comm_rank(w)};
    enum err err = side_open(&s);
    if (err == ERR_OK)
        err = body(&s);
    return side_close(&s, err);
}

/* Whole numbers -4 .. 3, others on each rank, exact in every type. */
static inline void fill(const struct side *s, void *p, int64_t count, enum dtype dt)
{
    for (int64_t i = 0; i < count; i++) {
        int v = (int)((i * 7 + s->me * 3 + count) % 8) - 4;
        float f = (float)v;
        uint32_t bits;
        memcpy(&bits, &f, sizeof bits);
        if (dt == DT_F64)
            ((double *)p)[i] = v;
        else if (dt == DT_F32)
            ((float *)p)[i] = f;
        else if (dt == DT_BF16)
            ((uint16_t *)p)[i] = (uint16_t)(bits >> 16);
        else
            ((int32_t *)p)[i] = v;
    }
}

/* An all_to_all from 2 * count elements at `in` to as many at `out`: counts differ, and are 0 where
 * `count` is small. */
static inline enum err exchange(struct comm_group *g, void *out, const void *in, int64_t count,
                                enum dtype dt)
{
    int64_t at[RANKS] = {0, count}, send[RANKS], recv[RANKS];
    struct comm_to_all a = {.out = out, .in = in, .recv = {recv, at}, .send = {send, at},
                            .dt = dt};
    for (int i = 0; i < RANKS; i++) {
        send[i] = count * (1 + comm_group_rank(g) + 2 * i) / 5;
        recv[i] = count * (1 + i + 2 * comm_group_rank(g)) / 5;
    }
    return comm_all_to_all(g, &a);
}

/* A rank that stays away, and then fails. */
static inline enum err stumble(struct side *s)
{
    (void)s;
    nanosleep(&(struct timespec){1, 0}, NULL);
    FAIL(ERR_STORAGE, "rank 1 stumbles");
}

static inline enum err run_side(void *arg, struct comm_world *w)
{
    return with_side(w, *(enum err (**)(struct side *))arg);
}

static inline enum err run(enum err (*body)(struct side *s), double timeout_s)
{
    return comm_thread_run(RANKS, timeout_s, run_side, &body);
}

#endif
