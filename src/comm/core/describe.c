/* SPDX-License-Identifier: Apache-2.0
 *
 * Operations in messages: what differs, who has exited. Both transports use the same text.
 */
#include "comm/core/core.h"

#include "base/text.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const char *comm_coll_name(enum comm_coll_kind k)
{
    static const char *const name[] = {"all_reduce", "reduce_scatter", "all_gather",
                                       "all_to_all", "reduce", "broadcast", "barrier"};
    return (unsigned)k < sizeof name / sizeof *name ? name[k] : "unknown operation";
}

bool comm_coll_same(const struct comm_coll *a, const struct comm_coll *b)
{
    bool counts = a->kind == COMM_ALL_TO_ALL || a->count == b->count; /* pairs agree on those */
    return a->kind == b->kind && a->dt == b->dt && a->red == b->red && a->root == b->root &&
           counts && a->chunk == b->chunk;
}

const char *comm_coll_text(const struct comm_coll *c, char buf[96])
{
    const char *name = comm_coll_name(c->kind);
    char to[32] = "";
    if (c->kind == COMM_REDUCE)
        snprintf(to, sizeof to, " to member %d", c->root);
    if (c->chunk > 0)
        snprintf(to, sizeof to, ", chunk %d", c->chunk);
    if (c->kind == COMM_BARRIER)
        snprintf(buf, 96, "%s", name);
    else if (c->kind == COMM_BROADCAST)
        snprintf(buf, 96, "%s of %" PRId64 " byte%s from member %d", name, c->count,
                 text_plural(c->count, "s"), c->root);
    else
        snprintf(buf, 96, "%s%s of %" PRId64 " %s element%s%s", name,
                 c->red == COMM_MAX ? " (max)" : "", c->count, dtype_name(c->dt),
                 text_plural(c->count, "s"), to);
    return buf;
}

enum err comm_coll_mismatch(const struct comm_group *g, int64_t seq, const int rank[2],
                            const struct comm_coll c[2])
{
    char a[96], b[96];
    FAIL(ERR_MISMATCH,
         "comm: operation %" PRId64 " of group %d is %s on rank %d, but %s on rank %d; all members "
         "must make the same calls in the same order",
         seq, g->id, comm_coll_text(&c[0], a), rank[0], comm_coll_text(&c[1], b), rank[1]);
}

enum err comm_pair_mismatch(const struct comm_group *g, int64_t seq, const struct comm_pair *p)
{
    FAIL(ERR_MISMATCH,
         "comm: operation %" PRId64 " of group %d, an all_to_all: rank %d sends %" PRId64
         " element%s to rank %d, but rank %d receives %" PRId64 "; both sides must agree",
         seq, g->id, p->from, p->sends, text_plural(p->sends, "s"), p->to, p->to, p->receives);
}

const char *comm_msg_text(const struct comm_msg *m, char buf[COMM_PENDING_TEXT])
{
    if (m->dst)
        snprintf(buf, COMM_PENDING_TEXT, "the receive of %" PRId64 " byte%s from rank %d, tag %d",
                 m->bytes, text_plural(m->bytes, "s"), m->from, m->tag);
    else
        snprintf(buf, COMM_PENDING_TEXT, "the send of %" PRId64 " byte%s to rank %d, tag %d",
                 m->bytes, text_plural(m->bytes, "s"), m->to, m->tag);
    return buf;
}

const char *comm_pending_text(const struct comm_pending_op *x, char buf[COMM_PENDING_TEXT])
{
    char what[96];
    if (x->msg)
        return comm_msg_text(x->msg, buf);
    if (x->group)
        snprintf(buf, COMM_PENDING_TEXT, "%s, operation %" PRId64 " of group %d",
                 comm_coll_text(x->coll, what), x->seq, x->group->id);
    else
        snprintf(buf, COMM_PENDING_TEXT, "the end of the run");
    return buf;
}

void comm_names_add(struct comm_names *n, int rank)
{
    if (n->named == COMM_NAMES) {
        n->more++;
        return;
    }
    int k = snprintf(n->text + n->used, sizeof n->text - n->used, "%s%d", n->named++ ? ", " : "",
                     rank);
    n->used += k > 0 ? (size_t)k : 0;
}

void comm_names_end(struct comm_names *n)
{
    if (n->more)
        snprintf(n->text + n->used, sizeof n->text - n->used, " and %d more", n->more);
}

enum err comm_peer_exited(const struct comm_pending_op *x, const struct comm_world *w, int i)
{
    char what[COMM_PENDING_TEXT];
    FAIL(ERR_PEER, "comm: rank %d has ended without taking part in %s, which rank %d waits for",
         x->ranks[i], comm_pending_text(x, what), w->rank);
}

const char *comm_rank_error(const struct comm_world *w, const char *text, char buf[COMM_RANK_TEXT])
{
    const char *bare = err_bare(text);
    if (w->size == 1)
        snprintf(buf, COMM_RANK_TEXT, "%s", text);
    else if (strncmp(bare, "rank ", 5) == 0 || strncmp(bare, "ranks ", 6) == 0)
        snprintf(buf, COMM_RANK_TEXT, "%s", bare);
    else
        snprintf(buf, COMM_RANK_TEXT, "rank %d: %s", w->rank, bare);
    return buf;
}
