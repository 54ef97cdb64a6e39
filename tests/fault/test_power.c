/* SPDX-License-Identifier: Apache-2.0
 *
 * Power cuts. The file calls of a run that saves are written down, and at any of them its folder is
 * made anew as a disk may have it then: of a file what was flushed, and of the writes behind that,
 * in any order, all, parts or nothing; of a folder the names that were flushed, and the first few
 * changes behind those. There a run goes on: from a checkpoint that is good, and from one at least
 * as late as was whole by then, to the numbers and the weights of the run that was not cut.
 * PLAIT_SAVES=1: at every call.
 */
#include "left.h"

#include "base/fs.h"
#include "base/mem.h"
#include "base/num.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { STEPS = 12, NODES = 4096, CHANGES = 8192, FDS = 1024, WORDS = 16 };

/* ---- the disk ---- */

/* A file or folder. Of a file: what was written, with zeros where nothing was; how many writes said
 * their place. */
struct node { bool folder; char *bytes; int64_t room; int placed; };
/* A name in a folder gets a node, or none (-1); when it was flushed, -1: not yet. */
struct change { int folder, node, at, flushed; char name[64]; };
/* Of a file: n bytes came to a place; n 0: all was flushed. No byte is written twice. */
struct event { int at, node; int64_t place, n; };

static struct node node[NODES];
static struct change change[CHANGES];
static struct event event[4 * CHANGES];
static int cuts, nodes, changes, events, now, index_at[CHANGES], indices;
static int fd_node[FDS];
static char root[FOLDER_PATH];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const struct fs_ops *under;

static int lookup(int folder, const char *name)
{
    for (int i = changes - 1; i >= 0; i--)
        if (change[i].folder == folder && strcmp(change[i].name, name) == 0)
            return change[i].node;
    return -1;
}

static void put_name(int folder, const char *name, int of)
{
    if (changes < CHANGES) {
        change[changes] = (struct change){.folder = folder, .node = of, .at = now, .flushed = -1};
        snprintf(change[changes++].name, sizeof change->name, "%s", name);
    }
}

/* The folder of a path below the root, and its last name; -1: it is not below it. */
static int walk(const char *path, const char **name)
{
    size_t n = strlen(root);
    int at = 0;
    if (strncmp(path, root, n) != 0)
        return -1;
    path += n;
    for (;;) {
        char part[64];
        path += strspn(path, "/");
        size_t len = strcspn(path, "/");
        if (path[len] == '\0') {
            *name = path;
            return at;
        }
        snprintf(part, sizeof part, "%.*s", (int)len, path);
        at = lookup(at, part);
        if (at < 0)
            return -1;
        path += len;
    }
}

static void note(int of, int64_t place, int64_t n)
{
    now++;
    if (events < 4 * CHANGES)
        event[events++] = (struct event){now, of, place, n};
}

static int make(bool folder)
{
    node[nodes] = (struct node){.folder = folder};
    return nodes < NODES - 1 ? nodes++ : nodes;
}

/* ---- the calls ---- */

static int on_open(const char *path, int flags, unsigned mode)
{
    const char *name;
    pthread_mutex_lock(&lock);
    int fd = under->open(path, flags, mode), folder = walk(path, &name);
    if (fd >= 0 && fd < FDS) {
        fd_node[fd] = -1;
        if (folder >= 0) {
            int of = *name ? lookup(folder, name) : folder;
            if (of < 0 && (flags & O_CREAT)) {
                of = make(false);
                now++;
                put_name(folder, name, of);
            }
            fd_node[fd] = of;
        }
    }
    pthread_mutex_unlock(&lock);
    return fd;
}

