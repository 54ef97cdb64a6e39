/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums, gathers and messages over GPUs of one process by their copy engines, which take no SMs. A
 * member copies from the others' windows: its shard of a piece to its staging, adds it in the order
 * of the members (one kernel), and then the others' summed shards; or parts of a gather; or, at the
 * end of a channel, a message, as a broadcast of two. Between that members wait for each other by
 * signals (docs/design/comm.md proves them):
 *
 *     READY   what you read of mine is complete      at the start, to each who will read
 *     SUMMED  my shard of the piece is summed        all_reduce: once a piece, by two in turn
 *     READ    I have read all that I need of yours   at the end, to each who signalled READY
 *
 * Where ranks share a GPU the hosts wait, and all memory can be read: each member then says with
 * READY where it has its operand, which lies at no agreed offset, and everything is done so.
 */
#include "comm/gpu/gpu.h"

#include "comm/gpu/sum.h"

#include "base/log.h"
#include "base/mem.h"

enum flag { FLAG_READY, FLAG_SUMMED, FLAG_SUMMED_ODD, FLAG_READ, FLAG_KINDS };
/* ALL_REDUCE_LEAST: two rounds of signals take as long as NCCL takes for this much. */
enum { PIECE_BYTES = COMM_COPIES_BYTES, UNIT = 64, ALL_REDUCE_LEAST = 256 << 10,
       TINY_PIECE = 4096 };

_Static_assert((int)COMM_COPIES_MEMBERS <= (int)COMM_SUM_MOST, "all members are added at once");

/* What a member of a shared GPU says to one of the others, before its READY. */
struct lent {
    const char *at;
    int64_t count;       /* elements there */
    struct comm_coll as; /* the operation as this member states it; its pointers are not read */
};

/* What the others know of a member. */
struct member {
    int64_t gpu, able, bytes;
    char *window;
    uint32_t *flags;
    struct lent *lent;
};

/* Of the operation under way: what is said to each member, and where each has what is read. */
struct operands {
    struct lent mine[COMM_COPIES_MEMBERS];
    const char *of[COMM_COPIES_MEMBERS];
    int64_t want[COMM_COPIES_MEMBERS]; /* elements that each should have */
    const struct comm_msg *msg; /* borrowed: the operation; NULL: it is a collective */
};

struct comm_copies {
    int n, me, id;
    int ranks[COMM_COPIES_MEMBERS];
    bool shared;      /* they share a GPU */
    struct lent *lent; /* owned; [n], by who says it; NULL where not shared */
    struct operands *now; /* owned */
    struct member member[COMM_COPIES_MEMBERS];
    uint32_t *flags;  /* pinned, owned; [FLAG_KINDS][n], by who signals */
    char *staging;    /* device, owned; n - 1 shards of a piece */
    int64_t piece, shard; /* bytes of one, and of a shard of it there */
    bool also_nccl;   /* NCCL does what copies do not, or not better */
    bool parts_fit;   /* those of the all_to_all that is started, in the window of each member */
    int64_t part[COMM_COPIES_MEMBERS]; /* where in member i's window this one's part begins */
    const struct comm_signals *signals; /* the transport's */
};

/* ---- who can ---- */

/* All members, each filled in by itself. */
static enum err exchange(const struct comm_group *g, struct member *members)
{
    int64_t words = (int64_t)(sizeof *members / sizeof(double));
    _Static_assert(sizeof(struct member) % sizeof(double) == 0, "members travel as doubles");
    struct member mine = members[g->me];
    return comm_gpu_host_all_gather(g, members, &mine, words);
}

