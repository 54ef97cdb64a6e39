/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory plan against what a machine and its control groups have: drawn sizes around the bounds
 * between silence, a warning and a refusal, and folders like those of the kernel, of cgroup 1 and
 * 2. Nothing here takes the memory that it speaks of.
 */
#include "setup/setup.h"

#include "base/fs.h"
#include "comm/comm.h"
#include "plait.h"
#include "config/options.h"
#include "test.h"

#include <stdio.h>
#include <string.h>

/* A llama on two pipeline ranks of two data ranks each. */
static void make(struct options *o, enum comm_kind transport, int device, int every,
                 struct setup *s)
{
    CHECK_OK(conf_defaults(&options_table, o));
    o->model.kind = MODEL_LLAMA;
    o->model.layers = 4;
    o->model.vocab = 257;
    o->model.tied = false;
    o->parallel.pp = o->parallel.dp = 2;
    o->train.batch = 4;
    o->train.transport = transport;
    o->parallel.microbatch = 1;
    o->train.save_every = every;
    o->train.device = device;
    CHECK_OK(setup_make(o, 257, true, s));
}

enum verdict { SILENT, WARNED, REFUSED };

/* What the host holds of a rank. */
static int64_t held(const struct setup *s, int pp)
{
    bool apart = s->o->train.device == OPTIONS_CUDA;
    return s->memory[pp].copy + (apart ? 0 : memory_total(&s->memory[pp]));
}

static enum verdict judge(const struct setup *s, int64_t memory, int64_t swap, int64_t limit)
{
    struct host h = {memory, swap, limit};
    struct text words = {0};
    enum err err = host_holds(s, &h, &words);
    bool said = words.len > 0;
    CHECK(err == ERR_OK || (err == ERR_MEMORY && !said));
    if (said)
        CHECK(strncmp(words.s, "memory: ", 8) == 0 &&
              (strstr(words.s, "control group") != NULL) == (limit < INT64_MAX));
    text_free(&words);
    return err == ERR_MEMORY ? REFUSED : said ? WARNED : SILENT;
}

/* Who is told to do without copies, who with less of them. */
static void check_words(const struct setup *s, int64_t memory)
{
    struct host h = {memory, 0, INT64_MAX};
    struct text words = {0};
    CHECK_OK(host_holds(s, &h, &words));
    CHECK(words.len > 0);
    text_add_char(&words, '.', 1);
    bool apart = s->o->train.device == OPTIONS_CUDA, copies = s->memory[0].copy > 0;
    CHECK((strstr(words.s, " for copies of their state, ") != NULL) == apart);
    CHECK((strstr(words.s, "train.save_async false") != NULL) == (copies && !apart));
    CHECK((strstr(words.s, "save no checkpoints") != NULL) == apart);
    bool mpi = s->o->train.transport == COMM_MPI; /* of one machine all data ranks copy as much */
    CHECK((strstr(words.s, "more data ranks") != NULL) == (apart && mpi));
    CHECK((strstr(words.s, "over more machines") != NULL) == (apart && !mpi));
    text_free(&words);
}

static void test_bounds(void)
{
    struct options o;
    struct setup s;
    for (int k = 0; k < 6; k++) {
        int mpi = k % 2, apart = k >= 4; /* without copies, with copies, GPUs */
        make(&o, mpi ? COMM_MPI : COMM_THREAD, apart ? OPTIONS_CUDA : OPTIONS_CPU, k / 2, &s);
        int64_t a = held(&s, 0), b = held(&s, 1);
        int64_t need = mpi ? num_min(a, b) : 2 * (a + b);
        CHECK_INT(judge(&s, need, 0, INT64_MAX), SILENT);
        CHECK_INT(judge(&s, need - 1, 0, INT64_MAX), WARNED);
        CHECK_INT(judge(&s, need - 9, 9, INT64_MAX), SILENT);
        CHECK_INT(judge(&s, need / 4 - 1, 0, INT64_MAX), REFUSED);
        CHECK_INT(judge(&s, need / 100, 0, INT64_MAX), REFUSED);
        CHECK_INT(judge(&s, need / 100, need, INT64_MAX), SILENT);
        CHECK_INT(judge(&s, 10 * need, 0, need - 1), WARNED);
        CHECK_INT(judge(&s, 10 * need, 0, need / 2 - 1), REFUSED);
        CHECK_INT(judge(&s, 0, 0, need / 2 - 1), REFUSED); /* the machine's own is not known */
        CHECK_INT(judge(&s, 0, 0, INT64_MAX), SILENT);
        for (int round = 0; round < 200; round++) {
            int64_t have = test_range(1, 2 * need), limit = test_range(1, 2 * need);
            enum verdict machine = have >= need       ? SILENT
                                   : need / 4 <= have ? WARNED
                                                      : REFUSED;
            CHECK_INT(judge(&s, have, 0, INT64_MAX), machine);
            enum verdict group = limit >= need ? SILENT : need / 2 <= limit ? WARNED : REFUSED;
            CHECK_INT(judge(&s, 0, 0, limit), group);
        }
        check_words(&s, need / 2);
        o.train.device = OPTIONS_NULL; /* holds nothing */
        CHECK_INT(judge(&s, 1, 0, INT64_MAX), SILENT);
        setup_free(&s);
    }
}