static int64_t on_write(int fd, const void *p, int64_t n, int64_t at)
{
    pthread_mutex_lock(&lock);
    int64_t done = under->write(fd, p, n, at);
    int of = fd < FDS ? fd_node[fd] : -1;
    if (done > 0 && of >= 0) {
        struct node *f = &node[of];
        int64_t place = at < 0 ? lseek(fd, 0, SEEK_CUR) - done : at;
        while (f->room < place + done) {
            CHECK_OK(mem_grow(f->room, 2 * f->room + 65536, 1, "a file", &f->bytes));
            f->room = 2 * f->room + 65536;
        }
        memcpy(f->bytes + place, p, (size_t)done);
        f->placed += at >= 0;
        note(of, place, done);
    }
    pthread_mutex_unlock(&lock);
    return done;
}

static int on_fsync(int fd)
{
    pthread_mutex_lock(&lock);
    int of = fd < FDS ? fd_node[fd] : -1;
    if (of >= 0) {
        note(of, 0, 0);
        for (int i = 0; i < changes && node[of].folder; i++)
            if (change[i].folder == of && change[i].flushed < 0)
                change[i].flushed = now;
    }
    pthread_mutex_unlock(&lock);
    return 0; /* the real disk need not */
}

static int on_close(int fd)
{
    pthread_mutex_lock(&lock);
    if (fd < FDS)
        fd_node[fd] = -1;
    int done = under->close(fd);
    pthread_mutex_unlock(&lock);
    return done;
}

static int move(int (*call)(const char *from, const char *to), const char *from, const char *to)
{
    const char *a, *b;
    pthread_mutex_lock(&lock);
    int done = call(from, to);
    if (done == 0) {
        int f = walk(from, &a), t = walk(to, &b);
        if (f >= 0 && t >= 0) {
            now++;
            put_name(t, b, lookup(f, a));
            put_name(f, a, -1);
            if (strcmp(b, "index.json") == 0 && indices < CHANGES)
                index_at[indices++] = now;
        }
    }
    pthread_mutex_unlock(&lock);
    return done;
}

static int on_rename(const char *from, const char *to)
{
    return move(under->rename, from, to);
}

static int on_rename_new(const char *from, const char *to)
{
    return move(under->rename_new, from, to);
}

static int on_unlink(const char *path)
{
    const char *name;
    pthread_mutex_lock(&lock);
    int done = under->unlink(path), folder = walk(path, &name);
    if (done == 0 && folder >= 0) {
        now++;
        put_name(folder, name, -1);
    }
    pthread_mutex_unlock(&lock);
    return done;
}

static int on_mkdir(const char *path, unsigned mode)
{
    const char *name;
    pthread_mutex_lock(&lock);
    int done = under->mkdir(path, mode), code = errno, folder = walk(path, &name);
    if (done == 0 && folder >= 0 && *name) {
        now++;
        put_name(folder, name, make(true));
    }
    errno = code;
    pthread_mutex_unlock(&lock);
    return done;
}

/* ---- what a cut leaves ---- */

/* Of writes that were not flushed: nothing, of each a part or all or nothing, all, or of each a
 * part and the length of all. */
enum way { NOTHING, PARTS, ALL, LENGTH };

/* As changes that are made together: a rename's two names are one. */
static bool has_change(const struct change *c, int cut, const int *until)
{
    return c->at <= cut && ((c->flushed >= 0 && c->flushed <= cut) || c->at <= until[c->folder]);
}

/* How much of a write that is not flushed is on the disk. */
static int64_t left_of(int64_t n, enum way way)
{
    int64_t part = num_min(n, num_max(0, test_range(-n, 2 * n)));
    return way == ALL ? n : way == NOTHING ? 0 : part;
}

