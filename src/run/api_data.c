/* SPDX-License-Identifier: Apache-2.0
 *
 * Chapter "data" of plait.h: the caller's struct is held against its rules and handed to data/.
 */
#include "run/api.h"

#include "data/data.h"

/* What a caller can get wrong before any file is looked at. */
static enum err check_call(const struct plait_prepare *a)
{
    if (a->size != sizeof *a)
        FAIL(ERR_CONFIG,
             "data: struct plait_prepare has size %zu, this library's has %zu bytes; set size to "
             "sizeof and build with this library's plait.h",
             a->size, sizeof *a);
    if (!a->out || !*a->out)
        FAIL(ERR_CONFIG, "data: no output is named; name the token file to write");
    if (a->texts > 0 && !a->text)
        FAIL(ERR_CONFIG, "data: %d texts are promised and none is given; set text", a->texts);
    for (int i = 0; i < a->texts; i++)
        if (!a->text[i])
            FAIL(ERR_CONFIG, "data: text %d of %d has no name; give each its path", i + 1,
                 a->texts);
    return ERR_OK;
}

static enum err prepare(const struct plait_prepare *a, int64_t *tokens)
{
    TRY(check_call(a));
    return data_prepare(&(struct data_prepare){.text = a->text,
                                               .texts = a->texts,
                                               .out = a->out,
                                               .tokenizer = a->tokenizer ? a->tokenizer : "bytes",
                                               .progress = a->progress,
                                               .arg = a->arg},
                        tokens);
}

int plait_data_prepare(const struct plait_prepare *a, int64_t *tokens)
{
    int64_t made;
    enum err err = prepare(a, &made);
    if (err == ERR_OK && tokens)
        *tokens = made;
    return (int)err;
}
