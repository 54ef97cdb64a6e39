/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/golden/keys.txt names, for every key of the configuration, a test that changes it and sees
 * the right thing change by the right amount. Here the list is held against the option table and
 * against the tests: a new key needs a line, and a line a case that exists and speaks of the key.
 */
#include "test.h"

#include "base/fs.h"
#include "base/mem.h"
#include "config/options.h"
#include <ftw.h>
#include <unistd.h>

enum { LINES_MAX = 200 };

struct line { char key[64], program[64], name[128]; };

static struct line line[LINES_MAX];
static int lines;

static void read_list(void)
{
    char text[512];
    FILE *f = fopen(PLAIT_SOURCE_DIR "/tests/golden/keys.txt", "r");
    lines = 0;
    while (f && lines < LINES_MAX && fgets(text, sizeof text, f)) {
        struct line *l = &line[lines];
        text[strcspn(text, "\n")] = '\0';
        if (text[0] != '#' && CHECK(sscanf(text, "%63s %63s %127[^\n]", l->key, l->program,
                                           l->name) == 3))
            lines++;
    }
    if (CHECK(f != NULL))
        fclose(f);
}

/* The list has the keys of the table, each once, and no other. */
static void every_key_has_a_line(void)
{
    read_list();
    for (int i = 0; i < options_table.n; i++) {
        int rows = 0;
        for (int k = 0; k < lines; k++)
            rows += strcmp(line[k].key, options_table.row[i].key) == 0;
        test_check(rows == 1, __FILE__, __LINE__, "%s has %d lines in tests/golden/keys.txt: name "
                   "the test in which changing it changes the right thing by the right amount",
                   options_table.row[i].key, rows);
    }
    CHECK_INT(lines, options_table.n);
}

/* A file of tests/, ended; "": it cannot be read. mem_free. */
static char *read_file(const char *name)
{
    char path[512], *text;
    struct fs_map m;
    bool there;
    snprintf(path, sizeof path, "%s/tests/%s", PLAIT_SOURCE_DIR, name);
    there = fs_map_open(&m, path, ERR_DATA) == ERR_OK;
    CHECK_OK(mem_new(there ? m.size + 1 : 1, 1, "a test", &text));
    if (there) {
        memcpy(text, m.data, (size_t)m.size);
        fs_map_close(&m);
    }
    return text;
}

static void every_line_has_a_case(void)
{
    read_list();
    for (int i = 0; i < lines; i++) {
        const struct line *l = &line[i];
        bool script = strcmp(l->name, "script") == 0;
        char file[80], entry[160], *text, *fixture;
        const char *key = strchr(l->key, '.') + 1;
        snprintf(file, sizeof file, "%s%s", l->program, script ? "" : ".c");
        snprintf(entry, sizeof entry, "{\"%s\", ", l->name);
        text = read_file(file);
        fixture = read_file("oracle/runs.txt"); /* its keys stand there */
        bool speaks = strstr(text, key) || (strstr(text, "runs.txt") && strstr(fixture, l->key));
        test_check(text[0] && (script || strstr(text, entry)) && speaks, __FILE__, __LINE__,
                   "%s: tests/%s is not there, has no case \"%s\", or no word of the key", l->key,
                   file, l->name);
        mem_free(text);
        mem_free(fixture);
    }
}

/* Does the text have the key as a whole word? */
static bool has_key(const char *text, const char *key)
{
    size_t n = strlen(key);
    for (const char *at = text; (at = strstr(at, key)) != NULL; at++)
        if (!strchr("abcdefghijklmnopqrstuvwxyz_", at[n] ? at[n] : ' '))
            return true;
    return false;
}

static const char *recipe; /* of the walk */
static int complete;       /* files that have every key */

/* A file that has every key needs each new one; so docs/add-a-key.md speaks of it. */
static int look_at(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    const char *name = path + sizeof PLAIT_SOURCE_DIR; /* and its slash */
    char *text;
    struct fs_map m;
    bool all = true;
    (void)ftw;
    if (type != FTW_F || st->st_size == 0 || fs_map_open(&m, path, ERR_DATA) != ERR_OK)
        return 0;
    CHECK_OK(mem_new(m.size + 1, 1, "a file", &text));
    memcpy(text, m.data, (size_t)m.size);
    fs_map_close(&m);
    for (int i = 0; i < options_table.n && all; i++)
        all = has_key(text, options_table.row[i].key);
    mem_free(text);
    complete += all;
    test_check(!all || strstr(recipe, name), __FILE__, __LINE__, "%s has every key, and "
               "docs/add-a-key.md does not name it", name);
    return 0;
}

static void recipe_names_every_place(void)
{
    static const char *const folder[] = {"src", "cmd", "tests", "docs", "tools", "include"};
    struct fs_map m;
    char *text, path[512];
    CHECK_OK(fs_map_open(&m, PLAIT_SOURCE_DIR "/docs/add-a-key.md", ERR_DATA));
    CHECK_OK(mem_new(m.size + 1, 1, "a page", &text));
    memcpy(text, m.data, (size_t)m.size);
    fs_map_close(&m);
    recipe = text;
    complete = 0;
    for (size_t i = 0; i < sizeof folder / sizeof *folder; i++) {
        snprintf(path, sizeof path, "%s/%s", PLAIT_SOURCE_DIR, folder[i]);
        CHECK_INT(nftw(path, look_at, 16, FTW_PHYS), 0);
    }
    CHECK(complete >= 4); /* options.c, configuration.md, keys.txt, draw_config.c */
    for (const char *at = text; (at = strstr(at, "`src/")) != NULL; at++) {
        snprintf(path, sizeof path, "%s/%.*s", PLAIT_SOURCE_DIR, (int)strcspn(at + 1, "`"), at + 1);
        test_check(access(path, R_OK) == 0, __FILE__, __LINE__, "%s is not there", path);
    }
    mem_free(text);
}

static const struct test_case cases[] = {{"every_key_has_a_line", every_key_has_a_line},
                                         {"every_line_has_a_case", every_line_has_a_case},
                                         {"recipe_names_every_place", recipe_names_every_place}};
TEST_MAIN(cases)
