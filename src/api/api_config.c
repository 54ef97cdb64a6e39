/* SPDX-License-Identifier: Apache-2.0
 *
 * Chapter "configuration" of plait.h: the options behind an opaque object, and what every chapter
 * shares: the message of the last error and the release of strings. An enum err is an enum
 * plait_code by value; the static assertions below hold the two lists together.
 */
#include "api/api.h"

#include "base/mem.h"
#include "comm/comm.h"
#include "check/check.h"
#include "config/options.h"
#include "folder/init.h"
#include "folder/folder.h"
#include "setup/plan_json.h"

_Static_assert((int)PLAIT_OK == (int)ERR_OK && (int)PLAIT_CONFIG == (int)ERR_CONFIG &&
                   (int)PLAIT_MISMATCH == (int)ERR_MISMATCH && (int)PLAIT_DATA == (int)ERR_DATA &&
                   (int)PLAIT_TOKEN == (int)ERR_TOKEN &&
                   (int)PLAIT_CHECKPOINT == (int)ERR_CHECKPOINT &&
                   (int)PLAIT_LAYOUT == (int)ERR_LAYOUT && (int)PLAIT_LOCKED == (int)ERR_LOCKED,
               "codes differ");
_Static_assert((int)PLAIT_STORAGE == (int)ERR_STORAGE &&
                   (int)PLAIT_NONFINITE == (int)ERR_NONFINITE && (int)PLAIT_HANG == (int)ERR_HANG &&
                   (int)PLAIT_PEER == (int)ERR_PEER && (int)PLAIT_MEMORY == (int)ERR_MEMORY &&
                   (int)PLAIT_INTERNAL == (int)ERR_INTERNAL &&
                   (int)PLAIT_STOPPED == (int)ERR_STOPPED,
               "codes differ");

const char *plait_error(void)
{
    return err_text();
}

int plait_say(int code, const char *text, void (*say)(const char *text))
{
    return (int)comm_report_error((enum err)code, text, say);
}

int plait_is_first(void)
{
    return comm_launch_first();
}

const char *plait_error_trail(void)
{
    return err_trace();
}

void plait_free(void *p)
{
    mem_free(p);
}

enum err api_take(const char *name, const void *given, void *mine, size_t have)
{
    size_t size;
    memcpy(&size, given, sizeof size);
    if (size < sizeof size || size > have)
        FAIL(ERR_CONFIG, "struct %s has size %zu, this library's has %zu bytes; set size to "
                         "sizeof, and build with this library's plait.h", name, size, have);
    memset(mine, 0, have);
    memcpy(mine, given, size);
    return ERR_OK;
}

int api_give(enum err err, struct text *page, char **out)
{
    if (err == ERR_OK)
        err = text_done(page, out);
    text_free(page);
    return (int)err;
}

int plait_config_new(struct plait_config **out)
{
    struct plait_config *c;
    TRY(mem_new(1, sizeof *c, "a configuration", &c));
    enum err err = options_fresh(&c->options);
    if (err == ERR_OK)
        *out = c;
    else
        mem_free(c);
    return (int)err;
}

void plait_config_free(struct plait_config *c)
{
    mem_free(c);
}

int plait_config_read(struct plait_config *c, const char *path)
{
    char at[FS_PATH];
    if (fs_named(folder_file(at, path, FOLDER_YAML)))
        FAIL(ERR_CONFIG, "config: %s is the folder of a run; did you mean %s", path, at);
    if (fs_named(folder_file(at, path, FOLDER_JSON)))
        FAIL(ERR_CONFIG, "config: %s is the folder of a model, which `plait generate` reads; name "
                         "a YAML file of keys", path);
    enum err err = conf_read_file(&options_table, &c->options, path);
    options_tidy(&c->options);
    if (err == ERR_OK && strlen(path) < sizeof c->options.source)
        memcpy(c->options.source, path, strlen(path) + 1);
    return (int)err;
}

int plait_config_set(struct plait_config *c, const char *key_equals_value)
{
    enum err err = conf_set(&options_table, &c->options, key_equals_value);
    options_tidy(&c->options);
    return (int)err;
}

