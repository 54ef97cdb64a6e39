/* SPDX-License-Identifier: Apache-2.0
 *
 * Configurations as other programs have them, key by key: each is answered with the key here, or
 * with what to do instead; none is answered with the page of all keys, or with a key that another
 * one of them means. Values likewise.
 */
#include "config/options.h"
#include "test.h"

struct pair { const char *theirs, *says; };

static const struct pair keys[] = {
    /* llm.c and its kin */
    {"input_bin", "data.train"}, {"input_train_bin", "data.train"}, {"input_val_bin", "data.valid"},
    {"output_log_dir", "run.dir"}, {"batch_size", "train.batch"},
    {"sequence_length", "model.seq"}, {"total_batch_size", "train.batch"},
    {"num_iterations", "train.steps"}, {"warmup_iterations", "optim.warmup"},
    {"learning_rate_decay_frac", "optim.lr_min"}, {"checkpoint_every", "train.save_every"},
    {"use_master_weights", "leave it out"}, {"resume", "run.resume"},
    /* torchtitan */
    {"job.dump_folder", "run.dir"}, {"profiling.enable_profiling", "train.profile"},
    {"metrics.log_freq", "train.log_every"}, {"metrics.enable_tensorboard", "metrics.jsonl"},
    {"metrics.save_tb_folder", "metrics.jsonl"}, {"model.name", "model.kind"},
    {"model.flavor", "model.kind"}, {"model.hf_assets_path", "`plait data prepare`"},
    {"model.tokenizer_path", "`plait data prepare`"}, {"model.converters", "leave it out"},
    {"optimizer.name", "AdamW is the only"}, {"optimizer.lr", "optim.lr"},
    {"optimizer.eps", "optim.eps"}, {"optimizer.beta1", "optim.beta1"},
    {"optimizer.weight_decay", "optim.decay"}, {"optimizer.implementation", "leave it out"},
    {"optimizer.early_step_in_backward", "leave it out"},
    {"lr_scheduler.warmup_steps", "optim.warmup"}, {"lr_scheduler.decay_ratio",
                                                    "optim.decay_steps"},
    {"lr_scheduler.decay_type", "optim.schedule"}, {"lr_scheduler.min_lr_factor", "optim.lr_min"},
    {"training.local_batch_size", "parallel.microbatch"},
    {"training.global_batch_size", "train.batch"}, {"training.seq_len", "model.seq"},
    {"training.max_norm", "optim.clip"}, {"training.steps", "train.steps"},
    {"training.dataset", "data.train"}, {"training.gc_freq", "leave it out"},
    {"training.enable_cpu_offload", "host's memory"}, {"training.seed", "train.seed"},
    {"training.mixed_precision_param", "train.dtype"},
    {"training.mixed_precision_reduce", "leave it out"},
    {"parallelism.data_parallel_replicate_degree", "parallel.dp"},
    {"parallelism.fsdp_reshard_after_forward", "leave it out"},
    {"parallelism.pipeline_parallel_split_points", "parallel.split"},
    {"parallelism.context_parallel_degree", "no context or expert"},
    {"parallelism.enable_compiled_autograd", "leave it out"},
    {"checkpoint.enable", "run.save"}, {"checkpoint.folder", "run.dir"},
    {"checkpoint.interval", "train.save_every"}, {"checkpoint.last_save_model_only",
                                                  "train.save_keep"},
    {"checkpoint.export_dtype", "run.save"}, {"checkpoint.async_mode", "train.save_async"},
    {"checkpoint.keep_latest_k", "train.save_keep"}, {"checkpoint.enable_checkpoint", "run.save"},
    {"checkpoint.initial_load_path", "model.init"},
    {"activation_checkpoint.mode", "train.recompute"},
    {"activation_checkpoint.selective_ac_option", "train.recompute"},
    {"compile.enable", "leave it out"}, {"compile.components", "leave it out"},
    {"float8.enable", "no type of 8 bits"}, {"float8.enable_fsdp_float8_all_gather", "8 bits"},
    {"quantize.linear.float8.filter_fqns", "8 bits"}, {"mx.recipe_name", "8 bits"},
    {"comm.init_timeout_seconds", "train.hang_timeout"}, {"comm.trace_buf_size", "leave it out"},
    {"validation.enable", "train.valid_every"}, {"validation.freq", "train.valid_every"},
    {"validation.steps", "train.valid_batches"}, {"validation.dataset", "data.valid"},
    {"validation.local_batch_size", "parallel.microbatch"}, {"validation.seq_len", "model.seq"},
    /* DeepSpeed */
    {"train_batch_size", "train.batch"}, {"train_micro_batch_size_per_gpu", "parallel.micro"},
    {"gradient_accumulation_steps", "parallel.microbatch"}, {"steps_per_print", "train.log_every"},
    {"gradient_clipping", "optim.clip"}, {"prescale_gradients", "leave it out"},
    {"optimizer.type", "AdamW is the only"}, {"optimizer.params", "AdamW is the only"},
    {"optimizer.params.lr", "optim.lr"}, {"optimizer.params.betas", "optim.beta1"},
    {"optimizer.params.eps", "optim.eps"}, {"optimizer.params.weight_decay", "optim.decay"},
    {"optimizer.params.adam_w_mode", "AdamW is the only"},
    {"scheduler.type", "optim.schedule"}, {"scheduler.params.warmup_min_lr", "straight rise"},
    {"scheduler.params.warmup_max_lr", "optim.lr"},
    {"scheduler.params.warmup_num_steps", "optim.warmup"},
    {"scheduler.params.total_num_steps", "train.steps"},
    {"scheduler.params.cos_min_ratio", "optim.schedule"},
    {"fp16.enabled", "train.dtype"}, {"fp16.loss_scale", "leave it out"},
    {"fp16.hysteresis", "leave it out"}, {"bf16.enabled", "train.dtype"},
    {"data_types.grad_accum_dtype", "leave it out"},
    {"communication_data_type", "leave it out"}, {"zero_optimization.stage", "parallel.zero"},
    {"zero_optimization.overlap_comm", "leave it out"},
    {"zero_optimization.reduce_bucket_size", "leave it out"},
    {"zero_optimization.offload_optimizer.device", "host's memory"},
    {"zero_optimization.stage3_max_live_parameters", "parallel.zero"},
    {"zero_allow_untested_optimizer", "AdamW is the only"},
    {"activation_checkpointing.partition_activations", "train.recompute"},
    {"activation_checkpointing.cpu_checkpointing", "host's memory"},
    {"activation_checkpointing.profile", "train.profile"},
    {"activation_checkpointing.synchronize_checkpoint_boundary", "train.recompute"},
    {"pipeline.stages", "parallel.pp"}, {"pipeline.partition_method", "parallel.split"},
    {"pipeline.activation_checkpoint_interval", "parallel.pp"},
    {"tensorboard.enabled", "metrics.jsonl"}, {"wandb.enabled", "metrics.jsonl"},
    {"wall_clock_breakdown", "train.profile"},
    /* Megatron-LM */
    {"fp8", "8 bits"}, {"fp8-format", "8 bits"}, {"overlap-grad-reduce", "leave it out"},
    {"overlap-param-gather", "leave it out"}, {"no-position-embedding", "model.kind"},
    {"group-query-attention", "model.kv_heads"}, {"lr-wsd-decay-style", "wsd is a straight line"},
    {"lr-wsd-decay-iters", "optim.decay_steps"}, {"lr-warmup-init", "straight rise"},
    {"use-mcore-models", "leave it out"}, {"no-masked-softmax-fusion", "leave it out"},
    {"no-gradient-accumulation-fusion", "leave it out"}, {"initial-loss-scale", "leave it out"},
    {"attention-softmax-in-fp32", "leave it out"}, {"recompute-num-layers", "train.recompute"},
    {"decoder-first-pipeline-num-layers", "parallel.split"}, {"manual-gc", "leave it out"},
    {"exit-interval", "train.steps"}, {"save-interval", "train.save_every"},
    {"optimizer-cpu-offload", "host's memory"},
    /* a group in a group, and groups as keys */
    {"optim.adam", "AdamW is the only"}, {"optim.adam.lr", "optim.lr"},
    {"train.optimizer.schedule", "schedule"}, {"optimizer.schedule", "optim.schedule"},
    {"parallelism.schedule", "parallel.schedule"}, {"a.b.c.d.lr", "optim.lr"},
};

