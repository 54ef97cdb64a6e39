/* SPDX-License-Identifier: Apache-2.0
 *
 * What other programs and papers call the schedules: torch.distributed.pipelining (its classes and
 * their names in torchtitan), Megatron-LM, DeepSpeed, zero bubble's own repository. Letters and
 * digits count, in any case; a class's "Schedule" in front does not.
 */
#include "sched/sched.h"

#include <ctype.h>
#include <string.h>

enum { NAME_MAX_LETTERS = 80 };

static const struct { const char *names, *means, *how; } others[] = {
    {"zbvzerobubble|zbv|zbvpp|vzb|zerobubblev|zbppv", "zb-v", NULL},
    {"interleavedzerobubble|interleavedzb|zbinterleaved", "zb-v",
     "two stages a rank in a V, not in a loop; file:PATH reads a loop's list"},
    {"zb|zerobubble|zbpp|zbh|zbpipeline|zerobubblepipeline", "zb-h1",
     "with the memory of 1f1b; zb-h2 and zb-v have less bubble"},
    {"zb1|zbauto", "zb-1p", NULL},
    {"zb2", "zb-2p", NULL},
    {"vpp|virtualpipeline|1f1bi|1f1bvpp|1f1binterleaving|interleaving|depthfirst|dfs|"
     "forwardbackwardpipeliningwithinterleaving", "interleaved", NULL},
    {"pipedream|pipedreamflush|dapple|onef1b|1f1bflush|oneforwardonebackward|train|noninterleaved|"
     "forwardbackwardpipeliningwithoutinterleaving|withoutinterleaving|nointerleaving", "1f1b",
     NULL},
    {"nopipelining|forwardbackwardnopipelining|none|off|single", "1f1b",
     "with parallel.pp 1 there is no pipeline"},
    {"auto|default|best", "1f1b", "the default; `plait sim --compare 1f1b,zb-v` shows others"},
    {"afab|fthenb|fillanddrain|allforwardallbackward", "gpipe", NULL},
    {"bfs|breadthfirst|bfpp|loopedbfs|loopbfs|loopingbfs", "looped-bfs", NULL},
    {"bidirectional|bidirectionalpipeline", "dualpipe", NULL},
    {"pipedream2bw|pipemare|async|asynchronous", NULL,
     "weights are updated at the end of a step, for all microbatches alike"},
    {"csv|custom|file", NULL, "file:PATH reads a list"},
};
enum { OTHERS = sizeof others / sizeof *others };

/* Letters and digits of a name, small, without a class's word in front. */
static void plain(const char *name, char out[NAME_MAX_LETTERS])
{
    int n = 0;
    for (; *name && n < NAME_MAX_LETTERS - 1; name++)
        if (isalnum((unsigned char)*name))
            out[n++] = (char)tolower((unsigned char)*name);
    out[n] = '\0';
    if (strncmp(out, "schedule", 8) == 0 && n > 8)
        memmove(out, out + 8, (size_t)n - 7);
}

static const char *kind_name(const void *arg, int i)
{
    (void)arg;
    return sched_kind_at(i)->name;
}

/* The row of a name, or -1. */
static int find_other(const char *name)
{
    char letters[NAME_MAX_LETTERS];
    plain(name, letters);
    size_t n = strlen(letters);
    for (int i = 0; i < OTHERS && n > 0; i++)
        for (const char *s = others[i].names; s; s = strchr(s, '|')) {
            s += *s == '|';
            if (strcspn(s, "|") == n && strncmp(s, letters, n) == 0)
                return i;
        }
    return -1;
}

const char *sched_kind_meant(const char *name)
{
    int i = find_other(name);
    return i >= 0 ? others[i].means : text_nearest(name, sched_kind_count(), kind_name, NULL);
}

void sched_kind_meant_add(const char *name, struct text *out)
{
    int i = find_other(name);
    const char *means = sched_kind_meant(name), *how = i >= 0 ? others[i].how : NULL;
    if (means)
        text_add(out, "; %s %s", i >= 0 ? "did you mean" : "the nearest is", means);
    if (how)
        text_add(out, "%s %s", means ? ":" : ";", how);
}
