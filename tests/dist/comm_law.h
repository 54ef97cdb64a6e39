/* SPDX-License-Identifier: Apache-2.0
 *
 * One random program of collectives and messages for any transport, with a serial oracle. All
 * ranks draw the same program from the seed; each draws its own moments of finishing and its own
 * delays. Inputs are functions of (seed, operation, rank, element) with widely spread exponents, so
 * every rank knows what all others put in and a sum in another order shows.
 *
 * The hash over all results of all ranks must be the same on every transport.
 */
#ifndef PLAIT_TEST_COMM_LAW_H
#define PLAIT_TEST_COMM_LAW_H

#include "base/mem.h"
#include "comm/comm.h"
#include "test.h"
#include <time.h>

enum { LAW_GROUPS = 12, LAW_FLIGHT = 24, LAW_RANKS = 16, LAW_COUNT = 12000 };

struct law {
    uint64_t seed;
    int ops;
    bool delays;
    uint64_t hash; /* out, written by rank 0 */
};

/* What can be in flight. */
enum law_kind { LAW_MESSAGE, LAW_SUM, LAW_REDUCE, LAW_SCATTER, LAW_GATHER };

struct law_flight {
    struct comm_req req;
    bool used, check;
    void *buffer, *other; /* (LAW_COUNT) f64 each: what goes in; what comes out, if not there */
    enum law_kind kind;
    bool inside;          /* what comes out is where it went in */
    int op, group;
    int from; /* a message's sender; the member that is the root of a reduce */
    int64_t count;
    enum dtype dt;
    enum comm_red red;
};

struct law_group {
    int ranks[LAW_RANKS], n;
    struct comm_group *g; /* NULL: this rank is no member */
};

struct law_run {
    struct comm_world *w;
    const struct law *law;
    uint64_t shared, own; /* states of the two random streams */
    struct law_group group[LAW_GROUPS];
    struct law_flight flight[LAW_FLIGHT];
    char *a, *b, *want; /* (LAW_RANKS, LAW_COUNT) f64 */
    uint64_t hash;      /* sum over results, so that the order of finishing does not matter */
    int bad;            /* results that differ from the oracle's */
};

static inline uint64_t law_mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static inline int64_t law_draw(uint64_t *state, int64_t lo, int64_t hi)
{
    *state += 0x9E3779B97F4A7C15u;
    return lo + (int64_t)(law_mix(*state) % (uint64_t)(hi - lo + 1));
}

/* Element i that `rank` puts into operation `op`. */
static inline double law_value(const struct law *l, int op, int rank, int64_t i)
{
    uint64_t z = law_mix(l->seed * 0x9E3779B97F4A7C15u + (uint64_t)op * 0xD1342543DE82EF95u +
                         (uint64_t)rank * 0x2545F4914F6CDD1Du + (uint64_t)i);
    double spread = (double)(1u << (z & 15)) / 256.0;
    return ((double)(z >> 11) * 0x1.0p-53 - 0.5) * spread;
}

static inline void law_put(void *p, int64_t at, enum dtype dt, double x)
{
    if (dt == DT_F64)
        ((double *)p)[at] = x;
    else if (dt == DT_F32)
        ((float *)p)[at] = (float)x;
    else if (dt == DT_BF16)
        ((uint16_t *)p)[at] = bf16_from_f32((float)x);
    else
        ((int32_t *)p)[at] = (int32_t)(x * 1e6);
}

/* The first `count` elements of operation `op` from `rank`. */
static inline void law_fill(const struct law_run *r, void *p, int rank, const struct law_flight *f,
                            int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        law_put(p, i, f->dt, law_value(r->law, f->op, rank, i));
}

/* Reduce element i over the ranks, in their order, as comm.h promises; to want[at]. */
static inline void law_reduce(const struct law_run *r, const struct law_flight *f, int64_t i,
                              int64_t at)
{
    const struct law_group *g = &r->group[f->group];
    double d = 0;
    float s = 0;
    int32_t k = 0;
    bool max = f->red == COMM_MAX;
    for (int m = 0; m < g->n; m++) {
        double x = law_value(r->law, f->op, g->ranks[m], i);
        float y = f->dt == DT_BF16 ? bf16_to_f32(bf16_from_f32((float)x)) : (float)x;
        int32_t n = (int32_t)(x * 1e6);
        d = m == 0 ? x : max ? fmax(d, x) : d + x;
        s = m == 0 ? y : max ? fmaxf(s, y) : s + y;
        k = m == 0 ? n : !max ? k + n : n > k ? n : k;
    }
    if (f->dt == DT_F64)
        ((double *)(void *)r->want)[at] = d;
    else if (f->dt == DT_F32)
        ((float *)(void *)r->want)[at] = s;
    else if (f->dt == DT_BF16)
        ((uint16_t *)(void *)r->want)[at] = bf16_from_f32(s);
    else
        ((int32_t *)(void *)r->want)[at] = k;
}

