/* SPDX-License-Identifier: Apache-2.0
 *
 * The option table, reading the configuration of a run, and what follows from options by arithmetic
 * alone. To add a key: a field in struct options, a row here, its conditions with other keys in
 * rules.c, and `make golden`, which writes docs/configuration.md anew.
 *
 * Ranges are those in which the arithmetic of the engine is exact; what is sensible is narrower
 * and not judged here.
 */
#include "config/options.h"

#include "base/thread.h"
#include "base/fs.h"
#include "comm/comm.h"
#include "config/model_keys.h"
#include "sched/sched.h"
#include <stdarg.h>
#include <stdio.h>

/* A key is its field's name, so no row can set another's. */
#define ROW(field, type, ...)                              \
    {#field, type, offsetof(struct options, field),        \
     sizeof(((struct options *)0)->field), __VA_ARGS__}
#define WHOLE(field, preset, min, max, help) ROW(field, CONF_INT, preset, min, max, NULL, help)
#define REAL(field, preset, min, max, help) ROW(field, CONF_REAL, preset, min, max, NULL, help)
#define SWITCH(field, preset, help) ROW(field, CONF_BOOL, preset, 0, 0, NULL, help)
#define WORD(field, preset, words, help) ROW(field, CONF_WORD, preset, 0, 0, words, help)
#define TEXT(field, preset, help) ROW(field, CONF_STRING, preset, 0, 0, NULL, help)

