/* SPDX-License-Identifier: Apache-2.0
 *
 * The one error of all rules: where a schedule breaks which.
 */
#include "sched/sched_check.h"

#include <stdarg.h>
#include <stdio.h>

enum err sched_broken(const struct sched_checker *c, int rank, int64_t i, const char *fmt, ...)
{
    char detail[2048], cell[SCHED_CELL];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(detail, sizeof detail, fmt, ap);
    va_end(ap);
    FAIL(ERR_CONFIG, "schedule %s breaks V%d (%s) at rank %d, place %lld, %s: %s", c->s->name,
         (int)c->rule, c->rule_name, rank, (long long)(i - c->s->begin[rank]),
         sched_cell_at(c->s, i, cell), detail);
}
