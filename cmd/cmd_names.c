/* SPDX-License-Identifier: Apache-2.0
 *
 * What other programs call the options of a verb: llama.cpp, llama2.c, vLLM, transformers-cli,
 * nanoGPT, torchtitan, Megatron-LM. Keys that such an option means are not here, for the
 * configuration's table of names has them (src/config/options_alias.c).
 */
#include "cmd.h"

#include <ctype.h>
#include <string.h>

static const char stdout_only[] =
    "what is written goes to standard output, as in `plait generate FOLDER > FILE`";
static const char file_first[] = "the configuration's file is the first word, without an option";

const struct cmd_name cmd_names_generate[] = {
    {"max_tokens|max_new_tokens|max_length|max_gen_len|max_out_len|min_new_tokens|n_predict|"
     "predict|num_tokens|n_tokens|new_tokens|tokens_to_generate|length|len|steps|num_steps",
     "--tokens N", NULL},
    {"iter|iteration|ckpt_step|checkpoint_step|load_step|ckpt_num|epoch|best|last|latest|newest",
     "--step N|best", "the newest is read where none is given"},
    {"temp|t", "--temperature X", "threads are train.threads=N"},
    {"topk|k|sample_topk", "--top-k K", NULL},
    {"greedy|do_sample|no_sample|argmax|sample", "--temperature 0",
     "always the likeliest; above 0 tokens are drawn"},
    {"top_p|topp|min_p|typical_p|nucleus|repetition_penalty|repeat_penalty|presence_penalty|"
     "frequency_penalty|num_beams|beam|beams|beam_width|penalty_alpha|mirostat", "--top-k K",
     "draws are narrowed by --temperature and --top-k alone"},
    {"s|random_seed|manual_seed|rng_seed", "--seed N", NULL},
    {"p|prompts|start|input|i|text|message|prefix|query|begin|input_text|prompt_text|user_prompt",
     "--prompt TEXT", NULL},
    {"f|file|prompt_file|input_file|prompt_path", "--prompt TEXT",
     "as in --prompt \"$(cat FILE)\""},
    {"input_ids|token_ids|prompt_ids|prompt_tokens|prompt_token_ids", "--ids N,N,...", NULL},
    {"m|model|model_path|model_name|model_name_or_path|model_id|hf_repo|pretrained|ckpt|ckpt_path|"
     "ckpt_dir|checkpoint|checkpoint_path|checkpoint_dir|weights|load|load_from|init_from|out_dir|"
     "run|run_dir|dir|folder|path|job.config_file|config|tokenizer", NULL,
     "the folder of the weights is the first word, as in `plait generate FOLDER --prompt TEXT`"},
    {"o|out|output|output_file|output_path|out_file|save|save_path|log_file", NULL, stdout_only},
    {"num_samples|n_samples|num_return_sequences|samples|best_of|num_outputs|batch_size|b", NULL,
     "a call writes one text; call again with another --seed N"},
    {"ignore_eos|no_eos|ignore_eos_token", "--ignore-eot", NULL},
    {"eos|stop|eos_token_id|stop_token|stop_strings|stop_words|reverse_prompt|r", "--ignore-eot",
     "a text ends where the model ends it, or after --tokens N"},
    {"logprobs|output_logits|output_scores|return_logits|prompt_logprobs", "--logits FILE", NULL},
    {"skip_special_tokens|escape|binary", "--raw", NULL},
    {"n_gpu_layers|gpu_layers|ngl|use_gpu|cuda|gpu", "train.device=cuda", NULL},
    {"c|ctx|ctx_size", "model.seq=N", NULL},
    {"np|nproc|num_ranks|nprocs|num_gpus|num_processes", "--ranks N", NULL},
    {"interactive|chat|conversation|cnv|stream|streaming|instruct|system_prompt|chat_template",
     NULL, "a call continues one prompt, and writes tokens as they come"},
    {NULL, NULL, NULL},
};

