/* SPDX-License-Identifier: Apache-2.0
 *
 * Boxes of tensors, and what chunks and shards are called.
 *
 * A rank's share of a parameter is a range of a row-major array (ZeRO cuts stores, not matrices),
 * while a file tensor is addressed by rows and columns. Such a range is never more than three
 * boxes: what is left of its first row, whole rows, the begin of its last one.
 */
#include "ckpt/state_local.h"

#include <inttypes.h>
#include <stdio.h>

const char *const state_kind_name[STATE_KINDS] = {"weight", "exp_avg", "exp_avg_sq"};

int state_boxes(int64_t cols, int64_t from, int64_t to, struct state_box out[3])
{
    int n = 0;
    ENSURE(cols > 0 && from >= 0);
    while (from < to) {
        int64_t row = from / cols, col = from % cols, rows = col ? 0 : (to - from) / cols;
        struct state_box *b = &out[n++];
        if (rows > 0)
            *b = (struct state_box){{row, 0}, {rows, cols}};
        else
            *b = (struct state_box){{row, col}, {1, num_min(cols - col, to - from)}};
        from += state_box_elements(b);
    }
    return n;
}

struct state_box state_place_box(const struct hf_place *place, const struct state_box *b)
{
    struct state_box out = *b;
    out.at[0] += place->out0;
    if (!place->transposed)
        return out;
    return (struct state_box){{out.at[1], out.at[0]}, {out.n[1], out.n[0]}};
}

int64_t state_box_elements(const struct state_box *b)
{
    return b->n[0] * b->n[1];
}

bool state_meet(const struct state_box *a, const struct state_box *b, struct state_box *out)
{
    for (int i = 0; i < 2; i++) {
        out->at[i] = num_max(a->at[i], b->at[i]);
        out->n[i] = num_min(a->at[i] + a->n[i], b->at[i] + b->n[i]) - out->at[i];
    }
    return out->n[0] > 0 && out->n[1] > 0;
}

const char *state_chunk_fault(const struct state_chunk *c)
{
    int64_t all;
    if (c->nd < 1 || c->nd > 2 || c->shape[0] < 1 || c->shape[1] < 1 ||
        (c->nd == 1 && c->shape[1] != 1) || !num_mul(c->shape[0], c->shape[1], &all))
        return "its tensor has no 1 or 2 extents of at least 1";
    for (int i = 0; i < 2; i++)
        if (c->box.n[i] < 1 || c->box.at[i] < 0 || c->box.at[i] > c->shape[i] ||
            c->box.n[i] > c->shape[i] - c->box.at[i])
            return "its box is empty or not within the tensor";
    return NULL;
}

bool state_chunk_name(const struct state_chunk *c, char out[128])
{
    const struct state_box *b = &c->box;
    bool whole = b->n[0] == c->shape[0] && b->n[1] == c->shape[1];
    char where[96] = "";
    if (!whole && c->nd == 1)
        snprintf(where, sizeof where, "[%" PRId64 ":%" PRId64 "]", b->at[0], b->at[0] + b->n[0]);
    else if (!whole)
        snprintf(where, sizeof where, "[%" PRId64 ":%" PRId64 ",%" PRId64 ":%" PRId64 "]", b->at[0],
                 b->at[0] + b->n[0], b->at[1], b->at[1] + b->n[1]);
    int n = snprintf(out, 128, "%s%s%.*s%s", c->kind ? state_kind_name[c->kind] : "",
                     c->kind ? "." : "", (int)sizeof c->tensor, c->tensor, where);
    return n > 0 && n < 128 && c->tensor[0];
}

void state_shard_name(int rank, char out[STATE_FILE])
{
    snprintf(out, STATE_FILE, "rank-%05d.safetensors", rank);
}
