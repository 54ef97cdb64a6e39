/* SPDX-License-Identifier: Apache-2.0
 *
 * Keys that count steps or batches, below and beyond what a run has of them: what is beyond is
 * noted by check and at the start, in words that say what then happens, and that happens; what fits
 * is not spoken of.
 */
#include "folder.h"

enum { STEPS = 7, BATCH = 4 };

struct seen { int valids; char table[8192]; };

static void on_start(void *arg, const char *table)
{
    struct seen *s = arg;
    snprintf(s->table, sizeof s->table, "%s", table);
}

static void on_valid(void *arg, int64_t step, double loss, double bits)
{
    struct seen *s = arg;
    (void)loss;
    (void)bits;
    s->valids++;
    CHECK(step >= 1 && step <= STEPS);
}

static struct plait_config *config(const char *run, const char *word)
{
    static const char *const base[] = {
        "model.layers=2", "model.hidden=16", "model.heads=2", "model.seq=16", "train.batch=4",
        "train.steps=7", "train.threads=1", "parallel.pp=2"};
    folder_tokens("tokens", "a strand over a strand under another strand; ", 20);
    struct plait_config *c = folder_config(run, "tokens");
    folder_set(c, base, sizeof base / sizeof *base);
    folder_set_file(c, "data.valid", "tokens");
    folder_set(c, &word, 1);
    return c;
}

/* Batches of data.valid, by its line. */
static int64_t batches_of(const char *report)
{
    const char *line = strstr(report, "\nvalid "), *at = line ? strstr(line, " tokens, ") : NULL;
    int samples = 0;
    CHECK(at && sscanf(at, " tokens, %d samples", &samples) == 1 && samples > BATCH);
    return (samples + BATCH - 1) / BATCH;
}

static const struct { const char *key, *said; int64_t most; } rows[] = {
    {"train.valid_every", ": the only validation is at the end\n", STEPS},
    {"train.valid_batches", ": a validation takes the whole file\n", 0}, /* the file's */
    {"train.log_every", ": the only lines of progress are of the first and the last step", STEPS},
};
enum { ROWS = sizeof rows / sizeof *rows };

static void look(const char *text, int row, int64_t n, int64_t most)
{
    char note[96];
    snprintf(note, sizeof note, "\nnote    %s %lld ", rows[row].key, (long long)n);
    test_check((strstr(text, note) != NULL) == (n > most) &&
                   (strstr(text, rows[row].said) != NULL) == (n > most), __FILE__, __LINE__,
               "%s %lld of %lld: %s", rows[row].key, (long long)n, (long long)most, text);
}

static void what_is_beyond_is_noted(void)
{
    char *plain;
    struct plait_config *c = config("none", "train.seed=1");
    CHECK_INT(plait_config_check(c, 0, &plain), PLAIT_OK);
    CHECK(!strstr(plain, "\nnote "));
    plait_config_free(c);
    for (int row = 0; row < ROWS; row++) {
        int64_t most = rows[row].most ? rows[row].most : batches_of(plain);
        for (int64_t n = most - 1; n <= most + 2; n++) {
            struct seen seen = {.valids = 0};
            char word[64], run[64], *report;
            snprintf(word, sizeof word, "%s=%lld", rows[row].key, (long long)n);
            snprintf(run, sizeof run, "run%d-%lld", row, (long long)n);
            c = config(run, word);
            CHECK_INT(plait_config_check(c, 0, &report), PLAIT_OK);
            look(report, row, n, most);
            plait_free(report);
            int code = plait_train(c, &(struct plait_train){.size = sizeof(struct plait_train),
                                                            .on_start = on_start,
                                                            .on_valid = on_valid, .arg = &seen});
            test_check(code == PLAIT_OK, __FILE__, __LINE__, "%s: %s", word, plait_error());
            look(seen.table, row, n, most);
            if (row == 0)
                CHECK_INT(seen.valids, n < STEPS ? 2 : 1);
            plait_config_free(c);
        }
    }
    plait_free(plain);
}

static const struct test_case cases[] = {{"what_is_beyond_is_noted", what_is_beyond_is_noted}};
TEST_MAIN(cases)
