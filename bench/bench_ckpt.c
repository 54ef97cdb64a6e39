/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints beside plain copies of as many bytes, in memory and to the same folder.
 *
 *     build/bench/bench_ckpt FOLDER [LAYERS HIDDEN [RANKS [HELPERS [READERS]]]]
 *
 * The state of a GPT-2 of that size, 12 and 768 by default, is written as RANKS shards (1), each by
 * a thread of its own and HELPERS beside it (1), and read into memory again by READERS (2) threads
 * a rank. A plain copy is a loop of write, or read, of 2 MiB a rank, out of and into the same
 * memory. Rounds in turn; printed are the medians, and a line of JSON.
 */
#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/text.h"
#include "ckpt/state.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROUNDS = 3, PIECE = 2 << 20, RANKS_MAX = 64, VOCAB = 50304 };

struct chunk { struct state_chunk chunk; struct state_source from; int64_t bytes; int rank; };
struct bench {
    struct model model;
    const char *dir;
    int ranks, helpers, readers, n;
    struct chunk *chunk;  /* owned; [n], dealt to the ranks by their bytes */
    int64_t dealt[RANKS_MAX];
    char *memory;         /* owned; of all */
    int64_t bytes;
    struct state_save save;
    struct state_index index;
};
struct rank { struct bench *b; int rank; char *text; int next; pthread_mutex_t lock; };

static void die(void)
{
    fprintf(stderr, "bench_ckpt: %s\n", err_text());
    exit(1);
}

static void need(enum err err)
{
    if (err != ERR_OK)
        die();
}

/* ---- what is saved ---- */

static void add(struct bench *b, const struct model_param *p, int kind)
{
    struct chunk *c = &b->chunk[b->n++];
    struct hf_place at;
    struct state_box box = {{0, 0}, {p->shape[0], p->shape[1]}};
    hf_place(&b->model, p, &at);
    *c = (struct chunk){.chunk = {.kind = (enum state_kind)kind, .nd = at.nd},
                        .from = {NULL, at.transposed}};
    memcpy(c->chunk.tensor, at.tensor, sizeof at.tensor);
    memcpy(c->chunk.shape, at.shape, sizeof at.shape);
    c->chunk.box = state_place_box(&at, &box);
    c->bytes = p->shape[0] * p->shape[1] * (int64_t)sizeof(float);
    b->bytes += c->bytes;
    for (int i = 0; i < b->ranks; i++)
        c->rank = b->dealt[i] < b->dealt[c->rank] ? i : c->rank;
    b->dealt[c->rank] += c->bytes;
}

static void make(struct bench *b)
{
    struct model_param *param;
    int n;
    need(model_param_list(&b->model, &param, &n));
    need(mem_new(n * STATE_KINDS, sizeof *b->chunk, "chunks", &b->chunk));
    for (int kind = 0; kind < STATE_KINDS; kind++)
        for (int i = 0; i < n; i++)
            add(b, &param[i], kind);
    mem_free(param);
    need(mem_new(b->bytes, 1, "the state", &b->memory));
    for (int64_t i = 0; i < b->bytes / 4; i++) /* floats of all kinds, none special */
        ((uint32_t *)(void *)b->memory)[i] = 0x3f000000u | ((uint32_t)i * 2654435761u >> 9);
    char *p = b->memory;
    for (int i = 0; i < b->n; i++) {
        b->chunk[i].from.p = p;
        p += b->chunk[i].bytes;
    }
}

/* ---- a rank's part ---- */

static void *write_shard(void *arg)
{
    struct rank *r = arg;
    struct bench *b = r->b;
    struct state_chunk *chunk;
    struct state_source *from;
    struct state_shard s;
    char name[STATE_FILE];
    int n = 0;
    need(mem_new(b->n, sizeof *chunk, "chunks", &chunk));
    need(mem_new(b->n, sizeof *from, "chunks", &from));
    for (int i = 0; i < b->n; i++)
        if (b->chunk[i].rank == r->rank) {
            chunk[n] = b->chunk[i].chunk;
            from[n++] = b->chunk[i].from;
        }
    state_shard_name(r->rank, name);
    need(state_shard_create(&s, &b->save, name, chunk, n));
    need(state_shard_fill(&s, from, b->helpers, NULL));
    need(safet_commit(&s.file));
    need(state_shard_text(&s, &r->text));
    state_shard_close(&s);
    mem_free(chunk);
    mem_free(from);
    return NULL;
}