const struct cmd_name cmd_names_run[] = {
    {"config|config_file|config_path|config_name|cfg|conf|c|f|file|yaml_file|job.config_file|args",
     NULL, file_first},
    {"set|override|overrides|opts|x", NULL, "keys are words KEY=VALUE, without an option"},
    {"np|nproc|nprocs|num_ranks|n_ranks|num_proc", "--ranks N", NULL},
    {"o|out|output", "run.dir=FOLDER", NULL},
    {"tracing|timeline|chrome_trace|perfetto", "--trace", NULL},
    {"dry_run|plan|estimate|validate|check|print_config|memory_estimation", NULL,
     "`plait check FILE` says what a run will do, and with --yaml the whole configuration"},
    {"gpu|cuda", "train.device=cuda", NULL},
    {"quiet|verbose|debug", NULL,
     "train.log_every=N sets how often a line stays; each step is a line of metrics.jsonl"},
    {NULL, NULL, NULL},
};

const struct cmd_name cmd_names_sim[] = {
    {"schedule|s|schedule_name|pipeline_schedule|name|csv|schedule_file|file|f|i|input", NULL,
     "the schedule, or its file, is the first word, as in `plait sim 1f1b -p 4 -m 8`"},
    {"pp|pp_size|pp_degree|num_ranks|n_ranks|world_size|devices|num_devices|n|np|stages|num_stages|"
     "pipeline_parallel_size|gpus|num_gpus", "-p P", "pipeline ranks; -v V stages of each"},
    {"n_microbatches|num_microbatches|micro_batches|microbatch|mb|nmb|batches|accumulation_steps|"
     "gradient_accumulation_steps", "-m M", NULL},
    {"vp|vpp|virtual_stages|num_chunks|num_model_chunks|interleave|stages_per_rank", "-v V", NULL},
    {"f_time|t_f|tforward|forward|forward_time|fwd|f_cost", "--tf T", NULL},
    {"b_time|t_b|tbackward|backward|backward_time|bwd|b_cost", "--tb T", NULL},
    {"w_time|t_w|weight_time|wgrad|w_cost", "--tw T", NULL},
    {"comm|comm_time|p2p|t_c|tcomm|c_cost|t_comm|p2p_time", "--latency T", NULL},
    {"mem|memory|memory_limit|max_mem|max_memory|activations", "--limit A", NULL},
    {"o|out|output|save|plot|page|viz|open|dashboard", "--html FILE",
     "--svg FILE is a picture, --gantt a chart on the terminal"},
    {"png|pdf|image|picture|fig|figure", "--svg FILE", NULL},
    {"chart|draw|ascii|show|timeline|diagram|print", "--gantt", NULL},
    {"trace|chrome_trace|chrome|trace_file", "--perfetto FILE", NULL},
    {"format|output_format", "--json", "or --text, or --gantt; without one, a summary"},
    {"config|config_file|cfg|conf|c|yaml|conf_file", "--model FILE", NULL},
    {"grid|sweep|all", "--table A,B", NULL},
    {"schedules|vs|diff|against", "--compare A,B", NULL},
    {"help_schedules|ls|available", "--list", NULL},
    {NULL, NULL, NULL},
};

const struct cmd_name cmd_names_compare[] = {
    {"run|run_dir|dir|folder|trace|input|i|logdir|log_dir|trace_dir|path", NULL,
     "the run's folder is the first word, as in `plait compare RUN`"},
    {"warmup|wait|skip_steps|skip_first|discard|ignore", "--skip N", NULL},
    {"o|out|output|save|plot|page|open", "--html FILE", "--svg FILE is a picture"},
    {"png|pdf|image|picture", "--svg FILE", NULL},
    {"chrome|chrome_trace|timeline|trace_file|export", "--perfetto FILE", NULL},
    {"format|output_format", "--json", NULL},
    {"csv|times|cost", "--costs FILE", NULL},
    {NULL, NULL, NULL},
};

