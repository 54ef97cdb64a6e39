/* SPDX-License-Identifier: Apache-2.0
 *
 * Whole runs against PyTorch's, through the public interface: what is reported of each step and of
 * each validation, and every tensor of the weights on disk by the names of transformers. The runs,
 * their keys and the format are described in tests/oracle/torch_runs.py. A fault that all layouts
 * share is seen here: a key that is not used, a mask that backward has not, a norm or a rate that
 * is reported as another, a sample that is left out.
 */
#include "folder.h"

#include "base/fs.h"
#include "ckpt/ckpt.h"

#include <stdlib.h>

enum { STEPS_MAX = 16, TENSORS_MAX = 64, WORDS_MAX = 32, SPLIT_WORDS = 6 };

struct want_tensor { char name[128]; int nd; int64_t shape[2]; double l2, wave; };

struct want {
    char name[64];
    char word[WORDS_MAX][64];
    int words, steps, tensors;
    double loss[STEPS_MAX + 1], norm[STEPS_MAX + 1], lr[STEPS_MAX + 1]; /* by step */
    double valid[STEPS_MAX + 1];                                      /* NaN: none */
    int64_t tokens[STEPS_MAX + 1];
    struct want_tensor tensor[TENSORS_MAX];
};

/* ---- the fixture ---- */

static void read_words(struct want *w, char *line)
{
    int used = 0;
    for (char *at = line + 4; w->words < WORDS_MAX && sscanf(at, "%63s%n", w->word[w->words],
                                                             &used) == 1; at += used)
        w->words++;
}

static void read_line(struct want *w, char *line)
{
    double loss, norm, lr;
    long long step, n[2];
    int nd;
    struct want_tensor *t = &w->tensor[w->tensors];
    sscanf(line, "run %63s", w->name);
    if (strncmp(line, "set ", 4) == 0)
        read_words(w, line);
    if (sscanf(line, "step %lld loss %lf norm %lf lr %lf tokens %lld", &step, &loss, &norm, &lr,
               &n[0]) == 5 && CHECK(step <= STEPS_MAX && step == w->steps + 1)) {
        w->steps = (int)step;
        w->loss[step] = loss;
        w->norm[step] = norm;
        w->lr[step] = lr;
        w->tokens[step] = n[0];
    }
    if (sscanf(line, "valid %lld loss %lf", &step, &loss) == 2 && CHECK(step <= STEPS_MAX))
        w->valid[step] = loss;
    if (sscanf(line, "tensor %127s %d %lld %lld l2 %lf wave %lf", t->name, &nd, &n[0], &n[1],
               &t->l2, &t->wave) == 6 && CHECK(w->tensors + 1 < TENSORS_MAX)) {
        t->nd = nd;
        t->shape[0] = n[0];
        t->shape[1] = n[1];
        w->tensors++;
    }
}

/* ---- what is reported ---- */

struct seen {
    const struct want *want;
    double bound; /* relative */
    int steps, valids;
    double seconds; /* of the steps until now */
};

static void near(const struct seen *s, const char *what, int64_t step, double got, double want)
{
    test_check(fabs(got - want) <= s->bound * fabs(want), __FILE__, __LINE__,
               "%s, step %lld: %s is %.12g, wanted %.12g", s->want->name, (long long)step, what,
               got, want);
}

static void on_step(void *arg, const struct plait_step *p)
{
    struct seen *s = arg;
    const struct want *w = s->want;
    if (!CHECK(p->step == ++s->steps && p->step <= w->steps && p->steps == w->steps))
        return;
    near(s, "loss", p->step, p->loss, w->loss[p->step]);
    near(s, "norm", p->step, p->grad_norm, w->norm[p->step]);
    test_check(fabs(p->lr - w->lr[p->step]) <= 1e-14, __FILE__, __LINE__,
               "%s, step %lld: lr is %.17g, wanted %.17g", w->name, (long long)p->step, p->lr,
               w->lr[p->step]);
    CHECK_INT(p->tokens, w->tokens[p->step]);
    s->seconds += p->seconds;
    CHECK_NEAR(p->seconds_left, s->seconds / (double)p->step * (double)(w->steps - p->step),
               1e-9 * s->seconds * (double)w->steps);
    CHECK_NEAR(p->tokens_per_s * p->seconds, (double)w->tokens[1], 1e-6 * (double)w->tokens[1]);
}

