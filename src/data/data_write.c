/* SPDX-License-Identifier: Apache-2.0
 *
 * A file in two passes over what it is made of. The second makes count and hash again, so that
 * something that changed between them cannot leave a file whose header is wrong.
 */
#include "data/data_file.h"

#include <string.h>

enum err data_put(struct data_pass *p, const void *bytes, int64_t n)
{
    XXH3_64bits_update(&p->hash, bytes, (size_t)n);
    return p->file ? fs_write(p->file, bytes, n) : ERR_OK;
}

static enum err run_pass(const struct data_writer *w, struct fs_file *file, struct data_header *h)
{
    struct data_pass p = {.file = file};
    XXH3_64bits_reset(&p.hash);
    TRY(w->pass(w->arg, &p));
    *h = *w->header;
    h->hash = XXH3_64bits_digest(&p.hash);
    return ERR_OK;
}

static enum err write_file(const struct data_writer *w, struct fs_file *file)
{
    struct data_header first, again;
    uint8_t a[DATA_HEADER], b[DATA_HEADER];
    TRY(run_pass(w, NULL, &first));
    data_header_put(&first, a);
    TRY(fs_write(file, a, sizeof a));
    TRY(run_pass(w, file, &again));
    data_header_put(&again, b);
    if (memcmp(a, b, sizeof a) != 0)
        FAIL(ERR_DATA, "data: %s changed between the two times it was read; let nothing write "
                       "to it and try again", w->source);
    return fs_commit(file);
}

enum err data_write(const struct data_writer *w, const char *path)
{
    struct fs_file file;
    TRY(fs_create(&file, path));
    enum err err = write_file(w, &file);
    fs_abandon(&file);
    return err;
}
