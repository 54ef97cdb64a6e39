/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights of random models in files of every type that is read, one or several, and in checkpoints:
 * any box of any parameter is what was written, in either orientation and type; what is not the
 * model's is refused before anything is read.
 */
#include "ckpt/weights.h"
#include "saved.h"

#include "base/mem.h"
#include "base/num.h"
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define DIR_NAME "weights"
enum { MODELS = 24, BOXES = 40, LARGEST = 4096 };

/* As that type holds it. */
static double rounded(enum safet_type type, double v)
{
    if (type == SAFET_F16) /* to 2^-8: exact in half precision for |v| <= 2 */
        return (double)(int)(v * 256) / 256;
    if (type == SAFET_BF16)
        return (double)bf16_to_f32(bf16_from_f32((float)v));
    return type == SAFET_F32 ? (double)(float)v : v;
}

/* Half precision of those multiples of 2^-8, by trying. */
static uint16_t half_of(double v)
{
    static uint16_t half[1025];
    static bool made;
    for (uint32_t h = 0; h <= UINT16_MAX && !made; h++) {
        double is = (double)f16_to_f32((uint16_t)h) * 256;
        if (is >= -512 && is <= 512 && is == (int)is)
            half[512 + (int)is] = (uint16_t)h;
    }
    made = true;
    return half[512 + (int)(v * 256)];
}

/* Bytes of a value that the type holds exactly. */
static void bytes_of(enum safet_type type, double v, uint8_t out[8])
{
    float single = (float)v;
    uint16_t half = type == SAFET_F16 ? half_of(v) : bf16_from_f32(single);
    if (type == SAFET_F64)
        memcpy(out, &v, 8);
    else if (type == SAFET_F32)
        memcpy(out, &single, 4);
    else
        memcpy(out, &half, 2);
}

static void put_file(struct saved *s, const char *name, enum safet_type type, int first, int step)
{
    struct safet_entry e[SAVED_TENSORS] = {0};
    struct safet_writer w;
    char path[128];
    int n = 0;
    snprintf(path, sizeof path, DIR_NAME "/%s", name);
    for (int t = first; t < s->tensors; t += step) {
        e[n] = (struct safet_entry){.type = type, .nd = s->tensor[t].nd,
                                    .shape = {s->tensor[t].shape[0], s->tensor[t].shape[1]}};
        memcpy(e[n++].name, s->tensor[t].name, 128);
    }
    CHECK_OK(safet_create(&w, path, false, e, n, NULL));
    for (int t = first; t < s->tensors; t += step)
        for (int64_t i = 0; i < s->tensor[t].shape[0] * s->tensor[t].shape[1]; i++) {
            uint8_t bytes[8];
            double *v = &s->value[STATE_WEIGHT][t][i];
            *v = rounded(type, *v);
            bytes_of(type, *v, bytes);
            CHECK_OK(safet_write(&w, bytes, safet_type_size(type)));
        }
    CHECK_OK(safet_commit(&w));
}

static enum safet_type draw_type(void)
{
    return (enum safet_type)test_range(SAFET_F64, SAFET_BF16);
}

/* One file; or two, each of a type of its own, and their index. */
static void put_files(struct saved *s, bool shards)
{
    struct text map = {0};
    (void)unlink(DIR_NAME "/model.safetensors");
    (void)unlink(DIR_NAME "/model.safetensors.index.json");
    if (!shards) {
        put_file(s, "model.safetensors", draw_type(), 0, 1);
        return;
    }
    put_file(s, "a.safetensors", draw_type(), 0, 2);
    put_file(s, "b.safetensors", draw_type(), 1, 2);
    text_add(&map, "{\"weight_map\":{");
    for (int t = 0; t < s->tensors; t++)
        text_add(&map, "%s\"%s\":\"%s.safetensors\"", t ? "," : "", s->tensor[t].name,
                 t % 2 ? "b" : "a");
    text_add(&map, "}}");
    CHECK_OK(fs_put(DIR_NAME "/model.safetensors.index.json", map.s, map.len));
    text_free(&map);
}

