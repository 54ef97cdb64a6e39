/* SPDX-License-Identifier: Apache-2.0
 *
 * Reference lists of other systems and papers (golden/sched, facts: one line a rank), and lists of
 * plait's own schedules (golden/sched/own, written by tools/golden-sched), against the generators,
 * token for token; and played, against the times and peaks noted beside them in
 * index.csv (tf = ti = tw = 1, tb = 2, no latency; cost is the longest time of one rank from its
 * first to its last action). Lists without a generator here prove that reading, lowering, checking
 * and playing know no schedule by name: several chunks a rank, V placement, split backwards.
 *
 * Charts and pictures in golden/sim are compared byte for byte.
 */
#include "base/fs.h"
#include "base/mem.h"
#include "plait.h"
#include "sim/sim.h"
#include "test.h"

#include <stdlib.h>
#include <sys/stat.h>

/* The whole file as a string that ends; mem_free. */
static char *read_file(const char *name)
{
    char path[512], *copy = NULL;
    struct fs_map map = {0};
    snprintf(path, sizeof path, "%s/tests/golden/%s", PLAIT_SOURCE_DIR, name);
    CHECK_OK(fs_map_open(&map, path, ERR_CONFIG));
    CHECK_OK(mem_new(map.size + 1, 1, "a golden file", &copy)); /* empty when there is none */
    if (map.size > 0)
        memcpy(copy, map.data, (size_t)map.size);
    fs_map_close(&map);
    return copy;
}

struct row {
    char file[64], kind[32], peaks[128];
    int p, m, v, group;
    double makespan, cost;
};

static bool read_row(const char *line, struct row *r)
{
    return sscanf(line, "%63[^,],%31[^,],%d,%d,%d,%d,%lf,%lf,%127[^\n]", r->file, r->kind, &r->p,
                  &r->m, &r->v, &r->group, &r->makespan, &r->cost, r->peaks) == 9;
}

/* Calls f for each row of index.csv; returns how many there were. */
static int each_row(void (*f)(const struct row *r))
{
    char *index = read_file("sched/index.csv"), *line = strchr(index, '\n');
    int rows = 0;
    for (struct row r; line && line[1]; line = strchr(line + 1, '\n')) {
        if (!CHECK(read_row(line + 1, &r)))
            break;
        f(&r);
        rows++;
    }
    mem_free(index);
    return rows;
}

static char *read_list(const struct row *r)
{
    char name[80];
    snprintf(name, sizeof name, "sched/%s", r->file);
    return read_file(name);
}

static void compare_generated(const struct row *r)
{
    const struct sched_kind *kind = sched_kind_find(r->kind);
    if (!kind)
        return;
    struct sched s;
    struct text t = {0};
    char *want = read_list(r);
    struct sched_shape shape = {r->p, r->m, r->v, r->group};
    if (kind->make_sliced) { /* m counts slices, and the group is how many a microbatch has */
        shape.m /= r->group;
        shape.group = 0;
        CHECK_OK(sched_make_sliced(r->kind, &shape, r->group, &s));
    } else {
        CHECK_OK(sched_make(r->kind, &shape, NULL, &s));
    }
    sched_print(&s, &t);
    CHECK_STR(t.s, want);
    text_free(&t);
    sched_free(&s);
    mem_free(want);
}

static void generated(void)
{
    CHECK(each_row(compare_generated) > 30);
}

static void check_played(const struct row *r, const struct sched *s,
                         const struct sched_report *report)
{
    struct sim_result x;
    struct sim_cost unit = {.tf = 1, .tb = 2, .ti = 1, .tw = 1};
    const char *peak = r->peaks;
    CHECK_OK(sim_run(s, report, &unit, false, &x));
    CHECK(s->p == r->p && s->m == r->m && s->v == r->v);
    test_check(x.makespan == r->makespan && x.cost == r->cost, __FILE__, __LINE__,
               "%s: makespan %g, cost %g, wanted %g, %g", r->file, x.makespan, x.cost, r->makespan,
               r->cost);
    for (int rank = 0; rank < s->p; rank++) {
        char *end;
        CHECK_INT(x.peak[rank], strtol(peak, &end, 10));
        peak = end;
    }
    sim_result_free(&x);
}

