/* SPDX-License-Identifier: Apache-2.0
 *
 * Chapters "training", "truth", "measurement" and "generation" of plait.h.
 */
#include "run/api.h"

#include "run/bench.h"
#include "run/compare.h"
#include "run/files.h"
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

/* What the folder says, the caller's words over it, one data rank. */
static enum err open_folder(const struct plait_generate *a, struct model_folder *f)
{
    TRY(model_folder_open(f, a->run));
    TRY(files_apart_folder("generate", a->logits, a->run, &f->options));
    for (int i = 0; i < a->sets; i++)
        TRY(conf_set(&options_table, &f->options, a->set[i]));
    f->options.parallel.dp = 1; /* copies of the model write the same text */
    return ERR_OK;
}

int plait_generate(const struct plait_generate *a)
{
    struct plait_generate mine;
    struct model_folder f;
    enum err err = api_take("plait_generate", a, &mine, sizeof mine);
    if (err == ERR_OK)
        err = open_folder(&mine, &f);
    return (int)(err == ERR_OK ? run_generate(&f, &mine) : err);
}
