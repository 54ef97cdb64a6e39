/* SPDX-License-Identifier: Apache-2.0
 *
 * Places that can be no run's folder, and folders that are none of a run's: what check, train,
 * generate and compare say of them.
 */
#include "folder.h"
#include "program.h"

#include <sys/stat.h>
#include <unistd.h>

/* check notes what train refuses, before it makes anything. */
static void both_refuse(const char *dir, const char *part)
{
    static struct outcome said, noted;
    static const char *const model[] = {"model.layers=1", "model.hidden=8", "model.heads=2",
                                        "model.seq=8", "train.batch=1", "train.steps=1"};
    char word[FOLDER_PATH + 16], note[FOLDER_PATH * 4];
    struct stat st;
    snprintf(word, sizeof word, "run.dir=%s", dir);
    folder_tokens("tokens.bin", "a braid of many strands\n", 80);
    RUN(&said, "train", "data.train=tokens.bin", word, model[0], model[1], model[2], model[3],
        model[4], model[5]);
    RUN(&noted, "check", "data.train=tokens.bin", word, model[0], model[1], model[2], model[3],
        model[4], model[5]);
    said.err[strcspn(said.err, "\n")] = '\0';
    snprintf(note, sizeof note, "note    %.1900s: training refuses it\n",
             strncmp(said.err, "plait: ", 7) == 0 ? said.err + 7 : said.err);
    test_check(said.code == 17 && strstr(said.err, part), __FILE__, __LINE__, "%s: %d, %s", dir,
               said.code, said.err);
    test_check(noted.code == 0 && strstr(noted.out, note), __FILE__, __LINE__, "%s: no %s in %s%s",
               dir, note, noted.out, noted.err);
    CHECK(lstat(dir, &st) != 0);
}

/* Every mount of a file system that is the kernel's is refused by its name; those in memory are
 * not, but for that of devices. */
static void mounts_of_the_kernel(void)
{
    static const char *const own[] = {"proc", "sysfs", "cgroup", "cgroup2", "devpts", "debugfs",
                                      "tracefs", "securityfs", "bpf", "pstore", "efivarfs",
                                      "binfmt_misc", "hugetlbfs", "configfs", "fusectl", "mqueue",
                                      "resctrl"};
    char at[256], type[64], run[FOLDER_PATH], says[128];
    int found = 0;
    struct stat dev, root;
    FILE *f = fopen("/proc/mounts", "r");
    while (CHECK(f != NULL) && fscanf(f, "%*s %255s %63s %*[^\n]", at, type) == 2)
        for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
            if (strcmp(type, own[i]) != 0 || access(at, X_OK) != 0 || found == 12)
                continue;
            snprintf(says, sizeof says, "of the kernel (%s), which keeps no files", own[i]);
            snprintf(run, sizeof run, found % 2 ? "%s/plait-a/b" : "%s/plait-a", at);
            both_refuse(run, says);
            found++;
        }
    if (f)
        fclose(f);
    CHECK(found > 0); /* proc, at least */
    if (stat("/dev", &dev) == 0 && stat("/", &root) == 0 && dev.st_dev != root.st_dev)
        both_refuse("/dev/plait-a", "of the kernel (that of /dev), which keeps no files");
}

static const struct test_case cases[] = {{"mounts of the kernel", mounts_of_the_kernel}};
TEST_MAIN(cases)
