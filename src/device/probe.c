/* SPDX-License-Identifier: Apache-2.0
 *
 * A hook around a device's operations (dev_hook). What each reads and writes stands in its row
 * (op.h): what was written is looked at behind it. What is read is looked at behind a find alone,
 * but what is written over is before the call, too.
 *
 * A device with memory of its own is read in pieces through the host, which waits for each: slow,
 * and right for any device without a kernel that only this would use.
 */
#include "device/probe.h"

#include "base/mem.h"

enum { PIECE = 4 << 20 };

/* ---- looking ---- */

/* Of n elements the first that is not finite, or n. */
static int64_t first_of(const void *p, enum dtype t, int64_t begin, int64_t n)
{
    unsigned bad = 0;
    if (t == DT_F64)
        return num_within_f64((const double *)p + begin, n, dtype_most(t));
    if (t == DT_F32)
        return num_within_f32((const float *)p + begin, n, (float)dtype_most(t));
    for (int64_t i = begin; i < begin + n; i++) /* without a branch: compilers make vectors of it */
        bad |= (((const uint16_t *)p)[i] & 0x7f80u) == 0x7f80u;
    for (int64_t i = 0; i < n && bad; i++)
        if (!isfinite(dtype_get(p, t, begin + i)))
            return i;
    return n;
}

/* Elements begin .. begin + n - 1 of the operand, its gaps between rows counted, lie at p. */
static bool look_at(const struct probe_operand *o, const void *p, int64_t begin, int64_t n,
                    struct probe_element *at)
{
    int64_t ld = o->ld ? o->ld : o->cols;
    for (int64_t i = begin; i < begin + n; i = (i / ld + 1) * ld) {
        int64_t col = i % ld, m = num_min(o->cols - col, begin + n - i);
        int64_t first = m > 0 ? first_of(p, o->type, i - begin, m) : m;
        if (m <= 0 || first == m)
            continue;
        *at = (struct probe_element){i / ld, col + first, o->rows, o->cols,
                                     dtype_get(p, o->type, i - begin + first)};
        return false;
    }
    return true;
}

static enum err look_through(struct dev *d, const struct probe_operand *o, void *host,
                             struct probe_element *at, bool *finite)
{
    int64_t ld = o->ld ? o->ld : o->cols, all = (o->rows - 1) * ld + o->cols;
    int64_t size = dtype_size(o->type), most = PIECE / size;
    *finite = true;
    if (o->rows <= 0 || o->cols <= 0 || !o->p)
        return ERR_OK;
    if (!d->async) {
        *finite = look_at(o, o->p, 0, all, at);
        return ERR_OK;
    }
    for (int64_t i = 0; i < all && *finite; i += most) {
        int64_t n = num_min(most, all - i);
        TRY(d->ops->run(d, &(struct op){.kind = OP_D2H,
                                        .d2h = {host, (const char *)o->p + i * size, n * size}}));
        TRY(d->ops->sync(d));
        *finite = look_at(o, host, i, n, at);
    }
    return ERR_OK;
}

enum err probe_look(struct dev *d, const struct probe_operand *o, struct probe_element *at,
                    bool *finite)
{
    void *host = NULL;
    if (d->async)
        TRY(d->ops->host_alloc(d, PIECE, "numbers that are looked at", &host));
    enum err err = look_through(d, o, host, at, finite);
    if (host)
        d->ops->host_free(d, host);
    return err;
}

/* ---- a call ---- */

/* Operand i of the call under way. Range by range where it has ranges: what lies between two may be
 * anything. The operand of a find is then the range. */
static enum err look_at_operand(struct probe *p, struct dev *d, int i, const struct dev_ranges *of,
                                bool *finite)
{
    struct probe_operand *o = &p->operand[i];
    const struct probe_operand whole = *o;
    *finite = true;
    if (!of)
        return look_through(d, o, p->host, &p->element, finite);
    for (int k = 0; k < of->n && *finite; k++) {
        int64_t begin = of->bound[2 * k];
        o->p = (const char *)whole.p + begin * dtype_size(whole.type);
        o->cols = of->bound[2 * k + 1] - begin;
        TRY(look_through(d, o, p->host, &p->element, finite));
    }
    if (*finite)
        *o = whole;
    return ERR_OK;
}

/* Operands that are read, and written over or not: the first that is not finite. */
static enum err look_at_read(struct probe *p, struct dev *d, const struct op_operand *row,
                             bool over, bool *finite)
{
    *finite = true;
    for (int i = 0; i < p->operands && *finite; i++) {
        bool written = false;
        for (int k = 0; k < p->operands; k++)
            written = written || (p->operand[k].written && p->operand[k].p == p->operand[i].p);
        if ((row[i].access & ACCESS_READ) && written == over)
            TRY(look_at_operand(p, d, i, row[i].ranges, finite));
    }
    return ERR_OK;
}

/* What is said of a find is written down of each call, until there is one. */
static enum err probed(struct dev_hook *h, struct dev *d, const struct op *op)
{
    struct probe *p = (struct probe *)h;
    struct op_operand row[OP_OPERANDS];
    bool finite = true;
    if (op_rows[op->kind].blind)
        return dev_next(h->next, d, op);
    if (p->goes_on)
        TRY(p->goes_on());
    p->calls++;
    if (p->found)
        return dev_next(h->next, d, op);
    p->kind = op->kind;
    p->part = d->part;
    p->call = p->calls;
    p->operands = op_rows[op->kind].operands(op, row);
    for (int i = 0; i < p->operands; i++) {
        const struct op_operand *o = &row[i];
        const void *at = op_pointer(op, o);
        bool seen = at && o->holds != HOLDS_IDS && o->access != ACCESS_SCRATCH;
        p->operand[i] = (struct probe_operand){
            .p = at, .rows = seen ? o->rows : 0, .cols = o->cols, .ld = o->ld,
            .type = op_type(o, &d->types), .written = o->access & ACCESS_WRITE};
    }
    TRY(look_at_read(p, d, row, true, &finite));
    p->found = p->met = !finite;
    TRY(dev_next(h->next, d, op));
    finite = true;
    for (int i = 0; i < p->operands && finite && !p->found; i++)
        if (p->operand[i].written)
            TRY(look_at_operand(p, d, i, row[i].ranges, &finite));
    if (finite)
        return ERR_OK;
    p->found = true;
    TRY(look_at_read(p, d, row, false, &finite)); /* of a find there it is the element */
    p->met = !finite;
    return ERR_OK;
}

/* ---- on and off ---- */

enum err probe_on(struct dev *d, struct probe *p)
{
    *p = (struct probe){.hook.around = probed};
    if (d->async)
        TRY(d->ops->host_alloc(d, PIECE, "numbers that are looked at", &p->host));
    dev_hook_put(d, &p->hook);
    return ERR_OK;
}

void probe_off(struct dev *d, struct probe *p)
{
    dev_hook_take(d, &p->hook);
    if (p->host)
        d->ops->host_free(d, p->host);
    p->host = NULL;
}