/* Compare with r->want and take the result into the hash. */
static inline void law_same(struct law_run *r, const void *got, int64_t bytes, const char *what)
{
    const unsigned char *p = got;
    uint64_t hash = 0xCBF29CE484222325u;
    bool same = bytes == 0 || memcmp(got, r->want, (size_t)bytes) == 0;
    test_check(same, __FILE__, __LINE__, "%s on rank %d of %d, %lld bytes, seed %llu", what,
               comm_rank(r->w), comm_size(r->w), (long long)bytes,
               (unsigned long long)r->law->seed);
    r->bad += !same;
    for (int64_t i = 0; i < bytes; i++)
        hash = (hash ^ p[i]) * 0x100000001B3u;
    r->hash += law_mix(hash);
}

/* Where a flight's result lies: count elements, of a gather of each member. */
static inline char *law_out(const struct law_run *r, const struct law_flight *f)
{
    int64_t own = f->count * dtype_size(f->dt) * comm_group_rank(r->group[f->group].g);
    if (f->kind == LAW_SCATTER && f->inside)
        return (char *)f->buffer + own;
    return f->kind == LAW_MESSAGE || f->kind == LAW_SUM || f->inside ? f->buffer : f->other;
}

/* Compare what a finished flight has brought. */
static inline void law_result(struct law_run *r, const struct law_flight *f)
{
    static const char *const name[] = {"a message", "all_reduce", "reduce", "reduce_scatter",
                                       "all_gather"};
    const struct law_group *g = &r->group[f->group];
    int64_t bytes = f->count * dtype_size(f->dt), first = 0, parts = 1;
    char what[64];
    if (f->kind == LAW_SCATTER)
        first = f->count * comm_group_rank(g->g);
    if (f->kind == LAW_MESSAGE)
        law_fill(r, r->want, f->from, f, f->count);
    else if (f->kind == LAW_GATHER)
        for (parts = 0; parts < g->n; parts++)
            law_fill(r, r->want + bytes * parts, g->ranks[parts], f, f->count);
    else
        for (int64_t i = 0; i < f->count; i++)
            law_reduce(r, f, first + i, i);
    snprintf(what, sizeof what, "%s started and finished apart", name[f->kind]);
    law_same(r, law_out(r, f), bytes * parts, what);
}

/* Finish what is in flight at place k and compare. */
static inline enum err law_land(struct law_run *r, int k)
{
    struct law_flight *f = &r->flight[k];
    if (!f->used)
        return ERR_OK;
    f->used = false;
    TRY(comm_finish(&f->req));
    if (!f->check)
        return ERR_OK;
    law_result(r, f);
    return ERR_OK;
}

static inline enum err law_land_all(struct law_run *r)
{
    for (int k = 0; k < LAW_FLIGHT; k++)
        TRY(law_land(r, k));
    return ERR_OK;
}

/* Put *as in flight at a free place; lands another when all are taken. */
static inline enum err law_place(struct law_run *r, const struct law_flight *as,
                                 struct law_flight **out)
{
    int k = 0;
    while (k < LAW_FLIGHT && r->flight[k].used)
        k++;
    if (k == LAW_FLIGHT)
        k = (int)law_draw(&r->own, 0, LAW_FLIGHT - 1);
    TRY(law_land(r, k));
    void *buffer = r->flight[k].buffer, *other = r->flight[k].other;
    *out = &r->flight[k];
    **out = *as;
    (*out)->buffer = buffer;
    (*out)->other = other;
    (*out)->used = true;
    return ERR_OK;
}

static inline int64_t law_count(uint64_t *state)
{
    int64_t shape = law_draw(state, 0, 5);
    return law_draw(state, 0, shape == 0 ? 3 : shape == 1 ? 40 : shape == 2 ? 1100 : LAW_COUNT);
}

