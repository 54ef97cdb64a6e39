/* SPDX-License-Identifier: Apache-2.0
 *
 * Keys of the configuration whose effect no other test measures: from the word that a user writes
 * to what the engine is given, before and after, in numbers. tests/golden/keys.txt says for every
 * key which test has it.
 */
#include "folder.h"

#include "base/fs.h"
#include "exec/exec.h"
#include "setup/setup.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char *const base[] = {
    "model.layers=4", "model.hidden=24", "model.heads=4", "model.vocab=31", "model.seq=8",
    "train.batch=8", "train.device=cpu", "train.threads=1"};

/* ---- what a key changes ---- */

struct seen { const struct options *o; const struct setup *s; };

static double tensor_ranks(const struct seen *k) { return k->s->mesh.size[AXIS_TP]; }
static double pipeline_ranks(const struct seen *k) { return k->s->sched.p; }
static double replicas(const struct seen *k) { return k->s->mesh.size[AXIS_DP]; }
static double stages(const struct seen *k) { return k->s->sched.stages; }
static double microbatches(const struct seen *k) { return k->s->sched.m; }
static double share(const struct seen *k) { return (double)k->s->step_samples; }
static double layers(const struct seen *k)
{
    return (double)k->s->cut[0].end;
}
static double seed(const struct seen *k) { return (double)k->o->train.seed; }
static double transport(const struct seen *k) { return k->o->train.transport; }
static double device(const struct seen *k) { return options_device(k->o); }
static double threads(const struct seen *k) { return options_threads(k->o, 1); }
static double gpu_of_rank_3(const struct seen *k) { return options_gpu(k->o, 3); }
static double unrecorded(const struct seen *k) { return options_unrecorded(k->o) != NULL; }
static double operand_bytes(const struct seen *k) { return (double)dtype_size(k->s->types.ct); }
static double recomputes(const struct seen *k) { return sched_has(&k->s->sched, SCHED_R); }

static double sharers(const struct seen *k)
{
    struct exec_args a;
    setup_exec_args(k->s, 0, &a);
    return a.of.num_shards;
}

static double rows_of_a_piece(const struct seen *k)
{
    struct exec_args a;
    setup_exec_args(k->s, 0, &a);
    return (double)a.tp_rows;
}

/* Rows of the residual stream on a rank. */
static double stream_rows(const struct seen *k)
{
    struct model_dims d;
    struct layer first = model_layer(&k->s->model, 0);
    model_dims(&first, &k->s->split, k->s->samples, &k->s->types, &d);
    return (double)d.nl;
}

static double deterministic(const struct seen *k)
{
    struct dev_args a;
    setup_dev_args(k->s, DEV_CPU, &a);
    return a.deterministic;
}

/* Forwards with which rank 0 begins before anything else, of its first stage alone or of all. */
static double first_forwards(const struct seen *k, bool one_stage)
{
    const struct sched *s = &k->s->sched;
    int n = 0, stage = -1;
    for (int64_t i = s->begin[0]; i < s->begin[1]; i++) {
        struct sched_instr in = s->instr[i];
        bool backward = in.op == SCHED_B || in.op == SCHED_I || in.op == SCHED_W;
        if (backward || (one_stage && in.op == SCHED_F && stage >= 0 && in.stage != stage))
            break;
        n += in.op == SCHED_F;
        stage = in.op == SCHED_F && stage < 0 ? in.stage : stage;
    }
    return n;
}

/* The layer at which it begins: 0 is the embedding, then attn and mlp of each block. */
static double second_stage(const struct seen *k) { return (double)k->s->cut[1].first; }

static double warm_up(const struct seen *k) { return first_forwards(k, false); }
static double group(const struct seen *k) { return first_forwards(k, true); }

/* Weight gradients of rank 0 that come behind those of a later microbatch of the same stage. */
static double out_of_order(const struct seen *k)
{
    const struct sched *s = &k->s->sched;
    int n = 0, last[64];
    for (int i = 0; i < 64; i++)
        last[i] = -1;
    for (int64_t i = s->begin[0]; i < s->begin[1]; i++) {
        struct sched_instr in = s->instr[i];
        if (in.op != SCHED_B && in.op != SCHED_W)
            continue;
        n += in.mb < last[in.stage];
        last[in.stage] = in.mb;
    }
    return n;
}