static const struct conf_row rows[] = {
    WORD(model.kind, "gpt", "gpt|llama|mlp",
     "architecture. gpt: GPT-2; llama: RMSNorm, RoPE and SwiGLU; mlp: a classifier of feature "
     "vectors, linear layers with ReLU between them (docs/mlp.md)"),
    WHOLE(model.layers, "4", 1, 10000, "transformer blocks"),
    WHOLE(model.hidden, "128", 1, 1 << 24, "hidden size: width of the residual stream"),
    WHOLE(model.heads, "4", 1, 65536, "attention query heads"),
    WHOLE(model.kv_heads, "0", 0, 65536, "attention key and value heads; 0: as many as heads"),
    WHOLE(model.head_dim, "0", 0, 65536, "head dimension; 0: hidden / heads"),
    WHOLE(model.ffn, "0", 0, 1 << 24,
     "intermediate size of the feed-forward layers; 0: 4 x hidden for gpt, 8/3 x hidden rounded up "
     "to a multiple of 32 for llama"),
    WHOLE(model.vocab, "0", 0, 1 << 24, "vocabulary size [tokens]; 0: that of the file data.train"),
    WHOLE(model.seq, "128", 1, 1 << 24, "sequence length [tokens]"),
    ROW(model.widths, CONF_INTS, "[]", 1, 1 << 24, NULL,
     "mlp: input features, then outputs of each linear layer, the last of which are the classes, "
     "as [512, 1024, 256, 10]; kind mlp needs it, the others ignore it"),
    SWITCH(model.tied, "true", "the output projection (LM head) is the token embedding"),
    REAL(model.dropout, "0", 0, 0.9,
     "dropout probability in training, on the embedding's output, on attention probabilities and "
     "on the output of each attention and MLP; 0: none"),
    REAL(model.norm_eps, "1e-5", 1e-12, 1, "added to the variance in norms"),
    REAL(model.rope_theta, "10000", 1, 1e12, "base of the rotary frequencies, RoPE (llama)"),
    REAL(model.init_std, "0.02", 0, 10,
     "standard deviation of the random initial weights, divided by sqrt(2 x layers) in the output "
     "projections of attention and MLP; kind mlp ignores it and has He's initialization"),
    TEXT(model.init, "",
     "load the initial weights from a folder: a run, a checkpoint, or a Hugging Face model "
     "(config.json); unset keys of the model come from there, too (docs/from-weights.md); empty: "
     "random weights from train.seed"),

    WHOLE(parallel.tp, "1", 1, 4096, "tensor parallel size: ranks that each layer is split over"),
    WHOLE(parallel.pp, "1", 1, 4096,
     "pipeline parallel size: ranks that the list of layers is split over"),
    WHOLE(parallel.dp, "1", 1, 1 << 20,
     "data parallel size: replicas that the batch is split over"),
    WORD(parallel.zero, "0", "0|1",
     "ZeRO stage. 0: each data rank has the whole optimizer state. 1: master weights, moments and "
     "the update are sharded over dp, and in bf16 a step sends 6 bytes a parameter in place of 8; "
     "the weights are those of 0 up to rounding (of a clipped norm; of NCCL's sums over 3 ranks "
     "or more). Stages 2 and 3 do not exist yet"),
    SWITCH(parallel.sp, "false",
     "sequence parallelism: norms, dropout and residuals are split over the tensor ranks, too"),
    WORD(parallel.tp_overlap, "auto", "auto|off|on",
     "overlap tensor-parallel communication with GEMMs, which are split into chunks of rows for "
     "it. auto: on for cuda with transport thread, tp up to 8 and peer-to-peer copies, else off; "
     "on: over NCCL, too. Bitwise equal to off on cpu and ref, on cuda up to rounding"),
    WHOLE(parallel.tp_rows, "2048", 1, 1 << 30,
     "tp_overlap: fewest rows (samples of a microbatch x sequence length) of a chunk; GEMMs with "
     "fewer than 2 x tp_rows (with sp: tp x tp_rows) are not split; with sp and peer-to-peer "
     "copies there are tp chunks, each one rank's rows"),
    TEXT(parallel.schedule, "1f1b",
     "pipeline schedule; `plait help schedules` lists them, file:PATH reads one"),
    WHOLE(parallel.chunks, "0", 0, 1024,
     "pipeline stages per rank (virtual stages, model chunks); 0: what the schedule needs: 2 for "
     "V-shaped ones, else 1; interleaved and looped-bfs have a smaller bubble with 2 or more"),
    ROW(parallel.split, CONF_NAMES, "[]", 0, 0, NULL,
     "layers at which the second, third, ... pipeline stage begins, in the model's order, as "
     "[layers.2.attn, layers.3.mlp]; blocks count from 0, layers.2 is layers.2.attn; []: cut so "
     "that the slowest stage or rank costs least. `plait generate` takes no notice of it"),
    WHOLE(parallel.group, "0", 0, SCHED_MAX_MB,
     "schedule interleaved: size of a microbatch group, run back to back by one stage before the "
     "rank's next stage has its turn; 0: pp"),
    TEXT(parallel.costs, "",
     "file of measured times of the stages, from `plait compare --costs`: zb-1p, zb-2p and zb-v "
     "are built for them, and every schedule's bubble is predicted from them; empty: those three "
     "are built for equal times, the bubble is predicted from FLOPs"),
    REAL(parallel.memory_limit, "0", 0, 1e6,
     "zb-1p, zb-2p, zb-v: most activation sets that a rank holds at once (a count, not bytes), "
     "one per microbatch and stage, freed by its weight gradient; at least 1 (zb-v: 2); 0: pp for "
     "zb-1p, else 2 x pp"),
    WHOLE(parallel.microbatch, "1", 1, 1 << 20,
     "microbatch size [samples]; the last one of a step may be smaller"),

    WHOLE(train.steps, "100", 1, 4294967295.0, "optimizer steps"),
    WHOLE(train.batch, "8", 1, 1 << 24,
     "global batch size: samples of an optimizer step over all ranks"),
    WHOLE(train.seed, "1", 0, 9007199254740992.0,
     "seed of the random initial weights, the order of samples and dropout"),
    WORD(train.dtype, "f32", "f32|bf16",
     "dtype of activations and of weights in GEMMs; accumulation, gradients, master weights and "
     "moments are f32"),
    WORD(train.device, "cpu", "cpu|ref|null|cuda",
     "cpu; cuda: one GPU a rank; ref: slow f64 reference that the others are tested against; "
     "null: computes nothing and holds no numbers, one rank alone"),
    WORD(train.transport, "thread", "thread|mpi",
     "thread: all ranks are threads of one process; mpi: one process a rank, started by mpirun or "
     "srun. GPUs communicate by peer-to-peer copies with thread where they reach each other, else "
     "by NCCL"),
    SWITCH(train.share_gpus, "false",
     "cuda, for tests: put all ranks (up to 8 threads of one process) on the first visible GPU, "
     "which must hold the memory of all; no NCCL, no CUDA graphs, slower than one rank"),
    WHOLE(train.threads, "0", 0, DEV_MAX_THREADS,
     "compute threads per rank; 0: cores that its process may use / all ranks; on cpu each takes "
     "4 MiB of scratch memory"),
    WHOLE(train.valid_every, "0", 0, 4294967295.0,
     "validate every so many steps and at the end; 0, or more than train.steps: at the end only"),
    WHOLE(train.valid_batches, "0", 0, 1 << 24, "batches of one validation; 0: the whole file"),
    WHOLE(train.log_every, "0", 0, 4294967295.0,
     "print a line of progress every so many steps (on a terminal above the progress bar); 0: on a "
     "terminal the bar alone, else a line every 2 seconds"),
    REAL(train.hang_timeout, "60", 0, 86400,
     "time without a sign of life from a rank [seconds] after which the run ends with exit code "
     "20 and names that rank; 0: wait for ever"),
    SWITCH(train.profile, "false",
     "at the end, print the time of each operation, on the rank that writes the log"),
    WHOLE(train.save_every, "0", 0, 4294967295.0,
     "save a checkpoint every so many steps, and where the run ends: at the last step, a signal, "
     "the time limit, a file error, or, with the state before it, a loss or gradient that is not "
     "finite; 0: only where it ends (docs/checkpoints.md)"),
    WHOLE(train.save_keep, "2", 0, 1000000,
     "keep the newest so many checkpoints; 0: save none but the final weights, which a run cannot "
     "resume from"),
    SWITCH(train.save_best, "false",
     "also save and keep the checkpoint with the lowest validation loss; needs train.valid_every"),
    SWITCH(train.save_async, "true",
     "asynchronous checkpoints: copy the state to host memory and write it while the next steps "
     "run; false: wait until it is written"),
    REAL(train.time_limit, "0", 0, 31536000,
     "save a checkpoint and end with exit code 75 once this start of the run has taken so long "
     "[seconds]; 0: never"),
    SWITCH(train.trace, "false",
     "record when each action of the schedule ran, for `plait compare`; also --trace"),
    WORD(train.recompute, "none", "none|full|sqrt|every:K",
     "activation recomputation (checkpointing), bitwise equal. full: keep only the input of each "
     "stage; every:K: only the input of every K blocks; sqrt: K is the square root of the blocks "
     "of a stage; none: keep all, or what a schedule file says"),
    WORD(train.graph, "auto", "auto|off|on",
     "cuda: capture one step as a CUDA graph and replay it for the later steps, bitwise equal "
     "with less CPU work. auto: if the other keys allow it (the start-up table names the one that "
     "does not); on: refuse to start if one does not; off: launch each kernel"),
    SWITCH(train.canonical_accumulation, "false",
     "accumulate weight gradients in the order of the microbatches, so that schedules with the "
     "same stages and replicas are bitwise equal; costs memory if a schedule has another order of "
     "backward passes; also --canonical-accumulation"),
    SWITCH(train.deterministic, "false",
     "cuda: runs of one layout are bitwise equal: no autotuning of GEMMs, and the attention "
     "backward adds in a fixed order; slower; cpu and ref always are"),

    REAL(optim.lr, "3e-4", 0, 100, "peak learning rate of AdamW"),
    REAL(optim.lr_min, "0", 0, 100,
     "learning rate (not a ratio) that the decay falls to; reached one step after the last, which "
     "is still a little above it"),
    REAL(optim.beta1, "0.9", 0, 0.999999, "decay of the first moment"),
    REAL(optim.beta2, "0.95", 0, 0.999999999, "decay of the second moment"),
    REAL(optim.eps, "1e-8", 1e-30, 1, "added to the square root of the second moment"),
    REAL(optim.decay, "0.1", 0, 100,
     "weight decay (AdamW) of matrices, embeddings among them; biases and norms have none"),
    REAL(optim.clip, "1", 0, 1e9, "clip the global norm of the gradient to this; 0: no clipping"),
    WHOLE(optim.warmup, "0", 0, 4294967295.0,
     "linear warm-up [steps]; docs/learning-rate.md has the formula. If longer than train.steps, "
     "the whole run is warm-up"),
    WORD(optim.schedule, "cosine", "constant|linear|cosine|wsd",
     "learning-rate schedule after the warm-up; wsd: constant, then a final linear decay"),
    WHOLE(optim.decay_steps, "0", 0, 4294967295.0,
     "wsd: length of the final decay [steps], 1 or more; one longer than the warm-up leaves takes "
     "all of that; the other schedules refuse it"),

    SWITCH(optim.decay_keep, "false",
     "on resume with another train.steps: true: the decay ends at the step first planned, and "
     "later steps have lr_min; false: the decay is planned anew, to the new end"),

    TEXT(data.train, "",
     "file to train on, made by `plait data prepare` (tokens) or, for kind mlp, `plait data "
     "import` (rows with classes); every run needs one"),
    TEXT(data.valid, "",
     "file to validate on, made as that of data.train is; empty: no validation"),
    TEXT(data.tokenizer, "",
     "name of the tokenizer that made the token files; files of another one are refused; empty: "
     "the one named in data.train. It is kept with the weights"),

    TEXT(run.dir, "run",
     "output folder for configuration, metrics, checkpoints and weights; a new run is refused "
     "where one stands already (docs/run-folder.md)"),
    SWITCH(run.save, "true",
     "write checkpoints and the final weights; false: write neither, for benchmarks"),
    TEXT(run.resume, "",
     "checkpoint to resume from. auto: the latest complete one in run.dir, or a new run if there "
     "is none; best: the one with the lowest validation loss; a step: the one of that step; a "
     "folder: that checkpoint; empty: a new run"),
    SWITCH(run.resume_insist, "false",
     "resume even if data.train, data.valid, data.tokenizer or train.seed are not those of the "
     "checkpoint"),
    SWITCH(run.takeover, "false",
     "use run.dir even if another run holds it that may still live, as on another host; set it "
     "only if you know that run is dead (docs/run-folder.md)"),
    REAL(run.io_timeout, "1800", 0, 604800,
     "time [seconds] after which a file operation that has not returned ends the run with exit "
     "code 17; 0: never. While it waits, train.hang_timeout does not apply to its rank"),
};