static void play_row(const struct row *r)
{
    struct sched s, low;
    struct sched_report report = {0};
    struct sched_lower_args args = {.reduce = true, .tied = true, .step = true};
    char *text = read_list(r);
    CHECK_OK(sched_parse(r->file, text, (int64_t)strlen(text), &s));
    CHECK_OK(sched_lower(&s, &args, &low));
    CHECK_OK(sched_check(&low, &report));
    check_played(r, &low, &report);
    sched_report_free(&report);
    sched_free(&low);
    sched_free(&s);
    mem_free(text);
}

static void played(void)
{
    CHECK(each_row(play_row) > 30);
}

/* `make golden` writes the page anew; then a person reads the difference. */
static void write_page(const char *name, const char *page)
{
    const char *make = getenv("PLAIT_GOLDEN");
    char path[512];
    struct fs_file f;
    if (!getenv("PLAIT_GOLDEN_UPDATE") && !(make && strcmp(make, "write") == 0))
        return;
    snprintf(path, sizeof path, "%s/tests/golden/%s", PLAIT_SOURCE_DIR, name);
    CHECK_OK(fs_create(&f, path));
    CHECK_OK(fs_write(&f, page, (int64_t)strlen(page)));
    CHECK_OK(fs_commit(&f));
}

static void compare_page(const char *file, const char *got)
{
    char name[80];
    snprintf(name, sizeof name, "sim/%s", file);
    write_page(name, got);
    char *want = read_file(name);
    CHECK_STR(got, want);
    mem_free(want);
}

static void chart(const char *file, struct plait_sim a)
{
    char *got = NULL;
    a.size = sizeof a;
    if (!CHECK(plait_simulate(&a, &got) == PLAIT_OK))
        return;
    compare_page(file, got);
    mem_free(got);
}

/* tools/golden-sched in a folder of the test's: the exit status. */
static int write_list(const char *folder, const char *words)
{
    char command[1024];
    snprintf(command, sizeof command, "'%s/tools/golden-sched' '%s' '%s' %s >'%s/said' 2>&1",
             PLAIT_SOURCE_DIR, PLAIT_PROGRAM, folder, words, folder);
    return system(command);
}

static void check_file(const char *folder, const char *name, const char *want)
{
    char path[256], got[4096] = "";
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "r");
    if (CHECK(f != NULL)) {
        got[fread(got, 1, sizeof got - 1, f)] = '\0';
        fclose(f);
    }
    CHECK_STR(got, want);
}

/* An own list and its row are written, and written anew; a reference list is left alone. */
static void own_lists_are_written(void)
{
    static const char reference[] = "file,kind,p,m,v,group,makespan,cost,peaks\n"
                                    "1f1b-p2-m2.csv,1f1b,2,2,1,0,9,9,2 1\n";
    static const char folder[] = "lists";
    char want[512];
    CHECK(mkdir(folder, 0777) == 0);
    CHECK_OK(fs_put("lists/index.csv", reference, (int64_t)strlen(reference)));
    for (int time = 0; time < 2; time++) {
        CHECK(write_list(folder, "gpipe 2 3") == 0);
        check_file(folder, "own/gpipe-p2-m3.csv",
                   "0F0,0F1,0F2,0B0,0B1,0B2\n1F0,1F1,1F2,1B0,1B1,1B2\n");
        snprintf(want, sizeof want, "%sown/gpipe-p2-m3.csv,gpipe,2,3,1,0,12,12,3 3\n", reference);
        check_file(folder, "index.csv", want);
    }
    CHECK(write_list(folder, "1f1b 2 2") != 0); /* there is one from elsewhere */
    CHECK(write_list(folder, "gpipe 2 3 2") != 0); /* a shape that the schedule refuses */
    CHECK(write_list(folder, "'' 2 3") != 0);
    check_file(folder, "index.csv", want);
}

