/* SPDX-License-Identifier: Apache-2.0
 *
 * Weight gradients in the order of the microbatches: what the pass writes, that it changes no list
 * that is in order, and that after it every schedule of a shape has one order and can be proved.
 */
#include "sched/sched.h"

#include "base/mem.h"
#include "order.h"
#include "test.h"

static char *text_of(const struct sched *s)
{
    struct text t = {0};
    char *out = NULL;
    sched_print(s, &t);
    CHECK_OK(text_done(&t, &out));
    return out;
}

static void becomes(const char *text, const char *want)
{
    struct sched s = {0}, c = {0};
    CHECK_OK(sched_parse("test", text, (int64_t)strlen(text), &s));
    if (CHECK(sched_canonical(&s, false, &c) == ERR_OK)) {
        char *got = text_of(&c);
        CHECK_STR(got, want);
        mem_free(got);
    }
    sched_free(&s);
    sched_free(&c);
}

static void texts(void)
{
    /* in order: nothing moves */
    becomes("0F0,0F1,0B0,0B1\n", "0F0,0F1,0B0,0B1\n");
    becomes("0F0,0F1,0I0,0I1,0W0,0W1\n", "0F0,0F1,0I0,0I1,0W0,0W1\n");
    /* whole backwards that come early are split, and follow the one they waited for */
    becomes("0F0,0F1,0F2,0B2,0B1,0B0\n", "0F0,0F1,0F2,0I2,0I1,0B0,0W1,0W2\n");
    becomes("0F0,0F1,0F2,0F3,0B1,0B0,0B3,0B2\n",
            "0F0,0F1,0F2,0F3,0I1,0B0,0W1,0I3,0B2,0W3\n");
    /* halves: only W moves */
    becomes("0F0,0F1,0I0,0I1,0W1,0F2,0W0,0I2,0W2\n",
            "0F0,0F1,0I0,0I1,0F2,0W0,0W1,0I2,0W2\n");
    /* a pair stays one while its backward has its turn, and is written apart where not */
    becomes("0F0,0F1,(0F2;0B0)OV,0B1,0B2\n", "0F0,0F1,(0F2;0B0)OVERLAP_F_B,0B1,0B2\n");
    becomes("0F0,0F1,(0F2;0B1)OV,0B0,0B2\n", "0F0,0F1,0F2,0I1,0B0,0W1,0B2\n");
    /* stages have orders of their own */
    becomes("0F0,1F0,0F1,1F1,1B1,1B0,0B0,0B1\n", "0F0,1F0,0F1,1F1,1I1,1B0,1W1,0B0,0B1\n");
}

struct order { uint64_t hash; bool known; };

/* Lowered with all that training adds, proved, and put beside the others of its replicas. */
static void check_one(const struct sched *made, bool tied, struct order *want)
{
    struct sched c = {0}, low = {0};
    struct sched_report r = {0};
    struct order *o = &want[made->replicas];
    if (CHECK(sched_canonical(made, tied, &c) == ERR_OK) &&
        CHECK(sched_lower(&c, &(struct sched_lower_args){true, tied, .step = true}, &low) ==
              ERR_OK)) {
        enum err err = sched_check(&low, &r);
        test_check(err == ERR_OK, __FILE__, __LINE__, "%s p %d m %d v %d: %s", made->name, made->p,
                   made->m, made->v, err_text());
        test_check(!o->known || o->hash == order_hash(&low), __FILE__, __LINE__,
                   "%s p %d m %d v %d: another order", made->name, made->p, made->m, made->v);
        *o = (struct order){order_hash(&low), true};
    }
    sched_report_free(&r);
    sched_free(&low);
    sched_free(&c);
}

static void one_order(void)
{
    int made = 0;
    for (int p = 1; p <= 6; p++)
        for (int m = 1; m <= 3 * p; m += 1 + p / 4)
            for (int v = 1; v <= 3; v++) {
                struct order want[2][SCHED_MAX_REPLICAS + 1] = {0};
                for (int k = 0; k < sched_kind_count(); k++) {
                    struct sched s = {0};
                    struct sched_shape shape = {p, m, v, 0};
                    if (sched_make(sched_kind_at(k)->name, &shape, NULL, &s) != ERR_OK)
                        continue;
                    made++;
                    check_one(&s, false, want[0]);
                    if (!sched_ends_meet(&s))
                        check_one(&s, true, want[1]);
                    sched_free(&s);
                }
            }
    CHECK(made > 500);
}

