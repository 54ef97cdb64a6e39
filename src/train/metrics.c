/* SPDX-License-Identifier: Apache-2.0
 *
 * The lines of metrics.jsonl (docs/metrics.md): one for each step and one for each validation, each
 * a JSON object that leaves with one write. Numbers have all their digits; one that is not finite
 * is null, since JSON has no word for it. No memory is taken, as nowhere within a run.
 */
#include "train/train.h"

#include "base/fs_sys.h"
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct line { char s[METRICS_LINE]; int n; };

static void add(struct line *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void add(struct line *l, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    l->n += vsnprintf(l->s + l->n, (size_t)(METRICS_LINE - l->n), fmt, ap);
    va_end(ap);
    ENSURE(l->n < METRICS_LINE);
}

static void add_real(struct line *l, const char *name, double value)
{
    char number[32];
    add(l, ", \"%s\": %s", name, text_json_real(value, number));
}

/* The run ends behind the next step or two. */
static void keep(struct metrics_late *late, const struct line *l)
{
    if (late->n + l->n > (int)sizeof late->s)
        return;
    late->first = late->n == 0 ? l->n : late->first;
    memcpy(late->s + late->n, l->s, (size_t)l->n);
    late->n += l->n;
}

/* Both kinds of line end alike: when, and how long the run had taken. */
static enum err put(struct train_rank *r, struct line *l)
{
    bool broken = r->late.n > 0;
    r->late.begin = broken ? r->late.begin : fs_sys_end(r->metrics, "metrics.jsonl");
    add(l, ", \"time\": %.6f, \"elapsed\": %.6f}\n", log_date(), log_now() - r->job->began);
    enum err err = broken ? ERR_OK : fs_append(r->metrics, "metrics.jsonl", l->s, l->n);
    if (broken || err == ERR_STORAGE)
        keep(&r->late, l);
    return err;
}

/* Is the file whole up to where the first late line was to stand? What a disk took of that and
 * could not give back (fs_append) goes now. */
static bool is_whole(const struct train_rank *r)
{
    int64_t end = fs_sys_end(r->metrics, "metrics.jsonl"), begin = r->late.begin;
    bool part = begin >= 0 && end > begin && end - begin < r->late.first;
    return !part || fs_sys_cut(r->metrics, "metrics.jsonl", begin) == 0;
}

/* What fails is said already, and by a resume that lacks the lines. */
void metrics_again(struct train_rank *r)
{
    if (r->late.n > 0 && is_whole(r))
        (void)fs_append(r->metrics, "metrics.jsonl", r->late.s, r->late.n);
    r->late.n = 0;
}

enum err metrics_step(struct train_rank *r, const struct plait_step *p)
{
    struct line l = {.n = 0};
    add(&l, "{\"step\": %lld", (long long)p->step);
    add_real(&l, "loss", p->loss);
    add_real(&l, "grad_norm", p->grad_norm);
    add_real(&l, "lr", p->lr);
    add(&l, ", \"tokens\": %lld", (long long)p->tokens);
    add_real(&l, "tokens_per_s", p->tokens_per_s);
    add_real(&l, "seconds", p->seconds);
    return put(r, &l);
}

enum err metrics_valid(struct train_rank *r, const double *bits_per_byte)
{
    struct line l = {.n = 0};
    add(&l, "{\"step\": %lld", (long long)r->step);
    add_real(&l, "valid_loss", r->valid_loss);
    add(&l, ", \"valid_tokens\": %lld", (long long)r->valid_tokens);
    if (bits_per_byte)
        add_real(&l, "bits_per_byte", *bits_per_byte);
    return put(r, &l);
}
