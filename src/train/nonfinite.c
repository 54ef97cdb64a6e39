/* SPDX-License-Identifier: Apache-2.0
 *
 * Where a number stopped being finite. When a step's loss or norm is not, the weights are still
 * those of before the step: if they are finite the step is run once more, the same samples and
 * dropout without the optimizer, with a probe on each rank's device (device/probe.h). Each rank has
 * at most one find, the first in the order of its work, and all agree on the earliest: by
 * microbatch, then forward before recompute before backward before weight gradients, then along the
 * pipeline as the pass goes, then by the number of the call, which tensor ranks share. What comes
 * first in this order cannot follow from any other of the finds.
 *
 * A request to stop ends the search at the next operation of whoever sees it, as an error: all
 * that is to be kept is saved by then.
 */
#include "train/train.h"

#include "device/probe.h"
#include "train/stop.h"

#include <float.h>
#include <stdio.h>

/* ---- which rank comes first ---- */

enum { KEYS = 7, WORDS_MAX = 1024 };

/* The rank whose key is the least, and of those the first; -1: no rank has one. Collective over the
 * world. */
static enum err earliest(const struct train_rank *r, bool have, const double *key, int n,
                         int *first)
{
    double best = 0;
    for (int i = 0; i <= n; i++) {
        double mine = i < n ? key[i] : r->rank.me, least = have ? -mine : -DBL_MAX;
        TRY(comm_all_reduce(r->rank.all, &least, 1, DT_F64, COMM_MAX));
        have = have && least == -mine;
        best = least;
    }
    *first = best == -DBL_MAX ? -1 : (int)-best;
    return ERR_OK;
}

/* What the first rank says, on all of them. Collective over the world. */
static enum err share(const struct train_rank *r, int first, const struct text *mine,
                      struct text *out)
{
    char words[WORDS_MAX] = "";
    if (r->rank.me == first) {
        TRY(mine->err);
        snprintf(words, sizeof words, "%s", mine->s ? mine->s : "");
    }
    TRY(comm_broadcast(r->rank.all, first, words, (int64_t)sizeof words));
    text_add(out, "%s", words);
    return out->err;
}

/* "rank 3 (pp 1, tp 0, dp 1)" */
static void add_rank(const struct train_rank *r, struct text *t)
{
    text_add(t, "rank %d (pp %d, tp %d, dp %d)", r->rank.me, r->rank.coord[AXIS_PP],
             r->rank.coord[AXIS_TP], r->rank.coord[AXIS_DP]);
}

/* ---- weights ---- */

/* The first weight of any rank that is not finite: by its stage, then its number there. */
enum err train_weights_finite(const struct train_rank *r, bool *finite, struct text *out)
{
    struct dev *dev = r->rank.dev;
    struct text words = {0};
    double key[2] = {0, 0};
    bool found = false;
    /* A null device has none. */
    int first = -1, stages = dev->kind == DEV_NULL ? 0 : r->rank.x->stages_here;
    enum err err = ERR_OK;
    for (int i = 0; i < stages && err == ERR_OK; i++) {
        const struct param_store *s = r->rank.x->store[i];
        int id = r->rank.x->stage[i].id;
        for (int k = 0; k < s->n && err == ERR_OK && !(found && key[0] <= id); k++) {
            const struct param *p = &s->param[k];
            struct probe_operand o = {.p = param_w(p), .rows = 1, .cols = p->count,
                                      .type = dev->ct};
            struct probe_element e;
            bool good;
            err = probe_look(dev, &o, &e, &good);
            if (err != ERR_OK || good)
                continue;
            found = true;
            key[0] = id;
            key[1] = k;
            text_free(&words);
            text_add(&words, "%s is not finite: %g on ", p->spec.name, num_unsigned_nan(e.value));
            add_rank(r, &words);
        }
    }
    if (err == ERR_OK)
        err = earliest(r, found, key, 2, &first);
    *finite = err != ERR_OK || first < 0;
    if (err == ERR_OK && first >= 0)
        err = share(r, first, &words, out);
    text_free(&words);
    return err;
}

