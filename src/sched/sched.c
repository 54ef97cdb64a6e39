/* SPDX-License-Identifier: Apache-2.0
 *
 * The registry of schedules and what all of them share: names of instructions, limits of a shape.
 *
 * A new schedule is a file with one struct sched_kind and one line in the table below. Its
 * generator writes computing only; everything else about it is derived (sched_lower.c) and proved
 * (sched_check.c) for whatever placement and order it chose.
 */
#include "sched/sched.h"

#include "base/mem.h"
#include "sched/sched_build.h"
#include <string.h>

static const struct sched_kind *const kinds[] = {
    &sched_naive, &sched_gpipe, &sched_1f1b, &sched_interleaved, &sched_looped_bfs,
    &sched_zb_h1, &sched_zb_h2,
    &sched_zb_1p, &sched_zb_2p, &sched_zb_v, &sched_v_half, &sched_v_min, &sched_1f1b_v,
    &sched_dualpipe, &sched_dualpipev, &sched_chimera, &sched_seq1f1b,
};
enum { KIND_COUNT = sizeof kinds / sizeof *kinds };

int sched_kind_count(void)
{
    return KIND_COUNT;
}

const struct sched_kind *sched_kind_at(int i)
{
    return kinds[i];
}

const struct sched_kind *sched_kind_find(const char *name)
{
    for (int i = 0; i < KIND_COUNT; i++)
        if (strcmp(kinds[i]->name, name) == 0)
            return kinds[i];
    return NULL;
}

bool sched_lacks_chunks(const char *name, int p, int v)
{
    const struct sched_kind *kind = sched_kind_find(name);
    return kind && kind->loops && p > 1 && v == 1;
}

const char *sched_op_name(enum sched_op op)
{
    static const char *const name[SCHED_OP_COUNT] = {
        "F", "B", "I", "W", "R", "SEND_F", "RECV_F", "SEND_B", "RECV_B", "REDUCE", "TIED", "STEP",
        "OV", "MERGE", "WAIT", "NORM",
        "UPDATE", "GATHER", "DROP",
    };
    return name[op];
}

const char *sched_passed_name(enum sched_passed op)
{
    static const char *const name[SCHED_PASSED_OPS] = {"UNSHARD", "RESHARD", "REDUCE_GRAD",
                                                       "WAIT_REDUCE_GRAD"};
    return name[op];
}

bool sched_passed_any(const struct sched *s)
{
    for (int i = 0; i < SCHED_PASSED_OPS; i++)
        if (s->passed[i] > 0)
            return true;
    return false;
}

void sched_passed_add(const struct sched *s, struct text *out)
{
    bool first = true;
    for (int i = 0; i < SCHED_PASSED_OPS; i++) {
        if (s->passed[i] == 0)
            continue;
        text_add(out, "%s%lld %s", first ? "" : ", ", (long long)s->passed[i],
                 sched_passed_name((enum sched_passed)i));
        first = false;
    }
}

static enum err unknown(const char *name)
{
    struct text t = {0};
    sched_kind_meant_add(name, &t);
    text_add(&t, "; use one of ");
    for (int i = 0; i < KIND_COUNT; i++)
        text_add(&t, "%s%s", i ? ", " : "", kinds[i]->name);
    enum err err = t.err;
    if (err == ERR_OK)
        err = err_set(ERR_CONFIG, __FILE__, __LINE__, "schedule \"%.64s\" is not known%s", name,
                      t.s);
    text_free(&t);
    return err;
}

/* The schedule of that name, if the shape is one for it. */
static enum err find(const char *name, const struct sched_shape *shape,
                     const struct sched_kind **out)
{
    const struct sched_kind *kind = sched_kind_find(name);
    if (!kind)
        return unknown(name);
    TRY(sched_shape_check(name, shape));
    if (shape->group != 0 && !kind->groups)
        FAIL(ERR_CONFIG, "schedule %s: group %d, but it runs no groups of microbatches; use group "
                         "0", name, shape->group);
    *out = kind;
    return ERR_OK;
}

enum err sched_make_for(const char *name, const struct sched_shape *shape,
                        const struct sched_cost *cost, struct sched *out)
{
    const struct sched_kind *kind;
    TRY(find(name, shape, &kind));
    if (cost && cost->limit != 0 && !kind->make_for)
        FAIL(ERR_CONFIG, "schedule %s: limit %g, but its memory follows from its order; use limit "
                         "0, or schedule zb-1p",
             name, cost->limit);
    bool made_for = kind->make_for && (cost || !kind->make);
    TRY(made_for ? kind->make_for(shape, cost, out) : kind->make(shape, out));
    return ERR_OK;
}

enum err sched_make(const char *name, const struct sched_shape *shape, struct sched *out)
{
    return sched_make_for(name, shape, NULL, out);
}

enum err sched_make_sliced(const char *name, const struct sched_shape *shape, int slices,
                           struct sched *out)
{
    const struct sched_kind *kind;
    TRY(find(name, shape, &kind));
    if (!kind->make_sliced)
        FAIL(ERR_CONFIG, "schedule %s: slices %d, but it runs whole sequences; leave slices out, "
                         "or use seq1f1b", name, slices);
    TRY(kind->make_sliced(shape, slices, out));
    return ERR_OK;
}

int sched_held(const struct sched *s, int stage, int rank)
{
    for (int h = stage; h < s->replicas * s->stages; h += s->stages)
        if (s->place[h] == rank)
            return h;
    return -1;
}

int sched_microbatches(const struct sched *s, int replica)
{
    int n = 0;
    for (int mb = 0; mb < s->m; mb++)
        n += s->way[mb] == replica;
    return n;
}

int sched_held_count(const struct sched *s, int rank)
{
    int n = 0;
    for (int h = 0; h < s->replicas * s->stages; h++)
        n += s->place[h] == rank;
    return n;
}

bool sched_has(const struct sched *s, enum sched_op op)
{
    for (int64_t i = 0; i < s->begin[s->p]; i++)
        if (s->instr[i].op == op)
            return true;
    return false;
}

bool sched_ends_meet(const struct sched *s)
{
    for (int h = s->stages - 1; h < s->replicas * s->stages; h += s->stages)
        if (sched_held(s, 0, s->place[h]) < 0)
            return false;
    return true;
}

void sched_free(struct sched *s)
{
    mem_free(s->place);
    mem_free(s->way);
    mem_free(s->segments);
    mem_free(s->begin);
    mem_free(s->instr);
    *s = (struct sched){0};
}