enum err comm_copies_agree(const struct comm_group *g, bool *yes)
{
    const struct comm_gpu *q = comm_gpu_of(g->world);
    struct member members[COMM_COPIES_MEMBERS] = {{0}};
    *yes = q->shared && g->n <= COMM_COPIES_MEMBERS;
    if (q->shared)
        return ERR_OK;
    /* Only what all members state alike: one without a window takes part, too. */
    if (!g->world->copies || !comm_would_copy(comm_kind(g->world), g->n) || g->window_bytes == 0)
        return ERR_OK;
    struct member *mine = &members[g->me];
    mine->gpu = q->gpu;
    mine->bytes = g->window_bytes;
    for (int i = 0; i < q->windows && q->signals.wait; i++)
        mine->able = mine->able || q->window[i] == g->window;
    TRY(exchange(g, members));
    for (int i = 0; i < g->n; i++) /* this GPU can read the other members' */
        mine->able = mine->able && members[i].bytes == mine->bytes &&
                     comm_gpu_reads(q->gpu, (int)members[i].gpu);
    TRY(exchange(g, members));
    *yes = true;
    for (int i = 0; i < g->n; i++)
        *yes = *yes && members[i].able;
    if (!*yes && g->host && g->me == 0 && q->windows > 0)
        log_line(LOG_WARN, "comm: %s by NCCL and not by copies: these GPUs cannot read each "
                           "other's memory, or wait for signal words",
                 g->also_nccl ? "tensor ranks communicate" : "gradients are summed");
    return ERR_OK;
}

/* ---- life ---- */

/* Each way of the sum once: a kernel that is loaded at its first launch waits for all streams, also
 * for one that waits for a peer. */
static enum err load_kernels(const struct comm_copies *x, cudaStream_t s)
{
    static const struct { int64_t at, count; enum dtype dt; } ways[] = {
        {0, 4, DT_F32}, {4, 1, DT_F32}, {0, 8, DT_BF16}, {2, 1, DT_BF16}};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        char *p = x->staging + ways[i].at;
        struct comm_sum_args t = {p, {p, p}, 2, false, ways[i].count, ways[i].dt};
        TRY_CUDA(comm_sum_kernel(&t, s));
    }
    TRY_CUDA(cudaStreamSynchronize(s));
    return ERR_OK;
}

int64_t comm_copies_bytes(const struct comm_copies *x)
{
    return (x->n - 1) * x->shard;
}

/* What a first copy of a message needs is made here, where nobody waits. */
static enum err copy_first(const struct comm_gpu *q, const char *window)
{
    TRY(comm_get(q->spare, window, UNIT, q->stream));
    TRY_CUDA(cudaStreamSynchronize(q->stream));
    return ERR_OK;
}

static enum err open_parts(struct comm_copies *x, const struct comm_group *g, cudaStream_t s)
{
    TRY(mem_new(1, sizeof *x->now, "an operation by copies", &x->now));
    if (x->shared)
        TRY(mem_new(x->n, sizeof *x->lent, "what members lend", &x->lent));
    TRY(comm_signals_new(FLAG_KINDS * x->n, &x->flags));
    if (!g->host) /* messages are not staged */
        return ERR_OK;
    x->piece = g->tiny ? TINY_PIECE : PIECE_BYTES;
    x->shard = num_ceil_div(num_ceil_div(x->piece, x->n), UNIT) * UNIT;
    int64_t staging = comm_copies_bytes(x);
    TRY(comm_window_room(cudaMalloc((void **)&x->staging, (size_t)staging), staging,
                         "sums by copies", (int)x->member[x->me].gpu));
    return load_kernels(x, s);
}

/* Once addresses were given away peers may write there, whatever happens here. */
enum err comm_copies_open(const struct comm_group *g, cudaStream_t s, struct comm_copies **out)
{
    const struct comm_gpu *q = comm_gpu_of(g->world);
    struct comm_copies *x;
    TRY(mem_new(1, sizeof *x, "copies between GPUs", &x));
    *x = (struct comm_copies){.n = g->n, .me = g->me, .id = g->id, .shared = q->shared,
                              .also_nccl = g->also_nccl, .signals = &q->signals};
    memcpy(x->ranks, g->ranks, (size_t)g->n * sizeof *x->ranks);
    struct member *mine = &x->member[g->me];
    *mine = (struct member){.gpu = q->gpu, .bytes = g->window_bytes, .window = g->window};
    enum err err = open_parts(x, g, s);
    bool peers = err == ERR_OK;
    mine->flags = x->flags;
    mine->lent = x->lent;
    if (err == ERR_OK)
        err = exchange(g, x->member);
    if (err == ERR_OK && !g->host && g->me == 1 && x->member[0].window)
        err = copy_first(q, x->member[0].window);
    if (err == ERR_OK)
        *out = x;
    else
        comm_copies_close(x, peers);
    return err;
}

/* Signal words that a peer may still write are left to the end of the process. */
void comm_copies_close(struct comm_copies *x, bool peers)
{
    if (!x)
        return;
    (void)cudaFree(x->staging);
    if (!peers) {
        comm_signals_free(x->flags);
        mem_free(x->lent);
    }
    mem_free(x->now);
    mem_free(x);
}

