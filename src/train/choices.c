/* SPDX-License-Identifier: Apache-2.0
 *
 * Most ranks have chosen the same, and after the first steps nobody chooses any more. So ranks sum
 * up marks of their texts first, and only where one has changed the different texts travel, each
 * once. All ranks see the same marks, and so decide alike.
 */
#include "train/checkpoint.h"

#include "base/mem.h"

enum { TEXT_MAX = 8 << 20 }; /* bytes in a checkpoint; a rank's have some 100 KiB at most */

/* The text of rank `from`, behind those in `out`. */
static enum err add_from(struct comm_group *all, int from, const char *mine, struct text *out)
{
    char *theirs;
    int64_t n = (int64_t)strlen(mine);
    TRY(comm_broadcast(all, from, &n, (int64_t)sizeof n));
    if (out->len + n > TEXT_MAX)
        return ERR_OK; /* the others measure anew when they go on */
    TRY(mem_new(n + 1, 1, "choices of a rank", &theirs));
    if (!all || comm_group_rank(all) == from)
        memcpy(theirs, mine, (size_t)n);
    enum err err = comm_broadcast(all, from, theirs, n);
    theirs[n] = '\0';
    if (err == ERR_OK)
        text_add(out, "%s", theirs);
    mem_free(theirs);
    return err == ERR_OK ? out->err : err;
}

/* mine: this rank's text. */
static enum err gather(struct choices *c, struct comm_group *all, const char *mine)
{
    int n = all ? comm_group_size(all) : 1;
    double *mark;
    struct text text = {0};
    char *made = NULL;
    TRY(mem_new(n, sizeof *mark, "marks of the ranks' choices", &mark));
    if (mine[0]) /* a number that a sum of doubles keeps */
        mark[all ? comm_group_rank(all) : 0] = (double)(1 + num_hash(mine) % ((uint64_t)1 << 52));
    enum err err = comm_all_reduce(all, mark, n, DT_F64, COMM_SUM);
    bool same = err == ERR_OK && c->mark && memcmp(c->mark, mark, (size_t)n * sizeof *mark) == 0;
    for (int i = 0; i < n && err == ERR_OK && !same; i++) {
        bool first = mark[i] != 0; /* of those with its text */
        for (int k = 0; k < i; k++)
            first = first && !(mark[k] == mark[i]);
        if (first)
            err = add_from(all, i, mine, &text);
    }
    if (err == ERR_OK && !same)
        err = text_done(&text, &made);
    text_free(&text);
    if (err != ERR_OK || same) {
        mem_free(mark);
        return err;
    }
    mem_free(c->mark);
    c->mark = mark;
    c->now = !c->now;
    mem_free(c->text[c->now]);
    c->text[c->now] = made;
    return ERR_OK;
}

enum err choices_gather(struct choices *c, struct dev *dev, struct comm_group *all)
{
    struct text mine = {0};
    enum err err = dev_choices(dev, &mine);
    if (err == ERR_OK)
        err = gather(c, all, mine.s ? mine.s : "");
    text_free(&mine);
    return err;
}

enum err choices_agree(struct comm_group *all, bool *taken)
{
    double lacks = !*taken;
    TRY(comm_all_reduce(all, &lacks, 1, DT_F64, COMM_MAX));
    *taken = lacks == 0;
    return ERR_OK;
}

const char *choices_text(const struct choices *c)
{
    return c->text[c->now] ? c->text[c->now] : "";
}

void choices_close(struct choices *c)
{
    mem_free(c->mark);
    mem_free(c->text[0]);
    mem_free(c->text[1]);
    *c = (struct choices){.now = 0};
}
