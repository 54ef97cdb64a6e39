/* SPDX-License-Identifier: Apache-2.0
 *
 * A run that is stopped and goes on from its checkpoint, against the one that never stopped: the
 * same losses, norms and weights, to the bit on the same layout, and up to rounding on another. A
 * damaged checkpoint is named and the one before is taken; what may not change is refused by name.
 */
#include "left.h"
#include "saved.h"

#include "base/fs.h"
#include "base/mem.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { STEPS = 12, WORDS = 24, ROW = 160 };
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { NEXT_STOP = STEPS }; /* one a layout */
#else
enum { NEXT_STOP = 4 };
#endif

static const char *const base_set[] = {
    "model.layers=4", "model.hidden=24", "model.heads=4", "model.seq=8", "model.dropout=0.1",
    "train.batch=8", "train.threads=1", "train.steps=12", "optim.lr=0.01", "optim.warmup=3",
    "optim.clip=0.5"};

/* A layout; ranks in all at most 8. */
struct layout { const char *name, *set[WORDS]; };
static const struct layout layouts[] = {
    {"one rank", {"parallel.pp=1"}},
    {"tp 2, odd vocabulary", {"parallel.tp=2"}},
    {"tp 2 sp, pp 2", {"parallel.tp=2", "parallel.sp=true", "parallel.pp=2"}},
    {"pp 4, zb-h1", {"parallel.pp=4", "parallel.schedule=zb-h1"}},
    {"dp 2, zero 1", {"parallel.dp=2", "parallel.zero=1"}},
    {"dp 4", {"parallel.dp=4"}},
    {"pp 2, two chunks, dp 2, zero 1", {"parallel.pp=2", "parallel.schedule=interleaved",
                                        "parallel.chunks=2", "parallel.dp=2", "parallel.zero=1",
                                        "parallel.microbatch=1"}},
    {"pp 2 both ways", {"parallel.pp=2", "parallel.schedule=chimera"}},
    {"pp 2, V", {"parallel.pp=2", "parallel.schedule=zb-v"}},
    {"tp 2, dp 2, zero 1", {"parallel.tp=2", "parallel.dp=2", "parallel.zero=1"}},
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

struct outcome { int code; struct folder_seen seen; };
static struct source { const char *name; int strands; } text = {"tokens.bin", 60};

/* Trains in run's folder until its end, or is stopped behind a step. */
static void train(const char *run, const struct layout *l, const char *const *more,
                  int64_t stop_behind, struct outcome *o)
{
    folder_tokens(text.name, "a braid of many strands, over and under\n", text.strands);
    struct plait_config *c = folder_config(run, text.name);
    folder_set(c, base_set, sizeof base_set / sizeof *base_set);
    folder_set(c, l->set, WORDS);
    if (more)
        folder_set(c, more, WORDS);
    o->code = folder_train_until(c, stop_behind, &o->seen);
}

/* ---- what runs left ---- */

/* The lines of steps 1 .. STEPS, each there once and in order. */
static int read_lines(const char *run, struct left_line line[STEPS])
{
    int n = left_lines(run, line, STEPS);
    CHECK(n <= STEPS);
    for (int i = 0; i < n && i < STEPS; i++)
        CHECK_INT(line[i].step, i + 1);
    return n;
}

static bool near(double a, double b, double bound)
{
    return fabs(a - b) <= bound * fmax(fabs(a), fabs(b));
}

/* Losses, norms and rates of all steps; weights where it is to the bit (bound 0). */
static void check_same(const char *run, const char *judge, double bound, const char *what)
{
    struct left_line a[STEPS], b[STEPS];
    int n = read_lines(run, a), m = read_lines(judge, b);
    test_check(n == STEPS && m == STEPS, __FILE__, __LINE__, "%s: %d and %d steps", what, n, m);
    for (int i = 0; i < STEPS && n == STEPS && m == STEPS; i++)
        test_check(near(a[i].loss, b[i].loss, bound) && near(a[i].norm, b[i].norm, bound) &&
                       a[i].lr == b[i].lr,
                   __FILE__, __LINE__, "%s: step %d has loss %.17g, norm %.17g, not %.17g, %.17g",
                   what, i + 1, a[i].loss, a[i].norm, b[i].loss, b[i].norm);
    if (bound == 0)
        test_check(folder_same_in(run, judge, "model.safetensors"), __FILE__, __LINE__,
                   "%s: other weights", what);
}

/* ---- the same layout ---- */

static const char *const every_3[] = {"train.save_every=3", NULL};
static const char *const again[] = {"train.save_every=3", "run.resume=auto", NULL};

static void goes_on_to_the_bit(void)
{
    struct outcome o;
    for (int k = 0; k < 2 * LAYOUTS; k += k < LAYOUTS ? 1 : 2) { /* every second one in bf16 */
        const struct layout *l = &layouts[k % LAYOUTS];
        const char *first[] = {every_3[0], k < LAYOUTS ? NULL : "train.dtype=bf16", NULL};
        const char *then[] = {every_3[0], again[1], first[1], NULL};
        train("judge", l, first + 1, 0, &o);
        for (int64_t stop = 1 + k % 9; stop < STEPS - 2; stop += NEXT_STOP) {
            train("run", l, first, stop, &o);
            CHECK_INT(o.code, PLAIT_STOPPED);
            train("run", l, then, 0, &o);
            test_check(o.code == 0, __FILE__, __LINE__, "%s: %s", l->name, plait_error());
            CHECK(strstr(o.seen.table, "resume          behind step ") != NULL);
            check_same("run", "judge", 0, l->name);
            folder_remove("run");
        }
        folder_remove("judge");
    }
}

/* ---- another layout ---- */

/* In f64, where rounding alone is left. */
static void goes_on_elsewhere(void)
{
    static const char *const ref[] = {"train.device=ref", "train.save_every=5", NULL};
    static const char *const ref_again[] = {"train.device=ref", "run.resume=auto", NULL};
    struct outcome o;
    char what[ROW];
    train("judge", &layouts[0], ref, 0, &o);
    for (int i = 0; i < LAYOUTS; i++) {
        int to = (i * 7 + 3) % LAYOUTS;
        snprintf(what, sizeof what, "%s to %s", layouts[i].name, layouts[to].name);
        train("run", &layouts[i], ref, 7, &o);
        CHECK_INT(o.code, PLAIT_STOPPED);
        train("run", &layouts[to], ref_again, 0, &o);
        test_check(o.code == 0, __FILE__, __LINE__, "%s: %s", what, plait_error());
        check_same("run", "judge", 1e-10, what);
        folder_remove("run");
    }
    folder_remove("judge");
}

/* 20 samples end amid step 3 and behind step 5: it goes on with those that are left. */
static void across_epochs(void)
{
    static const int from[] = {0, 4, 5, 6}, to[] = {0, 5, 2, 0};
    static const char *const go_on[] = {"train.device=ref", "run.resume=auto", NULL};
    struct outcome o;
    text = (struct source){"few.bin", 4};
    for (int i = 0; i < 8; i++) {
        const struct layout *a = &layouts[from[i / 2]], *b = &layouts[to[i / 2]];
        train("judge", b, go_on, 0, &o);
        CHECK(strstr(o.seen.table, " 20 samples") != NULL);
        train("run", a, go_on, i % 2 ? 5 : 2, &o);
        train("run", b, go_on, 0, &o);
        check_same("run", "judge", a == b ? 0 : 1e-10, b->name);
        folder_remove("run");
        folder_remove("judge");
    }
    text = (struct source){"tokens.bin", 60};
}

/* ---- what is refused, and what is taken instead ---- */

static void what_may_not_change(void)
{
    static const char *const other[] = {
        "model.layers=5", "model.hidden=32", "model.heads=2", "model.ffn=48", "model.seq=16",
        "model.tied=false", "model.dropout=0", "model.norm_eps=1e-4", "model.init_std=0.01",
        "model.kind=llama", "train.batch=4", "train.seed=2"};
    struct outcome o;
    train("run", &layouts[0], every_3, 7, &o);
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
        char key[32] = "";
        snprintf(key, sizeof key, "run.resume: %.*s", (int)strcspn(other[i], "="), other[i]);
        train("run", &layouts[0], (const char *[]){"run.resume=auto", other[i], NULL}, 0, &o);
        test_check(o.code == PLAIT_CONFIG && strstr(plait_error(), key), __FILE__, __LINE__,
                   "%s: %d: %s", other[i], o.code, plait_error());
    }
    train("run", &layouts[0], (const char *[]){"run.resume=auto", "train.seed=2",
                                               "run.resume_insist=true", NULL}, 0, &o);
    CHECK_INT(o.code, 0);
    folder_remove("run");
}

