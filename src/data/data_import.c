/* SPDX-License-Identifier: Apache-2.0
 *
 * A table of numbers, as text or as an array of NumPy, into one row file, read by block, twice
 * (data_file.c).
 *
 * A picture is resized by bilinear interpolation with half-pixel centres: place i of n on an axis
 * of m is x = (i + 1/2) m / n - 1/2, kept within 0 .. m - 1, between its two neighbours, with no
 * smoothing where it gets smaller. That is PyTorch's interpolate(mode="bilinear",
 * align_corners=False), and Pillow's BILINEAR where it gets larger.
 */
#include "data/data_file.h"

#include "base/mem.h"
#include "base/num.h"
#include "base/text.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { BLOCK = 65536, FIELD = 64, FIRST_ROOM = 1024 };

struct job {
    const struct data_import *a;
    struct data_set h;
    int64_t columns; /* of each row, as the first has; 0: not known */
    int64_t done;   /* bytes of earlier passes */
    double *value;  /* owned; [room] the values of a line, as they stand */
    double *pixel;  /* owned; [to_height x to_width]; NULL: not resized */
    uint8_t *row;   /* owned; a row as the file has it */
    const char *unit; /* of the table, for messages: a line, or a row of an array */
    int64_t values, room;
};

/* The table, read character by character. */
struct reader {
    struct fs_reader text;
    char block[BLOCK];
    int64_t at;   /* of the block in the file */
    int n, i;     /* bytes of it, and those that have been read */
    int64_t line; /* from 1, or a row of an array */
};

/* Is there another character? */
static enum err more(struct job *j, struct reader *r, bool *yes)
{
    if (r->i == r->n) {
        r->at += r->n;
        r->n = (int)num_min(BLOCK, r->text.size - r->at);
        r->i = 0;
        TRY(fs_reader_get(&r->text, r->at, r->n, r->block));
        if (j->a->progress && r->n > 0)
            j->a->progress(j->a->arg, j->done + r->at + r->n, 2 * r->text.size);
    }
    *yes = r->i < r->n;
    return ERR_OK;
}

/* The next field of the line without blanks around it; *last: it ends the line. */
static enum err read_field(struct job *j, struct reader *r, char out[FIELD], bool *last)
{
    int n = 0;
    for (bool yes;; r->i++) {
        TRY(more(j, r, &yes));
        char c = yes ? r->block[r->i] : '\n';
        *last = c == '\n';
        if (c == ',' || c == '\n') {
            r->i += yes;
            break;
        }
        if (n == FIELD - 1 || !c)
            FAIL(ERR_DATA, "data: line %lld of %s has \"%.20s...\", which is no number; give "
                           "numbers between commas, a row a line", (long long)r->line,
                 r->text.path, out);
        if (n > 0 || (c != ' ' && c != '\t'))
            out[n++] = c;
        out[n] = '\0';
    }
    while (n > 0 && strchr(" \t\r", out[n - 1]))
        n--;
    out[n] = '\0';
    return ERR_OK;
}

/* Room for so many values. */
static enum err grow(struct job *j, int64_t values)
{
    if (values <= j->room)
        return ERR_OK;
    if (values > DATA_FEATURES_MAX + 1)
        FAIL(ERR_DATA, "data: the first row of %s has more than %d values, and a row has at most "
                       "%d features and a label", j->a->table, DATA_FEATURES_MAX + 1,
             DATA_FEATURES_MAX);
    int64_t room = num_max(num_max(FIRST_ROOM, values), 2 * j->room);
    TRY(mem_grow(j->values, room, sizeof *j->value, "a row", &j->value));
    j->room = room;
    return ERR_OK;
}

/* The values of a line; none, where it is blank. */
static enum err read_line(struct job *j, struct reader *r)
{
    char field[FIELD] = "";
    bool last = false;
    for (j->values = 0; !last; j->values++) {
        TRY(read_field(j, r, field, &last));
        if (last && j->values == 0 && !field[0])
            break;
        TRY(grow(j, j->values + 1));
        if (text_read_real(field, &j->value[j->values]) != TEXT_NUMBER)
            FAIL(ERR_DATA, "data: line %lld, column %lld of %s is \"%.40s\", which is no number%s",
                 (long long)r->line, (long long)j->values + 1, j->a->table, field,
                 r->line == 1 ? "; pass over a line of names with --header"
                              : "; give each row numbers alone");
    }
    return ERR_OK;
}

