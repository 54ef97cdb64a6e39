/* SPDX-License-Identifier: Apache-2.0
 *
 * The option table of the engine: rows that are well made, values that survive print and read, the
 * example files, keys that wait for others, names of other programs. What is derived from options:
 * test_options_derived.c.
 */
#include "config/options.h"

#include "base/fs.h"
#include "base/mem.h"
#include "comm/comm.h"
#include "plait.h"
#include "test.h"

#include <dirent.h>
#include <stdlib.h>

static struct options fresh(void)
{
    struct options o;
    CHECK_OK(conf_defaults(&options_table, &o));
    return o;
}

static size_t row_bytes(const struct conf_row *row)
{
    switch (row->type) {
    case CONF_INT:
        return sizeof(int64_t);
    case CONF_REAL:
        return sizeof(double);
    case CONF_BOOL:
        return sizeof(bool);
    case CONF_WORD:
        return sizeof(int);
    case CONF_STRING:
        return row->size;
    case CONF_NAMES:
        return sizeof(struct conf_names);
    case CONF_INTS:
        return sizeof(struct conf_ints);
    }
    return 0;
}

/* Rows lie inside the struct, apart from each other, groups together, keys unique. */
static void rows_are_well_made(void)
{
    static char taken[sizeof(struct options)];
    memset(taken, 0, sizeof taken);
    for (int i = 0; i < options_table.n; i++) {
        const struct conf_row *row = &options_table.row[i];
        size_t n = row_bytes(row);
        CHECK(n > 0 && row->offset + n <= sizeof(struct options));
        for (size_t b = row->offset; b < row->offset + n; b++)
            test_check(!taken[b]++, __FILE__, __LINE__, "%s shares bytes", row->key);
        CHECK(conf_find(&options_table, row->key) == row);
        CHECK(strchr(row->key, '.') != NULL && strchr(row->key, '.') == strrchr(row->key, '.'));
        CHECK(row->help[0] && row->help[strlen(row->help) - 1] != '.');
        CHECK(row->type == CONF_WORD ? row->words != NULL : row->words == NULL);
        CHECK((row->type != CONF_INT && row->type != CONF_REAL) || row->min < row->max);
        CHECK(row->type != CONF_INT || fabs(row->max) <= 9007199254740992.0);
    }
    /* A group that appears twice would be printed twice, and the file then refused. */
    for (int i = 2; i < options_table.n; i++)
        for (int j = 0; j < i - 1; j++) {
            const char *a = options_table.row[j].key, *b = options_table.row[i].key;
            const char *between = options_table.row[i - 1].key;
            size_t n = strcspn(b, ".") + 1;
            if (strncmp(a, b, n) == 0)
                CHECK(strncmp(between, b, n) == 0);
        }
}

/* Words of rows stand for enums of the engine; their order is a promise. */
static void words_match_enums(void)
{
    struct options o = fresh();
    static const struct { const char *word; size_t offset; int want; } c[] = {
        {"model.kind=gpt", offsetof(struct options, model.kind), MODEL_GPT},
        {"model.kind=llama", offsetof(struct options, model.kind), MODEL_LLAMA},
        {"train.dtype=f32", offsetof(struct options, train.dtype), OPTIONS_F32},
        {"train.dtype=bf16", offsetof(struct options, train.dtype), OPTIONS_BF16},
        {"train.device=cpu", offsetof(struct options, train.device), OPTIONS_CPU},
        {"train.device=ref", offsetof(struct options, train.device), OPTIONS_REF},
        {"train.device=null", offsetof(struct options, train.device), OPTIONS_NULL},
        {"parallel.tp_overlap=auto", offsetof(struct options, parallel.tp_overlap),
         OPTIONS_TP_AUTO},
        {"parallel.tp_overlap=on", offsetof(struct options, parallel.tp_overlap), OPTIONS_TP_ON},
        {"parallel.tp_overlap=off", offsetof(struct options, parallel.tp_overlap), OPTIONS_TP_OFF},
        {"parallel.zero=0", offsetof(struct options, parallel.zero), 0},
        {"parallel.zero=1", offsetof(struct options, parallel.zero), 1},
        {"train.transport=thread", offsetof(struct options, train.transport), COMM_THREAD},
        {"train.transport=mpi", offsetof(struct options, train.transport), COMM_MPI},
        {"optim.schedule=constant", offsetof(struct options, optim.schedule), OPTIONS_CONSTANT},
        {"optim.schedule=linear", offsetof(struct options, optim.schedule), OPTIONS_LINEAR},
        {"optim.schedule=cosine", offsetof(struct options, optim.schedule), OPTIONS_COSINE},
        {"optim.schedule=wsd", offsetof(struct options, optim.schedule), OPTIONS_WSD},
    };
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        int got;
        CHECK_OK(conf_set(&options_table, &o, c[i].word));
        memcpy(&got, (char *)&o + c[i].offset, sizeof got);
        test_check(got == c[i].want, __FILE__, __LINE__, "%s is %d", c[i].word, got);
    }
}

