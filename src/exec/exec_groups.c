/* SPDX-License-Identifier: Apache-2.0
 *
 * The rank's communication groups, opened once and in one fixed order on every rank: world, tensor,
 * repeated kv heads, data, planes, the optimizer's sums, tied embedding, replicas; then the
 * channels of the pipeline. A group's id is its kind and its first member, so that the sets of one
 * kind do not meet. World and plane move host memory, the others that of the device.
 */
#include "exec/exec_local.h"

enum group_kind { GROUP_WORLD, GROUP_TP, GROUP_KV, GROUP_DP, GROUP_TIED, GROUP_MERGE,
                  GROUP_PLANE, GROUP_SUMS, GROUP_KINDS };

static bool is_tied_apart(const struct exec_args *a)
{
    return a->arch->tied && a->sched->replicas == 1 &&
           a->sched->place[0] != a->sched->place[a->sched->stages - 1];
}

/* The pipeline rank with the other replica of what pp holds; pp itself: there is none. */
static int partner_of(const struct sched *s, int pp)
{
    for (int stage = 0; stage < s->stages && s->replicas > 1; stage++) {
        int a = s->place[stage], b = s->place[s->stages + stage];
        if (a == pp || b == pp)
            return a == pp ? b : a;
    }
    return pp;
}

/* Ranks that hold the same kv heads as this one: neighbours on the tensor axis. */
static int kv_neighbours(const struct exec_args *a)
{
    int64_t tp = a->split.tp, kv = a->arch->kv_heads;
    return kv > 0 && kv < tp ? (int)(tp / kv) : 1;
}

/* Ranks with one pipeline coordinate, when their sums are passed on by it. */
static int plane_size(const struct exec_args *a)
{
    return a->report->ahead ? a->mesh->world / a->mesh->size[AXIS_PP] : 1;
}

/* Largest message of a group, bytes. */
static int64_t message_bytes(const struct exec_args *a, enum group_kind k,
                             const struct dtypes *types, int pp)
{
    int64_t at = dtype_size(types->at), largest = 0;
    struct arch_rank r = {a->arch, a->split, a->samples, types};
    if (k == GROUP_WORLD)
        return 8 * (int64_t)sizeof(double);
    if (k == GROUP_SUMS)
        return EXEC_SUMS * (int64_t)sizeof(double);
    if (k == GROUP_PLANE)
        return plane_size(a) * EXEC_SUMS * (int64_t)sizeof(double);
    if (k == GROUP_TP)
        return arch_said_bytes(&r);
    if (k == GROUP_TIED) /* members hold different stages: the same number on both */
        return arch_tied_elements(&r) * at;
    for (int h = 0; h < a->sched->replicas * a->sched->stages; h++)
        if (a->sched->place[h] == pp)
            largest = num_max(largest, arch_shared_elements(
                arch_stage_elements(a->arch, &a->split, &a->cut[h % a->sched->stages]),
                exec_shares_of(a)));
    return largest * at; /* no part is larger than its stage; partners hold the same ones */
}

/* How many ranks each group of pipeline rank pp has. */
static void members_of(const struct exec_args *a, int pp, int members[GROUP_KINDS])
{
    bool holds_tied = pp == a->sched->place[0] || pp == a->sched->place[a->sched->stages - 1];
    memcpy(members, (int[GROUP_KINDS]){
        [GROUP_WORLD] = a->mesh->world, [GROUP_TP] = a->split.tp, [GROUP_KV] = kv_neighbours(a),
        [GROUP_DP] = a->mesh->size[AXIS_DP], [GROUP_TIED] = is_tied_apart(a) && holds_tied ? 2 : 1,
        [GROUP_MERGE] = partner_of(a->sched, pp) != pp ? 2 : 1, [GROUP_PLANE] = plane_size(a),
        [GROUP_SUMS] = a->mesh->world}, GROUP_KINDS * sizeof *members);
}

int64_t exec_scratch_bytes(const struct exec_args *a, enum comm_kind kind,
                           const struct dtypes *types, int pp)
{
    int64_t total = 0;
    int members[GROUP_KINDS];
    members_of(a, pp, members);
    for (int k = 0; k < GROUP_KINDS; k++)
        if (members[k] > 1)
            total += comm_scratch_bytes(kind, members[k],
                                        message_bytes(a, (enum group_kind)k, types, pp));
    return total;
}

static enum err open_one(struct exec *x, enum group_kind k, const int *ranks, int n,
                         struct comm_group **out)
{
    if (n < 2)
        return ERR_OK;
    struct comm_group_args a = {.id = (int)k * x->mesh.world + ranks[0], .ranks = ranks, .n = n};
    a.small = k == GROUP_SUMS;
    a.beside = k == GROUP_TP && x->a.tp_rows > 0;
    if (k == GROUP_DP) { /* members hold the same stages: all lies at the same places */
        a.window = x->grads.base;
        a.window_bytes = x->window_bytes;
    }
    if (k == GROUP_TP) { /* members have the same layout, and make the same calls */
        a.window = x->stream;
        a.window_bytes = x->stream_bytes;
        a.mixed = true;
    }
    a.mem = k == GROUP_WORLD || k == GROUP_PLANE ? COMM_HOST : COMM_DEVICE;
    a.scratch = comm_scratch_bytes(comm_kind(x->a.world), n,
                                   message_bytes(&x->a, k, &x->a.dev->types, x->coord[AXIS_PP]));
    return comm_group_open(x->a.world, &a, out);
}

/* Two pipeline ranks beside this one's other coordinates. */
static enum err open_two(struct exec *x, enum group_kind k, const int pp[2],
                         struct comm_group **out)
{
    int coord[AXIS_COUNT], ranks[2];
    memcpy(coord, x->coord, sizeof coord);
    for (int i = 0; i < 2; i++) {
        coord[AXIS_PP] = pp[i];
        ranks[i] = mesh_rank(&x->mesh, coord);
    }
    return open_one(x, k, ranks, 2, out);
}

