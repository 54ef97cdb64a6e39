/* SPDX-License-Identifier: Apache-2.0
 *
 * The conditions between keys, in the order in which a user can act on them; the first that fails
 * ends the check. A rule says what stands against what, with the keys by their whole names; what
 * would do instead is found by trying (advice.c), and takes the place of what follows "; use", or
 * comes behind a message that says nothing to do (no "; ").
 *
 * Legal though unusual, and therefore not refused: fewer microbatches than pipeline ranks, a short
 * last microbatch, layers that do not divide by the stages, fewer kv heads than tensor ranks.
 * Refused though harmless: settings that would have no effect, since whoever set them expects one.
 * Keys that only wait for more ranks or another device (options_idle) are not: one file serves
 * both, and the report says what waits.
 */
#include "check/rules.h"

#include "base/fs.h"
#include "base/mem.h"
#include "ckpt/state.h"
#include "comm/comm.h"
#include "data/data.h"
#include "device/device.h"
#include "folder/folder.h"
#include "folder/init.h"
#include "sched/sched.h"
#include <stdio.h>
#include <string.h>

/* ---- optimizer and machine ---- */

static enum err check_rate(const struct options *o)
{
    if (o->optim.lr_min > o->optim.lr)
        REFUSE(o, "{optim.lr_min} is above {optim.lr}, and the rate never rises after the warm-up; "
                  "use lr_min from 0 to %g", o->optim.lr);
    if (o->optim.schedule == OPTIONS_CONSTANT && o->optim.lr_min > 0)
        REFUSE(o, "{optim.lr_min} has no effect with {optim.schedule}; use lr_min 0, or schedule "
                  "linear, cosine or wsd");
    return ERR_OK;
}

static enum err check_final_decay(const struct options *o)
{
    if (o->optim.schedule != OPTIONS_WSD && o->optim.decay_steps > 0)
        REFUSE(o, "{optim.decay_steps} has no effect with {optim.schedule}; use decay_steps 0, or "
                  "schedule wsd");
    if (o->optim.schedule == OPTIONS_WSD && o->optim.decay_steps == 0)
        REFUSE(o, "{optim.decay_steps} with {optim.schedule}: it ends in a decay; use decay_steps "
                  "from 1 to {train.steps}, or schedule constant");
    return ERR_OK;
}

static enum err check_shared(const struct options *o)
{
    if (o->train.device != OPTIONS_CUDA)
        REFUSE(o, "{train.share_gpus} has no effect with {train.device}, which has no GPU; use "
                  "train.share_gpus false, or train.device cuda");
    if (o->train.transport != COMM_THREAD)
        REFUSE(o, "{train.share_gpus} with {train.transport}: only threads of one process can "
                  "share a GPU; use train.share_gpus false, or train.transport thread");
    if (!comm_would_copy(COMM_THREAD, (int)num_min(options_ranks(o), INT32_MAX)))
        REFUSE(o, "{train.share_gpus} with the %lld ranks of parallel.tp, pp and dp: at most 8 can "
                  "share a GPU; use fewer ranks, or train.share_gpus false",
               (long long)options_ranks(o));
    if (o->env.no_copies && options_ranks(o) > 1)
        REFUSE(o, "{train.share_gpus} with PLAIT_COPIES off: ranks that share a GPU can do nothing "
                  "but copy; use train.share_gpus false, or unset PLAIT_COPIES");
    return ERR_OK;
}

