/* SPDX-License-Identifier: Apache-2.0
 *
 * The files about a comparison: those that the run's schedule was made of, which are read again and
 * may be gone or others by then; and the file of costs, with what is said of it.
 */
#include "folder.h"

#include "base/fs.h"
#include <unistd.h>

static void train(const char *run, const char *schedule, const char *costs, bool again)
{
    const char *const words[] = {
        "model.layers=4", "model.hidden=16", "model.heads=2", "model.seq=8", "model.vocab=257",
        "train.batch=4", "train.steps=2", "train.threads=1", "parallel.pp=2", "optim.warmup=1",
        "train.trace=true", again ? "train.recompute=full" : "train.recompute=none", NULL};
    char word[FOLDER_PATH + 32];
    const char *const name[] = {word, NULL};
    struct folder_seen seen;
    folder_prepare(PLAIT_SOURCE_DIR "/README.md", "tokens");
    struct plait_config *c = folder_config(run, "tokens");
    folder_set(c, words, sizeof words / sizeof *words);
    snprintf(word, sizeof word, "parallel.schedule=%s", schedule);
    folder_set(c, name, 1);
    if (costs)
        folder_set_file(c, "parallel.costs", costs);
    test_check(folder_train(c, &seen) == 0, __FILE__, __LINE__, "%s: %s", run, plait_error());
}

static void put(const char *path, const char *text)
{
    if (text)
        CHECK_OK(fs_put(path, text, (int64_t)strlen(text)));
    else
        CHECK(unlink(path) == 0);
}

/* A comparison of `run` while the file has that text (NULL: is gone) names it and what to do. */
static void refuses(const char *run, const char *file, const char *text, int code, const char *said)
{
    char path[FOLDER_PATH], folder[FOLDER_PATH], *page = NULL;
    struct plait_compare how = {.size = sizeof how, .run = folder, .skip = -1};
    folder_path(file, path);
    folder_path(run, folder);
    put(path, text);
    int got = plait_compare(&how, &page);
    test_check(got == code && strstr(plait_error(), path) && strstr(plait_error(), said) &&
                   strstr(plait_error(), "as it was") && !strstr(plait_error(), "; use"),
               __FILE__, __LINE__, "%s, %s: %d %s", run, text ? text : "gone", got, plait_error());
    plait_free(page);
}

static void a_schedule_that_is_another_one_now(void)
{
    static const char was[] = "0F0,0F1,0B0,0F2,0B1,0F3,0B2,0B3\n1F0,1B0,1F1,1B1,1F2,1B2,1F3,1B3\n";
    static const struct { const char *text, *said; int code; } now[] = {
        {"0F0,0F1,0F2,0B0,0F3,0B1,0B2,0B3\n1F0,1B0,1F1,1B1,1F2,1B2,1F3,1B3\n", "as it is now",
         PLAIT_DATA},
        {"0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n", "has changed since", PLAIT_CONFIG}, /* m 2 */
        {"0F0,0F1,0F2,0F3,0B0,0B1,0B2,0B3\n", "has changed since", PLAIT_CONFIG},  /* p 1 */
        {"0F0,0F1\n", "has changed since", PLAIT_CONFIG},
        {"a schedule\n", "has changed since", PLAIT_CONFIG},
        {NULL, "is gone", PLAIT_CONFIG},
    };
    char word[FOLDER_PATH + 8] = "file:", run[FOLDER_PATH], *page = NULL;
    struct plait_compare how = {.size = sizeof how, .run = run, .skip = -1};
    folder_path("list.csv", word + 5);
    put(word + 5, was);
    train("listed", word, NULL, false);
    for (size_t i = 0; i < sizeof now / sizeof *now; i++)
        refuses("listed", "list.csv", now[i].text, now[i].code, now[i].said);
    put(word + 5, was);
    folder_path("listed", run);
    CHECK_INT(plait_compare(&how, &page), PLAIT_OK);
    plait_free(page);
}

/* zb-1p is made for the costs; gpipe is what it is, and only wants to read them. */
static void costs_that_are_others_now(void)
{
    char path[FOLDER_PATH];
    for (int i = 0; i < 2; i++) {
        const char *run = i ? "gpipe" : "zb-1p";
        folder_path("costs.csv", path);
        put(path, "stage,F,B,I,W\n0,1,2,1,1\n1,1,2,1,1\n");
        train(run, run, "costs.csv", false);
        if (i == 0)
            refuses(run, "costs.csv", "stage,F,B,I,W\n0,9,2,1,1\n1,1,11,1,10\n", PLAIT_DATA,
                    "as it is now");
        refuses(run, "costs.csv", "stage,F,B,I,W\n0,1,2,1,1\n", PLAIT_CONFIG, "has changed since");
        refuses(run, "costs.csv", "", PLAIT_CONFIG, "has changed since");
        refuses(run, "costs.csv", NULL, PLAIT_CONFIG, "is gone");
    }
}

struct notes { int n; char text[512]; };

static void on_note(void *arg, const char *note)
{
    struct notes *s = arg;
    s->n++;
    snprintf(s->text, sizeof s->text, "%s", note);
}

/* What of a file of costs no action of the run was, is said; without a file there is no more. */
static void what_was_not_measured_is_said(void)
{
    static const char halves[] = "I and W are taken as half of B each";
    static const char whole[] = "B is taken as I and W together";
    static const char forward[] = "R is taken as F, for none ran (1 of 2 stages)";
    static const struct { const char *schedule; bool again; const char *said, *also; } c[] = {
        {"1f1b", false, halves, "trace zb-h1 to measure them"},
        {"gpipe", false, halves, "trace zb-h1 to measure them"},
        {"1f1b-v", false, halves, "trace zb-v to measure them"},
        {"zb-h1", false, whole, ""},
        {"zb-v", false, whole, ""},
        {"1f1b", true, halves, forward},
        {"zb-h1", true, whole, forward},
    };
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        char name[32], run[FOLDER_PATH], costs[FOLDER_PATH], *page = NULL;
        struct notes seen = {0};
        struct plait_compare how = {.size = sizeof how, .run = run, .skip = -1,
                                    .on_note = on_note, .arg = &seen};
        snprintf(name, sizeof name, "note-%d", (int)i);
        train(name, c[i].schedule, NULL, c[i].again);
        folder_path(name, run);
        folder_path("note.csv", costs);
        CHECK_INT(plait_compare(&how, &page), PLAIT_OK);
        plait_free(page);
        CHECK_INT(seen.n, 0);
        how.costs = costs;
        CHECK_INT(plait_compare(&how, &page), PLAIT_OK);
        plait_free(page);
        test_check(seen.n == 1 && strstr(seen.text, c[i].said) && strstr(seen.text, c[i].also) &&
                       !strstr(seen.text, c[i].said == halves ? whole : halves) &&
                       (strstr(seen.text, "R is") != NULL) == c[i].again,
                   __FILE__, __LINE__, "%s: %d %s", c[i].schedule, seen.n, seen.text);
    }
}

static const struct test_case cases[] = {
    {"a schedule that is another one now", a_schedule_that_is_another_one_now},
    {"costs that are others now", costs_that_are_others_now},
    {"what was not measured is said", what_was_not_measured_is_said},
};
TEST_MAIN(cases)
