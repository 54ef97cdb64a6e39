/* SPDX-License-Identifier: Apache-2.0
 *
 * plait's models against PyTorch's: loss and the gradient of every parameter of a tiny gpt and a
 * tiny llama, on one reference rank and split, and in f32 on the cpu device. The fixtures and the
 * formulas of the inputs are described at the top of tests/oracle/torch_oracle.py.
 */
#include "layout.h"
#include "test.h"

#include "base/fs.h"
#include "base/mem.h"

#include <stdlib.h>

enum { TOKENS_K = 1000, TARGETS_K = 1001, PARAMS_MAX = 64, SAMPLES_MAX = 16 };

struct want {
    char name[64];
    int k, samples;
    double center, scale, l2, sum;
    int64_t shape[2], index[SAMPLES_MAX];
    double value[SAMPLES_MAX];
};

struct fixture {
    struct model model;
    int64_t batch, count;
    double mean;
    struct want param[PARAMS_MAX];
    int params;
};

static struct fixture fixture; /* what weights() of the run under way reads; set before it starts */

static const struct want *find(const char *name)
{
    for (int i = 0; i < fixture.params; i++)
        if (strcmp(fixture.param[i].name, name) == 0)
            return &fixture.param[i];
    return NULL;
}

static void weights(const struct model_param *p, double *values)
{
    const struct want *w = find(p->name);
    if (!test_check(w != NULL, __FILE__, __LINE__, "no fixture for %s", p->name))
        return;
    for (int64_t i = 0; i < p->shape[0] * p->shape[1]; i++)
        values[i] = w->center + w->scale * ((double)test_mix(w->k, i) / 2147483648.0 - 1.0);
}

/* ---- reading ---- */

static void read_param(char *line)
{
    struct want *w = &fixture.param[fixture.params++];
    long long rows, cols;
    int used = 0;
    sscanf(line, "param %63s k %d shape %lld %lld center %lf scale %lf l2 %lf sum %lf samples %d%n",
           w->name, &w->k, &rows, &cols, &w->center, &w->scale, &w->l2, &w->sum, &w->samples,
           &used);
    w->shape[0] = rows;
    w->shape[1] = cols;
    char *at = line + used;
    for (int i = 0; i < w->samples && i < SAMPLES_MAX; i++) {
        w->index[i] = strtoll(at, &at, 10);
        w->value[i] = strtod(at, &at);
    }
}

static void read_line(char *line)
{
    struct model *a = &fixture.model;
    long long n[9], count;
    double sum;
    char kind[16];
    if (sscanf(line,
               "model %15s layers %lld hidden %lld heads %lld kv_heads %lld head_dim %lld ffn "
               "%lld vocab %lld seq %lld batch %lld",
               kind, &n[0], &n[1], &n[2], &n[3], &n[4], &n[5], &n[6], &n[7], &n[8]) == 10) {
        bool gpt = strcmp(kind, "gpt") == 0;
        *a = (struct model){.kind = gpt ? MODEL_GPT : MODEL_LLAMA, .layers = n[0], .hidden = n[1],
                            .heads = n[2], .kv_heads = n[3], .head_dim = n[4], .ffn = n[5],
                            .vocab = n[6], .seq = n[7], .tied = gpt, .init_std = 0.02};
        fixture.batch = n[8];
    }
    sscanf(line, "numbers norm_eps %lf rope_theta %lf", &a->norm_eps, &a->rope_theta);
    if (sscanf(line, "loss sum %lf count %lld mean %lf", &sum, &count, &fixture.mean) == 3)
        fixture.count = count;
    if (strncmp(line, "param ", 6) == 0 && fixture.params < PARAMS_MAX)
        read_param(line);
}

static bool read_fixture(const char *name)
{
    char path[1024], *copy;
    struct fs_map m;
    fixture = (struct fixture){0};
    snprintf(path, sizeof path, "%s/tests/oracle/%s.txt", PLAIT_SOURCE_DIR, name);
    if (!test_check(fs_map_open(&m, path, ERR_DATA) == ERR_OK, __FILE__, __LINE__, "%s",
                    err_text()))
        return false;
    CHECK_OK(mem_new(m.size + 1, 1, "a fixture", &copy));
    memcpy(copy, m.data, (size_t)m.size);
    fs_map_close(&m);
    for (char *line = copy, *end; line && *line; line = end ? end + 1 : NULL) {
        end = strchr(line, '\n');
        if (end)
            *end = '\0';
        read_line(line);
    }
    mem_free(copy);
    return CHECK(fixture.params > 10 && fixture.count > 0);
}

