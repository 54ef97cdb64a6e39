/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages over MPI: they travel straight between the callers' buffers, beyond an int's bytes as a
 * count of 1 MiB blocks and a rest.
 */
#include "comm/host/mpi.h"

#include "base/text.h"
#include <limits.h>
#include <stdio.h>
#include <string.h>

/* The request's words: BLOCKS and REST hold MPI's requests; TAG is -1 - tag for a receive. */
enum word { PEER, BYTES, TAG, BLOCKS, REST };

static MPI_Request get_request(const struct comm_req *r, int i)
{
    MPI_Request q;
    _Static_assert(sizeof q <= sizeof r->word[0], "a request of MPI fits a word");
    memcpy(&q, &r->word[(int)BLOCKS + i], sizeof q);
    return q;
}

static struct comm_msg msg_of(const struct comm_req *r, int me)
{
    int tag = (int)r->word[TAG], peer = (int)r->word[PEER];
    static char there; /* marks a receive */
    return tag < 0 ? (struct comm_msg){.from = peer, .to = me, .tag = -1 - tag,
                                       .bytes = r->word[BYTES], .dst = &there}
                   : (struct comm_msg){.from = me, .to = peer, .tag = tag,
                                       .bytes = r->word[BYTES]};
}

/* Start piece 0 (whole blocks) or 1 (the rest) of a message. */
static enum err post_piece(struct comm_mpi_endpoint *e, const struct comm_msg *m,
                           struct comm_req *r, int piece)
{
    int64_t blocks = m->bytes / COMM_MPI_BLOCK, rest = m->bytes % COMM_MPI_BLOCK;
    int count = (int)(piece == 0 ? blocks : rest);
    MPI_Datatype type = piece == 0 ? e->block : MPI_BYTE;
    int64_t at = piece == 0 ? 0 : blocks * COMM_MPI_BLOCK;
    MPI_Request q = MPI_REQUEST_NULL;
    bool needed = piece == 0 ? blocks > 0 : rest > 0 || blocks == 0;
    if (needed && m->dst)
        TRY_MPI(MPI_Irecv((char *)m->dst + at, count, type, m->from, m->tag, e->msg, &q));
    else if (needed)
        TRY_MPI(MPI_Isend((const char *)m->src + at, count, type, m->to, m->tag, e->msg, &q));
    memcpy(&r->word[(int)BLOCKS + piece], &q, sizeof q);
    return ERR_OK;
}

static enum err msg_post(struct comm_mpi_endpoint *e, const struct comm_msg *m, struct comm_req *r)
{
    char buf[COMM_PENDING_TEXT];
    TRY(comm_mpi_check(e, comm_msg_text(m, buf)));
    TRY(comm_mpi_poll_control(e));
    TRY(comm_mpi_check(e, buf));
    if (m->tag > e->tag_max || m->bytes / COMM_MPI_BLOCK > INT_MAX)
        FAIL(ERR_INTERNAL, "comm: %s: MPI's tags end at %d and messages at 2 PiB", buf, e->tag_max);
    r->word[PEER] = m->dst ? m->from : m->to;
    r->word[BYTES] = m->bytes;
    r->word[TAG] = m->dst ? -1 - m->tag : m->tag;
    TRY(post_piece(e, m, r, 0));
    TRY(post_piece(e, m, r, 1));
    return ERR_OK;
}

enum err comm_mpi_msg_start(struct comm_world *w, const struct comm_msg *m, struct comm_req *r)
{
    enum err err = msg_post(comm_mpi_endpoint(w), m, r);
    return err == ERR_OK ? ERR_OK : comm_mpi_give_up(comm_mpi_endpoint(w), err);
}

static enum err fail_length(const struct comm_msg *m, const char *sent)
{
    FAIL(ERR_MISMATCH, "comm: rank %d sends %s with tag %d, but rank %d receives %lld; both "
                       "sides must agree", m->from, sent, m->tag, m->to, (long long)m->bytes);
}

/* Did the piece bring all the bytes it should? */
static enum err check_length(const struct comm_mpi_endpoint *e, const struct comm_msg *m, int piece,
                             const MPI_Status *status)
{
    MPI_Count bytes = 0;
    char sent[32];
    int64_t expected = piece == 0 ? m->bytes / COMM_MPI_BLOCK * COMM_MPI_BLOCK
                              : m->bytes % COMM_MPI_BLOCK;
    TRY_MPI(MPI_Get_elements_x(status, piece == 0 ? e->block : MPI_BYTE, &bytes));
    if (bytes == expected)
        return ERR_OK;
    bytes += m->bytes - expected;
    snprintf(sent, sizeof sent, "%lld byte%s", (long long)bytes, text_plural(bytes, "s"));
    return fail_length(m, sent);
}

static enum err msg_step(const struct comm_pending_op *x, bool *done)
{
    struct comm_req *r = x->a;
    *done = true;
    for (int i = 0; i < 2; i++) {
        MPI_Request q = get_request(r, i);
        MPI_Status status;
        int come;
        if (q == MPI_REQUEST_NULL)
            continue;
        int rc = MPI_Test(&q, &come, &status), class = 0;
        if (rc != MPI_SUCCESS)
            MPI_Error_class(rc, &class);
        if (class == MPI_ERR_TRUNCATE)
            return fail_length(x->msg, "more bytes");
        TRY_MPI(rc);
        memcpy(&r->word[(int)BLOCKS + i], &q, sizeof q);
        if (come && x->msg->dst)
            TRY(check_length(comm_mpi_endpoint(r->world), x->msg, i, &status));
        *done = *done && come;
    }
    return ERR_OK;
}

static bool msg_missing(const struct comm_pending_op *x, int i)
{
    (void)i;
    return get_request(x->a, 0) != MPI_REQUEST_NULL || get_request(x->a, 1) != MPI_REQUEST_NULL;
}

enum err comm_mpi_msg_finish(struct comm_world *w, struct comm_req *r)
{
    struct comm_msg m = msg_of(r, w->rank);
    int peer = (int)r->word[PEER];
    struct comm_pending_op x = {.missing = msg_missing, .ranks = &peer, .n = 1, .msg = &m, .a = r};
    return comm_mpi_wait(comm_mpi_endpoint(w), &x, msg_step);
}
