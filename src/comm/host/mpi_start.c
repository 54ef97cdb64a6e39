/* SPDX-License-Identifier: Apache-2.0
 *
 * MPI starts once in a process and ends with it. The first exchange there is whether a process has
 * an error already: one that refuses its configuration or its files knows nothing of its peers, who
 * may have the same error, so it starts MPI, too, and all learn all errors. Of those with the same
 * text the lowest rank reports. Nobody ends before: MPI_Finalize waits for all, and the exit code
 * is the same on each, that of the lowest rank with an error. A process without ranks to run takes
 * part, too, by comm_report_error; where others have some, they would wait for it for ever.
 */
#include "comm/host/mpi.h"

#include "base/log.h"
#include "base/mem.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

enum { START_S = 15, REPORTER_S = 2 };

/* ---- names ----
 * Processes of a launch on one machine know of each other by names of the kernel's abstract
 * sockets, which end with the process that holds them and leave no file: one for each that is in
 * calls with a limit, and one for what is reported when the time is over. Whoever gets the latter
 * prints it, and stays until all that have come have asked for it, two seconds at most; the others
 * wait until its end has the launcher end them. */

/* A socket for the name of `what` in this launch, or -1: which launch it is is not known. */
static int name_socket(const char *what, struct sockaddr_un *at, socklen_t *size)
{
    struct comm_launch l = comm_launch();
    if (!l.job[0] || l.size < 2)
        return -1;
    *at = (struct sockaddr_un){.sun_family = AF_UNIX}; /* a path that begins with 0 is a name */
    int n = snprintf(at->sun_path + 1, sizeof at->sun_path - 1, "plait.%ld.%s.%s",
                     (long)getuid(), l.job, what);
    *size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
                        num_min(n, (int)sizeof at->sun_path - 2));
    return socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
}

/* A socket that holds the name, or -1 and *taken when another does. */
static int take_name(const char *what, bool *taken)
{
    struct sockaddr_un at;
    socklen_t size;
    int fd = name_socket(what, &at, &size);
    *taken = fd >= 0 && bind(fd, (const struct sockaddr *)&at, size) != 0;
    if (!*taken)
        return fd;
    /* The holder learns that one more has asked. */
    (void)sendto(fd, "", 1, MSG_DONTWAIT, (const struct sockaddr *)&at, size);
    close(fd);
    return -1;
}

/* The ranks that have not come; none when all have, or when the launcher does not put all of its
 * processes on this machine. */
static void absent(struct comm_names *n)
{
    struct comm_launch l = comm_launch();
    for (int r = 0; r < l.size && l.local_size == l.size; r++) {
        struct sockaddr_un at;
        socklen_t size;
        char name[32];
        snprintf(name, sizeof name, "rank %d", r);
        int fd = name_socket(name, &at, &size);
        if (fd < 0 || connect(fd, (const struct sockaddr *)&at, size) != 0)
            comm_names_add(n, r);
        if (fd >= 0)
            close(fd);
    }
    comm_names_end(n);
}

/* Until `others` have asked for the name that fd holds, or the time is over. */
static void await_others(int fd, int others)
{
    double left, end = log_now() + REPORTER_S;
    char c;
    for (; others > 0 && (left = end - log_now()) > 0; others--) {
        struct timeval t = {(time_t)left, (suseconds_t)((left - floor(left)) * 1e6)};
        if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t) != 0 || recv(fd, &c, 1, 0) < 0)
            return;
    }
}

/* Among those with the same text. */
static void print_once(const char *text, void (*print)(const char *text))
{
    char name[32];
    bool taken;
    struct comm_launch l = comm_launch();
    snprintf(name, sizeof name, "reports %016llx",
             (unsigned long long)XXH3_64bits(text, strlen(text)));
    int fd = take_name(name, &taken);
    if (taken) {
        nanosleep(&(struct timespec){2 * REPORTER_S, 0}, NULL);
        return;
    }
    print(text);
    if (fd >= 0)
        await_others(fd, (l.local_size > 0 ? l.local_size : l.size) - 1);
    /* The descriptor, and with it the name, ends with the process. */
}

/* ---- the limit ----
 * Of MPI_Init, which waits for every process that was launched, also for one that will never call
 * it, and of MPI_Finalize, which waits for one that is stopped. */

