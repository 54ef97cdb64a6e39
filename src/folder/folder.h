/* SPDX-License-Identifier: Apache-2.0
 *
 * The folder of a run, run.dir: what a run writes there, by one table; whether something stands
 * there that it would write over; and who holds it. A run takes its folder before it writes
 * anything else, holds it for its life, and leaves nothing but the lock's absence behind when it
 * did not come to its first step. docs/run-folder.md is the user's page.
 *
 * On GPUs and hosts: the reporting rank's process takes the folder for all ranks, who wait for it
 * in rank_agree.
 */
#ifndef PLAIT_FOLDER_FOLDER_H
#define PLAIT_FOLDER_FOLDER_H

#include "base/fs_sys.h"
#include "folder/record.h"
#include "setup/setup.h"

/* The names that runs write, and when. Beside them stand, while a file is being written, temporary
 * ones: NAME.tmp.PID.NUMBER. */
enum folder_when { FOLDER_ALWAYS, FOLDER_SAVE, FOLDER_CHECKPOINTS, FOLDER_TRACE }; /* with run.save,
                                                                      save_keep, train.trace */
struct folder_name { const char *name; enum folder_when when; };
int folder_names(void);
const struct folder_name *folder_name_at(int i);

/* Who a lock says has the folder. false: these are no words of a run's. */
struct folder_owner { char host[65], since[32]; long pid; };
bool folder_read_owner(const char *words, struct folder_owner *out);
bool folder_is_here(const struct folder_owner *w); /* on this host */
/* What a lock that was found says of its owner, whose words are told as far as they are known. */
enum folder_life {
    FOLDER_FREE,    /* nobody has the folder */
    FOLDER_LIVES,   /* the lock is held */
    FOLDER_DIED,    /* on this host */
    FOLDER_UNSEEN,  /* on another host, or on a disk without locks: it may live */
    FOLDER_FOREIGN, /* the words are no run's, or cannot be read */
};
enum folder_life folder_life(const struct fs_lock_found *found, struct folder_owner *out);

/* Could a run make the folder, or write there? Errors: ERR_STORAGE. Local; touches nothing.
 * (folder_dir.c) */
enum err folder_check_dir(const char *dir);

/* What stands against a run in this folder, as a sentence for a report; nothing is appended when
 * nothing does. a: with the vocabulary resolved. Errors: ERR_MEMORY. Local; touches nothing. */
enum err folder_note(const struct options *o, const struct model *a, struct text *out);

/* What a start makes, known by its content: hashes of the descriptions, 0: it is not made; the log
 * by its owner's pid. */
struct folder_start {
    bool made; /* else there are traces at most */
    unsigned long long yaml, json, record;
    long pid;
};
/* How the first line of a start's log begins, behind its date. */
#define FOLDER_LOG_BEGINS "run of pid %ld "
/* What a start makes, in its order. */
enum folder_made { FOLDER_YAML, FOLDER_JSON, FOLDER_RECORD, FOLDER_LOG, FOLDER_METRICS,
                   FOLDER_MADE };

