/* SPDX-License-Identifier: Apache-2.0
 *
 * tests/golden/keys.txt names, for every key of the configuration, a test that changes it and sees
 * the right thing change by the right amount. Here the list is held against the option table and
 * against the tests: a new key needs a line, and a line a case that exists and speaks of the key.
 */
#include "test.h"

#include "base/fs.h"
#include "base/mem.h"
#include "run/options.h"

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

static const struct test_case cases[] = {{"every_key_has_a_line", every_key_has_a_line},
                                         {"every_line_has_a_case", every_line_has_a_case}};
TEST_MAIN(cases)
