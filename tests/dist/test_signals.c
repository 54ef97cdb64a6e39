/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs that are told to stop: by the library on every kind of layout, by signals to the program
 * at drawn moments, to any rank of a job too. Each ends with the code for work that is left and
 * has the weights of the step it names, which are those of a run of so many steps, bit by bit, and
 * as many lines of metrics. PLAIT_SIGNALS=N: so many signals of each kind instead of a few.
 */
#include "folder.h"

#include "base/fs.h"
#include "base/mem.h"
#include "base/text.h"
#include "ckpt/ckpt.h"
#include "comm/comm.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char *const base[] = {
    "model.kind=llama", "model.layers=4", "model.hidden=32", "model.heads=4", "model.kv_heads=2",
    "model.ffn=64", "model.seq=16", "model.dropout=0.1", "train.batch=6",
    "parallel.microbatch=1", "optim.lr=0.003", "optim.schedule=constant",
    "optim.warmup=0", "train.dtype=f32", "train.threads=1", "train.hang_timeout=60"};
enum { BASE = sizeof base / sizeof *base, WORDS = 12 };

static struct plait_config *config_of(const char *run, const char *const *set, int64_t steps)
{
    char word[32];
    const char *words[] = {word};
    folder_tokens("tokens", "a strand over a strand under another strand; ", 400);
    struct plait_config *c = folder_config(run, "tokens");
    folder_set(c, base, BASE);
    folder_set(c, set, WORDS);
    snprintf(word, sizeof word, "train.steps=%lld", (long long)steps);
    folder_set(c, words, 1);
    return c;
}

/* ---- what a run left ---- */

static void file_of(const char *run, const char *file, char **bytes, int64_t *n)
{
    struct fs_map m = {0};
    char path[FOLDER_PATH];
    folder_path_in(run, file, path);
    *bytes = NULL;
    *n = -1;
    if (!fs_exists(path) || fs_map_open(&m, path, ERR_DATA) != ERR_OK)
        return;
    if (mem_new(m.size + 1, 1, "a file", bytes) == ERR_OK && m.size > 0)
        memcpy(*bytes, m.data, (size_t)m.size);
    *n = m.size;
    fs_map_close(&m);
}

/* Whole lines of metrics.jsonl with a loss, of steps 1, 2, ...; -1: they are not that. */
static int64_t steps_in(const char *run)
{
    char *p;
    int64_t n, steps = 0;
    file_of(run, "metrics.jsonl", &p, &n);
    bool whole = n == 0 || (n > 0 && p[n - 1] == '\n');
    for (char *line = p; whole && n > 0 && *line; line = strchr(line, '\n') + 1) {
        long long step = 0;
        char *end = strchr(line, '\n');
        *end = '\0';
        char *at = strstr(line, "\"step\": ");
        bool trained = strstr(line, "\"grad_norm\"") != NULL;
        whole = line[0] == '{' && end[-1] == '}' && at;
        if (whole && trained)
            whole = sscanf(at, "\"step\": %lld", &step) == 1 && step == ++steps;
        *end = '\n';
    }
    mem_free(p);
    return whole ? steps : -1;
}

static void same_weights(const char *run, const char *other)
{
    char *a, *b;
    int64_t n, m;
    file_of(run, "model.safetensors", &a, &n);
    file_of(other, "model.safetensors", &b, &m);
    test_check(n > 0 && n == m && memcmp(a, b, (size_t)n) == 0, __FILE__, __LINE__,
               "weights of %s (%lld bytes) and %s (%lld)", run, (long long)n, other, (long long)m);
    mem_free(a);
    mem_free(b);
}

/* Behind a run that said `said`: the step it names, with all that must be true of it. */
static void check_stopped(const char *run, const char *const *set, const char *said)
{
    struct folder_seen seen;
    long long step = 0;
    const char *at = strstr(said, "behind step ");
    bool none = strstr(said, "before the first step") != NULL;
    if (!test_check(none || (at && sscanf(at, "behind step %lld", &step) == 1), __FILE__, __LINE__,
                    "%s says %s", run, said))
        return;
    test_check(none ? !folder_has(run, "metrics.jsonl") : steps_in(run) == step, __FILE__, __LINE__,
               "%s: %lld lines, stopped behind %lld",
               run, (long long)steps_in(run), step);
    CHECK_INT(folder_count(run, ".tmp."), 0);
    CHECK(folder_has(run, "model.safetensors") == !none);
    if (none)
        return;
    folder_remove("whole");
    plait_stop(0);
    test_check(folder_train(config_of("whole", set, step), &seen) == 0, __FILE__, __LINE__, "%s",
               plait_error());
    same_weights(run, "whole");
}

/* ---- the library's request ---- */

static int64_t stop_at; /* plait_stop is called when this step is reported */

