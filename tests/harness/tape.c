/* SPDX-License-Identifier: Apache-2.0
 *
 * A call is an operation, or one of the two that put snapshots in order. The device's functions
 * are given no more than the device, so the tape is the thread's.
 */
#include "tape.h"

#include "base/mem.h"
#include "test.h"
#include <stdio.h>

enum call { CALL_OP, CALL_JOIN, CALL_READY };

struct tape_call {
    enum call call;
    struct op op;
    int slot;
    struct dev_ranges ranges; /* that the operation points to, else empty */
};

struct dev_graph {
    struct tape_call *call; /* owned */
    int64_t n, room;
};

static _Thread_local struct tape *mine;
static _Thread_local struct dev_graph *kept; /* while it captures */

/* Its operation, with the ranges that it keeps. */
static struct op op_of(const struct tape_call *c)
{
    struct op op = c->op;
    if (op.kind == OP_ADAMW)
        op.adamw.decays = &c->ranges;
    if (op.kind == OP_SUMSQ)
        op.sumsq.of = &c->ranges;
    return op;
}

static void print_field(const struct op *op, const struct op_field *f, struct text *out)
{
    const void *p = (const char *)op + f->at;
    const struct dev_ranges *ranges;
    const struct drop *drop = p;
    text_add(out, " %s", f->name);
    if (f->kind == FIELD_REAL) {
        text_add(out, " %.17g", *(const double *)p);
    } else if (f->kind == FIELD_DROP && drop->p > 0) {
        text_add(out, " %.17g %llu %u %p %lld", drop->p, (unsigned long long)drop->seed,
                 drop->stream, (const void *)drop->step, (long long)drop->row0);
    } else if (f->kind == FIELD_RANGES) {
        memcpy(&ranges, p, sizeof ranges);
        for (int i = 0; ranges && i < 2 * ranges->n; i++)
            text_add(out, " %lld", (long long)ranges->bound[i]);
    } else {
        text_add(out, " %lld", (long long)op_get(op, f));
    }
}

/* All of an operation, pointers and places too: two with one line are the same work. */
static void print_op(const struct op *op, struct text *out)
{
    struct op_operand o[OP_OPERANDS];
    const struct op_row *row = &op_rows[op->kind];
    int n = row->operands(op, o);
    text_add(out, "%s", row->name);
    for (int i = 0; i < n; i++)
        text_add(out, " %p", o[i].host ? NULL : op_pointer(op, &o[i]));
    for (const struct op_field *f = row->field; f->name; f++)
        print_field(op, f, out);
    text_add(out, "\n");
}

static void say(struct text *t, const struct tape_call *c)
{
    struct op op = op_of(c);
    if (c->call == CALL_OP)
        print_op(&op, t);
    else
        text_add(t, "%s %d\n", c->call == CALL_JOIN ? "join" : "ready", c->slot);
}

static enum err perform(struct dev *d, const struct tape_call *c)
{
    struct op op = op_of(c);
    if (c->call == CALL_OP)
        return mine->real->run(d, &op);
    return c->call == CALL_JOIN ? mine->real->snapshot_join(d, c->slot)
                                : mine->real->snapshot_ready(d, c->slot);
}

/* A call: written down, and then done or kept. */
static enum err put(struct dev *d, const struct tape_call *c)
{
    say(&mine->text, c);
    if (!mine->capturing)
        return perform(d, c);
    if (kept->n == kept->room) {
        int64_t room = kept->room ? 2 * kept->room : 64;
        TRY(mem_grow(kept->room, room, sizeof *kept->call, "a graph", &kept->call));
        kept->room = room;
    }
    kept->call[kept->n++] = *c;
    return ERR_OK;
}

/* ---- in the device's place ---- */