static inline enum err law_message(struct law_run *r, int op)
{
    int size = comm_size(r->w), me = comm_rank(r->w);
    int from = (int)law_draw(&r->shared, 0, size - 1);
    int to = (from + (int)law_draw(&r->shared, 1, size > 1 ? size - 1 : 1)) % size;
    int tag = (int)law_draw(&r->shared, 0, 3);
    int64_t count = law_count(&r->shared);
    struct law_flight *f;
    if (size == 1 || (me != from && me != to))
        return ERR_OK;
    TRY(law_place(r, &(struct law_flight){.check = me == to, .op = op, .from = from, .count = count,
                                          .dt = DT_F64}, &f));
    if (me == to)
        return comm_recv_start(r->w, from, tag, f->buffer, count * 8, &f->req);
    law_fill(r, f->buffer, from, f, count);
    return comm_send_start(r->w, to, tag, f->buffer, count * 8, &f->req);
}

/* Start one that is finished later, of any kind. All parts of one fit a flight's buffer. */
static inline enum err law_start(struct law_run *r, struct law_flight *as)
{
    struct law_flight *f;
    const struct law_group *g = &r->group[as->group];
    int64_t most = LAW_COUNT / g->n, own = comm_group_rank(g->g);
    bool wide = as->kind == LAW_SCATTER || as->kind == LAW_GATHER;
    if (wide && as->count > most)
        as->count = most;
    TRY(law_place(r, as, &f));
    int64_t bytes = f->count * dtype_size(f->dt);
    char *in = f->kind == LAW_GATHER && f->inside ? (char *)f->buffer + bytes * own : f->buffer;
    law_fill(r, in, comm_rank(r->w), f, f->kind == LAW_SCATTER ? f->count * g->n : f->count);
    char *out = law_out(r, f);
    bool root = own == f->from;
    f->check = f->kind != LAW_REDUCE || root;
    switch (f->kind) {
    case LAW_REDUCE:
        return comm_reduce_start(g->g, f->from, root ? out : NULL, in, f->count, f->dt, &f->req);
    case LAW_SCATTER:
        return comm_reduce_scatter_start(g->g, out, in, f->count, f->dt, &f->req);
    case LAW_GATHER:
        return comm_all_gather_start(g->g, out, in, f->count, f->dt, &f->req);
    default:
        return comm_all_reduce_start(g->g, in, f->count, f->dt, f->red, &f->req);
    }
}

static inline enum err law_reduce_scatter(struct law_run *r, const struct law_flight *f,
                                          bool inside)
{
    const struct law_group *g = &r->group[f->group];
    int64_t own = f->count * comm_group_rank(g->g);
    char *out = inside ? r->a + own * dtype_size(f->dt) : r->b;
    law_fill(r, r->a, comm_rank(r->w), f, f->count * g->n);
    TRY(comm_reduce_scatter(g->g, out, r->a, f->count, f->dt));
    for (int64_t i = 0; i < f->count; i++)
        law_reduce(r, f, own + i, i);
    law_same(r, out, f->count * dtype_size(f->dt), "reduce_scatter");
    return ERR_OK;
}

static inline enum err law_all_gather(struct law_run *r, const struct law_flight *f, bool inside)
{
    const struct law_group *g = &r->group[f->group];
    int64_t bytes = f->count * dtype_size(f->dt);
    char *in = inside ? r->a + bytes * comm_group_rank(g->g) : r->b;
    law_fill(r, in, comm_rank(r->w), f, f->count);
    TRY(comm_all_gather(g->g, r->a, in, f->count, f->dt));
    for (int m = 0; m < g->n; m++)
        law_fill(r, r->want + bytes * m, g->ranks[m], f, f->count);
    law_same(r, r->a, bytes * g->n, "all_gather");
    return ERR_OK;
}

static inline enum err law_broadcast(struct law_run *r, const struct law_flight *f, int root)
{
    const struct law_group *g = &r->group[f->group];
    int64_t bytes = f->count * dtype_size(f->dt);
    law_fill(r, r->a, comm_rank(r->w), f, f->count);
    TRY(comm_broadcast(g->g, root, r->a, bytes));
    law_fill(r, r->want, g->ranks[root], f, f->count);
    law_same(r, r->a, bytes, "broadcast");
    return ERR_OK;
}

