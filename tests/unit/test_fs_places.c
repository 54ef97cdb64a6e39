/* SPDX-License-Identifier: Apache-2.0
 *
 * Threads that write one file, each to places of its own: whoever comes first, and however much a
 * call takes, all is where it is to be. On a full disk the file stays its caller's, and knows what
 * the disk has of it.
 */
#include "base/fs.h"
#include "test.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

enum { THREADS = 4, PIECES = 41, PIECE = 10007, FRONT = 8 };

static const struct fs_ops *under;
static char data[FRONT + PIECES * PIECE];
static atomic_int_fast64_t room; /* bytes that the disk still takes */

struct placer { struct fs_file *f; pthread_t thread; int first; struct err_kept err; };

/* Half of it, as long as there is room. */
static int64_t half_write(int fd, const void *p, int64_t n, int64_t at)
{
    int64_t most = n > 1 ? n / 2 : n, left = atomic_fetch_sub(&room, most);
    if (left <= 0) {
        errno = ENOSPC;
        return -1;
    }
    return under->write(fd, p, left < most ? left : most, at);
}

/* The last piece first. */
static void *place(void *arg)
{
    struct placer *p = arg;
    for (int i = PIECES - 1 - p->first; i >= 0 && p->err.code == ERR_OK; i -= THREADS) {
        int64_t at = FRONT + (int64_t)i * PIECE;
        err_keep(&p->err, fs_write_at(p->f, at, data + at, PIECE));
    }
    return NULL;
}

/* How many of them failed for want of room. */
static int place_all(struct fs_file *f)
{
    struct placer p[THREADS];
    struct fs_ops ops = *fs_ops;
    int failures = 0;
    CHECK_OK(fs_create(f, "file"));
    CHECK_OK(fs_write(f, data, FRONT));
    under = fs_ops;
    ops.write = half_write;
    fs_ops = &ops;
    for (int i = 0; i < THREADS; i++) {
        p[i] = (struct placer){.f = f, .first = i};
        CHECK(pthread_create(&p[i].thread, NULL, place, &p[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(p[i].thread, NULL);
        failures += p[i].err.code == ERR_STORAGE && strstr(p[i].err.text, " write file after ") &&
                    strstr(p[i].err.text, "no space left");
        CHECK(p[i].err.code == ERR_OK || p[i].err.code == ERR_STORAGE);
    }
    fs_ops = under;
    return failures;
}

static void bytes_go_to_their_places(void)
{
    struct fs_file f;
    struct fs_map m;
    for (int i = 0; i < (int)sizeof data; i++)
        data[i] = (char)test_random();
    atomic_store(&room, 2 * sizeof data);
    CHECK_INT(place_all(&f), 0);
    CHECK_OK(fs_commit(&f));
    CHECK_OK(fs_map_open(&m, "file", ERR_DATA));
    CHECK(m.size == sizeof data && memcmp(m.data, data, sizeof data) == 0);
    fs_map_close(&m);
}

static void a_full_disk_leaves_the_file(void)
{
    struct fs_file f;
    char name[64];
    atomic_store(&room, 100000);
    CHECK_INT(place_all(&f), THREADS);
    CHECK(fs_is_there(&f));
    CHECK_INT(atomic_load(&f.written), 100000);
    snprintf(name, sizeof name, "%s", f.temp.name);
    fs_abandon(&f);
    CHECK(!fs_exists(name));
}

static const struct test_case cases[] = {
    {"bytes_go_to_their_places", bytes_go_to_their_places},
    {"a_full_disk_leaves_the_file", a_full_disk_leaves_the_file},
};
TEST_MAIN(cases)
