/* SPDX-License-Identifier: Apache-2.0
 *
 * Who sums and gathers with whom, and how much at most. Ranks of one pipeline coordinate have the
 * same table; who their members are follows from their place in the mesh.
 */
#include "plan/groups.h"

static const unsigned ALL = (1u << AXIS_COUNT) - 1;

const char *groups_name(enum group_kind k)
{
    static const char *const name[GROUP_KINDS] = {
        [GROUP_WORLD] = "world", [GROUP_TP] = "tp", [GROUP_KV] = "kv", [GROUP_DP] = "dp",
        [GROUP_SUMS] = "sums", [GROUP_EMBED] = "tied",
        [GROUP_REPLICA] = "merge"};
    return name[k];
}

void groups_make(const struct groups_args *a, int pp, struct group out[GROUP_KINDS])
{
    const struct sched *s = a->sched;
    struct model_rank r = {a->model, a->split, a->samples, &a->types};
    int64_t kv = a->model->kv_heads, grads = 0;
    int first = s->place[0], last = s->place[s->stages - 1];
    int other = pp; /* the pipeline rank with the other replica of what pp holds */
    bool tied = a->model->tied && s->replicas == 1 && first != last && (pp == first || pp == last);
    for (int stage = 0; stage < s->stages && s->replicas > 1; stage++) {
        int one = s->place[stage], two = s->place[s->stages + stage];
        other = one == pp ? two : two == pp ? one : other;
    }
    /* No part is larger than its stage, and members hold the same ones. */
    for (int h = 0; h < s->replicas * s->stages; h++)
        if (s->place[h] == pp)
            grads = num_max(grads, model_sharded_elements(
                model_stage_elements(a->model, &a->split, &a->cut[h % s->stages]), a->num_shards));
    grads *= dtype_size(a->types.at);
    const struct group all[GROUP_KINDS] = {
        [GROUP_WORLD] = {.members = a->mesh->world, .axes = ALL, .host = true,
                         .max_bytes = 8 * (int64_t)sizeof(double)},
        [GROUP_TP] = {.members = a->split.tp, .axes = 1u << AXIS_TP, .overlapped = a->overlapped,
                      .max_bytes = model_said_bytes(&r), .window = true, .also_nccl = true},
        /* neighbours on the tensor axis */
        [GROUP_KV] = {.members = kv > 0 && kv < a->split.tp ? (int)(a->split.tp / kv) : 1,
                      .axes = 1u << AXIS_TP, .max_bytes = grads},
        [GROUP_DP] = {.members = a->mesh->size[AXIS_DP], .axes = 1u << AXIS_DP,
                      .max_bytes = grads, .window = true},
        [GROUP_SUMS] = {.members = a->mesh->world, .axes = ALL,
                        .max_bytes = GROUP_SUMS_DOUBLES * (int64_t)sizeof(double)},
        [GROUP_EMBED] = {.members = tied ? 2 : 1, .axes = 1u << AXIS_PP, .pair = {first, last},
                        .max_bytes = model_tied_elements(&r) * dtype_size(a->types.at)},
        [GROUP_REPLICA] = {.members = other != pp ? 2 : 1, .axes = 1u << AXIS_PP,
                         .pair = {pp < other ? pp : other, pp < other ? other : pp},
                         .max_bytes = grads},
    };
    for (int k = 0; k < GROUP_KINDS; k++) {
        out[k] = all[k];
        out[k].kind = (enum group_kind)k;
    }
}

int groups_ranks(const struct mesh *m, const struct group *g, int rank, int *ranks)
{
    int coord[AXIS_COUNT];
    if (g->members < 2)
        return 0;
    mesh_coord(m, rank, coord);
    if (g->axes == 1u << AXIS_PP) {
        for (int i = 0; i < 2; i++) {
            coord[AXIS_PP] = g->pair[i];
            ranks[i] = mesh_rank(m, coord);
        }
        return 2;
    }
    if (g->kind != GROUP_KV)
        return mesh_group(m, rank, g->axes, ranks);
    coord[AXIS_TP] = coord[AXIS_TP] / g->members * g->members;
    for (int i = 0; i < g->members; i++, coord[AXIS_TP]++)
        ranks[i] = mesh_rank(m, coord);
    return g->members;
}

int64_t groups_scratch(const struct group g[GROUP_KINDS])
{
    int64_t total = 0;
    for (int k = 0; k < GROUP_KINDS; k++)
        total += g[k].scratch;
    return total;
}

int groups_channels(const struct sched *s, int pp, struct group_channel *out)
{
    int n = 0;
    for (int64_t i = s->begin[pp]; i < s->begin[pp + 1]; i++) {
        const struct sched_instr *in = &s->instr[i];
        bool sends = in->op == SCHED_SEND_F || in->op == SCHED_SEND_B;
        bool first = sends || in->op == SCHED_RECV_F || in->op == SCHED_RECV_B;
        for (int64_t j = s->begin[pp]; j < i && first; j++)
            first = s->instr[j].op != in->op || s->instr[j].peer != in->peer;
        if (first && out)
            out[n] = (struct group_channel){
                in->peer, in->op == SCHED_SEND_B || in->op == SCHED_RECV_B, sends};
        n += first;
    }
    return n;
}
