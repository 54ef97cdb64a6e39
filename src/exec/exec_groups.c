/* SPDX-License-Identifier: Apache-2.0
 *
 * Opens the rank's communication groups, which the plan lists (plan/groups.h), in its order, then
 * the channels of the pipeline. A group's id is its kind and its first member, so that the sets of
 * one kind do not meet.
 */
#include "exec/exec_local.h"

static enum err open_one(struct exec *x, const struct group *g, int *ranks,
                         struct comm_group **out)
{
    int n = groups_ranks(&x->mesh, g, comm_rank(x->a.world), ranks);
    if (n < 2)
        return ERR_OK;
    struct comm_group_args a = {.id = (int)g->kind * x->mesh.world + ranks[0], .ranks = ranks,
                                .n = n, .max_bytes = g->max_bytes, .overlapped = g->overlapped,
                                .also_nccl = g->also_nccl,
                                .mem = g->host ? COMM_HOST : COMM_DEVICE};
    if (g->window) { /* members have the same layout: all lies at the same places */
        a.window = g->kind == GROUP_DP ? x->grads.base : x->stream;
        a.window_bytes = g->kind == GROUP_DP ? x->window_bytes : x->stream_bytes;
    }
    return comm_group_open(x->a.world, &a, out);
}

/* The channels that this rank's list names. */
static enum err open_channels(struct exec *x)
{
    const struct sched *s = x->a.sched;
    int pp = x->coord[AXIS_PP], n = groups_channels(s, pp, NULL), me = comm_rank(x->a.world);
    struct group_channel *of;
    struct comm_channel *c = NULL;
    TRY(mem_new(n, sizeof *of, "channels", &of));
    enum err err = mem_new(n, sizeof *c, "channels", &c);
    if (err == ERR_OK) {
        groups_channels(s, pp, of);
        for (int i = 0; i < n; i++) {
            int peer = exec_world_rank(x, of[i].peer);
            c[i] = (struct comm_channel){of[i].sends ? me : peer, of[i].sends ? peer : me,
                                         of[i].lane};
        }
        err = comm_channels_open(x->a.world, c, n);
    }
    mem_free(of);
    mem_free(c);
    return err;
}

struct comm_group **exec_group_at(struct exec *x, enum group_kind k)
{
    struct comm_group **const at[GROUP_KINDS] = {
        [GROUP_WORLD] = &x->world, [GROUP_TP] = &x->tp, [GROUP_KV] = &x->kv, [GROUP_DP] = &x->dp,
        [GROUP_SUMS] = &x->sums, [GROUP_TIED] = &x->tied,
        [GROUP_MERGE] = &x->merge};
    return at[k];
}

enum err exec_groups_open(struct exec *x)
{
    int *ranks;
    enum err err = ERR_OK;
    TRY(mem_new(x->mesh.world, sizeof *ranks, "a group's ranks", &ranks));
    for (int k = 0; k < GROUP_KINDS && err == ERR_OK; k++)
        err = open_one(x, &x->a.groups[k], ranks, exec_group_at(x, (enum group_kind)k));
    mem_free(ranks);
    return err == ERR_OK ? open_channels(x) : err;
}

void exec_groups_close(struct exec *x)
{
    for (int k = GROUP_KINDS - 1; k >= 0; k--) {
        struct comm_group **g = exec_group_at(x, (enum group_kind)k);
        if (*g)
            comm_group_close(*g);
        *g = NULL;
    }
}
