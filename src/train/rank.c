/* SPDX-License-Identifier: Apache-2.0
 *
 * The order counts. Ranks compare what they were given before any group of the layout is opened;
 * a plan that does not fit is refused before NCCL takes its part of the device; and a device closes
 * behind its transport, whose peers may still read its memory until all have left it.
 */
#include "train/rank.h"

#include "base/log.h"
#include "plait.h"
#include "setup/setup.h"

#include <stdio.h>

/* ---- the body of all ranks ---- */

struct watched {
    const struct options *o;
    enum err (*body)(void *arg, struct comm_world *world);
    void *arg;
};

static enum err run_watched(void *arg, struct comm_world *world)
{
    const struct watched *w = arg;
    TRY(comm_files_open(world, w->o->run.io_timeout));
    enum err err = w->body(w->arg, world);
    comm_files_close(world);
    return err;
}

enum err rank_run(const char *what, const struct options *o, int size,
                  enum err (*body)(void *arg, struct comm_world *world), void *arg)
{
    struct watched w = {o, body, arg};
    if (o->train.transport == COMM_MPI)
        return comm_mpi_run(what, o->train.hang_timeout, run_watched, &w);
    return comm_thread_run(size, o->train.hang_timeout, run_watched, &w);
}

/* ---- are all in one run? ---- */

enum { DIGESTS = 9, GREETING = 32767 /* a group id above those of layouts */ };

static const char *const digest_name[DIGESTS] = {
    "version of plait", "configuration", "parallel.costs", "schedule", "data.train", "data.valid",
    "the prompt or an option", "the weights", "what the environment decides (PLAIT_ATTN_GRAD)"};

/* Of t, which is freed. */
static enum err hash_text(struct text *t, uint64_t *out)
{
    enum err err = t->err;
    *out = num_hash(t->s ? t->s : "");
    text_free(t);
    return err;
}

enum err rank_agree(const struct setup *s, const struct rank_read *read, struct comm_world *world)
{
    struct options bare = *s->o;
    struct text yaml = {0}, times = {0};
    uint64_t config, costs, decisions = 0, *all;
    struct comm_group *group = NULL; /* only for this */
    int *ranks, size = comm_size(world);
    if (size == 1)
        return ERR_OK;
    /* A file may have another name on another host, its content may not differ; costs are the times
     * themselves, however their file is written. */
    bare.parallel.costs[0] = bare.data.train[0] = bare.data.valid[0] = bare.run.dir[0] = '\0';
    bare.model.init[0] = '\0';
    conf_print(&options_table, &bare, &yaml);
    TRY(hash_text(&yaml, &config));
    for (int i = 0; s->time && i < s->sched.stages; i++)
        for (int op = 0; op < SCHED_COMPUTE_OPS; op++)
            text_add(&times, "%.17g\n", s->time[i][op]);
    TRY(hash_text(&times, &costs));
    for (int i = 0; i < DECISIONS; i++)
        decisions = 1099511628211u * decisions + (uint64_t)s->decided[i].value;
    const uint64_t mine[DIGESTS] = {num_hash(PLAIT_VERSION), config, costs, s->report.hash,
                                    read->train, read->valid, read->prompt, read->weights,
                                    decisions};
    TRY(mem_new((int64_t)size * DIGESTS, sizeof *all, "start digests", &all));
    enum err err = mem_new(size, sizeof *ranks, "the ranks of the world", &ranks);
    for (int r = 0; r < size && err == ERR_OK; r++)
        ranks[r] = r;
    if (err == ERR_OK)
        err = comm_group_open(world, &(struct comm_group_args){.id = GREETING, .ranks = ranks,
                                                               .n = size,
                                                               .max_bytes = sizeof mine}, &group);
    mem_free(ranks);
    if (err == ERR_OK)
        err = comm_all_gather(group, all, mine, DIGESTS * 2, DT_I32);
    if (group)
        comm_group_close(group);
    for (int which = 0; which < DIGESTS && err == ERR_OK; which++) {
        char odd[256] = ""; /* ranks whose digest is not rank 0's */
        size_t used = 0;
        for (int r = 1; r < size && used + 16 < sizeof odd; r++)
            if (all[r * DIGESTS + which] != all[which])
                used += (size_t)snprintf(odd + used, sizeof odd - used, "%s%d", used ? ", " : "",
                                         r);
        if (odd[0])
            err = err_set(ERR_MISMATCH, __FILE__, __LINE__,
                          "start: %s differs between rank 0 and rank %s; give all ranks the same",
                          digest_name[which], odd);
    }
    mem_free(all);
    return err;
}

/* ---- opening and closing ---- */

struct rank rank_at(const struct setup *s, struct comm_world *world)
{
    struct rank k = {.s = s, .world = world, .me = comm_rank(world)};
    int head[AXIS_COUNT] = {[AXIS_PP] = s->sched.place[s->sched.stages - 1]};
    mesh_coord(&s->mesh, k.me, k.coord);
    k.logger = mesh_rank(&s->mesh, head);
    k.is_logger = k.me == k.logger;
    k.counts_tokens = k.coord[AXIS_PP] == head[AXIS_PP] && k.coord[AXIS_TP] == 0;
    return k;
}

enum err rank_open_device(struct rank *k, const struct options *o, struct dev_args *a)
{
    k->threads = options_threads(o, comm_size(k->world));
    a->threads = k->threads;
    a->index = options_gpu(o, comm_local_rank(k->world));
    TRY(dev_open(a, &k->dev));
    TRY(k->dev->ops->mem_info(k->dev, &k->free_bytes, &k->total_bytes));
    if (k->s)
        TRY(room_check(k->s, k->me, k->free_bytes - k->dev->graph_bytes, k->total_bytes));
    return comm_attach(k->world, k->dev, !o->env.no_copies);
}

enum err rank_open(struct rank *k, const struct rank_args *a)
{
    const struct setup *s = k->s;
    struct dev_args dev;
    struct exec_args x;
    TRY(rank_agree(s, &a->read, k->world));
    double opened = log_now();
    setup_dev_args(s, a->null ? DEV_NULL : options_device(s->o), &dev);
    TRY(rank_open_device(k, s->o, &dev));
    k->dev->types = s->types; /* also of a null device that stands for another */
    if (a->profile && k->is_logger)
        TRY(dev_profile_open(k->dev, opened, &k->profile));
    setup_exec_args(s, k->coord[AXIS_PP], &x);
    x.dev = k->dev;
    x.world = k->world;
    x.trace = a->trace;
    TRY(exec_open(&x, &k->x));
    k->all = k->x->group[GROUP_WORLD];
    return ERR_OK;
}

enum err rank_close(struct rank *k, enum err err, void (*release)(void *arg), void *arg)
{
    struct err_kept end; /* what follows may fail for the same reason, or another */
    err_keep(&end, err);
    if (err != ERR_OK)
        comm_abort(k->world, err);
    release(arg);
    exec_close(k->x);
    enum err last = comm_detach(k->world);
    if (end.code == ERR_OK)
        err_keep(&end, last);
    dev_profile_close(k->profile);
    dev_close(k->dev);
    return err_again(&end);
}
