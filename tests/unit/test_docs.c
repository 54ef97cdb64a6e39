/* SPDX-License-Identifier: Apache-2.0
 *
 * Pages against what they list: the options of the build, the pages themselves.
 */
#include "base/fs.h"
#include "base/mem.h"
#include "test.h"

#include <ctype.h>
#include <dirent.h>
#include <unistd.h>

/* A file of the sources as a string; mem_free. */
static char *read_source(const char *name)
{
    struct fs_map map;
    char path[512], *copy = NULL;
    snprintf(path, sizeof path, "%s/%s", PLAIT_SOURCE_DIR, name);
    CHECK_OK(fs_map_open(&map, path, ERR_DATA));
    CHECK_OK(mem_new(map.size + 1, 1, "a page", &copy));
    memcpy(copy, map.data, (size_t)map.size);
    fs_map_close(&map);
    return copy;
}

/* "PLAIT_..." behind `before`, or "". */
static void name_behind(const char *at, const char *before, char out[64])
{
    size_t skip = strlen(before), n = 0;
    out[0] = '\0';
    if (strncmp(at, before, skip) != 0)
        return;
    while (n < 63 && (isupper((unsigned char)at[skip + n]) || at[skip + n] == '_'))
        n++;
    snprintf(out, 64, "%.*s", (int)n, at + skip);
}

/* Every option and cached value of CMakeLists.txt has a row, and every row is one of them. */
static void options_of_the_build_have_rows(void)
{
    char *cmake = read_source("CMakeLists.txt"), *page = read_source("docs/build.md");
    char name[64], row[80];
    int options = 0, rows = 0;
    for (const char *at = cmake; *at; at++) {
        name_behind(at, "option(", name);
        const char *line = at + strcspn(at, "\n"), *cached = strstr(at, " CACHE ");
        if (!name[0] && cached && cached < line)
            name_behind(at, "set(", name);
        if (strncmp(name, "PLAIT_", 6) != 0)
            continue;
        options++;
        snprintf(row, sizeof row, "\n| `%s` |", name);
        test_check(strstr(page, row) != NULL, __FILE__, __LINE__, "docs/build.md has no %s", name);
    }
    for (const char *at = page; (at = strstr(at, "\n| `PLAIT_")) != NULL; at++)
        rows++;
    CHECK(options >= 7);
    CHECK_INT(rows, options);
    mem_free(cmake);
    mem_free(page);
}

static void pages_are_listed(void)
{
    char *list = read_source("docs/README.md"), link[300];
    DIR *d = opendir(PLAIT_SOURCE_DIR "/docs");
    int pages = 0;
    for (struct dirent *e; d && (e = readdir(d));) {
        const char *dot = strrchr(e->d_name, '.');
        if (!dot || strcmp(dot, ".md") != 0 || strcmp(e->d_name, "README.md") == 0)
            continue;
        pages++;
        snprintf(link, sizeof link, "](%s)", e->d_name);
        test_check(strstr(list, link) != NULL, __FILE__, __LINE__, "docs/README.md has no %s",
                   e->d_name);
    }
    if (d)
        closedir(d);
    CHECK(pages > 10);
    mem_free(list);
}

/* Is it a path of the sources, `folder/file.c` or the like, that a page names? */
static bool is_path(const char *at, size_t n)
{
    static const char *const ends[] = {".c", ".h", ".cu", ".cuh", ".sh", ".py"};
    static const char legal[] = "abcdefghijklmnopqrstuvwxyz0123456789_./-";
    if (n > 200 || strspn(at, legal) != n || !memchr(at, '/', n))
        return false;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (n > strlen(ends[i]) && strncmp(at + n - strlen(ends[i]), ends[i], strlen(ends[i])) == 0)
            return true;
    return false;
}

/* Every path in backticks of a page is there, from the root or from src/. */
static int paths_of(const char *page)
{
    char *text = read_source(page), path[512];
    int paths = 0;
    for (const char *at = text; (at = strchr(at, '`')) != NULL; at++) {
        size_t n = strcspn(at + 1, "`\n");
        if (!is_path(at + 1, n))
            continue;
        paths++;
        snprintf(path, sizeof path, "%s/%.*s", PLAIT_SOURCE_DIR, (int)n, at + 1);
        bool is = access(path, R_OK) == 0;
        snprintf(path, sizeof path, "%s/src/%.*s", PLAIT_SOURCE_DIR, (int)n, at + 1);
        test_check(is || access(path, R_OK) == 0, __FILE__, __LINE__, "%s names %.*s", page, (int)n,
                   at + 1);
    }
    mem_free(text);
    return paths;
}

static void paths_that_pages_name_are_there(void)
{
    static const char *const folder[] = {"docs", "docs/design"};
    int paths = paths_of("ARCHITECTURE.md");
    CHECK(paths > 50);
    paths += paths_of("CONTRIBUTING.md") + paths_of("bench/README.md");
    for (int i = 0; i < 2; i++) {
        char name[600];
        snprintf(name, sizeof name, "%s/%s", PLAIT_SOURCE_DIR, folder[i]);
        DIR *d = opendir(name);
        CHECK(d != NULL);
        for (struct dirent *e; d && (e = readdir(d));) {
            const char *dot = strrchr(e->d_name, '.');
            snprintf(name, sizeof name, "%s/%s", folder[i], e->d_name);
            if (dot && strcmp(dot, ".md") == 0)
                paths += paths_of(name);
        }
        if (d)
            closedir(d);
    }
    CHECK(paths > 100);
}

static const struct test_case cases[] = {
    {"options_of_the_build_have_rows", options_of_the_build_have_rows},
    {"pages_are_listed", pages_are_listed},
    {"paths_that_pages_name_are_there", paths_that_pages_name_are_there},
};
TEST_MAIN(cases)
