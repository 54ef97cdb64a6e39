/* SPDX-License-Identifier: Apache-2.0
 *
 * Chapter "runs" of plait.h: the runs in a folder, and what came of each: by the lock whether it
 * lives, by run.json how it ended, by metrics.jsonl and the folders of checkpoints how far it came.
 * Of a lock of another host it cannot be said whether its run lives. All of it may be damaged, cut
 * while it is read, or no file at all: what is wrong with one run is said, and the next is looked
 * at. Metrics are read in pieces, since a map would end the process where a file is cut.
 */
#include "api/api.h"

#include "base/fs_sys.h"
#include "base/mem.h"
#include "ckpt/state.h"
#include "folder/folder.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

enum { PIECE = 1 << 20 };
static const int64_t metrics_max = (int64_t)1 << 32;

enum state { RUNNING, UNSEEN, ENDED, STOPPED, FAILED, KILLED, UNKNOWN };
static const char *const state_name[] = {"running", "not ended", "ended", "stopped", "failed",
                                         "killed", "?"};

struct run {
    char *name, *dir; /* owned */
    enum state state;
    enum folder_life life;
    struct folder_owner owner; /* of its lock, as far as it is known */
    int64_t step, steps, newest, bytes; /* -1: not known, or none */
    int checkpoints;
    double loss, best; /* NaN: none */
    char when[LOG_TIME];
    struct text wrong;
};

/* ---- one run ---- */

static enum err read_metrics(struct run *r, const char *path)
{
    struct fs_reader f = {0};
    char *piece = NULL;
    int64_t held = 0, n;
    enum err err = ERR_OK;
    TRY(fs_reader_open(&f, path, ERR_DATA));
    if (f.size > metrics_max)
        err = err_set(ERR_DATA, __FILE__, __LINE__, "%s has %lld bytes, at most %lld are read",
                      path, (long long)f.size, (long long)metrics_max);
    if (err == ERR_OK)
        err = mem_new(PIECE, 1, "a piece of metrics", &piece);
    for (int64_t from = 0; from < f.size && err == ERR_OK; from += n) {
        const char *at = piece;
        n = num_min(PIECE - held, f.size - from);
        err = fs_reader_get(&f, from, n, piece + held);
        held += n;
        for (struct metrics_line l; err == ERR_OK && metrics_next(&at, piece + held, &l);) {
            if (l.step >= 1 && l.valid && isfinite(l.loss) && !(l.loss >= r->best))
                r->best = l.loss;
            if (l.step >= 1 && !l.valid) {
                r->step = l.step;
                r->loss = l.loss;
            }
        }
        int64_t left = held - (at - piece);
        held = left < PIECE ? left : 0; /* a line that is longer than a piece is none of ours */
        memmove(piece, at, (size_t)held);
    }
    mem_free(piece);
    fs_reader_close(&f);
    return err;
}

static enum err read_checkpoints(struct run *r, const char *path)
{
    struct state_found *found;
    int n;
    char dir[FS_PATH];
    (void)path;
    TRY(state_list(r->dir, true, &found, &n));
    r->checkpoints = n;
    r->newest = n > 0 ? found[0].step : -1;
    for (int i = 0; i < n; i++)
        r->bytes += folder_bytes(state_dir(dir, r->dir, found[i].step));
    mem_free(found);
    return ERR_OK;
}

/* By the last start, where the lock does not say more: it is held, or left. What left a lock that
 * says nothing here has ended if the record has the end of a start behind it. */
static enum err read_record(struct run *r, const char *path)
{
    struct record all;
    TRY(record_read(path, &all));
    const struct record_start *s = &all.start[all.n - 1];
    memcpy(r->when, s->end[0] ? s->end : s->start, sizeof r->when);
    bool ended = s->code >= 0 && strcmp(s->start, r->owner.since) >= 0;
    if (r->life == FOLDER_FREE || (ended && r->life >= FOLDER_UNSEEN))
        r->state = s->code < 0             ? KILLED
                   : s->code == 0          ? ENDED
                   : s->code == ERR_STOPPED ? STOPPED
                                            : FAILED;
    record_free(&all);
    return ERR_OK;
}