static void put_file(const char *path, int of, int cut, enum way way)
{
    int flushed = 0;
    int64_t length = 0;
    FILE *f = fopen(path, "w");
    CHECK(f != NULL);
    for (int i = 0; i < events && event[i].at <= cut; i++)
        flushed = event[i].node == of && event[i].n == 0 ? event[i].at : flushed;
    for (int i = 0; f && i < events && event[i].at <= cut; i++) {
        const struct event *e = &event[i];
        if (e->node != of)
            continue;
        int64_t n = e->at < flushed ? e->n : left_of(e->n, way);
        length = num_max(length, e->place + (way == LENGTH ? e->n : n));
        CHECK(fseek(f, (long)e->place, SEEK_SET) == 0 &&
              fwrite(node[of].bytes + e->place, 1, (size_t)n, f) == (size_t)n);
    }
    if (f) {
        CHECK(fflush(f) == 0 && ftruncate(fileno(f), (off_t)length) == 0);
        fclose(f);
    }
}

static void put_folder(const char *path, int folder, int cut, const int *until)
{
    CHECK(mkdir(path, 0777) == 0);
    for (int i = changes - 1; i >= 0; i--) {
        char below[2 * FOLDER_PATH];
        struct stat st;
        bool later = false; /* another change of that name stands */
        if (change[i].folder != folder || !has_change(&change[i], cut, until))
            continue;
        for (int j = i + 1; j < changes && !later; j++)
            later = change[j].folder == folder && has_change(&change[j], cut, until) &&
                    strcmp(change[j].name, change[i].name) == 0;
        snprintf(below, sizeof below, "%s/%s", path, change[i].name);
        if (later || change[i].node < 0 || strncmp(change[i].name, "plait.lock", 10) == 0 ||
            lstat(below, &st) == 0)
            continue;
        if (node[change[i].node].folder)
            put_folder(below, change[i].node, cut, until);
        else
            put_file(below, change[i].node, cut, (enum way)test_range(0, LENGTH));
    }
}

/* ---- runs ---- */

/* Shards of several writes, by two threads. */
static const char *const small[] = {
    "model.layers=2", "model.hidden=96", "model.heads=2", "model.seq=16", "model.dropout=0.1",
    "train.batch=4", "train.threads=1", "train.steps=12", "train.save_every=3", "optim.lr=0.01",
    "optim.warmup=2", "train.dtype=f32"};

static const char *const layouts[][WORDS] = {
    {"parallel.dp=2", "parallel.zero=1"}, {"parallel.pp=2"}, {"parallel.tp=2"}};

struct seen { int steps; char table[8192]; };

static void on_start(void *arg, const char *table)
{
    snprintf(((struct seen *)arg)->table, sizeof((struct seen *)arg)->table, "%s", table);
}

static int train(const char *run, const char *const *layout, const char *more, struct seen *seen)
{
    folder_tokens("tokens", "a strand over a strand under another strand; ", 100);
    struct plait_config *c = folder_config(run, "tokens");
    folder_set(c, small, sizeof small / sizeof *small);
    folder_set(c, layout, WORDS);
    folder_set(c, &more, 1);
    *seen = (struct seen){.steps = 0};
    int code = plait_train(c, &(struct plait_train){.size = sizeof(struct plait_train),
                                                    .on_start = on_start, .arg = seen});
    plait_config_free(c);
    return code;
}

/* Lines of steps 1, 2, ... and nothing else; their numbers as those of the run. */
static bool same_lines(void)
{
    char a[FOLDER_PATH], b[FOLDER_PATH], command[6 * FOLDER_PATH];
    folder_path_in("run", "metrics.jsonl", a);
    folder_path_in("cut", "metrics.jsonl", b);
    snprintf(command, sizeof command,
             "for f in '%s' '%s'; do sed 's/, \"tokens\".*//' \"$f\" >\"$f.n\"; done; "
             "cmp '%s.n' '%s.n' && [ $(wc -l <'%s.n') -eq %d ]", a, b, a, b, b, STEPS);
    return system(command) == 0;
}