/* What other programs call these values. */
static const struct conf_hint hints[] = {
    {"train.dtype", "float32|fp32|float|single|torch.float32|tf32|32|32-true", "f32", NULL},
    {"train.dtype", "bfloat16|bfloat|float16|fp16|f16|half|mixed|amp|torch.bfloat16|torch.float16|"
     "16|16-mixed|16-true|auto", "bf16", NULL},
    {"train.dtype", "float64|fp64|f64|double|torch.float64|64|64-true", NULL,
     "train.device ref computes in f64, with dtype f32"},
    {"train.dtype", "float8|fp8|f8|int8|int4|8|4|mxfp8|nvfp4|fp4", NULL,
     "there is none of 8 bits or fewer"},
    {"train.device", "gpu|gpus|nvidia", "cuda", NULL},
    {"train.device", "host|x86", "cpu", NULL},
    {"train.device", "amd|hip|rocm|mps|metal|npu|tpu|xpu", NULL,
     "of GPUs and the like there are NVIDIA's alone, as cuda"},
    {"train.transport", "nccl", NULL,
     "between GPUs (train.device cuda) messages and sums go by NCCL, or by copies, with either"},
    {"train.transport", "gloo|ompi|openmpi|mpich|process|processes|slurm|srun|mpirun", "mpi", NULL},
    {"train.recompute", "true|yes|on|1|all|always|selective|op|ac|sac|selective_ac|full_ac|"
     "core_attn|core_attention|mlp|memory_budget", "full", NULL},
    {"train.recompute", "uniform|block|layer|layers|every", "every:1", NULL},
    {"train.recompute", "false|no|off|0|never", "none", NULL},
    {"train.graph", "true|yes|1|always", "on", NULL},
    {"train.graph", "false|no|0|none|never", "off", NULL},
    {"parallel.zero", "true|yes|on|zero1|zero-1|zero_1|stage1|os|p_os|optimizer|optim|"
     "optimizer_states|distributed_optimizer", "1", NULL},
    {"parallel.zero", "false|no|off|none|never|no_shard|ddp|zero0|stage0", "0", NULL},
    {"parallel.zero", "2|3|zero2|zero3|zero-2|zero-3|stage2|stage3|fsdp|fsdp2|full|"
     "os_g|os+g|os+g+p|os_g_p|p_g_os|grad|grads|gradients|optim_grads|optim_grads_params|hsdp|"
     "hybrid|shard_grad_op|full_shard|hybrid_shard|zero++", NULL,
     "gradients and weights are not sharded yet (ZeRO stages 2 and 3)"},
    {"parallel.tp_overlap", "true|yes|1|always", "on", NULL},
    {"parallel.tp_overlap", "false|no|0|none|never", "off", NULL},
    {"optim.schedule", "const|none|fixed|flat|warmuplr|constantlr", "constant", NULL},
    {"optim.schedule", "lin|linear_decay|warmupdecaylr|warmup_decay|warmup_linear|linearlr",
     "linear", NULL},
    {"optim.schedule", "cos|cosine_decay|cosine_annealing|linear_warmup_cosine|"
     "linear_warmup_cosine_decay|linear_warmup_cosine_annealing", "cosine", NULL},
    {"optim.schedule", "warmup-stable-decay|warmup_stable_decay|trapezoid|trapezoidal|"
     "warmupstabledecay|stable_decay", "wsd",
     NULL},
    {"optim.schedule", "inverse_sqrt|inversesqrt|inverse_square_root|inverse_sqrt_root|inv_sqrt|"
     "isr|sqrt|minus_sqrt|1-sqrt|rsqrt|polynomial_decay|exp|exponential_decay|lrrangetest|"
     "onecycle_lr|1cycle|piecewise|piecewise_constant|inverse|polynomial|exponential|step|"
     "multistep|onecycle|onecyclelr|cyclic|lambdalr|reduce_lr_on_plateau|reducelronplateau|"
     "exponentiallr|steplr|noam", NULL,
     "linear and cosine fall to optim.lr_min over the run, wsd at its end alone"},
    {"model.kind", "qwen|qwen2|qwen2.5|qwen2_5|qwen3|qwen2_moe|qwen3_moe|qwen2forcausallm|"
     "qwen3forcausallm", NULL,
     "gpt has the layers of GPT-2, llama those of Llama: Qwen has biases or norms in its attention "
     "that neither has"},
    {"model.kind", "bert|t5|roberta|mamba|rwkv|mixtral|deepseek|moe|bloom|opt|neox|gpt_neox|"
     "gemma|gemma2|gemma3|phi|phi2|falcon|cohere|command_r|olmo2", NULL,
     "gpt has the layers of GPT-2, llama those of Llama"},
    {"model.kind", "perceptron|classifier|ffnn|feedforward|dense|sequential", "mlp", NULL},
    {"model.kind", "mistral|phi3|decoder|transformer|olmo|yi", "llama", NULL},
};

