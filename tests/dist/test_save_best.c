/* SPDX-License-Identifier: Apache-2.0
 *
 * The checkpoint with the lowest validation loss: it is there whatever else is saved and removed,
 * the same in a run that is stopped and goes on, and `best` means it. Which checkpoints there are
 * is held against a list that the test keeps of the run's own validations.
 */
#include "folder.h"

#include "base/fs_sys.h"
#include "base/mem.h"
#include "ckpt/state.h"
#include "folder/folder.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

enum { STEPS = 14, WORDS = 16, ROW = 160 };

static const char *const base_set[] = {
    "model.layers=4", "model.hidden=16", "model.heads=2", "model.seq=8", "train.batch=4",
    "train.threads=1", "train.steps=14", "optim.schedule=constant", "optim.warmup=0",
    "train.save_best=true", NULL};
static const char *const layouts[][6] = {
    {"parallel.pp=1"},
    {"parallel.tp=2", "parallel.dp=2"},
    {"parallel.dp=2", "parallel.zero=1"},
    {"parallel.pp=2", "parallel.schedule=zb-h1"}};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

/* How one run is made: a layout and what it saves, drawn. */
struct way { int layout, valid, every, keep; const char *async, *lr; };

struct outcome {
    int code;
    int64_t stop_at;
    double loss[STEPS + 1]; /* of the validation behind a step; NaN: none */
    char table[8192];
};

static void on_start(void *arg, const char *table)
{
    struct outcome *o = arg;
    snprintf(o->table, sizeof o->table, "%s", table);
}

static void on_step(void *arg, const struct plait_step *s)
{
    const struct outcome *o = arg;
    if (s->step == o->stop_at)
        plait_stop(1);
}

static void on_valid(void *arg, int64_t step, double loss, double bits)
{
    struct outcome *o = arg;
    (void)bits;
    o->loss[step] = loss;
}

/* more: words, of all the last. Losses of an earlier start stay. */
static void train(const char *run, const struct way *w, const char *more, int64_t stop_at,
                  struct outcome *o)
{
    char words[ROW], *word[8], *rest = words;
    folder_tokens("text", "a braid of many strands, over and under\n", 60);
    folder_tokens("check", "strands of another braid\n", 12);
    struct plait_config *c = folder_config(run, "text");
    folder_set_file(c, "data.valid", "check");
    folder_set(c, base_set, 99);
    folder_set(c, layouts[w->layout], 6);
    snprintf(words, sizeof words,
             "train.valid_every=%d train.save_every=%d train.save_keep=%d train.save_async=%s "
             "optim.lr=%s %s", w->valid, w->every, w->keep, w->async, w->lr, more ? more : "");
    for (int i = 0; i < 8; i++)
        word[i] = strtok_r(rest, " ", &rest);
    folder_set(c, (const char *const *)word, 8);
    o->stop_at = stop_at;
    o->code = plait_train(c, &(struct plait_train){.size = sizeof(struct plait_train),
                                                   .on_start = on_start, .on_step = on_step,
                                                   .on_valid = on_valid, .arg = o});
    plait_stop(0);
    plait_config_free(c);
}

static void forget_losses(struct outcome *o)
{
    for (int i = 0; i <= STEPS; i++)
        o->loss[i] = NAN;
}

static struct way draw_way(int i)
{
    static const char *const lr[] = {"0.01", "1", "4"};
    return (struct way){.layout = i % LAYOUTS, .valid = (int)test_range(1, 4),
                        .every = (int)test_range(0, 6), .keep = (int)test_range(1, 3),
                        .async = test_range(0, 1) ? "true" : "false", .lr = lr[test_range(0, 2)]};
}

/* ---- what has to be there ---- */

/* The first of the lowest losses of validations up to a step; 0: none. */
static int best_of(const struct outcome *o, int last)
{
    int best = 0;
    for (int s = 1; s <= last; s++)
        if (!isnan(o->loss[s]) && (best == 0 || o->loss[s] < o->loss[best]))
            best = s;
    return best;
}

/* saved[s]: the checkpoint of step s is there at the end. */
static void expect(const struct way *w, const struct outcome *o, bool saved[STEPS + 1])
{
    memset(saved, 0, (STEPS + 1) * sizeof *saved);
    for (int s = 1; s <= STEPS; s++) {
        int best = best_of(o, s);
        saved[s] = (w->every > 0 && s % w->every == 0) || s == STEPS || best == s;
        for (int i = s, n = 0; saved[s] && i > 0; i--)
            if (saved[i] && i != best && ++n > w->keep)
                saved[i] = false;
    }
}

