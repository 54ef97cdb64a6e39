/* SPDX-License-Identifier: Apache-2.0
 *
 * The file of choices, and choices in checkpoints: text, a choice a line,
 *
 *     algo1 m n k lda ldb ldc flags align way s0 .. s8 microseconds check
 *
 * where `check` is the FNV-1a hash of all before its space. The file only grows: a line is one
 * write(2) at its end, of several lines for one key the first holds, and who has measured appends
 * and reads again. So ranks and runs agree without a lock, and none loses what another wrote. A
 * line is a wish, compared with what the library itself proposes; nothing else of the file reaches
 * it (docs/design/gemm-choices.md).
 */
#include "device/cuda/cuda_algo.h"

#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/num.h"
#include "base/text.h"
#include <stdio.h>
#include <stdlib.h>

enum {
    WORDS = 1 + CUDA_ALGO_KEY + 1 + CUDA_ALGO_SETTINGS + 2, /* of a line */
    LINE_BYTES = 640 /* the longest: 19 numbers of 19 digits, a double, two words */
};
static const char mark[] = "algo1";

struct row {
    struct cuda_algo_key key;
    struct cuda_algo_choice choice;
    bool used;  /* by this run */
    bool saved; /* a checkpoint has it */
};

struct cuda_algos {
    char *path; /* owned; NULL: no file */
    struct row *rows; /* owned, (CUDA_ALGO_ROWS) */
    char *bytes;      /* owned, (CUDA_ALGO_BYTES + 1): the file as last read */
    int64_t count;
    bool warned; /* one warning a table: a file read after every choice must not repeat itself */
    bool full, stale; /* each was said */
};

static const int64_t *key_numbers(const struct cuda_algo_key *k)
{
    _Static_assert(sizeof *k == CUDA_ALGO_KEY * sizeof(int64_t), "a key is its numbers");
    return &k->m;
}

static struct row *look(const struct cuda_algos *a, const struct cuda_algo_key *key)
{
    for (int64_t i = 0; i < a->count; i++)
        if (memcmp(&a->rows[i].key, key, sizeof *key) == 0)
            return &a->rows[i];
    return NULL;
}

const struct cuda_algo_choice *cuda_algos_find(const struct cuda_algos *a,
                                               const struct cuda_algo_key *key)
{
    const struct row *r = look(a, key);
    return r ? &r->choice : NULL;
}

/* What nobody has used yet, where there is room. */
static void put(struct cuda_algos *a, const struct row *r)
{
    if (a->count < CUDA_ALGO_ROWS && !look(a, &r->key))
        a->rows[a->count++] = *r;
}

/* A row for what this run uses, or a checkpoint has: one of the file's gives way. */
static struct row *make_room(struct cuda_algos *a)
{
    if (a->count < CUDA_ALGO_ROWS)
        return &a->rows[a->count++];
    for (int64_t i = 0; i < a->count; i++)
        if (!a->rows[i].used && !a->rows[i].saved)
            return &a->rows[i];
    if (!a->full)
        log_line(LOG_WARN, "cuda: %d choices of algorithms are held, and no more: those of further "
                 "shapes are not in checkpoints, and last bits may differ in a run that goes on "
                 "from one", CUDA_ALGO_ROWS);
    a->full = true;
    return NULL;
}

static bool same_choice(const struct cuda_algo_choice *a, const struct cuda_algo_choice *b)
{
    return a->way == b->way && memcmp(a->settings, b->settings, sizeof a->settings) == 0;
}

void cuda_algos_use(struct cuda_algos *a, const struct cuda_algo_key *key,
                    const struct cuda_algo_choice *choice)
{
    struct row mine = {*key, *choice, true, false}, *r = look(a, key);
    if (r && same_choice(&r->choice, choice)) {
        r->used = true;
        return;
    }
    if (r && r->saved && !a->stale) {
        log_line(LOG_WARN, "cuda: choices of the checkpoint are not proposed here any more and are "
                 "made anew: last bits may differ from those of the run that saved it");
        a->stale = true;
    }
    r = r ? r : make_room(a);
    if (r)
        *r = mine;
}

/* ---- lines ---- */

/* Without line feeds. */
static void line_of(const struct row *r, char out[LINE_BYTES])
{
    const int64_t *k = key_numbers(&r->key);
    size_t used = (size_t)snprintf(out, LINE_BYTES, "%s", mark);
    for (int i = 0; i < CUDA_ALGO_KEY; i++)
        used += (size_t)snprintf(out + used, LINE_BYTES - used, " %lld", (long long)k[i]);
    used += (size_t)snprintf(out + used, LINE_BYTES - used, " %lld", (long long)r->choice.way);
    for (int i = 0; i < CUDA_ALGO_SETTINGS; i++)
        used += (size_t)snprintf(out + used, LINE_BYTES - used, " %lld",
                                 (long long)r->choice.settings[i]);
    used += (size_t)snprintf(out + used, LINE_BYTES - used, " %.3f", r->choice.us);
    ENSURE(used + 18 < LINE_BYTES);
    snprintf(out + used, LINE_BYTES - used, " %016llx", (unsigned long long)num_hash(out));
}

