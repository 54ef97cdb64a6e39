/* SPDX-License-Identifier: Apache-2.0
 *
 * A small run in the folder "run", over several starts, and the lines of metrics that they leave.
 */
#ifndef PLAIT_TEST_RECORDS_H
#define PLAIT_TEST_RECORDS_H

#include "folder.h"

#include "base/mem.h"

#include <cjson/cJSON.h>

enum { STEPS = 6, WORDS = 16 };

static const char *const base_set[] = {
    "model.layers=2", "model.hidden=16", "model.heads=2", "model.seq=8", "train.batch=4",
    "train.threads=1", "train.steps=6", "optim.lr=0.01", "train.save_keep=9",
    "train.valid_batches=1"};

struct outcome { int code; struct folder_seen seen; };

/* In folder "run", until its end or a stop behind a step. */
static inline void train(const char *const *more, int64_t stop_behind, struct outcome *o)
{
    folder_tokens("tokens.bin", "a braid of many strands, over and under\n", 40);
    folder_tokens("valid.bin", "a strand of many braids, under and over\n", 40);
    folder_tokens("other.bin", "a braid of no strands\n", 40);
    struct plait_config *c = folder_config("run", "tokens.bin");
    folder_set_file(c, "data.valid", "valid.bin");
    folder_set(c, base_set, sizeof base_set / sizeof *base_set);
    folder_set(c, more, WORDS);
    o->code = folder_train_until(c, stop_behind, &o->seen);
}

/* How many there are of each step, and of each validation. */
struct lines { int step[STEPS + 1], valid[STEPS + 1]; };

static inline struct lines count_lines(void)
{
    struct lines n = {{0}, {0}};
    char path[FOLDER_PATH], text[1024];
    folder_path_in("run", "metrics.jsonl", path);
    FILE *f = fopen(path, "r");
    CHECK(f != NULL);
    while (f && fgets(text, sizeof text, f)) {
        long long step = 0;
        bool valid = strstr(text, "\"valid_loss\"") != NULL;
        CHECK(sscanf(text, "{\"step\": %lld,", &step) == 1 && step >= 1 && step <= STEPS);
        if (step >= 1 && step <= STEPS)
            (valid ? n.valid : n.step)[step]++;
    }
    if (f)
        fclose(f);
    return n;
}

#endif
