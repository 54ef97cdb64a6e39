/* SPDX-License-Identifier: Apache-2.0
 *
 * A small run by the program, as a shell starts it, with files that fail: its code, its last words
 * and what it left in its folder.
 */
#ifndef PLAIT_TEST_ENDINGS_H
#define PLAIT_TEST_ENDINGS_H

#include "left.h"

#include "base/text.h"

#include <stdlib.h>
#include <sys/wait.h>

enum { RANKS = 2, SAID = 1024, COMMAND = 8192 };

static const char base[] =
    "model.layers=2 model.hidden=16 model.heads=2 model.seq=16 train.batch=4 train.threads=1 "
    "parallel.pp=2 optim.schedule=constant optim.warmup=0 train.dtype=f32 train.hang_timeout=60 "
    "train.valid_every=2 train.save_keep=0";

static inline void tokens(void)
{
    folder_tokens("corpus", "a strand over a strand under another strand; ", 100);
    folder_tokens("check", "a braid of many strands\n", 20);
}

/* ---- running the program ---- */

/* What a shell command ends with, 1000 + the signal's number when by one; the last words on
 * standard error. */
static inline int shell(const char *command, char said[SAID])
{
    char log[FOLDER_PATH], all[COMMAND + FOLDER_PATH + 64];
    folder_path("log", log);
    snprintf(all, sizeof all, "{ %s; } >/dev/null 2>'%s'", command, log);
    int status = system(all);
    FILE *f = fopen(log, "r");
    if (f && fseek(f, 1 - SAID, SEEK_END) != 0)
        rewind(f);
    size_t n = f ? fread(said, 1, SAID - 1, f) : 0;
    said[n] = '\0';
    if (f)
        fclose(f);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

/* The program in a run's folder as it is. launcher: words before it; fault: of PLAIT_FAIL_FS, or
 * "". */
static inline int start(const char *run, const char *launcher, const char *fault,
                        const char *words, char said[SAID])
{
    struct text command = {0};
    char dir[FOLDER_PATH], corpus[FOLDER_PATH], check[FOLDER_PATH];
    tokens();
    folder_path(run, dir);
    folder_path("corpus", corpus);
    folder_path("check", check);
    text_add(&command,
             "PLAIT_FAIL_FS='%s'; [ -z '%s' ] || export PLAIT_FAIL_FS; %s "
             "'%s' train run.dir='%s' data.train='%s' data.valid='%s' %s",
             fault, fault, launcher, PLAIT_PROGRAM, dir, corpus, check, words);
    int code = shell(command.s, said);
    text_free(&command);
    return code;
}

/* In a new folder, with the words of `base`. */
static inline int train(const char *run, const char *launcher, const char *fault,
                        const char *words, char said[SAID])
{
    char all[COMMAND];
    snprintf(all, sizeof all, "%s %s", base, words);
    folder_remove(run);
    return start(run, launcher, fault, all, said);
}

/* Lines of the last run's standard error that have the word. */
static inline int lines_with(const char *word)
{
    char path[FOLDER_PATH], line[4096];
    int n = 0;
    folder_path("log", path);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f))
        n += strstr(line, word) != NULL;
    if (f)
        fclose(f);
    return n;
}

#endif
