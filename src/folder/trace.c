/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing and reading of traces. One write(2) a step, of a few kilobytes, from memory taken before
 * the first: what tracing costs is that, and the device's timers, two an instruction and two a
 * wait.
 *
 * Clocks of processes on several hosts differ. Each rank asks rank 0 for its time a few times and
 * believes the quickest answer: the clock stood at that value half way between question and answer
 * (Cristian 1989), to within half of the time they took. Threads of a process have one clock.
 */
#include "folder/trace.h"

#include "base/fs_sys.h"
#include "base/log.h"
#include "base/mem.h"
#include <stdio.h>
#include <string.h>

enum { VERSION = 1, ASKED = 8, TAG = 0 };
static const char magic[8] = {'p', 'l', 'a', 'i', 't', 't', 'r', 'c'};
_Static_assert(sizeof(struct trace_head) == 64, "the head of a trace is 64 bytes");
_Static_assert(sizeof(struct exec_event) == 24, "an event is three doubles");

/* ---- clocks ---- */

/* One message of a double to or from a rank. */
static enum err pass(struct comm_world *world, int rank, bool send, double *t)
{
    struct comm_req r = {0};
    TRY(send ? comm_send_start(world, rank, TAG, t, (int64_t)sizeof *t, &r)
             : comm_recv_start(world, rank, TAG, t, (int64_t)sizeof *t, &r));
    return comm_finish(&r);
}

static enum err compare_clocks(struct comm_world *world, double *clock)
{
    double quickest = INFINITY;
    int me = comm_rank(world);
    *clock = 0;
    if (comm_kind(world) == COMM_THREAD)
        return ERR_OK;
    for (int i = 0; me > 0 && i < ASKED; i++) {
        double begin = log_now(), theirs;
        TRY(pass(world, 0, true, &begin));
        TRY(pass(world, 0, false, &theirs));
        double took = log_now() - begin;
        if (took < quickest)
            *clock = theirs - (begin + took / 2);
        quickest = fmin(quickest, took);
    }
    for (int r = 1; me == 0 && r < comm_size(world); r++)
        for (int i = 0; i < ASKED; i++) {
            double t;
            TRY(pass(world, r, false, &t));
            t = log_now();
            TRY(pass(world, r, true, &t));
        }
    return ERR_OK;
}

/* ---- writing ---- */

const char *trace_path(char buf[FS_PATH], const char *dir, int rank)
{
    char name[32];
    snprintf(name, sizeof name, "trace/%d.trace", rank);
    return fs_path(buf, dir, name);
}

enum err trace_open(struct comm_world *world, const struct exec *x, const struct trace_head *head,
                    const char *dir, struct trace_log *out)
{
    struct trace_head h = *head;
    *out = (struct trace_log){.fd = -1};
    memcpy(h.magic, magic, sizeof magic);
    h.version = VERSION;
    h.instrs = exec_instrs(x);
    TRY(compare_clocks(world, &h.clock));
    out->clock = h.clock;
    TRY(mem_new(1 + 3 * h.instrs, sizeof *out->record, "the trace of a step", &out->record));
    TRY(fs_make_dirs(fs_path(out->path, dir, "trace")));
    TRY(fs_log_make(trace_path(out->path, dir, (int)h.rank), &out->fd));
    return fs_append(out->fd, out->path, (const char *)&h, (int64_t)sizeof h);
}

enum err trace_step(struct trace_log *t, struct exec *x, int64_t step, int ago)
{
    int64_t n = exec_instrs(x);
    const struct exec_event *e;
    double *to = t->record;
    TRY(exec_events(x, ago, &e));
    *to++ = (double)step;
    for (int64_t i = 0; i < n; i++) {
        *to++ = e[i].start + t->clock;
        *to++ = e[i].end + t->clock;
        *to++ = e[i].waited;
    }
    TRY(fs_append(t->fd, t->path, (const char *)t->record,
                  (int64_t)sizeof *to * (to - t->record)));
    t->steps++;
    return ERR_OK;
}

enum err trace_close(struct trace_log *t)
{
    bool start = t->fd >= 0 && t->steps == 0 && fs_is_named(t->fd, t->path);
    enum err err = fs_log_close(t->fd, t->path);
    if (start) { /* a head without a step is of a run that did not start */
        (void)fs_sys_unlink(t->path);
        *strrchr(t->path, '/') = '\0';
        (void)fs_sys_rmdir(t->path); /* the last one's */
    }
    mem_free(t->record);
    *t = (struct trace_log){.fd = -1};
    return err;
}

/* ---- reading ---- */

static int64_t record_bytes(const struct trace *t)
{
    return (1 + 3 * t->head.instrs) * (int64_t)sizeof(double);
}

enum err trace_read(const char *dir, int rank, struct trace *out)
{
    const struct trace_head *h = &out->head;
    char path[FS_PATH];
    *out = (struct trace){.steps = 0};
    TRY(fs_map_open(&out->map, trace_path(path, dir, rank), ERR_DATA));
    int64_t body = out->map.size - (int64_t)sizeof *h;
    if (body < 0 || memcmp(out->map.data, magic, sizeof magic) != 0)
        FAIL(ERR_DATA, "trace: %s is not a trace; `plait train --trace` writes them", path);
    memcpy(&out->head, out->map.data, sizeof out->head);
    if (h->version != VERSION)
        FAIL(ERR_DATA, "trace: %s is of version %u and this plait reads version %d", path,
             h->version, VERSION);
    bool sound = h->rank == (uint32_t)rank && h->rank < h->world && isfinite(h->clock) &&
                 h->instrs >= 0 && h->instrs <= INT32_MAX;
    if (!sound)
        FAIL(ERR_DATA, "trace: the head of %s is damaged; trace the run again", path);
    out->steps = body / record_bytes(out);
    out->cut = body % record_bytes(out);
    for (int64_t i = 0; i < out->steps; i++) {
        int64_t step;
        const struct exec_event *e = trace_events(out, i, &step);
        for (int64_t k = 0; k < h->instrs; k++) { /* who reads may subtract without a thought */
            double took = e[k].end - e[k].start;
            if (!(fabs(e[k].start) < 1e15 && took >= 0 && took < 1e15 && e[k].waited >= 0 &&
                  e[k].waited <= took + 1e-6) || step < 1)
                FAIL(ERR_DATA, "trace: %s is damaged at record %lld, instruction %lld; trace the "
                               "run again", path, (long long)i, (long long)k);
        }
    }
    return ERR_OK;
}

const struct exec_event *trace_events(const struct trace *t, int64_t i, int64_t *step)
{
    const double *record =
        (const double *)(const void *)(t->map.data + sizeof t->head + i * record_bytes(t));
    *step = fabs(record[0]) < 1e15 ? (int64_t)record[0] : -1;
    return (const struct exec_event *)(const void *)(record + 1);
}

void trace_unread(struct trace *t)
{
    fs_map_close(&t->map);
    *t = (struct trace){.steps = 0};
}
