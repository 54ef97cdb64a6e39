/* SPDX-License-Identifier: Apache-2.0
 *
 * train.deterministic on the cpu, which gives the same bits without it: the start-up table says
 * that it is set, and nothing else changes. What it does on a GPU is in tests/cuda/test_cuda_law.c.
 */
#include "base/fs.h"
#include "folder.h"

#include <string.h>

static void train(const char *run, const char *key, struct folder_seen *seen)
{
    static const char *const base[] = {
        "model.kind=gpt", "model.layers=2", "model.hidden=32", "model.heads=4", "model.ffn=64",
        "model.seq=16", "model.dropout=0.1", "train.steps=4", "train.batch=4",
        "train.device=cpu", "train.threads=2", "parallel.tp=2"};
    struct plait_config *c = folder_config(run, "tokens.bin");
    folder_set(c, base, sizeof base / sizeof *base);
    folder_set(c, &key, 1);
    CHECK_INT(folder_train(c, seen), 0);
}

static void same_weights(const char *one, const char *other)
{
    struct fs_map a, b;
    char path[FOLDER_PATH];
    folder_path_in(one, "model.safetensors", path);
    CHECK_OK(fs_map_open(&a, path, ERR_CHECKPOINT));
    folder_path_in(other, "model.safetensors", path);
    CHECK_OK(fs_map_open(&b, path, ERR_CHECKPOINT));
    CHECK(a.size > 0 && a.size == b.size && memcmp(a.data, b.data, (size_t)a.size) == 0);
    fs_map_close(&a);
    fs_map_close(&b);
}

static void on_the_cpu(void)
{
    struct folder_seen plain, fixed;
    folder_tokens("tokens.bin", "Three strands, each over the next in turn. ", 40);
    train("plain", "train.deterministic=false", &plain);
    train("fixed", "train.deterministic=true", &fixed);
    CHECK(!strstr(plain.table, ", deterministic"));
    CHECK(strstr(fixed.table, "f32 on cpu, deterministic\n"));
    CHECK_INT(plain.losses, 4);
    CHECK_INT(fixed.losses, 4);
    CHECK(memcmp(plain.loss, fixed.loss, 4 * sizeof *plain.loss) == 0);
    same_weights("plain", "fixed");
}

static const struct test_case cases[] = {{"on_the_cpu", on_the_cpu}};
TEST_MAIN(cases)
