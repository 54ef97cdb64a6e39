/* SPDX-License-Identifier: Apache-2.0
 *
 * The register of devices. One row a kind: how it is opened and what it says of itself. A kind
 * that is not built in has no `open`, stays in the table so that it can be named in messages, and
 * is refused with the list of those that are built in. A new device is a folder and a row here.
 */
#include "device/device.h"

#include "base/mem.h"
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

static const struct dev_row *find(enum dev_kind k)
{
    return (int)k >= 0 && (int)k < ROWS ? &rows[k] : NULL;
}

/* Logits of a cuda device in bf16 stay in bf16: they are written once, and their gradient over
 * them. Its GEMMs want many rows at once. */
struct dtypes dev_types(enum dev_kind k, enum dtype ct)
{
    struct dtypes t = {.ct = ct, .at = ct == DT_F64 ? DT_F64 : DT_F32, .chunk = 256 << 20};
    t.logits = t.at;
    if (k == DEV_CUDA) {
        t.logits = ct;
        t.chunk = 1 << 30;
    }
    return t;
}

/* "ref, null, cpu": the kinds that can be opened. */
static void built_names(char *buf, size_t n)
{
    size_t used = 0;
    buf[0] = '\0';
    for (int i = 0; i < ROWS && used < n; i++)
        if (rows[i].open)
            used += (size_t)snprintf(buf + used, n - used, "%s%s", used ? ", " : "", rows[i].name);
}

int64_t dev_workspace_bytes(const struct dev_args *a)
{
    const struct dev_row *row = find(a->kind);
    return row && row->workspace_bytes ? row->workspace_bytes(a) : 0;
}

enum err dev_open(const struct dev_args *a, struct dev **out)
{
    const struct dev_row *row = find(a->kind);
    char names[64];
    ENSURE((int)a->ct >= 0 && a->ct < DT_COUNT);
    built_names(names, sizeof names);
    if (!row)
        FAIL(ERR_CONFIG, "device: there is no device kind %d; use %s", (int)a->kind, names);
    if (!row->open)
        FAIL(ERR_CONFIG, "device: %s is not built into this program; use %s", row->name, names);
    if (a->threads < 1 || a->threads > DEV_MAX_THREADS)
        FAIL(ERR_CONFIG, "device: %s was asked to work with %d threads; use 1 to %d", row->name,
             a->threads, DEV_MAX_THREADS);
    TRY(row->open(a, out));
    return ERR_OK;
}

void dev_close(struct dev *d)
{
    if (!d)
        return;
    double *timer = d->timer;
    d->ops->close(d);
    mem_free(timer);
}

bool dev_built(enum dev_kind k)
{
    const struct dev_row *row = find(k);
    return row && row->open;
}

enum err dev_choices(struct dev *d, struct text *out)
{
    return d->ops->choices ? d->ops->choices(d, out) : ERR_OK;
}

enum err dev_choose(struct dev *d, const char *choices, bool *taken)
{
    *taken = true;
    return d->ops->choose ? d->ops->choose(d, choices, taken) : ERR_OK;
}

void dev_describe_kind(enum dev_kind k, char *buf, size_t n)
{
    const struct dev_row *row = find(k);
    if (row)
        row->describe(buf, n);
    else
        snprintf(buf, n, "device kind %d: unknown", (int)k);
}

void dev_hook_put(struct dev *d, struct dev_hook *h)
{
    h->next = d->hook;
    d->hook = h;
}

void dev_hook_take(struct dev *d, struct dev_hook *h)
{
    struct dev_hook **at = &d->hook;
    while (*at && *at != h)
        at = &(*at)->next;
    if (*at)
        *at = h->next;
}

void dev_watch(struct dev *d, enum err (*check)(void *arg), void *arg)
{
    d->watch = check;
    d->watch_arg = arg;
}

enum err dev_waited(const struct dev *d)
{
    return d->watch ? d->watch(d->watch_arg) : ERR_OK;
}

void dev_describe_units(enum dev_kind k, struct text *out)
{
    const struct dev_row *row = find(k);
    if (row && row->units)
        row->units(out);
}
