/* SPDX-License-Identifier: Apache-2.0
 *
 * A call is an operation, a few plain pointers and numbers, and at most two of the device table's
 * structs. say() writes it down, field by field, since structs have gaps; perform() does it. The
 * device's functions are given no more than the device, so the tape is the thread's.
 */
#include "tape.h"

#include "base/mem.h"
#include "test.h"
#include <stdio.h>

enum op {
    OP_GEMM, OP_BIAS_GRAD, OP_NORM, OP_NORM_GRAD, OP_ATTN, OP_ATTN_GRAD, OP_ROPE, OP_SWIGLU,
    OP_SWIGLU_GRAD, OP_RESIDUAL, OP_RESIDUAL_NORM, OP_DROPOUT, OP_EMBED, OP_EMBED_GRAD, OP_POS_ADD,
    OP_POS_GRAD, OP_XENT, OP_XENT_MAX, OP_XENT_SUM, OP_XENT_GRAD, OP_ADAMW, OP_SCALE, OP_SUM,
    OP_SUMSQ, OP_CAST, OP_ADD, OP_COPY, OP_ZERO, OP_ASIDE_JOIN,
    OP_ASIDE_READY
};

struct tape_call {
    enum op op;
    void *to;
    const void *from, *third;
    int64_t n[4];
    double x;
    union {
        struct gemm gemm;
        struct norm_grad norm_grad;
        struct attn_grad attn; /* forward: its f */
        struct rope rope;
        struct { struct residual residual; struct norm norm; } rows; /* one of them, or both */
        struct xent xent;
        struct adamw adamw;
        struct drop drop;
    } arg;
    struct dev_parts parts; /* of adamw and sumsq; adamw's `decays` is not */
};

struct dev_recording {
    struct tape_call *call; /* owned */
    int64_t n, room;
};

static _Thread_local struct tape *mine;
static _Thread_local struct dev_recording *kept; /* while recording */

/* ---- in words ---- */

static void say_drop(struct text *t, const struct drop *d)
{
    if (d->p > 0)
        text_add(t, " drop %g %llu %u %p %lld", d->p, (unsigned long long)d->seed, d->stream,
                 (const void *)d->step, (long long)d->row0);
}

static void say_attn(struct text *t, const struct attn *a)
{
    text_add(t, " %p %p %p %p %p", a->o, a->lse, a->q, a->k, a->v);
    const int64_t n[] = {a->b, a->tq, a->tk, a->heads, a->kv_heads, a->d, a->ldq, a->ldk, a->ldv,
                         a->ldo, a->heads_total, a->head0};
    for (size_t i = 0; i < sizeof n / sizeof *n; i++)
        text_add(t, " %lld", (long long)n[i]);
    text_add(t, " %g", a->scale);
    say_drop(t, &a->drop);
}

static void say_gemm(struct text *t, const struct gemm *g)
{
    text_add(t, " %p %p %p %p %p %p", g->c, g->a, g->b, g->bias, g->pre, g->db);
    text_add(t, " %lld %lld %lld %lld %lld %lld %d%d%d%d %d", (long long)g->m, (long long)g->n,
             (long long)g->k, (long long)g->lda, (long long)g->ldb, (long long)g->ldc, g->trans_a,
             g->trans_b, g->accumulate, g->c_at, (int)g->act);
}

static void say_norm(struct text *t, const struct norm *a)
{
    text_add(t, " %p %p %p %p %p %p %lld %lld %g %d", a->y, a->mean, a->rstd, a->x, a->w, a->b,
             (long long)a->n, (long long)a->c, a->eps, a->rms);
}

static void say_norm_grad(struct text *t, const struct norm_grad *a)
{
    text_add(t, " %p %p %p %p %p %p %p %p %p %lld %lld %d", a->dx, a->d, a->dw, a->db, a->dy, a->x,
             a->w, a->mean, a->rstd, (long long)a->n, (long long)a->c, a->rms);
}

