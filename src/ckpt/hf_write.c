/* SPDX-License-Identifier: Apache-2.0
 *
 * What is written as a model's files, whoever has the numbers: a run from its ranks, an export from
 * a checkpoint. So both write the same bytes.
 */
#include "ckpt/ckpt.h"

#include "base/mem.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum err hf_entries(const struct model *a, enum safet_type type, struct safet_entry **out, int *n)
{
    struct model_param *param;
    struct safet_entry *entry = NULL;
    int params, made = 0;
    TRY(model_param_list(a, &param, &params));
    enum err err = mem_new(params, sizeof *entry, "the list of weights", &entry);
    for (int i = 0; i < params && err == ERR_OK; i++) {
        struct hf_place at;
        hf_place(a, &param[i], &at);
        if (made > 0 && strcmp(entry[made - 1].name, at.tensor) == 0)
            continue;
        struct safet_entry *e = &entry[made++];
        *e = (struct safet_entry){.type = type, .nd = at.nd, .shape = {at.shape[0], at.shape[1]}};
        memcpy(e->name, at.tensor, sizeof at.tensor);
    }
    mem_free(param);
    *out = entry;
    *n = made;
    return err;
}

void hf_notes(const char *tokenizer, uint64_t hash, struct hf_notes *out)
{
    *out = (struct hf_notes){.word = {HF_TOKENIZER, tokenizer}};
    snprintf(out->hash, sizeof out->hash, "%016" PRIx64, hash);
    if (hash)
        out->word[2] = HF_TOKENIZER_HASH, out->word[3] = out->hash;
}