/* The newest of a run's checkpoints. */
static int64_t newest(const char *run)
{
    struct state_found *found;
    char path[FOLDER_PATH];
    int n;
    folder_path(run, path);
    CHECK_OK(state_list(path, false, &found, &n));
    CHECK(n > 0 && found[0].whole);
    int64_t step = n > 0 ? found[0].step : 0;
    mem_free(found);
    return step;
}

static void flip(const char *path, off_t at)
{
    unsigned char byte = 0;
    int fd = open(path, O_RDWR);
    CHECK(fd >= 0 && pread(fd, &byte, 1, at) == 1);
    byte ^= 0x10;
    CHECK(pwrite(fd, &byte, 1, at) == 1 && close(fd) == 0);
}

/* The newest has a bit flipped in its data, or in its index: the one before is taken. */
static void a_damaged_one(void)
{
    static const char *const name[] = {"rank-00000.safetensors", "index.json"};
    struct outcome o;
    train("judge", &layouts[0], NULL, 0, &o);
    for (int i = 0; i < 2; i++) {
        char file[96], path[FOLDER_PATH], word[32];
        struct stat st;
        train("run", &layouts[0], every_3, 7, &o);
        int64_t step = newest("run");
        CHECK(step > 6);
        snprintf(file, sizeof file, "checkpoints/step-%lld/%s", (long long)step, name[i]);
        snprintf(word, sizeof word, "run.resume=%lld", (long long)step);
        folder_path_in("run", file, path);
        CHECK(stat(path, &st) == 0);
        flip(path, i == 0 ? st.st_size - 100 : 60);
        train("run", &layouts[0], (const char *[]){word, NULL}, 0, &o);
        CHECK_INT(o.code, PLAIT_CHECKPOINT);
        train("run", &layouts[0], again, 0, &o);
        CHECK_INT(o.code, 0);
        CHECK(strstr(o.seen.table, "behind step 6, ") != NULL);
        check_same("run", "judge", 0, "behind a damaged one");
        CHECK_INT(folder_count("run/checkpoints", ".bad."), 1); /* set aside, and not removed */
        folder_remove("run");
    }
    folder_remove("judge");
}

