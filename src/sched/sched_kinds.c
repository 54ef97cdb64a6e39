/* SPDX-License-Identifier: Apache-2.0
 *
 * The registry of schedules, and what other programs and papers call them:
 * torch.distributed.pipelining (its classes and their names in torchtitan), Megatron-LM, DeepSpeed,
 * zero bubble's own repository. Letters and digits count, in any case; a class's "Schedule" in
 * front does not.
 *
 * A new schedule is a file with one struct sched_kind and one line in the first table. Its
 * generator writes computing only; everything else about it is derived (sched_lower.c) and proved
 * (sched_check.c) for whatever placement and order it chose.
 */
#include "sched/sched_build.h"

#include <ctype.h>
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

/* ---- names from elsewhere ---- */

enum { NAME_MAX_LETTERS = 80 };

static const struct { const char *names, *means, *how; } others[] = {
    {"zbvzerobubble|zbv|zbvpp|vzb|zerobubblev|zbppv", "zb-v", NULL},
    {"interleavedzerobubble|interleavedzb|zbinterleaved", "zb-v",
     "two stages a rank in a V, not in a loop; file:PATH reads a loop's list"},
    {"zb|zerobubble|zbpp|zbh|zbpipeline|zerobubblepipeline", "zb-h1",
     "with the memory of 1f1b; zb-h2 and zb-v have less bubble"},
    {"zb1|zbauto", "zb-1p", NULL},
    {"zb2", "zb-2p", NULL},
    {"vpp|virtualpipeline|1f1bi|1f1bvpp|1f1binterleaving|interleaving|depthfirst|dfs|"
     "forwardbackwardpipeliningwithinterleaving", "interleaved", NULL},
    {"pipedream|pipedreamflush|dapple|onef1b|1f1bflush|oneforwardonebackward|train|noninterleaved|"
     "forwardbackwardpipeliningwithoutinterleaving|withoutinterleaving|nointerleaving", "1f1b",
     NULL},
    {"nopipelining|forwardbackwardnopipelining|none|off|single", "1f1b",
     "with parallel.pp 1 there is no pipeline"},
    {"auto|default|best", "1f1b", "the default; `plait sim --compare 1f1b,zb-v` shows others"},
    {"afab|fthenb|fillanddrain|allforwardallbackward", "gpipe", NULL},
    {"bfs|breadthfirst|bfpp|loopedbfs|loopbfs|loopingbfs", "looped-bfs", NULL},
    {"bidirectional|bidirectionalpipeline", "dualpipe", NULL},
    {"pipedream2bw|pipemare|async|asynchronous", NULL,
     "weights are updated at the end of a step, for all microbatches alike"},
    {"csv|custom|file", NULL, "file:PATH reads a list"},
};
enum { OTHERS = sizeof others / sizeof *others };

/* The row of a name, or -1. */
static int find_other(const char *name)
{
    char letters[NAME_MAX_LETTERS]; /* and digits, small, without a class's word in front */
    size_t n = 0;
    for (; *name && n < sizeof letters - 1; name++)
        if (isalnum((unsigned char)*name))
            letters[n++] = (char)tolower((unsigned char)*name);
    letters[n] = '\0';
    if (strncmp(letters, "schedule", 8) == 0 && n > 8)
        memmove(letters, letters + 8, n - 7);
    n = strlen(letters);
    for (int i = 0; i < OTHERS && n > 0; i++)
        for (const char *s = others[i].names; s; s = strchr(s, '|')) {
            s += *s == '|';
            if (strcspn(s, "|") == n && strncmp(s, letters, n) == 0)
                return i;
        }
    return -1;
}

const char *sched_kind_meant(const char *name)
{
    struct text_near near = {0};
    int other = find_other(name);
    for (int i = 0; i < sched_kind_count(); i++)
        text_near(&near, name, sched_kind_at(i)->name);
    return other >= 0 ? others[other].means : near.found;
}

void sched_kind_meant_add(const char *name, struct text *out)
{
    int i = find_other(name);
    const char *means = sched_kind_meant(name), *how = i >= 0 ? others[i].how : NULL;
    if (means)
        text_add(out, "; %s %s", i >= 0 ? "did you mean" : "the nearest is", means);
    if (how)
        text_add(out, "%s %s", means ? ":" : ";", how);
}

/* ---- making one ---- */

/* The schedule of that name, if the shape is one for it. */
static enum err find(const char *name, const struct sched_shape *shape,
                     const struct sched_kind **out)
{
    const struct sched_kind *kind = sched_kind_find(name);
    if (!kind) {
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
    TRY(sched_shape_check(name, shape));
    if (shape->group != 0 && !kind->groups)
        FAIL(ERR_CONFIG, "schedule %s: group %d, but it runs no groups of microbatches; use group "
                         "0", name, shape->group);
    int chunks = kind->chunks ? kind->chunks : 1;
    if (!kind->loops && shape->v != chunks)
        FAIL(ERR_CONFIG, "schedule %s: v %d, but it runs %s a rank; use v %d", name, shape->v,
             chunks == 1 ? "one chunk" : "two chunks", chunks);
    *out = kind;
    return ERR_OK;
}

enum err sched_make(const char *name, const struct sched_shape *shape,
                    const struct sched_cost *cost, struct sched *out)
{
    const struct sched_kind *kind;
    TRY(find(name, shape, &kind));
    if (cost && cost->limit != 0 && !kind->make_for)
        FAIL(ERR_CONFIG, "schedule %s: limit %g, but its memory follows from its order; use limit "
                         "0, or schedule zb-1p",
             name, cost->limit);
    bool made_for = kind->make_for && (cost || !kind->make);
    return made_for ? kind->make_for(shape, cost, out) : kind->make(shape, out);
}

enum err sched_make_sliced(const char *name, const struct sched_shape *shape, int slices,
                           struct sched *out)
{
    const struct sched_kind *kind;
    TRY(find(name, shape, &kind));
    if (!kind->make_sliced)
        FAIL(ERR_CONFIG, "schedule %s: slices %d, but it runs whole sequences; leave slices out, "
                         "or use seq1f1b", name, slices);
    return kind->make_sliced(shape, slices, out);
}