static const struct pair values[] = {
    {"optim.schedule=WarmupDecayLR", "; the nearest is linear"},
    {"optim.schedule=WarmupLR", "; the nearest is constant"},
    {"optim.schedule=WarmupCosineLR", "; the nearest is cosine"},
    {"optim.schedule=inverse-square-root", "fall to optim.lr_min"},
    {"optim.schedule=InverseSqrt", "fall to optim.lr_min"},
    {"optim.schedule=polynomial_decay", "fall to optim.lr_min"},
    {"optim.schedule=WSD", "; the nearest is wsd"},
    {"optim.schedule=minus_sqrt", "fall to optim.lr_min"},
    {"optim.schedule=OneCycle", "fall to optim.lr_min"},
    {"train.recompute=sac", "; the nearest is full"},
    {"train.recompute=ac", "; the nearest is full"},
    {"train.recompute=memory_budget", "; the nearest is full"},
    {"train.recompute=core_attn", "; the nearest is full"},
    {"parallel.zero=os_g", "not sharded yet"}, {"parallel.zero=os", "; the nearest is 1"},
    {"parallel.zero=p_g_os", "not sharded yet"}, {"parallel.zero=SHARD_GRAD_OP", "not sharded yet"},
    {"parallel.zero=NO_SHARD", "; the nearest is 0"},
    {"parallel.zero=optim_grads", "not sharded yet"},
    {"model.kind=qwen", "Qwen has biases or norms"}, {"model.kind=Qwen2", "Qwen has biases"},
    {"model.kind=qwen3", "Qwen has biases"}, {"model.kind=gemma", "gpt has the layers of GPT-2"},
    {"model.kind=mistral", "; the nearest is llama"},
};

