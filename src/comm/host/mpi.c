/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks as processes under mpirun or srun: their life, and the table of their transport.
 *
 * An MPI job cannot be unwound from one side: MPI_Finalize waits for everybody, and the exit code
 * of mpirun is that of whichever process happens to end first. So the rank that fails logs its
 * message, sends a control message to the others, and ends the job with MPI_Abort and its code. A
 * rank that receives it stops waiting with ERR_PEER, and unwinds until it is ended; if that does
 * not happen within a few seconds it ends the job itself with the same code.
 */
#include "comm/host/mpi.h"

#include "base/log.h"
#include "base/mem.h"

enum { ABORT_S = 5 }; /* from learning of a failure to ending the job oneself */

/* What is known so far: another thread may ask, and MPI serves one only. */
static bool has_failed(struct comm_world *w)
{
    return comm_mpi_endpoint(w)->failed != 0;
}

static enum err check_rank(struct comm_world *w, const char *what)
{
    TRY(comm_mpi_poll_control(comm_mpi_endpoint(w)));
    return comm_mpi_check(comm_mpi_endpoint(w), what);
}

static bool may_report(struct comm_world *w)
{
    return comm_mpi_life_is_reporter(&comm_mpi_endpoint(w)->life);
}

static const struct comm_ops mpi_ops = {
    .msg_start = comm_mpi_msg_start,
    .msg_finish = comm_mpi_msg_finish,
    .coll_start = comm_mpi_coll_start,
    .coll_finish = comm_mpi_coll_finish,
    .group_open = comm_mpi_group_open,
    .group_close = comm_mpi_group_close,
    .abort = comm_mpi_abort,
    .failed = has_failed,
    .check = check_rank,
    .may_report = may_report,
};

static enum err open_channel(MPI_Comm *out)
{
    TRY_MPI(MPI_Comm_dup(MPI_COMM_WORLD, out));
    TRY_MPI(MPI_Comm_set_errhandler(*out, MPI_ERRORS_RETURN));
    return ERR_OK;
}

static enum err endpoint_open(struct comm_mpi_endpoint *e, double timeout_s)
{
    int *tag_max = NULL, has = 0;
    e->world = (struct comm_world){.ops = &mpi_ops, .kind = COMM_MPI, .timeout_s = timeout_s,
                                   .impl = e};
    e->in = MPI_REQUEST_NULL;
    TRY_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &e->world.rank));
    TRY_MPI(MPI_Comm_size(MPI_COMM_WORLD, &e->world.size));
    log_set_rank(e->world.rank);
    if (e->world.size > COMM_RANKS_MAX)
        FAIL(ERR_CONFIG, "comm: %d ranks; at most %d are served", e->world.size, COMM_RANKS_MAX);
    TRY(mem_new(e->world.size, sizeof *e->out, "requests of the control channel", &e->out));
    TRY(mem_new(e->world.size, sizeof *e->ended, "times of ending", &e->ended));
    for (int i = 0; i < e->world.size; i++)
        e->out[i] = MPI_REQUEST_NULL;
    TRY(open_channel(&e->msg));
    TRY(open_channel(&e->coll));
    TRY(open_channel(&e->ctl));
    TRY_MPI(MPI_Comm_get_attr(e->msg, MPI_TAG_UB, &tag_max, &has));
    e->tag_max = has ? *tag_max : 32767; /* what the standard promises */
    TRY_MPI(MPI_Type_contiguous(COMM_MPI_BLOCK, MPI_BYTE, &e->block));
    TRY_MPI(MPI_Type_commit(&e->block));
    if (e->world.size > 1)
        TRY_MPI(MPI_Irecv(e->control_in, 2, MPI_INT, MPI_ANY_SOURCE, 0, e->ctl, &e->in));
    return comm_mpi_life_open(&e->life, &e->world);
}

static bool end_missing(const struct comm_pending_op *x, int i)
{
    const struct comm_mpi_endpoint *e = x->a;
    return i != e->world.rank && e->ended[i] == 0;
}

static enum err end_step(const struct comm_pending_op *x, bool *done)
{
    struct comm_mpi_endpoint *e = x->a;
    int sent;
    TRY_MPI(MPI_Testall(e->world.size, e->out, &sent, MPI_STATUSES_IGNORE));
    *done = sent && e->ends == e->world.size - 1;
    return ERR_OK;
}

/* Send that this rank has ended, and wait until all have. */
static enum err end_together(struct comm_mpi_endpoint *e)
{
    struct comm_pending_op x = {.missing = end_missing, .n = e->world.size, .a = e};
    int *ranks;
    TRY(comm_check_finished(&e->world));
    TRY(mem_new(e->world.size, sizeof *ranks, "the ranks of a world", &ranks));
    for (int i = 0; i < e->world.size; i++)
        ranks[i] = i;
    x.ranks = ranks;
    enum err err = comm_mpi_send_ended(e);
    if (err == ERR_OK)
        err = comm_mpi_wait(e, &x, end_step);
    comm_board_ended(&e->world);
    mem_free(ranks);
    return err;
}

/* The end of a job in which a rank has failed; see above. Ranks that fail at the same moment, as
 * all do when an agreed number is not finite, receive each other's failure first, and the lowest
 * reports. */
static enum err end_job(struct comm_mpi_endpoint *e, enum err err)
{
    if (e->world.size == 1)
        return err; /* nobody waits: an error like any other */
    struct err_kept first; /* MPI may fail again */
    err_keep(&first, err);
    if (!e->failed) {
        comm_mpi_send_failed(e, err);
        if (e->world.unfinished == 0)
            comm_mpi_agree(e);
    }
    if (e->failed == 1 + e->world.rank && comm_mpi_life_is_reporter(&e->life)) {
        char text[COMM_RANK_TEXT];
        log_set_rank(-1); /* the message names it */
        log_line(LOG_ERROR, "%s", comm_rank_error(&e->world, first.text, text));
        MPI_Abort(MPI_COMM_WORLD, (int)err);
    }
    if (atomic_load(&e->life.reported))
        MPI_Abort(MPI_COMM_WORLD, (int)e->failed_code);
    for (int i = 0; i < ABORT_S * 10; i++)
        comm_mpi_nap(100000000);
    MPI_Abort(MPI_COMM_WORLD, (int)e->failed_code);
    return err;
}

static enum err run(const char *what, double timeout_s,
                    enum err (*body)(void *arg, struct comm_world *w), void *arg)
{
    struct comm_mpi_endpoint e = {.life = {.stop = -1}, .ctl = MPI_COMM_NULL};
    enum err err = comm_mpi_start(what, timeout_s);
    if (err != ERR_OK) {
        comm_mpi_limit_end();
        return err;
    }
    err = endpoint_open(&e, timeout_s);
    comm_mpi_limit_end();
    if (err == ERR_OK)
        err = body(arg, &e.world);
    if (err == ERR_OK)
        err = end_together(&e);
    if (err != ERR_OK)
        return end_job(&e, err);
    comm_mpi_life_close(&e.life);
    MPI_Type_free(&e.block);
    MPI_Comm_free(&e.ctl);
    MPI_Comm_free(&e.coll);
    MPI_Comm_free(&e.msg);
    mem_free(e.ended);
    mem_free(e.out);
    return ERR_OK;
}

const struct comm_processes comm_mpi_transport = {
    .run = run, .report_error = comm_mpi_report_error};