/* A file of the same bytes as the rank's shard. */
static int plain_file(const struct rank *r, int flags, char path[4096])
{
    snprintf(path, 4096, "%s/plain-%d", r->b->dir, r->rank);
    int fd = open(path, flags, 0666);
    if (fd < 0) {
        perror(path);
        exit(1);
    }
    return fd;
}

/* Through all of the rank's memory, and a file of as many bytes. */
static void plain(const struct rank *r, int fd, bool writes)
{
    for (int i = 0; i < r->b->n; i++) {
        const struct chunk *c = &r->b->chunk[i];
        for (int64_t at = 0, n; c->rank == r->rank && at < c->bytes; at += n) {
            char *p = (char *)(uintptr_t)c->from.p + at;
            size_t piece = (size_t)num_min(PIECE, c->bytes - at);
            n = writes ? write(fd, p, piece) : read(fd, p, piece);
            if (n <= 0) {
                perror("plain copy");
                exit(1);
            }
        }
    }
}

static void *write_plain(void *arg)
{
    char path[4096];
    int fd = plain_file(arg, O_CREAT | O_EXCL | O_WRONLY, path);
    plain(arg, fd, true);
    if (fsync(fd) != 0 || close(fd) != 0)
        perror(path);
    return NULL;
}

static void *read_plain(void *arg)
{
    char path[4096];
    int fd = plain_file(arg, O_RDONLY, path);
    plain(arg, fd, false);
    close(fd);
    unlink(path);
    return NULL;
}

static void *read_chunks(void *arg)
{
    struct rank *r = arg;
    struct bench *b = r->b;
    for (;;) {
        pthread_mutex_lock(&r->lock);
        while (r->next < b->n && b->chunk[r->next].rank != r->rank)
            r->next++;
        int i = r->next++;
        pthread_mutex_unlock(&r->lock);
        if (i >= b->n)
            return NULL;
        const struct chunk *c = &b->chunk[i];
        struct state_want want = {c->chunk.tensor, c->chunk.kind, c->chunk.box, c->from.transposed};
        need(state_read(&b->index, &want, SAFET_F32, (void *)(uintptr_t)c->from.p));
    }
}

static void *read_shard(void *arg)
{
    struct rank *r = arg;
    pthread_t thread[RANKS_MAX];
    r->next = 0;
    for (int i = 0; i < r->b->readers; i++)
        if (pthread_create(&thread[i], NULL, read_chunks, r) != 0)
            exit(1);
    for (int i = 0; i < r->b->readers; i++)
        pthread_join(thread[i], NULL);
    return NULL;
}

/* ---- all of them ---- */

/* GB/s. */
static double all(struct bench *b, struct rank *rank, void *(*part)(void *arg))
{
    pthread_t thread[RANKS_MAX];
    double begin = log_now();
    for (int i = 0; i < b->ranks; i++)
        if (pthread_create(&thread[i], NULL, part, &rank[i]) != 0)
            exit(1);
    for (int i = 0; i < b->ranks; i++)
        pthread_join(thread[i], NULL);
    return (double)b->bytes / (log_now() - begin) / 1e9;
}

