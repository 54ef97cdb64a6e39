/* SPDX-License-Identifier: Apache-2.0
 *
 * With guards a step is held to its plan of communication (plan/traffic.h): what the transport has
 * counted in a run of the training list, by group and kind, is what was planned.
 */
#include "exec/exec_local.h"

static void count(struct exec *x, struct step_traffic *out)
{
    *out = (struct step_traffic){.sent = comm_sent(x->a.world)};
    for (int k = 0; k < GROUP_KINDS; k++) {
        const struct comm_group *g = *exec_group_at(x, (enum group_kind)k);
        if (g)
            memcpy(out->group[k], comm_group_counted(g), sizeof out->group[k]);
    }
}

void exec_count_run(struct exec *x)
{
    x->counts = x->guards && x->a.traffic && x->sched == x->a.sched;
    if (x->counts)
        count(x, &x->counted);
}

static enum err compare(const char *who, enum traffic_kind k, struct traffic plan,
                        struct traffic before, struct traffic now)
{
    struct traffic run = {now.messages - before.messages, now.bytes - before.bytes};
    if (run.messages != plan.messages || run.bytes != plan.bytes)
        FAIL(ERR_INTERNAL, "executor: in its %s group a step started %s %lld times, of %lld bytes "
                           "together, and planned were %lld, of %lld", who, mesh_traffic_name(k),
             (long long)run.messages, (long long)run.bytes, (long long)plan.messages,
             (long long)plan.bytes);
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
