/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks as processes under mpirun or srun. Only nonblocking point-to-point calls of MPI are used
 * after the start, so that this file keeps the clock: a wait looks at its own requests, at all
 * groups' operations (a peer may need this rank's part in one that it is not waiting for), and at
 * the control channel, and gives the core away between looks, for there may be more ranks than
 * cores.
 *
 * The control channel carries two words: `ended` (the body has returned ERR_OK) and `failed`. Each
 * rank has one receive posted there. A rank ends its run only when all others have ended. What
 * needs no answer stands in memory that the ranks of a machine share (host/mpi_life.c).
 *
 * Failing. An MPI job cannot be unwound from one side: MPI_Finalize waits for everybody, and the
 * exit code of mpirun is that of whichever process happens to end first. So the rank that fails
 * logs its message, tells the others, and ends the job with MPI_Abort and its code. A rank that
 * hears of it stops waiting with ERR_PEER, and unwinds until it is ended; if that does not happen
 * within a few seconds it ends the job itself with the same code. Several ranks may find the same
 * fault at once (a hang, a mismatch); they hear each other before their calls return, and one of
 * them reports.
 *
 * From the moment a rank knows of another's failure, or its own has been agreed on, it makes no
 * further call that could move data, and each call that looks for a message may move all of them:
 * buffers are given back while unwinding, with requests on them that nobody will finish.
 *
 * Messages travel straight between the callers' buffers; beyond an int's bytes as a count of
 * 1 MiB blocks and a rest.
 */
#include "comm/host/mpi.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "comm/host/mpi_start.h"
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    LOOKS = 2000,       /* with sched_yield between, before naps */
    NAP_NS = 50000,
    AGREE_NAPS = 400,   /* of 10 NAP_NS: a fifth of a second to unwind and agree on who reports */
    HEARD_S = 5,        /* from hearing of a failure to ending the job oneself */
};
/* A rank's last messages may come after the word that it has ended: channels keep no order among
 * each other. Seconds until a missing message counts as never sent. */
static const double late_s = 0.5;

enum word { WORD_ENDED = 1, WORD_FAILED = 2 };

static void nap(long ns)
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

/* Send a word to all others. The sends are tiny and complete by themselves. */
static enum err tell(struct comm_mpi_seat *s, enum word word, enum err code)
{
    s->word_out[0] = (int)word;
    s->word_out[1] = (int)code;
    for (int i = 0; i < s->world.size && s->ctl != MPI_COMM_NULL; i++)
        if (i != s->world.rank)
            TRY_MPI(MPI_Isend(s->word_out, 2, MPI_INT, i, 0, s->ctl, &s->out[i]));
    return ERR_OK;
}

enum err comm_mpi_check(const struct comm_mpi_seat *s, const char *what)
{
    if (s->failed)
        FAIL(ERR_PEER, "comm: rank %d has %s; rank %d gives up %s", s->failed - 1,
             s->failed == atomic_load(&s->life.died) ? "died" : "failed", s->world.rank, what);
    return ERR_OK;
}

/* What has been heard so far: another thread may ask, and MPI serves one only. */
static bool has_failed(struct comm_world *w)
{
    return comm_mpi_seat(w)->failed != 0;
}

/* A failure that is not a peer's counts before one that is; then the lower rank's. */
static void heard_failure(struct comm_mpi_seat *s, int rank, enum err code)
{
    bool peer = code == ERR_PEER, known_peer = s->failed_code == ERR_PEER;
    if (s->failed && (peer != known_peer ? peer : rank > s->failed - 1))
        return;
    s->failed = 1 + rank;
    s->failed_code = code;
}

/* Take in what has come on the control channel. Each rank says one word at most; after the last
 * one no receive stays posted. */
static enum err hear(struct comm_mpi_seat *s)
{
    while (s->in != MPI_REQUEST_NULL) {
        MPI_Status status;
        int come;
        TRY_MPI(MPI_Test(&s->in, &come, &status));
        if (!come)
            return ERR_OK;
        if (s->word_in[0] == WORD_FAILED)
            heard_failure(s, status.MPI_SOURCE, (enum err)s->word_in[1]);
        else
            s->ended[status.MPI_SOURCE] = log_now();
        s->ends += s->word_in[0] == WORD_ENDED;
        if (++s->words < s->world.size - 1)
            TRY_MPI(MPI_Irecv(s->word_in, 2, MPI_INT, MPI_ANY_SOURCE, 0, s->ctl, &s->in));
    }
    return ERR_OK;
}