static void on_valid(void *arg, int64_t step, double loss, double bits)
{
    struct seen *s = arg;
    s->valids++;
    if (!CHECK(step >= 1 && step <= s->want->steps && step == s->steps))
        return;
    near(s, "validation loss", step, loss, s->want->valid[step]);
    near(s, "bits a byte", step, bits, s->want->valid[step] / 0.69314718055994530942);
}

/* The value of a key in a line of metrics.jsonl; NaN: not there. */
static double value_of(const char *line, const char *key)
{
    char word[32];
    snprintf(word, sizeof word, "\"%s\": ", key);
    const char *at = strstr(line, word);
    return at ? strtod(at + strlen(word), NULL) : NAN;
}

/* metrics.jsonl says the same, to the digits that it has. */
static void check_metrics(const struct seen *s, const char *run)
{
    char path[FOLDER_PATH], line[1024];
    const struct want *w = s->want;
    struct seen digits = {.want = w, .bound = fmax(s->bound, 1e-8)};
    int steps = 0;
    folder_path_in(run, "metrics.jsonl", path);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f)) {
        if (!isfinite(value_of(line, "grad_norm")))
            continue;
        if (!CHECK(++steps <= w->steps))
            break;
        CHECK_INT(value_of(line, "step"), steps);
        CHECK_INT(value_of(line, "tokens"), w->tokens[steps]);
        near(&digits, "loss in metrics.jsonl", steps, value_of(line, "loss"), w->loss[steps]);
        near(&digits, "norm in metrics.jsonl", steps, value_of(line, "grad_norm"), w->norm[steps]);
        near(&digits, "lr in metrics.jsonl", steps, value_of(line, "lr"), w->lr[steps]);
        CHECK_NEAR(value_of(line, "tokens_per_s") * value_of(line, "seconds"),
                   (double)w->tokens[1], 1e-4 * (double)w->tokens[1]);
    }
    if (CHECK(f != NULL))
        fclose(f);
    CHECK_INT(steps, w->steps);
}

/* ---- weights on disk ---- */

/* Within the rounding to f32 of each element, and `bound` of the largest. */
static void check_tensor(const struct seen *s, const struct safet_file *f,
                         const struct want_tensor *t)
{
    const struct safet_entry *e = safet_find(f->entry, f->n, t->name);
    double l2 = 0, wave = 0, sum = 0;
    int64_t n = t->shape[0] * t->shape[1];
    if (!test_check(e && e->type == SAFET_F32 && e->nd == t->nd && e->shape[0] == t->shape[0] &&
                    (t->nd == 1 || e->shape[1] == t->shape[1]) && e->end - e->begin == 4 * n,
                    __FILE__, __LINE__, "%s: %s is not there, or of another shape", s->want->name,
                    t->name))
        return;
    for (int64_t i = 0; i < n; i++) {
        float x;
        memcpy(&x, f->data + e->begin + 4 * i, 4);
        l2 += (double)x * (double)x;
        wave += (double)x * cos(0.3 * (double)i + 1);
        sum += fabs((double)x);
    }
    double most = (6e-8 + s->bound) * sum + 1e-9;
    test_check(fabs(sqrt(l2) - t->l2) <= most && fabs(wave - t->wave) <= most, __FILE__, __LINE__,
               "%s: %s has l2 %.9g and wave %.9g, wanted %.9g and %.9g", s->want->name, t->name,
               sqrt(l2), wave, t->l2, t->wave);
}

