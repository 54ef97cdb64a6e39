/* SPDX-License-Identifier: Apache-2.0
 *
 * Do boxes tile a rectangle? Let f count, for each element, the boxes that cover it. The corners
 * determine f: it is their signed sum over both axes. If modulo 2 they cancel but for the four
 * corners of the rectangle, f is odd at each element of it, hence at least 1; if the boxes have as
 * many elements as the rectangle, it is 1. So two tests are exact, and take a sort of corners.
 */
#include "ckpt/state_local.h"

#include <stdlib.h>

static int by_place(const void *pa, const void *pb)
{
    const struct state_corner *a = pa, *b = pb;
    int i = a->at[0] == b->at[0];
    return (a->at[i] > b->at[i]) - (a->at[i] < b->at[i]);
}

/* Corners that stand an odd number of times, sorted, to the front; returns how many. */
static int odd_ones(struct state_corner *c, int n)
{
    int kept = 0;
    qsort(c, (size_t)n, sizeof *c, by_place);
    for (int i = 0, next; i < n; i = next) {
        for (next = i + 1; next < n && by_place(&c[i], &c[next]) == 0;)
            next++;
        if ((next - i) % 2)
            c[kept++] = c[i];
    }
    return kept;
}

enum state_tiling state_tile(const int64_t shape[2], const struct state_box *box, int n,
                             struct state_corner *corner, int64_t *elements)
{
    int64_t sum = 0, all = shape[0] * shape[1];
    for (int i = 0; i < n; i++) {
        const struct state_box *b = &box[i];
        sum += state_box_elements(b); /* at most twice what can be counted of elements */
        if (sum > all)
            break;
        for (int j = 0; j < 4; j++)
            corner[4 * i + j] = (struct state_corner){
                {b->at[0] + (j / 2) * b->n[0], b->at[1] + (j % 2) * b->n[1]}};
    }
    *elements = sum;
    if (sum != all)
        return sum > all ? STATE_TOO_MUCH : STATE_TOO_LITTLE;
    int odd = odd_ones(corner, 4 * n);
    for (int j = 0; j < 4; j++) {
        struct state_corner want = {{(j / 2) * shape[0], (j % 2) * shape[1]}};
        if (j < odd && by_place(&corner[j], &want) == 0)
            continue;
        if (j < odd) /* the first of both that the other has not */
            corner[0] = by_place(&corner[j], &want) < 0 ? corner[j] : want;
        else
            corner[0] = want;
        return STATE_MISFIT;
    }
    return STATE_TILES; /* none comes behind the last corner */
}
