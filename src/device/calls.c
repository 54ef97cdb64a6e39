/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls in words: one row an operation, with its class and the names of its sizes.
 */
#include "device/calls.h"

#include <stdio.h>

struct row {
    const char *name;
    enum calls_class class;
    const char *size[CALLS_SIZES]; /* "flags" is shown by flag_name */
};

static const struct row rows[CALLS_OPS] = {
    [CALL_GEMM] = {"gemm", CLASS_PRODUCT, {"m", "n", "k", "lda", "ldb", "ldc", "flags"}},
    [CALL_BIAS_GRAD] = {"bias_grad", CLASS_PRODUCT, {"n", "c"}},
    [CALL_NORM] = {"norm", CLASS_NORM, {"n", "c", "flags"}},
    [CALL_NORM_GRAD] = {"norm_grad", CLASS_NORM, {"n", "c", "flags"}},
    [CALL_ATTN] = {"attn", CLASS_ATTENTION, {"b", "tq", "tk", "heads", "kv_heads", "d", "ldq",
                                             "ldk", "ldv", "ldo", "flags"}},
    [CALL_ATTN_GRAD] = {"attn_grad", CLASS_ATTENTION,
                        {"b", "tq", "tk", "heads", "kv_heads", "d", "ldq", "ldk", "ldv", "ldo",
                         "flags"}},
    [CALL_ROPE] = {"rope", CLASS_ACTIVATION, {"n", "t", "heads", "d", "ld", "flags"}},
    [CALL_SWIGLU] = {"swiglu", CLASS_ACTIVATION, {"n", "f"}},
    [CALL_SWIGLU_GRAD] = {"swiglu_grad", CLASS_ACTIVATION, {"n", "f"}},
    [CALL_RESIDUAL] = {"residual", CLASS_NORM, {"n", "c", "flags"}},
    [CALL_RESIDUAL_NORM] = {"residual_norm", CLASS_NORM, {"n", "c", "flags"}},
    [CALL_DROPOUT] = {"dropout", CLASS_NORM, {"n", "c", "flags"}},
    [CALL_EMBED] = {"embed", CLASS_EMBED, {"n", "c", "rows"}},
    [CALL_EMBED_GRAD] = {"embed_grad", CLASS_EMBED, {"n", "c", "rows"}},
    [CALL_POS_ADD] = {"pos_add", CLASS_EMBED, {"n", "c", "t"}},
    [CALL_POS_GRAD] = {"pos_grad", CLASS_EMBED, {"n", "c", "t"}},
    [CALL_XENT] = {"xent", CLASS_HEAD, {"n", "v", "ld", "flags"}},
    [CALL_XENT_MAX] = {"xent_max", CLASS_HEAD, {"n", "v", "ld", "flags"}},
    [CALL_XENT_SUM] = {"xent_sum", CLASS_HEAD, {"n", "v", "ld", "flags"}},
    [CALL_XENT_GRAD] = {"xent_grad", CLASS_HEAD, {"n", "v", "ld", "flags"}},
    [CALL_ADAMW] = {"adamw", CLASS_OPTIM, {"n", "flags"}},
    [CALL_SCALE] = {"scale", CLASS_OPTIM, {NULL}},
    [CALL_SUM] = {"sum", CLASS_HEAD, {"n"}},
    [CALL_SUMSQ] = {"sumsq", CLASS_OPTIM, {"n"}},
    [CALL_CAST] = {"cast", CLASS_MOVE, {"n"}},
    [CALL_ADD] = {"add", CLASS_MOVE, {"n"}},
    [CALL_COPY] = {"copy", CLASS_MOVE, {"bytes"}},
    [CALL_ZERO] = {"zero", CLASS_MOVE, {"bytes"}},
};

const char *calls_op_name(enum calls_op op)
{
    return rows[op].name;
}

enum calls_class calls_op_class(enum calls_op op)
{
    return rows[op].class;
}

const char *calls_class_name(enum calls_class c)
{
    static const char *const name[CALLS_CLASSES] = {
        [CLASS_NONE] = "no class", [CLASS_PRODUCT] = "products", [CLASS_ATTENTION] = "attention",
        [CLASS_NORM] = "norm, residual", [CLASS_ACTIVATION] = "activation, rotary",
        [CLASS_EMBED] = "embedding", [CLASS_HEAD] = "head and loss", [CLASS_OPTIM] = "optimizer",
        [CLASS_MOVE] = "copy, zero"};
    return name[c];
}

const char *calls_size_name(enum calls_op op, int i)
{
    return i < CALLS_SIZES ? rows[op].size[i] : NULL;
}

/* Name of bit `bit` in the flags of an operation. */
static const char *flag_name(enum calls_op op, int bit)
{
    static const char *const product[] = {"trans_a", "trans_b", "accumulate", "wide", "bias",
                                          "bias_grad", "gelu", "gelu_grad"};
    static const char *const other[] = {"mean", "bias", "rms", "plus", "x", "dropout", "gradient",
                                        "in_place", "master", "inverse"};
    if (op == CALL_GEMM)
        return bit < 8 ? product[bit] : NULL;
    return bit < 10 ? other[bit] : NULL;
}

void calls_describe(const struct calls_call *c, char *buf, size_t n)
{
    size_t used = (size_t)snprintf(buf, n, "%s", rows[c->op].name);
    for (int i = 0; calls_size_name(c->op, i) && used < n; i++) {
        const char *name = rows[c->op].size[i];
        bool flags = strcmp(name, "flags") == 0;
        if (!flags && name[0] != 'l' && c->size[i] != 0) /* strides follow from extents */
            used += (size_t)snprintf(buf + used, n - used, " %s %lld", name,
                                     (long long)c->size[i]);
        for (int bit = 0; flags && flag_name(c->op, bit) && used < n; bit++)
            if (c->size[i] >> bit & 1)
                used += (size_t)snprintf(buf + used, n - used, " +%s", flag_name(c->op, bit));
    }
}
