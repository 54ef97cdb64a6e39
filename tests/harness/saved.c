/* SPDX-License-Identifier: Apache-2.0
 *
 * Values are made parameter by parameter and put into the tensors by the words of ckpt.h: element
 * (o, i) is element (out0 + o, i) of the tensor, (i, out0 + o) when transposed. Nothing of the code
 * under test takes part in that.
 */
#include "saved.h"

#include "base/mem.h"
#include "base/num.h"
#include "base/text.h"
#include "ckpt/state_local.h"

static double draw(enum safet_type type)
{
    double v = test_real(-2, 2);
    return type == SAFET_F32 ? (double)(float)v : v;
}

static int tensor_of(struct saved *s, const struct hf_place *p)
{
    int i = 0;
    while (i < s->tensors && strcmp(s->tensor[i].name, p->tensor) != 0)
        i++;
    if (i < s->tensors)
        return i;
    s->tensor[i] = (struct safet_entry){.nd = p->nd, .shape = {p->shape[0], p->shape[1]}};
    memcpy(s->tensor[i].name, p->tensor, sizeof p->tensor);
    for (int k = 0; k < STATE_KINDS; k++)
        CHECK_OK(mem_new(p->shape[0] * p->shape[1], sizeof(double), "values", &s->value[k][i]));
    return s->tensors++;
}

static struct model draw_arch(enum model_kind kind)
{
    struct model a = {.kind = kind, .layers = test_range(1, 2), .heads = 2 * test_range(1, 2),
                      .head_dim = 2 * test_range(1, 3), .ffn = test_range(3, 17),
                      .vocab = test_range(3, 23), .seq = test_range(2, 9),
                      .tied = test_range(0, 1), .dropout = 0.1, .norm_eps = 1e-5,
                      .rope_theta = 10000, .init_std = 0.02};
    a.kv_heads = kind == MODEL_GPT ? a.heads : a.heads / 2;
    a.hidden = kind == MODEL_GPT ? a.heads * a.head_dim : test_range(2, 12);
    return a;
}

void saved_make(struct saved *s, enum model_kind kind, enum safet_type type)
{
    *s = (struct saved){.head = {.step = test_range(0, 1000), .run = "run \"1\"", .type = type,
                                 .model = draw_arch(kind), .config = "model:\n  kind: \"gpt\"\n",
                                 .notes = "\xc3\xa9", .seed = (uint64_t)test_random(),
                                 .data_hash = test_random(), .tokenizer = "bytes",
                                 .tokenizer_hash = test_random(), .warmup = 3, .decay = 9,
                                 .steps = 12, .within = 2, .loss = 0.1, .valid_loss = NAN,
                                 .world = 1, .layout = "tp 1"}};
    CHECK_OK(model_param_list(&s->head.model, &s->param, &s->params));
    CHECK_OK(mem_new(s->params, sizeof *s->place, "places", &s->place));
    for (int i = 0; i < s->params; i++) {
        struct hf_place *p = &s->place[i];
        const int64_t *shape = s->param[i].shape;
        hf_place(&s->head.model, &s->param[i], p);
        int t = tensor_of(s, p);
        for (int k = 0; k < STATE_KINDS; k++)
            for (int64_t j = 0; j < shape[0] * shape[1]; j++) {
                int64_t row = p->out0 + j / shape[1], col = j % shape[1];
                int64_t at = p->transposed ? col * p->shape[1] + row : row * p->shape[1] + col;
                s->value[k][t][at] = draw(type);
            }
    }
}

/* ---- cuts ---- */

static void add_chunk(struct saved *s, const struct state_chunk *c, int param,
                      const struct state_box *at)
{
    if (!CHECK(s->chunks < SAVED_CHUNKS))
        return;
    s->chunk[s->chunks] = *c;
    s->from[s->chunks].param = param;
    s->from[s->chunks].rank = (int)test_range(0, s->ranks - 1);
    s->from[s->chunks++].at = at ? *at : c->box;
}

static struct state_chunk chunk_of(const struct safet_entry *t, int kind)
{
    struct state_chunk c = {.kind = (enum state_kind)kind, .nd = t->nd,
                            .shape = {t->shape[0], t->shape[1]}};
    memcpy(c.tensor, t->name, sizeof t->name);
    return c;
}

/* Boxes by halving at random places, at most `depth` times. */
static void cut_box(struct saved *s, struct state_chunk c, int depth)
{
    int axis = (int)test_range(0, 1);
    if (c.box.n[axis] < 2)
        axis = 1 - axis;
    if (depth == 0 || c.box.n[axis] < 2 || test_range(0, 4) == 0) {
        add_chunk(s, &c, -1, NULL);
        return;
    }
    struct state_chunk rest = c;
    c.box.n[axis] = test_range(1, c.box.n[axis] - 1);
    rest.box.at[axis] += c.box.n[axis];
    rest.box.n[axis] -= c.box.n[axis];
    cut_box(s, c, depth - 1);
    cut_box(s, rest, depth - 1);
}

