/* SPDX-License-Identifier: Apache-2.0
 *
 * A file is the same under another path, a link or a hard link; the kernel's numbers say so
 * (fs_same), and of a name that nothing has yet those of its folder: a file that appeared there
 * would be read as the input from then on.
 */
#include "folder/files.h"

#include "base/fs_sys.h"
#include "base/mem.h"
#include "ckpt/state.h"
#include "comm/comm.h"
#include "folder/folder.h"
#include "config/schedule.h"

int files_of_options(const struct options *o, struct file_use out[FILES_OPTIONS])
{
    const char *schedule = schedule_path(o->parallel.schedule);
    const struct file_use all[FILES_OPTIONS] = {{"configuration", o->source},
                                                {"data.train", o->data.train},
                                                {"data.valid", o->data.valid},
                                                {"parallel.schedule", schedule},
                                                {"parallel.costs", o->parallel.costs}};
    int n = 0;
    for (int i = 0; i < FILES_OPTIONS; i++)
        if (all[i].path && all[i].path[0])
            out[n++] = all[i];
    return n;
}

const char *files_read_as(const struct options *o, const char *path)
{
    struct file_use in[FILES_OPTIONS];
    int n = files_of_options(o, in);
    for (int i = 0; i < n; i++)
        if (fs_same(in[i].path, path))
            return in[i].what;
    return NULL;
}

enum err files_apart(const char *who, const char *out, const struct file_use *in, int n)
{
    if (!out)
        return ERR_OK;
    if (!*out)
        FAIL(ERR_CONFIG, "%s: an output has an empty name; give it one, or leave it out", who);
    for (int i = 0; i < n; i++)
        if (in[i].path && fs_same_place(out, in[i].path))
            FAIL(ERR_CONFIG, "%s: the output %s is the same file as its %s %s; name another output",
                 who, out, in[i].what, in[i].path);
    return comm_launch_first() ? fs_check_place(out) : ERR_OK; /* its folder may be its alone */
}

static enum err apart(const char *who, const char *out, const char *path)
{
    return files_apart(who, out, &(struct file_use){"input", path}, 1);
}

/* Whatever file has that ending in a folder, which may not be there. */
static enum err apart_below(const char *who, const char *out, const char *dir, const char *ending)
{
    enum err err = ERR_OK;
    size_t n = strlen(ending);
    struct fs_folder d;
    (void)fs_folder_open(&d, dir);
    for (const char *name; err == ERR_OK && (name = fs_folder_next(&d));) {
        size_t length = strlen(name);
        char path[FS_PATH];
        if (length >= n && strcmp(name + length - n, ending) == 0)
            err = apart(who, out, fs_path(path, dir, name));
    }
    fs_folder_close(&d);
    return err;
}

enum err files_apart_folder(const char *who, const char *out, const char *dir,
                            const struct options *o)
{
    static const char *const saved[] = {
        "model.safetensors.index.json", "generation_config.json", "tokenizer.json",
        "tokenizer_config.json", "tokenizer.model", "special_tokens_map.json", "added_tokens.json",
        "vocab.json", "merges.txt"};
    enum { SAVED = sizeof saved / sizeof *saved };
    struct file_use in[FILES_OPTIONS];
    struct state_found *found;
    char path[FS_PATH];
    int n;
    if (!out)
        return ERR_OK;
    TRY(files_apart(who, out, in, files_of_options(o, in)));
    for (int i = 0; i < SAVED; i++)
        TRY(apart(who, out, fs_path(path, dir, saved[i])));
    for (enum folder_file i = 0; i < FOLDER_FILES; i++)
        TRY(apart(who, out, folder_file(path, dir, i)));
    TRY(apart_below(who, out, dir, ".safetensors"));
    TRY(apart_below(who, out, folder_file(path, dir, FOLDER_TRACE), ".trace"));
    TRY(state_list(dir, false, &found, &n));
    enum err err = ERR_OK;
    for (int i = 0; i < n && err == ERR_OK; i++)
        err = apart_below(who, out, state_dir(path, dir, found[i].step), "");
    mem_free(found);
    return err;
}
