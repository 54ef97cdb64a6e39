/* SPDX-License-Identifier: Apache-2.0
 *
 * The checkpoints of a run's folder: which there are and which a word means; what a run that goes
 * on behind a step does with later ones, so that each step is in there once; and room for those to
 * come. What an index says may be hostile: one that cannot be read is never the best.
 */
#include "folder/folder.h"

#include "base/fs_sys.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "ckpt/state.h"
#include "comm/comm.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

/* ---- which there are ---- */

bool folder_has_checkpoint(const char *dir)
{
    struct state_found *found;
    int n;
    if (state_list(dir, true, &found, &n) != ERR_OK)
        return false;
    mem_free(found);
    return n > 0;
}

/* Those of a run's folder without `but`, "10, 20", the oldest first, or `none` (mem_free). An error
 * of the folder is none. */
static enum err steps_of(const char *run, int64_t but, const char *none, char **out)
{
    struct state_found *found = NULL;
    struct text t = {0};
    int n;
    if (state_list(run, true, &found, &n) != ERR_OK)
        n = 0;
    for (int i = n - 1; i >= 0; i--)
        if (found[i].step != but)
            text_add(&t, "%s%lld", t.len ? ", " : "", (long long)found[i].step);
    mem_free(found);
    text_add(&t, "%s", t.len ? "" : none);
    return text_done(&t, out);
}

/* RUN of RUN/checkpoints/NAME; false: it has not that form, or is too long. */
static bool run_of(const char *word, char out[OPTIONS_PATH_MAX])
{
    static const char middle[] = "/checkpoints";
    size_t n = strlen(word);
    while (n > 1 && word[n - 1] == '/')
        n--;
    while (n > 0 && word[n - 1] != '/')
        n--;
    n = n > 0 ? n - 1 : 0;
    size_t end = n >= sizeof middle - 1 ? n - (sizeof middle - 1) : 0;
    if (end == 0 || strncmp(word + end, middle, sizeof middle - 1) != 0)
        return false;
    snprintf(out, OPTIONS_PATH_MAX, "%.*s", (int)end, word);
    return true;
}

/* A whole number of digits alone? */
static bool is_step(const char *word, int64_t *step)
{
    return word[0] && strspn(word, "0123456789") == strlen(word) && text_to_int(word, step);
}

enum err folder_others(enum err err, const char *checkpoint)
{
    char run[OPTIONS_PATH_MAX], *steps;
    struct err_kept kept;
    if (err != ERR_CHECKPOINT || !checkpoint || !run_of(checkpoint, run))
        return err;
    err_keep(&kept, err);
    const char *name = strrchr(checkpoint, '/') + 1;
    int64_t step = -1;
    if (strncmp(name, "step-", 5) != 0 || !is_step(name + 5, &step))
        step = -1;
    TRY(steps_of(run, step, "", &steps));
    err = err_set(ERR_CHECKPOINT, __FILE__, __LINE__, "%s; %s/checkpoints has %s%s", kept.text, run,
                  steps[0] ? "others, of the steps: " : "no other", steps);
    mem_free(steps);
    return err;
}

/* ---- which a word means ---- */

enum err folder_checkpoint(const char *who, const char *dir, const char *word, char out[FS_PATH],
                           int64_t *step)
{
    struct state_found *found;
    int n, at = 0;
    double loss;
    char *there;
    bool best = strcmp(word, "best") == 0;
    int64_t wanted = -1;
    *step = -1;
    out[0] = '\0';
    if (word[0] && !best && !is_step(word, &wanted))
        FAIL(ERR_CONFIG, "%s: \"%.40s\" is no step; give a whole number, or best", who, word);
    TRY(state_list(dir, true, &found, &n));
    if (best)
        state_best(dir, found, n, &wanted, &loss);
    while (at < n && word[0] && found[at].step != wanted)
        at++;
    if (at < n)
        state_dir(out, dir, *step = found[at].step);
    mem_free(found);
    if (at < n || !word[0])
        return ERR_OK;
    TRY(steps_of(dir, -1, best ? "none is there" : "none", &there));
    enum err err =
        best ? err_set(ERR_CHECKPOINT, __FILE__, __LINE__,
                       "%s: none of the checkpoints in %s/checkpoints (%s) was saved behind a "
                       "validation; name a step, or train with train.save_best=true", who, dir,
                       there)
             : err_set(ERR_CHECKPOINT, __FILE__, __LINE__,
                       "%s: %s/checkpoints has no whole checkpoint of step %s; it has those of: %s",
                       who, dir, word, there);
    mem_free(there);
    return err;
}