/* Planned where state is copied: beside the steps, and out of a GPU's memory. */
static void test_copies(void)
{
    static const struct { int device; bool save, async; int every; bool copied; } k[] = {
        {OPTIONS_CPU, true, true, 5, true},   {OPTIONS_CPU, true, false, 5, false},
        {OPTIONS_CPU, true, true, 0, false},  {OPTIONS_CPU, false, true, 5, false},
        {OPTIONS_REF, true, true, 5, true},   {OPTIONS_NULL, true, true, 5, false},
        {OPTIONS_CUDA, true, false, 5, true}, {OPTIONS_CUDA, false, true, 5, false},
    };
    for (size_t i = 0; i < sizeof k / sizeof *k; i++) {
        struct options o;
        struct setup s;
        struct text table = {0};
        make(&o, COMM_THREAD, k[i].device, k[i].every, &s);
        setup_free(&s);
        o.run.save = k[i].save;
        o.train.save_async = k[i].async;
        CHECK_OK(setup_make(&o, 257, true, &s));
        setup_table(&s, NULL, &table);
        for (int pp = 0; pp < 2; pp++)
            CHECK_INT(s.memory[pp].copy > 0, k[i].copied);
        CHECK((strstr(table.s, "\ncopies  of the state") != NULL) == k[i].copied);
        text_free(&table);
        setup_free(&s);
        CHECK_OK(setup_make(&o, 257, false, &s)); /* generation saves nothing */
        CHECK_INT(s.memory[0].copy, 0);
        setup_free(&s);
    }
}

static void put(const char *folder, const char *name, const char *text)
{
    char path[256];
    CHECK_OK(fs_make_dirs(folder));
    snprintf(path, sizeof path, "%s/%s", folder, name);
    CHECK_OK(fs_put(path, text, (int64_t)strlen(text)));
}

static int64_t limit_in(const char *root)
{
    struct host h;
    host_ask(root, &h);
    return h.limit;
}

/* The lowest limit on the way up counts; a group that is not seen has the root's. */
static void test_groups(void)
{
    put("two/proc/self", "cgroup", "0::/a/b\n");
    CHECK(limit_in("two") == INT64_MAX);
    put("two/sys/fs/cgroup/a/b", "memory.max", "max\n");
    CHECK(limit_in("two") == INT64_MAX);
    put("two/sys/fs/cgroup/a", "memory.max", "3000000\n");
    CHECK_INT(limit_in("two"), 3000000);
    CHECK_OK(fs_make_dirs("two/sys/fs/cgroup/a/b"));
    put("in/proc/self", "cgroup", "0::/\n");
    put("in/sys/fs/cgroup", "memory.max", "5000000\n");
    CHECK_INT(limit_in("in"), 5000000);
    put("away/proc/self", "cgroup", "0::/../x/y\n");
    put("away/sys/fs/cgroup", "memory.max", "6000000\n");
    CHECK_INT(limit_in("away"), 6000000);
    put("one/proc/self", "cgroup", "9:name=systemd:/\n4:memory:/job/7\n1:cpu:/\n0::/\n");
    put("one/sys/fs/cgroup/memory/job/7", "memory.limit_in_bytes", "9223372036854771712\n");
    put("one/sys/fs/cgroup/memory/job", "memory.limit_in_bytes", "4000000\n");
    put("one/sys/fs/cgroup/memory", "memory.limit_in_bytes", "9223372036854771712\n");
    CHECK_INT(limit_in("one"), 4000000);
    CHECK(limit_in("none") == INT64_MAX);
    struct host h;
    host_ask("", &h); /* this machine */
    CHECK(h.limit > 0 && h.swap >= 0 && (h.memory == 0 || h.memory > 1 << 20));
}

/* A model of petabytes is refused by train, before its folder is made, and warned of by check. */
static void test_verbs(void)
{
    static const char *const keys[] = {"model.layers=4000", "model.hidden=131072",
                                       "model.heads=1024", "model.vocab=257", "run.dir=made",
                                       "data.train=t.tok"};
    struct plait_config *c;
    struct plait_train call = {.size = sizeof call};
    char *report = NULL;
    struct host h;
    host_ask("", &h);
    if (h.memory == 0) {
        test_skip("the kernel does not say how much memory there is");
        return;
    }
    CHECK_INT(plait_data_random("t.tok", 257, 5000, 1), PLAIT_OK);
    CHECK_INT(plait_config_new(&c), PLAIT_OK);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        CHECK_INT(plait_config_set(c, keys[i]), PLAIT_OK);
    CHECK_INT(plait_config_check(c, 0, &report), PLAIT_OK);
    CHECK(report && strstr(report, "warning memory: the ranks need ") &&
          strstr(report, "training refuses it\n"));
    plait_free(report);
    CHECK_INT(plait_train(c, &call), PLAIT_MEMORY);
    CHECK(strstr(plait_error(), "memory: the ranks need "));
    CHECK(!fs_named("made"));
    plait_config_free(c);
}

static const struct test_case cases[] = {
    {"bounds", test_bounds},
    {"copies", test_copies},
    {"control groups", test_groups},
    {"verbs", test_verbs},
};
TEST_MAIN(cases)
