/* SPDX-License-Identifier: Apache-2.0
 *
 * Lines that are kept in a file whose disk is slow: no other thread waits for it, what waits comes
 * in its order, and what found no room is counted.
 */
#include "folder.h"

#include "base/fs.h"
#include "base/log.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <unistd.h>

static const struct fs_ops *under;
static struct log_keep keep;
static sem_t inside, go;
static int slow = -1; /* whose writes wait */
static atomic_bool waits;

static int64_t write_slowly(int fd, const void *p, int64_t n, int64_t at)
{
    if (fd == slow && atomic_load(&waits)) {
        sem_post(&inside);
        sem_wait(&go);
    }
    return under->write(fd, p, n, at);
}

static void *say_first(void *arg)
{
    log_keep_set(&keep);
    log_kept("first");
    log_keep_set(NULL);
    return arg;
}

/* While one thread's line is being written; returns when the others have said theirs. */
static void say_beside(int lines)
{
    pthread_t writer;
    atomic_store(&waits, true);
    CHECK_INT(pthread_create(&writer, NULL, say_first, NULL), 0);
    sem_wait(&inside);
    atomic_store(&waits, false);
    (void)alarm(60);
    log_keep_set(&keep);
    for (int i = 0; i < lines; i++)
        log_kept("line %d of some length, as they are", i);
    log_keep_set(NULL);
    (void)alarm(0);
    sem_post(&go);
    CHECK_INT(pthread_join(writer, NULL), 0);
}

/* Has the file "first", then the lines from 0 on, and else but a word of those that lack? */
static void check_lines(const char *path, int lines)
{
    char line[256], want[64];
    int n = -1, lacking = 0, lost;
    FILE *f = fopen(path, "r");
    CHECK(f != NULL);
    while (f && fgets(line, sizeof line, f)) {
        snprintf(want, sizeof want, n < 0 ? "Z first\n" : "Z line %d of some", n);
        if (sscanf(line + 20, " warn: %d lines of before this are lacking", &lost) == 1)
            lacking += lost;
        else
            test_check(strstr(line, want) != NULL, __FILE__, __LINE__, "%s instead of %s", line,
                       want), n++;
    }
    if (f)
        fclose(f);
    test_check(n + lacking == lines && (lacking > 0) == (lines > 1000), __FILE__, __LINE__,
               "%d lines and %d that lack, of %d", n, lacking, lines);
}

static void nobody_waits_for_anothers_write(void)
{
    struct fs_ops ops = *fs_ops;
    static const int lines[] = {1, 100, 10000};
    CHECK(sem_init(&inside, 0, 0) == 0 && sem_init(&go, 0, 0) == 0);
    ops.write = write_slowly;
    under = fs_ops;
    fs_ops = &ops;
    for (int i = 0; i < 3; i++) {
        char name[16], path[FOLDER_PATH];
        snprintf(name, sizeof name, "log%d", i);
        folder_path(name, path);
        log_keep_open(&keep);
        CHECK_OK(fs_log_make(path, &slow));
        log_keep_to(&keep, slow, path);
        say_beside(lines[i]);
        log_keep_close(&keep);
        CHECK_OK(fs_log_close(slow, path));
        check_lines(path, lines[i]);
    }
    fs_ops = under;
    slow = -1;
}

static const struct test_case cases[] = {
    {"nobody waits for another's write", nobody_waits_for_anothers_write},
};
TEST_MAIN(cases)