/* Cuts a terminated line at its single spaces; false unless there are WORDS words. */
static bool split(char *line, char *word[WORDS])
{
    int n = 0;
    for (char *p = line; n < WORDS; n++) {
        word[n] = p;
        char *space = strchr(p, ' ');
        if (!space)
            return n == WORDS - 1;
        *space = '\0';
        p = space + 1;
    }
    return false;
}

static bool number(const char *s, int64_t lo, int64_t hi, int64_t *out)
{
    bool plain = s[strspn(s, "-0123456789")] == '\0'; /* as it is written here */
    return plain && text_to_int(s, out) && *out >= lo && *out <= hi;
}

static bool numbers_of(char *word[WORDS], struct row *r)
{
    int64_t key[CUDA_ALGO_KEY];
    int at = 1;
    for (int i = 0; i < CUDA_ALGO_KEY; i++)
        if (!number(word[at++], i < CUDA_ALGO_KEY - 2, INT64_MAX, &key[i]))
            return false;
    r->used = r->saved = false;
    memcpy(&r->key, key, sizeof key);
    if (!number(word[at++], 1, INT32_MAX, &r->choice.way))
        return false;
    for (int i = 0; i < CUDA_ALGO_SETTINGS; i++)
        if (!number(word[at++], 0, INT32_MAX, &r->choice.settings[i]))
            return false;
    return text_to_double(word[at], &r->choice.us) && r->choice.us >= 0;
}

/* The n bytes of a line, which may hold anything. */
static bool row_of(const char *s, size_t n, struct row *r)
{
    char line[LINE_BYTES], sum[24], *word[WORDS];
    if (n < 17 || n >= LINE_BYTES || memchr(s, '\0', n) || s[n - 17] != ' ')
        return false;
    memcpy(line, s, n);
    line[n] = line[n - 17] = '\0';
    snprintf(sum, sizeof sum, "%016llx", (unsigned long long)num_hash(line));
    line[n - 17] = ' ';
    return strcmp(sum, line + n - 16) == 0 && split(line, word) && strcmp(word[0], mark) == 0 &&
           numbers_of(word, r);
}

/* ---- the file ---- */

/* One warning a table. */
static void warn(struct cuda_algos *a, const char *what)
{
    if (!a->warned)
        log_line(LOG_WARN, "cuda: %s", what);
    a->warned = true;
}

static void take_lines(struct cuda_algos *a, int64_t size)
{
    int64_t broken = 0, first = 0, line = 1;
    char what[512];
    for (int64_t at = 0; at < size; line++) {
        const char *s = a->bytes + at, *end = memchr(s, '\n', (size_t)(size - at));
        size_t n = end ? (size_t)(end - s) : (size_t)(size - at);
        struct row r;
        at += (int64_t)n + 1;
        if (n == 0)
            continue;
        if (row_of(s, n, &r))
            put(a, &r);
        else if (end && broken++ == 0) /* without an end it is being written just now */
            first = line;
    }
    if (broken > 0) {
        snprintf(what, sizeof what, "%s: passed over %lld broken line%s, the first being line "
                 "%lld; remove the file to have its choices made anew", a->path,
                 (long long)broken, text_plural(broken, "s"), (long long)first);
        warn(a, what);
    }
}

static enum err read_file(struct cuda_algos *a)
{
    struct fs_reader r;
    enum err err = ERR_OK;
    if (!fs_exists(a->path))
        return ERR_OK;
    TRY(fs_reader_open(&r, a->path, ERR_DATA));
    int64_t size = r.size;
    if (size > CUDA_ALGO_BYTES)
        err = err_set(ERR_DATA, __FILE__, __LINE__, "data: cannot read %s: it has %lld bytes, a "
                      "file of choices at most %d; remove it", a->path, (long long)size,
                      CUDA_ALGO_BYTES);
    else
        err = fs_reader_get(&r, 0, size, a->bytes);
    fs_reader_close(&r);
    if (err == ERR_OK)
        take_lines(a, size);
    return err;
}

static enum err append(struct cuda_algos *a, const struct row *r)
{
    char line[LINE_BYTES], out[LINE_BYTES + 2];
    int fd;
    line_of(r, line);
    int n = snprintf(out, sizeof out, "\n%s\n", line);
    TRY(fs_log_open(a->path, &fd));
    struct err_kept first;
    err_keep(&first, fs_append(fd, a->path, out, n));
    enum err last = fs_log_close(fd, a->path);
    return first.code == ERR_OK ? last : err_again(&first);
}

