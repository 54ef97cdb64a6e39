/* SPDX-License-Identifier: Apache-2.0
 *
 * A schedule from a file is trained with like one by name: from here on nobody knows the
 * difference. What it must fit is the configuration, and each number that does not is named.
 */
#include "run/schedule.h"

#include "base/fs.h"
#include <string.h>

enum { FILE_MAX = 1 << 26 }; /* bytes; a step of millions of cells */

const char *schedule_path(const char *name)
{
    return strncmp(name, "file:", 5) == 0 ? name + 5 : NULL;
}

enum err schedule_read(const char *path, struct sched *out)
{
    struct fs_map map;
    const char *slash = strrchr(path, '/');
    TRY(fs_map_open(&map, path, ERR_CONFIG));
    if (map.size > FILE_MAX) {
        int64_t size = map.size;
        fs_map_close(&map);
        FAIL(ERR_CONFIG, "config: %s has %lld bytes, and a schedule has at most %d", path,
             (long long)size, FILE_MAX);
    }
    enum err err = sched_parse(slash ? slash + 1 : path, (const char *)map.data, map.size, out);
    fs_map_close(&map);
    return err;
}

static enum err check_fits(const struct options *o, const struct sched_shape *shape,
                           const struct sched *s)
{
    const char *path = schedule_path(o->parallel.schedule);
    if (s->lowered || s->forward_only)
        FAIL(ERR_CONFIG, "parallel.schedule file:%.200s has %s; training adds messages itself: "
                         "give cells of F and B, or of F, I and W", path,
             s->lowered ? "messages" : "forward passes only");
    if (s->p != shape->p)
        FAIL(ERR_CONFIG, "parallel.schedule file:%.200s has lines for %d ranks, and parallel.pp is "
                         "%d; use parallel.pp %d", path, s->p, shape->p, s->p);
    if (s->v != shape->v)
        FAIL(ERR_CONFIG, "parallel.schedule file:%.200s has %d stages a rank, and parallel.chunks "
                         "is %d; use parallel.chunks %d", path, s->v, shape->v, s->v);
    if (s->m != shape->m)
        FAIL(ERR_CONFIG, "parallel.schedule file:%.200s has %d microbatches, and train.batch %lld "
                         "makes %d of parallel.microbatch %lld for each of parallel.dp %lld; use "
                         "train.batch %lld", path, s->m, (long long)o->train.batch, shape->m,
             (long long)o->parallel.microbatch, (long long)o->parallel.dp,
             (long long)s->m * o->parallel.microbatch * o->parallel.dp);
    return ERR_OK;
}

enum err schedule_make(const struct options *o, const struct sched_shape *shape,
                       struct sched *out)
{
    const char *path = schedule_path(o->parallel.schedule);
    if (!path)
        return sched_make(o->parallel.schedule, shape, out);
    if (shape->group != 0)
        FAIL(ERR_CONFIG, "parallel.group %d: a schedule from a file has its order already; use "
                         "group 0", shape->group);
    enum err err = schedule_read(path, out);
    if (err != ERR_OK)
        return err_set(err, __FILE__, __LINE__, "parallel.schedule: %s", err_bare(err_text()));
    err = check_fits(o, shape, out);
    if (err != ERR_OK)
        sched_free(out);
    return err;
}
