/* SPDX-License-Identifier: Apache-2.0
 *
 * One all-gather of eight 64-bit digests a rank. Paths are left out of the configuration's digest:
 * a file may have another name on another host, its content may not differ.
 */
#include "train/handshake.h"

#include "base/mem.h"
#include "plait.h"

#include <stdio.h>

enum { DIGESTS = 9, GREETING = 32767 /* a group id above those of layouts */ };

static const char *const digest_name[DIGESTS] = {
    "version of plait", "configuration", "parallel.costs", "schedule", "data.train", "data.valid",
    "the prompt or an option", "the weights", "what the environment decides (PLAIT_ATTN_GRAD)"};

/* Keys are compared, and files; what else a plan goes by is decided. */
static uint64_t decisions_digest(const struct setup *s)
{
    uint64_t sum = 0;
    for (int i = 0; i < DECISIONS; i++)
        sum = 1099511628211u * sum + (uint64_t)s->decided[i].value;
    return sum;
}

static enum err config_digest(const struct options *o, uint64_t *out)
{
    struct options bare = *o;
    struct text yaml = {0};
    char *page;
    bare.parallel.costs[0] = bare.data.train[0] = bare.data.valid[0] = bare.run.dir[0] = '\0';
    bare.model.init[0] = '\0';
    conf_print(&options_table, &bare, &yaml);
    TRY(text_done(&yaml, &page));
    *out = num_hash(page);
    mem_free(page);
    return ERR_OK;
}

/* The times themselves; how the file is written does not matter. */
static enum err costs_digest(const struct setup *s, uint64_t *out)
{
    struct text times = {0};
    char *page;
    for (int i = 0; s->time && i < s->sched.stages; i++)
        for (int op = 0; op < SCHED_COMPUTE_OPS; op++)
            text_add(&times, "%.17g\n", s->time[i][op]);
    TRY(text_done(&times, &page));
    *out = num_hash(page);
    mem_free(page);
    return ERR_OK;
}

/* Ranks whose digest is not rank 0's, as text. */
static void list_odd(const uint64_t *all, int ranks, int which, char *buf, size_t size)
{
    size_t used = 0;
    buf[0] = '\0';
    for (int r = 1; r < ranks && used + 16 < size; r++)
        if (all[r * DIGESTS + which] != all[which])
            used += (size_t)snprintf(buf + used, size - used, "%s%d", used ? ", " : "", r);
}

static enum err compare(const uint64_t *all, int ranks)
{
    for (int which = 0; which < DIGESTS; which++) {
        char odd[256];
        list_odd(all, ranks, which, odd, sizeof odd);
        if (odd[0])
            FAIL(ERR_MISMATCH,
                 "start: %s differs between rank 0 and rank %s; give all ranks the same",
                 digest_name[which], odd);
    }
    return ERR_OK;
}

/* All digests in rank order, through a group that is only opened for this. */
static enum err exchange(struct comm_world *world, const uint64_t *mine, uint64_t *all)
{
    struct comm_group *group;
    int *ranks, size = comm_size(world);
    int64_t bytes = DIGESTS * (int64_t)sizeof *all;
    TRY(mem_new(size, sizeof *ranks, "the ranks of the world", &ranks));
    for (int r = 0; r < size; r++)
        ranks[r] = r;
    struct comm_group_args a = {.id = GREETING, .ranks = ranks, .n = size};
    a.max_bytes = bytes;
    enum err err = comm_group_open(world, &a, &group);
    mem_free(ranks);
    TRY(err);
    err = comm_all_gather(group, all, mine, DIGESTS * 2, DT_I32);
    comm_group_close(group);
    return err;
}

enum err handshake(const struct setup *s, const struct handshake *read, struct comm_world *world)
{
    uint64_t mine[DIGESTS] = {num_hash(PLAIT_VERSION), 0, 0, s->report.hash,
                              read->train, read->valid, read->prompt, read->weights,
                              decisions_digest(s)};
    uint64_t *all;
    if (comm_size(world) == 1)
        return ERR_OK;
    TRY(config_digest(s->o, &mine[1]));
    TRY(costs_digest(s, &mine[2]));
    TRY(mem_new((int64_t)comm_size(world) * DIGESTS, sizeof *all, "start digests", &all));
    enum err err = exchange(world, mine, all);
    if (err == ERR_OK)
        err = compare(all, comm_size(world));
    mem_free(all);
    return err;
}
