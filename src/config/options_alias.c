/* SPDX-License-Identifier: Apache-2.0
 *
 * What other programs call the keys: nanoGPT, llm.c, Megatron-LM, torchtitan, DeepSpeed, and the
 * configurations and training arguments of Hugging Face. A name is found whatever group stands
 * before it; one with a group here is meant with that group alone. Where the value is counted
 * otherwise than there, or no key does it, the row says how or what to do instead. And the keys
 * that plait had once.
 */
#include "config/options.h"

static const char micro[] = "samples of a microbatch, of which batch / (microbatch x dp) are "
                            "accumulated in a step";
static const char rate_from[] = "the rate at the end of the decay, not a fraction of lr";
static const char steps_only[] = "steps, not a fraction of them";
static const char by_itself[] = "leave it out: gradients are summed beside the backward pass by "
                                "themselves, a part of the model at a time";
static const char in_f32[] = "leave it out: beside bf16, sums, master weights and moments are f32, "
                             "and the loss needs no scale";
static const char no_bias[] = "model.kind gpt has biases, llama has none";

const struct conf_alias options_alias[] = {
    /* the model */
    {"n_layer|n_layers|num_layers|num_hidden_layers|depth|num_blocks", "model.layers", NULL},
    {"n_embd|d_model|hidden_size|dim|model_dim|embed_dim|embedding_dim|hidden_dim|n_hidden",
     "model.hidden", NULL},
    {"n_head|n_heads|num_heads|num_attention_heads", "model.heads", NULL},
    {"n_kv_head|n_kv_heads|num_kv_heads|num_key_value_heads|num_query_groups", "model.kv_heads",
     NULL},
    {"group_query_attention|multi_query_attention|multi_query|gqa", "model.kv_heads",
     "how many heads of keys and values there are; 1 is multi-query"},
    {"kv_channels|head_size|dim_head|d_head", "model.head_dim", NULL},
    {"intermediate_size|ffn_hidden_size|n_inner|d_ff|ffn_dim|ffn_hidden|mlp_dim", "model.ffn",
     NULL},
    {"ffn_dim_multiplier|multiple_of|mlp_ratio", "model.ffn", "channels, not a factor of hidden"},
    {"vocab_size|n_vocab|padded_vocab_size", "model.vocab", NULL},
    {"make_vocab_size_divisible_by", "model.vocab",
     "any size does, rows are padded by themselves where tensor ranks share them"},
    {"block_size|seq_len|seq_length|sequence_length|max_seq_len|max_seq_length|n_positions|n_ctx|"
     "max_position_embeddings|context_length|context_size|ctx_len|max_length|model_max_length",
     "model.seq", NULL},
    {"model_type|architecture|arch|flavor|network|transformer|model_config|gpt|model.name|"
     "model.type|model_name|model_name_or_path|architectures|model_descriptor", "model.kind",
     "gpt or llama; the sizes are keys of their own"},
    {"tie_word_embeddings|tie_embeddings|weight_tying|share_embeddings_and_output_weights",
     "model.tied", NULL},
    {"untie_embeddings_and_output_weights", "model.tied", "the opposite: model.tied=false unties"},
    {"resid_pdrop|embd_pdrop|attn_pdrop|attention_dropout|hidden_dropout|dropout_p|dropout_rate|"
     "hidden_dropout_prob|attention_probs_dropout_prob", "model.dropout",
     "one probability for embedding, attention and residuals"},
    {"layer_norm_eps|layer_norm_epsilon|layernorm_epsilon|rms_norm_eps|norm_epsilon|ln_eps",
     "model.norm_eps", NULL},
    {"rotary_base|rope_base|rotary_emb_base", "model.rope_theta", NULL},
    {"rope_scaling|rope_scaling_factor|rotary_percent", NULL,
     "rotary positions are turned whole and unscaled, with base model.rope_theta"},
    {"initializer_range|init_method_std|init_stddev", "model.init_std", NULL},
    {"bias|attention_bias|mlp_bias|qkv_bias|add_bias_linear|disable_bias_linear", NULL, no_bias},
    {"normalization|norm_type|hidden_act|activation_function|activation|swiglu|"
     "position_embedding_type|use_rotary_position_embeddings|no_position_embedding|"
     "add_position_embedding|squared_relu|openai_gelu|rmsnorm", NULL,
     "it follows from model.kind: gpt has LayerNorm, GELU and learned positions, llama RMSNorm, "
     "SwiGLU and rotary ones"},

    /* the layout */
    {"tensor_model_parallel_size|tensor_parallel_degree|tensor_parallel_size|tp_size|tp_degree|"
     "model_parallel_size|tensor_parallel|tensor_model_parallel", "parallel.tp", NULL},
    {"pipeline_model_parallel_size|pipeline_parallel_degree|pipeline_parallel_size|pp_size|"
     "pp_degree|pipeline_stages|pipeline|pipeline.stages|pipeline_parallel|"
     "pipeline_model_parallel", "parallel.pp", NULL},
    {"data_parallel_size|data_parallel_degree|data_parallel_replicate_degree|dp_size|dp_degree|"
     "num_replicas|ddp|dp_replicate|data_parallel", "parallel.dp", NULL},
    {"world_size|num_gpus|n_gpus|gpus|nproc_per_node|devices|num_devices|num_processes|"
     "parallelism|distributed|mesh|layout", "parallel.dp", "there are parallel.tp x pp x dp ranks"},
    {"data_parallel_shard_degree|fsdp|hsdp|dp_shard|fully_shard|sharded_data_parallel",
     "parallel.zero",
     "1 shards the optimizer state over the parallel.dp replicas, weights are not sharded"},
    {"zero_stage|zero_optimization|zero_optimization.stage|use_distributed_optimizer|"
     "use_zero|zero_redundancy", "parallel.zero", "0, or 1 for shared optimizer states"},
    {"sequence_parallel|enable_sequence_parallel", "parallel.sp", NULL},
    {"context_parallel_size|context_parallel_degree|context_parallel|cp_size|cp_degree|cp|"
     "ring_attention|ulysses|expert_model_parallel_size|expert_model_parallel|"
     "expert_parallel_degree|expert_parallel_size|expert_parallel|expert_tensor_parallel_size|"
     "ep_size|ep_degree|ep|etp|num_experts|moe", NULL,
     "there is no context or expert parallelism; parallel.tp with sp and parallel.pp share long "
     "sequences and large models"},
    {"tp_comm_overlap|enable_async_tensor_parallel", "parallel.tp_overlap", NULL},
    {"split_points|module_fqns_per_model_part|pipeline_parallel_split_points", "parallel.split",
     "the layers at which stages begin, as [layers.3, layers.6]"},
    {"partition_method|decoder_first_pipeline_num_layers|decoder_last_pipeline_num_layers",
     "parallel.split", "[] cuts by cost, names of layers where they say"},
    {"overlap_grad_reduce|overlap_param_gather|overlap_comm|overlap_p2p_comm|reduce_bucket_size|"
     "allgather_bucket_size|bucket_cap_mb|ddp_bucket_size|contiguous_gradients|reduce_scatter|"
     "allgather_partitions|round_robin_gradients|gradient_as_bucket_view|static_graph|"
     "find_unused_parameters|ddp_find_unused_parameters|gradient_predivide_factor|"
     "prescale_gradients|sparse_gradients|fsdp_reshard_after_forward|overlap_grad_reduction", NULL,
     by_itself},
    {"cpu_offload|enable_cpu_offload|offload|offload_optimizer|offload_param|"
     "offload_optimizer.device|offload_param.device|optimizer_cpu_offload|cpu_checkpointing", NULL,
     "nothing is kept in the host's memory; parallel.zero=1, tp, pp and train.recompute=full take "
     "less of a device's"},
    {"pipeline_parallel_schedule|pipeline_schedule|pp_schedule|pipeline_parallel_schedule_csv",
     "parallel.schedule", "a name of `plait help schedules`, or file:PATH"},
    {"num_layers_per_virtual_pipeline_stage|virtual_pipeline_model_parallel_size|"
     "num_virtual_stages_per_pipeline_rank|pipeline_parallel_layers_per_stage|"
     "stages_per_rank|num_model_chunks", "parallel.chunks", "pipeline stages on each rank"},
    {"microbatch_group_size_per_virtual_pipeline_stage|"
     "microbatch_group_size_per_vp_stage", "parallel.group", NULL},
    {"micro_batch_size|train_micro_batch_size_per_gpu|per_device_train_batch_size|"
     "pipeline_parallel_microbatch_size|local_batch_size|device_batch_size|micro_batch|mbs|"
     "per_device_eval_batch_size", "parallel.microbatch", micro},
    {"gradient_accumulation_steps|grad_accum|grad_accum_steps|accum_steps|accumulation_steps|"
     "accumulate_grad_batches|num_microbatches|n_microbatches", "parallel.microbatch", micro},

    /* the run */
    {"batch_size|global_batch_size|train_batch_size|total_batch_size|gbs", "train.batch",
     "samples of a step over all ranks; those at a time on one are parallel.microbatch"},
    {"max_iters|max_steps|train_iters|train_steps|num_iterations|total_num_steps|num_steps|"
     "num_train_steps|total_steps|iterations|iters|train_iterations|n_steps|exit_interval",
     "train.steps", NULL},
    {"epochs|num_epochs|max_epochs|num_train_epochs|train_samples|max_tokens", "train.steps",
     "steps of train.batch samples; `plait check` says how many epochs they are"},
    {"random_seed|data_seed|manual_seed|seed_offset", "train.seed", NULL},
    {"torch_dtype|precision|mixed_precision|mixed_precision_param|param_dtype|compute_dtype",
     "train.dtype", NULL},
    {"bf16|fp16|bfloat16|float16|amp|half|bf16.enabled|fp16.enabled", "train.dtype",
     "train.dtype=bf16; f32 is the default"},
    {"fp8|float8|mx|fp8_format|fp8_recipe|fp8_hybrid|fp8_margin|fp8_param|fp8_param_gather|fp4|"
     "int8|quantization|quantize|load_in_8bit|load_in_4bit|quantization_config", NULL,
     "there is no type of 8 bits or fewer; train.dtype is f32 or bf16"},
    {"loss_scale|initial_loss_scale|initial_scale_power|loss_scale_window|hysteresis|"
     "min_loss_scale|grad_scaler|use_grad_scaler|accumulate_allreduce_grads_in_fp32|"
     "attention_softmax_in_fp32|grad_accum_dtype|main_grads_dtype|main_params_dtype|"
     "mixed_precision_reduce|reduce_dtype|communication_data_type|use_master_weights|"
     "master_weights|data_types", NULL, in_f32},
    {"accelerator|device_type|use_cuda|no_cuda", "train.device", NULL},
    {"backend|distributed_backend|dist_backend|process_group_backend", "train.transport", NULL},
    {"num_threads|n_threads|nthreads|omp_num_threads|intra_op_threads", "train.threads", NULL},
    {"eval_interval|eval_steps|val_loss_every|val_interval|eval_every|validation.freq|"
     "eval_freq|val_check_interval|eval_iterations_every|validate_every|validation.enable|"
     "validation_interval", "train.valid_every", NULL},
    {"eval_iters|val_max_steps|eval_batches|limit_val_batches|validation.steps|"
     "validation_steps|val_steps|num_eval_batches|max_eval_steps", "train.valid_batches", NULL},
    {"log_interval|logging_steps|log_freq|log_steps|steps_per_print|log_every_n_steps|print_freq",
     "train.log_every", NULL},
    {"save_interval|save_steps|checkpoint_interval|ckpt_interval|checkpoint_every|"
     "checkpoint_steps|checkpoint_freq|checkpoint.interval|ckpt_every|save_every_n_steps",
     "train.save_every", NULL},
    {"save_strategy", "train.save_every",
     "steps between checkpoints; 0: at the end alone, and train.save_keep=0: none"},
    {"save_total_limit|keep_latest_k|max_to_keep", "train.save_keep", NULL},
    {"save_best_only|load_best_model_at_end|keep_best|save_best_model|save_best_checkpoint",
     "train.save_best", NULL},
    {"async_save|async_mode|async_checkpoint", "train.save_async", NULL},
    {"exit_duration_in_mins|max_time|walltime|max_train_seconds", "train.time_limit", "seconds"},
    {"last_save_model_only|last_save_model_weights_only|no_save_optim", "train.save_keep",
     "0 saves no checkpoint, only the weights at the end"},
    {"export_dtype|save_safetensors", "run.save",
     "weights are written at the end of a run, in f32"},
    {"resume_from_checkpoint|load|load_checkpoint|load_step", "run.resume",
     "auto, best, a step, or a checkpoint's folder"},
    {"init_from|finetune|initial_load_path|pretrained_model_name_or_path|pretrained_checkpoint|"
     "load_weights|base_model", "model.init",
     "a folder; nothing is downloaded"},
    {"evaluation_strategy|eval_strategy|do_eval|eval_only", "train.valid_every",
     "0 validates data.valid at the end only"},
    {"train_timeout_seconds|init_timeout_seconds|distributed_timeout_minutes|ddp_timeout|"
     "nccl_timeout", "train.hang_timeout", "seconds"},
    {"enable_profiling|profiling|profiler|wall_clock_breakdown|use_pytorch_profiler",
     "train.profile", NULL},
    {"gradient_checkpointing|activation_checkpointing|activation_checkpoint|"
     "activation_checkpoint.mode|recompute_granularity|recompute_activations|recompute_method|"
     "checkpoint_activations|remat|selective_ac_option|recompute_num_layers|recompute_modules|"
     "partition_activations|number_checkpoints|contiguous_memory_optimization|ac_mode",
     "train.recompute", "none, full, sqrt or every:K"},
    {"cuda_graph|cuda_graphs|enable_cuda_graph|use_cuda_graph", "train.graph", NULL},
    {"deterministic_mode|use_deterministic_algorithms|full_determinism", "train.deterministic",
     NULL},
    {"gc_freq|gc_debug|manual_gc|manual_gc_interval|local_rank|empty_unused_memory_level|"
     "trace_buf_size|enable_compiled_autograd|disable_loss_parallel|"
     "use_cpu_initialization|implementation|early_step_in_backward|foreach|torch_adam|"
     "use_mcore_models|"
     "no_gradient_accumulation_fusion|gradient_accumulation_fusion|masked_softmax_fusion|"
     "bias_gelu_fusion|bias_swiglu_fusion|bias_dropout_fusion|apply_rope_fusion|"
     "cross_entropy_loss_fusion|converters|no_masked_softmax_fusion|no_bias_gelu_fusion", NULL,
     "leave it out: it says how another program does its work, and changes no result here"},
    {"compile|torch_compile|use_flash_attention|use_flash_attn|flash|flash_attention|tf32|"
     "tensorcores|attn_implementation|fused|transformer_impl", NULL,
     "leave it out: the device takes its fastest kernels by itself, and train.dtype is the "
     "precision"},

    /* the optimizer */
    {"learning_rate|max_lr|lr_max|peak_lr|base_lr|warmup_max_lr", "optim.lr", NULL},
    {"min_lr|lr_end|final_lr|eta_min|min_learning_rate", "optim.lr_min", NULL},
    {"warmup_min_lr|lr_warmup_init|warmup_init_lr|warmup_type", NULL,
     "the warm-up is a straight rise from 0 to optim.lr"},
    {"min_lr_factor|min_lr_ratio|learning_rate_decay_frac|final_lr_frac|lr_min_ratio",
     "optim.lr_min", rate_from},
    {"adam_beta1|b1", "optim.beta1", NULL},
    {"adam_beta2|b2", "optim.beta2", NULL},
    {"betas|adam_betas", "optim.beta1", "one number; the other is optim.beta2"},
    {"adam_epsilon|adam_eps|epsilon|adam_e", "optim.eps", NULL},
    {"weight_decay|wd|l2|adam_wd", "optim.decay", NULL},
    {"grad_clip|clip_grad|max_grad_norm|gradient_clipping|max_norm|gradient_clip_val|"
     "clip_grad_norm|grad_norm_clip", "optim.clip", NULL},
    {"warmup_iters|warmup_steps|lr_warmup_iters|warmup_num_steps|num_warmup_steps|lr_warmup_steps|"
     "warmup_iterations|warmup_batches|n_warmup_steps",
     "optim.warmup", NULL},
    {"warmup_ratio|lr_warmup_fraction|warmup_fraction|lr_warmup_samples", "optim.warmup",
     steps_only},
    {"lr_scheduler_type|lr_decay_style|decay_type|lr_scheduler|scheduler|lr_schedule|"
     "learning_rate_schedule|lr_decay_type|decay_lr|lr_sched", "optim.schedule", NULL},
    {"lr_wsd_decay_style|wsd_decay_style|lr_wsd_decay_type", "optim.schedule",
     "the decay of wsd is a straight line"},
    {"lr_decay_iters|lr_decay_steps", "train.steps",
     "linear and cosine end with the run; optim.decay_steps is the final decay of wsd"},
    {"lr_wsd_decay_iters|decay_iters|cooldown_iters|cooldown_steps", "optim.decay_steps", NULL},
    {"decay_ratio|lr_decay_ratio|cooldown_fraction", "optim.decay_steps", steps_only},
    {"optimizer_name|optimizer_type|optim_type|optimizer|optimiser|optim.name|optim.type|"
     "optim.kind|optimizer.name|optimizer.type|optimizer.kind|adam|adamw|muon|lion|sgd|adafactor|"
     "momentum|sgd_momentum|nesterov|amsgrad|adamw_mode|adam_w_mode|zero_allow_untested_optimizer",
     NULL, "AdamW is the only optimizer"},
    {"label_smoothing|label_smoothing_factor|z_loss|aux_loss", NULL,
     "the loss is plain cross-entropy"},
    {"early_stopping|early_stopping_patience", NULL,
     "a run ends after train.steps; train.save_best keeps the best on the way"},

    /* files */
    {"train_data|train_data_path|train_file|train_path|input_bin|data_path|dataset|"
     "dataset_name|dataset_path|train_bin|train_files|data_dir|datasets|input_train_bin|"
     "train_input_bin|train_data_pattern|train_dataset|dataset_config_name", "data.train",
     "a token file made by `plait data prepare`"},
    {"valid_data|val_data|valid_data_path|val_data_path|validation_file|val_file|input_val_bin|"
     "val_bin|eval_dataset|val_path|validation|validation.dataset|validation.dataset_path|"
     "val_data_pattern|valid_dataset|validation_dataset|test_data_path", "data.valid",
     "a token file made by `plait data prepare`"},
    {"tokenizer_name|tokenizer_type", "data.tokenizer", "the name that the token file has"},
    {"hf_assets_path|tokenizer.path|tokenizer_path|tokenizer_model|vocab_file|merges_file", NULL,
     "tokens are made beforehand, by `plait data prepare`"},
    {"dataloader_num_workers|num_workers|shuffle|streaming", NULL,
     "leave it out: samples are read from the token file in an order drawn from train.seed"},
    {"out_dir|output_dir|dump_folder|save_dir|checkpoint_dir|ckpt_dir|log_dir|logdir|run_name|"
     "logging_dir|job.dump_folder|output|output_log_dir|checkpoint.folder|checkpoint_path|"
     "save_folder|save_path|run_dir|experiment_dir|work_dir", "run.dir", NULL},
    {"save_model|always_save_checkpoint|save_final|save_checkpoint|checkpoint|checkpoints",
     "run.save", NULL},
    {"wandb|wandb_log|wandb_project|wandb_run_name|report_to|tensorboard|enable_tensorboard|"
     "tensorboard_dir|enable_wandb|metrics|logging|save_tb_folder|log_rank0|"
     "log_memory_to_tensorboard|wandb_entity|wandb_exp_name|csv_monitor|comet|mlflow|trackio", NULL,
     "each step is a line of metrics.jsonl in run.dir, for any program to read"},

    /* groups */
    {"optimizer|optimiser|lr_sched|adam|adamw", "optim", NULL},
    {"training|trainer|training_args|train_args|validation", "train", NULL},
    {"parallelism|distributed|mesh|layout", "parallel", NULL},
    {"datasets|data_args", "data", NULL},
    {"network|model_args|gpt|transformer|model_config", "model", NULL},
    {"job|checkpoint|logging|output|metrics", "run", NULL},
    {NULL, NULL, NULL},
};

const struct conf_retired options_retired[] = {
    {"optim.post_validation", "false|no",
     "every step waits for the norm of the whole gradient, which changes no number"},
    {"optim.trust_after", NULL, NULL},
    {NULL, NULL, NULL},
};