enum err folder_resumed(const struct options *o, char out[FS_PATH], int64_t *step)
{
    const char *word = o->run.resume;
    char run[OPTIONS_PATH_MAX], *there;
    enum err err;
    if (strcmp(word, "best") == 0 || is_step(word, step))
        return folder_checkpoint("run.resume", o->run.dir, word, out, step);
    *step = -1;
    snprintf(out, FS_PATH, "%s", word);
    if (state_exists(word))
        return ERR_OK;
    bool named = run_of(word, run), runs = !named && folder_has_checkpoint(word);
    TRY(steps_of(named ? run : runs ? word : o->run.dir, -1, "none", &there));
    if (named)
        err = err_set(ERR_CHECKPOINT, __FILE__, __LINE__, "run.resume: %s is no whole checkpoint; "
                      "%s/checkpoints has those of the steps: %s", word, run, there);
    else if (runs)
        err = err_set(ERR_CONFIG, __FILE__, __LINE__, "run.resume is %s, the folder of a run; name "
                      "one of its checkpoints, %s/checkpoints/step-N with N of: %s (or go on there "
                      "with run.dir=%s and run.resume=auto)", word, word, there, word);
    else
        err = err_set(ERR_CONFIG, __FILE__, __LINE__, "run.resume is \"%s\", which is neither "
                      "auto, best, a step nor a checkpoint's folder; give auto for the newest in "
                      "%s/checkpoints, which has those of the steps: %s", word, o->run.dir, there);
    mem_free(there);
    return err;
}

bool folder_means_own(const struct options *o)
{
    const char *word = o->run.resume;
    char run[OPTIONS_PATH_MAX];
    int64_t step;
    if (strcmp(word, "auto") == 0 || strcmp(word, "best") == 0 || is_step(word, &step))
        return true;
    return run_of(word, run) && fs_same_place(run, o->run.dir);
}

bool folder_goes_on(const struct options *o)
{
    struct options was;
    struct err_kept none;
    char path[FS_PATH];
    if (!o->run.resume[0] || !folder_means_own(o))
        return false;
    err_keep(&none, ERR_OK);
    bool its = options_read_run(o->run.dir, &was) == ERR_OK &&
               (folder_has_checkpoint(o->run.dir) ||
                !fs_exists(folder_file(path, o->run.dir, FOLDER_WEIGHTS)));
    (void)!err_again(&none);
    return its;
}

/* ---- what goes when a run goes on ---- */

enum err folder_move_aside(const char *path, const char *name, int first, char to[FS_PATH])
{
    char why[FS_REASON];
    snprintf(to, FS_PATH, "%s", name);
    for (int n = first; fs_named(to); n++)
        snprintf(to, FS_PATH, "%s.%d", name, n);
    if (fs_sys_rename(path, to) != 0)
        FAIL(ERR_STORAGE, "storage: cannot rename %s to %s: %s", path, to, fs_reason(errno, why));
    return ERR_OK;
}

/* In a container a process has the pid of one before: then a number stands behind it. */
enum err folder_set_aside(const char *path, char to[FS_PATH])
{
    char name[FS_PATH]; /* what is cut the system refuses (fs_path) */
    int n = snprintf(name, sizeof name, "%s.bad.%ld", path, (long)getpid());
    ENSURE(n > 0);
    return folder_move_aside(path, name, 2, to);
}

/* What the start of a run that goes on behind step `last` does with a checkpoint of run.dir: it
 * stays, or goes, for the next resume would take it for this run's; or it stands aside: one that
 * run.resume=auto could not read may be good for somebody (a file server that fails, another
 * plait). */
enum fate { STAYS, GOES, ASIDE };
static enum fate fate_of(const struct options *o, const struct state_found *found, int64_t last)
{
    if (found->whole && found->step <= last)
        return STAYS;
    return found->whole && strcmp(o->run.resume, "auto") == 0 ? ASIDE : GOES;
}

/* Whole lines of steps up to `last` into out; *cut: there were others, which is said; *validated:
 * there is one of the validation behind `last`. */
