/* SPDX-License-Identifier: Apache-2.0
 *
 * One rank's shard: a safetensors file of its chunks, which state_fill.c puts there. Its header
 * says of which step and run it is, and the index has the header's hash: a shard of another save is
 * told from a damaged one.
 */
#include "ckpt/state_local.h"

#include "base/mem.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static enum err make_entries(const struct state_shard *s, struct safet_entry *e)
{
    for (int i = 0; i < s->n; i++) {
        const struct state_chunk *c = &s->chunk[i];
        const char *why = state_chunk_fault(c);
        if (!why && !state_chunk_name(c, e[i].name))
            why = "its name is empty or too long";
        if (why)
            FAIL(ERR_INTERNAL, "ckpt: chunk %d of %d, of tensor %.127s, cannot be written: %s", i,
                 s->n, c->tensor, why);
        e[i].type = s->type;
        e[i].nd = c->nd;
        memcpy(e[i].shape, c->box.n, sizeof c->box.n);
    }
    return ERR_OK;
}

static enum err open_file(struct state_shard *s, const struct state_save *save,
                          struct safet_entry *e)
{
    char step[24], *path;
    const char *notes[] = {"plait", STATE_FORMAT, "step", step, "run", save->run, NULL};
    snprintf(step, sizeof step, "%" PRId64, save->step);
    TRY(make_entries(s, e));
    TRY(fs_join(save->dir, s->name, &path));
    enum err err = safet_create(&s->file, path, e, s->n, notes);
    mem_free(path);
    return err;
}

static enum err create(struct state_shard *s, const struct state_save *save,
                       const struct state_chunk *chunk)
{
    struct safet_entry *e;
    TRY(mem_new(s->n, sizeof *s->chunk, "the chunks of a shard", &s->chunk));
    if (s->n > 0)
        memcpy(s->chunk, chunk, (size_t)s->n * sizeof *chunk);
    TRY(mem_new(s->n, sizeof *e, "the entries of a shard", &e));
    enum err err = open_file(s, save, e);
    mem_free(e);
    return err;
}

enum err state_shard_create(struct state_shard *s, const struct state_save *save, const char *name,
                            const struct state_chunk *chunk, int n)
{
    enum dtype held = save->type == SAFET_F64 ? DT_F64 : DT_F32;
    *s = (struct state_shard){.type = save->type, .n = n,
                              .most = save->most > 0 ? save->most : dtype_most(held)};
    ENSURE(n >= 0 && strlen(name) < STATE_FILE && save->type <= SAFET_F32);
    memcpy(s->name, name, strlen(name) + 1);
    enum err err = create(s, save, chunk);
    if (err == ERR_OK) {
        s->header = s->file.header_hash;
        s->bytes = s->file.front + s->file.total;
    } else {
        state_shard_close(s);
    }
    return err;
}

enum err state_shard_commit(struct state_shard *s)
{
    return safet_commit(&s->file);
}

enum err state_shard_text(const struct state_shard *s, char **out)
{
    struct text t = {0};
    text_add(&t, "{\"file\":\"%s\",\"bytes\":%" PRId64 ",\"hash\":\"%016" PRIx64 "\",\"chunks\":[",
             s->name, s->bytes, s->header);
    for (int i = 0; i < s->n; i++) {
        const struct state_chunk *c = &s->chunk[i];
        text_add(&t, "%s\n[", i ? "," : "");
        text_add_json(&t, c->tensor);
        text_add(&t, ",\"%s\",", state_kind_name(c->kind));
        for (int j = 0; j < 2; j++) {
            const int64_t *v = j ? c->box.n : c->box.at;
            text_add(&t, c->nd == 2 ? "[%" PRId64 ",%" PRId64 "]," : "[%" PRId64 "],", v[0], v[1]);
        }
        text_add(&t, "\"%016" PRIx64 "\"]", c->hash);
    }
    text_add(&t, "]}");
    return text_done(&t, out);
}

void state_shard_close(struct state_shard *s)
{
    safet_abandon(&s->file);
    mem_free(s->chunk);
    *s = (struct state_shard){0};
}