static enum err read_config(struct run *r, const char *path)
{
    struct options o;
    (void)path;
    TRY(options_read_run(r->dir, &o));
    r->steps = o.train.steps;
    return ERR_OK;
}

static enum err read_lock(struct run *r, const char *path)
{
    static const enum state state[] = {[FOLDER_FREE] = UNKNOWN, [FOLDER_LIVES] = RUNNING,
                                       [FOLDER_DIED] = KILLED, [FOLDER_UNSEEN] = UNSEEN,
                                       [FOLDER_FOREIGN] = UNKNOWN};
    struct fs_lock_found found;
    fs_lock_look(path, &found);
    r->life = folder_life(&found, &r->owner);
    r->state = state[r->life];
    if (r->life == FOLDER_FOREIGN)
        FAIL(ERR_LOCKED, "%s cannot be read, or no run made it", path);
    return ERR_OK;
}

/* What a run's folder has, in the order in which it is asked; any of those before the last makes it
 * a run's. */
static const struct {
    const char *name;
    enum err (*read)(struct run *r, const char *path);
} part[] = {{"plait.lock", read_lock},
            {"run.json", read_record},
            {"config.yaml", read_config},
            {"metrics.jsonl", read_metrics},
            {"checkpoints", read_checkpoints}};
enum { PARTS = sizeof part / sizeof *part };

static enum err look(struct run *r, bool *is)
{
    *is = false;
    for (int i = 0; i < PARTS; i++) {
        char path[FS_PATH];
        bool last = i + 1 == PARTS, named = !last && fs_named(fs_path(path, r->dir, part[i].name));
        *is = *is || named;
        enum err err = named || (last && *is) ? part[i].read(r, path) : ERR_OK;
        if (err == ERR_MEMORY)
            return err;
        if (err != ERR_OK)
            text_add(&r->wrong, "%s%s", r->wrong.len ? "; " : "", err_bare(err_text()));
    }
    return r->wrong.err;
}

/* ---- all of them ---- */

struct runs { struct run *run; int n; }; /* owned */

static void free_run(struct run *r)
{
    mem_free(r->name);
    mem_free(r->dir);
    text_free(&r->wrong);
}

/* Adds it, if it is one. */
static enum err add(struct runs *all, const char *dir, const char *name)
{
    struct run r = {.state = UNKNOWN, .step = -1, .steps = -1, .newest = -1,
                    .loss = NAN, .best = NAN};
    struct text shown = {0};
    bool is = false;
    text_add_printable(&shown, name);
    enum err err = text_done(&shown, &r.name);
    if (err == ERR_OK)
        err = mem_string(dir, &r.dir);
    if (err == ERR_OK)
        err = look(&r, &is);
    if (err == ERR_OK && is)
        err = mem_grow(all->n, all->n + 1, sizeof r, "the runs of a folder", &all->run);
    if (err == ERR_OK && is)
        all->run[all->n++] = r;
    else
        free_run(&r);
    return err;
}

static enum err find(const char *dir, struct runs *all)
{
    struct fs_folder d;
    char path[FS_PATH], why[FS_REASON];
    if (!fs_folder_open(&d, dir))
        FAIL(ERR_CONFIG, "runs: %s cannot be read: %s; name a folder that has runs", dir,
             fs_reason(errno, why));
    enum err err = add(all, dir, ".");
    for (const char *name; err == ERR_OK && (name = fs_folder_next(&d));) {
        struct stat st;
        if (fs_sys_stat(fs_path(path, dir, name), &st) == 0 && S_ISDIR(st.st_mode))
            err = add(all, path, name);
    }
    fs_folder_close(&d);
    return err;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct run *)a)->name, ((const struct run *)b)->name);
}

/* ---- answers ---- */

enum { COLUMNS = 7, CELL = 96 };
static const char *const head[COLUMNS] = {"run", "state", "step", "loss", "best valid",
                                          "checkpoints", "when"};

