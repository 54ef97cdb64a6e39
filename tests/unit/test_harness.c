/* SPDX-License-Identifier: Apache-2.0
 *
 * The test runner from outside: this program is started again with words, and what it says and how
 * it ends is looked at. The cases that are so started are the first two and do nothing.
 */
#include "test.h"

#include <stdlib.h>
#include <sys/wait.h>

enum { SAID = 4096 };

static void nothing(void)
{
}

/* Runs this program with `words`, which a shell reads; all that it prints. Its exit code. */
static int run(const char *words, char said[SAID])
{
    char command[512];
    snprintf(command, sizeof command, "'%s' %s 2>&1", TEST_PROGRAM, words);
    FILE *f = popen(command, "r");
    said[0] = '\0';
    if (!test_check(f != NULL, __FILE__, __LINE__, "%s cannot be started", command))
        return -1;
    said[fread(said, 1, SAID - 1, f)] = '\0';
    int status = pclose(f);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void words_choose_cases(void)
{
    char said[SAID];
    CHECK_INT(run("ivory", said), 0);
    CHECK(strstr(said, "ok   a case of ivory") && strstr(said, "1 passed, 0 failed, 0 skipped"));
    CHECK_INT(run("'a case of'", said), 0); /* a part of both */
    CHECK(strstr(said, "2 passed, 0 failed, 0 skipped\n"));
    CHECK_INT(run("ebony ivory", said), 0); /* either */
    CHECK(strstr(said, "2 passed, 0 failed, 0 skipped\n"));
}

/* Nothing ran, so it must not look as if all were well; not even where another word fits. */
static void a_word_that_fits_none_is_an_error(void)
{
    static const struct { const char *words, *word, *nearest; } wrong[] = {
        {"evory", "evory", "a case of ivory"},
        {"ebny", "ebny", "a case of ebony"},
        {"ivory 'case off eboni'", "case off eboni", "a case of ebony"},
        {"'a case of ebony and more'", "a case of ebony and more", "a case of ebony"},
        {"--list ebony", "--list", NULL},
    };
    char said[SAID], want[256];
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK_INT(run(wrong[i].words, said), TEST_NO_CASE);
        snprintf(want, sizeof want, "test_harness: no case has \"%s\" in its name; the nearest is "
                 "\"%s", wrong[i].word, wrong[i].nearest ? wrong[i].nearest : "");
        test_check(strncmp(said, want, strlen(want)) == 0, __FILE__, __LINE__,
                   "%s: said\n%s\nwanted\n%s", wrong[i].words, said, want);
        CHECK(!strstr(said, "passed")); /* no closing line: tools/run-tests counts a failure */
    }
}

static void names_are_listed(void)
{
    char said[SAID];
    CHECK_INT(run("--list", said), 0);
    CHECK(strncmp(said, "a case of ivory\na case of ebony\n", 32) == 0);
}

static const struct test_case cases[] = {
    {"a case of ivory", nothing},
    {"a case of ebony", nothing},
    {"words choose cases", words_choose_cases},
    {"a word that fits none is an error", a_word_that_fits_none_is_an_error},
    {"names are listed", names_are_listed},
};
TEST_MAIN(cases)
