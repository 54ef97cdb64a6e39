/* SPDX-License-Identifier: Apache-2.0
 *
 * The folder of a run, run.dir. A run takes it before it writes anything else, holds it for its
 * life, and leaves nothing but the lock's absence behind when it did not come to its first step.
 * Then its checkpoints, what a run that goes on does with them, and folders that are named to be
 * read.
 *
 * On GPUs and hosts: the reporting rank's process takes the folder for all ranks, who wait for it
 * in rank_agree.
 */
#ifndef PLAIT_FOLDER_FOLDER_H
#define PLAIT_FOLDER_FOLDER_H

#include "base/fs_sys.h"
#include "folder/record.h"
#include "setup/setup.h"

#include <pthread.h>

/* ---- what stands there (names.c); docs/run-folder.md is the user's page ---- */

/* The names that runs write; those from YAML to METRICS each start makes, in this order. Beside
 * them stand, while a file is being written, temporary ones: NAME.tmp.PID.NUMBER. */
enum folder_file { FOLDER_LOCK, FOLDER_YAML, FOLDER_JSON, FOLDER_RECORD, FOLDER_LOG, FOLDER_METRICS,
                   FOLDER_TRACE, FOLDER_WEIGHTS, FOLDER_CHECKPOINTS, FOLDER_FILES };
extern const char *const folder_name[FOLDER_FILES];
/* The path of such a file into buf, which is returned, as fs_path. */
const char *folder_file(char buf[FS_PATH], const char *dir, enum folder_file i);
/* The path becomes that of the folder around it: "." for a name alone. */
void folder_above(char *path);
/* Does a run write it? By run.save, train.save_keep and train.trace. */
bool folder_writes(const struct options *o, enum folder_file i);

/* What a lock that was found says of its owner, whose words are told as far as they are known (pid
 * 0: not at all). */
struct folder_owner { char host[65], since[32]; long pid; };
enum folder_life {
    FOLDER_FREE,    /* nobody has the folder */
    FOLDER_LIVES,   /* the lock is held */
    FOLDER_DIED,    /* on this host */
    FOLDER_UNSEEN,  /* on another host, or on a disk without locks: it may live */
    FOLDER_FOREIGN, /* the words are no run's, or cannot be read */
};
enum folder_life folder_life(const struct fs_lock_found *found, struct folder_owner *out);
/* The name of this host. */
void folder_host(char host[65]);
/* "the run of pid 7 on host a, since 2026-01-02T03:04:05Z", into buf, which is returned. */
enum { FOLDER_OWNER = 160 };
const char *folder_owner_words(const struct folder_owner *w, char buf[FOLDER_OWNER]);

/* ---- what a start has made before its first step (start.c) ----
 * Known by its content, so that what somebody has put in its place since is not taken for it; and
 * what a start that died left. */

struct folder_start {
    long pid;                      /* its owner's; 0: of no run */
    bool made;                     /* the files; else there are traces at most */
    unsigned long long hash[FOLDER_LOG]; /* of the descriptions, YAML to RECORD; 0: not made */
};
/* How the first line of a start's log begins, behind its date. */
#define FOLDER_LOG_BEGINS "run of pid %ld "

/* Into a lock that is held, before the files are made: what a start is going to write, the texts of
 * its descriptions. kept: config.yaml stays as it is. Errors: ERR_STORAGE. */
enum err start_write(const struct fs_lock *l, const struct text words[FOLDER_LOG], bool kept,
                     struct folder_start *out);
/* By the lock that was found; of no run, where it is held, or not a run's. */
struct folder_start start_read(const struct fs_lock_found *found);
/* What such a text is known by. */
unsigned long long start_hash(const void *p, int64_t n);
/* Is what has this name as that start made it? Local. */
bool start_made(const struct folder_start *s, enum folder_file i, const char *path);
/* Has a trace there a step? Heads alone are removed by their ranks. Local. */
bool start_traced(const char *dir);
/* What is there of a dead start and goes: nothing where it is of no run, or where any name of a
 * run's is otherwise than it made it. Local. */
void start_left(const struct folder_start *s, const char *dir, bool left[FOLDER_FILES]);
/* Remove half-written files of the dead run, and what it left if it made no step, saying so; those
 * that look so and are of no dead run are named and stay. Errors: ERR_STORAGE. Local. */
enum err start_sweep(const struct folder_start *s, const struct options *o);

/* ---- a run's own folder (folder.c) ---- */

/* What stands against a run in this folder, as a sentence for a report; nothing is appended when
 * nothing does. a: with the vocabulary resolved. Errors: ERR_MEMORY. Local; touches nothing. */
enum err folder_note(const struct options *o, const struct model *a, struct text *out);

struct folder {
    const struct options *o; /* borrowed */
    struct fs_lock lock;
    bool taken, begun;
    struct fs_lock_found found; /* the lock that stood there */
    struct folder_start dead;   /* of a run that died there */
    bool validated; /* metrics.jsonl has the validation behind the resumed step */
    bool goes_on; /* run.resume: the folder is a run's, which goes on there */
    bool kept; /* config.yaml is this run's own configuration file, equal to what it would write */
    bool made[FOLDER_FILES]; /* by this run, which may take it away again while it is as made */
    struct folder_start start;
    struct stat metrics; /* of the file that was made */
    struct record record;
    char log_path[FS_PATH];
    char aside[FS_PATH]; /* where the traces of the start before are; "": they stay, or none are */
    int log;         /* file descriptor of log.txt; -1: there is none */
    int64_t done;    /* steps, told by the reporting rank at its end */
};
/* Make the folder and take it: remove what a dead run left half written, or without a step; look at
 * every name that this run will write. Of a run that goes on traces of before become trace.N.
 * Errors: ERR_LOCKED, naming the owner; ERR_CONFIG for a name that exists; ERR_STORAGE. Local. */