void comm_copies_release(const struct comm_copies *x)
{
    for (int i = 0; i < FLAG_KINDS * x->n; i++)
        __atomic_store_n(&x->flags[i], 1, __ATOMIC_RELEASE);
}

/* ---- operations ---- */

static enum err signal_one(const struct comm_copies *x, enum flag kind, int who, cudaStream_t s)
{
    if (x->shared && kind == FLAG_READY) /* it has read the last: this one waited for READ */
        x->member[who].lent[x->me] = x->now->mine[who];
    return comm_signal(x->signals, x->member[who].flags + (int)kind * x->n + x->me, s);
}

static enum err signal_all(const struct comm_copies *x, enum flag kind, cudaStream_t s)
{
    for (int i = 0; i < x->n; i++)
        if (i != x->me)
            TRY(signal_one(x, kind, i, s));
    return ERR_OK;
}

/* Where member `who`, which has signalled READY, has its operand. It must be of the same operation,
 * as long as what is read. */
static enum err look_up(const struct comm_copies *x, int who)
{
    const struct lent *theirs = &x->lent[who], *mine = &x->now->mine[who];
    const struct comm_coll *a = &mine->as, *b = &theirs->as;
    char ours[96], other[96], msg[COMM_PENDING_TEXT];
    if (x->now->msg && theirs->count != x->now->want[who])
        FAIL(ERR_MISMATCH, "comm: %s, but %lld bytes were sent", comm_msg_text(x->now->msg, msg),
             (long long)theirs->count);
    if (a->kind != b->kind || a->dt != b->dt || theirs->count != x->now->want[who])
        FAIL(ERR_MISMATCH, "comm: group %d: rank %d starts %s of %lld %s elements and reads %lld "
                           "of rank %d, which starts %s and has %lld %s", x->id, x->ranks[x->me],
             comm_coll_name(a->kind), (long long)mine->count, dtype_name(a->dt),
             (long long)x->now->want[who], x->ranks[who], comm_coll_name(b->kind),
             (long long)theirs->count, dtype_name(b->dt));
    if (a->red != b->red || a->root != b->root) /* chunks come in each member's own order */
        FAIL(ERR_MISMATCH, "comm: group %d: rank %d starts %s, and rank %d starts %s", x->id,
             x->ranks[x->me], comm_coll_text(a, ours), x->ranks[who], comm_coll_text(b, other));
    x->now->of[who] = theirs->at;
    return ERR_OK;
}

/* Until member `who` has signalled so; its word is 0 again. */
static enum err wait_one(const struct comm_copies *x, enum flag kind, int who, cudaStream_t s)
{
    TRY(comm_wait(x->signals, x->flags + (int)kind * x->n + who, s));
    return x->shared && kind == FLAG_READY ? look_up(x, who) : ERR_OK;
}

static enum err wait_all(const struct comm_copies *x, enum flag kind, cudaStream_t s)
{
    for (int k = 1; k < x->n; k++)
        TRY(wait_one(x, kind, (x->me + k) % x->n, s));
    return ERR_OK;
}

/* A part of an operation: `bytes` from `at` of the operand on. */
struct piece { int64_t at, bytes; };

/* Member i's shard of it: where in the operand, how long. */
static int64_t shard_of(const struct comm_copies *x, const struct piece *p, int i, int64_t *bytes)
{
    int64_t each = num_ceil_div(num_ceil_div(p->bytes, x->n), UNIT) * UNIT;
    int64_t begin = num_min(i * each, p->bytes);
    *bytes = num_min(each, p->bytes - begin);
    return p->at + begin;
}

/* Summands of all members: `bytes` from `at` of their operands on, at most a shard of staging. */
struct summands { int64_t at, bytes; const struct comm_coll *c; };

/* Where another member's stands when it has come. */
static char *staged(const struct comm_copies *x, int from)
{
    return x->staging + ((from - x->me + x->n) % x->n - 1) * x->shard;
}

static enum err fetch_summand(const struct comm_copies *x, const struct summands *p, int from,
                              cudaStream_t s)
{
    return comm_get(staged(x, from), x->now->of[from] + p->at, p->bytes, s);
}

