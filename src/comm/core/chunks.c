/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums to owners and gathers, member by member, so that GEMMs overlap them: each member computes
 * another owner's chunk first, or takes the chunks as they come. With chunk k each member sends to
 * one and receives from one, all of them different, so that every link is in use both ways (Wang et
 * al. 2023 cut GEMMs so). Only copies between GPUs gain by that; else one chunk does all.
 *
 *     chunk                1          2          3
 *     summand goes to      me + 1     me + 2     me + 3     (and from there comes
 *     comes from           me - 1     me - 2     me - 3      what is gathered)
 */
#include "comm/core/core.h"

/* Behind the chunk before, of the same. */
static enum err check_chunk(const struct comm_group *g, const struct comm_coll *c, int chunks)
{
    char buf[96];
    if (c->chunk < 1 || c->chunk > chunks)
        FAIL(ERR_INTERNAL, "comm: %s in a group of %d; chunks are 1 to %d", comm_coll_text(c, buf),
             g->n, chunks);
    if (c->chunk != g->chunk + 1 || (g->chunk > 0 && c->kind != g->chunk_of))
        FAIL(ERR_INTERNAL, "comm: %s in group %d behind chunk %d of %s", comm_coll_text(c, buf),
             g->id, g->chunk, g->chunk > 0 ? comm_coll_name(g->chunk_of) : "none");
    return ERR_OK;
}

/* whole: the chunk that does all where none goes by itself. */
static enum err start_chunk(struct comm_group *g, struct comm_coll *c, int whole,
                            struct comm_req *r)
{
    int chunks = (int)num_max(1, g->n - (c->kind == COMM_ALL_GATHER)), chunk = c->chunk;
    int64_t bytes;
    TRY(comm_coll_check(g, c, r, &bytes)); /* here, as not every chunk starts something */
    TRY(check_chunk(g, c, chunks));
    bool alone = g->lane && g->world->device->ops->coll_chunks(g, c);
    if (!alone)
        c->chunk = 0;
    g->chunk = 0; /* for what may be started now */
    if (alone || chunk == whole)
        TRY(comm_coll_start(g, c, r));
    g->chunk = chunk < chunks ? chunk : 0;
    g->chunk_of = c->kind;
    return ERR_OK;
}

enum err comm_reduce_scatter_chunk_start(struct comm_group *g, int chunk, void *out, const void *in,
                                         int64_t count, enum dtype dt, struct comm_req *r)
{
    struct comm_coll c = {.kind = COMM_REDUCE_SCATTER, .dt = dt, .chunk = chunk, .count = count,
                          .out = out, .in = in};
    return start_chunk(g, &c, g->n, r);
}

enum err comm_all_gather_chunk_start(struct comm_group *g, int chunk, void *out, const void *in,
                                     int64_t count, enum dtype dt, struct comm_req *r)
{
    struct comm_coll c = {.kind = COMM_ALL_GATHER, .dt = dt, .chunk = chunk, .count = count,
                          .out = out, .in = in};
    return start_chunk(g, &c, 1, r);
}

bool comm_group_chunks(const struct comm_group *g, int64_t bytes)
{
    return !g->copies || bytes <= COMM_COPIES_BYTES / g->n;
}