/* The file is of no use from here on: said once, and choices are for this run. */
static void give_up(struct cuda_algos *a)
{
    char what[512];
    snprintf(what, sizeof what, "choices of algorithms are not kept: %s", err_bare(err_text()));
    warn(a, what);
    mem_free(a->path);
    a->path = NULL;
}

void cuda_algos_offer(struct cuda_algos *a, const struct cuda_algo_key *key,
                      const struct cuda_algo_choice *mine, struct cuda_algo_choice *held)
{
    struct row r = {.key = *key, .choice = *mine};
    if (a->path && !look(a, key) &&
        (append(a, &r) != ERR_OK || read_file(a) != ERR_OK))
        give_up(a);
    put(a, &r);
    const struct cuda_algo_choice *holds = cuda_algos_find(a, key);
    *held = holds ? *holds : *mine;
}

/* ---- as text ---- */

static void add_head(const char *gpu, const int64_t version[2], struct text *out)
{
    text_add(out, "choices %s %lld %lld\n", gpu, (long long)version[0], (long long)version[1]);
}

static int by_key(const void *a, const void *b)
{
    const struct row *const *x = a, *const *y = b;
    const int64_t *k = key_numbers(&(*x)->key), *l = key_numbers(&(*y)->key);
    for (int i = 0; i < CUDA_ALGO_KEY; i++)
        if (k[i] != l[i])
            return k[i] < l[i] ? -1 : 1;
    return 0;
}

void cuda_algos_print(const struct cuda_algos *a, const char *gpu, const int64_t version[2],
                      struct text *out)
{
    const struct row *used[CUDA_ALGO_ROWS];
    char line[LINE_BYTES];
    size_t n = 0;
    for (int64_t i = 0; i < a->count; i++)
        if (a->rows[i].used)
            used[n++] = &a->rows[i];
    if (n == 0)
        return;
    qsort(used, n, sizeof *used, by_key);
    add_head(gpu, version, out);
    for (size_t i = 0; i < n; i++) {
        struct row r = *used[i];
        r.choice.us = 0;
        line_of(&r, line);
        text_add(out, "%s\n", line);
    }
}

int64_t cuda_algos_take(struct cuda_algos *a, const char *gpu, const int64_t version[2],
                        const char *text)
{
    struct text head = {0};
    int64_t taken = 0;
    bool ours = false;
    add_head(gpu, version, &head);
    for (const char *s = text; head.err == ERR_OK && *s;) {
        size_t n = strcspn(s, "\n");
        struct row r;
        if (strncmp(s, "choices ", 8) == 0) {
            ours = (int64_t)n + 1 == head.len && memcmp(s, head.s, n) == 0;
        } else if (ours && row_of(s, n, &r)) {
            struct row *held = look(a, &r.key);
            held = held ? held : make_room(a);
            r.saved = true;
            if (held)
                *held = r;
            taken += held != NULL;
        }
        s += n + (s[n] == '\n');
    }
    text_free(&head);
    return a->full ? 0 : taken;
}

/* ---- opening ---- */

/* "gemm-NVIDIA_H200-130100.txt": letters, digits and "-" of the GPU's name stay. */
static enum err path_of(const char *dir, const char *gpu, int64_t version, char **out)
{
    struct text name = {0};
    char *s;
    text_add(&name, "gemm-");
    for (const char *p = gpu; *p && p - gpu < 64; p++) {
        bool stays = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') ||
                     (*p >= '0' && *p <= '9') || *p == '-';
        text_add_char(&name, stays ? *p : '_', 1);
    }
    text_add(&name, "-%lld.txt", (long long)version);
    TRY(text_done(&name, &s));
    enum err err = fs_join(dir, s, out);
    mem_free(s);
    return err;
}

enum err cuda_algos_open(const char *dir, const char *gpu, int64_t version,
                         struct cuda_algos **out)
{
    struct cuda_algos *a;
    enum err err;
    TRY(mem_new(1, sizeof *a, "the choices of algorithms", &a));
    TRY_OR(out_table, mem_new(CUDA_ALGO_ROWS, sizeof *a->rows, "the choices of algorithms",
                              &a->rows));
    TRY_OR(out_table, mem_new(CUDA_ALGO_BYTES + 1, 1, "the file of choices", &a->bytes));
    if (dir && *dir)
        TRY_OR(out_table, path_of(dir, gpu, version, &a->path));
    if (a->path && (fs_make_dirs(dir) != ERR_OK || read_file(a) != ERR_OK))
        give_up(a);
    *out = a;
    return ERR_OK;
out_table:
    cuda_algos_close(a);
    return err;
}

void cuda_algos_close(struct cuda_algos *a)
{
    if (!a)
        return;
    mem_free(a->path);
    mem_free(a->rows);
    mem_free(a->bytes);
    mem_free(a);
}