static void record(const char *const *layout)
{
    struct fs_ops writes;
    struct seen seen;
    for (int i = 0; i < nodes; i++)
        mem_free(node[i].bytes);
    nodes = changes = events = now = indices = 0;
    for (int i = 0; i < FDS; i++)
        fd_node[i] = -1;
    make(true);
    folder_remove("run");
    folder_path("run", root);
    under = fs_ops;
    writes = *under;
    writes.open = on_open;
    writes.write = on_write;
    writes.fsync = on_fsync;
    writes.close = on_close;
    writes.rename = on_rename;
    writes.rename_new = on_rename_new;
    writes.unlink = on_unlink;
    writes.mkdir = on_mkdir;
    fs_ops = &writes;
    int code = train("run", layout, "train.save_every=3", &seen);
    fs_ops = under;
    test_check(code == 0, __FILE__, __LINE__, "%s", plait_error());
    CHECK(indices == STEPS / 3 && changes < CHANGES && events < 4 * CHANGES);
    int placed = 0;
    for (int i = 0; i < nodes; i++)
        placed += node[i].placed > 2;
    CHECK_INT(placed, 2 * indices); /* the shards */
}

/* The step of the last save that had ended by then: its index had its place, and the call behind it
 * had come. */
static int saved_by(int cut)
{
    int n = 0;
    while (n < indices && index_at[n] + 2 <= cut)
        n++;
    return 3 * n;
}

static void cut_at(const char *const *layout, int cut)
{
    static int until[NODES];
    char path[FOLDER_PATH], what[160];
    struct seen seen;
    long long from = 0;
    for (int i = 0; i < nodes; i++) /* changes of a folder come to the disk in their order */
        until[i] = test_range(0, 1) ? 0 : (int)test_range(0, cut);
    folder_remove("cut");
    folder_path("cut", path);
    put_folder(path, 0, cut, until);
    int code = train("cut", layout, "run.resume=auto", &seen);
    snprintf(what, sizeof what, "%s, cut at %d of %d", layout[0], cut, now);
    test_check(code == 0, __FILE__, __LINE__, "%s: code %d: %s", what, code, plait_error());
    const char *at = strstr(seen.table, "resume          behind step ");
    if (at)
        (void)sscanf(at, "resume          behind step %lld", &from);
    test_check(from >= saved_by(cut), __FILE__, __LINE__, "%s: goes on from %lld, step %d was "
               "saved", what, from, saved_by(cut));
    test_check(same_lines() && folder_same_in("cut", "run", "model.safetensors"), __FILE__,
               __LINE__, "%s: other numbers or weights", what);
    cuts++;
}

static void at_every_call(void)
{
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        record(layouts[i]);
        for (int cut = 1; cut <= now; cut += getenv("PLAIT_SAVES") ? 1 : (int)test_range(1, 12))
            cut_at(layouts[i], cut);
    }
    printf("%d cuts\n", cuts);
}

/* ---- a disk that is slow to forget ---- */

static int depth, told;

static void begins(void *arg, const char *path)
{
    (void)arg;
    (void)path;
    depth++;
}

static void ends(void *arg)
{
    (void)arg;
    depth--;
}

static int told_unlink(const char *path)
{
    CHECK(depth > 0);
    told++;
    return under->unlink(path);
}

/* Peers that wait for the rank that removes a checkpoint see that it waits for the disk. */
static void the_end_of_one_is_told_of(void)
{
    char path[FOLDER_PATH];
    struct fs_ops ops;
    folder_path("old", path);
    CHECK_OK(fs_make_dirs(path));
    folder_path_in("old", "index.json", path);
    CHECK_OK(fs_put(path, "{}", 2));
    folder_path("old", path);
    under = fs_ops;
    ops = *under;
    ops.unlink = told_unlink;
    fs_ops = &ops;
    fs_watch_set(&(struct fs_watch){begins, ends, NULL});
    CHECK_OK(state_remove(path));
    fs_watch_set(NULL);
    fs_ops = under;
    CHECK(told > 0 && depth == 0 && !fs_exists(path));
}

static const struct test_case cases[] = {
    {"at every call", at_every_call},
    {"the end of one is told of", the_end_of_one_is_told_of},
};
TEST_MAIN(cases)