int plait_config_get(const struct plait_config *c, const char *key, char **out)
{
    struct text t = {0};
    enum err err = conf_get(&options_table, &c->options, key, &t);
    return api_give(err, &t, out);
}

int plait_config_print(const struct plait_config *c, char **out)
{
    struct text t = {0};
    struct options o = c->options;
    TRY(init_take(&o));
    conf_print(&options_table, &o, &t);
    return (int)text_done(&t, out);
}

static const char markdown_head[] =
    "# Configuration\n"
    "\n"
    "<!-- Made by `plait help config --markdown`; do not edit. -->\n"
    "\n"
    "A run is described by the keys below. They are taken, in this order, from the defaults,\n"
    "from a YAML file, and from `key=value` words of the command line; later ones win. A file\n"
    "has two levels, the group and below it the key:\n"
    "\n"
    "```yaml\n"
    "model:\n"
    "  layers: 12\n"
    "parallel:\n"
    "  pp: 2\n"
    "```\n"
    "\n"
    "The same on the command line is `model.layers=12 parallel.pp=2`. A list is\n"
    "`[a, b]`, in a file also an element a line behind dashes, on the command line also\n"
    "`key=a,b`; an element with a comma, a bracket or a quote stands in quotes, and `[]` has\n"
    "none. At most 256 elements of together 4096 bytes, each with one for its end, are kept.\n"
    "Anchors, aliases, tags and several documents are refused, and so are unknown keys and\n"
    "keys given twice; a key by its name in another program is answered with the one here.\n"
    "Numbers are decimal and read as they are or refused; a whole one may be written 1e3.\n"
    "Paths are taken as they are; `~` at the beginning of one, which only a shell makes a\n"
    "home folder of, is refused.\n"
    "`plait check FILE` says, without a device and in well under a second, what a\n"
    "configuration will do and how many bytes each rank takes, or which key stands against\n"
    "it. It looks at no GPU: hold the bytes against what yours has. A run refuses before its\n"
    "first step what does not fit (code 22), and fewer GPUs than ranks (code 10). With\n"
    "`--yaml` it prints the configuration instead, all keys with defaults and words taken in,\n"
    "as a file.\n"
    "\n";

int plait_config_help(const char *format, char **out)
{
    struct text t = {0};
    if (strcmp(format, "markdown") == 0) {
        text_add(&t, "%s", markdown_head);
        conf_markdown(&options_table, &t);
    } else if (strcmp(format, "text") == 0) {
        conf_help(&options_table, &t);
    } else {
        FAIL(ERR_CONFIG, "help: there is no format \"%.40s\"; use text or markdown", format);
    }
    return (int)text_done(&t, out);
}

int plait_config_explain(const char *word, char **out)
{
    struct text t = {0};
    enum err err = conf_explain(&options_table, word, &t);
    return api_give(err, &t, out);
}

const char *plait_config_nearest(const char *word)
{
    return conf_nearest(&options_table, word);
}

int plait_config_rates(struct plait_config *c, const struct plait_rates *r)
{
    return (int)links_read("check", r->latency, r->bandwidth, r->memory_bandwidth,
                           &c->options.caps);
}

/* json: the plan; else the report. out NULL: neither is wanted. */
static int check(const struct plait_config *c, int ranks, bool json, char **out)
{
    struct options o = c->options;
    struct setup plan = {0};
    struct text t = {0};
    if (ranks < 0)
        FAIL(ERR_CONFIG, "%d ranks cannot be started; use 0 for as many as the layout needs",
             ranks);
    TRY(init_take(&o));
    enum err err = check_run(&o, ranks, CHECK_PLAN, json || !out ? NULL : &t, json ? &plan : NULL);
    if (err == ERR_OK && json)
        err = plan_json(&plan, &t);
    setup_free(&plan);
    return out ? api_give(err, &t, out) : (int)err;
}

int plait_config_check(const struct plait_config *c, int ranks, char **report)
{
    return check(c, ranks, false, report);
}

int plait_config_plan(const struct plait_config *c, int ranks, char **json)
{
    return check(c, ranks, true, json);
}