/* The ends of the pipeline. */
static enum err open_tied(struct exec *x)
{
    int end[2] = {x->a.sched->place[0], x->a.sched->place[x->a.sched->stages - 1]};
    int pp = x->coord[AXIS_PP];
    if (!is_tied_apart(&x->a) || (pp != end[0] && pp != end[1]))
        return ERR_OK;
    return open_two(x, GROUP_TIED, end, &x->tied);
}

/* The ranks of a pair of holdings, the lower first. */
static enum err open_merge(struct exec *x)
{
    int pp = x->coord[AXIS_PP], other = partner_of(x->a.sched, pp);
    int pair[2] = {pp < other ? pp : other, pp < other ? other : pp};
    return pp == other ? ERR_OK : open_two(x, GROUP_MERGE, pair, &x->merge);
}

static bool is_message(int op)
{
    return op == SCHED_SEND_F || op == SCHED_SEND_B || op == SCHED_RECV_F || op == SCHED_RECV_B;
}

/* A message's way from one pipeline rank to another: activations on one lane, gradients on the
 * other, as rule V6 of schedules has them in order. */
static struct comm_channel channel_of(const struct exec *x, struct sched_instr in)
{
    int me = comm_rank(x->a.world), peer = exec_world_rank(x, in.peer);
    bool sends = in.op == SCHED_SEND_F || in.op == SCHED_SEND_B;
    return (struct comm_channel){sends ? me : peer, sends ? peer : me,
                                 in.op == SCHED_SEND_B || in.op == SCHED_RECV_B};
}

/* Is instruction i of pipeline rank pp its list's first on a channel? There is one for each
 * neighbour, way and lane, and the operation tells the last two. */
static bool begins_channel(const struct sched *s, int pp, int64_t i)
{
    bool first = is_message(s->instr[i].op);
    for (int64_t j = s->begin[pp]; j < i && first; j++)
        first = s->instr[j].op != s->instr[i].op || s->instr[j].peer != s->instr[i].peer;
    return first;
}

static int count_channels(const struct sched *s, int pp)
{
    int n = 0;
    for (int64_t i = s->begin[pp]; i < s->begin[pp + 1]; i++)
        n += begins_channel(s, pp, i);
    return n;
}

int64_t exec_device_bytes(const struct exec_args *a, enum comm_kind kind, int pp)
{
    int members[GROUP_KINDS];
    members_of(a, pp, members);
    struct comm_device_plan p = {.window = members[GROUP_DP], .mixed = members[GROUP_TP],
                                 .beside = a->tp_rows > 0,
                                 .full = (members[GROUP_KV] > 1) + (members[GROUP_TIED] > 1) +
                                         (members[GROUP_MERGE] > 1),
                                 .small = members[GROUP_SUMS] > 1,
                                 .channels = count_channels(a->sched, pp), .apart = a->apart,
                                 .stages_apart = a->stages_apart};
    return comm_device_bytes(kind, &p);
}

/* The channels that this rank's list names. */
static enum err open_channels(struct exec *x)
{
    const struct sched *s = x->a.sched;
    struct comm_channel *c;
    int n = 0, pp = x->coord[AXIS_PP];
    TRY(mem_new(count_channels(s, pp), sizeof *c, "channels", &c));
    for (int64_t i = s->begin[pp]; i < s->begin[pp + 1]; i++)
        if (begins_channel(s, pp, i))
            c[n++] = channel_of(x, s->instr[i]);
    enum err err = comm_channels_open(x->a.world, c, n);
    mem_free(c);
    return err;
}

enum err exec_groups_open(struct exec *x)
{
    enum err err;
    int *ranks, me = comm_rank(x->a.world);
    TRY(mem_new(x->mesh.world, sizeof *ranks, "a group's ranks", &ranks));
    unsigned all = (1u << AXIS_COUNT) - 1;
    int n = mesh_group(&x->mesh, me, all, ranks);
    TRY_OR(out, open_one(x, GROUP_WORLD, ranks, n, &x->world));
    n = mesh_group(&x->mesh, me, 1u << AXIS_TP, ranks);
    TRY_OR(out, open_one(x, GROUP_TP, ranks, n, &x->tp));
    int same = kv_neighbours(&x->a);
    TRY_OR(out, open_one(x, GROUP_KV, ranks + x->coord[AXIS_TP] / same * same, same, &x->kv));
    n = mesh_group(&x->mesh, me, 1u << AXIS_DP, ranks);
    TRY_OR(out, open_one(x, GROUP_DP, ranks, n, &x->dp));
    n = mesh_group(&x->mesh, me, all & ~(1u << AXIS_PP), ranks);
    TRY_OR(out, open_one(x, GROUP_PLANE, ranks, plane_size(&x->a) > 1 ? n : 1, &x->plane));
    n = mesh_group(&x->mesh, me, all, ranks);
    TRY_OR(out, open_one(x, GROUP_SUMS, ranks, n, &x->sums));
    TRY_OR(out, open_tied(x));
    TRY_OR(out, open_merge(x));
    TRY_OR(out, open_channels(x));
    err = ERR_OK;
out:
    mem_free(ranks);
    return err;
}

void exec_groups_close(struct exec *x)
{
    struct comm_group **g[] = {&x->merge, &x->tied, &x->sums, &x->plane,
                               &x->dp, &x->kv, &x->tp, &x->world};
    for (size_t i = 0; i < sizeof g / sizeof *g; i++) {
        if (*g[i])
            comm_group_close(*g[i]);
        *g[i] = NULL;
    }
}