static enum err check_machine(const struct options *o)
{
    long long ranks = (long long)options_ranks(o);
    if (o->train.share_gpus)
        TRY(check_shared(o));
    if (!dev_built(options_device(o)))
        REFUSE(o, "{train.device} is not built into this program, as `plait info` says; use cpu or "
                  "ref");
    if (o->train.device == OPTIONS_REF && o->train.dtype != OPTIONS_F32)
        REFUSE(o, "{train.dtype} has no effect with {train.device}, which computes in f64; use "
                  "dtype f32 (the default), or device cpu");
    if (o->train.device == OPTIONS_NULL && ranks > 1)
        REFUSE(o, "{train.device} has no memory that ranks could send, and the layout has %lld "
                  "ranks; use parallel.tp, pp and dp 1, or `plait check` and `plait sim`, which "
                  "need no device", ranks);
    if (options_device(o) == DEV_CUDA && ranks > 1 && !comm_nccl_built())
        REFUSE(o, "{train.device} with %lld ranks needs NCCL, which is not built into this "
                  "program; use parallel.tp, pp and dp 1, or build plait where nccl.h and libnccl "
                  "are installed", ranks);
    if (options_device(o) == DEV_CUDA && ranks > 1)
        TRY(comm_nccl_fits());
    if (o->train.graph == OPTIONS_GRAPH_ON && options_unrecorded(o))
        REFUSE(o, "{train.graph}: no step can be recorded, for %s; use train.graph auto or off, or "
                  "change that key", options_unrecorded(o));
    if (!comm_built((enum comm_kind)o->train.transport))
        REFUSE(o, "{train.transport} is not built into this program; use thread, or build plait "
                  "where Open MPI is installed");
    return options_device(o) == DEV_CUDA ? env_check(&o->env, ranks > 1) : ERR_OK;
}

/* ---- model and layout ---- */

enum err check_vocab(const struct options *o, int64_t *vocab)
{
    struct data_set set;
    struct model a;
    options_arch(o, &a);
    *vocab = a.vocab;
    if (!model_traits(a.kind)->text || a.vocab > 0)
        return ERR_OK;
    if (!o->data.train[0])
        FAIL(ERR_CONFIG, "model.vocab is 0, which takes the vocabulary of data.train, and "
                         "data.train is empty; name a token file, or set vocab (257 for bytes, "
                         "50257 for the GPT-2 tokenizer)");
    struct data_want want = {.seq = o->model.seq, .vocab = INT64_MAX};
    enum err err = data_open(o->data.train, &want, false, &set);
    if (err != ERR_OK)
        return options_under_key(err, "data.train");
    *vocab = set.vocab;
    data_close(&set);
    return ERR_OK;
}

/* Rules that need one, before it is known: a size that no layout is refused for. */
enum { VOCAB_UNKNOWN = 50257 };

static bool has_vocab(const struct options *o)
{
    return o->model.vocab > 0 || o->data.train[0];
}

static enum err check_model(const struct options *o, struct model *model)
{
    int64_t head = (int64_t)conf_find(&options_table, "model.head_dim")->max;
    int64_t ffn = (int64_t)conf_find(&options_table, "model.ffn")->max;
    options_arch(o, model);
    if (!model_traits(model->kind)->text)
        return model_check(model);
    if (o->model.head_dim == 0 && o->model.hidden % o->model.heads != 0)
        REFUSE(o, "{model.hidden} is not a multiple of {model.heads}, which {model.head_dim} "
                  "(hidden / heads) needs; use a multiple");
    if (model->head_dim < 1 || model->head_dim > head) /* what 0 stands for has the row's range */
        REFUSE(o, "{model.hidden} over {model.heads} makes heads of %lld channels, and they have 1 "
                  "to %lld; use others", (long long)model->head_dim, (long long)head);
    if (model->ffn > ffn)
        REFUSE(o, "{model.hidden} makes %lld channels of {model.ffn}, and at most %lld are kept; "
                  "use fewer", (long long)model->ffn, (long long)ffn);
    model->vocab = VOCAB_UNKNOWN;
    if (has_vocab(o))
        TRY(check_vocab(o, &model->vocab));
    return model_check(model);
}

enum err check_ranks(const struct options *o, int ranks)
{
    int64_t need = options_ranks(o);
    int size[AXIS_COUNT];
    struct mesh mesh;
    options_axes(o, size);
    enum err err = mesh_make(size, &mesh);
    if (err == ERR_CONFIG)
        REFUSE(o, "{parallel.tp}, {parallel.pp}, {parallel.dp}: %s", err_bare(err_text()));
    if (err != ERR_OK || ranks == 0 || ranks == need)
        return err;
    REFUSE(o, "ranks started: %d, but {parallel.tp} x {parallel.pp} x {parallel.dp} needs %lld; "
              "start %lld", ranks, (long long)need, (long long)need);
}

