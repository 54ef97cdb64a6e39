/* SPDX-License-Identifier: Apache-2.0
 *
 * A state that is not finite is never a checkpoint. The update of a step is made to leave one
 * infinite number, a weight or a moment, and whatever makes the run save then, the checkpoint of
 * before stays the newest, the run ends with 18 and names it, and run.resume=auto goes on from it.
 * The program is linked so that dev_open comes through here.
 */
#include "folder.h"

#include "base/mem.h"
#include "ckpt/state.h"
#include "device/device.h"

#include <limits.h>
#include <time.h>

enum { RANKS = 8, GOOD = 3, BAD = 4, STEPS = 9 };
enum place { WEIGHT, M, V, PLACES };

/* Behind the update of step BAD on one rank; rank -1: on none. */
static struct { int rank; enum place place; double value; } fault = {.rank = -1};

static struct fake {
    struct dev_ops ops;
    const struct dev_ops *own;
} fake[RANKS];

enum err __real_dev_open(const struct dev_args *a, struct dev **out);
enum err __wrap_dev_open(const struct dev_args *a, struct dev **out);
static _Thread_local int my_rank; /* a rank has a thread: its device */

static void put(void *p, int64_t i, enum dtype t)
{
    if (t == DT_F64)
        ((double *)p)[i] = fault.value;
    else if (t == DT_F32)
        ((float *)p)[i] = (float)fault.value;
    else
        ((uint16_t *)p)[i] = bf16_from_f32((float)fault.value);
}

static enum err my_run(struct dev *d, const struct op *op)
{
    const struct adamw *a = &op->adamw;
    TRY(fake[my_rank].own->run(d, op));
    if (op->kind != OP_ADAMW)
        return ERR_OK;
    double step = log(1 - a->step_scalars[SCALAR_BIAS1]) / log(a->beta1);
    int64_t i = a->n / 3;
    if (fault.rank != my_rank || lround(step) != BAD)
        return ERR_OK;
    if (fault.place == WEIGHT)
        put(a->w, i, d->ct);
    if (fault.place == WEIGHT && a->master)
        put(a->master, i, d->at);
    if (fault.place != WEIGHT)
        put(fault.place == M ? a->m : a->v, i, d->at);
    return ERR_OK;
}

enum err __wrap_dev_open(const struct dev_args *a, struct dev **out)
{
    TRY(__real_dev_open(a, out));
    if (a->index < 0 || a->index >= RANKS)
        return ERR_OK;
    my_rank = a->index;
    fake[my_rank] = (struct fake){.ops = *(*out)->ops, .own = (*out)->ops};
    fake[my_rank].ops.run = my_run;
    (*out)->ops = &fake[my_rank].ops;
    return ERR_OK;
}

/* ---- runs ---- */

