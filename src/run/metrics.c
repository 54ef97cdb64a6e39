/* SPDX-License-Identifier: Apache-2.0
 *
 * The lines of metrics.jsonl (docs/metrics.md): one for each step and one for each validation, each
 * a JSON object that leaves with one write. Numbers have all their digits; one that is not finite
 * is null, since JSON has no word for it. No memory is taken, as nowhere within a run.
 */
#include "run/train.h"

#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

enum { LINE = 512 }; /* ten fields of less than 50 bytes */
struct line { char s[LINE]; int n; };

static void add(struct line *l, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void add(struct line *l, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    l->n += vsnprintf(l->s + l->n, (size_t)(LINE - l->n), fmt, ap);
    va_end(ap);
    ENSURE(l->n < LINE);
}

static void add_real(struct line *l, const char *name, double value)
{
    char number[32];
    add(l, ", \"%s\": %s", name, text_json_real(value, number));
}

/* Both kinds of line end alike: when, and how long the run had taken. */
static enum err put(const struct train_rank *r, struct line *l)
{
    add(l, ", \"time\": %.6f, \"elapsed\": %.6f}\n", log_date(), log_now() - r->job->began);
    return fs_append(r->metrics, "metrics.jsonl", l->s, l->n);
}

enum err metrics_step(const struct train_rank *r, const struct plait_step *p)
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

enum err metrics_valid(const struct train_rank *r, const double *bits_per_byte)
{
    struct line l = {.n = 0};
    add(&l, "{\"step\": %lld", (long long)r->step);
    add_real(&l, "valid_loss", r->valid_loss);
    add(&l, ", \"valid_tokens\": %lld", (long long)r->valid_tokens);
    if (bits_per_byte)
        add_real(&l, "bits_per_byte", *bits_per_byte);
    return put(r, &l);
}