static void on_step(void *arg, const struct plait_step *s)
{
    (void)arg;
    if (s->step == stop_at)
        plait_stop(SIGTERM);
}

static int valids;

static void on_valid(void *arg, int64_t step, double loss, double bits)
{
    (void)arg;
    (void)step;
    (void)loss;
    (void)bits;
    valids++;
}

static int train(const char *run, const char *const *set, int64_t steps)
{
    struct plait_config *c = config_of(run, set, steps);
    valids = 0;
    int code = plait_train(c, &(struct plait_train){.size = sizeof(struct plait_train),
                                                    .on_step = on_step, .on_valid = on_valid});
    plait_config_free(c);
    plait_stop(0);
    return code;
}

static void every_layout(void)
{
    static const char *const layouts[][WORDS] = {
        {"parallel.pp=1"},
        {"parallel.tp=2", "parallel.sp=true"},
        {"parallel.dp=3"},
        {"parallel.dp=3", "parallel.zero=1"},
        {"parallel.pp=2", "train.device=ref"},
        {"parallel.pp=2", "parallel.schedule=zb-v", "train.recompute=full"},
        {"parallel.pp=4", "parallel.schedule=chimera", "train.trace=true"},
        {"parallel.pp=4", "parallel.schedule=zb-h2", "optim.clip=1.8"},
        {"parallel.tp=2", "parallel.pp=2", "parallel.chunks=2", "parallel.schedule=zb-v"},
        {"parallel.tp=2", "parallel.pp=2", "parallel.dp=2", "train.dtype=bf16"},
    };
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        char said[1024];
        folder_remove("run");
        stop_at = test_range(1, 5);
        int code = train("run", layouts[i], 1000);
        snprintf(said, sizeof said, "%s", plait_error());
        test_check(code == PLAIT_STOPPED && strstr(said, "SIGTERM") != NULL &&
                       strstr(said, "of 1000; weights in"), __FILE__, __LINE__,
                   "layout %d, step %lld: code %d: %s", (int)i, (long long)stop_at, code, said);
        CHECK(steps_in("run") > stop_at && steps_in("run") <= stop_at + 2);
        check_stopped("run", layouts[i], said);
    }
}

/* Where there is nothing to finish, or nothing to keep. */
static void at_the_edges(void)
{
    static const char *const none[WORDS] = {NULL}, *const unsaved[WORDS] = {"run.save=false"};
    folder_remove("run");
    plait_stop(SIGHUP);
    CHECK_INT(train("run", none, 10), PLAIT_STOPPED);
    CHECK_STR(plait_error(), "stopped by SIGHUP before the first step; there are no weights, since "
                             "no step has ended");
    CHECK_INT(folder_count("run", "metrics") + folder_count("run", "model"), 0);
    folder_remove("run");
    stop_at = 3;
    CHECK_INT(train("run", unsaved, 10), PLAIT_STOPPED);
    CHECK_STR(plait_error(), "stopped by SIGTERM behind step 4 of 10; no weights kept (run.save "
                             "false)");
    CHECK(!folder_has("run", "model.safetensors"));
    folder_remove("run");
    stop_at = 3;
    CHECK_INT(train("run", none, 4), 0); /* the step under way is the last */
    CHECK(folder_has("run", "model.safetensors") && steps_in("run") == 4);
    folder_remove("run");
    stop_at = 10; /* all steps are done */
    CHECK_INT(train("run", none, 4), 0);
}

/* A validation is cut short; behind the last step, too, that is work left. */
static void in_a_validation(void)
{
    static const char *const one[] = {"parallel.pp=1"}, *const four[] = {"parallel.pp=2",
                                                                         "parallel.dp=2"};
    for (int i = 0; i < 4; i++) {
        char valid[FOLDER_PATH], word[FOLDER_PATH + 16], said[1024];
        const char *set[WORDS] = {"train.valid_every=2", word, i & 1 ? four[0] : one[0],
                                  i & 1 ? four[1] : NULL};
        bool last = i & 2;
        folder_path("tokens", valid);
        snprintf(word, sizeof word, "data.valid=%s", valid);
        folder_remove("run");
        stop_at = 2;
        int code = train("run", set, last ? 2 : 8);
        snprintf(said, sizeof said, "%s", plait_error());
        test_check(code == PLAIT_STOPPED && valids == 0 && strstr(said, "behind step 2 of"),
                   __FILE__, __LINE__, "%d: code %d, %d validations: %s", i, code, valids, said);
        CHECK_INT(steps_in("run"), 2);
        CHECK(folder_has("run", "model.safetensors"));
    }
}

/* ---- signals ---- */

static int wanted(int few)
{
    const char *wish = getenv("PLAIT_SIGNALS");
    int64_t n;
    return wish && text_to_int(wish, &n) ? (int)n : few;
}

