/* SPDX-License-Identifier: Apache-2.0
 *
 * The bar is composed in memory and leaves with one write, cut to the width of the terminal, so it
 * neither flickers nor wraps. The terminal's width is asked at each drawing: windows change. Colour
 * is one accent on the filled part of the bar, left out when NO_COLOR is set to anything
 * (no-color.org) or TERM is "dumb", which also turns the bar off.
 *
 * Rate and time left are of one mean: over the last CMD_PACES steps or, where steps are shorter
 * than half a second, over as many as make ten seconds. The first step, in which all is opened and
 * chosen, counts until there is another.
 */
#include "cmd.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum { LINE = 512, BAR_MAX = 40, BAR_MIN = 8 };

/* Seconds: between drawings; between lines within a step; of a step before microbatches are shown;
 * of the steps that make one pace. */
static const double bar_pause = 0.1, line_pause = 2.0, within_pause = 10.0, long_step = 3.0;
static const double pace_seconds = 0.5;

struct line { char s[LINE]; int n; };

static void add(struct line *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void add(struct line *l, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(l->s + l->n, (size_t)(LINE - l->n), fmt, ap);
    va_end(ap);
    if (n > 0)
        l->n = l->n + n < LINE ? l->n + n : LINE - 1;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static bool on_terminal(void)
{
    const char *term = getenv("TERM");
    return isatty(STDERR_FILENO) && term && *term && strcmp(term, "dumb") != 0;
}

void cmd_progress_open(struct cmd_progress *p, int64_t log_every)
{
    const char *no_color = getenv("NO_COLOR");
    bool terminal = on_terminal();
    *p = (struct cmd_progress){.fd = STDERR_FILENO, .clock = now, .log_every = log_every,
                               .terminal = terminal, .color = terminal && !(no_color && *no_color)};
}

/* A lost drawing is not worth an error. */
static void put(const struct cmd_progress *p, const struct line *l)
{
    (void)!write(p->fd, l->s, (size_t)l->n);
}

/* ---- the text of a run ---- */

/* "12.3k tok/s  5 s left" of the last step: three digits. */
static void add_pace(const struct cmd_progress *p, struct line *l)
{
    const struct plait_step *s = &p->last;
    struct cmd_pace all = {0, 0};
    for (int i = 0; i < p->paces; i++) {
        all.steps += p->pace[i].steps;
        all.seconds += p->pace[i].seconds;
    }
    double each = all.seconds / (double)all.steps; /* a step, on the mean */
    double left = each * (double)(s->steps - s->step);
    double rate = (double)s->tokens / (double)s->step / each;
    const char *unit = rate >= 1e6 ? "M" : rate >= 1e4 ? "k" : "";
    rate /= rate >= 1e6 ? 1e6 : rate >= 1e4 ? 1e3 : 1;
    add(l, "%.*f%s %s/s", *unit && rate < 10 ? 2 : *unit && rate < 100 ? 1 : 0, rate, unit,
        s->rows ? "rows" : "tok");
    if (!(left >= 0) || left > 8.64e8) /* not known yet */
        return;
    int64_t n = (int64_t)(left + 0.5);
    if (n >= 3600)
        add(l, "  %lld h %02lld m left", (long long)(n / 3600), (long long)(n / 60 % 60));
    else if (n >= 60)
        add(l, "  %lld m %02lld s left", (long long)(n / 60), (long long)(n % 60));
    else
        add(l, "  %lld s left", (long long)n);
}

int cmd_columns(int fd, int unknown)
{
    struct winsize w;
    return ioctl(fd, TIOCGWINSZ, &w) == 0 && w.ws_col > 0 ? w.ws_col : unknown;
}

/* m NULL: between steps. */
static void draw_bar(struct cmd_progress *p, const struct plait_microbatch *m)
{
    const struct plait_step *s = &p->last;
    struct line left = {.n = 0}, right = {.n = 0}, all = {.n = 0};
    int64_t steps = m ? m->steps : s->steps;
    add(&left, "step %lld/%lld ", (long long)(m ? m->step : s->step), (long long)steps);
    if (m)
        add(&left, "microbatch %lld of %lld%s ", (long long)m->microbatch,
            (long long)m->microbatches, m->backward ? " backward" : "");
    if (s->step > 0) {
        add(&right, " loss %.4f  ", s->loss);
        add_pace(p, &right);
    }
    int width = cmd_columns(p->fd, 80), room = width - 1 - left.n - right.n - 2;
    int bar = room > BAR_MAX ? BAR_MAX : room;
    add(&all, "\r%.*s", width - 1, left.s);
    if (bar >= BAR_MIN) {
        int full = steps > 0 ? (int)((double)bar * (double)s->step / (double)steps) : 0;
        char cells[BAR_MAX + 1];
        memset(cells, '#', BAR_MAX);
        add(&all, "[%s%.*s%s", p->color ? "\033[36m" : "", full, cells, p->color ? "\033[0m" : "");
        memset(cells, '.', BAR_MAX);
        add(&all, "%.*s]", bar - full, cells);
    } else {
        bar = -2;
    }
    int rest = width - 1 - left.n - bar - 2;
    add(&all, "%.*s\033[K", rest > 0 ? rest : 0, right.s);
    p->drawn = m || s->step < s->steps;
    if (!p->drawn)
        add(&all, "\n"); /* the last one stays */
    put(p, &all);
}

void cmd_progress_step(void *arg, const struct plait_step *s)
{
    struct cmd_progress *p = arg;
    double t = p->clock();
    bool edge = p->last.step == 0 || s->step >= s->steps;
    bool due = p->log_every > 0 && s->step % p->log_every == 0;
    p->last = *s;
    if (s->step <= 2)
        p->paces = 0; /* the first step tells until there is another */
    bool joins = p->paces > 0 && p->pace[p->paces - 1].seconds < pace_seconds;
    if (!joins && p->paces == CMD_PACES)
        memmove(p->pace, p->pace + 1, (size_t)--p->paces * sizeof *p->pace);
    if (!joins)
        p->pace[p->paces++] = (struct cmd_pace){0, 0};
    p->pace[p->paces - 1].steps++;
    p->pace[p->paces - 1].seconds += s->seconds;
    if (due || (!p->terminal && (edge || (p->log_every == 0 && t - p->shown >= line_pause)))) {
        struct line l = {.n = 0};
        cmd_progress_clear(p);
        add(&l, "step %lld/%lld  loss %.4f  norm %.3g  lr %.3g  ", (long long)s->step,
            (long long)s->steps, s->loss, s->grad_norm, s->lr);
        add_pace(p, &l);
        add(&l, "\n");
        put(p, &l);
        p->shown = t;
    }
    if (p->terminal && (edge || due || t - p->shown >= bar_pause)) {
        draw_bar(p, NULL);
        p->shown = t;
    }
}

void cmd_progress_microbatch(void *arg, const struct plait_microbatch *m)
{
    struct cmd_progress *p = arg;
    double t = p->clock();
    struct line l = {.n = 0};
    if (p->under_way != m->step) {
        p->under_way = m->step;
        p->began = t;
    }
    if (t - p->began < long_step || (!p->terminal && p->log_every > 0) ||
        t - p->shown < (p->terminal ? bar_pause : within_pause))
        return;
    p->shown = t;
    if (p->terminal) {
        draw_bar(p, m);
        return;
    }
    add(&l, "step %lld/%lld  microbatch %lld of %lld%s\n", (long long)m->step,
        (long long)m->steps, (long long)m->microbatch, (long long)m->microbatches,
        m->backward ? " backward" : "");
    put(p, &l);
}

void cmd_progress_valid(void *arg, int64_t step, double loss, double bits_per_byte)
{
    struct cmd_progress *p = arg;
    struct line l = {.n = 0};
    cmd_progress_clear(p);
    add(&l, "valid at step %lld: loss %.4f", (long long)step, isnan(loss) ? (double)NAN : loss);
    if (bits_per_byte > 0 && isfinite(bits_per_byte))
        add(&l, ", %.4f bits a byte", bits_per_byte);
    add(&l, "\n");
    put(p, &l);
}

void cmd_progress_clear(struct cmd_progress *p)
{
    if (p->drawn)
        (void)!write(p->fd, "\r\033[K", 4);
    p->drawn = false;
}

/* ---- a bar of other work ---- */

void cmd_bar_open(struct cmd_bar *b, const char *unit)
{
    *b = (struct cmd_bar){.terminal = on_terminal(), .start = now(), .unit = unit};
}

void cmd_bar_draw(void *arg, int64_t done, int64_t all)
{
    static const char full[] = "##############################";
    static const char rest[] = "..............................";
    struct cmd_bar *b = arg;
    double t = now(), part = (double)done / (double)all, seconds = t - b->start;
    if (!b->terminal || (done < all && t - b->shown < bar_pause))
        return;
    int width = (int)sizeof full - 1, cells = (int)(part * width);
    b->shown = t;
    b->drawn = true;
    fprintf(stderr, "\r[%.*s%.*s] %3d %%  %.0f %s  %.0f s left\033[K", cells, full, width - cells,
            rest, (int)(100.0 * part), seconds > 0.0 ? 1e-6 * (double)done / seconds : 0.0, b->unit,
            part > 0.0 ? seconds * (1.0 - part) / part : 0.0);
}

void cmd_bar_clear(struct cmd_bar *b)
{
    if (b->drawn)
        fputs("\r\033[K", stderr);
    b->drawn = false;
}
