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

/* ---- folders that are read ---- */

static void put(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    CHECK(f && fputs(text, f) >= 0 && fclose(f) == 0);
}

/* In a folder that the case stands in: runs/full and models/hf can be read, as far as their names
 * say. */
static void make_places(void)
{
    static const char *const folder[] = {"runs", "runs/full", "runs/full/trace", "models",
                                         "models/hf", "empty", "other", "begun", "apart", "shut"};
    for (size_t i = 0; i < sizeof folder / sizeof *folder; i++)
        CHECK(mkdir(folder[i], 0777) == 0);
    put("runs/full/config.yaml", "");
    put("models/hf/config.json", "{}");
    put("other/notes.txt", "a");
    put("begun/plait.lock", "");
    put("apart/plait.lock", "plait run\nhost elsewhere\npid 7\nsince 2026-01-02T03:04:05Z\n");
    put("file", "a");
    CHECK(mkfifo("pipe", 0666) == 0 && symlink("gone", "astray") == 0);
    CHECK(symlink("circle", "circle") == 0 && symlink("runs/full", "good") == 0);
    CHECK(symlink("other", "indirect") == 0 && symlink("file", "indirect_file") == 0);
    CHECK(chmod("shut", 0) == 0);
}

static const struct place {
    const char *named, *says; /* {M}: "or a model" for who reads models, too */
    const char *compare;      /* where it says something else; NULL: the same */
} places[] = {
    {"", "no folder is named; name the folder of a run{M}", NULL},
    {"nowhere", "there is no folder nowhere; name the folder of a run{M}", NULL},
    {"nowhere/", "there is no folder nowhere/; name the folder of a run{M}", NULL},
    {"nowhere/a/b", "there is no folder nowhere/a/b; name", NULL},
    {"gold", "there is no folder gold; did you mean good", NULL},
    {"runs/fill", "there is no folder runs/fill; did you mean runs/full", NULL},
    {"runs/full/model", "there is no folder runs/full/model; did you mean runs/full", NULL},
    {"runs", "runs has neither config.yaml, as a run has, nor config.json, as transformers saves; "
             "did you mean runs/full",
     "runs has no config.yaml, as a run has; did you mean runs/full"},
    {"runs/full/trace", "runs/full/trace is empty; did you mean runs/full", NULL},
    {"runs/full/config.yaml", "runs/full/config.yaml is a file, not a folder; did you mean "
                              "runs/full", NULL},
    {"runs/full/config.yaml/x", "runs/full/config.yaml is a file, not a folder; did you mean "
                                "runs/full", NULL},
    {"models", "models has neither config.yaml, as a run has, nor config.json, as transformers "
               "saves; did you mean models/hf",
     "models has no config.yaml, as a run has; name the folder of a run"},
    {"models/hf", NULL, "models/hf is the folder of a model, which has config.json, and no run's"},
    {"empty", "empty is empty; name the folder of a run{M}", NULL},
    {"empty//", "empty// is empty; name", NULL},
    {"other", "other has neither config.yaml, as a run has, nor config.json",
     "other has no config.yaml, as a run has; name the folder of a run"},
    {"indirect", "indirect has neither config.yaml", "indirect has no config.yaml"},
    {"file", "file is a file, not a folder; name the folder of a run{M}", NULL},
    {"./file", "./file is a file, not a folder; name", NULL},
    {"file/a", "file is a file, not a folder; name", NULL},
    {"indirect_file", "indirect_file is a file, not a folder", NULL},
    {"pipe", "pipe is a device, pipe or socket, not a folder", NULL},
    {"/dev/null", "/dev/null is a device, pipe or socket, not a folder", NULL},
    {"astray", "astray is a link that leads nowhere; remove it, or make what it names", NULL},
    {"astray/a", "astray is a link that leads nowhere; remove it, or make what it names", NULL},
    {"circle", "circle is a link that leads back to itself; remove it", NULL},
    {"circle/a", "circle is a link that leads back to itself; remove it", NULL},
    {"begun", "begun has no weights: its run died before the end of its first step",
     "begun has no trace: its run died before the end of its first step"},
    {"apart", "apart has no weights: the run of pid 7 on host elsewhere, since 2026-01-02T03:04:05Z"
              ", is under way before the end of its first step, or died there, which cannot be "
              "seen",
     "apart has no trace: the run of pid 7 on host elsewhere, since 2026-01-02T03:04:05Z, is under "
     "way before the end of its first step, or died there, which cannot be seen"},
};