/* What is said when the time is over: `text`, and the process ends with `code`; text NULL: that
 * `what` does not end and which ranks have not come, and ERR_HANG. Texts are borrowed. */
struct late {
    const char *what, *text;
    void (*print)(const char *text);
    enum err code;
};

static struct {
    struct comm_time_limit limit;
    bool runs;
    double limit_s;
    struct late late;
    int come; /* a socket that has the process's name, or -1 */
} keeper = {.come = -1};

static void log_late(const char *text)
{
    log_line(LOG_ERROR, "%s", text);
}

static void too_late(struct comm_time_limit *limit)
{
    const struct late *l = &keeper.late;
    struct comm_names away = {.text = ""};
    char text[512];
    (void)limit;
    if (l->text) {
        print_once(l->text, l->print);
        err_leave(l->code);
    }
    absent(&away);
    snprintf(text, sizeof text, "comm: %s has waited %g s for the launcher's other processes%s%s; "
             "each of them must be plait, with train.transport mpi, and run; look at it, or raise "
             "train.hang_timeout", l->what, keeper.limit_s,
             away.named ? ", of which these have not come: rank " : "", away.text);
    print_once(text, log_late);
    err_leave(ERR_HANG);
}

/* Until comm_mpi_limit_end this process is in calls of MPI that wait for all others and know no
 * limit: peers on the same machine can see that it has come to them, and it has limit_s for them
 * (at least START_S; 0: no limit). */
static void limit(double limit_s, const struct late *late)
{
    struct comm_launch l = comm_launch();
    char name[32];
    bool taken;
    snprintf(name, sizeof name, "rank %d", l.rank);
    keeper.come = l.rank < 0 ? -1 : take_name(name, &taken);
    if (limit_s <= 0 || l.size < 2)
        return;
    keeper.limit_s = fmax(limit_s, START_S);
    keeper.late = *late;
    keeper.limit = (struct comm_time_limit){
        .period = 0.5, .late = too_late, .end = log_now() + ceil(keeper.limit_s)};
    keeper.runs = comm_time_limit_begin(&keeper.limit) == ERR_OK;
    if (!keeper.runs)
        log_line(LOG_WARN, "%s", err_text());
}

void comm_mpi_limit_end(void)
{
    if (keeper.come >= 0)
        close(keeper.come);
    keeper.come = -1;
    if (keeper.runs)
        comm_time_limit_end(&keeper.limit);
    keeper.runs = false;
}

/* ---- starting and ending ---- */

/* What a process brings to the start. */
enum { WHAT_WORDS = 4, REPORT_WORDS = 2 + WHAT_WORDS };
struct start_report { uint64_t code, text_hash; char what[8 * WHAT_WORDS]; };
_Static_assert(sizeof(struct start_report) == 8 * REPORT_WORDS, "a report has holes");

static struct {
    double limit_s; /* of starting and ending; 0: none */
    bool agreed;    /* all know who has an error */
    enum err code;  /* agreed: that of the job */
    int rank;       /* code: the lowest rank that has it */
    bool to_report; /* this process has yet to do so */
} start;

static void finalize(void)
{
    int done = 0;
    MPI_Finalized(&done);
    if (done)
        return;
    limit(start.limit_s, &(struct late){.what = "the end of MPI (all is done)"});
    MPI_Finalize();
    comm_mpi_limit_end();
}

/* A program that has started MPI itself also ends it itself, and agrees on nothing here. */
static enum err initialise(void)
{
    int there = 0, level = MPI_THREAD_SINGLE;
    TRY_MPI(MPI_Initialized(&there));
    if (there) {
        start.agreed = true;
        return ERR_OK;
    }
    TRY_MPI(MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &level));
    if (level < MPI_THREAD_FUNNELED)
        FAIL(ERR_CONFIG, "comm: this MPI serves level %d of threads, %d is needed; use another "
                         "build of MPI", level, MPI_THREAD_FUNNELED);
    if (atexit(finalize) != 0)
        FAIL(ERR_MEMORY, "comm: MPI's end cannot be put behind the process's end");
    return ERR_OK;
}

/* ---- whether all can start ---- */

