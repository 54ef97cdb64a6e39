/* SPDX-License-Identifier: Apache-2.0
 *
 * Names are absolute: of a folder's files runs are told that stand elsewhere.
 */
#include "folder.h"

#include "base/fs.h"
#include "base/mem.h"
#include "comm/comm.h"
#include <dirent.h>
#include <stdlib.h>
#include <unistd.h>

void folder_path(const char *name, char out[FOLDER_PATH])
{
    if (name[0] == '/')
        snprintf(out, FOLDER_PATH, "%s", name);
    else
        snprintf(out, FOLDER_PATH, "%s/%s", test_folder(), name);
}

void folder_path_in(const char *run, const char *name, char out[FOLDER_PATH])
{
    snprintf(out, FOLDER_PATH, "%s/%s/%s", test_folder(), run, name);
}

bool folder_has(const char *run, const char *file)
{
    char path[FOLDER_PATH];
    folder_path_in(run, file, path);
    return fs_exists(path);
}

int folder_count(const char *run, const char *part)
{
    char path[FOLDER_PATH];
    int n = 0;
    folder_path(run, path);
    DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d));)
        n += strstr(e->d_name, part) != NULL;
    if (d)
        closedir(d);
    return n;
}

void folder_remove(const char *name)
{
    char path[FOLDER_PATH], command[FOLDER_PATH + 16];
    folder_path(name, path);
    snprintf(command, sizeof command, "rm -rf '%s'", path);
    CHECK_INT(system(command), 0);
}

bool folder_same(const char *a, const char *b)
{
    char path[2][FOLDER_PATH];
    struct fs_map m, n;
    folder_path(a, path[0]);
    folder_path(b, path[1]);
    if (fs_map_open(&m, path[0], ERR_DATA) != ERR_OK)
        return false;
    bool same = fs_map_open(&n, path[1], ERR_DATA) == ERR_OK;
    if (same) {
        same = m.size > 0 && m.size == n.size && memcmp(m.data, n.data, (size_t)m.size) == 0;
        fs_map_close(&n);
    }
    fs_map_close(&m);
    return same;
}

bool folder_same_in(const char *run, const char *other, const char *name)
{
    char a[FOLDER_PATH], b[FOLDER_PATH];
    folder_path_in(run, name, a);
    folder_path_in(other, name, b);
    return folder_same(a, b);
}

char *folder_text(const char *run, const char *file)
{
    char path[FOLDER_PATH], *text = NULL;
    struct fs_map m = {0};
    folder_path_in(run, file, path);
    CHECK_OK(fs_map_open(&m, path, ERR_DATA));
    CHECK_OK(mem_new(m.size + 1, 1, "a file", &text));
    if (text && m.size)
        memcpy(text, m.data, (size_t)m.size);
    fs_map_close(&m);
    return text;
}

int folder_times(const char *run, const char *file, const char *word)
{
    char path[FOLDER_PATH];
    struct fs_map m;
    int n = 0;
    folder_path_in(run, file, path);
    if (fs_map_open(&m, path, ERR_DATA) != ERR_OK)
        return 0;
    const char *at = (const char *)m.data, *end = at + m.size;
    while (at < end && (at = memmem(at, (size_t)(end - at), word, strlen(word))) != NULL)
        n++, at++;
    fs_map_close(&m);
    return n;
}

bool folder_mpirun(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    test_skip("MPI under a sanitizer");
    return false;
#else
    if (!comm_built(COMM_MPI) || system("mpirun --version >/dev/null 2>&1") != 0) {
        test_skip("no mpirun");
        return false;
    }
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 1);
    setenv("OMPI_MCA_hwloc_base_binding_policy", "none", 1);
    /* mpirun's own folder is one for all of a user and goes with the first that ends. */
    setenv("OMPI_MCA_orte_tmpdir_base", test_folder(), 1);
    return true;
#endif
}

/* ---- token files ---- */

void folder_prepare(const char *path, const char *name)
{
    char tokens[FOLDER_PATH];
    int64_t n;
    folder_path(name, tokens);
    struct plait_prepare p = {sizeof p, &path, 1, tokens, "bytes", NULL, NULL};
    if (!fs_exists(tokens))
        test_check(plait_data_prepare(&p, &n) == 0, __FILE__, __LINE__, "%s", plait_error());
}

void folder_tokens(const char *name, const char *text, int times)
{
    char path[FOLDER_PATH], plain[64];
    snprintf(plain, sizeof plain, "%s.txt", name);
    folder_path(plain, path);
    FILE *f = fopen(path, "w");
    for (int i = 0; f && i < times; i++)
        fputs(text, f);
    CHECK(f && fclose(f) == 0);
    folder_prepare(path, name);
}

/* ---- runs ---- */

void folder_set(struct plait_config *c, const char *const *words, int n)
{
    for (int i = 0; i < n && words[i]; i++)
        test_check(plait_config_set(c, words[i]) == 0, __FILE__, __LINE__, "%s: %s", words[i],
                   plait_error());
}

void folder_set_file(struct plait_config *c, const char *key, const char *name)
{
    char path[FOLDER_PATH], word[FOLDER_PATH + 64];
    const char *words[] = {word};
    folder_path(name, path);
    snprintf(word, sizeof word, "%s=%s", key, path);
    folder_set(c, words, 1);
}

struct plait_config *folder_config(const char *run, const char *tokens)
{
    struct plait_config *c = NULL;
    CHECK_INT(plait_config_new(&c), 0);
    folder_set_file(c, "run.dir", run);
    folder_set_file(c, "data.train", tokens);
    return c;
}

void folder_on_step(void *arg, const struct plait_step *s)
{
    struct folder_seen *seen = arg;
    if (seen->losses < FOLDER_LOSSES)
        seen->loss[seen->losses++] = s->loss;
}

void folder_on_valid(void *arg, int64_t step, double loss, double bits)
{
    (void)step;
    (void)bits;
    ((struct folder_seen *)arg)->valid = loss;
}

struct until { struct folder_seen *seen; int64_t step; };

static void on_start(void *arg, const char *table)
{
    const struct until *u = arg;
    snprintf(u->seen->table, sizeof u->seen->table, "%s", table);
}

static void on_step(void *arg, const struct plait_step *s)
{
    const struct until *u = arg;
    folder_on_step(u->seen, s);
    if (s->step == u->step)
        plait_stop(1);
}

static void on_valid(void *arg, int64_t step, double loss, double bits)
{
    folder_on_valid(((const struct until *)arg)->seen, step, loss, bits);
}

static int train_until(struct plait_config *c, struct until u)
{
    *u.seen = (struct folder_seen){.valid = NAN};
    int code = plait_train(c, &(struct plait_train){.size = sizeof(struct plait_train),
                                                    .on_start = on_start, .on_step = on_step,
                                                    .on_valid = on_valid, .arg = &u});
    plait_config_free(c);
    return code;
}

int folder_train(struct plait_config *c, struct folder_seen *seen)
{
    return train_until(c, (struct until){seen, 0});
}

int folder_train_until(struct plait_config *c, int64_t step, struct folder_seen *seen)
{
    int code = train_until(c, (struct until){seen, step});
    plait_stop(0);
    return code;
}
