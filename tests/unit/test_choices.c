/* SPDX-License-Identifier: Apache-2.0
 *
 * What ranks' devices have chosen, gathered: each different text once, in the order of the ranks,
 * the same on all of them, also where one chooses later; a text lives as long as a save may need.
 */
#include "train/checkpoint.h"
#include "test.h"

#include <string.h>

enum { RANKS = 8, ROUNDS = 6 };

/* What rank r says in a round: kind r % kinds, which may change. */
struct plan { int ranks, kinds; };

static _Thread_local char said[64];

static enum err say(struct dev *d, struct text *out)
{
    (void)d;
    text_add(out, "%s", said);
    return out->err;
}

static void says(const struct plan *p, int rank, int round, char out[64])
{
    int kind = rank % p->kinds;
    /* in rounds 2 and 3 nobody chooses anew; kind 0 has nothing at first; kind 1 chooses late */
    int version = round < 2 ? round : kind == 1 && round > 3 ? 3 : 2;
    out[0] = '\0';
    if (kind > 0 || round > 0)
        snprintf(out, 64, "kind %d version %d\n", kind, version);
}

static enum err body(void *arg, struct comm_world *w)
{
    const struct plan *p = arg;
    const struct dev_ops ops = {.choices = say};
    struct dev dev = {.ops = &ops};
    struct choices c = {.now = 0};
    struct comm_group *all = NULL;
    int ranks[RANKS], me = comm_rank(w);
    const char *before = "";
    char kept[1024] = "";
    for (int i = 0; i < p->ranks; i++)
        ranks[i] = i;
    struct comm_group_args a = {.ranks = ranks, .n = p->ranks};
    a.max_bytes = 4096;
    if (p->ranks > 1)
        TRY(comm_group_open(w, &a, &all));
    for (int round = 0; round < ROUNDS; round++) {
        char want[1024] = "", one[64];
        size_t n = 0;
        for (int r = 0; r < p->kinds; r++) { /* the first rank of each kind */
            says(p, r, round, one);
            n += (size_t)snprintf(want + n, sizeof want - n, "%s", one);
        }
        says(p, me, round, said);
        TRY(choices_gather(&c, &dev, all));
        CHECK_STR(choices_text(&c), want);
        CHECK_STR(before, kept); /* a save under way still has the last one */
        before = choices_text(&c);
        snprintf(kept, sizeof kept, "%s", want);
    }
    choices_close(&c);
    comm_group_close(all);
    return ERR_OK;
}

static void every_text_once(void)
{
    for (int ranks = 1; ranks <= RANKS; ranks++)
        for (int kinds = 1; kinds <= ranks; kinds++) {
            struct plan p = {ranks, kinds};
            CHECK_OK(comm_thread_run(ranks, 60, body, &p));
        }
}

/* One rank whose device has not taken them is enough that all say so. */
static enum err agree(void *arg, struct comm_world *w)
{
    const int *lacking = arg;
    struct comm_group *all = NULL;
    int ranks[3] = {0, 1, 2};
    struct comm_group_args a = {.ranks = ranks, .n = 3};
    a.max_bytes = 4096;
    TRY(comm_group_open(w, &a, &all));
    bool taken = comm_rank(w) != *lacking;
    TRY(choices_agree(all, &taken));
    CHECK(taken == (*lacking < 0));
    comm_group_close(all);
    return ERR_OK;
}

static void taken_by_all(void)
{
    for (int lacking = -1; lacking < 3; lacking++)
        CHECK_OK(comm_thread_run(3, 60, agree, &lacking));
    for (int taken = 0; taken < 2; taken++) {
        bool alone = taken;
        CHECK_OK(choices_agree(NULL, &alone));
        CHECK(alone == taken);
    }
}

/* What a device that measures is asked to take, also where that is nothing: it says so itself. */
static enum err refuse(struct dev *d, const char *choices, bool *taken)
{
    (void)d;
    *taken = choices[0] != '\0';
    return ERR_OK;
}

static void of_nothing(void)
{
    const struct dev_ops ops = {.choose = refuse};
    struct dev dev = {.ops = &ops};
    bool taken = true;
    CHECK_OK(dev_choose(&dev, "", &taken));
    CHECK(!taken);
    CHECK_OK(dev_choose(&dev, "some", &taken));
    CHECK(taken);
}

/* A device that measures nothing has none, and takes any. */
static void of_no_device(void)
{
    const struct dev_ops ops = {.name = "plain"};
    struct dev dev = {.ops = &ops};
    struct choices c = {.now = 0};
    bool taken = false;
    CHECK_OK(choices_gather(&c, &dev, NULL));
    CHECK_STR(choices_text(&c), "");
    CHECK_OK(dev_choose(&dev, "choices of something", &taken));
    CHECK(taken);
    choices_close(&c);
}

static const struct test_case cases[] = {{"every text once", every_text_once},
                                         {"taken by all ranks", taken_by_all},
                                         {"of nothing", of_nothing},
                                         {"of no device", of_no_device}};
TEST_MAIN(cases)
