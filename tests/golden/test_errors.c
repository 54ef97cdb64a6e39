/* SPDX-License-Identifier: Apache-2.0
 *
 * The messages of refused configurations, a plan as JSON, and docs/configuration.md, word for word:
 * a change of wording is seen by a person before it is seen by users. PLAIT_GOLDEN_UPDATE=1 (or
 * `make golden`) writes all anew.
 */
#include "../unit/illegal.h"

#include "base/fs.h"
#include "base/mem.h"
#include "plait.h"
#include <stdlib.h>

static bool update(void)
{
    const char *make = getenv("PLAIT_GOLDEN");
    return getenv("PLAIT_GOLDEN_UPDATE") || (make && strcmp(make, "write") == 0);
}

/* The file `name` of the source tree is `want`, or is made so when that is asked for. */
static void compare(const char *name, const char *want)
{
    struct fs_map m;
    struct fs_file f;
    char *path;
    CHECK_OK(fs_join(PLAIT_SOURCE_DIR, name, &path));
    if (update()) {
        CHECK_OK(fs_create(&f, path));
        CHECK_OK(fs_write(&f, want, (int64_t)strlen(want)));
        CHECK_OK(fs_commit(&f));
    }
    enum err err = fs_map_open(&m, path, ERR_DATA);
    CHECK_OK(err);
    if (err == ERR_OK) {
        size_t same = 0, n = strlen(want), has = (size_t)m.size;
        while (same < n && same < has && m.data[same] == (uint8_t)want[same])
            same++;
        test_check(same == n && same == has, __FILE__, __LINE__,
                   "%s differs at byte %zu, where it should go on with:\n%.300s\n"
                   "`make golden` writes it anew",
                   name, same, want + same);
        fs_map_close(&m);
    }
    mem_free(path);
}

/* The message without what only a program with CUDA proposes, alone or behind other devices. */
static const char *of_any_build(const char *message, char buf[2048])
{
    static const char *const cuda[] = {", or train.device cuda", " or cuda"};
    snprintf(buf, 2048, "%s", message);
    for (size_t i = 0; i < sizeof cuda / sizeof *cuda; i++) {
        char *at = strstr(buf, cuda[i]);
        if (at)
            memmove(at, at + strlen(cuda[i]), strlen(at + strlen(cuda[i])) + 1);
    }
    return buf;
}

static void messages_of_illegal_configurations(void)
{
    struct text t = {0};
    char *all, message[2048];
    illegal_files();
    for (int i = 0; i < ILLEGAL_COUNT; i++) {
        enum err err = illegal_run(&illegal[i]);
        text_add(&t, "%s%s", illegal[i].set,
                 illegal[i].purpose == CHECK_TRAIN ? " (to train)" : "");
        if (illegal[i].ranks)
            text_add(&t, " (%d ranks)", illegal[i].ranks);
        text_add(&t, "\n  %d: %s\n", (int)err,
                 err == ERR_OK ? "legal" : of_any_build(err_text(), message));
    }
    CHECK_OK(text_done(&t, &all));
    compare("tests/golden/errors.txt", all);
    mem_free(all);
}

/* The lines of the start-up table about stages, the step and their memory. */
static void add_stage_lines(const char *page, struct text *out)
{
    for (const char *line = page; *line;) {
        size_t n = strcspn(line, "\n");
        if (strncmp(line, "  stage", 7) == 0 || strncmp(line, "step", 4) == 0 ||
            strncmp(line, "  pp", 4) == 0)
            text_add(out, "%.*s\n", (int)n, line);
        line += n + (line[n] == '\n');
    }
}

/* Stages by name, beside those by cost of the same layout. */
static void stages_by_name(void)
{
    static const char *const of[] = {
        "parallel.pp=2", "parallel.pp=2 parallel.split=layers.1",
        "parallel.pp=2 parallel.split=[layers.2.mlp]", "parallel.pp=4 model.kind=llama",
        "parallel.pp=4 model.kind=llama parallel.split=layers.1,layers.2.attn,layers.3.mlp",
        "parallel.pp=2 parallel.chunks=2 parallel.schedule=interleaved "
        "parallel.split=layers.0.mlp,layers.1.mlp,layers.2.mlp",
        "parallel.pp=2 parallel.schedule=zb-v parallel.split=layers.1,layers.2,layers.3",
        "parallel.pp=2 parallel.schedule=dualpipe parallel.split=layers.1.mlp",
        "parallel.pp=2 parallel.schedule=zb-v train.recompute=full "
        "parallel.split=layers.0.mlp,layers.1.attn,layers.1.mlp",
    };
    struct text t = {0};
    char *all;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        struct options o;
        CHECK_OK(illegal_options(&(struct illegal){.set = of[i]}, &o));
        char *page = report_of(&o, CHECK_PLAN);
        text_add(&t, "%s\n", of[i]);
        add_stage_lines(page, &t);
        mem_free(page);
    }
    CHECK_OK(text_done(&t, &all));
    compare("tests/golden/stages.txt", all);
    mem_free(all);
}

static void plan_of_a_layout(void)
{
    static const char *const set[] = {
        "model.kind=llama", "model.layers=3", "model.vocab=64", "model.tied=true", "parallel.tp=2",
        "parallel.sp=true", "parallel.pp=2", "parallel.dp=2", "parallel.zero=1", "train.batch=8",
        "train.threads=1", "train.save_every=5", "train.recompute=full"};
    struct plait_config *c;
    char *json = NULL;
    CHECK_INT(plait_config_new(&c), PLAIT_OK);
    for (size_t i = 0; i < sizeof set / sizeof *set; i++)
        CHECK_INT(plait_config_set(c, set[i]), PLAIT_OK);
    test_check(plait_config_plan(c, 0, &json) == PLAIT_OK, __FILE__, __LINE__, "%s", plait_error());
    compare("tests/golden/plan.json", json ? json : "");
    plait_free(json);
    plait_config_free(c);
}

static void configuration_page_is_current(void)
{
    char *page = NULL;
    CHECK_INT(plait_config_help("markdown", &page), PLAIT_OK);
    compare("docs/configuration.md", page ? page : "");
    plait_free(page);
}

static const struct test_case cases[] = {
    {"messages_of_illegal_configurations", messages_of_illegal_configurations},
    {"stages_by_name", stages_by_name},
    {"plan_of_a_layout", plan_of_a_layout},
    {"configuration_page_is_current", configuration_page_is_current},
};
TEST_MAIN(cases)
