/* SPDX-License-Identifier: Apache-2.0
 *
 * Do the words of a configuration reach the numbers? Layouts that agree with each other may all be
 * wrong in one way: an option that is read and not used, targets that are not the next token. So
 * each of these runs is small and simple enough that its result is known beforehand.
 */
#include "folder.h"

#include "base/num.h"
#include "ckpt/ckpt.h"

#include <limits.h>

enum { HIDDEN = 16, VOCAB = 257 };

/* Train on a token file into folder `run`; `words` ends with NULL. */
static void train(const char *run, const char *tokens, const char *const *words,
                  struct folder_seen *seen)
{
    static const char *const base[] = {
        "model.layers=1", "model.hidden=16", "model.heads=2", "model.ffn=32", "model.seq=8",
        "model.tied=false", "train.batch=4", "train.device=ref", "train.steps=2",
        "optim.schedule=constant", "optim.decay=0", "optim.clip=0"};
    folder_tokens("abc", "abc", 100);
    struct plait_config *c = folder_config(run, tokens);
    folder_set_file(c, "data.valid", tokens);
    folder_set(c, base, sizeof base / sizeof *base);
    folder_set(c, words, INT_MAX);
    test_check(folder_train(c, seen) == 0, __FILE__, __LINE__, "%s: %s", run, plait_error());
}

/* ---- the weights of a run ---- */

static void open_weights(const char *run, struct safet_file *f)
{
    char path[FOLDER_PATH];
    folder_path_in(run, "model.safetensors", path);
    CHECK_OK(safet_open(f, path));
}

static int64_t count_of(const struct safet_file *f, const char *name)
{
    const struct safet_entry *e = safet_find(f->entry, f->n, name);
    return CHECK(e != NULL) ? (e->end - e->begin) / 4 : 0;
}

static double element(const struct safet_file *f, const char *name, int64_t i)
{
    const struct safet_entry *e = safet_find(f->entry, f->n, name);
    float x = NAN;
    if (e)
        memcpy(&x, f->data + e->begin + 4 * i, 4);
    return (double)x;
}

/* Largest and smallest distance of a tensor's elements between two runs. */
static void moved(const char *from, const char *to, const char *name, double out[2])
{
    struct safet_file a, b;
    open_weights(from, &a);
    open_weights(to, &b);
    out[0] = 0;
    out[1] = INFINITY;
    for (int64_t i = 0; i < count_of(&a, name); i++) {
        double d = fabs(element(&a, name, i) - element(&b, name, i));
        out[0] = fmax(out[0], d);
        out[1] = fmin(out[1], d);
    }
    safet_close(&a);
    safet_close(&b);
}

#define WORDS(...) (const char *const[]){__VA_ARGS__, NULL}
static const char c_fc[] = "transformer.h.0.mlp.c_fc.weight";

/* ---- data ---- */

struct written { char text[256]; int n; };

static void on_text(void *arg, const char *bytes, int n)
{
    struct written *w = arg;
    for (int i = 0; i < n && w->n < 255; i++)
        w->text[w->n++] = bytes[i];
}

/* Generate from a run on one rank and on two, with sp, which must write the same. */
static void generate(const char *run, double temperature, int tokens, struct written *out)
{
    static const char *const layout[][2] = {{"parallel.tp=1", "parallel.sp=false"},
                                            {"parallel.tp=2", "parallel.sp=true"}};
    struct written w[2] = {0};
    char path[FOLDER_PATH];
    folder_path(run, path);
    for (int i = 0; i < 2; i++)
        CHECK_INT(plait_generate(&(struct plait_generate){
            .size = sizeof(struct plait_generate), .run = path, .prompt = "ab", .tokens = tokens,
            .temperature = temperature, .set = layout[i], .sets = 2, .on_text = on_text,
            .arg = &w[i], .raw = 1, .ignore_eot = 1}), 0);
    CHECK_INT(w[0].n, w[1].n);
    CHECK(memcmp(w[0].text, w[1].text, sizeof w[0].text) == 0);
    *out = w[0];
}