/* What is damaged in the index is the checkpoint's error, not the configuration's: a bit of what is
 * kept of the run, also of a text, and a text that no plait has written, of the right hash. */
static void a_damaged_index(void)
{
    static const struct { const char *what, *said; int64_t at; } bad[] = {
        {"\"data_hash\":\"", "index.json has the hash ", 0},
        {"\"warmup\":", "index.json has the hash ", 0},
        {"\"config\":\"", "index.json has the hash ", 40},
        {"optim:", "the configuration in ", -1},
    };
    struct outcome o;
    char dir[FOLDER_PATH];
    train("run", &layouts[0], every_3, 7, &o);
    int64_t step = newest("run");
    char word[32], name[64];
    snprintf(word, sizeof word, "run.resume=%lld", (long long)step);
    snprintf(name, sizeof name, "checkpoints/step-%lld", (long long)step);
    folder_path_in("run", name, dir);
    char *good = saved_index(dir);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char *at = strstr(good, bad[i].what);
        if (!CHECK(at != NULL))
            continue;
        at += bad[i].at < 0 ? 0 : (int64_t)strlen(bad[i].what) + bad[i].at;
        *at ^= 1;
        if (bad[i].at < 0)
            saved_put_index(dir, good);
        else
            saved_put_raw(dir, good);
        *at ^= 1;
        train("run", &layouts[0], (const char *[]){word, NULL}, 0, &o);
        CHECK_INT(o.code, PLAIT_CHECKPOINT);
        test_check(strstr(plait_error(), bad[i].said) && strstr(plait_error(), "index.json"),
                   __FILE__, __LINE__, "%s: %s", bad[i].what, plait_error());
    }
    saved_put_raw(dir, good);
    mem_free(good);
    train("run", &layouts[0], (const char *[]){word, NULL}, 0, &o);
    CHECK_INT(o.code, 0);
    folder_remove("run");
}