/* The sum of those that have come and of one's own, at `out`. */
static enum err sum_staged(const struct comm_copies *x, const struct summands *p, void *out,
                           cudaStream_t s)
{
    struct comm_sum_args t = {.out = out, .n = x->n, .max = p->c->red == COMM_MAX,
                              .count = p->bytes / p->c->unit, .dt = p->c->dt};
    for (int i = 0; i < x->n; i++)
        t.in[i] = i == x->me ? x->now->of[i] + p->at : staged(x, i);
    TRY_CUDA(comm_sum_kernel(&t, s));
    return ERR_OK;
}

/* Their sum, at `out`: the others' come to the staging and are added. */
static enum err add_up(const struct comm_copies *x, const struct summands *p, void *out,
                       cudaStream_t s)
{
    for (int k = 1; k < x->n; k++) /* each from another one at a time */
        TRY(fetch_summand(x, p, (x->me + k) % x->n, s));
    return sum_staged(x, p, out, s);
}

static enum err fetch_shards(const struct comm_copies *x, const struct piece *p, char *out,
                             enum flag summed, cudaStream_t s)
{
    for (int k = 1; k < x->n; k++) {
        int from = (x->me + k) % x->n;
        int64_t bytes, at = shard_of(x, p, from, &bytes);
        TRY(wait_one(x, summed, from, s));
        TRY(comm_get(out + at, x->now->of[from] + at, bytes, s));
    }
    return ERR_OK;
}

static int64_t offset_of(const struct comm_copies *x, const void *p)
{
    return (const char *)p - x->member[x->me].window;
}

/* Is this member's input of a gather its own part of the output? All members have one answer, as
 * they state the same. */
static bool in_place(const struct comm_copies *x, const struct comm_coll *c)
{
    return c->in == (const char *)c->out + x->me * c->count * c->unit;
}

static enum err all_reduce(const struct comm_copies *x, const struct comm_coll *c, cudaStream_t s)
{
    int64_t bytes = c->count * c->unit;
    enum flag summed = FLAG_SUMMED;
    TRY(signal_all(x, FLAG_READY, s));
    TRY(wait_all(x, FLAG_READY, s));
    for (int64_t done = 0; done < bytes; done += x->piece) {
        struct piece p = {done, num_min(x->piece, bytes - done)};
        struct summands own = {.c = c};
        own.at = shard_of(x, &p, x->me, &own.bytes);
        TRY(add_up(x, &own, (char *)c->out + own.at, s));
        TRY(signal_all(x, summed, s));
        TRY(fetch_shards(x, &p, c->out, summed, s));
        summed = summed == FLAG_SUMMED ? FLAG_SUMMED_ODD : FLAG_SUMMED;
    }
    TRY(signal_all(x, FLAG_READ, s));
    return wait_all(x, FLAG_READ, s);
}

/* What all have at `at`, summed here. */
static enum err sum_here(const struct comm_copies *x, const struct comm_coll *c, int64_t at,
                         cudaStream_t s)
{
    int64_t bytes = c->count * c->unit;
    TRY(wait_all(x, FLAG_READY, s));
    for (int64_t done = 0; done < bytes; done += x->shard) {
        struct summands p = {at + done, num_min(x->shard, bytes - done), c};
        TRY(add_up(x, &p, (char *)c->out + done, s));
    }
    return signal_all(x, FLAG_READ, s);
}

static enum err reduce_scatter(const struct comm_copies *x, const struct comm_coll *c,
                               cudaStream_t s)
{
    TRY(signal_all(x, FLAG_READY, s));
    TRY(sum_here(x, c, x->me * c->count * c->unit, s));
    return wait_all(x, FLAG_READ, s);
}

/* Between the root and each of the others, who do not know of each other. */
static enum err reduce(const struct comm_copies *x, const struct comm_coll *c, cudaStream_t s)
{
    if (x->me == c->root)
        return sum_here(x, c, 0, s);
    TRY(signal_one(x, FLAG_READY, c->root, s));
    return wait_one(x, FLAG_READ, c->root, s);
}

/* all_gather, all_to_all: what the others have for this member, chunks [first, last] of n - 1, to
 * its parts of the output; and with the last this member's own, when all have read. */