/* Elements that member i sends member j of an all_to_all of f, and a gap before them; the sum of
 * what one sends fits a buffer. */
static inline int64_t law_pair(const struct law_run *r, const struct law_flight *f, int i, int j,
                               int64_t *gap)
{
    uint64_t state = r->law->seed * 77 + (uint64_t)((f->op * LAW_RANKS + i) * LAW_RANKS + j);
    *gap = law_draw(&state, 0, 3);
    return law_draw(&state, 0, 2) == 0 ? 0 : law_count(&state) / 2;
}

/* Where that begins in what member i sends. */
static inline int64_t law_pair_at(const struct law_run *r, const struct law_flight *f, int i, int j)
{
    int64_t at = 0, gap;
    for (int k = 0; k < j; k++) {
        at += law_pair(r, f, i, k, &gap);
        at += gap;
    }
    (void)law_pair(r, f, i, j, &gap);
    return at + gap;
}

static inline enum err law_all_to_all(struct law_run *r, const struct law_flight *f)
{
    const struct law_group *g = &r->group[f->group];
    int me = comm_group_rank(g->g);
    int64_t unit = dtype_size(f->dt), take[2][LAW_RANKS], give[2][LAW_RANKS], gap, out = 0, all = 0;
    for (int i = 0; i < g->n; i++) {
        give[0][i] = law_pair(r, f, me, i, &gap);
        give[1][i] = law_pair_at(r, f, me, i);
        take[0][i] = law_pair(r, f, i, me, &gap);
        take[1][i] = out + gap;
        out += take[0][i] + gap;
    }
    law_fill(r, r->a, comm_rank(r->w), f, give[1][g->n - 1] + give[0][g->n - 1]);
    struct comm_to_all a = {.out = r->b, .in = r->a, .recv = {take[0], take[1]},
                            .send = {give[0], give[1]}, .dt = f->dt};
    TRY(comm_all_to_all(g->g, &a));
    for (int i = 0; i < g->n; i++) { /* what came, without gaps */
        int64_t at = law_pair_at(r, f, i, me);
        for (int64_t k = 0; k < take[0][i]; k++)
            law_put(r->want, all + k, f->dt, law_value(r->law, f->op, g->ranks[i], at + k));
        memmove(r->b + all * unit, r->b + take[1][i] * unit, (size_t)(take[0][i] * unit));
        all += take[0][i];
    }
    law_same(r, r->b, all * unit, "all_to_all");
    return ERR_OK;
}

/* One operation of the program, the same on all ranks; those that are not in it go on. */
static inline enum err law_op(struct law_run *r, int op)
{
    int kind = (int)law_draw(&r->shared, 0, 10), started = (int)law_draw(&r->shared, 0, 5);
    struct law_flight f = {.op = op, .check = true};
    f.kind = started < 2 ? LAW_SUM : (enum law_kind)(LAW_SUM + started - 2);
    if (kind <= 2)
        return law_message(r, op);
    f.group = (int)law_draw(&r->shared, 0, LAW_GROUPS - 1);
    f.dt = (enum dtype)law_draw(&r->shared, 0, DT_COUNT - 1);
    f.red = law_draw(&r->shared, 0, 3) == 0 && kind < 6 && f.kind == LAW_SUM ? COMM_MAX : COMM_SUM;
    f.count = law_count(&r->shared);
    bool inside = f.inside = law_draw(&r->shared, 0, 1);
    const struct law_group *g = &r->group[f.group];
    int root = f.from = (int)law_draw(&r->shared, 0, 1000) % g->n;
    if (!g->g)
        return ERR_OK;
    if (kind <= 5) {
        TRY(law_start(r, &f));
        return kind == 5 ? law_land_all(r) : ERR_OK;
    }
    if (kind == 6)
        return law_reduce_scatter(r, &f, inside);
    if (kind == 7)
        return law_all_gather(r, &f, inside);
    if (kind == 8)
        return law_all_to_all(r, &f);
    return kind == 9 ? law_broadcast(r, &f, root) : comm_barrier(g->g);
}

/* Group 0: all. 1..3: the three axes of a mesh with extents of two, when there are eight ranks.
 * The others: random sets in random order. */