/* Word i of "gpt|llama" behind "key=", K as 1, in capitals if asked; false beyond the last. */
static bool key_and_word(const char *key, const char *words, int i, bool capitals, char buf[128])
{
    for (; i > 0 && words; i--)
        words = (words = strchr(words, '|')) ? words + 1 : NULL;
    if (!words)
        return false;
    int n = snprintf(buf, 128, "%s=", key);
    snprintf(buf + n, 128 - (size_t)n, "%.*s", (int)strcspn(words, "|"), words);
    char *number = strstr(buf + n, ":K");
    if (number)
        number[1] = '1';
    for (char *c = buf + n; capitals && *c; c++)
        *c = (char)(*c >= 'a' && *c <= 'z' ? *c - 'a' + 'A' : *c);
    return true;
}

/* Refused, and the message ends with what was meant. */
static void refused_with(const char *word, const char *end)
{
    struct options o = fresh();
    enum err err = conf_set(&options_table, &o, word);
    const char *said = err == ERR_OK ? "" : err_text();
    size_t n = strlen(said), tail = strlen(end);
    test_check(err == ERR_CONFIG && n > tail && strcmp(said + n - tail, end) == 0, __FILE__,
               __LINE__, "%s: wanted \"...%s\", got \"%s\"", word, end, said);
}

/* What users of other programs write is answered with the legal word for it, where there is one. */
static void hints_are_right(void)
{
    for (int i = 0; i < options_table.hints; i++) {
        const struct conf_hint *h = &options_table.hint[i];
        const struct conf_row *row = conf_find(&options_table, h->key);
        struct options o = fresh();
        char word[128], end[256];
        CHECK(row && row->type == CONF_WORD);
        CHECK(!h->means == !!h->why);
        if (h->means) {
            CHECK(key_and_word(h->key, h->means, 0, false, word));
            CHECK_OK(conf_set(&options_table, &o, word));
        }
        snprintf(end, sizeof end, "; %s%s", h->means ? "the nearest is " : "",
                 h->means ? h->means : h->why);
        for (int j = 0; key_and_word(h->key, h->words, j / 2, j % 2, word); j++)
            refused_with(word, end);
    }
    refused_with("train.device=gpu", "; the nearest is cuda");
    refused_with("train.dtype=bfloat16", "; the nearest is bf16");
    refused_with("train.recompute=on", "; the nearest is full");
    refused_with("train.graph=no", "; the nearest is off");
    refused_with("parallel.tp_overlap=true", "; the nearest is on");
    refused_with("parallel.tp_overlap=no", "; the nearest is off");
    refused_with("parallel.zero=yes", "; the nearest is 1");
    refused_with("parallel.zero=3", "not sharded yet (ZeRO stages 2 and 3)");
    refused_with("train.transport=nccl", ", with either");
}

/* Capitals are nearest to their own word, and each flag knows how others write it. */
static void capitals_and_flags_are_understood(void)
{
    for (int i = 0; i < options_table.n; i++) {
        const struct conf_row *row = &options_table.row[i];
        char word[128], legal[128], end[160];
        for (int j = 0; row->type == CONF_WORD &&
                        key_and_word(row->key, row->words, j, true, word); j++) {
            key_and_word(row->key, row->words, j, false, legal);
            snprintf(end, sizeof end, "; the nearest is %s", strchr(legal, '=') + 1);
            if (strcmp(word, legal) != 0) /* it has letters */
                refused_with(word, end);
        }
        for (int j = 0; row->type == CONF_BOOL && key_and_word(row->key, "on|1|True", j, false,
                                                               word); j++)
            refused_with(word, "; the nearest is true");
        for (int j = 0; row->type == CONF_BOOL && key_and_word(row->key, "off|0|No", j, false,
                                                               word); j++)
            refused_with(word, "; the nearest is false");
    }
}

