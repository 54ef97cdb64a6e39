/* SPDX-License-Identifier: Apache-2.0
 *
 * plait train: run a configuration. The table before the first step and the summary after the last
 * are results and go to standard output; what passes by in between goes to standard error.
 */
#include "cmd.h"

#include <stdlib.h>

static void on_start(void *arg, const char *table)
{
    (void)arg;
    fputs(table, stdout);
    fflush(stdout);
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

int cmd_train(int argc, char **argv)
{
    struct cmd_progress progress;
    struct plait_train how = {.size = sizeof how, .on_start = on_start,
                              .on_step = cmd_progress_step, .on_valid = cmd_progress_valid,
                              .on_microbatch = cmd_progress_microbatch, .on_search = on_search,
                              .on_done = on_done, .arg = &progress};
    struct cmd_keys keys = {0, 0};
    const struct cmd_option option[] = {
        {"ranks", 'n', CMD_INT, &how.ranks, 0, 1 << 20, "N",
         "ranks to start; 0 (default): as many as the layout needs"},
        CMD_KEYS_OPTIONS(keys),
    };
    const struct cmd_page page = {
        .usage = "plait train FILE [KEY=VALUE ...] [-n RANKS] [--trace] [--canonical-accumulation]",
        .about = "Train the configuration. With train.transport thread (the default) all ranks\n"
                 "are threads of this process; with mpi, start it under mpirun or srun.",
        CMD_OPTIONS(option),
        .more = "example: plait train configs/demo.yaml data.train=a.tok data.valid=b.tok\n"
                "`plait help config` lists the keys; `plait check` takes the same words.",
        .names = cmd_names_run,
        .keys = true,
    };
    struct plait_config *config;
    char *every;
    int words, code;
    if (!cmd_parse(&page, argc, argv, &words, &code))
        return code;
    code = cmd_config(words, argv, &keys, &config);
    if (code != PLAIT_OK)
        return code;
    code = plait_config_get(config, "train.log_every", &every);
    if (code != PLAIT_OK) {
        plait_config_free(config);
        return cmd_fail(code);
    }
    cmd_progress_open(&progress, strtoll(every, NULL, 10));
    plait_free(every);
    cmd_signals_finish();
    code = plait_train(config, &how);
    plait_config_free(config);
    cmd_progress_clear(&progress);
    return code == PLAIT_OK ? PLAIT_OK : cmd_fail(code);
}
