/* SPDX-License-Identifier: Apache-2.0
 *
 * When each instruction of the training list ran, by the device's timers: one before it, one behind
 * it, and a pair around each wait for a message. An async device puts them between its work
 * and goes on, and so does the host: nothing is waited for, and a step takes as long as without. So
 * there are timers for two runs, and the times of one are read while the next is queued.
 *
 *     device's stream  begin | waits for a message | work ... | end, begin of the next | ...
 *     timers             0   2                     3          1  0
 */
#include "exec/exec_local.h"

/* The timers of an instruction. */
enum { BEGIN, END, WAIT, WAITED, WAITS = 2, EACH = WAIT + 2 * WAITS };

int64_t exec_instrs(const struct exec *x)
{
    int pp = x->coord[AXIS_PP];
    return x->a.of.sched->begin[pp + 1] - x->a.of.sched->begin[pp];
}

/* Number k of instruction i in the run `ago` runs before the last. */
static int64_t timer_of(const struct exec *x, int ago, int64_t i, int k)
{
    const struct exec_trace *t = &x->trace;
    return t->first + ((t->runs - ago) % EXEC_TRACED * exec_instrs(x) + i) * EACH + k;
}

/* Of the same, how often it has waited. */
static uint8_t *waits_of(const struct exec *x, int ago, int64_t i)
{
    const struct exec_trace *t = &x->trace;
    return &t->waits[(t->runs - ago) % EXEC_TRACED * exec_instrs(x) + i];
}

enum err exec_trace_open(struct exec *x)
{
    int64_t n = exec_instrs(x);
    x->trace.at = -1;
    if (!x->a.trace)
        return ERR_OK;
    TRY(mem_new(EXEC_TRACED * n, 1, "the trace of a step", &x->trace.waits));
    TRY(x->a.dev->ops->timer_alloc(x->a.dev, EXEC_TRACED * n * EACH, &x->trace.first));
    return mem_new(n, sizeof *x->trace.event, "the trace of a step", &x->trace.event);
}

void exec_trace_close(struct exec *x)
{
    mem_free(x->trace.waits);
    mem_free(x->trace.event);
}

enum err exec_trace_begin(struct exec *x, int64_t *outer)
{
    struct exec_trace *t = &x->trace;
    *outer = t->at;
    if (!t->event || x->sched != x->a.of.sched)
        return ERR_OK;
    t->at = x->at - x->sched->begin[x->coord[AXIS_PP]];
    *waits_of(x, 0, t->at) = 0;
    return x->a.dev->ops->timer_record(x->a.dev, timer_of(x, 0, t->at, BEGIN));
}

enum err exec_trace_end(struct exec *x, int64_t outer)
{
    struct exec_trace *t = &x->trace;
    int64_t at = t->at;
    t->at = outer;
    return at < 0 ? ERR_OK : x->a.dev->ops->timer_record(x->a.dev, timer_of(x, 0, at, END));
}

enum err exec_trace_wait(struct exec *x, bool over)
{
    struct exec_trace *t = &x->trace;
    if (t->at < 0)
        return ERR_OK;
    uint8_t *waits = waits_of(x, 0, t->at);
    int k = (over ? WAITED : WAIT) + 2 * *waits;
    ENSURE(*waits < WAITS);
    *waits += over;
    return x->a.dev->ops->timer_record(x->a.dev, timer_of(x, 0, t->at, k));
}

/* ---- reading ---- */

static enum err seconds_between(const struct exec *x, int64_t a, int64_t b, double *out)
{
    double from, to;
    TRY(x->a.dev->ops->timer_read(x->a.dev, a, &from));
    TRY(x->a.dev->ops->timer_read(x->a.dev, b, &to));
    *out = fmax(0, to - from); /* they are in order, but for the last bits */
    return ERR_OK;
}

static enum err read_event(const struct exec *x, int ago, int64_t i, struct exec_event *out)
{
    double took, waited = 0;
    int64_t begin = timer_of(x, ago, i, BEGIN), end = timer_of(x, ago, i, END);
    TRY(x->a.dev->ops->timer_read(x->a.dev, begin, &out->start));
    TRY(seconds_between(x, begin, end, &took));
    for (int k = 0; k < *waits_of(x, ago, i); k++) {
        double wait;
        int64_t first = timer_of(x, ago, i, WAIT + 2 * k);
        TRY(seconds_between(x, first, first + 1, &wait));
        waited += wait;
    }
    out->end = out->start + took;
    out->waited = fmin(waited, took);
    return ERR_OK;
}

/* A pair contains its halves, which stand behind it in the list and have done its waiting. */
enum err exec_events(struct exec *x, int ago, const struct exec_event **out)
{
    struct exec_event *e = x->trace.event;
    const struct sched_instr *list = &x->a.of.sched->instr[x->a.of.sched->begin[x->coord[AXIS_PP]]];
    ENSURE(e && ago >= 0 && ago < EXEC_TRACED && ago < x->trace.runs);
    for (int64_t i = exec_instrs(x) - 1; i >= 0; i--) {
        TRY(read_event(x, ago, i, &e[i]));
        if (list[i].op == SCHED_OVERLAP_F_B)
            e[i].waited = fmin(e[i + 1].waited + e[i + 2].waited, e[i].end - e[i].start);
    }
    *out = e;
    return ERR_OK;
}
