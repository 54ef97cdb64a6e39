/* SPDX-License-Identifier: Apache-2.0
 *
 * Names are absolute: of a folder's files runs are told that stand elsewhere.
 */
#include "folder.h"

#include "base/fs.h"
#include "comm/comm.h"
#include <dirent.h>
#include <stdlib.h>
#include <unistd.h>

void folder_path(const char *name, char out[FOLDER_PATH])
{
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

static void on_start(void *arg, const char *table)
{
    struct folder_seen *seen = arg;
    snprintf(seen->table, sizeof seen->table, "%s", table);
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

int folder_train(struct plait_config *c, struct folder_seen *seen)
{
    *seen = (struct folder_seen){.valid = NAN};
    int code = plait_train(c, &(struct plait_train){.size = sizeof(struct plait_train),
                                                    .on_start = on_start, .on_step = folder_on_step,
                                                    .on_valid = folder_on_valid, .arg = seen});
    plait_config_free(c);
    return code;
}