struct agreement {
    int rank, size;
    int same;  /* processes with this one's error */
    int first; /* the lowest of these */
    struct comm_names others;   /* which run something else than start.rank does, ... */
    char other[8 * WHAT_WORDS]; /* and what the first of them runs */
};

/* Collective over the launch. what "": this process runs nothing. */
static enum err agree(enum err code, const char *text, const char *what, struct agreement *a)
{
    struct start_report *all, mine = {.code = (uint64_t)code};
    mine.text_hash = code ? XXH3_64bits(text, strlen(text)) : 0;
    *a = (struct agreement){.same = 0};
    snprintf(mine.what, sizeof mine.what, "%s", what);
    TRY_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &a->rank));
    TRY_MPI(MPI_Comm_size(MPI_COMM_WORLD, &a->size));
    TRY(mem_new(a->size, sizeof *all, "the errors of a launch", &all));
    int rc = MPI_Allgather(&mine, REPORT_WORDS, MPI_UINT64_T, all, REPORT_WORDS, MPI_UINT64_T,
                           MPI_COMM_WORLD);
    a->first = a->size;
    for (int i = a->size - 1; i >= 0 && rc == MPI_SUCCESS; i--) {
        if (all[i].code != 0) {
            start.code = (enum err)all[i].code;
            start.rank = i;
        }
        if (all[i].code == mine.code && all[i].text_hash == mine.text_hash) {
            a->first = i;
            a->same++;
        }
    }
    int first = 0; /* that runs something: do all run the same? */
    while (rc == MPI_SUCCESS && first < a->size && !all[first].what[0])
        first++;
    for (int i = 0; rc == MPI_SUCCESS && start.code == ERR_OK && i < a->size; i++) {
        if (first == a->size || strcmp(all[i].what, all[first].what) == 0)
            continue;
        if (!a->other[0])
            memcpy(a->other, all[i].what, sizeof a->other);
        comm_names_add(&a->others, i);
    }
    comm_names_end(&a->others);
    if (a->others.named) {
        start.code = ERR_MISMATCH;
        start.rank = first;
        start.to_report = first == a->rank;
    }
    start.agreed = true;
    mem_free(all);
    TRY_MPI(rc);
    return ERR_OK;
}

enum err comm_mpi_start(const char *what, double limit_s)
{
    struct agreement a;
    start.limit_s = limit_s;
    limit(limit_s, &(struct late){.what = "the start of MPI"});
    TRY(initialise());
    if (!start.agreed) {
        TRY(agree(ERR_OK, "", what, &a));
        if (a.others.named) /* they run something else, or nothing that has ranks */
            FAIL(ERR_MISMATCH, "comm: rank %s of the launch run%s %s, and rank %d runs %s; start "
                 "the same command on all", a.others.text, a.others.named == 1 ? "s" : "",
                 a.other[0] ? a.other : "something else, which needs no other ranks", start.rank,
                 what);
    }
    if (start.code != ERR_OK)
        FAIL(start.code, "comm: rank %d cannot start", start.rank);
    return ERR_OK;
}

enum err comm_mpi_report_error(enum err code, const char *given, void (*print)(const char *text))
{
    struct agreement a;
    char text[ERR_TEXT]; /* MPI may fail, too, and `given` be the last error's */
    int there = 0;
    if (start.agreed && start.code != ERR_OK) {
        if (start.to_report)
            print(given);
        start.to_report = false;
        return start.code; /* it has been reported */
    }
    MPI_Initialized(&there);
    if (there || comm_mpi_launched_size() < 2) {
        if (code != ERR_OK)
            print(given);
        return code;
    }
    snprintf(text, sizeof text, "%s", given);
    start.limit_s = START_S;
    limit(start.limit_s, &(struct late){
        .what = "the end", .text = code ? text : NULL, .print = print, .code = code});
    enum err err = initialise();
    if (err == ERR_OK)
        err = agree(code, text, "", &a);
    comm_mpi_limit_end();
    if (err != ERR_OK && code != ERR_OK)
        print(text);
    if (err == ERR_OK && code != ERR_OK && a.first == a.rank) { /* with the rank, if not of all */
        struct comm_world w = {.rank = a.rank, .size = a.size};
        char buf[COMM_RANK_TEXT];
        print(a.same == a.size ? text : comm_rank_error(&w, text, buf));
    }
    return err == ERR_OK ? start.code : code;
}