static const struct {
    const char *key, *with; /* with: words that the key needs, separated by blanks */
    const char *value[2];
    double (*of)(const struct seen *k);
    double want[2];
} row[] = {
    {"parallel.tp", "", {"1", "4"}, tensor_ranks, {1, 4}},
    {"parallel.pp", "", {"1", "2"}, pipeline_ranks, {1, 2}},
    {"parallel.dp", "", {"1", "4"}, replicas, {1, 4}},
    {"parallel.dp", "", {"1", "4"}, share, {8, 2}},
    {"parallel.zero", "parallel.dp=4", {"0", "1"}, sharers, {1, 4}},
    {"parallel.sp", "parallel.tp=2 parallel.microbatch=4", {"false", "true"}, stream_rows,
     {32, 16}},
    {"parallel.tp_overlap", "parallel.tp=2", {"off", "on"}, rows_of_a_piece, {0, 2048}},
    {"parallel.tp_rows", "parallel.tp=2 parallel.tp_overlap=on", {"7", "16"}, rows_of_a_piece,
     {7, 16}},
    {"parallel.schedule", "parallel.pp=2", {"1f1b", "gpipe"}, warm_up, {2, 8}},
    {"parallel.chunks", "parallel.pp=2 parallel.schedule=interleaved", {"1", "2"}, stages, {2, 4}},
    {"parallel.split", "parallel.pp=2", {"layers.1", "[layers.2.mlp]"}, second_stage, {3, 6}},
    {"parallel.group", "parallel.pp=2 parallel.schedule=interleaved parallel.chunks=2",
     {"2", "4"}, group, {2, 4}},
    {"parallel.memory_limit", "parallel.pp=4 parallel.schedule=zb-1p", {"2", "3"}, warm_up,
     {2, 3}},
    {"parallel.microbatch", "", {"1", "3"}, microbatches, {8, 3}},
    {"train.batch", "parallel.microbatch=2", {"8", "12"}, microbatches, {4, 6}},
    {"train.seed", "", {"1", "9007199254740991"}, seed, {1, 9007199254740991.0}},
    {"train.dtype", "", {"f32", "bf16"}, operand_bytes, {4, 2}},
    {"train.device", "", {"cpu", "ref"}, device, {DEV_CPU, DEV_REF}},
    {"train.transport", "", {"thread", "mpi"}, transport, {COMM_THREAD, COMM_MPI}},
    {"train.share_gpus", "train.device=cuda", {"false", "true"}, gpu_of_rank_3, {3, 0}},
    {"train.threads", "", {"1", "3"}, threads, {1, 3}},
    {"train.recompute", "parallel.pp=2", {"none", "full"}, recomputes, {0, 1}},
    {"train.graph", "train.device=cuda", {"off", "auto"}, unrecorded, {1, 0}},
    {"train.deterministic", "", {"false", "true"}, deterministic, {0, 1}},
    {"train.canonical_accumulation", "parallel.pp=2 parallel.schedule=looped-bfs",
     {"false", "true"}, out_of_order, {7, 0}},
    {"model.layers", "parallel.pp=2", {"4", "8"}, layers, {5, 9}},
};
enum { ROWS = sizeof row / sizeof *row };

static void set_words(struct options *o, const char *words)
{
    char word[128];
    int used;
    for (; sscanf(words, "%127s%n", word, &used) == 1; words += used)
        CHECK_OK(conf_set(&options_table, o, word));
}

static double measured(int i, int which)
{
    struct options o;
    struct setup s = {0};
    char word[128];
    CHECK_OK(conf_defaults(&options_table, &o));
    for (size_t k = 0; k < sizeof base / sizeof *base; k++)
        set_words(&o, base[k]);
    set_words(&o, row[i].with);
    snprintf(word, sizeof word, "%s=%s", row[i].key, row[i].value[which]);
    set_words(&o, word);
    CHECK_OK(setup_make(&o, o.model.vocab, true, &s));
    double value = row[i].of(&(struct seen){&o, &s});
    setup_free(&s);
    return value;
}