static const double *value_of(const struct saved *s, const struct hf_place *at)
{
    int t = 0;
    while (t < s->tensors - 1 && strcmp(s->tensor[t].name, at->tensor) != 0)
        t++;
    return s->value[STATE_WEIGHT][t];
}

/* A random box of a random parameter, by the words of ckpt.h. */
static void check_box(const struct saved *s, const struct weights *w, bool wide)
{
    static union { double f64[LARGEST]; float f32[LARGEST]; } out;
    int i = (int)test_range(0, s->params - 1);
    const struct hf_place *at = &s->place[i];
    const int64_t *shape = s->param[i].shape;
    const double *value = value_of(s, at);
    struct state_box b;
    for (int k = 0; k < 2; k++) {
        b.at[k] = test_range(0, shape[k] - 1);
        b.n[k] = test_range(1, shape[k] - b.at[k]);
    }
    struct weights_tensor t;
    if (!CHECK(b.n[0] * b.n[1] <= LARGEST))
        return;
    CHECK_OK(weights_find(w, at, &t));
    CHECK_OK(weights_read(&t, &b, wide ? SAFET_F64 : SAFET_F32, &out));
    int wrong = 0;
    for (int64_t k = 0; k < b.n[0] * b.n[1]; k++) {
        int64_t row = at->out0 + b.at[0] + k / b.n[1], col = b.at[1] + k % b.n[1];
        int64_t j = at->transposed ? col * at->shape[1] + row : row * at->shape[1] + col;
        wrong += wide ? out.f64[k] != value[j] : out.f32[k] != (float)value[j];
    }
    test_check(wrong == 0, __FILE__, __LINE__, "%s: %d of %lld elements are others", at->tensor,
               wrong, (long long)(b.n[0] * b.n[1]));
}

static void check_all(const struct saved *s, const char *dir)
{
    struct weights w;
    enum err err = weights_open(&w, dir);
    if (!test_check(err == ERR_OK, __FILE__, __LINE__, "%s", err_text()))
        return;
    CHECK_OK(weights_check(&w, &s->head.model));
    for (int i = 0; i < BOXES; i++)
        check_box(s, &w, test_range(0, 1));
    weights_close(&w);
}

static void every_box(void)
{
    struct saved s;
    for (int i = 0; i < MODELS; i++) {
        saved_make(&s, i % 2 ? MODEL_GPT : MODEL_LLAMA, SAFET_F64);
        CHECK_OK(fs_make_dirs(DIR_NAME));
        put_files(&s, i / 2 % 2);
        check_all(&s, DIR_NAME);
        saved_free(&s);
    }
}

/* The same of checkpoints, whose folder has an index of its own. */
static void of_checkpoints(void)
{
    struct saved s;
    for (int i = 0; i < MODELS / 3; i++) {
        const char *dir = i % 2 ? "saved-1" : "saved-0";
        saved_make(&s, i % 2 ? MODEL_GPT : MODEL_LLAMA, i / 2 % 2 ? SAFET_F32 : SAFET_F64);
        saved_cut(&s, (int)test_range(1, SAVED_RANKS), test_range(0, 1));
        CHECK_OK(fs_make_dirs(dir));
        CHECK_OK(saved_write(&s, dir, -1));
        check_all(&s, dir);
        CHECK_OK(state_remove(dir));
        saved_free(&s);
    }
}

/* What has the name of an index is a checkpoint's, also where it cannot be opened. */
static void of_a_link(void)
{
    struct weights w;
    CHECK_OK(fs_make_dirs("linked"));
    CHECK(!state_exists("linked"));
    CHECK(symlink("nowhere", "linked/index.json") == 0);
    CHECK(state_exists("linked"));
    CHECK_ERR(weights_open(&w, "linked"), ERR_CHECKPOINT, "linked/index.json");
    CHECK(unlink("linked/index.json") == 0);
    CHECK_ERR(weights_open(&w, "linked"), ERR_CHECKPOINT, "linked/model.safetensors");
}

