/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows by token and position, and cross entropy in its three steps. Cross entropy stands for one
 * shard of several: between the steps maxima, sums and target logits are replaced by what ranks
 * would have agreed on, which is more than this shard has found.
 */
#include "parity.h"

#include "base/mem.h"

enum { SHAPES = 24 };

/* Tokens in and around v0 .. v0 + rows. */
static struct parity_buf *tokens(struct parity *p, int64_t n, int64_t v0, int64_t rows)
{
    struct parity_buf *b = parity_zero(p, PARITY_TOKEN, n);
    int32_t *t = NULL;
    ENSURE(mem_new(n, sizeof *t, "test tokens", &t) == ERR_OK);
    for (int64_t i = 0; i < n; i++)
        t[i] = (int32_t)test_range(num_max(v0 - 3, 0), v0 + rows + 2);
    if (n > 1) /* the ends, at least */
        t[0] = (int32_t)(v0 + rows), t[1] = (int32_t)v0;
    parity_set_tokens(p, b, t);
    mem_free(t);
    return b;
}

static void embed(struct parity *p)
{
    for (int i = 0; i < SHAPES; i++) {
        int64_t n = i ? test_range(1, 60) : 0, c = test_range(1, 90);
        int64_t rows = test_range(i == 1 ? 0 : 1, 20), v0 = i & 1 ? test_range(1, 1000) : 0;
        parity_problem(p, "embed n %d c %d v0 %d rows %d", (int)n, (int)c, (int)v0, (int)rows);
        struct parity_buf *token = tokens(p, n, v0, rows);
        struct parity_buf *w = parity_fill(p, PARITY_CT, rows * c, -1, 1);
        struct parity_buf *out = parity_fill(p, PARITY_CT, n * c, -1, 1);
        for (int s = 0; s < PARITY_SIDES; s++) {
            struct dev *d = p->dev[s];
            int64_t half = s == 2 ? n / 2 : n;
            CHECK_OK(dev_embed(
                d, &(struct embed){out->on[s], w->on[s], token->on[s], half, c, v0, rows}));
            CHECK_OK(
                dev_embed(d, &(struct embed){parity_at(p, out, s, half * c), w->on[s],
                                             parity_at(p, token, s, half), n - half, c, v0, rows}));
        }
        parity_check_same(p, out);
    }
}

static void embed_grad(struct parity *p)
{
    for (int i = 0; i < SHAPES; i++) {
        int64_t n = i ? test_range(1, 200) : 0, c = test_range(1, 90);
        int64_t rows = test_range(1, 20), v0 = i & 1 ? test_range(1, 1000) : 0;
        parity_problem(p, "embed_grad n %d c %d v0 %d rows %d", (int)n, (int)c, (int)v0, (int)rows);
        struct parity_buf *token = tokens(p, n, v0, rows);
        struct parity_buf *dy = parity_fill(p, PARITY_CT, n * c, -1, 1);
        struct parity_buf *dw = parity_fill(p, PARITY_AT, rows * c, -1, 1);
        for (int s = 0; s < PARITY_SIDES; s++)
            CHECK_OK(dev_embed_grad(p->dev[s], &(struct embed_grad){dw->on[s], dy->on[s],
                                                                    token->on[s], n, c, v0, rows}));
        parity_check(p, dw, p->calc * (1 + 0.5 * (double)n / (double)rows));
    }
}

static void positions(struct parity *p)
{
    for (int i = 0; i < SHAPES; i++) {
        int64_t n = i ? test_range(1, 80) : 0, c = test_range(1, 90), t = test_range(1, 30);
        int64_t row0 = test_range(0, 100);
        parity_problem(p, "positions n %d c %d t %d row0 %d", (int)n, (int)c, (int)t, (int)row0);
        struct parity_buf *x = parity_fill(p, PARITY_CT, n * c, -1, 1);
        struct parity_buf *w = parity_fill(p, PARITY_CT, t * c, -1, 1);
        struct parity_buf *dy = parity_fill(p, PARITY_CT, n * c, -1, 1);
        struct parity_buf *dw = parity_fill(p, PARITY_AT, t * c, -1, 1);
        for (int s = 0; s < PARITY_SIDES; s++) {
            struct dev *d = p->dev[s];
            int64_t half = s == 2 ? n / 2 : n;
            CHECK_OK(dev_pos_add(d, &(struct pos_add){x->on[s], w->on[s], half, c, t, row0}));
            CHECK_OK(dev_pos_add(d, &(struct pos_add){parity_at(p, x, s, half * c), w->on[s],
                                                      n - half, c, t, row0 + half}));
            CHECK_OK(dev_pos_grad(d, &(struct pos_grad){dw->on[s], dy->on[s], n, c, t, row0}));
        }
        parity_check(p, x, p->calc * 2);
        parity_check(p, dw, p->calc * (1 + 0.5 * (double)n / (double)t));
    }
}

