/* SPDX-License-Identifier: Apache-2.0
 *
 * Interleaved 1F1B (Narayanan et al., "Efficient large-scale language model training on GPU
 * clusters using Megatron-LM", 2021): a rank holds v stages far apart in the model, so that a
 * microbatch comes round v times and the pipeline fills in stages of a v-th of the size. Bubble
 * (p - 1)(tf + tb) / v of a rank's whole times, paid for with v times the messages.
 *
 * Microbatches go in groups of n, p unless the caller says otherwise. A rank runs a group through
 * its first stage, then through its second, and so on; then the next group. Backward is the same
 * table with the stages reversed. After a warm-up of
 *
 *     2 (p - 1 - rank) + (v - 1) n
 *
 * forwards it alternates, and keeps one activation more than that. A larger group keeps more and
 * sends longer runs of one stage.
 *
 *     p 2, m 4, v 2   rank 0  0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 2B2 2B3 0B2 0B3
 *
 * m need not be a multiple of the group. With fewer than p in the last group the table's order may
 * be a cycle (p 5, m 7, v 2), so that group is laid out as if it had p, and what is not there is
 * left out, which costs that group's gaps.
 */
#include "sched/sched_build.h"

#include "base/num.h"

struct table {
    int p, v, group;
    int m;      /* with those that are left out */
    int real_m; /* that are there */
};

/* Place k of the order in which a rank goes through stages and microbatches. */
static void add(struct sched_build *b, const struct table *t, enum sched_op op, int64_t k)
{
    int64_t whole = (int64_t)t->group * t->v;
    int first = (int)(k / whole) * t->group;
    int n = (int)num_min(t->group, t->m - first), rest = (int)(k % whole);
    int chunk = rest / n, mb = first + rest % n;
    if (op == SCHED_B)
        chunk = t->v - 1 - chunk;
    if (mb < t->real_m)
        sched_build_add(b, op, chunk * t->p + b->rank, mb);
}

static enum err make(const struct sched_shape *shape, struct sched *out)
{
    struct sched_build b;
    int p = shape->p, v = shape->v, group = shape->group ? shape->group : p;
    int most = (int)num_max(p, shape->m);
    if (group < p)
        FAIL(ERR_CONFIG, "schedule interleaved: group %d is less than p %d, and for most m ranks "
                         "would then wait for one another in a circle; use group %d or more",
             group, p, p);
    if (group > most)
        FAIL(ERR_CONFIG, "schedule interleaved: group %d is more than p %d and m %d; use group %d "
                         "or less", group, p, shape->m, most);
    int rest = shape->m % group;
    struct table t = {p, v, group, shape->m, shape->m};
    if (rest > 0 && rest < p)
        t.m += p - rest;
    int64_t all = (int64_t)t.m * v;
    sched_build_open(&b, "interleaved", shape);
    for (int rank = 0; rank < p; rank++) {
        int64_t warm = num_min(2 * (int64_t)(p - 1 - rank) + (v - 1) * (int64_t)group, all);
        sched_build_rank(&b);
        for (int64_t k = 0; k < warm; k++)
            add(&b, &t, SCHED_F, k);
        for (int64_t k = 0; k < all; k++) {
            if (warm + k < all)
                add(&b, &t, SCHED_F, warm + k);
            add(&b, &t, SCHED_B, k);
        }
    }
    return sched_build_done(&b, out);
}

const struct sched_kind sched_interleaved = {
    .name = "interleaved",
    .doc = "1f1b with v stages a rank in turn; a v-th of the bubble, more messages",
    .make = make,
    .loops = true,
    .groups = true,
};
