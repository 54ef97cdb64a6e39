/* SPDX-License-Identifier: Apache-2.0
 *
 * Folder to options. The model of a config.json goes through key=value words, so that it has the
 * ranges of the keys, and a message names the key.
 *
 * A tokenizer is known by its name and the hash of what its ids stand for. It is never assumed:
 * ids of one tokenizer are noise to another.
 */
#include "folder/model_folder.h"

#include "data/data.h"
#include "folder/folder.h"
#include "config/model_keys.h"
#include <inttypes.h>
#include <stdio.h>

static const char *const type_name[] = {
    [MODEL_GPT] = "gpt2", [MODEL_LLAMA] = "llama", [MODEL_MLP] = "mlp"};

/* ---- the folder ---- */

/* Is the model of config.yaml, which may leave open what it is not asked for, that of config.json,
 * x NULL, or of a checkpoint of the folder? */
static enum err check_same(const struct model_folder *f, const struct state_index *x,
                           const struct model *its)
{
    const struct model *ours = &f->model;
    const char *said = x ? "/" : ": ", *path = x ? x->path : "config.json", *name;
    char a[MODEL_VALUE], b[MODEL_VALUE];
    if (ours->kind != its->kind)
        FAIL(ERR_CHECKPOINT, "ckpt: %s%sconfig.yaml says model.kind %s and %s %s%s; keep the one "
                             "that the weights are of", f->dir, said,
             model_traits(ours->kind)->name, path, x ? "" : "model_type ",
             x ? model_traits(its->kind)->name : type_name[its->kind]);
    const struct model_key *k = model_keys_differ(ours, its, !x, a, b);
    name = k && !x ? model_key_theirs(k, its->kind) : "";
    if (k)
        FAIL(ERR_CHECKPOINT, "ckpt: %s%sconfig.yaml says model.%s %s and %s %s%s%s; keep what the "
                             "weights were trained with", f->dir, said, k->key, a, path, name,
             x ? "" : " ", b);
    return ERR_OK;
}

/* theirs: the key of config.json that has the value. */
static enum err set_word(struct options *o, const char *path, const char *theirs, const char *key,
                         const char *value)
{
    char word[MODEL_VALUE + 80], place[80];
    snprintf(word, sizeof word, "model.%s=%s", key, value);
    snprintf(place, sizeof place, "its %s", theirs);
    if (conf_set_from(&options_table, o, place, word) != ERR_OK)
        FAIL(ERR_CHECKPOINT, "ckpt: %s describes a model that plait cannot build: %s", path,
             err_text());
    return ERR_OK;
}

enum err model_folder_open(struct model_folder *f, const char *dir)
{
    struct model_folder made = {.dir = dir};
    struct hf_config c;
    char yaml[FS_PATH], json[FS_PATH], value[MODEL_VALUE];
    TRY(folder_find("generate", dir, true));
    bool known = fs_named(folder_file(json, dir, FOLDER_JSON));
    made.foreign = known && !fs_named(folder_file(yaml, dir, FOLDER_YAML));
    TRY(made.foreign ? options_fresh(&made.options) : options_read_run(dir, &made.options));
    if (known)
        TRY(hf_config_read(json, &c));
    if (made.foreign) {
        memcpy(made.end, c.end, sizeof made.end);
        made.ends = c.ends;
        memcpy(made.unknown, c.unknown, sizeof made.unknown);
        c.model.dropout = 0; /* it may be anything there, and nothing is trained */
        TRY(set_word(&made.options, json, "model_type", "kind", model_traits(c.model.kind)->name));
    }
    for (const struct model_key *k = model_keys; made.foreign && k < model_keys + MODEL_KEYS; k++) {
        const char *theirs = model_key_theirs(k, c.model.kind);
        if (theirs)
            TRY(set_word(&made.options, json, theirs, k->key, model_key_value(k, &c.model, value)));
    }
    options_arch(&made.options, &made.model);
    if (known && !made.foreign)
        TRY(check_same(&made, NULL, &c.model));
    *f = made;
    return ERR_OK;
}

/* ---- without weights ---- */

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