struct folder {
    const struct options *o; /* borrowed */
    struct fs_lock lock;
    bool taken, begun, swept;
    char dead[FS_LOCK_WORDS]; /* of a run that died there; "": none did */
    bool validated; /* metrics.jsonl has the validation behind the resumed step */
    bool goes_on; /* run.resume: the folder is a run's, which goes on there */
    bool kept; /* config.yaml is this run's own configuration file, equal to what it would write */
    bool made[FOLDER_MADE]; /* by this run, which may take it away again while it is as made */
    struct folder_start start;
    struct stat metrics; /* of the file that was made */
    struct record record;
    char *record_path, *log_path; /* owned; once it has begun */
    char *aside; /* owned; where the traces of the start before are; NULL: they stay, or none are */
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
/* May run.resume go on in run.dir: is it a run's folder, with a checkpoint that is meant, or of a
 * run that has neither checkpoint nor weights yet? Local. (folder_goes_on.c) */
bool folder_goes_on(const struct options *o);
/* Has a run's folder a whole checkpoint, as far as can be seen? Local. (folder_goes_on.c) */
bool folder_has_checkpoint(const char *dir);
/* Does run.resume mean a checkpoint of run.dir: auto, a step, or a folder there? Local. */
bool folder_means_own(const struct options *o);
/* The checkpoint's folder that run.resume names, a step's, the best one's or its own, into a new
 * string (mem_free), and the step, -1: of a folder. Errors: ERR_CHECKPOINT: there is none, with
 * those that there are; ERR_CONFIG: it is no such word; ERR_MEMORY. Local. (folder_goes_on.c) */
enum err folder_resumed(const struct options *o, char **out, int64_t *step);
/* RUN of RUN/checkpoints/NAME into out; false: it has not that form, or is too long.
 * (folder_goes_on.c) */
bool folder_run_of(const char *word, char out[OPTIONS_PATH_MAX]);
/* A whole number of digits alone? (folder_goes_on.c) */
bool folder_is_step(const char *word, int64_t *step);
/* The folder of the whole checkpoint of a run's folder that a word means, into a new string
 * (mem_free), and its step: a step, "best": the one with the lowest validation loss in its index,
 * or "": the newest, NULL where there is none. who: stands in front of the message. Errors:
 * ERR_CONFIG: it is no such word; ERR_CHECKPOINT: there is none, with those that there are;
 * ERR_MEMORY. Local. (folder_pick.c) */
enum err folder_checkpoint(const char *who, const char *dir, const char *word, char **out,
                           int64_t *step);
/* Why the folder that run.resume names is no checkpoint, with the legal values. Returns ERR_CONFIG;
 * ERR_CHECKPOINT: it is one's name; ERR_MEMORY. Local. (folder_pick.c) */
enum err folder_no_checkpoint(const struct options *o);
/* Behind the reading of a checkpoint (NULL: of other files) that ended with err: where that is
 * ERR_CHECKPOINT its message gets the steps of the others of that run. Returns err, or ERR_MEMORY.
 * Local. (folder_pick.c) */
enum err folder_others(enum err err, const char *checkpoint);
/* What the start of a run that goes on behind step `last` does with a checkpoint of run.dir: it
 * stays, or goes, or stands aside, as one that run.resume=auto could not read. (folder_goes_on.c)
 */
struct state_found;
enum folder_fate { FOLDER_STAYS, FOLDER_GOES, FOLDER_ASIDE };
enum folder_fate folder_fate(const struct options *o, const struct state_found *found,
                             int64_t last);
/* Renames `path`, which is kept, to `name`, or the first of name.first, name.(first + 1), ... that
 * is free: *to (mem_free), NULL where it fails. Errors: ERR_STORAGE; ERR_MEMORY. Local.
 * (folder_goes_on.c) */
enum err folder_move_aside(const char *path, const char *name, int first, char **to);
/* What cannot be read is kept beside its place, as NAME.bad.PID: *to (mem_free). Errors:
 * ERR_STORAGE; ERR_MEMORY. Local. (folder_goes_on.c) */
enum err folder_set_aside(const char *path, char **to);
/* A run that goes on behind that step: lines of metrics behind it are cut, and what unfinished
 * saves left goes; so do checkpoints of later steps, but those that run.resume=auto could not read
 * are set aside. Checkpoints are said. *validated: there is a line of the validation behind that
 * step. Errors: ERR_STORAGE. Local. (folder_goes_on.c) */
enum err folder_cut(const struct options *o, int64_t resumed, bool *validated);
/* Has the file system of run.dir room for the weights, and for the checkpoints that can be there at
 * once, beside those that the run, behind step `resumed`, has there already? Errors: ERR_STORAGE,
 * ERR_CHECKPOINT: those cannot be listed; ERR_MEMORY. Local. (folder_room.c) */
enum err folder_room(const struct folder *f, const struct model *a, int64_t resumed);
/* Behind the closing of its files. The message of an error stays. Idempotent, also of one that is
 * all zero. */
void folder_leave(struct folder *f);

/* The folder can be read as a run's, which has a config.yaml; models: or as a model's, which has a
 * config.json. who: stands in front of the message. Errors: ERR_CONFIG, with what is there instead
 * and what may be meant; where a run has begun and made no config.yaml, as folder_lacks, ERR_DATA
 * or with models ERR_CHECKPOINT. Local; touches nothing. (folder_find.c) */
enum err folder_find(const char *who, const char *dir, bool models);

/* Why a run's folder has none of `what`, as far as can be seen there: its run is under way, has
 * died, or ended at some step without saving them. o: of its config.yaml; NULL: it has none.
 * Returns `code`, or ERR_MEMORY. Local. (folder_lacks.c) */
enum err folder_lacks(enum err code, const char *who, const char *what, const char *dir,
                      const struct options *o);

#endif
