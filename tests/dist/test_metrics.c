/* SPDX-License-Identifier: Apache-2.0
 *
 * metrics.jsonl: every line is one JSON object with the fields of docs/metrics.md in their order,
 * and the numbers are those of the callbacks, to the last bit, on every layout.
 */
#include "folder.h"

#include "base/fs.h"
#include "base/log.h"
#include "base/text.h"
#include <stdlib.h>

enum { STEPS = 5, BATCH = 4, SEQ = 8, LINES = 32 };

/* What the callbacks had, in their order: steps and validations. */
struct said {
    struct plait_step step[LINES];
    struct { int64_t step; double loss, bits; } valid[LINES];
    int steps, valids;
    char summary[4096];
};

static void on_step(void *arg, const struct plait_step *s)
{
    struct said *said = arg;
    if (CHECK(said->steps < LINES))
        said->step[said->steps++] = *s;
}

static void on_valid(void *arg, int64_t step, double loss, double bits)
{
    struct said *said = arg;
    if (!CHECK(said->valids < LINES))
        return;
    said->valid[said->valids].step = step;
    said->valid[said->valids].loss = loss;
    said->valid[said->valids++].bits = bits;
}

static void on_done(void *arg, const char *summary)
{
    struct said *said = arg;
    snprintf(said->summary, sizeof said->summary, "%s", summary);
}

/* What is left takes as long as the mean of the steps until now; the summary has their sum, and the
 * last one's loss. */
static void check_sums(const char *run, const struct said *said)
{
    double all = 0;
    char t[32], want[96];
    for (int i = 0; i < said->steps; i++) {
        all += said->step[i].seconds;
        CHECK_NEAR(said->step[i].seconds_left, all / (i + 1) * (STEPS - 1 - i), 1e-9 * all);
    }
    snprintf(want, sizeof want, "%d steps in %s, loss %.4f; ", STEPS, text_seconds(all, t),
             said->step[STEPS - 1].loss);
    test_check(strstr(said->summary, want) != NULL, __FILE__, __LINE__, "%s: no \"%s\" in: %s", run,
               want, said->summary);
}

/* The next field of a line, which must have this name, as a number; the line goes on behind it. */
static double field(const char **line, const char *name, const char *before)
{
    char want[64], *end;
    int n = snprintf(want, sizeof want, "%s\"%s\": ", before, name);
    bool there = strncmp(*line, want, (size_t)n) == 0;
    test_check(there, __FILE__, __LINE__, "wanted %s in %.80s", want, *line);
    double v = there ? strtod(*line + n, &end) : NAN;
    if (there && CHECK(end > *line + n))
        *line = end;
    return v;
}

/* When the run began and ended, and when the line before was written. */
struct times { double date[2], began, last; };

static void check_end(const char *line, struct times *t, double seconds)
{
    double date = field(&line, "time", ", "), elapsed = field(&line, "elapsed", ", ");
    CHECK(date >= t->date[0] - 1e-5 && date <= t->date[1] + 1e-5);
    CHECK(elapsed >= t->last && elapsed <= log_now() - t->began);
    CHECK(elapsed >= seconds);
    t->last = elapsed;
    CHECK(strcmp(line, "}") == 0);
}

static void check_step(const char *line, const struct plait_step *s, struct times *t)
{
    CHECK(field(&line, "step", "{") == (double)s->step);
    CHECK(field(&line, "loss", ", ") == s->loss);
    CHECK(field(&line, "grad_norm", ", ") == s->grad_norm);
    CHECK(field(&line, "lr", ", ") == s->lr);
    CHECK(field(&line, "tokens", ", ") == (double)(s->step * BATCH * SEQ));
    CHECK(field(&line, "tokens_per_s", ", ") == s->tokens_per_s);
    CHECK(field(&line, "seconds", ", ") == s->seconds);
    check_end(line, t, s->seconds);
}