static void keep_lines(const struct fs_map *m, int64_t last, struct text *out, bool *cut,
                       bool *validated)
{
    const char *at = (const char *)m->data, *end = at + m->size;
    int64_t first = 0, steps = 0, later = 0;
    for (struct metrics_line l; metrics_next(&at, end, &l);) {
        bool kept = l.step > 0 && l.step <= last;
        *cut = *cut || !kept;
        *validated = *validated || (kept && l.valid && l.step == last);
        if (kept)
            text_add(out, "%.*s\n", (int)l.n, l.at);
        first = kept && first == 0 ? l.step : first;
        steps += kept && !l.valid;
        later += l.step > last && !l.valid;
    }
    *cut = *cut || at < end;
    if (later > 0)
        log_line(LOG_WARN, "metrics.jsonl: the lines of %lld step%s behind step %lld are cut, from "
                 "which the run goes on", (long long)later, text_plural(later, "s"),
                 (long long)last);
    if (first > 0 && last - first + 1 > steps)
        log_line(LOG_WARN, "metrics.jsonl lacks the lines of %lld of the steps %lld to %lld, which "
                 "could not be written", (long long)(last - first + 1 - steps), (long long)first,
                 (long long)last);
}

/* Checkpoints go first: a start that dies between the two leaves lines of steps that are done
 * again, and no step without a line. Those go into a new file that takes the old one's place. */
enum err folder_cut(const struct options *o, int64_t resumed, bool *validated)
{
    const char *run = o->run.dir;
    struct state_found *found;
    char path[FS_PATH], to[FS_PATH];
    struct fs_map m;
    struct text kept = {0};
    bool cut = false;
    int n;
    *validated = false;
    TRY(state_list(run, false, &found, &n));
    enum err err = ERR_OK;
    for (int i = 0; i < n && err == ERR_OK; i++) {
        enum fate fate = fate_of(o, &found[i], resumed);
        long long step = (long long)found[i].step;
        state_dir(path, run, found[i].step);
        if (fate == ASIDE)
            err = folder_set_aside(path, to);
        else if (fate == GOES)
            err = state_remove(path);
        if (err == ERR_OK && fate == ASIDE)
            log_line(LOG_WARN, "run.dir %s: the checkpoint of step %lld could not be read and is "
                               "set aside as %s", run, step, to);
        else if (err == ERR_OK && fate == GOES && !fs_exists(path))
            log_line(LOG_WARN, "run.dir %s: the checkpoint of step %lld is removed: %s", run, step,
                     found[i].whole ? "the run goes on from an earlier one"
                                    : "its save did not end");
    }
    mem_free(found);
    TRY(err);
    if (!fs_named(folder_file(path, o->run.dir, FOLDER_METRICS)))
        return ERR_OK;
    TRY(fs_map_open(&m, path, ERR_STORAGE));
    keep_lines(&m, resumed, &kept, &cut, validated);
    fs_map_close(&m);
    err = kept.err;
    if (err == ERR_OK && cut)
        err = fs_put(path, kept.s ? kept.s : "", kept.len);
    text_free(&kept);
    return err;
}

/* ---- room for those to come ---- */

int64_t folder_bytes(const char *dir)
{
    struct fs_folder d;
    struct stat st;
    int64_t all = 0;
    char path[FS_PATH];
    (void)fs_folder_open(&d, dir);
    for (const char *name; (name = fs_folder_next(&d));)
        if (fs_sys_lstat(fs_path(path, dir, name), &st) == 0 && S_ISREG(st.st_mode))
            all += st.st_size;
    fs_folder_close(&d);
    return all;
}

/* Asked before hours of work end without it, and once it is known what the run goes on from: for
 * the weights, and for as many checkpoints as can stand there at once. That is one more than stay,
 * since an older one goes when a newer one is whole; each step may be saved, for SIGUSR1 and a stop
 * may come behind any. What is there already has its room, and what the start removes gives it
 * back. */
struct room {
    double one;    /* bytes of a checkpoint of this run */
    int64_t most;  /* checkpoints at once, one of them under way */
    int64_t saves; /* that the run can make */
    double *old;   /* owned; [olds]: bytes of those that stay for now, the newest first */
    int64_t olds;
    double freed;  /* bytes of what goes before the first step */
};

/* Bytes beside the old ones while save j is under way. */
static double bytes_at(const struct room *r, int64_t j)
{
    int64_t stay = j == 1 ? r->olds : num_max(0, r->most - j);
    double bytes = (double)j * r->one;
    for (int64_t i = stay; i < r->olds; i++)
        bytes -= r->old[i];
    return bytes;
}