static enum err fetch_parts(const struct comm_copies *x, const struct comm_coll *c, int first,
                            int last, cudaStream_t s)
{
    for (int k = first; k <= (last < x->n - 1 ? last : x->n); k++) {
        int from = (x->me + k) % x->n;
        bool parts = c->kind == COMM_ALL_TO_ALL;
        int64_t bytes = (parts ? c->recv.count[from] : c->count) * c->unit;
        char *to = (char *)c->out + (parts ? c->recv.at[from] : from * c->count) * c->unit;
        if (k == 1)
            TRY(signal_all(x, FLAG_READY, s));
        if (from != x->me)
            TRY(wait_one(x, FLAG_READY, from, s));
        if (to != x->now->of[from])
            TRY(comm_get(to, x->now->of[from], bytes, s));
        if (from != x->me)
            TRY(signal_one(x, FLAG_READ, from, s));
    }
    return last < x->n - 1 ? ERR_OK : wait_all(x, FLAG_READ, s);
}

/* From the root, which knows of the others when they have read. */
static enum err broadcast(const struct comm_copies *x, const struct comm_coll *c, cudaStream_t s)
{
    if (x->me == c->root) {
        TRY(signal_all(x, FLAG_READY, s));
        return wait_all(x, FLAG_READ, s);
    }
    TRY(wait_one(x, FLAG_READY, c->root, s));
    TRY(comm_get(c->out, x->now->of[c->root], c->count * c->unit, s));
    return signal_one(x, FLAG_READ, c->root, s);
}

static enum err reduce_scatter_chunk(const struct comm_copies *x, const struct comm_coll *c,
                                     cudaStream_t s)
{
    int to = (x->me + c->chunk) % x->n, from = (x->me - c->chunk + x->n) % x->n;
    struct summands p = {.bytes = c->count * c->unit, .c = c};
    p.at = x->me * p.bytes;
    if (c->chunk == x->n) {
        TRY(sum_staged(x, &p, c->out, s));
        return wait_all(x, FLAG_READ, s);
    }
    TRY(signal_one(x, FLAG_READY, to, s));
    TRY(wait_one(x, FLAG_READY, from, s));
    TRY(fetch_summand(x, &p, from, s));
    return signal_one(x, FLAG_READ, from, s);
}

bool comm_copies_take(const struct comm_gpu_lane *l, const struct comm_coll *c)
{
    const struct comm_copies *x = l->copies;
    int64_t at = offset_of(x, c->in), bytes = c->count * c->unit;
    bool adds = c->red == COMM_SUM && (c->dt == DT_F32 || c->dt == DT_BF16);
    if (c->kind == COMM_REDUCE_SCATTER)
        bytes *= x->n;
    if (x->shared)
        return c->kind != COMM_REDUCE_SCATTER || c->chunk == 0 || c->count * c->unit <= x->shard;
    if (c->kind == COMM_ALL_TO_ALL)
        return x->parts_fit;
    if (at < 0 || at + bytes > x->member[x->me].bytes)
        return false;
    switch (c->kind) {
    case COMM_ALL_REDUCE: return adds && (!x->also_nccl || bytes >= ALL_REDUCE_LEAST);
    case COMM_REDUCE_SCATTER: return adds && (c->chunk == 0 || c->count * c->unit <= x->shard);
    case COMM_REDUCE: return adds;
    case COMM_ALL_GATHER: return true;
    case COMM_ALL_TO_ALL:
    case COMM_BROADCAST:
    case COMM_BARRIER: return false;
    }
    return false;
}

/* All members know of all, so they find alike whether copies can do it. */
enum err comm_copies_parts(struct comm_group *g, const struct comm_coll *c)
{
    struct comm_copies *x = ((struct comm_gpu_lane *)g->impl)->copies;
    /* Does it fit, counts, offsets; more words than comm_copies_rendezvous sends. */
    enum { FITS, PARTS = 2, MOST = PARTS + 2 * COMM_COPIES_MEMBERS };
    double mine[MOST] = {[FITS] = 1}, all[COMM_COPIES_MEMBERS * MOST];
    int64_t words = PARTS + 2 * x->n;
    for (int i = 0; i < x->n; i++) {
        int64_t at = offset_of(x, c->in) + c->send.at[i] * c->unit;
        int64_t bytes = c->send.count[i] * c->unit;
        mine[PARTS + i] = (double)c->send.count[i];
        mine[PARTS + x->n + i] = (double)at;
        if (bytes > 0 && (at < 0 || at + bytes > x->member[x->me].bytes))
            mine[FITS] = 0;
    }
    TRY(comm_gpu_host_all_gather(g, all, mine, words));
    x->parts_fit = true;
    for (int i = 0; i < x->n; i++) {
        const double *of = all + i * words;
        struct comm_pair p = {g->ranks[i], g->ranks[g->me], (int64_t)of[PARTS + x->me],
                              c->recv.count[i]};
        if (p.sends != p.receives)
            return comm_pair_mismatch(g, g->started, &p);
        x->parts_fit = x->parts_fit && of[FITS] > 0;
        x->part[i] = (int64_t)of[PARTS + x->n + x->me];
    }
    return ERR_OK;
}

