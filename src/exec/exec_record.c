/* SPDX-License-Identifier: Apache-2.0
 *
 * A step that is recorded once and replayed. The list is static, and exec_begin has each run of it
 * choose the same slots, so two steps are the same calls on the same memory; what differs stands in
 * device memory and is brought there before: samples, the number of the step (dropout), and the
 * optimizer's rates. Gradients are read by no one before they are written anew.
 *
 * Operations between ranks are recorded with the rest, and NCCL wants those that meet to be either
 * all recorded or none. So the ranks agree: where one cannot, none replays.
 */
#include "exec/exec_local.h"

#include "base/log.h"
#include <stdio.h>

void exec_forget(struct exec *x)
{
    if (!x->graph)
        return;
    comm_graph_captured(x->a.world, NULL, NULL);
    x->a.dev->ops->graph_destroy(x->a.dev, x->graph);
    x->graph = NULL;
}

/* For a rank that fails. */
static void forget(void *arg)
{
    exec_forget(arg);
}

enum err exec_record(struct exec *x, const struct exec_batch *b, const struct exec_hooks *hooks,
                     bool *done)
{
    struct dev *dev = x->a.dev;
    ENSURE(!x->graph && !x->a.trace);
    exec_begin(x, x->a.of.sched, b, hooks);
    TRY(dev->ops->graph_begin(dev));
    x->records = true;
    enum err err = exec_perform(x);
    x->records = false;
    if (err != ERR_OK) { /* its message stays */
        char text[2048];
        snprintf(text, sizeof text, "%s", err_text());
        if (dev->ops->graph_end(dev, &x->graph) == ERR_OK)
            exec_forget(x);
        return err_set(err, __FILE__, __LINE__, "%s, while it was being recorded", text);
    }
    err = dev->ops->graph_end(dev, &x->graph);
    if (err != ERR_OK)
        log_line(LOG_WARN, "exec: the step cannot be recorded, so each is queued call by call: %s",
                 err_text());
    if (x->graph) /* a peer may fail from here on */
        comm_graph_captured(x->a.world, forget, x);
    x->recorded = (struct exec_batch){.samples = b->samples, .t = b->t, .row0 = b->row0};
    double lacks = !x->graph; /* ranks that have none */
    err = comm_all_reduce(x->group[GROUP_WORLD], &lacks, 1, DT_F64, COMM_SUM);
    *done = err == ERR_OK && lacks == 0;
    if (!*done)
        exec_forget(x);
    return err;
}

enum err exec_replay(struct exec *x, const struct exec_batch *b, const struct exec_hooks *hooks,
                     double seconds)
{
    const struct exec_batch *r = &x->recorded;
    ENSURE(x->graph && b->targets);
    ENSURE(b->samples == r->samples && b->t == r->t && b->row0 == r->row0);
    x->sched = x->a.of.sched;
    x->batch = b;
    x->at = x->sched->begin[x->coord[AXIS_PP] + 1]; /* at no instruction that could be named */
    TRY(exec_step_set(x, hooks));
    TRY(exec_feed(x, b));
    TRY(x->a.dev->ops->graph_launch(x->a.dev, x->graph));
    return comm_graph_launched(x->a.world, b->step, seconds);
}
