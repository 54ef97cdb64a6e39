/* SPDX-License-Identifier: Apache-2.0
 *
 * The order counts. Ranks compare what they were given before any group of the layout is opened;
 * a plan that does not fit is refused before NCCL takes its part of the device; and a device closes
 * behind its transport, whose peers may still read its memory until all have left it.
 */
#include "train/rank.h"

#include "base/log.h"
#include "setup/room.h"

struct rank rank_at(const struct setup *s, struct comm_world *world)
{
    struct rank k = {.s = s, .world = world};
    int head[AXIS_COUNT] = {[AXIS_PP] = s->sched.place[s->sched.stages - 1]};
    mesh_coord(&s->mesh, comm_rank(world), k.coord);
    k.logger = mesh_rank(&s->mesh, head);
    k.is_logger = comm_rank(world) == k.logger;
    k.counts_tokens = k.coord[AXIS_PP] == head[AXIS_PP] && k.coord[AXIS_TP] == 0;
    return k;
}

enum err rank_open_device(struct rank *k, const struct options *o, struct dev_args *a)
{
    k->threads = options_threads(o, comm_size(k->world));
    a->threads = k->threads;
    a->index = comm_local_rank(k->world);
    a->cache = o->env.cache;
    TRY(dev_open(a, &k->dev));
    TRY(k->dev->ops->mem_info(k->dev, &k->left, &k->all));
    if (k->s)
        TRY(room_check(k->s, comm_rank(k->world), k->left - k->dev->graph_bytes, k->all));
    return comm_attach(k->world, k->dev, !o->env.no_copies);
}

enum err rank_open(struct rank *k, const struct rank_args *a)
{
    const struct setup *s = k->s;
    struct dev_args dev;
    struct exec_args x;
    TRY(handshake(s, &a->read, k->world));
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
    return exec_open(&x, &k->x);
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