/* A random legal value of a row as text. */
static void random_value(const struct conf_row *row, char *buf, size_t size)
{
    if (row->type == CONF_INT)
        snprintf(buf, size, "%lld",
                 (long long)test_range((int64_t)row->min, (int64_t)row->max));
    else if (row->type == CONF_REAL)
        snprintf(buf, size, "%.17g", test_real(row->min, row->max));
    else if (row->type == CONF_BOOL)
        snprintf(buf, size, "%s", test_range(0, 1) ? "true" : "false");
    else if (row->type == CONF_INTS)
        snprintf(buf, size, "%lld,%.0f",
                 (long long)test_range((int64_t)row->min, (int64_t)row->max), row->max);
    else if (row->type == CONF_NAMES)
        snprintf(buf, size, "a.%lld,\"b, \\\"c\\\"\",d", (long long)test_range(0, 1000));
    else if (row->type == CONF_STRING)
        snprintf(buf, size, "a \"%lld\" \\ #: b", (long long)test_range(0, 1000));
    else
        snprintf(buf, size, "%.*s", (int)strcspn(row->words, "|"), row->words);
}

static void printed_reads_back_equal(void)
{
    for (int round = 0; round < 50; round++) {
        struct options o = fresh(), back = fresh();
        struct text t = {0};
        char *yaml;
        for (int i = 0; i < options_table.n; i++) {
            char value[128], word[256];
            random_value(&options_table.row[i], value, sizeof value);
            snprintf(word, sizeof word, "%s=%s", options_table.row[i].key, value);
            CHECK_OK(conf_set(&options_table, &o, word));
        }
        conf_print(&options_table, &o, &t);
        CHECK_OK(text_done(&t, &yaml));
        CHECK_OK(conf_read_text(&options_table, &back, "printed", yaml, (int64_t)strlen(yaml)));
        CHECK(memcmp(&o, &back, sizeof o) == 0);
        mem_free(yaml);
    }
}

/* What `plait check` does, for each file of configs/. */
static void example_files_are_legal(void)
{
    DIR *dir = opendir(PLAIT_SOURCE_DIR "/configs");
    int files = 0;
    CHECK(dir != NULL);
    for (struct dirent *e = dir ? readdir(dir) : NULL; e; e = readdir(dir)) {
        struct plait_config *c = NULL;
        char *path = NULL, *report = NULL;
        if (!strstr(e->d_name, ".yaml"))
            continue;
        CHECK_OK(fs_join(PLAIT_SOURCE_DIR "/configs", e->d_name, &path));
        CHECK_INT(plait_config_new(&c), PLAIT_OK);
        int code = plait_config_read(c, path);
        if (code == PLAIT_OK)
            code = plait_config_check(c, 0, &report);
        test_check(code == PLAIT_OK, __FILE__, __LINE__, "%s: %s", e->d_name, plait_error());
        plait_free(report);
        plait_config_free(c);
        mem_free(path);
        files++;
    }
    if (dir)
        closedir(dir);
    CHECK_INT(files, 6);
}

/* A file and a word say which keys they set, be it to the default; a refused word says nothing. */
static void keys_that_are_given(void)
{
    struct options o = fresh(), copy;
    static const char yaml[] = "model:\n  layers: 4\ntrain:\n  steps: 7\n";
    for (int i = 0; i < options_table.n; i++)
        CHECK(!conf_given(&options_table, &o, options_table.row[i].key));
    CHECK_OK(conf_read_text(&options_table, &o, "run.yaml", yaml, sizeof yaml - 1));
    CHECK_OK(conf_set(&options_table, &o, "optim.lr=3e-4"));
    CHECK_ERR(conf_set(&options_table, &o, "model.hidden=-1"), ERR_CONFIG, "model.hidden");
    copy = o;
    for (int i = 0; i < options_table.n; i++) {
        const char *key = options_table.row[i].key;
        bool given = strcmp(key, "model.layers") == 0 || strcmp(key, "train.steps") == 0 ||
                     strcmp(key, "optim.lr") == 0;
        test_check(conf_given(&options_table, &copy, key) == given, __FILE__, __LINE__, "%s", key);
    }
    CHECK_OK(conf_defaults(&options_table, &o));
    CHECK(!conf_given(&options_table, &o, "model.layers"));
}