static void the_newest_stay(void)
{
    struct outcome o;
    struct state_found *found;
    char path[FOLDER_PATH];
    int n;
    train("run", &layouts[5], (const char *[]){"train.save_every=2", "train.save_keep=3", NULL}, 0,
          &o);
    CHECK_INT(o.code, 0);
    folder_path("run", path);
    CHECK_OK(state_list(path, false, &found, &n));
    CHECK_INT(n, 3);
    for (int i = 0; i < n && n == 3; i++)
        CHECK(found[i].whole && found[i].step == STEPS - 2 * i);
    mem_free(found);
    folder_remove("run");
}

/* auto where there is nothing begins; a longer run plans its decay anew, or keeps it. */
static void begins_and_grows(void)
{
    struct outcome o;
    train("run", &layouts[0], again, 0, &o);
    CHECK_INT(o.code, 0);
    CHECK(strstr(o.seen.table, "from the start") != NULL);
    train("run", &layouts[0], (const char *[]){"run.resume=auto", "train.steps=14", NULL}, 0, &o);
    CHECK_INT(o.code, 0);
    CHECK_INT(o.seen.losses, 2);
    folder_remove("run");
}

static bool same_folder(const char *run, const char *kept)
{
    char a[FOLDER_PATH], b[FOLDER_PATH], command[3 * FOLDER_PATH];
    folder_path(run, a);
    folder_path(kept, b);
    snprintf(command, sizeof command, "diff -r '%s' '%s' >&2", a, b);
    return system(command) == 0;
}

/* Where last bits may differ since the checkpoint is another device's, that is said. */
static void on_another_device(void)
{
    static const char word[] = "it was saved with another train.device: last bits may differ";
    struct outcome o;
    train("run", &layouts[4], (const char *[]){"train.steps=2", NULL}, 0, &o);
    train("run", &layouts[4], (const char *[]){"run.resume=auto", "train.steps=3", NULL}, 0, &o);
    CHECK(o.code == 0 && strstr(o.seen.table, "behind step 2") && !strstr(o.seen.table, word));
    train("run", &layouts[4], (const char *[]){"run.resume=auto", "train.steps=4",
                                               "train.device=ref", NULL}, 0, &o);
    CHECK(o.code == 0 && strstr(o.seen.table, "behind step 3") && strstr(o.seen.table, word));
    CHECK(!strstr(o.seen.table, "are made anew")); /* neither measures */
    folder_remove("run");
}

static void keep_folder(const char *run, const char *kept)
{
    char a[FOLDER_PATH], b[FOLDER_PATH], command[3 * FOLDER_PATH];
    folder_path(run, a);
    folder_path(kept, b);
    snprintf(command, sizeof command, "cp -r '%s' '%s'", a, b);
    CHECK(system(command) == 0);
}

