/* SPDX-License-Identifier: Apache-2.0
 *
 * By falling steps. The lock of run.dir is looked at before each folder: where it is lost, nothing
 * there is this run's any more.
 */
#include "folder/older.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "ckpt/state.h"
#include "comm/comm.h"

static enum err remove_all(void *arg)
{
    const struct older *o = arg;
    struct state_found *found;
    char dir[FS_PATH];
    int n, whole = 0;
    TRY(state_list(o->o->run.dir, &found, &n));
    enum err err = ERR_OK;
    for (int i = 0; i < n && err == ERR_OK; i++) {
        if (found[i].step == o->best)
            continue;
        whole += found[i].whole;
        if (found[i].step >= o->newest || (found[i].whole && whole <= o->o->train.save_keep))
            continue;
        if (o->lock && !fs_lock_stands(o->lock))
            break;
        err = state_remove(state_dir(dir, o->o->run.dir, found[i].step));
    }
    mem_free(found);
    return err;
}

static void *remove_beside(void *arg)
{
    struct older *o = arg;
    err_keep(&o->err, comm_files_alone(o->o->run.io_timeout, remove_all, o));
    return NULL;
}

void older_start(struct older *o, const struct options *opt, const struct fs_lock *lock,
                 int64_t newest, int64_t best)
{
    older_end(o);
    o->o = opt;
    o->lock = lock;
    o->newest = newest;
    o->best = best;
    enum err err = thread_start(&o->thread, remove_beside, o, "remove older checkpoints");
    o->runs = err == ERR_OK;
    if (err != ERR_OK)
        log_line(LOG_WARN, "%s", err_text()); /* they go behind the next save */
}

void older_join(struct older *o)
{
    if (o->runs)
        pthread_join(o->thread, NULL);
    o->runs = false;
}

void older_end(struct older *o)
{
    if (o->runs) {
        fs_call_begin(o->o->run.dir);
        older_join(o);
        fs_call_end();
    }
    if (o->err.code != ERR_OK)
        log_line(LOG_WARN, "%s", o->err.text);
    o->err.code = ERR_OK;
}
