/* SPDX-License-Identifier: Apache-2.0
 *
 * All file I/O of the program. Files become visible whole or not at all: fs_create writes to a
 * temporary name beside the target, fs_commit does fsync, rename, fsync of the folder; fs_abandon
 * (or a failed write) removes the temporary. One table of system calls stands underneath, so that
 * tests can make calls fail (PLAIT_FAIL_FS, fs_ops.c).
 */
#ifndef PLAIT_BASE_FS_H
#define PLAIT_BASE_FS_H

#include "base/err.h"
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/* The calls underneath; each as its POSIX namesake, -1 and errno on failure. */
struct fs_ops {
    int (*open)(const char *path, int flags, unsigned mode);
    int64_t (*write)(int fd, const void *p, int64_t n, int64_t at); /* pwrite; at -1: write */
    int (*fsync)(int fd);
    int (*close)(int fd);
    int (*rename)(const char *from, const char *to);
    int (*rename_new)(const char *from, const char *to); /* EEXIST where anything has that name */
    int (*link)(const char *from, const char *to);
    int (*unlink)(const char *path);
    int (*mkdir)(const char *path, unsigned mode);
    int64_t (*pread)(int fd, void *p, int64_t n, int64_t at);
    int64_t (*space)(const char *dir); /* bytes that are free there (statvfs); -1: not known */
    int (*keep)(int fd, int64_t n);    /* blocks for the first n bytes (fallocate) */
    int (*cut)(int fd, int64_t n);     /* the first n bytes stay (ftruncate) */
};
extern const struct fs_ops *fs_ops; /* the system's, unless a test replaces it */

/* The system's sentence for an errno, in lower case, with the way out. (fs_sys.c) */
enum { FS_REASON = 160 };
const char *fs_reason(int code, char buf[FS_REASON]);

/* A name beside the place, NAME.tmp.PID.NUMBER, which goes with a process that a signal ends. */
struct fs_temp {
    char *name; /* owned; NULL: none */
    int noted;  /* 1 + its place in fs_temp.c; 0: none */
};
struct fs_file {
    char *path; /* owned */
    struct fs_temp temp;
    int fd;
    char *buffer; /* owned; 1 MiB of pending bytes */
    int64_t used; /* bytes pending */
    atomic_int_fast64_t written; /* bytes that the system has taken */
    int64_t kept; /* bytes that there is room for in any case */
    bool fresh;   /* it replaces nothing */
    bool dear;    /* set by the caller: whole, but not to be put in place, it stays where it is */
    bool placed;  /* it has its name, also where that may not survive a power cut; stays when the
                     file is given up */
};
/* `f` need not be initialised; released by fs_commit or fs_abandon. Errors: ERR_STORAGE. */
enum err fs_create(struct fs_file *f, const char *path);
/* The same of a file that is not to replace anything: what has the name is not looked at now, and
 * fs_commit fails where anything has it then. */
enum err fs_create_new(struct fs_file *f, const char *path);
/* Could fs_create make the file? Asked before work whose result it is to take. Errors:
 * ERR_STORAGE. */
enum err fs_check_place(const char *path);
/* The disk keeps room for the n bytes that the file will have at least, whoever fills it meanwhile.
 * Where the file system cannot, nothing is done. Errors: ERR_STORAGE: there is not that much, or a
 * quota or a limit on files is below it; the file is then given up. */
enum err fs_keep_room(struct fs_file *f, int64_t n);
/* Bytes behind those of the calls before. Errors: ERR_STORAGE; the file is then given up. */
enum err fs_write(struct fs_file *f, const void *p, int64_t n);
/* Bytes at .. at + n - 1 of the file; any thread, several at once, of places that do not overlap,
 * nor with what fs_write writes. Errors: ERR_STORAGE; the file is not given up, for others may
 * still write. */
enum err fs_write_at(struct fs_file *f, int64_t at, const void *p, int64_t n);
/* Whole on the disk, but without its name, which is not this file's to take: `why`, in the message.
 * Returns ERR_STORAGE; the file is given up, and stays under its temporary name. */