/* A checkpoint that is good on one rank and damaged on another leaves nothing on the first: its
 * warm-up has another length than the one before has. */
static void a_failed_try(void)
{
    static const char *const last[] = {"train.steps=12", "optim.warmup=100", "run.resume=auto",
                                       NULL};
    const struct layout *l = &layouts[8]; /* each rank reads its own shard alone */
    struct outcome o;
    char path[FOLDER_PATH];
    struct stat st;
    train("run", l, (const char *[]){"train.steps=3", NULL}, 0, &o);
    train("run", l, (const char *[]){"train.steps=6", "optim.warmup=100", "run.resume=auto", NULL},
          0, &o);
    CHECK_INT(o.code, 0);
    keep_folder("run", "judge");
    folder_remove("judge/checkpoints/step-6");
    folder_path("run/checkpoints/step-6/rank-00001.safetensors", path);
    CHECK(stat(path, &st) == 0);
    flip(path, st.st_size - 100);
    train("judge", l, last, 0, &o);
    CHECK_INT(o.code, 0);
    train("run", l, last, 0, &o);
    CHECK_INT(o.code, 0);
    CHECK(strstr(o.seen.table, "behind step 3, ") != NULL);
    check_same("run", "judge", 0, "behind a failed try");
    folder_remove("run");
    folder_remove("judge");
}

/* Weights, or another run's folder, are not begun over. */
static void nothing_is_lost(void)
{
    struct outcome o;
    char from[FOLDER_PATH], word[FOLDER_PATH + 16];
    train("weights", &layouts[0], (const char *[]){"train.save_keep=0", NULL}, 0, &o);
    keep_folder("weights", "weights.kept");
    train("weights", &layouts[0], again, 0, &o);
    CHECK_INT(o.code, PLAIT_CONFIG);
    CHECK(strstr(plait_error(), "holds a run already") != NULL);
    CHECK(same_folder("weights", "weights.kept"));
    train("run", &layouts[0], every_3, 0, &o);
    folder_path("run/checkpoints/step-9", from);
    snprintf(word, sizeof word, "run.resume=%s", from);
    train("weights", &layouts[0], (const char *[]){word, NULL}, 0, &o);
    CHECK_INT(o.code, PLAIT_CONFIG);
    CHECK(same_folder("weights", "weights.kept"));
    train("elsewhere", &layouts[1], (const char *[]){word, NULL}, 0, &o);
    CHECK_INT(o.code, 0);
    CHECK_INT(o.seen.losses, 3);
    folder_remove("weights");
    folder_remove("weights.kept");
    folder_remove("run");
    folder_remove("elsewhere");
}

/* A folder with the name of another step holds none. */
static void names_are_held_to(void)
{
    struct outcome o;
    char from[FOLDER_PATH], to[FOLDER_PATH];
    train("run", &layouts[0], (const char *[]){"train.save_every=3", "train.save_keep=9", NULL}, 0,
          &o);
    CHECK_INT(o.code, 0);
    folder_path("run/checkpoints/step-3", from);
    folder_path("run/checkpoints/step-20", to);
    CHECK(rename(from, to) == 0);
    train("run", &layouts[0], (const char *[]){"run.resume=20", NULL}, 0, &o);
    CHECK_INT(o.code, PLAIT_CHECKPOINT);
    CHECK_INT(newest("run"), 20); /* nothing is removed */
    train("run", &layouts[0], (const char *[]){"run.resume=auto", "train.device=null", NULL}, 0,
          &o);
    CHECK_INT(o.code, PLAIT_CONFIG);
    folder_remove("run");
}

