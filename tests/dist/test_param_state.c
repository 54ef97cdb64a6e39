/* SPDX-License-Identifier: Apache-2.0
 *
 * What ranks save and get back. The duties of all ranks tile every parameter once in each kind,
 * whatever the layout; what one layout saved and any other was filled with is the same bits there,
 * on every copy, and training goes on as if it had never stopped; and a snapshot is of its step,
 * however late its copies are made. Here they are made as late as they may be, by a device whose
 * snapshots wait until somebody waits for them: the queue, before the next update, or a thread
 * that writes.
 */
#include "base/mem.h"
#include "exec/exec.h"
#include "kept.h"
#include "layout.h"
#include "tape.h"
#include "param/param_state.h"
#include "test.h"

#include <pthread.h>

enum { RANKS = 8, STORES = 8 };

/* ---- copies that are made as late as they may be ---- */

struct late {
    const struct dev_ops *real;
    struct dev_ops ops;
    struct copy { void *to; const void *from; int64_t bytes; int slot; } copy[2048];
    int n, joined; /* waiting; made because the queue waited for them */
    bool ready[DEV_SNAPSHOT_SLOTS];
    pthread_mutex_t lock;
};

static struct late lates[RANKS];
static struct tape tapes[RANKS];

static struct late *late_of(const struct dev *d)
{
    int i = 0;
    while (i < RANKS - 1 && d->ops != &lates[i].ops && d->ops != &tapes[i].ops)
        i++;
    return &lates[i];
}

static enum err late_ready(struct dev *d, int slot)
{
    late_of(d)->ready[slot] = true;
    return ERR_OK;
}

static enum err late_run(struct dev *d, const struct op *op)
{
    struct late *l = late_of(d);
    const struct snapshot *a = &op->snapshot;
    if (op->kind != OP_SNAPSHOT)
        return l->real->run(d, op);
    CHECK(l->ready[a->slot]);
    pthread_mutex_lock(&l->lock);
    ENSURE(l->n < (int)(sizeof l->copy / sizeof *l->copy));
    l->copy[l->n++] = (struct copy){a->to, a->from, a->n, a->slot};
    pthread_mutex_unlock(&l->lock);
    return ERR_OK;
}

/* Those of a slot; -1: of all. */
static int make_copies(struct late *l, int slot)
{
    int left = 0;
    pthread_mutex_lock(&l->lock);
    int n = l->n;
    for (int i = 0; i < n; i++)
        if (slot < 0 || l->copy[i].slot == slot)
            memcpy(l->copy[i].to, l->copy[i].from, (size_t)l->copy[i].bytes);
        else
            l->copy[left++] = l->copy[i];
    l->n = left;
    pthread_mutex_unlock(&l->lock);
    return n - left;
}

static enum err late_join(struct dev *d, int slot)
{
    struct late *l = late_of(d);
    l->joined += make_copies(l, slot) > 0;
    return ERR_OK;
}

static enum err late_reach(struct dev *d, bool *there)
{
    struct late *l = late_of(d);
    if (!there)
        (void)make_copies(l, -1);
    pthread_mutex_lock(&l->lock);
    if (there)
        *there = l->n == 0;
    pthread_mutex_unlock(&l->lock);
    return ERR_OK;
}

static void opened_late(struct dev *d, int rank)
{
    struct late *l = &lates[rank];
    *l = (struct late){.real = d->ops, .ops = *d->ops};
    l->ops.snapshot_ready = late_ready;
    l->ops.run = late_run;
    l->ops.snapshot_join = late_join;
    l->ops.snapshot_synchronize = late_reach;
    pthread_mutex_init(&l->lock, NULL);
    d->ops = &l->ops;
}

static void opened_taped(struct dev *d, int rank)
{
    opened_late(d, rank);
    tape_free(&tapes[rank]); /* of the run before */
    tape_over(&tapes[rank], d, true);
}

/* ---- a run that saves, or is filled ---- */

struct saver {
    struct param_store *store[STORES];
    int stores;
    struct param_duty duty;
    struct param_snapshot snapshot;
    int64_t need, slack; /* bytes of a copy; of padding, which is planned and not copied */
    int steps;       /* done */
    pthread_t thread;
    bool writes;     /* the thread runs */
};

