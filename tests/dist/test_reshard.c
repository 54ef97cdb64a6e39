/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints move: saved on one layout, resumed on another, for pairs of ten layouts and in each
 * type of numbers. What is moved and saved again without a step has the same bits of weights and
 * moments; and the run that goes on there ends with the losses, norms and weights of one rank that
 * never stopped, up to the law's bounds (test_law.c). PLAIT_RESHARD=1: all 90 ordered pairs for
 * each model and type; else a dozen for each type, in which each layout is left and reached. On
 * GPUs likewise, of the layouts that have no more ranks than this process sees GPUs, and from there
 * to the CPU and back.
 */
#include "gpus.h"
#include "left.h"

#include "base/fs.h"
#include "config/options.h"
#include "setup/setup.h"

#include <stdlib.h>

enum { STEPS = 12, EVERY = 3, WORDS = 24, NAME = 256 };

/* Adam makes a whole step of a gradient that is zero but for rounding, unless eps is above that. */
static const char *const base_set[] = {
    "model.layers=5", "model.hidden=32", "model.heads=4", "model.seq=8", "model.ffn=48",
    "model.dropout=0.1", "model.tied=true", "model.init_std=0.08", "train.batch=6",
    "train.threads=1", "train.steps=12", "optim.lr=0.01", "optim.warmup=3", "optim.clip=0.5",
    "optim.eps=1e-3"};

/* Fewer kv heads than heads; and biases, transposed matrices, q, k and v in one tensor. */
static const struct sort { const char *name, *set[4]; } models[] = {
    {"llama", {"model.kind=llama", "model.kv_heads=2"}}, {"gpt", {"model.kind=gpt"}}};
enum { MODELS = sizeof models / sizeof *models };

static const struct type { const char *name; double bound; const char *set[4]; } types[] = {
    {"ref", 1e-12, {"train.device=ref"}},
    {"f32", 1e-5, {"train.dtype=f32"}},
    {"bf16", 0.05, {"train.dtype=bf16"}},
    {"f32 on a GPU", 2e-5, {"train.dtype=f32", "train.device=cuda"}},
    {"bf16 on a GPU", 0.05, {"train.dtype=bf16", "train.device=cuda"}}};
enum { TYPES = 3 }; /* on the CPU; two more on GPUs */