enum err check_launch(const struct options *o, int *ranks)
{
    int launched = comm_mpi_launched_size();
    int64_t need = options_ranks(o);
    if (o->train.transport == COMM_THREAD && launched > 1)
        REFUSE(o, "a launcher started %d processes, and with {train.transport} each of them would "
                  "do the whole work; set train.transport to mpi, or start one process", launched);
    if (o->train.transport != COMM_MPI)
        return ERR_OK;
    if (launched == 0 && need > 1)
        REFUSE(o, "{train.transport} takes its ranks from a launcher, and there is none; start "
                  "with mpirun -n %lld, or use train.transport thread", (long long)need);
    if (launched > 0)
        *ranks = launched;
    return ERR_OK;
}

static enum err check_stages(const struct options *o, const struct model *model, bool *was_cut)
{
    int64_t stages = o->parallel.pp * options_chunks(o);
    struct model_split split;
    struct model_stage *cut;
    options_split(o, &split);
    TRY(model_check_split(model, &split));
    const struct sched_kind *kind = sched_kind_find(o->parallel.schedule);
    bool needs = kind && kind->chunks > 0, named = o->parallel.split.n > 0;
    if (!named && stages > model->layers)
        REFUSE(o, "{parallel.pp} x parallel.chunks %lld%s makes %lld stages, and each needs one of "
                  "%s %lld; use fewer stages", (long long)options_chunks(o),
               needs ? " (of {parallel.schedule})" : "", (long long)stages,
               model_traits(model->kind)->blocks, (long long)model->layers);
    TRY(mem_new(named ? o->parallel.split.n + 1 : stages, sizeof *cut, "the pipeline stages",
                &cut));
    *was_cut = true;
    enum err err = named ? split_cut(o, model, cut) : model_cut(model, (int)stages, NULL, cut);
    mem_free(cut);
    return err;
}

/* ---- the step and its schedule ---- */

static enum err check_step(const struct options *o)
{
    int64_t samples, tokens;
    if (o->train.batch % o->parallel.dp != 0)
        REFUSE(o, "{train.batch} is not a multiple of {parallel.dp}; use a multiple");
    samples = options_samples(o);
    if (o->parallel.microbatch > samples)
        REFUSE(o, "{parallel.microbatch} is more than the %lld sample%s that {train.batch} gives "
                  "each of {parallel.dp}; use microbatch from 1 to %lld", (long long)samples,
               text_plural(samples, "s"), (long long)samples);
    if (options_microbatches(o) > SCHED_MAX_MB)
        REFUSE(o, "{parallel.microbatch} cuts the %lld samples of a step into %lld microbatches "
                  "({train.batch} over {parallel.dp}), and at most %d are scheduled; use "
                  "microbatch %lld or more", (long long)samples,
               (long long)options_microbatches(o), SCHED_MAX_MB,
               (long long)num_ceil_div(samples, SCHED_MAX_MB));
    if (!num_mul(o->train.steps, o->train.batch, &tokens) ||
        !num_mul(tokens, model_traits(o->model.kind)->text ? o->model.seq : 1, &tokens))
        REFUSE(o, "{train.steps} x {train.batch} x {model.seq} tokens are beyond 64 bits; use "
                  "fewer steps");
    if (o->train.save_every > 0 && o->train.save_keep == 0)
        REFUSE(o, "train.save_keep is 0, which saves no checkpoint, and {train.save_every} asks "
                  "for some; use another of the two");
    return ERR_OK;
}

static enum err check_best(const struct options *o)
{
    if (o->train.save_best && o->train.valid_every == 0)
        REFUSE(o, "{train.save_best} goes by validations, and {train.valid_every} makes none "
                  "before the end; use valid_every from 1 to {train.steps}, or save_best false");
    if (o->train.save_best && o->train.save_keep == 0)
        REFUSE(o, "train.save_keep is 0, which saves no checkpoint, and {train.save_best} asks for "
                  "one; use another of the two");
    return ERR_OK;
}

