/* SPDX-License-Identifier: Apache-2.0
 *
 * A page in several forms, each a file. Drawing can refuse a page that is too large for one form;
 * so all forms are drawn first, and a refusal leaves no file.
 */
#include "study/pictures.h"

#include "base/fs.h"
#include "base/mem.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum err pictures_check(const char *what, const char *const path[PICTURES_FILES])
{
    for (int i = 0; i < PICTURES_FILES; i++)
        for (int j = 0; j < i; j++)
            if (path[i] && path[j] && fs_same_place(path[i], path[j]))
                FAIL(ERR_CONFIG, "%s would be the one file %.200s; name each", what, path[i]);
    return ERR_OK;
}

enum err pictures_put(const struct draw_page *page, const char *const path[PICTURES_FILES],
                      const struct text *text)
{
    enum err (*const form[PICTURES_TEXT])(const struct draw_page *, struct text *) = {
        [PICTURES_SVG] = draw_svg, [PICTURES_HTML] = draw_html, [PICTURES_TRACE] = draw_trace};
    struct text drawn[PICTURES_TEXT] = {{0}};
    enum err err = ERR_OK;
    for (int i = 0; i < PICTURES_TEXT && err == ERR_OK; i++)
        if (path[i])
            err = form[i](page, &drawn[i]);
    for (int i = 0; i < PICTURES_FILES && err == ERR_OK; i++) {
        const struct text *t = i == PICTURES_TEXT ? text : &drawn[i];
        if (path[i] && (err = t->err) == ERR_OK)
            err = fs_put(path[i], t->s, t->len);
    }
    for (int i = 0; i < PICTURES_TEXT; i++)
        text_free(&drawn[i]);
    return err;
}

enum err pictures_cells_new(int64_t most, struct pictures_cells *c)
{
    *c = (struct pictures_cells){0};
    TRY(mem_new(most, sizeof *c->at, "a page's tables", &c->at));
    return mem_new(most, sizeof *c->word, "a page's tables", &c->word);
}

void pictures_cells_free(struct pictures_cells *c)
{
    mem_free(c->at);
    mem_free(c->word);
}

void pictures_word(struct pictures_cells *c, const char *word)
{
    c->at[c->n++] = word;
}

void pictures_numbers(struct pictures_cells *c, const char *formats, const double *value)
{
    for (int n; *formats; formats += n + (formats[n] == ' '), value++) {
        char format[16], *word = c->word[c->n];
        n = (int)strcspn(formats, " ");
        snprintf(format, sizeof format, "%.*s", n, formats);
        snprintf(word, PICTURES_CELL, isfinite(*value) ? format : "-", *value);
        pictures_word(c, word);
    }
}

void pictures_bytes(struct pictures_cells *c, double value)
{
    pictures_word(c, text_bytes((int64_t)value, c->word[c->n]));
}

struct draw_table pictures_table(struct pictures_cells *c, const char *title, int columns,
                                 const char *const *name)
{
    struct draw_table t = {.title = title, .rows = 1, .columns = columns, .cell = c->at + c->n};
    for (int i = 0; i < columns; i++)
        pictures_word(c, name[i]);
    return t;
}
