/* SPDX-License-Identifier: Apache-2.0
 *
 * Power cuts. The file calls of a run that saves and removes checkpoints are recorded, and after
 * each of them a disk is made as a cut could leave it: what was flushed is there, of the rest any
 * part, whatever the order; a file that was not flushed has any length and any bytes. On each such
 * disk every checkpoint that looks whole must be, and one must be there that is as new as the last
 * that was saved.
 */
#include "saved.h"

#include "base/mem.h"
#include "base/num.h"
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { EVENTS = 2000, DRAWS = 3, NODES = 300, SAVES = 4 };
#define LIVE "cut/live"
#define AFTER "cut/after"

/* An entry comes, goes, or is renamed from `name` to `to`; a file is flushed, which its node names,
 * or a folder. */
enum kind { COMES, GOES, RENAMED, FLUSHED_FILE, FLUSHED_FOLDER };
struct event { enum kind kind; char folder[PATH_MAX], name[64], to[64]; int node; bool is_folder; };

static struct event event[EVENTS];
static int events, nodes, saved_at[SAVES + 1]; /* events there were when save i was done */
static const struct fs_ops *real_ops;

static struct event *add(enum kind kind, const char *path)
{
    struct event *e = &event[events < EVENTS - 1 ? events++ : EVENTS - 1];
    const char *slash = strrchr(path, '/');
    *e = (struct event){.kind = kind, .node = -1};
    snprintf(e->folder, sizeof e->folder, "%.*s", (int)(slash - path), path);
    snprintf(e->name, sizeof e->name, "%s", slash + 1);
    return e;
}

static void whole_path(const char *path, char out[PATH_MAX])
{
    if (!realpath(path, out))
        snprintf(out, PATH_MAX, "/none");
}

static void path_of(int fd, char out[PATH_MAX])
{
    char name[64];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(name, out, PATH_MAX - 1);
    out[n > 0 ? n : 0] = '\0';
}

/* The node that an entry is of, as the program sees it now. */
static int node_at(const char *path)
{
    const char *name = strrchr(path, '/') + 1;
    size_t n = (size_t)(name - path) - 1;
    int node = -1;
    for (int i = 0; i < events; i++) {
        const struct event *e = &event[i];
        const char *now = e->kind == COMES ? e->name : e->kind == RENAMED ? e->to : "";
        if (strcmp(now, name) == 0 && strlen(e->folder) == n && strncmp(e->folder, path, n) == 0)
            node = e->node;
    }
    return node;
}

static int cut_open(const char *path, int flags, unsigned mode)
{
    char whole[PATH_MAX];
    int fd = real_ops->open(path, flags, mode);
    if (fd >= 0 && (flags & O_CREAT)) {
        path_of(fd, whole);
        add(COMES, whole)->node = nodes++;
    }
    return fd;
}

static int cut_fsync(int fd)
{
    char path[PATH_MAX], kept[64];
    struct stat st;
    path_of(fd, path);
    CHECK(fstat(fd, &st) == 0);
    if (S_ISDIR(st.st_mode)) {
        snprintf(add(FLUSHED_FOLDER, path)->folder, sizeof event->folder, "%s", path);
        return 0;
    }
    int node = node_at(path);
    snprintf(kept, sizeof kept, "cut/node-%d", node);
    (void)unlink(kept);
    CHECK(link(path, kept) == 0); /* nobody writes it any more */
    add(FLUSHED_FILE, path)->node = node;
    return 0;
}

static int cut_rename(const char *from, const char *to)
{
    char path[PATH_MAX];
    const char *slash = strrchr(to, '/');
    whole_path(from, path);
    int node = node_at(path), done = real_ops->rename(from, to);
    struct event *e = add(RENAMED, path);
    e->node = node;
    snprintf(e->to, sizeof e->to, "%s", slash ? slash + 1 : to);
    return done;
}

static int cut_unlink(const char *name)
{
    char path[PATH_MAX];
    whole_path(name, path);
    int done = real_ops->unlink(name);
    if (done == 0)
        (void)add(GOES, path);
    return done;
}

static int cut_mkdir(const char *name, unsigned mode)
{
    char path[PATH_MAX];
    int done = real_ops->mkdir(name, mode);
    if (done == 0) {
        whole_path(name, path);
        struct event *e = add(COMES, path);
        e->node = nodes++;
        e->is_folder = true;
    }
    return done;
}

/* ---- the disk after a cut ---- */

/* Was entry event i flushed before event `end`? */
static bool is_safe(int i, int end)
{
    for (int j = i + 1; j < end; j++)
        if (event[j].kind == FLUSHED_FOLDER && strcmp(event[j].folder, event[i].folder) == 0)
            return true;
    return false;
}

/* Entries as they are on the disk. */
struct entry { char folder[PATH_MAX], name[64]; int node; bool is_folder; };

static int find(const struct entry *e, int n, const char *folder, const char *name)
{
    int i = 0;
    while (i < n && (strcmp(e[i].folder, folder) != 0 || strcmp(e[i].name, name) != 0))
        i++;
    return i;
}

static int set(struct entry *e, int n, const struct event *from, const char *name)
{
    int i = find(e, n, from->folder, name);
    if (i == n && n < NODES)
        n++;
    snprintf(e[i].folder, sizeof e[i].folder, "%s", from->folder);
    snprintf(e[i].name, sizeof e[i].name, "%s", name);
    e[i].node = from->node;
    e[i].is_folder = from->is_folder;
    return n;
}

