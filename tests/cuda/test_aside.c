/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies aside on a GPU: they read what the queue had left when they were begun, though what comes
 * behind aside_join writes over it, be that queued call by call or in one recording that is
 * replayed with copies beside it and without. They are long, and what writes is quick, so that
 * without the wait they would be torn. And the queue goes on beside them. Runs where this process
 * sees a GPU.
 */
#include "gpus.h"

#include "base/log.h"
#include "device/device.h"
#include "test.h"

enum { BYTES = 256 << 20, ROUNDS = 4, GPUS_MAX = 1 };

struct rig {
    struct dev *dev;
    char *store, *host; /* device, pinned; BYTES */
};

static bool open_rig(struct rig *r)
{
    struct dev_args a = {.kind = DEV_CUDA, .ct = DT_BF16, .threads = 1, .records = true};
    *r = (struct rig){0};
    if (gpus_here(GPUS_MAX) == 0) {
        test_skip("no GPU");
        return false;
    }
    CHECK_OK(dev_open(&a, &r->dev));
    CHECK_OK(r->dev->ops->alloc(r->dev, BYTES, "what is copied", (void **)&r->store));
    CHECK_OK(r->dev->ops->host_alloc(r->dev, BYTES, "copies", (void **)&r->host));
    return true;
}

static void close_rig(struct rig *r)
{
    r->dev->ops->free(r->dev, r->store);
    r->dev->ops->host_free(r->dev, r->host);
    dev_close(r->dev);
}

/* The store is of `byte`, behind all that is queued. */
static void fill(struct rig *r, char byte)
{
    static char block[1 << 20];
    memset(block, byte, sizeof block);
    CHECK_OK(r->dev->ops->copy_in(r->dev, r->store, block, sizeof block));
    for (int64_t done = sizeof block; done < BYTES; done *= 2)
        CHECK_OK(r->dev->ops->copy(r->dev, r->store + done, r->store, done));
}

static int64_t other_than(const struct rig *r, char byte)
{
    int64_t other = 0;
    for (int64_t i = 0; i < BYTES; i++)
        other += r->host[i] != byte;
    return other;
}

static void update(struct rig *r)
{
    CHECK_OK(r->dev->ops->aside_join(r->dev));
    CHECK_OK(r->dev->ops->zero(r->dev, r->store, BYTES));
}

static void copies_are_whole(void)
{
    struct rig r;
    bool there = false;
    if (!open_rig(&r))
        return;
    for (int i = 1; i <= ROUNDS; i++) {
        fill(&r, (char)i);
        CHECK_OK(r.dev->ops->aside(r.dev, r.host, r.store, BYTES));
        update(&r);
        CHECK_OK(r.dev->ops->aside_reach(r.dev, NULL));
        CHECK_INT(other_than(&r, (char)i), 0);
        CHECK_OK(r.dev->ops->aside_reach(r.dev, &there));
        CHECK(there);
    }
    CHECK_OK(r.dev->ops->sync(r.dev));
    close_rig(&r);
}

static void replays_wait_for_theirs(void)
{
    struct rig r;
    struct dev_recording *step = NULL;
    if (!open_rig(&r))
        return;
    update(&r); /* as a step before the recorded one */
    CHECK_OK(r.dev->ops->record_begin(r.dev));
    update(&r);
    CHECK_OK(r.dev->ops->record_end(r.dev, &step));
    for (int i = 1; i <= ROUNDS; i++) {
        fill(&r, (char)i);
        if (i == 2) { /* without a copy */
            CHECK_OK(r.dev->ops->replay(r.dev, step));
            continue;
        }
        CHECK_OK(r.dev->ops->aside(r.dev, r.host, r.store, BYTES));
        CHECK_OK(r.dev->ops->replay(r.dev, step));
        CHECK_OK(r.dev->ops->aside_reach(r.dev, NULL));
        CHECK_INT(other_than(&r, (char)i), 0);
    }
    CHECK_OK(r.dev->ops->sync(r.dev));
    r.dev->ops->forget(r.dev, step);
    close_rig(&r);
}

/* Work that does not touch the store is done before the copy is, where the queue's last was itself
 * a copy to the host, as a step's sums are, and its next is a mark. */
static void the_queue_goes_on(void)
{
    struct rig r;
    bool there = true;
    char *other;
    if (!open_rig(&r))
        return;
    CHECK_OK(r.dev->ops->alloc(r.dev, 1 << 20, "other work", (void **)&other));
    CHECK_OK(r.dev->ops->copy_out(r.dev, r.host, r.store, 64));
    CHECK_OK(r.dev->ops->sync(r.dev));
    double begin = log_now();
    CHECK_OK(r.dev->ops->aside(r.dev, r.host, r.store, BYTES));
    double queued = log_now();
    CHECK_OK(r.dev->ops->mark(r.dev, 0));
    CHECK_OK(r.dev->ops->zero(r.dev, other, 1 << 20));
    CHECK_OK(r.dev->ops->sync(r.dev));
    double done = log_now();
    CHECK_OK(r.dev->ops->aside_reach(r.dev, &there));
    CHECK(!there);
    CHECK_OK(r.dev->ops->aside_reach(r.dev, NULL));
    double copied = log_now();
    printf("     %d MiB aside: queued in %.3f ms, other work done after %.3f ms, copied after %.3f "
           "ms, %.1f GB/s\n", BYTES >> 20, 1e3 * (queued - begin), 1e3 * (done - begin),
           1e3 * (copied - begin), BYTES / (copied - begin) * 1e-9);
    r.dev->ops->free(r.dev, other);
    close_rig(&r);
}

static const struct test_case cases[] = {
    {"copies_are_whole", copies_are_whole},
    {"replays_wait_for_theirs", replays_wait_for_theirs},
    {"the_queue_goes_on", the_queue_goes_on},
};
TEST_MAIN(cases)