/* Its folder goes by another name from step 4 on, and somebody begins anew under the old one. */
static void move_away(void *arg, const struct plait_step *s)
{
    char from[FOLDER_PATH], to[FOLDER_PATH], lock[FOLDER_PATH];
    folder_on_step(arg, s);
    if (s->step != 4)
        return;
    folder_path("run", from);
    folder_path("moved", to);
    folder_path_in("run", "plait.lock", lock);
    CHECK(rename(from, to) == 0 && mkdir(from, 0777) == 0);
    CHECK(close(open(lock, O_CREAT | O_WRONLY, 0666)) == 0);
}

static void another_runs_folder(void)
{
    struct outcome o = {.code = 0};
    char path[FOLDER_PATH];
    folder_tokens("tokens.bin", "a braid of many strands, over and under\n", 60);
    struct plait_config *c = folder_config("run", "tokens.bin");
    folder_set(c, base_set, sizeof base_set / sizeof *base_set);
    folder_set(c, layouts[4].set, WORDS);
    folder_set(c, (const char *[]){"train.save_every=3", "train.save_async=false", NULL}, WORDS);
    CHECK_INT(plait_train(c, &(struct plait_train){.size = sizeof(struct plait_train),
                                                   .on_step = move_away, .arg = &o.seen}),
              PLAIT_STORAGE);
    plait_config_free(c);
    CHECK(strstr(plait_error(), "was moved away") != NULL);
    folder_path("run/checkpoints", path);
    CHECK(!fs_exists(path));
    CHECK_INT(newest("moved"), 3);
    folder_remove("run");
    folder_remove("moved");
}

/* Another course of the rates begins where it is asked for. */
static void another_course(void)
{
    struct outcome o;
    struct left_line line[STEPS];
    train("run", &layouts[0], every_3, 4, &o);
    train("run", &layouts[0], (const char *[]){"run.resume=auto", "optim.schedule=wsd",
                                               "optim.decay_steps=4", NULL}, 0, &o);
    CHECK_INT(o.code, 0);
    CHECK_INT(read_lines("run", line), STEPS);
    CHECK(line[7].lr == 0.01 && near(line[11].lr, 0.0025, 1e-12));
    folder_remove("run");
}

/* A slow machine makes no step in the first fraction of a second: then it has longer. */
static void time_is_up(void)
{
    struct outcome o;
    bool stepped = false;
    for (double limit = 0.2; !stepped && limit < 60; limit *= 2) {
        char word[40], says[64];
        snprintf(word, sizeof word, "train.time_limit=%g", limit);
        snprintf(says, sizeof says, "stopped by train.time_limit %g s behind step ", limit);
        train("run", &layouts[2], (const char *[]){"train.steps=1000000", "train.save_every=1000",
                                                   word, NULL}, 0, &o);
        CHECK_INT(o.code, PLAIT_STOPPED);
        stepped = !strstr(plait_error(), "before the first step");
        CHECK(!stepped || strstr(plait_error(), says) != NULL);
        CHECK(!stepped || newest("run") > 0);
        folder_remove("run");
    }
    CHECK(stepped);
}

/* Not written beside the steps: when the next one ends it is there. */
static void look_for_3(void *arg, const struct plait_step *s)
{
    folder_on_step(arg, s);
    if (s->step == 4)
        CHECK_INT(newest("run"), 3);
}

static void whole_at_once(void)
{
    static const char *const set[] = {"train.save_every=3", "train.save_async=false", NULL};
    struct outcome o = {.code = 0};
    struct plait_config *c = folder_config("run", "tokens.bin");
    folder_tokens("tokens.bin", "a braid of many strands, over and under\n", 60);
    folder_set(c, base_set, sizeof base_set / sizeof *base_set);
    folder_set(c, layouts[4].set, WORDS);
    folder_set(c, set, WORDS);
    CHECK_INT(plait_train(c, &(struct plait_train){.size = sizeof(struct plait_train),
                                                   .on_step = look_for_3, .arg = &o.seen}), 0);
    plait_config_free(c);
    CHECK_INT(o.seen.losses, STEPS);
    folder_remove("run");
}

