/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory plan against what a machine and its control groups have: drawn sizes around the bounds
 * between silence, a warning and a refusal, and folders like those of the kernel, of cgroup 1 and
 * 2. Nothing here takes the memory that it speaks of.
 */
#include "run/host.h"

#include "base/fs.h"
#include "comm/comm.h"
#include "plait.h"
#include "run/options.h"
#include "test.h"

#include <stdio.h>
#include <string.h>

/* A llama on two pipeline ranks of two data ranks each. */
static void make(struct options *o, enum comm_kind transport, struct setup *s)
{
    CHECK_OK(conf_defaults(&options_table, o));
    o->model.kind = ARCH_LLAMA;
    o->model.layers = 4;
    o->model.vocab = 257;
    o->model.tied = false;
    o->parallel.pp = o->parallel.dp = 2;
    o->train.batch = 4;
    o->train.transport = transport;
    o->parallel.microbatch = 1;
    CHECK_OK(setup_make(o, 257, true, s));
}

enum verdict { SILENT, WARNED, REFUSED };

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

static void test_bounds(void)
{
    struct options o;
    struct setup s;
    for (int mpi = 0; mpi < 2; mpi++) {
        make(&o, mpi ? COMM_MPI : COMM_THREAD, &s);
        int64_t a = sim_memory_total(&s.memory[0]), b = sim_memory_total(&s.memory[1]);
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
        o.train.device = OPTIONS_NULL; /* holds nothing */
        CHECK_INT(judge(&s, 1, 0, INT64_MAX), SILENT);
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
    {"control groups", test_groups},
    {"verbs", test_verbs},
};
TEST_MAIN(cases)