enum err fs_leave(struct fs_file *f, const char *why);
/* Is what was written still there under its temporary name? Somebody may have removed it. */
bool fs_is_there(const struct fs_file *f);
/* Errors: ERR_STORAGE; the file may have its name all the same (f->placed). */
enum err fs_commit(struct fs_file *f);
void fs_abandon(struct fs_file *f); /* idempotent; also after a commit */
/* Removes all temporaries of the process, folders with their files, which must end then. Safe in a
 * signal handler. */
void fs_abandon_all(void);
/* Give a file its name; fresh: nothing is replaced, EEXIST. -1 and errno. */
int fs_place(const char *temp, const char *path, bool fresh);
/* The first free temporary name beside `path`, and what `make` makes of it, a descriptor or 0, into
 * *made. what: "create a file". Errors: ERR_STORAGE, ERR_MEMORY. */
enum err fs_temp_make(struct fs_temp *t, const char *path, const char *what,
                      int (*make)(const char *name), int *made);
/* The name is another's by now, or what had it is gone. Idempotent. */
void fs_temp_drop(struct fs_temp *t);
/* What has been written to a file, or the names that a folder has, are to survive a power cut.
 * Errors: ERR_STORAGE. */
enum err fs_flush(const char *path);
/* A whole file of n bytes at once. Errors: ERR_STORAGE. */
enum err fs_put(const char *path, const void *p, int64_t n);

/* Append-only log file (metrics, traces): every fs_append is one write(2), of whole lines or of a
 * whole record, and of one that does not fit nothing stays. fs_log_make is for a name that nothing
 * may have yet; a last line without an end, which a kill may leave, gets one from fs_log_open.
 * Errors: ERR_STORAGE. */
enum err fs_log_open(const char *path, int *fd);
enum err fs_log_make(const char *path, int *fd);
enum err fs_append(int fd, const char *path, const char *p, int64_t n);
/* Network disks may tell here that what was appended has no room. fd -1: nothing to do. */
enum err fs_log_close(int fd, const char *path);

/* Read-only map of a whole file. Directories, FIFOs and devices are refused. `code` is the error
 * that a missing or unreadable file gives, by what it is read for: ERR_CONFIG, ERR_DATA,
 * ERR_CHECKPOINT; ERR_STORAGE is for what is written. An empty file maps to data NULL, size 0. */
struct fs_map {
    const uint8_t *data;
    int64_t size;
};
enum err fs_map_open(struct fs_map *m, const char *path, enum err code);
/* The same of a file whose name comes from another file: one part of a path, of a-z A-Z 0-9 . _ -
 * and not . or .., that is no symbolic link. */
enum err fs_map_open_in(struct fs_map *m, const char *dir, const char *name, enum err code);
void fs_map_close(struct fs_map *m);

/* A file read in pieces. Who reads for as long as a run takes reads so: another program may cut the
 * file meanwhile, and a map would end the process. What is refused, and `code`, are as for maps. */
struct fs_reader {
    int fd;
    bool open;
    int64_t size; /* bytes, when it was opened */
    char *path;   /* owned; for messages */
    enum err code;
};
enum err fs_reader_open(struct fs_reader *r, const char *path, enum err code);
/* Bytes at .. at + n - 1 into p; any thread, several at once. Errors: `code`, also when the file
 * ends before, with what p then holds being undefined. */
enum err fs_reader_get(const struct fs_reader *r, int64_t at, int64_t n, void *p);
void fs_reader_close(struct fs_reader *r); /* idempotent, also of one that is all zero */

/* Told of this thread's file calls, each before it begins and when it has ended; the path is good
 * until then. NULL: nobody. */
struct fs_watch {
    void (*begin)(void *arg, const char *path);
    void (*end)(void *arg);
    void *arg;
};
struct fs_watch fs_watch_set(const struct fs_watch *w); /* returns the one before */
/* This thread's, to be set by threads that do its work: what they call at once is one file's, with
 * one path, which is good until the last of them has ended. */
struct fs_watch fs_watch_get(void);
/* Around what may wait for a disk without a call of fs_sys.h, as reading from a map does. They
 * nest; errno stays. */
void fs_call_begin(const char *path);
void fs_call_end(void);

/* A folder of files that becomes visible whole or not at all: made beside its place, under a
 * temporary name, which is renamed. (fs_dir.c) */