static void check_found(const char *run, const bool saved[STEPS + 1], const char *what)
{
    struct state_found *found;
    char path[FOLDER_PATH];
    bool is[STEPS + 1] = {false};
    int n;
    folder_path(run, path);
    CHECK_OK(state_list(path, false, &found, &n));
    for (int i = 0; i < n; i++)
        is[found[i].step] = found[i].whole;
    for (int s = 1; s <= STEPS; s++)
        test_check(is[s] == saved[s], __FILE__, __LINE__, "%s: step %d is %s", what, s,
                   is[s] ? "there" : "not there");
    mem_free(found);
}

/* `best` means that step, and its index has the loss. */
static void check_best(const char *run, int step, double loss, const char *what)
{
    struct state_index x;
    char path[FOLDER_PATH], dir[FS_PATH];
    int64_t found = -1;
    folder_path(run, path);
    enum err err = folder_checkpoint("test", path, "best", dir, &found);
    CHECK(found == step);
    if (!test_check(err == ERR_OK, __FILE__, __LINE__, "%s: %s", what, err_text()))
        return;
    CHECK_OK(state_index_open(&x, dir));
    test_check(x.head.step == step && x.head.valid_loss == loss, __FILE__, __LINE__,
               "%s: step %lld with %.17g, wanted %d with %.17g", what, (long long)x.head.step,
               x.head.valid_loss, step, loss);
    state_index_close(&x);
}

static void say(const struct way *w, int64_t stop, char what[ROW])
{
    snprintf(what, ROW, "layout %d, valid %d, every %d, keep %d, async %s, lr %s, stop %lld",
             w->layout, w->valid, w->every, w->keep, w->async, w->lr, (long long)stop);
}

static void it_stays(void)
{
    int before_the_end = 0;
    for (int i = 0; i < 16; i++) {
        struct way w = draw_way(i);
        struct outcome o;
        bool saved[STEPS + 1];
        char what[ROW];
        say(&w, 0, what);
        forget_losses(&o);
        train("run", &w, NULL, 0, &o);
        test_check(o.code == 0, __FILE__, __LINE__, "%s: %s", what, plait_error());
        expect(&w, &o, saved);
        check_found("run", saved, what);
        int best = best_of(&o, STEPS);
        check_best("run", best, o.loss[best], what);
        before_the_end += best < STEPS - 2;
        folder_remove("run");
    }
    test_check(before_the_end > 2, __FILE__, __LINE__, "%d of the best are early ones",
               before_the_end);
}

/* ---- a run that is stopped ---- */

static void it_is_right_over_stops(void)
{
    for (int i = 0; i < 8; i++) {
        struct way w = draw_way(i);
        struct outcome o, judge;
        char what[ROW];
        /* the run stops behind the step that follows, often where a validation would be made */
        int64_t stop = test_range(0, 2) ? w.valid * test_range(1, STEPS / w.valid - 1) - 1
                                        : test_range(1, STEPS - 3);
        say(&w, stop, what);
        forget_losses(&o);
        forget_losses(&judge);
        train("judge", &w, NULL, 0, &judge);
        train("run", &w, NULL, stop > 0 ? stop : 1, &o);
        test_check(o.code == PLAIT_STOPPED, __FILE__, __LINE__, "%s: %s", what, plait_error());
        train("run", &w, "run.resume=auto", 0, &o);
        test_check(o.code == 0, __FILE__, __LINE__, "%s: %s", what, plait_error());
        int best = best_of(&judge, STEPS);
        check_best("judge", best, judge.loss[best], what);
        check_best("run", best, judge.loss[best], what);
        folder_remove("run");
        folder_remove("judge");
    }
}

/* The loss of a validation that a stop had cut cannot be put into the index: a warning, the run
 * goes on, and that checkpoint is not the best, of which there is one by the indexes alone. */
static const struct fs_ops *under;

static int open_but_index(const char *path, int flags, unsigned mode)
{
    bool fails = (flags & O_CREAT) && strstr(path, "step-4/index.json");
    errno = EIO;
    return fails ? -1 : under->open(path, flags, mode);
}