static struct {
    const struct layout *l;
    struct kept *to;         /* what is saved; NULL: nothing */
    const struct kept *from; /* what the stores are filled with; NULL: nothing */
    int at;                  /* the step behind which it is saved */
    bool thread;             /* a thread waits for it */
    bool direct;             /* no copy is made */
    const struct layout_result *r;
    struct saver rank[RANKS];
} run;

static int64_t padding_of(const struct param_store *s)
{
    int64_t n = MODEL_PARAM_ALIGN * (param_share_pieces(s) + 1);
    for (int i = 0; i < s->n; i++)
        n += (s->param[i].box.local[0] - s->param[i].box.real[0]) * s->param[i].box.local[1];
    return n;
}

static void save_open(struct saver *s, struct exec *x, int rank)
{
    int64_t planned = run.r->copy[rank];
    s->stores = x->stages_here;
    s->slack = 0;
    for (int i = 0; i < s->stores; i++) {
        s->store[i] = &x->stage[i].stage.params;
        s->slack += PARAM_KINDS * padding_of(s->store[i]) * s->store[i]->at;
    }
    CHECK_OK(param_duty_open(&s->duty, s->store, s->stores, rank / run.l->tp % run.l->dp,
                             run.l->dp));
    s->need = PARAM_KINDS * s->duty.elements * s->store[0]->at;
    if (s->need > 0)
        CHECK_ERR(param_snapshot_open(&s->snapshot, &s->duty, s->need - 1), ERR_INTERNAL,
                  "a snapshot of the parameters takes");
    CHECK_OK(param_snapshot_open(&s->snapshot, &s->duty, run.direct ? 0 : planned));
}

static void *write_it(void *arg)
{
    struct saver *s = arg;
    CHECK_OK(param_snapshot_wait(&s->snapshot));
    kept_add(run.to, &s->snapshot);
    return NULL;
}

static void save_begin(struct saver *s)
{
    CHECK_OK(param_snapshot_start(&s->snapshot));
    if (run.thread)
        s->writes = pthread_create(&s->thread, NULL, write_it, s) == 0;
}

static void save_end(struct saver *s)
{
    if (s->writes)
        (void)pthread_join(s->thread, NULL);
    else
        (void)write_it(s);
    param_snapshot_close(&s->snapshot);
    param_duty_close(&s->duty);
}

/* A few slots, cut anywhere. */
static void deal_to_slots(struct exec *x)
{
    for (int i = 0; i < x->stages_here; i++) {
        struct param_store *s = &x->stage[i].stage.params;
        s->slot = num_ceil_div(s->elements / s->num_shards, 5 + i);
    }
}

static enum err ran(struct exec *x, int rank)
{
    struct saver *s = &run.rank[rank];
    if (s->steps++ == 0)
        deal_to_slots(x);
    if (run.at > 0 && s->steps == run.at) {
        save_open(s, x, rank);
        save_begin(s);
    }
    bool last = s->steps == run.l->steps;
    if (run.at > 0 && s->steps == (last ? run.at : run.at + 1))
        save_end(s);
    return ERR_OK;
}

/* Some values of the parameter in its store's type. */
static void values_of(const struct param *p, enum param_kind kind, int64_t from, int64_t n,
                      void *out)
{
    const double *value = run.from->value[kept_index(run.from, p, kind)];
    for (int64_t e = 0; e < n; e++) {
        double x = value[kept_place(p, from + e)];
        if (p->store->at == 8)
            ((double *)out)[e] = x;
        else
            ((float *)out)[e] = (float)x;
    }
}

/* In parts of any length. */
static enum err fill_piece(const struct param_piece *p, enum param_kind kind, int64_t part)
{
    char *values;
    enum err err = ERR_OK;
    int64_t n;
    TRY(mem_new(p->to - p->from, (size_t)p->param->store->at, "values", &values));
    for (int64_t at = p->from; at < p->to && err == ERR_OK; at += n) {
        n = num_min(part, p->to - at);
        values_of(p->param, kind, at, n, values);
        err = param_state_write(p->param, kind, at, values, n);
    }
    mem_free(values);
    return err;
}