static void say_residual(struct text *t, const struct residual *a)
{
    text_add(t, " %p %p %p %p %lld %lld", a->y, a->x, a->f, a->bias, (long long)a->n,
             (long long)a->c);
    say_drop(t, &a->drop);
}

static void say_xent(struct text *t, const struct xent *x)
{
    text_add(t, " %p %p %p %p %p %p %p %lld %lld %lld %lld", x->logits, (const void *)x->target,
             x->max, x->sum, x->hit, x->loss, x->dlogits, (long long)x->n, (long long)x->v,
             (long long)x->ld, (long long)x->v0);
}

static void say_parts(struct text *t, const struct dev_parts *p)
{
    for (int i = 0; i < 2 * p->n; i++)
        text_add(t, " %lld", (long long)p->edge[i]);
}

static void say_adamw(struct text *t, const struct adamw *a)
{
    text_add(t, " %p %p %p %p %p %lld %g %g %g %g %p", a->w, a->master, a->m, a->v, a->grad,
             (long long)a->n, a->beta1, a->beta2, a->eps, a->decay, (const void *)a->now);
}

static void say_rope(struct text *t, const struct rope *r)
{
    text_add(t, " %p %p %lld %lld %lld %lld %lld %lld %d", r->x, r->table, (long long)r->n,
             (long long)r->t, (long long)r->pos0, (long long)r->heads, (long long)r->d,
             (long long)r->ld, r->inverse);
}

static void say(struct text *t, const struct tape_call *c)
{
    text_add(t, "%d %p %p %p %lld %lld %lld %lld %g", (int)c->op, c->to, c->from, c->third,
             (long long)c->n[0], (long long)c->n[1], (long long)c->n[2], (long long)c->n[3], c->x);
    switch (c->op) {
    case OP_GEMM: say_gemm(t, &c->arg.gemm); break;
    case OP_NORM: say_norm(t, &c->arg.rows.norm); break;
    case OP_NORM_GRAD: say_norm_grad(t, &c->arg.norm_grad); break;
    case OP_ATTN_GRAD:
        text_add(t, " %p %p %p %p %p", c->arg.attn.do_, c->arg.attn.dq, c->arg.attn.dk,
                 c->arg.attn.dv, c->arg.attn.delta);
        say_attn(t, &c->arg.attn.f);
        break;
    case OP_ATTN: say_attn(t, &c->arg.attn.f); break;
    case OP_ROPE: say_rope(t, &c->arg.rope); break;
    case OP_RESIDUAL_NORM:
        say_norm(t, &c->arg.rows.norm);
        say_residual(t, &c->arg.rows.residual);
        break;
    case OP_RESIDUAL: say_residual(t, &c->arg.rows.residual); break;
    case OP_DROPOUT: say_drop(t, &c->arg.drop); break;
    case OP_XENT: case OP_XENT_MAX: case OP_XENT_SUM: case OP_XENT_GRAD:
        say_xent(t, &c->arg.xent);
        break;
    case OP_ADAMW: say_adamw(t, &c->arg.adamw); break;
    case OP_BIAS_GRAD: case OP_SWIGLU: case OP_SWIGLU_GRAD: case OP_EMBED: case OP_EMBED_GRAD:
    case OP_POS_ADD: case OP_POS_GRAD: case OP_SCALE: case OP_SUM: case OP_SUMSQ: case OP_CAST:
    case OP_ADD: case OP_COPY: case OP_ZERO: case OP_ASIDE_JOIN: case OP_ASIDE_READY:
        break; /* pointers and numbers alone */
    }
    say_parts(t, &c->parts);
    text_add(t, "\n");
}

/* ---- doing it ---- */