static int drop(struct entry *e, int n, const char *folder, const char *name)
{
    int i = find(e, n, folder, name);
    if (i == n)
        return n;
    e[i] = e[n - 1];
    return n - 1;
}

static int entries_after(int end, struct entry *e)
{
    int n = 0;
    for (int i = 0; i < end; i++) {
        const struct event *x = &event[i];
        if (x->kind >= FLUSHED_FILE || !(is_safe(i, end) || test_range(0, 1)))
            continue;
        if (x->kind != COMES)
            n = drop(e, n, x->folder, x->name);
        if (x->kind != GOES)
            n = set(e, n, x, x->kind == RENAMED ? x->to : x->name);
    }
    return n;
}

static bool is_flushed(int node, int end)
{
    for (int i = 0; i < end; i++)
        if (event[i].kind == FLUSHED_FILE && event[i].node == node)
            return true;
    return false;
}

/* A file that was not flushed: nothing, or some bytes. */
static void put_garbage(const char *path)
{
    uint8_t bytes[512];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)test_random();
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    int64_t n = test_range(0, 1) * test_range(0, 512);
    CHECK(fd >= 0 && write(fd, bytes, (size_t)n) == n);
    CHECK(close(fd) == 0);
}

/* Folder `from` of the recorded disk as folder `to`. */
static void put_folder(const struct entry *e, int n, int end, const char *const names[2])
{
    CHECK_OK(fs_make_dirs(names[1]));
    for (int i = 0; i < n; i++) {
        char from[PATH_MAX], to[PATH_MAX], kept[64];
        if (strcmp(e[i].folder, names[0]) != 0)
            continue;
        snprintf(from, sizeof from, "%s/%s", names[0], e[i].name);
        snprintf(to, sizeof to, "%s/%s", names[1], e[i].name);
        snprintf(kept, sizeof kept, "cut/node-%d", e[i].node);
        if (e[i].is_folder)
            put_folder(e, n, end, (const char *const[2]){from, to});
        else if (is_flushed(e[i].node, end))
            CHECK(link(kept, to) == 0);
        else
            put_garbage(to);
    }
}

static void remove_tree(void)
{
    struct state_found *found;
    int n;
    char dir[FS_PATH];
    CHECK_OK(state_list(AFTER, false, &found, &n));
    for (int i = 0; i < n; i++) {
        state_dir(dir, AFTER, found[i].step);
        CHECK_OK(state_remove(dir));
    }
    mem_free(found);
    (void)rmdir(AFTER "/checkpoints");
    (void)rmdir(AFTER);
}

/* ---- the run ---- */

static void save(struct saved *s, int step)
{
    char dir[FS_PATH];
    s->head.step = step;
    s->value[STATE_WEIGHT][0][0] = step;
    state_dir(dir, LIVE, step);
    CHECK_OK(fs_make_dirs(dir));
    CHECK_OK(saved_write(s, dir, -1));
    saved_at[step] = events;
}

static void record(struct saved *s)
{
    struct fs_ops ops = *fs_ops;
    char dir[FS_PATH];
    CHECK_OK(fs_make_dirs(LIVE)); /* is there, and safe, before the run */
    real_ops = fs_ops;
    ops.open = cut_open;
    ops.fsync = cut_fsync;
    ops.rename = cut_rename;
    ops.unlink = cut_unlink;
    ops.mkdir = cut_mkdir;
    fs_ops = &ops;
    for (int step = 1; step <= SAVES; step++) {
        save(s, step);
        state_dir(dir, LIVE, step - 1);
        CHECK_OK(state_remove(dir)); /* save_keep 1 */
    }
    fs_ops = real_ops;
}

static void check_disk(struct saved *s, int end)
{
    struct state_found *found;
    int n, wanted = 0;
    int64_t newest = 0;
    for (int step = 1; step <= SAVES; step++)
        wanted = saved_at[step] <= end ? step : wanted;
    CHECK_OK(state_list(AFTER, false, &found, &n));
    for (int i = 0; i < n; i++) {
        char dir[FS_PATH];
        if (!found[i].whole)
            continue;
        newest = num_max(newest, found[i].step);
        s->value[STATE_WEIGHT][0][0] = (double)found[i].step;
        state_dir(dir, AFTER, found[i].step);
        saved_check(s, dir, 0);
    }
    mem_free(found);
    if (!CHECK(newest >= wanted))
        printf("    after call %d of %d: step %lld, wanted %d\n", end, events, (long long)newest,
               wanted);
}

static void test_cuts(void)
{
    static struct entry e[NODES];
    struct saved s;
    char live[PATH_MAX];
    saved_make(&s, MODEL_LLAMA, SAFET_F32);
    saved_cut(&s, 2, true);
    record(&s);
    whole_path(LIVE, live);
    CHECK(events > 60 && events < EVENTS - 2 && nodes < NODES);
    for (int end = 0; end <= events; end++)
        for (int draw = 0; draw < DRAWS; draw++) {
            int n = entries_after(end, e);
            put_folder(e, n, end, (const char *const[2]){live, AFTER});
            check_disk(&s, end);
            remove_tree();
        }
    printf("     %d cuts after %d calls\n", (events + 1) * DRAWS, events);
    saved_free(&s);
}

static const struct test_case cases[] = {{"cuts", test_cuts}};
TEST_MAIN(cases)
