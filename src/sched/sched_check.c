/* SPDX-License-Identifier: Apache-2.0
 *
 * Proof that a schedule can be run: the rules of enum sched_rule, one after the other, each of
 * which leans on those before it. A schedule may come from a file, so nothing about it is believed;
 * every error names rule, rank, place in the rank's list and instruction. V4 walks the computing
 * alone under its data edges, V7 the whole program under its messages: the first asks whether the
 * order makes sense at all, the second whether the communication still lets it end.
 *
 * Time and memory are linear in instructions. A file of one cell that names stage 16383 and
 * microbatch 65533 is refused before anything of that size is allocated.
 */
#include "sched/sched_check.h"

#include "base/mem.h"
#include <xxhash.h>

static const struct {
    enum sched_rule rule;
    const char *name;
    enum err (*prove)(struct sched_checker *c);
    enum { COMPUTE, REPORTED, LOWERED } of; /* of every list, also if nothing is reported; of every
                                               list; of lowered ones */
} rules[] = {
    {SCHED_RULE_COVERAGE, "coverage", sched_check_coverage, COMPUTE},
    {SCHED_RULE_PLACEMENT, "placement", sched_check_placement, COMPUTE},
    {SCHED_RULE_ORDER, "order", sched_check_order, COMPUTE},
    {SCHED_RULE_CYCLE, "cycle", sched_check_cycle, COMPUTE},
    {SCHED_RULE_PAIRING, "pairing", sched_check_pairing, LOWERED},
    {SCHED_RULE_CHANNEL, "channel", sched_check_channel, LOWERED},
    {SCHED_RULE_DEADLOCK, "deadlock", sched_check_deadlock, LOWERED},
    {SCHED_RULE_LEDGER, "ledger", sched_check_ledger, REPORTED},
    {SCHED_RULE_REDUCTION, "reduction", sched_check_reduction, COMPUTE},
    {SCHED_RULE_STEP, "step", sched_check_step, LOWERED},
    {SCHED_RULE_WEIGHTS, "weights", sched_check_weights, COMPUTE},
};
enum { RULE_COUNT = sizeof rules / sizeof *rules };

static enum err checker_open(struct sched_checker *c)
{
    const struct sched *s = c->s;
    int64_t n = s->begin[s->p];
    if (n < c->units)
        FAIL(ERR_CONFIG,
             "schedule %s breaks V1 (coverage): %d stage%s x %d microbatch%s need %lld forwards, "
             "and there %s %lld instruction%s in all; add the missing ones",
             s->name, s->stages, text_plural(s->stages, "s"), s->m, text_plural(s->m, "es"),
             (long long)c->units, n == 1 ? "is" : "are", (long long)n, text_plural(n, "s"));
    for (int rank = 0; rank < s->p; rank++) {
        int64_t count = s->begin[rank + 1] - s->begin[rank];
        if (count < 1 || count >= UINT32_MAX)
            FAIL(ERR_CONFIG,
                 "schedule %s breaks V1 (coverage): rank %d has %lld instructions; use 1 to %u a "
                 "rank",
                 s->name, rank, (long long)count, UINT32_MAX - 1);
    }
    int ops = s->lowered ? SCHED_UNIT_OPS : SCHED_COMPUTE_OPS;
    for (int op = 0; op < ops; op++)
        TRY(mem_new(c->units, sizeof *c->at[op], "schedule check", &c->at[op]));
    int64_t stage_replicas = (int64_t)s->replicas * s->stages;
    TRY(mem_new(stage_replicas, sizeof *c->reduce, "schedule check", &c->reduce));
    TRY(mem_new(stage_replicas, sizeof *c->merge, "schedule check", &c->merge));
    TRY(mem_new(s->p, sizeof *c->step, "schedule check", &c->step));
    TRY(mem_new(s->p, sizeof *c->norm, "schedule check", &c->norm));
    TRY(sched_channels_make(s, &c->channels));
    return ERR_OK;
}

static void checker_close(struct sched_checker *c)
{
    for (int op = 0; op < SCHED_UNIT_OPS; op++)
        mem_free(c->at[op]);
    mem_free(c->reduce);
    mem_free(c->merge);
    mem_free(c->step);
    mem_free(c->norm);
    sched_channels_free(&c->channels);
}

