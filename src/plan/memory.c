/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums over the list of buffers.
 */
#include "plan/memory.h"

#include "base/mem.h"

enum { COPIED = 3 }; /* weights and both moments */

const char *memory_name(enum memory_kind k)
{
    static const char *const name[MEMORY_KINDS] = {"weights", "master weights", "gradients",
                                                   "optimizer", "activations", "scratch",
                                                   "communication", "data and tables",
                                                   "library", "transport"};
    return name[k];
}

int64_t memory_total(const struct memory *m)
{
    int64_t total = 0;
    for (int k = 0; k < MEMORY_KINDS; k++)
        total += m->bytes[k];
    return total;
}

static enum err add(void *arg, const struct buffer *b)
{
    ((struct memory *)arg)->bytes[b->kind] += b->count * arena_round(b->bytes);
    return ERR_OK;
}

/* A second replica is saved by the first. */
static int64_t copied_bytes(const struct memory_args *m, int pp)
{
    const struct buffers_args *a = &m->buffers;
    int64_t elements = 0;
    for (int i = 0; i < a->sched->stages && m->copiers > 0; i++)
        if (a->sched->place[i] == pp)
            elements += model_saved_elements(a->model, &a->split, &a->cut[i], m->copiers);
    return COPIED * dtype_size(a->types.at) * elements;
}

enum err memory_plan(const struct memory_args *a, int pp, struct memory *out)
{
    *out = (struct memory){.copy = copied_bytes(a, pp)};
    TRY(buffers_each(&a->buffers, pp, add, out));
    out->bytes[MEMORY_COMM] += a->scratch;
    out->bytes[MEMORY_LIBRARY] = a->library;
    out->bytes[MEMORY_TRANSPORT] = a->transport;
    return ERR_OK;
}

struct by_stage { struct stage_bytes *out; int stages; };

static enum err add_to_stage(void *arg, const struct buffer *b)
{
    const struct by_stage *s = arg;
    if (b->stage_replica < 0 || b->stage_replica >= s->stages)
        return ERR_OK;
    struct stage_bytes *to = &s->out[b->stage_replica];
    bool slot = b->what == BUFFER_SLOT || b->what == BUFFER_OUT;
    to->slot += slot ? arena_round(b->bytes) : 0;
    to->saves += b->what == BUFFER_SAVE ? arena_round(b->bytes) : 0;
    to->keep += b->what == BUFFER_KEEP ? arena_round(b->bytes) : 0;
    return ERR_OK;
}

enum err memory_stages(const struct buffers_args *a, int pp, struct stage_bytes *out)
{
    return buffers_each(a, pp, add_to_stage, &(struct by_stage){out, a->sched->stages});
}