/* Keys that wait for others: idle with the defaults, at work with these words. No other key is. */
static void idle_keys_wait_for_others(void)
{
    static const struct { const char *key, *why, *works[2]; } c[] = {
        {"parallel.tp_overlap", "parallel.tp is 1", {"parallel.tp=2", NULL}},
        {"parallel.tp_rows", "parallel.tp is 1", {"parallel.tp=2", "parallel.tp_overlap=on"}},
        {"parallel.sp", "parallel.tp is 1", {"parallel.tp=2", NULL}},
        {"parallel.zero", "parallel.dp is 1", {"parallel.dp=2", NULL}},
        {"optim.decay_keep", "run.resume is empty", {"run.resume=auto", NULL}},
        {"run.resume_insist", "run.resume is empty", {"run.resume=auto", NULL}},
        {"train.deterministic", "train.device cuda", {"train.device=cuda", NULL}},
        {"train.hang_timeout", "one rank", {"parallel.tp=2", NULL}},
        {"train.share_gpus", "one rank", {"parallel.tp=2", NULL}},
        {"model.rope_theta", "model.kind gpt", {"model.kind=llama", NULL}},
        {"model.widths", "model.kind mlp alone", {"model.kind=mlp", NULL}},
    };
    int idle = 0;
    struct options o = fresh();
    for (int i = 0; i < options_table.n; i++)
        idle += options_idle(&o, options_table.row[i].key) != NULL;
    CHECK_INT(idle, (int)(sizeof c / sizeof *c));
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        o = fresh();
        const char *why = options_idle(&o, c[i].key);
        test_check(why && strstr(why, c[i].why), __FILE__, __LINE__, "%s: %s", c[i].key,
                   why ? why : "at work");
        for (int w = 0; w < 2 && c[i].works[w]; w++) {
            CHECK(options_idle(&o, c[i].key) != NULL);
            CHECK_OK(conf_set(&options_table, &o, c[i].works[w]));
        }
        CHECK(!options_idle(&o, c[i].key));
    }
}

/* ---- names of other programs ---- */

static bool is_group(const char *word)
{
    size_t n = strlen(word);
    for (int i = 0; i < options_table.n; i++)
        if (strncmp(options_table.row[i].key, word, n) == 0 && options_table.row[i].key[n] == '.')
            return true;
    return false;
}

/* Each alias stands for what there is, says something, and is reached: bare, behind a group, in
 * capitals and with dashes. */
static void aliases_lead_to_keys(void)
{
    int names = 0;
    for (const struct conf_alias *a = options_alias; a->names; a++) {
        bool key = a->means && conf_find(&options_table, a->means);
        test_check(a->means ? key || (is_group(a->means) && !a->how) : a->how != NULL, __FILE__,
                   __LINE__, "%.40s means %s", a->names, a->means ? a->means : "nothing");
        if (a->means && !key)
            continue; /* test_other_names.c */
        for (const char *s = a->names; s; s = strchr(s, '|')) {
            char name[64], word[128];
            s += *s == '|';
            snprintf(name, sizeof name, "%.*s", (int)strcspn(s, "|"), s);
            names++;
            for (int form = 0; form < 3; form++) {
                snprintf(word, sizeof word, "%s%s=1", form == 1 ? "train." : "", name);
                for (char *c = word; form == 2 && *c; c++)
                    *c = *c == '_' ? '-' : *c >= 'a' && *c <= 'z' ? (char)(*c - 32) : *c;
                struct options o;
                CHECK_OK(conf_defaults(&options_table, &o));
                enum err err = conf_set(&options_table, &o, word);
                char end[512];
                snprintf(end, sizeof end, "%s%s", a->means ? "; did you mean " : "; ",
                         a->means ? a->means : a->how);
                if (form == 1 && strchr(name, '.'))
                    continue;
                test_check(err == ERR_CONFIG && strstr(err_text(), end), __FILE__, __LINE__,
                           "%s: %s", word, err_text());
            }
        }
    }
    CHECK(names > 200);
}