/* Does each stage add its weight gradients in the order of the microbatches that go its way? */
static bool is_in_order(const struct sched *s)
{
    int *last;
    bool ordered = true;
    CHECK_OK(mem_new((int64_t)s->replicas * s->stages, sizeof *last, "microbatches", &last));
    for (int64_t i = 0; i < s->begin[s->p]; i++) {
        struct sched_instr in = s->instr[i];
        if (in.op != SCHED_B && in.op != SCHED_W)
            continue;
        int *at = &last[sched_stage_replica(s, in.stage, in.mb)];
        ordered = ordered && in.mb >= *at;
        *at = in.mb;
    }
    mem_free(last);
    return ordered;
}

/* A list is changed where its stages are not in order, and only there. */
static void unchanged_where_in_order(void)
{
    int turned = 0, ordered = 0;
    for (int k = 0; k < sched_kind_count(); k++)
        for (int v = 1; v <= 2; v++) {
            const char *name = sched_kind_at(k)->name;
            struct sched s = {0}, c = {0};
            if (sched_make(name, &(struct sched_shape){4, 10, v, 0}, NULL, &s) != ERR_OK)
                continue;
            CHECK_OK(sched_canonical(&s, false, &c));
            char *before = text_of(&s), *after = text_of(&c);
            bool same = strcmp(before, after) == 0, in_order = is_in_order(&s);
            *(in_order ? &ordered : &turned) += 1;
            CHECK(is_in_order(&c));
            test_check(same == in_order, __FILE__, __LINE__, "%s v %d %s", name, v,
                       same ? "is not changed" : "was in order");
            mem_free(before);
            mem_free(after);
            sched_free(&s);
            sched_free(&c);
        }
    CHECK(turned >= 2 && ordered > 10);
}

/* What waits is counted: the keep sets of all microbatches but the first. */
static void counted(void)
{
    struct sched s = {0}, c = {0};
    struct sched_report r = {0};
    CHECK_OK(sched_make("looped-bfs", &(struct sched_shape){2, 5, 2, 0}, NULL, &s));
    CHECK_OK(sched_canonical(&s, false, &c));
    CHECK_OK(sched_check(&c, &r));
    for (int h = 0; h < 4; h++) {
        CHECK_INT(r.grad_peak[h], 5);
        CHECK_INT(r.stage_peak[h], 5);
    }
    sched_report_free(&r);
    sched_free(&s);
    sched_free(&c);
}

/* Slices of a microbatch go backward from the last: that is their order. */
static void slices(void)
{
    struct sched s = {0}, c = {0};
    CHECK_OK(sched_make_sliced("seq1f1b", &(struct sched_shape){3, 4, 1, 0}, 3, &s));
    CHECK_OK(sched_canonical(&s, false, &c));
    char *before = text_of(&s), *after = text_of(&c);
    CHECK_STR(after, before);
    CHECK_INT(c.slices, 3);
    mem_free(before);
    mem_free(after);
    sched_free(&s);
    sched_free(&c);
}

static void refusals(void)
{
    struct sched s = {0}, low = {0}, c = {0};
    static const char turned[] = "0F0,0F1,0B0,0B1\n1F1,1F0,1B0,1B1\n";
    static const char broken[] = "0F0,0F1,0B0\n";
    CHECK_OK(sched_make("1f1b", &(struct sched_shape){2, 2, 1, 0}, NULL, &s));
    CHECK_OK(sched_lower(&s, &(struct sched_lower_args){0}, &low));
    CHECK_ERR(sched_canonical(&low, false, &c), ERR_INTERNAL, "lowered already");
    sched_free(&s);
    sched_free(&low);
    CHECK_OK(sched_make("zb-v", &(struct sched_shape){2, 4, 2, 0}, NULL, &s));
    CHECK_ERR(sched_canonical(&s, true, &c), ERR_CONFIG, "untie them, or use a schedule whose");
    sched_free(&s);
    CHECK_OK(sched_parse("test", turned, (int64_t)sizeof turned - 1, &s));
    CHECK_ERR(sched_canonical(&s, false, &c), ERR_CONFIG, "1F0 comes behind 1F1; write it before");
    sched_free(&s);
    CHECK_OK(sched_parse("test", broken, (int64_t)sizeof broken - 1, &s));
    CHECK_ERR(sched_canonical(&s, false, &c), ERR_CONFIG, "V1 (coverage)");
    sched_free(&s);
}

static const struct test_case cases[] = {
    {"texts", texts},
    {"one_order", one_order},
    {"unchanged_where_in_order", unchanged_where_in_order},
    {"counted", counted},
    {"slices", slices},
    {"refusals", refusals},
};
TEST_MAIN(cases)
