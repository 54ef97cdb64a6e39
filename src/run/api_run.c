/* SPDX-License-Identifier: Apache-2.0
 *
 * Chapters "training", "truth", "measurement" and "generation" of plait.h.
 */
#include "run/api.h"

#include "run/bench.h"
#include "run/compare.h"
#include "run/generate.h"
#include "run/train.h"

int plait_train(const struct plait_config *c, const struct plait_train *a)
{
    struct plait_train mine;
    enum err err = api_take("plait_train", a, &mine, sizeof mine);
    return (int)(err == ERR_OK ? run_train(&c->options, &mine) : err);
}

int plait_bench(const struct plait_config *c, const struct plait_bench *a)
{
    struct plait_bench mine;
    enum err err = api_take("plait_bench", a, &mine, sizeof mine);
    return (int)(err == ERR_OK ? run_bench(&c->options, &mine) : err);
}

int plait_compare(const struct plait_compare *a, char **out)
{
    struct plait_compare mine;
    struct text page = {0};
    enum err err = api_take("plait_compare", a, &mine, sizeof mine);
    if (err == ERR_OK)
        err = run_compare(&mine, &page);
    if (err == ERR_OK)
        err = text_done(&page, out);
    text_free(&page);
    return (int)err;
}

/* The run's own configuration, the caller's words over it, one data rank. */
static enum err read_run(const struct plait_generate *a, struct options *o)
{
    TRY(options_read_run(a->run, o));
    for (int i = 0; i < a->sets; i++)
        TRY(conf_set(&options_table, o, a->set[i]));
    o->parallel.dp = 1; /* copies of the model write the same text */
    return ERR_OK;
}

int plait_generate(const struct plait_generate *a)
{
    struct plait_generate mine;
    struct options o;
    enum err err = api_take("plait_generate", a, &mine, sizeof mine);
    if (err == ERR_OK)
        err = read_run(&mine, &o);
    return (int)(err == ERR_OK ? run_generate(&o, &mine) : err);
}
