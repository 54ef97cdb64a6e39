/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory plan: stores from the parameter list, slots from the schedule's proven number of live
 * microbatches, scratch from shapes. Each term below has its twin in src/exec/exec_open.c, in the
 * same order; a term that exists in one place only stops the program at its first start.
 */
#include "sim/sim_memory.h"

#include "base/mem.h"

enum { COPIED = 3 }; /* weights and both moments */

const char *sim_memory_name(enum memory_kind k)
{
    static const char *const name[MEMORY_KINDS] = {"weights", "master weights", "gradients",
                                                   "optimizer", "shadow", "activations", "scratch",
                                                   "communication", "data and tables",
                                                   "library", "transport"};
    return name[k];
}

int64_t sim_memory_total(const struct sim_memory *m)
{
    int64_t total = 0;
    for (int k = 0; k < MEMORY_KINDS; k++)
        total += m->bytes[k];
    return total;
}

bool sim_memory_splits(const struct sched *s)
{
    return sched_has(s, SCHED_I);
}

void sim_memory_place(const struct sched *s, struct arch_stage *cut)
{
    cut[s->stages - 1].embed_beside = s->stages > 1 && sched_ends_meet(s);
}

static void add_stores(const struct sim_memory_args *a, const struct arch_stage *st,
                       struct sim_memory *out)
{
    int shares = a->shares > 1 ? a->shares : 1;
    int64_t n = arch_shared_elements(arch_stage_elements(a->arch, &a->split, st), shares);
    int64_t ct = arena_round(n * dtype_size(a->types.ct));
    int64_t at = arena_round(n * dtype_size(a->types.at));
    int64_t own = arena_round(n / shares * dtype_size(a->types.at));
    out->bytes[MEMORY_WEIGHTS] += ct;
    if (!a->training)
        return;
    if (a->types.ct != a->types.at)
        out->bytes[MEMORY_MASTER] += own;
    out->bytes[MEMORY_GRADS] += at;
    out->bytes[MEMORY_OPTIM] += 2 * own;
    if (a->report->ahead) /* master weights and moments, one piece */
        out->bytes[MEMORY_SHADOW] += arena_round(3 * n * dtype_size(a->types.at));
}

static void add_tables(const struct sim_memory_args *a, struct sim_memory *out)
{
    int64_t *data = &out->bytes[MEMORY_DATA], at = dtype_size(a->types.at);
    *data += arena_round(a->share * a->arch->seq * arch_input_bytes(a->arch, &a->types));
    *data += arena_round(a->share * a->arch->seq * (int64_t)sizeof(int32_t)); /* targets */
    *data += arena_round(2 * (int64_t)sizeof(double)); /* loss; number of the step */
    *data += arena_round(ARCH_STEP_DOUBLES * (int64_t)sizeof(double));
    if (arch_rotary(a->arch))
        *data += arena_round(a->arch->seq * a->arch->head_dim * at);
}

void sim_memory_plan(const struct sim_memory_args *a, int pp, struct sim_memory *out)
{
    struct arch_rank r = {a->arch, a->split, a->samples, &a->types};
    int64_t sends_back = 0, work[WORK_COUNT] = {0}, keep[KEEP_COUNT] = {0};
    *out = (struct sim_memory){0};
    int64_t *act = &out->bytes[MEMORY_ACTIVATIONS];
    for (int h = 0; h < a->sched->replicas * a->sched->stages; h++) {
        if (a->sched->place[h] != pp)
            continue;
        int stage = h % a->sched->stages;
        const struct arch_stage *st = &a->cut[stage];
        add_stores(a, st, out);
        if (a->copiers > 0 && h < a->sched->stages) /* a second replica is saved by the first */
            out->copy += COPIED * dtype_size(a->types.at) *
                         arch_saved_elements(a->arch, &a->split, st, a->copiers);
        *act += a->report->stage_peak[h] * arch_slot_bytes(&r, st);
        *act += a->report->save_peak[h] * arch_save_set_bytes(&r, st);
        if (a->splits)
            *act += a->report->grad_peak[h] * arch_keep_set_bytes(&r, st);
        for (int id = 0; id < KEEP_COUNT && a->training && !a->splits; id++)
            keep[id] = num_max(keep[id], arch_keep_shared(&r, st, (enum arch_keep)id));
        for (int id = 0; id < WORK_COUNT; id++)
            work[id] = num_max(work[id], arch_work_shared(&r, st, (enum arch_work)id));
        if (stage > 0 && a->sched->place[h - 1] != pp)
            sends_back = num_max(sends_back, arch_boundary_bytes(&r, st->first));
    }
    for (int id = 0; id < WORK_COUNT; id++)
        out->bytes[MEMORY_WORK] += arena_round(work[id]);
    for (int id = 0; id < KEEP_COUNT; id++)
        out->bytes[MEMORY_WORK] += arena_round(keep[id]);
    if (a->training)
        out->bytes[MEMORY_COMM] = a->report->ring * arena_round(sends_back);
    out->bytes[MEMORY_COMM] += a->scratch;
    out->bytes[MEMORY_LIBRARY] = a->library;
    out->bytes[MEMORY_TRANSPORT] = a->transport;
    add_tables(a, out);
}