/* Units of a schedule that is generated here. */
static int64_t units_made(const struct options *o)
{
    bool search = o->parallel.costs[0] || o->parallel.memory_limit != 0;
    return search ? CHECK_SEARCH_UNITS : CHECK_MAKE_UNITS;
}

/* The schedule's shape, or one with fewer microbatches when generating it would take longer than an
 * answer may. What schedules demand of m are remainders by p or 2 and lower bounds of a few p or
 * of a group: so the smaller m has the same remainder by 2 p and is not below 2 p, nor a group. */
static struct sched_shape probe_shape(const struct options *o)
{
    struct sched_shape shape = schedule_shape(o);
    int most = (int)num_max(4 * shape.p, units_made(o) / num_max(1, shape.p * shape.v));
    most = (int)num_max(most, shape.group + 2 * shape.p);
    if (shape.m > most)
        shape.m = most - (most - shape.m % (2 * shape.p)) % (2 * shape.p);
    return shape;
}

/* Makes the list, and holds against it what other keys ask. */
static enum err make_list(const struct options *o, const struct sched_shape *shape,
                          struct check_facts *f)
{
    const struct sched *made = &f->schedule.list;
    TRY(schedule_make(o, shape, &f->schedule));
    if (sched_ends_meet(made) && f->model.tied && o->train.canonical_accumulation)
        REFUSE(o, "{train.canonical_accumulation} with {model.tied}: {parallel.schedule} with "
                  "{parallel.pp} has head and embedding on one rank, where both add to one sum in "
                  "the order of the schedule; use tied false, or schedule 1f1b with pp 2 or more");
    bool segments = conf_word_index(o->train.recompute) >= OPTIONS_RECOMPUTE_SQRT;
    const char *why = segments ? sched_not_whole(made) : NULL;
    if (why)
        REFUSE(o, "train.recompute by segments (every:K, sqrt) with {parallel.schedule}: its "
                  "backwards %s; use full, or a schedule of whole backwards, as 1f1b", why);
    return ERR_OK;
}

static enum err check_name(const char *name)
{
    struct text meant = {0};
    if (sched_kind_find(name))
        return ERR_OK;
    if (fs_exists(name))
        FAIL(ERR_CONFIG, "parallel.schedule is \"%.200s\", which is a file and not the name of a "
                         "schedule; write file:%.200s", name, name);
    sched_kind_meant_add(name, &meant);
    enum err err = meant.err;
    if (err == ERR_OK)
        err = ERR(ERR_CONFIG, "parallel.schedule is \"%.64s\", which is not the name of a schedule "
                              "(`plait help schedules` lists them, file:PATH reads one)%s", name,
                  meant.s ? meant.s : "; use one of them");
    text_free(&meant);
    return err;
}

/* With the file of costs, if there is one. */
static enum err check_schedule(const struct options *o, struct check_facts *f)
{
    struct sched_shape whole = schedule_shape(o), shape = probe_shape(o);
    TRY(schedule_costs(o, &f->schedule));
    f->made = true;
    if (schedule_path(o->parallel.schedule))
        return make_list(o, &whole, f);
    TRY(check_name(o->parallel.schedule));
    f->made = (int64_t)shape.p * shape.v * shape.m <= units_made(o);
    if (!f->made)
        return ERR_OK; /* thousands of pipeline ranks: the report says so */
    TRY(make_list(o, &shape, f));
    if (shape.m != whole.m)
        sched_free(&f->schedule.list);
    return ERR_OK;
}

/* ---- files ---- */

static enum err check_file(const char *key, const char *path, const struct model *model,
                           struct check_data *out, char tokenizer[32])
{
    struct data_set set;
    struct data_want want;
    options_want(model, &want);
    enum err err = data_open(path, &want, false, &set);
    if (err != ERR_OK)
        return options_under_key(err, key);
    *out = (struct check_data){set.count, set.vocab, set.samples, set.hash};
    memcpy(tokenizer, set.tokenizer, sizeof set.tokenizer);
    data_close(&set);
    return ERR_OK;
}