struct fs_dir {
    char *path; /* owned */
    struct fs_temp temp;
};
/* Nothing may have the name but an empty folder, and the folder that it is to stand in has to be
 * there. What others of that name have left half written is said, as warnings. Released by
 * fs_dir_commit or fs_dir_abandon. Errors: ERR_STORAGE; ERR_MEMORY. */
enum err fs_dir_create(struct fs_dir *d, const char *path);
/* The path of a file in it, into a new string (mem_free). */
enum err fs_dir_name(struct fs_dir *d, const char *name, char **out);
/* Errors: ERR_STORAGE, also where something has the name by now; the folder is then not there, but
 * where a power cut alone can take it away. */
enum err fs_dir_commit(struct fs_dir *d);
/* Removes it with all that is in it. Idempotent; also after a commit, and of one that is all zero.
 * The message of an error stays. */
void fs_dir_abandon(struct fs_dir *d);

/* The pid in NAME.tmp.PID.NUMBER, or 0. (fs_dir.c) */
long fs_temp_pid(const char *entry, const char *name);

/* mkdir -p. Errors: ERR_STORAGE, naming the path and the reason. */
enum err fs_make_dirs(const char *path);
/* What was made or removed in a folder stays so behind a power cut. Errors: ERR_STORAGE. */
enum err fs_sync_dir(const char *dir);
bool fs_exists(const char *path);
/* Has anything that name, be it a link that leads nowhere? */
bool fs_named(const char *path);
bool fs_leads_nowhere(const char *path); /* a link, and what it names is not there */
/* Is it one file, under whatever names? Both must be there; fs_same_link follows no link. */
bool fs_same(const char *a, const char *b);
bool fs_same_link(const char *a, const char *b);
/* Is the open file still the one of that name? No link is followed. */
bool fs_is_named(int fd, const char *path);
/* Would files of these names be one? Of what is not there yet folder and last name are compared. */
bool fs_same_place(const char *a, const char *b);
/* dir + "/" + name into buf, which is returned. What is longer than a path may be is cut to one
 * that the system refuses (ENAMETOOLONG). */
enum { FS_PATH = 4096 + 1 };
const char *fs_path(char buf[FS_PATH], const char *dir, const char *name);
/* The same into a new string (mem_free). */
enum err fs_join(const char *dir, const char *name, char **out);
/* The folder that holds `path`, which need not be there, into buf, which is returned, and cut as
 * there. */
const char *fs_parent(char buf[FS_PATH], const char *path);

/* A file that says who holds a folder, and is held by the kernel's lock for as long as its owner
 * lives. (fs_lock.c) */
enum { FS_LOCK_WORDS = 512 };
enum fs_lock_state {
    FS_LOCK_NONE,  /* nothing has the name */
    FS_LOCK_TAKEN, /* by this call */
    FS_LOCK_HELD,  /* by an open file of a process that lives */
    FS_LOCK_LEFT,  /* by nobody that can be seen; or it is no regular file, and has no words */
};
struct fs_lock_found {
    enum fs_lock_state state;
    bool blind; /* LEFT, and the file system has no locks: it may be held */
    char words[FS_LOCK_WORDS]; /* of the file that was there */
};
struct fs_lock {
    int fd;
    char *path; /* owned */
    struct fs_temp temp; /* while it is being taken */
};
/* Called for a file that nobody is seen to hold, which this process then does, before its own takes
 * the place: who dies in here, or refuses, leaves the file as it was. */
struct fs_lock_over { enum err (*first)(void *arg, const struct fs_lock_found *found); void *arg; };
/* Take the name with these words in it, or say what has it. over: what nobody holds is replaced;
 * NULL: not. Errors: ERR_STORAGE; those of over->first. The lock is released by fs_lock_leave,
 * which removes the file; also when it was not taken. */
enum err fs_lock_take(struct fs_lock *l, const char *path, const char *words,
                      const struct fs_lock_over *over, struct fs_lock_found *found);
void fs_lock_leave(struct fs_lock *l);
/* Has the lock its name still? Its folder may have been moved away. */
bool fs_lock_stands(const struct fs_lock *l);
/* Released, but the name stays, with these words and held by nobody. */
void fs_lock_leave_words(struct fs_lock *l, const char *words);
/* As fs_lock_take, without taking it or touching anything. */
void fs_lock_look(const char *path, struct fs_lock_found *found);

#endif
