/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums to owners and gathers in chunks (comm/core/request.c) between two to eight GPUs of one
 * process, or as many ranks of one GPU, where there are fewer, against the same in host memory. A
 * chunk is written by the device's queue just before it starts, and read just behind its end, and
 * until then all is NaN; GPUs come to each chunk at other times, each round another one last.
 */
#include "comm/comm.h"

#include "base/mem.h"
#include "device/device.h"
#include "gpus.h"
#include "test.h"

#include <string.h>

enum { MOST = 8, ROUNDS = 6, WARM = 2, WINDOW = 272 << 20, LATE = 48 << 20, PASSES = 40 };

struct side {
    struct comm_world *w;
    struct dev *dev;
    struct comm_group *gpu, *host;
    char *window, *late; /* device: the transport's; LATE bytes that are zeroed to be late */
    int n, me;
};

/* `count` elements of a part; bytes: of one. */
struct part { int64_t count, bytes; enum dtype dt; };
static const struct part parts[] = {
    {1, 4, DT_F32}, {77, 2, DT_BF16}, {1 << 20, 2, DT_BF16}, {(3 << 20) + 8, 2, DT_BF16},
    {2 << 20, 4, DT_F32}, {0, 2, DT_BF16},
};
enum { PARTS = sizeof parts / sizeof *parts };

/* Whole numbers -4 .. 3, exact in both types, as all their sums are. */
static void fill(char *p, const struct part *x, int64_t n, int seed)
{
    for (int64_t i = 0; i < n; i++) {
        float f = (float)((i * 5 + seed * 3 + i / 97) % 8 - 4);
        uint32_t bits;
        memcpy(&bits, &f, sizeof bits);
        if (x->dt == DT_BF16)
            ((uint16_t *)p)[i] = (uint16_t)(bits >> 16);
        else
            ((float *)p)[i] = f;
    }
}

/* Some zeroing on this rank's queue, the more the nearer it stands behind rank `first`. */
static enum err be_late(struct side *s, int first)
{
    for (int i = 0; i < PASSES * ((s->me - first + s->n) % s->n); i++)
        TRY(dev_zero(s->dev, s->late, LATE));
    return ERR_OK;
}

/* host: (n parts) this rank's summands, (n parts) of NaN, (1 part) what should come, what came. */
static enum err scatter(struct side *s, const struct part *x, char *host, int round)
{
    struct comm_req r[MOST] = {{0}};
    int64_t bytes = x->count * x->bytes, all = s->n * bytes;
    char *none = host + all, *want = none + all, *got = want + bytes;
    char *in = s->window, *out = s->window + all;
    TRY(dev_h2d(s->dev, in, none, all));
    for (int k = 1; k <= s->n; k++) {
        int64_t at = (s->me + k) % s->n * bytes;
        TRY(be_late(s, round + k));
        TRY(dev_h2d(s->dev, in + at, host + at, bytes));
        TRY(comm_reduce_scatter_chunk_start(s->gpu, k, out, in, x->count, x->dt, &r[k - 1]));
    }
    for (int k = 1; k <= s->n; k++)
        TRY(comm_finish(&r[k - 1]));
    TRY(dev_d2h(s->dev, got, out, bytes));
    TRY(s->dev->ops->sync(s->dev));
    TRY(comm_reduce_scatter(s->host, want, host, x->count, x->dt));
    test_check(memcmp(got, want, (size_t)bytes) == 0, __FILE__, __LINE__,
               "scatter of %lld, %d ranks, rank %d, round %d", (long long)x->count, s->n, s->me,
               round);
    return ERR_OK;
}

