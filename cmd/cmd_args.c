/* SPDX-License-Identifier: Apache-2.0
 *
 * One parser of arguments for all verbs. Options are described by a table, and the help page is
 * made from the same table; so an option that exists is explained, and the other way round.
 *
 * Numbers are strict: the whole word must be one, within the option's range.
 */
#include "cmd.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { WORD_MAX = 64 };

static const char *trail; /* of a mistake of plait, or NULL */

static void say(const char *text)
{
    fprintf(stderr, "plait: %s\n", text);
    if (trail)
        fprintf(stderr, "plait: this is a mistake of plait; please report it with: %s\n", trail);
}

static bool runs_ranks;

void cmd_runs_ranks(void)
{
    runs_ranks = true;
}

/* Of verbs that run no ranks one process of a launch has the work, and the errors. */
static int say_error(int code, const char *text)
{
    if (runs_ranks)
        return plait_say(code, text, say);
    say(text);
    return code;
}

int cmd_fail(int code)
{
    trail = code == PLAIT_INTERNAL ? plait_error_trail() : NULL;
    /* Under MPI another process may have said it. */
    return *plait_error() ? say_error(code, plait_error()) : code;
}

int cmd_fine(void)
{
    return say_error(PLAIT_OK, "");
}

int cmd_usage(const char *fmt, ...)
{
    va_list ap;
    char said[1024], *shown;
    va_start(ap, fmt);
    vsnprintf(said, sizeof said, fmt, ap);
    va_end(ap);
    if (plait_word_shown(said, &shown) != PLAIT_OK)
        return cmd_fail(PLAIT_MEMORY);
    int code = say_error(PLAIT_CONFIG, shown);
    plait_free(shown);
    return code;
}

int cmd_answer(int code, char **text)
{
    if (code != PLAIT_OK)
        return cmd_fail(code);
    fputs(*text, stdout);
    plait_free(*text);
    return PLAIT_OK;
}

void cmd_wrote(const char *path, const char *what)
{
    char *shown;
    if (!path || plait_word_shown(path, &shown) != PLAIT_OK)
        return;
    fprintf(stderr, "plait: wrote %s, %s\n", shown, what);
    plait_free(shown);
}

void cmd_note(void *arg, const char *note)
{
    (void)arg;
    fprintf(stderr, "plait: note: %s\n", note);
}

/* A message is one line, and some verbs are used in several ways. */
static int first_line(const char *s)
{
    return (int)strcspn(s, "\n");
}

/* Insertions, deletions and replacements between two short words. The library has its own measure
 * behind its messages; the program has no way to it but plait.h, which is no place for spelling. */
static int distance(const char *a, const char *b)
{
    int row[WORD_MAX + 1];
    int n = (int)strlen(a), m = (int)strlen(b);
    for (int j = 0; j <= m; j++)
        row[j] = j;
    for (int i = 1; i <= n; i++) {
        int corner = row[0];
        row[0] = i;
        for (int j = 1; j <= m; j++) {
            int best = corner + (a[i - 1] != b[j - 1]);
            best = row[j] + 1 < best ? row[j] + 1 : best;
            best = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
            corner = row[j];
            row[j] = best;
        }
    }
    return row[m];
}

const char *cmd_nearest(const char *word, int n, const char *(*name)(int i))
{
    const char *found = NULL;
    size_t length = strlen(word);
    int limit = length < 3 ? 1 : 2;
    for (int i = 0; i < n && length <= WORD_MAX; i++) {
        const char *candidate = name(i);
        int d = strlen(candidate) <= WORD_MAX ? distance(word, candidate) : WORD_MAX;
        if (d <= limit) {
            found = candidate;
            limit = d - 1;
        }
    }
    return found;
}

static void print_page(const struct cmd_page *page)
{
    printf("usage: %s\n\n%s\n\n", page->usage, page->about);
    for (int i = 0; i <= page->options; i++) {
        static const struct cmd_option help = {.name = "help", .letter = 'h', .help = "this page"};
        const struct cmd_option *o = i < page->options ? &page->option[i] : &help;
        char left[64], letter[8] = "    ";
        if (o->letter)
            snprintf(letter, sizeof letter, "-%c, ", o->letter);
        snprintf(left, sizeof left, "%s--%s%s%s", letter, o->name, o->value ? " " : "",
                 o->value ? o->value : "");
        printf("  %-26s %s\n", left, o->help);
    }
    if (page->more)
        printf("\n%s\n", page->more);
}

