/* SPDX-License-Identifier: Apache-2.0
 *
 * amx_attn.h and amx_attn_grad.h on the processor's own tiles: how attention is cut into items of
 * the pool. Cuts follow the number of threads, which they may, for no cut changes a bit.
 */
#include "device/cpu/cpu_amx.h"

#if defined(PLAIT_HAVE_AMX)
#include "device/cpu/amx_attn.h"
#include "device/cpu/amx_attn_grad.h"

void cpu_amx_attn(struct cpu *p, const struct attn *a)
{
    struct amx_attn w = {.a = *a};
    int64_t items = amx_attn_cut(&w, p->dev.threads);
    cpu_pool_run(p->pool, amx_attn_chunks, &w, items, 1);
}

void cpu_amx_attn_grad(struct cpu *p, const struct attn_grad *g)
{
    struct amx_attn_grad w = {.a = *g};
    int64_t queries, items = amx_attn_grad_cut(&w, p->dev.threads, &queries);
    if (queries == 0) {
        cpu_pool_run(p->pool, amx_attn_grad_heads, &w, items, 1);
        return;
    }
    cpu_pool_run(p->pool, amx_attn_grad_keys, &w, items, 1);
    cpu_pool_run(p->pool, amx_attn_grad_queries, &w, queries, 1);
}
#else

void cpu_amx_attn(struct cpu *p, const struct attn *a)
{
    (void)p;
    (void)a;
}

void cpu_amx_attn_grad(struct cpu *p, const struct attn_grad *g)
{
    (void)p;
    (void)g;
}
#endif