enum err comm_copies_rendezvous(struct comm_group *g, const struct comm_coll *c)
{
    const struct comm_gpu_lane *l = g->impl;
    enum { OFFSET, KIND, ROOT, CHUNK, ELEMENTS, FIELDS };
    bool whole = c->kind == COMM_ALL_GATHER && in_place(l->copies, c);
    double mine[FIELDS] = {(double)offset_of(l->copies, whole ? c->out : c->in), c->kind, c->root,
                           c->chunk, (double)c->count}, all[COMM_COPIES_MEMBERS][FIELDS];
    char buf[96];
    TRY(comm_gpu_host_all_gather(g, all, mine, FIELDS));
    for (int i = 0; i < g->n; i++) {
        if (memcmp(&all[i][KIND], &mine[KIND], sizeof mine - sizeof *mine) != 0)
            FAIL(ERR_MISMATCH, "comm: %s in group %d on rank %d, and another operation on rank %d",
                 comm_coll_text(c, buf), g->id, g->ranks[g->me], g->ranks[i]);
        if (all[i][OFFSET] != mine[OFFSET])
            FAIL(ERR_INTERNAL, "comm: %s in group %d reads byte %.0f of the window on rank %d and "
                               "%.0f on rank %d; copies need one offset", comm_coll_text(c, buf),
                 g->id, mine[OFFSET], g->ranks[g->me], all[i][OFFSET], g->ranks[i]);
    }
    return ERR_OK;
}

enum err comm_copies_do(const struct comm_gpu_lane *l, const struct comm_gpu_op *op,
                        cudaStream_t s)
{
    const struct comm_copies *x = l->copies;
    const struct comm_msg *m = op->is_msg ? &op->msg : NULL;
    const struct comm_coll message = {.kind = COMM_BROADCAST, .unit = 1, .count = op->msg.bytes,
                                      .out = op->msg.dst, .in = op->msg.src},
                           *c = m ? &message : &op->coll;
    bool parts = c->kind == COMM_ALL_TO_ALL, gathers = c->kind == COMM_ALL_GATHER && in_place(x, c);
    x->now->msg = m;
    /* What is known as the operation begins; of a shared GPU the rest comes with READY. */
    for (int i = 0; i < x->n; i++) {
        const char *at = (const char *)c->in + (parts ? c->send.at[i] * c->unit : 0);
        int64_t offset = parts     ? x->part[i]
                         : gathers ? offset_of(x, c->out) + i * c->count * c->unit
                                   : offset_of(x, c->in);
        x->now->mine[i] = (struct lent){at, parts ? c->send.count[i] : c->count, *c};
        x->now->want[i] = parts ? c->recv.count[i] : c->count;
        x->now->of[i] = i == x->me  ? at
                        : x->shared ? NULL
                        : m         ? op->from
                                    : x->member[i].window + offset;
    }
    switch (c->kind) {
    case COMM_ALL_REDUCE: return all_reduce(x, c, s);
    case COMM_REDUCE_SCATTER:
        return c->chunk ? reduce_scatter_chunk(x, c, s) : reduce_scatter(x, c, s);
    case COMM_REDUCE: return reduce(x, c, s);
    case COMM_ALL_GATHER:
    case COMM_ALL_TO_ALL:
        return fetch_parts(x, c, c->chunk ? c->chunk : 1, c->chunk ? c->chunk : x->n - 1, s);
    case COMM_BROADCAST: return broadcast(x, c, s);
    case COMM_BARRIER: break;
    }
    FAIL(ERR_INTERNAL, "comm: group %d has no copies for %s", l->id, comm_coll_name(c->kind));
}