/* In "abcabc..." the next byte is certain, and it is not this one. */
static void next_is_learned(const char *kind, const char *run)
{
    struct folder_seen seen;
    struct written w;
    train(run, "abc", WORDS(kind, "train.steps=60", "optim.lr=0.02", "parallel.tp=2",
                            "parallel.dp=2"), &seen);
    test_check(seen.loss[59] < 0.1 && seen.valid < 0.1, __FILE__, __LINE__,
               "%s: loss %g, validation %g", kind, seen.loss[59], seen.valid);
    generate(run, 0, 10, &w);
    CHECK_STR(w.text, "abcabcabcabc");
}

static void the_next_token_is_learned(void)
{
    next_is_learned("model.kind=llama", "llama_run");
    next_is_learned("model.kind=gpt", "gpt_run");
}

/* All logits are zero: loss and validation are log(vocabulary), whoever counts what. Of the 25
 * samples the last round of validation has one, for one of the data ranks. And every byte is as
 * likely: each draw is a new one, and the row that two ranks pad the vocabulary with is none of
 * them. */
static void a_loss_is_a_mean_over_tokens(void)
{
    struct folder_seen seen;
    struct written w;
    folder_tokens("line", "eight ch", 25);
    train("zero_run", "line", WORDS("model.kind=gpt", "model.init_std=0", "optim.lr=0",
                                    "parallel.dp=2", "parallel.microbatch=2"), &seen);
    CHECK_NEAR(seen.loss[0], log(VOCAB), 1e-12);
    CHECK_NEAR(seen.loss[1], log(VOCAB), 1e-12);
    CHECK_NEAR(seen.valid, log(VOCAB), 1e-12);
    generate("zero_run", 1, 100, &w);
    int distinct = 0;
    for (int i = 2; i < w.n; i++)
        distinct += memchr(w.text + 2, w.text[i], (size_t)(i - 2)) == NULL;
    CHECK(w.n > 95 && distinct > 60);
}

/* Every sample is the same and the weights stand still, so losses differ by dropout alone. */
static void masks_move_with_the_step(void)
{
    struct folder_seen seen;
    folder_tokens("aaa", "aaaaa", 33); /* 20 samples and a rest, which holds the end of the text */
    train("still_run", "aaa", WORDS("model.kind=gpt", "optim.lr=0", "model.init_std=0.3"), &seen);
    CHECK(seen.loss[0] == seen.loss[1]);
    train("drop_run", "aaa", WORDS("model.kind=gpt", "optim.lr=0", "model.init_std=0.3",
                                   "model.dropout=0.4"), &seen);
    CHECK(seen.loss[0] != seen.loss[1]);
}

/* ---- optimizer ---- */

/* Byte 1 is not in the text, so its row of the embedding has gradient zero and only decays, by the
 * rate of each step: 1/3, 2/3 and 3/3 of lr in the warm-up, then 4/4 to 1/4 of it. */
static void the_rate_decays_weights(void)
{
    struct folder_seen seen;
    struct safet_file before, after;
    const char wte[] = "transformer.wte.weight";
    double want = 1, rate[] = {1 / 3., 2 / 3., 1, 1, 3 / 4., 2 / 4., 1 / 4.};
    train("init_run", "abc", WORDS("model.kind=gpt", "optim.lr=0"), &seen);
    train("decay_run", "abc", WORDS("model.kind=gpt", "optim.lr=0.01", "optim.decay=0.5",
                                    "train.steps=7", "optim.warmup=3", "optim.schedule=linear"),
          &seen);
    for (size_t i = 0; i < sizeof rate / sizeof *rate; i++)
        want *= 1 - 0.01 * 0.5 * rate[i];
    open_weights("init_run", &before);
    open_weights("decay_run", &after);
    for (int64_t i = HIDDEN; i < 2 * HIDDEN; i++)
        CHECK_NEAR(element(&after, wte, i) / element(&before, wte, i), want, 1e-6);
    safet_close(&before);
    safet_close(&after);
}