/* A box of a parameter, in `parts` flat ranges as data ranks share it. */
static void cut_flat(struct saved *s, int param, int kind, const struct state_box *local)
{
    const struct hf_place *p = &s->place[param];
    int64_t n = state_box_elements(local), parts = test_range(1, 3);
    for (int64_t d = 0; d < parts; d++) {
        struct state_box piece[3];
        int pieces = state_boxes(local->n[1], n * d / parts, n * (d + 1) / parts, piece);
        for (int i = 0; i < pieces; i++) {
            piece[i].at[0] += local->at[0];
            piece[i].at[1] += local->at[1];
            struct state_chunk c = chunk_of(&s->tensor[tensor_of(s, p)], kind);
            c.box = state_place_box(p, &piece[i]);
            add_chunk(s, &c, param, &piece[i]);
        }
    }
}

/* tp parts of rows or of columns. */
static void cut_param(struct saved *s, int param, int kind)
{
    const int64_t *shape = s->param[param].shape;
    int axis = shape[1] > 1 ? (int)test_range(0, 1) : 0;
    int64_t parts = num_min(test_range(1, 3), shape[axis]);
    for (int64_t r = 0; r < parts; r++) {
        struct state_box b = {{0, 0}, {shape[0], shape[1]}};
        b.at[axis] = shape[axis] * r / parts;
        b.n[axis] = shape[axis] * (r + 1) / parts - b.at[axis];
        cut_flat(s, param, kind, &b);
    }
}

void saved_cut(struct saved *s, int ranks, bool like_layout)
{
    mem_free(s->chunk);
    mem_free(s->from);
    s->chunks = 0;
    s->head.world = s->ranks = ranks;
    CHECK_OK(mem_new(SAVED_CHUNKS, sizeof *s->chunk, "chunks", &s->chunk));
    CHECK_OK(mem_new(SAVED_CHUNKS, sizeof *s->from, "chunks", &s->from));
    for (int k = 0; k < STATE_KINDS; k++) {
        for (int i = 0; like_layout && i < s->params; i++)
            cut_param(s, i, k);
        for (int i = 0; !like_layout && i < s->tensors; i++) {
            struct state_chunk c = chunk_of(&s->tensor[i], k);
            c.box = (struct state_box){{0, 0}, {c.shape[0], c.shape[1]}};
            cut_box(s, c, (int)test_range(0, 5));
        }
    }
}

/* ---- writing ---- */

static int tensor_named(const struct saved *s, const char *name)
{
    int i = 0;
    while (i < s->tensors - 1 && strcmp(s->tensor[i].name, name) != 0)
        i++;
    return i;
}

/* The values of chunk i as bytes, as its parameter holds them or as the file does. */
static int64_t bytes_of(const struct saved *s, int i, bool turned, uint8_t *out)
{
    const struct state_chunk *c = &s->chunk[i];
    const double *v = s->value[c->kind][tensor_named(s, c->tensor)];
    int64_t n = 0;
    for (int64_t a = 0; a < c->box.n[turned]; a++)
        for (int64_t b = 0; b < c->box.n[!turned]; b++) {
            int64_t row = c->box.at[0] + (turned ? b : a), col = c->box.at[1] + (turned ? a : b);
            double wide = v[row * c->shape[1] + col];
            float narrow = (float)wide;
            int64_t size = safet_type_size(s->head.type);
            memcpy(out + n, size == 8 ? (const void *)&wide : &narrow, (size_t)size);
            n += size;
        }
    return n;
}

/* Where chunk i's values are in `room`, behind which *at is moved. */
static struct state_source source_of(const struct saved *s, int i, uint8_t *room, int64_t *at)
{
    bool turned = s->from[i].param >= 0 && s->place[s->from[i].param].transposed;
    struct state_source from = {room + *at, turned};
    *at += bytes_of(s, i, turned, room + *at);
    return from;
}

static enum err write_shard(const struct saved *s, const struct state_save *save, int rank,
                            int drop, char **text)
{
    struct state_chunk *mine;
    struct state_source *from = NULL;
    struct state_shard w = {0};
    uint8_t *room = NULL;
    char name[STATE_FILE];
    int64_t at = 0;
    int n = 0;
    enum err err;
    TRY(mem_new(s->chunks, sizeof *mine, "a rank's chunks", &mine));
    TRY_OR(out, mem_new(s->chunks, sizeof *from, "a rank's chunks", &from));
    TRY_OR(out, mem_new(SAVED_BYTES, 1, "bytes of a rank", &room));
    for (int i = 0; i < s->chunks; i++)
        if (s->from[i].rank == rank && i != drop) {
            from[n] = source_of(s, i, room, &at);
            mine[n++] = s->chunk[i];
        }
    CHECK(at <= SAVED_BYTES);
    state_shard_name(rank, name);
    TRY_OR(out, state_shard_create(&w, save, name, mine, n));
    TRY_OR(out, state_shard_fill(&w, from, (int)test_range(1, 3), NULL));
    TRY_OR(out, safet_commit(&w.file));
    err = state_shard_text(&w, text);
out:
    state_shard_close(&w);
    mem_free(room);
    mem_free(from);
    mem_free(mine);
    return err;
}

