/* SPDX-License-Identifier: Apache-2.0
 *
 * plait sim: play a schedule on a clock and show what comes out.
 */
#include "cmd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { WIDTH_UNKNOWN = 120, WIDTH_MAX = 100000 };

/* Zero would stand for the default in plait.h, so it is refused here. */
#define TIME_MIN 1e-12
#define TIME_MAX 1e12

struct sim_words {
    int64_t p, m, v, group, slices, width;
    double tf, tb, ti, tw, tr, tov, latency, limit, keep, bytes, bandwidth, memory;
    bool text, lowered, gantt, json, list, recompute;
    const char *color, *scale, *costs, *model, *svg, *html, *perfetto, *compare, *table;
    const char *const *set; /* KEY=VALUE words */
    int sets;
};

static int list_schedules(void)
{
    for (int i = 0; i < plait_schedule_count(); i++)
        printf("%-12s %s\n", plait_schedule_name(i), plait_schedule_doc(i));
    return PLAIT_OK;
}

static int terminal_width(void)
{
    struct winsize w;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 0)
        return w.ws_col;
    return WIDTH_UNKNOWN;
}

/* auto: a terminal that did not ask for plain text (NO_COLOR, TERM=dumb). */
static bool choose_color(const char *when, bool *out)
{
    const char *none = getenv("NO_COLOR"), *term = getenv("TERM");
    *out = isatty(STDOUT_FILENO) && !(none && *none) && !(term && strcmp(term, "dumb") == 0);
    if (strcmp(when, "always") == 0)
        *out = true;
    else if (strcmp(when, "never") == 0)
        *out = false;
    else if (strcmp(when, "auto") != 0)
        return false;
    return true;
}

static bool is_schedule(const char *name)
{
    for (int i = 0; i < plait_schedule_count(); i++)
        if (strcmp(plait_schedule_name(i), name) == 0)
            return true;
    return false;
}

static struct plait_sim arguments(const struct sim_words *w, const char *schedule, bool color)
{
    return (struct plait_sim){
        .size = sizeof(struct plait_sim),
        .schedule = schedule,
        .p = (int)w->p,
        .m = (int)w->m,
        .v = (int)w->v,
        .group = (int)w->group,
        .slices = (int)w->slices,
        .tf = w->tf,
        .tb = w->tb,
        .ti = w->ti,
        .tw = w->tw,
        .tr = w->tr,
        .recompute = w->recompute,
        .tov = w->tov,
        .latency = w->latency,
        .limit = w->limit,
        .keep = w->keep,
        .bytes = w->bytes,
        .bandwidth = w->bandwidth,
        .memory_bandwidth = w->memory,
        .scale = w->scale,
        .costs = w->costs,
        .model = w->model,
        .set = w->set,
        .sets = w->sets,
        .svg = w->svg,
        .html = w->html,
        .perfetto = w->perfetto,
        .compare = w->compare,
        .table = w->table,
        .format = w->text      ? "text"
                  : w->lowered ? "lowered"
                  : w->gantt   ? "gantt"
                  : w->json    ? "json"
                               : "summary",
        .width = w->width < 0 ? terminal_width() : (int)w->width,
        .color = color,
    };
}

static int simulate(const struct sim_words *w, const char *schedule)
{
    bool color;
    if (w->text + w->lowered + w->gantt + w->json > 1)
        return cmd_usage("--text, --lowered, --gantt and --json exclude one another; use one of "
                         "them");
    if (schedule && is_schedule(schedule) && !w->model && (w->p == 0 || w->m == 0))
        return cmd_usage("%.64s needs the number of %s; use `plait sim SCHEDULE -p P -m M`",
                         schedule, w->p ? "microbatches" : "ranks");
    if (w->compare && !w->model && (w->p == 0 || w->m == 0))
        return cmd_usage("--compare needs the number of %s; use `plait sim --compare %.64s -p P "
                         "-m M`", w->p ? "microbatches" : "ranks", w->compare);
    if (!choose_color(w->color, &color))
        return cmd_usage("--color is \"%.40s\"; wanted is auto, always or never", w->color);
    struct plait_sim a = arguments(w, schedule, color);
    char *page;
    int code = plait_simulate(&a, &page);
    if (code != PLAIT_OK)
        return cmd_fail(code);
    fputs(page, stdout);
    plait_free(page);
    cmd_wrote(w->svg, "a picture");
    cmd_wrote(w->html, "a page to explore in a browser");
    cmd_wrote(w->perfetto, "trace events, for ui.perfetto.dev or chrome://tracing");
    return PLAIT_OK;
}

