/* SPDX-License-Identifier: Apache-2.0
 *
 * The one error of all rules, and walking a schedule under a rule's idea of waiting. When the walk
 * gets stuck, every rank that has not ended waits for another such rank, so following the waits
 * from any of them must come round: that circle is the proof, and it is printed.
 */
#include "sched/sched_check.h"

#include <stdarg.h>
#include <stdio.h>

enum err sched_broken(const struct sched_checker *c, int rank, int64_t i, const char *fmt, ...)
{
    char detail[2048], cell[SCHED_CELL];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(detail, sizeof detail, fmt, ap);
    va_end(ap);
    FAIL(ERR_CONFIG, "schedule %s breaks V%d (%s) at rank %d, place %lld, %s: %s", c->s->name,
         (int)c->rule, c->rule_name, rank, (long long)(i - c->s->begin[rank]),
         sched_cell_at(c->s, i, cell), detail);
}

struct stuck {
    const struct sched_checker *c;
    sched_need_fn need;
    struct sched_walk walk;
};

static bool waits_alone(const struct stuck *k, int64_t i, struct sched_need *out)
{
    const struct sched *s = k->c->s;
    if (!k->need(k->c, &s->instr[i], out))
        return false;
    return k->walk.at[out->rank] - s->begin[out->rank] < out->count;
}

/* Does instruction i still wait? A pair waits as one, for what either half needs; V3 has proved
 * that it is whole. */
static bool waits(const struct stuck *k, int64_t i, struct sched_need *out)
{
    if (k->c->s->instr[i].op == SCHED_OVERLAP_F_B)
        return waits_alone(k, i + 1, out) || waits_alone(k, i + 2, out);
    return waits_alone(k, i, out);
}

static int step(void *arg, int rank, int64_t i)
{
    struct sched_need need;
    (void)rank;
    return waits(arg, i, &need) ? need.rank : -1;
}

/* "1F0 of rank 1 (place 3) waits for 0F0 of rank 0, ..." once round, at most 8 links in words. */
static enum err circle(const struct stuck *k, const char *what)
{
    enum { LINKS = 8 };
    const struct sched *s = k->c->s;
    char words[2048] = "", cell[SCHED_CELL], on[SCHED_CELL];
    struct sched_need need;
    size_t used = 0;
    int rank = 0, links = 0;
    while (k->walk.at[rank] == s->begin[rank + 1])
        rank++;
    /* p steps along the waits from any stuck rank cannot but reach the circle. A rank that ended is
     * waited for only when an instruction it should have run is nowhere. */
    for (int n = 0; n < s->p; n++) {
        ENSURE(k->walk.at[rank] < s->begin[rank + 1] && waits(k, k->walk.at[rank], &need));
        rank = need.rank;
    }
    int first = rank;
    do {
        int64_t i = k->walk.at[rank];
        ENSURE(waits(k, i, &need));
        if (links < LINKS)
            used += (size_t)snprintf(words + used, sizeof words - used,
                                     "%s%s of rank %d (place %lld) waits for %s of rank %d",
                                     links ? ", " : "", sched_cell_at(s, i, cell), rank,
                                     (long long)(i - s->begin[rank]), sched_cell(&need.on, on),
                                     need.rank);
        else if (links == LINKS)
            snprintf(words + used, sizeof words - used, ", and so on");
        links++;
        rank = need.rank;
    } while (rank != first);
    return sched_broken(k->c, first, k->walk.at[first],
                        "%s over %d rank%s: %s; change the order of one of them",
                        what, links, text_plural(links, "s"), words);
}

enum err sched_check_walk(const struct sched_checker *c, sched_need_fn need, const char *what)
{
    struct stuck k = {.c = c, .need = need};
    enum err err = sched_walk_open(&k.walk, c->s);
    k.walk.step = step;
    k.walk.arg = &k;
    if (err == ERR_OK && !sched_walk_run(&k.walk))
        err = circle(&k, what);
    sched_walk_close(&k.walk);
    return err;
}
