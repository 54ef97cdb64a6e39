/* SPDX-License-Identifier: Apache-2.0
 *
 * Channels of a placement. Two stage boundaries share a channel when they join the same two ranks
 * in the same direction with the same kind of message; boundaries are sorted by that key and
 * numbered. The kind is in the key: activations and gradients of two ranks that are both each
 * other's next and previous (p = 2 with v > 1) can then never be taken for one another.
 */
#include "sched/sched_build.h"

#include "base/mem.h"
#include <stdlib.h>

struct boundary {
    uint64_t key;
    int slot;
};

static int compare(const void *a, const void *b)
{
    uint64_t x = ((const struct boundary *)a)->key, y = ((const struct boundary *)b)->key;
    return x < y ? -1 : x > y;
}

/* The neighbour of a stage in the row `place`. */
static int neighbour(const struct sched *s, const uint16_t *place, int kind, int stage)
{
    int to = kind == 0 ? stage + 1 : stage - 1;
    return to < 0 || to >= s->stages || place[to] == place[stage] ? -1 : to;
}

int sched_sent_to(const struct sched *s, int kind, int stage, int mb)
{
    return neighbour(s, s->place + sched_holding(s, 0, mb), kind, stage);
}

/* Boundaries of one replica and one kind, appended to `edge`; returns how many there are then. */
static int add_boundaries(const struct sched *s, int kind, int replica, struct boundary *edge,
                          int edges)
{
    const uint16_t *place = s->place + replica * s->stages;
    for (int from = 0; from < s->stages; from++) {
        int to = neighbour(s, place, kind, from);
        if (to >= 0)
            edge[edges++] = (struct boundary){
                .key = (uint64_t)kind << 32 | (uint64_t)place[from] << 16 | place[to],
                .slot = (kind * s->replicas + replica) * s->stages + to,
            };
    }
    return edges;
}

static enum err number(const struct sched *s, struct boundary *edge, struct sched_channels *out)
{
    int edges = 0, slots = 2 * s->replicas * s->stages;
    TRY(mem_new(slots, sizeof *out->of, "channels", &out->of));
    for (int i = 0; i < slots; i++)
        out->of[i] = -1;
    for (int kind = 0; kind < 2; kind++)
        for (int replica = 0; replica < s->replicas; replica++)
            edges = add_boundaries(s, kind, replica, edge, edges);
    qsort(edge, (size_t)edges, sizeof *edge, compare);
    for (int i = 0; i < edges; i++) {
        if (i == 0 || edge[i].key != edge[i - 1].key)
            out->n++;
        out->of[edge[i].slot] = out->n - 1;
    }
    return ERR_OK;
}

enum err sched_channels_make(const struct sched *s, struct sched_channels *out)
{
    struct boundary *edge;
    *out = (struct sched_channels){0};
    TRY(mem_new(2 * s->replicas * s->stages, sizeof *edge, "channels", &edge));
    enum err err = number(s, edge, out);
    mem_free(edge);
    return err;
}

void sched_channels_free(struct sched_channels *c)
{
    mem_free(c->of);
    *c = (struct sched_channels){0};
}
