/* SPDX-License-Identifier: Apache-2.0
 *
 * What debug builds and tests do beside the work, in memory that the host can write: guards behind
 * every piece of every arena, looked at behind each run of a list, and NaN in each buffer from when
 * it is given back to when it is written again. A buffer that is too small, or read by who has no
 * right to it any more, is then an error that says which it is, or a loss that is not finite.
 *
 * A step is held to its plan of communication, too (plan/traffic.h): what the transport has counted
 * in a run of the training list, by group and kind, is what was planned.
 */
#include "exec/exec_local.h"

bool exec_guarded(const struct exec_args *a)
{
#ifdef PLAIT_GUARDS
    bool on = true;
#else
    bool on = a->guards;
#endif
    return on && (a->dev->kind == DEV_REF || a->dev->kind == DEV_CPU);
}

/* Of a slot, those that have no save set's. */
void exec_poison_saves(const struct exec *x, const struct exec_stage *e, void *(*save)[SAVE_COUNT])
{
    for (int i = 0; x->guards && i < e->stage.parts; i++)
        for (int id = 0; id < SAVE_COUNT; id++)
            arena_poison(&x->arena[MEMORY_ACTIVATIONS], save[i][id]);
}

void exec_poison_keep(const struct exec *x, const struct exec_stage *e,
                      const struct stage_keep *keep)
{
    enum memory_kind from = keep->per_slot ? MEMORY_ACTIVATIONS : MEMORY_WORK;
    for (int i = 0; x->guards && i < e->stage.parts; i++)
        for (int id = 0; id < KEEP_COUNT; id++)
            arena_poison(&x->arena[from], keep->keep[i][id]);
}

void exec_poison_scratch(const struct exec *x)
{
    for (int id = 0; x->guards && id < WORK_COUNT; id++)
        arena_poison(&x->arena[MEMORY_WORK], x->scratch.at[id]);
    for (int i = 0; !x->a.of.splits && x->a.of.training && i < x->stages_here; i++)
        exec_poison_keep(x, &x->stage[i], &x->stage[i].keep[0].keep);
}

static void fill(const struct param_store *s, int64_t begin, int64_t end)
{
    if (begin < end)
        memset(s->w + begin * s->ct, 0xff, (size_t)((end - begin) * s->ct));
}

void exec_poison_weights(const struct exec *x, const struct param_store *s, struct dp_range at)
{
    for (int i = 0; x->guards && i < s->pieces; i++) {
        struct param_range own = param_share_of(s, i);
        int64_t begin = num_max(s->edge[i], at.begin), end = num_min(s->edge[i + 1], at.end);
        fill(s, begin, num_min(end, own.begin));
        fill(s, num_max(begin, own.end), end);
    }
}

/* ---- traffic ---- */

static void count(struct exec *x, struct step_traffic *out)
{
    *out = (struct step_traffic){.sent = comm_sent(x->a.world)};
    for (int k = 0; k < GROUP_KINDS; k++)
        if (x->group[k])
            memcpy(out->group[k], comm_group_counted(x->group[k]), sizeof out->group[k]);
}

void exec_count_run(struct exec *x)
{
    x->counts = x->guards && x->a.traffic && x->sched == x->a.of.sched;
    if (x->counts)
        count(x, &x->counted);
}

static enum err compare(const char *who, enum traffic_kind k, struct traffic plan,
                        struct traffic before, struct traffic now)
{
    struct traffic run = {now.messages - before.messages, now.bytes - before.bytes};
    if (run.messages != plan.messages || run.bytes != plan.bytes)
        FAIL(ERR_INTERNAL,
             "executor: in its %s group a step started %s %lld times, of %lld bytes "
             "together, and planned were %lld, of %lld",
             who, mesh_traffic_name(k), (long long)run.messages, (long long)run.bytes,
             (long long)plan.messages, (long long)plan.bytes);
    return ERR_OK;
}

enum err exec_count_check(struct exec *x)
{
    struct step_traffic now;
    if (!x->counts)
        return ERR_OK;
    count(x, &now);
    for (int g = 0; g < GROUP_KINDS; g++)
        for (int k = 0; k < TRAFFIC_KINDS; k++)
            TRY(compare(groups_name((enum group_kind)g), (enum traffic_kind)k,
                        x->a.traffic->group[g][k], x->counted.group[g][k], now.group[g][k]));
    return compare("pipeline", TRAFFIC_SEND, x->a.traffic->sent, x->counted.sent, now.sent);
}