/* Hear, unless a failure is known: whatever looks for one message moves all of them. */
static enum err listen(struct comm_mpi_seat *s)
{
    int died = atomic_load(&s->life.died);
    if (died && !s->failed)
        heard_failure(s, died - 1, ERR_PEER);
    return s->failed ? ERR_OK : hear(s);
}

/* This rank fails first, as far as it knows: say so. */
static void say_failed(struct comm_mpi_seat *s, enum err code)
{
    s->failed = 1 + s->world.rank;
    s->failed_code = code;
    if (tell(s, WORD_FAILED, code) != ERR_OK)
        log_line(LOG_WARN, "%s", err_text()); /* MPI_Abort will still end the job */
}

/* Hear for a moment who else has failed. The buffers of unfinished operations are still there. */
static void agree(struct comm_mpi_seat *s)
{
    for (int i = 0; i < AGREE_NAPS && hear(s) == ERR_OK; i++)
        nap(10 * NAP_NS);
}

static void abort_rank(struct comm_world *w, enum err code)
{
    struct comm_mpi_seat *s = comm_mpi_seat(w);
    struct err_kept first; /* MPI may fail, too */
    if (s->failed)
        return;
    err_keep(&first, code);
    say_failed(s, code);
    agree(s);
    (void)err_again(&first);
}

static enum err check_rank(struct comm_world *w, const char *what)
{
    TRY(listen(comm_mpi_seat(w)));
    return comm_mpi_check(comm_mpi_seat(w), what);
}

static bool last_word(struct comm_world *w)
{
    return comm_mpi_life_speaks(&comm_mpi_seat(w)->life);
}

enum err comm_mpi_give_up(struct comm_mpi_seat *s, enum err err)
{
    if (s->failed)
        return err;
    abort_rank(&s->world, err);
    if (s->failed != 1 + s->world.rank)
        TRY(comm_mpi_check(s, "what it cannot do either"));
    return err;
}

/* ---- waiting ---- */

enum err comm_mpi_progress(struct comm_mpi_seat *s)
{
    TRY(listen(s));
    if (s->failed)
        return ERR_OK;
    for (struct comm_mpi_group *m = s->active, *next; m; m = next) {
        next = comm_mpi_next(m); /* advancing may take m out of the list */
        TRY(comm_mpi_advance(m));
    }
    return ERR_OK;
}

static enum err check_gone(const struct comm_mpi_seat *s, const struct comm_want *x)
{
    for (int i = 0; s->ends > 0 && i < x->n; i++) {
        double ended = s->ended[x->ranks[i]];
        if (ended > 0 && log_now() - ended > late_s && x->missing(x, i))
            return comm_want_gone(x, &s->world, i);
    }
    return ERR_OK;
}

static enum err wait_loop(struct comm_mpi_seat *s, const struct comm_want *x,
                          enum err (*step)(const struct comm_want *x, bool *done))
{
    char buf[COMM_WANT_TEXT];
    struct comm_long l = {0};
    for (int64_t looks = 0;; looks++) {
        bool done = false;
        if (s->failed)
            TRY(comm_mpi_check(s, x->text(x, buf)));
        TRY(step(x, &done));
        if (done)
            return ERR_OK;
        TRY(comm_mpi_progress(s));
        if (looks < LOOKS)
            sched_yield();
        else
            nap(NAP_NS);
        if (looks % 64 != 0)
            continue;
        TRY(check_gone(s, x));
        if (looks == 0)
            comm_long_begin(&s->world, &l);
        TRY(comm_long_look(&s->world, x, &l));
    }
}

enum err comm_mpi_wait(struct comm_mpi_seat *s, const struct comm_want *x,
                       enum err (*step)(const struct comm_want *x, bool *done))
{
    enum err err = wait_loop(s, x, step);
    comm_long_end(&s->world);
    return err == ERR_OK ? ERR_OK : comm_mpi_give_up(s, err);
}

/* ---- messages ----
 * The request's words: 1: peer's rank; 2, 3: MPI's requests for the blocks and the rest;
 * 4: bytes; 5: tag, negative (-1 - tag) for a receive. */

