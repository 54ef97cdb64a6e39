/* SPDX-License-Identifier: Apache-2.0
 *
 * NCCL's communicators: a group of device memory and a channel have one each where copies do not do
 * the work. Its kernels occupy SMs that GEMMs would use, so what a lane may take is bounded
 * (gpu/life.c). NCCL connects ranks at the first operation and makes the host wait then, so each
 * lane runs one tiny operation as it opens. Whom it connects depends on the algorithm:
 * comm_environment fixes the ring, so results are the same from run to run, too.
 */
#include "comm/gpu/gpu.h"

#include "base/log.h"
#include <nccl.h>
#include <string.h>

/* NCCL keeps its interface for programs that were built with an older one, not a newer. */
enum err comm_nccl_version_fits(void)
{
    int is = 0;
    (void)ncclGetVersion(&is);
    if (is / 10000 != NCCL_MAJOR || is / 100 < NCCL_VERSION_CODE / 100)
        FAIL(ERR_CONFIG, "train.device cuda with several ranks: this program was built for NCCL "
                         "%d.%d.%d and finds version %d; install NCCL %d.%d or a later %d, or "
                         "build anew", NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH, is, NCCL_MAJOR,
             NCCL_MINOR, NCCL_MAJOR);
    return ERR_OK;
}

static enum err nccl_failed(const char *file, int line, const char *call, ncclResult_t e)
{
    const char *more = ncclGetLastError(NULL);
    enum err code = e == ncclRemoteError ? ERR_PEER : ERR_INTERNAL;
    return err_set(code, file, line, "comm: NCCL refuses %s: %s%s%s; NCCL_DEBUG=INFO says "
                                             "more", call, ncclGetErrorString(e),
                   more && more[0] ? ", " : "", more ? more : "");
}

#define TRY_NCCL(call)                                                                             \
    do {                                                                                           \
        ncclResult_t try_nccl_ = (call);                                                           \
        if (try_nccl_ != ncclSuccess)                                                              \
            return nccl_failed(__FILE__, __LINE__, #call, try_nccl_);                              \
    } while (0)

enum err comm_nccl_name(struct comm_nccl_id *out)
{
    ncclUniqueId id;
    _Static_assert(sizeof id == sizeof *out, "a name as NCCL makes it");
    TRY_NCCL(ncclGetUniqueId(&id));
    memcpy(out, &id, sizeof id);
    return ERR_OK;
}

enum err comm_nccl_init(struct comm_gpu_lane *l, const struct comm_nccl_args *a)
{
    ncclUniqueId id;
    memcpy(&id, &a->id, sizeof id);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;
    if (a->ctas > 0) {
        config.minCTAs = 1;
        config.maxCTAs = a->ctas;
    }
    TRY_NCCL(ncclCommInitRankConfig(&l->comm, a->n, id, a->me, &config));
    return ERR_OK;
}

enum err comm_nccl_connect(const struct comm_gpu *q, struct comm_gpu_lane *l, int me)
{
    if (l->group)
        TRY_NCCL(ncclAllReduce(q->spare, q->spare, 1, ncclFloat32, ncclSum, l->comm, l->stream));
    else if (me == 0)
        TRY_NCCL(ncclSend(q->spare, 1, ncclInt8, 1, l->comm, l->stream));
    else
        TRY_NCCL(ncclRecv(q->spare, 1, ncclInt8, 0, l->comm, l->stream));
    TRY_CUDA(cudaStreamSynchronize(l->stream));
    return ERR_OK;
}

static ncclDataType_t type_of(enum dtype dt)
{
    static const ncclDataType_t type[DT_COUNT] = {[DT_F64] = ncclFloat64, [DT_F32] = ncclFloat32,
                                                  [DT_BF16] = ncclBfloat16, [DT_I32] = ncclInt32};
    return type[dt];
}

enum err comm_nccl_do(const struct comm_gpu_lane *l, const struct comm_gpu_op *op, cudaStream_t s)
{
    const struct comm_coll *c = &op->coll;
    size_t count = (size_t)c->count;
    ncclDataType_t type = type_of(c->dt);
    ncclResult_t e = ncclSuccess, end;
    if (op->is_msg && op->msg.src) /* the two ends of a channel are members 0, which sends, and 1 */
        TRY_NCCL(ncclSend(op->msg.src, (size_t)op->msg.bytes, ncclInt8, 1, l->comm, s));
    else if (op->is_msg)
        TRY_NCCL(ncclRecv(op->msg.dst, (size_t)op->msg.bytes, ncclInt8, 0, l->comm, s));
    if (op->is_msg)
        return ERR_OK;
    switch (c->kind) {
    case COMM_ALL_REDUCE:
        TRY_NCCL(ncclAllReduce(c->in, c->out, count, type, c->red == COMM_MAX ? ncclMax : ncclSum,
                               l->comm, s));
        break;
    case COMM_REDUCE_SCATTER:
        TRY_NCCL(ncclReduceScatter(c->in, c->out, count, type, ncclSum, l->comm, s));
        break;
    case COMM_ALL_GATHER:
        TRY_NCCL(ncclAllGather(c->in, c->out, count, type, l->comm, s));
        break;
    case COMM_ALL_TO_ALL: /* a group of NCCL's: all that goes and comes is under way at once */
        e = ncclGroupStart();
        for (int i = 0; i < l->n && e == ncclSuccess; i++) {
            const char *in = (const char *)c->in + c->send.at[i] * c->unit;
            char *out = (char *)c->out + c->recv.at[i] * c->unit;
            e = ncclSend(in, (size_t)c->send.count[i], type, i, l->comm, s);
            if (e == ncclSuccess)
                e = ncclRecv(out, (size_t)c->recv.count[i], type, i, l->comm, s);
        }
        end = ncclGroupEnd();
        TRY_NCCL(e);
        TRY_NCCL(end);
        break;
    case COMM_REDUCE:
        TRY_NCCL(ncclReduce(c->in, c->out, count, type, ncclSum, c->root, l->comm, s));
        break;
    case COMM_BROADCAST:
        TRY_NCCL(ncclBroadcast(c->in, c->out, count, ncclInt8, c->root, l->comm, s));
        break;
    case COMM_BARRIER: /* goes by the host */
        break;
    }
    return ERR_OK;
}

/* ---- the end ---- */

const char *comm_nccl_reports(const struct comm_gpu_lane *l, enum err *fault)
{
    ncclResult_t e = ncclSuccess;
    if (!l->comm || ncclCommGetAsyncError(l->comm, &e) != ncclSuccess || e == ncclSuccess ||
        e == ncclInProgress)
        return NULL;
    *fault = e == ncclRemoteError ? ERR_PEER : ERR_INTERNAL;
    return ncclGetErrorString(e);
}

void comm_nccl_abort_all(struct comm_gpu_lane *first)
{
    ncclResult_t e = ncclGroupStart();
    for (struct comm_gpu_lane *l = first; l; l = l->next) {
        if (l->comm && e == ncclSuccess)
            e = ncclCommAbort(l->comm);
        l->comm = NULL;
    }
    if (e == ncclSuccess)
        e = ncclGroupEnd();
    if (e != ncclSuccess)
        log_line(LOG_WARN, "comm: NCCL's communicators do not end: %s", ncclGetErrorString(e));
}

void comm_nccl_end(struct comm_gpu_lane *l)
{
    if (l->comm)
        (void)ncclCommDestroy(l->comm);
    l->comm = NULL;
}
