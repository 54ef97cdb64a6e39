/* SPDX-License-Identifier: Apache-2.0
 *
 * A message names the keys that stand against each other ("model.hidden 130 is not a multiple of
 * model.heads 4"). For each of them, values are tried through all rules: near its own, near the
 * numbers in the message, their multiples and divisors, and all words of a row of words. What
 * passes is offered, nearest first (0 last, where it stands for what follows from other keys). When
 * nothing passes, a value is offered with which the first refusal is another one that does not name
 * this key; then two keys at once; then the defaults of all keys that message after message names,
 * moved back as near to the own values as the others allow. So every refusal has a way out.
 *
 * Trying is bounded by the work of the cuts and schedules that it makes.
 */
#include "check/rules.h"

#include "config/schedule.h"
#include "sched/sched.h"
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEYS = 10, NUMBERS = 24, VALUES = 700, NEAR = 8, SMALL = 64, OFFERS = 3, SAID = 4096,
       BRIEF = 2, PAIR = 64, MOST = 8, /* keys that are changed together */
       TRY_UNITS = 64, /* of work that any try takes, in units of a schedule's */
       CUT_SHARE = 32 }; /* of layers x stages that take as long as one of these */

/* Numbers of a message that count: no row goes further, and sums of them stay exact. */
static const int64_t largest = (int64_t)1 << 53;

struct value { char text[40]; double far; };

struct inquiry {
    const struct options *o; /* borrowed */
    int ranks, rule;
    char said[SAID];         /* the rule's message */
    size_t head;             /* bytes of it before what it proposes */
    const struct conf_row *key[KEYS];
    int keys;
    int64_t number[NUMBERS]; /* in the message */
    int numbers;
    struct value value[VALUES]; /* of the key at hand */
    int values;
    bool brief;              /* of values without a reason in the message, those next to the own */
    int64_t work;            /* units of schedules that may still be made */
};

enum verdict { REFUSED, AHEAD, PASSES };

/* ---- what the message says ---- */

/* Does `key` stand at `at` as a whole word? */
static bool is_at(const char *said, const char *at, const char *key)
{
    char behind = at[strlen(key)], before = at > said ? at[-1] : ' ';
    return !isalnum((unsigned char)behind) && behind != '_' && !isalnum((unsigned char)before) &&
           before != '_' && before != '/';
}

static const char *names(const char *said, const char *key)
{
    for (const char *at = said; (at = strstr(at, key)) != NULL; at++)
        if (is_at(said, at, key))
            return at;
    return NULL;
}

/* Keys in the order in which they are named, the schedule behind all others, for it changes most;
 * how many. Files and folders have no nearest value. */
static int find_keys(const struct options *o, const char *said, const struct conf_row *key[KEYS])
{
    const struct conf_row *schedule = conf_find(&options_table, "parallel.schedule");
    int n = 0;
    for (const char *at = said; *at; at++)
        for (int i = 0; i < options_table.n && n < KEYS; i++) {
            const struct conf_row *row = &options_table.row[i];
            bool known = row->type == CONF_STRING;
            for (int k = 0; k < n; k++)
                known = known || key[k] == row;
            if (!known && strncmp(at, row->key, strlen(row->key)) == 0 && is_at(said, at, row->key))
                key[n++] = row;
        }
    if (strncmp(said, "ranks started", 13) == 0) { /* data ranks come and go most easily */
        key[0] = conf_find(&options_table, "parallel.dp");
        n = 1;
    }
    if (names(said, schedule->key) && n < KEYS && !schedule_path(o->parallel.schedule))
        key[n++] = schedule;
    return n;
}

/* The number that a word of the message at `at` is, into `word`; "": none. */
static const char *number_at(const char *said, const char *at, char word[32])
{
    bool starts = (at == said || at[-1] == ' ') && isdigit((unsigned char)*at);
    size_t n = starts ? strspn(at, "0123456789.e+-") : 0;
    while (n > 0 && !isdigit((unsigned char)at[n - 1]))
        n--;
    snprintf(word, 32, "%.*s", (int)n, at);
    return word;
}

/* Where the rule's own proposal begins; the end, where it has none of any kind; 0: it says what to
 * do, and that is no value. */
static size_t find_head(const char *said)
{
    static const char *const opening[] = {"; use ", "; legal ", "; start ", "; set ",
                                          "; the nearest is ", "; did you mean "};
    size_t head = 0;
    for (size_t i = 0; i < sizeof opening / sizeof *opening; i++) {
        const char *at = strstr(said, opening[i]);
        if (at && (head == 0 || (size_t)(at - said) < head))
            head = (size_t)(at - said);
    }
    return head == 0 && !strstr(said, "; ") ? strlen(said) : head;
}