static MPI_Request get_request(const struct comm_req *r, int i)
{
    MPI_Request q;
    _Static_assert(sizeof q <= sizeof r->word[0], "a request of MPI fits a word");
    memcpy(&q, &r->word[2 + i], sizeof q);
    return q;
}

static void put_request(struct comm_req *r, int i, MPI_Request q)
{
    memcpy(&r->word[2 + i], &q, sizeof q);
}

static struct comm_msg msg_of(const struct comm_req *r, int me)
{
    int tag = (int)r->word[5], peer = (int)r->word[1];
    static char there; /* says that it is a receive */
    if (tag < 0)
        return (struct comm_msg){.from = peer, .to = me, .tag = -1 - tag, .bytes = r->word[4],
                                 .dst = &there};
    return (struct comm_msg){.from = me, .to = peer, .tag = tag, .bytes = r->word[4]};
}

/* Start piece 0 (whole blocks) or 1 (the rest) of a message. */
static enum err post_piece(struct comm_mpi_seat *s, const struct comm_msg *m, struct comm_req *r,
                           int piece)
{
    int64_t blocks = m->bytes / COMM_MPI_BLOCK, rest = m->bytes % COMM_MPI_BLOCK;
    int count = (int)(piece == 0 ? blocks : rest);
    MPI_Datatype type = piece == 0 ? s->block : MPI_BYTE;
    int64_t at = piece == 0 ? 0 : blocks * COMM_MPI_BLOCK;
    MPI_Request q = MPI_REQUEST_NULL;
    bool needed = piece == 0 ? blocks > 0 : rest > 0 || blocks == 0;
    if (needed && m->dst)
        TRY_MPI(MPI_Irecv((char *)m->dst + at, count, type, m->from, m->tag, s->msg, &q));
    else if (needed)
        TRY_MPI(MPI_Isend((const char *)m->src + at, count, type, m->to, m->tag, s->msg, &q));
    put_request(r, piece, q);
    return ERR_OK;
}

static enum err msg_post(struct comm_mpi_seat *s, const struct comm_msg *m, struct comm_req *r)
{
    char buf[COMM_WANT_TEXT];
    TRY(comm_mpi_check(s, comm_msg_text(m, buf)));
    TRY(listen(s));
    TRY(comm_mpi_check(s, buf));
    if (m->tag > s->tag_max || m->bytes / COMM_MPI_BLOCK > INT_MAX)
        FAIL(ERR_INTERNAL, "comm: %s: MPI's tags end at %d and messages at 2 PiB", buf, s->tag_max);
    r->word[1] = m->dst ? m->from : m->to;
    r->word[4] = m->bytes;
    r->word[5] = m->dst ? -1 - m->tag : m->tag;
    TRY(post_piece(s, m, r, 0));
    TRY(post_piece(s, m, r, 1));
    return ERR_OK;
}

static enum err msg_start(struct comm_world *w, const struct comm_msg *m, struct comm_req *r)
{
    enum err err = msg_post(comm_mpi_seat(w), m, r);
    return err == ERR_OK ? ERR_OK : comm_mpi_give_up(comm_mpi_seat(w), err);
}

struct msg_want {
    struct comm_mpi_seat *s;
    struct comm_req *r;
};

static enum err fail_length(const struct comm_msg *m, const char *sent)
{
    FAIL(ERR_MISMATCH, "comm: rank %d sends %s with tag %d, but rank %d receives %lld; both "
                       "sides must agree", m->from, sent, m->tag, m->to, (long long)m->bytes);
}

/* Did the piece bring all the bytes it should? */
static enum err check_length(const struct comm_mpi_seat *s, const struct comm_msg *m, int piece,
                             const MPI_Status *status)
{
    MPI_Count bytes = 0;
    char sent[32];
    int64_t want = piece == 0 ? m->bytes / COMM_MPI_BLOCK * COMM_MPI_BLOCK
                              : m->bytes % COMM_MPI_BLOCK;
    TRY_MPI(MPI_Get_elements_x(status, piece == 0 ? s->block : MPI_BYTE, &bytes));
    if (bytes == want)
        return ERR_OK;
    bytes += m->bytes - want;
    snprintf(sent, sizeof sent, "%lld byte%s", (long long)bytes, text_plural(bytes, "s"));
    return fail_length(m, sent);
}

