/* SPDX-License-Identifier: Apache-2.0
 *
 * `plait bench`: what a device and the links between ranks can do, and what a step of a model asks
 * of them. See bench.c for the parts.
 */
#ifndef PLAIT_STUDY_BENCH_H
#define PLAIT_STUDY_BENCH_H

#include "comm/comm.h"
#include "device/calls.h"
#include "plait.h"
#include "config/options.h"

/* A call of the step with what it took. */
struct bench_call {
    struct calls_call call;
    double seconds; /* of one call; 0: not measured */
};

/* A point of a curve: `bytes` of one rank's buffer took `seconds`. */
struct bench_point { int64_t bytes; double seconds; };
enum bench_link { LINK_ALL_REDUCE, LINK_ALL_GATHER, LINK_REDUCE_SCATTER, LINK_ALL_TO_ALL, LINK_SEND,
                  BENCH_LINKS };
enum { BENCH_POINTS = 10 }; /* 1 KiB, 4 KiB, ... 256 MiB */

struct bench {
    const struct options *o;         /* borrowed */
    const struct plait_bench *a;     /* borrowed */
    struct dtypes types;
    char device[256];                /* as it describes itself */
    double gemm, copy;               /* ceilings: FLOP/s, bytes/s */
    int64_t gemm_side, copy_bytes; /* what gave them; 0: they were given */
    struct bench_call *call;         /* owned; [calls] */
    int calls;
    int64_t tokens;                  /* of the step that was noted */
    int ranks;                       /* of the curves */
    struct bench_point curve[BENCH_LINKS][BENCH_POINTS];
    int points[BENCH_LINKS];
};

/* Seconds of budget for one figure. */
static inline double bench_budget(const struct bench *b)
{
    return b->a->seconds > 0 ? b->a->seconds : 0.2;
}

/* The calls of a step of b->o on one rank, in order of first use, into b->call. */
enum err bench_step(struct bench *b);
/* Ceilings of the device into b, and the seconds of each call. (bench_kernels.c) */
enum err bench_ceilings(struct bench *b, struct dev *d);
enum err bench_kernels(struct bench *b, struct dev *d);
/* The middle one of n times, which it sorts. */
double bench_median(double *t, int n);

/* Curves of the links into the struct bench on rank 0. Collective over the world. */
enum err bench_links(void *bench, struct comm_world *w);

/* ---- what is said of it (bench_report.c) ---- */

/* Says a line to the caller as soon as it is known. */
void bench_say(const struct bench *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Least seconds of a call at the ceilings. Pure. */
double bench_floor(const struct bench *b, const struct calls_call *c);
const char *bench_link_name(enum bench_link l);
/* Bytes that a rank must at least send for a point, over its time. Pure. */
double bench_bus(const struct bench *b, enum bench_link l, const struct bench_point *p);
/* Tables. */
void bench_report_classes(const struct bench *b);
void bench_report_links(const struct bench *b);
/* The file of docs/cluster-profile.md. Errors: ERR_STORAGE, ERR_MEMORY. */
enum err bench_profile(const struct bench *b, const char *path);

enum err bench_run(const struct options *o, const struct plait_bench *a);

#endif