_Static_assert(sizeof rows / sizeof *rows <= OPTIONS_KEYS, "options.given has room");
const struct conf_table options_table = {
    rows, sizeof rows / sizeof *rows, sizeof(struct options), offsetof(struct options, given),
    hints, sizeof hints / sizeof *hints, options_alias, options_retired};

enum err options_fresh(struct options *out)
{
    TRY(conf_defaults(&options_table, out));
    env_read(&out->env);
    return ERR_OK;
}

void options_arch(const struct options *o, struct model *out)
{
    struct model a = {
        .kind = (enum model_kind)o->model.kind, .layers = o->model.layers,
        .hidden = o->model.hidden, .heads = o->model.heads, .kv_heads = o->model.kv_heads,
        .head_dim = o->model.head_dim,
        .ffn = o->model.ffn, .vocab = o->model.vocab, .seq = o->model.seq, .tied = o->model.tied,
        .dropout = o->model.dropout, .norm_eps = o->model.norm_eps,
        .rope_theta = o->model.rope_theta, .init_std = o->model.init_std,
    };
    if (a.kind == MODEL_MLP) {
        *out = model_of_widths(o->model.widths.v, o->model.widths.n);
        return;
    }
    if (a.kv_heads == 0)
        a.kv_heads = a.heads;
    if (a.head_dim == 0)
        a.head_dim = a.hidden / a.heads;
    if (a.ffn == 0)
        a.ffn = model_traits(a.kind)->gated ? num_ceil_div(num_ceil_div(8 * a.hidden, 3), 32) * 32
                                            : 4 * a.hidden;
    *out = a;
}

