/* SPDX-License-Identifier: Apache-2.0
 *
 * The lists that test_fuzz_sched.c damages: reference lists (golden/sched), and all schedules of
 * the registry in small shapes, as they are made, with recomputes and forward only, each lowered
 * too, and of those that step one whose segments are updated by their owners.
 */
#ifndef PLAIT_TEST_FUZZ_SEEDS_H
#define PLAIT_TEST_FUZZ_SEEDS_H

#include "base/fs.h"
#include "base/mem.h"
#include "sched/sched.h"
#include "test.h"

#include <glob.h>
#include <string.h>

enum { SEEDS = 4200, SEED_MOST = 3000 }; /* bytes of a list at most */

/* Which rank holds which stage. Lists of several stages a rank, or of two replicas, are the ones
 * whose placements say something. */
struct placement {
    int stages, replicas, ranks;
    uint16_t *place; /* owned; [replicas * stages] */
};

struct seed {
    char *text; /* owned */
    int64_t n;
    struct placement on;
};
static struct seed seed[SEEDS];
static int seeds;

static inline bool is_several(const struct placement *x)
{
    return x->replicas * x->stages > x->ranks;
}

static inline bool is_placed_on(const struct sched *s, const struct placement *x)
{
    return s->stages == x->stages && s->replicas == x->replicas &&
           memcmp(s->place, x->place,
                  (size_t)(x->replicas * x->stages) * sizeof *x->place) == 0;
}

static struct placement placement_of(const char *text, int64_t n)
{
    struct placement x = {0};
    struct sched s;
    if (!CHECK(sched_parse("fuzz", text, n, &s) == ERR_OK))
        return x;
    x = (struct placement){.stages = s.stages, .replicas = s.replicas, .ranks = s.p};
    int stage_replicas = s.replicas * s.stages;
    CHECK_OK(mem_new(stage_replicas, sizeof *x.place, "a placement", &x.place));
    memcpy(x.place, s.place, (size_t)stage_replicas * sizeof *x.place);
    sched_free(&s);
    return x;
}

static void add_seed(char *text, int64_t n)
{
    if (n == 0 || n > SEED_MOST || seeds == SEEDS)
        mem_free(text);
    else
        seed[seeds++] = (struct seed){text, n, placement_of(text, n)};
}

static void add_file(const char *path)
{
    struct fs_map map;
    char *copy = NULL;
    if (!CHECK(fs_map_open(&map, path, ERR_CONFIG) == ERR_OK))
        return;
    CHECK_OK(mem_new(map.size + 1, 1, "a reference list", &copy));
    memcpy(copy, map.data, (size_t)map.size);
    add_seed(copy, map.size);
    fs_map_close(&map);
}

static void add_printed(const struct sched *s)
{
    struct text t = {0};
    char *text;
    sched_print(s, &t);
    int64_t n = t.len;
    CHECK_OK(text_done(&t, &text));
    add_seed(text, n);
}

/* A lowered list in segments, with shared updates. */
static void add_shared(const struct sched *low)
{
    struct sched cut, zero;
    uint8_t n[64];
    CHECK(low->stages <= (int)sizeof n);
    for (int i = 0; i < low->stages; i++)
        n[i] = (uint8_t)(1 + i % 3);
    if (!CHECK(sched_segment(low, n, false, &cut) == ERR_OK))
        return;
    if (CHECK(sched_zero(&cut, &zero) == ERR_OK)) {
        add_printed(&zero);
        sched_free(&zero);
    }
    sched_free(&cut);
}

/* A list as it is, and lowered. */
static void add_lowered(const struct sched *s, const struct sched_lower_args *ends)
{
    struct sched low;
    add_printed(s);
    if (!CHECK(sched_lower(s, ends, &low) == ERR_OK))
        return;
    add_printed(&low);
    if (ends->step)
        add_shared(&low);
    sched_free(&low);
}

/* A schedule as it is made, with recomputes, and its forwards alone. */
static void add_ways(struct sched *s)
{
    struct sched again, forward;
    struct sched_lower_args all = {.reduce = true, .tied = sched_ends_meet(s), .step = true};
    struct sched_shape shape = {s->p, s->m, s->v, 0};
    add_lowered(s, &all);
    if (CHECK(sched_recompute(s, &again) == ERR_OK)) {
        add_lowered(&again, &all);
        sched_free(&again);
    }
    if (s->replicas == 1 && CHECK(sched_make_forward(&shape, s->place, &forward) == ERR_OK)) {
        add_lowered(&forward, &(struct sched_lower_args){0});
        sched_free(&forward);
    }
}

/* lists: a pattern of the reference lists' paths. */
static inline void make_seeds(const char *lists)
{
    static const struct sched_shape shape[] = {
        {1, 1, 1, 0}, {1, 3, 2, 0}, {2, 2, 1, 0}, {2, 3, 2, 0}, {2, 6, 1, 0},
        {3, 4, 1, 0}, {4, 6, 1, 0}, {4, 5, 2, 0}, {2, 4, 3, 0}, {6, 12, 1, 0},
        {2, 4, 1, 0}, {4, 8, 1, 0}, {2, 5, 2, 0}, {3, 6, 2, 0}, {3, 6, 3, 0},
    };
    glob_t files;
    CHECK(glob(lists, 0, NULL, &files) == 0);
    for (size_t i = 0; i < files.gl_pathc; i++)
        add_file(files.gl_pathv[i]);
    CHECK(files.gl_pathc > 50);
    globfree(&files);
    for (int kind = 0; kind < sched_kind_count(); kind++)
        for (size_t i = 0; i < sizeof shape / sizeof *shape; i++) {
            struct sched s;
            if (sched_make(sched_kind_at(kind)->name, &shape[i], NULL, &s) != ERR_OK)
                continue;
            add_ways(&s);
            sched_free(&s);
        }
    CHECK(seeds > 250 && seeds < SEEDS);
}

static inline void free_seeds(void)
{
    while (seeds > 0) {
        mem_free(seed[--seeds].text);
        mem_free(seed[seeds].on.place);
    }
}

#endif