/* 4 samples a batch: 2 batches, or all 12 samples of 100 bytes with an end. */
static void check_valid(const char *line, const struct said *said, int i, int64_t tokens,
                        struct times *t)
{
    CHECK(field(&line, "step", "{") == (double)said->valid[i].step);
    CHECK(field(&line, "valid_loss", ", ") == said->valid[i].loss);
    CHECK(field(&line, "valid_tokens", ", ") == (double)tokens);
    if (isnan(said->valid[i].bits))
        CHECK(strstr(line, "bits") == NULL);
    else
        CHECK_NEAR(field(&line, "bits_per_byte", ", "), said->valid[i].loss / log(2.0), 1e-15);
    check_end(line, t, 0);
}

static void check_file(const char *run, const struct said *said, int64_t tokens, struct times *t)
{
    char path[FOLDER_PATH], line[1024];
    int steps = 0, valids = 0;
    folder_path_in(run, "metrics.jsonl", path);
    FILE *f = fopen(path, "r");
    if (!CHECK(f != NULL))
        return;
    while (fgets(line, sizeof line, f)) {
        size_t n = strlen(line);
        CHECK(n > 0 && line[n - 1] == '\n');
        line[n - 1] = '\0';
        if (strstr(line, "valid_loss")) {
            CHECK(steps > 0 && said->step[steps - 1].step == said->valid[valids].step);
            check_valid(line, said, valids++, tokens, t);
        } else {
            check_step(line, &said->step[steps++], t);
        }
    }
    fclose(f);
    CHECK_INT(steps, STEPS);
    CHECK_INT(valids, said->valids);
}

static const char *tokens_of(const char *run)
{
    return strcmp(run, "random") == 0 ? "drawn" : "abc";
}

static void run_layout(const char *run, const char *const *words, const char *batches,
                       int64_t tokens)
{
    static const char *const base[] = {
        "model.layers=2", "model.hidden=16", "model.heads=2", "model.ffn=32", "model.seq=8",
        "train.batch=4", "train.steps=5", "optim.lr=0.0123456789", "optim.warmup=3",
        "train.valid_every=2", "parallel.microbatch=1", "run.save=false"};
    struct said said = {.steps = 0};
    struct plait_config *c = folder_config(run, tokens_of(run));
    folder_set_file(c, "data.valid", tokens_of(run));
    folder_set(c, base, sizeof base / sizeof *base);
    folder_set(c, words, LINES);
    folder_set(c, &batches, 1);
    struct times t = {.date = {log_date()}, .began = log_now()};
    int code = plait_train(c, &(struct plait_train){.size = sizeof(struct plait_train),
                                                    .on_step = on_step, .on_valid = on_valid,
                                                    .on_done = on_done, .arg = &said});
    t.date[1] = log_date();
    test_check(code == 0, __FILE__, __LINE__, "%s: %s", run, plait_error());
    plait_config_free(c);
    CHECK_INT(said.valids, 3); /* behind 2, 4, and the last */
    check_file(run, &said, tokens, &t);
    check_sums(run, &said);
}

static void lines_say_what_was_said(void)
{
    static const char *const layout[][5] = {
        {"parallel.pp=1", NULL}, {"parallel.pp=2", NULL}, {"parallel.dp=2", NULL},
        {"parallel.tp=2", "parallel.dp=2", "train.device=ref", NULL},
        {"parallel.pp=2", "parallel.schedule=zb-h2", NULL}};
    char path[FOLDER_PATH], run[32];
    folder_tokens("abc", "abcde", 20);
    folder_path("drawn", path);
    CHECK_INT(plait_data_random(path, 257, 101, 3), 0);
    for (int i = 0; i < 5; i++) {
        snprintf(run, sizeof run, "all%d", i);
        run_layout(run, layout[i], "train.valid_batches=0", 12 * SEQ);
        snprintf(run, sizeof run, "two%d", i);
        run_layout(run, layout[i], "train.valid_batches=2", 2 * BATCH * SEQ);
    }
    run_layout("random", layout[0], "train.valid_batches=1", BATCH * SEQ);
}