static enum err prove(struct sched_checker *c)
{
    c->rule = SCHED_RULE_COVERAGE;
    c->rule_name = rules[0].name;
    TRY(checker_open(c));
    for (int i = 0; i < RULE_COUNT; i++) {
        c->rule = rules[i].rule;
        c->rule_name = rules[i].name;
        if (rules[i].of == COMPUTE || (c->report && (c->s->lowered || rules[i].of == REPORTED)))
            TRY(rules[i].prove(c));
    }
    return ERR_OK;
}

enum err sched_check_compute(const struct sched *s)
{
    struct sched_checker c = {.s = s, .units = (int64_t)s->stages * s->m};
    enum err err = prove(&c);
    checker_close(&c);
    return err;
}

/* Little-endian bytes, so that hashes agree between machines. */
static uint8_t *put(uint8_t *to, uint64_t value, int width)
{
    for (int i = 0; i < width; i++)
        *to++ = (uint8_t)(value >> (8 * i));
    return to;
}

static enum err hash_program(const struct sched *s, uint64_t *out)
{
    uint8_t *bytes, *to;
    int64_t n = s->begin[s->p], stage_replicas = (int64_t)s->replicas * s->stages;
    const int head[] = {s->p, s->m, s->v, s->stages, s->replicas, s->slices, s->forward_only,
                        s->lowered};
    TRY(mem_new(32 + 2 * stage_replicas + s->m + 8 * ((int64_t)s->p + 1) + 8 * n, 1,
                "schedule hash", &bytes));
    to = bytes;
    for (size_t i = 0; i < sizeof head / sizeof *head; i++)
        to = put(to, (uint64_t)head[i], 4);
    for (int64_t h = 0; h < stage_replicas; h++)
        to = put(to, s->place[h], 2);
    for (int mb = 0; mb < s->m; mb++)
        to = put(to, s->way[mb], 1);
    for (int rank = 0; rank <= s->p; rank++)
        to = put(to, (uint64_t)s->begin[rank], 8);
    for (int64_t i = 0; i < n; i++) {
        struct sched_instr in = s->instr[i];
        to = put(to, in.op | (uint64_t)in.seg << 8 | (uint64_t)in.stage << 16 |
                         (uint64_t)in.mb << 32 | (uint64_t)in.peer << 48, 8);
    }
    *out = XXH3_64bits(bytes, (size_t)(to - bytes));
    mem_free(bytes);
    return ERR_OK;
}

static enum err fill_report(struct sched_checker *c)
{
    struct sched_report *r = c->report;
    int64_t stage_replicas = (int64_t)c->s->replicas * c->s->stages;
    TRY(mem_new(c->s->p, sizeof *r->peak, "schedule peaks", &r->peak));
    TRY(mem_new(c->s->p, sizeof *r->full_peak, "schedule peaks", &r->full_peak));
    TRY(mem_new(stage_replicas, sizeof *r->stage_peak, "schedule peaks", &r->stage_peak));
    TRY(mem_new(stage_replicas, sizeof *r->save_peak, "schedule peaks", &r->save_peak));
    TRY(mem_new(stage_replicas, sizeof *r->grad_peak, "schedule peaks", &r->grad_peak));
    enum err err = prove(c);
    r->rule = err == ERR_CONFIG ? c->rule : 0;
    TRY(err);
    if (c->s->lowered)
        TRY(sched_check_buffers(c));
    return hash_program(c->s, &r->hash);
}

enum err sched_check(struct sched *s, struct sched_report *out)
{
    *out = (struct sched_report){0};
    struct sched_checker c = {.s = s, .report = out, .units = (int64_t)s->stages * s->m};
    enum err err = fill_report(&c);
    checker_close(&c);
    s->checked = err == ERR_OK;
    return err;
}

void sched_report_free(struct sched_report *r)
{
    mem_free(r->peak);
    mem_free(r->full_peak);
    mem_free(r->stage_peak);
    mem_free(r->save_peak);
    mem_free(r->grad_peak);
    *r = (struct sched_report){0};
}