/* A word that sets a key. A schedule may be a file with any name, but then it says so. */
static bool is_setting(const char *word)
{
    return strchr(word, '=') && strncmp(word, "file:", 5) != 0;
}

/* The other words first, then those that set a key, each kind in its order. Returns how many the
 * former are. */
static int part_words(int words, char **argv)
{
    int named = 0;
    for (int i = 0; i < words; i++) {
        char *word = argv[1 + i];
        if (is_setting(word))
            continue;
        memmove(argv + 2 + named, argv + 1 + named, (size_t)(i - named) * sizeof *argv);
        argv[1 + named++] = word;
    }
    return named;
}

/* What is asked about: one schedule, or one of the questions about several. */
static int choose(struct sim_words *w, int all, char **argv)
{
    int words = part_words(all, argv);
    w->set = (const char *const *)argv + 1 + words;
    w->sets = all - words;
    if (w->sets > 0 && !w->model)
        return cmd_usage("%.64s changes a configuration, and there is none; name its file with "
                         "--model FILE", w->set[0]);
    int asked = words + (w->list ? 1 : 0) + (w->compare ? 1 : 0) + (w->table ? 1 : 0);
    if (w->list && words > 0)
        return cmd_usage("--list takes no schedule, and %.64s is named", argv[1]);
    if (words > 1)
        return cmd_usage("sim plays one schedule at a time, and %d are named; `plait sim --compare "
                         "%.64s,%.64s` plays them side by side", words, argv[1], argv[2]);
    if (asked > 1)
        return cmd_usage("a schedule, --compare, --table and --list are four questions; ask one");
    if (w->list)
        return list_schedules();
    if (asked == 0 && !w->model)
        return cmd_usage("no schedule is named; `plait sim --list` shows them");
    return simulate(w, words ? argv[1] : NULL);
}

static const char usage[] =
    "plait sim SCHEDULE -p P -m M [-v V] [--tf T ...] [--gantt] [--html FILE] ...\n"
    "       plait sim --compare A,B@V -p P -m M ...\n"
    "       plait sim --table A,B [-p P] [-m M]\n"
    "       plait sim [SCHEDULE | --compare A,B] --model FILE [KEY=VALUE ...] ...";
static const char about[] =
    "Plays a pipeline schedule on a clock and says how long a step takes, how much of\n"
    "it the ranks are idle, and how many activations they keep. SCHEDULE is a name of\n"
    "plait sim --list, or a file such as mine.csv (or file:PATH): a line of cells such as\n"
    "0F0,0B0 for each rank, which are PyTorch's; UNSHARD, RESHARD, REDUCE_GRAD and\n"
    "WAIT_REDUCE_GRAD there are passed over and counted.";
static const char examples[] = "plait sim 1f1b -p 4 -m 8 --gantt\n"
                               "plait sim --compare gpipe,1f1b -p 8 -m 32 --html step.html\n"
                               "plait sim zb-h1 --model configs/demo.yaml parallel.tp=1";