static enum err perform_flat(struct dev *d, const struct tape_call *c)
{
    const struct dev_ops *o = mine->real;
    const int64_t *n = c->n;
    switch (c->op) {
    case OP_BIAS_GRAD: return o->bias_grad(d, c->to, c->from, n[0], n[1]);
    case OP_SWIGLU: return o->swiglu(d, c->to, c->from, n[0], n[1]);
    case OP_SWIGLU_GRAD: return o->swiglu_grad(d, c->to, c->from, c->third, n[0], n[1]);
    case OP_EMBED: return o->embed(d, c->to, c->from, c->third, n[0], n[1], n[2], n[3]);
    case OP_EMBED_GRAD: return o->embed_grad(d, c->to, c->from, c->third, n[0], n[1], n[2], n[3]);
    case OP_POS_ADD: return o->pos_add(d, c->to, c->from, n[0], n[1], n[2], n[3]);
    case OP_POS_GRAD: return o->pos_grad(d, c->to, c->from, n[0], n[1], n[2], n[3]);
    case OP_SCALE: return o->scale(d, c->to, c->from, c->x);
    case OP_SUM: return o->sum(d, c->to, c->from, n[0]);
    case OP_SUMSQ: return o->sumsq(d, c->to, c->from, &c->parts);
    case OP_CAST: return o->cast(d, c->to, c->from, n[0]);
    case OP_ADD: return o->add(d, c->to, c->from, n[0]);
    case OP_COPY: return o->copy(d, c->to, c->from, n[0]);
    case OP_ZERO: return o->zero(d, c->to, n[0]);
    case OP_ASIDE_JOIN: return o->aside_join(d, (int)n[0]);
    case OP_ASIDE_READY: return o->aside_ready(d, (int)n[0]);
    default: break;
    }
    FAIL(ERR_INTERNAL, "tape: operation %d is not known", (int)c->op);
}

static enum err perform(struct dev *d, const struct tape_call *c)
{
    const struct dev_ops *o = mine->real;
    switch (c->op) {
    case OP_GEMM: return o->gemm(d, &c->arg.gemm);
    case OP_NORM: return o->norm(d, &c->arg.rows.norm);
    case OP_NORM_GRAD: return o->norm_grad(d, &c->arg.norm_grad);
    case OP_ATTN: return o->attn(d, &c->arg.attn.f);
    case OP_ATTN_GRAD: return o->attn_grad(d, &c->arg.attn);
    case OP_ROPE: return o->rope(d, &c->arg.rope);
    case OP_RESIDUAL: return o->residual(d, &c->arg.rows.residual);
    case OP_RESIDUAL_NORM:
        return o->residual_norm(d, &c->arg.rows.residual, &c->arg.rows.norm);
    case OP_DROPOUT: return o->dropout(d, c->to, c->from, c->n[0], c->n[1], &c->arg.drop);
    case OP_XENT: return o->xent(d, &c->arg.xent);
    case OP_XENT_MAX: return o->xent_max(d, &c->arg.xent);
    case OP_XENT_SUM: return o->xent_sum(d, &c->arg.xent);
    case OP_XENT_GRAD: return o->xent_grad(d, &c->arg.xent);
    case OP_ADAMW: {
        struct adamw a = c->arg.adamw;
        a.decays = &c->parts;
        return o->adamw(d, &a);
    }
    default: return perform_flat(d, c);
    }
}

/* A call: written down, and then done or kept. */
static enum err put(struct dev *d, const struct tape_call *c)
{
    say(&mine->text, c);
    if (!mine->recording) {
        /* what a device makes of its own slots is its own affair */
        d->ops = mine->real;
        enum err err = perform(d, c);
        d->ops = &mine->ops;
        return err;
    }
    if (kept->n == kept->room) {
        int64_t room = kept->room ? 2 * kept->room : 64;
        TRY(mem_grow(kept->room, room, sizeof *kept->call, "a recording", &kept->call));
        kept->room = room;
    }
    kept->call[kept->n++] = *c;
    return ERR_OK;
}

/* ---- the device's functions ---- */

#define PUT(...) put(d, &(struct tape_call){__VA_ARGS__})