static void a_loss_that_comes_too_late(void)
{
    for (int layout = 0; layout < 2; layout++) {
        struct way w = {.layout = layout, .valid = 4, .every = 4, .keep = 9, .async = "false",
                        .lr = "0.01"};
        struct fs_ops ops = *fs_ops;
        struct outcome o;
        forget_losses(&o);
        train("run", &w, NULL, 3, &o); /* stops behind the next step */
        CHECK_INT(o.code, PLAIT_STOPPED);
        CHECK(isnan(o.loss[4]));
        under = fs_ops;
        ops.open = open_but_index;
        fs_ops = &ops;
        train("run", &w, "run.resume=auto", 0, &o);
        fs_ops = under;
        test_check(o.code == 0, __FILE__, __LINE__, "%s", plait_error());
        CHECK(folder_times("run", "log.txt", "is not known by the loss of its validation") == 1);
        CHECK(!isnan(o.loss[4]) && !isnan(o.loss[STEPS]));
        o.loss[4] = NAN; /* no index has it */
        int best = best_of(&o, STEPS);
        check_best("run", best, o.loss[best], "too late");
        folder_remove("run");
    }
}

/* run.resume=best goes on from it, and forgets what came behind. */
static void going_on_from_it(void)
{
    struct way w = {.layout = 2, .valid = 2, .every = 5, .keep = 2, .async = "true", .lr = "0.4"};
    struct outcome o, again;
    char row[ROW];
    forget_losses(&o);
    train("run", &w, NULL, 0, &o);
    int best = best_of(&o, STEPS);
    CHECK(best < STEPS);
    again = o;
    for (int s = best + 1; s <= STEPS; s++)
        again.loss[s] = NAN;
    train("run", &w, "run.resume=best", 0, &again);
    test_check(again.code == 0, __FILE__, __LINE__, "%s", plait_error());
    snprintf(row, sizeof row, "behind step %d, ", best);
    test_check(strstr(again.table, row) != NULL, __FILE__, __LINE__, "%s", again.table);
    for (int s = 1; s <= STEPS; s++)
        CHECK(isnan(o.loss[s]) ? isnan(again.loss[s]) : o.loss[s] == again.loss[s]);
    check_best("run", best, o.loss[best], "again");
    folder_remove("run");
}

/* The word is the command's, not the run's: without it the best goes with the older ones, which is
 * said where the run goes on. */
static void going_on_without_the_word(void)
{
    static const char *const told = "train.save_best true, which is false now";
    struct way w = {.layout = 1, .valid = 2, .every = 5, .keep = 2, .async = "true", .lr = "0.01"};
    struct outcome o;
    forget_losses(&o);
    train("run", &w, NULL, 5, &o);
    CHECK_INT(o.code, PLAIT_STOPPED);
    train("run", &w, "run.resume=auto", 8, &o);
    CHECK_INT(folder_times("run", "log.txt", told), 0);
    train("run", &w, "run.resume=auto train.save_best=false", 0, &o);
    test_check(o.code == 0, __FILE__, __LINE__, "%s", plait_error());
    CHECK_INT(folder_times("run", "log.txt", told), 1);
    folder_remove("run");
}

/* ---- what is hostile ---- */

static void flip(const char *run, int step)
{
    char name[64], path[FOLDER_PATH];
    snprintf(name, sizeof name, "checkpoints/step-%d/index.json", step);
    folder_path_in(run, name, path);
    FILE *f = fopen(path, "r+b");
    CHECK(f && fseek(f, 70, SEEK_SET) == 0 && fputc('~', f) == '~' && fclose(f) == 0);
}

/* An index that cannot be read is never the best. */
static void what_is_damaged_is_passed_over(void)
{
    struct way w = {.layout = 0, .valid = 1, .every = 1, .keep = 20, .async = "false", .lr = "0.1"};
    struct outcome o;
    forget_losses(&o);
    train("run", &w, NULL, 0, &o);
    for (int left = STEPS; left > 0; left--) {
        int best = best_of(&o, STEPS);
        check_best("run", best, o.loss[best], "of those left");
        flip("run", best);
        o.loss[best] = NAN;
    }
    train("run", &w, "run.resume=best", 0, &o);
    test_check(o.code == PLAIT_CHECKPOINT && strstr(plait_error(), "run.resume: none of"),
               __FILE__, __LINE__, "%d: %s", o.code, plait_error());
    folder_remove("run");
}

static const struct test_case cases[] = {
    {"it stays", it_stays},
    {"it is right over stops", it_is_right_over_stops},
    {"going on from it", going_on_from_it},
    {"going on without the word", going_on_without_the_word},
    {"a loss that comes too late", a_loss_that_comes_too_late},
    {"what is damaged is passed over", what_is_damaged_is_passed_over},
};
TEST_MAIN(cases)
