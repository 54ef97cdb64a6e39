/* SPDX-License-Identifier: Apache-2.0
 *
 * Paths as users write them: ~ is a shell's, wherever a path may stand, and nothing is made of that
 * name; a schedule's file that lacks its "file:" is known for what it is.
 */
#include "base/fs.h"
#include "plait.h"
#include "program.h"
#include "config/options.h"
#include "test.h"

#include <stdlib.h>
#include <unistd.h>

static const char *const home[] = {"~", "~/", "~/a.tok", "~root/a.tok", "~a", "file:~/a.csv"};
enum { HOMES = sizeof home / sizeof *home };

static void no_key_takes_a_home_folder(void)
{
    for (int i = 0; i < options_table.n; i++)
        for (int k = 0; k < HOMES && options_table.row[i].type == CONF_STRING; k++) {
            const char *key = options_table.row[i].key, *dot = strchr(key, '.');
            struct options o;
            char word[128], yaml[160];
            CHECK_OK(conf_defaults(&options_table, &o));
            snprintf(word, sizeof word, "%s=%s", key, home[k]);
            CHECK_ERR(conf_set(&options_table, &o, word), ERR_CONFIG, "only a shell makes a home");
            CHECK(strstr(err_text(), key) != NULL);
            int n = snprintf(yaml, sizeof yaml, "%.*s:\n  %s: \"%s\"\n", (int)(dot - key), key,
                             dot + 1, home[k]);
            CHECK_ERR(conf_read_text(&options_table, &o, "a.yaml", yaml, n), ERR_CONFIG,
                      "a.yaml:2: ");
            CHECK(strstr(err_text(), "only a shell makes a home folder of ~") != NULL);
            snprintf(word, sizeof word, "%s=./~", key); /* which says that it is meant */
            CHECK_OK(conf_set(&options_table, &o, word));
        }
}

static void no_option_takes_a_home_folder(void)
{
    static const char *const words[][8] = {
        {"check", "~/a.yaml"}, {"train", "~/a.yaml"}, {"train", "run.dir=~/run", "data.train=a"},
        {"generate", "~/run"}, {"generate", "run", "--logits=~/l.txt"}, {"compare", "~/run"},
        {"compare", "run", "--svg=~/a.svg"}, {"compare", "run", "--html", "~/a.html"},
        {"compare", "run", "--perfetto=~/a"}, {"compare", "run", "--costs=~/a.csv"},
        {"bench", "~/a.yaml"}, {"bench", "model.vocab=7", "--out=~/a"}, {"sim", "~/mine.csv"},
        {"sim", "file:~/mine.csv"}, {"sim", "--compare", "1f1b,~/mine.csv", "-p", "2", "-m", "2"},
        {"sim", "1f1b", "-p2", "-m2", "--svg=~/a.svg"}, {"sim", "1f1b", "-p2", "-m2", "--html=~/a"},
        {"sim", "1f1b", "-p2", "-m2", "--perfetto=~/a"}, {"sim", "--model=~/a.yaml"},
        {"sim", "1f1b", "-p2", "-m2", "--costs=~/a.csv"}, {"data", "prepare", "~/a.txt", "-oa.tok"},
        {"data", "prepare", PLAIT_SOURCE_DIR "/README.md", "-o~/a.tok"},
        {"data", "info", "~/a.tok"},
        {"data", "random", "--vocab=7", "--tokens=9", "--output=~/a.tok"},
    };
    struct outcome o;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        program_run(&o, NULL, words[i]);
        test_check(o.code == PLAIT_CONFIG && strstr(o.err, "only a shell makes a home folder of ~"),
                   __FILE__, __LINE__, "%s %s %s: %d %s", words[i][0], words[i][1],
                   words[i][2] ? words[i][2] : "", o.code, o.err);
        CHECK(!fs_exists("~"));
    }
    RUN(&o, "generate", "nowhere", "--prompt=~ hello"); /* a text is no path */
    CHECK(!strstr(o.err, "only a shell"));
}

/* parallel.schedule without "file:", of a file that is there; of one that is not, names alone. */
static void a_schedule_file_is_known(void)
{
    static const char *const name[] = {"mine.csv", "zb", "1f1b.txt", "folder/mine.csv"};
    const char text[] = "0F0,0B0\n";
    char word[128], want[128];
    struct outcome o;
    CHECK_OK(fs_make_dirs("folder"));
    for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
        snprintf(word, sizeof word, "parallel.schedule=%s", name[i]);
        snprintf(want, sizeof want, "write file:%s\n", name[i]);
        for (int there = 0; there < 2; there++) {
            if (there)
                CHECK_OK(fs_put(name[i], text, (int64_t)strlen(text)));
            RUN(&o, "check", "model.vocab=7", "train.batch=1", word);
            test_check(o.code == PLAIT_CONFIG && (strstr(o.err, want) != NULL) == there, __FILE__,
                       __LINE__, "%s: %d %s", word, o.code, o.err);
        }
        snprintf(word, sizeof word, "parallel.schedule=file:%s", name[i]);
        RUN(&o, "check", "model.vocab=7", "train.batch=1", word);
        test_check(o.code == PLAIT_OK, __FILE__, __LINE__, "%s: %d %s", word, o.code, o.err);
    }
}

static const struct test_case cases[] = {
    {"no_key_takes_a_home_folder", no_key_takes_a_home_folder},
    {"no_option_takes_a_home_folder", no_option_takes_a_home_folder},
    {"a_schedule_file_is_known", a_schedule_file_is_known},
};
TEST_MAIN(cases)