void options_want(const struct model *a, struct data_want *out)
{
    int64_t floats = model_floats(a);
    if (floats)
        *out = (struct data_want){.kind = DATA_ROWS, .features = floats, .classes = a->vocab};
    else
        *out = (struct data_want){.kind = DATA_TOKENS, .seq = a->seq, .vocab = a->vocab};
}

void options_split(const struct options *o, struct model_split *out)
{
    *out = (struct model_split){.tp = (int)o->parallel.tp,
                                .sp = o->parallel.sp && o->parallel.tp > 1};
}

void options_axes(const struct options *o, int size[AXIS_COUNT])
{
    for (int i = 0; i < AXIS_COUNT; i++)
        size[i] = 1;
    size[AXIS_TP] = (int)o->parallel.tp;
    size[AXIS_PP] = (int)o->parallel.pp;
    size[AXIS_DP] = (int)o->parallel.dp;
}

int64_t options_ranks(const struct options *o)
{
    return o->parallel.tp * o->parallel.pp * o->parallel.dp; /* at most 2^44 by the rows' ranges */
}

int64_t options_shards(const struct options *o)
{
    return o->parallel.zero > 0 ? o->parallel.dp : 1;
}

int64_t options_tp_rows(const struct options *o, bool no_p2p)
{
    bool copies = o->train.device == OPTIONS_CUDA && !no_p2p && !o->env.no_copies &&
                  comm_would_copy((enum comm_kind)o->train.transport, (int)o->parallel.tp);
    bool overlap = o->parallel.tp_overlap == OPTIONS_TP_ON ||
                   (o->parallel.tp_overlap == OPTIONS_TP_AUTO && copies);
    return o->parallel.tp > 1 && overlap ? o->parallel.tp_rows : 0;
}