/* ---- the step once more ---- */

struct search {
    struct train_rank *r;
    struct probe probe;
    struct sched_instr in; /* under way, or that of the find */
    double sums[SUMS_COUNT]; /* of this rank, as for the optimizer */
};

static void on_begins(void *arg, struct sched_instr in)
{
    struct search *s = arg;
    comm_slow(s->r->rank.world); /* its peers' GPUs may have found and be far ahead */
    if (s->probe.found)
        return;
    s->in = in;
    s->probe.calls = 0;
    s->r->rank.dev->part = -1;
}

/* ---- its words ---- */

enum pass { PASS_END, PASS_FORWARD, PASS_AGAIN, PASS_BACKWARD, PASS_WEIGHTS };
static const char *const pass_name[] = {"the end", "the forward", "the recomputed forward",
                                        "the backward", "the backward of the weights"};
static const enum pass pass_of[SCHED_OP_COUNT] = {
    [SCHED_F] = PASS_FORWARD, [SCHED_R] = PASS_AGAIN, [SCHED_B] = PASS_BACKWARD,
    [SCHED_I] = PASS_BACKWARD, [SCHED_W] = PASS_WEIGHTS};

/* " with layers.0.mlp.up.weight", " for the gradient of ...": of the parameters among the operands
 * the first. */
static void add_param(const struct search *s, struct text *t)
{
    const struct train_rank *r = s->r;
    for (int i = 0; i < s->probe.operands; i++) {
        const struct probe_operand *o = &s->probe.operand[i];
        for (int k = 0; k < r->rank.x->stages_here && o->rows > 0; k++) {
            const struct param_store *of = r->rank.x->store[k];
            for (int n = 0; n < of->n; n++) {
                const char *w = of->w + of->param[n].offset * of->ct;
                const char *grad = of->grad + of->param[n].offset * of->at;
                if (o->p == w && !o->written)
                    text_add(t, " with %s", of->param[n].spec.name);
                else if (o->p == grad)
                    text_add(t, " for the gradient of %s", of->param[n].spec.name);
                else
                    continue;
                return;
            }
        }
    }
}

/* "the forward of microbatch 2 in stage 1, layer 3, attn" */
static void add_place(const struct search *s, struct text *t)
{
    const struct stage *of = NULL;
    enum pass pass = pass_of[s->in.op];
    for (int i = 0; i < s->r->rank.x->stages_here && !of; i++)
        if (sched_op_names_stage(s->in.op) && s->r->rank.x->stage[i].id == s->in.stage)
            of = &s->r->rank.x->stage[i].stage;
    text_add(t, "%s of ", pass_name[pass]);
    if (pass == PASS_END) {
        text_add(t, "the step");
        return;
    }
    text_add(t, "microbatch %d, stage %d", s->in.mb, s->in.stage);
    if (!of || s->probe.part < 0)
        return;
    const struct stage_part *p = &of->part[s->probe.part];
    if (p->layer.block >= 0)
        text_add(t, ", layer %lld", (long long)p->layer.block);
    text_add(t, ", %s", p->kind->name);
}

