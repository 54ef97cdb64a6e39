/* SPDX-License-Identifier: Apache-2.0
 *
 * What a refusal proposes is legal. Configurations are drawn; of each that is refused, every value
 * that the message proposes is set, alone, and then the key is refused no more: the configuration
 * is accepted, or refused in words that do not name it. (A word that is refused by itself, before
 * the others are known, is answered with one that this key's row takes.) Who follows the first
 * proposal of each message ends, in a few steps, at a configuration that is accepted, or refused
 * for what no value mends (a file that is not there).
 *
 * `make test` draws a few hundred, `make fuzz-config` 3,000 (N=..., PLAIT_TEST_SEED=...).
 */
#include "draw_config.h"

#include "base/text.h"
#include "run/options.h"
#include <stdlib.h>

enum { DRAWS = 300, STEPS_MOST = 8, PROPOSALS = 32, SAID = 4096 };

struct proposal { char key[2][64], value[2][64]; }; /* key[1] "": one key */

static struct { int refused, proposals, followed, none; } count;

/* ---- reading a message ---- */

/* The word at *at into out, without what ends a clause; *at goes behind it and its space. */
static void word_of(const char **at, char out[64])
{
    size_t n = strcspn(*at, " ,;");
    snprintf(out, 64, "%.*s", (int)n, *at);
    *at += n + ((*at)[n] == ' ');
}

/* "KEY 1 or 2, or KEY 3, or KEY 4 with KEY 5", "ranks 4", "the nearest is 1f1b". */
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
        if (strncmp(at, "with ", 5) == 0) {
            at += 5;
            word_of(&at, p->key[1]);
            word_of(&at, p->value[1]);
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
    for (int i = 0; i < 2 && p->key[i][0]; i++) {
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

/* A word by itself is refused before others are known, and again only by itself. */
static bool is_refused_again(const char *said, const char *then, const struct proposal *p)
{
    size_t n = 14 + strlen(p->key[0]);
    if (strncmp(said, "command line: ", 14) == 0)
        return strncmp(said, then, n) == 0 && then[n] == ' ';
    return names(then, p->key[0]) || names(then, p->key[1]);
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

static const struct test_case cases[] = {
    {"proposals_are_legal", proposals_are_legal},
};
FOLDER_MAIN(cases)