struct problem {
    struct xent x; /* shape; addresses are a side's */
    struct parity_buf *logits, *target, *max, *sum, *target_logit, *loss, *dlogits;
};

/* Half of the targets in the shard, the others anywhere near it or none. */
static void set_targets(struct parity *p, const struct problem *q)
{
    int32_t *t = NULL;
    ENSURE(mem_new(q->x.n, sizeof *t, "test targets", &t) == ERR_OK);
    for (int64_t r = 0; r < q->x.n; r++) {
        t[r] = (int32_t)test_range(num_max(q->x.v0 - 5, 0), q->x.v0 + q->x.v + 5);
        if (r % 2 && q->x.v > 0)
            t[r] = (int32_t)(q->x.v0 + test_range(0, q->x.v - 1));
        if (r % 7 == 3)
            t[r] = -1;
    }
    parity_set_tokens(p, q->target, t);
    mem_free(t);
}

/* Rows as long as a vocabulary, a whole number of 16-byte pieces or nearly: more than a block of a
 * GPU holds, a few columns behind the last piece, padding. */
static const struct { int64_t v, ld; } long_rows[] = {
    {4096, 4096}, {5003, 5008}, {60001, 60008}, {60000, 60016},
};
enum { LONG_ROWS = sizeof long_rows / sizeof *long_rows };

static struct problem make(struct parity *p, int i)
{
    struct problem q = {.x = {.n = i ? test_range(1, 40) : 0, .v = i == 1 ? 0 : test_range(1, 150),
                              .v0 = i % 3 ? test_range(1, 500) : 0}};
    int64_t pad = i % 2 ? test_range(1, 20) : 0, n = q.x.n;
    bool only_loss = i % 5 == 4;
    q.x.ld = q.x.v + pad;
    if (i >= 2 * SHAPES) {
        q.x.v = long_rows[i - 2 * SHAPES].v;
        q.x.ld = long_rows[i - 2 * SHAPES].ld;
        q.x.n = n = 5;
        only_loss = false;
    }
    parity_problem(p, "cross entropy n %d v %d ld %d v0 %d%s", (int)n, (int)q.x.v, (int)q.x.ld,
                   (int)q.x.v0, only_loss ? ", loss only" : "");
    q.logits = parity_zero(p, PARITY_LOGITS, n * q.x.ld);
    q.target = parity_zero(p, PARITY_TOKEN, n);
    q.max = parity_fill(p, PARITY_AT, n, -1, 1);
    q.sum = parity_fill(p, PARITY_AT, n, -1, 1);
    q.target_logit = parity_fill(p, PARITY_AT, n, -1, 1);
    q.loss = parity_fill(p, PARITY_AT, n, -1, 1);
    q.dlogits = only_loss ? NULL : parity_fill(p, PARITY_CT, n * q.x.ld, -1, 1);
    double *x = parity_doubles(n * q.x.ld); /* padding is large, so that reading it shows */
    for (int64_t e = 0; e < n * q.x.ld; e++)
        x[e] = e % q.x.ld < q.x.v ? test_real(-8, 8) : 1000;
    parity_set(p, q.logits, x);
    mem_free(x);
    set_targets(p, &q);
    return q;
}

static struct xent xent_on(const struct parity *p, const struct problem *q, int side)
{
    struct xent x = q->x;
    x.logits = parity_at(p, q->logits, side, 0);
    x.target = parity_at(p, q->target, side, 0);
    x.max = parity_at(p, q->max, side, 0);
    x.sum = parity_at(p, q->sum, side, 0);
    x.target_logit = parity_at(p, q->target_logit, side, 0);
    x.loss = parity_at(p, q->loss, side, 0);
    x.dlogits = parity_at(p, q->dlogits, side, 0);
    return x;
}

/* Rows first.. of a problem on one side. */
static struct xent rows_of(const struct parity *p, struct xent x, int64_t first, int64_t n)
{
    int64_t at = dtype_size(p->dev[1]->at), ct = dtype_size(p->dev[1]->ct);
    x.logits = (const char *)x.logits + first * x.ld * dtype_size(p->dev[1]->logits);
    x.target += first;
    x.max = (char *)x.max + first * at;
    x.sum = (char *)x.sum + first * at;
    x.target_logit = (char *)x.target_logit + first * at;
    x.loss = (char *)x.loss + first * at;
    if (x.dlogits)
        x.dlogits = (char *)x.dlogits + first * x.ld * ct;
    x.n = n;
    return x;
}

