/* SPDX-License-Identifier: Apache-2.0
 *
 * Numbers of checkpoints are read as a resumed run reads them, through the index, in f64.
 */
#include "left.h"

#include "base/fs.h"
#include "base/mem.h"
#include "base/text.h"

#include <stdlib.h>

enum { LINE = 1024 };

/* ---- lines ---- */

int left_lines(const char *run, struct left_line *line, int most)
{
    char path[FOLDER_PATH], text[LINE];
    int n = 0;
    folder_path_in(run, "metrics.jsonl", path);
    FILE *f = fopen(path, "r");
    CHECK(f != NULL);
    while (f && fgets(text, sizeof text, f)) {
        struct left_line l;
        long long step;
        if (sscanf(text, "{\"step\": %lld, \"loss\": %lf, \"grad_norm\": %lf, \"lr\": %lf", &step,
                   &l.loss, &l.norm, &l.lr) != 4)
            continue;
        l.step = step;
        if (n < most)
            line[n] = l;
        n++;
    }
    if (f)
        fclose(f);
    return n;
}

/* Without the times, which are the end of each line. */
static int numbers(const char *run, struct text *out)
{
    char path[FOLDER_PATH], line[LINE];
    int n = 0;
    folder_path_in(run, "metrics.jsonl", path);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f)) {
        char *end = strstr(line, ", \"tokens\"");
        end = end ? end : strstr(line, ", \"time\"");
        text_add(out, "%.*s\n", (int)(end ? end - line : (long)strlen(line)), line);
        n++;
    }
    if (f)
        fclose(f);
    return n;
}

bool left_same_numbers(const char *run, const char *judge, int least)
{
    struct text a = {0}, b = {0};
    int n = numbers(run, &a), m = numbers(judge, &b);
    bool same = n == m && n >= least && strcmp(a.s, b.s) == 0;
    if (!same)
        printf("%s\ninstead of\n%s\n", a.s ? a.s : "", b.s ? b.s : "");
    text_free(&a);
    text_free(&b);
    return same;
}

bool left_half_written(const char *run)
{
    char dir[FOLDER_PATH], command[2 * FOLDER_PATH];
    folder_path(run, dir);
    /* an empty lock is of a start that was killed before anybody could know whose it is */
    snprintf(command, sizeof command, "! find '%s' -name '*.tmp.*' ! \\( -name 'plait.lock.tmp.*' "
             "-empty \\) -o -name plait.lock | grep .", dir);
    return system(command) != 0;
}

/* ---- checkpoints ---- */

static enum err open_one(const char *run, int64_t step, struct state_index *x)
{
    char path[FOLDER_PATH], dir[FS_PATH];
    folder_path(run, path);
    return state_index_open(x, state_dir(dir, path, step));
}

int left_checkpoints(const char *run, const char *what)
{
    struct state_found *found;
    char path[FOLDER_PATH];
    int n;
    folder_path(run, path);
    CHECK_OK(state_list(path, false, &found, &n));
    for (int i = 0; i < n; i++) {
        struct state_index x;
        bool good = found[i].whole && open_one(run, found[i].step, &x) == ERR_OK;
        test_check(good, __FILE__, __LINE__, "%s: the checkpoint of step %lld: %s", what,
                   (long long)found[i].step, found[i].whole ? err_text() : "is not whole");
        if (good)
            state_index_close(&x);
    }
    mem_free(found);
    return n;
}

static double *read_all(const struct state_index *x, const struct safet_entry *t,
                        enum state_kind kind)
{
    struct state_want want = {.tensor = t->name, .kind = kind,
                              .box = {.n = {t->shape[0], t->shape[1]}}};
    double *value;
    CHECK_OK(mem_new(t->shape[0] * t->shape[1], sizeof *value, "a tensor", &value));
    enum err err = state_read(x, &want, SAFET_F64, value);
    test_check(err == ERR_OK, __FILE__, __LINE__, "%s", err_text());
    if (err == ERR_OK)
        return value;
    mem_free(value);
    return NULL;
}

static double far_apart(const double *a, const double *b, int64_t n)
{
    double far = 0, scale = 0;
    for (int64_t i = 0; i < n; i++) {
        far = fmax(far, isfinite(a[i]) ? fabs(a[i] - b[i]) : INFINITY);
        scale = fmax(scale, fabs(b[i]));
    }
    return scale > 0 ? far / scale : far;
}

static void compare_kind(const struct state_index *x, const struct state_index *y, int i,
                         enum state_kind kind, struct left_worst *out)
{
    const struct safet_entry *t = &x->tensor[i];
    double *a = read_all(x, t, kind), *b = read_all(y, t, kind);
    double far = a && b ? far_apart(a, b, t->shape[0] * t->shape[1]) : INFINITY;
    if (far >= out->far) {
        out->far = far;
        snprintf(out->what, sizeof out->what, "%s of %s", state_kind_name[kind], t->name);
    }
    mem_free(a);
    mem_free(b);
}

void left_difference(const char *run, const char *judge, int64_t step, int kinds,
                     struct left_worst *out)
{
    struct state_index x = {0}, y = {0};
    *out = (struct left_worst){.far = 0};
    CHECK_OK(open_one(run, step, &x));
    CHECK_OK(open_one(judge, step, &y));
    if (x.tensors == 0 || x.tensors != y.tensors)
        out->far = INFINITY;
    for (int i = 0; i < x.tensors && out->far < INFINITY; i++)
        for (int kind = 0; kind < kinds; kind++)
            compare_kind(&x, &y, i, (enum state_kind)kind, out);
    state_index_close(&x);
    state_index_close(&y);
}
