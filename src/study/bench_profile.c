/* SPDX-License-Identifier: Apache-2.0
 *
 * The profile of a machine as a file for planning: JSON, its members as docs/cluster-profile.md
 * lists them. Numbers have all their digits, so that what is read is what was measured.
 */
#include "study/bench.h"

#include "base/fs.h"
#include "base/mem.h"
#include "base/text.h"

enum { VERSION = 2 };

static void add_device(const struct bench *b, struct text *t)
{
    text_add(t, "  \"device\": {\"name\": ");
    text_add_json(t, b->device);
    text_add(t, ", \"dtype\": \"%s\"},\n", dtype_name(b->types.ct));
    text_add(t, "  \"product\": {\"flops_per_s\": %.17g, \"side\": %lld},\n", b->gemm,
             (long long)b->gemm_side);
    text_add(t, "  \"copy\": {\"bytes_per_s\": %.17g, \"bytes\": %lld},\n", b->copy,
             (long long)b->copy_bytes);
}

static void add_call(const struct bench_call *b, struct text *t)
{
    const struct calls_call *c = &b->call;
    const struct op_row *row = &op_rows[c->op.kind];
    const char *flag[OP_FLAGS];
    int flags = op_flags(&c->op, flag);
    bool first = true;
    text_add(t, "\n    {\"op\": \"%s\", \"class\": \"%s\", \"sizes\": {", row->name,
             op_class_name(c->class));
    for (const struct op_field *f = row->field; f->name; f++) {
        if (f->kind != FIELD_EXTENT && f->kind != FIELD_STRIDE)
            continue;
        text_add(t, "%s\"%s\": %lld", first ? "" : ", ", f->name, (long long)op_get(&c->op, f));
        first = false;
    }
    text_add(t, "}, \"flags\": [");
    for (int i = 0; i < flags; i++)
        text_add(t, "%s\"%s\"", i ? ", " : "", flag[i]);
    text_add(t, "], \"count\": %lld, \"flops\": %.17g, \"bytes\": %.17g, \"seconds\": %.17g}",
             (long long)c->count, c->flops, c->bytes, b->seconds);
}

static void add_calls(const struct bench *b, struct text *t)
{
    text_add(t, "  \"calls\": [");
    for (int i = 0; i < b->calls; i++) {
        add_call(&b->call[i], t);
        text_add(t, "%s", i < b->calls - 1 ? "," : "");
    }
    text_add(t, "%s],\n", b->calls ? "\n  " : "");
}

static void add_links(const struct bench *b, struct text *t)
{
    bool first = true;
    text_add(t, "  \"links\": [");
    for (int l = 0; l < BENCH_LINKS; l++) {
        if (b->points[l] == 0)
            continue;
        text_add(t, "%s\n    {\"op\": \"%s\", \"ranks\": %d, \"points\": [", first ? "" : ",",
                 bench_link_name((enum bench_link)l), b->ranks);
        for (int i = 0; i < b->points[l]; i++)
            text_add(t, "%s[%lld, %.17g]", i ? ", " : "", (long long)b->curve[l][i].bytes,
                     b->curve[l][i].seconds);
        text_add(t, "]}");
        first = false;
    }
    text_add(t, "%s]\n", first ? "" : "\n  ");
}

enum err bench_profile(const struct bench *b, const char *path)
{
    struct text t = {0};
    text_add(&t, "{\n  \"plait_profile\": %d,\n", VERSION);
    add_device(b, &t);
    text_add(&t, "  \"step_tokens\": %lld,\n", (long long)b->tokens);
    add_calls(b, &t);
    add_links(b, &t);
    text_add(&t, "}\n");
    enum err err = t.err;
    if (err == ERR_OK)
        err = fs_put(path, t.s, t.len);
    text_free(&t);
    return err;
}
