/* SPDX-License-Identifier: Apache-2.0
 *
 * Who is blamed for a hang: the rank at the end of the chain, whoever waits for whom in front of
 * it; all of them where the chain is a circle; and nobody who gives signs of life.
 */
#include "comm/comm.h"

#include "base/fs.h"
#include "test.h"
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const double timeout_s = 0.25, patient_s = 1; /* the longer one where none may run out */

static void nap(double s)
{
    nanosleep(&(struct timespec){(time_t)s, (long)((s - floor(s)) * 1e9)}, NULL);
}

static enum err receive(struct comm_world *w, int from)
{
    char x;
    struct comm_req r = {0};
    TRY(comm_recv_start(w, from, 1, &x, 1, &r));
    return comm_finish(&r);
}

static enum err sum(struct comm_world *w, const int *ranks, int n)
{
    struct comm_group_args a = {.id = ranks[0], .ranks = ranks, .n = n};
    struct comm_group *g;
    double x = 1;
    TRY(comm_group_open(w, &a, &g));
    enum err err = comm_all_reduce(g, &x, 1, DT_F64, COMM_SUM);
    comm_group_close(g);
    return err;
}

/* Each waits for the next one, and the last for the first or for nobody: it is elsewhere. */
static enum err row(void *arg, struct comm_world *w)
{
    const bool *circle = arg;
    int me = comm_rank(w), next = (me + 1) % comm_size(w);
    if (next == 0 && !*circle) {
        comm_place(w, "a long way off");
        nap(4 * timeout_s);
    }
    return receive(w, next);
}

static void the_end_of_a_row(void)
{
    bool circle = false;
    for (int n = 2; n <= 9; n += 7) {
        char want[80];
        CHECK_ERR(comm_thread_run(n, timeout_s, row, &circle), ERR_HANG, ", at a long way off; ");
        snprintf(want, sizeof want, "rank %d does not answer: ", n - 1);
        CHECK(strncmp(err_text(), want, strlen(want)) == 0);
        snprintf(want, sizeof want, "; rank %d waits for rank %d, for ", n - 2, n - 1);
        CHECK(strstr(err_text(), want));
    }
}

static void a_circle(void)
{
    bool circle = true;
    CHECK_ERR(comm_thread_run(3, timeout_s, row, &circle), ERR_HANG,
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
        nap(4 * timeout_s);
    if (me >= 2)
        TRY(sum(w, (int[]){2, 3, 4}, 3));
    return me <= 2 ? sum(w, (int[]){0, 1, 2}, 3) : ERR_OK;
}

static void through_groups(void)
{
    CHECK_ERR(comm_thread_run(5, timeout_s, two_groups, NULL), ERR_HANG,
              "rank 4 does not answer: ");
}

/* A rank that is long about something but tells so; the other one has to wait. */
static enum err busy(void *arg, struct comm_world *w)
{
    struct comm_req r = {0};
    (void)arg;
    if (comm_rank(w) == 0)
        return receive(w, 1);
    for (int i = 0; i < 10; i++) {
        comm_place(w, "one thing after another");
        nap(0.2 * patient_s);
    }
    TRY(comm_send_start(w, 0, 1, "x", 1, &r));
    return comm_finish(&r);
}

static void signs_of_life(void)
{
    CHECK_OK(comm_thread_run(2, patient_s, busy, NULL));
}

/* ---- file calls ---- */

/* Rank 1 is in a file call for long, the others wait for it; with `other` rank 2 is silent. */
struct disk { double limit_s, slow_s; bool other; };

static enum err slow_disk(void *arg, struct comm_world *w)
{
    const struct disk *d = arg;
    int ranks[] = {0, 1, 2};
    TRY(comm_files_open(w, d->limit_s));
    if (comm_rank(w) == 1) {
        fs_call_begin("run/metrics.jsonl");
        fs_call_begin("nested");
        nap(d->slow_s);
        fs_call_end();
        fs_call_end();
    }
    if (comm_rank(w) == 2 && d->other)
        nap(4 * timeout_s);
    enum err err = sum(w, ranks, 3);
    comm_files_close(w);
    return err;
}

static void a_slow_disk_is_no_hang(void)
{
    struct disk d = {.limit_s = 60, .slow_s = 3 * timeout_s};
    CHECK_OK(comm_thread_run(3, timeout_s, slow_disk, &d));
    d.limit_s = 0;
    CHECK_OK(comm_thread_run(3, timeout_s, slow_disk, &d));
    d.other = true;
    CHECK_ERR(comm_thread_run(3, timeout_s, slow_disk, &d), ERR_HANG, "rank 2 does not answer: ");
}

/* The process ends, so it is another one; what it says comes by a pipe. */
static void a_stuck_disk_ends_the_process(void)
{
    struct disk d = {.limit_s = timeout_s, .slow_s = 20};
    char said[1024] = "";
    int out[2], status = 0;
    CHECK(pipe(out) == 0);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        dup2(out[1], STDERR_FILENO);
        _exit((int)comm_thread_run(3, timeout_s, slow_disk, &d));
    }
    close(out[1]);
    CHECK(read(out[0], said, sizeof said - 1) > 0);
    close(out[0]);
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == ERR_STORAGE);
    CHECK(strstr(said, "rank 1: run/metrics.jsonl: a call of the file system has not returned"));
}

static const struct test_case cases[] = {
    {"a_slow_disk_is_no_hang", a_slow_disk_is_no_hang},
    {"a_stuck_disk_ends_the_process", a_stuck_disk_ends_the_process},
    {"the_end_of_a_row", the_end_of_a_row},
    {"a_circle", a_circle},
    {"through_groups", through_groups},
    {"signs_of_life", signs_of_life},
};
TEST_MAIN(cases)