static void a_key_changes_what_the_engine_is_given(void)
{
    for (int i = 0; i < ROWS; i++)
        for (int which = 0; which < 2; which++) {
            double got = measured(i, which);
            test_check(got == row[i].want[which], __FILE__, __LINE__, "%s=%s: %g, wanted %g",
                       row[i].key, row[i].value[which], got, row[i].want[which]);
        }
}

/* ---- what a run leaves and says ---- */

static void on_done(void *arg, const char *summary)
{
    snprintf(arg, 4096, "%s", summary);
}

static void run(const char *dir, const char *word, char summary[4096])
{
    static const char *const small[] = {
        "model.layers=1", "model.hidden=8", "model.heads=2", "model.seq=8", "train.batch=2",
        "train.steps=2", "train.device=ref", "run.save=false"};
    folder_tokens("text.bin", "threads of a braid, over and under; ", 4);
    struct plait_config *c = folder_config(dir, "text.bin");
    folder_set(c, small, sizeof small / sizeof *small);
    folder_set(c, &word, 1);
    summary[0] = '\0';
    CHECK_INT(plait_train(c, &(struct plait_train){.size = sizeof(struct plait_train),
                                                   .on_done = on_done, .arg = summary}), 0);
    plait_config_free(c);
}

/* The table of operations is printed when it is asked for. */
static void a_profile_names_operations(void)
{
    char without[4096], with[4096];
    run("plain", "train.profile=false", without);
    run("profile", "train.profile=true", with);
    CHECK(strstr(without, "adamw") == NULL && strstr(without, "2 steps") != NULL);
    CHECK(strstr(with, "adamw") != NULL && strstr(with, "attention") != NULL);
}

/* A rank's thread stands still for a second, wherever it is: what runs there is a signal's handler.
 * Which thread is a rank's, its reading of samples tells. */
static const struct fs_ops *system_ops;
static pthread_t main_thread, rank_thread, stopper;
static atomic_bool known, stopping;

static int64_t noting_pread(int fd, void *p, int64_t n, int64_t at)
{
    if (!pthread_equal(pthread_self(), main_thread) && !atomic_exchange(&known, true))
        rank_thread = pthread_self();
    return system_ops->pread(fd, p, n, at);
}

static void stand_still(int number)
{
    (void)number;
    nanosleep(&(struct timespec){1, 0}, NULL);
}

static void *stop_a_rank(void *arg)
{
    usleep(5000);
    pthread_kill(rank_thread, SIGUSR2);
    return arg;
}

static void on_step_stop(void *arg, const struct plait_step *p)
{
    (void)arg;
    if (p->step == 20)
        stopping = pthread_create(&stopper, NULL, stop_a_rank, NULL) == 0;
}

static int still(const char *dir, const char *timeout)
{
    const char *words[] = {
        "model.layers=2", "model.hidden=8", "model.heads=2", "model.seq=8", "train.batch=2",
        "train.steps=500", "train.device=ref", "run.save=false", "parallel.pp=2", timeout};
    struct fs_ops noting = *fs_ops;
    folder_tokens("text.bin", "threads of a braid, over and under; ", 4);
    struct plait_config *c = folder_config(dir, "text.bin");
    folder_set(c, words, sizeof words / sizeof *words);
    system_ops = fs_ops;
    main_thread = pthread_self();
    noting.pread = noting_pread;
    known = stopping = false;
    fs_ops = &noting;
    int code = plait_train(c, &(struct plait_train){.size = sizeof(struct plait_train),
                                                    .on_step = on_step_stop});
    fs_ops = system_ops;
    CHECK(known && stopping);
    if (stopping)
        pthread_join(stopper, NULL);
    plait_config_free(c);
    return code;
}

/* A thread that is stopped amid a file call is none that is silent, so it is tried again. */
static void silence_is_measured(void)
{
    int code = 0;
    signal(SIGUSR2, stand_still);
    for (int i = 0; i < 4 && code == 0; i++)
        code = still((const char *[]){"a", "b", "c", "d"}[i], "train.hang_timeout=0.3");
    CHECK_INT(code, PLAIT_HANG);
    CHECK_INT(still("long", "train.hang_timeout=60"), 0);
    CHECK_INT(still("never", "train.hang_timeout=0"), 0);
}