static void keep_summary(void *arg, const char *summary)
{
    snprintf(arg, 1024, "%s", summary);
}

/* Without a copy of the state, and with one, read by several threads: the same bits, and a line
 * says how many saves there were. */
static void without_a_copy(void)
{
    static const int some[] = {3, 4, 7, 9};
    static const char *const every[][4] = {{"train.save_every=3", "train.threads=3",
                                            "train.save_async=false", NULL},
                                           {"train.save_every=3", "train.threads=3", NULL}};
    for (size_t k = 0; k < sizeof some / sizeof *some; k++) {
        const struct layout *l = &layouts[some[k]];
        struct outcome o;
        char summary[1024] = "";
        train("judge", l, (const char *[]){"train.threads=3", NULL}, 0, &o);
        for (int copy = 0; copy < 2; copy++) {
            const char *const more[] = {"run.resume=auto", every[copy][0], every[copy][1],
                                        every[copy][2], NULL};
            train("run", l, every[copy], 4, &o);
            CHECK_INT(o.code, PLAIT_STOPPED);
            CHECK((strstr(o.seen.table, "\ncopies  ") != NULL) == copy);
            struct plait_config *c = folder_config("run", "tokens.bin");
            folder_set(c, base_set, sizeof base_set / sizeof *base_set);
            folder_set(c, l->set, WORDS);
            folder_set(c, more, WORDS);
            CHECK_INT(plait_train(c, &(struct plait_train){.size = sizeof(struct plait_train),
                                                           .on_done = keep_summary,
                                                           .arg = summary}), 0);
            plait_config_free(c);
            test_check(strstr(summary, "saves: 3, of ") != NULL, __FILE__, __LINE__, "%s: %s",
                       l->name, summary); /* 6, 9, 12 */
            check_same("run", "judge", 0, l->name);
            folder_remove("run");
        }
        folder_remove("judge");
    }
}

/* Six steps of a decay to 0.001, then six more. */
static void a_decay_is_kept(void)
{
    struct outcome o;
    for (int keep = 0; keep < 2; keep++) {
        const char *const more[] = {"run.resume=auto", "optim.lr_min=0.001",
                                    keep ? "optim.decay_keep=true" : "optim.decay_keep=false",
                                    NULL};
        struct left_line line[STEPS];
        train("run", &layouts[0], (const char *[]){"train.steps=6", "optim.lr_min=0.001",
                                                   "train.save_every=6", NULL}, 0, &o);
        CHECK_INT(o.code, 0);
        train("run", &layouts[0], more, 0, &o);
        CHECK_INT(o.code, 0);
        CHECK_INT(read_lines("run", line), STEPS);
        /* warm-up 3: step 7 is the fourth of the nine that decay */
        double lr = 0.01 + (0.001 - 0.01) * 0.5 * (1 - cos(acos(-1.0) * 3 / 9));
        CHECK(near(line[6].lr, keep ? 0.001 : lr, 1e-12));
        CHECK(near(line[11].lr, 0.001, keep ? 1e-12 : 0.5));
        folder_remove("run");
    }
}

static const struct test_case cases[] = {
    {"goes on to the bit", goes_on_to_the_bit},
    {"goes on elsewhere", goes_on_elsewhere},
    {"across epochs", across_epochs},
    {"what may not change", what_may_not_change},
    {"a damaged one", a_damaged_one},
    {"a damaged index", a_damaged_index},
    {"the newest stay", the_newest_stay},
    {"begins and grows", begins_and_grows},
    {"on another device", on_another_device},
    {"a failed try", a_failed_try},
    {"nothing is lost", nothing_is_lost},
    {"names are held to", names_are_held_to},
    {"another run's folder", another_runs_folder},
    {"another course", another_course},
    {"time is up", time_is_up},
    {"whole at once", whole_at_once},
    {"without a copy", without_a_copy},
    {"a decay is kept", a_decay_is_kept},
};
TEST_MAIN(cases)
