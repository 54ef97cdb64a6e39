/* SPDX-License-Identifier: Apache-2.0
 *
 * Chapter "information" of plait.h: what this program is and what it can use, asked of the parts
 * themselves. A part that is absent is named as absent, so that a report of trouble says it too.
 */
#include "api/api.h"

#include "base/thread.h"
#include "comm/comm.h"
#include "config/machine.h"
#include "sched/sched.h"

static int word_number(const char *word, enum text_number n)
{
    if (n != TEXT_NUMBER)
        FAIL(ERR_CONFIG, "\"%.40s\"%s is not a number that can be kept", word,
             text_number_fault(n));
    return PLAIT_OK;
}

int plait_word_int(const char *word, int64_t *out)
{
    return word_number(word, text_read_int(word, out));
}

int plait_word_real(const char *word, double *out)
{
    return word_number(word, text_read_real(word, out));
}

int plait_word_shown(const char *word, char **out)
{
    struct text t = {0};
    text_add_printable(&t, word);
    return (int)text_done(&t, out);
}

int plait_info(char **out)
{
    static const enum dev_kind kind[] = {DEV_CPU, DEV_REF, DEV_NULL, DEV_CUDA};
    struct text t = {0};
    char line[256];
    int launched = comm_mpi_launched_size();
    text_add(&t, "plait       %s, %s", PLAIT_VERSION,
#if defined(__clang__)
             "clang " __clang_version__
#elif defined(__GNUC__)
             "gcc " __VERSION__
#else
             "unknown compiler"
#endif
    );
#ifdef NDEBUG
    text_add(&t, ", release\nprocessor   ");
#else
    text_add(&t, ", debug\nprocessor   ");
#endif
    machine_processor(&t);
    text_add(&t, ", %d core%s to use\nfeatures    ", cores_usable(),
             text_plural(cores_usable(), "s"));
    machine_features(&t);
    for (size_t i = 0; i < sizeof kind / sizeof *kind; i++) {
        struct text units = {0};
        dev_describe_kind(kind[i], line, sizeof line);
        text_add(&t, "\n%s%s", i ? "            " : "devices     ", line);
        dev_describe_units(kind[i], &units);
        for (char *s = units.s, *end; s && (end = strchr(s, '\n')) != NULL; s = end + 1)
            text_add(&t, "\n            %.*s", (int)(end - s), s);
        text_free(&units);
    }
    text_add(&t, "\ntransports  thread%s; between GPUs nccl%s\n",
             comm_built(COMM_MPI) ? ", mpi" : " (mpi: not built in)",
             comm_nccl_built() ? "" : " (not built in)");
    if (launched > 0)
        text_add(&t, "launcher    MPI, %d process%s\n", launched, text_plural(launched, "es"));
    for (int i = 0; i < sched_kind_count(); i++)
        text_add(&t, "%s%s", i ? ", " : "schedules   ", sched_kind_at(i)->name);
    text_add(&t, "\n");
    return (int)text_done(&t, out);
}
