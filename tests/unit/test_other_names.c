/* SPDX-License-Identifier: Apache-2.0
 *
 * Who comes from another program is answered with the name here: options of every verb (all that
 * the tables know, and those of well-known commands by hand), keys in `plait help`, schedules by
 * their classes, words of keys. What is proposed exists.
 */
#include "cmd.h"
#include "plait.h"
#include "program.h"
#include "config/options.h"
#include "test.h"

static struct outcome said;

static void wants(const char *what, const char *says)
{
    test_check(said.code == PLAIT_CONFIG && strstr(said.err, says) &&
                   strchr(said.err, '\n') == strrchr(said.err, '\n'),
               __FILE__, __LINE__, "%s: wanted \"%s\", got %d %s", what, says, said.code, said.err);
}

/* Name i of "a|b"; false behind the last. */
static bool name_at(const char *names, int i, char out[64])
{
    for (; i > 0 && names; i--) {
        names = strchr(names, '|');
        names += names != NULL;
    }
    snprintf(out, 64, "%.*s", names ? (int)strcspn(names, "|") : 0, names ? names : "");
    return names != NULL;
}

/* ---- options ---- */

struct verb { const char *word[2]; const struct cmd_name *names; };

static void ask(const struct verb *v, const char *option, const char *value)
{
    if (v->word[1])
        RUN(&said, v->word[0], v->word[1], option, value);
    else
        RUN(&said, v->word[0], option, value);
}

/* What a row proposes is an option of the verb. */
static void is_an_option(const struct verb *v, const char *means)
{
    char option[32];
    snprintf(option, sizeof option, "%.*s", (int)strcspn(means, " "), means);
    if (*means != '-')
        return;
    ask(v, option, "1");
    test_check(!strstr(said.err, "there is no option"), __FILE__, __LINE__, "%s %s: %s", v->word[0],
               means, said.err);
}

static void each_name_is_answered(const struct verb *v)
{
    char name[64], option[70];
    for (const struct cmd_name *row = v->names; row->names; row++) {
        if (row->means)
            is_an_option(v, row->means);
        for (int i = 0; name_at(row->names, i, name); i++) {
            snprintf(option, sizeof option, "%s%s", name[1] ? "--" : "-", name);
            for (char *s = option; *s && i % 2; s++) /* --max-tokens as well as --max_tokens */
                *s = *s == '_' ? '-' : *s;
            ask(v, option, "5");
            wants(option, "there is no option -");
            wants(option, row->means ? row->means : row->how);
        }
    }
}

static void options_of_other_programs(void)
{
    static const struct verb verbs[] = {
        {{"generate", NULL}, cmd_names_generate}, {{"train", NULL}, cmd_names_run},
        {{"sim", NULL}, cmd_names_sim}, {{"compare", NULL}, cmd_names_compare},
        {{"data", "prepare"}, cmd_names_prepare}, {{"data", "random"}, cmd_names_random},
    };
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++)
        each_name_is_answered(&verbs[i]);
}

static void well_known_commands(void)
{
    static const struct { const char *word[6], *says; } c[] = {
        {{"generate", "run", "--max-tokens", "5"}, "did you mean --tokens N"},
        {{"generate", "run", "--max-new-tokens=5"}, "did you mean --tokens N"},
        {{"generate", "run", "--max_new_tokens", "5"}, "did you mean --tokens N"},
        {{"generate", "run", "--n-predict", "5"}, "did you mean --tokens N"},
        {{"generate", "run", "--temp", "1"}, "did you mean --temperature X"},
        {{"generate", "run", "--top_k", "1"}, "--top-k"},
        {{"generate", "run", "--top-p", "1"}, "narrowed by --temperature and --top-k"},
        {{"generate", "run", "-p", "Once"}, "did you mean --prompt TEXT"},
        {{"generate", "run", "-ngl", "99"}, "did you mean train.device=cuda"},
        {{"generate", "run", "--tok", "9"}, "the nearest is --tokens"},
        {{"generate", "run", "--num-samples", "5"}, "call again with another --seed"},
        {{"generate", "-m", "run"}, "the folder of the weights is the first word"},
        {{"generate", "run", "Once upon a time"}, "--prompt \"Once upon a time\"`"},
        {{"generate", "run", "a = b"}, "--prompt \"a = b\"`"},
        {{"generate", "run", "parallel.tp=1", "Once", "upon"}, "--prompt \"Once\"`"},
        {{"generate", "--prompt", "Once"}, "`plait generate run --prompt TEXT`"},
        {{"train", "--seed", "5"}, "did you mean train.seed=VALUE"},
        {{"train", "--train.steps=5"}, "did you mean train.steps=VALUE"},
        {{"train", "--n_layer", "5"}, "did you mean model.layers"},
        {{"train", "--epochs", "5"}, "did you mean train.steps: steps of train.batch samples"},
        {{"train", "--bias", "5"}, "model.kind gpt has biases"},
        {{"train", "--config", "a.yaml"}, "the configuration's file is the first word"},
        {{"check", "--config-file=a.yaml"}, "the configuration's file is the first word"},
        {{"check", "--batch-size", "5"}, "did you mean train.batch"},
        {{"sim", "--num-microbatches", "5"}, "did you mean -m M"},
        {{"sim", "--tp", "5"}, "did you mean parallel.tp=VALUE"},
        {{"sim", "--schedule", "1f1b"}, "is the first word, as in `plait sim 1f1b"},
        {{"info", "--device", "5"}, "there is no option --device; usage: plait info"},
        {{"compare", "--steps", "5"}, "there is no option --steps; usage: plait compare"},
        {{"data", "prepare", "--tokens", "5"}, "there is no option --tokens; usage"},
        {{"data", "info", "--device", "5"}, "there is no option --device; usage"},
    };
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        program_run(&said, NULL, c[i].word);
        wants(c[i].word[2] ? c[i].word[2] : c[i].word[1], c[i].says);
    }
}

