/* SPDX-License-Identifier: Apache-2.0
 *
 * Snapshots on a GPU, slot by slot: they read what the queue had left when their slot was ready,
 * though what comes behind snapshot_join writes over it, be that queued call by call or in one
 * recording that is replayed with copies beside it and without. They are long, and what writes is
 * quick, so that without the wait they would be torn. They begin with the first slot that is ready,
 * whatever is queued behind it, and the queue goes on beside them. Runs where this process sees a
 * GPU.
 */
#include "gpus.h"

#include "base/log.h"
#include "device/device.h"
#include "test.h"

enum { SLOTS = 4, EACH = 64 << 20, BYTES = SLOTS * EACH, ROUNDS = 4, GPUS_MAX = 1 };

struct rig {
    struct dev *dev;
    char *store, *host; /* device, pinned; BYTES */
    char *other;        /* device; BYTES that nobody copies */
};

static bool open_rig(struct rig *r)
{
    struct dev_args a = {.kind = DEV_CUDA, .ct = DT_BF16, .threads = 1, .graph = true};
    *r = (struct rig){0};
    if (gpus_here(GPUS_MAX) == 0) {
        test_skip("no GPU");
        return false;
    }
    CHECK_OK(dev_open(&a, &r->dev));
    CHECK_OK(r->dev->ops->alloc(r->dev, BYTES, "what is copied", (void **)&r->store));
    CHECK_OK(r->dev->ops->alloc(r->dev, BYTES, "other work", (void **)&r->other));
    CHECK_OK(r->dev->ops->host_alloc(r->dev, BYTES, "copies", (void **)&r->host));
    return true;
}

static void close_rig(struct rig *r)
{
    CHECK_OK(r->dev->ops->sync(r->dev));
    r->dev->ops->free(r->dev, r->store);
    r->dev->ops->free(r->dev, r->other);
    r->dev->ops->host_free(r->dev, r->host);
    dev_close(r->dev);
}

/* The store is of `byte`, behind all that is queued. */
static void fill(struct rig *r, char byte)
{
    static char block[1 << 20];
    memset(block, byte, sizeof block);
    CHECK_OK(dev_h2d(r->dev, r->store, block, sizeof block));
    for (int64_t done = sizeof block; done < BYTES; done *= 2)
        CHECK_OK(dev_copy(r->dev, r->store + done, r->store, done));
    for (int slot = 0; slot < SLOTS; slot++)
        CHECK_OK(r->dev->ops->snapshot_ready(r->dev, slot));
}

static void take_snapshot(struct rig *r)
{
    for (int slot = 0; slot < SLOTS; slot++) {
        int64_t at = (int64_t)slot * EACH;
        CHECK_OK(dev_snapshot(r->dev, &(struct snapshot){r->host + at, r->store + at, EACH, slot}));
    }
}

static int64_t other_than(const struct rig *r, char byte)
{
    int64_t other = 0;
    for (int64_t i = 0; i < BYTES; i++)
        other += r->host[i] != byte;
    return other;
}

/* As an optimizer goes through the slots; zeros behind it. */
static void update(struct rig *r)
{
    for (int slot = 0; slot < SLOTS; slot++) {
        CHECK_OK(r->dev->ops->snapshot_join(r->dev, slot));
        CHECK_OK(dev_zero(r->dev, r->store + (int64_t)slot * EACH, EACH));
        CHECK_OK(r->dev->ops->snapshot_ready(r->dev, slot));
    }
}

static void copies_are_whole(void)
{
    struct rig r;
    bool there = false;
    if (!open_rig(&r))
        return;
    for (int i = 1; i <= ROUNDS; i++) {
        fill(&r, (char)i);
        take_snapshot(&r);
        update(&r);
        CHECK_OK(r.dev->ops->snapshot_synchronize(r.dev, NULL));
        CHECK_INT(other_than(&r, (char)i), 0);
        CHECK_OK(r.dev->ops->snapshot_synchronize(r.dev, &there));
        CHECK(there);
    }
    close_rig(&r);
}

static struct dev_graph *record_update(struct rig *r)
{
    struct dev_graph *step = NULL;
    update(r); /* as a step before the recorded one */
    CHECK_OK(r->dev->ops->graph_begin(r->dev));
    update(r);
    CHECK_OK(r->dev->ops->graph_end(r->dev, &step));
    return step;
}

/* Replays of a step, each with copies that are begun in front of it, but for the second, which has
 * none, or behind it: they are of what the store has there. */
static void replay_beside_copies(bool copies_first)
{
    struct rig r;
    if (!open_rig(&r))
        return;
    struct dev_graph *step = record_update(&r);
    for (int i = 1; i <= ROUNDS; i++) {
        bool none = copies_first && i == 2;
        fill(&r, (char)i);
        if (copies_first && !none)
            take_snapshot(&r);
        CHECK_OK(r.dev->ops->graph_launch(r.dev, step));
        if (!copies_first)
            take_snapshot(&r);
        CHECK_OK(r.dev->ops->snapshot_synchronize(r.dev, NULL));
        if (!none)
            CHECK_INT(other_than(&r, copies_first ? (char)i : 0), 0);
    }
    CHECK_OK(r.dev->ops->sync(r.dev));
    r.dev->ops->graph_destroy(r.dev, step);
    close_rig(&r);
}