static enum err msg_step(const struct comm_want *x, bool *done)
{
    const struct msg_want *mw = x->a;
    struct comm_msg m = msg_of(mw->r, mw->s->world.rank);
    *done = true;
    for (int i = 0; i < 2; i++) {
        MPI_Request q = get_request(mw->r, i);
        MPI_Status status;
        int come;
        if (q == MPI_REQUEST_NULL)
            continue;
        int rc = MPI_Test(&q, &come, &status), class = 0;
        if (rc != MPI_SUCCESS)
            MPI_Error_class(rc, &class);
        if (class == MPI_ERR_TRUNCATE)
            return fail_length(&m, "more bytes");
        TRY_MPI(rc);
        put_request(mw->r, i, q);
        if (come && m.dst)
            TRY(check_length(mw->s, &m, i, &status));
        *done = *done && come;
    }
    return ERR_OK;
}

static bool msg_missing(const struct comm_want *x, int i)
{
    const struct msg_want *mw = x->a;
    (void)i;
    return get_request(mw->r, 0) != MPI_REQUEST_NULL || get_request(mw->r, 1) != MPI_REQUEST_NULL;
}

static const char *msg_text(const struct comm_want *x, char buf[COMM_WANT_TEXT])
{
    const struct msg_want *mw = x->a;
    struct comm_msg m = msg_of(mw->r, mw->s->world.rank);
    return comm_msg_text(&m, buf);
}

static enum err msg_finish(struct comm_world *w, struct comm_req *r)
{
    struct msg_want mw = {.s = comm_mpi_seat(w), .r = r};
    int peer = (int)r->word[1];
    struct comm_want x = {.missing = msg_missing, .text = msg_text, .ranks = &peer, .n = 1,
                          .a = &mw};
    return comm_mpi_wait(mw.s, &x, msg_step);
}

/* ---- the life of a rank ---- */

static const struct comm_ops mpi_ops = {
    .kind = COMM_MPI,
    .msg_start = msg_start,
    .msg_finish = msg_finish,
    .coll_start = comm_mpi_coll_start,
    .coll_finish = comm_mpi_coll_finish,
    .group_open = comm_mpi_group_open,
    .group_close = comm_mpi_group_close,
    .abort = abort_rank,
    .failed = has_failed,
    .check = check_rank,
    .last_word = last_word,
};

static enum err open_channel(MPI_Comm *out)
{
    TRY_MPI(MPI_Comm_dup(MPI_COMM_WORLD, out));
    TRY_MPI(MPI_Comm_set_errhandler(*out, MPI_ERRORS_RETURN));
    return ERR_OK;
}

static enum err seat_open(struct comm_mpi_seat *s, double timeout_s)
{
    int *tag_max = NULL, has = 0;
    s->world = (struct comm_world){.ops = &mpi_ops, .timeout_s = timeout_s, .impl = s};
    s->in = MPI_REQUEST_NULL;
    TRY_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &s->world.rank));
    TRY_MPI(MPI_Comm_size(MPI_COMM_WORLD, &s->world.size));
    log_set_rank(s->world.rank);
    if (s->world.size > COMM_RANKS_MAX)
        FAIL(ERR_CONFIG, "comm: %d ranks; at most %d are served", s->world.size, COMM_RANKS_MAX);
    TRY(mem_new(s->world.size, sizeof *s->out, "requests of the control channel", &s->out));
    TRY(mem_new(s->world.size, sizeof *s->ended, "times of ending", &s->ended));
    for (int i = 0; i < s->world.size; i++)
        s->out[i] = MPI_REQUEST_NULL;
    TRY(open_channel(&s->msg));
    TRY(open_channel(&s->coll));
    TRY(open_channel(&s->ctl));
    TRY_MPI(MPI_Comm_get_attr(s->msg, MPI_TAG_UB, &tag_max, &has));
    s->tag_max = has ? *tag_max : 32767; /* what the standard promises */
    TRY_MPI(MPI_Type_contiguous(COMM_MPI_BLOCK, MPI_BYTE, &s->block));
    TRY_MPI(MPI_Type_commit(&s->block));
    if (s->world.size > 1)
        TRY_MPI(MPI_Irecv(s->word_in, 2, MPI_INT, MPI_ANY_SOURCE, 0, s->ctl, &s->in));
    return comm_mpi_life_open(&s->life, &s->world);
}

