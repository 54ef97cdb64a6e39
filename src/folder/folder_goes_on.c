/* SPDX-License-Identifier: Apache-2.0
 *
 * The folder of a run that goes on behind a step: what is of later steps goes, so that each step is
 * in there once. Metrics are cut into a new file that takes the old one's place whole. Checkpoints
 * of later steps would be taken for this run's by the next resume.
 */
#include "folder/folder.h"

#include "base/fs_sys.h"
#include "base/log.h"
#include "base/mem.h"
#include "ckpt/state.h"
#include "folder/metrics_read.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static bool has(const char *dir, const char *name)
{
    char *path;
    if (fs_join(dir, name, &path) != ERR_OK)
        return true;
    bool there = fs_exists(path);
    mem_free(path);
    return there;
}

bool folder_has_checkpoint(const char *dir)
{
    struct state_found *found;
    bool whole = false;
    int n;
    if (state_list(dir, &found, &n) != ERR_OK)
        return false;
    for (int i = 0; i < n; i++)
        whole = whole || found[i].whole;
    mem_free(found);
    return whole;
}

bool folder_is_step(const char *word, int64_t *step)
{
    return word[0] && strspn(word, "0123456789") == strlen(word) && text_to_int(word, step);
}

enum err folder_resumed(const struct options *o, char **out, int64_t *step)
{
    const char *word = o->run.resume;
    if (strcmp(word, "best") == 0 || folder_is_step(word, step))
        return folder_checkpoint("run.resume", o->run.dir, word, out, step);
    *step = -1;
    return state_exists(word) ? mem_string(word, out) : folder_no_checkpoint(o);
}

bool folder_run_of(const char *word, char out[OPTIONS_PATH_MAX])
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

bool folder_means_own(const struct options *o)
{
    const char *word = o->run.resume;
    char run[OPTIONS_PATH_MAX];
    int64_t step;
    if (strcmp(word, "auto") == 0 || strcmp(word, "best") == 0 || folder_is_step(word, &step))
        return true;
    return folder_run_of(word, run) && fs_same_place(run, o->run.dir);
}

bool folder_goes_on(const struct options *o)
{
    struct options was;
    struct err_kept none;
    if (!o->run.resume[0] || !folder_means_own(o))
        return false;
    err_keep(&none, ERR_OK);
    bool its = options_read_run(o->run.dir, &was) == ERR_OK &&
               (folder_has_checkpoint(o->run.dir) || !has(o->run.dir, "model.safetensors"));
    (void)!err_again(&none);
    return its;
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

static enum err cut_metrics(const char *path, int64_t last, bool *validated)
{
    struct fs_map m;
    struct text kept = {0};
    struct stat st;
    bool cut = false;
    if (fs_sys_lstat(path, &st) != 0)
        return ERR_OK;
    TRY(fs_map_open(&m, path, ERR_STORAGE));
    keep_lines(&m, last, &kept, &cut, validated);
    fs_map_close(&m);
    enum err err = kept.err;
    if (err == ERR_OK && cut)
        err = fs_put(path, kept.s ? kept.s : "", kept.len);
    text_free(&kept);
    return err;
}

static enum err drop(const char *dir, const struct state_found *f)
{
    char *path;
    TRY(state_dir(dir, f->step, &path));
    enum err err = state_remove(path);
    if (err == ERR_OK && !fs_exists(path))
        log_line(LOG_WARN, "run.dir %s: the checkpoint of step %lld is removed: %s", dir,
                 (long long)f->step, f->whole ? "the run goes on from an earlier one"
                                              : "its save did not end");
    mem_free(path);
    return err;
}

/* Into a new string: `name`, or the first of name.first, name.(first + 1), ... that is free. */
static enum err free_name(const char *name, int first, char **out)
{
    TRY(mem_string(name, out));
    for (int n = first; fs_named(*out); n++) {
        struct text t = {0};
        mem_free(*out);
        *out = NULL;
        text_add(&t, "%s.%d", name, n);
        TRY(text_done(&t, out));
    }
    return ERR_OK;
}

enum err folder_move_aside(const char *path, const char *name, int first, char **to)
{
    char why[FS_REASON];
    TRY(free_name(name, first, to));
    if (fs_sys_rename(path, *to) == 0)
        return ERR_OK;
    enum err err = err_set(ERR_STORAGE, __FILE__, __LINE__, "storage: cannot rename %s to %s: %s",
                           path, *to, fs_reason(errno, why));
    mem_free(*to);
    *to = NULL;
    return err;
}

/* In a container a process has the pid of one before: then a number stands behind it. */
enum err folder_set_aside(const char *path, char **to)
{
    struct text name = {0};
    text_add(&name, "%s.bad.%ld", path, (long)getpid());
    enum err err = name.err == ERR_OK ? folder_move_aside(path, name.s, 2, to) : name.err;
    text_free(&name);
    return err;
}

/* One that could not be read may be good for somebody: a file server that fails, another plait. */
static enum err keep_unread(const char *dir, const struct state_found *f)
{
    char *path, *to = NULL;
    TRY(state_dir(dir, f->step, &path));
    enum err err = folder_set_aside(path, &to);
    if (err == ERR_OK)
        log_line(LOG_WARN, "run.dir %s: the checkpoint of step %lld could not be read and is set "
                           "aside as %s", dir, (long long)f->step, to);
    mem_free(path);
    mem_free(to);
    return err;
}

enum folder_fate folder_fate(const struct options *o, const struct state_found *found, int64_t last)
{
    if (found->whole && found->step <= last)
        return FOLDER_STAYS;
    return found->whole && strcmp(o->run.resume, "auto") == 0 ? FOLDER_ASIDE : FOLDER_GOES;
}

static enum err cut_checkpoints(const struct options *o, int64_t last)
{
    struct state_found *found;
    int n;
    TRY(state_list(o->run.dir, &found, &n));
    enum err err = ERR_OK;
    for (int i = 0; i < n && err == ERR_OK; i++) {
        enum folder_fate fate = folder_fate(o, &found[i], last);
        if (fate == FOLDER_ASIDE)
            err = keep_unread(o->run.dir, &found[i]);
        else if (fate == FOLDER_GOES)
            err = drop(o->run.dir, &found[i]);
    }
    mem_free(found);
    return err;
}

/* Checkpoints go first: a start that dies between the two leaves lines of steps that are done
 * again, and no step without a line. */
enum err folder_cut(const struct options *o, int64_t resumed, bool *validated)
{
    char *path;
    *validated = false;
    TRY(cut_checkpoints(o, resumed));
    TRY(fs_join(o->run.dir, "metrics.jsonl", &path));
    enum err err = cut_metrics(path, resumed, validated);
    mem_free(path);
    return err;
}