const struct cmd_name cmd_names_export[] = {
    {"run|run_dir|dir|input|i|in|checkpoint|ckpt|checkpoint_dir|ckpt_dir|checkpoint_path|load|"
     "model|model_path|path|folder|source|src|input_dir", NULL,
     "the run's folder is the first word, as in `plait export RUN -o DIR`"},
    {"step|iter|iteration|ckpt_step|checkpoint_step|best|last|latest|newest", NULL,
     "the step, or best, is the second word, as in `plait export RUN 100 -o DIR`"},
    {"out|out_dir|output_dir|output_path|save|save_dir|save_path|dest|destination|target|"
     "output_folder", "--output DIR", NULL},
    {"type|torch_dtype|precision|outtype|out_type|data_type", "--dtype f32|bf16|f16", NULL},
    {"fp16|half|float16|bf16|bfloat16|fp32|float32", "--dtype f32|bf16|f16", NULL},
    {"max_shard_size|shard|max_size|split_max_size|shard_bytes", "--shard-size GB", NULL},
    {"safe_serialization|safetensors|format", NULL, "safetensors are what is written"},
    {"force|overwrite|f|y", NULL, "no folder is written over; name another"},
    {NULL, NULL, NULL},
};

const struct cmd_name cmd_names_prepare[] = {
    {"i|input|inputs|input_file|text|file|files|f|in|src|source|data|dataset|path|input_path", NULL,
     "texts are words without an option, as in `plait data prepare book.txt -o book.tok`"},
    {"out|output_prefix|output_path|output_file|output_dir|out_file|dest|destination|outfile",
     "--output FILE", NULL},
    {"tokenizer_type|tokenizer_name|tokenizer_path|tokenizer_model|model|encoding|enc|vocab_file|"
     "tok|model_desc|t", "--tokenizer NAME", NULL},
    {"val_fraction|split|test_size|val_split|train_split|valid|val|val_ratio|shard_size|workers|"
     "num_workers|num_proc|append_eod|append_eos|shuffle|json_keys", NULL,
     "texts are taken in their order into one file; prepare those to validate on by another call"},
    {NULL, NULL, NULL},
};

const struct cmd_name cmd_names_import[] = {
    {"i|input|inputs|input_file|csv|table|file|files|f|in|src|source|data|dataset|path", NULL,
     "the table is a word without an option, as in `plait data import digits.csv -o digits.rows`"},
    {"out|output_path|output_file|out_file|dest|destination|outfile", "--output FILE", NULL},
    {"label|label_column|label_col|target|target_column|target_col|y", "--labels first|last", NULL},
    {"skip_header|skiprows|skip_rows|has_header|headers", "--header", "one line is passed over"},
    {"size|image_size|img_size|height|width", "--shape HxW", NULL},
    {"resize_to|out_shape|target_size|interpolate", "--resize HxW", NULL},
    {"rescale|normalize|divide|factor", "--scale X", "0.0625 makes 0 to 16 0 to 1"},
    {"num_classes|n_classes|nclasses", "--classes N", NULL},
    {NULL, NULL, NULL},
};

const struct cmd_name cmd_names_random[] = {
    {"out|output_path|output_file|out_file|dest|destination|file|f|path", "--output FILE", NULL},
    {"num_tokens|n_tokens|size|count|n|length|len|max_tokens|samples", "--tokens N", NULL},
    {"vocab_size|n_vocab|num_ids|v", "--vocab N", NULL},
    {"n_features|num_features|dim|columns|inputs", "--features N", NULL},
    {"n_classes|num_classes|labels", "--classes N", NULL},
    {"n_rows|num_rows|n_samples|num_samples", "--rows N", NULL},
    {"random_seed|s|manual_seed|rng_seed", "--seed N", NULL},
    {NULL, NULL, NULL},
};

/* In any case, - as good as _; whole word. */
const struct cmd_name *cmd_name_find(const struct cmd_name *list, const char *word)
{
    for (; list && list->names; list++)
        for (const char *s = list->names; s; s = strchr(s, '|')) {
            size_t i = 0, n = strcspn(s += *s == '|', "|");
            while (i < n && s[i] == (word[i] == '-' ? '_' : tolower((unsigned char)word[i])))
                i++;
            if (i == n && !word[i])
                return list;
        }
    return NULL;
}
