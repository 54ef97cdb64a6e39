/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls are found again by comparing what their rows list: a step has a few dozen kinds of call,
 * whatever the number of its layers.
 */
#include "device/calls.h"

#include "base/mem.h"

/* The operation as the list keeps it, longer than what the caller's pointers point to. */
static void strip(const struct op *op, struct op *out)
{
    struct op_operand o[OP_OPERANDS];
    int n = op_rows[op->kind].operands(op, o);
    *out = *op;
    for (int i = 0; i < n; i++) {
        bool apart = o[i].lies == LIES_MAYBE_OVER && !op_is_over(op, o, i);
        void *there = apart ? CALLS_APART : CALLS_THERE;
        op_point(out, &o[i], op_pointer(op, &o[i]) ? there : NULL);
    }
    for (const struct op_field *f = op_rows[op->kind].field; f->name; f++) {
        void *p = (char *)out + f->at;
        if (f->kind == FIELD_DROP)
            *(struct drop *)p = (struct drop){.p = ((struct drop *)p)->p};
        if (f->kind == FIELD_RANGES)
            memcpy(p, &(const struct dev_ranges *){NULL}, sizeof(void *));
    }
}

/* Does another number make another call of it? */
static bool tells_apart(const struct op_field *f)
{
    return f->kind != FIELD_PLACE && f->kind != FIELD_REAL && f->kind != FIELD_RANGES;
}

static bool same(const struct op *a, const struct op *b)
{
    struct op_operand o[OP_OPERANDS];
    bool same = a->kind == b->kind;
    for (const struct op_field *f = op_rows[a->kind].field; same && f->name; f++)
        same = !tells_apart(f) || op_get(a, f) == op_get(b, f);
    for (int n = same ? op_rows[a->kind].operands(a, o) : 0; same && n > 0; n--)
        same = op_pointer(a, &o[n - 1]) == op_pointer(b, &o[n - 1]);
    return same;
}

static enum op_class class_of(const struct calls_list *l, const struct op *op)
{
    const struct gemm *g = &op->gemm;
    bool head = op->kind == OP_GEMM && (g->m == l->vocab || g->n == l->vocab || g->k == l->vocab);
    return head ? CLASS_HEAD : op_rows[op->kind].category;
}

static enum err note(struct calls_list *l, const struct op *op, const struct dtypes *types)
{
    struct op stripped;
    strip(op, &stripped);
    for (int i = 0; i < l->n; i++)
        if (same(&l->call[i].op, &stripped)) {
            l->call[i].count++;
            return ERR_OK;
        }
    if (l->n == l->room) {
        int room = l->room ? 2 * l->room : 32;
        TRY(mem_grow(l->room, room, sizeof *l->call, "the list of calls", &l->call));
        l->room = room;
    }
    l->call[l->n++] =
        (struct calls_call){stripped, class_of(l, op), op_flops(op), op_bytes(op, types), 1};
    return ERR_OK;
}

/* A few bytes between host and device: no kernel. */
static bool goes_past(const struct op *op)
{
    return op->kind == OP_H2D || op->kind == OP_D2H || op->kind == OP_SNAPSHOT;
}

static enum err noted(struct dev_hook *h, struct dev *d, const struct op *op)
{
    TRY(dev_next(h->next, d, op));
    return goes_past(op) ? ERR_OK : note((struct calls_list *)h, op, &d->types);
}

void calls_record(struct calls_list *l, struct dev *d, int64_t vocab)
{
    *l = (struct calls_list){.hook.around = noted, .vocab = vocab};
    dev_hook_put(d, &l->hook);
}

void calls_reset(struct calls_list *l)
{
    l->n = 0;
}

void calls_free(struct calls_list *l, struct dev *d)
{
    if (d)
        dev_hook_take(d, &l->hook);
    mem_free(l->call);
    *l = (struct calls_list){.n = 0};
}