int options_gpu(const struct options *o, int local)
{
    return o->train.share_gpus ? 0 : local;
}

int64_t options_chunks(const struct options *o)
{
    const struct sched_kind *kind = sched_kind_find(o->parallel.schedule);
    if (o->parallel.chunks > 0)
        return o->parallel.chunks;
    return kind && kind->chunks > 0 ? kind->chunks : 1;
}

int64_t options_samples(const struct options *o)
{
    return o->train.batch / o->parallel.dp;
}

int64_t options_microbatches(const struct options *o)
{
    return num_ceil_div(options_samples(o), o->parallel.microbatch);
}

const char *options_unrecorded(const struct options *o)
{
    bool is_auto = o->train.graph == OPTIONS_GRAPH_AUTO;
    const struct { bool holds; const char *why; } reasons[] = {
        {o->train.graph == OPTIONS_GRAPH_OFF, "train.graph is off"},
        {o->train.device != OPTIONS_CUDA, "only train.device cuda queues its work"},
        {o->train.trace, "train.trace true looks at each action of a step"},
        {o->train.profile, "train.profile true waits for each call"},
        {o->train.share_gpus && options_ranks(o) > 1,
         "train.share_gpus true has the hosts wait for each other within a step"},
        {o->train.steps < OPTIONS_RECORDED + 1,
         "train.steps leaves no step behind the one that is recorded"},
        {is_auto && o->parallel.pp > 2, "replays of more than two pipeline ranks were no faster "
                                        "(8B shape, four ranks); train.graph on has them"},
        {is_auto && o->parallel.tp > 1, "replays of tensor ranks were slower where GEMMs are large "
                                        "(8B shape, 3 %); train.graph on has them"},
        {true, NULL},
    };
    int i = 0;
    while (!reasons[i].holds)
        i++;
    return reasons[i].why;
}