static void pause_ms(double ms)
{
    struct timespec t = {(time_t)(ms / 1e3), (long)(fmod(ms, 1e3) * 1e6)};
    nanosleep(&t, NULL);
}

/* Starts a shell command in the test's folder; what it says on standard error goes to `log`. */
static pid_t start(const char *command)
{
    char log[FOLDER_PATH];
    folder_path("log", log);
    pid_t child = fork();
    if (child != 0)
        return child;
    int fd = open(log, O_WRONLY | O_CREAT | O_TRUNC, 0666), nowhere = open("/dev/null", O_WRONLY);
    dup2(nowhere, STDOUT_FILENO);
    dup2(fd, STDERR_FILENO);
    alarm(120);
    execl("/bin/sh", "sh", "-c", command, (char *)NULL);
    _exit(127);
}

/* Has the process a handler of SIGTERM? False too when it has ended. */
static bool handles(pid_t pid)
{
    char path[64], line[256];
    unsigned long long caught = 0;
    snprintf(path, sizeof path, "/proc/%ld/status", (long)pid);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f))
        (void)sscanf(line, "SigCgt: %llx", &caught);
    if (f)
        fclose(f);
    return caught >> (SIGTERM - 1) & 1;
}

static int ended(pid_t pid)
{
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static void said_in_log(char said[1024])
{
    char path[FOLDER_PATH];
    struct fs_map m = {0};
    folder_path("log", path);
    said[0] = '\0';
    if (fs_map_open(&m, path, ERR_DATA) == ERR_OK && m.size > 0) {
        int64_t from = m.size > 1023 ? m.size - 1023 : 0;
        memcpy(said, m.data + from, (size_t)(m.size - from));
        said[m.size - from] = '\0';
    }
    fs_map_close(&m);
}

/* The words of a run as a command's. */
static void command_of(const char *run, const char *const *set, int64_t steps, char out[4096])
{
    char dir[FOLDER_PATH], tokens[FOLDER_PATH];
    folder_tokens("tokens", "a strand over a strand under another strand; ", 400);
    folder_path(run, dir);
    folder_path("tokens", tokens);
    int n = snprintf(out, 4096, "'%s' train run.dir='%s' data.train='%s' train.steps=%lld",
                     PLAIT_PROGRAM, dir, tokens, (long long)steps);
    for (int i = 0; i < BASE; i++)
        n += snprintf(out + n, (size_t)(4096 - n), " %s", base[i]);
    for (int i = 0; i < WORDS && set[i]; i++)
        n += snprintf(out + n, (size_t)(4096 - n), " %s", set[i]);
}

static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGTERM, SIGXCPU};

/* From opening on, at any moment. */
static void signals_to_threads(void)
{
    static const char *const set[WORDS] = {"parallel.pp=2", "parallel.dp=2"};
    for (int i = 0; i < wanted(5); i++) {
        char command[4096], words[4200], said[1024];
        int number = numbers[i % 5];
        double ms = i % 3 == 0 ? test_real(0, 60) : test_real(0, 700);
        folder_remove("run");
        command_of("run", set, 1000000, command);
        snprintf(words, sizeof words, "exec %s", command);
        pid_t pid = start(words);
        while (!handles(pid) && waitpid(pid, NULL, WNOHANG) == 0)
            pause_ms(1);
        pause_ms(ms);
        kill(pid, number);
        int code = ended(pid);
        said_in_log(said);
        test_check(code == PLAIT_STOPPED, __FILE__, __LINE__, "signal %d after %g ms: code %d: %s",
                   number, ms, code, said);
        check_stopped("run", set, said);
    }
}

/* The second one ends at once, also amid saving; a signal behind the last step changes nothing. */
static void second_signals(void)
{
    static const char *const set[WORDS] = {"model.hidden=256", "model.layers=6", "model.seq=128",
                                           "train.batch=16", "parallel.microbatch=2"};
    for (int i = 0; i < wanted(3); i++) {
        char command[4096], words[4200], said[1024];
        bool saving = i % 3 == 2;
        static const int next[] = {SIGINT, SIGHUP, SIGINT}; /* two of one number may be one */
        int number = next[i % 3];
        folder_remove("run");
        command_of("run", set, saving ? 1 : 1000, command);
        snprintf(words, sizeof words, "exec %s", command);
        pid_t pid = start(words);
        while (!handles(pid) && waitpid(pid, NULL, WNOHANG) == 0)
            pause_ms(1);
        for (int k = 0; k < 60000 && steps_in("run") < 1; k++)
            pause_ms(1);
        kill(pid, SIGTERM);
        kill(pid, saving ? 0 : number);
        int code = ended(pid);
        said_in_log(said);
        test_check(code == (saving ? 0 : 128 + number) || (!saving && code == 128 + SIGTERM),
                   __FILE__, __LINE__, "signal %d: code %d: %s", number, code, said);
        CHECK(folder_has("run", "model.safetensors") == saving &&
              folder_count("run", ".tmp.") == 0);
        CHECK(steps_in("run") >= 1);
    }
}

