/* SPDX-License-Identifier: Apache-2.0
 *
 * Chapters "training", "truth", "measurement", "generation" and "export" of plait.h.
 */
#include "api/api.h"

#include "comm/comm.h"
#include "study/bench.h"
#include "study/compare.h"
#include "generate/export.h"
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
    enum err err = api_take("plait_train", a, &t.call, sizeof t.call);
    return (int)(err == ERR_OK ? comm_files_alone(t.o.run.io_timeout, train, &t) : err);
}

int plait_bench(const struct plait_config *c, const struct plait_bench *a)
{
    struct plait_bench mine;
    struct options o = c->options;
    enum err err = api_take("plait_bench", a, &mine, sizeof mine);
    if (err == ERR_OK)
        err = init_take(&o);
    return (int)(err == ERR_OK ? bench_run(&o, &mine) : err);
}

int plait_compare(const struct plait_compare *a, char **out)
{
    struct plait_compare mine;
    struct text page = {0};
    enum err err = api_take("plait_compare", a, &mine, sizeof mine);
    if (err == ERR_OK)
        err = compare_run(&mine, &page);
    return api_give(err, &page, out);
}

/* What the folder says, the caller's words over it, one data rank. How ranks communicate is not of
 * the weights: processes of a launcher by MPI, otherwise threads. */
static enum err open_folder(const struct plait_generate *a, struct model_folder *f)
{
    TRY(model_folder_open(f, a->run));
    TRY(files_apart_folder("generate", a->logits, a->run, &f->options));
    f->options.train.transport =
        comm_mpi_launched_size() > 1 && comm_built(COMM_MPI) ? COMM_MPI : COMM_THREAD;
    for (int i = 0; i < a->sets; i++)
        TRY(conf_set(&options_table, &f->options, a->set[i]));
    f->options.parallel.dp = 1; /* copies of the model write the same text */
    return ERR_OK;
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

int plait_generate(const struct plait_generate *a)
{
    struct generate_call g;
    enum err err = api_take("plait_generate", a, &g.call, sizeof g.call);
    if (err == ERR_OK)
        err = open_folder(&g.call, &g.folder);
    if (err == ERR_OK)
        err = comm_files_alone(g.folder.options.run.io_timeout, generate, &g);
    return (int)err;
}

int plait_export(const struct plait_export *a, char **out)
{
    struct plait_export mine;
    struct text page = {0};
    enum err err = api_take("plait_export", a, &mine, sizeof mine);
    if (err == ERR_OK)
        err = export_run(&mine, &page);
    return api_give(err, &page, out);
}
