/* SPDX-License-Identifier: Apache-2.0
 *
 * One function a decision. A reason names the key, or the variable, that would have it otherwise.
 */
#include "setup/setup.h"

#include "comm/comm.h"

static bool on_gpus(const struct setup *s)
{
    return s->o->train.device == OPTIONS_CUDA;
}

static struct decision graph(const struct setup *s)
{
    const char *why = options_unrecorded(s->o);
    struct decision d = {.value = s->training && !why, .told = s->training && on_gpus(s)};
    d.words = why ? "steps are not recorded"
                  : "step 2 is recorded, and it and those behind it are replays";
    d.reason = why ? why : s->o->train.graph == OPTIONS_GRAPH_ON ? "train.graph is on"
                                                                 : "train.graph is auto";
    return d;
}
_Static_assert((int)OPTIONS_RECORDED == 2, "graph's words");

static struct decision overlap(const struct setup *s)
{
    const struct options *o = s->o;
    struct decision d = {.value = options_tp_rows(o, s->tp_no_p2p), .told = o->parallel.tp > 1};
    const char *idle = options_idle(o, "parallel.tp_rows");
    d.words = d.value ? "tensor ranks overlap communication with GEMMs"
                      : "tensor ranks communicate between GEMMs, without overlap";
    d.reason = idle                                      ? idle
               : d.value == 0                            ? "their GPUs do not reach each other"
               : o->parallel.tp_overlap == OPTIONS_TP_ON ? "parallel.tp_overlap is on"
                                                 : "parallel.tp_overlap is auto, and GPUs copy";
    return d;
}

static struct decision moves(const struct setup *s)
{
    const struct options *o = s->o;
    bool threads = comm_would_copy((enum comm_kind)o->train.transport, 2);
    struct decision d = {.told = on_gpus(s) && s->mesh.world > 1};
    d.value = d.told && threads && !o->env.no_copies && !s->no_p2p;
    d.words = !d.told                ? "nothing between GPUs"
              : o->train.share_gpus ? "between ranks of one GPU by copies, for which hosts wait"
              : d.value             ? "between GPUs by copies"
                                    : "between GPUs by NCCL";
    d.reason = !d.told             ? "there are no two of them"
               : o->train.share_gpus ? "train.share_gpus is true"
               : !threads          ? "train.transport is mpi"
               : o->env.no_copies  ? "PLAIT_COPIES is off"
               : s->no_p2p         ? "some do not reach each other"
                                   : "ranks are threads of one process";
    return d;
}

static struct decision zero(const struct setup *s)
{
    struct decision d = {.value = s->training ? options_shards(s->o) : 1};
    d.words = d.value > 1 ? "data ranks share master weights, moments and their update"
                          : "each data rank updates all weights";
    d.reason = s->o->parallel.dp == 1 ? "parallel.dp is 1"
                                      : d.value > 1 ? "parallel.zero is 1" : "parallel.zero is 0";
    return d;
}

static struct decision cut(const struct setup *s)
{
    struct decision d = {.told = s->training && s->sched.stages > 1};
    bool named = s->training && s->o->parallel.split.n > 0;
    for (int i = 1; i < s->sched.stages; i++) {
        int64_t at = s->cut[i].first, block = model_layer(&s->model, at).block;
        d.value += block >= 0 && block == model_layer(&s->model, at - 1).block;
    }
    d.words = d.value ? "stages begin within layers, too" : "stages begin with whole layers";
    d.reason = named                   ? "parallel.split names them"
               : !d.told               ? "it is a plan of one stage, or of forwards alone"
               : s->sched.replicas > 1 ? "each stage has two ranks"
               : d.value ? "half layers take 1 % or more off the costliest rank, or the step"
                         : "half layers take less than 1 % off the costliest rank, or the step";
    return d;
}

static struct decision recompute(const struct setup *s)
{
    struct decision d = {.value = sched_has(&s->sched, SCHED_R)};
    int key = conf_word_index(s->o->train.recompute), most = 1;
    for (int i = 0; s->recompute && i < s->sched.stages; i++)
        most = (int)num_max(most, s->segments[i].n);
    d.words = most > 1  ? "inputs of a stage's segments are kept, and each is run again by itself"
              : d.value ? "a stage's input is kept, and its forward is run again"
                        : "activations are kept until the backward";
    d.told = key != OPTIONS_RECOMPUTE_NONE && !d.value;
    d.reason = d.told ? "each backward follows its forward at once, and no stage has two segments"
               : key == OPTIONS_RECOMPUTE_FULL  ? "train.recompute is full"
               : key == OPTIONS_RECOMPUTE_SQRT  ? "train.recompute is sqrt"
               : key == OPTIONS_RECOMPUTE_EVERY ? "train.recompute is every so many blocks"
               : d.value                        ? "its file says so"
                                                : "train.recompute is none";
    return d;
}

static struct decision copies(const struct setup *s)
{
    const struct options *o = s->o;
    bool beside = o->train.save_async && (o->train.save_every > 0 || o->train.save_best);
    struct decision d = {.value = s->training && options_checkpoints(o) && (beside || on_gpus(s))};
    d.told = d.value;
    d.words = d.value ? "of the state for checkpoints, in the host's memory" : "none of the state";
    d.reason = !options_checkpoints(o) ? "no checkpoint is saved"
               : on_gpus(s)            ? "train.device is cuda"
               : d.value               ? "train.save_async is true"
               : o->train.save_async   ? "checkpoints are saved at the end alone"
                                       : "train.save_async is false";
    return d;
}

static struct decision attention(const struct setup *s)
{
    static const struct { const char *words, *reason; } of[] = {
        [DEV_GRAD_AUTO] = {"its gradient the faster way by shape", "no other is asked for"},
        [DEV_GRAD_HOPPER] = {"its gradient by kernels for Hopper, where they can",
                             "PLAIT_ATTN_GRAD is hopper"},
        [DEV_GRAD_CUDNN] = {"its gradient by cuDNN, where it can", "PLAIT_ATTN_GRAD is cudnn"},
        [DEV_GRAD_OWN] = {"its gradient by plain kernels", "PLAIT_ATTN_GRAD is own"},
    };
    enum dev_attn_grad way = on_gpus(s) ? s->o->env.attn_grad : DEV_GRAD_AUTO;
    return (struct decision){.value = way, .words = of[way].words, .reason = of[way].reason,
                             .told = s->training && way != DEV_GRAD_AUTO};
}

static const struct { const char *name; struct decision (*of)(const struct setup *s); } rows[] = {
    [DECIDED_GRAPH] = {"graph", graph}, [DECIDED_OVERLAP] = {"overlap", overlap},
    [DECIDED_MOVES] = {"moves", moves}, [DECIDED_ZERO] = {"zero", zero},
    [DECIDED_CUT] = {"cut", cut}, [DECIDED_RECOMPUTE] = {"recompute", recompute},
    [DECIDED_COPIES] = {"copies", copies}, [DECIDED_ATTENTION] = {"attn", attention},
};

const char *decision_name(enum decided which)
{
    return rows[which].name;
}

void decision_make(const struct setup *s, struct decision out[DECISIONS])
{
    for (int i = 0; i < DECISIONS; i++)
        out[i] = rows[i].of(s);
}
