/* SPDX-License-Identifier: Apache-2.0
 *
 * What a machine has in the end is not known: virtual ones are given more memory when they need it,
 * and gVisor says little before it is used (it has no /proc/zoneinfo). So a plan above the
 * machine's memory is a warning, and refused from GROWS times that on; of a control group, whose
 * limit the kernel holds to, from twice that on, for a plan's last bytes may never be touched.
 */
#include "setup/setup.h"

#include "base/fs_sys.h"
#include "base/log.h"
#include "comm/comm.h"
#include "config/options.h"
#include <stdio.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <unistd.h>

enum { GROWS = 4, TOUCHED = 2, PAGE = 4096, PATH_SIZE = PAGE + 256 };

/* The first bytes of a file of the kernel, as text; "" where there is none. */
static void read_page(const char *path, char page[PAGE])
{
    int fd = fs_sys_open(path, O_RDONLY);
    int64_t n = fd < 0 ? 0 : fs_sys_pread(fd, path, page, PAGE - 1, 0);
    page[n > 0 ? n : 0] = '\0';
    if (fd >= 0)
        (void)fs_sys_close(fd, path);
}

/* The lowest limit of a group and those above it; at: its folder, cut on the way up to `top`. */
static int64_t limit_of(char *at, size_t top, const char *file)
{
    int64_t least = INT64_MAX, n;
    char path[PATH_SIZE], page[PAGE];
    for (;;) {
        snprintf(path, sizeof path, "%s/%s", at, file);
        read_page(path, page);
        page[strcspn(page, "\n")] = '\0';
        if (text_to_int(page, &n) && n > 0)
            least = num_min(least, n);
        char *cut = strrchr(at, '/');
        if (strlen(at) <= top || !cut)
            return least;
        *cut = '\0';
    }
}

void host_ask(const char *root, struct host *out)
{
    struct sysinfo info;
    char path[PATH_SIZE], page[PAGE], at[PAGE];
    *out = (struct host){.limit = INT64_MAX};
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    read_page(path, page);
    /* Lines are "number:controllers:/path"; cgroup 2 has no controllers. A path that is not there,
     * as in a container that sees its group as the root, has that one's limit. */
    char *rest, *line = strtok_r(page, "\n", &rest);
    for (; line; line = strtok_r(NULL, "\n", &rest)) {
        const char *names = strchr(line, ':'), *group = names ? strchr(names + 1, ':') : NULL;
        if (!group)
            continue;
        bool two = names[1] == ':', one = strncmp(names, ":memory:", 8) == 0;
        if (!two && !one)
            continue;
        int top = snprintf(at, sizeof at, "%s/sys/fs/cgroup%s", root, one ? "/memory" : "");
        snprintf(at + top, sizeof at - (size_t)top, "%s", strcmp(group + 1, "/") ? group + 1 : "");
        const char *file = one ? "memory.limit_in_bytes" : "memory.max";
        out->limit = num_min(out->limit, limit_of(at, (size_t)top, file));
    }
    snprintf(path, sizeof path, "%s/proc/zoneinfo", root);
    if (sysinfo(&info) != 0)
        return;
    out->swap = (int64_t)(info.totalswap * info.mem_unit);
    if (fs_sys_access(path, R_OK) == 0)
        out->memory = (int64_t)(info.totalram * info.mem_unit);
}

/* Does the device have memory of its own? Then a rank takes of the host's the copy that checkpoints
 * are written from. */
static bool is_apart(const struct setup *s)
{
    return options_device(s->o) == DEV_CUDA;
}

/* Bytes that are taken here: of threads all, of processes those of the smallest rank, for which
 * machine the others are on is not known. */
static int64_t needs(const struct setup *s)
{
    int64_t all = 0, least = INT64_MAX;
    for (int64_t pp = 0; pp < s->o->parallel.pp; pp++) {
        const struct memory *m = &s->memory[pp];
        int64_t one = m->copy + (is_apart(s) ? 0 : memory_total(m));
        all += one * (s->mesh.world / s->o->parallel.pp);
        least = num_min(least, one);
    }
    return s->o->train.transport == COMM_MPI ? least : all;
}

/* What would take less. */
static const char *way_out(const struct setup *s)
{
    if (is_apart(s) && s->o->train.transport == COMM_MPI) /* data ranks share what they save */
        return "use more data ranks, or save no checkpoints (train.save_keep 0)";
    if (is_apart(s))
        return "spread the ranks over more machines (train.transport mpi), use a smaller model, or "
               "save no checkpoints (train.save_keep 0)";
    return s->decided[DECIDED_COPIES].value
               ? "write checkpoints without a copy (train.save_async false), use a smaller model "
                 "or train.batch, parallel.microbatch, or train.recompute (every:1, full)"
               : "use a smaller model or train.batch, parallel.microbatch, or train.recompute "
                 "(every:1, full)";
}

enum err host_holds(const struct setup *s, const struct host *h, struct text *out)
{
    char need[32], has[32];
    bool group = h->limit < INT64_MAX && (h->memory == 0 || h->limit < h->memory);
    int64_t have = (group ? h->limit : h->memory) + h->swap, total = needs(s);
    if (options_device(s->o) == DEV_NULL || have == h->swap || total <= have)
        return ERR_OK; /* null holds nothing */
    text_bytes(total, need);
    text_bytes(have, has);
    const char *whose = group ? "this process's control group allows" : "this machine has";
    const char *what = is_apart(s) ? " for copies of their state" : "";
    const char *who = s->o->train.transport == COMM_MPI ? "each rank needs" : "the ranks need";
    if (total / (group ? TOUCHED : GROWS) > have)
        FAIL(ERR_MEMORY, "memory: %s %s%s, and %s %s; %s", who, need, what, whose, has,
             way_out(s));
    text_add(out, "memory: %s %s%s, and %s %s: it may end them without a word; %s", who, need,
             what, whose, has, way_out(s));
    return out->err;
}

enum err host_check(const struct setup *s, struct text *report)
{
    struct host h;
    struct text words = {0};
    host_ask("", &h);
    enum err err = host_holds(s, &h, &words);
    if (report && err == ERR_MEMORY)
        text_add(report, "warning %s: training refuses it\n", err_text());
    else if (report && words.len > 0)
        text_add(report, "warning %s\n", words.s);
    else if (words.len > 0 && err == ERR_OK)
        log_line(LOG_WARN, "%s", words.s);
    text_free(&words);
    return report ? ERR_OK : err;
}