static const struct layout { int rank; const char *set[6]; } layouts[] = {
    {0, {"train.device=ref", "parallel.pp=2"}},
    {1, {"train.dtype=f32", "parallel.tp=2", "parallel.sp=true"}},
    {1, {"train.dtype=bf16", "parallel.dp=2", "parallel.zero=1"}},
    {3, {"train.dtype=bf16", "parallel.tp=2", "parallel.pp=2"}},
    {0, {"train.dtype=f32", "parallel.pp=2", "parallel.dp=2", "parallel.zero=1"}},
    {1, {"train.dtype=f32", "parallel.pp=2", "parallel.schedule=zb-h1"}},
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

/* What makes it save behind step BAD, or end there. */
enum way { EVERY, WAITING, END, LOST, STOPPED, ASKED, TIME, BEST, WAYS };
static const char *const way_name[] = {"save_every", "save_async=false", "the end", "the next step",
                                       "a stop", "a request", "the time", "save_best"};

struct run { enum way way; double nap; double loss[STEPS + 1]; char table[8192]; };

static void on_start(void *arg, const char *table)
{
    struct run *r = arg;
    snprintf(r->table, sizeof r->table, "%s", table);
}

static void on_step(void *arg, const struct plait_step *s)
{
    struct run *r = arg;
    struct timespec nap = {(time_t)r->nap, (long)((r->nap - floor(r->nap)) * 1e9)};
    r->loss[s->step] = s->loss;
    if (s->step != GOOD)
        return;
    if (r->way == STOPPED)
        plait_stop(1);
    if (r->way == ASKED)
        plait_save();
    if (r->way == TIME)
        nanosleep(&nap, NULL);
}

static int train(const struct layout *l, struct run *r, const char *const *more)
{
    char limit[48] = "train.time_limit=0";
    folder_tokens("braid", "a braid of many strands, over and under\n", 60);
    struct plait_config *c = folder_config("run", "braid");
    folder_set(c, (const char *const[]){
        "model.layers=4", "model.hidden=16", "model.heads=2", "model.seq=8", "train.batch=4",
        "train.threads=1", "train.save_keep=1", "optim.lr=0.003", "optim.schedule=constant",
        "optim.warmup=0", "parallel.microbatch=1"}, 11);
    folder_set(c, l->set, 6);
    folder_set(c, more, INT_MAX);
    if (r->way == TIME)
        snprintf(limit, sizeof limit, "train.time_limit=%g", r->nap);
    folder_set(c, (const char *const[]){limit}, 1);
    if (r->way == BEST)
        folder_set_file(c, "data.valid", "braid");
    int code = plait_train(c, &(struct plait_train){.size = sizeof(struct plait_train),
                                                    .on_start = on_start, .on_step = on_step,
                                                    .arg = r});
    plait_stop(0);
    plait_config_free(c);
    return code;
}

static int train_bad(const struct layout *l, enum way way, struct run *r)
{
    char steps[32];
    const char *const more[] = {
        way == BEST ? "train.save_best=true" : "train.save_best=false",
        way == BEST ? "train.valid_every=1" : "train.valid_every=0",
        way == WAITING ? "train.save_async=false" : "train.save_async=true",
        way == BEST ? "train.save_every=0"
                    : way == EVERY || way == WAITING ? "train.save_every=1" : "train.save_every=3",
        steps, NULL};
    snprintf(steps, sizeof steps, "train.steps=%d", way == END ? BAD : STEPS);
    *r = (struct run){.way = way, .nap = 0.3};
    int code = train(l, r, more);
    while (way == TIME && code == PLAIT_STOPPED && r->nap < 10) { /* before step GOOD */
        folder_remove("run");
        r->nap *= 2;
        code = train(l, r, more);
    }
    return code;
}

/* The checkpoint of step GOOD, as the best the one before it, too, and no trace of another. */
static void check_left(enum way way, const char *what)
{
    struct state_found *found;
    char path[FOLDER_PATH];
    int n;
    folder_path("run", path);
    CHECK_OK(state_list(path, false, &found, &n));
    bool good = n == 1 + (way == BEST) && found[0].whole && found[0].step == GOOD;
    test_check(good, __FILE__, __LINE__, "%s: %d checkpoints, the newest of step %lld", what, n,
               n ? (long long)found[0].step : 0);
    mem_free(found);
}

static void check_message(const char *what, int code)
{
    static const char *const of[] = {"not finite", "; run.resume=auto goes on from step 3"};
    for (int i = 0; i < 2; i++)
        test_check(code == PLAIT_NONFINITE && strstr(plait_error(), of[i]), __FILE__, __LINE__,
                   "%s: %d, no \"%s\" in \"%s\"", what, code, of[i], plait_error());
}

/* A lower rate, from the checkpoint that is named, without the fault. */
static void check_goes_on(const struct layout *l, const char *what)
{
    static const char *const more[] = {"run.resume=auto", "optim.lr=0.001", "train.steps=9", NULL};
    struct run r = {.way = WAYS};
    fault.rank = -1;
    int code = train(l, &r, more);
    test_check(code == 0 && strstr(r.table, "behind step 3, "), __FILE__, __LINE__, "%s: %d: %s",
               what, code, plait_error());
    test_check(r.loss[STEPS] < r.loss[GOOD + 1] && r.loss[STEPS] > 0, __FILE__, __LINE__,
               "%s: losses %g, %g", what, r.loss[GOOD + 1], r.loss[STEPS]);
}

static void is_no_checkpoint(enum place place)
{
    static const char *const names[] = {"a weight", "exp_avg", "exp_avg_sq"};
    for (enum way way = 0; way < WAYS; way++)
        for (int turn = 0; turn < 2; turn++) {
            const struct layout *l = &layouts[((int)way + turn * 3 + (int)place) % LAYOUTS];
            struct run r;
            char what[128];
            snprintf(what, sizeof what, "%s, %s, %s %s", names[place], way_name[way], l->set[0],
                     l->set[1]);
            fault.rank = l->rank;
            fault.place = place;
            fault.value = INFINITY;
            check_message(what, train_bad(l, way, &r));
            check_left(way, what);
            bool there = folder_has("run", "model.safetensors");
            test_check(place == WEIGHT ? !there : place == M || there, __FILE__, __LINE__,
                       "%s: model.safetensors is %sthere", what, there ? "" : "not ");
            check_goes_on(l, what);
            folder_remove("run");
        }
}

static void weights(void) { is_no_checkpoint(WEIGHT); }
static void first_moments(void) { is_no_checkpoint(M); }
static void second_moments(void) { is_no_checkpoint(V); }

/* A master weight that is finite and has no bf16 would be refused by the next start. */
static void too_large_for_bf16(void)
{
    struct run r;
    fault.rank = layouts[2].rank;
    fault.place = WEIGHT;
    fault.value = 3.4e38;
    check_message("bf16", train_bad(&layouts[2], EVERY, &r));
    check_left(EVERY, "bf16");
    fault.rank = -1;
    folder_remove("run");
}

/* No checkpoint was before: the message says that. */
static void there_is_none_before(void)
{
    static const char *const more[] = {"train.steps=9", NULL};
    struct run r = {.way = WAYS};
    fault.rank = layouts[1].rank;
    fault.place = WEIGHT;
    fault.value = NAN;
    CHECK_INT(train(&layouts[1], &r, more), PLAIT_NONFINITE);
    test_check(strstr(plait_error(), "these weights are not saved; there is no checkpoint to go on "
                                     "from") != NULL, __FILE__, __LINE__, "%s", plait_error());
    CHECK(!folder_has("run", "model.safetensors"));
    fault.rank = -1;
    folder_remove("run");
}

/* A moment that is finite in f64 alone: such a checkpoint is refused where it is read in f32. */
static void moments_are_looked_at_when_read(void)
{
    static const char *const all[] = {"train.steps=4", NULL};
    static const char *const on[] = {"train.steps=6", "run.resume=auto", NULL};
    for (enum place place = M; place <= V; place++) {
        struct run r = {.way = WAYS};
        fault.rank = layouts[0].rank;
        fault.place = place;
        fault.value = 1e300;
        CHECK_INT(train(&layouts[0], &r, all), 0);
        fault.rank = -1;
        CHECK_INT(train(&layouts[4], &r, on), PLAIT_CHECKPOINT);
        folder_remove("run");
    }
}

static const struct test_case cases[] = {
    {"weights", weights},
    {"first moments", first_moments},
    {"second moments", second_moments},
    {"too large for bf16", too_large_for_bf16},
    {"there is none before", there_is_none_before},
    {"moments are looked at when read", moments_are_looked_at_when_read},
};
TEST_MAIN(cases)