/* After a run without failure. */
static void seat_close(struct comm_mpi_seat *s)
{
    comm_mpi_life_close(&s->life);
    MPI_Type_free(&s->block);
    MPI_Comm_free(&s->ctl);
    MPI_Comm_free(&s->coll);
    MPI_Comm_free(&s->msg);
    mem_free(s->ended);
    mem_free(s->out);
}

static bool end_missing(const struct comm_want *x, int i)
{
    const struct comm_mpi_seat *s = x->a;
    return i != s->world.rank && s->ended[i] == 0;
}

static const char *end_text(const struct comm_want *x, char buf[COMM_WANT_TEXT])
{
    (void)x;
    snprintf(buf, COMM_WANT_TEXT, "the end of the run");
    return buf;
}

static enum err end_step(const struct comm_want *x, bool *done)
{
    struct comm_mpi_seat *s = x->a;
    int told;
    TRY_MPI(MPI_Testall(s->world.size, s->out, &told, MPI_STATUSES_IGNORE));
    *done = told && s->ends == s->world.size - 1;
    return ERR_OK;
}

/* Say that this rank has ended, and wait until all have. */
static enum err end_together(struct comm_mpi_seat *s)
{
    struct comm_want x = {.missing = end_missing, .text = end_text, .n = s->world.size, .a = s};
    int *ranks;
    if (s->world.unfinished != 0)
        FAIL(ERR_INTERNAL, "comm: the rank ends with %lld unfinished operation%s",
             (long long)s->world.unfinished, text_plural(s->world.unfinished, "s"));
    TRY(listen(s));
    TRY(comm_mpi_check(s, "ending"));
    TRY(mem_new(s->world.size, sizeof *ranks, "the ranks of a world", &ranks));
    for (int i = 0; i < s->world.size; i++)
        ranks[i] = i;
    x.ranks = ranks;
    enum err err = tell(s, WORD_ENDED, ERR_OK);
    if (err == ERR_OK)
        err = comm_mpi_wait(s, &x, end_step);
    comm_board_ended(&s->world);
    mem_free(ranks);
    return err;
}

/* The end of a job in which a rank has failed; see above. Ranks that fail at the same moment, as
 * all do when an agreed number is not finite, hear each other first, and the lowest of them
 * reports. */
static enum err end_job(struct comm_mpi_seat *s, enum err err)
{
    if (s->world.size == 1)
        return err; /* nobody waits: an error like any other */
    struct err_kept first; /* MPI may fail again */
    err_keep(&first, err);
    if (!s->failed) {
        say_failed(s, err);
        if (s->world.unfinished == 0)
            agree(s);
    }
    if (s->failed == 1 + s->world.rank && comm_mpi_life_speaks(&s->life)) {
        char text[COMM_RANK_TEXT];
        log_set_rank(-1); /* the message names it */
        log_line(LOG_ERROR, "%s", comm_rank_says(&s->world, first.text, text));
        MPI_Abort(MPI_COMM_WORLD, (int)err);
    }
    if (atomic_load(&s->life.told))
        MPI_Abort(MPI_COMM_WORLD, (int)s->failed_code);
    for (int i = 0; i < HEARD_S * 10; i++)
        nap(100000000);
    MPI_Abort(MPI_COMM_WORLD, (int)s->failed_code);
    return err;
}

enum err comm_mpi_run(const char *what, double timeout_s,
                      enum err (*body)(void *arg, struct comm_world *w), void *arg)
{
    struct comm_mpi_seat s = {.life = {.stop = -1}, .ctl = MPI_COMM_NULL};
    enum err err = comm_mpi_start(what, timeout_s);
    if (err != ERR_OK) {
        comm_mpi_limit_end();
        return err;
    }
    err = seat_open(&s, timeout_s);
    comm_mpi_limit_end();
    if (err == ERR_OK)
        err = body(arg, &s.world);
    if (err == ERR_OK)
        err = end_together(&s);
    if (err != ERR_OK)
        return end_job(&s, err);
    seat_close(&s);
    return ERR_OK;
}