/* The first step moves every weight by lr |g| / (|g| + eps): by lr without eps, by next to nothing
 * when the gradient is clipped far below eps. */
static void clip_and_eps_bound_a_step(void)
{
    struct folder_seen seen;
    double far[2];
    train("start_run", "abc", WORDS("model.kind=gpt", "optim.lr=0", "train.steps=1"), &seen);
    train("eps_run", "abc", WORDS("model.kind=gpt", "optim.lr=0.001", "train.steps=1",
                                  "optim.eps=1e-20"), &seen);
    moved("start_run", "eps_run", c_fc, far);
    CHECK_NEAR(far[0], 1e-3, 1e-8);
    CHECK_NEAR(far[1], 1e-3, 1e-8);
    train("clip_run", "abc", WORDS("model.kind=gpt", "optim.lr=0.001", "train.steps=1",
                                   "optim.eps=0.001", "optim.clip=1e-6"), &seen);
    moved("start_run", "clip_run", c_fc, far);
    CHECK(far[0] > 0 && far[0] <= 1.001e-6);
}

/* Weights that decay by a factor of -9999 a step are beyond any square within a few; a norm that
 * made zeros of such rows would go on with a loss of ln V and a gradient of 0. */
static void an_overflow_ends_the_run(void)
{
    static const char *const kind[] = {"model.kind=gpt", "model.kind=llama"};
    static const char *const type[] = {"train.dtype=f32", "train.dtype=bf16"};
    for (int i = 0; i < 4; i++) {
        struct folder_seen seen;
        char run[32];
        snprintf(run, sizeof run, "overflow_run_%d", i);
        folder_tokens("abc", "abc", 100);
        struct plait_config *c = folder_config(run, "abc");
        folder_set(c, WORDS("model.layers=2", "model.hidden=32", "model.heads=2", "model.seq=16",
                            "train.batch=4", "train.steps=20", "optim.schedule=constant",
                            "optim.lr=100", "optim.decay=100", kind[i % 2], type[i / 2]), INT_MAX);
        CHECK_INT(folder_train(c, &seen), PLAIT_NONFINITE);
        for (int s = 1; s < seen.losses; s++)
            CHECK(seen.loss[s] > 100);
    }
}

/* Without a first moment the second step is at most sqrt(1.9) lr when beta2 is 0.9: the two
 * averages are not exchanged. */
static void betas_have_their_places(void)
{
    struct folder_seen seen;
    double far[2];
    static const char *const base[] = {"model.kind=gpt", "optim.lr=0.001", "optim.eps=1e-20",
                                       "optim.beta1=0", "optim.beta2=0.9", NULL};
    train("beta_run", "abc", base, &seen);
    train("beta_one", "abc", WORDS("model.kind=gpt", "optim.lr=0.001", "optim.eps=1e-20",
                                   "optim.beta1=0", "optim.beta2=0.9", "train.steps=1"), &seen);
    moved("beta_one", "beta_run", c_fc, far);
    CHECK(far[0] <= sqrt(1.9) * 1e-3 + 1e-8 && far[0] > 1e-3);
}

/* The same losses, in training and in validation, whose forward-only lists share the memory; and
 * the same weights. */
static void recompute_changes_no_number(void)
{
    static const char *const part[] = {"model.layers=4", "parallel.pp=2", "parallel.microbatch=1",
                                       "model.dropout=0.2", "train.steps=5", "train.valid_every=2",
                                       "optim.lr=0.01", "parallel.schedule=gpipe"};
    const char *words[10] = {0};
    struct folder_seen plain, full;
    double far[2];
    memcpy(words, part, sizeof part);
    train("redo_plain", "abc", words, &plain);
    words[8] = "train.recompute=full";
    train("redo_full", "abc", words, &full);
    CHECK(plain.losses == 5 && full.losses == 5);
    CHECK(memcmp(plain.loss, full.loss, 5 * sizeof *plain.loss) == 0);
    CHECK(isfinite(plain.valid) && plain.valid == full.valid);
    moved("redo_plain", "redo_full", c_fc, far);
    CHECK(far[0] == 0 && far[1] == 0);
}

