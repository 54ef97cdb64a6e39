/* SPDX-License-Identifier: Apache-2.0
 *
 * The program started with its standard streams closed, in each of the eight ways: no file that it
 * writes holds what it would have printed. And a standard output that cannot be written, with its
 * reason. No output is written over an input of the same command, or over another output.
 */
#include "folder.h"

#include "base/fs.h"
#include "folder/trace.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Runs the program in a folder; of the streams in the mask none is open, the others lead to the
 * folder's file "streams", or standard output to `out`. */
static int run(const char *folder, int closed, const char *out, const char *const *words)
{
    char *argv[32] = {0}, program[] = PLAIT_PROGRAM, path[FOLDER_PATH];
    int status = 0;
    argv[0] = program;
    for (int i = 0; words[i] && i < 30; i++)
        argv[i + 1] = (char *)(uintptr_t)words[i];
    folder_path(folder, path);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        int fd = chdir(path) == 0 ? open("streams", O_RDWR | O_CREAT | O_TRUNC, 0666) : -1;
        int to = out ? open(out, O_WRONLY) : fd;
        for (int i = 0; i < 3; i++)
            dup2(i == 1 ? to : fd, i);
        closefrom(3);
        for (int i = 0; i < 3; i++)
            if (closed >> i & 1)
                close(i);
        execv(program, argv);
        _exit(127);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
#define RUN(folder, closed, ...)                                                                   \
    run((folder), (closed), NULL, (const char *const[]){__VA_ARGS__, NULL})

static void enter(const char *folder)
{
    char path[FOLDER_PATH];
    folder_path(folder, path);
    CHECK(mkdir(path, 0777) == 0);
    folder_path_in(folder, "a.txt", path);
    FILE *f = fopen(path, "w");
    for (int i = 0; f && i < 100; i++)
        fprintf(f, "a braid of %d strands\n", i);
    CHECK(f && fclose(f) == 0);
}

static void what_it_said(const char *folder, char words[4096])
{
    char path[FOLDER_PATH];
    folder_path_in(folder, "streams", path);
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(words, 1, 4095, f) : 0;
    words[n] = '\0';
    if (f)
        fclose(f);
}

/* Every verb that writes files. */
static void write_all(const char *folder, int closed)
{
    CHECK_INT(RUN(folder, closed, "data", "prepare", "a.txt", "-o", "a.tok"), 0);
    CHECK_INT(RUN(folder, closed, "data", "random", "--vocab", "9", "--tokens", "50", "-o",
                  "r.tok"), 0);
    CHECK_INT(RUN(folder, closed, "sim", "1f1b", "-p2", "-m3", "--svg", "s.svg", "--html", "s.html",
                  "--perfetto", "s.json"), 0);
    CHECK_INT(RUN(folder, closed, "train", "data.train=a.tok", "data.valid=a.tok", "run.dir=run",
                  "model.layers=2", "model.hidden=16", "model.heads=2", "model.seq=8",
                  "train.batch=2", "train.steps=3", "train.threads=1", "parallel.pp=2", "--trace"),
              0);
    CHECK_INT(RUN(folder, closed, "compare", "run", "--svg", "c.svg", "--costs", "c.csv"), 0);
}

static void own_text(const char *folder, const char *name, const char *begin)
{
    char path[FOLDER_PATH];
    struct fs_map m = {0};
    folder_path_in(folder, name, path);
    CHECK_OK(fs_map_open(&m, path, ERR_DATA));
    test_check(m.size > (int64_t)strlen(begin) && memcmp(m.data, begin, strlen(begin)) == 0,
               __FILE__, __LINE__, "%s/%s does not begin with %s", folder, name, begin);
    test_check(!memmem(m.data, (size_t)m.size, "tok/s", 5) &&
                   !memmem(m.data, (size_t)m.size, "weights in", 10), __FILE__, __LINE__,
               "%s/%s holds what is printed", folder, name);
    fs_map_close(&m);
}

static void closed_streams_spoil_no_file(void)
{
    static const char *const same[] = {"a.tok", "r.tok", "s.svg", "s.html", "s.json",
                                       "run/config.yaml", "run/config.json",
                                       "run/model.safetensors"};
    char run[FOLDER_PATH], folder[32];
    for (int closed = 0; closed < 8; closed++) {
        snprintf(folder, sizeof folder, "closed%d", closed);
        enter(folder);
        write_all(folder, closed);
        for (size_t i = 0; i < sizeof same / sizeof *same; i++)
            test_check(folder_same_in("closed0", folder, same[i]), __FILE__, __LINE__,
                       "closed0 and %s differ in %s", folder, same[i]);
        own_text(folder, "run/metrics.jsonl", "{\"step\": ");
        own_text(folder, "c.svg", "<");
        own_text(folder, "c.csv", "stage,");
        folder_path_in(folder, "run", run);
        for (int r = 0; r < 2; r++) {
            struct trace t;
            CHECK_OK(trace_read(run, r, &t));
            CHECK_INT(t.steps, 3);
            CHECK_INT(t.cut, 0);
            trace_unread(&t);
        }
    }
}

static void lost_output_has_a_reason(void)
{
    static const char *const few[] = {"help", NULL};
    static const char *const many[] = {"sim", "1f1b", "-p64", "-m500", "--text", NULL};
    char said[4096];
    enter("full");
    CHECK_INT(run("full", 0, "/dev/full", few), PLAIT_STORAGE);
    what_it_said("full", said);
    CHECK(strstr(said, "cannot be written: No space left on device"));
    int code = run("full", 0, "/dev/full", many);
    what_it_said("full", said);
    test_check(code == PLAIT_STORAGE && !strstr(said, "Success"), __FILE__, __LINE__, "%d: %s",
               code, said);
}

/* ---- outputs and inputs ---- */

/* The command is refused, names the file, and what was there is as it was. */
static void refuses(const char *file, const char *const *words)
{
    char path[FOLDER_PATH], said[4096];
    struct fs_map m = {0};
    folder_path_in("over", file, path);
    CHECK_OK(fs_map_open(&m, path, ERR_DATA));
    int64_t size = m.size;
    uint64_t sum = 0, now = 0;
    for (int64_t i = 0; i < size; i++)
        sum = sum * 31 + m.data[i];
    fs_map_close(&m);
    int code = run("over", 0, NULL, words);
    what_it_said("over", said);
    test_check(code == PLAIT_CONFIG && (strstr(said, "name another") ||
                                         strstr(said, "name each")), __FILE__, __LINE__,
               "%s %s ... %s: %d, %s", words[0], words[1], file, code, said);
    CHECK_OK(fs_map_open(&m, path, ERR_DATA));
    for (int64_t i = 0; i < m.size; i++)
        now = now * 31 + m.data[i];
    test_check(m.size == size && sum == now, __FILE__, __LINE__, "%s %s: %s changed", words[0],
               words[1], file);
    fs_map_close(&m);
}
#define REFUSES(file, ...) refuses((file), (const char *const[]){__VA_ARGS__, NULL})

static void make_inputs(void)
{
    char from[FOLDER_PATH], to[FOLDER_PATH];
    enter("over");
    write_all("over", 0);
    CHECK_INT(RUN("over", 0, "sim", "1f1b", "-p2", "-m3", "--text"), 0);
    folder_path_in("over", "streams", from);
    folder_path_in("over", "mine.csv", to);
    CHECK(rename(from, to) == 0);
    folder_path_in("over", "soft.csv", from);
    CHECK(symlink("mine.csv", from) == 0);
    folder_path_in("over", "hard.csv", from);
    CHECK(link(to, from) == 0);
    folder_path_in("over", "model.yaml", to);
    FILE *f = fopen(to, "w");
    CHECK(f && fputs("model:\n  vocab: 257\n  layers: 2\nparallel:\n  pp: 2\n  schedule: "
                     "file:mine.csv\ntrain:\n  batch: 3\n", f) >= 0 && fclose(f) == 0);
}

static void no_output_is_an_input(void)
{
    static const char *const picture[] = {"--svg", "--html", "--perfetto"};
    static const char *const name[] = {"mine.csv", "./mine.csv", "soft.csv", "hard.csv"};
    static const char *const result[] = {"--svg", "--html", "--perfetto", "--costs"};
    static const char *const own[] = {"run/config.yaml", "run/config.json", "run/metrics.jsonl",
                                      "run/model.safetensors", "run/trace/0.trace",
                                      "run/trace/1.trace", "a.tok"};
    make_inputs();
    REFUSES("a.txt", "data", "prepare", "a.txt", "-o", "a.txt");
    REFUSES("a.txt", "data", "prepare", "a.tok", "a.txt", "-o", "./a.txt");
    for (int i = 0; i < 3; i++) {
        for (int k = 0; k < 4; k++) {
            REFUSES("mine.csv", "sim", "file:mine.csv", picture[i], name[k]);
            REFUSES("mine.csv", "sim", "mine.csv", picture[i], name[k]);
            REFUSES("mine.csv", "sim", "--model", "model.yaml", picture[i], name[k]);
            REFUSES("mine.csv", "sim", "--compare", "mine.csv,gpipe", "-p2", "-m3", picture[i],
                    name[k]);
        }
        REFUSES("model.yaml", "sim", "--model", "model.yaml", picture[i], "model.yaml");
        REFUSES("a.tok", "sim", "--model", "model.yaml", "data.train=a.tok", picture[i], "a.tok");
        REFUSES("c.csv", "sim", "1f1b", "-p2", "-m3", "--costs", "c.csv", picture[i], "c.csv");
        for (int k = 0; k < i; k++)
            REFUSES("a.txt", "sim", "1f1b", "-p2", "-m3", picture[i], "new", picture[k], "./new");
    }
    for (int i = 0; i < 4; i++) {
        for (size_t k = 0; k < sizeof own / sizeof *own; k++)
            REFUSES(own[k], "compare", "run", result[i], own[k]);
        for (int k = 0; k < i; k++)
            REFUSES("a.txt", "compare", "run", result[i], "new", result[k], "run/../new");
    }
    REFUSES("model.yaml", "bench", "model.yaml", "--out", "model.yaml");
    REFUSES("mine.csv", "bench", "model.yaml", "--out", "soft.csv");
    REFUSES("a.tok", "bench", "model.yaml", "data.train=a.tok", "--out", "a.tok");
}

static const struct test_case cases[] = {
    {"closed_streams_spoil_no_file", closed_streams_spoil_no_file},
    {"lost_output_has_a_reason", lost_output_has_a_reason},
    {"no_output_is_an_input", no_output_is_an_input},
};
TEST_MAIN(cases)
