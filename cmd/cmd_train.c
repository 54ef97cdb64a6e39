/* SPDX-License-Identifier: Apache-2.0
 *
 * plait train: run a configuration. The table before the first step and the summary after the last
 * are results and go to standard output; what passes by in between goes to standard error.
 */
#include "cmd.h"
#include "cmd_progress.h"
#include "cmd_signals.h"

#include <stdio.h>
#include <stdlib.h>

static void on_start(void *arg, const char *table)
{
    (void)arg;
    fputs(table, stdout);
    fflush(stdout);
}

static void on_step(void *arg, const struct plait_step *s)
{
    cmd_progress_step(arg, s);
}

static void on_microbatch(void *arg, const struct plait_microbatch *m)
{
    cmd_progress_microbatch(arg, m);
}

static void on_valid(void *arg, int64_t step, double loss, double bits_per_byte)
{
    cmd_progress_valid(arg, step, loss, bits_per_byte);
}

static void on_search(void *arg, const char *what)
{
    cmd_progress_clear(arg);
    fprintf(stderr, "%s; a signal ends the search\n", what);
    cmd_signals_search();
}

static void on_done(void *arg, const char *summary)
{
    cmd_progress_clear(arg);
    printf("%s\n", summary); /* one sentence */
    fflush(stdout);
}

/* How often lines stay. */
static int log_every(const struct plait_config *c, int64_t *every)
{
    char *value;
    int code = plait_config_get(c, "train.log_every", &value);
    if (code != PLAIT_OK)
        return code;
    *every = strtoll(value, NULL, 10);
    plait_free(value);
    return PLAIT_OK;
}

int cmd_train(int argc, char **argv)
{
    int64_t ranks = 0, every = 0;
    struct cmd_keys keys = {false, false};
    struct cmd_option option[1 + CMD_KEYS] = {
        {"ranks", 'n', CMD_INT, &ranks, 0, 1 << 20, "N",
         "ranks to start; 0 (default): as many as the layout needs"},
    };
    cmd_keys_options(&keys, option + 1);
    const struct cmd_page page = {
        .usage = "plait train FILE [KEY=VALUE ...] [-n RANKS] [--trace] [--canonical-accumulation]",
        .about = "Train the configuration. With train.transport thread (the default) all ranks\n"
                 "are threads of this process; with mpi, start it under mpirun or srun.",
        .option = option,
        .options = 1 + CMD_KEYS,
        .more = "example: plait train configs/demo.yaml data.train=a.tok data.valid=b.tok\n"
                "`plait help config` lists the keys; `plait check` takes the same words.",
        .names = cmd_names_run,
        .keys = true,
    };
    struct plait_config *config;
    struct cmd_progress progress;
    int words, code;
    if (!cmd_parse(&page, argc, argv, &words, &code))
        return code;
    code = cmd_config(words, argv, &config);
    if (code != PLAIT_OK)
        return code;
    code = cmd_keys_set(&keys, config);
    if (code == PLAIT_OK)
        code = log_every(config, &every);
    if (code != PLAIT_OK) {
        plait_config_free(config);
        return code;
    }
    cmd_progress_open(&progress, every);
    cmd_signals_finish();
    code = plait_train(config, &(struct plait_train){.size = sizeof(struct plait_train),
                                                     .ranks = (int)ranks,
                                                     .on_start = on_start, .on_step = on_step,
                                                     .on_valid = on_valid, .on_done = on_done,
                                                     .arg = &progress,
                                                     .on_microbatch = on_microbatch,
                                                     .on_search = on_search});
    plait_config_free(config);
    cmd_progress_clear(&progress);
    return code == PLAIT_OK ? PLAIT_OK : cmd_fail(code);
}