/* ---- a row ---- */

struct shape { int height, width; };

static void resize(const double *in, struct shape from, struct shape to, double *out)
{
    for (int i = 0; i < to.height; i++) {
        double y = fmax((i + 0.5) * from.height / to.height - 0.5, 0);
        int y0 = (int)y, y1 = (int)num_min(y0 + 1, from.height - 1);
        const double *a = in + (int64_t)y0 * from.width, *b = in + (int64_t)y1 * from.width;
        for (int k = 0; k < to.width; k++) {
            double x = fmax((k + 0.5) * from.width / to.width - 0.5, 0);
            int x0 = (int)x, x1 = (int)num_min(x0 + 1, from.width - 1);
            double above = a[x0] + (x - x0) * (a[x1] - a[x0]);
            double below = b[x0] + (x - x0) * (b[x1] - b[x0]);
            *out++ = above + (y - y0) * (below - above);
        }
    }
}

/* What the first row says of all. */
static enum err begin_rows(struct job *j)
{
    const struct data_import *a = j->a;
    int64_t values = j->values, features = values - 1, pixels = (int64_t)a->height * a->width;
    if (features < 1)
        FAIL(ERR_DATA, "data: the first row of %s has %lld value%s, and a row has at least one "
                       "feature and a label; give values between commas", a->table,
             (long long)values, text_plural(values, "s"));
    if (pixels > 0 && pixels != features)
        FAIL(ERR_CONFIG, "data: a picture of %d x %d has %lld values, and rows of %s have %lld "
                         "features and a label; give the shape of the table", a->height, a->width,
             (long long)pixels, a->table, (long long)features);
    j->columns = values;
    j->h.height = a->to_height ? a->to_height : pixels > 0 ? a->height : 1;
    j->h.width = a->to_width ? a->to_width : pixels > 0 ? a->width : (int)features;
    j->h.features = (int64_t)j->h.height * j->h.width;
    TRY(mem_new(data_unit_bytes(&j->h), 1, "a row", &j->row));
    return a->to_height ? mem_new(j->h.features, sizeof *j->pixel, "a picture", &j->pixel) : ERR_OK;
}

static enum err put_row(struct job *j, const struct reader *r, struct data_pass *p)
{
    const struct data_import *a = j->a;
    const double *x = j->value + (a->label_first ? 1 : 0);
    int64_t most = a->classes ? a->classes - 1 : INT32_MAX - 1;
    if (j->values != j->columns)
        FAIL(ERR_DATA, "data: line %lld of %s has %lld value%s, the rows before it have %lld; give "
                       "each row as many", (long long)r->line, a->table, (long long)j->values,
             text_plural(j->values, "s"), (long long)j->columns);
    double label = j->value[a->label_first ? 0 : j->columns - 1];
    if (!(label >= 0 && label <= (double)most && label == floor(label)))
        FAIL(ERR_DATA, "data: %s %lld of %s has label %g in its %s column, the rule is a whole "
                       "number from 0 to %lld; use --labels, --classes or another table", j->unit,
             (long long)r->line, a->table, label, a->label_first ? "first" : "last",
             (long long)most);
    j->h.classes = a->classes ? a->classes : num_max(j->h.classes, (int64_t)label + 1);
    data_put_le(j->row + DATA_VALUE * j->h.features, (uint64_t)label, DATA_VALUE);
    if (j->pixel) {
        resize(x, (struct shape){a->height, a->width},
               (struct shape){a->to_height, a->to_width}, j->pixel);
        x = j->pixel;
    }
    for (int64_t i = 0; i < j->h.features; i++) {
        float f = (float)(x[i] * a->scale);
        if (!isfinite(f))
            FAIL(ERR_DATA, "data: %s %lld of %s has %g, which times scale %g is more than 32 "
                           "bits hold; use a smaller --scale", j->unit, (long long)r->line,
                 a->table, x[i], a->scale);
        data_put_value(j->row + DATA_VALUE * i, f);
    }
    j->h.count++;
    return data_put(p, j->row, data_unit_bytes(&j->h));
}