static enum err t_op(struct dev_hook *h, struct dev *d, const struct op *op)
{
    struct tape_call c = {.call = CALL_OP, .op = *op};
    (void)h;
    if (op->kind == OP_ADAMW)
        c.ranges = *op->adamw.decays;
    if (op->kind == OP_SUMSQ)
        c.ranges = *op->sumsq.of;
    bool host = op->kind == OP_H2D || op->kind == OP_D2H || op->kind == OP_SNAPSHOT;
    if (!host)
        return put(d, &c);
    mine->wrong += mine->capturing; /* memory of the host: not to be captured */
    say(&mine->text, &c);
    return perform(d, &c);
}

static enum err t_snapshot_join(struct dev *d, int slot)
{
    return put(d, &(struct tape_call){.call = CALL_JOIN, .slot = slot});
}

static enum err t_snapshot_ready(struct dev *d, int slot)
{
    return put(d, &(struct tape_call){.call = CALL_READY, .slot = slot});
}

static enum err t_alloc(struct dev *d, int64_t bytes, const char *name, void **out)
{
    mine->wrong += mine->capturing;
    return mine->real->alloc(d, bytes, name, out);
}

static enum err t_sync(struct dev *d)
{
    mine->wrong += mine->capturing;
    return mine->real->sync(d);
}

static enum err t_event_record(struct dev *d, int which)
{
    mine->wrong += mine->capturing;
    return mine->real->event_record(d, which);
}

/* ---- graphs ---- */

static enum err t_graph_begin(struct dev *d)
{
    (void)d;
    TRY(mem_new(1, sizeof *kept, "a graph", &kept));
    mine->capturing = true;
    return ERR_OK;
}

static void t_graph_destroy(struct dev *d, struct dev_graph *r)
{
    (void)d;
    if (r)
        mem_free(r->call);
    mem_free(r);
}

static enum err t_graph_end(struct dev *d, struct dev_graph **out)
{
    mine->capturing = false;
    if (mine->refuses) {
        t_graph_destroy(d, kept);
        kept = NULL;
        FAIL(ERR_MEMORY, "tape: no room for a graph");
    }
    *out = kept;
    kept = NULL;
    return ERR_OK;
}

static enum err t_graph_launch(struct dev *d, struct dev_graph *r)
{
    mine->wrong += mine->capturing;
    mine->replays++;
    for (int64_t i = 0; i < r->n; i++)
        TRY(put(d, &r->call[i]));
    return ERR_OK;
}

void tape_over(struct tape *t, struct dev *d, bool can_record)
{
    const struct dev_ops *real = d->ops;
    bool refuses = t->refuses;
    *t = (struct tape){.hook.around = t_op, .real = real, .ops = *real, .refuses = refuses};
    t->ops.alloc = t_alloc;
    t->ops.sync = t_sync;
    t->ops.event_record = t_event_record;
    t->ops.snapshot_join = t_snapshot_join;
    t->ops.snapshot_ready = t_snapshot_ready;
    t->ops.graph_begin = can_record ? t_graph_begin : NULL;
    t->ops.graph_end = can_record ? t_graph_end : NULL;
    t->ops.graph_launch = can_record ? t_graph_launch : NULL;
    t->ops.graph_destroy = can_record ? t_graph_destroy : NULL;
    d->ops = &t->ops;
    dev_hook_put(d, &t->hook);
    mine = t;
}

void tape_off(struct tape *t, struct dev *d)
{
    dev_hook_take(d, &t->hook);
    d->ops = t->real;
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

bool tape_is(const char *line, enum op_kind kind)
{
    size_t n = strlen(op_rows[kind].name);
    return strncmp(line, op_rows[kind].name, n) == 0 && line[n] == ' ';
}

bool tape_is_of_layers(const char *line)
{
    for (int kind = 0; kind < OPS; kind++) {
        enum op_class c = op_rows[kind].category;
        if (tape_is(line, (enum op_kind)kind))
            return c != CLASS_OPTIM && c != CLASS_MOVE && kind != OP_SUM;
    }
    return false;
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
