/* SPDX-License-Identifier: Apache-2.0
 *
 * The bar is composed in memory and leaves with one write, cut to the width of the terminal, so it
 * neither flickers nor wraps. The terminal's width is asked at each drawing: windows change. Colour
 * is one accent on the filled part of the bar, left out when NO_COLOR is set to anything
 * (no-color.org) or TERM is "dumb", which also turns the bar off.
 */
#include "cmd_progress.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum { LINE = 512, BAR_MAX = 40, BAR_MIN = 8 };

static const double bar_pause = 0.1, line_pause = 2.0; /* seconds between drawings */

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

void cmd_progress_open(struct cmd_progress *p)
{
    const char *term = getenv("TERM"), *no_color = getenv("NO_COLOR");
    bool able = term && *term && strcmp(term, "dumb") != 0;
    bool terminal = isatty(STDERR_FILENO) && able;
    *p = (struct cmd_progress){.terminal = terminal,
                           .color = terminal && !(no_color && *no_color)};
}

/* "12.3k", "1.23M": three digits. */
static void add_rate(struct line *l, double v)
{
    const char *unit = "";
    if (v >= 1e6) {
        v /= 1e6;
        unit = "M";
    } else if (v >= 1e4) {
        v /= 1e3;
        unit = "k";
    }
    add(l, "%.*f%s tok/s", *unit && v < 10 ? 2 : *unit && v < 100 ? 1 : 0, v, unit);
}

static void add_left(struct line *l, double s)
{
    if (!(s >= 0) || s > 8.64e8) /* not known yet */
        return;
    int64_t n = (int64_t)(s + 0.5);
    if (n >= 3600)
        add(l, "  %lld h %02lld m left", (long long)(n / 3600), (long long)(n / 60 % 60));
    else if (n >= 60)
        add(l, "  %lld m %02lld s left", (long long)(n / 60), (long long)(n % 60));
    else
        add(l, "  %lld s left", (long long)n);
}

static int terminal_width(void)
{
    struct winsize w;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 0)
        return w.ws_col;
    return 80;
}

static void draw_bar(struct cmd_progress *p, const struct plait_step *s)
{
    struct line left = {.n = 0}, right = {.n = 0}, all = {.n = 0};
    add(&left, "step %lld/%lld ", (long long)s->step, (long long)s->steps);
    add(&right, " loss %.4f  ", s->loss);
    add_rate(&right, s->tokens_per_s);
    add_left(&right, s->seconds_left);
    int width = terminal_width(), room = width - 1 - left.n - right.n - 2;
    int bar = room > BAR_MAX ? BAR_MAX : room;
    add(&all, "\r%.*s", width - 1, left.s);
    if (bar >= BAR_MIN) {
        int full = s->steps > 0 ? (int)((double)bar * (double)s->step / (double)s->steps) : 0;
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
    p->drawn = s->step < s->steps;
    if (!p->drawn)
        add(&all, "\n"); /* the last one stays */
    (void)!write(STDERR_FILENO, all.s, (size_t)all.n); /* a lost drawing is not worth an error */
}

static void print_step(const struct plait_step *s)
{
    struct line l = {.n = 0};
    add(&l, "step %lld/%lld  loss %.4f  norm %.3g  lr %.3g  ", (long long)s->step,
        (long long)s->steps, s->loss, s->grad_norm, s->lr);
    add_rate(&l, s->tokens_per_s);
    add_left(&l, s->seconds_left);
    fprintf(stderr, "%s\n", l.s);
}

void cmd_progress_step(struct cmd_progress *p, const struct plait_step *s)
{
    double t = now();
    bool edge = p->shown == 0 || s->step >= s->steps;
    if (!edge && t - p->shown < (p->terminal ? bar_pause : line_pause))
        return;
    p->shown = t;
    if (p->terminal)
        draw_bar(p, s);
    else
        print_step(s);
}

void cmd_progress_valid(struct cmd_progress *p, int64_t step, double loss, double bits_per_byte)
{
    cmd_progress_clear(p);
    fprintf(stderr, "valid at step %lld: loss %.4f", (long long)step, loss);
    if (bits_per_byte > 0 && isfinite(bits_per_byte))
        fprintf(stderr, ", %.4f bits a byte", bits_per_byte);
    fputc('\n', stderr);
}

void cmd_progress_clear(struct cmd_progress *p)
{
    if (p->drawn)
        (void)!write(STDERR_FILENO, "\r\033[K", 4);
    p->drawn = false;
}
