/* SPDX-License-Identifier: Apache-2.0
 *
 * A file is the same under another path, a link or a hard link; the kernel's numbers say so
 * (fs_same).
 */
#include "run/files.h"

#include "base/fs.h"
#include "run/schedule.h"

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

enum err files_apart(const char *who, const char *out, const struct file_use *in, int n)
{
    for (int i = 0; out && i < n; i++)
        if (in[i].path && fs_same(out, in[i].path))
            FAIL(ERR_CONFIG, "%s: the output %s is the same file as its %s %s; name another output",
                 who, out, in[i].what, in[i].path);
    return ERR_OK;
}