/* host: as above, the first part this rank's, the last n what came. */
static enum err gather(struct side *s, const struct part *x, char *host, int round)
{
    struct comm_req r[MOST] = {{0}};
    int64_t bytes = x->count * x->bytes, all = s->n * bytes;
    char *none = host + all, *want = none + all, *got = want + all;
    char *in = s->window, *out = s->window + all;
    TRY(dev_h2d(s->dev, out, none, all));
    TRY(be_late(s, round));
    TRY(dev_h2d(s->dev, in, host, bytes));
    for (int k = 1; k < s->n; k++)
        TRY(comm_all_gather_chunk_start(s->gpu, k, out, in, x->count, x->dt, &r[k - 1]));
    for (int k = 1; k < s->n; k++) {
        int64_t at = (s->me + k) % s->n * bytes;
        TRY(comm_finish(&r[k - 1]));
        TRY(dev_d2h(s->dev, got + at, out + at, bytes));
    }
    TRY(dev_d2h(s->dev, got + s->me * bytes, out + s->me * bytes, bytes));
    TRY(s->dev->ops->sync(s->dev));
    TRY(comm_all_gather(s->host, want, host, x->count, x->dt));
    test_check(memcmp(got, want, (size_t)all) == 0, __FILE__, __LINE__,
               "gather of %lld, %d ranks, rank %d, round %d", (long long)x->count, s->n, s->me,
               round);
    return ERR_OK;
}

/* Scatters and gathers by turns, so that each finds the words of the other. */
static enum err rounds(struct side *s)
{
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < PARTS; i++) {
            const struct part *x = &parts[i];
            int64_t bytes = x->count * x->bytes;
            char *host;
            CHECK(comm_group_chunks(s->gpu, bytes));
            TRY(mem_new(4 * s->n * bytes + 1, 1, "parts", &host));
            fill(host, x, s->n * x->count, 10 * round + s->me);
            memset(host + s->n * bytes, 0xff, (size_t)(3 * s->n * bytes));
            enum err err = scatter(s, x, host, round);
            memset(host + s->n * bytes, 0xff, (size_t)(3 * s->n * bytes));
            if (err == ERR_OK)
                err = gather(s, x, host, round);
            mem_free(host);
            TRY(err);
        }
        if (round == WARM)
            comm_warmup_end(s->w);
    }
    TRY(s->dev->ops->sync(s->dev));
    return comm_barrier(s->host);
}

static bool shared; /* all ranks have the first GPU */

static enum err open_side(struct side *s)
{
    int ranks[MOST] = {0, 1, 2, 3, 4, 5, 6, 7};
    TRY(dev_open(&(struct dev_args){.kind = DEV_CUDA, .ct = DT_F32, .threads = 1,
                                    .index = shared ? 0 : s->me}, &s->dev));
    TRY(comm_attach(s->w, s->dev, true));
    TRY(s->dev->ops->alloc(s->dev, LATE, "to be late", (void **)&s->late));
    TRY(comm_window_take(s->w, WINDOW, "a window", (void **)&s->window));
    struct comm_group_args a = {.id = 1, .ranks = ranks, .n = s->n, .mem = COMM_DEVICE,
                                .window = s->window, .window_bytes = WINDOW, .also_nccl = true};
    TRY(comm_group_open(s->w, &a, &s->gpu));
    CHECK(comm_group_copies(s->gpu) == comm_gpus_reach(ranks, s->n));
    struct comm_group_args host = {.id = 2, .ranks = ranks, .n = s->n};
    return comm_group_open(s->w, &host, &s->host);
}

static enum err body(void *arg, struct comm_world *w)
{
    struct side s = {.w = w, .n = comm_size(w), .me = comm_rank(w)};
    (void)arg;
    enum err err = open_side(&s);
    if (err == ERR_OK)
        err = rounds(&s);
    if (err != ERR_OK)
        comm_abort(w, err);
    comm_group_close(s.gpu);
    comm_group_close(s.host);
    enum err last = comm_detach(w);
    if (s.dev && s.late)
        s.dev->ops->free(s.dev, s.late);
    dev_close(s.dev);
    return err == ERR_OK ? last : err;
}

static void between(int n)
{
    comm_environment();
    int here = gpus_here(n);
    if (here == 0) {
        test_skip("no GPU");
        return;
    }
    shared = here < n;
    CHECK_OK(comm_thread_run(n, 60, body, NULL));
}

static void two(void) { between(2); }
static void three(void) { between(3); }
static void four(void) { between(4); }
static void eight(void) { between(8); }

static const struct test_case cases[] = {
    {"two", two}, {"three", three}, {"four", four}, {"eight", eight}};
TEST_MAIN(cases)
