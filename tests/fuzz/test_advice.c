/* SPDX-License-Identifier: Apache-2.0
 *
 * What a refusal proposes is legal. Configurations are drawn; of each that is refused, every value
 * that the message proposes is set, alone, and then the key is refused no more: the configuration
 * is accepted, or refused in words that do not name it. (A word that is refused by itself, before
 * the others are known, is answered with one that this key's row takes.) Who follows the first
 * proposal of each message ends, in a few steps, at a configuration that is accepted, or refused
 * for what no value mends (a file that is not there). At the ends of all ranges, too, no refusal is
 * without a proposal.
 *
 * `make test` draws a few hundred, `make fuzz-config` 3,000 (N=..., PLAIT_TEST_SEED=...).
 */
#include "draw_config.h"

#include "base/text.h"
#include "config/options.h"
#include "sched/sched.h"
#include <math.h>
#include <stdlib.h>

enum { DRAWS = 300, STEPS_MOST = 8, PROPOSALS = 32, SAID = 4096, TOGETHER = 8,
       EXTREMES = 400, DRAWN_MOST = 12 };

struct proposal { char key[TOGETHER][64], value[TOGETHER][64]; }; /* key "": no more */

static struct { int refused, proposals, followed, none; } count;

/* ---- reading a message ---- */

/* The word at *at into out, without what ends a clause; *at goes behind it and its space. */
static void word_of(const char **at, char out[64])
{
    size_t n = strcspn(*at, " ,;");
    snprintf(out, 64, "%.*s", (int)n, *at);
    *at += n + ((*at)[n] == ' ');
}

/* "KEY 1 or 2, or KEY 3, or KEY 4 with KEY 5 and KEY 6", "ranks 4", "the nearest is 1f1b". */
static int read_proposals(const char *said, struct proposal *out)
{
    const char *at = strstr(said, "; the nearest is "), *use = strstr(said, "; use ");
    const char *start = strstr(said, "; start ");
    int n = 0;
    if (strncmp(said, "command line: ", 14) == 0) {
        const char *value = strstr(said, "; the nearest legal value is ");
        value = value ? value + 29 : at ? at + 17 : NULL;
        at = said + 14;
        word_of(&at, out->key[0]);
        if (value)
            word_of(&value, out->value[0]);
        return value != NULL;
    }
    if (at && strncmp(said, "parallel.schedule", 17) == 0) {
        snprintf(out->key[0], 64, "parallel.schedule");
        at += 17;
        word_of(&at, out->value[0]);
        return 1;
    }
    if (start) {
        at = start + 8;
        snprintf(out->key[0], 64, "ranks");
        word_of(&at, out[n++].value[0]);
        use = strstr(at, ", or use ");
        use = use ? use + 3 : NULL;
    }
    for (at = use ? use + 6 : NULL; at && n < PROPOSALS;) {
        struct proposal *p = &out[n++];
        word_of(&at, p->key[0]);
        if (!conf_find(&options_table, p->key[0])) /* "name a token file" */
            return n - 1;
        word_of(&at, p->value[0]);
        while (strncmp(at, "or ", 3) == 0 && n < PROPOSALS) {
            at += 3;
            out[n] = *p;
            word_of(&at, out[n++].value[0]);
        }
        for (int k = 1; k < TOGETHER; k++) {
            if (strncmp(at, "with ", 5) != 0 && strncmp(at, "and ", 4) != 0)
                break;
            at = strchr(at, ' ') + 1;
            word_of(&at, p->key[k]);
            word_of(&at, p->value[k]);
        }
        if (strncmp(at, ", or ", 5) != 0)
            break;
        at += 5;
    }
    return n;
}

/* Does the message name the key as a whole word? */
static bool names(const char *said, const char *key)
{
    size_t n = strlen(key);
    if (strcmp(key, "ranks") == 0)
        return strncmp(said, "ranks started", 13) == 0;
    for (const char *at = said; n > 0 && (at = strstr(at, key)) != NULL; at++)
        if (!strchr("abcdefghijklmnopqrstuvwxyz_/", at[n] ? at[n] : ' ') &&
            (at == said || !strchr("abcdefghijklmnopqrstuvwxyz_/.", at[-1])))
            return true;
    return false;
}

/* ---- following it ---- */

static int check(const struct drawn *d)
{
    struct plait_config *c;
    int code = drawn_config(d, &c);
    if (code != 0)
        return code;
    code = plait_config_check(c, d->ranks, NULL);
    plait_config_free(c);
    return code;
}