static enum err t_gemm(struct dev *d, const struct gemm *g)
{
    return PUT(.op = OP_GEMM, .arg.gemm = *g);
}
static enum err t_norm(struct dev *d, const struct norm *a)
{
    return PUT(.op = OP_NORM, .arg.rows.norm = *a);
}
static enum err t_norm_grad(struct dev *d, const struct norm_grad *a)
{
    return PUT(.op = OP_NORM_GRAD, .arg.norm_grad = *a);
}
static enum err t_attn(struct dev *d, const struct attn *a)
{
    return PUT(.op = OP_ATTN, .arg.attn.f = *a);
}
static enum err t_attn_grad(struct dev *d, const struct attn_grad *a)
{
    return PUT(.op = OP_ATTN_GRAD, .arg.attn = *a);
}
static enum err t_rope(struct dev *d, const struct rope *a)
{
    return PUT(.op = OP_ROPE, .arg.rope = *a);
}
static enum err t_residual(struct dev *d, const struct residual *a)
{
    return PUT(.op = OP_RESIDUAL, .arg.rows.residual = *a);
}
static enum err t_residual_norm(struct dev *d, const struct residual *a, const struct norm *b)
{
    return PUT(.op = OP_RESIDUAL_NORM, .arg.rows = {*a, *b});
}
static enum err t_dropout(struct dev *d, void *dx, const void *dy, int64_t n, int64_t c,
                          const struct drop *drop)
{
    return PUT(.op = OP_DROPOUT, .to = dx, .from = dy, .n = {n, c}, .arg.drop = *drop);
}
static enum err t_bias_grad(struct dev *d, void *db, const void *dy, int64_t n, int64_t c)
{
    return PUT(.op = OP_BIAS_GRAD, .to = db, .from = dy, .n = {n, c});
}
static enum err t_swiglu(struct dev *d, void *out, const void *gu, int64_t n, int64_t f)
{
    return PUT(.op = OP_SWIGLU, .to = out, .from = gu, .n = {n, f});
}
static enum err t_swiglu_grad(struct dev *d, void *dgu, const void *dout, const void *gu, int64_t n,
                              int64_t f)
{
    return PUT(.op = OP_SWIGLU_GRAD, .to = dgu, .from = dout, .third = gu, .n = {n, f});
}
/* long: the device table gives these eight arguments; so for the three below */
static enum err t_embed(struct dev *d, void *out, const void *w, const int32_t *token, int64_t n,
                        int64_t c, int64_t v0, int64_t rows)
{
    return PUT(.op = OP_EMBED, .to = out, .from = w, .third = token, .n = {n, c, v0, rows});
}
/* long: as above */
static enum err t_embed_grad(struct dev *d, void *dw, const void *dy, const int32_t *token,
                             int64_t n, int64_t c, int64_t v0, int64_t rows)
{
    return PUT(.op = OP_EMBED_GRAD, .to = dw, .from = dy, .third = token, .n = {n, c, v0, rows});
}
/* long: as above */
static enum err t_pos_add(struct dev *d, void *x, const void *w, int64_t n, int64_t c, int64_t t,
                          int64_t row0)
{
    return PUT(.op = OP_POS_ADD, .to = x, .from = w, .n = {n, c, t, row0});
}
/* long: as above */
static enum err t_pos_grad(struct dev *d, void *dw, const void *dy, int64_t n, int64_t c, int64_t t,
                           int64_t row0)
{
    return PUT(.op = OP_POS_GRAD, .to = dw, .from = dy, .n = {n, c, t, row0});
}
static enum err t_xent(struct dev *d, const struct xent *x)
{
    return PUT(.op = OP_XENT, .arg.xent = *x);
}
static enum err t_xent_max(struct dev *d, const struct xent *x)
{
    return PUT(.op = OP_XENT_MAX, .arg.xent = *x);
}
static enum err t_xent_sum(struct dev *d, const struct xent *x)
{
    return PUT(.op = OP_XENT_SUM, .arg.xent = *x);
}
static enum err t_xent_grad(struct dev *d, const struct xent *x)
{
    return PUT(.op = OP_XENT_GRAD, .arg.xent = *x);
}
static enum err t_adamw(struct dev *d, const struct adamw *a)
{
    return PUT(.op = OP_ADAMW, .arg.adamw = *a, .parts = *a->decays);
}
static enum err t_scale(struct dev *d, double *now, const double *sums, double clip)
{
    return PUT(.op = OP_SCALE, .to = now, .from = sums, .x = clip);
}
static enum err t_sum(struct dev *d, double *out, const void *x, int64_t n)
{
    return PUT(.op = OP_SUM, .to = out, .from = x, .n = {n});
}
static enum err t_sumsq(struct dev *d, double *out, const void *x, const struct dev_parts *of)
{
    return PUT(.op = OP_SUMSQ, .to = out, .from = x, .parts = *of);
}
static enum err t_cast(struct dev *d, void *to, const void *from, int64_t n)
{
    return PUT(.op = OP_CAST, .to = to, .from = from, .n = {n});
}
static enum err t_add(struct dev *d, void *to, const void *from, int64_t n)
{
    return PUT(.op = OP_ADD, .to = to, .from = from, .n = {n});
}
static enum err t_copy(struct dev *d, void *to, const void *from, int64_t bytes)
{
    return PUT(.op = OP_COPY, .to = to, .from = from, .n = {bytes});
}
static enum err t_zero(struct dev *d, void *p, int64_t bytes)
{
    return PUT(.op = OP_ZERO, .to = p, .n = {bytes});
}

