/* SPDX-License-Identifier: Apache-2.0
 *
 * How ranks that are processes wait, and how they fail. A wait looks at its own requests, at all
 * operations under way (a peer may need this rank's part in one that it is not waiting for), and at
 * the control channel, which has two messages, `ended` and `failed`; and it gives the core away
 * between looks, for there may be more ranks than cores. A rank ends its run only when all others
 * have ended. From the moment a rank knows of a failure it makes no further call that could move
 * data: buffers are given back while unwinding, with requests on them that nobody will finish.
 */
#include "comm/host/mpi.h"

#include "base/log.h"
#include <sched.h>
#include <time.h>

enum {
    LOOKS = 2000,       /* with sched_yield between, before naps */
    NAP_NS = 50000,
    AGREE_NAPS = 400,   /* of 10 NAP_NS: a fifth of a second to unwind and agree on who reports */
};
/* A rank's last messages may come after the one that it has ended: channels keep no order among
 * each other. Seconds until a missing message counts as never sent. */
static const double late_s = 0.5;

enum control { CONTROL_ENDED = 1, CONTROL_FAILED = 2 };

void comm_mpi_nap(long ns)
{
    struct timespec t = {0, ns};
    nanosleep(&t, NULL);
}

enum err comm_mpi_error(int rc, const char *call, const char *file, int line)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int n = 0;
    MPI_Error_string(rc, text, &n);
    return err_set(ERR_INTERNAL, file, line, "comm: MPI refuses %s: %s", call, text);
}

/* ---- failing and ending ---- */

/* To all others. The sends are tiny and complete by themselves. */
static enum err send_control(struct comm_mpi_endpoint *e, enum control what, enum err code)
{
    e->control_out[0] = (int)what;
    e->control_out[1] = (int)code;
    for (int i = 0; i < e->world.size && e->ctl != MPI_COMM_NULL; i++)
        if (i != e->world.rank)
            TRY_MPI(MPI_Isend(e->control_out, 2, MPI_INT, i, 0, e->ctl, &e->out[i]));
    return ERR_OK;
}

enum err comm_mpi_check(const struct comm_mpi_endpoint *e, const char *what)
{
    if (e->failed)
        FAIL(ERR_PEER, "comm: rank %d has %s; rank %d gives up %s", e->failed - 1,
             e->failed == atomic_load(&e->life.died) ? "died" : "failed", e->world.rank, what);
    return ERR_OK;
}

/* A failure that is not a peer's counts before one that is; then the lower rank's. */
static void note_failure(struct comm_mpi_endpoint *e, int rank, enum err code)
{
    bool peer = code == ERR_PEER, known_peer = e->failed_code == ERR_PEER;
    if (e->failed && (peer != known_peer ? peer : rank > e->failed - 1))
        return;
    e->failed = 1 + rank;
    e->failed_code = code;
}

/* What has come on the control channel. Each rank sends one message at most; after the last one no
 * receive stays posted. */
static enum err receive_control(struct comm_mpi_endpoint *e)
{
    while (e->in != MPI_REQUEST_NULL) {
        MPI_Status status;
        int come;
        TRY_MPI(MPI_Test(&e->in, &come, &status));
        if (!come)
            return ERR_OK;
        if (e->control_in[0] == CONTROL_FAILED)
            note_failure(e, status.MPI_SOURCE, (enum err)e->control_in[1]);
        else
            e->ended[status.MPI_SOURCE] = log_now();
        e->ends += e->control_in[0] == CONTROL_ENDED;
        if (++e->controls < e->world.size - 1)
            TRY_MPI(MPI_Irecv(e->control_in, 2, MPI_INT, MPI_ANY_SOURCE, 0, e->ctl, &e->in));
    }
    return ERR_OK;
}

enum err comm_mpi_poll_control(struct comm_mpi_endpoint *e)
{
    int died = atomic_load(&e->life.died);
    if (died && !e->failed)
        note_failure(e, died - 1, ERR_PEER);
    return e->failed ? ERR_OK : receive_control(e);
}

void comm_mpi_send_failed(struct comm_mpi_endpoint *e, enum err code)
{
    e->failed = 1 + e->world.rank;
    e->failed_code = code;
    if (send_control(e, CONTROL_FAILED, code) != ERR_OK)
        log_line(LOG_WARN, "%s", err_text()); /* MPI_Abort will still end the job */
}

void comm_mpi_agree(struct comm_mpi_endpoint *e)
{
    for (int i = 0; i < AGREE_NAPS && receive_control(e) == ERR_OK; i++)
        comm_mpi_nap(10 * NAP_NS);
}

void comm_mpi_abort(struct comm_world *w, enum err code)
{
    struct comm_mpi_endpoint *e = comm_mpi_endpoint(w);
    struct err_kept first; /* MPI may fail, too */
    if (e->failed)
        return;
    err_keep(&first, code);
    comm_mpi_send_failed(e, code);
    comm_mpi_agree(e);
    (void)err_again(&first);
}

enum err comm_mpi_give_up(struct comm_mpi_endpoint *e, enum err err)
{
    if (e->failed)
        return err;
    comm_mpi_abort(&e->world, err);
    if (e->failed != 1 + e->world.rank)
        TRY(comm_mpi_check(e, "what it cannot do either"));
    return err;
}

enum err comm_mpi_send_ended(struct comm_mpi_endpoint *e)
{
    TRY(comm_mpi_poll_control(e));
    TRY(comm_mpi_check(e, "ending"));
    return send_control(e, CONTROL_ENDED, ERR_OK);
}

/* ---- waiting ---- */

enum err comm_mpi_progress(struct comm_mpi_endpoint *e)
{
    TRY(comm_mpi_poll_control(e));
    if (e->failed)
        return ERR_OK;
    for (struct comm_mpi_active *a = e->active, *next; a; a = next) {
        next = a->next; /* advancing may take it out of the list */
        TRY(a->advance(a));
    }
    return ERR_OK;
}

static enum err check_exited(const struct comm_mpi_endpoint *e, const struct comm_pending_op *x)
{
    for (int i = 0; e->ends > 0 && i < x->n; i++) {
        double ended = e->ended[x->ranks[i]];
        if (ended > 0 && log_now() - ended > late_s && x->missing(x, i))
            return comm_peer_exited(x, &e->world, i);
    }
    return ERR_OK;
}

static enum err wait_loop(struct comm_mpi_endpoint *e, const struct comm_pending_op *x,
                          enum err (*step)(const struct comm_pending_op *x, bool *done))
{
    char buf[COMM_PENDING_TEXT];
    struct comm_hang_timer t = {0};
    for (int64_t looks = 0;; looks++) {
        bool done = false;
        if (e->failed)
            TRY(comm_mpi_check(e, comm_pending_text(x, buf)));
        TRY(step(x, &done));
        if (done)
            return ERR_OK;
        TRY(comm_mpi_progress(e));
        if (looks < LOOKS)
            sched_yield();
        else
            comm_mpi_nap(NAP_NS);
        if (looks % 64 != 0)
            continue;
        TRY(check_exited(e, x));
        if (looks == 0)
            comm_hang_timer_start(&e->world, &t);
        TRY(comm_hang_timer_check(&e->world, x, &t));
    }
}

enum err comm_mpi_wait(struct comm_mpi_endpoint *e, const struct comm_pending_op *x,
                       enum err (*step)(const struct comm_pending_op *x, bool *done))
{
    enum err err = wait_loop(e, x, step);
    comm_board_waits_end(&e->world);
    return err == ERR_OK ? ERR_OK : comm_mpi_give_up(e, err);
}
