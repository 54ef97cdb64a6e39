/* SPDX-License-Identifier: Apache-2.0
 *
 * Whom a hang's message names: the rank at the end of the chain, whoever waits for whom in front of
 * it; all of them where the chain is a cycle; and nobody who gives signs of life.
 *
 * A rank that the machine does not run is as silent as one that hangs, so each says how late it was
 * itself, and where that is half the limit or more the case is tried again with twice the limit.
 */
#include "comm/comm.h"

#include "base/fs.h"
#include "base/log.h"
#include "test.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { RANKS = 9 };
static const double least_s = 0.25, most_s = 16;
static double limit_s, began;  /* of the run under way */
static double silent[RANKS];   /* the longest silence of each that the machine is to blame for */
static atomic_bool over;       /* the run has failed */

static void nap(double s)
{
    nanosleep(&(struct timespec){(time_t)s, (long)((s - floor(s)) * 1e9)}, NULL);
}

/* A rank comes to what it is to be found at, `since` when it could have. */
static void come(const struct comm_world *w, double since)
{
    silent[comm_rank(w)] = fmax(silent[comm_rank(w)], log_now() - since);
}

/* A rank is elsewhere until the others have given up. */
static void stay_away(const struct comm_world *w)
{
    come(w, began);
    while (!atomic_load(&over) && log_now() - began < 16 * limit_s)
        nap(0.02);
}

static enum err mark(enum err err)
{
    if (err != ERR_OK)
        atomic_store(&over, true);
    return err;
}

static enum err run(int n, enum err (*body)(void *arg, struct comm_world *w), void *arg)
{
    for (limit_s = least_s;; limit_s *= 2) {
        double longest = 0;
        memset(silent, 0, sizeof silent);
        atomic_store(&over, false);
        began = log_now();
        enum err err = comm_thread_run(n, limit_s, body, arg);
        for (int i = 0; i < n; i++)
            longest = fmax(longest, silent[i]);
        if (longest < limit_s / 2 || limit_s >= most_s)
            return err;
    }
}

static enum err receive(struct comm_world *w, int from)
{
    char x;
    struct comm_req r = {0};
    TRY(comm_recv_start(w, from, 1, &x, 1, &r));
    return mark(comm_finish(&r));
}

static enum err sum(struct comm_world *w, const int *ranks, int n)
{
    struct comm_group_args a = {.id = ranks[0], .ranks = ranks, .n = n};
    struct comm_group *g;
    double x = 1;
    TRY(mark(comm_group_open(w, &a, &g)));
    enum err err = mark(comm_all_reduce(g, &x, 1, DT_F64, COMM_SUM));
    comm_group_close(g);
    return err;
}

/* Each waits for the next one, and the last for the first or for nobody: it is elsewhere. */
static enum err row(void *arg, struct comm_world *w)
{
    const bool *deadlock = arg;
    int me = comm_rank(w), next = (me + 1) % comm_size(w);
    if (next == 0 && !*deadlock) {
        comm_set_location(w, "a long way off");
        stay_away(w);
    } else {
        come(w, began);
    }
    return receive(w, next);
}

static void the_end_of_a_row(void)
{
    bool deadlock = false;
    for (int n = 2; n <= 9; n += 7) {
        char want[80];
        CHECK_ERR(run(n, row, &deadlock), ERR_HANG, ", at a long way off; ");
        snprintf(want, sizeof want, "rank %d does not answer: ", n - 1);
        CHECK(strncmp(err_text(), want, strlen(want)) == 0);
        snprintf(want, sizeof want, "; rank %d waits for rank %d, for ", n - 2, n - 1);
        CHECK(strstr(err_text(), want));
    }
}

static void a_deadlock(void)
{
    bool deadlock = true;
    CHECK_ERR(run(3, row, &deadlock), ERR_HANG,
              " wait for each other, a deadlock; rank ");
    for (int r = 0; r < 3; r++) {
        char want[80];
        snprintf(want, sizeof want, "; rank %d waits for rank %d, for ", r, (r + 1) % 3);
        CHECK(strstr(err_text(), want));
    }
}

/* Sums over {0, 1, 2} and over {2, 3, 4}; rank 2 comes to the second first, where rank 4 is not. */
static enum err two_groups(void *arg, struct comm_world *w)
{
    int me = comm_rank(w);
    (void)arg;
    if (me == 4)
        stay_away(w);
    else
        come(w, began);
    if (me >= 2)
        TRY(sum(w, (int[]){2, 3, 4}, 3));
    return me <= 2 ? sum(w, (int[]){0, 1, 2}, 3) : ERR_OK;
}