/* A write of the weights takes a second. */
static int64_t slow_write(int fd, const void *p, int64_t n, int64_t at)
{
    if (n > 4000)
        usleep(1000000);
    return system_ops->write(fd, p, n, at);
}

/* The data are opened before there are ranks. */
static int slow_open(const char *path, int flags, unsigned mode)
{
    if (strstr(path, "text.bin"))
        usleep(1000000);
    return system_ops->open(path, flags, mode);
}

/* The thread that saves, which is the one that opens the shard, and its helpers: of one of these a
 * write takes two seconds, and those of the first return. */
static pthread_t saver;
static atomic_bool helped;

static int noting_open(const char *path, int flags, unsigned mode)
{
    if (strstr(path, "rank-00000"))
        saver = pthread_self();
    return system_ops->open(path, flags, mode);
}

static int64_t slow_helper(int fd, const void *p, int64_t n, int64_t at)
{
    bool own = pthread_equal(saver, pthread_self());
    for (int i = 0; at >= 0 && own && !atomic_load(&helped) && i < 1000; i++)
        usleep(10000);
    if (at >= 0 && !own && !atomic_exchange(&helped, true))
        usleep(2000000);
    return system_ops->write(fd, p, n, at);
}

static enum { WRITES, LOOKS, HELPS } slow; /* what takes its time */

static int slow_disk(const char *dir, const char *timeout)
{
    const char *words[] = {"model.layers=2", slow == HELPS ? "model.hidden=256" : "model.hidden=16",
                           "model.heads=2", "model.seq=8", "train.batch=2", "train.steps=1",
                           "train.device=ref", slow == HELPS ? "parallel.pp=1" : "parallel.pp=2",
                           timeout};
    folder_tokens("text.bin", "threads of a braid, over and under; ", 4);
    struct plait_config *c = folder_config(dir, "text.bin");
    folder_set(c, words, sizeof words / sizeof *words);
    struct fs_ops ops = *fs_ops;
    system_ops = fs_ops;
    if (slow != WRITES)
        ops.open = slow == LOOKS ? slow_open : noting_open;
    if (slow != LOOKS)
        ops.write = slow == WRITES ? slow_write : slow_helper;
    fs_ops = &ops;
    int code = plait_train(c, &(struct plait_train){.size = sizeof(struct plait_train)});
    fs_ops = system_ops;
    plait_config_free(c);
    return code == 0 && slow == HELPS && !atomic_load(&helped) ? -1 : code;
}

/* In a process of its own, which a call that does not return ends. */
static int code_of_slow_disk(const char *dir, const char *timeout)
{
    int status = 0;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0)
        _exit(slow_disk(dir, timeout));
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void a_slow_disk_is_measured(void)
{
    CHECK_INT(code_of_slow_disk("slow", "run.io_timeout=0.3"), PLAIT_STORAGE);
    CHECK_INT(code_of_slow_disk("waits", "run.io_timeout=60"), 0);
    CHECK_INT(code_of_slow_disk("forever", "run.io_timeout=0"), 0);
}

static void a_slow_look_before_ranks_is_measured(void)
{
    slow = LOOKS;
    CHECK_INT(code_of_slow_disk("looks", "run.io_timeout=0.3"), PLAIT_STORAGE);
    CHECK_INT(code_of_slow_disk("looks-on", "run.io_timeout=60"), 0);
    slow = WRITES;
}

static void a_slow_helper_is_measured(void)
{
    slow = HELPS;
    CHECK_INT(code_of_slow_disk("helps", "run.io_timeout=0.3"), PLAIT_STORAGE);
    CHECK_INT(code_of_slow_disk("helps-on", "run.io_timeout=60"), 0);
    slow = WRITES;
}

static const struct test_case cases[] = {
    {"a_slow_disk_is_measured", a_slow_disk_is_measured},
    {"a_slow_look_before_ranks_is_measured", a_slow_look_before_ranks_is_measured},
    {"a_slow_helper_is_measured", a_slow_helper_is_measured},
    {"silence_is_measured", silence_is_measured},
    {"a_key_changes_what_the_engine_is_given", a_key_changes_what_the_engine_is_given},
    {"a_profile_names_operations", a_profile_names_operations}};
TEST_MAIN(cases)