const char *options_idle(const struct options *o, const char *key)
{
    static const char tp[] = "parallel.tp is 1";
    const struct model_traits *traits = model_traits(o->model.kind);
    bool alone = options_ranks(o) == 1, anew = !o->run.resume[0];
    /* The first row that holds says why; a key that ends in _ is how several begin. */
    const struct { const char *key; bool holds; const char *why; } reasons[] = {
        {"parallel.tp_overlap", o->parallel.tp == 1, tp},
        {"parallel.tp_rows", o->parallel.tp == 1, tp},
        {"parallel.tp_rows", o->parallel.tp_overlap == OPTIONS_TP_OFF,
         "parallel.tp_overlap is off"},
        {"parallel.tp_rows", options_tp_rows(o, false) == 0,
         "parallel.tp_overlap auto is on only where tensor ranks are threads whose GPUs copy"},
        {"parallel.sp", o->parallel.tp == 1, tp},
        {"parallel.zero", o->parallel.dp == 1, "parallel.dp is 1"},
        {"train.deterministic", o->train.device != OPTIONS_CUDA,
         "only runs with train.device cuda may differ"},
        {"train.share_gpus", alone, "there is one rank"},
        {"train.hang_timeout", alone, "there is one rank"},
        {"train.save_", !o->run.save, "run.save is false"},
        {"train.save_", o->train.device == OPTIONS_NULL,
         "train.device null holds no numbers to save"},
        {"train.save_async", o->train.save_keep == 0,
         "train.save_keep is 0, and no checkpoint is saved"},
        {"run.resume_insist", anew, "run.resume is empty, and the run begins anew"},
        {"optim.decay_keep", anew, "run.resume is empty, and the run begins anew"},
        {"model.init_std", o->model.init[0], "model.init is given, and no weights are drawn"},
        {"model.widths", traits->text, "it is of model.kind mlp alone"},
        {"model.rope_theta", traits->text && traits->positions,
         "model.kind gpt learns its positions"},
    };
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++) {
        const char *of = reasons[i].key;
        size_t n = strlen(of);
        if (reasons[i].holds && strncmp(key, of, n) == 0 && (!key[n] || of[n - 1] == '_'))
            return reasons[i].why;
    }
    bool of_text = strcmp(key, "data.tokenizer") == 0;
    for (int i = 0; strncmp(key, "model.", 6) == 0 && i < MODEL_KEYS; i++)
        of_text |= model_keys[i].type != MODEL_LIST && strcmp(key + 6, model_keys[i].key) == 0;
    return of_text && !traits->text ? "model.kind mlp has model.widths alone" : NULL;
}

bool options_checkpoints(const struct options *o)
{
    return o->run.save && o->train.save_keep > 0 && o->train.device != OPTIONS_NULL;
}

enum dev_kind options_device(const struct options *o)
{
    static const enum dev_kind kind[] = {[OPTIONS_CPU] = DEV_CPU, [OPTIONS_REF] = DEV_REF,
                                         [OPTIONS_NULL] = DEV_NULL, [OPTIONS_CUDA] = DEV_CUDA};
    return kind[o->train.device];
}

struct dtypes options_types(const struct options *o)
{
    enum dtype ct = o->train.dtype == OPTIONS_BF16 ? DT_BF16 : DT_F32;
    return dev_types(options_device(o), o->train.device == OPTIONS_REF ? DT_F64 : ct);
}

int options_threads(const struct options *o, int ranks)
{
    if (o->train.threads > 0)
        return (int)o->train.threads;
    int64_t each = cores_usable() / num_max(1, ranks);
    return (int)num_min(DEV_MAX_THREADS, num_max(1, each));
}

enum err options_under_key(enum err err, const char *key)
{
    if (err == ERR_OK || err == ERR_MEMORY || err == ERR_INTERNAL)
        return err;
    return err_set(err, __FILE__, __LINE__, "%s: %s", key, err_bare(err_text()));
}

enum err options_refuse(const struct options *o, const char *file, int line, const char *fmt, ...)
{
    char said[ERR_TEXT], key[64];
    struct text out = {0};
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(said, sizeof said, fmt, ap);
    va_end(ap);
    for (const char *s = said; *s;) {
        int n = (int)strcspn(s, "{"), end = (int)strcspn(s + n, "}");
        snprintf(key, sizeof key, "%.*s", end - 1, s[n] ? s + n + 1 : "");
        bool known = conf_find(&options_table, key) != NULL;
        text_add(&out, "%.*s", n + (s[n] && !known), s);
        if (known) {
            text_add(&out, "%s ", key);
            (void)!conf_get(&options_table, o, key, &out);
        }
        s += n + (known ? end + 1 : s[n] != '\0');
    }
    enum err err = out.err ? out.err : err_set(ERR_CONFIG, file, line, "%s", out.s);
    text_free(&out);
    return err;
}

void options_tidy(struct options *o)
{
    for (size_t n = strlen(o->run.dir); n > 1 && o->run.dir[n - 1] == '/'; n--)
        o->run.dir[n - 1] = '\0';
}

enum err options_read_run(const char *run, struct options *o)
{
    char path[FS_PATH];
    TRY(options_fresh(o));
    enum err err = conf_read_file(&options_table, o, fs_path(path, run, "config.yaml"));
    options_tidy(o);
    return err;
}