static enum err pass_lines(struct job *j, struct reader *r, struct data_pass *p)
{
    bool yes, names = j->a->header;
    TRY(data_text_begin(&r->text, j->a->table, &r->at));
    for (r->line = 1;; r->line += !names) {
        TRY(more(j, r, &yes));
        if (!yes)
            return ERR_OK;
        if (names) { /* up to the end of the first line */
            names = r->block[r->i++] != '\n';
            continue;
        }
        TRY(read_line(j, r));
        if (j->values > 0 && !j->row)
            TRY(begin_rows(j));
        if (j->values > 0)
            TRY(put_row(j, r, p));
    }
}

static enum err pass_array(struct job *j, struct reader *r, const struct data_npy *array,
                           struct data_pass *p)
{
    if (j->a->header)
        FAIL(ERR_CONFIG, "data: %s is an array, which has no line of names; leave --header out",
             j->a->table);
    TRY(grow(j, array->columns));
    j->values = array->columns;
    for (r->line = 1; r->line <= array->rows; r->line++) {
        TRY(data_npy_row(&r->text, j->a->table, array, r->line - 1, j->value));
        if (!j->row)
            TRY(begin_rows(j));
        TRY(put_row(j, r, p));
        if (j->a->progress)
            j->a->progress(j->a->arg, j->done + r->text.size / array->rows * r->line,
                           2 * r->text.size);
    }
    return ERR_OK;
}

static enum err pass_table(void *arg, struct data_pass *p)
{
    struct job *j = arg;
    struct reader r = {.n = 0};
    struct data_npy array;
    j->h.count = 0;
    TRY(fs_reader_open(&r.text, j->a->table, ERR_DATA));
    enum err err = data_npy_open(&r.text, j->a->table, &array);
    j->unit = array.bytes ? "row" : "line";
    if (err == ERR_OK)
        err = array.bytes ? pass_array(j, &r, &array, p) : pass_lines(j, &r, p);
    j->done += r.text.size;
    fs_reader_close(&r.text);
    TRY(err);
    if (j->h.count == 0)
        FAIL(ERR_DATA, "data: table %s has no row; give one that is not empty", j->a->table);
    return ERR_OK;
}

static bool is_shape(int height, int width)
{
    return height > 0 && width > 0 && (int64_t)height * width <= DATA_FEATURES_MAX;
}

enum err data_import(const struct data_import *a, int64_t *rows)
{
    struct job j = {.a = a, .h = {.kind = DATA_ROWS}};
    if ((a->height || a->width) && !is_shape(a->height, a->width))
        FAIL(ERR_CONFIG, "data: pictures of %d x %d are none; use a height and a width of 1 or "
                         "more, %d values at most", a->height, a->width, DATA_FEATURES_MAX);
    if ((a->to_height || a->to_width) && !is_shape(a->to_height, a->to_width))
        FAIL(ERR_CONFIG, "data: pictures cannot be resized to %d x %d; use a height and a width of "
                         "1 or more, %d values at most", a->to_height, a->to_width,
             DATA_FEATURES_MAX);
    if (a->to_height && !a->height)
        FAIL(ERR_CONFIG, "data: rows are to be resized to %d x %d, and nothing says what pictures "
                         "they are; give their shape, too", a->to_height, a->to_width);
    if (!isfinite(a->scale) || a->scale == 0)
        FAIL(ERR_CONFIG, "data: scale is %g; use a number that is finite and not 0", a->scale);
    if (a->classes < 0 || a->classes > INT32_MAX)
        FAIL(ERR_CONFIG, "data: %lld classes were asked for; use 1 to %d, or 0 for those that the "
                         "labels say", (long long)a->classes, INT32_MAX);
    if (fs_same(a->out, a->table))
        FAIL(ERR_CONFIG, "data: output %s is the same file as table %s; name another output",
             a->out, a->table);
    enum err err = data_write(&(struct data_writer){&j.h, pass_table, &j, "the table"}, a->out);
    if (err == ERR_OK)
        *rows = j.h.count;
    mem_free(j.value);
    mem_free(j.pixel);
    mem_free(j.row);
    return err;
}
