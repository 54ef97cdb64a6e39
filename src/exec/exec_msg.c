/* SPDX-License-Identifier: Apache-2.0
 *
 * A microbatch as a stage sees it, and messages between stages: to whom, how long, and every wait.
 */
#include "exec/exec_local.h"

/* Samples of microbatch mb: full ones, and the rest in the last. */
struct stage_mb exec_mb_of(const struct exec *x, int mb)
{
    const struct exec_batch *b = x->batch;
    int64_t first = mb * x->a.samples, rows = first * b->t;
    int64_t samples = num_min(x->a.samples, b->samples - first);
    ENSURE(samples > 0);
    return (struct stage_mb){.input = x->input + rows * x->input_bytes,
                             .targets = b->targets ? x->targets + rows : NULL, .samples = samples,
                             .t = b->t, .row0 = b->row0 + rows, .step = x->step,
                             .training = !x->sched->forward_only};
}

/* Of a batch whose sequences are shorter, so much less. */
int64_t exec_input_bytes(const struct exec *x, int stage, int mb)
{
    struct stage_mb s = exec_mb_of(x, mb);
    struct model_rank r = {x->a.model, x->a.split, s.samples, &x->a.dev->types};
    return model_boundary_bytes(&r, x->a.cut[stage].first) / x->a.model->seq * s.t;
}

int exec_world_rank(const struct exec *x, int pp)
{
    int coord[AXIS_COUNT];
    memcpy(coord, x->coord, sizeof coord);
    coord[AXIS_PP] = pp;
    return mesh_rank(&x->mesh, coord);
}

/* The tag of messages into a stage for microbatch mb: its activation, or the gradient of what it
 * gave out. */
int exec_tag(const struct exec *x, int stage, int mb, bool gradient)
{
    return 2 * sched_holding(x->sched, stage, mb) + gradient;
}

struct comm_device_msg exec_msg(const struct exec *x, struct sched_instr in, bool gradient,
                                void *p)
{
    bool next = in.op == SCHED_SEND_F, before = in.op == SCHED_SEND_B;
    int reads = in.stage + (next || in.op == SCHED_RECV_B); /* the stage whose input it is of */
    return (struct comm_device_msg){.peer = exec_world_rank(x, in.peer), .lane = gradient,
                                    .tag = exec_tag(x, in.stage + next - before, in.mb, gradient),
                                    .p = p, .bytes = exec_input_bytes(x, reads, in.mb)};
}

/* Every wait for a message goes through here: the host's, or that of the device's stream. */
enum err exec_await(struct exec *x, struct comm_req *r)
{
    if (!r->world)
        return ERR_OK;
    TRY(exec_trace_wait(x));
    TRY(comm_finish(r));
    return exec_trace_waited(x);
}

enum err exec_drain(struct exec *x)
{
    for (int i = 0; i < x->rings; i++)
        TRY(exec_await(x, &x->ring_sent[i]));
    for (int i = 0; i < x->stages_here; i++)
        for (int k = 0; k < x->stage[i].slots; k++)
            TRY(exec_await(x, &x->stage[i].slot[k].sent));
    return ERR_OK;
}