enum err folder_take(struct folder *f, const struct options *o, const struct model *a);
/* Asks for room (folder_room), then makes config.yaml, the vocabulary filled in, Hugging Face's
 * config.json, run.json with these facts, log.txt, and metrics.jsonl, open, empty or with the lines
 * of a run that goes on behind step `resumed`. Errors: ERR_STORAGE. Local. */
enum err folder_begin(struct folder *f, const struct setup *s, int64_t resumed, struct text *facts,
                      int *metrics);
/* Behind the last step: run.json says how the run ended, log.txt is closed. What fails is a warning
 * here. Nothing where the run has not begun. Local. */
void folder_end(struct folder *f, enum err code, const char *words);
/* Behind the closing of its files. The message of an error stays. Idempotent, also of one that is
 * all zero. */
void folder_leave(struct folder *f);

/* ---- the checkpoints of a run's folder (checkpoints.c) ---- */

/* Has a run's folder a whole checkpoint, as far as can be seen? Local. */
bool folder_has_checkpoint(const char *dir);
/* Does run.resume mean a checkpoint of run.dir: auto, a step, or a folder there? Local. */
bool folder_means_own(const struct options *o);
/* May run.resume go on in run.dir: is it a run's folder, with a checkpoint that is meant, or of a
 * run that has neither checkpoint nor weights yet? Local. */
bool folder_goes_on(const struct options *o);
/* The folder of the whole checkpoint of a run's folder that a word means, and its step: a step,
 * "best": the one with the lowest validation loss in its index, or "": the newest, out "" where
 * there is none. who: stands in front of the message. Errors: ERR_CONFIG: it is no such word;
 * ERR_CHECKPOINT: there is none, with those that there are; ERR_MEMORY. Local. */
enum err folder_checkpoint(const char *who, const char *dir, const char *word, char out[FS_PATH],
                           int64_t *step);
/* The same of run.resume in run.dir, which may also be a checkpoint's own folder: step -1. */
enum err folder_resumed(const struct options *o, char out[FS_PATH], int64_t *step);
/* Behind the reading of a checkpoint (NULL, "": of other files) that ended with err: where that is
 * ERR_CHECKPOINT its message gets the steps of the others of that run. Returns err, or ERR_MEMORY.
 * Local. */
enum err folder_others(enum err err, const char *checkpoint);
/* Bytes of the files in a folder, which may go meanwhile. Local. */
int64_t folder_bytes(const char *dir);
/* Renames `path`, which is kept, to `name`, or the first of name.first, name.(first + 1), ... that
 * is free, into `to`. Errors: ERR_STORAGE. Local. */
enum err folder_move_aside(const char *path, const char *name, int first, char to[FS_PATH]);
/* What cannot be read is kept beside its place, as NAME.bad.PID. Errors: ERR_STORAGE. Local. */
enum err folder_set_aside(const char *path, char to[FS_PATH]);
/* A run that goes on behind that step: lines of metrics behind it are cut, and what unfinished
 * saves left goes; so do checkpoints of later steps, but those that run.resume=auto could not read
 * are set aside. Checkpoints are said. *validated: there is a line of the validation behind that
 * step. Errors: ERR_STORAGE. Local. */
enum err folder_cut(const struct options *o, int64_t resumed, bool *validated);
/* Has the file system of run.dir room for the weights, and for the checkpoints that can be there at
 * once, beside those that a run that goes on, behind step `resumed`, has there already? Errors:
 * ERR_STORAGE, ERR_CHECKPOINT: those cannot be listed; ERR_MEMORY. Local. */
enum err folder_room(const struct options *o, const struct model *a, bool goes_on,
                     int64_t resumed);

/* Older checkpoints of a run go beside the steps, by a thread: gigabytes of files take seconds. On
 * the rank that writes indexes; what fails is a warning, for one more than wanted stays.
 * All zeros: nothing is under way. */
struct folder_older {
    const struct options *o;    /* borrowed */
    const struct fs_lock *lock; /* borrowed; of run.dir; NULL: of another process */
    int64_t newest, best;       /* steps; best 0: there is none, or it goes like the others */
    pthread_t thread;
    bool runs;                  /* it has to be joined */
    struct err_kept err;        /* its error */
};

/* The index of step `newest` is on the disk: those beyond the train.save_keep newest go, `best`
 * not counted and kept. Ends what is under way first. Local. */
void folder_older_start(struct folder_older *o, const struct options *opt,
                        const struct fs_lock *lock, int64_t newest, int64_t best);
/* They are gone. Any one thread: the one that writes the next checkpoint, so that there is room. */
void folder_older_join(struct folder_older *o);
/* The same by the rank's thread, which is not hung meanwhile; what failed is said. */
void folder_older_end(struct folder_older *o);

/* ---- a folder that is named to be read (folder_find.c) ---- */

/* The folder can be read as a run's, which has a config.yaml; models: or as a model's, which has a
 * config.json. who: stands in front of the message. Errors: ERR_CONFIG, with what is there instead
 * and what may be meant; where a run has begun and made no config.yaml, as folder_lacks, ERR_DATA
 * or with models ERR_CHECKPOINT. Local; touches nothing. */
enum err folder_find(const char *who, const char *dir, bool models);

/* Why a run's folder has none of `what`, as far as can be seen there: its run is under way, has
 * died, or ended at some step without saving them. o: of its config.yaml; NULL: it has none.
 * Returns `code`, or ERR_MEMORY. Local. */
enum err folder_lacks(enum err code, const char *who, const char *what, const char *dir,
                      const struct options *o);

#endif