/* ---- keys, schedules, words ---- */

static void help_knows_keys_of_other_programs(void)
{
    char name[64], *text, row[80];
    for (const struct conf_alias *a = options_table.alias; a->names; a++)
        for (int i = 0; name_at(a->names, i, name); i++) {
            CHECK_INT(plait_config_explain(name, &text), PLAIT_OK);
            snprintf(row, sizeof row, "\n  %s%s", a->means ? a->means : "",
                     a->means && !strchr(a->means, '.') ? "." : "");
            test_check((!a->means || strstr(text, row)) && (!a->how || strstr(text, a->how)),
                       __FILE__, __LINE__, "%s: %s", name, text);
            plait_free(text);
        }
    RUN(&said, "help", "n_layer");
    CHECK_INT(said.code, PLAIT_OK);
    CHECK(strstr(said.out, "n_layer is model.layers here\n") != NULL);
    CHECK(strstr(said.out, "\n  model.layers ") != NULL);
    RUN(&said, "help", "sample");
    wants("help sample", "the nearest is generate");
}

static bool is_group(const struct conf_alias *a)
{
    return a->means && !strchr(a->means, '.');
}

/* What is said of `name: value` at the left margin of a file, of "name: {}" where no value. */
static const char *said_of_yaml(const char *name, const char *value)
{
    struct options o;
    char yaml[160];
    int n = snprintf(yaml, sizeof yaml, "%s: %s\n", name, value ? value : "{}");
    CHECK_OK(conf_defaults(&options_table, &o));
    enum err err = conf_read_text(&options_table, &o, "a.yaml", yaml, n);
    test_check(err == ERR_CONFIG && strstr(err_text(), "a.yaml:1: there is no "), __FILE__,
               __LINE__, "%s: %s", yaml, err_text());
    return err_text();
}

/* The name of a group elsewhere is answered with the one here where a group stands; as a key, bare
 * or in any group, with a key, a clause, or the page: a group has no value. */
static void a_key_is_not_answered_with_a_group(void)
{
    static const char *const group[] = {"", "model.", "parallel.", "train.", "optim.", "data.",
                                        "run."};
    char name[64], word[160], wrong[80];
    for (const struct conf_alias *a = options_table.alias; a->names; a++)
        for (int i = 0; is_group(a) && name_at(a->names, i, name); i++) {
            struct options o;
            CHECK_OK(conf_defaults(&options_table, &o));
            snprintf(wrong, sizeof wrong, "did you mean %s", a->means);
            test_check(strstr(said_of_yaml(name, NULL), wrong) != NULL, __FILE__, __LINE__,
                       "%s: %s", name, err_text());
            for (int g = 0; g <= 7; g++) {
                snprintf(word, sizeof word, "%s%s=1", g < 7 ? group[g] : "", name);
                const char *text = g == 7 ? said_of_yaml(name, "1") :
                                   conf_set(&options_table, &o, word) ? err_text() : "taken";
                const char *meant = strstr(text, "did you mean ");
                size_t n = meant ? strcspn(meant + 13, " :;,") : 0;
                test_check(strstr(text, "there is no ") &&
                               (!meant || memchr(meant + 13, '.', n)),
                           __FILE__, __LINE__, "%s: %s", word, text);
            }
        }
}

/* There is one optimizer, however another is asked for. */
static void the_optimizer_is_adamw(void)
{
    static const char *const word[] = {
        "optim.optimizer=muon", "optim.kind=muon", "optimizer=adam", "optimizer.type=AdamW",
        "optim.muon=true", "train.optimizer=sgd", "optim.name=lion"};
    for (size_t i = 0; i < sizeof word / sizeof *word; i++) {
        struct options o;
        CHECK_OK(conf_defaults(&options_table, &o));
        CHECK_ERR(conf_set(&options_table, &o, word[i]), ERR_CONFIG, "AdamW is the only optimizer");
    }
    CHECK(strstr(said_of_yaml("optimizer", "muon"), "AdamW is the only optimizer") != NULL);
    CHECK(strstr(said_of_yaml("checkpoint", "1"), "did you mean run.save") != NULL);
}

