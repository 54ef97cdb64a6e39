/* SPDX-License-Identifier: Apache-2.0
 *
 * What is said of any operation by walking its row (op.c). None is known here by name.
 */
#include "device/op.h"

#include <stdio.h>

void *op_pointer(const struct op *op, const struct op_operand *o)
{
    void *p;
    memcpy(&p, (const char *)op + o->at, sizeof p);
    return p;
}

void op_point(struct op *op, const struct op_operand *o, const void *p)
{
    memcpy((char *)op + o->at, &p, sizeof p);
}

enum dtype op_type(const struct op_operand *o, const struct dtypes *types)
{
    switch (o->holds) {
    case HOLDS_CT: return types->ct;
    case HOLDS_LOGITS: return types->logits;
    case HOLDS_SCALARS:
    case HOLDS_SUMS:
    case HOLDS_F64: return DT_F64;
    default: return types->at;
    }
}

int64_t op_element(const struct op_operand *o, const struct dtypes *types)
{
    if (o->holds == HOLDS_BYTES)
        return 1;
    return o->holds == HOLDS_IDS ? (int64_t)sizeof(int32_t) : dtype_size(op_type(o, types));
}

int64_t op_get(const struct op *op, const struct op_field *f)
{
    const void *p = (const char *)op + f->at;
    switch (f->kind) {
    case FIELD_FLAG: return *(const bool *)p;
    case FIELD_ACT: return *(const enum gemm_act *)p;
    case FIELD_DROP: return ((const struct drop *)p)->p > 0;
    case FIELD_EXTENT: case FIELD_STRIDE: case FIELD_PLACE: return *(const int64_t *)p;
    case FIELD_REAL: case FIELD_RANGES: break;
    }
    err_bug(__FILE__, __LINE__, "a field is no whole number");
}

double op_flops(const struct op *op)
{
    return op_rows[op->kind].flops ? op_rows[op->kind].flops(op) : 0;
}

double op_bytes(const struct op *op, const struct dtypes *types)
{
    struct op_operand o[OP_OPERANDS];
    double bytes = 0;
    int n = op_rows[op->kind].operands(op, o);
    for (int i = 0; i < n; i++) {
        if ((o[i].optional && !op_pointer(op, &o[i])) || o[i].host)
            continue;
        double each = o[i].moved * (double)op_element(&o[i], types);
        bytes += o[i].access == ACCESS_ADD ? 2 * each : each;
    }
    return bytes;
}

/* The name of a flag that is set, or NULL. */
static const char *flag_of(const struct op *op, const struct op_field *f)
{
    static const char *const act[] = {[GEMM_NONE] = NULL, [GEMM_GELU] = "gelu",
                                      [GEMM_DGELU] = "gelu_grad"};
    if (f->kind == FIELD_ACT)
        return act[op_get(op, f)];
    bool flag = f->kind == FIELD_FLAG || f->kind == FIELD_DROP;
    return flag && op_get(op, f) != 0 ? f->name : NULL;
}

int op_flags(const struct op *op, const char *flag[OP_FLAGS])
{
    struct op_operand o[OP_OPERANDS];
    const struct op_row *row = &op_rows[op->kind];
    int n = row->operands(op, o), flags = 0;
    for (const struct op_field *f = row->field; f->name; f++)
        if (flag_of(op, f))
            flag[flags++] = flag_of(op, f);
    for (int i = 0; i < n; i++) {
        if (o[i].optional && o[i].name && op_pointer(op, &o[i]))
            flag[flags++] = o[i].name;
        if (op_is_over(op, o, i))
            flag[flags++] = "in_place";
    }
    return flags;
}

bool op_is_over(const struct op *op, const struct op_operand *o, int i)
{
    const void *p = op_pointer(op, &o[i]);
    return o[i].lies == LIES_MAYBE_OVER && p && p == op_pointer(op, &o[i - 1]);
}

void op_describe(const struct op *op, char *buf, size_t n)
{
    const char *flag[OP_FLAGS];
    const struct op_row *row = &op_rows[op->kind];
    size_t used = (size_t)snprintf(buf, n, "%s", row->name);
    int flags = op_flags(op, flag);
    for (const struct op_field *f = row->field; f->name && used < n; f++)
        if (f->kind == FIELD_EXTENT && op_get(op, f) != 0)
            used += (size_t)snprintf(buf + used, n - used, " %s %lld", f->name,
                                     (long long)op_get(op, f));
    for (int i = 0; i < flags && used < n; i++)
        used += (size_t)snprintf(buf + used, n - used, " +%s", flag[i]);
}
