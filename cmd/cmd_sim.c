/* SPDX-License-Identifier: Apache-2.0
 *
 * plait sim: play a schedule on a clock and show what comes out.
 */
#include "cmd.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WIDTH_UNKNOWN = 120, WIDTH_MAX = 100000 };

/* Zero would stand for the default in plait.h, so it is refused here. */
#define TIME_MIN 1e-12
#define TIME_MAX 1e12

struct sim_words {
    struct plait_sim a;
    int text, lowered, gantt, json, list;
    const char *color;
};

int cmd_schedules(void)
{
    for (int i = 0; i < plait_schedule_count(); i++)
        printf("%-12s %s\n", plait_schedule_name(i), plait_schedule_doc(i));
    return PLAIT_OK;
}

bool cmd_is_schedule(const char *word)
{
    for (int i = 0; i < plait_schedule_count(); i++)
        if (strcmp(plait_schedule_name(i), word) == 0)
            return true;
    return false;
}

static int simulate(struct sim_words *w)
{
    struct plait_sim *a = &w->a;
    const char *none = getenv("NO_COLOR"), *term = getenv("TERM");
    bool always = strcmp(w->color, "always") == 0, by_itself = strcmp(w->color, "auto") == 0;
    if (w->text + w->lowered + w->gantt + w->json > 1)
        return cmd_usage("--text, --lowered, --gantt and --json exclude one another; use one of "
                         "them");
    if (a->schedule && cmd_is_schedule(a->schedule) && !a->model && (a->p == 0 || a->m == 0))
        return cmd_usage("%.64s needs the number of %s; use `plait sim SCHEDULE -p P -m M`",
                         a->schedule, a->p ? "microbatches" : "ranks");
    if (a->compare && !a->model && (a->p == 0 || a->m == 0))
        return cmd_usage("--compare needs the number of %s; use `plait sim --compare %.64s -p P "
                         "-m M`", a->p ? "microbatches" : "ranks", a->compare);
    if (!always && !by_itself && strcmp(w->color, "never") != 0)
        return cmd_usage("--color is \"%.40s\"; wanted is auto, always or never", w->color);
    /* auto: a terminal that did not ask for plain text (NO_COLOR, TERM=dumb). */
    a->color = always || (by_itself && isatty(STDOUT_FILENO) && !(none && *none) &&
                          !(term && strcmp(term, "dumb") == 0));
    a->width = a->width < 0 ? cmd_columns(STDOUT_FILENO, WIDTH_UNKNOWN) : a->width;
    a->format = w->text      ? "text"
                : w->lowered ? "lowered"
                : w->gantt   ? "gantt"
                : w->json    ? "json"
                             : "summary";
    char *page = NULL;
    int code = cmd_answer(plait_simulate(a, &page), &page);
    if (code != PLAIT_OK)
        return code;
    cmd_wrote(a->svg, "a picture");
    cmd_wrote(a->html, "a page to explore in a browser");
    cmd_wrote(a->perfetto, "trace events, for ui.perfetto.dev or chrome://tracing");
    return PLAIT_OK;
}

/* The other words first, then those that set a key, each kind in its order. A schedule may be a
 * file with any name, but then it says so. Returns how many the former are. */
static int part_words(int words, char **argv)
{
    int named = 0;
    for (int i = 0; i < words; i++) {
        char *word = argv[1 + i];
        if (strchr(word, '=') && strncmp(word, "file:", 5) != 0)
            continue;
        memmove(argv + 2 + named, argv + 1 + named, (size_t)(i - named) * sizeof *argv);
        argv[1 + named++] = word;
    }
    return named;
}