static void replays_wait_for_theirs(void)
{
    replay_beside_copies(true);
}

static void copies_wait_for_replays(void)
{
    replay_beside_copies(false);
}

/* Milliseconds of kernels that do not touch the store; so few that the queue takes them while the
 * host goes on. No zeros: a copy engine may make those. */
static void work(struct rig *r)
{
    int64_t half = BYTES / 2, n = half / (int64_t)sizeof(float);
    for (int i = 0; i < 128; i++)
        CHECK_OK(dev_add(r->dev, r->other, r->other + half, n));
}

/* Copies of a few bytes of each slot are there before the queue is through the work behind the
 * slots' ends, `by` a replay or calls, though they are begun when it is queued. */
static void copies_are_first(struct rig *r, char *passed, char byte, double begin, const char *by)
{
    CHECK_OK(dev_d2h(r->dev, passed, r->store, 64));
    for (int slot = 0; slot < SLOTS; slot++)
        CHECK_OK(dev_snapshot(r->dev,
                              &(struct snapshot){r->host + (slot << 10),
                                                 r->store + (int64_t)slot * EACH, 1 << 10, slot}));
    CHECK_OK(r->dev->ops->snapshot_synchronize(r->dev, NULL));
    double copied = log_now();
    CHECK_INT(*(volatile char *)passed, 7);
    for (int i = 0; i < SLOTS << 10; i++)
        CHECK_INT(r->host[i], byte);
    CHECK_OK(r->dev->ops->sync(r->dev));
    CHECK_INT(*(volatile char *)passed, byte);
    printf("     %s: copied after %.3f ms, the queue through after %.3f ms\n", by,
           1e3 * (copied - begin), 1e3 * (log_now() - begin));
}

static void copies_begin_with_their_slot(void)
{
    struct rig r;
    char *passed;
    if (!open_rig(&r))
        return;
    CHECK_OK(r.dev->ops->host_alloc(r.dev, 64, "where the queue is", (void **)&passed));
    work(&r); /* first launches load modules, which waits for the device */
    CHECK_OK(dev_d2h(r.dev, passed, r.store, 64));
    for (int i = 1; i <= ROUNDS; i++) {
        fill(&r, 9);
        CHECK_OK(r.dev->ops->sync(r.dev));
        *passed = 7;
        double begin = log_now();
        update(&r);
        work(&r);
        copies_are_first(&r, passed, 0, begin, "calls");
    }
    CHECK_OK(r.dev->ops->graph_begin(r.dev));
    struct dev_graph *step = NULL;
    update(&r);
    work(&r);
    CHECK_OK(r.dev->ops->graph_end(r.dev, &step));
    for (int i = 1; i <= ROUNDS; i++) {
        fill(&r, 9);
        CHECK_OK(r.dev->ops->sync(r.dev));
        *passed = 7;
        double begin = log_now();
        CHECK_OK(r.dev->ops->graph_launch(r.dev, step));
        copies_are_first(&r, passed, 0, begin, "a replay");
    }
    r.dev->ops->graph_destroy(r.dev, step);
    r.dev->ops->host_free(r.dev, passed);
    close_rig(&r);
}

/* Work that does not touch the store is done before the copy is, where the queue's last was itself
 * a copy of a few bytes to the host, as a step's sums are, and its next is an event. */
static void the_queue_goes_on(void)
{
    struct rig r;
    bool there = true;
    char *sums;
    if (!open_rig(&r))
        return;
    CHECK_OK(r.dev->ops->host_alloc(r.dev, 64, "sums", (void **)&sums));
    fill(&r, 1);
    CHECK_OK(r.dev->ops->sync(r.dev));
    double begin = log_now();
    take_snapshot(&r);
    double queued = log_now();
    CHECK_OK(dev_d2h(r.dev, sums, r.store, 64));
    CHECK_OK(r.dev->ops->event_record(r.dev, 0));
    CHECK_OK(dev_zero(r.dev, r.other, 1 << 20));
    CHECK_OK(r.dev->ops->sync(r.dev));
    double done = log_now();
    CHECK_OK(r.dev->ops->snapshot_synchronize(r.dev, &there));
    CHECK(!there);
    CHECK_INT(sums[63], 1);
    CHECK_OK(r.dev->ops->snapshot_synchronize(r.dev, NULL));
    double copied = log_now();
    printf("     %d MiB: queued in %.3f ms, other work done after %.3f ms, copied after %.3f "
           "ms, %.1f GB/s\n",
           BYTES >> 20, 1e3 * (queued - begin), 1e3 * (done - begin), 1e3 * (copied - begin),
           BYTES / (copied - begin) * 1e-9);
    r.dev->ops->host_free(r.dev, sums);
    close_rig(&r);
}

static const struct test_case cases[] = {
    {"copies_are_whole", copies_are_whole},
    {"replays_wait_for_theirs", replays_wait_for_theirs},
    {"copies_wait_for_replays", copies_wait_for_replays},
    {"copies_begin_with_their_slot", copies_begin_with_their_slot},
    {"the_queue_goes_on", the_queue_goes_on},
};
TEST_MAIN(cases)
