/* SPDX-License-Identifier: Apache-2.0
 *
 * Channels of a placement. Two stage boundaries share a channel when they join the same two ranks
 * in the same direction with the same kind of message. The kind is in the key: activations and
 * gradients of two ranks that are both each other's next and previous (p = 2 with v > 1) can then
 * never be taken for one another.
 */
#include "sched/sched_build.h"

#include "base/mem.h"

/* The neighbour of a stage in the row `place`. */
static int neighbour(const struct sched *s, const uint16_t *place, int kind, int stage)
{
    int to = kind == 0 ? stage + 1 : stage - 1;
    return to < 0 || to >= s->stages || place[to] == place[stage] ? -1 : to;
}

int sched_sent_to(const struct sched *s, int kind, int stage, int mb)
{
    return neighbour(s, s->place + sched_stage_replica(s, 0, mb), kind, stage);
}

enum err sched_channels_make(const struct sched *s, struct sched_channels *out)
{
    struct channel { int kind, from, next; } *channel; /* those to one rank are a list */
    int *head, stage_replicas = s->replicas * s->stages;     /* [p] 1 + the first to this rank */
    enum err err = ERR_OK;
    *out = (struct sched_channels){0};
    TRY(mem_new(s->p, sizeof *head, "channels", &head));
    TRY_OR(out_head, mem_new(2 * stage_replicas, sizeof *channel, "channels", &channel));
    TRY_OR(out_channel, mem_new(2 * stage_replicas, sizeof *out->of, "channels", &out->of));
    for (int i = 0; i < 2 * stage_replicas; i++)
        out->of[i] = -1;
    for (int kind = 0; kind < 2; kind++)
        for (int h = 0; h < stage_replicas; h++) {
            const uint16_t *place = s->place + h / s->stages * s->stages;
            int to = neighbour(s, place, kind, h % s->stages), from = s->place[h];
            if (to < 0)
                continue;
            int *first = &head[place[to]], c = *first - 1;
            while (c >= 0 && (channel[c].kind != kind || channel[c].from != from))
                c = channel[c].next - 1;
            if (c < 0) {
                c = out->n++;
                channel[c] = (struct channel){kind, from, *first};
                *first = out->n;
            }
            out->of[kind * stage_replicas + h - h % s->stages + to] = c;
        }
out_channel:
    mem_free(channel);
out_head:
    mem_free(head);
    return err;
}

void sched_channels_free(struct sched_channels *c)
{
    mem_free(c->of);
    *c = (struct sched_channels){0};
}
