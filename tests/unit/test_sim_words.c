/* SPDX-License-Identifier: Apache-2.0
 *
 * What the simulator says beside numbers, of every schedule: one that gains by several chunks a
 * rank says so where it has one, and a list with messages says how cells alone are written.
 */
#include "base/fs.h"
#include "plait.h"
#include "program.h"
#include "sched/sched.h"
#include "test.h"

static struct outcome said;

static bool warned(const char *name)
{
    char line[96];
    snprintf(line, sizeof line, "%s gains by several chunks a rank, and has one; ", name);
    return strstr(said.out, line) != NULL;
}

/* By name, beside another, and as a model's; -v as an option and behind @. */
static void one_chunk_of_several_is_warned_of(void)
{
    int loops = 0;
    for (int i = 0; i < sched_kind_count(); i++) {
        const struct sched_kind *kind = sched_kind_at(i);
        char both[96];
        for (int v = 1; v <= 2; v++) {
            RUN(&said, "sim", kind->name, "-p2", "-m4", v == 1 ? "-v1" : "-v2");
            if (said.code != PLAIT_OK)
                continue; /* it has another number of them */
            CHECK_INT(warned(kind->name), kind->loops && v == 1);
            snprintf(both, sizeof both, "gpipe,%s@%d", kind->name, v);
            RUN(&said, "sim", "--compare", both, "-p2", "-m4");
            CHECK_INT(said.code, PLAIT_OK);
            CHECK_INT(warned(kind->name), kind->loops && v == 1);
        }
        loops += kind->loops;
        if (!kind->loops)
            continue;
        RUN(&said, "sim", kind->name, "-p1", "-m4"); /* one rank has no pipeline */
        CHECK(!warned(kind->name));
        RUN(&said, "sim", kind->name, "--model", PLAIT_SOURCE_DIR "/configs/demo.yaml",
            "parallel.tp=1", "parallel.pp=2", "parallel.dp=1", "parallel.chunks=1");
        test_check(said.code == PLAIT_OK && warned(kind->name), __FILE__, __LINE__, "%s: %s %s",
                   kind->name, said.out, said.err);
    }
    CHECK_INT(loops, 2);
}

/* What --model writes has messages, which training adds itself; the way that its refusal names
 * writes a file that it takes. */
static void lists_for_training_are_written_without_a_model(void)
{
    static const char *const name[] = {"1f1b", "gpipe", "zb-h1", "zb-v", "dualpipe"};
    for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
        const char *chunks = sched_kind_find(name[i])->chunks == 2 ? "parallel.chunks=2"
                                                                   : "parallel.chunks=1";
        const char *const words[] = {"check", "model.vocab=7", "parallel.pp=2", "train.batch=4",
                                     chunks, "parallel.schedule=file:list.csv", NULL};
        RUN(&said, "sim", name[i], "--model", PLAIT_SOURCE_DIR "/configs/demo.yaml",
            "parallel.tp=1", "parallel.pp=2", "parallel.dp=1", "train.batch=4",
            "parallel.microbatch=1", chunks, "--text");
        CHECK_INT(said.code, PLAIT_OK);
        CHECK_OK(fs_put("list.csv", said.out, (int64_t)strlen(said.out)));
        program_run(&said, NULL, words);
        test_check(said.code == PLAIT_CONFIG &&
                       strstr(said.err, "has messages; training adds messages itself") &&
                       strstr(said.err, "`plait sim NAME -p P -m M --text` writes them without"),
                   __FILE__, __LINE__, "%s: %d %s", name[i], said.code, said.err);
        RUN(&said, "sim", name[i], "-p2", "-m4", "--text");
        CHECK_OK(fs_put("list.csv", said.out, (int64_t)strlen(said.out)));
        program_run(&said, NULL, words);
        test_check(said.code == PLAIT_OK, __FILE__, __LINE__, "%s: %d %s", name[i], said.code,
                   said.err);
    }
}

#define MODEL "--model", PLAIT_SOURCE_DIR "/configs/demo.yaml", "parallel.tp=1", "parallel.dp=2"

/* The end of a step has figures where links or memory take time, for one stage, too, which sends no
 * message; it changes none of those of the actions, and the whole program is printed with it. */
static void the_end_of_a_step(void)
{
    static const char *const no[] = {"parallel.pp=1", "parallel.pp=2", "train.recompute=every:1"};
    for (int i = 0; i < 3; i++) {
        char bubble[96];
        RUN(&said, "sim", MODEL, no[i], "train.batch=32");
        CHECK(said.code == PLAIT_OK && !strstr(said.out, "\nstep ") &&
              !strstr(said.out, "exposed"));
        const char *line = strstr(said.out, "\nbubble ");
        CHECK(line && sscanf(line, "\n%95[^\n]", bubble) == 1);
        RUN(&said, "sim", MODEL, no[i], "train.batch=32", "--memory-bandwidth", "1e9");
        CHECK(said.code == PLAIT_OK && strstr(said.out, "\nstep ") && strstr(said.out, "exposed"));
        test_check(strstr(said.out, bubble) != NULL, __FILE__, __LINE__, "no %s: %s", bubble,
                   said.out);
        RUN(&said, "sim", MODEL, no[i], "train.batch=32", "--bandwidth", "1e9");
        test_check(said.code == PLAIT_OK && strstr(said.out, "\nstep "), __FILE__, __LINE__,
                   "%s: %s", no[i], said.err);
        RUN(&said, "sim", "--compare", "1f1b,gpipe", MODEL, no[i], "train.batch=32", "--bandwidth",
            "1e9");
        CHECK(said.code == PLAIT_OK && strstr(said.out, "makespan       step       cost"));
        RUN(&said, "sim", MODEL, no[i], "train.batch=32", "parallel.zero=1", "--lowered");
        CHECK(said.code == PLAIT_OK && strstr(said.out, "NORM,0.1UPDATE,0.1GATHER,") &&
              strstr(said.out, "GATHER,WAIT\n"));
    }
    RUN(&said, "sim", "1f1b", "-p2", "-m2", "--lowered");
    CHECK_STR(said.out, "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1,NORM,STEP\n"
                        "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1,NORM,STEP\n");
    RUN(&said, "sim", "1f1b", "-p2", "-m2", "--memory-bandwidth", "1e9");
    CHECK(said.code == PLAIT_CONFIG && strstr(said.err, "is for the weights of a model"));
}

static const struct test_case cases[] = {
    {"one_chunk_of_several_is_warned_of", one_chunk_of_several_is_warned_of},
    {"lists_for_training_are_written_without_a_model",
     lists_for_training_are_written_without_a_model},
    {"the_end_of_a_step", the_end_of_a_step},
};
TEST_MAIN(cases)