/* What is asked about: one schedule, or one of the questions about several. */
static int choose(struct sim_words *w, int all, char **argv)
{
    struct plait_sim *a = &w->a;
    int words = part_words(all, argv);
    a->set = (const char *const *)argv + 1 + words;
    a->sets = all - words;
    if (a->sets > 0 && !a->model)
        return cmd_usage("%.64s changes a configuration, and there is none; name its file with "
                         "--model FILE", a->set[0]);
    int asked = words + (w->list ? 1 : 0) + (a->compare ? 1 : 0) + (a->table ? 1 : 0);
    if (w->list && words > 0)
        return cmd_usage("--list takes no schedule, and %.64s is named", argv[1]);
    if (words > 1)
        return cmd_usage("sim plays one schedule at a time, and %d are named; `plait sim --compare "
                         "%.64s,%.64s` plays them side by side", words, argv[1], argv[2]);
    if (asked > 1)
        return cmd_usage("a schedule, --compare, --table and --list are four questions; ask one");
    if (w->list)
        return cmd_schedules();
    if (asked == 0 && !a->model)
        return cmd_usage("no schedule is named; `plait sim --list` shows them");
    a->schedule = words ? argv[1] : NULL;
    return simulate(w);
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
    "0F0,0B0 for each rank, which are PyTorch's; how many of UNSHARD, RESHARD,\n"
    "REDUCE_GRAD and WAIT_REDUCE_GRAD are passed over there is said.";
static const char examples[] = "plait sim 1f1b -p 4 -m 8 --gantt\n"
                               "plait sim --compare gpipe,1f1b -p 8 -m 32 --html step.html\n"
                               "plait sim zb-h1 --model configs/demo.yaml parallel.tp=1";

int cmd_sim(int argc, char **argv)
{
    struct sim_words w = {.a = {.size = sizeof w.a, .width = -1}, .color = "auto"};
    struct plait_sim *a = &w.a;
    const struct cmd_option option[] = {
        {"ranks", 'p', CMD_INT, &a->p, 1, 4096, "P", "pipeline ranks"},
        {"microbatches", 'm', CMD_INT, &a->m, 1, 65535, "M", "microbatches of a step"},
        {"chunks", 'v', CMD_INT, &a->v, 1, 16384, "V", "stages a rank (1; with a V 2)"},
        {"group", 0, CMD_INT, &a->group, 1, 65535, "N", "interleaved: microbatches in a row (P)"},
        {"slices", 0, CMD_INT, &a->slices, 1, 65535, "K", "seq1f1b: of a sequence; times are its"},
        {"tf", 0, CMD_REAL, &a->tf, TIME_MIN, TIME_MAX, "T", "time of a forward (1)"},
        {"tb", 0, CMD_REAL, &a->tb, TIME_MIN, TIME_MAX, "T", "of a whole backward (ti + tw)"},
        {"ti", 0, CMD_REAL, &a->ti, TIME_MIN, TIME_MAX, "T", "of its input half (tf)"},
        {"tw", 0, CMD_REAL, &a->tw, TIME_MIN, TIME_MAX, "T", "of its weight half (tf)"},
        {"tr", 0, CMD_REAL, &a->tr, TIME_MIN, TIME_MAX, "T", "of a recompute (tf)"},
        {"recompute", 0, CMD_FLAG, &a->recompute, 0, 0, NULL, "forwards again, before backwards"},
        {"tov", 0, CMD_REAL, &a->tov, TIME_MIN, TIME_MAX, "T",
         "of a pair, (F;B)OVERLAP_F_B (tf + tb)"},
        {"limit", 0, CMD_REAL, &a->limit, 1, TIME_MAX, "A",
         "zb-1p, zb-2p, zb-v: activations that a rank may keep (P, 2 P, 2 P)"},
        {"keep", 0, CMD_REAL, &a->keep, TIME_MIN, 1, "K",
         "zb-1p, zb-2p, zb-v: part of an activation that stays from I to W (0.5)"},
        {"bytes", 0, CMD_REAL, &a->bytes, TIME_MIN, 1e18, "N", "size of a message (the model's)"},
        CMD_RATES_OPTIONS(a->rates),
        {"scale", 0, CMD_TEXT, &a->scale, 0, 0, "X,X", "factors of the stages' times, one each"},
        {"costs", 0, CMD_TEXT, &a->costs, 0, 0, "FILE", "times of each stage: stage,F,B,I,W[,R]"},
        {"model", 0, CMD_TEXT, &a->model, 0, 0, "FILE", "a configuration: FLOPs, messages, bytes"},
        {"compare", 0, CMD_TEXT, &a->compare, 0, 0, "A,B@V",
         "several schedules side by side, @V their chunks"},
        {"table", 0, CMD_TEXT, &a->table, 0, 0, "A,B", "bubbles over p and m, up to -p and -m"},
        {"text", 0, CMD_FLAG, &w.text, 0, 0, NULL, "print the instructions, a line a rank"},
        {"lowered", 0, CMD_FLAG, &w.lowered, 0, 0, NULL,
         "print the whole program: messages, step; of a model sums, too"},
        {"gantt", 0, CMD_FLAG, &w.gantt, 0, 0, NULL, "draw the step"},
        {"json", 0, CMD_FLAG, &w.json, 0, 0, NULL, "print result and timeline as JSON"},
        {"svg", 0, CMD_TEXT, &a->svg, 0, 0, "FILE", "write a picture"},
        {"html", 0, CMD_TEXT, &a->html, 0, 0, "FILE", "write a page to explore"},
        {"perfetto", 0, CMD_TEXT, &a->perfetto, 0, 0, "FILE",
         "write trace events, for Perfetto or chrome://tracing"},
        {"width", 0, CMD_INT, &a->width, 0, WIDTH_MAX, "N",
         "columns of the drawing (the terminal's), 0: one for the shortest box"},
        {"color", 0, CMD_TEXT, &w.color, 0, 0, "WHEN", "auto, always or never (auto)"},
        {"list", 0, CMD_FLAG, &w.list, 0, 0, NULL, "name the schedules"},
    };
    const struct cmd_page page = {.usage = usage, .about = about, CMD_OPTIONS(option),
                                  .more = examples, .names = cmd_names_sim, .keys = true};
    int words, code;
    if (!cmd_parse(&page, argc, argv, &words, &code))
        return code;
    return choose(&w, words, argv);
}