enum err saved_write(const struct saved *s, const char *dir, int drop)
{
    struct state_save save = {dir, s->head.step, s->head.run, s->head.type, 0};
    char *text[SAVED_RANKS] = {NULL};
    enum err err = ERR_OK;
    for (int r = 0; r < s->ranks && err == ERR_OK; r++)
        err = write_shard(s, &save, r, drop, &text[r]);
    if (err == ERR_OK)
        err = state_index_write(&save, &s->head, (const char *const *)text, s->ranks);
    for (int r = 0; r < s->ranks; r++)
        mem_free(text[r]);
    return err;
}

/* ---- reading ---- */

static void check_box(const struct saved *s, const struct state_index *x, int t,
                      const struct state_want *w)
{
    enum { ROOM = 1 << 13 };
    static _Thread_local double wide[ROOM];
    static _Thread_local float narrow[ROOM];
    const struct state_box *b = &w->box;
    bool single = test_range(0, 1);
    if (!CHECK(state_box_elements(b) <= ROOM))
        return;
    CHECK_OK(state_read(x, w, single ? SAFET_F32 : SAFET_F64, single ? (void *)narrow : wide));
    int64_t bad = 0;
    for (int64_t r = 0; r < b->n[0]; r++)
        for (int64_t c = 0; c < b->n[1]; c++) {
            int64_t at = (b->at[0] + r) * s->tensor[t].shape[1] + b->at[1] + c;
            double want = s->value[w->kind][t][at];
            int64_t i = w->transposed ? c * b->n[0] + r : r * b->n[1] + c;
            bad += single ? narrow[i] != (float)want : wide[i] != want;
        }
    CHECK_INT(bad, 0);
}

void saved_check(const struct saved *s, const char *dir, int boxes)
{
    struct state_index x;
    CHECK_OK(state_index_open(&x, dir));
    CHECK_INT(x.tensors, s->tensors);
    for (int k = 0; k < STATE_KINDS && x.tensors; k++)
        for (int i = 0; i < (boxes ? boxes : s->tensors); i++) {
            int t = boxes ? (int)test_range(0, s->tensors - 1) : i;
            struct state_want w = {s->tensor[t].name, (enum state_kind)k, {{0, 0}, {0, 0}},
                                   test_range(0, 1)};
            for (int j = 0; j < 2; j++) {
                w.box.at[j] = boxes ? test_range(0, s->tensor[t].shape[j]) : 0;
                int64_t most = s->tensor[t].shape[j] - w.box.at[j];
                w.box.n[j] = boxes ? test_range(0, most) : most;
            }
            check_box(s, &x, t, &w);
        }
    state_index_close(&x);
}

void saved_free(struct saved *s)
{
    for (int k = 0; k < STATE_KINDS; k++)
        for (int i = 0; i < s->tensors; i++)
            mem_free(s->value[k][i]);
    mem_free(s->param);
    mem_free(s->place);
    mem_free(s->chunk);
    mem_free(s->from);
    *s = (struct saved){.params = 0};
}

char *saved_index(const char *dir)
{
    struct fs_map m = {0};
    char *text = NULL, *path;
    CHECK_OK(fs_join(dir, "index.json", &path));
    CHECK_OK(fs_map_open(&m, path, ERR_CHECKPOINT));
    CHECK_OK(mem_new(m.size + 1, 1, "an index", &text));
    if (text && m.size)
        memcpy(text, m.data, (size_t)m.size);
    fs_map_close(&m);
    mem_free(path);
    return text;
}

void saved_put_raw(const char *dir, const char *text)
{
    char *path;
    CHECK_OK(fs_join(dir, "index.json", &path));
    CHECK_OK(fs_put(path, text, (int64_t)strlen(text)));
    mem_free(path);
}

char *saved_sealed(const char *s, int64_t n, int64_t *sealed)
{
    static const char frame[] = ",\n\"hash\":\"";
    struct text t = {0};
    char *out = NULL;
    if (n >= 29 && memcmp(s + n - 29, frame, sizeof frame - 1) == 0)
        n -= 29;
    text_add_char(&t, ' ', n); /* it may have NULs */
    if (t.s)
        memcpy(t.s, s, (size_t)n);
    state_seal(&t);
    *sealed = t.len;
    CHECK_OK(text_done(&t, &out));
    return out;
}

void saved_put_index(const char *dir, const char *text)
{
    int64_t n;
    char *sealed = saved_sealed(text, (int64_t)strlen(text), &n);
    saved_put_raw(dir, sealed);
    mem_free(sealed);
}
