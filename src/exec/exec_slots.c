/* SPDX-License-Identifier: Apache-2.0
 *
 * Which stage an instruction is of, and which of its parts; a microbatch as a stage sees it, and
 * every wait for a message. What a microbatch takes of a stage and gives back: a slot, a save set,
 * a keep set (exec.c says when). Of each there are as many as the check of the schedule counted, so
 * none is ever missing.
 */
#include "exec/exec_local.h"

struct stage_mb exec_mb_of(const struct exec *x, int mb)
{
    const struct exec_batch *b = x->batch;
    int64_t first = mb * x->a.of.samples, rows = first * b->t;
    int64_t samples = num_min(x->a.of.samples, b->samples - first);
    ENSURE(samples > 0);
    return (struct stage_mb){.input = x->input + rows * x->input_bytes,
                             .targets = b->targets ? x->targets + rows : NULL,
                             .samples = samples,
                             .t = b->t,
                             .row0 = b->row0 + rows,
                             .step = x->step,
                             .training = !x->sched->forward_only};
}

int exec_world_rank(const struct exec *x, int pp)
{
    int coord[AXIS_COUNT];
    memcpy(coord, x->coord, sizeof coord);
    coord[AXIS_PP] = pp;
    return mesh_rank(&x->mesh, coord);
}

enum err exec_await(struct exec *x, struct comm_req *r)
{
    if (!r->world)
        return ERR_OK;
    TRY(exec_trace_wait(x, false));
    TRY(comm_finish(r));
    return exec_trace_wait(x, true);
}

bool exec_is_here(const struct exec *x, int id, int mb)
{
    return id >= 0 && id < x->sched->stages && x->here[sched_stage_replica(x->sched, id, mb)] >= 0;
}

struct exec_stage *exec_stage_of(struct exec *x, int id, int mb)
{
    ENSURE(exec_is_here(x, id, mb));
    return &x->stage[x->here[sched_stage_replica(x->sched, id, mb)]];
}

struct exec_stage *exec_stage_held(struct exec *x, int id)
{
    int stage_replica = sched_stage_replica_on(x->sched, id, x->coord[AXIS_PP]);
    ENSURE(stage_replica >= 0 && x->here[stage_replica] >= 0);
    return &x->stage[x->here[stage_replica]];
}

struct stage_range exec_parts_of(const struct exec *x, const struct exec_stage *e,
                                 struct sched_instr in)
{
    struct stage_range parts;
    ENSURE(in.seg == 0 || x->sched->segments[in.stage] == e->segments->n);
    segments_range(e->segments, e->stage.parts, in.seg, &parts.first, &parts.end);
    return parts;
}

struct exec_slot *exec_slot_of(struct exec_stage *e, int mb)
{
    ENSURE(e->mb[mb].slot != EXEC_NO_SLOT);
    return &e->slot[e->mb[mb].slot];
}

enum err exec_slot_take(struct exec *x, struct exec_stage *e, int mb)
{
    for (int n = 0; n < e->slots; n++) {
        int i = (e->slot_next + n) % e->slots;
        struct exec_slot *slot = &e->slot[i];
        if (slot->used)
            continue;
        slot->used = true;
        e->mb[mb].slot = i;
        e->slot_next = i + 1;
        TRY(exec_await(x, &slot->sent));
        exec_poison_saves(x, e, slot->slot.save);
        arena_poison(&x->arena[MEMORY_ACTIVATIONS], slot->slot.out);
        return ERR_OK;
    }
    FAIL(ERR_INTERNAL, "executor: stage %d has %d slots and microbatch %d needs one more", e->id,
         e->slots, mb);
}

void exec_slot_give(struct exec_stage *e, int mb)
{
    exec_slot_of(e, mb)->used = false;
    e->mb[mb].slot = EXEC_NO_SLOT;
}

enum err exec_saves_take(const struct exec *x, struct exec_stage *e, int mb)
{
    struct exec_slot *slot = exec_slot_of(e, mb);
    ENSURE(slot->set == EXEC_NO_SLOT);
    for (int i = 0; i < e->save_sets; i++) {
        if (e->saves[i].used)
            continue;
        e->saves[i].used = true;
        slot->set = i;
        exec_poison_saves(x, e, e->saves[i].save);
        stage_lend(&e->stage, &slot->slot, e->saves[i].save);
        return ERR_OK;
    }
    FAIL(ERR_INTERNAL, "executor: stage %d has %d save sets and microbatch %d needs one more",
         e->id, e->save_sets, mb);
}

void exec_saves_give(struct exec_stage *e, int mb)
{
    struct exec_slot *slot = exec_slot_of(e, mb);
    ENSURE(slot->set != EXEC_NO_SLOT);
    e->saves[slot->set].used = false;
    slot->set = EXEC_NO_SLOT;
    stage_lend(&e->stage, &slot->slot, NULL);
}

enum err exec_keep_find(const struct exec *x, const struct exec_stage *e, int *k)
{
    for (*k = 0; *k < e->keeps; (*k)++)
        if (!e->keep[*k].used) {
            exec_poison_keep(x, e, &e->keep[*k].keep);
            return ERR_OK;
        }
    FAIL(ERR_INTERNAL, "executor: stage %d has %d keep sets and needs one more", e->id, e->keeps);
}