static enum err check_files(const struct options *o, struct check_facts *f)
{
    char train[32] = "", valid[32] = "";
    if (o->data.train[0])
        TRY(check_file("data.train", o->data.train, &f->model, &f->train, train));
    if (o->data.valid[0])
        TRY(check_file("data.valid", o->data.valid, &f->model, &f->valid, valid));
    if (train[0] && valid[0] && strcmp(train, valid) != 0)
        FAIL(ERR_TOKEN, "data.valid was made by tokenizer %.31s and data.train by %.31s; prepare "
                        "both texts with one tokenizer", valid, train);
    const char *made = train[0] ? train : valid;
    bool read = o->data.tokenizer[0] && model_traits(f->model.kind)->text;
    if (read && made[0] && strcmp(o->data.tokenizer, made) != 0)
        FAIL(ERR_TOKEN, "data.tokenizer is %.31s and %s was made by tokenizer %.31s; prepare the "
                        "text with that tokenizer, or leave data.tokenizer empty",
             o->data.tokenizer, train[0] ? "data.train" : "data.valid", made);
    snprintf(f->tokenizer, sizeof f->tokenizer, "%s", made);
    return ERR_OK;
}

/* Is the checkpoint that run.resume names one? auto takes what there is. */
static enum err check_resume(const struct options *o)
{
    struct state_index x;
    char dir[FS_PATH];
    if (o->run.resume[0] && o->train.device == OPTIONS_NULL)
        FAIL(ERR_CONFIG, "run.resume is %s and train.device is null, which holds no numbers to go "
                         "on with; use another train.device, or leave run.resume empty",
             o->run.resume);
    if (!o->run.resume[0] || strcmp(o->run.resume, "auto") == 0)
        return ERR_OK;
    int64_t step;
    TRY(folder_resumed(o, dir, &step)); /* names the key */
    enum err err = options_under_key(folder_others(state_index_open(&x, dir), dir), "run.resume");
    if (err == ERR_OK)
        state_index_close(&x);
    return err;
}

/* Are the weights that model.init names those of the model and the data? */
static enum err check_init(const struct options *o, const struct check_facts *f)
{
    struct weights w;
    if (o->model.init[0] && o->train.device == OPTIONS_NULL)
        FAIL(ERR_CONFIG, "model.init is %s and train.device is null, which holds no numbers to "
                         "begin with; use another train.device, or leave model.init empty",
             o->model.init);
    if (!init_begins(o))
        return ERR_OK;
    TRY(init_open(o, &f->model, f->tokenizer, &w));
    weights_close(&w);
    return ERR_OK;
}

/* What every run needs, once its data are named: without, it is a plan of something to come. */
static enum err check_named(const struct options *o)
{
    if (!o->data.train[0])
        return ERR_OK;
    if (!o->data.valid[0] && (o->train.valid_every > 0 || o->train.valid_batches > 0))
        REFUSE(o, "{train.valid_every} and {train.valid_batches} ask for validation, and "
                  "data.valid is empty; name a token file, or set both to 0");
    if (!o->run.dir[0])
        FAIL(ERR_CONFIG, "run.dir is empty, and a run needs a folder; use run.dir=run");
    return ERR_OK;
}

#define RULE(call)                                                                                 \
    do {                                                                                           \
        f->rule++;                                                                                 \
        TRY(call);                                                                                 \
    } while (0)

enum err check_rules(const struct options *o, int ranks, struct check_facts *f)
{
    f->rule = 0;
    RULE(check_rate(o));
    RULE(check_final_decay(o));
    RULE(check_machine(o));
    RULE(check_model(o, &f->model));
    RULE(check_ranks(o, ranks));
    f->rule_of_ranks = f->rule;
    RULE(check_stages(o, &f->model, &f->cut));
    RULE(check_step(o));
    RULE(check_best(o));
    RULE(setup_check_bytes(o, &f->model));
    RULE(check_schedule(o, f));
    RULE(check_files(o, f));
    RULE(check_named(o));
    RULE(check_resume(o));
    RULE(check_init(o, f));
    if (!has_vocab(o)) /* last: layouts are tried out before there is a file */
        RULE(check_vocab(o, &f->model.vocab));
    return ERR_OK;
}

void check_free(struct check_facts *f)
{
    schedule_free(&f->schedule);
    text_free(&f->resume);
}
