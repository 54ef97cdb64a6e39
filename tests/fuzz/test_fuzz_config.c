/* SPDX-License-Identifier: Apache-2.0
 *
 * Drawn configurations against one `ref` rank. Each is either refused by check and by train, with
 * one code and in the same words, or it trains, and then its losses, gradient norms and validations
 * are those of the same configuration on one rank in double precision, and every rank takes the
 * bytes that were planned. On ref they agree to rounding; on cpu as far as its type reaches; null
 * computes nothing and only has to end.
 *
 * `make test` takes a few dozen draws, `make fuzz-config` 300 (N=... others, PLAIT_TEST_SEED=...
 * of another seed). A draw that fails is printed as a command line. Two exceptions are meant:
 * data.train may be unnamed in a plan (the report says that it cannot be trained), and what stands
 * in run.dir is looked at by a run. What would take long here (large models, many ranks or steps)
 * is held to the first half alone.
 */
#include "draw_config.h"

#include "base/mem.h"
#include "base/text.h"
#include "device/device.h"
#include <stdlib.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1, DRAWS = 24 };
#else
enum { SANITIZED = 0, DRAWS = 60 };
#endif
enum { STEPS_MOST = 4, RANKS_MOST = 16, SEEN = 8 };
static const double BYTES_MOST = 256e6;

struct seen {
    double loss[SEEN], norm[SEEN], valid[SEEN];
    int steps, valids;
    char *table; /* owned */
};

static struct { int refused, trained, planned, launched, same; } count;

/* ---- a run ---- */

static void on_start(void *arg, const char *table)
{
    struct seen *s = arg;
    CHECK_OK(mem_string(table, &s->table));
}

static void on_step(void *arg, const struct plait_step *p)
{
    struct seen *s = arg;
    if (s->steps < SEEN) {
        s->loss[s->steps] = p->loss;
        s->norm[s->steps++] = p->grad_norm;
    }
}

static void on_valid(void *arg, int64_t step, double loss, double bits)
{
    struct seen *s = arg;
    (void)step;
    (void)bits;
    if (s->valids < SEEN)
        s->valid[s->valids++] = loss;
}

static void clear_run(const struct drawn *d)
{
    const char *dir = drawn_value(d, "run.dir");
    if (strstr(dir, "/run"))
        folder_remove(dir);
}

static int train(const struct drawn *d, struct seen *s)
{
    struct plait_config *c;
    *s = (struct seen){.steps = 0};
    CHECK_INT(drawn_config(d, &c), 0);
    int code = plait_train(c, &(struct plait_train){.size = sizeof(struct plait_train),
                                                    .ranks = d->ranks, .on_start = on_start,
                                                    .on_step = on_step, .on_valid = on_valid,
                                                    .arg = s});
    plait_config_free(c);
    return code;
}

/* Under mpirun, by the program; losses and norms are in the metrics. Its code is the job's. */
static int launch(const struct drawn *d, int ranks, struct seen *s)
{
    struct text t = {0};
    char path[FOLDER_PATH + 16], line[2048];
    *s = (struct seen){.steps = 0};
    text_add(&t, "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
                 "OMPI_MCA_btl_vader_single_copy_mechanism=none "
                 "OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_orte_tmpdir_base='%s' "
                 "timeout 120 mpirun -n %d --oversubscribe %s train", test_folder(), ranks,
             PLAIT_PROGRAM);
    drawn_print(d, &t);
    text_add(&t, " >/dev/null 2>&1");
    int code = system(t.s);
    text_free(&t);
    snprintf(path, sizeof path, "%s/metrics.jsonl", drawn_value(d, "run.dir"));
    FILE *f = fopen(path, "r");
    while (f && s->steps < SEEN && fgets(line, sizeof line, f)) {
        const char *loss = strstr(line, "\"loss\": "), *norm = strstr(line, "\"grad_norm\": ");
        if (loss && norm) {
            s->loss[s->steps] = strtod(loss + 8, NULL);
            s->norm[s->steps++] = strtod(norm + 13, NULL);
        }
    }
    if (f)
        fclose(f);
    return code;
}

/* The same training on one rank in double precision. */
static int judge(const struct drawn *of, struct seen *s)
{
    static const char *const plain[][2] = {
        {"parallel.tp", "1"}, {"parallel.pp", "1"}, {"parallel.dp", "1"}, {"parallel.zero", "0"},
        {"parallel.sp", "false"}, {"parallel.tp_overlap", "auto"}, {"parallel.chunks", "1"},
        {"parallel.schedule", "1f1b"}, {"parallel.group", "0"}, {"parallel.costs", ""},
        {"parallel.memory_limit", "0"}, {"train.dtype", "f32"}, {"train.device", "ref"},
        {"train.transport", "thread"}, {"train.threads", "1"}, {"train.profile", "false"},
        {"train.trace", "false"}, {"train.recompute", "none"}, {"train.graph", "auto"},
        {"train.canonical_accumulation", "false"},
        {"run.dir", "@run.judge"}, {"run.save", "false"},
    };
    struct drawn d = *of;
    const char *batch = drawn_value(of, "train.batch");
    d.ranks = 0;
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        drawn_set(&d, plain[i][0], plain[i][1]);
    drawn_set(&d, "parallel.microbatch", batch);
    clear_run(&d);
    int code = train(&d, s);
    clear_run(&d);
    return code;
}

/* ---- what has to hold ---- */

static void fail(const struct drawn *d, const char *what)
{
    struct text t = {0};
    drawn_print(d, &t);
    test_check(false, __FILE__, __LINE__, "%s: plait train%s", what, t.s);
    text_free(&t);
}

static bool near(double a, double b, double tolerance)
{
    return fabs(a - b) <= tolerance * (fabs(b) + 1e-3) || (isnan(a) && isnan(b));
}