/* A path as no shell has it. */
static int refuse_home(const char *path)
{
    return cmd_usage("\"%.200s\": only a shell makes a home folder of ~, where it begins a word "
                     "and is not in quotes; write the whole path, or ./~ for a file of that name",
                     path);
}

static int set_value(const struct cmd_option *o, const char *value)
{
    double v = 0;
    int64_t n = 0, min = (int64_t)o->min, max = (int64_t)o->max;
    bool real = o->type == CMD_REAL, text = o->type == CMD_TEXT;
    if (text && value[0] == '~' && strcmp(o->value, "FILE") == 0)
        return refuse_home(value);
    if (real && (plait_word_real(value, &v) != PLAIT_OK || v < o->min || v > o->max))
        return cmd_usage("--%s is \"%.40s\"; wanted is a number from %g to %g", o->name, value,
                         o->min, o->max);
    if (!real && !text && (plait_word_int(value, &n) != PLAIT_OK || n < min || n > max))
        return cmd_usage("--%s is \"%.40s\"; wanted is a whole number from %lld to %lld", o->name,
                         value, (long long)min, (long long)max);
    if (text)
        *(const char **)o->out = value;
    else if (real)
        *(double *)o->out = v;
    else if (o->type == CMD_INT)
        *(int *)o->out = (int)n;
    else
        *(int64_t *)o->out = n;
    return PLAIT_OK;
}

/* The option of this name, of `length` bytes; or NULL. */
static const struct cmd_option *find_name(const struct cmd_page *page, const char *name,
                                          size_t length)
{
    for (int i = 0; i < page->options; i++)
        if (strlen(page->option[i].name) == length &&
            strncmp(page->option[i].name, name, length) == 0)
            return &page->option[i];
    return NULL;
}

static const struct cmd_option *find_letter(const struct cmd_page *page, char letter)
{
    for (int i = 0; i < page->options; i++)
        if (page->option[i].letter == letter)
            return &page->option[i];
    return NULL;
}

/* The name of an option in another program. False: it is none that is known. */
static bool is_foreign(const struct cmd_page *page, const char *word, const char *name)
{
    const struct cmd_name *other = cmd_name_find(page->names, name);
    const char *means = other ? other->means : NULL;
    size_t dashes = means ? strspn(means, "-") : 0;
    bool here = dashes == 0   ? !means || page->keys /* verbs share tables */
                : dashes == 1 ? find_letter(page, means[1]) != NULL
                              : find_name(page, means + 2, strcspn(means + 2, " ")) != NULL;
    if (!other || !here)
        return false;
    (void)cmd_usage("there is no option %s; %s%s%s%s", word, means ? "did you mean " : "",
                    means ? means : "", means && other->how ? ": " : "",
                    other->how ? other->how : "");
    return true;
}

/* By its letters; of a beginning that only one option has, that one; or NULL. */
static const char *nearest_option(const struct cmd_page *page, const char *name)
{
    const char *near = NULL, *longer = NULL;
    size_t length = strlen(name);
    int best = length <= 4 ? 2 : 3, begin = 0;
    for (int i = 0; i < page->options; i++) {
        const char *option = page->option[i].name;
        int d = distance(name, option);
        if (d < best) {
            best = d;
            near = option;
        }
        if (strncmp(option, name, length) == 0) {
            longer = option;
            begin++;
        }
    }
    return !near && begin == 1 ? longer : near;
}

/* A key written as an option. False: it is none. */
static bool is_key(const char *name)
{
    const char *key = plait_config_nearest(name), *dot = key ? strchr(key, '.') : NULL;
    if (!dot || (strcmp(key, name) != 0 && strcmp(dot + 1, name) != 0))
        return false;
    (void)cmd_usage("there is no option --%s; keys have no dashes, did you mean %s=VALUE", name,
                    key);
    return true;
}