static void check_weights(const struct seen *s, const char *run)
{
    char path[FOLDER_PATH];
    struct safet_file f;
    folder_path_in(run, "model.safetensors", path);
    enum err err = safet_open(&f, path);
    CHECK_OK(err);
    if (err != ERR_OK)
        return;
    CHECK_INT(f.n, s->want->tensors); /* none besides */
    for (int i = 0; i < s->want->tensors; i++)
        check_tensor(s, &f, &s->want->tensor[i]);
    safet_close(&f);
}

/* ---- runs ---- */

struct split { const char *set[SPLIT_WORDS]; double bound; bool weights; };

static void run(const struct want *w, const struct split *split, const char *name)
{
    struct seen s = {.want = w, .bound = split->bound};
    const char *word[WORDS_MAX];
    struct plait_config *c = folder_config(name, "train.bin");
    int valids = 0;
    for (int i = 0; i < w->words; i++)
        word[i] = w->word[i];
    for (int i = 1; i <= w->steps; i++)
        valids += !isnan(w->valid[i]);
    folder_set_file(c, "data.valid", "valid.bin");
    folder_set(c, word, w->words);
    folder_set(c, split->set, SPLIT_WORDS);
    int code = plait_train(c, &(struct plait_train){.size = sizeof(struct plait_train),
                                                    .on_step = on_step, .on_valid = on_valid,
                                                    .arg = &s});
    plait_config_free(c);
    if (!test_check(code == 0, __FILE__, __LINE__, "%s: code %d: %s", w->name, code, plait_error()))
        return;
    CHECK_INT(s.steps, w->steps);
    CHECK_INT(s.valids, valids);
    check_metrics(&s, name);
    if (split->weights)
        check_weights(&s, name);
}

static void make_tokens(const char *name, int k, int bytes)
{
    char text[256];
    for (int i = 0; i < bytes; i++)
        text[i] = (char)(32 + test_mix(k, i) % 95);
    text[bytes] = '\0';
    folder_tokens(name, text, 1);
}

/* What has been read of a run, if anything: it is made. Then nothing is read. */
static void end_run(struct want *w, const struct split *split, const char *label, int *runs)
{
    char name[32];
    snprintf(name, sizeof name, "%s%d", label, *runs);
    if (w->steps > 0 && CHECK(w->tensors > 10 && w->words > 0)) {
        run(w, split, name);
        ++*runs;
    }
    *w = (struct want){.steps = 0};
    for (int i = 0; i <= STEPS_MAX; i++)
        w->valid[i] = NAN;
}

/* All runs of the fixture on one split. */
static void run_all(const char *label, const struct split *split)
{
    static struct want w;
    static char line[512];
    int runs = 0;
    FILE *f = fopen(PLAIT_SOURCE_DIR "/tests/oracle/runs.txt", "r");
    make_tokens("train.bin", 1, 75);
    make_tokens("valid.bin", 2, 46);
    end_run(&w, split, label, &runs);
    while (f && fgets(line, sizeof line, f)) {
        CHECK(strchr(line, '\n') != NULL);
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, "run ", 4) == 0)
            end_run(&w, split, label, &runs);
        read_line(&w, line);
    }
    end_run(&w, split, label, &runs);
    if (CHECK(f != NULL))
        fclose(f);
    CHECK_INT(runs, 10);
}

static void ref_alone(void)
{
    run_all("alone", &(struct split){{"train.device=ref"}, 1e-9, true});
}

static void ref_split(void)
{
    run_all("split", &(struct split){{"train.device=ref", "parallel.tp=2", "parallel.sp=true",
                                      "parallel.pp=2"}, 1e-9, true});
}

/* Weights are left out: AdamW makes a step of the rate's size of any rounding. */
static void cpu_f32(void)
{
    run_all("cpu", &(struct split){{"train.device=cpu", "train.dtype=f32"}, 1e-4, false});
}

static const struct test_case cases[] = {
    {"ref_alone", ref_alone}, {"ref_split", ref_split}, {"cpu_f32", cpu_f32}};
TEST_MAIN(cases)
