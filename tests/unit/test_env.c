/* SPDX-License-Identifier: Apache-2.0
 *
 * The words of the environment: what each becomes, what is said of one that is none, and to whom;
 * and that options hold what was read, whatever is set afterwards.
 */

#include "config/options.h"
#include "test.h"
#include <stdlib.h>
#include <string.h>

static const char *const names[] = {"PLAIT_COPIES", "PLAIT_ATTN_GRAD", "PLAIT_CACHE",
                                    "XDG_CACHE_HOME", "HOME"};

static struct env read_with(const char *name, const char *word)
{
    struct env e;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unsetenv(names[i]);
    if (word)
        CHECK(setenv(name, word, 1) == 0);
    env_read(&e);
    return e;
}

/* Any other word than the two is an error that says them, where several ranks are on GPUs. */
static void copies(void)
{
    static const struct { const char *word; bool no, wrong; } c[] = {
        {NULL, false, false}, {"on", false, false}, {"off", true, false}, {"foo", false, true},
        {"OFF", false, true}, {"0", false, true}, {"", false, true},
    };
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        struct env e = read_with("PLAIT_COPIES", c[i].word);
        enum err err = env_check(&e, true);
        test_check(e.no_copies == c[i].no && (err == ERR_CONFIG) == c[i].wrong, __FILE__, __LINE__,
                   "row %d", (int)i);
        CHECK(err == ERR_OK || strstr(err_text(), "use on or off"));
        CHECK_OK(env_check(&e, false));
    }
}

static void ways_of_attention(void)
{
    static const struct { const char *word; enum dev_attn_grad way; } c[] = {
        {NULL, DEV_GRAD_AUTO}, {"", DEV_GRAD_AUTO}, {"auto", DEV_GRAD_AUTO},
        {"hopper", DEV_GRAD_HOPPER}, {"cudnn", DEV_GRAD_CUDNN}, {"own", DEV_GRAD_OWN},
    };
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        struct env e = read_with("PLAIT_ATTN_GRAD", c[i].word);
        test_check(e.attn_grad == c[i].way, __FILE__, __LINE__, "row %d", (int)i);
        CHECK_OK(env_check(&e, false));
    }
    struct env e = read_with("PLAIT_ATTN_GRAD", "fastest");
    CHECK_ERR(env_check(&e, false), ERR_CONFIG,
              "PLAIT_ATTN_GRAD fastest is no way to take attention's gradient; use auto, hopper, "
              "cudnn or own");
}

static void cache_is(const char *want)
{
    struct env e;
    env_read(&e);
    CHECK_STR(e.cache, want);
    CHECK_OK(env_check(&e, true));
}

static void folder_of_choices(void)
{
    read_with(NULL, NULL);
    cache_is("");
    CHECK(setenv("PLAIT_CACHE", "/a", 1) == 0 && setenv("XDG_CACHE_HOME", "/b", 1) == 0 &&
          setenv("HOME", "/c", 1) == 0);
    cache_is("/a");
    unsetenv("PLAIT_CACHE");
    cache_is("/b/plait");
    setenv("XDG_CACHE_HOME", "", 1);
    cache_is("/c/.cache/plait");
}

/* It is not cut: the cut path would be another folder. */
static void long_folder(void)
{
    char path[ENV_PATH + 1];
    memset(path, 'x', ENV_PATH);
    path[ENV_PATH] = '\0';
    struct env e = read_with("PLAIT_CACHE", path);
    CHECK_ERR(env_check(&e, false), ERR_CONFIG, "PLAIT_CACHE has a path of 1024 bytes");
    path[ENV_PATH - 1] = '\0';
    e = read_with("PLAIT_CACHE", path);
    CHECK_OK(env_check(&e, false));
    CHECK_STR(e.cache, path);
}

/* Options that are made hold what there was; what the plan asks of them is theirs alone. */
static void read_once(void)
{
    struct options o;
    read_with("PLAIT_COPIES", "off");
    CHECK_OK(options_fresh(&o));
    CHECK_OK(conf_set(&options_table, &o, "train.device=cuda"));
    CHECK_OK(conf_set(&options_table, &o, "parallel.tp=2"));
    CHECK_INT(options_tp_rows(&o, false), 0);
    setenv("PLAIT_COPIES", "on", 1);
    CHECK_INT(options_tp_rows(&o, false), 0);
    CHECK_OK(options_fresh(&o));
    CHECK(!o.env.no_copies);
}

static const struct test_case cases[] = {
    {"copies", copies}, {"ways of attention", ways_of_attention},
    {"the folder of choices", folder_of_choices}, {"a long folder", long_folder},
    {"read once", read_once},
};
TEST_MAIN(cases)