/* ---- candidates ---- */

static void add_text(struct inquiry *q, const char *text, double far)
{
    for (int i = 0; i < q->values; i++)
        if (strcmp(q->value[i].text, text) == 0)
            return;
    if (q->values == VALUES)
        return;
    q->value[q->values].far = far;
    snprintf(q->value[q->values++].text, sizeof q->value->text, "%s", text);
}

static void add_int(struct inquiry *q, const struct conf_row *row, int64_t own, int64_t v)
{
    char text[32];
    if (v < (int64_t)row->min || v > (int64_t)row->max || v == own)
        return;
    snprintf(text, sizeof text, "%lld", (long long)v);
    bool derived = v == 0 && strstr(row->help, "; 0: "); /* no number, but what others make it */
    add_text(q, text, derived ? HUGE_VAL : (double)(v > own ? v - own : own - v));
}

static void add_ints(struct inquiry *q, const struct conf_row *row)
{
    int64_t own;
    memcpy(&own, (const char *)q->o + row->offset, sizeof own);
    int small = q->brief ? BRIEF : SMALL, near = q->brief ? BRIEF : NEAR;
    for (int64_t d = 0; d <= SMALL; d++) {
        if (d <= small)
            add_int(q, row, own, d);
        if (d <= near)
            for (int sign = -1; sign <= 1; sign += 2)
                add_int(q, row, own, own + sign * d);
        if (d < 63)
            add_int(q, row, own, own >> d);
    }
    for (int i = 0; i < q->numbers; i++) {
        int64_t w = q->number[i];
        for (int64_t d = -1; d <= 1; d++)
            add_int(q, row, own, w + d);
        for (int64_t d = 1; d <= small * 4 && d <= SMALL && w > 0; d++) {
            if (w % d == 0)
                add_int(q, row, own, w / d);
            if (d <= near && w <= (int64_t)row->max)
                add_int(q, row, own, w * d);
        }
        if (w > 0)
            for (int64_t d = 0; d <= 1; d++)
                add_int(q, row, own, (own / w + d) * w);
        for (int k = 0; k < q->numbers; k++)
            if (q->number[k] > 0)
                add_int(q, row, own, num_ceil_div(w, q->number[k]));
    }
}

static int by_distance(const void *a, const void *b)
{
    double x = ((const struct value *)a)->far, y = ((const struct value *)b)->far;
    return (x > y) - (x < y);
}

static void list_values(struct inquiry *q, const struct conf_row *row)
{
    q->values = 0;
    if (row->type == CONF_INT) {
        add_ints(q, row);
    } else if (row->type == CONF_STRING) { /* a schedule: the one whose name is nearest, the plain
                                              one, the others as they are listed */
        const char *near = sched_kind_meant(q->o->parallel.schedule);
        if (near)
            add_text(q, near, 0);
        add_text(q, "1f1b", 1);
        for (int i = 0; i < sched_kind_count(); i++)
            add_text(q, sched_kind_at(i)->name, 2 + i);
    } else if (row->type == CONF_NAMES || row->type == CONF_INTS) {
        add_text(q, "[]", 0); /* no list is nearer to one than another */
    } else if (row->type == CONF_REAL) {
        char word[32];
        double own;
        memcpy(&own, (const char *)q->o + row->offset, sizeof own);
        for (const char *at = q->said; *at; at++)
            if (*number_at(q->said, at, word))
                add_text(q, word, fabs(strtod(word, NULL) - own));
        add_text(q, "0", fabs(own));
    } else {
        const char *words = row->type == CONF_BOOL ? "false|true" : row->words;
        for (int i = 0; words; words = strchr(words, '|'), i++) {
            char word[40];
            words += *words == '|';
            snprintf(word, sizeof word, "%.*s", (int)strcspn(words, "|"), words);
            if (strcmp(word, "null") != 0) /* which computes nothing */
                add_text(q, word, i);
        }
    }
    qsort(q->value, (size_t)q->values, sizeof *q->value, by_distance);
}

/* ---- trying ---- */

static enum err set(struct options *o, const struct conf_row *row, const char *value)
{
    char word[128];
    snprintf(word, sizeof word, "%.64s=%.40s", row->key, value);
    return conf_set(&options_table, o, word);
}

static bool is_set_to(const struct options *o, const struct conf_row *row, const char *value)
{
    struct text now = {0};
    bool same = conf_get(&options_table, o, row->key, &now) == ERR_OK && now.s &&
                strcmp(now.s, value) == 0;
    text_free(&now);
    return same;
}

/* Options in which n rows are changed. */
struct changes {
    struct options o;
    const struct conf_row *row[MOST];
    int n;
};