/* ---- weights ---- */

/* gpt's q, k and v lie in one transposed tensor. What is drawn is written where it belongs, and
 * output projections are smaller by sqrt(2 L). */
static void weights_are_those_drawn(void)
{
    static const char *const name[] = {"layers.0.attn.q.weight", "layers.0.attn.k.weight",
                                       "layers.0.attn.v.weight"};
    struct folder_seen seen;
    struct safet_file f;
    train("drawn_run", "abc", WORDS("model.kind=gpt", "model.init_std=0.5", "optim.lr=0",
                                    "train.seed=5", "parallel.tp=2"), &seen);
    open_weights("drawn_run", &f);
    CHECK_INT(count_of(&f, "transformer.h.0.attn.c_attn.weight"), 3 * HIDDEN * HIDDEN);
    for (int64_t k = 0; k < 3 * HIDDEN * HIDDEN; k++) {
        int64_t in = k / (3 * HIDDEN), which = k % (3 * HIDDEN) / HIDDEN, out = k % HIDDEN;
        double want = 0.5 * num_normal(5, num_hash(name[which]), out * HIDDEN + in);
        CHECK_NEAR(element(&f, "transformer.h.0.attn.c_attn.weight", k), want, 1e-6);
    }
    CHECK_NEAR(element(&f, "transformer.h.0.attn.c_proj.weight", 3 * HIDDEN + 2),
               0.5 / sqrt(2.0) * num_normal(5, num_hash("layers.0.attn.o.weight"), 2 * HIDDEN + 3),
               1e-6);
    safet_close(&f);
}

static void on_done_copy(void *arg, const char *summary)
{
    snprintf(arg, 400, "%s", summary);
}

/* A run may leave no weights; then it says so, and so does what would read them. */
static void no_weights_are_kept(void)
{
    char summary[400] = "", path[FOLDER_PATH];
    static const char *const words[] = {
        "model.layers=1", "model.hidden=16", "model.heads=2", "model.ffn=32", "model.seq=8",
        "train.batch=4", "train.device=ref", "train.steps=1", "run.save=false"};
    folder_tokens("abc", "abc", 100);
    struct plait_config *c = folder_config("unsaved", "abc");
    folder_set(c, words, sizeof words / sizeof *words);
    CHECK_INT(plait_train(c, &(struct plait_train){.size = sizeof(struct plait_train),
              .on_done = on_done_copy, .arg = summary}), 0);
    plait_config_free(c);
    test_check(strstr(summary, "; no weights kept (run.save false)") != NULL, __FILE__, __LINE__,
               "said: %s", summary);
    folder_path_in("unsaved", "metrics.jsonl", path);
    CHECK(fs_exists(path));
    folder_path_in("unsaved", "model.safetensors", path);
    CHECK(!fs_exists(path));
    folder_path("unsaved", path);
    CHECK_INT(plait_generate(&(struct plait_generate){.size = sizeof(struct plait_generate),
              .run = path, .tokens = 1}), PLAIT_CONFIG);
    CHECK(strstr(plait_error(), "/unsaved, so the run left no weights") != NULL);
}

static const struct test_case cases[] = {
    {"no_weights_are_kept", no_weights_are_kept},
    {"the_next_token_is_learned", the_next_token_is_learned},
    {"a_loss_is_a_mean_over_tokens", a_loss_is_a_mean_over_tokens},
    {"masks_move_with_the_step", masks_move_with_the_step},
    {"the_rate_decays_weights", the_rate_decays_weights},
    {"an_overflow_ends_the_run", an_overflow_ends_the_run},
    {"clip_and_eps_bound_a_step", clip_and_eps_bound_a_step},
    {"betas_have_their_places", betas_have_their_places},
    {"recompute_changes_no_number", recompute_changes_no_number},
    {"weights_are_those_drawn", weights_are_those_drawn}};
TEST_MAIN(cases)