static enum err filled(struct exec *x, int rank)
{
    for (int i = 0; i < x->stages_here; i++) {
        const struct param_store *s = &x->stage[i].stage.params;
        for (int j = 0; j < s->n; j++)
            for (enum param_kind kind = 0; kind < PARAM_KINDS; kind++)
                for (int k = 0; k < param_share_pieces(s); k++) {
                    struct param_piece p;
                    if (param_held(&s->param[j], kind, k, &p))
                        TRY(fill_piece(&p, kind, 1 + (7 * j + 3 * rank) % 41));
                }
    }
    run.rank[rank].stores = x->stages_here;
    for (int i = 0; i < x->stages_here; i++)
        run.rank[rank].store[i] = &x->stage[i].stage.params;
    return ERR_OK;
}

/* Of what this rank holds, elements that are not what they should be: real ones run.from's, padding
 * rows zeros. */
static int64_t wrong_in(const struct param *p, enum param_kind kind)
{
    const struct param_store *s = p->store;
    const double *value = run.from->value[kept_index(run.from, p, kind)];
    int64_t wrong = 0, real = p->box.real[0] * p->box.local[1];
    for (int i = 0; i < param_share_pieces(s); i++) {
        struct param_range r = param_share_of(s, i);
        int64_t begin = num_max(r.begin - p->offset, 0), end = num_min(r.end - p->offset, p->count);
        const char *own = kind == PARAM_WEIGHT ? s->master : kind == PARAM_M ? s->m : s->v;
        int64_t first = kind == PARAM_WEIGHT && s->master == s->w ? r.begin : r.own;
        for (int64_t e = begin; e < end; e++) {
            double want = e < real ? value[kept_place(p, e)] : 0;
            wrong += kept_number(own, s->dev->at, first + p->offset + e - r.begin) != want;
        }
    }
    return wrong;
}

/* The weights that are computed with, all of them on each rank. */
static int64_t wrong_weights(const struct param *p)
{
    const double *value = run.from->value[kept_index(run.from, p, PARAM_WEIGHT)];
    int64_t wrong = 0, real = p->box.real[0] * p->box.local[1];
    for (int64_t e = 0; e < p->count; e++) {
        double want = e < real ? value[kept_place(p, e)] : 0;
        const void *w = param_w(p);
        wrong += p->store->ct == 2 ? ((const uint16_t *)w)[e] != bf16_from_f32((float)want)
                                   : kept_number(w, p->store->dev->ct, e) != want;
    }
    return wrong;
}

static void look(struct dev *d, int rank, int64_t step)
{
    struct saver *s = &run.rank[rank];
    (void)d;
    if (!run.from || step != run.l->done + 1)
        return;
    for (int i = 0; i < s->stores; i++)
        for (int j = 0; j < s->store[i]->n; j++) {
            const struct param *p = &s->store[i]->param[j];
            for (enum param_kind kind = 0; kind < PARAM_KINDS; kind++)
                test_check(wrong_in(p, kind) == 0, __FILE__, __LINE__,
                           "rank %d: %s, kind %d, is not what was saved", rank, p->spec.name,
                           (int)kind);
            test_check(wrong_weights(p) == 0, __FILE__, __LINE__,
                       "rank %d: %s is computed with other weights", rank, p->spec.name);
        }
}

/* Saves into *to behind step `at`; filled from *from. */
static bool run_layout(struct layout *l, struct kept *to, int at, const struct kept *from,
                       struct layout_result *r)
{
    bool thread = run.thread, direct = run.direct;
    memset(&run, 0, sizeof run);
    run.thread = thread;
    run.direct = direct;
    run.r = r;
    run.l = l;
    run.to = to;
    run.at = at;
    run.from = from;
    for (int i = 0; i < RANKS; i++)
        run.rank[i].steps = l->done;
    l->ran = ran;
    l->filled = from ? filled : NULL;
    l->stepping = look;
    enum err err = layout_run(l, r);
    return test_check(err == ERR_OK, __FILE__, __LINE__, "%s tp %d pp %d dp %d zero %d: %s",
                      l->schedule, l->tp, l->pp, l->dp, l->zero, err_text());
}

/* ---- layouts ---- */

static struct model model(enum model_kind kind, bool tied)
{
    return (struct model){.kind = kind, .layers = 4, .hidden = 12, .heads = 2,
                          .kv_heads = kind == MODEL_GPT ? 2 : 1, .head_dim = 6, .ffn = 22,
                          .vocab = 37, .seq = 6, .tied = tied, .dropout = 0.1, .norm_eps = 1e-5,
                          .rope_theta = 10000, .init_std = 0.2};
}

