/* SPDX-License-Identifier: Apache-2.0
 *
 * The progress of a run as it is read, by a clock that the test moves: rates and times left that
 * agree, lines that stay, and where a long step is.
 */
#include "cmd.h"
#include "test.h"

#include <stdlib.h>
#include <unistd.h>

enum { TEXT = 1 << 16, TOKENS = 1000 }; /* a step's */

static double now;
static double clock_here(void)
{
    return now;
}

static struct cmd_progress open_at(bool terminal, int64_t log_every)
{
    char name[] = "progress.XXXXXX";
    now = 1000;
    struct cmd_progress p = {.fd = mkstemp(name), .clock = clock_here, .terminal = terminal,
                             .log_every = log_every};
    CHECK(p.fd >= 0 && unlink(name) == 0);
    return p;
}

/* What was written since the last call. */
static const char *written(const struct cmd_progress *p)
{
    static char text[TEXT];
    off_t end = lseek(p->fd, 0, SEEK_END);
    CHECK(end >= 0 && end < TEXT && lseek(p->fd, 0, SEEK_SET) == 0);
    CHECK(read(p->fd, text, (size_t)end) == end);
    text[end] = '\0';
    CHECK(ftruncate(p->fd, 0) == 0 && lseek(p->fd, 0, SEEK_SET) == 0);
    return text;
}

static int lines_in(const char *s)
{
    int n = 0;
    for (; *s; s++)
        n += *s == '\n';
    return n;
}

static void step(struct cmd_progress *p, int64_t number, int64_t steps, double seconds)
{
    now += seconds;
    cmd_progress_step(p, &(struct plait_step){
        .step = number, .steps = steps, .loss = 2.5, .grad_norm = 1, .lr = 1e-3,
        .tokens = number * TOKENS, .tokens_per_s = TOKENS / seconds, .seconds = seconds,
        .seconds_left = 1});
}

/* The number before a word of the last line. */
static double before(const char *text, const char *word)
{
    const char *at = NULL;
    for (const char *s = strstr(text, word); s; s = strstr(s + 1, word))
        at = s;
    if (!CHECK(at != NULL))
        return NAN;
    while (at > text && at[-1] != ' ')
        at--;
    double v = strtod(at, NULL);
    return strstr(at, "k tok") == at + strcspn(at, "k") ? 1e3 * v : v;
}

/* Steps that take turns at 0.1 and 1.9 s: one after one second on the mean. Neither the rate nor
 * the time left jumps between them, and one follows from the other. */
static void rate_and_time_left_agree(void)
{
    struct cmd_progress p = open_at(false, 1);
    step(&p, 1, 1000, 60); /* opens everything */
    CHECK(strstr(written(&p), "17 tok/s  16 h 39 m left") != NULL);
    for (int64_t s = 2; s <= 500; s++) {
        step(&p, s, 1000, s % 2 ? 1.9 : 0.1);
        const char *text = written(&p);
        double rate = before(text, " tok/s"), each = TOKENS / rate;
        double left = 60 * before(text, " m ") + before(text, " s left");
        if (s <= 24)
            continue;
        test_check(fabs(rate - TOKENS) < 60, __FILE__, __LINE__, "step %d: %g tokens a second",
                   (int)s, rate);
        test_check(fabs(left - each * (double)(1000 - s)) < 1.5, __FILE__, __LINE__,
                   "step %d: %s at %g s a step", (int)s, text, each);
    }
}

/* Of short steps the mean is over ten seconds, of long ones over twenty steps; a slower machine
 * shows within that, and no sooner in full. */
static void the_mean_forgets(void)
{
    static const struct { double was, is; int64_t steps; } row[] = {{0.01, 0.02, 505}, {2, 4, 20}};
    for (int i = 0; i < 2; i++) {
        struct cmd_progress p = open_at(false, 1);
        int64_t s = 1;
        for (double rate = 0; s <= 3000; s++) {
            step(&p, s, 100000, row[i].was);
            rate = before(written(&p), " tok/s");
            CHECK_NEAR(rate, TOKENS / row[i].was, 0.01 * TOKENS / row[i].was);
        }
        for (int64_t k = 1; k <= row[i].steps; k++, s++) {
            step(&p, s, 100000, row[i].is);
            double rate = before(written(&p), " tok/s"), whole = TOKENS / row[i].is;
            if (k < row[i].steps * 9 / 10)
                CHECK(rate > 1.02 * whole);
        }
        step(&p, s, 100000, row[i].is);
        CHECK_NEAR(before(written(&p), " tok/s"), TOKENS / row[i].is, 0.01 * TOKENS / row[i].is);
    }
}

/* Lines without a terminal: by time, or every so many steps. */
static void lines_elsewhere(void)
{
    struct cmd_progress p = open_at(false, 0);
    for (int64_t s = 1; s <= 100; s++)
        step(&p, s, 100, 0.25);
    CHECK_INT(lines_in(written(&p)), 1 + 12 + 1); /* the first; each 2 s of 24.75; the last */
    for (int64_t every = 1; every <= 101; every += 7) {
        p = open_at(false, every);
        for (int64_t s = 1; s <= 100; s++) {
            step(&p, s, 100, 0.25);
            CHECK_INT(lines_in(written(&p)), s == 1 || s == 100 || s % every == 0);
        }
    }
}

