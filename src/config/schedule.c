/* SPDX-License-Identifier: Apache-2.0
 *
 * A schedule from a file is trained with like one by name: from here on nobody knows the
 * difference. What it must fit is the configuration, and each number that does not is named. One by
 * name is made for measured costs and a limit of memory, where it looks at them; a generator's
 * refusal is said in the configuration's words.
 */
#include "config/schedule.h"

#include "base/fs.h"
#include "base/mem.h"
#include "base/text.h"
#include "config/costs.h"
#include <ctype.h>
#include <stdio.h>
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
                         "give cells of F and B, or of F, I and W, as `plait sim NAME -p P -m M "
                         "--text` writes them without --model", path,
             s->lowered ? "messages" : "forward passes only");
    if (s->p != shape->p)
        FAIL(ERR_CONFIG, "parallel.schedule file:%.200s has lines for %d rank%s, and parallel.pp "
                         "is %d; use parallel.pp %d", path, s->p, text_plural(s->p, "s"),
             shape->p, s->p);
    if (s->v != shape->v)
        FAIL(ERR_CONFIG, "parallel.schedule file:%.200s has %d stage%s a rank, and "
                         "parallel.chunks is %d; use parallel.chunks %d", path, s->v,
             text_plural(s->v, "s"), shape->v, s->v);
    if (s->m != shape->m)
        REFUSE(o, "parallel.schedule file:%.200s has %d microbatch%s, and {train.batch} makes %d "
                  "of {parallel.microbatch} for each of {parallel.dp}; use train.batch %lld", path,
               s->m, text_plural(s->m, "es"), shape->m,
               (long long)s->m * o->parallel.microbatch * o->parallel.dp);
    return ERR_OK;
}

/* ---- by name ---- */

struct rename { const char *from, *to; };

const char *schedule_say(const char *said, enum schedule_words words, char buf[SCHEDULE_SAID])
{
    static const struct rename name[][6] = {
        {{"v", "parallel.chunks"}, {"p", "parallel.pp"}, {"group", "parallel.group"},
         {"m", "microbatches (train.batch / parallel.microbatch)"},
         {"limit", "parallel.memory_limit"}, {0}},
        {{"v", "-v"}, {"p", "-p"}, {"m", "-m"}, {"limit", "--limit"}, {0}},
    };
    size_t used = 0;
    buf[0] = '\0';
    while (*said && used < SCHEDULE_SAID) { /* word by word; one that a number follows has others */
        size_t n = strcspn(said, " ");
        const struct rename *r = name[words];
        while (r->from && (strlen(r->from) != n || strncmp(said, r->from, n) != 0))
            r++;
        bool counts = said[n] && (isdigit((unsigned char)said[n + 1]) || said[n + 1] == '-');
        const char *to = counts && r->to ? r->to : said, *end = said[n] ? " " : "";
        used += (size_t)snprintf(buf + used, SCHEDULE_SAID - used, "%.*s%s",
                                 to == said ? (int)n : (int)strlen(to), to, end);
        said += n + (said[n] == ' ');
    }
    return buf;
}

void schedule_free(struct schedule *s)
{
    mem_free(s->time);
    sched_free(&s->list);
    s->time = NULL;
}

struct sched_shape schedule_shape(const struct options *o)
{
    return (struct sched_shape){(int)o->parallel.pp, (int)options_microbatches(o),
                                (int)options_chunks(o), (int)o->parallel.group};
}

enum err schedule_costs(const struct options *o, struct schedule *s)
{
    if (!o->parallel.costs[0])
        return ERR_OK;
    int stages = (int)(o->parallel.pp * options_chunks(o));
    return options_under_key(costs_read(o->parallel.costs, stages, &s->time), "parallel.costs");
}

enum err schedule_make(const struct options *o, const struct sched_shape *shape, struct schedule *s)
{
    const char *path = schedule_path(o->parallel.schedule);
    char named[OPTIONS_PATH_MAX + 16], buf[SCHEDULE_SAID];
    struct sched *out = &s->list;
    /* An activation counts whole until its W, for so long the executor keeps it. */
    struct sched_cost cost = {.tf = 1, .ti = 1, .tw = 1, .keep = 1,
                              .limit = o->parallel.memory_limit,
                              .stage = (const double(*)[SCHED_COMPUTE_OPS])s->time};
    if (!path) {
        const struct sched_cost *asked = s->time || cost.limit != 0 ? &cost : NULL;
        enum err err = sched_make(o->parallel.schedule, shape, asked, out);
        if (err != ERR_CONFIG)
            return err;
        /* The generator's refusal, with the keys that the shape came from. */
        snprintf(named, sizeof named, "schedule %s: ", o->parallel.schedule);
        size_t opening = strncmp(err_text(), named, strlen(named)) == 0 ? strlen(named) : 0;
        REFUSE(o, "{parallel.schedule} with {parallel.pp}, parallel.chunks %lld and %lld "
                  "microbatch%s: %s", (long long)options_chunks(o),
               (long long)options_microbatches(o), text_plural(options_microbatches(o), "es"),
               schedule_say(err_text() + opening, SCHEDULE_KEYS, buf));
    }
    if (shape->group != 0)
        FAIL(ERR_CONFIG, "parallel.group %d: a schedule from a file has its order already; use "
                         "group 0", shape->group);
    if (o->parallel.memory_limit != 0)
        FAIL(ERR_CONFIG, "parallel.memory_limit %g: a schedule from a file has its order already; "
                         "use memory_limit 0", o->parallel.memory_limit);
    TRY(options_under_key(schedule_read(path, out), "parallel.schedule"));
    enum err err = check_fits(o, shape, out);
    if (err != ERR_OK)
        sched_free(out);
    return err;
}