static const struct row {
    int tp, pp, dp, zero;
    const char *schedule;
    int v;
    bool sp, halves;
} rows[] = {
    {1, 1, 1, 0, "1f1b", 1, false, false},  {2, 1, 1, 0, "1f1b", 1, false, false},
    {2, 1, 2, 0, "gpipe", 1, true, false},  {2, 1, 2, 1, "1f1b", 1, false, false},
    {1, 2, 3, 0, "1f1b", 1, false, false},  {1, 2, 3, 1, "1f1b", 1, false, true},
    {1, 2, 1, 0, "chimera", 1, false, false}, {1, 2, 2, 1, "chimera", 1, false, false},
    {2, 2, 1, 0, "chimera", 1, false, false}, {2, 2, 2, 1, "interleaved", 2, true, false},
    {1, 2, 1, 0, "interleaved", 2, false, false}, {1, 1, 3, 1, "1f1b", 1, false, false},
};
enum { ROWS = sizeof rows / sizeof *rows };

static struct layout layout_of(const struct row *r, enum model_kind kind, bool tied)
{
    return (struct layout){.model = model(kind, tied), .tp = r->tp, .pp = r->pp, .dp = r->dp,
                           .zero = r->zero, .schedule = r->schedule, .v = r->v, .sp = r->sp,
                           .halves = r->halves, .batch = 12, .microbatch = 1, .dev = DEV_REF,
                           .ct = DT_F64, .steps = 3, .clip = 0.5, .threads = 1};
}

static void name_of(const struct layout *l, char buf[96])
{
    snprintf(buf, 96, "%s tp %d pp %d dp %d zero %d %s%s", l->schedule, l->tp, l->pp, l->dp,
             l->zero, l->model.kind == MODEL_GPT ? "gpt" : "llama", l->model.tied ? " tied" : "");
}

/* What is saved at the end are the weights that the run ends with. */
static void check_weights(const struct kept *k, const struct layout_result *r, const char *what)
{
    for (int i = 0; i < k->n; i++)
        test_check(memcmp(k->value[i * (int)PARAM_KINDS], r->param[i].weight,
                          (size_t)kept_count(k, i) * sizeof(double)) == 0, __FILE__, __LINE__,
                   "%s: %s is saved with other weights than the run has", what, k->spec[i].name);
}

/* The plan of a pipeline rank is what the rank takes that saves the most there. */
static void check_plan(const struct layout *l, const struct layout_result *r, const char *what)
{
    int each = l->tp * l->dp;
    for (int pp = 0; pp < l->pp; pp++) {
        int64_t most = 0, with_padding = 0, planned = r->copy[pp * each];
        for (int i = pp * each; i < (pp + 1) * each; i++) {
            most = num_max(most, run.rank[i].need);
            with_padding = num_max(with_padding, run.rank[i].need + run.rank[i].slack);
            CHECK_INT(r->copy[i], planned);
        }
        test_check(most <= planned && planned <= with_padding, __FILE__, __LINE__, "%s: pp %d: "
                   "%lld bytes are planned for a copy that takes %lld, with padding %lld", what,
                   pp, (long long)planned, (long long)most, (long long)with_padding);
    }
}

static void tile(struct layout *l)
{
    struct kept k;
    struct layout_result r;
    char what[96];
    name_of(l, what);
    kept_open(&k, &l->model);
    if (run_layout(l, &k, l->steps, NULL, &r)) {
        kept_check_tiled(&k, what);
        check_weights(&k, &r, what);
        check_plan(l, &r, what);
    }
    layout_result_free(&r);
    kept_free(&k);
}

static void each_is_saved_once(void)
{
    for (int i = 0; i < ROWS; i++)
        for (int m = 0; m < 4; m++) {
            struct layout l = layout_of(&rows[i], m & 1 ? MODEL_GPT : MODEL_LLAMA, m & 2);
            l.steps = 1;
            run.direct = (i + m) % 2;
            tile(&l);
        }
    run.direct = false;
}

/* All pairs, each with one of two models. */
static void any_layout_is_filled(void)
{
    for (int m = 0; m < 2; m++)
        for (int i = 0; i < ROWS; i++) {
            struct layout a = layout_of(&rows[i], m ? MODEL_GPT : MODEL_LLAMA, m);
            struct kept k;
            struct layout_result r;
            a.steps = 2;
            kept_open(&k, &a.model);
            (void)run_layout(&a, &k, 2, NULL, &r);
            layout_result_free(&r);
            for (int j = (i + m) % 2; j < ROWS; j += 2) {
                struct layout b = layout_of(&rows[j], a.model.kind, m);
                b.done = b.steps - 1;
                (void)run_layout(&b, NULL, 0, &k, &r);
                layout_result_free(&r);
            }
            kept_free(&k);
        }
}