enum step { MAX, SUM, GRAD };

static enum err call(struct dev *d, enum step step, const struct xent *x)
{
    switch (step) {
    case MAX:
        return dev_xent_max(d, x);
    case SUM:
        return dev_xent_sum(d, x);
    case GRAD:
        break;
    }
    return dev_xent_grad(d, x);
}

static void solve(struct parity *p, const struct problem *q, enum step step)
{
    for (int s = 0; s < PARITY_SIDES; s++) {
        struct xent x = xent_on(p, q, s);
        int64_t half = s == 2 ? q->x.n / 2 : 0;
        if (half > 0) {
            struct xent first = rows_of(p, x, 0, half);
            CHECK_OK(call(p->dev[s], step, &first));
            x = rows_of(p, x, half, q->x.n - half);
        }
        CHECK_OK(call(p->dev[s], step, &x));
    }
}

/* Other shards have larger maxima in some rows, add to every sum, and hold the other targets. */
static void agree_max(struct parity *p, const struct problem *q)
{
    double *max = parity_doubles(q->x.n);
    parity_get(p, q->max, 0, max);
    for (int64_t r = 0; r < q->x.n; r++)
        max[r] = fmax(max[r], test_real(-4, 10));
    parity_set(p, q->max, max);
    mem_free(max);
}

static void agree_sum(struct parity *p, const struct problem *q)
{
    double *sum = parity_doubles(q->x.n), *target_logit = parity_doubles(q->x.n);
    parity_get(p, q->sum, 0, sum);
    parity_get(p, q->target_logit, 0, target_logit);
    for (int64_t r = 0; r < q->x.n; r++) {
        sum[r] += test_real(0.1, 20);
        target_logit[r] = target_logit[r] == 0 ? test_real(-8, 8) : target_logit[r];
    }
    parity_set(p, q->sum, sum);
    parity_set(p, q->target_logit, target_logit);
    mem_free(sum);
    mem_free(target_logit);
}

static void xent(struct parity *p)
{
    for (int i = 0; i < 2 * SHAPES; i++) {
        struct problem q = make(p, i);
        solve(p, &q, MAX);
        parity_check_same(p, q.max);
        agree_max(p, &q);
        solve(p, &q, SUM);
        parity_check(p, q.sum, p->calc * parity_largest(p, q.sum));
        parity_check_same(p, q.target_logit);
        agree_sum(p, &q);
        solve(p, &q, GRAD);
        parity_check(p, q.loss, p->calc * 10);
        if (q.dlogits)
            parity_check(p, q.dlogits, p->calc);
        parity_check_same(p, q.logits);
    }
}

/* Does the gradient take the logits' place on side s, where it may? */
static bool in_place(const struct parity *p, int s)
{
    return s > 0 && p->dev[s]->logits != p->dev[s]->at;
}

/* All in one call. */
static void xent_whole(struct parity *p)
{
    for (int i = 0; i < 2 * SHAPES + LONG_ROWS; i++) {
        struct problem q = make(p, i);
        if (q.x.v == 0)
            continue;
        for (int s = 0; s < PARITY_SIDES; s++) {
            struct xent x = xent_on(p, &q, s);
            if (x.dlogits && in_place(p, s))
                x.dlogits = (void *)(uintptr_t)x.logits;
            CHECK_OK(dev_xent(p->dev[s], &x));
        }
        parity_check(p, q.loss, p->calc * 10);
        if (!q.dlogits)
            continue;
        if (in_place(p, 1))
            for (int s = 1; s < PARITY_SIDES; s++)
                CHECK_OK(dev_copy(p->dev[s], q.dlogits->on[s], q.logits->on[s],
                                  q.x.n * q.x.ld * dtype_size(p->dev[s]->ct)));
        parity_check(p, q.dlogits, p->calc);
    }
}

static void case_xent_whole(void)
{
    parity_each("cross entropy in one", xent_whole);
}

static void case_embed(void)
{
    parity_each("embed", embed);
}

static void case_embed_grad(void)
{
    parity_each("embed_grad", embed_grad);
}

static void case_positions(void)
{
    parity_each("pos_add, pos_grad", positions);
}

static void case_xent(void)
{
    parity_each("xent", xent);
}

static const struct test_case cases[] = {
    {"devices", parity_devices},
    {"embed: shards, tokens of other shards", case_embed},
    {"embed_grad: shards, tokens of other shards", case_embed_grad},
    {"positions: wrapped and offset", case_positions},
    {"cross entropy: three steps of one shard", case_xent},
    {"cross entropy in one call, in place where it may", case_xent_whole},
};
TEST_MAIN(cases)