/* One more. False: it is that already, or the value is no legal one. */
static bool change(struct changes *c, const struct conf_row *row, const char *value)
{
    if (is_set_to(&c->o, row, value) || set(&c->o, row, value) != ERR_OK)
        return false;
    c->row[c->n++] = row;
    return true;
}

/* What all rules say of it. */
static enum verdict judge(struct inquiry *q, const struct changes *c)
{
    const struct options *o = &c->o;
    struct check_facts f = {.purpose = CHECK_PLAN};
    bool costly = o->parallel.costs[0] || o->parallel.memory_limit != 0, again;
    int64_t stages = o->parallel.pp * options_chunks(o);
    int64_t units = stages * num_ceil_div(options_samples(o), o->parallel.microbatch);
    if (q->work < 0)
        return REFUSED;
    enum err err = check_rules(o, q->ranks, &f);
    check_free(&f);
    q->work -= TRY_UNITS + (f.cut ? stages * o->model.layers / CUT_SHARE : 0);
    if (f.made)
        q->work -= num_min(units, CHECK_MAKE_UNITS) * (costly ? 16 : 1) + 1;
    if (err == ERR_OK)
        return PASSES;
    again = strncmp(err_text(), q->said, q->head) == 0;
    for (int i = 0; i < c->n; i++)
        again = again || names(err_text(), c->row[i]->key);
    return !again && f.rule >= q->rule ? AHEAD : REFUSED;
}

/* The nearest value below the own one and the nearest above that reach `wanted`, or two words. */
static int offer_one(struct inquiry *q, const struct conf_row *row, enum verdict wanted,
                     struct text *out)
{
    bool whole = row->type == CONF_INT;
    int found[3] = {0, 0, 0}; /* above, or of words; below; the word 0 */
    int64_t own = 0;
    if (whole)
        memcpy(&own, (const char *)q->o + row->offset, sizeof own);
    list_values(q, row);
    for (int i = 0; i < q->values; i++) {
        struct changes c = {.o = *q->o};
        const char *v = q->value[i].text;
        int64_t n;
        int side = q->value[i].far == HUGE_VAL ? 2 : whole && text_to_int(v, &n) && n < own;
        bool enough = found[side] > (whole ? 0 : 1) || (side == 2 && found[0] + found[1] > 1);
        if (enough || !change(&c, row, v) || judge(q, &c) < wanted)
            continue;
        if (found[0] + found[1] + found[2] > 0)
            text_add(out, " or %s", v);
        else
            text_add(out, "%s%s %s", out->len ? ", or " : "", row->key, v);
        found[side]++;
    }
    return found[0] + found[1] + found[2];
}

/* Two keys at once, the nearest of each. */
static bool offer_two(struct inquiry *q, const struct conf_row *a, const struct conf_row *b,
                      struct text *out)
{
    struct value first[PAIR];
    q->brief = true;
    list_values(q, a);
    int n = (int)num_min(q->values, PAIR);
    memcpy(first, q->value, (size_t)n * sizeof *first);
    list_values(q, b);
    q->brief = false;
    int most = (int)num_min(q->values, PAIR);
    for (int s = 0; s < n + most - 1; s++) /* places from the nearest, of both together */
        for (int i = (int)num_max(0, s - most + 1); i < n && i <= s; i++) {
            struct changes c = {.o = *q->o};
            const char *value = q->value[s - i].text;
            if (!change(&c, a, first[i].text) || !change(&c, b, value) || judge(q, &c) < PASSES)
                continue;
            text_add(out, "%s %s with %s %s", a->key, first[i].text, b->key, value);
            return true;
        }
    return false;
}

/* ---- several keys ---- */

/* The keys that the thread's error names to their defaults. False: they are that, or too many. */
static bool reset_named(struct changes *c, const char *said)
{
    const struct conf_row *key[KEYS];
    int before = c->n, n = find_keys(&c->o, said, key);
    for (int i = 0; i < n && c->n < MOST; i++) {
        const struct conf_row *row = key[i];
        bool known = row->offset == offsetof(struct options, model.vocab) && !c->o.data.train[0];
        for (int k = 0; k < c->n; k++) /* vocab 0 is that of a file */
            known = known || c->row[k] == row;
        if (!known)
            (void)change(c, row, row->preset);
    }
    return c->n > before;
}