static void round_of(struct bench *b, double speed[4])
{
    struct rank rank[RANKS_MAX];
    const char *text[RANKS_MAX];
    struct state_head head = {.step = 1, .run = "bench", .type = SAFET_F32, .model = b->model,
                              .config = "", .seed = 1, .steps = 1, .loss = 1, .valid_loss = 1,
                              .world = b->ranks, .layout = "bench"};
    for (int i = 0; i < b->ranks; i++)
        rank[i] = (struct rank){.b = b, .rank = i, .lock = PTHREAD_MUTEX_INITIALIZER};
    speed[0] = all(b, rank, write_plain);
    speed[2] = all(b, rank, read_plain);
    need(fs_make_dirs(b->save.dir));
    speed[1] = all(b, rank, write_shard);
    for (int i = 0; i < b->ranks; i++)
        text[i] = rank[i].text;
    need(state_index_write(&b->save, &head, text, b->ranks));
    double begin = log_now();
    need(state_index_open(&b->index, b->save.dir));
    double opened = log_now() - begin;
    speed[3] = all(b, rank, read_shard);
    speed[3] = 1 / (1 / speed[3] + opened * 1e9 / (double)b->bytes);
    state_index_close(&b->index);
    need(state_remove(b->save.dir));
    for (int i = 0; i < b->ranks; i++)
        mem_free(rank[i].text);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const double *v)
{
    double sorted[ROUNDS];
    memcpy(sorted, v, sizeof sorted);
    qsort(sorted, ROUNDS, sizeof *sorted, compare);
    return sorted[ROUNDS / 2];
}

int main(int argc, char **argv)
{
    int64_t n[5] = {12, 768, 1, 1, 2};
    double speed[ROUNDS][4], column[6][ROUNDS];
    if (argc < 2) {
        printf("bench_ckpt: not run; give a folder (see the head of bench_ckpt.c)\n");
        return 0;
    }
    for (int i = 2; i < argc && i < 7; i++)
        if (!text_to_int(argv[i], &n[i - 2]) || n[i - 2] < 1 || (i > 3 && n[i - 2] > RANKS_MAX)) {
            fprintf(stderr, "bench_ckpt: %s is no number of them\n", argv[i]);
            return 2;
        }
    struct bench b = {.dir = argv[1], .ranks = (int)n[2], .helpers = (int)n[3],
                      .readers = (int)n[4]};
    b.model = (struct model){.kind = MODEL_GPT, .layers = n[0], .hidden = n[1], .heads = n[1] / 64,
                             .kv_heads = n[1] / 64, .head_dim = 64, .ffn = 4 * n[1], .vocab = VOCAB,
                             .seq = 1024, .tied = true, .norm_eps = 1e-5, .rope_theta = 10000,
                             .init_std = 0.02};
    char dir[4096];
    snprintf(dir, sizeof dir, "%s/bench-ckpt-%ld/step-1", b.dir, (long)getpid());
    b.save = (struct state_save){dir, 1, "bench", SAFET_F32, 0};
    make(&b);
    for (int i = 0; i < ROUNDS; i++) {
        round_of(&b, speed[i]);
        for (int k = 0; k < 4; k++)
            column[k][i] = speed[i][k];
        column[4][i] = speed[i][1] / speed[i][0];
        column[5][i] = speed[i][3] / speed[i][2];
    }
    *strrchr(dir, '/') = '\0';
    rmdir(dir);
    double m[6];
    for (int k = 0; k < 6; k++)
        m[k] = median(column[k]);
    printf("checkpoint of %.2f GB, %d rank(s), %d helper(s), %d reader(s), to %s:\n"
           "    written %.2f GB/s, a plain copy %.2f, ratio %.2f\n"
           "    loaded  %.2f GB/s, a plain read %.2f, ratio %.2f\n",
           (double)b.bytes / 1e9, b.ranks, b.helpers, b.readers, b.dir, m[1], m[0], m[4], m[3],
           m[2], m[5]);
    printf("{\"work\": \"checkpoint written and loaded beside plain copies\", \"bytes\": %lld, "
           "\"to\": \"%s\", \"ranks\": %d, \"helpers\": %d, \"readers\": %d, \"write_gb_s\": %.2f, "
           "\"copy_gb_s\": %.2f, \"write_ratio\": %.2f, \"load_gb_s\": %.2f, \"read_gb_s\": %.2f, "
           "\"load_ratio\": %.2f}\n", (long long)b.bytes, b.dir, b.ranks, b.helpers, b.readers,
           m[1], m[0], m[4], m[3], m[2], m[5]);
    mem_free(b.memory);
    mem_free(b.chunk);
    return 0;
}
