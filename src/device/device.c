/* SPDX-License-Identifier: Apache-2.0
 *
 * The register of devices. One row a kind: how it is opened and what it says of itself. A kind
 * that is not built in has no `open`, stays in the table so that it can be named in messages, and
 * is refused with the list of those that are built in. A new device is a folder and a row here.
 */
#include "device/device.h"

#include "device/cpu/cpu.h"
#include "device/null/null.h"
#include "device/ref/ref.h"
#include <stdio.h>

#ifdef PLAIT_HAVE_CUDA
#include "device/cuda/cuda.h"
#else
#define cuda_open NULL
#define cuda_workspace_bytes NULL
#define cuda_describe_all NULL
static void cuda_describe_kind(char *buf, size_t n)
{
    snprintf(buf, n, "cuda: not built in (no CUDA toolkit was found)");
}
#endif

struct dev_row {
    const char *name;
    enum err (*open)(const struct dev_args *a, struct dev **out); /* NULL: not built in */
    void (*describe)(char *buf, size_t n);
    int64_t (*workspace_bytes)(const struct dev_args *a);         /* NULL: none */
    void (*units)(struct text *out);                              /* NULL: none */
};

/* Indexed by enum dev_kind. */
static const struct dev_row rows[] = {
    [DEV_REF] = {"ref", ref_open, ref_describe_kind, NULL, NULL},
    [DEV_NULL] = {"null", null_open, null_describe_kind, NULL, NULL},
    [DEV_CPU] = {"cpu", cpu_open, cpu_describe_kind, cpu_workspace_bytes, NULL},
    [DEV_CUDA] = {"cuda", cuda_open, cuda_describe_kind, cuda_workspace_bytes,
                  cuda_describe_all},
};
enum { ROWS = sizeof rows / sizeof *rows };

static const struct dev_row *row_of(enum dev_kind k)
{
    ENSURE((int)k >= 0 && (int)k < ROWS);
    return &rows[k];
}

int64_t dev_workspace_bytes(const struct dev_args *a)
{
    const struct dev_row *row = row_of(a->kind);
    return row->workspace_bytes ? row->workspace_bytes(a) : 0;
}

enum err dev_open(const struct dev_args *a, struct dev **out)
{
    const struct dev_row *row = row_of(a->kind);
    char names[64] = ""; /* of those that can be opened */
    size_t used = 0;
    for (int i = 0; i < ROWS && used < sizeof names; i++)
        if (rows[i].open)
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "",
                                     rows[i].name);
    ENSURE((int)a->ct >= 0 && a->ct < DT_COUNT);
    if (!row->open)
        FAIL(ERR_CONFIG, "device: %s is not built into this program; use %s", row->name, names);
    if (a->threads < 1 || a->threads > DEV_MAX_THREADS)
        FAIL(ERR_CONFIG, "device: %s was asked to work with %d threads; use 1 to %d", row->name,
             a->threads, DEV_MAX_THREADS);
    TRY(row->open(a, out));
    return ERR_OK;
}

bool dev_built(enum dev_kind k)
{
    return row_of(k)->open;
}

void dev_describe_kind(enum dev_kind k, char *buf, size_t n)
{
    row_of(k)->describe(buf, n);
}

void dev_describe_units(enum dev_kind k, struct text *out)
{
    if (row_of(k)->units)
        row_of(k)->units(out);
}