static inline enum err law_groups(struct law_run *r)
{
    int size = comm_size(r->w), me = comm_rank(r->w);
    for (int i = 0; i < LAW_GROUPS; i++) {
        struct law_group *g = &r->group[i];
        int id = i;
        bool member = false;
        for (int k = 0; k < size; k++)
            g->ranks[k] = k;
        for (int k = size - 1; k > 0 && i > 0; k--) {
            int j = (int)law_draw(&r->shared, 0, k), x = g->ranks[k];
            g->ranks[k] = g->ranks[j];
            g->ranks[j] = x;
        }
        g->n = i == 0 ? size : (int)law_draw(&r->shared, 1, size);
        if (size == 8 && i >= 1 && i <= 3) {
            int bit = 1 << (i - 1);
            g->n = 2;
            g->ranks[0] = me & ~bit;
            g->ranks[1] = me | bit;
            id = 100 * i + (me & ~bit); /* this rank's set of the axis */
        }
        for (int k = 0; k < g->n; k++)
            member = member || g->ranks[k] == me;
        /* Smaller than the largest operation, so that some go in pieces. */
        struct comm_group_args a = {.id = id, .ranks = g->ranks, .n = g->n};
        a.max_bytes = LAW_COUNT * 2;
        if (member)
            TRY(comm_group_open(r->w, &a, &g->g));
    }
    return ERR_OK;
}

static inline void law_delay(struct law_run *r)
{
    if (r->law->delays && law_draw(&r->own, 0, 7) == 0) {
        struct timespec t = {0, (long)law_draw(&r->own, 0, 300000)};
        nanosleep(&t, NULL);
    }
}

/* All ranks' hashes into one. */
static inline enum err law_hash(struct law_run *r, struct law *law)
{
    uint64_t all[LAW_RANKS], hash = 0xCBF29CE484222325u;
    TRY(comm_all_gather(r->group[0].g, all, &r->hash, 2, DT_I32));
    for (int i = 0; i < comm_size(r->w); i++)
        hash = law_mix(hash ^ all[i]) * 0x100000001B3u;
    if (comm_rank(r->w) == 0)
        law->hash = hash;
    return ERR_OK;
}

static inline enum err law_play(struct law_run *r, struct law *law)
{
    TRY(mem_new(LAW_RANKS * LAW_COUNT, 8, "test buffer", &r->a));
    TRY(mem_new(LAW_RANKS * LAW_COUNT, 8, "test buffer", &r->b));
    TRY(mem_new(LAW_RANKS * LAW_COUNT, 8, "test buffer", &r->want));
    for (int k = 0; k < LAW_FLIGHT; k++) {
        TRY(mem_new(LAW_COUNT, 8, "test buffer", &r->flight[k].buffer));
        TRY(mem_new(LAW_COUNT, 8, "test buffer", &r->flight[k].other));
    }
    TRY(law_groups(r));
    for (int op = 0; op < law->ops; op++) {
        TRY(law_op(r, op));
        law_delay(r);
        if (law_draw(&r->own, 0, 3) == 0)
            TRY(law_land(r, (int)law_draw(&r->own, 0, LAW_FLIGHT - 1)));
    }
    TRY(law_land_all(r));
    TRY(law_hash(r, law));
    if (r->bad)
        FAIL(ERR_INTERNAL, "law: %d results differ from the oracle's", r->bad);
    return ERR_OK;
}

/* The body of a rank; arg is the struct law. */
static inline enum err law_body(void *arg, struct comm_world *w)
{
    struct law *law = arg;
    struct law_run *r;
    TRY(mem_new(1, sizeof *r, "a test's run", &r));
    r->w = w;
    r->law = law;
    r->shared = law->seed;
    r->own = law->seed * 31 + (uint64_t)comm_rank(w);
    enum err err = law_play(r, law);
    if (err != ERR_OK)
        comm_abort(w, err); /* before the buffers go */
    for (int i = 0; i < LAW_GROUPS; i++)
        comm_group_close(r->group[i].g);
    for (int k = 0; k < LAW_FLIGHT; k++) {
        mem_free(r->flight[k].buffer);
        mem_free(r->flight[k].other);
    }
    mem_free(r->a);
    mem_free(r->b);
    mem_free(r->want);
    mem_free(r);
    return err;
}

#endif