/* Keys of real configurations, as their programs write them, and what the answer has to name. */
static const char *const elsewhere[][2] = {
    /* nanoGPT */
    {"n_layer", "model.layers"}, {"n_head", "model.heads"}, {"n_embd", "model.hidden"},
    {"block_size", "model.seq"}, {"bias", "model.kind"}, {"learning_rate", "optim.lr"},
    {"max_iters", "train.steps"}, {"weight_decay", "optim.decay"}, {"beta1", "optim.beta1"},
    {"grad_clip", "optim.clip"}, {"warmup_iters", "optim.warmup"}, {"min_lr", "optim.lr_min"},
    {"lr_decay_iters", "train.steps"}, {"batch_size", "train.batch"},
    {"gradient_accumulation_steps", "parallel.microbatch"}, {"device", "train.device"},
    {"eval_interval", "train.valid_every"}, {"eval_iters", "train.valid_batches"},
    {"out_dir", "run.dir"}, {"dataset", "data.train"}, {"dtype", "train.dtype"},
    {"backend", "train.transport"}, {"wandb_log", "metrics.jsonl"}, {"compile", "train.dtype"},
    {"dropout", "model.dropout"}, {"decay_lr", "optim.schedule"},
    {"log_interval", "train.log_every"}, {"always_save_checkpoint", "run.save"},
    {"init_from", "model.init"}, {"logging_steps", "train.log_every"},
    /* llm.c */
    {"input_bin", "data.train"}, {"input_val_bin", "data.valid"}, {"output_dir", "run.dir"},
    {"sequence_length", "model.seq"}, {"total_batch_size", "train.batch"},
    {"num_iterations", "train.steps"}, {"learning_rate_decay_frac", "optim.lr_min"},
    {"val_loss_every", "train.valid_every"}, {"val_max_steps", "train.valid_batches"},
    {"zero_stage", "parallel.zero"}, {"flash", "train.dtype"},
    /* Megatron-LM */
    {"num-layers", "model.layers"}, {"hidden-size", "model.hidden"},
    {"ffn-hidden-size", "model.ffn"}, {"num-attention-heads", "model.heads"},
    {"num-query-groups", "model.kv_heads"}, {"kv-channels", "model.head_dim"},
    {"max-position-embeddings", "model.seq"}, {"seq-length", "model.seq"},
    {"tensor-model-parallel-size", "parallel.tp"}, {"sequence-parallel", "parallel.sp"},
    {"pipeline-model-parallel-size", "parallel.pp"},
    {"num-layers-per-virtual-pipeline-stage", "parallel.chunks"},
    {"micro-batch-size", "parallel.microbatch"}, {"global-batch-size", "train.batch"},
    {"train-iters", "train.steps"}, {"lr-decay-style", "optim.schedule"},
    {"lr-warmup-iters", "optim.warmup"}, {"lr-warmup-fraction", "optim.warmup"},
    {"adam-beta2", "optim.beta2"}, {"adam-eps", "optim.eps"}, {"clip-grad", "optim.clip"},
    {"init-method-std", "model.init_std"}, {"hidden-dropout", "model.dropout"},
    {"untie-embeddings-and-output-weights", "model.tied"}, {"rotary-base", "model.rope_theta"},
    {"norm-epsilon", "model.norm_eps"}, {"recompute-granularity", "train.recompute"},
    {"use-distributed-optimizer", "parallel.zero"}, {"data-path", "data.train"},
    {"distributed-backend", "train.transport"}, {"tp-comm-overlap", "parallel.tp_overlap"},
    {"microbatch-group-size-per-virtual-pipeline-stage", "parallel.group"},
    {"lr-wsd-decay-iters", "optim.decay_steps"}, {"context-parallel-size", "parallel.tp"},
    {"bf16", "train.dtype"}, {"parallel.cp", "no context or expert parallelism"},
    {"parallel.ep", "no context or expert parallelism"},
    {"context_parallel", "no context or expert parallelism"},
    {"parallel.expert_parallel", "no context or expert parallelism"},
    {"parallel.tensor_parallel", "parallel.tp"},
    /* torchtitan */
    {"training.local_batch_size", "parallel.microbatch"}, {"training.seq_len", "model.seq"},
    {"training.max_norm", "optim.clip"}, {"optimizer.lr", "optim.lr"},
    {"lr_scheduler.warmup_steps", "optim.warmup"}, {"lr_scheduler.decay_ratio",
                                                    "optim.decay_steps"},
    {"lr_scheduler.min_lr_factor", "optim.lr_min"},
    {"parallelism.tensor_parallel_degree", "parallel.tp"},
    {"parallelism.pipeline_parallel_degree", "parallel.pp"},
    {"parallelism.pipeline_parallel_schedule", "parallel.schedule"},
    {"parallelism.data_parallel_shard_degree", "parallel.zero"},
    {"parallelism.data_parallel_replicate_degree", "parallel.dp"},
    {"job.dump_folder", "run.dir"}, {"profiling.enable_profiling", "train.profile"},
    {"activation_checkpoint.mode", "train.recompute"}, {"model.flavor", "model.kind"},
    {"validation.freq", "train.valid_every"}, {"comm.train_timeout_seconds",
                                               "train.hang_timeout"},
    /* DeepSpeed */
    {"train_batch_size", "train.batch"}, {"train_micro_batch_size_per_gpu",
                                          "parallel.microbatch"},
    {"gradient_clipping", "optim.clip"}, {"zero_optimization.stage", "parallel.zero"},
    {"bf16.enabled", "train.dtype"}, {"scheduler.params.warmup_num_steps", "optim.warmup"},
    {"optimizer.params.betas", "optim.beta1"}, {"wall_clock_breakdown", "train.profile"},
    /* Hugging Face */
    {"hidden_size", "model.hidden"}, {"num_hidden_layers", "model.layers"},
    {"intermediate_size", "model.ffn"}, {"num_key_value_heads", "model.kv_heads"},
    {"tie_word_embeddings", "model.tied"}, {"rms_norm_eps", "model.norm_eps"},
    {"initializer_range", "model.init_std"}, {"n_positions", "model.seq"},
    {"resid_pdrop", "model.dropout"}, {"model_type", "model.kind"}, {"vocab_size",
                                                                    "model.vocab"},
    {"torch_dtype", "train.dtype"}, {"rope_scaling", "model.rope_theta"},
    {"per_device_train_batch_size", "parallel.microbatch"}, {"max_steps", "train.steps"},
    {"num_train_epochs", "train.steps"}, {"lr_scheduler_type", "optim.schedule"},
    {"warmup_ratio", "optim.warmup"}, {"max_grad_norm", "optim.clip"},
    {"gradient_checkpointing", "train.recompute"}, {"eval_steps", "train.valid_every"},
    {"report_to", "metrics.jsonl"}, {"adam_epsilon", "optim.eps"}, {"grad_accum",
                                                                   "parallel.microbatch"},
};

static void other_programs_keys_are_known(void)
{
    for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++) {
        char word[128];
        struct options o;
        CHECK_OK(conf_defaults(&options_table, &o));
        snprintf(word, sizeof word, "%s=1", elsewhere[i][0]);
        enum err err = conf_set(&options_table, &o, word);
        test_check(err == ERR_CONFIG && strstr(err_text(), elsewhere[i][1]), __FILE__,
                   __LINE__, "%s: %s", word, err_text());
    }
}

static const struct test_case cases[] = {
    {"aliases_lead_to_keys", aliases_lead_to_keys},
    {"other_programs_keys_are_known", other_programs_keys_are_known},
    {"hints_are_right", hints_are_right},
    {"capitals_and_flags_are_understood", capitals_and_flags_are_understood},
    {"keys_that_are_given", keys_that_are_given},
    {"idle_keys_wait_for_others", idle_keys_wait_for_others},
    {"rows_are_well_made", rows_are_well_made},
    {"words_match_enums", words_match_enums},
    {"printed_reads_back_equal", printed_reads_back_equal},
    {"example_files_are_legal", example_files_are_legal},
};
TEST_MAIN(cases)
