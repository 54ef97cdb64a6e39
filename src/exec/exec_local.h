/* SPDX-License-Identifier: Apache-2.0
 *
 * What the executor's files share.
 */
#ifndef PLAIT_EXEC_LOCAL_H
#define PLAIT_EXEC_LOCAL_H

#include "exec/exec.h"

/* ---- exec.c ---- */

/* A list is about to run on a batch. What the choice of slots depends on is as before any other
 * run, so that a list always makes the same calls, with the same buffers. */
void exec_begin(struct exec *x, const struct sched *s, const struct exec_batch *b,
                const struct exec_hooks *hooks);
/* The batch to the device, and no loss yet. */
enum err exec_feed(struct exec *x, const struct exec_batch *b);
/* All instructions of x->sched, until every send is over. */
enum err exec_perform(struct exec *x);
/* What hooks->step says, to the device. */
enum err exec_step_set(struct exec *x, const struct exec_hooks *hooks);

/* ---- exec_slots.c ---- */

/* Microbatch mb of the batch under way, full or the rest. */
struct stage_mb exec_mb_of(const struct exec *x, int mb);
/* World rank of a pipeline rank. */
int exec_world_rank(const struct exec *x, int pp);
/* Every wait for a message goes through here: the host's, or that of the device's stream. */
enum err exec_await(struct exec *x, struct comm_req *r);
/* Does microbatch mb meet stage `id` on this rank? The stage of an instruction; of one that names
 * no microbatch; and the parts that it is for. */
bool exec_is_here(const struct exec *x, int id, int mb);
struct exec_stage *exec_stage_of(struct exec *x, int id, int mb);
struct exec_stage *exec_stage_held(struct exec *x, int id);
struct stage_range exec_parts_of(const struct exec *x, const struct exec_stage *e,
                                 struct sched_instr in);
/* The slot of microbatch mb. */
struct exec_slot *exec_slot_of(struct exec_stage *e, int mb);
/* A slot for it, and back; a save set lent to that slot, and back; *k = a keep set that is free,
 * which stays free. Errors: ERR_INTERNAL where the check counted too few. */
enum err exec_slot_take(struct exec *x, struct exec_stage *e, int mb);
void exec_slot_give(struct exec_stage *e, int mb);
enum err exec_saves_take(const struct exec *x, struct exec_stage *e, int mb);
void exec_saves_give(struct exec_stage *e, int mb);
enum err exec_keep_find(const struct exec *x, const struct exec_stage *e, int *k);

/* exec_trace.c: takes the timers, when asked for. The instruction at x->at begins: it takes the
 * place of the one under way, which is given back to end with. A wait begins, or is over. All but
 * the first do nothing where nothing is traced. */
enum err exec_trace_open(struct exec *x);
void exec_trace_close(struct exec *x);
enum err exec_trace_begin(struct exec *x, int64_t *outer);
enum err exec_trace_end(struct exec *x, int64_t outer);
enum err exec_trace_wait(struct exec *x, bool over);

/* exec_record.c: the recording, if there is one, and what the world knows of it. */
void exec_forget(struct exec *x);

/* exec_guard.c: are there to be guards? A run begins, whose traffic is counted. The rest do nothing
 * without guards: a slot, a save set, a keep set before they are used; scratch between
 * instructions; what others own of some weights. */
bool exec_guarded(const struct exec_args *a);
void exec_count_run(struct exec *x);
void exec_poison_saves(const struct exec *x, const struct exec_stage *e, void *(*save)[SAVE_COUNT]);
void exec_poison_keep(const struct exec *x, const struct exec_stage *e,
                      const struct stage_keep *keep);
void exec_poison_scratch(const struct exec *x);
void exec_poison_weights(const struct exec *x, const struct param_store *s, struct dp_range at);

#endif
