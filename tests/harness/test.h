/* SPDX-License-Identifier: Apache-2.0
 *
 * The test runner: cases by name, checks that keep going, one closing line a program
 * ("N passed, N failed, N skipped"). Each tests/<set>/test_*.c becomes one program with main by
 * TEST_MAIN. Arguments: words, of which a case's name must contain one to be run; --list. A word
 * that no name contains is an error, exit code TEST_NO_CASE, before anything runs.
 *
 * A program's cases run in a folder of its own, test_folder(), so that it may run several times at
 * once: relative names are files there, and all go when it ends.
 */
#ifndef PLAIT_TEST_H
#define PLAIT_TEST_H

#include "base/err.h"
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

struct test_case { const char *name; void (*run)(void); };

/* Check results go to the running case; a failed one prints file, line and values. Safe to call
 * from the threads of a case. */
bool test_check(bool ok, const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* Marks the running case as skipped, with the reason. */
void test_skip(const char *why);
enum { TEST_NO_CASE = 2 }; /* exit code; 1: a case failed */
int test_main(int argc, char **argv, const struct test_case *cases, int n);
/* In the build folder; an absolute name. */
const char *test_folder(void);
/* What `call` returns, an exit code, in a process of its own whose k-th allocation fails (they are
 * counted by process); -1, and a failed check: it did not end by itself. */
int test_without_memory(int k, int (*call)(void *arg), void *arg);

/* Seeded random numbers for random problems; the seed is printed when a case fails
 * (PLAIT_TEST_SEED sets it). */
uint64_t test_random(void);
int64_t test_range(int64_t lo, int64_t hi); /* both included */
double test_real(double lo, double hi);
/* Number i of list k: what the scripts of tests/oracle make weights and tokens of (mix there). */
uint32_t test_mix(int64_t k, int64_t i);

#define CHECK(cond) test_check((cond), __FILE__, __LINE__, "%s", #cond)
#define CHECK_OK(call)                                                                             \
    do {                                                                                           \
        enum err check_err_ = (call);                                                              \
        test_check(check_err_ == ERR_OK, __FILE__, __LINE__, "%s: error %d: %s", #call,            \
                   (int)check_err_, err_text());                                                   \
    } while (0)
/* The call fails with `code` and its message contains `part`. */
#define CHECK_ERR(call, code, part)                                                                \
    do {                                                                                           \
        enum err check_err_ = (call);                                                              \
        test_check(check_err_ == (code) && strstr(err_text(), (part)) != NULL, __FILE__, __LINE__, \
                   "%s: wanted %d with \"%s\", got %d: %s", #call, (int)(code), (part),            \
                   (int)check_err_, err_text());                                                   \
    } while (0)
#define CHECK_INT(got, want)                                                                       \
    do {                                                                                           \
        int64_t check_g_ = (int64_t)(got), check_w_ = (int64_t)(want);                             \
        test_check(check_g_ == check_w_, __FILE__, __LINE__, "%s is %lld, wanted %lld", #got,      \
                   (long long)check_g_, (long long)check_w_);                                      \
    } while (0)
#define CHECK_NEAR(got, want, tol)                                                                 \
    do {                                                                                           \
        double check_g_ = (got), check_w_ = (want);                                                \
        test_check(fabs(check_g_ - check_w_) <= (tol), __FILE__, __LINE__,                         \
                   "%s is %.17g, wanted %.17g within %g", #got, check_g_, check_w_,                \
                   (double)(tol));                                                                 \
    } while (0)
#define CHECK_STR(got, want)                                                                       \
    do {                                                                                           \
        const char *check_g_ = (got), *check_w_ = (want);                                          \
        test_check(strcmp(check_g_, check_w_) == 0, __FILE__, __LINE__,                            \
                   "%s is\n%s\nwanted\n%s", #got, check_g_, check_w_);                             \
    } while (0)

#define TEST_MAIN(cases)                                                                           \
    int main(int argc, char **argv)                                                                \
    {                                                                                              \
        return test_main(argc, argv, (cases), (int)(sizeof(cases) / sizeof *(cases)));             \
    }

#endif
