/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls in words: one row an operation, with its class and the names of its sizes.
 */
#include "device/calls.h"

#include <stdio.h>

struct row {
    const char *name;
    const char *size[CALLS_SIZES]; /* "flags" is shown by flag_name */
};

static const struct row rows[CALLS_OPS] = {
    [CALL_GEMM] = {"gemm", {"m", "n", "k", "lda", "ldb", "ldc", "flags"}},
    [CALL_BIAS_GRAD] = {"bias_grad", {"n", "c"}},
    [CALL_NORM] = {"norm", {"n", "c", "flags"}},
    [CALL_NORM_GRAD] = {"norm_grad", {"n", "c", "flags"}},
    [CALL_ATTN] = {"attn", {"b", "tq", "tk", "heads", "kv_heads", "d", "ldq", "ldk", "ldv", "ldo",
                            "flags"}},
    [CALL_ATTN_GRAD] = {"attn_grad", {"b", "tq", "tk", "heads", "kv_heads", "d", "ldq", "ldk",
                                      "ldv", "ldo", "flags"}},
    [CALL_ROPE] = {"rope", {"n", "t", "heads", "d", "ld", "flags"}},
    [CALL_SWIGLU] = {"swiglu", {"n", "f"}},
    [CALL_SWIGLU_GRAD] = {"swiglu_grad", {"n", "f"}},
    [CALL_RESIDUAL] = {"residual", {"n", "c", "flags"}},
    [CALL_RESIDUAL_NORM] = {"residual_norm", {"n", "c", "flags"}},
    [CALL_DROPOUT] = {"dropout", {"n", "c", "flags"}},
    [CALL_EMBED] = {"embed", {"n", "c", "rows"}},
    [CALL_EMBED_GRAD] = {"embed_grad", {"n", "c", "rows"}},
    [CALL_POS_ADD] = {"pos_add", {"n", "c", "t"}},
    [CALL_POS_GRAD] = {"pos_grad", {"n", "c", "t"}},
    [CALL_XENT] = {"xent", {"n", "v", "ld", "flags"}},
    [CALL_XENT_MAX] = {"xent_max", {"n", "v", "ld", "flags"}},
    [CALL_XENT_SUM] = {"xent_sum", {"n", "v", "ld", "flags"}},
    [CALL_XENT_GRAD] = {"xent_grad", {"n", "v", "ld", "flags"}},
    [CALL_ADAMW] = {"adamw", {"n", "flags"}},
    [CALL_SCALE] = {"scale", {NULL}},
    [CALL_SUM] = {"sum", {"n"}},
    [CALL_SUMSQ] = {"sumsq", {"n"}},
    [CALL_CAST] = {"cast", {"n"}},
    [CALL_ADD] = {"add", {"n"}},
    [CALL_COPY] = {"copy", {"bytes"}},
    [CALL_ZERO] = {"zero", {"bytes"}},
};

const char *calls_op_name(enum calls_op op)
{
    return rows[op].name;
}

const char *calls_class_name(enum calls_class c)
{
    static const char *const name[CALLS_CLASSES] = {"products", "attention", "norm, residual",
                                                    "activation, rotary", "embedding",
                                                    "head and loss", "optimizer", "copy, zero"};
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