static const struct { enum dev_kind dev; enum dtype ct; int threads; } on[] = {
    {DEV_REF, DT_F64, 1}, {DEV_CPU, DT_F32, 2}, {DEV_CPU, DT_BF16, 1},
};

/* Steps 3 and 4 behind what steps 1 and 2 have left, saved and filled in: the bits of four
 * steps. */
static void the_same_run_goes_on(void)
{
    for (int i = 0; i < ROWS; i++)
        for (int other = 0; other < 2; other++) {
            int d = (i + other) % 3;
            struct layout l = layout_of(&rows[i], i & 1 ? MODEL_GPT : MODEL_LLAMA, true);
            struct layout_result whole, rest;
            struct kept k;
            char what[96];
            name_of(&l, what);
            l.dev = on[d].dev;
            l.ct = on[d].ct;
            l.threads = on[d].threads;
            l.steps = 4;
            kept_open(&k, &l.model);
            bool ran_both = run_layout(&l, &k, 2, NULL, &whole);
            kept_check_tiled(&k, what);
            l.done = 2;
            ran_both = run_layout(&l, NULL, 0, &k, &rest) && ran_both;
            test_check(ran_both && layout_same_bits(&whole, &rest), __FILE__, __LINE__,
                       "%s, %s: other bits behind what was saved", what, dtype_name(l.ct));
            layout_result_free(&whole);
            layout_result_free(&rest);
            kept_free(&k);
        }
}

/* ---- a snapshot is of its step ---- */

/* Saved behind step 3 by copies that are late, while step 4 runs: what step 3 has left. */
static void check_whole(struct layout *l, bool thread, const char *way)
{
    struct kept want, got;
    struct layout_result r;
    char what[96];
    int joined = 0;
    name_of(l, what);
    kept_open(&want, &l->model);
    kept_open(&got, &l->model);
    l->steps = 3;
    (void)run_layout(l, &want, 3, NULL, &r);
    layout_result_free(&r);
    l->steps = 5;
    run.thread = thread;
    (void)run_layout(l, &got, 3, NULL, &r);
    run.thread = false;
    layout_result_free(&r);
    for (int i = 0; i < l->tp * l->pp * l->dp; i++)
        joined += lates[i].joined > 0;
    CHECK(thread || joined > 0); /* or no copy was late */
    kept_check_tiled(&got, what);
    kept_check_same(&want, &got, way);
    kept_free(&want);
    kept_free(&got);
}

static void late_copies(bool thread)
{
    for (int i = 0; i < ROWS; i++) {
        struct layout l = layout_of(&rows[i], i & 1 ? MODEL_GPT : MODEL_LLAMA, i & 2);
        int d = (i + thread) % 3;
        l.dev = on[d].dev;
        l.ct = on[d].ct;
        l.threads = on[d].threads;
        l.opened = opened_late;
        check_whole(&l, thread, thread ? "a thread waits" : "the queue waits");
    }
}

static void the_queue_waits(void)
{
    late_copies(false);
}

static void a_thread_waits(void)
{
    late_copies(true);
}

/* Steps are replays: the recorded one waits, each time, for the copies of that time. */
static void steps_are_replays(void)
{
    for (int d = 0; d < 3; d++) {
        struct layout l = layout_of(&rows[0], MODEL_GPT, true);
        l.dev = on[d].dev;
        l.ct = on[d].ct;
        l.opened = opened_taped;
        l.recorded = 2;
        check_whole(&l, false, "steps are replays");
        CHECK(tapes[0].replays >= 4);
        CHECK_INT(tapes[0].wrong, 0);
        tape_free(&tapes[0]);
    }
}

static const struct test_case cases[] = {
    {"each_is_saved_once", each_is_saved_once},
    {"any_layout_is_filled", any_layout_is_filled},
    {"the_same_run_goes_on", the_same_run_goes_on},
    {"the_queue_waits", the_queue_waits},
    {"a_thread_waits", a_thread_waits},
    {"steps_are_replays", steps_are_replays},
};
TEST_MAIN(cases)