/* What another program calls a key, or a key misspelled, as an option. False: it is none. */
static bool is_foreign_key(const char *name)
{
    struct plait_config *c;
    char word[WORD_MAX + 2];
    if (plait_config_new(&c) != PLAIT_OK)
        return false;
    snprintf(word, sizeof word, "%s=", name);
    (void)plait_config_set(c, word);
    plait_config_free(c);
    const char *said = strstr(plait_error(), "there is no key");
    bool known = said && !strstr(said, "`plait help config`");
    if (known)
        (void)cmd_usage("there is no option --%s; keys have no dashes, and %s", name, said);
    return known;
}

static int unknown_option(const struct cmd_page *page, const char *word, size_t length)
{
    char name[WORD_MAX + 1], whole[WORD_MAX + 3];
    snprintf(name, sizeof name, "%.*s", (int)(length < WORD_MAX ? length : WORD_MAX), word);
    snprintf(whole, sizeof whole, "--%s", name);
    if (is_foreign(page, whole, name) || (page->keys && is_key(name)))
        return PLAIT_CONFIG;
    const char *near = nearest_option(page, name);
    if (near)
        return cmd_usage("there is no option --%s; the nearest is --%s", name, near);
    if (page->keys && is_foreign_key(name))
        return PLAIT_CONFIG;
    return cmd_usage("there is no option --%s; usage: %.*s", name, first_line(page->usage),
                     page->usage);
}

/* One option at argv[*at]; *at moves on when its value is the next word. */
static int read_option(const struct cmd_page *page, int argc, char **argv, int *at)
{
    const char *word = argv[*at], *value = NULL; /* what stands behind it in the same word */
    bool letter = word[1] != '-';
    size_t length = letter ? 2 : 2 + strcspn(word + 2, "=");
    const struct cmd_option *o = letter ? find_letter(page, word[1])
                                        : find_name(page, word + 2, length - 2);
    if (o && word[length])
        value = word + length + !letter;
    char name[WORD_MAX + 1];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(word + 1, "="), word + 1);
    if (letter && (!o || value) && is_foreign(page, word, name)) /* -ngl, which is no -n gl */
        return PLAIT_CONFIG;
    if (!o && !letter)
        return unknown_option(page, word + 2, length - 2);
    if (!o)
        return cmd_usage("there is no option -%c; usage: %.*s", word[1], first_line(page->usage),
                         page->usage);
    if (o->type == CMD_FLAG) {
        if (value)
            return cmd_usage("--%s takes no value, and \"%.40s\" was given", o->name, value);
        *(int *)o->out = 1;
        return PLAIT_OK;
    }
    if (!value && *at + 1 >= argc)
        return cmd_usage("--%s needs a value %s", o->name, o->value);
    return set_value(o, value ? value : argv[++*at]);
}

bool cmd_parse(const struct cmd_page *page, int argc, char **argv, int *words, int *code)
{
    int kept = 0;
    bool options = true;
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];
        if (word[0] == '~') {
            *code = refuse_home(word);
            return false;
        }
        if (!options || word[0] != '-' || word[1] == '\0') {
            argv[++kept] = argv[i];
            continue;
        }
        if (strcmp(word, "--") == 0) {
            options = false;
            continue;
        }
        if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
            if (plait_is_first())
                print_page(page);
            *code = PLAIT_OK;
            return false;
        }
        *code = read_option(page, argc, argv, &i);
        if (*code != PLAIT_OK)
            return false;
    }
    *words = kept;
    return true;
}

int cmd_config(int words, char **argv, const struct cmd_keys *keys, struct plait_config **out)
{
    struct plait_config *c;
    if (words < 1)
        return cmd_usage("no configuration is given; name a YAML file or key=value words, as in "
                         "`plait %s run.yaml model.layers=12`", argv[0]);
    int code = plait_config_new(&c);
    if (code != PLAIT_OK)
        return cmd_fail(code);
    int first = 1;
    if (!strchr(argv[1], '='))
        code = plait_config_read(c, argv[first++]);
    for (int i = first; i <= words && code == PLAIT_OK; i++)
        code = plait_config_set(c, argv[i]);
    if (code == PLAIT_OK && keys && keys->trace)
        code = plait_config_set(c, "train.trace=true");
    if (code == PLAIT_OK && keys && keys->canonical)
        code = plait_config_set(c, "train.canonical_accumulation=true");
    if (code != PLAIT_OK) {
        plait_config_free(c);
        return cmd_fail(code);
    }
    *out = c;
    return PLAIT_OK;
}