/* The first step sees one set of weights; behind it AdamW divides by roots of gradients, so that
 * rounding in small ones moves weights. */
static bool agree(const struct seen *a, const struct seen *b, double first, double later)
{
    bool same = a->steps == b->steps;
    for (int i = 0; i < a->steps && same; i++)
        same = near(a->loss[i], b->loss[i], i ? later : first) &&
               near(a->norm[i], b->norm[i], i ? 10 * later : 10 * first);
    for (int i = 0; i < a->valids && same; i++)
        same = a->valids == b->valids && near(a->valid[i], b->valid[i], later);
    return same;
}

/* "pp 0    123 B   123 B": what was predicted and what was taken. */
static bool bytes_agree(const char *table)
{
    long long planned, taken;
    int pp;
    for (const char *at = table; at && (at = strstr(at, "\n  pp ")) != NULL; at++)
        if (sscanf(at, " pp %d %lld B %lld B", &pp, &planned, &taken) == 3 && planned != taken)
            return false;
    return table != NULL;
}

static void hold(const struct drawn *d, bool mpi, int ranks)
{
    struct seen got, want;
    const char *device = drawn_value(d, "train.device"), *dtype = drawn_value(d, "train.dtype");
    char said[4096] = "";
    int code = mpi ? launch(d, ranks, &got) : train(d, &got);
    if (code != 0 && !mpi)
        snprintf(said, sizeof said, "%s", plait_error());
    int wanted = judge(d, &want);
    bool bf16 = dtype && strcmp(dtype, "bf16") == 0, null = strcmp(device, "null") == 0;
    double digits = mpi ? 1e-8 : 1e-9; /* metrics have nine */
    double first = strcmp(device, "ref") == 0 ? digits : bf16 ? 3e-2 : 1e-4;
    double later = strcmp(device, "ref") == 0 ? 1e-7 : bf16 ? 1e-1 : 2e-2;
    bool diverged = code == PLAIT_NONFINITE && wanted == code;
    if ((code != 0 && !diverged) || (!null && code == 0 && wanted != 0))
        fail(d, code ? said : "trains, and one rank does not");
    else if (code == 0 && !null && !agree(&got, &want, first, later))
        fail(d, "losses or norms are not those of one rank");
    else if (code == 0 && !mpi && !bytes_agree(got.table))
        fail(d, "bytes are not those of the plan");
    count.same += code == 0 && !null;
    mem_free(got.table);
    mem_free(want.table);
}

/* Is it small enough to be trained here? By the report of a check. */
static bool is_small(const char *report, struct plait_config *c, int *ranks)
{
    char *steps;
    double bytes = 0;
    const char *layout = strstr(report, "layout  ");
    *ranks = layout ? (int)strtol(layout + 8, NULL, 10) : 0;
    CHECK_INT(plait_config_get(c, "train.steps", &steps), 0);
    bool few = strtod(steps, NULL) <= STEPS_MOST && *ranks >= 1 && *ranks <= RANKS_MOST;
    plait_free(steps);
    for (const char *at = report; (at = strstr(at, "\n  pp ")) != NULL; at++)
        bytes = fmax(bytes, strtod(at + 12, NULL));
    return few && bytes * *ranks <= BYTES_MOST && bytes > 0;
}

/* Refused by a word, by both, or by none: what check says, train says. */
static void one(const struct drawn *d)
{
    struct plait_config *c;
    struct seen s;
    char *report = NULL, said[4096];
    int ranks;
    if (drawn_config(d, &c) != 0) {
        count.refused++;
        return;
    }
    int code = plait_config_check(c, d->ranks, &report);
    snprintf(said, sizeof said, "%s", code ? plait_error() : "");
    const char *transport = drawn_value(d, "train.transport");
    bool mpi = transport && strcmp(transport, "mpi") == 0 && code == 0;
    bool unnamed = code == 0 && drawn_value(d, "data.train")[0] == '\0';
    if (code != 0 || unnamed) {
        int other = train(d, &s);
        mem_free(s.table);
        count.refused++;
        if (unnamed && (!strstr(report, "data.train is empty") || other != PLAIT_CONFIG ||
                        !strstr(plait_error(), "data.train is empty")))
            fail(d, plait_error());
        else if (!unnamed && (other != code || strcmp(plait_error(), said) != 0)) {
            fail(d, other ? plait_error() : "trains, and check refuses it:");
            fail(d, said);
        }
    } else if (!is_small(report, c, &ranks) || (mpi && (SANITIZED || d->ranks > 0))) {
        count.planned++;
    } else {
        count.trained++;
        count.launched += mpi;
        hold(d, mpi, ranks);
    }
    plait_free(report);
    plait_config_free(c);
    clear_run(d);
}

static void refused_alike_or_trained(void)
{
    const char *wish = getenv("PLAIT_FUZZ_CONFIG");
    int n = wish ? (int)strtol(wish, NULL, 10) : DRAWS;
    drawn_files();
    for (int i = 0; i < n; i++) {
        struct drawn d;
        char run[32];
        snprintf(run, sizeof run, "run%d", i);
        drawn_make(i, run, &d);
        one(&d);
    }
    printf("     %d drawn: %d refused by check and train alike, %d trained (%d under mpirun, "
           "%d held against one rank), %d planned only\n",
           n, count.refused, count.trained, count.launched, count.same, count.planned);
    CHECK(count.trained >= n / 4 && count.refused >= n / 10);
}

static const struct test_case cases[] = {
    {"every_key_is_drawn", drawn_knows_every_key},
    {"every_schedule_is_drawn", drawn_knows_every_schedule},
    {"refused_alike_or_trained", refused_alike_or_trained},
};
TEST_MAIN(cases)