static enum err t_aside_join(struct dev *d, int slot)
{
    return PUT(.op = OP_ASIDE_JOIN, .n = {slot});
}

static enum err t_aside_ready(struct dev *d, int slot)
{
    return PUT(.op = OP_ASIDE_READY, .n = {slot});
}

/* ---- memory of the host: not to be recorded ---- */

static enum err t_copy_in(struct dev *d, void *to, const void *host_from, int64_t bytes)
{
    mine->wrong += mine->recording;
    text_add(&mine->text, "in %p %lld\n", to, (long long)bytes);
    return mine->real->copy_in(d, to, host_from, bytes);
}

static enum err t_copy_out(struct dev *d, void *host_to, const void *from, int64_t bytes)
{
    mine->wrong += mine->recording;
    text_add(&mine->text, "out %p %lld\n", from, (long long)bytes);
    return mine->real->copy_out(d, host_to, from, bytes);
}

static enum err t_aside(struct dev *d, int slot, void *host_to, const void *from, int64_t bytes)
{
    mine->wrong += mine->recording;
    text_add(&mine->text, "aside %p %lld\n", from, (long long)bytes);
    return mine->real->aside(d, slot, host_to, from, bytes);
}

static enum err t_alloc(struct dev *d, int64_t bytes, const char *name, void **out)
{
    mine->wrong += mine->recording;
    return mine->real->alloc(d, bytes, name, out);
}

static enum err t_sync(struct dev *d)
{
    mine->wrong += mine->recording;
    return mine->real->sync(d);
}

static enum err t_mark(struct dev *d, int which)
{
    mine->wrong += mine->recording;
    return mine->real->mark(d, which);
}

/* ---- recording ---- */

static enum err t_record_begin(struct dev *d)
{
    (void)d;
    TRY(mem_new(1, sizeof *kept, "a recording", &kept));
    mine->recording = true;
    return ERR_OK;
}

static void t_forget(struct dev *d, struct dev_recording *r)
{
    (void)d;
    if (r)
        mem_free(r->call);
    mem_free(r);
}

static enum err t_record_end(struct dev *d, struct dev_recording **out)
{
    mine->recording = false;
    if (mine->refuses) {
        t_forget(d, kept);
        kept = NULL;
        FAIL(ERR_MEMORY, "tape: no room for a recording");
    }
    *out = kept;
    kept = NULL;
    return ERR_OK;
}