/* On a terminal a line stays above the bar, which is taken away before and drawn again behind. */
static void lines_on_a_terminal(void)
{
    for (int64_t every = 0; every <= 30; every += 10) {
        struct cmd_progress p = open_at(true, every);
        for (int64_t s = 1; s <= 95; s++) {
            char want[64];
            step(&p, s, 95, 0.25);
            const char *text = written(&p), *bar = strrchr(text, '\r');
            bool due = every > 0 && s % every == 0;
            CHECK_INT(lines_in(text), due + (s == 95));
            snprintf(want, sizeof want, "\r\033[Kstep %d/95  loss 2.5000  norm 1 ", (int)s);
            CHECK_INT(strncmp(text, want, strlen(want)) == 0, due);
            snprintf(want, sizeof want, "\rstep %d/95 [", (int)s);
            CHECK(bar && strncmp(bar, want, strlen(want)) == 0);
        }
    }
}

static void microbatch(struct cmd_progress *p, int64_t number, int backward)
{
    cmd_progress_microbatch(p, &(struct plait_microbatch){
        .step = 3, .steps = 9, .microbatch = number, .microbatches = 64, .backward = backward});
}

/* A step of 64 s, each microbatch half a second forward and half a second backward. */
static void a_long_step_says_where_it_is(void)
{
    for (int terminal = 0; terminal < 2; terminal++) {
        struct cmd_progress p = open_at(terminal, 0);
        int shown = 0;
        step(&p, 1, 9, 64);
        step(&p, 2, 9, 64);
        written(&p);
        for (int64_t i = 1; i <= 64; i++)
            for (int back = 0; back < 2; back++, now += 0.5) {
                char want[80];
                microbatch(&p, i, back);
                const char *text = written(&p);
                snprintf(want, sizeof want, "%sstep 3/9 %smicrobatch %d of 64%s%s",
                         terminal ? "\r" : "", terminal ? "" : " ", (int)i,
                         back ? " backward" : "", terminal ? " " : "\n");
                shown += *text != '\0';
                CHECK(*text == '\0' || strncmp(text, want, strlen(want)) == 0);
                CHECK(*text == '\0' || i > 3);
                CHECK(!terminal || *text == '\0' || strstr(text, "16 tok/s  7 m 28 s left"));
            }
        CHECK_INT(shown, terminal ? 122 : 6);
        step(&p, 3, 9, 64);
        CHECK(strstr(written(&p), "step 3/9") != NULL);
    }
}

/* Steps of less than three seconds, and lines that were asked for by number, are left alone. */
static void a_short_step_does_not(void)
{
    for (int i = 0; i < 3; i++) {
        struct cmd_progress p = open_at(i == 1, i == 2 ? 5 : 0);
        step(&p, 1, 9, 1);
        written(&p);
        for (int64_t mb = 1; mb <= 58; mb++, now += i == 2 ? 1 : 0.05)
            microbatch(&p, mb, 0);
        CHECK_STR(written(&p), "");
    }
}

/* A line of its own, whatever the loss; NaN has no sign. */
static void validations(void)
{
    struct cmd_progress p = open_at(true, 0);
    step(&p, 1, 9, 1);
    written(&p);
    cmd_progress_valid(&p, 1, 2.25, 3.5);
    CHECK_STR(written(&p), "\r\033[Kvalid at step 1: loss 2.2500, 3.5000 bits a byte\n");
    cmd_progress_valid(&p, 1, 2.25, NAN);
    CHECK_STR(written(&p), "valid at step 1: loss 2.2500\n");
    cmd_progress_valid(&p, 1, -(double)NAN, -(double)NAN);
    CHECK_STR(written(&p), "valid at step 1: loss nan\n");
}

/* The first step has no rate yet. */
static void the_first_step(void)
{
    struct cmd_progress p = open_at(true, 0);
    for (int64_t mb = 1; mb <= 5; mb++, now += 1)
        cmd_progress_microbatch(&p, &(struct plait_microbatch){1, 9, mb, 64, 0});
    const char *text = written(&p), *bar = strrchr(text, '\r');
    CHECK(bar && strncmp(bar, "\rstep 1/9 microbatch 5 of 64 [....", 34) == 0);
    CHECK(strstr(text, "loss") == NULL && strstr(text, "tok/s") == NULL);
}

static const struct test_case cases[] = {
    {"rate and time left agree", rate_and_time_left_agree},
    {"the mean forgets", the_mean_forgets},
    {"lines elsewhere", lines_elsewhere},
    {"lines on a terminal", lines_on_a_terminal},
    {"a long step says where it is", a_long_step_says_where_it_is},
    {"a short step does not", a_short_step_does_not},
    {"the first step", the_first_step},
    {"validations", validations},
};
TEST_MAIN(cases)