static void refused(const char *word, const char *says)
{
    struct options o;
    CHECK_OK(conf_defaults(&options_table, &o));
    enum err err = conf_set(&options_table, &o, word);
    test_check(err == ERR_CONFIG && strstr(err_text(), says) && !strstr(err_text(), "help config"),
               __FILE__, __LINE__, "%s: wanted %s, got %s", word, says, err_text());
}

static void keys_are_answered(void)
{
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char word[128];
        snprintf(word, sizeof word, "%s=1", keys[i].theirs);
        refused(word, keys[i].says);
        for (char *c = word; *c; c++)
            *c = *c == '-' ? '_' : *c;
        refused(word, keys[i].says);
    }
}

static void values_are_answered(void)
{
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        refused(values[i].theirs, values[i].says);
}

/* Behind any group and any number of them a key's own name is that key. */
static void own_names_behind_groups(void)
{
    static const char *const before[] = {"x.", "x.y.", "a.b.c.d."};
    for (int i = 0; i < options_table.n; i++)
        for (size_t b = 0; b < sizeof before / sizeof *before; b++) {
            const char *key = options_table.row[i].key, *name = strchr(key, '.') + 1;
            char word[128];
            snprintf(word, sizeof word, "%s%s", before[b], name);
            const char *near = conf_nearest(&options_table, word);
            test_check(near && strcmp(strchr(near, '.') + 1, name) == 0, __FILE__, __LINE__,
                       "%s: %s", word, near ? near : "nothing");
        }
}

static const struct test_case cases[] = {
    {"keys_are_answered", keys_are_answered},
    {"values_are_answered", values_are_answered},
    {"own_names_behind_groups", own_names_behind_groups},
};
TEST_MAIN(cases)
