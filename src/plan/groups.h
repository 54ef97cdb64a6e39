/* SPDX-License-Identifier: Apache-2.0
 *
 * The communication groups of a rank, and the channels of its pipeline, as data: what is planned
 * for, is what the executor opens. Pure.
 */
#ifndef PLAIT_PLAN_GROUPS_H
#define PLAIT_PLAN_GROUPS_H

#include "model/model.h"
#include "mesh/mesh.h"
#include "sched/sched.h"

/* In the order in which every rank opens its own. */
enum group_kind {
    GROUP_WORLD, /* all ranks, in the host's memory */
    GROUP_TP,    /* tensor ranks */
    GROUP_KV,    /* tensor ranks that hold the same kv heads */
    GROUP_DP,    /* data ranks */
    GROUP_SUMS,  /* all ranks: the optimizer's sums */
    GROUP_EMBED,  /* the ends of the pipeline: the tied embedding's gradient */
    GROUP_REPLICA, /* the two replicas of a stage */
    GROUP_KINDS
};
const char *groups_name(enum group_kind k);

enum { GROUP_SUMS_DOUBLES = 5 }; /* of a step */

struct group {
    enum group_kind kind;
    int members;       /* with this rank; 1: it has none */
    unsigned axes;     /* that members differ on, bits of enum axis */
    int pair[2];       /* pipeline coordinates of a group of two on that axis */
    int64_t max_bytes; /* of its largest operation */
    int64_t scratch;   /* bytes that its transport stages with: filled in by who knows that */
    bool host;         /* moves memory of the host; else of the device */
    bool overlapped;   /* overlaps the device's own work */
    bool window;       /* what it reads lies in a window */
    bool also_nccl;    /* of a window: some lie elsewhere; else all are sums */
};

struct groups_args {
    const struct model *model;
    struct model_split split;
    const struct mesh *mesh;
    const struct sched *sched;
    const struct model_stage *cut; /* [stages] */
    struct dtypes types;
    int64_t samples; /* of a full microbatch */
    int num_shards;  /* data ranks that shard the optimizer; 1: none */
    bool overlapped; /* tensor ranks communicate while they compute */
};
/* Those of pipeline rank pp, but for scratch. */
void groups_make(const struct groups_args *a, int pp, struct group out[GROUP_KINDS]);
/* The members of a rank's group, into ranks[members], and how many; 0: it has none. */
int groups_ranks(const struct mesh *m, const struct group *g, int rank, int *ranks);
/* What a rank's transport stages with, all its groups together. */
int64_t groups_scratch(const struct group g[GROUP_KINDS]);

/* One direction to or from another pipeline rank: activations on lane 0, gradients on lane 1, as
 * rule V6 of schedules has them in order. */
struct group_channel { int peer, lane; bool sends; };
/* Those of pipeline rank pp in the order of their first message, into out (NULL: they are counted),
 * and how many. */
int groups_channels(const struct sched *s, int pp, struct group_channel *out);

#endif
