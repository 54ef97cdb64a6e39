/* SPDX-License-Identifier: Apache-2.0
 *
 * What is planned is what the executor allocates, and what the device takes for itself when it is
 * opened. More is used by what libraries load with their first calls: kernels, and the buffers of a
 * transport. So a plan that just fits may still find too little; the two numbers say by how much.
 * Of ranks that share a GPU the sum must fit.
 */
#include "setup/setup.h"

static const struct memory *memory_of(const struct setup *s, int rank)
{
    int coord[AXIS_COUNT];
    mesh_coord(&s->mesh, rank, coord);
    return &s->memory[coord[AXIS_PP]];
}

enum err room_check(const struct setup *s, int rank, int64_t left, int64_t all)
{
    char need[32], open[32], whole[32];
    struct text kinds = {0};
    const struct memory *m = memory_of(s, rank);
    bool shared = s->o->train.share_gpus;
    int64_t total = shared ? setup_shared_bytes(s) : memory_total(m), rest = total;
    /* Others may have opened theirs of a shared GPU, or not yet: what they take for themselves is
     * left out. */
    for (int r = 0; r < s->mesh.world; r++)
        rest -= shared || r == rank ? memory_of(s, r)->bytes[MEMORY_LIBRARY] : 0;
    text_bytes(total, need);
    text_bytes(all, whole);
    if (all == 0 || rest <= left)
        return ERR_OK;
    if (shared)
        FAIL(ERR_MEMORY, "memory: the %d ranks that share a GPU (train.share_gpus true) need %s "
                         "together, and it has %s free of %s; use fewer ranks, a smaller "
                         "parallel.microbatch, or train.recompute (every:1, full)", s->mesh.world,
             need, text_bytes(left, open), whole);
    setup_kinds(m, &kinds);
    enum err err = kinds.err;
    if (err == ERR_OK)
        err = ERR(ERR_MEMORY, "memory: rank %d needs %s, and its device has %s free of %s:%s; use "
                              "more ranks (parallel.tp, parallel.pp)%s", rank, need,
                  text_bytes(left + m->bytes[MEMORY_LIBRARY], open), whole, kinds.s,
                  s->training ? ", a smaller parallel.microbatch, or train.recompute (every:1, "
                                "full)" : "");
    text_free(&kinds);
    return err;
}

void room_table(const struct setup *s, const double *used, struct text *out)
{
    char planned[32], taken[32];
    text_add(out, "memory of the devices      planned           used\n");
    for (int r = 0; r < s->mesh.world; r++) {
        int64_t total = memory_total(memory_of(s, r));
        text_add(out, "  rank %-6d %18lld B %12lld B  (%s, %s)\n", r, (long long)total,
                 (long long)used[r], text_bytes(total, planned),
                 text_bytes((int64_t)used[r], taken));
    }
}