static enum err t_replay(struct dev *d, struct dev_recording *r)
{
    mine->wrong += mine->recording;
    mine->replays++;
    for (int64_t i = 0; i < r->n; i++)
        TRY(put(d, &r->call[i]));
    return ERR_OK;
}

static const struct dev_ops tape_ops = {
    .gemm = t_gemm, .bias_grad = t_bias_grad, .norm = t_norm, .norm_grad = t_norm_grad,
    .attn = t_attn, .attn_grad = t_attn_grad, .rope = t_rope, .swiglu = t_swiglu,
    .swiglu_grad = t_swiglu_grad, .residual = t_residual, .residual_norm = t_residual_norm,
    .dropout = t_dropout, .embed = t_embed, .embed_grad = t_embed_grad, .pos_add = t_pos_add,
    .pos_grad = t_pos_grad, .xent = t_xent, .xent_max = t_xent_max, .xent_sum = t_xent_sum,
    .xent_grad = t_xent_grad, .adamw = t_adamw, .scale = t_scale, .sum = t_sum, .sumsq = t_sumsq,
    .cast = t_cast, .add = t_add, .copy = t_copy, .zero = t_zero, .copy_in = t_copy_in,
    .copy_out = t_copy_out, .alloc = t_alloc, .sync = t_sync, .mark = t_mark, .aside = t_aside,
    .aside_join = t_aside_join, .aside_ready = t_aside_ready,
};

void tape_over(struct tape *t, struct dev *d, bool can_record)
{
    const struct dev_ops *real = d->ops;
    bool refuses = t->refuses;
    *t = (struct tape){.real = real, .ops = tape_ops, .refuses = refuses};
    t->ops.name = real->name;
    t->ops.close = real->close;
    t->ops.describe = real->describe;
    t->ops.free = real->free;
    t->ops.host_alloc = real->host_alloc;
    t->ops.host_free = real->host_free;
    t->ops.room = real->room;
    t->ops.reach = real->reach;
    t->ops.aside_reach = real->aside_reach;
    t->ops.choices = real->choices;
    t->ops.choose = real->choose;
    t->ops.queue = real->queue;
    t->ops.stamps = real->stamps;
    t->ops.stamp = real->stamp;
    t->ops.stamped = real->stamped;
    if (can_record) {
        t->ops.record_begin = t_record_begin;
        t->ops.record_end = t_record_end;
        t->ops.replay = t_replay;
        t->ops.forget = t_forget;
    }
    d->ops = &t->ops;
    mine = t;
}

void tape_begin(struct tape *t)
{
    CHECK_OK(t->text.err);
    text_free(&t->text);
    t->text = (struct text){0};
}

void tape_free(struct tape *t)
{
    text_free(&t->text);
    *t = (struct tape){0};
}

static bool is_call(const char *line, int op)
{
    char text[16];
    int n = snprintf(text, sizeof text, "%d ", op);
    return strncmp(line, text, (size_t)n) == 0;
}

bool tape_is_of_layers(const char *line)
{
    for (int op = 0; op < OP_ADAMW; op++)
        if (is_call(line, op))
            return true;
    return false;
}

bool tape_is_attention(const char *line)
{
    return is_call(line, OP_ATTN);
}

const char *tape_difference(const struct text *a, const struct text *b, char buf[400])
{
    const char *x = a->s ? a->s : "", *y = b->s ? b->s : "";
    int64_t line = 1;
    while (*x == *y && *x) {
        size_t n = strcspn(x, "\n") + 1;
        if (strncmp(x, y, n) != 0)
            break;
        x += n;
        y += n;
        line++;
    }
    if (*x == '\0' && *y == '\0')
        return NULL;
    snprintf(buf, 400, "call %lld: %.*s, not %.*s", (long long)line,
             (int)(strcspn(x, "\n") < 180 ? strcspn(x, "\n") : 180), x,
             (int)(strcspn(y, "\n") < 180 ? strcspn(y, "\n") : 180), y);
    return buf;
}