static void check_place(const char *verb, const struct place *p)
{
    static struct outcome seen;
    bool models = strcmp(verb, "generate") == 0;
    char want[512];
    const char *says = !models && p->compare ? p->compare : p->says, *m;
    bool begun = strcmp(p->named, "begun") == 0 || strcmp(p->named, "apart") == 0;
    int code = !begun ? 10 : models ? 14 : 12;
    if (!says)
        return;
    m = strstr(says, "{M}");
    const char *model = m && models ? " or a model" : "", *rest = m ? m + 3 : "";
    int n = (int)(m ? (size_t)(m - says) : strlen(says));
    snprintf(want, sizeof want, "plait: %s: %.*s%s%s", verb, n, says, model, rest);
    RUN(&seen, verb, p->named);
    test_check(seen.code == code && strncmp(seen.err, want, strlen(want)) == 0, __FILE__, __LINE__,
               "%s \"%s\": %d, %s wanted %s", verb, p->named, seen.code, seen.err, want);
}

static void folders_that_are_read(void)
{
    static struct outcome seen;
    make_places();
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        check_place("generate", &places[i]);
        check_place("compare", &places[i]);
    }
    RUN(&seen, "compare", "good"); /* a link to a folder is that folder */
    test_check(seen.code == 10 && strstr(seen.err, "good was not traced"), __FILE__, __LINE__,
               "%d, %s", seen.code, seen.err);
    if (geteuid() != 0) {
        check_place("generate", &(struct place){"shut", "shut cannot be read: permission", NULL});
        check_place("compare", &(struct place){"shut/a", "shut cannot be read: permission", NULL});
    }
}

/* A model's folder without weights: what it has instead. */
static void weights_of_another_form(void)
{
    static const struct { const char *name, *says; } forms[] = {
        {NULL, "has no weights: neither model.safetensors nor model.safetensors.index.json"},
        {"training_args.bin", "has no weights: neither"},
        {"rng_state_0.pth", "has no weights: neither"},
        {"pytorch_model.bin", "it has pytorch_model.bin, and plait reads safetensors alone"},
        {"consolidated.00.pth", "it has consolidated.00.pth, and plait reads safetensors alone"},
        {"tf_model.h5", "it has tf_model.h5, and plait reads safetensors alone"},
        {"model.Q4_K.gguf", "it has model.Q4_K.gguf, and plait reads safetensors alone"},
        {"adapter_model.safetensors", "it has adapter_model.safetensors, changes to another"},
        {"weights.safetensors", "it has weights.safetensors, and weights are read from"},
        {"model-00002-of-00003.safetensors", "it has model-00002-of-00003.safetensors, a shard, "
                                             "and no model.safetensors.index.json"},
    };
    static struct outcome seen;
    char path[64];
    CHECK(mkdir("forms", 0777) == 0);
    put("forms/config.json",
        "{\"model_type\": \"gpt2\", \"n_layer\": 1, \"n_embd\": 8, \"n_head\": 2, \"n_positions\": "
        "8, \"vocab_size\": 257}");
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        if (forms[i].name) {
            snprintf(path, sizeof path, "forms/%s", forms[i].name);
            put(path, "");
        }
        RUN(&seen, "generate", "forms", "--ids", "1", "parallel.pp=7"); /* said before the layout */
        test_check(seen.code == 14 && strstr(seen.err, forms[i].says), __FILE__, __LINE__,
                   "%s: %d, %s", forms[i].says, seen.code, seen.err);
        if (forms[i].name)
            CHECK(remove(path) == 0);
    }
    CHECK(symlink("gone", "forms/model.safetensors") == 0);
    RUN(&seen, "generate", "forms", "--ids", "1");
    test_check(seen.code == 14 && strstr(seen.err, "is a link that leads nowhere"), __FILE__,
               __LINE__, "%d, %s", seen.code, seen.err);
}

static const struct test_case cases[] = {
    {"mounts of the kernel", mounts_of_the_kernel},
    {"folders that are read", folders_that_are_read},
    {"weights of another form", weights_of_another_form},
};
TEST_MAIN(cases)