int cmd_sim(int argc, char **argv)
{
    struct sim_words w = {.width = -1, .color = "auto"};
    const struct cmd_option option[] = {
        {"ranks", 'p', CMD_INT, &w.p, 1, 4096, "P", "pipeline ranks"},
        {"microbatches", 'm', CMD_INT, &w.m, 1, 65535, "M", "microbatches of a step"},
        {"chunks", 'v', CMD_INT, &w.v, 1, 16384, "V", "stages a rank (1; with a V 2)"},
        {"group", 0, CMD_INT, &w.group, 1, 65535, "N", "interleaved: microbatches in a row (P)"},
        {"slices", 0, CMD_INT, &w.slices, 1, 65535, "K", "seq1f1b: of a sequence; times are its"},
        {"tf", 0, CMD_REAL, &w.tf, TIME_MIN, TIME_MAX, "T", "time of a forward (1)"},
        {"tb", 0, CMD_REAL, &w.tb, TIME_MIN, TIME_MAX, "T", "of a whole backward (ti + tw)"},
        {"ti", 0, CMD_REAL, &w.ti, TIME_MIN, TIME_MAX, "T", "of its input half (tf)"},
        {"tw", 0, CMD_REAL, &w.tw, TIME_MIN, TIME_MAX, "T", "of its weight half (tf)"},
        {"tr", 0, CMD_REAL, &w.tr, TIME_MIN, TIME_MAX, "T", "of a recompute (tf)"},
        {"recompute", 0, CMD_FLAG, &w.recompute, 0, 0, NULL, "forwards again, before backwards"},
        {"tov", 0, CMD_REAL, &w.tov, TIME_MIN, TIME_MAX, "T",
         "of a pair, (F;B)OVERLAP_F_B (tf + tb)"},
        {"tc", 0, CMD_REAL, &w.latency, 0, TIME_MAX, "T",
         "latency of a message, or a collective (0)"},
        {"limit", 0, CMD_REAL, &w.limit, 1, TIME_MAX, "A",
         "zb-1p, zb-2p, zb-v: activations that a rank may keep (P, 2 P, 2 P)"},
        {"keep", 0, CMD_REAL, &w.keep, TIME_MIN, 1, "K",
         "zb-1p, zb-2p, zb-v: part of an activation that stays from I to W (0.5)"},
        {"bytes", 0, CMD_REAL, &w.bytes, TIME_MIN, 1e18, "N", "size of a message (the model's)"},
        {"bandwidth", 0, CMD_REAL, &w.bandwidth, TIME_MIN, 1e18, "N",
         "of a link, bytes a unit of time (messages occupy none)"},
        {"memory-bandwidth", 0, CMD_REAL, &w.memory, TIME_MIN, 1e18, "N",
         "bytes a unit of time that norm and update move (they take none)"},
        {"scale", 0, CMD_TEXT, &w.scale, 0, 0, "X,X", "factors of the stages' times, one each"},
        {"costs", 0, CMD_TEXT, &w.costs, 0, 0, "FILE", "times of each stage: stage,F,B,I,W[,R]"},
        {"model", 0, CMD_TEXT, &w.model, 0, 0, "FILE", "a configuration: FLOPs, messages, bytes"},
        {"compare", 0, CMD_TEXT, &w.compare, 0, 0, "A,B@V",
         "several schedules side by side, @V their chunks"},
        {"table", 0, CMD_TEXT, &w.table, 0, 0, "A,B", "bubbles over p and m, up to -p and -m"},
        {"text", 0, CMD_FLAG, &w.text, 0, 0, NULL, "print the instructions, a line a rank"},
        {"lowered", 0, CMD_FLAG, &w.lowered, 0, 0, NULL,
         "print the whole program: messages, step; of a model sums, too"},
        {"gantt", 0, CMD_FLAG, &w.gantt, 0, 0, NULL, "draw the step"},
        {"json", 0, CMD_FLAG, &w.json, 0, 0, NULL, "print result and timeline as JSON"},
        {"svg", 0, CMD_TEXT, &w.svg, 0, 0, "FILE", "write a picture"},
        {"html", 0, CMD_TEXT, &w.html, 0, 0, "FILE", "write a page to explore"},
        {"perfetto", 0, CMD_TEXT, &w.perfetto, 0, 0, "FILE",
         "write trace events, for Perfetto or chrome://tracing"},
        {"width", 0, CMD_INT, &w.width, 0, WIDTH_MAX, "N",
         "columns of the drawing (the terminal's), 0: one for the shortest box"},
        {"color", 0, CMD_TEXT, &w.color, 0, 0, "WHEN", "auto, always or never (auto)"},
        {"list", 0, CMD_FLAG, &w.list, 0, 0, NULL, "name the schedules"},
    };
    const struct cmd_page page = {.usage = usage, .about = about, .option = option,
                                  .options = sizeof option / sizeof *option, .more = examples,
                                  .names = cmd_names_sim, .keys = true};
    int words, code;
    if (!cmd_parse(&page, argc, argv, &words, &code))
        return code;
    return choose(&w, words, argv);
}
