/* SPDX-License-Identifier: Apache-2.0
 *
 * Cases run one after another in one process; a check counts against the case that runs. The
 * closing line is read by the test command, which adds the programs up. Where a word chooses no
 * case there is no closing line: "0 failed" of nothing that ran would read as well done.
 */
#include "test.h"

#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static atomic_int failed_checks;
static char skipped[256];
static uint64_t seed, state;
static char folder[256];

bool test_check(bool ok, const char *file, int line, const char *fmt, ...)
{
    if (ok)
        return true;
    if (atomic_fetch_add(&failed_checks, 1) < 20) {
        va_list ap;
        va_start(ap, fmt);
        fprintf(stderr, "  %s:%d: ", file, line);
        vfprintf(stderr, fmt, ap);
        fputc('\n', stderr);
        va_end(ap);
    }
    return false;
}

int test_without_memory(int k, int (*call)(void *arg), void *arg)
{
    char number[16];
    int status = 0;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        snprintf(number, sizeof number, "%d", k);
        (void)setenv("PLAIT_FAIL_ALLOC", number, 1);
        _exit(call(arg));
    }
    bool ended = child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status);
    test_check(ended, __FILE__, __LINE__, "allocation %d: a signal", k);
    return ended ? WEXITSTATUS(status) : -1;
}

void test_skip(const char *why)
{
    snprintf(skipped, sizeof skipped, "%s", why);
}

uint64_t test_random(void)
{
    state += 0x9E3779B97F4A7C15u; /* SplitMix64: Steele, Lea and Flood, 2014 */
    uint64_t z = state;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

int64_t test_range(int64_t lo, int64_t hi)
{
    return lo + (int64_t)(test_random() % (uint64_t)(hi - lo + 1));
}

double test_real(double lo, double hi)
{
    return lo + (hi - lo) * ((double)(test_random() >> 11) * 0x1.0p-53);
}

uint32_t test_mix(int64_t k, int64_t i)
{
    uint32_t x = (uint32_t)((uint64_t)i + 1 + 0x9E3779B9u * (uint64_t)(k + 1));
    x ^= x >> 16;
    x *= 0x85EBCA6Bu;
    x ^= x >> 13;
    x *= 0xC2B2AE35u;
    return x ^ (x >> 16);
}

/* ---- choosing cases ---- */

enum { NAME_MAX_LEN = 80 };

/* Fewest insertions, deletions and replacements of a letter that make `word` a part of `name`
 * (Sellers, 1980: the first row of the table of distances is zero). */
static int distance(const char *word, const char *name)
{
    int row[NAME_MAX_LEN + 1] = {0}, m = (int)strnlen(name, NAME_MAX_LEN), best = INT_MAX;
    for (int i = 1; word[i - 1]; i++) {
        int corner = row[0]; /* one up and one left */
        row[0] = i;
        for (int j = 1; j <= m; j++) {
            int up = row[j], least = up < row[j - 1] ? up + 1 : row[j - 1] + 1;
            int same = corner + (word[i - 1] != name[j - 1]);
            row[j] = same < least ? same : least;
            corner = up;
        }
    }
    for (int j = 0; j <= m; j++)
        best = row[j] < best ? row[j] : best;
    return best;
}

/* Is the word a part of some case's name? If not, an error that names the nearest. */
static bool known(const char *program, const char *word, const struct test_case *cases, int n)
{
    int best = INT_MAX, at = 0;
    for (int i = 0; i < n; i++) {
        int d = distance(word, cases[i].name);
        if (strstr(cases[i].name, word))
            return true;
        if (d < best) {
            best = d;
            at = i;
        }
    }
    const char *slash = strrchr(program, '/');
    fprintf(stderr, "%s: no case has \"%s\" in its name; the nearest is \"%s\", --list gives all\n",
            slash ? slash + 1 : program, word, n ? cases[at].name : "");
    return false;
}

static bool wanted(const char *name, int argc, char **argv)
{
    if (argc < 2)
        return true;
    for (int i = 1; i < argc; i++)
        if (strstr(name, argv[i]))
            return true;
    return false;
}

/* ---- the program's folder ---- */

const char *test_folder(void)
{
    return folder;
}

static bool enter(const char *program)
{
    const char *slash = strrchr(program, '/'), *name = slash ? slash + 1 : program;
    int n = snprintf(folder, sizeof folder, "%s/%s.XXXXXX", PLAIT_BINARY_DIR, name);
    if (n < (int)sizeof folder && mkdtemp(folder) && chdir(folder) == 0)
        return true;
    fprintf(stderr, "%s: no folder can be made in %s\n", name, PLAIT_BINARY_DIR);
    return false;
}

static bool leave(void)
{
    char command[sizeof folder + 16];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command) == 0;
}

int test_main(int argc, char **argv, const struct test_case *cases, int n)
{
    const char *given = getenv("PLAIT_TEST_SEED");
    int passed = 0, failed = 0, skips = 0;
    seed = given ? strtoull(given, NULL, 10) : 1;
    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        for (int i = 0; i < n; i++)
            printf("%s\n", cases[i].name);
        return 0;
    }
    for (int i = 1; i < argc; i++)
        if (!known(argv[0], argv[i], cases, n))
            return TEST_NO_CASE;
    if (!enter(argv[0]))
        return 1;
    for (int i = 0; i < n; i++) {
        if (!wanted(cases[i].name, argc, argv))
            continue;
        state = seed;
        atomic_store(&failed_checks, 0);
        skipped[0] = '\0';
        struct timespec a, b;
        clock_gettime(CLOCK_MONOTONIC, &a);
        cases[i].run();
        clock_gettime(CLOCK_MONOTONIC, &b);
        double s = (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec);
        int bad = atomic_load(&failed_checks);
        if (bad) {
            failed++;
            printf("FAIL %s (%d checks, seed %llu)\n", cases[i].name, bad,
                   (unsigned long long)seed);
        } else if (skipped[0]) {
            skips++;
            printf("skip %s: %s\n", cases[i].name, skipped);
        } else {
            passed++;
            printf("ok   %s (%.2f s)\n", cases[i].name, s);
        }
        fflush(stdout);
    }
    printf("%d passed, %d failed, %d skipped\n", passed, failed, skips);
    return leave() && failed == 0 ? 0 : 1;
}