static void fill(const struct run *r, char cell[COLUMNS][CELL])
{
    char size[32], of[32] = "";
    for (int i = 0; i < COLUMNS; i++)
        snprintf(cell[i], CELL, "-");
    snprintf(cell[0], CELL, "%.40s", r->name);
    snprintf(cell[1], CELL, "%s%s%s", state_name[r->state], r->state == UNSEEN ? ", on " : "",
             r->state == UNSEEN ? r->owner.host : "");
    if (r->steps >= 0)
        snprintf(of, sizeof of, "/%lld", (long long)r->steps);
    if (r->step >= 0)
        snprintf(cell[2], CELL, "%lld%s", (long long)r->step, of);
    if (isfinite(r->loss))
        snprintf(cell[3], CELL, "%.4f", r->loss);
    if (isfinite(r->best))
        snprintf(cell[4], CELL, "%.4f", r->best);
    if (r->checkpoints > 0)
        snprintf(cell[5], CELL, "%d to step %lld, %s", r->checkpoints, (long long)r->newest,
                 text_bytes(r->bytes, size));
    if (r->when[0])
        snprintf(cell[6], CELL, "%s", r->when);
}

static void add_table(const char *dir, const struct runs *all, struct text *out)
{
    char cell[COLUMNS][CELL];
    int width[COLUMNS] = {0};
    if (all->n == 0)
        text_add(out, "no run in %s\n", dir);
    for (int i = -1; all->n > 0 && i < 2 * all->n + 1; i++) { /* widths, then lines */
        bool measures = i < all->n;
        int at = measures ? i : i - all->n - 1;
        if (at >= 0)
            fill(&all->run[at], cell);
        for (int c = 0; c < COLUMNS; c++) {
            const char *word = at < 0 ? head[c] : cell[c];
            width[c] = (int)num_max(width[c], (int64_t)strlen(word));
            if (!measures && c + 1 < COLUMNS)
                text_add(out, "%-*s  ", width[c], word);
            else if (!measures)
                text_add(out, "%s\n", word);
        }
    }
    for (int i = 0; i < all->n; i++)
        if (all->run[i].wrong.len > 0)
            text_add(out, "%s: %s\n", all->run[i].name, all->run[i].wrong.s);
}

static void add_int(struct text *out, const char *name, int64_t v)
{
    if (v >= 0)
        text_add(out, ", \"%s\": %lld", name, (long long)v);
    else
        text_add(out, ", \"%s\": null", name);
}

static void add_word(struct text *out, const char *name, const char *word)
{
    text_add(out, ", \"%s\": ", name);
    if (word && word[0])
        text_add_json(out, word);
    else
        text_add(out, "null");
}

static void add_json(const struct runs *all, struct text *out)
{
    char number[32];
    text_add(out, "[");
    for (int i = 0; i < all->n; i++) {
        const struct run *r = &all->run[i];
        text_add(out, "%s\n{\"run\": ", i ? "," : "");
        text_add_json(out, r->name);
        add_word(out, "state", r->state == UNKNOWN ? NULL : state_name[r->state]);
        add_word(out, "host", r->owner.host);
        add_int(out, "step", r->step);
        add_int(out, "steps", r->steps);
        text_add(out, ", \"loss\": %s", text_json_real(r->loss, number));
        text_add(out, ", \"best_valid\": %s", text_json_real(r->best, number));
        add_int(out, "checkpoints", r->checkpoints);
        add_int(out, "newest", r->newest);
        add_int(out, "bytes", r->bytes);
        add_word(out, "when", r->when);
        add_word(out, "wrong", r->wrong.s);
        text_add(out, "}");
    }
    text_add(out, "\n]\n");
}

int plait_runs(const struct plait_runs *a, char **out)
{
    struct plait_runs mine;
    struct runs all = {NULL, 0};
    struct text page = {0};
    TRY(api_take("plait_runs", a, &mine, sizeof mine));
    const char *dir = mine.dir ? mine.dir : "";
    bool json = mine.format && strcmp(mine.format, "json") == 0;
    if (mine.format && !json && strcmp(mine.format, "text") != 0)
        FAIL(ERR_CONFIG, "runs: format \"%.64s\" is not known; use text or json", mine.format);
    enum err err = find(dir, &all);
    if (err == ERR_OK && all.n > 1)
        qsort(all.run, (size_t)all.n, sizeof *all.run, by_name);
    if (err == ERR_OK && json)
        add_json(&all, &page);
    else if (err == ERR_OK)
        add_table(dir, &all, &page);
    for (int i = 0; i < all.n; i++)
        free_run(&all.run[i]);
    mem_free(all.run);
    return api_give(err, &page, out);
}