/* Changes that are not needed go; the others as near to the own value as the rest allows. */
static void come_nearer(struct inquiry *q, struct changes *c, enum verdict reached)
{
    for (int i = c->n - 1; i >= 0; i--) {
        const struct conf_row *row = c->row[i];
        struct text own = {0};
        struct changes without = *c;
        without.row[i] = without.row[--without.n];
        if (conf_get(&options_table, q->o, row->key, &own) == ERR_OK && own.s && c->n > 1 &&
            set(&without.o, row, own.s) == ERR_OK && judge(q, &without) >= reached)
            *c = without;
        text_free(&own);
    }
    for (int i = 0; i < c->n; i++) {
        list_values(q, c->row[i]);
        for (int k = 0; k < q->values; k++) {
            struct changes nearer = *c;
            if (is_set_to(q->o, c->row[i], q->value[k].text) ||
                set(&nearer.o, c->row[i], q->value[k].text) != ERR_OK ||
                judge(q, &nearer) < reached)
                continue;
            *c = nearer;
            break;
        }
    }
}

/* Message after message the keys that it names become what they are by default, which is legal. */
static bool offer_many(struct inquiry *q, struct text *out)
{
    struct changes c = {.o = *q->o};
    char said[SAID];
    enum verdict reached = REFUSED;
    q->work = CHECK_MAKE_UNITS;
    snprintf(said, sizeof said, "%s", q->said);
    while (reached == REFUSED && reset_named(&c, said)) {
        reached = judge(q, &c);
        snprintf(said, sizeof said, "%s", err_text());
    }
    if (reached != REFUSED)
        come_nearer(q, &c, reached);
    for (int i = 0; i < c.n && reached != REFUSED; i++) {
        text_add(out, "%s%s ", i == 0 ? "" : i == 1 ? " with " : " and ", c.row[i]->key);
        out->err = out->err ? out->err : conf_get(&options_table, &c.o, c.row[i]->key, out);
    }
    return reached != REFUSED;
}

static void offer(struct inquiry *q, struct text *out)
{
    struct text use = {0};
    bool start = strncmp(q->said, "ranks started", 13) == 0;
    int offers = 0;
    if (start) { /* is it that their number alone does not fit? */
        struct check_facts f = {.purpose = CHECK_PLAN};
        int need = (int)options_ranks(q->o);
        start = check_rules(q->o, need, &f) == ERR_OK || f.rule > q->rule;
        check_free(&f);
        if (start)
            text_add(out, "; start %d", need);
    }
    for (int wanted = PASSES; wanted >= AHEAD && offers == 0; wanted--)
        for (int i = 0; i < q->keys && offers < OFFERS; i++)
            offers += offer_one(q, q->key[i], (enum verdict)wanted, &use) > 0;
    for (int i = 0; i < q->keys && offers == 0; i++)
        for (int k = i + 1; k < q->keys && offers == 0; k++)
            offers += offer_two(q, q->key[i], q->key[k], &use);
    if (offers == 0)
        offers += offer_many(q, &use);
    if (offers > 0)
        text_add(out, "%s%s", start ? ", or use " : "; use ", use.s ? use.s : "");
    else if (!start && q->keys > 0)
        text_add(out, "; no value of %s%s%s alone is legal with the other keys as they are",
                 q->key[0]->key, q->keys > 1 ? " or " : "", q->keys > 1 ? q->key[1]->key : "");
    if (use.err != ERR_OK)
        out->err = use.err;
    text_free(&use);
}

enum err advice_give(const struct options *o, int ranks, const struct check_facts *f, enum err err)
{
    struct text out = {0};
    char word[32];
    struct inquiry q = {.o = o, .ranks = ranks, .rule = f->rule, .head = find_head(err_text()),
                        .work = 2 * CHECK_MAKE_UNITS};
    if ((err != ERR_CONFIG && err != ERR_DATA && err != ERR_TOKEN) || q.head == 0)
        return err;
    snprintf(q.said, sizeof q.said, "%s", err_text());
    q.keys = find_keys(o, q.said, q.key);
    for (const char *at = q.said; *at && q.numbers < NUMBERS; at++)
        if (*number_at(q.said, at, word))
            q.numbers += text_to_int(word, &q.number[q.numbers]) && q.number[q.numbers] <= largest;
    const char *near = sched_kind_meant(o->parallel.schedule);
    struct changes c = {.o = *o};
    if (strncmp(q.said, "parallel.schedule is \"", 22) == 0 && near &&
        change(&c, conf_find(&options_table, "parallel.schedule"), near) && judge(&q, &c) > REFUSED)
        q.head = strlen(q.said); /* misspelled, and what the rule takes it for is a way out */
    else if (q.keys > 0)
        offer(&q, &out);
    int said = q.keys > 0 ? (int)q.head : SAID;
    err = out.err ? out.err : ERR(err, "%.*s%s", said, q.said, out.s ? out.s : "");
    text_free(&out);
    return err;
}