/* Other verbs end at the first one, and leave nothing half-written. */
static void other_verbs(void)
{
    char text[FOLDER_PATH], out[FOLDER_PATH], command[2 * FOLDER_PATH + 128];
    folder_path("long", text);
    folder_remove("made");
    folder_path("made", out);
    CHECK_INT(mkdir(out, 0777), 0);
    FILE *f = fopen(text, "w");
    for (int i = 0; f && i < 1000000; i++)
        fputs("a strand over a strand under another strand; \n", f);
    CHECK(f && fclose(f) == 0);
    snprintf(command, sizeof command, "exec '%s' data prepare '%s' -o '%s/tokens'",
             PLAIT_PROGRAM, text, out);
    for (int i = 0; i < wanted(4); i++) {
        int number = numbers[i % 5];
        pid_t pid = start(command);
        for (int k = 0; k < 20000 && folder_count("made", ".tmp.") == 0; k++)
            pause_ms(0.2);
        kill(pid, number);
        int code = ended(pid);
        test_check(code == 128 + number, __FILE__, __LINE__, "signal %d: code %d", number, code);
        CHECK_INT(folder_count("made", "tokens"), 0);
    }
}

/* A file that may not grow, and a reader that goes away. */
static void neither_limit_nor_reader(void)
{
    static const char *const set[WORDS] = {NULL};
    char command[4096], words[4300], said[1024];
    folder_remove("run");
    command_of("run", set, 40, command);
    snprintf(words, sizeof words, "ulimit -f 8; exec %s", command); /* of 512 or 1024 bytes */
    CHECK_INT(ended(start(words)), PLAIT_STORAGE);
    said_in_log(said);
    CHECK(strstr(said, "model.safetensors") && folder_count("run", "safetensors") == 0);
    folder_remove("run");
    snprintf(words, sizeof words, "{ %s; echo $? >&2; } | true", command);
    CHECK_INT(ended(start(words)), 0);
    said_in_log(said);
    CHECK(strstr(said, "17") && steps_in("run") == 40 && folder_has("run", "model.safetensors"));
}

/* Any rank of a job. */
static void signals_to_processes(void)
{
    static const char *const set[WORDS] = {"parallel.pp=2", "train.transport=mpi"};
    static const char *const threads[WORDS] = {"parallel.pp=2"};
    if (!folder_mpirun())
        return;
    setenv("OMPI_MCA_odls_base_sigkill_timeout", "4", 1); /* the grace, which it waits out */
    for (int i = 0; i < wanted(2); i++) {
        char command[4096], words[5200], pids[FOLDER_PATH], said[1024];
        long rank[2] = {0, 0};
        int number = numbers[test_range(0, 4)], to = i % 3; /* 2: the launcher */
        double ms = test_real(0, 900);
        folder_remove("run");
        folder_remove("pids");
        folder_path("pids", pids);
        CHECK_INT(mkdir(pids, 0777), 0);
        command_of("run", set, 1000000, command);
        snprintf(words, sizeof words,
                 "exec mpirun -n 2 --oversubscribe sh -c \"echo \\$\\$ > "
                 "'%s'/\\$OMPI_COMM_WORLD_RANK; exec %s\"", pids, command);
        pid_t pid = start(words);
        for (int k = 0; k < 8000 && !(handles((pid_t)rank[0]) && handles((pid_t)rank[1])); k++) {
            pause_ms(1);
            for (int j = 0; j < 2; j++) {
                char path[FOLDER_PATH], name[2] = {(char)('0' + j), '\0'};
                folder_path_in("pids", name, path);
                FILE *f = fopen(path, "r");
                if (f && fscanf(f, "%ld", &rank[j]) != 1)
                    rank[j] = 0;
                if (f)
                    fclose(f);
            }
        }
        pause_ms(ms);
        kill(to == 2 ? pid : (pid_t)rank[to], to == 2 ? SIGTERM : number);
        int code = ended(pid);
        said_in_log(said);
        test_check(to == 2 ? code != 0 : code == PLAIT_STOPPED, __FILE__, __LINE__,
                   "signal %d to %d after %g ms: code %d: %s", number, to, ms, code, said);
        check_stopped("run", threads, said);
    }
}

static const struct test_case cases[] = {
    {"on every layout", every_layout},
    {"at the edges", at_the_edges},
    {"in a validation", in_a_validation},
    {"signals to threads", signals_to_threads},
    {"second signals", second_signals},
    {"other verbs", other_verbs},
    {"neither a limit nor a reader", neither_limit_nor_reader},
    {"signals to processes", signals_to_processes},
};
TEST_MAIN(cases)
