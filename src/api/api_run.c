/* SPDX-License-Identifier: Apache-2.0
 *
 * Chapters "training", "truth", "measurement", "generation" and "export" of plait.h.
 */
#include "api/api.h"

#include "comm/comm.h"
#include "study/bench.h"
#include "study/compare.h"
#include "folder/files.h"
#include "generate/generate.h"
#include "folder/init.h"
#include "train/train.h"

struct train_call {
    struct options o;
    struct plait_train call;
};

static enum err train(void *arg)
{
    struct train_call *t = arg;
    TRY(init_take(&t->o));
    return train_run(&t->o, &t->call);
}

int plait_train(const struct plait_config *c, const struct plait_train *a)
{
    struct train_call t = {.o = c->options};
    TRY(api_take("plait_train", a, &t.call, sizeof t.call));
    return (int)comm_files_alone(t.o.run.io_timeout, train, &t);
}

int plait_bench(const struct plait_config *c, const struct plait_bench *a)
{
    struct plait_bench mine;
    struct options o = c->options;
    TRY(api_take("plait_bench", a, &mine, sizeof mine));
    TRY(init_take(&o));
    return (int)bench_run(&o, &mine);
}

int plait_compare(const struct plait_compare *a, char **out)
{
    struct plait_compare mine;
    struct text page = {0};
    TRY(api_take("plait_compare", a, &mine, sizeof mine));
    return api_give(compare_run(&mine, &page), &page, out);
}

struct generate_call {
    struct model_folder folder;
    struct plait_generate call;
};

static enum err generate(void *arg)
{
    const struct generate_call *g = arg;
    return generate_run(&g->folder, &g->call);
}

/* What the folder says, the caller's words over it, one data rank. How ranks communicate is not of
 * the weights: processes of a launcher by MPI, otherwise threads. */
int plait_generate(const struct plait_generate *a)
{
    struct generate_call g;
    struct options *o = &g.folder.options;
    TRY(api_take("plait_generate", a, &g.call, sizeof g.call));
    TRY(model_folder_open(&g.folder, g.call.run));
    TRY(files_apart_folder("generate", g.call.logits, g.call.run, o));
    o->train.transport =
        comm_mpi_launched_size() > 1 && comm_built(COMM_MPI) ? COMM_MPI : COMM_THREAD;
    for (int i = 0; i < g.call.sets; i++)
        TRY(conf_set(&options_table, o, g.call.set[i]));
    o->parallel.dp = 1; /* copies of the model write the same text */
    return (int)comm_files_alone(o->run.io_timeout, generate, &g);
}

int plait_export(const struct plait_export *a, char **out)
{
    struct plait_export mine;
    struct text page = {0};
    TRY(api_take("plait_export", a, &mine, sizeof mine));
    return api_give(export_run(&mine, &page), &page, out);
}