static void schedules_of_other_programs(void)
{
    static const struct { const char *name, *means; } c[] = {
        {"ScheduleZBVZeroBubble", "zb-v"}, {"ScheduleInterleaved1F1B", "interleaved"},
        {"Schedule1F1B", "1f1b"}, {"ScheduleGPipe", "gpipe"}, {"ScheduleDualPipeV", "dualpipev"},
        {"ScheduleLoopedBFS", "looped-bfs"},
        {"LoopBFS", "looped-bfs"}, {"ScheduleInterleavedZeroBubble", "zb-v"},
        {"InterleavedZeroBubble", "zb-v"}, {"Interleaved1F1B", "interleaved"}, {"1F1B", "1f1b"},
        {"GPipe", "gpipe"}, {"ZBVZeroBubble", "zb-v"}, {"ZBV", "zb-v"}, {"zbh1", "zb-h1"},
        {"DualPipe", "dualpipe"}, {"pipedream-flush", "1f1b"}, {"vpp", "interleaved"},
        {"zero_bubble", "zb-h1"}, {"F-then-B", "gpipe"}, {"auto", "1f1b"}, {"v_half", "v-half"},
        {"forward_backward_pipelining_with_interleaving", "interleaved"},
    };
    char near[64], word[80];
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        struct plait_config *k;
        CHECK_STR(plait_schedule_nearest(c[i].name), c[i].means);
        snprintf(word, sizeof word, "parallel.schedule=%s", c[i].name);
        CHECK_INT(plait_config_new(&k), 0);
        CHECK_INT(plait_config_set(k, "model.vocab=257") + plait_config_set(k, "parallel.pp=2") +
                      plait_config_set(k, word), 0);
        CHECK_INT(plait_config_check(k, 0, NULL), PLAIT_CONFIG);
        plait_config_free(k);
        for (int who = 0; who < 2; who++) {
            snprintf(near, sizeof near, "the nearest is %s", c[i].means);
            bool is = strstr(plait_error(), near) != NULL;
            snprintf(near, sizeof near, "did you mean %s", c[i].means);
            test_check(is || strstr(plait_error(), near), __FILE__, __LINE__, "%s", plait_error());
            struct plait_sim a = {.size = sizeof a, .schedule = c[i].name, .p = 2, .m = 4};
            CHECK_INT(plait_simulate(&a, &(char *){NULL}), PLAIT_CONFIG);
        }
    }
}

static void words_of_other_programs(void)
{
    static const struct { const char *word, *says; } c[] = {
        {"optim.schedule=linear_with_warmup", "; the nearest is linear"},
        {"optim.schedule=cosine_with_warmup", "; the nearest is cosine"},
        {"optim.schedule=cosine_with_restarts", "; the nearest is cosine"},
        {"optim.schedule=constant_with_warmup", "; the nearest is constant"},
        {"optim.schedule=CosineAnnealingLR", "; the nearest is cosine"},
        {"optim.schedule=linear_warmup_cosine", "; the nearest is cosine"},
        {"optim.schedule=inverse_sqrt", "fall to optim.lr_min over the run"},
        {"train.dtype=torch.bfloat16", "; the nearest is bf16"},
        {"train.dtype=bf16-mixed", "; the nearest is bf16"},
        {"train.device=cuda:0", "; the nearest is cuda"},
        {"model.kind=gpt2-xl", "; the nearest is gpt"},
        {"model.kind=LlamaForCausalLM", "; the nearest is llama"},
        {"train.recompute=selective", "; the nearest is full"},
        {"parallel.zero=stage3", "not sharded yet"},
    };
    struct plait_config *k;
    CHECK_INT(plait_config_new(&k), 0);
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        CHECK_INT(plait_config_set(k, c[i].word), PLAIT_CONFIG);
        test_check(strstr(plait_error(), c[i].says) != NULL, __FILE__, __LINE__, "%s: %s",
                   c[i].word, plait_error());
    }
    plait_config_free(k);
}

static const struct test_case cases[] = {
    {"options_of_other_programs", options_of_other_programs},
    {"well_known_commands", well_known_commands},
    {"help_knows_keys_of_other_programs", help_knows_keys_of_other_programs},
    {"a_key_is_not_answered_with_a_group", a_key_is_not_answered_with_a_group},
    {"the_optimizer_is_adamw", the_optimizer_is_adamw},
    {"schedules_of_other_programs", schedules_of_other_programs},
    {"words_of_other_programs", words_of_other_programs},
};
TEST_MAIN(cases)