static void follow(struct drawn *d, const struct proposal *p)
{
    for (int i = 0; i < TOGETHER && p->key[i][0]; i++) {
        if (strcmp(p->key[i], "ranks") == 0)
            d->ranks = (int)strtol(p->value[i], NULL, 10);
        else
            drawn_set(d, p->key[i], p->value[i]);
    }
}

static void fail(const struct drawn *d, const char *said, const char *then)
{
    struct text t = {0};
    drawn_print(d, &t);
    test_check(false, __FILE__, __LINE__, "said: %s\n    then: %s\n    plait check%s", said, then,
               t.s);
    text_free(&t);
}

/* A word by itself is refused before others are known, and again only by itself. What is said
 * behind another refusal to be of use may name any key. */
static bool is_refused_again(const char *said, const char *then, const struct proposal *p)
{
    size_t n = 14 + strlen(p->key[0]);
    char refusal[SAID];
    if (strncmp(said, "command line: ", 14) == 0)
        return strncmp(said, then, n) == 0 && then[n] == ' ';
    const char *use = strstr(then, "; use ");
    snprintf(refusal, sizeof refusal, "%.*s", (int)(use ? use - then : SAID), then);
    for (int i = 0; i < TOGETHER && p->key[i][0]; i++)
        if (names(refusal, p->key[i]))
            return true;
    return false;
}

static void each_is_legal(const struct drawn *d, const char *said, const struct proposal *p, int n)
{
    for (int i = 0; i < n; i++) {
        struct drawn changed = *d;
        count.proposals++;
        follow(&changed, &p[i]);
        if (check(&changed) != 0 && is_refused_again(said, plait_error(), &p[i]))
            fail(d, said, plait_error());
    }
}

static void one(struct drawn *d)
{
    struct proposal p[PROPOSALS];
    char said[SAID];
    int code, steps = 0;
    struct drawn first = *d;
    while ((code = check(d)) != 0) {
        snprintf(said, sizeof said, "%s", plait_error());
        memset(p, 0, sizeof p);
        int n = read_proposals(said, p);
        if (n == 0)
            break;
        if (steps == 0) {
            count.refused++;
            each_is_legal(d, said, p, n);
        }
        if (++steps > STEPS_MOST) {
            fail(&first, said, "the advice goes round");
            break;
        }
        follow(d, p);
    }
    count.none += code != 0 && steps == 0;
    count.followed += code == 0 && steps > 0;
}

static void proposals_are_legal(void)
{
    const char *wish = getenv("PLAIT_FUZZ_CONFIG");
    int n = wish ? (int)strtol(wish, NULL, 10) : DRAWS;
    drawn_files();
    for (int i = 0; i < n; i++) {
        struct drawn d;
        drawn_make(i, "run", &d);
        one(&d);
    }
    printf("     %d drawn: %d refused with %d proposals, of these %d accepted when followed; %d "
           "refused without\n", n, count.refused, count.proposals, count.followed, count.none);
    CHECK(count.refused >= n / 10 && count.followed >= count.refused / 2);
}

/* ---- the ends of every range ---- */

/* Of the row: an end, one next to it, or any number between, small ones as often as large ones. */
static void draw_extreme(struct drawn *d, const struct conf_row *row)
{
    char value[64], word[64];
    double share = (double)test_range(0, 1 << 20) / (1 << 20), least = row->min > 0 ? row->min : 1;
    int kind = (int)test_range(0, 7), words = 1;
    if (row->type == CONF_INT) {
        double v = kind < 2 ? row->min + kind : kind < 4 ? row->max - (kind - 2)
                                              : floor(least * pow(row->max / least, share));
        snprintf(value, sizeof value, "%.0f", v);
    } else if (row->type == CONF_REAL) {
        snprintf(value, sizeof value, "%.17g",
                 kind < 2 ? row->min : kind < 4 ? row->max
                                                : row->min + share * (row->max - row->min));
    } else if (row->type == CONF_INTS) {
        static const char *const list[] = {"[]", "1", "8,4", "16777216,1,16777216", "0",
                                           "4294967296,0", "-1", "[4, 4, 4, 4, 4, 4, 2]"};
        snprintf(value, sizeof value, "%s", list[kind]);
    } else if (row->type == CONF_NAMES) {
        static const char *const list[] = {"[]", "layers.1", "layers.1,layers.2", "layers.9999",
                                           "head,layers.0", "x", "1", "4294967296,0"};
        snprintf(value, sizeof value, "%s", list[kind]);
    } else if (row->type == CONF_STRING) {
        int n = sched_kind_count();
        kind = (int)test_range(0, n);
        snprintf(value, sizeof value, "%s", kind < n ? sched_kind_at(kind)->name : "xyz");
    } else {
        const char *list = row->type == CONF_BOOL ? "false|true" : row->words;
        for (const char *s = list; (s = strchr(s, '|')) != NULL; s++)
            words++;
        for (int64_t k = test_range(0, words - 1); k > 0; k--)
            list = strchr(list, '|') + 1;
        snprintf(word, sizeof word, "%.*s", (int)strcspn(list, "|"), list);
        memcpy(value, word, sizeof value);
    }
    drawn_set(d, row->key, value);
}