static void charts(void)
{
    struct plait_sim a = {.schedule = "1f1b", .p = 4, .m = 8, .format = "gantt", .width = 100};
    chart("1f1b-p4-m8-gantt.txt", a);
    a.schedule = "gpipe";
    chart("gpipe-p4-m8-gantt.txt", a);
    a.schedule = "naive";
    a.m = 2;
    chart("naive-p4-m2-gantt.txt", a);
    a = (struct plait_sim){
        .schedule = "interleaved", .p = 2, .m = 4, .v = 2, .format = "gantt", .width = 120};
    chart("interleaved-p2-m4-v2-gantt.txt", a);
    a = (struct plait_sim){
        .schedule = "zb-h2", .p = 4, .m = 8, .format = "gantt", .width = 100};
    chart("zb-h2-p4-m8-gantt.txt", a);
    a = (struct plait_sim){
        .schedule = "zb-2p", .p = 4, .m = 8, .format = "gantt", .width = 100};
    chart("zb-2p-p4-m8-gantt.txt", a);
    a = (struct plait_sim){
        .schedule = "file:" PLAIT_SOURCE_DIR "/tests/golden/sched/zb-v-p4-m8-v2.csv",
        .format = "gantt",
        .width = 250,
    };
    chart("zb-v-p4-m8-v2-gantt.txt", a);
    a = (struct plait_sim){.schedule = "1f1b", .p = 4, .m = 8};
    chart("1f1b-p4-m8-summary.txt", a);
    a = (struct plait_sim){.schedule = "1f1b", .p = 2, .m = 3, .format = "json"};
    chart("1f1b-p2-m3.json", a);
    a = (struct plait_sim){
        .schedule = "1f1b", .p = 4, .m = 6, .format = "gantt", .width = 100, .recompute = 1};
    chart("1f1b-p4-m6-recompute-gantt.txt", a);
    a.format = NULL;
    chart("1f1b-p4-m6-recompute-summary.txt", a);
}

/* What lies between the two words is left out: the page's style and program are no golden text. */
static void cut_out(char *page, const char *from, const char *to)
{
    char *a = strstr(page, from), *b = a ? strstr(a, to) : NULL;
    if (CHECK(b != NULL))
        memmove(a + strlen(from), b, strlen(b) + 1);
}

enum picture { SVG, HTML, PERFETTO };

static void picture(const char *file, enum picture kind, struct plait_sim a)
{
    static const char path[] = "picture";
    char *page = NULL, *text = NULL;
    a.size = sizeof a;
    struct fs_map map = {0};
    a.svg = kind == SVG ? path : NULL;
    a.html = kind == HTML ? path : NULL;
    a.perfetto = kind == PERFETTO ? path : NULL;
    CHECK_INT(plait_simulate(&a, &page), PLAIT_OK);
    mem_free(page);
    CHECK_OK(fs_map_open(&map, path, ERR_CONFIG));
    CHECK_OK(mem_new(map.size + 1, 1, "a picture", &text));
    memcpy(text, map.data, (size_t)map.size);
    fs_map_close(&map);
    if (kind == HTML) {
        cut_out(text, "<style>", "</style>");
        cut_out(text, "<script>", "</script>");
    }
    compare_page(file, text);
    mem_free(text);
}

static void pictures(void)
{
    struct plait_sim a = {.schedule = "1f1b", .p = 2, .m = 2, .rates.latency = "0.25"};
    picture("1f1b-p2-m2.svg", SVG, a);
    picture("1f1b-p2-m2.html", HTML, a);
    picture("1f1b-p2-m2-trace.json", PERFETTO, a);
    /* the documentation's own */
    a = (struct plait_sim){.compare = "1f1b,interleaved@2,zb-h1", .p = 4, .m = 8};
    picture("../../../docs/pictures/schedules.svg", SVG, a);
}

static const struct test_case cases[] = {
    {"generated", generated},
    {"played", played},
    {"charts", charts},
    {"pictures", pictures},
    {"own_lists_are_written", own_lists_are_written},
};
TEST_MAIN(cases)