/* ---- comparing ---- */

static void compare_param(const struct layout_param *p, double whole, double bound)
{
    const struct want *w = find(p->spec.name);
    double l2 = 0, sum = 0, most = 0, n = (double)fixture.count;
    if (!test_check(w != NULL, __FILE__, __LINE__, "%s is not in the fixture", p->spec.name))
        return;
    CHECK_INT(p->count, w->shape[0] * w->shape[1]);
    for (int64_t i = 0; i < p->count; i++) {
        l2 += p->grad[i] / n * (p->grad[i] / n);
        sum += p->grad[i] / n;
        most = fmax(most, fabs(p->grad[i] / n));
    }
    double scale = p->spec.role == PARAM_K_B ? whole : most; /* zero but for rounding */
    test_check(fabs(sqrt(l2) - w->l2) <= bound * scale * sqrt((double)p->count), __FILE__, __LINE__,
               "%s: l2 %g, wanted %g", w->name, sqrt(l2), w->l2);
    test_check(fabs(sum - w->sum) <= bound * scale * (double)p->count, __FILE__, __LINE__,
               "%s: sum %g, wanted %g", w->name, sum, w->sum);
    for (int i = 0; i < w->samples; i++)
        test_check(fabs(p->grad[w->index[i]] / n - w->value[i]) <= bound * scale, __FILE__,
                   __LINE__, "%s[%lld]: %.12g, wanted %.12g", w->name, (long long)w->index[i],
                   p->grad[w->index[i]] / n, w->value[i]);
}

struct split { int tp, pp, dp; bool sp; enum dev_kind dev; enum dtype ct; double bound; };

static void run(const char *name, const struct split *s)
{
    static int32_t tokens[3 * 32], targets[3 * 32];
    struct layout_result r;
    double whole = 0;
    if (!read_fixture(name))
        return;
    for (int64_t row = 0; row < fixture.batch * fixture.model.seq; row++) {
        tokens[row] = (int32_t)(test_mix(TOKENS_K, row) % (uint32_t)fixture.model.vocab);
        int32_t next = (int32_t)(test_mix(TARGETS_K, row) % (uint32_t)fixture.model.vocab);
        targets[row] = row % 7 == 3 ? -1 : next;
    }
    struct layout l = {.model = fixture.model, .tp = s->tp, .pp = s->pp, .dp = s->dp, .sp = s->sp,
                       .schedule = "1f1b", .batch = fixture.batch, .microbatch = 1, .dev = s->dev,
                       .ct = s->ct, .steps = 1, .weights = weights, .tokens = tokens,
                       .targets = targets};
    CHECK_OK(layout_run(&l, &r));
    CHECK_INT(r.tokens, fixture.count);
    CHECK_NEAR(r.loss, fixture.mean, s->bound * fixture.mean);
    CHECK_INT(r.params, fixture.params);
    for (int i = 0; i < r.params; i++)
        for (int64_t j = 0; j < r.param[i].count; j++)
            whole = fmax(whole, fabs(r.param[i].grad[j] / (double)fixture.count));
    for (int i = 0; i < r.params; i++)
        compare_param(&r.param[i], whole, s->bound);
    layout_result_free(&r);
}

static void run_all(const char *name)
{
    static const struct split splits[] = {
        {1, 1, 1, false, DEV_REF, DT_F64, 1e-10}, {2, 2, 1, true, DEV_REF, DT_F64, 1e-10},
        {4, 1, 3, false, DEV_REF, DT_F64, 1e-10}, {1, 1, 1, false, DEV_CPU, DT_F32, 2e-5},
        {2, 2, 1, true, DEV_CPU, DT_F32, 2e-5},
    };
    for (size_t i = 0; i < sizeof splits / sizeof *splits; i++)
        if (dev_built(splits[i].dev))
            run(name, &splits[i]);
}

static void oracle_gpt(void) { run_all("gpt"); }
static void oracle_llama(void) { run_all("llama"); }

static const struct test_case cases[] = {{"oracle_gpt", oracle_gpt},
                                         {"oracle_llama", oracle_llama}};
TEST_MAIN(cases)
