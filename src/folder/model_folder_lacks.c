/* SPDX-License-Identifier: Apache-2.0
 *
 * A model's folder without weights that can be read: what it has in their place, by the names that
 * transformers and others give to weights.
 */
#include "folder/model_folder.h"

#include "base/fs_sys.h"
#include "base/mem.h"
#include <stdio.h>
#include <string.h>

static bool ends_with(const char *name, const char *ending)
{
    size_t n = strlen(name), m = strlen(ending);
    return n > m && strcmp(name + n - m, ending) == 0;
}

/* Of weights, by how little they lack: shards without their index, safetensors of another name,
 * those of other programs. */
enum form { SHARD, OTHER_NAME, ADAPTER, OTHER_FORM, NONE };

static enum form form_of(const char *name)
{
    static const char *const endings[] = {".bin", ".pth", ".pt", ".ckpt", ".h5", ".msgpack",
                                          ".gguf", ".ggml", ".npz", ".onnx", ".pkl", ".distcp"};
    static const char *const training[] = {"training_args", "optimizer", "scheduler", "rng_state",
                                           "scaler"};
    int shard, shards, end = 0;
    if (sscanf(name, "model-%5d-of-%5d.safetensors%n", &shard, &shards, &end) == 2 && end > 0 &&
        !name[end])
        return SHARD;
    if (ends_with(name, ".safetensors"))
        return strncmp(name, "adapter", 7) == 0 ? ADAPTER : OTHER_NAME;
    for (size_t i = 0; i < sizeof training / sizeof *training; i++)
        if (strncmp(name, training[i], strlen(training[i])) == 0)
            return NONE;
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (ends_with(name, endings[i]))
            return strncmp(name, "adapter", 7) == 0 ? ADAPTER : OTHER_FORM;
    return NONE;
}

/* The first by name of the form that lacks least. */
static enum form find_form(const char *dir, char first[256])
{
    enum form form = NONE;
    struct fs_folder d;
    (void)fs_folder_open(&d, dir);
    for (const char *name; (name = fs_folder_next(&d));) {
        enum form it = form_of(name);
        if (it < form || (it == form && it != NONE && strcmp(name, first) < 0)) {
            form = it;
            snprintf(first, 256, "%s", name);
        }
    }
    fs_folder_close(&d);
    return form;
}

enum err model_folder_lacks(const char *dir)
{
    static const char *const way[] = {
        [SHARD] = "a shard, and no model.safetensors.index.json that says which others there are; "
                  "put that there, too",
        [OTHER_NAME] = "and weights are read from model.safetensors, or from what "
                       "model.safetensors.index.json names; give it that name if it is the model",
        [ADAPTER] = "changes to another model's weights; merge them with that model and save it "
                    "whole (merge_and_unload, save_pretrained)",
        [OTHER_FORM] = "and plait reads safetensors alone; load it with transformers and save it "
                       "again (save_pretrained)"};
    char name[256];
    enum form form = find_form(dir, name);
    if (form == NONE)
        FAIL(ERR_CHECKPOINT, "ckpt: %s has no weights: neither model.safetensors nor "
                             "model.safetensors.index.json; put them there, beside config.json",
             dir);
    FAIL(ERR_CHECKPOINT, "ckpt: %s has no model.safetensors: it has %s, %s", dir, name, way[form]);
}
