/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs of twelve steps that are stopped at each of them, on eight layouts, as threads and as
 * processes: killed, told to stop once and twice, by a disk that is full from then on, and by a
 * write that fails. They go on with run.resume=auto until they are done, under their own transport
 * or the other one, and end with the numbers and weights of the run that nobody stopped; each line
 * of each kind is there once, and nothing half written. PLAIT_STOPPED=1: all as threads and a third
 * of them as processes, whose other thirds are 2 and 3; else some, by turns.
 */
#include "endings.h"

#include <signal.h>

enum { STEPS = 12, VALID = 4, LINES = STEPS + STEPS / VALID, WHAT = 512, RESUMES = 3 };

static const char small[] =
    "model.layers=4 model.hidden=16 model.heads=2 model.seq=16 model.dropout=0.1 train.batch=4 "
    "train.threads=1 train.steps=12 optim.lr=0.01 optim.warmup=2 train.dtype=f32 "
    "train.hang_timeout=60 train.valid_every=4 train.valid_batches=1";

static const struct layout { int ranks; const char *words; } layouts[] = {
    {1, "parallel.pp=1"},
    {2, "parallel.dp=2"},
    {2, "parallel.dp=2 parallel.zero=1"},
    {2, "parallel.tp=2 parallel.sp=true"},
    {2, "parallel.pp=2 parallel.schedule=interleaved parallel.chunks=2"},
    {2, "parallel.pp=2 parallel.schedule=zb-v"},
    {4, "parallel.tp=2 parallel.dp=2 parallel.zero=1"},
    {4, "parallel.pp=4 parallel.schedule=zb-h1"},
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

enum kind { KILLED, TOLD, TOLD_TWICE, FULL, FAILS, KINDS };
static const char *const kind_name[] = {"killed", "told to stop", "told twice", "disk full",
                                        "a write fails"};

enum transport { THREADS, PROCESSES };

/* ---- a stop ---- */

struct stop { int layout, step, every; enum kind kind; enum transport first, then; };

static int stops, resumes;

/* PLAIT_STOPPED; 0: some of them. */
static int third(void)
{
    const char *which = getenv("PLAIT_STOPPED");
    if (!which)
        return 0;
    return strcmp(which, "3") == 0 ? 3 : strcmp(which, "2") == 0 ? 2 : 1;
}

static void say(const struct stop *s, char what[WHAT])
{
    static const char *const name[] = {"threads", "processes"};
    snprintf(what, WHAT, "%s, train.save_every=%d, %s in step %d, %s, then %s",
             layouts[s->layout].words, s->every, kind_name[s->kind], s->step, name[s->first],
             name[s->then]);
}

/* In step s->step: where its line is written, by the rank that reports; or where another process
 * writes the step's checkpoint, if it does. */
static void fault_of(const struct stop *s, char out[64])
{
    static const char *const end[] = {"KILL", "TERM", "TERM", "ENOSPC", "EIO"};
    static const char *const call[] = {"write", "write", "write", "full", "write"};
    bool saves = s->step % s->every == 0;
    int rank = (int)test_range(0, layouts[s->layout].ranks - 1);
    int line = s->step + (s->step - 1) / VALID; /* those of validations stand between */
    if (saves && s->kind == FULL && s->first == PROCESSES) /* for all of them */
        snprintf(out, 64, "full@step-%d/:1:ENOSPC", s->step);
    else if (saves && (s->kind == FAILS || (s->kind == KILLED && s->first == PROCESSES)))
        snprintf(out, 64, "write@step-%d/rank-%05d:1:%s", s->step, rank, end[s->kind]);
    else
        snprintf(out, 64, "%s@metrics.jsonl:%d%s:%s", call[s->kind], line,
                 s->kind == TOLD_TWICE ? "+" : "", end[s->kind]);
}

/* The same command begins and goes on. */
static int go(const char *run, const struct stop *s, enum transport by, const char *fault,
              char said[SAID])
{
    char words[COMMAND], mpi[64];
    snprintf(mpi, sizeof mpi, "timeout 120 mpirun -n %d --oversubscribe", layouts[s->layout].ranks);
    snprintf(words, sizeof words, "%s %s train.save_every=%d train.transport=%s run.resume=auto",
             small, layouts[s->layout].words, s->every, by == PROCESSES ? "mpi" : "thread");
    return start(run, by == PROCESSES ? mpi : "", fault, words, said);
}

/* The run of that layout that nobody stops; made once. */
static void judge_of(const struct stop *s, char name[32])
{
    char said[SAID];
    snprintf(name, 32, "judge-%d-%d", s->layout, s->first);
    if (!folder_has(name, "model.safetensors"))
        test_check(go(name, s, s->first, "", said) == 0, __FILE__, __LINE__, "%s", said);
}

/* Sums of f64 over ranks are added in another order by the other transport. */
static bool near_numbers(const char *run, const char *judge)
{
    struct left_line a[STEPS], b[STEPS];
    bool same = left_lines(run, a, STEPS) == STEPS && left_lines(judge, b, STEPS) == STEPS;
    for (int i = 0; i < STEPS && same; i++)
        same = a[i].step == i + 1 && b[i].step == i + 1 && a[i].lr == b[i].lr &&
               fabs(a[i].loss - b[i].loss) <= 1e-9 && fabs(a[i].norm - b[i].norm) <= 1e-9;
    return same;
}

static bool code_is_right(const struct stop *s, int code)
{
    bool all = s->step >= STEPS - 1 || s->kind == FAILS; /* may come too late, or cost a save */
    if (code == 0)
        return all || (s->kind == FULL && s->step > STEPS - 3);
    switch (s->kind) {
    case KILLED:
        return s->first == PROCESSES || code == 128 + SIGKILL;
    case TOLD:
        return code == PLAIT_STOPPED;
    case TOLD_TWICE:
        return code == PLAIT_STOPPED || code == 128 + SIGTERM || s->first == PROCESSES;
    default:
        return code == PLAIT_STORAGE;
    }
}

static void stop_and_go_on(const struct stop *s)
{
    char fault[64], what[WHAT], judge[32], said[SAID];
    say(s, what);
    judge_of(s, judge);
    fault_of(s, fault);
    folder_remove("run");
    int code = go("run", s, s->first, fault, said);
    test_check(code_is_right(s, code), __FILE__, __LINE__, "%s (%s): code %d: %s", what, fault,
               code, said);
    stops++;
    int again = -1;
    for (int i = 0; i < RESUMES && again != 0; i++) {
        again = go("run", s, s->then, "", said);
        test_check(lines_with("the checkpoint before it is tried") == 0, __FILE__, __LINE__,
                   "%s (%s): damaged: %s", what, fault, said);
        resumes++;
    }
    test_check(again == 0, __FILE__, __LINE__, "%s (%s): then code %d: %s", what, fault, again,
               said);
    bool same = s->first == s->then ? left_same_numbers("run", judge, LINES)
                                    : near_numbers("run", judge);
    test_check(same, __FILE__, __LINE__, "%s (%s): other numbers", what, fault);
    test_check(folder_same_in("run", judge, "model.safetensors"), __FILE__, __LINE__,
               "%s (%s): other weights", what, fault);
    test_check(!left_half_written("run"), __FILE__, __LINE__,
               "%s (%s): something half written stays", what, fault);
    left_checkpoints("run", what);
}

/* all: one of so many where all are asked for, of each third others; some: else. Neither stays with
 * a step or a kind. */
static void each_step(enum transport first, enum transport then, int all, int some)
{
    int one_of = third() ? all : some;
    int turn = third() ? third() - 1 : 0;
    stops = resumes = 0;
    for (int i = 0; i < LAYOUTS; i++)
        for (int step = 1; step <= STEPS; step++)
            for (int kind = 0; kind < KINDS; kind++)
                for (int every = 1; every <= 5; every += 4, turn++)
                    if (turn % one_of == 0)
                        stop_and_go_on(&(struct stop){i, step, every, (enum kind)kind, first,
                                                      then});
    printf("%d stops, %d times gone on\n", stops, resumes);
    CHECK(stops > 0);
}

static void as_threads(void)
{
    if (third() <= 1)
        each_step(THREADS, THREADS, 1, 47);
}

static void as_processes(void)
{
    if (folder_mpirun())
        each_step(PROCESSES, PROCESSES, 3, 247);
}

static void from_one_to_the_other(void)
{
    if (!folder_mpirun())
        return;
    each_step(THREADS, PROCESSES, 29, 481);
    each_step(PROCESSES, THREADS, 29, 481);
}

/* ---- starts ---- */

/* A start dies with a file half written, before or behind steps; the next at any call of a file;
 * and the third goes on as if there had been neither. */
static void a_start_that_dies_behind_another(void)
{
    struct stop s = {.layout = 4, .every = 1};
    char judge[32], said[SAID], fault[64];
    judge_of(&s, judge);
    for (int with = 0; with < 2; with++) {
        for (int n = 0; n < 60; n += third() ? 1 : (int)test_range(6, 18)) {
            folder_remove("run");
            if (with)
                CHECK_INT(go("run", &s, THREADS, "write@metrics.jsonl:5:KILL", said), 137);
            CHECK_INT(go("run", &s, THREADS, "write@config.yaml:1:KILL", said), 137);
            if (n == 0) /* as it removes that file */
                snprintf(fault, sizeof fault, "unlink@config.yaml.tmp:1:KILL");
            else
                snprintf(fault, sizeof fault, "%d:KILL", n);
            int code = go("run", &s, THREADS, fault, said);
            test_check(code == 137, __FILE__, __LINE__, "%s: code %d: %s", fault, code, said);
            code = go("run", &s, THREADS, "", said);
            test_check(code == 0, __FILE__, __LINE__, "%s: then code %d: %s", fault, code, said);
            test_check(!left_half_written("run"), __FILE__, __LINE__,
                       "%s: something half written stays", fault);
            test_check(left_same_numbers("run", judge, LINES) &&
                           folder_same_in("run", judge, "model.safetensors"),
                       __FILE__, __LINE__, "%s: other numbers or weights", fault);
        }
    }
}

static const struct test_case cases[] = {
    {"a start that dies behind another", a_start_that_dies_behind_another},
    {"as threads", as_threads},
    {"as processes", as_processes},
    {"from one to the other", from_one_to_the_other},
};
TEST_MAIN(cases)