enum err model_folder_filled(const struct model_folder *f)
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
    const char *dir = f->dir;
    char first[256] = ""; /* by name, of the form that lacks least */
    enum form form = NONE;
    struct fs_folder d;
    if (hf_weights_exist(dir) || (!f->foreign && folder_has_checkpoint(dir)))
        return ERR_OK;
    if (!f->foreign && !f->options.run.save)
        FAIL(ERR_CONFIG, "run.save is false in config.yaml of %s, so the run left no weights; "
                         "train again with run.save true", dir);
    if (!f->foreign)
        return folder_lacks(ERR_CHECKPOINT, "ckpt", "weights", dir, &f->options);
    (void)fs_folder_open(&d, dir);
    for (const char *name; (name = fs_folder_next(&d));) {
        enum form it = form_of(name);
        if (it < form || (it == form && it != NONE && strcmp(name, first) < 0)) {
            form = it;
            snprintf(first, sizeof first, "%s", name);
        }
    }
    fs_folder_close(&d);
    if (form == NONE)
        FAIL(ERR_CHECKPOINT, "ckpt: %s has no weights: neither model.safetensors nor "
                             "model.safetensors.index.json; put them there, beside config.json",
             dir);
    FAIL(ERR_CHECKPOINT, "ckpt: %s has no model.safetensors: it has %s, %s", dir, first, way[form]);
}

/* ---- its weights ---- */

enum err model_folder_weights(const struct model_folder *f, const char *step, struct weights *out)
{
    char checkpoint[FS_PATH] = "";
    int64_t behind;
    *out = (struct weights){.files = {NULL, 0}};
    if (f->foreign && step[0])
        FAIL(ERR_CONFIG, "generate: step %s is asked for, and %s is the folder of a model, which "
                         "has no checkpoints; leave it out", step, f->dir);
    if (!f->foreign)
        TRY(folder_checkpoint("generate", f->dir, step, checkpoint, &behind));
    enum err err = checkpoint[0]
                       ? folder_others(state_index_open(&out->state, checkpoint), checkpoint)
                       : hf_weights_open(&out->files, f->dir);
    if (err == ERR_OK && checkpoint[0])
        err = check_same(f, &out->state, &out->state.head.model);
    if (err != ERR_OK)
        weights_close(out);
    return err;
}

/* ---- its tokenizer ---- */

enum err model_folder_tokenizer(const struct model_folder *f, const struct weights *w,
                                char out[SAFET_NOTE])
{
    struct weights_tokenizer its;
    char ours[32], class[SAFET_NOTE], path[FS_PATH];
    TRY(weights_tokenizer(w, &its));
    const char *said = its.name, *set = f->options.data.tokenizer, *name = said[0] ? said : set;
    if (said[0] && set[0] && strcmp(said, set) != 0)
        FAIL(ERR_TOKEN, "generate: the weights are of tokenizer %s, and data.tokenizer is %s; give "
                        "the weights' own", said, set);
    if (!name[0] && f->foreign &&
        hf_tokenizer_class(fs_path(path, f->dir, "tokenizer_config.json"), class))
        FAIL(ERR_TOKEN, "generate: %s has the tokenizer %s, which plait does not know; give ids "
                        "with --ids and get ids", f->dir, class);
    if (!name[0] && f->foreign)
        FAIL(ERR_TOKEN, "generate: %s has %s; give ids with --ids and get ids", f->dir,
             fs_exists(fs_path(path, f->dir, "tokenizer.json"))
                 ? "the tokenizer of tokenizer.json, which plait does not read yet"
                 : "no tokenizer (none found in tokenizer_config.json or tokenizer.json)");
    if (!name[0])
        FAIL(ERR_TOKEN, "generate: neither the weights nor config.yaml of %s say whose ids they "
                        "know; give data.tokenizer=bytes if the run was on bytes, or ids with "
                        "--ids", f->dir);
    if (tokenizer_vocab(name) == 0)
        FAIL(ERR_TOKEN, "generate: the run in %s is on the ids of tokenizer %s, which plait does "
                        "not know (it knows bytes); give ids with --ids and get ids", f->dir, name);
    snprintf(ours, sizeof ours, "%016" PRIx64, tokenizer_hash(name));
    if (its.hash[0] && strcmp(its.hash, ours) != 0)
        FAIL(ERR_TOKEN, "generate: the weights are of a tokenizer %s with hash %s, plait's %s has "
                        "%s; give ids with --ids and get ids", name, its.hash, name, ours);
    memcpy(out, name, strlen(name) + 1);
    return ERR_OK;
}