/* What the earliest find is; where no rank has one, what that means. */
static enum err tell(const struct search *s, struct text *out)
{
    const struct rank *k = &s->r->rank;
    struct text words = {0};
    double key[KEYS] = {0}, sums[SUMS_COUNT];
    bool finite = true;
    int first = -1;
    if (s->probe.found) {
        enum pass pass = pass_of[s->in.op];
        bool end = pass == PASS_END, forward = pass == PASS_FORWARD || pass == PASS_AGAIN;
        const struct probe_element *e = &s->probe.element;
        bool met = s->probe.met;
        text_add(&words, "the first number that is not finite is on ");
        add_rank(s->r, &words);
        text_add(&words, " in ");
        add_place(s, &words);
        text_add(&words, met ? ": what %s reads" : ": %s", op_rows[s->probe.kind].name);
        add_param(s, &words);
        text_add(&words, met ? " holds %g" : " gives %g", num_unsigned_nan(e->value));
        text_add(&words, " at [%lld, %lld] of %lld x %lld%s", (long long)e->row, (long long)e->col,
                 (long long)e->rows, (long long)e->cols,
                 met ? ", which a sum or message between ranks brought" : " from finite operands");
        key[0] = end;
        key[1] = end ? 0 : s->in.mb;
        key[2] = pass;
        key[3] = end ? 0 : forward ? s->in.stage : -s->in.stage;
        key[4] = -(double)s->in.seg; /* the last layers' goes first */
        key[5] = (double)s->probe.call;
        key[6] = s->probe.met;
    }
    enum err err = earliest(s->r, s->probe.found, key, KEYS, &first);
    if (err == ERR_OK && first >= 0)
        err = share(s->r, first, &words, out);
    text_free(&words);
    if (err != ERR_OK || first >= 0)
        return err;
    memcpy(sums, s->sums, sizeof sums);
    TRY(comm_all_reduce(k->all, sums, SUMS_COUNT, DT_F64, COMM_SUM));
    for (int i = 0; i < SUMS_COUNT; i++)
        finite = finite && isfinite(sums[i]);
    text_add(out, finite ? "run once more, the same samples give finite numbers: what was seen "
                           "cannot be repeated, so look at the machine"
                         : "every rank's numbers are finite, their sum over the ranks is not");
    return out->err;
}

static enum err goes_on(void)
{
    int why = stop_asked();
    if (why)
        FAIL(ERR_STOPPED, "the search was ended by %s", stop_name(why));
    return ERR_OK;
}

enum err train_locate(struct train_rank *r, struct text *out)
{
    struct search s = {.r = r, .in = {.op = SCHED_STEP}};
    const struct plait_train *call = r->job->call;
    struct exec_hooks hooks = {.begins = on_begins, .arg = &s};
    int64_t n, tokens = r->s->step_samples * r->job->train.targets;
    struct optim_step step = {.step = r->taken + 1, .tokens = r->rank.counts_tokens ? tokens : 0};
    char words[128]; /* it takes as long as a step or two, and no progress is seen meanwhile */
    if (r->bad_round < 0)
        snprintf(words, sizeof words, "step %lld is not finite: it is run once more to find where",
                 (long long)r->taken + 1);
    else
        snprintf(words, sizeof words, "the validation behind step %lld is not finite: its batch "
                 "%lld is run once more to find where", (long long)r->step,
                 (long long)r->bad_round + 1);
    if (r->rank.is_logger && call->on_search)
        call->on_search(call->arg, words);
    TRY(goes_on());
    TRY(probe_on(r->rank.dev, &s.probe));
    s.probe.goes_on = goes_on;
    /* Taking host memory waits for the GPU, which may wait for peers. */
    enum err err;
    TRY_OR(out_probe, comm_barrier(r->rank.all));
    if (r->bad_round >= 0) {
        TRY_OR(out_probe, train_valid_round(r, r->bad_round, &hooks, &n, &s.sums[0]));
    } else {
        TRY_OR(out_probe, train_read(r, r->taken + 1));
        struct exec_batch b = train_batch(r, r->taken + 1);
        exec_zero_grads(r->rank.x);
        TRY_OR(out_probe, exec_run(r->rank.x, &r->s->sched, &b, &hooks));
        TRY_OR(out_probe, exec_own_sums(r->rank.x, &step, s.sums));
    }
    err = r->rank.dev->ops->sync(r->rank.dev);
out_probe:
    probe_off(r->rank.dev, &s.probe);
    return err == ERR_OK ? tell(&s, out) : err;
}