enum err folder_room(const struct options *o, const struct model *a, bool goes_on, int64_t resumed)
{
    struct state_found *found = NULL;
    char need[32], have[32], what[64] = "the weights take", dir[FS_PATH];
    int count = 0;
    int64_t space = o->run.save ? fs_sys_space(o->run.dir) : -1, left = o->train.steps - resumed;
    bool saved = resumed == 0 || folder_means_own(o); /* there is nothing new where it begins */
    double params = (double)model_params(a);
    struct room r = {.one = 3 * params * (double)dtype_size(options_types(o).at),
                     .most = o->train.save_keep + 1 + o->train.save_best,
                     .saves = options_checkpoints(o) ? num_max(left, !saved) : 0};
    if (space < 0)
        return ERR_OK;
    if (goes_on)
        TRY(state_list(o->run.dir, false, &found, &count));
    enum err err = mem_new(count, sizeof *r.old, "checkpoints", &r.old);
    for (int i = 0; i < count && err == ERR_OK; i++) {
        enum fate fate = fate_of(o, &found[i], resumed); /* ASIDE: beside all that are counted */
        int64_t size = fate == ASIDE ? 0 : folder_bytes(state_dir(dir, o->run.dir, found[i].step));
        r.freed += fate == GOES ? (double)size : 0;
        if (fate == STAYS)
            r.old[r.olds++] = (double)size;
    }
    mem_free(found);
    TRY(err);
    /* The save that needs most: the first, behind which older ones may go; the last for which none
     * has gone; or one of those behind it, where older ones are smaller. 0: there is none. */
    int64_t last = num_min(r.saves, r.most), n = num_min(1, last);
    for (int64_t j = num_max(2, num_min(last, r.most - r.olds)); j <= last; j++)
        n = bytes_at(&r, j) > bytes_at(&r, n) ? j : n;
    double bytes = 4 * params - r.freed + (n > 0 ? bytes_at(&r, n) : 0);
    mem_free(r.old);
    if (bytes <= (double)space)
        return ERR_OK;
    if (n > 0)
        snprintf(what, sizeof what, "the weights and %lld checkpoint%s at once take",
                 (long long)n, text_plural(n, "s"));
    FAIL(ERR_STORAGE, "run.dir %s: %s %s, and its file system has %s free; free some space, name "
                      "another folder, %sor keep nothing with run.save=false", o->run.dir, what,
         text_bytes((int64_t)fmin(bytes, 9e18), need), text_bytes(space, have),
         n > 0 ? "keep fewer checkpoints (train.save_keep, 0: none), " : "");
}

/* ---- older ones, which go beside the steps ---- */

/* By falling steps. The lock of run.dir is looked at before each folder: where it is lost, nothing
 * there is this run's any more. */
static enum err remove_all(void *arg)
{
    const struct folder_older *o = arg;
    struct state_found *found;
    char dir[FS_PATH];
    int n, whole = 0;
    TRY(state_list(o->o->run.dir, false, &found, &n));
    enum err err = ERR_OK;
    for (int i = 0; i < n && err == ERR_OK; i++) {
        if (found[i].step == o->best)
            continue;
        whole += found[i].whole;
        if (found[i].step >= o->newest || (found[i].whole && whole <= o->o->train.save_keep))
            continue;
        if (o->lock && !fs_lock_stands(o->lock))
            break;
        err = state_remove(state_dir(dir, o->o->run.dir, found[i].step));
    }
    mem_free(found);
    return err;
}

static void *remove_beside(void *arg)
{
    struct folder_older *o = arg;
    err_keep(&o->err, comm_files_alone(o->o->run.io_timeout, remove_all, o));
    return NULL;
}

void folder_older_start(struct folder_older *o, const struct options *opt,
                        const struct fs_lock *lock, int64_t newest, int64_t best)
{
    folder_older_end(o);
    *o = (struct folder_older){.o = opt, .lock = lock, .newest = newest, .best = best};
    enum err err = thread_start(&o->thread, remove_beside, o, "remove older checkpoints");
    o->runs = err == ERR_OK;
    if (err != ERR_OK)
        log_line(LOG_WARN, "%s", err_text()); /* they go behind the next save */
}

void folder_older_join(struct folder_older *o)
{
    if (o->runs)
        pthread_join(o->thread, NULL);
    o->runs = false;
}

void folder_older_end(struct folder_older *o)
{
    if (o->runs) {
        fs_call_begin(o->o->run.dir);
        folder_older_join(o);
        fs_call_end();
    }
    if (o->err.code != ERR_OK)
        log_line(LOG_WARN, "%s", o->err.text);
    o->err.code = ERR_OK;
}