static bool is_drawn(const struct conf_row *row)
{
    return row->type != CONF_STRING || strcmp(row->key, "parallel.schedule") == 0;
}

/* Whatever the numbers: a refusal proposes something, which is legal. */
static void every_refusal_has_a_way_out(void)
{
    const char *wish = getenv("PLAIT_FUZZ_CONFIG");
    int n = wish ? (int)strtol(wish, NULL, 10) : EXTREMES, refused = 0;
    drawn_files();
    for (int i = 0; i < n; i++) {
        struct drawn d = {.words = 0};
        struct proposal p[PROPOSALS] = {0};
        char said[SAID];
        drawn_set(&d, "model.vocab", "257");
        for (int64_t k = test_range(1, DRAWN_MOST); k > 0; k--) {
            const struct conf_row *row = &options_table.row[test_range(0, options_table.n - 1)];
            if (is_drawn(row) && strcmp(row->key, "model.vocab") != 0)
                draw_extreme(&d, row);
        }
        if (check(&d) == 0)
            continue;
        refused++;
        snprintf(said, sizeof said, "%s", plait_error());
        int proposals = read_proposals(said, p);
        if (proposals == 0)
            fail(&d, said, "no way out");
        each_is_legal(&d, said, p, proposals);
    }
    printf("     %d drawn: %d refused\n", n, refused);
    CHECK(refused >= n / 10);
}

/* What was seen: no way out, or one that is not the nearest. */
static void ways_out_by_hand(void)
{
    static const struct { const char *word[8], *use; } c[] = {
        {{"parallel.pp=4096", "parallel.tp=4096", "parallel.dp=1048576"},
         "; use parallel.tp 4 with parallel.pp 4 and parallel.dp 8"},
        {{"parallel.dp=107", "parallel.microbatch=524288"},
         "; use parallel.dp 8 with parallel.microbatch 1"},
        {{"model.heads=7", "model.head_dim=65536", "model.layers=9999"},
         "; use model.heads 8 with model.head_dim 16"},
        {{"model.kind=llama", "model.head_dim=1"}, "; use model.head_dim 2 or 0"},
        {{"model.head_dim=7"}, "; use model.head_dim 32 or 0, or model.hidden 28"},
        {{"train.batch=8388608"}, "; use parallel.microbatch 129, or train.batch 65535, or "},
        {{"parallel.schedule=xyz"}, "; use parallel.schedule 1f1b or naive"},
        {{"model.kind=llama", "model.heads=65536", "model.head_dim=65536", "model.layers=10000",
          "model.hidden=16777216", "train.batch=1048576", "parallel.microbatch=1048576"}, "; use "},
    };
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        struct plait_config *k;
        CHECK_INT(plait_config_new(&k), 0);
        CHECK_INT(plait_config_set(k, "model.vocab=257"), 0);
        for (int w = 0; w < 8 && c[i].word[w]; w++)
            CHECK_INT(plait_config_set(k, c[i].word[w]), 0);
        CHECK_INT(plait_config_check(k, 0, NULL), PLAIT_CONFIG);
        test_check(strstr(plait_error(), c[i].use) != NULL, __FILE__, __LINE__, "wanted %s: %s",
                   c[i].use, plait_error());
        plait_config_free(k);
    }
}

static const struct test_case cases[] = {
    {"ways_out_by_hand", ways_out_by_hand},
    {"every_refusal_has_a_way_out", every_refusal_has_a_way_out},
    {"proposals_are_legal", proposals_are_legal},
};
TEST_MAIN(cases)