static uint64_t digest_of(const struct saved *s)
{
    struct weights w;
    uint64_t digest = 0;
    CHECK_OK(saved_write(s, "digest", -1));
    enum err err = weights_open(&w, "digest");
    CHECK_OK(err);
    if (err == ERR_OK)
        digest = weights_digest(&w);
    weights_close(&w);
    return digest;
}

/* The digest is of every scalar, but for the loss that may come later, and of every number. */
static void the_digest(void)
{
    struct saved s;
    CHECK_OK(fs_make_dirs("digest"));
    saved_make(&s, MODEL_LLAMA, SAFET_F32);
    saved_cut(&s, 2, true);
    const struct state_head first = s.head;
    struct state_head h[18];
    int n = 0;
    for (size_t i = 0; i < sizeof h / sizeof *h; i++)
        h[i] = first;
    h[n++].step++;
    h[n++].run[0] ^= 1;
    h[n++].config = "train: {}";
    h[n++].notes = "of another GPU";
    h[n++].seed++;
    h[n++].data_hash++;
    h[n++].valid_hash++;
    h[n++].tokenizer[0] = 'x';
    h[n++].tokenizer_hash++;
    h[n++].warmup++;
    h[n++].decay++;
    h[n++].steps++;
    h[n++].within++;
    h[n++].loss = 0.125;
    h[n++].world++;
    h[n++].layout[0] = 'x';
    h[n++].model.norm_eps *= 2;
    h[n++].model.rope_theta *= 2;
    CHECK_INT(n, sizeof h / sizeof *h);
    uint64_t digest = digest_of(&s);
    for (int i = 0; i < n; i++) {
        s.head = h[i];
        test_check(digest_of(&s) != digest, __FILE__, __LINE__, "scalar %d does not count", i);
    }
    s.head = first;
    CHECK(digest_of(&s) == digest);
    s.head.valid_loss = 3;
    CHECK(digest_of(&s) == digest);
    s.head = first;
    s.value[STATE_V][s.tensors - 1][0] += 1;
    CHECK(digest_of(&s) != digest);
    saved_free(&s);
}

/* Another model's, by each of its sizes, from both forms. */
static void another_models(void)
{
    struct saved s;
    struct weights w[2];
    saved_make(&s, MODEL_GPT, SAFET_F32);
    CHECK_OK(fs_make_dirs(DIR_NAME));
    CHECK_OK(fs_make_dirs("saved"));
    put_files(&s, false);
    saved_cut(&s, 2, true);
    CHECK_OK(saved_write(&s, "saved", -1));
    CHECK_OK(weights_open(&w[0], DIR_NAME));
    CHECK_OK(weights_open(&w[1], "saved"));
    CHECK(weights_digest(&w[0]) != weights_digest(&w[1]));
    for (int i = 0; i < 2; i++) {
        struct model a[] = {s.head.model, s.head.model, s.head.model, s.head.model, s.head.model,
                            s.head.model};
        a[0].layers++;
        a[1].vocab++;
        a[2].seq++;
        a[3].ffn++;
        a[4].tied = !a[4].tied;
        a[5].layers--;
        for (int k = 0; k < (s.head.model.layers > 1 ? 6 : 5); k++)
            CHECK_ERR(weights_check(&w[i], &a[k]), ERR_CHECKPOINT, "ckpt: ");
        CHECK_OK(weights_check(&w[i], &s.head.model));
        weights_close(&w[i]);
    }
    CHECK_OK(state_remove("saved"));
    saved_free(&s);
    CHECK_ERR(weights_open(&w[0], "nowhere"), ERR_CHECKPOINT, "nowhere");
}

static const struct test_case cases[] = {{"every box", every_box},
                                         {"of checkpoints", of_checkpoints},
                                         {"of a link", of_a_link},
                                         {"the digest", the_digest},
                                         {"another model's", another_models}};
TEST_MAIN(cases)