static void through_groups(void)
{
    CHECK_ERR(run(5, two_groups, NULL), ERR_HANG,
              "rank 4 does not answer: ");
}

/* A rank that is long about something but tells so; the other one has to wait. */
static enum err busy(void *arg, struct comm_world *w)
{
    struct comm_req r = {0};
    (void)arg;
    come(w, began);
    if (comm_rank(w) == 0)
        return receive(w, 1);
    for (int i = 0; i < 10; i++) {
        comm_set_location(w, "one thing after another");
        double since = log_now();
        nap(0.2 * limit_s);
        come(w, since);
    }
    TRY(comm_send_start(w, 0, 1, "x", 1, &r));
    return comm_finish(&r);
}

static void signs_of_life(void)
{
    CHECK_OK(run(2, busy, NULL));
}

/* ---- file calls ---- */

/* Rank 1 is in a file call for long, the others wait for it; with `other` rank 2 is silent. With
 * `helper` it is a thread that does rank 1's work, whose own calls return. */
struct disk { double limit_s, slow; bool other, helper; }; /* slow: in limits of a hang */

struct helper { struct fs_watch watch; double s; atomic_bool is_in; };

static void *call_for_long(void *arg)
{
    struct helper *h = arg;
    (void)fs_watch_set(&h->watch);
    fs_call_begin("run/metrics.jsonl");
    atomic_store(&h->is_in, true);
    nap(h->s);
    fs_call_end();
    return NULL;
}

static void call_by_helper(double s)
{
    struct helper h = {.watch = fs_watch_get(), .s = s};
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, call_for_long, &h) == 0);
    while (!atomic_load(&h.is_in))
        nap(0.001);
    for (int i = 0; i < 3; i++) {
        fs_call_begin("run/metrics.jsonl");
        fs_call_end();
    }
    pthread_join(thread, NULL);
}

static enum err slow_disk(void *arg, struct comm_world *w)
{
    const struct disk *d = arg;
    int ranks[] = {0, 1, 2};
    TRY(comm_files_open(w, d->limit_s));
    come(w, began);
    if (comm_rank(w) == 1 && d->helper) {
        call_by_helper(d->slow * limit_s);
    } else if (comm_rank(w) == 1) {
        fs_call_begin("run/metrics.jsonl");
        fs_call_begin("nested");
        nap(d->slow * limit_s);
        fs_call_end();
        fs_call_end();
    }
    double since = log_now();
    if (comm_rank(w) == 2 && d->other)
        stay_away(w);
    else
        come(w, since);
    enum err err = sum(w, ranks, 3);
    comm_files_close(w);
    return err;
}

static void a_slow_disk_is_no_hang(void)
{
    struct disk d = {.limit_s = 60, .slow = 3};
    CHECK_OK(run(3, slow_disk, &d));
    d.helper = true;
    CHECK_OK(run(3, slow_disk, &d));
    d.helper = false;
    d.limit_s = 0;
    CHECK_OK(run(3, slow_disk, &d));
    d.other = true;
    CHECK_ERR(run(3, slow_disk, &d), ERR_HANG, "rank 2 does not answer: ");
}

/* The process ends, so it is another one; what it says comes by a pipe. Forked before there are
 * threads: one that is ending would not be in the child, and ThreadSanitizer has none begin there
 * then. */
static void stuck_disk(bool helper)
{
    struct disk d = {.limit_s = least_s, .slow = 1, .helper = helper};
    limit_s = 60; /* of a hang; whether that counts is not asked here */
    char said[1024] = "";
    int out[2], status = 0;
    CHECK(pipe(out) == 0);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        dup2(out[1], STDERR_FILENO);
        _exit((int)comm_thread_run(3, limit_s, slow_disk, &d));
    }
    close(out[1]);
    CHECK(read(out[0], said, sizeof said - 1) > 0);
    close(out[0]);
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == ERR_STORAGE);
    CHECK(strstr(said, "rank 1: run/metrics.jsonl: a call of the file system has not returned"));
}

static void a_stuck_disk_ends_the_process(void)
{
    stuck_disk(false);
    stuck_disk(true);
}

static const struct test_case cases[] = {
    {"a_stuck_disk_ends_the_process", a_stuck_disk_ends_the_process}, /* first: it forks */
    {"a_slow_disk_is_no_hang", a_slow_disk_is_no_hang},
    {"the_end_of_a_row", the_end_of_a_row},
    {"a_deadlock", a_deadlock},
    {"through_groups", through_groups},
    {"signs_of_life", signs_of_life},
};
TEST_MAIN(cases)