/* The six samples of a step in microbatches of unequal size, where they are not of one. */
static const struct layout { const char *name, *set[WORDS]; int ranks; } layouts[] = {
    {"one rank", {"parallel.microbatch=4"}, 1},
    {"dp 2", {"parallel.dp=2", "parallel.microbatch=2"}, 2},
    {"dp 2, zero 1", {"parallel.dp=2", "parallel.zero=1"}, 2},
    {"tp 2", {"parallel.tp=2", "parallel.microbatch=5"}, 2},
    {"tp 4, sp", {"parallel.tp=4", "parallel.sp=true", "parallel.microbatch=4"}, 4},
    {"pp 2, 1f1b", {"parallel.pp=2", "parallel.microbatch=4"}, 2},
    {"pp 2, two chunks", {"parallel.pp=2", "parallel.schedule=interleaved",
                          "parallel.chunks=2"}, 2},
    {"pp 2, V", {"parallel.pp=2", "parallel.schedule=zb-v"}, 2},
    {"tp 2, pp 2, dp 2, zero 1", {"parallel.tp=2", "parallel.pp=2", "parallel.dp=2",
                                  "parallel.zero=1", "parallel.microbatch=2"}, 8},
    {"pp 4, half layers", {"parallel.pp=4", "parallel.schedule=zb-h1"}, 4},
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

static int pairs;

/* ---- runs ---- */

static struct plait_config *config(const char *run, const struct sort *m, const struct type *t,
                                   const struct layout *l)
{
    folder_tokens("tokens", "a braid of many strands, over and under\n", 60);
    struct plait_config *c = folder_config(run, "tokens");
    folder_set(c, base_set, sizeof base_set / sizeof *base_set);
    folder_set(c, m->set, 4);
    folder_set(c, t->set, 4);
    folder_set(c, l->set, WORDS);
    return c;
}

static void name_of(int layout, const struct sort *m, const struct type *t, char out[NAME])
{
    snprintf(out, NAME, "%s-%s-%d", m->name, t->name, layout);
}

static void compare(const char *run, const char *judge, int64_t from, double bound,
                    const char *what)
{
    struct left_line a[STEPS], b[STEPS];
    struct left_worst worst;
    int n = left_lines(run, a, STEPS), m = left_lines(judge, b, STEPS);
    bool all = n == STEPS - from && m == STEPS;
    test_check(all, __FILE__, __LINE__, "%s: %d lines of %d", what, n, (int)(STEPS - from));
    for (int i = 0; i < n && all; i++) {
        const struct left_line *x = &a[i], *y = &b[from + i];
        double loss = fabs(x->loss - y->loss) / fabs(y->loss);
        double norm = fabs(x->norm - y->norm) / y->norm;
        test_check(x->step == y->step && x->lr == y->lr && loss <= bound && norm <= bound,
                   __FILE__, __LINE__, "%s: step %lld: loss differs by %g, norm by %g of 1; lr "
                   "%.17g, %.17g", what, (long long)x->step, loss, norm, x->lr, y->lr);
    }
    left_difference(run, judge, STEPS, STATE_WEIGHT + 1, &worst);
    test_check(worst.far <= bound, __FILE__, __LINE__, "%s: %s differs by %g of 1", what,
               worst.what, worst.far);
}

/* The run of a layout that never stops, and its checkpoints; made once. The first is the judge. */
static void begin(int layout, const struct sort *m, const struct type *t)
{
    static const char *const saves[] = {"train.save_every=3", "train.save_keep=4",
                                        "train.save_async=false"};
    char run[NAME], judge[NAME];
    struct folder_seen seen;
    name_of(layout, m, t, run);
    name_of(0, m, t, judge);
    if (folder_has(run, "model.safetensors"))
        return;
    struct plait_config *c = config(run, m, t, &layouts[layout]);
    folder_set(c, saves, 3);
    int code = folder_train(c, &seen);
    test_check(code == 0, __FILE__, __LINE__, "%s: %s", run, plait_error());
    compare(run, judge, 0, t->bound, layouts[layout].name);
}

/* Goes on behind a step of that run, in a folder of its own, until step `steps`. */
static void resume(const char *from, int64_t step, struct plait_config *c, int64_t steps,
                   const char *what)
{
    char dir[FOLDER_PATH], word[FOLDER_PATH + 48], until[32];
    struct folder_seen seen;
    folder_path_in(from, "checkpoints", dir);
    snprintf(word, sizeof word, "run.resume=%s/step-%lld", dir, (long long)step);
    snprintf(until, sizeof until, "train.steps=%lld", (long long)steps);
    folder_set(c, (const char *const[]){word, until, "train.save_every=100",
                                        "train.save_async=false"}, 4);
    int code = folder_train(c, &seen);
    test_check(code == 0, __FILE__, __LINE__, "%s: %s", what, plait_error());
    CHECK_INT(seen.losses, steps - step);
}

/* Is a number of type a one of type b, to the bit? */
static bool holds(const struct type *a, const struct type *b)
{
    return a != types || b == types;
}

/* From layout i and type t to layout j and type u. */
static void move(int i, int j, const struct sort *m, const struct type *t, const struct type *u)
{
    char from[NAME], judge[NAME], what[2 * NAME];
    struct left_worst worst;
    double bound = fmax(t->bound, u->bound);
    int64_t step = EVERY * test_range(1, STEPS / EVERY - 1);
    begin(0, m, t);
    begin(i, m, t);
    name_of(i, m, t, from);
    name_of(0, m, t, judge);
    snprintf(what, sizeof what, "%s, behind step %d: %s, %s to %s, %s", m->name, (int)step,
             layouts[i].name, t->name, layouts[j].name, u->name);
    resume(from, step, config("moved", m, u, &layouts[j]), step, what);
    left_difference("moved", from, step, STATE_KINDS, &worst);
    test_check(worst.far <= (holds(t, u) ? 0 : 1e-7), __FILE__, __LINE__,
               "%s: moved, %s differs by %g of 1", what, worst.what, worst.far);
    folder_remove("moved");
    resume(from, step, config("run", m, u, &layouts[j]), STEPS, what);
    compare("run", judge, step, bound, what);
    folder_remove("run");
    pairs++;
}

/* ---- pairs ---- */

static bool all_of_them(void)
{
    return getenv("PLAIT_RESHARD") != NULL;
}

static int no_fsync(int fd)
{
    (void)fd;
    return 0;
}

/* The disk's time is not what this is about. */
static void need_no_disk(void)
{
    static struct fs_ops ops;
    ops = *fs_ops;
    ops.fsync = no_fsync;
    fs_ops = &ops;
}

static void of_type(const struct type *t)
{
    need_no_disk();
    pairs = 0;
    for (int k = 0; k < MODELS; k++)
        for (int i = 0; i < LAYOUTS; i++)
            for (int j = 0; j < LAYOUTS; j++) {
                bool drawn = k == (t - types) % MODELS &&
                             (j == (i + 3) % LAYOUTS || (i == 8 && j >= 4 && j <= 5));
                if (i != j && (all_of_them() || drawn))
                    move(i, j, &models[k], t, t);
            }
    printf("%s: %d pairs\n", t->name, pairs);
    CHECK_INT(pairs, all_of_them() ? MODELS * LAYOUTS * (LAYOUTS - 1) : 12);
}

static void of_ref(void) { of_type(&types[0]); }
static void of_f32(void) { of_type(&types[1]); }
static void of_bf16(void) { of_type(&types[2]); }

/* From each type to each other one. */
static void between_types(void)
{
    need_no_disk();
    pairs = 0;
    for (int a = 0; a < TYPES; a++)
        for (int b = 0; b < TYPES; b++)
            for (int i = 0; i < LAYOUTS && a != b; i++)
                if (all_of_them() || i == 2 * a + b)
                    move(i, (3 * i + 1) % LAYOUTS, &models[a % MODELS], &types[a], &types[b]);
    printf("between types: %d pairs\n", pairs);
}

/* Of the layouts that the GPUs here allow, to one other each and to the CPU's type of the same
 * numbers and back; half of them in each type. With PLAIT_RESHARD all, and to all others. */
static void on_gpus(const struct type *t)
{
    enum { MOST = 4 };
    const struct type *cpu = t - 2;
    int here = gpus_here(MOST), of[LAYOUTS], n = 0;
    if (here == 0) {
        test_skip("no GPU");
        return;
    }
    need_no_disk();
    pairs = 0;
    for (int i = 0; i < LAYOUTS; i++)
        if (layouts[i].ranks <= here)
            of[n++] = i;
    for (int i = 0; i < n; i++) {
        const struct sort *m = &models[i / 2 % MODELS];
        if (!all_of_them() && n > 1 && (i + (t - types)) % 2)
            continue;
        for (int j = 0; j < n; j++)
            if (i != j && (all_of_them() || j == (i + 3) % n))
                move(of[i], of[j], m, t, t);
        move(of[i], of[i], m, t, cpu);
        move(of[i], of[i], m, cpu, t);
    }
    printf("on %d GPUs, %s: %d pairs\n", here, t->name, pairs);
}

static void on_gpus_f32(void) { on_gpus(&types[TYPES]); }
static void on_gpus_bf16(void) { on_gpus(&types[TYPES + 1]); }

/* Do the last layout's stages end within layers? Else nothing here shows that these move. */
static void there_are_half_layers(void)
{
    struct options o;
    struct setup s;
    bool found = false;
    CHECK_OK(conf_defaults(&options_table, &o));
    for (int i = 0; i < (int)(sizeof base_set / sizeof *base_set); i++)
        CHECK_OK(conf_set(&options_table, &o, base_set[i]));
    for (int i = 0; layouts[LAYOUTS - 1].set[i]; i++)
        CHECK_OK(conf_set(&options_table, &o, layouts[LAYOUTS - 1].set[i]));
    CHECK_OK(setup_make(&o, 257, true, &s));
    for (int i = 0; i < s.sched.stages; i++)
        found = found || (i > 0 && s.cut[i].first % 2 == 0); /* at an mlp */
    CHECK(found);
    setup_free(&s);
}

static const struct test_case cases[] = {
    {"there are half layers", there_are_half_layers},
    {"of ref", of_ref},
    {"of f32", of_f32},
    {"of bf16", of_bf16},
    {"between types", between_types},
    {"on GPUs, f32", on_gpus_f32},
    {"on GPUs, bf16", on_gpus_bf16},
};
TEST_MAIN(cases)