/* Weights that overflow within a few steps: whatever is written of it is JSON. */
static void what_is_not_finite_is_json(void)
{
    static const char *const words[] = {
        "model.kind=llama", "model.layers=2", "model.hidden=32", "model.heads=2", "model.seq=8",
        "train.batch=4", "train.steps=20", "optim.schedule=constant", "optim.lr=100",
        "optim.decay=100", "train.valid_every=1", "train.valid_batches=1"};
    char path[FOLDER_PATH];
    struct fs_map m;
    struct folder_seen seen;
    folder_tokens("abc", "abcde", 20);
    struct plait_config *c = folder_config("far", "abc");
    folder_set_file(c, "data.valid", "abc");
    folder_set(c, words, sizeof words / sizeof *words);
    CHECK_INT(folder_train(c, &seen), PLAIT_NONFINITE);
    folder_path_in("far", "metrics.jsonl", path);
    CHECK_OK(fs_map_open(&m, path, ERR_DATA));
    for (int64_t i = 0; i + 3 < m.size; i++) {
        CHECK(memcmp(m.data + i, ": na", 4) != 0 && memcmp(m.data + i, ": in", 4) != 0);
        CHECK(memcmp(m.data + i, ": -n", 4) != 0 && memcmp(m.data + i, ": -i", 4) != 0);
    }
    CHECK(m.size > 0 && m.data[m.size - 1] == '\n');
    fs_map_close(&m);
}

/* ---- within a step ---- */

struct within { int64_t step, begun[2], microbatches; };

static void on_microbatch(void *arg, const struct plait_microbatch *m)
{
    struct within *w = arg;
    CHECK(m->step == w->step + 1 && m->steps == 2 && m->microbatches == w->microbatches);
    CHECK_INT(m->microbatch, ++w->begun[m->backward != 0]);
}

static void on_its_end(void *arg, const struct plait_step *s)
{
    struct within *w = arg;
    CHECK_INT(w->begun[0], w->microbatches);
    CHECK_INT(w->begun[1], w->microbatches);
    *w = (struct within){.step = s->step, .microbatches = w->microbatches};
}

/* Each microbatch of the reporting rank's last stage once forward and once backward; where two
 * replicas share them, half of them. */
static void every_microbatch_is_told(void)
{
    static const char *const layout[][3] = {
        {"parallel.pp=1"}, {"parallel.pp=2", "parallel.schedule=gpipe"}, {"parallel.pp=3"},
        {"parallel.pp=2", "parallel.schedule=zb-h2"}, {"parallel.pp=2", "parallel.dp=2"},
        {"parallel.pp=2", "parallel.schedule=zb-v", "train.recompute=full"},
        {"parallel.pp=2", "parallel.schedule=dualpipev"},
        {"parallel.pp=2", "parallel.schedule=interleaved", "parallel.chunks=2"},
        {"parallel.pp=2", "parallel.schedule=chimera"}};
    static const char *const base[] = {
        "model.layers=4", "model.hidden=16", "model.heads=2", "model.ffn=32", "model.seq=8",
        "train.batch=12", "train.steps=2", "parallel.microbatch=1", "train.valid_every=1",
        "train.valid_batches=1", "run.save=false"};
    folder_tokens("abc", "abcde", 20);
    for (int i = 0; i < 9; i++) {
        char run[32];
        snprintf(run, sizeof run, "within%d", i);
        struct within w = {.microbatches = i == 4 || i == 8 ? 6 : 12};
        struct plait_config *c = folder_config(run, "abc");
        folder_set_file(c, "data.valid", "abc");
        folder_set(c, base, sizeof base / sizeof *base);
        folder_set(c, layout[i], layout[i][1] ? layout[i][2] ? 3 : 2 : 1);
        int code = plait_train(c, &(struct plait_train){
            .size = sizeof(struct plait_train), .on_step = on_its_end, .arg = &w,
            .on_microbatch = on_microbatch});
        test_check(code == 0, __FILE__, __LINE__, "%s: %s", run, plait_error());
        CHECK_INT(w.step, 2);
        plait_config_free(c);
    }
}

static const struct test_case cases[] = {
    {"every microbatch is told", every_microbatch_is_told},
    {"what is not finite is JSON", what_is_not_finite_is_json},
    {"lines say what the callbacks were told", lines_say_what_was_said},
};
TEST_MAIN(cases)
